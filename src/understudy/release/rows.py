"""Rows from a release: drawn from the model, given what was asked for, and held to the schema's rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import InputError, SettingError
from understudy.mechanism.learned import determined, unstated
from understudy.release.conditions import Condition, conditions, parsed
from understudy.release.exchange import exchanged
from understudy.release.narrow import narrowed
from understudy.release.rare import members_of
from understudy.schema.column import Coded, Identifier
from understudy.schema.rules import Dependency, RuleCells, find_broken_rows

if TYPE_CHECKING:
    from understudy.release.artefact import Release

CHUNK_ROWS = 1 << 20
"""How many rows are made at a time where rows are streamed; part of what a seed means."""
_TRIES = 40  # of drawing values inside bins and merged codes for rows that break a rule
_ROUNDS = 100  # of drawing other rows instead of those that are left

Codes = dict[str, NDArray[Any]]


def check_size(rows: int, columns: int) -> None:
    """Refuse what cannot fit: under a tiny budget the noisy number of rows may be millions of millions.

    Raises:
        SettingError: when so many rows do not fit in memory.
    """
    import psutil

    if rows * columns * 8 > max(psutil.virtual_memory().available, 1 << 28):
        raise SettingError(f"{rows} rows do not fit in memory; say how many are wanted (rows=, on the command line -n)")


class Maker:
    """Makes rows of a release, again and again with the same settings.

    A row is drawn from the model; merged codes become values, values are drawn inside bins. Values that then break an
    order change places with those of other rows. What still breaks a rule or misses the condition is drawn again from
    the same codes, and what cannot be mended is replaced by other rows.

    **Guarantees.** No row breaks a rule of the schema; every row satisfies the condition. Rows have the model's
    distribution given both: the condition is applied to the model by Bayes' rule, not by drawing and throwing away.
    **Privacy.** Post-processing.

    Args:
        release: the release.
        where: conditions that every row satisfies, as in `Release.answer`.
        rare: what stands for rare values, as in `Release.sample`.
        layout: the types of the columns; text where the table's files are.

    Raises:
        SettingError: for conditions that do not fit the schema, that no row can satisfy, or that the model cannot take.
    """

    def __init__(
        self,
        release: Release,
        *,
        where: str | Mapping[str, Any] | None = None,
        rare: str | Mapping[str, str] | None = None,
        layout: Mapping[str, str] | None = None,
    ) -> None:
        schema = release.schema
        asked = conditions(schema, parsed(where) if isinstance(where, str) else where or {})
        members = members_of(release.recoding, schema, release.measurements, rare)
        weights = {c.column: members[c.column].weights(c.part) if c.column in members else c.part for c in asked}
        self._schema, self._layout, self._asked = schema, layout or {}, asked
        self._model = release.model if not asked else _given(release, asked, weights)
        parts = {c.column: c.part for c in asked}
        self._members = {name: m.given(parts[name]) if name in parts else m for name, m in members.items()}
        self._narrow = narrowed(schema, asked)
        self._stated = [_Stated(release, rule) for rule in schema.rules if isinstance(rule, Dependency)]
        self._determined = [_Determined(release, rule, members) for rule in unstated(schema)]
        self._total = release.model.total

    def expected(self, rows: int) -> int:
        """How many of so many unconditional rows would satisfy the condition; at least 1 of any."""
        return max(min(rows, 1), round(rows * self._model.total / self._total)) if self._asked else rows

    def rows(self, count: int, rng: np.random.Generator, *, first: int = 1, last: int | None = None) -> Any:
        """An arrow table of so many rows; keys run from `first`, and are written as if the last were `last`."""
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
                "hardly any row obeys the schema's rules and the conditions together; ask for less, correct the "
                "rules, or use finer bins for the columns that they name"
            )
        whole = table if len(pieces) == 1 else pa.concat_tables(pieces).take(pa.array(place))
        return self._numbered(whole, first, first + count - 1 if last is None else last)

    def chunks(self, count: int, seed: int | None) -> Iterator[Any]:
        """The rows in arrow tables of at most `CHUNK_ROWS`; up to that many are the rows of `rows` with that seed.

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
        """Rows of merged codes, and the places of those that break a rule or miss the condition."""
        codes = {
            column: self._members[column].drawn(array, rng) if column in self._members else array
            for column, array in merged.items()
        }
        for stated in self._stated:
            codes = stated.applied(codes, merged)
        for rule in self._determined:
            codes = rule.applied(codes, merged, rng)
        codes = self._known(codes, rng)
        table = self._narrow.decode(codes, rng, as_="arrow", layout=self._layout)
        for rule in self._determined:
            table = rule.valued(table, codes, self._layout)
        codes, table = exchanged(self._schema, merged, codes, table, rng)
        bad = find_broken_rows(self._schema, codes, table) if self._schema.rules else np.zeros(table.num_rows, np.bool_)
        for condition in self._asked:
            bad |= ~self._satisfied(condition, codes, table)
        return table, np.flatnonzero(bad)

    def _known(self, codes: Codes, rng: np.random.Generator) -> Codes:
        """Unknown codes that a column cannot show become what stands for them now, so that rules see it."""
        names = {name for rule in self._schema.rules for name in rule.columns} | {c.column for c in self._asked}
        for name in sorted(names):  # in one order, so that a seed means the same rows in every process
            column = self._schema.column(name)
            assert isinstance(column, Coded)  # noqa: S101 - rules and conditions speak of these alone
            mine = {part: np.asarray(codes[part]) for part in column.parts}
            codes = codes | dict(column.replace_unknown(mine[name], mine, rng)[1])
        return codes

    def _satisfied(self, condition: Condition, codes: Codes, table: Any) -> NDArray[np.bool_]:
        column = self._schema.column(condition.column)
        assert isinstance(column, Coded)  # noqa: S101 - conditions speak of these alone
        mine = codes[condition.column]
        inside: NDArray[np.bool_] = condition.inner[mine]
        if condition.spans:
            cells = RuleCells(column, mine, table[condition.column], self._schema.dialect)
            for low, high in condition.spans:
                inside = inside | cells.within(low, high)
        return inside

    def _numbered(self, table: Any, first: int, last: int) -> Any:
        for index, name in enumerate(table.column_names):
            column = self._schema.column(name)
            if isinstance(column, Identifier):
                table = table.set_column(index, name, column.make(table.num_rows, first=first, last=last))
        return table


