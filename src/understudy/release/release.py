"""The release: schema, measurements, model and receipt. Everything in it may be published."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.accounting import Receipt
from understudy.arguments import as_path, as_whole, html_table
from understudy.errors import ManyRows, ReleaseError, SettingError
from understudy.measurement import Measurement
from understudy.model.fit import Fit, Generator
from understudy.model.protocol import MODELS, Model
from understudy.quality import Quality
from understudy.release.answer import (
    Answer,
    answer,
    bound_row_count,
    check_confidence,
    collect_evidence,
    list_workload_cliques,
)
from understudy.release.archive import (
    check_page,
    check_parts,
    explain_damage,
    measurement_from_dict,
    measurement_to_dict,
    pack,
    read_archive,
    unpack,
    write_archive,
)
from understudy.release.bounds import Bound, bound_marginals
from understudy.schema import Recoding, Schema
from understudy.schema.axis import AxisColumn

if TYPE_CHECKING:
    from understudy.release.frames import Frame
    from understudy.release.inference import Inference
    from understudy.release.inference.corrected import CorrectedTables
    from understudy.release.inference.gap import Gaps
    from understudy.release.rows import RowMaker
    from understudy.svg import Chart

_DRAWN_ROWS, _DRAWN_BARS = 20_000, 24
_MOST_ROWS = 10**11  # with a tiny budget, the noisy number of rows may be enormous
_UNLISTED = 0.1  # of the rows; a draft folds rare values into `other` as well


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A release: schema, measurements, model and receipt; a private stand-in for a table.

    Attributes:
        schema: the public facts about the columns.
        mechanism: the mechanism's name.
        settings: its settings.
        model: the distribution rows are drawn from.
        measurements: the noisy marginals; nothing else was learned from the rows.
        receipt: the account of the privacy spent.
        recoding: codes that were merged; undone when rows are made.
        rounds: the record of an adaptive mechanism that error bounds need.
        default_rows: the default number of rows of `sample`.
        quality: the workload error, where a share of the budget was kept to measure it.
        generator: how the model was made from the measurements; None if the mechanism has its own method.

    **Privacy.** Made of declared facts and charged measurements only; any use of it is post-processing and free.
    """

    schema: Schema
    mechanism: str
    settings: Mapping[str, Any]
    model: Model
    measurements: Sequence[Measurement]
    receipt: Receipt
    recoding: Recoding = field(default_factory=Recoding.identity)
    rounds: Sequence[Mapping[str, Any]] = ()
    default_rows: int = 1
    quality: Quality | None = None
    generator: Generator | None = None

    @classmethod
    def of(
        cls,
        fit: Fit,
        schema: Schema,
        receipt: Receipt,
        *,
        mechanism: str,
        settings: Mapping[str, Any],
        rows: int | None = None,
        quality: Quality | None = None,
    ) -> Release:
        """Make the release of a mechanism's fit; rows default to the declared number, else to the noisy total."""
        default = rows or schema.rows or max(1, round(fit.model.total))
        return cls(
            schema=schema,
            mechanism=mechanism,
            settings=settings,
            model=fit.model,
            measurements=fit.measurements,
            receipt=receipt,
            recoding=fit.recoding,
            rounds=fit.rounds,
            default_rows=default,
            quality=quality,
            generator=fit.generator,
        )

    @property
    def title(self) -> str:
        """The schema's title; without one, the names of the first columns."""
        names = [column.name for column in self.schema.coded]
        more = f" and {len(names) - 3} more columns" if len(names) > 3 else ""
        return self.schema.title or f"Stand-in of {', '.join(names[:3])}{more}"

    def _repr_html_(self) -> str:
        pairs = sum(len(measurement.clique) > 1 for measurement in self.measurements)
        lines = [
            ("Guarantee", self.receipt.guarantee()),
            ("Mechanism", self.mechanism),
            ("Columns", len(self.schema.coded)),
            ("Rows by default", f"{self.default_rows:,}"),
            ("Tables measured", f"{len(self.measurements)}, {pairs} of several columns"),
        ]
        return html_table(self.title, (), lines, notes=self.notes)

    def plot(self, column: str) -> Chart:
        """Draw the distribution of a column in synthetic rows, as a chart that notebooks show.

        **Privacy.** Post-processing of the release.

        Raises:
            SettingError: if there is no such column.
        """
        names = [coded.name for coded in self.schema.coded]
        if column not in names:
            raise SettingError(f"plot: there is no column {column!r}; the columns are {', '.join(names)}")
        from understudy.svg import Bar, Chart, draw_distribution

        drawn = self.schema.coded[names.index(column)]
        rows = self.sample(min(self.default_rows, _DRAWN_ROWS), seed=0, as_="arrow", as_written=True)
        counts = np.bincount(self.schema.encode(rows).codes[column], minlength=drawn.size)
        labelled = zip(drawn.code_labels(), counts / max(counts.sum(), 1), strict=True)
        bars = [Bar(label, float(share)) for label, share in labelled]
        title = f"Distribution of {column}"
        if isinstance(drawn, AxisColumn) and drawn.needs_histogram:
            edges = drawn.axis_edges()
            return Chart.standalone(draw_distribution(title, bars[: drawn.ordinary], ordered=True, edges=edges))
        if not isinstance(drawn, AxisColumn) and drawn.kind != "ordinal":
            bars.sort(key=lambda bar: -bar.share)
        return Chart.standalone(draw_distribution(title, bars[:_DRAWN_BARS], ordered=False))

    def __repr__(self) -> str:
        columns = len(self.schema.domain)
        return f"<Release by {self.mechanism}: {columns} columns, {self.default_rows} rows, {self.receipt.guarantee()}>"

    def sample(
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        as_: Frame = "arrow",
        rare: str | Mapping[str, str] | None = None,
        where: str | Mapping[str, Any] | None = None,
        as_written: bool = False,
    ) -> Any:
        """Make synthetic rows. No row breaks a rule of the schema.

        The frame is an arrow table unless `as_` names another library, and the types of its columns are those of the
        schema: neither depends on the table that the release was made from, or on whether the release was saved.

        Args:
            rows: how many; by default the declared number of rows, else the noisy total.
            seed: the same release and seed give the same rows; without it they are fresh each time.
            as_: the library of the frame: "arrow", "pandas", "polars" or "spark" (in the session that is running).
            rare: how values that were merged as too rare (`merged`) are written: "spread" (in proportion to what was
                measured), "other", "hierarchy" (by groups of the column's first level), "even", "counts" (by noisy
                counts above 0); one rule for all columns or one per column. By default the mechanism's setting `rare`;
                without one "other" where the column has such a value, else "spread".
            where: conditions that every row satisfies, written as in `answer`. Rows are drawn from the model given
                the conditions; none are rejected. The default number of rows is then the expected number that
                satisfies them.
            as_written: return text for columns whose file format holds more than a typed column can: tokens for
                missing values, date patterns, decimal marks.

        **Privacy.** Post-processing: costs nothing, however often it is called.

        Raises:
            SettingError: if rows or seed is negative, the frame library or a rule is unknown, or no row can satisfy
                the conditions.
        """
        from understudy.release.frames import check_kind, convert_rows
        from understudy.release.rows import check_size

        check_kind(as_)
        maker, rows, seed = self._prepare(rows, seed, where, rare, as_written)
        check_size(rows, len(self.schema.columns))
        return convert_rows(maker.rows(rows, np.random.default_rng(seed)), as_)

    def stream(
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        rare: str | Mapping[str, str] | None = None,
        where: str | Mapping[str, Any] | None = None,
        as_written: bool = False,
    ) -> tuple[int, Iterator[Any]]:
        """Make synthetic rows without holding all of them: their number, and arrow tables of about a million rows each.

        The arguments are those of `sample`. Up to 2^20 rows are the rows that `sample` makes with the same seed; more
        rows are made in chunks, each drawn independently from the same model, and are the same for the same seed.

        **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: as `sample`.
        """
        maker, rows, seed = self._prepare(rows, seed, where, rare, as_written)
        if rows > _MOST_ROWS:
            raise SettingError(
                f"{rows} rows are too many to write; give a smaller number (rows=, on the command line -n)"
            )
        return rows, maker.chunks(rows, seed)

    def _prepare(
        self, rows: Any, seed: Any, where: Any, rare: Any, as_written: bool
    ) -> tuple[RowMaker, int, int | None]:
        from understudy.release.rows import RowMaker

        text = self.schema.text_columns() if as_written else ()
        maker = RowMaker(self, where=where, rare=rare, text=text)
        if rows is not None and where is None:
            self._warn_many_rows(as_whole("rows", rows))
        rows = maker.expected_rows(self.default_rows) if rows is None else rows
        return maker, as_whole("rows", rows), None if seed is None else as_whole("seed", seed)

    def _warn_many_rows(self, rows: int) -> None:
        most = self.most_rows
        if most is not None and rows > most:
            without = "" if self.schema.left_out is None else f" (without {self.schema.left_out})"
            words = (
                f"the true table has at most about {most:.0f} rows{without}; more synthetic ones add no evidence, and"
            )
            warnings.warn(f"{words} standard errors computed from them are too small", ManyRows, stacklevel=4)

    @cached_property
    def corrected(self) -> CorrectedTables:
        """The model's marginals, corrected with the unbiased measurements; used by `infer`."""
        from understudy.release.inference.corrected import CorrectedTables

        return CorrectedTables(self)

    @cached_property
    def gaps(self) -> Gaps:
        """How strong the relations may be that were not measured; used by `infer`."""
        from understudy.release.inference.gap import Gaps

        return Gaps(self, self.corrected)

    @property
    def merged(self) -> dict[str, list[Any]]:
        """By column, the values that were merged because too few rows had them; see `rare` in `sample`."""
        from understudy.release.rows import list_merged_values

        return list_merged_values(self.recoding, self.schema)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for users of the rows: unlisted values in many rows, and that no pair of columns was measured."""
        return (*self._note_unlisted(), *self._note_independence())

    def _note_unlisted(self) -> Iterator[str]:
        """Name the columns in which values that the schema does not list are common, by their noisy counts."""
        if self.receipt.rehearsal:
            return  # made-up rows have any value
        measured = {measurement.clique: measurement for measurement in self.measurements if measurement.query is None}
        total = max(float(self.model.total), 1.0)
        for column in self.schema.coded:
            found = measured.get((column.name,))
            if found is None or column.other_code is None or len(found.values) != column.size:
                continue
            rows = float(found.values[column.other_code])
            if rows > _UNLISTED * total + 3 * found.sigma:
                yield (
                    f"About {100 * rows / total:.0f} % of the rows have a value of {column.name!r} that the schema "
                    "does not list (they count as `other`): if new values have appeared, add them to the schema."
                )

    def _note_independence(self) -> tuple[str, ...]:
        wide = sum(size > 1 for size in self.schema.domain.values())
        if wide < 2 or any(len(measurement.clique) > 1 for measurement in self.measurements):
            return ()
        apart = ", apart from the schema's rules" if self.schema.rules else ""
        remedy = (
            "another mechanism, such as mst, measures pairs"
            if self.mechanism == "independent"
            else "a larger budget, fewer columns, or coarser bins and categories would help"
        )
        return (f"No pair of columns was measured: the columns are independent in synthetic rows{apart}; {remedy}.",)

    @property
    def most_rows(self) -> float | None:
        """The largest number of rows that the true table can have (of those used), at 99.9 % confidence, if known.

        With more synthetic rows than that, standard errors computed from them are too small.
        """
        return self.schema.rows or bound_row_count(collect_evidence(self))

    def answer(
        self, query: str | Mapping[str, Any], *, confidence: float = 0.95, share: bool = False, rows: Any = None
    ) -> Answer:
        """Estimate how many rows satisfy conditions, with an interval for the true number.

        Args:
            query: conditions by column, all of which must hold: a value, a list of values, or a tuple of two ends, both
                included (None: open); or text such as `"sex=F, age=30..40"`.
            confidence: the probability with which the interval holds.
            share: answer with shares of all rows instead of counts.
            rows: synthetic rows to answer from as well.

        **Guarantees.** The interval holds with that probability over the mechanism's noise, for any rows. It is
        about the rows that the release uses (`left_out` says which it does not), as the schema codes them: a value
        beyond a bound counts as the bound. Each answer holds with that probability by itself; for m answers to hold
        together with probability c, use confidence 1 - (1 - c) / m.
        **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: for a query that does not fit the schema.
        """
        return answer(self, query, confidence=confidence, share=share, rows=rows)

    def bounds(
        self, workload: str | None = None, *, confidence: float = 0.95, simultaneous: bool = False
    ) -> list[Bound]:
        """Bound the L1 distance of the model's marginals from the true ones; values merged as rare count as one value.

        Args:
            workload: which marginals: `all-2way`, `target:COLUMN`, a YAML file, ...; by default the mechanism's own
                workload, else `all-2way`.
            confidence: the probability with which each bound holds.
            simultaneous: make all bounds hold together with that probability.

        **Guarantees.** The bounds hold with that probability over the mechanism's noise, for any rows; where none
        is known, `bound` is None. **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: for an unknown workload or a confidence that is not between 0 and 1.
        """
        check_confidence(confidence)
        evidence = collect_evidence(self)
        wanted = list_workload_cliques(evidence, workload, self.settings.get("workload"))
        return bound_marginals(evidence, wanted, confidence=confidence, simultaneous=simultaneous)

    def infer(
        self,
        statistic: str,
        *,
        family: Literal["gaussian", "binomial"] | None = None,
        target: Literal["table", "population"] = "table",
        confidence: float = 0.95,
        where: str | Mapping[str, Any] | None = None,
        assume: float | None = None,
    ) -> Inference:
        """Estimate a statistic with standard errors and confidence intervals that account for the noise.

        Synthetic rows are not used. The model's marginals are corrected with the unbiased measurements, so that neither
        its non-negative counts nor what it fills in for unmeasured marginals bias the estimate.

        Args:
            statistic: a formula such as `income ~ age + C(sex)`, parsed by formulaic; `mean(age)`, `share(sex=F)`, each
                also by group (`mean(age) | sex`); `corr(age, hours)`; or `chisq(sex, income)`.
            family: "gaussian" for least squares, "binomial" for logistic regression; by default binomial where the
                response has two values.
            target: "table", the rows of the true table; or "population", if they are an independent sample of it. The
                sampling error then allows for pairs having been measured because they look related in the rows.
            confidence: the probability with which each interval holds.
            where: conditions that the rows satisfy, written as in `answer`.
            assume: the strongest correlation that the model may have missed between columns that were not measured
                together; by default it is estimated from the release, and the statistic is refused if that cannot be.

        **Guarantees.** Intervals hold with about that probability over the noise (and the sample) if all relations
        were measured; otherwise the result warns, and the intervals depend on the missed correlation. The statistic is
        about the table as coded: a number counts as the mean of its bin. Rows without a value in one of the columns are
        left out. benchmarks/inference.md has measured coverage. **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: if the text is not a statistic, columns are unknown, terms are collinear, the noise hides a
                group, or the statistic depends on relations of which nothing is known.
            InputError: if the extra `[infer]` is not installed.
        """
        from understudy.release.inference import infer

        return infer(self, statistic, family=family, target=target, confidence=confidence, where=where, assume=assume)

    def replicates(
        self, count: int = 20, *, rows: int | None = None, seed: int | None = None, as_: Frame = "arrow"
    ) -> list[Any]:
        """Make synthetic tables that show how much results vary: each from rows of the model, measured with new noise.

        The spread of an estimate over them shows the effect of noise and sampling; do not add the sampling error again.
        Use it for graphics and exploration; `combine` has the rule. It does not show relations that were never
        measured, nor most of the bias that non-negative counts cause in sparse marginals. For standard errors and
        intervals use `infer`.

        Args:
            count: how many.
            rows: how many rows each; by default as `sample`.
            seed: the same release and seed give the same tables.
            as_: the library of the frames, as in `sample`.

        **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: for a release that does not say how its model was made.
        """
        from understudy.release.replicates import make_replicates

        return list(make_replicates(self, count, rows=rows, seed=seed, as_=as_))

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the release to one file, completely or not at all.

        Args:
            path: the file.
            overwrite: replace a file of that name. The budget of a release that is lost cannot be recovered.

        Raises:
            OutputError: if the file already exists, or cannot be written.
        """
        target = as_path("path", path)
        arrays: dict[str, NDArray[Any]] = {}
        write_archive(target, self.to_manifest(arrays), arrays, overwrite=overwrite)

    def to_manifest(self, arrays: dict[str, NDArray[Any]], prefix: str = "") -> dict[str, Any]:
        """Return the content of a release file as plain data; its arrays are added to `arrays`, named with `prefix`."""
        return {
            "schema": self.schema.to_dict(),
            "mechanism": self.mechanism,
            "settings": pack(dict(self.settings), arrays, f"{prefix}settings"),
            "receipt": self.receipt.to_dict(),
            "recoding": self.recoding.to_dict(),
            "rounds": pack(list(self.rounds), arrays, f"{prefix}rounds"),
            "default_rows": self.default_rows,
            **({} if self.quality is None else {"quality": self.quality.to_dict()}),
            **({} if self.generator is None else {"generator": self.generator.to_dict()}),
            "measurements": pack([measurement_to_dict(m) for m in self.measurements], arrays, f"{prefix}measurements"),
            "model": {"kind": self.model.kind, "arrays": pack(self.model.to_arrays(), arrays, f"{prefix}model")},
        }

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Release:
        """Read a release file; nothing in it is run.

        Raises:
            ReleaseError: if it is missing, damaged, altered, or of a newer format.
        """
        manifest, arrays = read_archive(as_path("path", path))
        if "parts" in manifest:
            raise ReleaseError(
                f"{path} is a release of linked tables, and this is possible with single tables only; "
                "`understudy.release.open_release` opens both"
            )
        with explain_damage(path):
            return cls.from_manifest(manifest, arrays)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Release:
        """Return the release that `to_manifest` wrote; everything in it is checked."""
        kind = manifest["model"]["kind"]
        if kind not in MODELS:
            raise ReleaseError("it holds a model of a kind that this version does not know; install a newer understudy")
        page = unpack(manifest, arrays)
        check_page(page)
        schema = Schema.from_dict(page["schema"])
        recoding = Recoding.from_dict(page["recoding"])
        release = cls(
            schema=schema,
            mechanism=page["mechanism"],
            settings=page["settings"],
            model=MODELS[kind].from_arrays(recoding.recode(schema.domain), page["model"]["arrays"]),
            measurements=[measurement_from_dict(data) for data in page["measurements"]],
            receipt=Receipt.from_dict(page["receipt"]),
            recoding=recoding,
            rounds=page["rounds"],
            default_rows=page["default_rows"],
            quality=None if page.get("quality") is None else Quality(**page["quality"]),
            generator=None if page.get("generator") is None else Generator(**page["generator"]),
        )
        check_parts(release.measurements, release.rounds, release.model, collect_evidence(release))
        return release


def summarize(release: Release) -> dict[str, Any]:
    """Summarize a release as plain data, for scripts; public facts only."""
    return {
        **summarize_account(release.mechanism, release.receipt, release.default_rows),
        "columns": list(release.schema.domain),
        "measurements": len(release.measurements),
        "charges": len(release.receipt.charges),
        "notes": list(release.notes),
        "quality": None if release.quality is None else release.quality.to_dict_with_interval(),
    }


def summarize_account(mechanism: str, receipt: Receipt, default_rows: int) -> dict[str, Any]:
    """Summarize what releases of one table and of linked tables have in common, as plain data."""
    return {
        "mechanism": mechanism,
        "guarantee": receipt.guarantee(),
        "epsilon": receipt.epsilon,
        "delta": receipt.delta,
        "rho": receipt.rho,
        "insecure": receipt.insecure,
        "rehearsal": receipt.rehearsal,
        "default_rows": default_rows,
    }
