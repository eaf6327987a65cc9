"""`answer` and `bounds`: how far to trust a release; all of it free."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.console import Json, tell

if TYPE_CHECKING:
    from understudy.bounds import Bound

_NOTHING = 2.0
"""The distance of two tables that have nothing in common, as a share of the rows; a bound may lie above."""

Confidence = Annotated[float, typer.Option(help="The probability with which it holds.")]


def answer(
    release: Annotated[Path, typer.Argument(help="A release file.")],
    query: Annotated[str, typer.Argument(help='Conditions that must all hold: "sex=F, age=30..40, city=Bonn|Ulm".')],
    confidence: Confidence = 0.95,
    share: Annotated[bool, typer.Option("--share", help="Answer with a share of the rows instead of a count.")] = False,
    as_json: Json = False,
) -> None:
    """Count the rows that satisfy conditions, with an interval.

    The count is the model's, the interval for the true one. Costs no privacy. A range includes both ends and may be
    open (`age=65..`); an empty condition (`city=`) is an empty cell; double quotes keep signs together
    (`dose="2,5 mg"`). Example:

    understudy answer people.release "sex=F, age=30..40"
    """
    from understudy.release import Release

    found = Release.load(release).answer(query, confidence=confidence, share=share)
    number = "{:.4g}" if share else "{:.0f}"
    lines = [f"{number.format(found.value)} by the model"]
    if found.high is None:
        lines.append("No bound is known for this query.")
    else:
        ends = f"{number.format(found.low)} to {number.format(found.high)}"
        without = "" if found.left_out is None else f" (without {found.left_out})"
        lines.append(f"{ends} in the true table{without}, with confidence {confidence:g} (from {found.source})")
    tell("\n".join(lines), asdict(found), as_json=as_json)


def bounds(
    release: Annotated[Path, typer.Argument(help="A release file.")],
    workload: Annotated[
        str | None,
        typer.Option(help="Which marginals: all-2way, target:COLUMN or a .yaml file; default: the release's own."),
    ] = None,
    confidence: Confidence = 0.95,
    simultaneous: Annotated[bool, typer.Option("--simultaneous", help="For all of them together.")] = False,
    top: Annotated[int | None, typer.Option(min=1, help="Show only so many, the widest bounds first.")] = None,
    as_json: Json = False,
) -> None:
    """Show how far each marginal can be from the true one.

    Costs no privacy. The bound is on the sum of absolute differences over the table's cells, as a share of the rows: 0
    is a perfect table, 2 a table that has nothing to do with the true one. Marginals without a bound are counted;
    `--json` lists them, after the others.
    """
    from understudy.release import Release

    found = Release.load(release).bounds(workload, confidence=confidence, simultaneous=simultaneous)
    found = sorted(found, key=lambda bound: math.inf if bound.share is None else -bound.share)
    known = [bound for bound in found if bound.share is not None]
    lines = [_line(bound) for bound in known[:top]]
    lines.append(f"{len(known)} of {len(found)} marginals have a bound (confidence {confidence:g}).")
    if len(known) < len(found):
        lines.append("About the rest nothing is known; --json lists it.")
    tell("\n".join(lines), {"bounds": [asdict(bound) for bound in found[:top]]}, as_json=as_json)


def _line(bound: Bound) -> str:
    source = "measured" if bound.source == "measured" else "from a selection"
    told = "2 or more, which says nothing" if (bound.share or 0.0) >= _NOTHING else f"{bound.share:.3g}"
    return f"{' x '.join(bound.clique)}: {told} ({source})"
