"""PUBLIC facts about a table: its columns, rules and file format, and the encoding of rows as codes.

`schema` is the central class. Kinds of columns: `column` (the base), `categorical`, `axis`, `numeric`, `temporal`, and
`open` for columns that still have to be discovered; `text` defines what a cell means. `rules` relate columns to each
other, `recode` merges codes, `frames` converts data frames. `file` reads and writes schema files, `draft` and `sniff`
propose a first schema, `check` compares a table with its schema. `exchange` imports the formats of other tools.
"""

from understudy.schema.column import Column, Entry
from understudy.schema.frames import frame_kind
from understudy.schema.recode import Recoding
from understudy.schema.schema import Encoded, PrivacyUnit, Schema
from understudy.schema.text import Dialect

__all__ = ["Column", "Dialect", "Encoded", "Entry", "PrivacyUnit", "Recoding", "Schema", "frame_kind"]
