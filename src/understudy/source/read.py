"""Tables from files: CSV as text, Parquet as typed; a file that cannot be read is explained without quoting it.

**Privacy.** Readers quote the offending cell in their errors. Every one of them is replaced here by our own words,
``from None``.
"""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import Any, TypeAlias

from understudy.errors import InputError, SchemaError
from understudy.schema import Schema
from understudy.source.memory import MemorySource, check_names
from understudy.source.protocol import Source

_CSV = tuple(f"{ending}{gz}" for ending in (".csv", ".tsv", ".txt", ".data") for gz in ("", ".gz"))
_PARQUET = (".parquet", ".pq")
_Path: TypeAlias = "str | os.PathLike[str]"


def open_source(data: Any, schema: Schema, *, key: bytes | None = None) -> Source:
    """The private rows of a file (a path) or of a frame, ready to be counted.

    Args:
        data: a path to a CSV or Parquet file, or a pandas, polars or pyarrow frame.
        schema: what is public about the columns.
        key: the bounding key; drawn for this run when not given, and never saved.

    Raises:
        InputError: when the file or frame cannot be used, saying why and what to do.
        SchemaError: when its columns do not fit the schema.
    """
    if isinstance(data, str | os.PathLike):
        return MemorySource(read_table(data, schema), schema, key=key)
    return MemorySource(data, schema, key=key)


def read_table(path: _Path, schema: Schema) -> Any:
    """The columns of a file that the schema needs, as a ``pyarrow.Table``.

    CSV cells stay text, so that leading zeros survive: the schema gives them meaning. CSV may be gzipped and may begin
    with a byte-order mark; its separator, quote and encoding are the schema's ``dialect``. Parquet keeps its types.

    Raises:
        InputError: for a file that is missing, unreadable, empty, damaged, ragged or in another encoding.
        SchemaError: for a missing column or two columns of one name.
    """
    file = Path(path)
    name = file.name.lower()
    if not name.endswith(_CSV + _PARQUET):
        raise InputError(f"{file}: unknown kind of file; give .csv, .tsv, .txt or .data (also with .gz), or .parquet")
    try:
        size = file.stat().st_size
    except (OSError, ValueError):
        raise InputError(f"{file}: no such file, or no permission to see it; check the path") from None
    if file.is_dir():
        raise InputError(f"{file}: is a directory; give one file")
    if size == 0:
        raise InputError(f"{file}: the file is empty; export the table again, with its header")
    return _read_csv(file, schema) if name.endswith(_CSV) else _read_parquet(file, schema)


def _read_parquet(file: Path, schema: Schema) -> Any:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
            check_names(parquet.schema_arrow.names, schema)
            table = parquet.read(columns=list(schema.needs))
        table.validate(full=True)  # a flipped bit can hide in text that no decoder looked at
    except SchemaError:
        raise
    except Exception:
        raise InputError(f"{file}: damaged, cut short or not Parquet; copy or export the file again") from None
    return table.select(list(schema.needs))


def _read_csv(file: Path, schema: Schema) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    dialect = schema.dialect
    names = _header(file, schema)
    check_names(names, schema)
    read = arrow_csv.ReadOptions(
        encoding=dialect.encoding, block_size=1 << 23, column_names=None if dialect.header else names
    )
    parse = arrow_csv.ParseOptions(delimiter=dialect.delimiter, quote_char=dialect.quote, newlines_in_values=True)
    convert = arrow_csv.ConvertOptions(
        include_columns=list(schema.needs),
        column_types={name: pa.large_string() for name in schema.needs},
        strings_can_be_null=False,
    )
    try:
        with pa.input_stream(str(file), compression="gzip" if file.suffix.lower() == ".gz" else None) as stream:
            return arrow_csv.read_csv(stream, read, parse, convert)
    except Exception as error:
        raise InputError(_csv_trouble(file, error, dialect.encoding)) from None


def _header(file: Path, schema: Schema) -> list[str]:
    """The names in the first line, checked before a large file is parsed; two of one name the reader would let pass."""
    dialect = schema.dialect
    if not dialect.header:
        return [column.name for column in schema.columns]
    encoding = "utf-8-sig" if dialect.encoding.lower().replace("_", "-") in ("utf-8", "utf8") else dialect.encoding
    try:
        with (gzip.open if file.suffix.lower() == ".gz" else open)(file, "rt", encoding=encoding, newline="") as text:
            return next(csv.reader(text, delimiter=dialect.delimiter, quotechar=dialect.quote), [])
    except Exception as error:
        raise InputError(_csv_trouble(file, error, dialect.encoding)) from None


def _csv_trouble(file: Path, error: Exception, encoding: str) -> str:
    """What went wrong, told from the reader's error but never in its words."""
    words = str(error)
    if isinstance(error, UnicodeError) or "UTF8" in words:
        return f"{file}: not written in {encoding}; set `encoding` in the schema's dialect (Excel: windows-1252)"
    if "Expected" in words and "columns" in words:
        return f"{file}: a line has more or fewer cells than the header; check `delimiter` and `quote` in the dialect"
    if isinstance(error, PermissionError):
        return f"{file}: no permission to read it; ask its owner for access"
    return f"{file}: damaged, cut short or not CSV; copy or export the file again"
