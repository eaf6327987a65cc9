"""`mgd`: the weighted mean of approximate earth mover's costs over target marginals (Li, Wang, Dang, Li: MGD).

The first part computes the cost between two tables of counts (sections 4 and 6 of the paper), the second the metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class

from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.metric.base import STRICT, Counted, Metric, Part, Positive, Score
from understudy.metric.flow import FlowNetwork, Solver, Whole, solve_flow
from understudy.metric.tables import clique_text, draw_cliques, find_column, is_ordered, require_same_columns
from understudy.schema import Schema
from understudy.schema.column import Coded
from understudy.tabulate import Counts, to_dense

_EXACT = 10_000_000
_ROUNDED = 1_000_000


@dataclass(frozen=True, eq=False)
class Attribute:
    """One axis of a table, and what it costs to move along it.

    The semantic distance is ``|i - j|/(K - 1)`` along an order, else ``(t - s)/t`` in the hierarchy.

    Attributes:
        size: how many values it has.
        weight: its share of the distance; None: mass never moves along it (weight infinity).
        chain: this many values, the first ones, are ordered and each is next to the one before; the others have no
            neighbours.
        levels: for values without order, the group of each value by level, finest first: the hierarchy below its root.
        distances: instead, the semantic distance of any two of the first values, between 0 and 1, such as on a map.
    """

    size: int
    weight: Fraction | None = None
    chain: int = 0
    levels: tuple[NDArray[np.int64], ...] = ()
    distances: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class Moves:
    """The cost of turning the synthetic table into the real one, per real row.

    Attributes:
        cost: the approximate earth mover's cost.
        attributes: the part of it for moving along each attribute.
        adding: the part for adding rows.
        removing: the part for removing rows.
        cells: by cell, its part of the cost: what is added or removed there, and half of what moves over its edges.
    """

    cost: float
    attributes: tuple[float, ...]
    adding: float
    removing: float
    cells: NDArray[np.float64]


def aemc(
    synthetic: NDArray[np.int64],
    real: NDArray[np.int64],
    attributes: Sequence[Attribute],
    *,
    tolerance: int = 0,
    alpha: Fraction = Fraction(1),
    solver: Solver = "auto",
) -> Moves:
    """Return the least cost of moving, adding and removing rows until every cell differs by `tolerance` at most.

    Args:
        synthetic: counts, shaped by the attributes.
        real: counts of the same shape.
        attributes: one for each axis; the finite weights add up to 1.
        tolerance: differences up to this are free.
        alpha: the cost of adding or removing a row.
        solver: see `flow.solve_flow`.

    Raises:
        SettingError: if shapes, weights or a hierarchy do not fit.

    >>> months = [Attribute(3, Fraction(1), chain=3)]
    >>> aemc(np.array([4, 4, 2]), np.array([5, 4, 1]), months).cost
    0.1
    """
    _check_tables(synthetic, real, attributes, tolerance)
    rows = max(int(real.sum()), 1)
    network, axis, owner = neighbour_network(attributes, alpha)
    extra = len(network.final) - real.size
    made, wanted = (
        np.append(table.reshape(-1).astype(np.int64), np.zeros(extra, np.int64)) for table in (synthetic, real)
    )
    found = solve_flow(network, made, wanted, tolerance, solver)
    paid = np.abs(found.flow) * (network.cost * float(alpha) / network.fine)
    moving = np.bincount(axis, weights=paid, minlength=len(attributes)) / rows
    cells = float(alpha) * (found.excess + found.lack)[: real.size]
    for end in (network.tail, network.head):
        at = owner[end]
        cells += np.bincount(at[at >= 0], weights=paid[at >= 0] / 2, minlength=real.size)
    adding, removing = (float(alpha * int(rest.sum())) / rows for rest in (found.lack, found.excess))
    cost = float(moving.sum()) + adding + removing
    return Moves(round(cost, 15), tuple(moving.tolist()), adding, removing, (cells / rows).reshape(real.shape))


def neighbour_network(
    attributes: Sequence[Attribute], alpha: Fraction = Fraction(1)
) -> tuple[FlowNetwork, Whole, Whole]:
    """Make the sparse network: ordered values are neighbours, others are connected through nodes of their hierarchy.

    Values with distances of their own are connected in pairs.

    Returns:
        The network, the attribute of each edge, and by node the cell it stands for (-1 for a dummy).
    """
    shape = [attribute.size for attribute in attributes]
    index = np.arange(math.prod(shape)).reshape(shape)
    ends: list[tuple[Whole, Whole]] = []
    costs: list[Fraction] = []
    axes: list[int] = []
    nodes = index.size
    for number, attribute in enumerate(attributes):
        if attribute.weight is None:
            continue
        lines = np.moveaxis(index, number, 0).reshape(attribute.size, -1)
        if attribute.distances is not None:
            for one, other in combinations(range(len(attribute.distances)), 2):
                ends.append((lines[one], lines[other]))
                costs.append(attribute.weight * _fraction(attribute.distances[one, other]))
                axes.append(number)
            continue
        if attribute.chain:
            if attribute.chain > 1:
                ends.append((lines[: attribute.chain - 1].reshape(-1), lines[1 : attribute.chain].reshape(-1)))
                costs.append(attribute.weight / (attribute.chain - 1))
                axes.append(number)
            continue
        made, nodes = _connect_levels(lines, attribute, nodes)
        ends += made
        costs += [attribute.weight / (2 * (len(attribute.levels) + 1))] * len(made)
        axes += [number] * len(made)
    scale = math.lcm(alpha.denominator, *(cost.denominator for cost in costs))
    scale = scale if scale <= _EXACT else _ROUNDED
    lengths = [len(tail) for tail, _ in ends]
    empty = np.zeros(0, np.int64)
    network = FlowNetwork(
        tail=np.concatenate([empty, *(tail for tail, _ in ends)]),
        head=np.concatenate([empty, *(head for _, head in ends)]),
        cost=np.repeat(np.array([round(cost * scale) for cost in costs], np.int64), lengths),
        final=np.arange(nodes) < index.size,
        fine=round(alpha * scale),
    )
    return network, np.repeat(np.array(axes, np.int64), lengths), np.where(network.final, np.arange(nodes), -1)


def _connect_levels(lines: Whole, attribute: Attribute, nodes: int) -> tuple[list[tuple[Whole, Whole]], int]:
    """Return edges from values to their groups, from groups to coarser groups, and at last to the root."""
    edges, below = [], lines
    group = np.arange(attribute.size)
    for level in (*attribute.levels, np.zeros(attribute.size, np.int64)):
        above = nodes + np.arange((int(level.max()) + 1) * lines.shape[1]).reshape(-1, lines.shape[1])
        nodes += above.size
        first = np.unique(group, return_index=True)[1]
        edges.append((below.reshape(-1), above[level[first]].reshape(-1)))
        below, group = above, level
    return edges, nodes


def _check_tables(
    synthetic: NDArray[np.int64], real: NDArray[np.int64], attributes: Sequence[Attribute], tolerance: int
) -> None:
    shape = tuple(attribute.size for attribute in attributes)
    if synthetic.shape != shape or real.shape != shape:
        raise SettingError("mgd: the tables and the attributes have different shapes; count both with one schema")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int) or tolerance < 0:
        raise SettingError("mgd.tolerance must be a whole number of at least 0; correct it")
    finite = [attribute.weight for attribute in attributes if attribute.weight is not None]
    if any(weight < 0 for weight in finite) or (finite and abs(sum(finite, Fraction(-1))) > Fraction(1, 10**6)):
        raise SettingError("mgd: the finite weights of a marginal must be at least 0 and add up to 1")
    for attribute in attributes:
        if any(len(level) != attribute.size or (level < 0).any() for level in attribute.levels):
            raise SettingError("mgd: a hierarchy does not cover its column; give a group for every code")
        if attribute.distances is not None:
            _check_distances(attribute.distances, attribute.size)


def _check_distances(distances: NDArray[np.float64], size: int) -> None:
    """Refuse what is no table of distances: moving by a detour must not be cheaper than moving straight."""
    fits = distances.ndim == 2 and distances.shape[0] == distances.shape[1] <= size
    if not fits or not (np.isfinite(distances).all() and (distances >= 0).all() and (distances <= 1).all()):
        raise SettingError("mgd.distance: give a square table of numbers between 0 and 1, a row for each value")
    if np.diagonal(distances).any() or not np.allclose(distances, distances.T, atol=1e-9):
        raise SettingError("mgd.distance: distances must be symmetric, and 0 from a value to itself")
    if any((distances > row[:, None] + row[None, :] + 1e-9).any() for row in distances):
        raise SettingError("mgd.distance: a detour is shorter than the distance of two values; correct the table")


def _fraction(value: float) -> Fraction:
    return Fraction(float(value)).limit_denominator(_ROUNDED)


# -- the metric --


_WAY_WEIGHT = {1: 1.0, 2: 1.0, 3: 3.0}  # the paper's 1/9, 1/9 and 1/3


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `mgd`.

    Attributes:
        marginals: the target marginals; None: all sets of `ways` columns, as far as `most` and `cells` allow. Each is a
            list of columns, or a mapping with its own settings:
            ``{clique: [a, b], weight: 2, tolerance: 5, level: {a: region}, moving: {b: 1}}``.
        weights: one weight by marginal; None: 1 for one- and two-way marginals and 3 for three-way ones.
        ways: how many columns a marginal has when marginals are not given.
        most: the largest number of marginals for each entry of `ways`; they are drawn at random.
        cells: marginals with more cells than this are left out.
        tolerance: differences of a cell up to this are free; 2 in the paper's study.
        alpha: the cost of adding or removing a row; 1 in the paper's definition.
        moving: a column's weight within a marginal: a number, or None for "mass never moves along it". By default
            ordered columns, and those with distances, share 1 equally and the others have None.
        level: by column, the declared level at which it enters instead of its own values.
        hierarchy: by column, groups of its codes by level, finest first; default the schema's levels.
        distance: by column, a table of distances between its values, such as on a map, between 0 and 1.
        solver: "auto", "nearby" or "ortools"; all give the same.
    """

    marginals: tuple[Clique | Mapping[str, Any], ...] | None = None
    weights: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    ways: tuple[Positive, ...] = (1, 2, 3)
    most: Positive = 50
    cells: Positive = 100_000
    tolerance: Annotated[int, Field(ge=0)] = 2
    alpha: Annotated[float, Field(gt=0)] = 1.0
    moving: Mapping[str, float | None] = field(default_factory=dict)
    level: Mapping[str, str] = field(default_factory=dict)
    hierarchy: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    distance: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    solver: Solver = "auto"


