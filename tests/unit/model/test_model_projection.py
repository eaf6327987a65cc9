"""Products and sums of tables against numpy, and projections of trees that are long, wide or in parts."""

import itertools
import tracemalloc

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.model import projection as contraction
from understudy.model import projection as marginals
from understudy.model.elimination import plan_elimination
from understudy.model.graphical import GraphicalModel
from understudy.model.projection import ColumnSets, Contraction, Sums, TablePool

SIZES = (2, 3, 4, 2, 5, 3)


def tables(masks, seed=0):
    columns = ColumnSets(SIZES)
    rng = np.random.default_rng(seed)
    return columns, [rng.random(columns.shape(mask)) for mask in masks]


def by_numpy(columns, masks, found, wanted):
    letters = ["".join(chr(97 + i) for i in columns.bits[mask]) for mask in (*masks, wanted)]
    return np.einsum(f"{','.join(letters[:-1])}->{letters[-1]}", *found)


def contracted(columns, masks, found, wanted, most=1000):
    contraction_ = Contraction(columns, most)
    operands = [contraction_.operand(mask, table) for mask, table in zip(masks, found, strict=True)]
    parents = [*range(1, len(masks)), -1]
    result = contraction_.make(contraction_.plan(operands, parents, wanted), np.empty(columns.cells[wanted]), 0)
    return result.table.transpose([result.bits.index(bit) for bit in columns.bits[wanted]])


@pytest.mark.parametrize("searched", [2, 8])
@pytest.mark.parametrize(
    ("masks", "wanted"),
    [
        ((0b000011, 0b000110), 0b000101),
        ((0b000011, 0b000110), 0b000111),  # a shared column is kept
        ((0b000001, 0b110000), 0b110001),  # nothing shared
        ((0b000011, 0b000011), 0b000001),
        ((0b000011, 0b000110, 0b001100, 0b011000, 0b110000), 0b100001),
        ((0b000011, 0b010110, 0b001100, 0b011000, 0b110000), 0b100101),
        ((0b000000, 0b000110, 0b111000), 0b111110),
    ],
)
def test_products_equal_numpy_in_any_order(monkeypatch, searched, masks, wanted):
    monkeypatch.setattr(contraction, "_SEARCHED", searched)
    columns, found = tables(masks)
    np.testing.assert_allclose(
        contracted(columns, masks, found, wanted), by_numpy(columns, masks, found, wanted), rtol=1e-13
    )


def test_products_that_were_forgotten_are_made_again():
    masks = (0b000011, 0b000110, 0b001100, 0b011000, 0b110000)
    columns, found = tables(masks)
    for large in (0, 1000):
        contraction_ = Contraction(columns, 1)
        operands = [contraction_.operand(mask, table) for mask, table in zip(masks, found, strict=True)]
        queries = (0b100001, 0b101001, 0b100001)
        for plan in [contraction_.plan(operands, [1, 2, 3, 4, -1], wanted) for wanted in queries]:
            out = contraction_.make(plan, np.empty(columns.cells[plan.mask]), large)
            table = out.table.transpose([out.bits.index(bit) for bit in columns.bits[plan.mask]])
            np.testing.assert_allclose(table, by_numpy(columns, masks, found, plan.mask), rtol=1e-13)


def test_products_are_shared_and_given_up_after_their_last_use(monkeypatch):
    masks = (0b000011, 0b000110, 0b001100, 0b011000, 0b110000)
    columns, found = tables(masks)
    made = []
    multiply = Contraction._multiply
    monkeypatch.setattr(Contraction, "_multiply", lambda *a: (made.append(a[1].number), multiply(*a)))
    contraction_ = Contraction(columns, 1000)
    operands = [contraction_.operand(mask, table) for mask, table in zip(masks, found, strict=True)]
    plans = [contraction_.plan(operands, [1, 2, 3, 4, -1], wanted) for wanted in (0b100001, 0b100001, 0b100011)]
    held = []
    for plan in plans:
        contraction_.make(plan, np.empty(columns.cells[plan.mask]), 0)
        held.append(contraction_.cells)
    assert len(made) == len(set(made)) < 4 * len(plans)
    assert held[0] > 0
    assert held[-1] == 0


