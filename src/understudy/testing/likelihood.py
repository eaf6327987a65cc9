"""The exact log likelihood ratio of a run's answers between two tables that the auditor knows.

For tables D0 and D1 with counts x0 and x1, an answer y with Gaussian noise adds ((y - x0)^2 - (y - x1)^2) / (2 sigma^2)
to it, one with Laplace noise of scale b (|y - x0| - |y - x1|) / b, and a choice the difference of the log
probabilities of what was chosen. Questions may depend on earlier answers: given these, they are the same on both
tables, so the sum is the likelihood ratio of the whole run. By the lemma of Neyman and Pearson nothing computed from
the answers tells the tables apart better, if the noise is what is claimed. An audit uses only the order of these
numbers, which stays meaningful where the noise is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from understudy.accounting import Budget, Charge
from understudy.domain import Clique
from understudy.gate import PrivateTable, Selection
from understudy.gate.gradient import UNIT, sum_gradients
from understudy.gate.selection import BITS, indif, merge_codes
from understudy.measurement import Cell, Critic, Measurement
from understudy.quality import NoisyError
from understudy.source import Source
from understudy.source.protocol import ReadsCodes
from understudy.tabulate import Counts

_Table = NDArray[np.float64]
_ROUNDING = 1e-6


@dataclass
class LikelihoodRatio:
    """The log likelihood ratio of the answers so far.

    Attributes:
        value: its value; larger for runs on the second table.
        divergence: how far apart its means on the two tables are, if the noise is what is claimed; for Gaussian noise
            the square of mu.
        unpaid: the most by which an answer's divergence exceeded what its charges allow; 0 where none did.
    """

    value: float = 0.0
    divergence: float = 0.0
    unpaid: float = 0.0

    def add_noisy(self, answer: Any, counts: tuple[Any, Any], scale: float, noise: str) -> None:
        """Add an answer of exact values plus noise: Gaussian of sigma `scale`, or Laplace of this scale.

        >>> ratio = LikelihoodRatio()
        >>> ratio.add_noisy(7, (5, 6), 4.0, "gaussian")
        >>> ratio.value
        0.09375
        """
        y, x0, x1 = (np.asarray(one, np.float64) for one in (answer, *counts))
        if noise == "gaussian":
            self.value += float(((y - x0) ** 2 - (y - x1) ** 2).sum()) / (2 * scale**2)
            self.divergence += float(((x1 - x0) ** 2).sum()) / scale**2
            return
        self.value += float((np.abs(y - x0) - np.abs(y - x1)).sum()) / scale
        apart = np.abs(x1 - x0) / scale
        self.divergence += float((2 * (apart + np.expm1(-apart))).sum())

    def add_choice(self, place: int, scores: tuple[_Table, _Table], rate: float) -> None:
        """Add a choice by the exponential mechanism, whose log weights are `rate` times the scores.

        >>> ratio = LikelihoodRatio()
        >>> ratio.add_choice(1, (np.array([0.0, 0.0]), np.array([0.0, 2.0])), 0.287629 / 2)
        >>> round(ratio.value, 6)
        0.133509
        """
        log0, log1 = (_log_shares(rate * score) for score in scores)
        self.value += float(log1[place] - log0[place])
        self.divergence += float(((np.exp(log1) - np.exp(log0)) * (log1 - log0)).sum())

    def check_paid(self, divergence: float, charges: Iterable[Charge]) -> None:
        """Compare what an answer added to `divergence` with its charges: rho-zCDP allows 2 rho.

        The relative entropy of the answer between neighbouring tables, in either direction, is at most rho. This needs
        one run only: a choice that is not charged, or a sensitivity that is too small, shows wherever the answer
        depends on the target at all.

        >>> ratio = LikelihoodRatio(divergence=0.5)
        >>> ratio.check_paid(0.5, [])
        >>> ratio.unpaid
        0.5
        """
        allowed = 2 * float(sum(charge.rho for charge in charges))
        if divergence > allowed * (1 + _ROUNDING):
            self.unpaid = max(self.unpaid, divergence - allowed)


def _log_shares(weights: _Table) -> _Table:
    top = weights - weights.max()
    shares: _Table = top - math.log(float(np.exp(top).sum()))
    return shares


def laplace_scale(sigma: float) -> float:
    """Return the scale of the discrete Laplace with this sigma: sigma^2 = 2 q / (1 - q)^2, q = exp(-1 / scale)."""
    variance = sigma**2
    q = ((variance + 1) - math.sqrt(2 * variance + 1)) / variance
    return -1 / math.log(q)


@dataclass
class KnownPair:
    """Two neighbouring tables whose exact counts the auditor knows; each is counted once for each recoding."""

    absent: Source
    present: Source
    _known: dict[tuple[Any, ...], tuple[_Table, _Table]] = field(default_factory=dict)

    def counts(self, clique: Clique, maps: Mapping[str, NDArray[np.int64]]) -> tuple[_Table, _Table]:
        """Return the counts of a clique's cells on both tables, after merging codes."""
        used = {column: maps[column] for column in clique if column in maps}
        key = (clique, *((column, codes.tobytes()) for column, codes in used.items()))
        if key not in self._known:
            self._known[key] = self._count(self.absent, clique, used), self._count(self.present, clique, used)
        return self._known[key]

    @staticmethod
    def _count(source: Source, clique: Clique, maps: Mapping[str, NDArray[np.int64]]) -> _Table:
        counts: Counts = dict(source.counts([clique]))[clique]
        shape = source.domain.shape(clique)
        return merge_codes(counts, shape, [maps.get(column) for column in clique]).astype(np.float64)


