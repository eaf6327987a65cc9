"""Accelerated mirror descent on the potentials of a `Problem`, with a metric that allows long steps.

Moving the potentials against `weights * (answers - targets)` is mirror descent on the loss, and at the same time
gradient descent on the likelihood in the metric of the weights; the momenta of the optimised gradient method (Kim and
Fessler) accelerate it. The step is limited by the largest cells (count times weight), the progress by the smallest.
With a strong signal these are a factor of 1e4 apart. Two changes of the metric help:

- The first stages use a softened metric that caps count times weight, in which the many small cells converge in long
  steps (`_Descent.soften`).
- The true metric then corrects the few large cells, its stiffest directions shortened (`DescentMetric`).
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
from understudy.model.problem import Numbers, Problem, Vector, start_cold
from understudy.model.protocol import FitReport

# The descent

_SOFTENED = (  # cap relative to the curvature, and iterations
    *((1 / 3_000_000, 80), (1 / 300_000, 80)),
    *((1 / 30_000, 60), (1 / 4_000, 70), (1 / 600, 18)),
)
_SMALLEST_CAP = 0.1  # of count times weight: below it nothing is softened
_DIRECTIONS = 12  # stiff directions that are shortened
_ROUGHLY = 0.05  # relative error of the curvature from a cold start; a warm residual may hide the largest eigenvalue
_SHRINK, _YOUNG = 0.7, 30  # shorten the step if the loss rises within 30 iterations of a restart
_LEVEL = 1e-5  # part of the tolerance: a rise of the loss below it may be rounding
_WINDOW = 10
_PATIENCE = 10.0  # further windows that may gain as much as the last: momentum builds slowly after a warm start
_BUILDING = 3.0  # times the root of the curvature: iterations until momentum has built in the slowest directions
_MOST_CALLS = 20_000
_SMALLEST_STEP = 1e-9
_TRUSTED = 4  # restarts after which a shortened metric is given up
_SAME = 1e-6  # negligible relative difference between linear and log domain


def minimise(
    problem: Problem,
    *,
    warm: Numbers | None = None,
    tolerance: float,
    max_seconds: float | None,
    watch: Callable[[int, float], None],
    enough: float = 0.0,
) -> tuple[Numbers, FitReport]:
    """Find the unknowns `x` that minimise the problem's loss; returns them with a report of the fit.

    The descent starts from `warm`, which is overwritten, if that is better than the cold start. It stops when the
    remaining decrease of the loss, predicted from the last iterations by the 1/k^2 law of momentum, is below
    `tolerance` times the loss, or as soon as the loss is at most `enough`.
    """
    deadline = None if max_seconds is None else time.perf_counter() + max_seconds
    descent = _Descent(problem, tolerance, deadline, watch, enough)
    descent.begin(warm)
    del warm  # frees as much memory as `x` takes
    if descent.cold:
        descent.soften()
    descent.refine()
    if descent.loss() <= enough:
        return descent.x, descent.report()
    if is_stuck := descent.is_stuck():
        descent.begin(None)
        descent.refine()
        is_stuck = descent.is_stuck()
    if descent.has_underflowed() and not descent.warning:
        problem.logs = True
        descent.refresh()
        descent.refine()
        is_stuck = descent.is_stuck()
    if is_stuck and not descent.warning:
        descent.warning = "a better fit exists that the descent did not find"
    return descent.x, descent.report()


@dataclass
class _Descent:
    """The state of a descent: the unknowns `x`, whose answers are in the problem's `room`.

    A trial step overwrites `x`. If the loss rises, the descent continues from the plain step without momentum.
    """

    problem: Problem
    tolerance: float
    deadline: float | None
    watch: Callable[[int, float], None]
    enough: float = 0.0
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
        """Move to the cold start, or to the warm start if its loss is lower."""
        self.warning, self.cold = "", True
        start_cold(self.problem, self.x)
        self.refresh()
        if warm is not None:
            loss = self.loss()
            self.cold = not self.problem.loss(self.problem.answers(warm)) <= loss
            if self.cold:
                self.refresh()
            else:
                self.x = warm

    def refresh(self) -> None:
        """Compute the answers at `x` again."""
        self.problem.answers(self.x)

    def loss(self) -> float:
        """Return the loss at `x`."""
        return self.problem.loss(self.problem.room)

    def soften(self) -> None:
        """Descend in softened metrics that cap count times weight, from the smallest cap up."""
        from understudy.model.kernels.descent import soften

        problem, room = self.problem, self.problem.room
        stiffness = make_metric(problem, self.x, problem.weights, 0, enough=_ROUGHLY).curvature
        for share, iterations in _SOFTENED:
            if share * stiffness >= _SMALLEST_CAP and self.loss() > self.enough:
                factors = np.empty(len(room), np.uint8)
                soften(problem.weights, room, problem.targets, share * stiffness, factors)
                self.run(problem.weights.soften(factors), iterations, 0)

    def refine(self) -> None:
        """Descend in the true metric with stiff directions shortened, then without if shortening moved the minimum."""
        self.run(self.problem.weights, _MOST_CALLS, _DIRECTIONS)
        if self.shifted and not self.warning:
            self.run(self.problem.weights, _MOST_CALLS, 0, least=0 if self.converged else self.cold * self.length)

    def run(self, weights: Weights, iterations: int, directions: int, *, least: int = 0) -> None:
        """Descend with momentum in one metric until its loss stops falling or the iterations are used up.

        Convergence is not tested before `least` iterations: after a metric was given up, momentum must build again.
        """
        targets, room, constant = self.problem.targets, self.problem.room, self.problem.constant
        final = weights is self.problem.weights
        metric = make_metric(self.problem, self.x, weights, directions, enough=0.0 if final else _ROUGHLY)
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
            if self.enough and final and self.loss() <= self.enough:
                self.converged = True
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
                if len(parts) and restarts > _TRUSTED:  # the eigenvalues do not hold here: continue without shortening
                    self.shifted, self.length = True, len(history)
                    break
                if step < _SMALLEST_STEP * first_step:
                    self.converged = self._is_flat(history, loss, _WINDOW) or self._is_at_rest(first_step)
                    failed = final and not self.converged
                    self.warning = "the step size collapsed before convergence" if failed else ""
                    break
            history.append(loss)
            left_out = 0.5 * float(np.sum(metric.shortened * parts * parts))
            self.watch(self.problem.propagation.calls, loss + left_out if final else self.loss())
            window = _WINDOW if age >= 2 * _WINDOW else cycle + age
            if len(history) > least and self._is_flat(history, loss, window):
                self.converged = True
                self.shifted = left_out > 0.1 * self.tolerance * loss
                break
        else:
            if final:
                self.warning = "the iteration limit was reached before convergence"

    def is_stuck(self) -> bool:
        """Return whether a move towards the cold start's distribution lowers the loss, so that this is no minimum.

        The loss along that line is a parabola that is known exactly. A distribution concentrated on few cells hardly
        responds to its potentials, so a loss that has stopped falling does not prove a minimum.
        """
        from understudy.model.kernels.descent import parabola

        problem, loss = self.problem, self.loss()
        others = problem.answers(start_cold(problem, problem.new_unknowns())).astype(problem.targets.dtype)
        self.refresh()
        slope, bend = map(float, parabola(problem.weights, problem.room, problem.targets, others))
        if not slope < 0.0 < bend:
            return False
        share = min(1.0, -slope / bend)
        gain = -slope * share - 0.5 * bend * share**2
        return gain > max(self.tolerance, 1e-3) * loss + self.problem.nothing

    def has_underflowed(self) -> bool:
        """Return whether the answers in the linear domain differ from those in the log domain by underflow.

        They are compared only if a message is tiny and the mass that may have been lost is not: the loop of the log
        domain takes seconds to compile.
        """
        from understudy.model.kernels.propagation import TINY

        if self.problem.logs:
            return False
        self.refresh()
        propagation = self.problem.propagation
        if propagation.in_logs or propagation.smallest_message >= TINY or propagation.lost <= _SAME:
            return False
        linear = self.problem.room.copy()
        linear -= self.problem.answers(self.x, logs=True)
        return float(np.abs(linear, out=linear).max()) > _SAME * self.problem.total

    def report(self) -> FitReport:
        """Return the report of the fit."""
        seconds = time.perf_counter() - self.begun
        calls = self.problem.propagation.calls
        return FitReport(self.loss(), calls, self.gap, seconds, self.converged and not self.warning, self.warning)

    def _is_flat(self, history: list[float], loss: float, window: int) -> bool:
        """Return whether the remaining decrease of the loss is negligible.

        By the 1/k^2 law the remaining decrease is that of the last ten iterations times k/20, and that of the last k/2
        iterations divided by 3. The law does not hold early on: after softened stages the loss is flat until momentum
        has built up in the slowest directions, so many windows of ten may follow that gain as much as the last. After
        a warm start, as in the rounds of a mechanism, only the last ten iterations are tested. Soon after a restart
        the window includes the iterations before it.
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

    def _is_at_rest(self, step: float) -> bool:
        """Return whether no step along the true gradient, long or short, lowers the loss by more than rounding."""
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


