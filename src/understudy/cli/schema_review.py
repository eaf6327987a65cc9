"""``understudy schema review``: a person's yes to each column of a draft, and to who is protected."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli.console import Json, Quiet, tell
from understudy.cli.guard import INTERRUPTED
from understudy.errors import OutputError, SettingError


def review(
    schema: Annotated[Path, typer.Argument(help="The draft to review.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it; default: in place.")] = None,
    accept: Annotated[
        list[str] | None, typer.Option(help="Accept this column as it stands, without a question (repeatable).")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="Who is protected, without a question: `row`, or COLUMN:K (at most K rows).")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Accept each drafted column, drop it, or leave it for later.

    A release refuses a column until it is reviewed. The same can be done in an editor: correct what a column says and
    change `status: draft` to `status: reviewed`. What was answered before an interruption is kept.
    """
    from understudy.schema import Schema
    from understudy.schema.custodian import find_marked, mark_path, unmark_path
    from understudy.schema.file import load, states_unit

    path = find_marked(schema)
    done = output or unmark_path(path)
    refuse_present(*({done, mark_path(output or path)} - {path}))
    content = load(path, unit="row").to_dict()
    names = [field["name"] for field in content["fields"]]
    for name in accept or []:
        if name not in names:
            raise SettingError(f"--accept {name}: no such column; the columns are {', '.join(names)}")
    content = with_unit(content, _protected(content, names, unit, stated=states_unit(path), asking=not accept))
    content["fields"], stopped = _answered(content["fields"], accept)
    result = Schema.from_dict(content)
    drafts = [column.name for column in result.columns if column.status == "draft"]
    target = mark_path(output or path) if drafts else done
    result.save(target, overwrite=True)
    left = f"Still to review: {', '.join(drafts)}." if drafts else "Every column is reviewed."
    left = f"\nInterrupted; what you answered is kept. {left}" if stopped else left
    tell(f"{left}\n{target}", {"schema": str(target), "drafts": drafts}, quiet=quiet, as_json=as_json)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def refuse_present(*paths: Path) -> None:
    """Refuse to write a schema, or what is made of one, over a file that is there.

    Raises:
        OutputError: naming the file.
    """
    for path in paths:
        if path.exists():
            raise OutputError(f"{path} is there already, perhaps with your corrections; choose another output")


def unit_of(text: str, names: list[str] | None = None) -> Any:
    """Who is protected, as a schema file writes it.

    Args:
        text: `row`, or COLUMN:K.
        names: the columns that it may name; None where others may be in the table.

    Raises:
        SettingError: when it is neither, or names no such column.
    """
    if text == "row":
        return "row"
    column, _, count = text.rpartition(":")
    if not column or not (count.isascii() and count.isdigit()) or int(count) < 1:
        raise SettingError(f"--unit {text}: write `row`, or COLUMN:K as in patient_id:3")
    if names is not None and column not in names:
        raise SettingError(f"--unit {text}: no such column; the columns are {', '.join(names)}")
    return {"column": column, "max_rows": int(count)}


def with_unit(content: dict[str, Any], unit: Any) -> dict[str, Any]:
    """A draft whose privacy unit is this; a column that it names tells people apart, and is not synthesised."""
    key = None if unit == "row" else unit["column"]
    fresh = {"name": key, "understudy": {"kind": "id", "status": "draft", "origin": "reviewed"}}
    told = [fresh if field["name"] == key and not _keeps_out(field) else field for field in content["fields"]]
    return content | {"fields": told, "understudy": content["understudy"] | {"privacy_unit": unit}}


def _keeps_out(field: dict[str, Any]) -> bool:
    """Whether a field is a key already, or a person decided to leave it out."""
    kind = field.get("understudy", {}).get("kind")
    return bool(kind == "id" or (kind == "drop" and not _is_draft(field)))


def as_page(content: Any, ending: str = ".yaml") -> str:
    """A schema's content, or part of it, as its file writes it; YAML is loaded now and not to show help."""
    from understudy.notation import as_page as written

    return written(content, ending)


def _protected(content: dict[str, Any], names: list[str], given: str | None, *, stated: bool, asking: bool) -> Any:
    """The privacy unit: the one given, else the answer to a question; never one that nobody stated."""
    if given is not None:
        return unit_of(given, names)
    unit = content["understudy"]["privacy_unit"]
    if not asking and not stated:
        raise SettingError(
            "the draft does not say who is protected: add --unit row if nobody has two rows, else --unit COLUMN:K, as "
            "in patient_id:3"
        )
    if not asking or (stated and not any(_is_draft(field) for field in content["fields"])):
        return unit
    shown = None if not stated else "row" if unit == "row" else f"{unit['column']}:{unit['max_rows']}"

    def understood(answer: str) -> Any:
        if answer != "row" and answer.rpartition(":")[0] not in names:
            raise typer.BadParameter(f"write `row`, or COLUMN:K with one of the columns {', '.join(names)}")
        try:
            return unit_of(answer)
        except SettingError:
            raise typer.BadParameter("write `row`, or COLUMN:K as in patient_id:3") from None

    question = "Who is protected? `row`, or COLUMN:K (at most K rows of each)"
    return typer.prompt(question, default=shown, value_proc=understood, err=True)


def _answered(fields: list[dict[str, Any]], accept: list[str] | None) -> tuple[list[dict[str, Any]], bool]:
    """The fields after the person's answers, and whether they stopped before the last."""
    done: list[dict[str, Any]] = []
    try:
        for field in fields:
            done.append(_reviewed(field, accept))
    except typer.Abort:
        return done + fields[len(done) :], True
    return done, False


def _is_draft(field: dict[str, Any]) -> bool:
    return bool(field.get("understudy", {}).get("status") == "draft")


def _reviewed(field: dict[str, Any], accept: list[str] | None) -> dict[str, Any]:
    """The field after the person's answer."""
    if not _is_draft(field):
        return field
    ours = field["understudy"]
    if accept:
        answer = "a" if field["name"] in accept else "l"
    else:
        facts = {key: value for key, value in field.items() if key != "understudy"}
        facts |= {key: value for key, value in ours.items() if key not in ("status", "origin")}
        typer.echo(as_page([facts]).rstrip(), err=True)  # the standard output is for the answer
        question = "[a]ccept, accept as [p]ublic knowledge, [d]rop, [l]ater"
        answer = typer.prompt(question, default="l", value_proc=_letter, err=True)
    if answer == "d":
        return {"name": field["name"], "type": "any", "understudy": {"kind": "drop", "origin": "reviewed"}}
    if answer not in ("a", "p"):
        return field
    gone = ("status", "origin") if answer == "p" else ("status",)
    return field | {"understudy": {key: value for key, value in ours.items() if key not in gone}}


def _letter(answer: str) -> str:
    if (letter := answer.strip().lower()[:1]) not in ("a", "p", "d", "l"):
        raise typer.BadParameter("answer a, p, d or l")
    return letter
