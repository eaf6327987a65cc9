"""What to expect of a mechanism: the mechanism itself, run through the gate on made-up rows of the schema.

**What is predicted.** A column, or a pair of columns, is covered when some measured table holds it. Of every covered
column the mean absolute error of its cells in the released model, in rows, and the mean over these columns; the same of
every covered pair. Codes merged as too rare are one cell.

**Size.** A wide table is tried with a few of its columns, of few, some and many codes, and the part of the budget that
falls to them; a long one with fewer rows that each stand for several. The noise, the number of rows and
the number of codes of a column are then those of the run that is planned, which is what errors follow from.

**Privacy.** Nothing is read and nothing is spent: the rows are made up, each trial has a budget of its own, and no
ledger, journal or file hears of it. Noise comes from a seeded generator that belongs to the trial, so that the same
question gets the same answer; it protects nobody, and there is nobody to protect.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.accounting import Budget
from understudy.accounting.calibrate import can_plan, certified_plan, takes_too_long
from understudy.accounting.charge import Charge
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.gate.selection import merge_codes
from understudy.mechanism import make_mechanism
from understudy.mechanism.registry import MECHANISMS, mechanism_classes, setting_names
from understudy.model.fit import Fit
from understudy.planning.made_up import Codes, MadeUpSource, made_up_codes
from understudy.schema import Recoding, Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.column import Coded

if TYPE_CHECKING:
    from understudy.metric import Score

Array = NDArray[np.float64]

COLUMNS, CODES, ROWS = 24, 250, 40_000
"""The largest table that is made up: columns, codes of one column, and rows. Part of the columns have too small errors
of pairs: on the real rows of Adult and Fire, 10 of 15 columns gave `aim` 0.83 of them."""

MODEL_MIB = 0.5
"""The setting `max_mib` of mechanisms that have one, while they are tried: large models take minutes to fit. On the
real rows of Adult and Fire it changed the errors of `aim` by less than a tenth."""

TABLES, PAIRS = 3, 400
"""On how many made-up tables mechanisms are tried: on fewer where these have more than so many pairs of columns
together, with which the time grows; on twice as many where they differ too much for one number. Errors are the
geometric mean over tables."""

FEW = 3
"""A mechanism that measures at most so often is quick, and tried on one table more. One that measures more often does
so as many times more often as there are more columns."""

SPREAD, UNSURE = 2.8, 3.0
"""The range of errors: so many standard deviations of the logarithm to both sides, the 95 % prediction interval of a
further table given six. A plan shows it instead of one number if its ends differ by more than the second factor."""

VISIBLE = 3.0
"""The number of standard deviations from which a group is distinguishable from noise."""

GROUPED = 20
"""So many means of a numeric column by a column of groups are compared."""

MANY = 25
"""Columns above which the footprint of a mechanism with tables of three columns is worked out for a part of them."""

_CELL_BYTES = 12  # a cell of a table while it is read and coded: the text or number, and its code
_PROGRAM_BYTES = 200 << 20  # the code and libraries that a run loads
_CURVE_TABLES = 25


@dataclass(frozen=True)
class PlannedTable:
    """The table of which a release is planned: what is public about it.

    Attributes:
        content: the schema as text; tables are equal if it and the number of rows are.
        rows: about how many rows the table has.
        schema: what is public about the columns.
    """

    content: str
    rows: int
    schema: Schema = field(compare=False, repr=False)

    @classmethod
    def of(cls, schema: Schema, rows: int) -> PlannedTable:
        """A table of this schema with about so many rows."""
        return cls(str(schema.to_dict()), rows, schema)

    @property
    def neighbours(self) -> Neighbours:
        """Who is protected, as the gate takes it from the schema."""
        unit = self.schema.privacy_unit
        return Neighbours(unit.column, unit.max_rows, self.schema.rows is not None)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The coded columns with more than one code; the first one if there is none."""
        every = dict(self.schema.domain)
        return {name: size for name, size in every.items() if size > 1} or dict([next(iter(every.items()))])

    @property
    def tables(self) -> int:
        """How many made-up tables every mechanism is tried on."""
        return max(1, min(TABLES, PAIRS // max(1, comb(min(len(self.sizes), COLUMNS), 2))))

    def choose_columns(self, most: int) -> tuple[Coded, ...]:
        """At most `most` columns: all, or a choice of columns with few, some and many codes."""
        columns = [column for column in self.schema.coded if not self.sizes.keys().isdisjoint(column.parts)]
        if len(columns) <= most:
            return tuple(columns)
        by_size = sorted(columns, key=lambda column: column.size)
        return tuple(by_size[int((i + 0.5) * len(by_size) / most)] for i in range(most))

    def trial_schema(self) -> Schema:
        """The columns that are made up, without rules; one of very many codes becomes one of `CODES` unordered ones."""
        chosen = self.choose_columns(COLUMNS)
        codes = Schema.from_domain({column.name: CODES for column in chosen}).columns
        return Schema(tuple(short if c.size > CODES else c for c, short in zip(chosen, codes, strict=True)))


@dataclass(frozen=True)
class Expected:
    """What to expect of a mechanism.

    Attributes:
        one_way: the mean absolute error of a cell of one column, in rows.
        one_way_range: where 95 of 100 tables of this schema would be, by the made-up ones.
        two_way: the same for a pair of columns that some measured table covers; None where there is none.
        two_way_range: the same range for it.
        group: the smallest group in one column that stands out from noise: three standard deviations of what all
            tables together say of it.
        pair_group: the same for a group of two columns, by the tables that cover them.
        pairs: about how many pairs of columns measured tables cover.
        misplaced: the part of the rows in the wrong cell of a pair of columns, measured or not, on the made-up tables
            that every mechanism is tried on.
        numbers: the score of the metric `numbers`: the mean error of means and percentiles, overall and within groups,
            in standard deviations of the column; None where no column is numeric.
        statistics: by numeric column that was tried, the mean absolute error of its mean, quartiles and 95th percentile
            in standard deviations.
    """

    one_way: float
    one_way_range: tuple[float, float]
    two_way: float | None
    two_way_range: tuple[float, float] | None
    group: float
    pair_group: float | None
    pairs: int
    misplaced: float
    numbers: float | None = None
    statistics: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Prediction:
    """What the trials of a mechanism showed.

    Attributes:
        expected: the errors.
        memory_bytes: the most memory that a run may need, rows and program included; None where the mechanism refuses
            the columns.
        seconds: about how long it takes on one core of this machine.
        column_cells: true counts and absolute errors of single codes.
        pair_cells: the same of cells of covered pairs.
    """

    expected: Expected
    memory_bytes: int | None
    seconds: float
    column_cells: Array
    pair_cells: Array

    def error_of_groups(self, people: float, *, pairs: bool = False) -> float:
        """The error that 95 of 100 groups of at least about this size do not exceed; infinite where there are none."""
        true, errors = self.pair_cells if pairs else self.column_cells
        about = errors[true >= people / 2]
        return float(np.quantile(about, 0.95)) if len(about) else math.inf


@lru_cache(maxsize=256)
def predict(mechanism: str, table: PlannedTable, budget: Budget, kept: float = 1.0) -> Prediction:
    """What to expect of a mechanism with its default settings.

    Args:
        mechanism: its name; one of another package is run just like ours.
        table: the table that is released.
        budget: what the run would spend.
        kept: the part of the budget that is not spent before the mechanism starts.

    Raises:
        SettingError: for an unknown mechanism, or one that needs a delta above 0.
    """
    check_pure(mechanism, pure=budget.pure)
    trials = _try(table, partial(_run, mechanism, table, budget, kept))
    ones, twos = _errors(trials)
    sigmas, pair_sigmas = ([sigma for trial in trials for sigma in trial.sigmas[order]] for order in (1, 2))
    pairs = round(float(np.mean([len(trial.errors[2]) for trial in trials])))
    scores = [trial.numbers for trial in trials if trial.numbers is not None]
    expected = Expected(
        one_way=_typical(ones),
        one_way_range=_range(ones),
        two_way=_typical(twos) if pairs else None,
        two_way_range=_range(twos) if pairs else None,
        group=VISIBLE * float(np.median(sigmas)),
        pair_group=VISIBLE * float(np.median(pair_sigmas)) if pairs else None,
        pairs=_all_pairs(pairs, len(trials[0].kept_codes), len(table.sizes)),
        misplaced=float(np.mean([trial.misplaced for trial in trials[: table.tables]])),
        numbers=float(np.mean([score.value for score in scores])) if scores else None,
        statistics=_mean_errors(scores),
    )
    fastest = min(trials, key=lambda trial: trial.seconds)
    return Prediction(
        expected,
        _memory(mechanism, table, trials[0]),
        fastest.seconds * _growth(fastest, table),
        np.concatenate([trial.column_cells for trial in trials], axis=1),
        np.concatenate([trial.pair_cells for trial in trials], axis=1),
    )


def _try(table: PlannedTable, run: Callable[[int], _Trial]) -> list[_Trial]:
    """Trials on made-up tables: on more of them where the first ones differ too much."""
    trials = [run(number) for number in range(table.tables)]
    if trials[0].rounds <= FEW and len(trials) < TABLES:
        trials.append(run(len(trials)))
    if len(trials) == TABLES and any(_differ(errors) for errors in _errors(trials)):
        trials += [run(number) for number in range(TABLES, 2 * TABLES)]
    return trials


def _errors(trials: Sequence[_Trial]) -> tuple[list[float], list[float]]:
    """By trial the mean error of its columns, and of its pairs where it covers any."""
    ones, twos = ([float(np.mean(trial.errors[order])) for trial in trials if trial.errors[order]] for order in (1, 2))
    return ones, twos


def _differ(errors: Sequence[float]) -> bool:
    """Whether tables differ too much for one number."""
    low, high = _range(errors) if errors else (1.0, 1.0)
    return high > UNSURE * low


def _typical(errors: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(np.maximum(errors, 1e-9)))))


