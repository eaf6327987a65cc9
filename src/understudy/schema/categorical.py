"""Columns of declared values: categorical, ordinal and boolean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from understudy.schema.column import Coded, Codes, Entry, Generalisation, Level, group_values
from understudy.schema.text import (
    EXACT,
    FALSE,
    TRUE,
    Dialect,
    drop_utc_mark,
    meaning,
    meanings,
    parse_exact_number,
    to_plain_text,
    to_text,
)

Value = bool | int | float | str


class ListedColumn(Coded):
    """A column whose texts the schema lists (`declared_codes`): values, or words for true and false."""

    def encode_text(self, text: Any, dialect: Dialect) -> dict[str, Codes]:
        """Encode distinct texts: as written, then without surrounding blanks, then by what they mean."""
        codes = _look_up(text, self.declared_codes())
        if dialect.trim and (codes == _NOT_FOUND).any():
            codes = np.where(codes == _NOT_FOUND, _look_up(pc.utf8_trim_whitespace(text), self.declared_codes()), codes)
        if (lost := codes == _NOT_FOUND).any():
            meant = meanings(text.filter(pa.array(lost)), dialect.decimal, dialect.group)
            codes[lost] = _look_up(drop_utc_mark(meant), self._codes_by_meaning(dialect.decimal, dialect.group))
            lost[lost] = np.asarray(pc.is_null(meant))
            codes[lost] = self.null_cell_code
        return {self.name: np.where(codes == _NOT_FOUND, self.unknown_code, codes).astype(np.int32)}

    def _codes_by_meaning(self, decimal: str, group: str) -> dict[str, int]:
        """Return codes by the meaning of declared texts, whose numbers are written as in YAML or as in the table.

        Of two declared texts with one meaning, "01" and "1", the shorter one wins, because typed numbers are written
        that way.
        """
        if (decimal, group) not in self._lookups:
            declared, found = self.declared_codes(), dict[str, int]()
            for marks in dict.fromkeys([(decimal, group), (".", "")]):
                for text in sorted(declared, key=lambda text: (-len(text), text)):
                    meant = meaning(text, *marks)
                    if meant is not None:
                        number = parse_exact_number(text, *marks) is not None
                        found[drop_utc_mark(meant.replace(marks[0], decimal) if number else meant)] = declared[text]
            self._lookups[decimal, group] = found
        return self._lookups[decimal, group]

    @cached_property
    def _lookups(self) -> dict[tuple[str, str], dict[str, int]]:
        return {}

    def encode_typed(self, cells: Any, dialect: Dialect) -> dict[str, Codes]:
        """Encode values that are not text, by the text of what they mean."""
        distinct = cells.dictionary_encode() if _has_dictionary(cells.type) else None
        if distinct is None:
            return self.encode(to_plain_text(to_text(cells, dialect.decimal)), dialect)
        codes = self.encode_text(to_plain_text(to_text(distinct.dictionary, dialect.decimal)), dialect)[self.name]
        index = np.asarray(pc.fill_null(distinct.indices, len(codes)))
        return {self.name: np.append(codes, np.int32(self.null_cell_code))[index]}


class Categorical(ListedColumn):
    """A column of declared values; ordinal if their order has a meaning.

    Attributes:
        type: the type of the values in the table.
        values: the declared values, in order.
        labels: names for people, by the text of the value.
        other: the name of unknown values in synthetic text; a declared value of that name includes them.
    """

    kind: Literal["categorical", "ordinal"] = "categorical"
    type: Literal["string", "integer", "number"] = "string"
    values: tuple[Value, ...]
    labels: dict[str, str] = Field(default_factory=dict)
    other: str = "other"

    @field_validator("values", mode="before")
    @classmethod
    def _refuse_booleans(cls, values: Any) -> Any:
        if any(isinstance(value, bool) or value is None for value in values):
            raise ValueError('`categories` holds true/false or null: put quotes around values like "yes", "no", "null"')
        return values

    @model_validator(mode="after")
    def _check_distinct(self) -> Categorical:
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
        """Return whether the type of decoded values can represent this value exactly."""
        return not isinstance(value, int) or abs(value) < {"integer": 1 << 63, "number": EXACT + 1}[self.type]

    @property
    def ordinary(self) -> int:
        """The number of declared values."""
        return len(self.values)

    @property
    def other_code(self) -> int | None:
        """The code of unknown values: that of a declared value named like them, else a code of its own, else None."""
        if self.on_unknown == "other" and self.other in self.values:
            return self.values.index(self.other)
        return super().other_code

    def other_value(self) -> Any:
        """Return the name of unknown values in text; None among numbers."""
        return self.other if self.type == "string" else None

    def token_value(self, token: str) -> Any:
        """Return the token as a value of the column: text as it is, numbers if it is one."""
        if self.type == "string":
            return token
        number = parse_exact_number(token)
        if number is None or not math.isfinite(number):
            return None
        if self.type == "number":
            return float(number)
        return int(number) if number == int(number) and self._holds(int(number)) else None

    @property
    def arrow_type(self) -> Any:
        """The arrow type of the declared values."""
        return {"string": pa.string(), "integer": pa.int64(), "number": pa.float64()}[self.type]

    def declared_codes(self) -> dict[str, int]:
        """Return the texts that the schema names, with their codes: missing tokens, then the values."""
        return self.token_codes() | {str(value): code for code, value in enumerate(self.values)}

    def group(self, level: Level, before: Generalisation | None) -> tuple[NDArray[np.int64], list[str]]:
        """Group values by listing the members of each group."""
        return group_values(level, [str(value) for value in self.values], before)

    def decode_ordinary(self, codes: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Any:
        """Return the declared values."""
        return pa.array(list(self.values), self.arrow_type).take(pa.array(codes[self.name]))

    def table(self) -> list[Entry]:
        """Return an entry for each declared value, then the special codes."""
        named = enumerate(zip(self.values, self.ordinary_labels, strict=True))
        return [Entry(self.name, i, "value", v, label=label) for i, (v, label) in named] + self.special_entries()

    @property
    def ordinary_labels(self) -> list[str]:
        """The declared label of each value, else its text."""
        return [self.labels.get(str(value), str(value)) for value in self.values]


class Boolean(ListedColumn):
    """A column of true and false, in any spelling of the table.

    Attributes:
        true_values: texts that mean true; the first one is written.
        false_values: texts that mean false; the first one is written.
    """

    kind: Literal["boolean"] = "boolean"
    true_values: tuple[str, ...] = ("true", "True", "TRUE", "1")
    false_values: tuple[str, ...] = ("false", "False", "FALSE", "0")

    @model_validator(mode="after")
    def _check_words_differ(self) -> Boolean:
        if not self.true_values or not self.false_values:
            raise ValueError("`trueValues` and `falseValues` each need at least one text; add one")
        both = set(self.true_values) & set(self.false_values)
        if both:
            raise ValueError(f"{sorted(both)[0]!r} means both true and false; remove it from one of the two lists")
        if shared := {*self.true_values, *self.false_values} & set(self.missing):
            words = f"{sorted(shared)[0]!r} is both a truth value and a `missing` token"
            raise ValueError(f"{words}; remove one, or list `trueValues` and `falseValues` without it")
        _ = self.generalisations
        return self

    @property
    def ordinary(self) -> int:
        """Two codes: false is 0, true is 1."""
        return 2

    @property
    def arrow_type(self) -> Any:
        """Arrow's boolean."""
        return pa.bool_()

    @cached_property
    def _words(self) -> dict[str, int]:
        """The code of each word.

        Plain true and false are always understood, because frames hold them beside an odd cell.
        """
        plain = {word: code for code, words in enumerate((FALSE, TRUE)) for word in words if word not in self.missing}
        return plain | dict.fromkeys(self.false_values, 0) | dict.fromkeys(self.true_values, 1)

    def declared_codes(self) -> dict[str, int]:
        """Return the texts that the schema names, with their codes: missing tokens, then words for true and false."""
        return self.token_codes() | self._words

    def group(self, level: Level, before: Generalisation | None) -> tuple[NDArray[np.int64], list[str]]:
        """Group "false" and "true"."""
        return group_values(level, ["false", "true"], before)

    @property
    def ordinary_labels(self) -> list[str]:
        """The words that are written for false and true."""
        return [self.false_values[0], self.true_values[0]]

    def decode_ordinary(self, codes: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Any:
        """Return booleans."""
        return pa.array(np.asarray(codes[self.name]) == 1)

    def format_values(self, values: Any, dialect: Dialect) -> Any:
        """Return the first declared text of each value."""
        return pc.if_else(values, self.true_values[0], self.false_values[0])

    def table(self) -> list[Entry]:
        """Return entries for false and true, then the special codes."""
        words = [(0, text) for text in self.false_values] + [(1, text) for text in self.true_values]
        return [
            Entry(self.name, code, "value", text, label=str(bool(code))) for code, text in words
        ] + self.special_entries()


_NOT_FOUND = np.iinfo(np.int32).min


def _look_up(text: Any, codes: Mapping[str, int]) -> NDArray[np.int32]:
    """Return the code of each text, `_NOT_FOUND` if it has none."""
    found = np.asarray(pc.fill_null(pc.index_in(text, value_set=pa.array(list(codes), pa.string())), len(codes)))
    table: NDArray[np.int32] = np.append(np.fromiter(codes.values(), np.int32, len(codes)), np.int32(_NOT_FOUND))
    return np.asarray(table[found], np.int32)


def _has_dictionary(kind: Any) -> bool:
    """Return whether arrow can dictionary-encode cells of this type."""
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) and not pa.types.is_float16(kind)
