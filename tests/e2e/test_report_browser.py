"""The report in a real browser: no error on the console, no request, every chart drawn, printed to paper.

Chromium is driven over its own pipe, so nothing but the browser is needed.
"""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import understudy as us
from understudy.report import custodian_report, public_report
from understudy.schema.categorical import Categorical
from understudy.schema.numeric import Numeric
from understudy.schema.temporal import Temporal

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-pipe",
)
MEASURE = """
JSON.stringify({
  charts: [...document.querySelectorAll('.drawn svg.chart')].map(s => {
    const box = s.getBoundingClientRect();
    const marks = [...s.querySelectorAll('rect,circle,path,polyline,line')].filter(m => {
      const b = m.getBoundingClientRect(); return b.width + b.height > 0; });
    return {width: box.width, height: box.height, marks: marks.length, name: s.getAttribute('aria-label')};
  }),
  figures: document.querySelectorAll('.drawn').length,
  cut: [...document.querySelectorAll('.broad > .wide')].filter(e => e.scrollWidth > e.clientWidth + 1).length,
  spill: document.documentElement.scrollWidth - window.innerWidth,
  focusable: [...document.querySelectorAll('a[href],summary,[tabindex]')].filter(e => e.tabIndex >= 0).length,
  title: document.title
})
"""


class Browser:
    """A headless Chromium and one page in it, spoken to in the DevTools protocol over two pipes."""

    def __init__(self, program: str, folder: str) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def place() -> None:
            os.dup2(to_browser, 3)
            os.dup2(from_browser, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=place,  # noqa: PLW1509 - the pipes must be descriptors 3 and 4 of the browser
            pass_fds=(3, 4, to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser went away"
            self._buffer += piece
        head, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(head)
        return message

    def open(self, path: Path, width: int) -> dict[str, Any]:
        self.events.clear()
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        loader = self.ask("Page.navigate", url=path.as_uri())["loaderId"]
        while not any(self._is_loaded(event, loader) for event in self.events):
            self.events.append(self._next())
        found: dict[str, Any] = json.loads(self.ask("Runtime.evaluate", expression=MEASURE)["result"]["value"])
        return found

    @staticmethod
    def _is_loaded(event: dict[str, Any], loader: str) -> bool:
        """Whether this page is there: an earlier one may be late to say so on a busy machine."""
        told = event.get("params", {})
        return event.get("method") == "Page.lifecycleEvent" and (told["loaderId"], told["name"]) == (loader, "load")

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        message = "no chromium to open the report with"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        running = Browser(program, folder)
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    schema = us.Schema(
        (
            Categorical(name="town", values=tuple(f"town number {i}" for i in range(30))),
            Numeric(name="age", minimum=0, maximum=99, bins=25),
            Categorical(name="a column with quite a long name", values=("yes", "no")),
            Temporal(name="admitted", kind="date", minimum="2019-01-01", maximum="2022-12-31", bins=20),
        ),
        title="People",
    )
    real = pd.DataFrame(
        {
            "town": [f"town number {i}" for i in rng.integers(0, 30, 400)],
            "age": rng.integers(0, 99, 400),
            "a column with quite a long name": rng.choice(["yes", "no"], 400),
            "admitted": np.datetime64("2019-01-01") + rng.integers(0, 1400, 400),
        }
    )
    folder = tmp_path_factory.mktemp("reports")
    with us.testing.insecure(1):
        release = us.synthesize(
            real, schema, epsilon=2.0, delta=1e-6, mechanism="mst", output=folder / "people.release"
        )
    quick = {"pmse": {"models": ["logistic"]}, "specks": {"models": ["logistic"]}, "ml_efficacy": {"models": ["tree"]}}
    quick["pmse_ratio"] = {"models": ["logistic"]}
    made = {"public": public_report(release), "custodian": custodian_report(release, real, settings=quick)}
    paths = {kind: folder / f"{kind}.html" for kind in made}
    for kind, page in made.items():
        paths[kind].write_text(page, encoding="utf-8")
    return paths


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", ["public", "custodian"])
def test_it_is_drawn_without_a_word_on_the_console(
    browser: Browser, pages: dict[str, Path], kind: str, width: int
) -> None:
    found = browser.open(pages[kind], width)
    said = [event for event in browser.events if event.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled")]
    thrown = [event for event in browser.events if event.get("method") == "Runtime.exceptionThrown"]
    assert not said
    assert not thrown
    asked = [e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [pages[kind].as_uri()]
    charts = 5 + (1 if kind == "public" else 2 + 12)  # columns, associations, the model, and the scores' scales
    assert len(found["charts"]) == found["figures"] == charts
    assert all(chart["width"] > 100 and chart["height"] > 20 and chart["marks"] >= 2 for chart in found["charts"])
    assert found["spill"] <= 0  # nothing sticks out sideways, on a phone neither
    assert found["cut"] == 0 or width < 1000  # wide tables have a scroll bar on a phone alone
    assert found["focusable"] > 10


@pytest.mark.parametrize("kind", ["public", "custodian"])
def test_it_prints(browser: Browser, pages: dict[str, Path], kind: str, tmp_path: Path) -> None:
    browser.open(pages[kind], 1280)
    printed = base64.b64decode(browser.ask("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"])
    assert printed.startswith(b"%PDF")
    assert printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") + printed.count(b"/Type /Page/") >= 2


PAIRS = """
(() => {
  const box = document.querySelector('#marginals ~ .list'), search = box.previousElementSibling;
  const shown = () => [...box.querySelectorAll('tbody tr')].filter(r => !r.hidden).map(r => r.cells[CELL].textContent);
  DO
  return JSON.stringify(shown());
})()
"""


def test_tables_are_sorted_and_searched(browser: Browser, pages: dict[str, Path]) -> None:
    def do(script: str, cell: int) -> list[str]:
        expression = PAIRS.replace("CELL", str(cell)).replace("DO", script)
        found: list[str] = json.loads(browser.ask("Runtime.evaluate", expression=expression)["result"]["value"])
        return found

    browser.open(pages["custodian"], 1280)
    click = "box.querySelectorAll('th button')[1].click();"
    before, down, up = (do(script, 1) for script in ("", click, click))
    assert len(before) == 6
    values = [float(text.removesuffix(" %")) for text in down]
    assert values == sorted(values, reverse=True)
    assert up == down[::-1]
    names = do("search.value = 'AGE town'; search.dispatchEvent(new Event('input'));", 0)
    assert names == ["town \N{MULTIPLICATION SIGN} age"]
