"""Estimate statistics by estimating equations over corrected tables, with their influence functions.

Every statistic solves `mean of score(row; estimate) = 0`. The mean is taken over corrected tables, the equation is
solved, and the error of the estimate is the mean of `influence`: the score divided by the derivative of its mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.release.answer import Condition
from understudy.release.inference.corrected import MOST_CELLS, Array, CorrectedTables, Functions, expand
from understudy.release.inference.formula import CLEAR, Block, Design, Variable
from understudy.release.inference.selection import tail_variance

_ABSENT = 0.002  # share of rows without a value of a column from which on larger tables leave them out
_COLLINEAR = 1e-8
_STEPS, _SOLVED, _FURTHEST = 60, 1e-12, 5.0
_MOST_ENTRIES = 1 << 26


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates and the functions whose means are their errors.

    Attributes:
        names: the terms.
        values: the estimates; NaN for a group that is too small.
        influence: functions of corrected mean 0, one for each estimate.
        lowest: no value below this is possible.
        highest: no value above this is possible.
        tested: whether a test that the value is 0 makes sense.
        notes: what the reader must know.
    """

    names: Sequence[str]
    values: Array
    influence: Functions
    lowest: float = -math.inf
    highest: float = math.inf
    tested: bool = True
    notes: Sequence[str] = ()


# -- functions of a row: sums of tables over declared codes


class Subpopulation:
    """Which rows a statistic is about, and means over them.

    Args:
        tables: the corrected tables.
        conditions: what the rows satisfy.
        variables: the columns of the statistic. Rows without a value in one of them are left out: always of one or two
            columns, which needs no larger table, else if they are more than 0.2 % (see `_fill_missing`).
    """

    def __init__(self, tables: CorrectedTables, conditions: Iterable[Condition], variables: Sequence[Variable]) -> None:
        self.tables = tables
        parts: dict[str, Array] = {condition.column: condition.part for condition in conditions}
        for variable in variables:
            share = float(tables.table((variable.name,))[variable.missing].sum())
            if share > _ABSENT or (len(variables) <= 2 and variable.missing.any()):
                parts[variable.name] = parts.get(variable.name, np.ones(())) * ~variable.missing
        columns = tables.declared.canonical(parts)
        table: Array = np.ones(())
        for column in columns:
            table = np.multiply.outer(table, parts[column])
        self.inside: Functions = {columns: table[None]}
        self._means: dict[Clique, Array] = {}

    def restrict(self, functions: Functions) -> dict[Clique, Array]:
        """Return functions that are 0 outside these rows."""
        return multiply(self.tables, functions, self.inside)

    def mean(self, functions: Functions) -> Array:
        """Return the corrected means of functions."""
        return sum(
            (np.tensordot(tables, self.table(clique), axes=len(clique)) for clique, tables in functions.items()),
            np.zeros(()),
        )

    def table(self, clique: Clique) -> Array:
        """Return the corrected table of a clique."""
        if clique not in self._means:
            self._means[clique] = self.tables.table(clique)
        return self._means[clique]


def multiply(tables: CorrectedTables, functions: Functions, factor: Functions) -> dict[Clique, Array]:
    """Multiply functions by one function, or as many functions one by one."""
    found: dict[Clique, Array] = {}
    for clique, values in functions.items():
        for other, weights in factor.items():
            both = tables.declared.canonical({*clique, *other})
            if tables.declared.cells(both) > MOST_CELLS:
                names = ", ".join(map(repr, both))
                raise SettingError(f"formula: {names} together have more than {MOST_CELLS} cells; use fewer columns")
            product = expand(values, clique, both) * expand(weights, other, both)
            found[both] = found[both] + product if both in found else product
    return found


def add(*several: Functions) -> dict[Clique, Array]:
    """Add functions."""
    found: dict[Clique, Array] = {}
    for functions in several:
        for clique, tables in functions.items():
            found[clique] = found[clique] + tables if clique in found else tables
    return found


def scale(functions: Functions, factors: Array) -> dict[Clique, Array]:
    """Multiply each function by its own number."""
    return {clique: tables * factors.reshape(-1, *[1] * len(clique)) for clique, tables in functions.items()}


# -- shares and means


