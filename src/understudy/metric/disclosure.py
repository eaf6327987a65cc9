"""`disclosure`: a simple check for copied rows. It proves nothing: the guarantee comes from the mechanism."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as settings_class

from understudy.metric.base import STRICT, Metric, Part, Score
from understudy.metric.tables import Rows, require_same_columns
from understudy.schema import Schema

SENTENCE = (
    "A check, not a proof: the privacy guarantee is the mechanism's and is stated in the receipt, whatever this number "
    "is."
)


@settings_class(frozen=True, kw_only=True, config=STRICT)
class Settings:
    """Settings of `disclosure`.

    Attributes:
        rows: the largest number of rows of each side that is compared.
    """

    rows: Annotated[int, Field(ge=2)] = 200_000


def disclosure(real: Rows, synthetic: Rows, schema: Schema, settings: Settings, rng: np.random.Generator) -> Score:
    """Return how much more often a synthetic row equals a real row than another real row does.

    One half of the real table is the reference. The share of synthetic rows that equal a row of it is compared with the
    share of rows of the other, held-out half that do; the score is the excess, never below 0.
    """
    require_same_columns(real, synthetic)
    if real.rows < 2:
        return METRIC.score(0.0, notes=("The real table has one row: nothing to compare.", SENTENCE))
    reference, held = real.split(rng)
    tables = [table.sample(settings.rows, rng) for table in (reference, held, synthetic)]
    keys, counts = np.unique(_keys(tables[0]), return_counts=True)
    shares = [float(np.isin(_keys(table), keys).mean()) for table in tables[1:]]
    single = [float(np.isin(_keys(table), keys[counts == 1]).mean()) for table in tables[1:]]
    parts = (
        Part("match", "synthetic rows", shares[1]),
        Part("match", "held-out real rows", shares[0]),
        Part("match of a unique row", "synthetic rows", single[1]),
        Part("match of a unique row", "held-out real rows", single[0]),
    )
    notes: tuple[str, ...] = (SENTENCE,)
    if max(reference.rows, synthetic.rows) > settings.rows:
        notes += (f"At most {settings.rows:,} rows of each side were drawn at random.",)
    return METRIC.score(max(0.0, shares[1] - shares[0]), parts, notes)


def _keys(table: Rows) -> NDArray[Any]:
    """Return the codes of each row as one opaque value."""
    codes = np.column_stack([array.astype(np.uint32) for array in table.codes.values()])
    return np.ascontiguousarray(codes).view(np.dtype((np.void, codes.dtype.itemsize * codes.shape[1]))).ravel()


METRIC = Metric(
    name="disclosure",
    title="Copied rows (a simple check)",
    measure=disclosure,
    settings=Settings,
    better="lower",
    best=0.0,
    worst=1.0,
    meaning="How much more often a synthetic row equals a real row than a held-out real row does. 0: no more often.",
    rows=True,
)
