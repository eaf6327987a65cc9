"""Tables that the gate keeps: same answers, bounded room, nothing shown."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.domain import Domain
from understudy.errors import SchemaError
from understudy.gate import PrivateTable
from understudy.gate.selection import FixedMarginals
from understudy.gate.table import CountCache
from understudy.schema import Recoding
from understudy.testing.spy import Spy
from understudy.testing.tables import CodedSource

SIZES = {"a": 3, "b": 2}
ROWS = [[0, 0], [1, 1], [2, 1], [2, 1]]


class Counting(CodedSource):
    """A source that remembers what was asked of it."""

    def __init__(self, *args, **rest):
        super().__init__(*args, **rest)
        self.asked = []

    def counts(self, cliques):
        self.asked.append(list(cliques))
        return super().counts(self.asked[-1])


def _select(table, cliques):
    against = {clique: np.zeros(table.domain.cells(clique)) for clique in cliques}
    return table.select(cliques, against=against, rho=0.01)


def test_a_table_is_counted_once_and_a_measurement_uses_it():
    source = Counting(SIZES, ROWS)
    table = PrivateTable(source, Budget.of(rho=1e6))
    cliques = [("a",), ("b",), ("a", "b")]
    _select(table, cliques)
    _select(table, cliques[::-1])
    (measured,) = table.measure([("a", "b")], rho=9e5)
    assert [len(asked) for asked in source.asked] == [3]
    assert measured.values.tolist() == [1, 0, 0, 1, 0, 2]


def test_fresh_and_kept_tables_come_in_the_order_asked():
    table = PrivateTable(Counting(SIZES, ROWS), Budget.of(rho=1.0))
    _select(table, [("b",)])
    asked = [("a",), ("b",), ("b", "a")]
    found = list(table._counts(asked))
    assert [clique for clique, _ in found] == asked
    assert [counts.tolist() for _, counts in found] == [[1, 1, 2], [1, 3], [1, 0, 0, 0, 1, 2]]


def test_a_table_that_is_kept_meanwhile_moves_no_other():
    """As another thread does that asks about some of the same tables."""
    table = PrivateTable(Counting(SIZES, ROWS), Budget.of(rho=1.0))
    found = table._counts([("a",), ("b",), ("b", "a")])
    next(found)
    _select(table, [("b",)])
    assert [counts.tolist() for _, counts in found] == [[1, 3], [1, 0, 0, 0, 1, 2]]


def test_merged_codes_are_counted_again():
    table = PrivateTable(Counting(SIZES, ROWS), Budget.of(rho=1.0))
    _select(table, [("a",)])
    view = table.recode(Recoding({"a": np.array([0, 1, 1])}))
    _select(view, [("a",)])
    assert dict(view._counts([("a",)]))[("a",)].tolist() == [1, 3]
    assert dict(table._counts([("a",)]))[("a",)].tolist() == [1, 1, 2]


class Even(FixedMarginals):
    """Ten rows spread evenly over the cells of a domain that changes."""

    domain = Domain(SIZES)

    def __getitem__(self, clique):
        cells = self.domain.cells(clique)
        return np.full(cells, 10 / cells)

    def __iter__(self):
        return iter([("a",)])

    def __len__(self):
        return 1


def test_distances_to_fixed_marginals_are_those_of_the_merged_codes():
    even = Even()
    with Spy() as spy:  # works every score out again, in fractions
        table = PrivateTable(Counting(SIZES, ROWS), Budget.of(rho=1.0))
        table.select([("a",)], against=even, rho=0.01)
        view = table.recode(Recoding({"a": np.array([0, 1, 1])}))
        even.domain = view.domain
        view.select([("a",)], against=even, rho=0.01)
    assert spy.rho == table.account.spent


def test_what_was_asked_of_one_coding_is_looked_at_again_in_another():
    table = PrivateTable(Counting(SIZES, ROWS), Budget.of(rho=1.0))
    table.measure([("a", "b")], rho=0.1)
    spent = table.account.spent
    with pytest.raises(SchemaError, match="'b'"):
        table.with_source(Counting({"a": 3}, [[0]])).measure([("a", "b")], rho=0.1)
    assert table.account.spent == spent


def test_room_is_counted_in_cells_and_first_come_stays():
    kept = CountCache(room=5)
    kept.put(("a",), np.array([1, 2, 3]))
    kept.put(("b", "a"), np.arange(6))
    kept.put(("b",), np.array([7, 8]))
    kept.put(("c",), np.array([1]))
    there = [kept.get(clique) is not None for clique in (("a",), ("b", "a"), ("b",), ("c",))]
    assert there == [True, False, True, False]


def test_what_is_kept_is_a_copy_that_cannot_be_changed_and_does_not_show():
    kept, counts = CountCache(), np.array([5, 2**40])
    kept.put(("a",), counts)
    counts[0] = 9
    assert kept.get(("a",)).tolist() == [5, 2**40]
    assert not kept.get(("a",)).flags.writeable
    assert repr(kept) == "CountCache()"


def test_scores_are_the_same_with_kept_tables():
    with Spy() as spy:  # works every score out again, in fractions
        table = PrivateTable(Counting(SIZES, ROWS), Budget.of(rho=1.0))
        for _ in range(3):
            _select(table, [("a",), ("b", "a")])
    assert spy.rho == table.account.spent
