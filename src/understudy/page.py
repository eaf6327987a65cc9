"""Pages and small files of text: written completely or not at all, for their owner alone where they show rows."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from understudy.errors import OutputError

OWNER = 0o600
"""The mode of a file that its owner alone may read and write."""


def named(path: Path) -> Path:
    """The path of a file.

    Raises:
        OutputError: for what names none, such as "." and "/".
    """
    if not path.name:
        raise OutputError(f"{path} is a folder; give the name of a file")
    return path


def reason(error: OSError) -> str:
    """Why the system refused, in its own words and nobody else's: a library's may quote its insides.

    >>> import errno
    >>> reason(OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device"))
    'No space left on device'
    """
    return os.strerror(error.errno) if error.errno else "input/output error"


def write_page(page: str, path: Path, *, private: bool = False) -> None:
    """Write a page completely or not at all.

    **Privacy.** A `private` page, made from the rows without noise, can be read by its owner alone, from its first byte
    on and also where it replaces one that everybody could read.

    Raises:
        OutputError: when it cannot be written.
    """
    draft = named(path).with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.unlink(missing_ok=True)  # of a killed process that had our number: its mode is not ours
        draft.touch(mode=OWNER if private else 0o666, exist_ok=False)
        draft.write_text(page, encoding="utf-8", newline="\n")
        draft.replace(path)
    except OSError as error:
        words = f"{path} could not be written ({reason(error)}); check that the folder exists and is yours to write to"
        raise OutputError(words) from None
    finally:
        with suppress(OSError):
            draft.unlink()
