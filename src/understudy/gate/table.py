"""The gate: the only code that releases values computed from private rows; it charges the budget first."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial, wraps
from itertools import accumulate
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
    list_candidates,
    planned_charge,
    read_numbers,
    threshold_charge,
)
from understudy.accounting.exact import float_above, float_below, sqrt_above
from understudy.accounting.neighbours import Neighbours
from understudy.arguments import as_mapping, as_whole
from understudy.domain import Clique, CodeGroups, Domain
from understudy.errors import BudgetExceeded, SettingError
from understudy.gate.gradient import UNIT, read_gradients, sum_gradients
from understudy.gate.noise import Noise, get_noise
from understudy.gate.selection import (
    BITS,
    Distances,
    FixedMarginals,
    batches,
    compute_distances,
    exponential_mechanism,
    exponential_mechanism_many,
    indif,
    merge_codes,
    round_to_units,
    scale_scores,
)
from understudy.measurement import Cell, Critic, KroneckerQuery, Measurement
from understudy.quality import NoisyError
from understudy.schema import Recoding
from understudy.source import Source
from understudy.source.protocol import CountsValues, ReadsCodes

T = TypeVar("T")


class Recorder(Protocol):
    """Storage of a run's questions and answers; optional."""

    def recall(self, charges: Sequence[Charge], recoding: Recoding) -> Any | None:
        """Return the recorded answer to the next question, or None if it was not answered yet. Reads no row."""
        ...

    def record(self, charges: Sequence[Charge], answer: Any, recoding: Recoding) -> None:
        """Record an answer durably; called before the answer is returned. `recoding` gives the codes it refers to."""
        ...


# Checks of arguments before anything is charged. They use public arguments and the schema only.


LARGEST_TABLE = 1 << 28
"""The largest marginal, in cells (2 GiB); larger ones are refused before they are charged."""

_LARGEST_INDEX = (1 << 63) - 1
"""The largest marginal before codes are merged: cells are numbered with 64 bits."""


def check_cliques(
    cliques: Iterable[Clique], domain: Domain, counted: Domain, known: dict[Clique, tuple[Clique, frozenset[str]]]
) -> list[Clique]:
    """Check the cliques of a call and return them as tuples; each set of columns may be named once.

    Args:
        cliques: the given value.
        domain: the columns after merging codes.
        counted: the columns before merging codes, as the source counts them.
        known: cliques that passed the check before; new ones are added.

    Raises:
        SettingError, SchemaError: if it is not a list of cliques, or has unknown columns, repeats or large marginals.
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
                    f"the marginal of {clique} has {too_large[0]} cells, more than {too_large[1]}: use fewer columns, "
                    "or coarser ones; nothing was spent"
                )
            known[clique] = clique, columns
    return [clique for clique, _ in found]


def fits_limits(clique: Clique, domain: Domain, counted: Domain) -> bool:
    """Return whether the marginal of a clique is small enough, before and after merging codes."""
    return _find_excess(clique, domain, counted) is None


def _find_excess(clique: Clique, domain: Domain, counted: Domain) -> tuple[int, int] | None:
    """Return the number of cells of a marginal that is too large, and the limit."""
    sizes = (domain.cells(clique), LARGEST_TABLE), (counted.cells(clique), _LARGEST_INDEX)
    return next((size for size in sizes if size[0] > size[1]), None)


def check_marginals(
    cliques: Sequence[Clique], against: Mapping[Clique, ArrayLike], domain: Domain
) -> dict[Clique, Callable[[], NDArray[np.int64]]]:
    """Check public marginals and return, for each, a function that computes it in whole units.

    The functions save memory: fixed marginals are computed when they are needed.

    Raises:
        SettingError: if a marginal is missing or has the wrong size.
    """
    for clique in cliques:
        if not isinstance(against, Mapping) or clique not in against:
            raise SettingError(f"against: the marginal of {clique} is missing; give one for every candidate")

    def round_marginals(several: Sequence[Clique]) -> list[NDArray[np.int64]]:
        return round_to_units([(clique, domain.cells(clique), against[clique]) for clique in several])

    given: dict[Clique, Callable[[], NDArray[np.int64]]] = {}
    for batch in batches(cliques, domain.cells):
        for clique, table in zip(batch, round_marginals(batch), strict=True):
            again = partial(lambda one: round_marginals([one])[0], clique)
            given[clique] = again if isinstance(against, FixedMarginals) else partial(np.asarray, table)
    return given


def check_queries(
    cliques: Sequence[Clique], queries: Mapping[Clique, KroneckerQuery] | None, domain: Domain
) -> dict[Clique, KroneckerQuery]:
    """Check the queries of a call; cliques without one are answered cell by cell.

    Raises:
        SettingError: if a clique is not measured, or a query has the wrong size or is too large.
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


