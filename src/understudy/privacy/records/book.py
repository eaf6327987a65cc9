"""The book: a plain local file per dataset name that remembers what earlier runs were allowed to spend.

A run's whole budget is written down before its first answer exists, so an interrupted run counts in full. The book is
for the custodian: it holds dataset names, times and budgets, and nothing computed from rows.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import IO, Any

from understudy.accounting.budget import Budget
from understudy.accounting.convert import epsilon_of
from understudy.accounting.exact import float_above, float_below, fraction_of, upwards
from understudy.arguments import as_path
from understudy.errors import BudgetExceeded, OutputError, SettingError
from understudy.gate.randomness import is_insecure
from understudy.page import written
from understudy.privacy.records.answered import Answered
from understudy.privacy.records.limit import Limit, entry_of, past_year, units

_FINISHED = "finished"
"""What the book says of a run instead of an attempt's mark once its release is there."""


@dataclass(frozen=True)
class Spent:
    """What the runs about one dataset may have revealed together.

    Attributes:
        runs: how many runs there were.
        rho: their sum in zCDP.
        epsilon: the smaller of two valid bounds at `delta`, or None when some run stated no epsilon and none a delta:
            what the sum of the rhos means, and the sum of the runs' own epsilons at the sum of their deltas.
        delta: the delta of that epsilon.
        mixed: whether the runs protect different units (a row, a person, one replaced); the sum then holds for none of
            them as it stands.

    **Guarantees.** The sum of several runs holds if their budgets were fixed in advance. Runs may ask whatever earlier
    answers suggest; but where the budget of a run was chosen by looking at earlier releases, this sum depends on them
    and bounds nothing. What holds then is a limit that was set before the first run (`Limit.used`).
    """

    runs: int
    rho: float
    epsilon: float | None
    delta: float | None
    mixed: bool = False

    def __str__(self) -> str:
        runs = "1 run" if self.runs == 1 else f"{self.runs} runs"
        note = (
            "; holds for budgets fixed in advance, not chosen by looking at earlier releases" if self.runs > 1 else ""
        )
        if self.mixed:
            note = "; the runs protect different units, so this sum is a guarantee for none of them"
        if self.epsilon is None:
            return f"{runs}, rho {upwards(self.rho)} in all{note}"
        return f"{runs}, epsilon {upwards(self.epsilon)} in all at delta {upwards(self.delta or 0.0)}{note}"


