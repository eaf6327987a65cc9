"""The privacy loss of several independent discrete Gaussian measurements, and an upper bound of their delta.

One measurement with parameter sigma of a cell that one row moves by 1 has the privacy loss L = (1 - 2 X) / (2 sigma^2),
X being the noise; losses of independent measurements add up, and delta(epsilon) = E[max(0, 1 - exp(epsilon - L))]. The
law of the sum is computed by Fourier transforms on a grid. Everything that is not exact errs towards a larger delta:

- *Grid.* For one common sigma the losses lie on a lattice, which is the grid. Otherwise an atom of probability p and
  loss l between grid points g < g' becomes two atoms there, of the same probability in total under both neighbouring
  tables (p and p exp(-l)): the original is a post-processing of the pair, so delta can only grow.
- *Tilt.* Probabilities are multiplied by exp(theta l) before the transform and divided after, which centres the mass
  near epsilon and makes rounding errors relative to delta instead of absolute.
- *Window.* The transform is circular: mass outside the window is counted again inside it, never lost, except what lies
  above, whose probability is bounded (the discrete Gaussian is sub-Gaussian with variance proxy sigma^2) and added.
- *Tails* of each measurement beyond a cut are bounded in the same way and added; *rounding* of the transforms likewise.
- *Losses* themselves are rounded, and 1 - exp(epsilon - L) can be as small as that. No loss of the sum is further off
  than a slack, so delta is taken at an epsilon that is smaller by it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_LOST = 1e-12  # share of delta allowed for what is cut away
_GRID = 512  # grid points per standard deviation of the loss, times the root of the number of measurements
_LATTICE_UP_TO = 2048.0  # the largest sigma for which the lattice itself serves as grid
_RELATIVE = 1e-9  # rounding of exponents up to 1e5 and of a few sums, relative to delta
_EPS = 2.0**-52


class LossDistribution:
    """The summed privacy loss of discrete Gaussian measurements, most accurate near `epsilon` and `delta`.

    Args:
        sigmas: one parameter per cell that changes by 1.
        epsilon: where `delta` will be asked; others are valid too, only less sharp.
        delta: about what answer is expected there.
    """

    def __init__(self, sigmas: Sequence[float], epsilon: float, delta: float) -> None:
        count = len(sigmas)
        groups = Counter(float(sigma) for sigma in sigmas)
        mean = sum(m / (2 * sigma * sigma) for sigma, m in groups.items())
        deviation = math.sqrt(2 * mean)
        self._tilt = max(0.0, (epsilon - mean) / (2 * mean))
        self._cut = math.sqrt(2 * math.log(4 * count / (_LOST * delta)))
        self._lost = _LOST * delta
        lattice = len(groups) == 1 and next(iter(groups)) <= _LATTICE_UP_TO
        self._step = 1 / next(iter(groups)) ** 2 if lattice else deviation / (_GRID * math.sqrt(count))
        reach = deviation * self._cut + count * self._step
        low, high = min(mean, epsilon) - reach, max(mean, epsilon) + reach
        size = 1 << math.ceil(math.log2((high - low) / self._step + 2))
        spectrum: NDArray[np.complex128] = np.ones(size // 2 + 1, dtype=np.complex128)
        offset = self._log_scale = 0.0
        for sigma, m in groups.items():
            shift = 1 / (2 * sigma * sigma) if lattice else 0.0
            masses, log_scale = self._one(sigma, shift, size)
            spectrum *= np.fft.rfft(masses) ** m
            offset, self._log_scale = offset + m * shift, self._log_scale + m * log_scale
        start = math.floor((low - offset) / self._step)
        masses = np.roll(np.fft.irfft(spectrum, size), -start % size)
        self._losses = offset + self._step * np.arange(start, start + size)
        largest = sum(m * (2 * (math.ceil(self._tilt) + self._reach(s)) + 1) / (2 * s * s) for s, m in groups.items())
        self._slack = 16 * _EPS * (largest + float(np.abs(self._losses).max()))
        self._masses = np.maximum(masses, 0.0) + 8 * _EPS * math.log2(size) * (count + 1)

    def _one(self, sigma: float, shift: float, size: int) -> tuple[NDArray[np.float64], float]:
        """Tilted probabilities of one measurement's loss on the circular grid, and the logarithm of their scale."""
        reach = self._reach(sigma)
        x = np.arange(-math.ceil(self._tilt) - reach, reach + 1, dtype=np.float64)
        loss = (1 - 2 * x) / (2 * sigma * sigma)
        log_p = -x * x / (2 * sigma * sigma)
        log_p -= math.log(float(np.exp(log_p).sum()))
        place = np.rint((loss - shift) / self._step) if shift else np.floor(loss / self._step)
        part = np.zeros_like(x) if shift else _upper_share(loss - place * self._step, self._step)
        index = place.astype(np.int64)
        tilted = log_p + self._tilt * (shift + place * self._step)
        scale = float(tilted.max())
        tilted = np.exp(tilted - scale)
        masses = np.bincount(index % size, tilted * (1 - part), size)
        if not shift:
            masses += np.bincount((index + 1) % size, tilted * part * math.exp(self._tilt * self._step), size)
        total = float(masses.sum())
        return masses / total, scale + math.log(total)

    def _reach(self, sigma: float) -> int:
        """How far one measurement's noise is followed."""
        return math.ceil(self._cut * sigma) + 1

    def delta(self, epsilon: float) -> float:
        """An upper bound of the delta at which the measurements together are (epsilon, delta)-DP."""
        epsilon -= self._slack
        above = self._losses > epsilon
        losses = self._losses[above]
        terms = self._masses[above] * np.exp(self._log_scale - self._tilt * losses) * -np.expm1(epsilon - losses)
        return min(1.0, float(terms.sum()) * (1 + _RELATIVE) + self._lost)


def _upper_share(above: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """The part b of an atom that goes to the upper grid point: 1 - b + b exp(-step) = exp(-above)."""
    return np.clip(np.expm1(-above) / math.expm1(-step), 0.0, 1.0)
