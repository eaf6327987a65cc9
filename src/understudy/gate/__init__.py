"""The gate to private counts: `PrivateTable` charges the budget, then reads rows, adds exact noise or selects.

`table`: the gate. `selection`: the exponential mechanism and its scores. `gradient`: clipped gradients in whole
numbers. `noise`: exact integer noise. `randomness`:
the cryptographic generator.
"""

from understudy.gate.table import Allocation, PrivateTable, Selection

__all__ = ["Allocation", "PrivateTable", "Selection"]
