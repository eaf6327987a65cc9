"""The partial release: what a run has paid for, written the moment it exists, so that nothing paid for is lost.

A text file of JSON lines: the run, then each charge before a row is read for it, then each measurement. The file is
given its expected size at the start and filled in place, so a disk that fills up later cannot stop it. A line cut short
by a crash is ignored when the file is read.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.accounting.charge import Charge
from understudy.errors import OutputError, ReleaseError, UnderstudyError
from understudy.measurement import Measurement
from understudy.notation import read_json
from understudy.page import OWNER
from understudy.privacy.records.answered import Answered
from understudy.release.pack import measurement_data, measurement_from
from understudy.schema import Recoding

_LARGEST_RESERVE = 1 << 28
_ARRAY_BYTES = 1 << 28


class PartialWriter:
    """The journal of a run: charges and measurements go to disk before anything else happens with them.

    Args:
        path: the partial file; its folder exists.
        run: plain data from which the run can be finished: schema, mechanism, settings, receipt without charges.
        reserve_bytes: how much room to take at once.

    Raises:
        OutputError: when the file cannot be made, or is there already. Nothing was spent.
    """

    _answered: Answered | None = None
    _answers = 0

    def __init__(self, path: Path, run: Mapping[str, Any], *, reserve_bytes: int = 1 << 16) -> None:
        self.path = path
        first = _line({"run": run})
        self._end = 0
        try:
            self._file: FileIO = FileIO(path, "x", opener=_for_its_owner)
        except FileExistsError:
            raise unfinished(path) from None
        except OSError:
            raise OutputError(f"{path} cannot be written; choose another output. Nothing was spent") from None
        _claim(self._file)
        try:
            _write(self._file, b"\n" * (len(first) + min(reserve_bytes, _LARGEST_RESERVE)))
            self._put(first)
        except OSError:
            self.close(keep=False)
            raise OutputError(f"{path} cannot be written; choose another output. Nothing was spent") from None
        except BaseException:
            self.close(keep=False)
            raise

    @classmethod
    def again(cls, path: Path, *, reserve_bytes: int = 1 << 16) -> PartialWriter:
        """Go on writing a partial file after its last complete line.

        Raises:
            OutputError: when the file cannot be written.
        """
        writer = cls.__new__(cls)
        writer.path = path
        try:
            writer._end = _complete(path.read_bytes())
            writer._file = path.open("r+b", buffering=0)
            _claim(writer._file)
            writer._file.truncate(writer._end)
            writer._file.seek(writer._end - 1)  # the end of the last line, which a crash or an editor may have taken
            _write(writer._file, b"\n" * (1 + min(reserve_bytes, _LARGEST_RESERVE)))
        except OSError:
            raise OutputError(f"{path} cannot be written any more; nothing was spent now") from None
        return writer

    def count(self, answered: Answered, already: int) -> None:
        """From now on, write down elsewhere how many answers there are: an older copy of this file has fewer."""
        if self._answered is None:
            self._answered, self._answers = answered, already

    def charged(self, charges: Sequence[Charge]) -> None:
        """Write charges down.

        Raises:
            OutputError: when that fails; no row was read for them.
        """
        lines = b"".join(_line({"charge": charge.to_dict()}) for charge in charges)
        self._put_first(lines, "the run stops before reading rows")

    def measured(self, measurement: Measurement, recoding: Recoding) -> None:
        """Write a measurement down; if the disk refuses, continue in another folder rather than lose what was paid."""
        self._keep({"measurement": _portable(measurement_data(measurement)), "recoding": recoding.to_dict()})

    def seeded(self) -> None:
        """Write down that noise is drawn in test mode: whatever is made of this file is marked.

        Raises:
            OutputError: when that fails; nothing was drawn yet.
        """
        self._put_first(_line({"insecure": True}), "the run stops before reading rows")

    def gone_on(self, attempt: str) -> None:
        """Write down that another attempt goes on from here.

        Raises:
            OutputError: when that fails; nothing was asked yet.
        """
        self._put_first(_line({"attempt": attempt}), "nothing was spent now")

    def answered(self, answer: Any) -> None:
        """Write the answer of a selection or of scores down; if the disk refuses, continue in another folder."""
        self._keep({"answer": answer})

    def bought(self, schema: Mapping[str, Any]) -> None:
        """Write the schema down that was bought; if the disk refuses, continue in another folder."""
        self._keep({"bought": schema})

    def close(self, *, keep: bool) -> None:
        """Stop writing; `keep` leaves the file, cut to what was written, for `understudy resume`."""
        if self._answered is not None:
            self._answered.close()
        if not self._file.closed:
            with suppress(OSError), self._file:
                self._file.truncate(self._end)
        if not keep:
            self.path.unlink(missing_ok=True)

    def _put_first(self, line: bytes, otherwise: str) -> None:
        """Write down what must stand before the run goes on."""
        try:
            self._put(line)
        except OSError:
            raise OutputError(f"{self.path} cannot be written any more; {otherwise}") from None

    def _keep(self, record: Mapping[str, Any]) -> None:
        line = _line(record)
        self._answers += 1
        count = None if self._answered is None else self._answered.rise_to(self._answers)
        try:
            self._put(line, count)
        except OSError:
            self._move(line)
        if self._answered is not None:
            self._answered.settle()

    def _put(self, data: bytes, count: Callable[[], None] | None = None) -> None:
        """Write after the last complete line, right after `count`; what a failed attempt left there is written over."""
        self._file.seek(self._end)
        if count is not None:
            count()
        _write(self._file, data)
        self._end += len(data)  # before what takes time: interrupted there, the line stays
        try:
            os.fsync(self._file.fileno())
        except OSError:
            self._end -= len(data)
            raise

    def _move(self, line: bytes) -> None:
        """Continue in the folder for temporary files; the old file goes once the new one holds everything.

        **Privacy.** Where the old one cannot go, neither does the answer: two files that differ in it could both be
        gone on with, and the question would be answered twice for one price.
        """
        whole = self.path.read_bytes()[: self._end] + line
        handle, name = tempfile.mkstemp(prefix=f"{self.path.name}.", suffix=".partial")
        old, old_path, old_end = self._file, self.path, self._end
        self._file, self.path, self._end = FileIO(handle, "wb"), Path(name), 0
        _claim(self._file)
        try:
            self._put(whole)
            old.close()
            old_path.unlink(missing_ok=True)
        except OSError:
            self.close(keep=False)
            self._file, self.path, self._end = old, old_path, old_end
            raise


def unfinished(path: Path) -> OutputError:
    """The refusal to run over what another run has paid for, which goes on or was interrupted."""
    if in_use(path):
        return OutputError(
            f"another run is writing {path}; wait for it, or choose another output. Nothing was spent now"
        )
    return OutputError(
        f"{path} is there already: an interrupted run that was paid for. Finish it with `understudy resume {path}`, "
        "or delete it; nothing was spent now"
    )


def in_use(path: Path) -> bool:
    """Whether a run is still writing the file; the claim of one that was killed is gone with it."""
    try:
        with path.open("rb", buffering=0) as file:
            return not _claim(file)
    except OSError:
        return False


def _claim(file: FileIO) -> bool:
    """Hold the file until it is closed, where the system and its disks can do that; False where somebody else does."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True


