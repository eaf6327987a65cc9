"""Rows given conditions: exactly the model's conditional, also where a condition cuts through bins and merged codes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import understudy as us
from understudy.domain import Domain
from understudy.errors import InputError, SettingError
from understudy.gate.randomness import insecure
from understudy.model.graphical import GraphicalModel
from understudy.model.product import ProductModel
from understudy.schema import Schema

CERTAIN = 1e-6


def words(name, values, **ours):
    return {"name": name, "type": "string", "categories": list(values), "understudy": ours}


SCHEMA = Schema.from_dict(
    {
        "fields": [
            words("sex", "FM"),
            {
                "name": "age",
                "type": "integer",
                "constraints": {"minimum": 0, "maximum": 99},
                "understudy": {"bins": {"width": 10}, "spikes": [65]},
            },
            {
                "name": "wage",
                "type": "number",
                "constraints": {"minimum": 0, "maximum": 100},
                "understudy": {"bins": 5, "missing": {"-9": "refused"}},
            },
            words("city", ["Bonn", "Ulm", "Jena", *(f"v{i}" for i in range(20))]),
        ],
        "understudy": {"privacy_unit": "row"},
    }
)


def people(rows=5000):
    rng = np.random.default_rng(1)
    sex, age = rng.choice(["F", "M"], rows, p=[0.6, 0.4]), rng.integers(0, 100, rows)
    wage = np.clip(rng.normal(np.where(sex == "F", 40, 60) + age / 5, 15), 0, 100).round(2)
    return pd.DataFrame({"sex": sex, "age": age, "wage": wage, "city": rng.choice(["Bonn", "Ulm", "Jena"], rows)})


def made(mechanism, **settings):
    with insecure(5):
        return us.synthesize(people(), SCHEMA, epsilon=2, delta=1e-6, mechanism=mechanism, **settings)


@pytest.fixture(scope="module")
def release():
    return made("mst")


def statistic(counts, chances):
    """The p-value of Pearson's test that the counts were drawn with these chances, rare cells pooled."""
    expected = chances / chances.sum() * counts.sum()
    big = expected >= 5
    observed = np.append(counts[big], counts[~big].sum())
    wanted = np.append(expected[big], expected[~big].sum())
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    return float(chi2.sf(((observed - wanted) ** 2 / wanted).sum(), max(len(wanted) - 1, 1)))


def cells(release, rows, columns):
    codes = SCHEMA.encode(rows).codes
    merged = {column: release.recoding.apply(column, codes[column]) for column in columns}
    shape = release.model.domain.shape(columns)
    return np.bincount(np.ravel_multi_index([merged[c].astype(int) for c in columns], shape), minlength=np.prod(shape))


def test_rows_have_the_models_conditional_and_no_other(release):
    rows = release.sample(200_000, seed=3, where={"sex": "F"}, as_="pandas")
    assert (rows["sex"] == "F").all()
    table = release.model.project(("sex", "age", "wage"))[0]
    counts = cells(release, rows, ("age", "wage"))
    assert statistic(counts, table.reshape(-1)) > CERTAIN
    other = release.model.project(("sex", "age", "wage"))[1]
    assert statistic(counts, other.reshape(-1)) < CERTAIN


def test_a_range_that_cuts_bins_gives_each_its_part(release):
    rows = release.sample(200_000, seed=4, where="age=35..71", as_="pandas")
    assert rows["age"].between(35, 71).all()
    by_age = release.model.project(("age",))
    parts = {3: 0.5, 4: 1.0, 5: 1.0, 6: 1.0, 7: 1.0, 8: 0.2}  # the spike 65 has a code of its own
    column = SCHEMA.column("age")
    chances = np.zeros(len(by_age))
    for code in range(column.ordinary):
        low, high = column.axis.lower[code], column.axis.upper[code]
        points = [a for a in range(int(low), int(max(high, low + 1))) if column.axis.spike[code] or a != 65]
        merged = int(release.recoding.apply("age", np.array([code]))[0])
        chances[merged] += by_age[merged] * np.mean([35 <= a <= 71 for a in points])
    counts = cells(release, rows, ("age",))
    assert statistic(counts, chances) > CERTAIN
    assert statistic(counts, by_age * (chances > 0)) < CERTAIN
    assert len(parts) == 6
    inside = rows["age"][rows["age"].between(35, 39)].value_counts()
    assert statistic(inside.reindex(range(35, 40), fill_value=0).to_numpy(), np.ones(5)) > CERTAIN


