"""The grid: mechanisms x budgets x workloads x runs on one or more tables, each run in a worker process.

A worker is a Python process that is sent a table once and then one cell of the grid after the other, as JSON over its
standard input; it answers with the scores. A cell that passes a limit ends its worker and nothing else. Every answer
is appended to the record, one line each, before the next cell starts: a killed grid continues where it stopped.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import psutil
import pyarrow as pa

from understudy.accounting import Budget
from understudy.accounting.exact import format_up
from understudy.arguments import as_names, as_path, as_progress, as_whole
from understudy.comparison.study import (
    DONE,
    SHARE,
    STUDY_KEYS,
    SUBSAMPLE,
    GridCell,
    Study,
    StudyTable,
    load_study,
    make_study,
    parse_mechanism,
    to_json,
)
from understudy.errors import BudgetExceeded, OutputError, SettingError, UnderstudyError
from understudy.files import OWNER_ONLY, write_atomically, write_text
from understudy.ledger import Ledger, RunHandle
from understudy.ledger.spending import Reservation, add_up
from understudy.metric import Rows
from understudy.metric.registry import average, get_metric, measure
from understudy.metric.tables import Answers
from understudy.progress import Progress, Step, silent
from understudy.run.pipeline import COMPARISON, RunSpec, dataset_name, make_uncharged, place_of, resolve
from understudy.schema import Schema, frame_kind
from understudy.schema.custodian import mark_path
from understudy.schema.frames import to_arrow_columns, to_frame
from understudy.schema.linked import load_any
from understudy.source.read import collect_table
from understudy.source.temp import PrivateFolder
from understudy.svg import Chart
from understudy.yaml_json import is_yaml_or_json, read_json

KEPT = ("model", "norm", "share", "part", "error", "error rate", "setting")
"""Kinds of parts that are kept with a score; other kinds have a part for each marginal, column or group."""

_CHECK_EVERY, _REPORT_EVERY = 0.2, 0.5  # seconds between two checks of the workers, and two reports of progress
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)


# -- The comparison.


def compare(
    data: Any,
    schema: Schema | str | PathLike[str] | None = None,
    *,
    mechanisms: Sequence[str] | Mapping[str, str] | None = None,
    epsilons: float | Sequence[float] | None = None,
    delta: float | None = None,
    workload: str | Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    runs: int | None = None,
    sets: int | None = None,
    tables: Sequence[str] | None = None,
    folder: str | PathLike[str] | None = None,
    output: str | PathLike[str] | None = None,
    public: bool | None = None,
    epsilon_total: float | None = None,
    seconds: float | None = None,
    memory_mib: float | None = None,
    jobs: int | None = None,
    seed: int | None = None,
    dataset: str | None = None,
    ledger: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run mechanisms side by side: every mechanism with every budget, several times, scored by metrics.

    Args:
        data: the table, whatever `synthesize` takes; or the path of a study, a .yaml file that states the grid. The
            rows are brought into memory. Arguments have precedence over a study.
        schema: what is public about the columns, or the path of its file; not with a study.
        mechanisms: names, with settings as in ``"aim:max_mib=4"`` and ``"mst:paper"`` for the published variant; or a
            mapping from labels to these. Labels of a study choose among its mechanisms. By default "auto". On a public
            table also "subsample:share=0.1", a random part of the real rows, to compare with.
        epsilons: the budgets; 1 by default.
        delta: the delta of every epsilon; 1e-9 by default.
        workload: which marginals matter, "all-3way" by default. It is passed to mechanisms that take a workload.
        metrics: names of metrics; "workload_error" by default.
        settings: settings by metric, ``{"mgd": {"tolerance": 5}}``.
        runs: how often each case is repeated; once by default.
        sets: how many synthetic tables each release gives; scores are averaged over them.
        tables: which tables of a study.
        folder: where the tables of a study are; by default the folder of its file.
        output: a folder for the record, the results and the page. The same call continues what is there.
        public: whether you declare the tables public: nothing is then charged.
        epsilon_total: for a table that is not public, the epsilon that you agree to spend on the whole grid. The
            grid's exact cost is reserved in the ledger before anything runs; it is refused if it is more.
        seconds: the most seconds that one run, with its scores, may take.
        memory_mib: the most memory that one run may take.
        jobs: how many processes; by default one for each core.
        seed: for synthetic rows and metrics; private noise cannot be seeded.
        dataset: the dataset's name in the ledger, as for `synthesize`.
        ledger: as for `synthesize`.
        progress: called with each `Step`.

    Returns:
        A `Comparison`: `frame`, `plot()`, `page()`.

    **Privacy.** Scores are computed from real rows: for the custodian only, unless the table is public. The synthetic
    tables are not kept. On a table that is not public every run is charged, also one that failed or was stopped; a run
    that was interrupted is not repeated.

    Raises:
        InputError: the table, the schema or a setting cannot be used. Nothing was spent.
        BudgetExceeded: the grid costs more than `epsilon_total`, or than a grant of the ledger. Nothing was read.
        OutputError: the folder holds another comparison, or cannot be written.
    """
    given: dict[str, Any] = {"mechanisms": mechanisms, "epsilons": epsilons, "delta": delta, "metrics": metrics}
    given |= {"workloads": workload, "settings": settings, "runs": runs, "sets": sets, "public": public, "seed": seed}
    given |= {"seconds": seconds, "memory_mib": memory_mib}
    study = _make_study(data, schema, given, tables, folder)
    study.check()
    with ExitStack() as stack:
        home = stack.enter_context(closing(PrivateFolder())).path if output is None else as_path("output", output)
        record = stack.enter_context(_Record(home, study))
        book = Ledger(ledger)
        handles = [] if study.public else _reserve_missing(study, record, book, epsilon_total, dataset)
        try:
            run_cells(
                study, record, jobs=as_whole("jobs", jobs or _count_cores(), least=1), progress=as_progress(progress)
            )
        except KeyboardInterrupt:
            if output is not None and record.scored:  # what there is
                Comparison(record.results(), study, frame_kind(data)).save(home)
            raise
        for handle in handles:
            if not all(cell in record.scored for cell in record.reserved[handle.run]):
                continue  # another call reserved more than this one runs
            book.finish(handle, {"release": None, "facts": {"comparison": str(home.absolute())}})
        found = Comparison(record.results(), study, frame_kind(data))
        if output is not None:
            found.save(home)
    return found


