"""Replace the error messages of other libraries, which may quote values, statements and addresses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from understudy.errors import InputError, SettingError, UnderstudyError

_LOGS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_STOPPED = ("InterruptException", "QueryCanceled", "QueryCancelled")


@contextmanager
def explain_errors(message: str) -> Iterator[None]:
    """Replace any error raised inside by an `InputError` with this message; an interrupt stays an interrupt.

    **Privacy.** The engine's own message is dropped (``from None``) and does not reach pyspark's log in this process.
    """
    try:
        with _silence_logs():
            yield
    except UnderstudyError:
        raise
    except Exception as error:
        if type(error).__name__ in _STOPPED or str(error) == "Query interrupted":
            raise KeyboardInterrupt from None
        raise InputError(message) from None


@contextmanager
def _silence_logs() -> Iterator[None]:
    """Keep pyspark from logging an error, which may quote a cell, before it is caught here."""
    if "pyspark.logger" not in sys.modules:
        yield
        return
    logs = [sys.modules["pyspark.logger"].PySparkLogger.getLogger(name) for name in _LOGS]
    before = [log.disabled for log in logs]
    for log in logs:
        log.disabled = True
    try:
        yield
    finally:
        for log, was in zip(logs, before, strict=True):
            log.disabled = was


def import_engine(module: str, extra: str = "sql") -> Any:
    """Import the library of an engine.

    Raises:
        SettingError: if it is not installed, naming what to install.
    """
    try:
        return import_module(module)
    except ImportError:
        raise SettingError(f"this needs {module}: pip install 'understudy[{extra}]'. Nothing was spent") from None
