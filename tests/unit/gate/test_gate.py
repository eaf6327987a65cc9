from __future__ import annotations

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor, wait
from fractions import Fraction
from threading import Event

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.errors import BudgetExceeded, SchemaError, SettingError
from understudy.gate import PrivateTable, Selection
from understudy.gate.table import LARGEST_TABLE
from understudy.measurement import Cell
from understudy.schema import Recoding
from understudy.testing.spy import Spy
from understudy.testing.tables import CodedSource, SealedSource, WordSource

SIZES = {"a": 3, "b": 2, "c": 2}
ROWS = [[0, 0, 0], [1, 1, 0], [2, 1, 1], [2, 0, 1]]


class Nought:
    """Noise that is none, so that answers can be compared with counts."""

    def __init__(self):
        self.asked = []

    def gaussian(self, sigma, size):
        self.asked.append(("gaussian", sigma, size))
        return np.zeros(size, np.int64)

    def laplace(self, scale, size):
        self.asked.append(("laplace", scale, size))
        return np.zeros(size, np.int64)


def table(budget=None, *, source=None, **rest):
    return PrivateTable(source or CodedSource(SIZES, ROWS), budget or Budget.of(rho=1.0), **rest)


def test_measure_answers_in_the_order_asked_with_axes_as_asked():
    noise = Nought()
    answers = table(noise=noise).measure([("b", "a"), ("c",)], rho=0.5)
    assert [m.clique for m in answers] == [("b", "a"), ("c",)]
    assert answers[0].values.tolist() == [1, 0, 1, 0, 1, 1]
    assert answers[1].values.tolist() == [2, 2]
    assert [size for _, _, size in noise.asked] == [6, 2]
    assert all(m.values.dtype == np.int64 for m in answers)


def test_noise_is_added_to_every_cell_also_of_empty_ones():
    source = CodedSource({"a": 500}, [[0]])
    values = PrivateTable(source, Budget.of(rho=1e-6)).measure([("a",)], rho=1e-6)[0].values
    assert np.count_nonzero(values[1:]) > 450


def test_weights_divide_the_share():
    noise = Nought()
    private = table(noise=noise)
    measured = private.measure([("a",), ("b",)], rho=0.5, weights={("a",): 3.0, ("b",): 1.0})
    assert measured[1].sigma / measured[0].sigma == pytest.approx(3.0)
    assert 0.5 * (1 - 1e-12) < private.account.spent <= Fraction(1, 2)


def test_pure_budgets_draw_laplace_noise_and_count_epsilon():
    noise = Nought()
    private = table(Budget.of(epsilon=1.0, delta=0), noise=noise)
    measured = private.measure([("a",), ("b",)], rho=1.0)
    assert [law for law, *_ in noise.asked] == ["laplace", "laplace"]
    assert [scale for _, scale, _ in noise.asked] == [2.0, 2.0]
    assert {m.noise for m in measured} == {"laplace"}
    variance = measured[0].sigma ** 2
    q = math.exp(-0.5)
    assert variance == pytest.approx(2 * q / (1 - q) ** 2)


def test_sigma_is_what_measure_uses():
    private = table()
    expected = private.sigma(0.25)
    assert private.measure([("a",)], rho=0.25)[0].sigma == expected


@pytest.mark.parametrize(
    ("k", "public", "sigma"), [(1, None, 1.0), (3, None, 3.0), (1, 4, math.sqrt(2)), (3, 4, 3 * math.sqrt(2))]
)
def test_sigma_grows_with_the_sensitivity(k, public, sigma):
    source = CodedSource(SIZES, ROWS, max_rows=k, rows_public=public)
    assert table(source=source).sigma(0.5) == pytest.approx(sigma)


def test_select_prefers_the_marginal_that_is_farthest_off():
    private = table(Budget.of(rho=1e6))
    against = {("a",): [1, 1, 2], ("b",): [40, 0], ("c",): [2, 2]}
    assert private.select(list(against), against=against, rho=1e6).clique == ("b",)


def test_select_counts_weights_and_offsets():
    private = table(Budget.of(rho=2e6))
    against = {("a",): [1, 1, 2], ("b",): [40, 0]}
    assert private.select(list(against), against=against, rho=1e6, offsets={("a",): -100, ("b",): 0}).clique == ("a",)
    against = {("a",): [2, 1, 2], ("b",): [40, 0]}
    assert private.select(list(against), against=against, rho=5e5, weights={("a",): 1.0, ("b",): 0.0}).clique == ("a",)


