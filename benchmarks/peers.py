"""Understudy beside the synthesizers on PyPI: same table, same privacy, same measure; each run in its own process.

    python benchmarks/peers.py titanic:1 adult:1 --data ../shared/data/aim --runs 3 --output benchmarks/peers.csv \
        --only mst aim --peer understudy --peer dpmm=PYTHON --peer opendp=PYTHON --peer snsynth=PYTHON

PYTHON is an interpreter that has the package; this one when none is named. Error is that of `aim.py` (the AIM paper's
Definition 2), of all sets of three and of two columns, of the sampled rows. Seconds are those of the whole process:
imports, reading, compiling, fit and sampling; the limit is one of processor seconds. One thread each. Everybody gets
integer codes and the public domain; where a tool wants it, the number of rows too.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

DELTA = 1e-9
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
                         "POLARS_MAX_THREADS", "RAYON_NUM_THREADS"), "1")  # fmt: skip
ONE_CORE = {**THREADS, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
Made = Any
Peer = Callable[["Case"], Made]


class Case:
    """One table and budget, as a child process is given it."""

    def __init__(self, path: Path) -> None:
        given = json.loads(path.read_text())
        self.sizes, self.epsilon, self.rho, self.folder = given["sizes"], given["epsilon"], given["rho"], path.parent
        self.codes = np.loadtxt(self.folder / "codes.csv", delimiter=",", skiprows=1, dtype=int, ndmin=2)

    def frame(self) -> Any:
        """The codes as a pandas frame, which most peers want."""
        import pandas as pd

        return pd.DataFrame(self.codes, columns=list(self.sizes))


def understudy(mechanism: str, **settings: Any) -> Peer:
    def made(case: Case) -> Made:
        import understudy as us

        schema, frame = us.Schema.from_domain(case.sizes), case.frame()
        release = us.synthesize(frame, schema, epsilon=case.epsilon, delta=DELTA, mechanism=mechanism, **settings)
        return release.sample(as_="pandas")

    return made


def dpmm(pipeline: str, **settings: Any) -> Peer:
    def made(case: Case) -> Made:
        tool = getattr(import_module("dpmm.pipelines"), pipeline)(
            epsilon=case.epsilon, delta=DELTA, n_jobs=1, disable_processing=True, **settings
        )
        tool.fit(case.frame(), domain=case.sizes)
        return tool.generate(n_records=len(case.codes))

    return made


def opendp(algorithm: str, method: str = "round") -> Peer:
    def made(case: Case) -> Made:
        import polars as pl

        dp: Any = import_module("opendp.prelude")
        rounding: Any = import_module("opendp.extras.mbi._mst")
        # 0.16 leaves one or two last places of a float for the rounding of its own sums: too few, and MST stops
        rounding.prior = lambda budget: budget * (1 - 1e-12)
        dp.enable_features("contrib")
        frame = pl.DataFrame(case.codes.astype(np.int64), schema=list(case.sizes), orient="row").lazy()
        context = dp.Context.compositor(
            data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=case.rho)
        )
        # whole numbers cut between any two codes: keys would get a null category of their own
        cuts = {column: list(range(size - 1)) for column, size in case.sizes.items()}
        query = context.query(rho=case.rho).contingency_table(cuts=cuts, algorithm=getattr(dp.mbi, algorithm)())
        return query.release().synthesize(method=method)

    return made


def snsynth(name: str, **settings: Any) -> Peer:
    def made(case: Case) -> Made:
        package, transform = import_module("snsynth"), import_module("snsynth.transform")
        columns = [transform.LabelTransformer(nullable=False) for _ in case.sizes]
        for column, size in zip(columns, case.sizes.values(), strict=True):
            column.fit(list(range(size)))  # the public domain, not the values that occur
        tool = package.Synthesizer.create(name, epsilon=case.epsilon, **settings)
        tool.fit(case.frame(), transformer=transform.TableTransformer(columns))
        return tool.sample(len(case.codes))

    return made


def data_synthesizer(case: Case) -> Made:
    domains, described = case.folder / "domains.json", str(case.folder / "described.json")
    domains.write_text(json.dumps({column: list(range(size)) for column, size in case.sizes.items()}))
    tool = import_module("DataSynthesizer.DataDescriber").DataDescriber()
    maker = import_module("DataSynthesizer.DataGenerator").DataGenerator()
    tool.describe_dataset_in_correlated_attribute_mode(
        dataset_file=str(case.folder / "codes.csv"), epsilon=case.epsilon,
        categorical_attribute_domain_file=str(domains),
        attribute_to_is_categorical=dict.fromkeys(case.sizes, True), seed=int.from_bytes(os.urandom(4), "little"),
        attribute_to_is_candidate_key=dict.fromkeys(case.sizes, False),
    )  # fmt: skip
    tool.save_dataset_description_to_file(described)
    maker.generate_dataset_in_correlated_attribute_mode(len(case.codes), described, seed=None)
    return maker.synthetic_dataset


PEERS: dict[str, dict[str, Peer]] = {
    "understudy": {
        "mst": understudy("mst"), "aim": understudy("aim", workload="all-3way"),
        "privsyn": understudy("privsyn"), "mwem": understudy("mwem", workload="all-3way"),
    },
    "dpmm": {
        "mst": dpmm("MSTPipeline"), "aim": dpmm("AIMPipeline", gen_kwargs={"degree": 3}, max_model_size=80),
        "privbayes": dpmm("PrivBayesPipeline"),
    },
    "opendp": {
        "mst": opendp("MST"), "aim": opendp("AIM"),
        "mst, sampled": opendp("MST", "sample"), "aim, sampled": opendp("AIM", "sample"),
    },
    "snsynth": {
        "mst": snsynth("mst", delta=DELTA), "aim": snsynth("aim", delta=DELTA, degree=3),
        "mwem": snsynth("mwem"), "patectgan": snsynth("patectgan", delta=DELTA),
    },
    "DataSynthesizer": {"privbayes": data_synthesizer},
}  # fmt: skip
PACKAGE = {"snsynth": "smartnoise-synth"}


def child(peer: str, tool: str, path: Path, limit: int) -> None:
    """One run, in the peer's own interpreter: its rows and what it took, beside the case."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    begin = time.perf_counter()
    case, version = Case(path), importlib.metadata.version(PACKAGE.get(peer, peer))
    made = PEERS[peer][tool](case)
    wall, cpu = time.perf_counter() - begin, sum(os.times()[:4])
    rows = np.column_stack([np.asarray(made[column]).astype(int) for column in case.sizes])
    np.save(case.folder / "made.npy", rows)
    used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) // 1024
    facts = {"version": version, "seconds": round(wall, 2), "cpu_seconds": round(cpu, 2), "peak_mib": used}
    (case.folder / "facts.json").write_text(json.dumps(facts))


