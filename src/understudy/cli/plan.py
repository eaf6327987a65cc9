"""`plan`: predict the errors of a release before a row is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli.console import Json, align_columns, parse_numbers, print_result
from understudy.errors import SettingError

if TYPE_CHECKING:
    from understudy.planning import Accuracy, Line, Plan
    from understudy.schema.linked import LinkedSchema

_HEADER = {
    "mechanism": "mechanism",
    "one_way": "error, one column",
    "two_way": "error, pair",
    "pairs": "pairs",
    "group": "smallest group",
    "pair_group": "in a pair",
    "numbers": "numbers",
    "memory": "memory up to",
    "time": "time",
}


def plan(
    schema: Annotated[Path, typer.Argument(help="The schema; may still be a draft.")],
    people: Annotated[
        str | None, typer.Option(help="About how many people, e.g. ~20000; not the true count. Default: declared rows.")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(metavar="LIST", help="Budgets to compare. Default: 0.5,1,2, or what --accuracy needs.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Default: a power of ten of at most 1 / (10 people), at most 1e-6; 0 is pure.")
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism",
            "-m",
            metavar="LIST",
            help="Mechanisms to compare. Default: independent,mst,adaptive,privsyn; for linked tables "
            "independent,mst,adaptive.",
        ),
    ] = None,
    accuracy: Annotated[
        str | None,
        typer.Option(
            metavar="PEOPLE:ERROR", help="Required accuracy, e.g. 200:10%: shows the epsilon each mechanism needs."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict the errors of a release, by budget and mechanism. Reads no data and costs nothing.

    Runs the mechanisms themselves on made-up rows of this schema. Errors are in people: the mean absolute error of the
    cells of measured columns and pairs. The errors of means and percentiles of numbers are in standard deviations of
    the column, as in the metric `numbers` of `evaluate`. With --accuracy 200:10% the plan shows the epsilon with which
    groups of at least 200 people are right within 10 %, 95 times in 100. Facts that the schema leaves to discovery are
    assumed, and the assumptions are printed. Example:

    understudy plan people.schema.yaml --people ~20000 --epsilon 0.5,1,2
    """
    from understudy.planning import Accuracy
    from understudy.planning import plan as make_plan
    from understudy.planning.plan import MECHANISMS
    from understudy.schema.linked import LinkedSchema, load_any

    loaded = load_any(schema)
    about = None if people is None else _parse_people(people)
    epsilons = None if epsilon is None else parse_numbers("--epsilon", epsilon)
    names = None if mechanism is None else [name.strip() for name in mechanism.split(",") if name.strip()]
    if isinstance(loaded, LinkedSchema):
        if accuracy is not None:
            raise SettingError("--accuracy: not possible with linked tables; compare budgets with --epsilon")
        _plan_linked(loaded, about, epsilons, delta, names, as_json=as_json)
        return
    made = make_plan(
        loaded,
        people=about,
        epsilons=epsilons,
        delta=delta,
        mechanisms=MECHANISMS if names is None else names,
        accuracy=None if accuracy is None else Accuracy.parse(accuracy),
    )
    print_result(_format_plan(made), made.to_dict(), as_json=as_json)


def _plan_linked(
    schema: LinkedSchema,
    people: int | None,
    epsilons: list[float] | None,
    delta: float | None,
    names: list[str] | None,
    *,
    as_json: bool,
) -> None:
    from understudy.planning.linked import LINKED_MECHANISMS, plan_linked

    mechanisms = LINKED_MECHANISMS if names is None else names
    made = plan_linked(schema, people=people, epsilons=epsilons, delta=delta, mechanisms=mechanisms)
    title = f"{len(schema.tables)} tables, about {made.people} {schema.root}; delta {made.delta:g}. No data was read."
    lines = [title]
    for epsilon, odds in made.odds.items():
        found = [(name, line) for name, line in made.lines if line.epsilon == epsilon]
        shares = [("table", "share"), *((name, f"{100 * made.shares[name]:.0f} %") for name, _ in found)]
        table = [(*left, *right) for left, right in zip(shares, _table([line for _, line in found]), strict=True)]
        lines += ["", f"epsilon {epsilon:g}", f"  {odds.text()}", *_align(table)]
    lines += ["", f"Errors are in {schema.root}: each has the same weight, however many rows it has.", *_NOTES]
    if made.assumed:
        lines.append(f"Assumed: {'; '.join(made.assumed)}.")
    print_result("\n".join(lines), made.to_dict(), as_json=as_json)


