"""Models of tables that form a tree: fitted all at once, in a few steps however many rows there are.

`noisy_tables` is what was measured, one table a clique; `one_ways` and `nearest_tables` make such tables agree;
`start` multiplies them out to a model, which `estimate` then finishes.
"""