def test_plans_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(contraction, "_TIDY", 5)
    monkeypatch.setattr(marginals, "_SMALL", 1)
    model = chain(12)
    pairs = list(itertools.combinations(model.domain, 2))
    want = model.project_many(pairs)
    for pair in pairs * 3:
        np.testing.assert_allclose(model.project(pair), want[pair], rtol=1e-12)
        assert len(model._projector._contraction._known) <= 30


def test_tables_of_large_cliques_are_not_kept(monkeypatch):
    rng = np.random.default_rng(1)
    domain = Domain({"a": 3, "b": 40, "c": 4, "d": 50})
    potentials = {("a", "b", "c"): rng.normal(0, 1, (3, 40, 4)), ("c", "d"): rng.normal(0, 1, (4, 50))}
    queries = [*itertools.combinations(domain, 2), ("a", "b", "c"), ("d", "b")]
    want = GraphicalModel(domain, potentials, total=10.0).project_many(queries)
    monkeypatch.setattr(marginals, "_SMALL", 300)
    monkeypatch.setattr(marginals, "_REMEMBERED", 1)
    model = GraphicalModel(domain, potentials, total=10.0)
    for _ in range(2):
        found = model.project_many(queries)
        assert all(np.array_equal(found[clique], want[clique]) for clique in queries)
        assert len(model._projector._sums) == 1


