"""Exact counts: all three-way marginals of a 15-column table against numpy and, where installed, DuckDB.

Run ``python benchmarks/counts.py [rows]``: one core, best of three; the column sizes are about those of the Adult
census table, the codes are skewed as real ones are.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from itertools import combinations, islice

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique, Domain
from understudy.tabulate import SparseCounts, marginals

SIZES = {
    "sex": 2, "income": 2, "race": 5, "relationship": 6, "status": 7, "workclass": 9, "extra": 10, "job": 15,
    "degree": 16, "years": 16, "country": 42, "age": 85, "hours": 99, "weight": 100, "loss": 99,
}  # fmt: skip

Codes = dict[str, NDArray[np.uint8]]


def table(rows: int, domain: Domain) -> Codes:
    rng = np.random.default_rng(0)
    return {
        column: rng.choice(size, rows, p=rng.dirichlet(np.full(size, 0.5))).astype(np.uint8)
        for column, size in domain.items()
    }


def bincount(codes: Codes, domain: Domain, cliques: Iterable[Clique]) -> list[NDArray[np.int64]]:
    answers = []
    for a, b, c in cliques:
        flat = (codes[a].astype(np.int64) * domain[b] + codes[b]) * domain[c] + codes[c]
        answers.append(np.bincount(flat, minlength=domain.cells((a, b, c))))
    return answers


def best(work: Callable[[], object], times: int = 3) -> float:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def duckdb_seconds(codes: Codes, cliques: list[Clique]) -> float | None:
    try:
        import duckdb
        import pyarrow as pa
    except ImportError:
        return None
    connection = duckdb.connect(config={"threads": 1})
    connection.register("arrow", pa.table(codes))
    connection.execute("create table t as select * from arrow")
    few = list(islice(cliques, 0, None, 20))

    def work() -> None:
        for a, b, c in few:
            connection.execute(f"select {a}, {b}, {c}, count(*) from t group by all").fetchnumpy()  # noqa: S608

    return best(work, 1) * len(cliques) / len(few)


def compare(rows: int, ways: int, columns: int = 15) -> None:
    domain = Domain(dict(islice(SIZES.items(), columns)))
    codes, cliques = table(rows, domain), list(combinations(domain, ways))
    ours = list(marginals(codes, domain, cliques))
    if ways == 3:
        for (_, counts), expected in zip(ours, bincount(codes, domain, cliques), strict=True):
            assert not isinstance(counts, SparseCounts)
            assert np.array_equal(counts, expected)
    del ours
    seconds = best(lambda: [None for _ in marginals(codes, domain, cliques)])
    print(f"{rows:,} rows, {len(cliques)} {ways}-way marginals: {seconds:.4f} s", end="")
    if ways == 3:
        numpy_seconds = best(lambda: bincount(codes, domain, cliques))
        print(f"; numpy bincount {numpy_seconds:.4f} s: {numpy_seconds / seconds:.1f} x", end="")
    if ways == 3 and rows >= 100_000 and (duck := duckdb_seconds(codes, cliques)) is not None:
        print(f"; DuckDB, one thread {duck:.2f} s: {duck / seconds:.1f} x", end="")
    print()


def main() -> None:
    rows = int(float(sys.argv[1])) if len(sys.argv) > 1 else 1_000_000
    compare(1_000, 3)
    compare(50_000, 3)
    compare(rows, 3)
    compare(rows, 2)
    compare(rows, 1)


if __name__ == "__main__":
    main()
