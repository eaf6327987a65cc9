"""What the folders promise: a short facade, mechanisms that only ask the gate, no pickle, quick imports, true pages."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import polars as pl
import pytest

import understudy as us

from .house import find_circles, module_arrows, package_arrows, read_package

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "understudy"
FILES = sorted(SOURCE.rglob("*.py"))
MECHANISM_FILES = sorted((SOURCE / "mechanism").glob("*.py"))

FACADE = [
    "MECHANISMS",
    "Budget",
    "Clique",
    "Domain",
    "Fit",
    "Ledger",
    "Measurement",
    "Mechanism",
    "PrivateTable",
    "Receipt",
    "Release",
    "Schema",
    "Source",
    "Step",
    "errors",
    "resume",
    "synthesize",
    "testing",
]
"""Names that users may rely on from the first version on; the facade may have more, up to thirty."""


PAGE_FOLDERS = ("benchmarks", "docs", "examples")


def names(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported(path: Path) -> set[str]:
    """Modules that a file imports anywhere, also inside functions."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@cache
def called(path: Path) -> set[str]:
    """Plain names that a file calls."""
    return {
        node.func.id for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


# -- the facade --


def test_the_facade_is_listed_short_and_documented():
    assert sorted(us.__all__) == sorted(set(us.__all__))
    assert len(us.__all__) <= 30
    assert set(FACADE) <= set(us.__all__)
    for name in us.__all__:
        thing = getattr(us, name)
        if inspect.isclass(thing) or inspect.isfunction(thing) or inspect.ismodule(thing):
            assert (inspect.getdoc(thing) or "").strip(), f"{name} has no docstring"


def test_the_facade_exports_nothing_by_accident():
    public = {name for name, value in vars(us).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public <= set(us.__all__)


def test_every_public_method_of_the_facade_is_documented():
    for name in us.__all__:
        thing = getattr(us, name)
        if not inspect.isclass(thing):
            continue
        for member, value in vars(thing).items():
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod)):
                assert inspect.getdoc(value), f"{name}.{member} has no docstring"


def test_everything_that_touches_rows_or_noise_states_its_privacy():
    for thing in (us.synthesize, us.PrivateTable, us.PrivateTable.measure, us.PrivateTable.select,
                  us.PrivateTable.dependence, us.Release, us.Source, us.Measurement, us.Mechanism):  # fmt: skip
        assert "**Privacy.**" in (thing.__doc__ or ""), thing


def test_the_error_tree_is_drawn_as_it_is():
    drawn = us.errors.__doc__ or ""
    for name, error in vars(us.errors).items():
        if isinstance(error, type) and issubclass(error, us.errors.UnderstudyError):
            assert re.search(rf"{name} +{error.exit_code} ", drawn), f"{name} with exit code {error.exit_code}"


# -- mechanisms only ask the gate --

FORBIDDEN = ("understudy.accounting", "understudy.gate.noise", "understudy.gate.randomness", "understudy.ledger",
             "understudy.tabulate", "random", "secrets", "opendp", "dp_accounting",
             "logging", "subprocess", "socket", "urllib", "requests", "tempfile", "shutil")  # fmt: skip


PUBLIC_TABLES = {
    "nist_mst.py": {"understudy.tabulate", "understudy.tabulate.Counts", "understudy.tabulate.SparseCounts"}
}
"""Files that count a table which its custodian declares public."""


@pytest.mark.parametrize("path", MECHANISM_FILES, ids=names)
def test_a_mechanism_has_no_noise_no_accounting_no_output(path):
    for module in imported(path) - PUBLIC_TABLES.get(path.name, set()):
        assert not any(module == bad or module.startswith(f"{bad}.") for bad in FORBIDDEN), module
    assert called(path).isdisjoint({"print", "open", "input", "exec", "eval", "compile", "__import__"})
    text = path.read_text(encoding="utf-8")
    for words in (
        "np.random",
        "numpy.random",
        "default_rng",
        "discrete_gaussian",
        "discrete_laplace",
        "write_text",
        "sys.std",
    ):
        assert words not in text, words


