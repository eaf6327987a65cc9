"""Worst-case pairs of neighbouring tables, and runs of a mechanism on both: what an audit is made of.

The tables are made up and tiny, so an audit reads no data and may be published. Which pair is the worst depends on the
mechanism: trial runs decide, by the divergence of the exact likelihood ratio on each pair, and are then discarded.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.accounting import Budget, Neighbours, Receipt
from understudy.accounting.calibrate import certify_plan
from understudy.domain import Clique, Domain
from understudy.errors import InternalError, SettingError, UnderstudyError
from understudy.measurement import combine
from understudy.mechanism import Fit, Mechanism, make_mechanism
from understudy.mechanism.registry import setting_names
from understudy.progress import Progress, silent
from understudy.schema import Schema
from understudy.testing.likelihood import KnownPair, WatchedTable
from understudy.testing.tables import CodedSource
from understudy.yaml_json import read_json

Watched = TypeVar("Watched", bound=WatchedTable)

_CLOSE = 0.85
"""Pairs whose divergence is at least this part of the largest are about as good."""

_HALF = 100
"""The least number of rows of each kind in the pair `tie`: no mechanism merges a code then, at usual budgets."""


@dataclass(frozen=True)
class Pair:
    """Two neighbouring tables: with and without the rows of one unit, the target.

    Attributes:
        name: what it is called in results.
        sizes: the columns and their numbers of codes.
        others: the rows of everybody else.
        target: the codes of the unit's rows.
        instead: where the number of rows is public: the row that the target takes the place of.
    """

    name: str
    sizes: Mapping[str, int]
    others: Sequence[Sequence[int]]
    target: Sequence[int]
    instead: Sequence[int]

    def tables(self, *, max_rows: int, rows_public: bool) -> KnownPair:
        """Return the two tables, as the gate reads them; a unit of k rows has k copies."""
        mine, away = [list(self.target)] * max_rows, [list(self.instead)] * max_rows
        rows = list(map(list, self.others))
        number = len(rows) + max_rows if rows_public else None
        absent = rows + (away if rows_public else [])
        made = [CodedSource(self.sizes, r, max_rows=max_rows, rows_public=number) for r in (absent, rows + mine)]
        return KnownPair(made[0], made[1])


def worst_pairs(budget: Budget) -> list[Pair]:
    """Return the pairs that are tried.

    - *lone*: hardly anybody else is in the table; the target is alone in a cell of every marginal.
    - *tie*: two large groups; the pairs of columns are equally dependent, and the target tips the scales: choices tell
      as much as counts. The noise of single columns cancels.
    - *crowd*: everybody else has the same codes, so the target moves each measure of dependence as far as one row can.
    - *link*: the same, but the target moves the dependence of one pair of columns alone, and with it choices.
    - *parity*: the sets of three columns are equally far from independent, and the target tips the scales.

    The target's codes differ between columns: noise that is used twice then cancels in a difference.
    """
    four, three = dict.fromkeys("abcd", 2), dict.fromkeys("abc", 2)
    sigma = math.sqrt(3 / (2 * float(budget.rho)))
    half = max(_HALF, math.ceil(15 * sigma))
    return [
        Pair("lone", four, [(0, 0, 0, 0)] * 5, (1, 0, 1, 0), (0, 1, 0, 1)),
        Pair("tie", three, [(0, 0, 0)] * half + [(1, 1, 1)] * half, (0, 0, 1), (1, 1, 0)),
        Pair("crowd", three, [(0, 0, 1)] * (4 * half), (1, 1, 0), (0, 0, 1)),
        Pair("link", three, [(0, 0, 0)] * (4 * half), (1, 1, 0), (0, 0, 0)),
        Pair(
            "parity", four, [(0, 0, 0, 0), (0, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 0)] * half, (0, 0, 0, 1), (0, 0, 1, 0)
        ),
    ]


@dataclass(frozen=True)
class Setup:
    """A mechanism and a budget under audit; plain data, so that a second process can be given the same.

    Attributes:
        mechanism: its name in the registry.
        settings: its settings.
        budget: `epsilon` and `delta`, or `rho`.
        max_rows: rows of one unit.
        rows_public: whether the number of rows is public, so that neighbours replace a unit.
        pair: the name of the pair, once it is chosen.
        features: what the learned statistic looks at: measured tables and their numbers of cells, once they are known.
    """

    mechanism: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, float] = field(default_factory=lambda: {"epsilon": 1.0, "delta": 1e-2})
    max_rows: int = 1
    rows_public: bool = False
    pair: str = ""
    features: Sequence[tuple[Sequence[str], int]] = ()


STATISTICS = ("likelihood", "model", "rows", "total", "learned")
"""The statistics by which an audit tries to tell the tables apart."""

VALUE, UNPAID, MODEL, ROWS, TOTAL = range(5)
"""The places of a run's numbers; what the learned statistic looks at follows."""

