"""What every metric promises: perfect for equal tables, worse with more noise, the same with the same seed."""

import sys
import types
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from understudy.errors import InputError, SchemaError, SettingError
from understudy.metric import METRICS, Metric, Rows, Score, get_metric
from understudy.metric.base import Counted, Part
from understudy.metric.registry import measure, read_settings

from .conftest import table_of

NAMES = [
    "workload_error",
    "nist_density",
    "nist_conjunctions",
    "nist_income",
    "nist_contest",
    "k_marginal",
    "pie_chart",
    "pmse",
    "pmse_ratio",
    "specks",
    "range_queries",
    "numbers",
    "mgd",
    "ml_efficacy",
    "disclosure",
]
SETTINGS: dict[str, dict[str, Any]] = {
    "nist_density": {"draws": 20},
    "nist_conjunctions": {"draws": 60, "chance": 0.4},
    "nist_income": {"group": "city", "binary": "sex", "amount": "wage"},
    "nist_contest": {"triples": 20, "conjunctions": 60, "match": 3, "group": "city", "binary": "sex", "amount": "wage"},
    "pie_chart": {"place": "city", "month": "month", "type": "ill"},
    "pmse": {"cross_validated": False},
    "pmse_ratio": {"cross_validated": False, "permutations": 2},
    "specks": {"cross_validated": False},
    "range_queries": {"queries": 200},
    "ml_efficacy": {"models": ["logistic", "tree"], "target": "ill"},
}


def scored(name: str, real: Any, made: Any, schema: Any, seed: int = 0) -> Score:
    tables = Rows.of(real, schema), Rows.of(made, schema)
    return measure(*tables, schema, [name], {name: SETTINGS.get(name, {})}, seed=seed)[0]


def worse(metric: Metric, value: float) -> float:
    return abs(value - metric.best)