def estimate_means(
    rows: Subpopulation, values: Functions, group: Variable | None, *, name: str, share: bool
) -> Estimates:
    """Return the mean of a function over the rows, or over the rows of each level of a column.

    Raises:
        SettingError: if no group is large enough to be seen.
    """
    groups: Functions = {(): np.ones(1)} if group is None else {(group.name,): group.indicators}
    count = 1 if group is None else len(group.levels)
    below = rows.restrict(groups)
    above = rows.restrict(multiply(rows.tables, groups, values))
    sizes = np.broadcast_to(rows.mean(below), count)
    known = np.flatnonzero(sizes > 0)
    noise = rows.tables.uncertainty(add(below, {(): -sizes})).noise.diagonal()
    clear = np.zeros(count, bool)
    clear[known] = sizes[known] >= CLEAR * np.sqrt(noise[known])
    if not clear.any():
        of = "the table" if group is None else f"any group of {group.name!r}"
        raise SettingError(f"{name}: too few rows in {of} to be seen under the noise; use larger groups or conditions")
    with np.errstate(all="ignore"):
        means = np.where(clear, rows.mean(above) / sizes, np.nan)
        inverse = np.where(clear, 1 / sizes, 0.0)
    influence = scale(add(above, scale(below, -np.nan_to_num(means))), inverse)
    names = [name] if group is None else [f"{name} | {group.name}={level}" for level in group.levels]
    small = [] if group is None else [level for level, seen in zip(group.levels, clear, strict=True) if not seen]
    notes = [f"too few rows to be seen under the noise: {', '.join(map(str, small[:12]))}"] if small else []
    low, high = (0.0, 1.0) if share else (-math.inf, math.inf)
    return Estimates(names, means, influence, low, high, tested=not share, notes=notes)


def estimate_correlation(rows: Subpopulation, first: Variable, second: Variable) -> Estimates:
    """Return the correlation of two numeric columns.

    Raises:
        SettingError: if the noise leaves no variance of a column.
    """
    numbers = []
    for variable in (first, second):
        column: Clique = (variable.name,)
        values = np.nan_to_num(variable.numbers)  # type: ignore[arg-type]
        size = float(rows.mean(rows.inside)[0])
        mean = float(rows.mean(rows.restrict({column: values[None]}))[0]) / size
        centred = np.where(variable.missing, 0.0, values - mean)
        variance = rows.mean(rows.restrict({column: centred[None] ** 2}))[0] / size
        spread = add(rows.restrict({column: centred[None] ** 2}), {(): -variance[None] * size})
        if not variance * size >= CLEAR * math.sqrt(rows.tables.uncertainty(spread).noise[0, 0]):
            raise SettingError(f"corr: the noise hides the variance of column {variable.name!r}; use coarser bins")
        numbers.append({column: centred[None] / math.sqrt(float(variance))})
    one, two = numbers
    product = rows.restrict(multiply(rows.tables, one, two))
    value = rows.mean(product) / size
    squares = add(*(rows.restrict({c: t**2 for c, t in part.items()}) for part in (one, two)))
    influence = scale(add(product, scale(squares, -value / 2)), np.array([1 / size]))
    return Estimates([f"corr({first.name}, {second.name})"], value, influence, -1.0, 1.0)


# -- regression


def estimate_linear(rows: Subpopulation, design: Design) -> Estimates:
    """Estimate a linear regression by least squares, from the moments of pairs of terms.

    Raises:
        SettingError: for collinear terms, or moments that the noise hides.
    """
    names, place = list(design.names), {name: i for i, name in enumerate(design.names)}
    design = replace(
        design,
        response=_fill_missing(rows, design, design.response),
        blocks=[_fill_missing(rows, design, block) for block in design.blocks],
    )
    gram, right = np.zeros((len(names), len(names))), np.zeros(len(names))
    model = np.zeros_like(gram)
    for block in design.blocks:
        mine = [place[name] for name in block.names]
        for other in design.blocks:
            theirs = [place[name] for name in other.names]
            for i, table in zip(mine, block.tables, strict=True):
                both = rows.restrict(multiply(rows.tables, {other.clique: other.tables}, {block.clique: table[None]}))
                gram[i, theirs] = rows.mean(both)
                model[i, theirs] = _mean_by_model(rows.tables, both)
        right[mine] = rows.mean(rows.restrict(_multiply_blocks(rows, block, design.response)))
    inverse = _invert(gram, model, names)
    values = inverse @ right
    rest = {design.response.clique: design.response.tables}
    weighted: dict[Clique, Array] = {}
    for block in design.blocks:
        mine = [place[name] for name in block.names]
        fitted = np.tensordot(values[mine], block.tables, axes=1)
        rest = add(rest, {block.clique: -fitted[None]})
        weighted = add(weighted, {block.clique: np.tensordot(inverse[:, mine], block.tables, axes=1)})
    _check_information(rows, names, rows.restrict(multiply(rows.tables, weighted, weighted)))
    return Estimates(names, values, rows.restrict(multiply(rows.tables, weighted, rest)))


