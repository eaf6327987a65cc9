"""``understudy schema``: draft, review, check, import and export. Drafts and checks are for the custodian only."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from understudy.arguments import parse_unit
from understudy.cli.console import (
    INTERRUPTED,
    Json,
    Quiet,
    escape_controls,
    get_unescaped,
    print_result,
    refuse_password,
)
from understudy.cli.run import parse_tables
from understudy.errors import InputError, OutputError, SettingError
from understudy.files import write_text

if TYPE_CHECKING:
    from understudy.schema import Schema
    from understudy.schema.check import CheckResult, ColumnCheck, Loss
    from understudy.schema.linked import LinkedSchema

app = typer.Typer(
    name="schema",
    help="Describe what is public about a table: draft, review, check.",
    no_args_is_help=True,
)

_UNSAID = """\
# To do: state who is protected. If nobody has more than one row:
#   privacy_unit: row
# If people can have several rows, the column that identifies them and how many rows of each are used:
#   privacy_unit: {column: patient_id, max_rows: 3}
"""


@app.command()
def draft(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the draft (.yaml or .json).")],
    data: Annotated[
        str | None,
        typer.Argument(help="The private table: CSV, Parquet, .sav, .dta, .xlsx; with --discover also a database URL."),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(help="Linked tables: a folder with a file for each, or NAME=PATH; repeatable."),
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="Who is protected: `row`, or COLUMN:K for at most K rows of each value.")
    ] = None,
    discover: Annotated[
        bool, typer.Option("--discover", help="Use only names (and Parquet's types); a run discovers the rest.")
    ] = False,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="NAME=TYPE", help="A column's type, with --discover; repeatable."),
    ] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether a text file's first line names the columns; default: guessed.",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Propose a schema from a table, for you to review.

    Its name and content are marked custodian-only. Bounds are widened to round numbers, rare values are folded into
    `other`, columns that are different in almost every row are proposed as `drop` or `id`. Nothing in a draft may be
    released: `understudy schema review` comes next.

    With --discover no row is read and nothing is spent: `synthesize` discovers types, bounds, bins and values.

    With --tables a data package of linked tables is proposed: their keys, references and largest numbers of children.
    """
    place = parse_tables(data, tables or [])
    if tables:
        if discover or types or unit is not None or header is not None:
            raise SettingError("--tables: leave out --unit, --discover, --type and --header; edit the draft instead")
        _draft_tables(place, output, quiet=quiet, as_json=as_json)
        return
    data = str(place)
    if discover:
        if header is not None:
            raise SettingError(
                "--header and --no-header cannot be combined with --discover, which reads names from the first line"
            )
        _draft_from_names(data, output, unit, types or [], quiet=quiet, as_json=as_json)
        return
    if types:
        raise SettingError("--type needs --discover; without it, types are proposed from the rows")
    refuse_password(data)
    _draft_from_rows(data, output, unit, header, quiet=quiet, as_json=as_json)


def _draft_from_rows(
    data: str, output: Path, unit: str | None, header: bool | None, *, quiet: bool, as_json: bool
) -> None:
    """Draft from the rows themselves; marked custodian-only, because it shows their values."""
    from understudy.schema.custodian import MARK, mark_path, unmark_path
    from understudy.source.draft import draft as propose

    path = mark_path(output)
    refuse_existing(path, unmark_path(path))
    proposal = propose(data, unit=unit, header=header)
    content, columns = proposal.content, len(proposal.content["fields"])
    if path.suffix == ".json":
        text = format_page(content | {"description": MARK}, ".json")
    else:
        text = _annotate(content, {name: [_OURS + note] for name, note in proposal.notes.items()}, mark=True)
    write_text(text, path, private=True)
    questions = list(proposal.questions)
    lines = [MARK, f"Draft of {columns} {'column' if columns == 1 else 'columns'}: {path}", *questions]
    lines.append(f"Next: understudy schema review {path}")
    data_out = {"custodian_only": MARK, "draft": str(path), "columns": columns, "questions": questions}
    print_result("\n".join(lines), data_out, quiet=quiet, as_json=as_json)


