"""The graphical model: a distribution given by potentials on cliques, with exact answers and samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError, ReleaseError, SettingError, UnderstudyError
from understudy.model.junction_tree import JunctionTree, ordered_columns
from understudy.model.projection import Projector
from understudy.model.propagate import Propagation
from understudy.model.protocol import FitReport

_LARGEST = 1e15  # of a potential that is read: logarithms of counts and of their ratios are far smaller


class GraphicalModel:
    """A distribution over a domain: the product of exponentiated potentials, scaled to a number of rows.

    **Guarantees.** What the domain forbids has probability 0, whatever the potentials.

    **Privacy.** Post-processing: made of measurements alone.

    Attributes:
        domain: the columns.
        total: the number of rows its expected counts add up to.
        tree: the junction tree used for exact answers.
        report: how the fit went; None for a model that was not fitted.

    >>> model = GraphicalModel(Domain({"a": 2, "b": 3}), {("a",): np.log([1.0, 3.0])}, total=8.0)
    >>> model.project(("b", "a")).round(3)[0].tolist()
    [0.667, 2.0]
    """

    kind: ClassVar[str] = "graphical"

    def __init__(
        self,
        domain: Domain,
        potentials: Mapping[Clique, NDArray[np.float64]],
        *,
        total: float,
        report: FitReport | None = None,
    ) -> None:
        if not (math.isfinite(total) and total > 0.0):
            raise InputError("a model's total must be a positive, finite number")
        self.domain = domain
        self.total = float(total)
        self.report = report
        self._potentials = _maximal(domain, _within_rules(domain, potentials))
        self.tree = JunctionTree.of(domain, self._potentials)

    def __repr__(self) -> str:
        return (
            f"GraphicalModel({len(self.domain)} columns, {len(self._potentials)} cliques, "
            f"{self.size_mib:.3g} MiB, total={self.total:.6g})"
        )

    @property
    def size_mib(self) -> float:
        """The size of the junction tree."""
        return self.tree.size_mib

    @property
    def loss(self) -> float:
        """The loss the fit ended with; NaN for a model that was not fitted."""
        return math.nan if self.report is None else self.report.loss

    @cached_property
    def entropy(self) -> float:
        """The entropy of one row, in nats."""
        marginals = self._calibrated[1]
        propagation = self._propagation
        energy = 0.0
        for table, clique in enumerate(propagation.tables):
            if clique in self._potentials:
                mine = marginals[propagation.slice_of(table)]
                possible = mine > 0.0
                energy += float(mine[possible] @ self._potentials[clique].ravel()[possible])
        return self._calibrated[0] - energy

    def factors(self) -> Iterator[tuple[Clique, NDArray[np.float64]]]:
        """The cliques with their potentials (minus infinity: impossible), columns in the engine's order."""
        yield from self._potentials.items()

    def project(self, clique: Clique) -> NDArray[np.float64]:
        """Expected counts of a clique's cells, in the model or not, shaped by the domain in the order asked.

        Raises:
            SchemaError: for an unknown or repeated column.
        """
        return self.project_many([clique])[self.domain.check(clique)]

    def project_many(self, cliques: Iterable[Clique]) -> dict[Clique, NDArray[np.float64]]:
        """Expected counts for many cliques, sharing one calibration and all sums they have in common."""
        return self._projector.many([self.domain.check(clique) for clique in cliques])

    def sample(self, rows: int, rng: np.random.Generator, *, rounding: bool = True) -> dict[str, NDArray[Any]]:
        """Coded columns of synthetic rows; the same generator state gives the same rows.

        Args:
            rows: how many.
            rng: where the randomness comes from.
            rounding: counts as expected up to rounding, within groups of rows that agree so far; False for
                independent rows.
        """
        if rows < 0:
            raise SettingError("rows must not be negative")
        from understudy.model.sampling import sample_rows

        self._calibrated  # noqa: B018 - sampling needs the messages
        return sample_rows(self._propagation, rows, rng, rounding=rounding)

    def condition(self, where: Mapping[str, int | NDArray[np.float64]]) -> GraphicalModel:
        """The model given what is known of some columns; its total is the expected number of rows that fit.

        Args:
            where: by column a code, or the chance with which a row of each code fits: a mask of several codes, or
                less than 1 for a code of which only a part does.

        **Guarantees.** Exact: Bayes' rule on the potentials, no rows are drawn.

        Raises:
            SchemaError: for an unknown column.
            InputError: for a code outside the column, or a combination that cannot occur.
        """
        potentials = dict(self._potentials)
        for column in self.domain.check(tuple(where)):
            with np.errstate(divide="ignore"):
                only = np.log(_chances(column, self.domain[column], where[column]))
            host = next((clique for clique in potentials if column in clique), (column,))
            spread = only.reshape([-1 if c == column else 1 for c in host])
            potentials[host] = potentials.get(host, np.zeros(self.domain.shape(host))) + spread
        given = GraphicalModel(self.domain, potentials, total=self.total, report=self.report)
        try:
            expected = self.total * math.exp(min(0.0, given._calibrated[0] - self._calibrated[0]))
        except InputError:
            expected = 0.0
        if not expected > 0.0:
            raise InputError(f"the combination asked for in {tuple(where)} cannot occur in this model")
        given.total = expected
        return given

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything needed to build it again, as plain arrays; wall-clock time is left out."""
        member = [[column in clique for column in self.domain] for clique in self._potentials]
        tables = [table.ravel() for table in self._potentials.values()]
        return {
            "total": np.array(self.total),
            "cliques": np.array(member, np.uint8).reshape(len(member), len(self.domain)),
            "potentials": np.concatenate([np.empty(0), *tables]),
            "report": np.empty(0) if self.report is None else self.report.to_array(),
        }

    @classmethod
    def from_arrays(cls, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The model that `to_arrays` wrote down.

        Raises:
            ReleaseError: when the arrays do not fit the domain.
        """
        try:
            member, flat = np.asarray(arrays["cliques"]), np.asarray(arrays["potentials"], np.float64)
            cliques = [tuple(c for c, inside in zip(domain, row, strict=True) if inside) for row in member.tolist()]
            ordered = [tuple(c for c in ordered_columns(domain) if c in clique) for clique in cliques]
            ends = np.cumsum([0, *map(domain.cells, ordered)])
            if ends[-1] != flat.size or not ((np.abs(flat) <= _LARGEST) | np.isneginf(flat)).all():
                raise ReleaseError("the model's arrays do not fit its domain; the release is damaged")
            tables = {clique: flat[a:b] for clique, a, b in zip(ordered, ends, ends[1:], strict=False)}
            report = FitReport.from_array(arrays["report"]) if arrays["report"].size else None
            return cls(domain, tables, total=float(arrays["total"]), report=report)
        except ReleaseError:
            raise
        except (UnderstudyError, KeyError, ValueError, TypeError, IndexError, OverflowError):
            raise ReleaseError("the model's arrays do not fit its domain; the release is damaged") from None

    @cached_property
    def _propagation(self) -> Propagation:
        return Propagation(self.tree, self._potentials)

    @cached_property
    def _calibrated(self) -> tuple[float, NDArray[np.float64]]:
        """Run belief propagation; the log partition function and the cliques' marginals, adding up to 1."""
        propagation = self._propagation
        values = np.zeros(propagation.size)
        for table, clique in enumerate(propagation.tables):
            if clique in self._potentials:
                values[propagation.slice_of(table)] = self._potentials[clique].ravel()
        impossible = np.flatnonzero(np.isneginf(values))
        values[impossible] = 0.0
        marginals = propagation.marginals(values, 1.0, forbidden=impossible)
        return propagation.log_partition, marginals

    @cached_property
    def _projector(self) -> Projector:
        self._calibrated  # noqa: B018 - projections need the messages
        return Projector(self._propagation, self.total)


