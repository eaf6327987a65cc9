"""`attack`: play an attacker against a release, for the custodian only.

*Membership*: was this row in the table? *Attributes*: which value has this row in a column, beyond what a model knows
that never saw the row? Both need rows that were not used. Without a table of such rows, the mechanism is run again on
parts of the real table, with the same settings and budget, in memory: run k leaves out two of ten folds, one whose rows
are the non-members, one that the attacker knows as a reference.

Distances to the closest real record are no attack here: they do not tell members from others (Yao et al. 2025, "The DCR
delusion"), so a large distance is no evidence of privacy. `evaluate` has such a metric, without a verdict.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from os import PathLike
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from understudy.accounting.calibrate import certify_plan
from understudy.accounting.ceiling import Ceiling
from understudy.arguments import as_progress, as_whole
from understudy.domain import Clique, Domain
from understudy.errors import InputError, SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement, combine
from understudy.mechanism import make_mechanism
from understudy.metric.registry import has_sklearn, one_thread
from understudy.metric.roc import auc, auc_of_mu, roc, true_positives_at
from understudy.metric.tables import find_column
from understudy.model.protocol import Model
from understudy.progress import Progress, Step
from understudy.release import Release, open_release
from understudy.schema import Recoding, Schema
from understudy.source import open_source
from understudy.source.read import collect_table
from understudy.tabulate import marginals, to_dense

WARNING = (
    "For the custodian only: computed from real rows, not differentially private. Do not publish these numbers, or "
    "choose among releases by them. A low number is no proof; the guarantee is the receipt's."
)

FOLDS = 10
_TARGETS = 400
"""Members and non-members that are attacked in each run."""
_REFERENCE = 2000
"""Rows that the attacker knows of the population."""
_TABLES, _COLUMNS = 60, 30
"""The most measurements and columns that attacks look at; those with the least noise, and the first."""
_STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
_RARE = 0.01

Codes = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class AttackScore:
    """How well one attack tells members from non-members.

    Attributes:
        attack: its name.
        targets: whom it was tried on.
        auc: area under its ROC curve, with a 95 % interval.
        advantage: true less false positives at a threshold chosen on other targets.
        true_positives: at 1 % of false positives.
    """

    attack: str
    targets: str
    auc: tuple[float, float, float]
    advantage: tuple[float, float, float]
    true_positives: tuple[float, float, float]


@dataclass(frozen=True)
class Attributes:
    """How well the values of columns are guessed from a row's other values.

    Attributes:
        columns: which columns, averaged.
        inside: accuracy with models that saw the row.
        outside: accuracy with a model that did not.
        advantage: the difference, with a 95 % interval.
        commonest: the share of the commonest value: accuracy without a model.
        ceiling: the accuracy that the guarantee allows with the row, given that without it.
    """

    columns: tuple[str, ...]
    inside: float
    outside: float
    advantage: tuple[float, float, float]
    commonest: float
    ceiling: float


@dataclass(frozen=True, eq=False)
class Attacks:
    """The results of attacks on a release; custodian-only.

    Attributes:
        game: "refold" or "holdout".
        runs: how many runs were attacked.
        scores: of each membership attack.
        attributes: of attribute inference; None where there were too few runs.
        ceiling: what the guarantee allows: area, advantage, true positives at 1 %, averaged over runs.
        full_knowledge: the area that an attacker reaches who knows every other row.
        seconds: how long it took.
        curves: false and true positives of each attack, for a plot.
        notes: what was left out.
    """

    game: str
    runs: int
    scores: Sequence[AttackScore]
    attributes: Attributes | None
    ceiling: Mapping[str, float]
    full_knowledge: float
    seconds: float
    curves: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = field(repr=False)
    claim: Ceiling = field(repr=False)
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the warning first."""
        names = ("game", "runs", "ceiling", "full_knowledge", "seconds", "notes")
        found = {name: getattr(self, name) for name in names}
        scores = [asdict(score) for score in self.scores]
        attributes = None if self.attributes is None else asdict(self.attributes)
        return {"custodian_only": WARNING, **found, "membership": scores, "attributes": attributes}


