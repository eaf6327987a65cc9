"""Paper mode, line by line: a published algorithm is written down from its paper, and must ask what the run asked.

Each `follow_...` takes the answers that the gate gave a run, one after the other, does with them what the paper's lines
say, and compares the next question: the candidates, what they are compared with, the marginals, and every number that
determines the noise. Models are joint tables of a few cells, fitted by mirror descent from the uniform table. Those of
the run stop at a tolerance, so what is computed from them may differ by 1 % of the rows, and the last model by 2 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.accounting.convert import rho_of
from understudy.gate import PrivateTable
from understudy.mechanism import make_mechanism
from understudy.model.kernels import rows as kernels
from understudy.model.network import CellTraining
from understudy.model.relaxed import CellProjection
from understudy.testing.tables import CodedSource

# -- what a run asked, and what it was told ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A question to the gate: its kind, its cliques, how it was asked, its charges and its answer."""

    what: str
    cliques: list
    given: dict
    charges: tuple
    answer: Any


class Script:
    """The questions of a run in their order."""

    def __init__(self, questions, rows):
        self._questions, self._rows = list(questions), rows

    def next(self, what):
        assert self._questions, f"the run asked nothing more, the paper has a {what}"
        question = self._questions.pop(0)
        assert question.what == what
        return question

    def measure(self, deviations):
        """The answers for these marginals, which must have these standard deviations."""
        question = self.next("measure")
        assert set(question.cliques) == set(deviations)
        for one in question.answer:
            assert one.sigma == pytest.approx(deviations[one.clique], rel=1e-6)
        return {one.clique: np.asarray(one.values, float) for one in question.answer}

    def select(self, candidates, model, *, epsilon, weights=None, offsets=None):
        """The choice among these candidates by the distance from a model, less an offset, times a weight."""
        question = self.next("select")
        assert set(question.cliques) == set(candidates)
        for name, expected, usual in (("weights", weights, 1.0), ("offsets", offsets, 0.0)):
            given = question.given.get(name) or {}
            for r in candidates:
                assert given.get(r, usual) == pytest.approx(expected[r] if expected else usual, rel=1e-3)
        for r in candidates:
            against = np.asarray(question.given["against"][r], float)
            assert np.abs(against - model.project(r)).sum() <= 0.01 * self._rows
        (charge,) = question.charges
        assert charge.scale == pytest.approx(epsilon, rel=1e-6)
        assert charge.sensitivity == pytest.approx(max(weights[r] for r in candidates) if weights else 1.0)
        return question.answer.clique

    def end(self):
        assert not self._questions, f"the paper asks nothing more, the run a {self._questions[0].what}"


def run(monkeypatch, mechanism, sizes, rows, *, rows_public=None, **budget):
    """A run in paper mode and its script."""
    questions: list[Question] = []

    def watch(what: str) -> None:
        original: Callable = getattr(PrivateTable, what)

        def watched(table, cliques, **given):
            cliques, before = list(cliques), len(table.account.charges)
            now = {key: list(value) if isinstance(value, list) else value for key, value in given.items()}
            if given.get("against") is not None:
                now["against"] = {r: np.array(given["against"][r]) for r in cliques}
            answer = original(table, cliques, **given)
            questions.append(Question(what, cliques, now, table.account.charges[before:], answer))
            return answer

        monkeypatch.setattr(PrivateTable, what, watched)

    for what in ("measure", "select", "select_cells", "dependence"):
        watch(what)
    given = Budget.of(**budget)
    table = PrivateTable(CodedSource(sizes, rows, rows_public=rows_public), given)
    fit = mechanism.fit(table, rho=float(given.capacity))
    return fit, Script(questions, len(rows))


# -- Private-PGM -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joint:
    """A joint table."""

    sizes: dict
    table: np.ndarray

    def project(self, clique):
        names = list(self.sizes)
        kept = self.table.sum(axis=tuple(i for i, name in enumerate(names) if name not in clique))
        left = [name for name in names if name in clique]
        return kept.transpose([left.index(name) for name in clique])


def uniform(sizes, total=1.0):
    shape = tuple(sizes.values())
    return Joint(sizes, np.full(shape, total / math.prod(shape)))


