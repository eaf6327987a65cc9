"""Clipped gradients in whole numbers: worked numbers, the bound on every row, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.domain import Domain
from understudy.errors import BudgetExceeded, SettingError
from understudy.gate import PrivateTable, gradient
from understudy.gate.gradient import UNIT, read_gradients, sum_gradients
from understudy.ledger import Ledger
from understudy.measurement import SLOPE, Critic
from understudy.run.record import RunRecorder
from understudy.schema import Recoding
from understudy.testing.spy import Spy
from understudy.testing.tables import CodedSource, SealedSource, WordSource

SIZES = {"a": 3, "b": 2}
DOMAIN = Domain(SIZES)
ROWS = [[0, 1], [2, 0], [2, 1], [1, 1]]
BUDGET = Budget.of(epsilon=1.0, delta=1e-6)


def critic(width=4, scale=0.3, seed=0, domain=DOMAIN):
    rng = np.random.default_rng(seed)
    shapes = (sum(domain.values()), width), (width,), (width,)
    return Critic(*(rng.normal(0, scale, shape).astype(np.float32) for shape in shapes))


def added(row, given, clip, domain=DOMAIN, maps=None):
    """What one row adds, by the definition: autograd written out for one row, then scaled and truncated."""
    starts = np.cumsum([0, *domain.values()])
    maps = {column: np.arange(size) for column, size in domain.items()} | (maps or {})
    lines = [start + maps[c][code] for start, c, code in zip(starts[:-1], domain, row, strict=True)]
    hidden = given.bias + sum(given.lines[line] for line in lines)
    slope = np.where(hidden > 0, 1.0, SLOPE)
    parts = [np.zeros_like(array, dtype=np.float64) for array in given.arrays]
    for line in lines:
        parts[0][line] += slope * given.output
    parts[1], parts[2] = slope * given.output, slope * hidden
    flat = np.concatenate([part.reshape(-1) for part in parts])
    return flat * UNIT / max(np.linalg.norm(flat), clip)


def test_a_gradient_of_norm_10_is_clipped_to_1_and_one_of_a_half_is_not():
    """One column of one code, one hidden unit: f = v (b + w), so the derivatives are v, v and b + w."""
    domain, rows = Domain({"x": 1}), [{"x": np.array([0])}]
    large = Critic(*(np.array(v, np.float32) for v in ([[4.0]], [4.0], [6.0])))  # 6, 6, 8: norm sqrt(136)
    found = sum_gradients(large, 1.0, domain, {}, rows)
    assert found.tolist() == [int(v / np.sqrt(136) * UNIT) for v in (6, 6, 8)]
    small = Critic(*(np.array(v, np.float32) for v in ([[0.125]], [0.125], [0.25])))  # 0.25 three times
    assert sum_gradients(small, 1.0, domain, {}, rows).tolist() == [UNIT // 4] * 3
    read = read_gradients(small, 1.0, np.array([UNIT // 4] * 3))
    assert [array.tolist() for array in read] == [[[0.25]], [0.25], [0.25]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("clip", [0.01, 1.0, 50.0])
def test_rows_add_their_own_clipped_derivative(seed, clip):
    given = critic(seed=seed)
    whole = {c: np.array([row[j] for row in ROWS]) for j, c in enumerate(SIZES)}
    total = sum_gradients(given, clip, DOMAIN, {}, [whole])
    pieces = [{c: codes[part] for c, codes in whole.items()} for part in (slice(0, 1), slice(1, 4))]
    assert (total == sum_gradients(given, clip, DOMAIN, {}, pieces)).all()
    assert np.abs(total - sum(added(row, given, clip) for row in ROWS)).max() < len(ROWS) + 0.01


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e3, 9e5])
def test_no_row_adds_more_than_the_unit(scale):
    """Also for weights whose derivatives underflow or are huge, and for a clip that floating point cannot divide by."""
    given = critic(width=16, scale=scale / 5, seed=3)
    given.check(DOMAIN)
    for clip in (1e-300, 1.0, 1e300):
        for a in range(3):
            found = sum_gradients(given, clip, DOMAIN, {}, [{"a": np.array([a]), "b": np.array([1])}])
            assert sum(int(v) ** 2 for v in found) <= UNIT**2


def test_codes_are_merged_before_they_are_looked_up():
    merged = {"a": np.array([0, 1, 1])}
    domain = Recoding(merged).recode(DOMAIN)
    given = critic(domain=domain)
    rows = {"a": np.array([1, 2]), "b": np.array([0, 0])}
    one, two = (sum_gradients(given, 1.0, domain, merged, [{c: v[i : i + 1] for c, v in rows.items()}]) for i in (0, 1))
    assert (one == two).all()
    assert np.abs(one - added([2, 0], given, 1.0, domain, merged)).max() < 1.01


def test_the_charge_is_that_of_gaussian_noise_on_vectors_of_the_unit():
    for max_rows, public, factor in ((1, None, 1), (3, None, 9), (1, 4, 4), (3, 4, 36)):
        with Spy() as spy:
            table = PrivateTable(CodedSource(SIZES, ROWS, max_rows=max_rows, rows_public=public), BUDGET)
            table.gradient(critic(), clip=1.0, rho=0.01)
        (charge,) = table.account.charges
        assert charge.rho * 2 * int(charge.scale) ** 2 == pytest.approx(factor * UNIT**2, rel=0.01)
        assert charge.rho <= 0.01
        assert spy.rho == charge.rho


def test_a_row_that_is_not_clipped_is_found(monkeypatch):
    """The planted bug: every row adds twice what it may."""
    original = gradient.sum_gradients
    monkeypatch.setattr(gradient, "sum_gradients", lambda *given: 2 * original(*given))
    monkeypatch.setattr("understudy.gate.table.sum_gradients", lambda *given: 2 * original(*given))
    with Spy(), pytest.raises(AssertionError, match="more than it may"):
        PrivateTable(CodedSource(SIZES, ROWS), BUDGET).gradient(critic(), clip=0.001, rho=0.01)


def test_an_answer_is_recorded_and_recalled():
    ledger = Ledger()
    handle = ledger.reserve("people", BUDGET, unit="one row", spec={"place": {}}, key="it")
    table = PrivateTable(CodedSource(SIZES, ROWS), BUDGET, recorder=RunRecorder(ledger, handle))
    first = table.gradient(critic(), clip=1.0, rho=0.01)
    again = PrivateTable(
        SealedSource(SIZES, ROWS), BUDGET, recorder=RunRecorder(ledger, ledger.continue_run(handle.run))
    )
    second = again.gradient(critic(), clip=1.0, rho=0.01)
    assert all((a == b).all() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("wrong", "clip"),
    [
        (critic(domain=Domain({"a": 3})), 1.0),
        (Critic(*(np.full_like(array, np.nan) for array in critic().arrays)), 1.0),
        (Critic(*(np.full_like(array, 1e7) for array in critic().arrays)), 1.0),
        (critic(width=0), 1.0),
        (critic(), 0.0),
        (critic(), float("inf")),
        ("critic", 1.0),
    ],
)
def test_what_is_wrong_is_refused_before_rows_are_read(wrong, clip):
    table = PrivateTable(SealedSource(SIZES, ROWS), BUDGET)
    with pytest.raises(SettingError):
        table.gradient(wrong, clip=clip, rho=0.01)
    assert not table.account.charges


def test_tables_that_only_count_and_pure_budgets_are_refused():
    with pytest.raises(SettingError, match="Parquet"):
        PrivateTable(WordSource({"x": 3}), BUDGET).gradient(critic(), clip=1.0, rho=0.01)
    with pytest.raises(BudgetExceeded, match="pure DP"):
        PrivateTable(SealedSource(SIZES, ROWS), Budget.of(epsilon=1, delta=0)).gradient(critic(), clip=1.0, rho=0.01)
    with pytest.raises(BudgetExceeded):
        PrivateTable(SealedSource(SIZES, ROWS), BUDGET).gradient(critic(), clip=1.0, rho=10.0)
