"""`gem`: a generator network trained on marginals that are chosen one by one (Liu et al. 2021, "Iterative Methods").

The variant that the AIM paper compares with: a query is a whole marginal. Where it differs from the paper, and why, is
in docs/decisions/gem.md; paper mode undoes what is a setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.mechanism.base import Count
from understudy.mechanism.rap import RAP
from understudy.model.network import NetworkModel, network_of
from understudy.model.relaxed import RelaxedModel


class GEM(RAP):
    """Choose the marginal that a generator network answers worst, measure it, train the network; repeat.

    It is RAP with a network: relaxed rows are made of fixed noise by two residual blocks, and the network is trained on
    all measurements in each round.

    **Privacy.** Every answer comes from the gate, which is asked to `measure` and to `select` only. The noise that the
    network starts from is public and fixed; training is post-processing. The shares add up to `rho`.

    Attributes:
        workload: which marginals matter: `all-3way`, `target:COLUMN`, `skewed:SEED` or a YAML file.
        rounds: how many rounds (T in the paper).
        batch: how many marginals each round chooses and measures; 1 in the paper.
        measured: the part of each round's budget that goes to measuring; the rest chooses. (1 - a)^2 / (a^2 + (1 -
            a)^2) for the paper's a.
        first: the part of the budget for a first look at every column; 0 for none, and then no codes are merged.
        look: the largest part of the budget for a second look at columns whose noise is still above `precise`.
        precise: the noise on a column, as a share of the rows, that is small enough; more for columns of few codes.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges none.
        max_cells: cliques of more cells are no candidates.
    """

    name = "gem"
    paper = "Liu, Vietri and Wu 2021, Iterative Methods for Private Synthetic Data"
    when = "To compare with: a generator network."
    generator = "gem"

    rounds: Count = 30
    batch: Count = 1

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Nothing is measured before the first round, half of each round chooses (a = 0.5)."""
        return {"first": 0.0, "measured": 0.5}

    def project(
        self, domain: Domain, measurements: Sequence[Measurement], total: float | None, before: RelaxedModel | None
    ) -> RelaxedModel:
        """Train the network on all measurements so far, going on from the round before."""
        start = before if isinstance(before, NetworkModel) else None
        return network_of(domain, measurements, total=total, start=start)
