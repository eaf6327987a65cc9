"""Rows read in batches: each batch is encoded and limited, and only codes are stored, on disk.

Files, folders, queries of the embedded DuckDB and DuckDB relations use this. The encoder is the schema's own, so codes
are identical to those in memory; memory holds one batch and never the table.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError
from understudy.schema import Schema
from understudy.schema.column import smallest_dtype
from understudy.source.errors import explain_errors
from understudy.source.memory import CodedRows, count_texts, encode_rows
from understudy.source.protocol import SourceBase
from understudy.source.temp import PrivateFolder
from understudy.source.unit import new_key
from understudy.tabulate import DENSE_CELLS, Counts, SparseCounts, check_cliques, marginals

_TYPES = {np.uint8: "utinyint", np.uint16: "usmallint", np.uint32: "uinteger"}
_BOUND_FAILED = "the rows of each unit could not be limited: is there room for them in --temp-dir? Nothing was spent"


def bound_batches(
    batches: Iterable[CodedRows], domain: Domain, folder: PrivateFolder, *, max_rows: int, key: bytes
) -> Iterator[CodedRows]:
    """Return the rows that count: of each unit the `max_rows` with the smallest keyed hash (see `unit`).

    DuckDB spills to disk if units do not fit in memory.

    Args:
        batches: coded rows with their units.
        domain: the coded columns.
        folder: where the engine may spill.
        max_rows: the largest number of rows of a unit.
        key: the run's key, 32 bytes.
    """
    from understudy.source.duckdb import STEP_ROWS, connect

    connection = connect(folder)
    names: dict[str, str] = {}
    for batch in batches:
        with explain_errors(_BOUND_FAILED):
            if not names:
                names = _create_table(connection, batch, domain)
            _insert_batch(connection, batch, names)
    if not names:
        return
    with explain_errors(_BOUND_FAILED):
        chosen = connection.sql(_bounding_statement(list(names.values())), params=[max_rows, key.hex(), max_rows])
        for rows in chosen.to_arrow_reader(STEP_ROWS):
            codes = {column: rows[names[column]].to_numpy(zero_copy_only=False) for column in domain}
            yield CodedRows(codes, {column: rows[name] for column, name in names.items() if column not in domain})
    connection.close()


def _create_table(connection: Any, batch: CodedRows, domain: Domain) -> dict[str, str]:
    """Create the table and return its column names by those of the batch; none of the names is the user's."""
    kinds = {column: _TYPES[smallest_dtype(domain[column])] for column in domain} | dict.fromkeys(
        batch.words, "varchar"
    )
    names = {column: f"{'c' if column in domain else 'w'}{place}" for place, column in enumerate(kinds)}
    listed = ", ".join(f"{name} {kinds[column]}" for column, name in names.items())
    connection.execute(f"create temp table coded (unit varchar, {listed})")
    return names


def _insert_batch(connection: Any, batch: CodedRows, names: dict[str, str]) -> None:
    columns = {"unit": batch.units} | {names[column]: pa.array(codes) for column, codes in batch.codes.items()}
    connection.register("batch", pa.table(columns | {names[column]: texts for column, texts in batch.words.items()}))
    connection.execute("insert into coded by name select * from batch")
    connection.unregister("batch")


def _bounding_statement(columns: list[str]) -> str:
    """Return the statement of ``docs/decisions/contribution-bounding.md``.

    Units with few rows keep them all, unhashed.
    """
    listed = ", ".join(columns)
    texts = ", ".join(name if name[0] == "c" else f"coalesce(sha256({name}), '')" for name in columns)
    return f"""
        with crowded as (select unit from coded group by unit having count(*) > ?),
        numbered as (
          select *, concat_ws(',', {texts}) as codes, row_number() over (partition by unit, {listed}) as ordinal
          from coded semi join crowded using (unit)
        ), ranked as (
          select *, row_number() over (
            partition by unit order by sha256(? || '|' || unit || '|' || codes || '|' || ordinal)) as place
          from numbered
        )
        select {listed} from coded anti join crowded using (unit)
        union all
        select {listed} from ranked where place <= ?"""  # noqa: S608 - names are ours: c0, w1, ...


