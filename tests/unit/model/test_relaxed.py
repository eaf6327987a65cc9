from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from understudy.domain import Domain, Forbidden
from understudy.errors import InputError, ReleaseError, SettingError
from understudy.measurement import Cell, Measurement
from understudy.model import relaxed
from understudy.model.generate import generate
from understudy.model.protocol import MODELS
from understudy.model.relaxed import (
    CellAnswers,
    CellProjection,
    RelaxedModel,
    TableLoss,
    clip_shares,
    count_rows,
    fit_relaxed,
    softmax,
    softmax_gradient,
)
from understudy.schema import Recoding

DOMAIN = Domain({"a": 3, "b": 2, "c": 4})
WEIGHTS = np.array([0.5, 0.3, 0.2])


def rows_of(domain=DOMAIN, count=3, seed=1):
    logits = np.random.default_rng(seed).normal(size=(count, sum(domain.values()))).astype(np.float32)
    return softmax(domain, logits)


def joint(shares, weights):
    """The table of all cells, by definition: the mean of products."""
    a, b, c = np.split(shares.astype(np.float64), [3, 5], axis=1)
    return np.einsum("k,ka,kb,kc->abc", weights, a, b, c)


def measured(table, cliques, sigma=1.0):
    for clique in cliques:
        away = tuple(axis for axis, column in enumerate("abc") if column not in clique)
        yield Measurement(clique, table.sum(axis=away).reshape(-1), sigma)


def test_pairs_of_a_2x2x2_table_without_noise_are_matched_to_a_thousandth():
    table = 1000 * np.array([[[0.3, 0.02], [0.08, 0.1]], [[0.05, 0.15], [0.1, 0.2]]])
    domain = Domain({"a": 2, "b": 2, "c": 2})
    exact = list(measured(table, combinations("abc", 2), sigma=0.05))
    model = fit_relaxed(domain, exact)
    assert model.total == pytest.approx(1000)
    for one in exact:
        assert np.abs(model.project(one.clique).reshape(-1) - one.values).max() < 1.0


@pytest.mark.parametrize("clique", [(), ("b",), ("c", "a"), ("c", "b", "a")])
def test_a_projection_is_the_mean_of_products(clique):
    shares = rows_of()
    whole = joint(shares, WEIGHTS)
    away = tuple(axis for axis, column in enumerate("abc") if column not in clique)
    kept = [column for column in "abc" if column in clique]
    expected = 10 * whole.sum(axis=away).transpose([kept.index(column) for column in clique])
    found = RelaxedModel(DOMAIN, 10.0, shares, WEIGHTS).project(clique)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(3)
    tables = {
        clique: (rng.dirichlet(np.ones(DOMAIN.cells(clique))).reshape(DOMAIN.shape(clique)), np.array(weight))
        for clique, weight in ((("a",), 1.0), (("b", "c"), 0.5), (("a", "b", "c"), 2.0))
    }
    loss = TableLoss(DOMAIN, tables)
    logits = rng.normal(size=(2, 9)).astype(np.float32)
    shares = softmax(DOMAIN, logits)
    gradient = softmax_gradient(DOMAIN, shares, loss(shares)[1])
    for place in np.ndindex(logits.shape):
        step = np.zeros_like(logits)
        step[place] = 0.02
        slope = (loss(softmax(DOMAIN, logits + step))[0] - loss(softmax(DOMAIN, logits - step))[0]) / 0.04
        assert slope == pytest.approx(gradient[place], abs=2e-5)


def test_rows_are_drawn_as_the_model_says_and_again():
    model = RelaxedModel(DOMAIN, 10.0, rows_of(), WEIGHTS)
    rows, again = (model.sample(20_000, np.random.default_rng(2)) for _ in range(2))
    assert all(np.array_equal(rows[column], again[column]) for column in DOMAIN)
    counts = np.zeros((3, 2, 4))
    np.add.at(counts, tuple(rows[column] for column in "abc"), 1)
    assert np.abs(counts / 20_000 - model.project(("a", "b", "c")) / 10).max() < 0.01


def test_conditioning_is_bayes_rule():
    shares = rows_of()
    whole = joint(shares, WEIGHTS)
    given = RelaxedModel(DOMAIN, 10.0, shares, WEIGHTS).condition({"a": 2, "c": np.array([1.0, 0.5, 0.0, 0.0])})
    expected = 10 * (whole[2] * [1.0, 0.5, 0.0, 0.0]).sum(axis=1)
    np.testing.assert_allclose(given.project(("b",)), expected, rtol=1e-5)
    assert given.total == pytest.approx(expected.sum())
    with pytest.raises(InputError, match="cannot occur"):
        given.condition({"c": 3})


def test_rules_hold_in_every_row_and_table_even_where_relaxed_rows_ignore_them():
    mask = np.ones((3, 4), np.bool_)
    mask[0, 0] = mask[1, 2] = False
    domain = Domain(dict(DOMAIN), [Forbidden(("a", "c"), lambda: mask)])
    model = RelaxedModel(domain, 10.0, rows_of(domain), WEIGHTS)
    rows = model.sample(5000, np.random.default_rng(0))
    assert not mask[rows["a"], rows["c"]].any()
    found = model.project(("c", "b", "a"))
    assert not found.transpose(2, 0, 1)[mask].any()
    assert found.sum() == pytest.approx(10)
    with pytest.raises(SettingError, match="the schema has rules"):
        model.condition({"a": 0})


