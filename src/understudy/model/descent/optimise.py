"""Accelerated mirror descent on the potentials, first in softened metrics when the signal is strong.

Moving the potentials against `weights * (answers - targets)` is mirror descent on the loss, and at the same time
gradient descent on the likelihood in the metric of the weights; the momenta of the optimised gradient method (Kim and
Fessler) accelerate it. Its step is limited by the largest cells (count times weight), its progress by the smallest.
With a strong signal these are 1e4 apart, so the first stages use a metric that caps count times weight: the many
small cells settle in long steps. The true metric then corrects the few large ones, its stiffest directions shortened.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from understudy.model.descent.metric import Stride, metric_at
from understudy.model.descent.problem import Numbers, Problem
from understudy.model.descent.start import cold_potentials
from understudy.model.kernels.arguments import Weights
from understudy.model.report import FitReport

_SOFTENED = (  # cap relative to the curvature, iterations
    *((1 / 3_000_000, 80), (1 / 300_000, 80)),
    *((1 / 30_000, 60), (1 / 4_000, 70), (1 / 600, 18)),
)
_SMALLEST_CAP = 0.1  # of count times weight: below it there is nothing to soften
_DIRECTIONS = 12  # stiff ones that are shortened
_ROUGHLY = 0.05  # relative error of the curvature from a cold start; a warm residual may hide the largest eigenvalue
_SHRINK, _YOUNG = 0.7, 30  # the step, when the loss rises within so many iterations of a restart
_LEVEL = 1e-5  # of the tolerance: a rise of the loss that may be rounding
_WINDOW = 10
_PATIENCE = 10.0  # windows to come that may gain as much as the last: momentum is slow to build after a warm start
_BUILDING = 3.0  # times the root of the curvature: iterations in which it builds for what moves slowest
_MOST_CALLS = 20_000
_SMALLEST_STEP = 1e-9
_TRUSTED = 4  # restarts in a shortened metric
_SAME = 1e-6  # relative difference between linear and log domain that does not matter


def minimise(
    problem: Problem,
    *,
    warm: Numbers | None = None,
    tolerance: float,
    max_seconds: float | None,
    watch: Callable[[int, float], None],
) -> tuple[Numbers, FitReport]:
    """The unknowns `x` that minimise the problem's loss, and how it went.

    Starts from `warm`, which it writes over, if that is better than starting cold.
    Stops when the loss that is still to be gained, as the momentum's 1/k^2 law predicts it from the last
    iterations, is below `tolerance` times the loss.
    """
    deadline = None if max_seconds is None else time.perf_counter() + max_seconds
    descent = _Descent(problem, tolerance, deadline, watch)
    descent.begin(warm)
    del warm  # as long as `x`, and of no more use
    if descent.cold:
        descent.soften()
    descent.settle()
    if stuck := descent.stuck():
        descent.begin(None)
        descent.settle()
        stuck = descent.stuck()
    if descent.underflowed() and not descent.warning:
        problem.logs = True
        descent.refresh()
        descent.settle()
        stuck = descent.stuck()
    if stuck and not descent.warning:
        descent.warning = "a better fit exists that the descent did not find"
    return descent.x, descent.report()


@dataclass
class _Descent:
    """Where the descent is: at `x`, whose answers are in the oracle's room.

    A trial takes the place of `x`. If it is refused, the descent goes on from where the plain step alone led.
    """

    problem: Problem
    tolerance: float
    deadline: float | None
    watch: Callable[[int, float], None]
    warning: str = ""
    converged: bool = False
    shifted: bool = False
    gap: float = np.inf
    length: int = 0
    patience: float = _PATIENCE
    begun: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.x = self.problem.new_unknowns()
        self.cold = True

    def begin(self, warm: Numbers | None) -> None:
        """Go to the cold start, or to the warm one if it is better."""
        self.warning, self.cold = "", True
        cold_potentials(self.problem, self.x)
        self.refresh()
        if warm is not None:
            loss = self.loss()
            self.cold = not self.problem.loss(self.problem.answers(warm)) <= loss
            if self.cold:
                self.refresh()
            else:
                self.x = warm

    def refresh(self) -> None:
        """The answers at `x`, computed again."""
        self.problem.answers(self.x)

    def loss(self) -> float:
        """The loss at `x`."""
        return self.problem.loss(self.problem.room)

    def soften(self) -> None:
        """Stages in metrics that cap count times weight, from the smallest cap up."""
        from understudy.model.kernels.descent import soften

        problem, room = self.problem, self.problem.room
        stiffness = metric_at(problem, self.x, problem.weights, 0, enough=_ROUGHLY).curvature
        for share, iterations in _SOFTENED:
            if share * stiffness >= _SMALLEST_CAP:
                factors = np.empty(len(room), np.uint8)
                soften(problem.weights, room, problem.targets, share * stiffness, factors)
                self.run(problem.weights.softened(factors), iterations, 0)

    def settle(self) -> None:
        """Descend in the true metric: with the stiff directions shortened, and without if that moved the minimum."""
        self.run(self.problem.weights, _MOST_CALLS, _DIRECTIONS)
        if self.shifted and not self.warning:
            self.run(self.problem.weights, _MOST_CALLS, 0, least=0 if self.converged else self.cold * self.length)

    def run(self, weights: Weights, iterations: int, directions: int, *, least: int = 0) -> None:
        """Accelerated descent in one metric, until its own loss stops falling or the iterations are used up.

        After fewer than the `least` iterations a loss that hardly falls proves nothing: where a longer step was given
        up in the middle, momentum must build again, in as many shorter ones.
        """
        targets, room, constant = self.problem.targets, self.problem.room, self.problem.constant
        final = weights is self.problem.weights
        metric = metric_at(self.problem, self.x, weights, directions, enough=0.0 if final else _ROUGHLY)
        step = first_step = 1.0 / metric.curvature
        self.patience = max(_PATIENCE, self.cold * _BUILDING * metric.curvature**0.5 / _WINDOW)
        loss, parts = metric.measure(room, targets)
        loss += constant
        beyond = np.zeros(len(self.x), np.float32)
        history, age, cycle, restarts, momentum = [loss], 0, 0, 0, 1.0
        self.converged = self.shifted = False
        for _ in range(iterations):
            if self._must_stop():
                break
            age, last, momentum = age + 1, momentum, (1.0 + (1.0 + 4.0 * momentum**2) ** 0.5) / 2.0
            stride = Stride(step, (last - 1.0) / momentum, last / momentum)
            metric.descend(self.x, beyond, room, targets, parts, by=stride)
            self.refresh()
            before, (loss, parts) = loss, metric.measure(room, targets)
            loss += constant
            if not loss <= before + _LEVEL * self.tolerance * before:
                self.x -= beyond
                beyond[:] = 0.0
                self.refresh()
                loss, parts = metric.measure(room, targets)
                loss += constant
                step *= _SHRINK if age <= _YOUNG else 1.0
                age, cycle, momentum = 0, age, 1.0
                restarts += 1
                if len(parts) and restarts > _TRUSTED:  # the eigenvalues do not hold here: go on without
                    self.shifted, self.length = True, len(history)
                    break
                if step < _SMALLEST_STEP * first_step:
                    self.converged = self._flat(history, loss, _WINDOW) or self._at_rest(first_step)
                    failed = final and not self.converged
                    self.warning = "the step size collapsed before convergence" if failed else ""
                    break
            history.append(loss)
            left_out = 0.5 * float(np.sum(metric.shortened * parts * parts))
            self.watch(self.problem.propagation.calls, loss + left_out if final else self.loss())
            window = _WINDOW if age >= 2 * _WINDOW else cycle + age
            if len(history) > least and self._flat(history, loss, window):
                self.converged = True
                self.shifted = left_out > 0.1 * self.tolerance * loss
                break
        else:
            if final:
                self.warning = "the iteration limit was reached before convergence"

    def stuck(self) -> bool:
        """Whether moving part of the way to the cold start's distribution would help: then this is no minimum.

        The loss along that line is a parabola known in full. A distribution that has come to rest on few cells hardly
        answers to its potentials, so a loss that has stopped falling does not prove a minimum; this disproves it.
        """
        from understudy.model.kernels.descent import parabola

        problem, loss = self.problem, self.loss()
        others = problem.answers(cold_potentials(problem, problem.new_unknowns())).astype(np.float32)
        self.refresh()
        slope, bend = map(float, parabola(problem.weights, problem.room, problem.targets, others))
        if not slope < 0.0 < bend:
            return False
        share = min(1.0, -slope / bend)
        gain = -slope * share - 0.5 * bend * share**2
        return gain > max(self.tolerance, 1e-3) * loss + self.problem.nothing

    def underflowed(self) -> bool:
        """Whether the linear domain lost something that the log domain keeps."""
        from understudy.model.kernels.propagation import TINY

        if self.problem.logs:
            return False
        self.refresh()
        if self.problem.propagation.in_logs or self.problem.propagation.smallest_message >= TINY:
            return False
        linear = self.problem.room.copy()
        linear -= self.problem.answers(self.x, logs=True)
        return float(np.abs(linear, out=linear).max()) > _SAME * self.problem.total

    def report(self) -> FitReport:
        """How it went."""
        seconds = time.perf_counter() - self.begun
        calls = self.problem.propagation.calls
        return FitReport(self.loss(), calls, self.gap, seconds, self.converged and not self.warning, self.warning)

    def _flat(self, history: list[float], loss: float, window: int) -> bool:
        """Whether the loss left to gain is negligible.

        By the 1/k^2 law that is the gain of the last ten iterations times k/20, and the gain of the last k/2 iterations
        divided by 3. The law does not hold early on: after softened stages the loss rests for a while, until momentum
        has built up along what moves slowest. So the last ten may be followed by many as good. From a warm start, which
        rounds of a mechanism take, it is enough to look at the last ten. Soon after a restart the iterations before it
        count too.
        """
        if loss <= self.problem.nothing:
            self.gap = 0.0
            return True
        if len(history) <= window or window < _WINDOW:
            return False
        windows = max(self.patience, len(history) / (2 * _WINDOW))
        lately = abs(history[-1 - window] - loss) * _WINDOW / window * windows
        self.gap = max(lately, self.cold * (history[len(history) // 2] - loss) / 3.0) / loss
        return self.gap <= self.tolerance

    def _at_rest(self, step: float) -> bool:
        """Whether no step along the true gradient, long or short, gains anything to speak of: the floor of rounding."""
        from understudy.model.kernels.descent import descend

        problem, loss = self.problem, self.loss()
        for part in (1.0, 0.1, 0.01):
            self.refresh()
            x, beyond = self.x.copy(), np.zeros(len(self.x), np.float32)
            descend(x, beyond, problem.weights, problem.room, problem.targets, part * step, 0.0, 0.0)
            if problem.loss(problem.answers(x)) < (1.0 - 1e-3 * self.tolerance) * loss:
                return False
        return True

    def _must_stop(self) -> bool:
        if self.deadline is not None and time.perf_counter() > self.deadline:
            self.warning = "the time limit was reached before convergence"
        return bool(self.warning)
