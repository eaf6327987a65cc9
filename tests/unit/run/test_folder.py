"""Run files: what they may say, which folder they may use, and what a second run does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from contextlib import contextmanager

import pytest
import yaml

import understudy as us
from understudy import errors
from understudy import run as runs
from understudy.gate import PrivateTable
from understudy.ledger import Ledger
from understudy.mechanism.independent import Independent
from understudy.run import folder as folders
from understudy.run import pipeline
from understudy.sink import files as writing

SCHEMA = us.Schema.from_domain({"a": 3, "b": 2, "c": 2})
CONTENT = {
    "data": "t.csv",
    "schema": "s.yaml",
    "budget": {"epsilon": 1, "delta": "1e-6"},
    "mechanism": "independent",
    "outputs": {"rows": ["csv", "parquet"], "report": [], "seed": 1},
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,c\n" + "0,1,1\n2,1,0\n1,0,0\n" * 20)
    SCHEMA.save(tmp_path / "s.yaml")
    write(tmp_path)
    return tmp_path


def write(folder, **changes):
    content = {key: value for key, value in (CONTENT | changes).items() if value is not None}
    (folder / "run.yaml").write_text(yaml.safe_dump(content))
    return folder / "run.yaml"


def start(folder, **rest):
    return runs.run(folder / "run.yaml", folder / "out", **rest)


def files(folder, out="out"):
    return {path.name: path.read_bytes() for path in (folder / out).iterdir()}


def recorded(run):
    """The answers on record, as bytes."""
    entries = [entry for entry in Ledger().entries() if entry.run == run and entry.kind == "answer"]
    return [(dict(entry.body), entry.payload) for entry in entries]


def only(dataset="t"):
    """The one run about a dataset that counts."""
    (one,) = (one for one in Ledger().reservations(dataset) if one.state != "cancelled")
    return one


def test_one_file_makes_release_rows_and_report_and_the_second_time_nothing(folder):
    write(folder, outputs={"rows": ["csv", "parquet"], "report": ["public"]})
    first = start(folder)
    made = files(folder)
    assert (first.status, first.summary["epsilon"], first.summary["dataset"]) == ("made", 1.0, "t")
    assert set(made) == {"stand-in.release", "rows.csv", "rows.parquet", "report.html"}
    second = start(folder)
    assert (second.status, second.summary) == ("unchanged", first.summary)
    assert files(folder) == made
    assert us.Ledger().total("t").runs == 1


def test_a_finished_run_is_recognised_without_reading_rows_or_loading_the_heavy_parts(folder):
    start(folder)
    (folder / "t.csv").unlink()
    code = (
        "import sys\nfrom understudy.cli import main\n"
        f"sys.argv = ['understudy', 'run', {str(folder / 'run.yaml')!r}, '-o', {str(folder / 'out')!r}, '--json']\n"
        "try:\n    main()\nfinally:\n    print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["status"] == "unchanged"
    assert {
        "pyarrow",
        "numba",
        "pandas",
        "understudy.gate",
        "understudy.release",
        "understudy.run.pipeline",
    }.isdisjoint(done.stderr.split())


def test_comments_order_and_layout_of_the_file_do_not_matter(folder):
    start(folder)
    content = dict(reversed(CONTENT.items()))
    (folder / "run.yaml").write_text("# every night\n" + yaml.safe_dump(content, default_flow_style=True))
    assert start(folder).status == "unchanged"


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_what_is_missing_is_made_again_from_the_release(folder, name):
    start(folder)
    before = files(folder)
    (folder / "out" / name).unlink()
    (folder / "t.csv").unlink()
    assert start(folder).status == "completed"
    assert files(folder) == before  # the seed is in the file
    assert us.Ledger().total("t").runs == 1


def test_paths_are_relative_to_the_file_and_the_command_runs_anywhere(folder, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert start(folder).status == "made"


UNKNOWN = {
    "top": ({"bugdet": {"epsilon": 1}}, "unknown key `bugdet`; did you mean `budget`?"),
    "budget": ({"budget": {"epsilom": 1, "delta": 0}}, "budget: unknown key `epsilom`; did you mean `epsilon`?"),
    "outputs": ({"outputs": {"zebra": 1}}, "outputs: unknown key `zebra`; the keys are rows, report, seed"),
    "format": ({"outputs": {"rows": ["xml"]}}, "'xml' is unknown; the choices are csv, parquet"),
    "report": ({"outputs": {"report": "secret"}}, "'secret' is unknown; the choices are public, custodian"),
    "seed": ({"outputs": {"seed": -1}}, "seed: give a whole number"),
    "setting": ({"mechanism": {"name": "mst", "thresold": 1}}, "mst has no setting 'thresold'"),
    "mechanism": ({"mechanism": "magic"}, "the choices are"),
    "nameless": ({"mechanism": {"threshold": 1}}, "a mapping with `name` and settings"),
    "no data": ({"data": None}, "`data` is missing"),
    "password": ({"data": "postgresql://me:secret@host/db?table=t"}, "`data` holds a password"),
    "password of a public table": ({"public": "postgresql://me:x@host/db?table=t"}, "`public` holds a password"),
    "password of a key": ({"data": "postgresql://host/db?table=t&SSLPassword=x"}, "`data` holds a password"),
    "number": ({"data": 7}, "`data` must be text"),
    "nothing": ({"data": " "}, "`data` is missing"),
    "no budget": ({"budget": {"delta": 1e-9}}, "no budget was given"),
    "words": ({"budget": {"epsilon": "much", "delta": 1e-9}}, "epsilon must be a number"),
    "rows": ({"rows": "many"}, "`rows` must be a whole number"),
    "keep": ({"mechanism": "mst", "keep": ["ab"]}, "`keep` is a list of lists"),
    "workload": ({"mechanism": "aim", "workload": 3}, "`workload` is all-3way"),
    "useless workload": ({"workload": "all-2way"}, "independent has no setting 'workload'"),
    "schema": ({"schema": "none.yaml"}, "the schema .*none.yaml cannot be read"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_a_file_that_cannot_be_meant_is_refused_for_free(folder, case):
    changes, words = UNKNOWN[case]
    write(folder, **changes)
    with pytest.raises(errors.SettingError, match=words):
        start(folder)
    assert us.Ledger().total("t").runs == 0
    assert not list((folder / "out").glob("stand-in*"))


@pytest.mark.parametrize("text", ["", "3", "[1]", "data: [", "\x00", "a: &a [*a]", "rows: 1\nrows: 2"])
def test_a_file_that_is_not_a_mapping_is_explained(folder, text):
    (folder / "run.yaml").write_text(text)
    with pytest.raises(errors.SettingError, match=r"run.yaml"):
        start(folder)
    with pytest.raises(errors.SettingError, match="the run file does not exist"):
        runs.run(folder / "none.yaml", folder / "out")


def test_other_outputs_are_made_of_the_same_run(folder):
    start(folder)
    before = files(folder)
    (folder / "t.csv").unlink()
    write(folder, outputs={"rows": ["csv"], "report": ["public"], "seed": 1})
    assert start(folder).status == "completed"
    assert files(folder) == before | {"report.html": (folder / "out" / "report.html").read_bytes()}
    write(folder, outputs={"rows": [], "report": [], "seed": 2})
    assert start(folder).status == "unchanged"
    assert us.Ledger().total("t").runs == 1


@pytest.mark.parametrize("other", ["budget", "schema", "dataset", "mechanism"])
def test_the_folder_of_another_run_is_refused(folder, other):
    start(folder)
    before = files(folder)
    changes = {
        "budget": {"budget": {"epsilon": 2, "delta": 1e-6}},
        "dataset": {"dataset": "others"},
        "mechanism": {"mechanism": "mst"},
    }
    write(folder, **changes.get(other, {}))
    if other == "schema":
        us.Schema.from_domain({"a": 3, "b": 2, "c": 3}).save(folder / "s.yaml", overwrite=True)
    with pytest.raises(errors.OutputError, match=r"not empty and holds no run of this file.* Nothing was spent"):
        start(folder)
    assert files(folder) == before
    assert us.Ledger().total("t").runs == 1


@pytest.mark.parametrize("wrong", [{"mechanism": "nope"}, {"data": "none.csv"}, {"budget": {"epsilon": 0}}])
def test_a_run_that_never_began_does_not_hold_the_folder(folder, wrong):
    write(folder, **wrong)
    with pytest.raises(errors.UnderstudyError):
        start(folder)
    write(folder)
    assert start(folder).status == "made"
    assert us.Ledger().total("t").runs == 1


def test_a_folder_with_something_else_in_it_is_refused(folder):
    (folder / "out").mkdir()
    (folder / "out" / "thesis.doc").write_text("precious")
    with pytest.raises(errors.OutputError, match="not empty and holds no run"):
        start(folder)
    (folder / "file").write_text("in the way")
    with pytest.raises(errors.OutputError, match="file cannot be made or written; choose another"):
        runs.run(folder / "run.yaml", folder / "file")
    assert us.Ledger().total("t").runs == 0


def test_another_file_in_the_place_of_the_release_is_reported_and_kept(folder):
    start(folder)
    release = folder / "out" / "stand-in.release"
    with zipfile.ZipFile(release) as archive:
        page = json.loads(archive.read("release.json"))
    with zipfile.ZipFile(release, "w") as archive:
        archive.writestr("release.json", json.dumps(page | {"format": 0}))
    (folder / "out" / "rows.csv").unlink()
    before = files(folder)
    with pytest.raises(errors.OutputError, match=r"is not the release of this run; choose another folder"):
        start(folder)
    assert files(folder) == before
    assert us.Ledger().total("t").runs == 1


def test_two_starts_at_the_same_time_are_one_run_and_the_second_is_refused(folder, monkeypatch):
    """The other process is played by this one under another number."""
    told = []

    def meanwhile(step):
        if step.stage == "measure" and not told:
            with pytest.MonkeyPatch.context() as patch:
                pid = os.getpid()
                patch.setattr("understudy.ledger.ledger.os.getpid", lambda: pid + 1)
                with pytest.raises(errors.OutputError) as refused:
                    start(folder)
            told.append(str(refused.value))

    assert start(folder, progress=meanwhile).status == "made"
    assert f"process {os.getpid()} is working on run" in told[0]
    assert "Nothing was read" in told[0]
    assert us.Ledger().total("t").runs == 1
    assert start(folder).status == "unchanged"


def test_of_two_starts_that_do_not_see_each_other_one_is_answered(folder):
    """As on two machines that share a ledger: whoever came last goes on, the other stops before it sees an answer."""
    told = []

    def meanwhile(step):
        if step.stage == "measure" and not told:
            told.append(None)
            told.append(start(folder).status)

    with pytest.raises(errors.OutputError, match="another process is continuing run"):
        start(folder, progress=meanwhile)
    assert told[1] == "made"
    assert us.Ledger().total("t").runs == 1
    assert only().state == "finished"
    assert only().answers == 1
    assert start(folder).status == "unchanged"


def test_a_release_that_was_taken_away_is_made_again_from_the_answers(folder, monkeypatch):
    start(folder)
    (folder / "out" / "stand-in.release").rename(folder / "mine.release")
    monkeypatch.setattr(PrivateTable, "_draw", lambda *_: pytest.fail("something was asked"))
    assert start(folder).status == "completed"
    mine, again = (us.Release.load(path) for path in (folder / "mine.release", folder / "out" / "stand-in.release"))
    assert [m.values.tolist() for m in again.measurements] == [m.values.tolist() for m in mine.measurements]
    assert again.receipt == mine.receipt
    assert start(folder).status == "unchanged"
    assert us.Ledger().total("t").runs == 1


def test_a_finished_folder_that_was_moved_or_copied_is_recognised(folder):
    write(folder, outputs={"rows": ["csv"], "report": []})
    start(folder)
    shutil.copytree(folder / "out", folder / "copy")
    (folder / "out").rename(folder / "elsewhere")
    (folder / "t.csv").unlink()
    for place in ("elsewhere", "copy"):
        before = files(folder, place)
        assert runs.run(folder / "run.yaml", folder / place).status == "unchanged"
        assert files(folder, place) == before
    (folder / "copy" / "rows.csv").unlink()
    assert runs.run(folder / "run.yaml", folder / "copy").status == "completed"
    assert us.Ledger().total("t").runs == 1


def test_a_moved_folder_of_another_run_is_refused(folder):
    start(folder)
    (folder / "out").rename(folder / "elsewhere")
    write(folder, budget={"epsilon": 2, "delta": 1e-6})
    with pytest.raises(errors.OutputError, match="holds no run of this file"):
        runs.run(folder / "run.yaml", folder / "elsewhere")
    assert us.Ledger().total("t").runs == 1


def test_two_folders_are_two_runs(folder):
    start(folder)
    assert runs.run(folder / "run.yaml", folder / "second").status == "made"
    assert us.Ledger().total("t").runs == 2


def test_a_folder_is_the_same_by_whatever_path_it_is_called(folder, monkeypatch):
    start(folder)
    (folder / "link").symlink_to(folder / "out")
    monkeypatch.chdir(folder)
    for path in ("out", "./out/../out", "link"):
        assert runs.run("run.yaml", path).status == "unchanged"
    assert us.Ledger().total("t").runs == 1


def test_keep_public_and_settings_reach_the_mechanism(folder):
    keep = [["a", "b"], {"clique": ["a", "c"], "weight": 2}]
    write(folder, mechanism={"name": "mst", "threshold": 1.5}, keep=keep, rows=7, dataset="people")
    start(folder)
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert (release.settings["threshold"], release.default_rows) == (1.5, 7)
    assert release.settings["keep"] == [[["a", "b"], 1.0], [["a", "c"], 2.0]]
    assert us.Ledger().total("people").runs == 1


def test_a_failure_before_spending_leaves_a_folder_that_can_be_used_again(folder):
    (folder / "t.csv").rename(folder / "later.csv")
    with pytest.raises(errors.InputError, match="no such file"):
        start(folder)
    (folder / "later.csv").rename(folder / "t.csv")
    assert start(folder).status == "made"


def interrupted(folder, owner, method, after=0, output=None):
    """The folder of a run that was stopped when a method had been called so many times."""
    original, calls = getattr(owner, method), []

    def stops(*args, **kwargs):
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(1)
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, stops)
        with pytest.raises(KeyboardInterrupt):
            runs.run(folder / "run.yaml", output or folder / "out")
    return folder


def test_an_interrupt_after_the_release_was_made_says_what_to_do(folder, monkeypatch):
    def stops(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_rows", stops)
        with pytest.raises(KeyboardInterrupt) as caught:
            start(folder)
    told = "stand-in.release was made; run the same command again to make the rest, at no cost."
    assert caught.value.__notes__[0].endswith(told)
    assert start(folder).status == "completed"
    assert us.Ledger().total("t").runs == 1


@pytest.fixture
def discovered(folder):
    """A run that was stopped after it had discovered its schema."""
    (folder / "t.csv").write_text("a,b\n" + "".join(f"{'xyz'[i % 3]},{i % 50}\n" for i in range(600)))
    (folder / "s.yaml").write_text(
        "fields:\n- {name: a, type: string, understudy: {values: discover}}\n"
        "- {name: b, type: integer, understudy: {bounds: discover, bins: 5}}\nunderstudy: {privacy_unit: row}\n"
    )
    write(folder, budget={"epsilon": 4, "delta": 1e-6, "discovery_share": 0.3})
    return interrupted(folder, Independent, "fit")


def test_what_was_discovered_before_a_crash_is_not_discovered_again(discovered):
    before = recorded(only().run)
    schemas = [entry.body["schema"] for entry in Ledger().entries() if entry.kind == "schema"]
    assert len(schemas) == 1
    with drawing() as drawn:
        assert start(discovered).status == "resumed"
    assert len(drawn) == 2
    release = us.Release.load(discovered / "out" / "stand-in.release")
    assert recorded(only().run)[: len(before)] == before
    assert release.schema == us.Schema.from_dict(schemas[0])
    what = [charge.what for charge in release.receipt.charges]
    assert what[-2:] == ["measure", "measure"]
    assert len(what) == sum(len(body["charges"]) for body, _ in before) + 2
    assert us.Ledger().total("t").runs == 1


def test_a_completed_schema_is_reused_although_discovery_would_complete_it_otherwise(discovered, monkeypatch):
    monkeypatch.setattr(pipeline, "Discovery", lambda *_: pytest.fail("facts were discovered again"))
    assert start(discovered).status == "resumed"


@pytest.mark.parametrize("answers", [1, 2, "all"])
def test_discovery_that_was_killed_half_way_continues_and_pays_for_nothing_twice(discovered, answers):
    """In a second folder, so that it begins anew; killed after so many answers, or when the schema is complete."""
    place, first = discovered / "second", only()
    whole = len(recorded(first.run))
    assert whole > 2
    if answers == "all":
        interrupted(discovered, Ledger, "record_schema", output=place)
    else:
        interrupted(discovered, Ledger, "record", answers, output=place)
    (one,) = (one for one in Ledger().reservations("t") if one.run != first.run)
    paid = recorded(one.run)
    assert len(paid) == (whole if answers == "all" else answers)
    with drawing() as drawn:
        assert runs.run(discovered / "run.yaml", place).status == "resumed"
    charges = [charge for body, _ in recorded(one.run) for charge in body["charges"]]
    assert recorded(one.run)[: len(paid)] == paid
    assert len(drawn) == len(charges) - sum(len(body["charges"]) for body, _ in paid)
    receipt = us.Release.load(place / "stand-in.release").receipt
    assert [charge.to_dict() for charge in receipt.charges] == charges
    assert sum(charge.delta for charge in receipt.charges) <= receipt.budget.discovery_delta
    assert us.Ledger().total("t").runs == 2


@contextmanager
def drawing():
    """A list that gets an entry whenever noise is drawn within the block."""
    drawn, original = [], PrivateTable._draw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateTable, "_draw", lambda *given: drawn.append(1) or original(*given))
        yield drawn


def test_a_failure_after_spending_says_to_run_again(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Independent, "finish", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(
            errors.RunInterrupted, match=r"run the same command again, or `understudy resume .*at no further cost"
        ):
            start(folder)
    assert start(folder).status == "resumed"
    assert us.Ledger().total("t").runs == 1


def test_a_run_that_was_killed_before_its_first_answer_is_cancelled_by_an_attempt_that_fails(folder, monkeypatch):
    """It holds its budget until then; the next start reserves it anew, once."""
    killed_at(folder, pipeline, "open_source")
    assert us.Ledger().total("t").runs == 1
    (folder / "t.csv").write_text("a,b\n0,1\n")
    with pytest.raises(errors.SchemaError, match="column 'c'"):
        start(folder)
    assert [one.state for one in Ledger().reservations("t")] == ["cancelled"]
    (folder / "t.csv").write_text("a,b,c\n0,1,1\n")
    assert start(folder).status == "made"
    assert us.Ledger().total("t").runs == 1


class Killed(BaseException):
    """The end of a process, which no handler of ours gets to see."""


def killed_at(folder, owner, name, *, when="before"):
    original = getattr(owner, name)

    def dies(*args, **rest):
        if when == "after":
            original(*args, **rest)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, dies)
        patch.setattr(pipeline, "_explain", lambda error, *_: error)
        with pytest.raises(Killed):
            start(folder)


STEPS = {
    "reserve": (Ledger, "reserve"),
    "open": (pipeline, "open_source"),
    "answer": (PrivateTable, "_new_answer"),
    "record": (Ledger, "record"),
    "fit": (Independent, "finish"),
    "quality": (PrivateTable, "error"),
    "save": (us.Release, "save"),
    "finish": (Ledger, "finish"),
    "publish": (pipeline, "publish"),
    "rows": (writing, "write_rows"),
    "page": (folders._Folder, "_page"),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_between_any_two_steps_and_started_again_it_pays_once_and_keeps_its_answers(folder, step, when):
    write(folder, quality="10%", outputs={"rows": ["csv"], "report": ["public"], "seed": 1})
    killed_at(folder, *STEPS[step], when=when)
    reserved = (step, when) != ("reserve", "before")
    assert us.Ledger().total("t").runs == int(reserved)
    begun = recorded(only().run) if reserved else []
    held = {path.name for path in (folder / "out").iterdir() if not path.name.startswith(".")}
    assert held <= {"stand-in.release", "rows.csv"}
    with drawing() as drawn:
        finished = reserved and only().state == "finished"
        status = start(folder).status
    assert status == ("completed" if finished else "resumed" if begun else "made")
    assert set(files(folder)) == {"stand-in.release", "rows.csv", "report.html"}
    answers = recorded(only().run)
    assert answers[: len(begun)] == begun
    assert [body["charges"][0]["what"] for body, _ in answers] == ["measure", "quality"]
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert release.quality is not None
    assert len(release.receipt.charges) == 4
    assert len(drawn) == 4 - sum(len(body["charges"]) for body, _ in begun)  # nothing was drawn a second time
    assert us.Ledger().total("t").runs == 1
    assert start(folder).status == "unchanged"
    assert Ledger().verify() == []


@pytest.fixture
def stopped(folder):
    """A run that was stopped after its first answer."""
    write(folder, quality="10%", dataset="people")
    return interrupted(folder, PrivateTable, "error")


def test_a_backup_of_the_folder_that_is_put_back_changes_nothing(stopped):
    """The folder holds finished files only: what was answered is in the ledger, whichever copy is in its place."""
    shutil.copytree(stopped / "out", stopped / "backup")
    assert start(stopped).status == "resumed"
    given = recorded(only("people").run)
    first = us.Release.load(stopped / "out" / "stand-in.release")
    (stopped / "out").rename(stopped / "handed-over")
    (stopped / "backup").rename(stopped / "out")
    assert start(stopped).status == "completed"
    again = us.Release.load(stopped / "out" / "stand-in.release")
    assert again.quality == first.quality
    assert recorded(only("people").run) == given
    assert us.Ledger().total("people").runs == 1
    assert runs.run(stopped / "run.yaml", stopped / "handed-over").status == "unchanged"


def test_a_copy_of_an_unfinished_run_is_a_run_of_its_own_that_is_paid_for(stopped):
    """An unfinished folder holds nothing that could be told from an empty one."""
    shutil.copytree(stopped / "out", stopped / "copy")
    assert runs.run(stopped / "run.yaml", stopped / "copy").status == "made"
    assert us.Ledger().total("people").runs == 2
    assert start(stopped).status == "resumed"
    assert us.Ledger().total("people").runs == 2


def test_the_quality_is_asked_once_however_often_the_run_is_started(folder):
    write(folder, quality="10%", dataset="people")
    interrupted(folder, us.Release, "save")
    given = recorded(only("people").run)
    assert given[-1][0]["charges"][0]["what"] == "quality"
    interrupted(folder, us.Release, "save")
    assert start(folder).status == "resumed"
    assert recorded(only("people").run) == given


def test_a_quality_that_was_answered_for_one_fit_is_not_reported_for_another(folder, monkeypatch):
    """Another version measures otherwise: finished from what was measured, its quality is paid but not known."""
    write(folder, quality="10%", dataset="people")
    interrupted(folder, us.Release, "save")
    with monkeypatch.context() as patch:
        patch.setattr(Independent, "fit", lambda self, table, **rest: table.measure([("a",)], rho=0.001))
        assert start(folder).status == "resumed"
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert release.quality is None
    assert [charge.what for charge in release.receipt.charges] == ["measure"] * 3 + ["quality"]
    assert len(recorded(only("people").run)) == 2


def test_a_version_that_measures_otherwise_still_asks_about_its_quality_once(stopped, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Independent, "fit", lambda self, table, **rest: table.measure([("a",)], rho=0.001))
        assert start(stopped).status == "resumed"
    release = us.Release.load(stopped / "out" / "stand-in.release")
    assert release.quality is not None
    assert len(release.measurements) == 3
    assert len(recorded(only("people").run)) == 2


def test_an_answer_that_was_altered_in_the_ledger_is_reported_and_the_run_stays_as_it_is(stopped):
    import sqlite3

    with sqlite3.connect(Ledger().address) as database:
        database.execute("update understudy_entries set payload = x'00' where kind = 'answer'")
    database.close()
    with pytest.raises(errors.LedgerError, match=r"entry \d+ of the ledger was altered"):
        start(stopped)
    assert only("people").state == "unfinished"
    assert any("was altered" in line for line in Ledger().verify())


def test_another_ledger_knows_nothing_of_the_run_and_counts_it_too(stopped, tmp_path):
    assert start(stopped, ledger=tmp_path / "another.db").status == "made"
    assert us.Ledger(tmp_path / "another.db").total("people").runs == 1
    assert us.Ledger().total("people").runs == 1
    with pytest.raises(errors.OutputError, match="never overwritten"):
        start(stopped)


def test_a_run_is_refused_beyond_its_grant_and_continues_within_it(folder):
    Ledger().grant(us.ledger.Grant("t", epsilon=1.5))
    interrupted(folder, us.Release, "save")
    with pytest.raises(errors.BudgetExceeded, match="Nothing was read"):
        runs.run(folder / "run.yaml", folder / "second")
    assert start(folder).status == "resumed"
    assert start(folder).status == "unchanged"
    assert us.Ledger().total("t").runs == 1


def test_a_release_names_the_file_of_a_workload_and_not_where_it_is(folder):
    (folder / "w.yaml").write_text("- [a, b]\n")
    write(folder, mechanism="gaussian", workload="w.yaml")
    start(folder)
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert release.settings["workload"] == "w.yaml"
    assert str(folder) not in json.dumps(dict(release.settings))
    assert {bound.clique for bound in release.bounds()} == {("a", "b"), ("c",)}


def test_a_run_continues_whatever_its_file_is_named(folder, monkeypatch):
    (folder / "w.yaml").write_text("- [a, b]\n")
    write(folder, mechanism="gaussian", workload="w.yaml", quality="10%")
    monkeypatch.chdir(folder)
    with monkeypatch.context() as patch:
        patch.setattr(PrivateTable, "error", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(errors.RunInterrupted):
            runs.run("run.yaml", "out")
    monkeypatch.chdir("/")
    assert start(folder).status == "resumed"
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert (release.quality.workload, release.quality.tables, len(release.receipt.charges)) == ("w.yaml", 1, 3)
