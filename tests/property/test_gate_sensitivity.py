"""How far one unit moves every count and score that the gate uses, in exact integers, over neighbouring tables."""

from __future__ import annotations

from fractions import Fraction
from functools import partial, reduce
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.accounting import Budget
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Domain
from understudy.gate import PrivateTable
from understudy.gate.gradient import UNIT, sum_gradients
from understudy.gate.selection import BITS, compute_distances, indif
from understudy.measurement import Critic, KroneckerQuery
from understudy.testing.tables import CodedSource

SIZES = {"a": 3, "b": 2, "c": 4}
PAIRS = [("a", "b"), ("b", "c"), ("a", "c")]
CLIQUES = [(), ("a",), ("c",), *PAIRS, ("a", "b", "c")]

row = st.tuples(*(st.integers(0, size - 1) for size in SIZES.values()))
others = st.lists(row, max_size=12)


@st.composite
def neighbours(draw):
    """Two tables that differ in one unit of at most k rows: there or not, or with other rows."""
    k, replace_one = draw(st.sampled_from([1, 3])), draw(st.booleans())
    rest, unit = draw(others), draw(st.lists(row, min_size=0, max_size=k))
    instead = draw(st.lists(row, min_size=0, max_size=k)) if replace_one else []
    return k, replace_one, [*rest, *unit], [*rest, *instead]


def counts(rows, cliques=CLIQUES):
    return {clique: np.asarray(table) for clique, table in CodedSource(SIZES, rows).counts(cliques)}


@given(neighbours())
def test_marginals_move_by_their_sensitivity_at_most(pair):
    k, replace_one, first, second = pair
    relation = Neighbours("unit", k, replace_one)
    mine, theirs = counts(first), counts(second)
    for clique in CLIQUES:
        change = mine[clique] - theirs[clique]
        assert int(np.abs(change).sum()) <= relation.marginal_l1
        assert int((change**2).sum()) <= relation.marginal_l2_squared


@given(neighbours(), st.integers(0, 2**31), st.sampled_from([0, -3]))
def test_queries_move_by_their_sensitivity_at_most(pair, seed, least):
    k, replace_one, first, second = pair
    relation, rng = Neighbours("unit", k, replace_one), np.random.default_rng(seed)
    mine, theirs = counts(first), counts(second)
    for clique in CLIQUES[1:]:
        factors = [rng.integers(least, 4, size=(rng.integers(1, 4), SIZES[column])) for column in clique]
        if not all(factor.any() for factor in factors):
            continue
        query = KroneckerQuery(tuple(factors))
        change = query @ (mine[clique] - theirs[clique])
        assert np.array_equal(change, reduce(np.kron, factors) @ (mine[clique] - theirs[clique]))
        assert int(np.abs(change).sum()) <= relation.query_l1(query.column_sum)
        assert int((change**2).sum()) <= relation.query_l2_squared(query.column_squared, negative=query.negative)


def test_the_sensitivity_of_queries_is_reached():
    """One row in the column of the largest norm, and one replaced by a row in the opposite column."""
    query = KroneckerQuery((np.array([[3, -3], [4, -4]]),))
    added, replaced = query @ np.array([1, 0]), query @ np.array([1, -1])
    assert (added**2).sum() == Neighbours().query_l2_squared(query.column_squared, negative=True) == 25
    assert (replaced**2).sum() == Neighbours(replace_one=True).query_l2_squared(query.column_squared, negative=True)
    assert np.abs(replaced).sum() == Neighbours(replace_one=True).query_l1(query.column_sum)


@given(neighbours(), st.integers(0, 2**31))
def test_cells_and_single_queries_move_by_their_sensitivity_at_most(pair, seed):
    k, replace_one, first, second = pair
    relation, rng = Neighbours("unit", k, replace_one), np.random.default_rng(seed)
    mine, theirs = counts(first), counts(second)
    for clique in CLIQUES:
        change = mine[clique] - theirs[clique]
        assert int(np.abs(change).max()) <= relation.cell
        fixed = rng.integers(-5, 9, len(change))
        assert int(np.abs(np.abs(mine[clique] - fixed) - np.abs(theirs[clique] - fixed)).max()) <= relation.cell
        entries = rng.integers(0, 4, len(change))
        moved, most = abs(int(entries @ change)), int(entries.max())
        assert moved <= relation.query_l1(most, negative=False, single=True)
        assert moved**2 <= relation.query_l2_squared(most**2, negative=False, single=True)


