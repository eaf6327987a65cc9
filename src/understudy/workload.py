"""Workloads: cliques with weights, which mechanisms are tailored to and errors are measured on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from understudy.domain import Clique, Domain
from understudy.errors import SettingError
from understudy.yaml_json import is_yaml_or_json, read_json, read_yaml

MOST_CLIQUES = 2_000_000
"""The most cliques of an `all-kway` workload (the triples of 229 columns): more take minutes and gigabytes."""

_GIVEN_WEIGHT = 0.1  # of columns that are given, in a conditional workload (benchmarks/linked.md)
_CHAIN_WEIGHT = 4.0  # of a column and its previous value, in cliques with both (benchmarks/linked.md)
_MOST_TRIPLES = 40  # columns; a conditional workload of more has pairs only


@dataclass(frozen=True)
class Workload:
    """Cliques with weights, each clique in the domain's order.

    **Privacy.** A workload must be chosen from public facts, never by looking at the rows.

    >>> domain = Domain({"a": 2, "b": 2, "c": 2})
    >>> Workload.of(domain, [("a", "b"), ("c", "a")]).closure()
    {('a',): 2.0, ('b',): 1.0, ('c',): 1.0, ('a', 'b'): 3.0, ('a', 'c'): 3.0}
    """

    weights: Mapping[Clique, float]
    closed: bool = False
    """Whether the cliques are all that matter, so that `closure` adds no subsets."""
    drawn: frozenset[str] | None = None
    """The columns that are drawn given all others, if the workload is conditional."""
    alike: Mapping[str, str] | None = None
    """For columns that are given, drawn ones with the same codes and about the same counts, if it is conditional."""

    def __iter__(self) -> Iterator[Clique]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    @classmethod
    def of(cls, domain: Domain, cliques: Iterable[Clique] | Mapping[Clique, float]) -> Workload:
        """Make a workload of a list of cliques, or of cliques with weights; a clique named twice counts twice.

        Raises:
            SettingError: for an empty workload or a weight that is negative or not finite.
            SchemaError: for an unknown or repeated column.
        """
        given = cliques.items() if isinstance(cliques, Mapping) else ((clique, 1.0) for clique in cliques)
        weights: dict[Clique, float] = {}
        for clique, weight in given:
            name = domain.canonical(domain.check(clique))
            if not name or not (np.isfinite(weight) and weight >= 0):
                raise SettingError(f"workload: {clique} needs at least one column and a weight that is not negative")
            weights[name] = weights.get(name, 0.0) + float(weight)
        if not any(weights.values()):
            raise SettingError("workload: name at least one clique with a positive weight")
        return cls(weights)

    @classmethod
    def all_kway(cls, domain: Domain, k: int) -> Workload:
        """Make the workload of all cliques of k columns (of all columns, if there are fewer).

        Raises:
            SettingError: for a k below 1, and for more cliques than can be listed.
        """
        if k < 1:
            raise SettingError("workload: all-kway needs k of at least 1")
        if (many := comb(len(domain), min(k, len(domain)))) > MOST_CLIQUES:
            raise SettingError(
                f"workload: all-{k}way of {len(domain)} columns has {many} marginals; use a smaller k, or "
                "list the marginals that matter in a .yaml file"
            )
        return cls(dict.fromkeys(combinations(domain.columns, min(k, len(domain))), 1.0))

    @classmethod
    def target(cls, domain: Domain, column: str) -> Workload:
        """Make the workload of all triples that contain a column, which predicting it needs."""
        domain.check((column,))
        others = [name for name in domain if name != column]
        size = min(2, len(others))
        return cls.of(domain, ((column, *rest) for rest in combinations(others, size)))

    @classmethod
    def skewed(cls, domain: Domain, seed: int) -> Workload:
        """Draw the skewed workload of the AIM paper: 256 triples, by the product of squared exponential weights.

        The columns of a clique are distinct; a clique drawn twice counts twice.
        """
        rng = np.random.default_rng(seed)
        weights = rng.exponential(size=len(domain)) ** 2
        size = min(3, len(domain))
        every = list(combinations(range(len(domain)), size))
        chance = np.array([weights[list(triple)].prod() for triple in every])
        drawn = rng.choice(len(every), size=256, p=chance / chance.sum())
        return cls.of(domain, (tuple(domain.columns[i] for i in every[index]) for index in drawn))

    @classmethod
    def conditional(
        cls,
        domain: Domain,
        own: Sequence[str],
        linking: Sequence[str] = (),
        chains: Sequence[Sequence[str]] = (),
        alike: Sequence[tuple[str, str]] = (),
    ) -> Workload:
        """Make the workload of a distribution of some columns given the others.

        Weights are those of `closure`, except that the other columns count a tenth: what is known about them is
        measured elsewhere.

        Args:
            domain: the columns.
            own: the columns that are drawn given the others: all columns, and all cliques of up to three columns with
                one of these (of up to two columns in a domain of more than 40).
            linking: columns of which pairs with any other column matter as well.
            chains: a column, its own value in the previous row, and columns that tell how the one follows from the
                other: cliques with the first two weigh four times what these two weigh, and the whole chain is a
                clique, too (in a domain of up to 40 columns).
            alike: pairs of a column that is not drawn and a drawn one with the same codes and about the same counts,
                such as a column's value in the previous row and the column itself.

        >>> domain = Domain({"x": 2, "z": 2, "y": 2})
        >>> Workload.conditional(domain, ["y"]).weights
        {('x',): 0.1, ('z',): 0.1, ('y',): 1.0, ('x', 'y'): 1.1, ('z', 'y'): 1.1, ('x', 'z', 'y'): 1.2}
        """
        k, mine, bound = 3 if len(domain) <= _MOST_TRIPLES else 2, set(own), set(linking)
        for some in (own, linking, *chains, *alike):
            domain.check(tuple(some))
        size = min(k, len(domain))
        asked = [clique for clique in combinations(domain.columns, size) if mine.intersection(clique)]
        held: dict[str, float] = defaultdict(float)
        for column in chain.from_iterable(asked):
            held[column] += 1.0
        kept = [
            clique
            for length in range(1, size + 1)
            for clique in combinations(domain.columns, length)
            if length == 1 or mine.intersection(clique) or (length == 2 and bound.intersection(clique))
        ]
        counts = {column: held[column] * (1.0 if column in mine else _GIVEN_WEIGHT) for column in domain}
        kept += [domain.canonical(tuple(chain)) for chain in chains if len(chain) > k == 3]
        weights = {clique: sum(counts[column] for column in clique) for clique in kept}
        for clique in kept:  # if other columns added weight, a noisy triple would be measured instead of a pair
            tied = [pair for pair in (tuple(one[:2]) for one in chains) if set(pair) <= set(clique)]
            if tied:
                weights[clique] = _CHAIN_WEIGHT * max(counts[one] + counts[other] for one, other in tied)
        return cls(weights, closed=True, drawn=frozenset(own), alike=dict(alike))

    @classmethod
    def parse(cls, text: str, domain: Domain) -> Workload:
        """Parse a workload of the command line: `all-3way`, `target:income`, `skewed:7`, or a YAML file.

        The file holds a list of cliques (lists of columns), or of mappings `{clique: [a, b], weight: 2}`.

        Raises:
            SettingError: if the text is none of these.
        """
        if not isinstance(text, str):
            raise SettingError("workload: give text, such as all-3way, target:COLUMN, or the path of a .yaml file")
        kind, _, rest = text.partition(":")
        if kind == "target" and rest:
            return cls.target(domain, rest)
        if kind == "conditional" and rest:
            return cls._parse_conditional(rest, domain)
        if kind == "skewed" and rest.isdigit():
            return cls.skewed(domain, int(rest))
        if kind.startswith("all-") and kind.endswith("way") and kind[4:-3].isdigit():
            return cls.all_kway(domain, int(kind[4:-3]))
        if is_yaml_or_json(text):
            return _from_file(Path(text), domain)
        raise SettingError(f"workload {text!r}: write all-3way, target:COLUMN, skewed:SEED, or name a .yaml file")

    @classmethod
    def _parse_conditional(cls, text: str, domain: Domain) -> Workload:
        try:
            return cls.conditional(domain, *read_json(text))
        except (TypeError, ValueError):
            raise SettingError(
                'workload: write conditional:[["own", ...], ["linking", ...], [["own", "previous"], ...]]'
            ) from None

    def closure(self) -> dict[Clique, float]:
        """Return all non-empty subsets r of the cliques s, smallest first, with weights w_r = sum_s c_s |r & s|."""
        if self.closed:
            return dict(self.weights)
        subsets = {
            subset: None
            for size in range(1, max(map(len, self.weights)) + 1)
            for subset in chain.from_iterable(combinations(clique, size) for clique in self.weights)
        }
        held: dict[str, float] = defaultdict(float)  # sum_s c_s [column in s]: |r & s| is a sum over columns
        for clique, weight in self.weights.items():
            for column in clique:
                held[column] += weight
        ordered = sorted(sorted(subsets), key=len)
        return {subset: float(sum(map(held.__getitem__, subset))) for subset in ordered}


def public_workload_name(named: str) -> str:
    """Return a workload's text for publication: of a file only its name, because a path may name people.

    >>> public_workload_name("survey/of_ann/w.yaml"), public_workload_name("target:pay/hour")
    ('w.yaml', 'target:pay/hour')
    """
    return Path(named).name if is_yaml_or_json(named) else named


def _from_file(path: Path, domain: Domain) -> Workload:
    import yaml

    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError):
        raise SettingError(f"workload file {path} cannot be read; check the path") from None
    except yaml.YAMLError:
        raise SettingError(f"workload file {path} is not valid YAML; check the indentation and the quotes") from None
    try:
        pairs = [_parse_entry(entry) for entry in _as_list(content)]
    except (TypeError, KeyError, ValueError):
        raise SettingError(f"workload file {path}: write a list of cliques, each a list of column names") from None
    weights: dict[Clique, float] = {}
    for clique, weight in pairs:
        name = domain.canonical(domain.check(clique))
        weights[name] = weights.get(name, 0.0) + weight
    return Workload.of(domain, weights)


def _parse_entry(entry: Any) -> tuple[Clique, float]:
    if isinstance(entry, dict):
        return tuple(_as_list(entry["clique"])), float(entry.get("weight", 1.0))
    return tuple(_as_list(entry)), 1.0


def _as_list(content: Any) -> list[Any]:
    """Return the content if it is a list: text and mappings are iterable too, but mean something else."""
    if not isinstance(content, list):
        raise TypeError("not a list")
    return content
