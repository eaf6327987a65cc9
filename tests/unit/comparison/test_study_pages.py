"""The tables on the pages of the studies are those that the records give."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "study.py"


@pytest.fixture(scope="module")
def study() -> Any:
    """The script that writes the tables."""
    spec = importlib.util.spec_from_file_location("study", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_the_pages_are_those_of_the_records(study: Any) -> None:
    marked = [page for page in study.PAGES if study.PLACE.search(page.read_text())]
    assert len(marked) >= 3
    for page in marked:
        text = page.read_text()
        assert study.fill(text) == text, f"{page.name}: run python benchmarks/study.py"
        changed = text.replace("<!-- end -->", "| x | 1 |\n<!-- end -->", 1)
        assert study.fill(changed) == text


def test_ranks_are_means_over_the_budgets(study: Any) -> None:
    """The second row is best once and second once; equal scores share the better rank, missing ones have none."""
    scores = {"a": [1.0, 3.0, None], "b": [2.0, 1.0, 5.0], "c": [2.0, 4.0, 5.0]}
    assert study.rank_rows(scores, lower=True) == {"a": 1.5, "b": pytest.approx(4 / 3), "c": pytest.approx(2.0)}
    assert study.rank_rows({"a": [1.0], "b": [2.0]}, lower=False) == {"a": 2, "b": 1}
