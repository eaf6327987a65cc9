"""The one road from rows to a release: check everything that can be checked, then spend, then finish.

`synthesize` is long because each of its arguments is explained; `carried_out` and `_made` are the road.
"""

from __future__ import annotations

from fractions import Fraction
from os import PathLike
from typing import Any

from understudy.accounting.exact import float_below
from understudy.arguments import as_path, as_progress
from understudy.discovery.discover import Discovery, NoRows, discovery_budget, narrowest_schema
from understudy.errors import SettingError
from understudy.gate import PrivateTable
from understudy.mechanism import Mechanism
from understudy.mechanism.learned import settled
from understudy.privacy.records.book import Book
from understudy.progress import Progress, Step
from understudy.quality import parsed_share
from understudy.release import Release
from understudy.schema import Schema
from understudy.source import open_source
from understudy.source.open import StoredTable, make_opener, open_table
from understudy.source.place import table_name
from understudy.synthesis.earlier import Diverged
from understudy.synthesis.journal import RunJournal
from understudy.synthesis.rating import Rating, rated
from understudy.synthesis.run import Run, prepared


def synthesize(
    data: Any,
    schema: Schema | str | PathLike[str],
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mechanism: str | Mechanism = "mst",
    rows: int | None = None,
    progress: Progress | None = None,
    output: str | PathLike[str] | None = None,
    dataset: str | None = None,
    noise: str = "exact",
    discovery_share: float = 0.1,
    quality: float | str | None = None,
    query: str | None = None,
    temp_dir: str | PathLike[str] | None = None,
    **settings: Any,
) -> Release:
    """Make a differentially private stand-in for a table.

    Args:
        data: a pandas, polars or pyarrow frame; the path of a CSV or Parquet file, a folder of them, or a pattern
            (``data/*.parquet``); a database's URL (``postgresql://host/db?table=people``); a table of Spark, Ibis or
            DuckDB. Of a database, only counts come out.
        schema: what is public about the columns, or the path of its file.
        epsilon: with `delta`, the privacy budget; with `delta=0`, pure DP.
        delta: see `epsilon`.
        rho: the budget in zCDP, instead of epsilon.
        mechanism: a mechanism's name or the mechanism itself.
        rows: how many rows `release.sample()` makes by default; else the declared or the noisy number. It is part of
            the release: the table's exact number of rows does not belong here unless it is public.
        progress: called with each `Step`.
        output: where to save the release; checked before anything is spent.
        dataset: the name under which the book adds up what was spent about the same people.
        noise: "exact" (ours) or "opendp".
        discovery_share: the part of the budget that buys what the schema wants discovered; nothing is where it declares
            everything. A tenth of delta is set aside where values are bought.
        quality: the part of the budget, such as "5%", that measures the workload error of the result; it is told in
            `release.quality` and the report.
        query: a SELECT statement to read instead of a database's table; with files, they are its table ``data``.
        temp_dir: where engines put files while they work, in a private directory that is removed in the end.
        settings: the mechanism's settings, when it is given by name; `public` of nist-mst is a table that the
            custodian declares public.

    **Privacy.** The release satisfies the stated guarantee for the schema's privacy unit. The budget is written into
    the book before a row is counted; every charge and answer is written to a partial release the moment it exists.

    Raises:
        InputError: the table, the schema or a setting cannot be used. Nothing was spent.
        OutputError: something cannot be written. Nothing was spent.
        Paid: it failed after spending; the message says where what was paid for is kept.
    """
    output = None if output is None else as_path("output", output)
    told = as_progress(progress)
    if "seed" in settings:
        raise SettingError("seed: noise that protects people cannot be seeded; seed the rows, `release.sample(seed=1)`")
    schema = schema if isinstance(schema, Schema) else Schema.load(schema)
    budget = discovery_budget(schema, discovery_share, epsilon=epsilon, delta=delta, rho=rho)
    with open_table(data, query, temp_dir) as table:
        share = parsed_share(quality)
        rating = None if share is None else Rating(share)
        try:
            run = prepared(table, schema, budget, mechanism, settings, noise, rows, discovery_share, rating)
            journal = RunJournal(run, Book(), dataset or dataset_name(table), output)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note("Nothing was spent.")
            raise
        return carried_out(table, run, journal, output, told)


def carried_out(
    data: Any,
    run: Run,
    journal: RunJournal,
    output: str | PathLike[str] | None,
    progress: Progress,
) -> Release:
    """The release of a prepared run.

    Raises:
        UnderstudyError: as `synthesize`; Diverged for a second attempt at a run that cannot go on from the first.
    """
    try:
        release = _made(data, run, journal, output, progress)
    except BaseException as error:
        failure = journal.failed(error)
    else:
        journal.close(keep=False)
        return release
    raise failure  # out here the first error is not its context: its words and variables may hold values of the table


def _made(data: Any, run: Run, journal: RunJournal, output: str | PathLike[str] | None, progress: Progress) -> Release:
    progress(Step("read", None, "the table"))
    table = _opened(data, run, journal, progress)
    aside = run.rating.cost(run.budget.capacity) if run.rating is not None else 0
    fit = run.mechanism.fit(table, rho=float_below(table.account.remaining - aside), progress=progress)
    fit = settled(run.mechanism, fit, run.schema, total=table.rows_public, progress=progress)
    quality = None
    if run.rating is not None:
        progress(Step("measure", None, "the workload error"))
        quality = rated(table, fit, run.rating)
    receipt = run.receipt(table.account.charges)
    layout = _layout(data, run.schema)
    release = Release.of(fit, run.schema, receipt, layout=layout, quality=quality, **run.label())
    if output is not None:
        progress(Step("write", None, str(output)))
        release.save(output)
    return release


def _opened(data: Any, run: Run, journal: RunJournal, progress: Progress) -> PrivateTable:
    """The rows behind the gate, coded by the declared schema, or by one that was completed with what was bought.

    What an earlier attempt at the run had bought is taken as it is; what it had begun to buy is lost, and stays paid.
    """
    earlier = journal.earlier
    paid = [] if earlier is None else earlier.purchases()
    if earlier is not None and (bought := earlier.bought()) is not None:
        if (bought.privacy_unit, bought.rows) != (run.schema.privacy_unit, run.schema.rows):
            raise Diverged("the schema on record protects others than the declared one")
        run.complete(bought)
    if not run.schema.open:
        source = open_source(data, run.schema)
        table = PrivateTable(source, run.budget, noise=run.noise, journal=journal, plan=run.plan)
        table.account.pay(paid)
        return table
    opener = make_opener(data, run.schema)
    opener(narrowest_schema(run.schema))  # refuses a missing or unreadable column before anything is spent
    table = PrivateTable(NoRows(run.schema), run.budget, noise=run.noise, journal=journal)
    table.account.pay(paid)
    share = Fraction(run.discovery_share) * table.account.remaining
    run.complete(Discovery(table, opener, run.schema, share, progress).discover(run.fits))
    journal.bought(run.schema)
    return table.over(opener(run.schema))


def _layout(data: Any, schema: Schema) -> dict[str, str]:
    """The column types to give back: those of a frame; a file's are the declared ones."""
    return {} if isinstance(data, str | PathLike) or not hasattr(data, "columns") else schema.layout(data)


def dataset_name(data: Any) -> str:
    """The book's name for a table that was given none: that of the file, folder or database table, else "unnamed"."""
    return data.name if isinstance(data, StoredTable) else table_name(data)
