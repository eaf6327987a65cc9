"""Scores of a private selection in exact integers, and public marginals whose distances the gate may remember."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.domain import Clique


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
    """Exact L1 distances between the rows and fixed marginals, in rows; held by the gate alone.

    **Privacy.** Exact, hence private. A distance that is remembered is one that would be counted again: a score against
    some public marginal, of the same sensitivity, whatever a caller did to its marginals in between.
    """

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[FixedMarginals, dict[Clique, Fraction]] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return "Distances()"

    def of(self, against: Mapping[Clique, ArrayLike]) -> dict[Clique, Fraction]:
        """The distances known for these marginals, to be added to; a fresh dict unless they are fixed."""
        return self._known.setdefault(against, {}) if isinstance(against, FixedMarginals) else {}


def whole_scores(
    distances: Sequence[Fraction], weights: Sequence[Fraction], offsets: Sequence[Fraction]
) -> tuple[list[int], int]:
    """Scores ``weight * (distance - offset)`` as whole numbers, and how many of them make one row.

    >>> whole_scores([Fraction(3), Fraction(1)], [Fraction(1, 2), Fraction(2)], [Fraction(1), Fraction(0)])
    ([2, 4], 2)
    """
    rows = math.lcm(*{number.denominator for number in (*distances, *offsets)})
    parts = math.lcm(*{weight.denominator for weight in weights})
    scores = [
        (_times(d, rows) - _times(o, rows)) * _times(w, parts)
        for d, w, o in zip(distances, weights, offsets, strict=True)
    ]
    return scores, rows * parts


def _times(number: Fraction, multiple: int) -> int:
    """A fraction times a multiple of its denominator, without the cost of reducing fractions."""
    return number.numerator * (multiple // number.denominator)
