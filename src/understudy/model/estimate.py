"""Estimation: find the graphical model that fits noisy marginals best (Private-PGM)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.arguments import as_progress
from understudy.domain import Clique, Domain
from understudy.errors import InputError, SettingError
from understudy.measurement import Measurement, Query, weighted_mean
from understudy.model.descent import minimise
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree
from understudy.model.problem import make_problem, start_warm
from understudy.progress import Progress, Step

_ENOUGH_DEVIATIONS = 20.0  # a declared total further than this from the measurements contradicts them


def estimate(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float | None = None,
    warm_start: GraphicalModel | None = None,
    forbidden: Mapping[Clique, NDArray[np.bool_]] | None = None,
    tolerance: float = 1e-3,
    enough: float = 0.0,
    limit_mib: float | None = None,
    max_seconds: float | None = None,
    progress: Progress | None = None,
) -> GraphicalModel:
    """Estimate the distribution of maximum entropy among those that fit the measurements best.

    The fit is least squares with weight 1/sigma^2, which is maximum likelihood for Gaussian noise. The model has one
    potential for each measured clique. The same arguments give the same model, bit for bit, on the same machine.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns; a column without a measurement is uniform. Cells that it forbids get probability 0.
        measurements: noisy marginals, or linear queries of them; a clique may be measured more than once.
        total: the number of rows if public; otherwise it is estimated from the measurements.
        warm_start: an earlier model of the same domain to start from; it changes the time, not the result.
        forbidden: for each clique a mask of further cells that cannot occur (structural zeros).
        tolerance: stop when the predicted remaining relative decrease of the loss is below this.
        enough: stop as soon as the loss is at most this multiple of what the noise alone is expected to cause, half the
            number of values; 0 to find the minimum.
        limit_mib: refuse a larger junction tree; by default three quarters of the machine's memory.
        max_seconds: stop after this time even if not converged; the model's report says so.
        progress: called every 25 iterations.

    Returns:
        The model, with `model.report` about the fit.

    Raises:
        SchemaError: if a clique names an unknown or repeated column.
        InputError: if a measurement, the total or a mask of forbidden cells cannot be used.
        SettingError: if an option is out of range, or the tree is larger than the limit.
    """
    report_step = as_progress(progress)
    _check_settings(tolerance, limit_mib, max_seconds)
    for measurement in measurements:
        measurement.check(domain)
    masks = _check_masks(domain, forbidden or {})
    rows = estimate_total(domain, measurements, total)
    cliques = [*(m.clique for m in measurements), *masks]
    tree = JunctionTree.of(domain, cliques, limit_mib=_memory_limit(limit_mib))
    problem = make_problem(tree, measurements, rows, masks, tolerance=tolerance)
    propagation = problem.propagation

    def watch(calls: int, loss: float) -> None:
        if calls % 25 == 0:
            place = " on the GPU" if propagation.is_on_device else ""
            report_step(Step("estimate", None, f"{calls} iterations{place}"))

    x, report = minimise(
        problem,
        warm=None if warm_start is None else start_warm(problem, warm_start),
        tolerance=tolerance,
        enough=0.5 * enough * sum(len(m.values) for m in measurements),
        max_seconds=max_seconds,
        watch=watch,
    )
    folded = problem.fold_potentials(x)
    folded[problem.forbidden] = -np.inf
    del x, problem  # frees as much memory as the result takes
    potentials = folded.copy()
    tables = {propagation.tables[t]: potentials[propagation.slice_of(t)] for t in range(propagation.factors)}
    return GraphicalModel(domain, tables, total=rows, report=report)


def _check_settings(tolerance: float, limit_mib: float | None, max_seconds: float | None) -> None:
    if not 0.0 < tolerance < 1.0:
        raise SettingError("tolerance must lie between 0 and 1; the default is a good start")
    for name, value in (("limit_mib", limit_mib), ("max_seconds", max_seconds)):
        if value is not None and not value > 0.0:
            raise SettingError(f"{name} must be positive; leave it out for the default limit")


def _memory_limit(limit_mib: float | None) -> float:
    """Return the caller's limit, or three quarters of the machine's memory."""
    if limit_mib is not None:
        return limit_mib
    import os

    try:
        return 0.75 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 8 * 2.0**10


def _check_masks(domain: Domain, forbidden: Mapping[Clique, NDArray[np.bool_]]) -> dict[Clique, NDArray[np.bool_]]:
    masks = domain.forbidden
    for clique, mask in forbidden.items():
        table = np.asarray(mask)
        clique = domain.check(clique)
        if table.dtype != np.bool_ or table.size != domain.cells(clique):
            raise InputError(
                f"forbidden cells of {clique}: give an array of {domain.cells(clique)} truth values, "
                f"shaped {domain.shape(clique)}"
            )
        if table.all():
            raise InputError(f"forbidden cells of {clique}: all cells are forbidden; allow at least one")
        table = table.reshape(domain.shape(clique))
        masks[clique] = masks[clique] | table if clique in masks else table
    return masks


def estimate_as_printed(
    domain: Domain, measurements: Sequence[Measurement], *, total: float | None = None, **options: Any
) -> GraphicalModel:
    """Estimate with the loss that AIM prints, weights 1/sigma instead of 1/sigma^2; see `estimate`."""
    weighted, rows = weigh_as_printed(domain, measurements, total)
    return estimate(domain, weighted, total=rows, **options)


def weigh_as_printed(
    domain: Domain, measurements: Sequence[Measurement], total: float | None
) -> tuple[list[Measurement], float]:
    """Return measurements with sigmas for which weights 1/sigma^2 are 1/sigma of the true ones, and the number of rows.

    The number of rows is estimated from the noise as it is.
    """
    rows = estimate_total(domain, measurements, total)
    least = min((m.sigma for m in measurements), default=1.0)
    return [replace(m, sigma=math.sqrt(m.sigma * least)) for m in measurements], rows


def estimate_total(domain: Domain, measurements: Sequence[Measurement], total: float | None = None) -> float:
    """Return the declared number of rows, or the precision-weighted mean of what the measurements imply.

    Raises:
        InputError: if the total cannot be used, or neither it nor a measurement gives the number of rows.
    """
    if total is not None and not (math.isfinite(total) and total > 0.0):
        raise InputError("total must be a positive, finite number of rows")
    found = [estimate for m in measurements if (estimate := _implied_total(domain, m)) is not None]
    if not found:
        if total is None:
            raise InputError("no measurement gives the number of rows; give total, or measure a marginal")
        return float(total)
    mean, precision = weighted_mean((value, 1.0 / variance) for value, variance in found)
    if total is None:
        return max(1.0, mean)
    if abs(mean - total) > _ENOUGH_DEVIATIONS * precision**-0.5 and not 0.5 * total < mean < 2.0 * total:
        raise InputError(
            f"total={total:g} contradicts the measurements, which add up to about {mean:.6g} rows; "
            "correct the total, or leave it out to have it estimated"
        )
    return float(total)


def _implied_total(domain: Domain, measurement: Measurement) -> tuple[float, float] | None:
    """Return the number of rows implied by one measurement, and its variance; None if its query implies none."""
    if measurement.query is None:
        return float(measurement.values.sum()), measurement.sigma**2 * len(measurement.values)
    combination = _find_summing_combination(measurement.query)
    if np.abs(measurement.query.T @ combination - 1.0).max() > 1e-6:
        return None
    return float(combination @ measurement.values), measurement.sigma**2 * float(combination @ combination)


def _find_summing_combination(query: Query) -> NDArray[np.float64]:
    """Find the combination of answers nearest to the sum of all cells: conjugate gradients on `query.T @ c = 1`."""
    answers, cells = query.shape
    combination, residual = np.zeros(answers), np.ones(cells)
    gradient = np.asarray(query @ residual)
    direction, size = gradient, float(gradient @ gradient)
    for _ in range(2 * answers):
        if size <= 1e-24 * cells:
            break
        image = np.asarray(query.T @ direction)
        step = size / float(image @ image)
        combination, residual = combination + step * direction, residual - step * image
        gradient = np.asarray(query @ residual)
        size, before = float(gradient @ gradient), size
        direction = gradient + size / before * direction
    return combination
