"""Valid inference from a release: regressions, means, shares, correlations and tests, with valid intervals."""

from understudy.release.inference.combine import combine
from understudy.release.inference.infer import Estimate, Inference, infer

__all__ = ["Estimate", "Inference", "combine", "infer"]
