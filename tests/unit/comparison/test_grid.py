"""The grid: what it runs, records, resumes, stops and charges."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy import svg
from understudy.cli import app
from understudy.comparison import Comparison
from understudy.comparison.grid import _Loaded, _make_tables
from understudy.comparison.page import (
    Scores,
    collect_scores,
    compare_means,
    find_front,
    measure_ratios,
    rank_mechanisms,
)
from understudy.comparison.study import StudyTable, load_study, make_study, parse_mechanism
from understudy.errors import BudgetExceeded, LedgerError, OutputError, SettingError, UnderstudyError
from understudy.workload import Workload
from understudy.yaml_json import read_yaml

SIZES = {"a": 3, "b": 3, "c": 2}
SCHEMA = us.Schema.from_domain(SIZES)
QUICK: dict[str, Any] = {"mechanisms": ["independent", "mst:paper"], "epsilons": [0.5, 5], "workload": "all-2way"}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a = rng.integers(3, size=400)
    return pd.DataFrame({"a": a, "b": (a + (rng.random(400) < 0.2)) % 3, "c": rng.integers(2, size=400)})


@pytest.fixture(scope="module")
def public(rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A finished comparison of a public table, and its folder."""
    folder = tmp_path_factory.mktemp("grid") / "out"
    given = QUICK | {"metrics": ["workload_error", "specks"], "settings": {"specks": {"models": ["logistic"]}}}
    return us.compare(rows, SCHEMA, **given, runs=2, sets=2, public=True, output=folder, jobs=1), folder


def lines(folder: Path) -> list[dict[str, Any]]:
    (record,) = folder.glob("record*.jsonl")
    return [json.loads(line) for line in record.read_bytes().splitlines() if line]


def test_a_mechanism_is_written_with_its_settings() -> None:
    assert parse_mechanism("mst") == ("mst", False, {})
    assert parse_mechanism("aim:paper:workload=target:a:max_mib=4") == (
        "aim", True, {"workload": "target:a", "max_mib": 4})  # fmt: skip
    with pytest.raises(SettingError, match="NAME:paper"):
        parse_mechanism("aim:published")


def test_the_results_are_tidy_and_in_files(public: tuple[Any, Path], rows: pd.DataFrame) -> None:
    found, folder = public
    frame = found.frame
    assert isinstance(frame, pd.DataFrame)
    assert len(frame[frame.part == ""]) == 2 * 2 * 2 * 2  # mechanisms, epsilons, runs, metrics
    assert set(frame.outcome) == {"done"}
    assert (frame.seconds > 0).all()
    assert (frame.peak_mib > 10).all()
    assert {"table", "mechanism", "epsilon", "run", "metric", "value", "seconds", "peak_mib"} <= set(frame)
    assert pq.read_table(folder / "results.parquet").equals(found.results)
    assert len(pd.read_csv(folder / "results.csv")) == len(frame)
    assert set(frame[frame.metric == "specks"].part) >= {"", "logistic", "error rate of logistic"}
    assert found.plot().svg.startswith("<svg")
    assert "SPECKS, logistic, cross-validated (less" in found.plot("specks", part="logistic, cross-validated").svg
    with pytest.raises(SettingError, match="no run has a part 'cart' of the score of 'specks'"):
        found.plot("specks", part="cart")
    assert "workload_error" in found._repr_html_()
    error = (
        frame[(frame.metric == "workload_error") & (frame.part == "")].groupby(["mechanism", "epsilon"]).value.mean()
    )
    assert error["mst:paper", 5.0] < error["independent", 5.0]


def test_the_same_call_repeats_nothing_and_more_runs_add_to_it(
    public: tuple[Any, Path], rows: pd.DataFrame, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"workload": "all-2way", "public": True, "output": tmp_path, "jobs": 1}
    us.compare(rows, SCHEMA, mechanisms="independent", **given)
    before = lines(tmp_path)
    us.compare(rows, SCHEMA, mechanisms="independent", **given)
    assert lines(tmp_path) == before
    found = us.compare(rows, SCHEMA, mechanisms="independent", runs=3, **given)
    assert lines(tmp_path)[: len(before)] == before
    assert sorted(found.frame[found.frame.part == ""].run) == [0, 1, 2]
    with pytest.raises(OutputError, match="another value of delta"):
        us.compare(rows, SCHEMA, mechanisms="independent", delta=1e-6, **given)


