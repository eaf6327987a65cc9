"""What becomes of a Spark table that is to be replaced when the new one cannot take its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from understudy.errors import OutputError
from understudy.sink.spark import write_table


def test_a_replaced_table_is_back_when_the_new_one_cannot_take_its_name() -> None:
    said: list[str] = []

    def sql(statement: str) -> None:
        said.append(statement)
        if statement.startswith("alter table kept_understudy_draft"):
            raise RuntimeError("no right to rename")

    catalog: Any = SimpleNamespace(
        tableExists=lambda name: True, getTable=lambda name: SimpleNamespace(tableType="MANAGED")
    )
    with pytest.raises(OutputError, match="table kept could not be given its name"):
        write_table(SimpleNamespace(sql=sql, catalog=catalog), "kept", [], overwrite=True)
    away, renamed, back, dropped = said
    aside = away.removeprefix("alter table kept rename to ")
    assert back == f"alter table {aside} rename to kept"
    assert dropped == f"drop table if exists {renamed.split()[2]}"
