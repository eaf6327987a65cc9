"""One file per published mechanism, reading like its pseudocode; `MECHANISMS` is the registry."""

from understudy.mechanism.base import Footprint, Mechanism, one_way
from understudy.mechanism.registry import MECHANISMS, make_mechanism
from understudy.model.fit import Fit, Generator

__all__ = ["MECHANISMS", "Fit", "Footprint", "Generator", "Mechanism", "make_mechanism", "one_way"]
