"""The generator network of GEM (Liu et al. 2021): relaxed rows that a small network makes of fixed noise.

The rows are those of `relaxed.py`; here the parameters are a network's weights in place of the rows' own logits, so
that rows share what they learn. Derivatives are written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model.relaxed import Adam, Floats, RelaxedModel, Targets, count_rows, softmax, softmax_gradient

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
        """The relaxed rows that the network makes."""
        return self._forward()[0]

    def loss(self, of: Callable[[Floats], tuple[float, Floats]]) -> tuple[float, list[Floats]]:
        """The loss of the rows, and its derivative by each parameter, given a loss and its derivative by the rows."""
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
        """The rows, the inputs of the layers, and by block its normalised values and their spread before."""
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
