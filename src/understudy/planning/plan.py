"""Plan a release: expected errors by budget and mechanism, and a recommendation. Reads no data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import comb
from numbers import Real
from typing import Any

from understudy.accounting import Budget
from understudy.arguments import as_names, as_whole, html_table
from understudy.discovery.discover import discovery_budget
from understudy.errors import SettingError
from understudy.mechanism.registry import AUTO, CHOICES
from understudy.planning.made_up import DISCOVERY_SHARE, assume_facts
from understudy.planning.odds import Odds, check_delta, default_delta, odds_of
from understudy.planning.predict import CLOSE, Expected, PlannedTable, Prediction, check_pure, needs_public, predict
from understudy.schema import Schema

MECHANISMS = ("independent", "mst", "adaptive", "privsyn")
"""The mechanisms compared by default: columns only, a tree of pairs, adaptively chosen marginals, and many pairs."""

EPSILONS = (0.5, 1.0, 2.0)

SMALLEST_EPSILON, LARGEST_EPSILON = 0.01, 20.0
"""The range in which an epsilon for an `Accuracy` is searched; larger ones protect almost nothing."""

_STEPS = 5  # steps of the search for an epsilon
_LONG = 7200.0  # seconds: a mechanism that takes longer is not recommended
_BETTER = 0.97  # relations are worth their budget if fewer rows are misplaced than this times `independent`'s
_ACCURACY = "accuracy: give a group and a percentage of it, such as 200:10%"
_CHOOSING = ("adaptive", "aim", "privmrf", "privsyn")  # mechanisms that choose by the rows how many pairs they measure
_MOST_TIMES = 2  # they measured at most 1.6 times as many on real tables as on made-up ones (benchmarks/plan.md)
_DROWNED = 0.4  # the part of rows in wrong cells of a pair from which on pairs are mostly noise


@dataclass(frozen=True)
class Accuracy:
    """A required accuracy: counts of groups of at least `people` are right within a share of them, 95 times in 100.

    Attributes:
        people: the smallest group that matters.
        within: the largest error of its count, as a part of it.
    """

    people: int
    within: float

    def __post_init__(self) -> None:
        people: Any = self.people
        within: Any = self.within
        if any(isinstance(number, bool) or not isinstance(number, Real) for number in (people, within)):
            raise SettingError(_ACCURACY)
        if not (people >= 1 and people % 1 == 0 and 0 < within <= 1):
            raise SettingError(_ACCURACY)

    @classmethod
    def parse(cls, text: str) -> Accuracy:
        """Parse an accuracy such as `200:10%` or `200:0.1`.

        >>> Accuracy.parse("200:10%")
        Accuracy(people=200, within=0.1)

        Raises:
            SettingError: for anything else.
        """
        if not isinstance(text, str):
            raise SettingError(_ACCURACY)
        people, _, within = text.replace(" ", "").lstrip("~").partition(":")
        try:
            part = float(within[:-1]) / 100 if within.endswith("%") else float(within)
            return cls(int(people.replace(",", "").replace("_", "")), part)
        except ValueError:
            raise SettingError(_ACCURACY) from None

    def error_ratio(self, prediction: Prediction, *, pairs: bool) -> float:
        """Return the error of such groups divided by the allowed error: at most 1 if the accuracy is reached."""
        return prediction.error_of_groups(self.people, pairs=pairs) / (self.people * self.within)


@dataclass(frozen=True)
class Line:
    """The expected results of one mechanism with one budget.

    Attributes:
        epsilon: the budget.
        mechanism: its name.
        expected: the errors.
        memory_bytes: the most memory that a run may need; None where the mechanism refuses the columns.
        seconds: about how long it takes on one core of this machine.
        all_pairs: how many pairs of columns there are.
    """

    epsilon: float
    mechanism: str
    expected: Expected
    memory_bytes: int | None
    seconds: float
    all_pairs: int

    def describe(self) -> dict[str, str]:
        """Describe the results in words: numbers to two figures, "-" if there is no result."""
        found = self.expected
        return {
            "one_way": describe_error(found.one_way, found.one_way_range),
            "two_way": describe_error(found.two_way, found.two_way_range),
            "pairs": "-" if found.two_way is None else self.describe_pairs(),
            "group": _describe_whole(found.group),
            "pair_group": _describe_whole(found.pair_group),
            "numbers": "-" if found.numbers is None else f"{found.numbers:.2g}",
            "memory": _describe_memory(self.memory_bytes),
            "time": describe_duration(self.seconds),
        }

    def describe_pairs(self) -> str:
        """Describe how many pairs of columns are measured; of mechanisms that choose by the rows, the most."""
        if self.mechanism.partition(":")[0] not in _CHOOSING:
            return str(self.expected.pairs)
        return f"up to {min(_MOST_TIMES * self.expected.pairs, self.all_pairs)}"


@dataclass(frozen=True)
class Plan:
    """The expected results of a release, by budget and mechanism.

    **Privacy.** Computed from the schema and declared numbers; no row is read.

    Attributes:
        people: how many people, to two figures; never the true count.
        rows_each: the most rows that one of them has in the table.
        delta: the delta of every budget here.
        columns: how many columns are synthesised.
        lines: one for each epsilon and mechanism.
        odds: the meaning of each epsilon as an attacker's odds.
        recommended: by epsilon, the mechanism to take and why.
        assumed: what was assumed that the schema does not say.
        accuracy: the required accuracy, if any.
        needed: by mechanism, the epsilon that the accuracy needs for groups of one column, and of two columns; None
            if no epsilon up to 20 suffices.
    """

    people: int
    rows_each: int
    delta: float
    columns: int
    lines: tuple[Line, ...]
    odds: dict[float, Odds]
    recommended: dict[float, tuple[str, str]]
    assumed: tuple[str, ...] = ()
    accuracy: Accuracy | None = None
    needed: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        lines = [(f"{epsilon:g}", name, why) for epsilon, (name, why) in self.recommended.items()]
        title = f"Plan for about {self.people:,} people and {self.columns} columns, delta {self.delta:g}"
        return html_table(title, ("epsilon", "mechanism", "why"), lines, notes=self.assumed)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, for JSON."""
        facts = {"people": self.people, "rows_each": self.rows_each, "delta": self.delta, "columns": self.columns}
        required: dict[str, Any] = {}
        if self.accuracy is not None:
            found = {name: {"one_column": one, "pair": pair} for name, (one, pair) in self.needed.items()}
            required = {"accuracy": asdict(self.accuracy) | {"epsilon": found}}
        return facts | {
            "assumed": list(self.assumed),
            **required,
            "budgets": [
                {
                    "epsilon": epsilon,
                    "odds": asdict(odds),
                    "recommended": self.recommended[epsilon][0],
                    "reason": self.recommended[epsilon][1],
                    "mechanisms": {
                        line.mechanism: _line_to_dict(line) for line in self.lines if line.epsilon == epsilon
                    },
                }
                for epsilon, odds in self.odds.items()
            ],
        }


