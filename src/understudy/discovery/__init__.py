"""Schema facts bought with budget: types, bounds, bins and values, each a charged call on the gate."""
