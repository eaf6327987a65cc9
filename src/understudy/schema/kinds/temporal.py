"""Columns of dates, datetimes and durations: whole numbers of days or microseconds on the same kind of axis."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.schema.format.dialect import Dialect
from understudy.schema.kinds.levels import Level
from understudy.schema.kinds.measured import Bins, Measured
from understudy.schema.kinds.times import (
    MICROSECONDS,
    arrow_microseconds,
    date_days,
    dates,
    datetimes,
    durations,
    length_microseconds,
    moment_microseconds,
)

_NUMBER_LIKE = re.compile("(%[YmdHMS])+([.](%[YmdHMS])+)?")  # patterns whose texts a reader takes for numbers
_SECONDS = re.compile(r"^-?[0-9]{1,12}$")
_WIDTH = re.compile(r"^\s*([0-9]+)\s*(second|minute|hour|day|week|month|year)s?\s*$")


class Temporal(Measured):
    """A date, a moment or a length of time.

    Attributes:
        pattern: how text writes it, as a strptime pattern ("%d/%m/%Y"); None: ISO 8601. In a file: `format`.
        resolution: the precision of datetimes and durations.
    """

    kind: Literal["date", "datetime", "duration"]
    pattern: str | None = None
    resolution: Literal["second", "minute", "hour", "day"] = "second"

    @property
    def grain(self) -> int:
        """A day, or the resolution in microseconds."""
        return 1 if self.kind == "date" else MICROSECONDS[self.resolution]

    @property
    def per_unit(self) -> float:
        """Dates count in days, lengths and moments in seconds."""
        return 1.0 if self.kind == "date" else float(MICROSECONDS["second"])

    def unit_of(self, value: float | str, key: str) -> Any:
        """A declared date, moment or length in days or microseconds."""
        try:
            if self.kind == "date":
                return date_days(date.fromisoformat(str(value)))
            if self.kind == "datetime":
                return moment_microseconds(datetime.fromisoformat(str(value)))
        except ValueError:
            example = "2024-01-31" if self.kind == "date" else "2024-01-31T08:30:00"
            raise ValueError(f"`{key}` is no {self.kind}; write it as {example}") from None
        if _SECONDS.match(str(value)):
            return int(value) * MICROSECONDS["second"]
        units, valid = durations(_text_array([str(value)]))
        if not valid[0]:
            raise ValueError(f"`{key}` is no duration; write seconds, or as P1DT2H30M")
        return int(units[0])

    def width_of(self, width: float | str) -> Any:
        """A declared width: "7 days", "1 hour", or a number of days (dates) or seconds."""
        match = _WIDTH.match(str(width))
        if match and match[2] not in ("month", "year"):
            return self._span(int(match[1]), match[2])
        if isinstance(width, str):
            raise ValueError('`bins.width` is no length of time; write "7 days", "1 hour" or "1 month"')
        return self._span(1, "day" if self.kind == "date" else "second", width)

    def _span(self, count: int, unit: str, times: float = 1) -> int:
        size = MICROSECONDS["day"] * 7 if unit == "week" else MICROSECONDS[unit]
        if self.kind != "date":
            return round(count * size * times)
        if size < MICROSECONDS["day"] or times != int(times):
            raise ValueError("`bins.width` of a date is a whole number of days, weeks, months or years; correct it")
        return count * int(times) * (size // MICROSECONDS["day"])

    def _edges(self) -> NDArray[Any]:
        width = self.bins.width if isinstance(self.bins, Bins) else None
        match = _WIDTH.match(width) if isinstance(width, str) else None
        if match is None or match[2] not in ("month", "year"):
            return super()._edges()
        if self.kind == "duration":
            raise ValueError("`bins.width` of a duration cannot be months or years; use days or weeks")
        return self._by_months(int(match[1]) * (12 if match[2] == "year" else 1))

    def _by_months(self, months: int) -> NDArray[Any]:
        """Bins that begin on the first of a month, so that they read as months and years."""
        if months < 1:
            raise ValueError("`bins.width` must be positive; give the width of a bin")
        low, high = self.bounds
        scale = 1 if self.kind == "date" else MICROSECONDS["day"]
        first = np.datetime64(int(low // scale), "D").astype("datetime64[M]").astype(np.int64) // months * months
        last = np.datetime64(int(high // scale), "D").astype("datetime64[M]").astype(np.int64)
        starts = np.arange(first, last + 1, months).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        return np.concatenate(([low], (starts * scale)[starts * scale > low], [high + 1]))

    def level_edges(self, level: Level) -> NDArray[Any]:
        """Where the groups of a level begin; months and years begin on their first day."""
        match = _WIDTH.match(level.width) if isinstance(level.width, str) else None
        if match is None or match[2] not in ("month", "year"):
            return super().level_edges(level)
        return self._by_months(int(match[1]) * (12 if match[2] == "year" else 1))[:-1]

    def units_of_text(self, text: Any, dialect: Dialect) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Times written as text: by the pattern, as ISO 8601, or by the pattern with or without a time of day.

        Readers make typed cells of such texts where a column holds nothing else, so they count beside an odd cell too.
        """
        import pyarrow as pa

        if self.kind == "duration":
            return durations(text, dialect.decimal, dialect.group)
        read = dates if self.kind == "date" else datetimes
        if self.pattern is None:
            return read(text, None)
        units, valid = read(_padded(text, self.pattern), self.pattern)
        for pattern in (None, *_with_or_without_time(self.pattern, self.kind)):
            if len(odd := np.flatnonzero(~valid)):
                units, valid = units.copy(), valid.copy()
                units[odd], valid[odd] = read(_or_null(text.take(pa.array(odd)), pattern), pattern)
        return units, valid

    def units_of_typed(self, cells: Any) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        """Dates, timestamps (those with a zone as UTC) and durations; numbers are lengths in seconds."""
        import pyarrow as pa

        kind = cells.type
        if self.kind == "duration":
            return self._lengths(cells)
        if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return None
        moments, valid = arrow_microseconds(cells)
        return (np.floor_divide(moments, MICROSECONDS["day"]), valid) if self.kind == "date" else (moments, valid)

    def _lengths(self, cells: Any) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_duration(cells.type):
            return arrow_microseconds(cells)
        if not (pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type)):
            return None
        return length_microseconds(np.asarray(pc.fill_null(pc.cast(cells, pa.float64(), safe=False), float("nan"))))

    def text_of(self, values: Any, dialect: Dialect) -> Any:
        """Times in the declared pattern, else ISO 8601; lengths in seconds."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.kind == "duration":
            return pc.divide(values.cast(pa.int64()), MICROSECONDS["second"]).cast(pa.string())
        moments = values.cast(pa.timestamp("s"), safe=False)
        if self.pattern is None:  # arrow's own text is ISO, and much faster than its strftime
            return values.cast(pa.string()) if self.kind == "date" else _iso(moments)
        distinct = moments.dictionary_encode()
        return pc.strftime(distinct.dictionary, format=self.pattern).take(distinct.indices)

    def from_units(self, units: NDArray[Any]) -> Any:
        """An arrow array of dates, timestamps or durations."""
        import pyarrow as pa

        return pa.array(units.astype(np.int32) if self.kind == "date" else units).cast(self.arrow_type)

    @property
    def arrow_type(self) -> Any:
        """date32, or microseconds."""
        import pyarrow as pa

        return {"date": pa.date32(), "datetime": pa.timestamp("us"), "duration": pa.duration("us")}[self.kind]


def _iso(moments: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.replace_substring(moments.cast(pa.string()), " ", "T")


def _text_array(cells: list[str]) -> Any:
    import pyarrow as pa

    return pa.array(cells, pa.string())


def _or_null(text: Any, pattern: str | None) -> Any:
    """Text that may follow a pattern; where it is ISO 8601, in full alone: 2020 and 20200131 are numbers to readers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pattern is not None:
        return text
    written = pc.fill_null(pc.match_substring_regex(text, r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)"), False)
    return pc.if_else(written, text, pa.scalar(None, text.type))


def _with_or_without_time(pattern: str, kind: str) -> list[str]:
    """The pattern of a day with a time of day added, or that of a moment without it."""
    if kind == "date":
        return [f"{pattern} %H:%M", f"{pattern} %H:%M:%S", f"{pattern} %H:%M:%S.%f"]
    day = re.split(r"[T ]%[HI]", pattern)[0]
    return [] if day == pattern else [day]


def _padded(text: Any, pattern: str) -> Any:
    """Digits with the zeros that a reader took from them for a number: 1022024 of %d%m%Y, 2020.1 of %Y.%m."""
    import pyarrow.compute as pc

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