# A cache of exact counts, so that a marginal that is used in every round is counted once.


CACHE_CELLS = 1 << 26
"""The size of the cache in cells: 256 MiB at four bytes per cell."""


class CountCache:
    """A cache of exact marginals of one view of the rows; used only inside the gate.

    **Privacy.** The counts are exact, hence private, and are never shown. Which marginals are cached depends on their
    numbers of cells and the order of requests, both public; answers do not depend on the cache.

    Args:
        room: the size of the cache in cells.
    """

    def __init__(self, room: int = CACHE_CELLS) -> None:
        self._room = room
        self._tables: dict[Clique, NDArray[np.integer[Any]]] = {}

    def __repr__(self) -> str:
        return "CountCache()"

    def get(self, clique: Clique) -> NDArray[np.integer[Any]] | None:
        """Return the marginal of a clique with its columns in this order, read-only; None if it is not cached."""
        return self._tables.get(clique)

    def put(self, clique: Clique, counts: NDArray[np.integer[Any]]) -> None:
        """Cache a copy if there is room; nothing is evicted."""
        if clique in self._tables or len(counts) > self._room:
            return
        self._room -= len(counts)
        narrow = len(counts) == 0 or int(counts.max()) <= np.iinfo(np.int32).max
        kept: NDArray[np.integer[Any]] = counts.astype(np.int32) if narrow else counts.astype(np.int64)
        kept.flags.writeable = False
        self._tables[clique] = kept


# Threads that share an account ask one question at a time.


class _HasAccount(Protocol):
    @property
    def account(self) -> Account: ...


P = ParamSpec("P")
Table = TypeVar("Table", bound=_HasAccount)


