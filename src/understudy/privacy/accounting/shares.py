"""How one call's share of the budget is divided among cliques: public numbers only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from numbers import Real

from understudy.domain import Clique
from understudy.errors import SettingError


def shares(
    cliques: Sequence[Clique], weights: Mapping[Clique, float] | None, share: Fraction, *, squared: bool
) -> dict[Clique, Fraction]:
    """Each clique's part, exact: in proportion to its weight, or to the square of it.

    Raises:
        SettingError: for a weight that is missing or not positive.
    """
    given = [1.0] * len(cliques) if weights is None else numbers("weight", cliques, weights)
    if min(given) <= 0:
        raise SettingError("measure: every clique needs a positive weight")
    weight = {clique: Fraction(number) for clique, number in zip(cliques, given, strict=True)}
    power = {clique: value**2 if squared else value for clique, value in weight.items()}
    total = sum(power.values(), Fraction(0))
    return {clique: share * value / total for clique, value in power.items()}


def numbers(what: str, cliques: Sequence[Clique], given: Mapping[Clique, float]) -> list[float]:
    """One public number per clique.

    Raises:
        SettingError: naming the clique that has none, or one that is not finite.
    """
    if not isinstance(given, Mapping):
        raise SettingError(f"give a {what} by clique, such as {{('sex', 'age'): 2}}")
    values = [given.get(clique) for clique in cliques]
    found = [value if type(value) is float else _float(value) for value in values]
    for clique, number in zip(cliques, found, strict=True):
        if not math.isfinite(number):
            raise SettingError(f"{clique} needs a finite {what}; give one for every clique")
    return found


def _float(value: object) -> float:
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:  # a whole number beyond all floats
        return math.inf
