"""How often the intervals of `Release.infer` hold the truth, how wide they are, and how often a true null is rejected.

    python benchmarks/inference.py run DATA RECORD --tables adult,fire --mechanisms mst --epsilons 0.5,1,4 --runs 100
    python benchmarks/inference.py show RECORD [RECORD ...]

`run` makes releases and asks each of them for some statistics, chosen at random: shares of values and of cells, means
of groups, differences, correlations, linear and logistic regressions. Every interval becomes a line of RECORD; runs
that it has are not made again, so that the command continues where it was stopped (`--minutes`). There are five kinds
of runs (`--kinds`):

    plain       the target is the table; what was measured is up to the mechanism
    keep        the columns of three analyses are measured together (`keep`, mst only); the target is the table
    population  as keep, from 10,000 rows drawn from the table; the target is the whole table
    shuffled    as population, after one column of each analysis was shuffled; tests that it has no effect
    chosen      as shuffled, but without `keep`; tests of every pair of a shuffled column that the mechanism chose

Mechanisms other than mst have no `keep`: what they measure of the analyses is up to them. The truth is computed from
the coded rows: a number counts as the mean of its bin. `show` prints, separately for relations that were measured, the
coverage; the root mean square of the true errors in standard errors, 1 if these are exact; the median width of the
intervals divided by the best possible width; and the share of rejected nulls. The best possible interval knows the true
values of the statistic's influence function and estimates its mean by weighted least squares over all measurements
(`best_error`; not where merged codes leave it undetermined). TUNING names the tables on which constants were chosen;
the others only check them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import argparse
import csv
import json
import math
import sys
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator
from copy import copy
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

import understudy as us
from numeric import drafted
from numeric import load as load_text
from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.schema.axis import AxisColumn

TUNING = ("adult", "nltcs", "salary")
CODED = {
    "adult": "aim/adult",
    "nltcs": "aim/nltcs",
    "salary": "aim/salary",
    "fire": "aim/fire",
    "titanic": "aim/titanic",
    "acs": "privbayes/acs",
    "stroke": "wide/stroke",
    "census": "nist2020/acs_temporal_match2",
}
DRAWN = dict.fromkeys(("stroke", "census", "sd2011", "diabetes"), 16)
"""Columns of at most 128 codes, drawn once, before anything was computed on these tables."""
MOST_ROWS = 20_000  # of drafted tables, for speed
FIELDS = (
    *("table", "mechanism", "epsilon", "kind", "run", "statistic", "measured", "asked", "term", "truth", "estimate"),
    *("se", "low", "high", "df", "p", "privacy", "sampling", "model", "correlation", "best"),
)
SAMPLE = 10_000
COMMON = 0.01
SETTINGS: dict[str, dict[str, Any]] = {
    "aim": {"max_mib": 0.5, "workload": "all-2way"},  # smaller models than by default, for speed
    "adaptive": {"max_mib": 2.0},
}
SOME = {"aim": 8, "adaptive": 8, "privsyn": 8}  # columns, drawn at random for each run, for speed


class Table:
    """A table, its schema, and its rows as coded: numbers are the means of their bins, other codes are empty."""

    def __init__(self, frame: pd.DataFrame, schema: us.Schema) -> None:
        self.frame, self.schema = frame, schema
        self._values = {column.name: _values(column) for column in schema.coded}
        encoded = schema.encode(frame)
        self._codes = {name: encoded.codes[name][encoded.keep] for name in self._values}
        self.rows = pd.DataFrame({name: values[self._codes[name]] for name, values in self._values.items()})
        self.listed = [c.name for c in self.schema.coded if not isinstance(c, AxisColumn) or _has_no_bins(c)]
        self.numbers = [c for c in self.rows if self.rows[c].dtype == float and self.rows[c].nunique() > 8]
        self.groups = [c for c in self.rows if 2 <= self.rows[c].nunique() <= 8 and self._is_even(c)]
        self.binary = [c for c in self.groups if self.rows[c].nunique() == 2]
        self.numbers = self.numbers or [c for c in self.binary if self.rows[c].dtype == float]
        self._shares: dict[tuple[str, ...], pd.Series] = {}

    def cells(self, columns: Clique) -> tuple[pd.DataFrame, np.ndarray]:
        """All combinations of codes of some columns: what they stand for, as in `rows`, and their true shares."""
        shape = self.schema.domain.shape(columns)
        place = np.ravel_multi_index([self._codes[c] for c in columns], shape)
        every = np.unravel_index(np.arange(math.prod(shape)), shape)
        frame = pd.DataFrame({c: self._values[c][codes] for c, codes in zip(columns, every, strict=True)})
        return frame, np.bincount(place, minlength=math.prod(shape)) / len(place)

    def truth(self, asked: str, columns: Clique, *, logistic: bool) -> Solved:
        """The true value and the influence function of each term of a statistic."""
        return solve(*self.cells(columns), asked, logistic=logistic)

    def common(self, columns: tuple[str, ...]) -> pd.Series:
        """The shares of the cells of some columns that are not rare."""
        if columns not in self._shares:
            shares = self.rows.groupby(list(columns)).size() / len(self.rows)
            self._shares[columns] = shares[shares >= COMMON]
        return self._shares[columns]

    @classmethod
    def load(cls, data: Path, name: str) -> Table:
        """Read one of the tables that are in use."""
        if name not in CODED:
            frame = load_text(data, name)
            schema = drafted(frame, wide=False)
            if name in DRAWN:
                small = [column for column, size in schema.domain.items() if size <= 128]
                drawn = np.random.default_rng(0).permutation(small)[: DRAWN[name]]
                frame = frame.iloc[np.random.default_rng(1).permutation(len(frame))[:MOST_ROWS]]
                return cls(frame.reset_index(drop=True), schema).select(drawn)
            return cls(frame, schema)
        sizes = json.loads((data / f"{CODED[name]}-domain.json").read_text())
        frame = pd.read_csv(data / f"{CODED[name]}.csv.gz")
        sizes = {k: v["domain"] if isinstance(v, dict) else v for k, v in sizes.items()}
        if name in DRAWN:
            small = [column for column, size in sizes.items() if size <= 128]
            drawn = np.random.default_rng(0).permutation(small)[: DRAWN[name]]
            sizes = {column: size for column, size in sizes.items() if column in drawn}
        frame.columns = [str(column) for column in frame.columns]
        frame = frame[list(sizes)].set_axis([_plain(c) for c in sizes], axis=1)
        return cls(frame, us.Schema.from_domain({_plain(c): size for c, size in sizes.items()}))

    def select(self, columns: Collection[str]) -> Table:
        """The same table with fewer columns."""
        table = copy(self)
        table.schema = replace(self.schema, columns=tuple(c for c in self.schema.columns if c.name in columns))
        for part in ("frame", "rows"):
            setattr(table, part, getattr(self, part)[[c for c in getattr(self, part) if c in columns]])
        for part in ("listed", "numbers", "groups", "binary"):
            setattr(table, part, [c for c in getattr(self, part) if c in columns])
        table.numbers = table.numbers or [c for c in table.binary if table.rows[c].dtype == float]
        return table

    def outcome(self, column: str) -> str:
        """A column of two values as a response: itself, or whether it has one of them if it has further codes."""
        if self.rows[column].dtype == float and self.schema.domain[column] == 2:
            return column
        value = max(self.rows[column].dropna().unique())
        return f"I({column} == {value:g})" if self.rows[column].dtype == float else f"I({column} == {value!r})"

    def _is_even(self, column: str) -> bool:
        """Whether no value of a column is so rare that it may be merged."""
        return bool(self.rows[column].value_counts(normalize=True).min() > 0.02)


def _values(column: Any) -> np.ndarray:
    """What each code of a column stands for; nothing for codes of missing and unknown values."""
    if isinstance(column, AxisColumn):
        numbers = np.full(column.size, np.nan)
        numbers[: column.ordinary] = column.axis.mean_values(column.draw) / column.per_unit
        return numbers
    return np.array([x if i < column.ordinary else None for i, x in enumerate(column.code_labels())], dtype=object)


def _has_no_bins(column: AxisColumn) -> bool:
    """Whether every code is a single value."""
    axis = column.axis
    return bool(axis.grain and (axis.spike | (axis.upper - axis.lower <= axis.grain)).all())


def _plain(name: str) -> str:
    """A name that needs no quotes in a formula."""
    text = "".join(c if c.isalnum() else "_" for c in name)
    return f"c{text}" if text[0].isdigit() else text


# Statistics: what is asked, the columns that have to be measured together, and the truth by term


def ask_shares(table: Table, columns: tuple[str, ...], rng: np.random.Generator, count: int) -> Iterator[Any]:
    """Shares of cells of at least 1 % of the rows, of columns whose codes are single values."""
    if not set(columns) <= set(table.listed):
        return
    shares = table.common(columns)
    for cell in rng.permutation(len(shares))[:count]:
        values = shares.index[cell] if len(columns) > 1 else (shares.index[cell],)
        if any(set(str(v)) & set('",') for v in values):  # which `solve` does not read
            continue
        query = ", ".join(f'{c}="{_level(v)}"' for c, v in zip(columns, values, strict=True))
        yield ("values" if len(columns) == 1 else "cells"), f"share({query})", columns


def ask_pair(table: Table, pair: tuple[str, str]) -> Iterator[Any]:
    one, two = pair
    if one in table.numbers and two in table.numbers:
        yield "correlations", f"corr({one}, {two})", pair
    for number, group in (pair, pair[::-1]):
        if number in table.numbers and group in table.groups and number != group:
            yield "group means", f"mean({number}) | {group}", pair
            yield "differences", f"{number} ~ C({group})", pair


def ask_triple(table: Table, triple: tuple[str, str, str]) -> Iterator[Any]:
    """Regressions on a number and a group, or two numbers."""
    response, one, two = triple
    term = f"C({two})" if two in table.groups and two not in table.numbers else two
    if response in table.numbers:
        yield "linear", f"{response} ~ {one} + {term}", triple
    if response in table.binary:
        yield "logistic", f"{table.outcome(response)} ~ {one} + {term}", triple


def choose_triples(
    table: Table,
    rng: np.random.Generator,
    count: int,
    pairs: Collection[tuple[str, str]] | None = None,
    *,
    binary: bool = False,
) -> list[tuple[str, str, str]]:
    """Responses with two predictors, small enough to be measured together; all of whose pairs are among those given.

    Responses are numbers and binary columns in turn; `binary` begins with the latter.
    """
    found: list[tuple[str, str, str]] = []
    domain = table.schema.domain
    if len(table.numbers) < 2:
        return found
    for _ in range(200):
        responses = table.binary if (len(found) + binary) % 2 and table.binary else table.numbers
        triple = (rng.choice(responses), rng.choice(table.numbers), rng.choice(table.groups or table.numbers))
        if len(set(triple)) < 3 or domain.cells(triple) > 20_000 or triple in found:
            continue
        if pairs is None or all(pair in pairs or pair[::-1] in pairs for pair in combinations(triple, 2)):
            found.append(tuple(map(str, triple)))
        if len(found) == count:
            break
    return found


Solved: TypeAlias = dict[str, tuple[float, np.ndarray]]
"""By term of a statistic, its true value and its influence function over the cells of the statistic's columns."""


