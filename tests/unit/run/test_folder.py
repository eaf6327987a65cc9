"""Run files: what they may say, which folder they may use, and what a second run does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from unittest import mock

import pytest
import yaml

import understudy as us
from understudy import errors, journey
from understudy.gate import PrivateTable
from understudy.journey import stages
from understudy.journey.file import RunFile
from understudy.journey.folder import Folder
from understudy.mechanism.independent import Independent
from understudy.release import read_partial
from understudy.release.partial import PartialWriter

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
    return journey.run(folder / "run.yaml", folder / "out", **rest)


def files(folder):
    return {path.name: path.read_bytes() for path in (folder / "out").iterdir()}


def test_one_file_makes_release_rows_and_report_and_the_second_time_nothing(folder):
    write(folder, outputs={"rows": ["csv", "parquet"], "report": ["public"]})
    first = start(folder)
    made = files(folder)
    assert (first.status, first.summary["epsilon"], first.summary["dataset"]) == ("made", 1.0, "t")
    assert set(made) == {".run.lock", "run.json", "stand-in.release", "rows.csv", "rows.parquet", "report.html"}
    second = start(folder)
    assert (second.status, second.summary) == ("unchanged", first.summary)
    assert files(folder) == made
    assert us.Book().spent("t").runs == 1


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
    assert {"numpy", "pyarrow", "numba", "understudy.privacy"}.isdisjoint(done.stderr.split())


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
    assert us.Book().spent("t").runs == 1


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
    assert us.Book().spent("t").runs == 0
    assert not list((folder / "out").glob("stand-in*"))


@pytest.mark.parametrize("text", ["", "3", "[1]", "data: [", "\x00", "a: &a [*a]", "rows: 1\nrows: 2"])
def test_a_file_that_is_no_mapping_is_explained(folder, text):
    (folder / "run.yaml").write_text(text)
    with pytest.raises(errors.SettingError, match=r"run.yaml"):
        start(folder)
    with pytest.raises(errors.SettingError, match="no such run file"):
        journey.run(folder / "none.yaml", folder / "out")


def test_the_folder_of_another_run_is_refused_and_the_difference_named(folder):
    start(folder)
    before = files(folder)
    write(folder, budget={"epsilon": 2, "delta": 1e-6})
    with pytest.raises(errors.OutputError, match="holds another run: it differs in budget"):
        start(folder)
    write(folder)
    us.Schema.from_domain({"a": 3, "b": 2, "c": 3}).save(folder / "s.yaml", overwrite=True)
    with pytest.raises(errors.OutputError, match="differs in the schema's content"):
        start(folder)
    assert files(folder) == before
    assert us.Book().spent("t").runs == 1


@pytest.mark.parametrize("wrong", [{"mechanism": "nope"}, {"data": "none.csv"}, {"budget": {"epsilon": 0}}])
def test_a_run_that_never_began_does_not_hold_the_folder(folder, wrong):
    write(folder, **wrong)
    with pytest.raises(errors.UnderstudyError):
        start(folder)
    write(folder)
    assert start(folder).status == "made"
    assert us.Book().spent("t").runs == 1


def test_a_run_that_was_paid_for_holds_the_folder_although_its_files_were_moved(folder):
    start(folder)
    marker = folder / "out" / "run.json"
    begun = {key: value for key, value in json.loads(marker.read_text()).items() if key != "facts"}
    for path in (folder / "out").iterdir():
        path.unlink()
    marker.write_text(json.dumps(begun))
    write(folder, budget={"epsilon": 2, "delta": 1e-6})
    with pytest.raises(errors.OutputError, match="holds another run: it differs in budget"):
        start(folder)
    assert json.loads(marker.read_text()) == begun


def test_a_folder_with_something_else_in_it_is_refused(folder):
    (folder / "out").mkdir()
    (folder / "out" / "thesis.doc").write_text("precious")
    with pytest.raises(errors.OutputError, match="not empty and holds no run"):
        start(folder)
    (folder / "file").write_text("in the way")
    with pytest.raises(errors.OutputError, match="file is not a folder that can be read; choose another"):
        journey.run(folder / "run.yaml", folder / "file")
    assert us.Book().spent("t").runs == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"fingerprint": 3, "run": "x"}'])
def test_a_damaged_marker_is_told(folder, text):
    start(folder)
    (folder / "out" / "run.json").write_text(text)
    with pytest.raises(errors.OutputError, match=r"run\.json is damaged"):
        start(folder)


def test_a_folder_of_another_version_is_told(folder):
    start(folder)
    marker = folder / "out" / "run.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"format": 0}))
    with pytest.raises(errors.OutputError, match=r"another version of understudy \(format 0"):
        start(folder)


def test_a_release_of_an_older_format_is_told_before_anything_is_spent(folder):
    start(folder)
    release = folder / "out" / "stand-in.release"
    with zipfile.ZipFile(release) as archive:
        page = json.loads(archive.read("release.json"))
    with zipfile.ZipFile(release, "w") as archive:
        archive.writestr("release.json", json.dumps(page | {"format": 0}))
    (folder / "out" / "rows.csv").unlink()
    with pytest.raises(errors.ReleaseError, match="has format 0, which no version"):
        start(folder)
    assert us.Book().spent("t").runs == 1


def test_two_runs_at_the_same_time_do_not_share_a_folder(folder):
    inside = Folder(folder / "out", RunFile.load(folder / "run.yaml"))
    with inside.claimed(), pytest.raises(errors.OutputError, match="another run is working"):
        start(folder)
    assert start(folder).status == "made"


def test_paid_but_moved_away_is_never_paid_again(folder):
    start(folder)
    (folder / "out" / "stand-in.release").rename(folder / "mine.release")
    with pytest.raises(errors.OutputError, match="this run was paid for"):
        start(folder)
    (folder / "mine.release").rename(folder / "out" / "stand-in.release")
    assert start(folder).status == "unchanged"


def test_keep_public_and_settings_reach_the_mechanism(folder):
    keep = [["a", "b"], {"clique": ["a", "c"], "weight": 2}]
    write(folder, mechanism={"name": "mst", "threshold": 1.5}, keep=keep, rows=7, dataset="people")
    start(folder)
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert (release.settings["threshold"], release.default_rows) == (1.5, 7)
    assert release.settings["keep"] == [[["a", "b"], 1.0], [["a", "c"], 2.0]]
    assert us.Book().spent("people").runs == 1


def test_a_failure_before_spending_leaves_a_folder_that_can_be_used_again(folder):
    (folder / "t.csv").rename(folder / "later.csv")
    with pytest.raises(errors.InputError, match="no such file"):
        start(folder)
    (folder / "later.csv").rename(folder / "t.csv")
    assert start(folder).status == "made"


def interrupted(folder, owner, method, after=0):
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
            start(folder)
    return folder


def test_an_interrupt_beside_a_release_that_is_made_says_what_to_do(folder, monkeypatch):
    def stops(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "write_rows", stops)
    with pytest.raises(KeyboardInterrupt) as caught:
        start(folder)
    told = "stand-in.release is made; run the same again for what is missing, at no cost."
    assert caught.value.__notes__[0].endswith(told)
    monkeypatch.undo()
    assert start(folder).status == "completed"


@pytest.fixture
def bought(folder):
    """A run that was stopped when it had bought its schema."""
    (folder / "t.csv").write_text("a,b\n" + "".join(f"{'xyz'[i % 3]},{i % 50}\n" for i in range(600)))
    (folder / "s.yaml").write_text(
        "fields:\n- {name: a, type: string, understudy: {values: discover}}\n"
        "- {name: b, type: integer, understudy: {bounds: discover, bins: 5}}\nunderstudy: {privacy_unit: row}\n"
    )
    write(folder, budget={"epsilon": 4, "delta": 1e-6, "discovery_share": 0.3})
    return interrupted(folder, Independent, "fit")


def test_what_was_bought_before_a_crash_is_not_bought_again(bought):
    before = read_partial(bought / "out" / "stand-in.release.partial")
    assert start(bought).status == "resumed"
    receipt = us.Release.load(bought / "out" / "stand-in.release").receipt
    assert receipt.charges[: len(before.charges)] == before.charges
    assert [charge.what for charge in receipt.charges[len(before.charges) :]] == ["measure", "measure"]
    assert us.Book().spent("t").runs == 1


def test_a_failure_after_spending_says_to_run_again(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Independent, "finish", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(errors.RunInterrupted, match="run the same again to go on at no more cost"):
            start(folder)
    assert start(folder).status == "resumed"
    assert us.Book().spent("t").runs == 1


def test_a_run_that_was_killed_right_after_the_book_is_not_lost_when_the_next_attempt_fails(folder):
    """It is paid for: its record stays, whatever stops an attempt before it asks anything."""
    original = us.Book.append

    def killed(self, *args, **rest):
        original(self, *args, **rest)
        shutil.copytree(folder / "out", folder / "left")
        raise KeyboardInterrupt

    with mock.patch.object(us.Book, "append", killed), pytest.raises(KeyboardInterrupt):
        start(folder)
    shutil.rmtree(folder / "out")
    (folder / "left").rename(folder / "out")
    (folder / "t.csv").rename(folder / "later.csv")
    with pytest.raises(errors.InputError):
        start(folder)
    (folder / "later.csv").rename(folder / "t.csv")
    assert start(folder).status == "made"
    assert us.Book().spent("t").runs == 1


def test_an_attempt_that_cannot_go_on_and_measured_nothing_says_what_is_left_to_do(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(PartialWriter, "measured", lambda *args: 1 / 0)
        with pytest.raises(errors.RunInterrupted):
            start(folder)
    partial = folder / "out" / "stand-in.release.partial"
    partial.write_bytes(partial.read_bytes().replace(b'"rows":null', b'"rows":9'))
    with pytest.raises(errors.OutputError, match="start anew in another folder, paying again"):
        start(folder)
    assert us.Book().spent("t").runs == 1


@pytest.fixture
def stopped(folder):
    """A run that was stopped after its first answer."""
    write(folder, quality="10%", dataset="people")
    return interrupted(folder, PrivateTable, "_noisy", after=1)


def test_a_record_without_its_last_line_end_is_gone_on_with_and_stays_readable(stopped):
    record = stopped / "out" / "stand-in.release.partial"
    record.write_bytes(record.read_bytes().rstrip(b"\n"))
    kept = read_partial(record).measurements
    assert len(kept) == 1
    interrupted(stopped, PrivateTable, "_noisy", after=1)
    assert read_partial(record).measurements[0].values.tolist() == kept[0].values.tolist()
    assert start(stopped).status == "resumed"


def test_interrupted_while_an_answer_goes_to_disk_the_answer_stays_and_the_run_goes_on(folder):
    """That is where most of a short run's time goes: the line is written, and the disk is waited for."""
    original = PartialWriter.measured

    def measured(*args):
        with mock.patch.object(os, "fsync", side_effect=KeyboardInterrupt):
            original(*args)

    with mock.patch.object(PartialWriter, "measured", measured), pytest.raises(KeyboardInterrupt):
        start(folder)
    kept = read_partial(folder / "out" / "stand-in.release.partial").measurements
    assert len(kept) == 1
    assert start(folder).status == "resumed"
    found = us.Release.load(folder / "out" / "stand-in.release").measurements
    assert len(found) == 3
    assert found[0].values.tolist() == kept[0].values.tolist()


