from __future__ import annotations

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.errors import ReleaseError, SettingError
from understudy.measurement import Measurement
from understudy.model.gum import GumModel, RowPlan, _Step, fit_gum, move_codes, update
from understudy.model.kernels import rows as kernels
from understudy.model.protocol import MODELS

SIZES = {"a": 3, "b": 4, "c": 3, "d": 5, "e": 2}
DOMAIN = Domain(SIZES)
TREE = [("a", "b"), ("b", "c"), ("b", "d"), ("d", "e")]
CYCLES = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d"), ("d", "e"), ("a", "e")]


def joint() -> np.ndarray:
    rng = np.random.default_rng(0)
    first = rng.dirichlet(np.ones(3))
    given = [rng.dirichlet(np.ones(SIZES[child]), size=SIZES[parent]) for parent, child in TREE]
    return np.einsum("a,ab,bc,bd,de->abcde", first, *given)


def tables_of_joint(cliques: list[tuple[str, str]], rows: int = 10_000) -> dict:
    whole = joint() * rows
    return {c: whole.sum(axis=tuple(i for i, name in enumerate("abcde") if name not in c)) for c in cliques}


def count_cells(rows: dict, clique: tuple[str, ...]) -> np.ndarray:
    out = np.zeros([SIZES[column] for column in clique])
    np.add.at(out, tuple(rows[column] for column in clique), 1)
    return out


def mean_l1(rows: dict, tables: dict) -> float:
    n = len(rows["a"])
    return float(np.mean([np.abs(count_cells(rows, c) / n - t / t.sum()).sum() for c, t in tables.items()]))


@pytest.mark.parametrize(("alpha", "share"), [(2.0, [0.4, 0.6]), (1.0, [0.6, 0.4])])
@pytest.mark.parametrize("copies", [0.0, 1.0])
def test_the_worked_example_of_one_update(alpha: float, share: list[float], copies: float) -> None:
    columns = {"income": np.zeros(5, np.uint8), "sex": np.array([0, 1, 0, 0, 0], np.uint8)}
    target = np.array([[0.2, 0.8]])
    state = np.array([7], np.uint64)
    before = _Step(columns, ("income", "sex"), target, 5).run(alpha, copies, state)
    assert before == pytest.approx(1.2)
    assert (np.bincount(columns["sex"], minlength=2) / 5).tolist() == share


def test_a_tree_without_noise_is_met_to_the_rounding() -> None:
    tables = tables_of_joint(TREE)
    plan = RowPlan(DOMAIN, tables)
    assert plan.components == []
    assert mean_l1(plan.run(DOMAIN, 10_000, np.random.default_rng(1)), tables) < 0.002


def test_updates_alone_meet_a_tree_without_noise() -> None:
    """From independent columns, as in the paper: 0.32 at the start, below 0.02 at 10^4 rows after ten passes."""
    tables, rng = tables_of_joint(TREE), np.random.default_rng(1)
    rows = {c: RowPlan(DOMAIN, {}).run(DOMAIN, 10_000, rng)[c] for c in DOMAIN}
    assert mean_l1(rows, tables) > 0.2
    assert mean_l1(update(rows, tables, rng, passes=10), tables) < 0.02


def test_cycles_without_noise_are_met() -> None:
    tables = tables_of_joint(CYCLES)
    plan = RowPlan(DOMAIN, tables)
    assert len(plan.components) == 1
    assert mean_l1(plan.run(DOMAIN, 10_000, np.random.default_rng(1)), tables) < 0.02


def test_columns_that_no_table_joins_stay_independent() -> None:
    """Copying rows must not make clones: two components and a lonely column are independent in the sample."""
    model = GumModel(DOMAIN, 1e4, tables_of_joint([("a", "b"), ("d", "e")]))
    rows = model.sample(20_000, np.random.default_rng(2))
    for pair in (("a", "c"), ("b", "d"), ("a", "e")):
        product = np.multiply.outer(*(count_cells(rows, (column,)) for column in pair)) / 20_000
        # the sum of |N(0, p q n)|-like deviations of independent rows is about 0.8 sqrt(cells n)
        assert np.abs(count_cells(rows, pair) - product).sum() < 2.5 * np.sqrt(product.size * 20_000)


