"""What the page of a release file must look like, checked before anything is made of it.

A digest is no signature: whoever forges a release writes the digests anew. So every part is checked here, once, for its
type and against the parts that it speaks of; what the rest of the package gets from a file is as good as what it made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, InstanceOf

from understudy.bounds.marginals import Evidence
from understudy.domain import Clique, Domain
from understudy.measurement import Measurement
from understudy.model.graphical import GraphicalModel
from understudy.model.protocol import Model
from understudy.model.registry import MODELS

Array = InstanceOf[np.ndarray[Any, Any]]
_Whole = Annotated[int, Field(ge=0)]
_Positive = Annotated[float, Field(gt=0)]
_Names = list[str]
_Fraction = Annotated[str, Field(max_length=20_000)]
_MOST_ROWS = 1e30
_STRICT = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")


class _Part(BaseModel):
    model_config = _STRICT


class _Budget(_Part):
    proof: Literal["zcdp", "pure", "pld"]
    rho: _Fraction
    epsilon: _Fraction | None
    delta: _Fraction | None
    purchase_delta: _Fraction


class _Neighbours(_Part):
    unit: str | None
    max_rows: Annotated[int, Field(ge=1)]
    replace_one: bool


class _Charge(_Part):
    what: Literal["measure", "select", "dependence", "type", "bounds", "bins", "values", "quality"]
    about: list[_Names]
    noise: Literal["gaussian", "laplace", "exponential"]
    sensitivity: float
    scale: float
    rho: _Fraction
    epsilon: _Fraction | None
    delta: _Fraction
    threshold: int | None = None
    candidates: Annotated[list[int | str], Field(min_length=2, max_length=2)] | None = None


class _Receipt(_Part):
    guarantee: str
    budget: _Budget
    neighbours: _Neighbours
    facts: dict[str, str]
    noise: str
    insecure: bool
    rehearsal: bool = False
    charges: list[_Charge]


class _Query(_Part):
    factors: Array | None = None
    shape: Annotated[list[_Whole], Field(min_length=2, max_length=2)] | None = None
    rows: Array | None = None
    columns: Array | None = None
    values: Array | None = None


class _Measurement(_Part):
    clique: _Names
    values: Array
    sigma: Annotated[float, Field(ge=1e-12, le=1e18)]
    noise: Literal["gaussian", "laplace"]
    query: _Query | None


class _Model(_Part):
    kind: str
    arrays: dict[str, Array]


class _Round(_Part):
    """What bounds read of a round; a mechanism may tell more."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")

    measured: _Whole = 0
    share: Annotated[float, Field(ge=0, le=1)] = 0.0
    chosen: _Names | None = None
    cliques: list[_Names] = []
    weights: Array | None = None
    epsilon: _Positive | None = None
    sensitivity: _Positive | None = None
    candidates: Array | None = None
    offsets: Array | None = None
    last: Array | None = None
    kind: str | None = None
    model: dict[str, Array] | None = None


class _Quality(_Part):
    value: float
    scale: Annotated[float, Field(ge=0)]
    noise: Literal["gaussian", "laplace"]
    workload: str
    tables: _Whole
    of: _Whole
    share: Annotated[float, Field(ge=0, le=1)]


class _Generator(_Part):
    name: Literal["pgm", "tree", "gum", "product"]
    limit_mib: _Positive | None = None


class _Page(_Part):
    format: int
    members: dict[str, str]
    schema_: dict[str, Any] = Field(alias="schema")
    mechanism: str
    settings: dict[str, Any]
    receipt: _Receipt
    recoding: dict[str, list[int]]
    rounds: list[_Round]
    default_rows: _Whole
    quality: _Quality | None = None
    generator: _Generator | None = None
    measurements: list[_Measurement]
    model: _Model


def check_page(page: Mapping[str, Any]) -> None:
    """Refuse a page whose parts are not of the types that a release has; arrays are in their places already.

    Raises:
        ValueError: for anything missing, unknown or of another type.
    """
    checked = _Page.model_validate(dict(page))
    for charge in checked.receipt.charges:
        if charge.what not in ("select", "dependence", "quality") and not (charge.about and charge.about[0]):
            raise ValueError("a charge for no column")
    if not isinstance(page["settings"].get("workload", ""), str | None):
        raise ValueError("a workload that has no name")
    _plain_numbers(page["settings"])


