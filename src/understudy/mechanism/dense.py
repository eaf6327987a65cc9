"""DenseMarg: which pairs to measure, with what shares, and how pairs become cliques. Post-processing of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from understudy.domain import Clique, Domain
from understudy.gate import Allocation

_MOST_VISITS = 30_000
"""How many partial cliques are looked at for each size: dense graphs have more than could ever be listed."""


def shrink_scores(scores: Mapping[Clique, float], sd: float) -> dict[Clique, float]:
    """The scores, moved towards their mean as far as noise of this standard deviation explains their differences.

    Greedy choice among noisy scores prefers pairs that the noise has favoured. The differences keep the part of their
    variance that the noise does not explain (James and Stein); with little noise the scores stay as they are.

    >>> shrink_scores({("a", "b"): 5.0, ("a", "c"): 1.0, ("b", "c"): 3.0}, 1.0)
    {('a', 'b'): 4.5, ('a', 'c'): 1.5, ('b', 'c'): 3.0}
    """
    if len(scores) < 3:
        return dict(scores)
    values = np.array(list(scores.values()), dtype=np.float64)
    mean, variance = float(values.mean()), float(values.var(ddof=1))
    kept = max(0.0, 1 - sd**2 / variance) if variance > 0 else 0.0
    return {pair: float(mean + kept * (score - mean)) for pair, score in scores.items()}


def choose_pairs(
    scores: Mapping[Clique, float],
    cells: Mapping[Clique, int],
    allocation: Allocation,
    *,
    least_gain: float = 0.0,
    most_cells: float = math.inf,
    admissible: Callable[[list[Clique]], bool] | None = None,
) -> list[Clique]:
    """Pairs to measure, in the order chosen: greedily the one that lowers the expected error most (DenseMarg).

    The expected error is what noise does to the chosen pairs plus the dependence that is lost with the others.

    Args:
        scores: noisy dependence of each candidate, in rows.
        cells: the size of each candidate's table.
        allocation: how the budget is divided.
        least_gain: stop when a pair would lower the error by less than this many rows.
        most_cells: chosen tables have at most this many cells in all.
        admissible: whether these pairs may be measured together; a pair that makes a set inadmissible is passed over.
    """
    pairs = list(scores)
    gain = np.array([float(scores[pair]) for pair in pairs])
    size = np.array([cells[pair] for pair in pairs], dtype=np.float64)
    part, open_ = size**allocation.power, size <= most_cells
    chosen: list[Clique] = []
    total = 0.0
    while open_.any():
        now = allocation.per_cell * total ** (1 / allocation.power)
        better = gain - (allocation.per_cell * (total + part) ** (1 / allocation.power) - now)
        best = int(np.argmax(np.where(open_, better, -np.inf)))
        if better[best] <= 0 or better[best] < least_gain:
            break
        open_[best] = False
        if admissible is not None and not admissible([*chosen, pairs[best]]):
            continue
        chosen.append(pairs[best])
        total += part[best]
        most_cells -= size[best]
        open_ &= size <= most_cells
    return chosen


def join_pairs(
    domain: Domain,
    pairs: Sequence[Clique],
    *,
    most_cells: int = 5000,
    admissible: Callable[[Clique], bool] = lambda clique: True,
) -> list[Clique]:
    """Cliques to measure instead of the pairs: small tables whose pairs were all chosen are measured as one.

    From the largest size down to three, a clique of the graph of pairs is taken when its table has at most
    `most_cells` cells, it is `admissible` and shares at most two columns with all cliques taken before; then the pairs
    that no clique covers. Among cliques of one size the first in the domain's order is taken.

    >>> join_pairs(Domain(dict.fromkeys("abcd", 2)), [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")])
    [('a', 'b', 'c'), ('c', 'd')]
    """
    near: dict[str, set[str]] = {}
    for one, other in pairs:
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    taken: list[Clique] = []
    used: set[str] = set()
    largest = min(len(near), int(math.log2(max(most_cells, 1))))
    for length in range(largest, 2, -1):
        for clique in _cliques(domain, near, length, most_cells, used):
            if admissible(clique):
                taken.append(clique)
                used |= set(clique)
    covered = {pair for clique in taken for pair in combinations(clique, 2)}
    return [*taken, *(pair for pair in map(domain.canonical, pairs) if pair not in covered)]


def _cliques(
    domain: Domain, near: Mapping[str, set[str]], length: int, most_cells: int, used: set[str]
) -> Iterator[Clique]:
    """Cliques of one length, lazily and in order; `used` grows between two of them, which prunes the rest."""
    visits = 0

    def grow(clique: Clique, cells: int, candidates: list[str]) -> Iterator[Clique]:
        nonlocal visits
        if len(clique) == length:
            yield clique
            return
        for i, column in enumerate(candidates):
            visits += 1
            if len(clique) + len(candidates) - i < length or visits > _MOST_VISITS:
                return
            if cells * domain[column] > most_cells or sum(other in used for other in (*clique, column)) > 2:
                continue
            rest = [other for other in candidates[i + 1 :] if other in near[column]]
            yield from grow((*clique, column), cells * domain[column], rest)

    return grow((), 1, [column for column in domain if column in near])
