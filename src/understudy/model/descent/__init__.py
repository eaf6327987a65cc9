"""The fit: what is minimised, from where, in which metric, and how."""
