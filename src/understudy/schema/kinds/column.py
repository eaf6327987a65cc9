"""What is declared about a column, whatever its kind; and the kinds that are never measured."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from understudy.schema.kinds.table import Entry

Kind = Literal[
    "categorical",
    "ordinal",
    "boolean",
    "integer",
    "number",
    "date",
    "datetime",
    "duration",
    "drop",
    "id",
    "constant",
    "open",
    "words",
]


class Column(BaseModel):
    """A declared column.

    Attributes:
        name: its name in the table.
        kind: what it is.
        title: a short name for people.
        description: what it means.
        status: "draft" until a person has looked at what was proposed, then "reviewed".
        origin: what the facts rest on: "public" documents, a person who "reviewed" a draft, or "bought" with budget.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(property,))

    name: str
    kind: Kind
    title: str | None = None
    description: str | None = None
    status: Literal["draft", "reviewed"] = "reviewed"
    origin: Literal["public", "reviewed", "bought"] = "public"

    @property
    def size(self) -> int:
        """How many codes its first part has; 0 when it is not synthesised."""
        return 0

    @property
    def parts(self) -> dict[str, int]:
        """The coded columns it becomes, with their sizes; empty when it is not synthesised."""
        return {}

    def table(self) -> list[Entry]:
        """Its whole coding as data; empty when it is not synthesised."""
        return []


class Dropped(Column):
    """A column that is never read and never made."""

    kind: Literal["drop"] = "drop"


class Constant(Column):
    """A column with the same public value in every row."""

    kind: Literal["constant"] = "constant"
    value: bool | int | float | str | None

    def make(self, rows: int) -> Any:
        """The column, as an arrow array."""
        import pyarrow as pa

        return pa.repeat(pa.scalar(self.value, pa.string() if self.value is None else None), rows)


class Identifier(Column):
    """Fresh keys: unique, made from a pattern, independent of the data.

    Attributes:
        pattern: text with one run of `#`, replaced by a running number with leading zeros; None: whole numbers from 1.
    """

    kind: Literal["id"] = "id"
    pattern: str | None = None

    @model_validator(mode="after")
    def _one_run(self) -> Identifier:
        if self.pattern is not None and len(re.findall("#+", self.pattern)) != 1:
            raise ValueError('`pattern` needs exactly one run of "#", as in "P-######"; correct the pattern')
        return self

    def make(self, rows: int, *, first: int = 1, last: int | None = None) -> Any:
        """The keys of so many rows from the `first` on, as an arrow array; as wide as that of the `last` row."""
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = pa.array(np.arange(first, first + rows))
        if self.pattern is None:
            return numbers
        before, run, after = re.split("(#+)", self.pattern)
        digits = pc.utf8_lpad(numbers.cast(pa.string()), max(len(run), len(str(rows if last is None else last))), "0")
        return pc.binary_join_element_wise(before, digits, after, "")
