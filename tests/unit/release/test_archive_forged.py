"""Forged releases, all digests recomputed: each opens and works, or is refused in our own words."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.bundle import make_bundle
from understudy.cli import app
from understudy.cli.console import OUR_FAULT
from understudy.errors import ReleaseError, UnderstudyError
from understudy.gate.randomness import insecure
from understudy.release.archive import read_archive
from understudy.release.release import summarize
from understudy.report import public_report

FIELDS = [
    {"name": "sex", "type": "string", "categories": ["f", "m"]},
    {
        "name": "city",
        "type": "string",
        "categories": [f"c{i}" for i in range(12)],
        "understudy": {"other": "elsewhere", "missing": {"-9": "refused"}},
    },
    {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}, "understudy": {"bins": 10}},
    {"name": "income", "type": "number", "constraints": {"minimum": 0, "maximum": 1000}, "understudy": {"bins": 4}},
    {"name": "born", "type": "date", "constraints": {"minimum": "1920-01-01", "maximum": "2019-12-31"}},
]
OURS = {"privacy_unit": "row", "rules": [{"impossible": {"sex": ["m"], "city": ["c1"]}}]}
RUNS: dict[str, dict[str, Any]] = {
    "independent": {"mechanism": "independent", "epsilon": 3.0, "delta": 0},
    "mst": {"mechanism": "mst", "epsilon": 2.0, "delta": 1e-6, "quality": 0.05},
    "aim": {"mechanism": "aim", "epsilon": 2.0, "delta": 1e-6, "max_mib": 0.01, "rounds": 1},
    "adaptive": {"mechanism": "adaptive", "epsilon": 4.0, "delta": 1e-6, "max_mib": 0.01, "rounds": 2},
    "gum": {"mechanism": "privsyn", "epsilon": 2.0, "delta": 1e-6, "generator": "gum"},
    "rap": {"mechanism": "rap", "epsilon": 4.0, "delta": 1e-6, "rounds": 1, "batch": 2},
    "public": {"mechanism": "mst", "epsilon": 0.5, "delta": 1e-6},
}
"""Every kind of model and of record: shares, potentials, tables, relaxed rows, weighted rows; rounds with selections;
quality; merged codes."""

VALUES: list[Any] = [None, "x", "", -1, 0, 1, 10**30, -0.5, 1e300, float("nan"), float("inf"), True, [], {}, [[]]]
VALUES += [["x"], {"x": 1}, {"@array": "nowhere"}, "\x00\x1b", "1/3", "all-2way", [0, 0]]


def _schema(name: str) -> us.Schema:
    bins = {"understudy": {"bins": 5}}
    fields = [field | bins if field["name"] == "born" else field for field in FIELDS]
    ruled = OURS if name in ("mst", "gum") else {"privacy_unit": "row"}
    return us.Schema.from_dict({"title": "Town", "fields": fields, "understudy": ruled})


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    rng = np.random.default_rng(0)
    rows = 400
    frame = pl.DataFrame(
        {
            "sex": rng.choice(["f", "m"], rows),
            "city": rng.choice([f"c{i}" for i in range(12)], rows, p=[0.5, 0.3, *[0.02] * 10]),
            "age": rng.integers(0, 100, rows),
            "income": rng.random(rows) * 1000,
            "born": pl.Series(rng.integers(-18000, 18000, rows).astype(np.int32)).cast(pl.Date),
        }
    )
    found = {}
    for name, run in RUNS.items():
        path = tmp_path_factory.mktemp("forged") / f"{name}.release"
        with insecure(5):
            release = us.synthesize(frame, _schema(name), public=frame[:300] if name == "public" else None, **run)
        release.save(path)
        found[name] = read_archive(path)
    assert found["public"][0]["model"]["kind"] == "rows"
    return found


def forge(path: Path, page: dict[str, Any], members: dict[str, bytes]) -> None:
    """Write a release as someone does who knows about every digest."""
    import zipfile

    text = json.dumps(page | {"members": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("release.json", text)
        file.writestr("release.sha256", hashlib.sha256(text.encode()).hexdigest())
        for name, data in members.items():
            file.writestr(name, data)
        file.comment = bytes(64)
    content = buffer.getvalue()[:-64]
    path.write_bytes(content + hashlib.sha256(content).hexdigest().encode())


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every node of plain data; of long lists the first, second and last entries."""
    if path:
        yield path
    if isinstance(node, dict):
        for key in node:
            yield from places(node[key], (*path, key))
    elif isinstance(node, list):
        for index in sorted({0, 1, len(node) - 1} & set(range(len(node)))):
            yield from places(node[index], (*path, index))


