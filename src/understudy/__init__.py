"""Understudy: differentially private stand-ins for sensitive tables."""
