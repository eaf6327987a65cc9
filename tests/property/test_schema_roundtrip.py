"""Generated schemas and frames: codes survive decoding, files survive loading, and rows are coded one by one."""

import datetime as dt
import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.schema import Schema
from understudy.schema.check import check
from understudy.schema.column import Coded

KINDS = ("arrow", "pandas", "polars")
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=6)


def our_keys(draw, nullable, extra=None):
    ours = dict(extra or {})
    rule = draw(st.sampled_from(["other", "drop_row", *(["null"] if nullable else [])]))
    ours["on_unknown"] = rule
    if draw(st.booleans()):
        ours["missing"] = draw(
            st.dictionaries(st.sampled_from(["-9", "-8", "?", "N"]), st.sampled_from(["refused", "not_applicable"]))
        )
        if nullable and draw(st.booleans()):
            ours["missing"]["--"] = None
    return ours


@st.composite
def categorical(draw, name):
    nullable = draw(st.booleans())
    kind = draw(st.sampled_from(["string", "integer"]))
    values = (
        st.integers(0, 99) if kind == "integer" else WORDS.filter(lambda word: word not in ("-9", "-8", "?", "N", "--"))
    )
    listed = draw(st.lists(values, min_size=1, max_size=6, unique=True))
    field = {"name": name, "type": kind, "categories": listed, "categoriesOrdered": draw(st.booleans())}
    return field | {"constraints": {"required": not nullable}, "understudy": our_keys(draw, nullable)}


@st.composite
def boolean(draw, name):
    nullable = draw(st.booleans())
    words = {"trueValues": ["Y", "yes"], "falseValues": ["n", "no"]} if draw(st.booleans()) else {}
    return {"name": name, "type": "boolean", "constraints": {"required": not nullable}, **words} | {
        "understudy": our_keys(draw, nullable)
    }


@st.composite
def numeric(draw, name):
    nullable = draw(st.booleans())
    whole = draw(st.booleans())
    low = draw(st.integers(0, 50))
    high = low + draw(st.integers(5, 3000))
    extra = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "bins": st.one_of(
                    st.integers(1, 40),
                    st.builds(lambda w: {"width": w}, st.integers(1, 200)),
                    st.lists(st.integers(low + 1, high - 1), max_size=5, unique=True).map(
                        lambda inner: {"edges": [low, *sorted(inner), high]}
                    ),
                ),
                "spikes": st.lists(st.integers(low, high), max_size=3, unique=True),
                "draw": st.sampled_from(["uniform", "midpoint", "lower"]),
            },
        )
    )
    if "bins" not in extra and draw(st.booleans()):
        extra["scale"] = "log"
    elif draw(st.booleans()) and high - low > 20:
        extra["top"] = {"from": high - 5}
    if not whole and draw(st.booleans()):
        extra["decimals"] = draw(st.integers(1, 2))
    limits = {"required": not nullable, "minimum": low, "maximum": high}
    kind = "integer" if whole else "number"
    return {"name": name, "type": kind, "constraints": limits, "understudy": our_keys(draw, nullable, extra)}


@st.composite
def heaped(draw, name):
    limits = {"required": draw(st.booleans()), "minimum": 0, "maximum": draw(st.integers(1, 30)) * 100 + 99}
    heaps = draw(st.sampled_from([[100, 20, 50, 25, 10, 5, 2, 1], [100, 50, 10], [20, 10, 5, 1]]))
    limits["maximum"] -= 79 if heaps[0] == 20 else 0
    return {"name": name, "type": "integer", "constraints": limits, "understudy": {"heaped": heaps}}


@st.composite
def temporal(draw, name):
    kind = draw(st.sampled_from(["date", "datetime", "duration"]))
    nullable = draw(st.booleans())
    if kind == "duration":
        limits, extra = {"minimum": 0, "maximum": 86_400 * draw(st.integers(1, 9))}, {}
    else:
        year = draw(st.integers(1950, 2030))
        limits = {"minimum": f"{year}-02-03", "maximum": f"{year + draw(st.integers(0, 5))}-11-12"}
        extra = {"bins": {"width": draw(st.sampled_from(["1 month", "1 year", "7 days", "1 day"]))}}
        extra = extra if draw(st.booleans()) else {"bins": draw(st.integers(1, 50))}
    field = {"name": name, "type": kind, "constraints": limits | {"required": not nullable}}
    if kind == "date" and draw(st.booleans()):
        field["format"] = "%d/%m/%Y"
    extra |= {"resolution": draw(st.sampled_from(["second", "minute", "hour"]))} if kind == "duration" else {}
    return field | {"understudy": our_keys(draw, nullable, extra)}


