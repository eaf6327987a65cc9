"""What becomes of values that were too rare to be told apart: the rules by which merged codes get a value again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.arguments import as_mapping
from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.model.consistency import norm_sub
from understudy.schema import Recoding, Schema
from understudy.schema.column import Coded, Entry

RULES = ("spread", "other", "hierarchy")
"""How a merged code is decoded: by shares of its values, as the column's "other", or by groups of its first level."""

_DEFAULT = "groups"
"""In a column with levels: groups of the hierarchy are spread, everything else is "other"."""


@dataclass(frozen=True, eq=False)
class Members:
    """What stands for each merged code of a column: original codes with their chances.

    Attributes:
        codes: original codes, merged code after merged code.
        chances: the chance of each, adding up to 1 in every merged code.
        starts: where each merged code begins.
        size: how many original codes the column has.
    """

    codes: NDArray[np.int64]
    chances: NDArray[np.float64]
    starts: NDArray[np.int64]
    size: int

    def weights(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """By merged code, the chance of what lies inside, where `part` says how much of each original code does."""
        inside: NDArray[np.float64] = np.add.reduceat(self.chances * part[self.codes], self.starts)
        return inside

    def spread(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Counts by merged code, shared out among the original ones."""
        group = np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.codes)))
        return np.bincount(self.codes, self.chances * counts[group], minlength=self.size).astype(np.float64)

    def given(self, part: NDArray[np.float64]) -> Members:
        """The same, given that the original code lies inside; a merged code that never does keeps its chances."""
        inside = self.weights(part)
        group = np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.codes)))
        possible = inside[group] > 0
        shares = self.chances * part[self.codes] / np.where(possible, inside[group], 1.0)
        return replace(self, chances=np.where(possible, shares, self.chances))

    def drawn(self, merged: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        """Original codes with the expected counts, rounded at random, in random order among rows of a merged code."""
        kind = np.min_scalar_type(self.size - 1)
        single = np.diff(self.starts, append=len(self.codes)) == 1
        out: NDArray[Any] = self.codes[self.starts].astype(kind)[merged]
        several = np.flatnonzero(~single[merged])
        if not len(several):
            return out
        several = rng.permutation(several)
        several = several[np.argsort(merged[several], kind="stable")]
        groups = merged[several].astype(np.int64)
        begins = np.flatnonzero(np.diff(groups, prepend=-1))
        counts = np.diff(begins, append=len(groups))
        # One uniform start for the rows of a merged code: each value gets its expected count rounded up or down.
        place = np.arange(len(groups)) - np.repeat(begins, counts) + np.repeat(rng.random(len(begins)), counts)
        picked = np.searchsorted(self._ends, groups + place / np.repeat(counts, counts), side="right")
        out[several] = self.codes[self._possible[np.minimum(picked, self._last[groups])]]
        return out

    @cached_property
    def _possible(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.chances > 0)

    @cached_property
    def _group(self) -> NDArray[np.int64]:
        return np.searchsorted(self.starts, self._possible, side="right") - 1

    @cached_property
    def _ends(self) -> NDArray[np.float64]:
        """The chances added up within each merged code, plus its number."""
        total = np.cumsum(self.chances[self._possible])
        first = np.flatnonzero(np.diff(self._group, prepend=-1))
        before = np.concatenate(([0.0], total))[first]
        ends: NDArray[np.float64] = self._group + np.minimum(
            total - np.repeat(before, np.diff(first, append=len(total))), 1.0
        )
        return ends

    @cached_property
    def _last(self) -> NDArray[np.int64]:
        return np.searchsorted(self._group, np.arange(len(self.starts)), side="right") - 1


def members_of(
    recoding: Recoding,
    schema: Schema,
    measurements: Sequence[Measurement],
    rare: str | Mapping[str, str] | None = None,
) -> dict[str, Members]:
    """By column, what stands for its merged codes.

    * "spread": a value of the merged group, in proportion to the column's noisy counts shrunk towards equal shares as
      far as the noise demands (James and Stein); equal shares where nothing can be told apart.
    * "other": the column's code for unknown values: rare values do not look like data. Neighbours that were joined to
      intervals of an axis are not rare, and spread.
    * "hierarchy": a group of the column's first declared level in proportion to the noisy counts of its rare values,
      then any of these values.

    By default "other" where the column's values can say so, else "spread": a number cannot. Values that were merged
    because they are one group of the column's hierarchy are spread: the group is known, and refined here.

    **Privacy.** Post-processing of released measurements.

    Raises:
        SettingError: for an unknown rule or column, or a rule that a column does not allow.
    """
    chosen = _rules(recoding, schema, rare)
    return {column: _members(column, rule, recoding, schema, measurements) for column, rule in chosen.items()}


def undo_merging(
    codes: Mapping[str, NDArray[Any]],
    recoding: Recoding,
    schema: Schema,
    measurements: Sequence[Measurement],
    rng: np.random.Generator,
    rare: str | Mapping[str, str] | None = None,
) -> dict[str, NDArray[Any]]:
    """Original codes for merged ones, by the rules of `members_of`."""
    members = members_of(recoding, schema, measurements, rare)
    return {
        column: members[column].drawn(array, rng) if column in members else array for column, array in codes.items()
    }


def merged_values(recoding: Recoding, schema: Schema) -> dict[str, list[Any]]:
    """For each column the values that were merged because too few rows had them; codes where a value has no name.

    Not the neighbours that became intervals of an axis: a column on its own tells those apart.
    """
    found = {}
    for name in recoding.columns:
        places = recoding.intervals(name, schema.domain.axis(name))
        rare = [code for group in recoding.merged(name) if len(group) > 1 for code in group if code >= places]
        if rare:
            found[name] = _named(name, rare, schema)
    return found


def _named(name: str, codes: list[int], schema: Schema) -> list[Any]:
    from understudy.schema.labels import code_labels  # the metrics are not needed to open a release

    column = next((column for column in schema.coded if column.name == name), None)
    if column is None:
        return list(codes)
    labels = code_labels(column)
    known = {entry.code: _words(entry, labels) for entry in reversed(column.table()) if entry.part == name}
    return [known.get(code, code) for code in codes]


def _words(entry: Entry, labels: Sequence[str]) -> Any:
    if entry.what == "interval":
        return labels[entry.code]
    if entry.what in ("null", "unknown"):
        return {"null": "(missing)", "unknown": "(other)"}[entry.what]
    return entry.value if entry.label is None else entry.label


def _rules(recoding: Recoding, schema: Schema, rare: str | Mapping[str, str] | None) -> dict[str, str]:
    named = rare is not None and not isinstance(rare, str)
    given = as_mapping("rare", rare, example='{"town": "spread"}, or one rule') if named else {}
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
        shown = other and column is not None and column.shows_other
        return "spread" if not shown else _DEFAULT if column is not None and column.levels else "other"
    if wanted not in RULES:
        raise SettingError(f"rare: {wanted!r} is unknown; use {', '.join(RULES)}")
    if wanted == "other" and not other:
        raise SettingError(f"rare: column {name!r} has no code for unknown values; use spread, or declare one")
    if wanted == "hierarchy" and (column is None or not column.generalisations):
        raise SettingError(f"rare: column {name!r} declares no levels; use spread, or add levels to the schema")
    return wanted


def _members(name: str, rule: str, recoding: Recoding, schema: Schema, measurements: Sequence[Measurement]) -> Members:
    size = len(recoding.maps[name])
    column = next((column for column in schema.coded if column.name == name), None)
    counts, sigma = _counts(name, size, measurements)
    places = recoding.intervals(name, schema.domain.axis(name))
    codes, chances = [], []
    for group in recoding.merged(name):
        apart = (rule == "other" and group[0] >= places) or (rule == _DEFAULT and not _one_group(column, group))
        if len(group) > 1 and apart and column is not None and column.other_code is not None:
            group, share = [column.other_code], np.ones(1)
        elif len(group) > 1 and rule == "hierarchy" and column is not None:
            level = next(iter(column.generalisations.values())).groups[group]
            share = _by_level(counts[group], sigma, level)
        else:
            share = _shrunk(counts[group], sigma, np.ones(len(group)))
        codes.append(np.asarray(group, dtype=np.int64))
        chances.append(share)
    starts = np.cumsum([0, *map(len, codes)])[:-1]
    return Members(np.concatenate(codes), np.concatenate(chances), starts, size)


def _one_group(column: Coded | None, group: list[int]) -> bool:
    levels = [] if column is None else [level.groups[group] for level in column.generalisations.values()]
    return any(bool((level == level[0]).all()) for level in levels)


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
