"""The schema at size: encode, decode and memory of a million mixed rows, loading 500 columns, what default bins lose.

Usage: python benchmarks/schema.py [ADULT.csv]

Prints each measured number beside its target and the ratio (above 1: better than the target). Without the path of UCI
Adult as CSV the last part is left out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from understudy.schema import Schema
from understudy.schema.check import check

ROWS = 1_000_000
WORDS = [f"value {index}" for index in range(40)]


def fields() -> list[dict[str, Any]]:
    """Fifteen columns: five of text, three of whole numbers, two of reals, times, truth, and a heaped wage."""
    whole = {"type": "integer", "constraints": {"minimum": 0, "maximum": 99}}
    return [
        *({"name": f"word{i}", "type": "string", "categories": WORDS[: 5 + 8 * i]} for i in range(5)),
        {"name": "age", **whole},
        {"name": "children", **whole},
        {"name": "grade", "type": "integer", "categories": list(range(12)), "categoriesOrdered": True},
        {"name": "weight", "type": "number", "constraints": {"minimum": 0, "maximum": 200}},
        {"name": "share", "type": "number", "constraints": {"minimum": 0, "maximum": 1}, "understudy": {"decimals": 3}},
        {"name": "born", "type": "date", "constraints": {"minimum": "1930-01-01", "maximum": "2010-12-31"}},
        {"name": "seen", "type": "datetime", "constraints": {"minimum": "2020-01-01", "maximum": "2020-12-31"}},
        {"name": "took", "type": "duration", "constraints": {"minimum": 0, "maximum": 86400}},
        {"name": "smokes", "type": "boolean"},
        {
            "name": "wage", "type": "integer", "constraints": {"minimum": 0, "maximum": 5000},
            "understudy": {"heaped": [100, 20, 50, 25, 10, 5, 2, 1], "missing": {"-9": "refused"}},
        },
    ]  # fmt: skip


def print_measured(what: str, measured: float, target: float, unit: str = "s", note: str = "") -> None:
    ratio = f"ratio {target / measured:6.1f}" if measured else "no loss"
    print(f"{what:<56} {measured:9.3f} {unit:<3} target {target:g} {unit:<3} {ratio}{note}")


def timed(what: str, target: float, call: Any) -> Any:
    """Run and tell the seconds on the clock, and those of the processor, which a busy machine does not stretch."""
    clock, processor = time.perf_counter(), time.process_time()
    result = call()
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    print_measured(what, clock, target, note=f"   ({processor:.3f} s of processor)")
    return result


def speed() -> None:
    schema = Schema.from_dict({"fields": fields(), "understudy": {"privacy_unit": "row"}})
    rng = np.random.default_rng(0)
    codes = {part: rng.integers(0, size, ROWS).astype(np.uint16) for part, size in schema.domain.items()}
    for kind in ("pandas", "polars", "arrow"):
        frame = timed(f"decode 1M x 15 to {kind}", 5, lambda kind=kind: schema.decode(codes, rng, as_=kind))
        timed(f"encode 1M x 15 from {kind}", 5, lambda frame=frame: schema.encode(frame))
    text = timed("decode 1M x 15 to text", 5, lambda: schema.decode(codes, rng, text=True))
    timed("encode 1M x 15 from text (as CSV is read)", 5, lambda: schema.encode(text))
    coded = Schema.from_domain({f"c{index}": 18 for index in range(16)})
    frame = pd.DataFrame({f"c{index}": rng.integers(0, 18, ROWS) for index in range(16)})
    timed("encode 1M x 16 integer codes", 1, lambda: coded.encode(frame))


def memory() -> None:
    """Peak memory of encoding and decoding beside the frame's own size, each in a process of its own."""
    for what in ("encode", "decode"):
        command = [sys.executable, __file__, f"--{what}"]
        used, size = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
        print_measured(f"peak memory to {what} 1M x 15, beside the frame", used / size, 3, "x")


def memory_of(what: str) -> None:
    schema = Schema.from_dict({"fields": fields(), "understudy": {"privacy_unit": "row"}})
    rng = np.random.default_rng(0)
    codes = {part: rng.integers(0, size, ROWS).astype(np.uint8) for part, size in schema.domain.items()}
    small = {part: array[:1000] for part, array in codes.items()}
    schema.encode(schema.decode(small, rng))
    frame = schema.decode(codes, rng) if what == "encode" else None
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = peak()
    frame = schema.decode(codes, rng) if frame is None else frame
    if what == "encode":
        schema.encode(frame)
    print(peak() - before, frame.nbytes)


def peak() -> int:
    """The highest resident memory so far, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def loading() -> None:
    wide = [field | {"name": f"{field['name']}_{index}"} for index in range(34) for field in fields()][:500]
    schema = Schema.from_dict({"fields": wide, "understudy": {"privacy_unit": "row"}})
    with tempfile.TemporaryDirectory() as folder:
        for name in ("s.yaml", "s.json"):
            schema.save(Path(folder) / name)
            timed(f"load and validate 500 columns ({name[2:]})", 1, lambda n=name: Schema.load(Path(folder) / n))


def default_bins(path: str) -> None:
    """Mean, spread and quartiles of three columns of Adult after encoding and decoding with the default bins."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    bounds = {"age": (17, 90), "fnlwgt": (0, 1_500_000), "capital-gain": (0, 99_999)}
    declared = [
        {
            "name": name, "type": "integer", "constraints": {"minimum": low, "maximum": high, "required": True},
            "understudy": {"spikes": [0]} if name == "capital-gain" else {},
        }
        for name, (low, high) in bounds.items()
    ]  # fmt: skip
    fit = check(
        Schema.from_dict({"fields": declared, "understudy": {"privacy_unit": "row"}}), pa.Table.from_pandas(table)
    )
    for column in fit.columns:
        worst = max(column.losses, key=lambda loss: loss.relative)
        print_measured(f"default bins, {column.name}: worst is the {worst.statistic}", 100 * worst.relative, 2, "%")


if __name__ == "__main__":
    if sys.argv[1:2] in (["--encode"], ["--decode"]):
        memory_of(sys.argv[1][2:])
    else:
        speed()
        memory()
        loading()
        if len(sys.argv) > 1:
            default_bins(sys.argv[1])
