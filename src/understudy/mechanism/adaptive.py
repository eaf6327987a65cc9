"""What mechanisms that choose and measure in rounds share: candidates, expected noise, and the record for bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.gate import Selection
from understudy.model import GraphicalModel, JunctionTree


def within(
    domain: Domain, weights: Mapping[Clique, float], measured: Iterable[Clique], limit_mib: float
) -> dict[Clique, float]:
    """Candidates whose junction tree, together with what was measured, stays within the limit.

    Those that make the tree no larger than it is are always among them; where none fits, the smallest are taken: there
    must be something to choose from. In a small domain there is nothing to search:
    a tree has at most as many cliques as there are columns, none larger than all columns together.
    """
    if len(domain) * domain.cells() * 8 / 2**20 <= limit_mib:
        return dict(weights)
    tree = JunctionTree.of(domain, measured)
    enough = max(limit_mib, tree.size_mib)
    sizes = tree.size_mib_with(list(weights), enough_mib=enough)
    small = sizes <= max(enough, sizes.min())
    return {clique: weight for (clique, weight), fits in zip(weights.items(), small, strict=True) if fits}


class RoundLog:
    """The record of a run that later error bounds need: plain data, one mapping a stage.

    A marginal that was never measured is bounded by the last selection that preferred another one (Theorem 4). That
    needs the model before that round, so models are kept as long as some clique was last a candidate in their round.

    **Privacy.** It holds noisy answers, what was asked, and models made of earlier answers: all of it is released.

    Args:
        weights: all cliques that can be candidates.
        stages: how many measurements were made before the first round, call by call, and their shares of the budget.
        keep: whether to keep models; without them marginals that were not measured have no bound.
    """

    def __init__(
        self, weights: Mapping[Clique, float], stages: Iterable[tuple[int, float]] = (), *, keep: bool = True
    ) -> None:
        self._places = {clique: i for i, clique in enumerate(weights)}
        self._weights = np.array(list(weights.values()))
        self._keep = keep
        self._entries: list[dict[str, Any]] = [{"measured": count, "share": share} for count, share in stages]
        self._last: dict[int, int] = {}

    @property
    def rounds(self) -> int:
        """How many selections were made."""
        return sum("chosen" in entry for entry in self._entries)

    def add_round(
        self,
        selection: Selection,
        *,
        candidates: Iterable[Clique],
        offsets: Mapping[Clique, float],
        before: GraphicalModel,
        share: float,
    ) -> None:
        """Add a round: a selection, and one measurement of the chosen clique after it."""
        names = list(candidates)
        places = np.array([self._places[clique] for clique in names], np.int32)
        entry = {
            "measured": 1,
            "share": share,
            "chosen": list(selection.clique),
            "epsilon": selection.epsilon,
            "sensitivity": selection.sensitivity,
            "candidates": places,
            "offsets": np.array([offsets[clique] for clique in names]),
        }
        if self._keep:
            self._last |= dict.fromkeys(places.tolist(), len(self._entries))
            entry |= {"kind": before.kind, "model": before.to_arrays()}
        self._entries.append(entry)
        self._forget()

    def entries(self, measured: Sequence[Clique]) -> list[dict[str, Any]]:
        """The record, without models that no unmeasured clique needs."""
        sets = [set(clique) for clique in measured]
        for clique, place in self._places.items():
            if any(set(clique) <= mine for mine in sets):
                self._last.pop(place, None)
        self._forget()
        for number, entry in enumerate(self._entries):
            if "model" in entry:
                entry["last"] = np.array(sorted(p for p, at in self._last.items() if at == number), np.int32)
        first = {"cliques": [list(clique) for clique in self._places], "weights": self._weights}
        return [{**first, **entry} if number == 0 else entry for number, entry in enumerate(self._entries)]

    def _forget(self) -> None:
        needed = set(self._last.values())
        for number, entry in enumerate(self._entries):
            if "model" in entry and number not in needed:
                del entry["model"], entry["kind"]


def moved(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """The L1 distance between two tables."""
    return float(np.abs(after - before).sum())