def test_all_pairs_take_at_most_three_trees():
    rng = np.random.default_rng(2)
    domain = Domain({"a": 60, "b": 50, "c": 70, "d": 20, "e": 80, "f": 30})
    cliques = [("a", "b", "c"), ("b", "c", "d"), ("c", "d", "e"), ("e", "f")]
    model = GraphicalModel(domain, {c: rng.normal(0, 1, domain.shape(c)) for c in cliques}, total=10.0)
    model.project_many([("a", "e"), ("b", "f")])
    model._projector._clear()
    tracemalloc.start()
    model.project_many(list(itertools.combinations(domain, 2)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 8 * model.tree.cells


def test_columns_beyond_a_machine_word_are_renumbered(monkeypatch):
    masks, wanted = (0b000011, 0b000110, 0b011100, 0b110000), 0b101001
    columns, found = tables(masks)
    want = contracted(columns, masks, found, wanted)
    monkeypatch.setattr(contraction, "_WORD", 5)  # fewer than the columns, so that some are joined before the search
    np.testing.assert_allclose(contracted(columns, masks, found, wanted), want, rtol=1e-13)


def test_the_order_with_the_least_work_is_chosen():
    from understudy.model.kernels.projection import best_order

    # A chain of matrices 2 x 100, 100 x 100, 100 x 2: from either end, never the outer product.
    masks, sizes = np.array([0b0011, 0b0110, 0b1100]), np.array([2.0, 100.0, 100.0, 2.0])
    kept, splits, costs = np.zeros(8, np.int64), np.zeros(8, np.int64), np.zeros(8)
    best_order(masks, sizes, 0b1001, kept, costs, splits)
    assert {int(splits[7]), 7 ^ int(splits[7])} in ({0b001, 0b110}, {0b100, 0b011})
    assert costs[7] == 2 * 100 * 100 + 2 * 100 * 2
    assert kept[0b011] == 0b0101


def test_products_of_every_width_equal_numpy():
    from understudy.model.kernels.projection import products

    rng = np.random.default_rng(2)
    for batch, rows, inner, cols in itertools.product((1, 3), (1, 4), (1, 3, 4, 11), (1, 2, 700)):
        left, right = rng.random((batch, rows, inner)), rng.random((batch, inner, cols))
        out = np.full((batch, rows, cols), np.nan)
        products(left.ravel(), right.ravel(), out.reshape(-1), batch, rows, inner, cols)
        np.testing.assert_allclose(out, left @ right, rtol=1e-13)


def test_sums_share_their_steps_and_equal_numpy():
    columns, (table,) = tables([0b111111])
    sums = Sums(columns, 0b111111, table)
    wanted = [mask for mask in range(64) if mask.bit_count() in (0, 2, 5)]
    found = sums.find(wanted)
    for mask in wanted:
        away = tuple(i for i in range(6) if not mask >> i & 1)
        np.testing.assert_allclose(found[mask], table.sum(axis=away), rtol=1e-13)
    assert sums.find([0b000011])[0b000011] is found[0b000011]


def test_room_never_hands_out_the_same_cells_twice():
    room = TablePool(4096)
    parts = [room.take(size) for size in (10, 5000, 3, 4096, 0, 70_000)]
    for number, part in enumerate(parts):
        part[:] = number
    assert all((part == number).all() for number, part in enumerate(parts))


def chain(length):
    rng = np.random.default_rng(length)
    domain = Domain({f"c{i:02}": 2 for i in range(length)})
    names = list(domain)
    pairs = [(names[i], names[i + 1]) for i in range(length - 1)]
    return GraphicalModel(domain, {pair: rng.normal(0, 1, (2, 2)) for pair in pairs}, total=1000.0)


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_ends_of_a_long_chain(calibrated):
    model = chain(80)
    if calibrated:
        model.project_many([(), model.domain.columns[:1]])
    first, *middle, last = model.domain
    step = np.eye(2)
    for one, two in itertools.pairwise(model.domain):
        joint = model.project((one, two))
        step = step @ (joint / joint.sum(axis=1, keepdims=True))
    want = model.project((first,))[:, None] * step
    np.testing.assert_allclose(model.project((first, last)), want, rtol=1e-10)
    np.testing.assert_allclose(model.project((last, middle[40], first)).sum(axis=1).T, want, rtol=1e-10)


def test_single_marginals_are_eliminated_until_that_is_too_large(monkeypatch):
    from understudy.model import elimination

    names = chain(12).domain.columns
    pairs = list(itertools.pairwise(names))
    assert plan_elimination(chain(12).domain, pairs, (names[5],)) == (*names[:5], *names[:5:-1])
    model = chain(12)
    plain = model.project((names[5],))
    assert "tree" not in vars(model)
    monkeypatch.setattr(elimination, "MOST_CELLS", 40)
    assert plan_elimination(model.domain, pairs, (names[5],)) is None
    np.testing.assert_allclose(model.project((names[5],)), plain, rtol=1e-12)
    assert "tree" in vars(model)


def test_tables_belong_to_the_caller():
    model = chain(6)
    names = model.domain.columns
    queries = [(names[0], names[1]), (names[1], names[0]), (names[0], names[4]), (names[4], names[0]), (names[4],), ()]
    before = {clique: table.copy() for clique, table in model.project_many(queries).items()}
    tables_ = model.project_many(queries)
    for table in tables_.values():
        table[...] = -1.0
        np.testing.assert_array_equal(table, -1.0)
    again = model.project_many(queries)
    for clique in queries:
        np.testing.assert_array_equal(again[clique], before[clique])
    one, two = model.project_many(queries[2:4]).values()
    one[...] = -1.0
    assert (two >= 0.0).all()


def test_columns_in_different_parts_of_the_tree_are_independent():
    domain = Domain({"a": 2, "b": 3, "c": 4, "d": 5, "e": 2, "f": 3, "one": 1})
    rng = np.random.default_rng(4)
    cliques = [("a", "b"), ("b", "c"), ("d",), ("e", "f")]  # three parts, the first of two tree cliques
    potentials = {clique: rng.normal(size=domain.shape(clique)) for clique in cliques}
    model = GraphicalModel(domain, potentials, total=50.0)
    dense = np.ones(domain.shape(domain))
    for clique, values in potentials.items():
        kept = [domain[column] if column in clique else 1 for column in domain]
        dense = dense * np.exp(values).reshape(kept)
    dense *= 50.0 / dense.sum()
    asked = [c for k in range(5) for c in itertools.permutations(domain, k)]
    for clique, found in model.project_many(asked).items():
        lost = tuple(i for i, column in enumerate(domain) if column not in clique)
        summed = dense.sum(axis=lost)
        rest = [column for column in domain if column in clique]
        np.testing.assert_allclose(found, summed.transpose([rest.index(c) for c in clique]), rtol=1e-12)


def test_no_product_is_planned_for_columns_in_different_parts(monkeypatch):
    domain = Domain({f"c{i}": 3 for i in range(40)})
    model = GraphicalModel(domain, {(c,): np.arange(3.0) for c in domain}, total=10.0)
    monkeypatch.setattr(marginals.Contraction, "plan", None)
    found = model.project_many(list(itertools.combinations(domain, 2)))
    assert len(found) == 780