def parent_of(page: Any, path: tuple[Any, ...]) -> Any:
    for step in path[:-1]:
        page = page[step]
    return page


DELETE, RENAME, REPEAT = object(), object(), object()


def changed(page: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The page with one node replaced, deleted, given another name, or listed twice."""
    page = copy.deepcopy(page)
    parent, last = parent_of(page, path), path[-1]
    if value is DELETE:
        del parent[last]
    elif value is RENAME:
        if isinstance(parent, dict):
            parent[f"{last}?"] = parent.pop(last)
    elif value is REPEAT:
        if isinstance(parent, list):
            parent.append(parent[last])
    else:
        parent[last] = copy.deepcopy(value)
    return page


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "empty": lambda a: a.ravel()[:0],
    "scalar": lambda a: np.array(1.0),
    "longer": lambda a: np.concatenate([a.ravel(), a.ravel()[:1]]),
    "shorter": lambda a: a.ravel()[:-1],
    "flat": lambda a: a.ravel(),
    "deep": lambda a: a[None, None],
    "text": lambda a: a.astype("U8"),
    "complex": lambda a: a.astype(complex),
    "objects": lambda a: np.array([None] * 3, dtype=object),
    "nan": lambda a: np.full(a.shape, np.nan),
    "infinite": lambda a: np.full(a.shape, np.inf),
    "minus infinity": lambda a: np.full(a.shape, -np.inf),
    "zeros": lambda a: np.zeros(a.shape),
    "negative": lambda a: np.full(a.shape, -1, dtype=np.int64),
    "huge": lambda a: np.full(a.shape, 2**62, dtype=np.int64),
    "huge floats": lambda a: np.full(a.shape, 1e308),
    "truth": lambda a: a.astype(bool),
    "bytes": lambda a: a.astype(np.uint8),
    "big endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "reversed": lambda a: a.ravel()[::-1].reshape(a.shape).copy(),
}


def mutants(
    page: dict[str, Any], arrays: dict[str, Any], rng: random.Random
) -> list[tuple[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]]]:
    """Every change of one node or one array, in random order."""
    found: list[tuple[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]]] = []
    for path in places({key: value for key, value in page.items() if key not in ("members", "format")}):
        for value in [*VALUES, DELETE, RENAME, REPEAT]:
            name = {id(DELETE): "deleted", id(RENAME): "renamed", id(REPEAT): "repeated"}.get(id(value), repr(value))
            found.append((f"{path} {name}", lambda p=path, v=value: (changed(page, p, v), arrays)))
    for name, array in arrays.items():
        for words, change in ARRAYS.items():
            found.append((f"{name} {words}", lambda n=name, a=array, c=change: (page, arrays | {n: c(a)})))
    rng.shuffle(found)
    return found


def inspected(path: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", str(path)])
    if result.exit_code == OUR_FAULT:
        raise AssertionError(result.output)


VERBS: dict[str, Callable[[us.Release, Path], Any]] = {
    "repr": lambda release, folder: repr(release),
    "receipt": lambda release, folder: (release.receipt.text(), summarize(release), release.receipt.to_dict()),
    "quality": lambda release, folder: (
        release.quality and (release.quality.text(), release.quality.to_dict_with_interval())
    ),
    "sample": lambda release, folder: release.sample(30, seed=1),
    "as written": lambda release, folder: release.sample(30, seed=1, as_written=True),
    "where": lambda release, folder: release.sample(10, seed=1, where={"sex": "f"}),
    "stream": lambda release, folder: next(iter(release.stream(5, seed=1)[1])),
    "merged": lambda release, folder: (release.merged, release.most_rows),
    "answer": lambda release, folder: release.answer("sex=f, age=20..40"),
    "share": lambda release, folder: release.answer({"city": "c0"}, share=True),
    "bounds": lambda release, folder: release.bounds(),
    "pairs": lambda release, folder: release.bounds("all-2way", simultaneous=True),
    "infer": lambda release, folder: release.infer("share(sex=f) | city", assume=0.1),
    "regression": lambda release, folder: release.infer("age ~ sex", target="population", assume=0.1),
    "inspect": lambda release, folder: inspected(folder / "forged.release"),
    "save": lambda release, folder: release.save(folder / "again.release", overwrite=True),
}
SLOW: dict[str, Callable[[us.Release, Path], Any]] = {
    "replicates": lambda release, folder: release.replicates(2, rows=20, seed=1),
    "report": lambda release, folder: public_report(release),
    "bundle": lambda release, folder: make_bundle(release, folder / "bundle", rows=20, seed=1, formats=["csv"]),
}


def trouble(
    page: dict[str, Any], arrays: dict[str, Any], folder: Path, verbs: dict[str, Any]
) -> tuple[bool, list[str]]:
    """Whether a forged release opens, and what any verb raises that is not ours."""
    path, wrong = folder / "forged.release", []
    forge(path, page, {f"{name}.npy": npy(array) for name, array in arrays.items()})
    try:
        release = us.Release.load(path)
    except ReleaseError:
        return False, []
    except BaseException as error:
        return False, [f"load: {error!r}"]
    for name, verb in verbs.items():
        try:
            verb(release, folder)
        except UnderstudyError:
            continue
        except BaseException as error:
            wrong.append(f"{name}: {error!r}")
    return True, wrong


@pytest.mark.parametrize("name", RUNS)
def test_an_honest_copy_opens_and_every_verb_works(pages, name, tmp_path):
    """So that what is refused below is not refused for a clumsy forgery."""
    page, arrays = pages[name]
    forge(tmp_path / "forged.release", page, {f"{key}.npy": npy(array) for key, array in arrays.items()})
    release = us.Release.load(tmp_path / "forged.release")
    for words, verb in (VERBS | SLOW).items():
        # tables of GUM are no distribution that can be conditioned; nobody else has the public rows
        if (name, words) not in {("gum", "where"), ("public", "replicates")}:
            verb(release, tmp_path)


def test_counts_that_no_table_has_are_refused(pages, tmp_path):
    """Their sums are infinite, so that no share of the merged values is a number."""
    page, arrays = pages["public"]
    for name in [name for name in arrays if name.startswith("measurements/")]:
        opens, wrong = trouble(page, arrays | {name: np.full(arrays[name].shape, 1e308)}, tmp_path, VERBS)
        assert (opens, wrong) == (False, [])


@pytest.mark.parametrize("some", [slice(100), pytest.param(slice(100, 1000), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", RUNS)
def test_a_forged_release_works_or_is_refused_in_our_words(pages, name, some, tmp_path):
    page, arrays = pages[name]
    opened, wrong, slow = 0, [], 3
    for number, (words, make) in enumerate(mutants(page, arrays, random.Random(name))[some]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opens, found = trouble(*make(), folder, VERBS | (SLOW if slow > 0 else {}))
        slow -= opens
        opened += opens
        wrong += [f"{words}: {line}" for line in found]
    assert not wrong, "\n".join(wrong)
    assert opened > 5
