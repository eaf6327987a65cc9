"""`dp-wgan`: a round worked out by hand, the critic's derivatives, its questions, and that it learns a dependence."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.accounting import Budget, epsilon_of
from understudy.discovery.discover import EmptySource
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.gate.gradient import UNIT, sum_gradients
from understudy.measurement import Critic, Measurement
from understudy.mechanism.dp_wgan import DPWGAN
from understudy.model import network
from understudy.model.network import AdversarialNetwork, draw_codes, mean_gradients, mean_score
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


# -- the loop of the specification, by hand ----------------------------------------------------------------------------

FIRST = Critic(*(np.array(values, np.float32) for values in ([[0.4], [-0.6]], [0.2], [0.5])))
"""One column of two codes, one hidden unit: f(x) = v g(b + w_x). A row of code 0 has h = 0.6 and slope 1, so that its
derivatives by w_0, b and v are 0.5, 0.5 and 0.6, of norm sqrt(0.86) = 0.92736. A row of code 1 has h = -0.4 and slope
0.01: by w_1, b and v 0.005, 0.005 and -0.004, of norm 0.00812."""


def watch(monkeypatch, drawn):
    """What happens in a run: questions with their critic and norm, and steps of the generator with theirs."""
    events, gradient, step = [], PrivateTable.gradient, AdversarialNetwork.step
    rows = np.eye(2, dtype=np.float32)[drawn]

    def asked(table, critic, *, clip, rho):
        events.append(("gradient", critic, clip))
        return gradient(table, critic, clip=clip, rho=rho)

    def stepped(generator, critic):
        events.append(("step", critic))
        step(generator, critic)

    monkeypatch.setattr(AdversarialNetwork, "first_critic", lambda generator, width: FIRST)
    monkeypatch.setattr(AdversarialNetwork, "draw", lambda generator: rows)
    monkeypatch.setattr(AdversarialNetwork, "step", stepped)
    monkeypatch.setattr(PrivateTable, "gradient", asked)
    monkeypatch.setattr(network, "_STEPS", 1)
    return events


def train(real, rho=1e12, **settings):
    """Train on a table of one column; by default with so large a budget that the noise is 0."""
    source = CodedSource({"x": 2}, [[code] for code in real], rows_public=len(real))
    table = PrivateTable(source, Budget.of(rho=rho))
    DPWGAN(**{"first": 0.0, "anchor": 0.0, "hidden": 1} | settings).fit(table, rho=rho)
    return table.account.charges


def weights(critic):
    return np.concatenate([array.reshape(-1) for array in critic.arrays]).tolist()


def test_a_step_of_the_critic_by_hand(monkeypatch):
    """Two real rows, 0 and 1; four generated ones, 1 1 1 0; derivatives clipped at 0.5, rate 2, weights within 0.6.

    The derivatives of code 0 are scaled by 0.5 / 0.92736 to 0.26958, 0.26958, 0.32350. Means of (w_0, w_1, b, v): real
    (0.13479, 0.0025, 0.13729, 0.15975), generated (0.06740, 0.00375, 0.07115, 0.07788). Twice their difference is
    added, which gives (0.53479, -0.6025, 0.33229, 0.66375); two weights are then cut to -0.6 and 0.6.
    """
    events = watch(monkeypatch, [1, 1, 1, 0])
    train([0, 1], rounds=1, critic_steps=2, clip=0.5, critic_rate=2.0, bound=0.6)
    assert [event[0] for event in events] == ["gradient", "gradient", "step"]
    assert [event[2] for event in events[:2]] == [0.5, 0.5]
    assert weights(events[0][1]) == weights(FIRST)
    assert weights(events[1][1]) == pytest.approx([0.53479, -0.6, 0.33229, 0.6], abs=3e-4)


def test_the_norm_is_by_default_the_largest_among_generated_rows(monkeypatch):
    for drawn, largest in (([1, 0, 1], 0.92736), ([1, 1, 1], 0.00812)):
        events = watch(monkeypatch, drawn)
        train([0, 1], rounds=1, critic_steps=1)
        assert events[0][2] == pytest.approx(largest, rel=1e-3)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_critic_that_sees_the_same_rows_on_both_sides_does_not_move(clip, monkeypatch):
    """Also where derivatives are clipped: those of generated rows are clipped as well."""
    events = watch(monkeypatch, [0, 1])
    train([0, 1], rounds=1, critic_steps=2, clip=clip, critic_rate=1.0, bound=1.0)
    assert weights(events[1][1]) == pytest.approx(weights(FIRST), abs=3e-4)


def test_the_generator_takes_a_step_after_the_steps_of_the_critic_with_the_critic_as_it_is_then(monkeypatch):
    events = watch(monkeypatch, [1, 1, 1, 0])
    charges = train([0, 1], rounds=2, critic_steps=3, critic_rate=0.01, bound=1.0)
    assert [event[0] for event in events] == (["gradient"] * 3 + ["step"]) * 2
    assert events[4][1] is events[3][1]  # the next round goes on with the critic that the generator saw
    assert len({event[1].digest for event in events if event[0] == "gradient"}) == 6
    assert [charge.query.partition(":")[0] for charge in charges] == [
        event[1].digest for event in events[:3] + events[4:7]
    ]


def test_a_step_of_the_generator_moves_weights_by_the_rate_towards_a_higher_score():
    """A code 0 scores 0.3, a code 1 -0.002. The first step of Adam moves a weight by the rate."""
    generator = AdversarialNetwork(Domain({"x": 2}), [], total=9.0, rate=0.001, anchor=0.0)
    before, rows = generator._network.parameters[-1].copy(), generator.model().shares
    generator.step(FIRST)
    assert (generator._network.parameters[-1] - before).tolist() == pytest.approx([0.001, -0.001], rel=1e-3)
    assert mean_score(FIRST, generator.model().shares)[0] > mean_score(FIRST, rows)[0]


def test_the_loss_of_the_generator_is_the_distance_from_the_columns_times_the_anchor_less_the_score(monkeypatch):
    """Measured shares of 0.7 and 0.3, rows of 0.5 and 0.5: a distance of 0.04 twice, a score of 0.5 (0.2 + 0.2 - 0.3).

    By the share of code 0 in one of four rows: 2 (0.5 - 0.7) / 4 from the distance, 0.5 * 0.4 / 4 from the score.
    """
    measured = [Measurement(("x",), np.array([70, 30]), 1.0)]
    generator = AdversarialNetwork(Domain({"x": 2}), measured, total=100.0, rate=0.001, anchor=30.0)
    seen = []
    monkeypatch.setattr(generator._network, "loss", lambda of: seen.append(of) or (0.0, generator._network.parameters))
    generator.step(FIRST)
    rows = np.full((4, 2), 0.5, np.float32)
    distance = generator._targets.loss(rows)[0]
    found, pull = seen[0](rows)
    assert found == pytest.approx(30 * distance - 0.05)
    assert distance == pytest.approx(0.08)
    assert pull[0].tolist() == pytest.approx([30 * 2 * -0.2 / 4 - 0.2 / 4, 30 * 2 * 0.2 / 4 + 0.3 / 4])


def test_the_weights_of_the_first_critic_are_small_and_truncated(monkeypatch):
    monkeypatch.setattr(network, "_STEPS", 1)
    generator = AdversarialNetwork(Domain({"x": 100}), [], total=9.0, rate=0.001, anchor=0.0)
    first = np.concatenate([array.ravel() for array in generator.first_critic(1000).arrays])
    assert np.abs(first).max() == pytest.approx(0.2)
    assert first.std() == pytest.approx(0.1, rel=0.06)  # 0.0959 of a normal law cut at two standard deviations
    assert abs(first.mean()) < 0.002


# -- what the steps cost -----------------------------------------------------------------------------------------------


def test_fifty_steps_at_rho_1_have_a_noise_of_five_times_the_norm():
    """rho = 1 / 50 a step: sigma = 1 / sqrt(2 / 50) = 5 norms of 4096 units; dp-accounting has the same epsilon."""
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent, rdp

    table = PrivateTable(CodedSource({"a": 3, "b": 2}, [[0, 1], [2, 0]] * 30), Budget.of(rho=2.0))
    DPWGAN(rounds=10, critic_steps=5, first=0.5, second=0.0).fit(table, rho=2.0)
    steps = [charge for charge in table.account.charges if charge.what == "gradient"]
    assert [charge.scale for charge in steps] == pytest.approx([5 * 4096] * 50, rel=1e-4)
    accountant = rdp.RdpAccountant().compose(SelfComposedDpEvent(GaussianDpEvent(5.0), 50))
    assert epsilon_of(sum(charge.rho for charge in steps), 1e-5) == pytest.approx(
        accountant.get_epsilon(1e-5), rel=1e-3
    )
    assert accountant.get_epsilon(1e-5) == pytest.approx(7.0774, abs=1e-4)


@pytest.mark.parametrize(
    ("rows", "noise", "sampled", "full"),
    [(48_842, 3, 0.36353, 0.30615), (48_842, 1, 1.93285, 0.95709), (293_999, 3, 0.18510, 0.13419)],
)
def test_the_entrys_sampled_batches_cost_more_than_full_ones_of_the_same_signal(rows, noise, sampled, full):
    """20 epochs of batches of 64 rows (rate q = 64 / n) with noise of 3 or 1 norms, delta 1 / n^2, by dp-accounting.

    A full batch has the same ratio of signal to noise with 1 / q times the noise, and costs q^2 / (2 sigma^2) in zCDP.
    """
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent, rdp

    rate, steps, delta = 64 / rows, 20 * math.ceil(rows / 64), rows**-2
    event = SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps)
    assert rdp.RdpAccountant().compose(event).get_epsilon(delta) == pytest.approx(sampled, abs=1e-5)
    assert epsilon_of(steps * rate**2 / (2 * noise**2), delta) == pytest.approx(full, abs=1e-5)


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


def test_paper_mode_takes_200_steps_of_the_critic(monkeypatch):
    """20 rounds of 10 steps, each with 0.99 / 200 of the budget: sigma = 4096 / sqrt(2 * 0.00495)."""
    monkeypatch.setattr(network, "_STEPS", 1)
    monkeypatch.setattr(DPWGAN, "_width", lambda mechanism, domain: 2)
    table = PrivateTable(CodedSource({"a": 3, "b": 2}, [[0, 1], [2, 0]] * 30), Budget.of(rho=1.0))
    DPWGAN.as_published().fit(table, rho=1.0)
    assert [charge.scale for charge in table.account.charges[1:]] == pytest.approx([41166.4] * 200, rel=1e-5)


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
