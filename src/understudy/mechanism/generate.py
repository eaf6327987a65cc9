"""From measurements to a model: the last step of every mechanism, chosen apart from how marginals were selected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from understudy.domain import Domain
from understudy.errors import SettingError
from understudy.measurement import Measurement
from understudy.mechanism.compress import all_re_expressed
from understudy.model import JunctionTree, estimate
from understudy.model.gum import gum_of
from understudy.model.protocol import Model
from understudy.progress import Progress, Step, silent
from understudy.schema import Recoding

GENERATORS = ("pgm", "gum")
"""A graphical model ("pgm", Private-PGM), or consistent tables and gradual updates of rows ("gum")."""


def check_generator(generator: str) -> None:
    """Refuse an unknown generator.

    Raises:
        SettingError: listing the known ones.
    """
    if generator not in GENERATORS:
        raise SettingError(f"generator: {generator!r} is unknown; the choices are {', '.join(GENERATORS)}")


def generated(
    generator: str,
    domain: Domain,
    measurements: Sequence[Measurement],
    recoding: Recoding,
    *,
    total: float | None = None,
    limit_mib: float | None = None,
    pgm: Callable[..., Model] = estimate,
    progress: Progress = silent,
) -> Model:
    """The model that a generator makes of any mechanism's measurements.

    **Privacy.** Post-processing of measurements.

    Args:
        generator: "pgm" or "gum".
        domain: the declared domain.
        measurements: noisy marginals as the gate returned them, before and after codes were merged.
        recoding: the merged codes.
        total: the number of rows, where it is public.
        limit_mib: a graphical model with a larger junction tree is not made: what was paid for is then used by "gum".
        pgm: estimates the graphical model; `tree_fit` where the measured tables are little more than a tree.
        progress: told about each step.

    Raises:
        SettingError: for an unknown generator.
        InputError: for measurements that do not fit.
    """
    check_generator(generator)
    merged, tables = recoding.recode(domain), all_re_expressed(domain, measurements, recoding)
    if generator == "pgm":
        cliques = [table.clique for table in tables]
        if limit_mib is None or JunctionTree.of(merged, cliques).size_mib <= limit_mib:
            return pgm(merged, tables, total=total, progress=progress)
    progress(Step("estimate", None, "consistent tables"))
    return gum_of(merged, tables, total=total)
