"""The expected error of what a mechanism measures, by running its measurements and a local fit on made-up tables.

**What is predicted.** A column, or a pair of columns, is covered when some measured table holds it. Of every covered
column the mean absolute error of its cells in the released model, in rows, and the mean over these columns; the same of
every covered pair. For mechanisms that measure tables of at most two columns the covered ones are the measured ones;
where larger tables are measured, the columns and pairs are their margins. Codes merged as too rare are one cell. Other
pairs are in the model by what follows from these; how wrong that is cannot be known without the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from understudy.domain import Domain
from understudy.mechanism.aim import AIM
from understudy.mechanism.gaussian import Gaussian
from understudy.mechanism.mwem import MWEM
from understudy.mechanism.nist_mst import NistMST
from understudy.mechanism.privsyn import PrivSyn
from understudy.planning.choices import by_a_public_table, by_dependence, by_workload
from understudy.planning.expected import VISIBLE, Expected
from understudy.planning.measured import Measured, errors_of
from understudy.planning.noise import PlannedNoise
from understudy.planning.rounds import played
from understudy.planning.tree import expect_independent, expect_mst

Predictor = Callable[[Domain, int, PlannedNoise], Expected]

_SEED = 1  # the same question gets the same answer
_WORLDS = 4
_PAIRS = 40
_CELLS = 100_000
_MIB = 2**20


def expect_aim(domain: Domain, rows: int, noise: PlannedNoise) -> Expected:
    """What to expect of `aim`: its looks at the columns, and its rounds on made-up dependences."""
    return _of_rounds(AIM(), domain, rows, noise)


def expect_mwem(domain: Domain, rows: int, noise: PlannedNoise) -> Expected:
    """What to expect of `mwem`: equal rounds of triples."""
    return _of_rounds(MWEM().as_aim(), domain, rows, noise)


def expect_privsyn(domain: Domain, rows: int, noise: PlannedNoise) -> Expected:
    """What to expect of `privsyn`: its own choice of pairs and cliques by made-up dependences."""
    rng = np.random.default_rng(_SEED)
    runs = [by_dependence(rng, PrivSyn(), domain, rows, noise) for _ in range(_worlds(domain))]
    return _expected(rng, runs, rows, noise)


def expect_gaussian(domain: Domain, rows: int, noise: PlannedNoise) -> Expected:
    """What to expect of `gaussian`: all pairs, measured at once."""
    rng = np.random.default_rng(_SEED)
    return _expected(rng, [by_workload(Gaussian(), domain, noise)], rows, noise, pairs=_WORLDS * _PAIRS)


def expect_nist_mst(domain: Domain, rows: int, noise: PlannedNoise) -> Expected:
    """What to expect of `nist-mst` if its public table tells it to measure a tree of pairs."""
    rng = np.random.default_rng(_SEED)
    runs = [by_a_public_table(rng, NistMST(), domain, rows, noise) for _ in range(_worlds(domain))]
    told = _expected(rng, runs, rows, noise)
    return replace(told, assumed="its public table is taken to choose a tree of pairs and no triples")


PREDICTORS: dict[str, Predictor] = {
    "aim": expect_aim,
    "gaussian": expect_gaussian,
    "independent": expect_independent,
    "mst": expect_mst,
    "mwem": expect_mwem,
    "nist-mst": expect_nist_mst,
    "privsyn": expect_privsyn,
}
"""By mechanism; those of other packages have none."""


def _of_rounds(settings: AIM, domain: Domain, rows: int, noise: PlannedNoise) -> Expected:
    wide = np.array([size for size in domain.values() if size > 1])
    if len(wide) < 2:
        return expect_independent(domain, rows, noise)
    rng = np.random.default_rng(_SEED)
    runs = [played(rng, settings, wide, rows, noise) for _ in range(_worlds(domain))]
    return _expected(rng, runs, rows, noise)


def _worlds(domain: Domain) -> int:
    """Wide tables vary less from one made-up table to the next."""
    return max(1, min(_WORLDS, 60 // len(domain)))


def _expected(
    rng: np.random.Generator, runs: Sequence[Measured], rows: int, noise: PlannedNoise, *, pairs: int = 0
) -> Expected:
    most = pairs or _WORLDS * _PAIRS // len(runs)
    found = errors_of(rng, runs, rows, noise, pairs=most, cells=_WORLDS * _CELLS // len(runs))
    return Expected(
        one_way=found.one_way,
        two_way=found.two_way,
        group=VISIBLE * found.sigma,
        pair_group=None if found.pair_sigma is None else VISIBLE * found.pair_sigma,
        pair_share=None if found.pair_total is None else found.pair_total / rows,
    )