@dataclass(frozen=True)
class Partial:
    """What a partial file holds.

    Attributes:
        run: the run's plain data.
        charges: what was paid.
        measurements: what was measured before the run stopped.
        recoding: the merged codes in force for the last measurement.
        schema: the run's schema, with what was bought before the first measurement.
        records: charges, measurements and other answers in the order in which they were written.
        attempts: the marks of attempts that went on with the run.
    """

    run: Mapping[str, Any]
    charges: tuple[Charge, ...]
    measurements: tuple[Measurement, ...]
    recoding: Recoding
    schema: Mapping[str, Any] = field(default_factory=dict)
    records: tuple[Any, ...] = ()
    attempts: tuple[str, ...] = ()

    @property
    def answers(self) -> int:
        """How many answers are on record; facts that were bought together are one."""
        return len(self.records) - len(self.charges) + int(self.schema != self.run.get("schema", {}))


def read_partial(path: str | PathLike[str]) -> Partial:
    """Read a partial file; a last line cut short by a crash is ignored.

    Raises:
        ReleaseError: when the file is missing, or not a partial release.
    """
    try:
        lines = [line for line in Path(path).read_bytes().split(b"\n") if line.strip(b"\0 \r")]
    except OSError:
        raise ReleaseError(f"{path}: there is no such file, or it cannot be read") from None
    records = [_parsed(line, last=i == len(lines) - 1, path=path) for i, line in enumerate(lines)]
    try:
        run = records[0]["run"]
        if any(record.get("insecure") for record in records):
            run = {**run, "receipt": {**run["receipt"], "insecure": True}}
        recodings = [record["recoding"] for record in records if "recoding" in record]
        told = tuple(_told(record) for record in records if {"charge", "measurement", "answer"} & set(record))
        return Partial(
            run=run,
            charges=tuple(record for record in told if isinstance(record, Charge)),
            measurements=tuple(record for record in told if isinstance(record, Measurement)),
            records=told,
            attempts=tuple(str(record["attempt"]) for record in records if "attempt" in record),
            recoding=Recoding.from_dict(recodings[-1]) if recodings else Recoding.identity(),
            schema=next(
                (record["bought"] for record in reversed(records) if "bought" in record), run.get("schema", {})
            ),
        )
    except (LookupError, TypeError, ValueError, AttributeError, MemoryError, zlib.error, UnderstudyError):
        raise ReleaseError(f"{path} is not a partial release, or it is damaged") from None


