"""What a run file means: its table, its dataset, and the run with every setting checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from understudy.accounting import Budget
from understudy.discovery.discover import discovery_budget
from understudy.errors import SettingError
from understudy.journey.file import RunFile
from understudy.journey.rehearsal import rehearsal_rows
from understudy.mechanism.registry import mechanism_classes, setting_names
from understudy.notation import is_page
from understudy.quality import parsed_share
from understudy.schema import Schema
from understudy.source.place import read_query
from understudy.synthesis.rating import Rating
from understudy.synthesis.road import dataset_name
from understudy.synthesis.run import Run, prepared


def prepared_run(file: RunFile, table: Any) -> Run:
    """The run of a file on an opened table, everything checked that can be; nothing is spent.

    Raises:
        InputError: naming the key that cannot be meant.
    """
    content = file.content
    schema = Schema.load(file.schema)
    discovery, budget = content["budget"].get("discovery_share", 0.1), budget_of(file, schema)
    mechanism = content.get("mechanism", "mst")
    settings = {} if isinstance(mechanism, str) else {key: mechanism[key] for key in mechanism if key != "name"}
    name = mechanism if isinstance(mechanism, str) else mechanism["name"]
    settings |= _own_settings(file, name)
    rows = content.get("rows")
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int)):
        raise SettingError(f"{file.path}: `rows` must be a whole number")
    share = parsed_share(content.get("quality"))
    rating = None if share is None else Rating(share, workload_of(file) if content.get("workload") else None)
    noise = content.get("noise", "exact")
    run = prepared(table, schema, budget, name, settings, noise, rows, discovery, rating)
    run.rehearsal = file.rehearsal
    return run


def budget_of(file: RunFile, schema: Schema) -> Budget:
    """The budget that a file states.

    Raises:
        SettingError: when it cannot be meant.
    """
    stated = dict.fromkeys(("epsilon", "delta", "rho")) | file.content["budget"]
    return discovery_budget(schema, stated.pop("discovery_share", 0.1), **stated)


def _own_settings(file: RunFile, mechanism: str) -> dict[str, Any]:
    """Settings with keys of their own; paths as the file means them."""
    content = file.content
    found: dict[str, Any] = {}
    if content.get("workload") is not None:
        found["workload"] = workload_of(file)
    if content.get("keep"):
        found["keep"] = [_kept(entry, file) for entry in content["keep"]]
    if content.get("public") is not None:
        found["public"] = file.near(content["public"])
    taken = setting_names(mechanism_classes().get(mechanism))
    if content.get("quality") and "workload" not in taken:
        found.pop("workload", None)  # it says what quality is measured on
    return found


def workload_of(file: RunFile) -> str:
    """The workload that a file names, a path as the file means it.

    Raises:
        SettingError: when it is not text.
    """
    workload = file.content["workload"]
    if not isinstance(workload, str):
        raise SettingError(f"{file.path}: `workload` is all-3way, target:COLUMN, skewed:SEED or a .yaml file")
    return file.near(workload) if is_page(workload) else workload


def _kept(entry: Any, file: RunFile) -> tuple[list[str], float]:
    weight = entry.get("weight", 1.0) if isinstance(entry, dict) else 1.0
    columns = entry.get("clique") if isinstance(entry, dict) else entry
    if not isinstance(columns, list) or not isinstance(weight, int | float):
        raise SettingError(f"{file.path}: `keep` is a list of lists of columns, or of {{clique: [a, b], weight: 2}}")
    return [str(column) for column in columns], float(weight)


def data_of(file: RunFile) -> Any:
    """The table: a path or address as the file means it, or the rows of a rehearsal."""
    if file.rehearsal:
        return rehearsal_rows(Schema.load(file.schema), file.content.get("rows"), seed=file.outputs["seed"] or 0)
    return file.near(file.content["data"])


def query_of(file: RunFile) -> str | None:
    """The statement to read instead of a table."""
    query = None if file.rehearsal else file.content.get("query")
    return None if query is None else read_query(Path(file.near(query)))


def dataset_of(file: RunFile) -> str:
    """The dataset's name in the book."""
    return str(file.content.get("dataset") or dataset_name(file.near(file.content["data"])))
