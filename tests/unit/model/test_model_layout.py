import itertools

import numpy as np
import pytest

from understudy.domain import Domain
from understudy.model.junction_tree import JunctionTree
from understudy.model.propagate import Propagation
from understudy.model.schedule import Layout


@pytest.mark.parametrize("seed", range(30))
def test_tables_that_are_needed_together_do_not_overlap(seed):
    rng = np.random.default_rng(seed)
    layout, fixed = Layout(), [(0, 10), (10, 7), (17, 20)]
    layout.add_given(*fixed[0])
    sizes = dict(fixed) | {layout.new(cells): cells for cells in rng.integers(1, 30, 25).tolist()}
    needed = {number: {-1} if number == 0 else set() for number in sizes}
    for step in range(40):
        for number in rng.choice(list(sizes), 4, replace=False).tolist():
            layout.use(number, sizes[number], step)
            needed[number].add(step)
    for number in rng.choice([n for n in sizes if needed[n]], 3, replace=False).tolist():
        layout.keep(number)
        needed[number].add(10**6)
    places, end = layout.decide_places()
    assert {number: places[number] for number, _ in fixed if needed[number]} == {n: n for n, _ in fixed if needed[n]}
    spans = {n: (min(steps), max(steps)) for n, steps in needed.items() if steps}
    for one, other in itertools.combinations(spans, 2):
        together = spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]
        apart = places[one] + sizes[one] <= places[other] or places[other] + sizes[other] <= places[one]
        assert apart or not together
    assert end == max(places[number] + sizes[number] for number in places)


def test_one_place_serves_tables_that_never_meet():
    layout = Layout()
    numbers = [layout.new(10) for _ in range(5)]
    for step, number in enumerate(numbers):
        layout.use(number, 10, step)
    places, end = layout.decide_places()
    assert set(places.values()) == {0}
    assert end == 10


def test_without_beliefs_the_workspace_is_hardly_more_than_exponentials_and_marginals():
    domain = Domain({f"c{i}": 12 for i in range(8)})
    cliques = [(f"c{i}", f"c{(i + k) % 8}") for i in range(8) for k in (1, 2)]
    tree = JunctionTree.of(domain, cliques)
    kept, short = (Propagation(tree, cliques, beliefs=beliefs) for beliefs in (True, False))
    potentials = np.random.default_rng(0).normal(size=kept.size)
    nothing = np.empty(0, np.int64)
    np.testing.assert_array_equal(
        kept.marginals(potentials, 1.0, forbidden=nothing), short.marginals(potentials, 1.0, forbidden=nothing)
    )
    assert len(short._work) < len(kept._work)
    with pytest.raises(ValueError, match="without beliefs"):
        short.belief(0)
