import numpy as np
import pytest

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model.estimate import estimate
from understudy.model.junction_tree import JunctionTree
from understudy.model.kernels.propagation import TINY, exponentials
from understudy.model.problem import MeasuredClique, reconcile_tables
from understudy.model.propagate import Propagation

NONE = np.empty(0, np.int64)
CHAIN = Domain({"a": 2, "b": 3, "c": 4})


def test_exponentials_are_exact_to_the_last_digits():
    x = np.concatenate(
        [-np.logspace(-300, np.log10(689), 20_000), -np.random.default_rng(0).uniform(0, 40, 20_000), [0.0]]
    )
    out, powers = x.copy(), np.empty(512)
    exponentials(out, powers, powers.view(np.int64))
    np.testing.assert_allclose(out, np.exp(x), rtol=5e-16)
    deep = np.array([-690.0, -1e4, -np.inf])
    exponentials(deep, powers, powers.view(np.int64))
    np.testing.assert_allclose(deep, np.exp(-690.0))


def conflict(strength):
    """Two tables that each love what the other hates: their product underflows long before either does."""
    propagation = Propagation(JunctionTree.of(CHAIN, [("a", "b"), ("b", "c")]), [("a", "b"), ("b", "c")])
    ab, bc = np.zeros((2, 3)), np.zeros((3, 4))
    ab[:, 1:] -= strength
    bc[:2, :] -= strength
    parts = {("a", "b"): ab, ("b", "c"): bc, (): np.zeros(1)}
    return propagation, np.concatenate([parts[clique].ravel() for clique in propagation.tables])


def test_log_domain_takes_over_when_products_underflow():
    propagation, potentials = conflict(680.0)
    got = propagation.marginals(potentials, 1.0, forbidden=NONE).copy()
    logs = propagation.marginals(potentials, 1.0, forbidden=NONE, logs=True)
    np.testing.assert_allclose(got, logs, atol=1e-12)
    propagation, potentials = conflict(2000.0)
    got = propagation.marginals(potentials, 1.0, forbidden=NONE)
    b = got[propagation.slice_of(propagation.tables.index(("a", "b")))].reshape(2, 3).sum(axis=0)
    np.testing.assert_allclose(b, [0.5, 0.0, 0.5], atol=1e-12)  # 4 x 2 cells against 4 x 2 cells; b=1 is hated twice
    assert propagation.log_partition == pytest.approx(-2000.0 + np.log(16.0))
    raised = potentials + 7.0  # all three tables: the fall from linear to log domain must not lose it
    propagation.marginals(raised, 1.0, forbidden=NONE)
    assert propagation.log_partition == pytest.approx(21.0 - 2000.0 + np.log(16.0))


def test_cells_that_are_all_but_impossible_need_no_log_domain():
    """Their messages are tiny, but the bound shows that nothing is lost. Where all cells are small, it shows less."""
    propagation, potentials = conflict(0.0)
    ab = propagation.slice_of(propagation.tables.index(("a", "b")))
    potentials[ab][[0, 3]] = -800.0  # b = 0 is impossible
    got = propagation.marginals(potentials, 1.0, forbidden=NONE).copy()
    assert propagation.smallest_message < TINY
    assert propagation.lost < 1e-200
    np.testing.assert_allclose(got, propagation.marginals(potentials, 1.0, forbidden=NONE, logs=True), atol=1e-12)
    propagation, potentials = conflict(620.0)
    propagation.marginals(potentials, 1.0, forbidden=NONE)
    assert not propagation.in_logs
    assert 1e-40 < propagation.lost < 1e-20


def test_a_fit_with_hopeless_cells_does_not_compile_the_log_domain(monkeypatch):
    """Counts far below zero push potentials so low that messages of those cells underflow."""
    monkeypatch.setattr(Propagation, "_logarithmic", None)
    ab = Measurement(("a", "b"), np.array([-50.0, 500.0, 300.0, -50.0, 200.0, 900.0]), 1.0)
    bc = Measurement(("b", "c"), np.repeat([-50.0, 175.0, 300.0], 4), 1.0)
    model = estimate(CHAIN, [ab, bc])
    assert model.project(("b",)).min() == pytest.approx(0.0, abs=1e-6)


