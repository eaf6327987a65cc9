"""The run file: one YAML page that states everything about a run. Reading it loads no heavy part of the package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from understudy.arguments import as_flag, holds_password
from understudy.errors import SettingError
from understudy.yaml_json import LOADER, is_yaml_or_json, read_json, read_yaml

if TYPE_CHECKING:
    from understudy.run.pipeline import RunSpec

KEYS = (
    "data", "query", "schema", "dataset", "budget", "mechanism", "paper", "workload", "keep", "public", "rows", "noise",
    "quality", "outputs",
)  # fmt: skip
_MOST_VALUES = 100_000  # in a file of a dozen keys
_BUDGET = ("epsilon", "delta", "rho", "discovery_share")
_OUTPUTS = ("rows", "report", "seed")
ROWS, REPORTS = ("csv", "parquet"), ("public", "custodian")


class _UniqueKeyLoader(LOADER):  # type: ignore[misc]
    """A safe YAML loader that refuses repeated keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        if len(set(map(str, keys))) < len(keys):
            raise yaml.YAMLError("a key twice")
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class RunFile:
    """A run as its file states it; paths in it are relative to the file.

    Attributes:
        path: the file.
        content: its content, checked for unknown keys, overridden by options of the command line.
        rehearsal: whether the run is a rehearsal.
    """

    path: Path
    content: Mapping[str, Any]
    rehearsal: bool = False

    @classmethod
    def load(cls, path: str | Path) -> RunFile:
        """Read and check a run file.

        Raises:
            SettingError: naming the file, the key and the remedy.
        """
        file = Path(path)
        try:
            content = read_yaml(file.read_bytes(), _UniqueKeyLoader, most=_MOST_VALUES)
        except OSError:
            raise SettingError(f"{file}: the run file does not exist or cannot be read; check the path") from None
        except (yaml.YAMLError, UnicodeError):
            raise SettingError(
                f"{file} is not valid YAML, or repeats a key; check quotes, colons and indentation"
            ) from None
        return cls(file, _check_content(content, file))

    def override(self, *, quality: Any = None, rehearsal: bool = False) -> RunFile:
        """Return the same run with the options of the command line, which take precedence."""
        content = dict(self.content) | ({} if quality is None else {"quality": quality})
        return replace(self, content=content, rehearsal=rehearsal or self.rehearsal)

    def resolve_path(self, name: str) -> str:
        """Resolve a path relative to the file; the address of a database is returned unchanged."""
        return name if "://" in name else str(self.path.parent / name)

    @property
    def schema(self) -> Path:
        """The schema's file."""
        return Path(self.resolve_path(str(self.content["schema"])))

    @property
    def outputs(self) -> dict[str, Any]:
        """Which rows and reports to make, and the seed of the rows."""
        given = self.content.get("outputs") or {}
        rows, reports = given.get("rows", ["csv"]), given.get("report", ["public"])
        return {"rows": _to_list(rows), "report": _to_list(reports), "seed": given.get("seed")}

    @property
    def dataset(self) -> str:
        """The dataset's name in the ledger."""
        if given := self.content.get("dataset"):
            return str(given)
        from understudy.source.place import table_name

        return table_name(self.resolve_path(self.content["data"]))

    @property
    def linked(self) -> bool:
        """Whether the schema is a data package of linked tables."""
        content = _parse_file(self.schema, "schema")
        return isinstance(content, Mapping) and "resources" in content

    def digest(self) -> str:
        """Return the digest of the content of the run file, the schema, a workload file and a query; never of rows.

        Outputs do not count: other rows and reports can be made from the same release.

        Raises:
            SettingError: if the schema, workload or query file cannot be read.
        """
        content = {key: value for key, value in self.content.items() if key != "outputs"}
        content["the schema's content"] = _parse_file(self.schema, "schema")
        workload, query = self.content.get("workload"), self.content.get("query")
        if isinstance(workload, str) and is_yaml_or_json(workload):
            content["the workload's content"] = _parse_file(Path(self.resolve_path(workload)), "workload")
        if isinstance(query, str):
            content["the query's content"] = _text(Path(self.resolve_path(query)), "query").decode(errors="replace")
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    def key(self, folder: Path) -> str:
        """Return the key of the run: the same for the same file and schema and the same folder."""
        return hashlib.sha256(f"{self.digest()}\n{folder.resolve()}".encode()).hexdigest()

    def data(self) -> Any:
        """Return the table: a resolved path or an address, or the rows of a rehearsal."""
        if not self.rehearsal:
            return self.resolve_path(self.content["data"])
        from understudy.planning.made_up import rehearsal_rows, rehearsal_tables
        from understudy.schema.linked import LinkedSchema, load_any

        schema, rows, seed = load_any(self.schema), self.content.get("rows"), self.outputs["seed"] or 0
        if isinstance(schema, LinkedSchema):
            return rehearsal_tables(schema, rows, seed=seed)
        return rehearsal_rows(schema, rows, seed=seed)

    def spec(self) -> RunSpec:
        """Return the specification of the run.

        Raises:
            InputError: if a value is not allowed; the message names the key.
        """
        from understudy.quality import parse_share
        from understudy.run.pipeline import RunSpec
        from understudy.schema.linked import load_any
        from understudy.source.place import read_query

        content, schema = self.content, load_any(self.schema)
        mechanism = content.get("mechanism", "auto")
        name = mechanism if isinstance(mechanism, str) else mechanism["name"]
        rows, query = content.get("rows"), content.get("query")
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int)):
            raise SettingError(f"{self.path}: `rows` must be a whole number")
        quality = parse_share(content.get("quality"))
        return RunSpec(
            data=self.data(),
            schema=schema,
            mechanism=name,
            paper=as_flag(f"{self.path}: `paper`", content.get("paper", False)),
            settings=self._settings(name, {} if isinstance(mechanism, str) else dict(mechanism)),
            public=None if content.get("public") is None else self.resolve_path(content["public"]),
            dataset=self.dataset,
            query=None if query is None or self.rehearsal else read_query(Path(self.resolve_path(query))),
            rows=rows,
            noise=content.get("noise", "exact"),
            quality=quality,
            workload=self._workload() if quality is not None and content.get("workload") else None,
            rehearsal=self.rehearsal,
            **content["budget"],
        )

    def _settings(self, mechanism: str, given: dict[str, Any]) -> dict[str, Any]:
        """Return the mechanism's settings, including those that are keys of the file, with resolved paths."""
        from understudy.mechanism.registry import AUTO, CHOICES, setting_names

        content, found = self.content, {key: value for key, value in given.items() if key != "name"}
        if content.get("keep"):
            found["keep"] = [_parse_clique(entry, self.path) for entry in content["keep"]]
        if mechanism == AUTO:
            mechanism = CHOICES[0] if not content.get("keep") else "mst"
        takes_workload = "workload" in setting_names(mechanism)
        if content.get("workload") is not None and (takes_workload or not content.get("quality")):
            found["workload"] = self._workload()  # otherwise the workload is only for the measured quality
        return found

    def _workload(self) -> str:
        workload = self.content["workload"]
        if not isinstance(workload, str):
            raise SettingError(f"{self.path}: `workload` is all-3way, target:COLUMN, skewed:SEED or a .yaml file")
        return self.resolve_path(workload) if is_yaml_or_json(workload) else workload


