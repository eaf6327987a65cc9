"""Counting queries: conditions on columns, the evidence in a release, and answers with confidence intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understudy.accounting import Receipt
from understudy.arguments import html_table
from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.release.bounds import Evidence, Stage, bound_count
from understudy.schema import Dialect, Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Boolean
from understudy.schema.column import Coded
from understudy.schema.temporal import Temporal
from understudy.schema.text import write_with_point
from understudy.yaml_json import is_yaml_or_json

if TYPE_CHECKING:
    from understudy.release.release import Release

_LARGEST = 1 << 26

_WORDS = {
    "measured": "the noise of a measured marginal that has all these columns",
    "selected": "selections that preferred another marginal",
    "contained": "measured marginals of some of these columns: the count is at most theirs",
    "unknown": "no bound is known",
}


@dataclass(frozen=True)
class Answer:
    """The model's count, or share of the rows, with an interval for the true one.

    Attributes:
        value: the model's answer.
        low: the lower end of the interval.
        high: the upper end; None if no bound is known.
        bound: how far the model's answer can be from the true one; None if nothing is known.
        source: where the interval comes from, in words.
        confidence: the probability with which it holds, over the mechanism's noise.
        rows_value: the same query on given synthetic rows, scaled to the model's total; None without rows.
        rows_bound: how far that can be from the true answer: the bound, and the rows' distance from the model.
        left_out: which rows of the true table are not counted, in words, since the release does not use them; None
            where it uses all.
    """

    value: float
    low: float
    high: float | None
    bound: float | None
    source: str
    confidence: float
    rows_value: float | None = None
    rows_bound: float | None = None
    left_out: str | None = None

    def _repr_html_(self) -> str:
        number = "{:,.0f}" if self.value >= 1 or self.value == 0 else "{:.4g}"
        ends = "not known" if self.high is None else f"{number.format(self.low)} to {number.format(self.high)}"
        lines = [("by the model", number.format(self.value)), ("in the true table", ends)]
        lines += [("confidence", f"{self.confidence:g}"), ("from", self.source)]
        lines += [] if self.left_out is None else [("without", self.left_out)]
        return html_table("Answer", (), lines)


def check_confidence(confidence: Any) -> None:
    """Refuse a confidence that does not lie between 0 and 1.

    Raises:
        SettingError: with an example.
    """
    if not isinstance(confidence, Real) or not 0 < cast(float, confidence) < 1:
        raise SettingError("confidence must lie between 0 and 1, such as 0.95")


def answer(
    release: Release,
    query: str | Mapping[str, Any],
    *,
    confidence: float = 0.95,
    share: bool = False,
    rows: Any = None,
) -> Answer:
    """Answer one query; see `Release.answer`."""
    check_confidence(confidence)
    found = read_conditions(release.schema, parse_query(query) if isinstance(query, str) else query)
    evidence = collect_evidence(release)
    known = evidence.rows
    half = share and known is None  # the number of rows is then uncertain as well
    level = 1 - (1 - confidence) / 2 if half else confidence
    inner, outer = {c.column: c.inner for c in found}, {c.column: c.outer for c in found}
    interval = bound_count(evidence, inner, outer, confidence=level)
    value, low, high = _count_by_model(evidence, found), interval.low, interval.high
    if share:
        least, most = (float(known), float(known)) if known is not None else _bound_rows(evidence, level)
        value, low = value / evidence.model.total, low / most
        high = min(1.0, high / least) if least > 0 else 1.0
    finite = math.isfinite(high)
    on_rows = None if rows is None else _count_in_rows(release, found, rows, 1.0 if share else evidence.model.total)
    return Answer(
        value=value,
        low=low,
        high=high if finite else None,
        bound=max(high - value, value - low) if finite else None,
        source=_WORDS[interval.source],
        confidence=confidence,
        rows_value=on_rows,
        rows_bound=max(high - on_rows, on_rows - low) if finite and on_rows is not None else None,
        left_out=release.schema.left_out,
    )


def bound_row_count(evidence: Evidence) -> float | None:
    """Bound the number of rows of the true table from above, at 99.9 % confidence; None if no bound is known."""
    high = bound_count(evidence, {}, {}, confidence=0.999).high
    return high if math.isfinite(high) else None


def _count_by_model(evidence: Evidence, found: list[Condition]) -> float:
    """Count by the model; rows of a merged code are assumed to be spread evenly over its values."""
    domain = evidence.model.domain
    clique = tuple(condition.column for condition in found)
    if domain.cells(clique) > _LARGEST:
        raise SettingError(f"query: the marginal of {clique} has {domain.cells(clique)} cells; ask about fewer columns")
    table = evidence.model.project(clique)
    for condition in reversed(found):
        merged = evidence.merged.get(condition.column)
        part = condition.part
        if merged is not None:
            size = domain[condition.column]
            part = np.bincount(merged, weights=part, minlength=size) / np.bincount(merged, minlength=size)
        table = table @ part
    return float(table)


def _bound_rows(evidence: Evidence, confidence: float) -> tuple[float, float]:
    interval = bound_count(evidence, {}, {}, confidence=confidence)
    return max(interval.low, 1.0), max(interval.high, 1.0)


def _count_in_rows(release: Release, found: list[Condition], rows: Any, total: float) -> float:
    codes = release.schema.encode(rows).codes
    inside = np.ones(len(next(iter(codes.values()))))
    for condition in found:
        inside = inside * condition.part[codes[condition.column]]
    return float(inside.mean()) * total


# -- Conditions on columns, as people write them, and the codes that they mean.


_SHOWN, _COMPARED = 12, 5000
_WRITTEN = {
    "integer": "a whole number such as 30",
    "date": "a date such as 2024-01-31",
    "datetime": "a moment such as 2024-01-31T08:30:00",
    "duration": "seconds, or as P1DT2H30M",
}
_COMPARISON = "(>=|<=|>|<|=)"
_A_POINT = 1e-12  # of a bin on the real line: touched, but hardly any of it


@dataclass(frozen=True)
class Excluded:
    """An end that does not belong to its range, as in `age>30`."""

    value: Any


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
        """The codes that lie entirely inside."""
        whole: NDArray[np.bool_] = self.part >= 1.0
        return whole

    @property
    def outer(self) -> NDArray[np.bool_]:
        """The codes that lie at least partly inside."""
        touched: NDArray[np.bool_] = self.part > 0.0
        return touched


def parse_query(text: str) -> dict[str, Any]:
    """Parse a query: conditions on columns, separated by commas, all of which must hold.

    `sex=F` is a value, `city=Bonn|Ulm` a set of values, `icd=J4*` all values that begin with J4, `age=30..40` a range
    that includes both ends, `age=..40` or `age<=40` one that is open below, `age>30` one that excludes its end, and
    `city=` an empty cell. Inside double quotes every character is part of a name or value.

    Raises:
        SettingError: if a part is not of this form.

    >>> parse_query('sex=F, age=30..40, city=Bonn|Ulm, dose="2,5 mg"')
    {'sex': 'F', 'age': ('30', '40'), 'city': ['Bonn', 'Ulm'], 'dose': '2,5 mg'}
    """
    if text.count('"') % 2:
        raise SettingError("query: a double quote is not closed; add the closing quote")
    query: dict[str, Any] = {}
    for part in filter(str.strip, _split_unquoted(text, ",")):
        name, *rest = _split_unquoted(part, _COMPARISON, 1)
        if not rest or not (name := _unquote(name)):
            raise SettingError(
                "a query is a list such as `sex=F, age=30..40`: each part a column, `=` and a condition; put a value "
                'that has a comma in double quotes, as in dose="2,5 mg"'
            )
        wanted = _parse_condition(name, *rest)
        if name in query:
            wanted = _join_ranges(name, query[name], wanted)
        query[name] = wanted
    return query


def _parse_condition(name: str, mark: str, text: str) -> Any:
    """Parse what follows a column's name: a value, a list of values, or a range."""
    if mark != "=":
        if not (end := _unquote(text)):
            raise SettingError(f"query: {name!r} has no value; write one after {mark}")
        limit = Excluded(end) if len(mark) == 1 else end
        return (limit, None) if mark[0] == ">" else (None, limit)
    ends, values = _split_unquoted(text, re.escape(".."), 1), _split_unquoted(text, re.escape("|"))
    if len(ends) == 2:
        return tuple(_unquote(end) or None for end in ends)
    return [_unquote(value) for value in values] if len(values) > 1 else _unquote(text) or None


