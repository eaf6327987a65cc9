"""Post-processing only: what can be made of noisy marginals."""
