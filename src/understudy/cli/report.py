"""`report`: one HTML file about a release; with the real rows, for the custodian only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from understudy.cli.console import Json, Quiet, check_new_file, progress_shown, tell
from understudy.cli.evaluate import WARNING, parsed_settings
from understudy.errors import SettingError
from understudy.page import write_page


def report(
    release: Annotated[Path, typer.Argument(help="A release file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .html file to make.")] = Path("report.html"),
    real: Annotated[
        Path | None, typer.Option("--real", help="The real table, to compare with: makes a *.custodian-only.html.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="A numeric column to weight totals and shares by.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="METRIC.NAME=VALUE", help="A metric's setting; repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For everything that is drawn in a comparison.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it is there.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a report about a release, as one HTML file.

    It works offline, on paper and on a phone. Without --real it holds public information only. With --real it is for
    the custodian only.
    """
    from understudy.release import Release
    from understudy.report import custodian_report, public_report
    from understudy.schema.custodian import mark_path
    from understudy.source import read_table

    if real is None and (weight is not None or setting):
        raise SettingError("--weight and --set compare with the real table; add --real TABLE")
    path = mark_path(output) if real is not None else _public_path(output)
    _check(path, force=force)
    loaded = Release.load(release)
    with progress_shown(quiet=quiet or as_json) as progress:
        if real is None:
            page = public_report(loaded)
        else:
            table = read_table(real, loaded.schema)
            given = parsed_settings(setting or [])
            page = custodian_report(loaded, table, weight=weight, settings=given, seed=seed, progress=progress)
    write_page(page, path, private=real is not None)
    words = f"Report: {path}" + ("" if real is None else f"\n{WARNING}")
    tell(words, {"report": str(path), "custodian_only": real is not None}, quiet=quiet, as_json=as_json)


def _public_path(path: Path) -> Path:
    from understudy.schema.custodian import mark_path

    if mark_path(path) == path:
        raise SettingError("--output: *.custodian-only.html is for reports with --real; choose another name")
    return path


def _check(path: Path, *, force: bool) -> None:
    if path.suffix != ".html":
        raise SettingError("--output: a report is an .html file; give it that ending")
    check_new_file(path, force=force)
