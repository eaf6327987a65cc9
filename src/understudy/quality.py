"""The measured quality of a release: its workload error, measured with a share of the budget. Plain data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

from understudy.errors import SettingError


@dataclass(frozen=True)
class NoisyError:
    """A noisy error: the weighted mean L1 distance between true and given marginals, in rows, plus noise.

    Attributes:
        rows: the noisy mean; unbiased, because the noise is symmetric.
        scale: sigma of Gaussian noise or scale of Laplace noise, in rows.
        noise: the law of the noise.
    """

    rows: float
    scale: float
    noise: Literal["gaussian", "laplace"]


@dataclass(frozen=True)
class Quality:
    """The workload error of a release: the mean share of rows that its marginals misplace.

    Attributes:
        value: the estimate, unbiased: half the weighted mean L1 distance, divided by the release's number of rows.
        scale: sigma of Gaussian noise or scale of Laplace noise, in the unit of `value`.
        noise: the law of the noise.
        workload: name of the workload.
        tables: number of marginals that were compared.
        of: number of marginals in the workload; if larger, those compared were drawn at random, without the rows.
        share: the share of the budget that was charged.

    **Privacy.** Measured through the gate and charged to the budget; plain data that may leave.
    """

    value: float
    scale: float
    noise: Literal["gaussian", "laplace"]
    workload: str
    tables: int
    of: int
    share: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the true error of the compared marginals.

        **Guarantees.** The interval holds with this probability over the noise, for any rows; both ends are at least 0.

        Raises:
            SettingError: if the confidence is not between 0 and 1.

        >>> Quality(0.05, 0.01, "gaussian", "all-2way", 3, 3, 0.05).interval(0.95)  # doctest: +ELLIPSIS
        (0.0303..., 0.0696...)
        """
        if not 0 < confidence < 1:
            raise SettingError("confidence must lie between 0 and 1, such as 0.95")
        if self.noise == "gaussian":
            reach = NormalDist().inv_cdf(0.5 + confidence / 2) * self.scale
        else:
            reach = -math.log(1 - confidence) * self.scale
        reach *= 1 + 2.0**-15  # the noise is a whole number of units, tens of thousands to one scale
        return max(0.0, self.value - reach), max(0.0, self.value + reach)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    def to_dict_with_interval(self) -> dict[str, Any]:
        """Return plain data with the 95 % confidence interval, for scripts."""
        return self.to_dict() | {"interval": list(self.interval(0.95)), "confidence": 0.95}

    def text(self, confidence: float = 0.95) -> str:
        """Describe the error in one line."""
        low, high = self.interval(confidence)
        some = f"{self.tables} tables" if self.tables == self.of else f"{self.tables} of {self.of} tables"
        return (
            f"{100 * max(self.value, 0.0):.3g} % of rows misplaced on average over {some} of {self.workload} "
            f"({100 * confidence:g} % interval: {100 * low:.3g} % to {100 * high:.3g} %)"
        )


def parse_share(quality: Any) -> float | None:
    """Parse a share of the budget: 0.05, "5%" or "5 %"; None stays None.

    Raises:
        SettingError: if the share is not above 0 and at most a half.

    >>> parse_share("5%"), parse_share(0.1), parse_share(None)
    (0.05, 0.1, None)
    """
    if quality is None:
        return None
    text = str(quality).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 < share <= 0.5 or isinstance(quality, bool):
        raise SettingError("quality: give the share of the budget that measures the error, such as 5%; at most 50%")
    return share