def plan(
    schema: Schema,
    *,
    people: int | None = None,
    epsilons: Sequence[float] | None = None,
    delta: float | None = None,
    mechanisms: Sequence[str] = MECHANISMS,
    accuracy: Accuracy | str | None = None,
) -> Plan:
    """Predict the errors of a release of this schema about this number of people.

    **Privacy.** Reads no data. `people` is rounded to two figures, so that a true count given by mistake is not
    used; if the schema declares `rows`, that is the default.

    Args:
        schema: what is public about the columns; a draft is allowed, and facts left to discovery are assumed.
        people: about how many people (privacy units) the table has.
        epsilons: the budgets to compare; by default 0.5, 1 and 2, or those that the accuracy needs.
        delta: as `default_delta` by default; 0 is pure DP.
        mechanisms: the mechanisms to compare; "auto" stands for the first that it chooses from.
        accuracy: the accuracy that groups need, such as "200:10%"; the plan then states the epsilon for each mechanism.

    Raises:
        SettingError: for a wrong argument, named in the message: an unknown mechanism or one that needs a delta above
            0, a budget out of range, no number of people.
    """
    if not isinstance(schema, Schema):
        raise SettingError('schema: give the schema of one table, such as us.Schema.load("people.schema.yaml")')
    about = round_people(people if people is not None else schema.rows)
    delta = default_delta(about) if delta is None else check_delta(delta, about)
    names = _check_mechanisms(mechanisms, pure=delta == 0)
    given = None if epsilons is None else _check_epsilons(epsilons, delta)
    required = accuracy if accuracy is None or isinstance(accuracy, Accuracy) else Accuracy.parse(accuracy)
    filled, assumed = assume_facts(schema)
    unit = schema.privacy_unit
    table = PlannedTable.of(filled, about * unit.max_rows)

    def predicted(name: str, epsilon: float) -> Prediction:
        budget = discovery_budget(schema, DISCOVERY_SHARE, epsilon=epsilon, delta=delta, rho=None)
        return predict(name, table, budget, 1 - DISCOVERY_SHARE if assumed else 1.0)

    needed = {} if required is None else {name: _find_epsilons(required, partial(predicted, name)) for name in names}
    least = min((one for one, _ in needed.values() if one is not None), default=None)
    lines, advice = [], {}
    for epsilon in given or (EPSILONS if least is None else (least,)):
        found = [(name, predicted(name, epsilon)) for name in names]
        all_pairs = comb(len(filled.domain), 2)
        here = [Line(epsilon, name, p.expected, p.memory_bytes, p.seconds, all_pairs) for name, p in found]
        advice[epsilon] = recommend(here, len(filled.domain))
        lines += here
    odds = {epsilon: odds_of(epsilon, delta) for epsilon in advice}
    public = [f"{name}: its public table is assumed to be like the private one" for name in names if needs_public(name)]
    return Plan(
        about,
        unit.max_rows,
        delta,
        len(filled.domain),
        tuple(lines),
        odds,
        advice,
        (*assumed, *public),
        required,
        needed,
    )


