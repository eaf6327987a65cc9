"""Synthetic rows written to CSV and Parquet files and to terminals, chunk by chunk, completely or not at all."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from understudy.errors import OutputError, UnderstudyError
from understudy.files import could_not_write, write_atomically
from understudy.progress import Progress, Step, silent
from understudy.schema import Dialect

if TYPE_CHECKING:
    from understudy.release.release import Release


class Sink(Protocol):
    """Takes chunks of rows, all with the same columns."""

    def write(self, table: Any) -> None:
        """Write a chunk."""
        ...

    def close(self) -> None:
        """Finish writing."""
        ...


OpenSink = Callable[[Any], Sink]
"""A function that opens a sink for rows of an arrow schema."""


def write_rows(release: Release, path: Path, *, seed: int | None = None, progress: Progress = silent) -> None:
    """Write a release's rows as CSV or Parquet by the file's ending, in bounded memory, completely or not at all.

    Raises:
        OutputError: if the file cannot be written.
    """
    count, chunks = release.stream(seed=seed, as_written=path.suffix != ".parquet")
    with open_file(path, release.schema.dialect) as open_sink:
        write_chunks(chunks, open_sink, count, progress=progress)


def write_chunks(chunks: Iterable[Any], open_sink: OpenSink, rows: int, *, progress: Progress = silent) -> int:
    """Write chunks while the next one is made; at most three are held at a time.

    Args:
        chunks: arrow tables of the same columns.
        open_sink: opens the sink that they are written to.
        rows: how many there will be, for the progress.
        progress: called after each chunk.

    Returns:
        How many rows were written.
    """
    sink: Sink | None = None
    waiting: Future[None] | None = None
    done = 0
    with ThreadPoolExecutor(1) as writer:
        try:
            for chunk in chunks:
                sink = sink or open_sink(chunk.schema)
                if waiting is not None:
                    waiting.result()
                waiting = writer.submit(sink.write, chunk)
                done += chunk.num_rows
                progress(Step("write", min(1.0, done / max(rows, 1)), f"{done} of {rows} rows"))
            if waiting is not None:
                waiting.result()
        except BaseException:
            with suppress(Exception):  # the first error is the one to report
                wait([waiting] if waiting is not None else [])
                if sink is not None:
                    sink.close()
            raise
    if sink is not None:
        sink.close()
    return done


@contextmanager
def open_file(path: Path, dialect: Dialect) -> Iterator[OpenSink]:
    """Open a CSV or Parquet file (by its ending) that appears under its name once it is complete.

    Until then it has a hidden name in the same folder; an error or an interrupt removes it, and the next write to the
    same name removes what a killed process left.

    Raises:
        OutputError: if it cannot be written.
    """
    try:
        with write_atomically(path, lasting=False) as file:  # rows can be made again
            yield lambda columns: _Parquet(file, columns) if path.suffix == ".parquet" else _Csv(file, columns, dialect)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise could_not_write(path, error) from None


def open_stream(file: BinaryIO, dialect: Dialect) -> OpenSink:
    """Open a sink that writes CSV to a binary stream, such as the terminal's."""
    return lambda columns: _Csv(file, columns, dialect)


class _Parquet:
    def __init__(self, file: BinaryIO, columns: Any) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(file, columns)

    def write(self, table: Any) -> None:
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> None:
        self._writer.close()


class _Csv:
    def __init__(self, file: BinaryIO, columns: Any, dialect: Dialect) -> None:
        from pyarrow import csv as arrow_csv

        options = arrow_csv.WriteOptions(include_header=dialect.header, delimiter=dialect.delimiter)
        stream = _encode_stream(file, dialect)
        self._writer = (
            arrow_csv.CSVWriter(stream, columns, write_options=options)
            if dialect.quote == '"'
            else _OtherQuotes(stream, columns, dialect)
        )

    def write(self, table: Any) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class _OtherQuotes:
    """A CSV writer like arrow's, which supports double quotes only, for other quote characters."""

    def __init__(self, stream: Any, columns: Any, dialect: Dialect) -> None:
        text = codecs.getwriter("utf-8")(stream)
        self._writer = csv.writer(text, delimiter=dialect.delimiter, quotechar=dialect.quote, lineterminator="\n")
        if dialect.header:
            self._writer.writerow(columns.names)

    def write_table(self, table: Any) -> None:
        self._writer.writerows(zip(*(column.cast("string").to_pylist() for column in table.columns), strict=True))

    def close(self) -> None:
        """Do nothing, because nothing is buffered."""


def _encode_stream(file: Any, dialect: Dialect) -> Any:
    """Wrap a stream so that UTF-8 is written in the dialect's encoding; terminals get UTF-8."""
    if codecs.lookup(dialect.encoding).name == "utf-8" or file.isatty():
        return file
    return codecs.EncodedFile(file, "utf-8", dialect.encoding, "replace")


@contextmanager
def replace_errors(message: str) -> Iterator[None]:
    """Replace an engine's error by an `OutputError`: its message may hold an address, a password or a value."""
    try:
        yield
    except UnderstudyError:
        raise
    except Exception:
        raise OutputError(message) from None
