"""Metrics that score synthetic rows against real ones, one file each; `METRICS` is the registry.

**Privacy.** Scores are computed from real rows without a charge: they are for the custodian only.
"""

from understudy.metric.base import Counted, Metric, Part, Score
from understudy.metric.registry import METRICS, get_metric
from understudy.metric.tables import Rows

__all__ = ["METRICS", "Counted", "Metric", "Part", "Rows", "Score", "get_metric"]
