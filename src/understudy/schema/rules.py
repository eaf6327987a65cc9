"""Rules: what is known about combinations of columns.

A rule declares impossible combinations, a functional dependency, or an order between columns. Rules are public facts of
the schema, and no synthetic row breaks one: `forbidden_cells` expresses them over codes for models, and
`find_broken_rows` checks decoded values. `check` counts the real rows that break them, for the custodian only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from understudy.domain import Clique, Domain, Forbidden
from understudy.errors import SchemaError
from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.column import Coded
from understudy.schema.text import Dialect

if TYPE_CHECKING:
    from understudy.schema.schema import Schema

_Codes: TypeAlias = Mapping[str, NDArray[Any]]
_Table: TypeAlias = tuple[Clique, Callable[[], NDArray[np.bool_]]]


class Between(BaseModel):
    """A condition on numbers or times: from `minimum` to `maximum`, both included; either may be left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minimum: float | str | None = None
    maximum: float | str | None = None

    def ends(self, column: AxisColumn) -> tuple[Any, Any]:
        """Return both ends in units of the column's axis."""
        low, high = column.bounds
        first = low if self.minimum is None else column.unit_of(self.minimum, "minimum")
        return first, high if self.maximum is None else column.unit_of(self.maximum, "maximum")


Condition: TypeAlias = Between | tuple[bool | int | float | str | None, ...]
"""Values (None for empty cells), or a range."""


class _Rule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as the file writes it."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