def _make_study(
    data: Any,
    schema: Schema | str | PathLike[str] | None,
    given: Mapping[str, Any],
    tables: Sequence[str] | None,
    folder: str | PathLike[str] | None,
) -> Study:
    """Return the study of a call of `compare`: that of a file with the given arguments, or one of a single table."""
    if isinstance(data, str | PathLike) and is_yaml_or_json(os.fspath(data)):
        if schema is not None:
            raise SettingError("schema: a study names the schemas of its tables; leave the option out")
        study = load_study(Path(data), None if folder is None else as_path("folder", folder))
        return _change_study(study, given, tables)
    if schema is None:
        raise SettingError("schema is missing: give what is public about the columns (--schema)")
    if tables is not None or folder is not None:
        raise SettingError("tables and folder belong to a study; give the path of its .yaml file as the table")
    described = load_any(schema) if isinstance(schema, str | PathLike) else schema
    if not isinstance(described, Schema):
        raise SettingError(
            "schema: a comparison is of single tables; of linked tables, make one release with each mechanism and "
            "score its rows with `evaluate`, or predict errors with `plan`"
        )
    return make_study(tables={dataset_name(data): StudyTable(data, described)}, **given)


def _change_study(study: Study, given: Mapping[str, Any], names: Sequence[str] | None) -> Study:
    """Return a study with the given arguments in place of its own, and with these tables of its own."""
    wanted = list(study.tables) if names is None else as_names("tables", names)
    for name in wanted:
        if name not in study.tables:
            raise SettingError(f"tables: the study has no table {name!r}; it has {', '.join(study.tables)}")
    changed = {name: value for name, value in given.items() if value is not None}
    changed["tables"] = {name: study.tables[name] for name in wanted}
    if "workloads" in changed:  # also in place of the tables' own
        changed["tables"] = {name: replace(one, workloads=()) for name, one in changed["tables"].items()}
    if (mechanisms := changed.get("mechanisms")) is not None:
        if not isinstance(mechanisms, Mapping):
            labels = as_names("mechanisms", mechanisms)
            changed["mechanisms"] = {label: study.mechanisms.get(label, label) for label in labels}
        changed["runs_of"] = {label: n for label, n in study.runs_of.items() if label in changed["mechanisms"]}
    return make_study(**{name: getattr(study, name) for name in STUDY_KEYS} | changed)


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class Comparison:
    """The scores of a grid.

    Attributes:
        results: an arrow table, a line for each score and part: table, workload, mechanism (its label), epsilon, delta,
            run, metric, part, value, better, seconds (of processor time, fit and sampling), scoring_seconds, peak_mib,
            outcome, version (of Understudy, and the day).
        study: what was compared.
        kind: which kind of frame `frame` is.

    **Privacy.** For the custodian only, unless the tables are public.
    """

    results: pa.Table
    study: Study
    kind: Any = "arrow"

    @property
    def frame(self) -> Any:
        """The results as a frame of the kind that was compared."""
        return to_frame(self.results, self.kind)

    def plot(self, metric: str | None = None, table: str | None = None, part: str = "") -> Chart:
        """Draw a metric against epsilon: means over the runs, with bars from the least to the largest.

        Args:
            metric: by default the first.
            table: by default the first.
            part: a part of the score, such as "cart, cross-validated"; by default the score.
        """
        from understudy.comparison.page import draw_scores

        return draw_scores(self, metric or self.study.metrics[0], table or next(iter(self.study.tables)), part)

    def page(self) -> str:
        """Render the comparison as one HTML page."""
        from understudy.comparison.page import comparison_page

        return comparison_page(self)

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write results, page and charts into a folder; *.custodian-only.* unless public."""
        import pyarrow.csv as csv
        import pyarrow.parquet as parquet

        from understudy.comparison.page import draw_all

        home, private = Path(folder), not self.study.public
        paths = [_place(home / name, self.study) for name in ("results.parquet", "results.csv", "comparison.html")]
        with write_atomically(paths[0], private=private) as file:
            parquet.write_table(self.results, file)
        with write_atomically(paths[1], private=private) as file:
            csv.write_csv(self.results, file)
        write_text(self.page(), paths[2], private=private)
        for name, chart in draw_all(self):
            paths.append(_place(home / f"{name}.svg", self.study))
            write_text(f"{chart.svg}\n", paths[-1], private=private)
        return paths

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.study.mechanisms)}: {self.results.num_rows} scores>"

    def _repr_html_(self) -> str:
        from understudy.comparison.page import score_table

        return f"{self.plot().svg}{score_table(self)}"


def _place(path: Path, study: Study) -> Path:
    return path if study.public else mark_path(path)


# -- The record, and what the ledger knows of it.


class _Record:
    """An append-only file of what was reserved, started and scored; one JSON object a line.

    The record is all that a comparison needs to go on: results, page and charts are made from it. It is small, a few
    hundred bytes a run, so that the record of a study can be kept under version control.

    **Privacy.** Scores are computed from real rows: the file is marked and its owner's alone, unless tables are public.
    """

    def __init__(self, home: Path, study: Study) -> None:
        self.path, self.study = _place(home / "record.jsonl", study), study
        self.scored: dict[GridCell, dict[str, Any]] = {}
        self.started: set[GridCell] = set()
        self.reserved: dict[str, list[GridCell]] = {}
        self._shared: dict[str, Any] = {}
        self._version = _find_version()  # now: the files may change while the grid runs
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> _Record:
        for line in self._lines():
            self._shared |= line.get("shared", {})
            if "reserved" in line:
                self.reserved[line["reserved"]] = [GridCell(*cell) for cell in line["cells"]]
            if "started" in line:
                self.started.add(GridCell(*line["started"]))
            if "cell" in line:
                self.scored[GridCell(*line["cell"])] = line
        for name, value in self.study.common_facts().items():
            if self._shared.get(name, value) != value:
                raise OutputError(
                    f"{self.path.parent} holds a comparison with another value of {name}; choose another folder"
                )
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Yield every complete line; the last one may have been cut when the process was killed."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError:
            raise OutputError(f"{self.path} cannot be read; choose another folder") from None
        for line in text.split(b"\n")[:-1]:
            with suppress(ValueError):
                yield dict(read_json(line))

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line; the first one of a new file is preceded by what all runs share."""
        if "cell" in line:
            line = {**line, "version": f"{self._version}, {datetime.now(UTC):%Y-%m-%d}"}
            self.scored[GridCell(*line["cell"])] = line
        with self._lock:
            try:
                if self._file is None:
                    self._open()
                assert self._file is not None  # noqa: S101 - opened above
                self._file.write(to_json(line) + b"\n")
                self._file.flush()
            except OSError as error:
                raise OutputError(f"{self.path} cannot be written ({error.strerror}); choose another folder") from None

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        self._file = os.fdopen(os.open(self.path, flags, 0o666 if self.study.public else OWNER_ONLY), "a+b")
        shared = self.study.common_facts()
        if self._file.tell() and shared.items() <= self._shared.items():
            self._file.write(b"\n")  # ends a line that was cut
        else:
            self._file.write(b"\n" * bool(self._file.tell()) + to_json({"shared": shared}) + b"\n")

    def list_missing(self) -> list[GridCell]:
        """Return the cells that are still to be run. Of a private table, one that was interrupted is spent."""
        todo = [cell for cell in self.study.cells() if cell not in self.scored]
        if self.study.public:
            return todo
        for cell in todo:
            if cell in self.started:
                self.append(_line(cell, "interrupted: what it cost is spent"))
        return [cell for cell in todo if cell not in self.started]

    def results(self) -> pa.Table:
        """Return everything on record as a tidy table."""
        labels = {text: label for label, text in self.study.mechanisms.items()}
        lines = []
        places = {name: place for place, name in enumerate([*self.study.tables, *self.study.mechanisms.values()])}
        last = len(places)

        def order(cell: GridCell) -> tuple[Any, ...]:
            known = places.get(cell.table, last), places.get(cell.mechanism, last)
            return known[0], cell.table, cell.workload, cell.epsilon, known[1], cell.mechanism, cell.run

        for cell in sorted(self.scored, key=order):
            line = self.scored[cell]
            same = vars(cell) | {
                "mechanism": labels.get(cell.mechanism, line.get("label", cell.mechanism)),
                "delta": self.study.delta,
            }
            same |= {name: line[name] for name in ("seconds", "scoring_seconds", "peak_mib", "outcome", "version")}
            blank = {"part": "", "value": None, "better": None}
            for metric in self.study.metrics:
                parts = line["scores"].get(metric, {"": None})
                if isinstance(parts, str):
                    lines.append(same | blank | {"metric": metric, "outcome": parts})
                    continue
                better = None if parts == {"": None} else get_metric(metric).better
                lines += [same | {"metric": metric, "part": p, "value": v, "better": better} for p, v in parts.items()]
        columns = {name: pa.array([line[name] for line in lines], kind) for name, kind in _COLUMNS.items()}
        return pa.table(columns)


