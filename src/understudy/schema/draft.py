"""Propose a schema from the rows of a table: for a person to review, never for a release as it is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understudy.arguments import html_table, parse_unit
from understudy.errors import SettingError
from understudy.schema.axis import DEFAULT_BINS, EXACT_UP_TO, AxisColumn
from understudy.schema.file import parse_field
from understudy.schema.frames import to_arrow_columns
from understudy.schema.schema import Schema
from understudy.schema.sniff import COMMA_NUMBER
from understudy.schema.temporal import parse_dates, parse_datetimes
from understudy.schema.text import EXACT, Dialect, parse_numbers, to_text


@dataclass(frozen=True, eq=False)
class Profile:
    """The distinct values of a column with their counts, and what they can be read as.

    **Privacy.** As private as the rows.

    Attributes:
        texts: distinct non-empty cells, as text.
        counts: how many rows hold each.
        empty: how many cells are empty.
        typed: "boolean", "date", "datetime", "duration" or "nested" (lists, bytes) where the frame says so, "number" or
            "text" otherwise.
        dialect: how numbers are written.
        span: the least and greatest moment of a typed column, in microseconds.
    """

    texts: list[str]
    counts: NDArray[np.int64]
    empty: int
    typed: str
    dialect: Dialect
    span: tuple[int, int] = (0, 0)

    @property
    def filled(self) -> int:
        """The number of cells that are not empty."""
        return int(self.counts.sum())

    @property
    def distinct(self) -> int:
        """The number of distinct cells."""
        return len(self.texts)

    @cached_property
    def distinct_texts(self) -> frozenset[str]:
        """The distinct cells as a set."""
        return frozenset(self.texts)

    @cached_property
    def _array(self) -> Any:
        return pa.array(self.texts, pa.string())

    @cached_property
    def numbers(self) -> NDArray[np.float64]:
        """Each distinct cell as a number; NaN if it is not a finite number."""
        parsed = parse_numbers(self._array, self.dialect.decimal, self.dialect.group)
        return np.where(np.isfinite(parsed), parsed, np.nan)

    @cached_property
    def numeric(self) -> float:
        """The share of filled cells that are numbers."""
        return float(self.counts[~np.isnan(self.numbers)].sum() / max(self.filled, 1))

    @cached_property
    def whole(self) -> bool:
        """Whether all numbers are whole."""
        found = self.numbers[~np.isnan(self.numbers)]
        return bool(len(found)) and bool((found == np.rint(found)).all())

    @cached_property
    def leading_zeros(self) -> bool:
        """Whether numbers are written like 007, as a code rather than an amount."""
        return bool(pc.any(pc.match_substring_regex(self._array, r"^\s*0[0-9]")).as_py())

    @cached_property
    def long(self) -> bool:
        """Whether most cells are whole numbers beyond the precision of floating point: codes, not amounts."""
        return bool(self.whole and 2 * self.counts[np.abs(self.numbers) >= EXACT].sum() > self.filled)

    @cached_property
    def decimals(self) -> int | None:
        """The largest number of decimals of any number; None if there are too many to be intended."""
        found = self.numbers[~np.isnan(self.numbers)]
        for places in range(7):
            if np.allclose(found, np.round(found, places), rtol=0, atol=1e-9):
                return places
        return None

    def values(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return distinct numbers in ascending order, with their counts."""
        real = ~np.isnan(self.numbers)
        distinct, place = np.unique(self.numbers[real], return_inverse=True)
        return distinct, np.bincount(place, weights=self.counts[real], minlength=len(distinct)).astype(np.int64)

    def moments(self, pattern: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_], bool]:
        """Return distinct cells as days, which of them are dates or times, and whether any has a time of day."""
        days, valid = parse_dates(self._array, pattern)
        if pattern is not None or not valid.any():
            return days, valid, pattern is not None and "%M" in pattern
        moments, also = parse_datetimes(self._array, None)
        return days, valid, bool(((moments % 86_400_000_000 != 0) & also).any())


def profile_column(cells: Any, dialect: Dialect) -> Profile:
    """Profile one arrow column."""
    kind, typed, span = cells.type, "text", (0, 0)
    if pa.types.is_dictionary(kind):
        cells, kind = cells.dictionary_decode(), kind.value_type
    if pa.types.is_boolean(kind):
        typed = "boolean"
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        typed = "date" if pa.types.is_date(kind) else "datetime" if pa.types.is_timestamp(kind) else "duration"
        unit = pa.duration("us") if typed == "duration" else pa.timestamp("us")
        ends = pc.min_max(cells.cast(unit, safe=False).cast(pa.int64())).as_py()
        span = (ends["min"] or 0, ends["max"] or 0)
    elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        typed = "nested"
    text = pc.fill_null(pc.cast(to_text(cells, exact=True), pa.string()), "")
    table = pc.value_counts(text)
    texts, counts = table.field("values").to_pylist(), np.asarray(table.field("counts"), dtype=np.int64)
    if pa.types.is_floating(kind):
        texts = [text if text != "nan" else "" for text in texts]
    blank = np.asarray([not text.strip() for text in texts], dtype=np.bool_)
    kept = [text for text, empty in zip(texts, blank, strict=True) if not empty]
    return Profile(kept, counts[~blank], int(counts[blank].sum()), typed, dialect, span)


# -- Drafts from the rows --------------------------------------------------------------------------------------------


