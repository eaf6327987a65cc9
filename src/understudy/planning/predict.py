"""Predict the errors of a mechanism by running it through the gate on made-up rows of the schema.

**What is predicted.** A column, or a pair of columns, is covered if a measured marginal contains it. The prediction is
the mean absolute error of the model's counts, in rows, first over the cells of each covered column and then over the
columns; the same for covered pairs. Codes merged as too rare count as one cell.

**Size.** A wide table is represented by some of its columns, with few, some and many codes, and their part of the
budget; a long table by fewer rows with larger weights. The noise, the weighted number of rows and the number of codes
of a column, on which the errors depend, are those of the planned run.

**Privacy.** No private row is read and nothing is spent: the rows are made up, each trial has its own budget, and
nothing is written to a ledger or a file. The noise comes from a seeded generator, so that predictions are reproducible;
it protects nobody, and does not need to.
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
from understudy.accounting.calibrate import can_plan, certify_plan, takes_too_long
from understudy.accounting.charge import Charge
from understudy.accounting.neighbours import Neighbours
from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.gate.selection import merge_codes
from understudy.mechanism import make_mechanism
from understudy.mechanism.registry import setting_names
from understudy.model.fit import Fit
from understudy.planning.made_up import VARIED, Codes, MadeUpSource, made_up_codes
from understudy.schema import Recoding, Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.column import Coded

if TYPE_CHECKING:
    from understudy.metric import Score

Array = NDArray[np.float64]

COLUMNS, CODES, ROWS = 24, 250, 40_000
"""The largest made-up table: columns, codes of one column, and rows. Errors of pairs are underestimated if only some of
the columns are used: for `aim` on the real rows of Adult and Fire, 10 of 15 columns gave 0.83 times the error."""

MODEL_MIB = 0.5
"""The setting `max_mib` in trials, for mechanisms that have it: large models take minutes to fit. On the real rows of
Adult and Fire it changed the errors of `aim` by less than a tenth."""

TABLES, PAIRS = 3, 400
"""The number of made-up tables that a mechanism is tried on: fewer if they would have more than PAIRS pairs of columns
together, because the time grows with pairs. If the errors of three tables differ too much, it is tried on those of
`VARIED`, too. Errors are geometric means over tables."""

FEW = 3
"""A mechanism with at most this many rounds of measurements is fast, and is tried on one more table. For others, the
number of rounds is assumed to grow in proportion to the number of columns."""

SPREAD, UNSURE = 2.8, 3.0
"""The range of errors is the mean of their logarithm plus and minus SPREAD standard deviations, the 95 % prediction
interval for another table given six. Further tables are tried if its ends differ by more than the factor UNSURE."""

FACTOR = 1.5
"""The range around the errors of one or two made-up tables: the errors of all real tables that no constant was fitted
to were within this factor, except of `privbayes` (benchmarks/plan.md)."""

CLOSE = 1.25
"""A plan shows one number only if the ends of the range are within this factor of it, else the range."""

VISIBLE = 3.0
"""The number of standard deviations from which a group is distinguishable from noise."""

GROUPED = 20
"""The number of pairs of a numeric column and a grouping column whose group means are compared."""

MANY = 25
"""With more columns, the footprint of a mechanism that uses triples is computed for some of them and extrapolated."""

_CELL_BYTES = 12  # a cell of a table while it is read and coded: the text or number, and its code
_PROGRAM_BYTES = 200 << 20  # the code and libraries that a run loads
_CURVE_TABLES = 25


@dataclass(frozen=True)
class PlannedTable:
    """Public facts about the table whose release is planned.

    Attributes:
        content: the schema as text; tables with the same content and number of rows are equal.
        rows: about how many rows the table has.
        schema: what is public about the columns.
    """

    content: str
    rows: int
    schema: Schema = field(compare=False, repr=False)

    @classmethod
    def of(cls, schema: Schema, rows: int) -> PlannedTable:
        """Return a table of this schema with about this many rows."""
        return cls(str(schema.to_dict()), rows, schema)

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation, as the gate derives it from the schema."""
        unit = self.schema.privacy_unit
        return Neighbours(unit.column, unit.max_rows, self.schema.rows is not None)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The coded columns with more than one code; the first one if there is none."""
        every = dict(self.schema.domain)
        return {name: size for name, size in every.items() if size > 1} or dict([next(iter(every.items()))])

    @property
    def tables(self) -> int:
        """The number of made-up tables that every mechanism is tried on."""
        return max(1, min(TABLES, PAIRS // max(1, comb(min(len(self.sizes), COLUMNS), 2))))

    def choose_columns(self, most: int) -> tuple[Coded, ...]:
        """Return at most `most` columns: all, or some with few, some with medium and some with many codes."""
        columns = [column for column in self.schema.coded if not self.sizes.keys().isdisjoint(column.parts)]
        if len(columns) <= most:
            return tuple(columns)
        by_size = sorted(columns, key=lambda column: column.size)
        return tuple(by_size[int((i + 0.5) * len(by_size) / most)] for i in range(most))

    def trial_schema(self) -> Schema:
        """Return the schema of the made-up columns, without rules; columns have at most `CODES` codes."""
        chosen = self.choose_columns(COLUMNS)
        codes = Schema.from_domain({column.name: CODES for column in chosen}).columns
        return Schema(tuple(short if c.size > CODES else c for c, short in zip(chosen, codes, strict=True)))


@dataclass(frozen=True)
class Expected:
    """The expected errors of a mechanism.

    Attributes:
        one_way: the mean absolute error of a cell of one column, in rows.
        one_way_range: a range for the tables of this schema, estimated from the made-up ones; see `SPREAD`, `FACTOR`.
        two_way: the same for a pair of columns that a measured marginal covers; None if there is none.
        two_way_range: the range of `two_way`.
        group: the smallest group in one column that can be distinguished from noise: three standard deviations of
            its count, estimated from all measurements together.
        pair_group: the same for a group defined by two columns, from the measurements that cover them.
        pairs: about how many pairs of columns are covered.
        misplaced: the part of the rows in the wrong cell of a pair of columns, measured or not, on the made-up tables
            that every mechanism is tried on.
        numbers: the score of the metric `numbers`: the mean error of means and percentiles, overall and within groups,
            in standard deviations of the column; None where no column is numeric.
        statistics: for each numeric column of the trials, the mean absolute error of its mean, quartiles and 95th
            percentile, in standard deviations.
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
    """The results of the trials of a mechanism.

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
        """Return the 95th percentile of the errors of groups of about this size or more; infinite if there are none."""
        true, errors = self.pair_cells if pairs else self.column_cells
        about = errors[true >= people / 2]
        return float(np.quantile(about, 0.95)) if len(about) else math.inf


@lru_cache(maxsize=256)
def predict(mechanism: str, table: PlannedTable, budget: Budget, share: float = 1.0) -> Prediction:
    """Predict errors, memory and time of a mechanism with its default settings.

    Args:
        mechanism: its name; mechanisms of other packages are run in the same way.
        table: the table that is released.
        budget: what the run would spend.
        share: the part of the budget that the mechanism gets; discovery may have spent the rest.

    Raises:
        SettingError: for an unknown mechanism, or one that needs a delta above 0.
    """
    check_pure(mechanism, pure=budget.pure)
    trials = _run_trials(table, partial(_run_trial, mechanism, table, budget, share))
    ones, twos = _errors(trials)
    sigmas, pair_sigmas = ([sigma for trial in trials for sigma in trial.sigmas[order]] for order in (1, 2))
    pairs = round(float(np.mean([len(trial.errors[2]) for trial in trials])))
    scores = [trial.numbers for trial in trials if trial.numbers is not None]
    expected = Expected(
        one_way=_geometric_mean(ones),
        one_way_range=_range(ones),
        two_way=_geometric_mean(twos) if pairs else None,
        two_way_range=_range(twos) if pairs else None,
        group=VISIBLE * float(np.median(sigmas)),
        pair_group=VISIBLE * float(np.median(pair_sigmas)) if pairs else None,
        pairs=_extrapolate_pairs(pairs, len(trials[0].kept_codes), len(table.sizes)),
        misplaced=float(np.mean([trial.misplaced for trial in trials[: table.tables]])),
        numbers=float(np.mean([score.value for score in scores])) if scores else None,
        statistics=_mean_errors(scores),
    )
    fastest = min(trials, key=lambda trial: trial.seconds)
    return Prediction(
        expected,
        _memory(mechanism, table, trials[0]),
        fastest.seconds * _time_factor(fastest, table),
        np.concatenate([trial.column_cells for trial in trials], axis=1),
        np.concatenate([trial.pair_cells for trial in trials], axis=1),
    )


def _run_trials(table: PlannedTable, run: Callable[[int], _Trial]) -> list[_Trial]:
    """Run trials on made-up tables, and further ones if the first differ too much."""
    trials = [run(number) for number in range(table.tables)]
    if trials[0].rounds <= FEW and len(trials) < TABLES:
        trials.append(run(len(trials)))
    if len(trials) == TABLES and any(_vary_too_much(errors) for errors in _errors(trials)):
        trials += [run(number) for number in range(TABLES, TABLES + len(VARIED))]
    return trials


def _errors(trials: Sequence[_Trial]) -> tuple[list[float], list[float]]:
    """Return, for each trial, the mean error of its columns, and of its pairs if it covers any."""
    ones, twos = ([float(np.mean(trial.errors[order])) for trial in trials if trial.errors[order]] for order in (1, 2))
    return ones, twos


def _vary_too_much(errors: Sequence[float]) -> bool:
    """Return whether the errors differ too much between tables to be given as one number."""
    low, high = _range(errors) if errors else (1.0, 1.0)
    return high > UNSURE * low


def _geometric_mean(errors: Sequence[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(np.maximum(errors, 1e-9)))))


def _range(errors: Sequence[float]) -> tuple[float, float]:
    """Return the geometric mean less and plus `SPREAD` standard deviations; by `FACTOR` if there are one or two."""
    if len(errors) <= 2:
        return _geometric_mean(errors) / FACTOR, _geometric_mean(errors) * FACTOR
    spread = SPREAD * float(np.std(np.log(np.maximum(errors, 1e-9)), ddof=1))
    return _geometric_mean(errors) * math.exp(-spread), _geometric_mean(errors) * math.exp(spread)


def _mean_errors(scores: Sequence[Score]) -> dict[str, dict[str, float]]:
    """Return the mean absolute error over scores, by column and statistic."""
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
        errors: by order (1 or 2), the mean absolute error of each covered column or pair, over merged codes.
        sigmas: by order, the standard deviation of a cell estimated from all measurements together.
        misplaced: the part of the rows in the wrong cell, over all pairs.
        column_cells: true counts and errors of declared codes.
        pair_cells: the same of covered pairs.
        kept_codes: by column, the part of its codes that are left after merging.
        seconds: processor time.
        rounds: the number of rounds of measurements.
        order: the largest number of columns of a clique that was counted.
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


def _run_trial(name: str, planned: PlannedTable, budget: Budget, share: float, number: int) -> _Trial:
    """Run a mechanism through the gate on a made-up table."""
    schema, rows, source = _make_up(planned, number)
    source.counted.clear()  # of the mechanisms that were tried on these rows before
    mechanism = make_mechanism(name, **_settings(name, source))
    capacity = _trial_budget(mechanism, planned, budget, share, source.domain, uses_public=needs_public(name))
    budget = Budget.of(epsilon=capacity, delta=0) if budget.pure else Budget.of(rho=capacity)
    counter = _RoundCounter()
    table = PrivateTable(source, budget, noise=_SeededNoise(number), recorder=counter)
    started = time.process_time()
    fit = mechanism.fit(table, rho=float(budget.capacity))
    seconds = time.process_time() - started
    return _compare(fit, source, seconds, counter.rounds, _score_numbers(fit, schema, rows, mechanism.rare))


def _settings(mechanism: str, source: MadeUpSource) -> dict[str, Any]:
    """Return the settings of a trial: a public table if one is needed, and a smaller limit on the model's size."""
    names = setting_names(mechanism)
    return {name: value for name, value in {"public": source, "max_mib": MODEL_MIB}.items() if name in names}


