"""Every error of the validator: what provokes it, and that it names the remedy (and file, line and column)."""

import ast
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import understudy.schema as package
from understudy.domain import Domain
from understudy.errors import InputError, SchemaError, UnderstudyError
from understudy.schema import Recoding, Schema
from understudy.schema.rules import check_rule_size

FOLDER = Path(inspect.getfile(package)).parent
VALIDATOR = ("axis", "categorical", "column", "file", "numeric", "recode", "rules", "schema", "temporal", "text")
OK = {"name": "ok", "type": "boolean"}
ROW = {"privacy_unit": "row"}
OPEN = {"name": "o", "type": "integer", "understudy": {"bounds": "discover"}}


def whole(**ours):
    return {"name": "n", "type": "integer", "constraints": {"minimum": 0, "maximum": 100}, "understudy": ours}


def real(**ours):
    return {"name": "n", "type": "number", "constraints": {"minimum": 0, "maximum": 10}, "understudy": ours}


def word(*values, **ours):
    return {"name": "w", "type": "string", "categories": list(values or ("a", "b")), "understudy": ours}


def day(**ours):
    limits = {"minimum": "2020-01-01", "maximum": "2020-12-31"}
    return {"name": "d", "type": "date", "constraints": limits, "understudy": ours}


def span(**ours):
    return {"name": "u", "type": "duration", "constraints": {"minimum": 0, "maximum": 86400}, "understudy": ours}


def level(*levels):
    return {"levels": list(levels)}