def run(data: Path, name: str, epsilon: float, peer: str, tool: str, python: str, limit: int) -> dict[str, Any]:
    """Start one run, wait for it, and measure what it made."""
    import pandas as pd

    import understudy as us
    from aim import table, workload_error
    from understudy.workload import Workload

    frame, schema = table(data, name)
    row: dict[str, Any] = {"table": name, "epsilon": epsilon, "peer": peer, "tool": tool, "outcome": "done"}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        sizes, rho = dict(schema.domain), float(us.Budget.of(epsilon=epsilon, delta=DELTA).rho)
        (folder / "case.json").write_text(json.dumps({"sizes": sizes, "epsilon": epsilon, "rho": rho}))
        frame.to_csv(folder / "codes.csv", index=False)
        command = [python, __file__, "--run", peer, tool, str(folder / "case.json"), str(limit)]
        environment = {**os.environ, **ONE_CORE, "UNDERSTUDY_LEDGER": str(folder / "ledger.db")}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return {**row, "outcome": f"not done after {limit} s of processor"}
        if done.returncode:
            return {**row, "outcome": "failed: " + " ".join(done.stderr.split())[-200:]}
        made = pd.DataFrame(np.load(folder / "made.npy"), columns=list(sizes))
        facts = json.loads((folder / "facts.json").read_text())
    errors = {
        f"error_{k}way": round(workload_error(schema, frame, made, Workload.parse(f"all-{k}way", schema.domain)), 5)
        for k in (3, 2)
    }
    return {**row, "version": facts.pop("version"), **errors, "rows": len(made), **facts}


def describe_rows(rows: list[dict[str, Any]]) -> str:
    """A line of the table: means over the runs that ended, or why none did."""
    first = rows[0]
    start = f"| {first['table']} | {first['epsilon']:g} | {first['peer']} | {first['tool']} |"
    ended = [row for row in rows if row["outcome"] == "done"]
    if not ended:
        return f"{start} {first['outcome']} | | | | |"
    mean = {
        key: float(np.mean([row[key] for row in ended])) for key in ended[0] if isinstance(ended[0][key], int | float)
    }
    spread = float(np.std([row["error_3way"] for row in ended]))
    return (
        f"{start} {mean['error_3way']:.4f} (sd {spread:.4f}, {len(ended)} of {len(rows)}) | {mean['error_2way']:.4f} | "
        f"{mean['seconds']:.1f} | {mean['cpu_seconds']:.1f} | {max(row['peak_mib'] for row in ended)} |"
    )


def kept(output: Path | None, row: dict[str, Any]) -> None:
    if output is None:
        return
    names = ["table", "epsilon", "peer", "version", "tool", "outcome", "error_3way", "error_2way", "rows", "seconds",
             "cpu_seconds", "peak_mib"]  # fmt: skip
    new = not output.exists()
    with output.open("a", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", help="TABLE:EPSILON")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--only", nargs="+", help="tools: mst, aim, ...; all when not given")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=int, default=600, help="processor seconds a run may take")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/aim"))
    parser.add_argument("--output", type=Path, help="append every run to this CSV file")
    given = parser.parse_args()
    named = (peer.partition("=") for peer in given.peer or ["understudy"])
    pythons = {peer: python or sys.executable for peer, _, python in named}
    print("| table | epsilon | package | mechanism | three-way | two-way | s | s of processor | MiB |\n|" + "---|" * 9)
    tools = [(peer, tool) for peer in pythons for tool in PEERS[peer] if not given.only or tool in given.only]
    for name, _, epsilon in (case.partition(":") for case in given.cases):
        for peer, tool in tools:
            rows: list[dict[str, Any]] = []
            for _ in range(given.runs):
                rows.append(run(given.data, name, float(epsilon), peer, tool, pythons[peer], given.limit))
                kept(given.output, rows[-1])
            print(describe_rows(rows), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        child(sys.argv[2], sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
