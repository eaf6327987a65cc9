"""The only door to private counts: budget, noise, selection, the gate, the receipt and the book.

`gate.py` the door itself · `noise/` integer noise, exactly · `accounting/` what it costs and what may be spent ·
`records/` what is written down about it.
"""

from understudy.privacy.accounting.budget import Budget
from understudy.privacy.accounting.convert import delta_of, epsilon_of, rho_of
from understudy.privacy.gate import PrivateTable
from understudy.privacy.records.book import Book
from understudy.privacy.records.receipt import Receipt

__all__ = ["Book", "Budget", "PrivateTable", "Receipt", "delta_of", "epsilon_of", "rho_of"]
