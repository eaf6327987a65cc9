"""Rules over codes: which cells of which tables cannot occur, for models to keep empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain, Forbidden
from understudy.errors import SchemaError
from understudy.schema.rules.rule import Dependency, Impossible, Order

if TYPE_CHECKING:
    from understudy.schema.schema import Schema

LARGEST_RULE = 1 << 24
"""The most cells that the table of a rule's columns may have: the model holds that table several times over."""


def forbidden_cells(schema: Schema, domain: Domain) -> Iterator[Forbidden]:
    """The cells that no row can be in, rule by rule; nothing is worked out until it is needed.

    A cell is forbidden when every value that its codes can stand for breaks the rule. A bin that a rule cuts through
    stays: which of its values may occur together is seen to when values are drawn. A dependency that states no values
    forbids nothing yet, but its columns belong together from the start.
    """
    for rule in schema.rules:
        if isinstance(rule, Impossible):
            yield _forbidden(domain, rule.columns, lambda clique, rule=rule: _impossible(schema, rule, clique))
        elif isinstance(rule, Order):
            for index in range(len(rule.order) - 1):
                yield _forbidden(
                    domain,
                    rule.order[index : index + 2],
                    lambda clique, rule=rule, index=index: _disordered(schema, domain, rule, index, clique),
                )
        else:
            yield _forbidden(
                domain, rule.columns, lambda clique, rule=rule: _undetermined(schema, domain, rule, clique)
            )


def dependency_cells(
    domain: Domain, rule: Dependency, values: NDArray[np.int64], merged: NDArray[np.int64] | None = None
) -> Forbidden:
    """The cells in which `determines` is not what `given` says; where that is -1, none.

    Args:
        domain: the declared domain.
        rule: the dependency.
        values: by code of the given columns, flat in their order, the code that they determine.
        merged: by code of the determined column, what `values` speaks of; the code itself by default.
    """
    order = domain.canonical(rule.columns)
    axes = [rule.columns.index(column) for column in order]
    codes = np.arange(domain[rule.determines]) if merged is None else merged

    def make() -> NDArray[np.bool_]:
        mask = (values >= 0)[:, None] & (values[:, None] != codes)
        table: NDArray[np.bool_] = mask.reshape(domain.shape(rule.columns)).transpose(axes)
        return table

    return Forbidden(order, make)


def check_size(domain: Domain, columns: Clique) -> None:
    """Refuse a rule whose columns have too large a table.

    Raises:
        SchemaError: naming the columns and the remedy.
    """
    if domain.cells(columns) > LARGEST_RULE:
        raise SchemaError(
            f"a rule ties {', '.join(columns)} together, whose table has {domain.cells(columns)} cells; at most "
            f"{LARGEST_RULE} can be kept: use coarser bins or fewer values, drop a column that another one determines, "
            "or remove the rule"
        )


def _forbidden(domain: Domain, columns: Clique, make: Any) -> Forbidden:
    order = domain.canonical(columns)

    def checked() -> NDArray[np.bool_]:
        check_size(domain, order)
        mask: NDArray[np.bool_] = make(order)
        return mask

    return Forbidden(order, checked)


def _impossible(schema: Schema, rule: Impossible, clique: Clique) -> NDArray[np.bool_]:
    masks = rule.masks(schema)
    table = np.array(True)
    for column in clique:
        table = np.logical_and.outer(table, masks[column])
    return table


def _disordered(schema: Schema, domain: Domain, rule: Order, index: int, clique: Clique) -> NDArray[np.bool_]:
    """Cells of two neighbours: the lowest value of the left one lies above the highest of the right one."""
    ends = rule.ends(schema)
    left, right = rule.order[index], rule.order[index + 1]
    low, high = ends[index][0][:, None], ends[index + 1][1][None, :]
    table = np.zeros(domain.shape((left, right)), dtype=np.bool_)
    table[: low.size, : high.size] = low >= high if rule.strict else low > high
    return table if clique == (left, right) else table.T


def _undetermined(schema: Schema, domain: Domain, rule: Dependency, clique: Clique) -> NDArray[np.bool_]:
    stated = rule.stated(schema)
    return np.zeros(domain.shape(clique), np.bool_) if stated is None else dependency_cells(domain, rule, stated).mask
