"""The release file: a zip of one JSON page and plain arrays. No pickle, and nothing runs by opening it.

The same content always gives the same bytes: fixed member order, fixed dates, no wall-clock time. Every member's
SHA-256 is in the manifest, the manifest's own beside it, and the whole file's in the zip comment at its end, so every
flipped bit and every careless edit is noticed. (Someone who rewrites the digests too is not stopped: a digest is not a
signature.)
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from understudy.errors import OutputError, ReleaseError
from understudy.page import reason

FORMAT = 1
"""The format this version writes. A reader keeps reading every older one."""

OLDEST = 1
"""The oldest format this version reads."""

_MANIFEST, _DIGEST = "release.json", "release.sha256"
_LARGEST_MEMBER = 1 << 34
_DIGEST_BYTES = 64


def write_archive(
    path: Path, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, overwrite: bool = False
) -> None:
    """Write a release file in one piece: it is complete or it is not there.

    Raises:
        OutputError: when the file cannot be written, or is there already and may not be overwritten.
    """
    members = {f"{name}.npy": _array_bytes(array) for name, array in arrays.items()}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    page = json.dumps({"format": FORMAT, "members": digests, **manifest}, indent=1).encode()
    members = {_MANIFEST: page, _DIGEST: hashlib.sha256(page).hexdigest().encode(), **members}
    try:
        if path.exists() and not overwrite:
            raise OutputError(f"{path} is there already; choose another name, or say overwrite=True")
        _write(path, members)
    except OSError as error:
        raise OutputError(f"{path} could not be written ({reason(error)})") from None
    except ValueError:  # "." and the like
        raise OutputError(f"{path} could not be written (no file)") from None


def _write(path: Path, members: Mapping[str, bytes]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, data in members.items():
                    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
                archive.comment = bytes(_DIGEST_BYTES)
            file.flush()
            with draft.open("r+b") as sealed:
                digest = _file_digest(sealed)
                sealed.write(digest)
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The manifest and the arrays of a release file.

    Raises:
        ReleaseError: when it is missing, no release, damaged, altered, or of a newer format.
    """
    try:
        with path.open("rb") as file:
            members = _members(file, path)
    except FileNotFoundError:
        raise ReleaseError(f"{path}: there is no such file") from None
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
    manifest = _manifest(members, path)
    digests = manifest["members"]
    if set(digests) != set(members) - {_MANIFEST, _DIGEST}:
        raise ReleaseError(f"{path}: its parts do not match its list of parts; ask for a fresh copy")
    for name, digest in digests.items():
        if hashlib.sha256(members[name]).hexdigest() != digest:
            raise ReleaseError(f"{path}: part {name} was damaged or altered; ask for a fresh copy")
    return manifest, {name.removesuffix(".npy"): _array(members[name], path) for name in digests}


def _file_digest(file: BinaryIO) -> bytes:
    """The SHA-256, in hexadecimal, of all but the last 64 bytes; leaves the file there."""
    left = file.seek(0, os.SEEK_END) - _DIGEST_BYTES
    file.seek(0)
    digest = hashlib.sha256()
    while left > 0 and (block := file.read(min(left, 1 << 20))):
        digest.update(block)
        left -= len(block)
    return digest.hexdigest().encode()


def _members(file: BinaryIO, path: Path) -> dict[str, bytes]:
    """What the file holds; one that a few bytes make enormous is refused before it is unpacked."""
    import psutil

    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        if len({info.filename for info in infos}) != len(infos) or any(i.file_size > _LARGEST_MEMBER for i in infos):
            raise ReleaseError(f"{path} is not a release file, or it is damaged; ask for a fresh copy")
        if 2 * sum(info.file_size for info in infos) > psutil.virtual_memory().available:
            raise ReleaseError(f"{path} unpacks to more than half of the free memory; open it on a larger machine")
        members = {info.filename: archive.read(info) for info in infos}
    _refuse_newer(members, path)
    if _file_digest(file) != file.read():
        raise ReleaseError(f"{path} was damaged or altered; ask for a fresh copy")
    return members


def _refuse_newer(members: Mapping[str, bytes], path: Path) -> None:
    """Said first: a newer format may seal its file in another way."""
    page = members.get(_MANIFEST)
    if page is None:
        raise ReleaseError(f"{path} is a zip file but not a release: it has no {_MANIFEST}")
    try:
        number = json.loads(page)["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        number = None
    if isinstance(number, bool) or not isinstance(number, int):
        raise ReleaseError(f"{path}: {_MANIFEST} cannot be read; ask for a fresh copy")
    if number < OLDEST:
        raise ReleaseError(f"{path} has format {number}, which no version of understudy reads any more; make it anew")
    if number > FORMAT:
        raise ReleaseError(
            f"{path} has format {number} and this version reads up to {FORMAT}: install a newer understudy"
        )


def _manifest(members: Mapping[str, bytes], path: Path) -> dict[str, Any]:
    page = members[_MANIFEST]
    manifest = json.loads(page)
    if members.get(_DIGEST, b"").decode(errors="replace") != hashlib.sha256(page).hexdigest():
        raise ReleaseError(f"{path}: {_MANIFEST} was damaged or altered; ask for a fresh copy")
    if not isinstance(manifest.get("members"), dict):
        raise ReleaseError(f"{path}: {_MANIFEST} lists no parts; ask for a fresh copy")
    return dict(manifest)


def _array_bytes(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    return buffer.getvalue()


def _array(data: bytes, path: Path) -> NDArray[Any]:
    try:
        return np.asarray(np.lib.format.read_array(io.BytesIO(data), allow_pickle=False))
    except (ValueError, EOFError, OSError, MemoryError):
        raise ReleaseError(f"{path}: an array cannot be read; ask for a fresh copy") from None