def test_a_copy_of_an_unfinished_run_is_not_answered_a_second_time_for_one_price(stopped):
    shutil.copytree(stopped / "out", stopped / "copy")
    asked = []
    original = PrivateTable._draw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateTable, "_draw", lambda self, *args: asked.append(1) or original(self, *args))
        with pytest.raises(errors.OutputError, match="copied or moved since this run began"):
            journey.run(stopped / "run.yaml", stopped / "copy")
    assert not asked
    assert start(stopped).status == "resumed"
    release = us.resume(stopped / "copy" / "stand-in.release.partial", output=stopped / "copied.release")
    assert len(release.measurements) == 1
    (stopped / "out").rename(stopped / "elsewhere")
    assert journey.run(stopped / "run.yaml", stopped / "elsewhere").status == "unchanged"


@pytest.mark.parametrize("again", ["finished", "stopped"])
def test_a_copy_that_is_put_back_in_the_place_of_the_run_is_not_answered_either(stopped, again):
    """A backup of the folder, say: what it does not hold was answered since, and the book counts the run once."""
    shutil.copytree(stopped / "out", stopped / "backup")
    if again == "finished":
        start(stopped)
    else:
        interrupted(stopped, PrivateTable, "error")
    (stopped / "out").rename(stopped / "handed-over")
    (stopped / "backup").rename(stopped / "out")
    assert start(stopped).status == "resumed"
    release = us.Release.load(stopped / "out" / "stand-in.release")
    assert (len(release.measurements), release.quality) == (1, None)
    assert us.Book().spent("people").runs == 1


