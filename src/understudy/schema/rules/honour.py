"""Rules over values: which decoded rows break one. Codes alone cannot tell where a rule cuts through a bin."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.schema.format.dialect import Dialect
from understudy.schema.kinds.coded import Coded
from understudy.schema.kinds.measured import Measured
from understudy.schema.rules.rule import Between, Condition, Dependency, Impossible, Order, code_of, in_common

if TYPE_CHECKING:
    from understudy.schema.schema import Schema

_Bools = NDArray[np.bool_]


class Cells:
    """A column of decoded rows: the codes they were made of, and the cells as they are given out.

    Args:
        column: the column.
        codes: its codes.
        cells: an arrow column of the same length, typed or text.
        dialect: how text is written.
    """

    def __init__(self, column: Coded, codes: NDArray[Any], cells: Any, dialect: Dialect) -> None:
        self.column, self.codes = column, np.asarray(codes)
        self._cells, self._dialect = cells, dialect

    @cached_property
    def has_value(self) -> _Bools:
        """Which cells hold a value, and not a reason for having none."""
        values: _Bools = self.codes < self.column.ordinary
        return values & self._units[1] if isinstance(self.column, Measured) else values

    @property
    def units(self) -> NDArray[Any]:
        """Numbers and times in units of their axis; the places of ordered values."""
        return self._units[0] if isinstance(self.column, Measured) else self.codes

    @property
    def compared(self) -> NDArray[Any]:
        """The same in units in which the columns of an order are compared."""
        return self.units / in_common(self.column) if isinstance(self.column, Measured) else self.units

    @cached_property
    def _units(self) -> tuple[NDArray[Any], _Bools]:
        assert isinstance(self.column, Measured)  # noqa: S101 - asked by those only
        cells = self._cells.combine_chunks() if hasattr(self._cells, "combine_chunks") else self._cells
        return self.column.units(cells, self._dialect)

    def within(self, low: Any, high: Any) -> _Bools:
        """Which values lie between two units, both included."""
        inside: _Bools = self.has_value & (self.units >= low) & (self.units <= high)
        return inside


def breaking(schema: Schema, codes: Mapping[str, NDArray[Any]], table: Any) -> _Bools:
    """Which decoded rows break a rule.

    Dependencies that state no values are not looked at: what they determine is known to a release alone.

    Args:
        schema: with the rules.
        codes: the codes the rows were made of.
        table: the rows, as an arrow table.
    """
    names = {name for rule in schema.rules for name in rule.columns}
    cells = {name: Cells(_coded(schema, name), codes[name], table[name], schema.dialect) for name in names}
    broken = np.zeros(table.num_rows, dtype=np.bool_)
    for rule in schema.rules:
        if isinstance(rule, Impossible):
            broken |= np.logical_and.reduce([_meets(cells[name], wanted) for name, wanted in rule.impossible.items()])
        elif isinstance(rule, Order):
            for left, right in zip(rule.order, rule.order[1:], strict=False):
                broken |= _disordered(cells[left], cells[right], strict=rule.strict)
        else:
            broken |= _undetermined(schema, rule, codes)
    return broken


def _coded(schema: Schema, name: str) -> Coded:
    column = schema.column(name)
    assert isinstance(column, Coded)  # noqa: S101 - checked when the schema was made
    return column


def _meets(cells: Cells, condition: Condition) -> _Bools:
    column = cells.column
    if isinstance(condition, Between):
        assert isinstance(column, Measured)  # noqa: S101 - checked when the schema was made
        low, high = column.bounds
        first = low if condition.minimum is None else column.unit_of(condition.minimum, "minimum")
        last = high if condition.maximum is None else column.unit_of(condition.maximum, "maximum")
        return cells.within(first, last)
    found = np.zeros(len(cells.codes), dtype=np.bool_)
    for value in condition:
        code = code_of(column, value)
        if isinstance(column, Measured) and code < column.ordinary:
            unit = column.unit_of(value, "value")  # type: ignore[arg-type]  # a code of the axis is a number or a time
            found |= cells.within(unit, unit)
        else:
            found |= cells.codes == code
    return found


def _disordered(left: Cells, right: Cells, *, strict: bool) -> _Bools:
    both = left.has_value & right.has_value
    wrong: _Bools = left.compared >= right.compared if strict else left.compared > right.compared
    return both & wrong


def _undetermined(schema: Schema, rule: Dependency, codes: Mapping[str, NDArray[Any]]) -> _Bools:
    stated = rule.stated(schema)
    if stated is None:
        return np.zeros(len(codes[rule.determines]), dtype=np.bool_)
    wanted = stated[codes[rule.given[0]]]
    wrong: _Bools = (wanted >= 0) & (wanted != codes[rule.determines])
    return wrong
