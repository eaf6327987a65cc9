"""Check how a table fits its schema, and what binning alone loses. For the custodian only."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understudy.schema.axis import AxisColumn
from understudy.schema.categorical import Categorical
from understudy.schema.column import DROP, Coded
from understudy.schema.custodian import MARK
from understudy.schema.frames import columns_by_meaning
from understudy.schema.schema import Schema


@dataclass(frozen=True)
class Loss:
    """One statistic before and after encoding and decoding, without noise.

    Attributes:
        statistic: its name.
        before: in the column's own units: days for dates, seconds for datetimes and durations.
        after: in the same units.
        span: for dates and datetimes the distance between the bounds, because their zero (1970) has no meaning.
    """

    statistic: str
    before: float
    after: float
    span: float | None = None

    @property
    def relative(self) -> float:
        """The difference as a share of the value before, or of the span; 0 if nothing changed."""
        whole = abs(self.before) if self.span is None else self.span
        if self.before == self.after:
            return 0.0
        return abs(self.after - self.before) / whole if whole else float("inf")


@dataclass(frozen=True)
class ColumnCheck:
    """How one column fits: the number of rows by the treatment of their cell."""

    name: str
    kind: str
    codes: int
    unknown: int
    clipped: int
    null: int
    missing: dict[str, int] = field(default_factory=dict)
    unused: int = 0
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True)
class CheckResult:
    """How a whole table fits its schema.

    **Privacy.** Exact counts of the rows: for the custodian only, never part of a release.

    Attributes:
        rows: the number of rows of the table.
        dropped: rows that are not used because a column says ``on_unknown: drop_row``.
        columns: the columns that are synthesised.
        broken: by rule, how many rows break it.
        units: the number of privacy units, and of rows beyond the limit per unit; None if a unit is a row.
        drafts: columns that nobody has reviewed yet.
    """

    rows: int
    dropped: int
    columns: tuple[ColumnCheck, ...]
    broken: dict[str, int]
    units: tuple[int, int] | None
    drafts: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, the mark first."""
        content = {"custodian_only": MARK, **asdict(self)}
        for written, column in zip(content["columns"], self.columns, strict=True):
            for loss, kept in zip(written["losses"], column.losses, strict=True):
                loss["relative"] = kept.relative
        return content


def check(schema: Schema, frame: Any, *, seed: int = 0) -> CheckResult:
    """Encode a table, decode it again without noise, and count what does not fit.

    **Privacy.** The result describes the rows exactly: for the custodian only.

    Args:
        schema: the schema.
        frame: the table.
        seed: for the draws inside bins.

    Raises:
        SchemaError: if the table's structure does not fit the schema.
    """
    cells, rows = columns_by_meaning(frame, schema.needs, schema.dialect)
    rng = np.random.default_rng(seed)
    keep = np.ones(rows, dtype=np.bool_)
    fits: list[ColumnCheck] = []
    codes: dict[str, NDArray[Any]] = {}
    for column in schema.coded:
        coded = column.encode(cells[column.name], schema.dialect)
        keep &= coded[column.name] != DROP
        fits.append(_check_column(column, cells[column.name], coded, schema, rng))
        codes |= column.compact_codes(coded)
    kept = {part: array[keep] for part, array in codes.items()}
    titles = [", ".join(f"{key}: {value}" for key, value in rule.to_dict().items()) for rule in schema.rules]
    broken = {t: int(rule.find_broken(schema, kept).sum()) for t, rule in zip(titles, schema.rules, strict=True)}
    drafts = tuple(column.name for column in schema.columns if column.status == "draft")
    return CheckResult(rows, int(rows - keep.sum()), tuple(fits), broken, _count_units(schema, cells, keep), drafts)


def _count_units(schema: Schema, cells: dict[str, Any], keep: NDArray[np.bool_]) -> tuple[int, int] | None:
    unit = schema.privacy_unit
    if unit.column is None:
        return None
    used = pc.drop_null(cells[unit.column].filter(pa.array(keep)))
    counts = np.asarray(pc.value_counts(used).field("counts"))
    return len(counts), int(np.maximum(counts - unit.max_rows, 0).sum())


def _check_column(
    column: Coded, cells: Any, coded: dict[str, Any], schema: Schema, rng: np.random.Generator
) -> ColumnCheck:
    main = coded[column.name]
    clipped, losses = 0, tuple[Loss, ...]()
    if isinstance(column, AxisColumn):
        clipped, losses = _check_axis(column, cells, coded, schema, rng)
    unknown = main == column.unknown_code
    if isinstance(column, Categorical) and column.other in column.values:
        declared = {key: getattr(column, key) for key in Categorical.model_fields}
        # cells of a declared "other" are not unknown
        apart = Categorical.model_validate(declared | {"other": "\0"})
        unknown = apart.encode(cells, schema.dialect)[column.name] == apart.unknown_code
    null = main == column.null_code if column.null_code is not None else np.zeros(len(main), np.bool_)
    if column.unknown_code == column.null_code:
        unknown = unknown & np.asarray(cells.is_valid())
        null = null & ~unknown
    return ColumnCheck(
        name=column.name,
        kind=column.kind,
        codes=column.size,
        unknown=int(unknown.sum()),
        clipped=clipped,
        null=int(null.sum()),
        missing={reason: int((main == column.reason_code(reason)).sum()) for reason in column.reasons},
        unused=int(column.ordinary - len(np.unique(main[(main >= 0) & (main < column.ordinary)]))),
        losses=losses,
    )


def _check_axis(
    column: AxisColumn, cells: Any, coded: dict[str, Any], schema: Schema, rng: np.random.Generator
) -> tuple[int, tuple[Loss, ...]]:
    """Return the number of clipped values, and mean, spread and quartiles before and after, in the column's units."""
    units, valid = column.units(cells, schema.dialect)
    ordinary = valid & (coded[column.name] >= 0) & (coded[column.name] < column.ordinary)
    low, high = column.bounds
    clipped = int((ordinary & ((units < low) | (units > high))).sum())
    if not ordinary.any():
        return clipped, ()
    before = units[ordinary].astype(np.float64)
    shown = {part: codes[ordinary] for part, codes in coded.items()}
    decoded, _ = column.units(column.decode_ordinary(shown, rng), schema.dialect)
    span = float(high - low) / column.per_unit if column.kind in ("date", "datetime") else None
    return clipped, _compute_losses(before / column.per_unit, decoded.astype(np.float64) / column.per_unit, span)


def _compute_losses(before: NDArray[np.float64], after: NDArray[np.float64], span: float | None) -> tuple[Loss, ...]:
    rows = [Loss("mean", float(before.mean()), float(after.mean()), span)]
    rows.append(Loss("standard deviation", float(before.std()), float(after.std())))
    for name, share in (("lower quartile", 0.25), ("median", 0.5), ("upper quartile", 0.75)):
        rows.append(Loss(name, float(np.quantile(before, share)), float(np.quantile(after, share)), span))
    return tuple(rows)
