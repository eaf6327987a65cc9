"""Python processes that start at once: each is forked from one that has loaded the package and used it.

`forked.py serve SOCKET` is the process that all others are forked from. Whoever connects to the socket hands over a
program, its arguments, folder and environment, and files for its input, output and error, and is told how it ended.
`forked.py understudy ...` and `forked.py python ...` are for shells. Tests of how a process starts do without it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys

SERVER = "UNDERSTUDY_TESTS_SERVER"
"""The environment variable with the path of the socket."""

COMMAND = "from understudy.cli import main; main()"
STANDARD_INPUT = "import sys; exec(compile(sys.stdin.read(), '<stdin>', 'exec'))"
FILE = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def start(
    program: str, arguments: list[str], files: tuple[int, int, int] = (0, 1, 2), **place: object
) -> socket.socket:
    """Start a program, its text, in a process of its own; `wait` takes what is returned."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(os.environ[SERVER])
    order = {"program": program, "arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}  # noqa: PTH109
    text = json.dumps({**order, **place}).encode()
    socket.send_fds(link, [len(text).to_bytes(4, "big")], files)
    link.sendall(text)
    return link


def wait(link: socket.socket) -> int:
    """The exit code of a program, or minus the signal that ended it."""
    with link, link.makefile() as told:
        return int(told.readline())


def serve(path: str) -> None:
    """Start programs until this process is ended."""
    _warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        link, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _supervise(link)
        link.close()


def _warm_up() -> None:
    """Make a release, rows and a report: all modules, compiled loops and templates that it takes are then loaded."""
    import tempfile

    import pandas  # noqa: F401
    import polars  # noqa: F401

    from understudy.cli import main

    with tempfile.TemporaryDirectory() as folder:
        files = {
            "rows.csv": "a,b,c\n" + "0,1,1\n2,1,0\n1,0,0\n" * 30,
            "schema.yaml": "understudy: {privacy_unit: row}\nfields:\n"
            "  - {name: a, type: integer, categories: [0, 1, 2]}\n"
            "  - {name: b, type: integer, constraints: {minimum: 0, maximum: 9}}\n"
            "  - {name: c, type: string, categories: ['0', '1']}\n",
            "run.yaml": "data: rows.csv\nschema: schema.yaml\nbudget: {rho: 1}\nmechanism: mst\n"
            "outputs: {rows: [csv, parquet], report: public, seed: 1}\n",
        }
        for name, text in files.items():
            with open(os.path.join(folder, name), "w") as file:  # noqa: PTH118, PTH123
                file.write(text)
        os.environ["UNDERSTUDY_LEDGER"] = f"{folder}/ledger.db"
        sys.argv = ["understudy", "run", f"{folder}/run.yaml", "-o", f"{folder}/out", "--quiet"]
        with contextlib.suppress(SystemExit):
            main()


def _supervise(link: socket.socket) -> None:
    """Fork the process of a program, wait for it, and tell how it ended."""
    size, files, *_ = socket.recv_fds(link, 4, 3)
    text = b""
    while len(text) < int.from_bytes(size, "big"):
        text += link.recv(1 << 16)
    child = os.fork()
    if child == 0:
        link.close()
        _run(json.loads(text), files)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])  # its files are open here until no trace of it is left
    with contextlib.suppress(BrokenPipeError):
        link.sendall(f"{code}\n".encode())
    os._exit(0)


def _run(order: dict, files: list[int]) -> None:
    """Run a program as Python would, and leave."""
    import atexit
    import traceback
    import warnings

    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    seeded = sys.modules.get("sitecustomize")
    if hasattr(seeded, "start_process"):
        seeded.start_process()
    if "PYTHONWARNINGS" in os.environ:
        warnings.simplefilter(os.environ["PYTHONWARNINGS"])
    sys.argv = order["arguments"]
    code = 0
    try:
        exec(compile(order["program"], "<program>", "exec"), {"__name__": "__main__"})  # noqa: S102
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if isinstance(left.code, str):
            sys.stderr.write(f"{left.code}\n")
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    called, *arguments = sys.argv[1:]
    if called == "serve":
        serve(*arguments)
    elif called == "understudy":
        sys.exit(wait(start(COMMAND, ["understudy", *arguments])))
    elif arguments[0] == "-":
        sys.exit(wait(start(STANDARD_INPUT, arguments)))
    elif arguments[0].endswith(".py"):
        sys.exit(wait(start(FILE, ["python", *arguments])))
    else:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606
