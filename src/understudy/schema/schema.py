"""The schema: what is public about a table, how rows become codes, and how codes become rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understudy.arguments import as_mapping, as_path, html_table
from understudy.domain import CodeGroups, Domain
from understudy.errors import OutputError, SchemaError, SettingError
from understudy.files import write_text
from understudy.schema.axis import AxisColumn
from understudy.schema.column import DROP, Coded, Column, Constant, Difference, Dropped, Identifier
from understudy.schema.file import (
    DRAFT_MARK,
    OURS,
    FieldError,
    error_path,
    find_line,
    format_field,
    parse_content,
    parse_dialect,
    parse_field,
    parse_rules,
    read_schema_text,
    table_keys,
)
from understudy.schema.frames import FrameKind, columns_by_meaning, to_frame
from understudy.schema.numeric import Numeric
from understudy.schema.open import Open, Words
from understudy.schema.rules import Order, Rule, check_rules, forbidden_cells
from understudy.schema.text import Dialect
from understudy.yaml_json import dump_text


@dataclass(frozen=True)
class PrivacyUnit:
    """Who is protected: a single row, or all rows with the same value of a column, limited to `max_rows` rows.

    Attributes:
        column: the column that names the unit; None means that one row is one unit.
        max_rows: how many rows of a unit are used.
    """

    column: str | None = None
    max_rows: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.max_rows, bool) or not isinstance(self.max_rows, int) or self.max_rows < 1:
            raise SchemaError("privacy_unit: `max_rows` must be a whole number of at least 1; correct it")
        if self.column is None and self.max_rows != 1:
            raise SchemaError("privacy_unit: `max_rows` goes with a `column`; name the column, or write `row`")


@dataclass(frozen=True, eq=False)
class Encoded:
    """A table as codes.

    **Privacy.** As private as the rows.

    Attributes:
        codes: one unsigned array by coded column, in the order of the domain.
        keep: which rows are used; False if a cell's column says ``on_unknown: drop_row``.
    """

    codes: dict[str, NDArray[Any]]
    keep: NDArray[np.bool_]


@dataclass(frozen=True)
class Schema:
    """Public facts about a table.

    They are never guessed from the rows without a person: they are declared, drafted and then reviewed, or discovered
    with budget.

    Attributes:
        columns: the table's columns, in order.
        privacy_unit: who is protected.
        rows: the number of rows, where it is declared public; neighbouring tables then replace one unit.
        dialect: how text files of the table are written.
        rules: what is known about combinations of columns.
        title: what the table is called.
        keys: columns that are read but never synthesised: the keys that link it to other tables.
    """

    columns: tuple[Column, ...]
    privacy_unit: PrivacyUnit = PrivacyUnit()
    rows: int | None = None
    dialect: Dialect = field(default_factory=Dialect)
    rules: tuple[Rule, ...] = ()
    title: str | None = None
    keys: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        lines = [
            (column.name, column.kind, column.size if isinstance(column, Coded) else "", column.title or "")
            for column in self.columns
        ]
        rows = "" if self.rows is None else f", {self.rows:,} rows"
        title = f"{self.title or 'Schema'}: {len(lines)} columns{rows}"
        return html_table(title, ("column", "kind", "codes", "title"), lines)

    def __post_init__(self) -> None:
        _check_kinds(self)
        _check_columns(self)
        _check_open(self)
        _check_differences(self)
        check_rules(self)

    # -- what is synthesised -------------------------------------------------------------------------------------

    @cached_property
    def coded(self) -> tuple[Coded, ...]:
        """The columns that a mechanism synthesises."""
        unit = self.privacy_unit.column
        return tuple(c for c in self.columns if isinstance(c, Coded) and c.name != unit)

    @cached_property
    def open(self) -> tuple[Open, ...]:
        """The columns that still have to be discovered; while there are any, the schema has no domain."""
        return tuple(column for column in self.columns if isinstance(column, Open))

    @cached_property
    def words(self) -> tuple[Words, ...]:
        """The columns whose cells a source counts as text; only used while values are discovered."""
        return tuple(column for column in self.columns if isinstance(column, Words))

    @cached_property
    def domain(self) -> Domain:
        """The coded columns with their sizes, and the cells that rules forbid.

        A heaped amount has a second coded column, ``name.round``.
        """
        if self.open:
            raise SchemaError(
                f"column {self.open[0].name!r}: `{self.open[0].discovers[0]}: discover` is left to `synthesize`, "
                "which spends a share of its budget on it; declare it to use the schema for anything else"
            )
        sizes = Domain({part: size for column in self.coded for part, size in column.parts.items()})
        return sizes.add_rules(forbidden_cells(self, sizes))

    @cached_property
    def code_groups(self) -> CodeGroups:
        """Which codes of the columns belong together when rare ones are merged."""
        levels = {c.name: [level.groups for level in c.generalisations.values()] for c in self.coded if c.levels}
        tied = {name for rule in self.rules if isinstance(rule, Order) for name in rule.columns}
        numbers = [c for c in self.coded if isinstance(c, AxisColumn) and not c.levels]
        # a number that is not clipped to its bounds may be a code, as in `from_domain`
        axes = {c.name: c.ordinary for c in numbers if c.name in tied or c.outside != "unknown"}
        return CodeGroups(levels, axes, tied)

    @property
    def rows_used(self) -> int | None:
        """The declared number of rows, if every row is used.

        None if the rows of a unit are limited or a column says ``on_unknown: drop_row``: the number of rows left is
        private.
        """
        return self.rows if self.left_out is None else None

    @property
    def left_out(self) -> str | None:
        """A description of the rows that are not used, to which counts and bounds do not apply.

        None if every row is used.

        >>> Schema.from_domain({"a": 2, "b": 2}).left_out
        'rows with an unknown cell'
        """
        unit = self.privacy_unit
        some = [] if unit.column is None else [f"rows beyond {unit.max_rows} of one {unit.column!r}"]
        dropping = [repr(column.name) for column in self.coded if column.on_unknown == "drop_row"]
        where = "" if len(dropping) == len(self.coded) else f" in {', '.join(dropping)}"
        some += [f"rows with an unknown cell{where}"] if dropping else []
        return " and ".join(some) or None

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The columns that are read from the table: the synthesised ones, the privacy unit and keys."""
        unit = self.privacy_unit.column
        read = {column.name for column in (*self.coded, *self.open, *self.words)} | {unit, *self.keys}
        names = tuple(column.name for column in self.columns if column.name in read)
        return names if unit is None or unit in names else (*names, unit)

    def column(self, name: str) -> Column:
        """Return the column of this name.

        Raises:
            SchemaError: naming the columns there are.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"unknown column {name!r}; the columns are {', '.join(c.name for c in self.columns)}")

    def require_reviewed(self) -> None:
        """Raise an error while any column is still a draft.

        Raises:
            SchemaError: naming the columns to review.
        """
        drafts = [column.name for column in self.columns if column.status == "draft"]
        if drafts:
            raise SchemaError(
                f"still drafts: {', '.join(drafts)}; look at each with `understudy schema review`, or change "
                "`status: draft` to `reviewed` in an editor"
            )

    # -- encode and decode ---------------------------------------------------------------------------------------

    def encode(self, frame: Any) -> Encoded:
        """Encode a table. The encoding is total: no cell of any row can make it fail.

        **Privacy.** Each row is coded on its own, so the codes of a unit depend on that unit's rows alone. Raises for
        structure only.

        Args:
            frame: a pandas or polars frame or a pyarrow table; columns may be typed or text.

        Raises:
            SchemaError: if a column is missing, a name occurs twice, or the frame has no columns.
        """
        cells, rows = columns_by_meaning(frame, [column.name for column in self.coded], self.dialect)
        keep = np.ones(rows, dtype=np.bool_)
        codes: dict[str, NDArray[Any]] = {}
        for column in self.coded:
            coded = column.encode(cells.pop(column.name), self.dialect)
            if column.unknown_code == DROP:
                keep &= coded[column.name] != DROP
            codes |= column.compact_codes(coded)
        return Encoded(codes, keep)

    def decode(
        self,
        codes: Mapping[str, NDArray[Any]],
        rng: np.random.Generator,
        *,
        as_: FrameKind = "arrow",
        text: bool | Collection[str] = False,
    ) -> Any:
        """Decode codes into rows: draw values inside bins, add identifiers and constants, in the declared column order.

        Args:
            codes: one array by coded column, all of one length.
            rng: for draws inside bins; the same state gives the same rows.
            as_: the frame type to return.
            text: return text as the table's file writes it (decimal marks, date formats, and each reason for missing
                as its own token, which a typed column may not be able to hold), in all columns or in those named.
                Elsewhere integers are int64, numbers are float64, and declared values have their declared type.

        Raises:
            SchemaError: if a coded column is missing or holds a code outside its domain.
        """
        rows = _check_codes(codes, self.domain)
        if not isinstance(rng, np.random.Generator):
            raise SettingError("rng: give a generator, such as numpy.random.default_rng(1)")
        written = {column.name for column in self.columns} if text is True else set(text or ())
        made: dict[str, Any] = {}
        for column in self.columns:
            as_text = column.name in written
            if isinstance(column, Coded) and column.name != self.privacy_unit.column:
                parts = {part: np.asarray(codes[part]) for part in column.parts}
                values = column.decode_text(parts, rng, self.dialect) if as_text else column.decode(parts, rng)
            elif isinstance(column, Identifier | Constant):
                values = column.make(rows).cast(pa.string()) if as_text else column.make(rows)
            elif isinstance(column, Difference):
                values = pa.nulls(rows, pa.string() if as_text else pa.int64())
            else:
                continue
            made[column.name] = values
        return to_frame(self.fill_differences(pa.table(made)), as_)

    def fill_differences(self, table: pa.Table) -> pa.Table:
        """Compute the columns that are differences of dates from decoded rows; null where a date is missing."""
        for place, column in enumerate(map(self.column, table.column_names)):
            if isinstance(column, Difference):
                days, there = np.zeros(table.num_rows, np.int64), np.ones(table.num_rows, np.bool_)
                for name, sign in zip(column.of, (1, -1), strict=True):
                    dates, cells = self.column(name), table[name].combine_chunks()
                    assert isinstance(dates, AxisColumn)  # noqa: S101 - checked with the schema
                    units, valid = dates.units(cells, self.dialect)
                    there &= valid & (dates.encode(cells, self.dialect)[name] < dates.ordinary)
                    days += sign * units
                values = pa.array(days, mask=~there).cast(table.schema.types[place])
                table = table.set_column(place, column.name, values)
        return table

    def text_columns(self) -> frozenset[str]:
        """Return the columns of the table's own text files that typed data cannot express.

        These are columns with missing tokens, patterns or other decimal marks, and times: CSV writers add six decimals
        to them, or count microseconds, and everybody reads seconds.
        """
        marks = self.dialect.decimal != "." or self.dialect.group
        return frozenset(
            column.name
            for column in self.columns
            if isinstance(column, Coded)
            and (
                column.missing
                or getattr(column, "pattern", None) is not None
                or column.kind in ("boolean", "duration", "datetime")
                or (column.kind == "number" and marks)
            )
        )

    # -- other forms ---------------------------------------------------------------------------------------------

    @classmethod
    def from_domain(cls, sizes: Mapping[str, int]) -> Schema:
        """Return the schema of a table that already holds codes ``0 .. size-1``; rows with any other cell are dropped.

        >>> Schema.from_domain({"age": 85, "sex": 2}).domain
        Domain({'age': 85, 'sex': 2})
        """
        columns = tuple(
            Numeric(
                name=name,
                kind="integer",
                minimum=0,
                maximum=size - 1,
                bins=size,
                nullable=False,
                on_unknown="drop_row",
                outside="unknown",
            )
            for name, size in Domain(sizes).items()
        )
        return cls(columns)

    @classmethod
    def load(cls, path: str | PathLike[str], *, unit: str | None = None) -> Schema:
        """Load a schema from a JSON or YAML file.

        Args:
            path: the file.
            unit: who is protected if the file does not say so; None if it must.

        Raises:
            SchemaError: naming the file, the line and the column of what is wrong.
        """
        if not isinstance(path, str | PathLike):
            raise SchemaError(
                "a schema is a `Schema` or the path of its file; `Schema.from_dict` makes one of a mapping"
            )
        file = as_path("schema", path)
        text = read_schema_text(file)
        try:
            return cls.from_dict(parse_content(text, file), unit=unit)
        except FieldError as error:
            line = find_line(text, error.path)
            raise SchemaError(f"{file}{f', line {line}' if line else ''}: {error}") from None
        except SchemaError as error:
            raise SchemaError(f"{file}: {error}" if not str(error).startswith(str(file)) else str(error)) from None

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the schema completely or not at all: as JSON if the file ends in .json, else as YAML.

        **Privacy.** While a column is a draft, made from the rows without noise, only the file's owner can read it.

        Args:
            path: the file.
            overwrite: replace a file of that name. Its comments, and what was corrected in it by hand, are lost.

        Raises:
            OutputError: if the file already exists, or cannot be written.
        """
        file = as_path("path", path)
        if file.is_file() and not overwrite:
            raise OutputError(f"{file} already exists; choose another name, or pass overwrite=True")
        write_text(dump_text(self.to_dict(), file.suffix), file, private=self._has_drafts)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, unit: str | None = None) -> Schema:
        """Return the schema that the content of a file declares, such as `to_dict` returns.

        Args:
            content: the content of the file.
            unit: who is protected if it does not say so; None if it must.

        Raises:
            SchemaError: naming the column, the key and the remedy.
        """
        if isinstance(content, Mapping) and "resources" in content:
            raise FieldError("this is a data package of several tables; a single table has `fields`", ())
        ours = table_keys(content)
        fields = content.get("fields")
        if not isinstance(fields, list) or not fields:
            raise FieldError("the schema has no columns; list them under `fields`", ())
        columns = tuple(parse_field(field, index) for index, field in enumerate(fields))
        title = content.get("title")
        parts: dict[str, Any] = {
            "privacy_unit": _parse_unit(ours.get("privacy_unit", unit)),
            "rows": ours.get("rows"),
            "dialect": parse_dialect(ours.get("dialect", {})),
            "rules": parse_rules(ours.get("rules", [])),
            "title": None if title is None else str(title),
        }
        try:
            return cls(columns, **parts)
        except SchemaError as error:
            raise FieldError(str(error), error_path(str(error), [column.name for column in columns])) from None

    def to_dict(self) -> dict[str, Any]:
        """Return a Frictionless Table Schema of plain values, with our keys under ``understudy``."""
        unit = self.privacy_unit
        ours: dict[str, Any] = {
            "privacy_unit": "row" if unit.column is None else {"column": unit.column, "max_rows": unit.max_rows}
        }
        ours |= {"rows": self.rows} if self.rows is not None else {}
        dialect = self.dialect.model_dump(exclude_defaults=True)
        ours |= {"dialect": dialect} if dialect else {}
        ours |= {"rules": [rule.to_dict() for rule in self.rules]} if self.rules else {}
        ours |= {"custodian_only": DRAFT_MARK} if self._has_drafts else {}
        head = {"title": self.title} if self.title is not None else {}
        return head | {"fields": [format_field(column) for column in self.columns], OURS: ours}

    @property
    def _has_drafts(self) -> bool:
        return any(column.status == "draft" for column in self.columns)