def _told(record: Mapping[str, Any]) -> Any:
    if "charge" in record:
        return Charge.from_dict(record["charge"])
    return _measurement(record["measurement"]) if "measurement" in record else record["answer"]


def _complete(content: bytes) -> int:
    """Where the last complete line ends; the room that was taken in advance and a line cut short come after it."""
    end = len(content.rstrip(b"\n\0"))
    start = content.rfind(b"\n", 0, end) + 1
    try:
        read_json(content[start:end])
    except ValueError:
        return start
    return end + 1


def _for_its_owner(path: str, flags: int) -> int:
    """Opened so that nobody else can read it: others see a run when it is finished, not while it goes on."""
    return os.open(path, flags, OWNER)


def _write(file: FileIO, data: bytes) -> None:
    """All of it: one call may write less than it was given."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes, *, last: bool, path: str | PathLike[str]) -> dict[str, Any]:
    try:
        record = read_json(line)
    except ValueError:
        if last:
            return {}
        raise ReleaseError(f"{path} is not a partial release, or it is damaged") from None
    return record if isinstance(record, dict) else {}


def _portable(data: Any) -> Any:
    if isinstance(data, np.ndarray):
        content = np.ascontiguousarray(data).tobytes()
        packed = zlib.compress(content, 1)
        if len(content) > _most_bytes(packed):
            packed = zlib.compress(content, 0)
        return {"dtype": data.dtype.str, "data": base64.b64encode(packed).decode()}
    if isinstance(data, dict):
        return {key: _portable(value) for key, value in data.items()}
    return data


def _measurement(data: dict[str, Any]) -> Measurement:
    return measurement_from({key: _array(value) for key, value in data.items()})


def _array(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"dtype", "data"}:
        return _bytes_array(value["data"], np.dtype(value["dtype"]))
    if isinstance(value, dict):
        return {key: _array(item) for key, item in value.items()}
    return value


def _bytes_array(data: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind not in "biuf":
        raise ValueError("plain numbers alone are read")
    packed = base64.b64decode(data)
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(packed, _most_bytes(packed))
    if not unpacker.eof:
        raise ValueError("cut short, or far larger than it seems")
    return np.frombuffer(content, dtype=dtype).copy()


def _most_bytes(packed: bytes) -> int:
    """How much packed bytes may stand for: a few kilobytes of a damaged or hostile file must not fill the memory."""
    return _ARRAY_BYTES + 100 * len(packed)
