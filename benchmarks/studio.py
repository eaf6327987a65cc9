"""How quick the studio is: pages while a release runs, fifty clients at once, 500 columns, an upload of 5 GB.

`python benchmarks/studio.py pages | columns | upload [GB] [--precedence]` starts a studio on the loopback address, in a
process of its own, and asks it over HTTP. Every part is bounded in requests and in time. Results are in
`benchmarks/studio.md`. `--precedence` (Linux, as root) schedules all of it before other work on the machine.
"""

from __future__ import annotations

import asyncio
import csv
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import psutil

from understudy.studio.jobs import LOWERED

ROWS, COLUMNS, CLIENTS, REQUESTS = 20_000, 40, 50, 20
_PRECEDENCE = -20


class Client:
    """A browser without a screen: one connection, a cookie and the CSRF token."""

    def __init__(self, port: int, cookie: str = "", csrf: str = "") -> None:
        self.port, self.cookie, self.csrf = port, cookie, csrf
        self._connection = HTTPConnection("127.0.0.1", port, timeout=600)

    def again(self) -> Client:
        """Another connection of the same session."""
        return Client(self.port, self.cookie, self.csrf)

    def get(self, path: str) -> tuple[int, str, dict[str, str]]:
        """Read a page: status, text and headers."""
        self._connection.request("GET", path, headers={"Cookie": self.cookie})
        return self._read()

    def post(self, path: str, **fields: Any) -> tuple[int, str, dict[str, str]]:
        """Send a form."""
        body = urlencode({"csrf": self.csrf, **fields})
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": self.cookie}
        self._connection.request("POST", path, body, kind)
        return self._read()

    def upload(self, name: str, size: int, line: bytes) -> tuple[int, str, dict[str, str]]:
        """Send a made-up table of `size` bytes as a stream; it is never held as a whole."""
        head = f'--xyz\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{self.csrf}\r\n'
        head += f'--xyz\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        tail, block = b"\r\n--xyz--\r\n", line * (1_000_000 // len(line))
        count = size // len(block)

        def parts() -> Iterator[bytes]:
            yield head.encode()
            for _ in range(count):
                yield block
            yield tail

        headers = {"Cookie": self.cookie, "Content-Type": "multipart/form-data; boundary=xyz"}
        headers["Content-Length"] = str(len(head) + count * len(block) + len(tail))
        self._connection.request("POST", "/upload", parts(), headers)
        return self._read()

    def _read(self) -> tuple[int, str, dict[str, str]]:
        answer = self._connection.getresponse()
        return answer.status, answer.read().decode(), {key.lower(): value for key, value in answer.getheaders()}


