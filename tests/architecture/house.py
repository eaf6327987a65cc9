"""Print the size and the structure of the package: `make house`.

The numbers are facts, not targets. The exit code is 1 where packages or modules import each other in a circle; imports
inside functions count, imports for type checkers alone do not.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "understudy"
RUN = """
import json, sys
import understudy as us
called = set()

def note(frame, event, argument):
    if frame.f_code.co_flags & 1:  # a function, not the body of a module or of a class
        called.add(frame.f_globals.get("__name__", ""))

sys.setprofile(note)
schema = us.Schema.from_domain({"a": 3, "b": 2, "c": 4})
rows = __import__("polars").DataFrame({"a": [0, 1, 2] * 40, "b": [0, 1, 1] * 40, "c": [0, 3, 2] * 40})
us.synthesize(rows, schema, epsilon=1.0, delta=1e-9, mechanism="mst", output=sys.argv[1], dataset="house")
sys.setprofile(None)
print(json.dumps(sorted(called)))
"""
ANSWER = """
import json, sys
from understudy.cli import main
sys.argv = ["understudy", "answer", sys.argv[1], "a=0"]
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)))
"""


@dataclass(frozen=True)
class Module:
    """A module of the package: its dotted name without ``understudy.``, its text, and the modules that it imports."""

    name: str
    lines: int
    functions: tuple[tuple[int, str], ...]
    imports: frozenset[str]

    @property
    def package(self) -> str:
        """The folder, or the single module, below `understudy`."""
        return self.name.partition(".")[0]


def read_package(source: Path = SOURCE) -> list[Module]:
    """Every module, without the facade, which names all of them."""
    paths: dict[str, Path] = {}
    for path in sorted(source.rglob("*.py")):
        paths[".".join(path.relative_to(source).with_suffix("").parts).removesuffix("__init__").rstrip(".")] = path
    return [read_module(name, path, set(paths)) for name, path in paths.items() if name]


def read_module(name: str, path: Path, known: set[str]) -> Module:
    """Parse one file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    unseen = {child for node in ast.walk(tree) if is_type_checking(node) for child in ast.walk(node)}
    imports: set[str] = set()
    for node in ast.walk(tree):
        if node in unseen:
            continue
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                imports.add(inner if inner.removeprefix("understudy.") in known else node.module)
    ours = {found.removeprefix("understudy.") for found in imports if found.startswith("understudy.")}
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = tuple((count_lines(n), f"{name}.{n.name}") for n in functions)
    return Module(name, text.count("\n"), lengths, frozenset(ours & known - {name}))


def is_listed(name: str, importer: str) -> bool:
    """Whether one module lists all modules of its kind: mechanisms, metrics, commands, the content of a package."""
    return importer in ("mechanism.registry", "metric.registry", "cli.commands", name.rpartition(".")[0])


def count_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function's code, without its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def is_type_checking(node: ast.AST) -> bool:
    """Whether a statement is for type checkers alone."""
    return isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING"


def module_arrows(modules: list[Module]) -> dict[str, set[str]]:
    """By module, the modules that it imports."""
    return {module.name: set(module.imports) for module in modules}


def package_arrows(modules: list[Module]) -> dict[str, set[str]]:
    """By package, the packages that it imports."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        arrows[module.package] |= {found.partition(".")[0] for found in module.imports} - {module.package}
    return dict(arrows)


def find_circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Sets of packages, or of modules, that reach each other."""
    reached = {name: set(found) for name, found in arrows.items()}
    grown = True
    while grown:
        grown = False
        for found in reached.values():
            more = {further for name in found for further in reached.get(name, ())} - found
            found |= more
            grown |= bool(more)
    circles = {frozenset(other for other in reached[name] if name in reached.get(other, ())) for name in arrows}
    return [set(circle) for circle in circles if circle]


def run_python(code: str, *arguments: str) -> list[str]:
    """Run a program in a process of its own; the modules of ours in the JSON list that it prints last."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return [name for name in json.loads(done.stdout.splitlines()[-1]) if name.partition(".")[0] == "understudy"]


def main() -> int:
    """Print everything; 1 where packages or modules import each other in a circle."""
    modules = read_package()
    importers = {m.name: [other.name for other in modules if m.name in other.imports] for m in modules}
    alone = sorted((name, found[0]) for name, found in importers.items() if len(found) == 1)
    single = [f"{name} <- {importer}" for name, importer in alone if not is_listed(name, importer)]
    print(f"{len(modules)} files and the facade, {sum(module.lines for module in modules):,} lines")
    print(f"\n{len(alone)} modules with a single importer, {len(alone) - len(single)} of them in a list of their kind:")
    print(*(f"  {line}" for line in single), sep="\n")
    arrows = package_arrows(modules)
    print(f"\n{len(arrows)} packages and single modules, and what they import:")
    for name, found in sorted(arrows.items()):
        print(f"  {name} -> {' '.join(sorted(found)) or 'nothing'}")
    circles = [*find_circles(arrows), *find_circles(module_arrows(modules))]
    for circle in circles:
        print(f"  in a circle: {' '.join(sorted(circle))}")
    functions = sorted((found for module in modules for found in module.functions), reverse=True)
    print(
        "\nlongest functions, in lines of code without signature and docstring:",
        *(f"{lines} {name}" for lines, name in functions[:10]),
        sep="\n  ",
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNDERSTUDY_LEDGER"] = f"{folder}/ledger.db"
        path = f"{folder}/house.release"
        print(f"\na plain synthesize runs code of {len(run_python(RUN, path))} modules")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        loaded = run_python(ANSWER, path)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"understudy answer loads {len(loaded)} modules and takes {seconds:.2f} s of processor time")
    return 1 if circles else 0


if __name__ == "__main__":
    sys.exit(main())