def test_the_sensitivity_of_a_cell_is_reached_and_no_more_over_all_small_tables():
    """All pairs of a unit's rows, at most two in three cells: a cell moves by two, added or replaced."""
    units = [np.bincount(one, minlength=3) for k in range(3) for one in combinations_with_replacement(range(3), k)]
    units = [np.asarray(unit, np.int64) for unit in units]
    added = max(int(np.abs(unit).max()) for unit in units)
    replaced = max(int(np.abs(one - other).max()) for one in units for other in units)
    assert added == Neighbours("unit", 2).cell == 2
    assert replaced == Neighbours("unit", 2, replace_one=True).cell == 2
    entries = np.array([3, 1, 0])
    moved = max(abs(int(entries @ (one - other))) for one in units for other in units)
    assert moved == Neighbours("unit", 2, replace_one=True).query_l1(3, negative=False, single=True) == 6


@given(neighbours())
def test_indif_moves_by_its_sensitivity_at_most(pair):
    k, replace_one, first, second = pair
    relation = Neighbours("unit", k, replace_one)
    mine, theirs = counts(first, PAIRS), counts(second, PAIRS)
    for clique in PAIRS:
        shape = tuple(SIZES[column] for column in clique)
        assert abs(indif(mine[clique], shape) - indif(theirs[clique], shape)) <= relation.indif


def exact_indif(counts, columns):
    """InDif of a table with so many columns, in fractions and without rounding."""
    table = [[Fraction(int(c)) for c in counts[i : i + columns]] for i in range(0, len(counts), columns)]
    n = sum(map(sum, table))
    sums = [sum(column) for column in zip(*table, strict=True)]
    return sum(abs(c - sum(line) * sums[j] / n) for line in table for j, c in enumerate(line)) if n else Fraction(0)


@pytest.mark.parametrize("columns", [2, 3])
def test_indif_moves_by_its_sensitivity_over_all_small_tables(columns):
    """Every table of 2 x 2 and 2 x 3 cells with six rows: 4 n / (n + 1) when a row is added, which is reached.

    A replacement moves score R by at most 0.277778, as the paper of PrivBayes bounds it by 3 / n + 2 / n^2 = 0.555556.
    """
    cells, n = 2 * columns, 6
    tables = [np.bincount(one, minlength=cells) for one in combinations_with_replacement(range(cells), n)]
    added, replaced = Fraction(0), Fraction(0)
    for counts in tables:
        mine = exact_indif(counts, columns)
        more = [counts + (np.arange(cells) == cell) for cell in range(cells)]
        added = max(added, *(abs(exact_indif(other, columns) - mine) for other in more))
        moved = [other - (np.arange(cells) == cell) for other in more for cell in np.flatnonzero(counts)]
        replaced = max(replaced, *(abs(exact_indif(other, columns) - mine) for other in moved))
    assert added == Fraction(4 * n, n + 1) < Neighbours().indif
    assert replaced / (2 * n) == Fraction(5, 18)
    assert replaced < Neighbours(replace_one=True).indif


@pytest.mark.parametrize("n", [1, 2, 10, 1000, 10**6])
def test_indif_comes_close_to_its_sensitivity(n):
    """All rows agree but the new one: without a bound of 4 the claim would be wrong."""
    before, after = np.array([n, 0, 0, 0]), np.array([n, 0, 0, 1])
    moved = indif(after, (2, 2)) - indif(before, (2, 2))
    assert moved == round(4 * n / (n + 1) + 1e-9)
    assert moved <= Neighbours().indif


