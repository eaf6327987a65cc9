"""Post-processing only: what can be made of noisy marginals.

`estimate.py` the way in · `descent/` the fit · `propagate.py` the marginal oracle, by the passes of `sweep/` ·
`projection/` other marginals · `sampling.py` rows · `tree/` closed forms where the cliques form a tree · `gum/`
PrivSyn's rows · `kernels/` all compiled loops.
"""

from understudy.model.estimate import estimate
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree
from understudy.model.protocol import FitReport, Model

__all__ = ["FitReport", "GraphicalModel", "JunctionTree", "Model", "estimate"]
