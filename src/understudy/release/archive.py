"""The release file: a zip of a JSON manifest and plain arrays. No pickle; opening a file runs no code from it.

The same content always gives the same bytes: fixed member order, fixed dates, no wall-clock time. The manifest holds
the SHA-256 of every member, a second member that of the manifest, and the zip comment that of the whole file, so that
every flipped bit and careless edit is detected. (Whoever rewrites the digests too is not stopped: a digest is not a
signature.)

The unpacked size is limited in proportion to the file's size, so that a stranger's file cannot exhaust the memory.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, InstanceOf

from understudy.domain import Clique, Domain
from understudy.errors import OutputError, ReleaseError, UnderstudyError
from understudy.files import could_not_write, write_atomically
from understudy.measurement import KroneckerQuery, Measurement, Query, Scaling, SparseQuery
from understudy.model.elimination import plan_elimination
from understudy.model.graphical import GraphicalModel
from understudy.model.protocol import MODELS, Model
from understudy.release.bounds import Evidence
from understudy.yaml_json import count_json, read_json

FORMAT = 1
"""The format that this version writes for a single table. Older formats stay readable."""

NEWEST = 2
"""The newest format that this version reads: 2 is a release of linked tables."""

OLDEST = 1
"""The oldest format that this version reads."""

_MANIFEST, _DIGEST = "release.json", "release.sha256"
_DIGEST_BYTES = 64
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_PAGE_BYTES, _ARRAY_BYTES, _TIMES = 1 << 24, 1 << 28, 100
_VALUES = 1_000_000
_FEW_BYTES = 1 << 23


def write_archive(
    path: Path,
    manifest: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    overwrite: bool = False,
    number: int = FORMAT,
) -> None:
    """Write a release file atomically: it is complete, or it does not exist.

    Raises:
        OutputError: if the file cannot be written, or already exists and may not be overwritten.
    """
    members = {f"{name}.npy": _array_bytes(array) for name, array in arrays.items()}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    page = json.dumps({"format": number, "members": digests, **manifest}, indent=1).encode()
    members = {_MANIFEST: page, _DIGEST: hashlib.sha256(page).hexdigest().encode(), **members}
    try:
        if path.exists() and not overwrite:
            raise OutputError(f"{path} already exists; choose another name, or pass overwrite=True")
        _write(path, members)
    except OSError as error:
        raise could_not_write(path, error) from None
    except ValueError:  # "." has no name
        raise OutputError(f"{path} names no file; give the name of a file, such as people.release") from None


def _write(path: Path, members: Mapping[str, bytes]) -> None:
    """Write members and the file's digest; uncompressed where the reader would refuse so high a compression."""
    with write_atomically(path) as file:
        for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
            file.seek(0)
            file.truncate()
            with zipfile.ZipFile(file, "w", method) as archive:
                for name, data in members.items():
                    archive.writestr(zipfile.ZipInfo(name), data, method)
                archive.comment = bytes(_DIGEST_BYTES)
            page, size = members[_MANIFEST], file.seek(0, os.SEEK_END)
            if _fits(len(page), sum(map(len, members.values())), size) and count_json(page) <= _VALUES + size:
                break
        file.write(_file_digest(file))


def _fits_memory(size: int) -> bool:
    """Return whether this many bytes of memory are free; small sizes pass, because the check is slow to start."""
    if size <= _FEW_BYTES:
        return True
    import psutil

    return size <= int(psutil.virtual_memory().available)