LOOK_EVERY = 5
"""The model is fitted, and its rows drawn, in one of so many pairs, where that can be left out: it takes most of the
time of many mechanisms, and asks the gate nothing."""


class Bench:
    """A mechanism ready to run on one pair.

    Args:
        setup: what is under audit.
        pair: the tables.
        made: the mechanism itself, where it is no registered one.

    Raises:
        SettingError: for a mechanism or a setting that is unknown or does not fit the audit's tables.
    """

    def __init__(self, setup: Setup, pair: Pair, made: Mechanism | None = None) -> None:
        self.setup, self.pair = setup, pair
        self.tables = pair.tables(max_rows=setup.max_rows, rows_public=setup.rows_public)
        budget = Budget.of(**setup.budget)
        self.mechanism = (made or self._make()).prepare(Schema.from_domain(dict(pair.sizes)))
        if budget.pure and not self.mechanism.pure:
            raise SettingError(f"{self.mechanism.name} needs Gaussian noise: give a delta above 0")
        unit = None if setup.max_rows == 1 else "unit"
        self.neighbours = Neighbours(unit, setup.max_rows, setup.rows_public)
        self.plan, self.budget = certify_plan(self.mechanism.plan(Domain(pair.sizes)), budget, self.neighbours)

    def _make(self) -> Mechanism:
        settings = dict(self.setup.settings)
        if "public" in setting_names(self.setup.mechanism) and "public" not in settings:
            settings["public"] = CodedSource(self.pair.sizes, self.pair.others)  # a made-up table is nobody's
        return make_mechanism(self.setup.mechanism, **settings)

    def open(self, present: bool, kind: type[Watched]) -> Watched:
        """Return the table with the target or without it, behind a gate of this kind."""
        source = self.tables.present if present else self.tables.absent
        return kind(source, self.budget, pair=self.tables, plan=self.plan)

    def fit(self, table: WatchedTable, progress: Progress = silent) -> Fit:
        """Run the mechanism on a table, with the whole budget."""
        return self.mechanism.fit(table, rho=float(self.budget.capacity), progress=progress)

    def run(self, present: bool, *, look: bool = True) -> tuple[WatchedTable, Fit | Exception]:
        """Run once with fresh noise, on the table with the target or without it.

        Args:
            present: on the table with the target.
            look: whether the model will be looked at; otherwise it may not be fitted yet.

        Returns:
            The table with its answers, and the fit, or the error with which the run ended.
        """
        table = self.open(present, WatchedTable)
        mechanism = self.mechanism if look or not self._postpones else _postpone(self.mechanism)
        try:
            return table, mechanism.fit(table, rho=float(self.budget.capacity))
        except Exception as error:  # a run that fails is a result like any other: failing may depend on the target
            return table, error

    @cached_property
    def _postpones(self) -> bool:
        """Whether a run ends with `conclude`, as a trial shows; only then can the model wait."""
        if type(self.mechanism).conclude is not Mechanism.conclude:
            return False
        table = self.open(False, WatchedTable)
        try:
            fit: object = _postpone(self.mechanism).fit(table, rho=float(self.budget.capacity))
        except Exception:
            return False
        return isinstance(fit, _Postponed)

    def explore(self, runs: int) -> tuple[float, int]:
        """Return the mean divergence of a run's answers on the pair, and the number of kinds of questions.

        Raises:
            Exception: the mechanism's, if all runs fail.
        """
        seen = [self.run(bool(i % 2), look=False) for i in range(runs)]
        errors = [fit for _, fit in seen if isinstance(fit, Exception)]
        if len(errors) == len(seen):
            raise errors[0]
        asked = {charge.what for table, _ in seen for charge in table.account.charges}
        return float(np.mean([table.ratio.divergence for table, _ in seen])), len(asked)

    def receipt(self) -> Receipt:
        """Return the receipt of a run: of the one that paid for more questions, as a run may fail."""
        paid = [self.run(present, look=False)[0].account.charges for present in (False, True)]
        return Receipt(self.budget, max(paid, key=len), self.neighbours)

    def observe(self, present: bool, rng: np.random.Generator, *, look: bool = True) -> list[float]:
        """Return the numbers of one run: see `VALUE` and the following; no number where the model is not looked at."""
        table, fit = self.run(present, look=look)
        released = [math.nan] * 3
        if look:
            released = [-1.0] * 3 if isinstance(fit, Exception) else self._count_target(fit, rng)
        failed = float(isinstance(fit, Exception))
        return [table.ratio.value, table.ratio.unpaid, *released, failed, *self._features(table)]

    def _count_target(self, fit: Fit, rng: np.random.Generator) -> list[float]:
        """Return the count of the target's cell in the model and among drawn rows, and the number of rows."""
        codes = {
            column: int(fit.recoding.apply(column, np.array([code]))[0])
            for column, code in zip(self.pair.sizes, self.pair.target, strict=True)
        }
        found = fit.model.sample(max(1, round(fit.model.total)), rng)
        same = np.logical_and.reduce([np.asarray(found[column]) == code for column, code in codes.items()])
        return [_expect(fit, codes), float(same.sum()), float(fit.model.total)]

    def _features(self, table: WatchedTable) -> Iterator[float]:
        """Return the number of measurements, and every measured cell: the mean of several, 0 where there is none.

        These are the gate's answers; only those to the questions of the trial runs.
        """
        measured: dict[tuple[Clique, int], list[Any]] = {}
        for one in table.answers:
            measured.setdefault((one.clique, len(one.values)), []).append(one)
        yield float(len(table.answers))
        for clique, cells in self.setup.features:
            several = measured.get((tuple(clique), cells))
            yield 0.0 if several is None else 1.0
            yield from [0.0] * cells if several is None else combine(several)[0].tolist()

    def find_features(self, runs: int) -> list[tuple[Clique, int]]:
        """Return the tables that are measured in some of a few runs, with their numbers of cells."""
        seen: dict[tuple[Clique, int], None] = {}
        for i in range(runs):
            for one in self.run(bool(i % 2), look=False)[0].answers:
                seen.setdefault((one.clique, len(one.values)))
        return list(seen)

    def pairs(self, count: int) -> NDArray[np.float64]:
        """Return the numbers of this many pairs of runs: by pair, table (without and with the target) and number."""
        rng = np.random.default_rng()
        looks = [i % LOOK_EVERY == 0 for i in range(count)]
        return np.array([[self.observe(present, rng, look=look) for present in (False, True)] for look in looks])


