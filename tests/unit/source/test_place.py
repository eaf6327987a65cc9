"""Where rows live, what the ledger calls them, and what is never said about them."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from understudy.cli.console import refuse_password
from understudy.domain import Domain
from understudy.errors import InputError, OutputError, SchemaError, SettingError
from understudy.schema import Schema
from understudy.source import MemorySource, open_source, read_table
from understudy.source.engine import find_covers, sum_cover
from understudy.source.open import StoredTable, open_table
from understudy.source.place import list_files, parse_url, public_name, read_query, source_kind, table_name
from understudy.source.stream import CodeStore
from understudy.source.temp import PREFIX, PrivateFolder
from understudy.tabulate import SparseCounts, marginals

SCHEMA = Schema.from_domain({"a": 3})
URL = "postgresql://owner:zq-secret@host:5433/shop?sslmode=require&table=sales.people"


@pytest.mark.parametrize(
    ("data", "home"),
    [
        (URL, "postgresql"),
        ("postgres:///?service=shop&table=t", "postgresql"),
        ("duckdb:///x/shop.duckdb?table=t", "duckdb"),
        ("data/*.parquet", "files"),
        ("people.csv", "file"),
        (pa.table({"a": [1]}), "frame"),
    ],
)
def test_homes(data: Any, home: str) -> None:
    assert source_kind(data) == home


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_path_is_not_this_folder(text: str) -> None:
    with pytest.raises(InputError, match="path of the table is empty"), open_table(text):
        pass


def test_a_file_or_folder_that_is_not_there_is_reported_first(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"people\.csv: no such file"), open_table(r"C:\data\people.csv"):
        pass
    (tmp_path / "t.csv").touch()
    with (
        pytest.raises(OutputError, match="the folder for temporary files does not exist"),
        open_table(tmp_path / "t.csv", None, tmp_path / "no"),
    ):
        pass


def test_a_url_is_taken_apart_and_not_shown() -> None:
    place = parse_url(URL, query=False)
    assert place.table == "sales.people"
    assert place.address == "postgresql://owner:zq-secret@host:5433/shop?sslmode=require"
    assert "zq-secret" not in repr(place) + repr(StoredTable(URL)) + str(StoredTable(URL))
    with pytest.raises(SettingError, match="name is missing"):
        parse_url(URL, query=True)
    with pytest.raises(SettingError, match="name is missing"):
        parse_url("postgresql://host/shop", query=False)


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "postgresql://host/shop?password=x&table=t",
        "postgresql://host/shop?table=t&sslpassword=x",
        "postgresql://[bad/shop?table=t",
    ],
)
def test_a_password_is_refused_on_the_command_line(url: str) -> None:
    with pytest.raises(SettingError, match="PGPASSWORD") as caught:
        refuse_password(url)
    assert "zq-secret" not in str(caught.value)


@pytest.mark.parametrize("data", ["postgresql://owner@host/shop?table=t", "people.csv", "data/*.parquet"])
def test_other_places_have_no_password(data: str) -> None:
    refuse_password(data)


@pytest.mark.parametrize(
    "place",
    [
        "postgresql+psycopg://owner:zq-secret@host/shop",
        "mysql://owner:zq-secret@host/shop",
        Path("postgresql://owner:zq-secret@host/shop"),
        "postgresql:/owner:zq-secret@host/shop.csv",
    ],
)
def test_an_address_that_cannot_be_read_is_not_quoted(place: Any) -> None:
    for way in (open_source, read_table):
        with pytest.raises(InputError, match="URL that begins with") as caught:
            way(place, SCHEMA)
        assert "zq-secret" not in str(caught.value)


def test_names(tmp_path: Path) -> None:
    folder = tmp_path / "visits.2024"
    folder.mkdir()
    places = [URL, "postgresql://host/shop", "data/visits/*.parquet", "data/*/x.csv", folder, "people.csv.gz", "*.csv"]
    assert [table_name(place) for place in places] == [
        "sales.people", "shop", "visits", "data", "visits", "people", "unnamed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bob:zq-secret@host?table=people",
        "postgresql://bob@host/shop?password=zq-secret&table=people",
        "postgresql://host/shop?table=people&sslpassword=x/zq-secret",
    ],
)
def test_a_receipt_names_a_public_table_without_its_password(url: str) -> None:
    assert public_name(url) == "people"


def test_a_duckdb_file_of_this_folder_gives_its_name() -> None:
    """Without, every query of every such database was one dataset of the ledger, called unnamed."""
    assert table_name("duckdb://shop.duckdb") == table_name("duckdb:///data/shop.duckdb") == "shop"
    assert table_name("duckdb://shop.duckdb?table=people") == "people"


@pytest.mark.parametrize("end", ["", ";", " ;\n", ";\n-- done", "\n-- one\n;\n\n-- two\n", " -- beside it"])
def test_what_follows_a_query_does_not_matter(tmp_path: Path, end: str) -> None:
    pq.write_table(pa.table({"a": [0, 2, 2]}), tmp_path / "t.parquet")
    file = tmp_path / "q.sql"
    file.write_text(f"\ufeff-- all of it\nselect *\nfrom data{end}", encoding="utf-8")
    for query in (read_query(file), file.read_text(encoding="utf-8-sig")):
        with open_table(tmp_path, query) as table:
            ((_, counts),) = open_source(table, SCHEMA).counts([("a",)])
            assert counts.tolist() == [1, 0, 2]


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.pq", "_SUCCESS", ".hidden.parquet", "_metadata.parquet", "notes.md"):
        (tmp_path / name).touch()
    assert [file.name for file in list_files(str(tmp_path))] == ["a.pq", "b.parquet"]
    (tmp_path / "c.csv").touch()
    with pytest.raises(InputError, match="both"):
        list_files(str(tmp_path))
    with pytest.raises(InputError, match="this folder or pattern has no"):
        list_files(str(tmp_path / "*.orc"))


def test_files_are_explained(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1zq-canary")
    with pytest.raises(InputError, match="damaged") as caught:
        open_source(tmp_path, SCHEMA)
    assert "zq-canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    pq.write_table(pa.table({"b": [1]}), tmp_path / "a.parquet")
    with pytest.raises(SchemaError, match="'a' is not in the table"):
        open_source(tmp_path, SCHEMA)
    with pytest.raises(InputError, match="query"):
        open_source(tmp_path, SCHEMA, query="select zq-canary frm data")
    with pytest.raises(InputError, match="no such DuckDB"):
        open_source(f"duckdb://{tmp_path}/none.duckdb?table=t", SCHEMA)


def test_a_whole_path_may_follow_two_slashes_or_three(tmp_path: Path) -> None:
    """Other tools write duckdb:////data/shop.duckdb for the file /data/shop.duckdb."""
    for before in ("duckdb://", "duckdb:///"):
        with pytest.raises(InputError, match=f"^{tmp_path}/none.duckdb: no such DuckDB"):
            open_source(f"{before}{tmp_path}/none.duckdb?table=t", SCHEMA)


