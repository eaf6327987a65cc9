"""Heaped amounts: how round a number is, as a second coded column (MST, Algorithms 3, 9 and 10, for any divisors)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Heaps:
    """Classes of the rest modulo the coarsest divisor: the first divisor that divides it, in the declared order.

    >>> import numpy as np
    >>> wages = Heaps.of([100, 20, 50, 25, 10, 5, 2, 1])
    >>> wages.encode(np.array([1200, 1240, 1250, 1275, 1230, 1205, 1202, 1201])).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """

    divisors: tuple[int, ...]

    @classmethod
    def of(cls, divisors: list[int]) -> Heaps:
        """The classes of these divisors.

        Raises:
            ValueError: saying how to correct the list.
        """
        if any(divisor < 1 for divisor in divisors) or len(set(divisors)) != len(divisors):
            raise ValueError("`heaped` needs distinct positive divisors; correct the list")
        if any(divisors[0] % divisor for divisor in divisors):
            raise ValueError("`heaped`: the first divisor must be a multiple of all others; put the coarsest first")
        if divisors[0] > 1_000_000:
            raise ValueError("`heaped`: the coarsest divisor is too large; at most 1000000 units of the last decimal")
        heaps = cls(tuple(divisors))
        if len(np.unique(heaps._class_of_rest)) < heaps.size:
            raise ValueError("`heaped`: a divisor is never reached because an earlier one divides it; put it earlier")
        return heaps

    @property
    def block(self) -> int:
        """The coarsest divisor: the width of a block of rests."""
        return self.divisors[0]

    @property
    def values(self) -> list[int | None]:
        """The divisor of each class; None for "none of them", where a rest can be so."""
        return [*self.divisors, *([None] if self._has_rest else [])]

    @property
    def size(self) -> int:
        """How many classes there are."""
        return len(self.values)

    @cached_property
    def _has_rest(self) -> bool:
        return 1 not in self.divisors

    @cached_property
    def _class_of_rest(self) -> NDArray[np.int32]:
        """Algorithm 3, line 2: "else if" over the divisors, for every rest."""
        rest = np.arange(self.block)
        found = np.full(self.block, len(self.divisors), dtype=np.int32)
        for index in reversed(range(len(self.divisors))):
            found[rest % self.divisors[index] == 0] = index
        return found

    def encode(self, units: NDArray[np.int64]) -> NDArray[np.int32]:
        """The class of each amount."""
        return self._class_of_rest[units % self.block]

    def decode(
        self,
        lower: NDArray[np.int64],
        upper: NDArray[np.int64],
        classes: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Amounts in ``[lower, upper)`` of the given classes (Algorithms 9 and 10), clipped where there is none."""
        order = np.argsort(self._class_of_rest, kind="stable")
        counts = np.bincount(self._class_of_rest, minlength=self.size)
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        count = counts[classes]
        picked = starts[classes] + np.minimum(
            (rng.random(len(classes)) * count).astype(np.int64), np.maximum(count - 1, 0)
        )
        rest = order[np.minimum(picked, self.block - 1)]
        first, last = lower // self.block, (upper - 1) // self.block
        block = first + (rng.random(len(classes)) * (last - first + 1)).astype(np.int64)
        amounts: NDArray[np.int64] = np.clip(block * self.block + rest, lower, upper - 1)
        return amounts
