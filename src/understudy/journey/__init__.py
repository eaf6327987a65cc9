"""The whole journey in one step: from a run file to a release, rows and reports in one folder."""

from understudy.journey.run import Outcome, rehearse, run

__all__ = ["Outcome", "rehearse", "run"]
