"""Compiled loops, one file for each part of the model that uses them.

These modules are imported inside functions, because numba is slow to import. Loops take plain arrays and serve every
tree and domain, so each is compiled once.
"""
