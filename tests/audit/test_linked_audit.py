"""Whole runs on linked tables: twins, canaries, the spy's account, an audit of the deepest table, and mutants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from understudy.accounting import Budget, epsilon_of
from understudy.gate import PrivateTable
from understudy.schema.linked import UNITS_PER_ROW, LinkedSchema
from understudy.source import linked
from understudy.source.linked import LinkedRows
from understudy.testing.audit import Trial, check_claim
from understudy.testing.canary import Canary
from understudy.testing.linked import clinic_package, clinic_rows, clinic_schema
from understudy.testing.spy import Spy, check_spent
from understudy.testing.twin import check_twins, collect_outcome

from .trials import DELTA, RUNS


def synthesize(tables: Any, folder: Path) -> None:
    """A run with everything that it writes: the release, and rows of all tables."""
    release = us.synthesize(
        tables, clinic_schema(), epsilon=1.0, delta=1e-6, mechanism="mst", dataset="clinic", output=folder / "c.release"
    )
    for name, rows in release.sample(seed=1).items():
        (folder / f"{name}.txt").write_text(str(rows.to_pydict()))
    print(release.receipt.text(), release.notes, repr(release))


def test_other_tables_with_the_same_answers_leave_the_same_files(tmp_path: Path) -> None:
    check_twins(synthesize, clinic_rows(60, seed=1), clinic_rows(90, seed=2), tmp_path / "twin")


def test_no_key_and_no_unknown_cell_is_left_anywhere(tmp_path: Path) -> None:
    canary, tables = Canary(), clinic_rows(30)
    word = pa.array([f"{canary.word}-{i}" for i in range(30)])
    tables["patients"] = tables["patients"].set_column(0, "patient_id", word)
    owners = pa.array([f"{canary.word}-{text[1:]}" for text in tables["visits"]["patient_id"].to_pylist()])
    tables["visits"] = tables["visits"].set_column(1, "patient_id", owners)
    wards = pa.array([canary.word] * tables["visits"].num_rows)
    days = pa.array([canary.number] * tables["visits"].num_rows)
    tables["visits"] = tables["visits"].set_column(3, "ward", wards).set_column(2, "day", days)
    left = collect_outcome(lambda folder: synthesize(tables, folder), tmp_path / "canary")
    assert left["ending"] == b"done"
    canary.check_absent(left.items())


@pytest.mark.parametrize("mechanism", ["mst", "aim", "adaptive"])
def test_the_receipt_is_the_noise_that_was_drawn(mechanism: str) -> None:
    with Spy() as spy:
        release = us.synthesize(
            clinic_rows(40), clinic_schema(visits=2, diagnoses=1), rho=0.5, mechanism=mechanism, dataset="spied"
        )
    check_spent(spy, release.receipt)


def test_the_receipt_has_what_discovery_drew() -> None:
    package = clinic_package(visits=2, diagnoses=1)
    fields = package["resources"][1]["schema"]["fields"]
    fields[3] = {"name": "ward", "type": "string", "understudy": {"values": "discover"}}
    with Spy() as spy:
        release = us.synthesize(
            clinic_rows(40), LinkedSchema.from_dict(package), epsilon=2.0, delta=1e-6, mechanism="mst", dataset="open"
        )
    check_spent(spy, release.receipt)
    assert any(one.what == "values" and one.table == "visits" for one in release.receipt.charges)


def deepest_trial(threshold: float) -> Trial:
    """A patient with three visits of two diagnoses each is present or absent; four sums of diagnoses move by a unit.

    Args:
        threshold: the event is that the sum of the four noisy counts, in units, reaches it. Its standard deviation is
            2.83 and the unit moves it by 4: at 11 / 3, as in `gaussian_trial`, the claim is nearly tight. A unit that
            moves it by 12 is found at 7.5.
    """
    schema = clinic_schema(visits=3, diagnoses=2)
    visits, diagnoses = ["1", "2", "3"], ["1", "1", "2", "2", "3", "3"]
    present = {
        "patients": pa.table({"patient_id": ["a"], "sex": ["M"], "age": [3]}),
        "visits": pa.table({"visit_id": visits, "patient_id": ["a"] * 3, "day": [0, 1, 2], "ward": ["C"] * 3}),
        "diagnoses": pa.table({"patient_id": ["a"] * 6, "visit_id": diagnoses, "rank": [0, 1] * 3, "code": ["y"] * 6}),
    }
    absent = {name: table.slice(0, 0) for name, table in present.items()}
    cells = {"first(diagnoses)": {"diagnoses.code": 1, "diagnoses.rank": 0}}
    cells["next(diagnoses)"] = {"diagnoses.code": 1, "diagnoses.rank": 1}
    both = []
    for tables in (present, absent):
        rows = LinkedRows(tables, schema)
        both.append({name: rows.source(virtual) for name, virtual in schema.virtual_tables.items()})

    def happened(sources: dict[str, Any]) -> bool:
        base, total = PrivateTable(sources["patients"], Budget.of(rho=1.0)), 0
        for name, wanted in cells.items():
            view = base.with_source(sources[name], table=name)
            for measured in view.measure([(column,) for column in wanted], rho=0.5):
                total += int(measured.values[wanted[measured.clique[0]]])
        return total >= threshold * UNITS_PER_ROW

    present_rows, absent_rows = both
    return Trial(lambda: happened(present_rows), lambda: happened(absent_rows), epsilon_of(1.0, DELTA), DELTA, RUNS)


@pytest.mark.parametrize("threshold", [11 / 3, 7.5])
def test_the_deepest_tables_keep_their_claim(threshold: float) -> None:
    check_claim(deepest_trial(threshold))


def test_forgotten_weights_break_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked, "weights_of", lambda units: np.full(len(units), UNITS_PER_ROW))
    with pytest.raises(AssertionError):
        check_claim(deepest_trial(7.5))


def test_a_number_of_children_that_leaves_without_a_charge_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A mutant that publishes the true number of rows of a table in the release."""
    from understudy.run import pipeline

    fit = pipeline.fit_linked

    def leak(base: Any, tables: Any, schema: Any, *given: Any, **options: Any) -> Any:
        fits = fit(base, tables, schema, *given, **options)
        _, parents, _ = tables.rows(schema).table_codes()["visits"]
        next(iter(fits.values())).model.total = float(len(parents))
        return fits

    monkeypatch.setattr(pipeline, "fit_linked", leak)
    with pytest.raises(AssertionError, match="without a charge"):
        check_twins(synthesize, clinic_rows(60, seed=1), clinic_rows(90, seed=2), tmp_path / "twin")
