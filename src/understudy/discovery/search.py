"""The search for bounds and bins of a column: which cells to count next, given noisy counts. Public arithmetic only.

The first grid depends on the column's type alone: powers of two in both directions for numbers and durations, decades
for dates. A second round counts the parts of the heavy cells; bins are then cut where densities differ. The result
depends on noisy counts and declared facts only, so all of it is post-processing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from datetime import date
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.errors import SchemaError
from understudy.measurement import Measurement
from understudy.schema.axis import EXACT_UP_TO, AxisColumn
from understudy.schema.file import OURS, fill_field, parse_field
from understudy.schema.numeric import Numeric
from understudy.schema.open import Open, trial_facts
from understudy.schema.temporal import MICROSECONDS, Temporal, date_to_days
from understudy.schema.text import EXACT

MOST_BINS = 100
"""A discovered column has at most this many bins."""
HEAVY = 3.0
"""A bin should have more rows than this many standard deviations of its noise."""
SPARE = 0.02
"""Bounds may cut off this share of the rows at each end, where noise hides whether there are any."""
EVEN_BINS = 75
"""Similar cells are joined to bins of at most one part in this many of the rows: they may differ in other columns."""
ALIKE = 2.0
"""Two cells are similar if their densities differ by at most this many standard deviations of the noise."""
_WAYS = 16
_MOST_WAYS = 256
_MOST_PARTS = 4096
_MOST_DECIMALS = 9
_LARGEST_REAL = 100  # powers of two: beyond 2^100 values are clipped into the last cell
_SMALLEST_REAL = -20
_YEARS = (1, 1000, 1500, 1700, 1800, 1850, *range(1900, 2110, 10), 2200, 2500, 9999)


_Cell: TypeAlias = tuple[Any, Any]
"""The start of a cell and of the next one, in units of the column's axis."""


