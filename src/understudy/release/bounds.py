"""Error bounds of marginals and counts (McKenna et al. 2022, section 5), for every mechanism.

Bounds are computed from released values only, so they cost no budget.

**Division of beta.** Let beta be the probability with which a bound may fail. A stage (a call to the gate, or a round)
that costs the share f of the budget may fail with probability f beta. Shares are fixed before the noise of their stage
is drawn and sum to at most 1, so all stages hold together with probability 1 - beta, even if questions depend on
earlier noise, and the smallest of their bounds may be used. (The paper uses the bound of the last round and averages
all measurements. Both depend on the noise, so without such shares the bound would be invalid.) Within a round, the
selection, the noise of the selected marginal and the noise of the bounded marginal have a third each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.measurement import Measurement, weighted_mean
from understudy.model.protocol import MODELS, Model

Vector: TypeAlias = NDArray[np.float64]
_UNIT = 2.0**-15  # the gate compares with marginals rounded to 2^-16 rows; models are stored to a rounding error


@dataclass(frozen=True)
class Stage:
    """Measurements whose cliques and sigmas were fixed before any of them was drawn.

    Attributes:
        measurements: the measurements.
        share: the stage's share of the budget, and of beta.
        round: the selection before the measurements, as in `Fit.rounds`; None if nothing was selected. The last
            measurement is of the selected clique, unless that is the empty one.
    """

    measurements: Sequence[Measurement]
    share: float
    round: Mapping[str, Any] | None = None

    @property
    def part(self) -> float:
        """The part of beta for each of the stage's events."""
        return self.share / (3 if self.round is not None else 1)


@dataclass(frozen=True)
class Evidence:
    """Everything in a release that bounds use; all of it is public.

    Attributes:
        model: the distribution whose marginals are bounded.
        declared: the columns as declared.
        merged: by column, the merged code of each declared code; columns without an entry are not merged.
        stages: the stages of the run, in order.
        cliques: the candidates of selections, with their weights, by position.
        rows: the number of rows, if it is public.
    """

    model: Model
    declared: Domain
    merged: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    stages: Sequence[Stage] = ()
    cliques: Sequence[tuple[Clique, float]] = ()
    rows: int | None = None


@dataclass(frozen=True)
class Bound:
    """A bound of the distance of one of the model's marginals from the true one.

    Attributes:
        clique: the columns.
        bound: the largest L1 distance, in rows, with the stated confidence; None if no bound is known.
        share: the same as a share of the model's rows.
        supported: whether a measured clique contains this one.
        source: "measured" (the noise of a measurement), "selected" (a selection that preferred another clique) or
            "unknown".
        confidence: the probability that the bound holds, for this marginal or for all of them together.
    """

    clique: Clique
    bound: float | None
    share: float | None
    supported: bool
    source: Literal["measured", "selected", "unknown"]
    confidence: float


def bound_marginals(
    evidence: Evidence, cliques: Iterable[Clique], *, confidence: float = 0.95, simultaneous: bool = False
) -> list[Bound]:
    """Bound ||M_r(D) - M_r(model)||_1 for each clique r; merged codes count as one code.

    **Guarantees.** For any rows, each bound holds with probability `confidence` over the mechanism's noise; with
    `simultaneous`, all of them hold together with that probability.

    Args:
        evidence: the released values.
        cliques: the marginals to bound.
        confidence: between 0 and 1.
        simultaneous: divide beta among all cliques.
    """
    wanted = [evidence.model.domain.check(clique) for clique in cliques]
    tables = evidence.model.project_many(wanted)
    ways = len(wanted) if simultaneous else 1
    beta = 1.0 - confidence
    selected = dict(_bound_by_selections(evidence, wanted, tables, beta))
    return [_choose_bound(evidence, r, tables[r].reshape(-1), selected.get(r), confidence, ways) for r in wanted]


