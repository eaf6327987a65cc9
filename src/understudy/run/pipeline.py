"""Runs from rows to a release: resolve the specification, check it, reserve the budget, execute, write.

`execute` and `_make` are the steps in order.
"""

from __future__ import annotations

import json
import os
import secrets
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, overload

from understudy.accounting import Budget, Charge, Neighbours, Receipt
from understudy.accounting.calibrate import certify_plan
from understudy.accounting.exact import float_below
from understudy.arguments import as_flag, as_path, as_progress, as_whole, holds_password
from understudy.discovery.discover import Discovery, EmptySource, discovery_budget, narrowest_schema
from understudy.errors import (
    InputError,
    InternalError,
    LedgerError,
    OutputError,
    RunInterrupted,
    SettingError,
    UnderstudyError,
)
from understudy.files import FULL_DISK, check_space, file_digest, publish, staged_path
from understudy.gate import PrivateTable
from understudy.gate.randomness import is_insecure
from understudy.ledger import Ledger, RunHandle
from understudy.mechanism import Fit, Mechanism, make_mechanism
from understudy.mechanism.linked import LinkedMechanism, check_inner
from understudy.mechanism.registry import AUTO, setting_names
from understudy.model.dependencies import learn_dependencies
from understudy.progress import Progress, Step, report_compiling, silent
from understudy.quality import Quality, parse_share
from understudy.release import Release
from understudy.release.linked import LinkedRelease
from understudy.release.release import summarize
from understudy.run.auto import choose_mechanism
from understudy.run.checks import (
    check_memory,
    check_noise,
    check_output,
    check_rules,
    find_compiler_cache,
    half_of_memory,
    refuse_same_table,
    warn_of_weak_budget,
)
from understudy.run.linked import discover_linked, fit_linked, linked_facts, linked_neighbours, narrowest_tables
from understudy.run.public import CANDIDATES, SHARE, PublicRows, choose_model
from understudy.run.quality import Rating, measure_quality
from understudy.run.record import CannotContinue, RunRecorder
from understudy.schema import Schema
from understudy.schema.linked import LinkedSchema, is_package, load_any
from understudy.source import open_source
from understudy.source.linked import OpenTables, check_places, find_tables, open_tables
from understudy.source.open import StoredTable, make_opener, open_table
from understudy.source.place import public_name, table_name
from understudy.workload import public_workload_name

LINKED_DEFAULT = "aim"
"""The mechanism for linked tables that `auto` stands for."""

COMPARISON = "comparison"
"""The key in the ledger's spec of a run that is a whole grid of `compare`."""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """The specification of a run.

    Attributes:
        data: the table: a frame, a path, an address or a table object; for linked tables, these by name, or a folder;
            None if it is gone.
        schema: what is public about the columns, or about linked tables.
        epsilon: with `delta`, the privacy budget.
        delta: see `epsilon`.
        rho: the budget in zCDP, instead of epsilon.
        mechanism: a mechanism's name or the mechanism itself; `resolve` replaces "auto" by its choice.
        reason: why `auto` chose the mechanism.
        settings: the mechanism's settings.
        public: a table that the custodian declares public: a frame, a path or a source; None if it is gone.
        public_name: the name of the public table in the receipt, if its rows are weighted; `resolve` sets it.
        paper: whether the mechanism runs as published; given settings replace those of the paper.
        dataset: the dataset's name in the ledger.
        query: a SELECT statement to read instead of a table.
        temp_dir: the folder for temporary files of database engines.
        rows: the default number of rows of `release.sample()`.
        noise: the noise sampler.
        discovery_share: the part of the budget for discovery.
        quality: the part of the budget that measures the workload error, or None.
        workload: the workload of the measured quality, or None for the mechanism's own.
        rehearsal: whether the rows are made from the schema alone.
        key: identifies the run in the ledger; None for a new run.
        place: the run file and its output folder, or the release's path.
    """

    data: Any
    schema: Schema | LinkedSchema
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    mechanism: str | Mechanism = AUTO
    reason: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    public: Any = None
    public_name: str | None = None
    paper: bool = False
    dataset: str | None = None
    query: str | None = None
    temp_dir: str | PathLike[str] | None = None
    rows: int | None = None
    noise: str = "exact"
    discovery_share: float = 0.1
    quality: float | None = None
    workload: str | None = None
    rehearsal: bool = False
    key: str | None = None
    place: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self, mechanism: Mechanism | LinkedMechanism) -> dict[str, Any]:
        """Return plain data for the ledger, without seeds and rows; `from_dict` reads it."""
        kept = ["epsilon", "delta", "rho", "query", "rows", "noise", "discovery_share", "quality", "workload"]
        kept += ["reason", "public_name"]
        return {
            **{name: _to_plain(getattr(self, name)) for name in kept},
            "data": _address(self.data),
            "public": _address(self.public),
            "schema": self.schema.to_dict(),
            "mechanism": mechanism.name,
            "settings": _settings(mechanism),
            "place": dict(self.place),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], dataset: str) -> RunSpec:
        """Read the result of `to_dict`; the data is None if it was a frame or is gone."""
        kind = LinkedSchema if is_package(data["schema"]) else Schema
        content = dict(data) | {"schema": kind.from_dict(data["schema"]), "dataset": dataset}
        return cls(**content).without_missing_data()

    def without_missing_data(self) -> RunSpec:
        """Return the same run without tables whose files are gone."""
        public = None if _is_gone(self.public) else self.public
        return replace(self, data=None if _is_gone(self.data) else self.data, public=public)