# The metric: weights, with the stiffest directions shortened

_DIFFERENCE = 1e-5  # change of a potential for a finite difference
_COARSER = 1e-4  # the same, if the answers before it are in single precision
_MORE_STEPS = 8  # of Lanczos' method than directions wanted
_FEW, _SHARE = 1024, 128  # stiff directions lie on 1024 cells, or on one in 128 if that is more
_SETTLED = 0.3  # an eigenvalue is found when its relative error is below this
_SHORTEST = 1 / 16  # eigenvalues are reduced to this part of the largest at most
_FURTHEST = 1e6  # longest move of a potential in one step: undoing a longer one would lose digits
_LONGEST = 0.5  # longest move of a potential for which shortening is trusted: eigenvalues hold nearby only


class Stride(NamedTuple):
    """The length of a step and its two momenta: along the previous steps, and over the plain step."""

    step: float
    along: float
    over: float


@dataclass
class DescentMetric:
    """The metric of the descent: weights, less `shortened` of each stiff direction. It holds near one `x`.

    A step is limited by the largest eigenvalue of covariance times weights. A dozen eigenvalues are far above the rest:
    the main effects that many measured tables share, and the largest cells. Shortening the metric along their
    eigenvectors allows steps several times as long, and hardly moves the minimum: where the descent ends, the residual
    has no part along a direction that the model can follow.

    A stiff direction is in proportion to the counts, so nearly all of it lies on the few cells with most rows: one cell
    in 128 holds 98 to 99.9 % of its square. The search is restricted to these cells.

    Attributes:
        weights: the diagonal.
        curvature: the largest eigenvalue of covariance times metric.
        stiff: directions, orthogonal in the inner product of the weights and already multiplied by them.
        shortened: how much of each direction is subtracted.
    """

    weights: Weights
    curvature: float
    stiff: Directions
    shortened: Vector

    def measure(self, answers: Vector, targets: Numbers) -> tuple[float, Vector]:
        """Return half the squared residual in this metric, and the residual's part along each stiff direction."""
        from understudy.model.kernels.descent import half_squares, parts

        found = np.empty(len(self.shortened))
        places = self.stiff.places
        parts(self.stiff.rows, answers[places] - targets[places], found)
        squares = half_squares(self.weights, answers, targets)
        return float(squares - 0.5 * np.sum(self.shortened * found * found)), found

    def descend(
        self, x: Numbers, beyond: NDArray[np.float32], answers: Vector, targets: Numbers, found: Vector, *, by: Stride
    ) -> None:
        """Move `x` by one accelerated step.

        Args:
            x: the unknowns; changed.
            beyond: how far the previous step went beyond a plain step; overwritten by the same of this step.
            answers: the answers at `x`.
            targets: the targets of the problem.
            found: the residual's parts along the stiff directions, as `measure` returns them.
            by: the length of the step and its momenta.
        """
        from understudy.model.kernels.descent import descend, subtract

        descend(x, beyond, self.weights, answers, targets, *by)
        if len(found):
            less, places = np.zeros(len(self.stiff.places)), self.stiff.places
            subtract(self.stiff.rows, by.step * self.shortened * found, less)
            x[places] -= (1.0 + by.along + by.over) * less
            beyond[places] -= (by.along + by.over) * less


