"""Text and typed columns to days and microseconds, a whole column at once; what does not parse becomes null."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.schema.kinds.text import EXACT, numbers

MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_ISO_MOMENT = (  # days that every year has; 29 February and everything less usual is read one by one
    r"^[1-9][0-9]{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?$"
)
_ISO_DURATION = (
    r"^(?P<sign>[+-]?)P(?:(?P<weeks>[0-9]+)W)?(?:(?P<days>[0-9]+)D)?"
    r"(?:T(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+(?:\.[0-9]+)?)S)?)?$"
)
_CLOCK = (
    r"^(?P<sign>[+-]?)(?:(?P<days>[0-9]+) days?,? )?(?P<hours>[0-9]+):(?P<minutes>[0-9]{2})"
    r"(?::(?P<seconds>[0-9]{2}(?:\.[0-9]+)?))?$"
)
_PLAIN_SECONDS = re.compile(r"-?[0-9]{1,13}(?:[.][0-9]{1,9})?")


def dates(text: Any, pattern: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Days since 1970-01-01 and which cells are dates. `pattern` is a strptime pattern; None is ISO 8601."""
    microseconds, valid = datetimes(text, pattern or "%Y-%m-%d")
    if pattern is None and not valid.all():  # a date written with a time of day is still a date
        full, also = datetimes(text, None)
        microseconds, valid = np.where(valid, microseconds, full), valid | also
    return np.floor_divide(microseconds, MICROSECONDS["day"]), valid


def datetimes(text: Any, pattern: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Microseconds since 1970-01-01 (UTC where the text has an offset) and which cells are times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    if pattern is None:
        return _iso_moments(text)
    if re.search(r"%[^YmdHMS]", pattern):  # arrow knows fewer directives than Python, and reads %y differently
        return _each(text, lambda cell: _pattern_microseconds(cell, pattern))
    stamps = pc.strptime(text, format=pattern, unit="s", error_is_null=True)
    seconds, valid = arrow_integers(stamps.cast(pa.int64()))
    # arrow reads 30 February as 2 March: only what is written back the same was a date
    same = pc.equal(_unpadded(pc.strftime(stamps, format=pattern)), _unpadded(text))
    return seconds * 1_000_000, valid & np.asarray(pc.fill_null(same, False))


def _iso_moments(text: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The common shape by arrow, which would refuse a whole column for one odd cell; the others one by one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.fill_null(pc.match_substring_regex(text, _ISO_MOMENT), False)
    stamps = pc.cast(pc.if_else(plain, text, pa.scalar(None, text.type)), pa.timestamp("us"))
    values, valid = arrow_integers(stamps.cast(pa.int64()))
    odd = np.flatnonzero(~valid & np.asarray(pc.is_valid(text)))
    if len(odd):
        values, valid = values.copy(), valid.copy()
        values[odd], valid[odd] = _each(text.take(pa.array(odd)), _iso_microseconds)
    return values, valid


def _unpadded(text: Any) -> Any:
    """Days and months without their zero; not years, of which 22 is none."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(text, r"\b0([0-9])\b", r"\1")


def durations(text: Any, decimal: str = ".", group: str = "") -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Microseconds and which cells are durations: ISO 8601 (P1DT2H), 26:30:00, "1 day, 2:30:00", or plain seconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(text)
    seconds = numbers(text, decimal, group)
    for pattern in (_ISO_DURATION, _CLOCK):
        fields = pc.extract_regex(text, pattern)
        found = np.asarray(pc.is_valid(fields))
        if found.any():
            seconds = np.where(found & np.isnan(seconds), _seconds(fields), seconds)
    micros, valid = length_microseconds(seconds)
    long = np.flatnonzero(valid & (np.abs(micros) >= EXACT))
    if len(long):  # floating point does not tell microseconds apart any more: by the digits, where they are plain
        exact, also = _each(text.take(pa.array(long)), lambda cell: _digits_microseconds(cell.replace(decimal, ".")))
        micros[long] = np.where(also, exact, micros[long])
    return micros, valid


def length_microseconds(seconds: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whole microseconds of lengths in seconds, what is finer left out; and which are lengths that can be held."""
    valid = np.isfinite(seconds) & (np.abs(seconds) < 9e12)
    seconds = np.where(valid, seconds, 0)
    nearest = np.rint(seconds * 1e6)  # of 1.1 seconds, which are a little more in floating point, the right one
    return (nearest - (nearest / 1e6 > seconds)).astype(np.int64), valid


def _digits_microseconds(cell: str) -> int:
    if not _PLAIN_SECONDS.fullmatch(cell):
        raise ValueError
    return math.floor(Decimal(cell).scaleb(6))


def _seconds(fields: Any) -> NDArray[np.float64]:
    import pyarrow.compute as pc

    names = [field.name for field in fields.type]
    total = np.zeros(len(fields))
    for name, factor in (
        ("weeks", 604800.0),
        ("days", 86400.0),
        ("hours", 3600.0),
        ("minutes", 60.0),
        ("seconds", 1.0),
    ):
        if name in names:
            total += np.nan_to_num(numbers(pc.struct_field(fields, name))) * factor
    negative = np.asarray(pc.fill_null(pc.equal(pc.struct_field(fields, "sign"), "-"), False))
    return np.where(negative, -total, total)


def _each(text: Any, parse: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """One cell at a time: only distinct values come here, so this stays off the row-by-row path."""
    values = np.zeros(len(text), dtype=np.int64)
    valid = np.zeros(len(text), dtype=np.bool_)
    for index, cell in enumerate(text.to_pylist()):
        try:
            values[index] = parse(cell)
            valid[index] = True
        except (ValueError, TypeError, OverflowError):
            continue
    return values, valid


def _iso_microseconds(cell: str) -> int:
    if cell.startswith("0000-"):  # a year that Python's calendar lacks and arrow's has
        return int(np.datetime64(cell.replace(" ", "T"), "us").astype(np.int64))
    return moment_microseconds(datetime.fromisoformat(cell))


def _pattern_microseconds(cell: str, pattern: str) -> int:
    return moment_microseconds(datetime.strptime(cell, pattern))


def moment_microseconds(moment: datetime) -> int:
    """Microseconds since 1970-01-01; a moment without an offset counts as it reads."""
    naive = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return (naive - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def date_days(day: date) -> int:
    """Days since 1970-01-01."""
    return (day - date(1970, 1, 1)).days


def arrow_integers(array: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """An arrow integer array as numpy, with 0 and False where it is null."""
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(array, 0), dtype=np.int64), np.asarray(pc.is_valid(array))


def arrow_microseconds(array: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Dates, timestamps (UTC) or durations in microseconds; far ends of time are clipped, so nothing overflows."""
    import pyarrow as pa

    days = pa.types.is_date32(array.type)
    raw, valid = arrow_integers(array.cast(pa.int32() if days else pa.int64()))
    unit = "D" if days else "ms" if pa.types.is_date64(array.type) else array.type.unit
    if unit == "ns":
        return np.floor_divide(raw, 1000), valid
    factor = {"D": MICROSECONDS["day"], "s": 1_000_000, "ms": 1000, "us": 1}[unit]
    largest = np.iinfo(np.int64).max // factor
    return np.clip(raw, -largest, largest) * factor, valid