def _range(errors: Sequence[float]) -> tuple[float, float]:
    """The geometric mean and `SPREAD` standard deviations to both sides; of one or two tables, the mean twice."""
    spread = SPREAD * float(np.std(np.log(np.maximum(errors, 1e-9)), ddof=1)) if len(errors) > 2 else 0.0
    return _typical(errors) * math.exp(-spread), _typical(errors) * math.exp(spread)


def _mean_errors(scores: Sequence[Score]) -> dict[str, dict[str, float]]:
    """By column and statistic, the mean over scores of its absolute error."""
    found: dict[str, dict[str, list[float]]] = {}
    for part in (part for score in scores for part in score.parts if part.kind == "error"):
        statistic, column = part.name.split(" of ", 1)
        found.setdefault(column, {}).setdefault(statistic, []).append(abs(part.value))
    return {
        column: {statistic: float(np.mean(errors)) for statistic, errors in by_statistic.items()}
        for column, by_statistic in found.items()
    }


def check_pure(mechanism: str, *, pure: bool) -> None:
    """Refuse a mechanism that cannot run under pure DP.

    Raises:
        SettingError: if the mechanism is unknown, or needs a delta above 0 and there is none.
    """
    if not make_mechanism(mechanism).pure and pure:
        raise SettingError(f"{mechanism} needs Gaussian noise: give a delta above 0 (pure DP is not possible with it)")


