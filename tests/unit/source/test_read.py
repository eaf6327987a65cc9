"""Files: what is read, and how a file that cannot be read is explained without quoting it."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from understudy.errors import InputError, SchemaError
from understudy.schema import Dialect, PrivacyUnit, Schema
from understudy.source import open_source, read_table

CANARY = "zq-canary-7731"


def schema(**facts: Any) -> Schema:
    return Schema(Schema.from_domain({"a": 20, "b": 3}).columns, **facts)


def write(folder: Path, content: bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def cells(table: pa.Table) -> dict[str, list[Any]]:
    result: dict[str, list[Any]] = table.to_pydict()
    return result


def test_csv_keeps_text_and_only_the_needed_columns(tmp_path: Path) -> None:
    path = write(tmp_path, f"x,b,a\n{CANARY},2,007\n,,\n".encode())
    table = read_table(path, schema())
    assert cells(table) == {"a": ["007", ""], "b": ["2", ""]}


def test_the_unit_column_is_read_too(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,b,who\n1,2,007\n3,0,7\n")
    table = read_table(path, schema(privacy_unit=PrivacyUnit("who", 1)))
    assert cells(table)["who"] == ["007", "7"]


@pytest.mark.parametrize(
    ("content", "dialect"),
    [
        ("a;b\n1;2\n", Dialect(delimiter=";")),
        ("a\tb\n1\t2\n", Dialect(delimiter="\t")),
        ("'a','b'\n'1','2'\n", Dialect(quote="'")),
        ("a,b\r\n1,2\r\n", Dialect()),
        ("\n\na,b\n\n1,2\n\n", Dialect()),
        ("\ufeff\r\n\r\na,b\r\n1,2\r\n", Dialect()),
        ("\ufeffa,b\n1,2\n", Dialect()),
        ("\ufeffa,b\n1,2\n", Dialect(encoding="UTF8")),
        ("\ufeffa,b\n1,2\n", Dialect(encoding="utf-8-sig")),
        ("1,2\n", Dialect(header=False)),
        ('"a",b\n1,2', Dialect()),
    ],
)
def test_dialects(tmp_path: Path, content: str, dialect: Dialect) -> None:
    assert cells(read_table(write(tmp_path, content.encode()), schema(dialect=dialect))) == {"a": ["1"], "b": ["2"]}


@pytest.mark.parametrize("encoding", ["windows-1252", "latin-1", "utf-16", "utf-16-le"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path, "a,b,é\n1,2,ü\n3,0,\n".encode(encoding))
    table = read_table(path, schema(dialect=Dialect(encoding=encoding), privacy_unit=PrivacyUnit("é", 1)))
    assert cells(table) == {"a": ["1", "3"], "b": ["2", "0"], "é": ["ü", ""]}


def test_line_breaks_inside_quotes(tmp_path: Path) -> None:
    path = write(tmp_path, b'a,note,b\n1,"two\nlines, ""quoted""",2\n')
    assert cells(read_table(path, schema())) == {"a": ["1"], "b": ["2"]}


def test_gzip_and_parquet_hold_the_same_counts(tmp_path: Path) -> None:
    text = "a,b\n" + "".join(f"{j % 20},{j % 3}\n" for j in range(5000))
    table = pa.table({"b": [j % 3 for j in range(5000)], "x": [CANARY] * 5000, "a": [j % 20 for j in range(5000)]})
    pq.write_table(table, tmp_path / "t.parquet")
    paths = [
        write(tmp_path, text.encode()),
        write(tmp_path, gzip.compress(text.encode()), "t.CSV.gz"),
        tmp_path / "t.parquet",
    ]
    answers = []
    for path in paths:
        ((_, counts),) = open_source(str(path), schema()).counts([("a", "b")])
        answers.append(np.asarray(counts).tolist())
    assert answers[0] == answers[1] == answers[2]
    assert sum(answers[0]) == 5000


def test_parquet_reads_only_the_needed_columns_with_their_types(tmp_path: Path) -> None:
    path = tmp_path / "t.pq"
    pq.write_table(pa.table({"x": [CANARY], "b": pa.array([1], pa.int8()), "a": [2]}), path)
    assert read_table(path, schema()).schema == pa.schema([("a", pa.int64()), ("b", pa.int8())])


def test_a_header_without_rows(tmp_path: Path) -> None:
    assert cells(read_table(write(tmp_path, b"a,b\n"), schema())) == {"a": [], "b": []}