def _parse_unit(given: Any) -> PrivacyUnit:
    path = (OURS, "privacy_unit")
    if given is None:
        raise FieldError(
            "`privacy_unit` is not stated; write `privacy_unit: row` under `understudy` if nobody has two rows, else "
            "`privacy_unit: {column: patient_id, max_rows: 3}`",
            (OURS,),
        )
    if given == "row":
        return PrivacyUnit()
    if not isinstance(given, Mapping) or set(given) != {"column", "max_rows"} or not isinstance(given["column"], str):
        raise FieldError("`privacy_unit` is `row`, or `{column: NAME, max_rows: K}`; correct it", path)
    try:
        return PrivacyUnit(given["column"], given["max_rows"])
    except SchemaError as error:
        raise FieldError(str(error), path) from None


def _check_kinds(schema: Schema) -> None:
    for option, kind in (("columns", Column), ("rules", Rule)):
        given = getattr(schema, option)
        if not isinstance(given, tuple | list) or not all(isinstance(one, kind) for one in given):
            raise SchemaError(f"{option}: give a tuple of them; `Schema.load` reads them from a file")
    if not isinstance(schema.privacy_unit, PrivacyUnit):
        raise SchemaError("privacy_unit: give a `PrivacyUnit`, or leave it out for one row")


