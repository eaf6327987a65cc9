"""Tables in office files: SPSS (.sav), Stata (.dta) and Excel (.xlsx), and the files' own dictionaries.

**Privacy.** Rows are as private as any. Variable labels, value labels and missing codes are the file's dictionary: its
owner declared them, and reading them does not read a row. How a cell is read depends on that cell and on the
dictionary, never on other rows. Readers' errors may quote a cell, so they are replaced.
"""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from understudy.errors import InputError
from understudy.schema.exchange import Imported, from_dictionary
from understudy.schema.frames import mark_as_written
from understudy.schema.sniff import sniff

OFFICE = (".sav", ".zsav", ".dta", ".xlsx")
"""The endings of office files."""


@dataclass(frozen=True)
class OfficeVariable:
    """What an office file says about one column, apart from its rows.

    Attributes:
        name: its name; empty for an unnamed column of Excel, such as notes beside the table.
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
    """Return whether a file is an office file, by its ending."""
    return path.suffix.lower() in OFFICE


def read_variables(path: Path) -> list[OfficeVariable]:
    """Read the dictionary of a file: names, labels, value labels and missing codes. No row is read.

    Raises:
        InputError: if the file cannot be read, or something has to be installed first.
    """
    if path.suffix.lower() == ".xlsx":
        names = _read_xlsx(path, header_only=True)[0]
        return [OfficeVariable("" if name is None else str(name)) for name in names]
    meta = _read_stat(path, metadataonly=True)[1]
    return [
        OfficeVariable(
            name,
            str(meta.column_names_to_labels.get(name) or ""),
            meta.variable_value_labels.get(name, {}),
            _missing_codes(meta, name),
            str(meta.variable_measure.get(name, "unknown")),
        )
        for name in meta.column_names
    ]


def read_office(path: Path, names: Sequence[str], *, decimal: str = ".") -> Any:
    """Read columns of a file as a ``pyarrow.Table``; SPSS's missing codes are kept for the schema to interpret.

    Numbers of SPSS and Stata are numbers; Stata's lettered missing values (.a to .z) are empty cells. Excel types each
    cell on its own, so its cells are read as text, like those of a CSV file.

    Args:
        path: the file.
        names: the columns to read.
        decimal: the decimal mark with which numbers of Excel are formatted.

    Raises:
        InputError: if the file cannot be read, or something has to be installed first.
    """
    if path.suffix.lower() == ".xlsx":
        header, *rows = _read_xlsx(path, header_only=False)
        places = {str(name): place for place, name in enumerate(header)}
        cells = {  # a row may end before its empty cells
            name: [_format_cell(row[places[name]] if places[name] < len(row) else None, decimal) for row in rows]
            for name in names
        }
        return mark_as_written(pa.table({name: pa.array(column, pa.string()) for name, column in cells.items()}))
    columns = _read_columns(path, names)
    try:
        return pa.table({name: _to_column(*columns[name]) for name in names})
    except Exception:  # arrow quotes the cell that it refuses
        raise InputError(f"{path}: a column holds values that its type does not allow; export the file again") from None


def _read_columns(path: Path, names: Sequence[str]) -> dict[str, tuple[Sequence[Any], str, str]]:
    """Read columns of an SPSS or Stata file, each with its type and format.

    **Privacy.** The reader refuses a file if a single text has a byte that its encoding does not know. The file is then
    read as bytes, and each text is decoded on its own.
    """
    # Dates stay numbers here: the reader would fail on a single one out of range.
    options: dict[str, Any] = {"output_format": "dict", "disable_datetime_conversion": True}
    try:
        columns, meta = _read_stat(path, usecols=list(names), **options)
    except InputError:
        encoding = _find_encoding(path)
        as_bytes = {name: name.encode(encoding).decode("latin-1") for name in names}
        columns, meta = _read_stat(path, usecols=list(as_bytes.values()), encoding="LATIN1", **options)
        columns = {name: [_decode(cell, encoding) for cell in cells] for name, cells in columns.items()}
    else:
        as_bytes = {name: name for name in names}
    kinds, forms = meta.readstat_variable_types, meta.original_variable_types
    return {name: (columns[given], kinds[given], forms[given]) for name, given in as_bytes.items()}


def _find_encoding(path: Path) -> str:
    """Return the encoding of a file's text: SPSS names it; Stata has UTF-8 from format 118 on, before windows-1252."""
    if path.suffix.lower() == ".dta":
        with path.open("rb") as file:
            release = re.match(rb"<stata_dta><header><release>([0-9]+)<", file.read(64))
        found = "windows-1252" if release is None or int(release[1]) < 118 else "UTF-8"
    else:
        found = str(_read_stat(path, metadataonly=True)[1].file_encoding or "UTF-8")
    try:
        return codecs.lookup(found).name
    except LookupError:
        raise InputError(f"{path}: text in the unknown encoding {found}; export the file again in UTF-8") from None