def needs_public(mechanism: str) -> bool:
    """Return whether a mechanism uses a public table, which a plan assumes to resemble the private one."""
    return "public" in setting_names(mechanism)


@lru_cache(maxsize=4 * TABLES)
def _make_up(table: PlannedTable, number: int) -> tuple[Schema, Codes, MadeUpSource]:
    """Make up a table; return the schema of its columns, its rows, and the source that counts them."""
    schema, weight = table.trial_schema(), -(-table.rows // ROWS)
    axes = {column.name: column.ordinary for column in _numeric(schema)}
    unknown = [column.name for column in schema.coded if column.other_code is not None]
    rng, rows = np.random.default_rng(number), max(1, round(table.rows / weight))
    varied = (1.0, 1.0) if number < TABLES else VARIED[number - TABLES]
    codes = made_up_codes(rng, schema.domain, rows, axes=axes, unknown=unknown, varied=varied)
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
    """Return the columns of numbers and times, without numbers that may be codes."""
    return [c for c in schema.coded if isinstance(c, AxisColumn) and schema.code_groups.axis(c.name)]


def _score_numbers(fit: Fit, schema: Schema, real: Codes, rare: str | None) -> Score | None:
    """Compare synthetic rows with the made-up ones by the metric `numbers`; None if no column is numeric."""
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
    """Draw values of a numeric column, in units of its axis; NaN for missing and unknown cells."""
    there = codes < column.ordinary
    units: Array = column.axis.decode(np.where(there, codes, 0), rng, column.draw).astype(np.float64)
    units[~there] = np.nan
    return units


class _SeededNoise:
    """Seeded noise and selections with the gate's distributions; for made-up rows only.

    Rounding a normal number adds a variance of 1/12, which is subtracted first.
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
        """Select an index by the exponential mechanism, with Gumbel noise."""
        top = max(scores)
        gaps = np.array([float((top - score) * rate) for score in scores])
        return int(np.argmax(self._rng.gumbel(size=len(scores)) - gaps))


class _RoundCounter:
    """A recorder that counts rounds of measurements."""

    def __init__(self) -> None:
        self.rounds = 0

    def recall(self, charges: Sequence[Charge], recoding: Recoding) -> None:
        self.rounds += any(charge.what == "measure" for charge in charges)

    def record(self, charges: Sequence[Charge], answer: Any, recoding: Recoding) -> None:
        pass


def _trial_budget(
    mechanism: Any, table: PlannedTable, budget: Budget, share: float, domain: Domain, *, uses_public: bool
) -> float:
    """Return the budget of a trial, the part for its columns of that of the run: rho, or epsilon under pure DP.

    If measurements are fixed in advance, it is the share of those over these columns; otherwise each column has the
    same part. A mechanism that uses a public table knows its measurements of the trial's columns only.
    """
    weights: Mapping[Clique, float] = {} if uses_public else mechanism.plan(Domain(table.sizes))
    if not weights:
        weights = mechanism.plan(domain)
        return _run_budget(table, budget, share, weights) * len(domain) / len(table.sizes)
    power = 1 if budget.pure else 2
    inside = math.fsum(weight**power for clique, weight in weights.items() if all(c in domain for c in clique))
    whole = math.fsum(weight**power for weight in weights.values())
    return _run_budget(table, budget, share, weights) * inside / whole


def _run_budget(table: PlannedTable, budget: Budget, share: float, weights: Mapping[Clique, float]) -> float:
    """Return the budget of a run; for measurements fixed in advance, what the exact privacy curve lets them spend.

    With many measurements the curve depends only on the sum of their precisions, so it is computed for equal weights:
    a thousand times faster, and within 0.1 %.
    """
    capacity = share * float(budget.capacity)
    near = table.neighbours
    if not weights or share < 1 or not can_plan(budget, near):
        return capacity
    squares = math.fsum(weight**2 for weight in weights.values())
    if takes_too_long([math.sqrt(near.marginal_l2_squared * squares / (2 * capacity)) / w for w in weights.values()]):
        return capacity
    return _certify_rho(budget, near)


@lru_cache(maxsize=64)
def _certify_rho(budget: Budget, neighbours: Neighbours) -> float:
    tables: dict[Clique, float] = {(str(place),): 1.0 for place in range(_CURVE_TABLES)}
    return float(certify_plan(tables, budget, neighbours)[1].rho)


def _compare(fit: Fit, source: MadeUpSource, seconds: float, rounds: int, numbers: Score | None) -> _Trial:
    """Compare a model with the made-up rows that it was fitted to."""
    domain, maps = source.domain, fit.recoding.maps
    everything = [*((column,) for column in domain), *combinations(domain, 2)]
    order = max((len(clique) for clique in source.counted), default=1)
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
    """Spread the counts of merged codes evenly over the original codes."""
    for axis, codes in enumerate(axes):
        if codes is not None:
            shape = [1] * table.ndim
            shape[axis] = len(codes)
            table = table.take(codes, axis=axis) / np.bincount(codes)[codes].reshape(shape)
    return table


def _sigmas(fit: Fit, domain: Domain, order: int) -> dict[Clique, float]:
    """Return the standard deviation of a cell of each covered column or pair, from all measurements together.

    A measurement of more columns contributes sums of its cells; the variance of a sum is that of all its terms.
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


def _extrapolate_pairs(pairs: int, tried: int, columns: int) -> int:
    """Extrapolate the number of covered pairs from the made-up columns to all columns.

    Few pairs grow in proportion to the columns, many in proportion to all pairs. Exact in both extremes: a tree of n
    columns has n - 1 pairs, and a mechanism that measures all pairs of some columns measures all pairs of all.
    """
    if pairs == 0 or tried == columns:
        return pairs
    part = pairs / comb(tried, 2)
    return round(float(pairs * (columns - 1) / (tried - 1) * (columns / tried) ** (part**4)))


def _time_factor(trial: _Trial, table: PlannedTable) -> float:
    """Return the time of a run divided by that of its trial, from the numbers of marginals, rounds and rows."""
    tried, columns = len(trial.kept_codes), len(table.sizes)
    tables = comb(columns, min(trial.order, tried)) / comb(tried, min(trial.order, tried))
    rounds = columns / tried if trial.rounds > FEW else 1.0
    return tables * rounds * max(1.0, table.rows / ROWS / 4)


def _memory(mechanism: str, table: PlannedTable, trial: _Trial) -> int | None:
    """Return the memory of the mechanism over merged codes, of the rows and of the program; None if it refuses.

    Columns that were not made up are assumed to keep the same part of their codes as the next smaller column. For
    mechanisms that use triples, the footprint of some columns is extrapolated to all of them.
    """
    sizes = table.sizes
    by_size = sorted((sizes[name], part) for name, part in trial.kept_codes.items() if name in sizes)
    some = [name for column in table.choose_columns(MANY) for name in column.parts if name in sizes]
    left = {
        name: max(
            2, round(sizes[name] * [part for size, part in by_size if size <= max(sizes[name], by_size[0][0])][-1])
        )
        for name in (some if trial.order > 2 else sizes)
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
