"""Receive a table from a browser: streamed to disk in bounded memory, and refused if it is too large or too slow.

**Privacy.** The file is readable by its owner alone from its first byte on, and is removed if anything goes wrong. Its
name is shown and never used as a path.
"""

from __future__ import annotations

import gzip
import os
import re
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pyarrow.parquet as pq
from anyio.to_thread import run_sync
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from understudy.errors import InputError, OutputError
from understudy.files import FULL_DISK, NEW_FILE, OWNER_ONLY, check_space, describe_os_error
from understudy.source.office import OFFICE
from understudy.source.place import CSV, PARQUET
from understudy.studio.guard import Session, holds_token

ENDINGS = (*CSV, *PARQUET, *OFFICE)
"""The endings of files that can be uploaded."""

_BUFFER = 1 << 20
_FIELD_BYTES = 10_000
_PEEK = 1 << 16
_CELL_BYTES = 8


@dataclass(frozen=True)
class UploadLimits:
    """The limits of an upload.

    Attributes:
        size_bytes: the largest file.
        expanded_bytes: the largest content of a compressed file.
        ratio: how many times larger than the file the content may be, beyond the first `free_bytes`.
        free_bytes: contents up to this size are never refused.
        silence_seconds: how long nothing may arrive.
        slowest: the least bytes per second, on average over a minute.
    """

    size_bytes: int = 5 * 10**9
    expanded_bytes: int = 50 * 10**9
    ratio: float = 300.0
    free_bytes: int = 100 * 10**6
    silence_seconds: float = 30.0
    slowest: float = 1000.0


class Refused(InputError):
    """The request is not one of our own forms."""


async def receive_table(request: Request, folder: Path, session: Session, limits: UploadLimits) -> tuple[Path, str]:
    """Stream the file of a form to a folder.

    Returns:
        Its path, and its name as the browser gave it.

    Raises:
        Refused: if the form does not carry the session's CSRF token before the file.
        InputError: if the file is of a kind that cannot be read, too large, too slow or incomplete.
        OutputError: if the disk is full.
    """
    length = request.headers.get("content-length", "")
    if length.isdigit():
        if int(length) > limits.size_bytes + _FIELD_BYTES:
            raise InputError(_too_large(limits))
        check_space(folder, int(length))
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/form-data" or b"boundary" not in options:
        raise Refused("this is not a form of the studio")
    form = _Form(folder, session, limits)
    try:
        parser = MultipartParser(options[b"boundary"], form.callbacks())  # type: ignore[arg-type]
        await _feed(request, parser, form, limits)
        parser.finalize()
        path = await run_sync(form.finish)
    except MultipartParseError:
        form.discard()
        raise Refused("the form cannot be read; nothing was kept") from None
    except ClientDisconnect:
        form.discard()
        raise InputError("the upload was interrupted; nothing was kept") from None
    except OSError as error:
        form.discard()
        why = "the disk is full" if error.errno in FULL_DISK else describe_os_error(error)
        raise OutputError(f"the table could not be stored ({why}); make room and upload it again") from None
    except BaseException:
        form.discard()
        raise
    return path, form.shown


async def _feed(request: Request, parser: MultipartParser, form: _Form, limits: UploadLimits) -> None:
    """Pass the body to the parser as it arrives, and store it a megabyte at a time."""
    began, minute, received = time.monotonic(), time.monotonic(), 0
    body = request.stream().__aiter__()
    while True:
        try:
            with anyio.fail_after(limits.silence_seconds):
                block = await body.__anext__()
        except StopAsyncIteration:
            break
        except TimeoutError:
            raise InputError("the upload stopped for too long; nothing was kept. Try again") from None
        received += len(block)
        parser.write(block)
        if form.buffered >= _BUFFER:
            await run_sync(form.flush)
        now = time.monotonic()
        if now - minute > 60 or (now - began > limits.silence_seconds and received < limits.slowest * (now - began)):
            if received < limits.slowest * (now - began):
                raise InputError("the upload is too slow; nothing was kept. Copy the file to this machine instead")
            minute = now


