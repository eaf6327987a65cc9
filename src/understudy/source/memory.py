"""A source for data frames in memory: encoded and limited once, then only counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.errors import InputError, SchemaError
from understudy.schema import Schema
from understudy.schema.frames import columns_by_meaning, is_as_written
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
        """Return exact counts of each clique's cells, in the order requested.

        Raises:
            SchemaError: before anything is counted, for an unknown column or a table too large to index.
        """
        return marginals(self.__codes, self.domain, cliques)

    def values(self, column: str) -> dict[str, int]:
        """Return the exact number of rows for each canonical text of a cell in one of the schema's `words` columns.

        Raises:
            SchemaError: for a column that is not among them.
        """
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
    import narwhals as nw
    from narwhals.exceptions import DuplicateError

    try:
        with suppress(DuplicateError):  # reported below
            nw.from_native(frame, eager_only=True)
    except TypeError:
        raise InputError(
            "the table must be a pandas, polars or pyarrow frame, or a path; collect a lazy frame before passing it"
        ) from None
    labels = frame.column_names if hasattr(frame, "column_names") else list(frame.columns)
    index = {str(name) for name in getattr(getattr(frame, "index", None), "names", ())} - set(map(str, labels))
    if hidden := [name for name in schema.needs if name in index]:
        raise SchemaError(f"{_list_columns(hidden)} in the frame's index; pass `frame.reset_index()`")
    check_names(map(str, labels), schema)
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


def check_names(names: Iterable[str], schema: Schema) -> None:
    """Refuse a table with repeated column names, or without a column that the schema needs.

    Several columns may have no name: spreadsheets export such columns, and nobody can ask for one.

    **Privacy.** Only names that the schema declares are quoted: the first line of a file without a header is a row.

    Columns without a name may be many: spreadsheets export them, and nobody can ask for one.

    Raises:
        SchemaError: naming the columns, or their places, and the remedy.
    """
    listed = list(names)
    found = Counter(name for name in listed if name.strip() or name in schema.needs)
    if not listed:
        raise SchemaError("the table has no columns; give one with the columns that the schema names")
    if missing := [name for name in schema.needs if name not in found]:
        near = _describe_near(missing, listed)
        raise SchemaError(
            f"{_list_columns(missing)} not in the table{near}; add or rename there, or correct the schema"
        )
    if twice := [name for name in schema.needs if found[name] > 1]:
        raise SchemaError(f"{_list_columns(twice)} named more than once in the table; rename all but one")
    if len(found) < found.total():
        places = [place + 1 for place, name in enumerate(listed) if found[name] > 1]
        raise SchemaError(f"column {places[0]} and others of the table share a name; rename all but one")


def _describe_near(missing: list[str], listed: list[str]) -> str:
    """Point to a column whose name differs from a missing one only in case, blanks or signs; by its position."""
    bare = {re.sub(r"[\W_]", "", name).casefold(): place for place, name in enumerate(listed, 1)}
    bare.pop("", None)
    found = [(name, bare.get(re.sub(r"[\W_]", "", name).casefold())) for name in missing]
    name, place = next(((name, place) for name, place in found if place), ("", None))
    return "" if place is None else f" (its column number {place} is {name!r} except for case, blanks or signs)"


def _list_columns(names: list[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"column {listed} is" if len(names) == 1 else f"columns {listed}{more} are"


def _bound_kept_rows(
    keep: NDArray[np.bool_], units: Any, codes: dict[str, NDArray[Any]], max_rows: int, key: bytes
) -> NDArray[np.bool_]:
    """Limit the rows that the schema keeps: a dropped row must not take the place of one that counts."""
    rows = np.flatnonzero(keep)
    chosen = bound_rows(units.take(rows), [array[rows] for array in codes.values()], max_rows=max_rows, key=key)
    within = np.zeros(len(keep), np.bool_)
    within[rows[chosen]] = True
    return within
