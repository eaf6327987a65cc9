"""Cells as text and text as numbers, a whole column at once; what does not parse becomes null, and nothing raises."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DIGITS = 400  # the largest floating point number has 309
_WHOLE_DIGITS = 300  # whole numbers up to here are also floating point numbers
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
EXACT = 1 << 53
"""From here on, floating point does not tell all whole numbers apart."""
NOT_A_NUMBER = ("NaN", "nan")
"""How files write what is no number: among numbers it is an empty cell, and so it is among text."""
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def numbers(text: Any, decimal: str = ".", group: str = "") -> NDArray[np.float64]:
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
        return _with_infinities(text, np.asarray(pc.fill_null(parsed, float("nan")), dtype=np.float64))
    return np.asarray(pc.fill_null(parsed, float("nan")), dtype=np.float64)


def floats(cells: Any) -> NDArray[np.float64]:
    """Cells of a type of numbers as floating point; NaN where there is none.

    Decimals go by their digits. Arrow's own cast is off by a last place that depends on the scale (7.00000 becomes
    7.000000000000001), and the scale of a column is as long as its longest cell needs: one cell would move the others.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.cast(cells, pa.string()) if pa.types.is_decimal(cells.type) else cells
    return np.asarray(pc.fill_null(pc.cast(plain, pa.float64(), safe=False), float("nan")), dtype=np.float64)


def exact_numbers(text: Any, decimal: str = ".", group: str = "") -> list[int | float]:
    """The same, where whole numbers too long for floating point are what their digits say."""
    found: list[int | float] = numbers(text, decimal, group).tolist()
    for place, number in enumerate(found):
        if abs(number) >= EXACT:
            plain = exact_number(text[place].as_py().replace(group, "").replace(decimal, "."))
            found[place] = number if plain is None else plain
    return found