def test_the_record_alone_is_enough_to_go_on(public: tuple[Any, Path], rows: pd.DataFrame, tmp_path: Path) -> None:
    found, folder = public
    kept = (folder / "record.jsonl").read_bytes()
    assert len(kept) < 700 * 2 * 2 * 2  # bytes of each run, with ten scores and parts
    (tmp_path / "record.jsonl").write_bytes(kept)
    given = QUICK | {"metrics": ["workload_error", "specks"], "settings": {"specks": {"models": ["logistic"]}}}
    again = us.compare(rows, SCHEMA, **given, runs=2, sets=2, public=True, output=tmp_path)
    assert (tmp_path / "record.jsonl").read_bytes() == kept
    assert again.results.equals(found.results)
    drawn = [f"{metric}-{what}.svg" for metric in ("specks", "workload_error") for what in ("ratios", "unnamed")]
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == drawn
    assert {line["version"].split()[0].rstrip(",") for line in lines(folder)[1:]} == {us.__version__}
    assert re.search(r", \d{4}-\d\d-\d\d$", lines(folder)[1]["version"])


def test_a_killed_grid_goes_on_where_it_was(rows: pd.DataFrame, tmp_path: Path) -> None:
    SCHEMA.save(tmp_path / "s.yaml")
    rows.to_csv(tmp_path / "t.csv", index=False)
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "understudy", "compare", str(tmp_path / "t.csv"), "-s", str(tmp_path / "s.yaml")]
    command += ["--public", "--mechanisms", "mst", "--runs", "30", "--jobs", "1", "--quiet", "-o", str(folder)]
    process = subprocess.Popen(command)
    record = folder / "record.jsonl"
    while not record.exists() or record.read_bytes().count(b"outcome") < 3:
        assert process.poll() is None
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with record.open("ab") as file:
        file.write(b'{"cell": ["t", "all-3way"')  # a line that was cut
    done = [line["cell"] for line in lines_of(record) if "cell" in line]
    assert subprocess.run(command, check=False).returncode == 0
    after = [line["cell"] for line in lines_of(record) if "cell" in line]
    assert after[: len(done)] == done
    assert sorted(cell[-1] for cell in after) == list(range(30))


def test_an_interrupted_grid_writes_what_there_is(rows: pd.DataFrame, tmp_path: Path) -> None:
    def interrupt(step: us.Step) -> None:
        if (tmp_path / "out" / "record.jsonl").exists():
            raise KeyboardInterrupt

    given: dict[str, Any] = {"mechanisms": "mst", "runs": 1000, "public": True, "jobs": 1, "output": tmp_path / "out"}
    with pytest.raises(KeyboardInterrupt):
        us.compare(rows, SCHEMA, progress=interrupt, **given)
    assert 1 <= pq.read_table(tmp_path / "out" / "results.parquet")["run"].to_numpy().max() + 1 < 1000
    assert (tmp_path / "out" / "comparison.html").exists()


def lines_of(record: Path) -> list[dict[str, Any]]:
    found = []
    for line in record.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            assert line.startswith(b'{"cell": ["t"')
    return found


@pytest.mark.parametrize(
    ("limit", "words"), [({"seconds": 1e-6}, "stopped: more than 1e-06 s"), ({"memory_mib": 1}, "more than 1 MiB")]
)
def test_a_run_that_passes_a_limit_is_a_line(
    rows: pd.DataFrame, tmp_path: Path, limit: dict[str, float], words: str
) -> None:
    found = us.compare(rows, SCHEMA, mechanisms="mst", public=True, output=tmp_path, jobs=1, **limit)
    (line,) = found.results.to_pylist()
    assert words in line["outcome"]
    assert line["value"] is None
    assert words in (tmp_path / "comparison.html").read_text()


