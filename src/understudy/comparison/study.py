"""A study: the tables, mechanisms, budgets, workloads and metrics that a comparison runs, and its file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from understudy.accounting import Budget
from understudy.arguments import as_flag, as_mapping, as_names, as_path, as_whole
from understudy.errors import SettingError
from understudy.mechanism.registry import AUTO, make_mechanism, setting_names
from understudy.metric.registry import choose_metrics, get_metric, read_settings
from understudy.run.pipeline import RunSpec
from understudy.schema import Schema
from understudy.workload import Workload
from understudy.yaml_json import read_json, read_yaml

DONE = "done"
"""The outcome of a run that gave all of its scores."""

SUBSAMPLE = "subsample"
"""The name of a reference that is no mechanism: a random part of the real rows (the baseline of the MGD paper)."""

SHARE = 0.1  # of the rows that `subsample` takes, unless it is given another

CONDITIONS = ("delta", "rows")
"""What the text of a mechanism may state beside its settings: the delta of its runs; ``rows=public``, bounded DP."""

_NOT_PRIVATE = " (real rows, not private)"


@dataclass(frozen=True)
class StudyTable:
    """A table of the grid.

    Attributes:
        data: whatever `synthesize` takes; the rows are read once and sent to the workers.
        schema: what is public about its columns.
        workloads: its own workloads, where those of the grid do not fit.
        public: the path of a public table like it, for mechanisms that choose their marginals from one.
    """

    data: Any
    schema: Schema
    workloads: tuple[str, ...] = ()
    public: str | None = None


@dataclass(frozen=True)
class GridCell:
    """One run of the grid; its values identify it in the record."""

    table: str
    workload: str
    mechanism: str
    epsilon: float
    run: int


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that is compared.

    Attributes:
        tables: by name.
        mechanisms: by label, the mechanism and its settings as text: ``mst``, ``mst:paper``, ``aim:max_mib=4``.
        epsilons: the budgets.
        delta: the delta of every epsilon.
        workloads: which marginals matter: passed to mechanisms that take a workload, and used to measure errors.
        metrics: the metrics.
        settings: settings by metric.
        runs: how often each mechanism runs in each case.
        runs_of: by label, the number of runs of mechanisms that run less often.
        sets: how many synthetic tables each release gives; scores are averaged over them.
        seed: for synthetic rows and metrics. Noise is never seeded.
        public: whether the custodian declares all tables public.
        seconds: the most seconds that a cell may take.
        memory_mib: the most memory that a cell may take.
    """

    tables: Mapping[str, StudyTable]
    mechanisms: Mapping[str, str]
    epsilons: tuple[float, ...] = (1.0,)
    delta: float = 1e-9
    workloads: tuple[str, ...] = ("all-3way",)
    metrics: tuple[str, ...] = ("workload_error",)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    runs: int = 1
    runs_of: Mapping[str, int] = field(default_factory=dict)
    sets: int = 1
    seed: int = 0
    public: bool = False
    seconds: float | None = None
    memory_mib: float | None = None

    def check(self) -> None:
        """Refuse what cannot run, before anything does.

        Raises:
            InputError: naming the option.
        """
        for text in self.mechanisms.values():
            name, paper, given = parse_mechanism(text)
            given = self._check_conditions(text, given)
            if name == SUBSAMPLE:
                self._check_subsample(paper, given)
            elif name != AUTO or paper or given:
                make_mechanism(name, paper=paper, **given)
        for name in choose_metrics(list(self.metrics), self.settings):
            read_settings(get_metric(name), self.settings.get(name, {}))
        for epsilon in self.epsilons:
            Budget.of(epsilon=epsilon, delta=self.delta)
        for table in self.tables.values():
            table.schema.require_reviewed()
            for workload in table.workloads or self.workloads:
                if not table.schema.open:
                    Workload.parse(workload, table.schema.domain)
        as_whole("runs", self.runs, least=1)
        as_whole("sets", self.sets, least=1)
        for label, runs in self.runs_of.items():
            if label not in self.mechanisms:
                known = ", ".join(self.mechanisms)
                raise SettingError(f"runs_of: {label!r} is no mechanism of the study; it has {known}")
            as_whole(f"runs_of.{label}", runs, least=1)

    def _check_conditions(self, text: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Refuse conditions of a run that cannot be; returns the settings of its mechanism."""
        if "delta" in given:
            for epsilon in self.epsilons:
                Budget.of(epsilon=epsilon, delta=given["delta"])
        if given.get("rows", "public") != "public":
            raise SettingError(f"mechanisms: {text!r}: write rows=public, or leave it out")
        if "rows" in given and not self.public:
            raise SettingError(f"mechanisms: {text!r}: the number of rows is public only if the table is (--public)")
        return {name: value for name, value in given.items() if name not in CONDITIONS}

    def _check_subsample(self, paper: bool, given: Mapping[str, Any]) -> None:
        """Refuse real rows where they are private, and settings that they do not have."""
        if not self.public:
            raise SettingError(
                f"mechanisms: {SUBSAMPLE} copies real rows, so it is possible only with tables that you declare public "
                "(--public); leave it out"
            )
        if paper or set(given) - {"share"}:
            raise SettingError(f"mechanisms: {SUBSAMPLE} has one setting, as in {SUBSAMPLE}:share=0.1")
        share = given.get("share", SHARE)
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise SettingError(f"mechanisms: the share of {SUBSAMPLE} must be above 0 and at most 1")
        if any(table.schema.open for table in self.tables.values()):
            raise SettingError(f"mechanisms: {SUBSAMPLE} needs a declared schema; leave it out, or declare all columns")

    def cells(self) -> list[GridCell]:
        """List all runs, the first of each case before the second of any: early results then cover the whole grid."""
        return [
            GridCell(name, workload, mechanism, epsilon, run)
            for run, (name, table) in product(range(self.runs), self.tables.items())
            for workload in table.workloads or self.workloads
            for epsilon, (label, mechanism) in product(self.epsilons, self.mechanisms.items())
            if run < self.runs_of.get(label, self.runs)
        ]

    def spec(self, cell: GridCell, data: Any = None) -> RunSpec:
        """Return the run of a cell."""
        name, paper, given = parse_mechanism(cell.mechanism)
        known, table = setting_names(name), self.tables[cell.table]
        if "workload" in known:
            given = {"workload": cell.workload} | given
        if "public" in known and table.public is not None:
            given = {"public": table.public} | given
        budget: Any = {"epsilon": cell.epsilon, "delta": given.pop("delta", self.delta)}
        given.pop("rows", None)
        return RunSpec(data=data, schema=table.schema, mechanism=name, paper=paper, settings=given, **budget)

    def scoring(self, cell: GridCell) -> dict[str, Any]:
        """Return how a worker computes scores."""
        given = {name: dict(self.settings.get(name, {})) for name in self.metrics}
        own = given.get("workload_error", {})
        if "workload_error" in given and not {"workload", "cliques", "ways"} & set(own):
            own["workload"] = cell.workload
        return {"metrics": list(given.items()), "sets": self.sets, "seed": self.seed, "run": cell.run}

    def common_facts(self) -> dict[str, Any]:
        """Return what all runs in a folder have in common, so that their scores can be compared."""
        content: dict[str, Any] = {"delta": self.delta, "sets": self.sets, "seed": self.seed, "public": self.public}
        content |= {"metrics": self.metrics, "settings": self.settings}
        schemas = {f"schema {name}": _digest(table.schema.to_dict()) for name, table in self.tables.items()}
        found: dict[str, Any] = read_json(to_json(content | schemas))
        return found


def parse_mechanism(text: str) -> tuple[str, bool, dict[str, Any]]:
    """Parse a mechanism of the grid: its name, whether it runs as published, and its settings.

    >>> parse_mechanism("aim:paper:workload=target:age:max_mib=4")
    ('aim', True, {'workload': 'target:age', 'max_mib': 4})

    Raises:
        SettingError: for what is not written so.
    """
    name, *rest = text.split(":")
    paper, given = False, list[str]()
    for part in rest:
        if part == "paper" and not given:
            paper = True
        elif "=" in part:
            given.append(part)
        elif given:  # a colon within a value
            given[-1] += f":{part}"
        else:
            raise SettingError(f"mechanisms: write NAME, NAME:paper or NAME:SETTING=VALUE; {text!r} is none of these")
    return name, paper, {setting: read_yaml(value) for setting, _, value in (part.partition("=") for part in given)}


STUDY_KEYS = ("tables", "mechanisms", "epsilons", "delta", "workloads", "metrics", "settings", "runs", "runs_of",
              "sets", "seed", "public", "seconds", "memory_mib")  # fmt: skip
"""The keys of a study's file, which are the fields of `Study`."""


def load_study(path: Path, folder: Path | None = None) -> Study:
    """Load a study from a YAML file.

    ```yaml
    tables:
      adult: {data: adult.csv.gz, domain: adult-domain.json}   # or schema: adult.schema.yaml; columns: [a, b]
    public: true
    mechanisms: [mst, "mst:paper", "aim:max_mib=4"]            # or {label: mechanism}
    epsilons: [0.1, 1, 10]
    workloads: [all-3way]
    metrics: [workload_error]
    runs: 5
    runs_of: {"aim:max_mib=4": 1}                              # a slow mechanism runs less often
    ```

    Args:
        path: the file.
        folder: where its tables are; by default the folder of the study.

    Raises:
        SettingError: naming the key that is wrong.
    """
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, ValueError):
        raise SettingError(f"the study {path} cannot be read; give a YAML file") from None
    content = as_mapping("study", content, example="{tables: ..., mechanisms: [mst]}")
    for key in content:
        if key not in STUDY_KEYS:
            raise SettingError(f"the study {path.name} has no key {key!r}; the keys are {', '.join(STUDY_KEYS)}")
    tables = as_mapping("tables", content.pop("tables", {}), example="{adult: {data: adult.csv, schema: adult.yaml}}")
    near = path.parent if folder is None else folder
    return make_study(
        tables={str(name): _load_table(str(name), near, table) for name, table in tables.items()}, **content
    )


