"""Where payments and measurements are written the moment they exist: the seam between gate and partial release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from understudy.measurement import Measurement
from understudy.privacy.accounting.charge import Charge
from understudy.schema import Recoding

T = TypeVar("T")


class Journal(Protocol):
    """What the gate tells; a partial release or a book listens."""

    def charged(self, charges: Sequence[Charge]) -> None:
        """These charges were paid; called before a row is read for them."""
        ...

    def measured(self, measurement: Measurement, recoding: Recoding) -> None:
        """This measurement was made, on codes merged by `recoding`."""
        ...

    def released(self, answer: T) -> T:
        """An answer, before anyone gets it; what is given back is what they get.

        **Privacy.** A run that was begun before may give the answer that it gave then, to a question paid for once.
        """
        ...


class Forgetful:
    """The journal of a table used on its own: it writes nothing."""

    def charged(self, charges: Sequence[Charge]) -> None:
        """Do nothing."""

    def measured(self, measurement: Measurement, recoding: Recoding) -> None:
        """Do nothing."""

    def released(self, answer: T) -> T:
        """The answer."""
        return answer
