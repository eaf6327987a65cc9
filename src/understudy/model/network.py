"""Generator networks: relaxed rows that a small network makes of fixed noise.

The rows are those of `relaxed.py`; here the parameters are a network's weights in place of the rows' own logits, so
that rows share what they learn. `network_of` fits the network to measurements (GEM, Liu et al. 2021);
`AdversarialNetwork` trains it against a critic that the gate's noisy gradients have trained (a Wasserstein GAN).
Derivatives are written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.measurement import SLOPE, Critic, Measurement
from understudy.model.relaxed import (
    Adam,
    Floats,
    RelaxedModel,
    Targets,
    block_places,
    count_rows,
    softmax,
    softmax_gradient,
)

_NOISE, _HIDDEN = 64, 128  # width of the noise and of each of the two blocks
_RATE = 0.01  # the step of Adam, which falls to zero along a cosine
_STEPS, _MORE = 600, 40  # gradient steps from a new network, and from that of the round before
_ENOUGH, _GAIN, _CHECK = 0.5, 0.01, 20  # a fit ends at half the loss of the noise, or when 20 steps gain less than 1 %


class Network:
    """Two residual blocks and a layer of logits: noise to the probabilities of each column's codes.

    A block is a dense layer, batch normalisation and ReLU; its output is appended to its input. The batch is the same
    noise in every step.

    Args:
        domain: the columns.
        ones: by column the shares at the start.
    """

    def __init__(self, domain: Domain, ones: dict[str, NDArray[Any]]) -> None:
        rng, width = np.random.default_rng(0), _NOISE
        self._domain = domain
        self._noise = rng.normal(size=(count_rows(domain), _NOISE)).astype(np.float32)
        self.parameters: list[Floats] = []
        for _ in range(2):
            self.parameters += [
                _dense(rng, width, _HIDDEN),
                np.ones(_HIDDEN, np.float32),
                np.zeros(_HIDDEN, np.float32),
            ]
            width += _HIDDEN
        start = np.log(np.concatenate(list(ones.values())) + 1e-6).astype(np.float32)
        self.parameters += [_dense(rng, width, len(start)), start]

    def rows(self) -> Floats:
        """Return the relaxed rows that the network makes."""
        return self._forward()[0]

    def loss(self, of: Callable[[Floats], tuple[float, Floats]]) -> tuple[float, list[Floats]]:
        """Return the rows' loss and its derivative by each parameter, given a loss with its derivative by the rows."""
        shares, inputs, blocks = self._forward()
        loss, pull = of(shares)
        pull = softmax_gradient(self._domain, shares, pull)
        gradients = [inputs[-1].T @ pull, pull.sum(axis=0)]
        pull = pull @ self.parameters[-2].T
        for number in (1, 0):
            before, (scaled, spread) = inputs[number], blocks[number]
            weight, gain, shift = self.parameters[3 * number : 3 * number + 3]
            width = before.shape[1]
            mine = pull[:, width:] * (scaled * gain + shift > 0)
            gradients[:0] = [(mine * scaled).sum(axis=0), mine.sum(axis=0)]
            mine = mine * gain
            mine = (mine - mine.mean(axis=0) - scaled * (mine * scaled).mean(axis=0)) / spread
            gradients.insert(0, before.T @ mine)
            pull = pull[:, :width] + mine @ weight.T
        return loss, gradients

    def _forward(self) -> tuple[Floats, list[Floats], list[tuple[Floats, Floats]]]:
        """Return the rows, the inputs of the layers, and by block its normalised values and their spread before."""
        inputs, blocks = [self._noise], []
        for number in range(2):
            weight, gain, shift = self.parameters[3 * number : 3 * number + 3]
            dense = inputs[-1] @ weight
            spread = dense.std(axis=0) + np.float32(1e-5)
            scaled = (dense - dense.mean(axis=0)) / spread
            blocks.append((scaled, spread))
            inputs.append(np.concatenate([inputs[-1], np.maximum(scaled * gain + shift, 0)], axis=1))
        weight, shift = self.parameters[-2:]
        return softmax(self._domain, inputs[-1] @ weight + shift), inputs, blocks


def _dense(rng: np.random.Generator, width: int, outputs: int) -> Floats:
    return rng.normal(0.0, 1 / math.sqrt(width), (width, outputs)).astype(np.float32)


class NetworkModel(RelaxedModel):
    """Relaxed rows and the network that made them, from which the next round goes on; a release holds the rows."""

    def __init__(self, domain: Domain, total: float, network: Network) -> None:
        super().__init__(domain, total, network.rows())
        self.network = network


def network_of(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float | None = None,
    start: NetworkModel | None = None,
) -> NetworkModel:
    """Fit the network to measurements: Adam, weighted least squares; from the same fixed noise every time.

    **Privacy.** Post-processing of measurements. Seeds are fixed: the same measurements give the same model.

    Args:
        domain: all columns; a column without a measurement is uniform.
        measurements: noisy marginals of any cliques.
        total: the number of rows if public; otherwise the precision-weighted mean of the tables' sums.
        start: the model of the round before, whose network is trained on.

    Raises:
        InputError: if a measurement does not fit the domain, or its query is not a scaling of cells.
    """
    targets = Targets(domain, measurements, total)
    network = Network(domain, targets.ones) if start is None else start.network
    steps, before = _STEPS if start is None else _MORE, math.inf
    optimiser = Adam(network.parameters, _RATE)
    for step in range(steps):
        loss, gradients = network.loss(targets.loss)
        if step % _CHECK == 0:
            if not loss < (1 - _GAIN) * before or loss < _ENOUGH * targets.noise:
                break
            before = loss
        optimiser.step(gradients, slower=0.5 + 0.5 * math.cos(math.pi * step / steps))
    return NetworkModel(domain, targets.total, network)


# A network that is trained against a critic


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
