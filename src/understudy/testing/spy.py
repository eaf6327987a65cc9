"""The spy: it records every draw of noise and every choice, and computes the privacy cost independently.

It shares nothing with the code that it watches: its sensitivities are written out below, its costs are those of the
noise that was drawn, and their sum must equal the receipt's as exact fractions. It also checks that every answer is the
exact count plus that noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from understudy.accounting import Receipt
from understudy.domain import Clique
from understudy.gate import PrivateTable, gradient
from understudy.gate import table as gate
from understudy.gate.noise import NOISES
from understudy.measurement import Cell, Critic, Measurement
from understudy.testing import expect


@dataclass(frozen=True)
class Observation:
    """One draw or choice with the cost that the spy computed: `rho`, `epsilon` where the noise has one, `delta`."""

    what: str
    law: str
    scale: Fraction
    rho: Fraction
    epsilon: Fraction | None = None
    delta: float = 0.0


class _WatchedNoise:
    """A noise source that reports every draw to the spy."""

    def __init__(self, spy: Spy, inner: Any) -> None:
        self._spy, self._inner = spy, inner

    def gaussian(self, sigma: Any, size: Any) -> NDArray[np.int64]:
        return self._spy._record_draw("gaussian", sigma, self._inner.gaussian(sigma, size))

    def laplace(self, scale: Any, size: Any) -> NDArray[np.int64]:
        return self._spy._record_draw("laplace", scale, self._inner.laplace(scale, size))


@dataclass
class Spy:
    """A context in which every `PrivateTable` is observed.

    >>> from understudy.accounting import Budget
    >>> from understudy.testing.tables import CodedSource
    >>> with Spy() as spy:
    ...     table = PrivateTable(CodedSource({"a": 2}, [[0], [1]]), Budget.of(rho=0.5))
    ...     measured = table.measure([("a",)], rho=0.5)
    >>> spy.rho == table.account.spent == Fraction(1, 2)
    True
    """

    seen: list[Observation] = field(default_factory=list)
    _what: str = ""
    _now: tuple[int, int] = (1, 1)
    _draws: list[NDArray[np.int64]] = field(default_factory=list)
    _weight: int = 0
    _choice: tuple[list[int], Fraction] | None = None

    @property
    def rho(self) -> Fraction:
        """The zCDP cost of everything observed."""
        return sum((one.rho for one in self.seen), Fraction(0))

    @property
    def delta(self) -> float:
        """The delta of all thresholds observed."""
        return sum(one.delta for one in self.seen)

    @property
    def epsilon(self) -> Fraction | None:
        """The pure DP cost of everything observed, or None where part of it has no such cost."""
        costs = [one.epsilon for one in self.seen]
        return None if None in costs else sum((cost for cost in costs if cost is not None), Fraction(0))

    def __enter__(self) -> Spy:
        self._stack = ExitStack()
        table: Any = PrivateTable
        for name, wrapped in (
            ("__init__", self._init(table.__init__)),
            ("measure", self._counts("measure", table.measure)),
            ("select", self._select(table.select)),
            ("select_cells", self._select_cells(table.select_cells)),
            ("dependence", self._dependence(table.dependence)),
            ("distances", self._distances(table.distances)),
            ("gradient", self._gradient(table.gradient)),
            ("error", self._error(table.error)),
            ("tally", self._counts("tally", table.tally)),
            ("values", self._values(table.values)),
        ):
            self._stack.enter_context(patch.object(table, name, wrapped))
        for name in ("exponential_mechanism", "exponential_mechanism_many"):
            self._stack.enter_context(patch.object(gate, name, self._record_choice(vars(gate)[name])))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _init(self, original: Callable[..., None]) -> Callable[..., None]:
        def init(table: Any, source: Any, budget: Any, *, noise: Any = "exact", **rest: Any) -> None:
            original(table, source, budget, noise=noise, **rest)
            inner = NOISES[noise] if isinstance(noise, str) else noise
            table._PrivateTable__noise = _WatchedNoise(self, inner)

        return init

    def _record_draw(self, law: str, scale: Any, draw: NDArray[np.int64]) -> NDArray[np.int64]:
        k, replaced = self._now
        exact = Fraction(scale)
        if self._what in ("measure", "tally", "values"):
            l1, squared = k * (1 + replaced), Fraction(k * k * (1 + replaced))
        elif self._what == "gradient":  # every row adds a vector of norm at most UNIT; the entries may be negative
            l1 = k * (1 + replaced) * gradient.UNIT * len(draw)
            squared = Fraction((k * (1 + replaced) * gradient.UNIT) ** 2)
        elif self._what == "quality":  # one sum of distances, each moved by k rows or 2 k, in units of 2^-16 rows
            l1 = k * (1 + replaced) * self._weight * 2**16
            squared = Fraction(l1**2)
        elif self._what == "distances":  # each is moved by k rows or 2 k, all of them at once
            each = k * (1 + replaced) * 2**16
            l1, squared = each * len(draw), Fraction(each**2 * len(draw))
        else:
            l1 = 4 * k * (1 + replaced) * len(draw)
            squared = Fraction((4 * k * (1 + replaced)) ** 2 * len(draw))
        epsilon = l1 / exact if law == "laplace" else None
        rho = squared / (2 * exact**2) if epsilon is None else epsilon**2 / 2
        self.seen.append(Observation(self._what, law, exact, rho, epsilon))
        self._draws.append(draw.copy())
        return draw

    def _record_choice(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def choose(scores: Sequence[int], rate: Fraction, *rest: Any) -> Any:
            self._choice = (list(map(int, scores)), Fraction(rate))
            return original(scores, rate, *rest)

        return choose

    def _start(self, what: str, table: PrivateTable) -> None:
        source = table._PrivateTable__source  # type: ignore[attr-defined]
        self._what, self._now = what, (source.unit.max_rows, int(source.rows_public is not None))
        self._draws, self._choice = [], None

    def _counts(self, what: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def counts(table: PrivateTable, wanted: Any, **rest: Any) -> Any:
            self._start(what, table)
            answers = original(table, wanted, **rest)
            made: list[Measurement] = list(answers.values()) if isinstance(answers, dict) else answers
            counts = dict(table._counts([answer.clique for answer in made]))
            for clique, query in (rest.get("queries") or {}).items():
                matrix = reduce(np.kron, query.factors)
                counts[clique] = matrix @ counts[clique]
                self._record_query(next(answer for answer in made if answer.clique == clique), counts[clique], matrix)
            _check_noise(made, counts, self._draws)
            return answers

        return counts

    def _record_query(self, answer: Measurement, exact: NDArray[Any], matrix: NDArray[np.int64]) -> None:
        """Replace the cost of one draw by that of queries: a row adds a column of the matrix to the answers."""
        place = next(i for i, draw in enumerate(self._draws) if np.array_equal(answer.values - exact, draw))
        place += len(self.seen) - len(self._draws)
        k, replaced = self._now
        scale, law = self.seen[place].scale, self.seen[place].law
        l1 = k * (1 + replaced) * max(sum(abs(int(v)) for v in column) for column in matrix.T)
        apart = 4 if (matrix < 0).any() else 2  # columns of one sign are at most at a right angle
        if apart == 2 and len(matrix) == 1:  # one number of one sign: what a unit adds lies between 0 and k times
            l1, apart = k * int(matrix.max()), 1
        squared = k * k * (apart if replaced else 1) * max(sum(int(v) ** 2 for v in column) for column in matrix.T)
        epsilon = l1 / scale if law == "laplace" else None
        rho = squared / (2 * scale**2) if epsilon is None else epsilon**2 / 2
        self.seen[place] = replace(self.seen[place], rho=rho, epsilon=epsilon)

    def _values(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def values(table: PrivateTable, column: str, **rest: Any) -> dict[str, int]:
            self._start("values", table)
            answer: dict[str, int] = original(table, column, **rest)
            threshold = table.account.charges[-1].threshold or 0
            exact = sorted(table._PrivateTable__source.values(column).items())  # type: ignore[attr-defined]
            expect(len(self._draws) == 1, "values were released without a draw of noise of their own")
            noisy = {text: n + int(drawn) for (text, n), drawn in zip(exact, self._draws[0], strict=True)}
            above = {text: count for text, count in noisy.items() if count >= threshold}
            expect(answer == above, "the values released are not those whose noisy count reaches the threshold")
            k = self._now[0]
            self.seen[-1] = replace(self.seen[-1], delta=k * gaussian_tail(self.seen[-1].scale, threshold - k))
            return answer

        return values

    def _dependence(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def dependence(table: PrivateTable, pairs: Any, **rest: Any) -> dict[Clique, int]:
            wanted = list(pairs)
            self._start("dependence", table)
            answers: dict[Clique, int] = original(table, wanted, **rest)
            noise: Sequence[Any] = self._draws[0].tolist() if self._draws else ()
            for (pair, counts), drawn in zip(table._counts(list(answers)), noise, strict=True):
                exact = _indif(counts.reshape(table.domain.shape(pair)))
                expect(
                    answers[pair] == exact + int(drawn), "an InDif score is not its exact value plus the noise drawn"
                )
            return answers

        return dependence

    def _distances(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def distances(table: PrivateTable, candidates: Any, *, against: Any, rho: float) -> dict[Clique, float]:
            wanted = list(candidates)
            self._start("distances", table)
            answers: dict[Clique, float] = original(table, wanted, against=against, rho=rho)
            expect(len(self._draws) == bool(wanted), "distances were released without a draw of noise of their own")
            for i, (clique, counts) in enumerate(table._counts(wanted)):
                noisy = _distance(counts, against[clique]) + Fraction(int(self._draws[0][i]), 2**16)
                expect(answers[clique] == float(noisy), "a distance is not its exact value plus the noise drawn")
            return answers

        return distances

    def _gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def ask(table: PrivateTable, critic: Critic, *, clip: float, rho: float) -> Any:
            self._start("gradient", table)
            answer = original(table, critic, clip=clip, rho=rho)
            codes = next(table._PrivateTable__source.codes())  # type: ignore[attr-defined]
            total = np.zeros(sum(array.size for array in critic.arrays), np.int64)
            for i in range(len(next(iter(codes.values())))):  # row by row: what a row adds depends on itself alone
                row = {column: array[i : i + 1] for column, array in codes.items()}
                added = gradient.sum_gradients(critic, clip, table.domain, table.recoding.maps, [row])
                expect(int(added @ added) <= gradient.UNIT**2, "a row adds more than it may to a gradient")
                total += added
            expect(len(self._draws) == 1, "a gradient was released without a draw of noise of its own")
            noisy = gradient.read_gradients(critic, clip, total + self._draws[0])
            same = all(np.array_equal(a, b) for a, b in zip(answer, noisy, strict=True))
            expect(same, "a gradient is not its exact value plus the noise drawn")
            return answer

        return ask

    def _error(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def error(table: PrivateTable, against: Any, *, weights: Mapping[Clique, int], rho: float) -> Any:
            self._start("quality", table)
            self._weight = sum(weights.values())
            answer = original(table, against, weights=weights, rho=rho)
            counts = dict(table._counts(list(weights)))
            exact = sum(weights[clique] * _distance(counts[clique], against[clique]) for clique in weights)
            noisy = (exact + Fraction(int(self._draws[0][0]), 2**16)) / self._weight
            expect(answer.rows == float(noisy), "a workload error is not its exact value plus the noise drawn")
            return answer

        return error

    def _select(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def select(table: PrivateTable, candidates: Any, **rest: Any) -> Clique:
            wanted = [tuple(clique) for clique in candidates]
            self._start("select", table)
            answer: Clique = original(table, wanted, **rest)
            weights = {clique: _number(rest.get("weights"), clique, 1.0) for clique in wanted}
            offsets = {clique: _number(rest.get("offsets"), clique, 0.0) for clique in wanted}
            counts, against = dict(table._counts(wanted)), rest.get("against")
            if against is None:  # InDif of the first column and the others
                far = {c: Fraction(_indif(counts[c].reshape(table.domain[c[0]], -1))) for c in wanted}
            else:
                far = {c: _distance(counts[c], against[c]) for c in wanted}
            rate = self._rate_per_row([weights[c] * (far[c] - offsets[c]) for c in wanted])
            k, replaced = self._now
            epsilon = 2 * (4 if against is None else 1) * k * (1 + replaced) * max(weights.values()) * rate
            self.seen.append(Observation("select", "exponential", epsilon, epsilon**2 / 8, epsilon))
            return answer

        return select

    def _select_cells(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def select(table: PrivateTable, cliques: Any, *, against: Any, used: Any = (), **rest: Any) -> list[Cell]:
            wanted, gone = [tuple(clique) for clique in cliques], list(used)
            self._start("cells", table)
            answer: list[Cell] = original(table, wanted, against=against, used=gone, **rest)
            far = [d for clique, n in table._counts(wanted) for d in _distances(n, against[clique])]
            rate = self._rate_per_row(far)
            expect(len({*answer, *gone}) == len(answer) + len(set(gone)), "a cell was selected twice")
            epsilon = 2 * self._now[0] * rate  # a unit's rows move the count of a cell by k at most, replaced or not
            self.seen += [Observation("cells", "exponential", epsilon, epsilon**2 / 8, epsilon)] * len(answer)
            return answer

        return select

    def _rate_per_row(self, scores: list[Fraction]) -> Fraction:
        """Return how much one unit of true score changes a log weight, given the arguments of the selection."""
        if self._choice is None:
            raise AssertionError("a selection was made without the exponential mechanism")
        given, rate = self._choice
        scaled = [number * rate for number in given]
        steps = [(a - scaled[0], b - scores[0]) for a, b in zip(scaled, scores, strict=True)]
        ratios = {a / b for a, b in steps if b}
        expect(len(ratios) <= 1, "the log weights are not proportional to the scores")
        expect(all(a == 0 for a, b in steps if not b), "candidates of one score have different weights")
        return ratios.pop() if ratios else next((a / b for a, b in zip(scaled, scores, strict=True) if b), Fraction(0))


def check_spent(spy: Spy, receipt: Receipt) -> None:
    """Check that the spy's costs are the receipt's and that the budget covers them.

    Raises:
        AssertionError: if a cost differs in the last digit, or passes the budget; for a batch certified by its exact
            curve, when dp-accounting finds a larger epsilon for the noise that was drawn.
    """
    budget = receipt.budget
    expect(spy.rho == receipt.exact_rho, "the receipt's rho is not the noise's")
    charged = sum((charge.delta for charge in receipt.charges), Fraction(0))
    expect(spy.delta * (1 - 1e-9) <= charged, "the receipt's delta is smaller than the threshold's")
    expect(charged <= budget.discovery_delta, "more delta was spent than was set aside")
    if budget.pure:
        epsilon = spy.epsilon if spy.epsilon is not None else Fraction(-1)
        expect(epsilon == sum(c.epsilon or 0 for c in receipt.charges), "the receipt's epsilon is not the noise's")
        expect(epsilon <= budget.capacity, "more epsilon was spent than the budget allows")
        return
    expect(spy.rho <= budget.rho, "more rho was spent than the budget allows")
    if budget.proof == "pld":
        true = curve_epsilon([one.scale for one in spy.seen], float(budget.delta or 0), receipt.neighbours.replace_one)
        expect(true <= float(budget.epsilon or 0), "the drawn noise has a larger epsilon than was promised")


def gaussian_tail(sigma: Fraction, t: int) -> float:
    """Return P(X >= t) of the discrete Gaussian, by adding up its probabilities."""
    width = 12 * int(sigma + 1) + abs(t)
    weights = np.exp(-0.5 * (np.arange(-width, width + 1) / float(sigma)) ** 2)
    return float(weights[t + width :][::-1].sum() / weights.sum())


def curve_epsilon(sigmas: Sequence[Fraction], delta: float, replace_one: bool) -> float:
    """Bound the true epsilon of discrete Gaussian measurements from below, by dp-accounting's optimistic rounding."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    cells = 2 if replace_one else 1
    whole: Any = None
    for sigma in sorted(set(sigmas)):
        one = pld.from_discrete_gaussian_mechanism(float(sigma), pessimistic_estimate=False)
        one = one.self_compose(cells * sigmas.count(sigma))
        whole = one if whole is None else whole.compose(one)
    return 0.0 if whole is None else float(whole.get_epsilon_for_delta(delta))


