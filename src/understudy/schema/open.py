"""Columns that still have to be discovered: they have no codes yet, and become ordinary columns afterwards.

| written | what is discovered |
|---|---|
| `type: discover` | whether cells are whole numbers, numbers, dates, datetimes or text; then the rest |
| `understudy: {bounds: discover}` | the smallest and largest value |
| `understudy: {bins: discover}` | where to cut, and into how many bins |
| `understudy: {values: discover}` | the values that enough rows have; the others follow `on_unknown` |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understudy.errors import SchemaError
from understudy.schema.categorical import Categorical
from understudy.schema.column import Codes, Column, Entry
from understudy.schema.temporal import MICROSECONDS, parse_datetimes
from understudy.schema.text import (
    FALSE,
    TRUE,
    Dialect,
    meaning,
    meanings,
    parse_numbers,
    to_floats,
    to_plain_text,
    to_text,
)

Discoverable: TypeAlias = Literal["type", "bounds", "bins", "values"]
TYPES = ("integer", "number", "date", "datetime", "string")
"""The types that a column of unknown type can have, in the order of `Shape`'s codes."""
MOST_DECIMALS = 4
"""The largest number of decimals that is counted separately, in codes after those of the types."""

LONGEST = 256
"""A text of more characters than this cannot be discovered: it counts as unknown."""

_WORD = "discover"
_ALLOWED: dict[str, set[str]] = {
    "type": {"missing", "on_unknown"},
    "values": {"missing", "on_unknown", "other", "values"},
    "bounds": {"missing", "on_unknown", "decimals", "resolution", "draw", "outside", "spikes", "bounds", "bins"},
    "bins": {"missing", "on_unknown", "decimals", "resolution", "draw", "outside", "spikes", "bins"},
}
COMMON = {"kind", "status", "origin", "role"}
"""The keys under `understudy` that every field may have."""


class Open(Column):
    """A column with facts that still have to be discovered.

    Attributes:
        discovers: what has to be discovered, in order.
        field: the declaration as the file writes it.
    """

    kind: Literal["open"] = "open"
    discovers: tuple[Discoverable, ...]
    field: dict[str, Any]

    @property
    def may_need_delta(self) -> bool:
        """Whether discovery may take a part of delta: values do, and an unknown type may turn out to be text."""
        return bool({"type", "values"} & set(self.discovers))


class Words(Column):
    """A column whose cells a source counts as text: used by the gate only, while values are discovered.

    Attributes:
        tokens: texts that mean "missing" and are not values.
        numeric: whether the values are numbers: a text that writes a number is then that number, in any notation.
    """

    kind: Literal["words"] = "words"
    tokens: tuple[str, ...] = ()
    numeric: bool = False

    def texts(self, cells: Any, dialect: Dialect) -> Any:
        """Return the canonical text of each cell as an arrow dictionary; null for cells that cannot be a value.

        Text loses surrounding blanks (unless the dialect keeps them); typed cells are written by what they mean. Empty
        cells, missing tokens and texts of more than `LONGEST` characters are null. In a column of text values, text
        from a file stays as written even if it looks like a number: "250.0" and "250.00" may be two codes. Text from a
        frame arrives here by its meaning, like all cells of a frame.

        **Privacy.** Each cell is written on its own.
        """
        cells = cells if pa.types.is_dictionary(cells.type) else _make_hashable(cells).dictionary_encode()
        text = to_plain_text(to_text(cells.dictionary, dialect.decimal))
        text = pc.utf8_trim_whitespace(text) if dialect.trim else text
        none = pa.array(["", *self.tokens], pa.string())
        if self.numeric:
            text = meanings(text, dialect.decimal, dialect.group, exact=True)
        said = [
            meaning(token, *marks) for token in self.tokens for marks in ((".", ""), (dialect.decimal, dialect.group))
        ]
        none = pa.concat_arrays([none, _text_array([token for token in said if token is not None])])
        lost = pc.or_kleene(pc.is_in(text, value_set=none), pc.greater(pc.utf8_length(text), LONGEST))
        text = pc.if_else(pc.fill_null(lost, True), pa.scalar(None, pa.string()), text)
        return text.take(cells.indices).dictionary_encode()


