from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction
from threading import Barrier, BrokenBarrierError, Thread

import numpy as np
import pytest

from understudy.accounting import Budget, epsilon_of, rho_of
from understudy.accounting.budget import Account, _delta_without_discovery
from understudy.accounting.calibrate import can_plan, certify_plan
from understudy.accounting.charge import Charge, exponential_charge, gaussian_charge, laplace_charge
from understudy.accounting.neighbours import Neighbours
from understudy.errors import BudgetExceeded, SettingError


def test_epsilon_and_delta_give_the_rho_of_the_tightest_conversion():
    budget = Budget.of(epsilon=1.0, delta=1e-9)
    assert (budget.proof, budget.capacity) == ("zcdp", Fraction(rho_of(1.0, 1e-9)))
    assert epsilon_of(budget.rho, 1e-9) <= 1.0 + 1e-12


def test_delta_zero_is_pure_and_counts_epsilon():
    budget = Budget.of(epsilon=0.5, delta=0)
    assert budget.pure
    assert budget.capacity == Fraction(1, 2)
    assert budget.rho == Fraction(1, 8)


def test_rho_alone_promises_no_epsilon_and_with_delta_the_converted_one():
    assert Budget.of(rho=0.1).epsilon is None
    assert Budget.of(rho=0.1, delta=1e-6).epsilon == Fraction(epsilon_of(0.1, 1e-6))


def test_discovery_leaves_less_for_the_rest():
    whole, rest = Budget.of(epsilon=1.0, delta=1e-6), Budget.of(epsilon=1.0, delta=1e-6, discovery_delta=5e-7)
    assert rest.rho < whole.rho
    assert epsilon_of(rest.rho, 5e-7) <= 1.0 + 1e-12


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "give epsilon and delta"),
        ({"epsilon": 1.0}, "delta is missing"),
        ({"epsilon": 0.0, "delta": 1e-9}, "epsilon must be a positive"),
        ({"epsilon": -1.0, "delta": 1e-9}, "epsilon must be a positive"),
        ({"epsilon": math.nan, "delta": 1e-9}, "epsilon must be a positive"),
        ({"epsilon": math.inf, "delta": 1e-9}, "epsilon must be a positive"),
        ({"epsilon": "much", "delta": 1e-9}, "epsilon must be a number"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must be at least 0 and below 1"),
        ({"epsilon": 1.0, "delta": -1e-9}, "delta must be at least 0"),
        ({"epsilon": 1.0, "delta": math.nan}, "delta must be at least 0"),
        ({"epsilon": 1.0, "delta": "small"}, "delta must be a number"),
        ({"rho": 0.0}, "rho must be a positive"),
        ({"rho": 1.0, "epsilon": 1.0}, "give one of them"),
        ({"rho": 1.0, "delta": 0.0}, "never pure"),
        ({"rho": 1e308, "delta": 1e-9}, "protects nothing"),
        ({"epsilon": 5e-324, "delta": 5e-324}, "to calibrate noise"),
        ({"epsilon": 1.0, "delta": 1e-6, "discovery_delta": 1e-6}, "smaller than delta"),
        ({"rho": 1.0, "delta": 1e-6, "discovery_delta": 1e-6}, "smaller than delta"),
        ({"rho": 1.0, "delta": 1e-6, "discovery_delta": -1e-7}, "smaller than delta"),
        ({"rho": 1.0, "discovery_delta": 1e-7}, "discovering values needs a part of it"),
    ],
)
def test_what_cannot_be_a_budget_is_refused_with_the_remedy(given, words):
    with pytest.raises(SettingError, match=words):
        Budget.of(**given)


def test_the_delta_that_discovery_leaves_is_never_rounded_up():
    for delta in np.random.default_rng(1).uniform(1e-9, 1e-6, 200).tolist():
        assert Fraction(_delta_without_discovery(delta, delta / 10)) <= Fraction(delta) - Fraction(delta / 10)


def test_numpy_numbers_are_numbers():
    assert Budget.of(epsilon=np.float32(1), delta=np.float64(0)) == Budget.of(epsilon=1, delta=0)


def test_a_certified_budget_of_many_sigmas_can_be_written():
    rho = sum((Fraction(1, 2 * Fraction(1 + i / 997) ** 2) for i in range(300)), Fraction(0))
    certified = Budget.of(epsilon=1.0, delta=1e-6).certify(rho)
    assert certified.rho >= rho
    assert len(str(certified.rho)) < 400


