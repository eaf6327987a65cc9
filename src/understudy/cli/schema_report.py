"""The words of ``understudy schema check``."""

from __future__ import annotations

import numpy as np

from understudy.schema.check import CheckResult, ColumnCheck, Loss
from understudy.schema.custodian import MARK

_WIDEST = 40
_DAY = 86400


def words(fit: CheckResult) -> str:
    """A table of the columns and what to look at, marked custodian-only."""
    lines = [MARK, f"{fit.rows} rows, of which {fit.dropped} are not used (`on_unknown: drop_row`)."]
    if fit.units is not None:
        lines.append(f"{fit.units[0]} privacy units; the limit per unit leaves out {fit.units[1]} rows.")
    width = max([6, *(len(_short(column.name)) for column in fit.columns)])
    lines.append(
        f"{'column':<{width}}  {'kind':<11} {'codes':>6} {'unknown':>8} {'clipped':>8} {'null':>8} {'missing':>8}"
    )
    for column in fit.columns:
        missing = sum(column.missing.values())
        numbers = f"{column.codes:>6} {column.unknown:>8} {column.clipped:>8} {column.null:>8} {missing:>8}"
        lines.append(f"{_short(column.name):<{width}}  {column.kind:<11} {numbers}")
    lines += [line for column in fit.columns for line in _losses(column)]
    lines += [f"Rule {rule}: broken by {count} rows." for rule, count in fit.broken.items()]
    if fit.drafts:
        lines.append(f"Not reviewed yet: {', '.join(fit.drafts)}.")
    return "\n".join(lines)


def _short(name: str) -> str:
    """A name that keeps its line of the table: the header of a survey may be a whole question."""
    line = " ".join(name.split())
    return line if len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"


def _losses(column: ColumnCheck) -> list[str]:
    """What the binning alone changes by more than two percent."""
    return [
        f"{column.name}: the bins alone move the {loss.statistic} from {_shown(column.kind, loss, loss.before)} to "
        f"{_shown(column.kind, loss, loss.after)}."
        for loss in column.losses
        if loss.relative > 0.02
    ]


def _shown(kind: str, loss: Loss, value: float) -> str:
    """A value in words: dates as dates, lengths of time with their unit."""
    if loss.span is not None:
        return str(np.datetime64(round(value if kind == "date" else value / _DAY), "D"))
    if kind in ("date", "datetime", "duration"):
        return f"{value:.6g} seconds" if kind == "duration" else f"{value if kind == 'date' else value / _DAY:.6g} days"
    return f"{value:.6g}"
