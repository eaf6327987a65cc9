"""Rows that pass by in batches: each is coded by the schema and only its codes are kept, on disk.

Files, folders, queries of the embedded engine and relations of DuckDB all come this way. The encoder is the schema's
own, so the codes are those of `memory` by construction; memory holds one batch and never the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from understudy.domain import Clique
from understudy.errors import SchemaError
from understudy.schema import Schema
from understudy.schema.frames import meant_columns
from understudy.source.behind import RowsBehind
from understudy.source.sql.bound import Batch, bounded_batches
from understudy.source.sql.store import CodeStore
from understudy.source.sql.temp import PrivateFolder
from understudy.source.unit import new_key, unit_text
from understudy.tabulate import Counts


class StreamedSource(RowsBehind):
    """Arrow batches behind the `Source` protocol.

    Args:
        batches: arrow record batches with at least the columns that the schema needs; read once.
        schema: what is public about the columns.
        folder: where codes are kept while the source lives; closed with it.
        key: the bounding key, 32 bytes; drawn for this run when not given.

    **Privacy.** Holds exact codes, in files without names inside a private directory. Its text form names neither rows
    nor their number, and it refuses to be pickled or copied.
    """

    __slots__ = ("__folder", "__store", "__words")

    def __init__(
        self, batches: Iterable[Any], schema: Schema, folder: PrivateFolder, *, key: bytes | None = None
    ) -> None:
        super().__init__(schema)
        self.__folder = folder
        self.__store = CodeStore(schema.domain, folder.path)
        coded = _coded(batches, schema)
        if self.unit.column is not None:
            coded = bounded_batches(coded, self.domain, folder, max_rows=self.unit.max_rows, key=key or new_key())
        self.__words: dict[str, Counter[str]] = {column.name: Counter() for column in schema.words}
        for batch in coded:
            self.__store.append(batch.codes)
            for column, texts in batch.words.items():
                self.__words[column].update(_counted(texts))

    def counts(self, cliques: Iterable[Clique]) -> Iterator[tuple[Clique, Counts]]:
        """Exact counts of each clique's cells, in the order asked.

        Raises:
            SchemaError: before anything is counted, for an unknown column or a table too large to index.
        """
        return self.__store.counts(cliques)

    def values(self, column: str) -> dict[str, int]:
        """Exact numbers of rows by the canonical text of a cell of one of the schema's `words` columns.

        Raises:
            SchemaError: for a column that is not among them.
        """
        if column not in self.__words:
            raise SchemaError(f"column {column!r} is not one whose values are being bought; declare `values: discover`")
        return dict(self.__words[column])

    def close(self) -> None:
        """Remove everything that was kept on disk."""
        self.__store.close()
        self.__folder.close()


def _coded(batches: Iterable[Any], schema: Schema) -> Iterator[Batch]:
    """The codes, texts and units of the rows that are kept."""
    import narwhals as nw
    import pyarrow as pa

    unit = schema.privacy_unit.column
    for batch in batches:
        table = pa.Table.from_batches([batch])
        encoded = schema.encode(table)
        keep, units = np.asarray(encoded.keep, np.bool_), None
        if unit is not None:
            units = unit_text(nw.from_native(table[unit], series_only=True), exact=True)
            keep &= np.asarray(units.is_valid())
            units = units.filter(pa.array(keep))
        cells, _ = meant_columns(table, [column.name for column in schema.words], schema.dialect)
        words = {column.name: column.texts(cells[column.name], schema.dialect) for column in schema.words}
        yield Batch(
            {column: encoded.codes[column][keep] for column in schema.domain},
            {name: texts.filter(pa.array(keep)).dictionary_decode() for name, texts in words.items()},
            units,
        )


def _counted(texts: Any) -> dict[str, int]:
    pairs = texts.drop_null().value_counts()
    return dict(zip(pairs.field(0).to_pylist(), pairs.field(1).to_pylist(), strict=True))
