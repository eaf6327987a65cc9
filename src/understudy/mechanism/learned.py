"""Dependencies whose values the schema does not state: which value goes with which is learned from the noisy model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from understudy.mechanism.protocol import Fit, Mechanism
from understudy.model.protocol import Model
from understudy.progress import Progress, silent
from understudy.schema import Recoding, Schema
from understudy.schema.column import Coded
from understudy.schema.rules import Dependency, dependency_cells

_TELLS = 0.1
"""In nats: how far a row of the table must be from the column's own shares to say what it determines."""


def unstated(schema: Schema) -> list[Dependency]:
    """The dependencies whose values are to be learned."""
    return [rule for rule in schema.rules if isinstance(rule, Dependency) and rule.stated_codes(schema) is None]


def settled(mechanism: Mechanism, fit: Fit, schema: Schema, *, total: float | None, progress: Progress = silent) -> Fit:
    """The fit with every dependency of the schema honoured: each is learned, then the model is estimated again.

    **Privacy.** Post-processing: it reads the model and the measurements.

    Args:
        mechanism: what made the fit.
        fit: a first fit, free of these dependencies.
        schema: with the rules.
        total: the number of rows, where it is public.
        progress: told about each step.
    """
    domain = schema.domain
    for rule in unstated(schema):
        values = determined(fit.model, fit.recoding, schema, rule)
        codes = fit.recoding.apply(rule.determines, np.arange(domain[rule.determines])).astype(np.int64)
        domain = domain.ruled([dependency_cells(domain, rule, values, codes)])
        again = mechanism.finish(domain, fit.measurements, recoding=fit.recoding, total=total, progress=progress)
        fit = replace(again, rounds=fit.rounds)
    return fit


def determined(model: Model, recoding: Recoding, schema: Schema, rule: Dependency) -> NDArray[np.int64]:
    """By code of the given columns (flat, in the rule's order, as declared) the merged code that they determine.

    Codes that were merged may determine different values: they are dealt out, so that the merged code's shares come out
    as well as they can. -1 where nothing is determined: for empty and unknown cells, and for what cannot occur.
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
        found[mine] = _dealt(table[group], len(mine))
    return found


def _dealt(row: NDArray[np.float64], members: int) -> NDArray[np.int64]:
    """What each of so many codes determines, in runs of neighbours, in proportion to the row."""
    ends = np.cumsum(row) / row.sum() * members
    possible = np.flatnonzero(row > 0)
    place = np.searchsorted(ends, np.arange(members) + 0.5)
    return possible[np.minimum(np.searchsorted(possible, place), len(possible) - 1)]


def _most_likely(table: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each row of given codes the code that it determines.

    Rows that differ from the column's own shares determine what is most likely in them. The others say nothing: they
    are dealt out, the largest first, so that the column's shares come out as well as they can.
    """
    rows = table.reshape(-1, table.shape[-1])
    mass, own = rows.sum(axis=1), rows.sum(axis=0)
    shares = rows / np.where(mass > 0, mass, 1.0)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = shares * np.log(shares / (own / max(own.sum(), 1e-300)))
    tells = np.where(shares > 0, terms, 0.0).sum(axis=1) > _TELLS
    found = np.where(mass > 0, shares.argmax(axis=1), -1)
    left = own - np.bincount(found[tells], mass[tells], minlength=len(own))
    for row in np.flatnonzero(~tells & (mass > 0))[np.argsort(-mass[~tells & (mass > 0)], kind="stable")]:
        found[row] = int(np.where(rows[row] > 0, left, -np.inf).argmax())
        left[found[row]] -= mass[row]
    return found.astype(np.int64)
