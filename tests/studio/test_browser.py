"""The studio in a real Chromium: from nothing to a release and its report, on a desk, on a phone, by keyboard alone.

One journey runs by default. `UNDERSTUDY_PICTURES=1` makes it take the pictures of `docs/guide/studio.md`.
"""

from __future__ import annotations

import csv
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="the tests in a browser need playwright")

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from understudy.ledger import Ledger
from understudy.studio.guard import Session

from .conftest import Browser as Client
from .conftest import Running, accept_now, choose_budget, draft_now, release_now, write_people

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

AXE = Path(__file__).parent / "axe" / "axe.min.js"
PICTURES = Path(__file__).parents[2] / "docs" / "guide" / "studio"
DESK, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
MOST_PAGES, MOST_CLICKS = 8, 20
WAIT = 120_000  # milliseconds, on a busy machine
IMPOSSIBLE = "Never at once: sex is M; pregnant is yes"
expect.set_options(timeout=WAIT)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A spreadsheet of made-up patients."""
    draw = random.Random(1)
    path = tmp_path / "patients.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["patient_no", "age", "sex", "region", "smoker", "income"])
        for number in range(1500):
            age, sex = draw.randint(18, 95), draw.choice("FM")
            region = draw.choice(["North", "South", "East", "West"])
            smoker = draw.choices(["yes", "no", "?"], [20 + (sex == "M") * 15, 70, 5])[0]
            income = int(draw.lognormvariate(10.2, 0.5))
            rows.writerow([f"P{number:05}", age, sex, region, smoker, income])
    return path


@dataclass
class Person:
    """Somebody in front of the browser; counts clicks and pages, and looks for faults on every page."""

    page: Page
    shots: Callable[[str, Page], None]
    clicks: int = 0
    pages: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def click(self, selector: str) -> None:
        self.page.locator(selector).first.click()
        self.clicks += 1

    def arrive(self, name: str) -> None:
        """A page is there: note it, look at it, take its picture."""
        self.pages.append(name)
        self.look(name)

    def look(self, name: str) -> None:
        """Find what people with disabilities would stumble over, and anything wider than the screen."""
        self.page.wait_for_load_state()
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run({iframes: false})")
        for fault in found["violations"]:
            if fault["impact"] in ("serious", "critical"):
                targets = [node["target"] for node in fault["nodes"][:3]]
                self.faults.append(f"{name}: {fault['id']}: {targets}")
        if (spill := self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")) > 0:
            self.faults.append(f"{name}: {spill} pixels wider than the screen")
        self.shots(name, self.page)


@pytest.mark.slow
def test_a_planted_fault_is_found(chromium):
    """An input without a label, pale text and a page that is too wide are each reported."""
    page = chromium.new_page(viewport=PHONE)
    page.set_content(
        "<html lang=en><title>x</title><main><h1>x</h1><input><p style='color:#bbb;background:#fff'>pale</p>"
        "<div style='width:900px'>wide</div></main>"
    )
    person = Person(page, no_pictures)
    person.look("planted")
    found = " ".join(person.faults)
    assert "label" in found
    assert "color-contrast" in found
    assert "wider than the screen" in found
    page.close()


def no_pictures(name: str, page: Page) -> None:
    """Take no picture."""


def take_pictures(name: str, page: Page) -> None:
    """Take a picture for the guide; small, since it is part of the repository."""
    if (part := {"8-groupings": "form.edit", "9-rule": "#rules"}.get(name)) is not None:
        page.locator(part).screenshot(path=PICTURES / f"{name}.png", caret="initial")
    if name in ("1-start", "2-table", "3-columns", "4-budget", "5-release", "6-result", "7-ledger"):
        PICTURES.mkdir(parents=True, exist_ok=True)
        height = 670 if name == "7-ledger" else DESK["height"]  # below, the ledger page shows a path of this machine
        clip = {"x": 0, "y": 0, "width": DESK["width"], "height": height}
        page.screenshot(path=PICTURES / f"{name}.png", caret="initial", clip=clip)  # type: ignore[arg-type]


def open_page(browser: Browser, running: Any, size: dict[str, int]) -> tuple[BrowserContext, Page, list[str]]:
    """Open the launch address; also returns what the page complains about."""
    context = browser.new_context(viewport=size)  # type: ignore[arg-type]
    context.set_default_timeout(WAIT)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: None if running.address in request.url else said.append(f"asked {request.url}"))
    page.goto(f"{running.address}/launch?key={running.launch}")
    return context, page, said


def describe_table(person: Person, table: Path) -> None:
    """From nothing to the budget, by mouse: choose the table, accept the draft, say about how many people there are."""
    page = person.page
    person.arrive("1-start")
    page.set_input_files("#file", table)
    person.clicks += 1
    person.click("text=Use this file")
    expect(page.locator("h1")).to_have_text("The table")
    person.arrive("2-table")
    person.click("button:has-text('Describe the columns')")
    page.wait_for_selector("#accept")
    person.arrive("3-columns")
    person.click("#unit-row")
    person.click("text=Accept all columns and continue")
    page.wait_for_selector("#people")
    page.fill("#people", "1500")


def make_release(person: Person, table: Path) -> None:
    """From nothing to a release and its report, by mouse."""
    page = person.page
    describe_table(person, table)
    page.press("#people", "Tab")
    page.wait_for_selector("#prediction .buys")
    person.arrive("4-budget")
    person.click("text=Continue to the release")
    page.wait_for_selector(".spend")
    person.arrive("5-release")
    person.click("button.main")
    page.wait_for_url("**/result")
    person.arrive("6-result")
    frame = page.frame_locator("iframe")
    expect(frame.locator("h1").first).to_be_visible()


def ask(person: Person) -> None:
    """Ask a question by clicks, and estimate a statistic."""
    page = person.page
    page.select_option("#add-column", "sex")
    page.locator(".condition input[value=F]").check()
    page.select_option("#add-column", "age")
    page.locator(".condition input[name^=from]").fill("40")
    person.click("button:has-text('Count')")
    expect(page.locator("#answer .result")).to_contain_text("in the true table")
    person.look("6-result")


def test_from_nothing_to_a_release_and_its_report(chromium, serve, table):
    """At most eight pages and twenty clicks; no page complains, asks another server, or has a serious fault."""
    follow_guide(chromium, serve(), table)
    (spent,) = Ledger().reservations()
    assert spent.state == "finished"


if "UNDERSTUDY_STUDIO" in os.environ:  # `make clean-machine` starts a studio on a bare system, and names it

    def test_the_same_with_a_studio_that_runs_already(chromium, table):
        """The address is that of the launch page."""
        address, _, launch = os.environ["UNDERSTUDY_STUDIO"].partition("/launch?key=")
        running = Running(None, int(address.rsplit(":", 1)[1]), launch, address)  # type: ignore[arg-type]
        follow_guide(chromium, running, table)


def follow_guide(chromium: Browser, running: Running, table: Path) -> None:
    """Do what docs/guide/studio.md describes."""
    pictures = take_pictures if os.environ.get("UNDERSTUDY_PICTURES") else no_pictures
    context, page, said = open_page(chromium, running, DESK)
    person = Person(page, pictures)
    make_release(person, table)
    clicks, pages = person.clicks, len(person.pages)
    ask(person)
    with page.expect_download() as download:
        page.click("text=The bundle for analysts")
    assert download.value.suggested_filename == "patients bundle.zip"
    page.click("text=Ledger")
    expect(page.locator("h1")).to_have_text("The ledger")
    page.click("text=Verify every entry")
    expect(page.locator("[role=status]").first).to_have_text("Every entry is intact.")
    person.look("7-ledger")
    page.click("text=Projects")
    expect(page.locator("#earlier")).to_be_visible()
    person.look("start with earlier work")
    page.click(".projects a")
    page.wait_for_url("**/result")
    page.goto(f"{page.url.rsplit('/', 1)[0]}/columns")
    person.look("columns of a release that is made")
    assert said == []
    page.goto(f"{running.address}/nothing")
    person.look("an error")
    page.click("text=Sign out")
    expect(page.locator("h1")).to_have_text("Sign in")
    person.look("sign in")
    context.close()
    assert person.faults == []
    assert pages <= MOST_PAGES
    assert clicks <= MOST_CLICKS
    print(f"{pages} pages, {clicks} clicks")


@pytest.mark.slow
def test_the_same_at_the_width_of_a_phone(chromium, serve, table):
    context, page, said = open_page(chromium, serve(), PHONE)
    person = Person(page, no_pictures)
    make_release(person, table)
    ask(person)
    page.click("text=Ledger")
    expect(page.locator("h1")).to_have_text("The ledger")
    person.look("ledger")
    context.close()
    assert person.faults == []
    assert said == []


def focus_with_tab(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus."""
    wanted = page.locator(selector).first
    wanted.wait_for()
    for _ in range(80):
        if wanted.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{selector} cannot be reached with Tab")


