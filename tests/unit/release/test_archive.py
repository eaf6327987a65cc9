"""The release file: the same bytes for the same content, and no flipped bit, cut or edit goes unnoticed."""

from __future__ import annotations

import hashlib
import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import understudy as us
from understudy.errors import OutputError, ReleaseError
from understudy.release import archive
from understudy.release.archive import read_archive, write_archive

MANIFEST = {"hello": ["world", 1.5, None]}
ARRAYS = {"x/values": np.arange(5), "x/none": np.zeros((0,)), "total": np.array(2.5)}


@pytest.fixture
def release(tmp_path):
    frame = pl.DataFrame({"a": [0, 1, 2, 1], "b": [0, 1, 1, 0]})
    made = us.synthesize(frame, us.Schema.from_domain({"a": 3, "b": 2}), epsilon=1.0, delta=1e-6)
    made.save(tmp_path / "r.release")
    return made, tmp_path / "r.release"


def test_what_is_written_is_read(tmp_path):
    write_archive(tmp_path / "f", MANIFEST, ARRAYS)
    manifest, arrays = read_archive(tmp_path / "f")
    assert manifest["hello"] == MANIFEST["hello"]
    assert manifest["format"] == archive.FORMAT
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert np.array_equal(arrays[name], array)


def test_the_same_content_gives_the_same_bytes(tmp_path, monkeypatch):
    write_archive(tmp_path / "one", MANIFEST, ARRAYS)
    monkeypatch.setattr("time.time", lambda: 4e9)
    write_archive(tmp_path / "another name", MANIFEST, ARRAYS)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "another name").read_bytes()


