"""Correct the model's tables with the unbiased measurements, and compute the variance of sums over them.

A model's table is not negative, and it fills in what was not measured. Both make it biased. A corrected table is the
table nearest to the model's (in chi-square distance) whose margins are the unbiased measurements (calibration, in
survey statistics). Its cells may be negative; sums over it are unbiased as far as they are sums over measured margins.
See docs/decisions/valid-inference.md.

Columns have two sets of codes here: declared codes, over which functions are given, and merged codes, over which the
model and most measurements are made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.errors import ReleaseError, SettingError
from understudy.measurement import Measurement, noisy_total, weighted_mean
from understudy.release.rows import find_members

if TYPE_CHECKING:
    from understudy.release.release import Release

Array: TypeAlias = NDArray[np.float64]

Functions: TypeAlias = Mapping[Clique, Array]
"""Some functions of a row. Each is a sum of tables over declared codes: by clique, an axis for the functions first."""

MOST_CELLS = 1 << 22
"""The largest table that is worked with."""

_ENTRIES = 1 << 23  # numbers of all functions together that are decomposed at a time
_MOST_ROWS = 1e13  # more rows than any table has
_KEPT = 1 << 16  # larger tables are not cached
_EXACT, _MOST_SWEEPS = 1e-6, 200
_UNLIKELY, _EVEN = 0.01, 0.1  # weights of a nearly independent table, for cells without rows in the model
_DRAWN = 1 << 17  # rows drawn for a sampling variance over more than MOST_CELLS cells


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The sources of error of corrected means.

    Attributes:
        noise: the covariance matrix due to the noise of the measurements.
        gaps: by clique that was not measured, the variance under the model of what remains of each function when its
            means given the measured margins are taken away; the relation of its columns is unknown.
        merged: by clique, the variance of each function among the codes that were merged into one.
    """

    noise: Array
    gaps: Mapping[Clique, Array]
    merged: Mapping[Clique, Array]


@dataclass(frozen=True, eq=False)
class _Margin:
    """The estimate of a clique's shares over merged codes, from the measurements alone.

    Attributes:
        shares: their inverse-variance mean.
        variance: the variance of each cell, or of all of them.
        before: of a merged column, the shares of its declared codes, measured before merging; else None.
        sigma: the standard deviation of each of these.
        part: by merged code, the part of the precision that comes from these.
    """

    shares: Array
    variance: Array
    before: Array | None = None
    sigma: float = 0.0
    part: Array | None = None


