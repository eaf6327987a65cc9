"""The bundle: everything that an analyst gets, written to a new folder, completely or not at all."""

from __future__ import annotations

import csv
import io
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from understudy.arguments import as_path
from understudy.bundle.codebook import ORIGINS, describe_columns, format_codebook, make_data_package, render_codebook
from understudy.bundle.rows import (
    PROCESS_ROWS,
    check_office,
    find_renamed,
    guard_cell,
    sample_table,
    use_plain_dialect,
    write_csv,
    write_in_process,
    write_office,
    write_parquet,
)
from understudy.errors import OutputError, SettingError
from understudy.files import could_not_write, draft_path
from understudy.progress import Progress, Step, silent
from understudy.release import Release, open_release
from understudy.release.linked import LinkedRelease
from understudy.report import public_report
from understudy.report.linked import linked_report
from understudy.report.page import load_template
from understudy.report.public import CAUTION, list_measured_marginals
from understudy.schema.axis import AxisColumn
from understudy.schema.column import Coded, Identifier
from understudy.yaml_json import dump_text

FORMATS = ("csv", "parquet", "dta", "sav")
"""The formats of rows; the last two need the extra `[office]`, and linked tables have the first two."""


@dataclass(frozen=True)
class Bundle:
    """A bundle that was written.

    Attributes:
        folder: its folder.
        files: the files in it, by name.
        rows: how many rows, of all linked tables together.
        seed: with which they were made.
        quoted: by column, values of the CSV that got an apostrophe because a spreadsheet would run them.
        renamed: by file, columns that have another name there.
    """

    folder: Path
    files: tuple[str, ...]
    rows: int
    seed: int
    quoted: Mapping[str, Sequence[str]]
    renamed: Mapping[str, Mapping[str, str]]


def make_bundle(
    release: Release | LinkedRelease | str | PathLike[str],
    folder: str | PathLike[str],
    *,
    rows: int | None = None,
    seed: int | None = None,
    formats: Sequence[str] = ("csv", "parquet"),
    mark: bool = False,
    replicates: int = 0,
    progress: Progress = silent,
) -> Bundle:
    """Write a bundle: rows, `datapackage.json`, a codebook, the public report, a README and the release.

    **Privacy.** Post-processing of the release: costs nothing.

    Args:
        release: the release, of one table or of linked tables, or the path of its file.
        folder: a folder that does not exist yet, or is empty.
        rows: how many rows (of the root of linked tables); by default as `Release.sample`.
        seed: for the rows; drawn at random by default. The README states it.
        formats: of `FORMATS`; linked tables are csv or parquet.
        mark: add a column `synthetic` that is 1 in every row.
        replicates: how many replicate tables to add; none, or at least 2.
        progress: called at each step.

    Raises:
        SettingError: for an unknown format, or a column `synthetic` that exists already.
        OutputError: if the folder is not empty or cannot be written; nothing is left behind then.
        InputError: if something has to be installed first.
    """
    folder = as_path("folder", folder)
    release = release if isinstance(release, Release | LinkedRelease) else open_release(release)
    linked = isinstance(release, LinkedRelease)
    if linked and (mark or replicates):
        raise SettingError("--mark and --replicates are not possible with linked tables; leave them out")
    chosen = _check_formats(formats, FORMATS[:2] if linked else FORMATS)
    wanted = _Options(chosen, rows, _choose_seed(seed), mark, _check_replicates(replicates), progress)
    with _new_folder(folder) as draft:
        if isinstance(release, LinkedRelease):
            made = _fill_linked_folder(draft, release, wanted)
        else:
            made = _fill_folder(draft, use_plain_dialect(release), wanted)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return Bundle(folder, tuple(names), made.rows, wanted.seed, made.quoted, made.renamed)


@dataclass(frozen=True)
class _Options:
    """The checked arguments of `make_bundle`."""

    formats: Sequence[str]
    rows: int | None
    seed: int
    mark: bool
    replicates: int
    progress: Progress

    def sample(self, release: Release, *, as_text: bool) -> Any:
        return sample_table(release, self.rows, self.seed, mark=self.mark, as_text=as_text)

    def report(self, fraction: float, words: str) -> None:
        self.progress(Step("write", fraction, words))