@overload
def synthesize(
    data: Mapping[str, Any], schema: LinkedSchema | str | PathLike[str], **options: Any
) -> LinkedRelease: ...
@overload
def synthesize(data: Any, schema: Schema | LinkedSchema | str | PathLike[str], **options: Any) -> Release: ...


def synthesize(
    data: Any,
    schema: Schema | LinkedSchema | str | PathLike[str],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mechanism: str | Mechanism = AUTO,
    paper: bool = False,
    rows: int | None = None,
    progress: Progress | None = None,
    output: str | PathLike[str] | None = None,
    dataset: str | None = None,
    noise: str = "exact",
    discovery_share: float = 0.1,
    public: Any = None,
    quality: float | str | None = None,
    query: str | None = None,
    temp_dir: str | PathLike[str] | None = None,
    ledger: str | PathLike[str] | None = None,
    **settings: Any,
) -> Release | LinkedRelease:
    """Make a differentially private stand-in for a table, or for linked tables.

    Args:
        data: a pandas, polars or pyarrow frame; the path of a CSV or Parquet file, a folder of them, or a pattern
            (``data/*.parquet``); a database's URL (``postgresql://host/db?table=people``); a table of Spark, Ibis or
            DuckDB. Only counts leave a database. Linked tables are given by name, ``{"patients": frame, ...}``, or as
            a folder with a file for each.
        schema: what is public about the columns, or the path of its file; for linked tables, a data package.
        epsilon: with `delta`, the privacy budget; with `delta=0`, pure DP.
        delta: see `epsilon`.
        rho: the budget in zCDP, instead of epsilon.
        mechanism: a mechanism's name or the mechanism itself; "auto" chooses one from the schema, the budget and the
            declared number of rows. `release.mechanism` names it.
        paper: whether the mechanism runs as published, without our changes; given settings have precedence.
        rows: the default number of rows of `release.sample()` (with linked tables, of the root); else the declared or
            the noisy number. It is part of the release: do not give the exact number of rows of the table unless it
            is public.
        progress: called with each `Step`.
        output: where to save the release; checked before anything is spent.
        dataset: the name under which the ledger adds up what was spent about the same people.
        noise: "exact" (ours) or "opendp".
        discovery_share: the share of the budget for discovery; nothing is spent if the schema declares everything. A
            tenth of delta is set aside if values are discovered.
        public: a table like this one that the custodian declares public, such as last year's: a frame or a path. Its
            rows are weighted to fit the measurements, and used if that lowers a noisy error, which costs 3 % of the
            budget; `nist-mst` chooses its marginals from it instead, at no cost. A release may repeat public rows.
        quality: the part of the budget, such as "5%", that measures the workload error of the result; it is stated in
            `release.quality` and the report.
        query: a SELECT statement to read instead of a database's table; with files, they are its table ``data``.
        temp_dir: the folder for temporary files of database engines, in a private directory that is removed at the end.
        ledger: the path or `postgresql://` address of the ledger; by default `UNDERSTUDY_LEDGER`, else the user's own.
        settings: the mechanism's settings, if it is given by name.

    **Privacy.** The release satisfies the stated guarantee for the schema's privacy unit. The whole budget is reserved
    in the ledger before a row is read; every answer is recorded there before it is used.

    Raises:
        InputError: the table, the schema or a setting cannot be used. Nothing was spent.
        BudgetExceeded: no grant of the ledger allows the run. Nothing was read.
        OutputError: something cannot be written. Nothing was spent.
        LedgerError: the ledger cannot be used. Nothing was read.
        RunInterrupted: the run failed after spending; `understudy resume` continues it.
    """
    output = None if output is None else as_path("output", output)
    if data is None:
        raise InputError("the table must be a pandas, polars or pyarrow frame, or a path; nothing was given")
    if "seed" in settings:
        raise SettingError(
            "seed: private noise cannot be seeded; seed the synthetic rows instead, `release.sample(seed=1)`"
        )
    spec = RunSpec(
        data=data,
        schema=schema if isinstance(schema, Schema | LinkedSchema) else load_any(schema),
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        mechanism=mechanism,
        settings=settings,
        public=public,
        paper=as_flag("paper", paper),
        dataset=dataset,
        query=query,
        temp_dir=temp_dir,
        rows=None if rows is None else as_whole("rows", rows, least=1),
        noise=noise,
        discovery_share=discovery_share,
        quality=parse_share(quality),
        place={} if output is None else {"release": str(output.absolute())},
    )
    made: Release | LinkedRelease = execute(spec, output=output, progress=as_progress(progress), ledger=Ledger(ledger))
    return made