def recommend(lines: Sequence[Line], columns: int) -> tuple[str, str]:
    """Recommend one of the mechanisms compared under one budget, and state the reason.

    The best one has the fewest rows in wrong cells of pairs of columns, measured or not, on the made-up tables. It is
    recommended only if it misplaces fewer rows than independent columns do.

    Args:
        lines: the expected results of each.
        columns: how many columns the table has.
    """
    if len(lines) == 1:
        return lines[0].mechanism, "the only one compared"
    alone = min((line for line in lines if not line.expected.pairs), key=_error_share, default=None)
    if alone is not None and columns == 1:
        return alone.mechanism, "there is one column, and nothing to relate it to"
    related = sorted((line for line in lines if line.expected.pairs), key=_error_share)
    quick = [line for line in related if line.seconds <= _LONG]
    slow = [
        line for line in related if line.seconds > _LONG and (not quick or _error_share(line) < _error_share(quick[0]))
    ]
    best = next(iter(quick), None)
    if best is None or (alone is not None and _error_share(best) > _BETTER * _error_share(alone)):
        if alone is not None:
            return alone.mechanism, "tables of two columns would be mostly noise and show nothing about relations"
        best = (quick or related or list(lines))[0]
    passed = f"with {columns} columns {slow[0].mechanism} would take hours; " if slow else ""
    if best.expected.misplaced > _DROWNED:
        return (
            best.mechanism,
            f"{passed}with every mechanism tables of two columns are mostly noise: use a larger budget",
        )
    others = [f"{100 * _error_share(line):.2g} % with {line.mechanism}" for line in lines if line is not best]
    return best.mechanism, (
        f"{passed}on made-up tables of this shape it misplaces {100 * _error_share(best):.2g} % of the rows in a pair "
        f"of columns ({', '.join(others)}); it measures {best.describe_pairs()} of {best.all_pairs} pairs"
    )


def _error_share(line: Line) -> float:
    return line.expected.misplaced


def _check_mechanisms(mechanisms: Any, *, pure: bool) -> list[str]:
    """Return the names, each once; refuse unknown ones, and those that need a delta above 0 if it is 0."""
    names = [CHOICES[0] if name == AUTO else name for name in as_names("mechanisms", mechanisms)]
    if not names:
        raise SettingError("mechanisms: give at least one, such as mst (`understudy mechanisms` lists them)")
    for name in names:
        check_pure(name, pure=pure)
    return list(dict.fromkeys(names))


def _check_epsilons(epsilons: Any, delta: float) -> list[float]:
    """Return the budgets, each once; refuse invalid ones."""
    numbers = list(epsilons) if isinstance(epsilons, Iterable) and not isinstance(epsilons, str) else [epsilons]
    if not numbers or any(epsilon is None or isinstance(epsilon, str | bool) for epsilon in numbers):
        raise SettingError("epsilons: give a list of positive numbers, such as [0.5, 1, 2]")
    return list(dict.fromkeys(float(Budget.of(epsilon=epsilon, delta=delta).epsilon or 0) for epsilon in numbers))


