"""Recodings: maps that merge codes into coarser ones. Applied inside the gate, undone by the release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Domain
from understudy.errors import SchemaError
from understudy.schema.column import smallest_dtype


class Recoding:
    """An array ``code -> merged code`` for each recoded column; other columns are unchanged.

    **Privacy.** A recoding is public: it is made of declared facts or of released (noisy) measurements. It is applied
    to rows inside the gate; undoing it is post-processing.

    >>> import numpy as np
    >>> recoding = Recoding({"city": np.array([0, 1, 1, 1])})
    >>> recoding.recode(Domain({"city": 4, "sex": 2}))
    Domain({'city': 2, 'sex': 2})
    >>> recoding.merged_codes("city")
    [[0], [1, 2, 3]]
    """

    __slots__ = ("_maps",)

    def __init__(self, maps: Mapping[str, NDArray[Any]]) -> None:
        self._maps = {column: _check_map(column, array) for column, array in maps.items()}

    @classmethod
    def identity(cls) -> Recoding:
        """Return the recoding that merges nothing."""
        return cls({})

    @property
    def maps(self) -> dict[str, NDArray[np.int64]]:
        """A copy of the arrays, by column."""
        return {column: array.copy() for column, array in self._maps.items()}

    @property
    def columns(self) -> tuple[str, ...]:
        """The recoded columns."""
        return tuple(self._maps)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recoding) or self._maps.keys() != other._maps.keys():
            return False
        return all(np.array_equal(array, other._maps[column]) for column, array in self._maps.items())

    def __hash__(self) -> int:
        return hash(tuple(sorted((column, array.tobytes()) for column, array in self._maps.items())))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{column}: {len(array)} -> {_size(array)}" for column, array in self._maps.items())
        return f"Recoding({sizes})"

    def recode(self, domain: Domain) -> Domain:
        """Return the domain after merging.

        Raises:
            SchemaError: if an array does not fit the domain.
        """
        for column, array in self._maps.items():
            if column not in domain:
                raise SchemaError(f"recoding: the domain has no column {column!r}; recode declared columns only")
            if len(array) != domain[column]:
                raise SchemaError(
                    f"recoding of column {column!r}: {len(array)} entries for {domain[column]} codes; give one per code"
                )
        sizes = {c: _size(self._maps[c]) if c in self._maps else size for c, size in domain.items()}
        return Domain(sizes, [rule.merge_codes(self._maps) for rule in domain.rules])

    def apply(self, column: str, codes: NDArray[Any]) -> NDArray[Any]:
        """Merge the codes of one column; the array itself is returned if the column is not recoded."""
        array = self._maps.get(column)
        return codes if array is None else array.astype(smallest_dtype(_size(array)))[codes]

    def merged_codes(self, column: str) -> list[list[int]]:
        """Return the original codes of each merged code.

        Raises:
            SchemaError: if the column has no array.
        """
        if column not in self._maps:
            raise SchemaError(f"recoding: column {column!r} is not recoded; ask for one of {', '.join(self._maps)}")
        array = self._maps[column]
        order = np.argsort(array, kind="stable")
        return [part.tolist() for part in np.split(order, np.cumsum(np.bincount(array))[:-1])]

    def intervals(self, column: str, places: int) -> int:
        """Return `places` if the first `places` codes became intervals of an axis, else 0."""
        array = self._maps.get(column, np.zeros(0, dtype=np.int64))
        apart = not np.isin(array[places:], array[:places]).any()
        return places if len(array) and apart and bool((np.diff(array[:places]) >= 0).all()) else 0

    def to_dict(self) -> dict[str, list[int]]:
        """Return plain lists for JSON."""
        return {column: array.tolist() for column, array in self._maps.items()}

    @classmethod
    def from_dict(cls, maps: Mapping[str, list[int]]) -> Recoding:
        """Return the recoding that `to_dict` wrote.

        Raises:
            SchemaError: if an entry is not a list of codes.
        """
        return cls({column: np.asarray(array) for column, array in maps.items()})


def _check_map(column: str, array: NDArray[Any]) -> NDArray[np.int64]:
    array = np.asarray(array)
    if array.ndim != 1 or array.size == 0 or not np.issubdtype(array.dtype, np.integer):
        raise SchemaError(f"recoding of column {column!r}: give a one-dimensional array of whole numbers, one per code")
    used = np.unique(array)
    if used[0] != 0 or used[-1] != len(used) - 1:
        raise SchemaError(f"recoding of column {column!r}: merged codes must be 0 .. m-1 without gaps; renumber them")
    frozen = array.astype(np.int64)
    frozen.flags.writeable = False
    return frozen


def _size(array: NDArray[np.int64]) -> int:
    return int(array.max()) + 1