def _draft_tables(place: str | dict[str, str], output: Path, *, quiet: bool, as_json: bool) -> None:
    """Draft a data package from the rows of linked tables; marked custodian-only, because it shows their values."""
    from understudy.schema.custodian import MARK, mark_path, unmark_path
    from understudy.source.draft_linked import draft_tables

    path = mark_path(output)
    refuse_existing(path, unmark_path(path))
    proposal = draft_tables(place)
    resources, questions = proposal.content["resources"], list(proposal.questions)
    comments = {column: [_OURS + note] for column, note in proposal.notes.items()}
    if path.suffix == ".json":
        text = format_page(proposal.content | {"description": MARK}, ".json")
    else:
        text = _annotate_package(proposal.content, comments, mark=True)
    write_text(text, path, private=True)
    lines = [MARK, f"Draft of {len(resources)} linked tables: {path}", *questions]
    lines.append(f"Next: understudy schema review {path}")
    facts = {"custodian_only": MARK, "draft": str(path), "tables": len(resources), "questions": questions}
    print_result("\n".join(lines), facts, quiet=quiet, as_json=as_json)


def _draft_from_names(
    data: str, output: Path, unit: str | None, types: list[str], *, quiet: bool, as_json: bool
) -> None:
    """Draft from names and types alone; nothing in it is private, so it is not marked."""
    from understudy.schema import Schema
    from understudy.source.draft import draft_names

    refuse_password(data)
    refuse_existing(output)
    known = {name: kind for name, _, kind in (given.rpartition("=") for given in types)}
    content, notes = draft_names(data, unit=unit, types=known)
    names, opened = content["fields"], Schema.from_dict(content).open
    write_text(format_page(content, output.suffix), output)
    lines = [f"Schema of {len(names)} columns: {output}", f"To be discovered: {len(opened)} of them. No row was read."]
    lines += notes
    lines += ["Next: understudy synthesize; its --discovery-share is the share of the budget for discovery."]
    result = {"schema": str(output), "columns": len(names), "to_discover": [column.name for column in opened]}
    print_result("\n".join(lines), result, quiet=quiet, as_json=as_json)


# -- `understudy schema review`: a person accepts each column of a draft, and says who is protected.


