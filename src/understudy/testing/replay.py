"""A close look at single runs: does anything but the gate's answers decide what a run asks and releases?

A run on one table is repeated on the neighbouring table, with the answers that the gate gave in the first run. If the
mechanism knows nothing but these answers, it asks the same questions and releases the same, bit for bit. A difference
needs no statistics to be seen, wherever it is: in the model, the rows or their order, the merged codes, the number or
the kind of questions, an error. The same runs are searched for noise that was used twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.gate import Selection
from understudy.measurement import Cell, Critic, KroneckerQuery, Measurement
from understudy.mechanism import Fit
from understudy.metric.roc import proportion_low
from understudy.progress import Step
from understudy.quality import NoisyError
from understudy.testing.likelihood import WatchedTable, laplace_scale
from understudy.testing.pairs import Bench
from understudy.testing.twin import describe_error, record_answers, replay_answers

RUNS = 40
"""How many runs an audit repeats: if all differ, a claim of epsilon 1 is refuted at the error of a verdict."""

_ROWS = 50
_COMMON = 0.2


@dataclass(frozen=True)
class Inspection:
    """What a close look at single runs found.

    Attributes:
        runs: how many runs were repeated on the other table with the same answers.
        differed: in how many of them something differed.
        where: what differed: questions, measurements, model, rows, ...
        random: what differs between repetitions on the same table too, so that it cannot be compared.
        repeated: how often an answer had the noise of an earlier answer of the same run.
        expected: how often that happens by chance, at most.
    """

    runs: int
    differed: int
    where: tuple[str, ...]
    random: tuple[str, ...]
    repeated: int
    expected: float

    def refutes(self, epsilon: float, delta: float, error: float) -> bool:
        """Return whether so many differences refute (epsilon, delta)-DP; wrong with probability at most `error`.

        The event is "the release is the one that these answers give on the table without the target". It is certain
        there, and happens with probability 1 - p on the other table, where p is the share of runs that differ. So the
        claim needs ``1 <= exp(epsilon) (1 - p) + delta``.

        >>> Inspection(40, 40, ("model",), (), 0, 0.0).refutes(1.0, 0.01, 1e-7)
        True
        >>> Inspection(40, 20, ("model",), (), 0, 0.0).refutes(1.0, 0.01, 1e-7)
        False
        """
        return proportion_low(self.differed, self.runs, error) > 1 - (1 - delta) * math.exp(-epsilon)

    def noise_is_reused(self, error: float) -> bool:
        """Return whether noise is repeated more often than chance explains; wrong with probability at most `error`.

        Each new answer has the noise of an earlier one with a probability p that is known beforehand, at most, so
        ``exp(repeated - (e - 1) expected)`` has an expectation of at most 1, and Markov's inequality bounds it.
        """
        return self.repeated - (math.e - 1) * self.expected > -math.log(error)

    def text(self) -> str:
        """Describe the result in a sentence or two."""
        compared = f"{self.runs} runs were repeated on the other table with the same answers of the gate: "
        found = f"{self.differed} differed, in {', '.join(self.where)}." if self.differed else "no difference."
        rest = f" Not compared, as chance decides it: {', '.join(self.random)}." if self.random else ""
        return compared + found + rest


def inspect_runs(bench: Bench, runs: int = RUNS) -> Inspection:
    """Repeat runs of a bench on the other table with the same answers, and look for noise that was used twice."""
    found: list[set[str]] = []
    by_chance: set[str] = set()
    repeated, expected = 0, 0.0
    for _ in range(runs):
        with record_answers() as answers:
            first, table = _observe_run(bench, present=True)
        repeated, expected = repeated + table.noise.repeated, expected + table.noise.expected
        again, other = (_observe_run(bench, present=present, answers=answers)[0] for present in (True, False))
        by_chance |= _compare(first, again)
        found.append(_compare(first, other))
    found = [one - by_chance for one in found]
    where = sorted(set().union(*found))
    return Inspection(runs, sum(map(bool, found)), tuple(where), tuple(sorted(by_chance)), repeated, expected)


@dataclass
class ReplayedNoise:
    """The noise of a run's measurements, by number of cells and sigma.

    Attributes:
        repeated: how often a measurement had the noise of an earlier one.
        expected: how often that happens by chance, at most.
    """

    repeated: int = 0
    expected: float = 0.0
    _seen: dict[tuple[int, float], set[bytes]] = field(default_factory=dict)

    def add(self, noise: NDArray[Any], sigma: float, law: str) -> None:
        """Add the noise of one measurement, unless it has so few cells that equal noise would be common.

        No value is likelier than 0, which has a probability of at most 1 / (sigma sqrt(2 pi)) if the noise is Gaussian.
        """
        most = 1 / (sigma * math.sqrt(2 * math.pi)) if law == "gaussian" else math.tanh(0.5 / laplace_scale(sigma))
        if most ** len(noise) > _COMMON:
            return
        earlier = self._seen.setdefault((len(noise), sigma), set())
        self.expected += min(1.0, len(earlier) * most ** len(noise))
        drawn = np.rint(noise).astype(np.int64).tobytes()
        self.repeated += drawn in earlier
        earlier.add(drawn)


class InspectedTable(WatchedTable):
    """A watched table that writes down the questions, and counts answers whose noise an earlier one had.

    Attributes:
        questions: every question with its arguments.
        noise: the noise of measurements so far.
    """

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.questions: list[Any] = []
        self.noise = ReplayedNoise()

    def measure(self, cliques: Iterable[Clique], **given: Any) -> list[Measurement]:
        """Answer as the gate does, and note the question."""
        wanted = list(cliques)
        self.questions.append(("measure", wanted, _arguments(given, wanted)))
        answers = super().measure(wanted, **given)
        for one in answers:
            exact = self.count(one.clique)
            noise = one.values - (exact if one.query is None else one.query @ exact)
            self.noise.add(noise, one.sigma, one.noise)
        return answers

    def select(self, candidates: Iterable[Clique], **given: Any) -> Selection:
        """Answer as the gate does, and note the question."""
        wanted = list(candidates)
        self.questions.append(("select", wanted, _arguments(given, wanted)))
        return super().select(wanted, **given)

    def select_cells(
        self, cliques: Iterable[Clique], *, against: Mapping[Clique, Any], used: Iterable[Cell] = (), **given: Any
    ) -> list[Cell]:
        """Answer as the gate does, and note the question."""
        wanted, gone = list(cliques), list(used)
        self.questions.append(("select_cells", wanted, _arguments({"against": against, **given}, wanted), gone))
        return super().select_cells(wanted, against=against, used=gone, **given)

    def dependence(self, pairs: Iterable[Clique], *, rho: float) -> dict[Clique, int]:
        """Answer as the gate does, and note the question."""
        wanted = list(pairs)
        self.questions.append(("dependence", wanted, rho))
        return super().dependence(wanted, rho=rho)

    def distances(
        self, candidates: Iterable[Clique], *, against: Mapping[Clique, Any], rho: float
    ) -> dict[Clique, float]:
        """Answer as the gate does, and note the question."""
        wanted = list(candidates)
        self.questions.append(("distances", wanted, _arguments({"against": against}, wanted), rho))
        return super().distances(wanted, against=against, rho=rho)

    def gradient(self, critic: Critic, *, clip: float, rho: float) -> tuple[NDArray[np.float32], ...]:
        """Answer as the gate does, and note the question."""
        self.questions.append(("gradient", [_to_plain(array) for array in critic.arrays], clip, rho))
        return super().gradient(critic, clip=clip, rho=rho)

    def error(self, against: Mapping[Clique, Any], *, weights: Mapping[Clique, int], rho: float) -> NoisyError:
        """Answer as the gate does, and note the question."""
        self.questions.append(("error", _arguments({"against": against, "weights": weights}, list(weights)), rho))
        return super().error(against, weights=weights, rho=rho)


def _observe_run(
    bench: Bench, *, present: bool, answers: list[Any] | None = None
) -> tuple[dict[str, Any], InspectedTable]:
    """Return everything that can be seen of a run, with new answers of the gate or with these."""
    table = bench.open(present, InspectedTable)
    steps: list[Step] = []
    try:
        if answers is None:
            seen = describe_fit(bench.fit(table, steps.append))
        else:
            with replay_answers(answers):
                seen = describe_fit(bench.fit(table, steps.append))
        ending = ""
    except Exception as error:  # a run that fails is a result like any other
        seen, ending = {}, describe_error(error)
    return {**seen, "questions": table.questions, "progress": steps, "ending": ending}, table


def describe_fit(fit: Fit) -> dict[str, Any]:
    """Return everything that is released of a fit, by name, as values that can be compared."""
    rows = fit.model.sample(_ROWS, np.random.default_rng(0))
    return {
        "measurements": [(one.clique, one.values.tobytes(), one.sigma, one.noise) for one in fit.measurements],
        "model": {name: _to_plain(array) for name, array in fit.model.to_arrays().items()},
        "number of rows": float(fit.model.total),
        "rows": {column: np.asarray(codes).tobytes() for column, codes in rows.items()},
        "merged codes": fit.recoding.to_dict(),
        "rounds": repr(list(fit.rounds)),
    }


def _compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """Return the names of what differs; where one run failed, that alone."""
    if one["ending"] != other["ending"]:
        return {"ending"}
    return {name for name in one if one[name] != other.get(name)}


def _arguments(given: Mapping[str, Any], wanted: list[Clique]) -> dict[str, Any]:
    """Return a question's arguments as values that can be compared; of a mapping, the entries of these cliques."""
    return {
        name: {clique: _to_plain(value[clique]) for clique in wanted if clique in value}
        if isinstance(value, Mapping)
        else value
        for name, value in given.items()
    }


def _to_plain(value: Any) -> Any:
    if isinstance(value, KroneckerQuery):
        return [_to_plain(factor) for factor in value.factors]
    array = np.asarray(value)
    return array.dtype.str, array.shape, array.tobytes()