RARE = 20
"""Values with fewer rows than this, or than 0.1 % of the rows, are merged into "other"."""
MOST_VALUES = 300
"""A text column with more common values than this is proposed as `drop`."""
_SPIKE_SHARE = 0.05
_ODD_SHARE = 0.02
_FEW_NUMBERS = 12
_MIDDLE_BINS, _FINE_BINS, _ROWS_A_BIN = 10, (200, 500), 20
_HEAP_SHARE, _MOST_HEAPS = 0.01, 20
_FEW_SPIKES = 50
_TOP_ALPHA, _TOP_TIMES = 3.0, (3, 1000)
_FEW_KEYS = 20
_LEAST_CODE, _CODE_SHARE = 100, 0.05
_ALMOST_ALL, _FEWEST_PAIRS = 0.995, 50
_MISSING_WORDS = {"?", "na", "n/a", "nan", "null", "none", "n", ".", "-", "--", "missing", "unknown", "#n/a", "nil"}
_MISSING_NUMBERS = {-1.0, -7.0, -8.0, -9.0, -88.0, -98.0, -99.0, -888.0, -998.0, -999.0, -9999.0}
_NINES = {97.0, 98.0, 99.0, 997.0, 998.0, 999.0, 9997.0, 9998.0, 9999.0, 99999.0}
_KEY_NAME = re.compile(
    r"(?i:(^|[_\W])(id|key|nbr|no|num|number|code|uuid|guid|ssn|nr|pseudonym)($|[_\W]))"
    r"|[a-z](I[dD]|Nr|No|Key)$"
    r"|(?i:nummer$|(patient|person|customer|client|user|member|subject|household|case|record|account)(en)?s?id$)"
)
_CODE_NAME = re.compile(r"(?i:(^|[_\W])(id|code|cd)($|[_\W]))|[a-z](I[dD]|Code)$")  # num may count things
_UNIT_NAME = re.compile(r"(?i:(patient|person|customer|client|subject|member|household|respondent|employee|student)s?)")
_DATE_FORMATS = (None, "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d")
_SHORT_FORMATS = ("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%y")
_NAMED_FORMATS = ("%d-%b-%Y", "%d %b %Y", "%d%b%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y", "%d-%b-%y", "%d%b%y")
_SHORT_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2}")
_NAMED_DATE = re.compile(r"\d{1,2}[ -]?[A-Za-z]{3,9}[ -]?(\d{2}){1,2}|[A-Za-z]{3,9} \d{1,2}, \d{4}")
_DIGIT_FORMATS = {8: "%Y%m%d", 14: "%Y%m%d%H%M%S"}
_DAY_AND_TIME = re.compile(r"\s*(.*?)(\s+\d{1,2}:\d{2}(:\d{2})?(\s*[AaPp][Mm])?)?\s*")
_ISO_TIME = re.compile(r"\s*\d{4}-\d\d-\d\d([T ])\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(?::?\d\d)?)?\s*")
_CLOCK = re.compile(r"\s*(([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?|(0?[1-9]|1[0-2]):[0-5]\d(:[0-5]\d)?(\s?)[AaPp][Mm])\s*")
_WITH_UNIT = re.compile(r"\s*([€$£]?)\s*[+-]?\d[\d.,']*\s*([^\d\s.,]{0,8})\s*")
_MOST_MONTHS = 240
_YEAR_1000 = int(np.datetime64("1000-01-01", "D").astype(np.int64))


@dataclass(frozen=True)
class Draft:
    """A proposed schema as the file writes it, with notes and questions for each column.

    **Privacy.** Made from the rows without noise: for the custodian only.

    Attributes:
        content: what a schema file would hold, every field with ``status: draft``.
        notes: by column, the reason for the proposal.
        questions: decisions for the person, the privacy unit first.
    """

    content: dict[str, Any]
    notes: dict[str, str]
    questions: tuple[str, ...]

    def accept(self, unit: str | None = None) -> Schema:
        """Return the schema with every proposal marked as reviewed: for a person who has read all of them.

        Args:
            unit: who is protected, `row` or COLUMN:K, where the draft was made without one.

        Raises:
            SettingError: if the draft does not state who is protected.
        """
        ours = dict(self.content["understudy"])
        if unit is not None:
            ours["privacy_unit"] = parse_unit(unit, [field["name"] for field in self.content["fields"]])
        if "privacy_unit" not in ours:
            raise SettingError('who is protected? give accept("row") if nobody has two rows, else accept("COLUMN:K")')
        fields = [
            field | {"understudy": {key: value for key, value in field["understudy"].items() if key != "status"}}
            for field in self.content["fields"]
        ]
        return Schema.from_dict(self.content | {"fields": fields, "understudy": ours})

    def _repr_html_(self) -> str:
        kinds = {
            field["name"]: field.get("understudy", {}).get("kind") or field.get("type", "")
            for field in self.content["fields"]
        }
        lines = [(name, kind, self.notes.get(name, "")) for name, kind in kinds.items()]
        return html_table("A draft, for the custodian only", ("column", "kind", "why"), lines, notes=self.questions)


