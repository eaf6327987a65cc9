"""A numeric axis cut into codes: half-open bins and single values (spikes), on a grid or on the real line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Draw: TypeAlias = Literal["uniform", "midpoint", "lower"]

EXACT_UP_TO = 128
"""Without declared bins, an axis of at most this many points keeps each point as its own code."""
DEFAULT_BINS = 100
"""Without declared bins, a longer axis is cut into this many bins."""
_LOOKUP_UP_TO = 1 << 21


@dataclass(frozen=True, eq=False)
class Top:
    """How the open top bin is drawn: `kind` "uniform", "value" (always `value`) or "pareto" with exponent `alpha`."""

    start: float
    kind: Literal["uniform", "value", "pareto"] = "uniform"
    value: float | None = None
    alpha: float | None = None


@dataclass(frozen=True, eq=False)
class Axis:
    """Ordinary codes of a numeric column, in ascending order.

    On a grid (`grain` > 0) everything is a whole number of units and an interval holds the points ``lower, lower +
    grain, ... < upper`` that are no spikes. On the real line (`grain` 0) an interval is ``[lower, upper)``, the last
    one closed.

    Attributes:
        lower: lower end by code.
        upper: upper end by code (for a spike: the spike itself).
        spike: by code, whether it is a single value.
        grain: distance between two points of the grid, 0 for the real line.
        top: the rule of the open top bin, the last code; None when the top bin is as the others.
        points: sorted values from which a bin's value is drawn; a bin without one follows `draw`.
        holes: values that are never drawn, because they mean something else (a missing code between the bounds).
    """

    lower: Array
    upper: Array
    spike: NDArray[np.bool_]
    grain: int
    top: Top | None = None
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
        """Code of every unit between the bounds, where that is a small table."""
        span = int(self.last) - int(self.first) + 1 if self.grain else 0
        if not 0 < span <= _LOOKUP_UP_TO:
            return None
        return self._search(np.arange(int(self.first), int(self.last) + 1))

    def encode(self, values: Array) -> NDArray[np.int32]:
        """Codes of finite values (whole units on a grid); values outside the bounds are clipped into them."""
        if len(values) < 1000 or self._lookup is None:  # building the table costs more than a few searches
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
        """A value for each code, drawn inside its bin; `encode` gives the codes back."""
        share = rng.random(len(codes)) if draw == "uniform" else np.full(len(codes), 0.5 if draw == "midpoint" else 0.0)
        values = self._on_grid(codes, share) if self.grain else self._on_line(codes, share)
        if self.points is not None:
            values = self._at_points(self.points, values, codes, share)
        if self.top is not None and len(self._bins):
            self._at_top(self.top, values, codes, share)
        return values

    @cached_property
    def reserved(self) -> Array:
        """Spikes and holes, ascending: what a bin never draws."""
        return self._spikes[0] if self.holes is None else np.unique(np.concatenate((self._spikes[0], self.holes)))

    @cached_property
    def _free(self) -> NDArray[np.int64]:
        """By code, how many points of the grid a decoded value is drawn from."""
        count = np.where(self.spike, 1, -((self.lower - self.upper) // max(self.grain, 1)))
        for single in self.reserved:
            count -= ~self.spike & self._holds(single)
        return count

    def _holds(self, single: Any) -> NDArray[np.bool_]:
        held: NDArray[np.bool_] = (self.lower <= single) & (single < self.upper)
        return held & ((single - self.lower) % self.grain == 0) if self.grain else held

    def _on_grid(self, codes: Array, share: NDArray[np.float64]) -> Array:
        free = self._free[codes]
        step = np.minimum((share * free).astype(np.int64), free - 1)
        values: Array = self.lower[codes] + step * self.grain
        for single in self.reserved:  # ascending: each one at or below the value pushes it one point up
            pushed = (self._holds(single) & ~self.spike)[codes] & (values >= single)
            values[pushed] += self.grain
        return values

    def _on_line(self, codes: Array, share: NDArray[np.float64]) -> Array:
        lower, upper = self.lower[codes], self.upper[codes]
        values: Array = np.minimum(lower + share * (upper - lower), np.nextafter(upper, lower))
        for single in self.reserved:
            clash = (values == single) & ~self.spike[codes]
            values[clash] = np.nextafter(values[clash], upper[clash])
        return values

    def _at_points(self, points: Array, values: Array, codes: Array, share: NDArray[np.float64]) -> Array:
        owner = self._search(points)
        order = np.argsort(owner, kind="stable")
        count = np.bincount(owner, minlength=self.size)
        start = np.concatenate(([0], np.cumsum(count)[:-1]))
        has = (count > 0)[codes]
        picked = start[codes] + np.minimum((share * count[codes]).astype(np.int64), np.maximum(count[codes] - 1, 0))
        return np.where(has, points[order][np.where(has, picked, 0)], values)

    def _at_top(self, top: Top, values: Array, codes: Array, share: NDArray[np.float64]) -> None:
        code = self._bins[-1]
        at = np.flatnonzero(codes == code)
        if top.kind == "value":
            values[at] = top.value
        elif top.kind == "pareto":
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
    top: Top | None = None,
    points: Array | None = None,
    holes: Array | None = None,
) -> Axis:
    """Bins between consecutive edges (the last edge excluded on a grid) plus spikes, with empty bins left out."""
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


def cut(minimum: float, maximum: float, bins: int | None, *, grain: int, log: bool) -> Array:
    """Edges of `bins` bins (None: the default) between the bounds, of equal width, or of equal width in logarithms."""
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
