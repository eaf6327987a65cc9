"""What every source of private rows can do: count cells, and perhaps values. Nothing else comes out of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NoReturn, Protocol, runtime_checkable

from understudy.domain import Clique, Domain
from understudy.errors import InputError
from understudy.schema import PrivacyUnit, Schema
from understudy.tabulate import Counts


@runtime_checkable
class Source(Protocol):
    """Private rows, wherever they live, coded by a schema and bounded to so many rows per unit.

    **Privacy.** Counts are exact: only the gate may hold a source. No method gives rows, their number or their order.
    **Guarantees.** All answers of one source are about the same rows, so one unit changes every marginal by at most
    ``unit.max_rows`` in L1 and in L2. Two sources of the same rows, schema and bounding key answer alike, bit by bit.
    """

    @property
    def domain(self) -> Domain:
        """The coded columns: a fact of the schema."""
        ...

    @property
    def unit(self) -> PrivacyUnit:
        """Who is protected, and how many rows of one unit are counted at most."""
        ...

    @property
    def rows_public(self) -> int | None:
        """The number of rows where the schema declares it public, else None; never the number counted."""
        ...

    @property
    def rows_used(self) -> int | None:
        """The same where every row is sure to be counted: `Schema.rows_used`, a fact of the schema."""
        ...

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Exact counts of each clique's cells, in the order asked, axes in the order of the clique.

        Raises:
            SchemaError: before anything is counted, for an unknown column or a table too large to index.
        """
        ...


@runtime_checkable
class CountsValues(Protocol):
    """A source that can also count the values of columns whose values are being bought.

    One that cannot leaves the method out: the gate then refuses such a purchase, in words, before it is paid.
    """

    @property
    def words(self) -> tuple[str, ...]:
        """The columns whose values are being bought: a fact of the schema."""
        ...

    def values(self, column: str) -> dict[str, int]:
        """Exact numbers of rows by the canonical text of a cell of one of the schema's `words` columns.

        Of the rows that `counts` counts, bounded in the same way: a unit's rows decide about that unit's rows alone.
        Cells that can be no value (`Words.texts`: empty, missing tokens, very long) are left out.

        Raises:
            SchemaError: for a column that is not among the schema's `words`.
        """
        ...


# ----------------------------------------------------------------------------------------------------
# What every source says in the same way: facts of the schema, and that it lets nobody copy it.


class SourceBase:
    """The public side of rows that are held somewhere; a source adds how it counts them.

    **Privacy.** Its text form names neither rows nor their number, and it refuses to be pickled or copied.
    """

    __slots__ = ("__bought", "__domain", "__rows_public", "__rows_used", "__unit")

    def __init__(self, schema: Schema) -> None:
        self.__domain, self.__unit = schema.domain, schema.privacy_unit
        self.__rows_public, self.__rows_used = schema.rows, schema.rows_used
        self.__bought = tuple(column.name for column in schema.words)

    @property
    def domain(self) -> Domain:
        """The coded columns: a fact of the schema."""
        return self.__domain

    @property
    def unit(self) -> PrivacyUnit:
        """Who is protected, and how many rows of one unit are counted at most."""
        return self.__unit

    @property
    def rows_public(self) -> int | None:
        """The number of rows where the schema declares it public, else None."""
        return self.__rows_public

    @property
    def rows_used(self) -> int | None:
        """The same where every row is sure to be counted."""
        return self.__rows_used

    @property
    def words(self) -> tuple[str, ...]:
        """The columns whose values are being bought: a fact of the schema."""
        return self.__bought

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.__domain)} columns>"

    def __reduce__(self) -> NoReturn:
        raise InputError("a source holds private rows and is never written or copied; keep the release instead")
