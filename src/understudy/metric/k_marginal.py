"""`k_marginal`: the score of SDNist and of the Temporal Map challenge's later sprints."""

from __future__ import annotations

import numpy as np
from pydantic.dataclasses import dataclass as settings_class

from understudy.domain import Clique
from understudy.metric.base import STRICT, Counted, Metric, Part, Positive, Score
from understudy.metric.tables import PairedCells, clique_text, count_pairs, find_column, require_same_columns
from understudy.schema import Schema


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `k_marginal`. Defaults: today's SDNist (200 pairs, no groups).

    Attributes:
        k: how many columns a marginal has, besides the group columns.
        draws: how many marginals are drawn.
        group: columns whose combinations are scored separately (PUMA and YEAR in sprint 2).
        replacement: draw columns with replacement, as the old SDNist did.
        cutoff: a group whose sizes differ by more than this counts as wholly wrong; None: no such rule.
        cutoff_included: whether a difference of exactly `cutoff` counts as well (sprint 2: 250, included).
    """

    k: Positive = 2
    draws: Positive = 200
    group: tuple[str, ...] = ()
    replacement: bool = False
    cutoff: float | None = None
    cutoff_included: bool = False


def k_marginal(
    real: Counted, synthetic: Counted, schema: Schema, settings: Settings, rng: np.random.Generator
) -> Score:
    """``(2 - mean L1) 500`` over random column sets, within each group; a group that one table lacks counts 2."""
    require_same_columns(real, synthetic)
    groups = settings.group
    for name in groups:
        find_column(schema, name, "k_marginal.group")
    names = [column.name for column in schema.coded if column.name not in groups] or [c.name for c in schema.coded]
    drawn = [_draw(names, settings, rng) for _ in range(settings.draws)]
    distinct = list(dict.fromkeys((*groups, *(n for n in clique if n not in groups)) for clique in drawn))
    cells = [real.domain.cells(clique[len(groups) :]) for clique in distinct]
    tables = zip(count_pairs(real, synthetic, distinct), cells, strict=True)
    found = {pair.clique: grouped_distance(pair, size, settings) for pair, size in tables}
    each = [found[(*groups, *(n for n in clique if n not in groups))] for clique in drawn]
    mean = float(np.mean(each))
    parts = [Part("error", "mean L1", mean)]
    parts += [
        Part("marginal", clique_text(c), v) for c, v in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    ]
    notes = (f"{settings.draws} sets of {settings.k} columns were drawn at random.",)
    return METRIC.score((2 - mean) * 500, parts, notes)


def grouped_distance(pair: PairedCells, cells: int, settings: Settings) -> float:
    """Return the L1 distance of shares within each group, averaged over the groups that either table has."""
    present, group = np.unique(pair.cells // cells, return_inverse=True)
    sizes = [np.bincount(group, weights=side, minlength=len(present)) for side in (pair.real, pair.synthetic)]
    shares = [side / np.maximum(size, 1)[group] for side, size in zip((pair.real, pair.synthetic), sizes, strict=True)]
    gaps = np.bincount(group, weights=np.abs(shares[0] - shares[1]), minlength=len(present))
    gaps[(sizes[0] == 0) | (sizes[1] == 0)] = 2.0
    if settings.cutoff is not None:
        apart = np.abs(sizes[0] - sizes[1])
        gaps[(apart >= settings.cutoff) if settings.cutoff_included else (apart > settings.cutoff)] = 2.0
    return float(gaps.mean())


def _draw(names: list[str], settings: Settings, rng: np.random.Generator) -> Clique:
    size = settings.k if settings.replacement else min(settings.k, len(names))
    places = rng.choice(len(names), size, replace=settings.replacement)
    return tuple(names[place] for place in sorted(set(places.tolist())))


METRIC = Metric(
    name="k_marginal",
    title="k-marginal (SDNist)",
    measure=k_marginal,
    settings=Settings,
    better="higher",
    best=1000.0,
    worst=0.0,
    meaning="Compares random pairs of columns. 1000: identical; 900: on average a tenth of the rows sit in the wrong "
    "combination of two values; 0: the tables have nothing in common.",
)
