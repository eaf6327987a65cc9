"""What is known about combinations of columns: impossible ones, functional dependencies, order between columns.

Rules are public facts, declared in the schema. No synthetic row breaks one: `zeros` writes them over codes, for models,
and `honour` holds the values that are drawn to them. `check` counts the real rows that break them, for the custodian
only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from understudy.errors import SchemaError
from understudy.schema.format.dialect import Dialect
from understudy.schema.kinds.categorical import Boolean, Categorical
from understudy.schema.kinds.coded import Coded
from understudy.schema.kinds.measured import Measured

if TYPE_CHECKING:
    from understudy.schema.schema import Schema

_Codes: TypeAlias = Mapping[str, NDArray[Any]]


class Between(BaseModel):
    """A condition on numbers or times: from `minimum` to `maximum`, both included; either may be left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    minimum: float | str | None = None
    maximum: float | str | None = None


Condition: TypeAlias = Between | tuple[bool | int | float | str | None, ...]
"""Values (None for empty cells), or a range."""


class _Rule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_dict(self) -> dict[str, Any]:
        """The rule as the file writes it."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)


class Impossible(_Rule):
    """A combination that no row can have: all conditions hold at once."""

    impossible: dict[str, Condition] = Field(min_length=1)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it speaks of."""
        return tuple(self.impossible)

    def masks(self, schema: Schema) -> dict[str, NDArray[np.bool_]]:
        """By column, which codes meet the condition; a bin does when all of it does.

        Raises:
            SchemaError: when a condition does not fit its column.
        """
        return {name: _mask(_coded(schema, name), condition) for name, condition in self.impossible.items()}

    def broken(self, schema: Schema, codes: _Codes) -> NDArray[np.bool_]:
        """Which coded rows break the rule."""
        masks = self.masks(schema)
        broken: NDArray[np.bool_] = np.logical_and.reduce([mask[codes[name]] for name, mask in masks.items()])
        return broken


class Dependency(_Rule):
    """Rows that agree on `given` (written `from`) agree on `determines`.

    Which value goes with which may be stated, by `map` or by a `level` of the given column whose groups are called as
    the determined values are. Where it is not, it is learned from the noisy model. Empty and unknown cells of `given`
    determine nothing.

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

    def stated(self, schema: Schema) -> NDArray[np.int64] | None:
        """By code of the given column the code that it determines, -1 where nothing is said; None without a statement.

        Raises:
            SchemaError: when a value or level is not one of the columns'.
        """
        if self.map is None and self.level is None:
            return None
        given, determined = _coded(schema, self.given[0]), _coded(schema, self.determines)
        codes = np.full(given.size, -1, dtype=np.int64)
        if self.map is not None:
            for value, wanted in self.map.items():
                codes[_named(given, value)] = code_of(determined, wanted)
            return codes
        known = given.generalisations
        if self.level not in known:
            raise SchemaError(
                f"a rule names level {self.level!r}, which column {given.name!r} does not have; declare it"
            )
        labels, groups = known[self.level].labels, known[self.level].groups[: given.ordinary]
        used = {group: code_of(determined, labels[group]) for group in np.unique(groups).tolist()}
        codes[: given.ordinary] = [used[group] for group in groups.tolist()]
        return codes

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it speaks of."""
        return (*self.given, self.determines)

    def broken(self, schema: Schema, codes: _Codes) -> NDArray[np.bool_]:
        """Which coded rows differ from what is stated, or from the commonest value of rows they should agree with."""
        stated = self.stated(schema)
        if stated is not None:
            wanted = stated[codes[self.given[0]]]
            wrong: NDArray[np.bool_] = (wanted >= 0) & (wanted != codes[self.determines])
            return wrong
        group = np.zeros(len(codes[self.determines]), dtype=np.int64)
        for name in self.given:  # renumbered at every step, so that the product of sizes never overflows
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
        """The columns it speaks of."""
        return self.order

    def ends(self, schema: Schema) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """By column, the lowest and highest value of each ordinary code, in common units."""
        return [_ends(_coded(schema, name)) for name in self.order]

    def broken(self, schema: Schema, codes: _Codes) -> NDArray[np.bool_]:
        """Which coded rows certainly break the rule: a bin wholly above one that should not be below it."""
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