# -- Codes on disk ---------------------------------------------------------------------------------------------------


_SPAN_ROWS = 1 << 24  # rows whose cells are sorted at once: 128 MiB


class CodeStore:
    """Codes on disk: one file of small integers for each coded column, written in pieces and then only counted.

    The files have no names: the operating system frees their space when the process ends, however it ends. Memory does
    not grow with the number of rows.

    **Privacy.** As private as the rows.
    """

    def __init__(self, domain: Domain, folder: Path) -> None:
        self._domain = domain
        self._types = {column: np.dtype(smallest_dtype(size)) for column, size in domain.items()}
        self._files: dict[str, Any] = {column: tempfile.TemporaryFile(dir=folder) for column in domain}  # noqa: SIM115
        self._codes: dict[str, NDArray[Any]] | None = None
        self._finish = weakref.finalize(self, _close_files, list(self._files.values()))

    def append(self, codes: Mapping[str, NDArray[Any]]) -> None:
        """Append rows: one array of codes for each column of the domain, all of one length."""
        for column, kind in self._types.items():
            self._files[column].write(np.ascontiguousarray(codes[column], kind).data)

    def close(self) -> None:
        """Free the disk space."""
        self._codes = None
        self._finish()

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts of each clique's cells, in the order requested."""
        return self._answers(self.codes(), check_cliques(cliques, self._domain))

    def _answers(self, codes: Mapping[str, NDArray[Any]], asked: list[Clique]) -> Iterator[tuple[Clique, Counts]]:
        dense = [clique for clique in asked if self._domain.cells(clique) <= DENSE_CELLS]
        answers = marginals(codes, self._domain, dense)
        for clique in asked:
            if self._domain.cells(clique) <= DENSE_CELLS:
                yield next(answers)
            else:
                yield clique, self._sparse(codes, clique)

    def _sparse(self, codes: Mapping[str, NDArray[Any]], clique: Clique) -> SparseCounts:
        """Count a large table piece by piece: only cells with rows are ever in memory."""
        found = SparseCounts(np.zeros(0, np.int64), np.zeros(0, np.int64), self._domain.cells(clique))
        for start in range(0, len(codes[clique[0]]), _SPAN_ROWS):
            part = {column: codes[column][start : start + _SPAN_ROWS] for column in clique}
            ((_, more),) = marginals(part, self._domain, [clique])
            assert isinstance(more, SparseCounts)  # noqa: S101 - its size says so
            found = _add_sparse(found, more)
        return found

    def codes(self) -> dict[str, NDArray[Any]]:
        """Return the codes of each column as an array that is read on demand."""
        if self._codes is None:
            for file in self._files.values():
                file.flush()
            self._codes = {column: _map_file(file, self._types[column]) for column, file in self._files.items()}
        return self._codes


def _close_files(files: list[Any]) -> None:
    for file in files:
        file.close()


def _map_file(file: Any, kind: np.dtype[Any]) -> NDArray[Any]:
    """Map a file as an array that the operating system reads on demand; an empty file cannot be mapped."""
    return np.memmap(file, kind, "r") if file.tell() else np.zeros(0, kind)


def _add_sparse(one: SparseCounts, two: SparseCounts) -> SparseCounts:
    cells, place = np.unique(np.concatenate((one.cells, two.cells)), return_inverse=True)
    counts = np.zeros(len(cells), np.int64)
    np.add.at(counts, place, np.concatenate((one.counts, two.counts)))
    return SparseCounts(cells, counts, one.size)


# -- The source ------------------------------------------------------------------------------------------------------


