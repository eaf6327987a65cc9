"""What end-to-end tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def run_commands(shell: Callable[..., int]) -> Callable[..., None]:
    """Synthesize, inspect, sample and look into the ledger; the table itself is removed before outputs are compared.

    Every command prints its exit code. `more` has further commands about the release: a name and options.
    """

    def run(text: str, schema: str, folder: Path, *options: object, more: tuple[tuple[object, ...], ...] = ()) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tempfile.tempdir", str(folder))
            table, declared, release = folder / "t.csv", folder / "s.yaml", folder / "t.release"
            table.write_text(text)
            declared.write_text(schema)
            try:
                for arguments in (
                    ("synthesize", table, "-s", declared, "-o", release, *options),
                    ("inspect", release),
                    ("sample", release, "--seed", 3, "-n", 20, "-o", folder / "rows.csv"),
                    *((name, release, *rest) for name, *rest in more),
                    ("ledger", "show", "t"),
                ):
                    print("exit", shell(*arguments))
            finally:
                table.unlink()

    return run
