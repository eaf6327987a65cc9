"""`evaluate` for linked tables: the scores of `metric/linked.py`, and whether keys, caps and orders hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.metric.linked import LinkedCodes, TableCodes, lag_correlation, score_tables
from understudy.release.linked import LinkedRelease
from understudy.report.linked import LinkedComparison, linked_report
from understudy.schema.axis import AxisColumn
from understudy.schema.column import Coded
from understudy.schema.frames import to_arrow_columns
from understudy.schema.linked import LinkedSchema
from understudy.schema.rules import find_broken_rows
from understudy.source.linked import LinkedRows, find_tables, read_tables


def evaluate_linked(
    real: Any, synthetic: Any, schema: LinkedSchema, *, seed: int = 0, queries: int = 10_000
) -> list[dict[str, Any]]:
    """Score linked synthetic tables against the real ones.

    Args:
        real: the real tables by name, or their folder.
        synthetic: the synthetic tables, likewise.
        schema: the schema of both.
        seed: draws the group queries.
        queries: the number of group queries for each child table.

    Returns:
        For each score its ``metric``, ``kind``, ``name``, ``value``, ``better``, ``best`` and ``note``.

    **Privacy.** Not differentially private: for the custodian only.

    Raises:
        InputError, SchemaError: naming the table that cannot be used.
    """
    made = read_tables(find_tables(synthetic, schema), schema)
    codes = [_encode(read_tables(find_tables(real, schema), schema), schema), _encode(made, schema)]
    return _score(codes[0], codes[1], made, schema, seed=seed, queries=queries)


def report_linked(release: LinkedRelease, real: Any = None, *, seed: int = 0) -> str:
    """Return the report about linked tables; with the real tables, for the custodian only.

    Raises:
        InputError, SchemaError: naming the table that cannot be used.
    """
    return linked_report(release, None if real is None else compare_linked(release, real, seed=seed))


def compare_linked(release: LinkedRelease, real: Any, *, seed: int = 0, queries: int = 1_000) -> LinkedComparison:
    """Compare rows drawn from a release with the real tables, for `linked_report`.

    Args:
        release: the release.
        real: the real tables by name, or their folder or database.
        seed: draws the rows and the group queries.
        queries: the number of group queries for each child table.

    **Privacy.** Not differentially private: for the custodian only.

    Raises:
        InputError, SchemaError: naming the table that cannot be used.
    """
    schema = release.schema
    true = _encode(read_tables(find_tables(real, schema), schema), schema)
    drawn = read_tables(release.sample(seed=seed, as_written=True), schema)
    made = _encode(drawn, schema)
    scores = _score(true, made, drawn, schema, seed=seed, queries=queries)
    lags = {name: lines for name in schema.links if (lines := _lags(true, made, schema, name))}
    return LinkedComparison(
        [(one["metric"], one["value"], one["best"]) for one in scores],
        {
            name: {column: _shares(true[name].codes[column], size) for column, size in one.domain.items()}
            for name, one in schema.tables.items()
        },
        {
            name: _shares(true[link.parent].codes[f"#{name}"], link.max_children + 1)
            for name, link in schema.links.items()
        },
        lags,
    )


def _encode(tables: dict[str, Any], schema: LinkedSchema) -> LinkedCodes:
    return {name: TableCodes(*one) for name, one in LinkedRows(tables, schema).table_codes().items()}


def _score(
    real: LinkedCodes,
    synthetic: LinkedCodes,
    made: dict[str, Any],
    schema: LinkedSchema,
    *,
    seed: int,
    queries: int,
) -> list[dict[str, Any]]:
    scores = check_integrity(made, schema) | score_tables(real, synthetic, schema, queries=queries, seed=seed)
    return [_line(name, value) for name, value in scores.items()]


def _lags(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str) -> list[tuple[str, float, float]]:
    """Return correlations of numbers and times with those of the previous sibling, real and synthetic."""
    link, one = schema.links[name], schema.tables[name]
    if not link.order or link.max_children < 2:
        return []
    axes = [column.name for column in one.coded if isinstance(column, AxisColumn) and column.name in one.domain]
    return [
        (axis, lag_correlation(real, schema, name, axis), lag_correlation(synthetic, schema, name, axis))
        for axis in axes
    ]


def _shares(codes: Any, size: int) -> Any:
    return np.bincount(codes, minlength=size) / max(len(codes), 1)


def check_integrity(tables: dict[str, Any], schema: LinkedSchema) -> dict[str, float]:
    """Return the shares of references, keys, caps, orders and rules that hold; each must be 1 in synthetic tables."""
    found: dict[str, float] = {}
    for name, key in schema.keys.items():
        if key is not None:
            keys = _texts(tables[name], key)
            found[f"unique keys({name})"] = _share(len(pc.unique(keys)), len(keys))
    for name, link in schema.links.items():
        mine = _texts(tables[name], link.parent_column)
        theirs = _texts(tables[link.parent], str(schema.keys[link.parent]))
        place = pc.index_in(mine, value_set=theirs)
        found[f"references({name})"] = _share(len(place) - place.null_count, len(place))
        parents = np.asarray(pc.fill_null(place, -1), np.int64)
        sizes = np.bincount(parents[parents >= 0], minlength=len(theirs))
        found[f"caps({name})"] = _share(int((sizes <= link.max_children).sum()), len(sizes))
        if link.order:
            found[f"order({name})"] = _check_order(tables[name], parents, schema, name)
    for name, one in schema.tables.items():
        if one.rules:
            cells = to_arrow_columns(tables[name], [column.name for column in one.coded], one.dialect.decimal)[0]
            rows = pa.table(cells)
            broken = find_broken_rows(one, one.encode(rows).codes, rows)
            found[f"rules({name})"] = _share(int((~broken).sum()), len(broken))
    return found


def _check_order(table: Any, parents: Any, schema: LinkedSchema, name: str) -> float:
    """Return the share of siblings that follow the previous one, as written, in the first order column."""
    link, one = schema.links[name], schema.tables[name]
    column = one.column(link.order[0])
    assert isinstance(column, Coded)  # noqa: S101 - checked with the schema
    cells = to_arrow_columns(table, [column.name], one.dialect.decimal)[0][column.name]
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    values = np.asarray(column.encode(cells, one.dialect)[column.name], np.int64)
    inside = np.ones(len(values), np.bool_)
    if isinstance(column, AxisColumn):
        inside = values < column.ordinary
        values = np.asarray(column.units(cells, one.dialect)[0])
    order = np.argsort(parents, kind="stable")
    pairs = (np.diff(parents[order]) == 0) & inside[order][1:] & inside[order][:-1]
    steps = np.diff(values[order])[pairs] * (-1 if link.descending[0] else 1)
    return _share(int((steps > 0).sum() if link.strict else (steps >= 0).sum()), len(steps))


def _texts(table: Any, column: str) -> Any:
    cells = to_arrow_columns(table, [column])[0][column]
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    return cells.cast(pa.string())


def _share(good: int, every: int) -> float:
    return good / every if every else 1.0


def _line(name: str, value: float) -> dict[str, Any]:
    error = name.startswith("query error")
    kept = {"kind": "score", "name": "", "value": value, "better": "lower" if error else "higher"}
    return {"metric": name, **kept, "best": 0.0 if error else 1.0, "note": ""}
