"""The metric of the descent: weights, with the stiffest directions shortened.

A step is limited by the largest eigenvalue of covariance times weights. A dozen eigenvalues stand far above the rest:
the main effects that many measured tables share, and the largest cells. Shortening the metric along their
eigenvectors allows steps several times as long, and hardly moves the minimum: where the descent comes to rest, the
residual has no part along a direction that the model can follow.

A stiff direction is in proportion to the counts, so nearly all of it lies on the few cells where most people are: on
one in 128 it has 98 to 99.9 % of its square. The search keeps to these.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.model.kernels.arguments import Basis, Directions, Weights
from understudy.model.problem import Numbers, Problem, Vector, cold_potentials
from understudy.model.protocol import FitReport

_DIFFERENCE = 1e-5  # of a potential, at a probe
_COARSER = 1e-4  # where the answers before it are known in single precision
_MORE_STEPS = 8
_FEW, _SHARE = 1024, 128  # cells that directions lie on: so many, or one in so many if that is more
_SETTLED = 0.3  # an eigenvalue counts as found when its error is below this part of it
_SHORTEST = 1 / 16  # eigenvalues are brought down to this part of the largest at most
_FURTHEST = 1e6  # that a step may move a potential: undoing a longer one would lose digits
_LONGEST = 0.5  # of a step's change of a potential, while shortening is trusted: eigenvalues hold nearby only


class Stride(NamedTuple):
    """How long a step is, and the two momenta: along the way so far, and over the plain step."""

    step: float
    along: float
    over: float


@dataclass
class Metric:
    """Weights, less `shortened` of each stiff direction; all of it as the oracle is near `x`.

    Attributes:
        weights: the diagonal.
        curvature: the largest eigenvalue of covariance times metric.
        stiff: directions, orthogonal in the inner product of the weights; their values are weighted already.
        shortened: how much of each direction is taken off.
    """

    weights: Weights
    curvature: float
    stiff: Directions
    shortened: Vector

    def measure(self, answers: Vector, targets: Numbers) -> tuple[float, Vector]:
        """Half the squared residual in this metric, and the residual's part along each stiff direction."""
        from understudy.model.kernels.descent import half_squares, parts

        found = np.empty(len(self.shortened))
        places = self.stiff.places
        parts(self.stiff.rows, answers[places] - targets[places], found)
        squares = half_squares(self.weights, answers, targets)
        return float(squares - 0.5 * np.sum(self.shortened * found * found)), found

    def descend(
        self, x: Numbers, beyond: NDArray[np.float32], answers: Vector, targets: Numbers, found: Vector, *, by: Stride
    ) -> None:
        """Move `x`, whose answers these are, one accelerated step; `found` is what `measure` told.

        `beyond` is how far the last such step went beyond a plain one, and afterwards how far this one did.
        """
        from understudy.model.kernels.descent import descend, subtract

        descend(x, beyond, self.weights, answers, targets, *by)
        if len(found):
            less, places = np.zeros(len(self.stiff.places)), self.stiff.places
            subtract(self.stiff.rows, by.step * self.shortened * found, less)
            x[places] -= (1.0 + by.along + by.over) * less
            beyond[places] -= (by.along + by.over) * less


def metric_at(problem: Problem, x: Numbers, weights: Weights, directions: int, *, enough: float = 0.0) -> Metric:
    """The metric of these weights at `x`, shortened along at most this many directions: Lanczos' method.

    The oracle's room must hold the answers at `x`, and does so again afterwards. Costs a call of the oracle for each
    direction and nine more, or fewer where the curvature is `enough` when known to that part of it.
    """
    from understudy.model.kernels.descent import extremes

    expected, leap = extremes(weights, problem.room, problem.targets, problem.total)
    found = _shortened(problem, x, weights, directions, expected, leap) if directions else None
    if found is None:
        found = _plain(weights, _largest_eigenvalue(problem, x, weights, enough), expected, leap)
    return found


def _plain(weights: Weights, largest: float, expected: float, leap: float) -> Metric:
    """The metric of the weights alone; the curvature is at least what the targets and the longest step ask for."""
    nowhere = Directions(np.empty(0, np.int64), np.empty((0, 0)))
    return Metric(weights, max(largest, expected, leap / _FURTHEST) or 1.0, nowhere, np.empty(0))


def _shortened(
    problem: Problem, x: Numbers, weights: Weights, directions: int, expected: float, leap: float
) -> Metric | None:
    """The metric with stiff directions shortened, if they can be trusted; None where not even the largest was found."""
    places = _heaviest(weights, problem.room)
    eigenvalues, errors, vectors, rows = _stiffest(problem, x, weights, places, directions + _MORE_STEPS)
    settled = errors <= _SETTLED * eigenvalues
    if not settled[-1:].any():
        return None
    largest = float(eigenvalues[-1])
    found = settled & (eigenvalues > _SHORTEST * max(largest, expected, leap / _FURTHEST))
    order = [k for k in np.argsort(-eigenvalues) if found[k]][:directions]
    if not order or largest < 0.8 * expected or leap > _LONGEST * eigenvalues[order[-1]]:
        return _plain(weights, largest, expected, leap)
    curvature = float(eigenvalues[order[-1]])
    turned = np.einsum("jk,ji->ki", vectors[:, order[:-1]], rows)
    turned *= weights.at(places)
    return Metric(weights, curvature, Directions(places, turned), 1.0 - curvature / eigenvalues[order[:-1]])


