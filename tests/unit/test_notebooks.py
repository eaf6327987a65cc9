"""Python does what the command line does, and values show themselves in notebooks."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pandas as pd
import pytest

import understudy as us
from understudy.errors import OutputError, SettingError


@pytest.fixture(scope="module")
def people():
    ages = [20 + 7 * n % 50 for n in range(300)]
    seen = pd.date_range("2023-01-01", periods=300).date
    return pd.DataFrame({"age": ages, "sex": ["F", "M", "<b>"] * 100, "city": ["Bonn", "Ulm"] * 150, "seen": seen})


@pytest.fixture(scope="module")
def release(people):
    schema = us.draft(people, unit="row").accept()
    return us.synthesize(people, schema, rho=1.0, mechanism="independent", dataset="notebook")


def test_a_draft_is_accepted_by_a_person(people):
    draft = us.draft(people)
    assert [field["name"] for field in draft.content["fields"]] == ["age", "sex", "city", "seen"]
    with pytest.raises(SettingError, match="who is protected"):
        draft.accept()
    schema = draft.accept("row")
    schema.require_reviewed()
    assert schema.privacy_unit.column is None
    assert "<td>age</td>" in draft._repr_html_()


def test_values_show_themselves_in_a_few_lines(release):
    """A receipt used to print 50,000 characters."""
    answer = release.answer("sex=F")
    for value in (release, release.schema, release.receipt, answer):
        page = value._repr_html_()
        assert page.startswith("<table>")
        assert len(page) < 5_000
        assert "<b>" not in page
    assert len(repr(release.receipt)) < 200
    assert release.receipt.guarantee() in release._repr_html_()
    plan = us.plan(release.schema, people=1000, epsilons=[1.0], mechanisms=["independent"])
    assert "<td>independent</td>" in plan._repr_html_()


def test_columns_are_drawn(release, tmp_path):
    chart = release.plot("age")
    assert chart._repr_html_().startswith("<svg")
    assert "<style>" in chart.svg
    chart.save(tmp_path / "age.svg")
    assert (tmp_path / "age.svg").read_text().strip() == chart.svg
    assert "&lt;b&gt;" in release.plot("sex").svg
    assert "highest:" in release.plot("seen").svg, "months have no room for their names"
    with pytest.raises(SettingError, match="no column 'agge'"):
        release.plot("agge")


def test_reports_and_bundles_are_made_from_python(release, tmp_path):
    path = us.write_report(release, tmp_path / "report.html")
    assert release.title in path.read_text()
    with pytest.raises(OutputError, match="already exists"):
        us.write_report(release, path)
    release.save(tmp_path / "a.release")
    made = us.make_bundle(str(tmp_path / "a.release"), str(tmp_path / "bundle"), rows=10, seed=1)
    readme = (tmp_path / "bundle" / "README.md").read_text()
    assert made.rows == 10
    assert "sex=F" not in readme  # the table's own columns, the first two
    assert "age>=" in readme


def test_a_progress_bar_shows_the_steps():
    screen = io.StringIO()
    with us.progress_bar(file=screen, force_terminal=True) as progress:
        progress(us.Step("measure", 0.5, "columns"))
    assert "measure: columns" in screen.getvalue()


def test_the_gallery_runs_and_its_last_lines_show_themselves():
    page = json.loads((Path(__file__).parents[2] / "examples" / "gallery.ipynb").read_text())
    names: dict[str, object] = {}
    shown = 0
    for cell in page["cells"]:
        if cell["cell_type"] == "code":
            steps = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(steps[:-1], []), "gallery.ipynb", "exec"), names)  # noqa: S102
            if isinstance(steps[-1], ast.Expr):  # what a notebook shows below the cell
                shown += hasattr(eval(ast.unparse(steps[-1]), names), "_repr_html_")  # noqa: S307
            else:
                exec(compile(ast.Module(steps[-1:], []), "gallery.ipynb", "exec"), names)  # noqa: S102
    assert shown == 7
