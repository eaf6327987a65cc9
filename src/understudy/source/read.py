"""Read tables from files: CSV as text, Parquet with its types, office formats through `office`.

**Privacy.** Readers quote the offending cell in their errors. Every error is replaced by our own message, ``from
None``.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from understudy.errors import InputError, SchemaError
from understudy.schema import Schema
from understudy.schema.frames import check_names, mark_as_written
from understudy.schema.text import Dialect
from understudy.source.errors import explain_errors
from understudy.source.office import OFFICE, read_office, read_variables
from understudy.source.place import CSV, PARQUET, list_files, refuse_url, source_kind
from understudy.source.temp import PrivateFolder

_Path: TypeAlias = "str | os.PathLike[str]"
BATCH_ROWS = 1 << 17
_PIECE, _LONGEST_PIECE = 1 << 23, 1 << 28  # bytes of CSV that are parsed at a time, and the limit for long lines
_DUCKDB = (".duckdb", ".ddb", ".db")
_NO_PARQUET = "{}: damaged, cut short or not Parquet; copy or export the file again"


def read_table(path: _Path, schema: Schema) -> Any:
    """Read the columns that the schema needs from a file, as a ``pyarrow.Table``.

    CSV cells stay text, so that leading zeros survive; the schema interprets them. CSV may be gzipped and may begin
    with a byte-order mark; its separator, quote and encoding are those of the schema's ``dialect``. Parquet keeps its
    types. SPSS, Stata and Excel files are read as `understudy.source.office` describes.

    A cell with a byte that is invalid in the file's encoding is an unknown cell, and a line with more or fewer cells
    than the header is a row of unknown cells.

    Raises:
        InputError: for a file that is missing, unreadable, empty or damaged, with a header in another encoding.
        SchemaError: for a missing column or two columns of one name.
    """
    refuse_url(os.fspath(path))
    file = Path(path)
    name = file.name.lower()
    if not name.endswith(CSV + PARQUET + OFFICE):
        known = ".csv, .tsv, .txt or .data (also with .gz), .parquet, .sav, .dta or .xlsx"
        known += f"; a table of a DuckDB database is duckdb://{file}?table=NAME" if name.endswith(_DUCKDB) else ""
        raise InputError(f"{file}: unknown kind of file; give {known}")
    try:
        size = file.stat().st_size
    except (OSError, ValueError):
        raise InputError(f"{file}: no such file, or no permission to see it; check the path") from None
    if file.is_dir():
        raise InputError(f"{file}: is a folder; give one file")
    if size == 0:
        raise InputError(f"{file}: the file is empty; export the table again, with its header")
    if name.endswith(OFFICE):
        check_names([variable.name for variable in read_variables(file)], schema.needs)
        return read_office(file, schema.needs, decimal=schema.dialect.decimal)
    return _read_csv(file, schema) if name.endswith(CSV) else _read_parquet(file, schema)


def _read_parquet(file: Path, schema: Schema) -> Any:
    with explain_errors(_NO_PARQUET.format(file)), pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        check_names(parquet.schema_arrow.names, schema.needs)
        table = parquet.read(columns=list(schema.needs))
    return table.select(list(schema.needs))


def parquet_batches(files: list[Path], schema: Schema) -> Iterator[Any]:
    """Read Parquet files one after the other, each as `read_table` does, in bounded memory.

    **Privacy.** Each file keeps its own types. A common type would depend on the most unusual file, and one cell there
    would change how cells and units in the other files are written.

    Raises:
        InputError: for a file that is missing, unreadable or damaged.
        SchemaError: for a missing column or two columns of one name, in any of the files, before the first row.
    """
    for file in files:
        with explain_errors(_NO_PARQUET.format(file)):
            names = pq.read_schema(file).names
        try:
            check_names(names, schema.needs)
        except SchemaError as error:
            raise SchemaError(f"{file}: {error}") from None
    options = {"page_checksum_verification": True, "read_dictionary": [column.name for column in schema.coded]}
    for file in files:
        with explain_errors(_NO_PARQUET.format(file)), pq.ParquetFile(file, **options) as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS, columns=list(schema.needs)):
                yield batch.select(list(schema.needs))


def _read_csv(file: Path, schema: Schema) -> Any:
    options, odd = _csv_options(file, schema)
    try:
        while True:
            try:
                with _csv_stream(file, schema.dialect) as stream:
                    table = arrow_csv.read_csv(stream, *options)
                return mark_as_written(pa.concat_tables([table, pa.Table.from_batches([odd.batch(table.schema)])]))
            except ValueError as error:
                odd.clear()
                _lengthen_pieces(options[0], error)
    except Exception as error:
        raise InputError(explain_csv_error(file, error, schema.dialect)) from None


def csv_batches(files: list[Path], schema: Schema) -> Iterator[Any]:
    """Read CSV files one after the other, each as `read_table` does, in bounded memory.

    Raises:
        InputError: for a file that is missing, unreadable, empty or damaged, with a header in another encoding.
        SchemaError: for a missing column or two columns of one name, in any of the files, before the first row.
    """
    options = {file: _csv_options(file, schema) for file in files}
    for file in files:
        settings, odd = options[file]
        rows, again = 0, True
        try:
            while again:
                try:
                    stream = _csv_stream(file, schema.dialect)
                    with stream, arrow_csv.open_csv(stream, *settings) as reader:
                        for batch in _skip_rows(reader, rows):
                            rows += len(batch)
                            yield mark_as_written(batch)
                        yield mark_as_written(odd.batch(reader.schema))
                    again = False
                except ValueError as error:
                    odd.clear()
                    _lengthen_pieces(settings[0], error)
        except Exception as error:
            raise InputError(explain_csv_error(file, error, schema.dialect)) from None


def _skip_rows(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """Skip the first `rows` rows of the batches, which were read before."""
    for batch in batches:
        if len(batch) > rows:
            yield batch.slice(rows)
        rows = max(0, rows - len(batch))


def _lengthen_pieces(options: Any, error: ValueError) -> None:
    """Enlarge the reader's blocks if a line was longer than one: the content of a cell must not fail a run.

    Raises:
        ValueError: the given error, if that was not the reason.
    """
    if "straddl" not in str(error) or options.block_size >= _LONGEST_PIECE:
        raise error
    options.block_size = min(8 * options.block_size, _LONGEST_PIECE)


def _csv_stream(file: Path, dialect: Dialect) -> Any:
    """Open a file as a stream of UTF-8 bytes; invalid bytes stay, or are replaced by a mark, in their cell."""
    stream = pa.input_stream(str(file), compression="gzip" if file.suffix.lower() == ".gz" else None)
    return stream if _is_utf8(dialect) else pa.PythonFile(_Utf8Stream(stream, dialect.encoding), mode="r")


def _is_utf8(dialect: Dialect) -> bool:
    return dialect.encoding.lower().replace("_", "-") in ("utf-8", "utf8")


class _Utf8Stream:
    """A stream in another encoding as a stream of UTF-8, with a mark for what cannot be decoded."""

    closed = False

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._rest = b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size:
            piece = self._stream.read(size)
            self._rest += self._decoder.decode(piece, final=not piece).encode("utf-8", "replace")
            if not piece:
                break
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def close(self) -> None:
        self._stream.close()
        self.closed = True


class _OddLines:
    """Lines of a CSV file with more or fewer cells than its header: the content of a line must not fail a run.

    Empty cells beyond the last column are dropped. A line that still does not fit is a row of unknown cells without a
    unit. **Privacy.** Each line is read on its own. A line with a quote makes the reader refuse the file: if a quote is
    not closed, rows of other people are taken for a part of that cell, and rows can no longer be attributed.
    """

    def __init__(self, names: list[str], schema: Schema) -> None:
        self._names, self._dialect = names, schema.dialect
        coded = {column.name for column in schema.coded}
        self._unknown = {name: "\ufffd" if name in coded else "" for name in schema.needs}
        self._rows: list[dict[str, str]] = []

    def handle(self, line: Any) -> str:
        """Tell the reader what to do with such a line."""
        text = str(line.text)
        if self._dialect.quote in text:
            return "error"
        cells = text.split(self._dialect.delimiter)
        fits = len(cells) > len(self._names) and not any(cells[len(self._names) :])
        row = dict(zip(self._names, cells, strict=False)) if fits else self._unknown
        self._rows.append({name: row[name] for name in self._unknown})
        return "skip"

    def clear(self) -> None:
        """Start again, as the reader does."""
        self._rows.clear()

    def batch(self, schema: Any) -> Any:
        """Return the lines so far as rows of the table."""
        columns = [pa.array([row[name] for row in self._rows], pa.large_string()) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _csv_options(file: Path, schema: Schema) -> tuple[tuple[Any, Any, Any], _OddLines]:
    dialect = schema.dialect
    names = _read_header(file, schema, dialect.delimiter)
    try:
        check_names(names, schema.needs)
    except SchemaError:
        _explain_delimiter(file, schema)
        raise
    odd = _OddLines(names, schema)
    read = arrow_csv.ReadOptions(block_size=_PIECE, column_names=None if dialect.header else names)
    parse = arrow_csv.ParseOptions(
        delimiter=dialect.delimiter,
        quote_char=dialect.quote,
        newlines_in_values=True,
        invalid_row_handler=odd.handle,
    )
    convert = arrow_csv.ConvertOptions(
        include_columns=list(schema.needs),
        column_types={name: pa.large_string() for name in schema.needs},
        strings_can_be_null=False,
        check_utf8=False,
    )
    return (read, parse, convert), odd


def _explain_delimiter(file: Path, schema: Schema) -> None:
    """Raise a better error if columns are missing because the file has another delimiter than the schema.

    Raises:
        SchemaError: naming the delimiter with which the header has every column.
    """
    for mark in (",", ";", "\t", "|"):
        if mark != schema.dialect.delimiter and set(schema.needs) <= set(_read_header(file, schema, mark)):
            raise SchemaError(
                f"{file}: its columns are separated by {mark!r}, and the schema says {schema.dialect.delimiter!r}; "
                f"write `dialect: {{delimiter: {json.dumps(mark)}}}` under `understudy` in the schema"
            ) from None


def _read_header(file: Path, schema: Schema, delimiter: str) -> list[str]:
    """Read the names in the first line, so that they are checked before a large file is parsed."""
    dialect = schema.dialect
    if not dialect.header:
        return [column.name for column in schema.columns]
    encoding = "utf-8-sig" if _is_utf8(dialect) else dialect.encoding
    try:
        opened = gzip.open if file.suffix.lower() == ".gz" else open
        with opened(file, "rt", encoding=encoding, errors="replace", newline="") as text:
            lines = csv.reader(text, delimiter=delimiter, quotechar=dialect.quote)
            names = next(filter(None, lines), [])  # empty lines are skipped, as by the reader of the rows
        if any("\ufffd" in name for name in names):
            raise UnicodeError
        return names
    except Exception as error:
        raise InputError(explain_csv_error(file, error, dialect)) from None


# -- Error messages for CSV files ------------------------------------------------------------------------------------


_LARGEST = 1 << 30  # bytes of a file that is read again to find the damage


def explain_csv_error(file: Path, error: Exception, dialect: Dialect) -> str:
    """Explain a reader's error: the place and the remedy, never a cell.

    **Privacy.** Readers quote the line that they fail on. Here the line is searched again and named by its number; the
    last line is only called that, because its number would be the number of rows.
    """
    words = str(error)
    if isinstance(error, UnicodeError):
        remedy = "set `encoding` in the schema's dialect (Excel: windows-1252), or save it again as UTF-8"
        return f"{file}: its header is not in {dialect.encoding}; {remedy}"
    if "Expected" in words and "columns" in words:
        place, remedy = _find_damage(file, dialect), "mend it, or check `delimiter` and `quote` in the dialect"
        return f"{file}: {place or 'a line'} has a quote, and more or fewer cells than the header; {remedy}"
    if isinstance(error, PermissionError):
        return f"{file}: no permission to read it; ask its owner for access"
    return f"{file}: damaged, cut short or not CSV; copy or export the file again"


def _find_damage(file: Path, dialect: Dialect) -> str:
    """Describe the line with the quote; empty if none was found, or if the file is too large to search."""
    try:
        if file.stat().st_size > _LARGEST:
            return ""
        with gzip.open(file) if file.suffix.lower() == ".gz" else file.open("rb") as content:
            found = _find_ragged_row(cast(BinaryIO, content), dialect)
    except (OSError, EOFError, ValueError, csv.Error):
        return ""
    return "" if found is None else "its last line" if found[1] else f"line {found[0]:,}"


def _find_ragged_row(content: BinaryIO, dialect: Dialect) -> tuple[int, bool] | None:
    """Return the first row with a quote and another number of cells than the first row, and whether it is the last."""
    with io.TextIOWrapper(content, encoding=dialect.encoding, errors="replace", newline="") as text:
        lines: list[str] = []
        rows = csv.reader(_record_lines(text, lines), delimiter=dialect.delimiter, quotechar=dialect.quote)
        width, number = 0, 1
        for row in rows:
            width = width or len(row)
            if row and len(row) != width and any(dialect.quote in line for line in lines):
                return number, next(filter(None, rows), None) is None
            lines.clear()
            number = rows.line_num + 1
    return None


def _record_lines(text: Iterable[str], lines: list[str]) -> Iterator[str]:
    for line in text:
        lines.append(line)
        yield line


# -- Tables as frames, for evaluation by the custodian ---------------------------------------------------------------


def collect_table(data: Any, schema: Schema) -> Any:
    """Collect a table into a frame: whatever `synthesize` takes, if its rows fit into memory. A frame is unchanged.

    **Privacy.** Rows leave the engine: for drafts and evaluation only, never for synthesis.

    Args:
        data: a frame, the path of a file, a folder, a pattern, a database's URL, or a table of an engine.
        schema: names the columns; columns that the table lacks are left out.

    Raises:
        InputError: if the table cannot be read, saying why and what to do.
    """
    home = source_kind(data)
    if home == "files":
        return _join_tables([read_table(file, schema) for file in list_files(os.fspath(data))])
    if home in ("duckdb", "postgresql"):
        return _fetch_rows(data, schema)
    if isinstance(data, str | PathLike):
        return read_table(data, schema)
    if home not in ("spark", "ibis", "relation"):
        return data
    with explain_errors(
        "the table's rows cannot be fetched; is its session still open, and do the rows fit into memory? If they "
        "do not, give a sample of both tables, or save it as Parquet and give the file"
    ):
        names = [name for name in schema.needs if name in data.columns]
        if home == "spark":
            return data.select(*[data[f"`{name.replace('`', '``')}`"] for name in names]).toArrow()
        if home == "ibis":
            return data.select(*names).to_pyarrow()
        from duckdb import ColumnExpression

        return data.select(*map(ColumnExpression, names)).to_arrow_table()


def _join_tables(tables: list[Any]) -> Any:
    """Join tables of the same columns; columns whose types differ become text."""
    if any(table.schema.types != tables[0].schema.types for table in tables):
        same = pa.schema([pa.field(name, pa.string()) for name in tables[0].schema.names])
        tables = [table.cast(same) for table in tables]
    return pa.concat_tables([table.replace_schema_metadata(tables[0].schema.metadata) for table in tables])


def _fetch_rows(url: str, schema: Schema) -> Any:
    """Fetch the rows of a database's table into memory."""
    from understudy.source.duckdb import database_batches
    from understudy.source.postgres import PostgresSnapshot

    if source_kind(url) == "duckdb":
        with closing(PrivateFolder()) as folder:
            return pa.Table.from_batches(database_batches(url, schema, folder, None))
    with closing(PostgresSnapshot.of_url(url, None)) as snapshot:
        check_names([name for name, _ in snapshot.cells], schema.needs)
        return snapshot.fetch(schema.needs)
