"""Arguments of the wrong kind: every function of the facade refuses them in our words, naming the option."""

from pathlib import Path
from typing import Annotated, Literal, get_type_hints

import numpy as np
import pandas as pd
import pytest
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as settings_class

import understudy as us
from understudy.arguments import as_mapping, as_names, as_path, as_progress, as_whole, setting_error
from understudy.errors import InputError, SettingError
from understudy.progress import silent
from understudy.schema import PrivacyUnit
from understudy.source import MemorySource

SCHEMA = us.Schema.from_domain({"a": 3, "b": 2})
ROWS = pd.DataFrame({"a": [0, 1, 2] * 20, "b": [0, 1] * 30})
CODES = {"a": np.zeros(2, int), "b": np.zeros(2, int)}
NOT_PATHS = [None, 3, 2.5, b"x", [], {}, object(), "", "a\0b"]


@pytest.fixture(scope="module")
def release() -> us.Release:
    return us.synthesize(ROWS, SCHEMA, rho=1.0)


@pytest.mark.parametrize("given", NOT_PATHS)
def test_anything_but_a_path_is_refused_by_its_option(given, release):
    calls = {
        "path": (us.Release.load, release.save, SCHEMA.save),
        "schema": (us.Schema.load, lambda value: us.evaluate(ROWS, ROWS, value)),
    }
    if given is not None:
        calls["output"] = (
            lambda value: us.synthesize(ROWS, SCHEMA, rho=1.0, output=value),
            lambda value: us.resume(run_of(), output=value),
        )
    for option, functions in calls.items():
        for function in functions:
            with pytest.raises(InputError, match=option):
                function(given)


WRONG = {
    "synthesize progress": lambda r: us.synthesize(ROWS, SCHEMA, rho=1.0, progress=3),
    "synthesize rows": lambda r: us.synthesize(ROWS, SCHEMA, rho=1.0, rows=True),
    "synthesize temp_dir": lambda r: us.synthesize("duckdb://x.duckdb?table=t", SCHEMA, rho=1.0, temp_dir=3),
    "synthesize query": lambda r: us.synthesize("duckdb://x.duckdb", SCHEMA, rho=1.0, query=3),
    "synthesize seed": lambda r: us.synthesize(ROWS, SCHEMA, rho=1.0, seed=1),
    "resume progress": lambda r: us.resume(run_of(), progress="loud"),
    "evaluate metrics": lambda r: us.evaluate(ROWS, ROWS, SCHEMA, metrics=3),
    "evaluate metrics of numbers": lambda r: us.evaluate(ROWS, ROWS, SCHEMA, metrics=[3]),
    "evaluate seed": lambda r: us.evaluate(ROWS, ROWS, SCHEMA, metrics="mgd", seed=-1),
    "evaluate progress": lambda r: us.evaluate(ROWS, ROWS, SCHEMA, metrics="mgd", progress=3),
    "evaluate mgd": lambda r: us.evaluate(ROWS, ROWS, SCHEMA, metrics="mgd", mgd=3),
    "evaluate weight": lambda r: us.evaluate(ROWS, ROWS, SCHEMA, metrics="workload_error", weight={}),
    "sample rare": lambda r: r.sample(rare=3),
    "stream rare": lambda r: r.stream(rare=[3]),
    "answer confidence": lambda r: r.answer("a=1", confidence=10**400),
    "bounds confidence": lambda r: r.bounds(confidence=10**400),
    "replicates count": lambda r: r.replicates(10**400),
    "replicates rows": lambda r: r.replicates(2, rows=2.5),
    "replicates seed": lambda r: r.replicates(2, seed=-1),
    "synthesize ledger": lambda r: us.synthesize(ROWS, SCHEMA, rho=1.0, ledger=3),
    "resume run": lambda r: us.resume(3),
    "resume run of nothing": lambda r: us.resume(None),
    "Ledger ledger": lambda r: us.Ledger(3),
    "Ledger ledger of bytes": lambda r: us.Ledger(b"x.db"),
    "grant grant": lambda r: us.Ledger().grant(3),
    "decode codes": lambda r: SCHEMA.decode(None, np.random.default_rng(1)),
    "decode rng": lambda r: SCHEMA.decode(CODES, None),
    "Schema columns": lambda r: us.Schema(None),
    "Schema privacy_unit": lambda r: us.Schema(SCHEMA.columns, privacy_unit=None),
    "Schema rules": lambda r: us.Schema(SCHEMA.columns, PrivacyUnit(), rules="none"),
    "decode codes of nothing": lambda r: SCHEMA.decode(dict.fromkeys("ab"), np.random.default_rng(1)),
    "Domain size": lambda r: us.Domain({"a": None}),
    "Domain size of text": lambda r: us.Domain({"a": b"2"}),
    "Domain size of no number": lambda r: us.Domain({"a": float("nan")}),
    "Domain rules": lambda r: us.Domain({"a": 2}, None),
    "check clique": lambda r: SCHEMA.domain.check(None),
    "project clique": lambda r: SCHEMA.domain.project(3),
    "project column": lambda r: SCHEMA.domain.project("x"),
    "from_dict receipt": lambda r: us.Receipt.from_dict(None),
    "from_dict receipt of nothing": lambda r: us.Receipt.from_dict({}),
    "PrivateTable source": lambda r: us.PrivateTable(None, us.Budget.of(rho=1.0)),
    "PrivateTable source of rows": lambda r: us.PrivateTable(ROWS, us.Budget.of(rho=1.0)),
    "PrivateTable budget": lambda r: us.PrivateTable(MemorySource(ROWS, SCHEMA), 1.0),
    "measure cliques": lambda r: table().measure(None, rho=0.1),
    "measure clique": lambda r: table().measure([None], rho=0.1),
    "measure share": lambda r: table().measure([("a",)], rho="0.1"),
    "measure weight": lambda r: table().measure([("a",)], rho=0.1, weights=3),
    "measure weight of nothing": lambda r: table().measure([("a",)], rho=0.1, weights={("a",): None}),
    "select against": lambda r: table().select([("a",)], rho=0.1, against=3),
    "sigma share": lambda r: table().sigma(None),
    "Measurement columns": lambda r: us.Measurement(None, [1, 2], 1.0),
    "Measurement sigma": lambda r: us.Measurement(("a",), [1, 2], None),
}


