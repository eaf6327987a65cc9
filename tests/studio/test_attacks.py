"""Every line of `docs/threat-model.md`: each attack is tried, and refused."""

from __future__ import annotations

import gzip
import io
import os
import re
import socket
import time
import zipfile
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from understudy.ledger import Ledger
from understudy.studio.guard import Session
from understudy.studio.jobs import Limits
from understudy.studio.pages import PAGES
from understudy.studio.results import RESULTS
from understudy.studio.server import HeaderTimeout
from understudy.studio.uploads import UploadLimits

from .conftest import FORMULA, HOST, SCRIPT, Browser, draft_now, make_studio, wait_for, write_people

ROOT = Path(__file__).parents[2]
THREATS = ROOT / "docs" / "threat-model.md"
POSTS = [page for page in (*PAGES, *RESULTS) if page.method == "POST"]
CUSTODIANS = [page for page in (*PAGES, *RESULTS) if page.role == "custodian"]


def fill(path: str, project: str = "0" * 32) -> str:
    return path.replace("{project}", project).replace("{place:int}", "0").replace("{name}", "rows.csv")


def test_every_line_of_the_threat_model_names_a_test_of_this_file():
    listed = re.findall(r"^(\d+)\. .*?`(test_\w+)`", THREATS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert [int(number) for number, _ in listed] == list(range(1, len(listed) + 1))
    assert len(listed) >= 24
    missing = [name for _, name in listed if name not in globals()]
    assert missing == []


# -- paths --


@pytest.mark.parametrize(
    "path",
    [
        "/p/..%2f..%2fetc/table",
        "/p/../../../../etc/passwd",
        "/static/..%2fapp.py",
        "/static/../app.py",
        "/p/{id}/files/..%2fproject.json",
        "/p/{id}/files/project.json",
        "/p/{id}/files/table.csv",
        "/p/{id}/files/schema.custodian-only.json",
        "/p/{id}%00/table",
    ],
)
def test_traversal_by_address(released, path):
    browser = Browser(released.studio, Session("custodian", "user:tester", "tester"))
    answer = browser.get(path.replace("{id}", released.project.id))
    assert answer.status_code == 404
    assert "root:" not in answer.text
    assert "import" not in answer.text


def test_traversal_by_the_place_of_a_table(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    write_people(folder / "people.csv")
    write_people(tmp_path / "secret.csv")
    (folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    studio = make_studio(tmp_path / "studio", local=False, roots=(folder.resolve(),))
    browser = Browser(studio, Session("custodian", "token:1", "cleo", "secret"), "studio.example.org")
    for place in (
        "/etc/passwd",
        f"{folder}/../secret.csv",
        f"{folder}/link.csv",
        "~/x.csv",
        "postgresql://h/d?table=t",
    ):
        answer = browser.send_form("/begin", place=place)
        assert answer.status_code == 400, place
    assert list(studio.projects.all()) == []
    assert browser.send_form("/begin", place=str(folder / "people.csv")).status_code == 303


def test_traversal_by_the_name_of_an_upload(custodian, studio, people):
    for name in ("../../../evil.csv", "..\\..\\evil.csv", "/etc/cron.d/evil.csv", "a\0b.csv"):
        answer = custodian.upload(name, people.read_bytes())
        assert answer.status_code == 303, name
    for project in studio.projects.all():
        table = Path(project.table)
        assert table.parent == project.folder
        assert table.name == "table.csv"
        assert table.stat().st_mode & 0o777 == 0o600
        assert project.folder.stat().st_mode & 0o777 == 0o700
        assert "/" not in project.shown


# -- other sites --


def test_a_form_of_another_site(custodian):
    token = {"csrf": custodian.session.csrf}
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": f"http://{HOST}.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert custodian.post("/ledger/verify", data=token, headers=headers).status_code == 403
    own = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
    assert custodian.post("/ledger/verify", data=token, headers=own).status_code == 200
    read = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
    assert custodian.get("/ledger", headers=read).status_code == 403


@pytest.mark.parametrize("page", [page for page in POSTS if page.role != "open"], ids=lambda page: page.path)
def test_a_form_without_the_token_of_the_session(custodian, studio, page):
    other = Session("custodian", "user:tester", "tester")
    for token in ({}, {"csrf": ""}, {"csrf": other.csrf}):
        if page.stream:
            answer = custodian.post(page.path, data=token, files={"file": ("a.csv", b"a,b\n1,2\n")})
        else:
            answer = custodian.post(fill(page.path), data=token)
        assert answer.status_code == 403, page.path
    assert custodian.post(fill(page.path), content=b"{}", headers={"content-type": "text/plain"}).status_code == 403
    assert list(studio.projects.folder.iterdir()) == []


def test_dns_rebinding(custodian):
    for host in ("evil.example", "evil.example:8080", "127.0.0.1", "127.0.0.1:8081", f"{HOST}.evil.example", ""):
        answer = custodian.get("/ledger", headers={"host": host})
        assert answer.status_code == 421, host
    assert custodian.get("/ledger").status_code == 200


def test_a_frame_of_another_site(custodian, released):
    page = custodian.get("/")
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"
    browser = Browser(released.studio, Session("custodian", "user:tester", "tester"))
    report = browser.get(f"/p/{released.project.id}/report")
    assert "frame-ancestors 'self'" in report.headers["content-security-policy"]
    assert "sandbox" in report.headers["content-security-policy"]
    assert "script-src" not in report.headers["content-security-policy"]  # default-src 'none'


# -- what is in the table --


def shown_pages(released: Any) -> list[str]:
    browser = Browser(released.studio, Session("custodian", "user:tester", "tester"))
    base = f"/p/{released.project.id}"
    places = range(len(released.project.content()["fields"]))
    paths = ["/", "/ledger", f"{base}/table", f"{base}/columns", f"{base}/result", f"{base}/report"]
    paths += [f"{base}/columns/{place}" for place in places]
    names = [field["name"] for field in released.project.content()["fields"]]
    pages = [browser.get(path) for path in paths]
    pages += [browser.get(f"{base}/condition", params={"column": name}) for name in names]
    assert [str(page.url) for page in pages if page.status_code != 200] == []
    return [page.text for page in pages]


def test_script_by_the_name_of_a_column(released):
    pages = shown_pages(released)
    assert not any(SCRIPT in page for page in pages)
    assert any("&lt;script&gt;alert(1)" in page for page in pages)


def test_script_by_a_value(released):
    browser = Browser(released.studio, Session("custodian", "user:tester", "tester"))
    base = f"/p/{released.project.id}"
    condition = browser.get(f"{base}/condition", params={"column": "note"}).text
    assert SCRIPT not in condition
    assert "&lt;script&gt;" in condition
    key = re.search(r'name="condition" value="(\w+):', condition)
    assert key is not None
    asked = {"condition": f"{key[1]}:note", f"value-{key[1]}": SCRIPT}
    answer = browser.get(f"{base}/answer", params=asked)
    assert answer.status_code == 200
    assert SCRIPT not in answer.text
    wrong = browser.get(f"{base}/answer", params={"condition": f"x:{SCRIPT}"})
    assert wrong.status_code == 400
    assert SCRIPT not in wrong.text


def test_script_by_the_name_of_a_file(custodian, people):
    answer = custodian.upload("<img src=x onerror=alert(1)>.csv", people.read_bytes())
    assert answer.status_code == 303
    for path in ("/", answer.headers["location"]):
        page = custodian.get(path).text
        assert "<img src=x" not in page
        assert "&lt;img src=x" in page


def test_no_page_runs_inline_script_or_asks_another_server(released):
    browser = Browser(released.studio, Session("custodian", "user:tester", "tester"))
    base = f"/p/{released.project.id}"
    for path in ("/", "/ledger", f"{base}/columns", f"{base}/result", "/nothing"):
        page = browser.get(path)
        policy = page.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert re.findall(r"<script(?! src=\"/static/htmx.min.js\")", page.text) == []
        assert re.findall(r"\son\w+=|\sstyle=", page.text) == []
        assert re.findall(r"(?:src|href)=\"(?!/|#)", page.text) == []
    assert "http" not in re.sub(r"http://www.w3.org/\S+", "", browser.get("/static/studio.css").text)


def test_formula_cells(released):
    browser = Browser(released.studio, Session("custodian", "user:tester", "tester"))
    rows = browser.get(f"/p/{released.project.id}/files/rows.csv")
    assert rows.headers["content-disposition"].startswith("attachment")
    assert f"'{FORMULA}" in rows.text
    assert not re.search(r'(^|,|\n)"?=', rows.text)
    with zipfile.ZipFile(io.BytesIO(browser.get(f"/p/{released.project.id}/files/bundle.zip").content)) as bundle:
        assert not re.search(r'(^|,|\n)"?=', bundle.read("rows.csv").decode())


# -- uploads --


def refused(browser: Browser, name: str, content: bytes) -> str:
    """Upload a file, see it refused, and see that nothing of it is left."""
    answer = browser.upload(name, content)
    assert answer.status_code == 400, answer.text
    assert list(browser.studio.projects.folder.iterdir()) == []
    return str(answer.text)


@pytest.fixture
def careful(tmp_path: Path, small_uploads: UploadLimits) -> Browser:
    studio = make_studio(tmp_path / "studio", uploads=small_uploads)
    return Browser(studio, Session("custodian", "user:tester", "tester"))


def test_a_zip_bomb(careful):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as workbook:
        workbook.writestr("xl/workbook.xml", "<workbook/>")
        workbook.writestr("xl/worksheets/sheet1.xml", b"0" * 20_000_000)
    assert len(file.getvalue()) < 50_000
    assert "enormous" in refused(careful, "bomb.xlsx", file.getvalue())
    assert "cannot be read" in refused(careful, "bomb.zip", file.getvalue())


def test_a_gzip_bomb(careful):
    assert "enormous" in refused(careful, "bomb.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 5_000_000))
    assert "damaged" in refused(careful, "cut.csv.gz", gzip.compress(b"a,b\n" * 1000)[:-10])


def test_a_parquet_bomb(careful):
    file = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array([7] * 3_000_000, pa.int64())}), file)
    assert len(file.getvalue()) < 50_000
    assert "enormous" in refused(careful, "bomb.parquet", file.getvalue())
    assert "damaged" in refused(careful, "bad.parquet", b"PAR1" + b"\xff" * 100 + b"PAR1")


def test_an_upload_that_is_too_large(careful):
    assert "larger than" in refused(careful, "big.csv", b"a,b\n" + b"1,2\n" * 20_000)
    assert careful.session is not None
    boundary, head = "xyz", 'Content-Disposition: form-data; name="'

    def parts():  # without a length: it is counted as it arrives
        yield f'--{boundary}\r\n{head}csrf"\r\n\r\n{careful.session.csrf}\r\n'.encode()
        yield f'--{boundary}\r\n{head}file"; filename="a.csv"\r\n\r\n'.encode()
        for _ in range(100):
            yield b"1,2\n" * 1000

    kind = {"content-type": f"multipart/form-data; boundary={boundary}"}
    assert careful.post("/upload", content=parts(), headers=kind).status_code == 400
    assert list(careful.studio.projects.folder.iterdir()) == []


def test_a_slow_upload(serve, small_uploads):
    running = serve(uploads=small_uploads)
    cookie, csrf = sign_in(running)
    body = f'--xyz\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{csrf}\r\n'
    body += '--xyz\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\na,b\n'
    head = f"POST /upload HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nCookie: {cookie}\r\n"
    head += "Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: 40000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as connection:
        connection.sendall((head + body).encode())
        began, answer = time.monotonic(), b""
        while b"</html>" not in answer and (block := connection.recv(65536)):
            answer += block
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"stopped for too long" in answer
    assert time.monotonic() - began < 15
    assert list(running.studio.projects.folder.iterdir()) == []


class ShortTimeout(HeaderTimeout):
    """The same protocol with less patience."""

    seconds = 0.5


@pytest.mark.parametrize("first", [b"", b"GET /login HTTP/1.1\r\nHost: ", b"whole"], ids=["nothing", "part", "second"])
def test_a_slow_header(serve, first):
    """A header that does not end closes the connection: at once, and also after a whole request."""
    running = serve(protocol=ShortTimeout)
    whole = f"GET /login HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as slow:
        if first == b"whole":
            slow.sendall(whole)
            while b"</html>" not in slow.recv(65536):
                pass
        slow.sendall(b"GET /login HTTP/1.1\r\n" if first == b"whole" else first)
        began = time.monotonic()
        while slow.recv(65536):
            pass
    assert time.monotonic() - began < 15
    assert httpx.get(f"{running.address}/login").status_code == 200


def test_a_slow_form(serve, monkeypatch):
    monkeypatch.setattr("understudy.studio.app._FORM_SECONDS", 0.3)
    running = serve()
    head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nContent-Length: 4000\r\n"
    head += "Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken="
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as slow:
        slow.sendall(head.encode())
        answer = b""
        while b"</html>" not in answer and (block := slow.recv(65536)):
            answer += block
    assert b"took too long to arrive" in answer


def sign_in(running: Any) -> tuple[str, str]:
    """Use the launch address; returns the cookie and the CSRF token of the session."""
    with httpx.Client(base_url=running.address) as client:
        answer = client.get("/launch", params={"key": running.launch})
        assert answer.status_code == 303
        page = client.get("/").text
        token = re.search(r'name="csrf" value="([^"]+)"', page)
        assert token is not None
        return answer.headers["set-cookie"].partition(";")[0], token[1]


def test_a_pickle(careful, tmp_path):
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path}/owned",)

    import pickle

    content = pickle.dumps(Evil())
    assert "cannot be read" in refused(careful, "model.pkl", content)
    for name in ("table.csv", "table.parquet", "table.xlsx", "table.sav", "table.dta", "table.csv.gz"):
        answer = careful.upload(name, content + b"\0" * 10)
        assert answer.status_code == 400, name
    assert not (tmp_path / "owned").exists()
    assert "pickle" not in "".join(path.read_text() for path in (ROOT / "src/understudy/studio").glob("*.py"))


