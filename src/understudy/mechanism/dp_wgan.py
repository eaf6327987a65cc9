"""`dp-wgan`: a generator network trained against a critic that learns from noisy gradients (UCLANESL's contest entry).

"Differential Privacy Synthetic Data Generation using WGANs" (Alzantot and Srivastava 2019). Differences from the entry
are explained in docs/decisions/dp-wgan.md; paper mode undoes what is a setting.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.gate import Critic, PrivateTable
from understudy.gate.gradient import SLOPE
from understudy.mechanism.aim import count_rows, measure_columns
from understudy.mechanism.base import Count, Footprint, Mechanism, NotNegative, Positive, one_way
from understudy.model.fit import Fit
from understudy.model.generate import re_express_all
from understudy.model.network import network_of
from understudy.model.relaxed import Adam, Floats, RelaxedModel, Targets, block_places
from understudy.progress import Progress, Step, silent

_MOST_WEIGHTS = 1 << 22  # of a critic; columns of very many codes get fewer hidden units


class DPWGAN(Mechanism):
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
        look: the largest part of the budget for a second measurement of columns whose noise is above `precise`.
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
    look: Annotated[float, Field(ge=0, lt=1)] = 0.2
    precise: Positive = 0.03
    threshold: NotNegative = 2.0

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """The entry's critic, clipping and steps; nothing is measured before, and the columns have no part in the loss.

        The number of rounds is ours: a round of the entry sees 640 rows, a round here sees all of them ten times.
        """
        entry = {"critic_steps": 10, "hidden": 1024, "clip": 1.0, "bound": 0.01, "critic_rate": 0.001}
        return entry | {"rounds": 20, "anchor": 0.0, "first": 0.0}

    def __post_init__(self) -> None:
        if not self.first + self.look <= 0.9:
            raise SettingError(f"{self.name}: first and look must not exceed 0.9 of the budget together")

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure the columns, then train critic and generator in turn."""
        table.require_gradients()
        declared, total = table.domain, table.rows_public
        raw, stages, table = measure_columns(
            table,
            one_way(declared),
            rho=rho,
            first=self.first,
            look=self.look,
            precise=self.precise,
            threshold=self.threshold,
            progress=progress,
        )
        raw, left = count_rows(table, raw, rho - math.fsum(rho * part for _, part in stages))
        columns = re_express_all(declared, raw, table.recoding)
        targets = Targets(table.domain, columns, total)
        network, rng = network_of(table.domain, columns, total=total).network, np.random.default_rng(0)
        critic = _first_critic(table.domain, self._width(table.domain), rng)
        optimiser = Adam(network.parameters, self.generator_rate)
        share = left / (self.rounds * self.critic_steps)
        for number in range(self.rounds):
            for _ in range(self.critic_steps):
                fake = draw_codes(table.domain, network.rows(), rng)
                theirs, norms = mean_gradients(critic, fake, len(table.domain))
                ours = table.gradient(critic, clip=self.clip or float(norms.max()) or 1.0, rho=share)
                steps = (self.critic_rate * (a / targets.total - b) for a, b in zip(ours, theirs, strict=True))
                moved = (np.clip(w + s, -self.bound, self.bound) for w, s in zip(critic.arrays, steps, strict=True))
                critic = Critic(*(array.astype(np.float32) for array in moved))

            def loss(rows: Floats, critic: Critic = critic) -> tuple[float, Floats]:
                score, slope = mean_score(critic, rows)
                apart, pull = targets.loss(rows)
                return self.anchor * apart - score, np.float32(self.anchor) * pull - slope

            optimiser.step(network.loss(loss)[1])
            progress(Step("train", (number + 1) / self.rounds, f"round {number + 1}"))
        return Fit(RelaxedModel(table.domain, targets.total, network.rows()), raw, table.recoding)

    def footprint(self, domain: Domain) -> Footprint:
        """The critic with its gradients in whole numbers, and the generated rows."""
        codes = sum(domain.values())
        weights = codes * self._width(domain)
        steps = self.rounds * self.critic_steps
        return Footprint(memory_bytes=64 * weights + 32_000 * codes + (256 << 20), disk_bytes=4 * weights * steps)

    def _width(self, domain: Domain) -> int:
        return max(1, min(self.hidden, _MOST_WEIGHTS // sum(domain.values())))


def _first_critic(domain: Domain, width: int, rng: np.random.Generator) -> Critic:
    """A critic with small random weights (the entry truncates them at two standard deviations)."""
    shapes = (sum(domain.values()), width), (width,), (width,)
    return Critic(*(rng.normal(0.0, 0.1, shape).clip(-0.2, 0.2).astype(np.float32) for shape in shapes))


def mean_score(critic: Critic, rows: Floats) -> tuple[float, Floats]:
    """The mean score of relaxed rows, and its derivative by them."""
    hidden = rows @ critic.lines + critic.bias
    slope = np.where(hidden > 0, np.float32(1), np.float32(SLOPE))
    score = float((slope * hidden @ critic.output).mean())
    return score, (slope * critic.output) @ critic.lines.T / np.float32(len(rows))


def mean_gradients(critic: Critic, rows: Floats, columns: int) -> tuple[tuple[Floats, ...], Floats]:
    """The mean of the derivatives of rows' scores by the critic's weights, and the norm of each row's."""
    hidden = rows @ critic.lines + critic.bias
    slope = np.where(hidden > 0, np.float32(1), np.float32(SLOPE))
    pull, reach = slope * critic.output, slope * hidden
    norms = np.sqrt((columns + 1) * np.square(pull).sum(axis=1) + np.square(reach).sum(axis=1))
    return (rows.T @ pull / np.float32(len(rows)), pull.mean(axis=0), reach.mean(axis=0)), norms


def draw_codes(domain: Domain, rows: Floats, rng: np.random.Generator) -> Floats:
    """Draw a code of each column from each relaxed row, as one-hot rows.

    >>> draw_codes(Domain({"a": 2, "b": 3}), np.array([[0, 1, 0, 0, 1]], np.float32), np.random.default_rng(0)).tolist()
    [[0.0, 1.0, 0.0, 0.0, 1.0]]
    """
    drawn = np.zeros_like(rows)
    for place in block_places(domain).values():
        sums = rows[:, place].cumsum(axis=1, dtype=np.float64)
        code = (sums <= rng.random(len(rows))[:, None] * sums[:, -1:]).sum(axis=1)
        drawn[np.arange(len(rows)), place.start + np.minimum(code, place.stop - place.start - 1)] = 1.0
    return drawn
