"""`aim`: the adaptive and iterative mechanism (McKenna et al. 2022, Algorithms 2 to 4).

Differences from the paper are explained in docs/decisions/aim.md; paper mode undoes them. `ablations` has the variants
of the paper's ablation study.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from understudy.domain import NO_GROUPS, Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable, Selection
from understudy.measurement import Measurement
from understudy.mechanism.base import Count, Footprint, NotNegative, Positive, Share
from understudy.mechanism.columns_first import ColumnsFirst
from understudy.model.estimate import estimate, estimate_as_printed
from understudy.model.fit import Fit, Generator, GeneratorName, LossName
from understudy.model.generate import re_express_all
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import limit_cliques
from understudy.progress import Progress, Step, silent
from understudy.workload import Workload

_ROUND_TOLERANCES, _MEDIUM_MIB = (0.05, 0.01), 8.0  # tolerance within rounds, of large and smaller models
_FINAL_TOLERANCES, _SMALL_MIB = (1e-3, 1e-4), 1.0  # tolerance of the last fit, of larger and small models
_MOST_CELLS = 1 << 25  # cells of all candidates after merging, if the declared ones have fewer: a gigabyte


class AIM(ColumnsFirst):
    """Measure the marginal that the model explains worst, round by round, until the budget is spent.

    **Privacy.** Rows are read only through the gate. The shares of the rounds, the codes that are merged and the
    candidates follow from the schema, the settings and earlier answers; the privacy filter allows that (Theorem 1), and
    the shares add up to `rho`.

    Attributes:
        workload: which marginals matter: `all-3way`, `target:COLUMN`, `skewed:SEED` or a YAML file.
        max_mib: the largest junction tree, in MiB; a round may use the same part of it as was spent of the budget.
        rounds: the number of rounds to plan for, as a multiple of the number of columns.
        measured: the part of each round's budget for measuring; the rest is for selection.
        first: the part of the budget for a first measurement of every column; 0 for none, and then no codes are merged.
        second: the largest part of the budget for a second measurement of columns whose noise is above `precise`.
        precise: the noise of a column, as a share of the rows, below which it is not measured again.
        threshold: codes whose noisy count is below this many standard deviations are merged; 0 merges none.
        fewest: the number of rounds for which a larger share must leave budget.
        anneal: whether the share grows after a round that improved the model little; otherwise all are equal.
        score: "expected" improvement, weighted by the workload, or "cells", the older score of MWEM.
        closure: whether subsets of the workload's cliques are candidates as well.
        growing: whether the size limit grows with the budget spent; otherwise it is `max_mib` from the start.
        max_cells: cliques of more cells are not candidates.
        as_printed: as printed in the paper: candidates with any noise, and no estimation by cumulative counts.
        loss: the weights of measurements in the loss: "likelihood", 1/sigma^2, as in the code that the authors
            published, or "printed", 1/sigma.
        bounds: whether the release keeps the record that error bounds and intervals of unmeasured marginals need.
        generator: how rows are made: "pgm", the rounds' graphical model; "gum", gradual updates;
            or "rap", relaxed projection.
    """

    name = "aim"
    paper = "McKenna, Mullins, Sheldon and Miklau 2022, AIM (Algorithms 2 to 4)"
    when = "The best published mechanism for a workload of marginals; `adaptive` is as accurate in less time."

    workload: str = "all-3way"
    max_mib: Positive = 80.0
    rounds: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 16.0
    measured: Share = 0.9
    fewest: NotNegative = 4.0
    anneal: bool = True
    score: Literal["expected", "cells"] = "expected"
    closure: bool = True
    growing: bool = True
    max_cells: Count = 2_000_000
    as_printed: bool = False
    loss: LossName = "likelihood"
    bounds: bool = True
    generator: GeneratorName = "pgm"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings: columns measured once, no merging, the printed candidates."""
        return {"first": 0.9 / 16, "second": 0.0, "threshold": 0.0, "fewest": 0.0, "as_printed": True}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.second and not self.first:
            raise SettingError("aim: a second measurement needs a first one; give first too, or set second to 0")

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Initialise, then select, measure and estimate until the budget is spent (Algorithm 2)."""
        declared, total = table.domain, table.rows_public
        columns = self._columns(declared)
        part = len(columns) / len(declared) if self.as_printed else 1.0  # Algorithm 3: alpha / T each
        asked = Workload.parse(self.workload, declared)  # columns that are given are measured elsewhere
        raw, stages, left, table = self.measure_columns(
            table, columns, rho=rho, part=part, again=asked.drawn, alike=asked.alike, progress=progress
        )
        domain = table.domain
        known = {r: weight for r, weight in self._cliques(domain).items() if table.can_measure(r)}
        weights = fit_into(domain, known, self._count_room(declared))
        cells = {r: domain.cells(r) for r in weights} if self.as_printed else _possible_cells(domain, weights)
        log = RoundLog(weights, stages, keep=self.bounds)
        measurements = re_express_all(declared, raw, table.recoding)
        fit_model = estimate_as_printed if self.loss == "printed" else estimate
        model = _uniform(domain, total) if not raw else fit_model(domain, measurements, total=total)
        share = (rho if self.anneal else left) / (self.rounds * len(domain))
        while left > 0:
            if left <= (2 if self.anneal else 1.5) * share:  # Algorithm 4, line 8: too little for two more rounds
                share = left
            left = 0.0 if share == left else left - share
            noise = table.expected_noise(self.measured * share)
            candidates = self._candidates(
                domain, weights, cells, measurements, noise, model.total, 1 - left / rho if self.growing else 1.0
            )
            offsets = {r: (noise if self.score == "expected" else 1.0) * cells[r] for r in candidates}
            before = model.project_many(candidates)
            selection = table.select(  # line 14
                candidates,
                against=before,
                weights=candidates,
                offsets=offsets,
                rho=(1 - self.measured) * share,
            )
            chosen = selection.clique
            measurements += table.measure([chosen], rho=self.measured * share)  # line 15
            log.add_round(Choice(selection, offsets), before=model, share=share / rho, measured=1)
            rough = _ROUND_TOLERANCES[model.size_mib < _MEDIUM_MIB]
            model = fit_model(domain, measurements, total=total, warm_start=model, tolerance=rough)  # line 16
            progress(Step("measure", 1 - left / rho, _describe_round(log.rounds, chosen, model)))
            if self.anneal and l1_distance(before[chosen], model.project(chosen)) <= noise * cells[chosen]:
                grown = share * 2**table.weight_power  # Algorithm 4: half the noise
                share = max(share, min(grown, left / self.fewest)) if self.fewest else grown
        kept = [*raw, *measurements[len(raw) :]]
        rounds = log.entries()
        if self.generator != "pgm":
            return self.conclude(table, kept, rounds=rounds, progress=progress)
        precise = _FINAL_TOLERANCES[model.size_mib < _SMALL_MIB]  # from scratch: a rough model is no better a start
        groups = NO_GROUPS if self.as_printed else table.code_groups
        measurements = re_express_all(declared, kept, table.recoding, groups, total=total)
        model = fit_model(domain, measurements, total=total, tolerance=precise, progress=progress)
        return Fit(model, kept, table.recoding, rounds, self.make_generator())

    def make_generator(self) -> Generator:
        """Return a graphical model, or gradual updates."""
        return Generator(self.generator, as_printed=self.as_printed, loss=self.loss)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of the junction tree and of the candidates' marginals."""
        cells = self._count_room(domain)
        tree = int(self.max_mib * (1 << 20))
        return Footprint(memory_bytes=4 * tree + 32 * cells + (64 << 20), disk_bytes=tree + 16 * cells + (1 << 20))

    def _count_room(self, domain: Domain) -> int:
        """Return the most cells of all candidates together; merging codes may add candidates."""
        declared = sum(map(domain.cells, self._cliques(domain)))
        most = sum(min(domain.cells(r), int(self.max_cells)) for r in Workload.parse(self.workload, domain).closure())
        return max(declared, min(most, _MOST_CELLS)) if self.threshold and self.first else declared

    def _cliques(self, domain: Domain) -> dict[Clique, float]:
        workload = Workload.parse(self.workload, domain)
        closure = workload.closure() if self.closure else dict(workload.weights)
        old = self.score == "cells"
        found = {r: 1.0 if old else w for r, w in closure.items() if len(r) == 1 or domain.cells(r) <= self.max_cells}
        if not found:
            raise SettingError("aim: every clique of the workload has more than max_cells cells; raise it")
        return found

    def _columns(self, domain: Domain) -> list[Clique]:
        named = {column for clique in Workload.parse(self.workload, domain) for column in clique}
        return [(column,) for column in domain if column in named]

    def _candidates(
        self,
        domain: Domain,
        weights: Mapping[Clique, float],
        cells: Mapping[Clique, float],
        measured: Sequence[Measurement],
        noise: float,
        total: float,
        spent: float,
    ) -> dict[Clique, float]:
        """Return the candidates that fit (line 13) and whose expected noise is at most 2 n, the largest error."""
        useful = {
            r: w
            for r, w in weights.items()
            if len(r) == 1 or self.score == "cells" or self.as_printed or noise * cells[r] <= 2 * total
        }
        return limit_cliques(domain, useful or weights, [m.clique for m in measured], self.max_mib * spent)


