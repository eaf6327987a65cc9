"""Numeric columns in a few numbers: mean, spread, quantiles, share at spikes; binning's loss apart from privacy's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from understudy.metric.tables import Rows
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.numeric import Numeric

_QUANTILES = {"5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95}
_DAY = 86_400_000_000


@dataclass(frozen=True)
class Line:
    """One statistic of a column, in words.

    Attributes:
        name: which statistic.
        standin: its value in the stand-in.
        real: its value in the real table, else "".
        binned: its value in the real table after binning, else "".
        binning: what binning changed, else "".
        privacy: what noise and model changed on top, else "".
    """

    name: str
    standin: str
    real: str = ""
    binned: str = ""
    binning: str = ""
    privacy: str = ""


def binned_rows(real: Rows, schema: Schema, seed: int = 0) -> Rows:
    """The real rows after coding and decoding: what a stand-in without any noise or model would say."""
    return Rows.of(schema.decode(real.codes, np.random.default_rng(seed)), schema)


def summaries(
    schema: Schema, standin: Rows, real: Rows | None = None, binned: Rows | None = None
) -> list[tuple[AxisColumn, list[Line]]]:
    """The lines of every numeric column."""
    found = []
    for column in schema.coded:
        if isinstance(column, AxisColumn):
            tables = [table for table in (standin, real, binned) if table is not None]
            stats = [_statistics(column, table.units[column.name]) for table in tables]
            names = [name for name in stats[0] if name != "share missing" or any(stat[name] for stat in stats)]
            found.append((column, [_line(column, name, [stat[name] for stat in stats]) for name in names]))
    return found


def _statistics(column: AxisColumn, units: NDArray[np.float64]) -> dict[str, float | None]:
    there = units[~np.isnan(units)]
    found: dict[str, float | None] = dict.fromkeys(("mean", "spread", *_QUANTILES))
    if len(there):
        quantiles = np.quantile(there, list(_QUANTILES.values()), method="inverted_cdf")
        found = {"mean": float(there.mean()), "spread": float(there.std())}
        found |= dict(zip(_QUANTILES, map(float, quantiles), strict=True))
    spikes = column.axis.lower[column.axis.spike] if column.spikes else np.zeros(0)
    if len(spikes):
        found["share at spikes"] = float(np.isin(units, spikes).mean())
    found["share missing"] = float(np.isnan(units).mean())
    return found


def _line(column: AxisColumn, name: str, values: list[float | None]) -> Line:
    texts = [_value(column, name, value) for value in values]
    if len(values) < 3:
        return Line(name, texts[0])
    return Line(
        name,
        texts[0],
        texts[1],
        texts[2],
        _change(column, name, values[1], values[2]),
        _change(column, name, values[2], values[0]),
    )


def _value(column: AxisColumn, name: str, value: float | None) -> str:
    if value is None:
        return "none"
    if name.startswith("share"):
        return f"{100 * value:.1f} %"
    if isinstance(column, Numeric):
        return _figure(value / 10 ** (column.decimals or 0))
    if name == "spread" or column.kind == "duration":
        return f"{_figure(value if column.kind == 'date' else value / _DAY)} days"
    return str(column.from_units(np.asarray([round(value)])).to_pylist()[0])[:16]


def _change(column: AxisColumn, name: str, before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return ""
    gap = after - before
    if name.startswith("share"):
        return f"{100 * gap:+.1f} pp"
    if isinstance(column, Numeric):
        return _figure(gap / 10 ** (column.decimals or 0), sign=True, figures=2)
    return f"{_figure(gap if column.kind == 'date' else gap / _DAY, sign=True, figures=2)} days"


def _figure(value: float, *, sign: bool = False, figures: int = 4) -> str:
    """So many figures, thousands apart.

    >>> _figure(12345.678), _figure(0.012345), _figure(0.0, sign=True), _figure(3.0)
    ('12,346', '0.01235', '0', '3')
    """
    if abs(value) < 1e-12:
        return "0"
    digits = max(0, figures - 1 - int(np.floor(np.log10(abs(value)))))
    text = f"{value:+,.{digits}f}" if sign else f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