def _join_ranges(name: str, one: Any, other: Any) -> tuple[Any, Any]:
    """Join `age>=30, age<40` to one range.

    Raises:
        SettingError: where the two conditions are not the two ends of a range.
    """
    ranges = isinstance(one, tuple) and isinstance(other, tuple)
    if not ranges or any(a is not None and b is not None for a, b in zip(one, other, strict=True)):
        raise SettingError(f"query: column {name!r} has two conditions; write one, such as 30..40 or Bonn|Ulm")
    low, high = ((a if b is None else b) for a, b in zip(one, other, strict=True))
    return low, high


def _split_unquoted(text: str, mark: str, times: int = 0) -> list[str]:
    """Split at marks, a regular expression, outside quotes: those that an even number of quotes follows."""
    return re.split(rf'{mark}(?=(?:[^"]*"[^"]*")*[^"]*$)', text, maxsplit=times)


def _unquote(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _quote_name(name: str) -> str:
    """Quote a column's name where a query needs that."""
    return name if _split_unquoted(name, _COMPARISON) == _split_unquoted(name, ",") == [_unquote(name)] else f'"{name}"'


def read_conditions(schema: Schema, query: Mapping[str, Any]) -> list[Condition]:
    """Find the codes that each condition means: a value, a list or set of values, or a tuple of two included ends.

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
                f"query: there is no column {name!r}; the columns are {', '.join(map(_quote_name, columns))}"
            )
        if isinstance(wanted, tuple) and len(wanted) != 2:
            raise SettingError(
                f"query: a range of {name!r} has two ends, as in {{{name!r}: (30, 40)}}; use a list for values"
            )
        wanted = _read_decimals(columns[name], _normalise(wanted), schema.dialect)
        found.append(Condition(name, _find_part(columns[name], wanted), _find_spans(columns[name], wanted)))
    return found


def _normalise(wanted: Any) -> tuple[Any, ...] | list[Any]:
    """Return a range as a tuple, values as a list; empty values of frames (NaN, NaT, NA) become None."""
    if isinstance(wanted, tuple):
        return tuple(_to_moment(end) for end in wanted)
    several = isinstance(wanted, Collection) and not isinstance(wanted, str)
    return [None if _is_empty(value) else _to_moment(value) for value in (wanted if several else [wanted])]


def _read_decimals(column: Coded, wanted: Any, dialect: Dialect) -> Any:
    """Write numbers as the file has them, as in `cost>"1.000,50"`, with a point."""
    if isinstance(wanted, tuple | list):
        return type(wanted)(_read_decimals(column, value, dialect) for value in wanted)
    if isinstance(wanted, Excluded):
        return Excluded(_read_decimals(column, wanted.value, dialect))
    if column.kind not in ("integer", "number") or not isinstance(wanted, str) or wanted in column.missing:
        return wanted
    return write_with_point(wanted.strip(), dialect.decimal, dialect.group)


def _is_empty(value: Any) -> bool:
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and math.isnan(value))


def _to_moment(value: Any) -> Any:
    return value.astype("datetime64[us]").item() if isinstance(value, np.datetime64) else value


def _find_part(column: Coded, wanted: tuple[Any, ...] | list[Any]) -> NDArray[np.float64]:
    if isinstance(wanted, tuple):
        return _find_range_part(column, *wanted)
    part = np.zeros(column.size)
    for value in wanted:
        part = np.minimum(part + _find_value_part(column, value), 1.0)
    return part


def _find_value_part(column: Coded, value: Any) -> NDArray[np.float64]:
    """Find the part of each code that a single value takes: a whole code, or part of a bin."""
    part = np.zeros(column.size)
    if isinstance(value, str) and column.missing.get(value, "") is None:
        value = None  # a token that the schema declares to mean empty
    if value is None:
        if column.null_code is None:
            raise SettingError(f"query: column {column.name!r} has no empty cells")
        part[column.null_code] = 1.0
        return part
    entries = [entry for entry in column.table() if entry.part == column.name]
    named = {entry.code for entry in entries if entry.what in ("value", "missing") and _is_same(entry.value, value)}
    named |= {entry.code for entry in entries if entry.label is not None and entry.label == str(value)}
    if not named and column.shows_other and column.other_code is not None and str(value) == str(column.other_value()):
        named = {column.other_code}
    if not named and isinstance(column, Boolean):
        named = {column.declared_codes()[value]} if value in column.declared_codes() else set()
    if not named and isinstance(value, str) and value.endswith("*") and not isinstance(column, AxisColumn):
        named = {entry.code for entry in entries if entry.what == "value" and str(entry.value).startswith(value[:-1])}
    if named:
        part[list(named)] = 1.0
    elif isinstance(column, AxisColumn):
        return _find_range_part(column, value, value)
    else:
        known = [str(entry.value) for entry in entries if entry.what == "value"]
        raise SettingError(
            f"query: {value!r} is not a value of column {column.name!r}; {_suggest_values(known, str(value))}"
        )
    return part


def _suggest_values(known: list[str], wanted: str) -> str:
    """Suggest similar values, else the first few. They are declared, hence public with the release."""
    lower = {value.casefold(): value for value in known[:_COMPARED]}
    near = [lower[match] for match in get_close_matches(wanted.casefold(), lower, n=3)]
    shown = near if len(known) > _SHOWN else known
    more = "" if len(shown) == len(known) else f" (all {len(known)} of them are in the codebook and the schema)"
    return f"{'the nearest' if near and shown is near else 'its values'} are {', '.join(shown or known[:_SHOWN])}{more}"


def _find_spans(column: Coded, wanted: tuple[Any, ...] | list[Any]) -> tuple[tuple[Any, Any], ...]:
    if not isinstance(column, AxisColumn):
        return ()
    if isinstance(wanted, tuple):
        return (_find_ends(column, *wanted),)
    values = [v for v in wanted if v is not None and str(v) not in column.missing and v not in column.reasons]
    return tuple(_find_ends(column, value, value) for value in values)


def _find_ends(column: AxisColumn, low: Any, high: Any) -> tuple[Any, Any]:
    """Convert the ends of a range to units of the axis; an open end is the axis' own."""
    first = column.axis.first if low is None else _find_end(column, low, 1)
    return first, column.axis.last if high is None else _find_end(column, high, -1)


def _find_end(column: AxisColumn, end: Any, inwards: int) -> Any:
    """Convert an end of a range to units of the axis; an excluded one becomes the next value inside."""
    if not isinstance(end, Excluded):
        return _to_unit(column, end)
    unit, grain = _to_unit(column, end.value), column.axis.grain
    return unit + inwards * grain if grain else np.nextafter(unit, inwards * math.inf)


def _is_same(declared: Any, given: Any) -> bool:
    return bool(declared == given) or str(declared) == str(given)


def _find_range_part(column: Coded, low: Any, high: Any) -> NDArray[np.float64]:
    part = np.zeros(column.size)
    if column.kind == "ordinal":
        codes = [
            0 if low is None else _find_code(column, low, 1),
            column.ordinary - 1 if high is None else _find_code(column, high, -1),
        ]
        _check_order(column, *codes)
        part[codes[0] : codes[1] + 1] = 1.0
        return part
    if not isinstance(column, AxisColumn):
        raise SettingError(f"query: column {column.name!r} has no order; give a value or a list of values")
    axis = column.axis
    first, last = _find_ends(column, low, high)
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
        share = np.where(share > 1.0 - _A_POINT, 1.0, share)  # all but an excluded end
    part[: axis.size] = share
    return part


def _check_order(column: Coded, first: Any, last: Any) -> None:
    """Refuse a range that ends before it begins; it is a mistake."""
    if first > last:
        raise SettingError(f"query: the range of {column.name!r} ends before it begins; swap its ends")


def _check_inside(column: AxisColumn, first: Any, last: Any) -> None:
    """Refuse a range outside the declared bounds: values there count as the nearest bound, or as unknown."""
    if first > column.axis.last or last < column.axis.first:
        beyond = "unknown" if column.outside == "unknown" else "the nearest of these"
        low, high = column.from_units(np.array([column.axis.first, column.axis.last])).to_pylist()
        raise SettingError(f"query: column {column.name!r} goes from {low} to {high}; values beyond count as {beyond}")


def _find_code(column: Coded, value: Any, inwards: int) -> int:
    if isinstance(value, Excluded):
        return _find_code(column, value.value, inwards) + inwards
    return int(np.flatnonzero(_find_value_part(column, value))[0])


def _to_unit(column: AxisColumn, value: Any) -> Any:
    try:
        if isinstance(value, str) and column.kind in ("integer", "number"):
            value = float(value)
        if isinstance(value, datetime) and column.kind == "date":
            value = value.date()  # a frame's dates are moments
        if isinstance(value, str) and isinstance(column, Temporal) and column.pattern is not None:
            units, valid = column.units_of_text(pa.array([value]), Dialect())  # as the file writes it
            if valid[0]:
                return units[0]
        return column.unit_of(value, "query")
    except (ValueError, TypeError):
        written = _WRITTEN.get(column.kind, "a number such as 30.5")
        if isinstance(column, Temporal) and column.pattern is not None:
            first = column.format_values(column.from_units(np.array([column.axis.first])), Dialect()).to_pylist()[0]
            written = f"a value as in the table, such as {first}"
        raise SettingError(
            f"query: {value!r} cannot be compared with column {column.name!r}; write {written}, a range as LOW..HIGH "
            "(in Python a tuple), an open end as nothing (None)"
        ) from None


# -- The evidence in a release, from which bounds are computed.


def collect_evidence(release: Release) -> Evidence:
    """Collect the evidence in a release, from which bounds are computed.

    **Privacy.** Post-processing: it reads what was released.
    """
    first = release.rounds[0] if release.rounds else {}
    weights = zip(first.get("cliques", ()), first.get("weights", ()), strict=True)
    cliques: list[tuple[Clique, float]] = [(tuple(clique), float(weight)) for clique, weight in weights]
    return Evidence(
        model=release.model,
        declared=release.schema.domain,
        merged=release.recoding.maps,
        stages=_stages_from_rounds(release.measurements, release.rounds)
        or _stages_from_receipt(release.measurements, release.receipt),
        cliques=cliques,
        rows=release.schema.rows_used,
    )


def list_workload_cliques(evidence: Evidence, workload: str | None, own: str | None) -> list[Clique]:
    """Return a workload's cliques, by default the mechanism's own; those of a file are read from the rounds."""
    if workload is None and own is not None and is_yaml_or_json(own):
        measured = [measurement.clique for stage in evidence.stages for measurement in stage.measurements]
        names = [clique for clique, _ in evidence.cliques] or measured
        return [r for r in names if not any(set(r) < set(other) for other in names)]
    from understudy.workload import Workload

    return list(Workload.parse(workload or own or "all-2way", evidence.model.domain))


def _stages_from_rounds(measurements: Sequence[Measurement], rounds: Sequence[Mapping[str, Any]]) -> list[Stage]:
    """Return the stages that the mechanism recorded; none when the rounds do not cover every measurement."""
    if sum(int(entry.get("measured", 0)) for entry in rounds) != len(measurements) or not rounds:
        return []
    stages, start = [], 0
    for entry in rounds:
        end = start + int(entry["measured"])
        stages.append(Stage(measurements[start:end], float(entry["share"]), entry if "chosen" in entry else None))
        start = end
    return stages if sum(stage.share for stage in stages) <= 1 + 1e-9 else []


def _stages_from_receipt(measurements: Sequence[Measurement], receipt: Receipt) -> list[Stage]:
    """Return one stage for every measurement, with its share of the budget according to the receipt."""
    capacity = receipt.budget.capacity
    paid: dict[Clique, list[float]] = {}
    for charge in receipt.charges:
        if charge.what == "measure":
            paid.setdefault(charge.about[0], []).append(min(1.0, float(receipt.budget.cost([charge]) / capacity)))
    return [Stage([m], paid[m.clique].pop(0)) for m in measurements if paid.get(m.clique)]