def test_select_without_marginals_prefers_the_first_column_that_depends_most_on_the_others():
    """c is a xor b: it depends on neither alone; and the order of a candidate's columns decides what is compared."""
    rows = [[a, b, a ^ b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)] * 10
    pairs = [("c", "a"), ("c", "b"), ("c", "d")]
    with Spy() as spy:
        watched = PrivateTable(CodedSource(dict.fromkeys("abcd", 2), rows), Budget.of(rho=1e6))
        assert watched.select([*pairs, ("c", "a", "b"), ("d", "a", "b")], rho=1e5).clique == ("c", "a", "b")
        assert watched.select([("d", "a", "c"), ("c", "b", "a")], rho=1e5).clique == ("c", "b", "a")  # one remembered
    assert spy.rho == watched.account.spent


def test_select_without_marginals_takes_weights_and_offsets():
    private = PrivateTable(CodedSource({"a": 2, "b": 2, "c": 2}, [[0, 0, 0], [1, 1, 0]] * 9), Budget.of(rho=2e6))
    pairs = [("a", "b"), ("c", "b")]
    assert private.select(pairs, rho=5e5, offsets=dict(zip(pairs, (99, 0), strict=True))).clique == pairs[1]
    assert private.select(pairs, rho=5e5, weights=dict(zip(pairs, (2.0, 0.0), strict=True))).clique == pairs[0]
    assert [charge.sensitivity for charge in private.account.charges] == [4.0, 8.0]


def test_scores_of_dependence_are_counted_once_and_again_after_merging():
    counted = []

    class Watched(CodedSource):
        def counts(self, cliques):
            counted.extend(cliques)
            return super().counts(cliques)

    private = PrivateTable(Watched(SIZES, ROWS * 50), Budget.of(rho=1e6))
    private.select([("a", "b"), ("a", "c")], rho=1.0)
    private.select([("a", "b"), ("c", "b")], rho=1.0)
    assert counted == [("a", "b"), ("a", "c"), ("c", "b")]
    merged = private.recode(Recoding({"a": np.array([0, 1, 1])}))
    with Spy() as spy:  # works every score out again, in fractions
        merged.select([("a", "b"), ("c", "b")], rho=1.0)
    assert spy.rho == private.account.charges[-1].rho


def test_a_candidate_without_a_first_column_is_refused():
    with pytest.raises(SettingError, match="no first column"):
        table(source=SealedSource(SIZES, ROWS)).select([(), ("a",)], rho=0.5)


def test_dependence_is_indif_of_each_pair():
    source = CodedSource({"a": 2, "b": 2, "c": 2}, [[0, 0, 0], [1, 1, 0], [0, 0, 1], [1, 1, 1]])
    private = PrivateTable(source, Budget.of(rho=1.0), noise=Nought())
    assert private.dependence([("a", "b"), ("a", "c")], rho=1.0) == {("a", "b"): 4, ("a", "c"): 0}


def test_distances_are_l1_distances_from_the_given_marginals():
    private = table(Budget.of(rho=1.0), noise=Nought())
    against = {("a",): [1, 1.25, 4], ("b", "a"): np.zeros((2, 3))}
    assert private.distances([("b", "a"), ("a",)], against=against, rho=0.5) == {("b", "a"): 4.0, ("a",): 2.25}
    (charge,) = private.account.charges
    assert (charge.what, charge.about, charge.candidates[0]) == ("distances", (), 2)
    assert charge.sensitivity == pytest.approx(2**16 * math.sqrt(2))
    assert charge.scale == pytest.approx(2**16 * math.sqrt(2 / (2 * 0.5)))


def test_distances_after_merging_are_those_of_merged_marginals():
    coarse = table(noise=Nought()).recode(Recoding({"a": np.array([0, 1, 1])}))
    assert coarse.distances([("a",)], against={("a",): [0, 0]}, rho=0.5) == {("a",): 4.0}


AWAY = {("a",): [1.0, 1.0, 2.0], ("b",): [0.0, 9.5]}  # the table has 1, 1, 2 and 2, 2