_COLUMNS = {
    **dict.fromkeys(("table", "workload", "mechanism"), pa.string()), "epsilon": pa.float64(), "delta": pa.float64(),
    "run": pa.int64(), "metric": pa.string(), "part": pa.string(), "value": pa.float64(), "better": pa.string(),
    "seconds": pa.float64(), "scoring_seconds": pa.float64(), "peak_mib": pa.float64(), "outcome": pa.string(),
    "version": pa.string(),
}  # fmt: skip


def _line(cell: GridCell, outcome: str, **rest: Any) -> dict[str, Any]:
    blank: dict[str, Any] = {"seconds": None, "scoring_seconds": None, "peak_mib": None, "scores": {}}
    return {"cell": list(vars(cell).values()), "outcome": outcome} | blank | rest


def _find_version() -> str:
    """Return the version of Understudy; in a clone of its repository also the commit, and whether it was changed."""
    package, found = Path(__file__).resolve().parents[1], version("understudy")
    if (package.parents[1] / ".git").exists():
        with suppress(OSError, subprocess.SubprocessError):
            git = ["git", "-C", str(package)]
            commit = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, check=True).stdout
            changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "."], check=False).returncode
            found += f" {commit.decode().strip()}{' changed' * bool(changed)}"
    return found


def _reserve_missing(
    study: Study, record: _Record, ledger: Ledger, epsilon_total: float | None, dataset: str | None
) -> list[RunHandle]:
    """Reserve the cost of cells that no earlier call reserved; return the runs that are to be marked as finished.

    **Privacy.** All budgets of a reservation are fixed in advance, so the smaller of two sums holds: of rho, converted
    once, and of epsilon. A cell that cannot run with its settings costs nothing. The reservation is in the ledger, and
    cannot be cancelled any more, before a worker starts.
    """
    if len(study.tables) > 1:
        raise SettingError(
            "a study of several tables needs public tables (--public); compare a private table by itself"
        )
    (table,) = study.tables.values()
    if table.schema.open:
        name = table.schema.open[0].name
        raise SettingError(f"a private table is compared with a declared schema; column {name!r} is left to discovery")
    known = {cell for cells in record.reserved.values() for cell in cells}
    new = [cell for cell in study.cells() if cell not in known]
    runs: list[str] = [run for run in record.reserved if ledger.find(run).finished is None]
    if new:
        runs.append(_reserve(study, new, record, ledger, epsilon_total, dataset))
    handles = [ledger.continue_run(run) for run in runs]
    for handle in handles:
        if not handle.answered:  # from here on it cannot be cancelled
            ledger.record(handle, {"charges": [], COMPARISON: len(study.cells())}, None)
    return handles


