"""Relaxed projection (RAP, Aydore et al. 2021): rows of relaxed one-hot codes, fitted to measurements by gradients.

A relaxed row has a distribution over the codes of each column in place of a code. The answer to a marginal is the mean
over the rows of products of these, a smooth function of the rows. `fit_relaxed` fits rows to measurements; the model
that it makes, a mixture of product distributions, is also that of `network.py`, whose rows are made by a network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError, ReleaseError, SettingError
from understudy.measurement import KroneckerQuery, Measurement, weighted_mean
from understudy.model.consistency import average_tables, find_forbidden_cells, norm_sub, sum_smallest_table
from understudy.model.gum import find_forbidden_rows, make_rule_tables, repair_rows
from understudy.model.protocol import DAMAGED, Model, cannot_occur, read_chances

Floats = NDArray[np.float32]

_REDRAWS = 20  # how often rows in forbidden cells are drawn again before they are repaired
_TINY = 1e-12


# The model


class RelaxedModel(Model):
    """A mixture of product distributions: equally likely relaxed rows, in each of which columns are independent.

    Rows that are drawn obey the domain's rules: those in forbidden cells are drawn again. A projection that covers a
    rule is 0 in its forbidden cells.

    **Privacy.** Post-processing: made of measurements only.

    Attributes:
        domain: the columns.
        total: the number of rows that expected counts add up to.
        shares: by relaxed row the probabilities of all codes, column after column.
        weights: the probability of each relaxed row.
    """

    kind: ClassVar[str] = "relaxed"

    def __init__(
        self, domain: Domain, total: float, shares: Floats, weights: NDArray[np.float64] | None = None
    ) -> None:
        self.domain = domain
        self.total = float(total)
        self.shares = np.ascontiguousarray(shares)
        self.weights = np.full(len(shares), 1.0 / len(shares)) if weights is None else weights

    def __repr__(self) -> str:
        return f"RelaxedModel({len(self.domain)} columns, {len(self.shares)} relaxed rows)"

    def project(self, clique: Clique) -> NDArray[np.float64]:
        """Expected counts of a clique's cells, its axes in the clique's order."""
        clique = self.domain.check(clique)
        left, right = _halves(self.domain, clique)
        one, other = (_product(self._codes, [self._places[c] for c in part]) for part in (left, right))
        flat = (one * self.weights.astype(np.float32)) @ other.T
        table = flat.astype(np.float64).reshape(self.domain.shape((*left, *right)))
        table = table.transpose([(*left, *right).index(column) for column in clique])
        mask = find_forbidden_cells(clique, table.shape, self._forbidden)
        if mask is not None:
            table = np.where(mask, 0.0, table + _TINY)  # so that something is left
        found: NDArray[np.float64] = table * (self.total / table.sum())
        return found

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Draw synthetic rows as coded columns; the same generator state gives the same rows."""
        made = self._draw(rows, rng)
        if not rows or not self._forbidden:
            return made
        for _ in range(_REDRAWS):
            broken = np.flatnonzero(find_forbidden_rows(self.domain, made))
            if not len(broken):
                return made
            for column, codes in self._draw(len(broken), rng).items():
                made[column][broken] = codes
        ones: dict[Clique, NDArray[np.float64]] = {(column,): self.project((column,)) for column in self.domain}
        return repair_rows(self.domain, ones, made, rng)

    def condition(self, where: Mapping[str, int | NDArray[np.float64]]) -> RelaxedModel:
        """Return the model given what is known about some columns; see `Model.condition`.

        Raises:
            SettingError: if the domain has rules; they hold in rows that are drawn, not in each relaxed row.
        """
        if self._forbidden:
            raise SettingError(
                "rows with given values cannot be drawn from this model, because the schema has rules. Sample more "
                "rows and keep those that fit, or make the release with generator='pgm' or another mechanism"
            )
        shares, weights = self.shares.copy(), self.weights
        for column, chances in read_chances(self.domain, where).items():
            block = shares[:, self._places[column]] * chances
            match = block.sum(axis=1)
            weights = weights * match
            shares[:, self._places[column]] = block / np.where(match > 0, match, 1.0)[:, None]
        if not weights.sum() > 0:
            raise cannot_occur(where)
        left = weights > 0
        return RelaxedModel(self.domain, self.total * float(weights.sum()), shares[left], weights[left] / weights.sum())

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return plain arrays: the relaxed rows, their weights, and the total."""
        return {"shares": self.shares, "weights": self.weights, "total": np.array(self.total)}

    @classmethod
    def from_arrays(cls, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Build the model that `to_arrays` wrote.

        Raises:
            ReleaseError: if the arrays do not fit the domain.
        """
        damaged = ReleaseError(DAMAGED)
        try:
            shares, weights = np.asarray(arrays["shares"], np.float32), np.asarray(arrays["weights"], np.float64)
            total = float(arrays["total"])
        except (KeyError, TypeError, ValueError):
            raise damaged from None
        if shares.ndim != 2 or shares.shape[1] != sum(domain.values()) or weights.shape != shares.shape[:1]:
            raise damaged
        if not ((shares >= 0).all() and (weights >= 0).all() and np.isfinite(total) and total > 0):
            raise damaged
        sums = [shares[:, place].sum(axis=1) for place in locate_blocks(domain).values()]
        if not (abs(weights.sum() - 1) < 1e-6 and all((np.abs(block - 1) < 1e-3).all() for block in sums)):
            raise damaged
        return cls(domain, total, shares, weights)

    def _draw(self, rows: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Draw relaxed rows, then a code of each column; within a relaxed row as often as expected, up to rounding."""
        from understudy.model.kernels.rows import draw_values

        picked = draw_values(np.zeros(rows, np.int64), self.weights[None, :], rng).astype(np.int64)
        made = {
            c: draw_values(picked, self.shares[:, place].astype(np.float64), rng) for c, place in self._places.items()
        }
        return {column: codes.astype(np.min_scalar_type(self.domain[column] - 1)) for column, codes in made.items()}

    @cached_property
    def _codes(self) -> Floats:
        return np.ascontiguousarray(self.shares.T)

    @cached_property
    def _places(self) -> dict[str, slice]:
        return locate_blocks(self.domain)

    @cached_property
    def _forbidden(self) -> dict[Clique, NDArray[np.bool_]]:
        return self.domain.forbidden


def locate_blocks(domain: Domain) -> dict[str, slice]:
    """Return where the codes of each column stand in a relaxed row."""
    ends = np.cumsum([0, *domain.values()]).tolist()
    return {column: slice(ends[i], ends[i + 1]) for i, column in enumerate(domain)}


def _halves(domain: Domain, clique: Clique) -> tuple[Clique, Clique]:
    """Divide a clique into two parts whose tables are of about the same size: the largest column first."""
    parts: tuple[list[str], list[str]] = [], []
    for column in sorted(clique, key=domain.__getitem__, reverse=True):
        parts[domain.cells(parts[0]) > domain.cells(parts[1])].append(column)
    return tuple(parts[0]), tuple(parts[1])


def _product(codes: NDArray[Any], part: Sequence[slice]) -> NDArray[Any]:
    """Multiply blocks row by row: for each cell of several columns its number in every row; one cell for no column.

    Numbers of one code, and of one cell, are neighbours: arithmetic on a thousand of them is several times faster than
    on the few codes of a row.
    """
    if not part:
        return np.ones((1, codes.shape[1]), codes.dtype)
    blocks = (codes[place] for place in part)
    return reduce(lambda one, other: (one[:, None] * other[None]).reshape(-1, codes.shape[1]), blocks)


# The loss of relaxed rows, and its gradient


class CellAnswers:
    """The answers of relaxed rows to single cells, in shares of the rows, and their derivatives.

    Args:
        domain: the columns.
        cells: measurements of one cell each (`Cell.query`).

    Raises:
        InputError: if a measurement is not of a single cell.
    """

    def __init__(self, domain: Domain, cells: Sequence[Measurement]) -> None:
        places, width = locate_blocks(domain), max((len(cell.clique) for cell in cells), default=0)
        self._places = np.full((width, len(cells)), sum(domain.values()))  # the place after the last holds ones
        for number, cell in enumerate(cells):
            query = cell.query
            if not isinstance(query, KroneckerQuery) or query.shape[0] != 1 or query.column_sum != 1:
                raise InputError(f"measurement of {cell.clique}: it is not of a single cell")
            for i, (column, factor) in enumerate(zip(cell.clique, query.factors, strict=True)):
                self._places[i, number] = places[column].start + int(factor[0].argmax())

    def answers(self, shares: Floats) -> Floats:
        """Return the mean over the rows of the product of each cell's probabilities."""
        found: Floats = np.prod(self._factors(shares), axis=0).mean(axis=1)
        return found

    def gradient(self, shares: Floats, pull: Floats) -> Floats:
        """Return the derivative by the rows' probabilities, given that by the answers."""
        factors, found = self._factors(shares), np.zeros((shares.shape[1] + 1, len(shares)), np.float32)
        for i, places in enumerate(self._places):
            others = np.prod(np.delete(factors, i, axis=0), axis=0) * (pull / np.float32(len(shares)))[:, None]
            order = np.argsort(places, kind="stable")
            kept, starts = np.unique(places[order], return_index=True)
            found[kept] += np.add.reduceat(others[order], starts, axis=0)
        return found[:-1].T

    def _factors(self, shares: Floats) -> Floats:
        """Return the probabilities that are multiplied: by column of a clique, cell and relaxed row."""
        padded = np.concatenate([shares.T, np.ones((1, len(shares)), np.float32)])
        found: Floats = padded[self._places]
        return found


def clip_shares(cells: Sequence[Measurement], total: float) -> Floats:
    """Return the noisy shares of the rows in measured cells, clipped to [0, 1]."""
    values = np.concatenate([cell.values for cell in cells]) if cells else np.zeros(0)
    found: Floats = np.clip(values / total, 0.0, 1.0).astype(np.float32)
    return found


class TableLoss:
    """The distance of relaxed rows from noisy tables: weighted least squares over all cells, in shares of the rows.

    Args:
        domain: the columns.
        tables: by clique the shares of the rows in its cells, and the weight of each cell.
    """

    def __init__(self, domain: Domain, tables: Mapping[Clique, tuple[NDArray[Any], NDArray[Any]]]) -> None:
        places = locate_blocks(domain)
        self._terms: list[tuple[list[slice], list[slice], Floats, Floats]] = []
        for clique, (target, weight) in tables.items():
            left, right = _halves(domain, clique)
            order = [clique.index(column) for column in (*left, *right)]
            shape = domain.cells(left), domain.cells(right)
            flat, pull = (
                np.ascontiguousarray(np.broadcast_to(array, target.shape).transpose(order).reshape(shape), np.float32)
                for array in (target, weight)
            )
            self._terms.append(([places[c] for c in left], [places[c] for c in right], flat, pull))

    def __call__(self, shares: Floats) -> tuple[float, Floats]:
        """Return the loss of these relaxed rows, and its derivative by their probabilities."""
        codes = np.ascontiguousarray(shares.T)
        loss, gradient = 0.0, np.zeros_like(codes)
        scale = np.float32(1.0 / len(shares))
        for left, right, target, weight in self._terms:
            one, other = _product(codes, left), _product(codes, right)
            apart = (one @ other.T) * scale - target
            pull = weight * apart
            loss += float(np.vdot(pull, apart))
            pull *= 2 * scale
            _add_gradient(gradient, codes, left, pull @ other)
            _add_gradient(gradient, codes, right, pull.T @ one)
        return loss, gradient.T


def _add_gradient(gradient: Floats, codes: Floats, part: Sequence[slice], pull: Floats) -> None:
    """Add the derivative by each block, given that by the product of the blocks."""
    cube = pull.reshape(*(place.stop - place.start for place in part), -1)
    for i, place in enumerate(part):
        found = cube
        for axis in range(len(part) - 1, -1, -1):
            if axis != i:
                sides = [1] * len(part)
                sides[axis] = -1
                found = (found * codes[part[axis]].reshape(*sides, codes.shape[1])).sum(axis=axis, keepdims=True)
        gradient[place] += found.reshape(-1, codes.shape[1])


def softmax(domain: Domain, logits: Floats) -> Floats:
    """Return the probabilities of each column's codes, block by block."""
    shares = np.empty_like(logits)
    for place in locate_blocks(domain).values():
        block = np.exp(logits[:, place] - logits[:, place].max(axis=1, keepdims=True))
        shares[:, place] = block / block.sum(axis=1, keepdims=True)
    return shares


def softmax_gradient(domain: Domain, shares: Floats, gradient: Floats) -> Floats:
    """Return the derivative by the logits, given that by the probabilities."""
    found = np.empty_like(shares)
    for place in locate_blocks(domain).values():
        mine, pull = shares[:, place], gradient[:, place]
        found[:, place] = mine * (pull - (mine * pull).sum(axis=1, keepdims=True))
    return found


class Adam:
    """The optimiser Adam (Kingma and Ba 2015) over arrays that it changes in place."""

    def __init__(self, parameters: Sequence[Floats], rate: float) -> None:
        self._parameters, self._rate, self._steps = parameters, rate, 0
        self._means = [np.zeros_like(array) for array in parameters]
        self._squares = [np.zeros_like(array) for array in parameters]

    def step(self, gradients: Sequence[Floats], slower: float = 1.0) -> None:
        """Move against the gradients, by the rate times `slower`."""
        self._steps += 1
        rate = np.float32(slower * self._rate * math.sqrt(1 - 0.999**self._steps) / (1 - 0.9**self._steps))
        for array, gradient, mean, square in zip(self._parameters, gradients, self._means, self._squares, strict=True):
            mean *= 0.9
            mean += (room := np.multiply(gradient, np.float32(0.1)))
            square *= 0.999
            square += np.multiply(np.square(gradient, out=room), np.float32(0.001), out=room)
            np.add(np.sqrt(square, out=room), np.float32(1e-12), out=room)
            array -= np.multiply(np.divide(mean, room, out=room), rate, out=room)


# Fitting relaxed rows to single cells, as in the paper

_CELL_STEPS, _CELL_ENOUGH, _CELL_CHECKS = 5000, 1e-8, 5


class CellProjection:
    """RAP's projection: relaxed rows fitted to all cells measured so far, epoch after epoch.

    Softmax rows, the sum of squares without weights, and Adam of rate 0.1, for at most 5000 steps; an epoch ends when
    the loss is below 1e-8, or when five checks (every 50 steps) in a row found no smaller loss. Rows start from logits
    between -1 and 1, uniform and of a fixed seed, so that the same measurements give the same rows.

    **Privacy.** Post-processing of measurements.
    """

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        start = np.random.default_rng(0).uniform(-1.0, 1.0, (count_rows(domain), sum(domain.values())))
        self._logits: Floats = np.asfortranarray(start, np.float32)  # see _product

    def learn(self, cells: Sequence[Measurement], total: float) -> None:
        """Fit the rows to the cells measured so far, from the rows of the epoch before."""
        answers, targets = CellAnswers(self._domain, cells), clip_shares(cells, total)
        optimiser = Adam([self._logits], _RATE)
        best, kept, failed = math.inf, self._logits.copy(), 0
        for step in range(_CELL_STEPS + 1):
            shares = softmax(self._domain, self._logits)
            apart = answers.answers(shares) - targets
            loss = float(np.vdot(apart, apart))
            if step % _CHECK == 0 or loss < _CELL_ENOUGH:
                failed = 0 if loss < best else failed + 1
                if loss < best:
                    best, kept = loss, self._logits.copy("K")
                if loss < _CELL_ENOUGH or failed == _CELL_CHECKS:
                    break
            optimiser.step([softmax_gradient(self._domain, shares, answers.gradient(shares, 2 * apart))])
        self._logits[:] = kept

    def rows(self) -> Floats:
        """Return the relaxed rows."""
        return softmax(self._domain, self._logits)

    final_rows = rows


# Fitting relaxed rows

_ROWS = 1000  # relaxed rows, as in the paper
_ROOM = 1 << 23  # probabilities of all relaxed rows together; domains of many codes have fewer rows
_STEPS, _CHECK = 2000, 50  # gradient steps at most, and how often the loss is compared
_GAIN = 0.01  # of the loss: a check that gains less ends the fit
_ENOUGH = 0.5
_RATE, _START = 0.1, 1.0  # the step of Adam, and the standard deviation of the logits at the start


def fit_relaxed(
    domain: Domain,
    measurements: Sequence[Measurement],
    *,
    total: float | None = None,
    start: RelaxedModel | None = None,
) -> RelaxedModel:
    """Fit relaxed rows to measurements: softmax rows, Adam, weighted least squares.

    Rows start near the product of the measured columns, or at those of an earlier model; the start is drawn with a
    fixed seed, so that the same measurements give the same model.

    **Privacy.** Post-processing of measurements.

    Args:
        domain: all columns; a column without a measurement is uniform.
        measurements: noisy marginals of any cliques.
        total: the number of rows if public; otherwise the precision-weighted mean of the tables' sums.
        start: an earlier model of the same domain.

    Raises:
        InputError: if a measurement does not fit the domain, or its query is not a scaling of cells.
    """
    targets = Targets(domain, measurements, total)
    if start is None:
        noise = np.random.default_rng(0).normal(0.0, _START, (count_rows(domain), sum(domain.values())))
        logits = (np.log(np.concatenate(list(targets.ones.values())) + 1e-6) + noise).astype(np.float32)
    else:
        logits = np.log(start.shares + np.float32(1e-9))
    logits = np.asfortranarray(logits)  # see _product
    optimiser = Adam([logits], _RATE)
    best, before = softmax(domain, logits), math.inf
    for step in range(_STEPS):
        shares = softmax(domain, logits)
        loss, gradient = targets.loss(shares)
        if step % _CHECK == 0:
            if not loss < (1 - _GAIN) * before or loss < _ENOUGH * targets.noise:
                break
            best, before = shares, loss
        optimiser.step([softmax_gradient(domain, shares, gradient)])
    return RelaxedModel(domain, targets.total, best)


def count_rows(domain: Domain) -> int:
    """Return how many relaxed rows a domain has: `_ROWS`, fewer where it has many codes or few cells."""
    return max(1, min(_ROWS, _ROOM // sum(domain.values()), 4 * domain.cells()))


class Targets:
    """What relaxed rows are fitted to.

    Attributes:
        total: the number of rows.
        ones: by column its shares.
        tables: by clique its shares of the rows and the weight of each cell; the most precise table weighs 1, and so
            do columns that were not measured, which are uniform, and tables that rules ask for.
        noise: the loss that rows without any error have: that of the noise.
        loss: the loss of relaxed rows, with its derivative.
    """

    def __init__(self, domain: Domain, measurements: Sequence[Measurement], total: float | None) -> None:
        noisy = average_tables(domain, measurements)
        sums = [(float(t.counts.sum()), 1.0 / float(t.variance.sum())) for t in noisy]
        self.total = float(total) if total else max(1.0, weighted_mean(sums)[0]) if sums else 1.0
        counts = {table.clique: table.counts for table in noisy}
        self.ones = {}
        for column, size in domain.items():
            found = sum_smallest_table(counts, (column,))
            self.ones[column] = np.full(size, 1.0 / size) if found is None else norm_sub(found, self.total) / self.total
        best = min((float(table.variance.min()) for table in noisy), default=1.0)
        self.tables: dict[Clique, tuple[NDArray[Any], NDArray[Any]]] = {}
        for table in noisy:
            mask = find_forbidden_cells(table.clique, table.counts.shape, domain.forbidden)
            counted = table.counts if mask is None else np.where(mask, 0.0, table.counts)
            self.tables[table.clique] = np.clip(counted / self.total, 0.0, 1.0), best / table.variance
        self.noise = sum(table.counts.size for table in noisy) * best / self.total**2
        shares = {(column,): share * self.total for column, share in self.ones.items()} | counts
        for column in domain:
            if not any(column in clique for clique in counts):
                self.tables[column,] = self.ones[column], np.ones(())
        for clique, raked in make_rule_tables(domain, shares).items():
            self.tables[clique] = raked / raked.sum(), np.ones(())
        self.loss = TableLoss(domain, self.tables)
