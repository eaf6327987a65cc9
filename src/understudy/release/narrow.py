"""Columns whose bins are cut to what was asked for, so that values are drawn inside it and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.release.conditions import Condition
from understudy.schema import Schema
from understudy.schema.axis import Axis, AxisColumn


def narrowed(schema: Schema, asked: Sequence[Condition]) -> Schema:
    """The schema for decoding rows that satisfy conditions; codes keep their meaning, bins hold fewer values.

    Columns with several ranges, with declared points or with a rule for the top bin are left alone: their values are
    drawn as always and looked at afterwards.
    """
    spans = {condition.column: condition.spans[0] for condition in asked if len(condition.spans) == 1}
    columns = [_narrowed(column, spans.get(column.name)) for column in schema.columns]
    return replace(schema, columns=tuple(columns), rules=())


def _narrowed(column: Any, span: tuple[Any, Any] | None) -> Any:
    if span is None or not isinstance(column, AxisColumn) or len(column.parts) > 1:
        return column
    axis = column.axis
    if axis.points is not None or axis.top is not None:
        return column
    copy = column.model_copy()
    copy.__dict__["axis"] = _cut(axis, *span)
    return copy


def _cut(axis: Axis, low: Any, high: Any) -> Axis:
    lower, upper = axis.lower.copy(), axis.upper.copy()
    touched = ~axis.spike & (axis.lower <= high) & ((axis.upper > low) if axis.grain else (axis.upper >= low))
    if axis.grain:
        steps = -((axis.lower - np.maximum(axis.lower, low)) // axis.grain)
        first: NDArray[Any] = axis.lower + steps * axis.grain
        last = np.minimum(axis.upper, high + 1)
        touched &= first < last
    else:
        first, last = np.maximum(axis.lower, low), np.minimum(axis.upper, high)
    lower[touched], upper[touched] = first[touched], last[touched]
    return Axis(lower, upper, axis.spike, axis.grain, axis.top, axis.points, axis.holes)
