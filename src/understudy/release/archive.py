"""The release file: a zip of one JSON page and plain arrays. No pickle, and nothing runs by opening it.

The same content always gives the same bytes: fixed member order, fixed dates, no wall-clock time. Every member's
SHA-256 is in the manifest, the manifest's own beside it, and the whole file's in the zip comment at its end, so every
flipped bit and every careless edit is noticed. (Someone who rewrites the digests too is not stopped: a digest is not a
signature.)

What a file holds is bounded by its own size, so that opening one from a stranger takes no more memory than it seems to.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from understudy.errors import OutputError, ReleaseError
from understudy.files import describe_os_error, write_atomically
from understudy.yaml_json import count_json, read_json

FORMAT = 1
"""The format this version writes. A reader keeps reading every older one."""

OLDEST = 1
"""The oldest format this version reads."""

_MANIFEST, _DIGEST = "release.json", "release.sha256"
_DIGEST_BYTES = 64
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_PAGE_BYTES, _ARRAY_BYTES, _TIMES = 1 << 24, 1 << 28, 100
_VALUES = 1_000_000


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
        raise OutputError(f"{path} could not be written ({describe_os_error(error)})") from None
    except ValueError:  # "." and the like
        raise OutputError(f"{path} could not be written (no file)") from None


def _write(path: Path, members: Mapping[str, bytes]) -> None:
    """Write members and the seal; not compressed where so little would be left that the reader takes it for a trap."""
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


def _fits(page_bytes: int, all_bytes: int, size: int) -> bool:
    """Whether a file of this size may hold so much; a file that compresses nothing always may."""
    return page_bytes <= _PAGE_BYTES + _TIMES * size and all_bytes <= _ARRAY_BYTES + _TIMES * size


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The manifest and the arrays of a release file.

    Raises:
        ReleaseError: when it is missing, no release, damaged, altered, or of a newer format.
    """
    try:
        with path.open("rb") as file:
            manifest, members = _opened(file, path)
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
    digests = manifest["members"]
    if set(digests) != set(members):
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


def _opened(file: BinaryIO, path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The page and the other members; a file that a few bytes make enormous is refused before it is unpacked."""
    import psutil

    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        infos = {info.filename: info for info in archive.infolist()}
        if len(infos) != len(archive.infolist()) or any(info.compress_type not in _METHODS for info in infos.values()):
            raise ReleaseError(f"{path} is not a release file, or it is damaged; ask for a fresh copy")
        if _MANIFEST not in infos:
            raise ReleaseError(f"{path} is a zip file but not a release: it has no {_MANIFEST}")
        unpacked = sum(info.file_size for info in infos.values())
        if not _fits(infos[_MANIFEST].file_size, unpacked, size):
            raise ReleaseError(f"{path} would unpack to far more than its size, as no release does; do not trust it")
        if 2 * unpacked > psutil.virtual_memory().available:
            raise ReleaseError(f"{path} unpacks to more than half of the free memory; open it on a larger machine")
        page = archive.read(infos.pop(_MANIFEST))
        manifest = _manifest(page, size, path)
        if _file_digest(file) != file.read():
            raise ReleaseError(f"{path} was damaged or altered; ask for a fresh copy")
        members = {name: archive.read(info) for name, info in infos.items()}
    if members.pop(_DIGEST, b"").decode(errors="replace") != hashlib.sha256(page).hexdigest():
        raise ReleaseError(f"{path}: {_MANIFEST} was damaged or altered; ask for a fresh copy")
    if not isinstance(manifest.get("members"), dict):
        raise ReleaseError(f"{path}: {_MANIFEST} lists no parts; ask for a fresh copy")
    return manifest, members


def _manifest(page: bytes, size: int, path: Path) -> dict[str, Any]:
    """The page's content. Its format is looked at first: a newer one may seal its file in another way."""
    try:
        manifest = read_json(page, most=_VALUES + size)
        number = manifest["format"]
    except (ValueError, KeyError, TypeError):
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or not isinstance(manifest, dict):
        raise ReleaseError(f"{path}: {_MANIFEST} cannot be read; ask for a fresh copy")
    if number < OLDEST:
        raise ReleaseError(f"{path} has format {number}, which no version of understudy reads any more; make it anew")
    if number > FORMAT:
        raise ReleaseError(
            f"{path} has format {number} and this version reads up to {FORMAT}: install a newer understudy"
        )
    return manifest


def _array_bytes(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)
    return buffer.getvalue()


def _array(data: bytes, path: Path) -> NDArray[Any]:
    """An array of plain numbers; the header must claim as many as there are, or a few bytes could take all memory."""
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
