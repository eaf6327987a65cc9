"""`pmse`, `pmse_ratio` and `specks`: how well a classifier distinguishes synthetic rows from real ones.

Propensity scores are those of Bowen and Snoke, Algorithm 1. The logistic regression is our own: the null of pMSE needs
an unpenalised fit and its number of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class

from understudy.metric.base import STRICT, Metric, Part, Positive, Score
from understudy.metric.tables import Rows, require_same_columns
from understudy.metric.tree import grow
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn

_STEPS = 25  # as many as R's glm takes; where labels separate, chances have then reached 0 or 1 to nine digits
_ALIASED = 1e-9


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fitted regression.

    Attributes:
        used: the terms that are no combination of earlier ones.
        centre: means of the used terms.
        scale: standard deviations of the used terms.
        weights: the intercept, then the coefficients of the centred and scaled terms.
    """

    used: NDArray[np.int64]
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]

    @property
    def parameters(self) -> int:
        """Estimated coefficients, the intercept included: aliased terms do not count."""
        return len(self.weights)

    def chance(self, terms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the chance of label 1 for each row."""
        scaled = (terms[:, self.used] - self.centre) / self.scale
        return _sigmoid(self.weights[0] + scaled @ self.weights[1:])


def fit_logistic(terms: NDArray[np.float64], labels: NDArray[np.bool_]) -> Logistic:
    """Fit a logistic regression by Newton's method, after leaving out terms that are aliased.

    >>> fit = fit_logistic(np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([0, 1, 0, 1], bool))
    >>> fit.parameters
    2
    """
    centre, scale = terms.mean(0), terms.std(0)
    used = np.flatnonzero(scale > 1e-12 * np.maximum(np.abs(centre), 1.0))
    matrix = (terms[:, used] - centre[used]) / scale[used]
    kept = _find_independent(matrix)
    used, matrix = used[kept], matrix[:, kept]
    matrix = np.column_stack((np.ones(len(matrix)), matrix))
    return Logistic(used, centre[used], scale[used], _fit_newton(matrix, labels.astype(np.float64)))


def _find_independent(matrix: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return columns that are no combination of others, by Cholesky with pivoting on their correlations."""
    left = matrix.T @ matrix / max(len(matrix), 1)
    diagonal, kept = np.ones(len(left)), list[int]()
    factor = np.zeros((0, len(left)))
    for column in range(len(left)):
        if diagonal[column] <= _ALIASED:
            continue
        row = (left[column] - factor[:, column] @ factor) / np.sqrt(diagonal[column])
        factor = np.vstack((factor, row))
        diagonal = diagonal - row**2
        kept.append(column)
    return np.asarray(kept, dtype=np.int64)


def _fit_newton(matrix: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.zeros(matrix.shape[1])
    weights[0] = np.log(labels.mean() / (1 - labels.mean()))
    deviance = np.inf
    for _ in range(_STEPS):
        chance = _sigmoid(matrix @ weights)
        now = -2 * float(np.log(np.maximum(np.where(labels > 0, chance, 1 - chance), 1e-300)).sum())
        if abs(deviance - now) <= 1e-8 * (abs(now) + 0.1):
            break
        deviance = now
        spread = np.maximum(chance * (1 - chance), 1e-10)
        curvature = (matrix * spread[:, None]).T @ matrix
        weights = weights + np.linalg.solve(curvature, matrix.T @ (labels - chance))
    return weights


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.clip(values, -40.0, 40.0)))
    return result


# -- propensity scores --


