"""The folder of a run: what it holds, which run it belongs to, and who is working in it now."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from understudy.errors import OutputError
from understudy.journey.file import RunFile
from understudy.notation import read_json
from understudy.page import written

FORMAT = 1
_MARKER, _LOCK = "run.json", ".run.lock"


class Folder:
    """A run's folder. All paths that a run writes are named here.

    Args:
        path: the folder.
        file: the run that wants it.
    """

    def __init__(self, path: str | Path, file: RunFile) -> None:
        self.path, self.file = Path(path), file
        before = "rehearsal-" if file.rehearsal else ""
        self.release = self.path / f"{before}stand-in.release"
        self.partial = self.release.with_name(self.release.name + ".partial")
        outputs = file.outputs
        self.rows = [self.path / f"{before}rows.{kind}" for kind in outputs["rows"]]
        reports = {"public": "report.html", "custodian": "report.custodian-only.html"}
        self.reports = {kind: self.path / f"{before}{reports[kind]}" for kind in outputs["report"]}
        self.marker = self.path / _MARKER

    @property
    def files(self) -> list[Path]:
        """Everything that a finished run leaves."""
        return [self.release, *self.rows, *self.reports.values()]

    def finished(self) -> dict[str, Any] | None:
        """What is known of a finished run of the same file, all of whose files are there; else None.

        Raises:
            OutputError: when the folder belongs to another run.
        """
        state = self._state()
        if state is None or "facts" not in state or not all(file.exists() for file in self.files):
            return None
        return self.summary(state["facts"])

    def summary(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Facts about the release, and where the files are."""
        return {
            "folder": str(self.path),
            "release": str(self.release),
            "rows": [str(path) for path in self.rows],
            "reports": {kind: str(path) for kind, path in self.reports.items()},
            "rehearsal": self.file.rehearsal,
            **facts,
        }

    def opened(self) -> str:
        """The mark of this run, which the folder now belongs to.

        Raises:
            OutputError: when it belongs to another run or holds something else.
        """
        state = self._state()
        if state is None:
            mark = secrets.token_hex(16)
            begun = {"format": FORMAT, "run": mark, "place": self._place(mark)}
            self._write(begun | {"fingerprint": self.file.fingerprint()})
            state = self._state() or {}
        for kept in self.path.glob(".*.tmp"):  # drafts of an attempt that was killed
            with suppress(OSError):
                kept.unlink()
        return str(state["run"])

    @property
    def moved(self) -> bool:
        """Whether the run was begun in another place, of which this may be a copy."""
        state = self._state() or {}
        return "place" in state and state["place"] != self._place(state["run"])

    def _place(self, mark: str) -> str:
        """A digest: the folder may be handed on, and a path may name people."""
        return hashlib.sha256(mark.encode() + os.fsencode(self.path.resolve())).hexdigest()[:32]

    def close(self, facts: Mapping[str, Any]) -> None:
        """Write down that the run is finished, with public facts about its release."""
        state = self._state() or {}
        self._write(state | {"facts": dict(facts)})

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Work in the folder alone; a lock dies with its process, so one that was killed does not hold it.

        Raises:
            OutputError: when the folder cannot be made, or another process works in it.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / _LOCK).open("a")
        except OSError:
            raise OutputError(f"the folder {self.path} cannot be made or written; choose another") from None
        with lock:
            if not _locked(lock):
                raise OutputError(f"another run is working in {self.path}; wait for it, or choose another folder")
            yield

    def _state(self) -> dict[str, Any] | None:
        try:
            state = read_json(self.marker.read_bytes())
            fingerprint, mark = dict(state["fingerprint"]), str(state["run"])
        except (FileNotFoundError, NotADirectoryError):
            self._check_empty()
            return None
        except OSError:
            raise OutputError(f"{self.marker} cannot be read; choose another folder. Nothing was spent now") from None
        except (ValueError, KeyError, TypeError):
            raise OutputError(f"{self.marker} is damaged; choose another folder. Nothing was spent now") from None
        if state.get("format") != FORMAT:
            raise OutputError(
                f"{self.marker} was written by another version of understudy (format {state.get('format')}, this one "
                f"writes {FORMAT}); choose another folder, or finish it with that version. Nothing was spent now"
            )
        mine = self.file.fingerprint()
        if fingerprint != mine and "facts" not in state and not self._there(besides=_MARKER) and not _paid(mark):
            return None  # its run never began: whoever corrects the run file goes on in the same folder
        if fingerprint != mine:
            apart = sorted(key for key in {*mine, *fingerprint} if mine.get(key) != fingerprint.get(key))
            raise OutputError(
                f"{self.path} holds another run: it differs in {', '.join(apart)}. Choose another folder, or give the "
                "file as it was. Nothing was spent now"
            )
        return {**state, "run": mark}

    def _check_empty(self) -> None:
        """No marker: then nothing else may be there, or it would be mixed with what is not ours."""
        if self._there():
            raise OutputError(f"{self.path} is not empty and holds no run; choose a new folder. Nothing was spent now")

    def _there(self, *, besides: str | None = None) -> list[str]:
        """What the folder holds, besides hidden files."""
        try:
            return [i.name for i in self.path.iterdir() if not i.name.startswith(".") and i.name != besides]
        except FileNotFoundError:
            return []
        except OSError:
            raise OutputError(f"{self.path} is not a folder that can be read; choose another") from None

    def _write(self, state: Mapping[str, Any]) -> None:
        try:
            with written(self.marker) as file:
                file.write((json.dumps(state, indent=1) + "\n").encode())
        except OSError:
            raise OutputError(f"{self.marker} cannot be written; choose another folder") from None


def _paid(mark: str) -> bool:
    """Whether a run is in the book, under whatever dataset."""
    from understudy.privacy.records.book import Book

    return any(Book().holds(dataset, mark) for dataset in Book().datasets())


def _locked(file: IO[str]) -> bool:
    """Whether the lock is ours now; it is given back when the file is closed or the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:
        return _locked_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _locked_on_windows(file: IO[str]) -> bool:
    import msvcrt

    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return False
    return True
