"""The audit as one HTML page: verdicts, trade-off plots with the claim's ceiling, and every statistic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from understudy import svg
from understudy.metric.roc import gaussian_power, proportion_high, proportion_low
from understudy.report.page import load_template
from understudy.testing.audit import Audit
from understudy.testing.pairs import LOOK_EVERY

_BAND = 41


def audit_page(audits: Sequence[Audit]) -> str:
    """Render audits as one HTML page that needs nothing else."""
    from understudy import __version__

    template = load_template("audit.html.j2", "understudy.testing")
    content = [{"audit": one, "chart": _draw(one), "corner": _draw(one, corner=True)} for one in audits]
    return f"{template.render(audits=content, version=__version__, every=LOOK_EVERY)}\n"


def _draw(audit: Audit, *, corner: bool = False) -> Any:
    """Return the trade-off: all of it, or the corner of few false positives."""
    most = 0.01 if corner else 1.0
    grid = np.linspace(0.0, most, 201)
    ceiling = audit.claim.power(grid)
    false, true = audit.curve
    shown = np.unique(np.searchsorted(false, np.linspace(0.0, most, 301), side="right") - 1)
    x, y = np.append(false[shown], most), np.append(true[shown], np.interp(most, false, true))
    bounds = _bounds(audit, most)
    curves = [
        svg.Curve("chance", grid.tolist(), grid.tolist()),
        svg.Curve("claim", grid.tolist(), ceiling.tolist()),
        svg.Curve("theory", grid.tolist(), gaussian_power(audit.theory_mu, grid).tolist()),
        *bounds,
        svg.Curve("seen", x.tolist(), y.tolist()),
    ]
    title = f"Trade-off of {audit.setup.mechanism}" + (", few false positives" if corner else "")
    highest = max(0.02, ceiling.max(), y.max(), *(max(one.y, default=0.0) for one in bounds))
    top = min(1.0, float(np.ceil(25 * highest)) / 25) if corner else 1.0  # four lines at whole percentages
    return svg.tradeoff(title, curves, most=(most, top))


def _bounds(audit: Audit, most: float) -> list[svg.Curve]:
    """Clopper-Pearson bounds of the points of the curve, both coordinates at once with 95 % confidence."""
    false, true = audit.curve
    runs = audit.pairs
    places = np.unique(np.searchsorted(false, np.linspace(0.0, min(1.0, 1.5 * most), _BAND), side="right") - 1)
    alarms, hits = np.rint(false[places] * runs).astype(int), np.rint(true[places] * runs).astype(int)
    low = [
        (proportion_high(int(a), runs, 0.0125), proportion_low(int(h), runs, 0.0125))
        for a, h in zip(alarms, hits, strict=True)
    ]
    high = [
        (proportion_low(int(a), runs, 0.0125), proportion_high(int(h), runs, 0.0125))
        for a, h in zip(alarms, hits, strict=True)
    ]
    return [svg.Curve("band", [x for x, _ in side], [y for _, y in side]) for side in (low, high)]
