"""`mgd`: marginal difference, the weighted mean of earth mover's costs over target marginals (Li et al.)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.metric.aemc import Attribute, Moves, aemc
from understudy.metric.checks import at_least, coded_column
from understudy.metric.flow import Solver
from understudy.metric.labels import code_labels
from understudy.metric.protocol import Counted, Metric, Part, Score
from understudy.metric.rows import ordered, require_same
from understudy.metric.tables import named, some_ways
from understudy.schema import Schema
from understudy.schema.kinds.coded import Coded
from understudy.tabulate import Counts, SparseCounts

_WAY_WEIGHT = {1: 1.0, 2: 1.0, 3: 3.0}  # the paper's 1/9, 1/9 and 1/3


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How `mgd` is computed.

    Attributes:
        marginals: the target marginals; None: all sets of `ways` columns, as far as `most` and `cells` allow.
        weights: one weight by marginal; None: 1 for one- and two-way marginals and 3 for three-way ones.
        ways: how many columns a marginal has when marginals are not given.
        most: at most so many marginals for each entry of `ways`, drawn at random.
        cells: marginals with more cells than this are left out.
        tolerance: differences of a cell up to this are free; 2 in the paper's study.
        moving: a column's weight within a marginal: a number, or None for "mass never moves along it". By default
            ordered columns share 1 equally and the others have None.
        level: by column, the declared level at which it enters instead of its own values.
        hierarchy: by column, groups of its codes by level, finest first; default the schema's levels.
        solver: "auto", "nearby" or "ortools"; all give the same.
    """

    marginals: tuple[Clique, ...] | None = None
    weights: tuple[float, ...] | None = None
    ways: tuple[int, ...] = (1, 2)
    most: int = 150
    cells: int = 100_000
    tolerance: int = 2
    moving: Mapping[str, float | None] = field(default_factory=dict)
    level: Mapping[str, str] = field(default_factory=dict)
    hierarchy: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    solver: Solver = "auto"


