import gc
import tracemalloc

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model import JunctionTree, estimate
from understudy.model.kernels.arguments import CHUNK, Basis
from understudy.model.kernels.descent import (
    change,
    descend,
    go_back,
    half_squares,
    parts,
    probe,
    rotate,
    store,
    subtract,
)

CELLS = 3 * CHUNK + 5


def vectors(*names):
    rng = np.random.default_rng(0)
    return [rng.normal(0.0, 30.0, CELLS) for _ in names]


def basis_of(rows, weights):
    basis = Basis.empty(len(rows), CELLS)
    for k, row in enumerate(rows):
        store(basis, k, weights, row.copy(), 1.0)
    return basis


def dense(basis):
    return basis.codes * np.repeat(basis.scales, CHUNK, axis=1)[:, :CELLS]


def test_a_basis_keeps_four_digits_of_its_largest_cell_in_every_chunk():
    rows = np.random.default_rng(1).normal(0.0, 1.0, (2, CELLS)) * np.logspace(-9, 3, CELLS)
    found = dense(basis_of(rows, np.ones(CELLS)))
    tops = np.repeat(
        [[np.abs(row[i : i + CHUNK]).max() for i in range(0, CELLS, CHUNK)] for row in rows], CHUNK, axis=1
    )
    assert (np.abs(found - rows) <= 0.51 / 32767 * tops[:, :CELLS]).all()


def test_cells_without_weight_do_not_coarsen_a_direction():
    weights, row = np.ones(CELLS), np.full(CELLS, 1e-6)
    weights[7], row[7] = 0.0, 1e9
    found = dense(basis_of([row], weights))[0]
    assert found[7] == 0.0
    np.testing.assert_allclose(np.delete(found, 7), 1e-6)


def test_storing_scales_a_direction_and_says_how_far_it_moves_a_potential():
    row, weights = vectors("row")[0], np.random.default_rng(6).uniform(0.1, 1.0, CELLS)
    basis, scaled = Basis.empty(1, CELLS), row.copy()
    furthest = store(basis, 0, weights, scaled, 5.0)
    np.testing.assert_allclose(scaled, row / 5.0)
    np.testing.assert_allclose(dense(basis)[0], row / 5.0, atol=1e-4 * np.abs(scaled).max())
    assert furthest == pytest.approx(np.abs(weights * row / 5.0).max())


def test_a_probe_and_what_it_tells():
    x, vector, answers, out = vectors("x", "vector", "answers", "out")
    weights = np.random.default_rng(6).uniform(0.1, 1.0, CELLS)
    probe(x, weights, vector, 0.25, out)
    np.testing.assert_allclose(out, x + 0.25 * weights * vector)
    change(out, answers, 0.25)
    np.testing.assert_allclose(out, (x + 0.25 * weights * vector - answers) / 0.25)


def test_the_passes_over_a_basis_are_matrix_products():
    answers, targets, *rows = vectors("answers", "targets", "a", "b", "c")
    weights = np.random.default_rng(2).uniform(0.1, 1.0, CELLS)
    basis = basis_of(rows, weights)
    matrix, found = dense(basis), np.empty(3)
    squares = parts(basis, weights, answers, targets, found)
    np.testing.assert_allclose(found, matrix @ (weights * (answers - targets)))
    assert squares == pytest.approx(half_squares(weights, answers, targets))
    assert squares == pytest.approx(0.5 * np.sum(weights * (answers - targets) ** 2))
    assert half_squares(weights, answers, None) == pytest.approx(0.5 * np.sum(weights * answers**2))
    left = answers.copy()
    subtract(basis, found, left)
    np.testing.assert_allclose(left, answers - found @ matrix)
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0][:, :2].copy()
    rotate(basis, turn)
    np.testing.assert_allclose(dense(basis.first(2)), turn.T @ matrix, atol=1e-4 * np.abs(matrix).max())


def test_a_step_and_the_way_back():
    x, kept, answers, targets, row = vectors("x", "kept", "answers", "targets", "row")
    weights, less = np.full(CELLS, 0.1), np.array([0.5])
    basis = basis_of([row], weights)
    before, old = x.copy(), kept.copy()
    step = (x, kept, answers, targets, weights, 0.01, basis, less)
    descend(*step, (0.3, 0.6))
    moved = before - 0.01 * weights * (answers - targets - 0.5 * dense(basis)[0])
    np.testing.assert_allclose(kept, moved)
    np.testing.assert_allclose(x, moved + 0.3 * (moved - old) + 0.6 * (moved - before))
    go_back(*step)
    np.testing.assert_allclose(x, before, rtol=1e-13)
    assert np.array_equal(x, kept)


@pytest.mark.parametrize("sigma", [1e-9, 1e9, 1e30])
def test_extreme_sigmas_break_nothing(sigma):
    domain = Domain({"a": 3, "b": 4, "c": 2})
    rng = np.random.default_rng(4)
    tables = {clique: rng.dirichlet(np.ones(domain.cells(clique))) * 1e3 for clique in [("a", "b"), ("b", "c")]}
    measurements = [Measurement(c, t + rng.normal(0.0, sigma, t.size), sigma) for c, t in tables.items()]
    model = estimate(domain, measurements, total=1e3)
    assert np.isfinite(model.loss)
    assert model.report.converged, model.report


def most_memory(domain, cliques):
    """In bytes, while estimating; the loops were loaded before."""
    rng = np.random.default_rng(5)
    found = [
        Measurement(c, rng.poisson(3.0, domain.cells(c)) + rng.normal(0.0, 1.0, domain.cells(c)), 1.0) for c in cliques
    ]
    small = Domain({"a": 5, "b": 6})
    estimate(small, [Measurement(("a", "b"), rng.normal(30.0, 5.0, 30), 1.0)])
    gc.collect()
    tracemalloc.start()
    model = estimate(domain, found, tolerance=0.5)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most, model.tree.cells


def test_memory_where_the_measured_tables_are_the_tree():
    domain = Domain({"a": 120, "b": 120, "c": 120})
    cliques = [("a", "b"), ("b", "c")]
    most, cells = most_memory(domain, cliques)
    assert cells == sum(domain.cells(clique) for clique in cliques)
    assert most < 13.5 * 8 * cells  # 12.8; one vector more would not fit


def test_memory_is_less_than_one_tree_where_the_tree_is_much_larger():
    domain = Domain({"a": 60, "b": 60, "c": 60})
    most, cells = most_memory(domain, [("a", "b"), ("b", "c"), ("a", "c")])
    assert cells == JunctionTree.of(domain, [("a", "b", "c")]).cells
    assert most < 8 * cells