def test_many_axes_and_many_inputs():
    domain = Domain({f"x{i}": 2 for i in range(18)})
    rng = np.random.default_rng(0)
    cliques = [tuple(rng.permutation(domain.columns)[:3]) for _ in range(150)]
    propagation = Propagation(JunctionTree.of(domain, cliques), cliques)
    assert max(map(len, propagation.tree.cliques)) >= 12
    potentials = rng.normal(0.0, 0.5, propagation.size)
    linear = propagation.marginals(potentials, 1.0, forbidden=NONE).copy()
    logs = propagation.marginals(potentials, 1.0, forbidden=NONE, logs=True)
    np.testing.assert_allclose(linear, logs, atol=1e-13)


def test_consistent_tables_solve_the_least_squares_problem():
    rng = np.random.default_rng(2)
    weights = {("a", "b"): 2.0, ("b", "c"): 0.5, ("b",): 3.0}
    noisy = {c: (rng.normal(10, 5, CHAIN.cells(c)), w) for c, w in weights.items()}
    tables = {c: MeasuredClique(CHAIN, c, [Measurement(c, values, w**-0.5)]) for c, (values, w) in noisy.items()}
    cells = np.eye(CHAIN.cells()).reshape(-1, *CHAIN.shape(CHAIN))
    lost = {c: tuple(i for i, column in enumerate(CHAIN) if column not in c) for c in noisy}
    maps = {c: np.stack([cell.sum(axis=lost[c]).ravel() for cell in cells], 1) for c in noisy}
    rows = [1e6 * np.ones((1, CHAIN.cells()))] + [np.sqrt(w) * maps[c] for c, (_, w) in noisy.items()]
    targets = [[1e6 * 100.0]] + [np.sqrt(w) * y for y, w in noisy.values()]
    solution = np.linalg.lstsq(np.concatenate(rows), np.concatenate(targets), rcond=None)[0]
    for clique, table in reconcile_tables(CHAIN, tables, 100.0):
        np.testing.assert_allclose(table.ravel(), maps[clique] @ solution, atol=1e-6)


def test_measurements_of_one_clique_are_one_table_whatever_the_order_of_their_columns():
    domain, rng = Domain({"a": 3, "one": 1, "b": 2}), np.random.default_rng(3)
    first, second = rng.normal(9.0, 2.0, (3, 2)), rng.normal(9.0, 2.0, (2, 1, 3))
    measured = MeasuredClique(
        domain, ("b", "a"), [Measurement(("a", "b"), first, 2.0), Measurement(("b", "one", "a"), second, 1.0)]
    )
    both = first.T, second[:, 0]
    assert measured.weight == 1.25
    np.testing.assert_allclose(measured.mean(), 0.2 * both[0] + 0.8 * both[1])
    table = rng.normal(9.0, 2.0, (2, 3))
    expected = 0.5 * (np.square(table - both[0]).sum() / 4.0 + np.square(table - both[1]).sum())
    assert measured.loss(table) == pytest.approx(expected)
    single = MeasuredClique(domain, (), [Measurement(("one",), [7.0], 2.0)])
    assert single.mean() == 7.0
    assert single.loss(np.array(9.0)) == 0.5


def test_long_warm_started_runs_do_not_freeze():
    # Cells with negative targets are pushed down without end; the fit must go on working round after round.
    rng = np.random.default_rng(0)
    truth = rng.poisson(5.0, CHAIN.shape(CHAIN)) * (rng.random(CHAIN.shape(CHAIN)) < 0.3)
    pairs = [("a", "b"), ("b", "c"), ("a", "c")]
    axes = {("a", "b"): 2, ("b", "c"): 0, ("a", "c"): 1}
    found, model = [], None
    for turn in range(30):
        clique = pairs[turn % 3]
        table = truth.sum(axis=axes[clique]).ravel()
        found.append(Measurement(clique, table + rng.normal(0, 0.5, table.size), 0.5))
        model = estimate(CHAIN, found, total=float(truth.sum()), warm_start=model, tolerance=1e-6)
        assert model.report.converged, (turn, model.report)
    cold = estimate(CHAIN, found, total=float(truth.sum()), tolerance=1e-6)
    assert model.loss == pytest.approx(cold.loss, rel=1e-3)
