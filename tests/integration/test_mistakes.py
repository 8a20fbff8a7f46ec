"""Each mistake of docs/howto/common-mistakes.md is made for real, and the page shows the printed message."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import processes
from tests.docs_reader import ROOT, page
from tests.integration.mistakes import MISTAKES, Mistake

PAGE = page("docs/howto/common-mistakes.md")
SETTINGS = """
import os
import resty_django
from tests.admin_site import CONTRIB, MIDDLEWARE, TEMPLATES

SECRET_KEY = "mistakes" * 5
INSTALLED_APPS = [*CONTRIB, *resty_django.ALL_APPS, "shop"]
ROOT_URLCONF = "urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SITE_DB"]}}
CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["SITE_REDIS"]}}
SILENCED_SYSTEM_CHECKS = ["resty_django.W006"]  # jobs are in its only cache, so that a mistake there concerns both
RESTY_DJANGO = {}
exec(os.environ["SITE_SETTINGS"])
folder = {"PATH": os.environ["SITE_DICTS"]}
for name in ("default", "bans", "events", "limits"):
    RESTY_DJANGO.setdefault("SHARED_DICTS", {}).setdefault(name, folder)
"""
URLS = "from django.contrib import admin\nfrom django.urls import path\nurlpatterns = [path('admin/', admin.site.urls)]"
MANAGE = "import sys\nfrom django.core.management import execute_from_command_line\nexecute_from_command_line(sys.argv)"
MODULE = "from resty_django.qless import task\n\n@task(queue='mail')\ndef send(order): ...\n"
START = """
import os, sys
sys.modules.update(dict.fromkeys(os.environ["SITE_WITHOUT"].split()))
import django
django.setup()
exec(compile(os.environ["SITE_CODE"], "code", "exec"), {"__name__": "shop.tasks"})
"""


class Site:
    """A site in a folder, whose commands and code run in new processes."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        self.folder = folder
        self.redis_url = redis_url
        files = {
            "mysite.py": SETTINGS,
            "urls.py": URLS,
            "manage.py": MANAGE,
            "shop/__init__.py": "",
            "shop/tasks.py": MODULE,
            "shop/mails.py": MODULE,
        }
        (folder / "shop").mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        assert self.run("manage.py", "migrate", "--verbosity", "0") == ""
        assert self.run("-c", START, code=RULE) == ""

    def make(self, mistake: Mistake, *options: str) -> str:
        """Return what the program prints."""
        output = ""
        if mistake.code:
            without = " ".join(mistake.without)
            output = self.run("-c", START, settings=mistake.settings, code=mistake.code, without=without)
        if mistake.command:
            output += self.run("manage.py", *mistake.command, *options, settings=mistake.settings)
        return output

    def run(self, *arguments: str, settings: str = "", code: str = "", without: str = "") -> str:
        env = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}",
            "DJANGO_SETTINGS_MODULE": "mysite",
            "SITE_DB": str(self.folder / "db.sqlite3"),
            "SITE_REDIS": self.redis_url,
            "SITE_DICTS": str(self.folder),
            "SITE_SETTINGS": settings,
            "SITE_CODE": code,
            "SITE_WITHOUT": without,
        }
        # A fork has all packages imported already, so one that is to be missing takes a new interpreter.
        run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run if without else processes.run
        process = run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return process.stdout + process.stderr


RULE = 'from resty_django.ids.models import IdRule\nIdRule(name="order", source="O{counter:06d}").save()'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, valkey_url: str) -> Site:
    return Site(tmp_path_factory.mktemp("mistakes"), valkey_url)


def entries() -> dict[str, str]:
    """The text below each heading of the page that is about one mistake."""
    parts = re.split(r"^### (.+)$", PAGE.text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def shown(entry: str) -> str:
    """The message that an entry of the page shows; "…" stands for what differs each time."""
    match = re.search(r"^```text\n(.*?)\n```$", entry, re.MULTILINE | re.DOTALL)
    assert match is not None, entry
    return match[1]


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def options(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The options with the UDP port that another socket has, where the mistake is about one."""
    with ExitStack() as stack:
        options = []
        if MISTAKES[request.getfixturevalue("heading")].port:
            taken = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            taken.bind(("127.0.0.1", 0))
            options = ["--port", str(taken.getsockname()[1])]
        yield options


@pytest.mark.pages
@pytest.mark.parametrize("heading", MISTAKES)
def test_the_page_shows_the_message_that_the_program_prints(heading: str, site: Site, options: list[str]) -> None:
    output = words(site.make(MISTAKES[heading], *options))
    pattern = ".+?".join(map(re.escape, words(shown(entries()[heading])).split("…")))
    assert re.search(pattern, output), output


INSTRUCTION = r"Did you mean|must be|such as|\b(Add|Choose|Define|Move|Pass|Raise|Request|[Rr]un|Set|Start|Use|Write)\b"


def test_each_mistake_of_the_page_is_made_and_each_has_a_fix() -> None:
    assert list(entries()) == list(MISTAKES)
    assert len(MISTAKES) >= 25
    for heading, entry in entries().items():
        message, rest = shown(entry), entry.rpartition("```\n")[2].partition("## ")[0]
        assert len(message.split()) > 4, heading
        if rest.strip():
            assert re.search(r"^Cause: \S.+\.\n\nFix: \S.+\.\n", rest, re.MULTILINE | re.DOTALL), heading
        else:
            assert re.search(INSTRUCTION, message), heading
