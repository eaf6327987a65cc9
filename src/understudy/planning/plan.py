"""The plan of a release: for each budget and mechanism what to expect, and which one to take. Reads no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.mechanism import mechanism_named
from understudy.planning.cost import MANY, memory_bytes, seconds
from understudy.planning.expected import Expected
from understudy.planning.noise import PlannedNoise
from understudy.planning.odds import Odds, check_delta, default_delta, odds_of
from understudy.planning.predict import PREDICTORS
from understudy.privacy import Budget
from understudy.privacy.neighbours import Neighbours
from understudy.schema import Schema

MECHANISMS = ("independent", "mst", "aim")
"""What is compared unless told."""

EPSILONS = (0.5, 1.0, 2.0)

_DROWNED = 0.25  # where a group must be this share of all people to stand out, pairs of columns tell nothing


@dataclass(frozen=True)
class Line:
    """What to expect of one mechanism under one budget.

    Attributes:
        epsilon: the budget.
        mechanism: its name.
        expected: the errors; None where they follow from the rows.
        memory_bytes: about how much memory a run needs; None where that alone would take long to work out.
        seconds: about how long it takes on one core of an ordinary machine.
    """

    epsilon: float
    mechanism: str
    expected: Expected | None
    memory_bytes: int | None
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What to expect of a release, by budget and mechanism.

    **Privacy.** Made of the schema and of declared numbers; no row is read.

    Attributes:
        people: how many people, to two figures; never the true count.
        rows_each: the most rows that one of them has in the table.
        delta: the delta of every budget here.
        columns: how many columns are synthesised.
        lines: one for each epsilon and mechanism.
        odds: by epsilon, what it means as an attacker's odds.
        recommended: by epsilon, the mechanism to take and why.
    """

    people: int
    rows_each: int
    delta: float
    columns: int
    lines: tuple[Line, ...]
    odds: dict[float, Odds]
    recommended: dict[float, tuple[str, str]]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        facts = {"people": self.people, "rows_each": self.rows_each, "delta": self.delta, "columns": self.columns}
        return facts | {
            "budgets": [
                {
                    "epsilon": epsilon,
                    "odds": asdict(odds),
                    "recommended": self.recommended[epsilon][0],
                    "reason": self.recommended[epsilon][1],
                    "mechanisms": {line.mechanism: _plain(line) for line in self.lines if line.epsilon == epsilon},
                }
                for epsilon, odds in self.odds.items()
            ]
        }


def plan(
    schema: Schema,
    *,
    people: int | None = None,
    epsilons: Sequence[float] = EPSILONS,
    delta: float | None = None,
    mechanisms: Sequence[str] = MECHANISMS,
) -> Plan:
    """What to expect of a release of this schema about so many people.

    **Privacy.** Reads no data. `people` is rounded to two figures, so that a true count given by mistake goes no
    further; where the schema declares `rows`, that is the default.

    Args:
        schema: what is public about the columns; it may still be a draft.
        people: about how many people (privacy units) the table has.
        epsilons: the budgets to compare.
        delta: as `default_delta` unless given; 0 is pure DP.
        mechanisms: the mechanisms to compare.

    Raises:
        SettingError: for an unknown mechanism, a budget out of range, or no number of people.
    """
    about = _rounded(people if people is not None else schema.rows)
    if delta is None:
        delta = default_delta(about)
    check_delta(delta, about)
    for name in mechanisms:
        mechanism_named(name)
    unit = schema.privacy_unit
    neighbours = Neighbours(unit.column, unit.max_rows, schema.rows is not None)
    budgets = {epsilon: Budget.of(epsilon=epsilon, delta=delta) for epsilon in dict.fromkeys(epsilons)}
    lines = tuple(
        _line(schema.domain, about, epsilon, PlannedNoise(budget, neighbours), name)
        for epsilon, budget in budgets.items()
        for name in dict.fromkeys(mechanisms)
    )
    rows, columns = about * unit.max_rows, len(schema.domain)
    advice = {e: _recommended([line for line in lines if line.epsilon == e], columns, rows) for e in budgets}
    odds = {epsilon: odds_of(epsilon, delta) for epsilon in budgets}
    return Plan(about, unit.max_rows, delta, columns, lines, odds, advice)


def _line(domain: Domain, people: int, epsilon: float, noise: PlannedNoise, name: str) -> Line:
    rows = people * noise.neighbours.max_rows
    expected = PREDICTORS[name](domain, rows, noise) if name in PREDICTORS else None
    return Line(epsilon, name, expected, memory_bytes(domain, name, rows), seconds(domain, name, rows))


def _recommended(lines: Sequence[Line], columns: int, rows: int) -> tuple[str, str]:
    """The mechanism to take among those compared, and why."""
    by_name = {line.mechanism: line for line in lines}
    mst = by_name["mst"].expected if "mst" in by_name else None
    if "independent" in by_name and columns == 1:
        return "independent", "there is one column, and nothing to relate it to"
    if "independent" in by_name and mst is not None and mst.group > _DROWNED * rows:
        return "independent", "noise drowns tables of two columns: a group needs a quarter of all rows to stand out"
    if "aim" in by_name and columns <= MANY:
        return "aim", "it had the lowest errors on the benchmark tables; mst takes seconds and keeps fewer relations"
    if "mst" in by_name:
        many = f"with {columns} columns aim would take hours; " if "aim" in by_name else ""
        return "mst", f"{many}mst measures the pairs that depend on each other most, in little time"
    return lines[0].mechanism, "the only one compared" if len(by_name) == 1 else "the first one named"


def _rounded(people: int | None) -> int:
    if people is None:
        raise SettingError("say about how many people the table has with --people, for example --people ~20000")
    if people < 10:
        raise SettingError("--people must be at least 10: fewer cannot be hidden among each other")
    digits = math.floor(math.log10(people)) - 1
    return int(round(people / 10**digits) * 10**digits)


def _plain(line: Line) -> dict[str, Any]:
    expected = None if line.expected is None else asdict(line.expected)
    return {"expected": expected, "memory_bytes": line.memory_bytes, "seconds": line.seconds}
