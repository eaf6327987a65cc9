"""One file per published mechanism, reading like its pseudocode; `MECHANISMS` is the registry."""

from understudy.mechanism.protocol import Fit, Footprint, Mechanism, one_way
from understudy.mechanism.registry import MECHANISMS, mechanism_named

__all__ = ["MECHANISMS", "Fit", "Footprint", "Mechanism", "mechanism_named", "one_way"]
