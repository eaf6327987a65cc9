"""`nist_density`: three-way densities, the first score of the NIST 2018 challenge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass as settings_class

from understudy.domain import Clique, Domain
from understudy.metric.base import STRICT, Counted, Metric, Part, Positive, Score
from understudy.metric.tables import Rows, clique_text, count_pairs
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.column import smallest_dtype
from understudy.tabulate import Counts, marginals

SCALE = 1e6
BUCKETS = 100


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `nist_density`.

    Attributes:
        draws: how many triples of columns are drawn.
        official: draw as the official script does, whose last column never enters; default the fair draw.
    """

    draws: Positive = 100
    official: bool = False


def nist_density(
    real: Counted, synthetic: Counted, schema: Schema, settings: Settings, rng: np.random.Generator
) -> Score:
    """``10^6 mean(1 - L1/2)`` over random triples of columns.

    Numbers are put into 100 buckets of width 1.0001 (max - min)/100 over their public range, whatever bins the schema
    has; a table that can only be counted keeps the schema's bins. A triple with a column that the synthetic table
    lacks scores 0.
    """
    notes: tuple[str, ...] = (f"{settings.draws} triples of columns were drawn at random.",)
    if isinstance(real, Rows) and isinstance(synthetic, Rows):
        real, synthetic = _put_into_buckets(real), _put_into_buckets(synthetic)
    else:
        notes += ("Numbers keep the bins of the schema: only counts were available.",)
    names = [column.name for column in schema.coded]
    triples = [_draw(names, settings.official, rng) for _ in range(settings.draws)]
    present = [triple for triple in triples if all(name in synthetic.domain for name in triple)]
    distinct = list(dict.fromkeys(present))
    gaps = {pair.clique: pair.distance() for pair in count_pairs(real, synthetic, distinct)}
    halves = np.array([gaps[triple] / 2 if triple in gaps else 1.0 for triple in triples])
    parts = [Part("error", "mean half L1", float(halves.mean()))]
    seen = dict(zip(triples, halves.tolist(), strict=True))
    parts += [
        Part("marginal", clique_text(t), v) for t, v in sorted(seen.items(), key=lambda item: (-item[1], item[0]))
    ]
    return METRIC.score(SCALE * float((1 - halves).mean()), parts, notes)


def _draw(names: list[str], official: bool, rng: np.random.Generator) -> Clique:
    pool = names[:-1] if official and len(names) > 3 else names
    places = np.sort(rng.choice(len(pool), min(3, len(pool)), replace=False))
    return tuple(pool[place] for place in places)


@dataclass(frozen=True, eq=False, repr=False)
class _Buckets:
    """The same rows with numbers in the challenge's buckets."""

    rows: int
    codes: dict[str, NDArray[Any]]
    domain: Domain

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts."""
        return marginals(self.codes, self.domain, cliques)


def _put_into_buckets(table: Rows) -> Counted:
    codes: dict[str, NDArray[Any]] = {}
    sizes: dict[str, int] = {}
    for column in table.schema.coded:
        array, size = table.codes[column.name], table.domain[column.name]
        if isinstance(column, AxisColumn):
            low, high = float(column.bounds[0]), float(column.bounds[1])
            array, size = assign_buckets(table.units[column.name], low, high), BUCKETS + 1
        codes[column.name], sizes[column.name] = array.astype(smallest_dtype(size)), size
    return _Buckets(table.rows, codes, Domain(sizes))


def assign_buckets(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.int64]:
    """Return buckets 0 .. 99 of width 1.0001 (high - low)/100; an empty cell is bucket 100."""
    width = 1.0001 * (high - low) / BUCKETS or 1.0
    empty = np.isnan(values)
    place = np.clip(np.floor((np.where(empty, low, values) - low) / width), 0, BUCKETS - 1).astype(np.int64)
    return np.where(empty, BUCKETS, place)


METRIC = Metric(
    name="nist_density",
    title="NIST 2018: three-way densities",
    measure=nist_density,
    settings=Settings,
    better="higher",
    best=SCALE,
    worst=0.0,
    meaning="Draws sets of three columns and compares how the rows spread over their combined values. 1,000,000: "
    "identical spreads. 900,000: on average a tenth of the rows sit in the wrong combination.",
)