class WatchedTable(PrivateTable):
    """A `PrivateTable` that adds up the log likelihood ratio of its answers between two known tables.

    **Privacy.** For audits, on made-up tables: the ratio is computed from exact counts.

    Attributes:
        ratio: the ratio so far.
        answers: the measurements so far.

    Args:
        source: one of the two tables.
        budget: as for `PrivateTable`.
        pair: both tables.
        plan: as for `PrivateTable`.
    """

    def __init__(
        self, source: Source, budget: Budget, *, pair: KnownPair, plan: Mapping[Clique, float] | None = None
    ) -> None:
        super().__init__(source, budget, plan=plan)
        self.pair, self.ratio, self._present = pair, LikelihoodRatio(), source is pair.present
        self.answers: list[Measurement] = []

    def count(self, clique: Clique) -> _Table:
        """Return the exact counts of a clique on this table."""
        return self._count_both(clique)[self._present]

    def _count_both(self, clique: Clique) -> tuple[_Table, _Table]:
        return self.pair.counts(clique, self.recoding.maps)

    @contextmanager
    def _check_payment(self) -> Iterator[None]:
        """Compare what an answer tells with what was charged for it."""
        known, charges = self.ratio.divergence, len(self.account.charges)
        yield
        self.ratio.check_paid(self.ratio.divergence - known, self.account.charges[charges:])

    def measure(self, cliques: Iterable[Clique], **given: Any) -> list[Measurement]:
        """Answer as the gate does, and add up the likelihood ratio."""
        with self._check_payment():
            answers = super().measure(cliques, **given)
            for one in answers:
                without, present = self._count_both(one.clique)
                exact = (without, present) if one.query is None else (one.query @ without, one.query @ present)
                scale = one.sigma if one.noise == "gaussian" else laplace_scale(one.sigma)
                self.ratio.add_noisy(one.values, exact, scale, one.noise)
        self.answers += answers
        return answers

    def select(self, candidates: Iterable[Clique], **given: Any) -> Selection:
        """Answer as the gate does, and add up the likelihood ratio."""
        wanted = list(candidates)
        with self._check_payment():
            answer = super().select(wanted, **given)
            far = [self._distances(clique, given.get("against")) for clique in wanted]
            weights, offsets = given.get("weights"), given.get("offsets")
            scores = [
                np.array(
                    [
                        (1.0 if weights is None else weights[clique])
                        * (one[table] - (0.0 if offsets is None else offsets[clique]))
                        for clique, one in zip(wanted, far, strict=True)
                    ]
                )
                for table in (0, 1)
            ]
            rate = answer.epsilon / (2 * answer.sensitivity)
            self.ratio.add_choice(wanted.index(answer.clique), (scores[0], scores[1]), rate)
        return answer

    def select_cells(
        self, cliques: Iterable[Clique], *, against: Mapping[Clique, Any], used: Iterable[Cell] = (), **given: Any
    ) -> list[Cell]:
        """Answer as the gate does, and add up the likelihood ratio."""
        wanted, gone = list(cliques), set(used)
        with self._check_payment():
            answer = super().select_cells(wanted, against=against, used=gone, **given)
            charge = self.account.charges[-1]
            cells = [Cell(clique, i) for clique in wanted for i in range(self.domain.cells(clique))]
            tables = [
                np.concatenate(
                    [np.abs(self._count_both(c)[one] - np.asarray(against[c], np.float64).ravel()) for c in wanted]
                )
                for one in (0, 1)
            ]
            for cell in answer:
                kept = np.array([other not in gone for other in cells])
                place = [other for other in cells if other not in gone].index(cell)
                rate = charge.scale / (2 * charge.sensitivity)
                self.ratio.add_choice(place, (tables[0][kept], tables[1][kept]), rate)
                gone.add(cell)
        return answer

    def dependence(self, pairs: Iterable[Clique], *, rho: float) -> dict[Clique, int]:
        """Answer as the gate does, and add up the likelihood ratio."""
        wanted = list(pairs)
        with self._check_payment():
            answers = super().dependence(wanted, rho=rho)
            charge = self.account.charges[-1]
            for clique, score in answers.items():
                self.ratio.add_noisy(score, self._distances(clique, None), charge.scale, charge.noise)
        return answers

    def distances(
        self, candidates: Iterable[Clique], *, against: Mapping[Clique, Any], rho: float
    ) -> dict[Clique, float]:
        """Answer as the gate does, and add up the likelihood ratio."""
        wanted = list(candidates)
        with self._check_payment():
            answers = super().distances(wanted, against=against, rho=rho)
            for clique, distance in answers.items():
                charge = self.account.charges[-1]
                exact = self._distances(clique, against)
                self.ratio.add_noisy(distance, exact, charge.scale / 2**BITS, charge.noise)
        return answers

    def gradient(self, critic: Critic, *, clip: float, rho: float) -> tuple[NDArray[np.float32], ...]:
        """Answer as the gate does, and add up the likelihood ratio."""
        with self._check_payment():
            answer = super().gradient(critic, clip=clip, rho=rho)
            values = np.rint(np.concatenate([array.reshape(-1) for array in answer]).astype(np.float64) * (UNIT / clip))
            exact = [self._gradients(source, critic, clip) for source in (self.pair.absent, self.pair.present)]
            self.ratio.add_noisy(values, (exact[0], exact[1]), self.account.charges[-1].scale, "gaussian")
        return answer

    def _gradients(self, source: Source, critic: Critic, clip: float) -> NDArray[np.int64]:
        rows = cast(ReadsCodes, source).codes()
        return sum_gradients(critic, clip, self.domain, self.recoding.maps, rows)

    def error(self, against: Mapping[Clique, Any], *, weights: Mapping[Clique, int], rho: float) -> NoisyError:
        """Answer as the gate does, and add up the likelihood ratio."""
        with self._check_payment():
            answer = super().error(against, weights=weights, rho=rho)
            far = {clique: self._distances(clique, against) for clique in weights}
            whole = sum(weights.values())
            exact = [sum(weights[c] * far[c][table] for c in far) / whole for table in (0, 1)]
            self.ratio.add_noisy(answer.rows, (exact[0], exact[1]), answer.scale, answer.noise)
        return answer

    def _distances(self, clique: Clique, against: Mapping[Clique, Any] | None) -> tuple[float, float]:
        """Return, for both tables, the L1 distance of the counts from a marginal, or the InDif score."""
        one, other = self._count_both(clique)
        if against is None:
            shape = self.domain[clique[0]], one.size // self.domain[clique[0]]
            return float(indif(one.astype(np.int64), shape)), float(indif(other.astype(np.int64), shape))
        given = np.asarray(against[clique], np.float64).reshape(-1)
        return float(np.abs(one - given).sum()), float(np.abs(other - given).sum())