FIELDS = [
    ("a line of text", "must be a mapping with at least a `name`"),
    ({"type": "integer"}, "`name` must be non-empty text; add it"),
    (
        {"name": "x", "type": "string"},
        "list its categories, discover them with `understudy: {values: discover}`, or declare",
    ),
    ({"name": "x", "type": "integer", "understudy": {"bounds": [0, 1]}}, "`bounds` takes only `discover`; declare"),
    ({"name": "x", "type": "string", "understudy": {"values": ["a"]}}, "declare values under `categories`"),
    ({"name": "x", "type": "discover", "understudy": {"values": "discover"}}, "remove one of them"),
    ({"name": "x", "type": "integer", "understudy": {"bounds": "discover", "levels": []}}, "`levels` does not go with"),
    ({"name": "x", "type": "discover", "categories": ["a"]}, "`categories` does not go with `type: discover`"),
    ({"name": "x", "type": "date", "understudy": {"values": "discover"}}, "goes with `type: string`"),
    ({"name": "x", "type": "boolean", "understudy": {"bounds": "discover"}}, "goes with numbers, dates"),
    (
        {"name": "x", "type": "integer", "constraints": {"minimum": 0}, "understudy": {"bounds": "discover"}},
        "`bounds: discover` discovers both bounds; remove",
    ),
    (
        {"name": "x", "type": "integer", "understudy": {"bounds": "discover", "bins": {"width": 5}}},
        "is a number of bins, or `discover`; correct it",
    ),
    ({"name": "x", "type": "discover", "understudy": {"origin": "x"}}, "`origin`: input should be"),
    (
        {"name": "x", "type": "integer", "understudy": {"bins": "discover"}},
        "`minimum` is not declared; add it under `constraints`, or discover it",
    ),
    ({"name": "x", "type": "geopoint"}, "unknown type 'geopoint'; use one of string"),
    ({"name": "x", "type": ["integer"]}, "unknown type"),
    ({"name": "x", "understudy": {"kind": {"id": True}}}, "unknown kind"),
    ({"name": "x", "understudy": []}, "`understudy` must be a mapping of keys; correct it"),
    ({"name": "x", "type": "integer", "constraints": []}, "`constraints` must be a mapping of keys; correct it"),
    ({"name": "x", "type": "integer", "constraints": {"max": 3}}, "unknown constraint `max`; use enum, maximum"),
    ({"name": "x", "type": "integer", "bins": 3}, "unknown key `bins`; move it under `understudy`"),
    ({"name": "x", "type": "number", "decimalChar": ","}, "declare it once, in `understudy.dialect.decimal`"),
    ({"name": "x", "type": "number", "colour": "red"}, "unknown key `colour`; remove it, or correct its spelling"),
    ({"name": "x", "understudy": {"kind": "free text"}}, "unknown kind 'free text'; use one of drop"),
    ({"name": "x", "understudy": {"kind": "categorical"}}, "`categories` must be a list of values; add it"),
    (whole(colour=1), "unknown key `colour`; use bins"),
    (word(bins=3), "`bins` does not go with kind categorical; use"),
    (whole(bins="many"), "`bins`: input should be"),
    (whole(scale="cubic"), "`scale`: input should be 'linear' or 'log'; correct it"),
    (word() | {"categories": []}, "`categories` is empty; list the values"),
    (word() | {"categories": [True, False]}, "put quotes around values"),
    (word() | {"categories": ["a", 1]}, "must all be of type string; put quotes around text"),
    (word() | {"type": "integer", "categories": [2**63]}, "a number too long for type integer; use `string`"),
    (word() | {"type": "number", "categories": [2**53 + 1]}, "a number too long for type number; use `string`"),
    ({"name": "x", "understudy": {"kind": "difference", "of": ["ok", "ok"]}}, "name two columns of `type: date`"),
    (word("a", "a"), "`categories` names a value twice; remove the repetition"),
    (word("a", missing={"a": "refused"}), "'a' is both a category and a `missing` token; remove one"),
    (OK | {"trueValues": []}, "each need at least one text; add one"),
    (OK | {"trueValues": ["x"], "falseValues": ["x"]}, "'x' means both true and false; remove it"),
    (OK | {"understudy": {"missing": {"0": None}}}, "'0' is both a truth value and a `missing` token; remove one"),
    (word(on_unknown="null") | {"constraints": {"required": True}}, "needs a nullable column; remove `required`"),
    (word(missing={"?": None}) | {"constraints": {"required": True}}, "name the reason instead"),
    ({"name": "x", "understudy": {"kind": "id", "pattern": "P-1"}}, 'needs "#" for the digits'),
    ({"name": "x", "type": "integer", "constraints": {"minimum": 0}}, "`maximum` is not declared; add it under"),
    ({"name": "x", "type": "integer", "constraints": {"minimum": 9, "maximum": 1}}, "swap or correct the bounds"),
    ({"name": "x", "type": "integer", "constraints": {"minimum": 0.5, "maximum": 1}}, "round it, or declare"),
    ({"name": "x", "type": "integer", "constraints": {"minimum": "a", "maximum": 1}}, "must be a finite number"),
    ({"name": "x", "type": "integer", "constraints": {"minimum": 0, "maximum": 2**60}}, "use `kind: id` or `drop`"),
    (whole(bins={"width": 5, "edges": [0, 100]}), "give exactly one"),
    (whole(bins={"edges": [0, 50]}), "the outermost of `bins.edges` differ; make them equal"),
    (whole(bins={"edges": [0, 60, 50, 100]}), "in ascending order; sort them"),
    (whole(bins=0), "`bins` must be at least 1; give the number"),
    (whole(bins={"width": -5}), "`bins.width` must be positive; give the width"),
    (real(bins={"width": 1e-9}), "more than ten million bins; choose wider bins"),
    (whole(bins={"width": 5}, scale="log"), "remove `scale`"),
    (whole(scale="log") | {"constraints": {"minimum": -5, "maximum": 5}}, "give `bins.edges` instead, or raise"),
    (whole(spikes=[500]), "`spikes` holds a value outside the bounds; widen the bounds or remove"),
    (whole(missing={"0": "x"}) | {"constraints": {"minimum": 0, "maximum": 0}}, "widen the bounds or remove a code"),
    (whole(top={"from": 90, "rule": "value"}), "belong together; give both or neither"),
    (whole(top={"from": 90, "rule": "pareto"}), "needs a positive `alpha`, and no other rule has one; correct it"),
    (whole(top={"from": 90, "rule": "value", "value": 3}), "`value` lies below `from`; correct one of them"),
    (whole(top={"from": 0, "rule": "pareto", "alpha": 1}), "needs `from` above 0; use `uniform` or `value`"),
    (whole(decimals=2), "`decimals` goes with `type: number`; remove it or change the type"),
    (real(decimals=99), "from 0 to 9; correct it"),
    (real(heaped=[10, 5]), "declare `decimals`"),
    (whole(heaped=[10, 10]), "distinct positive divisors; correct the list"),
    (whole(heaped=[10, 3]), "put the coarsest first"),
    (whole(heaped=[2_000_000]) | {"constraints": {"minimum": 0, "maximum": 9_000_000}}, "at most 1000000 units"),
    (whole(heaped=[10, 1, 5]), "an earlier one divides it; put it earlier"),
    (whole(heaped=[10, 5], bins={"width": 15}), "cut at multiples of the coarsest divisor; correct the bins"),
    (day() | {"constraints": {"minimum": "soon", "maximum": "later"}}, "write it as 2024-01-31"),
    (day(bins={"width": "a while"}), 'write "7 days", "1 hour" or "1 month"'),
    (day(bins={"width": "2 hours"}), "a whole number of days, weeks, months or years; correct it"),
    (day(bins={"width": "0 months"}), "`bins.width` must be positive; give the width"),
    (span() | {"constraints": {"minimum": "x", "maximum": 5}}, "write seconds, or as P1DT2H30M"),
    (span(bins={"width": "1 month"}), "`bins.width` of a duration cannot be months or years; use days or weeks"),
    (span(**level({"name": "l", "width": "1 month"})), "`levels` of a duration cannot be months or years; use days"),
    (span(bins={"width": 0.5}), "a multiple of the column's precision; correct the width"),
    (word(**level({"name": "l"})), "exactly one of `groups`, `width` and `edges`; correct it"),
    (whole(**level({"name": "l", "width": 5, "rest": "x"})), "`rest` goes with `groups`; remove it"),
    (word(**level({"name": "l", "width": 5})), "list the members of each"),
    (word(**level({"name": "l", "groups": {"x": ["a"], "y": ["a", "b"]}})), "into two groups; name it once"),
    (word(**level({"name": "l", "groups": {"x": ["z"]}})), "is not a value of the column; correct it"),
    (word(**level({"name": "l", "groups": {"x": ["a"]}})), "add it to a group, or name a `rest` group"),
    (whole(bins={"width": 10}, **level({"name": "l", "width": 15})), "put its edges on edges of the bins"),
    (whole(**level({"name": "c", "width": 10}, {"name": "f", "width": 4})), "order levels finest first"),
    (whole(**level({"name": "l", "width": 5}, {"name": "l", "width": 10})), "is declared twice; rename one"),
    (whole(**level({"name": "l", "groups": {"x": [1]}})), "by `width` or `edges`; use one"),
    (whole(**level({"name": "l", "width": -1})), "`width` must be positive; correct it"),
]
TABLES = [
    (["fields"], "check which file it is"),
    ({"fields": []}, "list them under `fields`"),
    ({"fields": [OK], "resources": []}, "a data package of several tables"),
    ({"fields": [OK], "understudy": []}, "`understudy` must be a mapping of keys; correct it"),
    ({"fields": [OK], "missingValues": ["", "NA"], "understudy": ROW}, "{missing: {token: reason}}` in each field"),
    ({"fields": [OK], "colour": 1}, "unknown key `colour`; remove it"),
    ({"fields": [OK], "rows": 10}, "unknown key `rows`; move it under `understudy`"),
    ({"fields": [OK], "understudy": {"colour": 1}}, "unknown key `colour`; use custodian_only"),
    ({"fields": [OK], "understudy": {}}, "write `privacy_unit: row` under `understudy`"),
    ({"fields": [OK], "understudy": {"privacy_unit": "person"}}, "or `{column: NAME, max_rows: K}`; correct it"),
    ({"fields": [OK], "understudy": {"privacy_unit": {"column": "p", "max_rows": 0}}}, "at least 1; correct it"),
    ({"fields": [OK], "understudy": {"privacy_unit": {"column": "ok", "max_rows": 1}}}, "declare it `kind: id`"),
    ({"fields": [OK], "understudy": {"privacy_unit": "row", "rows": -3}}, "from 1 to 10^12; correct it, or remove it"),
    ({"fields": [OK], "understudy": {"privacy_unit": "row", "rows": 10**400}}, "from 1 to 10^12; correct it"),
    ({"fields": [OK, OK], "understudy": {"privacy_unit": "row"}}, "rename or remove one of them"),
    ({"fields": [{"name": "x", "understudy": {"kind": "drop"}}], "understudy": ROW}, "declare at least one"),
    ({"fields": [OK | {"name": f"c{i}"} for i in range(10_001)], "understudy": ROW}, "split the table"),
]  # fmt: skip
DIALECTS = [
    ({"delimiter": ";;"}, "must be one ASCII character"),
    ({"quote": "«"}, "must be one ASCII character"),
    ({"decimal": "x"}, 'must be "." or ","; choose'),
    ({"encoding": "morse"}, "try utf-8, or windows-1252"),
    ({"group": "."}, "correct one of them"),
    ({"delimiter": '"'}, "correct one of them"),
    ({"colour": 1}, "is unknown; use delimiter"),
    ({"header": "maybe"}, "correct it"),
]
RULES = [
    ("age < 3", "put a dash before each rule"),
    ([{"never": 1}], "a rule is one of `impossible"),
    ([{"order": ["n"]}], "write `order: [admitted, discharged]`"),
    ([{"order": ["n", "d"]}], "compare like with like"),
    ([{"order": ["n", "w"]}], "declare it ordinal, or remove the rule"),
    ([{"order": ["n", "z"]}], "unknown column 'z'; the columns are"),
    ([{"from": ["x"], "determines": "n"}], "is not synthesised; remove it from the rule"),
    ([{"from": ["w"], "determines": "w"}], "write `from: [zip], determines: city`"),
    ([{"from": ["w"], "determines": "n", "level": "country"}], "does not have; declare it"),
    ([{"from": ["w"], "determines": "n", "map": {"nowhere": 1}}], "is not a value of column 'w'; correct it"),
    ([{"from": ["n"], "determines": "w", "map": {"1..x": "a"}}], "is not a range; write 16..24"),
    ([{"from": ["w"], "determines": "h"}], "remove `heaped` or the rule"),
    ([{"impossible": {"w": {"minimum": 1}}}], "list its values instead"),
    ([{"impossible": {"n": {"minimum": "x"}}}], "must be a finite number; correct it"),
    ([{"impossible": {"w": ["z"]}}], "is not a value of column 'w'; correct it"),
]