def _chances(column: str, size: int, given: int | NDArray[np.float64]) -> NDArray[np.float64]:
    chances = np.asarray(given, np.float64)
    if chances.ndim == 0:
        if not 0 <= chances < size:
            raise InputError(f"column {column!r}: code {given} is not in 0..{size - 1}")
        return np.where(np.arange(size) == chances, 1.0, 0.0)
    if chances.shape != (size,) or not ((chances >= 0.0) & (chances <= 1.0)).all():
        raise InputError(f"column {column!r}: give a chance from 0 to 1 for each of its {size} codes")
    return chances


def _within_rules(
    domain: Domain, potentials: Mapping[Clique, NDArray[np.float64]]
) -> dict[Clique, NDArray[np.float64]]:
    """The potentials, minus infinity where the domain forbids a cell."""
    found = dict(potentials)
    for clique, mask in domain.forbidden.items():
        table = np.asarray(found.get(clique, 0.0), np.float64)
        table = np.zeros(mask.shape) if table.ndim == 0 else table.reshape(mask.shape)
        found[clique] = np.where(mask, -np.inf, table)
    return found


def _maximal(domain: Domain, potentials: Mapping[Clique, NDArray[np.float64]]) -> dict[Clique, NDArray[np.float64]]:
    """The potentials in the engine's column order, those of contained cliques added to a clique that contains them."""
    columns = ordered_columns(domain)
    out: dict[Clique, NDArray[np.float64]] = {}
    orders = {clique: tuple(column for column in columns if column in domain.check(clique)) for clique in potentials}
    for clique, order in sorted(orders.items(), key=lambda item: len(item[1]), reverse=True):
        wanted = domain.check(clique)
        axes = [wanted.index(column) for column in (*(c for c in wanted if c not in order), *order)]
        table = np.asarray(potentials[clique], np.float64).reshape(domain.shape(wanted)).transpose(axes)
        host = next((larger for larger in out if set(order) <= set(larger)), order)
        spread = table.reshape([domain[column] if column in order else 1 for column in host])
        out[host] = out[host] + spread if host in out else np.ascontiguousarray(spread)
    return out
