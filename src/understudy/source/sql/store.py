"""Coded columns on disk: written once in pieces, then only counted. Memory does not grow with the number of rows."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.schema.kinds.table import compact
from understudy.tabulate import DENSE_CELLS, Counts, SparseCounts, marginals

_SPAN_ROWS = 1 << 24  # rows whose cells are sorted at once: 128 MiB


class CodeStore:
    """One file of small whole numbers for each coded column.

    The files have no names: the operating system gives their space back when the process ends, however it ends.

    **Privacy.** As private as the rows.
    """

    def __init__(self, domain: Domain, folder: Path) -> None:
        self._domain = domain
        self._types = {column: np.dtype(compact(size)) for column, size in domain.items()}
        self._files: dict[str, Any] = {column: tempfile.TemporaryFile(dir=folder) for column in domain}  # noqa: SIM115
        self._codes: dict[str, NDArray[Any]] | None = None
        self._finish = weakref.finalize(self, _close, list(self._files.values()))

    def append(self, codes: Mapping[str, NDArray[Any]]) -> None:
        """Add rows: one array of codes for each column of the domain, all of one length."""
        for column, kind in self._types.items():
            self._files[column].write(np.ascontiguousarray(codes[column], kind).data)

    def close(self) -> None:
        """Give the space back."""
        self._codes = None
        self._finish()

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Exact counts of each clique's cells, in the order asked.

        Raises:
            SchemaError: before anything is counted, for an unknown column or a table too large to index.
        """
        codes = self._frozen()
        asked = [self._domain.check(clique) for clique in cliques]
        marginals({column: array[:0] for column, array in codes.items()}, self._domain, asked)
        return self._answers(codes, asked)

    def _answers(self, codes: Mapping[str, NDArray[Any]], asked: list[Clique]) -> Iterator[tuple[Clique, Counts]]:
        dense = [clique for clique in asked if self._domain.cells(clique) <= DENSE_CELLS]
        answers = marginals(codes, self._domain, dense)
        for clique in asked:
            if self._domain.cells(clique) <= DENSE_CELLS:
                yield next(answers)
            else:
                yield clique, self._sparse(codes, clique)

    def _sparse(self, codes: Mapping[str, NDArray[Any]], clique: Clique) -> SparseCounts:
        """A large table span by span: only cells that hold a row are ever in memory, however many rows there are."""
        found = SparseCounts(np.zeros(0, np.int64), np.zeros(0, np.int64), self._domain.cells(clique))
        for start in range(0, len(codes[clique[0]]), _SPAN_ROWS):
            part = {column: codes[column][start : start + _SPAN_ROWS] for column in clique}
            ((_, more),) = marginals(part, self._domain, [clique])
            assert isinstance(more, SparseCounts)  # noqa: S101 - its size says so
            found = _together(found, more)
        return found

    def _frozen(self) -> dict[str, NDArray[Any]]:
        if self._codes is None:
            for file in self._files.values():
                file.flush()
            self._codes = {column: _mapped(file, self._types[column]) for column, file in self._files.items()}
        return self._codes


def _close(files: list[Any]) -> None:
    for file in files:
        file.close()


def _mapped(file: Any, kind: np.dtype[Any]) -> NDArray[Any]:
    """The file as an array that the operating system reads piece by piece; an empty file cannot be mapped."""
    return np.memmap(file, kind, "r") if file.tell() else np.zeros(0, kind)


def _together(one: SparseCounts, two: SparseCounts) -> SparseCounts:
    cells, place = np.unique(np.concatenate((one.cells, two.cells)), return_inverse=True)
    counts = np.zeros(len(cells), np.int64)
    np.add.at(counts, place, np.concatenate((one.counts, two.counts)))
    return SparseCounts(cells, counts, one.size)
