import numpy as np
import pytest
from scipy.optimize import nnls
from scipy.sparse import csr_array
from scipy.sparse.linalg import aslinearoperator

from understudy.domain import Domain
from understudy.errors import InputError, SchemaError, SettingError
from understudy.measurement import Measurement
from understudy.model.estimate import estimate
from understudy.model.graphical import GraphicalModel

DOMAIN = Domain({"a": 2, "b": 3, "c": 4, "d": 3})
LOOP = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("b",)]


def noisy(domain, cliques, *, rows=1000.0, sigma=10.0, seed=0):
    rng = np.random.default_rng(seed)
    cells = rng.dirichlet(np.full(domain.cells(), 0.3)) * rows
    truth = cells.reshape(domain.shape(domain))
    return [Measurement(c, table(domain, truth, c) + rng.normal(0, sigma, domain.cells(c)), sigma) for c in cliques]


def table(domain, cells, clique):
    kept = [c for c in domain if c in clique]
    summed = cells.sum(axis=tuple(i for i, c in enumerate(domain) if c not in clique))
    return summed.transpose([kept.index(c) for c in clique]).ravel()


def referee(domain, measurements, total, allowed=None):
    """The smallest loss over all tables of non-negative counts that add up to the total: least squares on the joint."""
    cells = domain.cells()
    rows, targets = [np.full((1, cells), 1e5)], [np.array([1e5 * total])]
    for m in measurements:
        matrix = np.stack([table(domain, cell.reshape(domain.shape(domain)), m.clique) for cell in np.eye(cells)], 1)
        matrix = matrix if m.query is None else m.query @ matrix
        rows.append(matrix / m.sigma)
        targets.append(m.values / m.sigma)
    matrix, target = np.concatenate(rows), np.concatenate(targets)
    if allowed is not None:
        matrix = matrix[:, allowed.ravel()]
    solution, _ = nnls(matrix, target, maxiter=100 * cells)
    residual = matrix @ solution - target
    return 0.5 * float(residual[1:] @ residual[1:])


@pytest.mark.parametrize("sigma", [0.01, 0.1, 1.0, 10.0, 1000.0])
@pytest.mark.parametrize("cliques", [LOOP, [("a",), ("c", "d")], [("a", "b", "c"), ("b", "c", "d"), ("a", "d")]])
def test_loss_is_the_smallest_there_is(cliques, sigma):
    measurements = noisy(DOMAIN, cliques, sigma=sigma)
    model = estimate(DOMAIN, measurements, total=1000.0, tolerance=1e-6)
    best = referee(DOMAIN, measurements, 1000.0)
    assert best - 1e-6 * best <= model.loss <= best + 1e-3 * best + 1e-3
    assert model.report.converged, model.report
    assert not model.report.warning
    residuals = [(model.project(m.clique).ravel() - m.values) / m.sigma for m in measurements]
    assert model.loss == pytest.approx(0.5 * sum(float(r @ r) for r in residuals), rel=1e-6)


def test_a_fit_can_stop_at_a_multiple_of_the_loss_of_the_noise():
    """Half of the number of values is what the noise alone causes; without noise to fit, it goes to the minimum."""
    measurements = noisy(DOMAIN, LOOP)
    values = sum(len(m.values) for m in measurements)
    best = estimate(DOMAIN, measurements, total=1000.0)
    early = estimate(DOMAIN, measurements, total=1000.0, enough=1.2)
    assert best.loss < early.loss <= 1.2 * values / 2
    assert early.report.converged
    assert early.report.iterations < best.report.iterations
    enough = 1.01 * best.loss / (values / 2)
    assert estimate(DOMAIN, measurements, total=1000.0, enough=enough).loss <= 1.01 * best.loss
    never = estimate(DOMAIN, measurements, total=1000.0, enough=0.5 * best.loss / (values / 2))
    assert never.loss == pytest.approx(best.loss, rel=1e-3)
    warm = estimate(DOMAIN, measurements, total=1000.0, enough=1.2, warm_start=best)
    assert warm.loss <= 1.2 * values / 2


def test_maximum_entropy_among_the_best():
    # Only one-way tables are known: the columns must come out independent.
    measurements = noisy(DOMAIN, [("a",), ("b",), ("c",)], sigma=1.0)
    model = estimate(DOMAIN, measurements, tolerance=1e-7)
    joint = model.project(("a", "b", "c", "d")) / model.total
    parts = [model.project((c,)) / model.total for c in DOMAIN]
    np.testing.assert_allclose(joint, np.einsum("i,j,k,l->ijkl", *parts), atol=1e-12)
    np.testing.assert_allclose(parts[3], 1 / 3)  # never measured: uniform


