from __future__ import annotations

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.measurement import Cell, Measurement
from understudy.model import network
from understudy.model.network import CellTraining, Network, find_worst, fit_network
from understudy.model.relaxed import Targets

DOMAIN = Domain({"a": 2, "b": 3})
TABLE = Measurement(("a", "b"), np.array([40, 5, 5, 0, 10, 40]), 0.5)


def test_the_gradient_is_that_of_the_loss():
    targets = Targets(DOMAIN, [TABLE], None)
    made = Network(DOMAIN, {"a": np.array([0.5, 0.5]), "b": np.array([0.2, 0.3, 0.5])}, noise=3, hidden=4)
    _, gradients = made.loss(targets.loss)
    assert [array.shape for array in gradients] == [array.shape for array in made.parameters]
    rng = np.random.default_rng(0)
    for parameter, gradient in zip(made.parameters, gradients, strict=True):
        way = rng.normal(size=parameter.shape).astype(np.float32)
        losses = []
        for step in (0.002, -0.002):
            parameter += step * way
            losses.append(made.loss(targets.loss)[0])
            parameter -= step * way
        assert (losses[0] - losses[1]) / 0.004 == pytest.approx(float((gradient * way).sum()), rel=0.03, abs=2e-4)


def test_a_dependent_table_is_learned_and_the_same_table_gives_the_same_rows():
    one, other = (fit_network(DOMAIN, [TABLE]) for _ in range(2))
    assert np.abs(one.project(("a", "b")).reshape(-1) - TABLE.values).max() < 2
    assert np.array_equal(one.shares, other.shares)


def test_a_round_goes_on_from_the_network_of_the_round_before():
    first = fit_network(DOMAIN, [TABLE])
    again = fit_network(DOMAIN, [TABLE, Measurement(("a",), np.array([50, 50]), 0.5)], start=first)
    assert again.network is first.network


def test_without_measurements_columns_are_uniform():
    assert np.abs(fit_network(DOMAIN, [], total=6.0).project(("b",)) - 2).max() < 0.05


# -- GEM as published: single cells --


def cell(clique, number, count):
    return Measurement(clique, np.array([count]), 1.0, Cell(clique, number).query(DOMAIN))


CELLS = [cell(("a", "b"), 0, 40), cell(("a", "b"), 5, 45), cell(("b",), 1, 5)]


def test_the_published_network_is_of_width_512_and_1024():
    made = CellTraining(DOMAIN, 2)._network
    assert made._noise.shape[1] == 512
    assert [array.shape for array in made.parameters[:-2:3]] == [(512, 1024), (1536, 1024)]
    assert made.parameters[-2].shape == (2560, 5)


def test_a_step_learns_from_the_worst_cells_of_at_least_half_of_the_average():
    errors = np.array([0.1, 0.5, 0.2, 0.25, 0.24], np.float32)
    assert find_worst(errors, 0.25).tolist() == [1, 3]
    many = np.linspace(0, 1, 300, dtype=np.float32)
    assert find_worst(many, 0.0).tolist() == list(range(299, 199, -1))


def watch_steps(monkeypatch):
    """The steps of Adam, each with its number in its round, and how much of the rate it uses."""
    seen, step = [], network.Adam.step

    def watched(optimiser, gradients, slower=1.0):
        seen.append((optimiser._rate, optimiser._steps, slower))
        step(optimiser, gradients, slower)

    monkeypatch.setattr(network.Adam, "step", watched)
    return seen


def test_a_round_has_a_new_optimiser_whose_rate_falls_along_a_cosine(monkeypatch):
    monkeypatch.setattr(network, "_PAPER_HIDDEN", 8)
    seen = watch_steps(monkeypatch)
    training = CellTraining(DOMAIN, 4)
    for end in (1, 2):
        training.learn(CELLS[:end], 100.0)
    rounds = [i for i, (_, number, _) in enumerate(seen) if number == 0]
    assert len(rounds) == 2
    assert len(seen) <= 200
    assert {rate for rate, *_ in seen} == {1e-4}
    first = [slower for *_, slower in seen[: rounds[1]]]
    assert first == pytest.approx([0.5 + 0.5 * np.cos(np.pi * i / 100) for i in range(len(first))])


def test_the_threshold_follows_the_largest_errors_and_ends_a_round(monkeypatch):
    """Errors of 0.4 and then 0.1: the average is 0.25, so that a cell with an error of 0.1 is not learned from."""
    monkeypatch.setattr(network, "_PAPER_HIDDEN", 8)
    seen = watch_steps(monkeypatch)
    training = CellTraining(DOMAIN, 4)
    uniform = np.full((24, 5), 0.2, np.float32)
    uniform[:, :2], uniform[:, 2:] = 0.5, 1 / 3
    monkeypatch.setattr(training, "rows", lambda: uniform)
    monkeypatch.setattr(
        training._network, "loss", lambda of: (of(uniform)[0], [np.zeros_like(p) for p in training._network.parameters])
    )
    training.learn([cell(("a",), 0, 90)], 100.0)  # 0.5 against 0.9
    assert training._largest == pytest.approx(0.4)
    assert len(seen) == 100
    training.learn([cell(("a",), 0, 60)], 100.0)
    assert training._largest == pytest.approx(0.25)
    assert len(seen) == 100


def test_the_weights_of_the_last_half_of_the_rounds_are_averaged(monkeypatch):
    monkeypatch.setattr(network, "_PAPER_HIDDEN", 8)
    training = CellTraining(DOMAIN, 4)
    kept = []
    for end in (1, 2, 3, 3):
        training.learn(CELLS[:end], 100.0)
        kept.append([array.copy() for array in training._network.parameters])
        if end < 3:
            assert np.array_equal(training.final_rows(), training.rows())
    for mean, third, fourth in zip(training._average, kept[2], kept[3], strict=True):
        assert np.allclose(mean, 0.9 * third + 0.1 * fourth, atol=1e-6)
    training._network.parameters = training._average
    assert np.array_equal(training.rows(), training.final_rows())


def test_training_lowers_the_error_of_measured_cells(monkeypatch):
    monkeypatch.setattr(network, "_PAPER_HIDDEN", 128)
    training = CellTraining(DOMAIN, 10)
    before = np.abs(training.rows()[:, 0] * training.rows()[:, 2]).mean() - 0.4
    for _ in range(5):
        training.learn(CELLS[:1], 100.0)
    after = (training.rows()[:, 0] * training.rows()[:, 2]).mean() - 0.4
    assert abs(after) < 0.8 * abs(before)