def table(**ours):
    heaped = whole(heaped=[10, 1]) | {"name": "h"}
    fields = [whole(), word(), day(), heaped, {"name": "x", "understudy": {"kind": "drop"}}]
    return {"fields": fields, "understudy": {"privacy_unit": "row", **ours}}


def raised(content) -> str:
    with pytest.raises(SchemaError) as caught:
        Schema.from_dict(content)
    assert caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.parametrize(("field", "remedy"), FIELDS, ids=[remedy[:40] for _, remedy in FIELDS])
def test_a_field_error_names_the_column_and_the_remedy(field, remedy):
    message = raised({"fields": [OK, field], "understudy": {"privacy_unit": "row"}})
    assert remedy in message
    assert (f"column {field['name']!r}" if isinstance(field, dict) and "name" in field else "field 2") in message


@pytest.mark.parametrize(("content", "remedy"), TABLES, ids=[remedy[:40] for _, remedy in TABLES])
def test_a_table_error_names_the_remedy(content, remedy):
    assert remedy in raised(content)


@pytest.mark.parametrize(("dialect", "remedy"), DIALECTS, ids=[str(dialect) for dialect, _ in DIALECTS])
def test_a_dialect_error_names_the_remedy(dialect, remedy):
    assert remedy in raised(table(dialect=dialect))


