"""Numeric axes, and the columns on them: what integers, numbers, dates, datetimes and durations share."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from understudy.schema.column import Coded, Codes, Entry, Generalisation, Level, group_intervals
from understudy.schema.text import EMPTY, Dialect, meaning, meanings, to_plain_text, to_text

Array: TypeAlias = NDArray[Any]
Draw: TypeAlias = Literal["uniform", "midpoint", "lower"]

EXACT_UP_TO = 200
"""Without declared bins, an axis of at most this many points has one code per point."""
DEFAULT_BINS = 100
"""Without declared bins, a longer axis is cut into this many bins."""
_LOOKUP_UP_TO = 1 << 21
_FIXED = {"midpoint": 0.5, "lower": 0.0}  # where in its bin a value is that is not drawn at random
_SHARES = 1000  # places in a bin over which its values are averaged


class TopRule(BaseModel):
    """The open top bin: all values from `start` (written `from`) up to the maximum have one code.

    Its values are drawn uniformly, are always `value`, or have a Pareto law of exponent `alpha`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: float | str = Field(alias="from")
    rule: Literal["uniform", "value", "pareto"] = "uniform"
    value: float | str | None = None
    alpha: float | None = None

    @model_validator(mode="after")
    def _check_needs(self) -> TopRule:
        if (self.rule == "value") != (self.value is not None):
            raise ValueError("`top`: `rule: value` and `value` belong together; give both or neither")
        if (self.rule == "pareto") != (self.alpha is not None) or (self.alpha is not None and not self.alpha > 0):
            raise ValueError("`top`: `rule: pareto` needs a positive `alpha`, and no other rule has one; correct it")
        return self


