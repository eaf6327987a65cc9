"""What a caller should know though nothing is wrong: Python warnings, which the command line tells as notes."""

from __future__ import annotations


class Notice(UserWarning):
    """Something to know: the base of our own warnings."""


class ManyRows(Notice):
    """More synthetic rows were asked for than the true table can have: standard errors from them are too small."""


class MergedValues(Notice):
    """Declared values that count as one in a frame: a reader that guesses types may not have told them apart."""


class WeakBudget(Notice):
    """A budget promises hardly anything: its epsilon or its delta is far above what anybody would call private."""