@contextmanager
def studio(folder: Path) -> Iterator[tuple[Client, psutil.Process]]:
    """A studio in a process of its own, and a client that is signed in."""
    command = [sys.executable, "-m", "understudy", "studio", "--no-browser", "--folder", str(folder / "studio")]
    command += ["--ledger", str(folder / "ledger.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"localhost:(\d+)(/launch\S+)", server.stdout.readline())
            assert found is not None
            client = Client(int(found[1]))
            _, _, headers = client.get(found[2])
            client.cookie = headers["set-cookie"].partition(";")[0]
            token = re.search(r'name="csrf" value="([^"]+)"', client.get("/")[1])
            assert token is not None
            client.csrf = token[1]
            yield client, psutil.Process(server.pid)
        finally:
            server.terminate()


def give_precedence(process: int | str, nice: int) -> None:
    """With --precedence: schedule the session of a process before other work on the machine (Linux, as root)."""
    if "--precedence" in sys.argv:
        Path(f"/proc/{process}/autogroup").write_text(str(nice))


def write_people(path: Path) -> Path:
    draw = random.Random(1)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([f"c{number}" for number in range(COLUMNS)])
        for _ in range(ROWS):  # every column depends on its neighbours, so that there is much to measure
            step = [draw.choice((0, 0, 0, 1, 9)) for _ in range(COLUMNS)]
            rows.writerow([sum(step[: place + 1]) % 10 for place in range(COLUMNS)])
    return path


def wait_for(client: Client, path: str, words: str) -> None:
    while words not in client.get(path)[1]:
        time.sleep(0.2)


@contextmanager
def measured(name: str, server: psutil.Process, folder: Path | None = None) -> Iterator[list[float]]:
    """Print the seconds that are added to the list, and the processor time of the server for each of them.

    With a folder also the share of a core that the release in it used meanwhile; it must not have ended.
    """
    seconds: list[float] = []
    job = None if folder is None else psutil.Process(read_job(folder)["process"])
    began, used, computed = time.perf_counter(), processor_seconds(server), processor_seconds(job)
    yield seconds
    passed, used = time.perf_counter() - began, processor_seconds(server) - used
    if folder is not None:
        assert read_job(folder)["state"] == "running"
        name += f", while a release computes with {(processor_seconds(job) - computed) / passed:.2f} of a core"
    p50, p95 = (1000 * np.quantile(seconds, share) for share in (0.5, 0.95))
    print(
        f"{name}: {len(seconds)} reads, median {p50:.0f} ms, p95 {p95:.0f} ms, most {1000 * max(seconds):.0f} ms; ",
        end="",
    )
    print(f"{1000 * used / len(seconds):.1f} ms of the processor each, {len(seconds) / passed:.0f} a second, ", end="")
    print(f"load {psutil.getloadavg()[0]:.0f}")


def processor_seconds(process: psutil.Process | None) -> float:
    return 0.0 if process is None else sum(process.cpu_times()[:2])


def pages() -> None:
    """Read pages one after the other and by fifty clients at once, while a release of 40 columns is made.

    AIM takes minutes for 40 columns, so the release computes through every measurement; it is cancelled in the end.
    """
    with tempfile.TemporaryDirectory() as name, studio(Path(name)) as (client, server):
        table = write_people(Path(name) / "people.csv")
        _, _, headers = client.post("/begin", place=str(table))
        base = headers["location"].removesuffix("/table")
        client.post(f"{base}/draft", how="draft")
        wait_for(client, f"{base}/columns", 'id="accept"')
        version = read_version(client, base)
        client.post(f"{base}/columns", unit="row", version=version)
        budget = {"people": 20000, "epsilon": 10, "mechanism": "aim", "version": version + 1}
        status, page, _ = client.post(f"{base}/budget", **budget)
        assert status == 303, page
        paths = ["/", "/ledger", *(f"{base}/{page}" for page in ("table", "columns", "budget", "release", "progress"))]
        client.post(f"{base}/release")
        while read_job(Path(name))["stage"] not in ("measure", "estimate", "select"):
            time.sleep(0.2)
        give_precedence(read_job(Path(name))["process"], _PRECEDENCE + LOWERED)
        client = client.again()  # the studio closes a connection that is silent
        with measured("one client", server, Path(name)) as seconds:
            while len(seconds) < 200:
                seconds += [timed(client, path) for path in paths]
        for pause in (1.0, 0.5, 0.0):
            words = f"reading a page every {pause:g} s" if pause else "reading without a pause"
            with measured(f"{CLIENTS} clients at once, each {words}", server, Path(name)) as seconds:
                asyncio.run(visit_all(client, paths, pause, seconds))
        client.again().post(f"{base}/cancel")


async def visit_all(client: Client, paths: list[str], pause: float, seconds: list[float]) -> None:
    """Read pages with all clients at once."""
    await asyncio.gather(*(visit(client, paths, number, pause, seconds) for number in range(CLIENTS)))


async def visit(client: Client, paths: list[str], number: int, pause: float, seconds: list[float]) -> None:
    """Read some pages as another browser would, on a connection that stays open."""
    await asyncio.sleep(pause * number / CLIENTS)
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    for turn in range(REQUESTS):
        path, began = paths[(number + turn) % len(paths)], time.perf_counter()
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\nCookie: {client.cookie}\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert length is not None
        await reader.readexactly(int(length[1]))
        seconds.append(time.perf_counter() - began)
        await asyncio.sleep(max(0.0, pause - seconds[-1]))
    writer.close()
    await writer.wait_closed()


def read_version(client: Client, base: str) -> int:
    found = re.search(r'id="version" name="version" value="(\d+)"', client.get(f"{base}/columns")[1])
    assert found is not None
    return int(found[1])


def read_job(folder: Path) -> dict[str, Any]:
    (file,) = (folder / "studio").glob("*/job.json")
    return dict(json.loads(file.read_text()))


def timed(client: Client, path: str) -> float:
    began = time.perf_counter()
    status, _, _ = client.get(path)
    assert status == 200 or path.endswith(("/release", "/progress")), (path, status)  # these lead on at the end
    return time.perf_counter() - began


def columns() -> None:
    """A schema page of 500 columns, each with 30 values."""
    with tempfile.TemporaryDirectory() as name, studio(Path(name)) as (client, server):
        table = Path(name) / "wide.csv"
        values = [f"value {number}" for number in range(30)]
        with table.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([f"question {number}" for number in range(500)])
            rows.writerows([values[(row + column) % 30] for column in range(500)] for row in range(900))
        _, _, headers = client.post("/begin", place=str(table))
        base = headers["location"].removesuffix("/table")
        client.post(f"{base}/draft", how="draft")
        wait_for(client, f"{base}/columns", 'id="accept"')
        page = client.get(f"{base}/columns")[1]
        print(f"500 columns: {page.count('<li id=')} shown, {len(page) / 1000:.0f} kB")
        with measured("the page of 500 columns", server) as seconds:
            seconds += [timed(client, f"{base}/columns") for _ in range(30)]
        with measured("the form of one column", server) as seconds:
            seconds += [timed(client, f"{base}/columns/{number}") for number in range(30)]
        with measured("saving one column", server) as seconds:
            for number in range(5):
                began = time.perf_counter()
                form = {"kind": "categorical", "values": "a\nb", "version": read_version(client, base)}
                assert client.post(f"{base}/columns/{number}", **form)[0] == 303
                seconds.append(time.perf_counter() - began)


def upload(gigabytes: float) -> None:
    """Upload a made-up table; the memory of the server is looked at all the while."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name, studio(Path(name)) as (client, server):
        before, most, done = server.memory_info().rss, 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not done.wait(0.05):
                most = max(most, server.memory_info().rss)

        watcher = threading.Thread(target=watch)
        watcher.start()
        began, used = time.perf_counter(), sum(server.cpu_times()[:2])
        status, page, _ = client.again().upload("large.csv", int(gigabytes * 1e9), b"12345,abcdefghij,2024-01-31,F\n")
        passed, used = time.perf_counter() - began, sum(server.cpu_times()[:2]) - used
        done.set()
        watcher.join()
        (stored,) = (Path(name) / "studio").glob("*/table.csv")
        print(
            f"upload of {stored.stat().st_size / 1e9:.2f} GB: status {status}, {passed:.0f} s, {used:.0f} processor "
            f"seconds, memory of the server {before / 2**20:.0f} MiB before, {most / 2**20:.0f} MiB at most"
        )
        assert status == 303, page


if __name__ == "__main__":
    give_precedence("self", _PRECEDENCE)
    what = sys.argv[1] if len(sys.argv) > 1 else "pages"
    if what == "upload":
        upload(float(sys.argv[2]) if len(sys.argv) > 2 else 4.99)
    else:
        {"pages": pages, "columns": columns}[what]()
