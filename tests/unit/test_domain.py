"""Domains: what makes two of them equal, and which codes belong together."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from understudy.domain import CodeGroups, Domain, Forbidden
from understudy.mechanism.mst import MST
from understudy.schema import Recoding, Schema

SIZES = {"a": 2, "b": 3}


def corner(row, column, clique=("a", "b")):
    mask = np.zeros([SIZES[name] for name in clique], np.bool_)
    mask[row, column] = True
    return Forbidden(clique, lambda: mask)


def test_domains_are_equal_when_columns_sizes_and_rules_are():
    same = Domain(SIZES, [corner(0, 1)])
    assert Domain(SIZES, [corner(0, 1)]) == same
    assert hash(Domain(SIZES, [corner(0, 1)])) == hash(same)
    assert Domain(SIZES) == Domain(SIZES)


@pytest.mark.parametrize(
    "other",
    [
        Domain(SIZES),
        Domain(SIZES, [corner(1, 1)]),
        Domain(SIZES, [corner(0, 1), corner(1, 2)]),
        Domain(SIZES, [corner(0, 1, ("b", "a"))]),
        Domain({"b": 3, "a": 2}, [corner(0, 1)]),
        Domain({"a": 2, "b": 4}, [corner(0, 1)]),
    ],
    ids=["no rule", "another cell", "one more rule", "another clique", "another order", "another size"],
)
def test_domains_that_allow_different_rows_are_not_equal(other):
    assert other != Domain(SIZES, [corner(0, 1)])


def test_a_domain_is_compared_with_itself_without_working_out_its_rules():
    def never():
        raise AssertionError("worked out")

    domain = Domain(SIZES, [Forbidden(("a", "b"), never)])
    assert domain == domain
    assert isinstance(hash(domain), int)


def test_merged_rules_of_equal_domains_are_equal():
    recoding = Recoding({"b": np.array([0, 1, 1])})
    one, other = (recoding.recode(Domain(SIZES, [corner(0, 0)])) for _ in range(2))
    assert one == other
    assert one != recoding.recode(Domain(SIZES, [corner(0, 2)]))


def test_what_is_remembered_of_a_domain_is_not_taken_for_one_with_rules():
    sizes = dict.fromkeys("abc", 300)
    free = Domain(sizes)
    ruled = Domain(sizes, [Forbidden(("a", "b"), lambda: np.zeros((300, 300), np.bool_))])
    footprint = cache(MST().footprint)
    assert footprint(free).memory_bytes < footprint(ruled).memory_bytes


def test_code_groups_are_no_part_of_the_domain():
    groups = CodeGroups({"c": [np.array([0, 0, 1])]}, {"n": 5, "m": 4}, ["n", "c"])
    assert [len(groups.levels(column)) for column in "cn"] == [1, 0]
    assert [groups.axis(column) for column in "cnm"] == [0, 5, 4]
    assert [groups.has_order_rule(column) for column in "cnm"] == [False, True, False]
    plain = Schema.from_domain({"a": 5, "b": 5})
    tied = Schema.from_dict(plain.to_dict() | {"understudy": {"privacy_unit": "row", "rules": [{"order": ["a", "b"]}]}})
    assert tied.code_groups.has_order_rule("a")
    assert not plain.code_groups.has_order_rule("a")
    assert dict(tied.domain) == dict(plain.domain)
