"""A folder of files: an odd cell in one of them must not change how the cells and units of the others are read."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from understudy.errors import InputError, SchemaError
from understudy.schema import Schema
from understudy.source import open_source, read

CASES = {
    "numbers as values": ({"type": "string", "categories": ["5", "7.5"]}, pa.array([5.0, 7.5])),
    "decimals as values": ({"type": "string", "categories": ["5", "7.5"]}, pa.array([Decimal("5.0"), Decimal("7.5")])),
    "truth as values": ({"type": "string", "categories": ["true", "false"]}, pa.array([True, False])),
    "moments as values": (
        {"type": "string", "categories": ["2020-01-31T08:00:00"]},
        pa.array([dt.datetime(2020, 1, 31, 8)]),
    ),
    "days as values": ({"type": "string", "categories": ["2020-01-31"]}, pa.array([dt.date(2020, 1, 31)])),
    "lengths": (
        {"type": "duration", "constraints": {"minimum": 0, "maximum": 9999}, "understudy": {"bins": 10}},
        pa.array([dt.timedelta(seconds=4000)]),
    ),
}
ODD = {
    "text": pa.array(["?"]),
    "number": pa.array([99.5]),
    "whole": pa.array([99]),
    "moment": pa.array([dt.datetime(1999, 1, 1)]),
    "zone": pa.array([dt.datetime(1999, 1, 1)], pa.timestamp("us", "UTC")),
    "nothing": pa.array([None]),
    "bytes": pa.array([b"?"]),
}


def schema_of(field, unit="row"):
    fields = [{"name": "x", **field}] + ([] if unit == "row" else [{"name": unit, "type": "string"}])
    fields[-1] |= {} if unit == "row" else {"understudy": {"kind": "id"}}
    stated = unit if unit == "row" else {"column": unit, "max_rows": 1}
    return Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": stated}})


def counts_of(data, schema, **options):
    source = open_source(data, schema, **options)
    return dict(source.counts([("x",)]))[("x",)].astype(np.int64)


def written(folder, *tables):
    for place, table in enumerate(tables):
        pq.write_table(table, folder / f"{place}.parquet")
    return str(folder)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("case", CASES)
def test_an_odd_file_moves_the_counts_by_its_own_row(tmp_path, case, odd):
    field, cells = CASES[case]
    schema, table = schema_of(field), pa.table({"x": cells})
    both = counts_of(written(tmp_path, table, pa.table({"x": ODD[odd]})), schema)
    apart = both - counts_of(table, schema)
    assert apart.min() == 0
    assert apart.sum() == 1


def test_an_odd_identifier_in_one_file_makes_no_two_units_of_one(tmp_path):
    """One file has numbers beside an empty cell, the other an identifier of letters: 5.0 and "5" are one unit."""
    schema = schema_of({"type": "string", "categories": ["a"]}, unit="who")
    first = pa.table({"who": pa.array([5.0, None]), "x": ["a", "a"]})
    second = pa.table({"who": ["5", "x7"], "x": ["a", "a"]})
    assert counts_of(written(tmp_path, first, second), schema)[0] == 2


def test_a_query_refuses_files_of_different_types(tmp_path):
    schema = schema_of({"type": "string", "categories": ["5", "7.5"]})
    place = written(tmp_path, pa.table({"x": [5.0]}), pa.table({"x": ["secret"]}))
    with pytest.raises(InputError, match="column 1 has another type") as caught:
        counts_of(place, schema, query="select x from data")
    assert "secret" not in str(caught.value)


def test_a_query_reads_whole_numbers_of_any_width_and_columns_of_nulls(tmp_path):
    schema = schema_of({"type": "integer", "categories": [5, 7]})
    tables = [pa.table({"x": pa.array(cells, kind)}) for cells, kind in (([5], pa.int8()), ([7], pa.int64()))]
    place = written(tmp_path, *tables, pa.table({"x": pa.array([None])}))
    assert counts_of(place, schema, query="select x from data").tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("size", [3_000_000, 20_000_000])
def test_a_long_cell_of_a_csv_file_fails_no_query(tmp_path, size):
    (tmp_path / "rows.csv").write_text(f"x\na\n{'z' * size}\na\n")
    schema = schema_of({"type": "string", "categories": ["a"]})
    counted = counts_of(str(tmp_path / "rows.csv"), schema, query="select x from data")
    assert counted.tolist() == counts_of(str(tmp_path / "rows.csv"), schema).tolist() == [2, 0, 1]


def test_a_cell_longer_than_what_is_read_at_a_time_fails_no_run_and_repeats_no_row(tmp_path, monkeypatch):
    """Whoever may write one cell could else stop every release, and that a run failed would tell of them."""
    monkeypatch.setattr(read, "_PIECE", 1 << 10)
    (tmp_path / "rows.csv").write_text("x\n" + "a\n" * 5_000 + "z" * 20_000 + "\na\n")
    schema = schema_of({"type": "string", "categories": ["a"]})
    for place in (tmp_path, tmp_path / "rows.csv"):
        assert counts_of(str(place), schema).tolist() == [5_001, 0, 1]


def test_a_column_that_any_file_lacks_is_reported_before_a_row_is_read(tmp_path):
    schema = schema_of({"type": "string", "categories": ["a"]})
    with pytest.raises(SchemaError, match="column 'x' is not in the table"):
        counts_of(written(tmp_path, pa.table({"x": ["a"]}), pa.table({"y": ["a"]})), schema)


def test_text_of_a_parquet_file_in_another_encoding_fails_no_run(tmp_path):
    """Other tools write any bytes as text. One cell would else stop every release, and tell of its row by that."""
    cells = pa.array([b"a", b"caf\xe9", b"a"], pa.binary())
    place = written(tmp_path, pa.table({"x": pa.Array.from_buffers(pa.string(), 3, cells.buffers())}))
    schema = schema_of({"type": "string", "categories": ["a"]})
    for table in (place, str(next(tmp_path.glob("*.parquet")))):
        assert counts_of(table, schema).tolist() == [2, 0, 1]


def test_a_damaged_file_is_reported(tmp_path):
    place = written(tmp_path, pa.table({"x": ["a"]}))
    (tmp_path / "1.parquet").write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(InputError, match="damaged, cut short or not Parquet"):
        counts_of(place, schema_of({"type": "string", "categories": ["a"]}))


def test_a_query_reads_columns_by_their_names_in_every_csv_file(tmp_path):
    """By their places, the second file would have its identifiers counted as values, and a unit would be two."""
    (tmp_path / "1.csv").write_text("who,x\np1,a\np2,a\n")
    (tmp_path / "2.csv").write_text("x,who\na,p1\na,p3\n")
    schema = schema_of({"type": "string", "categories": ["a"]}, unit="who")
    place = str(tmp_path)
    assert (
        counts_of(place, schema, query="select * from data").tolist() == counts_of(place, schema).tolist() == [3, 0, 0]
    )


def test_a_query_takes_no_row_of_a_csv_file_for_a_comment(tmp_path):
    """The engine would guess it from the other rows: this one was read alone, and left out beside the first."""
    place, schema = str(tmp_path / "rows.csv"), schema_of({"type": "string", "categories": ["a", "#"]})
    for first, counts in (("", [0, 1, 0, 0]), ('a,"""--",-9\n', [1, 1, 0, 0]), (',"""--",-9\n', [0, 1, 1, 0])):
        (tmp_path / "rows.csv").write_text(f'x,y,z\n{first}#,"""",--\n')
        assert counts_of(place, schema, query="select * from data").tolist() == counts
        assert counts_of(place, schema).tolist() == counts