@pytest.mark.parametrize(("rules", "remedy"), RULES, ids=[remedy[:40] for _, remedy in RULES])
def test_a_rule_error_names_the_remedy(rules, remedy):
    assert remedy in raised(table(rules=rules))


def call_errors(tmp_path) -> list[tuple[object, str]]:
    """Errors of calls and files: what to do, and the remedy."""
    schema = Schema.from_dict(table())
    draft = Schema.from_dict({"fields": [word(status="draft")], "understudy": {"privacy_unit": "row"}})
    rng = np.random.default_rng(0)
    recoding = Recoding({"n": np.array([0, 0, 1])})
    paths = {
        "broken.json": b'{"fields": [}', "deep.json": b"[" * 200 + b"]" * 200,
        "broken.yaml": b"fields: [", "odd.yaml": b"a: \x07", "latin.yaml": b"t: \xe9",
        "s.custodian-only.yaml": b"",
    }  # fmt: skip
    for name, content in paths.items():
        (tmp_path / name).write_bytes(content)
    codes = {part: np.zeros(2, np.uint8) for part in schema.domain}
    unit = package.PrivacyUnit
    opened = Schema.from_dict({"fields": [OPEN], "understudy": {"privacy_unit": "row"}})
    ruled = {"fields": [OPEN, whole()], "understudy": {"privacy_unit": "row", "rules": [{"order": ["o", "n"]}]}}
    return [
        (lambda: check_rule_size(Domain({"a": 1 << 13, "b": 1 << 12}), ("a", "b")), "use coarser bins or fewer values"),
        (lambda: opened.domain, "declare it to use the schema for anything else"),
        (lambda: Schema.from_dict(ruled), "declare the column, or remove the rule"),
        (lambda: draft.require_reviewed(), "look at each with `understudy schema review`"),
        (lambda: schema.column("z"), "the columns are n, w, d, h, x"),
        (lambda: schema.decode({}, rng), "give one array for each column of the domain"),
        (lambda: schema.decode(codes | {"w": np.array([0, 99])}, rng), "undo any recoding first"),
        (lambda: schema.decode(codes | {"w": np.zeros(3, int)}, rng), "give arrays of one length"),
        (lambda: schema.decode(codes, None), "give a generator"),
        (lambda: Schema(None), "columns: give a tuple of them"),
        (lambda: Schema(schema.columns, None), "or leave it out for one row"),
        (lambda: Schema(()), "add at least one under `fields`"),
        (lambda: unit(None, 3), "name the column, or write `row`"),
        (lambda: Schema.load({"fields": []}), "`Schema.from_dict` makes one of a mapping"),
        (lambda: Schema.load(tmp_path / "none.yaml"), "check the path"),
        (lambda: Schema.load(tmp_path / "s.yaml"), "finish it with `understudy schema review"),
        (lambda: Schema.load(tmp_path / "broken.json"), "look for a missing comma or quote"),
        (lambda: Schema.load(tmp_path / "deep.json"), "a number or character out of range; correct it"),
        (lambda: Schema.load(tmp_path / "broken.yaml"), "check the indentation and the quotes"),
        (lambda: Schema.load(tmp_path / "odd.yaml"), "check the characters in it"),
        (lambda: Schema.load(tmp_path / "latin.yaml"), "save the schema as UTF-8"),
        (lambda: schema.save(tmp_path / "none" / "s.yaml"), "check that the folder exists"),
        (lambda: schema.save("."), "is a folder; give the name of a file"),
        (lambda: schema.save(tmp_path / "broken.json"), "already exists; choose another name, or pass overwrite=True"),
        (lambda: recoding.recode(schema.domain), "give one per code"),
        (lambda: Recoding({"z": np.array([0])}).recode(schema.domain), "recode declared columns only"),
        (lambda: recoding.merged_codes("w"), "ask for one of n"),
        (lambda: Recoding({"n": np.array([0.5])}), "whole numbers, one per code"),
        (lambda: Recoding({"n": np.array([0, 2])}), "renumber them"),
    ]