# -- sessions --


def test_session_fixation(tmp_path):
    studio = make_studio(tmp_path / "studio", local=False)
    _, secret = Ledger().add_token("analyst", "Ana")
    browser = Browser(studio, None, "studio.example.org")
    browser.cookies.set(studio.sessions.cookie, "chosen-by-the-attacker")
    assert browser.get("/ledger").status_code == 303
    answer = browser.post("/login", data={"token": secret})
    assert answer.status_code == 303
    assert "chosen-by-the-attacker" not in answer.headers["set-cookie"]
    browser.cookies.clear()
    browser.cookies.set(studio.sessions.cookie, "chosen-by-the-attacker")
    assert browser.get("/").headers["location"] == "/login"


def test_theft_of_the_cookie(tmp_path):
    _, secret = Ledger().add_token("analyst", "Ana")
    for local in (True, False):
        studio = make_studio(tmp_path / f"studio-{local}", local=local)
        browser = Browser(studio, None, HOST)
        cookie = browser.post("/login", data={"token": secret}).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert ("Secure" in cookie) is not local
        assert cookie.startswith("understudy=" if local else "__Host-understudy=")
        page = browser.get("/")
        assert page.headers["cache-control"] == "no-store"
        token = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert token is not None
        assert browser.post("/logout", data={"csrf": token[1]}).status_code == 303
        assert browser.get("/").headers["location"] == "/login"


