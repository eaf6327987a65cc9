"""From measurements to a model: the last step of every mechanism, chosen apart from how marginals were selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.errors import InputError
from understudy.measurement import Measurement, Scaling
from understudy.model.estimate import estimate
from understudy.model.fit import Fit, Generator
from understudy.model.gum import gum_of
from understudy.model.junction_tree import JunctionTree
from understudy.model.product import product_of
from understudy.model.protocol import Model
from understudy.model.tree import tree_fit
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding


def generate(
    generator: Generator | str,
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    recoding: Recoding,
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
        total: the number of rows, where it is public.
        progress: told about each step.

    Raises:
        SettingError: for an unknown generator.
        InputError: for measurements that do not fit.
    """
    chosen = Generator(generator) if isinstance(generator, str) else generator
    model = _generate_model(chosen, domain, measurements, recoding, total, progress)
    return Fit(model=model, measurements=measurements, recoding=recoding, generator=chosen)


def _generate_model(
    generator: Generator,
    domain: Domain,
    measurements: Sequence[Measurement],
    recoding: Recoding,
    total: float | None,
    progress: Progress,
) -> Model:
    merged = recoding.recode(domain)
    if generator.name == "product":
        progress(Step("estimate", 1.0, "product of one-way marginals"))
        return product_of(merged, measurements, total=total)
    tables, limit = re_express_all(domain, measurements, recoding), generator.limit_mib
    if generator.name != "gum":
        cliques = [table.clique for table in tables]
        if limit is None or JunctionTree.of(merged, cliques).size_mib <= limit:
            fit_model = tree_fit if generator.name == "tree" else estimate
            return fit_model(merged, tables, total=total, progress=progress)
    progress(Step("estimate", None, "consistent tables"))
    return gum_of(merged, tables, total=total)


# Measurements over merged codes.


def re_express(domain: Domain, measurement: Measurement, recoding: Recoding) -> Measurement:
    """The same noisy answers about the merged codes, every answer with the same sigma.

    A cell that u cells were merged into has their sum, whose noise is sqrt(u) times as large: it enters divided by
    sqrt(u), with a query row scaled alike. Cells that were not merged keep their values.

    Args:
        domain: the columns before merging.
        measurement: an identity measurement over them.
        recoding: the merged codes.

    Raises:
        InputError: for a measurement that already has a query, or does not fit the domain.

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
    target = _target(domain.project(measurement.clique), maps)
    sums = np.bincount(target, weights=measurement.values)
    scale = 1 / np.sqrt(np.bincount(target))
    return Measurement(measurement.clique, sums * scale, measurement.sigma, Scaling(scale), measurement.noise)


def re_express_all(domain: Domain, measurements: Sequence[Measurement], recoding: Recoding) -> list[Measurement]:
    """Every measurement over the merged codes: those of the declared domain re-expressed, the later ones as they are.

    What a `finish` is given was measured partly before codes were merged and partly after; merging makes tables
    smaller, so the length of a table tells which.

    Args:
        domain: the declared domain.
        measurements: any part of what was measured, as the gate returned it.
        recoding: the merged codes.

    Raises:
        InputError: for a measurement that fits neither domain.
    """
    merged = recoding.recode(domain)
    out = []
    for measurement in measurements:
        if measurement.query is None and len(measurement.values) != merged.cells(merged.check(measurement.clique)):
            measurement = re_express(domain, measurement, recoding)
        measurement.check(merged)
        out.append(measurement)
    return out


def _target(domain: Domain, maps: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """For each cell of the table the merged cell it goes to."""
    target = np.zeros((), dtype=np.int64)
    for column, size in domain.items():
        place = maps.get(column, np.arange(size))
        target = np.add.outer(target * (place.max() + 1), place)
    return target.reshape(-1)
