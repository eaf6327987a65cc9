"""The report: what it says, to whom, and that it is the same every time."""

import base64
import hashlib
import itertools
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.bundle.make import render_readme
from understudy.cli import app
from understudy.metric.registry import METRICS
from understudy.metric.tables import Rows
from understudy.report import custodian_report, public_report
from understudy.report.page import (
    ScaledScore,
    _find_faint,
    _is_close,
    compare_groups,
    cramers_v,
    measure_associations,
)
from understudy.report.public import CAUTION, MeasuredMarginal, list_measured_marginals, list_weak_values
from understudy.schema.categorical import Categorical
from understudy.schema.numeric import Numeric
from understudy.svg import Bar, choose_shade, draw_distribution, draw_graph, draw_heatmap, place_round_numbers

QUICK = {
    "workload_error": {"ways": [1]},
    "nist_density": {"draws": 3},
    "nist_conjunctions": {"draws": 10},
    "k_marginal": {"draws": 5},
    "pmse": {"rows": 200, "models": ["logistic"]},
    "pmse_ratio": {"rows": 200, "models": ["logistic"]},
    "specks": {"rows": 200, "models": ["logistic"]},
    "range_queries": {"queries": 20},
    "ml_efficacy": {"models": ["tree"]},
    "mgd": {"ways": [1]},
}


@pytest.fixture(scope="module")
def schema() -> us.Schema:
    return us.Schema(
        (
            Categorical(name="town", values=("a<b>&", "big", "tiny"), title="Where <i>they</i> live"),
            Numeric(name="age", minimum=0, maximum=99, bins=20, title="age in years"),
            Numeric(name="pay", kind="number", minimum=0, maximum=1000, bins=10, spikes=(0,)),
            Categorical(name="sex", values=("f", "m"), nullable=False, on_unknown="drop_row"),
        ),
        title="Wages & towns",
    )


@pytest.fixture(scope="module")
def people() -> Any:
    rng = np.random.default_rng(0)
    rows = 600
    town = np.where(rng.random(rows) < 0.6, "big", "a<b>&")
    town[:3] = "tiny"
    pay = np.where(rng.random(rows) < 0.3, 0.0, rng.uniform(0, 1000, rows).round(2))
    return pd.DataFrame(
        {"town": town, "age": rng.integers(0, 99, rows), "pay": pay, "sex": rng.choice(["f", "m"], rows)}
    )


@pytest.fixture(scope="module")
def release(people: Any, schema: us.Schema) -> us.Release:
    with us.testing.insecure(1):  # one time in 200, noise lifts the three people of "tiny" over the limit of caution
        return us.synthesize(people, schema, epsilon=1.0, delta=1e-6, mechanism="independent")


@pytest.fixture(scope="module")
def private(release: us.Release, people: Any) -> str:
    return custodian_report(release, people, settings=QUICK, weight="pay")


class Outline(HTMLParser):
    """Ids, links and tags of a page; fails on a tag that is closed out of turn."""

    VOID = ("meta", "link", "br", "rect", "line", "circle", "path", "polyline")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.ids += [given["id"]] if given.get("id") else []
        self.links += [value for name, value in attrs if name in ("href", "src") and value]
        if tag not in ("meta", "link", "br"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_public_bytes_are_the_same_every_time(release: us.Release, tmp_path: Path) -> None:
    release.save(tmp_path / "r.release")
    assert public_report(release) == public_report(us.Release.load(tmp_path / "r.release"))


def test_one_file_that_asks_for_nothing(release: us.Release, private: str) -> None:
    for page in (public_report(release), private):
        outline = Outline(page)
        assert outline.tags.count("script") == (page is private)
        assert all(link.startswith(("#", "data:")) for link in outline.links)
        assert not re.search(r"https?://", page)
        assert "url(" not in page
        assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)
        assert len(outline.ids) == len(set(outline.ids))


def test_the_guide_for_analysts_is_a_link_away(release: us.Release, private: str) -> None:
    for page in (public_report(release), private):
        assert '<a href="#analysts">guide for analysts</a>' in page
        assert page.count('<h2 id="analysts">For analysts</h2>') == 1
        guide = page[page.index('<h2 id="analysts">') :]
        assert "understudy infer stand-in.release" in guide
        assert "benchmarks/inference.md" in guide


def test_names_are_escaped(release: us.Release, private: str) -> None:
    for page in (public_report(release), private):
        assert "<b>" not in page
        assert "<i>they" not in page
        assert "Wages &amp; towns" in page


