"""``understudy schema``: draft, review, check, import and export. Drafts and checks are for the custodian only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from understudy.cli.console import Json, Quiet, tell
from understudy.cli.schema_review import as_page, refuse_present, review, unit_of, with_unit
from understudy.errors import InputError, SchemaError, SettingError
from understudy.page import write_page

if TYPE_CHECKING:
    from understudy.schema import Schema

app = typer.Typer(
    name="schema",
    help="Say what is public about a table: draft, review, check.",
    no_args_is_help=True,
)

_UNSAID = """\
# Not said yet is who is protected. If nobody has two rows:
#   privacy_unit: row
# If people can have several, the column that tells them apart, and how many rows of each to use:
#   privacy_unit: {column: patient_id, max_rows: 3}
"""


@app.command()
def draft(
    data: Annotated[
        str,
        typer.Argument(help="The private table: CSV, Parquet, .sav, .dta, .xlsx; with --discover also a database URL."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the draft (.yaml or .json).")],
    unit: Annotated[
        str | None, typer.Option(help="Who is protected: `row`, or COLUMN:K for at most K rows of each value.")
    ] = None,
    discover: Annotated[
        bool, typer.Option("--discover", help="Take only names (and Parquet's types); the rest is bought later.")
    ] = False,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="NAME=TYPE", help="A column's type, with --discover; repeatable."),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option("--header/--no-header", help="Whether a text file's first line names the columns; else guessed."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Propose a schema from a table, for you to review.

    Its name and content are marked custodian-only. Bounds are widened to round numbers, rare values are folded into
    `other`, columns that are different in almost every row are proposed as `drop` or `id`. Nothing in a draft may be
    released: `understudy schema review` comes next.

    With --discover no row is read and nothing is spent: types, bounds, bins and values are bought by `synthesize`.
    """
    if discover:
        if header is not None:
            raise SettingError("--header and --no-header go without --discover, which takes the first line for names")
        _open_draft(data, output, unit, types or [], quiet=quiet, as_json=as_json)
        return
    if types:
        raise SettingError("--type goes with --discover; without it types are proposed from the rows")
    if "://" in data or Path(data).is_dir():
        raise SettingError("rows stay where they are: draft a database's or folder's schema with --discover")
    _draft_of_rows(Path(data), output, unit, header, quiet=quiet, as_json=as_json)


def _draft_of_rows(
    data: Path, output: Path, unit: str | None, header: bool | None, *, quiet: bool, as_json: bool
) -> None:
    """A proposal from the rows themselves: marked, because it shows values of theirs."""
    from understudy.schema import Schema
    from understudy.schema.custodian import MARK, mark_path, unmark_path
    from understudy.schema.draft import draft as propose

    path = mark_path(output)
    refuse_present(path, unmark_path(path))

    table, names, dialect, asides = _whole_table(data, header)
    if not len(table):
        sheet = " in its first sheet, and others are not read" if data.suffix.lower() == ".xlsx" else ""
        raise InputError(
            f"{data}: no rows to propose anything from{sheet}; draft with --discover, or write the schema by hand"
        )
    stated = None if unit is None else unit_of(unit, names)
    proposal = propose(table, names, dialect, stated)
    content, notes = _with_labels(proposal.content, proposal.notes, data)
    content = content if stated is None else with_unit(content, stated)
    Schema.from_dict(content)
    if unit is None and content["understudy"]["privacy_unit"] == "row":
        del content["understudy"]["privacy_unit"]  # nobody said so, and there is no default
    text = _annotated(content, notes) if path.suffix != ".json" else as_page(content | {"description": MARK}, ".json")
    write_page(text, path, private=True)
    questions = [*asides, *proposal.questions]
    lines = [MARK, f"Draft of {len(names)} columns: {path}", *questions]
    lines.append(f"Next: understudy schema review {path}")
    data_out = {"custodian_only": MARK, "draft": str(path), "columns": len(names), "questions": questions}
    tell("\n".join(lines), data_out, quiet=quiet, as_json=as_json)


