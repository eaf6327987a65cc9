"""Linked tables in a run: the gate's views of their virtual tables, and what the receipt says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from understudy.accounting import Budget, Charge, Neighbours
from understudy.accounting.exact import float_below
from understudy.discovery.discover import EmptySource
from understudy.gate import PrivateTable
from understudy.mechanism.linked import LinkedMechanism
from understudy.model.fit import Fit
from understudy.progress import Progress, Step
from understudy.run.record import CannotContinue, Recorder
from understudy.schema.linked import LinkedSchema, VirtualTable
from understudy.source import Source
from understudy.source.linked import LinkedTables


def linked_neighbours(schema: LinkedSchema) -> Neighbours:
    """Return who is protected: a unit with all of its rows in all tables."""
    return Neighbours(schema.keys[schema.root], 1, schema.rows is not None, tuple(schema.most_rows.items()))


def linked_facts(schema: LinkedSchema) -> dict[str, str]:
    """Return the origin of each column's facts, and the assumptions about keys."""
    found: dict[str, str] = {
        f"{name}.{column.name}": column.origin for name, one in schema.tables.items() for column in one.columns
    }
    return found | dict.fromkeys(schema.assumptions, "assumed")


def fit_linked(
    open_tables: Callable[[], LinkedTables] | None,
    schema: LinkedSchema,
    mechanism: LinkedMechanism,
    budget: Budget,
    *,
    noise: str,
    recorder: Recorder,
    progress: Progress,
) -> tuple[dict[str, Fit], Sequence[Charge]]:
    """Fit all virtual tables through one account; returns the fits and every charge.

    Raises:
        CannotContinue: if answers are missing and the tables are gone.
    """
    progress(Step("read", None, "the tables"))
    tables = None if open_tables is None else open_tables()
    root = schema.virtual_tables[schema.root]

    def source(virtual: VirtualTable) -> Source:
        return EmptySource(virtual.schema, coded=True) if tables is None else tables.source(virtual)

    base = PrivateTable(source(root), budget, noise=noise, recorder=recorder)

    def view(virtual: VirtualTable) -> PrivateTable:
        return base.with_source(source(virtual), table=virtual.name)

    try:
        fits = mechanism.fit(view, schema, rho=float_below(base.account.remaining), progress=progress)
    except CannotContinue as reason:
        base.account.pay(recorder.recall_rest())
        fits = finish_linked(schema, mechanism, recorder, str(reason), progress)
    base.account.pay(recorder.recall_rest())
    return fits, base.account.charges


def finish_linked(
    schema: LinkedSchema, mechanism: LinkedMechanism, recorder: Recorder, reason: str, progress: Progress
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
