"""Whether a table that is declared public is the private table itself: the mistake that would undo everything."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from understudy.errors import SettingError
from understudy.source.open import StoredTable


def refuse_same_table(public: Any, data: Any) -> None:
    """Refuse a public table that is the private one by its address: the same object, file or database table.

    **Privacy.** No row is read. To compare rows would tell whoever may choose the public table whether the private one
    has exactly these rows, as often as they ask and for nothing.

    Args:
        public: the table that is declared public: a frame, a file or a source.
        data: the private table, as it was given or located.

    Raises:
        SettingError: when both have one address.
    """
    located = isinstance(data, StoredTable)
    files = data.files if located else [data] if isinstance(data, str | os.PathLike) else []
    if public is data or (located and data.is_given_as(public)) or any(_same_file(public, file) for file in files):
        raise SettingError(
            "public: the table declared public is the sensitive table itself; give one that is really public, "
            "or use the mechanism mst, which needs none. Nothing was spent"
        )


def _same_file(first: Any, second: Any) -> bool:
    if not isinstance(first, str | os.PathLike):
        return False
    try:
        return Path(first).samefile(second)
    except (OSError, ValueError):
        return False
