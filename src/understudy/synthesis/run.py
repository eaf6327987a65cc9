"""A run beside its mechanism: what is public about it before a row is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from os import PathLike
from typing import Any, TypeVar, cast

from understudy.accounting import Budget, Receipt
from understudy.accounting.calibrate import can_plan, certified_plan
from understudy.accounting.charge import Charge
from understudy.accounting.neighbours import Neighbours
from understudy.arguments import as_whole
from understudy.discovery.discover import narrowest_schema
from understudy.domain import Clique
from understudy.errors import SettingError
from understudy.gate.randomness import is_insecure
from understudy.mechanism import Mechanism, mechanism_named
from understudy.release.artefact import Frame
from understudy.schema import Schema, frame_kind
from understudy.source.open import StoredTable
from understudy.synthesis.preflight import (
    check_noise,
    check_rules,
    find_compiler_cache,
    roomy_memory,
)
from understudy.synthesis.rating import Rating
from understudy.synthesis.same_table import refuse_same_table
from understudy.workload import told_workload

T = TypeVar("T")


class Run:
    """Everything about a run that is known before a row is read: all of it public."""

    rehearsal = False
    """Whether its rows are made from the schema alone: it is then marked everywhere, and the book never hears of it."""

    def __init__(
        self,
        schema: Schema,
        budget: Budget,
        mechanism: Mechanism,
        noise: str,
        rows: int | None,
        frame: Frame,
        discovery_share: float = 0.1,
        rating: Rating | None = None,
    ) -> None:
        self.discovery_share = discovery_share
        self.schema, self.mechanism, self.noise, self.rows, self.frame = schema, mechanism, noise, rows, frame
        unit = schema.privacy_unit
        self.neighbours = Neighbours(unit.column, unit.max_rows, schema.rows is not None)
        self.rating = rating
        # a plan fixes all measurements in advance: a question about their result is none of them
        self.plan, self.budget = (None, budget) if rating else _planned(mechanism, schema, budget, self.neighbours)
        self.insecure = is_insecure()
        self.rules_bytes = check_rules(narrowest_schema(schema))

    def look(self) -> bool:
        """Whether any noise so far was seeded: once in test mode, always marked."""
        self.insecure = self.insecure or is_insecure()
        return self.insecure

    def fits(self, schema: Schema) -> bool:
        """Whether the mechanism has room for a schema that was bought.

        **Privacy.** The schema that is chosen by this is released: room is what the machine has, not what is free.
        """
        try:
            needed = self.mechanism.footprint(schema.domain).memory_bytes
            if self.rating is not None:
                self.rating.tables(schema.domain)
        except SettingError:
            return False
        return needed <= roomy_memory()

    def complete(self, schema: Schema) -> None:
        """Go on with the schema that was bought."""
        self.schema = schema

    def receipt(self, charges: Sequence[Charge]) -> Receipt:
        """The receipt once these charges were paid."""
        facts: dict[str, str] = {column.name: column.origin for column in self.schema.columns}
        if name := getattr(self.mechanism, "public_name", None):
            facts[f"the table {name}"] = "declared public by the custodian"
        return Receipt(self.budget, tuple(charges), self.neighbours, facts, self.noise, self.look(), self.rehearsal)

    def label(self) -> dict[str, Any]:
        """What a release says about how it was made."""
        settings = told_settings(_settings(self.mechanism))
        return {"mechanism": self.mechanism.name, "settings": settings, "rows": self.rows, "frame": self.frame}

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which an interrupted run can be finished."""
        rating = {} if self.rating is None else {"rating": told_settings(asdict(self.rating))}
        return {"schema": self.schema.to_dict(), "receipt": self.receipt(()).to_dict(), **self.label(), **rating}


def prepared(
    data: Any,
    schema: Schema | str | PathLike[str],
    budget: Budget,
    mechanism: str | Mechanism,
    settings: Mapping[str, Any],
    noise: str,
    rows: int | None,
    discovery_share: float = 0.1,
    rating: Rating | None = None,
) -> Run:
    """Everything that can be checked before the table is opened; the arguments are those of `synthesize`.

    Raises:
        InputError: naming what cannot be used. Nothing was spent.
    """
    schema = schema if isinstance(schema, Schema) else Schema.load(schema)
    schema.require_reviewed()
    if not narrowest_schema(schema).domain:
        raise SettingError("the schema has no column to synthesise; declare at least one")
    rows = None if rows is None else as_whole("rows", rows, least=1)
    _check_kinds(mechanism)
    check_noise(noise)
    find_compiler_cache()
    chosen = mechanism_named(mechanism, **settings)
    if not budget.purchase_delta and (words := [column for column in schema.open if column.may_need_delta]):
        raise SettingError(f"column {words[0].name!r}: its values take a part of delta; set some of it aside")
    given = getattr(chosen, "public", None)
    if given is not None and schema.open:
        raise SettingError(
            f"public: a public table needs a declared schema; column {schema.open[0].name!r} is still to be bought"
        )
    if given is not None:
        refuse_same_table(given, data)
    if hasattr(chosen, "prepared"):
        chosen = chosen.prepared(schema)  # what it learns from public sources; it keeps no rows of them
    _settings(chosen)
    if budget.pure and not chosen.pure:
        raise SettingError(
            f"{chosen.name} needs Gaussian noise: give a delta above 0 (pure DP is not possible with it)"
        )
    if rating is not None:
        rating = replace(rating, workload=rating.workload or getattr(chosen, "workload", None) or "all-2way")
        rating.tables(narrowest_schema(schema).domain)
        if schema.open and discovery_share + rating.share >= 1:
            raise SettingError("quality and discovery_share leave nothing for the mechanism; give one of them less")
    return Run(schema, budget, chosen, noise, rows, _frame_kind(data), discovery_share, rating)


def _check_kinds(mechanism: Any) -> None:
    if not isinstance(mechanism, str) and (isinstance(mechanism, type) or not hasattr(mechanism, "fit")):
        raise SettingError('mechanism: give a name such as "mst" (`understudy mechanisms` lists them), or a mechanism')


def _planned(
    mechanism: Mechanism, schema: Schema, budget: Budget, neighbours: Neighbours
) -> tuple[dict[Clique, float] | None, Budget]:
    """The sigmas of a run whose measurements are fixed in advance, and its budget certified by their exact curve."""
    plan = getattr(mechanism, "plan", None)
    if plan is None or schema.open or not can_plan(budget, neighbours):
        return None, budget
    weights = plan(schema.domain)
    return certified_plan(weights, budget, neighbours) if weights else (None, budget)


def _settings(mechanism: Mechanism) -> dict[str, Any]:
    """The settings as a release tells them: plain data in the form that its file gives back, so lists for tuples."""
    settings: dict[str, Any] = asdict(cast(Any, mechanism)) if is_dataclass(mechanism) else {}
    try:
        return dict(json.loads(json.dumps(settings, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        raise SettingError(
            f"the settings of {mechanism.name} must be plain values: numbers, words, lists of them"
        ) from None


def told_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as everyone may read them.

    >>> told_settings({"workload": "survey/of_ann/w.yaml", "max_mib": 80})
    {'workload': 'w.yaml', 'max_mib': 80}
    """
    named = settings.get("workload")
    return dict(settings) | ({"workload": told_workload(named)} if isinstance(named, str) else {})


def _frame_kind(data: Any) -> Frame:
    return "spark" if isinstance(data, StoredTable) and data.kind == "spark" else frame_kind(data)
