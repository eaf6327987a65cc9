"""`run`: everything that a run file asks for, made once; started again, it makes what is missing and pays nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from understudy.journey.file import RunFile
from understudy.journey.folder import Folder
from understudy.progress import Progress, silent


@dataclass(frozen=True)
class Outcome:
    """What a run did.

    Attributes:
        status: "made", "resumed" (what an interrupted attempt had begun is finished), "completed" (the release was
            there, rows or reports were not) or "unchanged" (all of it was there).
        summary: public facts about the release and where its files are.
    """

    status: Literal["made", "resumed", "completed", "unchanged"]
    summary: Mapping[str, Any]


def run(
    path: str | PathLike[str],
    output: str | PathLike[str],
    *,
    quality: str | float | None = None,
    rehearse: bool = False,
    over_limit: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Make the release, rows and reports that a run file asks for, in one folder.

    A folder that holds a finished run of the same file is left as it is, and nothing is spent: which run it is follows
    from the run file and the schema alone, never from the rows. A release is never overwritten. After a crash, the same
    call finishes: what was paid for is used, and the book counts the run once.

    Args:
        path: the run file.
        output: the folder; made when it is not there.
        quality: a share of the budget, such as "5%", to measure the workload error with; on top of the file's.
        rehearse: use rows made from the schema instead of the data; costs nothing.
        over_limit: go on where the run would pass the dataset's yearly limit.
        progress: called with each `Step`.

    **Privacy.** The same guarantee as `synthesize`, for all attempts at a run together.

    Raises:
        UnderstudyError: as `synthesize`; OutputError also for a folder that holds another run.
    """
    file = RunFile.load(Path(path)).but(quality=quality, rehearsal=rehearse)
    return _through(file, output, over_limit=over_limit, progress=progress)


def rehearse(
    schema: str | PathLike[str],
    output: str | PathLike[str],
    *,
    epsilon: float = 1.0,
    delta: float = 1e-9,
    mechanism: str = "mst",
    rows: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Outcome:
    """The whole journey on rows made from a schema alone. Costs nothing; everything it makes is marked a rehearsal.

    Args:
        schema: the schema's file.
        output: the folder; made when it is not there.
        epsilon: the budget that the real run would have, and so its noise.
        delta: beside epsilon.
        mechanism: a mechanism's name.
        rows: how many rows to make up; by default the declared number, else 1000 (20,000 where facts are bought).
        seed: for the made-up rows and those sampled.
        progress: called with each `Step`.

    **Privacy.** Reads no private row and writes nothing into the book.

    Raises:
        UnderstudyError: as `run`.
    """
    path = Path(schema)
    content = {
        "data": "rows made from the schema",
        "schema": path.name,
        "budget": {"epsilon": epsilon, "delta": delta},
        "mechanism": mechanism,
        "outputs": {"rows": ["csv"], "report": ["public"], "seed": seed},
        **({} if rows is None else {"rows": rows}),
    }
    file = RunFile(path.parent / "rehearsal", content, rehearsal=True)
    return _through(file, output, over_limit=False, progress=progress)


def _through(file: RunFile, output: str | PathLike[str], *, over_limit: bool, progress: Progress | None) -> Outcome:
    folder = Folder(Path(output), file)
    if (done := folder.finished()) is not None:
        return Outcome("unchanged", done)
    from understudy.journey.stages import carried_through

    with folder.claimed():
        try:
            return Outcome(*carried_through(file, folder, over_limit=over_limit, progress=progress or silent))
        except KeyboardInterrupt as interrupt:
            if folder.release.exists():
                interrupt.add_note(f"{folder.release} is made; run the same again for what is missing, at no cost.")
            raise
