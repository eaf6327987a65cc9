"""Labels of codes for charts and tables."""

from __future__ import annotations

import numpy as np

from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.column import Coded


def code_labels(column: Coded) -> list[str]:
    """Return a short label for every code of a column: declared labels, bounds of bins, then the special codes."""
    names = _ordinary_labels(column)
    names += list(column.reasons) + ["missing"] * column.nullable
    return (names + ["other"] * column.size)[: column.size]


def _ordinary_labels(column: Coded) -> list[str]:
    if isinstance(column, Categorical):
        return [column.labels.get(str(value), str(value)) for value in column.values]
    if isinstance(column, Boolean):
        return ["false", "true"]
    if isinstance(column, AxisColumn):
        return [_interval_label(column, code) for code in range(column.axis.size)]
    return [str(code) for code in range(column.ordinary)]


def _interval_label(column: AxisColumn, code: int) -> str:
    axis = column.axis
    low, high = axis.lower[code], axis.upper[code]
    if axis.spike[code]:
        return format_unit(column, low)
    if axis.grain:
        last = high - axis.grain
        return format_unit(column, low) if last <= low else f"{format_unit(column, low)} to {format_unit(column, last)}"
    return f"{format_unit(column, low)} to {format_unit(column, high)}"


def axis_ends(column: Coded) -> tuple[str, str] | None:
    """Return the smallest and largest value of a column's bins; None for a column without an axis."""
    if not isinstance(column, AxisColumn):
        return None
    axis = column.axis
    last = max(axis.lower.max(), axis.upper.max() - axis.grain)  # the last value may be a spike
    return format_unit(column, axis.lower.min()), format_unit(column, last)


def format_unit(column: AxisColumn, unit: float | np.generic) -> str:
    """Format a value in units of the axis; numbers of four digits, which may be years, have no thousands separator."""
    value = column.from_units(np.asarray([unit])).to_pylist()[0]
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
