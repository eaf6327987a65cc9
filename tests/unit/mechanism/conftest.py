"""A small table behind the gate: two equal columns, one that depends on them, and one that does not."""

import numpy as np

from understudy.accounting import Budget
from understudy.gate import PrivateTable
from understudy.testing.tables import CodedSource

SIZES = {"a": 3, "b": 3, "c": 2, "d": 4}


def related_rows(count=300):
    rng = np.random.default_rng(7)
    a = rng.integers(0, 3, count)
    return np.stack([a, a, (a + rng.integers(0, 2, count)) % 2, rng.integers(0, 4, count)], axis=1).tolist()


def related_table(rho=1.0, rows=None, sizes=SIZES, **rest):
    return PrivateTable(CodedSource(sizes, related_rows() if rows is None else rows, **rest), Budget.of(rho=rho))
