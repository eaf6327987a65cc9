"""Checks for the tests of this package and of packages that add a mechanism. Nothing here protects anybody.

| module | what it is for |
|---|---|
| `contract` | the checks that every mechanism passes: `check_mechanism(Mine())` |
| `spy` | records every draw of noise and computes the privacy cost again, from first principles |
| `twin` | replays the gate's answers on one table for another table: nothing else may differ |
| `canary` | searches files, messages and errors for values of the table |
| `audit` | tells runs on two neighbouring tables apart, bounds what leaks, compares it with the claim; laws of counts |
| `likelihood` | a gate that adds up the exact likelihood ratio of its answers between two tables |
| `pairs` | worst-case neighbouring tables, and runs of a mechanism on both |
| `replay` | repeats runs on the other table with the same answers, and looks for noise that was used twice |
| `one_run` | the audit of a single run with many canaries |
| `tables` | small sources of coded rows, and a source that must not be read |

`insecure(seed)` is the only test mode: noise drawn within it is reproducible, everything made within it is marked, and
the ledger refuses it. The modules are imported where they are used: `import understudy` does not load them.
"""

from __future__ import annotations

from understudy.gate.randomness import insecure

__all__ = ["expect", "insecure"]


def expect(condition: object, message: str) -> None:
    """Raise an AssertionError with this message unless the condition holds, also under ``python -O``."""
    if not condition:
        raise AssertionError(message)