def copied_while_it_works(folder, owner, method, *, at):
    """Copy the folder when a method is called for the `at`-th time, and go on."""
    original, calls = getattr(owner, method), []

    def copying(*args, **kwargs):
        calls.append(1)
        if len(calls) == at:
            shutil.copytree(folder / "out", folder / "backup")
        return original(*args, **kwargs)

    return mock.patch.object(owner, method, copying)


@pytest.mark.parametrize("at", [2, 3])
def test_a_copy_made_while_an_attempt_works_is_not_answered_when_that_attempt_died(folder, at):
    """Whichever answers the copy lacks were given: the book knows how many, also within one attempt."""
    with copied_while_it_works(folder, PrivateTable, "_noisy", at=at):
        interrupted(folder, Independent, "finish")
    given = read_partial(folder / "out" / "stand-in.release.partial").measurements
    (folder / "out").rename(folder / "handed-over")
    (folder / "backup").rename(folder / "out")
    assert start(folder).status == "resumed"
    found = us.Release.load(folder / "out" / "stand-in.release").measurements
    assert [m.values.tolist() for m in found] == [m.values.tolist() for m in given[: at - 1]]
    assert us.Book().spent("t").runs == 1


def test_a_copy_made_right_before_the_run_was_paid_for_is_not_paid_for_by_it(folder):
    """Whichever of both is quicker: here the copy, whose record says as little as that of the run."""
    original = us.Book.append

    def overtaken(self, *args, **rest):
        with mock.patch.object(us.Book, "append", original):
            shutil.copytree(folder / "out", folder / "copy")
            assert journey.run(folder / "run.yaml", folder / "copy").status == "made"
        return original(self, *args, **rest)

    with (
        mock.patch.object(us.Book, "append", overtaken),
        pytest.raises(errors.OutputError, match="paid for by a copy of its folder"),
    ):
        start(folder)
    assert not (folder / "out" / "stand-in.release").exists()
    with pytest.raises(errors.OutputError, match="this run was paid for"):
        start(folder)
    assert us.Book().spent("t").runs == 1


