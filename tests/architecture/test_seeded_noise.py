"""Noise in tests: the same whenever a test is run, true random bits where a test asks for them."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from understudy.gate.noise import discrete_gaussian
from understudy.gate.randomness import is_insecure
from understudy.source.unit import new_key

PROGRAM = """
import os, secrets
from understudy.gate.noise import discrete_gaussian
from understudy.gate.randomness import is_insecure
if {fork} and (child := os.fork()):
    os.waitpid(child, 0)
print(discrete_gaussian(10, 9).tolist(), is_insecure(), secrets.token_hex(8), flush=True)
"""


def draw() -> list[object]:
    """Something of everything that chance decides."""
    noise = [discrete_gaussian(sigma, 9).tolist() for sigma in (10, 1e6)]
    return [*noise, new_key(), secrets.randbelow(1 << 32), np.random.default_rng().integers(1 << 60)]


def draw_in_processes(count: int, *, fork: bool = False) -> list[str]:
    line = [sys.executable, "-c", PROGRAM.format(fork=fork)]
    return [subprocess.run(line, capture_output=True, text=True, check=True).stdout for _ in range(count)]


def first_bits(label: str, size: int) -> bytes:
    return hashlib.shake_256(f"{label}\0{__name__}\0{1}".encode()).digest(size)


@pytest.fixture(scope="module", params=["one", "other"])
def shared(request: pytest.FixtureRequest) -> tuple[str, list[object]]:
    return request.param, draw()


def test_random_bits_depend_on_the_name_of_the_test(request):
    assert os.urandom(48) == first_bits(request.node.nodeid, 48)


@pytest.mark.parametrize("order", [0, 1])
def test_what_ran_before_leaves_no_trace(shared, order, request, seed):
    assert os.urandom(48) == first_bits(request.node.nodeid, 48)
    place = ["one", "other"].index(shared[0])
    with seed(f"{request.node.nodeid.partition('::')[0]}::shared[{place}]"):
        assert draw() == shared[1]


def test_all_that_chance_decides_is_seeded_and_nothing_is_in_the_test_mode(seed):
    made = []
    for label in ("a", "a", "b"):
        with seed(label):
            made.append(draw())
            assert not is_insecure()
    assert made[0] == made[1]
    assert all(mine != other for mine, other in zip(made[0], made[2], strict=True))


def test_processes_that_a_test_starts_are_seeded_each_by_its_number(monkeypatch, tmp_path):
    made = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv("UNDERSTUDY_TESTS_STARTED", str(tmp_path / folder))
        made.append(draw_in_processes(2))
    assert made[0] == made[1]
    assert made[0][0] != made[0][1]
    assert all(" False " in line for line in made[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_repeats_nothing(monkeypatch, tmp_path):
    lines = draw_in_processes(1, fork=True)[0].splitlines()
    assert len(set(lines)) == 2
    monkeypatch.setenv("UNDERSTUDY_TESTS_STARTED", str(tmp_path))
    assert draw_in_processes(1, fork=True)[0].splitlines() == lines


@pytest.mark.law
def test_a_test_of_the_law_draws_true_random_bits(seed):
    """Fails by chance with probability below 2^-256: two keys of 32 bytes would have to be equal."""
    assert "UNDERSTUDY_TESTS_LABEL" not in os.environ
    assert draw() != draw()
    assert len(set(draw_in_processes(2))) == 2
    with seed(None):
        kept = new_key()
    with seed(None):
        assert new_key() != kept


def test_no_variable_of_the_environment_is_read_by_the_generator():
    """The sequence of a label exists in tests alone."""
    import understudy.gate.noise
    import understudy.gate.randomness

    for module in (understudy.gate.noise, understudy.gate.randomness):
        assert "environ" not in Path(module.__file__ or "").read_text(encoding="utf-8")


def is_marked(nodes: list[ast.expr]) -> bool:
    """Whether one of them is the mark, also in a list of marks or at a parameter."""
    return any("pytest.mark.law" in ast.unparse(node) for node in nodes)


def test_every_test_of_the_law_states_a_small_probability_of_failing_by_chance():
    found = 0
    for path in sorted(Path(__file__).parents[1].rglob("test_*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        whole = is_marked([node.value for node in module.body if isinstance(node, ast.Assign)])
        tests = [
            node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        ]
        for test in tests if whole else [test for test in tests if is_marked(test.decorator_list)]:
            found += 1
            words = f"{ast.get_docstring(module)} {ast.get_docstring(test)}"
            stated = [float(number) for number in re.findall(r"\b\d+e-\d+", words)]
            stated += [2.0 ** -int(power) for power in re.findall(r"\b2\^-(\d+)", words)]
            assert "probability" in words, f"{path.name}: {test.name}"
            assert min(stated, default=1.0) <= 1e-9, f"{path.name}: {test.name}"
    assert found > 20
