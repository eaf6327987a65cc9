from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.accounting.charge import (
    LARGEST_SCALE,
    Charge,
    exponential_charge,
    gaussian_charge,
    laplace_charge,
    planned_charge,
)
from understudy.errors import SettingError

shares = st.fractions(min_value=Fraction(1, 10**12), max_value=10**6)
ABOUT = (("a", "b"),)


@given(shares, st.integers(1, 100))
def test_gaussian_noise_costs_at_most_its_share_and_nearly_all_of_it(share, squared):
    charge = gaussian_charge("measure", ABOUT, squared, share=share)
    assert charge.rho == Fraction(squared) / (2 * Fraction(charge.scale) ** 2)
    assert share * (1 - Fraction(1, 10**14)) < charge.rho <= share
    assert charge.epsilon is None


@given(shares, st.integers(1, 100))
def test_laplace_noise_costs_at_most_its_share(share, sensitivity):
    charge = laplace_charge("measure", ABOUT, sensitivity, share=share)
    assert charge.epsilon == sensitivity / Fraction(charge.scale)
    assert share * (1 - Fraction(1, 10**14)) < charge.epsilon <= share
    assert charge.rho == charge.epsilon**2 / 2


@given(shares)
def test_a_selection_costs_an_eighth_of_epsilon_squared(share):
    charge = exponential_charge(ABOUT, Fraction(2), share=share, pure=False)
    assert charge.rho == Fraction(charge.scale) ** 2 / 8
    assert share * (1 - Fraction(1, 10**14)) < charge.rho <= share
    pure = exponential_charge(ABOUT, Fraction(2), share=share, pure=True)
    assert pure.epsilon == Fraction(pure.scale) <= share


def test_a_selection_distinguishes_its_candidates_without_naming_them():
    lists = [[("a", "b")], [("b", "a")], [("a",), ("b",)], [("a", "b"), ("c",)], [("c",), ("a", "b")], [('a","b',)]]
    charges = [exponential_charge(several, Fraction(2), share=Fraction(1, 3), pure=False) for several in lists]
    assert [charge.candidates[0] for charge in charges] == [len(several) for several in lists]
    assert len({charge.candidates[1] for charge in charges}) == len(lists)
    assert charges[0].to_dict()["about"] == []
    assert charges[0] != charges[1]


@pytest.mark.parametrize("share", [Fraction(1, 10**300), Fraction(1, 10**700), Fraction(1, 2**110)])
@pytest.mark.parametrize("kind", [gaussian_charge, laplace_charge])
def test_noise_that_would_not_fit_is_refused_before_it_is_paid(kind, share):
    with pytest.raises(SettingError, match="give more"):
        kind("measure", ABOUT, 1, share=share)


def test_a_plan_whose_noise_would_not_fit_is_refused():
    with pytest.raises(SettingError, match="give more"):
        planned_charge("measure", ABOUT, 1, sigma=2.0**51)


def test_the_largest_noise_is_what_the_samplers_take():
    from understudy.gate.noise import discrete_gaussian, discrete_laplace

    assert len(discrete_gaussian(LARGEST_SCALE, 2)) == len(discrete_laplace(LARGEST_SCALE, 2)) == 2


@given(shares, st.sampled_from(["gaussian", "laplace", "select", "planned"]))
def test_charges_survive_json_exactly(share, kind):
    charge = {
        "gaussian": lambda: gaussian_charge("measure", ABOUT, 2, share=share),
        "laplace": lambda: laplace_charge("dependence", ABOUT, 8, share=share),
        "select": lambda: exponential_charge((("a",), ("b", "c")), Fraction(1, 3), share=share, pure=False),
        "planned": lambda: planned_charge("measure", ABOUT, 2, sigma=math.pi),
    }[kind]()
    assert Charge.from_dict(json.loads(json.dumps(charge.to_dict()))) == charge
