"""What every source says in the same way: facts of the schema, and that it lets nobody copy it."""

from __future__ import annotations

from typing import NoReturn

from understudy.domain import CodeGroups, Domain
from understudy.errors import InputError
from understudy.schema import PrivacyUnit, Schema


class RowsBehind:
    """The public side of rows that are held somewhere; a source adds how it counts them.

    **Privacy.** Its text form names neither rows nor their number, and it refuses to be pickled or copied.
    """

    __slots__ = ("__bought", "__code_groups", "__domain", "__rows_public", "__rows_used", "__unit")

    def __init__(self, schema: Schema) -> None:
        self.__domain, self.__unit = schema.domain, schema.privacy_unit
        self.__code_groups = schema.code_groups
        self.__rows_public, self.__rows_used = schema.rows, schema.rows_used
        self.__bought = tuple(column.name for column in schema.words)

    @property
    def domain(self) -> Domain:
        """The coded columns: a fact of the schema."""
        return self.__domain

    @property
    def code_groups(self) -> CodeGroups:
        """Which codes belong together when rare ones are merged: a fact of the schema."""
        return self.__code_groups

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
