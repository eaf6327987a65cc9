"""The start of estimation: a tree without noise is reproduced, and everything else gives a proper distribution."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.mechanism.compress import compress
from understudy.model.estimate import estimate
from understudy.model.generate import re_express_all
from understudy.model.tree import start_tree

DOMAIN = Domain({"a": 3, "b": 4, "c": 2, "d": 3})


def measured(joint, cliques, sigma=1.0, rng=None):
    out = []
    for clique in cliques:
        axes = tuple(i for i, column in enumerate(DOMAIN) if column not in clique)
        table = joint.sum(axis=axes).transpose(np.argsort(np.argsort([list(DOMAIN).index(c) for c in clique])))
        noise = 0 if rng is None else rng.normal(0, sigma, table.shape)
        out.append(Measurement(clique, (table + noise).ravel(), sigma))
    return out


def chain_joint():
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.dirichlet(np.ones(k), size=n) for k, n in ((3, 1), (4, 3), (2, 4), (3, 4)))
    return 1e6 * np.einsum("i,ij,jk,jl->ijkl", a[0], b, c, d)


def test_a_tree_without_noise_is_reproduced():
    joint = chain_joint()
    start = start_tree(DOMAIN, measured(joint, [("a", "b"), ("b", "c"), ("b", "d"), ("a",), ("c",)]))
    assert start.project(DOMAIN.columns) * 1e6 == pytest.approx(joint, rel=1e-9)


def test_triples_too():
    joint = 1e6 * np.random.default_rng(1).dirichlet(np.ones(72)).reshape(3, 4, 2, 3)
    triple = joint.sum(axis=3)
    explained = triple[..., None] * (joint.sum(axis=(0, 2)) / joint.sum(axis=(0, 2, 3))[:, None])[None, :, None, :]
    start = start_tree(DOMAIN, measured(joint, [("a", "b"), ("b", "c"), ("a", "c"), ("a", "b", "c"), ("b", "d")]))
    assert start.project(DOMAIN.columns) * 1e6 == pytest.approx(explained, rel=1e-9)


def test_columns_in_several_parts_missing_columns_and_negative_counts():
    joint = chain_joint()
    start = start_tree(DOMAIN, measured(joint, [("b", "a"), ("d",)]))
    assert start.project(("c",)) == pytest.approx([0.5, 0.5])
    assert start.project(("d",)) * 1e6 == pytest.approx(joint.sum(axis=(0, 1, 2)), rel=1e-9)
    negative = start_tree(DOMAIN, [Measurement(("a",), np.array([-5, -3, -9]), 2.0)])
    assert negative.project(("a",)).sum() == pytest.approx(1)
    assert start_tree(DOMAIN, []).project(("a",)) == pytest.approx(np.full(3, 1 / 3))


def test_it_changes_the_start_and_not_the_answer():
    rng = np.random.default_rng(2)
    measurements = measured(chain_joint(), [("a",), ("a", "b"), ("b", "c"), ("b", "d")], 300.0, rng)
    cold, warm = (
        estimate(DOMAIN, measurements, warm_start=s, tolerance=1e-9) for s in (None, start_tree(DOMAIN, measurements))
    )
    assert warm.loss == pytest.approx(cold.loss, rel=1e-3)
    assert warm.project(DOMAIN.columns) == pytest.approx(cold.project(DOMAIN.columns), abs=20)


def test_re_expressed_one_ways_are_understood():
    ones = [Measurement(("b",), np.array([900, 10, 800, 20]), 30.0)]
    recoding = compress(DOMAIN, ones)
    merged = recoding.recode(DOMAIN)
    start = start_tree(merged, re_express_all(DOMAIN, ones, recoding))
    assert start.project(("b",)) * 1730 == pytest.approx([900, 800, 30], rel=1e-6)