class Book:
    """The book of one folder.

    Args:
        folder: where its files are; by default `UNDERSTUDY_BOOK`, else the user's data folder.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        given = folder or os.environ.get("UNDERSTUDY_BOOK") or _default_folder()
        self.folder = as_path("folder of the book", given)

    def path(self, dataset: str) -> Path:
        """The file of a dataset.

        Raises:
            SettingError: when the name cannot name a file.
        """
        if not isinstance(dataset, str) or not re.fullmatch(r"[\w][\w .+-]{0,99}", dataset):
            raise SettingError(
                "dataset: use a name of letters, digits, blanks and . _ + - (at most 100). Where none is given "
                "(--dataset) it is the table's own, which may have others"
            )
        return self.folder / f"{dataset}.jsonl"

    def check(self, dataset: str) -> None:
        """Make sure that a run could be written down, and the sum told afterwards.

        Raises:
            OutputError: naming the file and the remedy; nothing was spent.
        """
        path = self.path(dataset)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8"):
                pass
        except OSError:
            raise OutputError(
                f"the book {path} cannot be written; set UNDERSTUDY_BOOK to a folder that can. Nothing was spent"
            ) from None
        self.spent(dataset)

    def append(
        self,
        dataset: str,
        budget: Budget,
        *,
        unit: str,
        run: str | None = None,
        limited: bool = False,
    ) -> bool:
        """Write a run's budget down, durably, before its first answer exists.

        Args:
            dataset: the dataset's name.
            budget: all that the run may spend.
            unit: who is protected, in words.
            run: the run's own mark; a run that is there already is not written again, so one that was killed and
                started again counts once.
            limited: refuse a run that would pass the yearly limit; of two at the same time, the second.

        Returns:
            Whether it was written. False says that the run was there already: of two attempts at the same time, the
            second, which must then ask nothing that is not on its record.

        Raises:
            SettingError: for a run in test mode: seeded noise never enters the book.
            BudgetExceeded: for a run past the limit.
            OutputError: when the file cannot be written.
        """
        if is_insecure():
            raise SettingError("the book refuses runs in test mode: their noise is seeded and protects nobody")
        entry = {"time": _now(), **entry_of(budget, unit)}
        entry |= {} if run is None else {"run": run}
        self.check(dataset)
        with self._alone(dataset) as file:
            if run is not None and self.holds(dataset, run):
                return False
            if limited and (passed := self.passed(dataset, budget, unit=unit)) is not None:
                raise BudgetExceeded(f"{passed}. Another run was quicker; nothing was spent")
            _write_line(file, json.dumps(entry))
            return True

    def went_on(self, dataset: str, run: str, attempt: str, *, known: Collection[str] = (), answers: int = 0) -> bool:
        """Write down that an attempt goes on with a run, before it asks anything else.

        Args:
            dataset: the dataset's name.
            run: the run's mark.
            attempt: the attempt's own mark.
            known: the marks of attempts that the attempt's record of the run knows.
            answers: how many answers the record holds.

        Returns:
            Whether it was written. False says that the record is an older copy: of two attempts at the same time that
            go on from one record, the second.

        Raises:
            OutputError: when the file cannot be written.
        """
        with self._alone(dataset) as file:
            if self.outdated(dataset, run, known=known, answers=answers):
                return False
            _write_line(file, json.dumps({"time": _now(), "run": run, "attempt": attempt}))
            return True

    def outdated(self, dataset: str, run: str, *, known: Collection[str], answers: int) -> bool:
        """Whether a run went on since a record of it was copied: in another attempt, or in the one that was copied."""
        attempt = self.attempt(dataset, run)
        return (attempt is not None and attempt not in known) or answers < Answered(self.folder, run).number

    @contextmanager
    def turn(self, dataset: str, run: str, attempt: str | None) -> Iterator[None]:
        """The moment in which an attempt counts its next answer; no other attempt goes on with the run until it ends.

        Args:
            dataset: the dataset's name.
            run: the run's mark.
            attempt: the attempt's own mark; None for the first.

        Raises:
            OutputError: when another attempt went on with the run since, or finished it. The answer goes to nobody.
        """
        with self._alone(dataset):
            if self.attempt(dataset, run) != attempt:
                raise OutputError(
                    "another process went on with a copy of this run; this one stops before its next answer, which "
                    "would be a second one for the same price"
                )
            yield

    def finish(self, dataset: str, run: str) -> None:
        """Write down that a run's release is there: no record of the run is gone on with any more.

        Raises:
            OutputError: when the file cannot be written.
        """
        with self._alone(dataset) as file:
            if self.attempt(dataset, run) != _FINISHED:
                _write_line(file, json.dumps({"time": _now(), "run": run, "attempt": _FINISHED}))
            Answered(self.folder, run).forget()

    def attempt(self, dataset: str, run: str) -> str | None:
        """The mark of the last attempt that went on with a run; None where none did."""
        lines = self._lines(dataset, holding=json.dumps(run))  # asked for at each answer, of a page of many runs
        found = [line["attempt"] for line in lines if "attempt" in line and line["run"] == run]
        return str(found[-1]) if found else None

    @contextmanager
    def _alone(self, dataset: str) -> Iterator[IO[bytes]]:
        """The page; until it is closed others wait, so what is found within the block still holds at its end."""
        try:
            with self.path(dataset).open("a+b", buffering=0) as file:
                _wait_for(file)
                yield file
        except OSError:
            raise OutputError(f"the book {self.path(dataset)} cannot be written; nothing was read") from None

    def datasets(self) -> list[str]:
        """The names of all datasets that a run or a limit is written down for; not of runs that never began."""
        try:
            pages = {path.stem for path in self.folder.glob("*.jsonl") if path.stat().st_size}
            return sorted(pages | {path.stem for path in self.folder.glob("*.limit")})
        except OSError:
            return []

    def limit(self, dataset: str) -> Limit | None:
        """The dataset's yearly limit, where one was set.

        Raises:
            OutputError: when it cannot be read: a limit that is there must not be overlooked.
        """
        path = self.path(dataset).with_suffix(".limit")
        try:
            return Limit(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, SettingError, RecursionError):
            raise OutputError(f"the limit {path} cannot be read; set it anew with `understudy book`") from None

    def set_limit(self, dataset: str, limit: Limit | None) -> None:
        """Set the dataset's yearly limit; None removes it.

        Raises:
            OutputError: when it cannot be written.
        """
        if limit is not None and not isinstance(limit, Limit):
            raise SettingError("limit: give a `Limit`, or None to remove it")
        path = self.path(dataset).with_suffix(".limit")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if limit is None:
                path.unlink(missing_ok=True)
                return
            with written(path) as file:
                file.write(limit.to_json().encode())
        except OSError:
            raise OutputError(f"the limit {path} cannot be written; set UNDERSTUDY_BOOK to a folder that can") from None

    def passed(self, dataset: str, budget: Budget, *, unit: str) -> str | None:
        """What is wrong when a run of this budget would pass the dataset's yearly limit; None where it would not."""
        limit = self.limit(dataset)
        return None if limit is None else limit.passed(past_year(self.entries(dataset)), budget, dataset, unit)

    def holds(self, dataset: str, run: str) -> bool:
        """Whether the run of this mark is in the book."""
        return any(entry.get("run") == run for entry in self.entries(dataset))

    def entries(self, dataset: str) -> Iterator[dict[str, Any]]:
        """Every run about this dataset, oldest first; one that was gone on with has the time of that as `last`.

        Raises:
            OutputError: when a line cannot be read.
        """
        lines = list(self._lines(dataset))
        last = {line["run"]: {"last": line["time"]} for line in lines if "attempt" in line}
        yield from (line | last.get(line.get("run"), {}) for line in lines if "attempt" not in line)

    def _lines(self, dataset: str, holding: str = "") -> Iterator[dict[str, Any]]:
        """What the page says, or those of its lines that hold a text."""
        path = self.path(dataset)
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        except (OSError, ValueError):
            raise OutputError(f"the book {path} cannot be read; repair or move it") from None
        for number, line in enumerate(lines, 1):
            if not line.strip() or holding not in line:
                continue
            try:
                yield _checked(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError):
                raise OutputError(f"the book {path} is damaged in line {number}; repair or move it") from None

    def spent(self, dataset: str) -> Spent:
        """The sum over all runs.

        **Guarantees.** Two theorems bound it and the smaller epsilon is told, with its delta: the rhos add up and are
        converted once, at the sum of the runs' deltas less what they set aside for purchases; and the runs' own
        epsilons and deltas add up. Both hold for budgets that were fixed in advance (see `Spent`).
        """
        entries = list(self.entries(dataset))
        rho = float_above(sum((fraction_of(entry["rho"]) for entry in entries), Fraction(0)))
        stated = [entry for entry in entries if entry["epsilon"] is not None]
        delta = float_above(sum((fraction_of(entry["delta"]) for entry in stated), Fraction(0)))
        aside = sum((fraction_of(entry.get("purchase_delta", "0")) for entry in entries), Fraction(0))
        rest = float_below(sum((fraction_of(entry["delta"]) for entry in stated), Fraction(0)) - aside)
        bounds = [epsilon_of(rho, rest)] if rest > 0 and delta < 1 else []
        if len(stated) == len(entries) and entries:
            bounds.append(float_above(sum((fraction_of(entry["epsilon"]) for entry in entries), Fraction(0))))
        epsilon = min(bounds, default=None)
        return Spent(len(entries), rho, epsilon, None if epsilon is None else delta, len(units(entries)) > 1)