@pytest.mark.parametrize("path", MECHANISM_FILES, ids=names)
def test_a_mechanism_reaches_for_nothing_private(path):
    """No underscore attribute of anything but itself: the gate's inside is not a mechanism's business."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            assert owner in ("self", "cls"), f"line {node.lineno}: {owner}.{node.attr}"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "vars"):
            assert ast.unparse(node.args[0]) in ("self", "cls"), f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("path", MECHANISM_FILES, ids=names)
def test_a_mechanism_asks_the_gate_for_what_depends_on_sensitivity_and_the_kind_of_noise(path):
    """It never works them out from the account, the neighbour relation or the kind of budget.

    The contract suite also runs every mechanism on a table that refuses to be asked.
    """
    read = {node.attr for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}
    assert read.isdisjoint({"account", "neighbours", "budget", "pure"})
    assert read.isdisjoint({"marginal_l1", "marginal_l2_squared", "indif"})
    assert read.isdisjoint({"__dict__", "__getattribute__"})
    assert imported(path).isdisjoint({"inspect", "operator"})


def test_only_the_gate_reads_rows():
    """Sources count cells; the one method that gives coded rows is called in the gate, and in tests of the gate."""
    for path in FILES:
        calls = (node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
        if "codes" in {call.attr for call in calls if isinstance(call, ast.Attribute)}:
            assert path.relative_to(SOURCE).parts[0] in ("gate", "source", "testing"), path


# -- nothing runs by loading, nothing is printed, nothing is global --


@pytest.mark.parametrize("path", FILES, ids=names)
def test_no_pickle_no_eval_no_network(path):
    bad = {
        "pickle",
        "cPickle",
        "dill",
        "marshal",
        "shelve",
        "joblib",
        "cloudpickle",
        "socket",
        "urllib.request",
        "requests",
    }
    listens = {"socket"} if path == SOURCE / "studio" / "server.py" else set()
    assert imported(path).isdisjoint(bad - listens)
    assert called(path).isdisjoint({"eval", "exec"})
    text = path.read_text(encoding="utf-8")
    assert "allow_pickle=True" not in text
    assert "yaml.Loader" not in text
    assert "unsafe_load" not in text


@pytest.mark.parametrize("path", [p for p in FILES if "cli" not in p.parts], ids=names)
def test_nothing_below_the_command_line_prints_or_logs(path):
    assert "print" not in called(path)
    assert imported(path).isdisjoint({"logging"})


@pytest.mark.parametrize("path", FILES, ids=names)
def test_no_global_random_state(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "random":
            allowed = {"default_rng", "Generator", "BitGenerator", "SeedSequence", "PCG64"}
            watching = path.name == "contract.py" and node.attr == "get_state"
            assert node.attr in allowed or watching, f"np.random.{node.attr} in line {node.lineno}"


@pytest.mark.parametrize("path", FILES, ids=names)
def test_every_file_has_a_docstring(path):
    assert ast.get_docstring(tree(path)) is not None or path.stat().st_size == 0


# -- imports --


def test_no_packages_or_modules_import_each_other_in_a_circle_not_even_inside_functions():
    assert find_circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]
    modules = read_package()
    assert find_circles(package_arrows(modules)) == []
    assert find_circles(module_arrows(modules)) == []


def test_circles_are_looked_for_in_the_imports_that_run(tmp_path):
    (tmp_path / "one").mkdir()
    for name, text in {
        "__init__.py": "",
        "one/__init__.py": "",
        "one/mine.py": "def later():\n    from understudy.two import thing\n",
        "two.py": "import typing\nif typing.TYPE_CHECKING:\n    from understudy.three import other\n",
        "three.py": "from understudy import two\nfrom understudy.one import mine\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert package_arrows(read_package(tmp_path)) == {"one": {"two"}, "two": set(), "three": {"one", "two"}}


def test_importing_is_light():
    code = "import sys, understudy; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numba", "scipy", "pandas", "polars", "pyarrow", "dp_accounting", "opendp", "matplotlib", "sklearn"}
    heavy |= {"pytest", "hypothesis", "statsmodels", "duckdb", "torch"}
    assert heavy.isdisjoint(loaded)


def loaded_by(*arguments):
    """Every module that one command loads."""
    code = (
        f"import sys\nfrom understudy.cli import main\nsys.argv = {['understudy', *arguments]!r}\n"
        "try:\n    main()\nfinally:\n    print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["synthesize", "-h"], ["schema", "--help"], ["sample", "--wrong"]], ids=str
)
def test_help_version_and_wrong_usage_are_answered_without_the_heavy_parts(arguments):
    loaded = loaded_by(*arguments)
    assert "understudy.cli.commands" in loaded
    heavy = {"numpy", "yaml", "pyarrow", "pandas", "numba", "scipy", "duckdb", "cryptography", "rich"}
    assert heavy.isdisjoint(loaded)
    assert {"understudy.schema", "understudy.gate", "understudy.release"}.isdisjoint(loaded)


def test_a_schemas_commands_load_nothing_of_noise_and_models(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("sex\nF\nM\n")
    loaded = loaded_by("schema", "draft", str(table), "-o", str(tmp_path / "t.yaml"), "--unit", "row")
    assert "understudy.schema.draft" in loaded
    others = ("accounting", "gate", "model", "mechanism", "release", "planning", "metric")
    assert {"numba", "duckdb", "cryptography", *(f"understudy.{name}" for name in others)}.isdisjoint(loaded)


@pytest.mark.parametrize("mechanism", ["mst", "aim"])
def test_a_release_is_opened_with_a_fraction_of_the_code(mechanism, tmp_path):
    fields = [
        {"name": "sex", "type": "string", "categories": ["F", "M"]},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 99}, "understudy": {"bins": 10}},
    ]
    schema = us.Schema.from_dict({"fields": fields, "understudy": {"privacy_unit": "row"}})
    rows, release = pl.DataFrame({"sex": ["F", "M"] * 30, "age": list(range(20, 80))}), tmp_path / "t.release"
    us.synthesize(rows, schema, epsilon=1.0, delta=1e-9, mechanism=mechanism, output=release, dataset="people")
    heavy = {"numba", "scipy", "pandas", "polars"}
    for command, unneeded in ((("answer", release, "sex=F, age=30..40"), heavy), (("sample", release), set())):
        loaded = loaded_by(*map(str, command))
        assert f"understudy.release.{'answer' if unneeded else 'rows'}" in loaded
        assert len({name for name in loaded if name.partition(".")[0] == "understudy"}) < 70
        assert loaded.isdisjoint({*unneeded, "sqlalchemy", "rich", "duckdb"})
        private = ("gate", "source", "discovery", "ledger", "mechanism", "run")
        assert loaded.isdisjoint(f"understudy.{name}" for name in private)


def test_benchmarks_and_examples_import_what_exists():
    """They take minutes to run, so most are not run here: a name that moved would be noticed late."""
    found = 0
    for path in [*sorted((ROOT / "benchmarks").glob("*.py")), *sorted((ROOT / "examples").rglob("*.py"))]:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "understudy":
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    found += 1
                    known = hasattr(module, alias.name) or importlib.util.find_spec(f"{node.module}.{alias.name}")
                    assert known, f"{path.name}: {node.module}.{alias.name}"
    assert found > 50


# -- pages that cannot be wrong --


def test_the_reference_page_is_the_commands_own_help(call):
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert call("reference") == (0, page, ""), "run `make docs`"


def test_the_readmes_examples_run(tmp_path):
    """Every python block of the README, one after the other, in a fresh process and folder."""
    pytest.importorskip("statsmodels")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", "\n".join(blocks)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_readmes_commands_are_commands(call):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line.split() for line in re.findall(r"^understudy .*$", text, re.MULTILINE)]
    assert lines
    for words in lines:
        command = words[1:3] if words[1] in ("schema", "ledger") else words[1:2]
        code, shown, _ = call(*command, "--help")
        assert code == 0
        for option in (word for word in words if word.startswith("-")):
            assert option in shown, f"{' '.join(command)} has no {option}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout")
def test_no_local_paths_in_the_repository():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    local = re.compile(r"/(work|home|root|Users)/[a-z]+/[a-z]")
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".yaml", ".yml", ".txt", "") and path.is_file():
            text = path.read_text(encoding="utf-8", errors="ignore")
            found = local.search(text)
            assert found is None, f"{name}: {found and found.group()}"


# -- one place each for what is easily done wrong --


def calls(path: Path, *functions: tuple[str, str]) -> list[int]:
    """Lines where a file calls one of these functions, unless on text that it wrote itself."""
    return [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr) in functions
        and not (node.args and "dumps" in ast.dump(node.args[0]))
    ]


OWN_RECORDS: set[str] = set()
"""Files that read only what this package wrote into its own folder, line by line."""


@pytest.mark.parametrize("path", [p for p in FILES if p != SOURCE / "yaml_json.py"], ids=names)
def test_json_and_yaml_are_read_with_limits(path):
    parsers = [("json", "loads"), ("json", "load"), ("yaml", "load"), ("yaml", "safe_load"), ("yaml", "compose")]
    if names(path) not in OWN_RECORDS:
        assert not calls(path, *parsers), "read it with `yaml_json.read_json` or `yaml_json.read_yaml`"


@pytest.mark.parametrize("path", [p for p in FILES if p != SOURCE / "files.py"], ids=names)
def test_files_that_appear_complete_are_written_in_one_place(path):
    """A draft in the same folder is renamed in the end: its own name must be one that no link can have."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"getpid\(\)[^\n]*tmp|with_(name|suffix)\([^\n]*tmp|os\.(replace|rename)\(", text), (
        "use `files.write_atomically`"
    )


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=lambda page: page.stem)
def test_a_decision_page_has_the_four_headings_and_fits_on_a_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Decision", "Why", "Rejected", "Consequences"]
    assert len(text.splitlines()) <= 80
    assert len(text.split()) <= 760


def test_the_glossary_has_at_most_forty_words_and_all_are_used():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([a-z ]+) \|", page.split("\n## Glossary\n")[1].split("\n## ")[0], re.MULTILINE)[1:]
    assert words == sorted(words)
    assert 30 <= len(words) <= 40
    text = "\n".join(path.read_text(encoding="utf-8") for path in FILES)
    for word in words:
        assert len(re.findall(rf"\b{word}", text, re.IGNORECASE)) > 5, word


def test_a_class_name_stands_for_one_class():
    """One word, one concept; every metric has its own `Settings`."""
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(names(path))
    assert {name: found for name, found in places.items() if len(found) > 1 and name != "Settings"} == {}


PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in PAGE_FOLDERS for page in (ROOT / folder).rglob("*.md"))])


@pytest.mark.parametrize("page", [page for page in PAGES if "benchmarks" not in page.parts], ids=names)
def test_files_that_a_page_names_exist(page: Path) -> None:
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`", page.read_text(encoding="utf-8")):
        assert (SOURCE / name).exists() or (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_architecture_page_describes_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("\n## Packages\n")[1]
    for folder in SOURCE.iterdir():
        if (folder / "__init__.py").exists():
            assert f"`{folder.name}/`" in page, folder.name
