"""Text: how the table's files are written, and what a cell means whatever its type.

**The rule.** A value counts by what it means, never by how a reader typed it. Readers of files guess the type of a
column from all of its cells, so a single odd cell decides whether everybody's `007` is text or 7. `meaning` therefore
normalises a cell's text to the spelling that a typed cell would have, and `to_text` gives typed cells that same
spelling. All coding, the names of units and discovered values rest on these two functions.
``docs/decisions/schema-coding.md`` gives the reasons, and says what a text file given by its path keeps besides.

Functions on whole columns turn cells that do not parse into nulls; none of them raises.
"""

from __future__ import annotations

import codecs
import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, field_validator, model_validator


class Dialect(BaseModel):
    """The CSV dialect of the table. Every column is read as text, which the schema's columns interpret.

    Attributes:
        delimiter: the character between two cells.
        decimal: the decimal mark of numbers; "." or ",".
        group: the digit-group mark inside numbers ("1.234.567"), or empty for none.
        encoding: the file's character encoding. A byte-order mark is accepted with any UTF encoding.
        header: whether the first line names the columns; without it the schema's columns name them in order.
        quote: the character around cells that contain separators.
        trim: whether blanks around a cell are removed if the cell as written is not a declared value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    delimiter: str = ","
    decimal: str = "."
    group: str = ""
    encoding: str = "utf-8"
    header: bool = True
    quote: str = '"'
    trim: bool = True

    @field_validator("delimiter", "quote")
    @classmethod
    def _check_mark(cls, mark: str) -> str:
        if len(mark) != 1 or not mark.isascii() or mark in "\0\r\n":
            raise ValueError('must be one ASCII character; write a tab as "\\t"')
        return mark

    @field_validator("decimal")
    @classmethod
    def _check_decimal(cls, mark: str) -> str:
        if mark not in (".", ","):
            raise ValueError('must be "." or ","; choose the one that the file uses')
        return mark

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, encoding: str) -> str:
        try:
            codecs.lookup(encoding)
        except (LookupError, ValueError):
            raise ValueError("is not a known encoding; try utf-8, or windows-1252 for files saved by Excel") from None
        return encoding

    @model_validator(mode="after")
    def _check_marks_differ(self) -> Dialect:
        if self.group and (len(self.group) != 1 or self.group == self.decimal):
            raise ValueError("`group` must be one character other than the decimal mark; correct one of them")
        if self.delimiter == self.quote:
            raise ValueError("`delimiter` and `quote` must differ; correct one of them")
        return self


# -- The meaning of a cell -------------------------------------------------------------------------------------------


_WHOLE_DIGITS = 300  # whole numbers up to here are also floating point numbers
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
EXACT = 1 << 53
"""Beyond this, floating point cannot represent all whole numbers."""
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_INFINITE = r"^[+-]?(?i:inf(inity)?)$"
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?")
_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):([0-5]?[0-9])(?::([0-5]?[0-9])(?:[.]([0-9]{1,9}))?)?")
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
"""How files write truth values: what readers of files convert to booleans."""
EMPTY = frozenset(
    {"", "NaN", "nan", "-NaN", "-nan", "NA", "N/A", "n/a", "<NA>", "NULL", "null", "None", "#N/A", "#N/A N/A", "#NA"}
    | {"1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN"}
)
"""Texts that readers of files take for an empty cell, some of them depending on other cells."""
PLAIN = (
    "^([A-EGHJ-MO-SU-Za-eghj-mo-su-z]|(0|-?[1-9][0-9]{0,14})$|-?(0|[1-9][0-9]{0,7})[.][0-9]{0,3}[1-9]$"
    "|[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$)"
)
"""A regular expression, valid in every engine, for texts equal to their meaning. Most cells match it."""


def meaning(text: str, decimal: str = ".", group: str = "", *, exact: bool = False) -> str | None:
    """Return the normalised text of a cell: the same as for any typed cell that a reader may make of it.

    - Texts that readers take for an empty cell (`EMPTY`) are null.
    - Numbers are written in the short form: 007, +7, 7.0 and 0x7 are 7, and 1e5 is 100000. Integers beyond 2^53 are
      rounded to floating point, because one empty cell turns a whole column into floating point.
    - True and false are 1 and 0, because readers convert one into the other.
    - A moment is ISO 8601 with a T, in UTC if it has an offset; midnight without an offset is a date.
    - A time of day has seconds, and two digits for each part: 8:30 is 08:30:00.

    Any other text is returned unchanged.

    Args:
        text: the cell.
        decimal: the decimal mark.
        group: the mark between groups of three digits.
        exact: keep all digits of long whole numbers.

    >>> [meaning(text) for text in ("007", "1e5", "TRUE", "NA", "2024-01-31 00:00:00", "08:30", "A7")]
    ['7', '100000', '1', None, '2024-01-31', '08:30:00', 'A7']
    """
    bare = text.strip()
    if bare in EMPTY:
        return None
    if bare in TRUE or bare in FALSE:
        return "1" if bare in TRUE else "0"
    if (number := parse_exact_number(bare, decimal, group)) is not None:
        return _format_number(number, decimal, exact=exact)
    if _MOMENT.fullmatch(bare):
        try:
            return _format_moment(datetime.fromisoformat(bare))
        except (ValueError, OverflowError):
            return text
    if clock := _CLOCK.fullmatch(bare):
        hour, minute, second, rest = clock.groups()
        written, micros = f"{hour:0>2}:{minute:0>2}:{second or '':0>2}", f"{rest or '':0<6}"[:6]
        return f"{written}.{micros}" if int(micros) else written
    return text


def meanings(text: Any, decimal: str = ".", group: str = "", *, exact: bool = False) -> Any:
    """Return the `meaning` of each text of an arrow array of strings, or of a dictionary of them."""
    if pa.types.is_dictionary(text.type):
        distinct = meanings(text.dictionary, decimal, group, exact=exact)
        return pa.DictionaryArray.from_arrays(text.indices, distinct)
    plain = pc.match_substring_regex(text, PLAIN if decimal == "." else PLAIN.replace("[.]", decimal))
    odd = np.flatnonzero(~np.asarray(pc.fill_null(plain, True)))
    if not len(odd):
        return text
    found = [meaning(cell, decimal, group, exact=exact) for cell in text.take(pa.array(odd)).to_pylist()]
    mask = np.zeros(len(text), np.bool_)
    mask[odd] = True
    return pc.replace_with_mask(text, mask, pa.array(found, text.type))


def drop_utc_mark(text: Any) -> Any:
    """Remove the mark Z from moments in UTC, because a declared moment may leave it out."""
    pattern = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T00:00:00Z|(T.*)Z)$"
    if isinstance(text, str):
        return re.sub(pattern, r"\1\2", text)
    return pc.replace_substring_regex(text, pattern, r"\1\2")


def to_text(cells: Any, decimal: str = ".", *, exact: bool = False) -> Any:
    """Convert any arrow array to text: typed cells by what they mean, text unchanged.

    If arrow cannot write one of the cells, every cell is written on its own. `exact` keeps all digits of whole numbers.
    """
    kind = cells.type
    if pa.types.is_string(kind):
        return cells
    if pa.types.is_boolean(kind):
        return cells.cast(pa.int8()).cast(pa.string())
    kinds = pa.types.is_floating, pa.types.is_decimal, pa.types.is_duration, pa.types.is_time
    if any(fits(kind) for fits in kinds):
        distinct = cells.dictionary_encode()
        written = format_clocks if pa.types.is_time(kind) else to_objects
        return objects_to_text(written(distinct.dictionary), decimal).take(distinct.indices)
    try:
        text = format_moments(cells) if pa.types.is_timestamp(kind) else cells.cast(pa.string())
    except pa.ArrowException:
        return objects_to_text(to_objects(cells), decimal)
    wide = not exact and pa.types.is_integer(kind) and kind.bit_width == 64 and len(cells) > cells.null_count
    ends = pc.min_max(cells).as_py().values() if wide else ()
    return meanings(text) if any(abs(end) >= EXACT for end in ends) else text


def parse_exact_number(text: str, decimal: str = ".", group: str = "") -> int | float | None:
    """Return the number that a text writes, including infinities; None if it is not a number.

    Digits alone are a whole number of any length. Any other notation is the floating point number that a reader of
    files would produce.
    """
    bare = write_with_point(text.strip(), decimal, group)
    if _HEXADECIMAL.fullmatch(bare):
        number = int(bare, 16)
        return number if number < 1 << 63 else number - (1 << 64)
    if re.match(_NUMBER, bare) or re.match(_INFINITE, bare):
        return int(bare) if len(bare) < _WHOLE_DIGITS and _WHOLE.fullmatch(bare) else float(bare)
    return None


def write_with_point(number: str, decimal: str, group: str) -> str:
    """Write a number of a file with a decimal point and without marks between groups of three digits."""
    if group and re.search(_grouped_pattern(decimal, group), number):
        number = number.replace(group, "")
    return number.replace(decimal, ".")


def _grouped_pattern(decimal: str, group: str) -> str:
    """Return a regular expression for numbers with a mark between groups of three digits: 1.234.567,8."""
    return rf"^[+-]?[0-9]{{1,3}}({re.escape(group)}[0-9]{{3}})+({re.escape(decimal)}[0-9]*)?$"


def parse_exact_numbers(text: Any, decimal: str = ".", group: str = "") -> list[int | float]:
    """Parse an arrow array of text into numbers, NaN where there is none; long whole numbers keep all digits."""
    found = (None if cell is None else parse_exact_number(cell, decimal, group) for cell in text.to_pylist())
    return [math.nan if number is None else number for number in found]


def _format_number(number: float, decimal: str = ".", *, exact: bool = False) -> str | None:
    """Format a number in the short form; None for NaN."""
    if number != number:
        return None
    if isinstance(number, int) and not exact and abs(number) >= EXACT:
        number = _round_whole(number)
    if isinstance(number, int) or number.is_integer():
        return str(int(number))
    return repr(number).replace(".", decimal)


def _round_whole(number: int) -> float:
    """Round a whole number to floating point; beyond all floats it is infinite, as readers of files have it."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def parse_numbers(text: Any, decimal: str = ".", group: str = "") -> NDArray[np.float64]:
    """Parse an arrow array of text into floating point numbers, including infinities; NaN where there is none."""
    text = pc.utf8_trim_whitespace(text)
    if group:
        grouped = pc.match_substring_regex(text, _grouped_pattern(decimal, group))
        text = pc.if_else(pc.fill_null(grouped, False), pc.replace_substring(text, group, ""), text)
    if decimal != ".":
        text = pc.replace_substring(text, decimal, ".")
    try:  # if every cell is a number
        parsed = pc.cast(text, pa.float64())
    except pa.ArrowInvalid:  # the same numbers cell by cell: one odd cell changes nothing but the time
        fits = pc.match_substring_regex(text, _NUMBER)
        digits = pc.if_else(fits, pc.replace_substring_regex(text, r"^\+", ""), pa.scalar(None, text.type))
        parsed = pc.cast(digits, pa.float64())
        return _parse_infinities(text, np.asarray(pc.fill_null(parsed, float("nan")), dtype=np.float64))
    return np.asarray(pc.fill_null(parsed, float("nan")), dtype=np.float64)


