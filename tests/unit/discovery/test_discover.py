"""Discovery: its cost as seen by the spy, its limits, and what is refused before a row is read."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest

import understudy as us
from understudy.accounting import Budget, Receipt
from understudy.accounting.charge import DISCOVERIES, Charge
from understudy.discovery.discover import (
    MOST_CODES,
    Discovery,
    EmptySource,
    complete_column,
    discovery_budget,
    narrowest_schema,
)
from understudy.errors import BudgetExceeded, SchemaError, SettingError
from understudy.gate import PrivateTable
from understudy.ledger import Ledger
from understudy.schema import PrivacyUnit, Schema
from understudy.schema.file import parse_field
from understudy.source import MemorySource
from understudy.source.open import make_opener
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource

BOTH = {"bounds": "discover", "bins": "discover"}
NUMBER = {"name": "n", "type": "integer", "understudy": BOTH}
WORD = {"name": "w", "type": "string", "understudy": {"values": "discover"}}
FIELDS = [
    NUMBER,
    WORD,
    {"name": "t", "type": "discover"},
    {"name": "b", "type": "date", "constraints": {"minimum": "2000-01-01", "maximum": "2030-01-01"},
     "understudy": {"bins": "discover"}},
    {"name": "d", "type": "boolean"},
]  # fmt: skip


def schema(*fields, unit="row", rows=None):
    ours = {"privacy_unit": unit} | ({} if rows is None else {"rows": rows})
    return Schema.from_dict({"fields": list(fields or FIELDS), "understudy": ours})


def frame(rows=3000, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "who": rng.integers(0, rows // 3, rows),
            "n": rng.integers(20, 60, rows),
            "w": rng.choice(["a", "b", "c", "rare"], rows, p=[0.5, 0.3, 0.1999, 0.0001]),
            "t": rng.choice(["1.5", "2.25", "9.75"], rows),
            "b": rng.choice(pd.date_range("2010-01-01", "2020-01-01").astype(str), rows),
            "d": rng.choice(["true", "false"], rows),
        }
    )


def discover_facts(given, declared, budget, share=Fraction(1, 2)):
    table = PrivateTable(EmptySource(declared), budget)
    shop = Discovery(table, make_opener(given, declared), declared, share * budget.capacity)
    return shop.discover(lambda _: True), table


@pytest.mark.parametrize("rows_public", [None, 3000])
@pytest.mark.parametrize("unit", ["row", {"column": "who", "max_rows": 3}], ids=["row", "three"])
@pytest.mark.parametrize("budget", [{"epsilon": 5.0, "delta": 1e-6}, {"rho": 0.5, "delta": 1e-6}], ids=["eps", "rho"])
def test_every_discovery_costs_what_its_noise_costs(budget, unit, rows_public):
    declared = schema(unit=unit, rows=rows_public)
    budget = discovery_budget(declared, 0.5, **({"epsilon": None, "rho": None} | budget))
    with Spy() as spy:
        complete, table = discover_facts(frame(), declared, budget)
    check_spent(spy, Receipt(budget, table.account.charges, table.neighbours))
    assert {charge.what for charge in table.account.charges} == set(DISCOVERIES)
    assert table.account.spent <= budget.capacity / 2
    assert 0 < sum(charge.delta for charge in table.account.charges) <= budget.discovery_delta
    assert not complete.open
    assert [column.origin for column in complete.columns] == ["discovered"] * 4 + ["public"]


def test_pure_dp_discovers_bounds_and_bins_with_laplace_noise():
    declared = schema(NUMBER, FIELDS[3])
    budget = discovery_budget(declared, 0.5, epsilon=4.0, delta=0.0, rho=None)
    with Spy() as spy:
        _, table = discover_facts(frame(), declared, budget)
    check_spent(spy, Receipt(budget, table.account.charges, table.neighbours))
    assert {charge.noise for charge in table.account.charges} == {"laplace"}


def test_what_is_found():
    with us.testing.insecure(1):  # one time in 20, noise alone stands out somewhere beyond the bounds
        complete, _ = discover_facts(frame(), schema(), Budget.of(rho=20.0, delta=1e-6, discovery_delta=1e-7))
    n, w, t, b, _ = complete.columns
    assert (n.kind, t.kind) == ("integer", "number")
    assert 16 <= n.minimum <= 20
    assert 59 <= n.maximum <= 64
    assert w.values == ("a", "b", "c")
    assert b.bins is not None


def test_values_of_whole_numbers_and_none_at_all():
    codes = {"name": "w", "type": "integer", "understudy": {"values": "discover", "missing": {"-9": None}}}
    table = pd.DataFrame({"w": [1] * 500 + [2] * 500 + [-9] * 500 + [77]})
    budget = Budget.of(rho=2.0, delta=1e-6, discovery_delta=1e-7)
    assert discover_facts(table, schema(codes), budget)[0].column("w").values == (1, 2)
    assert discover_facts(table[:0], schema(codes), budget)[0].column("w").values == (0,)
    assert discover_facts(table[:0].astype(str), schema(WORD), budget)[0].column("w").values == ("other",)
    written = pd.DataFrame({"w": ["007", "7", "7.5", "word"] * 500})
    assert discover_facts(written, schema(codes), budget)[0].column("w").values == (7,)


def test_values_that_are_numbers_count_by_their_number_as_every_reader_holds_it():
    """Beyond 2^53 one empty cell makes floats of a frame's numbers, so there they count as floats do."""
    codes = {"name": "w", "type": "integer", "understudy": {"values": "discover"}}
    budget = Budget.of(rho=2.0, delta=1e-6, discovery_delta=1e-7)
    ways = [f"+{'0' * zeros}7" for zeros in range(250)]  # each of them in too few rows to be told by itself
    long = [9007199254740993] * 500 + [9007199254740992] * 500
    table = pd.DataFrame({"w": [*ways * 4, *map(str, long)]})
    assert discover_facts(table, schema(codes), budget)[0].column("w").values == (7, 9007199254740992)
    found = discover_facts(pd.DataFrame({"w": long}), schema(codes), budget)[0]
    assert found.column("w").values == (9007199254740992,)


