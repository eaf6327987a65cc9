"""Where a descent begins: the measured one-way tables, or an earlier model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from understudy.domain import Clique
from understudy.errors import InputError
from understudy.model.descent.problem import Numbers, Problem, Vector

if TYPE_CHECKING:
    from understudy.model.graphical import GraphicalModel

_DEEP, _DEEPEST = 300.0, 60.0


def cold_potentials(problem: Problem, out: Numbers) -> Numbers:
    """Unknowns that owe nothing to an earlier model: independent columns, as measured; written to `out`."""
    out[:] = 0.0
    _place_one_ways(problem, out, set())
    return out


def warm_potentials(problem: Problem, model: GraphicalModel) -> Numbers:
    """An earlier model's potentials, and the measured one-way tables for columns it lacks.

    Tables that it does not contain are scaled to what was measured, if that is better: most of what a new measurement
    teaches, at once.

    Raises:
        InputError: for a model of another domain.
    """
    if model.domain != problem.propagation.tree.domain:
        raise InputError("warm_start is a model of another domain; leave it out or use the same domain")
    out = problem.new_unknowns()
    covered: set[str] = set()
    for clique, values in model.factors():
        if _place(problem, out, clique, _shallow(values)):
            covered |= set(clique)
    _place_one_ways(problem, out, covered)
    known = [set(clique) for clique, _ in model.factors()]
    maximal = enumerate(problem.propagation.tables[: problem.propagation.factors])
    _scale(problem, out, [t for t, columns in maximal if not any(set(columns) <= clique for clique in known)])
    return out


def _scale(problem: Problem, out: Numbers, tables: list[int]) -> None:
    """Move the potentials of measured tables to where these, taken alone, would have been fitted.

    Counts below the noise say little, so that half of it is added to what was measured and to what is there.
    """
    places = [(problem.propagation.slice_of(t), problem.weights.each[t]) for t in tables if _is_measured(problem, t)]
    if not places:
        return
    before = [out[place].copy() for place, _ in places]
    answers = problem.answers(out)
    loss = problem.loss(answers)
    for place, weight in places:
        half = 0.5 / math.sqrt(weight)
        out[place] += np.log((np.maximum(problem.targets[place], 0.0) + half) / (answers[place] + half))
    if not problem.loss(problem.answers(out)) < loss:
        for (place, _), values in zip(places, before, strict=True):
            out[place] = values


def _shallow(values: Vector) -> Vector:
    """Potentials relative to the largest; those of a table that has drifted far are cut off at "as good as never".

    Cutting changes the distribution, but repeated warm starts would otherwise push cells down without end.
    """
    lowered = values - values.max()
    floor = -_DEEPEST if lowered[np.isfinite(lowered)].min() < -_DEEP else -_DEEP
    shallow: Vector = np.maximum(lowered, floor)
    return shallow


def _place(problem: Problem, out: Numbers, clique: Clique, values: Vector) -> bool:
    """Add a table's potentials to the smallest table that contains it; False when none does."""
    fitting = [t for t, columns in enumerate(problem.propagation.tables) if set(clique) <= set(columns)]
    if fitting:
        _add(problem, out, fitting[-1], clique, values)
    return bool(fitting)


def _place_one_ways(problem: Problem, out: Numbers, covered: set[str]) -> None:
    """The logarithms of each column's counts, by the smallest measured table that has the column."""
    propagation, domain = problem.propagation, problem.propagation.tree.domain
    smallest = {column: t for t, columns in enumerate(propagation.tables) for column in columns}
    measured = {
        column: t for t, columns in enumerate(propagation.tables) if _is_measured(problem, t) for column in columns
    }
    for column, table in measured.items():
        if column not in covered:
            columns = propagation.tables[table]
            counts = problem.targets[propagation.slice_of(table)].reshape(domain.shape(columns))
            sums = counts.sum(axis=tuple(i for i, other in enumerate(columns) if other != column))
            _add(problem, out, smallest[column], (column,), np.log(np.maximum(sums, 1.0)))


def _is_measured(problem: Problem, table: int) -> bool:
    return bool(problem.weights.each[table] > 0.0)


def _add(problem: Problem, out: Numbers, table: int, clique: Clique, values: Vector) -> None:
    propagation, domain = problem.propagation, problem.propagation.tree.domain
    columns = propagation.tables[table]
    target = out[propagation.slice_of(table)].reshape(domain.shape(columns))
    target += values.reshape([domain[column] if column in clique else 1 for column in columns])
