"""Discover what the schema does not declare: types, bounds, bins and values, each a charged call on the gate.

**Privacy.** Rows are read only by `PrivateTable.tally` and `PrivateTable.values`, which charge first. Which cells are
counted next, and how answers are used, depends on earlier answers and declared facts only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understudy.accounting.budget import Budget
from understudy.accounting.charge import What
from understudy.discovery.search import Search
from understudy.domain import Clique, CodeGroups, Domain
from understudy.errors import BudgetExceeded, SchemaError, SettingError
from understudy.gate.table import PrivateTable
from understudy.measurement import Measurement
from understudy.progress import Progress, Step, silent
from understudy.schema import Column, Dialect, Schema
from understudy.schema.file import OURS, FieldError, fill_field, parse_field
from understudy.schema.linked import LinkedSchema
from understudy.schema.open import MOST_DECIMALS, TYPES, Open, Shape, Words, trial_facts
from understudy.schema.text import EXACT, parse_exact_numbers
from understudy.source.open import Opener
from understudy.source.protocol import CountsValues
from understudy.tabulate import Counts

MOST_CODES = (1000, 300, 100, 32)
"""The largest number of codes of a discovered column: the first of these that fits in memory."""

DELTA_SHARE = 0.1
"""The part of delta that is set aside if values are discovered."""

_WEIGHT: Mapping[What, Fraction] = {
    "type": Fraction(1, 4),
    "bounds": Fraction(1, 3),
    "bins": Fraction(1, 3),
    "values": Fraction(1),
}


def discovery_budget(
    schema: Schema | LinkedSchema, share: float, *, epsilon: float | None, delta: float | None, rho: float | None
) -> Budget:
    """Return the budget of a run, with a part of delta set aside if values have to be discovered.

    Raises:
        SettingError: for a share that is not between 0 and 1, or for values without a delta. Nothing was spent.
    """
    if not isinstance(share, int | float) or not 0 < share < 1:
        raise SettingError("discovery_share must lie between 0 and 1, such as 0.1")
    words = [column.name for column in schema.open if column.may_need_delta]
    if not words:
        return Budget.of(epsilon=epsilon, delta=delta, rho=rho)
    if not delta:
        raise SettingError(
            f"column {words[0]!r}: discovering its values takes a delta above 0 (pure DP and rho alone have none); "
            "give a delta, or declare the column's type and `categories`"
        )
    return Budget.of(epsilon=epsilon, delta=delta, rho=rho, discovery_delta=float(delta) * DELTA_SHARE)


def narrowest_schema(schema: Schema) -> Schema:
    """Return the schema with the fewest codes that discovery may give: what is checked before anything is spent."""
    return replace(schema, columns=tuple(map(_trial_column, schema.columns))) if schema.open else schema


def _trial_column(column: Column) -> Column:
    if not isinstance(column, Open):
        return column
    return parse_field(fill_field(column.field, **trial_facts(column.field, MOST_CODES[-1])), 0)


class EmptySource:
    """A source without rows, which has the columns and the privacy unit of a schema and counts nothing.

    Args:
        schema: the schema.
        coded: whether the schema's coding is complete; before discovery there is none.
    """

    def __init__(self, schema: Schema, *, coded: bool = False) -> None:
        self.domain = schema.domain if coded else Domain({})
        self.code_groups = schema.code_groups if coded else CodeGroups()
        self.unit, self.rows_public = schema.privacy_unit, schema.rows
        self.rows_used = schema.rows_used if coded else None

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Count nothing."""
        return iter(())

    def codes(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        """Yield no rows."""
        return iter(())


@dataclass
class Discovery:
    """The discoveries of one run.

    Args:
        table: the gate over some coding of the rows; its account is charged.
        opener: opens the same rows under other schemas.
        schema: what is declared, with open columns.
        rho: the total budget of all discoveries, in the account's currency.
        progress: called at each step.
        part: the part of the delta that is left for discovery that may be used.
    """

    table: PrivateTable
    opener: Opener
    schema: Schema
    rho: Fraction
    progress: Progress = silent
    part: Fraction = Fraction(1)
    _facts: dict[str, Callable[[int], dict[str, Any]]] = field(default_factory=dict)

    def discover(self, fits: Callable[[Schema], bool]) -> Schema:
        """Discover everything that is open, and return the complete schema.

        Args:
            fits: whether a run with this schema fits in memory; with `narrowest_schema(schema)` it must.

        Raises:
            BudgetExceeded: before a row is read for it.
        """
        self._set_price()
        columns = self._discover_types()
        still_open = [column for column in columns if isinstance(column, Open)]
        self._discover_bounds([column for column in still_open if "values" not in column.discovers])
        self._discover_values([column for column in still_open if "values" in column.discovers])
        schemas = (self._complete(columns, most) for most in MOST_CODES)
        chosen = next(schemas)
        while not fits(chosen) and (smaller := next(schemas, None)) is not None:
            chosen = smaller
        return chosen

    def _set_price(self) -> None:
        """Set the price of one unit of weight.

        A column of unknown type has the weight of its most expensive outcome.
        """
        self._price = self.rho / total_weight(self.schema.open)
        account = self.table.account
        self._before = account.spent
        self._delta = account.budget.discovery_delta - sum((charge.delta for charge in account.charges), Fraction(0))
        self._delta *= self.part
        words = [column for column in self.schema.open if column.may_need_delta]
        if self._delta <= 0 and words:
            raise BudgetExceeded("nothing is left of the delta set aside for discovery; nothing was read")
        if words and not isinstance(self.opener(self._make_coding_schema([_make_words(words[0])])), CountsValues):
            raise SettingError(
                f"column {words[0].name!r}: values cannot be discovered in this kind of table yet; declare its type "
                "and `categories`. Nothing was spent"
            )

    # -- types -----------------------------------------------------------------------------------------------------

    def _discover_types(self) -> tuple[Column, ...]:
        """Return the columns with their types discovered; these are still open for bounds and bins, or for values."""
        unknown = [column for column in self.schema.open if "type" in column.discovers]
        if not unknown:
            return self.schema.columns
        answers = self._tally([_make_shape(column) for column in unknown], "type", _WEIGHT["type"])
        return tuple(_open_for_type(column, answers.get(column.name)) for column in self.schema.columns)

    # -- bounds and bins -------------------------------------------------------------------------------------------

    def _discover_bounds(self, columns: Sequence[Open]) -> None:
        searches = {column.name: Search(column) for column in columns}
        active = {name: search for name, search in searches.items() if search.rounds}
        turn = 0
        while active:
            probes = {name: search.probe() for name, search in active.items()}
            what: dict[str, What] = {
                name: "bounds"
                if "bins" not in search.column.discovers or ("bounds" in search.column.discovers and not turn)
                else "bins"
                for name, search in active.items()
            }
            shares = {name: _weight(search.column) / search.rounds * self._price for name, search in active.items()}
            answers = self._count(list(probes.values()), shares, what)
            turn += 1
            more = {name: search.learn(probes[name], answers[name]) for name, search in active.items()}
            active = {name: search for name, search in active.items() if more[name] and turn < search.rounds}
        self._facts |= {name: search.result for name, search in searches.items()}

    # -- values ----------------------------------------------------------------------------------------------------

    def _discover_values(self, columns: Sequence[Open]) -> None:
        if not columns:
            return
        table = self.table.with_source(
            self.opener(self._make_coding_schema([_make_words(column) for column in columns]))
        )
        left = self.rho - (self.table.account.spent - self._before)  # including what searches did not use
        for column in columns:
            self.progress(Step("discover", None, f"the values of {column.name}"))
            found = table.values(column.name, rho=left / len(columns), delta=self._delta / len(columns))
            self._facts[column.name] = partial(_choose_categories, found, column, self.schema.dialect)

    # -- the gate --------------------------------------------------------------------------------------------------

    def _tally(self, columns: Sequence[Column], what: What, weight: Fraction) -> dict[str, Measurement]:
        names = [column.name for column in columns]
        return self._count(columns, dict.fromkeys(names, weight * self._price), dict.fromkeys(names, what))

    def _count(
        self, columns: Sequence[Column], shares: Mapping[str, Fraction], what: Mapping[str, What]
    ) -> dict[str, Measurement]:
        self.progress(Step("discover", None, ", ".join(sorted({f"the {one}" for one in what.values()}))))
        return self.table.with_source(self.opener(self._make_coding_schema(columns))).tally(shares, what=what)

    def _make_coding_schema(self, columns: Sequence[Column]) -> Schema:
        return replace(self.schema, columns=tuple(columns), rules=())

    def _complete(self, columns: Sequence[Column], most: int) -> Schema:
        completed = (complete_column(c, self._facts[c.name](most)) if isinstance(c, Open) else c for c in columns)
        return replace(self.schema, columns=tuple(completed))


def complete_column(column: Open, facts: Mapping[str, Any]) -> Column:
    """Return the column with the discovered facts. Never fails: facts that contradict the declared ones are dropped."""
    for attempt in (
        dict(facts),
        {k: v for k, v in facts.items() if k != "bins"},
        trial_facts(column.field, MOST_CODES[-1]),
    ):
        try:
            return parse_field(fill_field(column.field, **attempt), 0)
        except (FieldError, SchemaError):
            continue
    raise SchemaError(f"column {column.name!r}: its declaration contradicts everything discovered; correct it")


def total_weight(columns: Iterable[Open]) -> Fraction:
    """Return the weight of columns: discoveries share their budget by it."""
    return sum(map(_weight, columns), Fraction(0))


def _weight(column: Open) -> Fraction:
    if "type" in column.discovers:
        return _WEIGHT["type"] + max(_WEIGHT["values"], _WEIGHT["bounds"] + _WEIGHT["bins"])
    return sum((_WEIGHT[what] for what in column.discovers), Fraction(0))


def _make_shape(column: Open) -> Shape:
    return Shape(name=column.name, missing=_list_missing_tokens(column))


def _list_missing_tokens(column: Open) -> dict[str, str | None]:
    return {str(token): reason for token, reason in column.field.get(OURS, {}).get("missing", {}).items()}


def _open_for_type(column: Column, answer: Measurement | None) -> Column:
    """Return a column of unknown type after its types were counted: open for what that type needs."""
    if answer is None or not isinstance(column, Open):
        return column
    return parse_field(fill_field(column.field, **_choose_type(answer)), 0)


def _choose_type(answer: Measurement) -> dict[str, Any]:
    """Return the narrowest type of nine tenths of the cells, as keys of a field; one tenth may be odd.

    Odd cells follow `on_unknown`. Numbers have as many decimals as all but a fiftieth of them need.
    """
    counts = np.maximum(answer.values[: len(TYPES) + MOST_DECIMALS].astype(np.float64), 0.0)
    whole, many, day, moment, _ = counts[: len(TYPES)].tolist()
    noise, most = 3 * float(answer.sigma), 0.9 * counts.sum()
    finer = [*np.cumsum(counts[: len(TYPES) - 1 : -1])[::-1] + many, many]  # cells of more than 0, 1, ... decimals
    numbers, times = whole + float(finer[0]), day + moment
    needs = {"bounds": "discover", "bins": "discover"}
    if numbers >= most and numbers > noise:
        places = next((d for d, cells in enumerate(finer) if cells <= max(noise, 0.02 * numbers)), None)
        if places == 0:
            return {"type": "integer"} | needs
        return {"type": "number"} | needs | ({} if places is None else {"decimals": places})
    if times >= most and times > noise:
        return {"type": "date" if moment <= max(noise, 0.02 * times) else "datetime"} | needs
    return {"type": "string", "values": "discover"}


def _make_words(column: Open) -> Words:
    return Words(
        name=column.name, tokens=tuple(_list_missing_tokens(column)), numeric=_declared_type(column) != "string"
    )


def _declared_type(column: Open) -> str:
    return str(column.field.get(OURS, {}).get("kind", column.field.get("type", "string")))


def _choose_categories(found: Mapping[str, int], column: Open, dialect: Dialect, most: int) -> dict[str, Any]:
    """Return the values to declare: the most common ones, sorted; a single placeholder if there is none."""
    ours, kind = column.field.get(OURS, {}), _declared_type(column)
    if kind == "string":
        values: Mapping[Any, int] = found
    else:
        values = {}
        written = parse_exact_numbers(pa.array(list(found), pa.string()), dialect.decimal, dialect.group)
        for number, count in zip(written, found.values(), strict=True):
            if (value := _to_value(number, kind)) is not None:
                values[value] = values.get(value, 0) + count
    common = sorted(values, key=lambda value: (-values[value], value))[:most]
    if not common:
        common = [str(ours.get("other", "other"))] if kind == "string" else [0]
    return {"categories": sorted(common)}


def _to_value(number: int | float, kind: str) -> int | float | None:
    most = (1 << 63) - 1 if kind == "integer" and isinstance(number, int) else EXACT
    if not abs(number) <= most or (kind == "integer" and number != int(number)):  # "not": NaN compares false
        return None
    return int(number) if number == int(number) else number