def test_another_user_of_the_machine(tmp_path):
    studio = make_studio(tmp_path / "studio", launch="right")
    browser = Browser(studio, None)
    assert browser.get("/").headers["location"] == "/login"
    for key in ("", "wrong", "righ", "right "):
        assert browser.get("/launch", params={"key": key}).status_code == 403
    assert browser.get("/launch", params={"key": "right"}).status_code == 303
    second = Browser(studio, None)
    assert second.get("/launch", params={"key": "right"}).status_code == 403
    assert studio.projects.folder.stat().st_mode & 0o777 == 0o700


def test_guessing_tokens(tmp_path):
    studio = make_studio(tmp_path / "studio", local=False)
    token, secret = Ledger().add_token("custodian", "Cleo")
    browser = Browser(studio, None, "studio.example.org")
    assert browser.post("/login", data={"token": token.holder}).status_code == 403  # the digest is not the token
    answers = [browser.post("/login", data={"token": f"guess {number}"}).status_code for number in range(12)]
    assert answers.count(403) == 9
    assert set(answers[9:]) == {429}
    assert browser.post("/login", data={"token": secret}).status_code == 429
    assert all(secret not in line for line in Ledger().export())


def test_a_revoked_token(tmp_path):
    studio = make_studio(tmp_path / "studio", local=False)
    _, cleo = Ledger().add_token("custodian", "Cleo")
    token, ana = Ledger().add_token("analyst", "Ana")
    custodian, analyst = (Browser(studio, None, "studio.example.org") for _ in range(2))
    custodian.post("/login", data={"token": cleo})
    analyst.post("/login", data={"token": ana})
    assert analyst.get("/").status_code == 200
    csrf = re.search(r'name="csrf" value="([^"]+)"', custodian.get("/ledger").text)
    assert csrf is not None
    custodian.post("/ledger/token/revoke", data={"csrf": csrf[1], "token": str(token.number)})
    assert analyst.get("/").headers["location"] == "/login"
    assert analyst.post("/login", data={"token": ana}).status_code == 403


