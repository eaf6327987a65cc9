"""How a text file of the table is written: separators, encoding, header."""

from __future__ import annotations

import codecs
import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, field_validator, model_validator


class Dialect(BaseModel):
    """The CSV dialect of the table. Every column is read as text; the schema's columns give it meaning.

    Attributes:
        delimiter: what separates two cells; one character.
        decimal: the decimal mark of numbers; "." or ",".
        group: the digit-group mark inside numbers ("1.234.567"), or empty for none.
        encoding: the file's character encoding. A byte-order mark is accepted with any UTF encoding.
        header: whether the first line names the columns; without it the schema's columns name them in order.
        quote: the character around cells that contain separators.
        trim: whether blanks around a cell are dropped when the cell as written is no declared value.
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
    def _one_character(cls, mark: str) -> str:
        if len(mark) != 1 or not mark.isascii() or mark in "\0\r\n":
            raise ValueError('must be one character of ASCII; write a tab as "\\t"')
        return mark

    @field_validator("decimal")
    @classmethod
    def _decimal_mark(cls, mark: str) -> str:
        if mark not in (".", ","):
            raise ValueError('must be "." or ","; choose the one that the file uses')
        return mark

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, encoding: str) -> str:
        try:
            codecs.lookup(encoding)
        except (LookupError, ValueError):
            raise ValueError("is no known encoding; try utf-8, or windows-1252 for files saved by Excel") from None
        return encoding

    @model_validator(mode="after")
    def _marks_differ(self) -> Dialect:
        if self.group and (len(self.group) != 1 or self.group == self.decimal):
            raise ValueError("`group` must be one character other than the decimal mark; correct one of them")
        if self.delimiter == self.quote:
            raise ValueError("`delimiter` and `quote` must differ; correct one of them")
        return self


# ----------------------------------------------------------------------------------------------------
# What a cell means, whatever its type: the one text of a cell, and text as numbers, a whole column at once.
#
# **The rule.** A value counts by what it means, never by how a reader typed it. Readers of files guess the type of a
# column from all of its cells, so one odd cell decides whether everybody's `007` is text or 7. `meaning` therefore
# gives a cell's text the spelling that the text of any such typed cell has, `to_text` gives typed cells that spelling,
# and all coding, the names of units and the values that are bought rest on these two. ``docs/decisions/schema-
# coding.md`` says why, and what a text file given by its path keeps besides.
#
# What does not parse becomes null, and nothing raises.


_WHOLE_DIGITS = 300  # whole numbers up to here are also floating point numbers
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
EXACT = 1 << 53
"""From here on, floating point does not tell all whole numbers apart."""
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_INFINITE = r"^[+-]?(?i:inf(inity)?)$"
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?")
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9])(?:[.]([0-9]{1,6}))?)?")
TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
"""How files write truth: what readers of files make a truth value of."""
EMPTY = frozenset(
    {"", "NaN", "nan", "-NaN", "-nan", "NA", "N/A", "n/a", "<NA>", "NULL", "null", "None", "#N/A", "#N/A N/A", "#NA"}
    | {"1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN"}
)
"""What readers of files take for an empty cell, some always and some unless another cell of the column is odd."""
PLAIN = (
    "^([A-EGHJ-MO-SU-Za-eghj-mo-su-z]|(0|-?[1-9][0-9]{0,14})$|-?(0|[1-9][0-9]{0,7})[.][0-9]{0,3}[1-9]$"
    "|[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$)"
)
"""Texts that are their own meaning at a glance, for the regular expressions of any engine: most cells are."""


def meaning(text: str, decimal: str = ".", group: str = "", *, exact: bool = False) -> str | None:
    """The text of what a cell's text means: the same as that of any typed cell that a reader may have made of it.

    - what readers take for an empty cell (`EMPTY`) is null;
    - numbers are written the short way: 007, +7, 7.0 and 0x7 are 7, and 1e5 is 100000; beyond 2^53 whole numbers are
      what floating point makes of them, because one empty cell makes floating point of a column;
    - true and false are 1 and 0, because readers make one of the other;
    - a moment is ISO 8601 with a T, in UTC where it has an offset, and midnight without one is its day;
    - a time of day has its seconds.

    Any other text is itself.

    Args:
        text: the cell.
        decimal: the decimal mark, in which numbers are also written.
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
    if (number := _parse_number(bare, decimal, group)) is not None:
        return _format_number(number, decimal, exact=exact)
    if _MOMENT.fullmatch(bare):
        try:
            return _format_moment(datetime.fromisoformat(bare))
        except (ValueError, OverflowError):
            return text
    if clock := _CLOCK.fullmatch(bare):
        hour, minute, second, rest = clock.groups()
        written = f"{hour}:{minute}:{second or '00'}"
        return f"{written}.{rest:0<6}" if rest and int(rest) else written
    return text


