"""About how much memory and time a run needs: from the schema, a declared number of rows, and what was measured."""

from __future__ import annotations

from functools import cache
from math import comb

from understudy.domain import Domain
from understudy.mechanism import mechanism_named

_CELL_BYTES = 12
"""A cell of a table while it is read and coded: the text or number, and its code."""

_ROW_PAIR = 8e-9
"""Seconds to count one pair of columns of one row, from the census table of benchmarks/mst.md (99 columns)."""

_PAIRS_COUNTED = frozenset({"mst", "privsyn", "gaussian"})
_ADAPTIVE = frozenset({"aim", "mwem"})


MANY = 30
"""Columns above which adaptive mechanisms have so many candidates that a run takes hours."""


@cache
def memory_bytes(domain: Domain, mechanism: str, rows: int) -> int | None:
    """The mechanism's own footprint and the rows; None for an adaptive mechanism with too many columns."""
    if mechanism in _ADAPTIVE and len(domain) > MANY:
        return None
    return mechanism_named(mechanism).footprint(domain).memory_bytes + _CELL_BYTES * rows * len(domain)


def seconds(domain: Domain, mechanism: str, rows: int) -> float:
    """Processor seconds of a fit, reading files not included; for adaptive mechanisms the order of magnitude.

    Their rounds follow from the rows. On the benchmark tables of 9 to 16 columns `aim` took 0.5 to 90 seconds at
    epsilon of at most 1, about 0.06 for each pair of columns, and minutes above that.
    """
    columns, pairs = len(domain), comb(len(domain), 2)
    if mechanism in _ADAPTIVE:
        return 1.0 + 0.1 * columns**2 * max(1.0, columns / 15) + 3 * _ROW_PAIR * rows * comb(columns, 3)
    counted = pairs if mechanism in _PAIRS_COUNTED else columns
    return 0.02 * columns + _ROW_PAIR * rows * counted