def _fill_missing(rows: Subpopulation, design: Design, block: Block) -> Block:
    """Give cells without a value the mean of the others.

    They are at most 0.2 % of the rows then, and move a coefficient by about as much of its size.
    """
    present: Array = np.ones(())
    for column in block.clique:
        present = np.multiply.outer(present, design.present[column].astype(np.float64))
    shares = rows.tables.spread(block.clique, rows.tables.shares(block.clique)) * present
    if present.all() or not shares.any():
        return block
    axes = tuple(range(1, block.tables.ndim))
    means = (block.tables * shares).sum(axis=axes, keepdims=True) / shares.sum()
    return replace(block, tables=block.tables + means * (1 - present))


def _multiply_blocks(rows: Subpopulation, block: Block, other: Block) -> dict[Clique, Array]:
    return multiply(rows.tables, {block.clique: block.tables}, {other.clique: other.tables})


def _mean_by_model(tables: CorrectedTables, functions: Functions) -> Array:
    return sum(
        (np.tensordot(t, tables.spread(c, tables.shares(c)), axes=len(c)) for c, t in functions.items()), np.zeros(())
    )


def _check_information(rows: Subpopulation, names: Sequence[str], squares: Functions, outcome: str = "") -> None:
    """Refuse a term whose information (for a group, whose size) is hidden by the noise.

    Args:
        rows: the rows.
        names: the terms.
        squares: for least squares, the square of what is left of each term when the others are taken out, up to a
            factor. For a logistic regression, the square of each influence function: where terms separate the rows with
            the outcome from those without it, the rows of the rarer kind, which decide the coefficient, are all noise.
        outcome: the response of a logistic regression.

    Raises:
        SettingError: naming the term.
    """
    sizes = rows.mean(squares)
    noise = rows.tables.uncertainty(add(squares, {(): -sizes})).noise.diagonal()
    hidden = ~(sizes >= CLEAR * np.sqrt(np.maximum(noise, 0.0)))
    hidden &= np.array([name != "Intercept" for name in names])  # the intercept may be far from all rows
    if hidden.any():
        name = names[int(np.flatnonzero(hidden)[0])]
        raise _separation_error(name, outcome) if outcome else _few_rows_error(name)


def _few_rows_error(name: str) -> SettingError:
    return SettingError(
        f"formula: too few rows differ in {name!r} from the others to be seen under the noise; leave the term out, "
        "compare larger groups, as in I(region == 'north'), or leave the group out (where)"
    )


def _separation_error(name: str, outcome: str) -> SettingError:
    return SettingError(
        f"formula: where {name!r} differs, too few rows have, or lack, {outcome} to be seen under the noise, so its "
        "coefficient may have no finite value; leave the term out, compare larger groups, or use family='gaussian'"
    )


def _invert(gram: Array, model: Array, names: Sequence[str]) -> Array:
    """Invert a matrix of second moments, after checking that the terms differ.

    Args:
        gram: the corrected moments.
        model: the model's moments, which have no noise that could hide that terms are the same.
        names: the terms.

    Raises:
        SettingError: naming the term that others determine, or if the noise is too large.
    """
    size = np.sqrt(np.maximum(model.diagonal(), 1e-300))
    scaled = model / np.outer(size, size)
    for i in range(len(names)):
        if not model[i, i] > 0:
            raise _few_rows_error(names[i])
        if i and _left_over(scaled[: i + 1, : i + 1]) < _COLLINEAR:
            raise SettingError(f"formula: the term {names[i]!r} follows from the terms before it; leave it out")
    if not np.linalg.eigvalsh(gram / np.outer(size, size)).min() > _COLLINEAR:
        raise SettingError(
            "formula: the noise hides how the terms differ; leave out terms that nearly follow from others or groups "
            "with hardly any rows (where), or ask for these columns to be measured together"
        )
    return np.asarray(np.linalg.inv(gram), np.float64)


def _left_over(scaled: Array) -> float:
    """Return the part of the last term's square that the terms before it do not explain."""
    before, last = scaled[:-1, :-1], scaled[:-1, -1]
    return float(scaled[-1, -1] - last @ np.linalg.lstsq(before, last, rcond=None)[0])