@st.composite
def contents(draw):
    makers = draw(st.lists(st.sampled_from([categorical, boolean, numeric, heaped, temporal]), min_size=1, max_size=5))
    fields = [draw(maker(f"c{index}")) for index, maker in enumerate(makers)]
    fields += draw(st.sampled_from([[], [{"name": "key", "understudy": {"kind": "id", "pattern": "K-###"}}]]))
    fields += draw(st.sampled_from([[], [{"name": "year", "understudy": {"kind": "constant", "value": 2019}}]]))
    ours = {"privacy_unit": "row", "dialect": {"decimal": draw(st.sampled_from([".", ","])), "delimiter": ";"}}
    return {"fields": fields, "understudy": ours}


schemas = contents().map(Schema.from_dict)


def some_codes(schema, seed, rows=60):
    rng = np.random.default_rng(seed)
    return {part: rng.integers(0, size, rows) for part, size in schema.domain.items()}


def recoverable(schema, codes, *, text):
    """Per coded column, which rows must come back with the same code.

    A code comes back unless a typed column cannot say it: an unknown value becomes null (or is replaced), a token such
    as "?" has no number. A heaped amount's class comes back where the bin holds an amount of that class.
    """
    keep = {}
    for column in schema.coded:
        main = codes[column.name]
        fine = main < column.ordinary
        if text or getattr(column, "type", "") == "string":
            fine |= (main >= column.ordinary) & (main < column.ordinary + len(column.reasons))
        if column.null_code is not None:
            fine |= main == column.null_code
        if column.shows_other and column.other_code is not None:
            fine |= main == column.other_code
        keep[column.name] = fine
        if len(column.parts) > 1:
            keep[column.round_part] = np.zeros(len(main), dtype=bool)  # has its own test below
    return keep


@settings(max_examples=25, deadline=None)
@given(schemas, st.integers(0, 2**32), st.sampled_from(KINDS), st.booleans())
def test_codes_survive_decoding_and_encoding(schema, seed, kind, text):
    codes = some_codes(schema, seed)
    frame = schema.decode(codes, np.random.default_rng(seed), as_=kind, text=text)
    again = schema.encode(frame)
    for part, rows in recoverable(schema, codes, text=text).items():
        assert (again.codes[part][rows] == codes[part][rows]).all(), part
    assert list(frame.column_names if kind == "arrow" else frame.columns) == [c.name for c in schema.columns]


@settings(max_examples=25, deadline=None)
@given(schemas, st.integers(0, 2**32))
def test_decoding_is_the_same_for_every_frame_type_and_seed(schema, seed):
    codes = some_codes(schema, seed)
    frames = [schema.decode(codes, np.random.default_rng(seed), as_=kind) for kind in KINDS]
    coded = [schema.encode(frame) for frame in frames]
    for other in coded[1:]:
        assert other.codes.keys() == coded[0].codes.keys()
        assert all((other.codes[part] == coded[0].codes[part]).all() for part in other.codes)
        assert (other.keep == coded[0].keep).all()
    assert frames[0].equals(schema.decode(codes, np.random.default_rng(seed)))


@settings(max_examples=25, deadline=None)
@given(schemas)
def test_a_schema_survives_its_file_and_its_dict(tmp_path_factory, schema):
    written = schema.to_dict()
    assert Schema.from_dict(json.loads(json.dumps(written))) == schema
    folder = tmp_path_factory.mktemp("schema")
    for name in ("s.json", "s.yaml"):
        schema.save(folder / name)
        assert Schema.load(folder / name) == schema
        assert Schema.load(folder / name).to_dict() == written


CELLS = st.one_of(
    st.none(),
    st.just(math.nan),
    st.just(math.inf),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=12),
    st.binary(max_size=4),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.decimals(allow_nan=True),
    st.sampled_from(["-9", "?", "N", "12", "12.5", "12,5", "2021-03-04", "04/03/2021", "P1DT2H", "yes", "Y", " 12 "]),
    st.just([1, 2]),
    st.just({"a": 1}),
)


@settings(max_examples=40, deadline=None)
@given(schemas, st.data())
def test_any_cells_at_all_are_coded_inside_the_domain(schema, data):
    rows = data.draw(st.integers(0, 6))
    columns = {
        column.name: pd.Series(
            data.draw(st.lists(CELLS, min_size=rows, max_size=rows)), dtype=object, index=range(rows)
        )
        for column in schema.coded
    }
    encoded = schema.encode(pd.DataFrame(columns))
    assert encoded.keep.shape == (rows,)
    for part, size in schema.domain.items():
        assert encoded.codes[part].shape == (rows,)
        assert not rows or int(encoded.codes[part].max()) < size


