"""One question at a time: threads that share a table wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from understudy.privacy.accounting.budget import Account


class _Paying(Protocol):
    @property
    def account(self) -> Account: ...


P = ParamSpec("P")
T = TypeVar("T")
Table = TypeVar("Table", bound=_Paying)


def in_turn(question: Callable[Concatenate[Table, P], T]) -> Callable[Concatenate[Table, P], T]:
    """The same question, asked when no other thread asks one of the same account, through whichever view.

    **Privacy.** A check, its payment and its answer belong together: two threads must not both find a measurement free
    that a run may make once, nor one of them the counts that another is about to keep.
    """

    @wraps(question)
    def waited(table: Table, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with table.account.turn:
            return question(table, *args, **kwargs)

    return waited