LINE = f"1,2,{CANARY}\n".encode()
BAD_CSV = {
    "ragged with a quote": (b"a,b,x\n\n" + LINE + f'1,2,"3",{CANARY}\n'.encode() + LINE, "line 4 has a quote"),
    "a quote left open": (b"a,b,x\n" + LINE + f'1,"{CANARY},3\n'.encode() + LINE + b"1,2,3\n", "its last line has a"),
    "encoding of the header": (b"\xfc,a,b\n" + LINE, "its header is not in utf-8"),
    "empty": (b"", "empty"),
    "only a line break": (b"\n", "no columns"),
    "zip": (b"PK\x03\x04" + bytes(range(256)), "not written in utf-8|not CSV|not in the table"),
}


@pytest.mark.parametrize("name", BAD_CSV)
def test_bad_csv(tmp_path: Path, name: str) -> None:
    content, words = BAD_CSV[name]
    refused(write(tmp_path, content), words)


ODD_LINES = {
    "short": (f"{CANARY}\n".encode(), [20, 3]),
    "long": (f"1,2,3,{CANARY}\n".encode(), [20, 3]),
    "empty cells at the end": (f"4,2,{CANARY},,\n".encode(), [4, 2]),
    "no text": (b"4,\xfc,3\n", [4, 3]),
    "no text in a cell that is not read": (b"4,2,\xfc\n", [4, 2]),
}


@pytest.mark.parametrize("name", ODD_LINES)
@pytest.mark.parametrize("folder", [False, True])
def test_an_odd_line_is_a_row_of_its_own_and_changes_no_other(tmp_path: Path, name: str, folder: bool) -> None:
    """What does not fit is unknown; nothing is told, and nothing fails."""
    line, wanted = ODD_LINES[name]
    fields = [
        {"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": size - 1, "required": True}}
        for name, size in (("a", 20), ("b", 3))
    ]
    declared = Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    answers = []
    for more in (b"", line):
        for content in (b"a,b,x\n" + LINE * 3 + more + LINE,):
            path = write(tmp_path, content)
            source = open_source(str(tmp_path / "*.csv") if folder else path, declared)
            ((_, counts),) = source.counts([("a", "b")])
            answers.append(np.asarray(counts).reshape(21, 4))
    (row,) = np.argwhere(answers[1] - answers[0])
    assert row.tolist() == wanted
    assert answers[0].sum() + 1 == answers[1].sum()
    assert answers[0][1, 2] == 4


def test_an_odd_line_is_not_a_unit(tmp_path: Path) -> None:
    """Whose row it is cannot be told, so it counts for nobody."""
    path = write(tmp_path, b"a,b,who\n1,2,p\n1,2\n1,2,q\n")
    ((_, counts),) = open_source(path, schema(privacy_unit=PrivacyUnit("who", 1))).counts([("a",)])
    assert np.asarray(counts).sum() == 2


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1252", "utf-16-le"])
def test_a_byte_that_is_not_text_is_one_unknown_cell(tmp_path: Path, encoding: str) -> None:
    odd = {"utf-8": b"\xff", "windows-1252": b"\x81", "utf-16-le": b"\x00\xdc"}[encoding]
    text = "a,b\n1,#\n2,1\n".encode(encoding).replace("#".encode(encoding), odd)
    path = write(tmp_path, text)
    ((_, counts),) = open_source(path, schema(dialect=Dialect(encoding=encoding))).counts([("a", "b")])
    assert np.argwhere(np.asarray(counts).reshape(20, 3)).tolist() == [[2, 1]]


def refused(path: Path, words: str, kind: type[InputError] = InputError) -> None:
    with pytest.raises(kind, match=words) as caught:
        open_source(path, schema())
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert ";" in str(caught.value), "what is wrong; what to do"


@pytest.mark.parametrize("cut", [1, 10, 30, -9])
def test_gzip_cut_short(tmp_path: Path, cut: int) -> None:
    whole = gzip.compress(b"a,b,x\n" + b"".join(f"1,2,{CANARY}{j}\n".encode() for j in range(5000)))
    refused(write(tmp_path, whole[:cut], "t.csv.gz"), "cut short")


