"""The graphical model: a distribution given by potentials on cliques, with exact marginals and sampling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from threading import RLock
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.errors import InputError, ReleaseError, SettingError, UnderstudyError
from understudy.model.elimination import eliminate, plan_elimination
from understudy.model.junction_tree import JunctionTree, sort_columns
from understudy.model.projection import Projector
from understudy.model.propagate import Propagation
from understudy.model.protocol import FitReport, Model, cannot_occur, read_chances

_LARGEST = 1e15  # largest potential of a saved model: logarithms of counts and their ratios are far smaller


class GraphicalModel(Model):
    """A distribution over a domain: the product of exponentiated potentials, scaled to a number of rows.

    **Guarantees.** Cells that the domain forbids have probability 0 for any potentials. Threads may share a model; they
    wait for each other.

    **Privacy.** Post-processing: made of measurements only.

    Attributes:
        domain: the columns.
        total: the number of rows; the sum of the expected counts.
        report: the report of the fit; None for a model that was not fitted.

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
        self._potentials = _merge_contained(domain, _apply_rules(domain, potentials))
        self._lock = RLock()  # calibration, projections and sampling share scratch memory

    @cached_property
    def tree(self) -> JunctionTree:
        """The junction tree used for exact inference."""
        return JunctionTree.of(self.domain, self._potentials)

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
        """The final loss of the fit; NaN for a model that was not fitted."""
        return math.nan if self.report is None else self.report.loss

    @cached_property
    def entropy(self) -> float:
        """The entropy of one row, in nats."""
        with self._lock:
            propagation, (log_partition, marginals) = self._propagation, self._calibrated
        energy = 0.0
        for table, clique in enumerate(propagation.tables):
            if clique in self._potentials:
                mine = marginals[propagation.slice_of(table)]
                possible = mine > 0.0
                energy += float(mine[possible] @ self._potentials[clique].ravel()[possible])
        return log_partition - energy

    def factors(self) -> Iterator[tuple[Clique, NDArray[np.float64]]]:
        """Yield the cliques with their potentials (minus infinity: impossible), columns in the engine's order."""
        yield from self._potentials.items()

    def project(self, clique: Clique) -> NDArray[np.float64]:
        """Expected counts of any clique's cells, its axes in the clique's order.

        Raises:
            SchemaError: if a column is unknown or repeated.
        """
        return self.project_many([clique])[self.domain.check(clique)]

    def project_many(self, cliques: Iterable[Clique]) -> dict[Clique, NDArray[np.float64]]:
        """Expected counts of many cliques, which share one calibration and common sums."""
        wanted = [self.domain.check(clique) for clique in cliques]
        if len(wanted) == 1 and "_projector" not in self.__dict__:
            order = plan_elimination(self.domain, self._potentials, wanted[0])
            if order is not None:  # one marginal of a small model is not worth a calibration
                return {wanted[0]: self.total * eliminate(self.domain, self._potentials, order, wanted[0])}
        with self._lock:
            return self._projector.many(wanted)

    def sample(self, rows: int, rng: np.random.Generator, *, rounding: bool = True) -> dict[str, NDArray[Any]]:
        """Draw synthetic rows as coded columns; the same generator state gives the same rows.

        Args:
            rows: number of rows.
            rng: source of randomness.
            rounding: make counts equal to their expectation up to rounding, within groups of rows that agree on
                earlier columns; False for independent rows.
        """
        if rows < 0:
            raise SettingError("rows must be a number of at least 0")
        with self._lock:
            self._calibrated  # noqa: B018 - sampling needs the messages
            return sample_rows(self._propagation, rows, rng, rounding=rounding)

    def condition(self, where: Mapping[str, int | NDArray[np.float64]]) -> GraphicalModel:
        """Return the model given what is known about some columns; its total is the expected number of matching rows.

        Args:
            where: for each column a code, or the probability that a row of each code matches: a mask of several codes,
                or less than 1 for a code of which only a part matches.

        **Guarantees.** Exact: Bayes' rule on the potentials; no rows are drawn.

        Raises:
            SchemaError: if a column is unknown.
            InputError: if a code is outside the column, or the combination cannot occur.
        """
        potentials = dict(self._potentials)
        for column, chances in read_chances(self.domain, where).items():
            with np.errstate(divide="ignore"):
                only = np.log(chances)
            host = next((clique for clique in potentials if column in clique), (column,))
            spread = only.reshape([-1 if c == column else 1 for c in host])
            potentials[host] = potentials.get(host, np.zeros(self.domain.shape(host))) + spread
        given = GraphicalModel(self.domain, potentials, total=self.total, report=self.report)
        try:
            with self._lock:
                expected = self.total * math.exp(min(0.0, given._calibrated[0] - self._calibrated[0]))
        except InputError:
            expected = 0.0
        if not expected > 0.0:
            raise cannot_occur(where)
        given.total = expected
        return given

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return everything needed to build the model again, as plain arrays, without the time of the fit."""
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
        """Build the model that `to_arrays` wrote.

        Raises:
            ReleaseError: if the arrays do not fit the domain.
        """
        try:
            member, flat = np.asarray(arrays["cliques"]), np.asarray(arrays["potentials"], np.float64)
            cliques = [tuple(c for c, inside in zip(domain, row, strict=True) if inside) for row in member.tolist()]
            ordered = [tuple(c for c in sort_columns(domain) if c in clique) for clique in cliques]
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
        """Run belief propagation; returns the log partition function and the cliques' marginals with sum 1."""
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


