from __future__ import annotations

import numpy as np
import pytest

from understudy.accounting import Budget
from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism import make_mechanism
from understudy.model.fit import Generator
from understudy.model.generate import generate
from understudy.schema import Recoding
from understudy.testing.tables import CodedSource

SIZES = {"a": 2, "b": 3, "c": 2}
DOMAIN = Domain(SIZES)


def pairs() -> list[Measurement]:
    rng = np.random.default_rng(1)
    whole = rng.dirichlet(np.ones(12)).reshape(2, 3, 2) * 1000
    return [
        Measurement(tuple("abc"[:i] + "abc"[i + 1 :]), whole.sum(axis=i).reshape(-1).round(), 2.0) for i in (0, 1, 2)
    ]


@pytest.mark.parametrize("name", ["mst", "privsyn"])
@pytest.mark.parametrize(("generator", "kind"), [("gum", "gum"), ("pgm", "graphical")])
def test_either_generator_takes_what_either_mechanism_measured(name: str, generator: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    rows = [[int(a), int(a) + int(rng.integers(2)), int(rng.integers(2))] for a in rng.integers(2, size=2000)]
    table = PrivateTable(CodedSource(SIZES, rows), Budget.of(rho=2.0))
    fit = make_mechanism(name).fit(table, rho=2.0)
    model = generate(generator, DOMAIN, fit.measurements, recoding=fit.recoding).model
    assert model.kind == kind
    assert model.total == pytest.approx(2000, abs=50)
    assert model.project(("a", "b"))[0, 2] + model.project(("a", "b"))[1, 0] < 40


def test_the_spanning_tree_can_be_generated_by_updates() -> None:
    rows = [[i % 2, i % 2 + i % 3 // 2, i % 5 // 3] for i in range(2000)]
    table = PrivateTable(CodedSource(SIZES, rows), Budget.of(rho=2.0))
    fit = make_mechanism("mst", generator="gum").fit(table, rho=2.0)
    assert fit.model.kind == "gum"
    with pytest.raises(SettingError, match="generator"):
        make_mechanism("mst", generator="gan")


def test_both_generators_find_the_same_tables() -> None:
    gum, pgm = (
        generate(name, DOMAIN, pairs(), recoding=Recoding.identity(), total=1000).model for name in ("gum", "pgm")
    )
    for clique in (("a", "b"), ("b", "c"), ("c", "a")):
        assert gum.project(clique) == pytest.approx(pgm.project(clique), abs=3)


def test_a_tree_that_is_too_large_is_left_to_updates() -> None:
    assert generate(Generator("pgm", 1e-6), DOMAIN, pairs(), recoding=Recoding.identity()).model.kind == "gum"
    assert generate(Generator("pgm", 1.0), DOMAIN, pairs(), recoding=Recoding.identity()).model.kind == "graphical"


def test_an_unknown_generator_is_named() -> None:
    with pytest.raises(SettingError, match=r"'gan'.*pgm, gum"):
        generate("gan", DOMAIN, [], recoding=Recoding.identity())


def test_the_product_of_merged_codes_is_that_of_their_sums() -> None:
    measured = [Measurement(("b",), np.array([600.0, 250.0, 150.0]), 1.0)]
    model = generate("product", DOMAIN, measured, recoding=Recoding({"b": np.array([0, 1, 1])}), total=1000).model
    assert model.project(("b",)) == pytest.approx([600.0, 400.0], abs=1.0)
    assert model.project(("a",)) == pytest.approx([500.0, 500.0])