def _check_noise(
    answers: Sequence[Measurement], counts: Mapping[Clique, NDArray[Any]], draws: Sequence[NDArray[np.int64]]
) -> None:
    expect(len(draws) == len(answers), "a measurement was made without a draw of noise of its own")
    for answer, draw in zip(answers, _match_draws(answers, counts, draws), strict=True):
        expect(
            np.array_equal(answer.values, counts[answer.clique] + draw), "a measurement is not its counts plus noise"
        )


def _match_draws(
    answers: Sequence[Measurement], counts: Mapping[Clique, Any], draws: Sequence[NDArray[np.int64]]
) -> Iterator[NDArray[np.int64]]:
    """Return the draw of each answer: draws are made in the order in which the source counts, which may be another."""
    left = list(draws)
    for answer in answers:
        fits = [i for i, draw in enumerate(left) if np.array_equal(answer.values - counts[answer.clique], draw)]
        yield left.pop(fits[0]) if fits else np.array(np.nan)


def _number(given: Mapping[Clique, float] | None, clique: Clique, default: float) -> Fraction:
    return Fraction(default if given is None else float(given[clique]))


def _distance(counts: NDArray[Any], against: Any) -> Fraction:
    """Return the L1 distance to a marginal rounded to multiples of 2^-16, in Python's own integers."""
    return sum(_distances(counts, against), Fraction(0))


def _distances(counts: NDArray[Any], against: Any) -> list[Fraction]:
    """Return the distance of each cell from a marginal rounded to multiples of 2^-16."""
    given = [round(Fraction(float(value)) * 2**16) for value in np.asarray(against, dtype=np.float64).reshape(-1)]
    return [Fraction(abs(int(a) * 2**16 - b), 2**16) for a, b in zip(counts, given, strict=True)]


def _indif(table: NDArray[Any]) -> int:
    """Compute InDif by its definition, in fractions, rounded half up."""
    n = int(table.sum())
    if n == 0:
        return 0
    rows, columns = table.sum(axis=1, dtype=np.int64), table.sum(axis=0, dtype=np.int64)
    total = sum(
        abs(Fraction(int(table[i, j])) - Fraction(int(rows[i]) * int(columns[j]), n))
        for i in range(len(rows))
        for j in range(len(columns))
    )
    return int((total + Fraction(1, 2)) // 1)
