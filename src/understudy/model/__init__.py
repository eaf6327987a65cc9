"""Models of noisy marginals: inference, marginals and synthetic rows. Post-processing only.

- `generate.py` fits the model of a generator to measurements; `fit.py` and `protocol.py` define its result.
- `graphical.py` is the graphical model. `estimate.py` fits it (Private-PGM): `problem.py` states the problem,
  `descent.py` minimises the loss. `tree.py` fits tables that form a tree, or nearly, without a long descent.
- `junction_tree.py`, `propagate.py` and `schedule.py` are exact inference; `projection.py` computes other marginals,
  `elimination.py` single marginals of small models without compiled code.
- `gum.py` makes rows by gradual updates (PrivSyn) from the tables of `consistency.py`; `product.py` is the model of
  independent columns. `relaxed.py` fits rows of relaxed codes (RAP); `network.py` makes such rows by a network (GEM).
- `dependencies.py` learns rules that the schema leaves open; `kernels/` holds all compiled loops.
"""
