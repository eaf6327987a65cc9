import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.errors import InputError, ReleaseError, SchemaError, SettingError
from understudy.measurement import Measurement
from understudy.model.estimate import estimate
from understudy.model.graphical import GraphicalModel
from understudy.model.projection import Projector

DOMAIN = Domain({"a": 2, "wide": 300, "b": 3, "one": 1, "c": 4})


def make_model():
    rng = np.random.default_rng(1)
    cliques = [("a", "b"), ("b", "c"), ("wide", "a"), ("one",)]
    return GraphicalModel(DOMAIN, {c: rng.normal(0, 1, DOMAIN.shape(c)) for c in cliques}, total=50_000.0)


def counts(rows, clique):
    shape = DOMAIN.shape(clique)
    return np.bincount(np.ravel_multi_index([rows[c] for c in clique], shape), minlength=np.prod(shape)).reshape(shape)


def test_rows_come_in_the_domains_order_and_smallest_types():
    rows = make_model().sample(1000, np.random.default_rng(0))
    assert list(rows) == list(DOMAIN)
    assert [column.dtype.name for column in rows.values()] == ["uint8", "uint16", "uint8", "uint8", "uint8"]
    assert all(len(column) == 1000 and column.max() < DOMAIN[name] for name, column in rows.items())


def test_rounded_rows_match_a_marginal_up_to_rounding():
    model = make_model()
    rows = model.sample(50_000, np.random.default_rng(0))
    root = model.tree.cliques[0]
    got, want = counts(rows, root), model.project(root)
    groups = np.prod(DOMAIN.shape(root)[:-1])  # each group of the last column's rows is rounded once
    assert np.abs(got - want).max() < 2 + groups * 0.01
    assert np.abs(counts(rows, ("a",)) - model.project(("a",))).max() <= 1


@pytest.mark.parametrize("rounding", [True, False])
def test_rows_follow_the_model_across_cliques(rounding):
    # c and wide are independent given a and b; without shuffling inside groups they would come out sorted together.
    model = make_model()
    rows = model.sample(50_000, np.random.default_rng(7), rounding=rounding)
    got, want = counts(rows, ("c", "a", "b")), model.project(("c", "a", "b"))
    assert np.abs(got - want).max() < 6 * np.sqrt(want.max())
    halves = np.stack([counts({**rows, "wide": rows["wide"] // 150}, ("wide", "c")).ravel()[:8]])
    expected = model.project(("wide", "c")).reshape(2, 150, 4).sum(axis=1).ravel()
    assert np.abs(halves - expected).max() < 6 * np.sqrt(expected.max())


def test_independent_rows_have_binomial_spread_and_rounded_ones_do_not():
    model = GraphicalModel(Domain({"x": 2}), {}, total=1.0)
    spread = {
        rounding: np.std(
            [model.sample(1000, np.random.default_rng(s), rounding=rounding)["x"].sum() for s in range(200)]
        )
        for rounding in (True, False)
    }
    assert spread[True] == 0.0
    assert 12.0 < spread[False] < 20.0  # sqrt(1000)/2 = 15.8


def test_same_generator_state_same_rows():
    one, two = (make_model().sample(500, np.random.default_rng(3)) for _ in range(2))
    other = make_model().sample(500, np.random.default_rng(4))
    assert all(np.array_equal(one[c], two[c]) for c in DOMAIN)
    assert any(not np.array_equal(one[c], other[c]) for c in DOMAIN)


def test_no_rows_and_bad_rows():
    assert all(len(column) == 0 for column in make_model().sample(0, np.random.default_rng(0)).values())
    with pytest.raises(SettingError, match="rows"):
        make_model().sample(-1, np.random.default_rng(0))


def test_conditional_sampling_keeps_the_fixed_codes():
    model = make_model().condition({"c": 2, "one": 0})
    rows = model.sample(2000, np.random.default_rng(0))
    assert (rows["c"] == 2).all()
    want = make_model().project(("b", "c"))[:, 2]
    np.testing.assert_allclose(model.project(("b",)), want)


def test_conditions_that_cannot_be_met():
    with pytest.raises(SchemaError, match="unknown column"):
        make_model().condition({"nobody": 0})
    with pytest.raises(InputError, match=r"not in 0\.\.3"):
        make_model().condition({"c": 4})
    impossible = GraphicalModel(DOMAIN, {("c",): np.array([0.0, 0.0, 0.0, -np.inf])}, total=1.0)
    with pytest.raises(InputError, match="cannot occur"):
        impossible.condition({"c": 3})


def test_projections_do_not_depend_on_company():
    model = make_model()
    together = model.project_many([("c", "a"), ("wide", "c"), ("b",), ()])
    assert together[()] == pytest.approx(50_000.0)
    for clique, table in together.items():
        np.testing.assert_allclose(make_model().project(clique), table, rtol=1e-12)
    with pytest.raises(SchemaError, match="named twice"):
        model.project(("a", "a"))


def test_written_down_and_read_back():
    model = estimate(DOMAIN, [Measurement(("a", "b"), np.arange(6) * 100, 5.0)])
    back = GraphicalModel.from_arrays(DOMAIN, model.to_arrays())
    assert back.total == model.total
    assert (back.report.loss, back.report.converged) == (model.report.loss, model.report.converged)
    np.testing.assert_array_equal(back.project(("b", "a")), model.project(("b", "a")))
    assert np.isnan(make_model().loss)


@pytest.mark.parametrize("damage", ["potentials", "cliques", "total", "missing", "nan"])
def test_damaged_arrays_are_refused(damage):
    arrays = make_model().to_arrays()
    if damage == "missing":
        del arrays["potentials"]
    elif damage == "nan":
        arrays["potentials"] = arrays["potentials"] * np.nan
    elif damage == "total":
        arrays["total"] = np.array(-3.0)
    else:
        arrays[damage] = arrays[damage][:, :-1] if damage == "cliques" else arrays[damage][:-1]
    with pytest.raises(ReleaseError, match="damaged"):
        GraphicalModel.from_arrays(DOMAIN, arrays)


def test_threads_that_share_a_model_project_one_after_the_other(monkeypatch):
    inside, most, many = [], [], Projector.many

    def watched(self, cliques):
        inside.append(cliques)
        most.append(len(inside))
        time.sleep(0.01)
        found = many(self, cliques)
        inside.pop()
        return found

    monkeypatch.setattr(Projector, "many", watched)
    model = make_model()
    wanted = [[("a", "c"), ("b",)], [("wide", "b"), ("a",)], [("c",), ("a", "b")]]
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(model.project_many, wanted))
    assert max(most) == 1
    for cliques, tables in zip(wanted, found, strict=True):
        for clique in cliques:
            assert tables[clique] == pytest.approx(make_model().project(clique))
