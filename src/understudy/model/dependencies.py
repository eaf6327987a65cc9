"""Learn, from the noisy model, the dependencies between columns whose values the schema does not state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from understudy.model.fit import Fit
from understudy.model.protocol import Model
from understudy.progress import Progress, silent
from understudy.schema import Recoding, Schema
from understudy.schema.column import Coded
from understudy.schema.rules import Dependency, dependency_cells

_DISTINCT = 0.1
"""Divergence from the column's own shares, in nats, above which a row of the table shows what it determines."""


def unstated_dependencies(schema: Schema) -> list[Dependency]:
    """Return the dependencies whose values are to be learned."""
    return [rule for rule in schema.rules if isinstance(rule, Dependency) and rule.stated_codes(schema) is None]


def learn_dependencies(
    finish: Callable[..., Fit], fit: Fit, schema: Schema, *, total: float | None, progress: Progress = silent
) -> Fit:
    """Learn each dependency whose values the schema does not state, and fit the model again with it.

    **Privacy.** Post-processing: it reads the model and the measurements.

    Args:
        finish: a function that makes a fit of measurements, as `Mechanism.finish` does.
        fit: a first fit without these dependencies.
        schema: the schema with its rules.
        total: the number of rows, if public.
        progress: called with each step.
    """
    domain = schema.domain
    for rule in unstated_dependencies(schema):
        values = find_determined(fit.model, fit.recoding, schema, rule)
        codes = fit.recoding.apply(rule.determines, np.arange(domain[rule.determines])).astype(np.int64)
        domain = domain.add_rules([dependency_cells(domain, rule, values, codes)])
        again = finish(domain, fit.measurements, recoding=fit.recoding, total=total, progress=progress)
        fit = replace(again, rounds=fit.rounds)
    return fit


def find_determined(model: Model, recoding: Recoding, schema: Schema, rule: Dependency) -> NDArray[np.int64]:
    """Find, for each declared code of the given columns (flat, in the rule's order), the merged code it determines.

    Codes that were merged may determine different values: values are assigned to them so that the shares of the merged
    code are kept as well as possible. The result is -1 where nothing is determined: for empty and unknown cells, and
    for combinations that cannot occur.
    """
    table = model.project(rule.columns)
    table = table.reshape(-1, table.shape[-1])
    places: NDArray[np.int64] = np.zeros((), dtype=np.int64)
    free: NDArray[np.bool_] = np.zeros((), dtype=np.bool_)
    for name in rule.given:
        column = schema.column(name)
        codes = np.arange(schema.domain[name])
        places = np.add.outer(places * model.domain[name], recoding.apply(name, codes).astype(np.int64))
        free = np.logical_or.outer(free, codes >= (column.ordinary if isinstance(column, Coded) else 0))
    places, free = places.reshape(-1), free.reshape(-1)
    found = np.where(free, -1, _most_likely(table)[places])
    members = np.bincount(places[~free], minlength=len(table))
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    for group in np.flatnonzero((members > 1) & (table.sum(axis=1) > 0)):
        first, last = np.searchsorted(sorted_places, [group, group + 1])
        mine = order[first:last][~free[order[first:last]]]
        found[mine] = _assign_codes(table[group], len(mine))
    return found


def _assign_codes(row: NDArray[np.float64], members: int) -> NDArray[np.int64]:
    """Assign values to this many codes in proportion to the row, the same value to neighbouring codes."""
    ends = np.cumsum(row) / row.sum() * members
    possible = np.flatnonzero(row > 0)
    place = np.searchsorted(ends, np.arange(members) + 0.5)
    return possible[np.minimum(np.searchsorted(possible, place), len(possible) - 1)]


def _most_likely(table: NDArray[np.float64]) -> NDArray[np.int64]:
    """Find, for each row of given codes, the code that it determines.

    A row that differs from the column's own shares determines its most likely code. The other rows carry no
    information: codes are assigned to them, the largest row first, so that the column's shares are kept as well as
    possible.
    """
    rows = table.reshape(-1, table.shape[-1])
    mass, own = rows.sum(axis=1), rows.sum(axis=0)
    shares = rows / np.where(mass > 0, mass, 1.0)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = shares * np.log(shares / (own / max(own.sum(), 1e-300)))
    distinct = np.where(shares > 0, terms, 0.0).sum(axis=1) > _DISTINCT
    found = np.where(mass > 0, shares.argmax(axis=1), -1)
    left = own - np.bincount(found[distinct], mass[distinct], minlength=len(own))
    for row in np.flatnonzero(~distinct & (mass > 0))[np.argsort(-mass[~distinct & (mass > 0)], kind="stable")]:
        found[row] = int(np.where(rows[row] > 0, left, -np.inf).argmax())
        left[found[row]] -= mass[row]
    return found.astype(np.int64)