class _Form:
    """The parts of a form as they arrive: the CSRF token first, fields in memory, one file on disk."""

    def __init__(self, folder: Path, session: Session, limits: UploadLimits) -> None:
        self._folder, self._session, self._limits = folder, session, limits
        self.fields: dict[str, str] = {}
        self.shown = ""
        self._path: Path | None = None
        self._handle: int | None = None
        self._blocks: list[bytes] = []
        self.buffered, self._size = 0, 0
        self._headers: dict[bytes, bytes] = {}
        self._header, self._value = b"", b""
        self._name, self._text, self._is_file = "", b"", False

    def callbacks(self) -> dict[str, Any]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._read_header,
            "on_header_value": self._read_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._open,
            "on_part_data": self._read,
            "on_part_end": self._end,
        }

    def _begin(self) -> None:
        self._headers, self._header, self._value = {}, b"", b""

    def _read_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _read_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        if len(self._value) > _FIELD_BYTES:
            raise Refused("the form cannot be read; nothing was kept")

    def _end_header(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header, self._value = b"", b""

    def _open(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._name, self._text = options.get(b"name", b"").decode("utf-8", "replace"), b""
        self._is_file = b"filename" in options
        if len(self.fields) > 20:
            raise Refused("the form cannot be read; nothing was kept")
        if not self._is_file:
            return
        if not holds_token(self._session, self.fields, {}):
            raise Refused("this form is not from a page of this session; load the page again")
        if self._path is not None:
            raise Refused("one file at a time; nothing was kept")
        self.shown = clean_name(options[b"filename"].decode("utf-8", "replace"))
        ending = find_ending(self.shown)
        self._path = self._folder / f"table{ending}"
        self._handle = os.open(self._path, NEW_FILE, OWNER_ONLY)

    def _read(self, data: bytes, start: int, end: int) -> None:
        if not self._is_file:
            self._text += data[start:end]
            if len(self._text) > _FIELD_BYTES:
                raise Refused("the form cannot be read; nothing was kept")
            return
        self._blocks.append(data[start:end])
        self.buffered += end - start
        self._size += end - start
        if self._size > self._limits.size_bytes:
            raise InputError(_too_large(self._limits))

    def _end(self) -> None:
        if not self._is_file:
            self.fields[self._name] = self._text.decode("utf-8", "replace")

    def flush(self) -> None:
        """Store what has arrived."""
        if self._handle is not None:
            view = memoryview(b"".join(self._blocks))
            while view:
                view = view[os.write(self._handle, view) :]
        self._blocks, self.buffered = [], 0

    def finish(self) -> Path:
        """Store the rest, and check the file."""
        self.flush()
        if self._handle is None or self._path is None or self._size == 0:
            raise InputError("no file was chosen, or it is empty; choose a table")
        os.close(self._handle)
        self._handle = None
        check_table_file(self._path, self._limits)
        return self._path

    def discard(self) -> None:
        """Remove what was stored."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def clean_name(given: str) -> str:
    r"""Return the name of an uploaded file for pages: at most 100 characters, no folders, no control characters.

    >>> clean_name("../../etc/pass\nwd.csv")
    'passwd.csv'
    """
    name = re.split(r"[/\\]", given)[-1]
    return "".join(sign for sign in name if sign.isprintable())[-100:].strip() or "table"


def find_ending(name: str) -> str:
    """Return the ending of a table that can be read.

    Raises:
        InputError: listing the endings.
    """
    for ending in sorted(ENDINGS, key=len, reverse=True):
        if name.lower().endswith(ending):
            return ending
    raise InputError(f"this kind of file cannot be read; give one of {', '.join(ENDINGS)}")


def name_dataset(name: str) -> str:
    """Return a name for the ledger, from the name of a file.

    >>> name_dataset("Patients 2024 (final).csv")
    'Patients 2024 final'
    """
    stem = re.sub(r"[^\w .+-]", "", name.split(".")[0]).strip(" .+-")
    return stem[:100] or "table"


# -- Checks of the content: its type, and its size when it is read


def check_table_file(path: Path, limits: UploadLimits) -> None:
    """Refuse a file whose content is not what its ending says, or grows out of all proportion when it is read.

    Raises:
        InputError: saying what to do.
    """
    name = path.name.lower()
    with path.open("rb") as file:
        start = file.read(_PEEK)
    if name.endswith(PARQUET):
        _check_parquet(path, start, limits)
    elif name.endswith(".xlsx"):
        _check_workbook(path, limits)
    elif name.endswith(".gz"):
        _check_compressed(path, start, limits)
    elif name.endswith((".sav", ".zsav")):
        _require(start[:3] == b"$FL", "SPSS")
    elif name.endswith(".dta"):
        _require(start.startswith(b"<stata_dta>") or start[:1] in (b"\x6c", b"\x71", b"\x72", b"\x73"), "Stata")
    else:
        _check_text(start)


def _check_text(start: bytes) -> None:
    wide = start.startswith((b"\xff\xfe", b"\xfe\xff"))
    _require(wide or b"\0" not in start, "text, as CSV files are")


def _check_compressed(path: Path, start: bytes, limits: UploadLimits) -> None:
    _require(start[:2] == b"\x1f\x8b", "gzip")
    size, expanded = path.stat().st_size, 0
    try:
        with gzip.open(path) as file:
            while block := file.read(_BUFFER):
                if not expanded:
                    _check_text(block)
                expanded += len(block)
                _check_growth(size, expanded, limits)
    except (OSError, EOFError):
        raise InputError("the compressed file is damaged or cut short; compress it again") from None


def _check_workbook(path: Path, limits: UploadLimits) -> None:
    try:
        with zipfile.ZipFile(path) as workbook:
            members = workbook.infolist()
    except (zipfile.BadZipFile, OSError, ValueError):
        raise InputError("the file is not a workbook as its name says; save it again as .xlsx, or as CSV") from None
    _require(any(member.filename == "xl/workbook.xml" for member in members), "a workbook")
    _check_growth(path.stat().st_size, sum(member.file_size for member in members), limits)


def _check_parquet(path: Path, start: bytes, limits: UploadLimits) -> None:
    _require(start[:4] == b"PAR1", "Parquet")
    try:
        facts = pq.read_metadata(path)
        stored = sum(facts.row_group(group).total_byte_size for group in range(facts.num_row_groups))
        cells = facts.num_rows * facts.num_columns
    except (pa.ArrowException, OSError, ValueError):
        raise InputError("the file is damaged, cut short or not Parquet; export it again") from None
    _check_growth(path.stat().st_size, stored, limits)
    _check_growth(cells * _CELL_BYTES, cells * _CELL_BYTES, limits)  # a column of one value takes no space in the file


def _check_growth(size: int, expanded: int, limits: UploadLimits) -> None:
    large = expanded > limits.free_bytes and expanded > limits.ratio * size
    if large or expanded > limits.expanded_bytes:
        raise InputError(
            "the file is small and its content is enormous, as in a file made to exhaust a machine; upload the table "
            "without compression if it is real"
        )


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InputError(f"the content of the file is not {what}, which its name says; nothing was kept")


def _too_large(limits: UploadLimits) -> str:
    return (
        f"the file is larger than {limits.size_bytes / 1e9:g} GB; copy it to this machine and give its path instead. "
        "Nothing was kept"
    )