def test_repeated_cliques_and_axis_orders_are_merged_by_precision():
    exact = noisy(DOMAIN, [("a", "b")], sigma=5.0)[0]
    turned = Measurement(("b", "a"), exact.values.reshape(2, 3).T.ravel(), 5.0)
    once = estimate(DOMAIN, [Measurement(("a", "b"), exact.values, 5.0 / np.sqrt(2))], total=1000.0, tolerance=1e-8)
    twice = estimate(DOMAIN, [exact, turned], total=1000.0, tolerance=1e-8)
    np.testing.assert_allclose(twice.project(("a", "b")), once.project(("a", "b")), atol=1e-6)
    assert twice.loss == pytest.approx(once.loss, rel=1e-6, abs=1e-9)


def prefix_sums(cells):
    return np.tril(np.ones((cells, cells)))


@pytest.mark.parametrize("form", [np.asarray, csr_array, aslinearoperator])
def test_general_queries(form):
    # Prefix sums of (c, a), in an order that is not the engine's, beside an ordinary table.
    plain = noisy(DOMAIN, [("a", "b")], sigma=3.0)[0]
    counts = np.random.default_rng(3).poisson(120, 8).astype(float)
    counts *= 1000 / counts.sum()
    dense = Measurement(("c", "a"), prefix_sums(8) @ counts, 2.0, query=prefix_sums(8))
    wanted = Measurement(("c", "a"), dense.values, 2.0, query=form(prefix_sums(8)))
    model = estimate(DOMAIN, [plain, wanted], total=1000.0, tolerance=1e-7)
    assert model.loss <= referee(DOMAIN, [plain, dense], 1000.0) * 1.001 + 1e-3


def test_total_is_estimated_by_precision():
    precise = Measurement(("a",), np.array([400, 600]), 1.0)
    rough = Measurement(("b",), np.array([900, 0, 0]), 100.0)
    model = estimate(DOMAIN, [precise, rough])
    variances = np.array([2 * 1.0, 3 * 100.0**2])
    assert model.total == pytest.approx(np.average([1000, 900], weights=1 / variances))
    assert model.project(("a", "b")).sum() == pytest.approx(model.total)


def test_total_from_a_general_query_that_gives_it():
    tells = Measurement(("a",), np.array([300.0, 1000.0]), 1.0, query=np.array([[1.0, 0.0], [1.0, 1.0]]))
    assert estimate(DOMAIN, [tells]).total == pytest.approx(1000.0)
    silent = Measurement(("a",), np.array([300.0]), 1.0, query=np.array([[1.0, 0.0]]))
    with pytest.raises(InputError, match="give total"):
        estimate(DOMAIN, [silent])
    assert estimate(DOMAIN, [silent], total=900.0).project(("a",))[0] == pytest.approx(300.0, rel=1e-3)


def test_negative_totals_become_one():
    assert estimate(DOMAIN, [Measurement(("a",), np.array([-40, -60]), 50.0)]).total == 1.0


def test_forbidden_cells_stay_empty_and_the_rest_is_best():
    forbidden = np.zeros((3, 4), bool)
    forbidden[0, 1:] = True
    measurements = noisy(DOMAIN, LOOP, sigma=5.0)
    model = estimate(DOMAIN, measurements, total=1000.0, forbidden={("b", "c"): forbidden}, tolerance=1e-7)
    assert (model.project(("b", "c"))[forbidden] == 0).all()
    allowed = np.broadcast_to(~forbidden[None, :, :, None], DOMAIN.shape(DOMAIN))
    best = referee(DOMAIN, measurements, 1000.0, allowed)
    assert model.loss == pytest.approx(best, rel=2e-3)
    rows = model.sample(5000, np.random.default_rng(0))
    assert not forbidden[rows["b"], rows["c"]].any()


def test_forbidden_cells_of_an_unmeasured_clique():
    forbidden = ~np.eye(3, dtype=bool)
    model = estimate(DOMAIN, noisy(DOMAIN, [("a",)]), forbidden={("d", "b"): forbidden})
    np.testing.assert_allclose(model.project(("b", "d")), np.eye(3) * model.total / 3)