def test_columns_that_do_not_fit(tmp_path: Path) -> None:
    refused(write(tmp_path, b"a,x\n" + LINE), "'b' is not in the table", SchemaError)
    refused(write(tmp_path, b"a,b,b\n" + LINE), "'b' is named more than once", SchemaError)
    refused(write(tmp_path, b"a,b,x,x\n" + LINE), "column 3 and others", SchemaError)
    twice = pa.table([[1], [2], [CANARY]], names=["a", "b", "b"])
    pq.write_table(twice, tmp_path / "t.parquet")
    refused(tmp_path / "t.parquet", "'b' is named more than once", SchemaError)
    pq.write_table(pa.table({"a": [1], "x": [CANARY]}), tmp_path / "t.parquet")
    refused(tmp_path / "t.parquet", "'b' is not in the table", SchemaError)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_another_delimiter_than_the_schema_says_is_reported(tmp_path: Path, mark: str) -> None:
    lines = ['"a",b,x\n', f"1,2,{CANARY}\n"]
    path = write(tmp_path, "".join(lines).replace(",", mark).encode())
    refused(path, re.escape(f"dialect: {{delimiter: {json.dumps(mark)}}}"), SchemaError)


def test_the_first_row_of_a_file_without_a_header_is_not_quoted(tmp_path: Path) -> None:
    refused(write(tmp_path, LINE * 2), "columns 'a', 'b' are not in the table", SchemaError)
    refused(write(tmp_path, f"a,b,{CANARY},{CANARY}\n".encode()), "column 3 and others", SchemaError)


def test_paths_that_are_no_table(tmp_path: Path) -> None:
    refused(tmp_path / "none.csv", "no such file")
    refused(tmp_path / "none.ods", "unknown kind of file")
    refused(tmp_path / "shop.duckdb", r"shop.duckdb\?table=NAME")
    refused(write(tmp_path, b"", "t.parquet"), "empty")
    (tmp_path / "folder.csv").mkdir()
    refused(tmp_path / "folder.csv", "this folder or pattern has no")


def parquet_bytes(folder: Path) -> bytes:
    rows = 300
    table = pa.table({"a": [j % 20 for j in range(rows)], "b": [f"{CANARY}{j}" for j in range(rows)]})
    pq.write_table(table, folder / "whole.parquet", use_dictionary=False, write_page_checksum=True)
    return (folder / "whole.parquet").read_bytes()


def test_parquet_cut_short(tmp_path: Path) -> None:
    whole = parquet_bytes(tmp_path)
    for length in [4, 8, len(whole) // 2, len(whole) - 1]:
        refused(write(tmp_path, whole[:length], "t.parquet"), "damaged, cut short or not Parquet")


def test_parquet_with_a_flipped_bit_is_refused_or_read_but_never_quoted(tmp_path: Path) -> None:
    """Wherever the bit is: checksummed pages are refused; elsewhere a flip may be harmless, or change a name."""
    whole = parquet_bytes(tmp_path)
    refusals: list[InputError] = []
    for place in range(0, len(whole), 7):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << (place % 8)
        try:
            read_table(write(tmp_path, bytes(flipped), "t.parquet"), schema())
        except InputError as error:
            refusals.append(error)
    assert len(refusals) > 20
    assert not any(CANARY in str(error) for error in refusals)
    assert all(error.__suppress_context__ or error.__context__ is None for error in refusals)


def test_a_flipped_bit_in_a_page_is_found(tmp_path: Path) -> None:
    whole = bytearray(parquet_bytes(tmp_path))
    chunk = pq.ParquetFile(tmp_path / "whole.parquet").metadata.row_group(0).column(1)
    whole[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 4
    refused(write(tmp_path, bytes(whole), "t.parquet"), "damaged")


def test_ten_thousand_columns(tmp_path: Path) -> None:
    names = [f"x{j}" for j in range(9_998)]
    header, line = ",".join([*names, "b", "a"]), ",".join(["0"] * 9_998 + ["1", "2"])
    assert cells(read_table(write(tmp_path, f"{header}\n{line}\n".encode()), schema())) == {"a": ["2"], "b": ["1"]}


@pytest.mark.parametrize("place", ["t.parquet", ""])
def test_midnight_at_the_end_of_a_day_is_a_cell_and_no_damage(tmp_path: Path, place: str) -> None:
    """Engines write 24:00 as a time of day, which arrow's does not reach."""
    field = {"name": "at", "type": "duration", "constraints": {"minimum": 0, "maximum": 90000}}
    times = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    bins = {}
    for last in (0, 30_600_000_000, 86_400_000_000):
        moments = pa.array([30_600_000_000] * 3 + [last], pa.int64()).view(pa.time64("us"))
        pq.write_table(pa.table({"at": moments}), tmp_path / "t.parquet")
        ((_, counts),) = open_source(tmp_path / place, times).counts([("at",)])
        assert np.asarray(counts).sum() == 4
        bins[last] = np.flatnonzero(np.asarray(counts))
    morning = bins[30_600_000_000].item()
    assert bins[0].tolist() == [0, morning]
    assert bins[86_400_000_000].min() == morning < bins[86_400_000_000].max()
