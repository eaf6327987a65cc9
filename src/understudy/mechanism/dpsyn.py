"""`dpsyn`: many marginals with equal noise, made consistent, and rows edited until they fit (2018 NIST challenge).

The ancestor of PrivSyn. docs/decisions/contest-entries.md lists unclear points of the source and our choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from understudy.domain import Clique, Domain
from understudy.gate import PrivateTable
from understudy.measurement import Measurement
from understudy.mechanism.aim import fit_into
from understudy.mechanism.base import Count, Footprint, Mechanism, NotNegative, one_way
from understudy.mechanism.spanning_tree import check_kept, parse_kept
from understudy.model.fit import Fit, Generator, GeneratorName
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding


def _parse_tables(cliques: Any) -> tuple[Clique, ...]:
    return tuple(clique for clique, _ in parse_kept(cliques, setting="cliques"))


class DPSyn(Mechanism):
    """Measure the columns, keep their frequent codes, measure the listed marginals, edit rows until they fit.

    **Privacy.** Two questions to the gate, columns and cliques, with the same noise. The cliques are fixed in advance;
    codes are merged in between.

    Attributes:
        cliques: the cliques to measure in addition to the columns; by default all pairs.
        significant: codes whose noisy count is below this many standard deviations are merged.
        least: codes with less than this share of the (noisy) number of rows are merged as well.
        most_codes: the most codes of a column that are kept; None for 14 + 5 epsilon.
        max_cells: the most cells of all cliques together, before codes are merged; larger ones are left out.
        updates: how rows are made: "dpsyn" from uniform columns, as in the contest; "tree" from a tree of marginals.
        rare: how merged values are written, unless `sample` overrides it; "counts" is the contest's rule.
        generator: "gum", gradual updates; or "pgm", a graphical model if it is small enough.
    """

    name = "dpsyn"
    paper = "Bowen and Snoke 2021, Comparative Study (DPSyn, 2018 NIST challenge)"
    when = "To compare with, or where the tables to keep are known and are many."

    cliques: Annotated[Any, PlainValidator(_parse_tables)] = ()
    significant: NotNegative = 4.5
    least: NotNegative = 800 / 662_000
    most_codes: Count | None = None
    max_cells: Count = 5_000_000
    updates: Literal["tree", "dpsyn"] = "tree"
    rare: Literal["spread", "counts"] | None = "counts"
    generator: GeneratorName = "gum"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the contest's gradual updates."""
        return {"updates": "dpsyn"}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Measure the columns, merge codes, measure the tables."""
        tables, columns = self._tables(table.domain), one_way(table.domain)
        first = rho * len(columns) / (len(columns) + len(tables))  # the same noise in both calls
        progress(Step("measure", 0.0, "one-way marginals"))
        ones = table.measure(columns, rho=first)
        most = self.most_codes or 14 + int(5 * table.guarantee[0] if table.guarantee else 5)
        view = table.recode(keep_frequent(ones, significant=self.significant, least=self.least, most=most))
        progress(Step("measure", 0.5, f"{len(tables)} marginals"))
        later = view.measure(tables, rho=rho - first) if tables else []
        return self.conclude(view, [*ones, *later], progress=progress)

    def make_generator(self) -> Generator:
        """Return gradual updates, or a graphical model if it is small enough."""
        return Generator(self.generator, 80.0, as_printed=self.updates == "dpsyn", updates=self.updates)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the memory of a few copies of all tables."""
        cells = sum(domain.values()) + sum(map(domain.cells, self._tables(domain)))
        return Footprint(memory_bytes=100 * cells + (64 << 20), disk_bytes=16 * cells + 512 * len(domain) ** 2)

    def _tables(self, domain: Domain) -> list[Clique]:
        """Return the cliques to measure in addition to the columns, as many as fit.

        Raises:
            SchemaError: if a clique has unknown columns.
        """
        check_kept(domain, self.cliques)
        wide = [column for column, size in domain.items() if size > 1]
        wanted = list(self.cliques) or list(combinations(wide, 2))
        return list(fit_into(domain, dict.fromkeys((c for c in wanted if len(c) > 1), 1.0), self.max_cells))


def keep_frequent(ones: Sequence[Measurement], *, significant: float, least: float, most: int) -> Recoding:
    """Merge the codes of each column that are rare, or not among the most frequent, into one code at its end.

    Noisy counts are cut first (Norm-Cut): negative ones, and the smallest positive ones that make up for them, are 0.

    >>> ages = Measurement(("age",), np.array([900, 20, 700, -5, 3, 500]), 2.0)
    >>> keep_frequent([ages], significant=4.5, least=0.001, most=3).merged_codes("age")
    [[0], [2], [5], [1, 3, 4]]
    """
    maps = {}
    for one in ones:
        counts = norm_cut(np.asarray(one.values, np.float64))
        enough = max(significant * one.sigma, least * float(counts.sum()))
        order = np.argsort(-counts, kind="stable")[:most]
        kept = np.sort(order[counts[order] >= enough])
        if len(counts) - len(kept) > 1:
            array = np.full(len(counts), len(kept), np.int64)
            array[kept] = np.arange(len(kept))
            maps[one.clique[0]] = array
    return Recoding(maps)


def norm_cut(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Set negative counts to 0, then the smallest positive ones until the sum is as before (Norm-Cut).

    >>> norm_cut(np.array([5.0, 3.0, -2.0, 0.5])).tolist()
    [5.0, 1.5, 0.0, 0.0]
    """
    out = np.maximum(values, 0.0)
    excess = min(math.fsum(out) - math.fsum(values), math.fsum(out))
    for place in np.argsort(out, kind="stable"):
        taken = min(float(out[place]), excess)
        out[place] -= taken
        excess -= taken
        if excess <= 0:
            break
    return out
