"""A source for data frames in memory: encoded and limited once, then only counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.errors import SchemaError
from understudy.schema import Schema
from understudy.schema.frames import check_names, column_labels, columns_by_meaning, is_as_written, list_columns
from understudy.source.protocol import SourceBase
from understudy.source.unit import bound_rows, new_key, unit_text
from understudy.tabulate import Counts, marginals


@dataclass(frozen=True, eq=False, repr=False)
class CodedRows:
    """Encoded rows that the schema keeps.

    **Privacy.** As private as the rows.

    Attributes:
        codes: one array by coded column.
        words: arrow texts of the columns whose values are discovered, null for cells that cannot be a value.
        units: the canonical text of each row's unit, without nulls; None if a row is a unit.
    """

    codes: dict[str, NDArray[Any]]
    words: dict[str, Any]
    units: Any = None


def encode_rows(frame: Any, schema: Schema, *, exact: bool) -> CodedRows:
    """Encode the rows of a frame; rows without a unit are left out, as are those that the schema drops.

    Args:
        frame: a table whose columns were checked.
        schema: what is public about the columns.
        exact: keep whole numbers beyond 2^53 apart in units (see `unit_text`).
    """
    encoded, units, unit = schema.encode(frame), None, schema.privacy_unit.column
    keep = np.asarray(encoded.keep, np.bool_)
    if unit is not None:
        label = next(label for label in column_labels(frame) if str(label) == unit)
        units = unit_text(nw.from_native(frame[label], series_only=True), exact=exact)
        keep = keep & np.asarray(units.is_valid())
        units = units.filter(keep)
    cells, _ = columns_by_meaning(frame, [column.name for column in schema.words], schema.dialect)
    words = {column.name: column.texts(cells[column.name], schema.dialect).filter(keep) for column in schema.words}
    # Indexing copies, so no array is a view of the caller's frame.
    return CodedRows({column: encoded.codes[column][keep] for column in schema.domain}, words, units)


class MemorySource(SourceBase):
    """A pandas, polars or pyarrow frame as a `Source`.

    The schema encodes the frame and drops rows, at most ``max_rows`` rows of each unit are kept (see `unit`), and only
    the codes are stored: the frame itself is not referenced.

    Args:
        frame: a pandas, polars (eager) or pyarrow table with at least the columns that the schema needs.
        schema: what is public about the columns.
        key: the bounding key, 32 bytes; drawn for this run by default. Give one only to make several engines keep the
            same rows, or in tests; never save it.

    **Privacy.** Holds exact codes. Its text form reveals neither rows nor their number, and it cannot be pickled or
    copied.

    Raises:
        InputError: if this is not a frame.
        SchemaError: for a missing column or two columns of the same name, naming them.
    """

    __slots__ = ("__codes", "__words")

    def __init__(self, frame: Any, schema: Schema, *, key: bytes | None = None) -> None:
        _check_frame(frame, schema)
        super().__init__(schema)
        rows = encode_rows(frame, schema, exact=is_as_written(frame))
        self.__codes, self.__words = rows.codes, rows.words
        if rows.units is not None:
            hashed = [*rows.codes.values(), *map(_digest_texts, rows.words.values())]
            kept = bound_rows(rows.units, hashed, max_rows=self.unit.max_rows, key=key or new_key())
            self.__codes = {column: array[kept] for column, array in rows.codes.items()}
            self.__words = {column: texts.filter(kept) for column, texts in rows.words.items()}

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts of each clique's cells, in the order requested."""
        return marginals(self.__codes, self.domain, cliques)

    def codes(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Return the coded rows, in one piece; for the gate only."""
        yield self.__codes

    def values(self, column: str) -> dict[str, int]:
        """Return the exact number of rows for each canonical text of a column whose values are discovered."""
        self._check_words(column)
        return count_texts(self.__words[column])


def count_texts(texts: Any) -> dict[str, int]:
    """Return how often each text occurs in an arrow array, nulls left out."""
    pairs = texts.drop_null().value_counts()
    return dict(zip(pairs.field(0).to_pylist(), pairs.field(1).to_pylist(), strict=True))


def _check_frame(frame: Any, schema: Schema) -> None:
    """Check the structure of a frame, never its content."""
    labels = [str(label) for label in column_labels(frame)]
    index = {str(name) for name in getattr(getattr(frame, "index", None), "names", ())}.difference(labels)
    if hidden := [name for name in schema.needs if name in index]:
        raise SchemaError(f"{list_columns(hidden)} in the frame's index; pass `frame.reset_index()`")
    check_names(labels, schema.needs)


def _digest_texts(texts: Any) -> NDArray[Any]:
    """Return the SHA-256 of each cell's text, used in place of its code when rows are limited; empty for nulls.

    The codes of a dictionary could not be used: they depend on the cells of other units.
    """
    names = [None if text is None else sha256(text.encode()).hexdigest() for text in texts.dictionary.to_pylist()]
    table = np.array([name or "" for name in names] + [""], dtype=object)
    return np.asarray(table[np.asarray(texts.indices.fill_null(len(names)))])