def test_fitted_rows_learn_a_rule_that_no_table_covers():
    mask = ~np.eye(3, dtype=np.bool_)
    domain = Domain({"a": 3, "b": 3}, [Forbidden(("a", "b"), lambda: mask)])
    counts = np.array([50, 30, 20])
    model = fit_relaxed(domain, [Measurement((column,), counts, 1.0) for column in "ab"])
    free = RelaxedModel(Domain(dict(domain)), model.total, model.shares)
    assert free.project(("a", "b"))[mask].sum() < 5
    np.testing.assert_allclose(np.diag(model.project(("a", "b"))), counts, atol=3)


def test_the_generator_makes_the_same_model_of_the_same_measurements():
    exact = list(measured(100 * joint(rows_of(), WEIGHTS), [("a", "b"), ("c",)]))
    one, other = (generate("rap", DOMAIN, exact, recoding=Recoding.identity()) for _ in range(2))
    assert (one.generator.name, one.model.kind) == ("rap", "relaxed")
    assert np.array_equal(one.model.shares, other.model.shares)


def test_no_measurement_gives_uniform_columns():
    model = fit_relaxed(DOMAIN, [], total=12)
    assert np.abs(model.project(("c",)) - 3).max() < 0.05


def test_wide_domains_have_fewer_rows():
    assert count_rows(Domain({"a": 2, "b": 3})) == 24
    assert count_rows(Domain({"a": 100, "b": 100})) == relaxed._ROWS == 1000
    assert count_rows(Domain({"a": 100_000, "b": 100})) == 83


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays: arrays.pop("weights"),
        lambda arrays: arrays.update(shares=arrays["shares"][:, 1:]),
        lambda arrays: arrays.update(shares=-arrays["shares"]),
        lambda arrays: arrays.update(shares=2 * arrays["shares"]),
        lambda arrays: arrays.update(weights=arrays["weights"] / 2),
        lambda arrays: arrays.update(total=np.array(np.nan)),
    ],
)
def test_a_damaged_file_is_refused(damage):
    arrays = RelaxedModel(DOMAIN, 10.0, rows_of(), WEIGHTS).to_arrays()
    assert np.array_equal(MODELS["relaxed"].from_arrays(DOMAIN, arrays).shares, rows_of())
    damage(arrays)
    with pytest.raises(ReleaseError, match="damaged"):
        MODELS["relaxed"].from_arrays(DOMAIN, arrays)


# -- RAP as published: single cells --


def cell(clique, number, count=10):
    return Measurement(clique, np.array([count]), 1.0, Cell(clique, number).query(DOMAIN))


CELLS = [cell(("a", "c"), 5), cell(("b",), 1, 40), cell(("a", "b", "c"), 23), cell(("c", "a"), 7), cell(("a", "c"), 4)]


def test_the_answer_to_a_cell_is_the_mean_product_of_its_probabilities():
    shares = rows_of(count=7)
    table = joint(shares, np.full(7, 1 / 7))
    expected = [table.sum(1)[1, 1], table.sum((0, 2))[1], table[2, 1, 3], table.sum(1)[1, 2], table.sum(1)[1, 0]]
    assert CellAnswers(DOMAIN, CELLS).answers(shares) == pytest.approx(expected, rel=1e-5)


def test_the_gradient_of_cells_is_that_of_their_answers():
    shares, pull = rows_of(count=4), np.array([1.0, -2.0, 3.0, 0.5, 1.5], np.float32)
    answers = CellAnswers(DOMAIN, CELLS)
    found = answers.gradient(shares, pull)
    for place in np.ndindex(shares.shape):
        moved = [shares.copy(), shares.copy()]
        moved[0][place] += 0.01
        moved[1][place] -= 0.01
        slope = float(pull @ (answers.answers(moved[0]) - answers.answers(moved[1]))) / 0.02
        assert found[place] == pytest.approx(slope, abs=2e-5)


def test_noisy_shares_are_clipped():
    cells = [cell(("b",), 0, -3), cell(("b",), 1, 20), cell(("b",), 1, 130)]
    assert clip_shares(cells, 100.0) == pytest.approx([0.0, 0.2, 1.0])


def test_what_is_not_a_single_cell_is_refused():
    with pytest.raises(InputError, match="not of a single cell"):
        CellAnswers(DOMAIN, [Measurement(("b",), np.array([1, 2]), 1.0)])


def test_a_projection_fits_cells_and_ends_below_1e_8(monkeypatch):
    seen, step = [], relaxed.Adam.step

    def watched(optimiser, gradients, slower=1.0):
        seen.append((optimiser._rate, slower))
        step(optimiser, gradients, slower)

    monkeypatch.setattr(relaxed.Adam, "step", watched)
    projection = CellProjection(DOMAIN)
    projection.learn(CELLS, 100.0)
    assert CellAnswers(DOMAIN, CELLS).answers(projection.rows()) == pytest.approx([0.1, 0.4, 0.1, 0.1, 0.1], abs=1e-4)
    assert len(seen) < 5000
    assert set(seen) == {(0.1, 1.0)}
    first = len(seen)
    projection.learn(CELLS, 100.0)  # nothing is left to do
    assert len(seen) == first


def test_a_projection_ends_after_five_checks_without_a_smaller_loss(monkeypatch):
    """Two answers to one cell that contradict each other: the loss soon stops falling, far above 1e-8."""
    steps, step = [], relaxed.Adam.step
    monkeypatch.setattr(relaxed.Adam, "step", lambda *given: steps.append(1) or step(*given))
    projection = CellProjection(DOMAIN)
    projection.learn([cell(("b",), 0, 20), cell(("b",), 0, 40)], 100.0)
    assert CellAnswers(DOMAIN, [cell(("b",), 0)]).answers(projection.rows()) == pytest.approx([0.3], abs=1e-3)
    assert 250 <= len(steps) < 5000
