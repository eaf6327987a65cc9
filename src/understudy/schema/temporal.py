"""Columns of dates, datetimes and durations: whole numbers of days or microseconds on a numeric axis."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understudy.schema.axis import AxisColumn, Bins
from understudy.schema.column import Level
from understudy.schema.text import EXACT, Dialect, parse_numbers

MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_ISO_MOMENT = (  # days that exist in every year; 29 February and unusual notations are parsed one by one
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


def parse_dates(text: Any, pattern: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return days since 1970-01-01, and which cells are dates. `pattern` is a strptime pattern; None means ISO 8601."""
    microseconds, valid = parse_datetimes(text, pattern or "%Y-%m-%d")
    if pattern is None and not valid.all():  # a date with a time of day is still a date
        full, also = parse_datetimes(text, None)
        microseconds, valid = np.where(valid, microseconds, full), valid | also
    return np.floor_divide(microseconds, MICROSECONDS["day"]), valid


def parse_datetimes(text: Any, pattern: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return microseconds since 1970-01-01 (in UTC if the text has an offset), and which cells are times."""
    text = pc.utf8_trim_whitespace(text)
    if pattern is None:
        return _iso_moments(text)
    if re.search(r"%[^YmdHMS]", pattern):  # arrow knows fewer directives than Python, and reads %y differently
        return _parse_each(text, lambda cell: datetime_to_microseconds(datetime.strptime(cell, pattern)))
    stamps = pc.strptime(text, format=pattern, unit="s", error_is_null=True)
    seconds, valid = arrow_to_integers(stamps.cast(pa.int64()))
    # arrow reads 30 February as 2 March: only a text that is written back unchanged was a date
    same = pc.equal(_strip_zeros(pc.strftime(stamps, format=pattern)), _strip_zeros(text))
    return seconds * 1_000_000, valid & np.asarray(pc.fill_null(same, False))


def _iso_moments(text: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Parse the common format with arrow, which would refuse a whole column for one odd cell.

    Parse the others one by one.
    """
    plain = pc.fill_null(pc.match_substring_regex(text, _ISO_MOMENT), False)
    stamps = pc.cast(pc.if_else(plain, text, pa.scalar(None, text.type)), pa.timestamp("us"))
    values, valid = arrow_to_integers(stamps.cast(pa.int64()))
    odd = np.flatnonzero(~valid & np.asarray(pc.is_valid(text)))
    if len(odd):
        values, valid = values.copy(), valid.copy()
        values[odd], valid[odd] = _parse_each(text.take(pa.array(odd)), _iso_microseconds)
    return values, valid


def _strip_zeros(text: Any) -> Any:
    """Remove the leading zero of days and months; not of years, since 22 is not a year."""
    return pc.replace_substring_regex(text, r"\b0([0-9])\b", r"\1")


def parse_durations(text: Any, decimal: str = ".", group: str = "") -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return microseconds, and which cells are durations.

    ISO 8601 (P1DT2H), 26:30:00, "1 day, 2:30:00" or plain seconds.
    """
    text = pc.utf8_trim_whitespace(text)
    seconds = parse_numbers(text, decimal, group)
    for pattern in (_ISO_DURATION, _CLOCK):
        fields = pc.extract_regex(text, pattern)
        found = np.asarray(pc.is_valid(fields))
        if found.any():
            seconds = np.where(found & np.isnan(seconds), _total_seconds(fields), seconds)
    micros, valid = seconds_to_microseconds(seconds)
    long = np.flatnonzero(valid & (np.abs(micros) >= EXACT))
    if len(long):  # beyond the precision of floating point: parsed by their digits
        exact, also = _parse_each(
            text.take(pa.array(long)), lambda cell: _digits_microseconds(cell.replace(decimal, "."))
        )
        micros[long] = np.where(also, exact, micros[long])
    return micros, valid


def seconds_to_microseconds(seconds: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Round seconds down to whole microseconds; also return which durations can be represented."""
    valid = np.isfinite(seconds) & (np.abs(seconds) < 9e12)
    seconds = np.where(valid, seconds, 0)
    nearest = np.rint(seconds * 1e6)  # 1.1 seconds are slightly more in floating point
    return (nearest - (nearest / 1e6 > seconds)).astype(np.int64), valid


def _digits_microseconds(cell: str) -> int:
    if not _PLAIN_SECONDS.fullmatch(cell):
        raise ValueError
    return math.floor(Decimal(cell).scaleb(6))


def _total_seconds(fields: Any) -> NDArray[np.float64]:
    seconds = {"weeks": 604800.0, "days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}
    total = np.zeros(len(fields))
    for name in (field.name for field in fields.type if field.name in seconds):
        total += np.nan_to_num(parse_numbers(pc.struct_field(fields, name))) * seconds[name]
    negative = np.asarray(pc.fill_null(pc.equal(pc.struct_field(fields, "sign"), "-"), False))
    return np.where(negative, -total, total)


def _parse_each(text: Any, parse: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Parse one cell at a time. Only distinct values come here, so this is not done for every row."""
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
    if cell.startswith("0000-"):  # year 0 exists in arrow but not in Python
        return int(np.datetime64(cell.replace(" ", "T"), "us").astype(np.int64))
    return datetime_to_microseconds(datetime.fromisoformat(cell))


def datetime_to_microseconds(moment: datetime) -> int:
    """Return microseconds since 1970-01-01; a datetime without an offset is taken as written."""
    naive = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    return (naive - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def date_to_days(day: date) -> int:
    """Return days since 1970-01-01."""
    return (day - date(1970, 1, 1)).days


def arrow_to_integers(array: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert an arrow integer array to numpy; nulls become 0 and False."""
    return np.asarray(pc.fill_null(array, 0), dtype=np.int64), np.asarray(pc.is_valid(array))


def arrow_to_microseconds(array: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert dates, timestamps (UTC) or durations to microseconds, clipped so that nothing overflows."""
    days = pa.types.is_date32(array.type)
    raw, valid = arrow_to_integers(array.cast(pa.int32() if days else pa.int64()))
    unit = "D" if days else "ms" if pa.types.is_date64(array.type) else array.type.unit
    if unit == "ns":
        return np.floor_divide(raw, 1000), valid
    factor = {"D": MICROSECONDS["day"], "s": 1_000_000, "ms": 1000, "us": 1}[unit]
    largest = np.iinfo(np.int64).max // factor
    return np.clip(raw, -largest, largest) * factor, valid


# -- Temporal columns ------------------------------------------------------------------------------------------------


_ISO_PATTERN = re.compile(r"%Y-%m-%d(?:([T ])%H:%M(:%S)?)?([^%]*)")
_NUMBER_LIKE = re.compile("(%[YmdHMS])+([.](%[YmdHMS])+)?")  # patterns whose texts a reader takes for numbers
_SECONDS = re.compile(r"^-?[0-9]{1,12}$")
_WIDTH = re.compile(r"^\s*([0-9]+)\s*(second|minute|hour|day|week|month|year)s?\s*$")


class Temporal(AxisColumn):
    """A column of dates, datetimes or durations.

    Attributes:
        pattern: the strptime pattern of its text ("%d/%m/%Y"); None: ISO 8601. A duration with a pattern ("%H:%M") is a
            time of day and written as such; one without is written in seconds. In a file: `format`.
        resolution: the precision of datetimes and durations.
    """

    kind: Literal["date", "datetime", "duration"]
    pattern: str | None = None
    resolution: Literal["second", "minute", "hour", "day"] = "second"

    @property
    def grain(self) -> int:
        """One day, or the resolution in microseconds."""
        return 1 if self.kind == "date" else MICROSECONDS[self.resolution]

    @property
    def per_unit(self) -> float:
        """Dates count in days, datetimes and durations in seconds."""
        return 1.0 if self.kind == "date" else float(MICROSECONDS["second"])

    def unit_of(self, value: float | str, key: str) -> Any:
        """Convert a declared date, datetime or duration to days or microseconds."""
        try:
            if self.kind == "date":
                return date_to_days(date.fromisoformat(str(value)))
            if self.kind == "datetime":
                return datetime_to_microseconds(datetime.fromisoformat(str(value)))
        except ValueError:
            example = "2024-01-31" if self.kind == "date" else "2024-01-31T08:30:00"
            raise ValueError(f"`{key}` is not a {self.kind}; write it as {example}") from None
        if _SECONDS.match(str(value)):
            return int(value) * MICROSECONDS["second"]
        units, valid = parse_durations(pa.array([str(value)], pa.string()))
        if not valid[0]:
            raise ValueError(f"`{key}` is not a duration; write seconds, or as P1DT2H30M")
        return int(units[0])

    def width_of(self, width: float | str) -> Any:
        """Convert a declared width: "7 days", "1 hour", or a number of days (dates) or seconds."""
        match = _WIDTH.match(str(width))
        if match and match[2] not in ("month", "year"):
            return self._span(int(match[1]), match[2])
        if isinstance(width, str):
            raise ValueError('`bins.width` is not a length of time; write "7 days", "1 hour" or "1 month"')
        return self._span(1, "day" if self.kind == "date" else "second", width)

    def _span(self, count: int, unit: str, times: float = 1) -> int:
        size = MICROSECONDS["day"] * 7 if unit == "week" else MICROSECONDS[unit]
        if self.kind != "date":
            return round(count * size * times)
        if size < MICROSECONDS["day"] or times != int(times):
            raise ValueError("`bins.width` of a date is a whole number of days, weeks, months or years; correct it")
        return count * int(times) * (size // MICROSECONDS["day"])

    def _count_months(self, width: Any, key: str) -> int | None:
        """Return how many months a width such as "1 month" or "2 years" has; None for any other width."""
        match = _WIDTH.match(width) if isinstance(width, str) else None
        if match is None or match[2] not in ("month", "year"):
            return None
        if self.kind == "duration":
            raise ValueError(f"`{key}` of a duration cannot be months or years; use days or weeks")
        return int(match[1]) * (12 if match[2] == "year" else 1)

    def _edges(self) -> NDArray[Any]:
        months = self._count_months(self.bins.width, "bins.width") if isinstance(self.bins, Bins) else None
        return super()._edges() if months is None else self._cut_by_months(months)

    def _cut_by_months(self, months: int) -> NDArray[Any]:
        """Return edges of bins that begin on the first of a month, so that they read as months and years."""
        if months < 1:
            raise ValueError("`bins.width` must be positive; give the width of a bin")
        low, high = self.bounds
        scale = 1 if self.kind == "date" else MICROSECONDS["day"]
        first = np.datetime64(int(low // scale), "D").astype("datetime64[M]").astype(np.int64) // months * months
        last = np.datetime64(int(high // scale), "D").astype("datetime64[M]").astype(np.int64)
        starts = np.arange(first, last + 1, months).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        return np.concatenate(([low], (starts * scale)[starts * scale > low], [high + 1]))

    def level_edges(self, level: Level) -> NDArray[Any]:
        """Return where the groups of a level begin; months and years begin on their first day."""
        months = self._count_months(level.width, "levels")
        return super().level_edges(level) if months is None else self._cut_by_months(months)[:-1]

    def units_of_text(self, text: Any, dialect: Dialect) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Convert texts to units: by the pattern, as ISO 8601, or by the pattern with or without a time of day.

        Readers turn such texts into typed cells if a column holds nothing else, so they are also understood beside an
        odd cell.
        """
        if self.kind == "duration":
            return self._read_durations(text, dialect)
        read = parse_dates if self.kind == "date" else parse_datetimes
        if self.pattern is None:
            return read(text, None)
        units, valid = read(_pad_zeros(text, self.pattern), self.pattern)
        for pattern in (None, *_other_patterns(self.pattern, self.kind)):
            if len(odd := np.flatnonzero(~valid)):
                units, valid = units.copy(), valid.copy()
                units[odd], valid[odd] = read(_keep_full_iso(text.take(pa.array(odd)), pattern), pattern)
        return units, valid

    def _read_durations(self, text: Any, dialect: Dialect) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        units, valid = parse_durations(text, dialect.decimal, dialect.group)
        if self.pattern is not None and "%p" in self.pattern and not valid.all():  # 3:16 PM
            moments, noon = parse_datetimes(text, self.pattern)
            units, valid = np.where(valid, units, moments % MICROSECONDS["day"]), valid | noon
        return units, valid

    def units_of_typed(self, cells: Any) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        """Convert dates, timestamps (in UTC if they have a zone) and durations to units.

        Numbers are durations in seconds.
        """
        kind = cells.type
        if self.kind == "duration":
            return self._lengths(cells)
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return None
        moments, valid = arrow_to_microseconds(cells)
        return (np.floor_divide(moments, MICROSECONDS["day"]), valid) if self.kind == "date" else (moments, valid)

    def _lengths(self, cells: Any) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        if pa.types.is_time(cells.type):
            return arrow_to_integers(cells.cast(pa.time64("us"), safe=False).cast(pa.int64()))
        if pa.types.is_duration(cells.type):
            return arrow_to_microseconds(cells)
        if not (pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type)):
            return None
        return seconds_to_microseconds(np.asarray(pc.fill_null(pc.cast(cells, pa.float64(), safe=False), float("nan"))))

    def format_values(self, values: Any, dialect: Dialect) -> Any:
        """Format times by the declared pattern, else as ISO 8601; durations without a pattern in seconds."""
        if self.kind == "duration" and self.pattern is None:
            return pc.divide(values.cast(pa.int64()), MICROSECONDS["second"]).cast(pa.string())
        if self.kind == "duration":
            values = values.cast(pa.int64()).cast(pa.timestamp("us"))
        moments = values.cast(pa.timestamp("s"), safe=False)
        iso = _ISO_PATTERN.fullmatch(self.pattern or ("%Y-%m-%d" if self.kind == "date" else "%Y-%m-%dT%H:%M:%S"))
        if iso is not None:  # arrow's own text is ISO, and much faster than its strftime
            return _write_iso(moments.cast(pa.string()), *iso.groups())
        distinct = moments.dictionary_encode()
        return pc.strftime(distinct.dictionary, format=self.pattern).take(distinct.indices)

    def format_unit(self, unit: Any) -> str:
        """Format a value in units of the axis; a time of day by its pattern."""
        if self.kind == "duration" and self.pattern is not None:
            return str(self.format_values(self.from_units(np.asarray([unit])), Dialect()).to_pylist()[0])
        return super().format_unit(unit)

    def from_units(self, units: NDArray[Any]) -> Any:
        """Convert units to an arrow array of dates, timestamps, times of day or durations."""
        return pa.array(units.astype(np.int32) if self.kind == "date" else units).cast(self.arrow_type)

    @property
    def arrow_type(self) -> Any:
        """The type date32, or microseconds; those of a duration with a pattern are a time of day."""
        if self.kind == "duration" and self.pattern is not None and self.top is None:
            units = (*self.bounds, *(unit for _, unit in self._token_units))
            if min(units) >= 0 and max(units) < MICROSECONDS["day"]:
                return pa.time64("us")
        return {"date": pa.date32(), "datetime": pa.timestamp("us"), "duration": pa.duration("us")}[self.kind]


def _write_iso(text: Any, between: str | None, seconds: str | None, after: str) -> Any:
    """Change texts such as "2024-01-31 08:30:00" to another form of ISO 8601.

    Args:
        text: the texts.
        between: what stands between date and time; None: dates alone.
        seconds: None if they are left out.
        after: what every text ends with.
    """
    dropped = 9 if between is None else 0 if seconds else 3
    text = pc.utf8_slice_codeunits(text, 0, -dropped) if dropped else text
    text = text if between in (None, " ") else pc.replace_substring(text, " ", "T")
    return pc.binary_join_element_wise(text, pa.scalar(after, text.type), "") if after else text


def _keep_full_iso(text: Any, pattern: str | None) -> Any:
    """Keep only texts in full ISO 8601 if there is no pattern: 2020 and 20200131 are numbers to readers."""
    if pattern is not None:
        return text
    written = pc.fill_null(pc.match_substring_regex(text, r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)"), False)
    return pc.if_else(written, text, pa.scalar(None, text.type))


def _other_patterns(pattern: str, kind: str) -> list[str]:
    """Return the pattern of a date with a time of day added, or that of a datetime without it."""
    if kind == "date":
        return [f"{pattern} %H:%M", f"{pattern} %H:%M:%S", f"{pattern} %H:%M:%S.%f"]
    day = re.split(r"[T ]%[HI]", pattern)[0]
    return [] if day == pattern else [day]


def _pad_zeros(text: Any, pattern: str) -> Any:
    """Restore the zeros that a reader of numbers removed: 1022024 for %d%m%Y, 2020.1 for %Y.%m."""
    if not _NUMBER_LIKE.fullmatch(pattern):
        return text
    whole, *rest = (sum(4 if mark == "Y" else 2 for mark in part if mark != "%") for part in pattern.split("."))
    if not rest:
        short = pc.match_substring_regex(text, f"^[0-9]{{1,{whole}}}$")
        return pc.if_else(pc.fill_null(short, False), pc.utf8_lpad(text, whole, "0"), text)
    short = pc.match_substring_regex(text, f"^[0-9]{{1,{whole}}}([.,][0-9]{{1,{rest[0]}}})?$")
    left = pc.utf8_lpad(pc.replace_substring_regex(text, r"[.,].*$", ""), whole, "0")
    right = pc.utf8_rpad(pc.replace_substring_regex(text, r"^[0-9]*[.,]?", ""), rest[0], "0")
    return pc.if_else(pc.fill_null(short, False), pc.binary_join_element_wise(left, right, "."), text)