def meanings(text: Any, decimal: str = ".", group: str = "", *, exact: bool = False) -> Any:
    """The meaning of each text of an arrow array, of strings or of a dictionary of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

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
    """Moments without the mark of a zone, all of which are in UTC: a declared moment may leave it out."""
    import pyarrow.compute as pc

    pattern = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T00:00:00Z|(T.*)Z)$"
    if isinstance(text, str):
        return re.sub(pattern, r"\1\2", text)
    return pc.replace_substring_regex(text, pattern, r"\1\2")


def to_text(cells: Any, decimal: str = ".", *, exact: bool = False) -> Any:
    """Any arrow array as text: typed cells by what they mean, text as it is.

    Where arrow cannot write one cell, every cell is written on its own. `exact` keeps all digits of whole numbers.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

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
    """The number that a text writes, infinite ones among them; None where there is none.

    Digits alone are a whole number, however long. Any other notation counts as the floating point number that a reader
    of files makes of it.
    """
    return _parse_number(text.strip(), decimal, group)


def parse_exact_numbers(text: Any, decimal: str = ".", group: str = "") -> list[int | float]:
    """The numbers of an arrow array of text, NaN where there is none; long whole numbers are what their digits say."""
    found = (None if cell is None else parse_exact_number(cell, decimal, group) for cell in text.to_pylist())
    return [math.nan if number is None else number for number in found]


def _parse_number(bare: str, decimal: str, group: str) -> int | float | None:
    """The number that a text without blanks around it writes; digits alone are a whole number, however long."""
    if group and re.fullmatch(rf"[+-]?[0-9]{{1,3}}({re.escape(group)}[0-9]{{3}})+({re.escape(decimal)}[0-9]*)?", bare):
        bare = bare.replace(group, "")
    bare = bare.replace(decimal, ".")
    if _HEXADECIMAL.fullmatch(bare):
        number = int(bare, 16)
        return number if number < 1 << 63 else number - (1 << 64)
    if re.match(_NUMBER, bare) or re.match(_INFINITE, bare):
        return int(bare) if len(bare) < _WHOLE_DIGITS and _WHOLE.fullmatch(bare) else float(bare)
    return None


def _format_number(number: float, decimal: str = ".", *, exact: bool = False) -> str | None:
    """A number the short way; None for what is no number."""
    if number != number:
        return None
    if isinstance(number, int) and not exact and abs(number) >= EXACT:
        number = float(number)
    if isinstance(number, int) or number.is_integer():
        return str(int(number))
    return repr(number).replace(".", decimal)


def parse_numbers(text: Any, decimal: str = ".", group: str = "") -> NDArray[np.float64]:
    """Numbers written in an arrow array of text; NaN where there is none. Infinities come out as infinities."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    if group:
        text = pc.replace_substring(text, group, "")
    if decimal != ".":
        text = pc.replace_substring(text, decimal, ".")
    try:  # where every cell is a number
        parsed = pc.cast(text, pa.float64())
    except pa.ArrowInvalid:  # the same numbers cell by cell: one odd cell costs time and changes nothing else
        fits = pc.match_substring_regex(text, _NUMBER)
        digits = pc.if_else(fits, pc.replace_substring_regex(text, r"^\+", ""), pa.scalar(None, text.type))
        parsed = pc.cast(digits, pa.float64())
        return _parse_infinities(text, np.asarray(pc.fill_null(parsed, float("nan")), dtype=np.float64))
    return np.asarray(pc.fill_null(parsed, float("nan")), dtype=np.float64)


def to_floats(cells: Any) -> NDArray[np.float64]:
    """Cells of a type of numbers as floating point; NaN where there is none.

    Decimals go by their digits. Arrow's own cast is off by a last place that depends on the scale (7.00000 becomes
    7.000000000000001), and the scale of a column is as long as its longest cell needs: one cell would move the others.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.cast(cells, pa.string()) if pa.types.is_decimal(cells.type) else cells
    return np.asarray(pc.fill_null(pc.cast(plain, pa.float64(), safe=False), float("nan")), dtype=np.float64)


def _parse_infinities(text: Any, parsed: NDArray[np.float64]) -> NDArray[np.float64]:
    import pyarrow.compute as pc

    for pattern, value in ((r"^\+?(?i)inf(inity)?$", np.inf), (r"^-(?i)inf(inity)?$", -np.inf)):
        found = np.asarray(pc.fill_null(pc.match_substring_regex(text, pattern), False))
        parsed = np.where(found, value, parsed) if found.any() else parsed
    return parsed


