"""The contract: checks that every mechanism passes, ours and those of other packages.

```python
from understudy.testing.contract import CHECKS, check_mechanism

check_mechanism(Mine())                      # all checks; or one by one, so that a test report names each:

@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check):
    check(Mine())
```

Give an instance whose settings make it fast: each check fits it a few times on tables of a few hundred rows.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.accounting import Account, Budget, Neighbours, Receipt
from understudy.domain import Forbidden
from understudy.errors import BudgetExceeded, UnderstudyError
from understudy.gate import PrivateTable
from understudy.mechanism import Mechanism
from understudy.mechanism.registry import mechanism_classes
from understudy.model.fit import Fit
from understudy.model.protocol import MODELS
from understudy.progress import Step
from understudy.testing import expect
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource, SealedSource
from understudy.testing.twin import record_answers, replay_answers

__all__ = ["CHECKS", "SIZES", "check_mechanism"]

SIZES = {"a": 3, "b": 2, "c": 4, "d": 1}
"""The columns of the tables that a mechanism is tried on; one of them has a single code."""


def check_settings(mechanism: Mechanism) -> None:
    """Check that it is a subclass of `Mechanism` with plain settings that JSON keeps, registered under its name."""
    kind: Any = type(mechanism)
    expect(issubclass(kind, Mechanism), "a mechanism is a subclass of understudy.Mechanism, so its settings are frozen")
    expect(kind.__doc__, "a mechanism says what it does")
    expect(isinstance(mechanism.pure, bool), "`pure` says whether it runs under pure DP")
    expect(mechanism_classes().get(mechanism.name) is kind, "a mechanism is registered under its name")
    settings = mechanism.settings()
    expect(_survives_json(kind, settings), "settings survive a JSON file")


def check_spending(mechanism: Mechanism) -> None:
    """Check that the noise matches the charges, within the budget, for every kind of budget and neighbours."""
    for budget in _budgets(mechanism):
        for max_rows, public in ((1, None), (3, None), (1, 60), (3, 60)):
            source = CodedSource(SIZES, _rows(60), max_rows=max_rows, rows_public=public)
            with Spy() as spy:
                table = PrivateTable(source, budget)
                mechanism.fit(table, rho=float(budget.capacity))
            expect(table.account.charges, "a mechanism that measures nothing makes nothing")
            check_spent(spy, Receipt(budget, table.account.charges, table.neighbours))


def check_share(mechanism: Mechanism) -> None:
    """Check that it stays within the given share, which may be less than the table's budget."""
    budget = Budget.of(rho=2.0)
    table = PrivateTable(CodedSource(SIZES, _rows(60)), budget)
    mechanism.fit(table, rho=0.5)
    expect(float(table.account.spent) <= 0.5 * (1 + 1e-9), "more was spent than the share that was given")


def check_refusal(mechanism: Mechanism) -> None:
    """Check that a share above the budget is refused before rows are read."""
    table = PrivateTable(SealedSource(SIZES, _rows(60)), Budget.of(rho=1e-3))
    try:
        mechanism.fit(table, rho=1.0)
    except BudgetExceeded:
        return
    raise AssertionError("a share larger than the budget was not refused")


def check_twin(mechanism: Mechanism) -> None:
    """Check that the same answers give the same fit and progress: all that it knows came through the gate.

    It asks the gate for what depends on the sensitivity or the kind of noise, and reads no account and no neighbour
    relation.
    """
    for budget in _budgets(mechanism):
        with record_answers() as answers:
            first = _transcript(mechanism, CodedSource(SIZES, _rows(60)), budget)
        with replay_answers(answers):
            second = _transcript(mechanism, CodedSource(SIZES, _rows(7, seed=5)), budget)
        expect(first == second, "the fit depends on rows in a way that did not pass the gate")