def weighted_average(
    measurements: Sequence[Measurement], evidence: Evidence, clique: Clique
) -> tuple[Vector, Vector] | None:
    """Return the inverse-variance mean of all measurements of a clique, and the variance of each cell (Theorem 2).

    None if no measured clique contains this one. Exact for measurements of one stage.
    """
    found = [(m, *_sum_to_clique(evidence, m, clique)) for m in measurements if _covers(m, clique)]
    if not found:
        return None
    mean, precision = weighted_mean((table, 1 / (cells * m.sigma**2)) for m, table, cells in found)
    return mean, 1 / precision


def _choose_bound(
    evidence: Evidence, clique: Clique, table: Vector, selected: float | None, confidence: float, ways: int
) -> Bound:
    measured = _bound_by_measurements(evidence, clique, table, 1 - confidence, ways)
    found: list[tuple[float, Literal["measured", "selected", "unknown"]]] = []
    found += [] if measured is None else [(measured, "measured")]
    found += [] if selected is None else [(selected, "selected")]
    value, source = min(found, default=(math.inf, "unknown"))
    if evidence.rows is not None and found:
        value = min(value, 2.0 * evidence.rows)
    known = math.isfinite(value)
    return Bound(
        clique=clique,
        bound=value if known else None,
        share=value / evidence.model.total if known else None,
        supported=measured is not None,
        source=source if known else "unknown",
        confidence=confidence,
    )


def _bound_by_measurements(evidence: Evidence, clique: Clique, table: Vector, beta: float, ways: int) -> float | None:
    """Return Corollary 1 for the stage with the smallest bound; None if no measured clique contains this one."""
    bounds = []
    for stage in evidence.stages:
        mean = weighted_average(stage.measurements, evidence, clique)
        if mean is not None:
            part = beta * stage.part / ways
            distance = float(np.abs(mean[0] - table).sum())
            bounds.append(distance + _bound_noise(evidence, stage.measurements, clique, mean[1], part))
    return min(bounds, default=None)


def _bound_noise(
    evidence: Evidence, measurements: Sequence[Measurement], clique: Clique, variance: Vector, beta: float
) -> float:
    """Bound the error of the stage's estimate (Theorem 3); for one measurement by its exact noise distribution."""
    if beta <= 0:
        return math.inf
    covering = [m for m in measurements if _covers(m, clique)]
    laws: set[Noise] = {m.noise for m in covering}
    # of the scaled noise z, every cell with variance 1: ||x||_1 <= ||sd||_2 ||z||_2 covers unequal cells
    even = float(variance.mean())
    general = subgaussian_l1(len(variance), even, beta) if laws == {"gaussian"} else math.inf
    _, cells = _sum_to_clique(evidence, covering[0], clique)
    if len(covering) > 1 or np.ptp(cells) > 0:
        return _bound_unequal_noise(variance, beta) if laws == {"gaussian"} else math.inf
    law = NoiseSum.of(covering[0].noise, covering[0].sigma, int(cells[0]))
    return general if law is None else min(general, law.l1(len(variance), beta))


def _bound_unequal_noise(variance: Vector, beta: float) -> float:
    if np.ptp(variance) <= 1e-12 * variance.max():
        return subgaussian_l1(len(variance), float(variance[0]), beta)
    u, n = -math.log(beta), len(variance)
    return math.sqrt(float(variance.sum()) * (n + 2 * math.sqrt(n * u) + 2 * u))


def _covers(measurement: Measurement, clique: Clique) -> bool:
    """Return whether a measurement can be summed to a clique."""
    return measurement.query is None and set(clique) <= set(measurement.clique)


def _sum_to_clique(evidence: Evidence, measurement: Measurement, clique: Clique) -> tuple[Vector, Vector]:
    """Sum a measurement to a clique of merged codes; also return the number of measured cells in each cell."""
    codes = find_codes(evidence, measurement)
    target = np.zeros((), dtype=np.int64)
    for column, places in codes.items():
        if column in clique:
            target = np.add.outer(target * evidence.model.domain[column], places)
        else:
            target = np.add.outer(target, np.zeros(len(places), dtype=np.int64))
    own = [column for column in measurement.clique if column in clique]
    size, shape = evidence.model.domain.cells(clique), evidence.model.domain.shape(own)
    order = [own.index(column) for column in clique]
    counts = np.bincount(target.reshape(-1), weights=measurement.values, minlength=size).astype(np.float64)
    cells = np.bincount(target.reshape(-1), minlength=size).astype(np.float64)
    return counts.reshape(shape).transpose(order).reshape(-1), cells.reshape(shape).transpose(order).reshape(-1)


