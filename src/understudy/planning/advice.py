"""Which mechanism to take among those compared, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from understudy.domain import Domain
from understudy.planning.cost import MANY
from understudy.planning.expected import Expected

_BEST = ("aim", "privsyn", "mst", "gaussian", "mwem", "nist-mst")
"""By the errors of all tables of two and three columns on the benchmark tables, lowest first; what needs a public table
is last: it is only as good as that table."""

_BEST_OF_MANY = ("mst", "privsyn", "nist-mst", "gaussian")
"""The same for more columns than adaptive mechanisms can take."""

_DROWNED = 0.25
"""Where a group must be this share of all rows to stand out, pairs of columns tell nothing."""

_WHY = {
    "aim": "it had the lowest errors on the benchmark tables",
    "privsyn": "it chooses as many pairs as the budget bears",
    "mst": "it measures the pairs that depend on each other most, in little time",
    "gaussian": "it measures every pair, and none of them well",
    "mwem": "it measures triples of columns in a few rounds",
    "nist-mst": "if there is a public table like yours to choose pairs by",
}


@dataclass(frozen=True)
class Line:
    """What to expect of one mechanism under one budget.

    Attributes:
        epsilon: the budget.
        mechanism: its name.
        expected: the errors; None for a mechanism of another package.
        memory_bytes: about how much memory a run needs; None where that alone would take long to work out.
        seconds: about how long it takes on one core of an ordinary machine.
    """

    epsilon: float
    mechanism: str
    expected: Expected | None
    memory_bytes: int | None
    seconds: float


def recommended(lines: Sequence[Line], domain: Domain, rows: int) -> tuple[str, str]:
    """The mechanism to take among those compared under one budget, and why.

    Args:
        lines: what to expect of each.
        domain: the columns.
        rows: about how many rows the table has.
    """
    by_name = {line.mechanism: line for line in lines}
    if len(by_name) == 1:
        return lines[0].mechanism, "the only one compared"
    if "independent" in by_name and len(domain) == 1:
        return "independent", "there is one column, and nothing to relate it to"
    many = len(domain) > MANY
    known = [name for name in (_BEST_OF_MANY if many else _BEST) if name in by_name]
    clear = [name for name in known if not _drowned(by_name[name].expected, rows)]
    if clear:
        passed = f"with {len(domain)} columns aim would take hours; " if many and "aim" in by_name else ""
        return clear[0], f"{passed}{_WHY[clear[0]]}{_measured(by_name[clear[0]].expected, domain)}"
    if "independent" in by_name:
        return "independent", "noise drowns tables of two columns: they would tell nothing about relations"
    return (known or list(by_name))[0], "noise drowns tables of two columns in all of them: take a larger budget"


def _drowned(expected: Expected | None, rows: int) -> bool:
    """Whether a pair's table would be noise: its errors add up to all rows, or only a quarter of them stands out."""
    if expected is None or expected.pair_share is None:
        return True
    return expected.pair_share > 1 or expected.group > _DROWNED * rows


def _measured(expected: Expected | None, domain: Domain) -> str:
    if expected is None:
        return ""
    return f"; here about {expected.pairs} of {comb(len(domain), 2)} pairs, each cell {expected.two_way:.2g} off"