def test_a_mechanism_or_metric_that_fails_is_a_line(rows: pd.DataFrame) -> None:
    given: dict[str, Any] = {"metrics": ["workload_error", "nist_income"], "public": True, "jobs": 1}
    given["settings"] = {"nist_income": {"group": "a", "binary": "nobody", "amount": "b"}}
    found = us.compare(rows, SCHEMA, mechanisms=["nist-mst", "independent"], **given).frame
    failed = found[found.mechanism == "nist-mst"]
    assert failed.outcome.str.contains("public table").all()
    scored = found[(found.mechanism == "independent") & (found.part == "")].set_index("metric")
    assert scored.outcome["workload_error"] == "done"
    assert scored.outcome["nist_income"].startswith("failed: ")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mechanisms": "mts"}, "mechanism 'mts' is unknown"),
        ({"mechanisms": "aim:max_mb=4"}, "aim has no setting 'max_mb'"),
        ({"metrics": ["error"]}, "metric 'error' is unknown"),
        ({"epsilons": "many"}, "epsilons: give numbers"),
        ({"epsilons": [0.0]}, "epsilon must be a positive"),
        ({"workload": "all"}, "workload 'all'"),
        ({"tables": ["x"]}, "belong to a study"),
        ({"seconds": -1}, "seconds must be a positive number"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_does(rows: pd.DataFrame, given: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        us.compare(rows, SCHEMA, **{"mechanisms": "mst"} | given, public=True)


def test_a_private_table_is_refused_until_its_cost_is_agreed_to(rows: pd.DataFrame, tmp_path: Path) -> None:
    given: dict[str, Any] = {"mechanisms": "independent", "epsilons": [0.5, 1.0], "runs": 2, "dataset": "people"}
    given |= {"output": tmp_path / "out", "jobs": 1}
    ledger = us.Ledger()
    with pytest.raises(SettingError, match=r"4 runs cost epsilon 1\.6457 at delta 4e-09 together. Agree"):
        us.compare(rows, SCHEMA, **given)
    with pytest.raises(BudgetExceeded, match="more than the epsilon_total"):
        us.compare(rows, SCHEMA, epsilon_total=1.6, **given)
    assert ledger.reservations("people") == []
    found = us.compare(rows, SCHEMA, epsilon_total=1.65, **given)
    assert ledger.total("people").epsilon == pytest.approx(1.6457, abs=1e-4)  # less than 0.5 + 0.5 + 1 + 1
    assert ledger.reservations("people")[0].state == "finished"
    assert set(found.frame.outcome) == {"done"}
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == [f"{name}.custodian-only.{end}" for name, end in (
        ("comparison", "html"), ("record", "jsonl"), ("results", "csv"), ("results", "parquet"),
        ("workload_error-unnamed", "svg"))]  # fmt: skip
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "out").iterdir())
    assert "For the custodian only" in (tmp_path / "out" / "comparison.custodian-only.html").read_text()
    us.compare(rows, SCHEMA, **given)  # all of it was paid for
    assert len(ledger.reservations("people")) == 1
    with pytest.raises(SettingError, match="2 runs cost epsilon"):
        us.compare(rows, SCHEMA, **given | {"runs": 3})
    with pytest.raises(LedgerError, match="is a comparison"):
        us.resume(ledger.reservations("people")[0].run)


def test_an_interrupted_run_on_a_private_table_is_spent(rows: pd.DataFrame, tmp_path: Path) -> None:
    given: dict[str, Any] = {"mechanisms": "independent", "runs": 2, "output": tmp_path, "jobs": 1, "dataset": "people"}
    us.compare(rows, SCHEMA, epsilon_total=2.0, **given)
    record = tmp_path / "record.custodian-only.jsonl"
    kept = [line for line in record.read_text().splitlines() if '"run"' in line or "outcome" not in line]
    record.write_text("\n".join(kept) + "\n")  # as if both runs had been killed after they started
    found = us.compare(rows, SCHEMA, **given)
    assert [line["outcome"] for line in found.results.to_pylist()] == ["interrupted: what it cost is spent"] * 2
    run = us.Ledger().reservations("people")[0].run
    with pytest.raises(LedgerError, match="has recorded answers"):
        us.Ledger().cancel(run)


