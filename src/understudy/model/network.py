"""Generator networks: relaxed rows that a small network makes of fixed noise.

The rows are those of `relaxed.py`; here the parameters are a network's weights in place of the rows' own logits, so
that rows share what they learn. `fit_network` fits the network to measurements (GEM, Liu et al. 2021);
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
    CellAnswers,
    Floats,
    RelaxedModel,
    Targets,
    clip_shares,
    count_rows,
    locate_blocks,
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
        noise: the width of the noise.
        hidden: the width of each block.
        uniform: whether weights start as uniform numbers, as those of PyTorch do; otherwise as normal ones.
    """

    def __init__(
        self,
        domain: Domain,
        ones: dict[str, NDArray[Any]],
        noise: int = _NOISE,
        hidden: int = _HIDDEN,
        *,
        uniform: bool = False,
    ) -> None:
        rng, width = np.random.default_rng(0), noise
        self._domain = domain
        self._noise = rng.normal(size=(count_rows(domain), noise)).astype(np.float32)
        self.parameters: list[Floats] = []
        for _ in range(2):
            gain, shift = np.ones(hidden, np.float32), np.zeros(hidden, np.float32)
            self.parameters += [_dense(rng, width, hidden, uniform), gain, shift]
            width += hidden
        start = np.log(np.concatenate(list(ones.values())) + 1e-6).astype(np.float32)
        self.parameters += [_dense(rng, width, len(start), uniform), start]

    def rows(self) -> Floats:
        """Return the relaxed rows that the network makes."""
        return self._forward()[0]

    def loss(self, of: Callable[[Floats], tuple[float, Floats]]) -> tuple[float, list[Floats]]:
        """Return the rows' loss and its derivative by each parameter, given a loss with its derivative by the rows."""
        shares, inputs, blocks = self._forward()
        loss, pull = of(shares)
        pull = softmax_gradient(self._domain, shares, pull)
        gradients = [inputs[-1].T @ pull, pull.sum(axis=0)]
        noise = self._noise.shape[1]  # what the layers do with the noise itself changes nothing: it is fixed
        pull = pull @ self.parameters[-2][noise:].T
        for number in (1, 0):
            before, (scaled, spread) = inputs[number], blocks[number]
            weight, gain, shift = self.parameters[3 * number : 3 * number + 3]
            width = before.shape[1] - noise
            mine = pull[:, width:] * (scaled * gain + shift > 0)
            gradients[:0] = [(mine * scaled).sum(axis=0), mine.sum(axis=0)]
            mine = mine * gain
            mine = (mine - mine.mean(axis=0) - scaled * (mine * scaled).mean(axis=0)) / spread
            gradients.insert(0, before.T @ mine)
            pull = pull[:, :width] + mine @ weight[noise:].T
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
        return softmax(self._domain, np.asfortranarray(inputs[-1] @ weight + shift)), inputs, blocks


def _dense(rng: np.random.Generator, width: int, outputs: int, uniform: bool) -> Floats:
    """Draw the first weights of a dense layer: normal, or uniform within the same number, 1 / sqrt(width)."""
    draw, reach = (rng.uniform, -1.0) if uniform else (rng.normal, 0.0)
    return (draw(reach, 1.0, (width, outputs)) / math.sqrt(width)).astype(np.float32)


def network_bytes(domain: Domain, *, published: bool = False) -> int:
    """Return the memory that training a network takes: six copies of its weights, and the layers of all rows."""
    noise, hidden = (_PAPER_NOISE, _PAPER_HIDDEN) if published else (_NOISE, _HIDDEN)
    codes, layers = sum(domain.values()), noise + 2 * hidden
    return 4 * (6 * (layers * codes + layers * hidden) + 4 * count_rows(domain) * (codes + 2 * layers))


class NetworkModel(RelaxedModel):
    """Relaxed rows and the network that made them, from which the next round goes on; a release holds the rows."""

    def __init__(self, domain: Domain, total: float, network: Network) -> None:
        super().__init__(domain, total, network.rows())
        self.network = network


