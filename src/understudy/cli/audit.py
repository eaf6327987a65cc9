"""`audit`: run mechanisms thousands of times on made-up tables and compare what leaks with what is claimed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli.console import Json, Quiet, check_new_file, print_result, show_progress
from understudy.cli.run import Settings, parse_settings
from understudy.errors import SettingError
from understudy.files import write_text

BROKEN = 10
"""The exit code when a mechanism leaks more than it claims."""


def audit(
    mechanism: Annotated[
        list[str] | None, typer.Argument(help="Mechanisms, also of other packages. Default: all.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The claim, with --delta. Default: 1.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Default: 1e-2, as rare events take many runs to be seen; 0 is pure DP.")
    ] = None,
    rho: Annotated[float | None, typer.Option(help="The claim in zCDP, instead of epsilon.")] = None,
    setting: Settings = None,
    minutes: Annotated[float, typer.Option(help="About how long the runs of all mechanisms together may take.")] = 10.0,
    pairs: Annotated[
        int | None, typer.Option(min=10, help="Number of pairs of runs for each mechanism, instead of --minutes.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes. Default: one for each core.")] = None,
    max_rows: Annotated[int, typer.Option(min=1, help="Most rows of one protected unit.")] = 1,
    rows_public: Annotated[
        bool, typer.Option("--rows-public", help="The number of rows is public: neighbours replace a unit.")
    ] = False,
    tables: Annotated[
        str | None,
        typer.Option(help="Pair of tables: lone, tie, crowd, link or parity. Default: where answers differ most."),
    ] = None,
    one_run: Annotated[
        bool, typer.Option("--one-run", help="A single run with many canaries, for slow mechanisms.")
    ] = False,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bounds.")] = 0.95,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Also write a page with plots, as one .html file.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Test by experiment whether mechanisms keep their claim.

    Reads no data and costs nothing; results may be published. Ctrl-C ends the runs and reports the pairs done. Exit
    code 10: a mechanism leaks more than it claims. Example:

    understudy audit independent mst --epsilon 1 --delta 1e-2 --minutes 10 -o audit.html
    """
    from understudy.mechanism.registry import mechanism_classes

    names = list(dict.fromkeys(mechanism or sorted(mechanism_classes())))
    for name in names:
        if name not in mechanism_classes():
            choices = ", ".join(sorted(mechanism_classes()))
            raise SettingError(f"mechanism {name!r} is unknown; the choices are {choices}")
    if setting and len(names) > 1:
        raise SettingError("--set belongs to one mechanism; name only that one")
    if one_run and (output is not None or pairs is not None or tables or max_rows > 1 or rows_public):
        raise SettingError("--one-run has no plot, no pairs of tables, and units of one row; leave those options out")
    if output is not None:
        if output.suffix != ".html":
            raise SettingError("--output: the page is an .html file; give it that ending")
        check_new_file(output, force=force)
    given = {"epsilon": epsilon, "delta": delta, "rho": rho, "confidence": confidence, **parse_settings(setting or [])}
    if not one_run:
        given |= {"pairs": pairs, "minutes": minutes / len(names), "jobs": jobs or os.cpu_count() or 1}
        given |= {"max_rows": max_rows, "rows_public": rows_public, "tables": tables}
    found, left = _run(names, given, one_run=one_run, silent=quiet or as_json, refuse=bool(mechanism))
    if output is not None and found:
        from understudy.testing.audit import audit_page

        write_text(audit_page(found), output)
    words = [one.text() for one in found]
    words += [f"Not audited: {name} ({why})." for name, why in left.items()]
    words += [f"Page: {output}"] if output is not None and found else []
    data = {"audits": [one.to_dict() for one in found], "not_audited": left}
    print_result("\n\n".join(words), data, quiet=quiet, as_json=as_json)
    if any(one.verdict == "broken" for one in found):
        raise typer.Exit(BROKEN)


def _run(
    names: list[str], given: dict[str, Any], *, one_run: bool, silent: bool, refuse: bool
) -> tuple[list[Any], dict[str, str]]:
    """Audit one mechanism after the other; return the results, and by name why other mechanisms have none.

    An interrupt keeps what is done. Where all mechanisms are audited, one that cannot run as it is is left out.
    """
    if one_run:
        from understudy.testing.one_run import audit_once as measure
    else:
        from understudy.testing.audit import audit as measure  # type: ignore[assignment]
    found: list[Any] = []
    left: dict[str, str] = {}
    with show_progress(quiet=silent) as progress:
        for place, name in enumerate(names):
            try:
                found.append(measure(name, progress=progress, **given))
            except SettingError as error:
                if refuse:
                    raise
                left[name] = str(error)
            except KeyboardInterrupt:
                if not found:
                    raise
                return found, left | dict.fromkeys(names[place:], "interrupted")
            if found and getattr(found[-1], "interrupted", False):
                return found, left | dict.fromkeys(names[place + 1 :], "interrupted")
    return found, left