class Shape(Categorical):
    """The type that a cell looks like: used by the gate only, while a type is discovered.

    Its codes are `TYPES`, where "number" stands for many decimals, and one for each number of decimals from 1 on.
    """

    values: tuple[str, ...] = (*TYPES, *(f"{places} decimals" for places in range(1, MOST_DECIMALS + 1)))

    def encode_text(self, text: Any, dialect: Dialect) -> dict[str, Codes]:
        """Return the type of distinct texts by what they mean; midnight is a date.

        Digits with a leading zero are text: in a file they are a code, and those of a frame arrive without the zero.
        """
        text = pc.utf8_trim_whitespace(text)
        zeros = np.asarray(pc.fill_null(pc.match_substring_regex(text, r"^[+-]?0[0-9]"), False))
        truth = np.asarray(pc.fill_null(pc.is_in(text, value_set=_text_array([*TRUE, *FALSE])), False))
        meant = meanings(text, dialect.decimal, dialect.group)
        values, (moments, moment) = parse_numbers(meant, dialect.decimal, dialect.group), parse_datetimes(meant, None)
        number = np.isfinite(values) & ~zeros & ~truth
        whole = number & (np.where(number, values, 0.5) == np.rint(np.where(number, values, 0.5)))
        moment &= ~number & ~zeros
        day = moment & (moments % MICROSECONDS["day"] == 0)
        codes = np.select([whole, number, day, moment], [0, _code_decimals(values), 2, 3], 4).astype(np.int32)
        empty = np.asarray(pc.fill_null(pc.is_in(text, value_set=_text_array(["", *self.missing])), True))
        said, when = self._missing_values(dialect)
        empty |= np.asarray(pc.is_null(meant)) | np.isin(values, said) | (moment & np.isin(moments, when))
        codes[empty] = self.empty_code
        return {self.name: codes}

    def _missing_values(self, dialect: Dialect) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the numbers and the moments that missing tokens write, to find them in any spelling or type."""
        tokens = meanings(_text_array([*self.missing]))
        said = [parse_numbers(tokens, how.decimal, how.group) for how in (Dialect(), dialect)]
        moments, valid = parse_datetimes(tokens, None)
        return np.concatenate(said), moments[valid]

    def encode_typed(self, cells: Any, dialect: Dialect) -> dict[str, Codes]:
        """Return the type of cells that are typed already; for other types that of their text."""
        kinds = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal
        if any(fits(cells.type) for fits in kinds):
            values = to_floats(cells)
            whole = values == np.rint(values)
            codes = np.select([~np.isfinite(values), whole], [4, 0], _code_decimals(values)).astype(np.int32)
            codes[np.isin(values, self._missing_values(dialect)[0])] = self.empty_code
        else:
            return self.encode(to_plain_text(to_text(cells, dialect.decimal)), dialect)
        codes[np.asarray(pc.is_null(cells, nan_is_null=True))] = self.empty_code
        return {self.name: codes}

    def table(self) -> list[Entry]:
        """Refuse: an engine with its own types need not guess them.

        Raises:
            SchemaError: always.
        """
        raise SchemaError(f"column {self.name!r}: `type: discover` is for text files; write the column's type instead")


def _code_decimals(values: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the code of `Shape` for each number that is not whole, by its decimals."""
    codes = np.ones(len(values), np.int32)
    for places in range(MOST_DECIMALS, 0, -1):
        with np.errstate(over="ignore", invalid="ignore"):  # a warning would reveal a cell's content
            scaled = values * 10.0**places
            exact = np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(np.abs(scaled), 1.0)
        codes[exact] = len(TYPES) - 1 + places
    return codes


