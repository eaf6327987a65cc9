"""An earlier attempt at a run: what it paid and was answered, in order, so that a second attempt can go on from there.

A mechanism asks the same questions when it gets the same answers. A second attempt starts from the beginning; as long
as there are answers on record it is given those, and from then on fresh ones, out of the same budget.

**Privacy.** Every answer is on disk before anyone gets it, so one that is not on record was never seen: a charge
without its answer is answered now, once. Where a question differs from the recorded one (another version, another
machine's rounding) the attempt stops before anything is asked, and the run is finished from what was measured. So it is
where the record is an older copy: what it does not hold was answered since, and would be answered twice for one price.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from understudy.accounting.charge import PURCHASES, Charge
from understudy.errors import UnderstudyError
from understudy.measurement import Measurement
from understudy.quality import Apart
from understudy.release import Partial
from understudy.schema import Schema


class Diverged(UnderstudyError):
    """A second attempt asked something else than the first; nothing was read for it. `journey` catches it."""


class Outdated(Diverged):
    """A second attempt would ask something that is not on its record, which is an older copy."""

    def __init__(self) -> None:
        super().__init__("this is an older copy of the run's record, and the run went on since it was made")


class Earlier:
    """The record of an earlier attempt, consumed from the front.

    Args:
        held: what its partial file holds.
        closed: whether it is an older copy, so that nothing but what it holds may be answered.
    """

    def __init__(self, held: Partial, *, closed: bool = False) -> None:
        self._closed = closed
        self.spent, self.measured = bool(held.charges), bool(held.measurements)
        self._left: deque[Any] = deque(held.records)
        self._bought = Schema.from_dict(held.schema) if held.schema != held.run["schema"] else None

    def bought(self) -> Schema | None:
        """The schema that was bought, where the purchase was completed."""
        return self._bought

    def purchases(self) -> list[Charge]:
        """The charges for facts of the schema, taken off the record: they stand, whether it was completed or not."""
        found = []
        while self._left and isinstance(self._left[0], Charge) and self._left[0].what in PURCHASES:
            found.append(self._left.popleft())
        return found

    def charged(self, charges: Sequence[Charge]) -> list[Charge]:
        """Those of these charges that are not on record; charges of one call may have been cut short together.

        Raises:
            Diverged: when the record says something else.
        """
        fresh = list(charges)
        while fresh and self._left:
            if fresh[0] != self._left[0]:
                raise Diverged("a second attempt at this run would ask other questions than the first")
            self._left.popleft()
            fresh.pop(0)
        return self._open(fresh)

    def answered(self, answer: Any) -> Any:
        """The answer on record, or None where this question was not answered yet.

        Args:
            answer: what would be answered now: it tells what kind of answer belongs here.

        Raises:
            Diverged: when the record has an answer of another kind.
        """
        if not self._left or isinstance(self._left[0], Charge):
            self._open([answer])
            return None
        known = self._left.popleft()
        known = known if isinstance(known, Measurement) else decoded(known)
        same = type(known) is type(answer) and getattr(known, "clique", None) == getattr(answer, "clique", None)
        if not same or (isinstance(known, dict) and list(known) != list(answer)):
            raise Diverged("a second attempt at this run would get other answers than the first")
        return known

    def _open(self, fresh: list[Any]) -> list[Any]:
        """What is not on record, which an older copy must not have answered."""
        if fresh and self._closed:
            raise Outdated
        return fresh


def encoded(answer: Any) -> Any:
    """The answer of a selection (a clique), of scores (numbers by clique) or about the quality, as plain data."""
    if isinstance(answer, Apart):
        return {"apart": [answer.rows, answer.scale, answer.noise]}
    if isinstance(answer, dict):
        return {"scores": [[list(clique), int(score)] for clique, score in answer.items()]}
    return {"clique": list(answer)}


def decoded(data: Any) -> Any:
    """What `encoded` wrote.

    Raises:
        Diverged: when it is not that.
    """
    try:
        if "apart" in data:
            rows, scale, noise = data["apart"]
            return Apart(float(rows), float(scale), "laplace" if noise == "laplace" else "gaussian")
        if "scores" in data:
            return {tuple(clique): int(score) for clique, score in data["scores"]}
        return tuple(str(column) for column in data["clique"])
    except (TypeError, KeyError, ValueError):
        raise Diverged("the record of the first attempt holds an answer that cannot be read") from None