def test_columns_that_a_rule_ties_are_not_called_unrelated() -> None:
    fields = [{"name": name, "type": "integer", "constraints": {"minimum": 0, "maximum": 9}} for name in "ab"]
    rules = {"privacy_unit": "row", "rules": [{"order": ["a", "b"]}]}
    schema = us.Schema.from_dict({"fields": fields, "understudy": rules})
    frame = pd.DataFrame({"a": [1, 2, 3] * 50, "b": [5, 6, 7] * 50})
    made = us.synthesize(frame, schema, epsilon=1, delta=1e-6, mechanism="independent", dataset="tied")
    none: dict[str, Any] = {"quoted": {}, "renamed": {}, "replicates": 0}
    for page in (public_report(made), render_readme(made, files=["rows.csv"], rows=100, seed=1, **none)):
        assert "related by the schema" in page
        assert "unrelated" not in page


def test_the_public_report_knows_nothing_of_the_rows(release: us.Release, private: str) -> None:
    public = public_report(release)
    assert "custodian only" not in public.lower()
    for words in ("Real table</h3>", "half against half", "by privacy", 'class="real"'):
        assert words not in public
        assert words in private


def test_every_page_is_marked_for_the_custodian(private: str) -> None:
    assert "For the custodian only." in private
    assert "Do not publish its scores, or choose among releases by them: the guarantee does not cover it" in private
    assert ".mark { display: table-header-group;" in private  # a header group is printed on every page


def test_it_opens_with_what_not_to_analyse(release: us.Release, private: str) -> None:
    for page in (public_report(release), private):
        assert page.index("What not to analyse</h2>") < page.index("What was released and what it cost</h2>")
        assert "No combination of columns was measured" in page
        assert "columns are unrelated to each other" in page
    weak = {item.column: item for item in list_weak_values(release, list_measured_marginals(release))}
    sigma = release.measurements[0].sigma
    town = next(item for column, item in weak.items() if column.startswith("Where"))
    assert "tiny" in town.values
    assert "big" not in town.values
    assert town.limit == pytest.approx(CAUTION * sigma)


def test_it_says_first_what_is_good_and_what_is_bad(private: str) -> None:
    start = private.index('id="verdict"')
    assert start < private.index('id="caution"')
    words = private[start : private.index('id="caution"')]
    assert re.search(r"Single columns: \d+ of \d+ agree", words)
    assert re.search(r"Pairs of columns: \d+ of \d+ agree", words)
    assert re.search(r"Scores: \d+ of \d+ are as good as", words)


@pytest.mark.parametrize(
    ("value", "halves", "shuffled", "close"),
    [
        (0.3, 0.1, 0.5, True),
        (0.35, 0.1, 0.5, False),
        (0.4, 0.3, 0.1, False),  # worse than both: shuffled columns are no bad reference where columns are independent
        (0.3, 0.3, 0.1, True),
        (0.05, 0.1, 0.5, True),
    ],
)
def test_a_good_score_is_close_to_that_of_half_the_real_rows(value, halves, shuffled, close) -> None:
    metric = METRICS["workload_error"]
    assert _is_close(ScaledScore(metric, *map(metric.score, (value, halves, shuffled)))) == close


@pytest.mark.parametrize("years", [range(1930, 2013), range(1921, 2007), range(1990, 2021)])
def test_labels_of_dates_stand_apart(years: range) -> None:
    edges = [f"{year}-{month:02}-01" for year in years for month in range(1, 13)]
    chart = draw_distribution("born", [Bar(edge, 0.01) for edge in edges[:-1]], ordered=True, edges=edges)
    ticks = re.findall(r'<text x="([\d.]+)" y="124" text-anchor="(\w+)">([^<]*)</text>', chart)
    assert len(ticks) > 2
    spans = []
    for x, anchor, words in ticks:
        start = float(x) - {"start": 0, "middle": 30, "end": 60}[anchor]
        spans.append((start, start + 6 * len(words)))
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))


def test_scores_stand_between_their_references(private: str) -> None:
    assert private.count('class="score"') == 12
    for title in ("Workload error", "pMSE ratio", "SPECKS", "MGD", "Machine-learning efficacy", "Copied rows"):
        assert title in private
    assert private.count("columns shuffled ") >= 11
    assert "The weights add up to" in private
    assert "noise: mean of" in private
    assert re.search(r"noise: mean of \w+ by \w+", private)
    assert "real, binned" in private


