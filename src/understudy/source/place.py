"""Where private rows live: in a file, a folder or pattern of files, a database's URL, or a table object of an engine.

**Privacy.** A URL may hold a password. It is parsed here and never quoted: messages name the table only.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from understudy.errors import InputError, SettingError

CSV = tuple(f"{ending}{gz}" for ending in (".csv", ".tsv", ".txt", ".data") for gz in ("", ".gz"))
PARQUET = (".parquet", ".pq")
_POSTGRES = ("postgresql", "postgres")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # at least two letters: C:/ is a path
SourceKind: TypeAlias = Literal["frame", "file", "files", "duckdb", "postgresql", "spark", "ibis", "relation"]
_LIBRARIES: dict[str, SourceKind] = {"pyspark": "spark", "ibis": "ibis", "duckdb": "relation", "_duckdb": "relation"}


@dataclass(frozen=True)
class DatabaseTable:
    """A table of a database.

    Attributes:
        address: the address to connect to; it may hold a password, so it is not part of the text form.
        table: the table or view, "people" or "survey.people"; None if a query says what to read.
    """

    address: str = field(repr=False)
    table: str | None


def source_kind(data: Any, *, query: bool = False) -> SourceKind:
    """Return the kind of place that `data` is; `query` says that it is read through a query.

    Raises:
        SettingError: for a query together with a frame or a table object.
    """
    if isinstance(data, str | os.PathLike):
        return _text_kind(os.fspath(data), query)
    kind = _LIBRARIES.get(type(data).__module__.partition(".")[0], "frame")
    if query:
        remedy = (
            "apply it to a frame before you pass the frame" if kind == "frame" else "a table object is a query already"
        )
        raise SettingError(f"a query reads files or a database; {remedy}")
    return kind


def _text_kind(text: str, query: bool) -> SourceKind:
    scheme, mark, _ = text.partition("://")
    if mark and scheme in (*_POSTGRES, "duckdb"):
        return "duckdb" if scheme == "duckdb" else "postgresql"
    refuse_url(text)
    if not text.strip():  # Path("") is the current folder: an unset variable would read all of its files
        raise InputError("the path of the table is empty; give the path of a file or folder, or a database's URL")
    try:
        single, folder = Path(text).is_file(), Path(text).is_dir()
    except OSError:
        raise InputError(f"{text}: no such file, or no permission to see it; check the path") from None
    if single and not query:
        return "file"
    return "files" if query or folder or glob.has_magic(text) else "file"


def refuse_url(text: str) -> None:
    """Refuse a URL in place of a path: messages quote paths, and a URL may hold a password.

    Raises:
        InputError: naming only the scheme of the URL.
    """
    scheme = _SCHEME.match(text)
    if scheme and not Path(text).exists():
        raise InputError(
            f"a URL that begins with {scheme[1]}: cannot be read; export the table as CSV or Parquet, or give "
            "postgresql://… or duckdb://…"
        )


def parse_url(url: str, *, query: bool) -> DatabaseTable:
    """Parse a database's URL: ``table=`` is ours, everything else belongs to the engine.

    Raises:
        SettingError: unless exactly one of table and query is given.
    """
    try:
        parts = urlsplit(url)
        settings = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise SettingError("the database's URL cannot be read; write postgresql://HOST/DATABASE?table=NAME") from None
    tables = [value for name, value in settings if name == "table" and value]
    if len(tables) + query != 1:
        raise SettingError(
            "the table's name is missing: add ?table=NAME at the end of the URL, or give a query (--query FILE.sql)"
        )
    if parts.path.startswith("//"):  # duckdb:////data/shop.duckdb, as other tools write it; Python would read a host
        parts = parts._replace(path="/" + parts.path.lstrip("/"))
    rest = urlencode([pair for pair in settings if pair[0] != "table"])
    address = urlunsplit(parts._replace(query=rest))
    return DatabaseTable(address, tables[0] if tables else None)


def add_table(url: str, table: str) -> str:
    """Return the URL of a table of a database.

    >>> add_table("postgresql://host/shop?sslmode=require", "people")
    'postgresql://host/shop?sslmode=require&table=people'
    """
    return f"{url}{'&' if '?' in url else '?'}table={table}"


def list_files(text: str) -> list[Path]:
    """List the files of a folder or pattern in order; the list is fixed for the whole run.

    Raises:
        InputError: if there are none, or CSV and Parquet are mixed.
    """
    path = Path(text)
    try:
        found = path.rglob("*") if path.is_dir() else map(Path, glob.glob(text, recursive=True))  # noqa: PTH207
        names = sorted(file for file in found if file.is_file() and _is_table(file))
    except (OSError, ValueError):
        raise InputError(f"{text}: the folder cannot be read; check the path and its permissions") from None
    if path.is_file() and not names:
        names = [path]
    kinds = {file.name.lower().endswith(PARQUET) for file in names}
    if not names:
        raise InputError(f"{text}: this folder or pattern has no .parquet or .csv file; check the path")
    if len(kinds) > 1:
        raise InputError(f"{text}: it contains both Parquet and CSV files; give a pattern that matches one kind")
    return names


def read_query(file: Path) -> str:
    """Read the statement in a file.

    Raises:
        SettingError: if it cannot be read or is empty.
    """
    try:
        text = strip_query(file.read_text("utf-8-sig"))
    except (OSError, ValueError):
        raise SettingError(f"{file}: the query cannot be read; give a text file with one SELECT statement") from None
    if not text:
        raise SettingError(f"{file}: the query is empty; write one SELECT statement")
    return text


def strip_query(query: str) -> str:
    """Remove trailing semicolons and comment lines from a query, because it becomes part of another statement."""
    lines = query.strip().splitlines()
    while lines and (not lines[-1].strip("; \t") or lines[-1].lstrip().startswith("--")):
        lines.pop()
    return "\n".join(lines).rstrip("; \t")


def table_name(data: Any) -> str:
    """Return the default name of a table in records: that of the table, the folder or the file."""
    if not isinstance(data, str | os.PathLike):
        return "unnamed"
    text = os.fspath(data)
    home = source_kind(text)
    if home in ("postgresql", "duckdb"):
        parts = urlsplit(text)
        file = parts.netloc + parts.path if home == "duckdb" else parts.path  # duckdb://shop.duckdb is in this folder
        return dict(parse_qsl(parts.query)).get("table") or Path(file).stem or "unnamed"
    path = Path(text)
    if home == "files" and not path.is_dir():
        path = next((parent for parent in path.parents if not glob.has_magic(str(parent))), path)
    return path.name.split(".")[0] or "unnamed"


def public_name(table: Any) -> str:
    """Return what a receipt calls a table that was declared public: the name of its file or table, else "a frame".

    **Privacy.** A database's URL may hold a password, anywhere in it; only the table's name is published.
    """
    if not isinstance(table, str | os.PathLike):
        return "a frame"
    return table_name(table) if "://" in os.fspath(table) else Path(table).name


def _is_table(file: Path) -> bool:
    """Return whether a file is part of a table; hidden files and the notes of other engines (``_SUCCESS``) are not."""
    return file.name.lower().endswith(CSV + PARQUET) and not file.name.startswith((".", "_"))
