"""`book`: what the runs about each dataset have spent together, and the yearly limit its custodian set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.console import Json, tell
from understudy.errors import SettingError

if TYPE_CHECKING:
    from understudy.privacy.records.book import Book


def book(
    dataset: Annotated[str | None, typer.Argument(help="The dataset's name, as given to a run; default: all.")] = None,
    limit_epsilon: Annotated[float | None, typer.Option(help="Set a limit for any 365 days, in epsilon.")] = None,
    limit_delta: Annotated[float, typer.Option(help="The delta of that limit.")] = 1e-6,
    limit_rho: Annotated[float | None, typer.Option(help="Set a limit for any 365 days, in rho.")] = None,
    no_limit: Annotated[bool, typer.Option("--no-limit", help="Remove the limit.")] = False,
    as_json: Json = False,
) -> None:
    """Show what was spent on a dataset, and limit it by the year.

    The sum of several runs holds for budgets that were fixed in advance, not chosen by looking at earlier releases.

    A run that would pass the limit is warned of; `understudy run` refuses it. For example:

    understudy book people --limit-epsilon 4
    """
    from understudy.privacy.records.book import Book
    from understudy.privacy.records.limit import Limit

    shelf = Book()
    given = limit_epsilon is not None or limit_rho is not None
    if (given or no_limit) and dataset is None:
        raise SettingError("a limit is set for one dataset: name it")
    if given and no_limit:
        raise SettingError("--no-limit removes a limit; leave the others out")
    known = shelf.datasets()
    if dataset is not None and (given or no_limit):
        limit = None if no_limit else Limit(epsilon=limit_epsilon, delta=limit_delta, rho=limit_rho)
        shelf.set_limit(dataset, limit)
    pages = [_page(shelf, name) for name in ([dataset] if dataset is not None else known)]
    words = "\n".join(_words(page) for page in pages) or "The book is empty."
    if dataset is not None and dataset not in known:  # perhaps misspelt: a limit would then hold nobody back
        words += f"\nNothing was written down under this name before; the book has {', '.join(known) or 'nothing yet'}."
    tell(words, pages[0] if dataset is not None else {"datasets": pages}, as_json=as_json)


def _page(shelf: Book, dataset: str) -> dict[str, Any]:
    from understudy.privacy.records.limit import past_year, units

    spent, limit = shelf.spent(dataset), shelf.limit(dataset)
    page: dict[str, Any] = {"dataset": dataset, "runs": spent.runs, "rho": spent.rho, "epsilon": spent.epsilon}
    page |= {"delta": spent.delta, "mixed_units": spent.mixed, "limit": None, "text": str(spent)}
    if limit is not None:
        year = past_year(shelf.entries(dataset))
        used: float | None = limit.used(year)
        used = used if used is not None and math.isfinite(used) else None  # more than can be told: JSON has no infinity
        unit = "rho" if limit.rho is not None else "epsilon"
        page["limit"] = {"unit": unit, "most": limit.most, "delta": limit.delta, "used": used, "text": str(limit)}
        page["limit"] |= {"mixed_units": len(units(year)) > 1}
    return page


def _words(page: dict[str, Any]) -> str:
    line = f"{page['dataset']}: {page['text']}"
    if page["limit"] is None:
        return line
    if page["limit"]["mixed_units"]:
        return f"{line}\n    limit: {page['limit']['text']}; passed: the year's runs protect different units"
    most, used = page["limit"]["most"], page["limit"]["used"]
    left = 0.0 if used is None else most - used
    state = f"{used:.4g} used, {left:.4g} left" if left > 1e-9 * most else "all used"
    return f"{line}\n    limit: {page['limit']['text']}; {state}"
