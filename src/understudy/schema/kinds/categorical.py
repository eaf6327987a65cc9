"""Columns of declared values: categorical, ordinal, boolean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from understudy.schema.format.dialect import Dialect
from understudy.schema.kinds.coded import Coded, plain_text
from understudy.schema.kinds.levels import Generalisation, Level, group_values
from understudy.schema.kinds.table import DROP, Codes, Entry
from understudy.schema.kinds.text import (
    EXACT,
    NOT_A_NUMBER,
    clocks,
    exact_number,
    exact_numbers,
    floats,
    listed,
    moments_as_text,
    objects_as_text,
)
from understudy.schema.kinds.times import datetimes

Value = bool | int | float | str
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
"""How files write truth: what readers of files make a truth value of."""


class Categorical(Coded):
    """Declared values; ordinal when their order means something.

    Attributes:
        type: the type of the values in the table.
        values: the declared values, in order.
        labels: what people call them, by the text of the value.
        other: what unknown values are called in synthetic text; a declared value of that name takes them in.
    """

    kind: Literal["categorical", "ordinal"] = "categorical"
    type: Literal["string", "integer", "number"] = "string"
    values: tuple[Value, ...]
    labels: dict[str, str] = Field(default_factory=dict)
    other: str = "other"

    @field_validator("values", mode="before")
    @classmethod
    def _no_booleans(cls, values: Any) -> Any:
        if any(isinstance(value, bool) or value is None for value in values):
            raise ValueError('`categories` holds true/false or null: put quotes around values like "yes", "no", "null"')
        return values

    @model_validator(mode="after")
    def _distinct(self) -> Categorical:
        if not self.values:
            raise ValueError("`categories` is empty; list the values, or use `kind: drop`")
        wanted: tuple[type, ...] = {"string": (str,), "integer": (int,), "number": (int, float)}[self.type]
        if not all(isinstance(value, wanted) for value in self.values):
            raise ValueError(f"`categories` must all be of type {self.type}; put quotes around text, or change `type`")
        if len(set(self.values)) != len(self.values):
            raise ValueError("`categories` names a value twice; remove the repetition")
        both = {str(value) for value in self.values} & set(self.missing)
        if both:
            raise ValueError(f"{sorted(both)[0]!r} is both a category and a `missing` token; remove one of them")
        if not all(self._holds(value) for value in self.values):
            raise ValueError(f"`categories` has a number too long for type {self.type}; use `string`, with quotes")
        _ = self.generalisations
        return self

    def _holds(self, value: Value) -> bool:
        """Whether the type of decoded values tells this one from all others."""
        return not isinstance(value, int) or abs(value) < {"integer": 1 << 63, "number": EXACT + 1}[self.type]

    @property
    def ordinary(self) -> int:
        """How many values are declared."""
        return len(self.values)

    @property
    def other_code(self) -> int | None:
        """The code of unknown values: a declared value of that name, else a code of its own, else None."""
        if self.on_unknown == "other" and self.other in self.values:
            return self.values.index(self.other)
        return super().other_code

    @property
    def shows_other(self) -> bool:
        """Text can say "other"; numbers cannot."""
        return self.type == "string"

    def other_value(self) -> Any:
        """The name of unknown values in text; null among numbers."""
        return self.other if self.shows_other else None

    def token_value(self, token: str) -> Any:
        """The token itself in text; in numbers, where it is one."""
        if self.type == "string":
            return token
        number = exact_number(token)
        if number is None or not math.isfinite(number):
            return None
        if self.type == "number":
            return float(number)
        return int(number) if number == int(number) and self._holds(int(number)) else None

    @property
    def arrow_type(self) -> Any:
        """The arrow type of the declared values."""
        import pyarrow as pa

        return {"string": pa.string(), "integer": pa.int64(), "number": pa.float64()}[self.type]

    def encode_text(self, text: Any, dialect: Dialect) -> dict[str, Codes]:
        """Codes of distinct texts: as written, then without blanks around, then by the number or moment they write.

        By number and moment also where the values are text: whether a frame holds "7.0" or 7.0, and in which type,
        depends on what its reader found in other rows.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        lookup = self._lookup
        keys, codes = pa.array(list(lookup), pa.string()), np.fromiter(lookup.values(), np.int32, len(lookup))
        found = np.asarray(pc.fill_null(pc.index_in(text, value_set=keys), -1))
        if dialect.trim and (found < 0).any():
            trimmed = np.asarray(pc.fill_null(pc.index_in(pc.utf8_trim_whitespace(text), value_set=keys), -1))
            found = np.where(found < 0, trimmed, found)
        result = np.where(found < 0, np.int32(self.unknown_code), codes[found])
        if (lost := found < 0).any():
            result[lost] = self._by_meaning(text.filter(pa.array(lost)), dialect)
        result[np.asarray(pc.is_null(text))] = self.empty_code
        return {self.name: result.astype(np.int32)}

    def _by_meaning(self, text: Any, dialect: Dialect) -> Codes:
        """Codes of texts that are not declared in this writing."""
        codes = np.full(len(text), self.unknown_code, np.int32)
        if self._number_lookup:
            values = exact_numbers(text, dialect.decimal, dialect.group)
            codes = self._of_numbers(values, nan=self.unknown_code)
        if self._moment_lookup:
            moments = [DROP if moment is None else self._moment_lookup.get(moment, DROP) for moment in _moments(text)]
            found = np.asarray(moments, np.int32)
            codes = np.where(found == DROP, codes, found)
        return codes

    @cached_property
    def _lookup(self) -> dict[str, int]:
        known = self.tokens() | {str(value): code for code, value in enumerate(self.values)}
        for words in (TRUE, FALSE):  # a reader may have made one of another, or not, for what it found in other rows
            if said := [known[word] for word in words if word in known]:
                known = dict.fromkeys(words, said[0]) | known
        if any(exact_number(str(value)) is not None for value in self.values):
            known = dict.fromkeys(NOT_A_NUMBER, self.empty_code) | known
        return known

    @cached_property
    def _moment_lookup(self) -> dict[int, int]:
        import pyarrow as pa

        texts = list(self._lookup) if self.type == "string" else []
        moments = zip(_moments(pa.array(texts, pa.string())), texts, strict=True)
        return {moment: self._lookup[text] for moment, text in reversed(list(moments)) if moment is not None}

    def encode_typed(self, cells: Any, dialect: Dialect) -> dict[str, Codes]:
        """Codes of values that are not text: numbers by their number, everything else by its text.

        With another decimal mark numbers go by their text as well: a value may be declared as the table writes it.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        broken = pa.types.is_floating(cells.type) or pa.types.is_decimal(cells.type)
        if (broken and dialect.decimal == ".") or pa.types.is_integer(cells.type):
            distinct = cells.dictionary_encode()
            table = self._of_numbers([*_numbers(distinct.dictionary), math.nan], nan=self.empty_code)
            index = np.asarray(pc.fill_null(distinct.indices, len(distinct.dictionary)))
            return {self.name: table[index]}
        return self.encode(plain_text(as_text(cells, dialect.decimal)), dialect)

    def _of_numbers(self, values: list[int | float], *, nan: int) -> Codes:
        whole, floats, unknown = self._number_lookup, self._float_lookup, self.unknown_code
        codes = [
            nan if value != value else (whole if isinstance(value, int) else floats).get(value, unknown)
            for value in values
        ]
        return np.asarray(codes, np.int32)

    @cached_property
    def _number_lookup(self) -> dict[int | float, int]:
        # "01" and "1" are the same number: a number of the table is written the short way, so that text goes last
        texts = sorted(self._lookup, key=lambda text: (-len(text), text))
        return {number: self._lookup[text] for text in texts if (number := exact_number(text)) is not None}

    @cached_property
    def _float_lookup(self) -> dict[int | float, int]:
        """For floating point, to which a reader that found an empty cell rounds the long whole numbers of all rows."""
        return {float(number): code for number, code in self._number_lookup.items()} | self._number_lookup

    def group(self, level: Level, before: Generalisation | None) -> tuple[NDArray[np.int64], list[str]]:
        """Groups by listing their members."""
        return group_values(level, [str(value) for value in self.values], before)

    def decode_ordinary(self, codes: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Any:
        """The declared values."""
        import pyarrow as pa

        return pa.array(list(self.values), self.arrow_type).take(pa.array(codes[self.name]))

    def table(self) -> list[Entry]:
        """Every declared value, then the special codes."""
        labels = [self.labels.get(str(value), str(value)) for value in self.values]
        rows = [
            Entry(self.name, i, "value", v, label=label)
            for i, (v, label) in enumerate(zip(self.values, labels, strict=True))
        ]
        return rows + self.specials()


class Boolean(Coded):
    """True or false, however the table writes them.

    Attributes:
        true_values: texts that mean true; the first one is written.
        false_values: texts that mean false; the first one is written.
    """

    kind: Literal["boolean"] = "boolean"
    true_values: tuple[str, ...] = ("true", "True", "TRUE", "1")
    false_values: tuple[str, ...] = ("false", "False", "FALSE", "0")

    @model_validator(mode="after")
    def _apart(self) -> Boolean:
        if not self.true_values or not self.false_values:
            raise ValueError("`trueValues` and `falseValues` each need at least one text; add one")
        both = set(self.true_values) & set(self.false_values)
        if both:
            raise ValueError(f"{sorted(both)[0]!r} means both true and false; remove it from one of the two lists")
        if said := {*self.true_values, *self.false_values} & set(self.missing):
            words = f"{sorted(said)[0]!r} is both a truth value and a `missing` token"
            raise ValueError(f"{words}; remove one, or list `trueValues` and `falseValues` without it")
        _ = self.generalisations
        return self

    @property
    def ordinary(self) -> int:
        """False is code 0, true is code 1."""
        return 2

    @property
    def arrow_type(self) -> Any:
        """Arrow's boolean."""
        import pyarrow as pa

        return pa.bool_()

    @cached_property
    def _words(self) -> dict[str, int]:
        """What each word means. True and false mean themselves: a frame holds them as words beside one odd cell."""
        plain = {word: code for code, words in enumerate((FALSE, TRUE)) for word in words if word not in self.missing}
        return plain | dict.fromkeys(self.false_values, 0) | dict.fromkeys(self.true_values, 1)

    @cached_property
    def _texts(self) -> Categorical:
        """The same column as text, to look words up in."""
        words = self._words
        shared = {"nullable": self.nullable, "missing": self.missing, "on_unknown": self.on_unknown}
        return Categorical.model_validate({"name": self.name, "values": tuple(words), "other": "\0", **shared})

    def encode_text(self, text: Any, dialect: Dialect) -> dict[str, Codes]:
        """Codes of distinct texts."""
        return {self.name: self._folded(self._texts.encode_text(text, dialect)[self.name])}

    def _folded(self, codes: Codes) -> Codes:
        """Word codes to 0/1, special codes moved down."""
        words = self._texts.ordinary
        table = list(self._words.values())
        table += list(range(2, 2 + self._texts.size - words))
        return np.where(codes < 0, codes, np.asarray(table, np.int32)[np.maximum(codes, 0)]).astype(np.int32)

    def encode_typed(self, cells: Any, dialect: Dialect) -> dict[str, Codes]:
        """Codes of booleans, as the words that stand for them beside an odd cell; numbers by their text ("1", "0")."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_boolean(cells.type):
            codes = self.encode_text(pa.array(["false", "true", None], pa.string()), dialect)[self.name]
            return {self.name: codes[np.asarray(pc.fill_null(cells.cast(pa.int8()), 2))]}
        codes = self._texts.encode_typed(cells, dialect)[self.name]
        return {self.name: self._folded(codes)}

    def group(self, level: Level, before: Generalisation | None) -> tuple[NDArray[np.int64], list[str]]:
        """Groups of "false" and "true"."""
        return group_values(level, ["false", "true"], before)

    def decode_ordinary(self, codes: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Any:
        """Booleans."""
        import pyarrow as pa

        return pa.array(np.asarray(codes[self.name]) == 1)

    def text_of(self, values: Any, dialect: Dialect) -> Any:
        """The first declared text of each."""
        import pyarrow.compute as pc

        return pc.if_else(values, self.true_values[0], self.false_values[0])

    def table(self) -> list[Entry]:
        """False, true, then the special codes."""
        words = [(0, text) for text in self.false_values] + [(1, text) for text in self.true_values]
        return [Entry(self.name, code, "value", text, label=str(bool(code))) for code, text in words] + self.specials()


def as_text(cells: Any, decimal: str = ".") -> Any:
    """Any arrow array as text: each cell as it is written where a frame holds Python objects beside it.

    Where arrow cannot write one cell, every cell is written on its own.
    """
    import pyarrow as pa

    kinds = pa.types.is_floating, pa.types.is_decimal, pa.types.is_duration, pa.types.is_time
    if any(fits(cells.type) for fits in kinds):
        distinct = cells.dictionary_encode()
        written = clocks if pa.types.is_time(cells.type) else listed
        return objects_as_text(written(distinct.dictionary), decimal).take(distinct.indices)
    try:
        return moments_as_text(cells) if pa.types.is_timestamp(cells.type) else cells.cast(pa.string())
    except pa.ArrowException:
        return objects_as_text(listed(cells), decimal)


def _moments(text: Any) -> list[int | None]:
    """Microseconds of the texts that write a day or a moment as files and engines do; a day is its midnight."""
    import pyarrow as pa
    import pyarrow.compute as pc

    written = pc.fill_null(pc.match_substring_regex(text, r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|\s*$)"), False)
    if not pc.any(written).as_py():
        return [None] * len(text)
    moments, valid = datetimes(pc.if_else(written, text, pa.scalar(None, text.type)), None)
    return [moment if is_one else None for moment, is_one in zip(moments.tolist(), valid.tolist(), strict=True)]


def _numbers(cells: Any) -> list[int | float]:
    """The numbers of an arrow array without nulls; whole numbers too long for floating point are themselves."""
    import pyarrow as pa

    if pa.types.is_integer(cells.type):
        return list(np.asarray(cells).tolist())
    found: list[int | float] = floats(cells).tolist()
    if not pa.types.is_decimal(cells.type):
        return found
    long = (place for place, number in enumerate(found) if abs(number) >= EXACT)
    exact = {place: whole for place in long if (whole := int(cell := cells[place].as_py())) == cell}
    return [exact.get(place, number) for place, number in enumerate(found)]