def check_parts(
    measurements: Sequence[Measurement], rounds: Sequence[Mapping[str, Any]], model: Model, evidence: Evidence
) -> None:
    """Refuse measurements, rounds and a model that do not fit the columns or each other.

    Raises:
        ValueError: saying which.
        UnderstudyError: for unknown columns.
    """
    declared, merged = evidence.declared, model.domain
    for measurement in measurements:
        _check_measurement(measurement, declared, merged)
    if not 0 < model.total < _MOST_ROWS:
        raise ValueError("a model of no rows, or of more than there can be")
    if isinstance(model, GraphicalModel):
        _check_size(model)
    _check_rounds(measurements, rounds, merged)


def _check_measurement(measurement: Measurement, declared: Domain, merged: Domain) -> None:
    sizes = {domain.cells(domain.check(measurement.clique)) for domain in (declared, merged)}
    if measurement.query is None:
        answers = sizes
    else:
        rows, columns = measurement.query.shape
        if columns not in sizes:
            raise ValueError("a query on other cells")
        answers = {rows}
    if len(measurement.values) not in answers:
        raise ValueError("a measurement of another length")


def _check_size(model: GraphicalModel) -> None:
    """A model of small tables that all hang together takes more memory than there is; no run makes one."""
    import psutil

    if 4 * 8 * model.tree.cells > psutil.virtual_memory().available:
        raise ValueError("a model that does not fit in memory")


def _check_rounds(measurements: Sequence[Measurement], rounds: Sequence[Mapping[str, Any]], merged: Domain) -> None:
    """Rounds whose selections bounds are made of name the cliques they chose among, by their places in the first."""
    first = rounds[0] if rounds else {}
    cliques: list[Clique] = [merged.check(clique) for clique in first.get("cliques", ())]
    weights = np.asarray(first.get("weights", ()))
    if weights.shape != (len(cliques),) or weights.dtype.kind not in "iuf" or not (weights >= 0).all():
        raise ValueError("cliques without weights")
    if not np.isfinite(weights).all() or len(set(cliques)) != len(cliques):
        raise ValueError("cliques without weights")
    places = {merged.canonical(clique): place for place, clique in enumerate(cliques)}
    start = 0
    for entry in rounds:
        start, before = start + int(entry.get("measured", 0)), start
        if "model" not in entry:
            continue
        if entry.get("kind") not in MODELS or before >= len(measurements) or start == before:
            raise ValueError("a round without a measurement")
        candidates = _places(entry["candidates"], len(cliques))
        offsets = np.asarray(entry["offsets"])
        chosen = places.get(merged.canonical(merged.check(measurements[before].clique)))
        if offsets.shape != (len(candidates),) or offsets.dtype.kind not in "iuf" or not np.isfinite(offsets).all():
            raise ValueError("candidates without offsets")
        if chosen not in candidates or not _places(entry["last"], len(cliques)) <= candidates:
            raise ValueError("a choice of none of the candidates")
        if len(candidates) != np.asarray(entry["candidates"]).size or "chosen" not in entry:
            raise ValueError("a candidate twice")
        paid = [entry.get(key) or 0.0 for key in ("epsilon", "sensitivity", "share")]
        if min(paid) <= 0 or weights[chosen] <= 0:
            raise ValueError("a choice without its price")


def _places(array: NDArray[Any], count: int) -> set[int]:
    array = np.asarray(array)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not ((array >= 0) & (array < count)).all():
        raise ValueError("places that are none")
    return set(array.tolist())


def _plain_numbers(value: Any) -> None:
    """Settings are plain data without arrays, and their numbers are finite."""
    if isinstance(value, dict):
        for item in value.values():
            _plain_numbers(item)
    elif isinstance(value, list):
        for item in value:
            _plain_numbers(item)
    elif isinstance(value, np.ndarray) or (isinstance(value, float) and not np.isfinite(value)):
        raise ValueError("settings that are no plain values")
