"""Draws per second of the discrete Gaussian: ours, OpenDP's and a plain numpy table, in one process on one core.

Run: python benchmarks/noise.py [sigma ...]

The numpy table is the obvious way to be fast and is not exact: a rounded distribution function, inverted with the 53
bits of a pseudo-random generator that can be seeded. Wanted: at least 10 million exact draws per second at sigma 10.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from understudy.errors import SettingError
from understudy.gate.noise import NOISES, discrete_gaussian, table

WANTED = 10e6


def rate(draw: Callable[[int], object], size: int, repeats: int = 5) -> float:
    """Draws per second: the median of a few runs after one to warm up."""
    draw(size)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        draw(size)
        seconds.append(time.perf_counter() - start)
    return size / sorted(seconds)[repeats // 2]


def numpy_table(sigma: float) -> Callable[[int], object]:
    reach = int(10 * sigma) + 10
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    cdf = np.cumsum(weights) / weights.sum()
    rng = np.random.default_rng(0)
    return lambda size: np.searchsorted(cdf, rng.random(size)) - reach


def first_call(sigma: float) -> float:
    """Milliseconds for 3,000 draws when nothing is cached: what one measurement of a mechanism waits for."""
    table.cache_clear()
    start = time.perf_counter()
    discrete_gaussian(sigma, 3000)
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    sigmas = [float(word) for word in sys.argv[1:]] or [0.65, 10.0, 100.0, 1000.0, 1e6]
    print("   sigma  ours M/s  numpy M/s  OpenDP M/s  ours/numpy  ours/OpenDP  cold ms")
    for sigma in sigmas:
        ours = rate(lambda n, s=sigma: discrete_gaussian(s, n), 2_000_000)
        plain = rate(numpy_table(sigma), 2_000_000) if sigma <= 1e4 else float("nan")
        try:
            opendp = rate(lambda n, s=sigma: NOISES["opendp"].gaussian(s, n), 10_000, 3)
        except SettingError:
            opendp = float("nan")
        cold = first_call(sigma)
        print(
            f"{sigma:>8g} {ours / 1e6:>9.1f} {plain / 1e6:>10.1f} {opendp / 1e6:>11.3f}"
            f" {ours / plain:>11.1f} {ours / opendp:>12.0f} {cold:>8.2f}"
        )
        if sigma == 10.0:
            print(f"         sigma 10: {ours / WANTED:.1f} x the 10 million draws per second wanted")


if __name__ == "__main__":
    main()
