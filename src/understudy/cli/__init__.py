"""The command line: thin faces over the same functions that the Python API has. The commands are in `commands`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer


def group() -> typer.Typer:
    """A group of commands that explains every error in one sentence."""
    import typer

    from understudy.cli.guard import Guarded

    return typer.Typer(
        name="understudy",
        cls=Guarded,
        help="Make differentially private stand-ins for sensitive tables.",
        epilog="Exit codes: 0 done, 2 wrong usage, 3 unusable input or setting, 4 schema, 5 release file, 6 budget, "
        "7 failed after spending (what was paid for is kept), 8 output cannot be written, 70 our fault, "
        "130 interrupted.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def __getattr__(name: str) -> Any:
    """`app`, with all commands, loaded at its first use."""
    if name == "app":
        from understudy.cli.commands import app

        return app
    raise AttributeError(f"module 'understudy.cli' has no attribute {name!r}")


def main() -> None:
    """Run the command line; little is imported before this, so that whoever stops it early sees no traceback."""
    try:
        _main()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted.\n")
        sys.exit(130)


def _main() -> None:
    """`run` starts without the other commands, since it is often called to find all done."""
    if sys.argv[1:2] == ["run"]:
        from understudy.cli.journey import run

        alone = group()
        alone.callback()(_alone)
        alone.command()(run)
        alone()
        return
    from understudy.cli.commands import app

    app()


def _alone() -> None:
    """Make differentially private stand-ins for sensitive tables."""
