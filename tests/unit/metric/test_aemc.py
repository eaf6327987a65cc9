"""The flow against the linear program that defines it."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from understudy.errors import SettingError
from understudy.metric.mgd import Attribute, aemc


def distance(attribute: Attribute, one: int, other: int) -> float:
    """The semantic distance: along an order, else by the finest level of the hierarchy that two values share."""
    if attribute.chain:
        return abs(one - other) / (attribute.chain - 1) if max(one, other) < attribute.chain else np.inf
    levels = len(attribute.levels)
    shared = [place for place, level in enumerate(attribute.levels, 1) if level[one] == level[other]]
    return min([*shared, levels + 1]) / (levels + 1)


def distances(attributes: list[Attribute]) -> np.ndarray:
    shape = [attribute.size for attribute in attributes]
    places = np.array(np.unravel_index(np.arange(np.prod(shape)), shape)).T
    matrix = np.zeros((len(places), len(places)))
    for i, one in enumerate(places):
        for j, other in enumerate(places):
            for attribute, a, b in zip(attributes, one, other, strict=True):
                if a != b:
                    weight = attribute.weight
                    matrix[i, j] += np.inf if weight is None else float(weight) * distance(attribute, a, b)
    return matrix


def by_linear_program(made: np.ndarray, real: np.ndarray, attributes: list[Attribute], tolerance: int) -> float:
    """Section 6.1: X, u and v; colsum - Q - D <= u, Q - D - colsum <= v."""
    costs = distances(attributes)
    made, real, cells = made.reshape(-1), real.reshape(-1), made.size
    allowed = [(i, j) for i in range(cells) for j in range(cells) if np.isfinite(costs[i, j])]
    objective = [costs[i, j] for i, j in allowed] + [1.0] * (2 * cells)
    rows = np.zeros((cells, len(objective)))
    above, below = np.zeros_like(rows), np.zeros_like(rows)
    for number, (i, j) in enumerate(allowed):
        rows[i, number] = 1
        above[j, number], below[j, number] = 1, -1
    for j in range(cells):
        above[j, len(allowed) + j] = below[j, len(allowed) + cells + j] = -1
    limits = np.concatenate((real + tolerance, tolerance - real))
    found = linprog(objective, np.vstack((above, below)), limits, rows, made, method="highs")
    assert found.status == 0
    return float(found.fun) / max(real.sum(), 1)


CHAIN = Attribute(5, Fraction(1, 2), chain=5)
TREE = Attribute(4, Fraction(1, 2), levels=(np.array([0, 0, 1, 1]),))
CASES = {
    "one order": [Attribute(7, Fraction(1), chain=7)],
    "two orders": [CHAIN, Attribute(4, Fraction(1, 2), chain=4)],
    "order and apart": [Attribute(5, Fraction(1), chain=5), Attribute(3)],
    "order and hierarchy": [CHAIN, TREE],
    "order with missing values": [Attribute(6, Fraction(1), chain=4)],
    "no hierarchy declared": [Attribute(5, Fraction(1))],
    "uneven weights": [Attribute(4, Fraction(1, 5), chain=4), Attribute(4, Fraction(4, 5), chain=4)],
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tolerance", [0, 2])
def test_flow_is_the_linear_program(name: str, tolerance: int) -> None:
    attributes = CASES[name]
    shape = [attribute.size for attribute in attributes]
    rng = np.random.default_rng(len(name) + tolerance)
    for scale in (3, 12):
        real, made = rng.poisson(scale, shape), rng.poisson(scale * rng.gamma(1.0, 1.0, shape))
        expected = by_linear_program(made, real, attributes, tolerance)
        for solver in ("nearby", "ortools"):
            found = aemc(made, real, attributes, tolerance=tolerance, solver=solver)  # type: ignore[arg-type]
            assert found.cost == pytest.approx(expected, abs=1e-9)


def test_contributions_add_up() -> None:
    rng = np.random.default_rng(3)
    real, made = rng.poisson(4, (5, 4)), rng.poisson(6, (5, 4))
    found = aemc(made, real, [CHAIN, TREE], tolerance=1)
    assert sum(found.attributes) + found.adding + found.removing == pytest.approx(found.cost)
    assert found.cells.shape == (5, 4)
    # edges that lead to a hierarchy's dummy nodes have one end in a cell, so a part of their cost belongs to no cell
    assert found.adding + found.removing <= found.cells.sum() <= found.cost + 1e-12
    only = aemc(made, real, [CHAIN, Attribute(4, Fraction(1, 2), chain=4)], tolerance=1)
    assert only.cells.sum() == pytest.approx(only.cost)


def test_solvers_agree_where_mass_moves_far() -> None:
    rng = np.random.default_rng(5)
    real = rng.poisson(rng.gamma(0.5, 4.0, (8, 9, 5)))
    for made in (real[::-1], np.roll(real, 3, axis=1), 2 * real, np.zeros_like(real)):
        costs = [
            aemc(
                made, real, [Attribute(k, Fraction(1, 3), chain=k) for k in real.shape], tolerance=2, solver=solver
            ).cost  # type: ignore[arg-type]
            for solver in ("auto", "nearby", "ortools")
        ]
        assert costs[1:] == pytest.approx(costs[:1] * 2, abs=1e-12)


def test_auto_gives_up_and_still_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    from understudy.metric import flow

    monkeypatch.setattr(flow, "_WORK_PER_NODE", -100_000_000)
    assert aemc(np.array([8, 1, 1]), np.array([5, 4, 1]), [Attribute(3, Fraction(1), chain=3)]).cost == 0.15


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ([Attribute(3, Fraction(1), levels=(np.array([0, 0]),))], "does not cover"),
        ([Attribute(3, Fraction(1, 2), chain=3)], "add up to 1"),
        ([Attribute(4, Fraction(1), chain=4)], "different shapes"),
    ],
)
def test_refusals(attributes: list[Attribute], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        aemc(np.array([1, 2, 3]), np.array([3, 2, 1]), attributes)


def test_a_tolerance_below_0_is_refused() -> None:
    with pytest.raises(SettingError, match="tolerance"):
        aemc(np.array([1]), np.array([1]), [Attribute(1)], tolerance=-1)
