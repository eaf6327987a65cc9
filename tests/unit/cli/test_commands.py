"""Every command: what it makes, what it says in words and in JSON, and how it refuses."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import warnings

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import understudy as us
from understudy.cli import app, demo, main, run
from understudy.cli import console as guard
from understudy.cli import ledger as ledger_commands
from understudy.errors import Notice
from understudy.ledger import Grant
from understudy.mechanism.independent import Independent

SCHEMA = us.Schema.from_domain({"a": 3, "b": 2})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n0,1\n2,1\n1,0\n")
    SCHEMA.save(tmp_path / "s.yaml")
    return tmp_path


def synthesis(folder, *extra, table="t.csv"):
    budget = () if any(option in extra for option in ("--epsilon", "--rho")) else ("--epsilon", 1, "--delta", 1e-6)
    chosen = () if "-m" in extra else ("-m", "independent")
    start = ("synthesize", folder / table, "-s", folder / "s.yaml", "-o", folder / "r.release")
    return (*start, *budget, *chosen, *extra)


@pytest.fixture
def release(folder, call):
    assert call(*synthesis(folder))[0] == 0
    return folder / "r.release"


def test_synthesize_says_what_was_made_and_spent(folder, call):
    code, out, err = call(*synthesis(folder))
    assert (code, err) == (0, "")
    assert f"Release: {folder / 'r.release'}" in out
    assert "(epsilon = 1, delta = 1e-06)-differential privacy" in out
    assert "Spent on 't' so far: 1 run, epsilon 1 in total at delta 1e-06" in out
    assert us.Release.load(folder / "r.release").receipt.epsilon == 1.0


def test_the_ledger_is_named_and_a_new_one_is_said_to_be_new(folder, call):
    """A job with another home folder would silently start a second ledger."""
    first = call(*synthesis(folder, "--ledger", folder / "ledger.sqlite"))[1]
    assert f"Ledger: {folder / 'ledger.sqlite'} (new" in first
    (folder / "r.release").unlink()
    again = call(*synthesis(folder, "--ledger", folder / "ledger.sqlite"))[1]
    assert f"Ledger: {folder / 'ledger.sqlite'}\n" in again


def test_a_large_delta_needs_a_yes(folder, call):
    large = ("--epsilon", 1, "--delta", 0.01)
    code, _, err = call(*synthesis(folder, *large))
    assert (code, "add --yes" in err) == (3, True)
    assert "No run" in call("runs")[1]
    assert call(*synthesis(folder, *large, "--yes"))[0] == 0


@pytest.mark.parametrize(
    ("mechanism", "rho", "words"),
    [
        ("independent", 100, "No pair of columns was measured: the columns are independent in synthetic rows; another"),
        ("privsyn", 1e-7, "No pair of columns was measured: the columns are independent in synthetic rows; a larger"),
        ("privsyn", 100, ""),
    ],
)
def test_independent_columns_are_reported_with_what_would_help(folder, call, mechanism, rho, words):
    (folder / "pairs.csv").write_text("a,b\n" + "0,0\n2,1\n" * 200)
    out = call(*synthesis(folder, "-m", mechanism, "--rho", rho, table="pairs.csv"))[1]
    assert words in out
    assert ("No pair" in out) == bool(words)


def test_many_values_that_the_schema_does_not_list_are_noted(folder, call):
    fields = [{"name": "city", "type": "string", "constraints": {"enum": ["Bonn", "Ulm"]}}]
    us.Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}}).save(folder / "cities.yaml")
    (folder / "old.csv").write_text("city\n" + "Bonn\nUlm\n" * 400)
    (folder / "new.csv").write_text("city\n" + "Bonn\nUlm\nUlm\nJena\n" * 200)
    start, words = ("-s", folder / "cities.yaml", "--rho", 1, "-m", "independent", "-o"), "add them to the schema"
    assert words not in call("synthesize", folder / "old.csv", *start, folder / "old.release")[1]
    assert words in call("synthesize", folder / "new.csv", *start, folder / "new.release")[1]


def test_synthesize_says_when_no_pair_was_measured(folder, call):
    words = "the columns are independent in synthetic rows"
    assert f"{words}; another mechanism" in call(*synthesis(folder))[1]
    assert words in call("inspect", folder / "r.release")[1]
    (folder / "r.release").unlink()
    assert f"{words}; a larger budget" in call(*synthesis(folder, "-m", "mst"))[1]
    (folder / "r.release").unlink()
    assert json.loads(call(*synthesis(folder, "-m", "mst", "--rho", 1000, "--json"))[1])["notes"] == []


def test_synthesize_answers_scripts_in_json_and_is_silent_when_asked(folder, call):
    code, out, err = call(*synthesis(folder, "--json", "--dataset", "people"))
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert told["epsilon"] == 1.0
    assert told["spent"]["runs"] == 1
    assert (told["dataset"], told["mechanism"], told["measurements"]) == ("people", "independent", 2)
    (folder / "r.release").unlink()
    assert call(*synthesis(folder, "--quiet")) == (0, "", "")


def test_settings_reach_the_mechanism_or_are_refused(folder, call):
    assert "independent has no setting 'rounds'" in call(*synthesis(folder, "--set", "rounds=3"))[2]
    assert "--set takes NAME=VALUE" in call(*synthesis(folder, "--set", "rounds"))[2]
    assert "the value cannot be read" in call(*synthesis(folder, "--set", "x={["))[2]
    assert "--set x: the value cannot be read" in call(*synthesis(folder, "--set", "x=2020-99-99"))[2]
    assert run.parse_settings(["a=1", "b=[x, 2]", "c=word", "d="]) == {"a": 1, "b": ["x", 2], "c": "word", "d": None}


def test_rows_becomes_the_default(folder, call):
    call(*synthesis(folder, "--rows", 7))
    assert us.Release.load(folder / "r.release").default_rows == 7


REFUSED = {
    "no budget": (("--epsilon", 1), 3, "delta is missing"),
    "epsilon 0": (("--epsilon", 0, "--delta", 1e-9), 3, "epsilon must be a positive"),
    "epsilon nan": (("--epsilon", "nan", "--delta", 1e-9), 3, "epsilon must be a positive"),
    "negative epsilon": (("--epsilon", -1, "--delta", 1e-9), 3, "epsilon must be a positive"),
    "delta 1": (("--epsilon", 1, "--delta", 1), 3, "below 1"),
    "negative delta": (("--epsilon", 1, "--delta", -0.1), 3, "at least 0"),
    "two budgets": (("--rho", 1, "--epsilon", 1), 3, "give one of them"),
    "mechanism": (("-m", "magic"), 3, "the choices are"),
    "noise": (("--noise", "loud"), 3, "the choices are exact, opendp"),
    "rows": (("--rows", 0), 3, "rows must be a whole number of at least 1"),
    "dataset": (("--dataset", "a/b"), 3, "letters, digits"),
    "not a number": (("--epsilon", "much"), 2, "Invalid value"),
    "unknown option": (("--frobnicate",), 2, "No such option"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_synthesize_refuses_for_free(folder, call, case):
    extra, code, words = REFUSED[case]
    left, out, err = call(*synthesis(folder, *extra))
    assert (left, out) == (code, "")
    assert words in err
    assert not list(folder.glob("r.release*"))
    assert us.Ledger().total("t").runs == 0


def test_errors_answer_scripts_in_json(folder, call):
    code, out, err = call(*synthesis(folder, "--noise", "loud", "--json"))
    assert (code, out) == (3, "")
    assert json.loads(err)["error"] == "SettingError"
    assert "the choices are" in json.loads(err)["message"]


def test_an_output_that_exists_or_cannot_be_written_is_refused_for_free(folder, call, release):
    assert us.Ledger().total("t").runs == 1
    code, _, err = call(*synthesis(folder))
    assert code == 8
    assert "never overwritten; choose another output" in err
    code, _, err = call(*synthesis(folder)[:-6], "-o", folder / "no" / "r", "--rho", 1)
    assert code == 8
    assert "create it first" in err
    code, _, err = call(*synthesis(folder)[:-6], "-o", folder / ("x" * 300), "--rho", 1)
    assert code == 8
    assert us.Ledger().total("t").runs == 1


def test_a_name_that_no_file_can_have_is_explained(folder, call, release):
    long = "x" * 300
    for command in (
        ("sample", release, "-o", folder / f"{long}.csv"),
        ("report", release, "-o", folder / f"{long}.html"),
        ("synthesize", folder / f"{long}.csv", "-s", folder / "s.yaml", "--rho", 1, "-o", folder / "q.release"),
        ("synthesize", folder / "t.csv", "-s", folder / f"{long}.yaml", "--rho", 1, "-o", folder / "q.release"),
        ("schema", "draft", folder / "t.csv", "-o", folder / f"{long}.yaml"),
        ("report", release, "-o", "."),
    ):
        code, out, err = call(*command)
        assert (code in (3, 4, 8), out) == (True, ""), command
        assert any(words in err for words in ("too long", "is a folder", "check the path"))


def test_missing_arguments_and_no_command_are_usage(folder, call):
    assert call("synthesize")[0] == 2
    assert call("synthesize", folder / "t.csv")[0] == 2
    assert call("frobnicate")[0] == 2
    assert call()[0] == 2
    assert call("--help")[0] == 0


# -- sample ------------------------------------------------------------------------------------------------------------


def test_sample_writes_csv_and_parquet_of_the_same_rows(folder, call, release):
    code, out, _ = call("sample", release, "-n", 40, "--seed", 5, "-o", folder / "rows.csv")
    assert code == 0
    assert "40 synthetic rows of 2 columns" in out
    call("sample", release, "-n", 40, "--seed", 5, "-o", folder / "rows.parquet")
    rows = pq.read_table(folder / "rows.parquet")
    assert pa_csv.read_csv(folder / "rows.csv").equals(rows)
    assert rows.equals(us.Release.load(release).sample(40, seed=5))


def test_sample_prints_csv_and_answers_scripts(folder, call, release):
    code, out, _ = call("sample", release, "-n", 2, "--seed", 1)
    assert code == 0
    assert out.splitlines()[0] == '"a","b"'
    assert len(out.splitlines()) == 3
    code, out, _ = call("sample", release, "-n", 2, "--seed", 1, "-o", folder / "rows.csv", "--json")
    assert json.loads(out) == {"rows": 2, "output": str(folder / "rows.csv"), "seed": 1}
    assert call("sample", release, "-n", 2, "-o", folder / "more.csv", "-q") == (0, "", "")


@pytest.mark.parametrize(
    ("extra", "code", "words"),
    [
        (("--json",), 3, "--json needs --output"),
        (("-o", "rows.xlsx"), 3, ".csv or .parquet"),
        (("-n", "-3"), 3, "whole number of at least 0"),
        (("--seed", "-3"), 3, "whole number of at least 0"),
        (("-n", "many"), 2, "Invalid value"),
        (("-o", "no/rows.csv"), 8, "create it first"),
        (("-n", "999999999999999"), 3, "too many to write; give a smaller number"),
    ],
)
def test_sample_refuses(folder, call, release, monkeypatch, extra, code, words):
    monkeypatch.chdir(folder)
    left, out, err = call("sample", release, *extra)
    assert (left, out) == (code, "")
    assert words in err


def test_sample_makes_rows_that_satisfy_conditions(folder, call):
    assert call(*synthesis(folder, "--rho", 1000))[0] == 0  # with little noise: no value of the three rows is lost
    release = folder / "r.release"
    code, out, _ = call("sample", release, "-n", 50, "--where", "a=1", "-o", folder / "some.csv")
    assert code == 0, out
    cells = (folder / "some.csv").read_text().split()
    assert len(cells) == 51
    assert {row.split(",")[0].strip('"') for row in cells[1:]} == {"1"}
    code, _, err = call("sample", release, "--where", "shoe=1")
    assert code == 3
    assert "there is no column 'shoe'" in err


def test_sample_replaces_only_when_requested(folder, call, release):
    (folder / "rows.csv").write_text("kept")
    code, _, err = call("sample", release, "-o", folder / "rows.csv")
    assert code == 8
    assert "--force" in err
    assert (folder / "rows.csv").read_text() == "kept"
    assert call("sample", release, "-n", 1, "-o", folder / "rows.csv", "--force")[0] == 0
    assert (folder / "rows.csv").read_text() != "kept"


def test_rows_that_cannot_be_written_leave_nothing_behind(folder, call, release, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("understudy.sink.files._Csv.write", full)
    before = sorted(folder.iterdir())
    code, _, err = call("sample", release, "-o", folder / "rows.csv")
    assert code == 8
    assert "No space left on device" in err
    assert sorted(folder.iterdir()) == before


# -- inspect, resume, runs, mechanisms, ledger


def test_inspect_shows_the_receipt_and_the_measurements(call, release):
    code, out, _ = call("inspect", release)
    assert code == 0
    for words in ("independent, 2 columns", "Guarantee: ", "Who is protected: one row", "a: 3 cells, sigma"):
        assert words in out
    told = json.loads(call("inspect", release, "--json")[1])
    assert told["receipt"]["budget"]["proof"] == "pld"
    assert [m["clique"] for m in told["measured"]] == [["a"], ["b"]]


@pytest.mark.parametrize("command", ["inspect", "sample"])
def test_anything_but_a_release_is_refused(folder, call, command):
    for path in (folder / "t.csv", folder / "nothing"):
        code, out, err = call(command, path)
        assert (code, out) == (5, "")
        assert err.startswith("error: ")


@pytest.fixture
def stopped(folder, call, monkeypatch):
    """A run that broke off when everything was answered."""

    def fail(*_, **__):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(us.Release, "save", fail)
        code, _, err = call(*synthesis(folder))
    assert code == 7
    assert "The charges stand" in err
    (one,) = us.Ledger().reservations("t")
    assert f"understudy resume {one.run}" in err
    return one


def test_resume_finishes_for_free(folder, call, stopped):
    code, out, _ = call("resume", stopped.run[:6])
    assert code == 0
    assert "The run is counted once" in out
    assert us.Release.load(folder / "r.release").receipt.epsilon == 1.0
    assert us.Ledger().total("t").runs == 1


def test_resume_without_the_table_finishes_from_what_was_measured_and_answers_scripts(folder, call, stopped):
    (folder / "t.csv").unlink()
    code, out, _ = call("resume", stopped.run, "-o", folder / "other.release", "--json")
    assert (code, json.loads(out)["release"]) == (0, str(folder / "other.release"))
    assert len(us.Release.load(folder / "other.release").measurements) == 2


def test_resume_of_a_run_file_fills_its_folder(folder, call, monkeypatch):
    (folder / "run.yaml").write_text(
        "data: t.csv\nschema: s.yaml\nbudget: {rho: 1}\nmechanism: independent\noutputs: {report: []}\n"
    )

    def fail(*_, **__):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(us.Release, "save", fail)
        code, _, err = call("run", folder / "run.yaml", "-o", folder / "out")
    assert (code, "run the same command again, or `understudy resume" in err) == (7, True)
    (one,) = us.Ledger().reservations("t")
    code, out, _ = call("resume", one.run)
    assert code == 0
    assert "the run is counted once" in out
    assert {path.name for path in (folder / "out").iterdir()} == {"stand-in.release", "rows.csv"}
    assert us.Ledger().total("t").runs == 1


def test_resume_of_a_run_file_whose_table_is_gone_fills_its_folder_from_what_was_measured(folder, call, monkeypatch):
    (folder / "run.yaml").write_text(
        "data: t.csv\nschema: s.yaml\nbudget: {rho: 1}\nmechanism: independent\noutputs: {report: []}\n"
    )
    fit = Independent.fit

    def stops(mechanism, table, **rest):
        table.measure([("a",)], rho=0.5)
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(Independent, "fit", stops)
        assert call("run", folder / "run.yaml", "-o", folder / "out")[0] == 7
    assert Independent.fit is fit
    (folder / "t.csv").unlink()
    (one,) = us.Ledger().reservations("t")
    code, out, _ = call("resume", one.run)
    assert (code, "interrupted" in out) == (0, True)
    assert {path.name for path in (folder / "out").iterdir()} == {"stand-in.release", "rows.csv"}
    assert [m.clique for m in us.Release.load(folder / "out" / "stand-in.release").measurements] == [("a",)]
    assert us.Ledger().total("t").runs == 1


def test_resume_needs_to_know_which_run_and_where_to(folder, call):
    code, _, err = call("resume", "0123")
    assert code == 9
    assert "no run, or more than one, begins with '0123'" in err
    us.synthesize(folder / "t.csv", SCHEMA, rho=1.0, mechanism="independent")
    code, _, err = call("resume", us.Ledger().reservations("t")[0].run)
    assert code == 3
    assert "--output" in err


def test_runs_are_listed_with_their_state(folder, call, stopped):
    out = call("runs")[1]
    assert f"{stopped.run}  " in out
    assert "unfinished     1 answers  epsilon 1  t  (user:" in out
    call("resume", stopped.run)
    (told,) = json.loads(call("runs", "t", "--json")[1])["runs"]
    assert (told["run"], told["state"], told["answers"], told["epsilon"]) == (stopped.run, "finished", 1, 1.0)
    assert call("runs", "nobody")[1] == "No run is in the ledger.\n"


def test_a_run_that_was_answered_cannot_be_cancelled_by_command(call, stopped):
    code, _, err = call("ledger", "cancel", stopped.run)
    assert code == 9
    assert "its charges stand" in err


def test_mechanisms_are_listed(call):
    code, out, _ = call("mechanisms")
    assert code == 0
    assert "independent: Measure all one-way marginals" in out
    assert out.count("    when: ") == out.count("    paper: ") == out.count("    pure DP: ")
    assert "paper: McKenna, Miklau and Sheldon 2021" in out
    assert json.loads(call("mechanisms", "--json")[1])["independent"]["pure"] is True


def test_the_ledger_adds_up(folder, call, release):
    code, out, _ = call("ledger", "show", "t")
    assert (code, out) == (0, "t: 1 run, epsilon 1 in total at delta 1e-06\n")
    assert json.loads(call("ledger", "show", "t", "--json")[1])["runs"] == 1
    code, _, err = call("ledger", "show", "nobody")
    assert (code, "dataset 'nobody' is not in the ledger; it has t" in err) == (3, True)


def test_a_ledger_can_be_named_for_every_command(folder, call):
    mine = ("--ledger", folder / "mine.db")
    assert call(*synthesis(folder, *mine))[0] == 0
    assert "1 run" in call("ledger", "show", "t", *mine)[1]
    assert call("ledger", "show", "t")[0] == 3
    assert "finished" in call("runs", *mine)[1]
    assert call("ledger", "grant", "t", "--rho", 9, *mine)[0] == 0
    assert call("ledger", "verify", *mine)[0] == 0


def test_a_damaged_ledger_is_refused_before_anything_is_read(folder, call):
    (folder / "mine.db").write_bytes(b"no database" * 100)
    code, out, err = call(*synthesis(folder, "--ledger", folder / "mine.db"))
    assert (code, out) == (9, "")
    assert "is not a ledger, or is damaged" in err
    assert not (folder / "r.release").exists()


# -- demo --------------------------------------------------------------------------------------------------------------


def test_the_demo_makes_a_stand_in_for_a_real_table(tmp_path, call):
    pytest.importorskip("statsmodels")
    code, out, err = call("demo", "-o", tmp_path / "demo", "--no-reports", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert {path.name for path in (tmp_path / "demo").iterdir()} >= {
        "randhie.release",
        "randhie.schema.yaml",
        "synthetic.csv",
    }
    assert told["epsilon"] == 1.0
    rows = pa_csv.read_csv(tmp_path / "demo" / "synthetic.csv")
    assert abs(rows.num_rows - 20_190) < 500
    assert us.Ledger().total(demo.DATASET).runs == 1


def test_a_demo_on_a_computer_that_knows_it_says_why_there_are_more_runs():
    budget = us.Budget.of(epsilon=1.0, delta=1e-9)
    for words in ("Spent on 'demo-randhie' so far: 1 run,", "With an earlier demo", "With 2 earlier demos"):
        us.Ledger().reserve(demo.DATASET, budget, unit="a row", spec={})
        assert demo._describe_spent().startswith(words)


def test_a_second_demo_keeps_the_first(tmp_path):
    (tmp_path / "demo").mkdir()
    assert demo._make_folder(tmp_path / "demo") == tmp_path / "demo"
    (tmp_path / "demo" / "x").write_text("")
    assert demo._make_folder(tmp_path / "demo") == tmp_path / "demo-2"


def test_the_demo_says_what_to_install(call, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    code, _, err = call("demo", "-o", tmp_path / "demo")
    assert code == 3
    assert "pip install 'understudy[demo]'" in err
    assert list(tmp_path.iterdir()) == []


# -- the guard ---------------------------------------------------------------------------------------------------------


def test_the_unforeseen_is_reported_by_id_type_and_place(call, monkeypatch, folder, release):
    def fail(*args, **kwargs):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("understudy.release.open_release", fail)
    code, out, err = call("inspect", release)
    assert (code, out) == (70, "")
    assert "ZeroDivisionError at " in err
    assert "secret" not in err


def test_an_interrupt_claims_nothing_that_it_does_not_know(call, monkeypatch, release):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("understudy.release.open_release", stop)
    assert call("inspect", release) == (130, "", "error: interrupted.\n")


def test_every_exit_code_is_documented():
    codes = {error.exit_code for error in vars(us.errors).values() if hasattr(error, "exit_code")} - {1}
    documented = app.info.epilog
    for code in codes | {0, 2, guard.OUR_FAULT, guard.INTERRUPTED}:
        assert f"{code} " in documented


def test_a_folder_that_may_not_be_entered_is_not_an_internal_error(release, call, monkeypatch):
    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.exists", refuse)
    code, _, err = call("sample", release, "-o", release.parent / "rows.csv")
    assert (code, "this user may not enter a folder of its path" in err) == (3, True)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_sign_that_the_terminal_cannot_show_ends_no_command(folder, encoding):
    us.Schema.from_domain({"a": 3, "b \u2265 5": 2}).save(folder / "signs.yaml")
    (folder / "signs.csv").write_text("a,b \u2265 5\n0,1\n", encoding="utf-8")
    command = [sys.executable, "-m", "understudy", "schema", "check", folder / "signs.yaml", folder / "signs.csv"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"b \\u2265 5" in done.stdout


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "understudy", "--version"]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"understudy {us.__version__}\n"
    )


def test_version_and_summaries_that_are_not_cut(call):
    assert call("--version")[:2] == (0, f"understudy {us.__version__}\n")
    for group in ((), ("schema",), ("ledger",)):
        code, out, _ = call(*group, "--help")
        assert code == 0
        assert "..." not in out.partition("Commands:")[2]


def test_whoever_stops_a_command_while_it_starts_sees_no_traceback(monkeypatch, capsys):
    class Stopped:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "understudy.cli.commands", Stopped())
    monkeypatch.setattr(sys, "argv", ["understudy", "runs"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "error: interrupted.\n"


def test_little_is_imported_before_the_command_line_can_explain_itself():
    script = "import sys, understudy.cli; sys.exit('typer' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.filterwarnings("default")
def test_warnings_of_other_libraries_are_not_shown(folder, call, monkeypatch):
    """They may quote a cell, and some appear for some tables only."""
    really = us.Schema.load

    def loading(path):
        warnings.warn("the cell holds 4711", RuntimeWarning, stacklevel=2)
        warnings.warn("ours", Notice, stacklevel=2)
        return really(path)

    monkeypatch.setattr(us.Schema, "load", loading)
    code, out, err = call(*synthesis(folder))
    assert code == 0
    assert "4711" not in out + err
    assert "note: ours" in err


def test_the_delta_of_a_grant_is_the_ledgers_own():
    """Written twice, so that the help needs nothing of the ledger."""
    assert inspect.signature(ledger_commands.grant).parameters["delta"].default == Grant.delta


def test_a_review_is_a_conversation_with_a_way_back(folder, monkeypatch):
    lines = [f"{n % 50},{('xx', 'yy')[n % 2]},{n % 3}" for n in range(200)]
    (folder / "p.csv").write_text("\n".join(["age,city,smokes", *lines]) + "\n")
    start = (sys.executable, "-m", "understudy", "schema")
    draft = folder / "p.custodian-only.yaml"
    subprocess.run([*start, "draft", folder / "p.csv", "-o", folder / "p.yaml", "-q"], check=True)
    answers = "row\na\nb\nd\ne\na\nr\n"  # who is protected; accept, go back, drop it; edit, accept; accept the rest
    settings = os.environ | {"VISUAL": "sed -i s/xx/Xx/"}
    done = subprocess.run(
        [*start, "review", draft], input=answers, capture_output=True, text=True, check=True, env=settings
    )
    assert "Every column is reviewed." in done.stdout
    assert done.stderr.count("1 of 3: age") == 2
    assert "3 of 3: smokes" in done.stderr
    assert "bounds widened to 0 and 50" in done.stderr  # why this was proposed
    reviewed = us.Schema.load(folder / "p.yaml")
    assert reviewed.columns[0].kind == "drop"
    assert "Xx" in str(reviewed.columns[1])
    reviewed.require_reviewed()
