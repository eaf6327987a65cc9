"""Least-cost flow on the neighbour network of a table, which turns one table of counts into another.

There are two solvers with equal results. `nearby` (ours, compiled) searches shortest paths with prices no further than
mass has to move: where the tables are alike it takes a second and `ortools` minutes. Where they are not, its searches
become long; it then stops after a fixed amount of work, and the cost-scaling solver of OR-tools is used instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.errors import InputError, SettingError

Solver: TypeAlias = Literal["auto", "nearby", "ortools"]
Whole: TypeAlias = NDArray[np.int64]
_WORK_PER_NODE = 300


@dataclass(frozen=True, eq=False)
class FlowNetwork:
    """Nodes, and undirected edges along which mass may move.

    Attributes:
        tail: one end of each edge.
        head: its other end.
        cost: what a unit pays along it, a whole number.
        final: by node, whether mass may lie there (dummy nodes of a hierarchy are only passed through).
        fine: what a unit added or removed pays.
    """

    tail: Whole
    head: Whole
    cost: Whole
    final: NDArray[np.bool_]
    fine: int


@dataclass(frozen=True, eq=False)
class Solution:
    """The flow of least cost.

    Attributes:
        flow: by edge, what moves from tail to head (negative: from head to tail).
        excess: by node, units above the tolerance, hence removed.
        lack: by node, units below the tolerance, hence added.
    """

    flow: Whole
    excess: Whole
    lack: Whole


def solve_flow(
    network: FlowNetwork, synthetic: Whole, real: Whole, tolerance: int, solver: Solver = "auto"
) -> Solution:
    """Turn `synthetic` into `real`, up to `tolerance` in every node, at least cost.

    Args:
        network: where mass may move.
        synthetic: counts by node.
        real: counts by node.
        tolerance: differences up to this are free.
        solver: "nearby", "ortools", or "auto": `nearby`, then `ortools` where that takes long.
    """
    spare = np.minimum(real, tolerance)
    room = np.where(network.final, np.int64(tolerance), 0)
    if solver != "ortools":
        found = _search_nearby(network, synthetic - real, room, spare, None if solver == "nearby" else _WORK_PER_NODE)
        if found is not None:
            return found
    return _solve_by_ortools(network, synthetic - real, room, spare)


def _search_nearby(network: FlowNetwork, gap: Whole, room: Whole, spare: Whole, work: int | None) -> Solution | None:
    from understudy.metric._flow_kernels import route as compiled

    nodes, edges = len(gap), len(network.tail)
    tails = np.concatenate((network.tail, network.head))
    order = np.argsort(tails, kind="stable")
    start = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(tails, minlength=nodes), out=start[1:])
    neighbour = np.concatenate((network.head, network.tail))[order]
    edge = np.tile(np.arange(edges), 2)[order]
    forward = np.repeat(np.array([1, -1]), edges)[order]
    lies, level = _starting_point(gap, room, spare, network)
    left, price, flow = gap - lies, np.full(nodes, level), np.zeros(edges, np.int64)
    budget = (1 << 62) if work is None else work * nodes + 1_000_000
    marks, heap = np.empty((5, nodes), np.int64), np.empty((2, nodes + 2 * edges + 1), np.int64)
    for sign in (1, -1):
        marks[:] = 0
        arcs = (start, neighbour, edge, forward, network.cost)
        limits = (np.int64(network.fine), network.final, room, spare)
        if not compiled(np.int64(sign), *arcs, *limits, lies, left, price, flow, np.int64(budget), marks, heap):
            return None
    return Solution(flow, np.maximum(lies - room, 0), np.maximum(-spare - lies, 0))


def _starting_point(gap: Whole, room: Whole, spare: Whole, network: FlowNetwork) -> tuple[Whole, int]:
    """Return where mass lies at first, and the price that certifies it, so that searches start on the scarce side.

    Where more has to be removed than the tolerance absorbs, all of it is removed at first and cells with room search
    for it; the other way round, each excess would search for room that is already taken. Likewise for adding.
    """
    if gap.sum() > room.sum():
        return np.where(network.final, np.maximum(gap, room), 0), network.fine
    if gap.sum() < -spare.sum():
        return np.where(network.final, np.minimum(gap, -spare), 0), -network.fine
    return np.clip(gap, -spare, room), 0


def _solve_by_ortools(network: FlowNetwork, gap: Whole, room: Whole, spare: Whole) -> Solution:
    try:
        from ortools.graph.python import min_cost_flow
    except ImportError:
        raise SettingError("this marginal needs OR-tools: pip install 'understudy[eval]'") from None
    nodes, edges = len(gap), len(network.tail)
    lies = np.flatnonzero(network.final)
    ground = np.full(len(lies), nodes)
    most = int(np.abs(gap).sum()) + int(room.sum()) + int(spare.sum()) + 1
    free, fined = np.zeros(len(lies), np.int64), np.full(len(lies), network.fine)
    unlimited = np.full(len(lies), most)
    solver = min_cost_flow.SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(
        np.concatenate((network.tail, network.head, lies, lies, ground, ground)),
        np.concatenate((network.head, network.tail, ground, ground, lies, lies)),
        np.concatenate((np.full(2 * edges, most), room[lies], unlimited, spare[lies], unlimited)),
        np.concatenate((network.cost, network.cost, free, fined, free, fined)),
    )
    solver.set_nodes_supplies(np.arange(nodes + 1), np.append(gap, -gap.sum()))
    if solver.solve() != solver.OPTIMAL:
        raise InputError("the flow network could not be solved; this is a bug in understudy; please report it")
    flows = np.asarray(solver.flows(np.arange(2 * edges + 4 * len(lies))), dtype=np.int64)
    excess, lack = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    rest = flows[2 * edges :].reshape(4, len(lies))
    excess[lies], lack[lies] = rest[1], rest[3]
    return Solution(flows[:edges] - flows[edges : 2 * edges], excess, lack)
