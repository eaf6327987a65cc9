"""The registry of mechanisms: a plain dict, and the entry points of other packages."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from importlib.metadata import entry_points
from typing import Any

from understudy.errors import SettingError
from understudy.mechanism.independent import Independent
from understudy.mechanism.mst import MST
from understudy.mechanism.nist_mst import NistMST
from understudy.mechanism.privsyn import PrivSyn
from understudy.mechanism.protocol import Mechanism

MECHANISMS: dict[str, type[Mechanism]] = {
    "independent": Independent,
    "mst": MST,
    "nist-mst": NistMST,
    "privsyn": PrivSyn,
}
"""Our own mechanisms, by name."""

GROUP = "understudy.mechanisms"
"""The entry-point group under which other packages offer theirs."""


def mechanism_classes() -> dict[str, type[Mechanism]]:
    """Our mechanisms and those of installed packages; ours win a name they share."""
    others = {point.name: point for point in entry_points(group=GROUP) if point.name not in MECHANISMS}
    return MECHANISMS | {name: point.load() for name, point in others.items()}


def mechanism_named(mechanism: str | Mechanism, **settings: Any) -> Mechanism:
    """A mechanism from its name and settings, or the given one.

    Raises:
        SettingError: for an unknown name or setting, listing the known ones.
    """
    if not isinstance(mechanism, str):
        if settings:
            raise SettingError(f"settings {', '.join(settings)}: a mechanism object already has its settings")
        return mechanism
    known = mechanism_classes()
    if mechanism not in known:
        raise SettingError(f"mechanism {mechanism!r} is unknown; the choices are {', '.join(sorted(known))}")
    chosen = known[mechanism]
    names: list[str] = [field.name for field in fields(chosen)] if is_dataclass(chosen) else []
    for name in settings:
        if name not in names:
            choices = ", ".join(names) or "none"
            raise SettingError(f"{mechanism} has no setting {name!r}; its settings are: {choices}")
    return chosen(**settings)