def exact_number(text: str) -> int | float | None:
    """The number that a text writes, infinite ones among them; None where there is none.

    Digits alone are a whole number, however long. Any other notation counts as the floating point number that a reader
    of files makes of it.
    """
    if len(text) < _WHOLE_DIGITS and _WHOLE.fullmatch(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number and "_" not in text else None


def _with_infinities(text: Any, parsed: NDArray[np.float64]) -> NDArray[np.float64]:
    import pyarrow.compute as pc

    for pattern, value in ((r"^\+?(?i)inf(inity)?$", np.inf), (r"^-(?i)inf(inity)?$", -np.inf)):
        found = np.asarray(pc.fill_null(pc.match_substring_regex(text, pattern), False))
        parsed = np.where(found, value, parsed) if found.any() else parsed
    return parsed


def objects_as_text(cells: list[Any], decimal: str = ".") -> Any:
    """Python objects as an arrow array of text, each cell on its own; numbers with the decimal mark of the text."""
    import pyarrow as pa

    texts = [cell if type(cell) is str else _object_text(cell) for cell in cells]
    if decimal != ".":
        marked = float, complex, np.inexact, Decimal, timedelta, np.timedelta64, pa.MonthDayNano
        pairs = zip(cells, texts, strict=True)
        texts = [text and text.replace(".", decimal) if isinstance(cell, marked) else text for cell, text in pairs]
    try:
        return pa.array(texts, pa.string())
    except (pa.ArrowException, UnicodeError):  # half a surrogate pair somewhere
        return pa.array([text and text.encode("utf-8", "replace").decode() for text in texts], pa.string())


def readable(cells: Any) -> Any:
    """An arrow array whose text is UTF-8, as arrow's functions need it for all cells alike.

    Arrow holds whatever bytes a file calls text. Where one cell's are not, the array is written cell by cell, with a
    mark for what cannot be read.
    """
    import pyarrow as pa

    kind = cells.type
    if pa.types.is_dictionary(kind):
        words = readable(cells.dictionary)
        return cells if words is cells.dictionary else pa.DictionaryArray.from_arrays(cells.indices, words)
    if pa.types.is_decimal(kind) and kind.bit_width < 128:  # arrow has few kernels for the short ones
        return cells.cast(pa.decimal128(kind.precision, kind.scale))
    plain = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    if kind not in plain:
        return cells
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        return objects_as_text(cells.cast(plain[kind]).to_pylist())
    return cells


def listed(cells: Any) -> list[Any]:
    """An arrow array as Python objects; a cell that Python cannot hold, such as the year 10000, is None."""
    try:
        return list(cells.to_pylist())
    except (ArithmeticError, ValueError):
        return [_held(cell) for cell in cells]


def _held(cell: Any) -> Any:
    try:
        return cell.as_py()
    except (ArithmeticError, ValueError):
        return None


def clocks(cells: Any) -> list[str | None]:
    """Times of day as they are written, up to 24:00, which engines know and Python does not; no text for any other."""
    import pyarrow as pa

    whole = cells.cast(pa.int32() if pa.types.is_time32(cells.type) else pa.int64()).to_pylist()
    factor, divisor = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}[cells.type.unit]
    return [None if time is None else _clock(time * factor // divisor) for time in whole]


def _clock(micros: int) -> str | None:
    seconds, rest = divmod(micros, 1_000_000)
    written = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (f".{rest:06}" if rest else "")
    return written if 0 <= micros <= 86_400_000_000 else None


def moments_as_text(cells: Any) -> Any:
    """Moments in ISO 8601, in one text whatever the unit and zone of their column: UTC as Z, no zeros of a second."""
    import pyarrow as pa

    zone = "UTC" if cells.type.tz else None
    return iso_moments(cells.cast(pa.timestamp("us", zone), safe=False).cast(pa.string()))


def iso_moments(text: Any) -> Any:
    """The same of moments that are written with a blank and six digits of a second, as engines do."""
    import pyarrow.compute as pc

    short = pc.replace_substring_regex(text, r"\.000000(Z?)$", r"\1")
    return pc.replace_substring(short, " ", "T", max_replacements=1)


def _moment_text(cell: datetime) -> str:
    plain = cell if cell.tzinfo is None else cell.astimezone(UTC).replace(tzinfo=None)
    written = plain.isoformat("T", "microseconds" if plain.microsecond else "seconds")
    return written if cell.tzinfo is None else f"{written}Z"


def _decimal_text(cell: Decimal) -> str | None:
    """The short way, as other numbers are: 5.00 is 5."""
    if cell.is_nan():
        return None
    if cell.is_infinite() or abs(cell.adjusted()) > _DIGITS:  # writing it out could take gigabytes
        return str(cell)
    text = format(cell or abs(cell), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _object_text(cell: Any) -> str | None:
    """One object in the text that its typed form would be read as."""
    try:
        return _written(cell)
    except Exception:  # an object that cannot be written is an empty cell
        return None


def _written(cell: Any) -> str | None:
    if isinstance(cell, np.datetime64):
        cell = cell.astype("M8[us]").item()  # a moment, as frames hold all of these
    if isinstance(cell, np.timedelta64):
        cell = cell.astype("m8[us]").item()
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(cell, bool | np.bool_):
        return "true" if cell else "false"
    if isinstance(cell, complex | np.complexfloating) and not cell.imag:  # one among numbers makes all of them so
        cell = cell.real
    if isinstance(cell, float | np.floating):
        number = float(cell)
        return None if number != number else str(int(number)) if number.is_integer() else repr(number)
    if isinstance(cell, Decimal):
        return _decimal_text(cell)
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    if isinstance(cell, timedelta):
        return _written(cell.total_seconds())
    if type(cell).__name__ == "MonthDayNano" and not cell.months:  # how engines hold lengths; a month has none
        return _written((cell.days * 86_400_000_000 + cell.nanoseconds // 1000) / 1_000_000)
    if isinstance(cell, datetime):
        return _moment_text(cell)
    return cell.isoformat() if isinstance(cell, date) else str(cell)
