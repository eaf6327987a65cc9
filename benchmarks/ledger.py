"""The ledger: entries a second, verification, races for the last unit of a grant, and kill -9 at random moments.

    python benchmarks/ledger.py speed
    python benchmarks/ledger.py race --processes 50 [--ledger postgresql://…]
    python benchmarks/ledger.py kills --times 1000 --writers 3

`kills` starts runs again and again in processes that share one ledger and kills each at a random moment. A process that
reads rows without a reservation fails. Afterwards every answer that any process saw must be on record, in the same
order, once for each run; no run is paid twice, no half file is left, and the log verifies. Results: ledger.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from understudy.accounting import Budget
from understudy.errors import BudgetExceeded
from understudy.ledger import Grant, Ledger
from understudy.release import Release
from understudy.run.record import _charges, _decode

UNIT = "one row of the table; the guarantee compares its being in the table or not"
ONE = Budget.of(rho=0.1)


def speed(folder: Path) -> None:
    ledger = Ledger(folder / "speed.db")
    handle = ledger.reserve("people", ONE, unit=UNIT, spec={"place": {}})
    body, payload = {"charges": [{"what": "measure", "rho": "1/1000"}], "cells": [100]}, os.urandom(400)
    begun, count = time.perf_counter(), 1000
    for _ in range(count):
        ledger.record(handle, body, payload)
    print(f"{count / (time.perf_counter() - begun):.0f} question-and-answer entries a second, each durable (500 asked)")
    descriptor, begun = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY), time.perf_counter()
    for _ in range(200):
        os.write(descriptor, payload)
        os.fsync(descriptor)
    print(f"{200 / (time.perf_counter() - begun):.0f} plain writes with fsync a second: the disk's own limit")
    with ledger._database.write() as connection:
        from understudy.ledger.ledger import _Log

        log = _Log(connection)
        for _ in range(100_000 - 1_000):
            log.add("answer", body, dataset="people", run="filler", payload=payload)
    ledger.checkpoint(Ed25519PrivateKey.generate())
    begun = time.perf_counter()
    assert ledger.verify() == []
    print(f"verify of 100,000 entries in {time.perf_counter() - begun:.2f} s (5 asked)")


def _race(address: str, start: object, won: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    try:
        Ledger(address).reserve("people", ONE, unit=UNIT, spec={"place": {}})
        won.put(1)  # type: ignore[attr-defined]
    except BudgetExceeded:
        pass


def race(folder: Path, address: str | None, processes: int) -> None:
    address = address or str(folder / "race.db")
    Ledger(address).grant(Grant("people", rho=0.75))
    context = multiprocessing.get_context("spawn")
    start, won = context.Event(), context.Queue()
    racing = [context.Process(target=_race, args=(address, start, won)) for _ in range(processes)]
    for process in racing:
        process.start()
    time.sleep(5)
    start.set()
    for process in racing:
        process.join()
    winners = sum(won.get() for _ in range(won.qsize()))
    print(f"{processes} processes race for 7 runs: {winners} won; the ledger has {len(Ledger(address).reservations())}")
    assert winners == 7 == len(Ledger(address).reservations())


def kills(folder: Path, times: int, writers: int, seed: int) -> None:
    """Kill real runs at random moments; see the module's docstring."""
    _write_table(folder)
    os.environ["UNDERSTUDY_LEDGER"] = str(folder / "ledger.db")
    rng, context = random.Random(seed), multiprocessing.get_context("fork")  # forked: no time goes into imports
    _witnessed_run(folder, folder / "out-first", folder / "seen-first-0")  # loads and compiles what runs need
    longest = 1.0  # seconds; follows how long runs take, so that about one in four attempts finishes
    killed = finished = attempts = 0
    running: dict[int, tuple[Any, float]] = {}
    runs = [0] * writers
    while killed < times or running:
        for writer in range(writers):
            if writer not in running and killed + len(running) < times:
                attempts += 1
                names = f"{writer}.{runs[writer]}"
                process = context.Process(
                    target=_witnessed_run, args=(folder, folder / f"out-{names}", folder / f"seen-{names}-{attempts}")
                )
                process.start()
                running[writer] = process, time.monotonic() + rng.uniform(0, longest)
        for writer, (process, until) in list(running.items()):
            process.join(0.002)
            if process.exitcode is None and time.monotonic() >= until:
                process.kill()
                process.join()
            if process.exitcode is not None:
                del running[writer]
                assert process.exitcode in (0, -signal.SIGKILL), "a run failed; its error is above"
                killed += process.exitcode != 0
                longest *= 1.05 if process.exitcode else 0.86
                if process.exitcode == 0:
                    finished, runs[writer] = finished + 1, runs[writer] + 1
                    _check_artefacts(folder / f"out-{writer}.{runs[writer] - 1}")
                if process.exitcode != 0 and killed % 100 == 0:
                    _check(folder)
                    print(f"{killed} kills, {finished} runs finished", flush=True)
    entries, answered = _check(folder)
    print(
        f"{killed} kills of {writers} concurrent writers, {finished} runs finished: {entries} entries verify, "
        f"{answered} answers were seen, each is on record and was paid for once; no unpaid read, no half file"
    )