def _reserve(
    study: Study,
    cells: Sequence[GridCell],
    record: _Record,
    ledger: Ledger,
    epsilon_total: float | None,
    dataset: str | None,
) -> str:
    """Reserve the budgets of all these cells together; returns the run's identifier."""
    (table,) = study.tables.values()
    runs = []
    for cell in cells:
        with suppress(UnderstudyError):  # it becomes a line of the results that says why
            runs.append(resolve(study.spec(cell)))
    unit, time_ = runs[0].neighbours.describe() if runs else "", datetime.now(UTC)
    total = add_up([Reservation("", "", run.budget, unit, time_, time_, "") for run in runs])
    if total.epsilon is None or total.delta is None:
        raise SettingError(
            "no mechanism of the grid can run on this table; `understudy mechanisms` lists what each needs"
        )
    words = ("1 run costs", "") if len(runs) == 1 else (f"{len(runs)} runs cost", " together")
    cost = f"{words[0]} epsilon {format_up(total.epsilon)} at delta {format_up(total.delta)}{words[1]}"
    if epsilon_total is None:
        raise SettingError(
            f"the table is not declared public: {cost}. Agree to that with --epsilon-total {format_up(total.epsilon)} "
            "(`epsilon_total`), compare less, or declare the table public with --public. Nothing was read"
        )
    if total.epsilon > float(epsilon_total):
        raise BudgetExceeded(f"{cost}, more than the epsilon_total of {epsilon_total:g}. Nothing was read")
    pure = all(run.budget.pure for run in runs)
    exact = Fraction(total.rho), Fraction(total.epsilon), Fraction(total.delta)
    values = [list(vars(cell).values()) for cell in cells]
    budget = Budget("pure" if pure else "zcdp", *exact)
    handle = ledger.reserve(dataset or dataset_name(table.data), budget, unit=unit, spec={COMPARISON: values})
    record.append({"reserved": handle.run, "cells": values})
    record.reserved[handle.run] = list(cells)
    return handle.run


