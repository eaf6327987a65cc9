"""Columns of whole or real numbers, including heaped amounts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import model_validator

from understudy.schema.axis import AxisColumn, check_bin_count
from understudy.schema.column import Codes, Entry
from understudy.schema.text import EXACT, Dialect, parse_numbers, to_floats


@dataclass(frozen=True)
class Heaps:
    """How round an amount is, as a second coded column (MST, Algorithms 3, 9 and 10, for any divisors).

    The class of an amount is the first divisor, in the declared order, that divides its remainder modulo the coarsest
    divisor.

    >>> import numpy as np
    >>> wages = Heaps.of([100, 20, 50, 25, 10, 5, 2, 1])
    >>> wages.encode(np.array([1200, 1240, 1250, 1275, 1230, 1205, 1202, 1201])).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """

    divisors: tuple[int, ...]

    @classmethod
    def of(cls, divisors: list[int]) -> Heaps:
        """Return the classes of these divisors.

        Raises:
            ValueError: saying how to correct the list.
        """
        if any(divisor < 1 for divisor in divisors) or len(set(divisors)) != len(divisors):
            raise ValueError("`heaped` needs distinct positive divisors; correct the list")
        if any(divisors[0] % divisor for divisor in divisors):
            raise ValueError("`heaped`: the first divisor must be a multiple of all others; put the coarsest first")
        if divisors[0] > 1_000_000:
            raise ValueError("`heaped`: the coarsest divisor is too large; at most 1000000 units of the last decimal")
        heaps = cls(tuple(divisors))
        if len(np.unique(heaps._class_of_rest)) < heaps.size:
            raise ValueError("`heaped`: a divisor is never reached because an earlier one divides it; put it earlier")
        return heaps

    @property
    def block(self) -> int:
        """The coarsest divisor, which is the width of a block of remainders."""
        return self.divisors[0]

    @property
    def values(self) -> list[int | None]:
        """The divisor of each class; None for "no divisor", if a remainder can have none."""
        return [*self.divisors, *([None] if self._has_rest else [])]

    @property
    def size(self) -> int:
        """The number of classes."""
        return len(self.values)

    @cached_property
    def _has_rest(self) -> bool:
        return 1 not in self.divisors

    @cached_property
    def _class_of_rest(self) -> NDArray[np.int32]:
        """The class of every remainder. Algorithm 3, line 2: "else if" over the divisors."""
        rest = np.arange(self.block)
        found = np.full(self.block, len(self.divisors), dtype=np.int32)
        for index in reversed(range(len(self.divisors))):
            found[rest % self.divisors[index] == 0] = index
        return found

    def encode(self, units: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the class of each amount."""
        return self._class_of_rest[units % self.block]

    def decode(
        self,
        lower: NDArray[np.int64],
        upper: NDArray[np.int64],
        classes: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Draw amounts in ``[lower, upper)`` of the given classes (Algorithms 9 and 10), clipped if there is none."""
        order = np.argsort(self._class_of_rest, kind="stable")
        counts = np.bincount(self._class_of_rest, minlength=self.size)
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        count = counts[classes]
        picked = starts[classes] + np.minimum(
            (rng.random(len(classes)) * count).astype(np.int64), np.maximum(count - 1, 0)
        )
        rest = order[np.minimum(picked, self.block - 1)]
        first, last = lower // self.block, (upper - 1) // self.block
        block = first + (rng.random(len(classes)) * (last - first + 1)).astype(np.int64)
        amounts: NDArray[np.int64] = np.clip(block * self.block + rest, lower, upper - 1)
        return amounts


# -- Numeric columns -------------------------------------------------------------------------------------------------


class Numeric(AxisColumn):
    """A column of whole or real numbers.

    Attributes:
        decimals: the number of decimals; None: as many as a float holds. Whole numbers have none.
        heaped: divisors of heaped amounts, the coarsest first: [100, 20, 50, 25, 10, 5, 2, 1].
    """

    kind: Literal["integer", "number"] = "integer"
    decimals: int | None = None
    heaped: tuple[float, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _to_whole_numbers(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("decimals") is not None:
            decimals = given["decimals"]
            if given.get("kind", "integer") == "integer":
                raise ValueError("`decimals` goes with `type: number`; remove it or change the type")
            if not isinstance(decimals, int) or isinstance(decimals, bool) or not 0 <= decimals <= 9:
                raise ValueError("`decimals` must be a whole number from 0 to 9; correct it")
        return given

    @cached_property
    def heaps(self) -> Heaps | None:
        """The classes of round numbers, or None if the column is not heaped."""
        if not self.heaped:
            return None
        if not self.grain:
            raise ValueError("`heaped` needs whole numbers or declared `decimals`; declare `decimals`")
        return Heaps.of([self.unit_of(value, "heaped") for value in self.heaped])

    @property
    def parts(self) -> dict[str, int]:
        """The column, and for heaped amounts their roundness."""
        return super().parts | ({self.round_part: self.heaps.size} if self.heaps else {})

    @property
    def round_part(self) -> str:
        """The name of the coded column for the roundness of an amount."""
        return f"{self.name}.round"

    def _edges(self) -> NDArray[Any]:
        if self.heaps is None:
            return super()._edges()
        block = self.heaps.block
        low, high = self.bounds
        if self.bins is None:
            check_bin_count(high // block - low // block, "`heaped`")
            inner = np.arange(low // block, high // block + 1) * block
            return np.append(np.maximum(inner, low), high + 1)
        edges = super()._edges()
        if any(edge % block for edge in edges[1:-1].tolist()):
            raise ValueError(
                "`bins` of a heaped column must be cut at multiples of the coarsest divisor; correct the bins"
            )
        return edges

    @property
    def grain(self) -> int:
        """1 for whole numbers and numbers with declared decimals, 0 for the real line."""
        return 1 if self.kind == "integer" or self.decimals is not None else 0

    @property
    def _factor(self) -> int:
        return int(10 ** (self.decimals or 0))

    @property
    def per_unit(self) -> float:
        """The number of units in one."""
        return float(self._factor)

    def unit_of(self, value: float | str, key: str) -> Any:
        """Convert a declared number to units of the last decimal."""
        if isinstance(value, str | bool) or not math.isfinite(value):
            raise ValueError(f"`{key}` must be a finite number; correct it")
        if not self.grain:
            return float(value)
        unit = round(value * self._factor)
        if abs(unit - value * self._factor) > 1e-6:
            raise ValueError(f"`{key}` has more decimals than the column; round it, or declare `decimals`")
        if abs(unit) > EXACT:
            raise ValueError(f"`{key}` is beyond 2**53; use `kind: id` or `drop` for such numbers")
        return int(unit)

    def width_of(self, width: float | str) -> Any:
        """Convert a declared width to units of the last decimal."""
        return self.unit_of(width, "bins.width")

    def units_of_text(self, text: Any, dialect: Dialect) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Convert numbers written as text to units."""
        return self._units(parse_numbers(text, dialect.decimal, dialect.group))

    def units_of_typed(self, cells: Any) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
        """Convert integers, floats and decimals of any width to units."""
        kind = cells.type
        if pa.types.is_integer(kind) and self.grain and self._factor == 1 and kind != pa.uint64():
            filled = pc.fill_null(cells, 0) if cells.null_count else cells
            whole = np.asarray(filled).astype(np.int64, copy=False)
            whole = np.clip(whole, -EXACT, EXACT)  # as for floats, so that both find the same missing codes
            return whole, np.asarray(pc.is_valid(cells))  # an empty cell is neither 0 nor a round number
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return self._units(to_floats(cells))
        return None

    def _units(self, values: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        valid = np.isfinite(values)
        values = values if valid.all() else np.where(valid, values, 0.0)
        if not self.grain:
            return values, valid
        with np.errstate(over="ignore"):  # a warning would reveal a cell's content, and stop runs that forbid warnings
            units = values * self._factor
        return np.rint(np.clip(units, -EXACT, EXACT)).astype(np.int64), valid

    def from_units(self, units: NDArray[Any]) -> Any:
        """Convert units to whole numbers, or to floats with the declared decimals."""
        return pa.array(units if self.kind == "integer" or not self.grain else units / self._factor)

    @property
    def arrow_type(self) -> Any:
        """int64 or float64."""
        return pa.int64() if self.kind == "integer" else pa.float64()

    def format_values(self, values: Any, dialect: Dialect) -> Any:
        """Format numbers with their declared decimals and the file's decimal mark."""
        if self.decimals:
            values = values.cast(pa.decimal128(38, self.decimals), safe=False)
        text = values.cast(pa.string())
        return pc.replace_substring(text, ".", dialect.decimal) if dialect.decimal != "." else text

    def _encode_units(self, units: NDArray[Any], valid: NDArray[np.bool_], dialect: Dialect) -> dict[str, Codes]:
        codes = super()._encode_units(units, valid, dialect)
        if self.heaps is not None:
            inside = np.clip(units, *self.bounds)
            plain = (codes[self.name] >= 0) & (codes[self.name] < self.ordinary)
            codes[self.round_part] = np.where(plain, self.heaps.encode(inside), 0).astype(np.int32)
        return codes

    def decode_ordinary(self, codes: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Any:
        """Return values drawn inside their bins; heaped amounts are as round as their class."""
        main = np.asarray(codes[self.name])
        units = self.axis.decode(main, rng, self.draw)
        if self.heaps is not None:
            ordinary = ~self.axis.spike[main]
            lower, upper = self.axis.lower[main], self.axis.upper[main]
            rounded = self.heaps.decode(lower, upper, np.asarray(codes[self.round_part]), rng)
            units = np.where(ordinary & ~np.isin(rounded, self.axis.reserved), rounded, units)
        return self.from_units(units)

    def table(self) -> list[Entry]:
        """Return spikes and intervals, the special codes, then the divisors of heaped amounts."""
        rows = super().table()
        if self.heaps is not None:
            rows += [Entry(self.round_part, i, "multiple", v) for i, v in enumerate(self.heaps.values)]
        return rows