def find_codes(evidence: Evidence, measurement: Measurement) -> dict[str, NDArray[np.int64]]:
    """Return, for each column of a measurement made before or after merging, the model's code of each of its codes."""
    before = len(measurement.values) == evidence.declared.cells(measurement.clique)
    return {
        column: evidence.merged[column]
        if before and column in evidence.merged
        else np.arange(evidence.declared[column] if before else evidence.model.domain[column])
        for column in measurement.clique
    }


def _bound_by_selections(
    evidence: Evidence, wanted: Sequence[Clique], tables: Mapping[Clique, Vector], beta: float
) -> Iterator[tuple[Clique, float]]:
    """Return Corollary 2 for each clique that was a candidate, from the last round in which it was one.

    The events of a round are the same for all its candidates, so beta is not divided among cliques.
    """
    places = {clique: i for i, (clique, _) in enumerate(evidence.cliques)}
    names = {clique: evidence.model.domain.canonical(clique) for clique in wanted}
    for stage in evidence.stages:
        if stage.round is None or "model" not in stage.round:
            continue
        last = set(np.asarray(stage.round["last"]).tolist())
        mine = [r for r in wanted if places.get(names[r]) in last]
        if mine:
            yield from _bound_by_round(evidence, stage, mine, tables, beta * stage.part)


def _bound_by_round(
    evidence: Evidence, stage: Stage, wanted: Sequence[Clique], tables: Mapping[Clique, Vector], part: float
) -> Iterator[tuple[Clique, float]]:
    round_ = stage.round or {}
    before = MODELS[round_["kind"]].from_arrays(evidence.model.domain, round_["model"])
    weights = dict(evidence.cliques)
    chosen = evidence.model.domain.canonical(round_["chosen"])
    # the empty clique has weight and score 0, and nothing was measured for it
    error = _bound_choice_error(before, stage.measurements[-1], part) if chosen else 0.0
    per_row = 2 * float(round_["sensitivity"]) / float(round_["epsilon"])
    # which of several selections is recorded depends on their answers, so all of them must hold
    missed = per_row * (math.log(len(round_["candidates"]) * int(round_.get("draws", 1))) - math.log(part))
    score = weights[chosen] * (error - float(round_["offsets"][find_candidate(evidence, round_, chosen)]))
    old = before.project_many(wanted)
    for clique in wanted:
        name = evidence.model.domain.canonical(clique)
        if weights[name] > 0:
            offset = float(round_["offsets"][find_candidate(evidence, round_, name)])
            distance = float(np.abs(old[clique] - tables[clique]).sum()) + _UNIT * tables[clique].size
            yield clique, distance + offset + (score + missed) / weights[name]


def find_candidate(evidence: Evidence, round_: Mapping[str, Any], clique: Clique) -> int:
    """Return the position of a clique among the candidates of a round."""
    place = next(i for i, (name, _) in enumerate(evidence.cliques) if name == clique)
    return int(np.flatnonzero(np.asarray(round_["candidates"]) == place)[0])


def _bound_choice_error(before: Model, measurement: Measurement, beta: float) -> float:
    """Bound the distance of the selected marginal from the model before it was measured.

    With s the signs of M(D) - p, fixed before the noise x is drawn, ||y - p||_1 >= <s, y - p> = ||M(D) - p||_1 +
    <s, x>, and <s, x> has the law of a sum of independent draws, by symmetry.
    """
    seen = float(np.abs(measurement.values - before.project(measurement.clique).reshape(-1)).sum())
    n = len(measurement.values)
    law = NoiseSum.of(measurement.noise, measurement.sigma, n) if beta > 0 else None
    if law is not None:
        return seen + law.one_sided_quantile(beta) + _UNIT * n
    if measurement.noise != "gaussian" or beta <= 0:
        return math.inf
    return seen + measurement.sigma * math.sqrt(-2 * n * math.log(beta)) + _UNIT * n