# -- The workers.


class _Worker:
    """A process that runs one cell after the other."""

    def __init__(self, study: Study, tables: Mapping[str, bytes]) -> None:
        self.study, self.tables = study, tables
        self.cell: GridCell | None = None
        self.stopped: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._begun, self._sent = 0.0, ""

    def run(self, cell: GridCell) -> dict[str, Any]:
        """Run a cell and return its line of the record, whatever happens to the process."""
        self.stopped = None
        try:
            process = self._start()
            self._begun, self.cell = time.monotonic(), cell
            answer = self._ask(process, cell)
        except (OSError, ValueError):
            answer = None
        wall, self.cell = time.monotonic() - self._begun, None
        if answer is None:
            self.end()
            return _line(
                cell, self.stopped or "failed: the process ended, perhaps because memory ran out", seconds=wall
            )
        late = self._find_passed_limit(wall, answer["peak_mib"])
        return _line(cell, **answer) if late is None else _line(cell, late, seconds=wall, peak_mib=answer["peak_mib"])

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            paths = os.pathsep.join(path for path in sys.path if path)
            command = [sys.executable, "-c", "from understudy.comparison.grid import serve; serve()"]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # a message of a library may quote a cell
                env=os.environ | _ONE_THREAD | {"PYTHONPATH": paths},
            )
            self._sent = ""
            if self._process.stdout is None or self._process.stdout.readline() != _READY:
                raise OSError("the worker did not start")
        return self._process

    def _ask(self, process: subprocess.Popen[bytes], cell: GridCell) -> dict[str, Any] | None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - pipes
        spec = self.study.spec(cell)
        content: dict[str, Any] = {
            "run": {name: getattr(spec, name) for name in _RUN_FIELDS},
            "score": self.study.scoring(cell),
            "bounded": "rows" in parse_mechanism(cell.mechanism)[2],
        }
        table = b""
        if self._sent != cell.table:
            table = self.tables[cell.table]
            content["schema"] = spec.schema.to_dict()
        message = to_json(content)
        process.stdin.write(b"%d %d\n" % (len(message), len(table)) + message)
        process.stdin.write(table)
        process.stdin.flush()
        self._sent = cell.table
        line = process.stdout.readline()
        return dict(read_json(line)) if line.endswith(b"\n") else None

    def check(self) -> None:
        """End the process if its cell has passed a limit."""
        process = self._process
        if self.cell is None or process is None or self.stopped is not None:
            return
        used = 0.0
        if self.study.memory_mib is not None:
            with suppress(psutil.Error):
                used = psutil.Process(process.pid).memory_info().rss / 2**20
        self.stopped = self._find_passed_limit(time.monotonic() - self._begun, used)
        if self.stopped is not None:
            process.kill()

    def _find_passed_limit(self, seconds: float, memory_mib: float) -> str | None:
        """Return which limit was passed, in words."""
        if self.study.seconds is not None and seconds > self.study.seconds:
            return f"stopped: more than {self.study.seconds:g} s"
        if self.study.memory_mib is not None and memory_mib > self.study.memory_mib:
            return f"stopped: more than {self.study.memory_mib:g} MiB"
        return None

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


