"""The one road from rows to a release: resolve, check, reserve, execute, write.

`road` the road itself (`synthesize`, `resume`); `folder` everything that a run file asks for, in one folder (`run`,
`rehearse`); `file` the run file; `checks` what is checked before anything is reserved; `record` questions and answers
between gate and ledger; `quality` the measured workload error; `rehearsal` rows made from a schema alone.
"""

from understudy.run.folder import Outcome, rehearse, run

__all__ = ["Outcome", "rehearse", "run"]