@dataclass(frozen=True, eq=False)
class _Trial:
    """One run on one made-up table.

    Attributes:
        errors: by order, the mean absolute error of each covered column or pair, codes merged.
        sigmas: by order, the standard deviation with which all tables together know a cell.
        misplaced: the part of the rows in the wrong cell, over all pairs.
        column_cells: true counts and errors of declared codes.
        pair_cells: the same of covered pairs.
        kept_codes: by column, the part of its codes that are left after merging.
        seconds: processor time.
        rounds: how often the mechanism measured.
        order: how many columns the largest table has that it asked about.
        numbers: the score of the metric `numbers`; None where no column is numeric.
    """

    errors: dict[int, list[float]]
    sigmas: dict[int, list[float]]
    misplaced: float
    column_cells: Array
    pair_cells: Array
    kept_codes: dict[str, float]
    seconds: float
    rounds: int
    order: int
    numbers: Score | None


def _run(name: str, planned: PlannedTable, budget: Budget, kept: float, number: int) -> _Trial:
    """Run a mechanism through the gate on a made-up table."""
    schema, rows, source = _make_up(planned, number)
    mechanism = make_mechanism(name, **_settings(name, source))
    capacity = _capacity(mechanism, planned, budget, kept, source.domain, chosen=not needs_public(name))
    budget = Budget.of(epsilon=capacity, delta=0) if budget.pure else Budget.of(rho=capacity)
    watch = _Watch()
    table = PrivateTable(source, budget, noise=_SeededNoise(number), recorder=watch)
    started = time.process_time()
    fit = mechanism.fit(table, rho=float(budget.capacity))
    seconds = time.process_time() - started
    return _compare(fit, source, seconds, watch.rounds, _score_numbers(fit, schema, rows, mechanism.rare))


