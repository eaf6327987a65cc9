"""Rules: what is known about combinations of columns.

A rule declares impossible combinations, a functional dependency, or an order between columns. Rules are public facts of
the schema, and no synthetic row breaks one: `forbidden_cells` expresses them over codes for models, and
`find_broken_rows` checks decoded values. `check` counts the real rows that break them, for the custodian only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
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
from typing import TYPE_CHECKING

import pyarrow as pa

_Codes: TypeAlias = Mapping[str, NDArray[Any]]


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

    def masks(self, schema: Schema) -> dict[str, NDArray[np.bool_]]:
        """Return by column which codes meet the condition; a bin does if all of its values do.

        Raises:
            SchemaError: when a condition does not fit its column.
        """
        return {
            name: _condition_mask(_coded_column(schema, name), condition) for name, condition in self.impossible.items()
        }

    def find_broken(self, schema: Schema, codes: _Codes) -> NDArray[np.bool_]:
        """Return which coded rows break the rule."""
        masks = self.masks(schema)
        broken: NDArray[np.bool_] = np.logical_and.reduce([mask[codes[name]] for name, mask in masks.items()])
        return broken


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
    def _text_keys(cls, given: Any) -> Any:
        return {str(key): value for key, value in given.items()} if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _of_one_column(self) -> Dependency:
        twice = self.determines in self.given or len(set(self.given)) != len(self.given)
        stated = (self.map is not None) + (self.level is not None)
        if twice or stated > 1 or (stated and len(self.given) != 1):
            raise ValueError("each column once; `map` or `level`, not both, with one given column")
        return self

    def stated_codes(self, schema: Schema) -> NDArray[np.int64] | None:
        """Return the determined code for each code of the given column, -1 where nothing is stated.

        None if there is no statement.

        Raises:
            SchemaError: when a value or level is not one of the columns'.
        """
        if self.map is None and self.level is None:
            return None
        given, determined = _coded_column(schema, self.given[0]), _coded_column(schema, self.determines)
        codes = np.full(given.size, -1, dtype=np.int64)
        if self.map is not None:
            for value, wanted in self.map.items():
                codes[_named_codes(given, value)] = find_code(determined, wanted)
            return codes
        known = given.generalisations
        if self.level not in known:
            raise SchemaError(
                f"a rule names level {self.level!r}, which column {given.name!r} does not have; declare it"
            )
        labels, groups = known[self.level].labels, known[self.level].groups[: given.ordinary]
        used = {group: find_code(determined, labels[group]) for group in np.unique(groups).tolist()}
        codes[: given.ordinary] = [used[group] for group in groups.tolist()]
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


class Order(_Rule):
    """Columns in ascending order, wherever two neighbours both have a value."""

    order: tuple[str, ...] = Field(min_length=2)
    strict: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the rule."""
        return self.order

    def ends(self, schema: Schema) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """Return by column the lowest and highest value of each ordinary code, in common units."""
        return [_ends(_coded_column(schema, name)) for name in self.order]

    def find_broken(self, schema: Schema, codes: _Codes) -> NDArray[np.bool_]:
        """Return which coded rows certainly break the rule.

        A bin lies entirely above one that should not be below it.
        """
        result = np.zeros(len(codes[self.order[0]]), dtype=np.bool_)
        ends = self.ends(schema)
        for index in range(len(self.order) - 1):
            left, right = codes[self.order[index]], codes[self.order[index + 1]]
            low, high = ends[index][0], ends[index + 1][1]
            both = (left < len(low)) & (right < len(high))
            a, b = low[np.where(both, left, 0)], high[np.where(both, right, 0)]
            result |= both & ((a >= b) if self.strict else (a > b))
        return result


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
                raise SchemaError(f"a rule with `{key}` is not well formed; write {_EXAMPLES[key]}") from None
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


def _ends(column: Coded) -> tuple[NDArray[Any], NDArray[Any]]:
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
    for value in condition:
        code = find_code(column, value)
        mask[code] = code >= column.ordinary or not isinstance(column, AxisColumn) or _one_point(column, code)
    return mask


def _named_codes(column: Coded, key: str) -> Any:
    """Return the codes that a key of a `map` names: that of a value, or those of a range."""
    low, dots, high = key.partition("..")
    if not dots or not isinstance(column, AxisColumn):
        return find_code(column, key)

    def end(text: str) -> float | str | None:
        try:
            return float(text) if column.kind in ("integer", "number") and text.strip() else text.strip() or None
        except ValueError:
            raise SchemaError(f"a rule about column {column.name!r}: {key!r} is not a range; write 16..24") from None

    return _range_mask(column, Between(minimum=end(low), maximum=end(high)), np.zeros(column.size, dtype=np.bool_))


def _one_point(column: AxisColumn, code: int) -> bool:
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


def find_code(column: Coded, value: bool | int | float | str | None) -> int:
    """Return the code of a declared value; raise an error if the column does not have it."""
    if value is None or value in column.reasons:
        return column.empty_code if value is None else column.reason_code(str(value))
    if isinstance(value, bool) and isinstance(column, Boolean):
        return int(value)
    text = str(value)
    code = int(column.encode_text(pa.array([text], pa.string()), Dialect())[column.name][0])
    if code == column.unknown_code and value != getattr(column, "other", None):
        raise SchemaError(f"a rule names {text!r}, which is not a value of column {column.name!r}; correct it")
    return code