class Impossible(_Rule):
    """A combination that no row can have: all conditions hold at once."""

    impossible: dict[str, Condition] = Field(min_length=1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rule."""
        return tuple(self.impossible)

    def rename(self, new: Callable[[str], str]) -> Impossible:
        """Return the rule about columns of other names."""
        return self.model_copy(update={"impossible": {new(name): one for name, one in self.impossible.items()}})

    def masks(self, schema: Schema) -> dict[str, NDArray[np.bool_]]:
        """Return by column which codes meet the condition; a bin does if all of its values do.

        Raises:
            SchemaError: if a condition does not fit its column.
        """
        return {
            name: _condition_mask(_coded_column(schema, name), condition) for name, condition in self.impossible.items()
        }

    def find_broken(self, schema: Schema, codes: _Codes) -> NDArray[np.bool_]:
        """Return which coded rows break the rule."""
        masks = self.masks(schema)
        broken: NDArray[np.bool_] = np.logical_and.reduce([mask[codes[name]] for name, mask in masks.items()])
        return broken

    def tables(self, schema: Schema, domain: Domain) -> Iterator[_Table]:
        """Yield the columns, and a function for the table of cells in which every value meets the conditions."""
        yield self.columns, lambda: reduce(np.logical_and.outer, self.masks(schema).values())


class Dependency(_Rule):
    """Rows that agree on `given` (written `from`) agree on `determines`.

    The values may be stated, by `map` or by a `level` of the given column whose groups are named like the determined
    values. If they are not, they are learned from the noisy model. Empty and unknown cells of `given` determine
    nothing.

    Attributes:
        given: the columns that determine.
        determines: the column that is determined.
        map: the determined value of each value of one given column, or, for numbers and times, of each range such as
            ``16..24`` or ``65..``; values that are not named determine nothing.
        level: the level of one given column that names the determined values.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    given: tuple[str, ...] = Field(alias="from", min_length=1)
    determines: str
    map: dict[str, bool | int | float | str | None] | None = None
    level: str | None = None

    @field_validator("map", mode="before")
    @classmethod
    def _keys_to_text(cls, given: Any) -> Any:
        return {str(key): value for key, value in given.items()} if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _check_columns(self) -> Dependency:
        twice = self.determines in self.given or len(set(self.given)) != len(self.given)
        stated = (self.map is not None) + (self.level is not None)
        if twice or stated > 1 or (stated and len(self.given) != 1):
            raise ValueError("each column once; `map` or `level`, not both, with one given column")
        return self

    def rename(self, new: Callable[[str], str]) -> Dependency:
        """Return the rule about columns of other names."""
        return self.model_copy(update={"given": tuple(map(new, self.given)), "determines": new(self.determines)})

    def stated_codes(self, schema: Schema) -> NDArray[np.int64] | None:
        """Return the determined code for each code of the given column, -1 where nothing is stated.

        None if there is no statement.

        Raises:
            SchemaError: if a value or level is not one of the columns'.
        """
        if self.map is None and self.level is None:
            return None
        given, determined = _coded_column(schema, self.given[0]), _coded_column(schema, self.determines)
        codes = np.full(given.size, -1, dtype=np.int64)
        if self.map is not None:
            axis = given if isinstance(given, AxisColumn) else None
            single = [key for key in self.map if axis is None or ".." not in key]
            named = dict(zip(single, find_codes(given, single), strict=True))
            for key, wanted in zip(self.map, find_codes(determined, self.map.values()), strict=True):
                codes[named[key] if axis is None or key in named else _range_codes(axis, key)] = wanted
            return codes
        known = given.generalisations
        if self.level not in known:
            raise SchemaError(
                f"a rule names level {self.level!r}, which column {given.name!r} does not have; declare it"
            )
        labels, groups = known[self.level].labels, known[self.level].groups[: given.ordinary]
        used, places = np.unique(groups, return_inverse=True)
        codes[: given.ordinary] = np.array(find_codes(determined, [labels[group] for group in used]))[places]
        return codes

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rule."""
        return (*self.given, self.determines)

    def find_broken(self, schema: Schema, codes: _Codes) -> NDArray[np.bool_]:
        """Return which coded rows differ from the stated value.

        Without a statement: which differ from the most common value among the rows that agree on `given`.
        """
        stated = self.stated_codes(schema)
        if stated is not None:
            wanted = stated[codes[self.given[0]]]
            wrong: NDArray[np.bool_] = (wanted >= 0) & (wanted != codes[self.determines])
            return wrong
        group = np.zeros(len(codes[self.determines]), dtype=np.int64)
        for name in self.given:  # renumbered at every step, so that the product of sizes cannot overflow
            _, group = np.unique(group * schema.domain[name] + codes[name], return_inverse=True)
        value = codes[self.determines].astype(np.int64)
        size = schema.domain[self.determines]
        pair, count = np.unique(group * size + value, return_counts=True)
        best = np.zeros(int(group.max(initial=-1)) + 1, dtype=np.int64)
        order = np.argsort(count, kind="stable")
        best[pair[order] // size] = pair[order] % size
        broken: NDArray[np.bool_] = best[group] != value
        return broken

    def tables(self, schema: Schema, domain: Domain) -> Iterator[_Table]:
        """Yield the columns, and a function for the table of cells that differ from the stated values.

        A dependency that states no values forbids nothing yet, but its columns belong together from the start.
        """

        def make() -> NDArray[np.bool_]:
            stated = self.stated_codes(schema)
            shape = domain.shape(self.columns)
            return (
                np.zeros(shape, np.bool_) if stated is None else _differing_cells(stated, np.arange(shape[-1]), shape)
            )

        yield self.columns, make


class Order(_Rule):
    """Columns in ascending order, wherever two neighbours both have a value."""

    order: tuple[str, ...] = Field(min_length=2)
    strict: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rule."""
        return self.order

    def rename(self, new: Callable[[str], str]) -> Order:
        """Return the rule about columns of other names."""
        return self.model_copy(update={"order": tuple(map(new, self.order))})

    def breaks(self, left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
        """Return where a value of one column and of the next are in the wrong order."""
        wrong: NDArray[np.bool_] = left >= right if self.strict else left > right
        return wrong

    def find_broken(self, schema: Schema, codes: _Codes) -> NDArray[np.bool_]:
        """Return which coded rows certainly break the rule.

        A bin lies entirely above one that should not be below it.
        """
        result = np.zeros(len(codes[self.order[0]]), dtype=np.bool_)
        for left, right in pairwise(self.order):
            low, _ = _find_ends(_coded_column(schema, left))
            _, high = _find_ends(_coded_column(schema, right))
            both = (codes[left] < len(low)) & (codes[right] < len(high))
            result |= both & self.breaks(low[np.where(both, codes[left], 0)], high[np.where(both, codes[right], 0)])
        return result

    def tables(self, schema: Schema, domain: Domain) -> Iterator[_Table]:
        """Yield two neighbours, and a function for the cells whose lowest left value is above the highest right one."""

        def make(left: str, right: str) -> NDArray[np.bool_]:
            low, _ = _find_ends(_coded_column(schema, left))
            _, high = _find_ends(_coded_column(schema, right))
            table = np.zeros(domain.shape((left, right)), dtype=np.bool_)
            table[: low.size, : high.size] = self.breaks(low[:, None], high[None, :])
            return table

        for pair in pairwise(self.order):
            yield pair, partial(make, *pair)


Rule: TypeAlias = Impossible | Dependency | Order


def parse_rule(given: Any) -> Rule:
    """Return the rule that a mapping declares.

    Raises:
        SchemaError: saying which keys a rule has.
    """
    shapes: dict[str, type[Impossible] | type[Dependency] | type[Order]] = {
        "impossible": Impossible,
        "determines": Dependency,
        "order": Order,
    }
    for key, shape in shapes.items():
        if isinstance(given, Mapping) and key in given:
            try:
                return shape.model_validate(given)
            except ValueError:
                raise SchemaError(f"a rule with `{key}` is not valid; write {_EXAMPLES[key]}") from None
    raise SchemaError(f"a rule is one of {'; '.join(_EXAMPLES.values())}; correct it")


_EXAMPLES: dict[Literal["impossible", "determines", "order"] | str, str] = {
    "impossible": "`impossible: {age: {maximum: 14}, marital: [Married]}`",
    "determines": "`from: [zip], determines: city`, for one column also `map: {10115: Berlin}` or `level: city`",
    "order": "`order: [admitted, discharged]`",
}


def check_rules(schema: Schema) -> None:
    """Refuse rules about columns that are not synthesised, and conditions that do not fit their column.

    Raises:
        SchemaError: naming the column and the remedy.
    """
    for rule in schema.rules:
        for name in rule.columns:
            _coded_column(schema, name)
        if isinstance(rule, Impossible):
            rule.masks(schema)
        if isinstance(rule, Dependency):
            rule.stated_codes(schema)
            if len(_coded_column(schema, rule.determines).parts) > 1:
                raise SchemaError(
                    f"a rule determines column {rule.determines!r}, which is `heaped`; remove `heaped` or the rule"
                )
        if isinstance(rule, Order):
            kinds = {_family(_coded_column(schema, name)) for name in rule.order}
            if len(kinds) > 1:
                raise SchemaError(
                    f"rule `order: {list(rule.order)}`: the columns are of different kinds; compare like with like"
                )


def _coded_column(schema: Schema, name: str) -> Coded:
    column = schema.column(name)
    if not isinstance(column, Coded):
        raise SchemaError(f"a rule mentions column {name!r}, which is not synthesised; remove it from the rule")
    return column


def _family(column: Coded) -> Any:
    if isinstance(column, AxisColumn):
        return "number" if column.kind in ("integer", "number") else column.kind
    if isinstance(column, Categorical) and column.kind == "ordinal":
        return column.values
    raise SchemaError(
        f"a rule orders column {column.name!r}, which has no order; declare it ordinal, or remove the rule"
    )


def _find_ends(column: Coded) -> tuple[NDArray[Any], NDArray[Any]]:
    if not isinstance(column, AxisColumn):
        places = np.arange(column.ordinary)
        return places, places
    axis = column.axis
    low, high = axis.lower.astype(np.float64), axis.upper.astype(np.float64)
    if axis.grain:
        high = np.where(axis.spike, high, high - 1 - (high - 1 - low) % axis.grain)
    else:
        high = np.where(axis.spike | (high == column.bounds[1]), high, np.nextafter(high, -np.inf))
    if axis.top is not None and axis.top.rule == "value" and not axis.spike[-1]:
        low[-1] = high[-1] = float(axis.top.value or 0.0)
    scale = comparison_scale(column)
    return low / scale, high / scale


def comparison_scale(column: Coded) -> float:
    """Return the number of units of a column's axis in one unit of comparison."""
    return 10.0 ** (getattr(column, "decimals", None) or 0)


def _condition_mask(column: Coded, condition: Condition) -> NDArray[np.bool_]:
    mask = np.zeros(column.size, dtype=np.bool_)
    if isinstance(condition, Between):
        if not isinstance(column, AxisColumn):
            raise SchemaError(f"a rule gives a range for column {column.name!r}; list its values instead")
        return _range_mask(column, condition, mask)
    for code in find_codes(column, condition):
        mask[code] = code >= column.ordinary or not isinstance(column, AxisColumn) or _is_one_point(column, code)
    return mask


def _range_codes(column: AxisColumn, key: str) -> NDArray[np.bool_]:
    """Return which codes a key of a `map` such as ``16..24`` names."""
    low, _, high = key.partition("..")

    def end(text: str) -> float | str | None:
        try:
            return float(text) if column.kind in ("integer", "number") and text.strip() else text.strip() or None
        except ValueError:
            raise SchemaError(f"a rule about column {column.name!r}: {key!r} is not a range; write 16..24") from None

    return _range_mask(column, Between(minimum=end(low), maximum=end(high)), np.zeros(column.size, dtype=np.bool_))


def _is_one_point(column: AxisColumn, code: int) -> bool:
    axis = column.axis
    return bool(axis.spike[code] or (axis.grain and axis.upper[code] - axis.lower[code] <= axis.grain))


def _range_mask(column: AxisColumn, condition: Between, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    axis = column.axis
    try:
        first, last = condition.ends(column)
    except ValueError as error:
        raise SchemaError(f"a rule about column {column.name!r}: {error}") from None
    upper = np.where(axis.spike, axis.upper, axis.upper - 1) if axis.grain else axis.upper
    mask[: axis.size] = (axis.lower >= first) & (upper <= last)
    return mask


def find_codes(column: Coded, values: Iterable[bool | int | float | str | None]) -> list[int]:
    """Return the codes of declared values; raise an error if the column lacks one of them."""
    listed = list(values)
    by_text = column.encode_text(pa.array([str(value) for value in listed], pa.string()), Dialect())[column.name]
    return [_find_code(column, value, int(code)) for value, code in zip(listed, by_text, strict=True)]


def _find_code(column: Coded, value: bool | int | float | str | None, by_text: int) -> int:
    if value is None or value in column.reasons:
        return column.empty_code if value is None else column.reason_code(str(value))
    if isinstance(value, bool) and isinstance(column, Boolean):
        return int(value)
    if by_text == column.unknown_code and value != getattr(column, "other", None):
        raise SchemaError(f"a rule names {str(value)!r}, which is not a value of column {column.name!r}; correct it")
    return by_text


# -- Rules over codes: cells that models keep empty ------------------------------------------------------------------


LARGEST_RULE = 1 << 24
"""The largest number of cells of a rule's columns: the model holds several tables of that size."""


def forbidden_cells(schema: Schema, domain: Domain) -> Iterator[Forbidden]:
    """Yield the cells that no row can be in, rule by rule; masks are computed when they are needed.

    A cell is forbidden if every value that its codes can stand for breaks the rule. A bin that a rule cuts through is
    allowed: which of its values may occur together is decided when values are drawn.
    """
    for rule in schema.rules:
        for columns, make in rule.tables(schema, domain):
            yield _forbid(domain, columns, make)


def dependency_cells(
    domain: Domain, rule: Dependency, values: NDArray[np.int64], merged: NDArray[np.int64] | None = None
) -> Forbidden:
    """Return the cells in which `determines` differs from what `given` says; where that is -1, none.

    Args:
        domain: the declared domain.
        rule: the dependency.
        values: by code of the given columns, flat in their order, the code that they determine.
        merged: by code of the determined column, the code that `values` refers to; the code itself by default.
    """
    codes = np.arange(domain[rule.determines]) if merged is None else merged
    return _forbid(domain, rule.columns, lambda: _differing_cells(values, codes, domain.shape(rule.columns)))


def _differing_cells(values: NDArray[np.int64], codes: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    table: NDArray[np.bool_] = ((values >= 0)[:, None] & (values[:, None] != codes)).reshape(shape)
    return table


def check_rule_size(domain: Domain, columns: Clique) -> None:
    """Refuse a rule whose columns have too large a table.

    Raises:
        SchemaError: naming the columns and the remedy.
    """
    if domain.cells(columns) > LARGEST_RULE:
        raise SchemaError(
            f"a rule combines {', '.join(columns)}, which have {domain.cells(columns)} cells together; at most "
            f"{LARGEST_RULE} are allowed: use coarser bins or fewer values, drop a column that another one determines, "
            "or remove the rule"
        )


def _forbid(domain: Domain, columns: Clique, make: Callable[[], NDArray[np.bool_]]) -> Forbidden:
    """Return the cells of a table, whose size is checked and whose axes are sorted when it is needed."""
    order = domain.canonical(columns)

    def sort_axes() -> NDArray[np.bool_]:
        check_rule_size(domain, order)
        return make().transpose([columns.index(column) for column in order])

    return Forbidden(order, sort_axes)


# -- Rules over decoded values ---------------------------------------------------------------------------------------


_Bools = NDArray[np.bool_]


class RuleCells:
    """A column of decoded rows: the codes they were made of, and the cells as written.

    Args:
        column: the column.
        codes: its codes.
        cells: an arrow column of the same length, typed or text.
        dialect: how text is written.
    """

    def __init__(self, column: Coded, codes: NDArray[Any], cells: Any, dialect: Dialect) -> None:
        self.column, self.codes = column, np.asarray(codes)
        self._cells, self._dialect = cells, dialect

    @cached_property
    def has_value(self) -> _Bools:
        """Which cells hold a value, rather than a reason for missing."""
        values: _Bools = self.codes < self.column.ordinary
        return values & self._units[1] if isinstance(self.column, AxisColumn) else values

    @property
    def units(self) -> NDArray[Any]:
        """Numbers and times in units of their axis; the positions of ordered values."""
        return self._units[0] if isinstance(self.column, AxisColumn) else self.codes

    @property
    def compared(self) -> NDArray[Any]:
        """The same in the units in which columns are compared."""
        return self.units / comparison_scale(self.column) if isinstance(self.column, AxisColumn) else self.units

    @cached_property
    def _units(self) -> tuple[NDArray[Any], _Bools]:
        assert isinstance(self.column, AxisColumn)  # noqa: S101 - only called for these
        cells = self._cells.combine_chunks() if hasattr(self._cells, "combine_chunks") else self._cells
        return self.column.units(cells, self._dialect)

    def find_within(self, low: Any, high: Any) -> _Bools:
        """Return which values lie between two units, both included."""
        inside: _Bools = self.has_value & (self.units >= low) & (self.units <= high)
        return inside


def find_broken_rows(schema: Schema, codes: Mapping[str, NDArray[Any]], table: Any) -> _Bools:
    """Return which decoded rows break a rule.

    Codes alone cannot tell this if a rule cuts through a bin. Dependencies that state no values are not checked: only a
    release knows what they determine.

    Args:
        schema: with the rules.
        codes: the codes the rows were made of.
        table: the rows, as an arrow table.
    """
    names = {name for rule in schema.rules for name in rule.columns}
    cells = {name: RuleCells(_coded_column(schema, name), codes[name], table[name], schema.dialect) for name in names}
    broken = np.zeros(table.num_rows, dtype=np.bool_)
    for rule in schema.rules:
        if isinstance(rule, Impossible):
            broken |= np.logical_and.reduce([_match(cells[name], wanted) for name, wanted in rule.impossible.items()])
        elif isinstance(rule, Order):
            for left, right in ((cells[left], cells[right]) for left, right in pairwise(rule.order)):
                broken |= left.has_value & right.has_value & rule.breaks(left.compared, right.compared)
        elif rule.stated_codes(schema) is not None:
            broken |= rule.find_broken(schema, codes)
    return broken


def _match(cells: RuleCells, condition: Condition) -> _Bools:
    column = cells.column
    if isinstance(condition, Between):
        assert isinstance(column, AxisColumn)  # noqa: S101 - checked when the schema was made
        return cells.find_within(*condition.ends(column))
    found = np.zeros(len(cells.codes), dtype=np.bool_)
    for value, code in zip(condition, find_codes(column, condition), strict=True):
        if isinstance(column, AxisColumn) and code < column.ordinary:
            unit = column.unit_of(value, "value")  # type: ignore[arg-type]  # a code of the axis is a number or a time
            found |= cells.find_within(unit, unit)
        else:
            found |= cells.codes == code
    return found