def _heaviest(weights: Weights, answers: Vector) -> NDArray[np.int64]:
    """Where stiff directions have most of their length: the answers that are large in units of their noise."""
    few = min(len(answers), max(_FEW, len(answers) // _SHARE))
    tables = [slice(*ends) for ends in itertools.pairwise([0, *weights.ends.tolist()])]
    sizes = np.empty(len(answers), np.float32)
    for table, weight in zip(tables, weights.each, strict=True):
        sizes[table] = _in_noise(answers[table], weight)
    sizes.partition(len(sizes) - few)
    least = sizes[len(sizes) - few]
    del sizes
    found = [
        table.start + np.flatnonzero(_in_noise(answers[table], weight) >= least)
        for table, weight in zip(tables, weights.each, strict=True)
    ]
    return np.concatenate(found)[:few]


def _in_noise(answers: Vector, weight: float) -> NDArray[np.float32]:
    sizes: NDArray[np.float32] = np.abs(answers, dtype=np.float32)
    sizes *= np.float32(math.sqrt(weight))
    return sizes


def _stiffest(
    problem: Problem, x: Numbers, weights: Weights, places: NDArray[np.int64], steps: int
) -> tuple[Vector, Vector, Vector, Vector]:
    """Eigenvalues of covariance times weights, estimates of their errors, eigenvectors in a basis, and the basis.

    All vectors are 0 but for these places; an image's part elsewhere is left out, and counts as an error.
    """
    from understudy.model.kernels.descent import half_squares, parts, subtract

    mine, base = weights.at(places), problem.room[places]
    around = problem.room.astype(np.float32)
    rows = np.empty((steps, len(places)))
    diagonal: list[float] = []
    beside: list[float] = []
    outside: list[float] = []
    eigenpairs = np.empty(0), np.empty(0), np.empty((0, 0))
    image = base - problem.targets[places]
    size = math.sqrt(np.sum(mine * image**2))
    for step in range(steps):
        if not 1e-8 * max(diagonal, default=0.0) < size < math.inf:
            break
        if step:
            beside.append(size)
        np.divide(image, size, out=rows[step])
        change = mine * rows[step]
        epsilon = _DIFFERENCE / float(np.abs(change).max())
        change *= epsilon
        found = problem.answers(x, moved=partial(_add, places, change))
        image = (found[places] - base) / epsilon
        everywhere = 2.0 * half_squares(weights, found, around) / epsilon**2
        outside.append(math.sqrt(max(0.0, everywhere - np.sum(mine * image**2))))
        parallel = np.empty(step + 1)
        for again in (False, True):  # once leaves errors that the next steps would enlarge
            parts(rows, mine * image, parallel)
            subtract(rows, parallel, image)
            if not again:
                diagonal.append(float(parallel[-1]))
        size = math.sqrt(np.sum(mine * image**2))
        eigenpairs = _eigenpairs(diagonal, beside, size)
    problem.answers(x)
    eigenvalues, errors, vectors = eigenpairs
    elsewhere = np.sqrt(np.square(outside) @ vectors**2) if outside else errors
    return eigenvalues, np.hypot(errors, elsewhere), vectors, rows[: len(diagonal)]


def _add(places: NDArray[np.int64], change: Vector, vector: Vector) -> None:
    vector[places] += change


def _largest_eigenvalue(problem: Problem, x: Numbers, weights: Weights, enough: float) -> float:
    """The largest eigenvalue of covariance times weights.

    Each image is made orthogonal to the last two alone, which is all the theory asks for, no others are kept, and the
    search ends when an eigenvalue is known well enough: the largest, if the residual has much of its direction.
    """
    from understudy.model.kernels.descent import change, half_squares, part_along, shift, store, take_off

    basis = Basis.empty(2, len(x))
    diagonal: list[float] = []
    beside: list[float] = []
    eigenvalues = np.zeros(1)
    answers, image = problem.room.astype(np.float32), problem.room
    change(image, problem.targets, 1.0)
    size = math.sqrt(2.0 * half_squares(weights, image, None))
    for step in range(_MORE_STEPS):
        if not 1e-8 * max(diagonal, default=0.0) < size < math.inf:
            break
        if step:
            beside.append(size)
        epsilon = _COARSER / store(basis, step % 2, weights, image, size)
        image = problem.answers(x, moved=partial(shift, weights, basis, step % 2, epsilon))
        change(image, answers, epsilon)
        diagonal.append(float(part_along(basis, step % 2, weights, image)))
        take_off(basis, step % 2, diagonal[-1], image)
        if step:
            take_off(basis, (step + 1) % 2, size, image)
        size = math.sqrt(2.0 * half_squares(weights, image, None))
        eigenvalues, errors, _ = _eigenpairs(diagonal, beside, size)
        if errors[-1] <= enough * eigenvalues[-1]:
            break
    problem.answers(x)
    return float(eigenvalues[-1])


def _eigenpairs(diagonal: list[float], beside: list[float], size: float) -> tuple[Vector, Vector, Vector]:
    """Eigenvalues of Lanczos' matrix, smallest first, bounds on their errors by the next step's size, eigenvectors."""
    coupled = np.diag(beside, 1)
    eigenvalues, vectors = np.linalg.eigh(np.diag(diagonal) + coupled + coupled.T)
    return eigenvalues, size * np.abs(vectors[-1]), vectors


# ----------------------------------------------------------------------------------------------------
# Accelerated mirror descent on the potentials, first in softened metrics when the signal is strong.
#
# Moving the potentials against `weights * (answers - targets)` is mirror descent on the loss, and at the same time
# gradient descent on the likelihood in the metric of the weights; the momenta of the optimised gradient method (Kim
# and Fessler) accelerate it. Its step is limited by the largest cells (count times weight), its progress by the
# smallest. With a strong signal these are 1e4 apart, so the first stages use a metric that caps count times weight:
# the many small cells settle in long steps. The true metric then corrects the few large ones, its stiffest directions
# shortened.


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
