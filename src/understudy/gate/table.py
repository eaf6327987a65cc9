"""What callers ask the gate, checked before anything is paid: public arguments and facts of the schema alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from understudy.accounting.budget import Account, Budget
from understudy.accounting.charge import (
    Charge,
    What,
    divide,
    exponential,
    gaussian,
    laplace,
    laplace_sd,
    numbers,
    planned,
    thresholded,
)
from understudy.accounting.exact import float_above, float_below, sqrt_above
from understudy.accounting.neighbours import Neighbours
from understudy.arguments import as_mapping, as_whole
from understudy.domain import Clique, Domain
from understudy.errors import BudgetExceeded, SettingError
from understudy.gate.noise import Noise, noise_named
from understudy.gate.selection import (
    BITS,
    Distances,
    FixedMarginals,
    batches,
    distances_of,
    dyadic,
    exponential_mechanism,
    indif,
    merged,
    whole_scores,
)
from understudy.measurement import Measurement
from understudy.quality import Apart
from understudy.schema import Recoding
from understudy.source import Source
from understudy.source.protocol import CountsValues

T = TypeVar("T")


class Journal(Protocol):
    """What the gate tells; a partial release or a book listens."""

    def charged(self, charges: Sequence[Charge]) -> None:
        """These charges were paid; called before a row is read for them."""
        ...

    def measured(self, measurement: Measurement, recoding: Recoding) -> None:
        """This measurement was made, on codes merged by `recoding`."""
        ...

    def released(self, answer: T) -> T:
        """An answer, before anyone gets it; what is given back is what they get.

        **Privacy.** A run that was begun before may give the answer that it gave then, to a question paid for once.
        """
        ...


class Forgetful:
    """The journal of a table used on its own: it writes nothing."""

    def charged(self, charges: Sequence[Charge]) -> None:
        """Do nothing."""

    def measured(self, measurement: Measurement, recoding: Recoding) -> None:
        """Do nothing."""

    def released(self, answer: T) -> T:
        """The answer."""
        return answer


# ----------------------------------------------------------------------------------------------------


LARGEST_TABLE = 1 << 28
"""A noisy table covers every cell of its clique; one of more cells than this (2 GiB) is refused before it is paid."""

_LARGEST_INDEX = (1 << 63) - 1
"""Before codes are merged, a cell has a number of 64 bits; a table of more cells is refused before it is paid."""


def asked_cliques(
    cliques: Iterable[Clique], domain: Domain, counted: Domain, known: dict[Clique, tuple[Clique, frozenset[str]]]
) -> list[Clique]:
    """The cliques as tuples, each set of columns once.

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
        raise SettingError("the same set of columns is named twice in one call; name it once")
    for clique, columns in found:
        if clique not in known:
            if too_large := _beyond(clique, domain, counted):
                raise SettingError(
                    f"the table of {clique} has {too_large[0]} cells, more than {too_large[1]}: use fewer columns, or "
                    "coarser ones; nothing was spent"
                )
            known[clique] = clique, columns
    return [clique for clique, _ in found]


def can_count(clique: Clique, domain: Domain, counted: Domain) -> bool:
    """Whether the table of a clique is small enough, after merging codes and before."""
    return _beyond(clique, domain, counted) is None


def _beyond(clique: Clique, domain: Domain, counted: Domain) -> tuple[int, int] | None:
    """How many cells a table that is too large has, and how many it may have."""
    sizes = (domain.cells(clique), LARGEST_TABLE), (counted.cells(clique), _LARGEST_INDEX)
    return next((size for size in sizes if size[0] > size[1]), None)


def asked_marginals(
    cliques: Sequence[Clique], against: Mapping[Clique, ArrayLike], domain: Domain
) -> dict[Clique, Callable[[], NDArray[np.int64]]]:
    """How to get each public marginal in whole units. All are checked now; fixed ones are not all held at once.

    Raises:
        SettingError: for a clique that has none, and one that does not fit its clique.
    """
    for clique in cliques:
        if not isinstance(against, Mapping) or clique not in against:
            raise SettingError(f"against: there is no marginal of {clique} to compare with; give one per candidate")

    def made(several: Sequence[Clique]) -> list[NDArray[np.int64]]:
        return dyadic([(clique, domain.cells(clique), against[clique]) for clique in several])

    given: dict[Clique, Callable[[], NDArray[np.int64]]] = {}
    for batch in batches(cliques, domain.cells):
        for clique, table in zip(batch, made(batch), strict=True):
            again = partial(lambda one: made([one])[0], clique)
            given[clique] = again if isinstance(against, FixedMarginals) else partial(np.asarray, table)
    return given