def test_every_pair_is_listed_once(private: str) -> None:
    part = private.partition('id="marginals"')[2].partition("<h2")[0]
    listed = re.findall(r"<tr><td>([^<]*)</td>", part)
    columns = len(re.findall(r"<figure[^>]*><h3>", private.partition('id="columns"')[2].partition("<h2")[0]))
    assert columns > 2
    assert len(listed) == len(set(listed)) == columns * (columns - 1) / 2


def test_the_script_is_the_one_that_the_page_allows(private: str) -> None:
    script = private.partition("<script>")[2].partition("</script>")[0]
    allowed = re.findall(r"script-src 'sha256-([^']*)'", private)
    assert [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()] == allowed


def test_subgroups_are_compared_column_by_column() -> None:
    """Worked by hand: among F, half of the real rows are old and a quarter of the stand-in's."""
    schema = us.Schema.from_domain({"sex": 2, "old": 2})
    real = Rows.of(pd.DataFrame({"sex": [0, 0, 0, 0, 1, 1], "old": [0, 0, 1, 1, 1, 1]}), schema)
    made = Rows.of(pd.DataFrame({"sex": [0, 0, 0, 0, 1, 1, 1, 1], "old": [0, 0, 0, 1, 1, 1, 1, 1]}), schema)
    found = {group.name: group for group in compare_groups(made, real, schema)}
    women = found["sex = 0"]
    assert (women.rows, women.real, women.standin) == (4, 4 / 6, 0.5)
    assert (women.distance, women.worst, women.worst_distance) == (0.25, "old", 0.25)
    assert found["sex = 1"].distance == 0.0
    assert found["old = 0"].distance == 0.0
    assert (next(iter(found)), found["old = 1"].distance) == ("old = 1", pytest.approx(0.3))  # the largest first


def test_words_for_missing_among_numbers_are_counted_as_such() -> None:
    field = {"name": "kg", "type": "number", "constraints": {"minimum": 0, "maximum": 9, "required": True}}
    ours = {"decimals": 1, "bins": 60, "missing": {"k.A.": "not said"}}
    schema = us.Schema.from_dict({"fields": [field | {"understudy": ours}], "understudy": {"privacy_unit": "row"}})
    release = us.synthesize(pd.DataFrame({"kg": ["1.5", "k.A."] * 500}), schema, epsilon=20, delta=1e-6)
    said = re.findall(r"Also: ([^<]*)<", public_report(release))
    assert re.fullmatch(r"not said (49|50|51)(\.\d)? %(, other .*)?", said[0])


def test_wrong_table(release: us.Release, people: Any) -> None:
    with pytest.raises(us.errors.SchemaError, match="'age'"):
        custodian_report(release, people.drop(columns=["age"]))


def test_the_command_line(release: us.Release, people: Any, tmp_path: Path) -> None:
    release.save(tmp_path / "r.release")
    people.head(80).to_csv(tmp_path / "real.csv", index=False)
    invoke = CliRunner().invoke
    base = ["report", str(tmp_path / "r.release"), "-o", str(tmp_path / "report.html")]
    assert invoke(app, base).exit_code == 0
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == public_report(release)
    assert invoke(app, base).exit_code == 8
    options = [f"--set={metric}.{name}={value}" for metric, given in QUICK.items() for name, value in given.items()]
    done = invoke(app, [*base, "--real", str(tmp_path / "real.csv"), *options])
    assert done.exit_code == 0
    assert "report.custodian-only.html" in done.output
    assert "For the custodian only" in (tmp_path / "report.custodian-only.html").read_text(encoding="utf-8")
    assert invoke(app, [*base, "--force", "--weight", "pay"]).exit_code == 3
    assert (
        invoke(app, ["report", str(tmp_path / "r.release"), "-o", str(tmp_path / "x.custodian-only.html")]).exit_code
        == 3
    )
    assert invoke(app, ["report", str(tmp_path / "r.release"), "-o", str(tmp_path / "x.pdf")]).exit_code == 3


def test_a_tree_is_drawn(people: Any, schema: us.Schema) -> None:
    if "mst" not in us.MECHANISMS:
        pytest.skip("mst is not registered")
    with us.testing.insecure(3):
        page = public_report(us.synthesize(people, schema, epsilon=5.0, delta=1e-6, mechanism="mst"))
    assert page.count('class="edge"') >= 3
    assert "protects nobody" in page


