"""The workload error as one question to the gate: what it costs, and the answer from exact distances and noise.

The error is a sum of L1 distances, each of which one unit moves by at most the L1 sensitivity of a marginal. Asking for
the sum costs one number's noise. Noisy marginals would cost as much for a far worse answer: the L1 distance to them is
mostly that of their noise (docs/decisions/quality.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.privacy.accounting.charge import Charge, gaussian, laplace
from understudy.privacy.distances import BITS
from understudy.quality import Apart


def error_charge(weights: Mapping[Clique, int], marginal_l1: int, share: Fraction, *, pure: bool) -> Charge:
    """The charge for the noisy sum of weighted distances, in units of 2^-16 rows.

    Raises:
        SettingError: for weights that are not whole and positive.
    """
    if not weights:
        raise SettingError("error: give every clique a weight that is a whole number of at least 1")
    reach = marginal_l1 * sum(weights.values()) << BITS
    if pure:
        return laplace("quality", tuple(weights), reach, share=share)
    return gaussian("quality", tuple(weights), reach**2, share=share)


def apart(distances: Mapping[Clique, int], weights: Mapping[Clique, int], noise: int, charge: Charge) -> Apart:
    """The noisy weighted mean, in rows, of distances in units of 2^-16: only their sum becomes a float."""
    exact = sum(weights[clique] * value for clique, value in distances.items())
    unit = sum(weights.values()) << BITS
    value = float(Fraction(exact + noise, unit))
    return Apart(value, charge.scale / unit, "gaussian" if charge.noise == "gaussian" else "laplace")