def rule_of(given: Any) -> Rule:
    """The rule that a mapping declares.

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
    """Refuse rules about columns that are not synthesised, or conditions that do not fit.

    Raises:
        SchemaError: naming the column and the remedy.
    """
    for rule in schema.rules:
        for name in rule.columns:
            _coded(schema, name)
        if isinstance(rule, Impossible):
            rule.masks(schema)
        if isinstance(rule, Dependency):
            rule.stated(schema)
            if len(_coded(schema, rule.determines).parts) > 1:
                raise SchemaError(
                    f"a rule determines column {rule.determines!r}, which is `heaped`; remove `heaped` or the rule"
                )
        if isinstance(rule, Order):
            kinds = {_family(_coded(schema, name)) for name in rule.order}
            if len(kinds) > 1:
                raise SchemaError(
                    f"rule `order: {list(rule.order)}`: the columns are of different kinds; compare like with like"
                )


def _coded(schema: Schema, name: str) -> Coded:
    column = schema.column(name)
    if not isinstance(column, Coded):
        raise SchemaError(f"a rule speaks of column {name!r}, which is not synthesised; remove it from the rule")
    return column


def _family(column: Coded) -> Any:
    if isinstance(column, Measured):
        return "number" if column.kind in ("integer", "number") else column.kind
    if isinstance(column, Categorical) and column.kind == "ordinal":
        return column.values
    raise SchemaError(
        f"a rule orders column {column.name!r}, which has no order; declare it ordinal, or remove the rule"
    )


def _ends(column: Coded) -> tuple[NDArray[Any], NDArray[Any]]:
    if not isinstance(column, Measured):
        places = np.arange(column.ordinary)
        return places, places
    axis = column.axis
    low, high = axis.lower.astype(np.float64), axis.upper.astype(np.float64)
    if axis.grain:
        high = np.where(axis.spike, high, high - 1 - (high - 1 - low) % axis.grain)
    else:
        high = np.where(axis.spike | (high == column.bounds[1]), high, np.nextafter(high, -np.inf))
    if axis.top is not None and axis.top.kind == "value" and not axis.spike[-1]:
        low[-1] = high[-1] = float(axis.top.value or 0.0)
    scale = in_common(column)
    return low / scale, high / scale


def in_common(column: Coded) -> float:
    """The units of a column's axis in one of those in which columns are compared."""
    return 10.0 ** (getattr(column, "decimals", None) or 0)


def _mask(column: Coded, condition: Condition) -> NDArray[np.bool_]:
    mask = np.zeros(column.size, dtype=np.bool_)
    if isinstance(condition, Between):
        if not isinstance(column, Measured):
            raise SchemaError(f"a rule gives a range for column {column.name!r}; list its values instead")
        return _within(column, condition, mask)
    for value in condition:
        code = code_of(column, value)
        mask[code] = code >= column.ordinary or not isinstance(column, Measured) or _one_point(column, code)
    return mask


def _named(column: Coded, key: str) -> Any:
    """The codes that a key of a `map` names: that of a value, or those of a range."""
    low, dots, high = key.partition("..")
    if not dots or not isinstance(column, Measured):
        return code_of(column, key)

    def end(text: str) -> float | str | None:
        try:
            return float(text) if column.kind in ("integer", "number") and text.strip() else text.strip() or None
        except ValueError:
            raise SchemaError(f"a rule about column {column.name!r}: {key!r} is no range; write 16..24") from None

    return _within(column, Between(minimum=end(low), maximum=end(high)), np.zeros(column.size, dtype=np.bool_))


def _one_point(column: Measured, code: int) -> bool:
    axis = column.axis
    return bool(axis.spike[code] or (axis.grain and axis.upper[code] - axis.lower[code] <= axis.grain))


def _within(column: Measured, condition: Between, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    axis, (low, high) = column.axis, column.bounds
    try:
        first = low if condition.minimum is None else column.unit_of(condition.minimum, "minimum")
        last = high if condition.maximum is None else column.unit_of(condition.maximum, "maximum")
    except ValueError as error:
        raise SchemaError(f"a rule about column {column.name!r}: {error}") from None
    upper = np.where(axis.spike, axis.upper, axis.upper - 1) if axis.grain else axis.upper
    mask[: axis.size] = (axis.lower >= first) & (upper <= last)
    return mask


def code_of(column: Coded, value: bool | int | float | str | None) -> int:
    """The code of a declared value; a value that the column does not know is an error of the rule."""
    import pyarrow as pa

    if value is None or value in column.reasons:
        return column.empty_code if value is None else column.reason_code(str(value))
    if isinstance(value, bool) and isinstance(column, Boolean):
        return int(value)
    text = str(value)
    code = int(column.encode_text(pa.array([text], pa.string()), Dialect())[column.name][0])
    if code == column.unknown_code and value != getattr(column, "other", None):
        raise SchemaError(f"a rule names {text!r}, which is no value of column {column.name!r}; correct it")
    return code
