"""`adaptive`: few rounds, each of which chooses many marginals, measures them together and fits the model once.

AIM measures one marginal and fits its model again, forty to a hundred times. Here a round chooses until the next
marginal would cost more than it is worth. The algorithm, why it is private, and what was tried are in
docs/decisions/adaptive.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import Allocation, PrivateTable
from understudy.gate.selection import FixedMarginals
from understudy.measurement import Measurement
from understudy.mechanism.aim import Choice, RoundLog, fit_into, look_at_columns
from understudy.mechanism.base import Count, Footprint, Mechanism, NotNegative, Positive, Share
from understudy.mechanism.spanning_tree import Components
from understudy.model.estimate import estimate
from understudy.model.fit import Fit, GeneratorName
from understudy.model.generate import re_express_all
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree, cliques_within
from understudy.model.protocol import Model
from understudy.progress import Progress, Step, silent
from understudy.workload import Workload

STOP: Clique = ()
"""The empty clique, with weight 0, is a candidate of every selection: its score is 0, and choosing it means to stop."""

_NARROW = 20  # up to this many columns triples matter by default; of more columns there are too many
_ROOM = 1 << 25  # cells of all candidates together: a gigabyte for their true tables, the model's and the difference
_FELT = 0.22  # of the rows: a round chooses as many pairs as can be measured with less noise than this
_FEWEST, _MOST = 2, 40  # choices of a round, whatever the budget
_PLENTY = 16  # more choices than columns where this many times as many could be measured: a quarter of the noise
_REVIEWED = 2000  # candidates that are looked at again, whether they still fit, after every choice
_ROUGH = ((24.0, 0.2), (8.0, 0.05), (0.0, 0.01))  # tolerance within rounds, for models of at least so many MiB
_PRECISE = ((24.0, 0.03), (1.0, 1e-2), (0.0, 1e-3))  # at the end; more precisely where that takes no time


class Adaptive(Mechanism):
    """Choose a batch of marginals that the model explains worst, measure them, fit the model; a few times over.

    **Privacy.** Every answer comes from the gate, which is asked to `measure` and to `select` only. Shares, candidates,
    offsets and limits follow from the schema, the settings and earlier answers; the shares add up to `rho`.

    Attributes:
        workload: which marginals matter: `all-3way`, `target:COLUMN`, `skewed:SEED` or a YAML file; by default all
            triples of up to 20 columns, and all pairs of more.
        max_mib: the largest junction tree of up to 20 columns; of more columns it is smaller, by the square of their
            number. A round may use the square root of the part of the budget that will be spent after it.
        rounds: how many rounds there are.
        growth: how many times more of the budget each round gets than the one before.
        choosing: the part of each round's budget for choosing; what is left of it when a round stops is measured with.
        first: the part of the budget for a first look at every column.
        look: the largest part of the budget for a second look at columns whose noise is still above `precise`.
        precise: the noise on a column, as a share of the rows, that is small enough; more for columns of few codes.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges none.
        max_cells: cliques of more cells are no candidates.
        bounds: whether the release keeps what bounds for marginals that were not measured need.
        generator: what makes the rows in the end: "pgm", the rounds' graphical model; "gum", gradual updates;
            or "rap", relaxed projection.
    """

    name = "adaptive"
    when = "The default: below the error of AIM in a few rounds, in seconds instead of minutes."

    workload: str | None = None
    max_mib: Positive = 80.0
    rounds: Count = 8
    growth: Annotated[float, Field(ge=1, le=10)] = 1.3
    choosing: Share = 0.1
    first: Share = 0.05
    look: Annotated[float, Field(ge=0, lt=1)] = 0.35
    precise: Positive = 0.03
    threshold: NotNegative = 2.0
    max_cells: Count = 1_000_000
    bounds: bool = True
    generator: GeneratorName = "pgm"

    def __post_init__(self) -> None:
        if not self.first + self.look <= 0.9:
            raise SettingError(
                "adaptive: first and look together may take at most 0.9 of the budget; give one of them less"
            )

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Look at the columns, then choose a batch, measure it and fit the model, round by round."""
        declared, total = table.domain, table.rows_public
        columns = [r for r in self._cliques(declared) if len(r) == 1]
        raw, stages, table = look_at_columns(
            table,
            columns,
            rho=rho,
            first=self.first,
            look=self.look,
            precise=self.precise,
            threshold=self.threshold,
            progress=progress,
        )
        domain = table.domain
        known = {r: weight for r, weight in self._cliques(domain).items() if table.can_measure(r)}
        weights = fit_into(domain, known, _ROOM)
        log = RoundLog(weights | {STOP: 0.0}, stages, keep=self.bounds)
        measurements = re_express_all(declared, raw, table.recoding)
        model = estimate(domain, measurements, total=total)
        left = rho - math.fsum(rho * part for _, part in stages)
        doubts = [left / rho * part for part in self._parts(self.rounds)]  # fixed: what is carried over does not count

        def kept() -> list[Measurement]:
            """All measurements as the gate returned them."""
            return [*raw, *measurements[len(raw) :]]

        for number in range(self.rounds):
            share = left * self._parts(self.rounds - number)[0]
            candidates = self._candidates(table, weights, [m.clique for m in measurements], model.total, share)
            batch = choose_batch(
                table,
                model,
                candidates,
                measured=[m.clique for m in measurements],
                allocation=table.allocation((1 - self.choosing) * share),
                rho=self.choosing * share,
                draws=self._draws(table, candidates, model.total, share),
                limit_mib=self._limit(domain) * math.sqrt(1 - (left - share) / rho),
                forest=number == 0,
            )
            cliques = batch.weights
            if number == self.rounds - 1 and not cliques:
                cliques = {column: domain.cells(column) ** (1 / 3) for column in columns}
            spent = share if cliques else batch.spent  # what was not measured with is left to the later rounds
            found = table.measure(cliques, rho=share - batch.spent, weights=cliques)
            expected = model.project_many([m.clique for m in found])
            log.add_round(batch.record, before=model, share=doubts[number], expected=expected)
            left = 0.0 if spent == left else left - spent
            if found:
                measurements += found
                size_mib = JunctionTree.of(domain, [m.clique for m in measurements]).size_mib
                fitted, tolerance = measurements, _tolerance(_ROUGH, size_mib)
                if left <= 0:  # the last fit follows the counts of columns with an axis
                    fitted = re_express_all(declared, kept(), table.recoding, table.code_groups, total=total)
                    tolerance = _tolerance(_PRECISE, size_mib)
                model = estimate(domain, fitted, total=total, warm_start=model, tolerance=tolerance)
            progress(Step("measure", 1 - left / rho, _describe_round(number + 1, len(found), model)))
        rounds = log.entries([m.clique for m in kept()])
        if self.generator != "pgm":
            return self.conclude(table, kept(), rounds=rounds, progress=progress)
        return Fit(model, kept(), table.recoding, rounds, self.make_generator())

    def footprint(self, domain: Domain) -> Footprint:
        """The junction tree a few times over, the candidates' tables, and the charges, which name all candidates."""
        candidates = self._workload(domain).closure()
        cells = min(sum(min(domain.cells(r), self.max_cells) for r in candidates), _ROOM)
        tree = int(self._limit(domain) * (1 << 20))
        charges = self.rounds * min(_MOST, 2 * len(domain)) * len(candidates) * (16 + 3 * max(map(len, domain)))
        return Footprint(
            memory_bytes=4 * tree + 32 * cells + 2 * charges + (64 << 20),
            disk_bytes=tree + 16 * cells + charges + (1 << 20),
        )

    def _limit(self, domain: Domain) -> float:
        """The largest tree: less for wide tables, where comparing with all pairs takes pairs times the tree's size."""
        return self.max_mib * min(1.0, _NARROW / len(domain)) ** 2

    def _workload(self, domain: Domain) -> Workload:
        return Workload.parse(self.workload or ("all-3way" if len(domain) <= _NARROW else "all-2way"), domain)

    def _cliques(self, domain: Domain) -> dict[Clique, float]:
        """The workload's cliques and their parts, with weights; columns, and what has at most `max_cells` cells."""
        closure = self._workload(domain).closure()
        return {r: w for r, w in closure.items() if len(r) == 1 or domain.cells(r) <= self.max_cells}

    def _parts(self, rounds: int) -> list[float]:
        """The parts of a budget for this many rounds, each larger than the one before."""
        sizes = [self.growth**number for number in range(rounds)]
        return [size / math.fsum(sizes) for size in sizes]

    def _draws(self, table: PrivateTable, candidates: Iterable[Clique], total: float, share: float) -> int:
        """How many choices a round may make: about as many marginals as its budget can measure well.

        K tables of c cells that share a budget have an expected noise of kappa c sqrt(K) each; K is where that reaches
        a certain share of the rows, for the median pair.
        """
        domain = table.domain
        pairs = [domain.cells(r) for r in candidates if len(r) == 2]
        noise = table.expected_noise((1 - self.choosing) * share) * float(np.median(pairs or [1]))
        affordable = (_FELT * total / noise) ** table.weight_power
        most = float(len(domain))
        if len(domain) * domain.cells() * 8 <= self.max_mib * 2**20:  # any tree fits: no choice stands in the way
            most = max(most, min(2 * most, affordable / _PLENTY))
        return int(min(max(_FEWEST, affordable), most, _MOST))

    def _candidates(
        self,
        table: PrivateTable,
        weights: Mapping[Clique, float],
        measured: Sequence[Clique],
        total: float,
        share: float,
    ) -> dict[Clique, float]:
        """What a round may choose from: without tables whose noise alone would be as large as the number of rows.

        A clique of more than two columns has to wait until measured marginals connect its columns: before, it would be
        chosen for the dependence of its pairs.
        """
        noise, domain = table.expected_noise((1 - self.choosing) * share), table.domain
        known = {frozenset(pair) for clique in measured for pair in combinations(clique, 2)}
        return {
            r: w
            for r, w in weights.items()
            if w > 0 and (len(r) == 1 or (noise * domain.cells(r) <= total and (len(r) == 2 or _connected(r, known))))
        }


