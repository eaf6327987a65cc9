"""The one road from rows to a release: check everything that can be checked, then spend, then finish."""

from __future__ import annotations

import json
import secrets
import tempfile
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import partial as partial_of
from os import PathLike
from pathlib import Path
from typing import Any, cast

from understudy.domain import Clique
from understudy.errors import InputError, Paid, ReleaseError, SettingError, UnderstudyError, Unforeseen
from understudy.measurement import Measurement
from understudy.mechanism import Mechanism, mechanism_named
from understudy.preflight import check_memory, check_noise, check_output, check_space
from understudy.privacy import Book, Budget, PrivateTable, Receipt
from understudy.privacy.charge import Charge
from understudy.privacy.exact import float_below
from understudy.privacy.neighbours import Neighbours
from understudy.privacy.plan import can_plan, certified_plan
from understudy.privacy.randomness import is_insecure
from understudy.progress import Progress, Step, silent
from understudy.release import Partial, Release, read_partial
from understudy.release.artefact import Frame
from understudy.release.partial import PartialWriter, unfinished
from understudy.same_table import DeclaredPublic
from understudy.schema import Recoding, Schema
from understudy.source import open_source


def synthesize(
    data: Any,
    schema: Schema | str | PathLike[str],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mechanism: str | Mechanism = "mst",
    rows: int | None = None,
    progress: Progress | None = None,
    output: str | PathLike[str] | None = None,
    dataset: str | None = None,
    noise: str = "exact",
    **settings: Any,
) -> Release:
    """Make a differentially private stand-in for a table.

    Args:
        data: a pandas, polars or pyarrow frame, or the path of a CSV or Parquet file.
        schema: what is public about the columns, or the path of its file.
        epsilon: with `delta`, the privacy budget; with `delta=0`, pure DP.
        delta: see `epsilon`.
        rho: the budget in zCDP, instead of epsilon.
        mechanism: a mechanism's name or the mechanism itself.
        rows: how many rows `release.sample()` makes by default; else the declared or the noisy number. It is part of
            the release: the table's exact number of rows does not belong here unless it is public.
        progress: called with each `Step`.
        output: where to save the release; checked before anything is spent.
        dataset: the name under which the book adds up what was spent about the same people.
        noise: "exact" (ours) or "opendp".
        settings: the mechanism's settings, when it is given by name; `public` of nist-mst is a table that the
            custodian declares public.

    **Privacy.** The release satisfies the stated guarantee for the schema's privacy unit. The budget is written into
    the book before a row is counted; every charge and answer is written to a partial release the moment it exists.

    Raises:
        InputError: the table, the schema or a setting cannot be used. Nothing was spent.
        OutputError: something cannot be written. Nothing was spent.
        Paid: it failed after spending; the message says where what was paid for is kept.
    """
    run = _prepare(data, schema, Budget.of(epsilon=epsilon, delta=delta, rho=rho), mechanism, settings, noise, rows)
    journal = _Journal(run, Book(), dataset or dataset_name(data), output)
    try:
        release = _made(data, run, journal, output, progress or silent)
    except BaseException as error:
        failure = journal.failed(error)
    else:
        journal.close(keep=False)
        return release
    raise failure  # out here the first error is not its context: its words and variables may hold values of the table


def _made(data: Any, run: _Run, journal: _Journal, output: str | PathLike[str] | None, progress: Progress) -> Release:
    progress(Step("read", None, "the table"))
    if run.public is not None:
        data = run.public.refuse(data)
    table = PrivateTable(open_source(data, run.schema), run.budget, noise=run.noise, journal=journal, plan=run.plan)
    fit = run.mechanism.fit(table, rho=float_below(run.budget.capacity), progress=progress)
    receipt = run.receipt(table.account.charges)
    release = Release.of(fit, run.schema, receipt, layout=_layout(data, run.schema), **run.label())
    if output is not None:
        progress(Step("write", None, str(output)))
        release.save(output)
    return release


