"""The steps of belief propagation on a junction tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.model.junction_tree import JunctionTree
from understudy.model.kernels.arguments import Schedule
from understudy.model.sweep.crossing import Table
from understudy.model.sweep.grouping import grouped
from understudy.model.sweep.schedule import ScheduleBuilder


@dataclass(frozen=True)
class Arrangement:
    """The tables of a vector of potentials or marginals, one after the other: maximal ones, then those inside them.

    Attributes:
        tables: their cliques, in the engine's column order.
        starts: where each begins; one entry more than there are tables.
        factors: how many of them are maximal.
        hosts: for each contained table, the smallest that contains it.
        room: where in the workspace the marginals begin: behind the exponentiated potentials of the maximal tables if
            these are still wanted afterwards, otherwise in their place.
    """

    tables: tuple[Clique, ...]
    starts: NDArray[np.int64]
    factors: int
    hosts: dict[int, int]
    room: int

    @classmethod
    def of(cls, tree: JunctionTree, cliques: set[Clique], *, apart: bool) -> Arrangement:
        """Larger tables first, so that each finds its host before it; marginals apart from potentials or over them."""
        cells = tree.domain.cells
        by_size = sorted(cliques, key=lambda c: (-cells(c), len(c), c))
        sets = [frozenset(clique) for clique in by_size]
        hosts = [[k for k, other in enumerate(sets) if mine < other] for mine in sets]
        maximal = [i for i, above in enumerate(hosts) if not above]
        contained = [i for i, above in enumerate(hosts) if above]
        order = maximal + contained
        place = {i: k for k, i in enumerate(order)}
        tables = tuple(by_size[i] for i in order)
        starts = np.cumsum([0, *(cells(clique) for clique in tables)], dtype=np.int64)
        holders = {place[i]: place[max(hosts[i])] for i in contained}
        return cls(tables, starts, len(maximal), holders, int(starts[len(maximal)]) if apart else 0)

    @property
    def maximal(self) -> int:
        """How many cells the maximal tables have."""
        return int(self.starts[self.factors])

    def table(self, number: int) -> Table:
        """A table in a vector of potentials; also where the exponentials of a maximal one lie in the workspace."""
        return int(self.starts[number]), self.tables[number]

    def marginal(self, number: int) -> Table:
        """A table of marginals in the workspace."""
        return self.room + int(self.starts[number]), self.tables[number]


class Steps(NamedTuple):
    """A schedule and what must be known of it.

    Attributes:
        schedule: first the steps that fold potentials, in a vector of them; then all others, in the workspace.
        folding: how many steps fold.
        normalisers: the steps whose sums make up the partition function.
        inputs: for each tree clique the tables whose product is its belief, after the last step.
        end: how long the workspace must be.
    """

    schedule: Schedule
    folding: int
    normalisers: NDArray[np.int64]
    inputs: list[list[Table]]
    end: int


def steps_of(tree: JunctionTree, arranged: Arrangement, *, crossing: bool) -> Steps:
    """Fold potentials, messages to the root, messages from the root, contained tables.

    Args:
        tree: the junction tree.
        arranged: which marginals are wanted, and whether the inputs outlive them; otherwise what is used up makes room
            for other tables.
        crossing: whether large cliques may be visited as matrices.
    """
    builder = ScheduleBuilder(tree.domain, crossing)
    for table, host in reversed(arranged.hosts.items()):
        builder.spread(arranged.table(table), arranged.table(host))
    folding = len(builder.kind)
    homes = [tree.home(clique) for clique in arranged.tables[: arranged.factors]]
    mine = [[t for t, home in enumerate(homes) if home == i] for i in range(len(tree.cliques))]
    for start, columns in map(arranged.table, range(arranged.factors)):
        builder.layout.given(start, tree.domain.cells(columns))
    up = [builder.new(tree.separator(i)) for i in range(len(tree.cliques))]
    down = [builder.new(tree.separator(i)) for i in range(len(tree.cliques))]
    children = [tree.children(i) for i in range(len(tree.cliques))]
    inputs = [[*map(arranged.table, mine[i]), *(up[child] for child in children[i])] for i in range(len(tree.cliques))]
    normalised: dict[int, int] = {}
    for i in range(len(tree.cliques) - 1, -1, -1):
        inputs[i] = _together(builder, tree.cliques[i], inputs[i])
        if i:
            builder.fuse(tree.cliques[i], inputs[i], [up[i]])
            normalised[i] = builder.normalise(up[i])
    for i, clique in enumerate(tree.cliques):
        if i:
            builder.ratio(down[i], up[i], normalised[i])
            inputs[i].append(down[i])
        below = [down[child] for child in children[i]]
        if arranged.room:
            _apart(builder, clique, inputs[i], [*map(arranged.marginal, mine[i]), *below])
        else:
            _over(builder, clique, inputs[i], [*map(arranged.table, mine[i])], below)
    for host in sorted(set(arranged.hosts.values())):
        inside = [arranged.marginal(table) for table, holder in arranged.hosts.items() if holder == host]
        _apart(builder, arranged.tables[host], [arranged.marginal(host)], inside)
    wanted = [arranged.marginal(table) for table in range(len(arranged.tables))]
    for start, _ in [*wanted, *(table for several in inputs if arranged.room for table in several)]:
        builder.layout.keep(start)
    places, end = builder.layout.settle()
    placed = [[(places[start], columns) for start, columns in several] for several in inputs]
    return Steps(builder.build(places), folding, np.array(list(normalised.values()), np.int64), placed, end)


def _together(builder: ScheduleBuilder, clique: Clique, inputs: list[Table]) -> list[Table]:
    """Few inputs with the same product: groups of them multiplied on a smaller clique first."""
    groups, found = grouped(builder.domain, clique, inputs)
    for smaller, members in groups:
        product = builder.new(smaller)
        builder.fuse(smaller, _together(builder, smaller, members), [product])
        found.append(product)
    return found


def _over(
    builder: ScheduleBuilder, clique: Clique, inputs: list[Table], mine: list[Table], others: list[Table]
) -> None:
    """Sums over a clique into others, and in place of its own tables: at once if that is the whole, or afterwards."""
    own = next((table for table in mine if table[1] == clique), None)
    sums = [(table, builder.new(table[1])) for table in mine if table is not own]
    _apart(builder, clique, inputs, [*(new for _, new in sums), *others], own)
    for table, new in sums:
        builder.move(table, new)


def _apart(
    builder: ScheduleBuilder, clique: Clique, inputs: list[Table], outputs: list[Table], own: Table | None = None
) -> None:
    """Sums over a clique into many outputs: groups of them by way of a smaller clique."""
    if not outputs and own is None:
        return
    groups, direct = grouped(builder.domain, clique, outputs)
    sums = [(builder.new(smaller), members) for smaller, members in groups]
    builder.fuse(clique, inputs, [*direct, *(table for table, _ in sums)], own)
    for table, members in sums:
        _apart(builder, table[1], [table], members)
