"""Levels, rules and recodings: what is known beyond single columns."""

import numpy as np
import pandas as pd
import pyarrow as pa

from understudy.domain import Domain
from understudy.schema import Recoding, Schema

CITY = {
    "name": "city",
    "type": "string",
    "categories": ["Lyon", "Paris", "Bonn"],
    "understudy": {
        "missing": {"-9": "refused"},
        "levels": [
            {"name": "region", "groups": {"South": ["Lyon"], "North": ["Paris"]}, "rest": "abroad"},
            {"name": "country", "groups": {"FR": ["South", "North"], "elsewhere": ["Bonn"]}},
        ],
    },
}
AGE = {
    "name": "age",
    "type": "integer",
    "constraints": {"minimum": 17, "maximum": 90, "required": True},
    "understudy": {
        "spikes": [65],
        "levels": [
            {"name": "5 years", "width": 5},
            {"name": "10 years", "width": 10},
            {"name": "old", "edges": [0, 70]},
        ],
    },
}
START = {"name": "start", "type": "date", "constraints": {"minimum": "2020-01-01", "maximum": "2021-12-31"}}
END = START | {"name": "end"}
SCHEMA = Schema.from_dict(
    {
        "fields": [
            CITY,
            AGE,
            START | {"understudy": {"levels": [{"name": "year", "width": "1 year"}], "bins": 731}},
            END,
        ],
        "understudy": {
            "privacy_unit": "row",
            "rules": [
                {"impossible": {"age": {"maximum": 20}, "city": ["Bonn"]}},
                {"from": ["city"], "determines": "age"},
                {"order": ["start", "end"]},
            ],
        },
    }
)
FRAME = pd.DataFrame(
    {
        "city": ["Bonn", "Bonn", "Bonn", "Lyon"],
        "age": [18, 30, 30, 18],
        "start": ["2020-05-01", "2020-05-01", "2020-05-01", None],
        "end": ["2020-05-01", "2020-01-01", "2021-05-01", "2020-01-01"],
    }
)


def test_groups_of_values_nest_and_specials_stay_apart():
    levels = SCHEMA.column("city").generalisations
    assert levels["region"].groups.tolist() == [0, 1, 2, 3, 4, 5]
    assert levels["region"].labels == ("South", "North", "abroad", "refused", "null", "other")
    assert levels["country"].groups.tolist() == [0, 0, 1, 2, 3, 4]