def test_the_names_are_the_published_ones() -> None:
    assert list(METRICS) == NAMES
    assert all(get_metric(name).name == name for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_says_what_it_is(name: str) -> None:
    metric = METRICS[name]
    assert metric.better in ("lower", "higher")
    assert len(metric.meaning) > 60
    assert metric.title


@pytest.mark.parametrize("name", [name for name in NAMES if name != "disclosure"])
def test_equal_tables_are_perfect(name: str, real: Any, people: Any) -> None:
    score = scored(name, real, real, people)
    assert score.value == pytest.approx(METRICS[name].best, abs=1e-9)
    assert (score.metric, score.better) == (name, METRICS[name].better)


def test_a_copied_table_is_caught_by_disclosure(real: Any, people: Any) -> None:
    score = scored("disclosure", real, real, people)
    assert score.value > 0.1
    assert any("guarantee is the mechanism's" in note for note in score.notes)
    assert scored("disclosure", real, table_of(1500, seed=2, noise=1.0), people).value < 0.01


@pytest.mark.parametrize("name", [name for name in NAMES if name != "disclosure"])
def test_more_noise_is_worse(name: str, real: Any, people: Any) -> None:
    metric = METRICS[name]
    found = [worse(metric, scored(name, real, table_of(1500, seed=2, noise=noise), people).value) for noise in (0, 0.9)]
    assert found[0] < found[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_score(name: str, real: Any, people: Any) -> None:
    made = table_of(800, seed=3, noise=0.2)
    assert scored(name, real, made, people, seed=5) == scored(name, real, made, people, seed=5)


@pytest.mark.parametrize("name", NAMES)
def test_awkward_tables_have_finite_scores(name: str, real: Any, people: Any) -> None:
    made = table_of(40, seed=4)
    made["city"] = None  # a column of nulls
    made["ill"] = True  # a single class
    made["wage"] = np.nan
    made["sex"] = "1"  # a category on one side only
    assert np.isfinite(scored(name, real, made, people).value)
    assert np.isfinite(scored(name, made, real, people).value)


@pytest.mark.parametrize("name", [name for name in NAMES if not METRICS[name].rows])
def test_counts_are_enough(name: str, real: Any, people: Any) -> None:
    class Server:
        """A table that answers counts and nothing else."""

        def __init__(self, frame: Any) -> None:
            self._rows = Rows.of(frame, people)
            self.domain, self.rows, self.counts = self._rows.domain, self._rows.rows, self._rows.counts

    server = Server(real)
    assert isinstance(server, Counted)
    metric = METRICS[name]
    settings = read_settings(metric, SETTINGS.get(name, {}))
    score = metric.measure(server, Server(table_of(500, 3)), people, settings, np.random.default_rng(0))
    assert np.isfinite(score.value)


def test_a_score_is_never_nan() -> None:
    with pytest.raises(InputError, match="no finite value"):
        Score("x", float("nan"), "lower", 0.0)
    with pytest.raises(InputError, match="no finite value"):
        Score("x", 0.0, "lower", 0.0, (Part("a", "b", float("inf")),))


def test_empty_tables_are_refused(real: Any, people: Any) -> None:
    with pytest.raises(InputError, match="synthetic table has no row"):
        Rows.of(real.head(0), people, what="synthetic table")


def test_columns_that_one_table_lacks(real: Any, people: Any) -> None:
    tables = Rows.of(real, people), Rows.of(real.drop(columns=["wage"]), people, partial=True)
    for name in ("workload_error", "mgd", "k_marginal", "specks", "disclosure"):
        with pytest.raises(SchemaError, match="'wage'"):
            measure(*tables, people, [name])
    density = measure(*tables, people, ["nist_density"])[0]
    triples = [part.value for part in density.parts if part.kind == "marginal"]
    assert set(triples) == {0.0, 1.0}  # a triple with the column scores 0, all others are perfect
    assert measure(*tables, people, ["nist_conjunctions"], {"nist_conjunctions": {"chance": 1.0}})[0].value < 1e6
    assert measure(*tables, people, ["nist_income"], {"nist_income": SETTINGS["nist_income"]})[0].value == 0.0


@pytest.mark.parametrize(
    ("metrics", "settings", "words"),
    [
        (["nope"], {}, "unknown; the choices are workload"),
        (["nist_income"], {}, "nist_income needs group"),
        (["pie_chart"], {"pie_chart": {"place": "city", "month": "month", "type": "nope"}}, "no synthesised column"),
        (["mgd"], {"mgd": {"tolerance": -1}}, "tolerance"),
        (["mgd"], {"mgd": {"hierarchy": {"city": [[0, 1]]}, "moving": {"city": 1.0}}}, "does not cover"),
        (["mgd"], {"mgd": {"level": {"city": "land"}}}, "no level 'land'"),
        (["mgd"], {"mgd": {"nope": 1}}, "no setting 'nope'"),
        (["workload_error"], {"workload_error": {"weight": "city"}}, "not numeric"),
        (["ml_efficacy"], {"ml_efficacy": {"models": ["oracle"]}}, "give one of logistic"),
        (["workload_error"], {"mgd": {}}, "not among the metrics"),
    ],
)
def test_bad_settings(metrics: list[str], settings: dict[str, Any], words: str, real: Any, people: Any) -> None:
    table = Rows.of(real.head(50), people)
    with pytest.raises(SettingError, match=words):
        measure(table, table, people, metrics, settings)


WRONG = [-1, 0, 1.5, "x", [], None, {"a": 1}, float("nan"), True, [None]]


@pytest.mark.parametrize("name", [*METRICS])
def test_settings_of_a_wrong_kind_are_refused_by_name(name: str, real: Any, people: Any) -> None:
    """Whatever is given, a metric runs with it, or says which setting is wrong, or at least whose; nothing else."""
    table = Rows.of(real.head(30), people)
    quick = {"rows": 20, "draws": 2, "queries": 2, "permutations": 1, "models": ["logistic"], "most": 2, "ways": [1]}
    known = {field.name for field in fields(METRICS[name].settings)}
    base = SETTINGS.get(name, {}) | {key: value for key, value in quick.items() if key in known}
    if name == "ml_efficacy":
        base["models"] = ["tree"]
    said = []
    for setting in known:
        for value in WRONG:
            try:
                measure(table, table, people, [name], {name: base | {setting: value}})
            except (SettingError, SchemaError) as error:
                said.append((setting, str(error)))
    assert all(setting in words or words.startswith(f"{name}:") for setting, words in said)


def test_one_value_stands_for_a_list_of_one(real: Any, people: Any) -> None:
    table = Rows.of(real.head(50), people)
    one, listed = (
        measure(table, table, people, ["workload_error"], {"workload_error": {"ways": w}}) for w in (2, [np.int64(2)])
    )
    assert one == listed
    with pytest.raises(
        SettingError, match=r"workload_error.ways: give a whole number of at least 1, or several as \[A, B\]"
    ):
        measure(table, table, people, ["workload_error"], {"workload_error": {"ways": "x"}})


def test_sampling_is_reported(real: Any, people: Any) -> None:
    tables = Rows.of(real, people), Rows.of(real, people)
    settings = {"specks": {"rows": 100, "cross_validated": False}, "nist_conjunctions": {"rows": 100, "draws": 5}}
    for score in measure(*tables, people, list(settings), settings):
        assert any("100" in note and "at random" in note for note in score.notes)
    assert any(
        "drawn at random" in note
        for note in measure(*tables, people, ["workload_error"], {"workload_error": {"most": 3}})[0].notes
    )


def test_weights_change_totals_and_shares(people: Any) -> None:
    import pandas as pd

    base = pd.DataFrame(
        {
            "city": ["x", "y"],
            "sex": ["1", "2"],
            "age": [20, 40],
            "wage": [100.0, 300.0],
            "month": ["jan"] * 2,
            "ill": [True] * 2,
        }
    )
    made = base.assign(wage=[200.0, 200.0])
    tables = Rows.of(base, people), Rows.of(made, people)
    score = measure(*tables, people, ["workload_error"], {"workload_error": {"cliques": [["city"]], "weight": "wage"}})[
        0
    ]
    assert (score.part("total", "real"), score.part("total", "synthetic")) == (400.0, 400.0)
    assert score.part("marginal", "city") == pytest.approx(0.25)
    assert measure(*tables, people, ["workload_error"], {"workload_error": {"cliques": [["city"]]}})[0].value == 0.0


def test_hierarchies_make_moves_cheaper(people: Any) -> None:
    from dataclasses import replace

    from understudy.schema.categorical import Categorical
    from understudy.schema.column import Level

    grouped = Categorical(
        name="city", values=("x", "y", "z"), levels=(Level(name="land", groups={"a": ("x", "y"), "b": ("z",)}),)
    )
    schema = replace(people, columns=(grouped, *people.columns[1:]))
    real, made = table_of(200, 1), table_of(200, 1)
    made["city"] = made["city"].replace({"x": "y"})
    tables = Rows.of(real, schema), Rows.of(made, schema)
    settings: dict[str, Any] = {"marginals": [["city"]], "tolerance": 0}
    apart, moved, coarse = (
        measure(*tables, schema, ["mgd"], {"mgd": settings | extra})[0].value
        for extra in ({}, {"moving": {"city": 1.0}}, {"level": {"city": "land"}})
    )
    share = (real["city"] == "x").mean()
    assert apart == pytest.approx(2 * share)
    assert moved == pytest.approx(share / 2)
    assert coarse == 0.0


def test_the_example_of_how_to_add_a_metric_is_a_metric(
    real: Any, people: Any, monkeypatch: pytest.MonkeyPatch, contributing_example: Callable[[str], str]
) -> None:
    module = types.ModuleType("total_variation")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(contributing_example("Add a metric"), vars(module))  # noqa: S102 - a page of ours
    point = types.SimpleNamespace(name="total_variation", load=lambda: module.METRIC)
    monkeypatch.setattr("understudy.metric.registry.entry_points", lambda group: [point])
    assert scored("total_variation", real, real, people).value == 0.0
    near, far = (scored("total_variation", real, table_of(1500, seed=2, noise=noise), people) for noise in (0, 0.9))
    assert near.value < far.value < 1.0
    assert {part.name for part in far.parts} == set(people.domain)
    with pytest.raises(SettingError, match=r"total_variation\.most: give a whole number of at least 1"):
        read_settings(module.METRIC, {"most": 0})
