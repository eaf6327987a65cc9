"""The compiled loop of `flow`: successive shortest paths with prices; a search goes no further than it must.

Every node v ends with a deviation x[v] whose cost is 0 inside [-spare[v], room[v]] and `fine` per unit outside; every
undirected edge carries a net flow at its cost per unit. Prices certify the optimum: price[v] is a subgradient of v's
deviation cost at x[v], two neighbours' prices differ by at most the edge's cost, and by exactly it where flow runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from understudy.model.kernels import compiled

__all__ = ["route"]


@compiled(inner=True)
def _sift_up(keys: Any, items: Any, at: Any) -> Any:
    key, item = keys[at], items[at]
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] <= key:
            break
        keys[at], items[at] = keys[above], items[above]
        at = above
    keys[at], items[at] = key, item


@compiled(inner=True)
def _sift_down(keys: Any, items: Any, size: Any) -> Any:
    key, item = keys[size], items[size]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[at], items[at] = keys[below], items[below]
        at = below
    keys[at], items[at] = key, item


@compiled(inner=True)
def _add(keys: Any, items: Any, size: Any, key: Any, item: Any) -> Any:
    """Add an item to the heap; returns its new size."""
    keys[size], items[size] = key, item
    _sift_up(keys, items, size)
    return size + 1


@compiled(inner=True)
def _step(sign: Any, x: Any, room: Any, spare: Any, fine: Any) -> Any:
    """Return the price of one more unit (of this sign) at a node, and for how many units it stays so."""
    if sign < 0:
        x, room, spare = -x, spare, room
    if x < -spare:
        return -fine, -spare - x
    if x < room:
        return np.int64(0), room - x
    return fine, np.int64(1) << 60


@compiled(inner=True)
def _push(sign: Any, node: Any, most: Any, parent: Any, neighbour: Any, edge: Any, forward: Any, flow: Any) -> Any:
    """Move at most `most` along the path to a node; return how much, and whether that cancels an opposite flow."""
    opposite = np.int64(1) << 60
    at = node
    while parent[at] >= 0:
        arc = parent[at]  # it leads from `at` back to its parent
        carried = sign * forward[arc] * flow[edge[arc]]
        if carried > 0:
            opposite = min(opposite, carried)
        at = neighbour[arc]
    push = min(most, opposite)
    at = node
    while parent[at] >= 0:
        arc = parent[at]
        flow[edge[arc]] -= sign * forward[arc] * push
        at = neighbour[arc]
    return push, push == opposite


@compiled(inner=True)
def _find_arc(start: Any, edge: Any, node: Any, wanted: Any) -> Any:
    """Return the arc of `node` that runs along the edge `wanted`."""
    for arc in range(start[node], start[node + 1]):
        if edge[arc] == wanted:
            return arc
    return np.int64(-1)


@compiled()
def route(
    sign: Any,
    start: Any,
    neighbour: Any,
    edge: Any,
    forward: Any,
    cost: Any,
    fine: Any,
    final: Any,
    room: Any,
    spare: Any,
    x: Any,
    left: Any,
    price: Any,
    flow: Any,
    budget: Any,
    marks: Any,
    heap: Any,
) -> Any:
    """Route what is left at the nodes (of this sign) at least cost; False after visiting more than `budget` nodes.

    Arrays are changed in place. `final[v]` says whether mass may end at v. `marks` and `heap` are scratch: five zeros
    for each node, and two numbers for each node and arc. The heap holds nodes, and `nodes + v` for mass that ends at v.
    """
    nodes = len(x)
    distance, seen, done, parent, visited = marks[0], marks[1], marks[2], marks[3], marks[4]
    keys, items = heap[0], heap[1]
    none, stamp, scanned = np.int64(0), np.int64(0), np.int64(0)  # literals would have loops compiled for them, too
    for source in range(nodes):
        while left[source] * sign > 0:
            stamp += 1
            size, count = _add(keys, items, none, none, source), 1
            distance[source], seen[source], parent[source], visited[0] = 0, stamp, -1, source
            reached = np.int64(-1)
            while size > 0 and reached < 0:
                key, item = keys[0], items[0]
                size -= 1
                _sift_down(keys, items, size)
                if item >= nodes:
                    v = item - nodes
                    slope, most = _step(sign, x[v], room[v], spare[v], fine)
                    end = distance[v] + slope - sign * price[v]
                    if end > key:  # it has become dearer since it was added
                        size = _add(keys, items, size, end, item)
                        continue
                    most = min(most, sign * left[source])
                    push, cancelled = _push(sign, v, most, parent, neighbour, edge, forward, flow)
                    x[v] += sign * push
                    left[source] -= sign * push
                    if left[source] == 0 or cancelled:
                        reached = key
                    else:
                        size = _add(keys, items, size, key, item)
                    continue
                v = item
                if done[v] == stamp or key > distance[v]:
                    continue
                done[v] = stamp
                scanned += 1
                if final[v]:
                    slope, most = _step(sign, x[v], room[v], spare[v], fine)
                    size = _add(keys, items, size, key + slope - sign * price[v], nodes + v)
                for arc in range(start[v], start[v + 1]):
                    u = neighbour[arc]
                    if done[u] == stamp:
                        continue
                    carried = sign * forward[arc] * flow[edge[arc]]
                    length = cost[edge[arc]] if carried >= 0 else -cost[edge[arc]]
                    far = key + length - sign * price[v] + sign * price[u]
                    if seen[u] != stamp or far < distance[u]:
                        if seen[u] != stamp:
                            visited[count] = u
                            count += 1
                        seen[u], distance[u] = stamp, far
                        parent[u] = _find_arc(start, edge, u, edge[arc])
                        size = _add(keys, items, size, far, u)
            if reached < 0 or scanned > budget:
                return False
            for place in range(count):
                v = visited[place]
                if distance[v] < reached:
                    price[v] += sign * (reached - distance[v])
    return True
