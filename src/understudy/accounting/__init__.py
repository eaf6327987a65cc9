"""Privacy accounting: budgets, charges and receipts in exact arithmetic. No rows, no noise.

`budget`: what a run may spend, and the filter that enforces it. `charge`: the cost of each kind of noise. `neighbours`:
the neighbour relation and its sensitivities. `convert`: conversion between rho and (epsilon, delta). `calibrate`: the
noise of measurements fixed in advance. `receipt`: the charges and guarantee of a release. `exact`: arithmetic that
rounds to the safe side. `ceiling`: what a guarantee allows an attacker.
"""

from understudy.accounting.budget import Account, Budget
from understudy.accounting.charge import Charge
from understudy.accounting.convert import delta_of, epsilon_of, rho_of
from understudy.accounting.neighbours import Neighbours
from understudy.accounting.receipt import Receipt

__all__ = ["Account", "Budget", "Charge", "Neighbours", "Receipt", "delta_of", "epsilon_of", "rho_of"]
