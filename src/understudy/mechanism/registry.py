"""The registry of mechanisms: a plain dict, and the entry points of other packages."""

from __future__ import annotations

from dataclasses import fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from understudy.errors import SettingError
from understudy.mechanism.adaptive import Adaptive
from understudy.mechanism.aim import AIM
from understudy.mechanism.base import Mechanism
from understudy.mechanism.dp_wgan import DPWGAN
from understudy.mechanism.dpfieldgroups import DPFieldGroups
from understudy.mechanism.dpsyn import DPSyn
from understudy.mechanism.gaussian import Gaussian
from understudy.mechanism.gem import GEM
from understudy.mechanism.hdmm import HDMM
from understudy.mechanism.independent import Independent
from understudy.mechanism.laplace import Laplace
from understudy.mechanism.mst import MST
from understudy.mechanism.mwem import MWEM
from understudy.mechanism.nist_mst import NistMST
from understudy.mechanism.pfr import PFR
from understudy.mechanism.privbayes import PrivBayes
from understudy.mechanism.privmrf import PrivMRF
from understudy.mechanism.privsyn import PrivSyn
from understudy.mechanism.rap import RAP

MECHANISMS: dict[str, type[Mechanism]] = {
    "adaptive": Adaptive,
    "aim": AIM,
    "dp-wgan": DPWGAN,
    "dpfieldgroups": DPFieldGroups,
    "dpsyn": DPSyn,
    "gaussian": Gaussian,
    "gem": GEM,
    "hdmm": HDMM,
    "independent": Independent,
    "laplace": Laplace,
    "mst": MST,
    "mwem": MWEM,
    "nist-mst": NistMST,
    "pfr": PFR,
    "privbayes": PrivBayes,
    "privmrf": PrivMRF,
    "privsyn": PrivSyn,
    "rap": RAP,
}
"""Our own mechanisms, by name."""

AUTO = "auto"
"""The name with which a run chooses the mechanism."""

CHOICES = ("adaptive", "mst", "independent")
"""The mechanisms that `auto` chooses from, the most accurate first."""

GROUP = "understudy.mechanisms"
"""The entry-point group under which other packages offer theirs."""


def mechanism_classes() -> dict[str, type[Mechanism]]:
    """Return our mechanisms and those of installed packages. Ours have precedence; broken packages are left out."""
    others = {point.name: _load(point) for point in entry_points(group=GROUP) if point.name not in MECHANISMS}
    return MECHANISMS | {name: chosen for name, chosen in others.items() if chosen is not None}


def _load(point: EntryPoint) -> type[Mechanism] | None:
    """Load a mechanism of another package; None if its import fails, which must not affect others."""
    try:
        chosen = point.load()
    except Exception:
        return None
    return chosen if isinstance(chosen, type) and issubclass(chosen, Mechanism) else None


def setting_names(mechanism: str | type[Mechanism]) -> list[str]:
    """Return the names of a mechanism's settings; none if the name is unknown."""
    if isinstance(mechanism, str):
        known = _search(mechanism)
        if mechanism not in known:
            return []
        mechanism = known[mechanism]
    return [field.name for field in fields(mechanism)]  # type: ignore[arg-type]


def _search(mechanism: str) -> dict[str, type[Mechanism]]:
    """Return ours if the name is among them, else also those of installed packages: to search these takes time."""
    return MECHANISMS if mechanism in MECHANISMS else mechanism_classes()


def make_mechanism(mechanism: str | Mechanism, *, paper: bool = False, **settings: Any) -> Mechanism:
    """Make a mechanism from its name and settings, or return the given one.

    Args:
        mechanism: a name, or a mechanism.
        paper: whether it runs as published; given settings replace those of the paper.
        settings: the mechanism's settings.

    Raises:
        SettingError: if the name or a setting is unknown, or the value is not a mechanism.
    """
    if isinstance(mechanism, Mechanism):
        if settings or paper:
            given = ", ".join([*settings, *["paper"] * paper])
            raise SettingError(f"settings {given}: a mechanism object already has its settings; leave them out")
        return mechanism
    if not isinstance(mechanism, str):
        raise SettingError('mechanism: give a name such as "mst" (`understudy mechanisms` lists them), or a mechanism')
    known = _search(mechanism)
    if mechanism not in known:
        raise SettingError(f"mechanism {mechanism!r} is unknown; the choices are {', '.join(sorted(known))}")
    return known[mechanism].as_published(**settings) if paper else known[mechanism](**settings)
