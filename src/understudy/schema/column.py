"""Columns: what is declared about them, and how cells become codes and codes become cells.

`Column` is the base of all kinds. `Coded` columns are synthesised; `Dropped`, `Constant`, `Identifier` and `Difference`
columns never reach a mechanism.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from understudy.schema.text import EMPTY, Dialect, is_text_type, meaning, to_plain_text

Scalar: TypeAlias = str | int | float | bool | None
What: TypeAlias = Literal["value", "interval", "multiple", "missing", "null", "unknown"]


@dataclass(frozen=True)
class Entry:
    """One code of one coded column.

    A cell gets the code of the first entry that matches, tried in this order: ``missing`` (the cell is this token or,
    on a numeric axis, the number or time that the token writes), ``null`` (the cell is empty, or a token without a
    reason), ``value`` (equal), ``interval`` (``lower <= x < upper`` after clipping to the range that the entries cover;
    with ``closed`` also ``upper``), ``unknown`` (everything else). A part made of ``multiple`` entries divides the cell
    by each ``value`` in turn: the first divisor without remainder wins, and ``value`` None means "no divisor".

    Attributes:
        part: the name of the coded column in the domain.
        code: the code.
        what: how the entry is tested.
        value: the value, the missing token, or the divisor. Dates are days; datetimes and durations are microseconds.
        lower: the lower end of an interval.
        upper: the upper end of an interval.
        closed: whether the interval contains its upper end.
        label: a name for people.
    """

    part: str
    code: int
    what: What
    value: Scalar = None
    lower: float | int | None = None
    upper: float | int | None = None
    closed: bool = False
    label: str | None = None


def smallest_dtype(size: int) -> type[np.uint8] | type[np.uint16] | type[np.uint32]:
    """Return the smallest unsigned type that holds codes ``0 .. size-1``."""
    return np.uint8 if size <= 1 << 8 else np.uint16 if size <= 1 << 16 else np.uint32


DROP = -1
"""The code of an unknown cell in a column with ``on_unknown: drop_row``: its row is dropped."""

Codes: TypeAlias = NDArray[np.int32]
"""Codes during encoding; `DROP` marks rows that are dropped."""


# -- Columns of all kinds --------------------------------------------------------------------------------------------


Kind = Literal[
    "categorical", "ordinal", "boolean", "integer", "number", "date", "datetime", "duration", "drop", "id", "constant",
    "difference", "open", "words",
]  # fmt: skip


class Column(BaseModel):
    """A declared column.

    Attributes:
        name: its name in the table.
        kind: the kind of column.
        title: a short name for people.
        description: what it means.
        status: "draft" until a person has reviewed the proposal, then "reviewed".
        origin: the origin of its facts: "public" documents, a "reviewed" draft, or "discovered" with budget.
        role: "income" for the amounts whose inequality and gaps matter, "income_group" for the columns by which they
            are compared; `nist-mst` measures these more precisely.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(property,))

    name: str
    kind: Kind
    title: str | None = None
    description: str | None = None
    status: Literal["draft", "reviewed"] = "reviewed"
    origin: Literal["public", "reviewed", "discovered"] = "public"
    role: Literal["income", "income_group"] | None = None

    @property
    def size(self) -> int:
        """The number of codes of its first part; 0 if the column is not synthesised."""
        return 0

    @property
    def parts(self) -> dict[str, int]:
        """The coded columns that it becomes, with their sizes; empty if the column is not synthesised."""
        return {}

    def table(self) -> list[Entry]:
        """Return its whole coding as data; empty if the column is not synthesised."""
        return []


class Dropped(Column):
    """A column that is neither read nor written."""

    kind: Literal["drop"] = "drop"


class Constant(Column):
    """A column with the same public value in every row."""

    kind: Literal["constant"] = "constant"
    value: bool | int | float | str | None

    def make(self, rows: int) -> Any:
        """Return the column as an arrow array."""
        return pa.repeat(pa.scalar(self.value, pa.string() if self.value is None else None), rows)


