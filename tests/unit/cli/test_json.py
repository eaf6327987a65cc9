"""Every command answers scripts: `--json` on all of them, and errors as one object with the same exit codes."""

from __future__ import annotations

import json

import pytest
import typer

from understudy.cli import app


def commands(group, path=()):
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        elif not command.hidden:
            yield (*path, name), command


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_takes_json(path):
    options = {option: parameter for parameter in ALL[path].params for option in parameter.opts}
    assert "--json" in options
    assert options["--json"].is_flag


@pytest.mark.parametrize("words", [["synthesize"], ["sample", "--frobnicate"], ["book", "a", "b"]])
def test_wrong_usage_is_reported_in_json(words, call):
    code, out, err = call(*words, "--json")
    assert (code, out) == (2, "")
    assert json.loads(err)["error"] == "UsageError"