def test_charts_say_what_they_show() -> None:
    few = draw_distribution("Distribution of x", [Bar("a", 0.25, 0.02, 0.3), Bar("b", 0.75)], ordered=False)
    assert few.count("<rect") == 2
    assert few.count('class="real"') == 1
    assert "a: stand-in 25.0 %, noise ± 2.0 %, real 30.0 %" in few
    many = draw_distribution("Distribution of x", [Bar(str(i), 1 / 40, 0.0, 1 / 40) for i in range(40)], ordered=True)
    assert many.count("<rect") == 40
    assert many.count("<polyline") == 1
    assert draw_heatmap("h", ["a", "b", "c"], np.eye(3).tolist()).count('class="cell"') == 3 + 5  # and the legend
    assert (choose_shade(0.0), choose_shade(1.0)) == ("#ffffff", "#08306b")


def test_ticks_of_log_bins_stand_where_their_values_are() -> None:
    """A value near 1,000 lies at three quarters of such an axis: labels at the ends alone would read as 37,500."""
    cuts = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000]
    pay = {"name": "pay", "type": "number", "understudy": {"bins": {"edges": cuts}}}
    schema = us.Schema.from_dict({"fields": [pay], "understudy": {"privacy_unit": "row"}})
    (column,) = schema.coded
    edges = column.axis_edges()
    chart = draw_distribution("pay", [Bar(label, 0.1) for label in edges[:-1]], ordered=True, edges=edges)
    ticks = re.findall(r'<text x="([\d.]+)" y="124" text-anchor="\w+">([^<]*)</text>', chart)
    assert [label for _, label in ticks] == ["0", "1", "10", "100", "1,000", "50,000"]
    assert float(ticks[4][0]) == pytest.approx(4 + 332 * 10 / 15, abs=0.1)


@pytest.mark.parametrize(
    ("edges", "labels"),
    [
        (
            [f"{10 ** (place / 5):.6g}" for place in range(-4, 14)],
            ["1", "2", "5", "10", "20", "50", "100", "200"],
        ),
        ([f"{2 * 1.13**place:.6g}" for place in range(20)], ["2", "5", "10", "20"]),
        ([str(0.05 * place + 1) for place in range(101)], ["1", "2", "3", "4", "5", "6"]),
        ([str(3 * place) for place in range(34)], ["0", "20", "40", "60", "80"]),
        ([str(place) for place in range(-40, 41)], ["-40", "-20", "0", "20", "40"]),
    ],
)
def test_an_axis_of_numbers_has_round_labels_at_their_places(edges: list[str], labels: list[str]) -> None:
    found = place_round_numbers(edges, 332)
    assert found is not None
    assert [words for _, words in found] == labels
    numbers = [float(edge) for edge in edges]
    for place, words in found:
        below, above = numbers[math.floor(place)], numbers[min(math.floor(place) + 1, len(numbers) - 1)]
        assert below <= float(words) + 1e-9
        assert float(words) <= above + 1e-9


def test_labels_have_the_words_of_the_file() -> None:
    fields = [
        {"name": "smoker", "type": "boolean", "trueValues": ["Yes"], "falseValues": ["No"]},
        {"name": "seen", "type": "datetime", "understudy": {"bins": {"width": "1 month"}},
         "constraints": {"minimum": "2022-01-01T00:00:00", "maximum": "2022-12-31T23:59:59"}},
    ]  # fmt: skip
    schema = us.Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    smoker, seen = schema.coded
    assert smoker.code_labels()[:2] == ["No", "Yes"]
    assert seen.code_labels()[11] == "2022-12-01 00:00:00 to 2022-12-31 23:59:59"
    table = pd.DataFrame({"smoker": ["Yes", "No"] * 50, "seen": ["2022-03-04 05:06:07"] * 100})
    release = us.synthesize(table, schema, rho=1.0, mechanism="independent", dataset="words")
    page = public_report(release)
    assert ">Yes</text>" in page
    assert ">true</text>" not in page
    assert ">2022-12-31</text>" in page  # months need no time of day
    assert release.answer("smoker=Yes").value > 0
    rows = release.sample(5, seed=1, as_="arrow", as_written=True)
    assert all(re.fullmatch(r"2022-\d\d-\d\dT\d\d:\d\d:\d\d", text) for text in rows["seen"].to_pylist())


