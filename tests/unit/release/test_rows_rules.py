"""Rules hold in every row: impossible combinations, dependencies stated and learned, order; for all kinds of models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.domain import Domain, Forbidden
from understudy.errors import SchemaError, SettingError
from understudy.gate.randomness import insecure
from understudy.mechanism.spanning_tree import leave_room_for_rules
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree
from understudy.release import rows as making
from understudy.run.checks import check_rules
from understudy.schema import Recoding, Schema
from understudy.schema.rules import LARGEST_RULE

STATES = {f"c{i}": "ABC"[i % 3] for i in range(12)}


def day(name):
    bounds = {"minimum": "2020-01-01", "maximum": "2021-12-31"}
    return {"name": name, "type": "date", "constraints": bounds, "understudy": {"bins": {"width": "1 month"}}}


def whole(name, high, **ours):
    return {"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": high}, "understudy": ours}


def words(name, values, **ours):
    return {"name": name, "type": "string", "categories": list(values), "understudy": ours}


def schema_of(fields, rules):
    return Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row", "rules": rules}})


SCHEMA = schema_of(
    [
        whole("age", 99, bins={"width": 10}),
        words("marital", ["single", "married", "widowed"]),
        words("city", STATES),
        words("state", "ABC"),
        whole("density", 10, bins=5),
        day("start"),
        day("end"),
        {"name": "key", "understudy": {"kind": "id", "pattern": "P-####"}},
    ],
    [
        {"impossible": {"age": {"maximum": 14}, "marital": ["married", "widowed"]}},
        {"from": ["city"], "determines": "state", "map": STATES},
        {"from": ["city"], "determines": "density"},
        {"order": ["start", "end"]},
    ],
)


def people(rows=4000):
    rng = np.random.default_rng(0)
    age, city, start = rng.integers(0, 100, rows), rng.integers(0, 12, rows), rng.integers(0, 600, rows)
    return pd.DataFrame(
        {
            "age": age,
            "marital": np.where(age < 15, "single", rng.choice(["single", "married", "widowed"], rows)),
            "city": [f"c{i}" for i in city],
            "state": ["ABC"[i % 3] for i in city],
            "density": city * 10 // 12,
            "start": pd.to_datetime("2020-01-01") + pd.to_timedelta(start, unit="D"),
            "end": pd.to_datetime("2020-01-01") + pd.to_timedelta(start + rng.integers(0, 100, rows), unit="D"),
        }
    )


def broken(rows):
    """By rule, how many rows break it: from the values alone."""
    known = rows[rows["city"].isin(STATES)]
    return {
        "age": int(((rows["age"] <= 14) & rows["marital"].isin(["married", "widowed"])).sum()),
        "state": int((known["city"].map(STATES) != known["state"].fillna("?")).sum()),
        "density": int((known["density"].fillna(-1).groupby(known["city"]).nunique() > 1).sum()),
        "order": int((rows["start"] > rows["end"]).sum()),
    }


NONE = {"age": 0, "state": 0, "density": 0, "order": 0}


def made(mechanism, schema=SCHEMA, frame=None, **settings):
    with insecure(3):
        frame = people() if frame is None else frame
        return us.synthesize(frame, schema, epsilon=1, delta=1e-6, mechanism=mechanism, **settings)


@pytest.fixture(scope="module")
def releases():
    chosen = {"mst": {}, "aim": {"workload": "all-2way", "rounds": 3}}
    chosen |= {name: {} for name in ("adaptive", "privbayes", "privmrf", "privsyn", "independent")}
    chosen["rap"] = {"workload": "all-2way", "rounds": 2, "batch": 3}
    return {name: made(name, **settings) for name, settings in chosen.items()}


@pytest.mark.parametrize(
    "mechanism", ["mst", "aim", "adaptive", "privbayes", "privmrf", "privsyn", "rap", "independent"]
)
def test_no_rule_is_broken_in_a_million_rows(releases, mechanism):
    count = 1_000_000 if mechanism == "mst" else 100_000  # rows of other models are made in the same batches
    rows = releases[mechanism].sample(count, seed=1, as_="pandas")
    assert len(rows) == count
    assert broken(rows) == NONE
    assert rows["key"].iloc[[0, -1]].tolist() == [f"P-{1:0{len(str(count))}}", f"P-{count}"]
    assert 0.02 < (rows["age"] <= 14).mean() < 0.3
    assert set(STATES) <= set(rows["city"])


@pytest.mark.parametrize("mechanism", ["mwem", "gaussian", "hdmm", "dpfieldgroups", "dpsyn", "laplace", "pfr"])
def test_other_mechanisms_obey_too(mechanism):
    fields = [SCHEMA.to_dict()["fields"][i] for i in (0, 1, 2, 3)]
    schema = schema_of(fields, [rule.to_dict() for rule in SCHEMA.rules[:2]])
    settings = {"workload": "all-2way"} if mechanism in ("mwem", "gaussian", "hdmm") else {}
    rows = made(mechanism, schema, people()[["age", "marital", "city", "state"]], **settings).sample(
        50_000, as_="pandas"
    )
    assert not ((rows["age"] <= 14) & rows["marital"].isin(["married", "widowed"])).any()
    known = rows[rows["city"].isin(STATES)]
    assert (known["city"].map(STATES) == known["state"]).all()


def test_rows_would_break_rules_if_values_were_not_looked_at(releases, monkeypatch):
    monkeypatch.setattr(making, "find_broken_rows", lambda schema, codes, table: np.zeros(table.num_rows, bool))
    monkeypatch.setattr(making, "exchange_values", lambda schema, merged, codes, table, rng: (codes, table))
    found = broken(releases["mst"].sample(20_000, seed=1, as_="pandas"))
    assert found["age"] > 0
    assert found["order"] > 0


def test_a_saved_release_obeys_and_makes_the_same_rows(releases, tmp_path):
    releases["mst"].save(tmp_path / "r.release")
    again = us.Release.load(tmp_path / "r.release")
    rows = again.sample(20_000, seed=5, as_="pandas")
    assert broken(rows) == NONE
    pd.testing.assert_frame_equal(rows, releases["mst"].sample(20_000, seed=5, as_="pandas"), check_dtype=False)


def test_text_as_the_file_writes_it_obeys(releases):
    rows = releases["mst"].sample(20_000, seed=5, as_="pandas", as_written=True)
    assert broken(rows.assign(start=pd.to_datetime(rows["start"]), end=pd.to_datetime(rows["end"]))) == NONE


def test_replicates_obey(releases):
    for rows in releases["mst"].replicates(2, rows=5000, seed=1, as_="pandas"):
        assert broken(rows) == NONE


def test_what_is_learned_is_what_the_data_say(releases):
    rows = releases["mst"].sample(20_000, seed=1, as_="pandas")
    got = rows[rows["city"].isin(STATES)].groupby("city")["density"].first()
    right = [abs(got[f"c{i}"] - i * 10 // 12) <= 2 for i in range(12)]
    assert sum(right) >= 10


def test_merged_values_may_determine_different_things():
    """Every age is too rare to keep; the groups that ages determine must keep their shares all the same."""
    fields = [whole("age", 99), words("group", ["young", "old"])]
    schema = schema_of(fields, [{"from": ["age"], "determines": "group"}])
    age = np.random.default_rng(0).integers(0, 100, 400)
    release = made("mst", schema, pd.DataFrame({"age": age, "group": np.where(age < 50, "young", "old")}))
    assert release.recoding.recode(schema.domain)["age"] < 10
    rows = release.sample(50_000, seed=1, as_="pandas")
    assert 0.3 < (rows["group"] == "young").mean() < 0.7
    known = rows[rows["age"].notna()]
    assert (known["group"].fillna("?").groupby(known["age"]).nunique() == 1).all()


@pytest.mark.parametrize("rare", [None, "spread"])
def test_stated_dependencies_hold_where_both_columns_have_merged_values(rare):
    belongs = {f"t{i}": f"s{i % 40}" for i in range(400)}
    schema = schema_of(
        [words("town", belongs), words("state", dict.fromkeys(belongs.values()))],
        [{"from": ["town"], "determines": "state", "map": belongs}],
    )
    town = np.minimum(np.random.default_rng(0).geometric(0.05, 3000) - 1, 399)
    frame = pd.DataFrame({"town": [f"t{i}" for i in town], "state": [f"s{i % 40}" for i in town]})
    release = made("mst", schema, frame)
    assert len(release.merged["town"]) > 300
    assert len(release.merged["state"]) > 3
    rows = release.sample(50_000, seed=1, rare=rare, as_="pandas")
    known = rows[rows["town"].isin(belongs)]
    assert len(known) > 30_000
    assert (known["town"].map(belongs) == known["state"]).all()


def test_order_is_kept_between_numbers_of_different_precision_also_strictly():
    fields = [
        whole("low", 20, bins=3),
        {
            "name": "high",
            "type": "number",
            "constraints": {"minimum": 0, "maximum": 20},
            "understudy": {"decimals": 1, "bins": 4},
        },
    ]
    schema = schema_of(fields, [{"order": ["low", "high"], "strict": True}])
    low = np.random.default_rng(0).integers(0, 15, 2000)
    rows = made("mst", schema, pd.DataFrame({"low": low, "high": low + 0.5})).sample(100_000, seed=0, as_="pandas")
    assert not (rows["low"] >= rows["high"]).any()
    assert rows["low"].notna().mean() > 0.9


@pytest.mark.parametrize(
    "rules",
    [
        [{"impossible": {"a": ["x"]}}, {"impossible": {"a": ["y"]}}],
        [{"order": ["n", "m"], "strict": True}, {"order": ["m", "n"]}],
        [{"from": ["a"], "determines": "b", "map": {"x": "x", "y": "y"}}, {"impossible": {"b": ["x", "y"]}}],
    ],
)
def test_contradictory_rules_are_an_error_before_anything_is_spent(rules, tmp_path):
    closed = {"constraints": {"required": True}}
    fields = [words(name, "xy", on_unknown="drop_row") | closed for name in "ab"]
    fields += [whole(name, 3, on_unknown="drop_row") for name in "nm"]
    fields[2]["constraints"]["required"] = fields[3]["constraints"]["required"] = True
    schema = schema_of(fields, rules)
    frame = pd.DataFrame({"a": ["x"], "b": ["y"], "n": [1], "m": [2]})
    with pytest.raises(SchemaError, match="leave no possible row; correct one of them"):
        us.synthesize(frame, schema, epsilon=1, delta=1e-6, output=tmp_path / "r.release")
    assert not list(tmp_path.iterdir())


def test_a_rule_too_large_for_memory_is_refused_before_anything_is_spent(tmp_path):
    fields = [words(name, [f"{name}{i}" for i in range(10_000)]) for name in ("city", "town")]
    schema = schema_of(fields, [{"from": ["city"], "determines": "town"}])
    assert schema.domain.cells() > LARGEST_RULE
    frame = pd.DataFrame({"city": ["city1"], "town": ["town1"]})
    with pytest.raises(SchemaError, match="combines city, town"):
        us.synthesize(frame, schema, epsilon=1, delta=1e-6, output=tmp_path / "r.release")
    assert not list(tmp_path.iterdir())


def test_preflight_counts_the_tables_that_rules_tie_together():
    assert check_rules(schema_of([whole("a", 99), whole("b", 99)], [])) == 0
    two = check_rules(schema_of([whole("a", 99), whole("b", 99)], [{"order": ["a", "b"]}]))
    assert two >= 8 * 100 * 100


def test_a_merged_cell_is_forbidden_only_when_all_of_its_cells_are():
    mask = np.array([[True, True, False], [True, True, True]])
    domain = Domain({"a": 2, "b": 3}, [Forbidden(("a", "b"), lambda: mask)])
    merged = Recoding({"b": np.array([1, 0, 1])}).recode(domain)
    assert merged.forbidden["a", "b"].tolist() == [[True, False], [True, True]]
    assert Recoding({"a": np.array([0, 0])}).recode(domain).forbidden["a", "b"].tolist() == [[True, True, False]]


def test_a_rule_ties_its_columns_together_in_the_tree_and_in_every_model():
    mask = np.zeros((5, 5), bool)
    mask[0, 1:] = True
    domain = Domain(dict.fromkeys("abc", 5), [Forbidden(("a", "c"), lambda: mask)])
    assert JunctionTree.of(domain, [("a", "b")]).home(("a", "c")) is not None
    assert GraphicalModel(domain, {}, total=1.0).project(("a", "c"))[0, 1:].sum() == 0


def test_pairs_that_would_make_the_model_large_next_to_rules_are_left_for_smaller_ones():
    ties = [Forbidden(pair, lambda: np.zeros((300, 300), bool)) for pair in (("a", "b"), ("c", "d"))]
    domain = Domain({**dict.fromkeys("abcd", 300), "e": 2}, ties)
    left = leave_room_for_rules(domain, [("a", "c"), ("b", "e")], [("b", "d")])
    assert left == [("b", "e")]
    assert leave_room_for_rules(Domain(dict.fromkeys("abcd", 300)), [("a", "c")], [("b", "d")]) == [("a", "c")]


def test_a_rule_that_hardly_any_value_obeys_gives_up_in_words():
    fields = [whole("n", 10**6, bins=1, on_unknown="drop_row"), whole("m", 10**6, bins=1, on_unknown="drop_row")]
    for field in fields:
        field["constraints"]["required"] = True
    schema = schema_of(fields, [{"impossible": {"n": {"minimum": 1}}}])
    with pytest.raises((SettingError, SchemaError), match="rules"):
        made("mst", schema, pd.DataFrame({"n": [0] * 50, "m": [5] * 50})).sample(100, as_="pandas")
