"""The release of linked tables: one flat release for each virtual table, and rows of all tables drawn from them.

Rows are drawn from parents to children: the root's rows with their numbers of children, then the first child of each
parent from `first(T)`, then the second, third and so on from `next(T)`, given the ancestors, the first and the previous
sibling. References, unique keys, numbers of children and the order of siblings hold by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understudy.accounting import Receipt
from understudy.arguments import as_path, as_whole, html_table
from understudy.errors import ReleaseError, SettingError
from understudy.model.fit import Fit
from understudy.release.answer import Answer, parse_query, read_conditions
from understudy.release.archive import explain_damage, read_archive, write_archive
from understudy.release.linked_rows import Drawing, DrawnRows, DrawSteps, calibrate
from understudy.release.release import Release, summarize_account
from understudy.release.rows import RowMaker, check_size, redraw_values
from understudy.schema import Schema
from understudy.schema.column import Identifier
from understudy.schema.linked import Link, LinkedSchema, order_values

if TYPE_CHECKING:
    from understudy.release.bounds import Bound
    from understudy.release.frames import Frame
    from understudy.release.inference import Inference

FORMAT = 2
"""The format of release files of linked tables: older versions of understudy refuse them by name."""

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
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        where: str | Mapping[str, Any] | None = None,
        as_: Frame = "arrow",
        as_written: bool = False,
    ) -> dict[str, Any]:
        """Make synthetic rows of all tables.

        Args:
            rows: the number of rows of the root; by default the declared number, else the noisy one, or the part of it
                that is expected to satisfy `where`.
            seed: the same release and seed give the same rows.
            where: conditions that every row of the root satisfies, on its columns and numbers of children, such as
                `"patients.sex=F, #visits=1.."`.
            as_: the library of the frames: "arrow", "pandas" or "polars".
            as_written: return text for columns whose file format holds more than a typed column can.

        **Guarantees.** Every reference names an existing row, keys are unique, no parent has more children than its
        cap, siblings are in their declared order, and no row breaks a rule of its table. **Privacy.** Post-processing:
        costs nothing.

        Raises:
            SettingError: if rows or seed is negative, if so many rows do not fit in memory, or for conditions that do
                not fit or that no row can satisfy.
        """
        from understudy.release.frames import check_kind, convert_rows

        check_kind(as_)
        root = self.schema.tables[self.schema.root]
        text = [f"{self.schema.root}.{name}" for name in root.text_columns()] if as_written else []
        maker = RowMaker(self.parts[self.schema.root], where=self._root_conditions(where), text=text)
        count = maker.expected_rows(self.default_rows) if rows is None else as_whole("rows", rows)
        rng = np.random.default_rng(None if seed is None else as_whole("seed", seed))
        check_size(count, sum(len(one.columns) for one in self.schema.tables.values()))
        drawn = Drawing(self.schema, self.parts, self._steps, count, rng, maker).draw()
        made = _write_keys(self.schema, drawn, rng, as_written=as_written)
        return {name: convert_rows(table, as_) for name, table in made.items()}

    def _root_conditions(self, where: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
        asked = parse_query(where) if isinstance(where, str) else dict(where or {})
        known = list(self.parts[self.schema.root].schema.domain)
        if wrong := [column for column in asked if column not in known]:
            raise SettingError(
                f"where: {wrong[0]!r} is no column of {self.schema.root!r}, and conditions can only be on those: "
                f"{', '.join(known)}"
            )
        return asked

    def draw(self, rows: int, *, seed: int = 0) -> dict[str, DrawnRows]:
        """Draw the rows of all tables as codes.

        **Privacy.** Post-processing: costs nothing.
        """
        return Drawing(self.schema, self.parts, self._steps, rows, np.random.default_rng(seed)).draw()

    @cached_property
    def _steps(self) -> DrawSteps:
        return calibrate(self.schema, self.parts)

    def answer(
        self,
        query: str | Mapping[str, Any],
        *,
        confidence: float = 0.95,
        share: bool = False,
        per: str | None = None,
    ) -> Answer:
        """Estimate how many rows satisfy conditions.

        With conditions on the root's columns and numbers of children, rows of the root are counted, with an interval
        for the true number. With conditions on columns of other tables, rows of the lowest of these tables are counted
        in synthetic rows, and no bound is known.

        Args:
            query: conditions: `"patients.sex=F, #visits=3.."`, `"visits.ward=A, patients.sex=F"`, or a mapping; see
                `Release.answer`.
            confidence: the probability with which the interval holds.
            share: answer with shares of all rows of the counted table instead of counts.
            per: count rows of this table that have at least one such row below them, instead of these rows.

        **Guarantees.** As `Release.answer`. **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: for a query that does not fit, or that names tables of which none is below the others.
        """
        root = self.parts[self.schema.root]
        asked = parse_query(query) if isinstance(query, str) else dict(query)
        if per in (None, self.schema.root) and all(column in root.schema.domain for column in asked):
            found = root.answer(asked, confidence=confidence, share=share)
            return replace(found, left_out=self.schema.schema_of(self.schema.root).left_out)
        table = self._lowest_table(asked)
        if per is not None and per not in (*self.schema.ancestors(table), table):
            raise SettingError(f"per: {per!r} is not above {table!r}; choose one of {', '.join(self.schema.tables)}")
        value = self._count_drawn(table, asked, per, share=share)
        source = f"the rows of {table} in the stand-in"
        return Answer(value, 0.0, None, None, source, confidence)

    def _lowest_table(self, asked: Mapping[str, Any]) -> str:
        """Return the highest table whose rows, with those of their ancestors, have all the columns of a query."""
        for name in self.schema.links:
            if all(column in self.schema.virtual_tables[f"first({name})"].schema.domain for column in asked):
                return name
        known = dict.fromkeys(column for part in self.parts.values() for column in part.schema.domain)
        plain = [
            column for column in known if not column.startswith(("first.", "prev.", "gap.")) and ".#" not in column
        ]
        if wrong := [column for column in asked if column not in plain]:
            raise SettingError(f"query: there is no column {wrong[0]!r}; the columns are {', '.join(plain)}")
        raise SettingError(
            "query: the conditions name tables of which none is below the others; ask about each of them alone"
        )

    def _count_drawn(self, table: str, asked: Mapping[str, Any], per: str | None, *, share: bool) -> float:
        virtual = self.schema.virtual_tables[f"first({table})"]
        columns = {column.name: column for column in virtual.columns}
        drawn = self.draw(self.default_rows)
        inside = np.ones(len(drawn[table].parents))
        for condition in read_conditions(virtual.schema, asked):
            column = columns[condition.column]
            place, current = np.arange(len(inside)), table
            while current != column.table:
                place, current = drawn[current].parents[place], self.schema.links[current].parent
            if column.part == "#" and column.groups is not None:
                codes = column.groups[np.minimum(drawn[current].numbers[place], len(column.groups) - 1)]
            else:
                codes = drawn[current].codes[column.part][place]
            inside *= condition.part[codes]
        while per is not None and table != per:
            above = self.schema.links[table].parent
            none = np.ones(len(drawn[above].parents))
            np.multiply.at(none, drawn[table].parents, 1 - inside)
            inside, table = 1 - none, above
        return float(inside.sum() / max(len(inside), 1) if share else inside.sum())

    def bounds(
        self, workload: str | None = None, *, confidence: float = 0.95, simultaneous: bool = False
    ) -> list[Bound]:
        """Bound the errors of the marginals of the root's columns and numbers of children, as `Release.bounds`.

        Other tables have no bounds: their models are of weighted rows, and their rows are drawn from several models.
        """
        return self.parts[self.schema.root].bounds(workload, confidence=confidence, simultaneous=simultaneous)

    def infer(self, statistic: str, **options: Any) -> Inference:
        """Estimate a statistic of the root's columns and numbers of children, as `Release.infer`.

        No interval is known for columns of other tables: their rows weigh by their unit, and are drawn from several
        models.

        Raises:
            SettingError: also for columns of other tables.
        """
        try:
            return self.parts[self.schema.root].infer(statistic, **options)
        except SettingError as error:
            if any(f"{name}." in statistic for name in self.schema.links):
                known = f"intervals are known for columns of {self.schema.root!r} and numbers of children only"
                raise SettingError(f"{error}; {known}: compute other statistics from synthetic rows") from None
            raise

    def summary(self) -> dict[str, Any]:
        """Summarize the release as plain data, for scripts; public facts only."""
        return {
            **summarize_account(self.mechanism, self.receipt, self.default_rows),
            "tables": {name: list(one.domain) for name, one in self.schema.tables.items()},
            "measurements": sum(len(part.measurements) for part in self.parts.values()),
            "charges": len(self.receipt.charges),
            "notes": list(self.notes),
        }

    # -- files -------------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the release to one file, atomically.

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
        """Read a release of linked tables; no code in it is executed.

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
        table = _decode_rows(one, link, rows, rng, text=one.text_columns() if as_written else ())
        count = table.num_rows
        if link is None:
            owners[name] = moved[name] = np.arange(count)
        else:
            parents = moved[link.parent][rows.parents]
            place = np.lexsort((rows.numbers, *reversed(_sort_values(one, link, table)), parents))
            table, parents = table.take(pa.array(place)), parents[place]
            moved[name] = np.empty(count, np.int64)
            moved[name][place] = np.arange(count)
            owners[name] = owners[link.parent][parents]
            root = made[schema.root][schema.keys[schema.root]]
            if link.unit_column is not None:
                table = _set_column(table, link.unit_column, root.take(pa.array(owners[name])))
            if link.parent_column != link.unit_column:
                above = made[link.parent][schema.keys[link.parent]]
                table = _set_column(table, link.parent_column, above.take(pa.array(parents)))
        if (key := schema.keys[name]) is not None and (
            link is None or key not in (link.unit_column, link.parent_column)
        ):
            column = one.column(key)
            assert isinstance(column, Identifier)  # noqa: S101 - checked with the schema
            table = _set_column(table, key, column.make(count))
        made[name] = table
    return made


