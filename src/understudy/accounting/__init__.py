"""Privacy accounting: budgets, charges and receipts in exact arithmetic. No rows, no noise.

`budget`: what a run may spend, and the filter that enforces it. `charge`: what each kind of noise costs. `neighbours`:
who is protected, and how far one of them moves an answer. `convert`: between rho and (epsilon, delta). `calibrate`: the
noise of measurements that are fixed in advance. `receipt`: the account that a release carries. `exact`: rounding to the
safe side.
"""

from understudy.accounting.budget import Account, Budget
from understudy.accounting.charge import Charge
from understudy.accounting.convert import delta_of, epsilon_of, rho_of
from understudy.accounting.neighbours import Neighbours
from understudy.accounting.receipt import Receipt

__all__ = ["Account", "Budget", "Charge", "Neighbours", "Receipt", "delta_of", "epsilon_of", "rho_of"]