# -- Rules over codes: cells that models keep empty ------------------------------------------------------------------


LARGEST_RULE = 1 << 24
"""The largest number of cells of a rule's columns: the model holds several tables of that size."""


def forbidden_cells(schema: Schema, domain: Domain) -> Iterator[Forbidden]:
    """Yield the cells that no row can be in, rule by rule; masks are computed when they are needed.

    A cell is forbidden if every value that its codes can stand for breaks the rule. A bin that a rule cuts through is
    allowed: which of its values may occur together is decided when values are drawn. A dependency that states no values
    forbids nothing yet, but its columns belong together from the start.
    """
    for rule in schema.rules:
        if isinstance(rule, Impossible):
            yield _lazy_mask(domain, rule.columns, lambda clique, rule=rule: _impossible_mask(schema, rule, clique))
        elif isinstance(rule, Order):
            for index in range(len(rule.order) - 1):
                yield _lazy_mask(
                    domain,
                    rule.order[index : index + 2],
                    lambda clique, rule=rule, index=index: _order_mask(schema, domain, rule, index, clique),
                )
        else:
            yield _lazy_mask(
                domain, rule.columns, lambda clique, rule=rule: _dependency_mask(schema, domain, rule, clique)
            )


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
    order = domain.canonical(rule.columns)
    axes = [rule.columns.index(column) for column in order]
    codes = np.arange(domain[rule.determines]) if merged is None else merged

    def make() -> NDArray[np.bool_]:
        mask = (values >= 0)[:, None] & (values[:, None] != codes)
        table: NDArray[np.bool_] = mask.reshape(domain.shape(rule.columns)).transpose(axes)
        return table

    return Forbidden(order, make)


def check_rule_size(domain: Domain, columns: Clique) -> None:
    """Refuse a rule whose columns have too large a table.

    Raises:
        SchemaError: naming the columns and the remedy.
    """
    if domain.cells(columns) > LARGEST_RULE:
        raise SchemaError(
            f"a rule combines {', '.join(columns)}, whose table has {domain.cells(columns)} cells; at most "
            f"{LARGEST_RULE} are allowed: use coarser bins or fewer values, drop a column that another one determines, "
            "or remove the rule"
        )


def _lazy_mask(domain: Domain, columns: Clique, make: Any) -> Forbidden:
    order = domain.canonical(columns)

    def checked() -> NDArray[np.bool_]:
        check_rule_size(domain, order)
        mask: NDArray[np.bool_] = make(order)
        return mask

    return Forbidden(order, checked)


def _impossible_mask(schema: Schema, rule: Impossible, clique: Clique) -> NDArray[np.bool_]:
    masks = rule.masks(schema)
    table = np.array(True)
    for column in clique:
        table = np.logical_and.outer(table, masks[column])
    return table


def _order_mask(schema: Schema, domain: Domain, rule: Order, index: int, clique: Clique) -> NDArray[np.bool_]:
    """Return the cells of two neighbours whose lowest left value is above the highest right value."""
    ends = rule.ends(schema)
    left, right = rule.order[index], rule.order[index + 1]
    low, high = ends[index][0][:, None], ends[index + 1][1][None, :]
    table = np.zeros(domain.shape((left, right)), dtype=np.bool_)
    table[: low.size, : high.size] = low >= high if rule.strict else low > high
    return table if clique == (left, right) else table.T


def _dependency_mask(schema: Schema, domain: Domain, rule: Dependency, clique: Clique) -> NDArray[np.bool_]:
    stated = rule.stated_codes(schema)
    return np.zeros(domain.shape(clique), np.bool_) if stated is None else dependency_cells(domain, rule, stated).mask


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

    def within(self, low: Any, high: Any) -> _Bools:
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
            broken |= np.logical_and.reduce([_meets(cells[name], wanted) for name, wanted in rule.impossible.items()])
        elif isinstance(rule, Order):
            for left, right in zip(rule.order, rule.order[1:], strict=False):
                broken |= _breaks_order(cells[left], cells[right], strict=rule.strict)
        elif rule.stated_codes(schema) is not None:
            broken |= rule.find_broken(schema, codes)
    return broken


def _meets(cells: RuleCells, condition: Condition) -> _Bools:
    column = cells.column
    if isinstance(condition, Between):
        assert isinstance(column, AxisColumn)  # noqa: S101 - checked when the schema was made
        return cells.within(*condition.ends(column))
    found = np.zeros(len(cells.codes), dtype=np.bool_)
    for value in condition:
        code = find_code(column, value)
        if isinstance(column, AxisColumn) and code < column.ordinary:
            unit = column.unit_of(value, "value")  # type: ignore[arg-type]  # a code of the axis is a number or a time
            found |= cells.within(unit, unit)
        else:
            found |= cells.codes == code
    return found


def _breaks_order(left: RuleCells, right: RuleCells, *, strict: bool) -> _Bools:
    both = left.has_value & right.has_value
    wrong: _Bools = left.compared >= right.compared if strict else left.compared > right.compared
    return both & wrong