def test_any_zip_tool_can_open_it_and_no_member_shows_a_time(tmp_path):
    write_archive(tmp_path / "f", MANIFEST, ARRAYS)
    with zipfile.ZipFile(tmp_path / "f") as file:
        assert file.testzip() is None
        assert {info.date_time for info in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert not any(info.extra or info.comment for info in file.infolist())


def test_every_flipped_bit_is_noticed(tmp_path):
    write_archive(tmp_path / "f", MANIFEST, {"x": np.arange(3)})
    whole = (tmp_path / "f").read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(ReleaseError):
            read_archive(tmp_path / "damaged")


def test_every_cut_and_every_addition_is_noticed(tmp_path):
    write_archive(tmp_path / "f", MANIFEST, {"x": np.arange(3)})
    whole = (tmp_path / "f").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(ReleaseError):
            read_archive(tmp_path / "cut")
    for longer in (whole + b"\0", b"\0" + whole, whole + whole):
        (tmp_path / "longer").write_bytes(longer)
        with pytest.raises(ReleaseError):
            read_archive(tmp_path / "longer")


def members_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def seal(path: Path, members: dict[str, bytes]) -> None:
    """Write members as someone would who knows about the digest of the whole file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
        file.comment = bytes(64)
    content = buffer.getvalue()[:-64]
    path.write_bytes(content + hashlib.sha256(content).hexdigest().encode())


def forge(path: Path, change) -> None:
    """The file as someone would write it who knows about every digest: `change` edits manifest and members."""
    members = members_of(path)
    manifest = json.loads(members.pop("release.json"))
    members.pop("release.sha256")
    change(manifest, members)
    manifest["members"] = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    page = json.dumps(manifest).encode()
    seal(path, {"release.json": page, "release.sha256": hashlib.sha256(page).hexdigest().encode(), **members})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update({"release.json": m["release.json"].replace(b"world", b"w0rld")}), "release.json was"),
        (lambda m: m.update({"x/values.npy": m["total.npy"]}), "part x/values.npy was damaged or altered"),
        (lambda m: m.pop("total.npy"), "its parts do not match"),
        (lambda m: m.update({"extra.npy": m["total.npy"]}), "its parts do not match"),
        (lambda m: m.pop("release.sha256"), "release.json was damaged or altered"),
    ],
)
def test_an_altered_member_is_noticed_even_in_a_file_that_was_sealed_again(tmp_path, change, words):
    write_archive(tmp_path / "f", MANIFEST, ARRAYS)
    members = members_of(tmp_path / "f")
    change(members)
    seal(tmp_path / "f", members)
    with pytest.raises(ReleaseError, match=f"{words}.*fresh copy"):
        read_archive(tmp_path / "f")


def test_a_file_that_a_zip_tool_wrote_again_is_noticed(tmp_path):
    write_archive(tmp_path / "f", MANIFEST, ARRAYS)
    members = members_of(tmp_path / "f")
    seal(tmp_path / "f", members)
    read_archive(tmp_path / "f")
    with zipfile.ZipFile(tmp_path / "f", "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    with pytest.raises(ReleaseError, match="was damaged or altered; ask for a fresh copy"):
        read_archive(tmp_path / "f")


def test_a_newer_format_says_what_to_install(tmp_path):
    write_archive(tmp_path / "f", MANIFEST, ARRAYS, number=7)
    with pytest.raises(ReleaseError, match=r"has format 7 .* install a newer understudy"):
        read_archive(tmp_path / "f")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "not a release file"), (b"hello", "not a release file"), (b"PK\x05\x06" + bytes(18), "no release.json")],
)
def test_anything_but_a_release_is_reported(tmp_path, content, words):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ReleaseError, match=words):
        read_archive(tmp_path / "f")


def test_a_missing_file_and_a_folder_are_reported(tmp_path):
    with pytest.raises(ReleaseError, match="no such file"):
        read_archive(tmp_path / "nothing")
    with pytest.raises(ReleaseError, match="is a folder; give the release file in it"):
        read_archive(tmp_path)


def _set(manifest, path, value):
    *steps, last = path
    for step in steps:
        manifest = manifest[step]
    manifest[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("default_rows",), -1),
        (("default_rows",), "many"),
        (("default_rows",), True),
        (("receipt", "budget", "rho"), "1e999999999"),
        (("receipt", "budget", "rho"), "1/0"),
        (("receipt", "budget", "rho"), "1/1000000"),
        (("receipt", "charges", 0, "rho"), "5"),
        (("receipt", "neighbours", "max_rows"), 0),
        (("receipt",), {}),
        (("schema",), {}),
        (("schema", "fields"), []),
        (("model", "kind"), "oracle"),
        (("model", "arrays"), {}),
        (("model", "arrays", "shares"), {"@array": "nowhere"}),
        (("measurements", 0, "sigma"), -1),
        (("measurements", 0, "query"), 3),
        (("recoding",), {"a": [0, 5]}),
        (("format",), 0),
        (("format",), "1"),
        (("format",), True),
    ],
)
def test_a_forged_file_that_contradicts_itself_is_refused(release, path, value):
    _, file = release
    forge(file, lambda manifest, members: _set(manifest, path, value))
    with pytest.raises(ReleaseError):
        us.Release.load(file)


def test_the_forger_of_these_tests_can_forge(release):
    """The refusals above are not for a clumsy forgery: an honest copy made in the same way loads."""
    made, file = release
    forge(file, lambda manifest, members: None)
    assert us.Release.load(file).sample(seed=1).equals(made.sample(seed=1, as_="arrow"))


def test_nothing_is_unpickled(release):
    _, file = release
    poison = io.BytesIO()
    np.save(poison, np.array([print], dtype=object), allow_pickle=True)
    forge(file, lambda manifest, members: members.update({"model/shares.npy": poison.getvalue()}))
    with pytest.raises(ReleaseError, match="array cannot be read"):
        us.Release.load(file)


def test_a_deeply_nested_page_is_refused(release):
    _, file = release

    def nest(manifest, members):
        deep = None
        for _ in range(900):
            deep = [deep]
        manifest["settings"] = deep

    forge(file, nest)
    with pytest.raises(ReleaseError):
        us.Release.load(file)


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OutputError, match=r"could not be written .No space left"):
        write_archive(tmp_path / "f", MANIFEST, ARRAYS)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    path = tmp_path / "large.release"
    write_archive(path, {}, {"zeros": np.zeros(1 << 20)})
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("unpacked"))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1 << 20))
    with pytest.raises(ReleaseError, match="more than half of the free memory"):
        read_archive(path)


def pack(path: Path, page: bytes, members: dict[str, bytes] | None = None, method: int = zipfile.ZIP_DEFLATED) -> None:
    """A file with this page, compressed and sealed as a release is, and whatever members it claims to have."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr("release.json", page)
        file.writestr("release.sha256", hashlib.sha256(page).hexdigest())
        for name, data in (members or {}).items():
            file.writestr(name, data)
        file.comment = bytes(64)
    content = buffer.getvalue()[:-64]
    path.write_bytes(content + hashlib.sha256(content).hexdigest().encode())


@pytest.mark.parametrize("brackets", [43_000_000, 5_000_000])
def test_a_small_file_that_stands_for_gigabytes_is_refused_in_little_memory(tmp_path, brackets):
    pack(tmp_path / "f", b'{"format": 1, "members": {}, "x": [' + b"{}," * brackets + b"0]}")
    assert (tmp_path / "f").stat().st_size < 200_000
    tracemalloc.start()
    try:
        with pytest.raises(ReleaseError):
            us.Release.load(tmp_path / "f")
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("header", ["honest", "lying"])
def test_arrays_that_stand_for_far_more_than_the_file_are_refused_in_little_memory(tmp_path, header):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "<f8", "fortran_order": False, "shape": (40_000_000 if header == "honest" else 10**13,)}
    )
    data = buffer.getvalue() + bytes(8 * 40_000_000 if header == "honest" else 800)
    page = {"format": 1, "members": {"x.npy": hashlib.sha256(data).hexdigest()}}
    pack(tmp_path / "f", json.dumps(page).encode(), {"x.npy": data})
    del data, buffer
    tracemalloc.start()
    try:
        with pytest.raises(
            ReleaseError, match="far more than any release" if header == "honest" else "array cannot be read"
        ):
            read_archive(tmp_path / "f")
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_other_ways_to_compress_are_refused(tmp_path):
    pack(tmp_path / "f", b'{"format": 1, "members": {}}')
    read_archive(tmp_path / "f")
    pack(tmp_path / "f", b'{"format": 1, "members": {}}', method=zipfile.ZIP_LZMA)
    with pytest.raises(ReleaseError, match="not a release file"):
        read_archive(tmp_path / "f")