def _witnessed_run(folder: Path, output: Path, witness: Path) -> None:
    """One attempt at a run. Every answer that leaves the gate is written down; a read without a reservation fails."""
    from understudy.gate import PrivateTable
    from understudy.run import pipeline, run
    from understudy.source import MemorySource

    seen = witness.open("a")
    answer, open_source, counts = PrivateTable._answer, pipeline.open_source, MemorySource.counts

    def paid() -> None:
        with closing(sqlite3.connect(folder / "ledger.db")) as ledger:
            reserved = "SELECT body FROM understudy_entries WHERE kind = 'reserve' AND body LIKE ?"
            assert ledger.execute(reserved, (f"%{output.absolute()}%",)).fetchall(), "an unpaid read"

    def witness_answer(table: PrivateTable, charges: Any, compute: Any) -> Any:
        given = answer(table, charges, compute)
        seen.write(json.dumps([[charge.to_dict() for charge in charges], _values(given)]) + "\n")
        seen.flush()
        return given

    def witness_open(*given: Any, **options: Any) -> Any:
        paid()
        return open_source(*given, **options)

    def witness_counts(source: MemorySource, cliques: Any) -> Any:
        paid()
        return counts(source, cliques)

    PrivateTable._answer, pipeline.open_source, MemorySource.counts = witness_answer, witness_open, witness_counts
    try:
        run(folder / "run.yaml", output)
    finally:
        PrivateTable._answer, pipeline.open_source, MemorySource.counts = answer, open_source, counts


def _values(answer: Any) -> Any:
    return [one.values.tolist() for one in answer] if isinstance(answer, list) else repr(answer)


def _check(folder: Path) -> tuple[int, int]:
    """The log verifies, and what each attempt saw is what the ledger has, in the same order, once.

    Returns:
        The numbers of entries and of answers that were seen.
    """
    saw = {witness.name: witness.read_text() for witness in folder.glob("seen-*")}  # before the ledger: runs go on
    ledger = Ledger(folder / "ledger.db")
    assert ledger.verify() == []
    answers: dict[str, list[Any]] = {}
    runs: dict[str, str] = {}
    entries = list(ledger.entries())
    for entry in entries:
        if entry.kind == "reserve":
            place = entry.body["spec"]["place"]["folder"]
            assert place not in runs, f"{place} was paid for twice"
            runs[place] = str(entry.run)
        if entry.kind == "answer":
            charges = _charges(entry.body)
            given, _ = _decode(charges, entry.body, entry.payload)
            answers.setdefault(str(entry.run), []).append([[charge.to_dict() for charge in charges], _values(given)])
    ledger.close()
    count = 0
    for witness, text in saw.items():
        name = witness.removeprefix("seen-").rpartition("-")[0]
        seen = [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]
        recorded = answers.get(runs.get(str((folder / f"out-{name}").absolute()), ""), [])
        assert seen == recorded[: len(seen)], f"{name} saw an answer that is not on record"
        count += len(seen)
    return len(entries), count


def _check_artefacts(output: Path) -> None:
    rows = (output / "rows.csv").read_text().splitlines()
    assert len(rows) == 1 + len(Release.load(output / "stand-in.release").sample(seed=0)), "half a file of rows"
    left = [path.name for path in output.iterdir() if path.name.startswith(".")]
    assert not left, f"left behind: {left}"


def _write_table(folder: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    rows = ["a,b,c", *(f"{x % 4},{x % 3},{x % 5}" for x in rng.integers(0, 60, 500))]
    (folder / "people.csv").write_text("\n".join(rows) + "\n")
    fields = "".join(
        f"  - {{name: {name}, type: integer, constraints: {{minimum: 0, maximum: {size - 1}}}}}\n"
        for name, size in (("a", 4), ("b", 3), ("c", 5))
    )
    (folder / "schema.yaml").write_text(f"understudy: {{privacy_unit: row}}\nfields:\n{fields}")
    (folder / "run.yaml").write_text(
        "data: people.csv\nschema: schema.yaml\nbudget: {epsilon: 1, delta: 1.0e-9}\nmechanism: mst\nquality: 5%\n"
        "outputs: {rows: [csv], report: []}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "race", "kills"])
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--ledger")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.what == "speed":
            speed(Path(folder))
        elif given.what == "race":
            race(Path(folder), given.ledger, given.processes)
        else:
            kills(Path(folder), given.times, given.writers, given.seed)


if __name__ == "__main__":
    main()