def _find_epsilons(accuracy: Accuracy, predicted: Callable[[float], Prediction]) -> tuple[float | None, float | None]:
    """Find the epsilon that the accuracy needs for groups of one column, and of a pair of columns."""
    return _find_epsilon(accuracy, predicted, pairs=False), _find_epsilon(accuracy, predicted, pairs=True)


def _find_epsilon(accuracy: Accuracy, predicted: Callable[[float], Prediction], *, pairs: bool) -> float | None:
    """Find about the smallest epsilon, to two figures, that meets the accuracy; None if even the largest does not.

    The error is modelled as a power of epsilon, with exponent -1 at first. Some mechanisms measure pairs only with more
    budget, so the search starts from the largest epsilon if no pair is measured with epsilon 1.
    """
    epsilon = 1.0 if accuracy.error_ratio(predicted(1.0), pairs=pairs) < math.inf else LARGEST_EPSILON
    missed: dict[float, float] = {}
    while len(missed) < _STEPS and epsilon not in missed:
        missed[epsilon] = accuracy.error_ratio(predicted(epsilon), pairs=pairs)
        epsilon = _next_epsilon(missed)
    return min((tried for tried, ratio in missed.items() if ratio <= 1), default=None)


def _next_epsilon(missed: dict[float, float]) -> float:
    """Return where a power law through the last two errors reaches the allowed error; exponent -1 for one error."""
    known = [(epsilon, max(ratio, 1e-9)) for epsilon, ratio in missed.items() if ratio < math.inf][-2:]
    if not known:
        return LARGEST_EPSILON
    (before, one), (last, other) = known[0], known[-1]
    power = math.log(one / other) / math.log(last / before) if len(known) > 1 else 1.0
    wanted = max(SMALLEST_EPSILON, last * other ** (1 / min(max(power, 0.3), 2.0)))
    return LARGEST_EPSILON if wanted >= LARGEST_EPSILON else _round_up(wanted)


def _round_up(number: float) -> float:
    """Round up to two figures."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.ceil(number / unit - 1e-9) * unit:.2g}")


def round_people(people: int | None) -> int:
    """Round a number of people to two figures.

    Raises:
        SettingError: if it is missing, not a whole number, or below 10.
    """
    if people is None:
        raise SettingError(
            "people is missing: give about how many people the table has, such as people=20000 (--people ~20000)"
        )
    about = as_whole("people", people)
    if about < 10:
        raise SettingError("people must be at least 10: fewer people cannot hide among each other")
    digits = math.floor(math.log10(about)) - 1
    return int(round(about / 10**digits) * 10**digits)


def _line_to_dict(line: Line) -> dict[str, Any]:
    return {
        "expected": asdict(line.expected),
        "memory_bytes": line.memory_bytes,
        "seconds": float(f"{line.seconds:.1g}"),
    }


def describe_error(typical: float | None, extremes: tuple[float, float] | None) -> str:
    """Describe an error to two figures; as a range if made-up tables differ too much for one number."""
    if typical is None or extremes is None:
        return "-"
    low, high = extremes
    if high <= CLOSE * typical:
        return two_figures(typical)
    return f"{two_figures(low)} to {two_figures(high)}"


def two_figures(number: float) -> str:
    """Write a number to two figures, without an exponent if it is below a million.

    >>> two_figures(155.6), two_figures(0.0163)
    ('160', '0.016')
    """
    return f"{float(f'{number:.2g}'):g}"


def describe_duration(seconds: float) -> str:
    """Describe a duration roughly, in a word or two."""
    for limit, words in ((10, "seconds"), (90, "a minute"), (1800, "minutes"), (7200, "an hour")):
        if seconds < limit:
            return words
    return "hours"


def _describe_memory(size: int | None) -> str:
    if size is None:
        return "refused"
    mebibytes = size / 2**20
    return f"{mebibytes:.0f} MiB" if mebibytes < 10_000 else f"{mebibytes / 1024:.0f} GiB"


def _describe_whole(number: float | None) -> str:
    """Describe a whole number to two figures."""
    return "-" if number is None else f"{float(f'{number:.2g}'):.0f}"
