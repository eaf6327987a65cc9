"""The command line: thin faces over the same functions that the Python API has."""

from __future__ import annotations

import typer

from understudy.cli import answer, demo, evaluate, reference, release, report, run, schema
from understudy.cli.guard import Guarded

app = typer.Typer(
    name="understudy",
    cls=Guarded,
    help="Make differentially private stand-ins for sensitive tables.",
    epilog="Exit codes: 0 done, 2 wrong usage, 3 unusable input or setting, 4 schema, 5 release file, 6 budget, "
    "7 failed after spending (what was paid for is kept), 8 output cannot be written, 70 our fault, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run.synthesize)
app.command()(release.sample)
app.command()(release.inspect)
app.command()(answer.answer)
app.command()(answer.bounds)
app.command()(run.resume)
app.command()(run.mechanisms)
app.command()(run.book)
app.command()(evaluate.evaluate)
app.command()(report.report)
app.command()(demo.demo)
app.command(hidden=True)(reference.reference)
app.add_typer(schema.app, name="schema")


def main() -> None:
    """Run the command line."""
    app()
