"""`mwem`: MWEM+PGM, the mechanism that AIM grew out of (McKenna et al. 2022, Algorithm 1)."""

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
    """Choose and measure a marginal of the workload in each of a fixed number of equal rounds.

    It is AIM without its ideas: no look at the columns first, candidates of the workload alone, the error less the
    number of cells as the score, and rounds of equal budget. Algorithm 1 does not limit the model; `max_mib` does:
    a model that does not fit into memory is of no use.

    **Privacy.** Every answer comes from the gate; the rounds' equal shares add up to `rho`.

    Attributes:
        workload: which marginals matter: `all-3way`, `target:COLUMN`, `skewed:SEED` or a YAML file.
        rounds: how many rounds, as a multiple of the number of columns.
        measured: the part of each round's budget that goes to measuring; the rest chooses.
        max_mib: the largest junction tree.
        max_cells: cliques of more cells are no candidates.
        as_printed: weights 1/sigma in the loss, and no smoothing of columns with an axis, as the paper prints it.
        bounds: whether the release keeps what bounds for marginals that were not measured need.
        generator: what makes the rows in the end: "pgm", the rounds' graphical model; "gum", gradual updates;
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
        """The loss as printed; Algorithm 1 has d rounds."""
        return {"rounds": 1.0, "as_printed": True}

    def fit(self, table: PrivateTable, *, rho: float, progress: Progress = silent) -> Fit:
        """Select, measure and estimate, round by round."""
        return self.as_aim().fit(table, rho=rho, progress=progress)

    def footprint(self, domain: Domain) -> Footprint:
        """As AIM's."""
        return self.as_aim().footprint(domain)

    def as_aim(self) -> AIM:
        """The settings of AIM that make it this mechanism."""
        return AIM(
            **self.settings(),
            first=0.0,
            look=0.0,
            threshold=0.0,
            anneal=False,
            score="cells",
            closure=False,
            growing=False,
        )
