"""Every command, in the order in which the help lists them.

Commands import what they work with when they run, so that help, wrong usage and small questions are answered at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from understudy.cli import audit, compare, demo, evaluate, ledger, plan, release, run, schema, studio
from understudy.cli.console import CommandGroup

app = typer.Typer(
    name="understudy",
    cls=CommandGroup,
    help="Make differentially private stand-ins for sensitive tables.",
    epilog="Exit codes: 0 done, 2 wrong usage, 3 unusable input or setting, 4 schema, 5 release file, 6 budget, "
    "7 interrupted after spending (resume it), 8 output cannot be written, 9 ledger, 10 an audit found a mechanism "
    "broken, 70 internal error, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from understudy import __version__

        typer.echo(f"understudy {__version__}")
        raise typer.Exit


@app.callback()
def _common_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make differentially private stand-ins for sensitive tables."""


app.command()(plan.plan)
app.command()(run.synthesize)
app.command()(run.run)
app.command()(run.rehearse)
app.command()(release.sample)
app.command()(release.inspect)
app.command()(release.answer)
app.command()(release.bounds)
app.command()(release.infer)
app.command()(run.resume)
app.command()(run.runs)
app.command()(run.mechanisms)
app.command()(evaluate.evaluate)
app.command()(compare.compare)
app.command()(evaluate.attack)
app.command()(evaluate.report)
app.command()(release.bundle)
app.command()(studio.studio)
app.command()(audit.audit)
app.command()(demo.demo)
app.add_typer(schema.app, name="schema")
app.add_typer(ledger.app, name="ledger")


# -- `reference`: one page of all commands and options, written from the help itself.


@app.command(hidden=True)
def reference(ctx: typer.Context) -> None:
    """Print the reference page of the command line."""
    root: Any = ctx.find_root()
    sys.stdout.write("\n".join(_format_reference(root.command, root)).rstrip() + "\n")


def _format_reference(command: Any, ctx: Any) -> Iterator[str]:
    yield "# The command line"
    yield ""
    yield "Written by `make docs` from the commands' own help."
    yield from _format_section(command, type(ctx)(command, info_name="understudy", **_WIDTH))


_WIDTH = {"terminal_width": 100, "max_content_width": 100, "help_option_names": ["-h", "--help"]}


def _format_section(command: Any, ctx: Any) -> Iterator[str]:
    yield from ("", f"## `{ctx.command_path}`", "", "```", command.get_help(ctx).strip(), "```")
    for child in getattr(command, "commands", {}).values():
        if not child.hidden:
            yield from _format_section(child, type(ctx)(child, parent=ctx, info_name=child.name))