def test_cells_are_selected_by_their_distance_one_after_the_other():
    private = table(Budget.of(rho=1e7))
    found = private.select_cells(list(AWAY), against=AWAY, count=2, rho=1e6)
    assert found == [Cell(("b",), 1), Cell(("b",), 0)]
    assert private.select_cells(list(AWAY), against=AWAY, count=1, rho=1e6, used=found[:1]) == found[1:]
    rest = private.select_cells(list(AWAY), against=AWAY, count=3, rho=1e6, used=found)
    assert sorted(rest) == [Cell(("a",), i) for i in range(3)]
    first, second, *_ = private.account.charges
    assert (first.what, first.noise, first.candidates[0], second.candidates[0]) == ("cells", "exponential", 5, 4)
    assert first.sensitivity == 1.0
    assert float(first.rho) == pytest.approx(5e5, rel=1e-9)
    assert first.rho == Fraction(first.scale) ** 2 / 8


@pytest.mark.parametrize("rows_public", [None, 4])
@pytest.mark.parametrize("max_rows", [1, 3])
def test_a_cell_has_the_sensitivity_of_one_number(max_rows, rows_public):
    """Selected or measured, the count of a cell moves by the rows of one unit, replaced or not."""
    source = CodedSource(SIZES, ROWS, max_rows=max_rows, rows_public=rows_public)
    private = PrivateTable(source, Budget.of(rho=1.0))
    (cell,) = private.select_cells([("a", "b")], against={("a", "b"): np.zeros(6)}, count=1, rho=0.5)
    private.measure([cell.clique], rho=0.5, queries={cell.clique: cell.query(private.domain)})
    assert [charge.sensitivity for charge in private.account.charges] == [max_rows, max_rows]
    assert private.account.charges[1].scale == pytest.approx(max_rows)


def test_a_cell_is_measured_as_the_count_of_its_rows():
    private = table(noise=Nought())
    counts = private.measure([("b", "a")], rho=0.1)[0].values
    for number in range(6):
        (one,) = private.measure(
            [("b", "a")], rho=0.1, queries={("b", "a"): Cell(("b", "a"), number).query(private.domain)}
        )
        assert one.values.tolist() == [counts[number]]


def test_merged_codes_are_merged_inside_and_share_the_account():
    private = table(noise=Nought())
    coarse = private.recode(Recoding({"a": np.array([0, 1, 1])}))
    assert coarse.domain["a"] == 2
    assert coarse.measure([("a", "b")], rho=0.5)[0].values.tolist() == [1, 0, 1, 2]
    assert private.account is coarse.account
    assert private.remaining <= 0.5 * (1 + 1e-12)
    assert private.measure([("a",)], rho=0.25)[0].values.tolist() == [1, 1, 2]


def test_nothing_asked_costs_nothing():
    private = table(source=SealedSource(SIZES, ROWS))
    assert private.measure([], rho=0.5) == []
    assert private.dependence([], rho=0.5) == {}
    assert private.distances([], against={}, rho=0.5) == {}
    assert private.account.spent == 0


AGAINST = {("a",): [1, 1, 2], ("b",): [2, 2]}


def cells(table, *, rho=0.1, **given):
    return table.select_cells(list(AGAINST), against=AGAINST, rho=rho, **given)


