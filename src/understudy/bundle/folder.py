"""The folder of a bundle: written completely or not at all."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from understudy.errors import OutputError, SettingError
from understudy.files import could_not_write, draft_path


@dataclass(frozen=True)
class Bundle:
    """A bundle that was written.

    Attributes:
        folder: its folder.
        files: the files in it, by name.
        rows: how many rows, of all linked tables together.
        seed: with which they were made.
        quoted: by column, values of the CSV that got an apostrophe because a spreadsheet would run them.
        renamed: by file, columns that have another name there.
    """

    folder: Path
    files: tuple[str, ...]
    rows: int
    seed: int
    quoted: Mapping[str, Sequence[str]]
    renamed: Mapping[str, Mapping[str, str]]


def choose_seed(seed: int | None) -> int:
    """Return the given seed, or a random one; the README states it, so that the same rows can be made again."""
    if seed is not None and seed < 0:
        raise SettingError("--seed must be a whole number of at least 0")
    return secrets.randbelow(1 << 32) if seed is None else seed


def _check_folder(folder: Path) -> None:
    """Make sure that a bundle can go there, and that nothing is there yet.

    Raises:
        OutputError: naming the folder and the remedy.
    """
    try:
        if folder.is_dir() and not any(folder.iterdir()):
            return
        if folder.exists() or folder.is_symlink():
            raise OutputError(f"{folder} already exists and is not an empty folder; choose another output")
        if not folder.parent.is_dir():
            raise OutputError(f"the folder {folder.parent} does not exist; create it first")
    except (OSError, ValueError):
        raise OutputError(f"{folder} cannot be written; choose another output") from None


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a draft to fill, which gets the name of the folder at the end of the block.

    Raises:
        OutputError: if the folder is not empty or cannot be written; nothing is left behind then.
    """
    _check_folder(folder)
    draft = draft_path(folder)
    try:
        draft.mkdir()
        yield draft
        if folder.is_dir():
            folder.rmdir()
        draft.replace(folder)
    except OSError as error:
        raise could_not_write(folder, error) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
