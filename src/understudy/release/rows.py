"""Rows from a release: drawn from the model under conditions, and made to obey the schema's rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.arguments import as_mapping
from understudy.errors import InputError, SettingError
from understudy.measurement import Measurement, combine
from understudy.model.consistency import norm_sub
from understudy.model.dependencies import find_determined, unstated_dependencies
from understudy.model.ordered import fit_ordered_counts
from understudy.release.answer import Condition, parse_query, read_conditions
from understudy.release.exchange import exchange_values
from understudy.schema import Recoding, Schema
from understudy.schema.axis import Axis, AxisColumn
from understudy.schema.column import Coded, Entry, Identifier
from understudy.schema.rules import Dependency, RuleCells, find_broken_rows

if TYPE_CHECKING:
    from understudy.release.release import Release

CHUNK_ROWS = 1 << 20
"""How many rows are made at a time when streaming; changing it changes the rows of a seed."""
_TRIES = 40  # of drawing values inside bins and merged codes for rows that break a rule
_ROUNDS = 100  # of drawing other rows instead of those that are left

Codes = dict[str, NDArray[Any]]


def check_size(rows: int, columns: int) -> None:
    """Refuse a number of rows that cannot fit in memory: under a tiny budget the noisy total may be enormous.

    Raises:
        SettingError: if the rows do not fit in memory.
    """
    import psutil

    if rows * columns * 8 > max(psutil.virtual_memory().available, 1 << 28):
        raise SettingError(f"{rows} rows do not fit in memory; give a smaller number (rows=, on the command line -n)")


class RowMaker:
    """Makes rows of a release, repeatedly, with the same settings.

    A row is drawn from the model; merged codes become values, values are drawn inside bins. Values that then break an
    order change places with those of other rows. Rows that still break a rule or miss the condition are drawn again
    from the same codes, and those that cannot be repaired are replaced by other rows.

    **Guarantees.** No row breaks a rule of the schema; every row satisfies the condition. Rows have the model's
    distribution given both: the condition is applied to the model by Bayes' rule, not by rejection.
    **Privacy.** Post-processing.

    Args:
        release: the release.
        where: conditions that every row satisfies, as in `Release.answer`.
        rare: what stands for rare values, as in `Release.sample`.
        text: columns that are returned as the table's files write them.

    Raises:
        SettingError: for conditions that do not fit the schema, that no row can satisfy, or that the model cannot take.
    """

    def __init__(
        self,
        release: Release,
        *,
        where: str | Mapping[str, Any] | None = None,
        rare: str | Mapping[str, str] | None = None,
        text: Collection[str] = (),
    ) -> None:
        schema = release.schema
        asked = read_conditions(schema, parse_query(where) if isinstance(where, str) else where or {})
        if rare is None and release.settings.get("rare") in RULES:
            rare = release.settings["rare"]  # the mechanism's own rule
        members = find_members(release.recoding, schema, release.measurements, rare)
        weights = {c.column: members[c.column].weights(c.part) if c.column in members else c.part for c in asked}
        self._schema, self._text, self._conditions = schema, text, asked
        self._model = release.model if not asked else _condition_model(release, asked, weights)
        parts = {c.column: c.part for c in asked}
        self._members = {name: m.condition(parts[name]) if name in parts else m for name, m in members.items()}
        self._decoder = narrow_bins(schema, asked)
        self._stated = [_StatedDependency(release, rule) for rule in schema.rules if isinstance(rule, Dependency)]
        self._determined = [_LearnedDependency(release, rule, members) for rule in unstated_dependencies(schema)]
        self._total = release.model.total

    def expected_rows(self, rows: int) -> int:
        """Return how many of `rows` unconditional rows are expected to satisfy the condition; at least 1."""
        return max(min(rows, 1), round(rows * self._model.total / self._total)) if self._conditions else rows

    def rows(self, count: int, rng: np.random.Generator, *, first: int = 1, last: int | None = None) -> Any:
        """Make an arrow table of `rows` rows; keys run from `first`, and are formatted for keys up to `last`."""
        import pyarrow as pa

        merged = self._model.sample(count, rng)
        table, bad = self._attempt(merged, rng)
        pieces, place, made = [table], np.arange(count), count
        for _ in range(_TRIES):
            if not len(bad):
                break
            again, still = self._attempt({column: codes[bad] for column, codes in merged.items()}, rng)
            pieces.append(again)
            place[bad] = made + np.arange(len(bad))
            made, bad = made + len(bad), bad[still]
        for _ in range(_ROUNDS):
            if not len(bad):
                break
            other, still = self._attempt(self._model.sample(max(100, 2 * len(bad)), rng), rng)
            good = np.setdiff1d(np.arange(other.num_rows), still)[: len(bad)]
            pieces.append(other)
            place[bad[: len(good)]] = made + good
            made, bad = made + other.num_rows, bad[len(good) :]
        if len(bad):
            raise SettingError(
                "almost no row satisfies both the schema's rules and the conditions; use weaker conditions, correct "
                "the rules, or use finer bins for the columns that they name"
            )
        whole = table if len(pieces) == 1 else pa.concat_tables(pieces).take(pa.array(place))
        whole = self._schema.fill_differences(whole)
        return self._number_keys(whole, first, first + count - 1 if last is None else last)

    def chunks(self, count: int, seed: int | None) -> Iterator[Any]:
        """Yield the rows in arrow tables of at most `CHUNK_ROWS`; a single one has the rows of `rows` with that seed.

        Each chunk is drawn by itself: within it counts are as expected up to rounding. Rounding is right on average and
        independent between chunks, so over k chunks a count is off by about sqrt(k) / 2 rows at most, where independent
        rows would be off by the square root of the count.
        """
        if count <= CHUNK_ROWS:
            yield self.rows(count, np.random.default_rng(seed))
            return
        parts = -(-count // CHUNK_ROWS)
        for index, child in enumerate(np.random.SeedSequence(seed).spawn(parts)):
            start = index * CHUNK_ROWS
            size = min(CHUNK_ROWS, count - start)
            yield self.rows(size, np.random.default_rng(child), first=start + 1, last=count)

    def _attempt(self, merged: Codes, rng: np.random.Generator) -> tuple[Any, NDArray[np.int64]]:
        """Make rows of merged codes; returns them and the positions of those that must be drawn again."""
        codes = {
            column: self._members[column].draw(array, rng) if column in self._members else array
            for column, array in merged.items()
        }
        for stated in self._stated:
            codes = stated.apply(codes, merged)
        for rule in self._determined:
            codes = rule.apply(codes, merged, rng)
        names = {name for rule in self._schema.rules for name in rule.columns} | {c.column for c in self._conditions}
        codes |= resolve_unknown(self._schema, names, codes, rng)
        table = self._decoder.decode(codes, rng, as_="arrow", text=self._text)
        for rule in self._determined:
            table = rule.set_values(table, codes, self._text)
        codes, table = exchange_values(self._schema, merged, codes, table, rng)
        bad = find_broken_rows(self._schema, codes, table) if self._schema.rules else np.zeros(table.num_rows, np.bool_)
        for condition in self._conditions:
            bad |= ~self._satisfies(condition, codes, table)
        return table, np.flatnonzero(bad)

    def _satisfies(self, condition: Condition, codes: Codes, table: Any) -> NDArray[np.bool_]:
        column = self._schema.column(condition.column)
        assert isinstance(column, Coded)  # noqa: S101 - conditions speak of these alone
        mine = codes[condition.column]
        inside: NDArray[np.bool_] = condition.inner[mine]
        if condition.spans:
            cells = RuleCells(column, mine, table[condition.column], self._schema.dialect)
            for low, high in condition.spans:
                inside = inside | cells.find_within(low, high)
        return inside

    def _number_keys(self, table: Any, first: int, last: int) -> Any:
        for index, name in enumerate(table.column_names):
            column = self._schema.column(name)
            if isinstance(column, Identifier):
                table = table.set_column(index, name, column.make(table.num_rows, first=first, last=last))
        return table


def resolve_unknown(schema: Schema, names: Collection[str], codes: Codes, rng: np.random.Generator) -> Codes:
    """Return codes of these columns, with the values that are written in place of unknown ones."""
    found: Codes = {}
    for name in sorted(names):  # in one order, so that a seed means the same rows in every process
        column = schema.column(name)
        assert isinstance(column, Coded)  # noqa: S101 - rules and conditions speak of these alone
        mine = {part: np.asarray(codes[part]) for part in column.parts}
        found |= dict(column.replace_unknown(mine[name], mine, rng)[1])
    return found


def redraw_values(
    schema: Schema, codes: Codes, table: Any, rng: np.random.Generator, *, text: Collection[str] = ()
) -> tuple[Any, NDArray[np.int64]]:
    """Draw values again, from the same codes, in rows that break a rule; return the rows and those still broken.

    Values that break an order change places with those of other rows first.
    """
    import pyarrow as pa

    codes, table = exchange_values(schema, codes, codes, table, rng)
    bad = np.flatnonzero(find_broken_rows(schema, codes, table))
    pieces, place, made = [table], np.arange(table.num_rows), table.num_rows
    for _ in range(_TRIES):
        if not len(bad):
            break
        some = {column: array[bad] for column, array in codes.items()}
        again = schema.decode(some, rng, as_="arrow", text=text)
        pieces.append(again)
        place[bad] = made + np.arange(len(bad))
        made, bad = made + len(bad), bad[find_broken_rows(schema, some, again)]
    whole = table if len(pieces) == 1 else pa.concat_tables(pieces).take(pa.array(place))
    return whole, bad


def _condition_model(release: Release, asked: list[Condition], weights: Mapping[str, NDArray[np.float64]]) -> Any:
    empty = [c.column for c in asked if not weights[c.column].any()]
    if empty and not any(c.part.any() for c in asked if c.column == empty[0]):
        raise SettingError(f"where: no value of column {empty[0]!r} satisfies the condition; correct it")
    if empty:
        raise SettingError(
            f"where: the values requested of column {empty[0]!r} were merged as too rare, so no row shows them; use a "
            "wider range, or rare='spread'"
        )
    try:
        return release.model.condition({column: np.minimum(chance, 1.0) for column, chance in weights.items()})
    except InputError as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(
            f"where: no row of this release can satisfy the conditions on {', '.join(weights)} "
            "together; use weaker ones"
        ) from None


class _StatedDependency:
    """A dependency with stated values: where the determined value was merged with others, rows show the stated one."""

    def __init__(self, release: Release, rule: Dependency) -> None:
        self._rule, self._codes = rule, rule.stated_codes(release.schema)
        sizes = np.arange(release.schema.domain[rule.determines])
        self._merged = release.recoding.apply(rule.determines, sizes)

    def apply(self, codes: Codes, merged: Codes) -> Codes:
        """Set the determined column to the stated value wherever that is among the values merged into its code."""
        if self._codes is None:
            return codes
        name = self._rule.determines
        wanted = self._codes[codes[self._rule.given[0]]]
        fits = (wanted >= 0) & (self._merged[np.maximum(wanted, 0)] == merged[name])
        return codes | {name: np.where(fits, wanted, codes[name]).astype(codes[name].dtype)}


class _LearnedDependency:
    """A learned dependency: one value for each code of the given columns, the same in all rows and chunks."""

    def __init__(self, release: Release, rule: Any, members: Mapping[str, Any]) -> None:
        schema, name = release.schema, rule.determines
        self._rule, self._shape, self._schema = rule, schema.domain.shape(rule.given), schema
        self._merged = find_determined(release.model, release.recoding, schema, rule)
        stands = np.arange(schema.domain[name])
        if name in members:  # the likeliest of the values that were merged stands for all of them
            found = members[name]
            ends = np.append(found.starts[1:], len(found.codes))
            best = [a + int(found.chances[a:b].argmax()) for a, b in zip(found.starts, ends, strict=True)]
            stands = found.codes[best]
        self._codes = np.where(self._merged >= 0, stands[np.maximum(self._merged, 0)], -1)
        self._values: Any = None
        self._members = None
        if len(rule.given) == 1 and rule.given[0] in release.recoding.columns:
            self._merged_shape = release.model.domain.shape(rule.columns)
            own = release.recoding.maps[rule.given[0]]
            known = np.flatnonzero(self._merged >= 0)
            key = np.ravel_multi_index((own[known], self._merged[known]), self._merged_shape)
            counts = np.bincount(key, minlength=int(np.prod(self._merged_shape)))
            self._members = known[np.argsort(key, kind="stable")], np.cumsum(counts) - counts, counts

    def _place(self, codes: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
        given = [np.asarray(codes[column], dtype=np.int64) for column in self._rule.given]
        place: NDArray[np.int64] = np.ravel_multi_index(given, self._shape)
        return place

    def apply(self, codes: Codes, merged: Codes, rng: np.random.Generator) -> Codes:
        """Set the determined column to the value that the given columns determine."""
        name = self._rule.determines
        codes = self._fit_given(codes, merged, rng)
        wanted, own = self._codes[self._place(codes)], codes[name]
        return codes | {name: np.where(wanted >= 0, wanted, own).astype(own.dtype)}

    def _fit_given(self, codes: Codes, merged: Codes, rng: np.random.Generator) -> Codes:
        """Choose, among merged values of the given column, one that determines the row's value, if there is one."""
        if self._members is None:
            return codes
        given, (order, starts, counts) = self._rule.given[0], self._members
        own, wanted = np.array(codes[given]), merged[self._rule.determines]
        key = np.ravel_multi_index((merged[given].astype(np.int64), wanted.astype(np.int64)), self._merged_shape)
        found = self._merged[own]
        rows = np.flatnonzero((found >= 0) & (found != wanted) & (counts[key] > 0))
        picked = starts[key[rows]] + (rng.random(len(rows)) * counts[key[rows]]).astype(np.int64)
        own[rows] = order[picked]
        return codes | {given: own}

    def set_values(self, table: Any, codes: Codes, text: Collection[str]) -> Any:
        """Set the determined column to one value inside its bin for all rows with the same given values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self._rule.determines
        column = self._schema.column(name)
        assert isinstance(column, Coded)  # noqa: S101 - checked when the schema was made
        if self._values is None:
            alone = replace(self._schema, columns=(column,), rules=())
            fixed = {name: np.maximum(self._codes, 0)}
            self._values = alone.decode(fixed, np.random.default_rng(0), as_="arrow", text=text)[name]
        place = self._place(codes)
        values = self._values.take(pa.array(place))
        chosen = pc.if_else(pa.array(self._codes[place] >= 0), values, table[name])
        return table.set_column(table.column_names.index(name), name, chosen)


# -- Values that were merged because too few rows had them, and the rules by which they get a value again.


RULES = ("spread", "other", "hierarchy", "even", "counts")
"""How a merged code is decoded: by shares of its values, as the column's "other", by groups of its first level, evenly,
or by noisy counts."""

_DEFAULT = "groups"
"""In a column with levels: groups of the hierarchy are spread, everything else is "other"."""


@dataclass(frozen=True, eq=False)
class Members:
    """The original codes of each merged code of a column, with their probabilities.

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
        """Return the probability of a condition by merged code; `part` is the part of each original code inside it."""
        inside: NDArray[np.float64] = np.add.reduceat(self.chances * part[self.codes], self.starts)
        return inside

    def spread(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distribute counts of merged codes over the original codes."""
        return np.bincount(self.codes, self.chances * counts[self._merged], minlength=self.size).astype(np.float64)

    def condition(self, part: NDArray[np.float64]) -> Members:
        """Condition the probabilities on `part`; a merged code that is never inside keeps its probabilities."""
        inside = self.weights(part)[self._merged]
        possible = inside > 0
        shares = self.chances * part[self.codes] / np.where(possible, inside, 1.0)
        return replace(self, chances=np.where(possible, shares, self.chances))

    def draw(self, merged: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        """Draw original codes: expected counts rounded at random, in random order among the rows of a merged code."""
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
    def _merged(self) -> NDArray[np.int64]:
        """The merged code of each entry of `codes`."""
        return np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.codes)))

    @cached_property
    def _possible(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.chances > 0)

    @cached_property
    def _group(self) -> NDArray[np.int64]:
        return self._merged[self._possible]

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


def find_members(
    recoding: Recoding,
    schema: Schema,
    measurements: Sequence[Measurement],
    rare: str | Mapping[str, str] | None = None,
) -> dict[str, Members]:
    """Find, by column, the original codes that are written for its merged codes.

    * "spread": a value of the merged group, in proportion to the column's noisy counts shrunk towards equal shares as
      far as the noise demands (James and Stein); equal shares where the noise hides all differences. In a column with
      an axis, in proportion to `fit_ordered_counts`.
    * "other": the column's code for unknown values: rare values do not look like data. Neighbours that were joined to
      intervals of an axis are not rare, and spread.
    * "hierarchy": a group of the column's first declared level in proportion to the noisy counts of its rare values,
      then any of these values.
    * "even": any value of the merged group, all alike (step 8 of NIST-MST).
    * "counts": in proportion to the noisy counts above 0, equal if there are none (PrivSyn).

    By default "other" where the column has such a value, else "spread": a number has none. Values that were merged
    because they are one group of the column's hierarchy are spread: the group is known, and refined here.

    **Privacy.** Post-processing of released measurements.

    Raises:
        SettingError: for an unknown rule or column, or a rule that a column does not allow.
    """
    chosen = _choose_rules(recoding, schema, rare)
    ordered = fit_ordered_counts(schema.domain, measurements, recoding, schema.code_groups, schema.rows_used)
    return {
        column: _find_column_members(column, rule, recoding, schema, measurements, ordered.get(column))
        for column, rule in chosen.items()
    }


def undo_merging(
    codes: Mapping[str, NDArray[Any]],
    recoding: Recoding,
    schema: Schema,
    measurements: Sequence[Measurement],
    rng: np.random.Generator,
    rare: str | Mapping[str, str] | None = None,
) -> dict[str, NDArray[Any]]:
    """Replace merged codes by original ones, by the rules of `find_members`."""
    members = find_members(recoding, schema, measurements, rare)
    return {column: members[column].draw(array, rng) if column in members else array for column, array in codes.items()}


def list_merged_values(recoding: Recoding, schema: Schema) -> dict[str, list[Any]]:
    """List by column the values that were merged because too few rows had them; codes where a value has no name.

    Neighbours that became intervals of an axis are not listed: the column's own marginal distinguishes them.
    """
    found = {}
    for name in recoding.columns:
        places = recoding.intervals(name, schema.code_groups.axis(name))
        rare = [code for group in recoding.merged_codes(name) if len(group) > 1 for code in group if code >= places]
        if rare:
            found[name] = _name_codes(name, rare, schema)
    return found


def _name_codes(name: str, codes: list[int], schema: Schema) -> list[Any]:
    column = _find_coded(schema, name)
    if column is None:
        return list(codes)
    labels = column.code_labels()
    known = {entry.code: _describe_entry(entry, labels) for entry in reversed(column.table()) if entry.part == name}
    return [known.get(code, code) for code in codes]


def _describe_entry(entry: Entry, labels: Sequence[str]) -> Any:
    if entry.what == "interval":
        return labels[entry.code]
    if entry.what in ("null", "unknown"):
        return {"null": "(missing)", "unknown": "(other)"}[entry.what]
    return entry.value if entry.label is None else entry.label


def _find_coded(schema: Schema, name: str) -> Coded | None:
    """Return the column whose codes these are; None for a further part of a column."""
    return next((column for column in schema.coded if column.name == name), None)


def _choose_rules(recoding: Recoding, schema: Schema, rare: str | Mapping[str, str] | None) -> dict[str, str]:
    named = rare is not None and not isinstance(rare, str)
    given = as_mapping("rare", rare, example='{"town": "spread"}, or one rule') if named else {}
    for name in given:
        if name not in schema.domain:
            raise SettingError(f"rare: there is no column {name!r}; the columns are {', '.join(schema.domain)}")
    rules = {}
    for name in recoding.columns:
        column = _find_coded(schema, name)
        wanted = rare if isinstance(rare, str) else given.get(name)
        rules[name] = _choose_rule(name, column, wanted)
    return rules


def _choose_rule(name: str, column: Coded | None, wanted: str | None) -> str:
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


def _find_column_members(
    name: str,
    rule: str,
    recoding: Recoding,
    schema: Schema,
    measurements: Sequence[Measurement],
    ordered: NDArray[np.float64] | None,
) -> Members:
    size = len(recoding.maps[name])
    column = _find_coded(schema, name)
    counts, sigma = _combine_counts(name, size, measurements)
    places = recoding.intervals(name, schema.code_groups.axis(name))
    codes, chances = [], []
    for group in recoding.merged_codes(name):
        apart = (rule == "other" and group[0] >= places) or (rule == _DEFAULT and not _is_one_group(column, group))
        if len(group) > 1 and apart and column is not None and column.other_code is not None:
            group, share = [column.other_code], np.ones(1)
        elif len(group) > 1 and rule == "hierarchy" and column is not None:
            level = next(iter(column.generalisations.values())).groups[group]
            share = _share_by_level(counts[group], sigma, level)
        elif rule == "even":
            share = np.full(len(group), 1 / len(group))
        elif rule == "counts":
            positive = np.maximum(counts[group], 0.0)
            share = positive / positive.sum() if positive.any() else np.full(len(group), 1 / len(group))
        elif ordered is not None and ordered[group].sum() > 0:
            share = ordered[group] / ordered[group].sum()
        else:
            share = _shrink(counts[group], sigma, np.ones(len(group)))
        codes.append(np.asarray(group, dtype=np.int64))
        chances.append(share)
    starts = np.cumsum([0, *map(len, codes)])[:-1]
    return Members(np.concatenate(codes), np.concatenate(chances), starts, size)


def _is_one_group(column: Coded | None, group: list[int]) -> bool:
    levels = [] if column is None else [level.groups[group] for level in column.generalisations.values()]
    return any(bool((level == level[0]).all()) for level in levels)


def _combine_counts(name: str, size: int, measurements: Sequence[Measurement]) -> tuple[NDArray[np.float64], float]:
    """Average a column's noisy counts over its declared codes by precision; sigma is infinite without any."""
    tables = [m for m in measurements if m.clique == (name,) and m.query is None and len(m.values) == size]
    if not tables:
        return np.zeros(size), np.inf
    return combine(tables)


def _share_by_level(counts: NDArray[np.float64], sigma: float, level: NDArray[np.int64]) -> NDArray[np.float64]:
    _, place, sizes = np.unique(level, return_inverse=True, return_counts=True)
    groups = _shrink(np.bincount(place, counts).astype(np.float64), sigma, sizes.astype(np.float64))
    return groups[place] / sizes[place]


def _shrink(counts: NDArray[np.float64], sigma: float, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares by noisy counts of cells that hold `sizes` values each, shrunk towards equal shares.

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


# -- Decoding under a condition: bins are cut to the range, so that values are drawn inside it only.


def narrow_bins(schema: Schema, asked: Sequence[Condition]) -> Schema:
    """Make the schema that decodes rows under conditions; codes keep their meaning, bins are cut to the conditions.

    Columns with several ranges, with declared points or with a rule for the top bin are not changed: their values are
    drawn as usual and checked afterwards.
    """
    spans = {condition.column: condition.spans[0] for condition in asked if len(condition.spans) == 1}
    columns = [_narrow_column(column, spans.get(column.name)) for column in schema.columns]
    return replace(schema, columns=tuple(columns), rules=())


def _narrow_column(column: Any, span: tuple[Any, Any] | None) -> Any:
    if span is None or not isinstance(column, AxisColumn) or len(column.parts) > 1:
        return column
    axis = column.axis
    if axis.points is not None or axis.top is not None:
        return column
    copy = column.model_copy()
    copy.__dict__["axis"] = _cut_axis(axis, *span)
    return copy


def _cut_axis(axis: Axis, low: Any, high: Any) -> Axis:
    lower, upper = axis.lower.copy(), axis.upper.copy()
    touched = ~axis.spike & (axis.lower <= high) & ((axis.upper > low) if axis.grain else (axis.upper >= low))
    if axis.grain:
        steps = -((axis.lower - np.maximum(axis.lower, low)) // axis.grain)
        first: NDArray[Any] = axis.lower + steps * axis.grain
        last = np.minimum(axis.upper, high + 1)
        touched &= first < last
    else:
        first, last = np.maximum(axis.lower, low), np.minimum(axis.upper, high)
    lower[touched], upper[touched] = first[touched], last[touched]
    return Axis(lower, upper, axis.spike, axis.grain, axis.top, axis.points, axis.holes)
