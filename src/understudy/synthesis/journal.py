"""The journal of a run: the book at the first charge, and the partial release from then on."""

from __future__ import annotations

import secrets
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from understudy.accounting.charge import PURCHASES, Charge
from understudy.discovery.discover import narrowest_schema
from understudy.errors import BudgetExceeded, InputError, OutputError, Paid, UnderstudyError, Unforeseen
from understudy.measurement import Measurement
from understudy.notice import PastLimit
from understudy.privacy.records.answered import Answered
from understudy.privacy.records.book import Book
from understudy.release import Partial
from understudy.release.partial import PartialWriter, unfinished
from understudy.schema import Recoding, Schema
from understudy.synthesis.earlier import Diverged, Earlier, Outdated, encoded
from understudy.synthesis.preflight import check_memory, check_output, check_space, mind_strength
from understudy.synthesis.run import Run

T = TypeVar("T")


class RunJournal:
    """Writes the book at the first charge, and the partial release from then on.

    Args:
        run: the run.
        book: where its budget is written down.
        dataset: under which name.
        output: where the release will be.
        mark: the run's own mark, for one that may be started again: the book holds it once.
        earlier: what an earlier attempt at the same run left in its partial release; this one goes on from there.
        copied: whether that is an older copy of it, from which nothing new may be asked.
        booked: whether the run was in the book when that was read; a run that gets there later is another's.
        limit: what to do about a run that would pass the dataset's yearly limit.

    Raises:
        BudgetExceeded: for such a run, where that is what to do. Nothing was spent.
    """

    def __init__(
        self,
        run: Run,
        book: Book,
        dataset: str,
        output: str | PathLike[str] | None,
        *,
        mark: str | None = None,
        earlier: Partial | None = None,
        copied: bool = False,
        booked: bool = False,
        limit: Literal["warn", "refuse", "ignore"] = "warn",
    ) -> None:
        self._run, self._book, self._dataset, self._mark, self._limit = run, book, dataset, mark, limit
        self.earlier = None if earlier is None else Earlier(earlier, closed=copied)
        self._writer: PartialWriter | None = None
        self._attempt: str | None = None
        self._known = () if earlier is None else earlier.attempts
        # killed between the book and the record of its first charge, a run is in the book and has no charge on record
        self._spent = self.earlier is not None and (self.earlier.spent or booked)
        self._measured = self.earlier is not None and self.earlier.measured
        self._bought = False
        self._recalled: Any = None
        self._answers = 0 if earlier is None else earlier.answers
        footprint = run.mechanism.footprint(narrowest_schema(run.schema).domain)
        check_memory(footprint.memory_bytes + run.rules_bytes)
        if not run.insecure and not run.rehearsal:
            book.check(dataset)
            mind_strength(run.budget)
            unit = run.neighbours.describe()
            if limit != "ignore" and not booked:
                _mind_limit(book.passed(dataset, run.budget, unit=unit), refuse=limit == "refuse")
        if output is not None:
            check_output(Path(output))
        self._reserve = footprint.disk_bytes
        self._path = _partial_path(output)
        if earlier is None and (self._path.exists() or self._path.is_symlink()):
            raise unfinished(self._path)
        check_space(self._path.parent, 2 * footprint.disk_bytes)

    def charged(self, charges: Sequence[Charge]) -> None:
        """Write charges down; at the first, the budget goes into the book."""
        insecure = self._look()
        fresh = list(charges) if self.earlier is None else self.earlier.charged(charges)
        if not fresh:
            return
        writer = self._open()  # before the book: a run that is in the book always has a file that says what it paid
        if not self._spent and not insecure and not self._run.rehearsal:
            self._write_down()
        self._spent = True
        self._bought |= any(charge.what in PURCHASES for charge in fresh)
        writer.charged(fresh)

    def _look(self) -> bool:
        """Whether any noise so far was seeded; the partial release is marked as soon as it is."""
        before = self._run.insecure
        if self._run.look() and not before and self._writer is not None:
            self._writer.seeded()
        return self._run.insecure

    def _open(self) -> PartialWriter:
        again = self._writer is None and self.earlier is not None
        if again:
            self._writer = PartialWriter.again(self._path, reserve_bytes=self._reserve)
        elif self._writer is None:
            self._writer = PartialWriter(self._path, self._run.to_dict(), reserve_bytes=self._reserve)
        if self._mark is not None and not self._run.rehearsal and not self._run.insecure:
            if again and self._spent:
                self._go_on(self._writer, self._mark)
            self._writer.count(Answered(self._book.folder, self._mark, self._turn), self._answers)
        return self._writer

    def _go_on(self, writer: PartialWriter, mark: str) -> None:
        """Let the record and then the book say that this attempt goes on, before anything new is asked.

        **Privacy.** A copy of the record that was made before, and put back in its place, is known by that. The book
        compares and writes in one step: of two attempts that go on from copies of one record, one is let.

        Raises:
            Outdated: for the other.
        """
        attempt = secrets.token_hex(8)
        writer.gone_on(attempt)
        if not self._book.went_on(self._dataset, mark, attempt, known=self._known, answers=self._answers):
            raise Outdated
        self._attempt = attempt

    def _turn(self) -> AbstractContextManager[None]:
        return self._book.turn(self._dataset, str(self._mark), self._attempt)

    def _write_down(self) -> None:
        self._spent = True  # said before it is done: an interrupt in between must not claim that nothing was spent
        try:
            unit = self._run.neighbours.describe()
            limited = self._limit == "refuse"
            if not self._book.append(self._dataset, self._run.budget, unit=unit, run=self._mark, limited=limited):
                raise OutputError(
                    "this run was paid for by a copy of its folder, which was quicker; one price is for one set of "
                    "answers. To run here as well, and pay for it, choose a new folder; nothing was spent now"
                )
        except UnderstudyError:
            self._spent = False
            raise

    def measured(self, measurement: Measurement, recoding: Recoding) -> None:
        """Write a measurement down, unless it is from the record."""
        if measurement is not self._recalled:
            self._open().measured(measurement, recoding)
        self._measured = True

    def released(self, answer: T) -> T:
        """The answer that the run was given before, where there is one; else this one, written down.

        Measurements are written down by `measured`, and facts that are bought together in the end.
        """
        self._look()
        if self._run.schema.open:
            return answer
        self._recalled = None if self.earlier is None else self.earlier.answered(answer)
        if self._recalled is not None:
            return cast(T, self._recalled)
        if not isinstance(answer, Measurement):
            self._open().answered(encoded(answer))
        return answer

    def bought(self, schema: Schema) -> None:
        """Write the schema down that was bought: what is measured from now on is coded by it."""
        if self._writer is not None:  # there is none where nothing was left to be asked, and so nothing was charged
            self._writer.bought(schema.to_dict())

    def close(self, *, keep: bool) -> None:
        """Stop writing; `keep` leaves the partial release."""
        if self._writer is not None:
            self._writer.close(keep=keep)
        elif self.earlier is not None and not keep:
            self._path.unlink(missing_ok=True)

    def failed(self, error: BaseException) -> BaseException:
        """What to raise instead: our own errors while nothing was spent, else one that says what is kept where.

        **Privacy.** Any other error's words may quote a cell: it is told by its type and its place in the code.
        """
        self.close(keep=self._spent)
        words = str(error) if isinstance(error, UnderstudyError) else f"{type(error).__name__} at {_place(error)}"
        if isinstance(error, Diverged):
            error.__context__ = error.__cause__ = None
            return error.with_traceback(None)
        if isinstance(error, InputError) and self.earlier is not None and self._writer is None:
            return error.with_traceback(None)  # a second attempt that got no further: the first one's file stays
        if isinstance(error, KeyboardInterrupt | SystemExit):
            stopped = SystemExit(error.code) if isinstance(error, SystemExit) else KeyboardInterrupt()
            stopped.add_note(self._kept() if self._spent else "Nothing was spent.")
            return stopped
        if self._spent:
            return Paid(f"{words}. {self._kept()}")
        if isinstance(error, UnderstudyError):
            error.__context__ = error.__cause__ = None
            return error.with_traceback(None)
        return Unforeseen(f"something went wrong that we did not foresee ({words}); nothing was spent")

    def _kept(self) -> str:
        path = self._writer.path if self._writer is not None else self._path
        if self._mark is not None and path == self._path:
            return (
                f"The charge stands. What was paid for is kept in {path}; run the same again to go on at no more cost"
            )
        if not self._measured:
            yet = "no table was measured yet, only what the schema wants discovered was paid for"
            yet = yet if self._bought else "nothing had been measured yet"
            return f"The charge stands; {yet}. {path} records it; delete it to run again"
        return (
            f"The charge stands. What was paid for is kept in {path}; "
            f"finish at no cost with `understudy resume {path} -o RELEASE`"
        )


def _mind_limit(passed: str | None, *, refuse: bool) -> None:
    if passed is not None and refuse:
        raise BudgetExceeded(f"{passed}. Change that, or say that it may be passed (--over-limit); nothing was spent")
    if passed is not None:
        warnings.warn(passed, PastLimit, stacklevel=4)


def _partial_path(output: str | PathLike[str] | None) -> Path:
    if output is not None:
        return Path(output).with_name(Path(output).name + ".partial")
    return Path(tempfile.gettempdir()) / f"understudy-{secrets.token_hex(8)}.partial"


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