def run_of() -> str:
    """A run that is in the ledger."""
    us.synthesize(ROWS, SCHEMA, rho=1.0, dataset="run")
    return us.Ledger().reservations("run")[0].run


def table() -> us.PrivateTable:
    return us.PrivateTable(MemorySource(ROWS, SCHEMA), us.Budget.of(rho=1.0))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kind_is_refused_by_its_option(name, release):
    with pytest.raises(InputError, match=name.split()[1]):
        WRONG[name](release)


def test_numpy_numbers_are_whole_numbers(release, tmp_path):
    made = us.synthesize(ROWS, SCHEMA, rho=np.float32(1.0), rows=np.int64(7), output=tmp_path / "r.release")
    assert made.sample(seed=np.int64(1)).shape == (7, 2)
    assert us.Release.load(tmp_path / "r.release").default_rows == 7


def test_what_is_right_passes():
    assert as_path("output", "x") == as_path("output", Path("x")) == Path("x")
    assert as_whole("rows", np.int32(3)) == 3
    assert as_names("metrics", "mgd") == as_names("metrics", ("mgd",)) == ["mgd"]
    assert as_mapping("rare", {"a": "other"}, example="") == {"a": "other"}
    assert as_progress(None) is silent
    assert as_progress(print) is print
    with pytest.raises(SettingError, match="rows must be a whole number of at least 1"):
        as_whole("rows", 0, least=1)


@settings_class(frozen=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid"))
class Wanted:
    rows: Annotated[int, Field(ge=2)] = 2
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    kind: Literal["one", "two"] = "one"
    ways: Annotated[tuple[int, ...], Field(min_length=1)] = (1,)
    column: str | None = None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rows": 1}, "mst.rows: give a whole number of at least 2"),
        ({"rows": True}, "mst.rows: give a whole number of at least 2"),
        ({"share": 1.0}, "mst.share: give a number above 0 and below 1"),
        ({"share": "x"}, "mst.share: give a number above 0 and below 1"),
        ({"kind": "three"}, "mst.kind: give one of one, two"),
        ({"ways": ()}, "mst.ways: give a whole number, or several as [A, B]"),
        ({"ways": (1, "x")}, "mst.ways: give a whole number, or several as [A, B]"),
        ({"column": 3}, "mst.column: give a name"),
        ({"colour": 3}, "mst has no setting 'colour'; its settings are: rows, share, kind, ways, column"),
    ],
)
def test_settings_that_pydantic_refuses_are_explained_by_name(given, words):
    with pytest.raises(ValidationError) as refused:
        Wanted(**given)
    kinds = get_type_hints(Wanted, include_extras=True)
    assert str(setting_error("mst", kinds, refused.value)) == words
