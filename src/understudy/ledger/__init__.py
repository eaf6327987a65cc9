"""The ledger: datasets, grants, runs, charges and answers in one transactional database, with tamper evidence.

`ledger`: the operations. `database`: tables, versions and errors of SQLite and PostgreSQL. `spending`: grants and
totals. `log`: the Merkle tree over all entries and its signed checkpoints.
"""

from understudy.ledger.ledger import Ledger, RunHandle
from understudy.ledger.spending import Grant, Reservation, Total

__all__ = ["Grant", "Ledger", "Reservation", "RunHandle", "Total"]