def draft(frame: Any, names: list[str], dialect: Dialect, unit: Any = None) -> Draft:
    """Propose a schema for a table.

    Args:
        frame: the table; columns may be text or typed.
        names: its columns, in order.
        dialect: how its file is written.
        unit: the privacy unit as a schema file writes it; None if it is not known.
    """
    cells, rows = to_arrow_columns(frame, names, dialect.decimal)
    fields, notes, named, shaped = [], {}, [], []
    forms: dict[str, dict[str, Any]] = {}
    dates: dict[str, _Times] = {}
    moments: dict[str, _Times] = {}
    for name in names:
        seen = profile_column(cells[name], dialect)
        field, note = _propose(name, seen)
        if field.get("type") in ("date", "datetime"):
            times = dates if field["type"] == "date" else moments
            times[name] = _read_times(name, field, cells[name], dialect)
        if field.get("type") != "integer":
            del cells[name]  # whole numbers may turn out to be days between dates
        fields.append({"name": name} | field)
        notes[name] = note
        forms[name] = key_form(seen) if seen.distinct > _FEW_KEYS else {"kind": "id"}
        if rows >= 20 and 0.02 * rows < seen.distinct < 0.98 * seen.filled:
            named += [name] if _KEY_NAME.search(name) or _UNIT_NAME.fullmatch(name) else []
            shaped += [name] if field.get("understudy", {}).get("kind") == "drop" and _looks_like_keys(seen) else []
    repeated = [] if unit is not None else named or shaped
    ours: dict[str, Any] = {"privacy_unit": {"column": repeated[0], "max_rows": 1} if repeated else unit or "row"}
    if isinstance(ours["privacy_unit"], dict):
        key, why = ours["privacy_unit"]["column"], "looks like a key that repeats: proposed as" if repeated else "is"
        fields = [{"name": key, "understudy": forms[key]} if field["name"] == key else field for field in fields]
        notes[key] = f"{why} the privacy unit, fresh keys in synthetic rows"
    written = dialect.model_dump(exclude_defaults=True)
    ours |= {"dialect": written} if written else {}
    questions = _questions(repeated) if unit is None else ()
    orders = _find_orders(dates)
    if chains := orders + _find_orders(moments):
        ours["rules"] = [{"order": chain} for chain in chains]
        questions += tuple(_ORDER_QUESTION.format(order=" <= ".join(chain)) for chain in chains)
    for place, field in enumerate(fields):
        name = field["name"]
        if field.get("type") == "integer" and (pair := _find_difference(name, cells[name], dates, orders, dialect)):
            fields[place] = {"name": name, "type": "integer", "understudy": {"kind": "difference", "of": list(pair)}}
            notes[name] = f"{pair[0]} - {pair[1]} in days in almost every row: computed from synthetic dates"
    for field in fields:
        field.setdefault("understudy", {}).update({"status": "draft", "origin": "reviewed"})
    return Draft({"fields": fields, "understudy": ours}, notes, questions)


_Times: TypeAlias = tuple[NDArray[Any], NDArray[np.bool_]]
"""The days of a column of dates, or the microseconds of one of datetimes, and which cells are such."""
_ORDER_QUESTION = (
    "Almost every row has {order}, so a rule was proposed. Keep it if it is true by definition; otherwise remove it "
    "from `rules`."
)


def _read_times(name: str, field: Mapping[str, Any], cells: Any, dialect: Dialect) -> _Times:
    column = parse_field({"name": name, **field}, 0)
    assert isinstance(column, AxisColumn)  # noqa: S101 - dates or datetimes
    cells = cells.combine_chunks() if hasattr(cells, "combine_chunks") else cells
    times, valid = column.units(cells, dialect)
    return times, valid & (column.encode(cells, dialect)[name] < column.ordinary)


def _find_orders(times: Mapping[str, _Times]) -> list[list[str]]:
    """Find chains of dates that are in order in almost every row, and not only because their years differ."""

    def median(name: str) -> float:
        found, there = times[name]
        return float(np.median(found[there])) if there.any() else 0.0

    chains: list[list[str]] = []
    for name in sorted(times, key=median):
        if chains and _are_in_order(times[chains[-1][-1]], times[name]):
            chains[-1].append(name)
        else:
            chains.append([name])
    return [chain for chain in chains if len(chain) > 1]


def _are_in_order(earlier: _Times, later: _Times) -> bool:
    both = earlier[1] & later[1]
    if both.sum() < _FEWEST_PAIRS:
        return False
    first, last = earlier[0][both], later[0][both]
    by_chance = np.quantile(first, 0.9) <= np.quantile(last, 0.1)
    return bool(not by_chance and (first <= last).mean() >= _ALMOST_ALL)


def _find_difference(
    name: str, cells: Any, dates: Mapping[str, _Times], orders: list[list[str]], dialect: Dialect
) -> tuple[str, str] | None:
    """Find the later and the earlier date whose difference in days a column of whole numbers is in almost every row."""
    numbers = parse_numbers(to_text(cells), dialect.decimal, dialect.group) if orders else np.zeros(0)
    for order in orders:
        for earlier, later in itertools.combinations(order, 2):
            there = np.isfinite(numbers) & dates[earlier][1] & dates[later][1]
            days = dates[later][0] - dates[earlier][0]
            if there.sum() >= _FEWEST_PAIRS and (numbers[there] == days[there]).mean() >= _ALMOST_ALL:
                return later, earlier
    return None


def _questions(repeated: list[str]) -> tuple[str, ...]:
    if not repeated:
        return ("Can one person (or company, household) have more than one row? `understudy schema review` asks who is "
                "protected: `row`, or the column that identifies people and the rows used of each.",)  # fmt: skip
    return (
        f"Column {repeated[0]!r} looks like a key and repeats. If it names the people to protect, how many rows of "
        "each should be used? `max_rows: 1` was proposed: the safest choice. If a row is a person, write "
        "`privacy_unit: row`.",
    )


