"""Build the schema of the 1940 census (98 columns) from the published metadata of the 2018 NIST challenge.

Usage: python examples/census1940/build.py FOLDER > examples/census1940/schema.yaml

FOLDER holds ``colorado-specs.json`` (largest code of each column), ``census1940-domain-values.json`` (admissible codes
of 87 columns, from the IPUMS documentation), ``codebook.cbk.gz`` (labels) and ``NISTChallengeMatch3DataDict.txt``
(titles). As in the MST paper, a column's values are those that both the specification and IPUMS know; INCWAGE
and VALUEH follow its Algorithm 3. No row is read.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

LABELLED_UP_TO = 20
"""Columns of at most this many values get labels; more would make the file unreadable."""
SPECIAL = {
    "INCWAGE": {
        "constraints": {"minimum": 0, "maximum": 5000},
        "understudy": {
            "heaped": [100, 20, 50, 25, 10, 5, 2, 1],
            "missing": {"999998": "not_applicable", "9999998": "not_applicable"},
        },
    },
    "VALUEH": {
        "constraints": {"minimum": 0, "maximum": 25000},
        "understudy": {
            "bins": {"width": 5},
            "draw": "lower",
            "missing": {"9999998": "missing", "9999999": "not_applicable"},
        },
    },
}


def main(folder: Path) -> None:
    specs = json.loads((folder / "colorado-specs.json").read_text())
    values = json.loads((folder / "census1940-domain-values.json").read_text())
    labels = codebook(gzip.decompress((folder / "codebook.cbk.gz").read_bytes()).decode("latin-1"))
    titles = dictionary((folder / "NISTChallengeMatch3DataDict.txt").read_text(encoding="latin-1"))
    sys.stdout.write("# The 1940 census as released for the 2018 NIST challenge: built by build.py, no row was read.\n")
    sys.stdout.write("title: 1940 census\nfields:\n")
    for name, spec in specs.items():
        field = column(name, spec["maxval"], values.get(name), labels.get(name, {}))
        title = {"title": titles[name]} if name in titles else {}
        sys.stdout.write("- " + flow({"name": name, "type": "integer", **title, **field}).replace("\n", "\n  ") + "\n")
    sys.stdout.write("understudy: {privacy_unit: row}\n")


def column(name: str, largest: int, values: list[int] | None, labels: dict[int, str]) -> dict[str, Any]:
    if name in SPECIAL:
        return {**SPECIAL[name], "constraints": {"required": True, **SPECIAL[name]["constraints"]}}
    if values is None:
        limits = {"required": True, "minimum": 0, "maximum": largest}
        return {"constraints": limits, "understudy": {"bins": largest + 1, "on_unknown": "drop_row"}}
    known = sorted(value for value in values if value <= largest)
    few = len(known) <= LABELLED_UP_TO
    listed = [{"value": v, "label": labels[v]} if few and v in labels else v for v in known]
    return {"categories": listed, "constraints": {"required": True}}


def codebook(text: str) -> dict[str, dict[int, str]]:
    """Labels by column and code."""
    found: dict[str, dict[int, str]] = {}
    current = ""
    for line in text.splitlines():
        if heading := re.match(r"^ ([A-Z0-9]+)\t\t", line):
            current = heading[1]
        elif (entry := re.match(r"^(\d+)\t\t(.+)$", line)) and current:
            found.setdefault(current, {})[int(entry[1])] = entry[2].strip()
    return found


def dictionary(text: str) -> dict[str, str]:
    """Titles by column."""
    return {match[1]: match[2].strip() for match in re.finditer(r"^([A-Z0-9]+): (.+)$", text, re.MULTILINE)}


def flow(field: dict[str, Any]) -> str:
    return str(yaml.safe_dump(field, default_flow_style=True, sort_keys=False, width=116)).rstrip()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
