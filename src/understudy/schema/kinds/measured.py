"""Columns on a numeric axis: what integers, numbers, dates, datetimes and durations share."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator

from understudy.schema.format.dialect import Dialect
from understudy.schema.kinds.axis import Axis, Draw, Top, build_axis, cut
from understudy.schema.kinds.coded import Coded, plain_text
from understudy.schema.kinds.levels import Generalisation, Level, group_intervals
from understudy.schema.kinds.table import Codes, Entry
from understudy.schema.kinds.text import EMPTY, as_text, meaning, meanings


class Bins(BaseModel):
    """Bins by width or by explicit edges (a plain number of bins is written as a number)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: float | str | None = None
    edges: tuple[float | str, ...] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Bins:
        if (self.width is None) == (self.edges is None):
            raise ValueError("`bins` takes a number of bins, or `width`, or `edges`; give exactly one")
        return self


class TopRule(BaseModel):
    """The open top bin: everything from `start` (written `from`) up to the maximum is one code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: float | str
    rule: Literal["uniform", "value", "pareto"] = "uniform"
    value: float | str | None = None
    alpha: float | None = None

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> TopRule:
        if (self.rule == "value") != (self.value is not None):
            raise ValueError("`top`: `rule: value` and `value` belong together; give both or neither")
        if (self.rule == "pareto") != (self.alpha is not None) or (self.alpha is not None and not self.alpha > 0):
            raise ValueError("`top`: `rule: pareto` needs a positive `alpha`, and no other rule has one; correct it")
        return self


class Measured(Coded):
    """A column on a numeric axis between declared bounds. Values outside are clipped, unless `outside` says otherwise.

    Attributes:
        minimum: the lower bound.
        maximum: the upper bound.
        bins: a number of bins, their width, or their edges; None: each value its own code up to 128 points, else 100.
        scale: whether bins by count have equal widths, or equal widths in logarithms.
        spikes: values kept as their own codes.
        top: the rule of an open top bin.
        draw: how a value inside a bin is drawn: anywhere, in the middle, or at the lower end.
        points: values to draw from inside a bin.
        outside: what becomes of values outside the bounds.
    """

    minimum: float | str | None = None
    maximum: float | str | None = None
    bins: int | Bins | None = None
    scale: Literal["linear", "log"] = "linear"
    spikes: tuple[float | str, ...] = ()
    top: TopRule | None = None
    draw: Draw = "uniform"
    points: tuple[float | str, ...] = ()
    outside: Literal["clip", "unknown"] = "clip"

    # -- in units of the axis ------------------------------------------------------------------------------------

    @abstractmethod
    def unit_of(self, value: float | str, key: str) -> Any:
        """A declared value in units of the axis (whole numbers on a grid)."""

    @abstractmethod
    def width_of(self, width: float | str) -> Any:
        """A declared width in units of the axis."""

    @property
    @abstractmethod
    def grain(self) -> int:
        """The distance between two points of the grid in units, 0 for the real line."""

    @abstractmethod
    def units_of_text(self, text: Any, dialect: Dialect) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Cells in units, and which of them are finite values."""

    @abstractmethod
    def units_of_typed(self, cells: Any) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        """The same for cells that are not text; None where such a type has no units."""

    @abstractmethod
    def from_units(self, units: NDArray[Any]) -> Any:
        """An arrow array of values."""

    @property
    def per_unit(self) -> float:
        """How many units make one of what people count in: 100 for two decimals, a million for seconds."""
        return 1.0

    def units(self, cells: Any, dialect: Dialect) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Any arrow column in units of the axis, and which cells are values of it."""
        import pyarrow as pa

        cells = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
        converted = self.units_of_typed(cells)
        return (
            self._units_meant(plain_text(as_text(cells, dialect.decimal)), dialect) if converted is None else converted
        )

    def _units_meant(self, text: Any, dialect: Dialect) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Texts in units, as they are written or else by what they mean."""
        import pyarrow as pa

        units, valid = self.units_of_text(text, dialect)
        if len(odd := np.flatnonzero(~valid)):
            units, valid = units.copy(), valid.copy()
            meant = meanings(text.take(pa.array(odd)), dialect.decimal, dialect.group)
            units[odd], valid[odd] = self.units_of_text(meant, dialect)
        return units, valid

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        """Minimum and maximum in units, from the bounds or from the outermost edges."""
        edges = self.bins.edges if isinstance(self.bins, Bins) and self.bins.edges else None
        ends: list[Any] = []
        for key, declared, edge in (("minimum", self.minimum, 0), ("maximum", self.maximum, -1)):
            if declared is None and edges is None:
                raise ValueError(
                    f"`{key}` is not declared; add it under `constraints`, or buy it with `understudy: {{bounds: "
                    "discover}`: bounds are never guessed"
                )
            end = None if declared is None else self.unit_of(declared, key)
            outer = self.unit_of(edges[edge], "bins") if edges is not None else end
            if end is not None and outer != end:
                raise ValueError(f"`{key}` and the outermost of `bins.edges` differ; make them equal or drop one")
            ends.append(outer)
        low, high = ends[0], ends[1]
        if not (low < high or (low == high and self.grain)):
            raise ValueError("`minimum` is not below `maximum`; swap or correct the bounds")
        return low, high

    @cached_property
    def axis(self) -> Axis:
        """The cut axis."""
        edges = self._edges()
        dtype = np.int64 if self.grain else np.float64
        spikes = self._inside("spikes", self.spikes)
        points = np.sort(np.asarray(self._inside("points", self.points), dtype=dtype)) if self.points else None
        top = None
        if self.top is not None:
            start = self._inside("top", (self.top.start,))[0]
            edges = np.concatenate((edges[edges < start], [start], edges[-1:])).astype(dtype)
            value = None if self.top.value is None else self.unit_of(self.top.value, "top")
            if value is not None and not start <= value:
                raise ValueError("`top`: `value` lies below `from`; correct one of them")
            if self.top.rule == "pareto" and not start > 0:
                raise ValueError("`top`: `rule: pareto` needs `from` above 0; use `uniform` or `value`")
            top = Top(start, self.top.rule, value, self.top.alpha)
        tokens = [unit for _, unit in self._token_units]
        holes = np.asarray(sorted(set(tokens)), dtype=dtype) if tokens else None
        made = build_axis(edges, np.asarray(spikes, dtype=dtype), grain=self.grain, top=top, points=points, holes=holes)
        if not made.size:
            raise ValueError("`missing` takes every value between the bounds; widen the bounds or remove a code")
        return made

    def _inside(self, key: str, values: Sequence[float | str]) -> list[Any]:
        units = [self.unit_of(value, key) for value in values]
        low, high = self.bounds
        if any(not low <= unit <= high for unit in units):
            raise ValueError(f"`{key}` holds a value outside the bounds; widen the bounds or remove the value")
        return units

    def _edges(self) -> NDArray[Any]:
        low, high = self.bounds
        if not isinstance(self.bins, Bins):
            if self.bins is not None and self.bins < 1:
                raise ValueError("`bins` must be at least 1; give the number of bins wanted")
            refuse_many(self.bins or 0, "`bins`")
            if self.scale == "log" and low < 0:
                raise ValueError(
                    "`scale: log` needs bounds of at least 0; give `bins.edges` instead, or raise `minimum`"
                )
            return cut(low, high, self.bins, grain=self.grain, log=self.scale == "log")
        if self.scale == "log":
            raise ValueError("`scale: log` goes with a number of bins; remove `scale`, or `width`/`edges`")
        if self.bins.width is not None:
            return self._by_width(self.width_of(self.bins.width))
        edges = [self.unit_of(edge, "bins") for edge in self.bins.edges or ()]
        if len(edges) < 2 or any(a >= b for a, b in itertools.pairwise(edges)):
            raise ValueError("`bins.edges` needs at least two edges in ascending order; sort them, name each once")
        return np.asarray([*edges[:-1], high + 1] if self.grain else edges)

    def _by_width(self, width: Any) -> NDArray[Any]:
        low, high = self.bounds
        if not width > 0:
            raise ValueError("`bins.width` must be positive; give the width of a bin")
        if self.grain and width % self.grain:
            raise ValueError("`bins.width` must be a multiple of the column's precision; correct the width")
        count = math.ceil((high - low) / width) if not self.grain else -((low - high - 1) // width)
        refuse_many(count, "`bins.width`")
        inner = low + np.arange(count) * width
        return np.append(inner, high + 1 if self.grain else high)

    @model_validator(mode="after")
    def _can_be_cut(self) -> Measured:
        _ = self.axis
        _ = self.generalisations
        return self

    def group(self, level: Level, before: Generalisation | None) -> tuple[NDArray[np.int64], list[str]]:
        """Groups by width or by edges."""
        if level.groups is not None:
            raise ValueError(f"level {level.name!r}: numbers and times are grouped by `width` or `edges`; use one")
        edges = self.level_edges(level)
        last = np.where(self.axis.spike, self.axis.upper, self.axis.upper - 1)
        if not self.grain:
            last = np.where(self.axis.spike, self.axis.upper, np.nextafter(self.axis.upper, self.axis.lower))
        ends = [*edges.tolist()[1:], None]
        return group_intervals(
            level, self.axis.lower, last, edges, [self.span(*pair) for pair in zip(edges, ends, strict=True)]
        )

    def level_edges(self, level: Level) -> NDArray[Any]:
        """Where the groups of a level begin, in units."""
        if level.edges is not None:
            return np.asarray([self.unit_of(edge, f"levels.{level.name}") for edge in level.edges])
        width = self.width_of(level.width or 0)
        if not width > 0:
            raise ValueError(f"level {level.name!r}: `width` must be positive; correct it")
        low, high = self.bounds
        refuse_many(high // width - low // width, f"level {level.name!r}: `width`")
        edges: NDArray[Any] = np.arange(low // width, high // width + 1) * width
        return edges

    def span(self, low: Any, high: Any) -> str:
        """An interval ``[low, high)`` in words; None is the open end."""
        text = self.from_units(np.asarray([low] if high is None else [low, high])).to_pylist()
        return f"{text[0]} and above" if high is None else f"{text[0]} to under {text[1]}"

    # -- coding --------------------------------------------------------------------------------------------------

    @property
    def ordinary(self) -> int:
        """How many bins and spikes there are."""
        return self.axis.size

    def encode_text(self, text: Any, dialect: Dialect) -> dict[str, Codes]:
        """Codes of distinct texts: missing tokens as written or meant, then values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        codes = self._encode_units(*self._units_meant(text, dialect), dialect)
        tokens = self._tokens_meant(dialect) | self.tokens()
        bare = pc.utf8_trim_whitespace(text)
        found = np.asarray(pc.fill_null(pc.index_in(bare, pa.array(list(tokens), pa.string())), -1))
        hit = found >= 0
        codes[self.name][hit] = np.fromiter(tokens.values(), np.int32, len(tokens))[found[hit]]
        empty = pc.is_in(bare, pa.array(sorted(EMPTY - tokens.keys()), pa.string()))
        codes[self.name][np.asarray(pc.or_(pc.is_null(text), pc.fill_null(empty, True)))] = self.null_cell
        return codes

    def _tokens_meant(self, dialect: Dialect) -> dict[str, int]:
        """Missing tokens by what they mean, the short ones last."""
        tokens = sorted(self.missing, key=lambda token: (-len(token), token))
        meant = {meaning(token, dialect.decimal, dialect.group): self.tokens()[token] for token in tokens}
        return {text: code for text, code in meant.items() if text is not None}

    def encode_typed(self, cells: Any, dialect: Dialect) -> dict[str, Codes]:
        """Codes of typed cells; a type without units goes through its text."""
        import pyarrow as pa
        import pyarrow.compute as pc

        converted = self.units_of_typed(cells)
        if converted is None:
            return self.encode(plain_text(as_text(cells, dialect.decimal)), dialect)
        codes = self._encode_units(*converted, dialect)
        if cells.null_count or pa.types.is_floating(cells.type):
            codes[self.name][np.asarray(pc.is_null(cells, nan_is_null=True))] = self.null_cell
        return codes

    def _encode_units(self, units: NDArray[Any], valid: NDArray[np.bool_], dialect: Dialect) -> dict[str, Codes]:
        codes = self.axis.encode(units)
        fits = valid
        if self.outside == "unknown":
            fits = valid & (units >= self.bounds[0]) & (units <= self.bounds[1])
        if not fits.all():
            codes[~fits] = self.unknown_code
        for token, unit in (*self._tokens_with_mark(dialect), *self._token_units):
            codes[valid & (units == unit)] = self.tokens()[token]  # what is no value is no code for missing either
        return {self.name: codes}

    def _tokens_with_mark(self, dialect: Dialect) -> list[tuple[str, Any]]:
        """Missing tokens that write a number with the table's own decimal mark: found however it is typed as well."""
        import pyarrow as pa

        tokens = [token for token in self.missing if dialect.decimal != "." and dialect.decimal in token]
        if not tokens:
            return []
        units, valid = self._units_meant(pa.array(tokens, pa.string()), dialect)
        return [(token, unit) for token, unit, fits in zip(tokens, units.tolist(), valid, strict=True) if fits]

    @cached_property
    def _token_units(self) -> list[tuple[str, Any]]:
        """Missing tokens that are values of the axis, so that -9 is found however it is typed or written.

        Of two that write one number, "9" and "09", the short one goes last: so numbers are written beside an odd cell.
        """
        import pyarrow as pa

        tokens = sorted(self.missing, key=lambda token: (-len(token), token))
        if not tokens:
            return []
        units, valid = self._units_meant(pa.array(tokens, pa.string()), Dialect())
        return [(token, unit) for token, unit, fits in zip(tokens, units.tolist(), valid, strict=True) if fits]

    def token_value(self, token: str) -> Any:
        """The token as a value of the axis, where it is one."""
        units = dict(self._token_units)
        return self.from_units(np.asarray([units[token]]))[0].as_py() if token in units else None

    def decode_ordinary(self, codes: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Any:
        """Values drawn inside their bins."""
        return self.from_units(self.axis.decode(np.asarray(codes[self.name]), rng, self.draw))

    def table(self) -> list[Entry]:
        """Spikes and intervals in units of the axis, then the special codes."""
        axis, rows = self.axis, []
        for code in range(axis.size):
            low, high = axis.lower[code].item(), axis.upper[code].item()
            if axis.spike[code]:
                rows.append(Entry(self.name, code, "value", low))
            else:
                closed = not axis.grain and high == self.bounds[1]
                rows.append(Entry(self.name, code, "interval", lower=low, upper=high, closed=closed))
        return rows + self.specials()


def refuse_many(count: float, key: str) -> None:
    """Refuse a declaration that would fill the memory with bins: a schema may come from somebody else.

    Raises:
        ValueError: naming the key.
    """
    if count > 10_000_000:
        raise ValueError(f"{key} makes more than ten million bins; choose wider bins")