def test_errors_of_calls_and_files_name_the_remedy(tmp_path):
    for call, remedy in call_errors(tmp_path):
        with pytest.raises(UnderstudyError) as caught:
            call()
        assert remedy in str(caught.value)


@pytest.mark.parametrize("name", ["s.yaml", "s.json"])
@pytest.mark.parametrize(
    ("field", "line"),
    [
        ('{"name": "b",\n "type": "integer",\n "constraints": {"minimum": 5,\n  "maximum": 1}}', 6),
        ('{"name": "b", "type": "string",\n "categories": ["a"],\n "understudy": {\n  "bins": 3}}', 7),
        ('{"name": "b", "type": "string",\n "colour": 1}', 5),
        ('{"name": "a", "type": "boolean"}', 4),
    ],
)
def test_errors_in_a_file_name_the_file_the_line_and_the_column(tmp_path, name, field, line):
    path = tmp_path / name
    path.write_text(
        '{"fields": [\n {"name": "a",\n  "type": "boolean"},\n' + field + '],\n"understudy": {"privacy_unit": "row"}}'
    )
    with pytest.raises(SchemaError) as caught:
        Schema.load(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert "column 'b'" in str(caught.value) or "column named 'a'" in str(caught.value)


# -- is there an error that no case above provokes? ------------------------------------------------------------------


def _file(name: str) -> Path:
    return FOLDER / f"{name}.py"


def raise_sites() -> set[tuple[str, int]]:
    sites = set()
    for name in VALIDATOR:
        for node in ast.walk(ast.parse(_file(name).read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):  # with a message
                sites.add((name, node.lineno))
    return sites


@contextmanager
def watching(hit: set[tuple[str, int]]) -> Iterator[None]:
    def local(frame, event, _):
        if event == "line":
            hit.add((Path(frame.f_code.co_filename).stem, frame.f_lineno))
        return local

    def start(frame, event, _):
        return local if frame.f_code.co_filename.startswith(str(FOLDER)) else None

    before = sys.gettrace()
    sys.settrace(start)
    try:
        yield
    finally:
        sys.settrace(before)


def test_every_error_of_the_validator_has_a_case(tmp_path):
    contents = [{"fields": [OK, field], "understudy": {"privacy_unit": "row"}} for field, _ in FIELDS]
    contents += [content for content, _ in TABLES]
    contents += [table(dialect=dialect) for dialect, _ in DIALECTS] + [table(rules=rules) for rules, _ in RULES]
    contents = [content for content in contents if not (isinstance(content, dict) and len(content["fields"]) > 100)]
    calls = call_errors(tmp_path)
    hit: set[tuple[str, int]] = {
        ("schema", line) for name, line in raise_sites() if name == "schema" and _is_wide(line)
    }
    (tmp_path / "bad.yaml").write_text("fields: [{name: a, type: integer}]\nunderstudy: {privacy_unit: row}\n")
    with watching(hit):
        for content in contents:
            with pytest.raises(InputError):
                Schema.from_dict(content)
        for call, _ in [*calls, (lambda: Schema.load(tmp_path / "bad.yaml"), "")]:
            with pytest.raises(UnderstudyError):
                call()
    missed = raise_sites() - hit
    assert not missed, f"errors without a case: {sorted(missed)}"


def _is_wide(line: int) -> bool:
    """The limit of 10,000 columns has its case above and is too slow to trace."""
    return "10000 columns" in (FOLDER / "schema.py").read_text().splitlines()[line - 1]