def test_a_grant_limits_a_comparison(rows: pd.DataFrame, tmp_path: Path) -> None:
    from understudy.ledger.spending import Grant

    us.Ledger().grant(Grant("people", epsilon=1.0, delta=1e-6))
    with pytest.raises(BudgetExceeded):
        us.compare(rows, SCHEMA, mechanisms="independent", runs=2, epsilon_total=5.0, dataset="people", output=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_study_is_a_file(rows: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    rows.to_csv(tmp_path / "tables" / "t.csv", index=False)
    (tmp_path / "tables" / "t.json").write_text(json.dumps(SIZES))
    study = tmp_path / "study.yaml"
    study.write_text(
        "tables:\n  one: {data: t.csv, domain: t.json}\n  two: {data: t.csv, domain: t.json, workloads: ['target:a']}\n"
        "public: true\nmechanisms: {Baseline: independent}\nepsilons: [1]\nworkloads: [all-1way]\n"
    )
    loaded = load_study(study, tmp_path / "tables")
    assert [(c.table, c.workload) for c in loaded.cells()] == [("one", "all-1way"), ("two", "target:a")]
    said = CliRunner().invoke(
        app, ["compare", str(study), "--data", str(tmp_path / "tables"), "--tables", "two", "-o", str(tmp_path / "out")]
    )
    assert said.exit_code == 0, said.output
    assert "Baseline" in said.output
    assert "target:a" in (tmp_path / "out" / "results.csv").read_text()
    study.write_text("tables: {}\nmechanism: mst\n")
    with pytest.raises(SettingError, match="no key 'mechanism'"):
        load_study(study)


def test_ranks_count_from_the_best_and_share_ties() -> None:
    scores = Scores("lower")
    case = ("t", "all-3way")
    for name, one, two in (("x", 0.1, 0.2), ("y", 0.1, 0.3), ("z", 0.5, 0.1)):
        scores.values[case, name, 1.0] = [one]
        scores.values[case, name, 2.0] = [two]
    assert rank_mechanisms(scores) == {"x": 1.75, "y": 2.25, "z": 2.0}  # (1.5 + 2)/2, (1.5 + 3)/2, (3 + 1)/2
    scores.better = "higher"
    assert rank_mechanisms(scores)["z"] == 2.0
    del scores.values[case, "z", 2.0]
    assert rank_mechanisms(scores)["z"] == 1.0  # it was not run in the other case
    scores.tried.add((case, "z", 2.0))
    assert rank_mechanisms(scores)["z"] == 2.0  # first, and last where it has no score


def test_ratios_are_tested_as_in_the_paper() -> None:
    """(2, 4, 6) against (1, 2, 3) in one case and the other way round in another: ratios 2 and 1/2, which cancel."""
    from scipy.stats import norm, ttest_ind

    scores = Scores("lower")
    case, low, high = ("t", "all-3way"), [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]
    for epsilon, ours, theirs in ((1.0, high, low), (2.0, low, high), (3.0, [5.0], [5.0])):
        scores.values[case, "x", epsilon], scores.values[case, "aim", epsilon] = ours, theirs
    (found,) = measure_ratios(scores, "aim")
    assert (found.mechanism, found.ratios) == ("x", (2.0, 0.5, 1.0))
    assert (found.mean, found.p_value) == (pytest.approx(1.0), pytest.approx(0.5))
    for other in ([0.5, 0.7, 0.6], [2.5, 1.5, 2.1], [9.0, 9.1, 9.0]):
        exact = ttest_ind(high, other, equal_var=False, alternative="greater").pvalue
        assert norm.sf(compare_means(high, other)) == pytest.approx(exact, rel=1e-6)
    assert compare_means([1.0, 1.0], [1.0, 1.0]) is None


def test_the_front_has_what_nothing_beats_in_both() -> None:
    assert find_front({"slow": (9.0, 0.1), "fast": (1.0, 0.5), "worse": (2.0, 0.6), "same": (1.0, 0.5)}) == [
        "fast",
        "slow",
    ]


def test_the_error_is_that_of_the_workload(public: tuple[Any, Path], rows: pd.DataFrame) -> None:
    assert len(Workload.parse("all-2way", SCHEMA.domain)) == 3
    scores = collect_scores(public[0])["workload_error"]
    assert {case for case, _, _ in scores.values} == {("unnamed", "all-2way")}


def test_a_table_with_facts_to_discover_is_scored_by_the_discovered_schema() -> None:
    field = {"name": "a", "type": "string", "understudy": {"values": "discover"}}
    schema = us.Schema.from_dict({"fields": [field], "understudy": {"privacy_unit": "row"}})
    table = pd.DataFrame({"a": ["x"] * 3000 + ["y"] * 2000})
    found = us.compare(
        table, schema, mechanisms="independent", epsilons=5, delta=1e-5, workload="all-1way", public=True
    )
    (line,) = [line for line in found.results.to_pylist() if line["part"] == ""]
    assert line["outcome"] == "done"
    assert line["value"] < 0.1


def test_a_table_without_usable_rows_is_a_line() -> None:
    found = us.compare(pd.DataFrame({"a": [9], "b": [9], "c": [9]}), SCHEMA, mechanisms="independent", public=True)
    (line,) = found.results.to_pylist()
    assert line["outcome"] == "failed: the real table has no row that fits the schema; give at least one row"


def test_a_study_is_narrowed_by_its_labels(tmp_path: Path, rows: pd.DataFrame) -> None:
    rows.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "t.json").write_text(json.dumps(SIZES))
    study = tmp_path / "study.yaml"
    study.write_text(
        "tables: {t: {data: t.csv, domain: t.json}}\npublic: true\nmechanisms: {Columns: independent, Tree: mst}\n"
    )
    found = us.compare(study, mechanisms=["Columns"], output=tmp_path / "out")
    assert set(found.results["mechanism"].to_pylist()) == {"Columns"}
    found = us.compare(study, output=tmp_path / "out")
    assert set(found.results["mechanism"].to_pylist()) == {"Columns", "Tree"}


def test_real_rows_are_a_reference_on_public_tables_only(rows: pd.DataFrame) -> None:
    with pytest.raises(SettingError, match="copies real rows"):
        us.compare(rows, SCHEMA, mechanisms=["subsample", "mst"], epsilon_total=100)
    for wrong in ("subsample:share=2", "subsample:paper", "subsample:rows=5", "subsample:share=yes"):
        with pytest.raises(SettingError, match="subsample"):
            us.compare(rows, SCHEMA, mechanisms=[wrong], public=True)
    found = us.compare(rows, SCHEMA, mechanisms={"all": "subsample:share=1", "some": "subsample"}, public=True, jobs=1)
    scores = {line["mechanism"]: line["value"] for line in found.results.to_pylist() if line["part"] == ""}
    assert scores["all (real rows, not private)"] == 0
    assert 0 < scores["some (real rows, not private)"] < 1


def test_slow_mechanisms_may_run_less_often(rows: pd.DataFrame) -> None:
    tables = {"t": StudyTable(rows, SCHEMA)}
    study = make_study(tables=tables, mechanisms=["mst", "aim"], runs=3, runs_of={"aim": 1}, public=True)
    study.check()
    assert [(cell.mechanism, cell.run) for cell in study.cells()] == [("mst", 0), ("aim", 0), ("mst", 1), ("mst", 2)]
    with pytest.raises(SettingError, match="runs_of: 'rap' is no mechanism"):
        make_study(tables=tables, mechanisms=["mst"], runs_of={"rap": 1}, public=True).check()


def test_a_run_may_have_its_own_delta_and_a_public_number_of_rows(rows: pd.DataFrame) -> None:
    mechanisms = {"AIM": "independent", "pure": "independent:delta=0", "bounded": "independent:rows=public"}
    study = make_study(tables={"t": StudyTable(rows, SCHEMA)}, mechanisms=mechanisms, public=True)
    specs = {cell.mechanism: study.spec(cell) for cell in study.cells()}
    assert [spec.delta for spec in specs.values()] == [1e-9, 0, 1e-9]
    assert not any(spec.settings for spec in specs.values())
    table = _Loaded(pa.Table.from_pandas(rows), SCHEMA)
    run: dict[str, Any] = {"mechanism": "independent", "paper": False, "settings": {}, "epsilon": 1, "delta": 1e-9}
    for bounded in (False, True):
        schema, _ = _make_tables(table, run, [0], bounded=bounded)
        assert schema.rows == (400 if bounded else None)
    found = us.compare(rows, SCHEMA, mechanisms=mechanisms, public=True, jobs=1)
    assert set(found.results["outcome"].to_pylist()) == {"done"}
    for wrong in ("mst:rows=400", "mst:delta=2"):
        with pytest.raises(UnderstudyError):
            us.compare(rows, SCHEMA, mechanisms=wrong, public=True)
    with pytest.raises(SettingError, match="the number of rows is public only if the table is"):
        us.compare(rows, SCHEMA, mechanisms="mst:rows=public", epsilon_total=5)


def test_answers_without_rows_are_scored_as_they_are(rows: pd.DataFrame) -> None:
    """`gaussian` as published answers the workload; rows of its columns would miss that `b` depends on `a`."""
    given: dict[str, Any] = {"epsilons": 1000, "workload": "all-2way", "metrics": ["workload_error", "specks"]}
    found = us.compare(rows, SCHEMA, mechanisms=["gaussian:paper", "independent"], **given, public=True, jobs=1)
    lines = [line for line in found.results.to_pylist() if line["part"] == ""]
    scores = {(line["mechanism"], line["metric"]): (line["value"], line["outcome"]) for line in lines}
    assert scores["gaussian:paper", "workload_error"][0] < 0.02
    assert scores["independent", "workload_error"][0] > 0.2
    assert scores["gaussian:paper", "specks"] == (None, "failed: specks needs rows, and this mechanism publishes answers without rows")  # noqa: E501 # fmt: skip
    assert scores["independent", "specks"][1] == "done"


def test_a_study_may_name_a_public_table(rows: pd.DataFrame, tmp_path: Path) -> None:
    for name in ("t", "older"):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "t.json").write_text(json.dumps(SIZES))
    study = tmp_path / "study.yaml"
    study.write_text(
        "tables: {t: {data: t.csv, domain: t.json, public: older.csv}}\npublic: true\nmechanisms: [nist-mst]\n"
    )
    assert set(us.compare(study, jobs=1).results["outcome"].to_pylist()) == {"done"}


