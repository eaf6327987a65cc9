"""Discover schema facts with budget: types, bounds, bins and values, each a charged call on the gate."""
