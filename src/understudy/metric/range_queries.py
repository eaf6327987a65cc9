"""`range_queries`: the error of random range queries, as the papers on private publication report it."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class

from understudy.domain import Clique, Domain
from understudy.metric.base import STRICT, Counted, Metric, Part, Positive, Score
from understudy.metric.tables import Pair, clique_text, count_pairs, is_ordered, require_same_columns
from understudy.schema import Schema

Range: TypeAlias = tuple[int, int]


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `range_queries`.

    Attributes:
        queries: how many queries are drawn.
        ways: numbers of columns that a query may restrict, drawn evenly.
    """

    queries: Positive = 2000
    ways: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1, 2, 3)


def range_queries(
    real: Counted, synthetic: Counted, schema: Schema, settings: Settings, rng: np.random.Generator
) -> Score:
    """The mean absolute difference of the shares of rows inside random ranges of random columns.

    Ranges are drawn on columns with an order; where a table has none, each query asks for single values instead. The
    part ``relative`` divides by the real share, or by 0.1 % where that is smaller.
    """
    domain = require_same_columns(real, synthetic)
    names = [column.name for column in schema.coded if is_ordered(column)]
    ranged = bool(names)
    names = names or [column.name for column in schema.coded]
    limits = {column.name: column.ordinary for column in schema.coded}
    asked: dict[Clique, list[list[Range]]] = defaultdict(list)
    for _ in range(settings.queries):
        way = min(int(rng.choice(settings.ways)), len(names))
        clique = tuple(names[place] for place in np.sort(rng.choice(len(names), way, replace=False)))
        asked[clique].append([_draw_range(limits[name], ranged, rng) for name in clique])
    gaps, relative, parts = [], [], []
    for pair in count_pairs(real, synthetic, asked):
        p, q = _answer(pair, asked[pair.clique], domain)
        gaps.append(np.abs(p - q))
        relative.append(gaps[-1] / np.maximum(p, 1e-3))
        parts.append(Part("marginal", clique_text(pair.clique), float(gaps[-1].mean())))
    mean = float(np.concatenate(gaps).mean())
    first = [
        Part("error", "relative", float(np.concatenate(relative).mean())),
        Part("error", "rows", mean * real.rows),
        Part("sample", "queries", float(settings.queries)),
    ]
    parts.sort(key=lambda part: (-part.value, part.name))
    notes: tuple[str, ...] = (f"{settings.queries} random queries.",)
    notes += () if ranged else ("No column has an order, so each query asks for single values.",)
    return METRIC.score(mean, (*first, *parts), notes)


def _draw_range(size: int, ranged: bool, rng: np.random.Generator) -> Range:
    if not ranged:
        value = int(rng.integers(0, size))
        return value, value
    low, high = sorted(rng.integers(0, size, 2).tolist())
    return low, high


def _answer(pair: Pair, queries: list[list[Range]], domain: Domain) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Shares of rows inside each query's ranges, in both tables."""
    places = np.unravel_index(pair.cells, domain.shape(pair.clique))
    shares = [side / max(side.sum(), 1.0) for side in (pair.real, pair.synthetic)]
    answers = np.zeros((2, len(queries)))
    for number, ranges in enumerate(queries):
        inside = np.ones(len(pair.cells), np.bool_)
        for place, (low, high) in zip(places, ranges, strict=True):
            inside &= (place >= low) & (place <= high)
        answers[:, number] = [share[inside].sum() for share in shares]
    return answers[0], answers[1]


METRIC = Metric(
    name="range_queries",
    title="Range queries",
    measure=range_queries,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=1.0,
    meaning="Asks random questions such as 'what share is between 30 and 45 and works 20 to 40 hours?' of both tables. "
    "The score is the average difference of the answers: 0.01 is one percentage point.",
)