def _propose(name: str, seen: Profile) -> tuple[dict[str, Any], str]:
    """Propose the field of a column, by the first shape that fits."""
    if seen.filled == 0:
        return {"understudy": {"kind": "drop"}}, "empty in every row"
    if seen.typed == "nested":
        return {"understudy": {"kind": "drop"}}, "lists, records and bytes cannot be synthesised"
    if _is_key(name, seen):
        key = {"understudy": key_form(seen) if _KEY_NAME.search(name) else {"kind": "drop"}}
        amounts = _propose_with_unit(seen) if not _KEY_NAME.search(name) else None
        return amounts or (key, "different in almost every row: an identifier or free text")
    if seen.typed in ("date", "datetime", "duration"):
        return _propose_typed_moment(seen)
    if (digits := _propose_digit_date(seen)) is not None:
        return digits
    if (_CODE_NAME.search(name) or _looks_like_codes(seen)) and (codes := _propose_codes(seen)) is not None:
        return codes
    for shape in (_propose_boolean, _propose_number, _propose_moment, _propose_clock, _propose_with_unit):
        proposal = shape(seen)
        if proposal is not None:
            return proposal
    return _propose_values(seen)


def _is_key(name: str, seen: Profile) -> bool:
    if seen.filled < 50 or seen.distinct < 0.9 * seen.filled or seen.typed != "text":
        return False
    real = seen.numeric > 0.8 and not seen.whole
    moments = _propose_clock(seen) is not None or (
        not seen.numeric and any(seen.moments(pattern)[1].mean() > 0.95 for pattern in _candidate_formats(seen))
    )
    return not real and not moments and (seen.numeric < 0.95 or bool(_KEY_NAME.search(name)))


def _looks_like_keys(seen: Profile) -> bool:
    """Return whether all texts are codes of one length with a digit, such as P00523: people are numbered this way."""
    one_length = len({len(text) for text in seen.texts}) == 1
    return one_length and all(re.search(r"\d", text) and not re.search(r"\s", text) for text in seen.texts)


def _looks_like_codes(seen: Profile) -> bool:
    """Return whether whole numbers are names rather than amounts, such as industry codes from 170 to 9920.

    Codes are written with about as many digits, leave out most numbers of their range and repeat. Amounts of which that
    is true are round.
    """
    values, counts = seen.values()
    if not seen.whole or not _FEW_NUMBERS < len(values) <= MOST_VALUES or values[0] < _LEAST_CODE:
        return False
    sparse = len(values) < _CODE_SHARE * (values[-1] - values[0] + 1)
    digits = len(str(int(values[-1]))) - len(str(int(values[0]))) <= 1
    common = counts[counts >= _rare_count(seen)].sum() >= 0.5 * counts.sum()
    return bool(sparse and digits and common and 2 * counts[values % 50 == 0].sum() < counts.sum())


def _propose_boolean(seen: Profile) -> tuple[dict[str, Any], str] | None:
    if seen.typed == "boolean":
        return {"type": "boolean"} | _required_constraint(seen, {}), "true or false"
    texts = [text for text in seen.texts if text.strip().lower() not in _MISSING_WORDS]
    if sorted(text.lower() for text in texts) != ["false", "true"]:  # yes and no are text, and stay text
        return None
    false, true = sorted(texts, key=str.lower)
    missing = _find_missing_words(seen, set(texts))
    field: dict[str, Any] = {"type": "boolean", "trueValues": [true], "falseValues": [false]}
    return field | _required_constraint(seen, missing) | _our_keys(missing=missing), "true or false"


def _find_missing_words(seen: Profile, besides: set[str]) -> dict[str, str | None]:
    return {text: None for text in seen.texts if text not in besides and text.strip().lower() in _MISSING_WORDS}


def _propose_number(seen: Profile) -> tuple[dict[str, Any], str] | None:
    values, counts = seen.values()
    missing, note = _find_missing_codes(seen, ~np.isnan(seen.numbers), "number", several=len(values) > _FEW_NUMBERS)
    if missing is None or seen.numeric == 0 or seen.leading_zeros or seen.long:
        return None
    sentinel = _find_sentinels(values, counts >= _rare_count(seen))
    missing |= {f"{value:g}": f"code {value:g}" for value in sentinel}
    note += f"; numbers taken for missing codes: {', '.join(f'{value:g}' for value in sentinel)}" if sentinel else ""
    inside = ~np.isin(values, sentinel)
    values, counts = values[inside], counts[inside]
    if not len(values):
        return None
    if seen.whole and len(values) <= _FEW_NUMBERS and len(values) < 0.5 * seen.filled:
        return _propose_whole_values(seen, values, counts, missing, note)
    low, high = widen_bounds(values.min(), values.max(), whole=seen.whole)
    field: dict[str, Any] = {"type": "integer" if seen.whole else "number"}
    field["constraints"] = {"minimum": _round(low), "maximum": _round(high)} | _required_constraint(seen, missing).get(
        "constraints", {}
    )
    extras = _numeric_extras(values, counts, low, high, seen)
    return field | _our_keys(missing=missing, **extras), f"bounds widened to {_round(low)} and {_round(high)}{note}"


def _propose_codes(seen: Profile) -> tuple[dict[str, Any], str] | None:
    """Propose the common values of whole numbers that are codes: no others are made up."""
    values, counts = seen.values()
    missing, note = _find_missing_codes(seen, ~np.isnan(seen.numbers), "number", several=True)
    if missing is None or not seen.whole or seen.leading_zeros or seen.long or len(values) > MOST_VALUES:
        return None
    field, why = _propose_whole_values(seen, values, counts, missing, note)
    return {key: value for key, value in field.items() if key != "categoriesOrdered"}, why.replace("few ", "codes: ")


