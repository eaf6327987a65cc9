"""Scores of linked synthetic tables against the real ones: children per parent, columns across edges, and siblings.

All are computed from codes. They are 1 for equal tables, and 0 for tables that have nothing in common; errors of
queries are 0 for equal tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.metric.propensity import fit_logistic
from understudy.schema.axis import AxisColumn
from understudy.schema.linked import LinkedSchema

_MOST_PARENTS, _FEWEST_PARENTS, _MOST_TERMS = 20_000, 20, 20


@dataclass(frozen=True, eq=False)
class TableCodes:
    """The rows of a table of linked ones as codes; siblings are together and in order.

    Attributes:
        codes: one array by coded column, and `#child` for each child table.
        parents: the place of each row's parent in the parent table; for the root its own place.
        numbers: the place of each row among its siblings, from 0.
    """

    codes: Mapping[str, NDArray[Any]]
    parents: NDArray[np.int64]
    numbers: NDArray[np.int64]


LinkedCodes = Mapping[str, TableCodes]


def score_tables(
    real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, *, queries: int = 10_000, seed: int = 0
) -> dict[str, float]:
    """Return all scores by name; names of children are in brackets.

    Args:
        real: the real tables, as limited by the caps.
        synthetic: the synthetic tables.
        schema: the schema of both.
        queries: the number of random group queries for each child table.
        seed: draws the queries.
    """
    found: dict[str, float] = {}
    for name in schema.links:
        found[f"cardinality({name})"] = cardinality(real, synthetic, schema, name)
        found[f"child pairs({name})"] = 1 - child_pairs(real, synthetic, schema, name)
        for ancestor in schema.ancestors(name):
            near = schema.links[name].parent == ancestor
            label = f"parent-child({name})" if near else f"k-hop({ancestor}, {name})"
            found[label] = 1 - ancestor_pairs(real, synthetic, schema, ancestor, name)
        if schema.links[name].max_children > 1:
            found[f"sibling({name})"] = 1 - sibling_pairs(real, synthetic, schema, name)
            if schema.links[name].order:
                found[f"consecutive({name})"] = 1 - consecutive_pairs(real, synthetic, schema, name)
                found |= _lag_scores(real, synthetic, schema, name)
        for children in (1, 2):
            rng = np.random.default_rng(seed)
            found[f"query error({name}, {children})"] = group_queries(
                real, synthetic, schema, name, children=children, queries=queries, rng=rng
            )
    for name in dict.fromkeys(link.parent for link in schema.links.values()):
        if min(len(one[name].parents) for one in (real, synthetic)) >= _FEWEST_PARENTS:
            found[f"detection({name})"] = detection(real, synthetic, schema, name, rng=np.random.default_rng(seed))
    return found


def _lag_scores(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str) -> dict[str, float]:
    """Return 1 - half the difference of the lag-1 correlations, for each column with an axis that has them."""
    found = {}
    for column in schema.tables[name].coded:
        if isinstance(column, AxisColumn) and column.name in schema.tables[name].domain:
            true, made = (lag_correlation(one, schema, name, column.name) for one in (real, synthetic))
            if np.isfinite(true) and np.isfinite(made):
                found[f"lag-1({name}, {column.name})"] = 1 - abs(true - made) / 2
    return found


def detection(
    real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str, *, rng: np.random.Generator
) -> float:
    """Return how well synthetic parents resist detection by a logistic regression on them and their children.

    Its terms are the codes of a parent's columns (one term each for those without an axis) and, for each child table,
    the number of children, and the mean code and the number of distinct codes of each of their columns. Returns
    1 - max(0, 2 a - 1), with a the area under the ROC curve on half of the rows, which the regression was not fitted
    to: 1 if they cannot be told apart.
    """
    terms = [_parent_terms(one, schema, name) for one in (real, synthetic)]
    terms = [rows[rng.permutation(len(rows))[:_MOST_PARENTS]] for rows in terms]
    fitted = np.concatenate([rows[: len(rows) // 2] for rows in terms])
    labels = np.repeat([False, True], [len(rows) // 2 for rows in terms])
    model = fit_logistic(fitted, labels)
    true, made = (model.chance(rows[len(rows) // 2 :]) for rows in terms)
    place = np.searchsorted(np.sort(true), made), np.searchsorted(np.sort(true), made, side="right")
    area = float((place[0] + place[1]).mean() / (2 * len(true)))
    return 1 - max(0.0, 2 * area - 1)


def _parent_terms(one: LinkedCodes, schema: LinkedSchema, name: str) -> NDArray[np.float64]:
    rows, many = one[name], len(one[name].parents)
    axes = {c.name for c in schema.tables[name].coded if isinstance(c, AxisColumn)}
    terms: list[NDArray[np.float64]] = []
    for column, size in schema.tables[name].domain.items():
        if column in axes or size > _MOST_TERMS:
            terms.append(rows.codes[column].astype(np.float64))
        else:
            terms += [(rows.codes[column] == code).astype(np.float64) for code in range(1, size)]
    for child in schema.children(name):
        below = one[child]
        count = np.bincount(below.parents, minlength=many).astype(np.float64)
        terms.append(count)
        for column, size in schema.tables[child].domain.items():
            codes = below.codes[column].astype(np.int64)
            terms.append(np.bincount(below.parents, codes, minlength=many) / np.maximum(count, 1))
            distinct = np.unique(below.parents * size + codes) // size
            terms.append(np.bincount(distinct, minlength=many).astype(np.float64))
    return np.column_stack(terms) if terms else np.zeros((many, 1))


def cardinality(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str) -> float:
    """1 - the Kolmogorov-Smirnov distance of the numbers of children per parent, zeros included."""
    parent, size = schema.links[name].parent, schema.links[name].max_children + 1
    shares = [_shares(one[parent].codes[f"#{name}"].astype(np.int64), size) for one in (real, synthetic)]
    return float(1 - np.abs(np.cumsum(shares[0]) - np.cumsum(shares[1])).max())


def child_pairs(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str) -> float:
    """Return the mean total variation distance of all pairs of columns of a table."""
    sizes = schema.tables[name].domain
    return _mean(
        _distance([(one[name].codes[a], one[name].codes[b], None) for one in (real, synthetic)], sizes[a], sizes[b])
        for a, b in combinations(sizes, 2)
    )


def ancestor_pairs(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, ancestor: str, name: str) -> float:
    """Return the mean total variation distance of pairs of an ancestor's column and one of a table, over its rows."""
    upper, lower = schema.tables[ancestor].domain, schema.tables[name].domain
    places = [_places(one, schema, ancestor, name) for one in (real, synthetic)]
    return _mean(
        _distance(
            [
                (one[ancestor].codes[a][place], one[name].codes[b], None)
                for one, place in zip((real, synthetic), places, strict=True)
            ],
            upper[a],
            lower[b],
        )
        for a in upper
        for b in lower
    )