def estimate_logistic(rows: Subpopulation, design: Design) -> Estimates:
    """Estimate a logistic regression, from the table of all its columns together.

    Raises:
        SettingError: for too many cells, collinear terms, or a response that has no finite solution.
    """
    tables = rows.tables
    inside = next(iter(rows.inside))
    every = tables.declared.canonical({*design.columns, *inside})
    cells, names = tables.declared.cells(every), list(design.names)
    if cells * (len(names) + 3) > _MOST_ENTRIES or cells > MOST_CELLS:
        raise SettingError(
            f"formula: the columns together have {cells} cells; logistic regression takes {MOST_CELLS} with few terms. "
            "Use fewer or coarser columns, or family='gaussian'"
        )
    shape = tables.declared.shape(every)

    def dense(functions: Array, clique: Clique) -> Array:
        return np.broadcast_to(expand(functions, clique, every), (len(functions), *shape)).reshape(-1, cells)

    place = {name: i for i, name in enumerate(names)}
    terms = np.empty((len(names), cells))
    for block in design.blocks:
        terms[[place[name] for name in block.names]] = dense(block.tables, block.clique)
    answer = dense(design.response.tables, design.response.clique)[0]
    weight = dense(rows.inside[inside], inside)[0]
    for column in design.columns:  # cells without a value take no part
        weight = weight * dense(design.present[column][None].astype(np.float64), (column,))[0]
    corrected = rows.table(every).reshape(-1) * weight
    model = tables.spread(every, tables.weights(every)).reshape(-1) * weight
    _invert((terms * model) @ terms.T, (terms * model) @ terms.T, names)
    _check_outcomes(rows, design)
    values: Array = np.zeros(len(names))
    for weights in (model, corrected):
        values, solved = _solve(terms, answer, weights, values, model)
        if not solved:
            furthest = np.abs(values) * np.sqrt((terms - terms.mean(axis=1, keepdims=True)) ** 2 @ model)
            raise _separation_error(names[int(np.argmax(furthest))], design.response.names[0])
    chances = _logistic(values @ terms)
    curvature = (terms * (corrected * chances * (1 - chances))) @ terms.T
    inverse = _invert(curvature, (terms * (model * chances * (1 - chances))) @ terms.T, names)
    influence = (inverse @ terms * ((answer - chances) * weight)).reshape(len(names), *shape)
    _check_information(rows, names, {every: influence**2}, design.response.names[0])
    return Estimates(names, values, {every: influence})


def _check_outcomes(rows: Subpopulation, design: Design) -> None:
    """Refuse a group in which the rows with the response, or those without it, cannot be seen under the noise.

    The logarithm of such odds is far from linear in the counts.
    """
    ((clique, answer),) = ((design.response.clique, design.response.tables),)
    for block in design.blocks:
        if len(block.tables) and set(np.unique(block.tables)) <= {0.0, 1.0}:  # none: a column of one value
            codes = block.tables.reshape(len(block.tables), -1).T
            kinds, place = np.unique(codes, axis=0, return_inverse=True)
            groups = np.array([place.reshape(-1) == kind for kind in range(len(kinds))], np.float64)
            shaped: Functions = {block.clique: groups.reshape(-1, *block.tables.shape[1:])}
            having = multiply(rows.tables, shaped, {clique: answer})
            for outcome in (having, add(shaped, scale(having, -np.ones(1)))):
                counted = rows.restrict(outcome)
                sizes = rows.mean(counted)
                noise = rows.tables.uncertainty(add(counted, {(): -sizes})).noise.diagonal()
                hidden = ~(sizes >= CLEAR * np.sqrt(np.maximum(noise, 0.0)))
                if hidden.any():
                    inside = [name for name, part in zip(block.names, kinds[np.argmax(hidden)], strict=True) if part]
                    about = " and ".join(map(repr, inside)) or f"the first group of {', '.join(block.clique)}"
                    about = about if block.clique else "the table"
                    raise SettingError(
                        f"formula: in {about} too few rows have, or lack, {design.response.names[0]} to be seen under "
                        "the noise; compare larger groups, leave these rows out (where), or use family='gaussian'"
                    )


def _solve(terms: Array, answer: Array, weights: Array, start: Array, model: Array) -> tuple[Array, bool]:
    """Solve `sum of weights * terms * (answer - chance) = 0` by Newton's method; return also whether it converged.

    The curvature is the model's. Steps are halved until the score falls: weights may be negative, so that the curvature
    differs from the model's.
    """
    values: Array = start
    step: Array = np.zeros_like(start)
    before = math.inf
    for _ in range(_STEPS):
        chances = _logistic(values @ terms)
        score = terms @ (weights * (answer - chances))
        curvature = (terms * (model * chances * (1 - chances))) @ terms.T
        try:
            wanted = np.asarray(np.linalg.solve(curvature, score), np.float64)
        except np.linalg.LinAlgError:
            break
        size = abs(float(score @ wanted))
        if size < _SOLVED:
            return values, True
        if size > before:  # the step was too long: halve it
            step = step / 2
            values = values - step
            continue
        before = size
        step = wanted * min(1.0, _FURTHEST / max(float(np.abs(wanted @ terms).max()), 1e-300))
        values = values + step
    return values, False