def resume(
    partial: str | PathLike[str], *, output: str | PathLike[str] | None = None, progress: Progress | None = None
) -> Release:
    """Finish an interrupted run from what it had measured. Costs nothing: rows are not needed and not read.

    Args:
        partial: the file that the interrupted run left.
        output: where to save the release; the partial file is removed once that is done.
        progress: called with each `Step`.

    Raises:
        ReleaseError: the file is not a partial release, or nothing had been measured yet.
        OutputError: the release cannot be written; the partial file stays.
    """
    if output is not None:
        check_output(Path(output))
    held = read_partial(partial)
    if not held.measurements:
        raise ReleaseError(
            f"{partial}: the run stopped before its first measurement, so there is nothing to finish. "
            f"{len(held.charges)} charges were made and stand"
        )
    try:
        schema = Schema.from_dict(held.run["schema"])
        mechanism = mechanism_named(held.run["mechanism"], **held.run["settings"])
        receipt = _paid_receipt(held)
        label = {key: held.run[key] for key in ("mechanism", "settings", "rows")}
    except (UnderstudyError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = str(error) if isinstance(error, SettingError) else "its content contradicts itself"
        raise ReleaseError(f"{partial} cannot be finished: {reason}. Nothing was changed") from None
    finish = partial_of(
        mechanism.finish, schema.domain, held.measurements, recoding=held.recoding, progress=progress or silent
    )
    try:
        fit = finish(total=schema.rows_used)
    except InputError:  # a wrongly declared number of rows must not lose what was paid for: the noisy one serves
        fit = finish(total=None)
    release = Release.of(fit, schema, receipt, **label)
    if output is not None:
        release.save(output)
        Path(partial).unlink(missing_ok=True)
    return release


def _paid_receipt(held: Partial) -> Receipt:
    """The receipt of an interrupted run.

    Raises:
        BudgetExceeded, ValueError: when charges pass the budget, or a measurement was not paid for: no run wrote that.
    """
    receipt = Receipt.from_dict({**held.run["receipt"], "charges": [charge.to_dict() for charge in held.charges]})
    paid = Counter((charge.about[0], charge.noise) for charge in held.charges if charge.what == "measure")
    paid.subtract((measurement.clique, measurement.noise) for measurement in held.measurements)
    if any(left < 0 for left in paid.values()):
        raise ValueError("a measurement was not paid for")
    return receipt


class _Run:
    """Everything about a run that is known before a row is read: all of it public."""

    def __init__(
        self,
        schema: Schema,
        budget: Budget,
        mechanism: Mechanism,
        noise: str,
        rows: int | None,
        frame: Frame,
        public: DeclaredPublic | None = None,
    ) -> None:
        self.public = public
        self.schema, self.mechanism, self.noise, self.rows, self.frame = schema, mechanism, noise, rows, frame
        unit = schema.privacy_unit
        self.neighbours = Neighbours(unit.column, unit.max_rows, schema.rows is not None)
        self.plan, self.budget = _planned(mechanism, schema, budget, self.neighbours)
        self.insecure = is_insecure()

    def look(self) -> bool:
        """Whether any noise so far was seeded: once in test mode, always marked."""
        self.insecure = self.insecure or is_insecure()
        return self.insecure

    def receipt(self, charges: Sequence[Charge]) -> Receipt:
        facts: dict[str, str] = {column.name: column.origin for column in self.schema.columns}
        if name := getattr(self.mechanism, "public_name", None):
            facts[f"the table {name}"] = "declared public by the custodian"
        return Receipt(self.budget, tuple(charges), self.neighbours, facts, self.noise, self.look())

    def label(self) -> dict[str, Any]:
        return {"mechanism": self.mechanism.name, "settings": _settings(self.mechanism), "rows": self.rows} | (
            {"frame": self.frame}
        )

    def to_dict(self) -> dict[str, Any]:
        return {"schema": self.schema.to_dict(), "receipt": self.receipt(()).to_dict(), **self.label()}


class _Journal:
    """Writes the book at the first charge, and the partial release from then on."""

    def __init__(self, run: _Run, book: Book, dataset: str, output: str | PathLike[str] | None) -> None:
        self._run, self._book, self._dataset = run, book, dataset
        self._writer: PartialWriter | None = None
        self._spent = self._measured = False
        footprint = run.mechanism.footprint(run.schema.domain)
        check_memory(footprint.memory_bytes)
        if not run.insecure:
            book.check(dataset)
        if output is not None:
            check_output(Path(output))
        self._reserve = footprint.disk_bytes
        self._path = _partial_path(output)
        if self._path.exists() or self._path.is_symlink():
            raise unfinished(self._path)
        check_space(self._path.parent, 2 * footprint.disk_bytes)

    def charged(self, charges: Sequence[Charge]) -> None:
        if self._writer is None:
            self._writer = PartialWriter(self._path, self._run.to_dict(), reserve_bytes=self._reserve)
        if not self._spent and not self._run.look():
            self._write_down()
        self._spent = True
        self._writer.charged(charges)

    def _write_down(self) -> None:
        self._spent = True  # said before it is done: an interrupt in between must not claim that nothing was spent
        try:
            self._book.append(self._dataset, self._run.budget, unit=self._run.neighbours.describe())
        except UnderstudyError:
            self._spent = False
            raise

    def measured(self, measurement: Measurement, recoding: Recoding) -> None:
        assert self._writer is not None  # noqa: S101 - the gate charges before it measures
        self._run.look()
        self._writer.measured(measurement, recoding)
        self._measured = True

    def close(self, *, keep: bool) -> None:
        if self._writer is not None:
            self._writer.close(keep=keep)

    def failed(self, error: BaseException) -> BaseException:
        """What to raise instead: our own errors while nothing was spent, else one that says what is kept where.

        **Privacy.** Any other error's words may quote a cell: it is told by its type and its place in the code.
        """
        self.close(keep=self._spent)
        words = str(error) if isinstance(error, UnderstudyError) else f"{type(error).__name__} at {_place(error)}"
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
        if not self._measured:
            return f"The charge stands; nothing had been measured yet. {path} records it; delete it to run again"
        return (
            f"The charge stands. What was paid for is kept in {path}; "
            f"finish at no cost with `understudy resume {path} -o RELEASE`"
        )


def _prepare(
    data: Any,
    schema: Schema | str | PathLike[str],
    budget: Budget,
    mechanism: str | Mechanism,
    settings: Mapping[str, Any],
    noise: str,
    rows: int | None,
) -> _Run:
    schema = schema if isinstance(schema, Schema) else Schema.load(Path(schema))
    schema.require_reviewed()
    if not schema.domain:
        raise SettingError("the schema has no column to synthesise; declare at least one")
    if rows is not None and rows < 1:
        raise SettingError("rows must be at least 1")
    check_noise(noise)
    chosen = mechanism_named(mechanism, **settings)
    given = getattr(chosen, "public", None)
    public = None if given is None else DeclaredPublic(given, schema)
    if hasattr(chosen, "prepared"):
        chosen = chosen.prepared(schema)  # what it learns from public sources; it keeps no rows of them
    _settings(chosen)
    if budget.pure and not chosen.pure:
        raise SettingError(
            f"{chosen.name} needs Gaussian noise: give a delta above 0 (pure DP is not possible with it)"
        )
    return _Run(schema, budget, chosen, noise, rows, _frame_kind(data), public)


def _planned(
    mechanism: Mechanism, schema: Schema, budget: Budget, neighbours: Neighbours
) -> tuple[dict[Clique, float] | None, Budget]:
    """The sigmas of a run whose measurements are fixed in advance, and its budget certified by their exact curve."""
    plan = getattr(mechanism, "plan", None)
    if plan is None or not can_plan(budget, neighbours):
        return None, budget
    return certified_plan(plan(schema.domain), budget, neighbours)


def _settings(mechanism: Mechanism) -> dict[str, Any]:
    """The settings as a release tells them: plain data in the form that its file gives back, so lists for tuples."""
    settings: dict[str, Any] = asdict(cast(Any, mechanism)) if is_dataclass(mechanism) else {}
    try:
        return dict(json.loads(json.dumps(settings, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        raise SettingError(
            f"the settings of {mechanism.name} must be plain values: numbers, words, lists of them"
        ) from None


def _frame_kind(data: Any) -> Frame:
    module = type(data).__module__.partition(".")[0]
    return module if module in ("pandas", "polars") else "arrow"  # type: ignore[return-value]


def _layout(data: Any, schema: Schema) -> dict[str, str]:
    """The column types to give back: those of a frame; a file's are the declared ones."""
    return {} if isinstance(data, str | PathLike) or not hasattr(data, "columns") else schema.layout(data)


def dataset_name(data: Any) -> str:
    """The book's name for a table that was given none: the file's name without endings, else "unnamed"."""
    return Path(data).name.split(".")[0] or "unnamed" if isinstance(data, str | PathLike) else "unnamed"


def _partial_path(output: str | PathLike[str] | None) -> Path:
    if output is not None:
        return Path(output).with_name(Path(output).name + ".partial")
    return Path(tempfile.gettempdir()) / f"understudy-{secrets.token_hex(8)}.partial"


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
