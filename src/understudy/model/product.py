"""The product model: independent columns, each with its own distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import ReleaseError
from understudy.measurement import Measurement, combine, noisy_total
from understudy.model.consistency import norm_sub
from understudy.model.graphical import GraphicalModel
from understudy.model.protocol import DAMAGED, Model, cannot_occur, read_chances


class ProductModel(Model):
    """The model of independent columns, for mechanisms that measure one-way marginals only."""

    kind: ClassVar[str] = "product"

    def __init__(self, domain: Domain, total: float, shares: Mapping[str, NDArray[np.float64]]) -> None:
        self.domain = domain
        self.total = float(total)
        self._shares = {column: shares[column] for column in domain}

    def project(self, clique: Clique) -> NDArray[np.float64]:
        """Expected counts of a clique's cells, its axes in the clique's order."""
        table = np.array(self.total)
        for column in self.domain.check(clique):
            table = np.multiply.outer(table, self._shares[column])
        return table

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Draw coded columns: the expected counts, rounded at random, each column shuffled independently."""
        return {column: _draw_column(share, rows, rng) for column, share in self._shares.items()}

    def condition(self, where: Mapping[str, int | NDArray[np.float64]]) -> ProductModel:
        """Return the model given what is known about some columns; see `Model.condition`."""
        shares, total = dict(self._shares), self.total
        for column, chances in read_chances(self.domain, where).items():
            if not chances @ shares[column] > 0:
                raise cannot_occur(where)
            total *= float(chances @ shares[column])
            shares[column] = chances * shares[column] / (chances @ shares[column])
        return ProductModel(self.domain, total, shares)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return plain arrays: all shares end to end, and the total."""
        return {"shares": np.concatenate(list(self._shares.values())), "total": np.array(self.total)}

    @classmethod
    def from_arrays(cls, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the model that `to_arrays` wrote.

        Raises:
            ReleaseError: if the arrays do not fit the domain.
        """
        sizes = list(domain.values())
        flat = np.asarray(arrays.get("shares", ()), dtype=np.float64)
        total = np.asarray(arrays.get("total", np.nan), dtype=np.float64)
        if flat.shape != (sum(sizes),) or total.shape != () or not np.isfinite(total) or not (flat >= 0).all():
            raise ReleaseError(DAMAGED)
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        if not all(abs(part.sum() - 1) < 1e-6 for part in parts):
            raise ReleaseError(DAMAGED)
        return cls(domain, float(total), dict(zip(domain, parts, strict=True)))


def fit_product(
    domain: Domain, measurements: Sequence[Measurement], *, total: float | None = None
) -> ProductModel | GraphicalModel:
    """Make the product model of one-way measurements; a column without a measurement is uniform.

    Several measurements of a column are averaged by precision and projected onto non-negative counts. If the domain
    forbids cells, columns are not independent; the result is then the graphical model that fits the one-way marginals.

    Args:
        domain: the columns.
        measurements: identity measurements of single columns.
        total: the number of rows if public; otherwise the precision-weighted mean of the tables' sums.
    """
    for measurement in measurements:
        measurement.check(domain)
    if domain.forbidden:
        from understudy.model.estimate import estimate

        return estimate(domain, measurements, total=total if measurements else total or 1.0)
    rows = noisy_total(measurements) if total is None else float(total)
    tables: dict[str, list[Measurement]] = {column: [] for column in domain}
    for measurement in measurements:
        tables[measurement.clique[0]].append(measurement)
    return ProductModel(domain, rows, {column: _fit_share(domain[column], tables[column], rows) for column in domain})


def _fit_share(size: int, tables: Sequence[Measurement], total: float) -> NDArray[np.float64]:
    if not tables:
        return np.full(size, 1.0 / size)
    counts = norm_sub(combine(tables)[0], total)
    share: NDArray[np.float64] = counts / counts.sum()
    return share


def _draw_column(share: NDArray[np.float64], rows: int, rng: np.random.Generator) -> NDArray[Any]:
    expected = share * rows
    counts = np.floor(expected).astype(np.int64)
    rest, missing = expected - counts, rows - int(counts.sum())
    if missing > 0:
        chance = np.where(rest > 0, rest, 1e-300)
        order = np.argsort(rng.exponential(size=len(share)) / chance, kind="stable")
        np.add.at(counts, order[np.arange(missing) % len(share)], 1)
    codes = np.repeat(np.arange(len(share), dtype=np.min_scalar_type(len(share) - 1)), counts)
    rng.shuffle(codes)
    return codes[:rows]
