"""Tables in office files: SPSS (.sav), Stata (.dta) and Excel (.xlsx), and what the files say about their columns.

**Privacy.** Rows are as private as any. Variable labels, value labels and missing codes are the file's own dictionary:
its owner declared them, and reading them opens no row. How a cell is read depends on that cell and on the file's
dictionary, never on other rows. Readers' errors may quote a cell, so they are told in our words.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from understudy.errors import InputError
from understudy.schema.frames import as_written
from understudy.source.office_times import kind_of, moments

OFFICE = (".sav", ".zsav", ".dta", ".xlsx")
"""The endings of such files."""


@dataclass(frozen=True)
class Variable:
    """What an office file says about one column, rows aside.

    Attributes:
        name: its name; empty for a column of Excel that has none, where in some row a note stands beside the table.
        label: what it means.
        values: value labels, by value.
        missing: values that mean "missing".
        measure: "nominal", "ordinal", "scale" or "unknown".
    """

    name: str
    label: str = ""
    values: Mapping[Any, str] = field(default_factory=dict)
    missing: Sequence[Any] = ()
    measure: str = "unknown"


def is_office(path: Path) -> bool:
    """Whether a file is one of these, by its ending."""
    return path.suffix.lower() in OFFICE


def office_variables(path: Path) -> list[Variable]:
    """The dictionary of a file: names, labels, value labels and missing codes. No row is read.

    Raises:
        InputError: when the file cannot be read, or something has to be installed first.
    """
    if path.suffix.lower() == ".xlsx":
        names = _xlsx(path, header_only=True)[0]
        return [Variable("" if name is None else str(name)) for name in names]
    meta = _stat(path, metadataonly=True)[1]
    return [
        Variable(
            name,
            str(meta.column_names_to_labels.get(name) or ""),
            meta.variable_value_labels.get(name, {}),
            _missing(meta, name),
            str(meta.variable_measure.get(name, "unknown")),
        )
        for name in meta.column_names
    ]


def read_office(path: Path, names: Sequence[str], *, decimal: str = ".") -> Any:
    """Columns of a file as a ``pyarrow.Table``; SPSS's missing codes stay what they are, for the schema to explain.

    Numbers of SPSS and Stata are numbers; Stata's lettered missing values (.a to .z) are empty cells. Excel types each
    cell by itself, so its cells are read as text, as those of a CSV file are.

    Args:
        path: the file.
        names: the columns to read.
        decimal: the decimal mark in which numbers of Excel are written, for the schema to read.

    Raises:
        InputError: when the file cannot be read, or something has to be installed first.
    """
    import pyarrow as pa

    if path.suffix.lower() == ".xlsx":
        header, *rows = _xlsx(path, header_only=False)
        places = {str(name): place for place, name in enumerate(header)}
        cells = {name: [_text(_at(row, places[name]), decimal) for row in rows] for name in names}
        return as_written(pa.table({name: pa.array(column, pa.string()) for name, column in cells.items()}))
    # Dates stay numbers here: the reader would fail over a single one that no calendar holds.
    columns, meta = _stat(path, usecols=list(names), output_format="dict", disable_datetime_conversion=True)
    kinds, forms = meta.readstat_variable_types, meta.original_variable_types
    try:
        return pa.table({name: _column(columns[name], kinds[name], forms[name]) for name in names})
    except Exception:  # arrow quotes the cell that it cannot take
        raise InputError(f"{path}: a column holds what its type does not allow; export the file again") from None


def _stat(path: Path, **options: Any) -> tuple[Any, Any]:
    """What pyreadstat reads of an SPSS or Stata file."""
    _need("pyreadstat", path)
    _exists(path)
    import pyreadstat

    try:
        if path.suffix.lower() == ".dta":
            found: tuple[Any, Any] = pyreadstat.read_dta(str(path), **options)
        else:
            found = pyreadstat.read_sav(str(path), user_missing=True, **options)
    except Exception:  # its words may quote a cell
        raise InputError(f"{path}: damaged, or not what its ending says; save or export the file again") from None
    return found


def _missing(meta: Any, name: str) -> list[Any]:
    """Single values that SPSS declares missing; ranges of values are left to the schema."""
    return [entry["lo"] for entry in meta.missing_ranges.get(name, ()) if entry["lo"] == entry["hi"]]


def _column(cells: Sequence[Any], kind: str, form: str) -> Any:
    import pyarrow as pa

    if kind == "string":
        return pa.array([cell or None for cell in cells], pa.string())
    numbers = pa.array(cells, pa.float64(), from_pandas=True)
    moment = kind_of(str(form))
    if moment is None:
        return numbers
    return moments(numbers.to_numpy(zero_copy_only=False), str(form), moment)


def _at(row: Sequence[Any], place: int) -> Any:
    """A cell of a row, which may end before its empty cells."""
    return row[place] if place < len(row) else None


def _text(cell: Any, decimal: str) -> str | None:
    """A cell of Excel as a person would write it, whatever is in the others."""
    if cell is None or isinstance(cell, str):
        return cell or None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, dt.datetime) and cell.time() == dt.time():
        return cell.date().isoformat()
    if isinstance(cell, dt.date | dt.time):
        return cell.isoformat()
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else repr(cell).replace(".", decimal)
    return str(cell)


def _xlsx(path: Path, *, header_only: bool) -> list[list[Any]]:
    """The cells of the first sheet, values as typed in; empty rows at the end are left out."""
    _need("openpyxl", path)
    _exists(path)
    import warnings

    import openpyxl

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # styles and extensions that it does not know
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            sheet = book.worksheets[0]
            last = 1 if header_only else None
            rows = [list(row) for row in sheet.iter_rows(max_row=last, values_only=True)]
            book.close()
    except Exception:  # its words may quote a cell
        raise InputError(f"{path}: damaged, or not an Excel workbook; save it again") from None
    rows = [row for row in rows if any(cell is not None for cell in row)]
    if not rows:
        raise InputError(f"{path}: the first row of the first sheet must name the columns; correct it")
    return rows


def _need(package: str, path: Path) -> None:
    if find_spec(package) is None:
        raise InputError(f"{path}: reading {path.suffix} files needs {package}: pip install 'understudy[office]'")


def _exists(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path")