def solve(cells: pd.DataFrame, shares: np.ndarray, asked: str, *, logistic: bool) -> Solved:
    """The true value of each term of a statistic, and what a row of each cell adds to it."""
    if "~" in asked:
        return _solve_regression(cells, shares, asked, logistic)
    function, _, rest = asked.partition("(")
    inner, _, group = rest.rpartition(")")
    group = group.strip(" |")
    if function == "share":
        inside = np.ones(len(cells), bool)
        for part in inner.split(", "):
            column, _, value = part.partition("=")
            known = cells[column]
            inside &= (known == float(value.strip('"'))) if known.dtype == float else (known == value.strip('"'))
        return {asked: _mean(inside.astype(float), shares, np.ones(len(cells)))}
    present = cells.notna().all(axis=1).to_numpy(float)
    if function == "mean":
        numbers = cells[inner].fillna(0.0).to_numpy(float)
        return {
            f"mean({inner}) | {group}={_level(level)}": _mean(numbers, shares, present * (cells[group] == level))
            for level in _levels(cells[group], shares * present)
        }
    scaled = []
    for name in (name.strip() for name in inner.split(",")):
        numbers = cells[name].fillna(0.0).to_numpy(float)
        mean = _mean(numbers, shares, present)[0]
        scaled.append((numbers - mean) / math.sqrt(_mean((numbers - mean) ** 2, shares, present)[0]))
    value, influence = _mean(scaled[0] * scaled[1], shares, present)
    squares = (scaled[0] ** 2 + scaled[1] ** 2 - 2) * present / float(shares @ present)
    return {asked: (value, influence - value / 2 * squares)}


