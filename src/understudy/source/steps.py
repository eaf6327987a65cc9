"""The coding of a column as a step function: between two neighbouring starts, every typed cell has the same code.

The code of a number or a time depends only on how it compares with the values and edges of the schema's `table`. So an
engine needs no arithmetic of ours: it compares a cell with the places where the code changes. These places are found by
bisection with the schema's own encoder, and the codes between them are the encoder's answers, so rounding, decimals,
clipping, spikes and missing numbers are the same as in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Boolean, Categorical
from understudy.schema.column import Coded
from understudy.schema.open import Shape
from understudy.schema.text import EXACT, Dialect, parse_exact_number, to_floats

MOST_STEPS = 512
"""A column of more steps than this uses a lookup table instead."""

_LEAST, _LARGEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
Positions = NDArray[np.int64]


@dataclass(frozen=True)
class CodingSteps:
    """The coding of typed cells.

    Attributes:
        starts: where steps begin, ascending, on the type's own scale: whole numbers and floating point numbers as they
            are, decimals in units of their last digit, dates in days, datetimes in microseconds.
        codes: one more than `starts`: the code below the first start, then of each step.
        null: the code of an empty cell or NaN.
    """

    starts: tuple[int | float, ...]
    codes: tuple[int, ...]
    null: int


def find_steps(column: Coded, kind: Any, dialect: Dialect) -> CodingSteps | None:
    """Return the coding of cells of an arrow type as steps, or None if it is not a step function of few steps.

    Args:
        column: the declared column.
        kind: int64, float64, a decimal of at most 18 digits, date32, or a timestamp in microseconds.
        dialect: how the table writes text.
    """
    no_line = pa.types.is_boolean(kind) or len(column.parts) > 1 or isinstance(column, Shape)
    moves = None if no_line else _unit_function(column, kind)
    if moves is None:
        return None
    line = _find_breakpoints(column, dialect)
    if isinstance(column, Categorical) and not pa.types.is_floating(kind) and any(abs(end) >= EXACT for end in line):
        return None  # whole numbers beyond the precision of floating point
    values, least, largest = _scale(kind)
    starts = _find_starts(lambda places: moves(values(places)), np.asarray(line), least, largest)
    cells = values(np.unique(np.append(starts, least)))
    if pa.types.is_floating(kind):  # infinities have no units
        cells = pa.concat_arrays([pa.array([-math.inf]), cells, pa.array([math.inf])])
        places: list[Any] = cells.to_pylist()
    else:
        places = np.unique(np.append(starts, least)).tolist()
    codes = column.encode(cells, dialect)[column.name].tolist()
    return _merge_steps(places, codes, column.null_codes()[column.name])


def _find_breakpoints(column: Coded, dialect: Dialect) -> list[int | float]:
    """Return every number on which the code of a cell can depend, in units of the axis."""
    entries = [entry for entry in column.table() if entry.part == column.name]
    found = [end for entry in entries for end in (entry.lower, entry.upper) if end is not None]
    values = [entry.value for entry in entries if entry.value is not None]
    if isinstance(column, AxisColumn):
        tokens = pa.array([v for v in values if isinstance(v, str)], pa.string())
        read = [column.units(tokens, how) for how in (Dialect(), dialect)]
        units = [unit for found_units, valid in read for unit in found_units[valid].tolist()]
        return [*found, *(v for v in values if not isinstance(v, str)), *units]
    written = [(str(value), *marks) for value in values for marks in ((".", ""), (dialect.decimal, dialect.group))]
    numbers = [parse_exact_number(*text) for text in written]
    # true and false are 1 and 0, however they are declared
    return [0, 1, *(number for number in numbers if number is not None and math.isfinite(number))]


def _unit_function(column: Coded, kind: Any) -> Callable[[Any], NDArray[Any]] | None:
    """Return a function from cells to units that grows with the cell.

    None if cells of that type are coded by their text.
    """
    number = any(fits(kind) for fits in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))
    if isinstance(column, Categorical | Boolean):
        return to_floats if number else None
    if (
        not isinstance(column, AxisColumn)
        or column.kind == "duration"
        or column.units_of_typed(pa.array([], kind)) is None
    ):
        return None

    def units(cells: Any) -> NDArray[Any]:
        found = column.units_of_typed(cells)
        assert found is not None  # noqa: S101 - checked above
        return found[0]

    return units


def _scale(kind: Any) -> tuple[Callable[[Positions], Any], int, int]:
    """Return a function from positions on a type's scale to cells, and the ends of the scale."""
    if pa.types.is_floating(kind):
        largest = int(_order_bits(np.array([np.finfo(np.float64).max]).view(np.int64))[0])
        return lambda places: pa.array(_order_bits(places).view(np.float64)), -largest, largest
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        return lambda places: _to_decimals(places, kind), -most, most
    if pa.types.is_date(kind):
        ends = np.iinfo(np.int32)
        return lambda places: pa.array(places.astype(np.int32), kind), int(ends.min), int(ends.max)
    return lambda places: pa.array(places, kind), _LEAST, _LARGEST


def _order_bits(bits: Positions) -> Positions:
    """Map the bits of floating point numbers to whole numbers in the same order, and back."""
    return np.where(bits < 0, _LEAST - bits, bits)


def _to_decimals(places: Positions, kind: Any) -> Any:
    words = np.ascontiguousarray(np.stack([places, places >> 63], axis=1))
    return pa.Array.from_buffers(kind, len(places), [None, pa.py_buffer(words)])


def _find_starts(moves: Callable[[Positions], NDArray[Any]], line: NDArray[Any], least: int, largest: int) -> Positions:
    """Return the first position at each breakpoint, and the first position beyond it."""
    wanted = np.concatenate((line, line))
    beyond = np.repeat([False, True], len(line))

    def is_reached(places: Positions) -> NDArray[np.bool_]:
        units = moves(places)
        return np.where(beyond, units > wanted, units >= wanted)

    low, high = np.full(len(wanted), least), np.full(len(wanted), largest)
    exists = is_reached(high)
    while (low < high).any():
        middle = (low & high) + ((low ^ high) >> 1)  # a plain sum would overflow
        there = is_reached(middle)
        low, high = np.where(there, low, np.minimum(middle + 1, high)), np.where(there, middle, high)
    return high[exists]


def _merge_steps(places: list[Any], codes: list[int], null: int) -> CodingSteps | None:
    """Merge neighbours of equal code into one step; the first step has no start."""
    kept = [(place, code) for place, code, before in zip(places[1:], codes[1:], codes, strict=False) if code != before]
    if len(kept) > MOST_STEPS:
        return None
    return CodingSteps(tuple(start for start, _ in kept), (codes[0], *(code for _, code in kept)), null)
