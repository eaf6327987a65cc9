"""How far a model's marginals can be from the true ones (McKenna et al. 2022, section 5), for every mechanism.

**Confidence is spent like the budget.** A stage (a call to the gate, or a round) that costs the share f of the budget
may be wrong with probability f times the whole doubt. Shares are fixed before the noise of their stage is drawn and sum
to at most 1, so all stages hold together, whatever was chosen because of earlier noise; the smallest of their bounds
may then be taken. (The paper takes one bound, from the last round. Which round is the last depends on the noise, and so
does which measurements there are to average: that is not allowed without such care.) Within a round, the choice, the
noise on the chosen marginal and the noise on the marginal asked about each get a third.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.bounds.tails import Law, Noise, subgaussian_l1
from understudy.domain import Clique, Domain
from understudy.measurement import Measurement, weighted_mean
from understudy.model.protocol import Model
from understudy.model.registry import MODELS

Vector: TypeAlias = NDArray[np.float64]
_UNIT = 2.0**-15  # the gate compares with marginals rounded to 2^-16 rows; models are stored to a rounding error


@dataclass(frozen=True)
class Stage:
    """Measurements whose cliques and sigmas were fixed before any of them was drawn.

    Attributes:
        measurements: what was measured.
        share: the stage's share of the budget, and so of the doubt.
        round: the selection that came before, as `Fit.rounds` tells it; None where nothing was selected.
    """

    measurements: Sequence[Measurement]
    share: float
    round: Mapping[str, Any] | None = None

    @property
    def part(self) -> float:
        """The part of the doubt for each of the stage's events."""
        return self.share / (3 if self.round is not None else 1)


@dataclass(frozen=True)
class Evidence:
    """Everything released that bounds are made of; all of it public.

    Attributes:
        model: the distribution whose marginals are bounded.
        declared: the columns as declared.
        merged: by column, the code that each declared code became; columns without an entry are as declared.
        stages: what was learned, in order.
        cliques: the cliques that selections are about, with their weights, by position.
        rows: the number of rows, where that is public.
    """

    model: Model
    declared: Domain
    merged: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    stages: Sequence[Stage] = ()
    cliques: Sequence[tuple[Clique, float]] = ()
    rows: int | None = None


@dataclass(frozen=True)
class Bound:
    """How far one marginal of the model can be from the true one.

    Attributes:
        clique: the columns.
        bound: the L1 distance in rows is at most this, with the stated confidence; None: no bound is known.
        share: the same as a share of the model's rows.
        supported: whether a measured clique contains this one.
        source: "measured" (the noise of a measurement), "selected" (a selection that preferred another clique) or
            "unknown".
        confidence: the probability with which it holds: for this marginal alone, or for all that were asked about.
    """

    clique: Clique
    bound: float | None
    share: float | None
    supported: bool
    source: Literal["measured", "selected", "unknown"]
    confidence: float


def marginal_bounds(
    evidence: Evidence, cliques: Iterable[Clique], *, confidence: float = 0.95, simultaneous: bool = False
) -> list[Bound]:
    """A bound of ||M_r(D) - M_r(model)||_1 for each clique r; merged codes count as one code.

    **Guarantees.** Each holds with probability `confidence` over the mechanism's noise, whatever the rows;
    `simultaneous` makes all of them hold together with that probability.

    Args:
        evidence: what was released.
        cliques: the marginals to bound.
        confidence: between 0 and 1.
        simultaneous: split the doubt over all of them.
    """
    wanted = [evidence.model.domain.check(clique) for clique in cliques]
    tables = evidence.model.project_many(wanted)
    ways = len(wanted) if simultaneous else 1
    doubt = 1.0 - confidence
    selected = dict(_selected(evidence, wanted, tables, doubt))
    return [_smallest(evidence, r, tables[r].reshape(-1), selected.get(r), confidence, ways) for r in wanted]


def weighted_average(
    measurements: Sequence[Measurement], evidence: Evidence, clique: Clique
) -> tuple[Vector, Vector] | None:
    """Theorem 2: the inverse-variance mean of what measurements say about a clique, and the variance of each cell.

    None when no measured clique contains this one. Exact for measurements of one stage.
    """
    found = [(table, many * m.sigma**2) for m in measurements for table, many in _about(evidence, m, clique)]
    if not found:
        return None
    mean, precision = weighted_mean((table, 1 / variance) for table, variance in found)
    return mean, 1 / precision


def _smallest(
    evidence: Evidence, clique: Clique, table: Vector, selected: float | None, confidence: float, ways: int
) -> Bound:
    measured = _measured(evidence, clique, table, 1 - confidence, ways)
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


def _measured(evidence: Evidence, clique: Clique, table: Vector, doubt: float, ways: int) -> float | None:
    """Corollary 1, for the stage where it is smallest; None when no measured clique contains this one."""
    bounds = []
    for stage in evidence.stages:
        mean = weighted_average(stage.measurements, evidence, clique)
        if mean is not None:
            part = doubt * stage.part / ways
            apart = float(np.abs(mean[0] - table).sum())
            bounds.append(apart + _reach(evidence, stage.measurements, clique, mean[1], part))
    return min(bounds, default=None)