def test_a_python_variable_is_not_a_table(tmp_path: Path) -> None:
    secret = pa.table({"a": [1]})  # noqa: F841 - DuckDB would find it by its name
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InputError):
        open_source(tmp_path, SCHEMA, query="select * from secret")


def test_a_missing_engine_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    really = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] in ("duckdb", "psycopg"):
            raise ImportError(name)
        return really(name, *rest)

    import importlib

    monkeypatch.setattr(importlib, "import_module", lambda name: without(name))
    monkeypatch.setattr("understudy.source.errors.import_module", lambda name: without(name))
    for place, query in ((tmp_path, "from data"), ("postgresql://host/shop?table=t", None)):
        with pytest.raises(SettingError, match=r"pip install 'understudy\[sql\]'"):
            open_source(place, SCHEMA, query=query)


def test_queries(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("select 1;\n")
    assert read_query(tmp_path / "q.sql") == "select 1"
    (tmp_path / "q.sql").write_text(" ;\n")
    for name in ("q.sql", "none.sql"):
        with pytest.raises(SettingError, match=name):
            read_query(tmp_path / name)


def test_a_source_shows_nothing_and_is_never_written(tmp_path: Path) -> None:
    import pickle

    pq.write_table(pa.table({"a": [0, 1, 1, 9]}), tmp_path / "a.parquet")
    source = open_source(tmp_path, SCHEMA)
    assert repr(source) == "<StreamedSource of 1 columns>"
    with pytest.raises(InputError):
        pickle.dumps(source)
    with pytest.raises(SchemaError):
        source.counts([("z",)])
    with pytest.raises(SchemaError):
        source.values("a")
    assert next(source.counts([("a",)]))[1].tolist() == [1, 2, 0]
    source.close()


def test_no_rows_and_no_units(tmp_path: Path) -> None:
    from understudy.schema import PrivacyUnit

    pq.write_table(pa.table({"a": pa.array([], pa.int64()), "p": pa.array([], pa.string())}), tmp_path / "a.parquet")
    by_person = Schema(SCHEMA.columns, privacy_unit=PrivacyUnit("p", 1))
    for schema in (SCHEMA, by_person):
        source = open_source(tmp_path, schema)
        assert [table.tolist() for _, table in source.counts([("a",), ()])] == [[0, 0, 0], [0]]
        source.close()


def test_frames_and_files_stay_what_they_are(tmp_path: Path) -> None:
    frame = pa.table({"a": [1]})
    (tmp_path / "x.csv").touch()
    with open_table(frame) as same, open_table(tmp_path / "x.csv") as path, open_table(tmp_path) as folder:
        assert same is frame
        assert path == tmp_path / "x.csv"
        assert isinstance(folder, StoredTable)
    with pytest.raises(SettingError, match="query"), open_table(frame, "select 1"):
        pass


def test_private_folders(tmp_path: Path) -> None:
    dead, theirs = tmp_path / f"{PREFIX}dead", tmp_path / f"{PREFIX}file"
    dead.mkdir()
    (dead / "in-use").touch()
    (dead / "spilled").write_text("rows")
    theirs.touch()
    folder = PrivateFolder(tmp_path)
    assert not dead.exists()
    assert theirs.exists()
    assert folder.path.stat().st_mode & 0o777 == 0o700
    path = folder.path
    del folder
    assert not path.exists()
    with pytest.raises(OutputError, match="--temp-dir"):
        PrivateFolder(tmp_path / "nowhere")


def test_sparse_tables_in_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.source.stream._SPAN_ROWS", 7)
    domain = Domain({"a": 3000, "b": 3000})
    rng = np.random.default_rng(0)
    codes = {column: rng.integers(0, 40, 100).astype(np.uint16) for column in domain}
    store = CodeStore(domain, tmp_path)
    for start in range(0, 100, 30):
        store.append({column: array[start : start + 30] for column, array in codes.items()})
    (_, found), (_, one) = store.counts([("b", "a"), ("a",)])
    (_, wanted), (_, same) = marginals(codes, domain, [("b", "a"), ("a",)])
    assert isinstance(found, SparseCounts)
    assert isinstance(wanted, SparseCounts)
    assert (found.cells == wanted.cells).all()
    assert (found.counts == wanted.counts).all()
    assert np.array_equal(one, same)
    assert not list(tmp_path.iterdir()), "the files have no names"
    store.close()


def test_covers_sum_to_the_marginals() -> None:
    domain = Domain({"a": 2, "b": 3, "c": 4, "d": 5})
    rng = np.random.default_rng(1)
    frame = pa.table({column: rng.integers(0, size, 500) for column, size in domain.items()})
    source = MemorySource(frame, Schema.from_domain(dict(domain)))
    cliques = [("b", "a"), ("a", "c"), ("d", "a", "c"), (), ("d",), ("c", "b")]
    cover_of = find_covers(cliques, domain, most=60)
    assert 1 < len(set(cover_of.values())) < len(cliques)
    for clique, wanted in source.counts(cliques):
        ((_, table),) = source.counts([cover_of[clique]])
        assert np.array_equal(sum_cover(np.asarray(table), cover_of[clique], clique, domain), np.asarray(wanted))
