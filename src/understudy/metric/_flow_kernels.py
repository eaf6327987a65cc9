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
def _add(keys: Any, items: Any, size: Any, key: Any, item: Any) -> Any:
    """Add an item to a heap of this size; returns the new size."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] <= key:
            break
        keys[at], items[at] = keys[above], items[above]
        at = above
    keys[at], items[at] = key, item
    return size + 1


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
def _step(x: Any, below: Any, above: Any, fine: Any) -> Any:
    """The price of one more unit at a node, and for how many units it stays so."""
    if x < -below:
        return -fine, -below - x
    if x < above:
        return np.int64(0), above - x
    return fine, np.int64(1) << 60


@compiled()
def route(
    sign: Any,
    start: Any,
    neighbour: Any,
    edge: Any,
    forward: Any,
    back: Any,
    cost: Any,
    fine: Any,
    final: Any,
    below: Any,
    above: Any,
    x: Any,
    left: Any,
    price: Any,
    flow: Any,
    budget: Any,
    marks: Any,
    heap: Any,
) -> Any:
    """Route what is left at the nodes (of this sign) at least cost; False after visiting more than `budget` nodes.

    One long function: a search, its pushes and the prices' update share a dozen arrays, and splitting them would pass
    all of them around. Arrays are changed in place. `back[arc]` is the arc that runs the other way, `final[v]` says
    whether mass may end at v, and deviations of this sign are free up to `above[v]`, those of the other up to
    `below[v]`. `marks` and `heap` are scratch: five zeros for each node, and two numbers for each node and arc.
    """
    nodes = len(x)
    distance, seen, done, parent, visited = marks[0], marks[1], marks[2], marks[3], marks[4]
    keys, items = heap[0], heap[1]
    stamp, scanned = np.int64(0), np.int64(0)
    for source in range(nodes):
        while left[source] * sign > 0:
            stamp += 1
            size, count = 1, 1
            keys[0], items[0] = 0, source
            distance[source], seen[source], parent[source], visited[0] = 0, stamp, -1, source
            reached = np.int64(-1)
            while size > 0 and reached < 0:
                key, item = keys[0], items[0]
                size -= 1
                _sift_down(keys, items, size)
                if item >= nodes:  # mass ends at v
                    v = item - nodes
                    slope, most = _step(sign * x[v], below[v], above[v], fine)
                    far = distance[v] + slope - sign * price[v]
                    if far > key:
                        size = _add(keys, items, size, far, item)
                        continue
                    push = min(most, sign * left[source])
                    narrow = np.int64(1) << 60
                    u = v
                    while parent[u] >= 0:
                        arc = parent[u]
                        carried = -sign * forward[arc] * flow[edge[arc]]  # `arc` leads from u back to its parent
                        if carried < 0:
                            narrow = min(narrow, -carried)
                        u = neighbour[arc]
                    push = min(push, narrow)
                    u = v
                    while parent[u] >= 0:
                        arc = parent[u]
                        flow[edge[arc]] -= sign * forward[arc] * push
                        u = neighbour[arc]
                    x[v] += sign * push
                    left[source] -= sign * push
                    if left[source] == 0 or push == narrow:
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
                    slope, most = _step(sign * x[v], below[v], above[v], fine)
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
                        parent[u] = back[arc]
                        size = _add(keys, items, size, far, u)
            if reached < 0 or scanned > budget:
                return False
            for place in range(count):
                v = visited[place]
                if distance[v] < reached:
                    price[v] += sign * (reached - distance[v])
    return True
