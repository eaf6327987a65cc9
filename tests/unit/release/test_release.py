from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import understudy as us
from understudy.accounting import Budget, Receipt
from understudy.accounting.neighbours import Neighbours
from understudy.errors import InputError, OutputError, ReleaseError, SettingError
from understudy.gate.randomness import insecure
from understudy.model.fit import Fit, Generator
from understudy.model.product import ProductModel
from understudy.release.archive import pack, unpack
from understudy.schema import Recoding, Schema

SCHEMA = us.Schema.from_domain({"a": 3, "b": 2})
FRAME = {"a": [0, 1, 2, 1, 1], "b": [0, 1, 1, 0, 1]}
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.Table}


def made(data=None, schema=SCHEMA, **rest):
    table = pl.DataFrame(FRAME) if data is None else data
    return us.synthesize(table, schema, **{"epsilon": 1.0, "delta": 1e-6, "mechanism": "independent"} | rest)


def of(total=100.4, schema=SCHEMA, **rest):
    """A release of a known model, without a run."""
    model = ProductModel(schema.domain, total, {c: np.full(s, 1 / s) for c, s in schema.domain.items()})
    receipt = Receipt(Budget.of(rho=1.0), (), Neighbours())
    return us.Release.of(Fit(model, []), schema, receipt, mechanism="independent", settings={}, **rest)


def test_save_and_load_keep_everything(tmp_path):
    release = made()
    release.save(tmp_path / "r")
    loaded = us.Release.load(tmp_path / "r")
    assert loaded.schema == release.schema
    assert loaded.receipt == release.receipt
    assert loaded.default_rows == release.default_rows
    assert (loaded.mechanism, loaded.settings, list(loaded.rounds)) == ("independent", {}, [])
    for mine, theirs in zip(release.measurements, loaded.measurements, strict=True):
        assert (mine.clique, mine.sigma, mine.noise) == (theirs.clique, theirs.sigma, theirs.noise)
        assert np.array_equal(mine.values, theirs.values)
    assert loaded.sample(seed=3).equals(release.sample(seed=3, as_="arrow"))


def test_saving_twice_and_saving_what_was_loaded_give_the_same_bytes(tmp_path):
    release = made()
    release.save(tmp_path / "one")
    release.save(tmp_path / "two")
    us.Release.load(tmp_path / "one").save(tmp_path / "three")
    assert len({(tmp_path / name).read_bytes() for name in ("one", "two", "three")}) == 1


def test_a_release_that_exists_is_replaced_only_on_request(tmp_path):
    of(total=1.0).save(tmp_path / "r")
    before = (tmp_path / "r").read_bytes()
    with pytest.raises(OutputError, match=r"r already exists; .*overwrite=True"):
        of(total=2.0).save(tmp_path / "r")
    assert (tmp_path / "r").read_bytes() == before
    of(total=2.0).save(tmp_path / "r", overwrite=True)
    assert us.Release.load(tmp_path / "r").model.total == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


@pytest.mark.parametrize("name", [".", "..", "x" * 256, "no/r", "/"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_place_where_no_file_can_be_is_refused_in_words(tmp_path, monkeypatch, name, overwrite):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match=r"could not be written|already exists|names no file"):
        of().save(name, overwrite=overwrite)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_an_arrow_table_or_as_asked_whatever_frame_went_in(kind):
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}[kind](FRAME)
    release = made(frame)
    assert type(release.sample(4)) is pa.Table
    for other, expected in KINDS.items():
        assert type(release.sample(4, as_=other)) is expected


def test_the_same_seed_gives_the_same_rows_in_every_frame_type():
    release = of()
    arrow = release.sample(50, seed=7, as_="arrow").to_pydict()
    assert release.sample(50, seed=7, as_="pandas").to_dict("list") == arrow
    assert release.sample(50, seed=7, as_="polars").to_dict(as_series=False) == arrow
    assert release.sample(50, seed=8, as_="arrow").to_pydict() != arrow
    assert release.sample(50, as_="arrow").to_pydict() != release.sample(50, as_="arrow").to_pydict()


def test_rows_default_to_what_was_asked_then_declared_then_noisy():
    assert of(rows=7).default_rows == 7
    assert of(schema=replace(SCHEMA, rows=9)).default_rows == 9
    assert of(rows=7, schema=replace(SCHEMA, rows=9)).default_rows == 7
    assert of(total=100.4).default_rows == 100
    assert of(total=0.2).default_rows == 1
    assert of().sample().num_rows == 100


def test_the_default_is_never_the_true_number_of_rows():
    """Over thirty runs the noisy total of a tight budget hits the truth every time only if it is the truth.

    Half of the totals are negative and become 1; that all of them do has probability 2^-30.
    """
    counts = {
        us.synthesize(pl.DataFrame(FRAME), SCHEMA, rho=1e-4, mechanism="independent").default_rows for _ in range(30)
    }
    assert len(counts) > 1


