"""A source for data frames in memory: encoded and limited once, then only counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
        units = _check_frame(frame, schema)
        super().__init__(schema)
        encoded = schema.encode(frame)
        keep = np.asarray(encoded.keep, np.bool_)
        codes = {column: encoded.codes[column] for column in self.domain}
        words = _read_words(frame, schema)
        if units is not None:
            rows = codes | {name: _digest_texts(texts) for name, texts in words.items()}
            keep = _bound_kept_rows(
                keep, unit_text(units, exact=is_as_written(frame)), rows, self.unit.max_rows, key or new_key()
            )
        self.__words = {name: texts.filter(keep) for name, texts in words.items()}
        # Indexing copies, so no array is a view of the caller's frame.
        self.__codes = {column: array[keep] for column, array in codes.items()}

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts of each clique's cells, in the order requested."""
        return marginals(self.__codes, self.domain, cliques)

    def values(self, column: str) -> dict[str, int]:
        """Return the exact number of rows for each canonical text of a column whose values are discovered."""
        self._check_words(column)
        texts = self.__words[column]
        index = np.asarray(texts.indices.fill_null(len(texts.dictionary)))
        counts = np.bincount(index, minlength=len(texts.dictionary) + 1)[:-1].tolist()
        return {
            text: n for text, n in zip(texts.dictionary.to_pylist(), counts, strict=False) if n and text is not None
        }


def _check_frame(frame: Any, schema: Schema) -> Any:
    """Return the unit column, or None if a row is a unit.

    Raises for the structure of a frame, never for its content.
    """
    labels = column_labels(frame)
    index = {str(name) for name in getattr(getattr(frame, "index", None), "names", ())} - set(map(str, labels))
    if hidden := [name for name in schema.needs if name in index]:
        raise SchemaError(f"{list_columns(hidden)} in the frame's index; pass `frame.reset_index()`")
    check_names(map(str, labels), schema.needs)
    if schema.privacy_unit.column is None:
        return None
    label = next(label for label in labels if str(label) == schema.privacy_unit.column)
    return nw.from_native(frame[label], series_only=True)


def _read_words(frame: Any, schema: Schema) -> dict[str, Any]:
    """Return the texts of the columns whose values are discovered, as arrow dictionaries."""
    if not schema.words:
        return {}
    cells, _ = columns_by_meaning(frame, [column.name for column in schema.words], schema.dialect)
    return {column.name: column.texts(cells[column.name], schema.dialect) for column in schema.words}


def _digest_texts(texts: Any) -> NDArray[Any]:
    """Return the SHA-256 of each cell's text, used in place of its code when rows are limited; empty for nulls.

    The codes of a dictionary could not be used: they depend on the cells of other units.
    """
    names = [None if text is None else sha256(text.encode()).hexdigest() for text in texts.dictionary.to_pylist()]
    table = np.array([name or "" for name in names] + [""], dtype=object)
    return np.asarray(table[np.asarray(texts.indices.fill_null(len(names)))])


def _bound_kept_rows(
    keep: NDArray[np.bool_], units: Any, codes: dict[str, NDArray[Any]], max_rows: int, key: bytes
) -> NDArray[np.bool_]:
    """Limit the rows that the schema keeps: a dropped row must not take the place of one that counts."""
    rows = np.flatnonzero(keep)
    chosen = bound_rows(units.take(rows), [array[rows] for array in codes.values()], max_rows=max_rows, key=key)
    within = np.zeros(len(keep), np.bool_)
    within[rows[chosen]] = True
    return within