# -- Intervals for counts, from measurements and selections.


Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Interval:
    """An interval for a true count.

    Attributes:
        low: the lower end, in rows.
        high: the upper end; infinite if nothing is known.
        source: "measured" (a measured clique has all columns of the query), "selected" (a selection preferred another
            clique), "contained" (only parts of the query were measured: the count is at most theirs) or "unknown".
    """

    low: float
    high: float
    source: Literal["measured", "selected", "contained", "unknown"]


def bound_count(
    evidence: Evidence, inner: Mapping[str, Mask], outer: Mapping[str, Mask], *, confidence: float = 0.95
) -> Interval:
    """Compute an interval for the number of rows whose codes lie in a set for each column.

    A condition may cut through a code (part of a bin, one of several merged codes): the true count then lies between
    the count of the codes entirely inside and that of all codes that it touches.

    **Guarantees.** For any rows, the interval holds with probability `confidence` over the mechanism's noise.

    Args:
        evidence: the released values.
        inner: by column, the declared codes that lie entirely inside the condition.
        outer: by column, the declared codes that lie at least partly inside.
        confidence: between 0 and 1.
    """
    beta = 1 - confidence
    same = all(np.array_equal(inner[column], outer[column]) for column in inner)
    low, high = (0.0, math.inf) if evidence.rows is None else (0.0, float(evidence.rows))
    source: Literal["measured", "selected", "contained", "unknown"] = "unknown"
    for stage in evidence.stages:
        part = beta * stage.part / max(1, len(stage.measurements))
        for measurement in stage.measurements:
            covers = set(inner) <= set(measurement.clique)
            found = _bound_sides(evidence, measurement, inner, outer, part if same or not covers else part / 2)
            if found is None:
                continue
            high = min(high, found[1])
            low = max(low, found[0]) if covers else low
            source = "measured" if covers else "contained" if source == "unknown" else source
    interval = Interval(min(low, high), high, source if math.isfinite(high) else "unknown")
    return interval if source == "measured" else _tighten_by_selection(evidence, inner, outer, interval, confidence)


def _bound_sides(
    evidence: Evidence, measurement: Measurement, inner: Mapping[str, Mask], outer: Mapping[str, Mask], beta: float
) -> tuple[float, float] | None:
    """Return the ends of the interval from one measurement, for the part of the query that it covers."""
    unrelated = bool(inner) and not set(inner) & set(measurement.clique)
    if measurement.query is not None or beta <= 0 or unrelated:
        return None
    low = _sum_cells(evidence, measurement, inner, beta, whole=True)
    high = _sum_cells(evidence, measurement, outer, beta, whole=False)
    return None if low is None or high is None else (low[0] - low[1], high[0] + high[1])


def _sum_cells(
    evidence: Evidence, measurement: Measurement, masks: Mapping[str, Mask], beta: float, *, whole: bool
) -> tuple[float, float] | None:
    """Return the noisy count of the query's cells and a bound of its noise; None if the bound is not known."""
    codes = find_codes(evidence, measurement)
    axes = [_select_codes(evidence, column, len(places), masks, whole=whole) for column, places in codes.items()]
    cells = math.prod(map(len, axes))
    if cells == 0:
        return 0.0, 0.0
    table = measurement.values.reshape([len(places) for places in codes.values()])
    value = float(table[np.ix_(*axes)].sum())
    law = NoiseSum.of(measurement.noise, measurement.sigma, cells)
    if law is not None:
        return value, law.two_sided_quantile(beta)
    if measurement.noise != "gaussian":
        return None
    return value, measurement.sigma * math.sqrt(2 * cells * math.log(2 / beta))


