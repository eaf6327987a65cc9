"""Noise: table entries against decimal arithmetic, undecided draws pushed to the edge, bad arguments."""

from __future__ import annotations

import builtins
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.errors import SettingError
from understudy.gate import noise as integer
from understudy.gate import noise as tables
from understudy.gate.noise import (
    MARGIN,
    NOISES,
    Enclosure,
    GaussianLaw,
    GeometricLaw,
    LaplaceLaw,
    Law,
    Table,
    _below,
    discrete_gaussian,
    discrete_laplace,
    gaussian_by_rejection,
    get_noise,
    laplace_by_rejection,
    resolve_draw,
    run_trials,
)
from understudy.gate.randomness import Stream, insecure, stream

LAWS: list[Law] = [
    GaussianLaw(Fraction(1, 20)),
    GaussianLaw(Fraction(0.3)),
    GaussianLaw(Fraction(2, 3)),
    GaussianLaw(Fraction(7)),
    LaplaceLaw(Fraction(1, 50)),
    LaplaceLaw(Fraction(1.7)),
    LaplaceLaw(Fraction(5)),
    GeometricLaw(Fraction(1)),
    GeometricLaw(Fraction(1, 7)),
]
DIGITS = 150


class Scripted(Stream):
    """A stream that gives out the binary digits of a chosen number, 64 at a time."""

    def __init__(self, number: int, places: int) -> None:
        self._number, self._places = number, places

    def words(self, n: int) -> NDArray[np.uint64]:
        out = []
        for _ in range(n):
            self._places -= 64
            assert self._places >= 0, "asked for more bits than the script has"
            out.append(self._number >> self._places & 0xFFFFFFFFFFFFFFFF)
        return np.array(out, dtype=np.uint64)


