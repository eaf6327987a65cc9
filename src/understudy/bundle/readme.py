"""The page that goes with the rows: what is safe to compute, what is not, how to load and how to cite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version

from understudy.bundle.pages import rendered
from understudy.release import Release
from understudy.report.public import CAUTION, measured_tables

_SHOWN = 12
_CLEAR = 0.1
"""A table of which noise alone would misplace a larger share of the rows is not called safe: it relates what is not."""
_PANDAS = {
    "rows.parquet": 'pd.read_parquet("rows.parquet")',
    "rows.csv": 'pd.read_csv("rows.csv")',
    "rows.dta": 'pd.read_stata("rows.dta")',
    "rows.sav": 'pd.read_spss("rows.sav")',
}
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


def readme(
    release: Release,
    *,
    files: Sequence[str],
    rows: int,
    seed: int,
    quoted: Mapping[str, Sequence[str]],
    renamed: Mapping[str, Mapping[str, str]],
    replicates: int,
) -> str:
    """The text of README.md.

    Args:
        release: the release.
        files: the names of the files with rows.
        rows: how many rows they have.
        seed: with which they were made.
        quoted: by column, values of the CSV that got an apostrophe.
        renamed: by file, columns that go by another name there.
        replicates: how many replicate tables are in the folder `replicates`.
    """
    tables, receipt = measured_tables(release), release.receipt
    joint = [table for table in tables if len(table.clique) > 1]
    clear = {table.clique: table.relative(release.model.total) <= _CLEAR for table in joint}
    return rendered(
        "readme.md.j2",
        html=False,
        release=release,
        receipt=receipt,
        title=release.schema.title or "A stand-in",
        warning=receipt.guarantee() if receipt.insecure or receipt.rehearsal else "",
        joint=[" x ".join(clique) for clique, good in clear.items() if good],
        noisy=[" x ".join(clique) for clique, good in clear.items() if not good],
        limit=CAUTION * max((table.sigma for table in tables), default=0.0),
        shown=_SHOWN,
        loaders={name: found for name, lines in _LOADERS.items() if (found := _known(lines, files))},
        loading=next(code for file, code in _PANDAS.items() if file in files),
        version=version("understudy"),
        files=files,
        rows=rows,
        seed=seed,
        quoted=list(quoted),
        renamed=renamed,
        replicates=replicates,
        example=next(iter(release.schema.domain)),
    )


def _known(lines: Sequence[tuple[str, str]], files: Sequence[str]) -> list[str]:
    return [line for file, line in lines if file in files]