def fit_joint(sizes, log, power=2):
    """argmin over joint tables of the sum of |q M_r(p) - y|^2 / sigma^power, the one of largest entropy.

    `log` has tuples of a clique, the scale q of each cell, the noisy y and sigma. The number of rows is the mean of the
    tables' sums, weighted by their precision.
    """
    sums = [((y / q).sum(), ((sigma / q) ** 2).sum()) for _, q, y, sigma in log]
    total = max(1.0, sum(s / v for s, v in sums) / sum(1 / v for _, v in sums))
    names, shape = list(sizes), tuple(sizes.values())

    def slope(table):
        loss, pull = 0.0, np.zeros(shape)
        for clique, q, y, sigma in log:
            off = q * Joint(sizes, table).project(clique) - y
            loss += (off**2).sum() / sigma**power
            order = sorted(range(len(clique)), key=lambda i: names.index(clique[i]))
            lifted = (2 * q * off / sigma**power).transpose(order)
            pull = pull + lifted.reshape([sizes[name] if name in clique else 1 for name in names])
        return loss, pull

    logits, step = np.zeros(shape), 1.0 / total
    table = uniform(sizes, total).table
    loss, pull = slope(table)
    for _ in range(3000):
        moved = logits - step * pull
        new = np.exp(moved - moved.max())
        new *= total / new.sum()
        after, pulled = slope(new)
        if after <= loss:
            if loss - after < 1e-9 * loss:
                break
            logits, table, loss, pull, step = moved, new, after, pulled, 1.5 * step
        else:
            step *= 0.5
    return Joint(sizes, table)


def entry(clique, y, sigma, sizes):
    shape = [sizes[column] for column in clique]
    return clique, np.ones(shape), y.reshape(shape), sigma


def is_near(fit, model, cliques):
    rows = model.table.sum()
    for r in cliques:
        assert np.abs(fit.model.project(r) - model.project(r)).sum() <= 0.02 * rows


# -- AIM: Algorithm 1 (MWEM+PGM) and Algorithms 2 to 4 -----------------------------------------------------------------

SIZES = {"a": 2, "b": 3, "c": 4}
PAIRS = [("a", "b"), ("a", "c"), ("b", "c")]


def dependent(count=600, seed=5):
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=count)
    b = np.where(rng.random(count) < 0.7, a, rng.integers(3, size=count))
    c = np.where(rng.random(count) < 0.4, b, rng.integers(4, size=count))
    return np.stack([a, b, c], axis=1)


def follow_mwem(script, sizes, workload, rho):
    rounds, alpha = len(sizes), 0.9
    epsilon, sigma = math.sqrt(8 * (1 - alpha) * rho / rounds), math.sqrt(rounds / (2 * alpha * rho))
    log, p = [], uniform(sizes)
    cells = {r: math.prod(sizes[column] for column in r) for r in workload}
    for _ in range(rounds):
        r = script.select(workload, p, epsilon=epsilon, offsets=cells)
        log.append(entry(r, script.measure({r: sigma})[r], sigma, sizes))
        p = fit_joint(sizes, log)
    script.end()
    return p


@pytest.mark.parametrize("rho", [0.02, 2.0])
def test_mwem_is_algorithm_1(rho, monkeypatch):
    mechanism = make_mechanism("mwem", paper=True, workload="all-2way")
    fit, script = run(monkeypatch, mechanism, SIZES, dependent(), rho=rho)
    is_near(fit, follow_mwem(script, SIZES, PAIRS, rho), PAIRS)


def junction_tree_cells(sizes, cliques):
    """JT-SIZE in cells, by trying every elimination order."""
    found = []
    for order in permutations(sizes):
        near = {c: {d for r in cliques if c in r for d in r} - {c} for c in sizes}
        bags = []
        for c in order:
            mine = near.pop(c)
            bags.append(mine | {c})
            for d in mine:
                near[d] = (near[d] | mine) - {c, d}
        largest = [bag for i, bag in enumerate(bags) if not any(bag <= other for other in bags[:i])]
        found.append(sum(math.prod(sizes[c] for c in bag) for bag in largest))
    return min(found)