# ----------------------------------------------------------------------------------------------------
# Exact counts that the gate keeps, so that a table asked about in every round is counted once.


ROOM = 1 << 26
"""The most cells kept: 256 MiB at four bytes a cell."""


class Counted:
    """Exact tables of one view of the rows; held by the gate alone.

    **Privacy.** Exact, hence private: nothing shows them. What is kept is decided by the tables' numbers of cells and
    the order in which they are asked for, both public; answers are the same whether a table is kept or not.

    Args:
        room: the most cells kept.
    """

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._tables: dict[Clique, NDArray[np.integer[Any]]] = {}

    def __repr__(self) -> str:
        return "Counted()"

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


# ----------------------------------------------------------------------------------------------------
# One question at a time: threads that share a table wait for each other.


class _Paying(Protocol):
    @property
    def account(self) -> Account: ...


P = ParamSpec("P")
Table = TypeVar("Table", bound=_Paying)


def in_turn(question: Callable[Concatenate[Table, P], T]) -> Callable[Concatenate[Table, P], T]:
    """The same question, asked when no other thread asks one of the same account, through whichever view.

    **Privacy.** A check, its payment and its answer belong together: two threads must not both find a measurement free
    that a run may make once, nor one of them the counts that another is about to keep.
    """

    @wraps(question)
    def waited(table: Table, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with table.account.turn:
            return question(table, *args, **kwargs)

    return waited


# ----------------------------------------------------------------------------------------------------
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
        return laplace("quality", tuple(weights), reach, share=share)
    return gaussian("quality", tuple(weights), reach**2, share=share)


def apart(distances: Mapping[Clique, int], weights: Mapping[Clique, int], noise: int, charge: Charge) -> Apart:
    """The noisy weighted mean, in rows, of distances in units of 2^-16: only their sum becomes a float."""
    exact = sum(weights[clique] * value for clique, value in distances.items())
    unit = sum(weights.values()) << BITS
    value = float(Fraction(exact + noise, unit))
    return Apart(value, charge.scale / unit, "gaussian" if charge.noise == "gaussian" else "laplace")


# ----------------------------------------------------------------------------------------------------
# The gate: the only place where something computed from the rows is released, always paid for first.
#
# Each call does, in this order: check its arguments (public), work out its exact cost, pay (or refuse), write the
# charge down, and only then read counts, add integer noise or choose, write the answer down, and return it.


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
        journal: where payments and measurements are written the moment they exist.
        plan: sigma of each measurement, for a run that fixed all of them in advance under a "pld" budget; each may be
            made once, and nothing else.
    """

    def __init__(
        self,
        source: Source,
        budget: Budget,
        *,
        noise: str | Noise = "exact",
        journal: Journal | None = None,
        plan: Mapping[Clique, float] | None = None,
    ) -> None:
        if not isinstance(source, Source):
            raise SettingError("source: give private rows ready to be counted, `understudy.source.open_source(...)`")
        self.__source = source
        self.__account = Account(budget)
        self.__noise = noise_named(noise)
        self.__journal = journal or Forgetful()
        self.__recoding = Recoding.identity()
        self.__distances = Distances()
        self.__counted = Counted()
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

    def recoded(self, recoding: Recoding) -> PrivateTable:
        """The same rows with codes merged: one budget, one account; the merging happens inside the gate.

        **Privacy.** Merging codes acts row by row, so sensitivities stay as they are. In a run whose measurements were
        fixed in advance the plan is shared: each is still made once, over whichever codes, with its own sigma.
        """
        if not isinstance(recoding, Recoding):
            raise SettingError("recoding: give a `Recoding`")
        view = object.__new__(PrivateTable)
        view.__dict__.update(self.__dict__)
        view.__recoding = recoding
        view.__distances = Distances()
        view.__counted = Counted()
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
            raise SettingError("another coding of the same rows must protect the same units")
        view = self.recoded(Recoding.identity())
        view.__source, view.__domain = source, source.domain
        return view

    @property
    def planned(self) -> bool:
        """Whether all measurements were fixed in advance, so that nothing else can be asked; public."""
        return self.__plan is not None

    def askable(self, clique: Clique) -> bool:
        """Whether the table of a clique is small enough to be asked for, in merged codes and as it is counted; public.

        Rows are counted before their codes are merged, by a cell's number of 64 bits: of four columns of 100,000 values
        there is no table, however few codes are left of them.
        """
        return can_count(clique, self.domain, self.__source.domain)

    def sigma(self, rho: float) -> float:
        """The standard deviation of the noise on each cell of one marginal measured with this share of the budget."""
        share = self.__account.share(rho)
        if self.__account.budget.pure:
            return laplace_sd(float_above(self.neighbours.marginal_l1 / share))
        return sqrt_above(self.neighbours.marginal_l2_squared / (2 * share))

    @in_turn
    def measure(
        self, cliques: Iterable[Clique], *, rho: float, weights: Mapping[Clique, float] | None = None
    ) -> list[Measurement]:
        """Noisy marginals of these cliques, for `rho` in all.

        Args:
            cliques: the cliques, each measured once.
            rho: the share of the budget for all of them.
            weights: relative weights; a clique's sigma is inversely proportional to its weight. Equal by default.

        **Privacy.** Costs at most `rho`: the sum of sensitivity^2 / (2 sigma^2) over the cliques, sigma rounded up.

        Raises:
            SettingError: unknown columns, repeated cliques, weights that are not positive.
            BudgetExceeded: before a row is read.
        """
        wanted = self._checked(cliques)
        if not wanted:
            return []
        charges = self._measure_charges(wanted, rho, weights)
        self._pay(charges)
        if self.__plan is not None:
            for clique in wanted:
                del self.__plan[clique]
        paid = {charge.about[0]: charge for charge in charges}
        measured: dict[Clique, Measurement] = {}
        for clique, counts in self._counts(wanted):
            measured[clique] = self._noisy(clique, counts, paid[clique])
            self.__journal.measured(measured[clique], self.__recoding)
        return [measured[clique] for clique in wanted]

    @in_turn
    def select(
        self,
        candidates: Iterable[Clique],
        *,
        against: Mapping[Clique, ArrayLike],
        rho: float,
        weights: Mapping[Clique, float] | None = None,
        offsets: Mapping[Clique, float] | None = None,
    ) -> Clique:
        """One candidate, privately, preferring those whose true marginal is far from the given one.

        The score of r is `weights[r] * (||M_r - against[r]||_1 - offsets[r])`; r is chosen with probability exactly
        proportional to exp(epsilon score / (2 sensitivity)). Public inputs are rounded to dyadic rationals first.

        **Privacy.** Costs epsilon^2 / 8 <= `rho` in zCDP (epsilon in pure DP), epsilon rounded down; the scores are not
        monotone, hence the 2.

        Raises:
            SettingError: unknown columns, a marginal of the wrong size, weights that are negative or all zero.
            BudgetExceeded: before a row is read.
        """
        wanted = self._checked(candidates)
        if not wanted:
            raise SettingError("select needs at least one candidate")
        weight = None if weights is None else numbers("weight", wanted, weights)
        offset = None if offsets is None else numbers("offset", wanted, offsets)
        if weight is not None and (min(weight) < 0 or max(weight) <= 0):
            raise SettingError("select: weights must not be negative, and one must be positive")
        distances = self.__distances.of(against)
        given = asked_marginals([clique for clique in wanted if clique not in distances], against, self.domain)
        sensitivity = self.neighbours.score(Fraction(1 if weight is None else max(weight)))
        self._refuse_if_planned()
        pure = self.__account.budget.pure
        charge = exponential(wanted, sensitivity, share=self.__account.share(rho), pure=pure)
        self._pay([charge])
        keep = not isinstance(against, FixedMarginals)
        distances.update(distances_of(self._counts(list(given), keep=keep), given))
        scores, unit = whole_scores([distances[clique] for clique in wanted], weight, offset)
        rate = Fraction(charge.scale) / (2 * sensitivity * unit)
        chosen = getattr(self.__noise, "choose", exponential_mechanism)(scores, rate)
        return self._released(wanted[chosen])

    @in_turn
    def dependence(self, pairs: Iterable[Clique], *, rho: float) -> dict[Clique, int]:
        """Noisy InDif scores: how far each pair's table is from the product of its one-ways, in rows.

        **Privacy.** Costs at most `rho`: m scores of sensitivity D = `neighbours.indif` each are a vector of L2
        sensitivity D sqrt(m) (L1: D m). The true number of rows enters the score only, under that sensitivity.

        Raises:
            SettingError: a clique that is not a pair of known columns.
            BudgetExceeded: before a row is read.
        """
        wanted = self._checked(pairs)
        if not wanted:
            return {}
        if any(len(pair) != 2 for pair in wanted):
            raise SettingError("dependence is about pairs of columns: give cliques of two")
        self._refuse_if_planned()
        share, m = self.__account.share(rho), len(wanted)
        if self.__account.budget.pure:
            charge = laplace("dependence", tuple(wanted), self.neighbours.indif * m, share=share)
        else:
            charge = gaussian("dependence", tuple(wanted), self.neighbours.indif**2 * m, share=share)
        self._pay([charge])
        noise = self._draw(charge, len(wanted))
        exact = {pair: indif(c.astype(np.int64), self.domain.shape(pair)) for pair, c in self._counts(wanted)}
        return self._released({pair: exact[pair] + int(noise[i]) for i, pair in enumerate(wanted)})

    @in_turn
    def tally(self, columns: Mapping[str, Fraction], *, what: Mapping[str, What]) -> dict[str, Measurement]:
        """Noisy counts of the codes of single columns, each for its own share: purchases of facts for the schema.

        **Privacy.** As `measure`: a column's counts move by at most `marginal_l2_squared` (`marginal_l1` in pure DP).

        Raises:
            SettingError: unknown columns, shares that are not positive.
            BudgetExceeded: before a row is read.
        """
        columns = as_mapping("columns", columns, example="{'age': 0.1}")
        wanted = self._checked([(column,) for column in columns])
        self._refuse_if_planned()
        if missing := [column for column in columns if column not in what]:
            raise SettingError(f"what: say what is bought about {missing[0]!r}, such as 'bounds'")
        shares = map(self.__account.share, columns.values())
        charges = [self._counting(what[clique[0]], clique, share) for clique, share in zip(wanted, shares, strict=True)]
        self._pay(charges)
        paid = {charge.about[0]: charge for charge in charges}
        return {clique[0]: self._noisy(clique, counts, paid[clique]) for clique, counts in self._counts(wanted)}

    @in_turn
    def values(self, column: str, *, rho: float | Fraction, delta: float | Fraction) -> dict[str, int]:
        """The values of a column of which enough rows have each, with their noisy counts, in the order of the text.

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
            raise SettingError(f"column {column!r} is not one whose values are being bought; nothing was spent")
        if self.__account.budget.pure:
            raise BudgetExceeded("values cannot be bought under pure DP (delta = 0): declare them, or give a delta")
        charge = thresholded(((column,),), self.neighbours, share=self.__account.share(rho), delta=delta)
        self._pay([charge])
        counted = sorted(source.values(column).items())
        noise = self._draw(charge, len(counted)).tolist()
        noisy = {text: count + drawn for (text, count), drawn in zip(counted, noise, strict=True)}
        return self._released({text: count for text, count in noisy.items() if count >= (charge.threshold or 0)})

    @in_turn
    def error(self, against: Mapping[Clique, ArrayLike], *, weights: Mapping[Clique, int], rho: float) -> Apart:
        """How far given marginals are from the true ones: the weighted mean of their L1 distances, in rows, with noise.

        **Privacy.** Costs at most `rho`: one unit moves each distance by at most `marginal_l1`, so the weighted sum by
        that times the sum of the weights; noise is added to the sum, in whole units of 2^-16 rows.

        Raises:
            SettingError: unknown columns, a marginal of the wrong size, weights that are not whole and positive.
            BudgetExceeded: before a row is read.
        """
        wanted = self._checked(as_mapping("weights", weights, example="{('sex', 'age'): 2}"))
        self._refuse_if_planned()
        given, share = asked_marginals(wanted, against, self.domain), self.__account.share(rho)
        named = zip(wanted, weights.values(), strict=True)
        weights = {clique: as_whole(f"the weight of {clique}", weight, least=1) for clique, weight in named}
        charge = error_charge(weights, self.neighbours.marginal_l1, share, pure=self.__account.budget.pure)
        self._pay([charge])
        distances = dict(distances_of(self._counts(wanted), given))
        return self._released(apart(distances, weights, int(self._draw(charge, 1)[0]), charge))

    def _checked(self, cliques: Iterable[Clique]) -> list[Clique]:
        return asked_cliques(cliques, self.domain, self.__source.domain, self.__asked)

    def _pay(self, charges: Sequence[Charge]) -> None:
        self.__account.pay(charges)
        self.__journal.charged(charges)

    def _measure_charges(
        self, cliques: Sequence[Clique], rho: float, weights: Mapping[Clique, float] | None
    ) -> list[Charge]:
        if self.__plan is not None:
            for clique in cliques:
                if clique not in self.__plan:
                    raise BudgetExceeded(f"{clique} is not among the measurements fixed in advance; nothing was read")
            squared = self.neighbours.marginal_l2_squared
            return [planned("measure", (clique,), squared, sigma=self.__plan[clique]) for clique in cliques]
        shares = divide(cliques, weights, self.__account.share(rho), squared=not self.__account.budget.pure)
        return [self._counting("measure", clique, share) for clique, share in shares.items()]

    def _counting(self, what: What, clique: Clique, share: Fraction) -> Charge:
        """The charge for the noisy counts of one clique's cells."""
        if self.__account.budget.pure:
            return laplace(what, (clique,), self.neighbours.marginal_l1, share=share)
        return gaussian(what, (clique,), self.neighbours.marginal_l2_squared, share=share)

    def _refuse_if_planned(self) -> None:
        if self.__plan is not None:
            raise BudgetExceeded("this run fixed its measurements in advance: nothing is left for other questions")

    def _counts(
        self, cliques: Sequence[Clique], *, keep: bool = False
    ) -> Iterator[tuple[Clique, NDArray[np.integer[Any]]]]:
        """Exact counts in the order asked, whichever of them were kept; `keep` those that will be asked for again."""
        known = {clique: self.__counted.get(clique) for clique in cliques}  # once: another thread may add to them
        fresh = self._counted_now([clique for clique, table in known.items() if table is None])
        for clique, table in known.items():
            found = next(fresh) if table is None else table
            if table is None and keep:
                self.__counted.put(clique, found)
            yield clique, found

    def _counted_now(self, cliques: Sequence[Clique]) -> Iterator[NDArray[np.int64]]:
        maps = self.__recoding.maps
        for clique, counts in self.__source.counts(cliques):
            yield merged(counts, self.__source.domain.shape(clique), [maps.get(column) for column in clique])

    def _draw(self, charge: Charge, size: int) -> NDArray[np.int64]:
        draw = self.__noise.gaussian if charge.noise == "gaussian" else self.__noise.laplace
        return draw(charge.scale, size)

    def _noisy(self, clique: Clique, counts: NDArray[np.integer[Any]], charge: Charge) -> Measurement:
        values = counts + self._draw(charge, len(counts))
        if charge.noise == "gaussian":
            return self._released(Measurement(clique, values, charge.scale))
        return self._released(Measurement(clique, values, laplace_sd(charge.scale), noise="laplace"))

    def _released(self, answer: T) -> T:
        """Every answer passes here on its way out: a run that goes on gets those it had, and a test can replace all."""
        return self.__journal.released(answer)
