"""A generator network that is trained against a critic (a Wasserstein GAN), without the half that sees real rows.

The generator is the network of `network.py`; a `Critic` scores rows by one hidden layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from understudy.domain import Domain
from understudy.measurement import SLOPE, Critic, Measurement
from understudy.model.network import network_of
from understudy.model.relaxed import Adam, Floats, RelaxedModel, Targets, block_places


class AdversarialNetwork:
    """A generator network that starts from measured columns and learns to make rows that a critic gives a high score.

    **Privacy.** Post-processing of measurements and critics. Seeds are fixed: the same critics give the same rows.

    Args:
        domain: the columns.
        columns: measurements of columns; a column without one is uniform.
        total: the number of rows if public; otherwise that of the measurements.
        rate: the step of Adam.
        anchor: the weight of the distance from the measured columns in the loss; 0 for the critic's score alone.
    """

    def __init__(
        self, domain: Domain, columns: Sequence[Measurement], *, total: float | None, rate: float, anchor: float
    ) -> None:
        self._domain, self._anchor = domain, anchor
        self._targets = Targets(domain, columns, total)
        self._network = network_of(domain, columns, total=total).network
        self._optimiser = Adam(self._network.parameters, rate)
        self._rng = np.random.default_rng(0)
        self.total = self._targets.total

    def first_critic(self, width: int) -> Critic:
        """Return a critic with small random weights, truncated at two standard deviations."""
        shapes = (sum(self._domain.values()), width), (width,), (width,)
        return Critic(*(self._rng.normal(0.0, 0.1, shape).clip(-0.2, 0.2).astype(np.float32) for shape in shapes))

    def draw(self) -> Floats:
        """Draw a code of each column from each generated row, as one-hot rows: a critic is to see what real rows are.

        A critic that saw the generated probabilities would learn that real rows have none.
        """
        return draw_codes(self._domain, self._network.rows(), self._rng)

    def step(self, critic: Critic) -> None:
        """Change the network by one step towards rows with a higher score."""

        def loss(rows: Floats) -> tuple[float, Floats]:
            score, slope = mean_score(critic, rows)
            apart, pull = self._targets.loss(rows)
            return self._anchor * apart - score, np.float32(self._anchor) * pull - slope

        self._optimiser.step(self._network.loss(loss)[1])

    def model(self) -> RelaxedModel:
        """Return the generated rows as a model."""
        return RelaxedModel(self._domain, self.total, self._network.rows())


def mean_score(critic: Critic, rows: Floats) -> tuple[float, Floats]:
    """Return the mean score of relaxed rows, and its derivative by them."""
    hidden = rows @ critic.lines + critic.bias
    slope = np.where(hidden > 0, np.float32(1), np.float32(SLOPE))
    score = float((slope * hidden @ critic.output).mean())
    return score, (slope * critic.output) @ critic.lines.T / np.float32(len(rows))


def mean_gradients(critic: Critic, rows: Floats, columns: int) -> tuple[tuple[Floats, ...], Floats]:
    """Return the mean derivative of one-hot rows' scores by the critic's weights, and the norm of each row's."""
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
