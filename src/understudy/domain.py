"""The coded domain: columns and their sizes, in order. Public by construction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from understudy.errors import SchemaError

Clique: TypeAlias = tuple[str, ...]
"""A set of columns, written as a tuple; the order of the tuple is the order of a table's axes."""


class Domain(Mapping[str, int]):
    """Columns with the number of codes of each: code ``0 .. size-1``.

    >>> domain = Domain({"age": 85, "sex": 2})
    >>> domain.shape(("sex", "age")), domain.cells(("sex", "age"))
    ((2, 85), 170)
    """

    __slots__ = ("_sizes",)

    def __init__(self, sizes: Mapping[str, int]) -> None:
        for column, size in sizes.items():
            if not isinstance(column, str) or not column:
                raise SchemaError("a domain's columns are non-empty strings; rename the column")
            if isinstance(size, bool) or int(size) != size or size < 1:
                raise SchemaError(f"column {column!r}: a size must be a whole number of at least 1")
        self._sizes = {column: int(size) for column, size in sizes.items()}

    def __getitem__(self, column: str) -> int:
        return self._sizes[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        return f"Domain({self._sizes})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and list(self._sizes.items()) == list(other._sizes.items())

    def __hash__(self) -> int:
        return hash(tuple(self._sizes.items()))

    @property
    def columns(self) -> Clique:
        """All columns, in order."""
        return tuple(self._sizes)

    def shape(self, clique: Iterable[str]) -> tuple[int, ...]:
        """The sizes of a clique's columns, in the order asked."""
        return tuple(self._sizes[column] for column in clique)

    def cells(self, clique: Iterable[str] | None = None) -> int:
        """How many cells a clique's table has, or the whole domain: a Python int, so it never overflows."""
        return math.prod(self._sizes.values() if clique is None else self.shape(clique))

    def project(self, clique: Iterable[str]) -> Domain:
        """The domain of these columns alone, in the order asked."""
        return Domain({column: self._sizes[column] for column in clique})

    def canonical(self, clique: Iterable[str]) -> Clique:
        """The same columns in the domain's order: one name for each set of columns."""
        wanted = set(clique)
        return tuple(column for column in self._sizes if column in wanted)

    def check(self, clique: Iterable[str]) -> Clique:
        """The clique as a tuple, after checking that its columns exist and none is repeated.

        Raises:
            SchemaError: naming the column.
        """
        clique = (clique,) if isinstance(clique, str) else tuple(clique)
        for column in clique:
            if column not in self._sizes:
                raise SchemaError(f"unknown column {column!r}; the columns are {', '.join(self._sizes)}")
        if len(set(clique)) != len(clique):
            raise SchemaError(f"clique {clique}: a column is named twice; name each column once")
        return clique