def mgd(real: Counted, synthetic: Counted, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """The weighted mean over marginals of the cost of turning the synthetic into the real one, per real row."""
    require_same(real, synthetic)
    cliques, weights, notes = _targets(schema, settings, rng)
    columns = {column.name: column for column in schema.coded}
    found: list[tuple[Clique, Moves]] = []
    for (clique, one), (_, other) in zip(real.counts(cliques), synthetic.counts(cliques), strict=True):
        attributes = [_attribute(columns[name], settings) for name in clique]
        made, wanted = (_generalised(table, clique, columns, settings) for table in (other, one))
        found.append(
            (clique, aemc(made, wanted, _shared(attributes), tolerance=settings.tolerance, solver=settings.solver))
        )
    costs = np.array([moves.cost for _, moves in found])
    score = float(weights @ costs / weights.sum())
    return Score(METRIC.name, score, "lower", 0.0, tuple(_parts(found, weights, columns)), notes)


def _targets(
    schema: Schema, settings: Settings, rng: np.random.Generator
) -> tuple[list[Clique], NDArray[np.float64], tuple[str, ...]]:
    at_least("mgd.most", settings.most, 1)
    sizes = {column.name: column.size for column in schema.coded}
    for name in (*settings.moving, *settings.level, *settings.hierarchy):
        coded_column(schema, name, "mgd")
    notes: tuple[str, ...] = (f"Differences of up to {settings.tolerance} rows in a cell are free.",)
    if settings.marginals is not None:
        cliques = [tuple(coded_column(schema, name, "mgd.marginals").name for name in c) for c in settings.marginals]
    else:
        cliques = []
        for way in settings.ways:
            at_least("mgd.ways", way, 1)
            fitting = [c for c in some_ways(sizes, way, 10_000, rng)[0] if _cells(c, sizes) <= settings.cells]
            if len(fitting) > settings.most:
                fitting = [fitting[place] for place in np.sort(rng.choice(len(fitting), settings.most, replace=False))]
            cliques += fitting
        notes += (f"{len(cliques)} marginals of at most {settings.cells:,} cells.",)
    given = [_WAY_WEIGHT.get(len(c), 1.0) for c in cliques] if settings.weights is None else list(settings.weights)
    weights = np.asarray(given, dtype=np.float64)
    if not cliques or len(weights) != len(cliques) or not (weights > 0).all():
        raise SettingError("mgd: give at least one marginal, small enough for `cells`, and a positive weight for each")
    return cliques, weights, notes


def _cells(clique: Clique, sizes: Mapping[str, int]) -> int:
    return int(np.prod([sizes[name] for name in clique], dtype=np.float64))


def _attribute(column: Coded, settings: Settings) -> Attribute:
    size, chain = column.size, column.ordinary if ordered(column) else 0
    levels = [level.groups for level in column.generalisations.values()]
    if column.name in settings.hierarchy:
        levels = [np.asarray(level, dtype=np.int64) for level in settings.hierarchy[column.name]]
    chosen = settings.level.get(column.name)
    if chosen is not None:
        names = list(column.generalisations)
        if chosen not in names:
            raise SettingError(f"mgd.level: column {column.name!r} has no level {chosen!r}; it has {', '.join(names)}")
        groups = column.generalisations[chosen].groups
        size = int(groups.max()) + 1
        chain = len(np.unique(groups[: column.ordinary])) if chain else 0
        first = np.unique(groups, return_index=True)[1]
        levels = [level[first] for level in levels[names.index(chosen) + 1 :]]
    default = 1.0 if chain else None
    weight = settings.moving.get(column.name, default)
    share = None if weight is None else Fraction(weight).limit_denominator(1_000_000)
    return Attribute(size, share, chain, () if chain else tuple(levels))


def _shared(attributes: list[Attribute]) -> list[Attribute]:
    """The finite weights, scaled to add up to 1."""
    total = sum((attribute.weight for attribute in attributes if attribute.weight is not None), Fraction(0))
    if not total:
        return [Attribute(a.size) for a in attributes]
    return [Attribute(a.size, None if a.weight is None else a.weight / total, a.chain, a.levels) for a in attributes]


def _generalised(table: Counts, clique: Clique, columns: Mapping[str, Coded], settings: Settings) -> NDArray[np.int64]:
    counts = table.dense() if isinstance(table, SparseCounts) else table
    counts = counts.reshape([columns[name].size for name in clique])
    for axis, name in enumerate(clique):
        if name in settings.level:
            groups = columns[name].generalisations[settings.level[name]].groups
            merged = np.zeros((int(groups.max()) + 1, *np.delete(counts.shape, axis)), np.int64)
            np.add.at(merged, groups, np.moveaxis(counts, axis, 0))
            counts = np.moveaxis(merged, 0, axis)
    return counts


def _parts(found: list[tuple[Clique, Moves]], weights: NDArray[np.float64], columns: Mapping[str, Coded]) -> list[Part]:
    total = float(weights.sum())
    by_column: dict[str, float] = {}
    for (clique, moves), weight in zip(found, weights, strict=True):
        for name, paid in zip(clique, moves.attributes, strict=True):
            by_column[name] = by_column.get(name, 0.0) + weight * paid / total
    adding = sum(weight * moves.adding for (_, moves), weight in zip(found, weights, strict=True)) / total
    removing = sum(weight * moves.removing for (_, moves), weight in zip(found, weights, strict=True)) / total
    worst = sorted(found, key=lambda item: (-item[1].cost, item[0]))
    parts = [
        Part("column", name, float(value)) for name, value in sorted(by_column.items(), key=lambda i: (-i[1], i[0]))
    ]
    parts += [Part("change", "rows added", float(adding)), Part("change", "rows removed", float(removing))]
    parts += [Part("marginal", named(clique), moves.cost) for clique, moves in worst]
    for clique, moves in worst[:3]:
        for place in np.argsort(-moves.cells.reshape(-1), kind="stable")[:5]:
            value = float(moves.cells.reshape(-1)[place])
            if value > 0:
                parts.append(Part("cell", _cell(clique, place, moves, columns), value))
    return parts


def _cell(clique: Clique, place: Any, moves: Moves, columns: Mapping[str, Coded]) -> str:
    words: list[str] = []
    for name, code in zip(clique, np.unravel_index(place, moves.cells.shape), strict=True):
        labels = code_labels(columns[name])
        words.append(f"{name}={labels[code] if len(labels) == moves.cells.shape[len(words)] else code}")
    return ", ".join(words)


METRIC = Metric(
    name="mgd",
    title="MGD (marginal difference)",
    measure=mgd,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=2.0,
    meaning="What it costs to turn the synthetic tables of one and two columns into the real ones by moving, adding "
    "and removing rows, per real row. Moving to a neighbouring value is cheap, tiny differences are free.",
)
