"""PUBLIC facts about a table: columns, categories, bounds, bins; the file format; encoding and decoding."""

from understudy.schema.column import Column
from understudy.schema.dialect import Dialect
from understudy.schema.frames import frame_kind
from understudy.schema.recode import Recoding
from understudy.schema.schema import Encoded, PrivacyUnit, Schema
from understudy.schema.table import Entry

__all__ = ["Column", "Dialect", "Encoded", "Entry", "PrivacyUnit", "Recoding", "Schema", "frame_kind"]
