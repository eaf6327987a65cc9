"""Exceptions that the package raises on purpose, with the exit code of the command line, and its warnings.

```
UnderstudyError               1   something we can explain went wrong
├── InputError                3   the table, a file or a setting cannot be used as given
│   ├── SchemaError           4   the schema contradicts itself, or the table's structure
│   ├── SettingError          3   an option or argument is out of range
│   └── ReleaseError          5   a release file is damaged, altered, or of a newer format
├── BudgetExceeded            6   the request would spend more than the budget has left
├── RunInterrupted        7   a run failed after budget was spent; its answers are recorded and it can be resumed
├── OutputError           8   an output cannot be written (checked before anything is spent)
├── LedgerError           9   the ledger cannot be read or written
└── InternalError        70   our fault: reported by its type and place in the code, never by its message
```

**Privacy.** A message may quote what is public: names of columns, files and options, declared values, budgets. It never
quotes a cell of the table, an exact count, or another library's message (readers quote the offending value), and is
raised ``from None`` wherever such a message is the cause.
"""

from __future__ import annotations

import secrets
import traceback
from pathlib import Path


class UnderstudyError(Exception):
    """Base of all deliberate errors; `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(UnderstudyError):
    """The table, a file or a setting cannot be used as given. Nothing was spent."""

    exit_code = 3


class SchemaError(InputError):
    """The schema contradicts itself or the table's structure. Nothing was spent."""

    exit_code = 4


class SettingError(InputError):
    """An option or argument is out of range. Nothing was spent."""


class ReleaseError(InputError):
    """A release file is damaged, altered, or of a newer format."""

    exit_code = 5


class BudgetExceeded(UnderstudyError):
    """The request would spend more than the budget has left; it was refused before touching a row."""

    exit_code = 6


class RunInterrupted(UnderstudyError):
    """A run failed after budget was spent. Its charges stand; its answers are in the ledger, and it can be resumed."""

    exit_code = 7


class OutputError(UnderstudyError):
    """An output cannot be written. Checked before anything is spent."""

    exit_code = 8


class LedgerError(UnderstudyError):
    """The ledger cannot be read or written. Nothing was read, or the run can be resumed when the ledger is back."""

    exit_code = 9


class InternalError(UnderstudyError):
    """Something went wrong that we did not foresee. The cause's own message may quote a cell and is never shown."""

    exit_code = 70


def describe_unexpected(error: BaseException) -> str:
    """Describe an error that nobody foresaw by an id, its type and its place in the code.

    **Privacy.** Its own message may quote a cell, and is left out.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "understudy" in Path(frame.filename).parts
    ]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
    return (
        f"unexpected error (error {secrets.token_hex(4)}: {type(error).__name__} at "
        f"{place}). Please report this line; it contains nothing from your table"
    )


# Warnings: nothing is wrong, but the caller should know. The command line shows them as notes.


class Notice(UserWarning):
    """Base of the package's own warnings."""


class ManyRows(Notice):
    """More synthetic rows than the true table can have: standard errors computed from them are too small."""


class MergedValues(Notice):
    """Two declared values are the same in a frame; a reader that guesses types may have merged them."""


class WeakBudget(Notice):
    """The budget promises almost no privacy: its epsilon or delta is far above what is usually called private."""
