"""`dp-wgan`: a generator network trained against a critic that learns from noisy gradients (UCLANESL's contest entry).

"Differential Privacy Synthetic Data Generation using WGANs" (Alzantot and Srivastava 2019). Differences from the entry
are explained in docs/decisions/dp-wgan.md; paper mode undoes what is a setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from understudy.domain import Domain
from understudy.gate import PrivateTable
from understudy.measurement import Critic
from understudy.mechanism.base import Count, Footprint, NotNegative, Positive, one_way
from understudy.mechanism.columns_first import ColumnsFirst, measure_rows
from understudy.model.fit import Fit
from understudy.model.generate import re_express_all
from understudy.model.network import AdversarialNetwork, mean_gradients, network_bytes
from understudy.model.relaxed import Floats
from understudy.progress import Progress, Step, silent

_MOST_WEIGHTS = 1 << 22  # of a critic; columns of very many codes get fewer hidden units


class DPWGAN(ColumnsFirst):
    """Train a critic on noisy gradients of all rows, and a generator network against the critic; repeat.

    The critic learns to give real rows a higher score than generated ones, with one hidden layer and limited weights;
    the generator learns to make rows with a high score. Only the critic's gradients are computed from real rows.

    **Privacy.** Questions to the gate: the columns, and in each of `rounds` times `critic_steps` steps one noisy sum of
    clipped gradients over all rows, with equal shares of the rest of `rho`. The generator, its rows and the norm at
    which gradients are clipped come from earlier answers and fixed seeds.

    Attributes:
        rounds: the number of steps of the generator.
        critic_steps: the number of steps of the critic before each of them.
        hidden: the number of hidden units of the critic.
        clip: the norm at which the gradient of a row is clipped; by default the largest norm among generated rows.
        bound: the largest weight of the critic, up or down.
        critic_rate: the step of the critic's gradient ascent.
        generator_rate: the step of the generator's optimiser (Adam).
        anchor: the weight of the measured columns in the loss of the generator; 0 for the critic alone.
        first: the part of the budget for a first measurement of every column; 0 for none, and then no codes are merged.
        second: the largest part of the budget for a second measurement of columns whose noise is above `precise`.
        precise: the noise of a column, as a share of the rows, below which it is not measured again.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges none.
    """

    name = "dp-wgan"
    paper = "Alzantot and Srivastava 2019, Differential Privacy Synthetic Data Generation using WGANs"
    when = "To compare with: a generative adversarial network, trained on noisy gradients."
    pure = False
    generator = "gem"

    rounds: Count = 200
    critic_steps: Count = 3
    hidden: Annotated[int, Field(ge=1, le=1024)] = 32
    clip: Positive | None = None
    bound: Positive = 0.1
    critic_rate: Positive = 1.0
    generator_rate: Positive = 0.001
    anchor: NotNegative = 30.0
    first: Annotated[float, Field(ge=0, lt=1)] = 0.1
    second: Annotated[float, Field(ge=0, lt=1)] = 0.2

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the entry's critic, clipping and steps; nothing is measured first, and the loss is the critic's alone.

        The number of rounds is ours: a round of the entry sees 640 rows, a round here sees all of them ten times.
        """
        entry = {"critic_steps": 10, "hidden": 1024, "clip": 1.0, "bound": 0.01, "critic_rate": 0.001}
        return entry | {"rounds": 20, "anchor": 0.0, "first": 0.0}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure the columns, then train critic and generator in turn."""
        table.require_gradients()
        declared, total = table.domain, table.rows_public
        raw, _, left, table = self.measure_columns(table, one_way(declared), rho=rho, progress=progress)
        raw, left = measure_rows(table, raw, left)
        columns, width = re_express_all(declared, raw, table.recoding), self._width(table.domain)
        network = AdversarialNetwork(table.domain, columns, total=total, rate=self.generator_rate, anchor=self.anchor)
        critic = network.first_critic(width)
        share = left / (self.rounds * self.critic_steps)
        for number in range(self.rounds):
            for _ in range(self.critic_steps):
                generated, norms = mean_gradients(critic, network.draw(), len(table.domain), self.clip)
                clip = self.clip or float(norms.max()) or 1.0
                real = table.gradient(critic, clip=clip, rho=share)
                critic = self._move(critic, [a / network.total - b for a, b in zip(real, generated, strict=True)])
            network.step(critic)
            progress(Step("train", (number + 1) / self.rounds, f"round {number + 1}"))
        return Fit(network.model(), raw, table.recoding)

    def _move(self, critic: Critic, gradients: Sequence[Floats]) -> Critic:
        """Take one step of gradient ascent on the difference of the mean scores of real and generated rows."""
        moved = (w + np.float32(self.critic_rate) * g for w, g in zip(critic.arrays, gradients, strict=True))
        return Critic(*(np.clip(array, -self.bound, self.bound).astype(np.float32) for array in moved))

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of the critic, of its gradients in whole numbers and of the generated rows."""
        codes = sum(domain.values())
        weights = codes * self._width(domain)
        steps = self.rounds * self.critic_steps
        memory = 64 * weights + 2 * network_bytes(domain)
        return Footprint(memory_bytes=memory + (64 << 20), disk_bytes=4 * weights * steps)

    def _width(self, domain: Domain) -> int:
        return max(1, min(self.hidden, _MOST_WEIGHTS // sum(domain.values())))