@app.command()
def review(
    schema: Annotated[Path, typer.Argument(help="The draft to review.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it; default: in place.")] = None,
    accept: Annotated[
        list[str] | None, typer.Option(help="Accept this column as it is, without asking; repeatable.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="Who is protected, without asking: `row`, or COLUMN:K (at most K rows).")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Accept each drafted column, drop it, or leave it for later.

    Asks about one column at a time. A release refuses a column until it is reviewed. The same can be done in an
    editor: correct what a column says and change `status: draft` to `status: reviewed`. What was answered before an
    interruption is kept, and so are comments above columns, except those of the draft (`# draft: ...`) once every
    column is reviewed. A column of linked tables is accepted as TABLE.COLUMN.
    """
    from understudy.schema import Schema
    from understudy.schema.custodian import find_marked, mark_path, unmark_path
    from understudy.schema.file import parse_content, read_schema_text, states_unit
    from understudy.schema.linked import is_package

    path = find_marked(schema)
    done = output or unmark_path(path)
    refuse_existing(*({done, mark_path(output or path)} - {path}))
    if is_package(parse_content(read_schema_text(path), path)):
        if unit is not None:
            raise SettingError("--unit: of linked tables, the root is protected; leave it out")
        drafts, dropped, target, stopped = _review_package(path, output or path, done, accept)
        _print_review(drafts, dropped, target, stopped=stopped, quiet=quiet, as_json=as_json)
        return
    content = Schema.load(path, unit="row").to_dict()
    names = [field["name"] for field in content["fields"]]
    for name in accept or []:
        if name not in names:
            raise SettingError(f"--accept {name}: no such column; the columns are {', '.join(names)}")
    from understudy.source.draft import set_unit

    content = set_unit(content, _ask_unit(content, names, unit, stated=states_unit(path), asking=not accept))
    asking = not accept and any(map(_is_draft, content["fields"]))
    comments = _read_comments(path)
    content["fields"], stopped = _ask_fields(content["fields"], accept, comments)
    result = Schema.from_dict(_review_rules(content, asking=asking and not stopped))
    drafts = [column.name for column in result.columns if column.status == "draft"]
    target = mark_path(output or path) if drafts else done
    _save(result, target, comments, is_draft=bool(drafts))
    dropped = [column.name for column in result.columns if column.kind == "drop"]
    _print_review(drafts, dropped, target, stopped=stopped, quiet=quiet, as_json=as_json)


def _print_review(
    drafts: list[str], dropped: list[str], target: Path, *, stopped: bool, quiet: bool, as_json: bool
) -> None:
    left = f"Still to review: {', '.join(drafts)}." if drafts else "Every column is reviewed."
    left += f" Dropped: {', '.join(dropped)}." if dropped else ""
    left = f"\nInterrupted; what you answered is kept. {left}" if stopped else left
    found = f"Schema: {target}" if drafts else f"Schema: {target}\nNext: understudy schema check {target} TABLE"
    print_result(f"{left}\n{found}", {"schema": str(target), "drafts": drafts}, quiet=quiet, as_json=as_json)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _review_package(
    path: Path, output: Path, done: Path, accept: list[str] | None
) -> tuple[list[str], list[str], Path, bool]:
    """Ask about the columns of linked tables, table by table, and save the package.

    Returns:
        The columns that are still drafts, those that were dropped, where the package is, and whether the person
        stopped early.
    """
    from understudy.schema.custodian import mark_path
    from understudy.schema.linked import LinkedSchema

    content, comments, stopped = LinkedSchema.load(path).to_dict(), _read_comments(path), False
    fields = {f"{one['name']}.{each['name']}": each for one in content["resources"] for each in one["schema"]["fields"]}
    if accept and (wrong := [name for name in accept if name not in fields]):
        raise SettingError(f"--accept {wrong[0]}: write TABLE.COLUMN; the columns are {', '.join(fields)}")
    for resource in content["resources"]:
        if stopped:
            break
        table, one = f"{resource['name']}.", resource["schema"]
        mine = None if accept is None else [name.removeprefix(table) for name in accept if name.startswith(table)]
        notes = {name.removeprefix(table): above for name, above in comments.items() if name.startswith(table)}
        asking = not accept and any(map(_is_draft, one["fields"]))
        one["fields"], stopped = _ask_fields(one["fields"], mine, notes, where=f"Table {resource['name']}, column")
        asked = _review_rules({"understudy": {}} | one, asking=asking and not stopped)
        resource["schema"] = (
            one | {"fields": asked["fields"]} | ({"understudy": asked["understudy"]} if "understudy" in one else {})
        )
    result = LinkedSchema.from_dict(content)
    named = {f"{name}.{column.name}": column for name, one in result.tables.items() for column in one.columns}
    drafts = [name for name, column in named.items() if column.status == "draft"]
    target = mark_path(output) if drafts else done
    if target.suffix == ".json":
        result.save(target, overwrite=True)
    else:
        kept = {name: [c for c in above if drafts or not c.startswith(_OURS)] for name, above in comments.items()}
        write_text(_annotate_package(result.to_dict(), kept, mark=bool(drafts)), target, private=bool(drafts))
    return drafts, [name for name, column in named.items() if column.kind == "drop"], target, stopped


def _review_rules(content: dict[str, Any], *, asking: bool) -> dict[str, Any]:
    """Drop rules and differences about dropped columns, and ask about the other rules: a draft may propose some."""
    from understudy.schema.review import drop_dependents

    content = drop_dependents(content)
    ours = content["understudy"]
    rules = [rule for rule in ours.get("rules", []) if not asking or _keep_rule(rule)]
    rest = {key: value for key, value in ours.items() if key != "rules"}
    return content | {"understudy": rest | ({"rules": rules} if rules else {})}


def _keep_rule(rule: Any) -> bool:
    typer.echo(format_page([rule]), nl=False, err=True)
    question = "Is this rule true by definition, and not only in these rows? [y]es, [n]o: remove it"
    try:
        return str(typer.prompt(question, default="n", err=True)).strip().lower().startswith("y")
    except typer.Abort:  # what was answered about the columns is kept
        return False


def refuse_existing(*paths: Path) -> None:
    """Refuse to overwrite an existing file.

    Raises:
        OutputError: naming the file.
    """
    for path in paths:
        if path.exists():
            raise OutputError(f"{path} already exists, perhaps with your corrections; choose another output")


def format_page(content: Any, ending: str = ".yaml") -> str:
    """Format a schema's content, or part of it, as YAML or JSON; loads YAML only now, so that help is fast."""
    from understudy.yaml_json import dump_text

    return dump_text(content, ending)


def _ask_unit(content: dict[str, Any], names: list[str], given: str | None, *, stated: bool, asking: bool) -> Any:
    """Return the privacy unit as given, or ask for it; there is no default that nobody stated."""
    if given is not None:
        return parse_unit(given, names)
    unit = content["understudy"]["privacy_unit"]
    if not asking and not stated:
        raise SettingError(
            "the draft does not say who is protected: add --unit row if nobody has two rows, else --unit COLUMN:K, as "
            "in patient_id:3"
        )
    if not asking or (stated and not any(_is_draft(field) for field in content["fields"])):
        return unit
    shown = None if not stated else "row" if unit == "row" else f"{unit['column']}:{unit['max_rows']}"

    def parse_answer(answer: str) -> Any:
        if answer != "row" and answer.rpartition(":")[0] not in names:
            raise typer.BadParameter(f"write `row`, or COLUMN:K with one of the columns {', '.join(names)}")
        try:
            return parse_unit(answer)
        except SettingError:
            raise typer.BadParameter("write `row`, or COLUMN:K as in patient_id:3") from None

    typer.echo(_ABOUT_UNIT, err=True)
    question = "Who is protected? `row`, or COLUMN:K"
    return typer.prompt(question, default=shown, value_proc=parse_answer, err=True)


_ABOUT_UNIT = """
If nobody has more than one row, each row is protected: `row`.
If people can have several rows, name the column that identifies them and how
many rows of each person are used, as in patient_id:3."""


def _ask_fields(
    fields: list[dict[str, Any]],
    accept: list[str] | None,
    comments: Mapping[str, Sequence[str]],
    *,
    where: str = "Column",
) -> tuple[list[dict[str, Any]], bool]:
    """Ask about every drafted field, with a way back; returns the fields, and whether the person stopped early."""
    done, asked = list(fields), [place for place, field in enumerate(fields) if _is_draft(field)]
    if accept is not None:
        for place in asked:
            done[place] = _decide(fields[place], "a" if fields[place]["name"] in accept else "l")
        return done, False
    turn = 0
    try:
        while turn < len(asked):
            place = asked[turn]
            field = done[place] if _is_draft(done[place]) else fields[place]
            _show_field(field, f"{where} {turn + 1} of {len(asked)}", comments.get(field["name"], []))
            answer = typer.prompt(_QUESTION, default="l", value_proc=_parse_letter, err=True)
            if answer == "b":
                turn = max(0, turn - 1)
                continue
            if answer == "e":
                done[place] = fields[place] = _edit_field(field)
                continue
            for again in asked[turn:] if answer == "r" else [place]:
                done[again] = _decide(field if again == place else fields[again], "a" if answer == "r" else answer)
            turn = len(asked) if answer == "r" else turn + 1
    except typer.Abort:
        return done, True
    return done, False


_QUESTION = "Your choice"
_KEYS = """\
  a  accept: this may become public      b  back to the previous column
  p  accept: it is public knowledge      l  decide later
  d  drop the column                     r  accept this and all remaining columns
  e  edit it in your editor"""
_MOST_SHOWN = 12
_KINDS = {
    "string": "categories",
    "integer": "whole numbers",
    "number": "numbers with decimals",
    "boolean": "true or false",
    "date": "dates",
    "datetime": "dates with times",
    "duration": "times",
    "id": "an identifier; synthetic rows get new ones",
    "drop": "neither read nor synthesised",
    "difference": "computed from two other columns",
}
_LABELS = {
    "categories": "values",
    "format": "written as",
    "pattern": "new ones look like",
    "missing": "codes for missing",
    "categoriesOrdered": "in this order",
    "width": "width of a bin",
    "scale": "scale of the bins",
    "on_unknown": "any other value",
    "of": "computed from",
}


def _show_field(field: dict[str, Any], counter: str, comments: Sequence[str]) -> None:
    """Show a proposal on the error stream, on a screen of its own: what it is, its facts, why, and the keys."""
    from rich.console import Console
    from rich.text import Text

    # Control characters of the screen must reach the terminal; names and values are escaped here.
    console = Console(file=get_unescaped(sys.stderr), highlight=False, soft_wrap=True)
    if console.is_terminal:
        console.clear()
    kind = field["understudy"].get("kind") or field.get("type", "")
    console.print(Text(f"\n{counter}: "), Text(escape_controls(field["name"]), "bold"), sep="", end="")
    console.print(Text(f" ({_KINDS.get(kind, kind)})"))
    facts = [*_list_facts(field), *(("note", comment.removeprefix(_OURS)) for comment in comments)]
    widest = max((len(label) for label, _ in facts), default=0)
    for label, fact in facts:
        console.print(Text(f"  {label:{widest}}  {escape_controls(fact)}"))
    console.print(Text(f"\n{_KEYS}"))


def _list_facts(field: dict[str, Any]) -> list[tuple[str, str]]:
    """List what a proposal declares, as labels and texts; a long list of values by its first ones."""
    hidden = ("name", "type", "understudy", "constraints", "status", "origin", "kind", "bins")
    limits, ours = dict(field.get("constraints", {})), field["understudy"]
    bins = ours.get("bins", {})
    facts = field | ours | (bins if isinstance(bins, dict) else {"bins": bins})
    facts |= {"format": _show_format(field)} if "format" in field else {}
    found = [(_LABELS.get(key, key), _format_briefly(value)) for key, value in facts.items() if key not in hidden]
    required, lowest, highest = (limits.pop(key, None) for key in ("required", "minimum", "maximum"))
    if lowest is not None or highest is not None:
        if field.get("type") == "duration" and "format" in field:  # times of day, in seconds since midnight
            lowest, highest = (
                end if end is None else f"{end // 3600:02}:{end // 60 % 60:02}" for end in (lowest, highest)
            )
        ends = ("from", lowest), ("to", highest)
        found.insert(0, ("range", " ".join(f"{word} {end}" for word, end in ends if end is not None)))
    found += [(key, _format_briefly(value)) for key, value in limits.items()]
    return [*found, *([("empty cells", "none are expected")] if required else [])]


def _show_format(field: dict[str, Any]) -> str:
    """Show how dates and times are written, with the lowest one as an example: `%d.%m.%Y, as in 01.01.1930`."""
    from datetime import UTC, datetime

    pattern, lowest = field["format"], field.get("constraints", {}).get("minimum")
    try:
        if field.get("type") == "duration":
            return f"{pattern}, as in {datetime.fromtimestamp(lowest, UTC).strftime(pattern)}"
        return f"{pattern}, as in {datetime.fromisoformat(lowest).strftime(pattern)}"
    except (TypeError, ValueError, OverflowError):
        return str(pattern)


def _format_briefly(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} ({_format_briefly(inner)})" for key, inner in list(value.items())[:_MOST_SHOWN])
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, list | tuple):
        return str(value)
    shown = ", ".join(_format_briefly(inner) for inner in value[:_MOST_SHOWN])
    return shown if len(value) <= _MOST_SHOWN else f"{shown} and {len(value) - _MOST_SHOWN} more"


def _edit_field(field: dict[str, Any]) -> dict[str, Any]:
    """Open a proposal in the user's editor; what cannot be read, or is no column, changes nothing."""
    import yaml

    from understudy.schema import Schema
    from understudy.yaml_json import read_yaml

    try:
        (edited,) = read_yaml(_open_editor(format_page([field])))
        Schema.from_dict({"fields": [edited], "understudy": {"privacy_unit": "row"}})
        if edited["name"] != field["name"]:
            raise ValueError
    except (yaml.YAMLError, InputError, TypeError, ValueError, KeyError):
        typer.echo("  unchanged: nothing was saved, or it is not this column any more", err=True)
        return field
    return dict(edited)


def _open_editor(text: str) -> str:
    """Return a text as the user's editor (VISUAL, EDITOR) saved it.

    **Privacy.** A draft shows values of rows: the file is in a folder that only this user can enter, and is removed.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ("notepad" if os.name == "nt" else "vi")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "column.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(file)], check=True)
        except (OSError, subprocess.CalledProcessError):
            typer.echo("  the editor cannot be started; name one in the environment variable EDITOR", err=True)
        return file.read_text(encoding="utf-8")


_OURS = "draft: "
"""How a draft's own comments begin. They tell what was seen in the rows, so a reviewed schema does not keep them."""


_QUOTES = "'\""


def _read_comments(path: Path) -> dict[str, list[str]]:
    """Read the comments directly above each column of a YAML file; columns of linked tables are TABLE.COLUMN."""
    found: dict[str, list[str]] = {}
    above: list[str] = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    table, package = "", "resources:" in lines
    for line in lines:
        if line.lstrip().startswith("#"):
            above.append(line.lstrip("# ").rstrip())
            continue
        if line.lstrip().startswith("- name: "):
            name = line.lstrip().removeprefix("- name: ").strip().strip(_QUOTES)
            if package and line.startswith("- "):
                table = f"{name}."
            elif above:
                found[table + name] = above
        above = []
    return found


def _save(schema: Schema, path: Path, comments: Mapping[str, Sequence[str]], *, is_draft: bool) -> None:
    """Write a schema with its comments; one with drafts is marked, and for the custodian only."""
    if path.suffix == ".json":
        schema.save(path, overwrite=True)
        return
    if not is_draft:
        comments = {name: [c for c in above if not c.startswith(_OURS)] for name, above in comments.items()}
    write_text(_annotate(schema.to_dict(), comments, mark=is_draft), path, private=is_draft)


_DECISIONS: dict[str, Literal["accept", "public", "drop"]] = {"a": "accept", "p": "public", "d": "drop"}


def _decide(field: dict[str, Any], letter: str) -> dict[str, Any]:
    from understudy.schema.review import decide

    return decide(field, _DECISIONS.get(letter, "later"))


def _is_draft(field: dict[str, Any]) -> bool:
    from understudy.schema.review import is_draft

    return is_draft(field)


def _parse_letter(answer: str) -> str:
    if (letter := answer.strip().lower()[:1]) not in tuple("apdebrl"):
        raise typer.BadParameter("answer a, p, d, e, b, l or r")
    return letter


@app.command()
def check(
    schema: Annotated[Path, typer.Argument(help="The schema.")],
    data: Annotated[str, typer.Argument(help="The private table: a file, folder, 'pattern' or database URL.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write the result as JSON, marked custodian-only.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Show how a table fits the schema. For the custodian only.

    Counts unknown, clipped and missing values, and shows what the binning alone loses. The numbers are exact: they are
    computed from the private rows without noise. Of linked tables, it also shows keys that occur twice, rows without a
    parent, and parents with more children than are used.
    """
    from understudy.schema.check import check as check_fit
    from understudy.schema.custodian import find_marked, mark_path
    from understudy.schema.linked import LinkedSchema, load_any
    from understudy.source.read import collect_table

    refuse_password(data)
    marked = find_marked(schema)
    if isinstance(tables := load_any(marked), LinkedSchema):
        words, found = _check_linked(tables, data)
        if output is not None:
            write_text(format_page(found, ".json"), mark_path(output), private=True)
        print_result(words, found, quiet=quiet, as_json=as_json)
        return
    loaded = _load_complete(marked)
    fit = check_fit(loaded, collect_table(data, loaded))
    if output is not None:
        write_text(format_page(fit.to_dict(), ".json"), mark_path(output), private=True)
    print_result(format_fit(fit), fit.to_dict(), quiet=quiet, as_json=as_json)


def _check_linked(schema: LinkedSchema, data: str) -> tuple[str, dict[str, Any]]:
    """Return how linked tables fit, as text and as data: shares of keys, references, caps and orders; and columns."""
    from understudy.evaluation.linked import check_integrity
    from understudy.schema.check import check as check_fit
    from understudy.schema.custodian import MARK
    from understudy.source.linked import find_tables, read_tables

    tables = read_tables(find_tables(data, schema), schema)
    shares = check_integrity(tables, schema)
    fits = {name: check_fit(one, tables[name]) for name, one in schema.tables.items()}
    lines = [MARK, *(f"{name}: {100 * share:.2f} %" for name, share in shares.items())]
    for name, fit in fits.items():
        lines += ["", f"Table {name}", *format_fit(fit).splitlines()[1:]]
    found = {"shares": shares, "tables": {name: fit.to_dict() for name, fit in fits.items()}}
    return "\n".join(lines), found


@app.command("import")
def import_(
    source: Annotated[
        Path,
        typer.Argument(help="A dictionary (CSV, XLSX), .sav, .dta, a domain.json, or SDV, SmartNoise or SDNist JSON."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the schema (.yaml or .json).")],
    form: Annotated[
        Literal["dictionary", "sdv", "smartnoise", "sdnist", "domain"] | None,
        typer.Option("--format", help="Format of the file; default: by its ending and content."),
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Who is protected: `row`, or COLUMN:K.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Build a schema from public documents, without reading rows.

    Lists what is left for you to add.
    """
    refuse_existing(output)
    imported = _import_metadata(source, form)
    content = imported.content
    gaps = list(imported.gaps)
    linked = content.get("resources")
    if unit is not None:
        if linked:
            raise SettingError("--unit: of linked tables, the root is protected; leave it out")
        content["understudy"]["privacy_unit"] = parse_unit(unit)
        gaps = [gap for gap in gaps if not gap.startswith("`privacy_unit`")]
    write_text(format_page(content, output.suffix), output)
    many = sum(len(one["schema"]["fields"]) for one in linked) if linked else len(content["fields"])
    tables = f"{len(linked)} linked tables with " if linked else ""
    lines = [f"Schema of {tables}{many} column{'s' * (many > 1)}: {output}"]
    lines += ["Add before use:", *(f"  {gap}" for gap in gaps)] if gaps else []
    result = {"schema": str(output), "columns": many, "gaps": gaps}
    print_result("\n".join(lines), result, quiet=quiet, as_json=as_json)


@app.command()
def export(
    schema: Annotated[Path, typer.Argument(help="The schema.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the metadata.")],
    form: Annotated[Literal["sdv", "smartnoise"], typer.Option("--format", help="Whose metadata to write.")] = "sdv",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a schema as metadata of SDV or SmartNoise.

    Writes JSON (SDV) or YAML (SmartNoise); what these formats cannot express is left out.
    """
    from understudy.schema.exchange import to_sdv, to_sdv_tables, to_smartnoise
    from understudy.schema.linked import LinkedSchema, load_any

    refuse_existing(output)
    loaded, sdv = load_any(schema), form == "sdv"
    loaded.require_reviewed()
    if isinstance(loaded, LinkedSchema):
        if not sdv:
            raise SettingError("--format: linked tables are exported as sdv only")
        content = to_sdv_tables(loaded)
    else:
        _ = loaded.domain  # refuses a schema that leaves something to discovery
        content = to_sdv(loaded) if sdv else to_smartnoise(loaded, schema.stem.split(".")[0])
    write_text(format_page(content, ".json" if sdv else ".yaml"), output)
    print_result(f"{form} metadata: {output}", {"metadata": str(output), "format": form}, quiet=quiet, as_json=as_json)


def _load_complete(path: Path) -> Schema:
    """Load a schema that leaves nothing to discovery; refuses others."""
    from understudy.schema import Schema

    loaded = Schema.load(path)
    _ = loaded.domain
    return loaded


def _import_metadata(source: Path, form: str | None) -> Any:
    from understudy.schema.exchange import from_domain, from_sdnist, from_sdv, from_smartnoise, json_form
    from understudy.source.office import import_variables, read_dictionary, read_variables

    form = form or {".json": "json", ".yaml": "smartnoise", ".yml": "smartnoise"}.get(
        source.suffix.lower(), "dictionary"
    )
    if form == "dictionary" and source.suffix.lower() in (".sav", ".zsav", ".dta"):
        return import_variables(read_variables(source))
    if form == "dictionary":
        return read_dictionary(source)
    import yaml

    from understudy.yaml_json import read_yaml

    try:
        parsed = read_yaml(source.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raise InputError(f"{source}: cannot be read as {form} metadata; check the path and the format") from None
    readers = {"sdv": from_sdv, "smartnoise": from_smartnoise, "sdnist": from_sdnist, "domain": from_domain}
    return readers[json_form(parsed) if form == "json" else form](parsed)


def _annotate(content: dict[str, Any], comments: Mapping[str, Sequence[str]], *, mark: bool) -> str:
    """Format a schema as YAML with comments above its columns, and if asked with the custodian's mark on top."""
    from understudy.schema.custodian import MARK

    lines = [f"# {MARK}", "fields:"] if mark else ["fields:"]
    for field in content["fields"]:
        lines += [f"# {comment}" for comment in comments.get(field["name"], ())]
        lines.append(format_page([field]).rstrip())
    rest = {key: value for key, value in content.items() if key != "fields"}
    ours = content["understudy"]
    rest["understudy"] = {key: value for key, value in ours.items() if key != "custodian_only"}
    rest["understudy"] |= {"custodian_only": MARK} if mark else {}
    return "\n".join(lines) + "\n" + format_page(rest) + ("" if "privacy_unit" in ours else _UNSAID)


def _annotate_package(content: dict[str, Any], comments: Mapping[str, Sequence[str]], *, mark: bool) -> str:
    """Format a data package as YAML with comments above its columns, and if asked with the custodian's mark on top."""
    from understudy.schema.custodian import MARK

    lines, table = [f"# {MARK}"] if mark else [], ""
    for line in format_page(content).splitlines():
        if line.startswith("- name: "):
            table = line.removeprefix("- name: ")
        elif (start := line.find("- name: ")) > 0:
            lines += [
                f"{' ' * start}# {comment}"
                for comment in comments.get(f"{table}.{line[start + 8 :].strip(_QUOTES)}", ())
            ]
        lines.append(line)
    return "\n".join(lines) + "\n"


# -- The text of `understudy schema check`.


_WIDEST = 40
_DAY = 86400


def format_fit(fit: CheckResult) -> str:
    """Format the fit as a table of the columns and a list of what to look at, marked custodian-only."""
    from understudy.schema.custodian import MARK

    lines = [MARK, f"{fit.rows} rows; {fit.dropped} are not used (`on_unknown: drop_row`)."]
    if fit.units is not None:
        lines.append(f"{fit.units[0]} privacy units; the limit per unit leaves out {fit.units[1]} rows.")
    width = max([6, *(len(_shorten(column.name)) for column in fit.columns)])
    lines.append(
        f"{'column':<{width}}  {'kind':<11} {'codes':>6} {'unknown':>8} {'clipped':>8} {'null':>8} {'missing':>8}"
    )
    for column in fit.columns:
        missing = sum(column.missing.values())
        numbers = f"{column.codes:>6} {column.unknown:>8} {column.clipped:>8} {column.null:>8} {missing:>8}"
        lines.append(f"{_shorten(column.name):<{width}}  {column.kind:<11} {numbers}")
    lines += [line for column in fit.columns for line in _list_losses(column)]
    lines += [f"Rule {rule}: broken by {count} rows." for rule, count in fit.broken.items()]
    if fit.drafts:
        lines.append(f"Not reviewed yet: {', '.join(fit.drafts)}.")
    return "\n".join(lines)


def _shorten(name: str) -> str:
    """Shorten a name to its cell of the table: a column of a survey may be named by a whole question."""
    line = " ".join(name.split())
    return line if len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"


def _list_losses(column: ColumnCheck) -> list[str]:
    """List what the binning alone changes by more than two percent."""
    return [
        f"{column.name}: binning alone changes the {loss.statistic} from "
        f"{_format_value(column.kind, loss, loss.before)} to {_format_value(column.kind, loss, loss.after)}."
        for loss in column.losses
        if loss.relative > 0.02
    ]


def _format_value(kind: str, loss: Loss, value: float) -> str:
    """Format a value: dates as dates, durations with their unit."""
    if loss.span is not None:
        import numpy as np

        return str(np.datetime64(round(value if kind == "date" else value / _DAY), "D"))
    if kind in ("date", "datetime", "duration"):
        return f"{value:.6g} seconds" if kind == "duration" else f"{value if kind == 'date' else value / _DAY:.6g} days"
    return f"{value:.6g}"
