"""The neighbour relation of a run, and the sensitivities that follow from it, in exact integers.

Two tables are neighbours when they differ in the rows of one *unit* (a row, or all rows that share a value of the unit
column, at most k of which the source keeps):

* **add/remove**: one table has the unit, the other has not;
* **replace-one**: both have it, with other rows. Used when the number of rows is declared public.

| what | add/remove | replace-one |
|---|---|---|
| one marginal, L2 | k | sqrt(2) k |
| one marginal, L1 | k | 2 k |
| whole-number queries on a marginal, L2 | k c | sqrt(2) k c; 2 k c with negative entries |
| whole-number queries on a marginal, L1 | k a | 2 k a |
| one cell of a marginal, and its distance from a fixed number | k | k |
| a single query without negative entries, L1 and L2 | k c | k c |
| weighted L1-distance score | k max w | 2 k max w |
| InDif score of one table | 4 k | 8 k |

*Why.* A row lies in one cell of a marginal, so a unit's k rows change it by a vector of non-negative entries that sum
to at most k: L1 and L2 norm at most k. Replacing subtracts one such vector x and adds another y: L1 at most 2k, and
||y - x||^2 <= ||x||^2 + ||y||^2 <= 2 k^2 because x and y are non-negative. The L1 distance to a fixed marginal moves by
at most the L1 change, times its weight. One row moves InDif by less than 4, so k rows by less than 4 k (a replacement:
8 k), and rounding two numbers less than an integer apart keeps them at most that integer apart.

*Queries.* A row in cell i adds column i of the query matrix to the answers. Let c be the largest L2 norm of a column,
a the largest L1 norm. The answers of k rows are a sum x of k columns, of norm at most k c (k a). A replacement adds x
and subtracts y, so that L1 moves by at most 2 k a, and ||x - y||^2 = ||x||^2 + ||y||^2 - 2 x.y: at most 2 k^2 c^2 where
no entry is negative, because x.y >= 0 then, and at most 4 k^2 c^2 in any case. A column of a Kronecker product is the
Kronecker product of columns, whose norm is the product of theirs. Squares and sums of whole numbers are exact.

*One number.* A unit has between 0 and k rows in a given cell, so it adds a number between 0 and k to the count.
Adding or removing the unit changes the count by at most k; replacing its rows exchanges one number between 0 and k for
another, which differ by at most k. A single query without negative entries, the largest of which is c, gets a number
between 0 and k c from each unit, and the same holds. The distance |count - fixed number| moves by at most as much.

*InDif.* D_ij = M_ij - R_i C_j / n for a table of n rows with sums R_i and C_j; InDif is the sum of |D_ij|. One more row
in cell (a, b) moves D_ij by R_i C_j / (n (n + 1)) where i != a and j != b, by -(n - R_a) C_j / (n (n + 1)) in the rest
of row a, likewise in the rest of column b, and D_ab by (n - R_a)(n - C_b) / (n (n + 1)). Each of these four parts sums
to (n - R_a)(n - C_b) / (n (n + 1)) in absolute value, so InDif moves by at most 4 n / (n + 1). The axes may be columns
or the cells of several columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from understudy.errors import SettingError


@dataclass(frozen=True)
class Neighbours:
    """The neighbour relation of a run.

    Attributes:
        unit: the unit column, or None if each row is a unit.
        max_rows: k, the most rows of one unit that are kept.
        replace_one: whether the number of rows is public, so that neighbours replace a unit instead of adding one.
        tables: the linked tables in which a unit has rows, with the most rows of one unit in each; empty for one table.
    """

    unit: str | None = None
    max_rows: int = 1
    replace_one: bool = False
    tables: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise SettingError("max_rows must be at least 1: every unit in the table has a row")

    @property
    def marginal_l2_squared(self) -> int:
        """The square of the L2 sensitivity of one marginal (the square, because sqrt(2) k is not rational)."""
        return self.max_rows**2 * (2 if self.replace_one else 1)

    @property
    def marginal_l1(self) -> int:
        """The L1 sensitivity of one marginal."""
        return self.max_rows * (2 if self.replace_one else 1)

    @property
    def cell(self) -> int:
        """The sensitivity of one cell's count, and of its distance from a fixed number."""
        return self.max_rows

    def query_l2_squared(self, column_squared: int, *, negative: bool, single: bool = False) -> int:
        """Return the square of the L2 sensitivity of whole-number queries on a marginal.

        Args:
            column_squared: the largest sum of squares of a column of the query matrix.
            negative: whether the matrix has negative entries.
            single: whether the matrix has a single row.
        """
        if single and not negative:
            return self.cell**2 * column_squared
        return self.max_rows**2 * column_squared * ((4 if negative else 2) if self.replace_one else 1)

    def query_l1(self, column_sum: int, *, negative: bool = True, single: bool = False) -> int:
        """Return the L1 sensitivity of queries with this largest absolute column sum; see `query_l2_squared`."""
        return (self.cell if single and not negative else self.marginal_l1) * column_sum

    def score(self, max_weight: Fraction) -> Fraction:
        """Return the sensitivity of scores `weight * (L1 distance - offset)`; offsets are public and cancel."""
        return self.marginal_l1 * max_weight

    @property
    def indif(self) -> int:
        """The sensitivity of one pair's InDif score, rounded to an integer."""
        return 4 * self.marginal_l1

    def describe(self) -> str:
        """Describe who is protected."""
        if self.tables:
            each = ", ".join(f"at most {most} of {name!r}" for name, most in self.tables)
            who = f"everything in all tables that belongs to one value of {self.unit!r} ({each} used)"
        elif self.unit is None:
            who = "one row of the table"
        else:
            kept = "one row" if self.max_rows == 1 else f"at most {self.max_rows} rows"
            who = f"everything that shares one value of column {self.unit!r} ({kept} of each used)"
        how = "having other content (the number of rows is public)" if self.replace_one else "being in the table or not"
        return f"{who}; the guarantee compares its {how}"
