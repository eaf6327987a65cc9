"""`compare`: mechanisms side by side, on a table that may be seen or on one that is paid for.

`grid` runs the grid of mechanisms, budgets and repeats in worker processes and records every run; `page` draws what
came out.
"""

from understudy.comparison.grid import Comparison, compare

__all__ = ["Comparison", "compare"]
