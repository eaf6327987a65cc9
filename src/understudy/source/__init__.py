"""PRIVATE rows, wherever they live. One protocol: exact counts of the cells of a set of columns."""

from understudy.source.memory import MemorySource
from understudy.source.open import open_source
from understudy.source.protocol import Source
from understudy.source.read import read_table

__all__ = ["MemorySource", "Source", "open_source", "read_table"]