def one_at_a_time(question: Callable[Concatenate[Table, P], T]) -> Callable[Concatenate[Table, P], T]:
    """Allow one thread at a time to ask questions that are charged to the same account, through any view.

    **Privacy.** The check, the charge and the answer of a question must not interleave with those of another: otherwise
    two threads could both make a measurement that a run may make once.
    """

    @wraps(question)
    def ask(table: Table, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with table.account.lock:
            return question(table, *args, **kwargs)

    return ask


# The workload error as one question to the gate.
#
# The error is a weighted sum of L1 distances. One unit changes each by at most the L1 sensitivity of a marginal, so one
# noisy number answers the question. Distances to noisy marginals would consist mostly of their noise
# (docs/decisions/quality.md).


def error_charge(weights: Mapping[Clique, int], marginal_l1: int, share: Fraction, *, pure: bool) -> Charge:
    """Return the charge for the noisy sum of weighted distances, in units of 2^-16 rows.

    Raises:
        SettingError: if a weight is not a positive whole number.
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
    """Return the noisy weighted mean, in rows, of distances in units of 2^-16 rows; only the sum becomes a float."""
    exact = sum(weights[clique] * value for clique, value in distances.items())
    unit = sum(weights.values()) << BITS
    value = float(Fraction(exact + noise, unit))
    return NoisyError(value, charge.scale / unit, "gaussian" if charge.noise == "gaussian" else "laplace")


# Further results that the gate returns to mechanisms.


@dataclass(frozen=True)
class Selection:
    """The result of a private selection, with the parameters that error bounds need.

    Attributes:
        clique: the selected candidate.
        epsilon: the parameter of the exponential mechanism.
        sensitivity: the largest change of a score by one unit.

    **Privacy.** A released answer and public parameters.
    """

    clique: Clique
    epsilon: float
    sensitivity: float


@dataclass(frozen=True)
class Allocation:
    """The division of a budget over marginals that minimises the expected L1 error, and that error.

    With Gaussian noise, a marginal of c cells measured with rho_i has an expected L1 error of c / sqrt(pi rho_i); the
    sum is smallest if rho_i is proportional to c^(2/3). With Laplace noise it is c / epsilon_i, and c^(1/2).

    Attributes:
        per_cell: the expected absolute noise of a cell measured with the whole budget.
        weight_power: 2 for Gaussian noise, 1 for Laplace; see `PrivateTable.weight_power`.
    """

    per_cell: float
    weight_power: int = 2

    @property
    def power(self) -> float:
        """A marginal's share is proportional to its cells to this power: 2/3 for Gaussian noise, 1/2 for Laplace."""
        return self.weight_power / (self.weight_power + 1)

    def error(self, cells: Sequence[float]) -> float:
        """Return the expected L1 error, summed over marginals of these sizes.

        >>> round(Allocation(1 / math.sqrt(math.pi)).error([6, 20, 100]), 3)
        103.157
        """
        return float(self.per_cell * sum(size**self.power for size in cells) ** (1 / self.power))

    def shares(self, cells: Sequence[float]) -> list[float]:
        """Return the part of the budget for each marginal.

        >>> [round(share, 6) for share in Allocation(1.0).shares([6, 20, 100])]
        [0.102499, 0.22872, 0.668781]
        """
        parts = [size**self.power for size in cells]
        return [part / sum(parts) for part in parts]

    def weights(self, cells: Sequence[float]) -> list[float]:
        """Return the same division as weights for `PrivateTable.measure`."""
        return [math.sqrt(share) if self.weight_power == 2 else share for share in self.shares(cells)]


# The gate. Each call, in this order: checks its public arguments, computes its exact charge, charges the account (or
# refuses), reads counts, adds integer noise or selects, records charge and answer, and returns the answer. A question
# that the run has asked before gets its recorded answer, without reading rows.


class PrivateTable:
    """Private rows behind the gate, with a budget.

    **Privacy.** For any sequence of calls, even if each depends on earlier answers, the answers together satisfy the
    budget's guarantee for the source's neighbour relation: rho-zCDP by the privacy filter over exact charges (or
    epsilon-DP for a pure budget). Counts are integers, noise is integer and exact, and no rounding affects an answer.
    Exact counts may be cached; nothing that is returned, raised or printed shows them.

    In a pure-DP run `rho=` means epsilon: mechanisms divide what they are given and pass it on. Noise is then the
    discrete Laplace instead of the discrete Gaussian.

    Args:
        source: the rows.
        budget: what may be spent.
        noise: "exact" (ours) or "opendp", or an object with the same two methods; if it has methods `choose` and
            `choose_many`, these replace `exponential_mechanism` and `exponential_mechanism_many`. Recorded runs take a
            name.
        recorder: records answers before they are returned, and recalls them when a run is resumed.
        plan: sigma of each measurement, if all were fixed in advance under a "pld" budget; each can be made once, and
            nothing else can be asked.
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
        self.__neighbours = _neighbours(source)
        self.__table: str | None = None

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
        """The groups of declared codes within which rare codes are merged; public."""
        return self.__source.code_groups

    @property
    def neighbours(self) -> Neighbours:
        """The neighbour relation and its sensitivities; public."""
        return self.__neighbours

    @property
    def rows_public(self) -> int | None:
        """The declared public number of rows; None if it is not public, or if rows may be bounded or dropped."""
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
        """Return the same rows with merged codes and the same account.

        **Privacy.** Codes are merged row by row, so sensitivities do not change. A plan of fixed measurements is
        shared: each is still made once, with its own sigma.
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

    def with_source(self, source: Source, *, table: str | None = None) -> PrivateTable:
        """Return the same units counted through another source, with the same account.

        Args:
            source: the rows coded by another schema, or another table of the same units.
            table: the name of that table in charges; None for another coding of the same rows. The key of a unit may
                have another name there.

        **Privacy.** Each source bounds every unit by itself. The sensitivities are those of the given source, because
        it may count more or fewer rows of a unit; all charges go to one account, so that they compose.

        Raises:
            SettingError: if the source protects other units, or the run fixed its measurements in advance.
        """
        self._refuse_if_planned()
        mine = self.__source.unit
        same = isinstance(source, Source) and source.rows_public == self.__source.rows_public
        if same:
            same = source.unit == mine if table is None else (source.unit.column is None) == (mine.column is None)
        if not same:
            raise SettingError("the other coding of the rows must protect the same units")
        view = self.recode(Recoding.identity())
        view.__source, view.__domain, view.__table = source, source.domain, table or self.__table
        view.__neighbours = _neighbours(source)
        return view

    @property
    def planned(self) -> bool:
        """Whether all measurements were fixed in advance, so that nothing else can be asked; public."""
        return self.__plan is not None

    def can_measure(self, clique: Clique) -> bool:
        """Return whether the marginal of a clique is small enough to be measured; public.

        Rows are counted before codes are merged, by 64-bit cell numbers, so a clique of four columns of 100,000 values
        cannot be measured even if most of their codes were merged.
        """
        return fits_limits(clique, self.domain, self.__source.domain)

    # Public values that depend on the sensitivity or on the kind of noise; they cost nothing.

    def sigma(self, rho: float) -> float:
        """Return the standard deviation of the noise on a cell of a marginal measured with this share of the budget."""
        share = self.__account.share(rho)
        if self.__account.budget.pure:
            return laplace_sd(float_above(self.neighbours.marginal_l1 / share))
        return sqrt_above(self.neighbours.marginal_l2_squared / (2 * share))

    def expected_noise(self, rho: float) -> float:
        """Return the mean absolute noise on a cell of a marginal measured with this share of the budget."""
        return self.sigma(rho) * (math.sqrt(1 / 2) if self.__account.budget.pure else math.sqrt(2 / math.pi))

    def rho_for(self, sigma: float) -> float:
        """Return the share of the budget that measures one marginal with this sigma; the inverse of `sigma`.

        In pure DP, the noise for this share is slightly less than a `sigma` below about 3, because it is discrete.

        Raises:
            SettingError: if sigma is not a positive, finite number.
        """
        if not 0 < sigma < math.inf:
            raise SettingError("sigma must be a positive, finite number")
        if self.__account.budget.pure:
            return self.neighbours.marginal_l1 * math.sqrt(2) / sigma
        return self.neighbours.marginal_l2_squared / (2 * sigma**2)

    @property
    def weight_power(self) -> int:
        """The power of its weight to which a clique's share of the budget of `measure` is proportional.

        Noise is inversely proportional to the weight. Gaussian noise falls with the square root of the share (power 2),
        Laplace noise in proportion to it (power 1).
        """
        return 1 if self.__account.budget.pure else 2

    def allocation(self, rho: float) -> Allocation:
        """Return the division of this share of the budget over marginals that minimises the expected L1 error."""
        return Allocation(self.expected_noise(rho), self.weight_power)

    def dependence_noise(self, pairs: int, rho: float) -> float:
        """Return the standard deviation of the noise on each of `pairs` scores of `dependence`, for this share."""
        if self.__account.budget.pure:
            return self.sigma(rho) * self.neighbours.indif * pairs / self.neighbours.marginal_l1
        return self.sigma(rho) * self.neighbours.indif * math.sqrt(pairs / self.neighbours.marginal_l2_squared)

    @property
    def guarantee(self) -> tuple[float, float] | None:
        """The epsilon and delta of the budget; None for a budget in rho."""
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
            weights: relative weights; a clique's share of `rho` is proportional to its squared weight (in pure DP,
                to its weight). Equal by default.
            queries: by clique, a whole-number query on its cells, in the order of the clique's columns, that is
                answered instead of the cells.

        **Privacy.** Costs at most `rho`: the sum of sensitivity^2 / (2 sigma^2) over the cliques, sigma rounded up. The
        sensitivity of a query is computed from its matrix in whole numbers (`accounting/neighbours.py`).

        Raises:
            SettingError: if columns are unknown, cliques repeated, or weights not positive.
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
        """Select a candidate whose true marginal is far from the given one, by the exponential mechanism.

        The score of r is `weights[r] * (||M_r - against[r]||_1 - offsets[r])`; r is selected with probability exactly
        proportional to exp(epsilon score / (2 sensitivity)). Public inputs are rounded to dyadic rationals first.

        Without `against`, a candidate is compared with its own marginals instead: the distance is the InDif score
        between its first column and its other columns together, twice the score R of PrivBayes in rows.

        **Privacy.** Costs epsilon^2 / 8 <= `rho` in zCDP (epsilon in pure DP), epsilon rounded down; the scores are not
        monotone, hence the 2. The sensitivity of InDif holds for any two axes, so also if the second axis consists of
        the cells of several columns.

        Raises:
            SettingError: if columns are unknown, a marginal has the wrong size, or weights are negative or all zero.
            BudgetExceeded: before a row is read.
        """
        wanted = self._check_cliques(candidates)
        if not wanted:
            raise SettingError("select needs at least one candidate")
        if against is None and not all(wanted):
            raise SettingError("select: a candidate without columns has no first column; name one, or give `against`")
        weight = None if weights is None else read_numbers("weight", wanted, weights)
        offset = None if offsets is None else read_numbers("offset", wanted, offsets)
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
    def select_cells(
        self,
        cliques: Iterable[Clique],
        *,
        against: Mapping[Clique, ArrayLike],
        count: int,
        rho: float,
        used: Iterable[Cell] = (),
    ) -> list[Cell]:
        """Select cells whose true counts are far from the given ones, one after the other, by exponential mechanisms.

        The score of a cell is its distance |count - given count|. Each selection is among the cells of all cliques that
        neither `used` names nor an earlier selection took, with probability exactly proportional to
        exp(epsilon score / (2 sensitivity)).

        Args:
            cliques: the candidates are all cells of these.
            against: the given marginals; public.
            count: the number of selections.
            rho: the share of the budget for all of them.
            used: cells that are no candidates, such as those selected before; public.

        **Privacy.** Costs at most `rho`: `count` charges of epsilon^2 / 8 <= `rho` / `count` each in zCDP (epsilon in
        pure DP), epsilon rounded down. One unit changes a cell's count, and so its distance from a fixed number, by at
        most `neighbours.cell`; the scores are not monotone, hence the 2. Given the earlier selections, which are
        released, the candidates of the next are public, so each is an exponential mechanism on the same scores, and
        their charges add up by adaptive composition. That they use weights computed once changes no probability. Given
        counts are rounded to multiples of 2^-16 rows first, so that scores are whole numbers.

        Raises:
            SettingError: if columns are unknown, a marginal is missing or has the wrong size, a used cell is no cell of
                the cliques, or fewer than `count` candidates are left.
            BudgetExceeded: before a row is read.
        """
        wanted = self._check_cliques(cliques)
        count = as_whole("count", count, least=1)
        starts = [0, *accumulate(map(self.domain.cells, wanted))]
        taken = self._locate_cells(used, wanted, starts)
        left = starts[-1] - len(taken)
        if count > left:
            raise SettingError(f"select_cells: {left} cells are left to choose from, fewer than {count}")
        if starts[-1] > LARGEST_TABLE:
            raise SettingError(f"select_cells: {starts[-1]} cells are more than {LARGEST_TABLE}; use fewer cliques")
        self._refuse_if_planned()
        given, share = check_marginals(wanted, against, self.domain), self.__account.share(rho)
        sensitivity, pure = Fraction(self.neighbours.cell), self.__account.budget.pure
        each = exponential_charge([], sensitivity, share=share / count, pure=pure)
        _, listed = list_candidates([*wanted, *taken])
        charges = [replace(each, what="cells", candidates=(left - i, listed)) for i in range(count)]

        def choose() -> NDArray[np.int64]:
            keep = not isinstance(against, FixedMarginals) or against.again
            scores = np.empty(starts[-1], np.int64)
            for i, (clique, counts) in enumerate(self._counts(wanted, keep=keep)):
                part = scores[starts[i] : starts[i + 1]]
                np.left_shift(counts, BITS, out=part, dtype=np.int64)
                np.abs(np.subtract(part, given[clique](), out=part), out=part)
            rate = Fraction(each.scale) / (2 * sensitivity * (1 << BITS))
            select = getattr(self.__noise, "choose_many", exponential_mechanism_many)
            return np.asarray(select(scores, rate, count, taken), np.int64)

        found = self._answer(charges, choose).tolist()
        places = [bisect_right(starts, cell) - 1 for cell in found]
        return [Cell(wanted[i], cell - starts[i]) for i, cell in zip(places, found, strict=True)]

    def _locate_cells(self, cells: Iterable[Cell], cliques: Sequence[Clique], starts: Sequence[int]) -> list[int]:
        """Return the numbers of these cells among all cells of the cliques, in order, each once.

        Raises:
            SettingError: if one is no cell of the cliques.
        """
        place, found = {clique: i for i, clique in enumerate(cliques)}, set[int]()
        for clique, number in cells:
            i = place.get(clique)
            if i is None or not 0 <= number < starts[i + 1] - starts[i]:
                raise SettingError(f"select_cells: used names a cell of {clique} that is no candidate")
            found.add(starts[i] + number)
        return sorted(found)

    @one_at_a_time
    def dependence(self, pairs: Iterable[Clique], *, rho: float) -> dict[Clique, int]:
        """Return noisy InDif scores: the distance of each pair's marginal from the product of its columns, in rows.

        **Privacy.** Costs at most `rho`: m scores of sensitivity D = `neighbours.indif` each are a vector of L2
        sensitivity D sqrt(m) (L1: D m). The true number of rows enters the score only, under that sensitivity.

        Raises:
            SettingError: if a clique is not a pair of known columns.
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
    def distances(
        self, candidates: Iterable[Clique], *, against: Mapping[Clique, ArrayLike], rho: float
    ) -> dict[Clique, float]:
        """Return the noisy L1 distance of each candidate's marginal from the given one, in rows.

        **Privacy.** Costs at most `rho`. Given marginals are public and rounded to multiples of 2^-16 rows, so 2^16
        times a distance is a whole number. One unit changes a distance by at most the L1 change of its marginal (the
        triangle inequality), which is D = `neighbours.marginal_l1` rows. The m whole numbers are one vector, each entry
        of which may change by 2^16 D: its L2 sensitivity is 2^16 D sqrt(m) (L1: 2^16 D m). Integer noise for that
        sensitivity is added; dividing by 2^16 is post-processing.

        Raises:
            SettingError: if columns are unknown, or a marginal is missing or has the wrong size.
            BudgetExceeded: before a row is read.
        """
        wanted = self._check_cliques(candidates)
        if not wanted:
            return {}
        self._refuse_if_planned()
        given, share = check_marginals(wanted, against, self.domain), self.__account.share(rho)
        reach = self.neighbours.marginal_l1 * (1 << BITS)
        if self.__account.budget.pure:
            paid = laplace_charge("distances", (), reach * len(wanted), share=share)
        else:
            paid = gaussian_charge("distances", (), reach**2 * len(wanted), share=share)
        charge = replace(paid, candidates=list_candidates(wanted))

        def compare() -> NDArray[np.int64]:
            noise = self._draw(charge, len(wanted))
            keep = not isinstance(against, FixedMarginals) or against.again
            exact = dict(compute_distances(self._counts(wanted, keep=keep), given))
            return np.array([exact[clique] for clique in wanted], np.int64) + noise

        return dict(zip(wanted, (self._answer([charge], compare) / (1 << BITS)).tolist(), strict=True))

    def require_gradients(self) -> None:
        """Refuse where `gradient` cannot be asked, so that a mechanism can find out before it spends anything; public.

        Raises:
            SettingError: if rows cannot be read one by one.
            BudgetExceeded: under pure DP, and if the run fixed its measurements in advance.
        """
        self._refuse_if_planned()
        if not isinstance(self.__source, ReadsCodes):
            raise SettingError(
                "this kind of table answers questions about counts only, and a network is trained on rows: export the "
                "table to a Parquet file, or choose another mechanism. Nothing was spent"
            )
        if self.__account.budget.pure:
            raise BudgetExceeded("gradients cannot be measured under pure DP (delta = 0): give a delta")

    @one_at_a_time
    def gradient(self, critic: Critic, *, clip: float, rho: float) -> tuple[NDArray[np.float32], ...]:
        """Return the noisy sum over all rows of a critic's clipped derivatives by its weights (DP-SGD).

        Args:
            critic: the critic; its weights are public.
            clip: the norm above which the derivative of a row is scaled down.
            rho: the share of the budget.

        **Privacy.** Costs at most `rho`: a row adds whole numbers of norm at most `UNIT` (see `gradient.py`), to which
        discrete Gaussian noise is added. Every row is used, so nothing is gained or assumed by sampling.

        Raises:
            SettingError: if the critic does not fit the columns, or rows cannot be read one by one.
            BudgetExceeded: before a row is read; under pure DP in any case.
        """
        self.require_gradients()
        if not isinstance(critic, Critic) or not 0 < clip < math.inf:
            raise SettingError("gradient: give a `Critic`, and a `clip` that is a positive number")
        critic.check(self.domain)
        squared = self.neighbours.query_l2_squared(UNIT**2, negative=True)
        paid = gaussian_charge("gradient", (tuple(self.domain),), squared, share=self.__account.share(rho))
        charge = replace(paid, query=f"{critic.digest}:{float(clip).hex()}")

        def add_up() -> NDArray[np.int64]:
            rows = cast(ReadsCodes, self.__source).codes()
            exact = sum_gradients(critic, clip, self.domain, self.__recoding.maps, rows)
            return exact + self._draw(charge, len(exact))

        return read_gradients(critic, clip, self._answer([charge], add_up))

    @one_at_a_time
    def tally(self, columns: Mapping[str, Fraction], *, what: Mapping[str, What]) -> dict[str, Measurement]:
        """Count the codes of single columns with noise, each with its own share of the budget; used by `discovery`.

        **Privacy.** As `measure`: the L2 sensitivity of a column's counts is the root of `marginal_l2_squared` (the L1
        sensitivity is `marginal_l1`, in pure DP).

        Raises:
            SettingError: if columns are unknown or shares not positive.
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
            SettingError: before a row is read, if the source cannot list values, or delta is 0.
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
        """Return the noisy weighted mean of the L1 distances of given marginals from the true ones, in rows.

        **Privacy.** Costs at most `rho`: one unit changes each distance by at most `marginal_l1`, so the weighted sum
        by that times the sum of the weights; noise is added to the sum, in whole units of 2^-16 rows.

        Raises:
            SettingError: if columns are unknown, a marginal has the wrong size, or a weight is not a positive whole
                number.
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
        """Charge the account and return the answer: the recorded one, or a new one that is recorded first."""
        if self.__table is not None:
            charges = [replace(charge, table=self.__table) for charge in charges]
        recorded = None if self.__recorder is None else self.__recorder.recall(charges, self.__recoding)
        self.__account.pay(charges)
        if recorded is not None:
            return cast(T, recorded)
        answer = self._new_answer(compute())
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
        """Return the charge for the noisy counts of one clique's cells, or of a query on them."""
        near = self.neighbours
        digest = None if query is None else query.digest
        if self.__account.budget.pure:
            reach = near.marginal_l1
            if query is not None:
                reach = near.query_l1(query.column_sum, negative=query.negative, single=query.shape[0] == 1)
            return replace(laplace_charge(what, (clique,), reach, share=share), query=digest)
        squared = near.marginal_l2_squared
        if query is not None:
            single = query.shape[0] == 1
            squared = near.query_l2_squared(query.column_squared, negative=query.negative, single=single)
        return replace(gaussian_charge(what, (clique,), squared, share=share), query=digest)

    def _refuse_if_planned(self) -> None:
        if self.__plan is not None:
            raise BudgetExceeded("this run fixed its measurements in advance; it cannot ask for anything else")

    def _counts(
        self, cliques: Sequence[Clique], *, keep: bool = False
    ) -> Iterator[tuple[Clique, NDArray[np.integer[Any]]]]:
        """Yield exact counts in the given order, from the cache or the source; `keep` caches new ones."""
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
            yield merge_codes(counts, self.__source.domain.shape(clique), [maps.get(column) for column in clique])

    def _indif(self, clique: Clique, counts: NDArray[np.integer[Any]]) -> int:
        """Return InDif between the first column of a clique and its other columns together."""
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

    def _new_answer(self, answer: T) -> T:
        """Return a new answer; tests replace this method to observe answers."""
        return answer


def _neighbours(source: Source) -> Neighbours:
    return Neighbours(source.unit.column, source.unit.max_rows, source.rows_public is not None)
