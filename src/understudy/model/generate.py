"""Fit a model to measurements: the last step of every mechanism, and measurements over merged codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.domain import NO_GROUPS, CodeGroups, Domain
from understudy.errors import InputError
from understudy.measurement import Measurement, Scaling
from understudy.model.estimate import estimate, weigh_as_printed
from understudy.model.fit import Fit, Generator
from understudy.model.gum import fit_gum
from understudy.model.junction_tree import JunctionTree
from understudy.model.network import fit_network
from understudy.model.ordered import fit_ordered_counts, order_groups
from understudy.model.product import fit_product
from understudy.model.protocol import Model
from understudy.model.relaxed import fit_relaxed
from understudy.model.tree import fit_tree
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding

_PRECISE = 0.3  # of the least sigma: the sigma with which models follow the counts of columns with an axis


def generate(
    generator: Generator | str,
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    recoding: Recoding,
    groups: CodeGroups = NO_GROUPS,
    total: float | None = None,
    progress: Progress = silent,
) -> Fit:
    """Fit the model of a generator to any mechanism's measurements.

    **Privacy.** Post-processing of measurements.

    Args:
        generator: the generator, or its name.
        domain: the declared domain.
        measurements: noisy marginals as the gate returned them, before and after codes were merged.
        recoding: the merged codes.
        groups: which columns have an axis; by default none.
        total: the number of rows, if public.
        progress: called with each step.

    Raises:
        SettingError: if the generator is unknown.
        InputError: if the measurements do not fit the domain.
    """
    chosen = Generator(generator) if isinstance(generator, str) else generator
    groups = NO_GROUPS if chosen.as_printed else groups
    tables = re_express_all(domain, measurements, recoding, groups, total=total)
    axes = {column: _merged_places(recoding, column, places) for column in domain if (places := groups.axis(column))}
    model = _generate_model(chosen, recoding.recode(domain), tables, total, axes, progress)
    return Fit(model=model, measurements=measurements, recoding=recoding, generator=chosen)


def _generate_model(
    generator: Generator,
    merged: Domain,
    tables: Sequence[Measurement],
    total: float | None,
    axes: Mapping[str, int],
    progress: Progress,
) -> Model:
    limit = generator.limit_mib
    if generator.name == "product" and all(table.query is None for table in tables):
        progress(Step("estimate", 1.0, "product of one-way marginals"))
        return fit_product(merged, tables, total=total)
    if generator.name in ("rap", "gem"):
        progress(Step("estimate", None, "relaxed rows"))
        return (fit_relaxed if generator.name == "rap" else fit_network)(merged, tables, total=total)
    if generator.name != "gum":
        cliques = [table.clique for table in tables]
        if limit is None or JunctionTree.of(merged, cliques).size_mib <= limit:
            if generator.loss == "printed":
                tables, total = weigh_as_printed(merged, tables, total)
            if generator.name == "tree":
                return fit_tree(merged, tables, total=total, progress=progress)
            return estimate(merged, tables, total=total, enough=generator.enough, progress=progress)
    progress(Step("estimate", None, "consistent tables"))
    return fit_gum(merged, tables, total=total, updates=generator.updates, axes=axes)


def _merged_places(recoding: Recoding, column: str, places: int) -> int:
    """Return how many of a column's merged codes are on its axis; all, if codes beside it are among them."""
    array = recoding.maps.get(column, np.arange(places))
    intervals = int(array[:places].max()) + 1
    apart = column not in recoding.maps or recoding.intervals(column, places) > 0
    return intervals if apart and len(np.unique(array[:places])) == intervals else int(array.max()) + 1


# Measurements over merged codes


def re_express(domain: Domain, measurement: Measurement, recoding: Recoding) -> Measurement:
    """Express a measurement over merged codes, every value with the same sigma.

    A cell into which u cells were merged has their sum, whose noise is sqrt(u) times as large. Its value is divided
    by sqrt(u), and so is its row of the query. Cells that were not merged keep their values.

    Args:
        domain: the columns before merging.
        measurement: an identity measurement over them.
        recoding: the merged codes.

    Raises:
        InputError: if the measurement already has a query or does not fit the domain.

    >>> ages = Measurement(("age",), np.array([50, 2, 40, -1]), 2.0)
    >>> again = re_express(Domain({"age": 4}), ages, Recoding({"age": np.array([0, 2, 1, 2])}))
    >>> again.values.round(3).tolist(), again.query.factors.round(3).tolist()
    ([50.0, 40.0, 0.707], [1.0, 1.0, 0.707])
    """
    maps = recoding.maps
    if not any(column in maps for column in measurement.clique):
        return measurement
    if measurement.query is not None:
        raise InputError(f"measurement of {measurement.clique}: it has a query; re-express it once, from the original")
    measurement.check(domain)
    target = _map_cells(domain.project(measurement.clique), maps)
    sums = np.bincount(target, weights=measurement.values)
    scale = 1 / np.sqrt(np.bincount(target))
    return Measurement(measurement.clique, sums * scale, measurement.sigma, Scaling(scale), measurement.noise)


def re_express_all(
    domain: Domain,
    measurements: Sequence[Measurement],
    recoding: Recoding,
    groups: CodeGroups = NO_GROUPS,
    *,
    total: float | None = None,
) -> list[Measurement]:
    """Express all measurements over merged codes; those that were made after merging stay unchanged.

    Mechanisms measure partly before and partly after codes are merged. Merging makes tables smaller, so the length of
    a table shows which domain it belongs to. The measurements of a column with an axis are replaced by
    `fit_ordered_counts` with so small a sigma that models follow them: the non-negative cells of larger tables would
    bias the column again. Tables of such a column and another one are fitted group by group (`order_groups`).

    Args:
        domain: the declared domain.
        measurements: any measurements, as the gate returned them.
        recoding: the merged codes.
        groups: which columns have an axis; by default none.
        total: the number of rows, if public.

    Raises:
        InputError: if a measurement fits neither domain.
    """
    merged = recoding.recode(domain)
    ordered = fit_ordered_counts(domain, measurements, recoding, groups, total)
    out = []
    for measurement in measurements:
        if len(measurement.clique) == 1 and measurement.clique[0] in ordered:
            continue
        if measurement.query is None and len(measurement.values) != merged.cells(merged.check(measurement.clique)):
            measurement = re_express(domain, measurement, recoding)
        measurement.check(merged)
        out.append(measurement)
    maps, sigma = recoding.maps, _PRECISE * min((m.sigma for m in measurements), default=1.0)
    for column, counts in ordered.items():
        out.append(Measurement((column,), np.bincount(maps.get(column, np.arange(len(counts))), counts), sigma))
    return order_groups(domain, out, recoding, groups)


def _map_cells(domain: Domain, maps: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """For each cell of the table, return the merged cell that it belongs to."""
    target = np.zeros((), dtype=np.int64)
    for column, size in domain.items():
        place = maps.get(column, np.arange(size))
        target = np.add.outer(target * (place.max() + 1), place)
    return target.reshape(-1)