# -- roles --


def test_an_analyst_reaching_rows_or_the_draft(released):
    browser = Browser(released.studio, Session("analyst", "token:0", "ana", "secret"))
    base = f"/p/{released.project.id}"
    released.share(True)
    for page in CUSTODIANS:
        path = fill(page.path, released.project.id)
        answer = browser.get(path) if page.method == "GET" else browser.send_form(path)
        assert answer.status_code == 404, path
        assert "custodian only" not in answer.text.lower()
    for name in ("run.yaml", "schema.yaml", "table.csv", "project.json", "job.json", "schema.custodian-only.json"):
        assert browser.get(f"{base}/files/{name}").status_code == 404, name
    for path in ("/", f"{base}/result", f"{base}/report", f"{base}/files/rows.csv", f"{base}/files/bundle.zip"):
        answer = browser.get(path)
        assert answer.status_code == 200, path
        assert str(released.project.table) not in answer.text
    released.share(False)
    for path in (f"{base}/result", f"{base}/report", f"{base}/files/rows.csv", f"{base}/answer", base):
        assert browser.get(path).status_code == 404, path
    assert released.project.name not in browser.get("/").text


def test_guessing_the_id_of_a_project(released):
    released.share(False)
    assert re.fullmatch(r"[0-9a-f]{32}", released.project.id)
    analyst = Browser(released.studio, Session("analyst", "token:0", "ana", "secret"))
    near = released.project.id[:-1] + ("0" if released.project.id[-1] != "0" else "1")
    for page in ("result", "progress", "table"):
        there, absent = analyst.get(f"/p/{released.project.id}/{page}"), analyst.get(f"/p/{near}/{page}")
        assert there.status_code == absent.status_code == 404
        assert strip(there.text, released.project.id) == strip(absent.text, near)  # the answer does not say which exist