def sibling_pairs(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str) -> float:
    """Return the mean total variation distance of pairs of columns of siblings; each parent weighs 1."""
    return _compare_pairs(real, synthetic, schema, name, _pair_all_siblings)


def consecutive_pairs(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str) -> float:
    """Return the mean total variation distance of pairs of columns of a sibling and the next one."""
    return _compare_pairs(real, synthetic, schema, name, _pair_next_siblings)


def lag_correlation(one: LinkedCodes, schema: LinkedSchema, name: str, column: str) -> float:
    """Return the correlation of the codes of a column on an axis in consecutive siblings, without missing ones.

    It is not a number if the codes of all first or of all second siblings are equal.
    """
    declared = schema.tables[name].column(column)
    assert isinstance(declared, AxisColumn)  # noqa: S101 - callers ask for these alone
    first, second, _ = _pair_next_siblings(one[name])
    a, b = one[name].codes[column][first], one[name].codes[column][second]
    inside = (a < declared.ordinary) & (b < declared.ordinary)
    varied = inside.any() and np.ptp(a[inside]) > 0 and np.ptp(b[inside]) > 0
    return float(np.corrcoef(a[inside], b[inside])[0, 1]) if varied else float("nan")


def group_queries(
    real: LinkedCodes,
    synthetic: LinkedCodes,
    schema: LinkedSchema,
    name: str,
    *,
    children: int,
    queries: int,
    rng: np.random.Generator,
    selectivity: float = 0.2,
) -> float:
    """Return the mean relative error of counts of parents with conditions on the parent, its children and their number.

    A condition is a random set of codes of a random column that holds at least a share `selectivity` of the real rows.
    A parent counts if it satisfies its condition, has at least a random number of children, and a different child for
    each of the `children` conditions. The error of a query is |c - c'| / max(c, 1 % of the parents), with c' scaled
    to the real number of parents.
    """
    link = schema.links[name]
    upper, lower = schema.tables[link.parent].domain, schema.tables[name].domain
    parents = len(real[link.parent].parents)
    scale = parents / max(len(synthetic[link.parent].parents), 1)
    errors = []
    for _ in range(queries):
        above = _condition(real[link.parent].codes, upper, selectivity, rng)
        below = [_condition(real[name].codes, lower, selectivity, rng) for _ in range(children)]
        least = int(rng.integers(children, max(link.max_children // 2, children) + 1))
        truth, drawn = (_count(one, link.parent, name, above, below, least) for one in (real, synthetic))
        errors.append(abs(truth - scale * drawn) / max(truth, 0.01 * parents, 1e-9))
    return float(np.mean(errors))


def _condition(
    codes: Mapping[str, NDArray[Any]], sizes: Mapping[str, int], selectivity: float, rng: np.random.Generator
) -> tuple[str, NDArray[np.bool_]]:
    column = list(sizes)[int(rng.integers(len(sizes)))]
    shares = _shares(codes[column].astype(np.int64), sizes[column])
    order = rng.permutation(sizes[column])
    many = int(np.searchsorted(np.cumsum(shares[order]), selectivity)) + 1
    inside = np.zeros(sizes[column], np.bool_)
    inside[order[:many]] = True
    return column, inside


def _count(
    one: LinkedCodes,
    parent: str,
    name: str,
    above: tuple[str, NDArray[np.bool_]],
    below: list[tuple[str, NDArray[np.bool_]]],
    least: int,
) -> int:
    """Count parents; by Hall's theorem, two conditions have different children if each has one and both have two."""
    upper, lower = one[parent], one[name]
    many = len(upper.parents)
    fits = above[1][upper.codes[above[0]]] & (upper.codes[f"#{name}"] >= least)
    matches = [inside[lower.codes[column]] for column, inside in below]
    for match in matches:
        fits = fits & (np.bincount(lower.parents[match], minlength=many) >= 1)
    if len(matches) > 1:
        either = matches[0] | matches[1]
        fits = fits & (np.bincount(lower.parents[either], minlength=many) >= 2)
    return int(fits.sum())


def _compare_pairs(real: LinkedCodes, synthetic: LinkedCodes, schema: LinkedSchema, name: str, pairs: Any) -> float:
    sizes = schema.tables[name].domain
    places = [pairs(one[name]) for one in (real, synthetic)]
    return _mean(
        _distance(
            [
                (one[name].codes[a][first], one[name].codes[b][second], weight)
                for one, (first, second, weight) in zip((real, synthetic), places, strict=True)
            ],
            sizes[a],
            sizes[b],
        )
        for a in sizes
        for b in sizes
    )


def _pair_all_siblings(rows: TableCodes) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return all ordered pairs of different siblings, each with weight 1 / (k (k - 1))."""
    starts = np.flatnonzero(rows.numbers == 0)
    sizes = np.diff(starts, append=len(rows.numbers))
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []
    for size in np.unique(sizes[sizes > 1]).tolist():
        begin = starts[sizes == size]
        a, b = np.nonzero(~np.eye(size, dtype=np.bool_))
        first, second = (begin[:, None] + a).ravel(), (begin[:, None] + b).ravel()
        found.append((first, second, np.full(len(first), 1 / (size * (size - 1)))))
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
    one, two, weight = zip(*found, strict=True)
    return np.concatenate(one), np.concatenate(two), np.concatenate(weight)


def _pair_next_siblings(rows: TableCodes) -> tuple[NDArray[np.int64], NDArray[np.int64], None]:
    second = np.flatnonzero(rows.numbers > 0)
    return second - 1, second, None


def _places(one: LinkedCodes, schema: LinkedSchema, ancestor: str, name: str) -> NDArray[np.int64]:
    place = np.arange(len(one[name].parents))
    while name != ancestor:
        place, name = one[name].parents[place], schema.links[name].parent
    return place


def _distance(pairs: Sequence[tuple[Any, Any, Any]], size_a: int, size_b: int) -> float:
    """Return the total variation distance of two tables, each given by two columns and the weights of their rows."""
    tables = []
    for a, b, weight in pairs:
        counts = np.bincount(a.astype(np.int64) * size_b + b, weight, minlength=size_a * size_b)
        tables.append(counts / max(counts.sum(), 1e-300))
    return float(np.abs(tables[0] - tables[1]).sum() / 2)


def _shares(codes: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    counts = np.bincount(codes, minlength=size).astype(np.float64)
    return np.asarray(counts / max(counts.sum(), 1.0))


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return float(np.mean(found)) if found else 0.0