def test_groups_of_numbers_follow_width_and_edges():
    levels = SCHEMA.column("age").generalisations
    ages = np.arange(17, 91)
    codes = SCHEMA.encode(pd.DataFrame({"city": "Lyon", "age": ages, "start": None, "end": None})).codes["age"]
    assert (levels["5 years"].groups[codes] == ages // 5 - 3).all()
    assert (levels["10 years"].groups[codes] == ages // 10 - 1).all()
    assert (levels["old"].groups[codes] == (ages >= 70)).all()
    assert levels["10 years"].labels[0] == "10 to under 20"


def test_years_begin_on_their_first_day():
    level = SCHEMA.column("start").generalisations["year"]
    days = pd.date_range("2020-01-01", "2021-12-31").date
    codes = SCHEMA.encode(pa.table({"city": ["Lyon"] * len(days), "age": [18] * len(days), "start": days, "end": days}))
    assert (level.groups[codes.codes["start"]] == [day.year - 2020 for day in days]).all()


def test_rules_find_the_rows_that_break_them():
    codes = SCHEMA.encode(FRAME).codes
    impossible, dependency, order = SCHEMA.rules
    assert impossible.find_broken(SCHEMA, codes).tolist() == [True, False, False, False]
    assert dependency.find_broken(SCHEMA, codes).tolist() == [True, False, False, False]
    assert order.find_broken(SCHEMA, codes).tolist() == [False, True, False, False]


def test_a_condition_covers_a_bin_only_when_all_of_it_does():
    field = {"name": "x", "type": "integer", "constraints": {"minimum": 0, "maximum": 29}}
    rules = [{"impossible": {"x": {"minimum": 5, "maximum": 19}}}, {"impossible": {"x": [3, None]}}]
    schema = Schema.from_dict(
        {
            "fields": [field | {"understudy": {"bins": {"width": 10}}}],
            "understudy": {"privacy_unit": "row", "rules": rules},
        }
    )
    assert schema.rules[0].masks(schema)["x"].tolist() == [False, True, False, False, False]
    assert schema.rules[1].masks(schema)["x"].tolist() == [False, False, False, True, False]


def test_conditions_on_booleans_and_on_reasons_for_missing():
    field = {"name": "x", "type": "boolean", "trueValues": ["yes"], "falseValues": ["no"]}
    rules = [{"impossible": {"x": [True]}}, {"impossible": {"x": ["no", "refused"]}}]
    content = {"fields": [field | {"understudy": {"missing": {"9": "refused"}}}], "understudy": {"privacy_unit": "row"}}
    content["understudy"]["rules"] = rules
    schema = Schema.from_dict(content)
    assert schema.rules[0].masks(schema)["x"].tolist() == [False, True, False, False, False]
    assert schema.rules[1].masks(schema)["x"].tolist() == [True, False, True, False, False]
    assert schema.to_dict()["understudy"]["rules"] == rules


def test_strict_order_and_ordinal_columns():
    field = {"name": "a", "type": "string", "categories": ["low", "high"], "categoriesOrdered": True}
    ours = {"privacy_unit": "row", "rules": [{"order": ["a", "b"], "strict": True}]}
    schema = Schema.from_dict({"fields": [field, field | {"name": "b"}], "understudy": ours})
    frame = pd.DataFrame({"a": ["low", "low", "high", None], "b": ["high", "low", "low", "low"]})
    assert schema.rules[0].find_broken(schema, schema.encode(frame).codes).tolist() == [False, True, True, False]


def test_rules_and_levels_survive_the_file(tmp_path):
    SCHEMA.save(tmp_path / "s.yaml")
    assert Schema.load(tmp_path / "s.yaml") == SCHEMA


# -- recodings -------------------------------------------------------------------------------------------------------

MERGED = Recoding({"a": np.array([0, 1, 1, 2, 1])})


def test_a_recoding_merges_and_lists_its_members():
    assert MERGED.recode(Domain({"a": 5, "b": 2})) == Domain({"a": 3, "b": 2})
    assert MERGED.apply("a", np.array([4, 3, 0])).tolist() == [1, 2, 0]
    other = np.array([1, 0])
    assert MERGED.apply("b", other) is other
    assert MERGED.merged_codes("a") == [[0], [1, 2, 4], [3]]


def test_recodings_survive_json():
    again = Recoding.from_dict(MERGED.to_dict())
    assert again == MERGED
    assert hash(again) == hash(MERGED)
    assert Recoding.identity().recode(Domain({"a": 3})) == Domain({"a": 3})
    assert Recoding.identity() != MERGED


def test_a_dependency_states_its_values_by_a_map_or_by_a_level():
    country = {"name": "country", "type": "string", "categories": ["FR", "elsewhere"]}
    fields = [CITY, country]

    def rule(**stated):
        content = {"from": ["city"], "determines": "country", **stated}
        return Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row", "rules": [content]}})

    by_level, by_map = rule(level="country"), rule(map={"Bonn": "elsewhere", "Lyon": "FR"})
    assert by_level.rules[0].stated_codes(by_level).tolist() == [0, 0, 1, -1, -1, -1]
    assert by_map.rules[0].stated_codes(by_map).tolist() == [0, -1, 1, -1, -1, -1]
    codes = {"city": np.array([0, 1, 2, 3]), "country": np.array([1, 1, 1, 0])}
    assert by_level.rules[0].find_broken(by_level, codes).tolist() == [True, True, False, False]
    assert by_map.rules[0].find_broken(by_map, codes).tolist() == [True, False, False, False]
    assert by_map.domain.forbidden["city", "country"][:4].astype(int).tolist() == [
        [0, 1, 1, 1],
        [0, 0, 0, 0],
        [1, 0, 1, 1],
        [0, 0, 0, 0],
    ]
    assert Schema.from_dict(by_map.to_dict()) == by_map
    assert rule().domain.forbidden == {}


def test_a_map_names_ranges_of_numbers():
    fields = [AGE, {"name": "group", "type": "string", "categories": ["young", "old"]}]
    rule = {"from": ["age"], "determines": "group", "map": {"17..29": "young", "65..": "old"}}
    schema = Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row", "rules": [rule]}})
    stated = schema.rules[0].stated_codes(schema)
    ages = np.arange(17, 91)
    codes = schema.encode(pd.DataFrame({"age": ages, "group": "old"})).codes["age"]
    assert stated[codes].tolist() == [0 if age < 30 else 1 if age >= 65 else -1 for age in ages]
