"""Small sources of coded rows for tests, and one that must not be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, CodeGroups, Domain
from understudy.schema import PrivacyUnit
from understudy.tabulate import Counts, marginals


class CodedSource:
    """Coded rows with the `Source` protocol; each marginal is counted once and kept.

    Args:
        sizes: the columns and their numbers of codes.
        rows: the rows, each a sequence of codes in the order of the columns. They are taken as bounded already.
        max_rows: k; above 1 the unit is a column named "unit" that is not among the coded ones.
        rows_public: the declared number of rows, which makes neighbours replace a unit instead of adding one.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        rows: Sequence[Sequence[int]],
        *,
        max_rows: int = 1,
        rows_public: int | None = None,
    ) -> None:
        self.domain, self.code_groups = Domain(sizes), CodeGroups()
        self.unit = PrivacyUnit() if max_rows == 1 else PrivacyUnit("unit", max_rows)
        self.rows_public, self.rows_used = rows_public, rows_public if max_rows == 1 else None
        table = np.array(rows, dtype=np.int64).reshape(len(rows), len(self.domain))
        self._codes = {column: table[:, i].astype(np.uint32) for i, column in enumerate(self.domain)}
        self._known: dict[Clique, Counts] = {}

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts of each clique's cells, in the order of the cliques."""
        wanted = [self.domain.check(clique) for clique in cliques]
        fresh = [clique for clique in wanted if clique not in self._known]
        self._known.update(marginals(self._codes, self.domain, fresh))
        return iter([(clique, _copy(self._known[clique])) for clique in wanted])

    def codes(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Return the coded rows, in one piece."""
        yield self._codes


class SealedSource(CodedSource):
    """A source that must not be read: a refusal must come before rows are read."""

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Fail: correct code does not get here.

        Raises:
            AssertionError: always.
        """
        raise AssertionError("rows were read")

    def codes(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Fail: correct code does not get here.

        Raises:
            AssertionError: always.
        """
        raise AssertionError("rows were read")


def _copy(counts: Counts) -> Counts:
    return counts.copy() if isinstance(counts, np.ndarray) else counts


class WordSource:
    """Rows of one column of texts, `w`, with the protocol of discovery; taken as bounded already.

    Args:
        values: how many rows have each text.
        max_rows: k; above 1 the unit is a column named "unit".
        rows_public: the declared number of rows.
    """

    def __init__(self, values: Mapping[str, int], *, max_rows: int = 1, rows_public: int | None = None) -> None:
        self.domain, self.code_groups = Domain({}), CodeGroups()
        self.unit = PrivacyUnit() if max_rows == 1 else PrivacyUnit("unit", max_rows)
        self.rows_public, self.rows_used = rows_public, rows_public if max_rows == 1 else None
        self.words = ("w",)
        self._values = dict(values)

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Count nothing, because there are no coded columns."""
        return iter(())

    def values(self, column: str) -> dict[str, int]:
        """Return exact numbers of rows by text."""
        return {text: count for text, count in self._values.items() if count}
