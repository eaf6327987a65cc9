"""The rows of a bundle: the same ones as text for CSV and as typed columns for everything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.bundle.formulas import guard_table
from understudy.errors import SettingError
from understudy.release import Release
from understudy.schema import Dialect
from understudy.schema.categorical import Categorical

MARK = "synthetic"
"""The column that says of every row that nobody stands behind it."""


def plain(release: Release) -> Release:
    """The same release, whose text is written in the one dialect that every tool reads: commas, points, UTF-8."""
    return replace(release, schema=replace(release.schema, dialect=Dialect()))


def sampled(release: Release, rows: int | None, seed: int, *, mark: bool, as_text: bool) -> Any:
    """Rows as an arrow table; the same release, number and seed give the same rows, as text or typed.

    **Privacy.** Post-processing.

    Raises:
        SettingError: when there is a column called `synthetic` already.
    """
    import pyarrow as pa

    table = release.sample(rows, seed=seed, as_="arrow", as_written=as_text)
    if not mark:
        return table
    if MARK in table.column_names:
        raise SettingError(f"the table has a column {MARK!r} already; leave out --mark")
    flag = pa.array(np.ones(table.num_rows, np.int8))
    return table.append_column(MARK, flag)


def write_csv(table: Any, path: Path) -> dict[str, list[str]]:
    """Write a table as CSV; returns by column the values that got an apostrophe."""
    from pyarrow import csv

    safe, changed = guard_table(table)
    csv.write_csv(safe, path, csv.WriteOptions(quoting_style="needed"))
    return changed


def write_parquet(table: Any, path: Path, release: Release) -> None:
    """Write a table as Parquet, with titles and value labels in the columns' metadata."""
    import pyarrow.parquet as pq

    pq.write_table(table.cast(_described(table.schema, release)), path, compression="zstd")


def labels_of(release: Release) -> dict[str, dict[Any, str]]:
    """By column, what people call its values, where the schema says so."""
    return {
        column.name: {value: column.labels[str(value)] for value in column.values if str(value) in column.labels}
        for column in release.schema.columns
        if isinstance(column, Categorical) and column.labels
    }


def titles_of(release: Release) -> dict[str, str]:
    """By column, a short name for people, where the schema has one."""
    titles = {column.name: column.title or column.description for column in release.schema.columns}
    return {name: title for name, title in titles.items() if title} | {
        MARK: "1: a made-up row; nobody stands behind it"
    }


def _described(schema: Any, release: Release) -> Any:
    import json

    import pyarrow as pa

    labels, titles = labels_of(release), titles_of(release)

    def facts(name: str) -> Mapping[str, str]:
        known = {"title": titles[name]} if name in titles else {}
        listed = {str(value): label for value, label in labels.get(name, {}).items()}
        return known | ({"labels": json.dumps(listed, ensure_ascii=False)} if listed else {})

    fields = [field.with_metadata(facts(field.name) or None) for field in schema]
    return pa.schema(fields, metadata={"understudy": release.receipt.guarantee()})