def to_floats(cells: Any) -> NDArray[np.float64]:
    """Convert cells of a numeric type to floating point; NaN for nulls.

    Decimals are converted through their digits. Arrow's own cast has an error in the last digit that depends on the
    scale (7.00000 becomes 7.000000000000001), and the scale of a column is that of its longest cell: one cell would
    change the others.
    """
    plain = pc.cast(cells, pa.string()) if pa.types.is_decimal(cells.type) else cells
    return np.asarray(pc.fill_null(pc.cast(plain, pa.float64(), safe=False), float("nan")), dtype=np.float64)


def _parse_infinities(text: Any, parsed: NDArray[np.float64]) -> NDArray[np.float64]:
    for pattern, value in ((r"^\+?(?i)inf(inity)?$", np.inf), (r"^-(?i)inf(inity)?$", -np.inf)):
        found = np.asarray(pc.fill_null(pc.match_substring_regex(text, pattern), False))
        parsed = np.where(found, value, parsed) if found.any() else parsed
    return parsed


def objects_to_text(cells: list[Any], decimal: str = ".") -> Any:
    """Convert Python objects to an arrow array of text, each cell on its own; numbers get the decimal mark."""
    texts = [cell if type(cell) is str else _object_to_text(cell, decimal) for cell in cells]
    try:
        return pa.array(texts, pa.string())
    except (pa.ArrowException, UnicodeError):  # half a surrogate pair somewhere
        return pa.array([text and text.encode("utf-8", "replace").decode() for text in texts], pa.string())