@pytest.mark.parametrize("odd", [[], ["?"]], ids=["numbers", "objects"])
@pytest.mark.parametrize(("kind", "told"), [("number", (0.5, 2.5)), ("string", ("0,5", "2,5"))])
def test_values_with_a_decimal_comma_are_read_alike_next_to_an_odd_cell(kind, told, odd):
    field = {"name": "w", "type": kind, "understudy": {"values": "discover"}}
    ours = {"privacy_unit": "row", "dialect": {"decimal": ","}}
    declared = Schema.from_dict({"fields": [field], "understudy": ours})
    table = pd.DataFrame({"w": [2.5] * 500 + [0.5] * 500 + odd})
    found = discover_facts(table, declared, Budget.of(rho=2.0, delta=1e-6, discovery_delta=1e-7))[0]
    assert found.column("w").values == told
    codes = found.encode(table).codes["w"].tolist()
    assert codes[:1000] == [1] * 500 + [0] * 500


# -- refusals --


class Sealed(MemorySource):
    def counts(self, cliques):
        raise AssertionError("rows were read")

    def values(self, column):
        raise AssertionError("rows were read")


def test_values_without_a_delta_are_refused_before_anything_is_spent(tmp_path):
    for field in (WORD, {"name": "t", "type": "discover"}):
        for budget in ({"epsilon": 1.0, "delta": 0}, {"rho": 1.0}):
            with pytest.raises(SettingError, match="takes a delta above 0"):
                us.synthesize(frame(), schema(field), **budget, output=tmp_path / "r", dataset="d")
    assert not list(tmp_path.glob("r*"))
    assert Ledger().reservations("d") == []


def test_the_gate_itself_refuses_values_under_pure_dp_and_beyond_the_delta_set_aside():
    source = Sealed(frame(), Schema((us.schema.open.Words(name="w"),)))
    pure = PrivateTable(source, Budget.of(epsilon=1.0, delta=0))
    with pytest.raises(BudgetExceeded, match="pure DP"):
        pure.values("w", rho=Fraction(1, 2), delta=Fraction(1, 10**9))
    none_aside = PrivateTable(source, Budget.of(epsilon=1.0, delta=1e-6))
    with pytest.raises(BudgetExceeded, match="set aside for discovery"):
        none_aside.values("w", rho=Fraction(1, 1000), delta=Fraction(1, 10**9))
    little = PrivateTable(source, Budget.of(rho=0.1, delta=1e-6, discovery_delta=1e-7))
    with pytest.raises(BudgetExceeded):
        little.values("w", rho=Fraction(1, 5), delta=Fraction(1, 10**9))
    assert pure.account.charges == none_aside.account.charges == little.account.charges == ()


