"""Contribution bounding: at most k rows of a unit are counted, the same k in every scan and in every engine.

The k rows with the smallest keyed hash are kept. For each row, the hash is that of a text joined by ``|`` in UTF-8::

sha256( key | unit | codes | ordinal ) compared as lowercase hexadecimal text

- *key*: 64 hexadecimal digits, 32 random bytes drawn for each run and never saved;
- *unit*: the unit's canonical text (`unit_text`);
- *codes*: the row's codes in the domain's order, decimal, joined by commas;
- *ordinal*: 1, 2, … among rows of this unit with these codes.

Only the unit's text may contain ``|``, and the fields around it have a fixed form, so two rows never share a text. Any
engine with SHA-256 can reproduce the hash; ``docs/decisions/contribution-bounding.md`` has the SQL and the reasons.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from understudy.errors import SettingError
from understudy.schema.frames import holds_objects
from understudy.schema.text import drop_utc_mark, make_valid_text, meaning, meanings, to_objects

KEY_BYTES = 32
_CHUNK_ROWS = 1 << 16
_DIGITS = 400  # the largest floating point number has 309


def new_key() -> bytes:
    """Draw a bounding key for one run from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


def unit_text(column: Any, *, exact: bool = False) -> Any:
    """Return the canonical text of each row's unit, null for rows without one.

    It is what the cell means (`schema.text.meaning`): 5, 5.0, "5", "005" and Decimal("5.00") are one unit, text has no
    surrounding blanks, true is 1, dates and times are ISO 8601 (in UTC if they have a zone). Bytes are in hexadecimal.
    A cell that readers take for empty is not a unit. Two units that a reader may merge are always one: merging units
    errs on the safe side.

    Args:
        column: a narwhals series.
        exact: keep whole numbers beyond 2^53 apart. Not for frames, whose readers turn all of them into floating point
            because of one empty or longer cell; the types of files and engines do not depend on rows.

    Returns:
        An arrow array of text.
    """
    array = _to_arrow(column)
    if array is None:
        native = column.to_native()
        return _canonical_texts(to_objects(native) if hasattr(native, "to_pylist") else column.to_list(), exact=exact)
    kind = array.type
    if pa.types.is_null(kind) or (pa.types.is_integer(kind) and (exact or kind.bit_width < 64)):
        return array.cast(pa.large_string())
    distinct = pc.dictionary_encode(array)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        words = canonical_units(pc.utf8_trim(distinct.dictionary.cast(pa.large_string()), " "), exact=exact)
    elif pa.types.is_integer(kind):
        words = canonical_units(distinct.dictionary.cast(pa.large_string()), exact=exact)
    else:
        words = _canonical_texts(to_objects(distinct.dictionary), exact=exact)
    return words.take(distinct.indices)


def canonical_units(text: Any, *, exact: bool) -> Any:
    """Return the canonical text of units that are text without surrounding blanks."""
    return drop_utc_mark(meanings(text, exact=exact))


def _canonical_texts(values: list[Any], *, exact: bool) -> Any:
    return pa.array([_canonical_or_none(value, exact=exact) for value in values], pa.large_string())


def _to_arrow(column: Any) -> Any:
    """Convert the series to one arrow array that can be dictionary-encoded; None if it must be read value by value.

    Python objects always are: arrow would guess one type for all of them, and one unit would decide how the units of
    others are written.
    """
    if holds_objects(column.to_native()):
        return None
    try:
        array = column.to_arrow()
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp("us"), safe=False)
        array = make_valid_text(array)
        if pa.types.is_string_view(array.type):
            array = array.cast(pa.large_string())
        pc.dictionary_encode(array.slice(0, 0))
    except Exception:  # mixed objects, nested types: the content of rows is never an error and never shown
        return None
    return array


def _canonical_or_none(value: Any, *, exact: bool) -> str | None:
    try:
        return _canonical_text(value, exact=exact)
    except Exception:  # a value without a text is not a unit; its error could quote it
        return None


