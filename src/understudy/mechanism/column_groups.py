"""Mechanisms that divide the columns into groups, measure the marginal of each group, and draw groups independently.

`laplace`, `dpfieldgroups` and `pfr` differ in how they divide columns and budget, and in how they clean measurements.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement, noisy_total
from understudy.mechanism.base import Count, Footprint, Mechanism
from understudy.model.fit import Fit
from understudy.model.graphical import GraphicalModel
from understudy.model.protocol import Model
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding

_LEAST_PROBABILITY = 1e-9  # the smallest share of a cell if there are rules, so that some row is possible


def _check_groups(groups: Any) -> tuple[Clique, ...]:
    try:
        found = tuple(tuple(group) for group in groups if not isinstance(group, str))
    except TypeError:
        found = ()
    named = [column for group in found for column in group]
    if not isinstance(groups, tuple) or len(found) < len(groups) or not all(isinstance(c, str) for c in named):
        raise ValueError("give lists of columns, such as [[sex, age], [city, county]]")
    if repeated := [column for column in named if named.count(column) > 1]:
        raise ValueError(f"column {repeated[0]!r} is in two groups; put it into one")
    return tuple(group for group in found if group)


Groups = Annotated[tuple[tuple[str, ...], ...], PlainValidator(_check_groups)]


class ColumnGroups(Mechanism):
    """Base of mechanisms that measure the marginal of each group of columns.

    **Privacy.** One question to the gate for all groups. Groups follow from the schema, the settings and earlier
    answers.

    Attributes:
        groups: columns that are measured together; other columns are grouped in the order of the schema.
        group_cells: the most cells of a group that is formed in the order of the schema.
    """

    groups: Groups = ()
    group_cells: Count = 1000

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure the groups' marginals, and finish."""
        progress(Step("measure", 0.0, "groups of columns"))
        groups = self.divide(table.domain)
        measured = table.measure(groups, rho=rho, weights=self.weigh(groups, table.weight_power))
        return self.conclude(table, measured, progress=progress)

    def own_model(
        self, domain: Domain, measurements: Sequence[Measurement], recoding: Recoding, total: float | None
    ) -> Model:
        """Clean the measurements and make the model: groups are independent except for the rules of the domain."""
        least = _LEAST_PROBABILITY if domain.rules else 0.0
        potentials: dict[Clique, NDArray[np.float64]] = {(): np.zeros(())}
        for measurement in measurements:
            home = domain.canonical(measurement.clique)
            counts = self.clean(measurement).reshape(domain.shape(measurement.clique))
            counts = counts.transpose([measurement.clique.index(column) for column in home])
            counts = counts if counts.sum() > 0 else np.ones(counts.shape)
            with np.errstate(divide="ignore"):
                potentials[home] = np.log(np.maximum(counts / counts.sum(), least))
        rows = noisy_total(measurements) if total is None else float(total)
        return GraphicalModel(domain, potentials, total=rows)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of a few copies of the groups' marginals.

        Raises:
            SettingError: if a group cannot be measured; nothing was spent.
        """
        cells = sum(map(domain.cells, self.divide(domain)))
        return Footprint(memory_bytes=100 * cells + (64 << 20), disk_bytes=24 * cells + 512 * len(domain))

    def divide(self, domain: Domain) -> list[Clique]:
        """Return the groups: those of the settings, then the other columns in the order of the schema.

        Raises:
            SettingError: if a group has unknown columns.
        """
        named = {column for group in self.groups for column in group}
        if unknown := sorted(named - set(domain)):
            raise SettingError(
                f"{self.name}.groups: there is no column {unknown[0]!r}; the columns are {', '.join(domain)}"
            )
        rest = [column for column in domain if column not in named]
        return [*self.groups, *join_neighbours(domain, rest, self.group_cells)]

    def weigh(self, groups: Sequence[Clique], power: int) -> dict[Clique, float] | None:
        """Return the weights of the groups' marginals; equal by default."""
        return None

    @abstractmethod
    def clean(self, measurement: Measurement) -> NDArray[np.float64]:
        """Return counts that are not negative; if all are zero, the group is uniform."""


def join_neighbours(domain: Domain, columns: Sequence[str], cells: int) -> Iterator[Clique]:
    """Divide columns, in order, into groups of at most this many cells; a larger column is a group by itself.

    >>> list(join_neighbours(Domain({"a": 2, "b": 3, "c": 4, "d": 9}), "abcd", 12))
    [('a', 'b'), ('c',), ('d',)]
    """
    group: Clique = ()
    for column in columns:
        if group and domain.cells((*group, column)) > cells:
            yield group
            group = ()
        group = (*group, column)
    if group:
        yield group


def clip_negative(values: Any) -> NDArray[np.float64]:
    """Set negative counts to zero."""
    return np.maximum(np.asarray(values, np.float64), 0.0)
