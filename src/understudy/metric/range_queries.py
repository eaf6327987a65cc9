"""`range_queries`: the error of random range queries, as the papers on private publication report it."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class

from understudy.domain import Clique, Domain
from understudy.metric.base import STRICT, Counted, Metric, Part, Positive, Score
from understudy.metric.tables import (
    PairedCells,
    clique_text,
    count_pairs,
    find_column,
    is_ordered,
    require_same_columns,
)
from understudy.schema import Schema
from understudy.schema.column import Coded

Inside: TypeAlias = NDArray[np.bool_]
"""By code of a column, whether it lies inside a query."""


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `range_queries`.

    Attributes:
        form: "ranges" for random ranges of random columns, and the mean difference of the answers; "shares" for the
            variant of the MGD paper's Table 1: every query takes a fixed share of each column's values, and the score
            is the mean relative error of the counts.
        queries: how many queries are drawn; the paper draws 300 shares.
        ways: numbers of columns that a query may restrict, drawn evenly.
        columns: the columns that queries are about; None: all.
        share: of the form "shares", the part of a column's values that a query takes.
    """

    form: Literal["ranges", "shares"] = "ranges"
    queries: Positive = 2000
    ways: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1, 2, 3)
    columns: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    share: Annotated[float, Field(gt=0, le=1)] = 0.3


def range_queries(
    real: Counted, synthetic: Counted, schema: Schema, settings: Settings, rng: np.random.Generator
) -> Score:
    """Return the mean error of the answers to random range queries.

    A query takes consecutive values of a column with an order, and any set of values of another one. The score is the
    mean absolute difference of the shares of rows, or of the form "shares" the part ``relative``: the difference of the
    counts, divided by the real count or by 0.1 % of the real rows where that is more.
    """
    domain = require_same_columns(real, synthetic)
    known = {column.name: column for column in schema.coded}
    names = list(known)
    if settings.columns is not None:
        names = [find_column(schema, name, "range_queries.columns").name for name in settings.columns]
    asked: dict[Clique, list[list[Inside]]] = defaultdict(list)
    for _ in range(settings.queries):
        way = min(int(rng.choice(settings.ways)), len(names))
        clique = tuple(names[place] for place in np.sort(rng.choice(len(names), way, replace=False)))
        asked[clique].append([_draw_values(known[name], settings, rng) for name in clique])
    gaps, relative, parts = [], [], []
    for pair in count_pairs(real, synthetic, asked):
        one, other = _answer(pair, asked[pair.clique], domain)
        gaps.append(np.abs(one / max(real.rows, 1) - other / max(synthetic.rows, 1)))
        relative.append(np.abs(one - other) / np.maximum(one, max(1e-3 * real.rows, 1e-300)))
        parts.append(Part("marginal", clique_text(pair.clique), float(gaps[-1].mean())))
    mean, ratio = float(np.concatenate(gaps).mean()), float(np.concatenate(relative).mean())
    first = [
        Part("error", "relative", ratio),
        Part("error", "rows", mean * real.rows),
        Part("sample", "queries", float(settings.queries)),
    ]
    parts.sort(key=lambda part: (-part.value, part.name))
    notes = (f"{settings.queries} random queries.",)
    return METRIC.score(mean if settings.form == "ranges" else ratio, (*first, *parts), notes)


def _draw_values(column: Coded, settings: Settings, rng: np.random.Generator) -> Inside:
    """Return the values of a column that a query takes: consecutive ones, or any set where they have no order."""
    size, inside = column.ordinary, np.zeros(column.size, np.bool_)
    if is_ordered(column):
        if settings.form == "ranges":
            low, high = sorted(rng.integers(0, size, 2).tolist())
        else:
            taken = max(1, round(settings.share * size))
            low = int(rng.integers(0, size - taken + 1))
            high = low + taken - 1
        inside[low : high + 1] = True
        return inside
    taken = int(rng.integers(1, size + 1)) if settings.form == "ranges" else max(1, round(settings.share * size))
    inside[rng.choice(size, taken, replace=False)] = True
    return inside


def _answer(
    pair: PairedCells, queries: list[list[Inside]], domain: Domain
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows inside each query, in both tables."""
    places = np.unravel_index(pair.cells, domain.shape(pair.clique))
    answers = np.zeros((2, len(queries)))
    for number, query in enumerate(queries):
        inside = np.ones(len(pair.cells), np.bool_)
        for place, taken in zip(places, query, strict=True):
            inside &= taken[place]
        answers[:, number] = [side[inside].sum() for side in (pair.real, pair.synthetic)]
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
