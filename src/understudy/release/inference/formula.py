"""Read formulas of analysts as tables of numbers over the codes of few columns.

formulaic parses formulas and codes their terms. It evaluates the parts of a formula as Python, so a formula may hold
nothing but columns, numbers, operators and the functions listed here; everything else is refused before it is run.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.domain import Clique
from understudy.errors import InputError, SettingError
from understudy.release.answer import Condition
from understudy.release.inference.corrected import MOST_CELLS, Array, CorrectedTables
from understudy.schema import Schema
from understudy.schema.axis import AxisColumn
from understudy.schema.column import Coded

MOST_TERMS = 200
"""How many coefficients a formula may have."""

CLEAR = 4.0
"""How many standard deviations of its noise the share of a group must reach to be seen."""

RARE = "(rare)"
"""The level that stands for all values of a column that were merged because too few rows had them."""

_FUNCTIONS = {"log": np.log, "log2": np.log2, "log10": np.log10, "exp": np.exp, "sqrt": np.sqrt, "abs": np.abs}
_OPERATORS = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.Invert),
    *(ast.USub, ast.UAdd, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)
_PARTS = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Constant, ast.Load, *_OPERATORS)
_QUOTED = re.compile(r"`([^`]*)`")
_ALLOWED = f"columns, numbers, + - * / ** == < > & |, C(column), I(...) and {', '.join(_FUNCTIONS)}"


@dataclass(frozen=True, eq=False)
class Variable:
    """A column as an analyst sees it.

    Attributes:
        name: the column.
        numbers: by declared code its number, the mean of the values in its bin; None for a column of categories.
        labels: by declared code the level that it belongs to.
        levels: the levels, in the order of the codes.
        missing: which codes are no value: empty cells, unknown ones that have no name or too few rows to be seen, and
            those that a condition leaves out.
    """

    name: str
    numbers: Array | None
    labels: NDArray[np.object_]
    levels: Sequence[str]
    missing: NDArray[np.bool_]

    @cached_property
    def indicators(self) -> Array:
        """Indicators of the codes that belong to each level."""
        return np.array([(self.labels == level) & ~self.missing for level in self.levels], np.float64)


@dataclass(frozen=True, eq=False)
class Block:
    """Terms of a formula that have the same columns.

    Attributes:
        clique: the columns.
        names: the terms.
        tables: by term its number in each cell of declared codes.
    """

    clique: Clique
    names: Sequence[str]
    tables: Array


@dataclass(frozen=True, eq=False)
class Design:
    """A regression.

    Attributes:
        response: what is explained.
        binary: whether it is one of two levels.
        blocks: what explains it, as terms by their columns.
        names: all terms in the order of the formula.
        present: by column of the formula, in the order of the domain, which codes are values.
    """

    response: Block
    binary: bool
    blocks: Sequence[Block]
    names: Sequence[str]
    present: Mapping[str, NDArray[np.bool_]]

    @property
    def columns(self) -> Clique:
        """All columns of the formula."""
        return tuple(self.present)


class Variables:
    """The columns of a release as variables of formulas.

    Args:
        schema: the schema.
        tables: the tables of the release, for its merged codes.
        conditions: what the rows satisfy; other values are no levels.
    """

    def __init__(self, schema: Schema, tables: CorrectedTables, conditions: Iterable[Condition] = ()) -> None:
        self._schema, self._tables = schema, tables
        self._outside = {condition.column: condition.part == 0 for condition in conditions}
        self._known: dict[str, Variable] = {}

    def __getitem__(self, name: str) -> Variable:
        """Find a column.

        Raises:
            SettingError: for a column that does not exist or has no values in the release.
        """
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def _read(self, name: str) -> Variable:
        coded = {column.name: column for column in self._schema.coded}
        if name not in coded:
            gone = any(column.name == name for column in self._schema.columns)
            reason = "is not in the release: it was dropped, or names the unit" if gone else "does not exist"
            raise SettingError(f"formula: column {name!r} {reason}; the columns are {', '.join(coded)}")
        column = coded[name]
        if isinstance(column, AxisColumn):
            numbers = np.full(column.size, np.nan)
            numbers[: column.ordinary] = column.axis.mean_values(column.draw) / column.per_unit
            texts = [_write_number(number) for number in numbers]
            return self._group(column, numbers, texts, ~np.isfinite(numbers))
        texts = [str(label) for label in column.code_labels()]
        missing = np.arange(column.size) >= column.ordinary
        if column.other_code is not None and column.shows_other and self._is_clear(name, column.other_code):
            missing[column.other_code] = False
            texts[column.other_code] = str(column.other_value())
        return self._group(column, None, texts, missing)

    def _is_clear(self, name: str, code: int) -> bool:
        """Return whether the rows with a code can be seen under the noise."""
        inside = np.eye(self._tables.declared[name])[code : code + 1]
        share = float(self._tables.table((name,))[code])
        noise = self._tables.uncertainty({(name,): inside - share}).noise[0, 0]
        return share >= CLEAR * math.sqrt(max(noise, 0.0))

    def _group(
        self, column: Coded, numbers: Array | None, texts: Sequence[str], missing: NDArray[np.bool_]
    ) -> Variable:
        """Group values that were merged as too rare into one level: other tables do not distinguish them."""
        merged = self._tables.members.get(column.name)
        missing = missing | self._outside.get(column.name, np.zeros(len(missing), bool))
        labels = np.array(texts, dtype=object)
        if merged is not None:
            ends = [*merged.starts[1:], len(merged.codes)]
            groups = [merged.codes[a:b] for a, b in zip(merged.starts, ends, strict=True)]
            large = [group for group in groups if len(group) > 1]
            for group in large:
                labels[group] = RARE if len(large) == 1 else f"({texts[group[0]]} .. {texts[group[-1]]})"
        levels = list(dict.fromkeys(labels[~missing]))
        return Variable(column.name, numbers, labels, levels, missing)

    def read_formula(self, text: str) -> Design:
        """Read a formula such as `income ~ age + C(sex)`.

        Raises:
            SettingError: if the text is not a formula, or its terms cannot be used.
            InputError: if formulaic is not installed.
        """
        formula = _parse(text)
        if not hasattr(formula, "lhs") or not hasattr(formula, "rhs") or isinstance(formula.rhs, tuple):
            raise _not_a_formula(text)
        terms = {str(term): [str(factor) for factor in term.factors] for term in formula.rhs}
        used = {term: self._find_columns(factors) for term, factors in terms.items()}
        lhs = [str(factor) for term in formula.lhs for factor in term.factors]
        if len(formula.lhs) != 1 or len(lhs) != 1:
            raise SettingError(f"formula: give one response before the ~, as in `income ~ age`; {text!r} has another")
        target = self._find_columns(lhs)
        if lhs[0] in terms:
            raise SettingError(f"formula: the response {lhs[0]!r} is also a term; leave it out after the ~")
        columns = self._tables.declared.canonical({*target, *(name for names in used.values() for name in names)})
        self._check_levels(terms)
        spec = self._evaluate(formula.rhs, columns, self._cover(columns)).model_spec
        structure = [(str(part.term), list(part.columns)) for part in spec.structure]
        names = [name for _, found in structure for name in found]
        if len(names) > MOST_TERMS:
            largest = max(structure, key=lambda part: len(part[1]))
            raise SettingError(
                f"formula: {largest[0]} has {len(largest[1])} terms; a formula may have {MOST_TERMS} in all. Leave it "
                f"out, or group its values, as in I({next(iter(used[largest[0]]), 'x')} == ...)"
            )
        blocks: dict[Clique, list[str]] = {}
        for term, found in structure:
            blocks.setdefault(self._tables.declared.canonical(used[term]), []).extend(found)
        made = []
        for clique, found in blocks.items():
            values = self._evaluate(spec, columns, self._cells(clique))[found].to_numpy(np.float64).T
            made.append(Block(clique, found, self._shape(clique, values)))
            for name, table in zip(found, made[-1].tables, strict=True):
                if not table.any():
                    raise SettingError(
                        f"formula: the term {name!r} is 0 for all values of {', '.join(clique)}; leave it out. A "
                        "number counts as the mean of its bin: compare it with a limit between bins, as in "
                        "I(income < 1000)"
                    )
        present = {column: ~self[column].missing for column in columns}
        return Design(*self._read_response(lhs[0], target), made, names, present)

    def _read_response(self, text: str, columns: Iterable[str]) -> tuple[Block, bool]:
        clique = self._tables.declared.canonical(columns)
        if not clique:
            raise SettingError("formula: the response has no column; write it as in `income ~ age`")
        variable = self[clique[0]]
        if (text == clique[0] and variable.numbers is None) or text.startswith("C("):
            if len(variable.levels) != 2:
                raise SettingError(
                    f"formula: the response {text!r} has {len(variable.levels)} values; choose one of them, as in "
                    f"I({clique[0]} == {variable.levels[-1]!r}), or give a numeric column"
                )
            return Block(clique, [f"{text} = {variable.levels[1]}"], variable.indicators[1:]), True
        matrix = self._evaluate(_parse(f"~ 0 + {_quote(text, clique)}"), clique, self._cells(clique))
        values = matrix.to_numpy(np.float64).T[-1:]
        return Block(clique, [text], self._shape(clique, values)), set(np.unique(values)) <= {0.0, 1.0}

    def _shape(self, clique: Clique, values: Array) -> Array:
        """Arrange numbers by cell as tables; 0 if a column has no value."""
        tables = values.reshape(len(values), *self._tables.declared.shape(clique)).copy()
        for axis, column in enumerate(clique, 1):
            tables[(slice(None),) * axis + (self[column].missing,)] = 0.0
        if not np.isfinite(tables).all():
            raise SettingError(
                f"formula: a term of {', '.join(clique)} is infinite or undefined for some values; change it, as in "
                f"log({clique[0]} + 1), or leave it out"
            )
        return tables

    # -- evaluation over codes -------------------------------------------------------------------------------------

    def _values(self, name: str, codes: NDArray[np.int64]) -> Any:
        import pandas as pd

        variable = self[name]
        first = int(np.flatnonzero(~variable.missing)[0])
        codes = np.where(variable.missing[codes], first, codes)
        if variable.numbers is not None:
            return pd.Series(variable.numbers[codes], name=name)
        return pd.Series(pd.Categorical(variable.labels[codes], categories=list(variable.levels)), name=name)

    def _cells(self, clique: Clique) -> dict[str, NDArray[np.int64]]:
        """Return the codes of every cell of a clique."""
        shape = self._tables.declared.shape(clique)
        if math.prod(shape) > MOST_CELLS:
            raise SettingError(f"formula: a term of {', '.join(clique)} has too many cells; use fewer columns in it")
        return dict(zip(clique, np.indices(shape).reshape(len(clique), math.prod(shape)), strict=True))

    def _cover(self, columns: Clique) -> dict[str, NDArray[np.int64]]:
        """Return rows of codes in which every code of every column occurs."""
        most = max((self._tables.declared[column] for column in columns), default=1)
        return {column: np.minimum(np.arange(most), self._tables.declared[column] - 1) for column in columns}

    def _evaluate(self, formula: Any, columns: Clique, codes: Mapping[str, NDArray[np.int64]]) -> Any:
        """Return the model matrix of a formula or of its specification, one row for each of the cells."""
        import pandas as pd
        from formulaic.errors import FormulaicError

        rows = max((len(array) for array in codes.values()), default=1)
        frame = pd.DataFrame({c: self._values(c, codes.get(c, np.zeros(rows, np.int64))) for c in columns})
        frame = frame if len(columns) else pd.DataFrame(index=range(rows))
        context = {**_FUNCTIONS, "C": self._as_categories, "I": lambda values: values}
        try:
            with np.errstate(all="ignore"):
                return formula.get_model_matrix(frame, context=context, na_action="ignore", output="pandas")
        except (FormulaicError, TypeError, ValueError, KeyError, ArithmeticError):
            raise SettingError(
                "formula: a term cannot be computed from its columns: text has no numbers to add or multiply; "
                "categories are compared, as in I(sex == 'F'), or used as they are"
            ) from None

    def _as_categories(self, values: Any) -> Any:
        """Code a column by its levels; numbers become the levels of their codes."""
        import pandas as pd
        from formulaic.transforms import C

        variable = self._known.get(str(getattr(values, "name", "")))
        if variable is None:
            raise SettingError("formula: C(...) takes a column, as in C(region)")
        if variable.numbers is not None:
            by_number = dict(zip(variable.numbers.tolist(), variable.labels.tolist(), strict=True))
            labels = [by_number[number] for number in values.tolist()]
            values = pd.Series(pd.Categorical(labels, categories=list(variable.levels)), name=variable.name)
        return C(values)

    # -- what a formula may hold -----------------------------------------------------------------------------------

    def _find_columns(self, factors: Iterable[str]) -> list[str]:
        """Return the columns that factors use, after checking that they hold nothing else."""
        found: list[str] = []
        for factor in factors:
            if factor in {column.name for column in self._schema.coded}:
                found.append(factor)
                continue
            tree, quoted = _parse_factor(factor)
            for node in ast.walk(tree):
                if not isinstance(node, _PARTS) or (isinstance(node, ast.Call) and not _is_allowed(node)):
                    raise SettingError(f"formula: {factor!r} is not allowed; use {_ALLOWED}")
            called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
            names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called]
            mine = [quoted.get(node.id, node.id) for node in names]
            self._check_texts(factor, tree, mine)
            found += mine
        for name in found:
            _ = self[name]
        return list(dict.fromkeys(found))

    def _check_texts(self, factor: str, tree: ast.AST, columns: Sequence[str]) -> None:
        """Refuse a comparison with a text that is no level of the columns: it would be false everywhere."""
        levels = {str(level) for name in columns for level in self[name].levels}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in levels:
                shown = ", ".join(sorted(levels)[:12])
                raise SettingError(
                    f"formula: in {factor!r}, {node.value!r} is not a value of {', '.join(columns)}, or was merged "
                    f"with others as too rare; the values are {shown}"
                )

    def _check_levels(self, terms: Mapping[str, Sequence[str]]) -> None:
        """Refuse a term of too many levels before it is evaluated."""
        for factors in terms.values():
            for factor in factors:
                names = self._find_columns([factor])
                by_level = (factor in names and self[factor].numbers is None) or factor.startswith("C(")
                if by_level and len(self[names[0]].levels) == 1 < (~self[names[0]].missing).sum():
                    raise SettingError(
                        f"formula: all values of column {names[0]!r} were merged as too rare to be told apart; leave "
                        "the column out"
                    )
                if by_level and len(self[names[0]].levels) > MOST_TERMS:
                    raise SettingError(
                        f"formula: column {names[0]!r} has {len(self[names[0]].levels)} levels; a formula may have "
                        f"{MOST_TERMS} terms. Leave it out, or compare it with single values, as in "
                        f"I({names[0]} == ...)"
                    )


def _parse(text: str) -> Any:
    """Parse a formula with formulaic."""
    try:
        from formulaic import Formula
        from formulaic.errors import FormulaicError
    except ImportError:
        raise InputError("formulas need formulaic: pip install 'understudy[infer]'") from None
    try:
        return Formula(text)
    except (FormulaicError, SyntaxError, ValueError, TypeError, RecursionError):
        raise _not_a_formula(text) from None


def _not_a_formula(text: str) -> SettingError:
    return SettingError(
        f"{text!r} is not a formula; write a response, ~ and terms, as in `income ~ age + C(sex)`; put names with "
        "spaces or other marks between backticks"
    )


def _parse_factor(factor: str) -> tuple[ast.AST, dict[str, str]]:
    """Parse a factor as Python; names between backticks become plain ones, which are returned with what they mean."""
    quoted: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        name = f"quoted_{len(quoted)}"
        quoted[name] = match[1]
        return name

    try:
        return ast.parse(_QUOTED.sub(replace, factor), mode="eval"), quoted
    except (SyntaxError, ValueError, RecursionError):
        raise SettingError(f"formula: {factor!r} cannot be read; use {_ALLOWED}") from None


def _is_allowed(call: ast.Call) -> bool:
    known = {"C", "I", *_FUNCTIONS}
    return isinstance(call.func, ast.Name) and call.func.id in known and len(call.args) == 1 and not call.keywords


def _quote(text: str, columns: Clique) -> str:
    return f"`{text}`" if text in columns else text


def _write_number(number: float) -> str:
    return f"{number:.10g}" if math.isfinite(number) else "missing"
