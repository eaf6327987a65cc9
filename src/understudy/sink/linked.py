"""Writers of linked tables: a folder with a file for each table, or a DuckDB or PostgreSQL database with keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from understudy.errors import OutputError, SettingError
from understudy.files import write_text
from understudy.schema.linked import LinkedSchema
from understudy.sink.files import open_file, write_chunks

TableFormat = Literal["csv", "parquet"]
PACKAGE = "datapackage.json"


def check_target(path: Path, *, force: bool = False) -> None:
    """Refuse an output that exists already.

    Raises:
        OutputError: naming it.
    """
    if path.suffix.lower() in (".csv", ".parquet"):
        raise OutputError(f"{path}: linked tables are several files; name a folder for them, such as {path.stem}")
    if path.suffix == ".duckdb":
        if path.exists() and not force:
            raise OutputError(f"{path} already exists; choose another name, or add --force")
        return
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path} is a file; give a new folder for the tables, or a .duckdb file")
    if path.is_dir() and any(path.iterdir()) and not force:
        raise OutputError(f"{path} is not empty; choose a new folder, or add --force")


def write_to_database(tables: Mapping[str, Any], schema: LinkedSchema, url: str, *, force: bool = False) -> None:
    """Write linked tables to a PostgreSQL database, with primary and foreign keys, in one transaction.

    Raises:
        OutputError: if a table exists already, or cannot be written.
    """
    from understudy.sink.postgres import write_linked_tables

    write_linked_tables(tables, {name: constraints(name, schema) for name in tables}, url, force=force)


def write_tables(
    tables: Mapping[str, Any], schema: LinkedSchema, path: Path, *, kind: TableFormat = "csv", force: bool = False
) -> list[Path]:
    """Write linked tables: to a folder, with a data package that names their keys; or to a .duckdb file.

    Args:
        tables: an arrow table for each table of the schema.
        schema: the schema of the tables.
        path: a folder, or a file that ends in .duckdb.
        kind: the kind of the files in a folder.
        force: whether files of these names are replaced.

    Raises:
        OutputError: if something is there already, or cannot be written.
    """
    check_target(path, force=force)
    if path.suffix == ".duckdb":
        path.unlink(missing_ok=True)
        _write_duckdb(tables, schema, path)
        return [path]
    if kind not in ("csv", "parquet"):
        raise SettingError("--format: linked tables are written as csv or parquet")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise OutputError(f"the folder {path} cannot be made; choose another") from None
    written = []
    for name, table in tables.items():
        file = path / f"{name}.{kind}"
        with open_file(file, schema.tables[name].dialect) as opened:
            write_chunks([table], opened, table.num_rows)
        written.append(file)
    paths = {name: f"{name}.{kind}" for name in schema.tables}
    package = {"name": schema.root, **replace(schema, paths=paths).to_dict()}
    write_text(json.dumps(package, indent=1) + "\n", path / PACKAGE)
    return [*written, path / PACKAGE]


def _write_duckdb(tables: Mapping[str, Any], schema: LinkedSchema, path: Path) -> None:
    try:
        import duckdb
    except ImportError:
        raise SettingError("DuckDB is not installed; install understudy[sql], or write a folder of files") from None
    try:
        with duckdb.connect(str(path)) as connection:
            for name, table in tables.items():
                connection.register("synthetic_rows", table)
                columns = connection.sql("describe select * from synthetic_rows").fetchall()
                parts = [f"{quote(column)} {kind}" for column, kind, *_ in columns]
                connection.execute(f"create table {quote(name)} ({', '.join([*parts, *constraints(name, schema)])})")
                connection.execute(f"insert into {quote(name)} select * from synthetic_rows")  # noqa: S608 - quoted
                connection.unregister("synthetic_rows")
    except duckdb.Error:
        path.unlink(missing_ok=True)
        raise OutputError(f"{path} could not be written by DuckDB; check the path and the free space") from None


def constraints(name: str, schema: LinkedSchema) -> list[str]:
    """Return the SQL constraints of a table: its primary key, and the foreign keys to its parent and to the root."""
    key, link = schema.keys[name], schema.links.get(name)
    found = [] if key is None else [f"primary key ({quote(key)})"]
    if link is None:
        return found
    targets = {link.parent_column: link.parent}
    if link.unit_column is not None:
        targets[link.unit_column] = schema.root
    for column, target in targets.items():
        found.append(f"foreign key ({quote(column)}) references {quote(target)} ({quote(str(schema.keys[target]))})")
    return found


def quote(name: str) -> str:
    """Return an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
