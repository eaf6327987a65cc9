"""Steps of progress."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import njit
from numba.core.errors import TypingError

from understudy import progress
from understudy.progress import Step, report_compiling


def test_compiling_is_reported_once_for_a_loop_and_what_it_calls() -> None:
    @njit
    def inner(x: float) -> float:
        return x + 1.0

    @njit
    def outer(x: float) -> float:
        return inner(x)

    steps: list[Step] = []
    with report_compiling(steps.append):
        assert outer(1.0) == 2.0
        assert outer(2.0) == 3.0
    assert steps == [Step("compile", None, "compiling, once on this machine")]
    with report_compiling(steps.append):
        outer(3.0)
    assert len(steps) == 1


@pytest.mark.parametrize("module", progress._READ_ROWS)
def test_compiling_a_loop_that_reads_rows_is_not_reported(module: str) -> None:
    """Tables of few rows are counted without it: the step would tell how many there are."""

    def count(x: float) -> float:
        return x + 1.0

    count.__module__ = module
    steps: list[Step] = []
    with report_compiling(steps.append):
        assert njit(count)(1.0) == 2.0
    assert steps == []


def test_every_module_with_compiled_loops_that_reads_rows_is_known() -> None:
    source = Path(progress.__file__).parent
    files = [
        source / "tabulate.py",
        *(f for part in ("gate", "source", "discovery") for f in source.glob(f"{part}/*.py")),
    ]
    compiled = {file for file in files if "numba" in file.read_text()}
    assert {source.parent / f"{name.replace('.', '/')}.py" for name in progress._READ_ROWS} == compiled


@pytest.mark.parametrize("collecting", [True, False])
def test_garbage_is_collected_after_compiling_if_it_was_before(collecting: bool) -> None:
    @njit
    def double(x: float) -> float:
        return x * 2.0

    states: list[bool] = []
    (gc.enable if collecting else gc.disable)()
    try:
        with report_compiling(lambda _: states.append(gc.isenabled())):
            double(1.0)
            assert gc.isenabled() is collecting
            with pytest.raises(TypingError):
                double("no number")
            assert gc.isenabled() is collecting
    finally:
        gc.enable()
    assert states == [collecting, collecting]


FIRST_RUN = """
from numba.core import event
import understudy as us, pyarrow as pa
names = set()
class Compiled(event.Listener):
    def on_start(self, event): names.add(event.data["dispatcher"].py_func.__qualname__)
    def on_end(self, event): pass
with event.install_listener("numba:compile", Compiled()):
    table = pa.table({c: [0, 1, 2, 1] * 50 for c in "abcd"})
    us.synthesize(table, us.Schema.from_domain(dict.fromkeys("abcd", 3)), epsilon=1.0, delta=1e-6).sample(seed=1)
print(len(names), "cross" in names, any("join" in name for name in names))
"""


@pytest.mark.slow
def test_a_first_run_compiles_few_loops_and_none_for_error_messages(tmp_path) -> None:
    """Compilation takes processor seconds: 131 loops before, many of them numba's own to write an error message."""
    settings = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "UNDERSTUDY_LEDGER": str(tmp_path / "ledger.sqlite")}
    done = subprocess.run([sys.executable, "-c", FIRST_RUN], env=settings, capture_output=True, text=True, check=True)
    loops, crossing, messages = done.stdout.split()
    assert int(loops) <= 45
    assert (crossing, messages) == ("False", "False")
