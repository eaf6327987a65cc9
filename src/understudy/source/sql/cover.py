"""Many marginals from few counts: a table of more columns holds all the marginals of its columns.

Reading rows is what costs in an engine; adding up a table of some ten thousand cells is nothing. So cliques are counted
together wherever their union is small: all pairs of 16 columns of 18 codes are sums of some 20 tables of four columns.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.tabulate import group_cliques

_COVER_CELLS = 1 << 17
_GROUP_CLIQUES, _GROUP_CELLS = 256, 1 << 23


def groups(asked: list[Clique], domain: Domain) -> Iterator[list[Clique]]:
    """Cliques that are answered together: so many that covering pays, so few that they fit in memory."""
    return group_cliques(asked, domain.cells, most_cells=_GROUP_CELLS, most=_GROUP_CLIQUES)


def covers(cliques: list[Clique], domain: Domain, most: int = _COVER_CELLS) -> dict[Clique, Clique]:
    """A cover for each clique: the clique itself where it is large, else one that as many others share as possible.

    Greedy: grow the first clique that is left by the column that takes in most of the others, while the table is small.

    >>> domain = Domain({"a": 2, "b": 2, "c": 2, "d": 9999999})
    >>> sorted(set(covers([("b", "a"), ("c", "b"), ("a", "c"), ("a", "d")], domain).values()))
    [('a', 'b', 'c'), ('a', 'd')]
    """
    left = dict.fromkeys(domain.canonical(clique) for clique in cliques)
    found: dict[Clique, Clique] = {}
    while left:
        cover = _grown(set(next(iter(left))), list(map(frozenset, left)), domain, most)
        for clique in [clique for clique in left if cover.issuperset(clique)]:
            found[clique] = domain.canonical(cover)
            del left[clique]
    return {clique: found[domain.canonical(clique)] for clique in cliques}


def _grown(cover: set[str], left: list[frozenset[str]], domain: Domain, most: int) -> set[str]:
    while True:
        gains: dict[str, int] = {}
        for clique in left:
            if len(missing := clique - cover) == 1:
                (column,) = missing
                gains[column] = gains.get(column, 0) + 1
        fitting = {column: gain for column, gain in gains.items() if domain.cells(cover) * domain[column] <= most}
        if not fitting:
            return cover
        cover.add(max(fitting, key=lambda column: fitting[column]))


def summed(table: NDArray[np.int64], cover: Clique, clique: Clique, domain: Domain) -> NDArray[np.int64]:
    """A clique's marginal out of its cover's table, flat, axes in the order of the clique."""
    others = tuple(place for place, column in enumerate(cover) if column not in clique)
    inner = table.reshape(domain.shape(cover)).sum(axis=others)
    kept = [column for column in cover if column in clique]
    return np.ascontiguousarray(inner.transpose([kept.index(column) for column in clique])).reshape(-1)
