"""Finishing an interrupted run from what it had measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial as partial_of
from os import PathLike
from typing import TypeAlias

from understudy.accounting import Receipt
from understudy.arguments import as_path, as_progress
from understudy.errors import InputError, ReleaseError, SettingError, UnderstudyError
from understudy.mechanism import Fit, mechanism_named
from understudy.model.dependencies import learn_dependencies
from understudy.progress import Progress
from understudy.quality import Quality
from understudy.release import Partial, Release, read_partial
from understudy.release.partial import in_use
from understudy.schema import Schema
from understudy.synthesis.preflight import check_output, find_compiler_cache

Rate: TypeAlias = Callable[[Fit, Receipt, Schema], tuple[Quality | None, Receipt]]
"""Measures the quality of a fit, and adds what that cost to the receipt; None where that cannot be asked any more."""


def resume(
    partial: str | PathLike[str],
    *,
    output: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    rate: Rate | None = None,
) -> Release:
    """Finish an interrupted run from what it had measured. Costs nothing: rows are not needed and not read.

    Args:
        partial: the file that the interrupted run left.
        output: where to save the release; the partial file is removed once that is done.
        progress: called with each `Step`.
        rate: measures the quality of the fit, out of the share that the run had kept for it; for callers who have the
            rows. Without it a resumed release has no `quality`.

    Raises:
        ReleaseError: the file is not a partial release, its run still goes on, or nothing had been measured yet.
        OutputError: the release cannot be written; the partial file stays.
    """
    partial, told = as_path("partial", partial), as_progress(progress)
    output = None if output is None else as_path("output", output)
    if output is not None:
        check_output(output)
    find_compiler_cache()
    if in_use(partial):
        raise ReleaseError(f"{partial}: its run is not interrupted, it still goes on; wait for it. Nothing was changed")
    held = read_partial(partial)
    if not held.measurements:
        raise ReleaseError(
            f"{partial}: the run stopped before its first measurement, so there is nothing to finish. "
            f"{len(held.charges)} charges were made and stand"
        )
    try:
        schema = Schema.from_dict(held.schema)
        mechanism = mechanism_named(held.run["mechanism"], **held.run["settings"])
        receipt = _paid_receipt(held, schema)
        label = {key: held.run[key] for key in ("mechanism", "settings", "rows")}
    except (UnderstudyError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = str(error) if isinstance(error, SettingError) else "its content contradicts itself"
        raise ReleaseError(f"{partial} cannot be finished: {reason}. Nothing was changed") from None
    finish = partial_of(mechanism.finish, schema.domain, held.measurements, recoding=held.recoding, progress=told)
    try:
        fit = finish(total=schema.rows_used)
    except InputError:  # a wrongly declared number of rows must not lose what was paid for: the noisy one serves
        fit = finish(total=None)
    fit = learn_dependencies(mechanism.finish, fit, schema, total=schema.rows_used, progress=told)
    quality = None
    if rate is not None:
        quality, receipt = rate(fit, receipt, schema)
    release = Release.of(fit, schema, receipt, quality=quality, **label)
    if output is not None:
        release.save(output)
        partial.unlink(missing_ok=True)
    return release


def _paid_receipt(held: Partial, schema: Schema) -> Receipt:
    """The receipt of an interrupted run; what its columns rest on is told by the schema, which may have been bought.

    **Privacy.** A charge for quality is left out: its answer is about another fit, and this release does not tell it.

    Raises:
        BudgetExceeded, ValueError: when charges pass the budget, or a measurement was not paid for: no run wrote that.
    """
    charges = [charge.to_dict() for charge in held.charges if charge.what != "quality"]
    facts = held.run["receipt"]["facts"] | {column.name: column.origin for column in schema.columns}
    receipt = Receipt.from_dict({**held.run["receipt"], "charges": charges, "facts": facts})
    paid = Counter((charge.about[0], charge.noise) for charge in held.charges if charge.what == "measure")
    paid.subtract((measurement.clique, measurement.noise) for measurement in held.measurements)
    if any(left < 0 for left in paid.values()):
        raise ValueError("a measurement was not paid for")
    return receipt
