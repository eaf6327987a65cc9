"""`dp-wgan`: the critic's derivatives, the questions it asks, and that it learns a dependence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.accounting import Budget
from understudy.discovery.discover import EmptySource
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.gate.gradient import UNIT, sum_gradients
from understudy.measurement import Critic
from understudy.mechanism.dp_wgan import DPWGAN
from understudy.model.network import draw_codes, mean_gradients, mean_score
from understudy.planning.made_up import MadeUpSource
from understudy.testing.tables import CodedSource, WordSource

DOMAIN = Domain({"a": 3, "b": 2})


def critic(seed=0, width=5):
    rng = np.random.default_rng(seed)
    return Critic(*(rng.normal(0, 0.5, shape).astype(np.float32) for shape in ((5, width), (width,), (width,))))


def relaxed(rows, seed=1):
    rng = np.random.default_rng(seed)
    return np.hstack([rng.dirichlet(np.ones(size), rows) for size in DOMAIN.values()]).astype(np.float32)


def test_the_derivative_of_the_score_by_rows_is_that_of_differences():
    given, rows = critic(), relaxed(4)
    _, slope = mean_score(given, rows)
    for place in ((0, 0), (2, 3), (3, 4)):
        moved = rows.copy()
        moved[place] += 1e-2
        assert (mean_score(given, moved)[0] - mean_score(given, rows)[0]) / 1e-2 == pytest.approx(
            slope[place], abs=1e-3
        )


def test_generated_rows_and_real_rows_have_the_same_derivatives():
    """One-hot rows, by matrix products and by the gate in whole numbers, up to truncation."""
    given = critic()
    codes = {"a": np.array([0, 2, 2]), "b": np.array([1, 0, 1])}
    onehot = np.hstack([np.eye(size, dtype=np.float32)[codes[c]] for c, size in DOMAIN.items()])
    means, norms = mean_gradients(given, onehot, 2)
    clip = float(norms.max())
    sums = sum_gradients(given, clip, DOMAIN, {}, [codes]) * clip / UNIT
    assert np.abs(sums / 3 - np.concatenate([array.reshape(-1) for array in means])).max() < 2 * clip / UNIT


def test_codes_are_drawn_by_their_probabilities():
    drawn = draw_codes(DOMAIN, np.tile(np.float32([0.5, 0.0, 0.5, 0.25, 0.75]), (4000, 1)), np.random.default_rng(2))
    assert np.abs(drawn.mean(axis=0) - [0.5, 0.0, 0.5, 0.25, 0.75]).max() < 0.05
    assert (drawn.reshape(4000, -1).sum(axis=1) == 2).all()


def test_it_asks_for_equal_shares_of_what_the_columns_leave():
    source = CodedSource({"a": 3, "b": 2}, [[0, 1], [2, 0]] * 30)
    table = PrivateTable(source, Budget.of(rho=1.0))
    DPWGAN(rounds=2, critic_steps=3, second=0.0, first=0.25).fit(table, rho=1.0)
    asked = [charge for charge in table.account.charges if charge.what == "gradient"]
    assert [charge.what for charge in table.account.charges] == ["measure"] * 2 + ["gradient"] * 6
    assert float(sum(charge.rho for charge in asked)) == pytest.approx(0.75)
    assert max(charge.rho for charge in asked) == min(charge.rho for charge in asked)
    assert len({charge.query for charge in asked}) == 6  # the critic moves


def test_paper_mode_has_the_entry_s_critic_and_measures_no_columns():
    published = DPWGAN.as_published(rounds=1, critic_steps=1)
    assert (published.hidden, published.clip, published.bound, published.first) == (1024, 1.0, 0.01, 0.0)
    table = PrivateTable(CodedSource({"a": 3, "b": 2}, [[0, 1], [2, 0]] * 30), Budget.of(rho=1.0))
    published.fit(table, rho=1.0)
    assert [charge.about[0] for charge in table.account.charges] == [("b",), ("a", "b")]  # the number of rows first
    assert float(table.account.charges[0].rho) == pytest.approx(0.01)


def test_it_learns_that_two_columns_are_equal():
    """The toy of the specification: two columns that always agree; independent ones agree in half of the rows."""
    rows = [[i % 2, i % 2] for i in range(2000)]
    table = PrivateTable(CodedSource({"a": 2, "b": 2}, rows), Budget.of(rho=1000.0))
    fit = DPWGAN(rounds=150, generator_rate=0.01).fit(table, rho=1000.0)
    joint = fit.model.project(("a", "b"))
    assert joint.trace() / joint.sum() > 0.65


def test_what_cannot_train_is_refused_before_anything_is_spent():
    table = PrivateTable(WordSource({"x": 3}), Budget.of(rho=1.0))
    with pytest.raises(SettingError, match="Parquet"):
        DPWGAN().fit(table, rho=1.0)
    assert not table.account.charges
    with pytest.raises(SettingError, match="first and second"):
        DPWGAN(first=0.5, second=0.5)
    schema = us.Schema.from_domain({"a": 2})
    with pytest.raises(SettingError, match="delta above 0"):
        us.synthesize(pd.DataFrame({"a": [0, 1]}), schema, epsilon=1.0, delta=0, mechanism="dp-wgan")


def test_tables_without_rows_and_made_up_tables_can_be_asked():
    """A run whose table is gone recalls its gradients; plans are made on made-up rows."""
    PrivateTable(EmptySource(us.Schema.from_domain({"a": 2}), coded=True), Budget.of(rho=1.0)).require_gradients()
    codes = {"a": np.array([0, 1, 1]), "b": np.array([0, 0, 1])}
    thrice = MadeUpSource(Domain({"a": 3, "b": 2}), codes, weight=3)
    given = critic()
    once = sum_gradients(given, 1.0, DOMAIN, {}, [codes])
    assert (sum_gradients(given, 1.0, DOMAIN, {}, thrice.codes()) == 3 * once).all()


def test_wide_columns_have_fewer_hidden_units():
    assert DPWGAN()._width(Domain({"a": 10})) == 32
    assert DPWGAN()._width(Domain({"a": 1 << 20})) == 4
