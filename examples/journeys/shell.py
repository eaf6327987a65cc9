"""Run `understudy` as a person at a terminal does: shared by the journeys."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def understudy(folder: Path, command: str, *more: str, answers: str = "", exit_code: int = 0, **variables: str) -> str:
    """Run a command in a folder, show it with what it says, and return what it says.

    Args:
        folder: where it runs.
        command: the words after `understudy`, separated by blanks.
        more: further arguments, which may contain blanks.
        answers: what is typed, a line for each question.
        exit_code: how it must end.
        variables: of the environment, in addition to the present ones.
    """
    arguments = [*command.split(), *more]
    program = [shutil.which("understudy")] if shutil.which("understudy") else [sys.executable, "-m", "understudy"]
    done = subprocess.run(
        [*program, *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        input=answers,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(f"$ understudy {' '.join(arguments)}\n{done.stdout}", flush=True)
    if done.returncode != exit_code:
        raise SystemExit(f"`understudy {arguments[0]}` ended with {done.returncode} instead of {exit_code}")
    return done.stdout
