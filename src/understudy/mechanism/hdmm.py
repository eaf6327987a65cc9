"""`hdmm`: the high-dimensional matrix mechanism with Private-PGM (McKenna et al. 2018 and 2019, HDMM+PGM).

A column with an axis is measured by a strategy matrix that answers ranges well; others cell by cell. What was unclear
in the sources, and what was chosen, is in docs/decisions/hdmm.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, CodeGroups, Domain
from understudy.gate import PrivateTable
from understudy.measurement import KroneckerQuery
from understudy.mechanism.base import Count, Footprint, Mechanism, Positive
from understudy.mechanism.gaussian import list_tables
from understudy.model.fit import Fit, Generator, GeneratorName
from understudy.progress import Progress, Step, silent

Matrix: TypeAlias = NDArray[np.float64]
Answers: TypeAlias = Literal["ranges", "prefixes", "cells"]

_BITS = 6  # a strategy's entries are multiples of 2^-6 of its largest column: whole numbers, so that noise stays exact
_MOST_BITS = 20  # of the entries of a product of strategies
_LONGEST = 256  # codes of an axis up to which a strategy is optimised; longer ones get a tree of sums
_BRANCHES = 16  # of that tree
_WIDEST = 1024  # codes of a column up to which it has a matrix; tables with a wider one are measured cell by cell
_STEPS = 60  # of gradient descent


class HDMM(Mechanism):
    """Measure the marginals of a workload through strategies that suit the queries on them, and fit a graphical model.

    The strategy of a clique is the Kronecker product of its columns' strategies: the identity, or for a column with an
    axis the p-Identity matrix that answers its ranges (or prefixes) with the least squared error.

    **Privacy.** One call to the gate: whole-number queries whose sensitivity the gate computes. The strategies and the
    division of the budget depend on the schema and the settings alone.

    Attributes:
        workload: which marginals: `all-2way`, `target:COLUMN`, `skewed:SEED` or a YAML file.
        answers: which queries on a column with an axis matter: "ranges", "prefixes" or single "cells".
        equal: whether each table gets the same part of the budget; else the summed squared error is least.
        max_mib: the largest junction tree; beyond it rows are made by gradual updates.
        max_cells: cliques of more cells are left out.
        generator: "pgm" for a graphical model if it is small enough; or "gum", gradual updates in any case.
    """

    name = "hdmm"
    paper = "McKenna, Miklau, Hay and Machanavajjhala 2018, HDMM; McKenna, Sheldon and Miklau 2019, HDMM+PGM"
    when = "Range queries on numbers and times, over a workload that is known in advance."

    workload: str = "all-2way"
    answers: Answers = "ranges"
    equal: bool = False
    max_mib: Positive = 80.0
    max_cells: Count = 2_000_000
    generator: GeneratorName = "pgm"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the same part of the budget for every table of the workload."""
        return {"equal": True}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Choose strategies, measure and finish."""
        wanted = list_tables(table.domain, self.workload, self.max_cells)
        tables = {r: c for r, c in wanted.items() if table.can_measure(r)}
        progress(Step("measure", 0.0, f"{len(tables)} marginals"))
        strategies = {r: self._strategy(table.domain, r, table.code_groups, table.weight_power) for r in tables}
        queries = {r: query for r, (query, _) in strategies.items() if query is not None}
        # the sum of c e / share^(2/power) is least at shares ~ (c e)^(power/(power+2)); a share is weight^power
        power = table.weight_power
        errors = {r: tables[r] * error for r, (_, error) in strategies.items()}
        weights = {r: 1.0 if self.equal else error ** (1 / (power + 2)) for r, error in errors.items()}
        measured = table.measure(tables, rho=rho, weights=weights, queries=queries)
        return self.conclude(table, measured, rounds=[{"measured": len(measured), "share": 1.0}], progress=progress)

    def make_generator(self) -> Generator:
        """Return a graphical model if it is small enough, else gradual updates."""
        return Generator(self.generator, self.max_mib)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of a few copies of all tables, of their answers and of the junction tree, if any."""
        tables = list_tables(domain, self.workload, self.max_cells)
        answers = sum(int(math.prod(1.2 * domain[column] + 1 for column in r)) for r in tables)
        tree = int(self.max_mib * (1 << 20))
        return Footprint(memory_bytes=4 * tree + 100 * answers, disk_bytes=16 * answers + 512 * len(domain) ** 2)

    def _strategy(
        self, domain: Domain, clique: Clique, groups: CodeGroups, norm: int
    ) -> tuple[KroneckerQuery | None, float]:
        """Return a clique's query (None for its cells) and its squared error, at sensitivity 1 and noise variance 1."""
        axes = {column: groups.axis(column) for column in clique}
        ordered = sum(places > 1 for places in axes.values())
        if self.answers == "cells" or not ordered or max(domain.shape(clique)) > _WIDEST:
            return None, float(domain.cells(clique))
        bits = min(_BITS, _MOST_BITS // ordered)
        parts = [column_strategy(domain[c], axes[c] if axes[c] > 1 else 0, self.answers, norm, bits) for c in clique]
        return KroneckerQuery(tuple(matrix for matrix, _ in parts)), math.prod(error for _, error in parts)


@lru_cache(maxsize=1024)
def column_strategy(
    size: int, places: int, answers: Answers, norm: int, bits: int = _BITS
) -> tuple[NDArray[np.int64], float]:
    """Return a column's strategy in whole numbers, and its squared error at sensitivity 1.

    Args:
        size: the number of codes.
        places: how many of the first codes stand on an axis; the others are measured cell by cell.
        answers: the queries that matter on the axis; together they weigh as much as the axis has codes.
        norm: 1 for Laplace noise, 2 for Gaussian: the norm of columns that is the sensitivity.
        bits: the largest column of the strategy has about 2^bits as its norm.
    """
    if not places:
        return np.eye(size, dtype=np.int64), float(size)
    gram = workload_gram(places, answers)
    gram *= places / count_queries(places, answers)
    part = tree_of_sums(places) if places > _LONGEST else optimise_strategy(gram, max(1, places // 16), norm)
    largest = np.linalg.norm(part, norm, axis=0).max()
    whole = np.zeros((len(part) + size - places, size), np.int64)
    whole[: len(part), :places] = np.rint(part * (2**bits / largest))
    diagonal = np.arange(places)
    whole[diagonal, diagonal] = np.maximum(whole[diagonal, diagonal], 1)  # every cell stays determined
    reach = max(1, int(np.linalg.norm(whole[:, :places], norm, axis=0).max()))
    whole[np.arange(len(part), len(whole)), np.arange(places, size)] = reach
    return whole, strategy_error(whole[: len(part), :places].astype(np.float64), gram, norm) + size - places


def count_queries(size: int, answers: Answers) -> int:
    """Return how many ranges, prefixes or cells an axis has."""
    return size * (size + 1) // 2 if answers == "ranges" else size


def workload_gram(size: int, answers: Answers) -> Matrix:
    """Return W'W of the workload W of all ranges, prefixes or cells of an axis.

    >>> workload_gram(3, "prefixes").tolist()
    [[3.0, 2.0, 1.0], [2.0, 2.0, 1.0], [1.0, 1.0, 1.0]]
    """
    if answers == "cells":
        return np.eye(size)
    places = np.arange(size)
    after = size - np.maximum.outer(places, places)
    return (after * (np.minimum.outer(places, places) + 1 if answers == "ranges" else 1)).astype(np.float64)


def strategy_error(strategy: Matrix, gram: Matrix, norm: int) -> float:
    """Return the summed squared error of a workload, ||A||^2 tr((A'A)^-1 W'W), at noise of variance 1.

    >>> round(strategy_error(np.eye(4), workload_gram(4, "prefixes"), 1), 4)
    10.0
    >>> round(strategy_error(p_identity(np.full((1, 4), 0.5), 1), workload_gram(4, "prefixes"), 1), 4)
    14.0625
    """
    reach = float(np.linalg.norm(strategy, norm, axis=0).max())
    return reach**2 * float(np.trace(np.linalg.solve(strategy.T @ strategy, gram)))


def p_identity(theta: Matrix, norm: int) -> Matrix:
    """Return the p-Identity strategy of OPT_0: [I; Theta] with every column scaled to norm 1."""
    whole = np.vstack([np.eye(theta.shape[1]), theta])
    scaled: Matrix = whole / np.linalg.norm(whole, norm, axis=0)
    return scaled


def optimise_strategy(gram: Matrix, p: int, norm: int) -> Matrix:
    """Find the best p-Identity strategy by projected gradient descent (OPT_0); never worse than the identity.

    With s the norms of the columns of [I; Theta], the error is tr(M S G S), M = (I + Theta'Theta)^-1 and G = W'W. The
    descent starts from the sums of p intervals, made unequal.
    """
    n = len(gram)
    uneven = np.outer(np.arange(1, p + 1), np.arange(1, n + 1)) * (math.sqrt(5) - 1) / 2 % 1
    theta = (np.arange(n) * p // n == np.arange(p)[:, None]) + 0.1 * uneven
    best, least = np.zeros((p, n)), float(np.trace(gram))
    step = 1.0
    for _ in range(_STEPS):
        error, gradient = _error_and_gradient(theta, gram, norm)
        if error < least:
            best, least = theta, error
        while step > 1e-12:
            moved = np.maximum(theta - step * gradient / np.abs(gradient).max(), 0.0)
            if _error_and_gradient(moved, gram, norm)[0] < error:
                break
            step /= 2
        else:
            break
        theta, step = moved, 1.5 * step
    return p_identity(best, norm)


def _error_and_gradient(theta: Matrix, gram: Matrix, norm: int) -> tuple[float, Matrix]:
    scale = np.linalg.norm(np.vstack([np.ones(theta.shape[1]), theta]), norm, axis=0)
    inverse = np.linalg.inv(np.eye(theta.shape[1]) + theta.T @ theta)
    scaled = scale[:, None] * gram * scale
    by_scale = 2 * np.einsum("ij,j,ji->i", gram, scale, inverse)
    by_norm = by_scale if norm == 1 else by_scale * theta / scale
    return float((inverse * scaled).sum()), by_norm - 2 * theta @ (inverse @ scaled @ inverse)


def tree_of_sums(size: int) -> Matrix:
    """Return the identity and the sums of 16, 256, ... neighbours."""
    rows, width = [np.eye(size)], _BRANCHES
    while width < size:
        groups = np.arange(size) // width
        rows.append((groups == np.arange(groups[-1] + 1)[:, None]).astype(np.float64))
        width *= _BRANCHES
    return np.vstack(rows)
