"""The interface of a source of private rows: it counts cells, and perhaps values and codes. Nothing else leaves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn, Protocol, runtime_checkable

from numpy.typing import NDArray

from understudy.domain import Clique, CodeGroups, Domain
from understudy.errors import InputError, SchemaError
from understudy.schema import PrivacyUnit, Schema
from understudy.tabulate import Counts


@runtime_checkable
class Source(Protocol):
    """Private rows, wherever they live, encoded by a schema and limited to a number of rows per unit.

    **Privacy.** Counts are exact: only the gate may hold a source, and only the gate may read its `codes`.
    **Guarantees.** All answers of one source are about the same rows, so one unit changes every marginal by at most
    ``unit.max_rows`` in L1 and in L2. Two sources with the same rows, schema and bounding key give identical answers.
    """

    @property
    def domain(self) -> Domain:
        """The coded columns: a fact of the schema."""
        ...

    @property
    def code_groups(self) -> CodeGroups:
        """Which codes belong together when rare ones are merged: a fact of the schema."""
        ...

    @property
    def unit(self) -> PrivacyUnit:
        """Who is protected, and the largest number of rows of one unit that are counted."""
        ...

    @property
    def rows_public(self) -> int | None:
        """The number of rows if the schema declares it public, else None; never the number counted."""
        ...

    @property
    def rows_used(self) -> int | None:
        """The same if every row is certain to be counted: `Schema.rows_used`, a fact of the schema."""
        ...

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts of each clique's cells, in the order requested, with axes in the order of the clique.

        Raises:
            SchemaError: before anything is counted, for an unknown column or a table too large to index.
        """
        ...


@runtime_checkable
class CountsValues(Protocol):
    """A source that can also count the values of columns whose values are discovered.

    A source that cannot lacks the method: the gate then refuses such a discovery before it is charged.
    """

    @property
    def words(self) -> tuple[str, ...]:
        """The columns whose values are discovered: a fact of the schema."""
        ...

    def values(self, column: str) -> dict[str, int]:
        """Return the exact number of rows for each canonical text of a cell in one of the schema's `words` columns.

        The rows are those that `counts` counts, limited in the same way: which rows of a unit count depends on that
        unit alone. Cells that cannot be a value (see `Words.texts`: empty, missing tokens, very long) are left out.

        Raises:
            SchemaError: for a column that is not among the schema's `words`.
        """
        ...


@runtime_checkable
class ReadsCodes(Protocol):
    """A source whose coded rows the gate can read one by one, because they are on this machine.

    A source that cannot lacks the method: the gate then refuses questions that are not about counts.
    """

    def codes(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Return the coded rows that `counts` counts, in pieces: by column an array of codes.

        **Privacy.** Exact rows: only the gate may call it, and only to add them up under a charge.
        """
        ...


# -- The common base of all sources ----------------------------------------------------------------------------------


class SourceBase:
    """The public facts of a source; a subclass adds how rows are counted.

    **Privacy.** Its text form reveals neither rows nor their number, and it cannot be pickled or copied.
    """

    __slots__ = ("code_groups", "domain", "rows_public", "rows_used", "unit", "words")

    def __init__(self, schema: Schema) -> None:
        self.domain, self.code_groups, self.unit = schema.domain, schema.code_groups, schema.privacy_unit
        self.rows_public, self.rows_used = schema.rows, schema.rows_used
        self.words = tuple(column.name for column in schema.words)

    def _check_words(self, column: str) -> None:
        """Refuse a column whose values are not discovered.

        Raises:
            SchemaError: naming the column and the remedy.
        """
        if column not in self.words:
            raise SchemaError(f"the values of column {column!r} are not discovered; declare `values: discover`")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.domain)} columns>"

    def __reduce__(self) -> NoReturn:
        raise InputError("a source holds private rows and cannot be written or copied; keep the release instead")
