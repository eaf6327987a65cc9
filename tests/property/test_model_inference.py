"""Exact inference against the full joint table, on random structures: loops, disconnected parts, single codes."""

import itertools
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.domain import Domain
from understudy.errors import InputError
from understudy.model import projection as marginals
from understudy.model.elimination import eliminate, plan_elimination
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree
from understudy.model.propagate import Propagation

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True)
NO_CELLS = np.empty(0, np.int64)


@st.composite
def structures(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    domain = Domain({f"c{i}": size for i, size in enumerate(sizes)})
    clique = st.lists(st.sampled_from(domain.columns), max_size=3, unique=True).map(tuple)
    return domain, draw(st.lists(clique, max_size=7)), draw(st.integers(0, 2**32))


def spread(domain, clique, table):
    """A clique's table, in its own column order, as a factor of the full joint table."""
    have = [c for c in domain if c in clique]
    return table.transpose([clique.index(c) for c in have]).reshape([domain[c] if c in clique else 1 for c in domain])


def joint(domain, potentials):
    energy = np.zeros(domain.shape(domain))
    for clique, table in potentials:
        energy = energy + spread(domain, clique, table)
    top = energy.max()
    cells = np.exp(energy - top)
    return cells / cells.sum(), float(top + np.log(cells.sum()))


def marginal(domain, cells, clique):
    kept = [c for c in domain if c in clique]
    summed = cells.sum(axis=tuple(i for i, c in enumerate(domain) if c not in clique))
    return summed.transpose([kept.index(c) for c in clique])


def propagation_case(structure, *, scale, beliefs=True):
    domain, cliques, seed = structure
    rng = np.random.default_rng(seed)
    propagation = Propagation(JunctionTree.of(domain, cliques), cliques, beliefs=beliefs)
    potentials = rng.normal(0.0, scale, propagation.size)
    tables = [potentials[propagation.slice_of(t)].reshape(domain.shape(c)) for t, c in enumerate(propagation.tables)]
    cells, log_partition = joint(domain, list(zip(propagation.tables, tables, strict=True)))
    want = np.concatenate([marginal(domain, cells, clique).ravel() for clique in propagation.tables])
    return propagation, potentials, want, log_partition


@pytest.mark.parametrize("beliefs", [False, True])
@pytest.mark.parametrize("logs", [False, True])
@EXAMPLES
@given(structure=structures())
def test_oracle_equals_brute_force(beliefs, logs, structure):
    propagation, potentials, want, log_partition = propagation_case(structure, scale=3.0, beliefs=beliefs)
    propagation.marginals(-potentials, 1.0, forbidden=NO_CELLS, logs=logs)  # leaves its tables behind
    got = propagation.marginals(potentials, 1.0, forbidden=NO_CELLS, logs=logs)
    np.testing.assert_allclose(got, want, atol=1e-13)
    assert propagation.log_partition == pytest.approx(log_partition, rel=1e-12, abs=1e-12)
    assert propagation.in_logs == logs


@EXAMPLES
@given(structure=structures())
def test_extreme_potentials_fall_back_to_logs_and_stay_right(structure):
    propagation, potentials, want, log_partition = propagation_case(structure, scale=600.0)
    got = propagation.marginals(potentials, 1.0, forbidden=NO_CELLS)
    if not propagation.in_logs and propagation.smallest_message < 1e-280:
        got = propagation.marginals(potentials, 1.0, forbidden=NO_CELLS, logs=True)
    np.testing.assert_allclose(got, want, atol=1e-9)
    assert propagation.log_partition == pytest.approx(log_partition, rel=1e-12)


@pytest.mark.parametrize("scale", [100.0, 200.0, 400.0])
@EXAMPLES
@given(structure=structures())
def test_what_underflow_loses_is_within_its_bound(scale, structure):
    propagation, potentials, want, _ = propagation_case(structure, scale=scale)
    got = propagation.marginals(potentials, 1.0, forbidden=NO_CELLS)
    assert np.abs(got - want).max() <= 2.0 * propagation.lost + 1e-9


@EXAMPLES
@given(structure=structures(), queries=st.lists(st.permutations(range(6)), min_size=1, max_size=8), zeros=st.booleans())
def test_projections_of_any_clique_equal_brute_force(structure, queries, zeros):
    domain, cliques, seed = structure
    rng = np.random.default_rng(seed)
    potentials = {clique: rng.normal(0.0, 2.0, domain.shape(clique)) for clique in cliques}
    for table in potentials.values():
        if zeros and table.size > 1:
            table.flat[0] = -np.inf
    model = GraphicalModel(domain, potentials, total=10.0)
    with np.errstate(invalid="ignore"):
        cells, _ = joint(domain, potentials.items())
    if not np.isfinite(cells).all():
        return  # the zeros left no possible cell; tested elsewhere
    wanted = [tuple(f"c{i}" for i in query if i < len(domain))[: 1 + n % 4] for n, query in enumerate(queries)]
    got = model.project_many(wanted)
    for clique in wanted:
        assert got[clique].shape == domain.shape(clique)
        np.testing.assert_allclose(got[clique], 10.0 * marginal(domain, cells, clique), atol=1e-12)
        alone = GraphicalModel(domain, potentials, total=10.0).project(clique)
        np.testing.assert_allclose(alone, got[clique], rtol=1e-12, atol=1e-13)
    entropy = -float(np.sum(cells[cells > 0] * np.log(cells[cells > 0])))
    assert model.entropy == pytest.approx(entropy, abs=1e-10)
    back = GraphicalModel.from_arrays(domain, model.to_arrays())
    for clique in wanted:
        np.testing.assert_array_equal(back.project_many(wanted)[clique], got[clique])


@EXAMPLES
@given(structure=structures(), kept=st.sampled_from([0, 1, 4, 30]), most=st.sampled_from([0, 10, 1000]))
def test_projections_do_not_depend_on_what_is_kept(structure, kept, most):
    domain, cliques, seed = structure
    rng = np.random.default_rng(seed)
    potentials = {clique: rng.normal(0.0, 2.0, domain.shape(clique)) for clique in cliques}
    model, (cells, _) = GraphicalModel(domain, potentials, total=10.0), joint(domain, potentials.items())
    queries = [c for k in (1, 2, 3) for c in itertools.combinations(domain, k)]
    with patch.multiple(marginals, _SMALL=kept, _REMEMBERED=most, _BUNDLE=1):
        for asked in (queries, *([query] for query in queries), queries):
            for clique, table in model.project_many(asked).items():
                np.testing.assert_allclose(table, 10.0 * marginal(domain, cells, clique), atol=1e-12)


@pytest.mark.parametrize("scale", [2.0, 600.0])
@EXAMPLES
@given(structure=structures(), query=st.permutations(range(6)), zeros=st.booleans())
def test_plain_elimination_equals_brute_force(scale, structure, query, zeros):
    domain, cliques, seed = structure
    rng = np.random.default_rng(seed)
    potentials = {clique: rng.normal(0.0, scale, domain.shape(clique)) for clique in cliques}
    for table in potentials.values():
        table[rng.random(table.shape) < 0.3 * zeros] = -np.inf
    wanted = tuple(f"c{i}" for i in query if i < len(domain))[: query[0] % 4]
    order = plan_elimination(domain, potentials, wanted)
    with np.errstate(invalid="ignore"):
        cells, _ = joint(domain, potentials.items())
    if np.isfinite(cells).all():
        got = eliminate(domain, potentials, order, wanted)
        np.testing.assert_allclose(got, marginal(domain, cells, wanted), rtol=1e-11, atol=1e-13)
    else:
        with pytest.raises(InputError, match="no possible row"):
            eliminate(domain, potentials, order, wanted)


@EXAMPLES
@given(structure=structures(), data=st.data())
def test_conditioning_equals_brute_force(structure, data):
    domain, cliques, seed = structure
    rng = np.random.default_rng(seed)
    potentials = {clique: rng.normal(0.0, 2.0, domain.shape(clique)) for clique in cliques}
    model = GraphicalModel(domain, potentials, total=10.0)
    columns = data.draw(st.lists(st.sampled_from(domain.columns), min_size=1, max_size=3, unique=True))
    where = {column: data.draw(st.integers(0, domain[column] - 1)) for column in columns}
    given_model = model.condition(where)
    cells, _ = joint(domain, potentials.items())
    index = tuple(where.get(column, slice(None)) for column in domain)
    kept = np.zeros_like(cells)
    kept[index] = 10.0 * cells[index]
    np.testing.assert_allclose(given_model.project(domain.columns), kept, atol=1e-12)
    assert given_model.total == pytest.approx(kept.sum())