def _fits(page_bytes: int, all_bytes: int, size: int) -> bool:
    """Return whether a file of this size may unpack to so much; an uncompressed file always may."""
    return page_bytes <= _PAGE_BYTES + _TIMES * size and all_bytes <= _ARRAY_BYTES + _TIMES * size


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the manifest and the arrays of a release file.

    Raises:
        ReleaseError: if it is missing, no release, damaged, altered, or of a newer format.
    """
    try:
        with path.open("rb") as file:
            manifest, members = _read_members(file, path)
    except FileNotFoundError:
        raise ReleaseError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise ReleaseError(f"{path} is a folder; give the release file in it, such as stand-in.release") from None
    except (
        OSError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        MemoryError,
    ):
        raise ReleaseError(f"{path} is not a release file, or it is damaged; ask for a fresh copy") from None
    digests = manifest["members"]
    if set(digests) != set(members):
        raise ReleaseError(f"{path}: its parts do not match its list of parts; ask for a fresh copy")
    for name, digest in digests.items():
        if hashlib.sha256(members[name]).hexdigest() != digest:
            raise ReleaseError(f"{path}: part {name} was damaged or altered; ask for a fresh copy")
    return manifest, {name.removesuffix(".npy"): _read_array(members[name], path) for name in digests}


@contextmanager
def explain_damage(path: object) -> Iterator[None]:
    """Turn every error that the content of a release file causes into a `ReleaseError` that names the file."""
    try:
        yield
    except ReleaseError as error:
        raise ReleaseError(f"{path}: {error}") from None
    except (UnderstudyError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        raise ReleaseError(f"{path}: its content contradicts itself; ask for a fresh copy") from None
    except MemoryError:
        raise ReleaseError(f"{path}: it does not fit in memory; open it on a larger machine") from None


def _file_digest(file: BinaryIO) -> bytes:
    """Compute the SHA-256, in hexadecimal, of all but the last 64 bytes; leaves the file positioned there."""
    left = file.seek(0, os.SEEK_END) - _DIGEST_BYTES
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0 and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest().encode()


def _read_members(file: BinaryIO, path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read the manifest and the other members; a zip bomb is refused before it is unpacked."""
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        if len(infos) != len(archive.infolist()) or any(info.compress_type not in _METHODS for info in infos.values()):
            raise ReleaseError(f"{path} is not a release file, or it is damaged; ask for a fresh copy")
        if _MANIFEST not in infos:
            raise ReleaseError(f"{path} is a zip file but not a release: it has no {_MANIFEST}")
        unpacked = sum(info.file_size for info in infos.values())
        if not _fits(infos[_MANIFEST].file_size, unpacked, size):
            raise ReleaseError(f"{path} unpacks to far more than any release does; do not trust it")
        if not _fits_memory(2 * unpacked):
            raise ReleaseError(f"{path} unpacks to more than half of the free memory; open it on a larger machine")
        page = archive.read(infos.pop(_MANIFEST))
        manifest = _read_manifest(page, size, path)
        if _file_digest(file) != file.read():
            raise ReleaseError(f"{path} was damaged or altered; ask for a fresh copy")
        members = {name: archive.read(info) for name, info in infos.items()}
    if members.pop(_DIGEST, b"").decode(errors="replace") != hashlib.sha256(page).hexdigest():
        raise ReleaseError(f"{path}: {_MANIFEST} was damaged or altered; ask for a fresh copy")
    if not isinstance(manifest.get("members"), dict):
        raise ReleaseError(f"{path}: {_MANIFEST} lists no parts; ask for a fresh copy")
    return manifest, members


def _read_manifest(page: bytes, size: int, path: Path) -> dict[str, Any]:
    """Parse the manifest. Its format number is checked first: newer formats may store digests differently."""
    try:
        manifest = read_json(page, most=_VALUES + size)
        number = manifest["format"]
    except (ValueError, KeyError, TypeError):
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(manifest, dict):
        raise ReleaseError(f"{path}: {_MANIFEST} cannot be read; ask for a fresh copy")
    if number < OLDEST:
        raise ReleaseError(
            f"{path} has format {number}, which this version of understudy does not read; make the release again"
        )
    if number > NEWEST:
        raise ReleaseError(
            f"{path} has format {number} and this version reads up to {NEWEST}: install a newer understudy"
        )
    return manifest