def make_valid_text(cells: Any) -> Any:
    """Return the array with valid UTF-8, which arrow's functions require of all cells.

    Arrow accepts any bytes that a file calls text. If one cell is not valid, the array is rewritten cell by cell, with
    a replacement character for what cannot be read.
    """
    kind = cells.type
    if pa.types.is_dictionary(kind):
        words = make_valid_text(cells.dictionary)
        return cells if words is cells.dictionary else pa.DictionaryArray.from_arrays(cells.indices, words)
    if pa.types.is_decimal(kind) and kind.bit_width < 128:  # arrow has few kernels for short decimals
        return cells.cast(pa.decimal128(kind.precision, kind.scale))
    plain = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    if kind not in plain:
        return cells
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        return objects_to_text(cells.cast(plain[kind]).to_pylist())
    return cells


def is_text_type(kind: Any) -> bool:
    """Return whether an arrow type is one of the types of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def to_plain_text(cells: Any) -> Any:
    """Cast text to arrow's plain string type, which every kernel accepts."""
    return cells if pa.types.is_string(cells.type) else cells.cast(pa.string())


def to_objects(cells: Any) -> list[Any]:
    """Convert an arrow array to Python objects.

    A cell that Python cannot hold, such as the year 10000, becomes None.
    """
    try:
        return list(cells.to_pylist())
    except (ArithmeticError, ValueError):
        return [_to_object(cell) for cell in cells]