def resume(
    run: str,
    *,
    data: Any = None,
    output: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    ledger: str | PathLike[str] | None = None,
) -> Any:
    """Continue an interrupted run: it keeps its recorded answers, asks only for missing ones, and is counted once.

    If the table is gone, or this version of understudy asks other questions, the release is made from the recorded
    answers, at no further cost. The release of a finished run is made again from its answers.

    Args:
        run: the run's identifier, or the beginning of it; `understudy runs` lists them.
        data: the table, if the run was given a frame or the table was moved.
        output: where to save the release; by default the output of the run.
        progress: called with each `Step`.
        ledger: as for `synthesize`.

    Raises:
        LedgerError: if there is no such run.
        RunInterrupted: if nothing was measured yet and there is no table.
        OutputError: if the release cannot be written, or another process is working on the run.
    """
    if not isinstance(run, str):
        raise SettingError("run: give the run's identifier, as `understudy runs` lists it")
    book = Ledger(ledger)
    stored = book.find(run)
    if COMPARISON in stored.spec:
        raise LedgerError(f"run {stored.run} is a comparison; repeat its `understudy compare` command to continue it")
    spec = RunSpec.from_dict(stored.spec, stored.dataset)
    spec = spec if data is None else replace(spec, data=data)
    target = spec.place.get("release") if output is None else output
    path = None if target is None else as_path("output", target)
    return execute(spec, output=path, progress=as_progress(progress), ledger=book, run=stored.run)


class Run:
    """A resolved run: everything that is known before a row is read; public."""

    def __init__(
        self,
        spec: RunSpec,
        schema: Schema,
        budget: Budget,
        mechanism: Mechanism,
        rating: Rating | None,
        public: PublicRows | None = None,
    ) -> None:
        self.spec, self.schema, self.mechanism, self.rating = spec, schema, mechanism, rating
        self.public = public
        self.neighbours = _neighbours(self.schema)
        # with a plan, no further question can be asked about the result
        fixed = {} if schema.open or rating or spec.public_name else mechanism.plan(schema.domain)
        self.plan, self.budget = certify_plan(fixed, budget, self.neighbours)
        self.insecure = is_insecure()
        self.dataset = spec.dataset or dataset_name(spec.data)

    @property
    def counts(self) -> bool:
        """Whether the run is recorded in the ledger: not if it is a rehearsal or in test mode."""
        return not (self.spec.rehearsal or self.insecure)

    def fits(self, schema: Schema) -> bool:
        """Return whether a schema that discovery completed fits into the machine's memory.

        **Privacy.** The result affects the released schema, so it depends on installed memory, not on free memory.
        """
        try:
            needed = self.mechanism.footprint(schema.domain).memory_bytes
            if self.rating is not None:
                self.rating.tables(schema.domain)
        except SettingError:
            return False
        return needed <= half_of_memory()

    @property
    def budget_for_result(self) -> Fraction:
        """The part of the budget that is kept for questions about the result."""
        share = Fraction(0 if self.rating is None else self.rating.share)
        share += CANDIDATES * Fraction(SHARE) if self.spec.public_name else 0
        return share * self.budget.capacity

    def receipt(self, charges: Sequence[Charge]) -> Receipt:
        """Return the receipt of these charges."""
        self.insecure = self.insecure or is_insecure()
        origins: dict[str, str] = {column.name: column.origin for column in self.schema.columns}
        for name in [*self.mechanism.public_tables(), *([self.spec.public_name] if self.spec.public_name else [])]:
            origins[f"the table {name}"] = "declared public by the custodian"
        noise, rehearsal = self.spec.noise, self.spec.rehearsal
        mechanism = self.mechanism.name + (f", chosen automatically: {self.spec.reason}" if self.spec.reason else "")
        return Receipt(
            self.budget, tuple(charges), self.neighbours, origins, noise, self.insecure, rehearsal, mechanism
        )