def test_several_conditions_values_and_points(release):
    rows = release.sample(5000, seed=5, where={"sex": ["F", "M"], "age": [31, 33], "wage": (20.5, None)}, as_="pandas")
    assert set(rows["age"]) == {31, 33}
    assert (rows["wage"] >= 20.5).all()
    assert set(release.sample(50, where={"age": 65}, as_="pandas")["age"]) == {65}
    assert set(release.sample(50, where={"wage": 33.25}, as_="pandas")["wage"]) == {33.25}


def test_without_rows_as_many_as_are_expected(release):
    share = release.model.project(("sex",))[0] / release.model.total
    assert len(release.sample(where={"sex": "F"}, as_="pandas")) == pytest.approx(share * release.default_rows, abs=1)
    assert len(release.sample(0, where={"sex": "F"}, as_="pandas")) == 0


def test_merged_values_follow_what_rows_show(release):
    merged = release.merged["city"]
    assert "v3" in merged
    shown = release.sample(2000, seed=1, where={"city": "other"}, as_="pandas")
    assert (shown["city"] == "other").all()
    spread = release.sample(2000, seed=1, where={"city": ["v3", "Bonn"]}, rare="spread", as_="pandas")
    assert set(spread["city"]) <= {"v3", "Bonn"}
    with pytest.raises(SettingError, match="rare='spread'"):
        release.sample(10, where={"city": "v3"}, as_="pandas")


def test_what_cannot_be_is_said(release):
    with pytest.raises(SettingError, match="column 'age' goes from 0 to 99"):
        release.sample(10, where={"age": (200, 300)}, as_="pandas")
    with pytest.raises(SettingError, match="there is no column 'shoe'"):
        release.sample(10, where={"shoe": 43}, as_="pandas")
    with pytest.raises(SettingError, match="not a value of column 'sex'"):
        release.sample(10, where={"sex": "X"}, as_="pandas")
    rules = [{"impossible": {"sex": ["F"], "city": ["Bonn"]}}]
    content = SCHEMA.to_dict()
    schema = Schema.from_dict(content | {"understudy": content["understudy"] | {"rules": rules}})
    with insecure(5):
        ruled = us.synthesize(people(500), schema, epsilon=1, delta=1e-6, mechanism="independent")
    with pytest.raises(SettingError, match="no row of this release can satisfy the conditions on sex, city together"):
        ruled.sample(10, where={"sex": "F", "city": "Bonn"}, as_="pandas")
    assert (ruled.sample(100, where={"sex": "F"}, as_="pandas")["city"] != "Bonn").all()


def test_independent_columns_stay_as_they_are():
    independent = made("independent")
    rows = independent.sample(100_000, seed=2, where={"sex": "F"}, as_="pandas")
    assert (rows["sex"] == "F").all()
    assert statistic(cells(independent, rows, ("age",)), independent.model.project(("age",))) > CERTAIN


def test_gum_refuses_and_says_what_to_do():
    with pytest.raises(SettingError, match="generator='pgm'"):
        made("privsyn").sample(10, where={"sex": "F"}, as_="pandas")


@pytest.mark.parametrize("kind", [GraphicalModel, ProductModel])
def test_conditioning_multiplies_chances_and_scales_the_total(kind):
    domain = Domain({"a": 2, "b": 3})
    shares = {"a": np.array([0.25, 0.75]), "b": np.array([0.2, 0.3, 0.5])}
    if kind is GraphicalModel:
        model = GraphicalModel(domain, {(c,): np.log(share) for c, share in shares.items()}, total=80.0)
    else:
        model = ProductModel(domain, 80.0, shares)
    given = model.condition({"a": 1, "b": np.array([1.0, 0.5, 0.0])})
    assert given.total == pytest.approx(80 * 0.75 * 0.35)
    assert given.project(("a", "b")) == pytest.approx(80 * 0.75 * np.array([[0, 0, 0], [0.2, 0.15, 0]]))
    with pytest.raises(InputError):
        model.condition({"b": np.zeros(3)})