def _given(release: Release, asked: list[Condition], weights: Mapping[str, NDArray[np.float64]]) -> Any:
    empty = [c.column for c in asked if not weights[c.column].any()]
    if empty and not any(c.part.any() for c in asked if c.column == empty[0]):
        raise SettingError(f"where: no value of column {empty[0]!r} satisfies the condition; correct it")
    if empty:
        raise SettingError(
            f"where: too few rows had what is asked of column {empty[0]!r} to tell it apart, so no row shows it; ask "
            "for a wider range, or use rare='spread'"
        )
    try:
        return release.model.condition({column: np.minimum(chance, 1.0) for column, chance in weights.items()})
    except InputError as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(
            f"where: no row of this release can have what is asked of {', '.join(weights)} together; ask for less"
        ) from None


class _Stated:
    """A dependency with stated values: of merged values, the stated one is what stands for them in a row."""

    def __init__(self, release: Release, rule: Dependency) -> None:
        self._rule, self._codes = rule, rule.stated_codes(release.schema)
        sizes = np.arange(release.schema.domain[rule.determines])
        self._merged = release.recoding.apply(rule.determines, sizes)

    def applied(self, codes: Codes, merged: Codes) -> Codes:
        """The codes, with the stated value wherever it is one of those that the determined code stands for."""
        if self._codes is None:
            return codes
        name = self._rule.determines
        wanted = self._codes[codes[self._rule.given[0]]]
        fits = (wanted >= 0) & (self._merged[np.maximum(wanted, 0)] == merged[name])
        return codes | {name: np.where(fits, wanted, codes[name]).astype(codes[name].dtype)}


class _Determined:
    """A dependency that was learned: the value of every code of the given columns, the same in all rows and chunks."""

    def __init__(self, release: Release, rule: Any, members: Mapping[str, Any]) -> None:
        schema, name = release.schema, rule.determines
        self._rule, self._shape, self._schema = rule, schema.domain.shape(rule.given), schema
        self._merged = determined(release.model, release.recoding, schema, rule)
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

    def applied(self, codes: Codes, merged: Codes, rng: np.random.Generator) -> Codes:
        """The codes, with what is determined in its place."""
        name = self._rule.determines
        codes = self._fitting(codes, merged, rng)
        wanted, own = self._codes[self._place(codes)], codes[name]
        return codes | {name: np.where(wanted >= 0, wanted, own).astype(own.dtype)}

    def _fitting(self, codes: Codes, merged: Codes, rng: np.random.Generator) -> Codes:
        """Of merged values of a given column, one that determines what the row has; where there is none, as it is."""
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

    def valued(self, table: Any, codes: Codes, layout: Mapping[str, str]) -> Any:
        """The table, with one value inside its bin for all rows that agree on what is given."""
        import pyarrow as pa
        import pyarrow.compute as pc

        name = self._rule.determines
        column = self._schema.column(name)
        assert isinstance(column, Coded)  # noqa: S101 - checked when the schema was made
        if self._values is None:
            alone = replace(self._schema, columns=(column,), rules=())
            fixed = {name: np.maximum(self._codes, 0)}
            self._values = alone.decode(fixed, np.random.default_rng(0), as_="arrow", layout=layout)[name]
        place = self._place(codes)
        values = self._values.take(pa.array(place))
        chosen = pc.if_else(pa.array(self._codes[place] >= 0), values, table[name])
        return table.set_column(table.column_names.index(name), name, chosen)