class StreamedSource(SourceBase):
    """Arrow batches as a `Source`.

    Args:
        batches: arrow record batches with at least the columns that the schema needs; read once.
        schema: what is public about the columns.
        folder: where codes are stored; closed with the source.
        key: the bounding key, 32 bytes; drawn for this run by default.

    **Privacy.** Holds exact codes, in files without names inside a private directory. Its text form reveals neither
    rows nor their number, and it cannot be pickled or copied.
    """

    __slots__ = ("__folder", "__store", "__words")

    def __init__(
        self, batches: Iterable[Any], schema: Schema, folder: PrivateFolder, *, key: bytes | None = None
    ) -> None:
        super().__init__(schema)
        self.__folder = folder
        self.__store = CodeStore(schema.domain, folder.path)
        coded = _encode_batches(batches, schema)
        if self.unit.column is not None:
            coded = bound_batches(coded, self.domain, folder, max_rows=self.unit.max_rows, key=key or new_key())
        self.__words: dict[str, Counter[str]] = {column.name: Counter() for column in schema.words}
        for batch in coded:
            self.__store.append(batch.codes)
            for column, texts in batch.words.items():
                self.__words[column].update(count_texts(texts))

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts of each clique's cells, in the order requested."""
        return self.__store.counts(cliques)

    def codes(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Return the coded rows in one piece, which the operating system reads on demand; for the gate only."""
        yield self.__store.codes()

    def values(self, column: str) -> dict[str, int]:
        """Return the exact number of rows for each canonical text of a column whose values are discovered."""
        self._check_words(column)
        return dict(self.__words[column])

    def close(self) -> None:
        """Remove everything that was stored on disk."""
        self.__store.close()
        self.__folder.close()


def _encode_batches(batches: Iterable[Any], schema: Schema) -> Iterator[CodedRows]:
    """Return the codes, texts and units of the rows that are kept; the texts of two batches share no dictionary."""
    for batch in batches:
        rows = encode_rows(pa.Table.from_batches([batch]), schema, exact=True)
        yield replace(rows, words={name: texts.dictionary_decode() for name, texts in rows.words.items()})


# -- Rows that are stored once, for tables that are encoded several times --------------------------------------------


ReadBatches: TypeAlias = Callable[[Schema, PrivateFolder], Iterator[Any]]
"""A function that reads arrow batches with the columns that a schema needs."""

_KEEP_FAILED = "the rows could not be stored; is the disk of the private directory (--temp-dir) full?"


def read_once(read: ReadBatches, schema: Schema) -> ReadBatches:
    """Return a reader that gives the same rows at every call, whatever happens to the table or the result of its query.

    If everything is declared there is one coding, and rows are read once. If facts are discovered, the table is encoded
    several times: the columns that any coding needs are first stored in the private directory.

    **Privacy.** As private as the rows; in a file without a name.

    Args:
        read: reads the table.
        schema: names every column that any coding needs.

    Raises:
        InputError: at a second coding, if nothing has to be discovered.
    """
    kept: list[_StoredRows] = []
    passed: list[bool] = []

    def same_rows(coding: Schema, folder: PrivateFolder) -> Iterator[Any]:
        if not schema.open:
            if passed:
                raise InputError("a table that may have changed cannot be read twice; open it again")
            passed.append(True)
            return read(coding, folder)
        if not kept:
            kept.append(_StoredRows(read(schema, folder), folder.path))
        return kept[0].batches()

    return same_rows


class _StoredRows:
    """Batches in a file without a name: its space is freed when the process ends, however it ends."""

    def __init__(self, batches: Iterator[Any], folder: Path) -> None:
        with explain_errors(_KEEP_FAILED):
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
            self._finish = weakref.finalize(self, self._file.close)
            writer = None
            for batch in batches:
                writer = writer or pa.ipc.new_stream(self._file, batch.schema)
                writer.write_batch(batch)
            if writer is not None:
                writer.close()

    def batches(self) -> Iterator[Any]:
        if not self._file.seek(0, os.SEEK_END):  # a table without rows has no batch
            return
        with explain_errors(_KEEP_FAILED):
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