def _apply_rules(domain: Domain, potentials: Mapping[Clique, NDArray[np.float64]]) -> dict[Clique, NDArray[np.float64]]:
    """Set the potentials of forbidden cells to minus infinity."""
    found = dict(potentials)
    for clique, mask in domain.forbidden.items():
        table = np.asarray(found.get(clique, 0.0), np.float64)
        table = np.zeros(mask.shape) if table.ndim == 0 else table.reshape(mask.shape)
        found[clique] = np.where(mask, -np.inf, table)
    return found


def _merge_contained(
    domain: Domain, potentials: Mapping[Clique, NDArray[np.float64]]
) -> dict[Clique, NDArray[np.float64]]:
    """Bring potentials into the engine's column order, and add those of contained cliques to a containing one."""
    columns = sort_columns(domain)
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


# Sampling: Algorithms 7 and 8 of "Winning the NIST Contest"


def sample_rows(
    propagation: Propagation, rows: int, rng: np.random.Generator, *, rounding: bool
) -> dict[str, NDArray[Any]]:
    """Draw coded columns, clique by clique from the root of the tree; returns them in the domain's order.

    Each new column is drawn given the columns of its clique that exist already. With `rounding`, every group of rows
    that agree on those gets each value as often as expected, up to rounding, in random order; otherwise rows are
    independent. A cell of probability 0 never occurs.
    """
    from understudy.model.kernels.rows import draw_values

    domain = propagation.tree.domain
    made: dict[str, NDArray[np.int32]] = {}
    for position, clique in enumerate(propagation.tree.cliques):
        missing = [column for column in clique if column not in made]
        if not missing:
            continue
        steps = _order_steps(clique, missing, made)
        for table, given, column in _step_tables(propagation.belief(position), clique, steps):
            groups = np.zeros(rows, np.int64)
            for other in given:
                groups *= domain[other]
                groups += made[other]
            made[column] = draw_values(groups, table.reshape(-1, domain[column]), rng, rounding=rounding)
    return {column: _compact_column(domain, column, made, rows) for column in domain}


def _order_steps(clique: Clique, missing: list[str], made: dict[str, Any]) -> list[tuple[Clique, str]]:
    """For each missing column of a clique, return the columns that it is drawn given."""
    known = [column for column in clique if column in made]
    return [((*known, *missing[:i]), column) for i, column in enumerate(missing)]


def _step_tables(
    table: NDArray[np.float64], clique: Clique, steps: list[tuple[Clique, str]]
) -> list[tuple[NDArray[np.float64], Clique, str]]:
    """Return the joint table of each step, its own column last: the whole clique for the last step, sums before it."""
    given, column = steps[-1]
    order = [clique.index(c) for c in (*given, column)]
    table = np.ascontiguousarray(table.transpose(order))
    found = []
    for given, column in reversed(steps):
        found.append((table, given, column))
        table = table.sum(axis=-1)
    return found[::-1]


def _compact_column(domain: Domain, column: str, made: dict[str, NDArray[np.int32]], rows: int) -> NDArray[Any]:
    """Return a column in the smallest unsigned type that holds its codes."""
    dtype = np.min_scalar_type(domain[column] - 1)
    return made[column].astype(dtype) if column in made else np.zeros(rows, dtype)
