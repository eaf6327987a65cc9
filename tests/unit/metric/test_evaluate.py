"""`evaluate` in Python and on the command line."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import understudy as us
from understudy.cli import app
from understudy.errors import InputError, SettingError

from .conftest import table_of


@pytest.fixture
def files(tmp_path: Path, people: Any, real: Any) -> dict[str, str]:
    people.save(tmp_path / "people.schema.yaml")
    real.to_csv(tmp_path / "real.csv", index=False)
    table_of(300, 2).to_csv(tmp_path / "made.csv", index=False)
    return {name: str(tmp_path / f"{name}.csv") for name in ("real", "made")} | {
        "schema": str(tmp_path / "people.schema.yaml"),
        "out": str(tmp_path / "scores.json"),
    }


def test_a_tidy_frame_of_the_same_kind(real: Any, people: Any) -> None:
    made = table_of(500, 2)
    frame = us.evaluate(real, made, people, metrics=["workload_error", "mgd"], mgd={"tolerance": 5})
    assert list(frame.columns) == ["metric", "kind", "name", "value", "better", "best", "note"]
    scores = frame[frame["kind"] == "score"]
    assert scores["metric"].tolist() == ["workload_error", "mgd"]
    assert frame["value"].notna().all()
    same = us.evaluate(
        pl.from_pandas(real), pl.from_pandas(made), people, metrics=["workload_error", "mgd"], mgd={"tolerance": 5}
    )
    assert isinstance(same, pl.DataFrame)
    assert same["value"].to_list() == frame["value"].tolist()


def test_paths_and_weight(files: dict[str, str]) -> None:
    frame = us.evaluate(
        files["real"], files["made"], files["schema"], metrics=["workload_error"], weight="wage"
    ).to_pylist()
    assert {line["name"] for line in frame if line["kind"] == "total"} == {"real", "synthetic"}
    with pytest.raises(SettingError, match="weight belongs"):
        us.evaluate(files["real"], files["made"], files["schema"], metrics=["mgd"], weight="wage")


def test_missing_columns_are_named(real: Any, people: Any) -> None:
    with pytest.raises(us.errors.SchemaError, match="'wage'"):
        us.evaluate(real, real.drop(columns=["wage"]), people)
    frame = us.evaluate(real, real.drop(columns=["wage"]), people, metrics=["nist_density"])
    assert 0 < frame["value"].iloc[0] < 1e6
    with pytest.raises(InputError, match="no row"):
        us.evaluate(real, real.head(0), people)


def test_the_command_line(files: dict[str, str]) -> None:
    arguments = [
        "evaluate",
        files["real"],
        files["made"],
        "-s",
        files["schema"],
        "-m",
        "k_marginal",
        "-m",
        "nist_income",
    ]
    arguments += [f"--set=nist_income.{pair}" for pair in ("group=city", "binary=sex", "amount=wage")]
    result = CliRunner().invoke(app, [*arguments, "-o", files["out"]])
    assert result.exit_code == 0
    assert "For the custodian only" in result.output
    assert "higher is better" in result.output
    path = Path(files["out"]).with_name("scores.custodian-only.json")
    assert f"Scores: {path}" in result.output.replace("\n", " ").replace("Scores:  ", "Scores: ")
    assert not Path(files["out"]).exists()
    data = json.loads(path.read_text())
    assert list(data["scores"]) == ["k_marginal", "nist_income"]
    assert "does not cover" in data["custodian_only"]
    shown = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(shown.output) == data


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--set", "mgd"], "METRIC.NAME=VALUE"),
        (["-m", "nope"], "choices"),
        (["--set", "mgd.x=1"], "no setting"),
        (["--set", "mgd.x=2020-99-99"], "--set mgd.x: the value cannot be read"),
    ],
)
def test_wrong_options(files: dict[str, str], extra: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["evaluate", files["real"], files["made"], "-s", files["schema"], *extra])
    assert result.exit_code == 3
    assert words in result.stderr


def test_sampled_csv_means_the_same_as_sampled_frames(tmp_path: Path) -> None:
    import pandas as pd

    from understudy.schema.categorical import Boolean

    schema = us.Schema((Boolean(name="smoker", true_values=("YES",), false_values=("NO",)),))
    real = pd.DataFrame({"smoker": ["YES"] * 300 + ["NO"] * 700})
    with us.testing.insecure(1):
        us.synthesize(real, schema, epsilon=10.0, delta=1e-6, output=tmp_path / "r.release")
    CliRunner().invoke(app, ["sample", str(tmp_path / "r.release"), "-o", str(tmp_path / "rows.csv")])
    frame = us.evaluate(real, tmp_path / "rows.csv", schema, metrics=["k_marginal"])
    assert frame["value"].iloc[0] > 980


def test_compiling_is_reported(real: Any, people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer's first report compiles loops for seconds."""
    from contextlib import contextmanager

    from understudy.metric import registry

    @contextmanager
    def compile_now(progress: Any) -> Any:
        progress(us.Step("compile", None, "compiling, once on this machine"))
        yield

    monkeypatch.setattr(registry, "report_compiling", compile_now)
    steps: list[us.Step] = []
    us.evaluate(real, table_of(300, 2), people, metrics=["workload_error"], progress=steps.append)
    assert [step.stage for step in steps] == ["compile", "evaluate"]
