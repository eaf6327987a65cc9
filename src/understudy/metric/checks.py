"""What settings are checked for, in the same words everywhere."""

from __future__ import annotations

from typing import Any

from understudy.errors import SettingError
from understudy.schema import Schema
from understudy.schema.kinds.coded import Coded


def at_least(setting: str, value: Any, least: float) -> None:
    """Refuse a number below `least`.

    Raises:
        SettingError: naming the setting.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        raise SettingError(f"{setting} must be a number of at least {least:g}; correct it")


def coded_column(schema: Schema, name: str, setting: str) -> Coded:
    """The synthesised column of that name.

    Raises:
        SettingError: naming the setting and the columns there are.
    """
    for column in schema.coded:
        if column.name == name:
            return column
    choices = ", ".join(column.name for column in schema.coded)
    raise SettingError(f"{setting}: there is no synthesised column {name!r}; the choices are {choices}")
