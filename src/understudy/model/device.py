"""Belief propagation on a GPU, for models larger than the processor's caches.

Only the messages between the cliques of the tree are computed there: potentials go to the device, marginals come back.
What goes wrong on a device never ends a fit: the first marginals are compared with those of the processor, and from the
first difference or error on, the processor computes them.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from understudy.domain import Clique
from understudy.errors import Notice
from understudy.model.junction_tree import JunctionTree
from understudy.model.propagate import Propagation, Vector

LEAST_MIB = 50.0
"""The smallest junction tree that is worth a device: the processor passes over smaller ones in milliseconds."""

_ROOM = 2.5  # device memory that a call needs, in trees: all beliefs, the largest of them again, and inputs
_SAME = 1e-6  # largest relative difference between the device's marginals and the processor's


class DeviceFailed(Notice):
    """A GPU is there but could not be used; the processor did the work."""


@dataclass(frozen=True)
class Device:
    """A GPU.

    Attributes:
        arrays: the module of its arrays, cupy, whose functions have numpy's names.
        to_host: a function that copies an array of the device to this one's memory.
        free_mib: a function that returns how much memory is left.
    """

    arrays: Any
    to_host: Callable[[Any], Vector]
    free_mib: Callable[[], float]


@lru_cache(maxsize=1)
def find_device() -> Device | None:
    """Return the first GPU that cupy (`[gpu]`) finds; None without one, or if the variable UNDERSTUDY_GPU is "off"."""
    if os.environ.get("UNDERSTUDY_GPU", "").lower() == "off":
        return None
    try:
        import cupy

        cupy.zeros(1).sum()  # compiles and runs: a driver that is too old is found here
    except Exception:  # not installed, no driver, no device, or one that does not run
        return None
    kept = cupy.get_default_memory_pool()  # what earlier fits used is there for the next
    return Device(cupy, cupy.asnumpy, lambda: (cupy.cuda.runtime.memGetInfo()[0] + kept.free_bytes()) / 2**20)


def make_propagation(tree: JunctionTree, cliques: Iterable[Clique], *, more: int) -> Propagation:
    """Return the marginal oracle of a fit: on a GPU if the tree is large and there is one with enough memory.

    Args:
        tree: the junction tree.
        cliques: the cliques of the marginals.
        more: as for `Propagation`.
    """
    device = find_device() if tree.size_mib >= LEAST_MIB else None
    if device is not None and device.free_mib() < _ROOM * tree.size_mib:
        _warn(f"the GPU has {device.free_mib():.0f} MiB left, and this model needs {_ROOM * tree.size_mib:.0f} MiB")
        device = None
    if device is None:
        return Propagation(tree, cliques, more=more, beliefs=False)
    return DevicePropagation(tree, cliques, more=more, device=device)


def _warn(reason: str) -> None:
    warnings.warn(f"{reason}; the processor does the work instead", DeviceFailed, stacklevel=2)


class DevicePropagation(Propagation):
    """Belief propagation whose messages are computed on a GPU; everything else is as on the processor.

    Sums are in double precision, so marginals agree with the processor's to rounding. If the linear domain underflows,
    the processor takes over in the log domain, as it does without a device.
    """

    def __init__(self, tree: JunctionTree, cliques: Iterable[Clique], *, more: int, device: Device) -> None:
        super().__init__(tree, cliques, more=more, beliefs=False)
        self._device: Device | None = device
        self._is_checked = False
        homes = [tree.home(clique) for clique in self.tables[: self.factors]]
        self._mine = [[t for t, home in enumerate(homes) if home == i] for i in range(len(tree.cliques))]
        self._children = [tree.children(i) for i in range(len(tree.cliques))]

    @property
    def is_on_device(self) -> bool:
        """Whether the next call will use the device."""
        return self._device is not None

    def _pass_messages(self) -> float:
        """Compute the marginals on the device; compares the first ones with the processor's."""
        if self._device is None:
            return super()._pass_messages()
        try:
            found, sums, smallest = self._compute(self._device)
        except Exception as error:  # whatever it was: a run that has spent its budget must not end here
            self._device = None
            _warn(f"the GPU failed ({type(error).__name__})")
            return super()._pass_messages()
        if not self._is_checked:
            before = super()._pass_messages()
            mine = self.room[: self.size]
            if before >= 0.0 and not np.allclose(found, mine, rtol=_SAME, atol=_SAME * mine[-1] / self.size):
                self._device = None
                _warn("the GPU's marginals differ from the processor's")
                return before
            self._is_checked = before >= 0.0
        self.room[: self.size] = found
        self._sums[self._steps.normalisers] = sums
        return smallest

    def _compute(self, device: Device) -> tuple[Vector, Vector, float]:
        """Pass messages to the root and back.

        Returns:
            The marginals, all with the same sum; the sums by which the upward messages were divided, last clique first;
            the smallest cell of a divided message, or -1 if one is 0 everywhere.
        """
        xp, tree = device.arrays, self.tree
        potentials = xp.asarray(self._work[: self._arranged.maximal])
        factors = [potentials[self.slice_of(table)] for table in range(self.factors)]
        beliefs: list[Any] = [None] * len(tree.cliques)
        up: list[Any] = [None] * len(tree.cliques)
        sums, least = [], []
        for i in range(len(tree.cliques) - 1, -1, -1):
            inputs = [(self.tables[table], factors[table]) for table in self._mine[i]]
            inputs += [(tree.separator(child), up[child]) for child in self._children[i]]
            beliefs[i] = self._multiply(xp, tree.cliques[i], inputs)
            if i:
                message = self._sum_out(beliefs[i], tree.cliques[i], tree.separator(i))
                sums.append(message.sum())
                divisor = xp.where(sums[-1] > 0.0, sums[-1], 1.0)
                up[i] = message / divisor
                beliefs[i] /= divisor
                least.append(up[i].min())
        found = xp.empty(self.size)
        for i, clique in enumerate(tree.cliques):
            for child in self._children[i]:
                separator = tree.separator(child)
                down = self._sum_out(beliefs[i], clique, separator)
                ratio = xp.where(up[child] > 0.0, down / xp.where(up[child] > 0.0, up[child], 1.0), 0.0)
                beliefs[child] *= ratio.reshape(self._broadcast(separator, tree.cliques[child]))
            for table in self._mine[i]:
                found[self.slice_of(table)] = self._sum_out(beliefs[i], clique, self.tables[table]).ravel()
            beliefs[i] = None
        for table, host in self._arranged.hosts.items():
            whole = found[self.slice_of(host)].reshape(tree.domain.shape(self.tables[host]))
            found[self.slice_of(table)] = self._sum_out(whole, self.tables[host], self.tables[table]).ravel()
        divided = np.array([float(each) for each in sums])
        smallest = min((float(each) for each in least), default=1.0)
        return device.to_host(found), divided, smallest if (divided > 0.0).all() else -1.0

    def _multiply(self, xp: Any, clique: Clique, inputs: Sequence[tuple[Clique, Any]]) -> Any:
        """Return the product of tables inside a clique as a table of the clique."""
        out = xp.ones(self.tree.domain.shape(clique))
        for columns, values in inputs:
            out *= values.reshape(self._broadcast(columns, clique))
        return out

    def _sum_out(self, values: Any, clique: Clique, wanted: Clique) -> Any:
        """Return the sums of a clique's table over the columns that are not wanted."""
        lost = tuple(axis for axis, column in enumerate(clique) if column not in wanted)
        return values.sum(axis=lost) if lost else values

    def _broadcast(self, columns: Clique, clique: Clique) -> list[int]:
        return [self.tree.domain[column] if column in columns else 1 for column in clique]
