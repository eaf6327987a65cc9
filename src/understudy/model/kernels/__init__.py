"""The compiled loops, one file for each part of the model that uses them.

Nothing here is imported before it is needed, because numba is slow to import. A loop works on plain arrays and never on
one structure alone, so none is ever compiled twice.
"""