@given(neighbours(), st.integers(0, 2**31))
def test_distances_move_by_their_sensitivity_at_most(pair, seed):
    """Each distance by the L1 sensitivity of a marginal, in units of 2^-16 rows, whatever the given marginals are."""
    k, replace_one, first, second = pair
    rng, relation = np.random.default_rng(seed), Neighbours("unit", k, replace_one)
    given = {clique: partial(rng.integers, -9 << BITS, 9 << BITS, _cells(clique)) for clique in CLIQUES}
    given = {clique: partial(np.asarray, make()) for clique, make in given.items()}
    mine, theirs = (dict(compute_distances(counts(rows).items(), given)) for rows in (first, second))
    assert all(abs(mine[clique] - theirs[clique]) <= relation.marginal_l1 << BITS for clique in CLIQUES)


def _cells(clique):
    return int(np.prod([SIZES[column] for column in clique]))


@settings(max_examples=40)
@given(
    neighbours(),
    st.lists(st.floats(0, 5), min_size=3, max_size=3),
    st.lists(st.floats(-9, 9), min_size=3, max_size=3),
    st.integers(0, 2**31),
)
def test_log_weights_of_a_selection_move_within_epsilon(pair, weights, offsets, seed):
    """For every pair of candidates the log odds move by epsilon at most: what the exponential mechanism rests on."""
    if max(weights) == 0:
        return
    k, replace_one, first, second = pair
    rng = np.random.default_rng(seed)
    against = {clique: rng.normal(2, 3, size=[SIZES[c] for c in clique]) for clique in PAIRS}
    logs = [_log_weights(rows, k, replace_one, against, weights, offsets) for rows in (first, second)]
    (mine, epsilon), (theirs, _) = logs
    moves = [a - b for a, b in zip(mine, theirs, strict=True)]
    assert max(moves) - min(moves) <= epsilon


@settings(max_examples=100)
@given(neighbours())
def test_log_weights_of_a_selection_by_dependence_move_within_epsilon(pair):
    """Candidates are compared with the product of their own marginals, which move as well."""
    k, replace_one, first, second = pair
    ones, zeros = [1.0] * len(PAIRS), [0.0] * len(PAIRS)
    logs = [_log_weights(rows, k, replace_one, None, ones, zeros) for rows in (first, second)]
    (mine, epsilon), (theirs, _) = logs
    moves = [a - b for a, b in zip(mine, theirs, strict=True)]
    assert max(moves) - min(moves) <= epsilon


def _log_weights(rows, k, replace_one, against, weights, offsets):
    from understudy.gate import table as gate

    seen = {}
    original = gate.exponential_mechanism

    def choose(scores, rate):
        seen["logs"] = [Fraction(rate) * score for score in scores]
        return original(scores, rate)

    source = CodedSource(SIZES, rows, max_rows=k, rows_public=9 if replace_one else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "exponential_mechanism", choose)
        table = PrivateTable(source, Budget.of(rho=0.5))
        given_weights, given_offsets = (dict(zip(PAIRS, v, strict=True)) for v in (weights, offsets))
        table.select(PAIRS, against=against, rho=0.5, weights=given_weights, offsets=given_offsets)
    return seen["logs"], Fraction(table.account.charges[0].scale)


@given(neighbours(), st.integers(0, 2**31), st.floats(1e-3, 1e3))
def test_gradients_move_by_their_sensitivity_at_most(pair, seed, clip):
    k, replace_one, first, second = pair
    relation, rng, domain = Neighbours("unit", k, replace_one), np.random.default_rng(seed), Domain(SIZES)
    shapes = (sum(SIZES.values()), 3), (3,), (3,)
    critic = Critic(*(rng.normal(0, rng.choice([0.01, 1.0]), shape).astype(np.float32) for shape in shapes))
    sums = [sum_gradients(critic, clip, domain, {}, CodedSource(SIZES, rows).codes()) for rows in (first, second)]
    change = sums[0] - sums[1]
    assert sum(int(v) ** 2 for v in change) <= relation.query_l2_squared(UNIT**2, negative=True)
