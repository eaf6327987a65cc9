"""AIM's choices and its annealing under audit, and mistakes made on purpose in them: each is caught.

The claim is made from the receipt, so a part that was not paid for counts as a mistake. Estimation cannot reach the
rows: a constant model takes its place, which makes a run ten times as fast. `test_whole_runs` audits all of a run; here
are the tables on which choices and annealing matter most. Audits of correct code draw true random bits and fail by
chance with probability at most `audit.ERROR`, 1e-9; those of mistakes are seeded.
"""

from __future__ import annotations

import math
from itertools import product

import pytest

from understudy.accounting.neighbours import Neighbours
from understudy.gate import PrivateTable
from understudy.mechanism import aim
from understudy.mechanism.aim import AIM
from understudy.model.graphical import GraphicalModel
from understudy.testing.audit import check_claim
from understudy.testing.tables import CodedSource

from .conftest import trial_of_receipt

DELTA = 0.3
TWO = {"a": 2, "b": 2}
EVERYONE = [list(cell) for cell in product(range(2), range(2))] * 40
PAPER = AIM.paper_settings() | {"workload": "all-2way", "rounds": 1.0, "first": 0.01}


def constant_model(patch):
    """The uniform model of as many rows, whatever was measured."""
    patch.setattr(aim, "estimate", lambda domain, measured, **_: GraphicalModel(domain, {}, total=len(EVERYONE)))


def choice_trial(folder, *, runs=150):
    """Nearly all of the budget in one choice; replacing a row raises one score by 2 w and lowers the other by it."""
    path = folder / "workload.yaml"
    path.write_text("- {clique: [a], weight: 8}\n- {clique: [b], weight: 8}\n")
    mechanism = AIM(**PAPER | {"workload": str(path), "first": 0.0, "measured": 0.01})
    kept = [[0, 0], [0, 1], [1, 1]]
    tables = (CodedSource(TWO, [*kept, row], rows_public=4) for row in ([0, 0], [1, 1]))
    given = {"rho": 0.5, "runs": runs, "delta": DELTA}
    return trial_of_receipt(lambda fit: fit.measurements[0].clique == ("a",), mechanism, *tables, **given)


def annealing_trial(*, runs=50):
    """Whether the second round has less noise than the first is decided by what was measured, not by the rows."""

    def happened(fit):
        first, second = (m.sigma for m in fit.measurements[2:4])
        return second < first

    tables = CodedSource(TWO, [*EVERYONE, [1, 1]]), CodedSource(TWO, EVERYONE)
    return trial_of_receipt(happened, AIM(**PAPER | {"rounds": 4.0}), *tables, rho=0.05, runs=runs, delta=DELTA)


TRIALS = {
    "choice": choice_trial,
    "annealing": lambda folder: annealing_trial(),
}


@pytest.mark.law
@pytest.mark.parametrize("trial", TRIALS.values(), ids=TRIALS)
def test_a_run_keeps_the_claim_of_its_receipt(trial, tmp_path, monkeypatch):
    constant_model(monkeypatch)
    check_claim(trial(tmp_path))


# -- mistakes ----------------------------------------------------------------------------------------------------------


def sensitivity_of_one(patch):
    patch.setattr(Neighbours, "score", lambda near, max_weight: near.marginal_l1 * 1)


def annealing_by_true_counts(patch):
    original = PrivateTable.__init__

    def init(table, source, *given, **rest):
        rows = int(dict(source.counts([()]))[()].sum())
        patch.setattr(aim, "l1_distance", lambda before, after: 0.0 if rows > len(EVERYONE) else math.inf)
        original(table, source, *given, **rest)

    patch.setattr(PrivateTable, "__init__", init)


@pytest.mark.parametrize(
    ("mistake", "trial"),
    [
        (sensitivity_of_one, "choice"),
        (annealing_by_true_counts, "annealing"),
    ],
)
def test_the_audit_catches(mistake, trial, tmp_path, monkeypatch):
    constant_model(monkeypatch)
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="measured epsilon"):
        check_claim(TRIALS[trial](tmp_path))