def fit_network(
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


# Training on single cells, as in the paper

_PAPER_NOISE, _PAPER_HIDDEN, _PAPER_RATE = 512, 1024, 1e-4
_PAPER_STEPS, _PAPER_WORST = 100, 100  # steps of a round, and the most cells that a step learns from
_FOLLOW, _PART = 0.5, 0.5  # of the average of the largest error; cells with so much of it are learned from
_KEEP = 0.9  # of the average of the network's weights over the last rounds


class CellTraining:
    """GEM's training: a network that learns, round after round, from the worst of the cells measured so far.

    A round minimises the mean absolute error over the cells whose error is at least half of a moving average of the
    rounds' largest errors, at most the 100 worst: at most 100 steps of a new Adam, whose rate of 1e-4 falls along a
    cosine. A step without such a cell ends the round. The weights of the last half of the rounds are averaged
    exponentially. Seeds are fixed: the same measurements, in the same order, give the same network.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: the columns.
        rounds: the number of rounds (T).
    """

    def __init__(self, domain: Domain, rounds: int) -> None:
        ones: dict[str, NDArray[Any]] = {column: np.full(size, 1 / size) for column, size in domain.items()}
        self._domain, self._rounds, self._learned = domain, rounds, 0
        self._network = Network(domain, ones, _PAPER_NOISE, _PAPER_HIDDEN, uniform=True)
        self._largest: float | None = None
        self._average: list[Floats] | None = None

    def learn(self, cells: Sequence[Measurement], total: float) -> None:
        """Train for one round on the cells measured so far."""
        answers, targets = CellAnswers(self._domain, cells), clip_shares(cells, total)
        largest = float(np.abs(answers.answers(self.rows()) - targets).max())
        self._largest = largest if self._largest is None else _FOLLOW * self._largest + (1 - _FOLLOW) * largest
        least = _PART * self._largest

        def compute_loss(shares: Floats) -> tuple[float, Floats]:
            """Return the mean absolute error over the worst cells, and its derivative; no number if there is none."""
            apart = answers.answers(shares) - targets
            worst = find_worst(np.abs(apart), least)
            pull = np.zeros_like(apart)
            pull[worst] = np.sign(apart[worst]) / np.float32(max(1, len(worst)))
            loss = float(np.abs(apart[worst]).mean()) if len(worst) else math.nan
            return loss, answers.gradient(shares, pull)

        optimiser = Adam(self._network.parameters, _PAPER_RATE)
        for step in range(_PAPER_STEPS):
            loss, gradients = self._network.loss(compute_loss)
            if math.isnan(loss):
                break
            optimiser.step(gradients, slower=0.5 + 0.5 * math.cos(math.pi * step / _PAPER_STEPS))
        self._learned += 1
        if self._learned > self._rounds - max(1, self._rounds // 2):
            now = self._network.parameters
            if self._average is None:
                self._average = [array.copy() for array in now]
            for mean, array in zip(self._average, now, strict=True):
                mean += np.float32(1 - _KEEP) * (array - mean)

    def rows(self) -> Floats:
        """Return the relaxed rows of the network as it is."""
        return self._network.rows()

    def final_rows(self) -> Floats:
        """Return the relaxed rows of the averaged network; as it is, if the last half of the rounds has not begun."""
        if self._average is None:
            return self.rows()
        trained, self._network.parameters = self._network.parameters, self._average
        found = self.rows()
        self._network.parameters = trained
        return found


def find_worst(errors: Floats, least: float) -> NDArray[np.int64]:
    """Return the places of the errors that are at least `least`, the largest first, at most 100.

    >>> find_worst(np.array([0.1, 0.4, 0.3], np.float32), 0.2).tolist()
    [1, 2]
    """
    order = np.argsort(-errors, kind="stable")[:_PAPER_WORST]
    return order[errors[order] >= least]


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
        self._network = fit_network(domain, columns, total=total).network
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


def mean_gradients(
    critic: Critic, rows: Floats, columns: int, clip: float | None = None
) -> tuple[tuple[Floats, ...], Floats]:
    """Return the mean derivative of one-hot rows' scores by the critic's weights, and the norm of each row's.

    With `clip`, derivatives of a larger norm are scaled down to it, as the gate scales those of real rows: the means of
    equal rows are then equal. The norms are those before.
    """
    hidden = rows @ critic.lines + critic.bias
    slope = np.where(hidden > 0, np.float32(1), np.float32(SLOPE))
    pull, reach = slope * critic.output, slope * hidden
    norms = np.sqrt((columns + 1) * np.square(pull).sum(axis=1) + np.square(reach).sum(axis=1))
    if clip is not None:
        scale = np.float32(clip) / np.maximum(norms, np.float32(clip))[:, None]
        pull, reach = pull * scale, reach * scale
    return (rows.T @ pull / np.float32(len(rows)), pull.mean(axis=0), reach.mean(axis=0)), norms


def draw_codes(domain: Domain, rows: Floats, rng: np.random.Generator) -> Floats:
    """Draw a code of each column from each relaxed row, as one-hot rows.

    >>> draw_codes(Domain({"a": 2, "b": 3}), np.array([[0, 1, 0, 0, 1]], np.float32), np.random.default_rng(0)).tolist()
    [[0.0, 1.0, 0.0, 0.0, 1.0]]
    """
    drawn = np.zeros_like(rows)
    for place in locate_blocks(domain).values():
        sums = rows[:, place].cumsum(axis=1, dtype=np.float64)
        code = (sums <= rng.random(len(rows))[:, None] * sums[:, -1:]).sum(axis=1)
        drawn[np.arange(len(rows)), place.start + np.minimum(code, place.stop - place.start - 1)] = 1.0
    return drawn