def _reach(
    evidence: Evidence, measurements: Sequence[Measurement], clique: Clique, variance: Vector, doubt: float
) -> float:
    """Theorem 3: how far the stage's estimate is from the truth; for one measurement by the exact law of its noise."""
    if doubt <= 0:
        return math.inf
    about = [(m, many) for m in measurements for _, many in _about(evidence, m, clique)]
    laws: set[Noise] = {m.noise for m, _ in about}
    # of the scaled noise z, every cell with variance 1: ||x||_1 <= ||sd||_2 ||z||_2 covers unequal cells
    even = float(variance.mean())
    general = subgaussian_l1(len(variance), even, doubt) if laws == {"gaussian"} else math.inf
    if len(about) > 1 or np.ptp(about[0][1]) > 0:
        return _lengths(variance, doubt) if laws == {"gaussian"} else math.inf
    law = Law.of(about[0][0].noise, about[0][0].sigma, int(about[0][1][0]))
    return general if law is None else min(general, law.l1(len(variance), doubt))


def _lengths(variance: Vector, doubt: float) -> float:
    if np.ptp(variance) <= 1e-12 * variance.max():
        return subgaussian_l1(len(variance), float(variance[0]), doubt)
    u, n = -math.log(doubt), len(variance)
    return math.sqrt(float(variance.sum()) * (n + 2 * math.sqrt(n * u) + 2 * u))


def _about(evidence: Evidence, measurement: Measurement, clique: Clique) -> Iterator[tuple[Vector, Vector]]:
    """A measurement summed to a clique of merged codes, and how many measured cells went into each; or nothing."""
    if measurement.query is not None or not set(clique) <= set(measurement.clique):
        return
    codes = codes_of(evidence, measurement)
    target = np.zeros((), dtype=np.int64)
    for column, places in codes.items():
        if column in clique:
            target = np.add.outer(target * evidence.model.domain[column], places)
        else:
            target = np.add.outer(target, np.zeros(len(places), dtype=np.int64))
    own = [column for column in measurement.clique if column in clique]
    cells = evidence.model.domain.cells(clique)
    order = [own.index(column) for column in clique]
    shape = evidence.model.domain.shape(own)
    for_sum = np.bincount(target.reshape(-1), weights=measurement.values, minlength=cells)
    for_many = np.bincount(target.reshape(-1), minlength=cells).astype(float)
    yield tuple(t.reshape(shape).transpose(order).reshape(-1) for t in (for_sum, for_many))  # type: ignore[misc]


def codes_of(evidence: Evidence, measurement: Measurement) -> dict[str, NDArray[np.int64]]:
    """By column of a measurement, the model's code of each of its codes: it was made before or after merging."""
    before = len(measurement.values) == evidence.declared.cells(measurement.clique)
    return {
        column: evidence.merged[column]
        if before and column in evidence.merged
        else np.arange(evidence.declared[column] if before else evidence.model.domain[column])
        for column in measurement.clique
    }


def _selected(
    evidence: Evidence, wanted: Sequence[Clique], tables: Mapping[Clique, Vector], doubt: float
) -> Iterator[tuple[Clique, float]]:
    """Corollary 2 for each clique that was a candidate, from the last round in which it was one.

    The events of a round are the same for all its candidates, so they need not be split between cliques.
    """
    places = {clique: i for i, (clique, _) in enumerate(evidence.cliques)}
    names = {clique: evidence.model.domain.canonical(clique) for clique in wanted}
    for stage in evidence.stages:
        if stage.round is None or "model" not in stage.round:
            continue
        last = set(np.asarray(stage.round["last"]).tolist())
        mine = [r for r in wanted if places.get(names[r]) in last]
        if mine:
            yield from _of_round(evidence, stage, mine, tables, doubt * stage.part)


def _of_round(
    evidence: Evidence, stage: Stage, wanted: Sequence[Clique], tables: Mapping[Clique, Vector], part: float
) -> Iterator[tuple[Clique, float]]:
    round_, measurement = stage.round or {}, stage.measurements[0]
    before = MODELS[round_["kind"]].from_arrays(evidence.model.domain, round_["model"])
    error = _error_of_choice(before, measurement, part)
    weights = dict(evidence.cliques)
    chosen = evidence.model.domain.canonical(measurement.clique)
    per_row = 2 * float(round_["sensitivity"]) / float(round_["epsilon"])
    missed = per_row * (math.log(len(round_["candidates"])) - math.log(part))
    score = weights[chosen] * (error - float(round_["offsets"][chosen_place(evidence, round_, chosen)]))
    old = before.project_many(wanted)
    for clique in wanted:
        name = evidence.model.domain.canonical(clique)
        if weights[name] > 0:
            offset = float(round_["offsets"][chosen_place(evidence, round_, name)])
            apart = float(np.abs(old[clique] - tables[clique]).sum()) + _UNIT * tables[clique].size
            yield clique, apart + offset + (score + missed) / weights[name]


def chosen_place(evidence: Evidence, round_: Mapping[str, Any], clique: Clique) -> int:
    """Where a clique stands among the candidates of a round."""
    place = next(i for i, (name, _) in enumerate(evidence.cliques) if name == clique)
    return int(np.flatnonzero(np.asarray(round_["candidates"]) == place)[0])


def _error_of_choice(before: Model, measurement: Measurement, doubt: float) -> float:
    """A bound of the chosen marginal's distance from the model before it was measured.

    With s the signs of M(D) - p, fixed before the noise x is drawn, ||y - p||_1 >= <s, y - p> = ||M(D) - p||_1 +
    <s, x>, and <s, x> has the law of a sum of independent draws, by symmetry.
    """
    seen = float(np.abs(measurement.values - before.project(measurement.clique).reshape(-1)).sum())
    n = len(measurement.values)
    law = Law.of(measurement.noise, measurement.sigma, n) if doubt > 0 else None
    if law is not None:
        return seen + law.one_side(doubt) + _UNIT * n
    if measurement.noise != "gaussian" or doubt <= 0:
        return math.inf
    return seen + measurement.sigma * math.sqrt(-2 * n * math.log(doubt)) + _UNIT * n
