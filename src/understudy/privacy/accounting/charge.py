"""One payment as data, and what each kind of noise costs: sigma rounded up, epsilon rounded down, the cost exact."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.privacy.exact import float_above, float_below, fraction_of, sqrt_above, sqrt_below

What = Literal["measure", "select", "dependence", "type", "bounds", "bins", "values", "quality"]
PURCHASES: tuple[What, ...] = ("type", "bounds", "bins", "values")
"""The charges that bought facts for the schema, before the mechanism began."""

LARGEST_SCALE = 1 << 50
"""The most noise that fits 64-bit integers; a share so small that it needs more is refused before it is paid."""


@dataclass(frozen=True)
class Charge:
    """One payment: what it bought and what it costs, all of it public.

    Attributes:
        what: the call on the gate.
        about: the cliques it was about; none of a selection.
        noise: the law of the noise.
        sensitivity: how far one unit moves the answer, in the norm the noise needs, as a float for reading.
        scale: sigma of a Gaussian, scale of a Laplace, epsilon of an exponential mechanism.
        rho: the exact cost in zCDP.
        epsilon: the exact cost in pure DP, or None where the noise has none.
        delta: the exact cost in delta, of purchases that have one.
        threshold: for values: the noisy count from which on a value is told.
        candidates: of a selection: how many there were, and the SHA-256 of their list. A spanning tree of 300 columns
            chooses 299 times among up to 44,850 pairs; their names would be most of the release.
    """

    what: What
    about: tuple[Clique, ...]
    noise: Literal["gaussian", "laplace", "exponential"]
    sensitivity: float
    scale: float
    rho: Fraction
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    threshold: int | None = None
    candidates: tuple[int, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, fractions as text, so that it survives JSON exactly."""
        data: dict[str, Any] = {
            "what": self.what,
            "about": [list(clique) for clique in self.about],
            "noise": self.noise,
            "sensitivity": self.sensitivity,
            "scale": self.scale,
            "rho": str(self.rho),
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "delta": str(self.delta),
        }
        if self.threshold is not None:
            data["threshold"] = self.threshold
        if self.candidates is not None:
            data["candidates"] = list(self.candidates)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Charge:
        """What `to_dict` wrote."""
        return cls(
            what=data["what"],
            about=tuple(tuple(clique) for clique in data["about"]),
            noise=data["noise"],
            sensitivity=float(data["sensitivity"]),
            scale=float(data["scale"]),
            rho=fraction_of(data["rho"]),
            epsilon=None if data["epsilon"] is None else fraction_of(data["epsilon"]),
            delta=fraction_of(data["delta"]),
            threshold=None if data.get("threshold") is None else int(data["threshold"]),
            candidates=None if data.get("candidates") is None else _listed(*data["candidates"]),
        )


def gaussian(what: What, about: tuple[Clique, ...], squared: int, *, share: Fraction) -> Charge:
    """Discrete Gaussian noise for at most `share` of rho, on an answer of L2 sensitivity sqrt(`squared`).

    **Privacy.** The discrete Gaussian of parameter sigma on integers is D^2 / (2 sigma^2)-zCDP, like the continuous one
    (Canonne, Kamath and Steinke 2020, Theorem 4).
    """
    return planned(what, about, squared, sigma=sqrt_above(squared / (2 * share)))


def planned(what: What, about: tuple[Clique, ...], squared: int, *, sigma: float) -> Charge:
    """Discrete Gaussian noise whose sigma was fixed in advance."""
    rho = squared / (2 * Fraction(_fitting(sigma)) ** 2)
    return Charge(what, about, "gaussian", math.sqrt(squared), sigma, rho)


def laplace(what: What, about: tuple[Clique, ...], sensitivity: int, *, share: Fraction) -> Charge:
    """Discrete Laplace noise for at most `share` of epsilon, on an answer of this L1 sensitivity.

    **Privacy.** sensitivity / scale in pure DP; epsilon-DP implies epsilon^2 / 2-zCDP.
    """
    scale = _fitting(float_above(sensitivity / share))
    epsilon = sensitivity / Fraction(scale)
    return Charge(what, about, "laplace", float(sensitivity), scale, epsilon**2 / 2, epsilon)


def laplace_sd(scale: float) -> float:
    """Standard deviation of the discrete Laplace, whose variance is 2 q / (1 - q)^2 with q = exp(-1/scale)."""
    if math.isinf(scale):
        return math.inf
    q = math.exp(-1 / scale)
    return max(math.sqrt(2 * q) / -math.expm1(-1 / scale), 1e-9)


def exponential(candidates: Sequence[Clique], sensitivity: Fraction, *, share: Fraction, pure: bool) -> Charge:
    """A choice by an exponential mechanism with weights exp(epsilon q / (2 sensitivity)), for at most `share`.

    **Privacy.** epsilon-DP, and by its bounded range epsilon^2 / 8-zCDP (Cesar and Rogers 2021).
    """
    epsilon = float_below(share) if pure else sqrt_below(8 * share)
    exact = Fraction(epsilon)
    listed = len(candidates), hashlib.sha256(json.dumps(candidates).encode()).hexdigest()
    return Charge("select", (), "exponential", float(sensitivity), epsilon, exact**2 / 8, exact, candidates=listed)


def _listed(number: int, digest: str) -> tuple[int, str]:
    return int(number), str(digest)


def _fitting(scale: float) -> float:
    if not scale <= LARGEST_SCALE:
        raise SettingError("this share of the budget is so small that its noise would drown everything; give more")
    return scale
