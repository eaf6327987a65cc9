"""Mistakes in discovery made on purpose. Each must be caught by a check that the correct code passes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import understudy as us
from understudy.accounting import Budget, Receipt
from understudy.accounting import charge as threshold
from understudy.discovery import discover as discovering
from understudy.discovery.search import Search
from understudy.errors import BudgetExceeded
from understudy.gate import PrivateTable
from understudy.gate import table as gate
from understudy.schema import PrivacyUnit, Schema
from understudy.schema.open import Words
from understudy.source import MemorySource, memory
from understudy.testing.audit import check_claim
from understudy.testing.spy import Spy, check_spent
from understudy.testing.tables import CodedSource, WordSource
from understudy.testing.twin import check_twins

from .trials import noise_halved, own_value_trial, shared_value_trial

BUDGET = Budget.of(rho=1.0, delta=0.1, discovery_delta=0.05)
VALUES = {"a": 70, "b": 45, "c": 9, "d": 1}


# -- the mistakes ------------------------------------------------------------------------------------------------------


def threshold_without_delta(patch):
    patch.setattr(threshold, "find_threshold", lambda sigma, max_rows, delta: (max_rows, delta))


def delta_not_charged(patch):
    original = gate.threshold_charge
    patch.setattr(gate, "threshold_charge", lambda *given, **rest: replace(original(*given, **rest), delta=Fraction(0)))


def one_row_per_unit_assumed(patch):
    original = gate.threshold_charge
    patch.setattr(
        gate,
        "threshold_charge",
        lambda about, neighbours, **rest: original(about, replace(neighbours, max_rows=1), **rest),
    )


def rows_of_a_unit_forgotten_in_the_threshold(patch):
    original = threshold.find_threshold
    patch.setattr(threshold, "find_threshold", lambda sigma, max_rows, delta: original(sigma, 1, delta))


def replacing_charged_as_adding(patch):
    original = gate.threshold_charge
    patch.setattr(
        gate,
        "threshold_charge",
        lambda about, neighbours, **rest: original(about, replace(neighbours, replace_one=False), **rest),
    )


def values_below_the_threshold_are_released(patch):
    original = PrivateTable._new_answer
    kept = {}
    draw = PrivateTable._draw

    def drawn(table, charge, size):
        kept["noise"] = draw(table, charge, size)
        return kept["noise"]

    def released(table, answer):
        if table.account.charges[-1].what != "values":
            return original(table, answer)
        exact = sorted(table._PrivateTable__source.values("w").items())
        return {text: count + int(noise) for (text, count), noise in zip(exact, kept["noise"], strict=True)}

    patch.setattr(PrivateTable, "_draw", drawn)
    patch.setattr(PrivateTable, "_new_answer", released)


def counts_released_without_noise(patch):
    patch.setattr(PrivateTable, "_draw", lambda t, charge, size: np.zeros(size, np.int64))


def rows_read_before_paying(patch):
    original = PrivateTable._answer

    def answer(table, charges, compute):
        table._PrivateTable__source.values("w")
        return original(table, charges, compute)

    patch.setattr(PrivateTable, "_answer", answer)


def bounds_from_the_true_minimum_and_maximum(patch):
    truth = {}
    opened, find = discovering.Discovery.discover, Search.result

    def discover(discovery, fits):
        cells = next(c.cell_contents for c in discovery.opener.__closure__ if isinstance(c.cell_contents, pl.DataFrame))
        truth["ends"] = int(cells["n"].min()), int(cells["n"].max())
        return opened(discovery, fits)

    def result(search, most):
        found = find(search, most)
        return {"minimum": truth["ends"][0], "maximum": truth["ends"][1] + 1} if "minimum" in found else found

    patch.setattr(discovering.Discovery, "discover", discover)
    patch.setattr(Search, "result", result)


def values_in_the_order_of_the_rows(patch):
    """Not the values themselves leak but the order in which the table holds them."""
    truth = {}
    opened, categories = discovering.Discovery.discover, discovering._choose_categories

    def discover(discovery, fits):
        cells = next(c.cell_contents for c in discovery.opener.__closure__ if isinstance(c.cell_contents, pl.DataFrame))
        truth["order"] = cells["w"].to_list()
        return opened(discovery, fits)

    def listed(found, column, dialect, most):
        values = categories(found, column, dialect, most)["categories"]
        order = {text: i for i, text in reversed(list(enumerate(truth["order"])))}
        return {"categories": sorted(values, key=lambda value: order.get(value, -1))}

    patch.setattr(discovering.Discovery, "discover", discover)
    patch.setattr(discovering, "_choose_categories", listed)


def bounding_by_codes_that_depend_on_other_units(patch):
    patch.setattr(memory, "_digest_texts", lambda texts: np.asarray(texts.indices.fill_null(-1)))


# -- the checks --------------------------------------------------------------------------------------------------------


def spied(*, max_rows=1, rows_public=None):
    with Spy() as spy:
        table = PrivateTable(WordSource(VALUES, max_rows=max_rows, rows_public=rows_public), BUDGET)
        for _ in range(3):
            table.values("w", rho=Fraction(1, 3), delta=Fraction(1, 100))
        coded = PrivateTable(CodedSource({"a": 3}, [[0], [1]], max_rows=max_rows, rows_public=rows_public), BUDGET)
        coded.tally({"a": Fraction(1, 2)}, what={"a": "bounds"})
    charges = (*table.account.charges, *coded.account.charges)
    check_spent(spy, Receipt(Budget.of(rho=2.0, delta=0.1, discovery_delta=0.05), charges, table.neighbours))


def what_cannot_be_paid_is_refused_unread():
    class Sealed(WordSource):
        def values(self, column):
            raise AssertionError("rows were read")

    table = PrivateTable(Sealed(VALUES), BUDGET)
    with pytest.raises(BudgetExceeded):
        table.values("w", rho=Fraction(2), delta=Fraction(1, 100))
    with pytest.raises(BudgetExceeded):
        table.values("w", rho=Fraction(1, 2), delta=Fraction(1, 10))


def only_answers_tell_the_tables_apart(tmp_path: Path):
    fields = [
        {"name": "n", "type": "integer", "understudy": {"bounds": "discover"}},
        {"name": "w", "type": "string", "understudy": {"values": "discover"}},
    ]
    schema = Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    first = pl.DataFrame({"n": [3, 5, 9, 4] * 200, "w": ["b", "a", "b", "c"] * 200})
    second = pl.DataFrame({"n": [-70, 88_000] * 30, "w": ["c", "zebra"] * 30})

    def run(frame, folder):
        release = us.synthesize(
            frame, schema, epsilon=9.0, delta=1e-3, mechanism="independent", output=folder / "r", dataset="d"
        )
        print(release.receipt.text(), release.schema.to_dict())

    check_twins(run, first, second, tmp_path / "twin")


def a_unit_moves_nobody_else():
    rng = np.random.default_rng(5)
    coding = Schema((Words(name="w"),), privacy_unit=PrivacyUnit("who", 2))
    for _ in range(40):
        who, texts = rng.integers(0, 4, 24), rng.choice(list("abcdef"), 24)
        for gone in range(4):
            keep = who != gone
            tables = [pa.table({"who": who, "w": texts}), pa.table({"who": who[keep], "w": texts[keep]})]
            whole, rest = (Counter(MemorySource(table, coding, key=b"k" * 32).values("w")) for table in tables)
            assert all(whole[text] >= rest[text] for text in rest), "another unit's rows changed"


KILLS = [
    (threshold_without_delta, lambda: spied()),
    (threshold_without_delta, lambda: check_claim(own_value_trial())),
    (delta_not_charged, lambda: spied()),
    (one_row_per_unit_assumed, lambda: spied(max_rows=3)),
    (one_row_per_unit_assumed, lambda: check_claim(shared_value_trial())),
    (rows_of_a_unit_forgotten_in_the_threshold, lambda: spied(max_rows=3)),
    (replacing_charged_as_adding, lambda: spied(rows_public=125)),
    (values_below_the_threshold_are_released, lambda: spied()),
    (values_below_the_threshold_are_released, lambda: check_claim(own_value_trial())),
    (noise_halved, lambda: spied()),
    (noise_halved, lambda: check_claim(replace(shared_value_trial(), runs=2500))),
    (counts_released_without_noise, lambda: spied()),
    (rows_read_before_paying, what_cannot_be_paid_is_refused_unread),
    (bounding_by_codes_that_depend_on_other_units, a_unit_moves_nobody_else),
]


@pytest.mark.parametrize(("mutant", "check"), KILLS, ids=[f"{kill[0].__name__}-{i}" for i, kill in enumerate(KILLS)])
def test_mutant_is_killed(mutant, check, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()


@pytest.mark.parametrize("mutant", [bounds_from_the_true_minimum_and_maximum, values_in_the_order_of_the_rows])
def test_facts_taken_from_the_rows_are_caught_by_the_twin(mutant, monkeypatch, tmp_path):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        only_answers_tell_the_tables_apart(tmp_path)


@pytest.mark.parametrize("max_rows", [1, 3])
@pytest.mark.parametrize("rows_public", [None, 125])
def test_the_spy_agrees_with_the_receipt(max_rows, rows_public):
    spied(max_rows=max_rows, rows_public=rows_public)


def test_what_cannot_be_paid_is_refused_before_rows_are_read():
    what_cannot_be_paid_is_refused_unread()


def test_only_answers_distinguish_two_tables(tmp_path):
    only_answers_tell_the_tables_apart(tmp_path)


def test_a_unit_moves_nobody_else():
    a_unit_moves_nobody_else()
