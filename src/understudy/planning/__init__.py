"""Choose a budget before a row is read: the expected errors of each mechanism, and the meaning of epsilon."""

from understudy.planning.odds import Odds, check_delta, default_delta, odds_of
from understudy.planning.plan import Accuracy, Line, Plan, plan
from understudy.planning.predict import Expected

__all__ = ["Accuracy", "Expected", "Line", "Odds", "Plan", "check_delta", "default_delta", "odds_of", "plan"]
