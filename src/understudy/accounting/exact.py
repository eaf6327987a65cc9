"""Exact arithmetic: fractions from text, roots and floats that round to the safe side, enclosures of exp(-x)."""

from __future__ import annotations

import math
import re
import sys
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from numbers import Rational
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, PlainSerializer

_DIGITS = 6


def float_below(value: Fraction) -> float:
    """Return the largest finite float that is not above `value`."""
    try:
        guess = float(value)
    except OverflowError:
        return sys.float_info.max if value > 0 else -math.inf
    return guess if Fraction(guess) <= value else math.nextafter(guess, -math.inf)


def float_above(value: Fraction) -> float:
    """Return the smallest float that is not below `value`; infinity if none is large enough."""
    return 0.0 - float_below(-value) if value <= sys.float_info.max else math.inf


def to_fraction(number: float | Fraction) -> Fraction:
    """Return the number as a fraction: whole numbers and fractions of any library exactly, others by their float."""
    if isinstance(number, Rational):  # numpy's integers would stay 64-bit ones inside a fraction, and overflow
        return Fraction(int(number.numerator), int(number.denominator))
    return Fraction(float(number))


def sqrt_above(square: Fraction) -> float:
    """Return the square root, rounded up: a sigma rounded up costs no more than its share."""
    root, unit = _root(square)
    return float_above(Fraction(root) * unit if (root * unit) ** 2 == square else (root + 1) * unit)


def sqrt_below(square: Fraction) -> float:
    """Return the square root, rounded down: an epsilon rounded down costs no more than its share."""
    root, unit = _root(square)
    return float_below(root * unit)


def _root(square: Fraction) -> tuple[int, Fraction]:
    """Return the square root, rounded down to a whole number of more than 64 bits, and the power of two of its unit."""
    shift = 66 - (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    scaled = square * Fraction(4) ** shift
    return math.isqrt(scaled.numerator // scaled.denominator), Fraction(2) ** -shift


def format_up(value: float) -> str:
    """Format a number in six digits, rounded up.

    >>> format_up(1.0), format_up(0.12345671), format_up(1e-9)
    ('1', '0.123457', '1e-09')
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exact = Decimal(value)
    shortest = Decimal(repr(value))
    exact = shortest if len(shortest.as_tuple().digits) <= _DIGITS else exact
    return f"{float(exact.quantize(Decimal(1).scaleb(exact.adjusted() + 1 - _DIGITS), ROUND_CEILING)):.{_DIGITS}g}"


def parse_fraction(text: str) -> Fraction:
    """Read a fraction as `str` writes it. Other forms are refused: "1e999999999" in a forged file would never finish.

    Raises:
        ValueError: if the text is not a whole number or a quotient of two.
    """
    if not isinstance(text, str) or len(text) > 1 << 16 or not re.fullmatch(r"-?[0-9]+(/[1-9][0-9]*)?", text):
        raise ValueError("not a fraction")
    numerator, _, denominator = text.partition("/")
    return Fraction(int(numerator), int(denominator or 1))


Exact: TypeAlias = Annotated[Fraction, BeforeValidator(parse_fraction), PlainSerializer(str)]
"""A fraction that pydantic writes as text and reads back exactly."""


def exp_neg(x: Fraction, bits: int) -> tuple[int, int]:
    """Return integers with lower <= exp(-x) 2^bits <= upper, a few units apart, for rational x >= 0.

    A real number r in [0, 1] is enclosed at `bits` binary places by two integers with lower <= r 2^bits <= upper. Only
    integers are used, so that every bound below is a theorem and not an estimate.

    exp(-x) = exp(-x / 2^k)^(2^k) with x / 2^k < 2^-6: an alternating series, then k squarings of the enclosure, each
    of which at most doubles the error; k + 16 extra places make up for that.
    """
    if x == 0:
        return 1 << bits, 1 << bits
    if x >= bits:  # exp(-x) < 2^-x
        return 0, 1
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 7)
    places = bits + halvings + 16
    y = (x.numerator << places) // (x.denominator << halvings)  # too small by less than one unit
    term = total = 1 << places
    n = 0
    while term:
        n += 1
        term = (term * y >> places) // n  # too small by less than 3 units: y < 2^(places - 6) damps what it inherits
        total += -term if n & 1 else term
    slack = 3 * n + 4  # all terms' errors, the alternating remainder (below 3 units) and the error of y
    lower, upper = total - slack, total + slack
    for _ in range(halvings):
        lower, upper = lower * lower >> places, (upper * upper >> places) + 1
    return lower >> places - bits, (upper >> places - bits) + 1
