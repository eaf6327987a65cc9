"""Scores of a private selection in exact integers, and public marginals whose distances the gate may remember."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.domain import Clique
from understudy.privacy.distances import BITS, batches, distances


class FixedMarginals(Mapping[Clique, NDArray[np.float64]]):
    """Public marginals that stay as they are, each made when it is asked for.

    Give these to `PrivateTable.select` instead of a dict when the same ones are used in many selections: the gate then
    counts each clique once. Two are equal only when they are the same object.
    """

    @abstractmethod
    def __getitem__(self, clique: Clique) -> NDArray[np.float64]:
        """The marginal of one clique, always the same."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return object.__hash__(self)


class Distances:
    """Exact L1 distances between the rows and fixed marginals, in units of 2^-16 rows; held by the gate alone.

    **Privacy.** Exact, hence private. A distance that is remembered is one that would be counted again: a score against
    some public marginal, of the same sensitivity, whatever a caller did to its marginals in between.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[FixedMarginals, dict[Clique, int]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return "Distances()"

    def of(self, against: Mapping[Clique, ArrayLike]) -> dict[Clique, int]:
        """The distances known for these marginals, to be added to; a fresh dict unless they are fixed."""
        return self._known.setdefault(against, {}) if isinstance(against, FixedMarginals) else {}


def distances_of(
    counted: Iterable[tuple[Clique, NDArray[np.integer[Any]]]], given: Mapping[Clique, Callable[[], NDArray[np.int64]]]
) -> Iterator[tuple[Clique, int]]:
    """Each clique with the exact L1 distance of its counts from what is given, in units of 2^-16 rows."""
    for batch in batches(counted, lambda one: len(one[1])):
        cliques = [clique for clique, _ in batch]
        yield from zip(cliques, distances([c for _, c in batch], [given[c]() for c in cliques]), strict=True)


def whole_scores(
    distances: Sequence[int], weights: Sequence[float] | None, offsets: Sequence[float] | None
) -> tuple[list[int], int]:
    """Scores ``weight * (distance - offset)`` as whole numbers, and how many of them make one row.

    Distances are in units of 2^-16 rows, weights and offsets in rows.

    Exact: a float stands for its binary value. Fractions are never reduced, which would cost most of a selection's time
    where there are thousands of candidates.

    >>> whole_scores([3 << 16, 1 << 16], [0.5, 2.0], [1.0, 0.0])
    ([131072, 262144], 131072)
    """
    scores, unit = list(distances), 1 << BITS
    if offsets is not None:
        less, fine = _whole([offset.as_integer_ratio() for offset in offsets])
        common = math.lcm(unit, fine)
        scores = [s * (common // unit) - o * (common // fine) for s, o in zip(scores, less, strict=True)]
        unit = common
    if weights is not None:
        times, parts = _whole([weight.as_integer_ratio() for weight in weights])
        scores = [s * w for s, w in zip(scores, times, strict=True)]
        unit *= parts
    return scores, unit


def _whole(ratios: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """Numbers given as ratios, as multiples of one over their common denominator."""
    common = math.lcm(*{denominator for _, denominator in ratios})
    return [numerator * (common // denominator) for numerator, denominator in ratios], common