def _canonical_text(value: Any, *, exact: bool) -> str | None:
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = value.astype("M8[us]" if isinstance(value, np.datetime64) else "m8[us]")
    value = value.item() if isinstance(value, np.generic) else value
    value = float(value) if isinstance(value, np.longdouble) else value
    value = value.real if isinstance(value, complex) and not value.imag else value
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, Decimal):
        return _decimal_text(value)
    if isinstance(value, bytes):
        return value.hex() or None
    if isinstance(value, datetime):  # as in typed columns: in UTC, without nanoseconds
        moment = value if value.tzinfo is None else value.astimezone(UTC)
        value = datetime.combine(moment.date(), moment.time())
    if isinstance(value, timedelta):  # pandas formats its own type differently
        value = timedelta(value.days, value.seconds, value.microseconds)
    text = str(value).strip(" ")
    meant = meaning(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"), exact=exact)
    return meant and drop_utc_mark(meant)


def _decimal_text(value: Decimal) -> str | None:
    if value.is_nan():
        return None
    if value.is_infinite() or abs(value.adjusted()) > _DIGITS:  # its digits could take gigabytes
        return str(value).lower()
    text = format(value or abs(value), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def bound_rows(units: Any, codes: Sequence[NDArray[Any]], *, max_rows: int, key: bytes) -> NDArray[np.bool_]:
    """Return which rows are counted: of each unit the `max_rows` with the smallest hash, and no row without a unit.

    Args:
        units: an arrow array of canonical unit text, null where a row has no unit.
        codes: the coded columns in the domain's order.
        max_rows: the largest number of rows of a unit.
        key: the run's key, 32 bytes; engines given the same key keep the same rows.

    **Privacy.** Which rows of a unit are kept depends on that unit's rows only, so adding, removing or changing one
    unit does not affect the others. **Guarantees.** The multiset of kept (unit, codes) does not depend on the order
    of the rows.

    Raises:
        SettingError: for a bound below 1 or a key of another length.
    """
    if max_rows < 1 or len(key) != KEY_BYTES:
        raise SettingError(f"contribution bounding needs max_rows of at least 1 and a key of {KEY_BYTES} bytes")

    distinct = pc.dictionary_encode(units)
    unit_of = np.asarray(pc.fill_null(distinct.indices, -1), np.int64)
    keep = unit_of >= 0
    rows_of = np.bincount(unit_of[keep], minlength=1)
    # A unit with few rows keeps all of them: only the others are hashed.
    crowded = np.flatnonzero(keep & (rows_of > max_rows)[unit_of])
    crowded = crowded[np.argsort(unit_of[crowded], kind="stable")]
    keep[crowded] = False
    keep[
        crowded[_pick_smallest(distinct.dictionary, unit_of[crowded], _format_rows(codes, crowded), max_rows, key)]
    ] = True
    return keep


def _pick_smallest(names: Any, unit_of: NDArray[np.int64], texts: Iterator[str], k: int, key: bytes) -> list[int]:
    """Return the positions of the k smallest hashes of each unit, among rows sorted by unit."""
    starts = np.flatnonzero(np.diff(unit_of, prepend=-1))
    units = names.take(unit_of[starts]).to_pylist()
    chosen: list[int] = []
    for unit, start, stop in zip(units, starts.tolist(), [*starts[1:].tolist(), len(unit_of)], strict=False):
        hashes = _hash_rows(f"{key.hex()}|{unit}|", islice(texts, stop - start))
        chosen += [start + place for place in sorted(range(stop - start), key=hashes.__getitem__)[:k]]
    return chosen


def _format_rows(codes: Sequence[NDArray[Any]], rows: NDArray[np.int64]) -> Iterator[str]:
    for start in range(0, len(rows), _CHUNK_ROWS):
        chunk = rows[start : start + _CHUNK_ROWS]
        for row in zip(*(column[chunk].tolist() for column in codes), strict=True):
            yield ",".join(map(str, row))


def _hash_rows(prefix: str, texts: Iterator[str]) -> list[str]:
    ordinals: dict[str, int] = {}
    digests = []
    for text in texts:
        ordinals[text] = ordinal = ordinals.get(text, 0) + 1
        digests.append(hashlib.sha256(f"{prefix}{text}|{ordinal}".encode()).hexdigest())
    return digests
