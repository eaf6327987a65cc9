"""One file per published mechanism, reading like its pseudocode; `MECHANISMS` is the registry."""

from understudy.mechanism.base import Footprint, Mechanism, one_way
from understudy.mechanism.registry import MECHANISMS, mechanism_named
from understudy.model.fit import Fit, Generator

__all__ = ["MECHANISMS", "Fit", "Footprint", "Generator", "Mechanism", "mechanism_named", "one_way"]