def strip(page: str, key: str) -> str:
    return page.replace(key, "")


# -- what the server says --


def test_log_injection(serve, capfd):
    running = serve()
    cookie, csrf = sign_in(running)
    forged = "2026-01-01 custodian: budget returned"
    with httpx.Client(base_url=running.address, headers={"cookie": cookie}) as client:
        client.get(f"/p/x%0d%0a{forged}/table")
        client.get("/", headers={"user-agent": f"a{forged}", "referer": f"x {forged}"})
        client.post("/begin", data={"csrf": csrf, "place": f"/tmp/\n{forged}\x1b[2J.csv"})
        answer = client.post("/ledger/token", data={"csrf": csrf, "role": "analyst", "name": f"Ana\n{forged}"})
        assert answer.status_code == 400
    assert capfd.readouterr() == ("", "")
    assert forged not in "".join(Ledger().export())


def test_an_error_that_quotes_a_cell(custodian, studio, people, monkeypatch):
    project = draft_now(studio, people)
    from understudy.studio.project import Project

    def fail(self: Project) -> Any:
        raise ValueError("the cell 'Jane Doe, HIV positive' is odd")

    monkeypatch.setattr(Project, "content", fail)
    answer = custodian.get(f"/p/{project.id}/columns")
    assert answer.status_code == 500
    assert "Jane" not in answer.text
    assert "Traceback" not in answer.text
    assert "ValueError at" in answer.text
    assert "What was spent" in answer.text
    assert "Jane" not in custodian.get(f"/p/{project.id}/columns", headers={"hx-request": "true"}).text