def _checked(entry: Any) -> dict[str, Any]:
    """A line that says which attempt went on with a run, or an entry whose numbers can be read."""
    if "attempt" in entry:
        return {name: str(entry[name]) for name in ("time", "run", "attempt")}
    said = [entry[name] for name in ("rho", "epsilon", "delta") if entry[name] is not None or name == "rho"]
    if any(fraction_of(number) < 0 for number in (*said, entry.get("purchase_delta", "0"))):
        raise ValueError("nothing is ever given back")
    if (entry["epsilon"] is None) != (entry["delta"] is None):
        raise ValueError("epsilon and delta go together")
    return dict(entry)


def _write_line(file: IO[bytes], text: str) -> None:
    """A line of its own, durably: all of it or nothing.

    Half a line, as a full disk leaves it, would make the page unreadable, and who then moves it away forgets what was
    spent. So would a line right behind one that an editor left without its end.

    Raises:
        OSError: when it cannot be written; the page is as it was.
    """
    before = file.seek(0, os.SEEK_END)
    file.seek(max(before - 1, 0))
    start = b"" if file.read(1) in (b"", b"\n") else b"\n"
    rest = memoryview(start + text.encode() + b"\n")
    try:
        while rest:
            rest = rest[file.write(rest) or 0 :]
        os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            file.truncate(before)
        raise


def _wait_for(file: IO[bytes]) -> None:
    """Have a page alone until it is closed, where the system and its disks can do that."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _default_folder() -> Path:
    from platformdirs import user_data_path

    return user_data_path("understudy") / "book"