def make_metric(
    problem: Problem, x: Numbers, weights: Weights, directions: int, *, enough: float = 0.0
) -> DescentMetric:
    """Make the metric of these weights at `x`, shortened along at most this many directions, by Lanczos' method.

    The problem's `room` must hold the answers at `x`, and does so again afterwards. This costs one call of the oracle
    for each direction and nine more; without directions it stops once the curvature has a relative error of `enough`.
    """
    from understudy.model.kernels.descent import extremes

    expected, leap = extremes(weights, problem.room, problem.targets, problem.total)
    found = _shortened_metric(problem, x, weights, directions, expected, leap) if directions else None
    if found is None:
        found = _plain_metric(weights, _largest_eigenvalue(problem, x, weights, enough), expected, leap)
    return found


def _plain_metric(weights: Weights, largest: float, expected: float, leap: float) -> DescentMetric:
    """Make the metric of the weights alone; the targets and the longest step bound its curvature from below."""
    nowhere = Directions(np.empty(0, np.int64), np.empty((0, 0)))
    return DescentMetric(weights, max(largest, expected, leap / _FURTHEST) or 1.0, nowhere, np.empty(0))


def _shortened_metric(
    problem: Problem, x: Numbers, weights: Weights, directions: int, expected: float, leap: float
) -> DescentMetric | None:
    """Make the metric with stiff directions shortened; None if not even the largest eigenvalue was found."""
    places = _find_heavy_cells(weights, problem.room)
    eigenvalues, errors, vectors, rows = _find_stiff_directions(problem, x, weights, places, directions + _MORE_STEPS)
    settled = errors <= _SETTLED * eigenvalues
    if not settled[-1:].any():
        return None
    largest = float(eigenvalues[-1])
    found = settled & (eigenvalues > _SHORTEST * max(largest, expected, leap / _FURTHEST))
    order = [k for k in np.argsort(-eigenvalues) if found[k]][:directions]
    if not order or largest < 0.8 * expected or leap > _LONGEST * eigenvalues[order[-1]]:
        return _plain_metric(weights, largest, expected, leap)
    curvature = float(eigenvalues[order[-1]])
    turned = np.einsum("jk,ji->ki", vectors[:, order[:-1]], rows)
    turned *= weights.at(places)
    return DescentMetric(weights, curvature, Directions(places, turned), 1.0 - curvature / eigenvalues[order[:-1]])


