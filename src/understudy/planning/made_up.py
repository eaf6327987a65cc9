"""Rows made from a schema alone: what plans and rehearsals run on. They describe no real people.

`SKEW`, `TIE`, their spreads, `SECOND` and `EMPTY` were fitted by hand to the errors of all mechanisms on Adult and
Fire, and checked on two tables of SDNist and the stroke trial: benchmarks/plan.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.discovery.discover import complete_column
from understudy.domain import Clique, CodeGroups, Domain
from understudy.schema import PrivacyUnit, Schema
from understudy.schema.open import Open, trial_facts
from understudy.tabulate import Counts, SparseCounts, marginals

Codes = dict[str, NDArray[np.uint32]]

SKEW, SKEW_SPREAD = 1.2, 0.35
"""The standard deviation of the log of a code's share: the median over columns, and the spread of its log."""

TIE, TIE_SPREAD = 0.7, 1.6
"""How strongly a column follows an earlier one, on the same scale: the median over columns, and the spread of its log.
Half of it follows the order of the codes, half belongs to single cells."""

SECOND = 0.4
"""How strongly a column follows a second one, as a part of `TIE`."""

EMPTY = 0.45
"""The part of the cells of a column and the one it follows that hardly ever occur, however many rows there are."""

_HARDLY_EVER = 8.0
_PARENT_CODES, _CELLS = 32, 1 << 21  # codes of a followed column that differ in what they suggest: bounds memory