def follow_aim(script, sizes, workload, rho, max_mib, power):
    d, alpha = len(sizes), 0.9
    rounds = 16 * d
    closure = {r for s in workload for k in range(1, len(s) + 1) for r in combinations(s, k)}
    cells = {r: math.prod(sizes[column] for column in r) for r in closure}
    sigma, epsilon = math.sqrt(rounds / (2 * alpha * rho)), math.sqrt(8 * (1 - alpha) * rho / rounds)  # lines 4 and 9
    ones = {r: sigma for r in closure if len(r) == 1}  # Algorithm 3
    log = [entry(r, y, sigma, sizes) for r, y in script.measure(ones).items()]
    used = len(ones) / (2 * sigma**2)
    p = fit_joint(sizes, log, power)
    weights = {r: float(sum(len(set(r) & set(s)) for s in workload)) for r in closure}  # line 8
    steps = []
    while used < rho * (1 - 1e-9):
        used += epsilon**2 / 8 + 1 / (2 * sigma**2)  # line 12
        measured = [r for r, *_ in log]
        limit = used / rho * max_mib * 2**20 / 8
        fitting = {r for r in closure if junction_tree_cells(sizes, [*measured, r]) <= limit}  # line 13
        noise = math.sqrt(2 / math.pi) * sigma
        r = script.select(  # line 14
            fitting, p, epsilon=epsilon, weights=weights, offsets={r: noise * cells[r] for r in closure}
        )
        log.append(entry(r, script.measure({r: sigma})[r], sigma, sizes))  # line 15
        before, p = p, fit_joint(sizes, log, power)  # line 16
        steps.append((len(fitting), sigma))
        if np.abs(p.project(r) - before.project(r)).sum() <= noise * cells[r]:  # Algorithm 4
            epsilon, sigma = 2 * epsilon, sigma / 2
        left = max(rho - used, 1e-12)
        if left <= 2 * (1 / (2 * sigma**2) + epsilon**2 / 8):
            epsilon, sigma = math.sqrt(8 * (1 - alpha) * left), math.sqrt(1 / (2 * alpha * left))
    script.end()
    return p, steps


@pytest.mark.parametrize("loss", ["likelihood", "printed"])
@pytest.mark.parametrize("rho", [0.01, 0.2])
def test_aim_is_algorithms_2_to_4(rho, loss, monkeypatch):
    """MAX-SIZE is 120 cells, so that single columns alone fit at first (9 cells of 9.25), and later all candidates."""
    mechanism = make_mechanism("aim", paper=True, workload="all-2way", max_mib=120 * 8 / 2**20, loss=loss)
    fit, script = run(monkeypatch, mechanism, SIZES, dependent(), rho=rho)
    p, steps = follow_aim(script, SIZES, PAIRS, rho, 120 * 8 / 2**20, 2 if loss == "likelihood" else 1)
    is_near(fit, p, PAIRS)
    assert [fitting for fitting, _ in steps][:: len(steps) - 1] == [3, 6]
    assert len({sigma for _, sigma in steps}) > 2


# -- "Winning the NIST Contest": Algorithm 2 as MST and as NIST-MST ----------------------------------------------------


def compress(ones, deviations):
    """Algorithm 4: the new codes of each column, and the log over them.

    The new code of u values has the sum of their noisy counts, divided by sqrt(u) so that its noise is that of others.
    """
    codes, log = {}, []
    for (column,), y in ones.items():
        rare = y < 3 * deviations[column,]
        codes[column] = np.where(rare, (~rare).sum(), np.cumsum(~rare) - 1) if rare.sum() > 1 else np.arange(len(y))
        q = 1 / np.sqrt(np.bincount(codes[column]))
        log.append(((column,), q, q * np.bincount(codes[column], y), deviations[column,]))
    return codes, log


def merged_codes_are(fit, codes):
    for column, new in codes.items():
        assert fit.recoding.maps.get(column, np.arange(len(new))).tolist() == new.tolist()


def are_apart(pair, edges):
    reached = {pair[0]}
    for _ in edges:
        reached |= {c for edge in edges if reached & set(edge) for c in edge}
    return pair[1] not in reached


