"""Replicates: a parametric bootstrap of a release, for graphics and for how much a result varies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.arguments import as_whole
from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.model.dependencies import learn_dependencies
from understudy.model.generate import generate
from understudy.model.graphical import GraphicalModel
from understudy.release.frames import Frame, check_kind, convert_rows
from understudy.release.rows import RowMaker, check_size, undo_merging
from understudy.tabulate import marginals, to_dense

if TYPE_CHECKING:
    from understudy.release.release import Release


def make_replicates(release: Release, count: int, *, rows: int | None, seed: int | None, as_: Frame) -> Iterator[Any]:
    """Make synthetic tables as the release was made, from its own model; see `Release.replicates`."""
    check_kind(as_)
    count = as_whole("count", count, least=2)
    size = release.default_rows if rows is None else as_whole("rows", rows)
    seed = None if seed is None else as_whole("seed", seed)
    if release.generator is None:
        raise SettingError(f"releases of {release.mechanism} have no replicates; use `infer` for standard errors")
    schema = release.schema
    finish = partial(generate, release.generator, groups=schema.code_groups)
    for generator in np.random.default_rng(seed).spawn(count):
        merged = _draw_rows(release, generator)
        whole = undo_merging(merged, release.recoding, schema, release.measurements, generator, "spread")
        measured = [_measure_again(release, m, merged, whole, generator) for m in release.measurements]
        fit = finish(schema.domain, measured, recoding=release.recoding, total=schema.rows_used)
        fit = learn_dependencies(finish, fit, schema, total=schema.rows_used)
        yield convert_rows(RowMaker(replace(release, model=fit.model)).rows(size, generator), as_)


def _draw_rows(release: Release, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Draw as many independent rows as the model's total."""
    rows = max(1, round(release.model.total))
    check_size(rows, len(release.schema.columns))
    if isinstance(release.model, GraphicalModel):
        return release.model.sample(rows, rng, rounding=False)
    return release.model.sample(rows, rng)


def _measure_again(
    release: Release,
    measurement: Measurement,
    merged: dict[str, NDArray[Any]],
    whole: dict[str, NDArray[Any]],
    rng: np.random.Generator,
) -> Measurement:
    """Measure the same clique of the drawn rows with as much noise; rows of a model need no protection."""
    declared = release.schema.domain
    cells = len(measurement.values) if measurement.query is None else measurement.query.shape[1]
    before = cells == declared.cells(measurement.clique)
    codes, domain = (whole, declared) if before else (merged, release.model.domain)
    ((_, counts),) = marginals(codes, domain, [measurement.clique])
    table: NDArray[Any] = to_dense(counts)
    if measurement.query is not None:
        table = measurement.query @ table
    if measurement.noise == "gaussian":
        noise = np.rint(rng.normal(0.0, measurement.sigma, len(table)))
    else:
        noise = np.rint(rng.laplace(0.0, measurement.sigma / np.sqrt(2), len(table)))
    return replace(measurement, values=table + noise)
