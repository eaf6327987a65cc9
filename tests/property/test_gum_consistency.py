from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.mechanism.compress import compress
from understudy.model.consistency import norm_sub, shared_sets
from understudy.model.generate import re_express_all
from understudy.model.gum import fit_gum

CLIQUES = [clique for size in (1, 2, 3) for clique in combinations("abcd", size)]


@st.composite
def measured(draw: st.DrawFn) -> tuple[Domain, list[Measurement], int]:
    """Any noisy tables of any cliques, in any order of columns, also of no rows at all."""
    domain = Domain({column: draw(st.integers(1, 4)) for column in "abcd"})
    cliques = draw(st.lists(st.sampled_from(CLIQUES), max_size=6))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    level = draw(st.sampled_from([-50.0, 0.0, 3.0, 300.0]))
    found = []
    for clique in cliques:
        order = tuple(rng.permutation(clique).tolist())
        sigma = float(rng.uniform(0.1, 30))
        values = np.rint(rng.normal(level / domain.cells(clique), sigma, domain.cells(clique)))
        found.append(Measurement(order, values, sigma))
    return domain, found, seed


@settings(max_examples=25, deadline=None)
@given(measured())
def test_any_measurements_become_a_model_that_answers_and_samples(given_: tuple) -> None:
    domain, measurements, seed = given_
    model = fit_gum(domain, measurements)
    assert model.total >= 1 - 1e-9
    for table in model.tables.values():
        assert table.min() >= 0
        assert np.isclose(table.sum(), model.total)
    for clique in [(), *CLIQUES[::4]]:
        assert np.isclose(model.project(clique).sum(), model.total)
    rows = model.sample(50, np.random.default_rng(seed))
    assert list(rows) == list(domain)
    for column, codes in rows.items():
        assert len(codes) == 50
        assert codes.max() < domain[column]


@settings(max_examples=60, deadline=None)
@given(measured(), st.floats(0, 5))
def test_compression_keeps_totals_and_kept_counts(given_: tuple, threshold: float) -> None:
    domain, measurements, _ = given_
    recoding = compress(domain, measurements, threshold=threshold)
    merged = recoding.recode(domain)
    for before, after in zip(measurements, re_express_all(domain, measurements, recoding), strict=True):
        after.check(merged)
        factors = np.ones(len(after.values)) if after.query is None else after.query @ np.ones(len(after.values))
        assert np.isclose((after.values / factors).sum(), before.values.sum())
        # each answer keeps its noise: a cell of u merged ones is divided by sqrt(u), and the u add up to all cells
        assert np.isclose((1 / factors**2).sum(), len(before.values))
        assert after.sigma == before.sigma


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0.5, 1e6))
def test_norm_sub_is_the_projection(values: list[float], total: float) -> None:
    found = norm_sub(np.array(values), total)
    assert found.min() >= 0
    assert np.isclose(found.sum(), total, rtol=1e-6, atol=1e-6)
    # one shift for all positive cells, and at least that shift for those at zero: the conditions of optimality
    shift = np.array(values) - found
    if (found > 0).any():
        common = shift[found > 0]
        assert np.ptp(common) <= 1e-6 * (1 + np.abs(values).max())
        assert (shift[found == 0] <= common.max() + 1e-6 * (1 + np.abs(values).max())).all()


@given(st.lists(st.sampled_from(CLIQUES), max_size=8, unique=True))
def test_shared_sets_are_all_intersections_subsets_first(cliques: list) -> None:
    found = [frozenset(columns) for columns in shared_sets(cliques)]
    given_ = [frozenset(clique) for clique in cliques]
    assert set(found) >= {one & other for one, other in combinations(given_, 2)}
    assert all(one & other in found for one in found for other in found)
    assert all(not later < earlier for i, earlier in enumerate(found) for later in found[i:])
