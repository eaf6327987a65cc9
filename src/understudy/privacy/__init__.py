"""The only door to private counts: budget, noise, selection, the gate, the receipt and the book."""

from understudy.privacy.book import Book
from understudy.privacy.budget import Budget
from understudy.privacy.convert import delta_of, epsilon_of, rho_of
from understudy.privacy.gate import PrivateTable
from understudy.privacy.receipt import Receipt

__all__ = ["Book", "Budget", "PrivateTable", "Receipt", "delta_of", "epsilon_of", "rho_of"]
