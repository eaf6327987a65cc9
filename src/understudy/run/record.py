"""Recording and recalling of a run's answers, between the gate and the ledger.

A mechanism asks the same questions if it gets the same answers. A resumed run starts from the beginning: it receives
its recorded answers, without reading a row, and then new ones within the same budget. If its next question differs from
the recorded one (another version of understudy), or the table is gone, it is finished from the recorded answers.
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


class RunRecorder:
    """Recalls the answers of earlier attempts at a run, then records new ones.

    Args:
        ledger: the ledger; None for rehearsals and runs in test mode, which record nothing.
        handle: the run in the ledger.
        has_rows: whether new questions can be answered.
    """

    def __init__(self, ledger: Ledger | None, handle: RunHandle | None, *, has_rows: bool = True) -> None:
        self._ledger, self._handle, self._has_rows = ledger, handle, has_rows
        self._answers = [] if handle is None else list(handle.answers)
        self._next, self._recalled = 0, len(self._answers)
        self.measurements: list[Measurement] = []
        self.recoding = Recoding.identity()
        self.measured: dict[str, list[Measurement]] = {}  # by virtual table, where several tables are linked
        self.recodings: dict[str, Recoding] = {}

    @property
    def has_answers(self) -> bool:
        """Whether anything was answered, now or in an earlier attempt; its charges then stand."""
        return bool(self._answers)

    @property
    def has_new_answers(self) -> bool:
        """Whether this attempt asked a new question, or has nothing to recall."""
        return len(self._answers) > self._recalled or not self._recalled

    def recall(self, charges: Sequence[Charge], recoding: Recoding) -> Any | None:
        """Return the recorded answer to the next question, which refers to the codes of this recoding.

        Raises:
            CannotContinue: if another question is on record, or no answer is and there are no rows.
            SettingError: in test mode; no row was read.
            LedgerError: if the recorded answer cannot be read.
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
        """Record an answer durably, before it is used.

        Raises:
            SettingError: in test mode; the answer must not be used.
            OutputError, LedgerError: if it cannot be recorded; it must not be used.
        """
        self._refuse_test_mode()
        body, payload = _encode(charges, answer, recoding)
        if self._ledger is not None and self._handle is not None:
            self._ledger.record(self._handle, body, payload)
        self._answers.append((body, payload))
        self._next += 1
        self._keep(charges, answer, recoding)

    def skip_discovery(self) -> list[Charge]:
        """Skip the recorded answers of discovery, from which the schema was completed, and return their charges."""
        paid: list[Charge] = []
        while self._next < len(self._answers):
            charges = _charges(self._answers[self._next][0])
            if charges[0].what not in DISCOVERIES:
                break
            paid += charges
            self._next += 1
        return paid

    def recall_rest(self) -> list[Charge]:
        """Return the charges of recorded answers that were not recalled; their measurements are kept for finishing."""
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
            if (table := charges[0].table) is not None:
                self.measured.setdefault(table, []).extend(answer)
                self.recodings[table] = recoding
        return answer

    def _refuse_test_mode(self) -> None:
        """Refuse test mode; it may begin during a run, in a progress callback for example."""
        if self._handle is not None and is_insecure():
            raise SettingError("the ledger refuses answers in test mode: their noise is seeded and protects nobody")


def _encode(charges: Sequence[Charge], answer: Any, recoding: Recoding) -> tuple[dict[str, Any], bytes | None]:
    """Encode a question and its answer as plain data, arrays as compressed integers."""
    body: dict[str, Any] = {"charges": [charge.to_dict() for charge in charges]}
    what, factors = charges[0].what, []
    if what == "select":
        return body | {"answer": list(answer)}, None
    if what == "values":
        return body | {"answer": dict(answer)}, None
    if what == "quality":
        return body | {"answer": [answer.rows, answer.scale, answer.noise]}, None
    if what in ("gradient", "distances", "cells"):
        tables = [np.asarray(answer, np.int64)]
    elif what == "dependence":
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


_DAMAGED = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, InputError, zlib.error)
_UNREADABLE = "an answer in the ledger cannot be read; `understudy ledger verify` says more"


def _charges(body: Mapping[str, Any]) -> list[Charge]:
    """Return the charges of a recorded answer, at least one.

    Raises:
        LedgerError: if the entry has no charge.
    """
    try:
        charges = [Charge.from_dict(charge) for charge in body["charges"]]
    except _DAMAGED:
        charges = []
    if not charges:
        raise LedgerError(_UNREADABLE)
    return charges


def _decode(charges: Sequence[Charge], body: Mapping[str, Any], payload: bytes | None) -> tuple[Any, Recoding]:
    """Read the result of `_encode`: the answer and the recoding.

    Raises:
        LedgerError: if the entry cannot be read.
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
    if what == "gradient":
        return tables[0]
    if what in ("distances", "cells"):
        numbers = len(charges) if what == "cells" else (charges[0].candidates or (0,))[0]
        if len(tables[0]) != numbers or (what == "cells" and tables[0].min() < 0):
            raise ValueError
        return tables[0]
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
