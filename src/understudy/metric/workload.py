"""`workload_error`: the error of a workload of marginals, as AIM and MST report it."""

from __future__ import annotations

from math import comb
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.metric.base import STRICT, Counted, Metric, Part, Positive, Score
from understudy.metric.tables import (
    PairedCells,
    Rows,
    clique_text,
    count_pairs,
    draw_cliques,
    find_column,
    require_same_columns,
)
from understudy.schema import Schema
from understudy.workload import Workload


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `workload_error`.

    Attributes:
        workload: ``all-3way``, ``target:COLUMN``, ``skewed:SEED`` or a YAML file: all of its marginals are compared.
        cliques: the marginals, or None for all sets of `ways` columns.
        weights: one weight by clique; None: all 1.
        ways: how many columns a marginal has when neither a workload nor cliques are given.
        most: the largest number of marginals for each entry of `ways`, drawn at random; None for all.
        weight: a numeric column; totals and shares are then weighted by it.
    """

    workload: str | None = None
    cliques: tuple[Clique, ...] | None = None
    weights: tuple[Annotated[float, Field(ge=0)], ...] | None = None
    ways: tuple[Positive, ...] = (1, 2, 3)
    most: Positive | None = 300
    weight: str | None = None


def workload_error(
    real: Counted, synthetic: Counted, schema: Schema, settings: Settings, rng: np.random.Generator
) -> Score:
    """``1/(|W| n) sum c ||M(D) - M(D')||_1`` (AIM, Definition 2), with L2 and Linf in its place as parts.

    A marginal that a workload names twice counts as two of |W|: the skewed workload draws 256 with replacement.

    The part ``share`` is the mean total variation distance of the normalised tables, which a different number of rows
    leaves untouched. With `weight`, every row counts with its weight.
    """
    domain = require_same_columns(real, synthetic)
    cliques, weights, notes = _choose_cliques(domain, settings, rng)
    if settings.weight is not None:
        found = _weigh_tables(real, synthetic, schema, settings.weight, cliques)
        totals = [Part("total", "real", found[1]), Part("total", "synthetic", found[2])]
        tables, size = found[0], found[1]
        notes = (*notes, f"Every row counts with its weight {settings.weight}.")
    else:
        tables, size, totals = list(count_pairs(real, synthetic, cliques)), float(real.rows), []
    named = len(tables) if settings.workload is None else float(weights.sum())
    norms = _norms(tables, size * named, weights)
    shares = np.array([table.distance() / 2 for table in tables])
    parts = [Part("norm", name, value) for name, value in norms.items()]
    parts += [Part("share", "mean", float(shares.mean())), *totals]
    order = np.argsort(-shares, kind="stable")
    parts += [Part("marginal", clique_text(cliques[place]), float(shares[place])) for place in order]
    return METRIC.score(norms["l1"], parts, notes)


def _choose_cliques(
    domain: Domain, settings: Settings, rng: np.random.Generator
) -> tuple[list[Clique], NDArray[np.float64], tuple[str, ...]]:
    notes: tuple[str, ...] = ()
    if settings.workload is not None:
        if settings.cliques is not None or settings.weights is not None:
            raise SettingError("workload_error: give either a workload or cliques with weights")
        found = Workload.parse(settings.workload, domain).weights
        return list(found), np.array(list(found.values())), notes
    if settings.cliques is not None:
        cliques = [domain.check(clique) for clique in settings.cliques]
    else:
        cliques = []
        for way in settings.ways:
            width = min(way, len(domain))
            some, left_out = draw_cliques(domain, width, settings.most or comb(len(domain), width), rng)
            cliques += [clique for clique in some if clique not in cliques]
            if left_out:
                notes += (f"{len(some)} of the {way}-way marginals were drawn at random.",)
    weights = np.ones(len(cliques)) if settings.weights is None else np.asarray(settings.weights, dtype=np.float64)
    if not cliques or weights.shape != (len(cliques),):
        raise SettingError("workload_error: give at least one clique, and one weight of at least 0 for each")
    return cliques, weights, notes


def _norms(tables: list[PairedCells], scale: float, weights: NDArray[np.float64]) -> dict[str, float]:
    gaps = [np.abs(table.real - table.synthetic) for table in tables]
    each = {
        "l1": [gap.sum() for gap in gaps],
        "l2": [np.sqrt((gap**2).sum()) for gap in gaps],
        "linf": [gap.max(initial=0.0) for gap in gaps],
    }
    return {name: float(weights @ np.asarray(values)) / max(scale, 1e-300) for name, values in each.items()}


def _weigh_tables(
    real: Counted, synthetic: Counted, schema: Schema, weight: str, cliques: list[Clique]
) -> tuple[list[PairedCells], float, float]:
    """Return the marginals with every row counted by its weight; a missing or negative weight counts as 0."""
    if not isinstance(real, Rows) or not isinstance(synthetic, Rows):
        raise SettingError("workload_error.weight needs rows; counts alone cannot be weighted")
    if not isinstance(weight, str) or weight not in real.units:
        name = find_column(schema, weight, "workload_error.weight").name
        raise SettingError(f"workload_error.weight: column {name!r} is not numeric; choose another")
    masses = [np.maximum(np.nan_to_num(table.units[weight]), 0.0) for table in (real, synthetic)]
    if not masses[0].sum() > 0:
        raise SettingError(f"workload_error.weight: the weights of {weight!r} add up to nothing; choose another column")
    found = []
    for clique in cliques:
        sides = [_sum_weights(table, mass, clique) for table, mass in zip((real, synthetic), masses, strict=True)]
        cells = np.union1d(sides[0][0], sides[1][0])
        filled = []
        for used, sums in sides:
            column = np.zeros(len(cells))
            column[np.searchsorted(cells, used)] = sums
            filled.append(column)
        found.append(PairedCells(clique, cells, filled[0], filled[1]))
    return found, float(masses[0].sum()), float(masses[1].sum())


def _sum_weights(
    table: Rows, mass: NDArray[np.float64], clique: Clique
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    flat = np.zeros(table.rows, np.int64)
    for column in clique:
        flat = flat * table.domain[column] + table.codes[column]
    used, place = np.unique(flat, return_inverse=True)
    return used, np.bincount(place, weights=mass, minlength=len(used)).astype(np.float64)


METRIC = Metric(
    name="workload_error",
    title="Workload error",
    measure=workload_error,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=2.0,
    meaning="Counts every combination of one, two and three columns in both tables and adds up the differences, per "
    "real row. 0: all tables agree. 0.1: one row in twenty would have to change to make an average table agree.",
)
