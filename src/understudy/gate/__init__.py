"""The only door to private counts: `PrivateTable` charges first, then reads, adds exact noise or selects, and answers.

`table` the door itself; `selection` the exponential mechanism and its scores; `noise` integer noise drawn exactly;
`randomness` the cryptographic generator under both.
"""

from understudy.gate.table import Allocation, PrivateTable, Selection

__all__ = ["Allocation", "PrivateTable", "Selection"]
