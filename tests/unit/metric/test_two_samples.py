"""Two samples of one distribution score as the guide says: about the best that a stand-in of that size can do."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.metric import METRICS, Rows
from understudy.metric.registry import measure

from .conftest import table_of

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "evaluate.md"
INCOME = {"group": "city", "binary": "sex", "amount": "wage"}
SETTINGS: dict[str, dict[str, Any]] = {
    "nist_income": INCOME,
    "nist_contest": {"match": 3, **INCOME},
    "pie_chart": {"place": "city", "month": "month", "type": "ill"},
    "ml_efficacy": {"models": ["tree"], "target": "ill"},
    "pmse": {"models": ["logistic"], "cross_validated": False},
    "pmse_ratio": {"permutations": 4},
    "specks": {"models": ["logistic"], "cross_validated": False},
    "mgd": {"most": 10},
}
PROMISED = {
    name: float(value.replace(",", ""))
    for name, value in re.findall(r"^\| `(\w+)` \| ([\d.,]+) \|$", GUIDE.read_text(encoding="utf-8"), re.M)
}


@pytest.fixture(scope="module")
def pairs(people: Any) -> list[tuple[Rows, Rows]]:
    """Four pairs of samples of 1,000 rows."""
    return [tuple(Rows.of(table_of(1000, 2 * seed + side), people) for side in (1, 2)) for seed in range(4)]  # type: ignore[misc]


def test_every_metric_has_a_promise() -> None:
    assert list(PROMISED) == list(METRICS)


@pytest.mark.parametrize("name", list(METRICS))
def test_two_samples_score_as_promised(name: str, pairs: list[tuple[Rows, Rows]], people: Any) -> None:
    scores = [measure(one, other, people, [name], {name: SETTINGS.get(name, {})})[0] for one, other in pairs]
    found = float(np.mean([score.value for score in scores]))
    assert found == pytest.approx(PROMISED[name], rel=0.05, abs=1e-4)
    apart = Rows.of(table_of(1000, 2, noise=0.8), people)
    worse = measure(pairs[0][0], apart, people, [name], {name: SETTINGS.get(name, {})})[0].value
    if name != "disclosure":  # a table of noise copies nobody
        assert abs(worse - METRICS[name].best) > abs(found - METRICS[name].best)


def test_the_cross_validated_ratio_is_about_1(pairs: list[tuple[Rows, Rows]], people: Any) -> None:
    for model in ("logistic", "cart"):
        settings = {"pmse_ratio": {"permutations": 4, "models": [model]}}
        found = [
            measure(one, other, people, ["pmse_ratio"], settings)[0].part("model", f"{model}, cross-validated")
            for one, other in pairs
        ]
        assert 0.75 < np.mean(found) < 1.25
