"""The partial release: every line is complete or not there, whatever the disk does."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from understudy.release.partial import PartialWriter

import understudy as us
from understudy.accounting.charge import gaussian
from understudy.errors import OutputError, ReleaseError
from understudy.release import partial, read_partial
from understudy.schema import Recoding

CHARGE = gaussian("measure", (("a",),), 1, share=Fraction(1, 3))
MEASURED = us.Measurement(("a",), np.array([3, -1, 4]), 2.5)
NONE = Recoding.identity()


@pytest.fixture
def writer(tmp_path):
    writer = PartialWriter(tmp_path / "r.partial", {"hello": 1})
    yield writer
    writer.close(keep=True)


def test_what_is_written_is_read(writer):
    merging = Recoding({"a": np.array([0, 1, 1])})
    writer.charged([CHARGE, CHARGE])
    writer.measured(MEASURED, NONE)
    writer.measured(us.Measurement(("b",), np.array([1, 2]), 1.0, noise="laplace"), merging)
    held = read_partial(writer.path)
    assert held.run == {"hello": 1}
    assert held.charges == (CHARGE, CHARGE)
    assert [m.clique for m in held.measurements] == [("a",), ("b",)]
    assert held.measurements[0].values.tolist() == [3, -1, 4]
    assert held.measurements[1].noise == "laplace"
    assert held.recoding == merging


def test_a_run_that_goes_on_is_for_its_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        writer = PartialWriter(tmp_path / "r.partial", {"hello": 1})
    finally:
        os.umask(before)
    writer.close(keep=True)
    PartialWriter.again(writer.path).close(keep=True)
    assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600


def test_an_answer_is_counted_before_it_is_on_record_and_nobody_gets_it_before_the_number_is_durable(writer):
    """In the other order, an older copy would not be known as one where the process was killed in between."""
    seen = []

    class Watching:
        def rise_to(self, number):
            return lambda: seen.append((number, b"answer" in writer.path.read_bytes()))

        def settle(self):
            seen.append(("settled", b"answer" in writer.path.read_bytes()))

        def close(self):
            pass

    writer.count(Watching(), 4)
    writer.answered({"clique": ["a"]})
    assert seen == [(5, False), ("settled", True)]


def test_every_state_of_the_file_is_readable(writer):
    """Killed at any byte, the file holds all lines that were complete by then."""
    writer.charged([CHARGE])
    writer.measured(MEASURED, NONE)
    writer.close(keep=True)
    whole = writer.path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) + 1, 7):
        writer.path.write_bytes(whole[:length])
        held = read_partial(writer.path)
        complete = whole[:length].count(b"\n")
        assert len(held.charges) >= min(complete, 2) - 1
        assert len(held.measurements) >= complete - 2


def test_room_is_taken_at_the_start_and_given_back_at_the_end(tmp_path):
    writer = PartialWriter(tmp_path / "r.partial", {}, reserve_bytes=10_000)
    assert writer.path.stat().st_size > 10_000
    writer.charged([CHARGE])
    writer.close(keep=True)
    assert writer.path.stat().st_size < 1000
    assert read_partial(writer.path).charges == (CHARGE,)


def test_what_is_not_kept_is_gone(tmp_path):
    writer = PartialWriter(tmp_path / "r.partial", {})
    writer.close(keep=False)
    writer.close(keep=False)
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_run_is_never_written_over(tmp_path):
    (tmp_path / "r.partial").write_text("paid for")
    with pytest.raises(OutputError, match="Finish it with `understudy resume"):
        PartialWriter(tmp_path / "r.partial", {})
    assert (tmp_path / "r.partial").read_text() == "paid for"


def test_a_disk_that_is_full_at_the_start_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(partial, "_write", _failing(0))
    with pytest.raises(OutputError, match="Nothing was spent"):
        PartialWriter(tmp_path / "r.partial", {})
    assert list(tmp_path.iterdir()) == []


def _failing(good_bytes):
    """A `_write` that puts down so many bytes of the next line and then finds the disk full."""

    def write(file, data):
        os.write(file.fileno(), data[:good_bytes])
        raise OSError(errno.ENOSPC, "No space left on device")

    return write


def test_a_charge_that_cannot_be_written_stops_the_run(writer, monkeypatch):
    monkeypatch.setattr(partial, "_write", _failing(5))
    with pytest.raises(OutputError, match="stops before reading rows"):
        writer.charged([CHARGE])
    monkeypatch.undo()
    writer.charged([CHARGE])
    assert read_partial(writer.path).charges == (CHARGE,)


@pytest.mark.parametrize("torn", [0, 1, 40])
def test_a_measurement_that_does_not_fit_moves_to_another_disk(writer, monkeypatch, torn):
    writer.charged([CHARGE, CHARGE])
    writer.measured(MEASURED, NONE)
    old, original = writer.path, partial._write

    def write(file, data):
        if os.fstat(file.fileno()).st_ino == inode:
            _failing(torn)(file, data)
        original(file, data)

    inode = old.stat().st_ino
    monkeypatch.setattr(partial, "_write", write)
    writer.measured(us.Measurement(("b",), np.array([5]), 1.0), NONE)
    assert writer.path != old
    assert not old.exists()
    writer.measured(us.Measurement(("c",), np.array([6]), 1.0), NONE)
    held = read_partial(writer.path)
    assert [m.clique for m in held.measurements] == [("a",), ("b",), ("c",)]
    assert held.charges == (CHARGE, CHARGE)


def test_an_answer_is_given_up_where_the_old_file_would_stay_beside_the_new_one(writer, monkeypatch):
    writer.charged([CHARGE])
    old, original, unlink = writer.path, partial._write, Path.unlink
    inode, known = old.stat().st_ino, set(Path(tempfile.gettempdir()).glob("*.partial"))

    def write(file, data):
        if os.fstat(file.fileno()).st_ino == inode:
            raise OSError(errno.EROFS, "Read-only file system")
        original(file, data)

    def stays(path, **rest):
        if path == old:
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(path, **rest)

    monkeypatch.setattr(partial, "_write", write)
    monkeypatch.setattr(Path, "unlink", stays)
    with pytest.raises(OSError, match="Read-only"):
        writer.measured(MEASURED, NONE)
    assert writer.path == old
    assert set(Path(tempfile.gettempdir()).glob("*.partial")) == known
    assert read_partial(old).measurements == ()
    writer.close(keep=True)


def test_if_no_disk_has_room_what_was_written_stays(writer, monkeypatch):
    writer.charged([CHARGE])
    writer.measured(MEASURED, NONE)
    monkeypatch.setattr(partial, "_write", _failing(9))
    with pytest.raises(OSError, match="No space"):
        writer.measured(us.Measurement(("b",), np.array([5]), 1.0), NONE)
    writer.close(keep=True)
    held = read_partial(writer.path)
    assert [m.clique for m in held.measurements] == [("a",)]


def test_short_writes_are_continued(writer, monkeypatch):
    class Slow:
        def __init__(self, file):
            self._file = file

        def write(self, view):
            return self._file.write(view[:3])

        def __getattr__(self, name):
            return getattr(self._file, name)

    monkeypatch.setattr(writer, "_file", Slow(writer._file))
    writer.charged([CHARGE])
    monkeypatch.undo()
    assert read_partial(writer.path).charges == (CHARGE,)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello\nworld\n",
        b"{}\n",
        b"[]\n[]\n",
        b'{"run": {}}\nnonsense\n{"charge": {}}\n',
        b'{"run": {}}\n{"charge": {}}\n',
        b'{"run": {}}\n{"charge": 3}\n',
        b'{"run": {}}\n{"measurement": {"clique": ["a"]}, "recoding": {}}\n',
        b'{"run": {}}\n{"measurement": [], "recoding": {}}\n',
        b'{"run": {}}\n{"recoding": {"a": ["x"]}}\n',
        b'{"run": {}}\n' + b"[" * 100_000 + b"\n{}\n",
        b"\xff\xfe\n",
    ],
)
def test_what_is_no_partial_release_is_told_so(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ReleaseError, match="not a partial release"):
        read_partial(tmp_path / "f")


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ReleaseError, match="no such file"):
        read_partial(tmp_path / "nothing")


def test_objects_are_never_read(writer):
    writer.charged([CHARGE])
    writer.measured(MEASURED, NONE)
    writer.close(keep=True)
    lines = writer.path.read_bytes().split(b"\n")
    forged = json.loads(lines[2])
    forged["measurement"]["values"]["dtype"] = "|O"
    lines[2] = json.dumps(forged).encode()
    writer.path.write_bytes(b"\n".join(lines))
    with pytest.raises(ReleaseError, match="damaged"):
        read_partial(writer.path)


def test_an_array_that_unpacks_to_far_more_than_it_seems_is_refused(writer, monkeypatch):
    zeros = us.Measurement(("a",), np.zeros(1 << 16, np.int64), 2.5)
    writer.measured(zeros, NONE)
    assert len(read_partial(writer.path).measurements[0].values) == 1 << 16
    monkeypatch.setattr(partial, "_ARRAY_BYTES", 1 << 10)
    with pytest.raises(ReleaseError, match="damaged"):
        read_partial(writer.path)


def test_whatever_is_measured_can_be_read(writer, monkeypatch):
    monkeypatch.setattr(partial, "_ARRAY_BYTES", 1 << 10)
    writer.measured(us.Measurement(("a",), np.zeros(1 << 16, np.int64), 2.5), NONE)
    writer.close(keep=True)
    assert len(read_partial(writer.path).measurements[0].values) == 1 << 16
