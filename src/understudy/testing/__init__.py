"""For tests, ours and those of packages that add a mechanism. Nothing here protects anybody.

| module | what it is for |
|---|---|
| `contract` | the checks that every mechanism passes: `check_mechanism(Mine())` |
| `spy` | watches every draw of noise and works the privacy cost out again, from first principles |
| `twin` | replays what the gate answered on one table over another table: nothing else may differ |
| `canary` | looks for values of the table in files, messages and errors |
| `audit` | a lower bound of epsilon from many runs on two neighbouring tables |
| `tables` | small sources of coded rows, and one that must not be read |

`insecure(seed)` is the only test mode: noise drawn within it is reproducible, everything made within it is marked, and
the ledger refuses it. The modules are imported where they are used: `import understudy` does not load them.
"""

from __future__ import annotations

from understudy.gate.randomness import insecure

__all__ = ["insecure"]