def _select_codes(
    evidence: Evidence, column: str, size: int, masks: Mapping[str, Mask], *, whole: bool
) -> NDArray[np.intp]:
    """Return the codes of a column to sum over; all codes of a column that the query does not name."""
    if column not in masks:
        return np.arange(size)
    mask = masks[column]
    return np.flatnonzero(mask if len(mask) == size else merge_mask(evidence, column, mask, whole=whole))


def merge_mask(evidence: Evidence, column: str, mask: Mask, *, whole: bool) -> Mask:
    """Return the merged codes that are entirely inside a set of declared codes, or touched by it."""
    merged = evidence.merged.get(column)
    if merged is None:
        return mask
    size = evidence.model.domain[column]
    inside = np.bincount(merged, weights=mask, minlength=size)
    result: Mask = inside == np.bincount(merged, minlength=size) if whole else inside > 0
    return result


def _tighten_by_selection(
    evidence: Evidence, inner: Mapping[str, Mask], outer: Mapping[str, Mask], measured: Interval, confidence: float
) -> Interval:
    """Narrow an interval by selections: the error of a subset of cells is at most the L1 distance of the marginal.

    If the model has the true number of rows, positive and negative errors cancel, so it is at most half of it.
    """
    names = {evidence.model.domain.canonical(inner)} & {clique for clique, _ in evidence.cliques}
    if not names:
        return measured
    clique = names.pop()
    bound = bound_marginals(evidence, [clique], confidence=confidence)[0]
    if bound.bound is None or bound.source != "selected":
        return measured
    reach = bound.bound / 2 if evidence.rows is not None else bound.bound
    table = evidence.model.project(clique)
    ends = []
    for masks, whole in ((inner, True), (outer, False)):
        axes = [np.flatnonzero(merge_mask(evidence, column, masks[column], whole=whole)) for column in clique]
        ends.append(float(table[np.ix_(*axes)].sum()))
    low, high = max(measured.low, ends[0] - reach), min(measured.high, ends[1] + reach)
    tighter = high < measured.high or low > measured.low
    return Interval(min(low, high), high, "selected" if tighter else measured.source)


# -- Exact distributions of sums of integer noise, and bounds of its L1 norm.
#
# The discrete Gaussian is sub-Gaussian with its parameter as proxy, E exp(t X) <= exp(t^2 sigma^2 / 2) for every real t
# (Canonne, Kamath and Steinke 2020), hence so are weighted sums of independent draws, with the weighted sum of squares.
# `subgaussian_l1` uses only this. If one measurement is summed to fewer cells, the distribution of each sum is known
# exactly (`NoiseSum`), also for the discrete Laplace.


Noise: TypeAlias = Literal["gaussian", "laplace"]

_FURTHEST = 1 << 21
_TAIL = 1e-12  # probability of the far tail that a law leaves out; every use adds it
_BINS = 4000


def subgaussian_l1(cells: int, variance: float, beta: float) -> float:
    """Bound the L1 norm of a sub-Gaussian vector, except with probability at most `beta`.

    The smaller of two valid bounds: ||x||_1 = max over 2^n sign vectors s of <s, x>, each of which is
    sub-Gaussian with n times the variance, gives sqrt(2 n (n log 2 + log 1/beta)), no more than Theorem 3's; and
    ||x||_1 <= sqrt(n) ||x||_2 with the tail of Hsu, Kakade and Zhang (2012), ||x||_2^2 <= n + 2 sqrt(n u) + 2 u for
    u = log 1/beta, is smaller for many cells.

    Args:
        cells: n, the length of the vector.
        variance: the proxy: E exp(<a, x>) <= exp(||a||^2 variance / 2) for every a.
        beta: the probability with which the bound may fail.
    """
    u = -math.log(beta)
    signs = 2 * cells * (cells * math.log(2) + u)
    lengths = cells * (cells + 2 * math.sqrt(cells * u) + 2 * u)
    return math.sqrt(variance * min(signs, lengths))


