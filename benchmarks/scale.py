"""Counting tables that do not fit in memory, and how a run grows with its rows.

``python benchmarks/scale.py counts 1e7`` generates 10 million rows x 16 columns of Parquet with MSNBC's distribution (a
stand-in with as many codes where the table is not there) and counts all 120 two-way marginals: by our source, and by
the same batch written by hand in SQL (``--hand``: which ways, see `BY_HAND`). DuckDB has 4 GB and two threads in all of
them. ``growth 1e5 1e6 1e7`` runs MST end to end on tables of these sizes and tells reading, counting, estimating the
model and everything else apart (nothing is sampled: that takes as long as the rows that are asked for). ``postgres URL
1e6`` does the first against a database. Each measurement is a process of its own; *cpu* is the seconds of all its
threads, memory the largest that was not file pages, which the system can take back.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

FILE_ROWS = 5_000_000
CODES = 18
COLUMNS = [f"site_{place}" for place in range(16)]
PAIRS = list(combinations(COLUMNS, 2))


def made(rows: int, data: Path, place: Path) -> Path:
    """A folder of so many rows, drawn with replacement from MSNBC; made once."""
    folder = place / f"msnbc-{rows}"
    if folder.exists():
        return folder
    real = data / "aim" / "msnbc.csv.gz"
    rng = np.random.default_rng(0)
    if real.exists():
        codes = {name: arrow_csv.read_csv(real)[name].to_numpy() for name in COLUMNS}
    else:
        shares = rng.dirichlet(np.full(CODES, 0.5), len(COLUMNS))
        codes = {name: rng.choice(CODES, 1_000_000, p=share) for name, share in zip(COLUMNS, shares, strict=True)}
    partial = place / f"partial-{rows}"
    partial.mkdir(exist_ok=True)
    for start in range(0, rows, FILE_ROWS):
        picked = rng.integers(0, len(codes[COLUMNS[0]]), min(FILE_ROWS, rows - start))
        table = pa.table({name: column[picked] for name, column in codes.items()})
        pq.write_table(table, partial / f"{start // FILE_ROWS:04}.parquet")
    return partial.rename(folder)


def schema() -> Any:
    from understudy.schema import Schema

    return Schema.from_domain(dict.fromkeys(COLUMNS, CODES))


# -- what is measured, each in a process of its own ------------------------------------------------------------------


def ours(folder: str) -> dict[str, float]:
    from understudy.source import open_source

    start = time.perf_counter()
    source = open_source(folder, schema())
    coded = time.perf_counter()
    tables = list(source.counts(PAIRS))
    end = time.perf_counter()
    assert len(tables) == len(PAIRS)
    source.close()
    return {"seconds": end - start, "coding": coded - start, "counting": end - coded}


def by_hand(folder: str, statements: list[str]) -> dict[str, float]:
    import duckdb

    with tempfile.TemporaryDirectory(dir=Path(folder).parent) as spill, duckdb.connect() as connection:
        connection.execute(f"set memory_limit = '4GB'; set threads = 2; set temp_directory = '{spill}'")
        connection.execute(f"create view data as from read_parquet('{folder}/*.parquet')")
        start = time.perf_counter()
        for statement in statements:
            connection.execute(statement).fetchnumpy()
        return {"seconds": time.perf_counter() - start}


def group_bys(table: str, rows: str = "count(*)") -> list[str]:
    return [f"select {a}, {b}, {rows} from {table} group by {a}, {b}" for a, b in PAIRS]  # noqa: S608


SMALL = ", ".join(f"{name}::utinyint as {name}" for name in COLUMNS)


def separate(folder: str) -> dict[str, float]:
    return by_hand(folder, group_bys("data"))


def union_all(folder: str) -> dict[str, float]:
    return by_hand(folder, [" union all ".join(group_bys("data"))])


def loaded_first(folder: str) -> dict[str, float]:
    """What one who knows DuckDB would write: the files are read once, into bytes, and the 120 read those."""
    return by_hand(folder, [f"create table coded as select {SMALL} from data", *group_bys("coded")])  # noqa: S608


def distinct_first(folder: str) -> dict[str, float]:
    """A bet on the rows: it wins where the same row occurs hundreds of times, as in a table drawn with replacement."""
    made = f"create table coded as select {SMALL}, count(*) as n from data group by all"  # noqa: S608
    return by_hand(folder, [made, *group_bys("coded", "sum(n)")])


def grouping_sets(folder: str) -> dict[str, float]:
    sets = ", ".join(f"({a}, {b})" for a, b in PAIRS)
    return by_hand(folder, [f"select {', '.join(COLUMNS)}, count(*) from data group by grouping sets ({sets})"])  # noqa: S608


def mst(folder: str) -> dict[str, float]:
    """MST end to end, with the time spent reading, counting, estimating the model and on everything else."""
    import understudy as us
    from understudy.model import generate
    from understudy.source.stream import StreamedSource

    spent = {"reading": 0.0, "counting": 0.0, "model": 0.0, "model cpu": 0.0}
    read, count, fit = StreamedSource.__init__, StreamedSource.counts, generate.fit_tree

    def timed_read(self: Any, *arguments: Any, **options: Any) -> None:
        start = time.perf_counter()
        read(self, *arguments, **options)
        spent["reading"] += time.perf_counter() - start

    def timed_count(self: Any, cliques: Any) -> Iterator[Any]:
        start = time.perf_counter()
        answers = list(count(self, cliques))
        spent["counting"] += time.perf_counter() - start
        return iter(answers)

    def timed_fit(*arguments: Any, **options: Any) -> Any:
        found = fit(*arguments, **options)
        start, busy = time.perf_counter(), time.process_time()
        fit(*arguments, **options)  # again, for the time without loading what is compiled; not part of the total
        spent["model"], spent["model cpu"] = time.perf_counter() - start, time.process_time() - busy
        return found

    StreamedSource.__init__, StreamedSource.counts = timed_read, timed_count  # type: ignore[method-assign]
    generate.fit_tree = timed_fit
    with tempfile.TemporaryDirectory() as place:
        os.environ["UNDERSTUDY_LEDGER"] = f"{place}/ledger.db"
        start = time.perf_counter()
        us.synthesize(folder, schema(), epsilon=1.0, delta=1e-9, output=f"{place}/x.release")
        total = time.perf_counter() - start - spent["model"]
    known = spent["reading"] + spent["counting"] + spent["model"]
    return {"seconds": total, **spent, "everything else": total - known}


def database(url: str) -> dict[str, float]:
    return ours(f"{url}?table=understudy_scale")


def database_by_hand(url: str) -> dict[str, float]:
    import psycopg

    sets = ", ".join(f"({a}, {b})" for a, b in PAIRS)
    with psycopg.connect(url) as connection:
        start = time.perf_counter()
        statement = f"select {', '.join(COLUMNS)}, count(*) from understudy_scale group by grouping sets ({sets})"  # noqa: S608
        connection.execute(statement).fetchall()
        return {"seconds": time.perf_counter() - start}


BY_HAND = (separate, union_all, loaded_first, distinct_first, grouping_sets)
WORK = {work.__name__: work for work in (ours, *BY_HAND, mst, database, database_by_hand)}


def measured(name: str, place: str) -> dict[str, float]:
    line = [sys.executable, __file__, "one", name, place]
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def one(name: str, place: str) -> None:
    import psutil

    peak, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            memory = psutil.Process().memory_info()
            peak[0] = max(peak[0], memory.rss - memory.shared)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    busy = time.process_time()
    found = WORK[name](place)
    busy = time.process_time() - busy
    stop.set()
    watcher.join()
    print(json.dumps(found | {"cpu": busy, "GB": peak[0] / 1e9}))


def print_measured(name: str, found: dict[str, float]) -> None:
    parts = ", ".join(f"{key} {value:.2f}" for key, value in found.items() if key != "seconds")
    print(f"{name:34} {found['seconds']:8.1f} s   {parts}, load {os.getloadavg()[0]:.1f}", flush=True)


def counts(rows: int, data: Path, place: Path, hand: list[str]) -> None:
    folder = str(made(rows, data, place))
    found = measured("ours", folder)
    print_measured(f"ours, {rows:,} rows", found)
    for name in hand:
        peer = measured(name, folder)
        print_measured(f"by hand: {name}", peer)
        print(f"{'':34} {peer['seconds'] / found['seconds']:8.1f} x")


def loaded(url: str, rows: int, data: Path, place: Path) -> None:
    import psycopg

    table = pq.read_table(made(rows, data, place)).to_pydict()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop table if exists understudy_scale")
        connection.execute(f"create table understudy_scale ({', '.join(f'{name} integer' for name in COLUMNS)})")
        with connection.cursor().copy("copy understudy_scale from stdin") as copy:
            for row in zip(*(table[name] for name in COLUMNS), strict=True):
                copy.write_row(row)
        connection.execute("analyze understudy_scale")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["counts", "growth", "postgres", "one"])
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()) / "understudy-scale")
    ways = [work.__name__ for work in BY_HAND]
    parser.add_argument("--hand", default="loaded_first,separate,grouping_sets", help=f"by hand, of {', '.join(ways)}")
    chosen = parser.parse_args()
    if chosen.what == "one":
        one(*chosen.rest)
        return
    chosen.place.mkdir(exist_ok=True)
    sizes = [int(float(size)) for size in chosen.rest if "://" not in size] or [1_000_000]
    if chosen.what == "counts":
        counts(sizes[0], chosen.data, chosen.place, [name for name in chosen.hand.split(",") if name])
    elif chosen.what == "postgres":
        loaded(chosen.rest[0], sizes[0], chosen.data, chosen.place)
        for name in ("database", "database_by_hand"):
            print_measured(name, measured(name, chosen.rest[0]))
    else:
        for rows in sizes:
            print_measured(f"MST, {rows:,} rows", measured("mst", str(made(rows, chosen.data, chosen.place))))


if __name__ == "__main__":
    main()
