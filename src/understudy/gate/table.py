"""The gate: the one place through which anything computed from private rows is released, always paid for first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.accounting.budget import Account, Budget
from understudy.accounting.charge import (
    Charge,
    What,
    divide,
    exponential_charge,
    gaussian_charge,
    laplace_charge,
    laplace_sd,
    numbers,
    planned_charge,
    threshold_charge,
)
from understudy.accounting.exact import float_above, float_below, sqrt_above
from understudy.accounting.neighbours import Neighbours
from understudy.arguments import as_mapping, as_whole
from understudy.domain import Clique, CodeGroups, Domain
from understudy.errors import BudgetExceeded, SettingError
from understudy.gate.noise import Noise, get_noise
from understudy.gate.selection import (
    BITS,
    Distances,
    FixedMarginals,
    batches,
    compute_distances,
    exponential_mechanism,
    indif,
    merged,
    round_to_units,
    scale_scores,
)
from understudy.measurement import KroneckerQuery, Measurement
from understudy.quality import NoisyError
from understudy.schema import Recoding
from understudy.source import Source
from understudy.source.protocol import CountsValues

T = TypeVar("T")


class Recorder(Protocol):
    """Where a run's questions and answers are recorded; a table used on its own has none."""

    def recall(self, charges: Sequence[Charge], recoding: Recoding) -> Any | None:
        """The recorded answer to the next question, or None where it was not answered yet. No row was read for it."""
        ...

    def record(self, charges: Sequence[Charge], answer: Any, recoding: Recoding) -> None:
        """Record an answer durably; called before anybody sees it. `recoding` is in force for a measurement."""
        ...


# Checks of what is asked, before anything is paid: public arguments and facts of the schema alone.


LARGEST_TABLE = 1 << 28
"""A noisy table covers every cell of its clique; one of more cells than this (2 GiB) is refused before it is paid."""

_LARGEST_INDEX = (1 << 63) - 1
"""Before codes are merged, a cell has a number of 64 bits; a table of more cells is refused before it is paid."""


def check_cliques(
    cliques: Iterable[Clique], domain: Domain, counted: Domain, known: dict[Clique, tuple[Clique, frozenset[str]]]
) -> list[Clique]:
    """Check the cliques of a call and give them back as tuples; each set of columns may be named once.

    Args:
        cliques: what was given.
        domain: the columns after merging codes.
        counted: the same before, as the source counts them.
        known: cliques that were found right before, added to: a mechanism asks about the same ones again and again.

    Raises:
        SettingError, SchemaError: for what is no list of cliques, unknown columns, repeats, and tables too large.
    """
    try:
        given = list(cliques)
    except TypeError:
        raise SettingError("give a list of cliques, such as [('sex', 'age')]") from None
    try:
        found = [known[clique] for clique in given]
    except (KeyError, TypeError):
        found = [(clique, frozenset(clique)) for clique in map(domain.check, given)]
    if len({columns for _, columns in found}) != len(found):
        raise SettingError("a clique is given twice in one call; give it once")
    for clique, columns in found:
        if clique not in known:
            if too_large := _find_excess(clique, domain, counted):
                raise SettingError(
                    f"the table of {clique} has {too_large[0]} cells, more than {too_large[1]}: use fewer columns, or "
                    "coarser ones; nothing was spent"
                )
            known[clique] = clique, columns
    return [clique for clique, _ in found]


def fits_limits(clique: Clique, domain: Domain, counted: Domain) -> bool:
    """Whether the table of a clique is small enough, after merging codes and before."""
    return _find_excess(clique, domain, counted) is None


def _find_excess(clique: Clique, domain: Domain, counted: Domain) -> tuple[int, int] | None:
    """How many cells a table that is too large has, and how many it may have."""
    sizes = (domain.cells(clique), LARGEST_TABLE), (counted.cells(clique), _LARGEST_INDEX)
    return next((size for size in sizes if size[0] > size[1]), None)


