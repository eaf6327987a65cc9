"""Workloads: which cliques, how they are written, and the closure's weights."""

from __future__ import annotations

import tracemalloc

import pytest

from understudy.domain import Domain
from understudy.errors import SchemaError, SettingError
from understudy.workload import Workload

DOMAIN = Domain({"a": 2, "b": 3, "c": 2, "d": 4})


def test_closure_weights_are_the_papers():
    closure = Workload.of(DOMAIN, {("a", "b"): 2.0, ("b", "c", "d"): 1.0}).closure()
    assert closure[("b",)] == 3.0  # 2 |b and ab| + 1 |b and bcd|
    assert closure[("a", "b")] == 2 * 2 + 1
    assert closure[("c", "d")] == 2.0
    assert ("a", "c") not in closure
    assert list(closure)[:4] == [("a",), ("b",), ("c",), ("d",)]


def test_weights_do_not_depend_on_how_a_workload_is_written():
    twice = Workload.of(DOMAIN, [("a", "b"), ("b", "a"), ("c", "d")])
    once = Workload.of(DOMAIN, {("a", "b"): 2.0, ("c", "d"): 1.0})
    assert twice.weights == once.weights
    assert twice.closure() == once.closure()


def test_all_kway_and_target():
    assert len(Workload.all_kway(DOMAIN, 3)) == 4
    assert list(Workload.all_kway(DOMAIN, 9)) == [("a", "b", "c", "d")]
    assert all("c" in clique and len(clique) == 3 for clique in Workload.target(DOMAIN, "c"))
    assert len(Workload.target(DOMAIN, "c")) == 3


def test_skewed_is_the_same_for_the_same_seed_and_counts_draws():
    first, again, other = (Workload.skewed(DOMAIN, seed).weights for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert sum(first.values()) == 256


@pytest.mark.parametrize("text", ["all-2way", "target:b", "skewed:1"])
def test_written_workloads(text):
    assert len(Workload.parse(text, DOMAIN)) > 0


def test_file_with_weights(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text("- [a, b]\n- {clique: [d, c], weight: 2.5}\n")
    assert Workload.parse(str(path), DOMAIN).weights == {("a", "b"): 1.0, ("c", "d"): 2.5}


@pytest.mark.parametrize("content", ["- [a, zz]\n", "a: 1\n", "- {weight: 1}\n", "[[[", "- [a, a]\n", "- []\n"])
def test_bad_files_are_refused(tmp_path, content):
    path = tmp_path / "w.yaml"
    path.write_text(content)
    with pytest.raises((SettingError, SchemaError)):
        Workload.parse(str(path), DOMAIN)


@pytest.mark.parametrize("text", ["", "all-0way", "all-xway", "target:", "target:zz", "everything", "none.yaml"])
def test_bad_texts_are_refused(text):
    with pytest.raises((SettingError, SchemaError)):
        Workload.parse(text, DOMAIN)


@pytest.mark.parametrize("weights", [{}, {("a",): 0.0}, {("a",): -1.0}, {("a",): float("nan")}])
def test_useless_weights_are_refused(weights):
    with pytest.raises(SettingError):
        Workload.of(DOMAIN, weights)


def test_more_tables_than_can_be_listed_are_refused_at_once():
    wide = Domain({f"c{number}": 2 for number in range(40)})
    with pytest.raises(SettingError, match=r"all-6way of 40 columns has 3838380 marginals; .* \.yaml file"):
        Workload.parse("all-6way", wide)
    assert len(Workload.parse("all-40way", wide)) == 1


def test_the_closure_of_many_columns_takes_no_table_of_cliques_by_columns():
    workload = Workload.all_kway(Domain(dict.fromkeys(map(str, range(400)), 2)), 2)
    tracemalloc.start()
    try:
        closure = workload.closure()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(closure) == 400 + 400 * 399 / 2
    assert peak < 100e6  # such a table alone has 255 MB
