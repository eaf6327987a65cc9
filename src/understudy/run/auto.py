"""`auto`: the mechanism of a run that names none. The choice and its limits are explained in docs/decisions/auto.md."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from itertools import combinations
from statistics import median

from understudy.accounting import Budget, Neighbours
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.mechanism.registry import CHOICES, MECHANISMS, setting_names

_MOST_BYTES = 4 << 30  # of memory, for comparing all pairs of columns


def choose_mechanism(
    domain: Domain,
    budget: Budget,
    neighbours: Neighbours,
    *,
    rows: int | None = None,
    complete: bool = True,
    settings: Collection[str] = (),
) -> tuple[str, str]:
    """Return the name of the mechanism to use, and the reason in a few words.

    **Privacy.** The choice follows from the schema, the budget, the settings and a declared number of rows; it reads no
    row.

    Args:
        domain: the columns.
        budget: what the run may spend.
        neighbours: the neighbour relation, which determines the noise.
        rows: the declared number of rows, or None.
        complete: whether the domain is final; False if discovery will add codes to it.
        settings: the names of settings that the mechanism must have.

    Raises:
        SettingError: if none of the choices has these settings.
    """
    able = [name for name in CHOICES if set(settings) <= {*setting_names(MECHANISMS[name])}]
    if not able:
        raise SettingError(
            f"settings {', '.join(settings)}: name the mechanism that has them (`understudy mechanisms` lists settings)"
        )
    sizes = [size for size in domain.values() if size > 1]
    if complete and "independent" in able:
        if len(sizes) < 2:
            return "independent", "fewer than two columns have more than one value"
        if rows is not None and _pair_noise(sizes, budget, neighbours) > rows:
            return "independent", "with this budget and number of rows, a two-way marginal would be all noise"
    if able[0] != "adaptive":
        return able[0], f"it has the settings {', '.join(settings)}"
    if "mst" in able and MECHANISMS["adaptive"]().footprint(domain).memory_bytes > _MOST_BYTES:
        return "mst", f"{len(domain)} columns have too many pairs for adaptive"
    return "adaptive", "the most accurate for most tables"


def _pair_noise(sizes: Iterable[int], budget: Budget, neighbours: Neighbours) -> float:
    """Return the expected L1 noise of the median two-way marginal, measured with the whole budget."""
    cells = median(one * two for one, two in combinations(sizes, 2))
    if budget.pure:
        return cells * neighbours.marginal_l1 / float(budget.capacity)
    return cells * math.sqrt(neighbours.marginal_l2_squared / (math.pi * float(budget.capacity)))
