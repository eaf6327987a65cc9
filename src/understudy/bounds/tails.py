"""How far noise can reach: exact laws of sums of integer noise, and bounds of its L1 norm.

*Discrete Gaussian.* It is sub-Gaussian with its parameter as proxy, E exp(t X) <= exp(t^2 sigma^2 / 2) for every real t
(Canonne, Kamath and Steinke 2020), hence so are weighted sums of independent ones, with the weighted sum of squares.
That is all that `subgaussian_l1` uses. Where one measurement is summed to fewer cells, the law of each sum is known
exactly (`Law`), for the discrete Laplace as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Noise: TypeAlias = Literal["gaussian", "laplace"]

_FURTHEST = 1 << 21
_DUST = 1e-12  # mass of the furthest tail that a law leaves out; every use adds it back
_BINS = 4000


def subgaussian_l1(cells: int, variance: float, doubt: float) -> float:
    """What the L1 norm of a sub-Gaussian vector passes with probability at most `doubt`.

    Two bounds that both hold, the smaller: ||x||_1 = max over 2^n sign vectors s of <s, x>, each of which is
    sub-Gaussian with n times the variance, gives sqrt(2 n (n log 2 + log 1/doubt)), no more than Theorem 3's; and
    ||x||_1 <= sqrt(n) ||x||_2 with the tail of Hsu, Kakade and Zhang (2012), ||x||_2^2 <= n + 2 sqrt(n u) + 2 u for
    u = log 1/doubt, is smaller for many cells.

    Args:
        cells: n, the length of the vector.
        variance: the proxy: E exp(<a, x>) <= exp(||a||^2 variance / 2) for every a.
        doubt: the probability that it is passed.
    """
    u = -math.log(doubt)
    signs = 2 * cells * (cells * math.log(2) + u)
    lengths = cells * (cells + 2 * math.sqrt(cells * u) + 2 * u)
    return math.sqrt(variance * min(signs, lengths))


@dataclass(frozen=True, eq=False)
class Law:
    """The law of a sum of independent integer noise.

    Attributes:
        deviation: its standard deviation (for the discrete Gaussian an upper bound).
        mass: the probability of |sum| = 0, 1, 2, ...; what lies beyond the array has probability at most `_DUST`.
    """

    deviation: float
    mass: NDArray[np.float64]

    @staticmethod
    def of(noise: Noise, sigma: float, terms: int) -> Law | None:
        """The law of a sum of so many draws; None where it reaches too far to be written down.

        Args:
            noise: the law of each draw.
            sigma: as in a measurement: the discrete Gaussian's parameter, the discrete Laplace's standard deviation.
            terms: how many draws are summed.

        >>> law = Law.of("gaussian", 10.0, 4)
        >>> law.either_side(0.05), law.one_side(0.05)
        (39.0, 33.0)
        """
        return _law(noise, float(sigma), int(terms))

    def either_side(self, doubt: float) -> float:
        """The smallest whole number that |sum| passes with probability at most `doubt`."""
        return self._smallest(doubt - _DUST)

    def one_side(self, doubt: float) -> float:
        """The smallest whole number that the sum passes with probability at most `doubt`; it is symmetric."""
        return self._smallest(2 * (doubt - _DUST))

    def l1(self, cells: int, doubt: float) -> float:
        """What the sum of |sum| over so many independent cells passes with probability at most `doubt` (Chernoff).

        P(sum of |x_j| >= a) <= exp(-t a) E[exp(t |x|)]^n for every t > 0; magnitudes are rounded up to bins first, and
        the furthest tail of each cell is paid for by a union bound.
        """
        left = doubt - cells * _DUST
        if left <= 0:
            return math.inf
        if cells == 1:
            return self.either_side(doubt)
        magnitudes, mass = self._coarse()
        rates = np.geomspace(1e-3, 3.0, 60) / self.deviation
        moments = np.array([math.log(float(mass @ np.exp(rate * magnitudes))) for rate in rates])
        return float(np.min((cells * moments - math.log(left)) / rates))

    def _smallest(self, doubt: float) -> float:
        if doubt <= 0:
            return math.inf
        beyond = np.cumsum(self.mass[::-1])[::-1]  # P(|sum| >= k), without the dust
        inside = np.flatnonzero(np.append(beyond[1:], 0.0) <= doubt)
        return float(inside[0]) if len(inside) else math.inf

    def _coarse(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        width = max(1, -(-len(self.mass) // _BINS))
        edges = np.arange(0, len(self.mass), width)
        return np.minimum(edges + width - 1, len(self.mass) - 1).astype(float), np.add.reduceat(self.mass, edges)


@lru_cache(maxsize=4096)
def _law(noise: Noise, sigma: float, terms: int) -> Law | None:
    deviation = sigma * math.sqrt(terms)
    reach = int(9.5 * deviation if noise == "gaussian" else 42 * max(deviation, 2 * sigma)) + 2
    if 2 * reach + 1 > _FURTHEST:
        return None
    size = 1 << (2 * reach).bit_length()
    places = np.minimum(np.arange(size), size - np.arange(size)).astype(float)
    one = np.exp(-((places / sigma) ** 2) / 2) if noise == "gaussian" else np.exp(places * math.log(_ratio(sigma)))
    one /= one.sum()
    summed = one if terms == 1 else np.fft.irfft(np.fft.rfft(one) ** terms, size)
    mass = np.maximum(summed[: reach + 1], 0.0)
    mass[1:] *= 2
    beyond = np.cumsum(mass[::-1])[::-1]
    kept = mass[: max(1, int(np.count_nonzero(beyond > _DUST / 2)))].copy()
    kept.flags.writeable = False
    return Law(deviation, kept)


def _ratio(sigma: float) -> float:
    """The q of the discrete Laplace with mass proportional to q^|k|, from its variance 2 q / (1 - q)^2."""
    variance = sigma * sigma
    return variance / (1 + variance + math.sqrt(1 + 2 * variance))
