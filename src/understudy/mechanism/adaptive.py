"""`adaptive`: a few rounds, each of which selects many marginals, measures them together and fits the model once.

AIM measures one marginal and fits its model again, forty to a hundred times. Here a round selects marginals until the
next one would add more noise than it removes error. docs/decisions/adaptive.md has the algorithm and its proofs.
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
from understudy.mechanism.aim import Choice, RoundLog, fit_into
from understudy.mechanism.base import Count, Footprint, Positive, Share
from understudy.mechanism.columns_first import ColumnsFirst
from understudy.mechanism.spanning_tree import Components
from understudy.model.estimate import estimate
from understudy.model.fit import Fit, GeneratorName
from understudy.model.generate import re_express_all
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree, limit_cliques
from understudy.model.protocol import Model
from understudy.progress import Progress, Step, silent
from understudy.workload import Workload

STOP: Clique = ()
"""The empty clique, a candidate of every selection with weight and score 0; selecting it ends the round."""

_TRIPLES_UP_TO = 20  # the most columns for which triples are the default workload
_MOST_CELLS = 1 << 25  # cells of all candidates together: a gigabyte for their marginals
_NOISE_SHARE = 0.22  # a round selects as many pairs as can be measured with less noise than this part of the rows
_FEWEST, _MOST = 2, 64  # limits of the number of selections of a round
_SURPLUS = 16  # more selections than columns if this many times as many could be measured
_MOST_RECHECKED = 2000  # with more candidates, their sizes are not checked again after every selection
_ROUND_TOLERANCES = ((24.0, 0.2), (8.0, 0.05), (0.0, 0.01))  # of fits within rounds, by the least size in MiB
_FINAL_TOLERANCES = ((24.0, 0.03), (1.0, 1e-2), (0.0, 1e-3))  # of the last fit


class Adaptive(ColumnsFirst):
    """Select a batch of marginals that the model explains worst, measure them and fit the model, in a few rounds.

    **Privacy.** Rows are read only by `measure` and `select` of the gate. Shares, candidates,
    offsets and limits follow from the schema, the settings and earlier answers; the shares add up to `rho`.

    Attributes:
        workload: which marginals matter: `all-3way`, `target:COLUMN`, `skewed:SEED` or a YAML file; by default all
            triples of up to 20 columns, and all pairs of more.
        max_mib: the largest junction tree, in MiB; for more than 20 columns it is reduced by the square of their
            number. A round may use the square root of the part of the budget that is spent after it.
        rounds: the number of rounds; doubled if any junction tree fits and part of the budget could measure the whole
            workload well.
        growth: the budget of a round divided by that of the round before.
        choosing: the part of each round's budget for selection; what a round does not use of it is used for measuring.
        first: the part of the budget for a first measurement of every column.
        second: the largest part of the budget for a second measurement of columns whose noise is above `precise`.
        second_if_noisy: replaces `second` if the noise of columns would exceed the rows even with the whole budget.
        precise: the noise of a column, as a share of the rows, below which it is not measured again.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges none.
        max_cells: cliques of more cells are not candidates.
        bounds: whether the release keeps the record that error bounds and intervals of unmeasured marginals need.
        generator: how rows are made: "pgm", the rounds' graphical model; "gum", gradual updates;
            or "rap", relaxed projection.
    """

    name = "adaptive"
    when = "Nearly any table: as accurate as AIM, in seconds. `auto`, the default, chooses it where it can."

    workload: str | None = None
    max_mib: Positive = 80.0
    rounds: Count = 5
    growth: Annotated[float, Field(ge=1, le=10)] = 1.3
    choosing: Share = 0.1
    first: Share = 0.05
    second_if_noisy: Annotated[float, Field(ge=0, lt=1)] = 0.6
    max_cells: Count = 1_000_000
    bounds: bool = True
    generator: GeneratorName = "pgm"

    def __post_init__(self) -> None:
        if not self.first + max(self.second, self.second_if_noisy) <= 0.9:
            raise SettingError(
                "adaptive: first and second (or second_if_noisy) may together take at most 0.9 of the budget; "
                "give one of them less"
            )

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure the columns, then select a batch, measure it and fit the model in each round."""
        declared, total = table.domain, table.rows_public
        columns = [r for r in self._cliques(declared) if len(r) == 1]
        raw, stages, left, table = self.measure_columns(
            table, columns, rho=rho, second_if_noisy=self.second_if_noisy, progress=progress
        )
        domain = table.domain
        known = {r: weight for r, weight in self._cliques(domain).items() if table.can_measure(r)}
        weights = fit_into(domain, known, _MOST_CELLS)
        log = RoundLog(weights | {STOP: 0.0}, stages, keep=self.bounds)
        measurements = re_express_all(declared, raw, table.recoding)
        model = estimate(domain, measurements, total=total)
        rounds = self._number_of_rounds(table, weights, model.total, left)
        planned_shares = [left / rho * part for part in self._parts(rounds)]  # fixed before the first round

        def all_measurements() -> list[Measurement]:
            """Return all measurements as the gate returned them."""
            return [*raw, *measurements[len(raw) :]]

        for number in range(rounds):
            share = left * self._parts(rounds - number)[0]
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
            if number == rounds - 1 and not cliques:
                cliques = {column: domain.cells(column) ** (1 / 3) for column in columns}
            spent = share if cliques else batch.spent  # unspent budget is left to later rounds
            found = table.measure(cliques, rho=share - batch.spent, weights=cliques)
            log.add_round(batch.record, before=model, share=planned_shares[number], measured=len(found))
            left = 0.0 if spent == left else left - spent
            if found:
                measurements += found
                size_mib = JunctionTree.of(domain, [m.clique for m in measurements]).size_mib
                fitted, tolerance = measurements, _tolerance(_ROUND_TOLERANCES, size_mib)
                if left <= 0:  # the last fit uses the cumulative counts of columns with an axis
                    fitted = re_express_all(
                        declared, all_measurements(), table.recoding, table.code_groups, total=total
                    )
                    tolerance = _tolerance(_FINAL_TOLERANCES, size_mib)
                model = estimate(domain, fitted, total=total, warm_start=model, tolerance=tolerance)
            progress(Step("measure", 1 - left / rho, _describe_round(number + 1, len(found), model)))
        record = log.entries()
        if self.generator != "pgm":
            return self.conclude(table, all_measurements(), rounds=record, progress=progress)
        return Fit(model, all_measurements(), table.recoding, record, self.make_generator())

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of the junction tree, the candidates' marginals, and what selections hold by candidate."""
        candidates = self._workload(domain).closure()
        cells = min(sum(min(domain.cells(r), self.max_cells) for r in candidates), _MOST_CELLS)
        tree = int(self._limit(domain) * (1 << 20))
        charges = self.rounds * min(_MOST, 2 * len(domain)) * len(candidates) * (16 + 3 * max(map(len, domain)))
        return Footprint(
            memory_bytes=4 * tree + 32 * cells + 2 * charges + (64 << 20),
            disk_bytes=tree + 16 * cells + charges + (1 << 20),
        )

    def _limit(self, domain: Domain) -> float:
        """Return the largest tree in MiB; smaller for many columns, because all pairs are compared with the model."""
        return self.max_mib * min(1.0, _TRIPLES_UP_TO / len(domain)) ** 2

    def _workload(self, domain: Domain) -> Workload:
        return Workload.parse(self.workload or ("all-3way" if len(domain) <= _TRIPLES_UP_TO else "all-2way"), domain)

    def _cliques(self, domain: Domain) -> dict[Clique, float]:
        """Return the workload's cliques and subsets of at most `max_cells` cells, and all columns, with weights."""
        closure = self._workload(domain).closure()
        return {r: w for r, w in closure.items() if len(r) == 1 or domain.cells(r) <= self.max_cells}

    def _parts(self, rounds: int) -> list[float]:
        """Return the parts of a budget for this many rounds, each larger than the one before."""
        sizes = [self.growth**number for number in range(rounds)]
        return [size / math.fsum(sizes) for size in sizes]

    def _number_of_rounds(self, table: PrivateTable, cliques: Collection[Clique], total: float, left: float) -> int:
        """Return the planned number of rounds, or twice that if only selections then limit what is measured.

        That is the case if any tree fits and even the first of so many rounds could measure all cliques well.
        """
        more, domain = 2 * self.rounds, table.domain
        allocation = table.allocation((1 - self.choosing) * left * self._parts(more)[0])
        noise = allocation.error([domain.cells(r) for r in cliques]) / len(cliques)
        return more if self._any_tree_fits(domain) and noise <= _NOISE_SHARE * total else self.rounds

    def _any_tree_fits(self, domain: Domain) -> bool:
        return len(domain) * domain.cells() * 8 <= self.max_mib * 2**20

    def _draws(self, table: PrivateTable, candidates: Iterable[Clique], total: float, share: float) -> int:
        """Return the most selections of a round: about as many as its budget can measure well.

        K marginals of c cells that share a budget have an expected noise of kappa c sqrt(K) each; K is chosen so that
        this is a fixed share of the rows for the median pair.
        """
        domain = table.domain
        pairs = [domain.cells(r) for r in candidates if len(r) == 2]
        noise = table.expected_noise((1 - self.choosing) * share) * float(np.median(pairs or [1]))
        affordable = (_NOISE_SHARE * total / noise) ** table.weight_power
        most = float(len(domain))
        if self._any_tree_fits(domain):
            most = max(most, min(2 * most, affordable / _SURPLUS))
        return int(min(max(_FEWEST, affordable), most, _MOST))

    def _candidates(
        self,
        table: PrivateTable,
        weights: Mapping[Clique, float],
        measured: Sequence[Clique],
        total: float,
        share: float,
    ) -> dict[Clique, float]:
        """Return the candidates of a round: cliques whose expected noise is below the number of rows.

        A clique of more than two columns is a candidate only if measured marginals connect its columns; otherwise it
        would be selected for the dependence of its pairs.
        """
        noise, domain = table.expected_noise((1 - self.choosing) * share), table.domain
        known = {frozenset(pair) for clique in measured for pair in combinations(clique, 2)}
        return {
            r: w
            for r, w in weights.items()
            if w > 0
            and (len(r) == 1 or (noise * domain.cells(r) <= total and (len(r) == 2 or _is_connected(r, known))))
        }


