"""Counting coded arrays: answers, shapes, refusals. Equality with brute force over random tables is in property/."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest

from understudy import tabulate
from understudy.domain import Domain
from understudy.errors import SchemaError
from understudy.tabulate import SparseCounts, marginals


def coded(domain: Domain, rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    kinds = {
        column: np.uint8 if size <= 256 else np.uint16 if size <= 65536 else np.uint32
        for column, size in domain.items()
    }
    return {column: rng.integers(0, size, rows).astype(kinds[column]) for column, size in domain.items()}


def brute(codes: dict[str, np.ndarray], domain: Domain, clique: tuple[str, ...]) -> np.ndarray:
    table = np.zeros(domain.shape(clique), np.int64)
    rows = len(next(iter(codes.values())))
    for row in range(rows):
        table[tuple(codes[column][row] for column in clique)] += 1
    return table.reshape(-1)


@pytest.fixture(params=["plain", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of counting dense tables."""
    monkeypatch.setattr(tabulate, "_worth_compiling", lambda work: request.param == "compiled")
    return request.param


DOMAIN = Domain({"a": 3, "b": 2, "c": 300, "d": 5, "e": 1, "f": 70_000})


def test_every_clique_of_up_to_four_columns_in_any_order(way: str) -> None:
    domain = DOMAIN.project("abcde")
    codes = coded(domain, 200)
    cliques = [clique[::-1] if len(clique) % 2 else clique for k in range(5) for clique in combinations(domain, k)]
    answers = list(marginals(codes, domain, cliques))
    assert [clique for clique, _ in answers] == cliques
    for clique, counts in answers:
        assert isinstance(counts, np.ndarray)
        assert counts.dtype == np.int64
        assert counts.base is None or counts.base.size == counts.size, "a view keeps its group's memory alive"
        np.testing.assert_array_equal(counts, brute(codes, domain, clique))


def test_a_large_column_and_twenty_columns(way: str) -> None:
    domain = Domain({f"x{j}": 2 for j in range(20)} | {"f": 70_000})
    codes = coded(domain, 50)
    wide = tuple(f"x{j}" for j in range(20))
    answers = dict(marginals(codes, domain, [("f", "x3"), wide]))
    np.testing.assert_array_equal(answers["f", "x3"], brute(codes, domain, ("f", "x3")))
    np.testing.assert_array_equal(answers[wide], brute(codes, domain, wide))


def test_repeated_cliques_are_answered_again(way: str) -> None:
    codes = coded(DOMAIN, 30)
    answers = list(marginals(codes, DOMAIN, [("a", "b"), ("b", "a"), ("a", "b")]))
    assert [clique for clique, _ in answers] == [("a", "b"), ("b", "a"), ("a", "b")]
    first, turned, again = (counts for _, counts in answers)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(np.asarray(first).reshape(3, 2).T.reshape(-1), turned)
    assert first is not again


def test_rows_in_many_blocks_spans_and_groups(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = DOMAIN.project("abd")
    codes = coded(domain, 1000)
    monkeypatch.setattr(tabulate, "_BLOCK_ROWS", 300)
    monkeypatch.setattr(tabulate, "_SPAN_ROWS", 700)
    monkeypatch.setattr(tabulate, "_GROUP_CELLS", 12)
    cliques = [clique for k in range(4) for clique in combinations(domain, k)]
    for clique, counts in marginals(codes, domain, cliques):
        np.testing.assert_array_equal(counts, brute(codes, domain, clique))


def test_no_rows(way: str) -> None:
    codes = coded(DOMAIN, 0)
    answers = dict(marginals(codes, DOMAIN, [(), ("a",), ("a", "b")]))
    assert [np.asarray(counts).tolist() for counts in answers.values()] == [[0], [0] * 3, [0] * 6]
    ((_, sparse),) = marginals(codes, DOMAIN, [("c", "f")])
    assert isinstance(sparse, SparseCounts)
    assert sparse.cells.tolist() == sparse.counts.tolist() == []


def test_sparse_above_the_limit_and_only_there() -> None:
    domain = Domain({"a": 2048, "b": 2048, "c": 2})
    codes = coded(domain, 100)
    (_, at), (_, above) = marginals(codes, domain, [("a", "b"), ("c", "b", "a")])
    assert isinstance(at, np.ndarray)
    assert isinstance(above, SparseCounts)
    assert above.size == 2 * 2048 * 2048
    assert (np.diff(above.cells) > 0).all()
    assert (above.counts > 0).all()
    np.testing.assert_array_equal(above.dense().reshape(2, 2048, 2048).sum(axis=0).T.reshape(-1), at)


def test_sparse_up_to_the_last_index_of_int64() -> None:
    domain = Domain({f"x{j}": 8 for j in range(21)})
    assert domain.cells() == 2**63
    with pytest.raises(SchemaError, match="fewer columns"):
        marginals(coded(domain, 5), domain, [domain.columns])
    last = {column: np.array([7], np.uint8) for column in domain}
    ((_, counts),) = marginals(last, domain, [domain.columns[:-1]])
    assert isinstance(counts, SparseCounts)
    assert counts.cells.tolist() == [8**20 - 1]


def test_sparse_text_shows_only_the_size() -> None:
    counts = SparseCounts(np.array([31337]), np.array([4711]), 10**9)
    assert repr(counts) == str(counts) == "SparseCounts(size=1000000000)"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": np.array([3, 0], np.uint8)}, "code outside"),
        ({"a": np.array([0, 1], np.int64)}, "uint8"),
        ({"a": np.array([0], np.uint8)}, "one length"),
        ({"a": np.array([[0, 1]], np.uint8)}, "flat"),
    ],
)
def test_codes_that_do_not_fit_are_refused_before_counting(change: dict[str, np.ndarray], words: str) -> None:
    codes = {"b": np.array([0, 1], np.uint8), "a": np.array([0, 1], np.uint8)} | change
    with pytest.raises(SchemaError, match=words) as caught:
        marginals(codes, DOMAIN, [("a", "b")])
    assert "'a'" in str(caught.value)


def test_unknown_repeated_and_absent_columns_are_refused() -> None:
    codes = coded(DOMAIN.project("ab"), 3)
    for clique in [("z",), ("a", "a"), ("c",)]:
        with pytest.raises(SchemaError):
            marginals(codes, DOMAIN, [clique])
    with pytest.raises(SchemaError, match="no columns"):
        marginals({}, Domain({}), [()])


def test_ten_thousand_columns() -> None:
    domain = Domain({f"x{j}": 4 for j in range(10_000)})
    codes = coded(domain, 20)
    answers = dict(marginals(codes, domain, [(column,) for column in domain]))
    assert all(int(np.asarray(counts).sum()) == 20 for counts in answers.values())
    assert len(answers) == 10_000


def test_small_work_does_not_import_the_compiler() -> None:
    program = (
        "import sys, numpy as np; from understudy.domain import Domain; from understudy.tabulate import marginals;"
        "list(marginals({'a': np.zeros(9, np.uint8)}, Domain({'a': 2}), [('a',)])); sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_group_budget_covers_one_dense_table() -> None:
    assert tabulate.DENSE_CELLS <= tabulate._GROUP_CELLS < 2**31
    assert math.log2(tabulate._SPAN_ROWS) <= 31