def objects_to_text(cells: list[Any], decimal: str = ".") -> Any:
    """Python objects as an arrow array of text, each cell on its own; numbers with the decimal mark of the text."""
    import pyarrow as pa

    texts = [cell if type(cell) is str else _object_to_text(cell, decimal) for cell in cells]
    try:
        return pa.array(texts, pa.string())
    except (pa.ArrowException, UnicodeError):  # half a surrogate pair somewhere
        return pa.array([text and text.encode("utf-8", "replace").decode() for text in texts], pa.string())


def make_valid_text(cells: Any) -> Any:
    """An arrow array whose text is UTF-8, as arrow's functions need it for all cells alike.

    Arrow holds whatever bytes a file calls text. Where one cell's are not, the array is written cell by cell, with a
    mark for what cannot be read.
    """
    import pyarrow as pa

    kind = cells.type
    if pa.types.is_dictionary(kind):
        words = make_valid_text(cells.dictionary)
        return cells if words is cells.dictionary else pa.DictionaryArray.from_arrays(cells.indices, words)
    if pa.types.is_decimal(kind) and kind.bit_width < 128:  # arrow has few kernels for the short ones
        return cells.cast(pa.decimal128(kind.precision, kind.scale))
    plain = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    if kind not in plain:
        return cells
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        return objects_to_text(cells.cast(plain[kind]).to_pylist())
    return cells


def to_objects(cells: Any) -> list[Any]:
    """An arrow array as Python objects; a cell that Python cannot hold, such as the year 10000, is None."""
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
    """Times of day as they are written, up to 24:00, which engines know and Python does not; no text for any other."""
    import pyarrow as pa

    whole = cells.cast(pa.int32() if pa.types.is_time32(cells.type) else pa.int64()).to_pylist()
    factor, divisor = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}[cells.type.unit]
    return [None if time is None else _format_clock(time * factor // divisor) for time in whole]


def _format_clock(micros: int) -> str | None:
    seconds, rest = divmod(micros, 1_000_000)
    written = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (f".{rest:06}" if rest else "")
    return written if 0 <= micros <= 86_400_000_000 else None


def format_moments(cells: Any) -> Any:
    """Moments in ISO 8601, in one text whatever the unit and zone of their column: UTC as Z, no zeros of a second."""
    import pyarrow as pa

    zone = "UTC" if cells.type.tz else None
    return shorten_moments(cells.cast(pa.timestamp("us", zone), safe=False).cast(pa.string()))


def shorten_moments(text: Any) -> Any:
    """The same of moments that are written with a blank and six digits of a second, as engines do."""
    import pyarrow.compute as pc

    short = pc.replace_substring_regex(text, r"\.000000(Z?)$", r"\1")
    short = pc.replace_substring_regex(short, r"[ T]00:00:00$", "")
    return pc.replace_substring(short, " ", "T", max_replacements=1)


def _format_moment(cell: datetime) -> str:
    plain = cell if cell.tzinfo is None else cell.astimezone(UTC).replace(tzinfo=None)
    written = plain.isoformat("T", "microseconds" if plain.microsecond else "seconds")
    return written.removesuffix("T00:00:00") if cell.tzinfo is None else f"{written}Z"


def _format_duration(microseconds: int, decimal: str) -> str:
    """A length of time in seconds, with as many digits as it needs."""
    seconds, rest = divmod(abs(microseconds), 1_000_000)
    written = f"{seconds}{decimal}{rest:06}".rstrip("0") if rest else str(seconds)
    return f"-{written}" if microseconds < 0 else written


def _object_to_text(cell: Any, decimal: str) -> str | None:
    """One object in the text that its typed form would be read as."""
    try:
        return _format_object(cell, decimal)
    except Exception:  # an object that cannot be written is an empty cell
        return None


def _format_object(cell: Any, decimal: str) -> str | None:
    if isinstance(cell, np.datetime64):
        cell = cell.astype("M8[us]").item()  # a moment, as frames hold all of these
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(cell, bool | np.bool_):
        return "1" if cell else "0"
    if isinstance(cell, complex | np.complexfloating) and not cell.imag:  # one among numbers makes all of them so
        cell = cell.real
    if isinstance(cell, np.timedelta64):  # what is finer than a microsecond is left out, as of moments
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
    if type(cell).__name__ == "MonthDayNano" and not cell.months:  # how engines hold lengths; a month has none
        return _format_duration(cell.days * 86_400_000_000 + cell.nanoseconds // 1000, decimal)
    if isinstance(cell, datetime):
        return _format_moment(cell)
    return cell.isoformat() if isinstance(cell, date) else str(cell)