def _array_bytes(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    return buffer.getvalue()


def _read_array(data: bytes, path: Path) -> NDArray[Any]:
    """Read an array of plain numbers; the header must state the true size, or a few bytes could claim all memory."""
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(file)
        if dtype.kind not in "biuf" or dtype.hasobject or dtype.subdtype is not None:
            raise ValueError("no plain numbers")
        if math.prod(shape) * dtype.itemsize != len(data) - file.tell() or any(side < 0 for side in shape):
            raise ValueError("another length")
        found = np.frombuffer(data, dtype=dtype, offset=file.tell()) if math.prod(shape) else np.empty(0, dtype)
        array: NDArray[Any] = found.reshape(shape, order="F" if fortran else "C").astype(dtype.newbyteorder("="))
    except (
        KeyError,
        ValueError,
        TypeError,
        EOFError,
        OSError,
        MemoryError,
        RecursionError,
        SyntaxError,
        OverflowError,
    ):
        raise ReleaseError(f"{path}: an array cannot be read; ask for a fresh copy") from None
    return array


# -- Plain data with arrays inside, as JSON and named arrays.


_REFERENCE = "@array"


def pack(value: Any, arrays: MutableMapping[str, NDArray[Any]], name: str) -> Any:
    """Move every array inside a value to `arrays`, under a name that starts with `name`.

    >>> arrays = {}
    >>> pack({"a": [np.arange(2), 3]}, arrays, "x"), list(arrays)
    ({'a': [{'@array': 'x/a/0'}, 3]}, ['x/a/0'])
    """
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {_REFERENCE: name}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): pack(item, arrays, f"{name}/{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [pack(item, arrays, f"{name}/{i}") for i, item in enumerate(value)]
    return value


def unpack(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Restore the value that `pack` was given; tuples become lists.

    Raises:
        ReleaseError: if an array is missing.
    """
    if isinstance(value, dict):
        if set(value) == {_REFERENCE}:
            if value[_REFERENCE] not in arrays:
                raise ReleaseError("an array that the release mentions is missing; ask for a fresh copy")
            return arrays[value[_REFERENCE]]
        return {key: unpack(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [unpack(item, arrays) for item in value]
    return value


def measurement_to_dict(measurement: Measurement) -> dict[str, Any]:
    """Convert a measurement to plain data with arrays."""
    return {
        "clique": list(measurement.clique),
        "values": measurement.values,
        "sigma": measurement.sigma,
        "noise": measurement.noise,
        "query": None if measurement.query is None else _query_to_dict(measurement.query),
    }


def measurement_from_dict(data: Mapping[str, Any]) -> Measurement:
    """Restore the measurement that `measurement_to_dict` wrote."""
    query = None if data["query"] is None else _query_from_dict(data["query"])
    return Measurement(tuple(data["clique"]), data["values"], data["sigma"], query, data["noise"])


def _query_to_dict(query: Query) -> dict[str, Any]:
    if isinstance(query, Scaling):
        return {"factors": query.factors}
    if isinstance(query, KroneckerQuery):
        return {"kronecker": list(query.factors)}
    entries = query if isinstance(query, SparseQuery) else SparseQuery.of(query)
    return {"shape": list(entries.shape), "rows": entries.rows, "columns": entries.columns, "values": entries.values}


def _query_from_dict(data: Mapping[str, Any]) -> Query:
    if data.get("factors") is not None:
        return Scaling(_check_numbers(data["factors"]))
    if data.get("kronecker") is not None:
        return KroneckerQuery(tuple(data["kronecker"]))
    rows, columns, values = data["rows"], data["columns"], _check_numbers(data["values"])
    shape = tuple(data["shape"])
    for places, most in zip((rows, columns), shape, strict=True):
        if places.shape != values.shape or places.dtype.kind not in "iu" or not ((places >= 0) & (places < most)).all():
            raise ValueError("entries outside of the query")
    return SparseQuery(rows, columns, values, shape)


def _check_numbers(array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim != 1 or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise ValueError("a query of other things than numbers")
    return array


# -- What the manifest of a release file must look like, checked before anything is made of it.
#
# A digest is not a signature: a forged release has digests of its own. So every part is checked here, once,
# for its type and against the parts that it refers to; the rest of the package can rely on a loaded release as on one
# that it made.


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
    discovery_delta: _Fraction


class _Neighbours(_Part):
    unit: str | None
    max_rows: Annotated[int, Field(ge=1)]
    replace_one: bool
    tables: list[Annotated[list[str | int], Field(min_length=2, max_length=2)]] = []


class _Charge(_Part):
    what: Literal[
        "measure",
        "select",
        "cells",
        "dependence",
        "distances",
        "gradient",
        "type",
        "bounds",
        "bins",
        "values",
        "quality",
    ]
    about: list[_Names]
    noise: Literal["gaussian", "laplace", "exponential"]
    sensitivity: float
    scale: float
    rho: _Fraction
    epsilon: _Fraction | None
    delta: _Fraction
    threshold: int | None = None
    candidates: Annotated[list[int | str], Field(min_length=2, max_length=2)] | None = None
    query: str | None = None
    table: str | None = None


class _Receipt(_Part):
    guarantee: str
    budget: _Budget
    neighbours: _Neighbours
    facts: dict[str, str]
    noise: str
    insecure: bool
    rehearsal: bool = False
    mechanism: str = ""
    charges: list[_Charge]


class _Query(_Part):
    factors: Array | None = None
    kronecker: list[Array] | None = None
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
    """The keys of a round that bounds and inference read; a mechanism may add others."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")

    measured: _Whole = 0
    share: Annotated[float, Field(ge=0, le=1)] = 0.0
    chosen: _Names | None = None
    cliques: list[_Names] = []
    weights: Array | None = None
    epsilon: _Positive | None = None
    sensitivity: _Positive | None = None
    draws: Annotated[int, Field(ge=1)] = 1
    candidates: Array | None = None
    offsets: Array | None = None
    last: Array | None = None
    kind: str | None = None
    model: dict[str, Array] | None = None
    scored: list[_Names] = []
    scores: Array | None = None
    scores_sigma: _Positive | None = None


class _Quality(_Part):
    value: float
    scale: Annotated[float, Field(ge=0)]
    noise: Literal["gaussian", "laplace"]
    workload: str
    tables: _Whole
    of: _Whole
    share: Annotated[float, Field(ge=0, le=1)]


class _Generator(_Part):
    name: Literal["pgm", "tree", "gum", "rap", "gem", "product"]
    limit_mib: _Positive | None = None
    as_printed: bool = False
    loss: Literal["likelihood", "printed"] = "likelihood"
    updates: Literal["tree", "privsyn", "dpsyn"] = "tree"
    enough: Annotated[float, Field(ge=0)] = 0.0


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
    """Refuse a manifest whose parts do not have the types of a release; arrays are already in place.

    Raises:
        ValueError: for anything missing, unknown or of another type.
    """
    checked = _Page.model_validate(dict(page))
    for charge in checked.receipt.charges:
        if charge.what not in ("select", "cells", "dependence", "distances", "quality") and not (
            charge.about and charge.about[0]
        ):
            raise ValueError("a charge for no column")
    if not isinstance(page["settings"].get("workload", ""), str | None):
        raise ValueError("a workload that has no name")
    _check_settings(page["settings"])


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
    if not (np.abs(np.asarray(measurement.values, np.float64)) < _MOST_ROWS).all():
        raise ValueError("more rows than there can be")


def _check_size(model: GraphicalModel) -> None:
    """Refuse a model whose junction tree does not fit in memory: small tables that overlap can have a huge one."""
    cliques = [clique for clique, _ in model.factors()]
    if plan_elimination(model.domain, cliques) is None and not _fits_memory(4 * 8 * model.tree.cells):
        raise ValueError("a model that does not fit in memory")


def _check_rounds(measurements: Sequence[Measurement], rounds: Sequence[Mapping[str, Any]], merged: Domain) -> None:
    """Check the rounds that bounds use: they refer to candidate cliques by their positions in the first round."""
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
        _check_pairs(entry, merged)
        if "model" not in entry:
            continue
        stopped = entry.get("chosen") == []  # the empty clique: its score is 0, and nothing needs to be measured
        if entry.get("kind") not in MODELS or start > len(measurements) or not (stopped or before < start):
            raise ValueError("a round without a measurement")
        candidates = _read_places(entry["candidates"], len(cliques))
        offsets = np.asarray(entry["offsets"])
        measured: Clique = () if stopped else merged.check(measurements[start - 1].clique)
        chosen = places.get(merged.canonical(measured))
        if offsets.shape != (len(candidates),) or offsets.dtype.kind not in "iuf" or not np.isfinite(offsets).all():
            raise ValueError("candidates without offsets")
        if chosen not in candidates or not _read_places(entry["last"], len(cliques)) <= candidates:
            raise ValueError("a choice of none of the candidates")
        if len(candidates) != np.asarray(entry["candidates"]).size or "chosen" not in entry:
            raise ValueError("a candidate twice")
        if merged.canonical(merged.check(tuple(entry["chosen"]))) != merged.canonical(measured):
            raise ValueError("a choice of another clique than the one measured")
        paid = [entry.get(key) or 0.0 for key in ("epsilon", "sensitivity", "share")]
        if min(paid) <= 0 or (weights[chosen] <= 0) != stopped:
            raise ValueError("a choice without its price")


def _check_pairs(entry: Mapping[str, Any], merged: Domain) -> None:
    """Check what inference reads of a round: pairs with their scores."""
    scores = np.asarray(entry.get("scores", ()))
    pairs = [merged.check(pair) for pair in entry.get("scored", ())]
    if scores.shape != (len(pairs),) or any(len(pair) != 2 for pair in pairs):
        raise ValueError("scores of other pairs")
    if len(pairs) and (scores.dtype.kind not in "iuf" or not np.isfinite(scores).all() or "scores_sigma" not in entry):
        raise ValueError("scores that are not finite")


def _read_places(array: NDArray[Any], count: int) -> set[int]:
    array = np.asarray(array)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not ((array >= 0) & (array < count)).all():
        raise ValueError("places outside the list")
    return set(array.tolist())


def _check_settings(value: Any) -> None:
    """Check that settings are plain data without arrays, with finite numbers."""
    if isinstance(value, dict):
        for item in value.values():
            _check_settings(item)
    elif isinstance(value, list):
        for item in value:
            _check_settings(item)
    elif isinstance(value, np.ndarray) or (isinstance(value, float) and not np.isfinite(value)):
        raise ValueError("settings that are no plain values")