def _find_missing_codes(
    seen: Profile, valid: NDArray[np.bool_], what: str, *, several: bool
) -> tuple[dict[str, str | None] | None, str]:
    """Find the words among numbers or dates that may mean "missing", with a note about them.

    None if there are other words.

    Besides the usual words, a common word may be such a code, unless it has a digit (80+, C50; among dates a digit
    other than 0 and 9, which 00.00.0000 has) or there are only a few numbers, which may be codes themselves. A few odd
    cells, such as typing errors, do not turn a column into text.
    """
    words = {text: int(count) for text, count, good in zip(seen.texts, seen.counts, valid, strict=True) if not good}
    usual = {word for word in words if word.strip().lower() in _MISSING_WORDS}
    common = {word for word in words.keys() - usual if words[word] >= _rare_count(seen)}
    odd = sum(words[word] for word in words.keys() - usual - common)
    digits = r"\d" if what == "number" else "[1-8]"
    if any(re.search(digits, word) for word in common) or len(common) > 5 or odd > _ODD_SHARE * seen.filled:
        return None, ""
    if (common or odd) and not (several and 2 * seen.counts[valid].sum() > seen.filled):
        return None, ""
    note = f"; words that were taken for missing codes: {', '.join(sorted(common))}" if common else ""
    if odd:
        note += (
            f"; {odd} {f'cell that is no {what} counts' if odd == 1 else f'cells that are no {what}s count'} as unknown"
        )
    codes = sorted(usual | common)
    alone = len(codes) == 1 and not note
    return {word: None if alone else word.strip() or None for word in codes}, note


def _propose_whole_values(
    seen: Profile, values: NDArray[Any], counts: NDArray[Any], missing: dict[str, str | None], note: str
) -> tuple[dict[str, Any], str]:
    common = [int(value) for value, count in zip(values, counts, strict=True) if count >= _rare_count(seen)]
    if not common:
        return {"understudy": {"kind": "drop"}}, "no value is common enough to name"
    field = {"type": "integer", "categories": common, "categoriesOrdered": True} | _required_constraint(seen, missing)
    return field | _our_keys(missing=missing), f"few whole numbers{_describe_rare(len(values) - len(common))}{note}"


def _numeric_extras(
    values: NDArray[Any], counts: NDArray[Any], low: float, high: float, seen: Profile
) -> dict[str, Any]:
    """Find decimals, spikes and heaps of a numeric column."""
    extras: dict[str, Any] = {}
    if not seen.whole and seen.decimals is not None and seen.decimals <= 4:
        extras["decimals"] = seen.decimals
    points = (high - low) * 10 ** (extras.get("decimals", 0) if not seen.whole else 0)
    if points < EXACT_UP_TO and (seen.whole or "decimals" in extras):
        return extras
    if len(values) <= _FEW_SPIKES and (counts >= _rare_count(seen)).all():
        return extras | {"spikes": [_round(value) for value in values], "bins": 1}
    heavy = counts >= max(_SPIKE_SHARE * counts.sum(), _rare_count(seen))
    if heavy.any():
        extras["spikes"] = [_round(value) for value in values[heavy][:10]]
    rest, weight = values[~heavy], counts[~heavy]
    unit = 1.0 if seen.whole else 10.0 ** -extras.get("decimals", 0)
    if low >= 0 and len(rest) and _has_long_tail(rest, weight, low, high, unit):
        extras["scale"] = "log"
    if seen.whole and len(rest) and 2000 <= high - low <= 50_000:
        round_share = weight[rest % 50 == 0].sum() / weight.sum()
        if round_share > 0.5:
            extras["heaped"] = [100, 20, 50, 25, 10, 5, 2, 1]
    points = points if seen.whole or "decimals" in extras else np.inf
    if not extras.keys() & {"scale", "heaped"}:
        bins = _count_bins(rest, weight, high - low, points)
        if (start := _find_top(rest, weight, low, high, bins or DEFAULT_BINS, seen)) is not None:
            extras["top"] = {"from": start, "rule": "pareto", "alpha": _TOP_ALPHA}
            bins = int(min(np.ceil(DEFAULT_BINS * (high - low) / (start - low)), points + 1))
        least = max(_HEAP_SHARE * counts.sum(), _rare_count(seen))
        heaps = _find_heaps(rest, weight, (high - low) / (bins or DEFAULT_BINS), least)
        if heaps:
            extras["spikes"] = sorted({*extras.get("spikes", ()), *heaps})
        if bins:
            extras["bins"] = bins
    return extras


def _has_long_tail(values: NDArray[Any], counts: NDArray[Any], low: float, high: float, unit: float) -> bool:
    """Return whether bins of equal width would hold most rows in a few of them, and log bins show the middle half."""
    first, median, last = values[np.searchsorted(np.cumsum(counts), counts.sum() * np.array([0.25, 0.5, 0.75]))]
    shift = 0.0 if low else unit
    middle, whole = np.log((last + shift) / (first + shift)), np.log((high + shift) / (low + shift))
    return bool(high > 20 * median and middle * DEFAULT_BINS >= whole * _MIDDLE_BINS)