def _to_object(cell: Any) -> Any:
    try:
        return cell.as_py()
    except (ArithmeticError, ValueError):
        return None


def format_clocks(cells: Any) -> list[str | None]:
    """Format times of day up to 24:00, which engines know and Python does not; None for any other."""
    whole = cells.cast(pa.int32() if pa.types.is_time32(cells.type) else pa.int64()).to_pylist()
    factor, divisor = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}[cells.type.unit]
    return [None if time is None else _format_clock(time * factor // divisor) for time in whole]


def _format_clock(micros: int) -> str | None:
    seconds, rest = divmod(micros, 1_000_000)
    written = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (f".{rest:06}" if rest else "")
    return written if 0 <= micros <= 86_400_000_000 else None


def format_moments(cells: Any) -> Any:
    """Format moments as ISO 8601, the same text for every unit and zone: UTC as Z, without zero fractions."""
    zone = "UTC" if cells.type.tz else None
    return shorten_moments(cells.cast(pa.timestamp("us", zone), safe=False).cast(pa.string()))


def shorten_moments(text: Any) -> Any:
    """Shorten moments that are written with a blank and six digits of a second, as engines do, to that form."""
    short = pc.replace_substring_regex(text, r"\.000000(Z?)$", r"\1")
    short = pc.replace_substring_regex(short, r"[ T]00:00:00$", "")
    return pc.replace_substring(short, " ", "T", max_replacements=1)


def _format_moment(cell: datetime) -> str:
    plain = cell if cell.tzinfo is None else cell.astimezone(UTC).replace(tzinfo=None)
    written = plain.isoformat("T", "microseconds" if plain.microsecond else "seconds")
    return written.removesuffix("T00:00:00") if cell.tzinfo is None else f"{written}Z"


def _format_duration(microseconds: int, decimal: str) -> str:
    """Format a duration in seconds, with as many digits as it needs."""
    seconds, rest = divmod(abs(microseconds), 1_000_000)
    written = f"{seconds}{decimal}{rest:06}".rstrip("0") if rest else str(seconds)
    return f"-{written}" if microseconds < 0 else written


def _object_to_text(cell: Any, decimal: str) -> str | None:
    """Format one object as its typed form would be read."""
    try:
        return _format_object(cell, decimal)
    except Exception:  # an object without a text is an empty cell
        return None


def _format_object(cell: Any, decimal: str) -> str | None:
    if isinstance(cell, np.datetime64):
        cell = cell.astype("M8[us]").item()  # a datetime, as in frames
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(cell, bool | np.bool_):
        return "1" if cell else "0"
    # one complex number makes its whole column complex
    if isinstance(cell, complex | np.complexfloating) and not cell.imag:
        cell = cell.real
    if isinstance(cell, np.timedelta64):  # truncated to microseconds, as moments are
        return None if np.isnat(cell) else _format_duration(int(cell.astype("m8[us]").astype(np.int64)), decimal)
    if isinstance(cell, int | np.integer):
        return _format_number(int(cell), decimal)
    if isinstance(cell, float | np.floating):
        return _format_number(float(cell), decimal)
    if isinstance(cell, Decimal):
        return None if cell.is_nan() else _format_number(float(cell), decimal)
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    if isinstance(cell, timedelta):
        micros = (cell.days * 86_400 + cell.seconds) * 1_000_000 + cell.microseconds
        return _format_duration(micros, decimal)
    # the durations of engines; a month has no fixed length
    if type(cell).__name__ == "MonthDayNano" and not cell.months:
        return _format_duration(cell.days * 86_400_000_000 + cell.nanoseconds // 1000, decimal)
    if isinstance(cell, datetime):
        return _format_moment(cell)
    return cell.isoformat() if isinstance(cell, date) else str(cell)
