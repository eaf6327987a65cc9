import itertools
import math

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.errors import SchemaError, SettingError
from understudy.model.junction_tree import JunctionTree

DOMAIN = Domain({"a": 2, "b": 3, "c": 4, "d": 5, "e": 1, "f": 7})


def assert_running_intersection(tree: JunctionTree) -> None:
    for column in tree.domain:
        holders = [i for i, clique in enumerate(tree.cliques) if column in clique]
        tops = [i for i in holders if tree.parents[i] not in holders]
        assert len(tops) <= 1, f"{column} is in two unconnected places"


def test_loop_is_triangulated():
    tree = JunctionTree.of(DOMAIN, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
    assert_running_intersection(tree)
    sizes = sorted(len(clique) for clique in tree.cliques)
    assert sizes == [1, 3, 3]  # f stands alone
    assert tree.cells == 2 * 3 * 4 + 2 * 4 * 5 + 7  # the chord a-c is cheaper than b-d


def test_every_clique_has_a_home_and_single_code_columns_do_not_matter():
    cliques = [("a", "b", "e"), ("c", "e"), ("e",), ("d", "f")]
    tree = JunctionTree.of(DOMAIN, cliques)
    assert all(tree.home(clique) is not None for clique in cliques)
    assert not any("e" in clique for clique in tree.cliques)
    assert tree.home(("a", "c")) is None


def test_empty_and_single_column_domains():
    assert JunctionTree.of(Domain({"only": 1}), [("only",)]).cliques == ((),)
    tree = JunctionTree.of(Domain({"x": 9}), [])
    assert tree.cliques == (("x",),)
    assert tree.size_mib == 9 * 8 / 2**20


def test_size_is_known_without_overflow():
    wide = Domain({f"c{i}": 1000 for i in range(30)})
    tree = JunctionTree.of(wide, [wide.columns])
    assert tree.cells == 1000**30


def test_preview_gives_what_building_gives():
    rng = np.random.default_rng(5)
    domain = Domain({f"c{i}": int(rng.integers(1, 9)) for i in range(9)})
    cliques = [tuple(rng.permutation(domain.columns)[:2]) for _ in range(10)]
    candidates = [c for k in (1, 2, 3) for c in itertools.combinations(domain.columns, k)]
    preview = JunctionTree.of(domain, cliques).size_mib_with(candidates)
    built = [JunctionTree.of(domain, [*cliques, c]).size_mib for c in candidates]
    np.testing.assert_allclose(preview, built, rtol=1e-12)


def test_preview_of_more_columns_than_a_machine_word_has_bits():
    rng = np.random.default_rng(6)
    domain = Domain({f"c{i}": int(rng.integers(2, 9)) for i in range(70)})
    columns = domain.columns
    cliques = [(columns[rng.integers(i)], columns[i]) for i in range(1, 70)] + [(columns[1], columns[67], columns[69])]
    candidates = [(columns[2], columns[68]), (columns[0], columns[69], columns[33]), cliques[4], (columns[66],)]
    tree = JunctionTree.of(domain, cliques)
    assert_running_intersection(tree)
    assert all(tree.home(clique) is not None for clique in cliques)
    built = [JunctionTree.of(domain, [*cliques, c]).size_mib for c in candidates]
    np.testing.assert_allclose(tree.size_mib_with(candidates), built, rtol=1e-12)
    assert tree.size_mib_with([]).shape == (0,)


def test_a_limit_ends_the_search_and_changes_no_decision():
    rng = np.random.default_rng(7)
    domain = Domain({f"c{i}": int(rng.integers(2, 9)) for i in range(12)})
    cliques = [tuple(rng.permutation(domain.columns)[:2]) for _ in range(20)]
    candidates = list(itertools.combinations(domain.columns, 3))
    tree = JunctionTree.of(domain, cliques)
    exact = tree.size_mib_with(candidates)
    limit = float(np.median(exact))
    found = tree.size_mib_with(candidates, enough_mib=limit)
    np.testing.assert_array_equal(found <= limit, exact <= limit)
    np.testing.assert_array_equal(found[exact > limit], exact[exact > limit])
    assert (found >= exact).all()
    assert (found > exact).any()  # the search did end early


def test_graphs_survive_packing():
    from understudy.model.kernels.elimination import pack_bits, unpack_bits

    rng = np.random.default_rng(0)
    for n in (1, 8, 64, 65, 130):
        graph = (rng.random((n, n)) < 0.3).astype(np.uint8)
        rows = pack_bits(graph)
        assert rows.shape == (n, -(-n // 64))
        np.testing.assert_array_equal(unpack_bits(rows), graph.astype(bool))


def test_search_beats_plain_min_fill_on_uneven_sizes():
    # A cycle: min-fill sees no difference between chords, their sizes differ a thousandfold.
    domain = Domain({"a": 100, "b": 2, "c": 100, "d": 2})
    tree = JunctionTree.of(domain, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
    assert tree.cells == 2 * 2 * 100 * 2


def test_small_graphs_get_the_best_tree():
    rng = np.random.default_rng(0)
    for _ in range(20):
        domain = Domain({f"c{i}": int(rng.integers(2, 20)) for i in range(6)})
        edges = [e for e in itertools.combinations(domain.columns, 2) if rng.random() < 0.5]
        best = min(_eliminated(domain, edges, order) for order in itertools.permutations(domain.columns))
        assert JunctionTree.of(domain, edges).cells <= 1.0001 * best


def _eliminated(domain, edges, order):
    near = {c: {x for e in edges for x in e if c in e and x != c} for c in domain}
    cliques = []
    for column in order:
        cliques.append(frozenset(near[column] | {column}))
        for other in near[column]:
            near[other] = (near[other] | near[column]) - {other, column}
    return sum(math.prod(domain.shape(c)) for c in set(cliques) if not any(c < other for other in cliques))


def test_bad_cliques_and_limits_are_refused():
    with pytest.raises(SchemaError, match="unknown column 'z'"):
        JunctionTree.of(DOMAIN, [("a", "z")])
    with pytest.raises(SchemaError, match="named twice"):
        JunctionTree.of(DOMAIN, [("a", "a")])
    with pytest.raises(SettingError, match="the limit is 1e-06 MiB"):
        JunctionTree.of(DOMAIN, [("a", "b")], limit_mib=1e-6)
    with pytest.raises(SchemaError, match="unknown column 'z'"):
        JunctionTree.of(DOMAIN, [("a",)]).size_mib_with([("z",)])