def test_a_worked_example_of_moving_codes() -> None:
    # In group 0 the codes 0 0 1 3 become 0 1 2 3, in their order; group 1 keeps its codes, as its table is empty.
    rows = {"sex": np.array([0, 0, 0, 0, 1]), "stay": np.array([3, 0, 1, 0, 2])}
    table = np.array([[5.0, 5.0, 5.0, 5.0], [0.0, 0.0, 0.0, 0.0]])
    moved = move_codes(rows, {("sex", "stay"): table}, {"stay": 4}, np.random.default_rng(0))
    assert moved["stay"][[0, 2, 4]].tolist() == [3, 2, 2]
    assert sorted(moved["stay"][[1, 3]].tolist()) == [0, 1]
    assert rows["sex"].tolist() == [0, 0, 0, 0, 1]


def test_contradictory_tables_leave_the_means_of_a_number_unbiased() -> None:
    """Updates of many noisy tables stop before they are met; the numbers of a group are then moved to its table."""
    rng = np.random.default_rng(3)
    domain = Domain({"x": 12} | {f"g{i}": 3 for i in range(6)})
    steps = np.abs(np.arange(12) - np.array([[2.0], [5.0], [9.0]]))
    tables = {("x", f"g{i}"): (0.6 ** (steps * (1 if i else 2))).T for i in range(6)}
    tables = {clique: table / table.sum() * 5000 for clique, table in tables.items()}
    tables |= {(f"g{i}", f"g{i + 1}"): np.full((3, 3), 5000 / 9) + rng.normal(0, 60, (3, 3)) for i in range(5)}
    strongest = tables["x", "g0"]

    def off(axes: dict[str, int]) -> float:
        rows = GumModel(domain, 5000.0, tables, axes=axes).sample(5000, np.random.default_rng(1))
        means = [rows["x"][rows["g0"] == group].mean() for group in range(3)]
        return float(np.abs(means - np.arange(12) @ strongest / strongest.sum(axis=0)).max())

    assert off({"x": 12}) < 0.01
    assert off({}) > 0.1


def test_rows_without_a_number_keep_their_code() -> None:
    # code 2 means missing: one of group 1 would change places with the largest number, although the table has fewer
    rows = {"sex": np.array([0, 0, 1, 1, 1]), "income": np.array([0, 1, 2, 2, 0])}
    table = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    moved = move_codes(rows, {("sex", "income"): table}, {"income": 2}, np.random.default_rng(0))
    assert moved["income"][2:4].tolist() == [2, 2]
    assert moved["income"][4] in (0, 1)


def test_every_table_of_a_number_is_met_and_not_only_the_last_one() -> None:
    rng, size = np.random.default_rng(4), 20_000
    sex = rng.integers(2, size=size)
    ward = np.where(rng.random(size) < 0.8, sex, rng.integers(3, size=size))  # related groups undo each other's moves
    stay = np.minimum(rng.poisson(2 + 3 * sex + 2 * ward), 15)
    true = {"sex": sex, "ward": ward, "stay": stay}
    tables = {
        (group, "stay"): np.bincount(true[group] * 16 + stay, minlength=16 * codes).reshape(codes, 16).astype(float)
        for group, codes in (("sex", 2), ("ward", 3))
    }
    rows = {"sex": sex.copy(), "ward": ward.copy(), "stay": rng.permutation(stay)}
    move_codes(rows, tables, {"stay": 16}, np.random.default_rng(0))
    off = [
        abs(rows["stay"][true[group] == code].mean() - stay[true[group] == code].mean())
        for group, _ in tables
        for code in range(true[group].max() + 1)
    ]
    assert max(off) < 0.02