def check_marginals(
    cliques: Sequence[Clique], against: Mapping[Clique, ArrayLike], domain: Domain
) -> dict[Clique, Callable[[], NDArray[np.int64]]]:
    """Check public marginals and give back, for each, a function that makes it in whole units.

    Fixed marginals are made again when they are needed: they are not all held at once.

    Raises:
        SettingError: for a clique that has none, and one that does not fit its clique.
    """
    for clique in cliques:
        if not isinstance(against, Mapping) or clique not in against:
            raise SettingError(f"against: the marginal of {clique} is missing; give one for every candidate")

    def made(several: Sequence[Clique]) -> list[NDArray[np.int64]]:
        return round_to_units([(clique, domain.cells(clique), against[clique]) for clique in several])

    given: dict[Clique, Callable[[], NDArray[np.int64]]] = {}
    for batch in batches(cliques, domain.cells):
        for clique, table in zip(batch, made(batch), strict=True):
            again = partial(lambda one: made([one])[0], clique)
            given[clique] = again if isinstance(against, FixedMarginals) else partial(np.asarray, table)
    return given


def check_queries(
    cliques: Sequence[Clique], queries: Mapping[Clique, KroneckerQuery] | None, domain: Domain
) -> dict[Clique, KroneckerQuery]:
    """Check the queries of a call; cliques without one are answered cell by cell.

    Raises:
        SettingError: for a clique that is not measured, and a query that does not fit its clique or is too large.
    """
    given = {} if queries is None else as_mapping("queries", queries, example="{('age',): query}")
    for clique, query in given.items():
        if clique not in cliques or not isinstance(query, KroneckerQuery):
            raise SettingError(f"queries: give a `KroneckerQuery` for a clique that is measured, not for {clique}")
        answers, cells = query.shape
        if cells != domain.cells(clique):
            raise SettingError(f"queries: {clique} has {domain.cells(clique)} cells, its query {cells} columns")
        if answers > LARGEST_TABLE:
            raise SettingError(f"queries: {clique} has {answers} answers, more than {LARGEST_TABLE}; nothing was spent")
    return given


# Exact counts that the gate keeps, so that a table asked about in every round is counted once.


CACHE_CELLS = 1 << 26
"""The most cells kept: 256 MiB at four bytes a cell."""


class CountCache:
    """Exact tables of one view of the rows; held by the gate alone.

    **Privacy.** Exact, hence private: nothing shows them. What is kept is decided by the tables' numbers of cells and
    the order in which they are asked for, both public; answers are the same whether a table is kept or not.

    Args:
        room: the most cells kept.
    """

    def __init__(self, room: int = CACHE_CELLS) -> None:
        self._room = room
        self._tables: dict[Clique, NDArray[np.integer[Any]]] = {}

    def __repr__(self) -> str:
        return "CountCache()"

    def get(self, clique: Clique) -> NDArray[np.integer[Any]] | None:
        """The table of a clique with its columns in this order, read-only; None when it is not kept."""
        return self._tables.get(clique)

    def put(self, clique: Clique, counts: NDArray[np.integer[Any]]) -> None:
        """Keep a copy while there is room; the first come stay."""
        if clique in self._tables or len(counts) > self._room:
            return
        self._room -= len(counts)
        narrow = len(counts) == 0 or int(counts.max()) <= np.iinfo(np.int32).max
        kept: NDArray[np.integer[Any]] = counts.astype(np.int32) if narrow else counts.astype(np.int64)
        kept.flags.writeable = False
        self._tables[clique] = kept


# One question at a time: threads that share a table wait for each other.


class _HasAccount(Protocol):
    @property
    def account(self) -> Account: ...


P = ParamSpec("P")
Table = TypeVar("Table", bound=_HasAccount)


