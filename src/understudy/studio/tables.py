"""Check a table that a person names: whether it may be read, whether it is one table, and its format.

**Privacy.** Only names of columns and the format of files are read. Of a file without a header, the first lines are
shown, to people who may read the file anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.arguments import holds_password
from understudy.errors import InputError
from understudy.schema.sniff import sniff
from understudy.sink.linked import PACKAGE
from understudy.source.draft import read_names
from understudy.source.place import CSV, list_files, source_kind
from understudy.studio.uploads import find_ending
from understudy.yaml_json import is_yaml_or_json

_MOST_FILES = 50  # the most files of a folder whose names of columns are read before the draft reads them all
_MARKS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space", ".": "point", "": "none"}
_LINKED = (
    "Pages describe one table. Give the path of a single table; tables that are linked by keys get one release "
    "together on the command line (understudy synthesize --tables FOLDER; guide: Linked tables)"
)


@dataclass(frozen=True)
class Format:
    """The format of a table.

    Attributes:
        names: the names of its columns.
        header: whether the table has names; else they were made up.
        facts: what was found about a text file, in words.
        size: the size of a file in words.
    """

    names: tuple[str, ...]
    header: bool
    facts: tuple[tuple[str, str], ...]
    size: str


def check_place(place: str, *, local: bool, roots: tuple[Path, ...]) -> str:
    """Return the place of a table, if this person may name it and it is a table that can be read.

    Args:
        place: a path, a folder, a pattern or the address of a database.
        local: whether only this machine can reach the studio.
        roots: the folders in which paths may lie where it is not local.

    Raises:
        InputError: saying what to do; it repeats no password.
    """
    place = _allow_place(place, local=local, roots=roots)
    if source_kind(place) == "files":
        _check_folder(place)
    elif is_yaml_or_json(place):
        raise InputError(f"{place} describes tables and has no rows. {_LINKED}")
    else:
        if source_kind(place) == "file" and Path(place).is_file():
            find_ending(place)
        read_names(place)
    return place


def _allow_place(place: str, *, local: bool, roots: tuple[Path, ...]) -> str:
    if not place:
        raise InputError("no table was named; give a path, a folder or the address of a database")
    if holds_password(place):
        raise InputError(
            "the address holds a password, which the run file would keep; leave it out, and put it into the file "
            ".pgpass of your home folder, a service file (?service=NAME), or PGPASSWORD"
        )
    if "://" in place:
        if not local:
            raise InputError("databases can be named on the studio's own machine only; upload the table instead")
        return place
    if "\0" in place:
        raise InputError("the path cannot be used; give the path of a table")
    path = Path(place).expanduser()
    if not local and not any(path.resolve().is_relative_to(root) for root in roots):
        raise InputError("this path is not in a folder that the studio may read; upload the table instead")
    return str(path.absolute()) if path.exists() else str(path)


def _check_folder(place: str) -> None:
    """Refuse a folder whose files are not parts of one table."""
    if (Path(place) / PACKAGE).is_file():
        raise InputError(f"{place} is a data package. {_LINKED}")
    first, *others = list_files(place)
    names = _names_of(first)
    for other in others[: _MOST_FILES - 1]:
        if _names_of(other) != names:
            raise InputError(
                f"{place}: {first.name} and {other.name} have different columns, so they are not parts of one table. "
                f"{_LINKED}"
            )


def _names_of(file: Path) -> tuple[str, ...]:
    return tuple(read_names(file)[1])


def first_file(table: str) -> str:
    """Return a file that shows the format of the table; the table itself if it is not a folder."""
    return str(list_files(table)[0]) if source_kind(table) == "files" else table


def read_format(table: str) -> Format:
    """Read the names of the columns and the format of the file.

    Raises:
        InputError: if the table cannot be read.
    """
    place = first_file(table)
    text = place.lower().endswith(CSV)
    try:
        dialect, found, _ = read_names(place)
        names, header = tuple(found), True
    except InputError:
        if not text or not Path(place).is_file():
            raise
        dialect, listed = sniff(Path(place))
        names, header = tuple(listed), dialect.header
        if header:
            raise
    facts = _describe_dialect(dialect.model_dump(), header=header) if text else ()
    return Format(names, header, facts, _describe_size(table))


def _describe_dialect(dialect: Mapping[str, Any], *, header: bool) -> tuple[tuple[str, str], ...]:
    """Describe the format of a text file in words, without the decimal mark, which a line of names does not show."""
    decimal = () if header else (("Decimal mark", _MARKS.get(dialect["decimal"], dialect["decimal"])),)
    return (
        ("Cells are separated by a", _MARKS.get(dialect["delimiter"], dialect["delimiter"])),
        *decimal,
        ("Text encoding", dialect["encoding"]),
        ("Quotation mark", dialect["quote"]),
    )


def _describe_size(table: str) -> str:
    try:
        size = Path(table).stat().st_size if "://" not in table and Path(table).is_file() else 0
    except OSError:
        return ""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes" if size else ""