def _find_top(
    values: NDArray[Any], counts: NDArray[Any], low: float, high: float, bins: int, seen: Profile
) -> float | int | None:
    """Find where an open top bin begins if a few far values make bins too wide to see the middle half; else None.

    At most as many rows are above as a rare value has. The default number of bins below shows the middle half.
    """
    if not len(values):
        return None
    sums = np.cumsum(counts)
    first, last = values[np.searchsorted(sums, sums[-1] * np.array([0.25, 0.75]))]
    usual = values[np.searchsorted(sums, max(sums[-1] - _rare_count(seen), sums[0]))]
    start = widen_bounds(values.min(), usual, whole=seen.whole)[1]
    wide, shown = (last - first) * bins, (last - first) * DEFAULT_BINS
    if wide >= _MIDDLE_BINS * (high - low) or shown < _MIDDLE_BINS * (start - low) or not 0 < start < high:
        return None
    times = (high - low) / (start - low)
    return _round(start) if _TOP_TIMES[0] <= times <= _TOP_TIMES[1] else None


def _find_heaps(values: NDArray[Any], counts: NDArray[Any], width: float, least: float) -> list[float | int]:
    """Find common values, such as round amounts, that a bin of this width around them would hide.

    Such a value has at least `least` rows, and three times as many as the values near it have on average.
    """
    sums = np.concatenate(([0], np.cumsum(counts)))
    first, last = np.searchsorted(values, values - width / 2), np.searchsorted(values, values + width / 2, "right")
    heaps = (counts >= least) & (counts * (last - first) >= 3 * (sums[last] - sums[first]))
    order = np.argsort(-counts[heaps], kind="stable")[:_MOST_HEAPS]
    return [_round(value) for value in values[heaps][order]]


def _count_bins(values: NDArray[Any], counts: NDArray[Any], span: float, points: float) -> int | None:
    """Return how many bins of equal width the middle half of the values needs to be seen; None if the default will do.

    A far outlier makes the default bins so wide that quartiles and medians are lost in one or two of them. Where there
    are few rows, noise hides what finer bins would tell.
    """
    if not len(values):
        return None
    ends = np.searchsorted(np.cumsum(counts), counts.sum() * np.array([0.25, 0.75]))
    middle = float(values[ends[1]] - values[ends[0]])
    needed = _MIDDLE_BINS * span / middle if middle > 0 else 0.0
    if needed <= DEFAULT_BINS or counts.sum() < _ROWS_A_BIN * _FINE_BINS[0]:
        return None
    enough = [bins for bins in _FINE_BINS if counts.sum() >= _ROWS_A_BIN * bins]
    return int(min(next((bins for bins in enough if needed <= bins), enough[-1]), points + 1))


def _find_sentinels(values: NDArray[Any], common: NDArray[np.bool_]) -> list[float]:
    """Find negative codes below an otherwise non-negative column, and common nines above twice all other values."""
    negative = values[values < 0]
    usual = set(negative.tolist()) <= _MISSING_NUMBERS and bool((values >= 0).any())
    below = sorted(negative.tolist()) if usual else []
    high = np.isin(values, list(_NINES))
    rest = values[~high & ~np.isin(values, below)]
    return below + (values[high & common & (values > 2 * rest.max())].tolist() if len(rest) and rest.max() > 0 else [])


def _candidate_formats(seen: Profile) -> tuple[str | None, ...]:
    """Return the date formats to try.

    Years of two digits and names of months only if the first cells have them, because they are slow to parse.
    """
    first = [text for text in seen.texts[:100] if text.strip().lower() not in _MISSING_WORDS]
    parts = list(filter(None, map(_DAY_AND_TIME.fullmatch, first)))
    days: tuple[str | None, ...] = _DATE_FORMATS
    for form, formats in ((_SHORT_DATE, _SHORT_FORMATS), (_NAMED_DATE, _NAMED_FORMATS)):
        if parts and all(form.fullmatch(part[1]) for part in parts):
            days = formats
    timed = [part for part in parts if part[2]]
    if 2 * len(timed) <= len(first):
        return days
    return (None, *(f"{day} {_clock_pattern([part[2] for part in timed])}" for day in days if day))


def _clock_pattern(texts: Sequence[str]) -> str:
    """Return the pattern of times of day such as 15:16, 8:30:00 or 3:16 PM."""
    seconds = ":%S" if any(text.count(":") > 1 for text in texts) else ""
    noon = next((found[1] for text in texts if (found := re.search(r"(\s?)[AaPp][Mm]", text))), None)
    return f"%H:%M{seconds}" if noon is None else f"%I:%M{seconds}{noon and ' '}%p"


_SECONDS = re.compile(r":\d\d:(?!00(\.0+)?(?![\d.]))|^\s*\d{14}\s*$")
"""Times with seconds other than 00, and digits such as 20240131083000."""


def _are_whole_minutes(texts: Iterable[str]) -> bool:
    """Return whether no moment or time of day has seconds other than 00."""
    return not any(map(_SECONDS.search, texts))


def _propose_digit_date(seen: Profile) -> tuple[dict[str, Any], str] | None:
    """Propose a date for digits such as 20240131, if nearly all are dates from 1900 to 2100."""
    lengths = {len(text.strip()) for text in seen.texts[:100]} & _DIGIT_FORMATS.keys()
    if not lengths or not seen.whole:
        return None
    pattern = _DIGIT_FORMATS[lengths.pop()]
    days, valid, _ = seen.moments(pattern)
    years = np.where(valid, days, 0).astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64) + 1970
    valid &= (years >= 1900) & (years <= 2100)
    if seen.counts[valid].sum() < (1 - _ODD_SHARE) * seen.filled:
        return None
    return _propose_moment(seen, (pattern,))


