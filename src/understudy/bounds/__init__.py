"""Error bounds from what was released: no extra budget, because they read noisy answers alone."""

from understudy.bounds.marginals import Bound, Evidence, Stage, marginal_bounds, weighted_average
from understudy.bounds.queries import Interval, count_interval
from understudy.bounds.tails import Law, subgaussian_l1

__all__ = [
    "Bound",
    "Evidence",
    "Interval",
    "Law",
    "Stage",
    "count_interval",
    "marginal_bounds",
    "subgaussian_l1",
    "weighted_average",
]
