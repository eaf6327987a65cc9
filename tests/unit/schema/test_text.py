from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from understudy.schema.text import meaning, objects_to_text, parse_exact_numbers, parse_numbers


class Silent:
    def __str__(self):
        raise RuntimeError("secret")


class NoFloat(float):
    def __float__(self):
        raise RuntimeError("secret")


@pytest.mark.parametrize("cell", [Silent(), NoFloat(3)], ids=["object", "float"])
def test_an_object_that_cannot_be_written_is_an_empty_cell(cell):
    """Of whatever kind: one such cell must not make a run fail, and its error's words are nobody's business."""
    assert objects_to_text(["a", cell, 2.5]).to_pylist() == ["a", None, "2.5"]


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_whole_number_beyond_all_floats_means_the_same_as_an_object_and_as_text(sign):
    """pandas reads it as an object, but as text if another cell of the column is text."""
    digits = sign + "9" * 400
    assert objects_to_text([int(digits)]).to_pylist() == [meaning(digits)] == [f"{sign}inf"]


def test_a_mark_of_thousands_counts_between_groups_of_three_digits_only():
    cells = ["1.234", "-1.234.567,5", "1.23", "12.3.1945", "1234.5", "0.5", "7,25"]
    exact = parse_exact_numbers(pa.array(cells), ",", ".")
    assert np.array_equal(exact, [1234, -1234567.5, 1.23, np.nan, 1234.5, 0.5, 7.25], equal_nan=True)
    assert np.array_equal(parse_numbers(pa.array(cells), ",", "."), exact, equal_nan=True)
