"""The marginal oracle: computes marginals of potentials by belief propagation on a junction tree."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.errors import InputError
from understudy.model.junction_tree import JunctionTree, sort_columns
from understudy.model.kernels.arguments import CROSS, Schedule
from understudy.model.schedule import Arrangement, make_scratch, make_steps

Vector = NDArray[np.float64]
Potentials = Vector | Callable[[Vector], None]
"""A vector of potentials, or a function that writes them into a vector."""


class Propagation:
    """Belief propagation for one tree and one list of tables.

    A vector of potentials or marginals holds all tables one after the other, each flat in C order of its columns (the
    engine's column order). The first `factors` tables are maximal; each of the others is contained in one of them, to
    which its potentials are added.

    Works in the linear domain, and again in the log domain if that underflows. One workspace holds everything; the
    marginals may overwrite the potentials, which are no longer needed when the marginals are computed.

    Args:
        tree: the junction tree.
        cliques: the cliques of the marginals; each lies inside a tree clique.
        more: length of extra space behind the marginals for the caller's own numbers.
        beliefs: whether `belief` will be called; if not, tables that are no longer needed are overwritten.

    Attributes:
        tree: the junction tree.
        tables: the cliques of the vector's tables, in the engine's column order.
        starts: where each table begins in a vector; one entry more than there are tables.
        factors: number of maximal tables.
        log_partition: for the last call, the logarithm of the sum over all cells of the exponentiated potentials.
        in_logs: whether the last call had to work in the log domain.
        lost: a bound on the share of the mass that underflow may have lost in the last call (`_bound_lost`).
        calls: number of calls.
    """

    def __init__(self, tree: JunctionTree, cliques: Iterable[Clique], *, more: int = 0, beliefs: bool = True) -> None:
        self.tree = tree
        self._columns = sort_columns(tree.domain)
        self._beliefs = beliefs
        wanted = {self.engine_order(clique) for clique in cliques} | {()}
        arranged = self._arranged = Arrangement.of(tree, wanted, keep_potentials=beliefs)
        self.tables, self.starts, self.factors = arranged.tables, arranged.starts, arranged.factors
        self.size = int(self.starts[-1])
        self._room = slice(arranged.room, arranged.room + self.size + more)
        self._steps = make_steps(tree, arranged, crossing=True)
        self._scratch = make_scratch(self._steps.schedule)
        self._sums = np.ones(len(self._steps.schedule.kind))
        self._crossings = np.flatnonzero(self._steps.schedule.kind == CROSS)
        self.in_logs = False
        self.log_partition = math.nan
        self.smallest_message = 1.0
        self.lost = 0.0
        self.calls = 0

    def engine_order(self, clique: Iterable[str]) -> Clique:
        """Return a clique's columns in the order of its table: smallest first, without columns of a single code."""
        wanted = set(clique)
        return tuple(column for column in self._columns if column in wanted)

    @property
    def is_on_device(self) -> bool:
        """Whether messages are computed on a GPU; see `DevicePropagation`."""
        return False

    @property
    def room(self) -> Vector:
        """The array of the marginals, and behind them the caller's own numbers; every call overwrites it."""
        return self._work[self._room]

    def slice_of(self, table: int) -> slice:
        """Return the place of a table in a vector."""
        return slice(int(self.starts[table]), int(self.starts[table + 1]))

    def marginals(
        self,
        potentials: Potentials,
        total: float,
        *,
        forbidden: NDArray[np.int64],
        logs: bool = False,
    ) -> Vector:
        """Compute the marginals of all tables, each with sum `total`, in the workspace: valid until the next call.

        Args:
            potentials: the potentials of all tables, not changed; or a function that writes them into a vector as long
                as `room`, which is called again if the log domain is needed.
            total: the sum of each table.
            forbidden: positions, in the maximal tables, of cells that cannot occur.
            logs: whether to work in the log domain from the start.

        Raises:
            InputError: if no cell of the domain is possible.
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

    def fold_potentials(self, potentials: Potentials) -> Vector:
        """Return potentials of the maximal tables, those of contained tables added: the same distribution.

        The result is a part of the workspace, valid until the next call.
        """
        return self._fold(potentials)

    def belief(self, position: int) -> Vector:
        """Return the table of a tree clique, with sum 1, from the messages of the last call of `marginals`."""
        if not self._beliefs:
            raise ValueError("without beliefs: the messages were not kept")
        domain, clique = self.tree.domain, self.tree.cliques[position]
        out = np.full(domain.shape(clique), 0.0 if self.in_logs else 1.0)
        for start, columns in self._steps.inputs[position]:
            broadcast = [domain[column] if column in columns else 1 for column in clique]
            values = self._work[start : start + domain.cells(columns)].reshape(broadcast)
            np.add(out, values, out=out) if self.in_logs else np.multiply(out, values, out=out)
        if self.in_logs:
            np.exp(out - out.max(), out=out)
        out /= out.sum()
        return out

    @cached_property
    def _work(self) -> Vector:
        """The workspace: exponentiated potentials, marginals behind or over them, and all other tables."""
        return np.empty(max(self._steps.end, self._room.stop))

    @cached_property
    def _log_schedule(self) -> Schedule:
        return make_steps(self.tree, self._arranged, crossing=False).schedule

    def _run(self, work: Vector, first: int, last: int) -> float:
        """Run steps `first .. last-1`; returns the smallest cell of a normalised message, or -1 if one is 0 everywhere.

        `CROSS` steps are called from here, because their loop takes seconds to compile and small trees have none.
        """
        from understudy.model.kernels import propagation as kernels

        s = self._steps.schedule
        smallest = 1.0
        for crossing in (*self._crossings[(first <= self._crossings) & (self._crossings < last)], last):
            smallest = min(smallest, float(kernels.run(work, s, first, crossing, self._sums, *self._scratch)))
            if smallest < 0.0 or crossing == last:
                break
            kernels.cross(work, s, crossing, *self._scratch)
            first = crossing + 1
        return smallest

    def _fold(self, potentials: Potentials) -> Vector:
        """Write potentials of the maximal tables, those of contained tables added, to the start of the workspace."""
        folded = self._work[: self.size]
        if callable(potentials):
            potentials(self._work[: self._room.stop - self._room.start])
        else:
            np.copyto(folded, potentials)
        self._run(folded, 0, self._steps.folding)
        return folded[: self._arranged.maximal]

    def _linear(self, potentials: Potentials, forbidden: NDArray[np.int64]) -> bool:
        """Propagate in the linear domain; False if that underflowed."""
        from understudy.model.kernels import propagation as kernels

        folded, powers = self._fold(potentials), np.empty(512)
        shift = float(kernels.lower(folded, self.starts[: self.factors + 1]))
        kernels.exponentials(folded, powers, powers.view(np.int64))
        self._work[forbidden] = 0.0
        self.smallest_message = self._pass_messages()
        mass = float(self.room[self.size - 1]) if self.smallest_message >= 0.0 else 0.0
        self.in_logs = not (kernels.TINY < mass < math.inf and math.isfinite(shift))
        if not self.in_logs:
            self.log_partition = shift + math.log(mass) + float(np.log(self._sums[self._steps.normalisers]).sum())
            self.lost = self._bound_lost(mass)
        return not self.in_logs

    def _pass_messages(self) -> float:
        """Turn exponentiated potentials into marginals; returns what `_run` returns."""
        return self._run(self._work, self._steps.folding, len(self._sums))

    def _bound_lost(self, mass: float) -> float:
        """Bound the share of the mass that underflow may have lost or added in the linear domain.

        Every table's largest value is 1. A value that is raised to e^-690, or a product that is too small for a double,
        weighs at most e^-690, times the sums above 1 by which messages were divided, in each of the domain's cells; and
        this may happen in each step. The whole mass is `mass` times the sums of the upward messages.
        """
        cells, steps = math.log(self.tree.domain.cells()), math.log(2.0 * len(self._sums))
        exponent = cells + steps - 690.0 - math.log(mass) + float(np.abs(np.log(self._sums)).sum())
        return math.exp(min(exponent, 0.0))

    def _logarithmic(self, potentials: Potentials, forbidden: NDArray[np.int64]) -> None:
        """Propagate in the log domain."""
        from understudy.model.kernels import propagation as log_domain

        self.in_logs, self.lost = True, 0.0
        self._fold(potentials)
        self._work[forbidden] = -np.inf
        s, top = self._log_schedule, np.empty_like(self._work)
        log_domain.run_log(self._work, top, s, self._steps.folding, len(s.kind), self._sums, *make_scratch(s))
        mass = float(self.room[self.size - 1])
        self.log_partition = mass + float(self._sums[self._steps.normalisers].sum())
        if not math.isfinite(self.log_partition):
            raise InputError("the forbidden cells leave no possible row; allow at least one")