Array: TypeAlias = NDArray[np.float64]
Model: TypeAlias = Literal["logistic", "cart"]
_CHOOSING_ROWS = 10_000
_COMPLEXITIES = 8
_LARGEST_RATIO = 1000.0


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of propensity scores.

    Attributes:
        models: "logistic" (main effects, unpenalised) and "cart"; the first one gives the score, all are parts.
        numbers: whether numbers enter a logistic regression as a "linear" term or as "codes", one term each; codes are
            categories for a tree as well.
        complexity: the tree's complexity parameter, to hold it fixed across tables; None: chosen by cross-validation.
        cross_validated: also the study's variant: in each fold a model of one part scores the held-out part.
        folds: how many folds it has.
        split: the part of a fold that the model is fitted to.
        permutations: how many permutations make the null of a tree, and of what is held out (pmse_ratio only).
        rows: the largest number of rows of each table that is used.
        terms: the number of values of a column, the commonest, with a term in a regression; all others are one term.
    """

    models: Annotated[tuple[Model, ...], Field(min_length=1)] = ("logistic", "cart")
    numbers: Literal["linear", "codes"] = "linear"
    complexity: Annotated[float, Field(ge=0)] | None = None
    cross_validated: bool = True
    folds: Annotated[int, Field(ge=2)] = 5
    split: Annotated[float, Field(gt=0, lt=1)] = 0.7
    permutations: Positive = 10
    rows: Annotated[int, Field(ge=10)] = 50_000
    terms: Positive = 200


@dataclass(frozen=True, eq=False)
class Stacked:
    """Both tables in one, synthetic rows below real ones.

    Attributes:
        terms: the columns of a main-effects regression, without intercept.
        features: one column each, for trees.
        synthetic: which rows are synthetic.
        notes: what was sampled.
        unordered: which of the features are codes of categories without an order.
    """

    terms: Array
    features: Array
    synthetic: NDArray[np.bool_]
    notes: tuple[str, ...] = ()
    unordered: tuple[int, ...] = ()

    def take(self, index: NDArray[np.int64]) -> Stacked:
        """Return the rows at these places."""
        return replace(self, terms=self.terms[index], features=self.features[index], synthetic=self.synthetic[index])

    def relabel(self, synthetic: NDArray[np.bool_]) -> Stacked:
        """Return the same rows with other labels."""
        return replace(self, synthetic=synthetic)


@dataclass(frozen=True, eq=False)
class Propensities:
    """Estimated chances of being synthetic.

    Attributes:
        chance: by row.
        synthetic: which rows are synthetic.
        parameters: estimated coefficients, intercept included; 0 for a tree.
    """

    chance: Array
    synthetic: NDArray[np.bool_]
    parameters: int

    @property
    def pmse(self) -> float:
        """``mean (p - c)^2``."""
        return float(np.mean((self.chance - self.synthetic.mean()) ** 2))

    @property
    def error_rate(self) -> float:
        """The share of rows that are taken for the wrong kind; a classifier that learned nothing errs in half."""
        share = self.synthetic.mean()
        wrong = np.where(self.synthetic, self.chance < share, self.chance > share) + 0.5 * (self.chance == share)
        return float(np.mean([wrong[self.synthetic].mean(), wrong[~self.synthetic].mean()]))

    @property
    def distance(self) -> float:
        """The Kolmogorov-Smirnov distance between the chances of real and of synthetic rows."""
        edges = np.unique(self.chance)
        cumulative = [
            np.searchsorted(np.sort(side), edges, side="right") / len(side)
            for side in (self.chance[~self.synthetic], self.chance[self.synthetic])
        ]
        return float(np.abs(cumulative[0] - cumulative[1]).max())


def stack_tables(real: Rows, synthetic: Rows, settings: Settings, rng: np.random.Generator) -> Stacked:
    """Stack both tables, with at most the settings' number of rows of each.

    Raises:
        SchemaError: if the columns differ.
    """
    require_same_columns(real, synthetic)
    notes = tuple(
        f"{settings.rows:,} of the {name} rows were drawn at random."
        for name, table in (("real", real), ("synthetic", synthetic))
        if table.rows > settings.rows
    )
    tables = real.sample(settings.rows, rng), synthetic.sample(settings.rows, rng)
    terms, features, unordered = [], [], []
    for column in real.schema.coded:
        codes = np.concatenate([table.codes[column.name] for table in tables]).astype(np.int64)
        if column.size > settings.terms and not (isinstance(column, AxisColumn) and settings.numbers == "linear"):
            notes += (f"In a regression {settings.terms} values of {column.name!r} have a term, and the others one.",)
        if isinstance(column, AxisColumn) and settings.numbers == "linear":
            values = np.concatenate([table.units[column.name] for table in tables])
            empty = np.isnan(values)
            terms += [np.where(empty, 0.0, values), *_one_hot(np.where(empty, codes, -1), settings.terms)]
            features.append(np.where(empty, float(column.bounds[0]) - 1.0, values))
        else:
            terms += _one_hot(codes, settings.terms)
            unordered += [] if column.kind == "ordinal" else [len(features)]
            features.append(codes.astype(np.float64))
    labels = np.repeat([False, True], [table.rows for table in tables])
    return Stacked(np.column_stack(terms), np.column_stack(features), labels, notes, tuple(unordered))


def _one_hot(codes: NDArray[np.int64], most: int) -> list[Array]:
    """Make a term for each of the commonest codes and one for all others: a regression on thousands takes hours."""
    found, counts = np.unique(codes[codes >= 0], return_counts=True)
    common = np.sort(found[np.argsort(-counts, kind="stable")[:most]])
    terms = [(codes == code).astype(np.float64) for code in common]
    rest = (codes >= 0) & ~np.isin(codes, common)
    return [*terms, rest.astype(np.float64)] if rest.any() else terms


def score_in_sample(model: Model, data: Stacked, complexity: float) -> Propensities:
    """Return propensities by a model that is fitted to the same rows."""
    chance, parameters = _fit(model, data, complexity)
    return Propensities(chance(data), data.synthetic, parameters)


def score_held_out(
    model: Model, data: Stacked, complexity: float, rng: np.random.Generator, *, folds: int = 5, split: float = 0.7
) -> Propensities:
    """Return propensities as in the study: in each fold a model fitted to 70 % scores the other 30 %; pooled."""
    fold = _assign_folds(data.synthetic, folds, rng)
    chances, labels, parameters = [], [], 0
    for number in range(folds):
        rows = np.flatnonzero(fold == number)
        rows = rows[rng.permutation(len(rows))]
        cut = min(max(1, round(split * len(rows))), max(1, len(rows) - 1))
        train, test = data.take(rows[:cut]), data.take(rows[cut:])
        chance, parameters = _fit(model, train, complexity)
        chances.append(chance(test))
        labels.append(test.synthetic)
    return Propensities(np.concatenate(chances), np.concatenate(labels), parameters)


def choose_complexity(model: Model, data: Stacked, rng: np.random.Generator) -> float:
    """Choose a tree's complexity by the least squared error in 5-fold cross-validation; 0 for a regression."""
    if model != "cart":
        return 0.0
    data = data.take(rng.permutation(len(data.synthetic))[:_CHOOSING_ROWS])
    links = grow(data.features, data.synthetic, data.unordered).complexities()
    if not len(links):
        return 0.0
    choices = np.unique(np.quantile(np.maximum(links, 0.0), np.linspace(0.2, 1.0, _COMPLEXITIES)))
    fold, errors = _assign_folds(data.synthetic, 5, rng), np.zeros(len(choices))
    for number in range(5):
        train, test = data.take(np.flatnonzero(fold != number)), data.take(np.flatnonzero(fold == number))
        tree = grow(train.features, train.synthetic, train.unordered)
        errors += [((tree.prune(c).predict(test.features) - test.synthetic) ** 2).sum() for c in choices.tolist()]
    return float(choices[np.flatnonzero(errors == errors.min())[-1]])