def _decode(cell: Any, encoding: str) -> Any:
    return cell.encode("latin-1").decode(encoding, "replace") if isinstance(cell, str) else cell


def _read_stat(path: Path, **options: Any) -> tuple[Any, Any]:
    """Read an SPSS or Stata file with pyreadstat."""
    _require_package("pyreadstat", path)
    _require_file(path)
    import pyreadstat

    try:
        if path.suffix.lower() == ".dta":
            found: tuple[Any, Any] = pyreadstat.read_dta(str(path), **options)
        else:
            found = pyreadstat.read_sav(str(path), user_missing=True, **options)
    except Exception:  # its message may quote a cell
        raise InputError(f"{path}: damaged, or its ending is wrong; save or export the file again") from None
    return found


def _missing_codes(meta: Any, name: str) -> list[Any]:
    """Return single values that SPSS declares missing; ranges are left to the schema."""
    return [entry["lo"] for entry in meta.missing_ranges.get(name, ()) if entry["lo"] == entry["hi"]]


def _to_column(cells: Sequence[Any], kind: str, form: str) -> Any:
    if kind == "string":
        return pa.array([cell or None for cell in cells], pa.string())
    numbers = pa.array(cells, pa.float64(), from_pandas=True)
    moment = moment_kind(str(form))
    if moment is None:
        return numbers
    return to_moments(numbers.to_numpy(zero_copy_only=False), str(form), moment)


def _format_cell(cell: Any, decimal: str) -> str | None:
    """Format a cell of Excel as a person would write it, independent of the other cells."""
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


def _read_xlsx(path: Path, *, header_only: bool) -> list[list[Any]]:
    """Read the cells of the first sheet, values as typed in; empty rows are left out."""
    _require_package("openpyxl", path)
    _require_file(path)
    import warnings

    import openpyxl

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # styles and extensions unknown to openpyxl
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            sheet = book.worksheets[0]
            last = 1 if header_only else None
            rows = [list(row) for row in sheet.iter_rows(max_row=last, values_only=True)]
            book.close()
    except Exception:  # its message may quote a cell
        raise InputError(f"{path}: damaged, or not an Excel workbook; save it again") from None
    rows = [row for row in rows if any(cell is not None for cell in row)]
    if not rows:
        raise InputError(f"{path}: the first row of the first sheet must name the columns; correct it")
    return rows


def _require_package(package: str, path: Path) -> None:
    if find_spec(package) is None:
        raise InputError(f"{path}: reading {path.suffix} files needs {package}: pip install 'understudy[office]'")


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path")


# -- Dates and times of SPSS and Stata -------------------------------------------------------------------------------


Kind: TypeAlias = Literal["date", "datetime", "time"]

_SPSS: dict[str, Kind] = {
    "DATE": "date", "ADATE": "date", "EDATE": "date", "JDATE": "date", "SDATE": "date",
    "DATETIME": "datetime", "YMDHMS": "datetime", "TIME": "time", "DTIME": "time",
}  # fmt: skip
_UNIX = datetime(1970, 1, 1)
_DAY = 86_400
_FIRST, _LAST = (datetime.min - _UNIX).days, (datetime.max - _UNIX).days


def moment_kind(form: str) -> Kind | None:
    """Return what a column's format says about its numbers (SPSS: DATE11, Stata: %td); None for plain numbers."""
    if not form.startswith("%"):
        found = re.match("[A-Z]+", form.upper())
        return None if found is None else _SPSS.get(found[0])
    stata = re.match(r"%-?(t?d|t[cC])(.*)", form)
    if stata is None:
        return None
    if stata[1] in ("d", "td"):
        return "date"
    return "time" if stata[2] in ("HH:MM:SS", "HH:MM") else "datetime"


def to_moments(numbers: NDArray[np.float64], form: str, kind: Kind) -> Any:
    """Convert numbers to an arrow array of dates, datetimes in microseconds, or times of day; null if out of range.

    SPSS counts seconds since 14 October 1582; Stata counts days, or milliseconds, since 1 January 1960.

    **Privacy.** Each cell is converted on its own. The reader could convert dates itself, but then a single number out
    of range would fail the whole file.
    """
    days, micros = _split_moments(numbers, form, kind)
    valid = (days >= _FIRST) & (days <= _LAST)
    whole = np.where(valid, days, 0).astype(np.int64)
    if kind == "date":
        return pa.array(whole.astype(np.int32), pa.int32(), mask=~valid).cast(pa.date32())
    part = np.where(valid, micros, 0).astype(np.int64)
    if kind == "time":
        return pa.array(np.minimum(part, _DAY * 10**6 - 1), pa.int64(), mask=~valid).cast(pa.time64("us"))
    return pa.array(whole * _DAY * 10**6 + part, pa.int64(), mask=~valid).cast(pa.timestamp("us"))


