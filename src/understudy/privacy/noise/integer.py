"""Integer noise, exact and fast: the discrete Gaussian and the discrete Laplace law.

Small parameters invert a table of the distribution function (`tables`), large ones use rejection (`rejection`). Both
are exact: no draw is rounded, truncated or approximated. Which one is used depends on the parameter and the number of
draws alone.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.errors import SettingError
from understudy.privacy.noise.randomness import stream
from understudy.privacy.noise.rejection import gaussian_by_rejection, laplace_by_rejection
from understudy.privacy.noise.tables import Gaussian, Laplace, table

Parameter: TypeAlias = float | int | Fraction
Shape: TypeAlias = int | tuple[int, ...]

_LARGEST = 1 << 50
_SMALL_TABLE = 1 << 8  # entries that are cheap to compute for a single draw
_LARGE_TABLE = 1 << 15  # entries beyond which rejection is about as fast, and needs no building


def discrete_gaussian(sigma: Parameter, size: Shape) -> NDArray[np.int64]:
    """Independent draws of the discrete Gaussian: x with probability proportional to exp(-x^2 / (2 sigma^2)).

    **Guarantees.** The law is exact for the rational number that `sigma` is (a float stands for its binary value), the
    bits come from `understudy.privacy.noise.randomness` and cannot be seeded. Added to an integer query of L2
    sensitivity D, the noise is D^2 / (2 sigma^2)-zCDP.

    Args:
        sigma: the law's parameter, positive and at most 2^50; nearly its standard deviation unless below 1.
        size: how many draws, or the shape of the array.

    Raises:
        SettingError: if sigma is not a positive, finite number of at most 2^50, or size is negative.
    """
    exact, count = _parameter("sigma", sigma), _count(size)
    if _tabulate(18 * exact, count):
        draws = table(Gaussian(exact)).draw(count, stream())
    else:
        draws = gaussian_by_rejection(exact, count, stream())
    return draws.reshape(size)


def discrete_laplace(scale: Parameter, size: Shape) -> NDArray[np.int64]:
    """Independent draws of the discrete Laplace law: x with probability proportional to exp(-|x| / scale).

    **Guarantees.** Exact and unseeded like `discrete_gaussian`. Added to an integer query of L1 sensitivity D, the
    noise is pure (D / scale)-DP.

    Args:
        scale: the law's parameter, positive and at most 2^50.
        size: how many draws, or the shape of the array.

    Raises:
        SettingError: if scale is not a positive, finite number of at most 2^50, or size is negative.
    """
    exact, count = _parameter("scale", scale), _count(size)
    if _tabulate(88 * exact, count):
        draws = table(Laplace(exact)).draw(count, stream())
    else:
        draws = laplace_by_rejection(exact, count, stream())
    return draws.reshape(size)


class Noise(Protocol):
    """A source of integer noise with the two laws that privacy accounting knows."""

    def gaussian(self, sigma: Parameter, size: Shape) -> NDArray[np.int64]:
        """Draws of the discrete Gaussian of parameter `sigma`."""
        ...

    def laplace(self, scale: Parameter, size: Shape) -> NDArray[np.int64]:
        """Draws of the discrete Laplace law of parameter `scale`."""
        ...


class _Exact:
    """Understudy's own samplers."""

    def gaussian(self, sigma: Parameter, size: Shape) -> NDArray[np.int64]:
        return discrete_gaussian(sigma, size)

    def laplace(self, scale: Parameter, size: Shape) -> NDArray[np.int64]:
        return discrete_laplace(scale, size)


class _OpenDP:
    """OpenDP's samplers of the same laws, for whoever prefers their vetted code to speed. They cannot be seeded."""

    def gaussian(self, sigma: Parameter, size: Shape) -> NDArray[np.int64]:
        return self._draw("make_gaussian", "l2_distance", _as_float("sigma", sigma), size)

    def laplace(self, scale: Parameter, size: Shape) -> NDArray[np.int64]:
        return self._draw("make_laplace", "l1_distance", _as_float("scale", scale), size)

    def _draw(self, maker: str, metric: str, parameter: float, size: Shape) -> NDArray[np.int64]:
        count = _count(size)
        try:
            import opendp.prelude as dp
        except ImportError:
            raise SettingError('noise="opendp" needs OpenDP: pip install "understudy[opendp]"') from None
        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T="i64")), getattr(dp, metric)(T="i64")
        release = getattr(dp.m, maker)(*space, scale=parameter)
        return np.array(release([0] * count), dtype=np.int64).reshape(size)


NOISES: dict[str, Noise] = {"exact": _Exact(), "opendp": _OpenDP()}
"""The choices of the setting ``noise``. Both are integer and exact; there is no continuous one."""


def _tabulate(entries: Fraction, count: int) -> bool:
    """Whether a table of about `entries` entries costs less than `count` draws by rejection."""
    return entries <= _SMALL_TABLE or (entries <= _LARGE_TABLE and 8 * entries <= count)


def _parameter(name: str, value: Parameter) -> Fraction:
    if not isinstance(value, int | Fraction) and not math.isfinite(value):
        raise SettingError(f"{name} must be a finite number, not {value}")
    exact = Fraction(value if isinstance(value, int | Fraction) else float(value))
    if not 0 < exact <= _LARGEST:
        raise SettingError(f"{name} must be positive and at most 2^50, not {value}: larger noise would not fit 64 bits")
    return exact


def _as_float(name: str, value: Parameter) -> float:
    """The parameter for a library that takes floats, never smaller than asked for."""
    exact = _parameter(name, value)
    number = float(exact)
    return number if Fraction(number) >= exact else math.nextafter(number, math.inf)


def _count(size: Shape) -> int:
    shape = size if isinstance(size, tuple) else (size,)
    if any(length < 0 for length in shape):
        raise SettingError(f"size must not be negative, not {size}")
    return math.prod(shape)


def noise_named(noise: str | Noise) -> Noise:
    """A sampler by its name, or the given one.

    Raises:
        SettingError: listing the names.
    """
    if not isinstance(noise, str):
        return noise
    if noise not in NOISES:
        raise SettingError(f"noise: {noise!r} is unknown; the choices are {', '.join(NOISES)}")
    return NOISES[noise]
