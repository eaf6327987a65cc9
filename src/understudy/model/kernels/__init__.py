"""Compiled loops, one file for each part of the model that uses them.

These modules are imported inside functions, because numba is slow to import. Loops take plain arrays and serve every
tree and domain, so each is compiled once on a machine. A newcomer waits for that, so they are written to compile fast:
a large loop that few models need is called from Python (`propagation.cross`), no loop assigns slices (numba compiles
the error message for seconds) or makes arrays (numba would count references to every slice), and a large loop that is
called from one place is inlined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

_Loop = TypeVar("_Loop", bound=Callable[..., Any])


def compiled(
    *, fastmath: set[str] | bool = False, inner: bool = False, forceinline: bool = False
) -> Callable[[_Loop], _Loop]:
    """Compile a loop at its first call, and keep the result on disk.

    Args:
        fastmath: the liberties that the compiler may take with sums and products.
        inner: whether only compiled loops call it: then it gets no wrapper for Python, which takes time to compile.
        forceinline: whether it becomes part of its callers.
    """
    from numba import njit

    options: dict[str, Any] = {"cache": True, "_nrt": False, "error_model": "numpy"}
    wrappers: dict[str, Any] = {"no_cfunc_wrapper": True, "no_cpython_wrapper": inner}
    return cast(Callable[[_Loop], _Loop], njit(**options, **wrappers, fastmath=fastmath, forceinline=forceinline))