@dataclass(frozen=True, eq=False)
class NoiseSum:
    """The distribution of a sum of independent integer noise.

    Attributes:
        deviation: its standard deviation (for the discrete Gaussian an upper bound).
        mass: the probabilities of |sum| = 0, 1, 2, ...; larger values have probability at most `_TAIL`.
    """

    deviation: float
    mass: NDArray[np.float64]

    @staticmethod
    def of(noise: Noise, sigma: float, terms: int) -> NoiseSum | None:
        """Return the distribution of a sum of this many draws; None if its support is too large.

        Args:
            noise: the distribution of each draw.
            sigma: as in a measurement: the discrete Gaussian's parameter, the discrete Laplace's standard deviation.
            terms: the number of draws.

        >>> law = NoiseSum.of("gaussian", 10.0, 4)
        >>> law.two_sided_quantile(0.05), law.one_sided_quantile(0.05)
        (39.0, 33.0)
        """
        return _law(noise, float(sigma), int(terms))

    def two_sided_quantile(self, beta: float) -> float:
        """Return the smallest whole number that |sum| exceeds with probability at most `beta`."""
        return self._find_quantile(beta - _TAIL)

    def one_sided_quantile(self, beta: float) -> float:
        """Return the smallest whole number that the sum, a symmetric one, exceeds with probability at most `beta`."""
        return self._find_quantile(2 * (beta - _TAIL))

    def l1(self, cells: int, beta: float) -> float:
        """Return a Chernoff bound that the L1 norm of independent cells exceeds with probability at most `beta`.

        P(sum of |x_j| >= a) <= exp(-t a) E[exp(t |x|)]^n for every t > 0; magnitudes are rounded up to bins first, and
        the far tail of each cell is covered by a union bound.
        """
        left = beta - cells * _TAIL
        if left <= 0:
            return math.inf
        if cells == 1:
            return self.two_sided_quantile(beta)
        magnitudes, mass = self._coarse()
        rates = np.geomspace(1e-3, 3.0, 60) / self.deviation
        moments = np.array([math.log(float(mass @ np.exp(rate * magnitudes))) for rate in rates])
        return float(np.min((cells * moments - math.log(left)) / rates))

    def _find_quantile(self, beta: float) -> float:
        if beta <= 0:
            return math.inf
        beyond = np.cumsum(self.mass[::-1])[::-1]  # P(|sum| >= k), without the dust
        inside = np.flatnonzero(np.append(beyond[1:], 0.0) <= beta)
        return float(inside[0]) if len(inside) else math.inf

    def _coarse(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        width = max(1, -(-len(self.mass) // _BINS))
        edges = np.arange(0, len(self.mass), width)
        return np.minimum(edges + width - 1, len(self.mass) - 1).astype(float), np.add.reduceat(self.mass, edges)


@lru_cache(maxsize=4096)
def _law(noise: Noise, sigma: float, terms: int) -> NoiseSum | None:
    deviation = sigma * math.sqrt(terms)
    reach = int(9.5 * deviation if noise == "gaussian" else 42 * max(deviation, 2 * sigma)) + 2
    if 2 * reach + 1 > _FURTHEST:
        return None
    size = 1 << (2 * reach).bit_length()
    places = np.minimum(np.arange(size), size - np.arange(size)).astype(float)
    one = np.exp(-((places / sigma) ** 2) / 2) if noise == "gaussian" else np.exp(places * math.log(_ratio(sigma)))
    one /= one.sum()
    summed = one if terms == 1 else np.fft.irfft(np.fft.rfft(one) ** terms, size)
    mass = np.maximum(summed[: reach + 1], 0.0)
    mass[1:] *= 2
    beyond = np.cumsum(mass[::-1])[::-1]
    kept = mass[: max(1, int(np.count_nonzero(beyond > _TAIL / 2)))].copy()
    kept.flags.writeable = False
    return NoiseSum(deviation, kept)


def _ratio(sigma: float) -> float:
    """Return the q of the discrete Laplace with mass proportional to q^|k|, from its variance 2 q / (1 - q)^2."""
    variance = sigma * sigma
    return variance / (1 + variance + math.sqrt(1 + 2 * variance))