def follow_mst(script, sizes, rho):
    d, sigma = len(sizes), math.sqrt(3 / (2 * rho))  # a third of the budget for each step
    deviations = {(c,): sigma * math.sqrt(d) for c in sizes}  # Algorithm 1: weights of 1 / sqrt(d)
    codes, log = compress(script.measure(deviations), deviations)
    small = {c: int(new.max()) + 1 for c, new in codes.items()}
    estimated, chosen = fit_joint(small, log), []  # Algorithm 6, line 1
    for _ in range(d - 1):  # line 6
        joining = [pair for pair in combinations(sizes, 2) if are_apart(pair, chosen)]  # line 7
        chosen.append(script.select(joining, estimated, epsilon=math.sqrt(8 * (rho / 3) / (d - 1))))  # lines 5 and 8
    deviation = sigma * math.sqrt(d - 1)
    log += [entry(r, y, deviation, small) for r, y in script.measure(dict.fromkeys(chosen, deviation)).items()]
    script.end()
    return codes, fit_joint(small, log)


TOWNS = {"town": 7, "sex": 2, "age": 3, "job": 3}


def people(count, seed, rare=0.02):
    """Towns 3 to 6 are rare; age follows town, job follows age, and sex has to do with job."""
    rng = np.random.default_rng(seed)
    town = np.where(rng.random(count) < rare, rng.integers(3, 7, count), rng.integers(3, size=count))
    age = np.where(rng.random(count) < 0.3, rng.integers(3, size=count), town % 3)
    job = np.where(rng.random(count) < 0.4, rng.integers(3, size=count), age)
    sex = np.where(rng.random(count) < 0.5, rng.integers(2, size=count), job // 2)
    return np.stack([town, sex, age, job], axis=1)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_mst_is_algorithm_2_with_algorithms_1_4_and_6(epsilon, monkeypatch):
    rho = rho_of(epsilon, 1e-6)
    fit, script = run(
        monkeypatch, make_mechanism("mst", paper=True), TOWNS, people(4000, 1), epsilon=epsilon, delta=1e-6
    )
    codes, p = follow_mst(script, TOWNS, rho)
    merged_codes_are(fit, codes)
    assert codes["town"].max() < 6
    is_near(fit, p, combinations(TOWNS, 2))


def forest(nodes, weights):
    """The spanning forest of the largest weight, by trying every set of edges."""
    found = []
    for size in range(len(nodes)):
        for edges in combinations(weights, size):
            if all(are_apart(edge, edges[:i] + edges[i + 1 :]) for i, edge in enumerate(edges)):
                found.append((sum(weights[edge] for edge in edges), edges))
    return max(found)[1]


def algorithm_5(sizes, rows, epsilon, income):
    """The marginals that are chosen from public rows, and their weights."""
    joint = np.zeros(tuple(sizes.values()))
    np.add.at(joint, tuple(rows.T), 1 / len(rows))
    share = Joint(sizes, joint)

    def information(pair):
        table = share.project(pair)
        ratio = np.divide(table, np.outer(table.sum(1), table.sum(0)), out=np.ones_like(table), where=table > 0)
        return float((table * np.log(ratio)).sum())

    kept = set(combinations(income, 2))
    tree = forest(list(sizes), {r: information(r) + 100 * (r in kept) for r in combinations(sizes, 2)})  # lines 1, 2
    chosen = {*tree, *kept, income}
    for i in sizes:  # lines 3 and 4
        near = [c for c in sizes if {(c, i), (i, c)} & set(tree)]
        errors = {}
        for j, k in combinations(near, 2):
            table = share.project((i, j, k))
            modelled = np.einsum("ij,ik,i->ijk", table.sum(2), table.sum(1), 1 / np.maximum(table.sum((1, 2)), 1e-99))
            errors[j, k] = float(np.abs(table - modelled).sum())
        for edge in forest(near, {edge: error for edge, error in errors.items() if error >= 0.1}):
            chosen |= {edge, tuple(c for c in sizes if c in (i, *edge))}
    whole = 8.0 if epsilon <= 0.3 else 4.0 if epsilon >= 4.0 else 6.0  # line 6
    return {r: whole if r == income else 2.0 if r in kept else 1.0 for r in chosen}


def follow_nist_mst(script, sizes, public, epsilon, delta, income):
    sigma = (math.sqrt(math.log(1 / delta)) + math.sqrt(math.log(1 / delta) + epsilon)) / epsilon  # equation 5.1
    log, small = [], sizes
    for group in ({(c,): 2.0 if c == income[-1] else 1.0 for c in sizes}, algorithm_5(sizes, public, epsilon, income)):
        norm = math.sqrt(sum(w**2 for w in group.values()))
        deviations = {r: sigma * norm / w for r, w in group.items()}  # Algorithm 1
        answers = script.measure(deviations)
        if not log:
            codes, log = compress(answers, deviations)
            small = {c: int(new.max()) + 1 for c, new in codes.items()}
        else:
            log += [entry(r, y, deviations[r], small) for r, y in answers.items()]
    script.end()
    return codes, fit_joint(small, log), group


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_nist_mst_is_algorithms_1_to_5(epsilon, monkeypatch):
    """The income is the age, its groups town and sex, though sex tells most about job; job depends on town and age."""
    income, delta, public, rng = ("town", "sex", "age"), 1e-9, people(3000, 2, rare=0.1), np.random.default_rng(3)
    mixed = (public[:, 0] + public[:, 2] * (1 + public[:, 0] % 2)) % 3
    public[:, 3] = np.where(rng.random(3000) < 0.35, mixed, public[:, 3])
    public[:, 1] = np.where(rng.random(3000) < 0.4, public[:, 3] // 2, public[:, 1])
    mechanism = make_mechanism("nist-mst", paper=True, public=CodedSource(TOWNS, public), income=income)
    fit, script = run(monkeypatch, mechanism, TOWNS, people(20_000, 1), epsilon=epsilon, delta=delta)
    codes, p, weights = follow_nist_mst(script, TOWNS, public, epsilon, delta, income)
    merged_codes_are(fit, codes)
    assert sorted(set(weights.values())) == sorted({1.0, 2.0, weights[income]})
    assert any(len(r) == 3 for r in set(weights) - {income})
    is_near(fit, p, combinations(TOWNS, 2))


# -- PrivSyn -----------------------------------------------------------------------------------------------------------


def follow_privsyn(script, sizes, rho):
    first, second, third = 0.1 * rho, 0.1 * rho, 0.8 * rho
    deviations = {(c,): math.sqrt(len(sizes) / (2 * first)) for c in sizes}  # 4.1
    codes, _ = compress(script.measure(deviations), deviations)
    pairs = list(combinations(sizes, 2))
    asked = script.next("dependence")  # 4.2
    (charge,) = asked.charges
    assert asked.cliques == pairs
    assert charge.scale == pytest.approx(math.sqrt(8 * len(pairs) / second), rel=1e-6)
    cells = {r: math.prod(int(codes[c].max()) + 1 for c in r) for r in pairs}

    def error(chosen):  # 4.3
        noise = sum(cells[r] ** (2 / 3) for r in chosen) ** 1.5 / math.sqrt(math.pi * third)
        return noise + sum(asked.answer[r] for r in pairs if r not in chosen)

    chosen: list = []
    while len(chosen) < len(pairs):
        best = min((r for r in pairs if r not in chosen), key=lambda r: error([*chosen, r]))
        if error([*chosen, best]) >= error(chosen):
            break
        chosen.append(best)
    out, used = [], set()
    for size in range(len(sizes), 2, -1):  # 4.4
        for clique in combinations(sizes, size):
            known = all(pair in chosen for pair in combinations(clique, 2))
            small = math.prod(int(codes[c].max()) + 1 for c in clique) <= 5000
            if known and small and len(used & set(clique)) <= 2:
                out.append(clique)
                used |= set(clique)
    out += [pair for pair in chosen if not any(set(pair) <= set(clique) for clique in out)]
    parts = {r: math.prod(int(codes[c].max()) + 1 for c in r) ** (2 / 3) for r in out}  # 4.5
    script.measure({r: math.sqrt(sum(parts.values()) / (2 * third * part)) for r, part in parts.items()})
    script.end()
    return codes, out


def chained(count=3000):
    """Six columns, each of which repeats the one before it in half of the rows; one value in twenty is rare."""
    rng = np.random.default_rng(4)
    columns = [np.where(rng.random(count) < 0.05, rng.integers(3, 6, count), rng.integers(3, size=count))]
    for _ in range(5):
        columns.append(np.where(rng.random(count) < 0.5, columns[-1], rng.integers(3, size=count)))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("rho", [0.003, 0.02, 2.0])
def test_privsyn_is_its_specification(rho, monkeypatch):
    columns = dict.fromkeys("abcdef", 6)
    fit, script = run(monkeypatch, make_mechanism("privsyn", paper=True), columns, chained(), rho=rho)
    codes, measured = follow_privsyn(script, columns, rho)
    assert len({len(clique) for clique in measured}) > 1
    named = {c for clique in measured for c in clique}
    merged_codes_are(fit, {c: new for c, new in codes.items() if c in named})


def gum_amounts(have, target, alpha, share):
    """4.7: the rows that each cell gives up, gets by Duplicate and gets by Replace."""

    def nearest(number):
        return math.floor(number + 0.5)

    copied, written = [], []
    for f, t in zip(have, target, strict=True):
        rows = 0 if f >= t else nearest(alpha * t) if f == 0 else nearest(min(t - f, alpha * f))
        copied.append(min(nearest(share * rows), int(f), rows) if f else 0)
        written.append(rows - copied[-1])
    low, high = 0.0, 1.0
    for _ in range(60):
        beta = (low + high) / 2
        given = sum(min(f - t, beta * f) for f, t in zip(have, target, strict=True) if f > t)
        low, high = (beta, high) if given < sum(copied) + sum(written) else (low, beta)
    removed = [min(nearest(min(f - t, high * f)), int(f)) if f > t else 0 for f, t in zip(have, target, strict=True)]
    return removed, copied, written


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_exchanged_as_the_specification_says(seed):
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.full(12, 0.3)) * 1000
    have = rng.multinomial(1000, rng.dirichlet(np.full(12, 0.3)))
    for t in (0, 1, 25, 45):
        alpha, share = 0.84 ** (t // 20), 1.0 if t % 2 else 0.5
        found = [np.zeros(12, np.int64) for _ in range(3)]
        kernels.plan_changes(have, target, alpha, share, True, np.array([1], np.uint64), *found)
        assert [array.tolist() for array in found] == [
            list(map(int, part)) for part in gum_amounts(have, target, alpha, share)
        ]


# -- PrivBayes ---------------------------------------------------------------------------------------------------------


def follow_privbayes(script, sizes, rows, epsilon):
    """General domains, score R, a public number of rows; the first column is that of the schema."""
    d, theta, first, second = len(sizes), 4, 0.3 * epsilon, 0.7 * epsilon
    most = rows * second / (2 * d * theta)
    known, network = [next(iter(sizes))], [(next(iter(sizes)),)]
    while len(known) < d:
        candidates = set()
        for x in set(sizes) - set(known):
            sets = [frozenset(r) for k in range(len(known) + 1) for r in combinations(known, k)]
            small = [r for r in sets if sizes[x] * math.prod(sizes[c] for c in r) <= most]
            candidates |= {(x, r) for r in small if not any(r < other for other in small)}
        question = script.next("select")
        assert {(r[0], frozenset(r[1:])) for r in question.cliques} == candidates
        assert question.given.get("against") is None
        (charge,) = question.charges
        assert float(charge.epsilon) == pytest.approx(first / (d - 1))
        x, *parents = question.answer.clique
        network.append((x, *(c for c in reversed(known) if c in parents)))  # the latest first: an order of the table
        known.append(x)
    ratio = math.exp(-second / (2 * d))  # of whole-number Laplace noise of scale 2 d / epsilon_2
    answers = script.measure(dict.fromkeys(network, math.sqrt(2 * ratio) / (1 - ratio)))
    script.end()
    names = list(sizes)
    joint = np.ones(tuple(sizes.values()))
    for r in network:  # negative counts are 0; the column given its parents, uniform where they do not occur
        table = np.maximum(answers[r].reshape([sizes[c] for c in r]), 0)
        sums = table.sum(axis=0, keepdims=True)
        given = np.where(sums > 0, table / np.where(sums > 0, sums, 1), 1 / sizes[r[0]])
        order = sorted(range(len(r)), key=lambda i: names.index(r[i]))
        joint = joint * given.transpose(order).reshape([sizes[c] if c in r else 1 for c in names])
    return Joint(sizes, joint)


@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_privbayes_is_its_specification(epsilon, monkeypatch):
    """600 rows: a table may have 13 or 26 cells, so that all pairs fit, and one triple of columns or all."""
    sizes, mechanism = {"a": 3, "b": 2, "c": 4, "d": 2}, make_mechanism("privbayes", paper=True)
    rng = np.random.default_rng(0)
    a, b = rng.integers(3, size=600), rng.integers(2, size=600)
    rows = np.stack([a, b, (a + b) % 4, np.where(rng.random(600) < 0.8, b, 1 - b)], axis=1)
    fit, script = run(monkeypatch, mechanism, sizes, rows, rows_public=600, epsilon=epsilon, delta=0)
    joint = follow_privbayes(script, sizes, 600, epsilon)
    assert fit.model.project(tuple(sizes)) / fit.model.total == pytest.approx(joint.table, abs=1e-6)


# -- RAP and GEM: single cells -----------------------------------------------------------------------------------------


def follow_cells(script, sizes, workload, rows, seen, *, epsilon, sigma, batch):
    """Each round: the worst unused cells of the workload by the relaxed rows as they are, their noisy counts, training.

    `seen` has the relaxed rows before each training, what is learned from, and the number of rows.
    """
    ends = np.cumsum(list(sizes.values()))
    places = {c: slice(end - size, end) for (c, size), end in zip(sizes.items(), ends, strict=True)}
    used, learned = [], []
    for relaxed, cells, total in seen:
        question = script.next("select_cells")
        assert question.cliques == workload
        assert question.given["count"] == batch
        assert list(question.given["used"]) == used
        for i, j in workload:
            expected = rows * np.einsum("ni,nj->ij", relaxed[:, places[i]], relaxed[:, places[j]]) / len(relaxed)
            assert np.asarray(question.given["against"][i, j]).reshape(expected.shape) == pytest.approx(
                expected, abs=0.02
            )
        assert [charge.scale for charge in question.charges] == pytest.approx([epsilon] * batch, rel=1e-6)
        assert [charge.sensitivity for charge in question.charges] == [1.0] * batch
        for cell in question.answer:
            asked = script.next("measure")
            (query,) = asked.given["queries"].values()
            (answer,) = asked.answer
            assert asked.cliques == [cell.clique]
            assert (query @ np.arange(sizes[cell.clique[0]] * sizes[cell.clique[1]])).tolist() == [cell.number]
            assert answer.sigma == pytest.approx(sigma, rel=1e-6)
            learned.append(answer)
        used += question.answer
        assert len(set(used)) == len(used)
        assert [one.values.tolist() for one in cells] == [one.values.tolist() for one in learned]
        assert total == rows
    script.end()


@pytest.mark.usefixtures("short_training")
@pytest.mark.parametrize("name", ["rap", "gem"])
def test_rap_and_gem_choose_and_measure_cells_as_published(name, monkeypatch):
    """T = 3 rounds of K = 2 cells (GEM: 1) at rho 0.6: rho_0 = rho / (2 T K), and a = 0.67 for GEM's selections."""
    seen, rho, rounds = [], 0.6, 3
    for kind in (CellProjection, CellTraining):

        def watched(training, cells, total, learn=kind.learn):
            seen.append((training.rows().copy(), list(cells), total))
            learn(training, cells, total)

        monkeypatch.setattr(kind, "learn", watched)
    batch = 2 if name == "rap" else 1
    settings = {"workload": "all-2way", "rounds": rounds} | ({"batch": batch} if name == "rap" else {})
    _, script = run(
        monkeypatch, make_mechanism(name, paper=True, **settings), SIZES, dependent(), rows_public=600, rho=rho
    )
    if name == "rap":
        each = rho / (2 * rounds * batch)
        epsilon, sigma = math.sqrt(8 * each), math.sqrt(1 / (2 * each))
    else:
        start = math.sqrt(2 * rho / (rounds * (0.67**2 + 0.33**2)))
        epsilon, sigma = 2 * 0.67 * start, 1 / (0.33 * start)
    follow_cells(script, SIZES, PAIRS, 600, seen, epsilon=epsilon, sigma=sigma, batch=batch)