def press_key(page: Page, selector: str, key: str = "Enter") -> None:
    """Press a key on an element, which is reached with Tab."""
    focus_with_tab(page, selector)
    page.keyboard.press(key)


@pytest.mark.slow
def test_the_same_with_the_keyboard_alone(chromium, serve, table):
    """Tab, arrows, space, enter and typing; the path of the table instead of a dialog of the operating system."""
    context, page, said = open_page(chromium, serve(), DESK)
    focus, press = partial(focus_with_tab, page), partial(press_key, page)
    press(".skip")
    focus("#place")
    page.keyboard.type(str(table))
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("The table")
    press("button:has-text('Describe the columns')")
    page.wait_for_selector("#accept")
    press("[aria-label='Edit income']")
    page.wait_for_selector("form.edit")
    expect(page.locator("form.edit select[name=kind]")).to_be_focused()
    focus("form.edit input[name=maximum]")
    page.keyboard.press("Control+A")
    page.keyboard.type("-5")
    page.keyboard.press("Tab")
    expect(page.locator("form.edit .check")).to_contain_text("not below")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("500000")
    press("text=Save income")
    expect(page.locator("form.edit")).to_have_count(0)
    press("#unit-row", "Space")
    press("text=Accept all columns and continue")
    page.wait_for_selector("#people")
    focus("#people")
    page.keyboard.type("1500")
    page.keyboard.press("Tab")
    page.wait_for_selector("#prediction .buys")
    press("#step", "ArrowRight")
    expect(page.locator("#epsilon")).to_have_value("1.5")
    expect(page.locator("#step")).to_be_focused()
    press("text=Continue to the release")
    page.wait_for_selector(".spend")
    press("button.main")
    page.wait_for_url("**/result")
    focus("#add-column")
    page.keyboard.type("sex")
    page.wait_for_selector(".condition")
    press(".condition input[value=F]", "Space")
    press("button:has-text('Count')")
    expect(page.locator("#answer .result")).to_contain_text("in the true table")
    context.close()
    assert said == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_groupings_and_rules_with_the_keyboard_alone(chromium, serve, tmp_path, size):
    """Halves of regions, and three kinds of rules; each is checked at once, and no form has a serious fault."""
    running = serve()
    stays = {"start": ["2024-01-03", "2024-02-05"], "stop": ["2024-03-01", "2024-04-01"]}
    stays |= {"city": ["Bonn", "Ulm"], "state": ["NW", "BW"], "pregnant": ["yes", "no", "unknown"]}
    project = draft_now(running.studio, write_people(tmp_path / "stays.csv", **stays))
    context, page, said = open_page(chromium, running, size)
    page.goto(f"{running.address}/p/{project.id}/columns")
    person = Person(page, take_pictures if os.environ.get("UNDERSTUDY_PICTURES") and size is DESK else no_pictures)
    focus, press = partial(focus_with_tab, page), partial(press_key, page)
    press("[aria-label='Edit region']")
    press("summary:has-text('Hierarchy')")
    press("text=Add a grouping")
    expect(page.locator("[name=level-name-1]")).to_be_focused()
    page.keyboard.type("half")
    focus("[name=level-text-1]")
    expect(page.locator("[name=level-text-1]")).to_have_value("East = \nNorth = \nSouth = ")
    page.keyboard.press("Control+A")
    page.keyboard.type("East = lower\nNorth = upper")
    page.keyboard.press("Tab")
    expect(page.locator("form.edit .check")).to_contain_text("leaves out 'South'")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Control+End")
    page.keyboard.type("\nSouth = lower")
    page.keyboard.press("Tab")
    expect(page.locator("form.edit .check")).to_contain_text("This fits")
    person.look("8-groupings")
    press("text=Save region")
    expect(page.locator("form.edit")).to_have_count(0)
    for kind, rule in (("order", "start ≤ stop"), ("determines", "city determines state"), ("impossible", IMPOSSIBLE)):
        press("summary:has-text('Add a rule')")
        focus("#rule-kind")
        page.keyboard.type({"order": "One column is", "determines": "One column d", "impossible": "S"}[kind])
        if kind == "impossible":
            focus("#rule-column")
            page.keyboard.type("sex")
            press("#rule-conditions input[value=M]", "Space")
            focus("#rule-column")
            page.keyboard.type("preg")
            press("#rule-conditions input[value=yes]", "Space")
        else:
            page.wait_for_selector("[name=strict]" if kind == "order" else "[name=map]")
            first, second = ("start", "stop") if kind == "order" else ("city", "state")
            focus("#rule-first")
            page.keyboard.type(first)
            focus("#rule-second")
            page.keyboard.type(second)
        expect(page.locator("#rule-answer")).to_contain_text(f"This fits: {rule}")
        person.look("9-rule" if kind == "impossible" else f"rule {kind}")
        press("button:has-text('Add the rule')")
        expect(page.locator(".rules")).to_contain_text(rule)
    context.close()
    rules = running.studio.projects.get(project.id).content()["understudy"]["rules"]
    assert rules[-1] == {"impossible": {"sex": ["M"], "pregnant": ["yes"]}}
    assert {"from": ["city"], "determines": "state"} in rules
    assert running.studio.projects.get(project.id).schema().column("region").levels[0].name == "half"
    assert person.faults == []
    assert said == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_other_pages_have_no_serious_fault(chromium, serve, tmp_path, monkeypatch, size):
    """Signing in, an analyst's releases and result, the open form of a column, a page that does not exist."""
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(tmp_path / "ledger.db"))
    running = serve(ledger_address=str(tmp_path / "ledger.db"))
    studio, custodian = running.studio, Session("custodian", "user:tester", "tester")
    project = accept_now(Client(studio, custodian), draft_now(studio, write_people(tmp_path / "people.csv")))
    release_now(studio, choose_budget(studio, project))
    with studio.projects.edit(project.id) as edit:
        edit.set(shared=True)
    drafted = draft_now(studio, write_people(tmp_path / "others.csv"))
    faults: list[str] = []
    for session, addresses in (
        (None, ["/login"]),
        (Session("analyst", "token:0", "ana", "secret"), ["/", f"/p/{project.id}/result"]),
        (custodian, ["/", f"/p/{drafted.id}/columns", "/nothing"]),
    ):
        context = chromium.new_context(viewport=size)
        if session is not None:
            key = Client(studio, session).cookies[studio.sessions.cookie]
            context.add_cookies([{"name": studio.sessions.cookie, "value": key, "url": running.address}])
        person = Person(context.new_page(), no_pictures, faults=faults)
        for address in addresses:
            person.page.goto(running.address + address)
            person.look(address)
            if address.endswith("/columns"):
                person.click("text=Edit")
                expect(person.page.locator("form select, form input[type=text]").first).to_be_visible()
                person.look("column form")
        context.close()
    assert faults == []


@pytest.mark.slow
def test_a_rehearsal_and_a_browser_that_is_closed(chromium, serve, table):
    """A rehearsal spends nothing; the release goes on while no browser looks at it."""
    running = serve()
    context, page, _ = open_page(chromium, running, DESK)
    person = Person(page, no_pictures)
    describe_table(person, table)
    page.click("text=Or say how accurate it must be")
    page.fill("#group", "100")
    page.fill("#within", "20")
    page.click("text=Find the epsilon")
    page.wait_for_selector("#prediction .buys")
    page.click("text=Rehearse on made-up rows")
    page.wait_for_selector("text=Rehearsed")
    page.wait_for_selector("#prediction .buys")
    person.look("rehearsed")
    assert Ledger().reservations() == []
    page.click("text=Continue to the release")
    page.wait_for_selector(".spend")
    page.click("button.main")
    page.wait_for_selector(".progress")
    person.look("progress")
    address, cookies = page.url, context.cookies()
    context.close()
    later = chromium.new_context()
    later.add_cookies(cookies)  # type: ignore[arg-type]
    page = later.new_page()
    page.set_default_timeout(WAIT)
    page.goto(address)
    page.wait_for_url("**/result")
    later.close()
    assert person.faults == []
