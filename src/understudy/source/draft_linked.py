"""Draft schemas of linked tables: their keys and references, proposed from the rows, beside each table's columns.

For a person to review, never for a release as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understudy.errors import InputError
from understudy.schema.draft import draft as propose
from understudy.schema.draft import key_form, profile_column
from understudy.schema.frames import to_arrow_columns
from understudy.schema.linked import MOST_CHILDREN, LinkedSchema
from understudy.schema.text import Dialect, to_text
from understudy.source.draft import read_whole_table
from understudy.source.place import CSV, PARQUET

_KNOWN = 0.9  # the share of keys that name a row of the other table, from which a column is taken to refer to it
_KEPT = 0.975  # the share of rows that a proposed cap keeps


@dataclass(frozen=True, eq=False)
class LinkedDraft:
    """A proposed data package with notes and questions.

    **Privacy.** Made from the rows without noise: for the custodian only.

    Attributes:
        content: what a schema file would hold, every field with ``status: draft``.
        notes: by TABLE.COLUMN, the reason for the proposal.
        questions: decisions for the person.
    """

    content: dict[str, Any]
    notes: dict[str, str]
    questions: tuple[str, ...]


@dataclass(eq=False)
class _TextTable:
    """A table as it was read: all cells as text, and what was found out about its keys."""

    path: str
    names: list[str]
    dialect: Dialect
    cells: Mapping[str, Any]
    draft: Any
    key: str | None = None
    references: dict[str, str] = field(default_factory=dict)  # by table that is referred to, the column

    def refers_to(self, column: str, keys: Any) -> bool:
        """Return whether most cells of a column are among these keys."""
        cells = self.cells[column].drop_null()
        return len(cells) > 0 and (pc.sum(pc.is_in(cells, value_set=keys)).as_py() or 0) >= _KNOWN * len(cells)


def draft_tables(tables: str | PathLike[str] | Mapping[str, Any]) -> LinkedDraft:
    """Propose a data package from the rows of linked tables, for a person to review.

    A column whose cells are all different is taken for a table's key if columns of other tables have the same name, or
    name the table, and contain its values. Of a table that refers to several others, the parent is the lowest one. The
    cap of a key is the smallest number of children that keeps 97.5 % of the rows; a column of dates orders siblings.

    Args:
        tables: a folder with a file for each table, or the path of each table by name.

    **Privacy.** Made from the rows without noise: for the custodian only.

    Raises:
        InputError: if the tables cannot be read, or do not form a tree by keys that were found.
    """
    read = {name: _read(place) for name, place in _find_places(tables).items()}
    _find_references(read)
    order = _sort(read)
    resources, notes = [], dict[str, str]()
    questions = [f"Each row of {order[0]!r}, with its rows in all tables, is taken for one person: is that so?"]
    for name in order:
        resource, mine, asked = _resource(name, read, order[0])
        resources.append(resource)
        notes |= {f"{name}.{column}": note for column, note in mine.items()}
        questions += asked
    package = {"resources": resources, "understudy": {"privacy_unit": {"table": order[0]}}}
    LinkedSchema.from_dict(package)
    return LinkedDraft(package, notes, tuple(questions))


def _find_places(tables: str | PathLike[str] | Mapping[str, Any]) -> dict[str, str]:
    if isinstance(tables, Mapping):
        return {name: fspath(place) for name, place in tables.items()}
    folder = Path(tables)
    endings = (*PARQUET, *CSV)
    files = [one for one in sorted(folder.iterdir()) if one.name.lower().endswith(endings)] if folder.is_dir() else []
    found = {re.sub(r"\W", "_", one.name.split(".")[0]): str(one) for one in files}
    if len(found) < 2 or len(found) < len(files):
        raise InputError(f"{folder}: give a folder with one CSV or Parquet file for each table, or name each table")
    return found


def _read(place: str) -> _TextTable:
    table, names, dialect, _ = read_whole_table(place, None)
    if not len(table):
        raise InputError(f"{place}: the table has no rows to draft from; write its schema by hand")
    cells = to_arrow_columns(table, names, dialect.decimal)[0]
    texts = {name: _key_texts(one) for name, one in cells.items()}
    return _TextTable(Path(place).name, names, dialect, texts, propose(table, names, dialect, "row"))


def _key_texts(cells: Any) -> Any:
    texts = pc.utf8_trim_whitespace(pc.cast(to_text(cells, exact=True), pa.large_string()))
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _find_references(tables: Mapping[str, _TextTable]) -> None:
    """Find the key of each table that another one refers to, and all such references."""
    for name, table in tables.items():
        for column in table.names:
            cells = table.cells[column]
            if table.key is not None or cells.null_count or len(pc.unique(cells)) < len(cells):
                continue
            for other in tables.values():
                for theirs in other.names if other is not table else ():
                    if _names_key(theirs, column, name) and other.refers_to(theirs, cells):
                        table.key = column
                        other.references.setdefault(name, theirs)


def _names_key(theirs: str, column: str, table: str) -> bool:
    """Return whether a column of another table has the name of a key, or that of its table.

    >>> _names_key("patient_id", "patient_id", "patients"), _names_key("patient", "id", "patients")
    (True, True)
    >>> _names_key("day", "visit", "visits")
    False
    """
    said, key, stem = theirs.lower(), column.lower(), table.lower().removesuffix("s")
    return said == key or said in (stem, f"{stem}id", f"{stem}_id", f"{stem}_{key}", f"{table.lower()}_{key}")


def _sort(tables: Mapping[str, _TextTable]) -> list[str]:
    """Return the tables, the root first and parents before children."""
    roots = [name for name, table in tables.items() if not table.references]
    if len(roots) != 1:
        raise InputError(
            f"{' and '.join(map(repr, roots)) or 'no table'}: one table, the root, must have no column with the key of "
            "another one, and all others such a column of the same name; rename key columns alike, or write the "
            "package by hand (docs/guide/linked.md)"
        )
    order = list(roots)
    while more := [name for name, one in tables.items() if name not in order and one.references.keys() <= {*order}]:
        order += more
    if len(order) < len(tables):
        raise InputError("the tables refer to each other in a circle; write the package by hand")
    return order


def _ancestors(name: str, tables: Mapping[str, _TextTable]) -> list[str]:
    """Return the tables above one, the lowest first."""
    found = []
    while tables[name].references:
        name = max(tables[name].references, key=lambda one: len(_ancestors(one, tables)))
        found.append(name)
    return found


def _resource(
    name: str, tables: Mapping[str, _TextTable], root: str
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return a table's resource, notes and questions."""
    table, above = tables[name], _ancestors(name, tables)
    content, notes, questions = table.draft.content, dict(table.draft.notes), list[str]()
    linking = {table.references[one]: one for one in above if one in table.references}
    table.key = table.key or _own_key(table, linking)
    fields = []
    for one in content["fields"]:
        column = one["name"]
        if column == table.key or column in linking:
            form = key_form(profile_column(table.cells[column], table.dialect))
            one = {"name": column, "understudy": form | {"status": "draft", "origin": "reviewed"}}
            owner = linking.get(column, name)
            notes[column] = f"the key of {owner!r}, fresh in synthetic rows"
        fields.append(one)
    schema: dict[str, Any] = {"primaryKey": table.key} if table.key is not None else {}
    schema["fields"] = fields
    kept = {key: value for key, value in content["understudy"].items() if key in ("dialect", "rules")}
    schema |= {"understudy": kept} if kept else {}
    if above:
        schema["foreignKeys"], asked = _foreign_key(name, tables, above, fields, root)
        questions += asked
    for other in table.references.keys() - {*above}:
        questions.append(
            f"Table {name!r} also refers to {other!r} by {table.references[other]!r}: a row belongs to one table only, "
            f"here {above[0]!r}. Change its foreign key if that is wrong."
        )
    return {"name": name, "path": table.path, "schema": schema}, notes, questions


