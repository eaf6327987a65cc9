"""Runs from rows to a release: resolve, check, reserve, execute, write.

`pipeline`: these steps (`synthesize`, `resume`). `folder`: all outputs of a run file in one folder (`run`, `rehearse`).
`file`: the run file. `auto`: the choice of a mechanism. `checks`: checks before anything is reserved. `record`:
questions and answers between gate and ledger. `public`: public tables. `quality`: the measured workload error.
`linked`: linked tables.
"""

from understudy.run.folder import Outcome, rehearse, run

__all__ = ["Outcome", "rehearse", "run"]
