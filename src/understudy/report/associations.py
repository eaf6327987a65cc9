"""How strongly pairs of columns hang together: Cramér's V, corrected for the bias of large tables."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from understudy.metric.base import Counted
from understudy.tabulate import SparseCounts

MOST = 24
"""More columns than this do not fit on a page; the first ones are shown."""
_CELLS = 1 << 22


def associations(table: Counted, columns: list[str]) -> NDArray[np.float64]:
    """A symmetric matrix of values between 0 (independent) and 1 (one tells the other)."""
    matrix = np.eye(len(columns))
    cliques = [(a, b) for a, b in combinations(columns, 2) if table.domain.cells((a, b)) <= _CELLS]
    for (a, b), counts in table.counts(cliques):
        dense = counts.dense() if isinstance(counts, SparseCounts) else counts
        value = cramers_v(dense.reshape(table.domain.shape((a, b))).astype(np.float64))
        one, other = columns.index(a), columns.index(b)
        matrix[one, other] = matrix[other, one] = value
    return matrix


def cramers_v(counts: NDArray[np.float64]) -> float:
    """Bias-corrected Cramér's V (Bergsma); 0 where a column has a single value.

    >>> cramers_v(np.array([[50.0, 0.0], [0.0, 50.0]])), cramers_v(np.array([[25.0, 25.0], [25.0, 25.0]]))
    (1.0, 0.0)
    """
    counts = counts[counts.sum(1) > 0][:, counts.sum(0) > 0]
    total, (rows, columns) = float(counts.sum()), counts.shape
    if total < 2 or min(rows, columns) < 2:
        return 0.0
    expected = np.outer(counts.sum(1), counts.sum(0)) / total
    phi = float(((counts - expected) ** 2 / expected).sum()) / total
    phi = max(0.0, phi - (rows - 1) * (columns - 1) / (total - 1))
    rows_, columns_ = rows - (rows - 1) ** 2 / (total - 1), columns - (columns - 1) ** 2 / (total - 1)
    return float(min(1.0, np.sqrt(phi / max(min(rows_ - 1, columns_ - 1), 1e-9))))