class LinkedRun:
    """A resolved run on linked tables: everything that is known before a row is read; public."""

    def __init__(
        self,
        spec: RunSpec,
        schema: LinkedSchema,
        tables: Mapping[str, Any] | None,
        mechanism: Mechanism,
        budget: Budget,
    ) -> None:
        self.spec, self.schema, self.tables, self.budget = spec, schema, tables, budget
        self.mechanism = LinkedMechanism(mechanism)
        self.neighbours = linked_neighbours(schema)
        self.insecure = is_insecure()
        place = spec.data if tables is None or not isinstance(spec.data, Mapping) else tables[schema.root]
        self.dataset = spec.dataset or dataset_name(place)

    @property
    def counts(self) -> bool:
        """Whether the run is recorded in the ledger: not if it is a rehearsal or in test mode."""
        return not (self.spec.rehearsal or self.insecure)

    def fits(self, schema: LinkedSchema) -> bool:
        """Return whether a schema that discovery completed fits into the machine's memory, as `Run.fits`."""
        try:
            return self.mechanism.footprint(schema).memory_bytes <= half_of_memory()
        except SettingError:
            return False

    def receipt(self, charges: Sequence[Charge]) -> Receipt:
        """Return the receipt of these charges."""
        self.insecure = self.insecure or is_insecure()
        spec, name = self.spec, f"linked tables, each by {self.mechanism.name}"
        facts = linked_facts(self.schema)
        return Receipt(
            self.budget, tuple(charges), self.neighbours, facts, spec.noise, self.insecure, spec.rehearsal, name
        )


_NOT_LINKED = {
    "public": "leave it out, and declare in the schema what the public table tells: values, bounds, bins",
    "query": "leave it out, and give a view of the database as a table",
    "quality": "leave it out; `plan` predicts errors, and `evaluate` scores rows for the custodian",
}
"""Options that linked tables do not have, and what to do instead."""


def resolve_linked(spec: RunSpec, schema: LinkedSchema) -> LinkedRun:
    """Check everything that follows from the schema and the settings of linked tables.

    Raises:
        InputError: if something cannot be used; the message names it. Nothing was spent.
    """
    schema.require_reviewed()
    for option, remedy in _NOT_LINKED.items():
        if getattr(spec, option) is not None:
            raise SettingError(f"{option}: not possible with linked tables; {remedy}")
    budget = discovery_budget(schema, spec.discovery_share, epsilon=spec.epsilon, delta=spec.delta, rho=spec.rho)
    if spec.rows is not None:
        as_whole("rows", spec.rows, least=1)
    check_noise(spec.noise)
    find_compiler_cache()
    mechanism = make_mechanism(
        LINKED_DEFAULT if spec.mechanism == AUTO else spec.mechanism, paper=spec.paper, **spec.settings
    )
    check_inner(mechanism, schema)
    tables = None if spec.data is None else find_tables(spec.data, schema)
    if tables is not None:
        check_places(tables)
    return LinkedRun(replace(spec, data=tables), schema, tables, mechanism, budget)