def test_warm_start_changes_the_time_not_the_answer():
    measurements = noisy(DOMAIN, LOOP, sigma=2.0)
    first = estimate(DOMAIN, measurements[:3], total=1000.0, tolerance=1e-6)
    cold = estimate(DOMAIN, measurements, total=1000.0, tolerance=1e-7)
    warm = estimate(DOMAIN, measurements, total=1000.0, tolerance=1e-7, warm_start=first)
    assert warm.loss == pytest.approx(cold.loss, rel=1e-3)
    again = estimate(DOMAIN, measurements, total=1000.0, tolerance=1e-4, warm_start=cold)
    assert again.report.iterations < 0.75 * cold.report.iterations


def test_same_measurements_give_the_same_model_bit_for_bit():
    one, two = (estimate(DOMAIN, noisy(DOMAIN, LOOP)).to_arrays() for _ in range(2))
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_a_hundred_columns_in_a_tree():
    domain = Domain({f"c{i}": 2 + i % 5 for i in range(110)})
    rng = np.random.default_rng(0)
    cliques = [(f"c{(i - 1) // 2}", f"c{i}") for i in range(1, 110)]
    values = [rng.integers(0, 500, domain.cells(c)) for c in cliques]
    model = estimate(domain, [Measurement(c, v, 10.0) for c, v in zip(cliques, values, strict=True)])
    far = model.project(("c108", "c55", "c3"))
    assert far.shape == domain.shape(("c108", "c55", "c3"))
    assert far.sum() == pytest.approx(model.total)
    assert model.sample(100, rng)["c109"].max() < domain["c109"]


def test_stopping_early_is_never_silent():
    model = estimate(DOMAIN, noisy(DOMAIN, LOOP, sigma=0.01), total=1000.0, tolerance=1e-12, max_seconds=1e-9)
    assert not model.report.converged
    assert "time limit" in model.report.warning


def test_progress_hears_of_it():
    heard = []
    estimate(DOMAIN, noisy(DOMAIN, LOOP), progress=heard.append)
    assert heard
    assert {step.stage for step in heard} == {"estimate"}
    estimate(DOMAIN, noisy(DOMAIN, LOOP), progress=None)
    with pytest.raises(SettingError, match="progress"):
        estimate(DOMAIN, noisy(DOMAIN, LOOP), progress=3)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"total": -1.0}, InputError, "total must be"),
        ({"total": float("nan")}, InputError, "total must be"),
        ({"total": 9e9}, InputError, "contradicts the measurements"),
        ({"tolerance": 0.0}, SettingError, "tolerance"),
        ({"max_seconds": 0.0}, SettingError, "max_seconds"),
        ({"limit_mib": 1e-6}, SettingError, "limit"),
        ({"forbidden": {("a",): np.ones(2, bool)}}, InputError, "all cells are forbidden"),
        ({"forbidden": {("a",): np.ones(3, bool)}}, InputError, "2 truth values"),
        ({"forbidden": {("q",): np.ones(3, bool)}}, SchemaError, "unknown column"),
        ({"warm_start": GraphicalModel(Domain({"z": 2}), {}, total=1.0)}, InputError, "another domain"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        estimate(DOMAIN, noisy(DOMAIN, LOOP), **arguments)


def test_forbidden_cells_that_leave_no_mass():
    a, b = np.zeros((2, 3), bool), np.zeros((3, 4), bool)
    a[:, :2], b[2, :] = True, True  # the one forces b=2, the other rules it out
    with pytest.raises(InputError, match="leave no possible row"):
        estimate(DOMAIN, noisy(DOMAIN, LOOP), forbidden={("a", "b"): a, ("b", "c"): b})


def test_bad_measurements_are_refused():
    with pytest.raises(SchemaError, match="unknown column 'z'"):
        estimate(DOMAIN, [Measurement(("z",), np.zeros(2), 1.0)])
    with pytest.raises(InputError, match="3 values for 2 answers"):
        estimate(DOMAIN, [Measurement(("a",), np.zeros(3), 1.0)])
    wide = Domain({f"c{i}": 1000 for i in range(9)})
    pairs = [Measurement((f"c{i}", f"c{k}"), np.zeros(10**6), 1.0) for i in range(9) for k in range(i)]
    with pytest.raises(SettingError, match="MiB"):
        estimate(wide, pairs)
