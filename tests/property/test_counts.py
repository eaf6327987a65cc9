"""Counts equal brute force, and one unit moves every marginal by no more than claimed: exact integers throughout."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy import tabulate
from understudy.domain import Domain
from understudy.source.unit import bound_rows
from understudy.tabulate import SparseCounts, marginals

KINDS = [np.uint8, np.uint16, np.uint32]
Row = tuple[int, ...]


@st.composite
def coded_tables(draw: st.DrawFn) -> tuple[Domain, dict[str, np.ndarray], list[tuple[str, ...]]]:
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=6))
    domain = Domain({f"x{j}": size for j, size in enumerate(sizes)})
    rows = draw(st.integers(0, 40))
    codes = {
        column: np.array(
            draw(st.lists(st.integers(0, size - 1), min_size=rows, max_size=rows)), draw(st.sampled_from(KINDS))
        )
        for column, size in domain.items()
    }
    clique = st.permutations(list(domain)).flatmap(
        lambda columns: st.integers(0, len(columns)).map(lambda length: tuple(columns[:length]))
    )
    return domain, codes, draw(st.lists(clique, max_size=12))


def brute(codes: dict[str, np.ndarray], domain: Domain, clique: tuple[str, ...]) -> list[int]:
    rows = len(next(iter(codes.values())))
    seen = Counter(tuple(int(codes[column][row]) for column in clique) for row in range(rows))
    return [seen[cell] for cell in np.ndindex(*domain.shape(clique))]


@pytest.mark.parametrize("compiled", [False, True])
@given(case=coded_tables(), dense_cells=st.sampled_from([1, 5, 30, 10**9]))
@settings(max_examples=70, deadline=None)
def test_counts_equal_brute_force(case: Any, dense_cells: int, compiled: bool) -> None:
    domain, codes, cliques = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tabulate, "_worth_compiling", lambda work: compiled)
        answers = list(marginals(codes, domain, cliques, dense_cells=dense_cells))
    assert [clique for clique, _ in answers] == cliques
    for clique, counts in answers:
        assert isinstance(counts, SparseCounts) == (domain.cells(clique) > dense_cells)
        if isinstance(counts, SparseCounts):
            assert counts.size == domain.cells(clique)
            assert (np.diff(counts.cells) > 0).all()
            assert (counts.counts > 0).all()
            counts = counts.dense()
        assert counts.dtype == np.int64
        assert counts.tolist() == brute(codes, domain, clique)


DOMAIN = Domain({"a": 2, "b": 3, "c": 2})
CLIQUES = [clique for length in range(4) for clique in combinations(DOMAIN, length)]
rows_of_a_unit = st.lists(st.tuples(*(st.integers(0, size - 1) for size in DOMAIN.values())), max_size=8)
people = st.dictionaries(st.sampled_from(["5", "u", "v|w", "é"]), rows_of_a_unit, max_size=4)
keys = st.binary(min_size=32, max_size=32)


def flat(table: dict[str, list[Row]]) -> list[tuple[str, Row]]:
    return [(unit, row) for unit, rows in table.items() for row in rows]


def kept(rows: list[tuple[str, Row]], k: int, key: bytes) -> list[tuple[str, Row]]:
    units = pa.array([unit for unit, _ in rows], pa.string())
    codes = [np.array([row[j] for _, row in rows], np.uint8) for j in range(len(DOMAIN))]
    return [row for row, chosen in zip(rows, bound_rows(units, codes, max_rows=k, key=key), strict=True) if chosen]


def count_cells(rows: list[tuple[str, Row]]) -> dict[tuple[str, ...], np.ndarray]:
    codes = {column: np.array([row[j] for _, row in rows], np.uint8) for j, column in enumerate(DOMAIN)}
    return {clique: np.asarray(counts) for clique, counts in marginals(codes, DOMAIN, CLIQUES)}


def moves(before: dict[str, list[Row]], after: dict[str, list[Row]], k: int, key: bytes) -> list[tuple[int, int]]:
    """For every marginal: the L1 distance and the squared L2 distance between two tables."""
    first, second = count_cells(kept(flat(before), k, key)), count_cells(kept(flat(after), k, key))
    steps = [first[clique] - second[clique] for clique in CLIQUES]
    return [(int(np.abs(step).sum()), int((step**2).sum())) for step in steps]


@pytest.mark.parametrize("k", [1, 3])
@given(table=people, rows=rows_of_a_unit, key=keys)
@settings(max_examples=60, deadline=None)
def test_one_unit_more_moves_each_marginal_by_at_most_k(table: Any, rows: list[Row], key: bytes, k: int) -> None:
    for l1, l2_squared in moves(table, table | {"new": rows}, k, key):
        assert l1 <= k
        assert l2_squared <= k * k


@pytest.mark.parametrize("k", [1, 3])
@given(table=people, rows=rows_of_a_unit, other=rows_of_a_unit, key=keys)
@settings(max_examples=60, deadline=None)
def test_one_unit_replaced_moves_each_marginal_by_at_most_root_two_k(
    table: Any, rows: list[Row], other: list[Row], key: bytes, k: int
) -> None:
    for l1, l2_squared in moves(table | {"old": rows}, table | {"new": other}, k, key):
        assert l1 <= 2 * k
        assert l2_squared <= 2 * k * k


@pytest.mark.parametrize("k", [1, 3])
def test_the_claims_are_reached(k: int) -> None:
    """The bounds are tight: a looser bounding would make the two tests above fail."""
    crowd: list[Row] = [(1, 2, 1)] * 5
    others: dict[str, list[Row]] = {"u": [(0, 0, 0)]}
    assert max(moves(others, others | {"new": crowd}, k, bytes(32))) == (k, k * k)
    assert max(moves(others | {"x": crowd}, others | {"x": [(0, 0, 0)] * 5}, k, bytes(32))) == (2 * k, 2 * k * k)


@given(table=people, rows=rows_of_a_unit, key=keys, k=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_a_units_rows_decide_about_that_unit_alone(table: Any, rows: list[Row], key: bytes, k: int) -> None:
    before = Counter(kept(flat(table | {"x": []}), k, key))
    after = Counter(row for row in kept(flat(table | {"x": rows}), k, key) if row[0] != "x")
    assert before == after


@given(table=people, key=keys, k=st.integers(1, 4), data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_order_of_rows_does_not_matter(table: Any, key: bytes, k: int, data: st.DataObject) -> None:
    rows = flat(table)
    shuffled = data.draw(st.permutations(rows))
    chosen = Counter(kept(rows, k, key))
    assert chosen == Counter(kept(shuffled, k, key))
    assert Counter(unit for unit, _ in chosen.elements()) == Counter(
        {unit: min(k, len(rows)) for unit, rows in table.items() if rows}
    )
