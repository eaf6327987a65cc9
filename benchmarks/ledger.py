"""The ledger: entries a second, verification, races for the last unit of a grant, and kill -9 at random moments.

    python benchmarks/ledger.py speed
    python benchmarks/ledger.py race --processes 50 [--ledger postgresql://…]
    python benchmarks/ledger.py kills --times 1000 --writers 3

`kills` starts `understudy run` again and again in real processes that share one ledger, kills each at a random moment,
and checks after each one: every answer that a process saw is on record, no run is paid twice, no half artefact is left.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from understudy.accounting import Budget
from understudy.errors import BudgetExceeded
from understudy.ledger import Grant, Ledger

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


_RUN = """
import json, os, sys
from understudy.gate import table as gate
seen = open(sys.argv[3], "a")
answer = gate.PrivateTable._answer
def witnessed(table, charges, compute):
    given = answer(table, charges, compute)
    values = [[int(v) for v in one.values] for one in given] if isinstance(given, list) else repr(given)
    seen.write(json.dumps([[c.to_dict() for c in charges], values]) + "\\n"); seen.flush()
    return given
gate.PrivateTable._answer = witnessed
from understudy.run import run
run(sys.argv[1], sys.argv[2])
"""


def kills(folder: Path, times: int, writers: int, seed: int = 0) -> None:
    """Kill real runs at random moments; see the module's docstring."""
    rng = random.Random(seed)
    _write_table(folder)
    environment = os.environ | {"UNDERSTUDY_LEDGER": str(folder / "ledger.db"), "PYTHONWARNINGS": "ignore"}
    script = folder / "witness.py"
    script.write_text(_RUN)
    slots = [{"folder": 0, "process": None} for _ in range(writers)]
    killed = finished = 0
    longest = 4.0
    while killed < times:
        for number, slot in enumerate(slots):
            out, witness = folder / f"out-{number}-{slot['folder']}", folder / f"seen-{number}-{slot['folder']}.jsonl"
            command = [sys.executable, str(script), str(folder / "run.yaml"), str(out), str(witness)]
            slot["process"] = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
            slot["until"] = time.monotonic() + rng.uniform(0.2, longest)
        for slot in slots:
            process = slot["process"]
            try:
                process.wait(max(0.0, slot["until"] - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed += 1
            error = process.stderr.read().decode()
            process.stderr.close()
            if process.returncode == 0:
                finished += 1
                slot["folder"] += 1
            assert process.returncode in (0, -signal.SIGKILL), error
        if killed % 50 < writers:
            _check(folder, environment["UNDERSTUDY_LEDGER"])
            print(f"{killed} kills, {finished} runs finished", flush=True)
    _check(folder, environment["UNDERSTUDY_LEDGER"])
    print(f"{killed} kills of {writers} concurrent writers: {finished} finished, nothing lost or answered twice")


def _check(folder: Path, address: str) -> None:
    ledger = Ledger(address)
    assert ledger.verify() == []
    answers: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for entry in ledger.entries():
        if entry.kind == "reserve":
            places[entry.body["spec"]["place"]["folder"]] = str(entry.run)
        if entry.kind == "answer":
            answers.setdefault(str(entry.run), []).append(json.dumps(entry.body["charges"]))
    live = [one for one in ledger.reservations() if one.state != "cancelled"]
    assert len({one.run for one in live}) == len(live)
    for witness in folder.glob("seen-*.jsonl"):
        lines = [json.loads(line) for line in witness.read_text().splitlines() if line.endswith("]")]
        if not lines:  # killed before its first answer
            continue
        run = places[str((folder / witness.name.replace("seen-", "out-").removesuffix(".jsonl")).absolute())]
        given: dict[str, object] = {}
        for charges, values in lines:  # the same question always got the same answer, and it is on record
            key = json.dumps(charges)
            assert given.setdefault(key, values) == values, f"run {run} was answered twice"
            assert key in answers.get(run, []), f"run {run} saw an answer that is not on record"
    for release in folder.glob("out-*/stand-in.release"):
        from understudy.release import Release

        Release.load(release)
    ledger.close()


def _write_table(folder: Path) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    rows = ["a,b,c", *(f"{x % 4},{x % 3},{x % 5}" for x in rng.integers(0, 60, 500))]
    (folder / "people.csv").write_text("\n".join(rows) + "\n")
    fields = "".join(
        f"  - {{name: {name}, type: integer, constraints: {{minimum: 0, maximum: {size - 1}}}}}\n"
        for name, size in (("a", 4), ("b", 3), ("c", 5))
    )
    (folder / "schema.yaml").write_text(f"fields:\n{fields}")
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
    parser.add_argument("--ledger")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.what == "speed":
            speed(Path(folder))
        elif given.what == "race":
            race(Path(folder), given.ledger, given.processes)
        else:
            kills(Path(folder), given.times, given.writers)


if __name__ == "__main__":
    main()
