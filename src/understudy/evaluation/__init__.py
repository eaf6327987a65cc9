"""Scores of a stand-in against the real table, and attacks on a release: for the custodian only, and not private."""

from understudy.evaluation.attacks import attack
from understudy.evaluation.scores import evaluate, write_report

__all__ = ["attack", "evaluate", "write_report"]
