"""MST and NIST-MST under audit, and mistakes made on purpose in them: each is caught by a check that they pass."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.accounting.neighbours import Neighbours
from understudy.gate import PrivateTable
from understudy.gate import table as gate
from understudy.measurement import Measurement
from understudy.mechanism import mst, nist_mst
from understudy.mechanism.mst import MST
from understudy.mechanism.nist_mst import NistMST
from understudy.mechanism.spanning_tree import IndependentPairs, spanning_tree
from understudy.model import generate
from understudy.testing.audit import Trial, check_claim
from understudy.testing.contract import check_share, check_spending, check_twin
from understudy.testing.tables import CodedSource
from understudy.testing.twin import record_answers, replay_answers

EPSILON = 2.5
BOTH = [MST(), NistMST(cliques=[("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")])]


def tree_trial(runs=1500):
    """One choice of Algorithm 6 between two pairs that tie on one table; a row more moves them apart by 2."""
    sizes = dict.fromkeys("abc", 2)
    expected = {"a": np.array([10.0, 0.0]), "b": np.zeros(2), "c": np.array([1.0, 0.0])}
    present, absent = CodedSource(sizes, [[0, 0, 0]]), CodedSource(sizes, [])
    offsets = {("a", "b"): 0.0, ("a", "c"): 8.0, ("b", "c"): 0.0}

    def chosen(source):
        table = PrivateTable(source, Budget.of(epsilon=EPSILON, delta=0))
        pairs = IndependentPairs(expected, 1.0)
        tree = spanning_tree(table, pairs, rho=EPSILON, start=[("b", "c")], max_cells=9, offsets=offsets)
        return tree == [("a", "b")]

    return Trial(lambda: chosen(present), lambda: chosen(absent), EPSILON, 0.0, runs)


@pytest.mark.law
def test_the_choice_of_a_pair_keeps_its_claim():
    """Fails by chance with probability at most `audit.ERROR`, 1e-9."""
    check_claim(tree_trial())


def rate_doubled(patch):
    original = gate.exponential_mechanism
    patch.setattr(gate, "exponential_mechanism", lambda scores, rate: original(scores, 2 * rate))


def scores_doubled(patch):
    original = gate.scale_scores
    patch.setattr(gate, "scale_scores", lambda *given: ([2 * s for s in original(*given)[0]], original(*given)[1]))


def sensitivity_halved(patch):
    original = Neighbours.score
    patch.setattr(Neighbours, "score", lambda neighbours, weight: original(neighbours, weight) / 2)


def best_pair_taken(patch):
    patch.setattr(gate, "exponential_mechanism", lambda scores, rate: int(np.argmax(scores)))


@pytest.mark.parametrize("mistake", [rate_doubled, scores_doubled, sensitivity_halved, best_pair_taken])
def test_the_audit_catches(mistake, monkeypatch):
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="measured epsilon"):
        check_claim(tree_trial(runs=2500))


# -- mistakes in the mechanisms: what did not pass the gate ----------------------------------------------------------


def spied_source(patch):
    """The rows that every private table is made of, as no mechanism may see them."""
    seen = {}
    original = PrivateTable.__init__

    def init(table, source, *given, **rest):
        seen["source"] = source
        original(table, source, *given, **rest)

    patch.setattr(PrivateTable, "__init__", init)
    return seen


def compressed_by_true_counts(patch):
    seen = spied_source(patch)
    for module in (mst, nist_mst):
        original = module.compress

        def compress(domain, ones, groups, *, original=original, **settings):
            exact = [Measurement(m.clique, dict(seen["source"].counts([m.clique]))[m.clique], m.sigma) for m in ones]
            return original(domain, exact, groups, **settings)

        patch.setattr(module, "compress", compress)


def true_total(patch):
    seen = spied_source(patch)
    original = generate.fit_tree

    def fit_tree(domain, measured, *, total=None, **rest):
        return original(domain, measured, total=max(1, int(dict(seen["source"].counts([()]))[()].sum())), **rest)

    patch.setattr(generate, "fit_tree", fit_tree)


def tree_by_true_counts(patch):
    seen = spied_source(patch)

    def tree(table, independent, **rest):
        tables = dict(seen["source"].counts(combinations("abc", 2)))
        return sorted(tables, key=lambda pair: tuple(tables[pair]))[:2]

    patch.setattr(mst, "spanning_tree", tree)


def transcript(mechanism, rows):
    """What others see of a fit with enough budget that pairs are chosen."""
    table = PrivateTable(CodedSource({"a": 3, "b": 2, "c": 4}, rows), Budget.of(rho=2.0))
    fit = mechanism.fit(table, rho=2.0)
    arrays = {name: np.asarray(array).tobytes() for name, array in fit.model.to_arrays().items()}
    return [m.clique for m in fit.measurements], fit.recoding.to_dict(), arrays, repr(list(fit.rounds))


def check_ample_twin(mechanism):
    """The twin of the contract, on tables large enough for every step of the mechanism to be taken."""
    rng = np.random.default_rng(0)
    first, second = (np.stack([rng.integers(k, size=n) for k in (3, 2, 4)], axis=1) for n in (300, 500))
    second[:, 1] = second[:, 0] // 2
    with record_answers() as answers:
        before = transcript(mechanism, first)
    assert any(isinstance(answer, tuple) for answer in answers) == isinstance(mechanism, MST)
    with replay_answers(answers):
        assert transcript(mechanism, second) == before


@pytest.mark.parametrize("mechanism", BOTH, ids=["mst", "nist-mst"])
def test_the_twin_of_an_ample_budget(mechanism):
    check_ample_twin(mechanism)


@pytest.mark.parametrize(
    ("mistake", "mechanism"),
    [
        (compressed_by_true_counts, BOTH[0]),
        (compressed_by_true_counts, BOTH[1]),
        (true_total, BOTH[0]),
        (true_total, BOTH[1]),
        (tree_by_true_counts, BOTH[0]),
    ],
)
def test_the_twin_catches(mistake, mechanism, monkeypatch):
    mistake(monkeypatch)
    caught = 0
    for check in (check_twin, check_ample_twin):
        try:
            check(mechanism)
        except (AssertionError, AttributeError):  # answers in another order can be of another kind
            caught += 1
    assert caught


@pytest.mark.parametrize("mechanism", BOTH, ids=["mst", "nist-mst"])
def test_the_contract_catches_a_mechanism_that_takes_more_than_its_share(mechanism, monkeypatch):
    original = PrivateTable.measure
    monkeypatch.setattr(
        PrivateTable, "measure", lambda t, c, *, rho, weights=None: original(t, c, rho=2 * rho, weights=weights)
    )
    with pytest.raises(AssertionError, match="share"):
        check_share(mechanism)


@pytest.mark.parametrize("mechanism", BOTH, ids=["mst", "nist-mst"])
def test_the_spy_catches_noise_that_was_halved(mechanism, monkeypatch):
    from dataclasses import replace

    original = PrivateTable._draw
    monkeypatch.setattr(PrivateTable, "_draw", lambda t, c, size: original(t, replace(c, scale=c.scale / 2), size))
    with pytest.raises(AssertionError):
        check_spending(mechanism)