def test_requests_of_the_server_to_other_machines(tmp_path):
    studio = make_studio(tmp_path / "studio", local=False)
    browser = Browser(studio, Session("custodian", "token:1", "cleo", "secret"), "studio.example.org")
    for place in ("postgresql://10.0.0.1/db?table=t", "http://169.254.169.254/latest", "duckdb:///etc/x?table=t"):
        assert browser.send_form("/begin", place=place).status_code == 400
    local = Browser(make_studio(tmp_path / "local"), Session("custodian", "user:tester", "tester"))
    answer = local.send_form("/begin", place="postgresql://me:hunter2@host/db?table=t")
    assert answer.status_code == 400
    assert "hunter2" not in answer.text
    assert local.send_form("/begin", place="http://169.254.169.254/latest").status_code == 400


def test_a_form_that_fills_the_memory(custodian):
    answer = custodian.send_form("/ledger/grant", dataset="x" * (9 << 20))
    assert answer.status_code == 400
    fields = "&".join(f"a{number}=1" for number in range(30_000))
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert custodian.post("/ledger/grant", content=fields.encode(), headers=kind).status_code == 403


def test_a_table_that_fills_the_memory(tmp_path):
    """The job reads rows in a process that may use 300 MB; the server answers all the while, and says what happened."""
    table = tmp_path / "wide.csv"
    with table.open("w") as file:
        file.write("a,b\n")
        for _ in range(60):
            file.write(("x" * 200 + "," + "y" * 200 + "\n") * 10_000)
    studio = make_studio(tmp_path / "studio", limits=Limits(memory_bytes=300 << 20, seconds=60))
    browser = Browser(studio, Session("custodian", "user:tester", "tester"))
    location = browser.send_form("/begin", place=str(table)).headers["location"]
    project = studio.projects.get(location.split("/")[2])
    assert browser.send_form(f"/p/{project.id}/draft", how="draft").status_code == 303
    job = wait_for(studio, project.id)
    assert job.state in ("failed", "lost")
    page = browser.get(f"/p/{project.id}/columns").text
    assert "Nothing was spent" in page
    assert "xxxx" not in page


def test_a_job_that_never_ends(tmp_path, people):
    studio = make_studio(tmp_path / "studio", limits=Limits(memory_bytes=4 << 30, seconds=0.05))
    browser = Browser(studio, Session("custodian", "user:tester", "tester"))
    project = studio.projects.begin(studio.projects.new_folder(), table=str(people), shown="people", name="people")
    browser.send_form(f"/p/{project.id}/draft", how="draft")
    job = wait_for(studio, project.id)
    assert job.state == "failed"
    assert "longer than a job may take" in job.message
