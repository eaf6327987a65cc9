"""Worst-case neighbouring tables for each stage of the gate, with the event that distinguishes them best.

In every trial one more unit moves a cell of every marginal that is asked for. Thresholds are fixed here, before any
run: 1.3 claimed standard deviations of the likelihood-ratio statistic, where a mechanism with half its noise is caught.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.accounting import Budget, epsilon_of
from understudy.accounting.calibrate import certify_plan
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.measurement import Cell, KroneckerQuery
from understudy.mechanism.independent import Independent
from understudy.source import Source
from understudy.testing.audit import Trial
from understudy.testing.tables import CodedSource, WordSource

RUNS = 1500
DELTA = 0.3
"""Large, because the smaller the delta the rarer the events that matter; the claim is made at the same delta."""

_FOUR = dict.fromkeys("abcd", 2)
_FOUR_WAYS: list[Clique] = [("a",), ("b",), ("c",), ("d",)]


def noise_halved(patch: pytest.MonkeyPatch) -> None:
    """Draw all noise of the gate with half its scale: a mistake that audits must find."""
    original = PrivateTable._draw
    patch.setattr(
        PrivateTable, "_draw", lambda t, charge, size: original(t, replace(charge, scale=charge.scale / 2), size)
    )


def gaussian_trial() -> Trial:
    """Four one-way tables under zCDP, units of three rows: sigma 3 sqrt(4/2), the sum of four cells moves by 12."""

    def event(source: CodedSource) -> bool:
        table = PrivateTable(source, Budget.of(rho=1.0))
        return sum(int(m.values[1]) for m in table.measure(_FOUR_WAYS, rho=1.0)) >= 11

    return _trial(event, *_with_unit(_FOUR, max_rows=3), epsilon_of(1.0, DELTA), DELTA)


def laplace_trial() -> Trial:
    """Two one-way tables under pure DP, units of three rows: scale 6, an event whose ratio is exactly exp(epsilon)."""

    def event(source: CodedSource) -> bool:
        table = PrivateTable(source, Budget.of(epsilon=1.0, delta=0))
        return all(int(m.values[1]) >= 3 for m in table.measure(_FOUR_WAYS[:2], rho=1.0))

    return _trial(event, *_with_unit({"a": 2, "b": 2}, max_rows=3), 1.0, 0.0)


def query_trial(*, pure: bool) -> Trial:
    """Three queries on a column, units of three rows: a row in the last cell moves them by (2, 1, -2), of norm 3."""
    query = KroneckerQuery((np.array([[0, 2], [1, 1], [0, -2]]),))
    budget = Budget.of(epsilon=1.0, delta=0) if pure else Budget.of(rho=1.0)

    def event(source: CodedSource) -> bool:
        table = PrivateTable(source, budget)
        (m,) = table.measure([("a",)], rho=float(budget.capacity), queries={("a",): query})
        first, second, third = (int(value) for value in m.values - np.array([0, 5, 0]))
        if pure:  # every answer beyond what the unit moves it by: the likelihood ratio is exactly exp(epsilon)
            return first >= 6 and second >= 3 and third <= -6
        return 2 * first + second - 2 * third >= 41  # moves by 27, sd 3 * 9 / sqrt(2)

    claim, delta = (1.0, 0.0) if pure else (epsilon_of(1.0, DELTA), DELTA)
    return _trial(event, *_with_unit({"a": 2}, max_rows=3), claim, delta)


def selection_trial(*, pure: bool) -> Trial:
    """Two candidates; the unit raises the score of one by 1 and lowers the other's by 1, from a gap of 2 to none."""
    against: dict[Clique, NDArray[np.float64]] = {("a",): np.array([5.0, 0.0]), ("b",): np.array([5.0, 2.0])}
    budget = Budget.of(epsilon=2.0, delta=0) if pure else Budget.of(rho=0.5)

    def event(source: CodedSource) -> bool:
        table = PrivateTable(source, budget)
        return table.select([("a",), ("b",)], against=against, rho=float(budget.capacity)).clique == ("a",)

    claim, delta = (2.0, 0.0) if pure else (epsilon_of(0.5, DELTA), DELTA)
    return _trial(event, *_with_unit({"a": 2, "b": 2}), claim, delta)


def cells_trial(*, pure: bool) -> Trial:
    """Two cells, units of three rows: the unit raises one distance by 3 and lowers the other by 3, from a gap of 6."""
    columns: list[Clique] = [("a",), ("b",)]
    against: dict[Clique, NDArray[np.float64]] = {("a",): np.array([0.0, 0.0]), ("b",): np.array([0.0, 6.0])}
    budget = Budget.of(epsilon=2.0, delta=0) if pure else Budget.of(rho=0.5)

    def happened(source: CodedSource) -> bool:
        table = PrivateTable(source, budget)
        used = [Cell(column, 0) for column in columns]
        found = table.select_cells(columns, against=against, count=1, rho=float(budget.capacity), used=used)
        return found == [Cell(("a",), 1)]

    claim, delta = (2.0, 0.0) if pure else (epsilon_of(0.5, DELTA), DELTA)
    return _trial(happened, *_with_unit({"a": 2, "b": 2}, max_rows=3), claim, delta)


