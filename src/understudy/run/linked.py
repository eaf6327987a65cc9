"""Linked tables in a run: the gate's views of their virtual tables, and what the receipt says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from understudy.accounting import Neighbours
from understudy.accounting.exact import float_below
from understudy.discovery.discover import Discovery, EmptySource, narrowest_schema, total_weight
from understudy.gate import PrivateTable
from understudy.mechanism.linked import LinkedMechanism
from understudy.model.fit import Fit
from understudy.progress import Progress
from understudy.run.record import CannotContinue, RunRecorder
from understudy.schema.linked import LinkedSchema, VirtualTable
from understudy.source.linked import OpenTables
from understudy.source.open import make_opener, open_table


def linked_neighbours(schema: LinkedSchema) -> Neighbours:
    """Return who is protected: a unit with all of its rows in all tables."""
    return Neighbours(schema.keys[schema.root], 1, schema.rows is not None, tuple(schema.most_rows.items()))


def linked_facts(schema: LinkedSchema) -> dict[str, str]:
    """Return the origin of each column's facts, and the assumptions about keys."""
    found: dict[str, str] = {
        f"{name}.{column.name}": column.origin for name, one in schema.tables.items() for column in one.columns
    }
    return found | dict.fromkeys(schema.assumptions, "assumed")


def discover_linked(
    base: PrivateTable,
    tables: OpenTables,
    schema: LinkedSchema,
    rho: Fraction,
    fits: Callable[[LinkedSchema], bool],
    progress: Progress,
) -> LinkedSchema:
    """Return the schema with all facts about columns discovered, table by table.

    **Privacy.** Each table is counted by itself, at most as many rows of a unit as its caps allow: a unit is found by
    the root's key in the table's own rows (docs/proofs/linked.md). All charges go to one account.

    Args:
        base: any view of the gate.
        tables: the tables.
        schema: the schema with open columns.
        rho: the budget of all discoveries, in the account's currency.
        fits: whether a run with this schema fits in memory.
        progress: called with each step.
    """
    found, narrow, whole = dict(schema.tables), narrowest_tables(schema), total_weight(schema.open)
    words = sum(column.may_need_delta for column in schema.open)
    waiting = [name for name, one in schema.tables.items() if one.open]
    for name in waiting:  # a missing column is refused before anything is discovered
        with open_table(tables.each[name]) as data:
            make_opener(data, schema.schema_of(name))(narrowest_schema(schema.schema_of(name)))
    for name in waiting:
        alone = schema.schema_of(name)
        mine = sum(column.may_need_delta for column in alone.open)
        with open_table(tables.each[name]) as data:
            view = base.with_source(EmptySource(alone), table=name)
            price, part = rho * total_weight(alone.open) / whole, Fraction(mine, words or 1)
            discovery = Discovery(view, make_opener(data, alone), alone, price, progress, part)
            columns = discovery.discover(lambda one: fits(narrow.with_tables({name: one}))).columns  # noqa: B023
        words -= mine
        found[name] = replace(schema.tables[name], columns=columns)
        narrow = narrow.with_tables({name: found[name]})
    return schema.with_tables(found)


def narrowest_tables(schema: LinkedSchema) -> LinkedSchema:
    """Return the schema with the fewest codes that discovery may give."""
    return schema.with_tables({name: narrowest_schema(one) for name, one in schema.tables.items() if one.open})


def fit_linked(
    base: PrivateTable,
    tables: OpenTables | None,
    schema: LinkedSchema,
    mechanism: LinkedMechanism,
    *,
    recorder: RunRecorder,
    progress: Progress,
) -> dict[str, Fit]:
    """Fit all virtual tables through one account.

    Raises:
        CannotContinue: if answers are missing and the tables are gone.
    """
    rows = None if tables is None else tables.rows(schema)

    def view(virtual: VirtualTable) -> PrivateTable:
        source = EmptySource(virtual.schema, coded=True) if rows is None else rows.source(virtual)
        return base.with_source(source, table=virtual.name)

    try:
        fits = mechanism.fit(view, schema, rho=float_below(base.account.remaining), progress=progress)
    except CannotContinue as reason:
        base.account.pay(recorder.recall_rest())
        fits = finish_linked(schema, mechanism, recorder, str(reason), progress)
    base.account.pay(recorder.recall_rest())
    return fits


def finish_linked(
    schema: LinkedSchema, mechanism: LinkedMechanism, recorder: RunRecorder, reason: str, progress: Progress
) -> dict[str, Fit]:
    """Fit all virtual tables to recorded answers, at no further cost.

    Raises:
        CannotContinue: if nothing was measured about one of them yet.
    """
    found = {}
    for name, virtual in schema.virtual_tables.items():
        if not recorder.measured.get(name):
            raise CannotContinue(f"{reason}, and nothing was measured about {name} yet")
        found[name] = mechanism.for_table(virtual).finish(
            virtual.schema.domain,
            recorder.measured[name],
            recoding=recorder.recodings[name],
            groups=virtual.schema.code_groups,
            progress=progress,
        )
    return found