def _propose_moment(seen: Profile, formats: tuple[str | None, ...] | None = None) -> tuple[dict[str, Any], str] | None:
    found: dict[str, NDArray[np.bool_]] = {}
    iso_days, iso, iso_time = seen.moments(None)
    for pattern in _candidate_formats(seen) if formats is None else formats:
        days, valid, has_time = seen.moments(pattern)
        if pattern is not None and has_time == iso_time and valid.any():  # a column with a pattern also reads ISO 8601
            days, valid = np.where(valid, days, iso_days), valid | iso
        valid = valid & (days >= _YEAR_1000)  # 05.07.15 among four-digit years is not a date in the year 15
        missing, besides = _find_missing_codes(seen, valid, "date", several=True)
        if missing is not None and valid.any():
            kind = "datetime" if has_time else "date"
            years = [int(str(np.datetime64(int(day), "D"))[:4]) for day in (days[valid].min(), days[valid].max())]
            limits = {"minimum": f"{years[0]}-01-01", "maximum": f"{years[1]}-12-31"}
            if kind == "datetime":
                limits = {"minimum": f"{years[0]}-01-01T00:00:00", "maximum": f"{years[1]}-12-31T23:59:59"}
            pattern = pattern or _find_iso_form(seen, valid, has_time=has_time)
            field: dict[str, Any] = {"type": kind} | ({"format": pattern} if pattern else {})
            field["constraints"] = limits | _required_constraint(seen, missing).get("constraints", {})
            note = "; two digits are a year from 1969 to 2068" if pattern and "%y" in pattern else ""
            note = f"bounds widened to whole years{note}{besides}"
            grain = "minute" if has_time and _are_whole_minutes(itertools.compress(seen.texts, valid)) else None
            return field | _our_keys(missing=missing, resolution=grain, bins=_propose_width(*years)), note
        if valid.any():
            found[pattern or "%Y-%m-%d"] = valid
    if found:
        short = np.array([_SHORT_DATE.fullmatch(text.strip()) is not None for text in seen.texts])
        found |= {"years of two digits": short} if short.any() else {}
    if (
        len(found) > 1
        and _find_missing_codes(seen, np.any(list(found.values()), axis=0), "date", several=True)[0] is not None
    ):
        ways = ", ".join(found)
        return {"understudy": {"kind": "drop"}}, f"dates written in several ways ({ways}); write them in one to keep it"
    return None