def dependent_selection_trial() -> Trial:
    """Two pairs of columns; the unit raises the InDif of one by 4, from a gap of 4 to none, and leaves the other."""
    pairs: list[Clique] = [("b", "a"), ("c", "a")]

    def event(source: CodedSource) -> bool:
        table = PrivateTable(source, Budget.of(epsilon=2.0, delta=0))
        return table.select(pairs, rho=2.0, offsets=dict(zip(pairs, (4.0, 0.0), strict=True))).clique == pairs[0]

    rows = [[0, 0, 0]] * 400
    absent, present = (CodedSource(dict.fromkeys("abc", 2), rows + more) for more in ([], [[1, 1, 0]]))
    return _trial(event, present, absent, 2.0, 0.0)


def dependence_trial() -> Trial:
    """Two pairs of columns that agree in all of 400 rows but the unit's: each InDif moves by 4."""

    def event(source: CodedSource) -> bool:
        table = PrivateTable(source, Budget.of(rho=1.0))
        return sum(table.dependence([("a", "b"), ("b", "c")], rho=1.0).values()) >= 8

    return _trial(event, *_with_unit(dict.fromkeys("abc", 2), rows=400), epsilon_of(1.0, DELTA), DELTA)


def distances_trial(*, pure: bool) -> Trial:
    """Two columns, units of three rows, and given marginals without them: both distances move from 0 to 3."""
    columns: list[Clique] = [("a",), ("b",)]
    against = dict.fromkeys(columns, np.array([5.0, 0.0]))
    budget = Budget.of(epsilon=1.0, delta=0) if pure else Budget.of(rho=1.0)

    def event(source: CodedSource) -> bool:
        table = PrivateTable(source, budget)
        found = table.distances(columns, against=against, rho=float(budget.capacity)).values()
        return all(value >= 3 for value in found) if pure else sum(found) >= 5.5  # sum: moves by 6, sd 3 sqrt(2)

    claim, delta = (1.0, 0.0) if pure else (epsilon_of(1.0, DELTA), DELTA)
    return _trial(event, *_with_unit({"a": 2, "b": 2}, max_rows=3), claim, delta)


def shared_value_trial() -> Trial:
    """A value that others have too, units of three rows: sigma 3 / sqrt(2), its noisy count moves by 3."""
    others, budget = 60, Budget.of(rho=1.0, delta=0.1, discovery_delta=0.05)

    def event(source: WordSource) -> bool:
        table = PrivateTable(source, budget)
        return table.values("w", rho=Fraction(1), delta=Fraction(1, 20)).get("a", 0) >= others + 3

    present, absent = (WordSource({"a": others + more}, max_rows=3) for more in (3, 0))
    return _trial(event, present, absent, epsilon_of(1.0, DELTA), DELTA + 0.05)


def own_value_trial() -> Trial:
    """A value that one unit alone has, in all of its three rows: it may be published with probability delta."""
    budget = Budget.of(rho=1.0, delta=0.1, discovery_delta=0.05)

    def event(source: WordSource) -> bool:
        return "own" in PrivateTable(source, budget).values("w", rho=Fraction(1), delta=Fraction(1, 20))

    present, absent = (WordSource({"a": 9, "own": more}, max_rows=3) for more in (3, 0))
    return _trial(event, present, absent, 0.01, 0.05)


def independent_trial(*, replace_one: bool) -> Trial:
    """A whole run of `independent`, calibrated by the exact curve: the claim is tight."""
    epsilon = 0.94
    budget = Budget.of(epsilon=epsilon, delta=DELTA)
    neighbours = Neighbours(None, 1, replace_one)
    plan, certified = certify_plan(Independent().plan(Domain(_FOUR)), budget, neighbours)

    def event(source: CodedSource) -> bool:
        fit = Independent().fit(PrivateTable(source, certified, plan=plan), rho=float(certified.capacity))
        if replace_one:
            return sum(int(m.values[1]) - int(m.values[0]) for m in fit.measurements) >= 7 - 4 * 6
        return sum(int(m.values[1]) for m in fit.measurements) >= 4

    tables = _with_replaced_unit() if replace_one else _with_unit(_FOUR)
    return _trial(event, *tables, epsilon, DELTA)


def _trial(event: Callable[[Any], bool], present: Source, absent: Source, epsilon: float, delta: float) -> Trial:
    return Trial(lambda: event(present), lambda: event(absent), epsilon, delta, RUNS)


def _with_unit(sizes: dict[str, int], *, max_rows: int = 1, rows: int = 5) -> tuple[CodedSource, CodedSource]:
    """The table with one more unit, all of whose rows fall into the last cell of every marginal, and without it."""
    others, unit = [[0] * len(sizes)] * rows, [[1] * len(sizes)] * max_rows
    return CodedSource(sizes, others + unit, max_rows=max_rows), CodedSource(sizes, others, max_rows=max_rows)


def _with_replaced_unit() -> tuple[CodedSource, CodedSource]:
    others = [[0] * len(_FOUR)] * 5
    moved, kept = (CodedSource(_FOUR, [*others, [code] * 4], rows_public=6) for code in (1, 0))
    return moved, kept
