"""Every command, in the order in which the help lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from understudy.cli import (
    answer,
    book,
    bundle,
    demo,
    evaluate,
    group,
    journey,
    plan,
    reference,
    release,
    report,
    run,
    schema,
)

app = group()


def _version(wanted: bool) -> None:
    if wanted:
        from understudy import __version__

        typer.echo(f"understudy {__version__}")
        raise typer.Exit


@app.callback()
def _every(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Make differentially private stand-ins for sensitive tables."""


app.command()(plan.plan)
app.command()(run.synthesize)
app.command()(journey.run)
app.command()(journey.rehearse)
app.command()(release.sample)
app.command()(release.inspect)
app.command()(answer.answer)
app.command()(answer.bounds)
app.command()(run.resume)
app.command()(run.mechanisms)
app.command()(book.book)
app.command()(evaluate.evaluate)
app.command()(report.report)
app.command()(bundle.bundle)
app.command()(demo.demo)
app.command(hidden=True)(reference.reference)
app.add_typer(schema.app, name="schema")