_READY = b"ready\n"
_RUN_FIELDS = ("epsilon", "delta", "mechanism", "paper", "settings")


def run_cells(study: Study, record: _Record, *, jobs: int, progress: Progress) -> None:
    """Run the cells that are missing in worker processes, and record each; a failure is a line of the record."""
    todo = record.list_missing()
    if not todo:
        return
    progress(Step("read", None, "the tables"))
    names = dict.fromkeys(cell.table for cell in todo)
    tables = {
        name: _to_bytes(collect_table(study.tables[name].data, study.tables[name].schema), study.tables[name].schema)
        for name in names
    }
    clock, labels = _Clock(len(todo), jobs), {text: label for label, text in study.mechanisms.items()}
    waiting, errors, lock = list(reversed(todo)), list[BaseException](), threading.Lock()

    def work(worker: _Worker) -> None:
        try:
            while waiting and not errors:
                with lock:
                    if not waiting:
                        return
                    cell = waiting.pop()
                if not study.public:
                    record.append({"started": list(vars(cell).values())})
                begun = time.monotonic()
                label = labels[cell.mechanism]
                record.append(worker.run(cell) | ({} if label == cell.mechanism else {"label": label}))
                clock.add(cell, time.monotonic() - begun)
        except BaseException as error:
            errors.append(error)

    workers = [_Worker(study, tables) for _ in range(min(jobs, len(todo)))]
    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(_CHECK_EVERY)
            for worker in workers:
                worker.check()
            if progress is not silent and clock.is_due():
                with lock:
                    progress(clock.step(waiting, [worker.cell for worker in workers if worker.cell is not None]))
    finally:
        waiting.clear()
        for worker in workers:
            worker.end()
    if errors:
        raise errors[0]


