"""Pages of YAML and JSON that somebody else wrote: bounded, and told in our words."""

import json
import tracemalloc
from pathlib import Path

import pytest
import yaml

from understudy import Schema
from understudy.domain import Domain
from understudy.errors import SchemaError, SettingError
from understudy.run.file import RunFile
from understudy.workload import Workload
from understudy.yaml_json import DEEPEST, MOST_JSON, MOST_YAML, read_json, read_yaml

AGAIN = "[&a0 [x, x]" + "".join(f", &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)) + "]"
"""Two to the power of forty values in a kilobyte."""

HOSTILE = {
    "named again": AGAIN,
    "holding itself": "&a [*a]",
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep by indentation": "- " * 5000 + "x",
    "deep enough to break a reader": "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1),
    "a number beyond all bounds": "9" * 5000,
    "a number of minutes to read": "1" + ":00" * 200_000,
    "a date that is none": "0000-00-00",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_stands_for_too_much_is_refused(case):
    with pytest.raises(yaml.YAMLError):
        read_yaml(HOSTILE[case])


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 101 + "]" * 101, "9" * 5000, "{", '["\\ud83d"]', b'["\xff"]'])
def test_json_beyond_all_bounds_is_refused(text):
    with pytest.raises(ValueError, match=r"nested too deeply|digits|Expecting|surrogates|invalid start byte"):
        read_json(text)


@pytest.mark.parametrize("part", ["{},", '"",'])
def test_json_of_many_values_is_refused_before_it_takes_memory(part):
    page = ("[" + part * MOST_JSON + "0]").encode()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="too many values"):
            read_json(page)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(page)
    finally:
        tracemalloc.stop()


def test_yaml_of_many_values_is_refused_before_it_takes_memory():
    page = "[" + "[]," * 100_000 + "]"
    tracemalloc.start()
    try:
        with pytest.raises(yaml.YAMLError, match="stands for too much"):
            read_yaml(page, most=50_000)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(page)  # as values it is a hundred times that
    finally:
        tracemalloc.stop()


def test_a_schema_of_many_empty_brackets_is_refused(tmp_path: Path):
    path = tmp_path / "people.schema.yaml"
    path.write_text("[" + "[]," * MOST_YAML + "]")
    with pytest.raises(SchemaError, match="too many aliases"):
        Schema.load(path)


def test_signs_within_text_are_no_values():
    page = json.dumps(["[{,:" * MOST_JSON, '\\"', '"\\'])
    assert read_json(page) == json.loads(page)
    assert read_json('["\\ud83d\\ude00"]') == ["\U0001f600"]
    with pytest.raises(ValueError, match="too many values"):
        read_json('["a, b", "c"]', most=2)


def test_parts_may_be_named_again():
    assert read_yaml("a: &yes [x, y]\nb: *yes\nc: &one 1\nd: *one\n") == {
        "a": ["x", "y"],
        "b": ["x", "y"],
        "c": 1,
        "d": 1,
    }
    assert read_json('{"a": [1, {"b": []}]}') == {"a": [1, {"b": []}]}
    assert read_yaml("[" * DEEPEST + "]" * DEEPEST)


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("place", ["title: {}", "fields: {}", "fields: [{{name: a, type: string, categories: {}}}]"])
def test_a_hostile_schema_is_reported_in_words(tmp_path: Path, case, place):
    path = tmp_path / "people.schema.yaml"
    path.write_text(place.format(HOSTILE[case].replace("- ", "[") if "indent" in case else HOSTILE[case]))
    with pytest.raises(SchemaError, match=r"people\.schema\.yaml"):
        Schema.load(path)


@pytest.mark.parametrize("content", ["[" * 100_000, json.dumps({"fields": 0})[:-2] + "[" * 200 + "]" * 200 + "}"])
def test_a_hostile_schema_in_json_is_reported_in_words(tmp_path: Path, content):
    path = tmp_path / "people.schema.json"
    path.write_text(content)
    with pytest.raises(SchemaError, match="nested too deeply"):
        Schema.load(path)


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_workloads_and_run_files_are_reported_in_words(tmp_path: Path, case):
    path = tmp_path / "w.yaml"
    path.write_text(HOSTILE[case])
    with pytest.raises(SettingError):
        Workload.parse(str(path), Domain({"a": 2}))
    with pytest.raises(SettingError):
        RunFile.load(path)


MANY = {
    "bins": {"bins": 10**12},
    "heaped": {"heaped": [2, 1]},
    "width": {"bins": 4, "levels": [{"name": "fine", "width": 1}]},
}


@pytest.mark.parametrize("key", MANY)
def test_a_schema_that_would_fill_the_memory_with_bins_is_refused(key):
    field = {
        "name": "a",
        "type": "integer",
        "constraints": {"minimum": 0, "maximum": 2**53 - 1},
        "understudy": MANY[key],
    }
    with pytest.raises(SchemaError, match=rf"`{key}` makes more than ten million bins"):
        Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