class Identifier(Column):
    """A column of fresh unique keys, made from a pattern and independent of the data.

    Attributes:
        pattern: text with `#`, replaced by the digits of a running number with leading zeros; None: integers from 1.
    """

    kind: Literal["id"] = "id"
    pattern: str | None = None

    @model_validator(mode="after")
    def _check_length(self) -> Identifier:
        if self.pattern is not None and "#" not in self.pattern:
            raise ValueError('`pattern` needs "#" for the digits of a number, as in "P-######"; correct the pattern')
        return self

    def make(self, rows: int, *, first: int = 1, last: int | None = None) -> Any:
        """Return keys for `rows` rows, starting with number `first`, padded to the width of the key of row `last`."""
        numbers = pa.array(np.arange(first, first + rows))
        if self.pattern is None:
            return numbers
        width = max(self.pattern.count("#"), len(str(first + rows - 1 if last is None else last)))
        digits = pc.utf8_lpad(numbers.cast(pa.string()), width, "0")
        *runs, after = re.findall("([^#]*)(#+|$)", self.pattern)
        parts, end = [after[0]], width
        for place, (before, run) in reversed(list(enumerate(runs))):
            start = end - len(run) if place else 0  # the first run takes digits for which there is no room
            parts = [before, pc.utf8_slice_codeunits(digits, start, end), *parts]
            end = start
        return pc.binary_join_element_wise(*parts, "")


class Difference(Column):
    """A column of whole days from one date to another, computed from the synthetic rows: `stay` in days.

    Attributes:
        of: the later and the earlier column, as in ``[discharged, admitted]``.
    """

    kind: Literal["difference"] = "difference"
    of: tuple[str, str]


# -- Generalisation levels: city < state < country, or age in groups of 1, 5 and 10 years ----------------------------


