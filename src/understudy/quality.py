"""How good a release is by its own account: the workload error, bought with a share of the budget, as plain data."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

from understudy.errors import SettingError


@dataclass(frozen=True)
class Apart:
    """The weighted mean L1 distance between true and given marginals, in rows, with noise added.

    Attributes:
        rows: the noisy mean; unbiased, since the noise is symmetric.
        scale: sigma of a Gaussian noise, scale of a Laplace, in rows.
        noise: the law of the noise.
    """

    rows: float
    scale: float
    noise: Literal["gaussian", "laplace"]


@dataclass(frozen=True)
class Quality:
    """The workload error of a release: the mean share of rows that its tables misplace.

    Attributes:
        value: the estimate, unbiased: half the weighted mean L1 distance, divided by the release's number of rows.
        scale: the noise in it: sigma of a Gaussian, scale of a Laplace.
        noise: the law of the noise.
        workload: which tables it is about.
        tables: how many of them were compared.
        of: how many the workload has; where that is more, those compared were drawn at random, without the rows.
        share: the part of the budget that it cost.

    **Privacy.** Bought through the gate: plain data.
    """

    value: float
    scale: float
    noise: Literal["gaussian", "laplace"]
    workload: str
    tables: int
    of: int
    share: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Where the true error of these tables lies.

        **Guarantees.** It holds with that probability over the noise, whatever the rows; the ends are cut to 0.

        Raises:
            SettingError: for a confidence that is not between 0 and 1.

        >>> Quality(0.05, 0.01, "gaussian", "all-2way", 3, 3, 0.05).interval(0.95)  # doctest: +ELLIPSIS
        (0.0303..., 0.0696...)
        """
        if not 0 < confidence < 1:
            raise SettingError("confidence must lie between 0 and 1, such as 0.95")
        if self.noise == "gaussian":
            reach = NormalDist().inv_cdf(0.5 + confidence / 2) * self.scale
        else:
            reach = -math.log(1 - confidence) * self.scale
        reach *= 1 + 2.0**-15  # the noise is whole units, tens of thousands of them to one scale
        return max(0.0, self.value - reach), max(0.0, self.value + reach)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def told(self, confidence: float = 0.95) -> dict[str, Any]:
        """Plain data with the interval, for scripts."""
        return self.to_dict() | {"interval": list(self.interval(confidence)), "confidence": confidence}

    def text(self, confidence: float = 0.95) -> str:
        """The error in one line."""
        low, high = self.interval(confidence)
        some = f"{self.tables} tables" if self.tables == self.of else f"{self.tables} of {self.of} tables"
        return (
            f"{100 * max(self.value, 0.0):.3g} % of rows misplaced on average over {some} of {self.workload} "
            f"({100 * confidence:g} % interval: {100 * low:.3g} % to {100 * high:.3g} %)"
        )


def parsed_share(quality: Any) -> float | None:
    """A share of the budget: 0.05, "5%" or "5 %"; None where none is kept.

    Raises:
        SettingError: when it is not above 0 and at most a half.

    >>> parsed_share("5%"), parsed_share(0.1), parsed_share(None)
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
        raise SettingError("quality: give the share of the budget that measures it, such as 5%; at most 50%")
    return share