def _parse_people(text: str) -> int:
    """Parse a number of people such as `~20000`, `20_000` or `20,000`."""
    digits = text.strip().lstrip("~").replace(",", "").replace("_", "")
    if not digits.isdecimal():
        raise SettingError("--people takes a number, for example --people ~20000")
    return int(digits)


def _format_plan(made: Plan) -> str:
    each = "" if made.rows_each == 1 else f", at most {made.rows_each} rows each (errors are in rows)"
    lines = [f"{made.columns} columns, about {made.people} people{each}; delta {made.delta:g}. No data was read."]
    if made.accuracy is not None:
        lines += ["", *_format_needed(made.accuracy, made.needed)]
    for epsilon, odds in made.odds.items():
        name, reason = made.recommended[epsilon]
        found = {line.mechanism: line for line in made.lines if line.epsilon == epsilon}
        lines += ["", f"epsilon {epsilon:g}", f"  {odds.text()}", *_align(_table(list(found.values())))]
        lines.append(f"  recommended: {name} ({reason})")
        lines += _numbers(found[name])
    lines += ["", *_NOTES]
    if any(line.expected.numbers is not None for line in made.lines):
        lines.append(_NUMBERS)
    if made.assumed:
        lines.append(f"Assumed: {'; '.join(made.assumed)}.")
    if refused := [line.mechanism for line in made.lines if line.memory_bytes is None]:
        lines.append(f"Refused: columns with this many codes are too large for {', '.join(dict.fromkeys(refused))}.")
    return "\n".join(lines)


def _format_needed(accuracy: Accuracy, needed: dict[str, tuple[float | None, float | None]]) -> list[str]:
    """Return the epsilon that each mechanism needs for an accuracy."""
    rows = [
        (name, *("none up to 20" if epsilon is None else f"{epsilon:g}" for epsilon in both))
        for name, both in needed.items()
    ]
    title = f"epsilon for groups of {accuracy.people} people within {100 * accuracy.within:g} %, 95 times in 100"
    return [title, *_align([("mechanism", "groups of one column", "of a measured pair"), *rows])]


def _align(table: list[tuple[str, ...]]) -> list[str]:
    return [f"  {line}" for line in align_columns(table)]


_NOTES = (
    "Errors are mean absolute errors of the cells of measured columns and pairs, from runs on made-up tables of this",
    "shape; most are right within a quarter. A range is shown where such tables differ too much for one number.",
    "The errors of pairs that are not measured depend on your table.",
    "Pairs: how many are measured. Mechanisms that choose them by the rows measure few, each with less noise, where",
    "columns hardly depend on each other.",
    "The smallest group is three standard deviations of the noise: smaller groups look like empty ones.",
)


_NUMBERS = (
    "Numbers: the mean error of means, quartiles and 95th percentiles, overall and within groups, in standard "
    "deviations of the column."
)


def _table(lines: list[Line]) -> list[tuple[str, ...]]:
    """Return the lines of one budget; without the column for numbers if the table has none."""
    keys = [key for key in _HEADER if key != "numbers" or any(line.expected.numbers is not None for line in lines)]
    cells = [{"mechanism": line.mechanism} | line.describe() for line in lines]
    return [tuple(_HEADER[key] for key in keys), *(tuple(words[key] for key in keys) for words in cells)]


def _numbers(line: Line) -> list[str]:
    """Return, by numeric column, the error of the mean and the largest error of a percentile."""
    shown = []
    for column, errors in line.expected.statistics.items():
        percentiles = [error for statistic, error in errors.items() if statistic != "mean"]
        shown.append(f"{column} {errors['mean']:.1g}" + (f" ({max(percentiles):.1g})" if percentiles else ""))
    return [f"  its error of the mean (worst percentile) in standard deviations: {', '.join(shown)}"] if shown else []