def resolve(spec: RunSpec) -> Run:
    """Check everything that follows from the schema and the settings; nothing is reserved and no row is read.

    Raises:
        InputError: if something cannot be used; the message names it. Nothing was spent.
    """
    schema = spec.schema
    if isinstance(schema, LinkedSchema):
        raise SettingError("schema: linked tables cannot be used here yet; give the schema of a single table")
    if isinstance(spec.data, Mapping):
        raise InputError(
            "a mapping of several tables needs a data package with `resources` as its schema; a single table must be a "
            "pandas, polars or pyarrow frame, or a path"
        )
    schema.require_reviewed()
    if not narrowest_schema(schema).domain:
        raise SettingError("the schema has no columns to synthesise; declare at least one")
    budget = discovery_budget(schema, spec.discovery_share, epsilon=spec.epsilon, delta=spec.delta, rho=spec.rho)
    if spec.rows is not None:
        as_whole("rows", spec.rows, least=1)
    check_noise(spec.noise)
    find_compiler_cache()
    if spec.mechanism == AUTO:
        if spec.paper:
            raise SettingError("paper: name the mechanism that is to run as published")
        spec = _choose(spec, schema, budget)
    mechanism = make_mechanism(spec.mechanism, paper=spec.paper, **spec.settings)
    if spec.public is not None and "public" in setting_names(type(mechanism)):
        mechanism = replace(mechanism, public=spec.public)  # type: ignore[type-var]
        spec = replace(spec, public=None)
    for table in (spec.public, *mechanism.public_tables().values()):
        _check_public(table, spec.data, schema)
    public = None
    if spec.public is not None:
        spec = replace(spec, public_name=spec.public_name or public_name(spec.public))
        public = PublicRows.read(spec.public, str(spec.public_name), schema)
    mechanism = mechanism.prepare(schema)  # for example, choose marginals from a public table, whose rows are not kept
    _settings(mechanism)
    if budget.pure and not mechanism.pure:
        raise SettingError(
            f"{mechanism.name} needs Gaussian noise: give a delta above 0 (pure DP is not possible with it)"
        )
    rating = None
    if spec.quality is not None:
        workload = spec.workload or mechanism.workload or "all-2way"
        rating = Rating(spec.quality, workload)
        rating.tables(narrowest_schema(schema).domain)
        if schema.open and spec.discovery_share + rating.share >= 1:
            raise SettingError("quality and discovery_share leave nothing for the mechanism; give one of them less")
    return Run(spec, schema, budget, mechanism, rating, public)


def _check_public(table: Any, data: Any, schema: Schema) -> None:
    """Refuse a public table if the schema leaves facts to discovery, or if it is the sensitive table itself."""
    if table is None:
        return
    if schema.open:
        name = schema.open[0].name
        raise SettingError(f"public: a public table needs a declared schema; column {name!r} is still to be discovered")
    refuse_same_table(table, data)


def _choose(spec: RunSpec, schema: Schema, budget: Budget) -> RunSpec:
    """Replace `auto` by the mechanism that it chooses, and set the reason."""
    name, reason = choose_mechanism(
        narrowest_schema(schema).domain,
        budget,
        _neighbours(schema),
        rows=schema.rows,
        complete=not schema.open,
        settings=list(spec.settings),
    )
    return replace(spec, mechanism=name, reason=reason)


def _neighbours(schema: Schema) -> Neighbours:
    unit = schema.privacy_unit
    return Neighbours(unit.column, unit.max_rows, schema.rows is not None)


def execute(
    spec: RunSpec,
    *,
    output: Path | None,
    progress: Progress,
    ledger: Ledger,
    run: str | None = None,
) -> Any:
    """Execute a run: resolve, check, reserve, read, fit, write.

    Args:
        spec: the specification of the run.
        output: the path of the release; never overwritten.
        progress: called with each step.
        ledger: where the budget is reserved and answers are recorded.
        run: the identifier of the run to continue, if it is known.

    Raises:
        UnderstudyError: as `synthesize`.
    """
    handle: RunHandle | None = None
    recorder: RunRecorder | None = None
    name = secrets.token_hex(8)  # known before the reservation, so that it can be cancelled after an interrupt
    try:
        chosen = _resolve_any(spec)
        _check(chosen, output)
        with _open_any(chosen) as data:
            if run is not None:
                handle = ledger.continue_run(run)
            elif chosen.counts:
                handle = _reserve(chosen, ledger, name)
            recorder = RunRecorder(ledger if chosen.counts else None, handle, has_rows=spec.data is not None)
            with report_compiling(progress):
                release = _make_any(data, chosen, recorder, handle, ledger, progress)
            _write(release, output, ledger, handle, progress)
            return release
    except BaseException as error:
        if handle is None and isinstance(error, KeyboardInterrupt):
            with suppress(UnderstudyError):  # usually there is no reservation
                ledger.cancel(name)
        failure = _explain(error, spec, ledger, handle, recorder)
    raise failure  # raised here so that it does not carry the first error, which may hold values of the table


