"""Tables as metrics see them: rows with codes and numbers, and the counts of two tables cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError, SchemaError, SettingError
from understudy.measurement import Measurement, combine, noisy_total
from understudy.metric.base import Counted
from understudy.schema import Dialect, Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.column import Coded
from understudy.schema.frames import to_arrow_columns
from understudy.tabulate import Counts, SparseCounts, marginals


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """A table in memory, coded by a schema.

    Attributes:
        schema: the schema of the columns that the table has.
        codes: one array of codes by coded column.
        units: by numeric column, the values in units of its axis; NaN where a cell is missing or unknown.

    **Privacy.** As private as its rows; its text form says nothing about them.
    """

    schema: Schema
    codes: dict[str, NDArray[Any]]
    units: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, frame: Any, schema: Schema, *, what: str = "table", partial: bool = False) -> Rows:
        """Return the rows of a frame that the schema keeps.

        Args:
            frame: a pandas or polars frame or a pyarrow table.
            schema: what is public about its columns.
            what: what the table is called in an error.
            partial: whether columns may be missing (the scores of NIST 2018 have a rule for them).

        Raises:
            SchemaError: if a column is missing.
            InputError: if no row is left.
        """
        schema = _keep_columns(frame, schema) if partial else schema
        try:
            encoded = schema.encode(frame)
        except SchemaError as error:
            raise SchemaError(f"the {what}: {error}") from None
        measured = [column for column in schema.coded if isinstance(column, AxisColumn)]
        cells, _ = to_arrow_columns(frame, [column.name for column in measured], schema.dialect.decimal)
        if not encoded.keep.any():
            raise InputError(f"the {what} has no row that fits the schema; give at least one row")
        keep = slice(None) if encoded.keep.all() else encoded.keep
        codes = {name: array[keep] for name, array in encoded.codes.items()}
        units = {c.name: _units(c, cells[c.name], schema.dialect)[keep] for c in measured}
        for column in measured:
            units[column.name][codes[column.name] >= column.ordinary] = np.nan
        return cls(schema, codes, units)

    @property
    def domain(self) -> Domain:
        """The coded columns of the table."""
        return self.schema.domain

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.codes.values())))

    def __repr__(self) -> str:
        return f"<Rows of {len(self.domain)} columns>"

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts of each clique's cells."""
        return marginals(self.codes, self.domain, cliques)

    def take(self, index: NDArray[Any]) -> Rows:
        """Return the rows at these places, in their order."""
        return replace(
            self,
            codes={name: array[index] for name, array in self.codes.items()},
            units={name: array[index] for name, array in self.units.items()},
        )

    def sample(self, rows: int, rng: np.random.Generator) -> Rows:
        """Draw at most `rows` rows without replacement; return the table itself if it has no more."""
        return self if self.rows <= rows else self.take(np.sort(rng.choice(self.rows, rows, replace=False)))

    def split(self, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Split the rows into two halves at random.

        Raises:
            InputError: if there are fewer than two rows.
        """
        if self.rows < 2:
            raise InputError("the real table has fewer than two rows, so it cannot be split; give more rows")
        order = rng.permutation(self.rows)
        return self.take(np.sort(order[: self.rows // 2])), self.take(np.sort(order[self.rows // 2 :]))


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Noisy marginals in place of rows, from a mechanism that publishes nothing else; metrics of counts score them.

    Attributes:
        domain: the coded columns.
        measurements: the answers.

    **Privacy.** Charged measurements only; any use of them is post-processing.
    """

    domain: Domain
    measurements: Sequence[Measurement]

    @property
    def rows(self) -> int:
        """The number of rows, estimated from the answers."""
        return round(noisy_total(self.measurements))

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return the noisy counts of each clique's cells.

        Raises:
            SettingError: for a marginal that was not measured.
        """
        known: dict[Clique, list[Measurement]] = {}
        for measurement in self.measurements:
            known.setdefault(measurement.clique, []).append(measurement)
        for clique in cliques:
            if clique not in known:
                raise SettingError(f"the marginal of {clique_text(clique)} was not measured; choose others")
            noisy: NDArray[Any] = combine(known[clique])[0]
            yield clique, noisy


def require_same_columns(real: Any, synthetic: Any) -> Domain:
    """Return the domain of two tables; an error when their columns differ.

    Raises:
        SchemaError: naming the columns that one of them lacks.
    """
    for one, other, name in ((real, synthetic, "synthetic"), (synthetic, real, "real")):
        lacking = [column for column in one.domain if column not in other.domain]
        if lacking:
            raise SchemaError(
                f"the {name} table has no column {', '.join(map(repr, lacking))}; give both the same columns"
            )
    if real.domain != synthetic.domain:
        raise SchemaError("the two tables are coded by different schemas; encode both with the same one")
    domain: Domain = real.domain
    return domain


def find_column(schema: Schema, name: str, setting: str) -> Coded:
    """Return the synthesised column of that name.

    Raises:
        SettingError: naming the setting and the columns there are.
    """
    for column in schema.coded:
        if column.name == name:
            return column
    choices = ", ".join(column.name for column in schema.coded)
    raise SettingError(f"{setting}: there is no synthesised column {name!r}; the choices are {choices}")


def is_ordered(column: Coded) -> bool:
    """Return whether a column's codes have a meaningful order."""
    return isinstance(column, AxisColumn) or column.kind == "ordinal"


def _keep_columns(frame: Any, schema: Schema) -> Schema:
    labels: Sequence[Any] = getattr(frame, "column_names", None) or list(frame.columns)
    names = {str(label) for label in labels}
    kept = tuple(c for c in schema.columns if not isinstance(c, Coded) or c.name in names)
    if not any(isinstance(c, Coded) for c in kept):
        raise SchemaError("the synthetic table has none of the schema's columns; give a table made for this schema")
    return schema if len(kept) == len(schema.columns) else replace(schema, columns=kept)


def _units(column: AxisColumn, cells: Any, dialect: Dialect) -> NDArray[np.float64]:
    """Return a numeric column in units of its axis, clipped into its bounds as encoding does."""
    units, valid = column.units(cells, dialect)
    clipped = np.clip(units.astype(np.float64), float(column.bounds[0]), float(column.bounds[1]))
    return np.where(valid, clipped, np.nan)


# -- two counted tables --


@dataclass(frozen=True, eq=False)
class PairedCells:
    """The cells of one clique that hold a row in either table.

    Attributes:
        clique: the columns.
        cells: flat indices in C order of the clique.
        real: the real counts of these cells.
        synthetic: the synthetic counts of these cells.
    """

    clique: Clique
    cells: NDArray[np.int64]
    real: NDArray[np.float64]
    synthetic: NDArray[np.float64]

    def distance(self) -> float:
        """Return the L1 distance of the two tables as shares, 0 to 2; the largest for an empty table."""
        n, m = self.real.sum(), self.synthetic.sum()
        if not n or not m:
            return 0.0 if n == m else 2.0
        return float(np.abs(self.real / n - self.synthetic / m).sum())


def count_pairs(real: Counted, synthetic: Counted, cliques: Iterable[Clique]) -> Iterator[PairedCells]:
    """Return the counts of both tables for each clique, in the order of the cliques."""
    wanted = list(cliques)
    for (clique, one), (_, other) in zip(real.counts(wanted), synthetic.counts(wanted), strict=True):
        yield PairedCells(clique, *align(one, other))


def align(one: Counts, other: Counts) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the cells that hold a row in either table, and the counts of both tables there."""
    cells = np.union1d(_used_cells(one), _used_cells(other))
    return cells, _counts_at(one, cells), _counts_at(other, cells)


def _used_cells(table: Counts) -> NDArray[np.int64]:
    return table.cells if isinstance(table, SparseCounts) else np.flatnonzero(table)


def _counts_at(table: Counts, cells: NDArray[np.int64]) -> NDArray[np.float64]:
    if not isinstance(table, SparseCounts):
        return table[cells].astype(np.float64)
    found = np.zeros(len(cells))
    found[np.searchsorted(cells, table.cells)] = table.counts
    return found


def draw_cliques(columns: Iterable[str], way: int, most: int, rng: np.random.Generator) -> tuple[list[Clique], bool]:
    """Draw at most `most` sets of `way` columns without replacement; also return whether some were left out."""
    names = list(columns)
    if comb(len(names), way) <= most:
        return list(combinations(names, way)), False
    if comb(len(names), way) <= 200_000:
        every = list(combinations(names, way))
        return [every[place] for place in sorted(rng.choice(len(every), most, replace=False))], True
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < most:
        drawn.add(tuple(sorted(rng.choice(len(names), way, replace=False).tolist())))
    return [tuple(names[place] for place in places) for places in sorted(drawn)], True


def clique_text(clique: Clique) -> str:
    """Return the columns of a clique as one text, such as "age x sex"."""
    return " x ".join(clique)