def _mean(numbers: np.ndarray, shares: np.ndarray, inside: Any) -> tuple[float, np.ndarray]:
    """The mean of numbers over some of the cells, and its influence function."""
    part = np.asarray(inside, float)
    size = float(shares @ part)
    value = float(shares @ (numbers * part)) / size
    return value, (numbers - value) * part / size


def _levels(values: pd.Series, shares: np.ndarray) -> list[Any]:
    return sorted(values[(shares > 0) & values.notna().to_numpy()].unique())


def _level(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _solve_regression(cells: pd.DataFrame, shares: np.ndarray, asked: str, logistic: bool) -> Solved:
    response, _, right = asked.partition(" ~ ")
    response, _, value = response.removeprefix("I(").removesuffix(")").partition(" == ")
    terms, names = [np.ones(len(cells))], ["Intercept"]
    for term in right.split(" + "):
        if term.startswith("C("):
            for level in _levels(cells[term[2:-1]], shares)[1:]:
                terms.append((cells[term[2:-1]] == level).to_numpy(float))
                names.append(f"{term}[T.{_level(level)}]")
        else:
            terms.append(cells[term].fillna(0.0).to_numpy(float))
            names.append(term)
    present = cells.notna().all(axis=1).to_numpy(float)
    design, weights = np.column_stack(terms), shares * present
    known = cells[response]
    if value:
        known = (known.astype(str) == value.strip("'")) if value.startswith("'") else known == float(value)
    answer = known.fillna(0.0).to_numpy(float)
    values, chances = np.zeros(len(names)), np.zeros(len(cells))
    answer = (answer == answer.max()).astype(float) if logistic else answer
    for _ in range(30 if logistic else 1):
        chances = 1 / (1 + np.exp(-design @ values)) if logistic else chances
        slope = chances * (1 - chances) if logistic else np.ones(len(cells))
        inverse = np.linalg.pinv((design * (weights * slope)[:, None]).T @ design, hermitian=True)
        values = values + inverse @ (design.T @ (weights * (answer - chances)))
    rest = (answer - (1 / (1 + np.exp(-design @ values)) if logistic else design @ values)) * present
    influence = (inverse @ design.T) * rest
    return {name: (float(value), line) for name, value, line in zip(names, values, influence, strict=True)}


def best_error(table: Table, release: us.Release, columns: Clique, influence: np.ndarray, sampled: bool) -> float:
    """The standard error of the best linear unbiased estimate of a statistic whose influence function is known.

    Weighted least squares over all measurements, of which only the sums over the columns matter: the variance is
    `influence' M^-1 influence / rows^2` with M the sum of A'A / variance over the measurements, where A adds up cells.
    Conjugate gradients need few steps, since M has few different eigenvalues. NaN if the measurements do not determine
    the statistic: then no unbiased estimate exists.
    """
    declared, shape = table.schema.domain, table.schema.domain.shape(columns)
    weights: dict[tuple[tuple[str, ...], bool], float] = {}  # of measurements that say the same about the columns
    for measurement in release.measurements:
        before = len(measurement.values) == declared.cells(measurement.clique)
        domain = declared if before else release.model.domain
        inside = tuple(column for column in columns if column in measurement.clique)
        weight = domain.cells(inside) / (measurement.sigma**2 * len(measurement.values))
        weights[inside, before] = weights.get((inside, before), 0.0) + weight
    parts = []
    for (inside, before), weight in weights.items():
        domain = declared if before else release.model.domain
        place = np.zeros(shape, np.int64)
        for column in inside:
            codes = np.arange(declared[column]) if before else release.recoding.maps.get(column)
            codes = np.arange(declared[column]) if codes is None else codes
            others = [i for i, name in enumerate(columns) if name != column]
            place = place * domain[column] + np.expand_dims(codes, others)
        parts.append((place.reshape(-1), domain.cells(inside), weight))

    def apply(values: np.ndarray) -> np.ndarray:
        return sum((np.bincount(place, values, own)[place] * weight for place, own, weight in parts), np.zeros(1))

    found, rest = np.zeros(len(influence)), influence.astype(float)
    step, size = rest, float(rest @ rest)
    limit, largest = 1e-8 * size, max(weight for _, _, weight in parts)
    for _ in range(100):
        image = apply(step)
        curvature = float(step @ image)
        if size <= limit or curvature <= 1e-12 * float(step @ step) * largest:
            break
        pace = size / curvature
        found, rest = found + pace * step, rest - pace * image
        size, before_size = float(rest @ rest), size
        step = rest + size / before_size * step
    rows = len(table.frame) if not sampled else min(SAMPLE, len(table.frame))
    variance = float(influence @ found) / rows**2
    shares = table.cells(columns)[1]
    variance += float(shares @ influence**2) / rows if sampled else 0.0
    return math.sqrt(variance) if size <= limit else math.nan


# Runs


def choose(table: Table, release: us.Release, kept: list[tuple[str, str, str]], run: Run) -> Iterator[Any]:
    """What one release is asked: some statistics of each kind, of columns measured together and of others."""
    rng = np.random.default_rng(run.seed)
    cliques = [set(m.clique) for m in release.measurements]
    if run.kind == "chosen":
        for pair in combinations(table.schema.domain, 2):
            if any(set(pair) <= clique for clique in cliques) and set(pair) & {one for _, one, _ in kept}:
                yield from ask_pair(table, pair)
        return
    if kept:
        for triple in kept:
            yield from ask_triple(table, triple)
            for pair in combinations(triple, 2):
                yield from ask_pair(table, pair)
                yield from ask_shares(table, pair, rng, 2)
        return
    columns = list(table.schema.domain)
    pairs = [pair for pair in combinations(columns, 2) if all(c in table.rows for c in pair)]
    measured = [pair for pair in pairs if any(set(pair) <= clique for clique in cliques)]
    others = [pair for pair in pairs if pair not in set(measured)]
    for column in rng.permutation([c for c in columns if c in table.rows])[:4]:
        yield from ask_shares(table, (str(column),), rng, 1)
    for some in (measured, others):
        for place in rng.permutation(len(some))[:4]:
            yield from ask_shares(table, some[place], rng, 1)
        told = [asked for pair in some for asked in ask_pair(table, pair)]
        yield from (told[place] for place in rng.permutation(len(told))[:4])
    for known in (set(measured), None):
        for triple in choose_triples(table, rng, 1, known, binary=bool(run.number % 2)):
            yield from ask_triple(table, triple)


class Run(NamedTuple):
    """A release: of which table, how it was made, and its number."""

    table: str
    mechanism: str
    epsilon: float
    kind: str
    number: int

    @property
    def seed(self) -> int:
        """What the choice of statistics is seeded with."""
        return zlib.crc32(f"{self.mechanism} {self.epsilon} {self.kind} {self.number}".encode())

    @property
    def target(self) -> Literal["table", "population"]:
        """What the statistics are about."""
        return "table" if self.kind in ("plain", "keep") else "population"

    @property
    def null(self) -> bool:
        """Whether some columns were shuffled."""
        return self.kind in ("shuffled", "chosen")

    def choose_columns(self, table: Table) -> Table:
        """The table, or some of its columns for mechanisms that take long."""
        if self.mechanism not in SOME:
            return table
        rng = np.random.default_rng([self.seed, 2])
        return table.select(rng.permutation(list(table.schema.domain))[: SOME[self.mechanism]].tolist())

    def choose_analyses(self, table: Table) -> list[tuple[str, str, str]]:
        """The columns that are analysed together; none if what is asked depends on what was measured."""
        return [] if self.kind == "plain" else choose_triples(table, np.random.default_rng(self.seed), 3)


def make_once(table: Table, run: Run) -> us.Release:
    """Make the release of a run."""
    rng = np.random.default_rng([run.seed, 1])
    frame, kept = table.frame, run.choose_analyses(table)
    if run.target == "population":
        frame = frame.iloc[rng.choice(len(frame), min(SAMPLE, len(frame)))].reset_index(drop=True)
    if run.null:
        frame = frame.copy()
        for column in sorted({one for _, one, _ in kept}):
            frame[column] = frame[column].to_numpy()[rng.permutation(len(frame))]
    settings = dict(SETTINGS.get(run.mechanism, {}))
    if run.mechanism == "mst" and kept and run.kind != "chosen":
        settings["keep"] = list({frozenset(clique): clique for clique in kept}.values())
    with tempfile.TemporaryDirectory() as place:
        return us.synthesize(
            *(frame, table.schema),
            **{"epsilon": run.epsilon, "delta": 1e-9, "mechanism": run.mechanism},
            ledger=Path(place) / "ledger.sqlite",
            **settings,
        )


def ask_once(table: Table, run: Run, release: us.Release) -> Iterator[dict[str, Any]]:
    """Ask a release, and compare its answers with the truth."""
    kept = run.choose_analyses(table)
    cliques = [set(m.clique) for m in release.measurements]
    fixed = dict(zip(FIELDS, run, strict=False))
    for statistic, asked, columns in choose(table, release, kept, run):
        shuffled = {triple[1] for triple in kept} & set(columns) if run.null else set()
        if run.null and (not shuffled or statistic in ("cells", "values", "group means")):
            continue
        measured = any(set(columns) <= clique for clique in cliques)
        if statistic == "linear":
            measured = all(any(set(pair) <= clique for clique in cliques) for pair in combinations(columns, 2))
        line = fixed | {"statistic": statistic, "measured": int(measured), "asked": asked}
        try:
            family = {"linear": "gaussian", "differences": "gaussian", "logistic": "binomial"}.get(statistic)
            found = release.infer(asked, target=run.target, family=family)
        except SettingError as error:
            yield line | {"term": f"refused: {error}"[:90]}
            continue
        true: Solved = {}
        if not run.null:
            true = table.truth(asked, columns, logistic=statistic == "logistic")
        missed = next((w.split("missed correlation of ")[1].split(" ")[0] for w in found.warnings if "missed" in w), "")
        for part in found.lines:
            if part.estimate is None or part.term == "Intercept":
                continue
            if not _is_null(asked, part.term, shuffled) if run.null else part.term not in true:
                continue
            given = {name: getattr(part, name) for name in FIELDS[10:19]} | {"term": part.term, "correlation": missed}
            value, influence = true.get(part.term, (0.0, np.zeros(0)))
            best = math.nan
            if measured and len(influence):
                best = best_error(table, release, columns, influence, run.kind == "population")
            yield line | given | {"truth": value, "best": best}
        if run.null and statistic == "differences" and measured:
            yield line | {"statistic": "chi-square", "term": "chisq", "truth": 0.0, "p": _test(release, columns)}


def _is_null(asked: str, term: str, shuffled: Collection[str]) -> bool:
    """Whether a term has no effect: its column or the response was shuffled."""
    response, regression, _ = asked.partition(" ~ ")
    column = term[2:].partition(")")[0] if term.startswith("C(") else term
    return not regression or response in shuffled or column in shuffled


def _test(release: us.Release, columns: tuple[str, ...]) -> float | None:
    """The p-value of a test of independence; None if it is refused."""
    try:
        return release.infer(f"chisq({columns[0]}, {columns[1]})").lines[0].p
    except SettingError:
        return None


def make_and_ask(given: argparse.Namespace) -> None:
    """Make the wanted releases that the record does not have, one number after the other, and ask each of them."""
    done = set()
    if given.record.exists():
        with given.record.open() as file:
            done = {tuple(line[f] for f in FIELDS[:5]) for line in csv.DictReader(file)}
    else:
        given.record.write_text(",".join(FIELDS) + "\n")
    end = time.monotonic() + 60 * given.minutes
    tables: dict[str, Table] = {}
    names, mechanisms, kinds = given.tables.split(","), given.mechanisms.split(","), given.kinds.split(",")
    wanted = product(range(given.runs), names, mechanisms, map(float, given.epsilons.split(",")), kinds)
    for number, name, *setting in wanted:
        run = Run(name, *setting, number)
        if tuple(map(str, run)) in done:
            continue
        if time.monotonic() > end:
            sys.exit("out of time; the same command continues")
        if name not in tables:
            tables[name] = Table.load(given.data, name)
        table = run.choose_columns(tables[name])
        lines = list(ask_once(table, run, make_once(table, run)))
        with given.record.open("a", newline="") as file:
            csv.DictWriter(file, FIELDS).writerows(lines)
    print(f"{time.process_time():.0f} s of processor time")


# Results


def show(given: argparse.Namespace) -> None:
    """Print the tables of benchmarks/inference.md."""
    record = pd.concat([pd.read_csv(path, dtype={"term": str}) for path in given.records])
    null = record.kind.isin(["shuffled", "chosen"])
    known = record[record.se.notna() & ~null].copy()
    known["covered"] = (known.low <= known.truth) & (known.truth <= known.high)
    known["squared"] = ((known.estimate - known.truth) / known.se) ** 2
    known["wider"] = (known.high - known.low) / (2 * 1.959964 * known.best)
    known.loc[known.kind == "population", "mechanism"] += ", population"
    _print_coverage(known, ["table", "mechanism"], "epsilon")
    _print_coverage(known, ["statistic"], "mechanism")
    _print_errors(known, ["table", "mechanism"])
    print("\nLines below 94 % (measured) or 90 % (not measured), of at least 40 intervals:\n")
    lines = known.groupby(["table", "mechanism", "epsilon", "statistic", "measured"])
    print(f"of {(lines.size() >= 40).sum()} lines\n")
    for key, part in lines:
        if len(part) >= 40 and part.covered.mean() < (0.94 if key[-1] else 0.90):
            words = [*map(str, key[:-1]), "measured" if key[-1] else "not measured"]
            by_run = part.groupby("run").covered.mean()
            spread = 100 * by_run.std() / math.sqrt(len(by_run))
            print(f"- {', '.join(words)}: {_coverage(part)}, {len(by_run)} runs, standard error {spread:.1f}")
    null = record[null & record.p.notna()].copy()
    null.loc[(null.mechanism == "mst") & (null.kind == "shuffled"), "mechanism"] = "mst, keep"
    _print_tests(null, ["mechanism", "epsilon", "measured"])
    _print_tests(null, ["statistic", "mechanism", "epsilon", "measured"])
    refused = record[record.term.astype(str).str.startswith("refused")]
    asked = len(record.drop_duplicates([*FIELDS[:6], "asked"]))
    print(f"\nRefused: {len(refused)} of {asked} asked.")
    for text, count in refused.term.str.split("[('0-9]").str[0].str[:60].value_counts().items():
        print(f"- {count}: {text.removeprefix('refused: ')}")


def _coverage(part: pd.DataFrame) -> str:
    return f"{100 * part.covered.mean():.1f} ({len(part):,})" if len(part) else ""


def _count_runs(part: pd.DataFrame) -> int:
    """Return the smallest number of runs of a table, mechanism, epsilon and kind."""
    return int(part.groupby(["table", "mechanism", "epsilon", "kind"]).run.nunique().min())


def _print_coverage(known: pd.DataFrame, names: list[str], column: str) -> None:
    """Print in how many per cent of how many intervals the truth was, by some properties of the runs and one more."""
    values = sorted(known[column].unique())
    heads = [f"{'' if measured else 'not '}measured, {value}" for measured in (1, 0) for value in values]
    print(f"\n| {' | '.join([*names, 'runs', *heads])} |")
    print("|---" * (len(names) + 1 + len(heads)) + "|")
    for key, part in known.groupby(names):
        some = [part[(part.measured == measured) & (part[column] == v)] for measured in (1, 0) for v in values]
        print(f"| {' | '.join([*key, str(_count_runs(part)), *map(_coverage, some)])} |")


def _print_errors(known: pd.DataFrame, names: list[str]) -> None:
    """Print the errors in standard errors and the widths of intervals by some properties of the runs."""
    print(f"\n| {' | '.join(names)} | measured: error / se | width / best | not measured: error / se |")
    print("|---" * (len(names) + 3) + "|")
    for key, part in known.groupby(names):
        own, others = part[part.measured == 1], part[part.measured == 0]
        errors = [f"{math.sqrt(some.squared.mean()):.2f}" if len(some) else "" for some in (own, others)]
        width = f"{own.wider.median():.2f}" if own.wider.notna().any() else ""
        print(f"| {' | '.join([*key, errors[0], width, errors[1]])} |")


def _print_tests(null: pd.DataFrame, names: list[str]) -> None:
    """Print how many nulls were rejected by some properties of the runs, with the standard error over runs."""
    print(f"\n| {' | '.join(names)} | runs | tests | rejected at 5 % | standard error |")
    print("|---" * (len(names) + 4) + "|")
    for key, part in null.groupby(names):
        runs = (part.p < 0.05).groupby([part.table, part.run]).agg(["sum", "size"])
        share = float(runs["sum"].sum() / runs["size"].sum())
        spread = math.sqrt(((runs["sum"] - share * runs["size"]) ** 2).sum()) / len(part)
        cells = [*map(str, key[:-2]), f"{key[-2]:g}", "yes" if key[-1] else "no", str(len(runs)), f"{len(part):,}"]
        print(f"| {' | '.join(cells)} | {100 * share:.1f} % | {100 * spread:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.set_defaults(do=make_and_ask)
    command.add_argument("data", type=Path)
    command.add_argument("record", type=Path)
    command.add_argument("--tables", default="adult,fire,sd2011,diabetes")
    command.add_argument("--mechanisms", default="mst,privsyn,aim")
    command.add_argument("--epsilons", default="0.5,1,4")
    command.add_argument("--kinds", default="plain")
    command.add_argument("--runs", type=int, default=100)
    command.add_argument("--minutes", type=float, default=math.inf)
    command = commands.add_parser("show")
    command.set_defaults(do=show)
    command.add_argument("records", type=Path, nargs="+")
    given = parser.parse_args()
    given.do(given)


if __name__ == "__main__":
    main()
