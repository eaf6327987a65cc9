"""Conditions on columns, as people write them, and the codes they mean."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import SettingError
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.column import Coded

_SHOWN, _COMPARED = 12, 5000
_WRITTEN = {
    "integer": "a whole number such as 30",
    "date": "a date such as 2024-01-31",
    "datetime": "a moment such as 2024-01-31T08:30:00",
    "duration": "seconds, or as P1DT2H30M",
}
_A_POINT = 1e-12  # of a bin on the real line: touched, but hardly any of it


@dataclass(frozen=True, eq=False)
class Condition:
    """The codes that a condition on one column means.

    Attributes:
        column: the coded column.
        part: by code, how much of it lies inside: 1 for all of it; less where the condition cuts through a bin.
        spans: for numbers and times, the ranges of values inside, both ends included, in units of the column's axis.
    """

    column: str
    part: NDArray[np.float64]
    spans: tuple[tuple[Any, Any], ...] = ()

    @property
    def inner(self) -> NDArray[np.bool_]:
        """The codes that lie wholly inside."""
        whole: NDArray[np.bool_] = self.part >= 1.0
        return whole

    @property
    def outer(self) -> NDArray[np.bool_]:
        """The codes that are touched."""
        touched: NDArray[np.bool_] = self.part > 0.0
        return touched


def parsed(text: str) -> dict[str, Any]:
    """A query as the command line writes it: conditions on columns, separated by commas, all of which must hold.

    `sex=F` is a value, `city=Bonn|Ulm` a set of values, `age=30..40` a range that includes both ends, `age=..40` one
    that is open below, and `city=` an empty cell. In double quotes all signs are part of a name or value.

    Raises:
        SettingError: when a part is not of this form.

    >>> parsed('sex=F, age=30..40, city=Bonn|Ulm, dose="2,5 mg"')
    {'sex': 'F', 'age': ('30', '40'), 'city': ['Bonn', 'Ulm'], 'dose': '2,5 mg'}
    """
    if text.count('"') % 2:
        raise SettingError("query: a double quote is not closed; close it")
    query: dict[str, Any] = {}
    for part in filter(str.strip, _cut(text, ",")):
        name, *rest = _cut(part, "=", 1)
        if not rest or not (name := _bare(name)):
            raise SettingError(
                "a query is a list such as `sex=F, age=30..40`: each part a column, `=` and a condition; put a value "
                'that has a comma in double quotes, as in dose="2,5 mg"'
            )
        if name in query:
            raise SettingError(f"query: column {name!r} has two conditions; write one, such as 30..40 or Bonn|Ulm")
        ends, values = _cut(rest[0], "..", 1), _cut(rest[0], "|")
        if len(ends) == 2:
            query[name] = tuple(_bare(end) or None for end in ends)
        else:
            query[name] = [_bare(value) for value in values] if len(values) > 1 else _bare(rest[0]) or None
    return query


def _cut(text: str, mark: str, times: int = 0) -> list[str]:
    """The pieces between marks that are not in quotes: an even number of quotes follows those."""
    return re.split(rf'{re.escape(mark)}(?=(?:[^"]*"[^"]*")*[^"]*$)', text, maxsplit=times)


def _bare(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _written(name: str) -> str:
    """A column's name as a query has to write it."""
    return name if _cut(name, "=") == _cut(name, ",") == [_bare(name)] else f'"{name}"'


def conditions(schema: Schema, query: Mapping[str, Any]) -> list[Condition]:
    """The codes that each condition means: a value, a list or set of values, or a tuple of two ends, both included.

    Raises:
        SettingError: for an unknown column or a condition that its kind does not allow.
    """
    if not isinstance(query, Mapping):
        raise SettingError("query: give columns with their conditions, as in {'sex': 'F', 'age': (30, 40)}")
    columns = {column.name: column for column in schema.coded}
    found = []
    for name, wanted in query.items():
        if name not in columns:
            raise SettingError(
                f"query: there is no column {name!r}; the columns are {', '.join(map(_written, columns))}"
            )
        if isinstance(wanted, tuple) and len(wanted) != 2:
            raise SettingError(f"query: a range of {name!r} has two ends: ({name!r}: (30, 40)); use a list for values")
        wanted = _plain(wanted)
        found.append(Condition(name, _part(columns[name], wanted), _spans(columns[name], wanted)))
    return found


def _plain(wanted: Any) -> Any:
    """What frames call empty (NaN, NaT, NA) as None, and their moments as Python's."""
    if isinstance(wanted, tuple):
        return tuple(_moment(end) for end in wanted)
    several = isinstance(wanted, Collection) and not isinstance(wanted, str)
    cells = [None if _is_empty(value) else _moment(value) for value in (wanted if several else [wanted])]
    return cells if several else cells[0]


def _is_empty(value: Any) -> bool:
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and math.isnan(value))


def _moment(value: Any) -> Any:
    return value.astype("datetime64[us]").item() if isinstance(value, np.datetime64) else value


def _part(column: Coded, wanted: Any) -> NDArray[np.float64]:
    if isinstance(wanted, tuple):
        return _range(column, *wanted)
    several = isinstance(wanted, Collection) and not isinstance(wanted, str)
    part = np.zeros(column.size)
    for value in wanted if several else [wanted]:
        part = np.minimum(part + _value(column, value), 1.0)
    return part