def test_the_exact_curve_never_spends_more_than_a_stated_rho():
    neighbours = Neighbours(None, 1, False)
    stated, epsilon = Budget.of(rho=0.1, delta=1e-9), epsilon_of(0.1, 1e-9)
    assert not can_plan(stated, neighbours)
    assert can_plan(Budget.of(epsilon=epsilon, delta=1e-9), neighbours)
    assert not can_plan(Budget.of(epsilon=epsilon, delta=1e-9, discovery_delta=1e-10), neighbours)
    _, certified = certify_plan({("a",): 1.0}, Budget.of(epsilon=epsilon, delta=1e-9), neighbours)
    assert certified.rho > stated.rho  # what the curve would have spent of a rho that was not given


def _charge(rho, delta=Fraction(0), epsilon=None):
    return Charge("measure", (("a",),), "gaussian", 1.0, 1.0, Fraction(rho), epsilon, delta)


def test_the_filter_refuses_the_charge_that_would_pass_and_keeps_the_rest():
    account = Account(Budget.of(rho=1.0))
    account.pay([_charge("1/2")])
    with pytest.raises(BudgetExceeded):
        account.pay([_charge("1/4"), _charge(Fraction(1, 4) + Fraction(1, 10**40))])
    assert account.spent == Fraction(1, 2)
    account.pay([_charge("1/4"), _charge("1/4")])
    assert account.remaining == 0


def test_threads_that_pay_at_once_do_not_pass_the_budget():
    both, in_time = Barrier(2), 0.2

    class Slow(Budget):
        def cost(self, charges):
            found = super().cost(charges)
            with suppress(BrokenBarrierError):  # goes on when the other thread has looked at what is left as well
                both.wait(in_time)
            return found

    def pay():
        with suppress(BudgetExceeded):
            account.pay([_charge(Fraction(3, 4))])

    account = Account(Slow.of(rho=1.0))
    threads = [Thread(target=pay) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(account.charges) == 1


def test_the_budget_of_an_account_cannot_be_exchanged():
    with pytest.raises(AttributeError):
        Account(Budget.of(rho=1.0)).budget = Budget.of(rho=2.0)


def test_delta_is_filtered_too():
    account = Account(Budget.of(epsilon=1.0, delta=1e-6, discovery_delta=1e-7))
    account.pay([_charge(0, delta=Fraction(1e-7) / 2)])
    with pytest.raises(BudgetExceeded, match="delta"):
        account.pay([_charge(0, delta=Fraction(1e-7))])


def test_a_pure_budget_pays_for_pure_noise_only():
    account = Account(Budget.of(epsilon=1.0, delta=0))
    with pytest.raises(BudgetExceeded, match="give a delta"):
        account.pay([gaussian_charge("measure", (("a",),), 1, share=Fraction(1, 100))])
    account.pay([laplace_charge("measure", (("a",),), 1, share=Fraction(1, 2))])
    account.pay([exponential_charge((("a",),), Fraction(1), share=Fraction(1, 2), pure=True)])
    assert account.remaining == 0


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf])
def test_a_share_is_a_positive_number(bad):
    with pytest.raises(SettingError, match="positive"):
        Account(Budget.of(rho=1.0)).share(bad)


def test_a_share_too_large_is_refused_and_one_too_large_by_rounding_is_cut():
    account = Account(Budget.of(rho=1.0))
    with pytest.raises(BudgetExceeded, match=r"asks for 1\.1 of a budget of 1, and 1 is left"):
        account.share(1.1)
    with pytest.raises(BudgetExceeded):
        account.share(1.0 + 1e-8)
    assert account.share(1.0 + 1e-12) == 1


@pytest.mark.parametrize("charge", [_charge(-1), _charge(0, delta=Fraction(-1)), _charge(0, epsilon=Fraction(-1))])
def test_no_charge_gives_anything_back(charge):
    account = Account(Budget.of(epsilon=1.0, delta=1e-6, discovery_delta=1e-7))
    with pytest.raises(BudgetExceeded, match="never refunded"):
        account.pay([charge])
    assert account.remaining == account.budget.capacity