def test_merged_codes_are_undone_when_rows_are_made():
    schema = us.Schema.from_domain({"a": 4})
    recoding = Recoding({"a": np.array([0, 1, 1, 1])})
    model = ProductModel(us.Domain({"a": 2}), 100, {"a": np.array([0.0, 1.0])})
    receipt = Receipt(Budget.of(rho=1.0), (), Neighbours())
    release = us.Release.of(Fit(model, [], recoding), schema, receipt, mechanism="independent", settings={})
    assert set(release.sample(200, seed=1)["a"].to_pylist()) == {1, 2, 3}


@pytest.mark.parametrize("bad", [-1, 1.5, "ten", True])
def test_rows_and_seed_are_whole_numbers(bad):
    with pytest.raises(SettingError, match="rows must be a whole number"):
        of().sample(bad)
    with pytest.raises(SettingError, match="seed must be a whole number"):
        of().sample(3, seed=bad)


def test_zero_rows_and_numpy_numbers_are_fine():
    assert of().sample(0).num_rows == 0
    assert of().sample(np.int64(3), seed=np.uint8(1)).num_rows == 3


def test_rows_that_cannot_fit_are_refused_with_the_remedy():
    with pytest.raises(SettingError, match="give a smaller number"):
        of(total=1e15).sample()
    assert of(total=1e15).sample(3).num_rows == 3


def test_an_unknown_or_missing_frame_library_is_reported(monkeypatch):
    with pytest.raises(SettingError, match="use 'arrow', 'pandas', 'polars' or 'spark'"):
        of().sample(3, as_="excel")
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(InputError, match="polars is not installed"):
        of().sample(3, as_="polars")


def test_packed_data_survives():
    arrays = {}
    value = {"a": [1, {"b": np.arange(3)}, (np.float64(2.5), None)], "c": np.zeros((2, 2))}
    packed = pack(value, arrays, "v")
    back = unpack(packed, arrays)
    assert back["a"][0] == 1
    assert np.array_equal(back["a"][1]["b"], np.arange(3))
    assert back["a"][2] == [2.5, None]
    assert back["c"].shape == (2, 2)


def test_a_measurement_with_a_query_survives(tmp_path):
    query = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    release = replace(of(), measurements=[us.Measurement(("a",), np.array([3, 4]), 2.0, query)])
    release.save(tmp_path / "r")
    (loaded,) = us.Release.load(tmp_path / "r").measurements
    cells = np.array([1.0, 2.0, 4.0])
    assert (loaded.query @ cells).tolist() == (query @ cells).tolist()


def test_reasons_for_missing_mean_the_same_after_saving(tmp_path):
    missing = {"-9": "refused", "-8": "does not apply", "?": "unknown", "!": "unknown"}
    content = {
        "fields": [{"name": "pain", "type": "integer", "categories": [0, 1], "understudy": {"missing": missing}}],
        "understudy": {"privacy_unit": "row"},
    }
    schema = Schema.from_dict(content)
    backwards = dict(reversed(missing.items()))
    content["fields"][0]["understudy"]["missing"] = backwards
    assert schema.column("pain").reasons == Schema.from_dict(content).column("pain").reasons
    frame = pd.DataFrame({"pain": ["0"] * 400 + ["-9"] * 300 + ["-8"] * 200 + ["?"] * 100})
    with insecure(1):
        release = us.synthesize(frame, schema, epsilon=50, delta=1e-6)
    release.save(tmp_path / "r.release")
    loaded = us.Release.load(tmp_path / "r.release")
    made, again = (one.sample(1000, seed=1, as_="arrow", as_written=True)["pain"] for one in (release, loaded))
    assert made.to_pylist() == again.to_pylist()
    assert loaded.schema.to_dict() == schema.to_dict()
    assert list(loaded.schema.column("pain").missing) == list(missing)


@pytest.mark.parametrize(
    ("mechanism", "settings", "generator"),
    [
        ("independent", {}, Generator("product")),
        ("mst", {}, Generator("tree")),
        ("mst", {"generator": "gum"}, Generator("gum")),
        ("gaussian", {"max_mib": 3.0}, Generator("pgm", 3.0)),
        ("aim", {"rounds": 1.0}, Generator("pgm")),
    ],
)
def test_a_release_says_how_its_model_was_made_and_is_replicated_without_its_mechanism(
    mechanism, settings, generator, tmp_path
):
    made(mechanism=mechanism, **settings).save(tmp_path / "r")
    loaded = us.Release.load(tmp_path / "r")
    assert loaded.generator == generator
    unknown = replace(loaded, mechanism="long gone", settings={"of": "another version"})
    one, other = unknown.replicates(2, rows=20, seed=1)
    assert one.num_rows == other.num_rows == 20
    with pytest.raises(SettingError, match="no replicates"):
        replace(loaded, generator=None).replicates(2)


@pytest.mark.parametrize("wrong", [{"name": "gan"}, {"name": "pgm", "limit_mib": "80"}, {"limit_mib": -1}, {"x": 1}])
def test_a_generator_that_no_run_writes_is_noticed(wrong, tmp_path, monkeypatch):
    monkeypatch.setattr(Generator, "to_dict", lambda generator: wrong)
    made().save(tmp_path / "r")
    with pytest.raises(ReleaseError):
        us.Release.load(tmp_path / "r")
