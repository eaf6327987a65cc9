"""The marginal oracle: from potentials to marginals, by belief propagation on a junction tree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.errors import InputError
from understudy.model.junction_tree import JunctionTree, ordered_columns
from understudy.model.kernels.arguments import Schedule
from understudy.model.sweep.crossing import Table
from understudy.model.sweep.grouping import grouped
from understudy.model.sweep.schedule import ScheduleBuilder, scratch_of

Vector = NDArray[np.float64]


class Propagation:
    """Belief propagation for one tree and one list of tables.

    A vector of potentials, or of marginals, is all tables one after the other, each flat in C order of its columns
    (the engine's column order). The first `factors` tables are maximal, the others lie inside one of them; the
    potentials of a contained table count for the table that contains it.

    Works in the linear domain, and again in the log domain when that underflows. One workspace holds everything; the
    folded potentials lie where the marginals will, since the first are used up before the second are made.

    Args:
        tree: the junction tree.
        cliques: which marginals are wanted; all inside the tree.
        more: how many numbers of its own the caller wants to keep behind the marginals.
        beliefs: whether `belief` will be asked; without, messages that are used up make room for others.

    Attributes:
        tree: the junction tree.
        tables: the cliques of the vector's tables, in the engine's column order.
        starts: where each table begins in a vector; one entry more than there are tables.
        factors: how many of the tables are maximal.
        log_partition: of the last call; the logarithm of the sum over all cells of the exponentiated potentials.
        in_logs: whether the last call had to work in the log domain.
        calls: how often it was called.
    """

    def __init__(self, tree: JunctionTree, cliques: Iterable[Clique], *, more: int = 0, beliefs: bool = True) -> None:
        self.tree = tree
        self._columns = ordered_columns(tree.domain)
        self._beliefs = beliefs
        self._arrange({self.engine_order(clique) for clique in cliques} | {()})
        self._marginal_start = int(self.starts[self.factors])
        self._marginal_end = self._marginal_start + self.size + more
        self._compile()
        self.in_logs = False
        self.log_partition = math.nan
        self.smallest_message = 1.0
        self.calls = 0

    def engine_order(self, clique: Iterable[str]) -> Clique:
        """A clique's columns as its table has them: smallest first, without those of a single code."""
        wanted = set(clique)
        return tuple(column for column in self._columns if column in wanted)

    @property
    def room(self) -> Vector:
        """Where `marginals` puts its results, and behind them the caller's own numbers; every call writes over it."""
        return self._work[self._marginal_start : self._marginal_end]

    def slice_of(self, table: int) -> slice:
        """Where a table lies in a vector."""
        return slice(int(self.starts[table]), int(self.starts[table + 1]))

    def marginals(
        self, potentials: Vector, total: float, *, forbidden: NDArray[np.int64], logs: bool = False
    ) -> Vector:
        """Marginals of all tables, adding up to `total` each: a part of the workspace, valid until the next call.

        Args:
            potentials: for all tables; not changed.
            total: what each table adds up to.
            forbidden: positions, in the maximal tables, of cells that cannot occur.
            logs: work in the log domain from the start.

        Raises:
            InputError: when no cell of the domain is possible.
        """
        self.calls += 1
        if logs or not self._linear(potentials, forbidden):
            self._logarithmic(potentials, forbidden)
        found = self.room[: self.size]
        if self.in_logs:
            found -= found[-1]
            np.exp(found, out=found)
        found *= total / found[-1]
        return found

    def folded(self, potentials: Vector) -> Vector:
        """The potentials of the maximal tables with those of the contained tables added: the same distribution."""
        return self._fold(potentials).copy()

    def belief(self, position: int) -> Vector:
        """The table of a tree clique, adding up to 1, by the messages of the last call of `marginals`."""
        if not self._beliefs:
            raise ValueError("without beliefs: the messages were not kept")
        domain, clique = self.tree.domain, self.tree.cliques[position]
        out = np.full(domain.shape(clique), 0.0 if self.in_logs else 1.0)
        for start, columns in self._inputs[position]:
            broadcast = [domain[column] if column in columns else 1 for column in clique]
            values = self._work[start : start + domain.cells(columns)].reshape(broadcast)
            np.add(out, values, out=out) if self.in_logs else np.multiply(out, values, out=out)
        if self.in_logs:
            np.exp(out - out.max(), out=out)
        out /= out.sum()
        return out

    def _arrange(self, cliques: set[Clique]) -> None:
        """Maximal tables first; the others largest first, so that each finds its host before it."""
        cells = self.tree.domain.cells
        by_size = sorted(cliques, key=lambda c: (-cells(c), len(c), c))
        sets = [frozenset(clique) for clique in by_size]
        hosts = [[k for k, other in enumerate(sets) if mine < other] for mine in sets]
        maximal = [i for i, above in enumerate(hosts) if not above]
        contained = [i for i, above in enumerate(hosts) if above]
        order = maximal + contained
        place = {i: k for k, i in enumerate(order)}
        self.tables = tuple(by_size[i] for i in order)
        self.factors = len(maximal)
        self._hosts = {place[i]: place[max(hosts[i])] for i in contained}
        self.starts = np.cumsum([0, *(cells(clique) for clique in self.tables)], dtype=np.int64)
        self.size = int(self.starts[-1])

    def _compile(self) -> None:
        """The schedule and its buffers."""
        self._schedule = self._steps(crossing=True)
        self._log_schedule: Schedule | None = None
        self._scratch = scratch_of(self._schedule)
        self._sums = np.ones(len(self._schedule.kind))

    @cached_property
    def _work(self) -> Vector:
        """The workspace: exponentiated potentials, marginals, and wherever there is room, everything else."""
        return np.empty(self._end)

    def _steps(self, *, crossing: bool) -> Schedule:
        """Fold potentials, messages to the root, messages from the root, contained tables."""
        tree = self.tree
        builder = ScheduleBuilder(tree.domain, crossing)
        for table, host in reversed(self._hosts.items()):
            builder.spread((int(self.starts[table]), self.tables[table]), (int(self.starts[host]), self.tables[host]))
        self._folded = len(builder.kind)
        homes = [tree.home(clique) for clique in self.tables[: self.factors]]
        children = [tree.children(i) for i in range(len(tree.cliques))]
        up, down = ([builder.new(self.engine_order(tree.separator(i))) for i in range(len(tree.cliques))] for _ in "ud")
        inputs: list[list[Table]] = []
        normalised: dict[int, int] = {}
        for t in range(self.factors):
            builder.layout.given(int(self.starts[t]), tree.domain.cells(self.tables[t]))
        for i in range(len(tree.cliques)):
            mine = [(int(self.starts[t]), self.tables[t]) for t in range(self.factors) if homes[t] == i]
            inputs.append(mine + [up[child] for child in children[i]])
        for i in range(len(tree.cliques) - 1, -1, -1):
            inputs[i] = self._together(builder, tree.cliques[i], inputs[i])
            if i:
                builder.fuse(tree.cliques[i], inputs[i], [up[i]])
                normalised[i] = builder.normalise(up[i])
        for i, clique in enumerate(tree.cliques):
            if i:
                builder.ratio(down[i], up[i], normalised[i])
                inputs[i].append(down[i])
            mine = [self._marginal(t) for t in range(self.factors) if homes[t] == i]
            self._apart(builder, clique, inputs[i], mine + [down[child] for child in children[i]])
        for host in sorted(set(self._hosts.values())):
            inside = [self._marginal(table) for table, mine in self._hosts.items() if mine == host]
            self._apart(builder, self.tables[host], [self._marginal(host)], inside)
        self._normalisers = np.array(list(normalised.values()), np.int64)
        return self._placed(builder, inputs)

    def _placed(self, builder: ScheduleBuilder, inputs: list[list[Table]]) -> Schedule:
        """Every table in its place: marginals are there to stay, and what beliefs are made of, if they are wanted."""
        for table in range(len(self.tables)):
            builder.layout.keep(self._marginal(table)[0])
        for start, _ in (table for several in inputs if self._beliefs for table in several):
            builder.layout.keep(start)
        places, end = builder.layout.settle()
        self._end = max(end, self._marginal_end)
        self._inputs = [[(places[start], columns) for start, columns in several] for several in inputs]
        return builder.build(places)

    def _together(self, builder: ScheduleBuilder, clique: Clique, inputs: list[Table]) -> list[Table]:
        """Few inputs with the same product: groups of them multiplied on a smaller clique first."""
        groups, found = grouped(self.tree.domain, clique, inputs)
        for smaller, members in groups:
            product = builder.new(smaller)
            builder.fuse(smaller, self._together(builder, smaller, members), [product])
            found.append(product)
        return found

    def _apart(self, builder: ScheduleBuilder, clique: Clique, inputs: list[Table], outputs: list[Table]) -> None:
        """Sums over a clique into many outputs: groups of them by way of a smaller clique."""
        if not outputs:
            return
        groups, direct = grouped(self.tree.domain, clique, outputs)
        sums = [(builder.new(smaller), members) for smaller, members in groups]
        builder.fuse(clique, inputs, [*direct, *(table for table, _ in sums)])
        for table, members in sums:
            self._apart(builder, table[1], [table], members)

    def _marginal(self, table: int) -> Table:
        return self._marginal_start + int(self.starts[table]), self.tables[table]

    def _run(self, work: Vector, first: int, last: int) -> float:
        from understudy.model.kernels import propagation as kernels

        s = self._schedule
        return float(kernels.run(work, s, first, last, self._sums, *self._scratch))

    def _fold(self, potentials: Vector) -> Vector:
        """The potentials of the maximal tables, those of contained tables added, in the room for marginals."""
        folded = self.room[: self.size]
        np.copyto(folded, potentials)
        self._run(folded, 0, self._folded)
        return folded[: int(self.starts[self.factors])]

    def _linear(self, potentials: Vector, forbidden: NDArray[np.int64]) -> bool:
        """Propagate in the linear domain; False when that underflowed."""
        from understudy.model.kernels import propagation as kernels

        folded = self._fold(potentials)
        shift = float(kernels.lower(folded, self.starts[: self.factors + 1]))
        work = self._work[: len(folded)]
        kernels.exponentials(folded, work, work.view(np.int64), np.empty(512))
        self._work[forbidden] = 0.0
        self.smallest_message = self._run(self._work, self._folded, len(self._schedule.kind))
        mass = float(self._work[self._marginal_start + self.size - 1])
        self.in_logs = not (kernels.TINY < mass < math.inf and math.isfinite(shift))
        if not self.in_logs:
            self.log_partition = shift + math.log(mass) + float(np.log(self._sums[self._normalisers]).sum())
        return not self.in_logs

    def _logarithmic(self, potentials: Vector, forbidden: NDArray[np.int64]) -> None:
        """Propagate in the log domain."""
        from understudy.model.kernels import log_domain

        self.in_logs = True
        folded = self._fold(potentials)
        self._work[: len(folded)] = folded
        self._work[forbidden] = -np.inf
        s = self._log_schedule = self._log_schedule or self._steps(crossing=False)
        top = np.empty_like(self._work)
        log_domain.run_log(self._work, top, s, self._folded, len(s.kind), self._sums, *scratch_of(s))
        mass = float(self._work[self._marginal_start + self.size - 1])
        self.log_partition = mass + float(self._sums[self._normalisers].sum())
        if not math.isfinite(self.log_partition):
            raise InputError("the forbidden cells leave no possible row; allow at least one")