def _open_draft(data: str, output: Path, unit: str | None, types: list[str], *, quiet: bool, as_json: bool) -> None:
    """A schema of names and types alone; nothing in it is private, so it is not marked."""
    from understudy.schema import Dialect, Schema
    from understudy.schema.draft import draft_open_schema, read_header, read_parquet_types, schema_type
    from understudy.source.open import read_column_types
    from understudy.source.place import refuse_password, source_kind

    refuse_password(data)
    refuse_present(output)
    notes: list[str] = []
    if source_kind(data) != "file":
        dialect, names = Dialect(), {name: schema_type(kind) for name, kind in read_column_types(data).items()}
    elif data.lower().endswith((".parquet", ".pq")):
        dialect, names = Dialect(), read_parquet_types(Path(data))
    else:
        dialect, listed = read_header(Path(data))
        names = dict.fromkeys(listed, "discover")
        notes = [
            "Column names are the first line of the file, and will be public: make sure that it is no person's row."
        ]
    for given in types:
        name, _, kind = given.rpartition("=")
        if name not in names:
            raise SettingError(f"--type {given}: write NAME=TYPE with one of the columns {', '.join(names)}")
        names[name] = kind
    if unit is None:
        raise SettingError(
            "say who is protected: --unit row if nobody has two rows, else --unit COLUMN:K, as in patient_id:3"
        )
    content = draft_open_schema(names, dialect, unit_of(unit, list(names)))
    opened = Schema.from_dict(content).open
    write_page(as_page(content, output.suffix), output)
    lines = [f"Schema of {len(names)} columns: {output}", f"To be bought: {len(opened)} of them; no row was read."]
    lines += notes
    lines += ["Next: understudy synthesize, whose --discovery-share says what part of the budget buys them."]
    told = {"schema": str(output), "columns": len(names), "to_be_bought": [column.name for column in opened]}
    tell("\n".join(lines), told, quiet=quiet, as_json=as_json)


