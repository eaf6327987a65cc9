"""What becomes of values that were too rare to be told apart: the rules by which merged codes get a value again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.model.consistency import norm_sub
from understudy.schema import Recoding, Schema
from understudy.schema.coded import Coded
from understudy.schema.table import Entry

Rare = Literal["spread", "other", "hierarchy"]
"""How a merged code is decoded: by shares of its values, as the column's "other", or by groups of its first level."""

RULES = ("spread", "other", "hierarchy")


def undo_merging(
    codes: Mapping[str, NDArray[Any]],
    recoding: Recoding,
    schema: Schema,
    measurements: Sequence[Measurement],
    rng: np.random.Generator,
    rare: str | Mapping[str, str] | None = None,
) -> dict[str, NDArray[Any]]:
    """Original codes for merged ones.

    * "spread": a value of the merged group, in proportion to the column's noisy counts shrunk towards equal shares as
      far as the noise demands (James and Stein); equal shares where nothing can be told apart.
    * "other": the column's code for unknown values: rare values do not look like data.
    * "hierarchy": a group of the column's first declared level in proportion to the noisy counts of its rare values,
      then any of these values.

    By default "other" where the column's values can say so, else "spread": a number cannot.

    **Privacy.** Post-processing of released measurements.

    Raises:
        SettingError: for an unknown rule or column, or a rule that a column does not allow.
    """
    chosen = _rules(recoding, schema, rare)
    shares = {column: _shares(column, rule, recoding, schema, measurements) for column, rule in chosen.items()}
    return {
        column: _drawn(array, recoding.maps[column], shares[column], rng) if column in shares else array
        for column, array in codes.items()
    }


def merged_values(recoding: Recoding, schema: Schema) -> dict[str, list[Any]]:
    """For each column the values that were merged because too few rows had them; codes where a value has no name."""
    found = {}
    for name in recoding.columns:
        rare = [code for group in recoding.merged(name) if len(group) > 1 for code in group]
        if rare:
            found[name] = _named(name, rare, schema)
    return found


def _named(name: str, codes: list[int], schema: Schema) -> list[Any]:
    column = next((column for column in schema.coded if column.name == name), None)
    if column is None:
        return list(codes)
    known = {entry.code: _words(entry) for entry in reversed(column.table()) if entry.part == name}
    return [known.get(code, code) for code in codes]


def _words(entry: Entry) -> Any:
    if entry.what == "interval":
        return f"{entry.lower} to {entry.upper}"
    if entry.what in ("null", "unknown"):
        return {"null": "(null)", "unknown": "(other)"}[entry.what]
    return entry.value if entry.label is None else entry.label


def _rules(recoding: Recoding, schema: Schema, rare: str | Mapping[str, str] | None) -> dict[str, str]:
    given = {} if rare is None or isinstance(rare, str) else dict(rare)
    for name in given:
        if name not in schema.domain:
            raise SettingError(f"rare: there is no column {name!r}; the columns are {', '.join(schema.domain)}")
    rules = {}
    for name in recoding.columns:
        column = next((column for column in schema.coded if column.name == name), None)
        wanted = rare if isinstance(rare, str) else given.get(name)
        rules[name] = _rule(name, column, wanted)
    return rules


def _rule(name: str, column: Coded | None, wanted: str | None) -> str:
    other = column is not None and column.other_code is not None
    if wanted is None:
        return "other" if other and column is not None and column.shows_other else "spread"
    if wanted not in RULES:
        raise SettingError(f"rare: {wanted!r} is unknown; use {', '.join(RULES)}")
    if wanted == "other" and not other:
        raise SettingError(f"rare: column {name!r} has no code for unknown values; use spread, or declare one")
    if wanted == "hierarchy" and (column is None or not column.generalisations):
        raise SettingError(f"rare: column {name!r} declares no levels; use spread, or add levels to the schema")
    return wanted


def _shares(
    name: str, rule: str, recoding: Recoding, schema: Schema, measurements: Sequence[Measurement]
) -> NDArray[np.float64]:
    """For each merged code (row) the chance of each original code (column)."""
    groups = recoding.merged(name)
    shares = np.zeros((len(groups), len(recoding.maps[name])))
    column = next((column for column in schema.coded if column.name == name), None)
    counts, sigma = _counts(name, shares.shape[1], measurements)
    for row, group in enumerate(groups):
        if len(group) == 1:
            shares[row, group] = 1.0
        elif rule == "other" and column is not None and column.other_code is not None:
            shares[row, column.other_code] = 1.0
        elif rule == "hierarchy" and column is not None:
            level = next(iter(column.generalisations.values())).groups[group]
            shares[row, group] = _by_level(counts[group], sigma, level)
        else:
            shares[row, group] = _shrunk(counts[group], sigma, np.ones(len(group)))
    return shares


def _counts(name: str, size: int, measurements: Sequence[Measurement]) -> tuple[NDArray[np.float64], float]:
    """The column's noisy counts over its declared codes, averaged by precision; sigma is infinite without any."""
    tables = [m for m in measurements if m.clique == (name,) and m.query is None and len(m.values) == size]
    if not tables:
        return np.zeros(size), np.inf
    precision = np.array([m.sigma**-2 for m in tables])
    mean = precision @ np.stack([m.values for m in tables]) / precision.sum()
    return mean, float(precision.sum() ** -0.5)


def _by_level(counts: NDArray[np.float64], sigma: float, level: NDArray[np.int64]) -> NDArray[np.float64]:
    _, place, sizes = np.unique(level, return_inverse=True, return_counts=True)
    groups = _shrunk(np.bincount(place, counts).astype(np.float64), sigma, sizes.astype(np.float64))
    return groups[place] / sizes[place]


def _shrunk(counts: NDArray[np.float64], sigma: float, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares by noisy counts of cells that hold `sizes` values each, shrunk towards equal shares of the values.

    The positive-part James-Stein rule: the deviations from equal shares keep the part of their sum of squares that
    noise does not explain. A sum over k values has k times the variance.
    """
    equal: NDArray[np.float64] = sizes / sizes.sum()
    total = float(counts.sum())
    if not np.isfinite(sigma) or len(counts) < 2 or total <= 0:
        return equal
    deviation = counts - total * equal
    energy = float(np.square(deviation).sum())
    noise = sigma**2 * float(sizes.sum()) * (1 - 1 / len(counts))
    kept = max(0.0, 1 - noise / energy) if energy > 0 else 0.0
    shares: NDArray[np.float64] = norm_sub(total * equal + kept * deviation, total) / total
    return shares


def _drawn(
    codes: NDArray[Any], merged: NDArray[np.int64], shares: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[Any]:
    """Original codes with the expected counts, rounded at random, in random order among the rows of a merged code."""
    out: NDArray[Any] = np.argmax(shares, axis=1)[codes].astype(np.min_scalar_type(len(merged) - 1))
    for code in np.flatnonzero((shares > 0).sum(axis=1) > 1):
        where = np.flatnonzero(codes == code)
        ends = np.cumsum(shares[code])
        ends *= len(where) / ends[-1]
        # One uniform start for all: each value gets its expected count rounded up or down.
        drawn = np.searchsorted(ends, np.arange(len(where)) + rng.random(), side="right")
        possible = np.flatnonzero(shares[code])
        drawn = possible[np.minimum(np.searchsorted(possible, drawn), len(possible) - 1)]
        out[where] = rng.permutation(drawn)
    return out
