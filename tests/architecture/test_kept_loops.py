"""Loops that an earlier version compiled and kept must not get in the way of a later one."""

import re
from pathlib import Path

from numba.core.registry import CPUDispatcher

import understudy.model.kernels.descent
import understudy.model.kernels.propagation
from understudy.domain import Domain
from understudy.measurement import Measurement
from understudy.model.estimate import estimate


def test_kept_loops_name_no_class_that_could_move():
    """Numba reads the classes in an index before it looks whether the index is of another version."""
    table = [30.0, 20.0, 10.0, 40.0, 50.0, 60.0]
    estimate(Domain({"a": 2, "b": 3}), [Measurement(("a", "b"), table, 1.0)])
    kernels = understudy.model.kernels
    found = set()
    for module in (kernels.descent, kernels.propagation):
        for loop in vars(module).values():
            if isinstance(loop, CPUDispatcher) and hasattr(loop._cache, "_cache_file"):
                index = Path(loop._cache._cache_file._index_path)
                found |= set(re.findall(rb"understudy[\w.]*", index.read_bytes())) if loop.signatures else set()
    assert found == {b"understudy.model.kernels.arguments"}
