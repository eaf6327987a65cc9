"""Whether targets and unknowns may be in single precision: half the memory, where rounding is nothing beside the noise.

The marginal oracle works in double precision in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from understudy.measurement import Measurement

_STRONGEST = 4e5  # signal for single precision: counts in standard deviations over the root of the tolerance,
_ROUGHEST = 1e-3  # which counts as this at most
_NOTHING = 1e-9  # a loss so small, in squared standard deviations of noise, that all is fitted
_DIGITS = 1e6  # to which single precision is trusted
_WIDEST = 1e25  # sigma for it: single precision ends at 1e38


def precision_for(measurements: Sequence[Measurement], tolerance: float) -> tuple[type[np.floating[Any]], float]:
    """Single precision, unless the signal is so strong that steps would be lost in rounding.

    A step is as long as the largest count times weight allows; what it then does to the unknowns of the noisiest table
    must be far above the last digit of a potential. Answers of general queries overlap, so that steps are shorter.

    Returns:
        The precision, and the loss that is as good as none in it.
    """
    general = any(m.query is not None for m in measurements)
    widest = max((m.sigma for m in measurements), default=1.0)
    largest = max((float(m.values.max(initial=0)) / m.sigma**2 for m in measurements), default=0.0)
    signal = widest * largest
    if general or widest >= _WIDEST or signal > _STRONGEST * min(tolerance, _ROUGHEST) ** 0.5:
        return np.float64, _NOTHING
    return np.float32, max(_NOTHING, (signal / _DIGITS) ** 2)