@dataclass(frozen=True)
class _RowFiles:
    """The files of rows, and what the README says about them."""

    files: Sequence[Path]
    rows: int
    quoted: Mapping[str, Sequence[str]]
    renamed: Mapping[str, Mapping[str, str]]


def _check_formats(formats: Sequence[str], possible: Sequence[str]) -> list[str]:
    wanted = [name for name in possible if name in formats]
    if unknown := [name for name in formats if name not in possible]:
        raise SettingError(f"--format: {unknown[0]!r} is not possible; the choices are {', '.join(possible)}")
    if not wanted:
        raise SettingError(f"--format: name at least one of {', '.join(possible)}")
    if {"dta", "sav"} & set(wanted):
        check_office()
    return wanted


def _check_replicates(replicates: int) -> int:
    if replicates < 0 or replicates == 1:
        raise SettingError("--replicates: give at least 2, better 20 or more; 0 makes none")
    return replicates


def _fill_folder(folder: Path, release: Release, wanted: _Options) -> _RowFiles:
    made = _write_rows(folder, release, wanted)
    wanted.report(0.7, "codebook and report")
    columns = describe_columns(release)
    _write_text(folder / "codebook.csv", format_codebook(columns))
    _write_text(folder / "codebook.html", render_codebook(release, columns, made.rows))
    _write_text(folder / "report.html", public_report(release))
    package = make_data_package(release, made.files, made.rows, mark=wanted.mark)
    _write_text(folder / "datapackage.json", dump_text(package, ".json"))
    release.save(folder / "stand-in.release")
    if wanted.replicates:
        _write_replicates(folder / "replicates", release, made.rows, wanted)
    page = render_readme(
        release,
        files=[path.name for path in made.files],
        rows=made.rows,
        seed=wanted.seed,
        quoted=made.quoted,
        renamed=made.renamed,
        replicates=wanted.replicates,
    )
    _write_text(folder / "README.md", page)
    return made


def _write_rows(folder: Path, release: Release, wanted: _Options) -> _RowFiles:
    """Write the rows in each format, with one table at a time in memory."""
    files = {kind: folder / f"rows.{kind}" for kind in wanted.formats}
    quoted: Mapping[str, Sequence[str]] = {}
    others: Mapping[str, Mapping[str, str]] = {}
    count = 0
    if "csv" in files:
        wanted.report(0.1, "rows.csv")
        text = wanted.sample(release, as_text=True)
        count, quoted = text.num_rows, write_csv(text, files["csv"])
        del text
    typed_files = [path for kind, path in files.items() if kind != "csv"]
    if typed_files:
        typed = wanted.sample(release, as_text=False)
        count, others = typed.num_rows, _write_typed(typed, typed_files, release, wanted)
    return _RowFiles(list(files.values()), count, quoted, others)


def _write_typed(table: Any, paths: Sequence[Path], release: Release, wanted: _Options) -> dict[str, dict[str, str]]:
    """Write a typed table to each file; returns by file the columns that have another name there."""
    here = list(paths)
    elsewhere: AbstractContextManager[None] = nullcontext()
    if {".dta", ".sav"} <= {path.suffix for path in paths} and table.num_rows >= PROCESS_ROWS:
        elsewhere = write_in_process(table, here.pop(), release)
    with elsewhere:
        for path in here:
            wanted.report(0.4, path.name)
            if path.suffix == ".parquet":
                write_parquet(table, path, release)
            else:
                write_office(table, path, release)
    names = {path.name: find_renamed(table, path) for path in paths if path.suffix != ".parquet"}
    return {name: found for name, found in names.items() if found}