def _find_heavy_cells(weights: Weights, answers: Vector) -> NDArray[np.int64]:
    """Return the cells on which stiff directions lie: those whose answers are largest in units of the noise."""
    few = min(len(answers), max(_FEW, len(answers) // _SHARE))
    tables = [slice(*ends) for ends in itertools.pairwise([0, *weights.ends.tolist()])]
    sizes = np.empty(len(answers), np.float32)
    for table, weight in zip(tables, weights.each, strict=True):
        sizes[table] = _size_in_noise(answers[table], weight)
    sizes.partition(len(sizes) - few)
    least = sizes[len(sizes) - few]
    del sizes
    found = [
        table.start + np.flatnonzero(_size_in_noise(answers[table], weight) >= least)
        for table, weight in zip(tables, weights.each, strict=True)
    ]
    return np.concatenate(found)[:few]


def _size_in_noise(answers: Vector, weight: float) -> NDArray[np.float32]:
    sizes: NDArray[np.float32] = np.abs(answers, dtype=np.float32)
    sizes *= np.float32(math.sqrt(weight))
    return sizes


def _find_stiff_directions(
    problem: Problem, x: Numbers, weights: Weights, places: NDArray[np.int64], steps: int
) -> tuple[Vector, Vector, Vector, Vector]:
    """Find the largest eigenvalues of covariance times weights by Lanczos' method.

    All vectors are 0 outside these places; an image's part elsewhere is dropped and counts as an error.

    Returns:
        Eigenvalues, estimates of their errors, eigenvectors in a basis, and the basis.
    """
    from understudy.model.kernels.descent import half_squares, parts, subtract

    mine, base = weights.at(places), problem.room[places]
    around = problem.room.astype(problem.targets.dtype)
    rows = np.empty((steps, len(places)))
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    outside: list[float] = []
    eigenpairs = np.empty(0), np.empty(0), np.empty((0, 0))
    image = base - problem.targets[places]
    size = math.sqrt(np.sum(mine * image**2))
    for step in range(steps):
        if not 1e-8 * max(diagonal, default=0.0) < size < math.inf:
            break
        if step:
            off_diagonal.append(size)
        np.divide(image, size, out=rows[step])
        change = mine * rows[step]
        epsilon = _DIFFERENCE / float(np.abs(change).max())
        change *= epsilon
        found = problem.answers(x, moved=partial(_add, places, change))
        image = (found[places] - base) / epsilon
        everywhere = 2.0 * half_squares(weights, found, around) / epsilon**2
        outside.append(math.sqrt(max(0.0, everywhere - np.sum(mine * image**2))))
        parallel = np.empty(step + 1)
        for again in (False, True):  # orthogonalise twice: the errors of once would grow in the next steps
            parts(rows, mine * image, parallel)
            subtract(rows, parallel, image)
            if not again:
                diagonal.append(float(parallel[-1]))
        size = math.sqrt(np.sum(mine * image**2))
        eigenpairs = _eigenpairs(diagonal, off_diagonal, size)
    problem.answers(x)
    eigenvalues, errors, vectors = eigenpairs
    elsewhere = np.sqrt(np.square(outside) @ vectors**2) if outside else errors
    return eigenvalues, np.hypot(errors, elsewhere), vectors, rows[: len(diagonal)]


def _add(places: NDArray[np.int64], change: Vector, vector: Vector) -> None:
    vector[places] += change


def _largest_eigenvalue(problem: Problem, x: Numbers, weights: Weights, enough: float) -> float:
    """Find the largest eigenvalue of covariance times weights, to a relative error of `enough`.

    Each image is made orthogonal to the last two only, which is all that the theory requires, so no others are kept.
    The eigenvalue found is the largest if the residual has a large part along its direction.
    """
    from understudy.model.kernels.descent import change, half_squares, part_along, shift, store, take_off

    basis = Basis.empty(2, len(x))
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    eigenvalues = np.zeros(1)
    answers, image = problem.room.astype(problem.targets.dtype), problem.room
    change(image, problem.targets, 1.0)
    size = math.sqrt(2.0 * half_squares(weights, image, None))
    for step in range(_MORE_STEPS):
        if not 1e-8 * max(diagonal, default=0.0) < size < math.inf:
            break
        if step:
            off_diagonal.append(size)
        epsilon = _COARSER / store(basis, step % 2, weights, image, size)
        image = problem.answers(x, moved=partial(shift, weights, basis, step % 2, epsilon))
        change(image, answers, epsilon)
        diagonal.append(float(part_along(basis, step % 2, weights, image)))
        take_off(basis, step % 2, diagonal[-1], image)
        if step:
            take_off(basis, (step + 1) % 2, size, image)
        size = math.sqrt(2.0 * half_squares(weights, image, None))
        eigenvalues, errors, _ = _eigenpairs(diagonal, off_diagonal, size)
        if errors[-1] <= enough * eigenvalues[-1]:
            break
    problem.answers(x)
    return float(eigenvalues[-1])


def _eigenpairs(diagonal: list[float], off_diagonal: list[float], size: float) -> tuple[Vector, Vector, Vector]:
    """Return eigenvalues of Lanczos' matrix, smallest first, bounds on their errors, and eigenvectors."""
    coupled = np.diag(off_diagonal, 1)
    eigenvalues, vectors = np.linalg.eigh(np.diag(diagonal) + coupled + coupled.T)
    return eigenvalues, size * np.abs(vectors[-1]), vectors
