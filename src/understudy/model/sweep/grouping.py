"""Which tables of a sweep to put together first, so that a large clique is visited with few of them."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.domain import Clique, Domain
from understudy.model.sweep.crossing import Table

_LARGE = 4096  # cells from which a clique is worth it
_SMALLER = 5  # times: how much smaller a group's own clique must be


def grouped(
    domain: Domain, clique: Clique, tables: Sequence[Table]
) -> tuple[list[tuple[Clique, list[Table]]], list[Table]]:
    """Groups of tables, each with the smaller clique that holds its columns; and the tables that stay by themselves.

    The time of a sweep is cells times tables. Tables that lack a long column can be multiplied on the clique without
    that column first (or, as outputs, be summed from it afterwards), at a fraction of the cost.
    """
    groups: list[tuple[Clique, list[Table]]] = []
    rest = list(tables)
    if domain.cells(clique) >= _LARGE:
        for column in sorted(clique, key=lambda c: -domain[c]):
            members = [table for table in rest if column not in table[1]]
            columns = {c for _, mine in members for c in mine}
            smaller = tuple(c for c in clique if c in columns)
            if len(members) > 1 and _SMALLER * domain.cells(smaller) <= domain.cells(clique):
                groups.append((smaller, members))
                rest = [table for table in rest if column in table[1]]
    return groups, rest