def attack(
    release: Release | str | PathLike[str],
    real: Any,
    *,
    holdout: Any = None,
    secrets: Sequence[str] = (),
    minutes: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Attacks:
    """Attack a release: guess who was in the table, and what their values are.

    Args:
        release: the release or the path of its file.
        real: the real table: a frame, the path of a file, or a table of an engine.
        holdout: rows of the same kind of people that were not in the table; the release itself is then attacked,
            instead of further runs on parts of the real table.
        secrets: columns whose values are guessed; by default all.
        minutes: about how long further runs may take; at least two are made.
        seed: for which rows are attacked; the noise of further runs is fresh.
        progress: called with each `Step`; carries no result.

    **Privacy.** Not differentially private: for the custodian only. Further runs stay in memory; they are not charged
    because nothing of them leaves.

    Raises:
        InputError: if the release or a table cannot be used.
    """
    opened = open_release(release) if isinstance(release, str | PathLike) else release
    if not isinstance(opened, Release):
        raise InputError(
            "the release is of linked tables; attacks are possible on releases of single tables only. Score its rows "
            "with `evaluate`, or test its mechanism with `audit`"
        )
    release = opened
    if release.receipt.rehearsal:
        raise InputError(
            "the release is a rehearsal on made-up rows, so nobody can be attacked; give one of a real table"
        )
    for name in secrets:
        find_column(release.schema, name, "secret")
    if not 0 < minutes < math.inf:
        raise SettingError("minutes must be a positive number")
    start, report = time.monotonic(), as_progress(progress)
    rng = np.random.default_rng(as_whole("seed", seed))
    rows = _People.of(real, release.schema, "real table")
    claim = Ceiling.of(release.receipt)
    with one_thread():
        if holdout is None:
            games = _cross_fit(release, rows, 60 * minutes, rng, report)
        else:
            games = [_hold_out(release, rows, _People.of(holdout, release.schema, "holdout table"), rng)]
        played = [_run_game(game, report, number, len(games)) for number, game in enumerate(games)]
    limits = {"auc": claim.auc, "advantage": claim.advantage, "true_positives": float(claim.power(_RARE))}
    domain, notes = release.schema.domain, []
    if len(domain) > _COLUMNS:
        notes.append(f"Attacks look at the first {_COLUMNS} columns.")
    if not has_sklearn():
        notes.append("The density ratio needs scikit-learn: pip install 'understudy[eval]'.")
    return Attacks(
        game="refold" if holdout is None else "holdout",
        runs=len(games),
        scores=_summarize(played),
        attributes=_guess_attributes(games, rows, secrets, claim, rng) if holdout is None else None,
        ceiling=limits,
        full_knowledge=auc_of_mu(math.sqrt(2 * release.receipt.rho)),
        seconds=time.monotonic() - start,
        curves={name: _pool(played, name) for name in played[0]},
        claim=claim,
        notes=notes,
    )


# -- The rows, and the games played with them.


@dataclass(frozen=True, eq=False, repr=False)
class _People:
    """A table with its codes and the unit of each row; private."""

    table: Any
    codes: dict[str, NDArray[Any]]
    units: NDArray[np.int64]
    usable: NDArray[np.bool_]

    @classmethod
    def of(cls, data: Any, schema: Schema, what: str) -> _People:
        frame = nw.from_native(collect_table(data, schema), eager_only=True).to_arrow()
        encoded = schema.encode(frame)
        if encoded.keep.sum() < 4 * FOLDS:
            raise InputError(f"the {what} has fewer than {4 * FOLDS} rows that fit the schema; give more")
        column = schema.privacy_unit.column
        named = range(frame.num_rows) if column is None else frame[column].to_pylist()
        units = np.unique(np.array([str(name) for name in named]), return_inverse=True)[1]
        return cls(frame, encoded.codes, units, encoded.keep)

    def take(self, index: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        return {column: codes[index] for column, codes in self.codes.items()}

    def pick_one_of_each_unit(
        self, wanted: NDArray[np.bool_], most: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return at most this many of the wanted rows, one of each unit."""
        places = rng.permutation(np.flatnonzero(wanted & self.usable))
        _, first = np.unique(self.units[places], return_index=True)
        return rng.permutation(places[first])[:most]


@dataclass(frozen=True, eq=False, repr=False)
class _Game:
    """One run that is attacked, the rows that are in and out of it, and what the attacker knows of the population."""

    model: Model
    measurements: Sequence[Measurement]
    recoding: Recoding
    inside: NDArray[np.int64]
    outside: NDArray[np.int64]
    members: Codes
    others: Codes
    reference: Codes
    folds: tuple[int, ...] = ()

    def recode(self, codes: Codes) -> dict[str, NDArray[np.uint32]]:
        return {name: self.recoding.apply(name, array).astype(np.uint32) for name, array in codes.items()}


def _cross_fit(
    release: Release, rows: _People, seconds: float, rng: np.random.Generator, progress: Progress
) -> list[_Game]:
    """Return runs of the same mechanism on parts of the table, as many as there is time for."""
    units = rng.integers(FOLDS, size=int(rows.units.max()) + 1)
    fold, games, start = units[rows.units], [], time.monotonic()
    for k in range(FOLDS):
        if k >= 2 and (time.monotonic() - start) * (k + 1) / k > seconds:
            break
        progress(Step("attack", k / FOLDS, f"run {k + 1} of at most {FOLDS}"))
        out, known = k, (k + 1) % FOLDS
        used = (fold != out) & (fold != known)
        outside = rows.pick_one_of_each_unit(fold == out, _TARGETS, rng)
        inside = rows.pick_one_of_each_unit(used, len(outside), rng)
        reference = rows.take(rows.pick_one_of_each_unit(fold == known, _REFERENCE, rng))
        fit = _run_again(release, rows.table.take(np.flatnonzero(used)))
        games.append(_Game(*fit, inside, outside, rows.take(inside), rows.take(outside), reference, folds=(out, known)))
    return games


def _run_again(release: Release, table: Any) -> tuple[Model, Sequence[Measurement], Recoding]:
    """Run the release's mechanism on other rows, with the same settings and the same budget for its questions."""
    schema, receipt = release.schema, release.receipt
    schema = schema if schema.rows is None else replace(schema, rows=table.num_rows)
    mechanism = make_mechanism(release.mechanism, **dict(release.settings)).prepare(schema)
    budget, source = receipt.budget, open_source(table, schema)
    asked = ("measure", "select", "cells", "dependence", "distances", "gradient")
    aside = budget.cost(c for c in receipt.charges if c.what not in asked)
    rho, plan = float(budget.capacity - aside), None
    if budget.proof == "pld":
        stated = replace(budget, proof="zcdp")
        plan, certified = certify_plan(mechanism.plan(schema.domain), stated, receipt.neighbours)
        budget = budget if plan is None else certified
        rho = float(budget.capacity)
    fit = mechanism.fit(PrivateTable(source, budget, plan=plan), rho=rho)
    return fit.model, fit.measurements, fit.recoding


def _hold_out(release: Release, rows: _People, held: _People, rng: np.random.Generator) -> _Game:
    """Return the release itself, against rows that it never saw."""
    half = rng.random(int(held.units.max()) + 1)[held.units] < 0.5
    most = 5 * _TARGETS
    outside = held.pick_one_of_each_unit(half, most, rng)
    inside = rows.pick_one_of_each_unit(rows.usable, len(outside), rng)
    reference = held.take(held.pick_one_of_each_unit(~half, _REFERENCE, rng))
    parts = release.model, release.measurements, release.recoding
    return _Game(*parts, inside, outside, rows.take(inside), held.take(outside), reference)


GameScores = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]
"""By attack, the scores of non-members and of members."""


def _run_game(game: _Game, progress: Progress, number: int, games: int) -> GameScores:
    progress(Step("attack", number / games, "guessing who was in the table"))
    declared, domain = _declared_domain(game), game.model.domain
    raw = {name: np.concatenate([game.others[name], game.members[name]]) for name in declared}
    both, reference, count = game.recode(raw), game.recode(game.reference), len(game.outside)
    seen = game.measurements, game.recoding, declared
    scores, power = score_measurements(*seen, raw, game.reference, game.model.total)
    columns = list(domain)[:_COLUMNS]
    drawn = game.model.sample(max(1, round(game.model.total)), np.random.default_rng(0))
    made = {name: np.asarray(drawn[name]).astype(np.uint32) for name in columns}
    found = {"measurements": scores, "rows": score_rows(made, {c: domain[c] for c in columns}, both, reference)}
    if has_sklearn():
        found["density"] = score_density(made, both, reference)
    split = {name: (values[:count], values[count:]) for name, values in found.items()}
    risky = power >= np.quantile(power, 0.9)
    split["riskiest"] = scores[:count][risky[:count]], scores[count:][risky[count:]]
    return split


def _declared_domain(game: _Game) -> Domain:
    """Return the declared domain, from the model's and the recoding."""
    maps, merged = game.recoding.maps, game.model.domain
    return Domain({name: len(maps[name]) if name in maps else merged[name] for name in merged})


# -- Membership: three scores, larger for members.


def score_measurements(
    measurements: Sequence[Measurement], recoding: Recoding, declared: Domain, targets: Codes, known: Codes, rows: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the log likelihood ratio of the published measurements, with and without each target's row.

    The attacker knows the noise, the number of rows and a sample of the population. Returns the score of each target,
    and how many standard deviations apart its presence and its absence are.
    """
    tables: dict[tuple[Clique, int], list[Measurement]] = {}
    for one in measurements:
        if one.query is None:
            tables.setdefault((one.clique, len(one.values)), []).append(one)
    combined = sorted(((key, *combine(several)) for key, several in tables.items()), key=lambda one: one[2])[:_TABLES]
    mine, theirs = ({c: recoding.apply(c, array) for c, array in codes.items()} for codes in (targets, known))
    merged, placed = recoding.recode(declared), []
    for (clique, size), _, _ in combined:
        if size == declared.cells(clique):  # measured before codes were merged
            placed.append((_cells(targets, declared, clique), _cells(known, declared, clique)))
        else:
            placed.append((_cells(mine, merged, clique), _cells(theirs, merged, clique)))
    there, others = (np.stack([cells[side] for cells in placed], axis=1) for side in (0, 1))
    noisy = np.stack([values[there[:, j]] for j, (_, values, _) in enumerate(combined)], axis=1)
    sigma = np.array([sigma for _, _, sigma in combined])
    scores, power = np.zeros(len(there)), np.zeros(len(there))
    for i, cells in enumerate(there):
        same = (others == cells).astype(np.float32)
        joint = (same.T @ same).astype(np.float64) / len(others)
        shares = (same.sum(axis=0) + 0.5) / (len(others) + 1)
        scores[i], power[i] = match_counts(noisy[i], sigma, shares, joint, rows, len(others))
    return scores, power


def match_counts(
    noisy: NDArray[np.float64],
    sigma: NDArray[np.float64],
    shares: NDArray[np.float64],
    joint: NDArray[np.float64],
    rows: float,
    known: float,
) -> tuple[float, float]:
    """Score how well noisy counts of a target's cells fit its presence, by linear discrimination; and its power.

    Args:
        noisy: the measured counts of the cells that the target is in.
        sigma: their noise.
        shares: each cell's share of the population.
        joint: the share of the population in both of two cells.
        rows: how many rows were counted.
        known: how many rows the shares are estimated from.

    >>> found = match_counts(np.array([14.0]), np.array([5.0]), np.array([0.01]), np.array([[0.01]]), 1000, math.inf)
    >>> [round(value, 6) for value in found]
    [0.099426, 0.16758]
    """
    apart = 1 - shares
    raw = np.diag(joint)
    spread = joint - np.outer(raw, raw)
    spread[np.diag_indices_from(spread)] = shares * apart
    spread = rows * spread * (1 + rows / known) + np.diag(sigma**2)
    weights = np.linalg.solve(spread, apart)
    return float(weights @ (noisy - rows * shares - apart / 2)), math.sqrt(max(0.0, float(weights @ apart)))


def _cells(codes: Codes, domain: Domain, clique: Clique) -> NDArray[np.int64]:
    if not clique:
        return np.zeros(len(next(iter(codes.values()))), np.int64)
    return np.ravel_multi_index([codes[c].astype(np.int64) for c in clique], domain.shape(clique))


def score_rows(made: Codes, sizes: Mapping[str, int], targets: Codes, reference: Codes) -> NDArray[np.float64]:
    """Score how much likelier a target is among synthetic rows than in the population, by trees of pairs (TAMIS)."""
    domain = Domain(sizes)
    tree = PairTree.of_rows(made, domain)
    return tree.log_density(targets) - PairTree.of_rows(reference, domain, tree.edges).log_density(targets)


def score_density(made: Codes, targets: Codes, reference: Codes) -> NDArray[np.float64]:
    """Return the log odds of boosted trees that tell synthetic rows from the population's (DOMIAS)."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    def stack(codes: Codes) -> NDArray[np.float64]:
        return np.stack([codes[name] for name in made], axis=1).astype(np.float64)

    known = stack(reference)
    drawn = stack(made)[np.random.default_rng(0).permutation(len(next(iter(made.values()))))[: len(known)]]
    labels = np.repeat([1, 0], [len(drawn), len(known)])
    trees = HistGradientBoostingClassifier(max_iter=40, random_state=0)
    found: NDArray[np.float64] = trees.fit(np.concatenate([drawn, known]), labels).decision_function(stack(targets))
    return found


class PairTree:
    """A tree of pairs of columns, and the distribution that has these pairs' tables.

    Args:
        domain: the columns.
        ones: shares of each column's codes.
        pairs: shares of the cells of each edge.
    """

    def __init__(self, domain: Domain, ones: Mapping[str, NDArray[Any]], pairs: Mapping[Clique, NDArray[Any]]) -> None:
        self.ones, self.pairs, self.edges = dict(ones), dict(pairs), list(pairs)
        self.degree = {c: sum(c in edge for edge in self.edges) for c in domain}

    @classmethod
    def of_rows(cls, codes: Codes, domain: Domain, edges: Sequence[Clique] | None = None) -> PairTree:
        """Fit the tree of most mutual information to rows, or that of given edges; half a row is added to each cell."""
        wanted: list[Clique] = list(combinations(domain, 2)) if edges is None else list(edges)
        cliques: list[Clique] = [*((column,) for column in domain), *wanted]
        counted = {c: to_dense(table).astype(np.float64) for c, table in marginals(dict(codes), domain, cliques)}
        return cls._from_counts(domain, counted, wanted, spanning=edges is None)

    @classmethod
    def of_model(cls, model: Model, columns: Sequence[str]) -> PairTree:
        """Return the tree of most mutual information in a model."""
        domain = Domain({c: model.domain[c] for c in columns})
        wanted: list[Clique] = list(combinations(columns, 2))
        counted = model.project_many([*((c,) for c in columns), *wanted])
        return cls._from_counts(
            domain, {c: np.asarray(t).reshape(-1) for c, t in counted.items()}, wanted, spanning=True
        )

    @classmethod
    def _from_counts(
        cls, domain: Domain, counts: Mapping[Clique, NDArray[Any]], wanted: list[Clique], *, spanning: bool
    ) -> PairTree:
        shares = {c: (table + 0.5) / (table.sum() + 0.5 * len(table)) for c, table in counts.items()}
        pairs = {pair: shares[pair].reshape(domain.shape(pair)) for pair in wanted}
        if spanning:
            wanted = _span(list(domain), {pair: _information(table) for pair, table in pairs.items()})
        return cls(domain, {c: shares[(c,)] for c in domain}, {edge: pairs[edge] for edge in wanted})

    def log_density(self, codes: Codes) -> NDArray[np.float64]:
        """Return the log probability of each row."""
        found: NDArray[np.float64] = np.zeros(len(next(iter(codes.values()))))
        for (a, b), table in self.pairs.items():
            found += np.log(table[codes[a], codes[b]])
        for column, share in self.ones.items():
            found -= (self.degree[column] - 1) * np.log(share[codes[column]])
        return found

    def guess(self, column: str, codes: Codes) -> NDArray[np.int64]:
        """Return the likeliest code of a column, given each row's other columns."""
        likely = np.log(self.ones[column])[np.newaxis, :] * (1 - self.degree[column])
        for (a, b), table in self.pairs.items():
            if a == column:
                likely = likely + np.log(table[:, codes[b]]).T
            elif b == column:
                likely = likely + np.log(table[codes[a]])
        found: NDArray[np.int64] = np.broadcast_to(likely, (len(codes[column]), likely.shape[1])).argmax(axis=1)
        return found


def _information(table: NDArray[np.float64]) -> float:
    """Return the mutual information of a table of shares."""
    expected = np.outer(table.sum(axis=1), table.sum(axis=0))
    return float((table * np.log(table / expected)).sum())


def _span(columns: list[str], weight: Mapping[Clique, float]) -> list[Clique]:
    """Return the spanning tree of largest weight (Kruskal)."""
    home = {c: c for c in columns}
    edges: list[Clique] = []
    for a, b in sorted(weight, key=lambda pair: -weight[pair]):
        if home[a] != home[b]:
            edges.append((a, b))
            joined = home[b]
            home = {c: home[a] if at == joined else at for c, at in home.items()}
    return edges


# -- Summaries: means over runs with intervals.


_TITLES = {
    "measurements": ("likelihood ratio of the measurements", "all"),
    "riskiest": ("likelihood ratio of the measurements", "riskiest tenth"),
    "rows": ("synthetic rows alone", "all"),
    "density": ("density ratio", "all"),
}


def _summarize(played: Sequence[GameScores]) -> list[AttackScore]:
    found = []
    for name, (title, targets) in _TITLES.items():
        games = [game[name] for game in played if name in game and all(len(side) > 3 for side in game[name])]
        if games:
            areas, gains, rare = ([f(*game) for game in games] for f in (_area, _advantage, _count_true_positives))
            error = auc(*games[0])[1]
            found.append(
                AttackScore(title, targets, _interval(areas, error), _interval(gains, error), _interval(rare, error))
            )
    return found


def _area(out: NDArray[np.float64], inside: NDArray[np.float64]) -> float:
    return auc(out, inside)[0]


def _advantage(out: NDArray[np.float64], inside: NDArray[np.float64]) -> float:
    """Return true less false positives on one half of the targets, at the threshold that is best on the other half.

    The largest difference on the same targets would be well above 0 for a useless attack.
    """
    found = []
    for half in (0, 1):
        x, y, test_x, test_y = out[half::2], inside[half::2], out[1 - half :: 2], inside[1 - half :: 2]
        cuts = np.unique(np.concatenate([x, y]))
        shares = [1 - np.searchsorted(np.sort(side), cuts, side="right") / len(side) for side in (x, y)]
        best = cuts[int(np.argmax(shares[1] - shares[0]))]
        found.append(float((test_y > best).mean() - (test_x > best).mean()))
    return float(np.mean(found))


def _count_true_positives(out: NDArray[np.float64], inside: NDArray[np.float64]) -> float:
    return true_positives_at(out, inside, _RARE)


def _interval(values: Sequence[float], error: float) -> tuple[float, float, float]:
    """Return a mean with its 95 % interval: Student's over runs; for one run, that of the area."""
    mean = float(np.mean(values))
    if len(values) > 1:
        reach = _STUDENT[min(9, len(values) - 1)] * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    else:
        reach = 1.96 * error
    return mean, mean - reach, mean + reach


def _pool(played: Sequence[GameScores], name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean ROC curve over runs."""
    grid = np.linspace(0.0, 1.0, 101)
    curves = [roc(*game[name]) for game in played if name in game]
    return grid, np.mean([np.interp(grid, false, true) for false, true in curves], axis=0)


def _guess_attributes(
    games: Sequence[_Game], rows: _People, secrets: Sequence[str], claim: Ceiling, rng: np.random.Generator
) -> Attributes | None:
    """Guess values of rows with the model that never saw them and with those that did."""
    if len(games) < 4:
        return None
    columns = list(games[0].model.domain)[:_COLUMNS]
    columns += [name for name in secrets if name not in columns]
    wanted = tuple(secrets) or tuple(name for name in columns if len(np.unique(rows.codes[name])) > 1)
    trees = [PairTree.of_model(game.model, columns) for game in games]
    inside, outside, common = [], [], []
    for game, tree in zip(games, trees, strict=True):
        saw = [(other, theirs) for other, theirs in zip(games, trees, strict=True) if game.folds[0] not in other.folds]
        outside.append(_accuracy(game, tree, game.others, wanted))
        inside.append(float(np.mean([_accuracy(other, theirs, game.others, wanted) for other, theirs in saw])))
        common.append(np.mean([np.bincount(game.others[name]).max() / len(game.outside) for name in wanted]))
    without = float(np.mean(outside))
    gain = np.array(inside) - np.array(outside)
    reach = _STUDENT[min(9, len(gain) - 1)] * float(gain.std(ddof=1)) / math.sqrt(len(gain))
    mean = float(gain.mean())
    return Attributes(
        columns=wanted,
        inside=float(np.mean(inside)),
        outside=without,
        advantage=(mean, mean - reach, mean + reach),
        commonest=float(np.mean(common)),
        ceiling=float(claim.power(without)),
    )


def _accuracy(game: _Game, tree: PairTree, codes: Codes, wanted: Sequence[str]) -> float:
    """Return the share of right guesses, averaged over columns; a merged value counts as one."""
    seen = game.recode(codes)
    return float(np.mean([(tree.guess(name, seen) == seen[name]).mean() for name in wanted]))
