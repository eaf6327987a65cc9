"""Linked tables: one mechanism for flat tables, run on each of their virtual tables in turn under one budget.

The root's rows are fitted with the numbers of their children; then, from parents to children, the first child given its
ancestors (`first`) and every further child given its ancestors, the first and the previous sibling (`next`). See
`schema/linked.py` for the virtual tables and docs/decisions/linked.md for the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.mechanism.base import Footprint, Mechanism
from understudy.model.fit import Fit
from understudy.progress import Progress, Step, silent
from understudy.schema.linked import LinkedSchema, VirtualTable

ROOT_SHARE = 0.15
"""The share of the budget for the root."""

FIRST_SHARE = 1 / 3
"""The share of a child table's budget for its first rows; the rest is for further ones."""


def divide_budget(schema: LinkedSchema) -> dict[str, float]:
    """Return the share of each virtual table: 15 % for the root, the rest by the number of columns of each table."""
    own = {name: len(schema.own_parts(name)) for name in schema.links}
    shares = {schema.root: ROOT_SHARE if own else 1.0}
    for name, link in schema.links.items():
        share = (1 - ROOT_SHARE) * own[name] / sum(own.values())
        shares[f"first({name})"] = share if link.max_children == 1 else FIRST_SHARE * share
        if link.max_children > 1:
            shares[f"next({name})"] = (1 - FIRST_SHARE) * share
    return shares


class LinkedMechanism:
    """A mechanism for linked tables, made of one for flat tables.

    Args:
        inner: the mechanism for each virtual table. If it has a workload, the default one is replaced by the pairs and
            triples that drawing children needs.

    **Privacy.** Reads rows only through the gate: every virtual table is a view with the same account, and the shares
    add up to `rho`.
    """

    def __init__(self, inner: Mechanism) -> None:
        self.inner, self.name = inner, inner.name

    def for_table(self, virtual: VirtualTable) -> Mechanism:
        """Return the mechanism for one virtual table."""
        inner, names = self.inner, {one.name for one in fields(self.inner)}  # type: ignore[arg-type]
        if kept := inner.settings().get("keep"):
            kept = tuple(one for one in kept if _is_drawn_in(virtual, one[0]))
            inner = replace(inner, keep=kept)  # type: ignore[type-var]
        if virtual.kind == "root" or "workload" not in names:
            return inner
        linking = [*virtual.list_columns("first"), *virtual.list_columns("prev")]
        parts = [virtual.list_columns("own"), linking, _list_chains(virtual), _list_alike(virtual)]
        text = f"conditional:{json.dumps(parts)}"
        return replace(inner, workload=text)  # type: ignore[type-var]

    def fit(
        self,
        open_view: Callable[[VirtualTable], PrivateTable],
        schema: LinkedSchema,
        *,
        rho: float,
        progress: Progress = silent,
    ) -> dict[str, Fit]:
        """Fit every virtual table, the root first.

        Args:
            open_view: returns the gate's view of a virtual table.
            schema: the linked tables.
            rho: the share of the budget that may be spent.
            progress: called with each step.
        """
        found: dict[str, Fit] = {}
        for name, share in divide_budget(schema).items():
            virtual = schema.virtual_tables[name]
            report = _report_as(name, progress)
            found[name] = self.for_table(virtual).fit(open_view(virtual), rho=share * rho, progress=report)
        return found

    def footprint(self, schema: LinkedSchema) -> Footprint:
        """Return the memory of the largest fit, and the disk space of all."""
        each = [self.for_table(one).footprint(one.schema.domain) for one in schema.virtual_tables.values()]
        return Footprint(max(one.memory_bytes for one in each), sum(one.disk_bytes for one in each))

    def settings(self) -> dict[str, Any]:
        """Return the settings of the inner mechanism."""
        return self.inner.settings()


def check_inner(inner: Mechanism, schema: LinkedSchema | None = None) -> None:
    """Refuse mechanisms whose model cannot be drawn from given columns, and settings that no virtual table can have.

    Args:
        inner: the mechanism for each virtual table.
        schema: the linked tables; without one, cliques to keep are not checked. While columns are open they are not.

    Raises:
        SettingError: naming what is possible.
    """
    if inner.name not in ("aim", "mst", "adaptive", "independent") or inner.generator not in ("pgm", "product"):
        raise SettingError(
            f"mechanism {inner.name!r}: linked tables need a graphical model; choose aim, mst, adaptive or independent "
            "with the generator pgm"
        )
    default = {one.name: one.default for one in fields(inner)}  # type: ignore[arg-type]
    if inner.settings().get("workload") != default.get("workload"):
        raise SettingError(
            "workload: for linked tables it is made of the pairs and triples that drawing children needs; leave it out"
        )
    if schema is None or schema.open:
        return
    for clique, _ in inner.settings().get("keep") or ():
        if not any(_is_drawn_in(one, clique) for one in schema.virtual_tables.values()):
            raise SettingError(
                f"keep: {', '.join(clique)} are not columns of one table and the tables above it; name them as in "
                f"{', '.join(list(schema.virtual_tables[schema.root].schema.domain)[:2])}"
            )


def _is_drawn_in(virtual: VirtualTable, clique: Clique) -> bool:
    """Return whether a virtual table has these columns, and draws one of them."""
    return set(clique) <= set(virtual.schema.domain) and not set(clique).isdisjoint(virtual.list_columns("own"))


def _list_chains(virtual: VirtualTable) -> list[list[str]]:
    """List each drawn column with its value in the previous and the first sibling, and the sibling's number."""
    by_role = {(one.role, one.part): one.name for one in virtual.columns if one.table == virtual.table}
    chains = [
        [by_role.get((role, part)) for role in ("own", "prev", "first")] + [by_role.get(("context", "#"))]
        for role, part in by_role
        if role == "prev"
    ]
    return [[name for name in chain if name is not None] for chain in chains]


def _list_alike(virtual: VirtualTable) -> list[list[str]]:
    """List pairs of a column of the previous sibling that keeps the codes of the drawn column, and that column."""
    own = {one.part: one.name for one in virtual.columns if one.role == "own" and not one.gap}
    previous = [one for one in virtual.columns if one.role == "prev" and one.groups is None]
    return [[one.name, own[one.part]] for one in previous if one.part in own]


def _report_as(name: str, progress: Progress) -> Progress:
    def report(step: Step) -> None:
        progress(replace(step, detail=f"{name}: {step.detail}"))

    return report
