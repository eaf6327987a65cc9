"""`plan`: what to expect of a release before a row is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.console import Json, print_result
from understudy.errors import SettingError

if TYPE_CHECKING:
    from understudy.planning import Line, Plan

_HEADER = ("mechanism", "error, one column", "error, pair", "pairs", "smallest group", "in a pair", "memory", "time")


def plan(
    schema: Annotated[Path, typer.Argument(help="What is public about the columns; may still be a draft.")],
    people: Annotated[
        str | None, typer.Option(help="About how many people, e.g. ~20000; not the true count. Default: declared rows.")
    ] = None,
    epsilon: Annotated[str, typer.Option(help="Budgets to compare.")] = "0.5,1,2",
    delta: Annotated[
        float | None, typer.Option(help="Default: a power of ten of at most 1 / (10 people), at most 1e-6; 0 is pure.")
    ] = None,
    mechanism: Annotated[str, typer.Option("--mechanism", "-m", help="Mechanisms to compare.")] = "independent,mst,aim",
    as_json: Json = False,
) -> None:
    """Show what to expect of a release, by budget and mechanism. Reads no data and costs nothing.

    Errors are in people: the mean absolute error of the cells of measured columns and pairs. Facts that the schema
    leaves to discovery are assumed, and the assumptions are printed. Example:

    understudy plan people.schema.yaml --people ~20000 --epsilon 0.5,1,2
    """
    from understudy.planning import plan as make_plan
    from understudy.schema import Schema

    made = make_plan(
        Schema.load(schema),
        people=None if people is None else _parse_people(people),
        epsilons=_parse_numbers(epsilon),
        delta=delta,
        mechanisms=[name.strip() for name in mechanism.split(",") if name.strip()],
    )
    print_result(_format_plan(made), made.to_dict(), as_json=as_json)


def _parse_people(text: str) -> int:
    """`~20000`, `20_000` or `20,000`."""
    digits = text.strip().lstrip("~").replace(",", "").replace("_", "")
    if not digits.isdigit():
        raise SettingError("--people takes a number, for example --people ~20000")
    return int(digits)


def _parse_numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SettingError("--epsilon takes numbers, for example --epsilon 0.5,1,2") from None


def _format_plan(made: Plan) -> str:
    each = "" if made.rows_each == 1 else f", at most {made.rows_each} rows each (errors are in rows)"
    lines = [f"{made.columns} columns, about {made.people} people{each}; delta {made.delta:g}. No data was read."]
    for epsilon, odds in made.odds.items():
        name, reason = made.recommended[epsilon]
        table = [_HEADER, *(_format_line(line) for line in made.lines if line.epsilon == epsilon)]
        widths = [max(len(row[i]) for row in table) for i in range(len(_HEADER))]
        lines += ["", f"epsilon {epsilon:g}", f"  {odds.text()}"]
        lines += ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in table]
        lines.append(f"  recommended: {name} ({reason})")
    lines += ["", *_NOTES]
    if made.assumed:
        lines.append(f"Assumed: {'; '.join(made.assumed)}.")
    if any(line.expected is None for line in made.lines):
        lines.append("?: not predicted; the mechanism is another package's.")
    return "\n".join(lines)


_NOTES = (
    "Errors are of the cells of measured columns and pairs, by simulation on made-up tables of this shape: mostly",
    "within about 20 %. The error of other pairs depends on the data; no plan can predict it.",
    "The smallest group is three standard deviations of the noise: a smaller one cannot be distinguished from none.",
)


def _format_line(line: Line) -> tuple[str, ...]:
    found = line.expected
    memory = "?" if line.memory_bytes is None else f"{line.memory_bytes / 2**20:.0f} MiB"
    time = _format_duration(line.seconds)
    if found is None:
        return (line.mechanism, *"?????", memory, time)
    pair, pairs = ("-", "-") if found.two_way is None else (f"{found.two_way:.3g}", str(found.pairs))
    groups = _format_whole(found.group), _format_whole(found.pair_group)
    return (line.mechanism, f"{found.one_way:.3g}", pair, pairs, *groups, memory, time)


def _format_whole(number: float | None) -> str:
    """To two figures."""
    return "-" if number is None else f"{float(f'{number:.2g}'):.0f}"


def _format_duration(seconds: float) -> str:
    for limit, words in ((10, "seconds"), (90, "a minute"), (1800, "minutes"), (7200, "an hour")):
        if seconds < limit:
            return words
    return "hours"
