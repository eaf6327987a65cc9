"""The coded domain: columns, their sizes and what cannot occur together. Public by construction."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from numbers import Integral, Real
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.errors import SchemaError

Clique: TypeAlias = tuple[str, ...]
"""A set of columns, written as a tuple; the order of the tuple is the order of a table's axes."""


class Forbidden:
    """Cells of a clique that cannot occur (structural zeros), computed when they are first needed.

    Args:
        clique: the columns, in the order of the mask's axes.
        make: returns the mask, True for a cell that cannot occur.
    """

    def __init__(self, clique: Clique, make: Callable[[], NDArray[np.bool_]]) -> None:
        self.clique = clique
        self._make = make

    @cached_property
    def mask(self) -> NDArray[np.bool_]:
        """The mask, with one axis per column."""
        return np.asarray(self._make(), dtype=np.bool_)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Forbidden) and self.clique == other.clique and np.array_equal(self.mask, other.mask)

    def __hash__(self) -> int:
        return hash(self.clique)  # without computing the mask

    def merge_codes(self, maps: Mapping[str, NDArray[np.int64]]) -> Forbidden:
        """Return the forbidden cells over merged codes: a merged cell is forbidden if all of its cells are."""
        mask = self.mask
        for axis, column in enumerate(self.clique):
            if column in maps:
                order = np.argsort(maps[column], kind="stable")
                starts = np.flatnonzero(np.diff(maps[column][order], prepend=-1))
                mask = np.logical_and.reduceat(mask.take(order, axis=axis), starts, axis=axis)
        return Forbidden(self.clique, lambda: mask)


class Domain(Mapping[str, int]):
    """Columns with their numbers of codes, ``0 .. size-1``, and rules about combinations that cannot occur.

    Two domains are equal if their columns, sizes and rules are equal, in order.

    >>> domain = Domain({"age": 85, "sex": 2})
    >>> domain.shape(("sex", "age")), domain.cells(("sex", "age"))
    ((2, 85), 170)
    """

    __slots__ = ("_rules", "_sizes")

    def __init__(self, sizes: Mapping[str, int], rules: Iterable[Forbidden] = ()) -> None:
        if not isinstance(sizes, Mapping):
            raise SchemaError("a domain is a mapping of columns to their sizes, as in {'sex': 2, 'age': 85}")
        for column, size in sizes.items():
            if not isinstance(column, str) or not column:
                raise SchemaError("a domain's columns are non-empty strings; rename the column")
            if not _is_size(size):
                raise SchemaError(f"column {column!r}: a size must be a whole number of at least 1")
        if not isinstance(rules, Iterable):
            raise SchemaError("a domain's rules are a list; leave them out for none")
        self._sizes = {column: int(size) for column, size in sizes.items()}
        self._rules = tuple(rules)

    def __getitem__(self, column: str) -> int:
        return self._sizes[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        return f"Domain({self._sizes})"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Domain) or list(self._sizes.items()) != list(other._sizes.items()):
            return False
        return self._rules == other._rules

    def __hash__(self) -> int:
        return hash((tuple(self._sizes.items()), self._rules))

    @property
    def columns(self) -> Clique:
        """All columns, in order."""
        return tuple(self._sizes)

    def shape(self, clique: Iterable[str]) -> tuple[int, ...]:
        """Return the sizes of a clique's columns, in the given order."""
        return tuple(map(self._sizes.__getitem__, clique))

    def cells(self, clique: Iterable[str] | None = None) -> int:
        """Return the number of cells of a clique, or of the whole domain; a Python int, so it never overflows."""
        return math.prod(self._sizes.values() if clique is None else map(self._sizes.__getitem__, clique))

    @property
    def rules(self) -> tuple[Forbidden, ...]:
        """The rules: cells that cannot occur."""
        return self._rules

    @property
    def forbidden(self) -> dict[Clique, NDArray[np.bool_]]:
        """The cells that cannot occur, by clique; cliques without such cells are left out."""
        found: dict[Clique, NDArray[np.bool_]] = {}
        for rule in self._rules:
            if rule.mask.any():
                found[rule.clique] = found[rule.clique] | rule.mask if rule.clique in found else rule.mask
        return found

    def project(self, clique: Iterable[str]) -> Domain:
        """Return the domain of these columns, in the given order."""
        columns = self.check(tuple(clique) if isinstance(clique, str) else clique)  # "ab": two columns of one letter
        inside = [rule for rule in self._rules if set(rule.clique) <= set(columns)]
        return Domain({column: self._sizes[column] for column in columns}, inside)

    def add_rules(self, rules: Iterable[Forbidden]) -> Domain:
        """Return the domain with further rules."""
        return Domain(self._sizes, (*self._rules, *rules))

    def canonical(self, clique: Iterable[str]) -> Clique:
        """Return the clique with its columns in the domain's order."""
        wanted = set(clique)
        return tuple(column for column in self._sizes if column in wanted)

    def check(self, clique: Iterable[str]) -> Clique:
        """Return the clique as a tuple; check that its columns exist and none is repeated.

        Raises:
            SchemaError: if a column is unknown or repeated.
        """
        try:
            clique = (clique,) if isinstance(clique, str) else tuple(clique)
        except TypeError:
            raise SchemaError("a clique is a tuple of columns, as in ('sex', 'age')") from None
        for column in clique:
            if not isinstance(column, str) or column not in self._sizes:
                raise SchemaError(f"unknown column {column!r}; the columns are {', '.join(self._sizes)}")
        if len(set(clique)) != len(clique):
            raise SchemaError(f"clique {clique}: a column is named twice; name each column once")
        return clique


class CodeGroups:
    """Hierarchies and axes of columns, which the schema declares; used for merging codes and for estimation.

    Args:
        levels: the declared hierarchy of a column, finest level first: the group of each code.
        axes: for columns of numbers and times, the number of first codes that lie in order on an axis.
        order_columns: the columns that an order rule names.
    """

    __slots__ = ("_axes", "_levels", "_order_columns")

    def __init__(
        self,
        levels: Mapping[str, Sequence[NDArray[np.int64]]] | None = None,
        axes: Mapping[str, int] | None = None,
        order_columns: Iterable[str] = (),
    ) -> None:
        self._levels = {column: tuple(arrays) for column, arrays in (levels or {}).items()}
        self._axes, self._order_columns = dict(axes or {}), frozenset(order_columns)

    def levels(self, column: str) -> tuple[NDArray[np.int64], ...]:
        """Return a column's declared hierarchy, finest level first: the group of each code; empty without one."""
        return self._levels.get(column, ())

    def axis(self, column: str) -> int:
        """Return how many of a column's first codes lie in order on an axis; 0 if none do, or levels are declared."""
        return self._axes.get(column, 0)

    def has_order_rule(self, column: str) -> bool:
        """Return whether an order rule names a column with an axis."""
        return column in self._order_columns and column in self._axes


NO_GROUPS = CodeGroups()
"""No hierarchies and no axes."""


def _is_size(size: object) -> bool:
    whole = isinstance(size, Integral) or (isinstance(size, Real) and float(size).is_integer())
    return whole and not isinstance(size, bool) and size >= 1  # type: ignore[operator]
