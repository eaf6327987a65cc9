"""One way to say that a check failed, also under `python -O`, which removes assert statements."""

from __future__ import annotations


def expect(condition: object, message: str) -> None:
    """Raise an AssertionError with this message unless the condition holds."""
    if not condition:
        raise AssertionError(message)
