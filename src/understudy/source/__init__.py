"""PRIVATE rows, wherever they live. One protocol: exact counts of the cells of a set of columns.

`open` opens any table, whose kind `place` determines. Frames and single files (`read`, `office`) are held in memory as
codes (`memory`). Folders, queries and DuckDB tables are read once in batches, and their codes are stored in unnamed
files (`stream`, `duckdb`, `temp`). PostgreSQL and Spark code, bound and count the rows themselves (`engine`, `steps`,
`postgres`, `spark`). `unit` limits the rows of each privacy unit.
"""

from understudy.source.memory import MemorySource
from understudy.source.open import open_source
from understudy.source.protocol import Source
from understudy.source.read import read_table

__all__ = ["MemorySource", "Source", "open_source", "read_table"]
