"""Dates and times of SPSS and Stata: numbers whose column's format says what they count, and from when.

The reader could turn them into dates itself, but a single number that no calendar holds would then fail the whole file.
**Privacy.** Here each cell is read by itself: such a number is an empty cell.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Kind: TypeAlias = Literal["date", "datetime", "time"]

_SPSS: dict[str, Kind] = {
    "DATE": "date",
    "ADATE": "date",
    "EDATE": "date",
    "JDATE": "date",
    "SDATE": "date",
    "DATETIME": "datetime",
    "YMDHMS": "datetime",
    "TIME": "time",
    "DTIME": "time",
}
_UNIX = datetime(1970, 1, 1)
_DAY = 86_400
_FIRST, _LAST = (datetime.min - _UNIX).days, (datetime.max - _UNIX).days


def kind_of(form: str) -> Kind | None:
    """What a column's format says that its numbers are: of SPSS such as DATE11, of Stata such as %td; None: numbers."""
    if not form.startswith("%"):
        found = re.match("[A-Z]+", form.upper())
        return None if found is None else _SPSS.get(found[0])
    stata = re.match(r"%-?(t?d|t[cC])(.*)", form)
    if stata is None:
        return None
    if stata[1] in ("d", "td"):
        return "date"
    return "time" if stata[2] in ("HH:MM:SS", "HH:MM") else "datetime"


def moments(numbers: NDArray[np.float64], form: str, kind: Kind) -> Any:
    """Numbers as an arrow array of dates, datetimes in microseconds, or times of day; what none can be is null.

    SPSS counts seconds since 14 October 1582; Stata days, or milliseconds, since 1 January 1960.
    """
    import pyarrow as pa

    days, micros = _split(numbers, form, kind)
    valid = (days >= _FIRST) & (days <= _LAST)
    whole = np.where(valid, days, 0).astype(np.int64)
    if kind == "date":
        return pa.array(whole.astype(np.int32), pa.int32(), mask=~valid).cast(pa.date32())
    part = np.where(valid, micros, 0).astype(np.int64)
    if kind == "time":
        return pa.array(np.minimum(part, _DAY * 10**6 - 1), pa.int64(), mask=~valid).cast(pa.time64("us"))
    return pa.array(whole * _DAY * 10**6 + part, pa.int64(), mask=~valid).cast(pa.timestamp("us"))


def _split(numbers: NDArray[np.float64], form: str, kind: Kind) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Days since 1970, and microseconds of the day; NaN stays NaN and compares with nothing."""
    spss = not form.startswith("%")
    start = ((datetime(1582, 10, 14) if spss else datetime(1960, 1, 1)) - _UNIX).days
    a_day = _DAY if spss else 1 if kind == "date" else _DAY * 1000
    with np.errstate(invalid="ignore"):
        days = np.floor(numbers / a_day)
        rest = np.clip(numbers - days * a_day, 0, a_day)
    return days + start, np.rint(rest * (_DAY * 10**6 / a_day))
