"""A public table beside the private one: when its rows are used, what that costs, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import understudy as us
import understudy.run.public
from understudy.errors import InputError, SettingError
from understudy.ledger import Ledger
from understudy.run.public import CANDIDATES, SHARE

SIZES = {"a": 3, "b": 3, "c": 2}
SCHEMA = us.Schema.from_domain(SIZES)


def _rows(seed: int, rows: int = 400, *, related: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 3, rows), rng.integers(0, 3, rows)
    b = np.where(rng.random(rows) < 0.8, a, b) if related else b
    return pd.DataFrame({"a": a, "b": b, "c": (a + b) % 2 if related else rng.integers(0, 2, rows)})


PRIVATE, ALIKE, UNLIKE = _rows(1), _rows(2), _rows(3, related=False)


def _public_entry(release):
    (entry,) = [entry for entry in release.rounds if "public" in entry]
    return entry


@pytest.mark.parametrize("mechanism", ["auto", "independent", "privsyn"])
def test_public_rows_are_used_where_they_are_alike_and_the_budget_is_kept(tmp_path, mechanism):
    ALIKE.to_csv(tmp_path / "last_year.csv", index=False)
    options = {"epsilon": 0.5, "delta": 1e-6, "mechanism": mechanism, "dataset": "d"}
    release = us.synthesize(PRIVATE, SCHEMA, public=tmp_path / "last_year.csv", **options)
    receipt = release.receipt
    assert release.model.kind == "rows"
    assert receipt.exact_rho <= receipt.budget.rho
    assert sum(charge.what == "quality" for charge in receipt.charges) == CANDIDATES
    paid = sum(charge.rho for charge in receipt.charges if charge.what == "quality")
    assert float(paid) == pytest.approx(CANDIDATES * SHARE * float(receipt.budget.rho), rel=1e-6)
    assert receipt.facts["the table last_year.csv"] == "declared public by the custodian"
    entry = _public_entry(release)
    assert (entry["public"], len(entry["errors"])) == ("last_year.csv", CANDIDATES)
    made = release.sample(400, seed=1, as_="pandas")
    assert (made["a"] == made["b"]).mean() > 0.7  # the dependence that 0.5 hardly buys
    release.save(tmp_path / "r.release")
    again = us.Release.load(tmp_path / "r.release")
    assert again.sample(50, seed=2, as_="pandas").equals(release.sample(50, seed=2, as_="pandas"))
    assert again.answer("a=1").value == pytest.approx(release.answer("a=1").value)


def test_public_rows_that_are_unlike_leave_the_private_model():
    release = us.synthesize(PRIVATE, SCHEMA, rho=50.0, public=UNLIKE[UNLIKE.a != UNLIKE.b])
    assert release.model.kind != "rows"
    errors = _public_entry(release)["errors"]
    assert errors[0] == min(errors)


@pytest.mark.parametrize(("lower", "used"), [(0.88, True), (0.92, False)])
def test_public_rows_are_used_only_if_their_error_is_a_tenth_smaller(monkeypatch, lower, used):
    errors = iter([100.0, 130.0, 100 * lower, 120.0])
    monkeypatch.setattr(understudy.run.public, "measure_quality", lambda *_: SimpleNamespace(value=next(errors)))
    release = us.synthesize(PRIVATE, SCHEMA, rho=1.0, public=ALIKE)
    assert (release.model.kind == "rows") is used
    assert _public_entry(release)["errors"] == [100.0, 130.0, 100 * lower, 120.0]


def test_a_run_with_a_public_table_is_continued_with_the_same_choice(monkeypatch, tmp_path):
    ALIKE.to_csv(tmp_path / "last_year.csv", index=False)
    PRIVATE.to_csv(tmp_path / "rows.csv", index=False)
    with monkeypatch.context() as patch:
        patch.setattr(us.Release, "of", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            us.synthesize(tmp_path / "rows.csv", SCHEMA, rho=0.1, public=tmp_path / "last_year.csv", dataset="d")
    (run,) = Ledger().reservations("d")
    spec = Ledger().find(run.run).spec
    assert (spec["public"], spec["mechanism"]) == (str(tmp_path / "last_year.csv"), "adaptive")
    (tmp_path / "rows.csv").unlink()  # everything was answered: the rows are not needed
    release = us.resume(run.run, output=tmp_path / "r.release")
    assert release.receipt.mechanism.startswith("adaptive, chosen automatically")
    assert sum(charge.what == "quality" for charge in release.receipt.charges) == CANDIDATES
    assert len(_public_entry(release)["errors"]) == CANDIDATES
    (tmp_path / "last_year.csv").unlink()  # without the public rows the model alone is left
    assert us.resume(run.run, output=tmp_path / "again.release").model.kind != "rows"
    assert us.Ledger().total("d").runs == 1


def test_rows_that_break_a_rule_are_not_used():
    content = SCHEMA.to_dict()
    content["understudy"] |= {"rules": [{"impossible": {"c": [1]}}]}
    ruled = us.Schema.from_dict(content)
    release = us.synthesize(PRIVATE[PRIVATE.c == 0], ruled, rho=0.05, public=ALIKE)
    assert (release.sample(300, seed=1, as_="pandas")["c"] == 0).all()


def test_quality_is_measured_beside_the_choice():
    release = us.synthesize(PRIVATE, SCHEMA, rho=5.0, public=ALIKE, quality="5%")
    assert release.quality is not None
    assert sum(charge.what == "quality" for charge in release.receipt.charges) == CANDIDATES + 1
    assert release.receipt.exact_rho <= 5


def test_what_is_no_public_table_is_refused_before_anything_is_spent(tmp_path):
    ALIKE.iloc[:0].to_csv(tmp_path / "empty.csv", index=False)
    cases = [
        (PRIVATE, SettingError, "sensitive table itself"),
        (ALIKE[["a", "b"]], InputError, "c"),
        (tmp_path / "empty.csv", InputError, "no rows"),
        (tmp_path / "gone.csv", InputError, "gone.csv"),
    ]
    for public, error, words in cases:
        with pytest.raises(error, match=words):
            us.synthesize(PRIVATE, SCHEMA, rho=1.0, public=public, dataset="d")
    assert us.Ledger().total("d").runs == 0