def _possible_cells(domain: Domain, cliques: Iterable[Clique]) -> dict[Clique, float]:
    """Return the number of cells of each clique that rules allow: the others stay empty, whatever their noise.

    Rules are taken to be independent: exact for cliques with one rule.
    """
    allowed = [(frozenset(rule.clique), 1 - float(rule.mask.mean())) for rule in domain.rules]
    return {r: domain.cells(r) * math.prod(share for columns, share in allowed if columns.issubset(r)) for r in cliques}


@dataclass(frozen=True)
class Choice:
    """A selection, with the values that error bounds need.

    Attributes:
        selection: the selection.
        offsets: the offset of each candidate.
        draws: the most selections of the round, if which of them is recorded depends on answers.
    """

    selection: Selection
    offsets: Mapping[Clique, float]
    draws: int = 1


class RoundLog:
    """The record of a run that error bounds need: plain data, one mapping per stage.

    A marginal, measured or not, is also bounded by the last selection that preferred another one (Theorem 4). That
    needs the model before that round, so a model is kept while some clique was last a candidate in its round.

    **Privacy.** Holds questions, noisy answers and models made from earlier answers; all of it is released.

    Args:
        weights: all cliques that can be candidates.
        stages: the number of measurements of each call before the first round, and their shares of the budget.
        keep: whether to keep models; without them, unmeasured marginals have no bound.
    """

    def __init__(
        self, weights: Mapping[Clique, float], stages: Iterable[tuple[int, float]] = (), *, keep: bool = True
    ) -> None:
        self._places = {clique: i for i, clique in enumerate(weights)}
        self._weights = np.array(list(weights.values()))
        self._keep = keep
        self._entries: list[dict[str, Any]] = [{"measured": count, "share": share} for count, share in stages]
        self._last: dict[int, int] = {}

    @property
    def rounds(self) -> int:
        """The number of selections."""
        return sum("chosen" in entry for entry in self._entries)

    def add_round(
        self,
        choice: Choice | None,
        *,
        before: GraphicalModel,
        share: float,
        measured: int,
    ) -> None:
        """Add a round: a selection and the measurements after it, the last of which is of the selected clique.

        Args:
            choice: the selection, or the last of several; None if there was none. After the selection of the empty
                clique, nothing needs to be measured.
            before: the model that candidates were compared with.
            share: the round's part of the budget.
            measured: how many measurements were made.
        """
        entry: dict[str, Any] = {"measured": measured, "share": share}
        if choice is not None:
            places = np.array([self._places[clique] for clique in choice.offsets], np.int32)
            entry |= {
                "chosen": list(choice.selection.clique),
                "epsilon": choice.selection.epsilon,
                "sensitivity": choice.selection.sensitivity,
                "draws": choice.draws,
                "candidates": places,
                "offsets": np.array(list(choice.offsets.values())),
            }
            if self._keep:
                self._last |= dict.fromkeys(places.tolist(), len(self._entries))
                entry |= {"kind": before.kind, "model": before.to_arrays()}
        self._entries.append(entry)
        self._forget()

    def entries(self) -> list[dict[str, Any]]:
        """Return the record."""
        for number, entry in enumerate(self._entries):
            if "model" in entry:
                entry["last"] = np.array(sorted(p for p, at in self._last.items() if at == number), np.int32)
        first = {"cliques": [list(clique) for clique in self._places], "weights": self._weights}
        return [{**first, **entry} if number == 0 else entry for number, entry in enumerate(self._entries)]

    def _forget(self) -> None:
        needed = set(self._last.values())
        for number, entry in enumerate(self._entries):
            if "model" in entry and number not in needed:
                del entry["model"], entry["kind"]