def _logistic(values: Array) -> Array:
    chances: Array = 0.5 * (1 + np.tanh(values / 2))
    return chances


# -- the test of independence


@dataclass(frozen=True, eq=False)
class Independence:
    """A test that two columns are independent in the population from which the rows are a sample.

    Attributes:
        statistic: the sum of squared differences from independence, each in units of its variance.
        df: the degrees of freedom of the chi-square law that it has, but for a factor, if they are independent.
        p: the probability of a value at least as large.
        privacy: the share of the expected value that the noise explains.
    """

    statistic: float
    df: float
    p: float
    privacy: float


def check_independence(
    rows: Subpopulation, first: Variable, second: Variable, *, candidates: float = 1.0
) -> Independence:
    """Test that two columns that were measured together are independent; levels too small to be seen are left out.

    Without noise it is Pearson's test. Noise adds to the variance of each difference; the law of the sum is that of a
    weighted sum of squares, of which two moments are matched (Satterthwaite). For a pair chosen among `candidates`, the
    sampling variance is that of the largest, or the p-value is multiplied, whichever rejects more; see `selection`.
    """
    tables = rows.tables
    shown = [_clear_levels(rows, variable) for variable in (first, second)]
    a, b = len(shown[0]), len(shown[1])
    left: Functions = {(first.name,): np.repeat(shown[0], b, axis=0)}
    right: Functions = {(second.name,): np.tile(shown[1], (a, 1))}
    cells = rows.restrict(multiply(tables, left, right))
    shares, size = rows.mean(cells), float(rows.mean(cells).sum())
    joint = (shares / size).reshape(a, b)
    p, q = joint.sum(axis=1), joint.sum(axis=0)
    if min(p.min(), q.min()) <= 0:
        raise SettingError(
            f"chisq: the noise hides the counts of {first.name!r} and {second.name!r}; use coarser columns"
        )
    apart = (joint - np.outer(p, q)).reshape(-1)
    influence = scale(
        add(
            cells,
            rows.restrict(scale(left, -np.tile(q, a))),
            rows.restrict(scale(right, -np.repeat(p, b))),
        ),
        np.full(a * b, 1 / size),
    )
    influence = add(influence, rows.restrict({(): np.outer(p, q).reshape(-1) / size}))
    influence = add(influence, {(): -rows.mean(influence)})
    noise = tables.uncertainty(influence).noise
    count = tables.rows * size
    sampling = np.kron(np.diag(p) - np.outer(p, p), np.diag(q) - np.outer(q, q)) / count
    scales = np.outer(p, q).reshape(-1) / count + noise.diagonal()
    statistic = float((apart**2 / scales).sum())
    df, p_value = _match_moments((noise + sampling) / np.sqrt(np.outer(scales, scales)), statistic)
    if candidates > 1:
        larger = noise + tail_variance((a - 1) * (b - 1), candidates) * sampling
        _, strict = _match_moments(larger / np.sqrt(np.outer(scales, scales)), statistic)
        p_value = min(1.0, candidates * p_value, strict)
    privacy = float((noise.diagonal() / scales).sum() / ((noise + sampling).diagonal() / scales).sum())
    return Independence(statistic, df, p_value, privacy)


def _match_moments(covariance: Array, statistic: float) -> tuple[float, float]:
    """Return the degrees of freedom and p-value of a sum of squares, by a chi-square with the same two moments."""
    from scipy import stats

    first, second = float(np.trace(covariance)), float((covariance**2).sum())
    return first**2 / second, float(stats.chi2.sf(statistic * first / second, first**2 / second))


def _clear_levels(rows: Subpopulation, variable: Variable) -> Array:
    """Return the levels of a column that can be seen under the noise.

    Raises:
        SettingError: if there are fewer than two.
    """
    functions = rows.restrict({(variable.name,): variable.indicators})
    sizes = rows.mean(functions)
    noise = rows.tables.uncertainty(add(functions, {(): -sizes})).noise.diagonal()
    clear = (sizes > 0) & (sizes >= CLEAR * np.sqrt(noise))
    if clear.sum() < 2:
        raise SettingError(
            f"chisq: fewer than two values of {variable.name!r} can be seen under the noise; use a coarser column"
        )
    return variable.indicators[clear]
