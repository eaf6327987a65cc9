"""What a release tells about its own errors: the evidence that bounds are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from understudy.accounting import Receipt
from understudy.bounds import Evidence, Stage
from understudy.domain import Clique
from understudy.measurement import Measurement
from understudy.workload import Workload
from understudy.yaml_json import is_yaml_or_json

if TYPE_CHECKING:
    from understudy.release.artefact import Release


def evidence_of(release: Release) -> Evidence:
    """The evidence in a release.

    **Privacy.** Post-processing: it reads what was released.
    """
    first = release.rounds[0] if release.rounds else {}
    weights = zip(first.get("cliques", ()), first.get("weights", ()), strict=True)
    cliques: list[tuple[Clique, float]] = [(tuple(clique), float(weight)) for clique, weight in weights]
    return Evidence(
        model=release.model,
        declared=release.schema.domain,
        merged=release.recoding.maps,
        stages=_told(release.measurements, release.rounds) or _paid(release.measurements, release.receipt),
        cliques=cliques,
        rows=release.schema.rows_used,
    )


def asked_about(evidence: Evidence, workload: str | None, own: str | None) -> list[Clique]:
    """The cliques of a workload, or of the mechanism's own; a file's are in the record, wherever the file is now."""
    if workload is None and own is not None and is_yaml_or_json(own):
        measured = [measurement.clique for stage in evidence.stages for measurement in stage.measurements]
        names = [clique for clique, _ in evidence.cliques] or measured
        return [r for r in names if not any(set(r) < set(other) for other in names)]
    return list(Workload.parse(workload or own or "all-2way", evidence.model.domain))


def _told(measurements: Sequence[Measurement], rounds: Sequence[Mapping[str, Any]]) -> list[Stage]:
    """Stages as the mechanism recorded them; none when its record does not cover every measurement."""
    if sum(int(entry.get("measured", 0)) for entry in rounds) != len(measurements) or not rounds:
        return []
    stages, start = [], 0
    for entry in rounds:
        end = start + int(entry["measured"])
        stages.append(Stage(measurements[start:end], float(entry["share"]), entry if "chosen" in entry else None))
        start = end
    return stages if sum(stage.share for stage in stages) <= 1 + 1e-9 else []


def _paid(measurements: Sequence[Measurement], receipt: Receipt) -> list[Stage]:
    """Every measurement a stage of its own, with the share of the budget that the receipt says it cost."""
    capacity = receipt.budget.capacity
    paid: dict[Clique, list[float]] = {}
    for charge in receipt.charges:
        if charge.what == "measure":
            paid.setdefault(charge.about[0], []).append(min(1.0, float(receipt.budget.cost([charge]) / capacity)))
    return [Stage([m], paid[m.clique].pop(0)) for m in measurements if paid.get(m.clique)]