def made_up_codes(rng: np.random.Generator, sizes: Mapping[str, int], rows: int, *, even: bool = False) -> Codes:
    """Coded columns of made-up rows: the same generator state gives the same rows.

    In a random order, every column follows up to two earlier ones: the log of a code's share is the sum of what is
    usual in the column and of what the codes of the earlier columns suggest. How skewed columns are, and how strongly
    they follow others, is spread evenly over the quantiles of a lognormal law, so that tables differ little in this.
    Columns that follow others strongly come first: real tables have groups of columns that say nearly the same.

    Args:
        rng: for everything that is drawn.
        sizes: the columns and their numbers of codes.
        rows: how many.
        even: make all codes about equally frequent, and let all columns follow others alike.
    """
    names = list(sizes)
    order = [names[i] for i in rng.permutation(len(names))]
    skews = rng.permutation(_quantiles(len(names), SKEW_SPREAD))
    ties = _quantiles(len(names), TIE_SPREAD)[::-1]
    made: Codes = {}
    for place, name in enumerate(order):
        size = sizes[name]
        logs = (0.0 if even else SKEW * skews[place]) * rng.standard_normal((1, size))
        situation = np.zeros(rows, np.int64)  # which codes the followed columns have, as one number
        for parent, tie in zip(rng.permutation(place), (1.0 if even else ties[place], SECOND), strict=False):
            several = min(sizes[order[parent]], _PARENT_CODES, max(1, _CELLS // logs.size))
            pull = 1 - (_scores(several)[:, None] - _scores(size)) ** 2 / 2 + rng.standard_normal((several, size))
            pull *= TIE * tie / math.sqrt(2)
            pull[rng.random(pull.shape) < (0.0 if even else EMPTY)] -= _HARDLY_EVER
            logs = (logs[:, None, :] + pull[None, :, :]).reshape(-1, size)
            situation = situation * several + made[order[parent]].astype(np.int64) % several
        made[name] = _draw(rng, logs, situation)
    return {name: made[name] for name in names}


def _quantiles(count: int, spread: float) -> NDArray[np.float64]:
    normal = NormalDist()
    return np.exp([spread * normal.inv_cdf((i + 0.5) / count) for i in range(count)])


def _scores(size: int) -> NDArray[np.float64]:
    """Evenly spaced numbers of mean 0 and variance about 1: the order of the codes."""
    return np.linspace(-math.sqrt(3), math.sqrt(3), size) if size > 1 else np.zeros(1)


def _draw(rng: np.random.Generator, logs: NDArray[np.float64], situation: NDArray[np.int64]) -> NDArray[np.uint32]:
    """One code for each row, by the shares that `logs` gives in its situation."""
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    ends = np.cumsum(shares, axis=1)
    ends /= ends[:, -1:]
    steps = (ends + np.arange(len(ends))[:, None]).reshape(-1)
    size = logs.shape[1]
    found = np.searchsorted(steps, situation + rng.random(len(situation)), side="right") - situation * size
    drawn: NDArray[np.uint32] = np.minimum(found, size - 1).astype(np.uint32)
    return drawn


class MadeUpSource:
    """Made-up rows behind the `Source` protocol, so that mechanisms can be tried on them through the gate.

    Args:
        domain: the columns.
        codes: the made-up rows.
        weight: how many rows each made-up row stands for.
        unit: who would be protected.
        rows_public: whether the number of rows is declared public.
    """

    def __init__(
        self,
        domain: Domain,
        codes: Codes,
        *,
        weight: int = 1,
        unit: PrivacyUnit | None = None,
        rows_public: bool = False,
    ) -> None:
        self.domain, self.code_groups = domain, CodeGroups()
        self.unit = unit or PrivacyUnit()
        self.rows = weight * len(next(iter(codes.values())))
        self.rows_public = self.rows if rows_public else None
        self.rows_used = self.rows_public if self.unit.max_rows == 1 else None
        self._codes, self._weight = codes, weight
        self._known: dict[Clique, Counts] = {}
        self.asked: set[Clique] = set()

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Exact counts of each clique's cells, in the order asked; each table is counted once and remembered."""
        asked = [self.domain.check(clique) for clique in cliques]
        fresh = [clique for clique in asked if clique not in self._known]
        for clique, table in marginals(self._codes, self.domain, fresh):
            self._known[clique] = _times(table, self._weight)
        self.asked.update(asked)
        return iter([(clique, self._known[clique]) for clique in asked])


def _times(table: Counts, weight: int) -> Counts:
    if isinstance(table, SparseCounts):
        return SparseCounts(table.cells, table.counts * weight, table.size)
    return table * weight


BINS, VALUES, UNCUT = 32, 16, 100
"""The assumed numbers of bins and of values of a column, and of bins where only the bounds are discovered."""

DISCOVERY_SHARE = 0.1
"""The default share of the budget that `synthesize` spends on discovery."""

_BOUNDS: dict[str, tuple[Any, Any]] = {
    "date": ("2000-01-01", "2019-12-31"),
    "datetime": ("2000-01-01T00:00:00", "2019-12-31T00:00:00"),
    "duration": ("0", "1000000"),
}


def assume_facts(schema: Schema) -> tuple[Schema, tuple[str, ...]]:
    """Fill in plausible facts for everything that is still to be discovered, and list them.

    **Privacy.** Reads the declaration alone.

    Returns:
        The filled schema and the assumptions in words; the schema itself and none where it declares everything.
    """
    if not schema.open:
        return schema, ()
    columns = tuple(_fill(column) if isinstance(column, Open) else column for column in schema.columns)
    alike: dict[str, list[str]] = {}
    for column in schema.open:
        alike.setdefault(f"{_codes(column)} {'values' if column.may_need_delta else 'bins'}", []).append(column.name)
    words = [f"{', '.join(names)}: {count}" for count, names in alike.items()]
    delta = ", and a tenth of delta is set aside" if any(column.may_need_delta for column in schema.open) else ""
    return replace(schema, columns=columns), (
        *words,
        f"a tenth of the budget is spent on discovering these facts{delta}",
    )


def _fill(column: Open) -> Any:
    field = column.field
    facts = trial_facts(field, _codes(column))
    if "minimum" in facts:
        spikes = [spike for spike in field.get("understudy", {}).get("spikes", ()) if isinstance(spike, int | float)]
        low, high = _BOUNDS.get(str(field.get("type")), (min(0, *spikes, 0), max(1000, *spikes, 0)))
        facts |= {"minimum": low, "maximum": high}
    return complete_column(column, facts)


def _codes(column: Open) -> int:
    if column.may_need_delta:
        return VALUES
    stated = column.field.get("understudy", {}).get("bins")
    if isinstance(stated, int):
        return stated
    return BINS if "bins" in column.discovers else UNCUT
