"""`datapackage.json`: a Frictionless Data Package that says what each file and column is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from understudy.bundle.formulas import guarded
from understudy.bundle.rows import MARK
from understudy.release import Release

_MEDIA = {
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".dta": "application/x-stata",
    ".sav": "application/x-spss-sav",
}


def data_package(release: Release, files: Sequence[Path], rows: int, *, mark: bool) -> dict[str, Any]:
    """The package's content; `files` are the rows in each format, the CSV first where there is one."""
    title = release.schema.title or "A stand-in"
    return {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": _slug(title),
        "title": title,
        "description": "Synthetic rows, made with differential privacy. No row is a person. " + _promise(release),
        "resources": [_resource(release, path, rows, mark=mark) for path in files],
        "understudy": {"guarantee": release.receipt.guarantee(), "mechanism": release.mechanism},
    }


def _promise(release: Release) -> str:
    return f"Guarantee: {release.receipt.guarantee()}."


def _resource(release: Release, path: Path, rows: int, *, mark: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": "rows" if path.suffix == ".csv" else f"rows-{path.suffix[1:]}",
        "path": path.name,
        "format": path.suffix[1:],
        "mediatype": _MEDIA[path.suffix],
        "bytes": path.stat().st_size,
        "hash": f"sha256:{_digest(path)}",
    }
    if path.suffix != ".csv":
        return facts
    return facts | {
        "type": "table",
        "rows": rows,
        "encoding": "utf-8",
        "dialect": {"delimiter": ",", "quoteChar": '"', "header": True},
        "schema": table_schema(release, mark=mark),
    }


def table_schema(release: Release, *, mark: bool) -> dict[str, Any]:
    """The Table Schema of the CSV file: standard keys only, missing codes field by field."""
    fields = [_field(field) for field in release.schema.to_dict()["fields"] if _is_written(release, field)]
    if mark:
        fields.append({"name": MARK, "type": "integer", "title": "1: a made-up row", "constraints": {"enum": [1]}})
    return {"fields": fields, "missingValues": [""]}


def _is_written(release: Release, field: dict[str, Any]) -> bool:
    kind = field.get("understudy", {}).get("kind")
    unit = release.schema.privacy_unit.column
    return bool(kind != "drop" and (field["name"] != unit or kind == "id"))


def _field(field: dict[str, Any]) -> dict[str, Any]:
    ours = field.get("understudy", {})
    written = {key: value for key, value in field.items() if key != "understudy"} | {"name": guarded(field["name"])}
    if written.get("type") == "duration":  # the standard's durations are written P1DT2H, the file's are seconds
        written["type"] = "integer"
        written["title"] = f"{written.get('title', field['name'])} (seconds)"
        written.pop("constraints", None)
    if tokens := list(ours.get("missing", {})):
        written["missingValues"] = ["", *tokens]
    if "categories" in written:
        written["categories"] = [_category(entry) for entry in written["categories"]]
        written["categories"] += _other(ours, written)
    return written


def _category(entry: Any) -> Any:
    if isinstance(entry, dict):
        return entry | {"value": _category(entry["value"])}
    return guarded(entry) if isinstance(entry, str) else entry


def _other(ours: dict[str, Any], field: dict[str, Any]) -> list[str]:
    """What unknown and rare values are called in text, where that is a value of its own."""
    values = [entry["value"] if isinstance(entry, dict) else entry for entry in field["categories"]]
    name = guarded(ours.get("other", "other"))
    wanted = field.get("type") == "string" and ours.get("on_unknown", "other") == "other" and name not in values
    return [name] if wanted else []


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "stand-in"
