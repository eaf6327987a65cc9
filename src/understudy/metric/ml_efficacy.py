"""`ml_efficacy`: train on synthetic rows, test on real ones."""

from __future__ import annotations

import warnings
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class

from understudy.errors import SettingError
from understudy.metric.base import STRICT, Metric, Part, Score
from understudy.metric.tables import Rows, find_column, require_same_columns
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.column import Coded

Model: TypeAlias = Literal["logistic", "tree", "forest"]
_CLASSES = 20


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `ml_efficacy`.

    Attributes:
        target: the column to predict; default the last one of at most 20 declared values.
        models: which models are trained: "logistic", "tree", "forest".
        test: the share of real rows that is held out for testing.
        rows: the largest number of rows that train a model, and of rows that test it.
    """

    target: str | None = None
    models: Annotated[tuple[Model, ...], Field(min_length=1)] = ("logistic", "tree", "forest")
    test: Annotated[float, Field(gt=0, lt=1)] = 0.3
    rows: Annotated[int, Field(ge=2)] = 20_000


def ml_efficacy(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """Return the balanced accuracy lost on held-out real rows by training on synthetic instead of real rows.

    The mean over models of ``max(0, accuracy(real) - accuracy(synthetic))``; 0 where nothing is lost. The held-out rows
    took part in making the synthetic table; for a differentially private one that hardly matters.
    """
    require_same_columns(real, synthetic)
    target = _choose_target(schema, settings.target)
    train, test = _split(real, settings.test, rng)
    known = np.unique(train.codes[target.name])
    if len(known) < 2 or not test.rows:
        note = f"Column {target.name!r} has a single class among the real rows, so there is nothing to predict."
        return METRIC.score(0.0, notes=(note,))
    train, test = train.sample(settings.rows, rng), test.sample(settings.rows, rng)
    learners = {"real": train, "synthetic": synthetic.sample(settings.rows, rng)}
    truth = test.codes[target.name]
    parts, lost = [], []
    for model in settings.models:
        found = {
            name: _balanced_accuracy(truth, _predict(model, table, test, schema, target.name))
            for name, table in learners.items()
        }
        parts += [Part("model", f"{model}, trained on {name} rows", value) for name, value in found.items()]
        lost.append(max(0.0, found["real"] - found["synthetic"]))
    parts.append(Part("baseline", "guessing", 1 / len(np.unique(truth))))
    sizes = ", ".join(f"{table.rows:,} {name}" for name, table in learners.items())
    note = f"Predicts {target.name!r}; trained on {sizes} rows, tested on {test.rows:,} held-out real rows."
    return METRIC.score(float(np.mean(lost)), parts, (note,))


def _choose_target(schema: Schema, name: str | None) -> Coded:
    if name is not None:
        return find_column(schema, name, "ml_efficacy.target")
    few = [column for column in schema.coded if 2 <= column.ordinary <= _CLASSES]
    return few[-1] if few else schema.coded[-1]


def _split(real: Rows, share: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
    order = rng.permutation(real.rows)
    cut = min(max(1, round(share * real.rows)), real.rows - 1) if real.rows > 1 else 0
    return real.take(np.sort(order[cut:])), real.take(np.sort(order[:cut]))


def _predict(model: str, table: Rows, test: Rows, schema: Schema, target: str) -> NDArray[Any]:
    labels = table.codes[target]
    classes = np.unique(labels)
    if len(classes) < 2:
        return np.full(test.rows, classes[0])
    inputs, asked = (_make_features(rows, schema, target, spread=model == "logistic") for rows in (table, test))
    if model == "logistic":
        middle, scale = inputs.mean(0), inputs.std(0)
        scale = np.where(scale > 0, scale, 1.0)
        inputs, asked = (inputs - middle) / scale, (asked - middle) / scale
    with warnings.catch_warnings():  # a fit that stops before it has converged is enough for a comparison
        warnings.simplefilter("ignore")
        predicted: NDArray[Any] = _make_model(model).fit(inputs, labels).predict(asked)
    return predicted


def _make_features(rows: Rows, schema: Schema, target: str, *, spread: bool) -> NDArray[np.float64]:
    """Return one column each for trees; for a regression one term by value, numbers as they are."""
    found: list[NDArray[np.float64]] = []
    for column in schema.coded:
        if column.name == target:
            continue
        codes = rows.codes[column.name]
        if isinstance(column, AxisColumn):
            empty = np.isnan(rows.units[column.name])
            low = float(column.bounds[0])
            found += [np.where(empty, low, rows.units[column.name]), empty.astype(np.float64)]
        elif spread and column.size <= 50:
            found += [(codes == code).astype(np.float64) for code in range(column.size)]
        else:
            found.append(codes.astype(np.float64))
    return np.column_stack(found) if found else np.zeros((rows.rows, 1))


def _make_model(name: str) -> Any:
    try:
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.tree import DecisionTreeClassifier
    except ImportError:
        raise SettingError("ml_efficacy needs scikit-learn: pip install 'understudy[eval]'") from None
    if name == "logistic":
        return LogisticRegression(max_iter=200)
    if name == "tree":
        return DecisionTreeClassifier(min_samples_leaf=20, random_state=0)
    return RandomForestClassifier(n_estimators=50, min_samples_leaf=5, n_jobs=1, random_state=0)


def _balanced_accuracy(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    return float(np.mean([(predicted[truth == label] == label).mean() for label in np.unique(truth)]))


METRIC = Metric(
    name="ml_efficacy",
    title="Machine-learning efficacy",
    measure=ml_efficacy,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=1.0,
    meaning="Trains models on synthetic rows and tests them on real ones. The score is the balanced accuracy lost "
    "against training on real rows: 0.05 is five percentage points.",
    rows=True,
)