def _check_columns(schema: Schema) -> None:
    names = [column.name for column in schema.columns]
    if not names:
        raise SchemaError("the schema has no columns; add at least one under `fields`")
    if len(names) > 10_000:
        raise SchemaError("the schema has more than 10000 columns; `drop` what is not needed, or split the table")
    parts = [part for column in schema.columns for part in ([column.name] if not column.parts else column.parts)]
    for name, count in Counter(parts).items():
        if count > 1:
            raise SchemaError(f"the schema has more than one column named {name!r}; rename or remove one of them")
    if not any(isinstance(column, Coded | Open | Words) for column in schema.columns):
        raise SchemaError("the schema synthesises no column; declare at least one that is not drop, id or constant")
    unit = schema.privacy_unit.column
    if unit in names and not isinstance(schema.column(unit or ""), Dropped | Identifier):
        raise SchemaError(
            f"column {unit!r} is the privacy unit and is never synthesised; declare it `kind: id` or `drop`"
        )
    rows = schema.rows
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= 10**12):
        raise SchemaError("`rows` must be a whole number from 1 to 10^12; correct it, or remove it")


def _check_differences(schema: Schema) -> None:
    for column in schema.columns:
        if isinstance(column, Difference):
            for name in column.of:
                if not any(other.name == name and other.kind == "date" for other in schema.coded):
                    raise SchemaError(
                        f"column {column.name!r}: `of` names {name!r}, which is no column of dates that is "
                        "synthesised; name two columns of `type: date`, the later one first"
                    )


def _check_open(schema: Schema) -> None:
    """Refuse rules about columns without codes: they might not fit the column after its discovery was paid for."""
    names = {column.name for column in schema.open}
    if found := [name for rule in schema.rules for name in rule.columns if name in names]:
        raise SchemaError(
            f"a rule mentions column {found[0]!r}, which still has to be discovered; declare the column, "
            "or remove the rule"
        )


def _check_codes(codes: Mapping[str, NDArray[Any]], domain: Domain) -> int:
    codes = as_mapping("codes", codes, example='{"age": array}')
    for part, size in domain.items():
        if part not in codes:
            raise SchemaError(f"there are no codes for column {part!r}; give one array for each column of the domain")
        array = np.asarray(codes[part])
        whole = array.ndim == 1 and (not array.size or array.dtype.kind in "iub")
        if not whole or (array.size and (array.min() < 0 or array.max() >= size)):
            raise SchemaError(f"column {part!r}: codes must be 0 .. {size - 1}; undo any recoding first")
    lengths = {len(codes[part]) for part in domain}
    if len(lengths) > 1:
        raise SchemaError("the coded columns have different lengths; give arrays of one length")
    return lengths.pop()
