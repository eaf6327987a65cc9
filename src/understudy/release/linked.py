"""The release of linked tables: one flat release for each virtual table, and rows of all tables drawn from them.

Rows are drawn from parents to children: the root's rows with their numbers of children, then the first child of each
parent from `first(T)`, then the second, third and so on from `next(T)`, given the ancestors, the first and the previous
sibling. References, unique keys, numbers of children and the order of siblings hold by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understudy.accounting import Receipt
from understudy.arguments import as_path, as_whole, html_table
from understudy.errors import ReleaseError, SettingError
from understudy.model.conditional import ConditionalDraws
from understudy.model.fit import Fit
from understudy.release.answer import Answer, parse_query
from understudy.release.archive import explain_damage, read_archive, write_archive
from understudy.release.release import Release
from understudy.release.rows import check_size, find_members
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.column import Coded, Identifier
from understudy.schema.linked import LinkedSchema, VirtualColumn, VirtualTable, gap_codes

if TYPE_CHECKING:
    from understudy.release.frames import Frame

FORMAT = 2
"""The format of release files of linked tables: older versions of understudy refuse them by name."""

_ROWS_AT_A_TIME = 1 << 16

LIMITS = (
    "sibling tables are related only through their parent",
    "siblings are related to the first and the previous one; others only along that chain",
    "a unit with many rows weighs as much as a unit with one: tables of children are means over units",
)
"""What linked rows do not show, for reports."""


@dataclass(frozen=True, eq=False, repr=False)
class LinkedRelease:
    """A release of linked tables: everything in it may be published.

    Attributes:
        schema: the public facts about the tables.
        parts: by virtual table, a flat release of its measurements and model; all have the same receipt.
        receipt: the account of the privacy spent, for the whole release.
        mechanism: the mechanism that was used for every virtual table.
        settings: its settings.
        default_rows: the default number of rows of the root in `sample`.

    **Privacy.** Made of declared facts and charged measurements only; any use of it is post-processing and free.
    """

    schema: LinkedSchema
    parts: Mapping[str, Release]
    receipt: Receipt
    mechanism: str
    settings: Mapping[str, Any]
    default_rows: int

    @classmethod
    def of(
        cls,
        fits: Mapping[str, Fit],
        schema: LinkedSchema,
        receipt: Receipt,
        *,
        mechanism: str,
        settings: Mapping[str, Any],
        rows: int | None = None,
    ) -> LinkedRelease:
        """Make the release of the fits of all virtual tables."""
        label: dict[str, Any] = {"mechanism": mechanism, "settings": settings}
        virtual = schema.virtual_tables
        parts = {name: Release.of(fit, virtual[name].schema, receipt, **label) for name, fit in fits.items()}
        default = rows or schema.rows or max(1, round(fits[schema.root].model.total))
        return cls(schema, parts, receipt, mechanism, settings, default)

    @property
    def title(self) -> str:
        """The schema's title; without one, the names of the tables."""
        return self.schema.title or f"Stand-in of {', '.join(self.schema.tables)}"

    def __repr__(self) -> str:
        tables = ", ".join(self.schema.tables)
        return f"<LinkedRelease by {self.mechanism}: {tables}; {self.receipt.guarantee()}>"

    def _repr_html_(self) -> str:
        lines = [
            ("Guarantee", self.receipt.guarantee()),
            ("Mechanism", self.mechanism),
            ("Tables", ", ".join(self.schema.tables)),
            (f"Rows of {self.schema.root} by default", f"{self.default_rows:,}"),
        ]
        return html_table(self.title, (), lines, notes=self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for users of the rows: the limits of linked rows, and assumptions about keys."""
        return tuple(f"{text[0].upper()}{text[1:]}." for text in (*LIMITS, *self.schema.assumptions))

    def sample(
        self, rows: int | None = None, *, seed: int | None = None, as_: Frame = "arrow", as_written: bool = False
    ) -> dict[str, Any]:
        """Make synthetic rows of all tables.

        Args:
            rows: the number of rows of the root; by default the declared number, else the noisy one.
            seed: the same release and seed give the same rows.
            as_: the library of the frames: "arrow", "pandas" or "polars".
            as_written: return text for columns whose file format holds more than a typed column can.

        **Guarantees.** Every reference names an existing row, keys are unique, no parent has more children than its
        cap, and siblings are in their declared order. **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: if rows or seed is negative, or so many rows do not fit in memory.
        """
        from understudy.release.frames import check_kind, convert_rows

        check_kind(as_)
        count = self.default_rows if rows is None else as_whole("rows", rows)
        rng = np.random.default_rng(None if seed is None else as_whole("seed", seed))
        check_size(count, sum(len(one.columns) for one in self.schema.tables.values()))
        drawn = _Drawing(self, count, rng).draw()
        made = _write_keys(self.schema, drawn, rng, as_written=as_written)
        return {name: convert_rows(table, as_) for name, table in made.items()}

    def answer(self, query: str | Mapping[str, Any], *, confidence: float = 0.95, share: bool = False) -> Answer:
        """Estimate how many rows of the root satisfy conditions, with an interval for the true number.

        Args:
            query: conditions on the root's columns and numbers of children: `"patients.sex=F, #visits=3.."`, or a
                mapping; see `Release.answer`.
            confidence: the probability with which the interval holds.
            share: answer with shares of all rows instead of counts.

        **Guarantees.** As `Release.answer`. **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: for a query that does not fit, or that names columns of other tables: no bound is known for
                these; count the rows of `sample` instead.
        """
        root = self.parts[self.schema.root]
        asked = parse_query(query) if isinstance(query, str) else dict(query)
        if other := [column for column in asked if column not in root.schema.domain]:
            known = ", ".join(root.schema.domain)
            raise SettingError(
                f"{other[0]!r}: answers are about rows of {self.schema.root}, with conditions on {known}; no bound is "
                "known for other tables: count the rows of `sample`"
            )
        return root.answer(asked, confidence=confidence, share=share)

    def summary(self) -> dict[str, Any]:
        """Summarize the release as plain data, for scripts; public facts only."""
        receipt = self.receipt
        return {
            "mechanism": self.mechanism,
            "guarantee": receipt.guarantee(),
            "epsilon": receipt.epsilon,
            "delta": receipt.delta,
            "rho": receipt.rho,
            "insecure": receipt.insecure,
            "rehearsal": receipt.rehearsal,
            "default_rows": self.default_rows,
            "tables": {name: list(one.domain) for name, one in self.schema.tables.items()},
            "measurements": sum(len(part.measurements) for part in self.parts.values()),
            "charges": len(receipt.charges),
            "notes": list(self.notes),
        }

    # -- files -------------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the release to one file, completely or not at all.

        Raises:
            OutputError: if the file already exists, or cannot be written.
        """
        arrays: dict[str, NDArray[Any]] = {}
        parts = {}
        for number, (name, part) in enumerate(self.parts.items()):
            manifest = part.to_manifest(arrays, f"part{number}/")
            parts[name] = {key: value for key, value in manifest.items() if key not in ("schema", "receipt")}
        page = {
            "schema": self.schema.to_dict(),
            "mechanism": self.mechanism,
            "settings": dict(self.settings),
            "receipt": self.receipt.to_dict(),
            "default_rows": self.default_rows,
            "parts": parts,
        }
        write_archive(as_path("path", path), page, arrays, overwrite=overwrite, number=FORMAT)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> LinkedRelease:
        """Read a release of linked tables; nothing in it is run.

        Raises:
            ReleaseError: if it is missing, damaged, altered, of a newer format, or a release of a single table.
        """
        manifest, arrays = read_archive(as_path("path", path))
        if "parts" not in manifest:
            raise ReleaseError(f"{path} is the release of a single table; open it with `Release.load`")
        with explain_damage(path):
            return cls._from_manifest(manifest, arrays)

    @classmethod
    def _from_manifest(cls, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> LinkedRelease:
        schema = LinkedSchema.from_dict(manifest["schema"])
        virtual = schema.virtual_tables
        if set(manifest["parts"]) != set(virtual):
            raise ReleaseError("its parts are not those of its tables; ask for a fresh copy")
        common = {key: manifest[key] for key in ("format", "members", "receipt")}
        parts = {
            name: Release.from_manifest(
                {**common, "schema": virtual[name].schema.to_dict(), **manifest["parts"][name]}, arrays
            )
            for name in virtual
        }
        root = parts[schema.root]
        default = manifest["default_rows"]
        if isinstance(default, bool) or not isinstance(default, int) or default < 0:
            raise ValueError("a number of rows that is none")
        return cls(schema, parts, root.receipt, str(manifest["mechanism"]), root.settings, default)


# -- Drawing rows as codes ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class DrawnRows:
    """The synthetic rows of a table as codes; siblings are together and in order.

    Attributes:
        codes: one array by coded column, and `#child` for each child table.
        parents: the place of each row's parent in the parent table.
        numbers: the place of each row among its siblings, from 0.
    """

    codes: dict[str, NDArray[Any]]
    parents: NDArray[np.int64]
    numbers: NDArray[np.int64]


class _Drawing:
    """Draws the rows of all tables, as codes of their schemas."""

    def __init__(self, release: LinkedRelease, rows: int, rng: np.random.Generator) -> None:
        self._release, self._schema, self._rng, self._count = release, release.schema, rng, rows
        self._tables: dict[str, DrawnRows] = {}

    def draw(self) -> dict[str, DrawnRows]:
        root = self._schema.root
        drawn = self._unmerge(root, self._release.parts[root].model.sample(self._count, self._rng))
        codes = {column.part: drawn[column.name] for column in self._schema.virtual_tables[root].columns}
        self._tables[root] = DrawnRows(codes, np.arange(self._count), np.zeros(self._count, np.int64))
        for name in self._schema.links:
            self._draw_children(name)
        return self._tables

    def _draw_children(self, name: str) -> None:
        link = self._schema.links[name]
        sizes = self._tables[link.parent].codes[f"#{name}"].astype(np.int64)
        check_size(int(sizes.sum()), len(self._schema.tables[name].columns))
        starts = np.cumsum(sizes) - sizes
        parents = np.repeat(np.arange(len(sizes)), sizes)
        numbers = np.arange(int(sizes.sum())) - np.repeat(starts, sizes)
        kinds = self._schema.own_parts(name)
        codes = {part: np.zeros(len(parents), np.min_scalar_type(size - 1)) for part, size in kinds.items()}
        self._tables[name] = DrawnRows(codes, parents, numbers)
        for number in range(link.max_children):
            rows = starts[sizes > number] + number
            if len(rows):
                self._draw_siblings(name, rows, due=sizes[sizes > number] - number - 1, first=number == 0)

    def _draw_siblings(self, name: str, rows: NDArray[np.int64], *, due: NDArray[np.int64], first: bool) -> None:
        """Draw the children with the same number of all parents that have so many."""
        virtual = self._schema.virtual_tables[f"{'first' if first else 'next'}({name})"]
        part, draws = self._release.parts[virtual.name], self._draws(virtual)
        known = {
            column.name: part.recoding.apply(column.name, self._known(column, virtual, rows))
            for column in virtual.columns
            if column.role != "own"
        }
        if not known:
            known[""] = np.zeros(len(rows), np.int64)
        rank, link = self._schema.order_rank(name), self._schema.links[name]
        own = {column.name: column for column in virtual.columns if column.role == "own"}
        members = find_members(part.recoding, part.schema, part.measurements, part.settings.get("rare"))
        for column, given, table in draws.steps:
            target = own[column]
            before = None if first else self._tables[name].codes[target.part][rows - 1].astype(np.int64)
            if rank is not None and target.part == link.order[0] and not target.gap:
                spread = self._spread(table, column, part, members)
                low, high = self._room(name, rank, before, due)
                drawn = _draw_within(draws.groups(given, known), spread, rank, low, high, self._rng)
                known[column] = part.recoding.apply(column, drawn.astype(np.uint32))
            else:
                merged: NDArray[Any] = draws.draw(column, given, table, known, self._rng)
                known[column] = merged
                drawn = members[column].draw(merged, self._rng) if column in members else merged.astype(np.int64)
                if target.gap:
                    drawn = self._close_gap(name, target, drawn.astype(np.int64), before, due)
            self._tables[name].codes[target.part][rows] = drawn

    def _draws(self, virtual: VirtualTable) -> ConditionalDraws:
        cache: dict[str, ConditionalDraws] = self.__dict__.setdefault("_conditional", {})
        if virtual.name not in cache:
            cache[virtual.name] = ConditionalDraws(self._release.parts[virtual.name].model, virtual.named("own"))
        return cache[virtual.name]

    def _known(self, column: VirtualColumn, virtual: VirtualTable, rows: NDArray[np.int64]) -> NDArray[Any]:
        place, current = rows, virtual.table
        if column.role == "first":
            place = rows - self._tables[current].numbers[rows]
        elif column.role == "prev":
            place = rows - 1
        while current != column.table:
            place = self._tables[current].parents[place]
            current = self._schema.links[current].parent
        if column.part == "#" and column.groups is not None:
            return column.groups[np.minimum(self._tables[current].numbers[place], len(column.groups) - 1)]
        codes = self._tables[current].codes[column.part][place]
        return codes if column.groups is None else column.groups[codes]

    def _unmerge(self, name: str, merged: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        part = self._release.parts[name]
        members = find_members(part.recoding, part.schema, part.measurements, part.settings.get("rare"))
        return {
            column: members[column].draw(codes, self._rng) if column in members else codes
            for column, codes in merged.items()
        }

    def _spread(
        self, table: NDArray[np.float64], column: str, part: Release, members: Mapping[str, Any]
    ) -> NDArray[np.float64]:
        """Spread the weights of merged codes over the declared ones."""
        if column not in members:
            return table
        found = members[column]
        chances = np.zeros(found.size)
        np.add.at(chances, found.codes, found.chances)
        merged = part.recoding.maps[column] if column in part.recoding.columns else np.arange(found.size)
        return np.asarray(table[:, merged] * chances)

    def _room(
        self, name: str, rank: NDArray[np.int64], before: NDArray[np.int64] | None, due: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the lowest and highest place in the order that each row may take.

        With a strict order, every child still due needs a place of its own; missing values are used only if the values
        of the axis do not suffice.
        """
        link = self._schema.links[name]
        last = len(rank) - 1
        low = np.zeros(len(due), np.int64) if before is None else rank[before] + (1 if link.strict else 0)
        if not link.strict:
            return low, np.full(len(due), last)
        column = self._schema.tables[name].column(link.order[0])
        ordinary = column.ordinary if isinstance(column, AxisColumn) else last + 1
        most = np.where(low + due < ordinary, ordinary - 1, last)
        return low, most - due

    def _close_gap(
        self,
        name: str,
        column: VirtualColumn,
        gaps: NDArray[np.int64],
        before: NDArray[np.int64] | None,
        due: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return codes at these distances from the codes before, cut at the maximum."""
        assert before is not None  # noqa: S101 - only further siblings have gaps
        link, size = self._schema.links[name], self._schema.own_parts(name)[column.part]
        declared = self._schema.tables[name].column(column.part)
        assert isinstance(declared, AxisColumn)  # noqa: S101 - only these have gaps
        edges, ordinary = gap_codes(size), declared.ordinary
        missing = gaps == len(edges) - 1
        gaps = np.minimum(gaps, len(edges) - 2)
        length = edges[gaps] + (self._rng.random(len(gaps)) * (edges[gaps + 1] - edges[gaps])).astype(np.int64)
        codes = np.minimum(before + np.maximum(length, int(link.strict)), ordinary - 1)
        if link.strict:
            low, high = self._room(name, np.arange(size), before, due)
            return np.clip(codes, low, np.maximum(high, low))
        codes = np.where(missing & (size > ordinary), ordinary, codes)
        return np.where(before >= ordinary, before, codes)


def _draw_within(
    groups: NDArray[np.int64],
    table: NDArray[np.float64],
    rank: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw a code for each row by the weights of its group, among codes whose rank lies between two ends."""
    by_rank = np.argsort(rank)
    ends = np.cumsum(table[:, by_rank], axis=1)
    ends = np.concatenate([np.zeros((len(ends), 1)), ends / np.maximum(ends[:, -1:], 1e-300)], axis=1)
    out = np.empty(len(groups), np.int64)
    for start in range(0, len(groups), _ROWS_AT_A_TIME):
        rows = slice(start, start + _ROWS_AT_A_TIME)
        lines, a, b = ends[groups[rows]], low[rows], high[rows]
        each = np.arange(len(lines))
        below, above = lines[each, a], lines[each, b + 1]
        point = below + rng.random(len(lines)) * (above - below)
        place = (lines[:, 1:] <= point[:, None]).sum(axis=1)
        even = a + (rng.random(len(lines)) * (b - a + 1)).astype(np.int64)
        place = np.where(above - below > 1e-9, np.clip(place, a, b), even)
        out[rows] = by_rank[place]
    return out


# -- From codes to tables with keys ---------------------------------------------------------------------------------


def _write_keys(
    schema: LinkedSchema, drawn: Mapping[str, DrawnRows], rng: np.random.Generator, *, as_written: bool
) -> dict[str, Any]:
    """Decode the rows of each table, sort siblings, and write fresh keys; children copy the keys of their parents."""
    made: dict[str, Any] = {}
    owners: dict[str, NDArray[np.int64]] = {}
    moved: dict[str, NDArray[np.int64]] = {}
    for name, one in schema.tables.items():
        rows, link = drawn[name], schema.links.get(name)
        text = one.text_columns() if as_written else ()
        table = one.decode({part: rows.codes[part] for part in one.domain}, rng, as_="arrow", text=text)
        count = table.num_rows
        if link is None:
            owners[name] = moved[name] = np.arange(count)
        else:
            parents = moved[link.parent][rows.parents]
            table = _sort_within_siblings(one, link, table, rows)
            place = np.lexsort((rows.numbers, *reversed(_sort_values(one, link, table)), parents))
            table, parents = table.take(pa.array(place)), parents[place]
            moved[name] = np.empty(count, np.int64)
            moved[name][place] = np.arange(count)
            owners[name] = owners[link.parent][parents]
            root = made[schema.root][schema.keys[schema.root]]
            if link.unit_column is not None:
                table = _set(table, link.unit_column, root.take(pa.array(owners[name])))
            if link.parent_column != link.unit_column:
                above = made[link.parent][schema.keys[link.parent]]
                table = _set(table, link.parent_column, above.take(pa.array(parents)))
        if (key := schema.keys[name]) is not None and (
            link is None or key not in (link.unit_column, link.parent_column)
        ):
            column = one.column(key)
            assert isinstance(column, Identifier)  # noqa: S101 - checked with the schema
            table = _set(table, key, column.make(count))
        made[name] = table
    return made


def _sort_within_siblings(schema: Schema, link: Any, table: Any, rows: DrawnRows) -> Any:
    """Give the values of the first order column to siblings in their order.

    Codes are in order already, so that a value only moves between siblings with the same code: which of them comes
    first was drawn, and sorting whole rows by values that are drawn within a bin would undo it.
    """
    if not link.order:
        return table
    values = _sort_values(schema, replace(link, order=link.order[:1], descending=link.descending[:1]), table)
    by_value = np.lexsort((*reversed(values), rows.parents))
    by_number = np.lexsort((rows.numbers, rows.parents))
    place = np.empty(len(by_value), np.int64)
    place[by_number] = by_value
    return _set(table, link.order[0], table[link.order[0]].take(pa.array(place)))


def _sort_values(schema: Schema, link: Any, table: Any) -> list[NDArray[Any]]:
    """Return what siblings are sorted by, most important first; values that the axis does not have come last."""
    found: list[NDArray[Any]] = []
    for name, down in zip(link.order, link.descending, strict=True):
        column, cells = schema.column(name), table[name].combine_chunks()
        assert isinstance(column, Coded)  # noqa: S101 - checked with the schema
        codes = np.asarray(column.encode(cells, schema.dialect)[name], np.int64)
        if isinstance(column, AxisColumn):
            ordinary = codes < column.ordinary
            units = np.where(ordinary, np.asarray(column.units(cells, schema.dialect)[0]), 0)
            found += [np.where(ordinary, -1, codes), -units if down else units]
        else:
            found.append(-codes if down else codes)
    return found


def _set(table: Any, name: str, values: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, values)
