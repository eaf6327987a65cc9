"""One pass over a column for a draft: its distinct values with their counts, and what they could be read as."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.schema.format.dialect import Dialect
from understudy.schema.kinds.text import EXACT, as_text, numbers
from understudy.schema.kinds.times import dates, datetimes


@dataclass(frozen=True, eq=False)
class Profile:
    """What a column holds.

    **Privacy.** As private as the rows.

    Attributes:
        texts: distinct non-empty cells, as text.
        counts: how many rows hold each.
        empty: how many cells are empty.
        typed: "boolean", "date", "datetime", "duration" or "nested" (lists, bytes) where the frame says so, "number" or
            "text" otherwise.
        dialect: how numbers are written.
        span: the least and greatest moment of a typed column, in microseconds.
    """

    texts: list[str]
    counts: NDArray[np.int64]
    empty: int
    typed: str
    dialect: Dialect
    span: tuple[int, int] = (0, 0)

    @property
    def filled(self) -> int:
        """How many cells are not empty."""
        return int(self.counts.sum())

    @property
    def distinct(self) -> int:
        """How many different cells there are."""
        return len(self.texts)

    @cached_property
    def distinct_texts(self) -> frozenset[str]:
        """The distinct cells, to look one up."""
        return frozenset(self.texts)

    @cached_property
    def _array(self) -> Any:
        import pyarrow as pa

        return pa.array(self.texts, pa.string())

    @cached_property
    def numbers(self) -> NDArray[np.float64]:
        """Each distinct cell as a number; NaN where it is none, or no finite one."""
        parsed = numbers(self._array, self.dialect.decimal, self.dialect.group)
        return np.where(np.isfinite(parsed), parsed, np.nan)

    @cached_property
    def numeric(self) -> float:
        """The share of filled cells that are numbers."""
        return float(self.counts[~np.isnan(self.numbers)].sum() / max(self.filled, 1))

    @cached_property
    def whole(self) -> bool:
        """Whether all numbers are whole."""
        found = self.numbers[~np.isnan(self.numbers)]
        return bool(len(found)) and bool((found == np.rint(found)).all())

    @cached_property
    def leading_zeros(self) -> bool:
        """Whether numbers are written like 007: a code, not an amount."""
        import pyarrow.compute as pc

        return bool(pc.any(pc.match_substring_regex(self._array, r"^\s*0[0-9]")).as_py())

    @cached_property
    def long(self) -> bool:
        """Whether most cells are whole numbers of more digits than floating point tells apart: codes, not amounts."""
        return bool(self.whole and 2 * self.counts[np.abs(self.numbers) >= EXACT].sum() > self.filled)

    @cached_property
    def decimals(self) -> int | None:
        """The most decimals any number has; None when there are too many to be meant."""
        found = self.numbers[~np.isnan(self.numbers)]
        for places in range(7):
            if np.allclose(found, np.round(found, places), rtol=0, atol=1e-9):
                return places
        return None

    def values(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Distinct numbers in ascending order, with their counts."""
        real = ~np.isnan(self.numbers)
        distinct, place = np.unique(self.numbers[real], return_inverse=True)
        return distinct, np.bincount(place, weights=self.counts[real], minlength=len(distinct)).astype(np.int64)

    def moments(self, pattern: str | None) -> tuple[NDArray[np.int64], NDArray[np.bool_], bool]:
        """Distinct cells as days, which of them are dates or times, and whether any has a time of day."""
        days, valid = dates(self._array, pattern)
        if pattern is not None or not valid.any():
            return days, valid, pattern is not None and "%M" in pattern
        moments, also = datetimes(self._array, None)
        return days, valid, bool(((moments % 86_400_000_000 != 0) & also).any())


def profile(cells: Any, dialect: Dialect) -> Profile:
    """Look through one arrow column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, typed, span = cells.type, "text", (0, 0)
    if pa.types.is_dictionary(kind):
        cells, kind = cells.dictionary_decode(), kind.value_type
    if pa.types.is_boolean(kind):
        typed = "boolean"
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        typed = "date" if pa.types.is_date(kind) else "datetime" if pa.types.is_timestamp(kind) else "duration"
        unit = pa.duration("us") if typed == "duration" else pa.timestamp("us")
        ends = pc.min_max(cells.cast(unit, safe=False).cast(pa.int64())).as_py()
        span = (ends["min"] or 0, ends["max"] or 0)
    elif pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        typed = "nested"
    text = pc.fill_null(pc.cast(as_text(cells, exact=True), pa.string()), "")
    table = pc.value_counts(text)
    texts, counts = table.field("values").to_pylist(), np.asarray(table.field("counts"), dtype=np.int64)
    if pa.types.is_floating(kind):
        texts = [text if text != "nan" else "" for text in texts]
    blank = np.asarray([not text.strip() for text in texts], dtype=np.bool_)
    kept = [text for text, empty in zip(texts, blank, strict=True) if not empty]
    return Profile(kept, counts[~blank], int(counts[blank].sum()), typed, dialect, span)