TYPED = {
    "int": (st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), pa.int64()),
    "float": (st.one_of(st.none(), st.floats()), pa.float64()),
    "text": (st.one_of(st.none(), CELLS.filter(lambda cell: isinstance(cell, str))), pa.large_string()),
    "bytes": (st.one_of(st.none(), st.binary(max_size=4)), pa.binary()),
    "bool": (st.one_of(st.none(), st.booleans()), pa.bool_()),
    "date": (st.one_of(st.none(), st.dates()), pa.date32()),
    "days": (st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)), pa.date32()),
    "stamp": (st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), pa.timestamp("s")),
    "zone": (st.one_of(st.none(), st.datetimes(min_value=dt.datetime(1900, 1, 1))), pa.timestamp("us", "Europe/Paris")),
    "span": (st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), pa.duration("s")),
    "object": (CELLS, None),
}


@st.composite
def typed_column(draw, rows):
    cells, kind = TYPED[draw(st.sampled_from(sorted(TYPED)))]
    return draw(st.lists(cells, min_size=rows, max_size=rows)), kind


def frame_of(columns):
    """Arrow where there is a type, pandas objects where there is none."""
    made = {}
    for name, (cells, kind) in columns.items():
        if kind is None:
            made[name] = pd.Series(cells, dtype=object, index=range(len(cells)))
        else:
            array = pa.array(cells, pa.int64()).cast(kind) if _counts(cells, kind) else pa.array(cells, kind)
            made[name] = pd.Series(array, dtype=pd.ArrowDtype(kind), index=range(len(cells)))
    return pd.DataFrame(made)


def _counts(cells, kind):
    """Times drawn as plain counts, so that the far ends of the type are reached."""
    timed = pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    return timed and not any(isinstance(cell, dt.datetime) for cell in cells)


@settings(max_examples=40, deadline=None)
@given(schemas, st.data())
def test_a_row_is_coded_the_same_whatever_the_other_rows_hold(schema, data):
    """The privacy argument rests on this: one person's cells must not change how anybody else is coded."""
    rows = data.draw(st.integers(2, 5))
    columns = {column.name: data.draw(typed_column(rows)) for column in schema.coded}
    victim = data.draw(st.integers(0, rows - 1))
    together = schema.encode(frame_of(columns))
    others = [row for row in range(rows) if row != victim]
    alone = schema.encode(
        frame_of({name: ([cells[row] for row in others], kind) for name, (cells, kind) in columns.items()})
    )
    assert (together.keep[others] == alone.keep).all()
    for part in schema.domain:
        assert (together.codes[part][others] == alone.codes[part]).all(), part


@settings(max_examples=15, deadline=None)
@given(schemas, st.integers(0, 2**32))
def test_a_decoded_table_fits_its_schema(schema, seed):
    """What decoding makes, a check finds to fit: nothing unknown but what was unknown, nothing clipped."""
    codes = some_codes(schema, seed)
    fit = check(schema, schema.decode(codes, np.random.default_rng(seed), text=True))
    for column in fit.columns:
        declared = next(c for c in schema.coded if c.name == column.name)
        assert column.clipped == 0
        assert column.unknown == 0 or declared.unknown_code >= 0
        assert isinstance(declared, Coded)


@pytest.mark.parametrize("kind", KINDS)
def test_a_polars_or_pandas_frame_gives_the_same_codes_as_arrow(kind):
    schema = Schema.from_dict(
        {
            "fields": [
                {"name": "n", "type": "integer", "constraints": {"minimum": 0, "maximum": 9}},
                {"name": "w", "type": "string", "categories": ["a", "b"]},
                {"name": "f", "type": "number", "constraints": {"minimum": 0, "maximum": 1}},
            ],
            "understudy": {"privacy_unit": "row"},
        }
    )
    cells = {"n": [1, None, 99], "w": ["a", None, "z"], "f": [0.5, math.nan, None]}
    frame = {"arrow": pa.table, "pandas": pd.DataFrame, "polars": pl.DataFrame}[kind](cells)
    codes = schema.encode(frame).codes
    assert codes["n"].tolist() == [1, 10, 9]
    assert codes["w"].tolist() == [0, 2, 3]
    assert codes["f"].tolist() == [50, 100, 100]
