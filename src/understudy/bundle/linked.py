"""The folder for analysts of linked tables: a file for each table, data package, codebook, report, README, release."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pyarrow.parquet as pq

from understudy.bundle.codebook import ORIGINS
from understudy.bundle.folder import Bundle, choose_seed, new_folder
from understudy.bundle.rows import guard_cell, write_csv
from understudy.errors import SettingError
from understudy.release.linked import LinkedRelease
from understudy.report.linked import linked_report
from understudy.report.page import load_template
from understudy.schema.column import Coded, Identifier
from understudy.yaml_json import dump_text

FORMATS = ("csv", "parquet")


def make_linked_bundle(
    release: LinkedRelease,
    folder: Path,
    *,
    rows: int | None = None,
    seed: int | None = None,
    formats: Sequence[str] = FORMATS,
) -> Bundle:
    """Write a bundle of linked tables.

    **Privacy.** Post-processing of the release: costs nothing.

    Args:
        release: the release.
        folder: a folder that does not exist yet, or is empty.
        rows: how many rows of the root; by default as `LinkedRelease.sample`.
        seed: for the rows; drawn at random by default. The README states it.
        formats: csv, parquet or both.

    Raises:
        SettingError: for an unknown format.
        OutputError: if the folder is not empty or cannot be written; nothing is left behind then.
    """
    if not formats or (unknown := [name for name in formats if name not in FORMATS]):
        wrong = f"{unknown[0]!r} is not possible" if formats else "name at least one"
        raise SettingError(f"--format: {wrong}; linked tables are written as csv or parquet")
    seed = choose_seed(seed)
    with new_folder(folder) as draft:
        made = _fill(draft, release, rows, seed, [name for name in FORMATS if name in formats])
    return Bundle(folder, tuple(sorted(path.name for path in folder.iterdir())), made, seed, {}, {})


def _fill(folder: Path, release: LinkedRelease, rows: int | None, seed: int, formats: Sequence[str]) -> int:
    """Write the files; returns the number of rows."""
    schema, counts = release.schema, dict[str, int]()
    for kind in formats:
        for name, table in release.sample(rows, seed=seed, as_written=kind == "csv").items():
            file, counts[name] = folder / f"{name}.{kind}", table.num_rows
            if kind == "csv":
                write_csv(table, file)
            else:
                pq.write_table(table, file)
    files = [f"{name}.{kind}" for name in schema.tables for kind in formats]
    paths = {name: f"{name}.{formats[0]}" for name in schema.tables}
    package = {"name": schema.root, **replace(schema, paths=paths).to_dict()}
    template = load_template("linked-readme.md.j2", "understudy.bundle")
    page = template.render(release=release, receipt=release.receipt, counts=counts, files=files, seed=seed,
                           links=schema.links, keys=schema.keys, version=version("understudy"))  # fmt: skip
    texts = {
        "datapackage.json": dump_text(package, ".json"),
        "codebook.csv": _codebook(release),
        "report.html": linked_report(release),
        "README.md": f"{page.rstrip()}\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    release.save(folder / "stand-in.release")
    return sum(counts.values())


def _codebook(release: LinkedRelease) -> str:
    """Return the codebook as CSV: one line for each value of each column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("table", "column", "title", "type", "value", "origin"))
    for name, one in release.schema.tables.items():
        for column in one.columns:
            labels: Sequence[str] = ()
            if isinstance(column, Coded):
                labels = column.code_labels()
            elif isinstance(column, Identifier):
                labels = (_describe_key(release, name, column.name),)
            line = (name, column.name, column.title or "", column.kind)
            origin = ORIGINS.get(column.origin, column.origin)
            for label in labels:
                writer.writerow([guard_cell(cell) for cell in (*line, str(label), origin)])
    return text.getvalue()


def _describe_key(release: LinkedRelease, table: str, column: str) -> str:
    schema, link = release.schema, release.schema.links.get(table)
    targets: Mapping[str | None, str] = {}
    if link is not None:
        targets = {link.unit_column: schema.root, link.parent_column: link.parent}
    if column in targets:
        return f"fresh key of {targets[column]}"
    return "fresh key of this table" if column == schema.keys[table] else "made-up"