@dataclass(frozen=True)
class Target:
    """A target marginal with its weight and settings."""

    clique: Clique
    weight: float
    tolerance: int
    level: Mapping[str, str]
    moving: Mapping[str, float | None]


def mgd(real: Counted, synthetic: Counted, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """Return the weighted mean over marginals of the cost of turning synthetic into real counts, per real row."""
    require_same_columns(real, synthetic)
    targets, notes = _choose_marginals(schema, settings, rng)
    columns = {column.name: column for column in schema.coded}
    found: list[tuple[Clique, Moves]] = []
    cliques = [target.clique for target in targets]
    for target, (_, one), (_, other) in zip(targets, real.counts(cliques), synthetic.counts(cliques), strict=True):
        attributes = _scale_weights([_make_attribute(columns[name], settings, target) for name in target.clique])
        made, wanted = (_merge_levels(table, target, columns) for table in (other, one))
        limits: Any = {"tolerance": target.tolerance, "alpha": _fraction(settings.alpha), "solver": settings.solver}
        found.append((target.clique, aemc(made, wanted, attributes, **limits)))
    costs = np.array([moves.cost for _, moves in found])
    weights = np.array([target.weight for target in targets])
    return METRIC.score(float(weights @ costs / weights.sum()), _make_parts(found, weights, columns), notes)


def _choose_marginals(
    schema: Schema, settings: Settings, rng: np.random.Generator
) -> tuple[list[Target], tuple[str, ...]]:
    sizes = {column.name: column.size for column in schema.coded}
    for name in (*settings.moving, *settings.level, *settings.hierarchy, *settings.distance):
        find_column(schema, name, "mgd")
    notes: tuple[str, ...] = (f"Differences of up to {settings.tolerance} rows in a cell are free.",)
    if settings.marginals is not None:
        targets = [_make_target(entry, schema, settings) for entry in settings.marginals]
    else:
        targets = []
        for way in settings.ways:
            fitting = [c for c in draw_cliques(sizes, way, 10_000, rng)[0] if _count_cells(c, sizes) <= settings.cells]
            if len(fitting) > settings.most:
                fitting = [fitting[place] for place in np.sort(rng.choice(len(fitting), settings.most, replace=False))]
            targets += [_make_target(clique, schema, settings) for clique in fitting]
        notes += (f"{len(targets)} marginals of at most {settings.cells:,} cells.",)
    if settings.weights is not None and len(settings.weights) == len(targets):
        targets = [replace(target, weight=weight) for target, weight in zip(targets, settings.weights, strict=True)]
    elif settings.weights is not None or not targets:
        raise SettingError("mgd: give at least one marginal, small enough for `cells`, and a positive weight for each")
    return targets, notes


_OWN = ("clique", "weight", "tolerance", "level", "moving")


def _make_target(entry: Clique | Mapping[str, Any], schema: Schema, settings: Settings) -> Target:
    """Return a target from a list of columns, or from a mapping with settings that win over those of all marginals."""
    own: dict[str, Any] = dict(entry) if isinstance(entry, Mapping) else {"clique": entry}
    if unknown := set(own) - set(_OWN):
        raise SettingError(f"mgd.marginals: a marginal has no {min(unknown)!r}; it has {', '.join(_OWN)}")
    named = own.get("clique") or ()
    clique = tuple(
        find_column(schema, name, "mgd.marginals").name for name in ([named] if isinstance(named, str) else named)
    )
    weight, tolerance = own.get("weight", _WAY_WEIGHT.get(len(clique), 1.0)), own.get("tolerance", settings.tolerance)
    good = isinstance(weight, int | float) and weight > 0 and isinstance(tolerance, int) and tolerance >= 0
    if not clique or not good or not all(isinstance(own.get(name, {}), Mapping) for name in ("level", "moving")):
        raise SettingError(
            "mgd.marginals: give a clique, a positive weight, a tolerance of at least 0, and mappings level and moving"
        )
    for name in (*own.get("level", {}), *own.get("moving", {})):
        find_column(schema, name, "mgd.marginals")
    level, moving = ({**getattr(settings, name), **own.get(name, {})} for name in ("level", "moving"))
    return Target(clique, float(weight), tolerance, level, moving)


def _count_cells(clique: Clique, sizes: Mapping[str, int]) -> int:
    return int(np.prod([sizes[name] for name in clique], dtype=np.float64))


def _make_attribute(column: Coded, settings: Settings, target: Target) -> Attribute:
    size, chain = column.size, column.ordinary if is_ordered(column) else 0
    levels = [level.groups for level in column.generalisations.values()]
    if column.name in settings.hierarchy:
        levels = [np.asarray(level, dtype=np.int64) for level in settings.hierarchy[column.name]]
    distances = None
    if column.name in settings.distance:
        try:
            distances = np.array(settings.distance[column.name], dtype=np.float64)
        except (TypeError, ValueError):
            distances = np.zeros((0, 1))
        _check_distances(distances, size)
    chosen = target.level.get(column.name)
    if chosen is not None:
        names = list(column.generalisations)
        if chosen not in names:
            raise SettingError(f"mgd.level: column {column.name!r} has no level {chosen!r}; it has {', '.join(names)}")
        groups = column.generalisations[chosen].groups
        size = int(groups.max()) + 1
        chain = len(np.unique(groups[: column.ordinary])) if chain else 0
        first = np.unique(groups, return_index=True)[1]
        levels = [level[first] for level in levels[names.index(chosen) + 1 :]]
        distances = None  # they are between the values themselves
    default = 1.0 if chain or distances is not None else None
    weight = target.moving.get(column.name, default)
    share = None if weight is None else _fraction(weight)
    return Attribute(size, share, chain, () if chain else tuple(levels), distances)


def _scale_weights(attributes: list[Attribute]) -> list[Attribute]:
    """Return the finite weights, scaled to add up to 1."""
    total = sum((attribute.weight for attribute in attributes if attribute.weight is not None), Fraction(0))
    if not total:
        return [Attribute(a.size) for a in attributes]
    return [replace(a, weight=None if a.weight is None else a.weight / total) for a in attributes]


def _merge_levels(table: Counts, target: Target, columns: Mapping[str, Coded]) -> NDArray[np.int64]:
    counts = to_dense(table)
    counts = counts.reshape([columns[name].size for name in target.clique])
    for axis, name in enumerate(target.clique):
        if name in target.level:
            groups = columns[name].generalisations[target.level[name]].groups
            merged = np.zeros((int(groups.max()) + 1, *np.delete(counts.shape, axis)), np.int64)
            np.add.at(merged, groups, np.moveaxis(counts, axis, 0))
            counts = np.moveaxis(merged, 0, axis)
    return counts


def _make_parts(
    found: list[tuple[Clique, Moves]], weights: NDArray[np.float64], columns: Mapping[str, Coded]
) -> list[Part]:
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
    parts += [Part("marginal", clique_text(clique), moves.cost) for clique, moves in worst]
    for clique, moves in worst[:3]:
        for place in np.argsort(-moves.cells.reshape(-1), kind="stable")[:5]:
            value = float(moves.cells.reshape(-1)[place])
            if value > 0:
                parts.append(Part("cell", _describe_cell(clique, place, moves, columns), value))
    return parts


def _describe_cell(clique: Clique, place: Any, moves: Moves, columns: Mapping[str, Coded]) -> str:
    words: list[str] = []
    for name, code in zip(clique, np.unravel_index(place, moves.cells.shape), strict=True):
        labels = columns[name].code_labels()
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
    meaning="What it costs to turn the synthetic tables of one, two and three columns into the real ones by moving, "
    "adding and removing rows, per real row. Moving to a neighbouring value is cheap, tiny differences are free.",
)
