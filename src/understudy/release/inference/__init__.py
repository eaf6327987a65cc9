"""Valid inference from a release: regressions, means, shares, correlations and tests, with valid intervals."""

from understudy.release.inference.combine import combine
from understudy.release.inference.infer import Inference, Line, infer

__all__ = ["Inference", "Line", "combine", "infer"]