def test_a_source_that_cannot_count_values_is_refused_in_words():
    table = PrivateTable(CodedSource({"w": 2}, [[0]]), Budget.of(rho=0.1, delta=1e-6, discovery_delta=1e-7))
    with pytest.raises(SettingError, match="not supported for this kind of table yet; declare its values"):
        table.values("w", rho=Fraction(1, 20), delta=Fraction(1, 10**9))
    declared = schema(NUMBER, WORD)
    shop = Discovery(table, lambda coding: CodedSource(coding.domain, []), declared, Fraction(1, 20))
    with pytest.raises(SettingError, match="'w': values cannot be discovered in this kind of table yet"):
        shop.discover(lambda _: True)
    assert table.account.charges == (), "nor were the bounds of the other column discovered first"


def test_another_coding_must_be_about_the_same_units():
    table = PrivateTable(CodedSource({"a": 2}, [[0]]), Budget.of(rho=0.1))
    with pytest.raises(SettingError, match="same units"):
        table.with_source(CodedSource({"a": 2}, [[0]], max_rows=2))
    with pytest.raises(SettingError, match="same units"):
        table.with_source(CodedSource({"a": 2}, [[0]], rows_public=1))


@pytest.mark.parametrize("missing", ["w", "d"], ids=["discovered", "declared"])
@pytest.mark.parametrize("kind", ["pandas", "polars", "folder"])
def test_a_missing_column_is_refused_before_anything_is_discovered(tmp_path, kind, missing):
    declared = schema(NUMBER, {**WORD, "name": "v"}, WORD, FIELDS[-1])
    rows = frame().assign(v="a").drop(columns=missing)
    (tmp_path / "rows").mkdir()
    rows.to_csv(tmp_path / "rows" / "part.csv", index=False)
    given = {"pandas": rows, "polars": pl.from_pandas(rows), "folder": tmp_path / "rows"}[kind]
    with pytest.raises(SchemaError, match=f"column '{missing}' is not in the table"):
        us.synthesize(given, declared, epsilon=1.0, delta=1e-6, dataset="d")
    assert [(one.state, one.answers) for one in Ledger().reservations("d")] == [("cancelled", 0)]


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, "a"])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(SettingError, match="discovery_share must lie between 0 and 1"):
        us.synthesize(frame(), schema(), epsilon=1.0, delta=1e-6, discovery_share=share)


def test_a_delta_that_was_lost_is_not_spent_again():
    declared, budget = schema(WORD), Budget.of(rho=1.0, delta=1e-6, discovery_delta=1e-7)
    table = PrivateTable(EmptySource(declared), budget)
    table.account.pay([Charge("values", (("w",),), "gaussian", 1.0, 9.0, Fraction(1, 99), delta=Fraction(1e-7))])
    with pytest.raises(BudgetExceeded, match="nothing is left of the delta"):
        Discovery(table, lambda _: Sealed(frame(), declared), declared, Fraction(1, 9)).discover(lambda _: True)


def test_a_public_table_and_a_planned_run_need_a_declared_schema():
    with pytest.raises(SettingError, match="a public table needs a declared schema"):
        us.synthesize(
            frame(), schema(NUMBER), epsilon=1.0, delta=1e-6, mechanism="nist-mst", public=pl.DataFrame({"n": [1]})
        )
    release = us.synthesize(frame(), schema(NUMBER), epsilon=1.0, delta=1e-6, mechanism="independent")
    assert release.receipt.budget.proof == "zcdp"
    again = us.synthesize(frame(), release.schema, epsilon=1.0, delta=1e-6, mechanism="independent")
    assert again.receipt.budget.proof == "pld"


# -- memory --


def test_the_narrowest_schema_is_what_a_run_is_checked_by():
    narrow = narrowest_schema(schema())
    assert narrow.domain["n"] >= MOST_CODES[-1]
    assert narrow.domain["w"] >= MOST_CODES[-1]
    assert narrowest_schema(narrow) is narrow


def test_codes_are_joined_until_they_fit():
    declared = schema(NUMBER, WORD)
    table = frame(20_000)
    table["w"] = np.arange(20_000) % 60
    budget = Budget.of(rho=50.0, delta=1e-6, discovery_delta=1e-7)
    gate = PrivateTable(EmptySource(declared), budget)
    small = Discovery(gate, make_opener(table, declared), declared, budget.capacity / 2).discover(
        lambda s: s.domain["w"] < 40
    )
    assert small.domain["w"] == MOST_CODES[-1] + 2
    assert small.domain["n"] <= MOST_CODES[-1] + 3


