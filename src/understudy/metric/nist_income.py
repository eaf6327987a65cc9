"""`nist_income`: income inequality and pay gap by group, the third score of the NIST 2018 challenge."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass as settings_class

from understudy.errors import SettingError
from understudy.metric.base import STRICT, Metric, Part, Score
from understudy.metric.tables import Rows, find_column
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Categorical
from understudy.schema.column import Coded

HALF = 5e5


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `nist_income`. In the challenge: CITY, SEX, INCWAGE, below 999998, 1 against 2.

    Attributes:
        group: the column of groups whose inequality and gap are compared.
        binary: the column that splits a group in two.
        amount: the numeric column of amounts.
        first: the value of `binary` on the first side; default its first value.
        second: the value on the second side; default its second value.
        below: only amounts below this are used (special codes lie above); None: all.
    """

    group: str = ""
    binary: str = ""
    amount: str = ""
    first: str | int | None = None
    second: str | int | None = None
    below: float | None = None


@dataclass(frozen=True, eq=False)
class Wages:
    """Amounts with their group and side (0 first, 1 second, others on neither)."""

    group: NDArray[np.int64]
    side: NDArray[np.int64]
    amount: NDArray[np.float64]


def nist_income(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """Return the challenge's third score, ``s1 + s2``: similarity of Gini indices, and of ranks of groups by pay gap.

    Deterministic. A needed column that the synthetic table lacks scores 0.
    """
    group = find_column(schema, settings.group, "nist_income.group")
    sides = _find_sides(find_column(schema, settings.binary, "nist_income.binary"), settings)
    amount = find_column(schema, settings.amount, "nist_income.amount")
    if not isinstance(amount, AxisColumn):
        raise SettingError(f"nist_income.amount: column {amount.name!r} is not numeric; choose an amount")
    lacking = [name for name in (group.name, settings.binary, amount.name) if name not in synthetic.domain]
    if lacking:
        return METRIC.score(0.0, notes=(f"The synthetic table has no column {lacking[0]!r}.",))
    columns = (group.name, settings.binary, amount)
    tables = [_read_wages(table, *columns, sides, settings.below) for table in (real, synthetic)]
    if not len(tables[0].amount):
        return METRIC.score(0.0, notes=("The real table has no usable amount.",))
    inequality, gap = income_scores(*tables)
    parts = (Part("half", "inequality", inequality), Part("half", "pay gap ranking", gap))
    return METRIC.score(inequality + gap, parts)


def income_scores(real: Wages, synthetic: Wages) -> tuple[float, float]:
    """Return the two halves of the score, each up to 500,000."""
    groups = np.unique(real.group)
    there = np.isin(groups, synthetic.group)
    ginis = np.array([[compute_gini(table.amount[table.group == g]) for g in groups] for table in (real, synthetic)])
    similar = np.where(there, 1 - np.abs(ginis[0] - ginis[1]), 0.0)
    ranks = [_rank(np.array([_compute_gap(table, g) for g in groups])) for table in (real, synthetic)]
    apart = np.abs(ranks[0] - ranks[1]) / max(len(groups) - 1, 1)
    ranked = np.where(there, np.maximum(0.0, 1 - apart), 0.0)
    return tuple(HALF * float(np.sqrt(np.mean(part**2))) for part in (similar, ranked))  # type: ignore[return-value]


def compute_gini(amounts: NDArray[np.float64]) -> float:
    """Compute the script's index, ``1 - 2 sum(cumulative)/(N W)``: the usual one shifted by 1/N; 1 if nobody earns.

    >>> compute_gini(np.array([1.0, 2.0, 3.0]))
    -0.111...
    """
    total = float(amounts.sum())
    if not len(amounts) or total <= 0:
        return 1.0
    return 1.0 - 2.0 * float(np.cumsum(np.sort(amounts)).sum()) / (len(amounts) * total)


def _compute_gap(table: Wages, group: int) -> float:
    means = []
    for side in (0, 1):
        amounts = table.amount[(table.group == group) & (table.side == side)]
        means.append(float(amounts.mean()) if len(amounts) else 0.0)
    return means[0] - means[1]


def _rank(gaps: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return places by descending gap; ties keep the order of the groups."""
    ranks = np.empty(len(gaps), np.int64)
    ranks[np.argsort(-gaps, kind="stable")] = np.arange(len(gaps))
    return ranks


def _find_sides(column: Coded, settings: Settings) -> tuple[int, int]:
    if column.ordinary < 2:
        raise SettingError(f"nist_income.binary: column {column.name!r} has fewer than two values; choose another")
    if settings.first is None and settings.second is None:
        return 0, 1
    texts = [str(value) for value in column.values] if isinstance(column, Categorical) else []
    try:
        return texts.index(str(settings.first)), texts.index(str(settings.second))
    except ValueError:
        raise SettingError(f"nist_income: `first` and `second` must be declared values of {column.name!r}") from None


def _read_wages(
    table: Rows, group: str, binary: str, amount: AxisColumn, sides: tuple[int, int], below: float | None
) -> Wages:
    amounts = table.units[amount.name]
    try:
        limit = np.inf if below is None else float(amount.unit_of(below, "below"))
    except ValueError:
        raise SettingError(f"nist_income.below must be a value that column {amount.name!r} may have") from None
    used = ~np.isnan(amounts) & (np.nan_to_num(amounts, nan=np.inf) < limit)
    codes = table.codes[binary].astype(np.int64)
    side = np.where(codes == sides[0], 0, np.where(codes == sides[1], 1, 2))
    return Wages(table.codes[group].astype(np.int64)[used], side[used], amounts[used])


METRIC = Metric(
    name="nist_income",
    title="NIST 2018: inequality and pay gap",
    measure=nist_income,
    settings=Settings,
    better="higher",
    best=2 * HALF,
    worst=0.0,
    meaning="In every group (a city, say) compares how unequal incomes are, and whether groups rank alike by the pay "
    "gap between two kinds of people. 1,000,000: the same inequality and the same ranking everywhere.",
    rows=True,
    needs=("group", "binary", "amount"),
)
