"""Repair of rows that break an order: values are exchanged between rows before any are drawn again.

Redrawing until the order holds would bias values inside a bin: early in the first column, late in the second, so that
two dates of one month would be ten days apart on average even if all true stays are short. Exchanging keeps the drawn
values and changes only which row has which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.schema import Schema
from understudy.schema.column import Coded
from understudy.schema.rules import Order, RuleCells

Codes = dict[str, NDArray[Any]]

_FEW = 2**16  # codes in the model: more are numbered again, by those that occur
_ROUNDS = 20  # with twice as many others every second time: in the last ones all rows of a code take part


def exchange_values(
    schema: Schema, merged: Mapping[str, NDArray[Any]], codes: Codes, table: Any, rng: np.random.Generator
) -> tuple[Codes, Any]:
    """Exchange values between rows, so that few rows break an order.

    A value goes to a row of the same code in the model, where it was equally likely: the model's marginals do not
    change. Columns of other rules are not changed.

    **Guarantees.** Every column has the values it had. **Privacy.** Post-processing.

    Args:
        schema: with the rules.
        merged: the rows as codes of the model.
        codes: the codes that the values were drawn from.
        table: the rows, as an arrow table.
        rng: decides which rows change places.
    """
    bound = {name for rule in schema.rules if not isinstance(rule, Order) for name in rule.columns}
    for rule in schema.rules if table.num_rows else ():
        if isinstance(rule, Order):
            for names in pairwise(rule.order):
                left, right = (_Side.of(schema, name, merged, codes, table) for name in names)
                movable = [side for side in (left, right) if side.name not in bound]
                _exchange_pair(left, right, movable, rng, strict=rule.strict)
                for side in movable:
                    codes, table = side.move(schema, codes, table)
    return codes, table


@dataclass(eq=False)
class _Side:
    """One of two columns in order."""

    name: str
    values: NDArray[np.float64]
    known: NDArray[np.bool_]
    group: NDArray[Any]
    source: NDArray[np.int64]

    @classmethod
    def of(cls, schema: Schema, name: str, merged: Mapping[str, NDArray[Any]], codes: Codes, table: Any) -> _Side:
        """Return the column as it was drawn; rows are of one group where their codes in the model are the same."""
        column = schema.column(name)
        assert isinstance(column, Coded)  # noqa: S101 - checked when the schema was made
        cells = RuleCells(column, codes[name], table[name], schema.dialect)
        group = np.zeros(table.num_rows, dtype=np.int64)
        for part, size in column.parts.items():
            group = group * size + merged[part]
        most = math.prod(column.parts.values())
        if most > _FEW:
            used, group = np.unique(group, return_inverse=True)
            most = len(used)
        group = group.astype(np.min_scalar_type(most))  # small numbers are sorted fast
        return cls(name, cells.compared.astype(np.float64), cells.has_value, group, np.arange(table.num_rows))

    def partners(self, bad: NDArray[np.bool_], times: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the bad rows and about `times` times as many others of their groups, in random order."""
        broken = np.bincount(self.group[bad], minlength=int(self.group.max()) + 1)
        others = np.bincount(self.group[self.known & ~bad], minlength=len(broken))
        share = times * broken / np.maximum(others, 1)
        chosen = self.known & (rng.random(len(bad)) < share[self.group])
        return rng.permutation(np.flatnonzero(bad | chosen))

    def arrange(self, rows: NDArray[np.int64], beside: NDArray[np.float64]) -> None:
        """Order the values of these rows within each group like `beside`, which breaks the fewest order rules."""
        to, source = self._ascending(rows, beside), self._ascending(rows, self.values)
        self.values[to], self.source[to] = self.values[source], self.source[source]

    def _ascending(self, rows: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.int64]:
        rows = rows[np.argsort(values[rows])]
        return rows[np.argsort(self.group[rows], kind="stable")]

    def move(self, schema: Schema, codes: Codes, table: Any) -> tuple[Codes, Any]:
        """Return the rows with this column's cells in their new places."""
        cells = table[self.name].take(self.source)
        table = table.set_column(table.column_names.index(self.name), self.name, cells)
        return codes | {part: np.asarray(codes[part])[self.source] for part in schema.column(self.name).parts}, table


def _exchange_pair(left: _Side, right: _Side, movable: list[_Side], rng: np.random.Generator, *, strict: bool) -> None:
    """Rearrange one column, then the other, with ever more rows that break nothing taking part."""
    low, high = np.where(left.known, left.values, -np.inf), np.where(right.known, right.values, np.inf)
    left.values, right.values = low, high
    for index in range(_ROUNDS if movable else 0):
        bad = low >= high if strict else low > high
        if not bad.any():
            return
        side = movable[index % len(movable)]
        side.arrange(side.partners(bad, 1 << (index // 2), rng), high if side is left else low)
