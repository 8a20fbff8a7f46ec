"""The tutorial, done step by step in an empty folder with real processes, as a reader would: `pip install` included."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.dictionaries import remove_dictionaries
from tests.docs_reader import ROOT, Block, page

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]

SKIPPED = {"mkdir", "."}
"""Commands that prepare what the test has already: a folder, and a PATH that begins with the environment."""
SESSION = """
import json, re, sys
import django
django.setup()
from docs_reader import execute
def same(told, got):
    return json.loads(re.sub("O261121", "O" + sys.argv[1], json.dumps(told))) == got
namespace, told = {"__name__": "session"}, 0
for place, text in json.load(sys.stdin):
    told += execute(text, place, namespace, same)
print("told", told)
"""


def free_port(kind: int) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class Reader:
    """Somebody who follows the tutorial in `folder`."""

    folder: Path
    support: Path
    today: str
    pip_env: dict[str, str]
    http: int = field(default_factory=lambda: free_port(socket.SOCK_STREAM))
    udp: int = field(default_factory=lambda: free_port(socket.SOCK_DGRAM))
    servers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    typed: list[tuple[str, str]] = field(default_factory=list)
    answer: Any = None
    token: str = ""
    told: int = 0
    compared: int = 0

    @property
    def env(self) -> dict[str, str]:
        return {
            **self.pip_env,
            "PATH": f"{self.folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.support),
            "LANG": "C.UTF-8",
            "PYTHONPATH": f"{self.folder}{os.pathsep}{self.support}",
            "DJANGO_SETTINGS_MODULE": "mysite.settings",
            "DJANGO_SUPERUSER_PASSWORD": "admin",
        }

    def follow(self, block: Block) -> None:
        if block.file:
            with (self.folder / block.file).open("a" if block.how == "append" else "w") as file:
                file.write(block.text)
        elif block.language == "python":
            self.typed.append((block.place, self.moved(block.text)))
        elif block.language == "console":
            self.end_session()
            for command in block.commands:
                self.run(command)
        elif block.language == "json":
            expected = json.loads(block.text.replace("O261121", f"O{self.today}"))
            assert self.answer == expected, block.place
            self.compared += 1
        else:
            pytest.fail(f"{block.place}: nobody knows what to do with {block.language!r}")

    def run(self, command: str) -> None:
        arguments = shlex.split(self.moved(command))
        match arguments:
            case [first, *_] if first in SKIPPED:
                pass
            case ["python", "-m", "venv", folder]:
                self.finish(sys.executable, "-m", "venv", folder)
            case ["pip", *_]:
                self.finish(*arguments)
            case ["python", "manage.py", "shell"]:
                pass
            case ["django-admin", *_]:
                self.finish(*arguments, DJANGO_SETTINGS_MODULE="")
            case ["python", "manage.py", "runserver"]:
                self.serve("runserver", "--noreload", str(self.http))
                self.wait(lambda: socket.create_connection(("127.0.0.1", self.http), 1).close())
            case ["python", "manage.py", "runidserver"]:
                self.serve("runidserver", "--port", str(self.udp))
                self.wait(self.knock)
            case ["python", "manage.py", "createsuperuser", *rest]:
                self.finish("python", "manage.py", "createsuperuser", *rest, "--noinput")
            case ["python", "manage.py", "drf_create_token", _]:
                self.token = self.finish(*arguments).split()[2]
            case ["python", "manage.py", *_]:
                self.finish(*arguments)
            case ["curl", "-H", authorization, "-H", content_type, "-d", body, url]:
                lines = (authorization.replace("YOUR-TOKEN", self.token), content_type)
                headers = dict(line.split(": ", 1) for line in lines)
                request = urllib.request.Request(url, body.encode(), headers)  # noqa: S310
                with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310
                    self.answer = json.load(response)
            case _:
                pytest.fail(f"nobody knows how to do {command!r}")

    def end_session(self) -> None:
        """Run what was typed into a shell, in one process."""
        if self.typed:
            printed = self.finish("python", "-c", SESSION, self.today, text=json.dumps(self.typed))
            self.told += int(printed.rpartition("told ")[2])
            self.typed = []

    def finish(self, *command: str, text: str = "", **env: str) -> str:
        merged = self.env | env
        program = shutil.which(command[0], path=merged["PATH"])
        assert program, command
        done = subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=merged,
            input=text,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def serve(self, *command: str) -> None:
        self.servers.append(
            subprocess.Popen(
                [self.folder / ".venv" / "bin" / "python", "manage.py", *command],
                cwd=self.folder,
                env=self.env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def wait(self, knock: Any) -> None:
        until = time.monotonic() + 30
        while True:
            assert self.servers[-1].poll() is None, "the server ended"
            try:
                knock()
                return
            except OSError:
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.05)

    def knock(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.2)
            sock.connect(("127.0.0.1", self.udp))
            sock.send(b"{}")
            sock.recv(65535)

    def moved(self, text: str) -> str:
        return text.replace("127.0.0.1:8000", f"127.0.0.1:{self.http}").replace(
            "127.0.0.1:1200", f"127.0.0.1:{self.udp}"
        )

    def leave(self) -> None:
        for server in self.servers:
            server.send_signal(signal.SIGTERM)
        for server in self.servers:
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        for settings_file in self.folder.glob("*/settings.py"):
            match = re.search(r"""^SECRET_KEY = ["'](.+)["']$""", settings_file.read_text(), re.MULTILINE)
            assert match is not None
            remove_dictionaries(match[1], self.env["DJANGO_SETTINGS_MODULE"])


@pytest.fixture
def reader(tmp_path: Path, pip_env: dict[str, str]) -> Iterator[Reader]:
    folder, support = tmp_path / "mysite", tmp_path / "support"
    folder.mkdir()
    support.mkdir()
    shutil.copy(ROOT / "tests" / "docs_reader.py", support)
    now = datetime.now(UTC)
    if now.hour == 23 and now.minute >= 58:
        time.sleep(121 - now.second)  # the IDs of the tutorial are of one day
    person = Reader(folder, support, f"{datetime.now(UTC):%y%m%d}", pip_env)
    yield person
    person.leave()


def test_the_tutorial_leads_where_it_says(reader: Reader) -> None:
    for block in page("docs/tutorial.md").blocks:
        reader.follow(block)
    reader.end_session()
    assert reader.told >= 7
    assert reader.compared >= 1
    assert len(reader.servers) == 2
    origin = reader.finish("python", "-c", "import resty_django; print(resty_django.__file__)")
    assert Path(origin.strip()).is_relative_to(reader.folder / ".venv")


def test_the_tutorial_says_what_the_test_looks_for() -> None:
    text = page("docs/tutorial.md").text
    assert re.findall(r"^## \d\. (\w+)", text, re.MULTILINE)[0] == "Install"
    assert re.findall(r'"O(\d{6})', text) == ["261121"] * len(re.findall(r'"O\d', text))
