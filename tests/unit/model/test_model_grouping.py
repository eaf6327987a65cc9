"""Sweeps of large cliques with many tables: grouped, and the same answers."""

import itertools

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.model.graphical import GraphicalModel
from understudy.model.schedule import group_tables

DOMAIN = Domain({"a": 3, "b": 4, "c": 7, "d": 8, "e": 9})
CLIQUE = ("a", "b", "c", "d", "e")
TABLES = [(10 * k, pair) for k, pair in enumerate(itertools.combinations(CLIQUE, 2))]


def test_every_table_is_in_one_group_or_alone():
    groups, alone = group_tables(DOMAIN, CLIQUE, TABLES)
    assert groups
    members = [table for _, mine in groups for table in mine] + alone
    assert sorted(members) == sorted(TABLES)


def test_a_group_fits_a_clique_that_is_much_smaller():
    for smaller, members in group_tables(DOMAIN, CLIQUE, TABLES)[0]:
        assert len(members) > 1
        assert 5 * DOMAIN.cells(smaller) <= DOMAIN.cells(CLIQUE)
        assert set(smaller) == {column for _, table in members for column in table}


def test_small_cliques_are_left_alone():
    small = Domain({"a": 2, "b": 3, "c": 4})
    tables = [(0, ("a",)), (2, ("b",)), (5, ("c",))]
    assert group_tables(small, ("a", "b", "c"), tables) == ([], tables)


@pytest.mark.parametrize("scale", [1.0, 400.0])  # the second underflows: log domain
def test_grouped_sweeps_give_brute_force_answers(scale):
    rng = np.random.default_rng(0)
    cliques = [table for _, table in TABLES] + [("a", "c", "e"), ("b", "d", "e")]
    potentials = {clique: scale * rng.normal(size=DOMAIN.shape(clique)) for clique in cliques}
    model = GraphicalModel(DOMAIN, potentials, total=1000.0)
    joint = np.zeros(DOMAIN.shape(CLIQUE))
    for clique, table in potentials.items():
        joint = joint + table.reshape([DOMAIN[c] if c in clique else 1 for c in CLIQUE])
    joint = np.exp(joint - joint.max())
    joint *= 1000.0 / joint.sum()
    for clique in [*cliques, ("a", "b", "d")]:
        axes = tuple(i for i, column in enumerate(CLIQUE) if column not in clique)
        np.testing.assert_allclose(model.project(clique), joint.sum(axis=axes), atol=1e-8)
