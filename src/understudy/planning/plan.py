"""The plan of a release: for each budget and mechanism what to expect, and which one to take. Reads no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from understudy.accounting.neighbours import Neighbours
from understudy.discovery.discover import discovery_budget
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.mechanism import mechanism_named
from understudy.planning.advice import Line, recommended
from understudy.planning.assume import SHARE, assumed
from understudy.planning.cost import memory_bytes, seconds
from understudy.planning.noise import PlannedNoise
from understudy.planning.odds import Odds, check_delta, default_delta, odds_of
from understudy.planning.predict import ASSUMED, expected_of
from understudy.schema import Schema

MECHANISMS = ("independent", "mst", "aim")
"""What is compared unless told."""

EPSILONS = (0.5, 1.0, 2.0)


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
        assumed: what was taken for granted that the schema does not say.
    """

    people: int
    rows_each: int
    delta: float
    columns: int
    lines: tuple[Line, ...]
    odds: dict[float, Odds]
    recommended: dict[float, tuple[str, str]]
    assumed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        facts = {"people": self.people, "rows_each": self.rows_each, "delta": self.delta, "columns": self.columns}
        return facts | {
            "assumed": list(self.assumed),
            "budgets": [
                {
                    "epsilon": epsilon,
                    "odds": asdict(odds),
                    "recommended": self.recommended[epsilon][0],
                    "reason": self.recommended[epsilon][1],
                    "mechanisms": {line.mechanism: _plain(line) for line in self.lines if line.epsilon == epsilon},
                }
                for epsilon, odds in self.odds.items()
            ],
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
        schema: what is public about the columns; it may still be a draft, and have facts to buy: see `assumed`.
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
    filled, taken = assumed(schema)
    kept = 1 - SHARE if taken else 1.0
    noises = {
        epsilon: PlannedNoise(discovery_budget(schema, SHARE, epsilon=epsilon, delta=delta, rho=None), neighbours, kept)
        for epsilon in dict.fromkeys(epsilons)
    }
    names = list(dict.fromkeys(mechanisms))
    lines = tuple(
        _line(filled.domain, about, epsilon, noise, name) for epsilon, noise in noises.items() for name in names
    )
    advice = {
        epsilon: recommended([line for line in lines if line.epsilon == epsilon], filled.domain, about * unit.max_rows)
        for epsilon in noises
    }
    odds = {epsilon: odds_of(epsilon, delta) for epsilon in noises}
    taken = (*taken, *(ASSUMED[name] for name in names if name in ASSUMED))
    return Plan(about, unit.max_rows, delta, len(filled.domain), lines, odds, advice, taken)


def _line(domain: Domain, people: int, epsilon: float, noise: PlannedNoise, name: str) -> Line:
    rows = people * noise.neighbours.max_rows
    expected = expected_of(name, domain, rows, noise)
    return Line(epsilon, name, expected, memory_bytes(domain, name, rows), seconds(domain, name, rows))


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
