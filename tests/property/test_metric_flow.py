"""Two solvers and the certificate of the optimum agree on any small table."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.metric.mgd import Attribute, aemc

counts = st.integers(min_value=0, max_value=12)


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3))
def test_nearby_is_ortools(data: st.DataObject, rows: int, columns: int, tolerance: int) -> None:
    tables = [
        np.array(data.draw(st.lists(counts, min_size=rows * columns, max_size=rows * columns))).reshape(rows, columns)
        for _ in range(2)
    ]
    attributes = [Attribute(rows, Fraction(1, 3), chain=rows), Attribute(columns, Fraction(2, 3))]
    found = [aemc(*tables, attributes, tolerance=tolerance, solver=solver) for solver in ("nearby", "ortools")]
    assert abs(found[0].cost - found[1].cost) < 1e-9
    assert found[0].cost <= np.abs(tables[0] - tables[1]).sum() / max(tables[1].sum(), 1) + 1e-9


@settings(deadline=None, max_examples=40)
@given(st.lists(counts, min_size=1, max_size=9), st.integers(0, 3))
def test_a_table_has_no_distance_from_itself(values: list[int], tolerance: int) -> None:
    table = np.array(values)
    assert aemc(table, table, [Attribute(len(values), Fraction(1), chain=len(values))], tolerance=tolerance).cost == 0
