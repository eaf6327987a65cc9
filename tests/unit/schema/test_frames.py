"""Frames in: what no column kind can hold is refused by its type, before a cell is looked at."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from understudy.schema import Schema
from understudy.schema.frames import to_arrow_columns

SCHEMA = Schema.from_dict(
    {"fields": [{"name": "x", "type": "string", "categories": ["a"]}], "understudy": {"privacy_unit": "row"}}
)
NESTED = {
    "list": pa.array([["a"]]),
    "struct": pa.array([{"k": "a"}]),
    "map": pa.array([[("k", "a")]], pa.map_(pa.string(), pa.string())),
}


@pytest.mark.parametrize("name", NESTED)
def test_a_list_or_structure_is_an_unknown_cell(name):
    """One such cell gives a column of nulls its type, so the type says nothing about the others."""
    table = pa.table({"x": NESTED[name]})
    frames = [table, pd.DataFrame({"x": pd.Series(NESTED[name], dtype=pd.ArrowDtype(NESTED[name].type))})]
    frames += [pl.from_arrow(table)] if name != "map" else []
    column = SCHEMA.coded[0]
    for frame in frames:
        assert SCHEMA.encode(frame).codes["x"].tolist() == [column.unknown_code]
    beside = pa.table({"x": pa.concat_arrays([NESTED[name], pa.nulls(2, NESTED[name].type)])})
    alone = pa.table({"x": pa.nulls(2)})
    assert SCHEMA.encode(beside).codes["x"].tolist()[1:] == SCHEMA.encode(alone).codes["x"].tolist()
    assert not Schema.encode(SCHEMA, pa.table({"x": ["a"], "unread": NESTED[name]})).codes["x"].any()


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()])
def test_pieces_of_text_are_joined_where_more_than_2_gib_have_room(kind):
    pieces = pa.chunked_array([pa.array(["a", None], kind), pa.array([], kind), pa.array(["b"], kind)])
    cells, rows = to_arrow_columns(pa.table({"x": pieces}), ["x"])
    assert str(cells["x"].type).startswith("large_")
    assert (cells["x"].to_pylist(), rows) == (pieces.to_pylist(), 3)


@pytest.mark.parametrize(("kind", "values"), [(pa.int8(), 128), (pa.uint8(), 256), (pa.int32(), 300)])
def test_a_dictionary_may_use_all_the_numbers_of_its_index(kind, values):
    words = [f"v{place}" for place in range(values)]
    field = {"name": "x", "type": "string", "categories": words}
    schema = Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    cells = pa.DictionaryArray.from_arrays(pa.array([*range(values), None], kind), pa.array(words))
    codes = schema.encode(pa.table({"x": cells})).codes["x"].tolist()
    assert codes == [*range(values), schema.coded[0].null_code]


@pytest.mark.parametrize("case", ["more values than places", "an empty value"])
def test_pieces_of_a_dictionary_that_cannot_be_joined_are_read_all_the_same(case):
    """How many values there are in all, and whether one is empty, is content: it fails nothing."""
    words = [f"v{place}" for place in range(200)]
    schema = Schema.from_dict(
        {"fields": [{"name": "x", "type": "string", "categories": words}], "understudy": {"privacy_unit": "row"}}
    )
    second = words[100:] if case == "more values than places" else [None, "v1"]
    pieces = [
        pa.DictionaryArray.from_arrays(pa.array(range(len(texts)), pa.int8()), pa.array(texts))
        for texts in (words[:100], second)
    ]
    codes = schema.encode(pa.table({"x": pa.chunked_array(pieces)})).codes["x"].tolist()
    assert codes == [
        *range(100),
        *(schema.coded[0].null_code if text is None else words.index(text) for text in second),
    ]
