"""`mwem`: MWEM+PGM, the predecessor of AIM (McKenna et al. 2022, Algorithm 1)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from understudy.domain import Domain
from understudy.gate import PrivateTable
from understudy.mechanism.aim import AIM
from understudy.mechanism.base import Count, Footprint, Mechanism, Positive, Share
from understudy.model.fit import Fit, GeneratorName
from understudy.progress import Progress, silent


class MWEM(Mechanism):
    """Select and measure a marginal of the workload in each of a fixed number of equal rounds.

    Compared with AIM, columns are not measured first, candidates are the cliques of the workload only, the score is the
    error minus the number of cells, and rounds have equal budgets. Unlike Algorithm 1, the model is limited by
    `max_mib`.

    **Privacy.** Every answer comes from the gate; the rounds' equal shares add up to `rho`.

    Attributes:
        workload: which marginals matter: `all-3way`, `target:COLUMN`, `skewed:SEED` or a YAML file.
        rounds: the number of rounds, as a multiple of the number of columns.
        measured: the part of each round's budget for measuring; the rest is for selection.
        max_mib: the largest junction tree.
        max_cells: cliques of more cells are not candidates.
        as_printed: no estimation by cumulative counts, as in the paper.
        bounds: whether the release keeps the record that error bounds and intervals of unmeasured marginals need.
        generator: how rows are made: "pgm", the rounds' graphical model; "gum", gradual updates;
            or "rap", relaxed projection.
    """

    name = "mwem"
    paper = "McKenna, Mullins, Sheldon and Miklau 2022, AIM (Algorithm 1, MWEM+PGM)"
    when = "To compare with: AIM without its ideas."

    workload: str = "all-3way"
    rounds: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    measured: Share = 0.9
    max_mib: Positive = 80.0
    max_cells: Count = 2_000_000
    as_printed: bool = False
    bounds: bool = True
    generator: GeneratorName = "pgm"

    @classmethod
    def paper_settings(cls) -> dict[str, Any]:
        """Return the paper's settings; Algorithm 1 has d rounds."""
        return {"rounds": 1.0, "as_printed": True}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Select, measure and estimate, round by round."""
        return self.as_aim().fit(table, rho=rho, progress=progress)

    def footprint(self, domain: Domain) -> Footprint:
        """Return the footprint of AIM."""
        return self.as_aim().footprint(domain)

    def as_aim(self) -> AIM:
        """Return the settings of AIM that make it this mechanism."""
        return AIM(
            **self.settings(),
            first=0.0,
            second=0.0,
            threshold=0.0,
            anneal=False,
            score="cells",
            closure=False,
            growing=False,
        )
