"""Predict errors in a child process, so that pages stay fast: each question and each answer is one line of JSON.

It is started as ``python -m understudy.studio.planner``, once, and keeps what it predicted in memory.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from understudy.errors import OutputError, SettingError, UnderstudyError
from understudy.planning import Accuracy
from understudy.planning.odds import Odds
from understudy.studio.jobs import Limits, limit_memory
from understudy.yaml_json import read_json


@dataclass(frozen=True)
class Expectation:
    """The expected results of one mechanism: its name, about how many seconds it takes, and the rest in words."""

    mechanism: str
    seconds: float
    words: Mapping[str, str]


@dataclass(frozen=True)
class Forecast:
    """The expected results of a budget.

    Attributes:
        epsilon: the budget.
        people: about how many people, to two figures.
        lines: the expected results of each mechanism that was compared.
        odds: what the budget means as an attacker's odds.
        name: the recommended mechanism.
        reason: why it is recommended.
        assumed: what was assumed that the schema does not say.
        met: whether the requested accuracy is reached.
    """

    epsilon: float
    people: int
    lines: tuple[Expectation, ...]
    odds: Odds
    name: str
    reason: str
    assumed: tuple[str, ...]
    met: bool

    def line(self, mechanism: str) -> Expectation | None:
        """Return the expected results of a mechanism; None if it was not compared."""
        return next((line for line in self.lines if line.mechanism == mechanism), None)


class Planner:
    """A client of `understudy.plan` in a child process.

    Args:
        limits: the memory that the process may use.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def warm_up(self) -> None:
        """Start the process, so that the first prediction need not wait for it."""
        if self._lock.acquire(blocking=False):
            try:
                self._start()
            finally:
                self._lock.release()

    def predict(
        self,
        content: Mapping[str, Any],
        *,
        people: int,
        mechanisms: Sequence[str],
        epsilon: float | None = None,
        accuracy: Accuracy | None = None,
    ) -> Forecast:
        """Predict the results of a budget, or find the smallest budget that meets an accuracy.

        Raises:
            SettingError: as `understudy.plan`.
            OutputError: if the process died.
        """
        question = {"content": content, "people": people, "mechanisms": list(mechanisms), "epsilon": epsilon}
        question["accuracy"] = None if accuracy is None else asdict(accuracy)
        with self._lock:
            line = self._ask(json.dumps(question))
        found = read_json(line)
        if "refused" in found:
            raise SettingError(found["refused"])
        lines = tuple(Expectation(**one) for one in found.pop("lines"))
        odds, assumed = Odds(**found.pop("odds")), tuple(found.pop("assumed"))
        return Forecast(lines=lines, odds=odds, assumed=assumed, **found)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with suppress(OSError):
                self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "understudy.studio.planner", str(self._limits.memory_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
        return self._process

    def _ask(self, question: str) -> str:
        process = self._start()
        answer = ""
        if process.stdin is not None and process.stdout is not None:
            with suppress(OSError):
                process.stdin.write(question + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
        if not answer:
            self.close()
            raise OutputError("the prediction ended without a result, perhaps for lack of memory; try again")
        return answer


# -- In the child process --------------------------------------------------------------------------------------------


def answer_question(question: Mapping[str, Any]) -> dict[str, Any]:
    """Answer one question as plain data; an expected error is an answer, too."""
    from understudy.planning import plan
    from understudy.planning.plan import LARGEST_EPSILON
    from understudy.schema import Schema

    try:
        schema = Schema.from_dict(question["content"], unit="row")
        people, epsilon, met = question["people"], question["epsilon"], True
        if question["accuracy"] is not None:
            accuracy = Accuracy(**question["accuracy"])
            needed = plan(schema, people=people, accuracy=accuracy, mechanisms=question["mechanisms"])
            found = [one for one, _ in needed.needed.values() if one is not None]
            epsilon, met = min(found, default=LARGEST_EPSILON), bool(found)
        made = plan(schema, people=people, epsilons=[epsilon], mechanisms=question["mechanisms"])
    except UnderstudyError as error:
        return {"refused": str(error)}
    name, reason = made.recommended[epsilon]
    lines = [{"mechanism": one.mechanism, "seconds": one.seconds, "words": one.describe()} for one in made.lines]
    facts = {"epsilon": epsilon, "people": made.people, "name": name, "reason": reason, "met": met}
    return facts | {"lines": lines, "odds": asdict(made.odds[epsilon]), "assumed": list(made.assumed)}


def main(memory_bytes: int) -> None:
    """Answer questions until the studio ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the studio ends this process
    limit_memory(memory_bytes)
    import understudy.planning.plan  # noqa: F401 - loaded before the first question

    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer_question(read_json(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
