"""A column of 100,000 values in every mechanism: merged by noisy counts and hierarchy, refined when rows are made."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.accounting import Budget
from understudy.domain import CodeGroups, Domain
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.gate.randomness import insecure
from understudy.measurement import Measurement
from understudy.mechanism import MECHANISMS
from understudy.mechanism.aim import AIM, fit_into
from understudy.mechanism.compress import compress
from understudy.mechanism.gem import GEM
from understudy.mechanism.privsyn import PrivSyn
from understudy.schema import Schema
from understudy.testing.tables import CodedSource

SIZE, GROUPS = 100_000, 50
CODES = [f"{i:05d}" for i in range(SIZE)]


@cache
def schema_of(*, levels):
    groups = {f"g{g}": CODES[g::GROUPS] for g in range(GROUPS)}
    ours = {"levels": [{"name": "group", "groups": groups}]} if levels else {}
    return Schema.from_dict(
        {
            "fields": [
                {"name": "code", "type": "string", "categories": CODES, "understudy": ours},
                {"name": "sex", "type": "string", "categories": ["F", "M"]},
                {"name": "region", "type": "string", "categories": [f"r{i}" for i in range(10)]},
            ],
            "understudy": {"privacy_unit": "row"},
        }
    )


@cache
def people(rows=40_000):
    """A third of the rows have one of a few common codes, the others any; the region follows the code's group."""
    rng = np.random.default_rng(0)
    code = np.where(rng.random(rows) < 0.33, rng.integers(0, 20, rows), rng.integers(0, SIZE, rows))
    region = np.where(rng.random(rows) < 0.9, code % GROUPS // 5, rng.integers(0, 10, rows))
    return pd.DataFrame(
        {
            "code": [CODES[i] for i in code],
            "sex": np.where(rng.random(rows) < 0.2 + 0.6 * (code % GROUPS < 25), "F", "M"),
            "region": [f"r{i}" for i in region],
        }
    )


@cache
def made(mechanism, *, levels=False, epsilon=2, **settings):
    with insecure(7):
        schema = schema_of(levels=levels)
        return us.synthesize(people(), schema, epsilon=epsilon, delta=1e-6, mechanism=mechanism, **settings)


EVERY = [
    "mst", "aim", "adaptive", "privbayes", "privsyn", "independent", "gaussian", "mwem",
    "hdmm", "dpsyn", "dpfieldgroups", "privmrf", "rap",
]  # fmt: skip


@pytest.mark.parametrize("mechanism", EVERY)
def test_every_mechanism_takes_a_column_of_100_000_values(mechanism):
    settings = {
        "aim": {"rounds": 2},
        "mwem": {"workload": "all-2way"},
        "gaussian": {"max_cells": 1000},
        "rap": {"workload": "all-2way", "rounds": 1, "batch": 2},
    }
    release = made(mechanism, **settings.get(mechanism, {}))
    rows = release.sample(20_000, seed=1, as_="pandas")
    assert len(rows) == 20_000
    common = set(CODES[:20])
    if mechanism == "dpfieldgroups":  # its threshold, as published, leaves nothing of rare values
        assert rows["code"].isin(common).mean() > 0.9
    elif mechanism != "mwem":  # its rounds may never look at the column
        assert 0.2 < rows["code"].isin(common).mean() < 0.45


@pytest.mark.parametrize("mechanism", ["mst", "aim", "adaptive", "privbayes", "privsyn"])
def test_the_hierarchy_carries_what_rare_values_share(mechanism):
    def agreement(*, levels):
        settings = {"rounds": 2} if mechanism == "aim" else {}
        rows = made(mechanism, levels=levels, epsilon=10, **settings).sample(40_000, seed=1, as_="pandas")
        rare = rows[rows["code"].str.fullmatch("[0-9]{5}") & ~rows["code"].isin(CODES[:20])]
        region = rare["code"].astype(int) % GROUPS // 5
        return float((rare["region"] == "r" + region.astype(str)).sum()) / len(rows)

    with_levels, without = agreement(levels=True), agreement(levels=False)
    assert with_levels > 0.3  # the truth is 0.61
    assert with_levels > without + 0.2


def test_rare_codes_go_up_the_hierarchy_as_far_as_they_must():
    counts = Measurement(("c",), np.array([90, 3, 3, 1, 0, 2, 1, 0]), 1.0)
    fine, coarse = np.array([0, 1, 1, 2, 2, 3, 3, 3]), np.array([0, 0, 0, 1, 1, 1, 1, 1])
    domain, groups = Domain({"c": 8}), CodeGroups({"c": [fine, coarse]})
    assert compress(domain, [counts], groups, threshold=4).merged_codes("c") == [[0], [1, 2], [3, 4, 5, 6, 7]]
    lonely = CodeGroups({"c": [fine]})
    assert compress(domain, [counts], lonely, threshold=2).merged_codes("c")[:1] == [[0]]
    assert compress(Domain({"c": 8}), [counts], threshold=4).merged_codes("c") == [[0], [1, 2, 3, 4, 5, 6, 7]]


def test_a_group_of_the_hierarchy_is_refined_and_the_rest_is_other():
    rows = made("mst", levels=True, epsilon=10).sample(20_000, seed=2, as_="pandas")
    assert (rows["code"] == "other").mean() < 0.2
    assert rows["code"].nunique() > 5000


def test_what_needs_too_much_memory_is_refused_before_anything_is_spent(tmp_path):
    content = schema_of(levels=False).to_dict()
    content["fields"].append({**content["fields"][0], "name": "second"})
    wide = Schema.from_dict(content)
    frame = people(10).assign(second="00001")
    for settings in (
        {"mechanism": "mst", "keep": [("code", "second")]},
        {"mechanism": "gaussian", "max_cells": 10**11, "workload": "all-2way"},
        {"mechanism": "aim", "max_cells": 10**11, "workload": "all-2way"},
    ):
        with pytest.raises(SettingError, match=r"too large|may need"):
            us.synthesize(frame, wide, epsilon=1, delta=1e-6, output=tmp_path / "r.release", **settings)
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_such_a_column_needs_less_than_two_gigabytes_in_every_mode(name):
    chosen = {"cliques": [("sex", "region")]} if name == "nist-mst" else {}
    for mode in (dict, MECHANISMS[name].paper_settings):
        if name != "gem" or mode is dict:
            mechanism = MECHANISMS[name](**mode(), **chosen)
            assert mechanism.footprint(Domain({"code": SIZE, "sex": 2, "region": 10})).memory_bytes < 2 << 30


def test_the_published_network_refuses_very_many_codes_before_anything_is_spent():
    table = PrivateTable(CodedSource({"code": SIZE, "sex": 2}, [[0, 0]]), Budget.of(rho=1.0))
    for refused in (GEM.as_published().footprint, lambda domain: GEM.as_published().fit(table, rho=1.0)):
        with pytest.raises(SettingError, match=r"at most 10,000 values .* not 100,002; use queries='marginals'"):
            refused(table.domain)
    assert not table.account.charges


def test_candidates_that_merging_lets_in_stay_within_what_the_preflight_counted():
    declared = Domain(dict.fromkeys("abcdef", 10_000))
    mechanism = AIM(workload="all-2way")
    room = mechanism._count_room(declared)
    assert mechanism.footprint(declared).memory_bytes >= 32 * room
    assert room >= 6 * 10_000
    merged = Domain(dict.fromkeys("abcdef", 1400))
    kept = fit_into(merged, mechanism._cliques(merged), room)
    assert sum(map(merged.cells, kept)) <= room
    assert {("a",), ("f",)} <= set(kept)
    pairs = [clique for clique in kept if len(clique) == 2]
    assert 0 < len(pairs) <= 15
    small = Domain(dict.fromkeys("abc", 9))
    assert fit_into(small, mechanism._cliques(small), mechanism._count_room(small)) == mechanism._cliques(small)
    wide = PrivSyn().footprint(declared).memory_bytes
    assert wide >= 100 * 15 * PrivSyn().pair_cells