@pytest.mark.parametrize(
    ("ask", "error", "words"),
    [
        (lambda t: t.measure([("z",)], rho=0.1), SchemaError, "unknown column 'z'"),
        (lambda t: t.measure([("a", "a")], rho=0.1), SchemaError, "named twice"),
        (lambda t: t.measure([("a", "b"), ("b", "a")], rho=0.1), SettingError, "given twice"),
        (lambda t: t.measure([("a",)], rho=0), SettingError, "positive"),
        (lambda t: t.measure([("a",)], rho=math.nan), SettingError, "positive"),
        (lambda t: t.measure([("a",)], rho=1e-40), SettingError, "give more"),
        (lambda t: t.measure([("a",)], rho=0.1, weights={("a",): 0}), SettingError, "positive weight"),
        (lambda t: t.measure([("a",)], rho=0.1, weights={}), SettingError, "finite weight"),
        (lambda t: t.measure([("a",)], rho=0.1, weights=[2.0]), SettingError, "give a weight by clique"),
        (lambda t: t.measure([("a",)], rho=0.1, weights={("a",): math.inf}), SettingError, "finite weight"),
        (lambda t: t.measure([("a",)], rho=1.5), BudgetExceeded, "and 1 is left"),
        (lambda t: t.select([], against={}, rho=0.1), SettingError, "at least one candidate"),
        (lambda t: t.select([("c",)], against=AGAINST, rho=0.1), SettingError, "one for every candidate"),
        (lambda t: t.select([("a",)], against={("a",): [1, 2]}, rho=0.1), SettingError, "its clique has 3"),
        (lambda t: t.select([("a",)], against={("a",): [math.nan] * 3}, rho=0.1), SettingError, "not finite"),
        (lambda t: t.select([("a",)], against=AGAINST, rho=0.1, weights={("a",): -1}), SettingError, "negative"),
        (lambda t: t.select([("a",)], against=AGAINST, rho=0.1, weights={("a",): 0}), SettingError, "must be positive"),
        (lambda t: t.select([("a",)], against=AGAINST, rho=0.1, offsets={}), SettingError, "finite offset"),
        (lambda t: t.select([("a",)], against=AGAINST, rho=1.5), BudgetExceeded, "and 1 is left"),
        (lambda t: t.dependence([("a",)], rho=0.1), SettingError, "two columns"),
        (lambda t: t.dependence([("a", "b", "c")], rho=0.1), SettingError, "two columns"),
        (lambda t: t.dependence([("a", "b")], rho=1.5), BudgetExceeded, "and 1 is left"),
        (lambda t: t.distances([("a",)], against={}, rho=0.1), SettingError, "one for every candidate"),
        (lambda t: t.distances([("a",)], against={("a",): [1, 2]}, rho=0.1), SettingError, "its clique has 3"),
        (lambda t: t.distances([("a",), ("a",)], against=AGAINST, rho=0.1), SettingError, "given twice"),
        (lambda t: t.distances([("a",)], against=AGAINST, rho=1e-40), SettingError, "give more"),
        (lambda t: t.distances([("a",)], against=AGAINST, rho=1.5), BudgetExceeded, "and 1 is left"),
        (lambda t: cells(t, count=6), SettingError, "5 cells are left to choose from, fewer than 6"),
        (lambda t: cells(t, count=1, used=[Cell(("b",), 2)]), SettingError, "no candidate"),
        (lambda t: cells(t, count=1, used=[Cell(("c",), 0)]), SettingError, "no candidate"),
        (lambda t: cells(t, count=0), SettingError, "count must be a whole number of at least 1"),
        (lambda t: cells(t, count=1, rho=1.5), BudgetExceeded, "and 1 is left"),
        (lambda t: t.select_cells([("a",)], against={}, count=1, rho=0.1), SettingError, "one for every candidate"),
        (lambda t: t.select_cells([], against={}, count=1, rho=0.1), SettingError, "0 cells are left"),
        (lambda t: t.measure([("a",)], rho=10**400), BudgetExceeded, "and 1 is left"),
        (lambda t: t.measure([("a",)], rho="1"), SettingError, "positive"),
        (lambda t: t.measure([("a",)], rho=0.1, weights={("a",): 10**400}), SettingError, "finite weight"),
        (lambda t: t.measure(np.array(1), rho=0.1), SettingError, "list of cliques"),
        (lambda t: t.measure([np.array(1)], rho=0.1), SchemaError, "tuple of columns"),
        (lambda t: t.measure([(["a"],)], rho=0.1), SchemaError, "unknown column"),
        (lambda t: t.select([("a",)], against={("a",): ["x"] * 3}, rho=0.1), SettingError, "not a number"),
        (lambda t: t.select([("a",)], against={("a",): [1, [2], 3]}, rho=0.1), SettingError, "not a number"),
        (lambda t: t.error({("a",): [10**400] * 3}, weights={("a",): 1}, rho=0.1), SettingError, "not a number"),
        (lambda t: t.error(None, weights={("a",): 1}, rho=0.1), SettingError, "the marginal of .* is missing"),
        (lambda t: t.error({}, weights={("a",): 1}, rho=0.1), SettingError, "the marginal of .* is missing"),
        (lambda t: t.error(AGAINST, weights=[("a",)], rho=0.1), SettingError, "give a mapping"),
        (lambda t: t.error(AGAINST, weights={("a",): 0.5}, rho=0.1), SettingError, "whole number of at least 1"),
        (lambda t: t.tally(["a"], what={"a": "bounds"}), SettingError, "give a mapping"),
        (lambda t: t.tally({"a": 0.1}, what={}), SettingError, "name the fact to discover about 'a'"),
        (lambda t: t.recode(None), SettingError, "give a `Recoding`"),
        (lambda t: t.with_source(None), SettingError, "the same units"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_unread_and_unpaid(ask, error, words):
    private = table(source=SealedSource(SIZES, ROWS))
    with pytest.raises(error, match=words):
        ask(private)
    assert private.account.spent == 0


def test_a_table_too_large_to_hold_is_refused_before_it_is_paid():
    source = SealedSource({"a": LARGEST_TABLE, "b": 2}, [])
    private = PrivateTable(source, Budget.of(rho=1.0))
    with pytest.raises(SettingError, match="nothing was spent"):
        private.measure([("a", "b")], rho=0.5)


def test_a_table_too_large_to_count_before_codes_are_merged_is_refused_before_it_is_paid():
    """It is small after merging, and no source can number its cells before."""
    columns = [f"c{i}" for i in range(5)]
    source = SealedSource(dict.fromkeys(columns, 100_000), [])
    merging = Recoding({column: np.arange(100_000) % 2 for column in columns})
    private = PrivateTable(source, Budget.of(rho=1.0)).recode(merging)
    with pytest.raises(SettingError, match="nothing was spent"):
        private.measure([tuple(columns)], rho=0.5)
    assert private.account.spent == 0


@pytest.mark.parametrize("share", [np.float32(0.125), np.float64(0.125), Fraction(1, 8), 0.125])
def test_a_share_may_be_any_kind_of_number(share):
    private = table()
    private.measure([("a",)], rho=share)
    assert Fraction(1, 8) - Fraction(1, 10**9) < private.account.spent <= Fraction(1, 8)
    assert table().error(AGAINST, weights={"a": np.int64(2), ("b",): 1}, rho=share).scale > 0


def test_a_whole_number_of_numpy_is_the_whole_budget():
    private = table()
    assert private.sigma(np.int64(1)) == private.sigma(1.0)
    private.measure([("a",)], rho=np.int64(1))
    assert private.account.spent <= 1


WORDS = Budget.of(rho=1.0, delta=1e-6, discovery_delta=1e-7)


@pytest.mark.parametrize("delta", [1e-8, np.float64(1e-8), Fraction(1, 10**8), np.longdouble(1e-8)])
def test_values_are_discovered_for_a_delta_of_any_kind_of_number(delta):
    private = PrivateTable(WordSource({"a": 10_000}), WORDS)
    assert list(private.values("w", rho=0.5, delta=delta)) == ["a"]
    assert 0 < private.account.charges[0].delta <= Fraction(float(delta))


@pytest.mark.parametrize("delta", ["1", None, math.nan, 0, 1, -1.0, True, [], 1j, np.array(1e-8)])
def test_values_for_no_delta_are_refused_unread_and_unpaid(delta):
    private = PrivateTable(WordSource({"a": 10_000}), WORDS)
    with pytest.raises(SettingError, match="above 0 and below 1"):
        private.values("w", rho=0.5, delta=delta)
    assert private.account.spent == 0


@pytest.mark.parametrize("column", ["other", None, 3, ["w"]])
def test_values_of_a_column_without_values_to_discover_are_refused_unread_and_unpaid(column):
    private = PrivateTable(WordSource({"a": 10_000}), WORDS)
    with pytest.raises(SettingError, match="nothing was spent"):
        private.values(column, rho=0.5, delta=1e-8)
    assert private.account.spent == 0


def test_an_unknown_noise_is_refused():
    with pytest.raises(SettingError, match="the choices are exact, opendp"):
        table(noise="gauss")


class TestPlanned:
    """A run whose measurements were fixed in advance and certified together makes these, once each, and no others."""

    PLAN = {("a",): 2.0, ("b",): 4.0}  # noqa: RUF012

    def private(self, **rest):
        rho = sum((Fraction(1, 2 * Fraction(s) ** 2) for s in self.PLAN.values()), Fraction(0))
        budget = Budget.of(epsilon=1.0, delta=1e-6).certify(rho)
        return table(budget, plan=self.PLAN, **rest)

    def test_uses_exactly_the_planned_sigmas_in_one_call_or_several(self):
        for calls in ([[("a",), ("b",)]], [[("b",)], [("a",)]]):
            private = self.private()
            measured = [m for call in calls for m in private.measure(call, rho=1e-3)]
            assert {m.clique: m.sigma for m in measured} == self.PLAN

    def test_refuses_a_second_time_and_what_is_not_planned(self):
        private = self.private()
        private.measure([("a",)], rho=1.0)
        for clique in [("a",), ("c",), ("a", "b")]:
            with pytest.raises(BudgetExceeded, match="in advance"):
                private.measure([clique], rho=1e-3)

    def test_one_of_two_threads_is_answered_and_the_other_refused(self):
        class Slow(CodedSource):
            def counts(self, cliques):
                asked.set()
                late.wait(60)
                return super().counts(cliques)

        asked, late, private = Event(), Event(), self.private(source=Slow(SIZES, ROWS))
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(private.measure, [("a",)], rho=1e-3)
            asked.wait(60)
            second = pool.submit(private.recode(Recoding.identity()).measure, [("a",)], rho=1e-3)
            assert not wait([second], timeout=0.2).done  # it waits for the first one's answer
            late.set()
            assert len(first.result()) == 1
            with pytest.raises(BudgetExceeded, match="in advance"):
                second.result()

    def test_merged_codes_use_the_same_plan(self):
        private = self.private()
        private.measure([("a",)], rho=1e-3)
        merged = private.recode(Recoding({"a": np.array([0, 0, 1]), "b": np.array([0, 0])}))
        assert merged.planned
        with pytest.raises(BudgetExceeded, match="in advance"):
            merged.measure([("a",)], rho=1e-3)
        (measured,) = merged.measure([("b",)], rho=1e-3)
        assert (len(measured.values), measured.sigma) == (1, 4.0)
        with pytest.raises(BudgetExceeded, match="in advance"):
            private.measure([("b",)], rho=1e-3)

    def test_refuses_other_questions(self):
        private = self.private(source=SealedSource(SIZES, ROWS))
        with pytest.raises(BudgetExceeded, match="in advance"):
            private.select([("a",)], against=AGAINST, rho=1e-6)
        with pytest.raises(BudgetExceeded, match="in advance"):
            private.dependence([("a", "b")], rho=1e-6)


def test_the_table_shows_nothing_of_its_rows_and_cannot_be_copied():
    many, few = table(source=CodedSource(SIZES, ROWS * 50)), table(source=CodedSource(SIZES, []))
    assert repr(many) == repr(few)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="never serialised"):
            attempt(many)
    assert all(name.startswith("_PrivateTable__") for name in vars(many))


@pytest.mark.parametrize("name", ["domain", "neighbours", "rows_public", "account", "remaining", "planned"])
def test_what_the_guarantee_rests_on_cannot_be_changed(name):
    with pytest.raises(AttributeError):
        setattr(table(), name, None)


def test_what_was_asked_before_is_checked_again():
    """Cliques that were found right are remembered, by their columns in this table and no other."""
    private = table()
    first = private.measure([("a", "b"), ("b",)], rho=0.01)
    assert [m.clique for m in private.measure([("b",), ["a", "b"]], rho=0.01)] == [("b",), ("a", "b")]
    for repeated in ([("a", "b"), ("b", "a")], [("b",), ("b",)], [("a", "b"), ("b", "a"), ("c",)]):
        with pytest.raises(SettingError, match="given twice"):
            private.measure(repeated, rho=0.01)
    merged = private.recode(Recoding({"a": np.array([0, 0, 1]), "b": np.array([0, 1])}))
    assert len(merged.measure([("a", "b")], rho=0.01)[0].values) == 4 < len(first[0].values)

    class Other(tuple):
        """Says that it is the columns a and b, and is b and c."""

        def __eq__(self, other):
            return other == ("a", "b")

        def __hash__(self):
            return hash(("a", "b"))

    assert private.measure([Other(("b", "c"))], rho=0.01)[0].clique in (("a", "b"), ("b", "c"))
    assert type(private.measure([Other(("b", "c"))], rho=0.01)[0].clique) is tuple


# -- what mechanisms plan with --

RELATIONS = [(1, None), (3, None), (1, 4), (3, 4)]
PURE = {"epsilon": 0.02, "delta": 0}  # little: the noise is wide, and integer noise is like that of real numbers
BUDGETS = [{"rho": 0.7}, {"epsilon": 1.0, "delta": 1e-6}, PURE]


def planned_with(budget, max_rows=1, rows_public=None):
    source = CodedSource(SIZES, ROWS, max_rows=max_rows, rows_public=rows_public)
    return PrivateTable(source, Budget.of(**budget), noise=Nought())


@pytest.mark.parametrize(("max_rows", "rows_public"), RELATIONS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_rho_for_is_the_share_that_measures_with_a_sigma(budget, max_rows, rows_public):
    private = planned_with(budget, max_rows, rows_public)
    share = float(Budget.of(**budget).capacity) / 3
    sigma = private.sigma(share)
    assert private.rho_for(sigma) == pytest.approx(share, rel=1e-4)
    assert private.measure([("a",)], rho=private.rho_for(sigma))[0].sigma == pytest.approx(sigma, rel=1e-4)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(SettingError, match="sigma"):
            private.rho_for(wrong)


@pytest.mark.parametrize(("budget", "ratio"), [(BUDGETS[0], math.sqrt(2 / math.pi)), (PURE, math.sqrt(1 / 2))])
def test_expected_noise_is_the_mean_magnitude_of_the_law(budget, ratio):
    private = planned_with(budget)
    assert private.expected_noise(0.01) == pytest.approx(ratio * private.sigma(0.01))


@pytest.mark.parametrize(("max_rows", "rows_public"), RELATIONS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_the_noise_of_dependence_scores_is_what_is_drawn(budget, max_rows, rows_public):
    private = planned_with(budget, max_rows, rows_public)
    share = float(Budget.of(**budget).capacity) / 3
    expected = private.dependence_noise(2, share)
    private.dependence([("a", "b"), ("b", "c")], rho=share)
    scale = private.account.charges[-1].scale
    drawn = scale if private.account.charges[-1].noise == "gaussian" else scale * math.sqrt(2)
    assert expected == pytest.approx(drawn, rel=1e-3)  # the standard deviation of discrete Laplace noise is a bit less


@pytest.mark.parametrize("budget", BUDGETS)
def test_an_allocation_costs_its_share_and_no_other_division_errs_less(budget):
    private = planned_with(budget)
    share, cliques = float(Budget.of(**budget).capacity), [("a", "b"), ("c",), ("a", "c")]
    cells = [private.domain.cells(clique) for clique in cliques]
    best = private.allocation(share)

    def error(parts):
        return sum(c * private.expected_noise(share * part) for c, part in zip(cells, parts, strict=True))

    parts = best.shares(cells)
    assert best.error(cells) == pytest.approx(error(parts), rel=1e-3)
    assert error([parts[0] + 0.02, parts[1] - 0.02, parts[2]]) > error(parts) < error([1 / 3] * 3)
    sigmas = [private.sigma(share * part) for part in parts]
    weights = dict(zip(cliques, best.weights(cells), strict=True))
    measured = private.measure(cliques, rho=share, weights=weights)
    assert [m.sigma for m in measured] == pytest.approx(sigmas, rel=1e-6)


@pytest.mark.parametrize("budget", BUDGETS)
def test_noise_halves_when_a_share_grows_by_two_to_the_weight_power(budget):
    private = planned_with(budget)
    share = float(Budget.of(**budget).capacity) / 5
    assert private.sigma(share * 2**private.weight_power) == pytest.approx(private.sigma(share) / 2, rel=1e-3)


@pytest.mark.parametrize(("max_rows", "rows_public"), RELATIONS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_a_selection_says_what_it_cost(budget, max_rows, rows_public):
    private = planned_with(budget, max_rows, rows_public)
    chosen = private.select([("a",)], against=AGAINST, rho=0.01, weights={("a",): 2.0})
    charge = private.account.charges[-1]
    assert chosen == Selection(("a",), charge.scale, charge.sensitivity)
    assert chosen.sensitivity == private.neighbours.marginal_l1 * 2
    assert private.select([("a", "b")], rho=0.001).sensitivity == private.neighbours.marginal_l1 * 4
    cost = chosen.epsilon if private.account.budget.pure else chosen.epsilon**2 / 8
    assert cost == pytest.approx(0.01, rel=1e-9)


@pytest.mark.parametrize(
    ("budget", "stated"),
    [({"rho": 0.7}, None), ({"epsilon": 1.0, "delta": 1e-6}, (1.0, 1e-6)), (PURE, (0.02, 0.0))],
)
def test_the_guarantee_is_the_stated_epsilon_and_delta(budget, stated):
    assert planned_with(budget).guarantee == stated
