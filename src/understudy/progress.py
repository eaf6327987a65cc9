"""Progress reporting: long work passes `Step` values, made of public facts only, to a callback."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Step:
    """A report of how far a running job is.

    Attributes:
        stage: the kind of work: "read", "discover", "measure", "select", "compile", "estimate", "sample", "write",
            "evaluate", "compare".
        fraction: how much of the stage is done, 0 to 1, or None if unknown.
        detail: a few words; made of settings and released values only, never of the rows.
    """

    stage: str
    fraction: float | None = None
    detail: str = ""


Progress: TypeAlias = Callable[[Step], None]
"""A callback that receives every `Step`."""


def silent(step: Step) -> None:
    """Report nothing: the default callback."""


@contextmanager
def progress_bar(**options: Any) -> Iterator[Progress]:
    """Show a progress bar in a terminal or a notebook; yields the callback.

    ```python
    with us.progress_bar() as progress:
        release = us.synthesize(people, schema, epsilon=1.0, delta=1e-9, progress=progress)
    ```

    Args:
        options: of the `rich.console.Console` that the bar is shown on.
    """
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    clocks = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), *clocks)
    with Bar(*columns, console=Console(**options), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(step: Step) -> None:
            words = " ".join(f"{step.stage}: {step.detail}".split())
            bar.update(task, description=words[:100], completed=step.fraction or 0)
            bar.update(task, total=None if step.fraction is None else 1.0)

        yield show


_READ_ROWS = ("understudy.tabulate", "understudy.gate.gradient")
"""Modules whose loops read rows: whether they are compiled depends on the number of rows, so it is not reported."""


@contextmanager
def report_compiling(progress: Progress) -> Iterator[None]:
    """Report a step while loops are compiled inside the block, which happens once on a machine.

    Python's collector of garbage waits meanwhile: of a compiler's objects it would free few, in a sixth of the time.

    **Privacy.** Loops that read rows are not reported: small tables are counted without them.
    """
    if progress is silent:
        yield
        return
    from numba.core import event

    class Listener(event.Listener):
        depth = 0
        collecting = False

        def on_start(self, event: Any) -> None:
            self.depth += 1
            if self.depth == 1:
                if event.data["dispatcher"].py_func.__module__ not in _READ_ROWS:
                    progress(Step("compile", None, "compiling, once on this machine"))
                self.collecting = gc.isenabled()
                gc.disable()

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0 and self.collecting:
                gc.enable()

    with event.install_listener("numba:compile", Listener()):
        yield
