"""Labels of a column's codes for charts and tables."""

from __future__ import annotations

import numpy as np

from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.column import Coded
from understudy.schema.measured import Measured


def code_labels(column: Coded) -> list[str]:
    """A short name for every code of a column: declared labels, bounds of bins, then the special codes."""
    names = _ordinary(column)
    names += list(column.reasons) + ["missing"] * column.nullable
    return (names + ["other"] * column.size)[: column.size]


def _ordinary(column: Coded) -> list[str]:
    if isinstance(column, Categorical):
        return [column.labels.get(str(value), str(value)) for value in column.values]
    if isinstance(column, Boolean):
        return ["false", "true"]
    if isinstance(column, Measured):
        return [_interval(column, code) for code in range(column.axis.size)]
    return [str(code) for code in range(column.ordinary)]


def _interval(column: Measured, code: int) -> str:
    axis = column.axis
    low, high = axis.lower[code], axis.upper[code]
    if axis.spike[code]:
        return unit_text(column, low)
    if axis.grain:
        last = high - axis.grain
        return unit_text(column, low) if last <= low else f"{unit_text(column, low)} to {unit_text(column, last)}"
    return f"{unit_text(column, low)} to {unit_text(column, high)}"


def axis_ends(column: Coded) -> tuple[str, str] | None:
    """The least and the greatest value of a column's bins; None for values without an axis."""
    if not isinstance(column, Measured):
        return None
    axis = column.axis
    last = max(axis.lower.max(), axis.upper.max() - axis.grain)  # a spike may be its own last value
    return unit_text(column, axis.lower.min()), unit_text(column, last)


def unit_text(column: Measured, unit: float | np.generic) -> str:
    """A value in units of the axis as people write it: numbers of four digits, which may be years, without a mark."""
    value = column.from_units(np.asarray([unit])).to_pylist()[0]
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