def _to_bytes(frame: Any, schema: Schema) -> bytes:
    """Return the columns that a run needs, in arrow's format; the mark of text that no reader guessed stays."""
    if isinstance(frame, pa.Table):
        table = frame.select([name for name in schema.needs if name in frame.column_names])
    else:
        table = pa.table(to_arrow_columns(frame, schema.needs, schema.dialect.decimal)[0])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


class _Clock:
    """An estimate of the time left, from the cells of the same table and mechanism."""

    def __init__(self, cells: int, jobs: int) -> None:
        self._cells, self._jobs = cells, jobs
        self._times: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._reported = 0.0

    def is_due(self) -> bool:
        """Return whether it is time to report again."""
        if time.monotonic() - self._reported < _REPORT_EVERY:
            return False
        self._reported = time.monotonic()
        return True

    def add(self, cell: GridCell, seconds: float) -> None:
        self._times[cell.table, cell.mechanism].append(seconds)

    def step(self, waiting: Sequence[GridCell], running: Sequence[GridCell]) -> Step:
        times = dict(self._times)
        every = [seconds for some in times.values() for seconds in some]
        if not every:
            return Step("compare", 0.0, f"{self._cells} runs")
        mean = sum(every) / len(every)
        left = 0.0
        for cell, part in [*((cell, 1.0) for cell in waiting), *((cell, 0.5) for cell in running)]:
            same = times.get((cell.table, cell.mechanism))
            left += part * (sum(same) / len(same) if same else mean)
        words = f"{len(every)} of {self._cells} runs, about {_duration(left / self._jobs)} left"
        return Step("compare", len(every) / self._cells, words)


def _duration(seconds: float) -> str:
    """Return a duration in words: 40 s, 12 min, 3.5 h.

    >>> _duration(40), _duration(720), _duration(12600)
    ('40 s', '12 min', '3.5 h')
    """
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


# -- Inside a worker.


