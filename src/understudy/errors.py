"""Every exception that callers get from us on purpose, and what the command line returns for it.

```
UnderstudyError               1   something we can explain went wrong
├── InputError                3   the table, a file or a setting cannot be used as given
│   ├── SchemaError           4   the schema contradicts itself, or the table's structure
│   ├── SettingError          3   an option or argument is out of range
│   └── ReleaseError          5   a release file is damaged, altered, or of a newer format
├── BudgetExceeded            6   the request would spend more than the budget has left
├── Paid                      7   it failed after budget was spent; what was paid for is kept
├── OutputError               8   an output cannot be written (checked before anything is spent)
└── Unforeseen               70   our fault: told by its type and place in the code, never in its own words
```

**Privacy.** A message may quote what is public: names of columns, files and options, declared values, budgets. It never
quotes a cell of the table, an exact count, or another library's message (readers quote the offending value), and is
raised ``from None`` wherever such a message is the cause.
"""

from __future__ import annotations


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


class Paid(UnderstudyError):
    """A run failed after budget was spent. The charge stands; the message says where the measurements are kept."""

    exit_code = 7


class OutputError(UnderstudyError):
    """An output cannot be written. Checked before anything is spent."""

    exit_code = 8


class Unforeseen(UnderstudyError):
    """Something went wrong that we did not foresee. Its own words may quote a cell, so they are never shown."""

    exit_code = 70