def _split_moments(
    numbers: NDArray[np.float64], form: str, kind: Kind
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return days since 1970, and microseconds of the day; NaN stays NaN."""
    spss = not form.startswith("%")
    start = ((datetime(1582, 10, 14) if spss else datetime(1960, 1, 1)) - _UNIX).days
    a_day = _DAY if spss else 1 if kind == "date" else _DAY * 1000
    with np.errstate(invalid="ignore"):
        days = np.floor(numbers / a_day)
        rest = np.clip(numbers - days * a_day, 0, a_day)
    return days + start, np.rint(rest * (_DAY * 10**6 / a_day))


# -- Schemas from the dictionary of an office file -------------------------------------------------------------------


def apply_labels(field: Mapping[str, Any], variable: OfficeVariable) -> dict[str, Any]:
    """Add what the file says to a drafted field: its title, and for a labelled variable its values and missing reasons.

    A variable on a scale, or one whose labels name only missing codes, keeps the drafted bounds and gets its missing
    codes.

    **Privacy.** Uses variable labels, value labels and missing codes only. Which labelled values occur in the rows is
    not examined, so a value that nobody has is declared like any other.
    """
    made = dict(field) | ({"title": variable.label} if variable.label else {})
    ours = dict(made.get("understudy", {}))
    if not variable.values and not variable.missing:
        return made
    missing = {_token(code): _reason(variable, code) for code in variable.missing}
    kept = {key: value for key, value in ours.items() if key in ("status", "origin", "role")}
    if _lists_its_values(variable):
        values = {value: label for value, label in variable.values.items() if _token(value) not in missing}
        return _copy_head(made) | _categories(values, ordered=variable.measure == "ordinal") | _our_keys(kept, missing)
    if ours.get("kind") in ("drop", "id"):
        return made
    return made | {"understudy": ours | ({"missing": dict(ours.get("missing", {})) | missing} if missing else {})}


def import_variables(variables: Sequence[OfficeVariable]) -> Imported:
    """Return a schema from a file's dictionary alone, with the gaps that a person still has to fill."""
    fields, gaps = [], ["`privacy_unit`: the file does not say who is protected"]
    for variable in variables:
        field = apply_labels({"name": variable.name, "type": "string"}, variable)
        fields.append(field)
        if "categories" not in field:
            gaps.append(f"column {variable.name!r}: it lists no values; add `categories` or bounds, or `kind: drop`")
    return Imported({"fields": fields, "understudy": {}}, tuple(gaps))


def read_dictionary(path: Path) -> Imported:
    """Read a schema from a data dictionary in CSV or XLSX, a public document without rows (see `from_dictionary`).

    Raises:
        InputError: if the file cannot be read or has no column and value headings.
    """
    if path.suffix.lower() == ".xlsx":
        lines = [[_format_cell(cell, ".") or "" for cell in row] for row in _read_xlsx(path, header_only=False)]
    else:
        dialect, _ = sniff(path)
        encoding = "utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding
        try:
            with path.open(encoding=encoding, newline="") as file:
                rows = csv.reader(file, delimiter=dialect.delimiter, quotechar=dialect.quote)
                lines = [row for row in rows if any(cell.strip() for cell in row)]
        except (OSError, UnicodeDecodeError, csv.Error):
            raise InputError(f"{path} cannot be read as CSV; save it again as CSV in UTF-8") from None
    try:
        return from_dictionary(lines)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _lists_its_values(variable: OfficeVariable) -> bool:
    tokens = {_token(code) for code in variable.missing}
    return variable.measure != "scale" and any(_token(value) not in tokens for value in variable.values)


def _categories(values: Mapping[Any, str], *, ordered: bool) -> dict[str, Any]:
    numbers = all(isinstance(value, int | float) for value in values)
    whole = numbers and all(float(value).is_integer() for value in values)
    listed = [
        {"value": int(value) if whole else float(value) if numbers else str(value), "label": label}
        for value, label in values.items()
    ]
    kind = "integer" if whole else "number" if numbers else "string"
    return {"type": kind, "categories": listed} | ({"categoriesOrdered": True} if ordered else {})


def _copy_head(field: Mapping[str, Any]) -> dict[str, Any]:
    return {key: field[key] for key in ("name", "title", "description") if key in field}


def _our_keys(kept: Mapping[str, Any], missing: Mapping[str, str]) -> dict[str, Any]:
    ours = dict(kept) | ({"missing": dict(missing)} if missing else {})
    return {"understudy": ours} if ours else {}


def _reason(variable: OfficeVariable, code: Any) -> str:
    return variable.values.get(code) or f"missing ({_token(code)})"


def _token(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
