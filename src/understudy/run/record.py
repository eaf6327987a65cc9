"""A run's questions and answers between the gate and the ledger.

A mechanism asks the same questions when it gets the same answers. A run that is started again begins at the beginning:
as long as there are answers on record it is given those, without reading a row, and from then on new ones out of the
same budget. Where its next question differs from the recorded one (another version of understudy), or where there are
no rows, it is finished from what was measured.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from understudy.accounting.charge import DISCOVERIES, Charge, laplace_sd
from understudy.errors import InputError, LedgerError, SettingError, UnderstudyError
from understudy.gate.randomness import is_insecure
from understudy.ledger import Ledger, RunHandle
from understudy.measurement import KroneckerQuery, Measurement
from understudy.quality import NoisyError
from understudy.schema import Recoding


class CannotContinue(UnderstudyError):
    """The run cannot ask its next question; it is finished from the recorded answers. Caught by `execute`."""


class Recorder:
    """Recalls the answers of earlier attempts at a run, then records new ones.

    Args:
        ledger: the ledger; None for a rehearsal or a run in test mode, which record nothing.
        handle: the run in the ledger.
        has_rows: whether new questions can be answered.
    """

    def __init__(self, ledger: Ledger | None, handle: RunHandle | None, *, has_rows: bool = True) -> None:
        self._ledger, self._handle, self._has_rows = ledger, handle, has_rows
        self._answers = [] if handle is None else list(handle.answers)
        self._next, self._recalled = 0, len(self._answers)
        self.measurements: list[Measurement] = []
        self.recoding = Recoding.identity()

    @property
    def answered(self) -> bool:
        """Whether anything was answered, now or in an earlier attempt: what was answered is paid."""
        return bool(self._answers)

    @property
    def asked(self) -> bool:
        """Whether this attempt asked anything new, or has nothing to recall."""
        return len(self._answers) > self._recalled or not self._recalled

    def recall(self, charges: Sequence[Charge], recoding: Recoding) -> Any | None:
        """Return the recorded answer to the next question, asked with this recoding in force.

        Raises:
            CannotContinue: when another question is on record, or nothing is and there are no rows.
            SettingError: in test mode; no row was read.
            LedgerError: when the recorded answer cannot be read.
        """
        self._refuse_test_mode()
        if self._next < len(self._answers):
            body, payload = self._answers[self._next]
            same = _charges(body) == list(charges)
            answer, recorded = _decode(charges, body, payload) if same else (None, recoding)
            if not same or ("cells" in body and recorded != recoding):
                raise CannotContinue("this version of understudy asks other questions than the run recorded")
            self._next += 1
            return self._keep(charges, answer, recoding)
        if not self._has_rows:
            raise CannotContinue("the table is not available to answer further questions")
        return None

    def record(self, charges: Sequence[Charge], answer: Any, recoding: Recoding) -> None:
        """Record an answer durably, before anybody sees it.

        Raises:
            SettingError: in test mode; the answer must not be used.
            OutputError, LedgerError: when it cannot be recorded; likewise.
        """
        self._refuse_test_mode()
        body, payload = _encode(charges, answer, recoding)
        if self._ledger is not None and self._handle is not None:
            self._ledger.record(self._handle, body, payload)
        self._answers.append((body, payload))
        self._next += 1
        self._keep(charges, answer, recoding)

    def skip_discovery(self) -> list[Charge]:
        """The charges of discovery on record, for a schema that was completed from their answers."""
        paid: list[Charge] = []
        while self._next < len(self._answers):
            charges = _charges(self._answers[self._next][0])
            if charges[0].what not in DISCOVERIES:
                break
            paid += charges
            self._next += 1
        return paid

    def recall_rest(self) -> list[Charge]:
        """Take every recorded answer that was not recalled: its charges, with its measurements kept for finishing."""
        rest: list[Charge] = []
        for body, payload in self._answers[self._next :]:
            charges = _charges(body)
            self._keep(charges, *_decode(charges, body, payload))
            rest += charges
        self._next = len(self._answers)
        return rest

    def _keep(self, charges: Sequence[Charge], answer: Any, recoding: Recoding) -> Any:
        if charges[0].what == "measure":
            self.measurements += answer
            self.recoding = recoding
        return answer

    def _refuse_test_mode(self) -> None:
        """Refuse test mode; it may begin during a run, in a progress callback for example."""
        if self._handle is not None and is_insecure():
            raise SettingError("the ledger refuses answers in test mode: their noise is seeded and protects nobody")


def _encode(charges: Sequence[Charge], answer: Any, recoding: Recoding) -> tuple[dict[str, Any], bytes | None]:
    """One question and its answer as plain data, arrays as compressed integers."""
    body: dict[str, Any] = {"charges": [charge.to_dict() for charge in charges]}
    what, factors = charges[0].what, []
    if what == "select":
        return body | {"answer": list(answer)}, None
    if what == "values":
        return body | {"answer": dict(answer)}, None
    if what == "quality":
        return body | {"answer": [answer.rows, answer.scale, answer.noise]}, None
    if what == "dependence":
        tables = [np.array([answer[pair] for pair in charges[0].about], np.int64)]
    else:
        measured = answer if what == "measure" else [answer[charge.about[0][0]] for charge in charges]
        tables = [np.asarray(one.values, np.int64) for one in measured]
        if queries := {i: one.query for i, one in enumerate(measured) if isinstance(one.query, KroneckerQuery)}:
            body |= {"queries": {str(i): [list(f.shape) for f in query.factors] for i, query in queries.items()}}
            factors = [factor.reshape(-1) for query in queries.values() for factor in query.factors]
    body |= {"cells": [len(table) for table in tables]}
    body |= {"recoding": recoding.to_dict()} if recoding.columns else {}
    return body, zlib.compress(b"".join(table.astype("<i8").tobytes() for table in [*tables, *factors]), 1)


_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, InputError, zlib.error)
_UNREADABLE = "an answer in the ledger cannot be read; `understudy ledger verify` says more"


def _charges(body: Mapping[str, Any]) -> list[Charge]:
    """The charges of a recorded answer; at least one.

    Raises:
        LedgerError: when the entry holds none.
    """
    try:
        charges = [Charge.from_dict(charge) for charge in body["charges"]]
    except _DAMAGED:
        charges = []
    if not charges:
        raise LedgerError(_UNREADABLE)
    return charges


def _decode(charges: Sequence[Charge], body: Mapping[str, Any], payload: bytes | None) -> tuple[Any, Recoding]:
    """The answer and the recoding that `_encode` was given.

    Raises:
        LedgerError: when the entry does not hold that.
    """
    try:
        return _answer(charges, body, payload), Recoding.from_dict(body.get("recoding") or {})
    except _DAMAGED:
        raise LedgerError(_UNREADABLE) from None


def _answer(charges: Sequence[Charge], body: Mapping[str, Any], payload: bytes | None) -> Any:
    what = charges[0].what
    if what == "select":
        return tuple(str(column) for column in body["answer"])
    if what == "values":
        return {str(text): int(count) for text, count in body["answer"].items()}
    if what == "quality":
        rows, scale, noise = body["answer"]
        return NoisyError(float(rows), float(scale), "laplace" if noise == "laplace" else "gaussian")
    cells = [int(size) for size in body["cells"]]
    shapes = {int(i): [tuple(map(int, shape)) for shape in each] for i, each in body.get("queries", {}).items()}
    sizes = [*cells, *(rows * columns for each in shapes.values() for rows, columns in each)]
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(payload or b"", 8 * sum(sizes) + 1)
    if len(content) != 8 * sum(sizes):
        raise ValueError
    tables = np.split(np.frombuffer(content, "<i8").astype(np.int64), np.cumsum(sizes)[:-1])
    rest = iter(tables[len(cells) :])
    queries = {i: KroneckerQuery(tuple(next(rest).reshape(shape) for shape in each)) for i, each in shapes.items()}
    tables = tables[: len(cells)]
    if what == "dependence":
        return dict(zip(charges[0].about, tables[0].tolist(), strict=True))
    found = [
        _measurement(charge, table, queries.get(i))
        for i, (charge, table) in enumerate(zip(charges, tables, strict=True))
    ]
    return {one.clique[0]: one for one in found} if what in DISCOVERIES else found


def _measurement(charge: Charge, values: Any, query: KroneckerQuery | None) -> Measurement:
    if charge.query != (None if query is None else query.digest):
        raise ValueError
    if charge.noise == "gaussian":
        return Measurement(charge.about[0], values, charge.scale, query)
    return Measurement(charge.about[0], values, laplace_sd(charge.scale), query, "laplace")