def test_a_fact_that_does_not_go_with_the_rest_is_left_out_rather_than_lost():
    number = parse_field({"name": "n", "type": "integer", "understudy": BOTH | {"missing": {"5": None}}}, 0)
    assert complete_column(number, {"minimum": 5, "maximum": 5}).minimum < 5
    assert complete_column(number, {"minimum": 0, "maximum": 9, "bins": {"edges": [3, 2]}}).maximum == 9
    with pytest.raises(SchemaError, match="contradicts everything discovered"):
        complete_column(number.model_copy(update={"field": {"name": "n", "type": "geopoint"}}), {})


# -- the account of it --


def test_the_receipt_and_the_ledger_list_what_was_discovered():
    release = us.synthesize(frame(), schema(), epsilon=8.0, delta=1e-6, mechanism="independent", dataset="d")
    receipt = release.receipt
    text = receipt.text()
    for line in (
        "the bounds of n for rho",
        "the bins of n for rho",
        "the type of t for rho",
        "the values of w for rho",
    ):
        assert f"Discovered: {line}" in text
    assert "Facts that are discovered: b, n, t, w." in text.replace("n, w, t, b", "b, n, t, w")
    assert Receipt.from_dict(receipt.to_dict()) == receipt
    values = [charge for charge in receipt.charges if charge.what == "values"]
    assert all(charge.threshold and charge.delta for charge in values)
    assert Charge.from_dict(values[0].to_dict()) == values[0]
    (reserved,) = Ledger().reservations("d")
    assert reserved.budget.discovery_delta == receipt.budget.discovery_delta == Fraction(1e-6 * 0.1)
    spent = Ledger().total("d")
    assert spent.epsilon <= 8.0
    assert spent.delta == pytest.approx(1e-6)


def test_a_rho_budget_with_a_delta_set_aside_promises_the_epsilon_of_the_rest():
    budget = Budget.of(rho=0.1, delta=1e-6, discovery_delta=5e-7)
    assert float(budget.epsilon) == pytest.approx(us.accounting.epsilon_of(0.1, 5e-7), rel=1e-9)
    assert budget.epsilon > Budget.of(rho=0.1, delta=1e-6).epsilon
    with pytest.raises(SettingError, match="together with rho"):
        Budget.of(rho=0.1, discovery_delta=1e-7)
    with pytest.raises(SettingError, match="smaller than delta"):
        Budget.of(rho=0.1, delta=1e-7, discovery_delta=1e-7)


def test_quality_and_discovery_together_leave_something_for_the_mechanism():
    with pytest.raises(SettingError, match="leave nothing for the mechanism"):
        us.synthesize(frame(), schema(NUMBER), epsilon=1.0, delta=1e-6, quality="50%", discovery_share=0.5)


def test_the_privacy_unit_is_never_discovered():
    with pytest.raises(SchemaError, match="is the privacy unit"):
        schema(NUMBER, {"name": "who", "type": "discover"}, unit={"column": "who", "max_rows": 2})
    assert schema(NUMBER, unit={"column": "who", "max_rows": 2}).privacy_unit == PrivacyUnit("who", 2)


@pytest.mark.parametrize(("places", "declared"), [(1, 1), (2, 2), (7, None)])
def test_decimals_of_a_column_of_unknown_type_are_those_of_its_cells(places, declared, tmp_path):
    cells = np.random.default_rng(0).gamma(3.0, 2.0, 4000).round(places)
    rows = pd.DataFrame({"x": [f"{cell:.{places}f}" for cell in cells]})
    given = schema({"name": "x", "type": "discover"})
    release = us.synthesize(rows, given, epsilon=2.0, delta=1e-6, mechanism="independent", ledger=tmp_path / "l.db")
    column = release.schema.column("x")
    made = release.sample(200, seed=0, as_="arrow")["x"].to_numpy()
    assert column.kind == "number"
    assert column.decimals is not None
    assert declared is None or column.decimals == declared
    assert np.allclose(made, made.round(column.decimals), rtol=0, atol=1e-12)


def test_drawn_numbers_show_no_more_digits_than_their_bins(tmp_path):
    rows = pd.DataFrame({"x": np.random.default_rng(0).gamma(3.0, 2.0, 4000).round(1)})
    given = schema({"name": "x", "type": "number", "understudy": BOTH})
    release = us.synthesize(rows, given, epsilon=2.0, delta=1e-6, mechanism="independent", ledger=tmp_path / "l.db")
    made = release.sample(200, seed=0, as_="arrow")["x"].to_pylist()
    assert max(len(repr(number)) for number in made) <= 8  # 12.34567, not 12.345678901234