def _fit(model: Model, data: Stacked, complexity: float) -> tuple[Callable[[Stacked], Array], int]:
    """Fit a model: a function of rows, and its number of parameters; a constant where there is one label only."""
    labels = data.synthetic
    if labels.all() or not labels.any():
        value = float(labels[0])
        return lambda rows: np.full(len(rows.synthetic), value), 1
    if model == "logistic":
        fit: Logistic = fit_logistic(data.terms, labels)
        return lambda rows: fit.chance(rows.terms), fit.parameters
    tree = grow(data.features, labels, data.unordered, complexity)
    return lambda rows: tree.predict(rows.features), 0


def _assign_folds(labels: NDArray[np.bool_], folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a fold number for each row, with both labels spread evenly."""
    fold = np.empty(len(labels), np.int64)
    for label in (False, True):
        rows = np.flatnonzero(labels == label)
        fold[rows[rng.permutation(len(rows))]] = np.arange(len(rows)) % folds
    return fold


# -- the metrics --


def pmse(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """``(1/N) sum (p - c)^2``, p the estimated chance that a row is synthetic and c the share of synthetic rows."""
    data = stack_tables(real, synthetic, settings, rng)
    parts = _score_models(data, settings, rng, lambda found: found.pmse)
    return PMSE.score(parts[0].value, parts, data.notes)


def specks(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """Return the largest gap between the distributions of propensity scores of real and of synthetic rows."""
    data = stack_tables(real, synthetic, settings, rng)
    parts = _score_models(data, settings, rng, lambda found: found.distance)
    return SPECKS.score(parts[0].value, parts, data.notes)


def _score_models(
    data: Stacked, settings: Settings, rng: np.random.Generator, score: Callable[[Propensities], float]
) -> list[Part]:
    """Return the score of each model, in the sample and held out, its error rates, and the tree's complexity."""
    parts, rates = [], []
    for model in settings.models:
        complexity = _complexity(model, data, settings, rng)
        found: dict[str, Propensities] = {model: score_in_sample(model, data, complexity)}
        if settings.cross_validated:
            found[f"{model}, cross-validated"] = _hold_out(model, data, complexity, settings, rng)
        parts += [Part("model", name, score(propensities)) for name, propensities in found.items()]
        rates += [Part("error rate", f"error rate of {name}", one.error_rate) for name, one in found.items()]
        rates += [Part("setting", "complexity", complexity)] if model == "cart" else []
    return parts + rates


def _complexity(model: Model, data: Stacked, settings: Settings, rng: np.random.Generator) -> float:
    return choose_complexity(model, data, rng) if settings.complexity is None else settings.complexity


def _hold_out(
    model: Model, data: Stacked, complexity: float, settings: Settings, rng: np.random.Generator
) -> Propensities:
    return score_held_out(model, data, complexity, rng, folds=settings.folds, split=settings.split)


def pmse_ratio(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """PMSE over its null expectation: rows drawn from the very model that was fitted to the real rows.

    A regression's null has a closed form. A tree's null is the mean over permutations of the labels, times 1 - c:
    permuting mimics two independent samples, whose pMSE is 1/(1 - c) times larger. A null that comes out as 0 (no
    permuted tree found a split) is replaced by the closed form of a single parameter.

    What is held out has a null of its own, the mean over permutations without that factor: a model sees a seventh of
    the real rows, so the model of all of them is as good as independent of it. In large samples a regression's is
    ``k c (1 - c) / n``, n the rows that one model is fitted to: its k coefficients, the intercept included, are as
    uncertain outside of the sample as inside, and no longer chosen to fit the rows that are scored.
    """
    data = stack_tables(real, synthetic, settings, rng)
    parts, nulls, notes = list[Part](), dict[str, float](), data.notes
    for model in settings.models:
        complexity = _complexity(model, data, settings, rng)
        found = score_in_sample(model, data, complexity)
        nulls[model] = _estimate_null(model, data, found, complexity, settings, rng)
        parts.append(Part("model", model, found.pmse / nulls[model]))
        if model == "logistic":
            parts.append(Part("model", "logistic, standardised", _standardise(found)))
        if settings.cross_validated:
            held, name = _hold_out(model, data, complexity, settings, rng), f"{model}, cross-validated"
            nulls[name] = _estimate_held_out_null(model, data, held, complexity, settings, rng)
            parts.append(Part("model", name, held.pmse / nulls[name]))
    parts += [Part("setting", f"null of {name}", expected) for name, expected in nulls.items()]
    if any(part.name == "cart" and part.value > _LARGEST_RATIO for part in parts):
        notes += ("The tree's null is next to nothing, so its ratio says no more than 'clearly different'.",)
    return PMSE_RATIO.score(parts[0].value, parts, notes)


def null_expectation(parameters: int, rows: int, share: float) -> float:
    """``(k - 1) (1 - c)^2 c / N`` for a regression of k parameters.

    >>> round(null_expectation(2, 200, 0.5), 6), round(null_expectation(2, 300, 2 / 3), 9)
    (0.000625, 0.000246914)
    """
    return max(parameters - 1, 1) * (1 - share) ** 2 * share / rows


def null_deviation(parameters: int, rows: int, share: float) -> float:
    """``sqrt(2 (k - 1)) (1 - c)^2 c / N``."""
    return math.sqrt(2 * max(parameters - 1, 1)) * (1 - share) ** 2 * share / rows


def _standardise(found: Propensities) -> float:
    rows, share = len(found.chance), float(found.synthetic.mean())
    expected = null_expectation(found.parameters, rows, share)
    return (found.pmse - expected) / null_deviation(found.parameters, rows, share)


def _estimate_null(
    model: Model,
    data: Stacked,
    found: Propensities,
    complexity: float,
    settings: Settings,
    rng: np.random.Generator,
) -> float:
    rows, share = len(found.chance), float(found.synthetic.mean())
    if model == "logistic":
        return null_expectation(found.parameters, rows, share)
    expected = _permute(data, settings, rng, lambda one: score_in_sample(model, one, complexity))
    return max((1 - share) * expected, null_expectation(2, rows, share))


def _estimate_held_out_null(
    model: Model,
    data: Stacked,
    held: Propensities,
    complexity: float,
    settings: Settings,
    rng: np.random.Generator,
) -> float:
    expected = _permute(data, settings, rng, lambda one: _hold_out(model, one, complexity, settings, rng))
    return max(expected, null_expectation(2, len(held.chance), float(held.synthetic.mean())))


def _permute(
    data: Stacked, settings: Settings, rng: np.random.Generator, score: Callable[[Stacked], Propensities]
) -> float:
    """Return the mean pMSE over permutations of the labels."""
    shuffled = (data.relabel(rng.permutation(data.synthetic)) for _ in range(settings.permutations))
    return float(np.mean([score(one).pmse for one in shuffled]))


PMSE = Metric(
    name="pmse",
    title="pMSE",
    measure=pmse,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=0.25,
    meaning="Trains a classifier to tell synthetic rows from real ones. 0: it cannot. 0.25 (for equal sizes): it "
    "always can. The logistic regression sees single columns, the tree sees combinations.",
    rows=True,
)

PMSE_RATIO = Metric(
    name="pmse_ratio",
    title="pMSE ratio",
    measure=pmse_ratio,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=None,
    meaning="pMSE divided by what it would be for a perfect synthesis of the same size. Around 1: as good as chance "
    "allows; two real samples of the same people give about 2, and about 1 in the cross-validated variant; 10 or more: "
    "clearly different.",
    rows=True,
)

SPECKS = Metric(
    name="specks",
    title="SPECKS",
    measure=specks,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=1.0,
    meaning="As pMSE, but asks how far the classifier's verdicts on real and on synthetic rows lie apart. 0: the same "
    "verdicts; 1: every synthetic row is recognised.",
    rows=True,
)
