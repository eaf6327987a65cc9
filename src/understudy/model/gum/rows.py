"""The model of PrivSyn: consistent tables, and rows made by the gradual update method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import ReleaseError, SettingError
from understudy.measurement import Measurement
from understudy.model.gum.consistency import consistent, marginal, tables_of
from understudy.model.gum.update import Columns, Plan
from understudy.model.ruled import mended, rule_tables

Array = NDArray[np.float64]

_FEWEST, _MOST = 10_000, 1_000_000
"""How many rows the cached run has that answers what no table covers."""


class GumModel:
    """Consistent tables that need not fit into a tree; any set of them can be sampled from.

    What the domain forbids is 0 in the tables and in no row.

    `project` answers from a table that covers the columns, else, for columns that no table connects, by independence,
    and else by counting the rows of one run with a fixed seed: such an answer has the error of a sample.

    Args:
        domain: the columns.
        total: the estimated number of rows.
        tables: consistent tables by clique.
    """

    kind: ClassVar[str] = "gum"

    def __init__(self, domain: Domain, total: float, tables: Mapping[Clique, Array]) -> None:
        self._domain = domain
        self._total = float(total)
        self._tables = dict(tables)

    def __repr__(self) -> str:
        return f"GumModel({len(self._domain)} columns, {len(self._tables)} tables)"

    @property
    def domain(self) -> Domain:
        """The columns, coded."""
        return self._domain

    @property
    def total(self) -> float:
        """The estimated number of rows."""
        return self._total

    @property
    def tables(self) -> dict[Clique, Array]:
        """The consistent tables, by clique."""
        return dict(self._tables)

    def project(self, clique: Clique) -> Array:
        """Expected counts of a clique's cells, in the order asked."""
        clique = self._domain.check(clique)
        parts: dict[int, list[str]] = {}
        for column in clique:
            parts.setdefault(self._component[column], []).append(column)
        table = np.array(self._total)
        for columns in parts.values():
            table = np.multiply.outer(table, self._share(tuple(columns)))
        order = [column for columns in parts.values() for column in columns]
        return np.asarray(table.transpose([order.index(column) for column in clique]))

    def project_many(self, cliques: Iterable[Clique]) -> dict[Clique, Array]:
        """The same for many cliques."""
        return {clique: self.project(clique) for clique in cliques}

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Coded columns of synthetic rows by the gradual update method; the same generator state, the same rows."""
        if rows == 0:
            return {column: np.zeros(0, np.min_scalar_type(size - 1)) for column, size in self._domain.items()}
        made = self._plan.run(self._domain, rows, rng)
        return mended(self._domain, self._tables, made, rng) if self._domain.rules else made

    def condition(self, where: Mapping[str, int | Array]) -> NoReturn:
        """Refused: see the error.

        Raises:
            SettingError: always.
        """
        raise SettingError(
            "rows with given values cannot be drawn from this model: the gradual update method makes whole tables, not "
            "a distribution that can be conditioned. Sample more rows and keep those that fit, or make the release "
            "with generator='pgm' or another mechanism"
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The cliques as numbers of columns, the tables end to end, and the total."""
        index = {column: i for i, column in enumerate(self._domain)}
        return {
            "lengths": np.array([len(clique) for clique in self._tables], dtype=np.int64),
            "columns": np.array([index[column] for clique in self._tables for column in clique], dtype=np.int64),
            "counts": np.concatenate([np.zeros(0), *(table.reshape(-1) for table in self._tables.values())]),
            "total": np.array(self._total),
        }

    @classmethod
    def from_arrays(cls, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The model that `to_arrays` wrote.

        Raises:
            ReleaseError: when the arrays do not fit the domain.
        """
        damaged = ReleaseError("the model's arrays do not fit the schema; the release file is damaged")
        try:
            lengths, columns = (np.asarray(arrays[name], dtype=np.int64) for name in ("lengths", "columns"))
            counts, total = np.asarray(arrays["counts"], dtype=np.float64), float(arrays["total"])
            names = np.array(list(domain), dtype=object)[columns]
        except (KeyError, IndexError, TypeError, ValueError):
            raise damaged from None
        if (columns < 0).any() or (lengths < 1).any() or lengths.sum() != len(columns):
            raise damaged
        cliques = [tuple(part) for part in np.split(names, np.cumsum(lengths)[:-1])] if len(lengths) else []
        if any(len(set(clique)) != len(clique) for clique in cliques) or len(set(cliques)) != len(cliques):
            raise damaged
        sizes = [domain.cells(clique) for clique in cliques]
        if counts.shape != (sum(sizes),) or not (counts >= 0).all() or not np.isfinite([counts.sum(), total]).all():
            raise damaged
        flat = np.split(counts, np.cumsum(sizes)[:-1]) if cliques else []
        shaped = {c: table.reshape(domain.shape(c)) for c, table in zip(cliques, flat, strict=True)}
        if any(table.sum() <= 0 for table in shaped.values()):
            raise damaged
        return cls(domain, total, shaped)

    def _share(self, columns: Clique) -> Array:
        found = marginal(self._tables, columns)
        if found is None:
            found = self._counted(columns)
        share: Array = found / found.sum()
        return share

    def _counted(self, columns: Clique) -> Array:
        if len(columns) == 1:
            return np.ones(self._domain[columns[0]])
        shape = self._domain.shape(columns)
        cells = np.ravel_multi_index([self._rows[column] for column in columns], shape)
        return np.bincount(cells, minlength=self._domain.cells(columns)).reshape(shape).astype(np.float64)

    @cached_property
    def _plan(self) -> Plan:
        return Plan(self._domain, self._tables)

    @cached_property
    def _rows(self) -> Columns:
        return self.sample(int(np.clip(round(self._total), _FEWEST, _MOST)), np.random.default_rng(0))

    @cached_property
    def _component(self) -> dict[str, int]:
        """For each column the number of the set of columns that tables connect it to."""
        number = {column: i for i, column in enumerate(self._domain)}
        for clique in self._tables:
            joined = {number[column] for column in clique}
            number = {column: min(joined) if mine in joined else mine for column, mine in number.items()}
        return number


def gum_of(domain: Domain, measurements: Sequence[Measurement], *, total: float | None = None) -> GumModel:
    """The model that fits any mechanism's measurements by consistency and gradual updates, instead of inference.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns; one that no measurement names comes out uniform.
        measurements: noisy marginals of any cliques, also ones that no junction tree could hold.
        total: the number of rows where it is public; otherwise the inverse-variance mean of the tables' sums.

    Raises:
        InputError: a measurement that does not fit, or that answers other queries than cells.
    """
    tables = consistent(tables_of(domain, measurements), total=total, forbidden=domain.forbidden)
    tables |= rule_tables(domain, tables)
    rows = next((float(table.sum()) for table in tables.values()), 1.0 if total is None else float(total))
    return GumModel(domain, rows, tables)