def check_extremes(mechanism: Mechanism) -> None:
    """Check that it fits an empty table, a single row or column, with little or much budget, without an error."""
    cases = [(SIZES, []), (SIZES, _rows(1)), ({"only": 5}, [[3]] * 9), ({"one": 1, "two": 1}, [[0, 0]])]
    for sizes, rows in cases:
        for rho in (1e-3, 100.0):
            table = PrivateTable(CodedSource(sizes, rows), Budget.of(rho=rho))
            _check_fit(mechanism.fit(table, rho=rho), table)


def check_public_rows(mechanism: Mechanism) -> None:
    """Check that the model's total is the number of rows where that is public."""
    table = PrivateTable(CodedSource(SIZES, _rows(60), rows_public=60), Budget.of(rho=1.0))
    total = mechanism.fit(table, rho=1.0).model.total
    expect(abs(total - 60) < 1e-6 * 60, "the declared number of rows is not the model's total")


def check_finish(mechanism: Mechanism) -> None:
    """Check that it can finish from any part of the measurements, at no cost and without rows."""
    table = PrivateTable(CodedSource(SIZES, _rows(60)), Budget.of(rho=1.0))
    with record_answers() as answers:
        fit = mechanism.fit(table, rho=1.0)
    measured = [measurement for answer in answers if isinstance(answer, list) for measurement in answer]
    expect(measured, "a mechanism that measures nothing makes nothing")
    for part in (measured[:1], measured[: len(measured) // 2 + 1], measured):
        finished = mechanism.finish(CodedSource(SIZES, []).domain, part, recoding=fit.recoding)
        _check_fit(finished, table)


def check_rules(mechanism: Mechanism) -> None:
    """Check that forbidden cells have no probability and no sampled row, and that footprints work with rules."""
    mask = np.zeros((SIZES["a"], SIZES["c"]), np.bool_)
    mask[0, 1:] = mask[2, 0] = True
    source = CodedSource(SIZES, _rows(200))
    source.domain = source.domain.add_rules([Forbidden(("a", "c"), lambda: mask)])
    fit = mechanism.fit(PrivateTable(source, Budget.of(rho=1.0)), rho=1.0)
    again = mechanism.finish(source.domain, fit.measurements, recoding=fit.recoding)
    banned = fit.recoding.recode(source.domain).forbidden.get(("a", "c"))
    for made in (fit, again):
        rows = made.model.sample(2000, np.random.default_rng(0))
        if banned is not None:
            expect(not banned[rows["a"], rows["c"]].any(), "a sampled row is in a cell that the domain forbids")
            expect(not made.model.project(("a", "c"))[banned].any(), "the model expects rows in a forbidden cell")
    expect(mechanism.footprint(source.domain).memory_bytes > 0, "a footprint is a positive number of bytes")


def check_footprint(mechanism: Mechanism) -> None:
    """Check that the footprint depends on the domain alone, in whole bytes."""
    needed = mechanism.footprint(CodedSource(SIZES, []).domain)
    for size in (needed.memory_bytes, needed.disk_bytes):
        expect(isinstance(size, int) and size > 0, "a footprint is a positive number of bytes")


def check_manners(mechanism: Mechanism) -> None:
    """Check that it prints nothing, keeps numpy's global random state, and reports progress in `Step`s."""
    steps: list[Any] = []
    state = str(np.random.get_state())  # noqa: NPY002 - to see that nobody else touches it
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        table = PrivateTable(CodedSource(SIZES, _rows(60)), Budget.of(rho=1.0))
        mechanism.fit(table, rho=1.0, progress=steps.append)
    expect(not out.getvalue(), "a mechanism prints nothing")
    expect(str(np.random.get_state()) == state, "numpy's global random state was used")  # noqa: NPY002
    expect(steps and all(isinstance(step, Step) for step in steps), "progress is reported in steps")


CHECKS: tuple[Callable[[Mechanism], None], ...] = (
    check_settings,
    check_spending,
    check_share,
    check_refusal,
    check_twin,
    check_extremes,
    check_public_rows,
    check_finish,
    check_rules,
    check_footprint,
    check_manners,
)
"""Every check, each a function of a mechanism that raises AssertionError."""


def check_mechanism(mechanism: Mechanism) -> None:
    """Run every check.

    Raises:
        AssertionError: with the message of the first check that fails.
    """
    for check in CHECKS:
        check(mechanism)


def _survives_json(kind: Any, settings: dict[str, Any]) -> bool:
    try:
        again = kind(**json.loads(json.dumps(settings)))
        return bool(json.dumps(again.settings()) == json.dumps(settings))
    except (TypeError, ValueError):
        return False


def _budgets(mechanism: Mechanism) -> Iterator[Budget]:
    yield Budget.of(rho=0.3)
    yield Budget.of(epsilon=1.0, delta=1e-6)
    if mechanism.pure:
        yield Budget.of(epsilon=1.0, delta=0)


def _rows(count: int, seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[int(rng.integers(size)) for size in SIZES.values()] for _ in range(count)]


def _check_fit(fit: Fit, table: PrivateTable) -> None:
    """Check that the model is a distribution over the recoded domain that projects, samples and can be saved."""
    model, domain = fit.model, fit.recoding.recode(table.domain)
    expect(model.domain == domain, "the model is about the recoded domain")
    expect(np.isfinite(model.total) and model.total > 0, "the model's total is a positive number")
    for clique in [(), *((column,) for column in domain), domain.columns]:
        cells = model.project(clique)
        expect(cells.shape == domain.shape(clique), f"the projection on {clique} has the domain's shape")
        expect((cells >= 0).all(), f"expected counts of {clique} are not negative")
        expect(np.isclose(cells.sum(), model.total, rtol=1e-6), f"expected counts of {clique} add up to the total")
    rows, again = (model.sample(13, np.random.default_rng(4)) for _ in range(2))
    expect(list(rows) == list(domain), "sampled columns are the domain's, in order")
    for column, codes in rows.items():
        expect(len(codes) == 13 and (codes < domain[column]).all(), "sampled codes are within the domain")
        expect(np.array_equal(codes, again[column]), "the same generator state gives the same rows")
    expect(model.kind in MODELS, "the model's kind is registered, so that a release can hold it")
    written = model.to_arrays()
    expect(
        _bytes(MODELS[model.kind].from_arrays(domain, written).to_arrays()) == _bytes(written),
        "a model survives being written down",
    )


class _ClosedTable(PrivateTable):
    """A table that only the gate itself may ask about its account and its neighbour relation."""

    @property
    def account(self) -> Account:
        """As the gate's."""
        _refuse_others("account")
        return super().account

    @property
    def neighbours(self) -> Neighbours:
        """As the gate's."""
        _refuse_others("neighbours")
        return super().neighbours


def _refuse_others(name: str) -> None:
    """Refuse a reader of a property that is not the gate."""
    reader = str(sys._getframe(2).f_globals.get("__name__"))
    expect(
        reader.startswith("understudy.gate."), f"{reader} read `table.{name}`: ask the gate for what follows from it"
    )


def _transcript(mechanism: Mechanism, source: CodedSource, budget: Budget) -> Any:
    """Return all that can be seen of a fit."""
    steps: list[Step] = []
    try:
        table = _ClosedTable(source, budget)
        fit = mechanism.fit(table, rho=float(budget.capacity), progress=steps.append)
    except UnderstudyError as error:
        return type(error).__name__, str(error)
    measured = [(m.clique, m.values.tobytes(), m.sigma) for m in fit.measurements]
    return measured, _bytes(fit.model.to_arrays()), fit.recoding.to_dict(), repr(list(fit.rounds)), steps


def _bytes(arrays: dict[str, NDArray[Any]]) -> dict[str, tuple[str, bytes]]:
    return {name: (np.asarray(array).dtype.str, np.asarray(array).tobytes()) for name, array in arrays.items()}