@pytest.mark.parametrize(("name", "limit"), [("_PAGE_BYTES", 10), ("_ARRAY_BYTES", 10), ("_VALUES", 1)])
def test_whatever_is_written_can_be_read(tmp_path, monkeypatch, name, limit):
    """A release that compresses very well was paid for as any other: it is written so that the reader takes it."""
    manifest, arrays = {"weights": [1] * 100_000}, {"zeros": np.zeros(100_000)}
    write_archive(tmp_path / "compressed", manifest, arrays)
    monkeypatch.setattr(archive, name, limit)
    with pytest.raises(ReleaseError):
        read_archive(tmp_path / "compressed")
    write_archive(tmp_path / "f", manifest, arrays)
    found, read = read_archive(tmp_path / "f")
    assert found["weights"] == manifest["weights"]
    assert np.array_equal(read["zeros"], arrays["zeros"])


@pytest.mark.parametrize("dtype", ["<U4", "<c16", "<M8[D]", [("a", "<i8")], "|O", "|V8", "|S3"])
def test_arrays_of_anything_but_plain_numbers_are_refused(tmp_path, dtype):
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3, dtype=dtype), allow_pickle=True)
    page = {"format": 1, "members": {"x.npy": hashlib.sha256(buffer.getvalue()).hexdigest()}}
    pack(tmp_path / "f", json.dumps(page).encode(), {"x.npy": buffer.getvalue()})
    with pytest.raises(ReleaseError, match="array cannot be read"):
        read_archive(tmp_path / "f")