def _propose_width(first: int, last: int) -> dict[str, str]:
    """Propose bins of a month; of a year where there would be too many, as for dates of birth."""
    return {"width": "1 month" if last - first < _MOST_MONTHS // 12 else "1 year"}


def _find_iso_form(seen: Profile, valid: NDArray[np.bool_], *, has_time: bool) -> str | None:
    """Return how most cells write ISO 8601, such as "%Y-%m-%d %H:%M"; None if they write it as the schema's default.

    Dates that all have the time 00:00:00 keep it. Synthetic moments are whole seconds in UTC, so fractions are left out
    unless they are zero, and an offset is written as +00:00.
    """
    forms: dict[str | None, int] = {}
    for text, count in zip(itertools.compress(seen.texts, valid), seen.counts[valid], strict=True):
        form = None
        if found := _ISO_TIME.fullmatch(text):
            between, seconds, fraction, zone = found.groups()
            clock = ("%H:%M" if has_time else "00:00") + (":%S" if has_time else ":00") * bool(seconds)
            zeros = fraction if fraction and not fraction.strip(".0") else ""
            form = f"%Y-%m-%d{between}{clock}{zeros}{re.sub('[0-9]', '0', zone or '').replace('-', '+')}"
        forms[form] = forms.get(form, 0) + int(count)
    usual = max(forms, key=lambda form: forms[form], default=None)
    return None if usual == "%Y-%m-%dT%H:%M:%S" else usual


def key_form(seen: Profile) -> dict[str, Any]:
    """Propose fresh keys of the same form: C2021-001 becomes C####-###, and keys without one form running numbers.

    The letters that all keys share are no key of a person.
    """
    forms = {re.sub(r"\d", "#", text.strip()) for text in seen.texts}
    form = forms.pop() if len(forms) == 1 else ""
    padded = any(text.strip().startswith("0") for text in seen.texts)
    named = re.fullmatch(r"[A-Za-z]{0,8}([-_/.]?#+)+", form) and form.count("#") > 1
    return {"kind": "id", "pattern": form} if named and (form.strip("#") or padded) else {"kind": "id"}


def _propose_clock(seen: Profile) -> tuple[dict[str, Any], str] | None:
    """Propose a duration since midnight for times of day, such as 15:16."""
    valid = np.array([_CLOCK.fullmatch(text) is not None for text in seen.texts])
    missing, besides = _find_missing_codes(seen, valid, "time", several=True)
    if missing is None or not valid.any():
        return None
    limits = {"minimum": 0, "maximum": 86399} | _required_constraint(seen, missing).get("constraints", {})
    pattern = _clock_pattern(list(itertools.compress(seen.texts, valid)))
    grain = "minute" if _are_whole_minutes(itertools.compress(seen.texts, valid)) else "second"
    ours = _our_keys(missing=missing, resolution=grain, bins={"width": "1 hour"})
    note = f"times of day, coded as seconds since midnight{besides}"
    return {"type": "duration", "format": pattern, "constraints": limits} | ours, note


def _propose_with_unit(seen: Profile) -> tuple[dict[str, Any], str] | None:
    """Propose to drop numbers that nearly all have the same unit, such as 850,00 €, or a comma.

    A list of values would not preserve them.
    """
    if seen.dialect.decimal == ".":
        commas = np.array([COMMA_NUMBER.match(text) is not None for text in seen.texts])
        if seen.counts[commas].sum() > max(_FEW_NUMBERS, 0.9 * seen.filled):
            why = "numbers with a comma, unlike the rest of the file"
            return {"understudy": {"kind": "drop"}}, f"{why}; write them as the others, such as 1234.50, to keep them"
    units: dict[str, int] = {}
    numbers = 0
    for text, count in zip(seen.texts, seen.counts, strict=True):
        if (found := _WITH_UNIT.fullmatch(text)) and any(found.groups()):
            unit = "".join(found.groups())
            units[unit] = units.get(unit, 0) + int(count)
            numbers += 1
    unit = max(units, key=lambda unit: units[unit], default="")
    if numbers <= _FEW_NUMBERS or units[unit] < 0.9 * seen.filled:
        return None
    return {"understudy": {"kind": "drop"}}, f"numbers with a unit ({unit}); write them without it to keep them"


def _propose_typed_moment(seen: Profile) -> tuple[dict[str, Any], str]:
    low, high = seen.span
    if seen.typed == "duration":
        bounds = widen_bounds(low / 1e6, high / 1e6)
        return {"type": "duration", "constraints": {"minimum": bounds[0], "maximum": bounds[1]}}, "bounds widened"
    first, last = (str(np.datetime64(int(end), "us"))[:4] for end in (low, high))
    start, stop = ("", "") if seen.typed == "date" else ("T00:00:00", "T23:59:59")
    limits = {"minimum": f"{first}-01-01{start}", "maximum": f"{last}-12-31{stop}"}
    field = {"type": seen.typed, "constraints": limits}
    grain = "minute" if seen.typed == "datetime" and _are_whole_minutes(seen.texts) else None
    return field | _our_keys(
        resolution=grain, bins=_propose_width(int(first), int(last))
    ), "bounds widened to whole years"


def _propose_values(seen: Profile) -> tuple[dict[str, Any], str]:
    """Propose the common values of a text column, or `drop` if there are too many."""
    texts: dict[str, int] = {}
    for text, count in zip(seen.texts, seen.counts, strict=True):
        bare = text.strip() if seen.dialect.trim and text.strip() in seen.distinct_texts else text
        texts[bare] = texts.get(bare, 0) + int(count)
    missing: dict[str, str | None] = {
        text: None for text in texts if text.strip().lower() in _MISSING_WORDS - {"n", "none", "unknown"}
    }
    common = sorted(text for text, count in texts.items() if count >= _rare_count(seen) and text not in missing)
    rare = len(texts) - len(common) - len(missing)
    if not common or len(common) > MOST_VALUES:
        return {"understudy": {"kind": "drop"}}, "free text or too many values to list; group them first to keep it"
    field = {"type": "string", "categories": common} | _required_constraint(seen, missing)
    several = "1 value" if len(common) == 1 else f"{len(common)} values"
    alike = len({text.casefold() for text in common}) < len(common)
    note = (
        "; some differ only in capitals and remain separate values unless you unify them in the table" if alike else ""
    )
    return field | _our_keys(missing=missing), f"{several}{_describe_rare(rare)}{note}"


def _describe_rare(rare: int) -> str:
    return f"; {rare} rare {'one' if rare == 1 else 'ones'} folded into other" if rare else ""


def _required_constraint(seen: Profile, missing: dict[str, str | None]) -> dict[str, Any]:
    empty = seen.empty or None in missing.values()
    return {} if empty else {"constraints": {"required": True}}


def _our_keys(**keys: Any) -> dict[str, Any]:
    kept = {key: value for key, value in keys.items() if value}
    return {"understudy": kept} if kept else {}


def _rare_count(seen: Profile) -> float:
    return max(RARE, 0.001 * seen.filled)


def widen_bounds(low: float, high: float, *, whole: bool = False) -> tuple[float, float]:
    """Move bounds outwards to round numbers, so that they do not reveal an extreme value.

    Args:
        low: the least value.
        high: the greatest.
        whole: stay with whole numbers, however close the two are.

    >>> widen_bounds(17, 90), widen_bounds(12285, 1490400)
    ((10, 100), (0, 1500000))
    >>> widen_bounds(0, 99999), widen_bounds(1, 2, whole=True)
    ((0, 100000), (1, 3))
    >>> widen_bounds(-10200, 1490400)
    (-20000, 1500000)
    """
    span = high - low or abs(high) or 1.0
    step = 10.0 ** np.floor(np.log10(span))
    step = step / 2 if span / step < 2 else step
    step = max(step, 1.0) if whole else step
    bottom, top = np.floor(low / step) * step, (np.floor(high / step) + 1) * step
    if -0.1 * span < low < 0:  # a few small numbers below 0 do not make half of the axis negative
        own = 10.0 ** np.floor(np.log10(-low))  # whole numbers below 0 have at least 1
        bottom = -(np.floor(-low / own) + 1) * own
    if low >= 0:
        bottom = max(bottom, 0.0)
    return _round(bottom), _round(top)


def _round(value: float) -> float | int:
    rounded = float(f"{float(value):.12g}")
    return int(rounded) if rounded.is_integer() else rounded