def one_at_a_time(question: Callable[Concatenate[Table, P], T]) -> Callable[Concatenate[Table, P], T]:
    """Let one thread at a time ask questions that are paid from the same account, through whichever view.

    **Privacy.** A check, its payment and its answer belong together: two threads must not both find a measurement free
    that a run may make once, nor one of them the counts that another is about to keep.
    """

    @wraps(question)
    def waited(table: Table, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with table.account.turn:
            return question(table, *args, **kwargs)

    return waited


# The workload error as one question to the gate: what it costs, and the answer from exact distances and noise.
#
# The error is a sum of L1 distances, each of which one unit moves by at most the L1 sensitivity of a marginal. Asking
# for the sum costs one number's noise. Noisy marginals would cost as much for a far worse answer: the L1 distance to
# them is mostly that of their noise (docs/decisions/quality.md).


def error_charge(weights: Mapping[Clique, int], marginal_l1: int, share: Fraction, *, pure: bool) -> Charge:
    """The charge for the noisy sum of weighted distances, in units of 2^-16 rows.

    Raises:
        SettingError: for weights that are not whole and positive.
    """
    if not weights:
        raise SettingError("error: give every clique a weight that is a whole number of at least 1")
    reach = marginal_l1 * sum(weights.values()) << BITS
    if pure:
        return laplace_charge("quality", tuple(weights), reach, share=share)
    return gaussian_charge("quality", tuple(weights), reach**2, share=share)


def noisy_error(
    distances: Mapping[Clique, int], weights: Mapping[Clique, int], noise: int, charge: Charge
) -> NoisyError:
    """The noisy weighted mean, in rows, of distances in units of 2^-16: only their sum becomes a float."""
    exact = sum(weights[clique] * value for clique, value in distances.items())
    unit = sum(weights.values()) << BITS
    value = float(Fraction(exact + noise, unit))
    return NoisyError(value, charge.scale / unit, "gaussian" if charge.noise == "gaussian" else "laplace")


# What mechanisms get from the gate beside measurements.


@dataclass(frozen=True)
class Selection:
    """A private choice among candidates, and what error bounds need to know of it.

    Attributes:
        clique: the candidate that was chosen.
        epsilon: the parameter of the exponential mechanism.
        sensitivity: how far one unit moves a score.

    **Privacy.** A released answer and the public terms on which it was given.
    """

    clique: Clique
    epsilon: float
    sensitivity: float


@dataclass(frozen=True)
class Allocation:
    """The best division of a budget over marginals, and the L1 error to be expected of it.

    For Gaussian noise a table of c cells measured with rho_i has an expected L1 error of c / sqrt(pi rho_i); the sum is
    least when rho_i is proportional to c^(2/3). For Laplace noise it is c / epsilon_i, and c^(1/2).

    Attributes:
        per_cell: the expected absolute noise of a cell measured with the whole budget.
        weight_power: 2 for Gaussian noise, 1 for Laplace; see `PrivateTable.weight_power`.
    """

    per_cell: float
    weight_power: int = 2

    @property
    def power(self) -> float:
        """A table's share is proportional to its cells to this power: 2/3 for Gaussian noise, 1/2 for Laplace."""
        return self.weight_power / (self.weight_power + 1)

    def error(self, cells: Sequence[float]) -> float:
        """The expected L1 error, summed over tables of these sizes.

        >>> round(Allocation(1 / math.sqrt(math.pi)).error([6, 20, 100]), 3)
        103.157
        """
        return float(self.per_cell * sum(size**self.power for size in cells) ** (1 / self.power))

    def shares(self, cells: Sequence[float]) -> list[float]:
        """The part of the budget for each table.

        >>> [round(share, 6) for share in Allocation(1.0).shares([6, 20, 100])]
        [0.102499, 0.22872, 0.668781]
        """
        parts = [size**self.power for size in cells]
        return [part / sum(parts) for part in parts]

    def weights(self, cells: Sequence[float]) -> list[float]:
        """The same division as weights for `PrivateTable.measure`."""
        return [math.sqrt(share) if self.weight_power == 2 else share for share in self.shares(cells)]


# The gate. Each call does, in this order: check its arguments (public), work out its exact cost, pay (or refuse), write
# the charge down, and only then read counts, add integer noise or choose, write the answer down, and return it.


class PrivateTable:
    """Private rows behind the gate, with a budget.

    **Privacy.** Whatever calls are made, chosen adaptively from earlier answers, the answers together satisfy the
    budget's guarantee for the source's neighbour relation: rho-zCDP by the privacy filter over exact charges (or
    epsilon-DP for a pure budget). Counts are integers, noise is integer and exact, no rounding decides an answer.
    Exact counts may be kept inside; nothing returned, raised or printed shows them.

    In a pure-DP run the currency of `rho=` is epsilon: mechanisms divide what they are given and pass it on, and need
    not know which it is. Noise is then the discrete Laplace instead of the discrete Gaussian.

    Args:
        source: the rows.
        budget: what may be spent.
        noise: "exact" (ours) or "opendp", or an object with the same two methods; a method `choose` of it makes
            selections in place of `exponential_mechanism`. Runs that are recorded take a name.
        recorder: where answers are recorded before anybody sees them, and recalled from when a run goes on.
        plan: sigma of each measurement, for a run that fixed all of them in advance under a "pld" budget; each may be
            made once, and nothing else.
    """

    def __init__(
        self,
        source: Source,
        budget: Budget,
        *,
        noise: str | Noise = "exact",
        recorder: Recorder | None = None,
        plan: Mapping[Clique, float] | None = None,
    ) -> None:
        if not isinstance(source, Source):
            raise SettingError("source: give private rows that can be counted, `understudy.source.open_source(...)`")
        self.__source = source
        self.__account = Account(budget)
        self.__noise = get_noise(noise)
        self.__recorder = recorder
        self.__recoding = Recoding.identity()
        self.__distances = Distances()
        self.__cached = CountCache()
        self.__asked: dict[Clique, tuple[Clique, frozenset[str]]] = {}
        self.__plan = None if plan is None else dict(plan)
        self.__domain = source.domain
        self.__neighbours = Neighbours(source.unit.column, source.unit.max_rows, source.rows_public is not None)

    def __repr__(self) -> str:
        return f"PrivateTable({len(self.domain)} columns, {float(self.__account.remaining):.6g} of the budget left)"

    def __reduce__(self) -> str:
        raise TypeError("private rows are never serialised")

    @property
    def domain(self) -> Domain:
        """The columns and their numbers of codes, after merging; public."""
        return self.__domain

    @property
    def declared_domain(self) -> Domain:
        """The columns and their numbers of codes before merging; public."""
        return self.__source.domain

    @property
    def recoding(self) -> Recoding:
        """The codes that are merged; public."""
        return self.__recoding

    @property
    def code_groups(self) -> CodeGroups:
        """Which declared codes belong together when rare ones are merged; public."""
        return self.__source.code_groups

    @property
    def neighbours(self) -> Neighbours:
        """Who is protected, and how far one of them can move an answer; public, and nobody's to change."""
        return self.__neighbours

    @property
    def rows_public(self) -> int | None:
        """The number of rows counted, where the schema declares it public; None where rows are cut or dropped."""
        return self.__source.rows_used

    @property
    def account(self) -> Account:
        """The charges so far and what is left; public."""
        return self.__account

    @property
    def remaining(self) -> float:
        """What is left of the budget, rounded down."""
        return float_below(self.__account.remaining)

    def recode(self, recoding: Recoding) -> PrivateTable:
        """Return the same rows with merged codes and the same account; the merging happens inside the gate.

        **Privacy.** Merging codes acts row by row, so sensitivities stay as they are. In a run whose measurements were
        fixed in advance the plan is shared: each is still made once, over whichever codes, with its own sigma.
        """
        if not isinstance(recoding, Recoding):
            raise SettingError("recoding: give a `Recoding`")
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view.__recoding = recoding
        view.__distances = Distances()
        view.__cached = CountCache()
        view.__asked = {}
        view.__domain = recoding.recode(self.__source.domain)
        return view

    def over(self, source: Source) -> PrivateTable:
        """The same rows coded by another schema: one budget, one account.

        **Privacy.** Each coding acts row by row and bounds each unit on its own: sensitivities stay as they are.

        Raises:
            SettingError: when the source is about other units, or the run fixed its measurements in advance.
        """
        self._refuse_if_planned()
        if not isinstance(source, Source) or (source.unit, source.rows_public) != (
            self.__source.unit,
            self.__source.rows_public,
        ):
            raise SettingError("the other coding of the rows must protect the same units")
        view = self.recode(Recoding.identity())
        view.__source, view.__domain = source, source.domain
        return view

    @property
    def planned(self) -> bool:
        """Whether all measurements were fixed in advance, so that nothing else can be asked; public."""
        return self.__plan is not None

    def can_measure(self, clique: Clique) -> bool:
        """Whether the table of a clique is small enough to be asked for, in merged codes and as it is counted; public.

        Rows are counted before their codes are merged, by a cell's number of 64 bits: of four columns of 100,000 values
        there is no table, however few codes are left of them.
        """
        return fits_limits(clique, self.domain, self.__source.domain)

    # What depends on sensitivity or on the kind of noise, for mechanisms to plan with: public, and free.

    def sigma(self, rho: float) -> float:
        """Standard deviation of the noise on each cell of one marginal measured with this share of the budget."""
        share = self.__account.share(rho)
        if self.__account.budget.pure:
            return laplace_sd(float_above(self.neighbours.marginal_l1 / share))
        return sqrt_above(self.neighbours.marginal_l2_squared / (2 * share))

    def expected_noise(self, rho: float) -> float:
        """Mean absolute noise on each cell of one marginal measured with this share of the budget."""
        return self.sigma(rho) * (math.sqrt(1 / 2) if self.__account.budget.pure else math.sqrt(2 / math.pi))

    def rho_for(self, sigma: float) -> float:
        """Share of the budget that measures one marginal with this sigma (epsilon in pure DP); the inverse of `sigma`.

        In pure DP the noise of so much is a little less than `sigma` where that is below about 3: it is discrete.

        Raises:
            SettingError: when sigma is not a positive, finite number.
        """
        if not 0 < sigma < math.inf:
            raise SettingError("sigma must be a positive, finite number")
        if self.__account.budget.pure:
            return self.neighbours.marginal_l1 * math.sqrt(2) / sigma
        return self.neighbours.marginal_l2_squared / (2 * sigma**2)

    @property
    def weight_power(self) -> int:
        """A clique's share of the budget of `measure` grows with this power of its weight.

        `measure` makes noise inversely proportional to the weight. Gaussian noise falls with the square root of the
        share (power 2), Laplace noise in proportion to it (power 1).
        """
        return 1 if self.__account.budget.pure else 2

    def allocation(self, rho: float) -> Allocation:
        """Division of this share of the budget over marginals that minimises the total expected L1 error."""
        return Allocation(self.expected_noise(rho), self.weight_power)

    def dependence_noise(self, pairs: int, rho: float) -> float:
        """Return the standard deviation of the noise on each of `pairs` scores of `dependence`, for this share."""
        if self.__account.budget.pure:
            return self.sigma(rho) * self.neighbours.indif * pairs / self.neighbours.marginal_l1
        return self.sigma(rho) * self.neighbours.indif * math.sqrt(pairs / self.neighbours.marginal_l2_squared)

    @property
    def guarantee(self) -> tuple[float, float] | None:
        """Epsilon and delta that the budget was stated in; None for a budget in rho."""
        budget = self.__account.budget
        return None if budget.epsilon is None or budget.delta is None else (float(budget.epsilon), float(budget.delta))

    @one_at_a_time
    def measure(
        self,
        cliques: Iterable[Clique],
        *,
        rho: float,
        weights: Mapping[Clique, float] | None = None,
        queries: Mapping[Clique, KroneckerQuery] | None = None,
    ) -> list[Measurement]:
        """Measure the marginals of these cliques, or linear queries on them, with noise, for a total of `rho`.

        Args:
            cliques: the cliques, each measured once.
            rho: the share of the budget for all of them.
            weights: relative weights; a clique's share of `rho` is proportional to its square (under pure DP: to it).
                Equal by default.
            queries: by clique a whole-number query on its cells, in the order of the clique's columns, that is answered
                instead of them.

        **Privacy.** Costs at most `rho`: the sum of sensitivity^2 / (2 sigma^2) over the cliques, sigma rounded up. The
        sensitivity of a query is computed from its matrix in whole numbers (`accounting/neighbours.py`).

        Raises:
            SettingError: unknown columns, repeated cliques, weights that are not positive.
            BudgetExceeded: before a row is read.
        """
        wanted = self._check_cliques(cliques)
        if not wanted:
            return []
        asked = check_queries(wanted, queries, self.domain)
        charges = self._measure_charges(wanted, rho, weights, asked)
        if self.__plan is not None:
            for clique in wanted:
                del self.__plan[clique]

        def count() -> list[Measurement]:
            paid = {charge.about[0]: charge for charge in charges}
            found = {r: self._noisy(r, counts, paid[r], asked.get(r)) for r, counts in self._counts(wanted)}
            return [found[clique] for clique in wanted]

        return self._answer(charges, count)

    @one_at_a_time
    def select(
        self,
        candidates: Iterable[Clique],
        *,
        against: Mapping[Clique, ArrayLike] | None = None,
        rho: float,
        weights: Mapping[Clique, float] | None = None,
        offsets: Mapping[Clique, float] | None = None,
    ) -> Selection:
        """One candidate, privately, preferring those whose true marginal is far from the given one.

        The score of r is `weights[r] * (||M_r - against[r]||_1 - offsets[r])`; r is chosen with probability exactly
        proportional to exp(epsilon score / (2 sensitivity)). Public inputs are rounded to dyadic rationals first.

        Without `against`, a candidate is compared with its own marginals instead: the distance is the InDif score
        between its first column and its other columns together, twice the score R of PrivBayes in rows.

        **Privacy.** Costs epsilon^2 / 8 <= `rho` in zCDP (epsilon in pure DP), epsilon rounded down; the scores are not
        monotone, hence the 2. The sensitivity of InDif holds for any table with two axes, so also for one whose second
        axis has the cells of several columns.

        Raises:
            SettingError: unknown columns, a marginal of the wrong size, weights that are negative or all zero.
            BudgetExceeded: before a row is read.
        """
        wanted = self._check_cliques(candidates)
        if not wanted:
            raise SettingError("select needs at least one candidate")
        if against is None and not all(wanted):
            raise SettingError("select: a candidate without columns has no first column; name one, or give `against`")
        weight = None if weights is None else numbers("weight", wanted, weights)
        offset = None if offsets is None else numbers("offset", wanted, offsets)
        if weight is not None and (min(weight) < 0 or max(weight) <= 0):
            raise SettingError("select: weights must not be negative, and one must be positive")
        distances = self.__distances.of(against)
        new = [clique for clique in wanted if clique not in distances]
        given = {} if against is None else check_marginals(new, against, self.domain)
        sensitivity = self.neighbours.score(Fraction(1 if weight is None else max(weight)))
        if against is None:
            sensitivity *= Fraction(self.neighbours.indif, self.neighbours.marginal_l1)
        self._refuse_if_planned()
        pure = self.__account.budget.pure
        charge = exponential_charge(wanted, sensitivity, share=self.__account.share(rho), pure=pure)

        def choose() -> Clique:
            if against is None:
                distances.update((clique, self._indif(clique, counts) << BITS) for clique, counts in self._counts(new))
            else:
                keep = not isinstance(against, FixedMarginals) or against.again
                distances.update(compute_distances(self._counts(new, keep=keep), given))
            scores, scale = scale_scores([distances[clique] for clique in wanted], weight, offset)
            rate = Fraction(charge.scale) / (2 * sensitivity * scale)
            return wanted[getattr(self.__noise, "choose", exponential_mechanism)(scores, rate)]

        return Selection(self._answer([charge], choose), charge.scale, charge.sensitivity)

    @one_at_a_time
    def dependence(self, pairs: Iterable[Clique], *, rho: float) -> dict[Clique, int]:
        """Noisy InDif scores: how far each pair's table is from the product of its one-ways, in rows.

        **Privacy.** Costs at most `rho`: m scores of sensitivity D = `neighbours.indif` each are a vector of L2
        sensitivity D sqrt(m) (L1: D m). The true number of rows enters the score only, under that sensitivity.

        Raises:
            SettingError: a clique that is not a pair of known columns.
            BudgetExceeded: before a row is read.
        """
        wanted = self._check_cliques(pairs)
        if not wanted:
            return {}
        if any(len(pair) != 2 for pair in wanted):
            raise SettingError("dependence: every clique must have two columns")
        self._refuse_if_planned()
        share, m = self.__account.share(rho), len(wanted)
        if self.__account.budget.pure:
            charge = laplace_charge("dependence", tuple(wanted), self.neighbours.indif * m, share=share)
        else:
            charge = gaussian_charge("dependence", tuple(wanted), self.neighbours.indif**2 * m, share=share)

        def score() -> dict[Clique, int]:
            noise = self._draw(charge, len(wanted))
            exact = {pair: self._indif(pair, counts) for pair, counts in self._counts(wanted)}
            return {pair: exact[pair] + int(noise[i]) for i, pair in enumerate(wanted)}

        return self._answer([charge], score)

    @one_at_a_time
    def tally(self, columns: Mapping[str, Fraction], *, what: Mapping[str, What]) -> dict[str, Measurement]:
        """Count the codes of single columns with noise, each for its own share of the budget; `discovery` calls this.

        **Privacy.** As `measure`: a column's counts move by at most `marginal_l2_squared` (`marginal_l1` in pure DP).

        Raises:
            SettingError: unknown columns, shares that are not positive.
            BudgetExceeded: before a row is read.
        """
        columns = as_mapping("columns", columns, example="{'age': 0.1}")
        wanted = self._check_cliques([(column,) for column in columns])
        self._refuse_if_planned()
        if missing := [column for column in columns if column not in what]:
            raise SettingError(f"what: name the fact to discover about {missing[0]!r}, such as 'bounds'")
        shares = map(self.__account.share, columns.values())
        charges = [
            self._count_charge(what[clique[0]], clique, share) for clique, share in zip(wanted, shares, strict=True)
        ]

        def count() -> dict[str, Measurement]:
            paid = {charge.about[0]: charge for charge in charges}
            return {clique[0]: self._noisy(clique, counts, paid[clique]) for clique, counts in self._counts(wanted)}

        return self._answer(charges, count)

    @one_at_a_time
    def values(self, column: str, *, rho: float | Fraction, delta: float | Fraction) -> dict[str, int]:
        """Return the values of a column that enough rows have, with their noisy counts, in the order of the text.

        **Privacy.** Costs at most `rho` and `delta` of approximate zCDP; see `threshold`.

        Raises:
            SettingError: before a row is read, when the source cannot tell values apart, or delta is 0.
            BudgetExceeded: before a row is read.
        """
        self._refuse_if_planned()
        source = self.__source
        if not isinstance(source, CountsValues):
            remedy = "is not supported for this kind of table yet; declare its values under `categories`"
            raise SettingError(f"column {column!r}: `values: discover` {remedy}")
        if not isinstance(column, str) or column not in source.words:
            raise SettingError(f"column {column!r} is not declared `values: discover`; nothing was spent")
        if self.__account.budget.pure:
            raise BudgetExceeded("values cannot be discovered under pure DP (delta = 0): declare them, or give a delta")
        charge = threshold_charge(((column,),), self.neighbours, share=self.__account.share(rho), delta=delta)

        def count() -> dict[str, int]:
            counted = sorted(source.values(column).items())
            noise = self._draw(charge, len(counted)).tolist()
            noisy = {text: count + drawn for (text, count), drawn in zip(counted, noise, strict=True)}
            return {text: count for text, count in noisy.items() if count >= (charge.threshold or 0)}

        return self._answer([charge], count)

    @one_at_a_time
    def error(self, against: Mapping[Clique, ArrayLike], *, weights: Mapping[Clique, int], rho: float) -> NoisyError:
        """How far given marginals are from the true ones: the weighted mean of their L1 distances, in rows, with noise.

        **Privacy.** Costs at most `rho`: one unit moves each distance by at most `marginal_l1`, so the weighted sum by
        that times the sum of the weights; noise is added to the sum, in whole units of 2^-16 rows.

        Raises:
            SettingError: unknown columns, a marginal of the wrong size, weights that are not whole and positive.
            BudgetExceeded: before a row is read.
        """
        wanted = self._check_cliques(as_mapping("weights", weights, example="{('sex', 'age'): 2}"))
        self._refuse_if_planned()
        given, share = check_marginals(wanted, against, self.domain), self.__account.share(rho)
        named = zip(wanted, weights.values(), strict=True)
        weights = {clique: as_whole(f"the weight of {clique}", weight, least=1) for clique, weight in named}
        charge = error_charge(weights, self.neighbours.marginal_l1, share, pure=self.__account.budget.pure)

        def compare() -> NoisyError:
            distances = dict(compute_distances(self._counts(wanted), given))
            return noisy_error(distances, weights, int(self._draw(charge, 1)[0]), charge)

        return self._answer([charge], compare)

    def _check_cliques(self, cliques: Iterable[Clique]) -> list[Clique]:
        return check_cliques(cliques, self.domain, self.__source.domain, self.__asked)

    def _answer(self, charges: Sequence[Charge], compute: Callable[[], T]) -> T:
        """Charge, then return the recorded answer, or compute one from the rows and record it before it is returned."""
        recorded = None if self.__recorder is None else self.__recorder.recall(charges, self.__recoding)
        self.__account.pay(charges)
        if recorded is not None:
            return cast(T, recorded)
        answer = self._released(compute())
        if self.__recorder is not None:
            self.__recorder.record(charges, answer, self.__recoding)
        return answer

    def _measure_charges(
        self,
        cliques: Sequence[Clique],
        rho: float,
        weights: Mapping[Clique, float] | None,
        queries: Mapping[Clique, KroneckerQuery],
    ) -> list[Charge]:
        if self.__plan is not None:
            for clique in cliques:
                if clique not in self.__plan or clique in queries:
                    raise BudgetExceeded(f"{clique} is not among the measurements fixed in advance; nothing was read")
            squared = self.neighbours.marginal_l2_squared
            return [planned_charge("measure", (clique,), squared, sigma=self.__plan[clique]) for clique in cliques]
        shares = divide(cliques, weights, self.__account.share(rho), squared=not self.__account.budget.pure)
        return [self._count_charge("measure", clique, share, queries.get(clique)) for clique, share in shares.items()]

    def _count_charge(self, what: What, clique: Clique, share: Fraction, query: KroneckerQuery | None = None) -> Charge:
        """The charge for the noisy counts of one clique's cells, or of a query on them."""
        near = self.neighbours
        digest = None if query is None else query.digest
        if self.__account.budget.pure:
            reach = near.marginal_l1 if query is None else near.query_l1(query.column_sum)
            return replace(laplace_charge(what, (clique,), reach, share=share), query=digest)
        squared = near.marginal_l2_squared
        if query is not None:
            squared = near.query_l2_squared(query.column_squared, negative=query.negative)
        return replace(gaussian_charge(what, (clique,), squared, share=share), query=digest)

    def _refuse_if_planned(self) -> None:
        if self.__plan is not None:
            raise BudgetExceeded("this run fixed its measurements in advance; it cannot ask for anything else")

    def _counts(
        self, cliques: Sequence[Clique], *, keep: bool = False
    ) -> Iterator[tuple[Clique, NDArray[np.integer[Any]]]]:
        """Exact counts in the order asked, whichever of them were kept; `keep` those that will be asked for again."""
        known = {clique: self.__cached.get(clique) for clique in cliques}  # once: another thread may add to them
        fresh = self._count_cells([clique for clique, table in known.items() if table is None])
        for clique, table in known.items():
            found = next(fresh) if table is None else table
            if table is None and keep:
                self.__cached.put(clique, found)
            yield clique, found

    def _count_cells(self, cliques: Sequence[Clique]) -> Iterator[NDArray[np.int64]]:
        maps = self.__recoding.maps
        for clique, counts in self.__source.counts(cliques):
            yield merged(counts, self.__source.domain.shape(clique), [maps.get(column) for column in clique])

    def _indif(self, clique: Clique, counts: NDArray[np.integer[Any]]) -> int:
        """InDif between the first column of a clique and its other columns together."""
        first = self.domain[clique[0]]
        return indif(counts.astype(np.int64), (first, len(counts) // first))

    def _draw(self, charge: Charge, size: int) -> NDArray[np.int64]:
        draw = self.__noise.gaussian if charge.noise == "gaussian" else self.__noise.laplace
        return draw(charge.scale, size)

    def _noisy(
        self, clique: Clique, counts: NDArray[np.integer[Any]], charge: Charge, query: KroneckerQuery | None = None
    ) -> Measurement:
        exact = counts if query is None else query @ counts
        values = exact + self._draw(charge, len(exact))
        if charge.noise == "gaussian":
            return Measurement(clique, values, charge.scale, query)
        return Measurement(clique, values, laplace_sd(charge.scale), query, "laplace")

    def _released(self, answer: T) -> T:
        """Return a new answer; tests replace this method to observe answers."""
        return answer
