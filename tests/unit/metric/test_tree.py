"""The classification tree of propensity scores."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.metric.tree import grow


def test_a_cut_lies_between_two_values() -> None:
    values = np.repeat([1.0, 2.0, 4.0, 8.0], 10)[:, None]
    tree = grow(values, values[:, 0] > 3, ())
    assert tree.splits[0] is not None
    assert tree.splits[0].cut == 3.0
    assert tree.predict(np.array([[0.0], [2.9], [3.1], [9.0]])).tolist() == [0, 0, 1, 1]


def test_risk_and_pruning_by_hand() -> None:
    """40 of 100 rows: Gini 2 * 0.4 * 0.6 = 0.48, which a single split saves; a leaf is worth it below 0.48."""
    values = np.repeat([0.0, 1.0], [40, 60])[:, None]
    tree = grow(values, values[:, 0] == 0, ())
    assert tree.risk.tolist() == pytest.approx([0.48, 0.0, 0.0])
    assert tree.complexities().tolist() == pytest.approx([0.48])
    assert tree.prune(0.47).splits[0] is not None
    assert tree.prune(0.48).splits[0] is None
    assert tree.prune(0.48).predict(values[:2]).tolist() == [0.4, 0.4]


def test_every_node_orders_categories_anew() -> None:
    """With a = 0 the labels are those of b in {0, 2, 4, 5}, with a = 1 in {1, 3}: over all rows every b has a half."""
    a, b = (part.reshape(-1) for part in np.meshgrid(np.arange(2), np.tile(np.arange(6), 10), indexing="ij"))
    labels = np.where(a == 0, np.isin(b, [0, 2, 4, 5]), np.isin(b, [1, 3]))
    features = np.column_stack((a, b)).astype(float)
    tree = grow(features, labels, (0, 1), 0.05)
    assert sum(split is not None for split in tree.splits) == 3
    assert (tree.predict(features) == labels).all()
    ordered = grow(features, labels, (), 0.05)  # as numbers, b needs more than one cut
    assert sum(split is not None for split in ordered.splits) > 3


def test_a_category_that_no_fitted_row_has_goes_with_the_majority() -> None:
    codes = np.repeat([0.0, 1.0], [30, 70])[:, None]
    tree = grow(codes, codes[:, 0] == 0, (0,))
    assert tree.predict(np.array([[0.0], [1.0], [2.0]])).tolist() == [1, 0, 0]
    assert grow(codes, codes[:, 0] == 1, (0,)).predict(np.array([[2.0]])).tolist() == [1]


def test_leaves_have_at_least_seven_rows_and_splits_twenty() -> None:
    values = np.arange(26.0)[:, None]
    assert grow(values, values[:, 0] < 6, ()).splits[0].cut == 6.5  # type: ignore[union-attr]
    assert grow(values[:19], values[:19, 0] < 9, ()).splits == (None,)


def test_ordered_columns_give_the_tree_of_scikit_learn() -> None:
    tree = pytest.importorskip("sklearn.tree")
    rng = np.random.default_rng(4)
    features = rng.normal(size=(600, 4))
    labels = features[:, 0] * features[:, 1] + 0.5 * rng.normal(size=600) > 0
    for complexity in (0.004, 0.01):  # splits of small nodes may be equally good
        theirs = tree.DecisionTreeClassifier(min_samples_leaf=7, min_samples_split=20, ccp_alpha=complexity)
        theirs.fit(features, labels)
        found = grow(features, labels, (), complexity)
        assert sum(split is not None for split in found.splits) == theirs.get_n_leaves() - 1
        assert found.predict(features) == pytest.approx(theirs.predict_proba(features)[:, 1])
