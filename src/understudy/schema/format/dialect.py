"""How a text file of the table is written: separators, encoding, header."""

from __future__ import annotations

import codecs

from pydantic import BaseModel, ConfigDict, field_validator, model_validator


class Dialect(BaseModel):
    """The CSV dialect of the table. Every column is read as text; the schema's columns give it meaning.

    Attributes:
        delimiter: what separates two cells; one character.
        decimal: the decimal mark of numbers; "." or ",".
        group: the digit-group mark inside numbers ("1.234.567"), or empty for none.
        encoding: the file's character encoding. A byte-order mark is accepted with any UTF encoding.
        header: whether the first line names the columns; without it the schema's columns name them in order.
        quote: the character around cells that contain separators.
        trim: whether blanks around a cell are dropped when the cell as written is no declared value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    delimiter: str = ","
    decimal: str = "."
    group: str = ""
    encoding: str = "utf-8"
    header: bool = True
    quote: str = '"'
    trim: bool = True

    @field_validator("delimiter", "quote")
    @classmethod
    def _one_character(cls, mark: str) -> str:
        if len(mark) != 1 or not mark.isascii() or mark in "\0\r\n":
            raise ValueError('must be one character of ASCII; write a tab as "\\t"')
        return mark

    @field_validator("decimal")
    @classmethod
    def _decimal_mark(cls, mark: str) -> str:
        if mark not in (".", ","):
            raise ValueError('must be "." or ","; choose the one that the file uses')
        return mark

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, encoding: str) -> str:
        try:
            codecs.lookup(encoding)
        except (LookupError, ValueError):
            raise ValueError("is no known encoding; try utf-8, or windows-1252 for files saved by Excel") from None
        return encoding

    @model_validator(mode="after")
    def _marks_differ(self) -> Dialect:
        if self.group and (len(self.group) != 1 or self.group == self.decimal):
            raise ValueError("`group` must be one character other than the decimal mark; correct one of them")
        if self.delimiter == self.quote:
            raise ValueError("`delimiter` and `quote` must differ; correct one of them")
        return self
