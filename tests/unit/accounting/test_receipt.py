from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from understudy.accounting import Budget, Receipt
from understudy.accounting.charge import gaussian_charge, laplace_charge
from understudy.accounting.neighbours import Neighbours
from understudy.errors import BudgetExceeded, InputError

THIRD = gaussian_charge("measure", (("a",),), 1, share=Fraction(1, 3))


def receipt(**changes):
    base = Receipt(
        Budget.of(rho=1.0, delta=1e-6), (THIRD, THIRD, THIRD), Neighbours(), {"a": "public", "b": "discovered"}
    )
    return replace(base, **changes)


def test_survives_json_exactly():
    assert Receipt.from_dict(json.loads(json.dumps(receipt().to_dict()))) == receipt()


def test_the_sum_is_exact_and_its_float_is_not_smaller():
    assert receipt().exact_rho == 3 * THIRD.rho
    assert Fraction(receipt().rho) >= receipt().exact_rho


@pytest.mark.parametrize("break_", [
    lambda d: d["charges"].append(THIRD.to_dict()),
    lambda d: d["budget"].update(rho="1/2"),
    lambda d: d["charges"][0].update(delta="1/1000"),
    lambda d: d["budget"].update(proof="pure", epsilon="1/100"),
])  # fmt: skip
def test_charges_that_pass_the_budget_are_no_receipt(break_):
    data = receipt().to_dict()
    break_(data)
    with pytest.raises(BudgetExceeded):
        Receipt.from_dict(data)


def test_an_unknown_proof_is_not_a_receipt():
    data = receipt().to_dict()
    data["budget"]["proof"] = "trust me"
    with pytest.raises(InputError, match="this is not a receipt"):
        Receipt.from_dict(data)


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (Budget.of(epsilon=1.0, delta=1e-9), "(epsilon = 1, delta = 1e-09)-differential privacy"),
        (Budget.of(epsilon=0.5, delta=0), "epsilon = 0.5 (pure differential privacy, delta = 0)"),
        (Budget.of(rho=0.25), "0.25-zCDP"),
        (Budget.of(epsilon=0.12345671, delta=1e-9), "(epsilon = 0.123457, delta = 1e-09)-differential privacy"),
    ],
)
def test_the_guarantee_in_one_line_is_never_better_than_it_is(budget, words):
    assert receipt(budget=budget, charges=()).guarantee() == words


def test_test_mode_guarantees_nothing():
    words = receipt(insecure=True).text()
    assert "NONE" in words
    assert "protects nobody" in words


def test_the_text_says_all_that_a_lawyer_asks():
    words = receipt(neighbours=Neighbours("person", 3)).text()
    for part in (
        "Guarantee: ",
        "Who is protected: everything that shares one value of column 'person' (at most 3 rows of each used)",
        "Why it holds: ",
        "Spent: 1 of 1 in rho, in 3 charges",
        "Facts that are public: a",
        "Facts that are discovered: b",
        "covers this run alone",
        "add up",
        "Not promised: ",
        "the run's duration",
        "malicious custodian",
        "larger than the unit",
    ):
        assert part in words


def test_a_pure_run_states_what_it_spent_in_epsilon():
    charge = laplace_charge("measure", (("a",),), 1, share=Fraction(1, 2))
    words = receipt(budget=Budget.of(epsilon=2.0, delta=0), charges=(charge,)).text()
    assert "Spent: 0.5 of 2 in epsilon, in 1 charges" in words


def test_absurd_budgets_can_still_be_printed():
    absurd = receipt(budget=Budget.of(epsilon=1e200, delta=0), charges=())
    assert "1e+200" in absurd.text()
    assert Receipt.from_dict(json.loads(json.dumps(absurd.to_dict()))) == absurd
