"""One file per published metric: real rows against synthetic rows; `METRICS` is the registry.

**Privacy.** Every score computed against real rows is for the custodian's eyes only: it was not paid for.
"""

from understudy.metric.base import Counted, Metric, Part, Score
from understudy.metric.registry import METRICS, metric_named
from understudy.metric.tables import Rows

__all__ = ["METRICS", "Counted", "Metric", "Part", "Rows", "Score", "metric_named"]
