"""Rows of linked tables: references, keys, caps and orders hold by construction, whatever was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import understudy as us
from understudy.accounting import Budget, Receipt
from understudy.domain import Domain
from understudy.errors import ReleaseError, SettingError
from understudy.evaluation.linked import check_integrity
from understudy.gate import PrivateTable
from understudy.mechanism import make_mechanism
from understudy.mechanism.linked import LinkedMechanism, check_inner
from understudy.model.conditional import _information, plan_draws
from understudy.model.graphical import GraphicalModel
from understudy.release import Release, open_release
from understudy.release.linked import LinkedRelease, _decode_rows, _write_keys
from understudy.release.linked_rows import DrawnRows, DrawStep, _draw_codes, _fit_step
from understudy.schema.linked import LinkedSchema, VirtualTable
from understudy.source.linked import LinkedRows
from understudy.testing.linked import clinic_package, clinic_rows, clinic_schema


def make(schema: LinkedSchema, tables: dict[str, Any], *, rho: float = 1.0, inner: str = "mst") -> LinkedRelease:
    rows, budget = LinkedRows(tables, schema), Budget.of(rho=rho)
    base = PrivateTable(rows.source(schema.virtual_tables[schema.root]), budget)

    def view(virtual: VirtualTable) -> PrivateTable:
        return base.with_source(rows.source(virtual), table=virtual.name)

    fits = LinkedMechanism(make_mechanism(inner)).fit(view, schema, rho=base.remaining)
    receipt = Receipt(budget, tuple(base.account.charges), base.neighbours)
    return LinkedRelease.of(fits, schema, receipt, mechanism=inner, settings={})


@pytest.fixture(scope="module")
def release() -> LinkedRelease:
    return make(clinic_schema(), clinic_rows(300))


def check(schema: LinkedSchema, tables: dict[str, Any]) -> None:
    """Check references, unique keys, caps and orders of three-level tables."""
    patients, visits, diagnoses = (tables[name].to_pandas() for name in ("patients", "visits", "diagnoses"))
    assert patients.patient_id.is_unique
    assert visits.visit_id.is_unique
    assert visits.patient_id.isin(patients.patient_id).all()
    owner = visits.set_index("visit_id").patient_id
    assert diagnoses.visit_id.isin(visits.visit_id).all()
    assert (owner.reindex(diagnoses.visit_id).to_numpy() == diagnoses.patient_id.to_numpy()).all()
    links = schema.links
    assert visits.groupby("patient_id").size().max() <= links["visits"].max_children
    assert diagnoses.groupby("visit_id").size().max() <= links["diagnoses"].max_children
    if links["visits"].order:
        assert (visits.groupby("patient_id").day.diff().dropna() >= 0).all()
    steps = diagnoses.groupby("visit_id")["rank"].diff().dropna()
    assert (steps > 0).all() if links["diagnoses"].strict else (steps >= 0).all()


@pytest.mark.parametrize("rho", [1e-6, 1.0])
@pytest.mark.parametrize("options", [{}, {"visits": 1, "diagnoses": 4}, {"order": "", "strict": False}])
def test_rows_are_linked_ordered_and_within_the_caps(options: dict[str, Any], rho: float) -> None:
    schema = clinic_schema(**options)
    check(schema, make(schema, clinic_rows(60), rho=rho, inner="independent").sample(80, seed=3))


def test_the_same_seed_gives_the_same_rows_also_from_a_file(release: LinkedRelease, tmp_path: Any) -> None:
    check(release.schema, release.sample(seed=1))
    release.save(tmp_path / "clinic.release")
    again = open_release(tmp_path / "clinic.release")
    assert isinstance(again, LinkedRelease)
    for name, table in again.sample(seed=1).items():
        assert table.equals(release.sample(seed=1)[name])
    assert [charge.table for charge in again.receipt.charges] == [charge.table for charge in release.receipt.charges]
    with pytest.raises(ReleaseError, match=r"open_release` opens both"):
        Release.load(tmp_path / "clinic.release")


def test_charges_name_the_virtual_table(release: LinkedRelease) -> None:
    tables = [charge.table for charge in release.receipt.charges]
    assert list(dict.fromkeys(tables)) == list(release.schema.virtual_tables)
    assert release.receipt.exact_rho <= release.receipt.budget.rho


def test_numbers_of_children_and_wards_follow_the_true_tables() -> None:
    """With a large budget, numbers of visits are as in the true tables, and wards stay the same."""
    schema, tables = clinic_schema(), clinic_rows(1500)
    made = make(schema, tables, rho=200.0, inner="mst").sample(1500, seed=1)

    def shares(some: dict[str, Any]) -> tuple[np.ndarray, float]:
        visits = some["visits"].to_pandas()
        sizes = visits.groupby("patient_id").size().reindex(some["patients"]["patient_id"].to_pylist()).fillna(0)
        counts = np.bincount(np.minimum(sizes.astype(int), 3), minlength=4) / len(sizes)
        ordered = visits.sort_values(["patient_id", "day"], kind="stable")
        same = ordered.ward == ordered.groupby("patient_id").ward.shift()
        return counts, float(same[ordered.patient_id.duplicated()].mean())

    (real, real_same), (drawn, drawn_same) = shares(tables), shares(made)
    assert np.abs(real - drawn).sum() < 0.05
    assert abs(real_same - drawn_same) < 0.1  # independent wards would agree in a third of the cases


def test_no_children_at_all_are_empty_tables() -> None:
    schema, tables = clinic_schema(), clinic_rows(40)
    tables |= {name: tables[name].slice(0, 0) for name in ("visits", "diagnoses")}
    made = make(schema, tables, rho=1e4).sample(40, seed=1)
    assert made["visits"].num_rows < 5
    assert made["visits"].column_names == ["visit_id", "patient_id", "day", "ward"]


def test_dates_with_gaps_never_go_back() -> None:
    package = clinic_package(visits=4)
    fields = package["resources"][1]["schema"]["fields"]
    fields[2] = {
        "name": "day",
        "type": "date",
        "constraints": {"minimum": "2024-01-01", "maximum": "2024-12-31", "required": True},
    }
    fields[2]["understudy"] = {"bins": 366}
    schema, tables = LinkedSchema.from_dict(package), clinic_rows(300)
    days = pa.array(np.datetime64("2024-01-01") + 60 * np.asarray(tables["visits"]["day"]))
    tables["visits"] = tables["visits"].set_column(2, "day", days)
    made = make(schema, tables, rho=50.0).sample(300, seed=2)["visits"].to_pandas()
    made["number"] = made.day.to_numpy().astype("datetime64[D]").astype(int)
    gaps = made.groupby("patient_id").number.diff().dropna()
    assert (gaps >= 0).all()
    assert 20 < gaps.mean() < 120  # the true mean gap is about 90 days


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("order", ["ward", "-ward"])
def test_text_orders_siblings_by_its_codes(order: str, ordered: bool) -> None:
    package = clinic_package(order=order)
    package["resources"][1]["schema"]["fields"][3] = {
        "name": "ward", "categories": ["B", "A", "C"], "categoriesOrdered": ordered, "constraints": {"required": True}
    }  # fmt: skip
    made = make(LinkedSchema.from_dict(package), clinic_rows(300), rho=100.0).sample(80, seed=3)["visits"].to_pandas()
    places = made.ward.astype(str).map({"B": 0, "A": 1, "C": 2}).groupby(made.patient_id).diff().dropna()
    assert (places <= 0).all() if order == "-ward" else (places >= 0).all()
    assert len(places) > 10


def test_siblings_keep_their_drawn_order_within_a_bin() -> None:
    """Values of one bin are sorted, not rows: which sibling comes first was drawn."""
    package = clinic_package(visits=2)
    package["resources"][1]["schema"]["fields"][2]["constraints"]["maximum"] = 599  # bins of a hundred days
    schema = LinkedSchema.from_dict(package)
    many = np.arange(200)
    drawn = {
        "patients": DrawnRows({"sex": many % 2, "age": many % 4}, many, np.zeros(200, np.int64)),
        "visits": DrawnRows(
            {"day": np.full(400, 3), "ward": np.tile([0, 1], 200)}, many.repeat(2), np.tile([0, 1], 200)
        ),
        "diagnoses": DrawnRows({"rank": many[:0], "code": many[:0]}, many[:0], many[:0]),
    }
    visits = _write_keys(schema, drawn, np.random.default_rng(0), as_written=False)["visits"].to_pandas()
    assert (visits.groupby("patient_id").day.diff().dropna() >= 0).all()
    assert visits.ward.tolist() == ["A", "B"] * 200
    assert visits.day.between(300, 399).all()


def test_a_strict_order_leaves_room_for_all_children() -> None:
    rank, rng = np.arange(6), np.random.default_rng(0)
    column = clinic_schema().virtual_tables["first(visits)"].columns[-1]
    known, ends = {"x": np.zeros(50, np.int64)}, np.full(50, 5)
    last = np.array([[0.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
    step = DrawStep(column, ("x",), last, last[0], {}, ordered=True)
    drawn = _draw_codes(step, known, {"x": 1}, (rank, np.full(50, 1), np.full(50, 3)), rng)
    assert set(drawn) == {1, 2, 3}  # the weight lies outside of the room: any place in it
    step = DrawStep(column, ("x",), np.full((1, 6), 1 / 6), last[0], {}, ordered=True)
    assert set(_draw_codes(step, known, {"x": 1}, (rank[::-1].copy(), ends, ends), rng)) == {0}


def test_columns_are_drawn_from_the_models_conditional_distribution() -> None:
    domain = Domain({"x": 3, "y": 3, "z": 2})
    rng = np.random.default_rng(1)
    tables = {("x", "y"): np.log(rng.random((3, 3)) + 0.01), ("y", "z"): np.log(rng.random((3, 2)) + 0.01)}
    model = GraphicalModel(domain, tables, total=1.0)
    known, any_column = {"x": np.repeat(np.arange(3), 20_000)}, clinic_schema().virtual_tables["patients"].columns[0]
    for column, given, table in plan_draws(model, ["y", "z"]):
        step = DrawStep(any_column, given, table, table[0], {}, ordered=False)
        known[column] = _draw_codes(step, known, domain, None, rng)
    joint = model.project(("x", "y", "z")).reshape(3, 6)
    found = np.array(
        [np.bincount(known["y"][known["x"] == x] * 2 + known["z"][known["x"] == x], minlength=6) for x in range(3)]
    )
    assert np.abs(joint / joint.sum(axis=1, keepdims=True) - found / 20_000).max() < 0.01


def test_tiny_shares_carry_no_information() -> None:
    assert _information(np.array([[1.0, 1e-200], [1e-200, 1e-200]])) == pytest.approx(0.0)
    assert _information(np.eye(2)) == pytest.approx(np.log(2))


@pytest.mark.parametrize("given", [("x", "z"), ("x",), ()])
def test_calibrated_draws_meet_the_models_pairs_on_rows_that_the_model_does_not_expect(given: tuple[str, ...]) -> None:
    """The model takes x and z to be independent; in the rows they are equal, and an order leaves less room."""
    rng, domain = np.random.default_rng(2), {"x": 3, "z": 3, "y": 4}
    parts = [rng.dirichlet(np.full(4, 3.0), 3) for _ in range(2)]
    mean, table = (parts[0] + parts[1]) / 2, np.ones((1, 4))
    for one in given:
        table = (table[:, None, :] * parts["xz".index(one)][None, :, :]).reshape(-1, 4)
    column = clinic_schema().virtual_tables["first(visits)"].columns[-1]
    step = DrawStep(column, given, table, mean.mean(axis=0), {("x",): mean, ("z",): mean}, ordered=False)
    known = dict.fromkeys(("x", "z"), np.repeat(np.arange(3), 2000))
    weights = np.tile([1.0, 0.5], 3000)
    made, drawn = _fit_step(step, known, weights, None, domain, rng)
    chances = made.chances(known, domain, None)
    assert np.abs(chances[::2000] - mean).max() < 1e-6
    assert np.abs(np.bincount(drawn[:2000], minlength=4) / 2000 - mean[0]).max() < 0.06
    allowed = np.ones((6000, 4), np.bool_)
    allowed[::2, 0] = False
    _, drawn = _fit_step(step, known, weights, allowed, domain, rng)
    assert (drawn[::2] > 0).all()


def test_calibrated_draws_meet_a_measured_clique_of_several_known_columns() -> None:
    """y is the exclusive or of x and z, mostly: no pair of columns tells so."""
    rng, domain, codes = np.random.default_rng(2), {"x": 2, "z": 2, "w": 2, "y": 2}, np.arange(2)
    both = np.where((codes[:, None] ^ codes) == 1, 0.9, 0.1).reshape(4, 1)
    both, alone = np.hstack([1 - both, both]), np.array([0.5, 0.5])
    column = clinic_schema().virtual_tables["first(visits)"].columns[-1]
    known = {name: rng.integers(0, 2, 8000) for name in ("x", "z", "w")}
    for given in [("z", "w", "x"), ("w", "z"), ()]:
        table = np.full((2 ** len(given), 2), 0.5)
        step = DrawStep(column, given, table, alone, {("x", "z"): both}, ordered=False)
        made, _ = _fit_step(step, known, np.ones(8000), None, domain, rng)
        assert made.table.sum(axis=1) == pytest.approx(1.0)  # no combination outweighs others: few have any weight
        assert np.abs(made.chances(known, domain, None) - both[2 * known["x"] + known["z"]]).max() < 0.01


def test_a_column_keeps_its_own_distribution_where_known_columns_have_drifted() -> None:
    domain, rng = {"x": 2, "y": 2}, np.random.default_rng(3)
    shares = np.array([[0.9, 0.1], [0.2, 0.8]])
    column = clinic_schema().virtual_tables["first(visits)"].columns[-1]
    step = DrawStep(column, ("x",), shares, np.array([0.55, 0.45]), {("x",): shares}, ordered=False)
    known = {"x": np.array([0] * 200 + [1] * 800)}  # in the model, both are as common
    made, _ = _fit_step(step, known, np.ones(1000), None, domain, rng)
    pairs_alone = 0.2 * 0.9 + 0.8 * 0.2
    assert made.chances(known, domain, None)[:, 0].mean() > (pairs_alone + 0.55) / 2


def test_rare_combinations_of_known_columns_are_not_drawn_evenly() -> None:
    domain = Domain({"x": 2, "y": 2})
    model = GraphicalModel(domain, {("x", "y"): np.array([[0.0, -3.0], [-60.0, -63.0]])}, total=1.0)
    ((_, _, table),) = plan_draws(model, ["y"])
    assert table[1] == pytest.approx(table[0])


def test_mechanisms_without_a_graphical_model_are_refused() -> None:
    with pytest.raises(SettingError, match="choose aim, mst"):
        check_inner(make_mechanism("gem"))
    with pytest.raises(SettingError, match="generator pgm"):
        check_inner(make_mechanism("aim", generator="gum"))


def test_a_release_with_missing_parts_is_refused(release: LinkedRelease, tmp_path: Any) -> None:
    parts = {name: part for name, part in release.parts.items() if name != "next(visits)"}
    replace(release, parts=parts).save(tmp_path / "less.release")
    with pytest.raises(ReleaseError, match="parts are not those"):
        LinkedRelease.load(tmp_path / "less.release")


def test_statistics_and_bounds_of_the_root_have_intervals(release: LinkedRelease) -> None:
    found = release.infer("mean(patients.age)")
    assert found.to_dict() == release.parts["patients"].infer("mean(patients.age)").to_dict()
    assert {clique for one in release.bounds() for clique in one.clique} == set(release.parts["patients"].schema.domain)
    with pytest.raises(SettingError, match=r"intervals are known for columns of 'patients' and numbers of children"):
        release.infer("mean(visits.day)")


def test_the_text_forms_say_what_it_is(release: LinkedRelease) -> None:
    assert repr(release).startswith("<LinkedRelease by mst: patients, visits, diagnoses;")
    assert "patients, visits, diagnoses" in release._repr_html_()
    assert any("only through their parent" in note for note in release.notes)


RULES: dict[str, list[dict[str, Any]]] = {
    "patients": [{"impossible": {"sex": ["M"], "age": [0]}}],
    "visits": [
        {"impossible": {"day": {"minimum": 3}, "ward": ["A"]}},
        {"from": ["ward"], "determines": "bed", "map": {"A": "a", "B": "b"}},
        {"order": ["day", "until"]},
    ],
}


def ruled_schema() -> LinkedSchema:
    """The clinic with rules that its made-up rows break, and days in bins that an order cuts through."""
    package = clinic_package(visits=3)
    visits = package["resources"][1]["schema"]
    limits = {"minimum": 0, "maximum": 5}
    visits["fields"][2] = {"name": "day", "type": "integer", "constraints": limits, "understudy": {"bins": 3}}
    visits["fields"] += [visits["fields"][2] | {"name": "until"}, {"name": "bed", "categories": ["a", "b", "c"]}]
    for one in package["resources"][:2]:
        one["schema"]["understudy"] = {"rules": RULES[one["name"]]}
    return LinkedSchema.from_dict(package)


@pytest.mark.parametrize("mechanism", ["independent", "mst"])
def test_no_row_breaks_a_rule_of_its_table(mechanism: str) -> None:
    schema, tables = ruled_schema(), clinic_rows(100)
    visits = tables["visits"]
    tables["visits"] = visits.append_column("bed", visits["ward"]).append_column("until", visits["day"])
    release = us.synthesize(tables, schema, rho=0.5, mechanism=mechanism, dataset="ruled")
    for written in (False, True):
        made = release.sample(400, seed=1, as_written=written)
        assert set(check_integrity(made, schema).values()) == {1.0}
    shown = made["visits"].to_pandas()
    assert (shown["until"].astype(float) == shown["day"].astype(float)).any()  # bins that the order cuts are used
    assert not ((made["patients"].to_pandas()["sex"] == "M") & (made["patients"].to_pandas()["age"] == 0)).any()


def test_a_row_that_cannot_be_repaired_shows_the_values_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.release.rows._TRIES", 0)
    schema, many = ruled_schema(), np.arange(40)
    ends = np.where(np.arange(80) % 6 == 3, 0, 2)  # a third of the second visits end before they begin
    ward = many.repeat(2) % 2 + 1
    codes = {"day": np.tile([0, 2], 40), "until": ends, "ward": ward, "bed": np.where(ward == 1, 1, 2)}
    rows = DrawnRows(codes, many.repeat(2), np.tile([0, 1], 40))
    made = _decode_rows(schema.tables["visits"], schema.links["visits"], rows, np.random.default_rng(0), text=())
    shown = made.to_pandas()
    assert (shown["day"] <= shown["until"]).all()
    assert (shown["day"].to_numpy().reshape(-1, 2)[:, 0] <= 1).all()  # siblings keep their places in the order
    codes["until"] = np.zeros(80, np.int64)
    with pytest.raises(SettingError, match="satisfies its rules"):
        _decode_rows(schema.tables["visits"], schema.links["visits"], rows, np.random.default_rng(0), text=())


def test_conditions_on_the_root_hold_in_every_row(release: LinkedRelease) -> None:
    made = release.sample(60, seed=1, where="patients.sex=F, #visits=2..", as_="pandas")
    patients, visits = made["patients"], made["visits"]
    assert len(patients) == 60
    assert set(patients["sex"]) == {"F"}
    assert visits.groupby("patient_id").size().reindex(patients["patient_id"], fill_value=0).min() >= 2
    fewer = release.sample(seed=1, where={"patients.sex": "F"})["patients"].num_rows
    assert 0 < fewer < release.default_rows
    with pytest.raises(SettingError, match=r"where: 'visits.ward' is no column of 'patients'"):
        release.sample(5, where="visits.ward=A")