class CorrectedTables:
    """The corrected tables of a release.

    **Privacy.** Post-processing: reads the model, the measurements and the schema of a release.

    Args:
        release: the release. Measurements of linear queries are not used: their columns count as not measured.

    Raises:
        SettingError: for a release without a measured marginal.

    Attributes:
        rows: the number of rows: the public one, else the unbiased estimate by all measurements.
        declared: the columns with their declared codes.
    """

    def __init__(self, release: Release) -> None:
        self.declared = release.schema.domain
        self.model = release.model
        maps = release.recoding.maps
        self._place = {c: maps.get(c, np.arange(size)) for c, size in self.declared.items()}
        self._merged = frozenset(maps)
        self._chances = {c: np.ones(size) for c, size in self.declared.items()}
        self.members = find_members(release.recoding, release.schema, release.measurements, "spread")
        for column, members in self.members.items():
            self._chances[column][members.codes] = members.chances
        known = release.schema.rows_used
        tables = [m for m in release.measurements if m.query is None]
        if not tables:
            raise SettingError(
                f"{release.mechanism} measured linear queries and no marginals, which inference cannot use; "
                "use a release of another mechanism, such as mst"
            )
        self.rows = float(known) if known is not None else noisy_total(tables)
        if not self.rows < _MOST_ROWS:
            raise ReleaseError("the measurements add up to no possible number of rows; ask for a fresh copy")
        precision = math.fsum(1 / (m.sigma**2 * len(m.values)) for m in tables)
        self._total_variance = 0.0 if known is not None else 1 / precision / self.rows**2
        self._before = {c: [m for m in tables if m.clique == (c,) and self._is_before(m)] for c in self._merged}
        self._measured = [m for m in tables if len(m.values) == self.model.domain.cells(m.clique)]
        self.laplace = any(m.noise == "laplace" for m in tables)
        self._margins: dict[Clique, _Margin] = {}
        self._shares: dict[Clique, Array] = {}

    def _is_before(self, measurement: Measurement) -> bool:
        """Return whether a measurement is over declared codes that were merged afterwards."""
        cells = len(measurement.values)
        return cells == self.declared.cells(measurement.clique) != self.model.domain.cells(measurement.clique)

    @cached_property
    def cliques(self) -> list[frozenset[str]]:
        """The sets of columns that were measured together."""
        before = [(column,) for column, found in self._before.items() if found]
        return list(dict.fromkeys(map(frozenset, [*(m.clique for m in self._measured), *before])))

    def is_measured(self, clique: Iterable[str]) -> bool:
        """Return whether these columns were measured together."""
        wanted = set(clique)
        return not wanted or any(wanted <= measured for measured in self.cliques)

    def is_merged(self, column: str) -> NDArray[np.bool_]:
        """Return which declared codes of a column were merged with others."""
        merged: NDArray[np.bool_] = np.bincount(self._place[column])[self._place[column]] > 1
        return merged

    # -- the model's tables, over merged and over declared codes ---------------------------------------------------

    def shares(self, clique: Clique) -> Array:
        """Return the model's shares of the merged cells."""
        cells = self.model.domain.cells(clique)
        if clique in self._shares:
            return self._shares[clique]
        if cells > MOST_CELLS:
            names = ", ".join(map(repr, clique))
            raise SettingError(f"the marginal of {names} has more than {MOST_CELLS} cells; use fewer columns together")
        table = self.model.project(clique)
        shares: Array = table / table.sum()
        if cells <= _KEPT:
            self._shares[clique] = shares
        return shares

    def spread(self, clique: Clique, table: Array, given: str | None = None) -> Array:
        """Return a table of merged codes as one of declared codes, by the chances of each code within its merged code.

        The codes of the column `given` all keep the share of their merged code.
        """
        if not self._merged & set(clique):
            return table
        spread: Array = table[np.ix_(*(self._place[column] for column in clique))]
        for axis, column in enumerate(clique):
            if column in self._merged and column != given:
                spread = spread * _align_with_axis(self._chances[column], axis, len(clique))
        return spread

    def _merge(self, clique: Clique, tables: Array) -> Array:
        """Average tables of declared codes (from the second axis on) to merged codes, by the chances of each code."""
        for axis, column in enumerate(clique, 1):
            if column in self._merged:
                members = self.members[column]
                ordered = tables.take(members.codes, axis) * _align_with_axis(members.chances, axis, tables.ndim)
                tables = np.add.reduceat(ordered, members.starts, axis)
        return tables

    # -- unbiased margins ------------------------------------------------------------------------------------------

    def _margin(self, clique: Clique) -> _Margin:
        if clique not in self._margins:
            self._margins[clique] = self._find_margin(clique)
        return self._margins[clique]

    def _find_margin(self, clique: Clique) -> _Margin:
        shape, wanted = self.model.domain.shape(clique), set(clique)
        found: list[tuple[Array, Array]] = []
        for measurement in self._measured:
            if wanted <= set(measurement.clique):
                table = measurement.values.reshape(self.model.domain.shape(measurement.clique)).astype(np.float64)
                own = [column for column in measurement.clique if column in wanted]
                axes = tuple(i for i, column in enumerate(measurement.clique) if column not in wanted)
                margin = table.sum(axis=axes).transpose([own.index(column) for column in clique]) / self.rows
                variance = measurement.sigma**2 * table.size / math.prod(shape) / self.rows**2
                found.append((margin, np.full(shape, 1 / variance)))
        before = self._before.get(clique[0], []) if len(clique) == 1 else []
        if not before:
            mean, precision = weighted_mean(found)
            return _Margin(mean, 1 / precision)
        looks: list[tuple[Array, float]] = [(m.values / self.rows, (self.rows / m.sigma) ** 2) for m in before]
        values, own_precision = weighted_mean(looks)
        place = self._place[clique[0]]
        sums: Array = np.bincount(place, values).astype(np.float64)
        certain: Array = own_precision / np.bincount(place)
        mean, precision = weighted_mean([*found, (sums, certain)])
        return _Margin(mean, 1 / precision, values, float(own_precision**-0.5), certain / precision)

    def _measured_parts(self, clique: Clique) -> list[Clique]:
        """Return the largest parts of a clique that were measured together, in the order of its columns."""
        parts = {frozenset(clique) & measured for measured in self.cliques} - {frozenset()}
        largest = [part for part in parts if not any(part < other for other in parts)]
        return sorted((tuple(c for c in clique if c in part) for part in largest), key=lambda p: (-len(p), p))

    def _difference(self, clique: Clique) -> Array:
        """Return the correction of the model's shares of a measured clique that makes its margins unbiased."""
        shape = self.model.domain.shape(clique)
        difference, model = np.zeros(shape), self.shares(clique)
        for size in range(1, len(clique) + 1):
            for axes in combinations(range(len(clique)), size):
                others = tuple(i for i in range(len(clique)) if i not in axes)
                apart = self._margin(tuple(clique[i] for i in axes)).shares - model.sum(axis=others)
                own = _components(apart[None])[tuple(range(size))][0]
                difference += np.expand_dims(own, others) / math.prod(shape[i] for i in others)
        return difference

    def table(self, clique: Clique) -> Array:
        """Return the corrected shares of the declared cells of a clique."""
        base = self.shares(clique)
        measured = self._measured_parts(clique)
        change = self._difference(clique) if clique in measured else self._calibrate(clique, measured)
        table = self.spread(clique, base + change)
        for axis, column in enumerate(clique):
            if self._before.get(column):
                margin = self._margin((column,))
                place = self._place[column]
                assert margin.before is not None  # noqa: S101 - measured before merging
                within = margin.before - self._chances[column] * np.bincount(place, margin.before)[place]
                table = table + self._conditional_shares(clique, axis, base) * _align_with_axis(
                    within, axis, len(clique)
                )
        return table

    def _conditional_shares(self, clique: Clique, axis: int, base: Array) -> Array:
        """Return the model's shares of the other columns, given the merged code of one column, over declared codes."""
        others = tuple(i for i in range(len(clique)) if i != axis)
        margin = base.sum(axis=others, keepdims=True)
        alone = np.expand_dims(base.sum(axis=axis), axis)
        given = np.divide(base, margin, out=np.broadcast_to(alone, base.shape).copy(), where=margin > 0)
        return self.spread(clique, given, clique[axis])

    def weights(self, clique: Clique) -> Array:
        """Return the model's shares, mixed with independent ones, because noise may leave cells without rows."""
        base = self.shares(clique)
        even = np.ones(())
        for axis in range(base.ndim):
            margin = base.sum(axis=tuple(i for i in range(base.ndim) if i != axis))
            even = np.multiply.outer(even, (1 - _EVEN) * margin + _EVEN / len(margin))
        return (1 - _UNLIKELY) * base + _UNLIKELY * even

    def _calibrate(self, clique: Clique, parts: Sequence[Clique]) -> Array:
        """Return the smallest change, in chi-square distance, after which every measured part has its unbiased margin.

        Margins are taken of the clique's own table: the tables of a model made of rows need not agree with each other.
        """
        base, weights = self.shares(clique), self.weights(clique)
        change = np.zeros_like(weights)
        sides = []
        for part in parts:
            axes = tuple(i for i, column in enumerate(clique) if column not in part)
            wanted = np.expand_dims(self.shares(part) + self._difference(part), axes)
            sides.append((axes, wanted - base.sum(axis=axes, keepdims=True), weights.sum(axis=axes, keepdims=True)))
        before = math.inf
        for _ in range(_MOST_SWEEPS):
            largest = 0.0
            for axes, wanted, margin in sides:
                missing = wanted - change.sum(axis=axes, keepdims=True)
                change += weights * (missing / margin)
                largest = max(largest, float(np.abs(missing).max()))
            if len(sides) == 1 or largest < _EXACT * 1e-2 or (largest < _EXACT and largest > 0.9 * before):
                break
            before = largest
        return change

    # -- the variance of sums over corrected tables ----------------------------------------------------------------

    def uncertainty(self, functions: Functions) -> Uncertainty:
        """Find the variances of the corrected means of functions whose corrected means are 0."""
        count = len(next(iter(functions.values())))
        total = _Decomposed.empty(count)
        for clique, tables in functions.items():
            step = max(1, _ENTRIES // max(1, tables[0].size))
            pieces = [self._decompose(clique, tables[i : i + step]) for i in range(0, count, step)]
            total.add(_Decomposed.join(pieces))
        return Uncertainty(self._noise(total, count), total.gaps, total.merged)

    def _decompose(self, clique: Clique, tables: Array) -> _Decomposed:
        """Split functions of a clique into functions of measured margins and a remainder."""
        count, base = len(tables), self.shares(clique)
        found = _Decomposed.empty(count)
        if self._merged & set(clique):
            tables = self._take_out_codes(clique, tables, base, found)
        measured = self._measured_parts(clique)
        if clique in measured or not clique:
            parts = {clique: tables}
        else:
            parts, rest = self._backfit(clique, tables, measured)
            found.gaps[clique] = (rest**2 * base).sum(axis=tuple(range(1, rest.ndim)))
        for part, values in parts.items():
            for axes, component in _components(values).items():
                name = tuple(part[i] for i in axes)
                component = component.reshape(count, *self.model.domain.shape(name))
                found.parts[name] = found.parts[name] + component if name in found.parts else component
        return found

    def _take_out_codes(self, clique: Clique, tables: Array, base: Array, found: _Decomposed) -> Array:
        """Remove what measurements over declared codes explain; return the averages over merged codes."""
        left = tables
        for axis, column in enumerate(clique):
            if self._before.get(column):
                others = tuple(i + 1 for i in range(len(clique)) if i != axis)
                means = (tables * self._conditional_shares(clique, axis, base)).sum(axis=others)
                averages = self._merge((column,), means)
                within = means - averages[:, self._place[column]]
                found.within[column] = within
                left = left - np.expand_dims(within, others)
        averages = self._merge(clique, left)
        every: tuple[Any, ...] = np.ix_(np.arange(len(tables)), *(self._place[column] for column in clique))
        spread = averages[every]
        weights = self.spread(clique, base)
        found.merged[clique] = ((left - spread) ** 2 * weights).sum(axis=tuple(range(1, tables.ndim)))
        return averages

    def _backfit(self, clique: Clique, tables: Array, measured: Sequence[Clique]) -> tuple[dict[Clique, Array], Array]:
        """Approximate functions by sums of functions of the measured parts; return these and the remainder."""
        weights = self.weights(clique)
        rest, found = tables.copy(), {}
        sides = []
        for part in measured:
            axes = tuple(i + 1 for i, column in enumerate(clique) if column not in part)
            given = weights / weights.sum(axis=tuple(i - 1 for i in axes), keepdims=True)
            sides.append((part, axes, given))
            found[part] = np.zeros((len(tables), *self.model.domain.shape(part)))
        largest = float(np.abs(tables).max())
        for _ in range(_MOST_SWEEPS):
            moved = 0.0
            for part, axes, given in sides:
                means = (rest * given).sum(axis=axes, keepdims=True)
                rest -= means
                found[part] += means.reshape(found[part].shape)
                moved = max(moved, float(np.abs(means).max()))
            if len(sides) == 1 or moved <= _EXACT * largest:
                break
        return found, rest

    def _noise(self, total: _Decomposed, count: int) -> Array:
        constant = total.parts.pop((), np.zeros(count)).reshape(count)
        noise: Array = self._total_variance * np.outer(constant, constant)
        for clique in {*total.parts, *((column,) for column in total.within)}:
            margin = self._margin(clique)
            values = total.parts.get(clique, np.zeros((count, *self.model.domain.shape(clique)))).reshape(count, -1)
            variance = margin.variance.reshape(-1)
            if margin.part is not None:
                place = self._place[clique[0]]
                codes = total.within.get(clique[0], np.zeros((count, len(place)))) + (values * margin.part)[:, place]
                noise = noise + margin.sigma**2 * codes @ codes.T
                variance = variance * (1 - margin.part)
            noise = noise + (values * variance) @ values.T
        return noise

    # -- sampling --------------------------------------------------------------------------------------------------

    def sampling(self, functions: Functions) -> Array:
        """Return the sampling variance of each function's mean, for rows drawn from the model."""
        columns = self.declared.canonical({column for clique in functions for column in clique})
        count = len(next(iter(functions.values())))
        if self.declared.cells(columns) <= MOST_CELLS:
            weights = self.spread(columns, self.shares(columns))
            found = np.empty(count)
            for number in range(count):
                one = {
                    clique: expand(tables[number : number + 1], clique, columns) for clique, tables in functions.items()
                }
                values = sum(one.values(), np.zeros(()))[0]
                mean = float((values * weights).sum())
                found[number] = float(((values - mean) ** 2 * weights).sum())
            return found / self.rows
        rng = np.random.default_rng(0)
        drawn = self.model.sample(_DRAWN, rng)
        codes = {c: self.members[c].draw(drawn[c], rng) if c in self._merged else drawn[c] for c in columns}
        values = np.zeros((count, _DRAWN))
        for clique, tables in functions.items():
            place: tuple[Any, ...] = (slice(None), *(codes[column] for column in clique))
            values += tables[place] if clique else tables[:, None]
        variance: Array = np.var(values, axis=1) / self.rows
        return variance


@dataclass(eq=False)
class _Decomposed:
    """Functions as sums over measured margins: their components by clique, and the remainder."""

    parts: dict[Clique, Array]
    within: dict[str, Array]
    gaps: dict[Clique, Array]
    merged: dict[Clique, Array]

    @classmethod
    def empty(cls, count: int) -> _Decomposed:
        return cls({(): np.zeros(count)}, {}, {}, {})

    @classmethod
    def join(cls, pieces: Sequence[_Decomposed]) -> _Decomposed:
        """Return the decomposition of all functions, from those of some at a time."""
        if len(pieces) == 1:
            return pieces[0]

        def join_parts(name: str) -> dict[Any, Array]:
            return {key: np.concatenate([getattr(p, name)[key] for p in pieces]) for key in getattr(pieces[0], name)}

        return cls(join_parts("parts"), join_parts("within"), join_parts("gaps"), join_parts("merged"))

    def add(self, other: _Decomposed) -> None:
        """Add the decomposition of further terms of the same functions."""
        for mine, theirs in ((self.parts, other.parts), (self.within, other.within)):
            for key, values in theirs.items():
                mine[key] = mine[key] + values if key in mine else values  # type: ignore[index]
        self.gaps |= other.gaps
        self.merged |= other.merged


# -- tables and their axes


def _align_with_axis(values: Array, axis: int, axes: int) -> Array:
    """Return a vector along one axis of a table."""
    return values.reshape([-1 if i == axis else 1 for i in range(axes)])


def expand(tables: Array, clique: Clique, columns: Clique) -> Array:
    """Expand tables of a clique (from the second axis on) to the axes of more columns, in the same order."""
    return np.expand_dims(tables, tuple(i for i, column in enumerate(columns, 1) if column not in clique))


def _components(tables: Array) -> dict[tuple[int, ...], Array]:
    """Split tables (from the second axis on) into orthogonal parts, by the axes along which a part varies.

    A part has mean 0 along each of its axes; along the others it is constant and has length 1. The parts add up to the
    tables.
    """
    parts: dict[tuple[int, ...], Array] = {(): tables}
    for axis in range(tables.ndim - 1):
        split = {}
        for axes, table in parts.items():
            mean = table.mean(axis=axis + 1, keepdims=True)
            split[axes], split[*axes, axis] = mean, table - mean
        parts = split
    return parts