def test_a_copy_made_while_facts_are_bought_does_not_buy_others(bought):
    record = bought / "out" / "stand-in.release.partial"
    lines = record.read_bytes().splitlines(True)
    record.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"bought"')))
    with pytest.raises(errors.OutputError, match="older copy of the run's record"):
        start(bought)


def test_the_quality_of_an_honest_record_is_asked_once(stopped):
    """Killed between the release and the word in the book that it is finished; then a backup is put back."""
    forge(stopped, lambda lines: lines[0]["run"].update(rows=5))
    shutil.copytree(stopped / "out", stopped / "backup")
    with mock.patch.object(us.Book, "finish", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        start(stopped)
    assert us.Release.load(stopped / "out" / "stand-in.release").quality is not None
    (stopped / "out").rename(stopped / "handed-over")
    (stopped / "backup").rename(stopped / "out")
    assert start(stopped).status == "resumed"
    assert us.Release.load(stopped / "out" / "stand-in.release").quality is None


def test_the_quality_of_two_copies_of_a_record_is_asked_once(stopped):
    """Both are finished from what was measured, and one is quicker after both have looked into the book."""
    forge(stopped, lambda lines: lines[0]["run"].update(rows=5))
    shutil.copytree(stopped / "out", stopped / "copy")
    original = Independent.finish

    def overtaken(*args, **rest):
        with mock.patch.object(Independent, "finish", original):
            (stopped / "out").rename(stopped / "slow")
            (stopped / "copy").rename(stopped / "out")
            assert start(stopped).status == "resumed"
            (stopped / "out").rename(stopped / "copy")
            (stopped / "slow").rename(stopped / "out")
        return original(*args, **rest)

    with mock.patch.object(Independent, "finish", overtaken):
        assert start(stopped).status == "resumed"
    told = [us.Release.load(stopped / name / "stand-in.release").quality for name in ("copy", "out")]
    assert told[0] is not None
    assert told[1] is None


def test_a_quality_that_was_answered_for_one_fit_is_not_asked_again_for_another(folder):
    """Its charge does not count against the second, of which the receipt does not tell it."""
    write(folder, quality="10%", dataset="people")
    interrupted(folder, us.Release, "save")
    assert "quality" in [charge.what for charge in read_partial(folder / "out" / "stand-in.release.partial").charges]
    forge(folder, lambda lines: lines[0]["run"].update(rows=5))
    assert start(folder).status == "resumed"
    assert us.Release.load(folder / "out" / "stand-in.release").quality is None


def test_how_many_answers_there_were_is_forgotten_with_the_run(stopped, book):
    assert len(list(book.glob("*.answered"))) == 1
    start(stopped)
    assert not list(book.glob("*.answered"))


def test_a_backup_made_before_anything_was_answered_says_what_is_left_to_do(stopped):
    record = stopped / "out" / "stand-in.release.partial"
    early = b"".join(line for line in record.read_bytes().splitlines(True) if not line.startswith(b'{"measurement"'))
    start(stopped)
    (stopped / "out" / "stand-in.release").unlink()
    record.write_bytes(early)
    with pytest.raises(errors.OutputError, match="older copy of the run's record"):
        start(stopped)


def test_going_on_with_another_book_writes_the_run_into_that_one_too(stopped, monkeypatch, tmp_path):
    monkeypatch.setenv("UNDERSTUDY_BOOK", str(tmp_path / "another"))
    assert us.Book().spent("people").runs == 0
    assert start(stopped).status == "resumed"
    assert us.Book().spent("people").runs == 1


def forge(folder, change):
    partial = folder / "out" / "stand-in.release.partial"
    lines = [json.loads(line) for line in partial.read_text().splitlines() if line.strip()]
    change(lines)
    partial.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("key", ["budget", "share", "neighbours"])
def test_a_forged_record_does_not_buy_a_better_answer_than_the_file_pays_for(stopped, key):
    def change(lines):
        run = lines[0]["run"]
        if key == "budget":
            run["receipt"]["budget"]["rho"] = "1000000"
        elif key == "share":
            run["rating"]["share"] = 0.9
        else:
            run["schema"]["understudy"]["rows"] = 60

    forge(stopped, change)
    assert start(stopped).status == "resumed"
    assert us.Release.load(stopped / "out" / "stand-in.release").quality is None


def test_an_honest_record_of_another_version_is_still_asked_about_its_quality(stopped):
    forge(stopped, lambda lines: lines[0]["run"].update(rows=5))
    assert start(stopped).status == "resumed"
    assert us.Release.load(stopped / "out" / "stand-in.release").quality is not None


def test_a_release_names_the_file_of_a_workload_and_not_where_it_is(folder):
    (folder / "w.yaml").write_text("- [a, b]\n")
    write(folder, mechanism="gaussian", workload="w.yaml")
    start(folder)
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert release.settings["workload"] == "w.yaml"
    assert str(folder) not in json.dumps(dict(release.settings))
    assert {bound.clique for bound in release.bounds()} == {("a", "b"), ("c",)}


def test_a_bought_schema_that_protects_others_than_the_declared_one_is_refused(bought):
    def change(lines):
        (schema,) = (line["bought"] for line in lines if "bought" in line)
        schema["understudy"]["rows"] = 600

    forge(bought, change)
    with pytest.raises(errors.OutputError, match="protects others than the declared one"):
        start(bought)


def test_forged_purchases_that_give_back_are_refused(bought):
    def change(lines):
        next(line["charge"] for line in lines if "charge" in line)["rho"] = "-100"

    forge(bought, change)
    with pytest.raises(errors.RunInterrupted, match="no refund"):
        start(bought)


def test_a_run_goes_on_however_its_file_is_called(folder, monkeypatch):
    (folder / "w.yaml").write_text("- [a, b]\n")
    write(folder, mechanism="gaussian", workload="w.yaml", quality="10%")
    monkeypatch.chdir(folder)
    with monkeypatch.context() as patch:
        patch.setattr(PrivateTable, "error", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(errors.RunInterrupted):
            journey.run("run.yaml", "out")
    monkeypatch.chdir("/")
    assert str(folder) not in (folder / "out" / "stand-in.release.partial").read_text()
    assert start(folder).status == "resumed"
    release = us.Release.load(folder / "out" / "stand-in.release")
    assert (release.quality.workload, release.quality.tables, len(release.receipt.charges)) == ("w.yaml", 1, 3)
