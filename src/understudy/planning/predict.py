"""The expected error of what a mechanism measures, by playing its choices and a local fit on made-up tables.

**What is predicted.** A column, or a pair of columns, is covered when some measured table holds it. Of every covered
column the mean absolute error of its cells in the released model, in rows, and the mean over these columns; the same of
every covered pair. For mechanisms that measure tables of at most two columns the covered ones are the measured ones;
where larger tables are measured, the columns and pairs are their margins. Codes merged as too rare are one cell. Other
pairs are in the model by what follows from these; how wrong that is cannot be known without the rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from understudy.domain import Domain
from understudy.mechanism.aim import AIM
from understudy.mechanism.gaussian import Gaussian
from understudy.mechanism.mst import MST
from understudy.mechanism.mwem import MWEM
from understudy.mechanism.nist_mst import NistMST
from understudy.mechanism.privsyn import PrivSyn
from understudy.planning.choices import of_a_public_table, of_a_tree, of_a_workload, of_columns, of_dependent_pairs
from understudy.planning.cost import MANY
from understudy.planning.expected import VISIBLE, Expected
from understudy.planning.measured import Measured, errors_of
from understudy.planning.noise import PlannedNoise
from understudy.planning.rounds import of_rounds

Play = Callable[[np.random.Generator, Domain, int, PlannedNoise], Measured]
"""One made-up run of a mechanism: what it measures of a table with these columns and so many rows."""

PLAYS: dict[str, Play] = {
    "aim": lambda rng, domain, rows, noise: of_rounds(rng, AIM(), domain, rows, noise),
    "gaussian": lambda rng, domain, rows, noise: of_a_workload(Gaussian(), domain, noise),
    "independent": lambda rng, domain, rows, noise: of_columns(domain, noise),
    "mst": lambda rng, domain, rows, noise: of_a_tree(rng, MST(), domain, rows, noise),
    "mwem": lambda rng, domain, rows, noise: of_rounds(rng, MWEM().as_aim(), domain, rows, noise),
    "nist-mst": lambda rng, domain, rows, noise: of_a_public_table(rng, NistMST(), domain, rows, noise),
    "privsyn": lambda rng, domain, rows, noise: of_dependent_pairs(rng, PrivSyn(), domain, rows, noise),
}
"""By mechanism; those of other packages have none."""

ASSUMED = {"nist-mst": "nist-mst: its public table is taken to name a tree of pairs and no triples"}
"""What is assumed of a mechanism that the schema does not say."""

_SEED = 1  # the same question gets the same answer
_PAIRS, _CELLS = 150, 300_000
_FEWER_PAIRS, _FEWER_CELLS = 90, 120_000  # of wide tables: a plan should take no longer than it takes to read it
_RUNS = 4
_WIDE = 60


def expected_of(mechanism: str, domain: Domain, rows: int, noise: PlannedNoise) -> Expected | None:
    """What to expect of a mechanism with its default settings; None for one of another package.

    **Privacy.** Reads nothing: everything it plays on is made up.

    Args:
        mechanism: its name.
        domain: the columns.
        rows: about how many rows the table has.
        noise: the noise of the budget.
    """
    if mechanism not in PLAYS:
        return None
    wide = Domain({column: size for column, size in domain.items() if size > 1} or dict(domain.items()))
    play = PLAYS[mechanism] if len(wide) > 1 else PLAYS["independent"]
    rng = np.random.default_rng(_SEED)
    runs = [play(rng, wide, rows, noise) for _ in range(max(1, min(_RUNS, _WIDE // len(wide))))]
    if not any(run.cliques for run in runs):
        runs *= max(1, _PAIRS // (len(runs) * len(wide)))  # columns alone are quickly fitted
    pairs, cells = (_PAIRS, _CELLS) if len(wide) <= MANY else (_FEWER_PAIRS, _FEWER_CELLS)
    found = errors_of(rng, runs, rows, noise, pairs=pairs // len(runs) + 1, cells=cells // len(runs))
    return Expected(
        one_way=found.one_way,
        two_way=found.two_way,
        group=VISIBLE * found.sigma,
        pair_group=None if found.pair_sigma is None else VISIBLE * found.pair_sigma,
        pair_share=None if found.pair_total is None else found.pair_total / rows,
        pairs=0 if found.two_way is None else round(found.pairs),
    )
