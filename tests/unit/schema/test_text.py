from __future__ import annotations

import pytest

from understudy.schema.text import objects_to_text


class Silent:
    def __str__(self):
        raise RuntimeError("secret")


class NoFloat(float):
    def __float__(self):
        raise RuntimeError("secret")


@pytest.mark.parametrize("cell", [Silent(), NoFloat(3), 10**5000], ids=["object", "float", "long"])
def test_an_object_that_cannot_be_written_is_an_empty_cell(cell):
    """Of whatever kind: one such cell must not make a run fail, and its error's words are nobody's business."""
    assert objects_to_text(["a", cell, 2.5]).to_pylist() == ["a", None, "2.5"]