def _resolve_any(spec: RunSpec) -> Run | LinkedRun:
    return resolve_linked(spec, spec.schema) if isinstance(spec.schema, LinkedSchema) else resolve(spec)


def _open_any(run: Run | LinkedRun) -> AbstractContextManager[Any]:
    if isinstance(run, LinkedRun):
        return nullcontext(None) if run.tables is None else open_tables(run.tables, run.schema)
    return open_table(run.spec.data, run.spec.query, run.spec.temp_dir)


def _make_any(
    data: Any, run: Run | LinkedRun, recorder: RunRecorder, handle: RunHandle | None, ledger: Ledger, progress: Progress
) -> Release | LinkedRelease:
    if isinstance(run, Run):
        return _make(data, run, recorder, handle, ledger, progress)
    return _make_linked(data, run, recorder, handle, ledger, progress)


def _make_linked(
    tables: OpenTables | None,
    run: LinkedRun,
    recorder: RunRecorder,
    handle: RunHandle | None,
    ledger: Ledger,
    progress: Progress,
) -> LinkedRelease:
    progress(Step("read", None, "the tables"))
    whose = EmptySource(run.schema.schema_of(run.schema.root))
    base = PrivateTable(whose, run.budget, noise=run.spec.noise, recorder=recorder)
    if handle is not None and handle.schema is not None:  # an earlier attempt completed discovery
        run.schema = LinkedSchema.from_dict(handle.schema)
        base.account.pay(recorder.skip_discovery())
    elif run.schema.open:
        if tables is None:
            raise CannotContinue("the tables are not available, and discovery was not finished")
        share = Fraction(run.spec.discovery_share) * base.account.remaining
        run.schema = discover_linked(base, tables, run.schema, share, run.fits, progress)
        if handle is not None:
            ledger.record_schema(handle, run.schema.to_dict())
    fits = fit_linked(base, tables, run.schema, run.mechanism, recorder=recorder, progress=progress)
    label: dict[str, Any] = {"mechanism": run.mechanism.name, "settings": _public_settings(run.mechanism)}
    return LinkedRelease.of(fits, run.schema, run.receipt(base.account.charges), rows=run.spec.rows, **label)


def make_uncharged(spec: RunSpec) -> Release:
    """Make a release without a ledger.

    **Privacy.** Nothing is recorded. Only for a table that its custodian declares public, or as a part of work whose
    whole budget the caller has reserved.

    Raises:
        UnderstudyError: as `synthesize`. The words of any other error may quote the rows: show its `place_of` instead.
    """
    chosen = resolve(spec)
    _check(chosen, None)
    with open_table(spec.data, spec.query, spec.temp_dir) as data:
        return _make(data, chosen, RunRecorder(None, None), None, Ledger(), silent)


def _write(
    release: Release | LinkedRelease,
    output: Path | None,
    ledger: Ledger,
    handle: RunHandle | None,
    progress: Progress,
) -> None:
    """Save the release and record that the run is finished; the file then gets its name."""
    digest = None
    staged = None if output is None else staged_path(output, "rehearsal" if handle is None else handle.run)
    if output is not None and staged is not None:
        progress(Step("write", None, str(output)))
        release.save(staged, overwrite=True)
        digest = file_digest(staged)
    if handle is not None:
        facts = summarize(release) if isinstance(release, Release) else release.summary()
        ledger.finish(handle, {"release": digest, "facts": facts})
    if output is not None and staged is not None:
        publish(staged, output)


def _check(run: Run | LinkedRun, output: Path | None) -> None:
    """Check memory, disk, the output and the budget before anything is reserved."""
    if isinstance(run, LinkedRun):
        schema = narrowest_tables(run.schema)
        footprint = run.mechanism.footprint(schema)
        rules = max(check_rules(one.schema) for one in schema.virtual_tables.values())
        check_memory(footprint.memory_bytes + rules)
    else:
        footprint = run.mechanism.footprint(narrowest_schema(run.schema).domain)
        check_memory(footprint.memory_bytes + check_rules(narrowest_schema(run.schema)))
    if run.counts:
        warn_of_weak_budget(run.budget)
    if output is not None:
        check_output(output)
        check_space(output.parent, footprint.disk_bytes)


