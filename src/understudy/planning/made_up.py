"""Make up rows from a schema alone, for plans and rehearsals. They describe no real people.

The constants from `EVENNESS` to `SHARED` start from statistics of two real tables, Adult and Fire: the entropies of
columns by their number of codes, the shares of rare codes, the distances of pairs from independence. Among values that
agree with these statistics, those were chosen with which plans of `mst`, `nist-mst`, `gaussian` and `adaptive` come
closest to real runs on Adult and Fire, and plans of `mst` on the stroke trial stay within a half: benchmarks/plan.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import repeat
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.discovery.discover import complete_column
from understudy.domain import NO_GROUPS, Clique, CodeGroups, Domain
from understudy.errors import SettingError
from understudy.schema import PrivacyUnit, Schema
from understudy.schema.linked import LinkedSchema
from understudy.schema.open import Open, trial_facts
from understudy.tabulate import Counts, SparseCounts, marginals

Codes = dict[str, NDArray[np.uint32]]

_NORMAL = NormalDist()

EVENNESS, EVENEST = 3.8, 0.92
"""The evenness of columns: the entropy of a column at quantile u is EVENEST (1 - (1 - u)^k) of the largest possible,
with k = EVENNESS / codes^0.2: columns of many codes are less even. The mean is 0.71 for 2 codes, 0.58 for 50."""

SPREAD = 2.5
"""The skew of a column: shares are exponential variables raised to a power of at most SPREAD. In a column that
is less even than that, one code dominates, and the others still occur."""

TIES = 2.8
"""The dependence of a column on earlier ones: at quantile u, the correlation is 1 - (1 - u)^TIES."""

VARIED = ((1.0, 3.0), (0.6, 1.0), (1.6, 0.5))
"""Factors of `EVENNESS` and `TIES` of further tables, which a mechanism is tried on if its errors depend much on them.
The mean entropy of their columns (0.53 to 0.72 of the largest possible) and the mean distance of the pairs of their
best tree from independence (0.4 to 0.8) lie within what real tables show: benchmarks/plan.md."""

FOLLOWED, SHARED = 3, 4
"""A column depends on FOLLOWED earlier columns: equally if its correlation is at most 1 - 1 / SHARED, mostly on the
first if it is larger."""

_EVEN_TIE = 0.5
_QUANTILES = 1 << 14
_STEPS = (0.7548776662466927, 0.5698402909980532)  # Roberts' R2, an evenly spread sequence of points in a square


def made_up_codes(
    rng: np.random.Generator,
    sizes: Mapping[str, int],
    rows: int,
    *,
    axes: Mapping[str, int] | None = None,
    unknown: Collection[str] = (),
    even: bool = False,
    varied: tuple[float, float] = (1.0, 1.0),
) -> Codes:
    """Make up rows as codes by column; the same generator state gives the same rows.

    Each column is a normal variable that is cut into codes. In a random order, each follows the codes of some earlier
    columns, drawn at random: its variable is correlated with a sum of variables that lie in the intervals of these
    codes. Some columns follow a single one closely; most follow several loosely, so that no tree of pairs explains
    everything. Evenness and correlation are spread evenly over their quantiles, and over columns of few and of many
    codes, so that made-up tables of one schema differ little in this.

    Args:
        rng: for everything that is drawn.
        sizes: the columns and their numbers of codes.
        rows: how many.
        axes: by column of numbers or times, how many first codes lie in order on an axis: their shares rise to a random
            place and fall from there.
        unknown: columns whose last code is that of cells without a declared meaning, which do not occur.
        even: make all codes about equally frequent, and let all columns follow others alike.
        varied: factors of `EVENNESS` and `TIES`.
    """
    names = list(sizes)
    powers = varied[0] * EVENNESS * np.array(list(sizes.values())) ** -0.2
    evenness = EVENEST * (1 - (1 - _quantiles(rng, sizes, _STEPS[0])) ** powers)
    ties = 1 - (1 - _quantiles(rng, sizes, _STEPS[1])) ** (varied[1] * TIES)
    if even:
        evenness, ties = np.ones(len(names)), np.full(len(names), _EVEN_TIE)
    made: dict[int, NDArray[np.uint32]] = {}
    for place in rng.permutation(len(names)):
        variable = rng.standard_normal(rows, dtype=np.float32)
        if made:
            tie = np.float32(ties[place])
            first, *others = rng.permutation(list(made))[:FOLLOWED]
            followed = _redraw(rng, made[first])
            for other in others:
                followed += min(np.float32(1), SHARED * (1 - tie)) * _redraw(rng, made[other])
            variable = tie * _standardise(followed) + np.sqrt(1 - tie**2) * variable
        name = names[place]
        shares = _draw_shares(rng, sizes[name] - (name in unknown), evenness[place])
        if axes and name in axes:
            shares = _sort_along(rng, shares, axes[name])
        made[place] = np.searchsorted(_cuts(shares), variable).astype(np.uint32)
    return {name: made[place] for place, name in enumerate(names)}


def _redraw(rng: np.random.Generator, codes: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Draw a normal variable for each row, within the interval that its code stands for."""
    ends = np.concatenate([[0], np.cumsum(np.bincount(codes))]).astype(np.float32) / len(codes)
    widths = np.diff(ends)
    part = ends[codes] + widths[codes] * rng.random(len(codes), dtype=np.float32)
    return _normal_quantiles()[(part * (_QUANTILES - 1)).astype(np.int32)]


