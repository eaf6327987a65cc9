"""Schemas of which something is still to be bought: what is taken for it when nothing may be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from understudy.discovery.discover import complete_column
from understudy.schema import Schema
from understudy.schema.open import Open, trial_facts

BINS, VALUES, UNCUT = 32, 16, 100
"""How many bins, and how many values, a column is taken to turn out with; bounds alone are bought for `UNCUT` bins."""

SHARE = 0.1
"""The part of the budget that buys, as `synthesize` has it unless told."""

_BOUNDS: dict[str, tuple[Any, Any]] = {
    "date": ("2000-01-01", "2019-12-31"),
    "datetime": ("2000-01-01T00:00:00", "2019-12-31T00:00:00"),
    "duration": ("0", "1000000"),
}


def assumed(schema: Schema) -> tuple[Schema, tuple[str, ...]]:
    """The schema with plausible facts for everything that is still to be bought, and these in words.

    **Privacy.** Reads the declaration alone.

    Returns:
        The schema itself and no words where it declares everything.
    """
    if not schema.open:
        return schema, ()
    columns = tuple(_filled(column) if isinstance(column, Open) else column for column in schema.columns)
    alike: dict[str, list[str]] = {}
    for column in schema.open:
        alike.setdefault(f"{_codes(column)} {'values' if _listed(column) else 'bins'}", []).append(column.name)
    words = [f"{', '.join(names)}: {count}" for count, names in alike.items()]
    return replace(schema, columns=columns), (*words, f"a tenth of the budget buys these facts{_delta(schema)}")


def _filled(column: Open) -> Any:
    field = column.field
    facts = trial_facts(field, _codes(column))
    if "minimum" in facts:
        spikes = [spike for spike in field.get("understudy", {}).get("spikes", ()) if isinstance(spike, int | float)]
        low, high = _BOUNDS.get(str(field.get("type")), (min(0, *spikes, 0), max(1000, *spikes, 0)))
        facts |= {"minimum": low, "maximum": high}
    return complete_column(column, facts)


def _listed(column: Open) -> bool:
    return column.may_need_delta


def _codes(column: Open) -> int:
    if _listed(column):
        return VALUES
    stated = column.field.get("understudy", {}).get("bins")
    if isinstance(stated, int):
        return stated
    return BINS if "bins" in column.discovers else UNCUT


def _delta(schema: Schema) -> str:
    return ", and a tenth of delta is set aside" if any(column.may_need_delta for column in schema.open) else ""