def _reserve(run: Run | LinkedRun, ledger: Ledger, name: str) -> RunHandle:
    spec, unit = run.spec.to_dict(run.mechanism), run.neighbours.describe()
    return ledger.reserve(run.dataset, run.budget, unit=unit, spec=spec, key=run.spec.key, run=name)


def _make(
    data: Any, run: Run, recorder: RunRecorder, handle: RunHandle | None, ledger: Ledger, progress: Progress
) -> Release:
    progress(Step("read", None, "the table"))
    table = _open(data, run, recorder, handle, ledger, progress)
    total: float | None = run.schema.rows_used if data is None else table.rows_public
    try:
        fit = run.mechanism.fit(
            table, rho=float_below(table.account.remaining - run.budget_for_result), progress=progress
        )
    except CannotContinue as reason:
        fit, total = _finish(run, table, recorder, str(reason), progress)
    except InputError as reason:  # a declared number of rows that contradicts the answers, for example
        if recorder.has_new_answers:
            raise
        fit, total = _finish(run, table, recorder, str(reason), progress)  # an earlier attempt failed here, too
    fit = learn_dependencies(run.mechanism.finish, fit, run.schema, total=total, progress=progress)
    fit = _use_public(run, table, fit, progress)
    quality = _measure_quality(run, table, fit, progress)
    table.account.pay(recorder.recall_rest())  # further answers of an earlier attempt are charged as well
    receipt = run.receipt(table.account.charges)
    label: dict[str, Any] = {"mechanism": run.mechanism.name, "settings": _public_settings(run.mechanism)}
    return Release.of(fit, run.schema, receipt, rows=run.spec.rows, quality=quality, **label)


def _open(
    data: Any, run: Run, recorder: RunRecorder, handle: RunHandle | None, ledger: Ledger, progress: Progress
) -> PrivateTable:
    """Open the table behind the gate, coded by the declared schema or by one that discovery completed."""
    rest: Any = {"noise": run.spec.noise, "recorder": recorder}
    if handle is not None and handle.schema is not None:  # an earlier attempt completed discovery
        run.schema = Schema.from_dict(handle.schema)
        table = PrivateTable(_source(data, run.schema), run.budget, **rest)
        table.account.pay(recorder.skip_discovery())
        return table
    if not run.schema.open:
        return PrivateTable(_source(data, run.schema), run.budget, plan=run.plan, **rest)
    if data is None:
        raise CannotContinue("the table is not available, and discovery was not finished")
    reopen = make_opener(data, run.schema)
    reopen(narrowest_schema(run.schema))  # a missing column is refused before anything is discovered
    table = PrivateTable(EmptySource(run.schema), run.budget, **rest)
    share = Fraction(run.spec.discovery_share) * table.account.remaining
    run.schema = Discovery(table, reopen, run.schema, share, progress).discover(run.fits)
    if handle is not None:
        ledger.record_schema(handle, run.schema.to_dict())
    return table.with_source(reopen(run.schema))


def _source(data: Any, schema: Schema) -> Any:
    return EmptySource(schema, coded=True) if data is None else open_source(data, schema)


def _finish(
    run: Run, table: PrivateTable, recorder: RunRecorder, reason: str, progress: Progress
) -> tuple[Fit, float | None]:
    """Fit the model to all recorded answers, at no further cost; also return the public number of rows it uses."""
    table.account.pay(recorder.recall_rest())
    if not recorder.measurements:
        raise CannotContinue(f"{reason}, and nothing was measured yet")
    schema, recoding = run.schema, recorder.recoding

    def finish(total: float | None) -> Fit:
        return run.mechanism.finish(
            schema.domain,
            recorder.measurements,
            recoding=recoding,
            groups=schema.code_groups,
            total=total,
            progress=progress,
        )

    try:
        return finish(schema.rows_used), schema.rows_used
    except InputError:  # if the declared number of rows is wrong, use the noisy one: the measurements must not be lost
        return finish(None), None


def _use_public(run: Run, table: PrivateTable, fit: Fit, progress: Progress) -> Fit:
    """Return the best of the model and its combinations with public rows; the model if the gate cannot be asked."""
    if run.public is None or any(charge.what == "quality" for charge in table.account.charges):
        return fit
    workload = run.spec.workload or run.mechanism.workload or "all-2way"
    try:
        return choose_model(table, fit, run.public, run.schema, workload, progress)
    except CannotContinue:
        return fit