def _value(column: Coded, value: Any) -> NDArray[np.float64]:
    """A single value: a code of its own, or part of a bin."""
    part = np.zeros(column.size)
    if isinstance(value, str) and column.missing.get(value, "") is None:
        value = None  # a cell that the schema calls empty
    if value is None:
        if column.null_code is None:
            raise SettingError(f"query: column {column.name!r} has no empty cells")
        part[column.null_code] = 1.0
        return part
    entries = [entry for entry in column.table() if entry.part == column.name]
    named = {entry.code for entry in entries if entry.what in ("value", "missing") and _same(entry.value, value)}
    named |= {entry.code for entry in entries if entry.label is not None and entry.label == str(value)}
    if not named and column.shows_other and column.other_code is not None and str(value) == str(column.other_value()):
        named = {column.other_code}
    if named:
        part[list(named)] = 1.0
    elif isinstance(column, AxisColumn):
        return _range(column, value, value)
    else:
        known = [str(entry.value) for entry in entries if entry.what == "value"]
        raise SettingError(f"query: {value!r} is not a value of column {column.name!r}; {_listed(known, str(value))}")
    return part


def _listed(known: list[str], wanted: str) -> str:
    """The values that were perhaps meant, else the first few: they are declared, and public with the release."""
    lower = {value.casefold(): value for value in known[:_COMPARED]}
    near = [lower[match] for match in get_close_matches(wanted.casefold(), lower, n=3)]
    shown = near if len(known) > _SHOWN else known
    more = "" if len(shown) == len(known) else f" (all {len(known)} of them are in the codebook and the schema)"
    return f"{'the nearest' if near and shown is near else 'its values'} are {', '.join(shown or known[:_SHOWN])}{more}"


def _spans(column: Coded, wanted: Any) -> tuple[tuple[Any, Any], ...]:
    if not isinstance(column, AxisColumn):
        return ()
    several = isinstance(wanted, Collection) and not isinstance(wanted, str | tuple)
    found = []
    for one in wanted if several else [wanted]:
        low, high = one if isinstance(one, tuple) else (one, one)
        if isinstance(one, tuple) or (one is not None and str(one) not in column.missing and one not in column.reasons):
            first = column.axis.first if low is None else _unit(column, low)
            found.append((first, column.axis.last if high is None else _unit(column, high)))
    return tuple(found)


def _same(declared: Any, given: Any) -> bool:
    return bool(declared == given) or str(declared) == str(given)


def _range(column: Coded, low: Any, high: Any) -> NDArray[np.float64]:
    part = np.zeros(column.size)
    if column.kind == "ordinal":
        codes = [0 if low is None else _code(column, low), column.ordinary - 1 if high is None else _code(column, high)]
        _check_order(column, *codes)
        part[codes[0] : codes[1] + 1] = 1.0
        return part
    if not isinstance(column, AxisColumn):
        raise SettingError(f"query: column {column.name!r} has no order; give a value or a list of values")
    axis = column.axis
    first = axis.first if low is None else _unit(column, low)
    last = axis.last if high is None else _unit(column, high)
    if low is not None and high is not None:
        _check_order(column, first, last)
    _check_inside(column, first, last)
    first, last = max(first, axis.first), min(last, axis.last)
    starts = np.maximum(axis.lower, first)
    if axis.grain:
        ends = np.minimum(np.where(axis.spike, axis.upper, axis.upper - 1), last)
        points = np.where(axis.spike, 1, np.maximum(-((axis.lower - axis.upper) // axis.grain), 1))
        inside = np.maximum((ends - axis.lower) // axis.grain - -((axis.lower - starts) // axis.grain) + 1, 0)
        share = np.minimum(inside / points, 1.0)
    else:
        width = np.where(axis.spike, 1.0, axis.upper - axis.lower)
        share = np.clip((np.minimum(axis.upper, last) - starts) / width, 0.0, 1.0)
        touched = (axis.lower <= last) & (axis.upper >= first)
        share = np.where(axis.spike, touched, np.maximum(share, touched * _A_POINT))
    part[: axis.size] = share
    return part


def _check_order(column: Coded, first: Any, last: Any) -> None:
    """Nothing lies in a range that ends before it begins: whoever writes one meant another."""
    if first > last:
        raise SettingError(f"query: the range of {column.name!r} ends before it begins; swap its ends")


def _check_inside(column: AxisColumn, first: Any, last: Any) -> None:
    """Whether values lie beyond the bounds nobody can tell: they count as the nearest bound, or as unknown."""
    if first > column.axis.last or last < column.axis.first:
        beyond = "unknown" if column.outside == "unknown" else "the nearest of these"
        low, high = column.from_units(np.array([column.axis.first, column.axis.last])).to_pylist()
        raise SettingError(f"query: column {column.name!r} goes from {low} to {high}; values beyond count as {beyond}")


def _code(column: Coded, value: Any) -> int:
    return int(np.flatnonzero(_value(column, value))[0])


def _unit(column: AxisColumn, value: Any) -> Any:
    try:
        if isinstance(value, str) and column.kind in ("integer", "number"):
            value = float(value)
        if isinstance(value, datetime) and column.kind == "date":
            value = value.date()  # a frame's dates are moments
        return column.unit_of(value, "query")
    except (ValueError, TypeError):
        written = _WRITTEN.get(column.kind, "a number such as 30.5")
        raise SettingError(
            f"query: {value!r} cannot be compared with column {column.name!r}; write {written}, a range as LOW..HIGH "
            "(in Python a tuple), an open end as nothing (None)"
        ) from None
