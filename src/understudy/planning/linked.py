"""Plan a release of linked tables: predict the errors of each virtual table with its share of the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any

from understudy.accounting import Budget
from understudy.errors import SettingError
from understudy.mechanism import make_mechanism
from understudy.mechanism.linked import check_inner, divide_budget
from understudy.planning.made_up import DISCOVERY_SHARE, assume_facts
from understudy.planning.odds import Odds, check_delta, default_delta, odds_of
from understudy.planning.plan import EPSILONS, Line, round_people
from understudy.planning.predict import PlannedTable, predict
from understudy.schema.linked import LinkedSchema
from understudy.schema.schema import PrivacyUnit

LINKED_MECHANISMS = ("independent", "mst", "adaptive")


@dataclass(frozen=True)
class LinkedPlan:
    """The expected results of a release of linked tables.

    **Privacy.** Computed from the schema and declared numbers; no row is read.

    Attributes:
        people: how many units, to two figures; never the true count.
        delta: the delta of every budget here.
        shares: the share of the budget of each virtual table.
        lines: the expected results for each epsilon, mechanism and virtual table; errors are in units.
        odds: the meaning of each epsilon as an attacker's odds.
        assumed: what was assumed that the schema does not say.
    """

    people: int
    delta: float
    shares: dict[str, float]
    lines: tuple[tuple[str, Line], ...]
    odds: dict[float, Odds]
    assumed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        lines = [
            {"table": name, "epsilon": line.epsilon, "mechanism": line.mechanism, **line.describe()}
            for name, line in self.lines
        ]
        found = {"people": self.people, "delta": self.delta, "shares": self.shares, "lines": lines}
        return found | ({"assumed": list(self.assumed)} if self.assumed else {})


def plan_linked(
    schema: LinkedSchema,
    *,
    people: int | None = None,
    epsilons: Sequence[float] | None = None,
    delta: float | None = None,
    mechanisms: Sequence[str] = LINKED_MECHANISMS,
) -> LinkedPlan:
    """Predict the errors of a release of linked tables about this number of units.

    Every unit has the weight of one row in every virtual table, so each is predicted like a flat table of as many rows
    as there are units, with its share of the budget. Tables that few units have rows in have larger errors.

    **Privacy.** Reads no data. `people` is rounded to two figures.

    Args:
        schema: what is public about the tables; facts left to discovery are assumed.
        people: about how many units (rows of the root) there are; by default the declared number.
        epsilons: the budgets to compare; by default 0.5, 1 and 2.
        delta: as `default_delta` by default.
        mechanisms: the mechanisms to compare.

    Raises:
        SettingError: for an unknown mechanism, a budget out of range, or no number of people.
    """
    about = round_people(people if people is not None else schema.rows)
    delta = default_delta(about) if delta is None else check_delta(delta, about)
    if delta == 0:
        raise SettingError("linked tables need Gaussian noise: give a delta above 0")
    for mechanism in mechanisms:
        check_inner(make_mechanism(mechanism))
    filled = {name: assume_facts(one) for name, one in schema.tables.items() if one.open}
    assumed = tuple(f"{name}: {words}" for name, (_, said) in filled.items() for words in said[:-1])
    assumed += next(iter(filled.values()))[1][-1:] if filled else ()
    left = 1 - DISCOVERY_SHARE if filled else 1.0
    schema = schema.with_tables({name: one for name, (one, _) in filled.items()})
    shares = divide_budget(schema)
    lines: list[tuple[str, Line]] = []
    wanted = list(dict.fromkeys(epsilons or EPSILONS))
    for epsilon in wanted:
        rho = Budget.of(epsilon=epsilon, delta=delta).rho
        for mechanism in mechanisms:
            for name, share in shares.items():
                one = replace(schema.virtual_tables[name].schema, privacy_unit=PrivacyUnit(), rows=None, rules=())
                found = predict(mechanism, PlannedTable.of(one, about), Budget.of(rho=left * float(rho) * share))
                all_pairs = comb(len(one.domain), 2)
                line = Line(epsilon, mechanism, found.expected, found.memory_bytes, found.seconds, all_pairs)
                lines.append((name, line))
    odds = {epsilon: odds_of(epsilon, delta) for epsilon in wanted}
    return LinkedPlan(about, delta, shares, tuple(lines), odds, assumed)
