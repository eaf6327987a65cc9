"""The run file: one YAML page that says everything about a run. Read without loading the heavy parts of the package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from understudy.arguments import holds_password
from understudy.errors import SettingError
from understudy.notation import LOADER, is_page, read_json, read_yaml

KEYS = (
    "data", "query", "schema", "dataset", "budget", "mechanism", "workload", "keep", "public", "rows", "noise",
    "quality", "outputs",
)  # fmt: skip
_MOST_VALUES = 100_000  # in a file of a dozen keys
_BUDGET = ("epsilon", "delta", "rho", "discovery_share")
_OUTPUTS = ("rows", "report", "seed")
ROWS, REPORTS = ("csv", "parquet"), ("public", "custodian")


class _OnceEach(LOADER):  # type: ignore[misc]
    """A safe loader that refuses a key that is there twice: of two budgets, none is meant."""

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
        content: what it says, checked for unknown keys, with the choices of the command line on top.
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
            content = read_yaml(file.read_bytes(), _OnceEach, most=_MOST_VALUES)
        except OSError:
            raise SettingError(f"{file}: there is no such run file, or it cannot be read") from None
        except (yaml.YAMLError, UnicodeError):
            raise SettingError(
                f"{file} is not valid YAML, or says a key twice; check quotes, colons and indentation"
            ) from None
        return cls(file, _checked(content, file))

    def but(self, *, quality: Any = None, rehearsal: bool = False) -> RunFile:
        """The same run with what the command line says on top."""
        content = dict(self.content) | ({} if quality is None else {"quality": quality})
        return replace(self, content=content, rehearsal=rehearsal or self.rehearsal)

    def near(self, name: str) -> str:
        """A path as the file means it; the address of a database is left as it is."""
        return name if "://" in name else str(self.path.parent / name)

    @property
    def schema(self) -> Path:
        """The schema's file."""
        return Path(self.near(str(self.content["schema"])))

    @property
    def outputs(self) -> dict[str, Any]:
        """Which rows and reports to make, and the seed of the rows."""
        given = self.content.get("outputs") or {}
        rows, reports = given.get("rows", ["csv"]), given.get("report", ["public"])
        return {"rows": _listed(rows), "report": _listed(reports), "seed": given.get("seed")}

    def fingerprint(self) -> dict[str, str]:
        """A digest of each key's value, and of what the schema and a workload file say. Never of rows.

        Raises:
            SettingError: when the schema or workload file cannot be read.
        """
        said = {key: _digest(value) for key, value in self.content.items()}
        said |= {"the schema's content": _digest(_parsed(self.schema, "schema"))}
        workload = self.content.get("workload")
        if isinstance(workload, str) and is_page(workload):
            said |= {"the workload's content": _digest(_parsed(Path(self.near(workload)), "workload"))}
        if isinstance(query := self.content.get("query"), str):
            said |= {"the query's content": _digest(_text(Path(self.near(query)), "query").decode(errors="replace"))}
        return dict(sorted((said | ({"rehearsal": "yes"} if self.rehearsal else {})).items()))


def _checked(content: Any, file: Path) -> dict[str, Any]:
    if not isinstance(content, dict) or not content:
        raise SettingError(f"{file}: a run file is a mapping with at least data, schema and budget")
    _known(content, KEYS, f"{file}: ")
    for key in ("data", "schema", "budget"):
        if content.get(key) is None or not str(content[key]).strip():
            raise SettingError(f"{file}: `{key}` is missing; a run needs data, schema and budget")
    for key in ("data", "query", "schema", "dataset", "public", "noise"):
        if not isinstance(content.get(key, ""), str):
            raise SettingError(f"{file}: `{key}` must be text; put it in quotes")
    for key, known in (("budget", _BUDGET), ("outputs", _OUTPUTS)):
        if not isinstance(content.get(key) or {}, dict):
            raise SettingError(f"{file}: `{key}` is a mapping; its keys are {', '.join(known)}")
        _known(content.get(key) or {}, known, f"{file}: {key}: ")
    _refuse_password(content["data"], file)
    mechanism = content.get("mechanism", "mst")
    if not isinstance(mechanism, str) and not (isinstance(mechanism, dict) and isinstance(mechanism.get("name"), str)):
        raise SettingError(f"{file}: `mechanism` is a name, or a mapping with `name` and settings")
    _check_outputs(content.get("outputs") or {}, file)
    return content


def _refuse_password(data: str, file: Path) -> None:
    """A run file is kept, copied and committed: no place for a secret."""
    if holds_password(data):
        raise SettingError(
            f"{file}: `data` holds a password; put it into PGPASSWORD, ~/.pgpass or a service file (?service=NAME)"
        )


def _known(given: Mapping[Any, Any], known: tuple[str, ...], where: str) -> None:
    for key in given:
        if key not in known:
            near = get_close_matches(str(key), known, 1, 0.6)
            hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(known)}."
            raise SettingError(f"{where}unknown key `{key}`; {hint} Nothing was spent")


def _check_outputs(outputs: Mapping[str, Any], file: Path) -> None:
    for key, known in (("rows", ROWS), ("report", REPORTS)):
        for name in _listed(outputs.get(key, [])):
            if name not in known:
                raise SettingError(f"{file}: outputs: {key}: {name!r} is unknown; the choices are {', '.join(known)}")
    seed = outputs.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise SettingError(f"{file}: outputs: seed: give a whole number of at least 0")


def _listed(value: Any) -> list[Any]:
    return [] if value in (None, False) else [value] if isinstance(value, str) else list(value)


def _parsed(path: Path, what: str) -> Any:
    """A file's content, so that comments and layout do not count."""
    try:
        return (read_json if path.suffix == ".json" else read_yaml)(_text(path, what))
    except (yaml.YAMLError, ValueError):
        raise SettingError(f"the {what} {path} is neither YAML nor JSON") from None


def _text(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise SettingError(f"the {what} {path} cannot be read; paths are relative to the run file") from None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]