@lru_cache
def law_in_decimal(law: Law) -> tuple[int, list[Decimal]]:
    """First value and distribution function from a plain summation of weights, in 150 digits."""
    with localcontext() as context:
        context.prec = DIGITS
        one = Decimal(1)

        def ratio(x: Fraction) -> Decimal:
            return Decimal(x.numerator) / Decimal(x.denominator)

        reach = 400
        if isinstance(law, GaussianLaw):
            weights = [(-ratio(Fraction(x * x) / (2 * law.sigma**2))).exp() for x in range(-reach, reach + 1)]
        elif isinstance(law, LaplaceLaw):
            weights = [(-ratio(abs(x) / law.scale)).exp() for x in range(-reach * 4, reach * 4 + 1)]
        else:
            assert isinstance(law, GeometricLaw)
            weights = [(-ratio(v * law.rate)).exp() for v in range(reach * 5)]
        total = sum(weights)
        sums, running = [], one * 0
        for weight in weights:
            running += weight
            sums.append(running / total)
        return (0 if isinstance(law, GeometricLaw) else -(len(weights) // 2)), sums


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_table_entries_are_the_leading_bits(law: Law) -> None:
    first, sums = law_in_decimal(law)
    table = Table(law)
    with localcontext() as context:
        context.prec = DIGITS
        for i, entry in enumerate(table.entries):
            x = table.first + i
            exact = sums[x - first] if x >= first else Decimal(0)
            expected = min(int((exact * 2**64).to_integral_value("ROUND_FLOOR")), 2**64 - 1)
            assert int(entry) == expected, x
    assert table.entries[0] == 0
    assert table.entries[-1] == 2**64 - 1


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_just_below_and_above_an_edge(law: Law) -> None:
    """U = F(x) -+ 2^-260 agrees with F(x) in the table's 64 bits and in many more: the exact path must decide."""
    first, sums = law_in_decimal(law)
    table = Table(law)
    places = 320
    step = 1 + len(table.entries) // 40
    for x in range(table.first + 1, table.first + len(table.entries) - 1, step):
        with localcontext() as context:
            context.prec = DIGITS
            edge = int((sums[x - first] * 2**places).to_integral_value("ROUND_FLOOR"))
        for shift, expected in ((-(1 << 60), x), (1 << 60, x + 1)):
            assert table.draw(1, Scripted(edge + shift, places))[0] == expected


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_tails_are_endless(law: Law) -> None:
    """All bits equal for a while means far out in the tail, where the table has no entries."""
    first, sums = law_in_decimal(law)
    places = 192
    for number in (1 << 64, (1 << places) - (1 << 64)):
        with localcontext() as context:
            context.prec = DIGITS
            uniform = Decimal(number) / Decimal(2**places)
            expected = first + next(i for i, value in enumerate(sums) if uniform < value)
        assert resolve_draw(law, number >> 128, 64, Scripted(number & (1 << 128) - 1, 128)) == expected
        assert Table(law).draw(1, Scripted(number, places))[0] == expected


def test_enclosures_contain_the_truth_and_are_tight() -> None:
    for law in LAWS:
        first, sums = law_in_decimal(law)
        for bits in (16, 150):
            enclosed = law.enclose(bits)
            assert enclosed.error < 1 << (enclosed.places - bits + 6)
            with localcontext() as context:
                context.prec = DIGITS
                for i in range(0, len(enclosed.lower), 7):
                    x = enclosed.first + i
                    if not first <= x < first + len(sums):
                        continue
                    scaled = sums[x - first] * 2**enclosed.places
                    assert enclosed.lower[i] <= scaled <= enclosed.lower[i] + enclosed.error


def test_guide_and_plain_search_agree() -> None:
    table = Table(GaussianLaw(Fraction(40)))
    size = tables._GUIDE_FROM + 5
    with insecure(3):
        guided = table.draw(size, stream())
    with insecure(3):
        words = stream().words(size)
    assert np.array_equal(guided, table.first + np.searchsorted(table.entries, words))


def test_guide_leaves_edges_to_the_search() -> None:
    table = Table(GaussianLaw(Fraction(3)))
    edges = table.entries[1:-1]
    bits = np.uint64(64 - tables._GUIDE_BITS)
    assert (table._guide[edges >> bits] == tables._OPEN).all()
    for law in LAWS:  # the tails begin at the first and the last of all words
        guide = Table(law)._guide
        assert guide[0] == guide[-1] == tables._OPEN


def test_bounded_integers_do_not_favour_small_ones() -> None:
    """2^64 is 2 x bound and a rest: words that fall into the rest must be drawn again."""
    bound = 3 << 61
    rest = 2 * bound
    script = [5, rest, bound + 7, 2**64 - 1, rest - 1, rest + 9, 11, 12]
    number = sum(word << 64 * (len(script) - 1 - i) for i, word in enumerate(script))
    assert _below(bound, 5, Scripted(number, 64 * len(script))).tolist() == [5, 12, 7, 11, bound - 1]


def test_a_table_that_cannot_be_certified_is_computed_wider() -> None:
    """One entry whose enclosure straddles a multiple of 2^-64 is enough to ask for more bits."""
    asked: list[int] = []

    class Vague:
        def enclose(self, bits: int) -> Enclosure:
            asked.append(bits)
            exact = GaussianLaw(Fraction(2)).enclose(bits)
            if len(asked) > 1:
                return exact
            shift, middle = exact.places - 64, len(exact.lower) // 2
            lower = list(exact.lower)
            lower[middle] = (lower[middle] >> shift << shift) - 1
            return Enclosure(exact.first, lower, exact.error + (1 << shift), exact.places)

    table = Table(Vague())
    assert len(asked) == 2
    assert asked[1] > asked[0]
    assert np.array_equal(table.entries, Table(GaussianLaw(Fraction(2))).entries)


def test_trials_near_the_edge_are_settled_exactly() -> None:
    """A uniform number that agrees with exp(-gamma) in 150 bits is beyond floating point."""
    gamma = Fraction(1, 3)
    places = 256
    with localcontext() as context:
        context.prec = DIGITS
        edge = int(((-Decimal(1) / 3).exp() * 2**places).to_integral_value("ROUND_FLOOR"))
    for shift, expected in ((-(1 << 100), True), (1 << 100, False)):
        source = Scripted(edge + shift, places)
        assert run_trials(np.array([1 / 3]), lambda i: gamma, source)[0] == expected
        assert source._places < 192, "more than the first 64 bits were needed"


def test_floating_point_probability_is_well_inside_the_margin() -> None:
    """What `trials` relies on: the computed exp(-gamma) is right to 2^-45, whatever sigma and y are."""
    rng = np.random.default_rng(5)
    worst = 0.0
    for sigma in (Fraction(0.3), Fraction(17), Fraction(10**6), Fraction(2**50) - Fraction(1, 3)):
        scale = sigma.numerator // sigma.denominator + 1
        centre, twice = sigma**2 / scale, 2 * sigma**2
        y = (rng.exponential(2, 300) * float(sigma)).astype(np.int64)
        computed = np.exp(-((np.abs(y) - float(centre)) ** 2) / float(twice))
        with localcontext() as context:
            context.prec = 60
            for value, p in zip(y.tolist(), computed.tolist(), strict=True):
                gamma = (abs(value) - centre) ** 2 / twice
                exact = (-Decimal(gamma.numerator) / Decimal(gamma.denominator)).exp()
                worst = max(worst, abs(float(Decimal(p) - exact)))
    assert worst < 2.0**-45 < MARGIN / 16


@pytest.mark.parametrize("draw", [discrete_gaussian, discrete_laplace])
@pytest.mark.parametrize("bad", [0, -1, -0.5, math.nan, math.inf, -math.inf, 2**51, 1e300, Fraction(-1, 3)])
def test_bad_parameters_are_named(draw: Any, bad: Any) -> None:
    with pytest.raises(SettingError, match=r"^(sigma|scale) must be"):
        draw(bad, 3)


@pytest.mark.parametrize("draw", [discrete_gaussian, discrete_laplace])
def test_sizes_and_types(draw: Any) -> None:
    for parameter in (2, 2.5, Fraction(5, 3), np.float32(1.5), np.int64(4), 1e-300, 1e5, 2**50):
        for size, shape in ((0, (0,)), (4, (4,)), ((2, 3), (2, 3)), ((), ())):
            drawn = draw(parameter, size)
            assert drawn.dtype == np.int64
            assert drawn.shape == shape
    with pytest.raises(SettingError, match="size"):
        draw(1, -1)


def test_an_unknown_sampler_is_refused_with_the_choices() -> None:
    with pytest.raises(SettingError, match="'loud' is unknown; the choices are exact, opendp"):
        get_noise("loud")


def test_a_tiny_parameter_gives_no_noise() -> None:
    assert not discrete_gaussian(1e-3, 1000).any()
    assert not discrete_laplace(1e-3, 1000).any()


def test_noise_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.gate.noise._LARGEST_PROPOSAL", 1 << 10)
    with pytest.raises(SettingError, match="64-bit"):
        gaussian_by_rejection(Fraction(2**40), 100, stream())
    with pytest.raises(SettingError, match="64-bit"):
        laplace_by_rejection(Fraction(2**40), 100, stream())


def test_draws_are_reproducible_only_in_the_test_mode() -> None:
    for sigma, size in ((3, 50), (3, 10**5), (1e6, 50)):
        with insecure(1):
            first = discrete_gaussian(sigma, size)
        tables.table.cache_clear()  # whether a table was kept must not matter
        with insecure(1):
            assert np.array_equal(discrete_gaussian(sigma, size), first)
        assert not np.array_equal(discrete_gaussian(sigma, size), first)


def test_the_registry_holds_two_integer_noises() -> None:
    assert set(NOISES) == {"exact", "opendp"}
    for name, source in NOISES.items():
        if name == "opendp":
            pytest.importorskip("opendp")
        for drawn in (source.gaussian(2.0, (3, 2)), source.laplace(Fraction(7, 3), (3, 2))):
            assert drawn.dtype == np.int64
            assert drawn.shape == (3, 2)
        with pytest.raises(SettingError, match="sigma"):
            source.gaussian(-1, 2)


def test_opendp_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("opendp"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingError, match=r"understudy\[opendp\]"):
        NOISES["opendp"].gaussian(1.0, 1)


def test_parameters_for_opendp_are_rounded_up() -> None:
    third = Fraction(1, 3)
    assert Fraction(integer._as_float("sigma", third)) > third
    assert integer._as_float("sigma", 0.1) == 0.1