class _Postponed:
    """A fit that is made when it is first looked at."""

    def __init__(self, make: Callable[[], Fit]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        made = self.__dict__.setdefault("_made", self._make())
        return getattr(made, name)


def _postpone(mechanism: Mechanism) -> Mechanism:
    """Return the same mechanism, whose final `conclude` is postponed until the fit is looked at."""
    waiting = copy(mechanism)
    object.__setattr__(waiting, "conclude", lambda *a, **given: _Postponed(lambda: mechanism.conclude(*a, **given)))
    return waiting


def _expect(fit: Fit, codes: Mapping[str, int]) -> float:
    """Return the expected count of the cell that holds the target in all columns."""
    try:
        table = fit.model.project(tuple(codes))
    except UnderstudyError:  # a model without a joint table; its rows are looked at all the same
        return 0.0
    shape = [fit.model.domain[column] for column in codes]
    return float(np.asarray(table).reshape(shape)[tuple(codes.values())])


def choose_pair(setup: Setup, made: Mechanism | None = None, *, runs: int = 6) -> tuple[Bench, float]:
    """Return the pair on which the mechanism's answers differ most, by trial runs that are not used again.

    Of pairs that are about as good, the one on which it asks most kinds of questions: one on which nothing is chosen
    would say nothing about choices.

    Returns:
        The bench on this pair, and the divergence found there.
    """
    offered = [pair for pair in worst_pairs(Budget.of(**setup.budget)) if setup.pair in ("", pair.name)]
    if not offered:
        known = ", ".join(pair.name for pair in worst_pairs(Budget.of(**setup.budget)))
        raise SettingError(f"tables: {setup.pair!r} is unknown; the choices are {known}")
    benches, refused = [], None
    for pair in offered:
        try:
            benches.append(Bench(setup, pair, made))
        except SettingError as error:  # settings may name columns that a pair has not
            refused = error
    if not benches and refused is not None:
        raise refused
    found = [(*bench.explore(runs), bench) for bench in benches]
    close = _CLOSE * max(divergence for divergence, _, _ in found)
    divergence, _, best = max((one for one in found if one[0] >= close), key=lambda one: (one[1], one[0]))
    chosen = replace(setup, pair=best.pair.name, features=best.find_features(2 * runs))
    return Bench(chosen, best.pair, made), divergence


# -- Many pairs of runs, in this process or in several. Not through `multiprocessing`: it would start a caller's own
# script again.


BATCH_SECONDS = 2.0


class Workers:
    """Processes that each run pairs on the same bench, or this process alone.

    Args:
        bench: what to run; processes make their own from its setup.
        jobs: how many processes; 1 stays here.
    """

    def __init__(self, bench: Bench, jobs: int) -> None:
        self._bench = bench
        self._processes = [] if jobs == 1 else [_start(bench.setup) for _ in range(jobs)]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def batches(self, pairs: int, size: int) -> Iterator[NDArray[np.float64]]:
        """Yield the statistics of this many pairs, in batches as they are ready.

        Raises:
            InternalError: if a process fails.
        """
        sizes = [size] * (pairs // size) + ([pairs % size] if pairs % size else [])
        if not self._processes:
            yield from map(self._bench.pairs, sizes)
            return
        todo: SimpleQueue[int] = SimpleQueue()
        done: SimpleQueue[NDArray[np.float64] | None] = SimpleQueue()
        for one in sizes:
            todo.put(one)
        for process in self._processes:
            Thread(target=_feed, args=(process, todo, done), daemon=True).start()
        for _ in sizes:
            batch = done.get()
            if batch is None:
                raise InternalError("a process of the audit ended early; run it again with --jobs 1")
            yield batch


def _start(setup: Setup) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "understudy.testing.pairs", json.dumps(asdict(setup))]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)


def _feed(process: subprocess.Popen[str], todo: SimpleQueue[int], done: SimpleQueue[Any]) -> None:
    if process.stdin is None or process.stdout is None:
        return
    while not todo.empty():
        size = todo.get()
        try:
            process.stdin.write(f"{size}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError):
            line = ""
        done.put(np.array(read_json(line)) if line else None)
        if not line:
            return


def main() -> None:
    """Run pairs of the setup that the command line gives: as many as each line of input says."""
    setup = Setup(**read_json(sys.argv[1]))
    pair = next(one for one in worst_pairs(Budget.of(**setup.budget)) if one.name == setup.pair)
    bench = Bench(setup, pair)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(bench.pairs(int(line)).tolist()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