@lru_cache(maxsize=1)
def _normal_quantiles() -> NDArray[np.float32]:
    """Return quantiles of the standard normal distribution, evenly spaced in probability."""
    parts = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    return np.array([_NORMAL.inv_cdf(part) for part in parts], dtype=np.float32)


def _standardise(variable: NDArray[np.float32]) -> NDArray[np.float32]:
    standard: NDArray[np.float32] = (variable - variable.mean()) / max(variable.std(), np.float32(1e-6))
    return standard


def _quantiles(rng: np.random.Generator, sizes: Mapping[str, int], step: float) -> NDArray[np.float64]:
    """Return evenly spaced quantiles, one for each column, distributed evenly over small and large columns."""
    by_size = np.argsort(np.argsort(list(sizes.values()), kind="stable"))
    jumps = (rng.random() + by_size * step) % 1
    spread: NDArray[np.float64] = (np.argsort(np.argsort(jumps)) + 0.5) / len(sizes)
    return spread


def _draw_shares(rng: np.random.Generator, size: int, evenness: float) -> NDArray[np.float64]:
    """Draw shares of codes whose entropy is this part of the largest possible one."""
    logs = np.log(rng.exponential(size=size))
    logs -= logs.max()

    def shares(unevenness: float) -> NDArray[np.float64]:
        """Return shares: from 0 to 1 the power grows to `SPREAD`, from 1 to 2 rows move to the largest code."""
        moved = max(unevenness - 1, 0.0)
        found = np.exp(min(unevenness, 1.0) * SPREAD * logs)
        found *= (1 - moved) / found.sum()
        found[logs.argmax()] += moved
        return np.asarray(found, dtype=np.float64)

    low, high = 0.0, 2.0
    for _ in range(30 if size > 1 else 0):
        middle = (low + high) / 2
        found = shares(middle)
        entropy = -float(np.sum(found * np.log(np.maximum(found, 1e-300))))
        low, high = (middle, high) if entropy > evenness * math.log(size) else (low, middle)
    return shares(low)


def _sort_along(rng: np.random.Generator, shares: NDArray[np.float64], places: int) -> NDArray[np.float64]:
    """Sort shares so that they decrease from a random peak among the first `places`; the rest follow."""
    place, peak = np.arange(len(shares)), rng.random() * places
    distance = np.where(place < peak, (peak - place) / peak, (place - peak) / (places - peak))
    sorted_shares = np.empty_like(shares)
    sorted_shares[np.argsort(distance, kind="stable")] = np.sort(shares)[::-1]
    return sorted_shares