def _settings(mechanism: str, source: MadeUpSource) -> dict[str, Any]:
    """Settings of a trial: a public table where one is needed, and a smaller limit where the model's size has one."""
    names = _setting_names(mechanism)
    return {name: value for name, value in {"public": source, "max_mib": MODEL_MIB}.items() if name in names}


def _setting_names(mechanism: str) -> list[str]:
    return setting_names(MECHANISMS.get(mechanism) or mechanism_classes().get(mechanism))  # the latter takes time


def needs_public(mechanism: str) -> bool:
    """Whether a mechanism has a setting `public`: a public table, which a plan takes to be like the private one."""
    return "public" in _setting_names(mechanism)


@lru_cache(maxsize=4 * TABLES)
def _make_up(table: PlannedTable, number: int) -> tuple[Schema, Codes, MadeUpSource]:
    """A made-up table: the schema of its columns, its rows, and the source that counts them."""
    schema, weight = table.trial_schema(), -(-table.rows // ROWS)
    axes = {column.name: column.ordinary for column in _numeric(schema)}
    unknown = [column.name for column in schema.coded if column.other_code is not None]
    rng, rows = np.random.default_rng(number), max(1, round(table.rows / weight))
    codes = made_up_codes(rng, schema.domain, rows, axes=axes, unknown=unknown)
    source = MadeUpSource(
        schema.domain,
        codes,
        weight=weight,
        unit=table.schema.privacy_unit,
        rows_public=table.schema.rows is not None,
        code_groups=schema.code_groups,
    )
    return schema, codes, source


def _numeric(schema: Schema) -> list[AxisColumn]:
    """The columns of numbers and times; numbers that may be codes are not among them."""
    return [c for c in schema.coded if isinstance(c, AxisColumn) and schema.code_groups.axis(c.name)]


def _score_numbers(fit: Fit, schema: Schema, real: Codes, rare: str | None) -> Score | None:
    """The score of the metric `numbers` of synthetic rows beside the made-up ones; None if no column is numeric."""
    if not (numeric := _numeric(schema)):
        return None
    from understudy.metric.numbers import Settings, numbers
    from understudy.metric.tables import Rows
    from understudy.release.rows import undo_merging

    rng = np.random.default_rng(0)
    drawn = fit.model.sample(len(next(iter(real.values()))), rng)
    synthetic = undo_merging(drawn, fit.recoding, schema, fit.measurements, rng, rare)
    one, other = (
        Rows(schema, dict(rows), {column.name: _draw_units(column, rows[column.name], rng) for column in numeric})
        for rows in (real, synthetic)
    )
    return numbers(one, other, schema, Settings(most=GROUPED), rng)


def _draw_units(column: AxisColumn, codes: NDArray[Any], rng: np.random.Generator) -> Array:
    """Values of a numeric column in units of its axis; NaN where a cell is missing or unknown."""
    there = codes < column.ordinary
    units: Array = column.axis.decode(np.where(there, codes, 0), rng, column.draw).astype(np.float64)
    units[~there] = np.nan
    return units


class _SeededNoise:
    """Noise of the gate's two laws, and its choices, from a seeded generator: for made-up rows alone.

    Rounding a normal number adds a variance of 1/12, which is taken off first.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng((1, seed))

    def gaussian(self, sigma: Any, size: Any) -> NDArray[np.int64]:
        spread = math.sqrt(max(float(sigma) ** 2 - 1 / 12, 0.0))
        drawn: NDArray[np.int64] = np.rint(spread * self._rng.standard_normal(size)).astype(np.int64)
        return drawn

    def laplace(self, scale: Any, size: Any) -> NDArray[np.int64]:
        stop = -math.expm1(-1 / float(scale))
        return np.asarray(self._rng.geometric(stop, size) - self._rng.geometric(stop, size), dtype=np.int64)

    def choose(self, scores: Sequence[int], rate: Fraction) -> int:
        """A choice of the exponential mechanism, by Gumbel noise."""
        top = max(scores)
        gaps = np.array([float((top - score) * rate) for score in scores])
        return int(np.argmax(self._rng.gumbel(size=len(scores)) - gaps))


class _Watch:
    """A recorder that counts how often a mechanism measures."""

    def __init__(self) -> None:
        self.rounds = 0

    def recall(self, charges: Sequence[Charge], recoding: Recoding) -> None:
        self.rounds += any(charge.what == "measure" for charge in charges)

    def record(self, charges: Sequence[Charge], answer: Any, recoding: Recoding) -> None:
        pass


def _capacity(
    mechanism: Any, table: PlannedTable, budget: Budget, kept: float, played: Domain, *, chosen: bool
) -> float:
    """What the made-up table's columns get of the budget: rho, or epsilon of a pure one.

    Measurements fixed in advance cost what they cost beside all others; else every column gets the same.
    """
    weights: Mapping[Clique, float] = mechanism.plan(Domain(table.sizes)) if chosen else {}
    if not weights:
        weights = mechanism.plan(played)
        return _whole(table, budget, kept, weights) * len(played) / len(table.sizes)
    power = 1 if budget.pure else 2
    inside = math.fsum(weight**power for clique, weight in weights.items() if all(c in played for c in clique))
    whole = math.fsum(weight**power for weight in weights.values())
    return _whole(table, budget, kept, weights) * inside / whole


def _whole(table: PlannedTable, budget: Budget, kept: float, weights: Mapping[Clique, float]) -> float:
    """The whole budget; of measurements fixed in advance, what the exact curve lets them spend.

    For many tables the curve depends on the sum of their precisions alone, so it is computed for tables of one weight:
    in a thousandth of the time, within a tenth of a percent.
    """
    capacity = kept * float(budget.capacity)
    near = table.neighbours
    if not weights or kept < 1 or not can_plan(budget, near):
        return capacity
    squares = math.fsum(weight**2 for weight in weights.values())
    if takes_too_long([math.sqrt(near.marginal_l2_squared * squares / (2 * capacity)) / w for w in weights.values()]):
        return capacity
    return _certified_rho(budget, near)


@lru_cache(maxsize=64)
def _certified_rho(budget: Budget, neighbours: Neighbours) -> float:
    tables: dict[Clique, float] = {(str(place),): 1.0 for place in range(_CURVE_TABLES)}
    return float(certified_plan(tables, budget, neighbours)[1].rho)


def _compare(fit: Fit, source: MadeUpSource, seconds: float, rounds: int, numbers: Score | None) -> _Trial:
    """Compare a model with the made-up rows it was made from."""
    domain, maps = source.domain, fit.recoding.maps
    everything = [*((column,) for column in domain), *combinations(domain, 2)]
    order = max((len(clique) for clique in source.asked), default=1)
    made = fit.model.project_many(everything)
    sigmas = {k: _sigmas(fit, domain, k) for k in (1, 2)}
    errors: dict[int, list[float]] = {1: [], 2: []}
    cells: dict[int, list[Array]] = {1: [], 2: []}
    wrong: list[float] = []
    for clique, counts in source.counts(everything):
        axes = [maps.get(column) for column in clique]
        estimate = made[clique].reshape(-1)
        true = merge_codes(counts, domain.shape(clique), [None] * len(clique)).astype(np.float64)
        error = np.abs(_unmerge(estimate.reshape(fit.model.domain.shape(clique)), axes).reshape(-1) - true)
        if len(clique) == 2 or len(domain) == 1:
            wrong.append(float(error.sum()) / (2 * source.rows))
        if clique in sigmas[len(clique)]:
            cells[len(clique)].append(np.stack([true, error]))
            merged_true = merge_codes(counts, domain.shape(clique), axes)
            errors[len(clique)].append(float(np.abs(estimate - merged_true).mean()))
    empty = np.zeros((2, 0))
    return _Trial(
        errors,
        {k: list(found.values()) for k, found in sigmas.items()},
        float(np.mean(wrong)),
        np.concatenate([empty, *cells[1]], axis=1),
        np.concatenate([empty, *cells[2]], axis=1),
        {column: fit.model.domain[column] / size for column, size in domain.items()},
        seconds,
        rounds,
        order,
        numbers,
    )


def _unmerge(table: Array, axes: Sequence[NDArray[np.int64] | None]) -> Array:
    """Spread merged cells evenly over the codes they were made of."""
    for axis, codes in enumerate(axes):
        if codes is not None:
            shape = [1] * table.ndim
            shape[axis] = len(codes)
            table = table.take(codes, axis=axis) / np.bincount(codes)[codes].reshape(shape)
    return table


def _sigmas(fit: Fit, domain: Domain, order: int) -> dict[Clique, float]:
    """By covered column or pair, the standard deviation with which all tables together know one of its cells.

    A table of more columns says of a pair what its cells sum up to: each sum has the variance of all its terms.
    """
    precision: dict[Clique, float] = {}
    recoded = fit.recoding.recode(domain)
    for measurement in fit.measurements:
        clique = domain.canonical(measurement.clique)
        coded = domain if domain.cells(clique) == len(measurement.values) else recoded
        for part in combinations(clique, order):
            terms = coded.cells(clique) / coded.cells(part)
            precision[part] = precision.get(part, 0.0) + measurement.sigma**-2 / terms
    return {part: known**-0.5 for part, known in precision.items()}


def _all_pairs(pairs: int, played: int, columns: int) -> int:
    """How many pairs would be covered of all columns: where few are, a number in step with the columns; else a part.

    Exact at both ends: a tree of n columns has n - 1 pairs, and who measures all pairs of some measures all of all.
    """
    if pairs == 0 or played == columns:
        return pairs
    part = pairs / comb(played, 2)
    return round(float(pairs * (columns - 1) / (played - 1) * (columns / played) ** (part**4)))


def _growth(trial: _Trial, table: PlannedTable) -> float:
    """How many times longer a run takes than its trial: by the tables it asks about, and by rounds."""
    played, columns = len(trial.kept_codes), len(table.sizes)
    tables = comb(columns, min(trial.order, played)) / comb(played, min(trial.order, played))
    rounds = columns / played if trial.rounds > FEW else 1.0
    return tables * rounds * max(1.0, table.rows / ROWS / 4)


def _memory(mechanism: str, table: PlannedTable, trial: _Trial) -> int | None:
    """The footprint of the mechanism over the codes that merging left, the rows, and the program.

    Columns that were not made up keep the part of their codes that the next smaller one kept. Mechanisms with tables of
    three columns have so many of them that a part of many columns is looked at.
    """
    sizes = table.sizes
    by_size = sorted((sizes[name], part) for name, part in trial.kept_codes.items() if name in sizes)
    chosen = [name for column in table.choose_columns(MANY) for name in column.parts if name in sizes]
    left = {
        name: max(
            2, round(sizes[name] * [part for size, part in by_size if size <= max(sizes[name], by_size[0][0])][-1])
        )
        for name in (chosen if trial.order > 2 else sizes)
    }
    more = comb(len(sizes), trial.order) / comb(len(left), trial.order) if trial.order > 2 else 1.0
    needed = _footprint(mechanism, tuple(left.items()))
    rows = _CELL_BYTES * table.rows * len(table.schema.domain)
    return None if needed is None else int(more * needed) + rows + _PROGRAM_BYTES


@lru_cache(maxsize=64)
def _footprint(mechanism: str, sizes: tuple[tuple[str, int], ...]) -> int | None:
    try:
        return make_mechanism(mechanism).footprint(Domain(dict(sizes))).memory_bytes
    except SettingError:
        return None
