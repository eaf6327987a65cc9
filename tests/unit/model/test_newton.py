"""The step of Newton's method against the matrix written out."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.model import tree as newton
from understudy.model.tree import Coupling, End

# Tables ab, bcd, b and their links: b of ab with b, b of bcd with b, the total of ab, and the pair bc of bcd.
TABLES = [
    ((3, 4), [End(slice(0, 4), (1, 4), (0,), 1.0), End(slice(8, 9), (1, 1), (0, 1), 1.0)]),
    ((4, 2, 3), [End(slice(4, 8), (4, 1, 1), (1, 2), 1.0), End(slice(9, 17), (4, 2, 1), (2,), -1.0)]),
    ((4,), [End(slice(0, 4), (4,), (), -1.0), End(slice(4, 8), (4,), (), -1.0)]),
]


def written_out(active: list[np.ndarray]) -> np.ndarray:
    """Links times cells, cells as far as they move, cells times links."""
    whole = np.zeros((17, 17))
    for (shape, ends), moves in zip(TABLES, active, strict=True):
        for cell in np.ndindex(shape):
            row = np.zeros(17)
            for end in ends:
                place = np.ravel_multi_index([0 if axis in end.summed else i for axis, i in enumerate(cell)], end.shape)
                row[end.prices.start + place] += end.sign
            whole += np.broadcast_to(moves, shape)[cell] * np.outer(row, row)
    return whole


@pytest.mark.parametrize("large", [3, 11, 2048])  # all tables, those of two columns and more, or none by themselves
@pytest.mark.parametrize("empty", [0.0, 0.4])
def test_a_step_solves_the_system(empty: float, large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newton, "_LARGE", large)
    monkeypatch.setattr(newton, "_FEW", 0)
    rng = np.random.default_rng(0)
    active = [rng.random(shape) * (rng.random(shape) >= empty) for shape, _ in TABLES]
    active[2] = np.array(0.7)  # the same for all cells
    matrix = written_out(active)
    broken = matrix @ rng.normal(size=17)  # what some prices can mend
    whole = np.diag(written_out([np.ones(shape) for shape, _ in TABLES]))
    move = Coupling(TABLES).step(active, np.diag(matrix).copy(), whole, broken, 1e-10)
    np.testing.assert_allclose(matrix @ move, broken, atol=1e-6)


def test_a_link_without_cells_that_move_is_taken_for_one_whose_cells_all_do() -> None:
    active = [np.zeros((3, 4)), np.ones((4, 2, 3)), np.zeros(4)]
    broken = np.zeros(17)
    broken[:4] = broken[8] = 6.0
    move = Coupling(TABLES).step(active, np.diag(written_out(active)).copy(), np.full(17, 2.0), broken, 1e-6)
    np.testing.assert_allclose(move, broken / 2.0)