def serve() -> None:
    """Answer cells on the standard input until it ends; nothing but answers is written to the standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    pa.set_cpu_count(1)
    answers.write(_READY)
    answers.flush()
    table = None
    while header := sys.stdin.buffer.readline():
        sizes = [int(size) for size in header.split()]
        content = read_json(sys.stdin.buffer.read(sizes[0]))
        if sizes[1]:
            schema = Schema.from_dict(content["schema"])
            table = _Loaded(pa.ipc.open_stream(sys.stdin.buffer.read(sizes[1])).read_all(), schema)
        answers.write(to_json(_run_cell(table, content)) + b"\n")
        answers.flush()


class _Loaded:
    """A table in a worker: its rows, coded once where discovery leaves nothing open."""

    def __init__(self, frame: Any, schema: Schema) -> None:
        self.frame, self.schema = frame, schema
        self._real: Rows | None = None

    def code_real_rows(self, schema: Schema) -> Rows:
        """Return the real rows, coded by the schema of a release."""
        if self._real is None or self.schema.open:
            self._real = Rows.of(self.frame, schema, what="real table")
        return self._real


def _exit_with_parent(parent: int) -> None:
    """End this process when the one that started it was killed."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _run_cell(table: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    """Run and score a cell; an error is its outcome, in words that hold nothing of the rows."""
    _reset_peak()
    score, begun = content["score"], time.process_time()
    seeds = [_seed([score["seed"], score["run"], number]) for number in range(score["sets"])]
    try:
        schema, made = _make_tables(table, content["run"], seeds, bounded=content["bounded"])
        real = table.code_real_rows(schema)
    except Exception as error:
        return {
            "outcome": f"failed: {_describe(error)}",
            "seconds": time.process_time() - begun,
            "peak_mib": _peak_mib(),
        }
    spent = {"seconds": _round_figures(time.process_time() - begun), "peak_mib": _peak_mib()}
    scored, scores = time.process_time(), dict[str, Any]()
    for name, settings in score["metrics"]:
        try:
            if get_metric(name).rows and not isinstance(made[0], Rows):
                raise SettingError(f"{name} needs rows, and this mechanism publishes answers without rows")
            each = [measure(real, one, schema, [name], {name: settings}, seed=score["seed"])[0] for one in made]
        except Exception as error:
            scores[name] = f"failed: {_describe(error)}"
            continue
        found = average(each)
        parts = {part.name: _round_figures(part.value) for part in found.parts if part.kind in KEPT}
        scores[name] = {"": _round_figures(found.value)} | parts
    return {"outcome": DONE, "scores": scores, "scoring_seconds": _round_figures(time.process_time() - scored), **spent}


def _round_figures(value: float) -> float:
    """Return a number with six digits: more would only make the record longer."""
    return float(f"{value:.6g}")


def _make_tables(
    table: Any, run: Mapping[str, Any], seeds: Sequence[int], *, bounded: bool
) -> tuple[Schema, Sequence[Rows | Answers]]:
    """Return the synthetic tables of a run, or the answers of a mechanism without rows, and the schema of them.

    **Privacy.** With `bounded` the number of rows is used as it is: `Study.check` has refused that unless the table is
    declared public.
    """
    if run["mechanism"] == SUBSAMPLE:
        share, schema = float(run["settings"].get("share", SHARE)), table.schema
        frames = [_subsample(table.frame, share, seed) for seed in seeds]
    else:
        declared = replace(table.schema, rows=table.frame.num_rows) if bounded else table.schema
        release = make_uncharged(RunSpec(data=table.frame, schema=declared, **run))
        schema = release.schema
        if release.settings.get("raw"):
            return schema, [Answers(schema.domain, release.measurements)]
        frames = [release.sample(seed=seed) for seed in seeds]
    return schema, [Rows.of(frame, schema, what="synthetic table") for frame in frames]


def _subsample(frame: pa.Table, share: float, seed: int) -> pa.Table:
    """Return a random part of the rows, repeated to the length of the table, so that counts can be compared.

    **Privacy.** Real rows: `Study.check` has refused it unless the table is declared public.
    """
    rows = frame.num_rows
    picked = np.random.default_rng(seed).permutation(rows)[: max(1, round(share * rows))]
    return frame.take(np.resize(picked, rows)) if rows else frame


def _seed(parts: Sequence[int]) -> int:
    return int.from_bytes(hashlib.sha256(to_json(list(parts))).digest()[:4], "little")


def _describe(error: Exception) -> str:
    """Return an error of ours in its own words; any other may quote a cell, so only its type and place."""
    return str(error) if isinstance(error, UnderstudyError) else f"{type(error).__name__} at {place_of(error)}"


def _reset_peak() -> None:
    """Start to measure peak memory afresh, where the system can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mib() -> float:
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return round(int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024, 1)
    return round(psutil.Process().memory_info().rss / 2**20, 1)