def l1_distance(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    """Return the L1 distance between two arrays."""
    return float(np.abs(after - before).sum())


def fit_into(domain: Domain, weights: Mapping[Clique, float], room: int) -> dict[Clique, float]:
    """Return the cliques, smallest first, that have at most `room` cells together; single columns are always kept."""
    by_size = sorted(weights, key=lambda clique: (len(clique) > 1, domain.cells(clique)))
    ends = accumulate(map(domain.cells, by_size))
    kept = {clique for clique, end in zip(by_size, ends, strict=True) if len(clique) == 1 or end <= room}
    return {clique: weight for clique, weight in weights.items() if clique in kept}


def ablations() -> dict[str, dict[str, Any]]:
    """Return the paper's ablations as settings; for Laplace noise use delta 0, for bounded DP declare `rows`."""
    paper = AIM.paper_settings()
    return {
        "half and half": paper | {"measured": 0.5, "first": 0.5 / 16},
        "no initialisation": paper | {"first": 0.0},
        "old score": paper | {"score": "cells"},
        "fixed rounds": paper | {"anneal": False, "rounds": 1.0, "first": 0.1},
        "no closure": paper | {"closure": False},
        "relaxed projection": paper | {"generator": "rap"},
    }


def _uniform(domain: Domain, total: float | None) -> GraphicalModel:
    return GraphicalModel(domain, {}, total=float(total or 1.0))


def _describe_round(number: int, chosen: Clique, model: GraphicalModel) -> str:
    return f"round {number}: {' x '.join(chosen)}, model of {model.size_mib:.2g} MiB"
