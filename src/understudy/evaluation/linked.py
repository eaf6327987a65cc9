"""`evaluate` for linked tables: the scores of `metric/linked.py`, and whether keys, caps and orders hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.metric.linked import LinkedCodes, TableCodes, lag_correlation, score_tables
from understudy.release.linked import LinkedRelease
from understudy.report.linked import LinkedComparison
from understudy.schema.axis import AxisColumn
from understudy.schema.column import Coded
from understudy.schema.frames import to_arrow_columns
from understudy.schema.linked import LinkedSchema
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
    return LinkedComparison(
        [(one["metric"], one["value"], one["best"]) for one in scores],
        [
            *(_children_table(true, made, schema, name) for name in schema.links),
            *(_columns_table(true, made, schema, name) for name in schema.tables),
            *filter(None, (_lag_table(true, made, schema, name) for name in schema.links)),
        ],
    )


def _encode(tables: dict[str, Any], schema: LinkedSchema) -> LinkedCodes:
    return {name: TableCodes(*one) for name, one in LinkedRows(tables, schema).coded().items()}


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


_Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def _children_table(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str) -> _Table:
    """Return the real and synthetic shares of parents with each number of children."""
    link = schema.links[name]
    true, made = (_shares(one[link.parent].codes[f"#{name}"], link.max_children + 1) for one in (real, synthetic))
    lines = [(str(many), f"{true[many]:.1%}", f"{made[many]:.1%}") for many in range(link.max_children + 1)]
    return f"{name} per row of {link.parent}, within the cap", ("number", "real", "synthetic"), lines


def _columns_table(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str) -> _Table:
    """Return by column the share of rows that differ, and its most common code, real beside synthetic."""
    lines = []
    for column, size in schema.tables[name].domain.items():
        true, made = (_shares(one[name].codes[column], size) for one in (real, synthetic))
        code = int(true.argmax())
        lines.append((column, f"{np.abs(true - made).sum() / 2:.1%}", f"{true[code]:.1%}", f"{made[code]:.1%}"))
    return f"Columns of {name}", ("column", "rows that differ", "most common value, real", "synthetic"), lines


def _lag_table(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str) -> _Table | None:
    """Return correlations of numbers and times with those of the previous sibling, real beside synthetic."""
    link, lines = schema.links[name], []
    if not link.order or link.max_children < 2:
        return None
    for column in schema.tables[name].coded:
        if isinstance(column, AxisColumn) and column.name in schema.tables[name].domain:
            both = [lag_correlation(one, schema, name, column.name) for one in (real, synthetic)]
            lines.append((column.name, *("none" if np.isnan(one) else f"{one:.2f}" for one in both)))
    title = f"Correlation with the previous row of {name}"
    return (title, ("column", "real", "synthetic"), lines) if lines else None


def _shares(codes: Any, size: int) -> Any:
    return np.bincount(codes, minlength=size) / max(len(codes), 1)


def check_integrity(tables: dict[str, Any], schema: LinkedSchema) -> dict[str, float]:
    """Return the shares of references, keys, caps and orders that hold; each must be 1 in synthetic tables."""
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