def _write_replicates(folder: Path, release: Release, rows: int, wanted: _Options) -> None:
    from understudy.release.replicates import make_replicates

    folder.mkdir()
    count = wanted.replicates
    for number, table in enumerate(make_replicates(release, count, rows=rows, seed=wanted.seed, as_="arrow"), 1):
        wanted.report(0.8 + 0.2 * number / count, f"replicate {number} of {count}")
        write_parquet(table, folder / f"rows-{number:03}.parquet", release)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _choose_seed(seed: int | None) -> int:
    """Return the given seed, or a random one; the README states it, so that the same rows can be made again."""
    if seed is not None and seed < 0:
        raise SettingError("--seed must be a whole number of at least 0")
    return secrets.randbelow(1 << 32) if seed is None else seed


def _check_folder(folder: Path) -> None:
    """Make sure that a bundle can go there, and that nothing is there yet.

    Raises:
        OutputError: naming the folder and the remedy.
    """
    try:
        if folder.is_dir() and not any(folder.iterdir()):
            return
        if folder.exists() or folder.is_symlink():
            raise OutputError(f"{folder} already exists and is not an empty folder; choose another output")
        if not folder.parent.is_dir():
            raise OutputError(f"the folder {folder.parent} does not exist; create it first")
    except (OSError, ValueError):
        raise OutputError(f"{folder} cannot be written; choose another output") from None


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield a hidden folder to fill; it gets its final name when the block ends without an error.

    Raises:
        OutputError: if the folder is not empty or cannot be written; nothing is left behind then.
    """
    _check_folder(folder)
    draft = draft_path(folder)
    try:
        draft.mkdir()
        yield draft
        if folder.is_dir():
            folder.rmdir()
        draft.replace(folder)
    except OSError as error:
        raise could_not_write(folder, error) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


# -- README.md: what is safe to compute, what is not, how to load the rows and how to cite them.


_SHOWN = 12
_CLEAR = 0.1
"""A table in which noise alone would misplace a larger share of the rows is not called safe."""
_LOADERS: dict[str, tuple[tuple[str, str], ...]] = {
    "Python": (
        ("rows.parquet", 'rows = pandas.read_parquet("rows.parquet")'),
        ("rows.csv", 'rows = pandas.read_csv("rows.csv", dtype=str, keep_default_na=False)  # every cell as written'),
    ),
    "R": (
        ("rows.parquet", 'rows <- arrow::read_parquet("rows.parquet")'),
        ("rows.csv", 'rows <- readr::read_csv("rows.csv")'),
        ("rows.sav", 'rows <- haven::read_sav("rows.sav", user_na = TRUE)'),
    ),
    "Stata": (("rows.dta", "use rows.dta"), ("rows.csv", "import delimited rows.csv, encoding(utf-8) varnames(1)")),
    "SPSS": (("rows.sav", "GET FILE='rows.sav'."),),
}


def render_readme(
    release: Release,
    *,
    files: Sequence[str],
    rows: int,
    seed: int,
    quoted: Mapping[str, Sequence[str]],
    renamed: Mapping[str, Mapping[str, str]],
    replicates: int,
) -> str:
    """Render README.md.

    Args:
        release: the release.
        files: the names of the files with rows.
        rows: how many rows they have.
        seed: with which they were made.
        quoted: by column, values of the CSV that got an apostrophe.
        renamed: by file, columns that have another name there.
        replicates: how many replicate tables are in the folder `replicates`.
    """
    tables, receipt = list_measured_marginals(release), release.receipt
    joint = [table for table in tables if len(table.clique) > 1]
    clear = {table.clique: table.relative(release.model.total) <= _CLEAR for table in joint}
    page: str = load_template("readme.md.j2", "understudy.bundle").render(
        release=release,
        receipt=receipt,
        title=release.title,
        warning=receipt.guarantee() if receipt.insecure or receipt.rehearsal else "",
        joint=[" x ".join(clique) for clique, good in clear.items() if good],
        noisy=[" x ".join(clique) for clique, good in clear.items() if not good],
        limit=CAUTION * max((table.sigma for table in tables), default=0.0),
        shown=_SHOWN,
        loaders={name: found for name, lines in _LOADERS.items() if (found := _select_loaders(lines, files))},
        asked=_choose_statistic(release),
        version=version("understudy"),
        files=files,
        rows=rows,
        seed=seed,
        quoted=list(quoted),
        renamed=renamed,
        replicates=replicates,
        conditions=", ".join(_example_condition(column) for column in release.schema.coded[:2]),
    )
    return f"{page.rstrip()}\n"


def _choose_statistic(release: Release) -> str:
    """Return a statistic to show as an example: the mean of a numeric column, or a share; no name that needs quotes."""
    plain = [column for column in release.schema.coded if column.name.isidentifier()]
    for column in plain:
        if isinstance(column, AxisColumn):
            return f"mean({column.name})"
    for column in plain:
        if column.code_labels()[0].isalnum():
            return f"share({column.name}={column.code_labels()[0]})"
    return "mean(COLUMN)"


def _select_loaders(lines: Sequence[tuple[str, str]], files: Sequence[str]) -> list[str]:
    return [line for file, line in lines if file in files]


def _example_condition(column: Coded) -> str:
    """Return a condition on a column for `answer`: a value, or a range from the middle of a numeric column upwards."""
    name = column.name if column.name.isidentifier() else f'"{column.name}"'
    if isinstance(column, AxisColumn):
        middle = column.axis.lower[column.axis.size // 2]
        return f"{name}>={column.from_units(np.asarray([middle])).to_pylist()[0]!s}"
    value = str(column.ordinary_labels[0])
    plain = value.replace("-", "").replace("_", "").isalnum()
    return f"{name}={value}" if plain else f'{name}="{value}"'


# -- The bundle of linked tables: a file for each table.


def _fill_linked_folder(folder: Path, release: LinkedRelease, wanted: _Options) -> _RowFiles:
    from pyarrow.parquet import write_table

    schema, counts = release.schema, dict[str, int]()
    for kind in wanted.formats:
        wanted.report(0.1, f"rows as {kind}")
        for name, table in release.sample(wanted.rows, seed=wanted.seed, as_written=kind == "csv").items():
            file, counts[name] = folder / f"{name}.{kind}", table.num_rows
            if kind == "csv":
                write_csv(table, file)
            else:
                write_table(table, file)
    wanted.report(0.7, "codebook and report")
    files = [f"{name}.{kind}" for name in schema.tables for kind in wanted.formats]
    paths = {name: f"{name}.{wanted.formats[0]}" for name in schema.tables}
    package = {"name": schema.root, **replace(schema, paths=paths).to_dict()}
    _write_text(folder / "datapackage.json", dump_text(package, ".json"))
    _write_text(folder / "codebook.csv", _linked_codebook(release))
    _write_text(folder / "report.html", linked_report(release))
    release.save(folder / "stand-in.release")
    page: str = load_template("linked-readme.md.j2", "understudy.bundle").render(
        release=release,
        receipt=release.receipt,
        counts=counts,
        files=files,
        seed=wanted.seed,
        links=schema.links,
        keys=schema.keys,
        version=version("understudy"),
    )
    _write_text(folder / "README.md", f"{page.rstrip()}\n")
    return _RowFiles([folder / name for name in files], sum(counts.values()), {}, {})


def _linked_codebook(release: LinkedRelease) -> str:
    """Return the codebook as CSV: one line for each value of each column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("table", "column", "title", "type", "value", "origin"))
    for name, one in release.schema.tables.items():
        for column in one.columns:
            labels: Sequence[str] = ()
            if isinstance(column, Coded):
                labels = column.code_labels()
            elif isinstance(column, Identifier):
                labels = (_describe_key(release, name, column.name),)
            line = (name, column.name, column.title or "", column.kind)
            origin = ORIGINS.get(column.origin, column.origin)
            for label in labels:
                writer.writerow([guard_cell(cell) for cell in (*line, str(label), origin)])
    return text.getvalue()


def _describe_key(release: LinkedRelease, table: str, column: str) -> str:
    schema, link = release.schema, release.schema.links.get(table)
    targets: Mapping[str | None, str] = {}
    if link is not None:
        targets = {link.unit_column: schema.root, link.parent_column: link.parent}
    if column in targets:
        return f"fresh key of {targets[column]}"
    return "fresh key of this table" if column == schema.keys[table] else "made-up"
