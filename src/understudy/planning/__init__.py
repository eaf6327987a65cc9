"""Choosing a budget before a row is read: what to expect of each mechanism, and what epsilon means."""

from understudy.planning.advice import Line
from understudy.planning.expected import Expected
from understudy.planning.odds import Odds, check_delta, default_delta, odds_of
from understudy.planning.plan import Plan, plan

__all__ = ["Expected", "Line", "Odds", "Plan", "check_delta", "default_delta", "odds_of", "plan"]
