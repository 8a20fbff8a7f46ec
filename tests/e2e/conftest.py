"""A separate site for tests that start processes, and a browser."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from resty_django.qless import Client as JobClient
from resty_django.qless.clients.default import default_client
from tests import processes
from tests.e2e.browser import OpenPage
from tests.e2e.layout import QUEUE, fill_site
from tests.integration.limits.policy_tools import limits_site as limits_site
from tests.integration.qless.admin.conftest import jobs_site as jobs_site

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
ROOT = Path(__file__).resolve().parents[2]


def free_udp_port() -> int:
    """Return a free UDP port of 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class Site:
    """A database and the environment in which `manage.py` uses it."""

    env: dict[str, str]
    processes: list[processes.Process] = field(default_factory=list)

    def manage(self, *args: str, text: str | None = None) -> str:
        """Run a command to its end and return what it printed."""
        done = processes.run(
            [sys.executable, "manage.py", *args], cwd=ROOT, env=self.env, input=text, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rule(self, **fields: Any) -> None:
        """Save a rule."""
        self.manage(
            "shell",
            "-c",
            "import json; from resty_django.ids.models import IdRule; "
            f"rule = IdRule(**json.loads({json.dumps(fields)!r})); rule.full_clean(); rule.save()",
        )

    def serve(self, port: int, *args: str) -> processes.Process:
        """Start `runidserver` and wait until it answers."""
        process = processes.Process(
            [sys.executable, "manage.py", "runidserver", "--port", str(port), "--stats", "0", *args],
            cwd=ROOT,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        until = time.monotonic() + 60
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.1)
            sock.connect(("127.0.0.1", port))
            while time.monotonic() < until:
                if process.poll() is not None:
                    pytest.fail(f"runidserver ended: {process.communicate()[0]}")
                try:
                    sock.send(b"{}")
                    sock.recv(65535)
                    return process
                except (TimeoutError, ConnectionRefusedError):
                    time.sleep(0.05)
        pytest.fail("runidserver did not answer within 60 s")

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                with suppress(subprocess.TimeoutExpired):  # another process holds its output; the test reports that
                    process.communicate(timeout=20)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a migrated, otherwise empty SQLite database to copy."""
    path = tmp_path_factory.mktemp("migrated") / "site.sqlite3"
    Site({**os.environ, "RESTY_DB_NAME": str(path), "PYTHONWARNINGS": "ignore"}).manage("migrate", "-v", "0")
    return path


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Return a migrated site; its processes are stopped after the test."""
    env = {**os.environ, "RESTY_VAR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    kind = os.environ.get("RESTY_TEST_DB", "sqlite")
    name = f"resty_e2e_{os.getpid()}"
    new_site = Site(env)
    if kind == "sqlite":
        env["RESTY_DB_NAME"] = str(shutil.copy(request.getfixturevalue("migrated"), tmp_path / "site.sqlite3"))
    else:
        env["RESTY_DB_NAME"] = name
        _server_database(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
        new_site.manage("migrate", "-v", "0")
    try:
        yield new_site
    finally:
        new_site.end()
        if kind != "sqlite":
            _server_database(f"DROP DATABASE IF EXISTS {name}")


def _server_database(*statements: str) -> None:
    from django.conf import settings

    default = settings.DATABASES["default"]
    if default["ENGINE"].endswith("mysql"):
        import MySQLdb

        connection = MySQLdb.connect(host=default["HOST"], user=default["USER"], password=default["PASSWORD"])
    else:
        import psycopg

        connection = psycopg.connect(host=default["HOST"], user=default["USER"], dbname="postgres", autocommit=True)
    try:
        for statement in statements:
            connection.cursor().execute(statement)
    finally:
        connection.close()


@pytest.fixture
def udp_port() -> int:
    return free_udp_port()


@pytest.fixture
def browse(live_server: Any, admin_client: Client) -> Iterator[Callable[..., Any]]:
    """Open a browser as a superuser; the console must be empty at the end of the test."""
    try:
        from selenium import webdriver
    except ImportError:
        pytest.skip("selenium is not installed: pip install selenium")
    if not CHROMIUM or not DRIVER:
        pytest.skip("chromium and chromedriver are not installed: apt-get install chromium chromium-driver")
    opened = []

    def start(*, scripts: bool = True) -> Any:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--window-size=1400,1000",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        if not scripts:
            options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        driver.implicitly_wait(20)  # seconds, for what the next page brings
        opened.append(driver)
        driver.get(f"{live_server.url}/admin/login/")
        driver.add_cookie({"name": "sessionid", "value": admin_client.cookies["sessionid"].value})
        return driver

    try:
        yield start
        complaints = [entry["message"] for driver in opened for entry in driver.get_log("browser")]
        assert [text for text in complaints if "favicon" not in text] == []
    finally:
        for driver in opened:
            driver.quit()


@pytest.fixture
def open_page(live_server: Any, admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenPage]:
    """Open pages with Playwright as a superuser; the console must be empty at the end of the test."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("playwright is not installed: pip install playwright")
    if not CHROMIUM:
        pytest.skip("chromium is not installed: apt-get install chromium")
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # Playwright has a loop in the thread of the test
    complaints: list[str] = []

    def note(message: Any) -> None:
        if message.type in ("error", "warning") and "favicon" not in message.text:
            complaints.append(f"{message.location.get('url')}: {message.text}")

    with sync_playwright() as playwright:
        driver = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])

        def start(*, dark: bool = False, scripts: bool = True, width: int = 1360) -> Any:
            context = driver.new_context(
                color_scheme="dark" if dark else "light",
                java_script_enabled=scripts,
                viewport={"width": width, "height": 900},
                base_url=live_server.url,
            )
            context.set_default_timeout(60_000)
            context.add_cookies(
                [{"name": "sessionid", "value": admin_client.cookies["sessionid"].value, "url": live_server.url}]
            )
            page = context.new_page()
            page.on("console", note)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            return page

        yield OpenPage(start, complaints)
        driver.close()
    assert [text for text in complaints if "404 (Not Found)" not in text] == []


@pytest.fixture
def long_names(limits_site: dict[str, Any], settings: Any, valkey: Any, valkey_url: str) -> JobClient:
    """Return the queue of a site with long names in all apps."""
    settings.RESTY_DJANGO = {
        **limits_site,
        "QLESS": {
            "URL": valkey_url,
            "WORKER_NAME": f"{QUEUE}-worker.example.org-12345",
            "ARCHIVE": {"RETENTION": "365d"},
            "OUTBOX": ["with-outbox"],
        },
        "CACHES": {"pages": {}},
    }
    client = default_client()
    fill_site(client)
    return client
