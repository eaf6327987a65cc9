"""Rigorous enclosures in wide fixed-point arithmetic, and the exact decisions that rest on them.

A real number r in [0, 1] is enclosed at `bits` binary places by two integers with lower <= r 2^bits <= upper. Only
integers are used, so that every bound below is a theorem and not an estimate.
"""

from __future__ import annotations

from fractions import Fraction

from understudy.privacy.noise.randomness import Stream


def exp_neg(x: Fraction, bits: int) -> tuple[int, int]:
    """Integers with lower <= exp(-x) 2^bits <= upper, a few units apart, for rational x >= 0.

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


def below_exp_neg(x: Fraction, first: int, width: int, stream: Stream) -> bool:
    """Whether a uniform U < exp(-x), where `first` holds U's first `width` bits; more bits are drawn as needed.

    **Guarantees.** Given uniform first bits, True with probability exactly exp(-x).
    """
    if x == 0:
        return True
    while True:
        lower, upper = exp_neg(x, width + 16)
        if (first + 1) << 16 <= lower:
            return True
        if first << 16 >= upper:
            return False
        first, width = first << 64 | stream.bits(64), width + 64