class Search:
    """The search in one column.

    Args:
        column: a column whose bounds, bins or both have to be discovered.
    """

    def __init__(self, column: Open) -> None:
        self.column = column
        found = parse_field(fill_field(column.field, **trial_facts(column.field)) | {"name": column.name}, 0)
        assert isinstance(found, AxisColumn)  # noqa: S101 - checked when the field was read
        self._trial = found
        self._bounds, self._bins = "bounds" in column.discovers, "bins" in column.discovers
        self._spikes = [] if found.grain else [0.0]
        self._spikes += [found.unit_of(spike, "spikes") for spike in found.spikes]
        edges = _first_edges(found) if self._bounds else _split_cell(*_unit_range(found), found.grain, _MOST_WAYS)
        self._edges: list[Any] = [edge for edge in edges if self._fits(edge) or (edge in edges[:1] + edges[-1:])]
        self._counts: dict[_Cell, tuple[float, int]] = {}
        self._at_spikes: dict[Any, float] = {}
        self._sd, self._tip = 1.0, None
        self.rounds = 2 if len(self._edges) > 2 else 0

    def probe(self) -> AxisColumn:
        """Return the column with the current partition as its bins."""
        ours = self.column.field.get(OURS, {})
        kept = {key: ours[key] for key in ("decimals", "resolution", "missing") if key in ours}
        last = self._edges[-1] - self._trial.grain
        edges = [*self._edges[:-1], last] if self._edges[-2] < last else [*self._edges[:-2], last]
        self._tip = last if self._edges[-2] == last else None  # a last cell of one point is declared as a spike
        inside = {s for s in self._spikes if self._edges[0] <= s <= last} | ({last} if self._tip is not None else set())
        kept |= {"bins": {"edges": list(map(self._format, edges))}, "spikes": list(map(self._format, sorted(inside)))}
        kept |= {"outside": "unknown"} if self._bounds else {}
        field = {key: self.column.field[key] for key in ("type", "format") if key in self.column.field}
        made = parse_field(field | {"name": self.column.name, OURS: kept}, 0)
        assert isinstance(made, AxisColumn)  # noqa: S101 - a kind with bins
        return made

    def learn(self, probe: AxisColumn, answer: Measurement) -> bool:
        """Take the noisy counts of a probe; return whether another round is worth its price."""
        axis, values = probe.axis, answer.values.astype(np.float64)
        self._sd = max(float(answer.sigma), 1e-9)
        before, self._counts = self._counts, {}
        for i in range(axis.size):
            cell = (axis.lower[i].item(), self._grid_end(axis.upper[i].item()))
            if axis.spike[i] and cell[0] == self._tip:
                cell = (cell[0], cell[0] + self._trial.grain)
            elif axis.spike[i]:
                self._at_spikes[cell[0]] = float(values[i])
                continue
            mean, times = before.get(cell, (0.0, 0))
            self._counts[cell] = ((mean * times + float(values[i])) / (times + 1), times + 1)
        self._reconcile(before)
        if not self._counts:  # every point is a spike or means "missing"
            return False
        if self._bounds:
            self._trim(None if before else _noise_quantile(len(values), answer.noise == "laplace"))
        return self._cut()

    def _reconcile(self, before: dict[_Cell, tuple[float, int]]) -> None:
        """Distribute the gap between a cell's count and the sum of its parts over the parts, by least squares."""
        cells, at = sorted(self._counts), 0
        for whole in sorted(before):
            parts = []
            while at < len(cells) and cells[at][1] <= whole[1]:
                parts += [cells[at]] if cells[at][0] >= whole[0] else []
                at += 1
            if len(parts) > 1:
                mean, times = before[whole]
                weight = len(parts) * times / (len(parts) * times + 1)
                gap = weight * (mean - sum(self._counts[part][0] for part in parts)) / len(parts)
                self._counts |= {part: (self._counts[part][0] + gap, 1) for part in parts}

    def result(self, most: int) -> dict[str, Any]:
        """Return what was found, as the keys of a field; at most `most` bins."""
        cells = sorted(self._counts)
        cells = self._exact_cells(most) or cells
        low, high = (cells[0][0], cells[-1][1] - self._trial.grain) if self._bounds and cells else self._trial.bounds
        spikes = [*self._trial.spikes, *self._zero_spike()]
        for spike in (self._trial.unit_of(value, "spikes") for value in spikes):
            low, high = min(low, spike), max(high, spike)
        high = high if high > low or self._trial.grain else low + 1.0
        facts: dict[str, Any] = {"spikes": spikes} if spikes else {}
        if self._bounds:
            facts |= {"minimum": self._format(low), "maximum": self._format(high)}
        if not self._bins and most < EXACT_UP_TO and "bins" not in self.column.field.get(OURS, {}):
            facts["bins"] = most
        if not self._bins or not cells or self._exact_cells(most):
            return facts
        starts = self._starts(min(most, MOST_BINS))
        if self._trial.grain and starts[-1] == high and len(starts) > 1:  # a last bin of one value becomes a spike
            facts["spikes"] = [*spikes, self._format(high)]
            starts = starts[:-1]
        starts = [low, *(start for start in starts[1:] if low < start < high)]
        if high > low:
            facts["bins"] = {"edges": [self._format(start) for start in [*starts, high]]}
        return facts | self._round_edges(facts)

    def _round_edges(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Return real bounds and edges rounded to a hundredth of the narrowest bin, and the decimals that this takes.

        Digits beyond that would only show how values are drawn: 1.1 would come back as 1.1010093993800965. Nothing
        where more than nine decimals, or more digits than a float holds, would be needed.
        """
        edges = facts.get("bins", {}).get("edges", [])
        if self._trial.grain or not isinstance(self._trial, Numeric) or len(edges) < 2 or not self._bounds:
            return {}
        places = max(2 - math.floor(math.log10(float(np.diff(edges).min()))), 0)
        while places <= _MOST_DECIMALS and any(round(spike, places) != spike for spike in facts.get("spikes", ())):
            places += 1
        if places > _MOST_DECIMALS or max(abs(edges[0]), abs(edges[-1])) * 10.0**places >= EXACT:
            return {}
        rounded = [round(edge, places) for edge in edges]
        return {"minimum": rounded[0], "maximum": rounded[-1], "bins": {"edges": rounded}, "decimals": places}

    # -- the partition -------------------------------------------------------------------------------------------

    def _mean(self, cell: _Cell) -> float:
        return self._counts[cell][0]

    def _trim(self, z: float | None) -> None:
        """Drop cells that seem empty at both ends: cell by cell on the first grid, by cumulative sums afterwards."""
        cells = sorted(self._counts)
        means = [self._mean(cell) for cell in cells]
        if z is not None:
            heavy = [i for i, mean in enumerate(means) if mean >= z * self._sd]
            heavy = heavy or [self._fallback(cells, means)]
            start, stop = heavy[0], heavy[-1] + 1
            while start > 0 and means[start - 1] >= self._sd:  # next to cells with rows, a lower threshold is enough
                start -= 1
            while stop < len(cells) and means[stop] >= self._sd:
                stop += 1
        else:
            start, stop = _count_empty(means, self._sd), len(cells) - _count_empty(means[::-1], self._sd)
            start, stop = (start, stop) if start < stop else (0, len(cells))
        self._counts = {cell: self._counts[cell] for cell in cells[start:stop]}

    def _fallback(self, cells: list[_Cell], means: list[float]) -> int:
        """Return the cell to keep if none stands out: the one around zero if zero stands out, else the largest."""
        around = [i for i, (lower, upper) in enumerate(cells) if lower < 0 < upper] if self._zero_spike() else []
        return around[0] if around else int(np.argmax(means))

    def _target(self, most: int) -> float:
        """Return how many rows a bin should have: enough to stand out from the noise, and no more bins than wanted."""
        everyone = sum(max(self._mean(cell), 0.0) for cell in self._counts)
        return max(HEAVY * self._sd, everyone / most)

    def _cut(self) -> bool:
        """Cut heavy cells; if no bins are discovered only the outermost ones, where the bounds are."""
        cells = sorted(self._counts)
        target, edges = self._target(MOST_BINS), [cells[-1][1]]
        ends = (cells[0], cells[-1])
        heavy = [cell for cell in cells if (self._mean(cell) > target if self._bins else cell in ends)]
        ways = min(_MOST_WAYS, max(_WAYS, _MOST_PARTS // max(len(heavy), 1))) if self._bins else _WAYS
        parts = [_split_cell(*cell, self._trial.grain, ways)[1:-1] for cell in heavy]
        inner = [edge for part in parts for edge in part if self._fits(edge)]
        self._edges = sorted({*edges, *inner, *(lower for lower, _ in cells)})
        return bool(inner)

    def _starts(self, most: int) -> list[Any]:
        """Return where bins begin.

        Neighbouring cells are joined while noise explains the difference of their densities.
        """
        cells = sorted(self._counts)
        means = np.array([self._mean(cell) for cell in cells])
        variances = np.array([self._sd**2 / self._counts[cell][1] for cell in cells])
        widths = np.array([float(upper - lower) for lower, upper in cells])
        heaviest = max(HEAVY * self._sd, float(means.sum()) / EVEN_BINS)
        most = min(most, max(1, int(means.sum() / (HEAVY * self._sd))))  # enough rows for each bin on average
        return [cells[i][0] for i in join_cells(means, variances, widths, heaviest=heaviest, most=most)]

    def _exact_cells(self, most: int) -> list[_Cell]:
        """Return the cells between bounds so close that every point can have its own code.

        Few points, with rows for each.
        """
        cells = sorted(self._counts)
        means = [self._mean(cell) for cell in cells]
        everyone = sum(max(mean, 0.0) for mean in means)
        if self._bounds:
            spare = SPARE * everyone
            start, stop = _count_light(means, self._sd, spare), len(cells) - _count_light(means[::-1], self._sd, spare)
            cells = cells[start:stop] if start < stop else cells
        if not cells or not self._trial.grain or not self._bins:
            return []
        low, high = (cells[0][0], cells[-1][1]) if self._bounds else _unit_range(self._trial)
        points = -((low - high) // self._trial.grain)
        return cells if points <= min(EXACT_UP_TO, most, everyone / (2 * self._sd)) else []

    def _zero_spike(self) -> list[Any]:
        """Return zero as a spike among real numbers, if enough rows have it."""
        if self._trial.grain or 0 in self._trial.spikes or self._at_spikes.get(0.0, 0.0) < HEAVY * self._sd:
            return []
        return [0.0]

    # -- formatting units ----------------------------------------------------------------------------------------

    def _format(self, unit: Any) -> Any:
        return _format_unit(self._trial, unit)

    def _fits(self, unit: Any) -> bool:
        """Return whether a unit, and the point before it, survive formatting: amounts with many decimals may not."""
        if not isinstance(self._trial, Numeric) or self._trial.per_unit == 1:
            return True
        try:
            pair = (unit, unit - self._trial.grain)
            return all(self._trial.unit_of(self._format(one), "bins") == one for one in pair)
        except (ValueError, OverflowError, SchemaError):
            return False

    def _grid_end(self, upper: Any) -> Any:
        """Return the upper end of a cell on the column's grid."""
        return -(-upper // self._trial.grain) * self._trial.grain if self._trial.grain else upper


def _format_unit(column: AxisColumn, unit: Any) -> Any:
    """Format a number of units as the column's declarations write it."""
    if isinstance(column, Temporal):
        if column.kind == "duration":
            return str(int(unit) // MICROSECONDS["second"])
        return column.from_units(np.asarray([unit])).to_pylist()[0].isoformat()
    factor = column.per_unit
    return float(unit) if not column.grain else int(unit) if factor == 1 else int(unit) / factor


def join_cells(
    means: NDArray[np.float64],
    variances: NDArray[np.float64],
    widths: NDArray[np.float64],
    *,
    heaviest: float,
    most: int,
) -> list[int]:
    """Join neighbouring cells into bins of at most `heaviest` rows, the most similar first.

    Return the first cell of each bin.

    Joining two cells distributes their rows evenly over both, which misplaces |a w_b - b w_a| / (w_a + w_b) of them. If
    that is more than noise explains, they are not joined, unless there are more than `most` bins.
    """
    starts, widths = np.arange(len(means)), widths / widths.max()
    while len(starts) > 1:
        both, together = widths[:-1] + widths[1:], means[:-1] + means[1:]
        misplaced = np.abs(means[:-1] * widths[1:] - means[1:] * widths[:-1]) / both
        noise = np.sqrt(variances[:-1] * widths[1:] ** 2 + variances[1:] * widths[:-1] ** 2) / both
        score = np.where(together <= heaviest, misplaced / noise, np.inf)
        chosen = _find_minima(score) & (score <= ALIKE)
        if not chosen.any():
            if len(starts) <= most:
                break
            cost = misplaced + np.maximum(together - heaviest, 0.0)
            chosen = _find_minima(cost)
            chosen &= cost <= np.sort(cost[chosen])[min(chosen.sum(), len(starts) - most) - 1]
        left = np.flatnonzero(chosen)
        arrays = []
        for array in (means, variances, widths):
            array = array.copy()
            array[left] += array[left + 1]
            arrays.append(np.delete(array, left + 1))
        means, variances, widths = arrays
        starts = np.delete(starts, left + 1)
    return [int(start) for start in starts]


def _find_minima(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values are lower than both neighbours, the first of equals: no two of them are adjacent."""
    around = np.concatenate(([np.inf], values, [np.inf]))
    lowest: NDArray[np.bool_] = (values < around[:-2]) & (values <= around[2:])
    return lowest


def _count_light(means: Sequence[float], sd: float, spare: float) -> int:
    """Return how many cells at the start seem to have no rows together, and hardly more than `spare`."""
    total, light = 0.0, 0
    for i, mean in enumerate(means):
        total += mean
        if total <= sd and total + sd * math.sqrt(i + 1) <= spare:
            light = i + 1
    return light


def _count_empty(means: Sequence[float], allowed: float) -> int:
    """Return how many cells at the start have hardly any rows in total; stops where they first seem to."""
    return next((i for i, total in enumerate(itertools.accumulate(means)) if total > allowed), len(means))


def _noise_quantile(cells: int, laplace: bool) -> float:
    """Return how many standard deviations noise alone exceeds in no cell, with probability 0.999.

    A distant cell that stands out because of noise extends the bounds by powers of two, and rows drawn there spoil
    every mean.
    """
    return math.log(1000 * cells) / math.sqrt(2) if laplace else math.sqrt(2 * math.log(500 * cells))


def _unit_range(column: AxisColumn) -> tuple[Any, Any]:
    low, high = column.bounds
    return low, high + 1 if column.grain else high


def _split_cell(lower: Any, upper: Any, grain: int, ways: int = _WAYS) -> list[Any]:
    """Return the edges of at most `ways` parts of a cell, on the column's grid."""
    if not grain:
        edges = np.linspace(lower, upper, ways + 1).tolist()
        return sorted({lower, *edges[1:-1], upper})
    points = -((lower - upper) // grain)
    ways = min(ways, points)
    return [lower + grain * (i * points // ways) for i in range(ways)] + [upper]


def _first_edges(column: AxisColumn) -> list[Any]:
    """Return the edges of the first grid, by the column's type alone."""
    if isinstance(column, Temporal) and column.kind != "duration":
        days = [date_to_days(date(year, 1, 1)) for year in _YEARS[:-1]] + [date_to_days(date(9999, 12, 31))]
        return [day * (1 if column.kind == "date" else MICROSECONDS["day"]) for day in days]
    if not column.grain:
        reals = [2.0**power for power in range(_SMALLEST_REAL, _LARGEST_REAL + 1)]
        return [-real for real in reversed(reals)] + reals
    unit = max(int(column.per_unit), column.grain)
    fine = [column.grain << power for power in range(60) if column.grain << power < unit]
    limit = 1 << (53 if isinstance(column, Numeric) else 60)
    powers = fine + [unit << power for power in range(60) if unit << power < limit]
    return [-power for power in reversed(powers)] + [0] + powers
