"""The release: everything that may leave the building."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from understudy.accounting import Receipt
from understudy.arguments import as_path, as_whole
from understudy.bounds import Bound, marginal_bounds
from understudy.errors import ReleaseError, SettingError, UnderstudyError
from understudy.measurement import Measurement
from understudy.mechanism import Fit
from understudy.model.protocol import Model
from understudy.model.registry import MODELS
from understudy.notice import ManyRows
from understudy.quality import Quality
from understudy.release.answer import Answer, answer, check_confidence, rows_known
from understudy.release.archive import read_archive, write_archive
from understudy.release.evidence import asked_about, evidence_of
from understudy.release.pack import measurement_data, measurement_from, pack, unpack
from understudy.release.rare import merged_values
from understudy.release.replicates import replicates
from understudy.release.rows import Maker, check_size
from understudy.release.spark import framed, write_table
from understudy.release.structure import check_page, check_parts
from understudy.schema import Recoding, Schema

_MOST_ROWS = 10**11  # under a tiny budget the noisy number of rows may be millions of millions

Frame = Literal["arrow", "pandas", "polars", "spark"]


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A stand-in for a table: schema, measurements, model and privacy receipt.

    Attributes:
        schema: the public facts about the columns.
        mechanism: the mechanism's name.
        settings: its settings.
        model: the distribution rows are drawn from.
        measurements: the noisy marginals: all that was learned from the rows.
        receipt: the account of the privacy spent.
        recoding: codes that were merged; undone when rows are made.
        rounds: what error bounds need of an adaptive mechanism.
        default_rows: how many rows `sample` makes unless told.
        frame: the kind of frame `sample` makes unless told: the kind that went in, arrow after loading.
        layout: the column types of the frame that went in, where its owner chose other than the declared ones; not
            saved.
        quality: the workload error, where a share of the budget was kept to measure it.

    **Privacy.** Made of declared facts and paid-for answers only; anything done with it is post-processing and free.
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
    frame: Frame = "arrow"
    layout: Mapping[str, str] = field(default_factory=dict)
    quality: Quality | None = None

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
        frame: Frame = "arrow",
        layout: Mapping[str, str] | None = None,
        quality: Quality | None = None,
    ) -> Release:
        """The release of a mechanism's fit; rows default to the declared number, else to the noisy total."""
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
            frame=frame,
            layout=layout or {},
            quality=quality,
        )

    def __repr__(self) -> str:
        columns = len(self.schema.domain)
        return f"<Release by {self.mechanism}: {columns} columns, {self.default_rows} rows, {self.receipt.guarantee()}>"

    def sample(
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        as_: Frame | None = None,
        rare: str | Mapping[str, str] | None = None,
        where: str | Mapping[str, Any] | None = None,
        as_written: bool = False,
    ) -> Any:
        """Synthetic rows, as a frame of the kind that went in (arrow after loading).

        No row breaks a rule of the schema.

        Args:
            rows: how many; by default the declared number of rows, else the noisy total.
            seed: the same release and seed give the same rows; without it they are fresh each time.
            as_: "arrow", "pandas", "polars" or "spark" (in the session that is running).
            rare: what stands for values that were too rare to be told apart (`merged`): "spread" (in proportion to
                what was measured), "other", "hierarchy" (by groups of the column's first level); one for all columns
                or one by column. By default "other" where the column's values can say so, else "spread".
            where: make rows that satisfy conditions, written as in `answer`: exact from the model given them, not by
                throwing rows away. Without `rows` as many as are expected of the default number.
            as_written: give columns as text where the table's files say what a typed column cannot: tokens for
                reasons of being missing, date patterns, decimal marks.

        **Privacy.** Post-processing: costs nothing, however often it is called.

        Raises:
            SettingError: when rows or seed is negative, the frame library or a rule is unknown, or no row can satisfy
                the conditions.
        """
        if as_ not in (None, "arrow", "pandas", "polars", "spark"):
            raise SettingError(f"as_: {as_!r} is unknown; use 'arrow', 'pandas', 'polars' or 'spark'")
        maker, rows, seed = self._maker(rows, seed, where, rare, as_written)
        check_size(rows, len(self.schema.columns))
        return framed(maker.rows(rows, np.random.default_rng(seed)), as_ or self.frame)

    def stream(
        self,
        rows: int | None = None,
        *,
        seed: int | None = None,
        rare: str | Mapping[str, str] | None = None,
        where: str | Mapping[str, Any] | None = None,
        as_written: bool = False,
    ) -> tuple[int, Iterator[Any]]:
        """Synthetic rows without holding all of them: how many there will be, and arrow tables of about a million each.

        The arguments are those of `sample`. Up to 2^20 rows are the rows that `sample` makes with the same seed; more
        are made in chunks, each drawn by itself from the same model, and are the same for the same seed.

        **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: as `sample`.
        """
        maker, rows, seed = self._maker(rows, seed, where, rare, as_written)
        if rows > _MOST_ROWS:
            raise SettingError(f"{rows} rows are too many to write; say how many are wanted (rows=, -n)")
        return rows, maker.chunks(rows, seed)

    def write_spark(
        self, session: Any, table: str, *, rows: int | None = None, overwrite: bool = False, **sampled: Any
    ) -> int:
        """Write synthetic rows to a new table of Spark, with their types, without holding all of them.

        The table appears when all rows are in it; what fails or is interrupted leaves nothing behind. It has the
        session's default format.

        Args:
            session: the Spark session.
            table: the table's name, such as "clinic.visits_standin".
            rows: how many; by default as `sample`.
            overwrite: replace a table of that name.
            sampled: `seed`, `rare`, `where` and `as_written`, as in `stream`.

        Returns:
            How many rows were written.

        **Privacy.** Post-processing: costs nothing.

        Raises:
            OutputError: when the table is there already, or cannot be written.
            SettingError: as `sample`.
        """
        count, chunks = self.stream(rows, **sampled)
        write_table(session, table, chunks, overwrite=overwrite)
        return count

    def _maker(self, rows: Any, seed: Any, where: Any, rare: Any, as_written: bool) -> tuple[Maker, int, int | None]:
        layout = self.schema.file_layout() if as_written else self.layout
        maker = Maker(self, where=where, rare=rare, layout=layout)
        if rows is not None and where is None:
            self._mind_evidence(as_whole("rows", rows))
        rows = maker.expected(self.default_rows) if rows is None else rows
        return maker, as_whole("rows", rows), None if seed is None else as_whole("seed", seed)

    def _mind_evidence(self, rows: int) -> None:
        most = self.most_rows
        if most is not None and rows > most:
            without = "" if self.schema.left_out is None else f" (without {self.schema.left_out})"
            words = (
                f"the true table has at most about {most:.0f} rows{without}; more synthetic ones add no evidence, and"
            )
            warnings.warn(f"{words} standard errors computed from them are too small", ManyRows, stacklevel=4)

    @property
    def merged(self) -> dict[str, list[Any]]:
        """By column, the values that too few rows had to be told apart; see `rare` in `sample`."""
        return merged_values(self.recoding, self.schema)

    @property
    def most_rows(self) -> float | None:
        """The most rows that the true table can have (of those used), at 99.9 % confidence; None where nothing tells.

        More synthetic rows than that look like more evidence than there is: standard errors from them are too small.
        """
        return self.schema.rows or rows_known(evidence_of(self))

    def answer(
        self, query: str | Mapping[str, Any], *, confidence: float = 0.95, share: bool = False, rows: Any = None
    ) -> Answer:
        """The number of rows that satisfy some conditions, by the model, and where the true number lies.

        Args:
            query: conditions by column, all of which must hold: a value, a list of values, or a tuple of two ends, both
                included (None: open); or text such as `"sex=F, age=30..40"`.
            confidence: the probability with which the interval holds.
            share: answer with shares of all rows instead of counts.
            rows: synthetic rows to answer from as well.

        **Guarantees.** The interval holds with that probability over the mechanism's noise, whatever the rows. It is
        about the rows that the release uses (`left_out` says which it does not), as the schema codes them: a value
        beyond a bound counts as the bound. Several answers each hold with it; for m of them together ask for
        confidence 1 - (1 - c) / m.
        **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: for a query that does not fit the schema.
        """
        return answer(self, query, confidence=confidence, share=share, rows=rows)

    def bounds(
        self, workload: str | None = None, *, confidence: float = 0.95, simultaneous: bool = False
    ) -> list[Bound]:
        """How far the model's marginals can be from the true ones, in L1 distance; values merged as rare are one value.

        Args:
            workload: which marginals: `all-2way`, `target:COLUMN`, a YAML file, ...; by default the mechanism's own
                workload, else `all-2way`.
            confidence: the probability with which each bound holds.
            simultaneous: make all of them hold together with that probability.

        **Guarantees.** The bounds hold with that probability over the mechanism's noise, whatever the rows; where none
        is known, `bound` is None. **Privacy.** Post-processing: costs nothing.

        Raises:
            SettingError: for an unknown workload or a confidence that is not between 0 and 1.
        """
        check_confidence(confidence)
        evidence = evidence_of(self)
        wanted = asked_about(evidence, workload, self.settings.get("workload"))
        return marginal_bounds(evidence, wanted, confidence=confidence, simultaneous=simultaneous)

    def replicates(self, count: int = 20, *, rows: int | None = None, seed: int | None = None) -> list[Any]:
        """Synthetic tables for standard errors: each made anew from the model, measured with as much noise again.

        The spread of an analyst's estimate over them shows what the noise and the drawing of rows do to it. It does not
        show what the model left out: a relation that was never measured is missing in all of them alike.

        Args:
            count: how many.
            rows: how many rows each; by default as `sample`.
            seed: the same release and seed give the same tables.

        **Privacy.** Post-processing: costs nothing.
        """
        return list(replicates(self, count, rows=rows, seed=seed))

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the release to one file, completely or not at all.

        Args:
            path: the file.
            overwrite: replace a file of that name. What was paid for a release that is lost is not given back.

        Raises:
            OutputError: when the file is there already, or cannot be written.
        """
        target = as_path("path", path)
        arrays: dict[str, NDArray[Any]] = {}
        manifest = {
            "schema": self.schema.to_dict(),
            "mechanism": self.mechanism,
            "settings": pack(dict(self.settings), arrays, "settings"),
            "receipt": self.receipt.to_dict(),
            "recoding": self.recoding.to_dict(),
            "rounds": pack(list(self.rounds), arrays, "rounds"),
            "default_rows": self.default_rows,
            **({} if self.quality is None else {"quality": self.quality.to_dict()}),
            "measurements": pack([measurement_data(m) for m in self.measurements], arrays, "measurements"),
            "model": {"kind": self.model.kind, "arrays": pack(self.model.to_arrays(), arrays, "model")},
        }
        write_archive(target, manifest, arrays, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Release:
        """Read a release file; nothing in it is run.

        Raises:
            ReleaseError: when it is missing, damaged, altered, or of a newer format.
        """
        manifest, arrays = read_archive(as_path("path", path))
        try:
            return cls._from(manifest, arrays)
        except ReleaseError as error:
            raise ReleaseError(f"{path}: {error}") from None
        except (UnderstudyError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
            raise ReleaseError(f"{path}: its content contradicts itself; ask for a fresh copy") from None
        except MemoryError:
            raise ReleaseError(f"{path}: it does not fit in memory; open it on a larger machine") from None

    @classmethod
    def _from(cls, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Release:
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
            measurements=[measurement_from(data) for data in page["measurements"]],
            receipt=Receipt.from_dict(page["receipt"]),
            recoding=recoding,
            rounds=page["rounds"],
            default_rows=page["default_rows"],
            quality=None if page.get("quality") is None else Quality(**page["quality"]),
        )
        check_parts(release.measurements, release.rounds, release.model, evidence_of(release))
        return release
