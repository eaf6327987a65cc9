"""PUBLIC facts about a table: columns, categories, bounds, bins; the file format; encoding and decoding.

`kinds/` how each kind of column is coded · `rules/` what is known about combinations · `format/` files, ours and
others' · `drafting/` first proposals · `discovery/` what is still to be bought.
"""

from understudy.schema.column import Column, Entry
from understudy.schema.frames import frame_kind
from understudy.schema.recode import Recoding
from understudy.schema.schema import Encoded, PrivacyUnit, Schema
from understudy.schema.text import Dialect

__all__ = ["Column", "Dialect", "Encoded", "Entry", "PrivacyUnit", "Recoding", "Schema", "frame_kind"]