class Level(BaseModel):
    """A generalisation level: a coarser grouping of a column's values. Each level is coarser than the one before.

    Attributes:
        name: its name ("state", "5 years").
        groups: for declared values: the members of each group, as values of the column or groups of the level before.
        rest: the group of every value that no group names.
        width: for numbers and times: the width of a group.
        edges: for numbers and times: where groups begin; the last one is open.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    groups: dict[str, tuple[bool | int | float | str, ...]] | None = None
    rest: str | None = None
    width: float | str | None = None
    edges: tuple[float | str, ...] | None = None

    @model_validator(mode="after")
    def _check_choice(self) -> Level:
        if sum(given is not None for given in (self.groups, self.width, self.edges)) != 1:
            raise ValueError(f"level {self.name!r} takes exactly one of `groups`, `width` and `edges`; correct it")
        if self.rest is not None and self.groups is None:
            raise ValueError(f"level {self.name!r}: `rest` goes with `groups`; remove it")
        return self


@dataclass(frozen=True, eq=False)
class Generalisation:
    """A level applied to a column: the group of each code.

    Attributes:
        name: the level's name.
        groups: the group of each code; reasons for missing, nulls and unknown values have groups of their own.
        labels: the names of the groups.
    """

    name: str
    groups: NDArray[np.int64]
    labels: tuple[str, ...]


def group_values(
    level: Level, texts: Sequence[str], before: Generalisation | None
) -> tuple[NDArray[np.int64], list[str]]:
    """Group declared values by listing the members of each group.

    Raises:
        ValueError: naming the level and the remedy.
    """
    if level.groups is None:
        raise ValueError(f"level {level.name!r}: declared values are put into `groups`; list the members of each")
    labels = list(level.groups) + ([level.rest] if level.rest is not None and level.rest not in level.groups else [])
    group_of: dict[str, int] = {}
    for index, members in enumerate(level.groups.values()):
        for member in members:
            if group_of.setdefault(str(member), index) != index:
                raise ValueError(f"level {level.name!r} puts {str(member)!r} into two groups; name it once")
    known = set(texts) | (set(before.labels) if before else set())
    strange = [member for member in group_of if member not in known]
    if strange:
        raise ValueError(f"level {level.name!r} names {strange[0]!r}, which is not a value of the column; correct it")
    rest = None if level.rest is None else labels.index(level.rest)
    result = []
    for code, text in enumerate(texts):
        parent = before.labels[before.groups[code]] if before else ""
        group = group_of.get(text, group_of.get(parent, rest))
        if group is None:
            raise ValueError(f"level {level.name!r} leaves out {text!r}; add it to a group, or name a `rest` group")
        result.append(group)
    return np.asarray(result, dtype=np.int64), labels


def group_intervals(
    level: Level, lower: NDArray[Any], last: NDArray[Any], edges: NDArray[Any], names: Sequence[str]
) -> tuple[NDArray[np.int64], list[str]]:
    """Group bins and spikes by ascending edges; the last group is open.

    Raises:
        ValueError: if an edge cuts through a bin.
    """
    groups = np.clip(np.searchsorted(edges, lower, side="right") - 1, 0, None)
    if (np.clip(np.searchsorted(edges, last, side="right") - 1, 0, None) != groups).any():
        raise ValueError(f"level {level.name!r} cuts through a bin of the column; put its edges on edges of the bins")
    return groups.astype(np.int64), list(names)


def complete_level(
    level: Level, groups: NDArray[np.int64], labels: Sequence[str], specials: Sequence[str]
) -> Generalisation:
    """Extend a level to all codes: drop groups without members and give each special code a group of its own."""
    used, groups = np.unique(groups, return_inverse=True)
    kept = [labels[index] for index in used.tolist()]
    extra = np.arange(len(specials)) + len(kept)
    return Generalisation(level.name, np.concatenate((groups, extra)).astype(np.int64), (*kept, *specials))


def check_nesting(finer: Generalisation | None, coarser: Generalisation) -> None:
    """Refuse a level that splits a group of the level before.

    Raises:
        ValueError: naming the level and the remedy.
    """
    if finer is None:
        return
    pairs = {(int(a), int(b)) for a, b in zip(finer.groups, coarser.groups, strict=True)}
    if len(pairs) != len(set(finer.groups.tolist())):
        raise ValueError(f"level {coarser.name!r} splits a group of level {finer.name!r}; order levels finest first")


# -- Synthesised columns ---------------------------------------------------------------------------------------------


class Coded(Column):
    """A column that is synthesised. Every cell has a code, and no cell can make encoding fail.

    Codes are laid out as: ordinary codes, one code per reason for missing, the null code (if nullable), the code of
    unknown values (if ``on_unknown`` is "other" and no declared value has that name).

    Attributes:
        nullable: whether empty cells are expected; they then have their own code.
        missing: cells that mean "missing", with their reason; the reason None means a plain null.
        on_unknown: how cells without a declared meaning are treated: "other" (their own code), "null" or "drop_row".
        levels: generalisation levels, finest first.
    """

    nullable: bool = True
    missing: dict[str, str | None] = Field(default_factory=dict)
    on_unknown: Literal["other", "null", "drop_row"] = "other"
    levels: tuple[Level, ...] = ()

    @model_validator(mode="after")
    def _check_null(self) -> Coded:
        if not self.nullable and self.on_unknown == "null":
            raise ValueError("`on_unknown: null` needs a nullable column; remove `required` or use `other`/`drop_row`")
        if not self.nullable and None in self.missing.values():
            raise ValueError("`missing` declares a plain null but the column is `required`; name the reason instead")
        return self

    # -- the layout of codes -------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def ordinary(self) -> int:
        """The number of codes for values or bins."""

    @property
    def reasons(self) -> list[str]:
        """The reasons for missing that have their own code, sorted: codes do not depend on the order in a file."""
        return sorted({reason for reason in self.missing.values() if reason is not None})

    @property
    def null_code(self) -> int | None:
        """The code of empty cells, or None if the column is not nullable."""
        return self.ordinary + len(self.reasons) if self.nullable else None

    @property
    def other_code(self) -> int | None:
        """The code of unknown values, or None if they have none."""
        return self._after_null if self.on_unknown == "other" else None

    @property
    def size(self) -> int:
        """The number of codes of the column (its first part)."""
        return self._after_null + (self.other_code == self._after_null)

    @property
    def _after_null(self) -> int:
        return self.ordinary + len(self.reasons) + self.nullable

    @property
    def parts(self) -> dict[str, int]:
        """The coded columns that it becomes, with their sizes."""
        return {self.name: self.size}

    @property
    def unknown_code(self) -> int:
        """The code of an unknown cell; `DROP` if its row is dropped."""
        code = {"other": self.other_code, "null": self.null_code, "drop_row": DROP}[self.on_unknown]
        return DROP if code is None else code

    @property
    def empty_code(self) -> int:
        """The code of an empty cell: null, or unknown if the column is not nullable."""
        return self.unknown_code if self.null_code is None else self.null_code

    def reason_code(self, reason: str | None) -> int:
        """Return the code of a reason for missing."""
        return self.empty_code if reason is None else self.ordinary + self.reasons.index(reason)

    def token_codes(self) -> dict[str, int]:
        """Return the codes of cells that mean "missing", including the empty cell."""
        return {"": self.empty_code} | {token: self.reason_code(reason) for token, reason in self.missing.items()}

    # -- levels --------------------------------------------------------------------------------------------------

    @abstractmethod
    def group(self, level: Level, before: Generalisation | None) -> tuple[NDArray[np.int64], list[str]]:
        """Return the group of each ordinary code, and the names of the groups."""

    @cached_property
    def generalisations(self) -> dict[str, Generalisation]:
        """The declared levels by name, finest first, each as an array ``code -> group``."""
        found: dict[str, Generalisation] = {}
        before: Generalisation | None = None
        specials = [*self.reasons, *(["null"] * self.nullable), *(["other"] * (self.size > self._after_null))]
        for level in self.levels:
            made = complete_level(level, *self.group(level, before), specials)
            check_nesting(before, made)
            if level.name in found:
                raise ValueError(f"level {level.name!r} is declared twice; rename one of them")
            before = found[level.name] = made
        return found

    # -- encoding and decoding -----------------------------------------------------------------------------------

    def encode(self, cells: Any, dialect: Dialect) -> dict[str, Codes]:
        """Encode an arrow array; return codes by part, with `DROP` for rows that are dropped. No cell raises an error.

        Text and dictionaries are encoded once per distinct value. A text that the schema names is looked up as written;
        every other cell counts by its `meaning`.
        """
        if pa.types.is_float16(cells.type):  # arrow has few kernels for this type
            cells = pa.array(cells.to_numpy(zero_copy_only=False).astype(np.float32), from_pandas=True)
        if pa.types.is_dictionary(cells.type):
            return self._encode_dictionary(cells, dialect)
        if is_text_type(cells.type):
            flat = to_plain_text(cells) if pa.types.is_string_view(cells.type) else cells
            return self._encode_dictionary(flat.dictionary_encode(), dialect)
        return self.encode_typed(cells, dialect)

    def _encode_dictionary(self, cells: Any, dialect: Dialect) -> dict[str, Codes]:
        distinct = cells.dictionary
        # nulls get an index of their own
        index = np.asarray(pc.fill_null(cells.indices.cast(pa.int64()), len(distinct)))
        text = is_text_type(distinct.type)
        tables = self.encode_text(to_plain_text(distinct), dialect) if text else self.encode_typed(distinct, dialect)
        null = self.null_codes()
        return {part: np.append(codes, np.int32(null[part]))[index] for part, codes in tables.items()}

    def declared_codes(self) -> dict[str, int]:
        """Return the texts that the schema names, with their codes."""
        return self.token_codes()

    def ambiguous_texts(self) -> list[str]:
        """Return declared texts that readers that guess types take for another one, or for an empty cell."""
        alike: dict[str | None, dict[str, int]] = {}
        for text, code in self.declared_codes().items():
            alike.setdefault(meaning(text), {})[text] = code
        return [text for found in alike.values() if len(set(found.values())) > 1 for text in found if text]

    @cached_property
    def null_cell_code(self) -> int:
        """The code of a cell without content.

        If the schema names a text that readers take for an empty cell, such as NA, it is the code of that text, because
        whether a reader does so depends on other cells of the column.
        """
        named = {
            text: code for text, code in self.declared_codes().items() if text in EMPTY and (text or "" in self.missing)
        }
        return named.get("", next(iter(named.values()), self.empty_code))

    def null_codes(self) -> dict[str, int]:
        """Return the codes of an empty cell, by part."""
        return {part: self.null_cell_code if part == self.name else 0 for part in self.parts}

    @abstractmethod
    def encode_text(self, text: Any, dialect: Dialect) -> dict[str, Codes]:
        """Encode distinct texts (an arrow string array, possibly with nulls)."""

    @abstractmethod
    def encode_typed(self, cells: Any, dialect: Dialect) -> dict[str, Codes]:
        """Encode an arrow array that is not text."""

    @abstractmethod
    def decode_ordinary(self, codes: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Any:
        """Return the values of rows whose codes are all ordinary, as an arrow array."""

    @property
    @abstractmethod
    def arrow_type(self) -> Any:
        """The arrow type of decoded values."""

    def decode(self, codes: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Any:
        """Decode codes (by part) into an arrow array of `arrow_type`.

        A reason for missing becomes its token if the type can hold it, else null. An unknown value becomes null; in a
        column without nulls it is replaced by the value of a randomly chosen other row.
        """
        return self._decode(codes, rng, self.decode_special())

    def decode_text(self, codes: Mapping[str, NDArray[Any]], rng: np.random.Generator, dialect: Dialect) -> Any:
        """Decode codes into text as the table's file writes it, with each reason for missing as its own token."""
        tokens = self._tokens_by_reason()
        empty = tokens.get(None, "")
        shown = [tokens[reason] for reason in self.reasons] + [empty] * self.nullable
        shown += [str(self.other_value()) if self.shows_other else empty, ""]
        return self._decode(
            codes, rng, pa.array(shown, pa.string()), lambda values: self.format_values(values, dialect)
        )

    def _decode(
        self,
        codes: Mapping[str, NDArray[Any]],
        rng: np.random.Generator,
        specials: Any,
        finish: Callable[[Any], Any] = lambda values: values,
    ) -> Any:
        """Decode codes, with the values of the special codes in order, and any last one for padding."""
        main, codes = self.replace_unknown(np.asarray(codes[self.name]), codes, rng)
        special = main >= self.ordinary
        if main.size and not special.any():
            return finish(self.decode_ordinary(codes, rng))
        values = finish(self.decode_ordinary({part: np.where(special, 0, array) for part, array in codes.items()}, rng))
        picked = np.where(special, main - self.ordinary, len(specials) - 1)
        return pc.if_else(pa.array(special), specials.take(pa.array(picked)), values)

    def format_values(self, values: Any, dialect: Dialect) -> Any:
        """Format decoded values as text."""
        return values.cast(pa.string())

    def replace_unknown(
        self, main: NDArray[Any], codes: Mapping[str, NDArray[Any]], rng: np.random.Generator
    ) -> tuple[NDArray[Any], Mapping[str, NDArray[Any]]]:
        """Replace unknown codes by those of randomly chosen other rows, if the column cannot show an unknown value."""
        if self.nullable or self.other_code is None or self.shows_other:
            return main, codes
        unknown = np.flatnonzero(main == self.other_code)
        if not len(unknown):
            return main, codes
        pool = np.flatnonzero(main != self.other_code)
        chosen = {part: np.array(array) for part, array in codes.items()}
        if len(pool):
            donors = pool[rng.integers(0, len(pool), len(unknown))]
            for array in chosen.values():
                array[unknown] = array[donors]
        else:
            chosen[self.name][unknown] = rng.integers(0, self.ordinary, len(unknown))
        return chosen[self.name], chosen

    @property
    def shows_other(self) -> bool:
        """Whether decoded values can say "other"."""
        return self.other_value() is not None

    def _tokens_by_reason(self) -> dict[str | None, str]:
        """Return the first token of each reason for missing."""
        return {reason: token for token, reason in reversed(list(self.missing.items()))}

    def decode_special(self) -> Any:
        """Return the decoded values of the special codes, in order, followed by a null for padding."""
        tokens = self._tokens_by_reason()
        shown = [self.token_value(tokens[reason]) for reason in self.reasons]
        shown += [None] * self.nullable + [self.other_value()] * (self.other_code is not None)
        return pa.array([*shown, None], type=self.arrow_type)

    def token_value(self, token: str) -> Any:
        """Return a missing token as a value of the column's type, or None if the type cannot hold it."""
        return None

    def other_value(self) -> Any:
        """Return the decoded form of an unknown value."""
        return None

    @property
    @abstractmethod
    def ordinary_labels(self) -> list[str]:
        """Short labels of the ordinary codes."""

    def code_labels(self) -> list[str]:
        """Return a short label for every code: declared labels, bounds of bins, then the special codes."""
        names = self.ordinary_labels + list(self.reasons) + ["missing"] * self.nullable
        return (names + ["other"] * self.size)[: self.size]

    def special_entries(self) -> list[Entry]:
        """Return the entries of missing, null and unknown codes."""
        rows = [
            Entry(self.name, self.reason_code(reason), "null" if reason is None else "missing", token, label=reason)
            for token, reason in self.missing.items()
        ]
        if self.null_code is not None:
            rows.append(Entry(self.name, self.null_code, "null"))
        return [*rows, Entry(self.name, self.unknown_code, "unknown")]

    def compact_codes(self, codes: Mapping[str, Codes]) -> dict[str, NDArray[Any]]:
        """Convert codes to the smallest unsigned type of each part, with 0 for dropped rows."""
        if self.unknown_code == DROP:
            codes = {part: np.maximum(array, 0) for part, array in codes.items()}
        return {part: codes[part].astype(smallest_dtype(size)) for part, size in self.parts.items()}