@dataclass(frozen=True, eq=False)
class Axis:
    """A numeric axis cut into codes, in ascending order: half-open bins and single values (spikes).

    On a grid (`grain` > 0) all ends are whole numbers of units, and an interval holds the points ``lower, lower +
    grain, ... < upper`` that are not spikes. On the real line (`grain` 0) an interval is ``[lower, upper)``, and the
    last one is closed.

    Attributes:
        lower: lower end by code.
        upper: upper end by code (for a spike: the spike itself).
        spike: by code, whether it is a single value.
        grain: distance between two points of the grid, 0 for the real line.
        top: the rule of the open top bin, the last code, in units; None if there is none.
        points: sorted values from which a bin's value is drawn; a bin without any follows `draw`.
        holes: values that are never drawn, because they have another meaning (a missing code between the bounds).
    """

    lower: Array
    upper: Array
    spike: NDArray[np.bool_]
    grain: int
    top: TopRule | None = None
    points: Array | None = None
    holes: Array | None = None

    @property
    def size(self) -> int:
        """The number of codes."""
        return len(self.lower)

    @property
    def first(self) -> Any:
        """The smallest value inside the bounds."""
        return self.lower.min()

    @property
    def last(self) -> Any:
        """The largest value inside the bounds."""
        return self.upper.max() if not self.grain else np.where(self.spike, self.upper, self.upper - 1).max()

    @cached_property
    def _bins(self) -> NDArray[np.int64]:
        return np.flatnonzero(~self.spike)

    @cached_property
    def _spikes(self) -> tuple[Array, NDArray[np.int64]]:
        codes = np.flatnonzero(self.spike)
        return self.lower[codes], codes

    @cached_property
    def _lookup(self) -> NDArray[np.int32] | None:
        """The code of every unit between the bounds, if that is a small table."""
        span = int(self.last) - int(self.first) + 1 if self.grain else 0
        if not 0 < span <= _LOOKUP_UP_TO:
            return None
        return self._search(np.arange(int(self.first), int(self.last) + 1))

    def encode(self, values: Array) -> NDArray[np.int32]:
        """Encode finite values (whole units on a grid); values outside the bounds are clipped."""
        if len(values) < 1000 or self._lookup is None:  # the table costs more than a few searches
            return self._search(np.clip(values, self.first, self.last))
        codes: NDArray[np.int32] = self._lookup[np.clip(values, self.first, self.last) - self.first]
        return codes

    def _search(self, values: Array) -> NDArray[np.int32]:
        codes = np.zeros(len(values), dtype=np.int32)
        if len(self._bins):
            codes[:] = self._bins[np.searchsorted(self.lower[self._bins][1:], values, side="right")]
        singles, single_codes = self._spikes
        if len(singles):
            at = np.minimum(np.searchsorted(singles, values), len(singles) - 1)
            hit = singles[at] == values
            codes[hit] = single_codes[at[hit]]
        return codes

    def decode(self, codes: Array, rng: np.random.Generator, draw: Draw = "uniform") -> Array:
        """Draw a value for each code inside its bin; `encode` gives the codes back."""
        return self._place(codes, rng.random(len(codes)) if draw == "uniform" else np.full(len(codes), _FIXED[draw]))

    def mean_values(self, draw: Draw = "uniform") -> NDArray[np.float64]:
        """Return, by code, the mean of the values that `decode` draws for it."""
        shares = (np.arange(_SHARES) + 0.5) / _SHARES if draw == "uniform" else np.array([_FIXED[draw]])
        values = self._place(np.repeat(np.arange(self.size), len(shares)), np.tile(shares, self.size))
        mean: NDArray[np.float64] = values.reshape(self.size, -1).mean(axis=1)
        return mean

    def _place(self, codes: Array, share: NDArray[np.float64]) -> Array:
        """Return the value at a share of each code's bin."""
        values = self._draw_on_grid(codes, share) if self.grain else self._draw_on_line(codes, share)
        if self.points is not None:
            values = self._draw_at_points(self.points, values, codes, share)
        if self.top is not None and len(self._bins):
            self._draw_at_top(self.top, values, codes, share)
        return values

    @cached_property
    def reserved(self) -> Array:
        """Spikes and holes in ascending order: values that a bin never draws."""
        return self._spikes[0] if self.holes is None else np.unique(np.concatenate((self._spikes[0], self.holes)))

    @cached_property
    def _free(self) -> NDArray[np.int64]:
        """The number of grid points from which each code's value is drawn."""
        count = np.where(self.spike, 1, -((self.lower - self.upper) // max(self.grain, 1)))
        for single in self.reserved:
            count -= ~self.spike & self._holds(single)
        return count

    def _holds(self, single: Any) -> NDArray[np.bool_]:
        held: NDArray[np.bool_] = (self.lower <= single) & (single < self.upper)
        return held & ((single - self.lower) % self.grain == 0) if self.grain else held

    def _draw_on_grid(self, codes: Array, share: NDArray[np.float64]) -> Array:
        free = self._free[codes]
        step = np.minimum((share * free).astype(np.int64), free - 1)
        values: Array = self.lower[codes] + step * self.grain
        for single in self.reserved:  # ascending: each reserved value at or below moves the value up by a point
            pushed = (self._holds(single) & ~self.spike)[codes] & (values >= single)
            values[pushed] += self.grain
        return values

    def _draw_on_line(self, codes: Array, share: NDArray[np.float64]) -> Array:
        lower, upper = self.lower[codes], self.upper[codes]
        values: Array = np.minimum(lower + share * (upper - lower), np.nextafter(upper, lower))
        for single in self.reserved:
            clash = (values == single) & ~self.spike[codes]
            values[clash] = np.nextafter(values[clash], upper[clash])
        return values

    def _draw_at_points(self, points: Array, values: Array, codes: Array, share: NDArray[np.float64]) -> Array:
        owner = self._search(points)
        order = np.argsort(owner, kind="stable")
        count = np.bincount(owner, minlength=self.size)
        start = np.concatenate(([0], np.cumsum(count)[:-1]))
        has = (count > 0)[codes]
        picked = start[codes] + np.minimum((share * count[codes]).astype(np.int64), np.maximum(count[codes] - 1, 0))
        return np.where(has, points[order][np.where(has, picked, 0)], values)

    def _draw_at_top(self, top: TopRule, values: Array, codes: Array, share: NDArray[np.float64]) -> None:
        code = self._bins[-1]
        at = np.flatnonzero(codes == code)
        if top.rule == "value":
            values[at] = top.value
        elif top.rule == "pareto":
            lower, upper, alpha = float(self.lower[code]), float(self.last), float(top.alpha or 1.0)
            kept = 1.0 - share[at] * (1.0 - (lower / upper) ** alpha)
            drawn = np.clip(lower * kept ** (-1.0 / alpha), lower, upper)
            drawn = np.floor(drawn) if self.grain else drawn
            values[at] = np.where(np.isin(drawn, self.reserved), values[at], drawn)


def build_axis(
    edges: Array,
    spikes: Array,
    *,
    grain: int,
    top: TopRule | None = None,
    points: Array | None = None,
    holes: Array | None = None,
) -> Axis:
    """Build an axis from the bins between consecutive edges (on a grid without the last edge) and spikes.

    Empty bins are dropped.
    """
    spikes = spikes if holes is None else np.setdiff1d(spikes, holes)
    points = points if holes is None or points is None else np.setdiff1d(points, holes)
    lower, upper = edges[:-1], edges[1:]
    spikes = np.unique(spikes)
    last = edges[-1] - 1 if grain else edges[-1]
    spikes = spikes[(spikes >= edges[0]) & (spikes <= last)]
    bins = Axis(lower, upper, np.zeros(len(lower), dtype=np.bool_), grain)
    reserved = spikes if holes is None else np.union1d(spikes, holes)
    if grain and len(reserved):
        taken = sum((bins._holds(single).astype(np.int64) for single in reserved), np.zeros(len(lower), dtype=np.int64))
        left = bins._free > taken
        lower, upper = lower[left], upper[left]
    is_spike = np.concatenate((np.zeros(len(lower), np.bool_), np.ones(len(spikes), np.bool_)))
    starts, ends = np.concatenate((lower, spikes)), np.concatenate((upper, spikes))
    order = np.lexsort((~is_spike, starts))
    return Axis(starts[order], ends[order], is_spike[order], grain, top, points, holes)


def cut_axis(minimum: float, maximum: float, bins: int | None, *, grain: int, log: bool) -> Array:
    """Return the edges of `bins` bins (None: the default) of equal width, or of equal width in logarithms."""
    if grain:
        return _cut_grid(int(minimum), int(maximum), bins, grain, log)
    wanted = bins or DEFAULT_BINS
    return _geometric(minimum, maximum, wanted) if log else np.linspace(minimum, maximum, wanted + 1)


def _cut_grid(minimum: int, maximum: int, bins: int | None, grain: int, log: bool) -> Array:
    count = (maximum - minimum) // grain + 1
    wanted = (count if count <= EXACT_UP_TO else DEFAULT_BINS) if bins is None else min(bins, count)
    if not log:
        starts = [minimum + grain * (place * count // wanted) for place in range(wanted)]
        return np.asarray([*starts, maximum + 1], dtype=np.int64)
    inner = np.rint(_geometric(minimum, maximum + 1, wanted)[1:-1] / grain).astype(np.int64) * grain
    inner = np.clip(inner, minimum + grain, maximum)
    return np.unique(np.concatenate(([minimum], inner[inner > minimum], [maximum + 1])))


def _geometric(minimum: float, maximum: float, bins: int) -> NDArray[np.float64]:
    shift = 1.0 if minimum == 0 else 0.0
    edges = np.geomspace(minimum + shift, maximum + shift, bins + 1) - shift
    edges[0], edges[-1] = minimum, maximum
    return edges


# -- Columns on an axis ----------------------------------------------------------------------------------------------


class Bins(BaseModel):
    """Bins given by their width or by explicit edges. A number of bins is written as a plain number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: float | str | None = None
    edges: tuple[float | str, ...] | None = None

    @model_validator(mode="after")
    def _check_choice(self) -> Bins:
        if (self.width is None) == (self.edges is None):
            raise ValueError("`bins` takes a number of bins, or `width`, or `edges`; give exactly one")
        return self


class AxisColumn(Coded):
    """A column on a numeric axis between declared bounds. Values outside are clipped, unless `outside` says otherwise.

    Attributes:
        minimum: the lower bound.
        maximum: the upper bound.
        bins: the number of bins, their width or their edges; None: one code per value up to 200 values, else 100 bins.
        scale: whether bins by count have equal widths, or equal widths in logarithms.
        spikes: values kept as their own codes.
        top: the rule of an open top bin.
        draw: how a value inside a bin is drawn: anywhere, in the middle, or at the lower end.
        points: values to draw from inside a bin.
        outside: how values outside the bounds are treated.
    """

    minimum: float | str | None = None
    maximum: float | str | None = None
    bins: int | Bins | None = None
    scale: Literal["linear", "log"] = "linear"
    spikes: tuple[float | str, ...] = ()
    top: TopRule | None = None
    draw: Draw = "uniform"
    points: tuple[float | str, ...] = ()
    outside: Literal["clip", "unknown"] = "clip"

    # -- in units of the axis ------------------------------------------------------------------------------------

    @abstractmethod
    def unit_of(self, value: float | str, key: str) -> Any:
        """Convert a declared value to units of the axis (whole numbers on a grid)."""

    @abstractmethod
    def width_of(self, width: float | str) -> Any:
        """Convert a declared width to units of the axis."""

    @property
    @abstractmethod
    def grain(self) -> int:
        """The distance between two points of the grid in units; 0 for the real line."""

    @abstractmethod
    def units_of_text(self, text: Any, dialect: Dialect) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Convert texts to units; also return which of them are finite values."""

    @abstractmethod
    def units_of_typed(self, cells: Any) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        """Convert cells that are not text to units; None for a type without units."""

    @abstractmethod
    def from_units(self, units: NDArray[Any]) -> Any:
        """Convert units to an arrow array of values."""

    @property
    def per_unit(self) -> float:
        """The number of units in one of what people count in: 100 for two decimals, a million for seconds."""
        return 1.0

    def units(self, cells: Any, dialect: Dialect) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Convert any arrow column to units of the axis; also return which cells are values."""
        cells = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
        converted = self.units_of_typed(cells)
        return converted or self._parse_units(to_plain_text(to_text(cells, dialect.decimal)), dialect)

    def _parse_units(self, text: Any, dialect: Dialect) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Convert texts to units, as they are written or else by what they mean."""
        units, valid = self.units_of_text(text, dialect)
        if len(odd := np.flatnonzero(~valid)):
            units, valid = units.copy(), valid.copy()
            meant = meanings(text.take(pa.array(odd)), dialect.decimal, dialect.group)
            units[odd], valid[odd] = self.units_of_text(meant, dialect)
        return units, valid

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        """Minimum and maximum in units, from the declared bounds or the outermost edges."""
        edges = self.bins.edges if isinstance(self.bins, Bins) and self.bins.edges else None
        ends: list[Any] = []
        for key, declared, edge in (("minimum", self.minimum, 0), ("maximum", self.maximum, -1)):
            if declared is None and edges is None:
                raise ValueError(
                    f"`{key}` is not declared; add it under `constraints`, or discover it with `understudy: "
                    "{bounds: discover}`: bounds are never guessed"
                )
            end = None if declared is None else self.unit_of(declared, key)
            outer = self.unit_of(edges[edge], "bins") if edges is not None else end
            if end is not None and outer != end:
                raise ValueError(f"`{key}` and the outermost of `bins.edges` differ; make them equal or drop one")
            ends.append(outer)
        low, high = ends[0], ends[1]
        if not (low < high or (low == high and self.grain)):
            raise ValueError("`minimum` is not below `maximum`; swap or correct the bounds")
        return low, high

    @cached_property
    def axis(self) -> Axis:
        """The axis of this column."""
        edges = self._edges()
        dtype = np.int64 if self.grain else np.float64
        spikes = self._convert_inside("spikes", self.spikes)
        points = np.sort(np.asarray(self._convert_inside("points", self.points), dtype=dtype)) if self.points else None
        top = None
        if self.top is not None:
            start = self._convert_inside("top", (self.top.start,))[0]
            edges = np.concatenate((edges[edges < start], [start], edges[-1:])).astype(dtype)
            value = None if self.top.value is None else self.unit_of(self.top.value, "top")
            if value is not None and not start <= value:
                raise ValueError("`top`: `value` lies below `from`; correct one of them")
            if self.top.rule == "pareto" and not start > 0:
                raise ValueError("`top`: `rule: pareto` needs `from` above 0; use `uniform` or `value`")
            top = self.top.model_copy(update={"start": start, "value": value})
        tokens = [unit for _, unit in self._token_units]
        holes = np.asarray(sorted(set(tokens)), dtype=dtype) if tokens else None
        made = build_axis(edges, np.asarray(spikes, dtype=dtype), grain=self.grain, top=top, points=points, holes=holes)
        if not made.size:
            raise ValueError("`missing` takes every value between the bounds; widen the bounds or remove a code")
        return made

    def _convert_inside(self, key: str, values: Sequence[float | str]) -> list[Any]:
        units = [self.unit_of(value, key) for value in values]
        low, high = self.bounds
        if any(not low <= unit <= high for unit in units):
            raise ValueError(f"`{key}` holds a value outside the bounds; widen the bounds or remove the value")
        return units

    def _edges(self) -> NDArray[Any]:
        low, high = self.bounds
        if not isinstance(self.bins, Bins):
            if self.bins is not None and self.bins < 1:
                raise ValueError("`bins` must be at least 1; give the number of bins wanted")
            check_bin_count(self.bins or 0, "`bins`")
            if self.scale == "log" and low < 0:
                raise ValueError(
                    "`scale: log` needs bounds of at least 0; give `bins.edges` instead, or raise `minimum`"
                )
            return cut_axis(low, high, self.bins, grain=self.grain, log=self.scale == "log")
        if self.scale == "log":
            raise ValueError("`scale: log` goes with a number of bins; remove `scale`, or `width`/`edges`")
        if self.bins.width is not None:
            return self._cut_by_width(self.width_of(self.bins.width))
        edges = [self.unit_of(edge, "bins") for edge in self.bins.edges or ()]
        if len(edges) < 2 or any(a >= b for a, b in itertools.pairwise(edges)):
            raise ValueError("`bins.edges` needs at least two edges in ascending order; sort them, name each once")
        return np.asarray([*edges[:-1], high + 1] if self.grain else edges)

    def _cut_by_width(self, width: Any) -> NDArray[Any]:
        low, high = self.bounds
        if not width > 0:
            raise ValueError("`bins.width` must be positive; give the width of a bin")
        if self.grain and width % self.grain:
            raise ValueError("`bins.width` must be a multiple of the column's precision; correct the width")
        count = math.ceil((high - low) / width) if not self.grain else -((low - high - 1) // width)
        check_bin_count(count, "`bins.width`")
        inner = low + np.arange(count) * width
        return np.append(inner, high + 1 if self.grain else high)

    @model_validator(mode="after")
    def _check_bins(self) -> AxisColumn:
        _ = self.axis
        _ = self.generalisations
        return self

    def group(self, level: Level, before: Generalisation | None) -> tuple[NDArray[np.int64], list[str]]:
        """Group codes by width or by edges."""
        if level.groups is not None:
            raise ValueError(f"level {level.name!r}: numbers and times are grouped by `width` or `edges`; use one")
        edges = self.level_edges(level)
        last = np.where(self.axis.spike, self.axis.upper, self.axis.upper - 1)
        if not self.grain:
            last = np.where(self.axis.spike, self.axis.upper, np.nextafter(self.axis.upper, self.axis.lower))
        ends = [*edges.tolist()[1:], None]
        return group_intervals(
            level, self.axis.lower, last, edges, [self.span(*pair) for pair in zip(edges, ends, strict=True)]
        )

    def level_edges(self, level: Level) -> NDArray[Any]:
        """Return where the groups of a level begin, in units."""
        if level.edges is not None:
            return np.asarray([self.unit_of(edge, f"levels.{level.name}") for edge in level.edges])
        width = self.width_of(level.width or 0)
        if not width > 0:
            raise ValueError(f"level {level.name!r}: `width` must be positive; correct it")
        low, high = self.bounds
        check_bin_count(high // width - low // width, f"level {level.name!r}: `width`")
        edges: NDArray[Any] = np.arange(low // width, high // width + 1) * width
        return edges

    def span(self, low: Any, high: Any) -> str:
        """Describe an interval ``[low, high)`` in words; None is the open end."""
        text = self.from_units(np.asarray([low] if high is None else [low, high])).to_pylist()
        return f"{text[0]} and above" if high is None else f"{text[0]} to under {text[1]}"

    @property
    def ordinary_labels(self) -> list[str]:
        """The first and last value of each bin, or the only one."""
        axis, labels = self.axis, []
        for lower, upper, spike in zip(axis.lower, axis.upper, axis.spike, strict=True):
            last = lower if spike else self._last_unit(lower, upper)
            low, high = self.format_unit(lower), self.format_unit(last)
            labels.append(low if last <= lower else f"{low} to {high}")
        return labels

    @property
    def needs_histogram(self) -> bool:
        """Whether a chart has too little room for the names of all bins; those of intervals of time are long."""
        return self.ordinary > (12 if self.kind in ("integer", "number") else 4)

    def axis_edges(self) -> list[str]:
        """Return labels of where the bins begin, and of the largest value."""
        axis, top = self.axis, int(np.argmax(self.axis.upper))
        last = max(axis.lower.max(), self._last_unit(axis.lower[top], axis.upper[top]))  # which may be a spike
        return [self.format_unit(unit) for unit in (*axis.lower, last)]

    def _last_unit(self, lower: Any, upper: Any) -> Any:
        """Return the last point of the grid inside a bin; without a grid, where the bin ends."""
        grain = self.axis.grain
        return lower + (upper - 1 - lower) // grain * grain if grain else upper

    def format_unit(self, unit: Any) -> str:
        """Format a value in units of the axis; numbers of four digits, which may be years, have no thousands mark."""
        value = self.from_units(np.asarray([unit])).to_pylist()[0]
        if isinstance(value, float):
            return f"{value:.6g}"
        return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)

    # -- coding --------------------------------------------------------------------------------------------------

    @property
    def ordinary(self) -> int:
        """The number of bins and spikes."""
        return self.axis.size

    def encode_text(self, text: Any, dialect: Dialect) -> dict[str, Codes]:
        """Encode distinct texts: missing tokens as written or meant, then values."""
        codes = self._encode_units(*self._parse_units(text, dialect), dialect)
        tokens = self._token_codes_by_meaning(dialect) | self.token_codes()
        bare = pc.utf8_trim_whitespace(text)
        found = np.asarray(pc.fill_null(pc.index_in(bare, pa.array(list(tokens), pa.string())), -1))
        hit = found >= 0
        codes[self.name][hit] = np.fromiter(tokens.values(), np.int32, len(tokens))[found[hit]]
        empty = pc.is_in(bare, pa.array(sorted(EMPTY - tokens.keys()), pa.string()))
        codes[self.name][np.asarray(pc.or_(pc.is_null(text), pc.fill_null(empty, True)))] = self.null_cell_code
        return codes

    def _token_codes_by_meaning(self, dialect: Dialect) -> dict[str, int]:
        """Return the codes of missing tokens by their meaning; the shortest token of a meaning wins."""
        tokens = sorted(self.missing, key=lambda token: (-len(token), token))
        meant = {meaning(token, dialect.decimal, dialect.group): self.token_codes()[token] for token in tokens}
        return {text: code for text, code in meant.items() if text is not None}

    def encode_typed(self, cells: Any, dialect: Dialect) -> dict[str, Codes]:
        """Encode typed cells; a type without units is encoded through its text."""
        converted = self.units_of_typed(cells)
        if converted is None:
            return self.encode(to_plain_text(to_text(cells, dialect.decimal)), dialect)
        codes = self._encode_units(*converted, dialect)
        if cells.null_count or pa.types.is_floating(cells.type):
            codes[self.name][np.asarray(pc.is_null(cells, nan_is_null=True))] = self.null_cell_code
        return codes

    def _encode_units(self, units: NDArray[Any], valid: NDArray[np.bool_], dialect: Dialect) -> dict[str, Codes]:
        codes = self.axis.encode(units)
        fits = valid
        if self.outside == "unknown":
            fits = valid & (units >= self.bounds[0]) & (units <= self.bounds[1])
        if not fits.all():
            codes[~fits] = self.unknown_code
        for token, unit in (*self._tokens_with_mark(dialect), *self._token_units):
            # a cell that is not a value is not a missing code either
            codes[valid & (units == unit)] = self.token_codes()[token]
        return {self.name: codes}

    def _tokens_with_mark(self, dialect: Dialect) -> list[tuple[str, Any]]:
        """Return missing tokens that write a number with the table's decimal mark, with their units."""
        tokens = [token for token in self.missing if dialect.decimal != "." and dialect.decimal in token]
        return self._parse_tokens(tokens, dialect)

    @cached_property
    def _token_units(self) -> list[tuple[str, Any]]:
        """Missing tokens that are values of the axis, with their units: -9 is found however it is typed or written.

        Of two tokens for one number, "9" and "09", the shorter one wins, because numbers beside an odd cell are written
        that way.
        """
        return self._parse_tokens(sorted(self.missing, key=lambda token: (-len(token), token)), Dialect())

    def _parse_tokens(self, tokens: list[str], dialect: Dialect) -> list[tuple[str, Any]]:
        """Return the tokens that are values of the axis, with their units."""
        if not tokens:
            return []
        units, valid = self._parse_units(pa.array(tokens, pa.string()), dialect)
        return [(token, unit) for token, unit, fits in zip(tokens, units.tolist(), valid, strict=True) if fits]

    def token_value(self, token: str) -> Any:
        """Return the token as a value of the axis, if it is one."""
        units = dict(self._token_units)
        return self.from_units(np.asarray([units[token]]))[0].as_py() if token in units else None

    def decode_ordinary(self, codes: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Any:
        """Return values drawn inside their bins."""
        return self.from_units(self.axis.decode(np.asarray(codes[self.name]), rng, self.draw))

    def table(self) -> list[Entry]:
        """Return spikes and intervals in units of the axis, then the special codes."""
        axis, rows = self.axis, []
        for code in range(axis.size):
            low, high = axis.lower[code].item(), axis.upper[code].item()
            if axis.spike[code]:
                rows.append(Entry(self.name, code, "value", low))
            else:
                closed = not axis.grain and high == self.bounds[1]
                rows.append(Entry(self.name, code, "interval", lower=low, upper=high, closed=closed))
        return rows + self.special_entries()


def check_bin_count(count: float, key: str) -> None:
    """Refuse a declaration with more bins than fit in memory: the schema may come from another person.

    Raises:
        ValueError: naming the key.
    """
    if count > 10_000_000:
        raise ValueError(f"{key} makes more than ten million bins; choose wider bins")