def test_ratios_are_drawn_as_boxes() -> None:
    """Quartiles of 6, 7, 8, 9, 10 are 7, 8 and 9, at equal distances on a linear axis."""
    chart = svg.boxes("ratios", [("<b>x</b>", [10.0, 6.0, 9.0, 7.0, 8.0])], x_words="ratio", at=6.0)
    (start, width), (low, high), (middle, _) = (
        [float(value) for value in re.findall(pattern, chart)[-1]]
        for pattern in (
            r'<rect class="standin" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"',
            r'<line class="noise" x1="([\d.]+)" y1="23" x2="([\d.]+)" y2="23"',
            r'<line class="noise" x1="([\d.]+)" y1="17" x2="([\d.]+)"',
        )
    )
    assert middle == pytest.approx(start + width / 2, abs=0.2)
    assert (start - low, high - start - width) == pytest.approx((width / 2, width / 2), abs=0.2)
    assert "&lt;b&gt;x" in chart


EXAMPLES = Path(__file__).parents[3] / "examples"
STUDIES = sorted((EXAMPLES / "studies").glob("*.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_the_studies_of_the_papers_can_be_run(path: Path, tmp_path: Path) -> None:
    for said in read_yaml(path.read_text())["tables"].values():
        if "schema" in said:  # the made-up census rows have a schema of their own
            shutil.copy(EXAMPLES / "census1940" / "schema.yaml", tmp_path / said["schema"])
        else:
            columns = [*said.get("columns", []), "a", "b", "c"]
            (tmp_path / said["domain"]).write_text(json.dumps(dict.fromkeys(columns, 2)))
    study = load_study(path, tmp_path)
    study.check()
    assert study.public
    assert f"understudy compare examples/studies/{path.name} --data FOLDER" in path.read_text()


def test_names_of_others_stay_text_on_the_page() -> None:
    study = make_study(tables={"<i>t</i>": StudyTable(None, SCHEMA)}, mechanisms={"<b>x</b>": "mst"}, public=True)
    line: dict[str, Any] = {
        "table": "<i>t</i>",
        "workload": "all-3way",
        "mechanism": "<b>x</b>",
        "delta": 1e-9,
        "run": 0,
    }
    line |= {"metric": "workload_error", "part": "", "better": "lower", "seconds": 1.0, "scoring_seconds": 0.1}
    line |= {"peak_mib": 9.0, "outcome": "done", "version": "0.1"}
    lines = [line | {"epsilon": epsilon, "value": value} for epsilon, value in ((0.1, 0.5), (1.0, 0.05))]
    lines.append(line | {"epsilon": 10.0, "value": None, "outcome": "failed: <u>why</u>"})
    found = Comparison(pa.Table.from_pylist(lines), study)
    for text in (found.page(), found._repr_html_(), found.plot().svg):
        assert not re.search("<[biu]>", text)
        assert "&lt;b&gt;x" in text
    assert "failed: &lt;u&gt;why" in found.page()
    assert "NaN" not in found.page()
