"""What the mechanisms that choose once would measure of a made-up table."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.gate import Allocation
from understudy.mechanism.gaussian import Gaussian
from understudy.mechanism.independent import Independent
from understudy.mechanism.mst import MST
from understudy.mechanism.nist_mst import NistMST
from understudy.mechanism.privsyn import PrivSyn, choose_pairs, join_pairs, shrink_scores
from understudy.planning.measured import Measured, Places
from understudy.planning.noise import PlannedNoise
from understudy.planning.plausible import merged_size, plausible_column, plausible_dependence

Array = NDArray[np.float64]

_CONSISTENT = 1.33
"""How many times larger the errors of columns are where large tables are made consistent, and not fitted by least
squares. Chosen by hand for `privsyn`, see benchmarks/plan.md."""

_TRIPLES = 0.19
"""The part of `nist-mst`'s budget that goes to triples. Chosen by hand on Adult, see benchmarks/plan.md."""


def of_columns(domain: Domain, noise: PlannedNoise) -> Measured:
    """`independent` measures every column."""
    return _fixed(domain, Independent().plan(domain), noise)


def of_a_workload(settings: Gaussian, domain: Domain, noise: PlannedNoise) -> Measured:
    """`gaussian` measures its whole workload: nothing is chosen."""
    return _fixed(domain, settings.plan(domain), noise)


def of_a_tree(rng: np.random.Generator, settings: MST, domain: Domain, rows: int, noise: PlannedNoise) -> Measured:
    """`mst`: columns, and a tree of pairs, drawn at random: which will be chosen is not known without rows."""
    declared = np.array(list(domain.values()))
    looks = noise.sigmas(declared**settings.size_power, settings.split[0] * noise.capacity) ** -2
    sizes = merged_sizes(rng, declared, looks, rows, noise, settings.threshold)
    tree = _random_tree(rng, len(declared))
    weights = np.array([float(sizes[list(pair)].prod()) ** settings.size_power for pair in tree])
    sigmas = noise.sigmas(weights, settings.split[2] * noise.capacity).tolist()
    return Measured(declared, sizes, looks, tree, sigmas, settings.threshold)


def of_a_public_table(
    rng: np.random.Generator, settings: NistMST, domain: Domain, rows: int, noise: PlannedNoise
) -> Measured:
    """`nist-mst` with a tree of pairs, drawn at random: which pairs and triples a public table says is not known.

    Triples take a part of the budget; what they tell beside the pairs is left out.
    """
    columns = list(domain)
    tree = [(columns[a], columns[b]) for a, b in _random_tree(rng, len(columns))]
    run = _fixed(domain, NistMST(cliques=tree, threshold=settings.threshold).plan(domain), noise)
    sizes = merged_sizes(rng, run.declared, run.looks, rows, noise, settings.threshold)
    left = 1 - _TRIPLES
    sigmas = [sigma * left**-0.5 for sigma in run.sigmas]
    return replace(run, sizes=sizes, looks=run.looks * left, sigmas=sigmas, threshold=settings.threshold)


def of_dependent_pairs(
    rng: np.random.Generator, settings: PrivSyn, domain: Domain, rows: int, noise: PlannedNoise
) -> Measured:
    """`privsyn`: columns, noisy dependence of all pairs, its own choice and cliques."""
    declared = np.array(list(domain.values()))
    budget = noise.capacity
    looks = noise.sigmas(np.ones(len(declared)), settings.one_way_share * budget) ** -2
    sizes = merged_sizes(rng, declared, looks, rows, noise, settings.threshold)
    merged = Domain({str(place): int(size) for place, size in enumerate(sizes)})
    cells = _candidates(merged, settings.pair_cells)
    spend = settings.dependence_share * budget if cells else 0.0
    left = budget - settings.one_way_share * budget - spend
    pure = noise.budget.pure
    spread = Allocation(noise.single(left) * ((0.5 if pure else 2 / np.pi) ** 0.5), 1 if pure else 2)
    scores = _scores(rng, settings, sizes, list(cells), rows, noise, spend) if cells else {}
    pairs = choose_pairs(scores, cells, spread, least_gain=settings.least_gain, most_cells=settings.most_cells)
    cliques = join_pairs(merged, pairs, most_cells=settings.clique_cells)
    named = {column for pair in pairs for column in pair}
    again = [place for place in range(len(declared)) if str(place) not in named]
    weights = spread.weights([merged.cells(c) for c in cliques] + [int(declared[place]) for place in again])
    sigmas = noise.sigmas(np.array(weights), left)
    looks[again] += sigmas[len(cliques) :] ** -2
    return Measured(
        declared,
        sizes,
        looks,
        [_places(clique) for clique in cliques],
        sigmas[: len(cliques)].tolist(),
        settings.threshold,
        rough=(_CONSISTENT, 1.0),
    )


def merged_sizes(
    rng: np.random.Generator, declared: Array, looks: Array, rows: int, noise: PlannedNoise, threshold: float
) -> Array:
    """How many codes are left of made-up columns when rare ones are merged; all of those never looked at."""
    found = []
    for size, look in zip(declared.tolist(), looks.tolist(), strict=True):
        if not look or not threshold:
            found.append(size)
            continue
        column = plausible_column(rng, size, rows)
        found.append(merged_size(column + noise.draw(rng, look**-0.5, size), look**-0.5, threshold))
    return np.array(found)


def _fixed(domain: Domain, weights: dict[Clique, float], noise: PlannedNoise) -> Measured:
    """Measurements fixed in advance; tables of single columns are looks."""
    place = {column: i for i, column in enumerate(domain)}
    declared, looks = np.array(list(domain.values())), np.zeros(len(domain))
    cliques, sigmas = [], []
    for clique, sigma in zip(weights, noise.fixed(weights).tolist(), strict=True):
        if len(clique) == 1:
            looks[place[clique[0]]] += sigma**-2
        else:
            cliques.append(tuple(sorted(place[column] for column in clique)))
            sigmas.append(sigma)
    return Measured(declared, declared, looks, cliques, sigmas)


def _random_tree(rng: np.random.Generator, columns: int) -> list[Places]:
    """Each column after the first is tied to one before it."""
    order = rng.permutation(columns).tolist()
    ties = [(order[int(rng.integers(place))], order[place]) for place in range(1, columns)]
    return [(min(tie), max(tie)) for tie in ties]


def _candidates(domain: Domain, most: int) -> dict[Clique, int]:
    wide = [column for column, size in domain.items() if size > 1]
    cells = {pair: domain[pair[0]] * domain[pair[1]] for pair in combinations(wide, 2)}
    return {pair: size for pair, size in cells.items() if size <= most}


def _scores(
    rng: np.random.Generator,
    settings: PrivSyn,
    sizes: Array,
    pairs: list[Clique],
    rows: int,
    noise: PlannedNoise,
    spend: float,
) -> dict[Clique, float]:
    """Made-up dependence with the noise that the gate adds to all scores in one charge."""
    near, count = noise.neighbours, len(pairs)
    grows = count / near.marginal_l1 if noise.budget.pure else (count / near.marginal_l2_squared) ** 0.5
    sigma = noise.single(spend) * near.indif * grows
    true = rows * plausible_dependence(rng, sizes[np.array([_places(pair) for pair in pairs])])
    noisy = dict(zip(pairs, (true + noise.draw(rng, sigma, count)).tolist(), strict=True))
    return shrink_scores(noisy, sigma) if settings.shrink else noisy


def _places(clique: Clique) -> Places:
    return tuple(sorted(map(int, clique)))