def find_discoveries(field: Mapping[str, Any], ours: Mapping[str, Any]) -> tuple[Discoverable, ...]:
    """Return what a field asks to discover; empty if it declares everything.

    Raises:
        ValueError: if that does not go together with the rest of the field.
    """
    asked: list[Discoverable] = ["type"] if field.get("type") == _WORD else []
    asked += [key for key in ("bounds", "bins", "values") if ours.get(key) == _WORD]
    for key in ("bounds", "values"):
        if key in ours and ours[key] != _WORD:
            raise ValueError(_MISPLACED[key])
    if not asked:
        return ()
    first = asked[0]
    if len(asked) > 1 and asked != ["bounds", "bins"]:
        raise ValueError(f"`{asked[1]}: discover` does not go with `{first}: discover`; remove one of them")
    for key in ours:
        if key not in _ALLOWED[first] | COMMON:
            raise ValueError(f"`{key}` does not go with `{first}: discover`; remove it, or declare what is discovered")
    _check_rest(field, ours, first)
    return tuple(asked)


def trial_facts(field: Mapping[str, Any], codes: int = 2) -> dict[str, Any]:
    """Return facts that discovery might give, with `codes` values or bins, to check the rest of a field beforehand."""
    ours, kind = field.get("understudy", {}), field.get("type", "string")
    if kind == _WORD:
        return {"type": "string", "categories": [f"value {i}" for i in range(codes)]}
    if ours.get("values") == _WORD:
        return {"categories": [f"value {i}" for i in range(codes)] if kind == "string" else list(range(codes))}
    facts: dict[str, Any] = {"bins": codes} if ours.get("bins") in (None, _WORD) else {}
    if ours.get("bounds") == _WORD:
        facts["minimum"], facts["maximum"] = _WIDE.get(str(kind), (-1e6, 1e6))
    spikes = [spike for spike in ours.get("spikes", ()) if isinstance(spike, int | float)]
    if spikes and "minimum" in facts and str(kind) not in _WIDE:
        facts["minimum"], facts["maximum"] = min(-1e6, *spikes), max(1e6, *spikes)
    return facts


_WIDE = {
    "date": ("0001-01-01", "9999-12-31"),
    "datetime": ("0001-01-01T00:00:00", "9999-12-31T00:00:00"),
    "duration": ("-1000000000", "1000000000"),
}
_MISPLACED = {
    "bounds": "`bounds` takes only `discover`; declare bounds as `minimum` and `maximum` under `constraints`",
    "values": "`values` takes only `discover`; declare values under `categories`",
}


def _check_rest(field: Mapping[str, Any], ours: Mapping[str, Any], first: Discoverable) -> None:
    kind, limits = ours.get("kind", field.get("type", "string")), field.get("constraints", {})
    listed = "categories" in field or "enum" in limits
    if listed:
        raise ValueError(f"`categories` does not go with `{first}: discover`; remove one of them")
    if first == "values" and kind not in ("string", "integer", "number"):
        raise ValueError("`values: discover` goes with `type: string`, `integer` or `number`; correct the type")
    if first in ("bounds", "bins") and kind not in ("integer", "number", "date", "datetime", "duration"):
        raise ValueError(f"`{first}: discover` goes with numbers, dates, datetimes and durations; correct the type")
    if first == "bounds" and {"minimum", "maximum"} & set(limits):
        raise ValueError(
            "`bounds: discover` discovers both bounds; remove `minimum` and `maximum`, or `bounds: discover`"
        )
    bins = ours.get("bins")
    if first == "bounds" and bins not in (None, _WORD) and (isinstance(bins, bool) or not isinstance(bins, int)):
        raise ValueError("`bins` together with `bounds: discover` is a number of bins, or `discover`; correct it")


def _make_hashable(cells: Any) -> Any:
    """Convert cells to a type that arrow can dictionary-encode; nested cells become text."""
    if pa.types.is_float16(cells.type):
        return pa.array(cells.to_numpy(zero_copy_only=False).astype(np.float32), from_pandas=True)
    if pa.types.is_nested(cells.type) or pa.types.is_string_view(cells.type) or pa.types.is_binary_view(cells.type):
        return to_plain_text(to_text(cells))
    return cells


def _text_array(values: list[Any]) -> Any:
    return pa.array(values, pa.string())
