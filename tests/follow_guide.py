"""Follow a guide word for word: `python3 tests/follow_guide.py docs/guide/first-release.md`, in a folder to work in.

Its ```sh and ```python blocks run in their order, in one shell, as if a reader had copied them; each command is shown
before what it says, and the first that fails ends it. Blocks marked ```sh install run with `--install` alone: whoever
tests the guides has installed things already. `--under HEADING` follows one section. Needs nothing but Python, for
machines that have no more.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(sh install|sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def section(guide: str, heading: str | None) -> str:
    """The text under a heading of the second level; all of it by default."""
    if heading is None:
        return guide
    return next(part for part in re.split(r"^## ", guide, flags=re.MULTILINE) if part.startswith(f"{heading}\n"))


def script(text: str, *, install: bool) -> str:
    """The blocks as one shell script; those of Python are handed to a `python` each."""
    steps = {"sh": "{}", "sh install": "{}" if install else "", "python": "python - <<'END OF BLOCK'\n{}END OF BLOCK\n"}
    return "".join(steps[kind].format(block) for kind, block in BLOCK.findall(text))


def main() -> int:
    """Follow the guide; returns what the shell returned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("guide", type=Path)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--under", metavar="HEADING")
    given = parser.parse_args()
    text = section(given.guide.read_text(encoding="utf-8"), given.under)
    steps = script(text, install=given.install)
    return subprocess.run(["bash", "-veu", "-o", "pipefail", "-c", steps], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
