"""Checks before the first charge, so that a run that cannot succeed costs nothing."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from platformdirs import user_cache_path

from understudy.accounting import Budget
from understudy.errors import InputError, OutputError, SchemaError, SettingError, WeakBudget
from understudy.files import draft_path, remove_stale_drafts
from understudy.gate.noise import NOISES
from understudy.model.graphical import GraphicalModel
from understudy.model.junction_tree import JunctionTree
from understudy.schema import Schema
from understudy.schema.rules import check_rule_size, find_broken_rows
from understudy.source.place import list_files, parse_url, source_kind

_MOST_TIED = 1 << 27
"""The largest model of the rules alone, in cells: a gigabyte."""
_RULED_COPIES = 6
_ROWS = 2000
_WEAK_EPSILON, _WEAK_DELTA = 20, 1e-4
"""Larger budgets give a warning: odds grow up to 500 million-fold, or the guarantee fails once in 10,000 times."""
_TABLES = (".csv", ".tsv", ".parquet", ".pq", ".xlsx", ".sav", ".dta")


def check_output(path: Path) -> None:
    """Check that a release can be written at `path`, that no file is there, and that its name is not that of a table.

    Raises:
        OutputError: if one of these fails; the message names the path and the remedy.
    """
    if path.suffix.lower() in _TABLES:
        raise OutputError(
            f"{path}: a release is not a table of rows; name it {path.stem}.release, and make rows from it with "
            f"`understudy sample {path.stem}.release -o {path.name}`"
        )
    try:
        taken, folder = path.exists(), path.parent.is_dir()
    except (OSError, ValueError):
        raise OutputError(f"{path} cannot be written; choose another output") from None
    if taken:
        raise OutputError(f"{path} already exists, and a release is never overwritten; choose another output")
    if not folder:
        raise OutputError(f"the folder {path.parent} does not exist; create it first")
    remove_stale_drafts(path)
    probe = draft_path(path)
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except (OSError, ValueError):
        raise OutputError(f"{path} cannot be written; choose another output") from None


def find_compiler_cache() -> None:
    """Find a folder for compiled loops; without one, they fail to load in the middle of a run.

    If neither the package's folder nor the user's cache can be written (a read-only image), they go to a private folder
    that is removed when the process ends.
    """
    if "NUMBA_CACHE_DIR" in os.environ or any(map(_can_write, (Path(__file__).parent, user_cache_path("numba")))):
        return
    folder = tempfile.mkdtemp(prefix="understudy-compiled-")  # never a name that others could have filled before us
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def half_of_memory() -> int:
    """Return half of the machine's memory.

    **Privacy.** Free memory depends on the rows, of a frame even before a run begins; installed memory does not.
    """
    import psutil

    return int(psutil.virtual_memory().total) // 2


def check_memory(needed_bytes: int) -> None:
    """Check that the model and tables of a run fit into free memory.

    **Privacy.** Free memory depends on the rows, so it is only used to refuse a run, never for the content of a
    release.

    Raises:
        SettingError: if they do not fit; the message says how much is needed and what would need less.
    """
    import psutil

    free = int(psutil.virtual_memory().available)
    if free < needed_bytes:
        raise SettingError(
            f"this run may need {_mib(needed_bytes)} MiB of memory and {_mib(free)} MiB are free: use coarser bins, "
            "fewer columns, or a smaller workload or model; nothing was spent"
        )


def check_rules(schema: Schema) -> int:
    """Check that rules fit into memory and leave possible rows, by making a few rows from the rules alone.

    **Privacy.** Reads only the schema.

    Returns:
        The bytes of memory that the rules need in a model.

    Raises:
        SchemaError: if a rule is too large, or rules contradict each other.
    """
    domain = schema.domain
    for rule in domain.rules:
        check_rule_size(domain, rule.clique)
    if not domain.rules:
        return 0
    columns = domain.canonical({column for rule in domain.rules for column in rule.clique})
    tied = JunctionTree.of(domain.project(columns), ()).cells
    if tied > _MOST_TIED:
        raise SchemaError(
            f"the rules tie {', '.join(columns)} together in a model of {tied} cells; use coarser bins for these "
            "columns, or fewer rules that share columns"
        )
    if not any(_rows_possible(schema, seed) for seed in range(3)):
        raise SchemaError(
            f"the rules about {', '.join(columns)} leave no possible row; correct one of them. Nothing was spent"
        )
    return _RULED_COPIES * 8 * tied


def _rows_possible(schema: Schema, seed: int) -> bool:
    """Return whether rows that satisfy the rules can be drawn from a model of the rules alone."""
    domain = schema.domain
    names = domain.canonical({column for rule in domain.rules for column in rule.clique})
    rng = np.random.default_rng(seed)
    try:
        drawn = GraphicalModel(domain.project(names), {}, total=1.0).sample(_ROWS, rng)
    except InputError:
        return False
    codes = {column: drawn[column] if column in names else np.zeros(_ROWS, np.uint8) for column in domain}
    return not bool(find_broken_rows(schema, codes, schema.decode(codes, rng)).all())


def check_noise(noise: str) -> None:
    """Check that a noise sampler of that name is available.

    Raises:
        SettingError: if it is not; the message lists the choices, or what to install.
    """
    if noise not in list(NOISES):
        raise SettingError(f"noise: {noise!r} is unknown; the choices are {', '.join(NOISES)}")
    if noise == "opendp" and find_spec("opendp") is None:
        raise SettingError("noise='opendp' needs OpenDP: pip install 'understudy[opendp]'. Nothing was spent")


def warn_of_weak_budget(budget: Budget) -> None:
    """Warn of a budget that protects almost nothing."""
    if budget.delta is not None and budget.delta > _WEAK_DELTA:
        words = (
            f"delta {float(budget.delta):g} is large: with this probability the guarantee fails entirely and a whole "
            "record may leak. Use a delta below 1 / (10 x people), such as 1e-6"
        )
        warnings.warn(words, WeakBudget, stacklevel=5)
    if budget.epsilon is not None and budget.epsilon > _WEAK_EPSILON:
        words = f"epsilon {float(budget.epsilon):g} protects almost nothing; a usual epsilon is about 1"
        warnings.warn(words, WeakBudget, stacklevel=5)


def _mib(size: int) -> int:
    return -(-size // (1 << 20))


def refuse_same_table(public: Any, data: Any) -> None:
    """Refuse a public table that is the sensitive table itself: the same object, file or URL.

    **Privacy.** No row is read. Comparing rows would be a free test of whether the sensitive table has exactly the rows
    of the public one.

    Raises:
        SettingError: if both have the same address.
    """
    if public is data or _addresses(public) & _addresses(data):
        raise SettingError(
            "public: the table declared public is the sensitive table itself; give one that is really public, "
            "or none (nist-mst needs one, other mechanisms do not). Nothing was spent"
        )


def _addresses(table: Any) -> set[tuple[Any, ...]]:
    """Return what identifies the files of a table, or its place in a database for any user; nothing for a frame."""
    if not isinstance(table, str | os.PathLike):
        return set()
    text, kind = os.fspath(table), source_kind(table)
    if kind in ("postgresql", "duckdb"):
        database = parse_url(text, query="table=" not in text)
        parts = urlsplit(database.address)
        if kind == "duckdb":
            return {(os.path.realpath(parts.netloc + parts.path), database.table)}
        with suppress(ValueError):  # a wrong port is reported when connecting
            return {(parts.hostname, parts.port or 5432, parts.path, database.table)}
    found = set()
    for file in list_files(text) if kind == "files" else [Path(text)]:
        with suppress(OSError, ValueError):
            facts = file.stat()
            found.add((facts.st_dev, facts.st_ino))
    return found