def test_a_model_of_many_edges_is_a_table_of_dots() -> None:
    names = [f"c{i}" for i in range(12)]
    few = [(i, i + 1) for i in range(11)]
    many = [(i, j) for i in range(9) for j in range(i)]
    assert draw_graph("g", names, few).count("<path") == 11
    drawn = draw_graph("g", names, many)
    assert drawn.count("<path") == 0
    assert drawn.count("<circle") == len(many) == 36
    assert ">c11</text>" not in drawn  # measured with no other column


def test_times_of_day_are_shown_as_times() -> None:
    field = {"name": "at", "type": "duration", "format": "%H:%M", "constraints": {"minimum": 0, "maximum": 86399}}
    field["understudy"] = {"resolution": "minute", "bins": {"width": "1 hour"}}
    schema = us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    table = pd.DataFrame({"at": ["08:15", "17:30"] * 100})
    release = us.synthesize(table, schema, rho=1.0, mechanism="independent", dataset="clock")
    assert re.search(r'y="124" text-anchor="end">23:59<', public_report(release))
    written = release.sample(20, seed=1, as_="arrow", as_written=True)["at"].to_pylist()
    assert all(re.fullmatch(r"\d\d:\d\d", text) for text in written)


def test_associations() -> None:
    assert cramers_v(np.array([[50.0, 0], [0, 50]])) == 1.0
    assert cramers_v(np.outer([3.0, 7], [40, 60])) == 0.0
    assert cramers_v(np.array([[5.0, 3.0]])) == 0.0


def test_two_values_that_are_mere_noise_are_no_association() -> None:
    """100 rows that no real row is like, both values unknown, would give two independent columns an association."""
    sides = [{"name": name, "type": "string", "categories": ["F", "M"]} for name in ("sex", "died")]
    schema = us.Schema.from_dict({"fields": sides, "understudy": {"privacy_unit": "row"}})
    cells = [("F", "F"), ("F", "M"), ("M", "F"), ("M", "M")] * 4000 + [("noise", "noise")] * 100
    rows = Rows.of(pd.DataFrame(cells, columns=["sex", "died"]), schema, what="stand-in")
    tables = [MeasuredMarginal((name,), 97.0, None, 3) for name in ("sex", "died")]
    faint = _find_faint(schema, rows, tables, float(len(cells)))
    assert [codes.tolist() for codes in faint.values()] == [[False, False, True, True]] * 2
    assert measure_associations(rows, ["sex", "died"], {})[0, 1] > 0.5
    assert measure_associations(rows, ["sex", "died"], faint)[0, 1] == pytest.approx(0.0, abs=1e-3)


def test_the_ends_of_a_histogram_are_the_bounds_of_the_column() -> None:
    """Not the first and the last bin, which do not fit there: 2022-01-01 to 2022-01…"""
    born = {"name": "born", "type": "date", "constraints": {"minimum": "2022-01-01", "maximum": "2023-12-31"}}
    fields = [
        born | {"understudy": {"bins": {"width": "1 month"}}},
        {"name": "pay", "type": "number", "constraints": {"minimum": 0, "maximum": 900}, "understudy": {"spikes": [0]}},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 110}},
    ]
    schema = us.Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    found = [(column.axis_edges()[0], column.axis_edges()[-1]) for column in schema.coded]
    assert found == [("2022-01-01", "2023-12-31"), ("0", "900"), ("0", "110")]
    table = pd.DataFrame({"born": ["2022-05-05"] * 9, "pay": 3.0, "age": 30})
    release = us.synthesize(table, schema, rho=1.0, mechanism="independent", dataset="ends")
    charts = re.findall(r"<svg.*?</svg>", public_report(release), re.DOTALL)
    drawn = next(chart for chart in charts if "Distribution of born" in chart)
    assert ">2022-01-01</text>" in drawn
    assert ">2023-12-31</text>" in drawn


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        ("ab", "Of all 1 pairs of columns, 1 has such a bound.</p>"),
        ("abc", "such a bound; no measurement gives a bound for the others"),
    ],
)
def test_other_pairs_are_mentioned_only_where_there_are_some(keep: str, words: str) -> None:
    schema = us.Schema.from_domain(dict.fromkeys(keep, 2))
    rows = pd.DataFrame({name: [0, 1] * 50 for name in keep})
    release = us.synthesize(rows, schema, rho=10.0, mechanism="mst", keep=[("a", "b")], dataset="pairs")
    assert words in public_report(release)