def _cuts(shares: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the cuts of a standard normal variable whose intervals have these shares."""
    ends = np.clip(np.cumsum(shares)[:-1], 1e-12, 1 - 1e-12)
    return np.array([_NORMAL.inv_cdf(end) for end in ends], dtype=np.float32)


class MadeUpSource:
    """Made-up rows behind the `Source` protocol, so that mechanisms can be tried on them through the gate.

    Args:
        domain: the columns.
        codes: the made-up rows.
        weight: how many rows each made-up row stands for.
        unit: who would be protected.
        rows_public: whether the number of rows is declared public.
        code_groups: hierarchies and axes of the columns.
    """

    def __init__(
        self,
        domain: Domain,
        codes: Codes,
        *,
        weight: int = 1,
        unit: PrivacyUnit | None = None,
        rows_public: bool = False,
        code_groups: CodeGroups = NO_GROUPS,
    ) -> None:
        self.domain, self.code_groups = domain, code_groups
        self.unit = unit or PrivacyUnit()
        self.rows = weight * len(next(iter(codes.values())))
        self.rows_public = self.rows if rows_public else None
        self.rows_used = self.rows_public if self.unit.max_rows == 1 else None
        self._codes, self._weight = codes, weight
        self._known: dict[Clique, Counts] = {}
        self.counted: set[Clique] = set()

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Return exact counts of each clique's cells, in the order requested; they are cached."""
        asked = [self.domain.check(clique) for clique in cliques]
        fresh = [clique for clique in asked if clique not in self._known]
        for clique, table in marginals(self._codes, self.domain, fresh):
            self._known[clique] = _multiply(table, self._weight)
        self.counted.update(asked)
        return iter([(clique, self._known[clique]) for clique in asked])

    def codes(self) -> Iterator[Codes]:
        """Return the made-up rows, repeated by their weight."""
        return repeat(self._codes, self._weight)


def _multiply(table: Counts, weight: int) -> Counts:
    if isinstance(table, SparseCounts):
        return SparseCounts(table.cells, table.counts * weight, table.size)
    return table * weight


BINS, VALUES, UNCUT = 32, 16, 100
"""The assumed number of discovered bins, of discovered values, and of bins if only the bounds are discovered."""

DISCOVERY_SHARE = 0.1
"""The default share of the budget that `synthesize` spends on discovery."""

_BOUNDS: dict[str, tuple[Any, Any]] = {
    "date": ("2000-01-01", "2019-12-31"),
    "datetime": ("2000-01-01T00:00:00", "2019-12-31T00:00:00"),
    "duration": ("0", "1000000"),
}


def assume_facts(schema: Schema) -> tuple[Schema, tuple[str, ...]]:
    """Fill in plausible facts for everything that is left to discovery, and list them.

    **Privacy.** Reads the schema only.

    Returns:
        The completed schema and the assumptions in words; the schema itself and none if it declares everything.
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


REHEARSAL_ROWS, DISCOVERY_ROWS, MOST_ROWS = 1000, 20_000, 100_000
"""Rows of a rehearsal: the default, the default with discovery (which finds nothing in few rows), and the most."""


def rehearsal_rows(schema: Schema, rows: int | None = None, *, seed: int = 0) -> Any:
    """Make an arrow table that fits the schema; the same schema, number and seed give the same rows.

    Columns are dependent, so that mechanisms have something to find, and values are about equally frequent, so that
    most of them occur. Units have one row, two, ... up to the limit. Columns left to discovery are filled as `plan`
    assumes them; the rehearsal then discovers facts from these rows.

    **Privacy.** The rows depend on declared facts and a seed only.

    Args:
        schema: what is public about the columns.
        rows: how many; by default the declared number, else 1000, or 20,000 with discovery.
        seed: for everything that is drawn.

    Raises:
        SettingError: if the number of rows is below 1.
    """
    number = min(rows or schema.rows or (DISCOVERY_ROWS if schema.open else REHEARSAL_ROWS), MOST_ROWS)
    if number < 1:
        raise SettingError("rows must be at least 1")
    schema, _ = assume_facts(schema)
    rng = np.random.default_rng(seed)
    table = schema.decode(made_up_codes(rng, schema.domain, number, even=True), rng)
    return _with_units(table, schema, number)


def rehearsal_tables(schema: LinkedSchema, rows: int | None = None, *, seed: int = 0) -> dict[str, Any]:
    """Make arrow tables that fit a schema of linked tables; the same schema, number and seed give the same rows.

    Parents have no child, one, two, ... up to the cap, in turn; siblings are in no order.

    **Privacy.** The rows depend on declared facts and a seed only.

    Args:
        schema: what is public about the tables.
        rows: how many rows of the root; by default the declared number, else 1000.
        seed: for everything that is drawn.

    Raises:
        SettingError: if the number of rows is below 1.
    """
    import pyarrow as pa

    made: dict[str, Any] = {}
    owners: dict[str, NDArray[np.int64]] = {}
    for number, (name, one) in enumerate(schema.tables.items()):
        link = schema.links.get(name)
        if link is None:
            table = rehearsal_rows(one, rows or schema.rows or REHEARSAL_ROWS, seed=seed)
            parents = owners[name] = np.arange(table.num_rows)
        else:
            above = len(owners[link.parent])
            sizes = np.arange(above) % (min(link.max_children, max(1, MOST_ROWS // max(above, 1))) + 1)
            parents = np.repeat(np.arange(above), sizes)
            owners[name] = owners[link.parent][parents]
            table = rehearsal_rows(one, max(len(parents), 1), seed=seed + number).slice(0, len(parents))
        keys = {} if schema.keys[name] is None else {str(schema.keys[name]): np.arange(table.num_rows)}
        if link is not None:
            keys |= {link.parent_column: parents} | (
                {} if link.unit_column is None else {link.unit_column: owners[name]}
            )
        for column, places in keys.items():
            texts = pa.array([f"{column}-{place}" for place in places.tolist()], pa.string())
            table = table.set_column(table.schema.get_field_index(column), column, texts)
        made[name] = table
    return made


def _with_units(table: Any, schema: Schema, rows: int) -> Any:
    """Add the unit column to the table: units have one row, two rows, and so on in turn."""
    import pyarrow as pa

    unit = schema.privacy_unit
    if unit.column is None:
        return table
    starts = np.concatenate([np.arange(size) == 0 for size in range(1, min(unit.max_rows, 100) + 1)])
    names = pa.array(np.cumsum(np.resize(starts, rows)).astype(str))
    place = table.schema.get_field_index(unit.column)
    return table.append_column(unit.column, names) if place < 0 else table.set_column(place, unit.column, names)