def _own_key(table: _TextTable, linking: Mapping[str, str]) -> str | None:
    """Return the first column of identifiers without repetition, for a table that no other one refers to."""
    for one in table.draft.content["fields"]:
        cells = table.cells[one["name"]]
        told = one["understudy"].get("kind") in ("id", "drop") and one["name"] not in linking
        if told and not cells.null_count and len(pc.unique(cells)) == len(cells):
            return str(one["name"])
    return None


def _foreign_key(
    name: str, tables: Mapping[str, _TextTable], above: list[str], fields: list[dict[str, Any]], root: str
) -> tuple[list[dict[str, Any]], list[str]]:
    table, parent = tables[name], above[0]
    column, key = table.references[parent], tables[parent].key
    sizes = np.sort(np.asarray(pc.value_counts(table.cells[column].drop_null()).field("counts"), np.int64))
    ours: dict[str, Any] = {"max_children": _cap(sizes)}
    kept = np.minimum(sizes, ours["max_children"]).sum() / sizes.sum()
    questions = [
        f"Table {name!r}: `max_children: {ours['max_children']}` keeps {100 * kept:.1f} % of the rows; choose it from "
        "public knowledge."
    ]
    dates = [one["name"] for one in fields if one.get("type") in ("date", "datetime")]
    if dates and ours["max_children"] > 1:
        ours["order"] = dates[:1]
        questions.append(f"Table {name!r}: {dates[0]!r} orders the rows of one parent. Correct `order` if it does not.")
    elif ours["max_children"] > 1:
        questions.append(
            f"Table {name!r}: if rows of one parent have an order (a year, a rank, an age), name its column as `order`."
        )
    columns, targets = [column], [key]
    if parent != root:
        ours_root, theirs = table.references.get(root), tables[parent].references.get(root)
        if ours_root is not None and theirs is not None:
            columns, targets = [ours_root, column], [theirs, key]
        else:
            ours["unique"] = True
            questions.append(
                f"Table {name!r} has no column with the key of {root!r}: the guarantee assumes that no two units share "
                f"a value of {key!r}. Add such a column to need no assumption."
            )
    return [{"fields": columns, "reference": {"resource": parent, "fields": targets}, "understudy": ours}], questions


def _cap(sizes: NDArray[np.int64]) -> int:
    """Return the smallest number of children that keeps nearly all rows.

    >>> _cap(np.array([1, 1, 2, 2, 60])), _cap(np.array([1] * 98 + [2, 2]))
    (59, 1)
    """
    most = min(int(sizes.max(initial=1)), MOST_CHILDREN)
    return 1 + bisect_left(range(1, most), _KEPT * sizes.sum(), key=lambda cap: np.minimum(sizes, cap).sum())