def _parse_clique(entry: Any, file: Path) -> tuple[list[str], float]:
    weight = entry.get("weight", 1.0) if isinstance(entry, dict) else 1.0
    columns = entry.get("clique") if isinstance(entry, dict) else entry
    if not isinstance(columns, list) or not isinstance(weight, int | float):
        raise SettingError(f"{file}: `keep` is a list of lists of columns, or of {{clique: [a, b], weight: 2}}")
    return [str(column) for column in columns], float(weight)


def _check_content(content: Any, file: Path) -> dict[str, Any]:
    if not isinstance(content, dict) or not content:
        raise SettingError(f"{file}: a run file is a mapping with at least data, schema and budget")
    _refuse_unknown_keys(content, KEYS, f"{file}: ")
    for key in ("data", "schema", "budget"):
        if content.get(key) is None or not str(content[key]).strip():
            raise SettingError(f"{file}: `{key}` is missing; a run file needs data, schema and budget")
    for key in ("data", "query", "schema", "dataset", "public", "noise"):
        if not isinstance(content.get(key, ""), str):
            raise SettingError(f"{file}: `{key}` must be text; put it in quotes")
    for key, known in (("budget", _BUDGET), ("outputs", _OUTPUTS)):
        if not isinstance(content.get(key) or {}, dict):
            raise SettingError(f"{file}: `{key}` is a mapping; its keys are {', '.join(known)}")
        _refuse_unknown_keys(content.get(key) or {}, known, f"{file}: {key}: ")
    for key in ("data", "public"):
        _refuse_password(content.get(key) or "", key, file)
    mechanism = content.get("mechanism", "auto")
    if not isinstance(mechanism, str) and not (isinstance(mechanism, dict) and isinstance(mechanism.get("name"), str)):
        raise SettingError(f"{file}: `mechanism` is a name, or a mapping with `name` and settings")
    _check_outputs(content.get("outputs") or {}, file)
    return content


def _refuse_password(address: str, key: str, file: Path) -> None:
    """Refuse a password in a run file, which may be copied and committed."""
    if holds_password(address):
        raise SettingError(
            f"{file}: `{key}` holds a password; put it into PGPASSWORD, ~/.pgpass or a service file (?service=NAME)"
        )


def _refuse_unknown_keys(given: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in known:
            near = get_close_matches(str(key), known, 1, 0.6)
            hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(known)}."
            raise SettingError(f"{where}unknown key `{key}`; {hint} Nothing was spent")


def _check_outputs(outputs: Mapping[str, Any], file: Path) -> None:
    for key, known in (("rows", ROWS), ("report", REPORTS)):
        for name in _to_list(outputs.get(key, [])):
            if name not in known:
                raise SettingError(f"{file}: outputs: {key}: {name!r} is unknown; the choices are {', '.join(known)}")
    seed = outputs.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise SettingError(f"{file}: outputs: seed: give a whole number of at least 0")


def _to_list(value: Any) -> list[Any]:
    return [] if value in (None, False) else [value] if isinstance(value, str) else list(value)


def _parse_file(path: Path, what: str) -> Any:
    """Parse a file, so that comments and layout do not matter."""
    try:
        return (read_json if path.suffix == ".json" else read_yaml)(_text(path, what))
    except (yaml.YAMLError, ValueError):
        raise SettingError(f"the {what} {path} is neither YAML nor JSON") from None


def _text(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        where = "check the path (in a run file it is relative to that file)"
        raise SettingError(f"the {what} {path} cannot be read; {where}") from None
