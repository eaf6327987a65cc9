"""Post-processing only: what can be made of noisy marginals."""

from understudy.model.estimate import estimate
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree
from understudy.model.protocol import Model
from understudy.model.report import FitReport

__all__ = ["FitReport", "GraphicalModel", "JunctionTree", "Model", "estimate"]