def _is_connected(clique: Clique, pairs: Collection[frozenset[str]]) -> bool:
    """Return whether these pairs connect the columns of a clique."""
    reached, waiting = {clique[0]}, [clique[0]]
    while waiting:
        column = waiting.pop()
        near = {other for other in clique if frozenset((column, other)) in pairs} - reached
        reached |= near
        waiting += near
    return len(reached) == len(clique)


@dataclass
class Batch:
    """The marginals that a round selected.

    Attributes:
        weights: the cliques with their weights for `measure`, in the order of selection.
        spent: the cost of the selections.
        record: the last selection, for `RoundLog`; None if there was none.
    """

    weights: dict[Clique, float]
    spent: float
    record: Choice | None


class ModelMarginals(FixedMarginals):
    """The model's marginals of a round's candidates, and 0 rows of the empty clique."""

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
) -> Batch:
    """Select cliques one by one, until the next would add more noise than it removes error.

    The score of r is its weighted distance from the model, minus the expected noise that r adds to the whole batch
    under the best division of the budget.

    **Privacy.** At most `draws` selections of rho / draws each.

    Args:
        table: the private table.
        model: the current model, with which all candidates are compared.
        weights: the candidates.
        measured: the cliques measured so far.
        allocation: the division of the budget for measuring over the batch.
        rho: the budget for selection.
        draws: the most selections.
        limit_mib: the largest junction tree of the measured and selected cliques.
        forest: whether selected pairs must not close a cycle.
    """
    domain = table.domain
    power = allocation.power
    part = {r: (weight * domain.cells(r)) ** power for r, weight in weights.items()}
    open_ = limit_cliques(domain, weights, measured, limit_mib)
    against = ModelMarginals(model, open_)
    components = Components(domain, [])
    chosen: list[Clique] = []
    record, taken, drawn = None, 0.0, 0
    while open_ and drawn < draws:
        before = taken ** (1 / power)
        parts = np.fromiter(map(part.__getitem__, open_), np.float64, len(open_))
        added = allocation.per_cell * ((taken + parts) ** (1 / power) - before)
        costs = added / np.fromiter(open_.values(), np.float64, len(open_))
        candidates, offsets = open_ | {STOP: 0.0}, dict(zip(open_, costs.tolist(), strict=True)) | {STOP: 0.0}
        drawn += 1
        selection = table.select(candidates, against=against, weights=candidates, offsets=offsets, rho=rho / draws)
        pick = selection.clique
        if pick != STOP and len(open_) > _MOST_RECHECKED and not _fits(domain, [*measured, *chosen, pick], limit_mib):
            del open_[pick]
            continue
        record = Choice(selection, offsets, draws)
        if pick == STOP:
            break
        chosen.append(pick)
        taken += part[pick]
        near = set(pick)
        open_ = {r: w for r, w in open_.items() if not (near.issuperset(r) or near.issubset(r))}
        if forest and len(pick) == 2:
            components.join(pick)
            open_ = {r: w for r, w in open_.items() if len(r) == 1 or components.are_apart(r)}
        if len(open_) <= _MOST_RECHECKED:
            open_ = _fitting_candidates(domain, open_, [*measured, *chosen], limit_mib)
    shares = allocation.weights([weights[r] * domain.cells(r) for r in chosen])
    return Batch(dict(zip(chosen, shares, strict=True)), drawn * rho / draws, record)


def _fitting_candidates(
    domain: Domain, weights: dict[Clique, float], chosen: Sequence[Clique], limit_mib: float
) -> dict[Clique, float]:
    """Return the candidates that still fit; there may be none."""
    return limit_cliques(domain, weights, chosen, limit_mib) if weights else {}


def _fits(domain: Domain, cliques: Sequence[Clique], limit_mib: float) -> bool:
    return JunctionTree.of(domain, cliques).size_mib <= limit_mib


def _tolerance(steps: Sequence[tuple[float, float]], size_mib: float) -> float:
    """Return the tolerance for a model of this size."""
    return next(tolerance for least, tolerance in steps if size_mib >= least)


def _describe_round(number: int, measured: int, model: GraphicalModel) -> str:
    return f"round {number}: {measured} marginals, model of {model.size_mib:.2g} MiB"