def _decode_rows(schema: Schema, link: Link | None, rows: DrawnRows, rng: np.random.Generator, *, text: Any) -> Any:
    """Return the rows of a table; none of them breaks a rule, and siblings stay in order."""
    codes = {part: rows.codes[part] for part in schema.domain}
    table = schema.decode(codes, rng, as_="arrow", text=text)
    if rows.values is not None:  # the root's
        for name in rows.values.column_names:
            table = _set_column(table, name, rows.values[name])
    if link is None:
        return table
    if not any(link.order and link.order[0] in rule.columns for rule in schema.rules):
        table = _sort_within_siblings(schema, link, table, rows)
    if not schema.rules:
        return schema.fill_differences(table)
    table, bad = redraw_values(schema, codes, table, rng, text=text)
    if len(bad):  # rare: other rows with the same place in the order of siblings are shown instead
        groups = rows.codes[link.order[0]] if link.order else np.zeros(table.num_rows, np.uint8)
        good, place = np.setdiff1d(np.arange(table.num_rows), bad), np.arange(table.num_rows)
        for row in bad:
            donors = good[groups[good] == groups[row]]
            if not len(donors):
                raise SettingError(
                    f"almost no row of table {schema.title or link.parent!r} satisfies its rules; correct them, or use "
                    "finer bins for the columns that they name"
                )
            place[row] = donors[int(rng.integers(len(donors)))]
        table = table.take(pa.array(place))
    return schema.fill_differences(table)


def _sort_within_siblings(schema: Schema, link: Link, table: Any, rows: DrawnRows) -> Any:
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
    return _set_column(table, link.order[0], table[link.order[0]].take(pa.array(place)))


def _sort_values(schema: Schema, link: Link, table: Any) -> list[NDArray[Any]]:
    """Return what siblings are sorted by, most important first."""
    columns = zip(link.order, link.descending, strict=True)
    return [value for name, down in columns for value in order_values(schema, name, table[name], down=down)]


def _set_column(table: Any, name: str, values: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, values)
