"""Accelerated mirror descent on the potentials, with restarts."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from understudy.model.problem import Problem, Vector
from understudy.model.report import FitReport

_POWER_STEPS = 8
_WINDOW = 20
_MOST_ITERATIONS = 20_000
_SMALLEST_STEP = 1e-12


def minimise(
    problem: Problem,
    *,
    tolerance: float,
    max_seconds: float | None,
    watch: Callable[[int, float], None],
) -> tuple[Vector, FitReport]:
    """The unknowns `x` that minimise the problem's loss, and how it went.

    Mirror descent moves the potentials against the gradient with respect to the *marginals*, `weights * (answers -
    targets)`; Nesterov's momentum makes it fast, and a rise of the loss restarts the momentum.
    """
    begin = time.perf_counter()
    weights, targets = problem.weights, problem.targets
    x = np.zeros(len(targets))
    kept = x.copy()
    answers = problem.answers(x, np.empty(len(targets)))
    loss = problem.loss(answers)
    step = 1.0 / _curvature(problem, x, answers)
    first_step = step
    history = [loss]
    calls, run, warning, converged = 2 + _POWER_STEPS, 0, "", False
    trial_answers = np.empty_like(answers)
    while calls < _MOST_ITERATIONS:
        run += 1
        moved = x - step * (weights * (answers - targets))
        trial = moved + (run - 1) / (run + 2) * (moved - kept)
        problem.answers(trial, trial_answers)
        calls += 1
        trial_loss = problem.loss(trial_answers)
        if not trial_loss <= loss:
            if run <= 10:
                step *= 0.7
            run = 0
            kept = x.copy()
            if step < _SMALLEST_STEP * first_step:
                warning = "the step size collapsed before the loss stopped falling"
                break
            continue
        kept, x = moved, trial
        answers, trial_answers = trial_answers, answers
        loss = trial_loss
        history.append(loss)
        watch(calls, loss)
        if len(history) > _WINDOW and history[-1 - _WINDOW] - loss <= tolerance * loss:
            converged = True
            break
        if max_seconds is not None and time.perf_counter() - begin > max_seconds:
            warning = "the time limit ended it before the loss stopped falling"
            break
    else:
        warning = "the iteration limit ended it before the loss stopped falling"
    gap = (history[max(0, len(history) - 1 - _WINDOW)] - loss) / max(loss, 1e-300)
    return x, FitReport(loss, calls, gap, time.perf_counter() - begin, converged, warning)


def _curvature(problem: Problem, x: Vector, answers: Vector) -> float:
    """The largest eigenvalue of covariance times weights, by power iterations with finite differences."""
    direction = problem.weights * (answers - problem.targets)
    largest = 0.0
    out = np.empty_like(answers)
    for _ in range(_POWER_STEPS):
        size = float(np.abs(direction).max())
        if size == 0.0:
            break
        epsilon = 1e-5 / size
        change = (problem.answers(x + epsilon * direction, out) - answers) / epsilon
        turned = problem.weights * change
        along = float(np.dot(direction, change))
        if along <= 0.0:
            break
        largest = float(np.dot(turned, change)) / along
        direction = turned
    return largest or 1.0