_TABLE = ("data", "schema", "domain", "columns", "workloads", "public")


def _load_table(name: str, folder: Path, content: Any) -> StudyTable:
    content = as_mapping(f"tables.{name}", content, example="{data: adult.csv, schema: adult.schema.yaml}")
    if unknown := set(content) - set(_TABLE):
        raise SettingError(f"tables.{name} has no key {min(unknown)!r}; the keys are {', '.join(_TABLE)}")
    if "data" not in content or ("schema" in content) == ("domain" in content):
        raise SettingError(f"tables.{name}: give data, and either schema or domain (a JSON file of sizes by column)")
    if "schema" in content:
        schema = Schema.load(folder / as_path(f"tables.{name}.schema", content["schema"]))
    else:
        try:
            sizes = dict(read_json((folder / content["domain"]).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise SettingError(f"tables.{name}.domain: {content['domain']} cannot be read in {folder}") from None
        chosen = as_names(f"tables.{name}.columns", content.get("columns", list(sizes)))
        if lacking := set(chosen) - set(sizes):
            raise SettingError(f"tables.{name}.columns: the domain has no column {min(lacking)!r}")
        schema = Schema.from_domain({column: sizes[column] for column in chosen})
    own = tuple(as_names(f"tables.{name}.workloads", content.get("workloads", ())))
    public = content.get("public")
    public = None if public is None else str(folder / as_path(f"tables.{name}.public", public))
    return StudyTable(str(folder / content["data"]), schema, own, public)


def make_study(**given: Any) -> Study:
    """Make a study from plain values: lists, single values for lists of one, mechanisms with or without labels.

    Raises:
        SettingError: naming the value that is wrong.
    """
    values = {name: value for name, value in given.items() if value is not None}
    mechanisms = values.get("mechanisms", "auto")
    if not isinstance(mechanisms, Mapping):
        mechanisms = {text: text for text in as_names("mechanisms", mechanisms)}
    for name in ("workloads", "metrics"):
        if name in values:
            values[name] = tuple(as_names(name, values[name]))
    if "epsilons" in values:
        several = values["epsilons"] if isinstance(values["epsilons"], list | tuple) else [values["epsilons"]]
        try:
            values["epsilons"] = tuple(float(epsilon) for epsilon in several)
        except (TypeError, ValueError):
            raise SettingError("epsilons: give numbers, such as [0.1, 1, 10]") from None
    for name in ("seconds", "memory_mib"):
        if name in values and not (isinstance(values[name], int | float) and values[name] > 0):
            raise SettingError(f"{name} must be a positive number")
    if "public" in values:
        as_flag("public", values["public"])
    labels = {_label(str(label), str(text)): str(text) for label, text in mechanisms.items()}
    if "runs_of" in values:
        fewer = as_mapping("runs_of", values["runs_of"], example="{rap: 1}")
        values["runs_of"] = {str(label): runs for label, runs in fewer.items()}
    if not labels or not values.get("tables"):
        raise SettingError("a comparison needs at least one table and one mechanism")
    return Study(**values | {"mechanisms": labels})


def _label(label: str, text: str) -> str:
    """Return the label of a mechanism; that of real rows says what they are."""
    real = parse_mechanism(text)[0] == SUBSAMPLE and not label.endswith(_NOT_PRIVATE)
    return label + _NOT_PRIVATE * real


def to_json(content: Any) -> bytes:
    """Return plain data as JSON, the same for equal data."""
    return json.dumps(content, sort_keys=True, default=list).encode()


def _digest(content: Any) -> str:
    return hashlib.sha256(to_json(content)).hexdigest()