app.command()(review)


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="The schema.")],
    data: Annotated[Path, typer.Argument(help="The private table.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the result as JSON, marked custodian-only.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Tell how a table fits the schema, for your eyes only.

    Unknown, clipped and missing values, and what the binning alone loses. For the custodian's eyes only: the numbers
    are exact, made from the private rows without noise.
    """
    from understudy.cli.schema_report import words
    from understudy.schema.check import check as fit_of
    from understudy.schema.custodian import find_marked, mark_path
    from understudy.source.read import read_table

    loaded = _complete(find_marked(schema))
    fit = fit_of(loaded, read_table(data, loaded))
    if output is not None:
        write_page(as_page(fit.to_dict(), ".json"), mark_path(output), private=True)
    tell(words(fit), fit.to_dict(), quiet=quiet, as_json=as_json)


@app.command("import")
def import_(
    source: Annotated[
        Path, typer.Argument(help="A dictionary (CSV, XLSX), a .sav or .dta, SDV or SmartNoise metadata.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the schema (.yaml or .json).")],
    form: Annotated[
        Literal["dictionary", "sdv", "smartnoise"] | None,
        typer.Option("--format", help="What the file is; by default told from its ending (.json is SDV)."),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Who is protected: `row`, or COLUMN:K.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Build a schema from public documents, without touching rows.

    Says what is left for you to add.
    """
    refuse_present(output)
    imported = _imported(source, form)
    content = imported.content
    gaps = list(imported.gaps)
    if unit is not None:
        content["understudy"]["privacy_unit"] = unit_of(unit)
        gaps = [gap for gap in gaps if not gap.startswith("`privacy_unit`")]
    write_page(as_page(content, output.suffix), output)
    lines = [f"Schema of {len(content['fields'])} columns: {output}"]
    lines += ["Add before use:", *(f"  {gap}" for gap in gaps)] if gaps else []
    told = {"schema": str(output), "columns": len(content["fields"]), "gaps": gaps}
    tell("\n".join(lines), told, quiet=quiet, as_json=as_json)


@app.command()
def export(
    schema: Annotated[Path, typer.Argument(help="The schema.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the metadata.")],
    form: Annotated[Literal["sdv", "smartnoise"], typer.Option("--format", help="Whose metadata to write.")] = "sdv",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a schema as metadata of SDV or SmartNoise.

    As JSON or YAML, as far as those can say it.
    """
    from understudy.schema.exchange import to_sdv, to_smartnoise

    refuse_present(output)
    loaded = _complete(schema)
    loaded.require_reviewed()
    sdv = form == "sdv"
    content = to_sdv(loaded) if sdv else to_smartnoise(loaded, schema.stem.split(".")[0])
    write_page(as_page(content, ".json" if sdv else ".yaml"), output)
    tell(f"{form} metadata: {output}", {"metadata": str(output), "format": form}, quiet=quiet, as_json=as_json)


def _complete(path: Path) -> Schema:
    """A schema with nothing left to be bought; the domain says what is."""
    from understudy.schema import Schema

    loaded = Schema.load(path)
    _ = loaded.domain
    return loaded


_HEADLESS = (
    "The first line was taken for a row, so the columns are called field1, field2 and so on. If it names the columns, "
    "draft again with --header."
)


def _whole_table(path: Path, header: bool | None) -> tuple[Any, list[str], Any, list[str]]:
    """Every column of a table, before there is a schema: a stand-in schema that names them all reads the file.

    Returns:
        The table, the columns' names, how it is written, and what its owner should know about that.
    """
    from understudy.schema import Dialect, Schema
    from understudy.schema.categorical import Categorical
    from understudy.schema.sniff import sniff
    from understudy.source.office import is_office, read_variables
    from understudy.source.read import read_table

    if is_office(path):
        dialect, names = Dialect(), [variable.name for variable in read_variables(path)]
    elif path.suffix.lower() in (".parquet", ".pq"):
        dialect, names = Dialect(), _parquet_names(path)
    else:
        dialect, names = sniff(path, header)
    asides = [_HEADLESS] if header is None and not dialect.header else []
    unnamed = sum(not name.strip() for name in names)
    if unnamed:
        asides.append(f"Left out: {unnamed} of the file's columns, which have no name; name them there to use them.")
    places = [place for place, name in enumerate(names, 1) if name.strip() and names.count(name) > 1]
    names = [name for name in names if name.strip()]
    if not names:
        raise SchemaError(f"{path}: no column has a name; name them in its first line, or say --no-header")
    if places:
        raise SchemaError(
            f"{path}: columns number {', '.join(map(str, places[:10]))} share a name with another; rename them in the "
            "file, or say --no-header where its first line is a row"
        )
    columns = tuple(Categorical(name=name, values=("",)) for name in names)
    return read_table(path, Schema(columns, dialect=dialect)), names, dialect, asides


def _with_labels(content: dict[str, Any], notes: dict[str, str], path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """A draft with the labels of an SPSS or Stata file; their values are the file's dictionary, not what rows hold."""
    from understudy.source.office import apply_labels, is_office, read_variables

    if not is_office(path):
        return content, notes
    known = {variable.name: variable for variable in read_variables(path)}
    fields = [apply_labels(field, known[field["name"]]) for field in content["fields"]]
    said = {
        field["name"]: "values and labels of the file's own dictionary" for field in fields if "categories" in field
    }
    told = {name: words for name, words in said.items() if known[name].values}
    return content | {"fields": fields}, notes | told


def _parquet_names(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    try:
        return list(pq.read_schema(path).names)
    except Exception:  # arrow's own words may quote the file
        raise InputError(f"{path}: cannot be read as Parquet; check the path, or export the file again") from None


def _imported(source: Path, form: str | None) -> Any:
    from understudy.schema.dictionary import read_dictionary
    from understudy.schema.exchange import from_sdv, from_smartnoise

    form = form or {".json": "sdv", ".yaml": "smartnoise", ".yml": "smartnoise"}.get(
        source.suffix.lower(), "dictionary"
    )
    if form == "dictionary" and source.suffix.lower() in (".sav", ".zsav", ".dta"):
        from understudy.source.office import import_variables, read_variables

        return import_variables(read_variables(source))
    if form == "dictionary":
        return read_dictionary(source)
    import yaml

    from understudy.notation import read_yaml

    try:
        parsed = read_yaml(source.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raise InputError(f"{source}: cannot be read as {form} metadata; check the path and the format") from None
    return from_sdv(parsed) if form == "sdv" else from_smartnoise(parsed)


def _annotated(content: dict[str, Any], notes: dict[str, str]) -> str:
    """YAML with the mark on top and each note beside its column; comments go when the draft is reviewed."""
    from understudy.schema.custodian import MARK

    lines = [f"# {MARK}", "fields:"]
    for field in content["fields"]:
        lines.append(f"# {notes[field['name']]}")
        lines.append(as_page([field]).rstrip())
    marked_content = {"understudy": content["understudy"] | {"custodian_only": MARK}}
    unsaid = "" if "privacy_unit" in content["understudy"] else _UNSAID
    return "\n".join(lines) + "\n" + as_page(marked_content) + unsaid
