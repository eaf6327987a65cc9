"""What callers ask the gate, checked before anything is paid: public arguments and facts of the schema alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.privacy.distances import batches, dyadic
from understudy.privacy.scores import FixedMarginals

LARGEST_TABLE = 1 << 28
"""A noisy table covers every cell of its clique; one of more cells than this (2 GiB) is refused before it is paid."""

_LARGEST_INDEX = (1 << 63) - 1
"""Before codes are merged, a cell has a number of 64 bits; a table of more cells is refused before it is paid."""


def asked_cliques(
    cliques: Iterable[Clique], domain: Domain, counted: Domain, known: dict[Clique, tuple[Clique, frozenset[str]]]
) -> list[Clique]:
    """The cliques as tuples, each set of columns once.

    Args:
        cliques: what was given.
        domain: the columns after merging codes.
        counted: the same before, as the source counts them.
        known: cliques that were found right before, added to: a mechanism asks about the same ones again and again.

    Raises:
        SettingError, SchemaError: for what is no list of cliques, unknown columns, repeats, and tables too large.
    """
    try:
        given = list(cliques)
    except TypeError:
        raise SettingError("give a list of cliques, such as [('sex', 'age')]") from None
    try:
        found = [known[clique] for clique in given]
    except (KeyError, TypeError):
        found = [(clique, frozenset(clique)) for clique in map(domain.check, given)]
    if len({columns for _, columns in found}) != len(found):
        raise SettingError("the same set of columns is named twice in one call; name it once")
    for clique, columns in found:
        if clique not in known:
            if too_large := _beyond(clique, domain, counted):
                raise SettingError(
                    f"the table of {clique} has {too_large[0]} cells, more than {too_large[1]}: use fewer columns, or "
                    "coarser ones; nothing was spent"
                )
            known[clique] = clique, columns
    return [clique for clique, _ in found]


def can_count(clique: Clique, domain: Domain, counted: Domain) -> bool:
    """Whether the table of a clique is small enough, after merging codes and before."""
    return _beyond(clique, domain, counted) is None


def _beyond(clique: Clique, domain: Domain, counted: Domain) -> tuple[int, int] | None:
    """How many cells a table that is too large has, and how many it may have."""
    sizes = (domain.cells(clique), LARGEST_TABLE), (counted.cells(clique), _LARGEST_INDEX)
    return next((size for size in sizes if size[0] > size[1]), None)


def asked_marginals(
    cliques: Sequence[Clique], against: Mapping[Clique, ArrayLike], domain: Domain
) -> dict[Clique, Callable[[], NDArray[np.int64]]]:
    """How to get each public marginal in whole units. All are checked now; fixed ones are not all held at once.

    Raises:
        SettingError: for a clique that has none, and one that does not fit its clique.
    """
    for clique in cliques:
        if not isinstance(against, Mapping) or clique not in against:
            raise SettingError(f"against: there is no marginal of {clique} to compare with; give one per candidate")

    def made(several: Sequence[Clique]) -> list[NDArray[np.int64]]:
        return dyadic([(clique, domain.cells(clique), against[clique]) for clique in several])

    given: dict[Clique, Callable[[], NDArray[np.int64]]] = {}
    for batch in batches(cliques, domain.cells):
        for clique, table in zip(batch, made(batch), strict=True):
            again = partial(lambda one: made([one])[0], clique)
            given[clique] = again if isinstance(against, FixedMarginals) else partial(np.asarray, table)
    return given
