"""Mechanisms that cheat: each leaks outside the answers of the gate, and the audit must not call it consistent."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from understudy.errors import UnderstudyError
from understudy.mechanism import Fit
from understudy.mechanism.independent import Independent
from understudy.schema import Recoding
from understudy.testing.audit import audit
from understudy.testing.replay import ReplayedNoise


def rows_of(table):
    """The exact number of rows, which a mechanism must not know."""
    source = table._PrivateTable__source
    return int(dict(source.counts([()]))[()].sum())


class Altered:
    """A model with one thing changed."""

    def __init__(self, model, **changed):
        self._model = model
        self.__dict__.update(changed)

    def __getattr__(self, name):
        return getattr(self._model, name)


class Cheat(Independent):
    """Independent, until it cheats."""

    name = "cheat"

    def fit(self, table, *, rho, progress=None):
        return super().fit(table, rho=rho)


class TrueTotal(Cheat):
    """The model has the exact number of rows."""

    def fit(self, table, *, rho, progress=None):
        fit = super().fit(table, rho=rho)
        return dataclasses.replace(fit, model=Altered(fit.model, total=float(rows_of(table))))


class NearlyTrueTotal(Cheat):
    """The number of rows with noise of its own, and far too little of it: repeating the run shows nothing."""

    def fit(self, table, *, rho, progress=None):
        fit = super().fit(table, rho=rho)
        total = rows_of(table) + np.random.default_rng().normal(0, 0.3)
        return dataclasses.replace(fit, model=Altered(fit.model, total=total))


class OneQuestionMore(Cheat):
    """The number of measurements depends on the rows."""

    def fit(self, table, *, rho, progress=None):
        columns = list(table.domain)
        cliques = [(column,) for column in columns] + [()] * (rows_of(table) % 2)
        return self.conclude(table, table.measure(cliques, rho=rho))


class ShareOfBudget(Cheat):
    """The noise of a question depends on the rows; the answers themselves are paid for."""

    def fit(self, table, *, rho, progress=None):
        part = 0.5 if rows_of(table) % 2 else 0.6
        columns = [(column,) for column in table.domain]
        found = [table.measure([clique], rho=part * rho / len(columns))[0] for clique in columns]
        return self.conclude(table, found)


class RowsInOrder(Cheat):
    """The order of the rows depends on the rows."""

    def fit(self, table, *, rho, progress=None):
        fit, odd = super().fit(table, rho=rho), rows_of(table) % 2

        def sample(rows, rng):
            found = fit.model.sample(rows, rng)
            order = np.lexsort(tuple(found.values()))[:: -1 if odd else 1]
            return {column: codes[order] for column, codes in found.items()}

        return dataclasses.replace(fit, model=Altered(fit.model, sample=sample))


class MergedCodes(Cheat):
    """Codes are merged if the table has an odd number of rows."""

    def fit(self, table, *, rho, progress=None):
        column = next(iter(table.domain))
        view = table.recode(Recoding({column: np.array([0, 0])})) if rows_of(table) % 2 else table
        return super().fit(view, rho=rho)


class Fails(Cheat):
    """A run on an odd number of rows ends with an error."""

    def fit(self, table, *, rho, progress=None):
        fit = super().fit(table, rho=rho)
        if rows_of(table) % 2:
            raise UnderstudyError("this cannot be done")
        return fit


class FailsAtTimes(Cheat):
    """The same, but only where chance allows: in a tenth of runs."""

    def fit(self, table, *, rho, progress=None):
        fit = super().fit(table, rho=rho)
        if rows_of(table) % 2 and int(fit.measurements[0].values[0]) % 10 == 0:
            raise UnderstudyError("this cannot be done")
        return fit


class ExactMeasurements(Cheat):
    """The measurements that are released are not those that the gate gave."""

    def fit(self, table, *, rho, progress=None):
        fit = super().fit(table, rho=rho)
        counts = dict(table._PrivateTable__source.counts([one.clique for one in fit.measurements]))
        exact = [dataclasses.replace(one, values=np.array(counts[one.clique])) for one in fit.measurements]
        return Fit(fit.model, exact, fit.recoding, fit.rounds, fit.generator)


CHEATS = {
    TrueTotal: ("broken", "number of rows"),
    NearlyTrueTotal: ("broken", "total: "),
    OneQuestionMore: ("broken", "ending"),
    ShareOfBudget: ("broken", "questions"),
    RowsInOrder: ("broken", "rows"),
    MergedCodes: ("broken", "ending"),
    Fails: ("broken", "ending"),
    FailsAtTimes: ("unexplained", "ending"),
    ExactMeasurements: ("broken", "measurements"),
}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_a_cheat_is_found(cheat):
    verdict, words = CHEATS[cheat]
    found = audit(cheat(), pairs=200 if cheat is NearlyTrueTotal else 40)
    assert found.verdict == verdict, found.text()
    assert any(words in reason for reason in found.reasons), found.text()


def test_without_cheating_the_same_mechanism_is_consistent():
    found = audit(Cheat(), pairs=40)
    assert found.verdict == "consistent", found.text()
    assert found.inspection.random == ()


def test_what_chance_decides_is_named_and_the_rest_is_compared():
    found = audit(NearlyTrueTotal(), pairs=10)
    assert set(found.inspection.random) == {"number of rows"}
    assert "Not compared, as chance decides it: number of rows." in found.text()


def test_a_mechanism_that_always_fails_shows_its_error():
    class Broken(Cheat):
        name = "always-fails"

        def fit(self, table, *, rho, progress=None):
            raise UnderstudyError("it does not work")

    with pytest.raises(UnderstudyError, match="it does not work"):
        audit(Broken(), pairs=10)


def test_noise_that_is_equal_by_chance_is_expected():
    """Over many pairs of draws, coincidences stay below what is expected at most."""
    rng, noise = np.random.default_rng(0), ReplayedNoise()
    for _ in range(3000):
        one = ReplayedNoise()
        for _ in range(2):
            one.add(np.rint(rng.normal(0, 2, size=2)), 2.0, "gaussian")
        noise.repeated, noise.expected = noise.repeated + one.repeated, noise.expected + one.expected
    assert 20 < noise.repeated < noise.expected < 130