def test_appending_undoes_hanging_columns_in_order() -> None:
    plan = RowPlan(DOMAIN, tables_of_joint([("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("d", "e")]))
    assert [draw.column for draw in plan.appended] == ["d", "e"]
    assert [set(part) for part in plan.components] == [{("a", "b"), ("b", "c"), ("a", "c")}]
    assert plan.started[0][0].given == ()
    assert all(draw.given for draw in plan.started[0][1:])


def test_picked_rows_are_uniform_within_their_cell() -> None:
    cells = np.array([0] * 6 + [1] * 4, np.int32)
    have, removed, copied = np.array([6, 4]), np.array([2, 0]), np.array([0, 3])
    state, seen = np.array([5], np.uint64), np.zeros(10)
    for _ in range(6000):
        freed, models = np.empty(2, np.int32), np.empty(3, np.int32)
        assert kernels.pick_rows(cells, have.copy(), removed + copied, removed.copy(), state, freed, models) == (2, 3)
        assert len(set(freed)) == 2
        assert len(set(models)) == 3
        seen[freed] += 1
        seen[models] += 1
    # 6,000 draws: a standard deviation of at most 37, so 220 is six of them
    assert np.abs(seen - np.array([2000] * 6 + [4500] * 4)).max() < 220


def test_what_is_given_up_is_what_is_wanted() -> None:
    have, target = np.array([50, 30, 0, 20]), np.array([20.0, 20.0, 30.0, 30.0])
    removed, copied, written = (np.zeros(4, np.int64) for _ in range(3))
    kernels.plan_changes(have, target, 1.0, 0.5, False, np.array([3], np.uint64), removed, copied, written)
    assert removed.tolist()[2:] == [0, 0]
    assert written[2] == 30
    assert copied[3] + written[3] == 10
    assert copied[3] == 5
    assert abs(removed.sum() - 40) <= 2


def test_projection_answers_from_tables_then_by_independence_then_by_counting() -> None:
    tables = tables_of_joint([("a", "b"), ("b", "c")])
    model = GumModel(DOMAIN, 500.0, tables)
    assert model.project(("b", "a")) == pytest.approx(tables["a", "b"].T / 20)
    assert model.project(("e", "a")) == pytest.approx(np.outer([0.5, 0.5], tables["a", "b"].sum(axis=1) / 20))
    assert model.project(()) == pytest.approx(500)
    chain = np.einsum("ab,bc->ac", tables["a", "b"], tables["b", "c"] / tables["a", "b"].sum(axis=0)[:, None]) / 20
    assert model.project(("a", "c")) == pytest.approx(chain, abs=10)
    assert np.array_equal(model.project(("a", "c")), GumModel(DOMAIN, 500.0, tables).project(("a", "c")))


def test_the_same_generator_state_gives_the_same_rows() -> None:
    model = GumModel(DOMAIN, 1e4, tables_of_joint(CYCLES))
    one, same, other = (model.sample(300, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(one[column], same[column]) for column in DOMAIN)
    assert any(not np.array_equal(one[column], other[column]) for column in DOMAIN)
    assert [len(codes) for codes in model.sample(0, np.random.default_rng(0)).values()] == [0] * 5


def test_conditioning_is_refused_with_a_way_out() -> None:
    with pytest.raises(SettingError, match="generator='pgm'"):
        GumModel(DOMAIN, 1.0, {}).condition({"a": 1})


def test_a_model_survives_being_written_down() -> None:
    model = GumModel(DOMAIN, 77.5, tables_of_joint(CYCLES), axes={"d": DOMAIN["d"] - 1})
    again = MODELS["gum"].from_arrays(DOMAIN, model.to_arrays())
    assert again.total == 77.5
    assert again.axes == {"d": DOMAIN["d"] - 1}
    assert np.array_equal(again.project(("a", "b")), model.project(("a", "b")))
    assert GumModel.from_arrays(DOMAIN, GumModel(DOMAIN, 3.0, {}).to_arrays()).total == 3.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("columns", np.array([0, 9])),
        ("columns", np.array([0, -1])),
        ("columns", np.array([0, 0])),
        ("lengths", np.array([3])),
        ("counts", np.ones(11)),
        ("counts", -np.ones(12)),
        ("counts", np.zeros(12)),
        ("counts", np.full(12, np.nan)),
        ("total", np.array(np.inf)),
        ("total", np.array("x")),
        ("axes", np.array([9])),
        ("axes", np.array([-1])),
        ("places", np.array([0])),
        ("places", np.array([1, 1])),
    ],
)
def test_damaged_arrays_are_refused(name: str, value: np.ndarray) -> None:
    arrays = GumModel(DOMAIN, 5.0, tables_of_joint(TREE[:1])).to_arrays()
    with pytest.raises(ReleaseError, match="damaged"):
        GumModel.from_arrays(DOMAIN, {**arrays, name: value})


@pytest.mark.parametrize("places", [0, 99])
def test_an_axis_has_a_code_and_no_more_than_its_column(places: int) -> None:
    arrays = GumModel(DOMAIN, 5.0, tables_of_joint(TREE[:1]), axes={"a": 1}).to_arrays()
    with pytest.raises(ReleaseError, match="damaged"):
        GumModel.from_arrays(DOMAIN, {**arrays, "places": np.array([places])})


def test_any_measurements_can_be_generated_from() -> None:
    tables = tables_of_joint(CYCLES)
    rng = np.random.default_rng(4)
    noisy = [Measurement(c, t.reshape(-1) + rng.normal(0, 5, t.size), 5.0) for c, t in tables.items()]
    model = fit_gum(DOMAIN, noisy)
    assert model.total == pytest.approx(10_000, abs=100)
    assert mean_l1(model.sample(10_000, rng), tables) < 0.05
    assert fit_gum(DOMAIN, noisy, total=123).total == pytest.approx(123)
    assert fit_gum(DOMAIN, []).project(("b",)) == pytest.approx(np.full(4, 0.25))