def _connected(clique: Clique, pairs: Collection[frozenset[str]]) -> bool:
    """Whether these pairs connect the columns of a clique."""
    reached, waiting = {clique[0]}, [clique[0]]
    while waiting:
        column = waiting.pop()
        near = {other for other in clique if frozenset((column, other)) in pairs} - reached
        reached |= near
        waiting += near
    return len(reached) == len(clique)


@dataclass
class Batched:
    """What a round has chosen.

    Attributes:
        weights: the cliques with their weights for `measure`, in the order of the choices.
        spent: what the choices cost.
        record: the last choice, as `RoundLog` keeps it; None where no choice was made.
    """

    weights: dict[Clique, float]
    spent: float
    record: Choice | None


class ModelMarginals(FixedMarginals):
    """The model's tables of a round's candidates, and 0 rows of the empty clique."""

    again = True

    def __init__(self, model: Model, cliques: Iterable[Clique]) -> None:
        self._tables = model.project_many(cliques) | {STOP: np.zeros(())}

    def __getitem__(self, clique: Clique) -> NDArray[np.float64]:
        return self._tables[clique]

    def __iter__(self) -> Iterator[Clique]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def choose_batch(
    table: PrivateTable,
    model: GraphicalModel,
    weights: Mapping[Clique, float],
    *,
    measured: Sequence[Clique],
    allocation: Allocation,
    rho: float,
    draws: int,
    limit_mib: float,
    forest: bool,
) -> Batched:
    """Choose cliques one after the other, until the next would cost more than it is worth.

    The score of r is its weighted distance from the model, less what measuring r as well adds to the expected noise of
    the whole batch, when the budget is divided in the best way.

    **Privacy.** At most `draws` selections of rho / draws each.

    Args:
        table: the rows behind the gate.
        model: what is known so far; all choices compare with it.
        weights: the candidates.
        measured: the cliques that the model is made of.
        allocation: how the budget for measuring is divided over the batch.
        rho: the budget for choosing.
        draws: the most choices.
        limit_mib: the largest junction tree of the measured and the chosen.
        forest: whether chosen pairs may not close a cycle.
    """
    domain = table.domain
    part = {r: (weight * domain.cells(r)) ** allocation.power for r, weight in weights.items()}
    open_ = cliques_within(domain, weights, measured, limit_mib)
    against = ModelMarginals(model, open_)
    components = Components(domain, [])
    chosen: list[Clique] = []
    record, taken, drawn = None, 0.0, 0
    while open_ and drawn < draws:
        before = allocation.per_cell * taken ** (1 / allocation.power)
        costs = {
            r: (allocation.per_cell * (taken + part[r]) ** (1 / allocation.power) - before) / weights[r] for r in open_
        }
        candidates, offsets = open_ | {STOP: 0.0}, costs | {STOP: 0.0}
        drawn += 1
        selection = table.select(candidates, against=against, weights=candidates, offsets=offsets, rho=rho / draws)
        pick = selection.clique
        if pick != STOP and len(open_) > _REVIEWED and not _fits(domain, [*measured, *chosen, pick], limit_mib):
            del open_[pick]
            continue
        record = Choice(selection, offsets, draws)
        if pick == STOP:
            break
        chosen.append(pick)
        taken += part[pick]
        open_ = {r: w for r, w in open_.items() if not (set(r) <= set(pick) or set(pick) <= set(r))}
        if forest and len(pick) == 2:
            components.join(pick)
            open_ = {r: w for r, w in open_.items() if len(r) == 1 or components.are_apart(r)}
        if len(open_) <= _REVIEWED:
            open_ = _still_fitting(domain, open_, [*measured, *chosen], limit_mib)
    shares = allocation.weights([weights[r] * domain.cells(r) for r in chosen])
    return Batched(dict(zip(chosen, shares, strict=True)), drawn * rho / draws, record)


def _still_fitting(
    domain: Domain, weights: dict[Clique, float], chosen: Sequence[Clique], limit_mib: float
) -> dict[Clique, float]:
    """The candidates that still fit; unlike at the start of a round there may be none."""
    return cliques_within(domain, weights, chosen, limit_mib) if weights else {}


def _fits(domain: Domain, cliques: Sequence[Clique], limit_mib: float) -> bool:
    return JunctionTree.of(domain, cliques).size_mib <= limit_mib


def _tolerance(steps: Sequence[tuple[float, float]], size_mib: float) -> float:
    """The tolerance for a model of this size."""
    return next(tolerance for least, tolerance in steps if size_mib >= least)


def _describe_round(number: int, measured: int, model: GraphicalModel) -> str:
    return f"round {number}: {measured} marginals, model of {model.size_mib:.2g} MiB"