def _measure_quality(run: Run, table: PrivateTable, fit: Fit, progress: Progress) -> Quality | None:
    """Measure the quality; None if it was not requested, or if its share was spent on another attempt's fit."""
    asked = sum(charge.what == "quality" for charge in table.account.charges)
    if run.rating is None or asked > (CANDIDATES if run.public else 0):
        return None
    progress(Step("measure", None, "the workload error"))
    try:
        return measure_quality(table, fit, run.rating)
    except CannotContinue:
        return None


def _explain(
    error: BaseException, spec: RunSpec, ledger: Ledger, handle: RunHandle | None, recorder: RunRecorder | None
) -> BaseException:
    """Return the error to raise: our own if nothing was answered yet, else one that says how to continue.

    **Privacy.** Any other error's message may quote a cell: it is reported by its type and its place in the code.
    """
    words = str(error) if isinstance(error, UnderstudyError) else f"{type(error).__name__} at {place_of(error)}"
    answered = recorder is not None and recorder.has_answers
    after = "Nothing was spent."
    if handle is not None and answered:
        again = f"`understudy resume {handle.run}`"
        again = f"run the same command again, or {again}" if spec.key is not None else f"continue with {again}"
        after = f"The charges stand and every answer is recorded as run {handle.run}: {again}, at no further cost"
    elif handle is not None:
        try:
            ledger.abandon(handle)
        except OutputError:
            after = f"Another process is continuing run {handle.run}."
        except UnderstudyError:
            after = f"The budget of run {handle.run} stays reserved until `understudy ledger cancel {handle.run}`."
    if isinstance(error, KeyboardInterrupt | SystemExit):
        stopped = SystemExit(error.code) if isinstance(error, SystemExit) else KeyboardInterrupt()
        stopped.add_note(after)
        return stopped
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        words = "the disk is full: free space, or give another folder for temporary files with --temp-dir (`temp_dir`)"
    if answered and handle is not None:
        return RunInterrupted(f"{words}. {after}")
    if isinstance(error, CannotContinue):
        return InputError(f"{words}; start a new run with the table. {after}")
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        return OutputError(f"{words}. {after}")
    if isinstance(error, UnderstudyError):
        error.__context__ = error.__cause__ = None
        return error.with_traceback(None)
    return InternalError(f"unexpected error ({words}); nothing was spent")


def dataset_name(data: Any) -> str:
    """Return the default dataset name: that of the file, folder or database table, else "unnamed"."""
    return data.name if isinstance(data, StoredTable) else table_name(data)


def _address(table: Any) -> Any:
    """Return the absolute path or the URL of a table; None for a frame, and for an address with a password."""
    if isinstance(table, Mapping):
        found = {name: _address(one) for name, one in table.items()}
        return found if all(one is not None for one in found.values()) else None
    if not isinstance(table, str | PathLike) or holds_password(os.fspath(table)):
        return None
    text = os.fspath(table)
    return text if "://" in text else str(Path(text).absolute())


def _is_gone(table: Any) -> bool:
    if isinstance(table, Mapping):
        return any(map(_is_gone, table.values()))
    return isinstance(table, str) and "://" not in table and "*" not in table and not Path(table).exists()


def _to_plain(value: Any) -> Any:
    """Convert a numpy number to a Python number, for JSON; return anything else unchanged."""
    return value if isinstance(value, int) or not isinstance(value, Real) else float(value)


def _settings(mechanism: Mechanism | LinkedMechanism) -> dict[str, Any]:
    """Return the settings as plain data as JSON returns them, with lists instead of tuples."""
    settings = mechanism.settings()
    try:
        return dict(json.loads(json.dumps(settings, allow_nan=False)))
    except (TypeError, ValueError, RecursionError):
        raise SettingError(
            f"the settings of {mechanism.name} must be plain values: numbers, text or lists of these"
        ) from None


def _public_settings(mechanism: Mechanism | LinkedMechanism) -> dict[str, Any]:
    """Return the settings for publication: a workload file by its name, without its folder."""
    settings = _settings(mechanism)
    named = settings.get("workload")
    return settings | ({"workload": public_workload_name(named)} if isinstance(named, str) else {})


def place_of(error: BaseException) -> str:
    """Return where in the code an error arose, which says nothing about the rows."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"
