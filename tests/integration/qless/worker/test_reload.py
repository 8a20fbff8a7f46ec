"""`manage.py runqless --reload`, in a new interpreter and with an app whose code changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from resty_django.qless import Client
from tests.forkserver import ROOT
from tests.integration.qless.worker.conftest import descendants, is_there, texts, until, wait_for

pytestmark = [pytest.mark.redis, pytest.mark.timeout(180)]

SETTINGS = """
from tests.integration.qless.worker.site_settings import *
from tests.integration.qless.worker.site_settings import INSTALLED_APPS

INSTALLED_APPS += ["changing"]
"""
JOBS = """
import time
from changing.texts import TEXT
from resty_django.qless import task


@task(queue="q")
def says(seconds=0.0):
    from resty_django.qless import client

    client.source.sync().rpush("said", "begins")
    time.sleep(seconds)
    client.source.sync().rpush("said", TEXT)
"""


class Reloading:
    """The command, and the app in `folder`."""

    def __init__(self, folder: Path, url: str, client: Client, *arguments: str) -> None:
        self.folder, self.client = folder / "changing", client
        self.folder.mkdir()
        (folder / "changing_settings.py").write_text(SETTINGS)
        (self.folder / "__init__.py").touch()
        (self.folder / "jobs.py").write_text(JOBS)
        self.says("one")
        self.log = folder / "log"
        env = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "changing_settings",
            "TEST_QLESS": json.dumps({"URL": url}),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]),
            "RESTY_TEST_DB": "sqlite",
        }
        command = [sys.executable, "manage.py", "runqless", "--reload", "--queues", "q", *arguments]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def says(self, text: str) -> None:
        """Change the module that the module of the jobs imports."""
        (self.folder / "texts.py").write_text(f"TEXT = {text!r}\n")

    def text(self) -> str:
        return self.log.read_text()

    def workers(self, count: int) -> None:
        """Wait until that number of workers have been started, since the beginning."""
        wait_for(lambda: self.text().count("serves the queues") == count, self.text())

    def said(self) -> list[str]:
        return [text for text in texts(self.client, "said") if text != "begins"]

    def put(self, seconds: float = 0.0) -> str:
        jid: str = self.client.queues["q"].put("changing.jobs.says", {"args": [seconds], "kwargs": {}})
        return jid


@pytest.fixture
def reloading(valkey: object, valkey_url: str, client: Client, tmp_path: Path) -> Iterator[Reloading]:
    run = Reloading(tmp_path, valkey_url, client, "--processes", "2")
    run.workers(2)
    yield run
    if run.process.poll() is None:
        run.process.kill()
        run.process.wait(20)


def test_a_change_restarts_the_worker_after_its_jobs(reloading: Reloading, client: Client) -> None:
    until(client, reloading.put(), "complete")
    assert reloading.said() == ["one"]
    long = reloading.put(4.0)
    wait_for(lambda: texts(client, "said")[2:])
    reloading.says("two")
    wait_for(lambda: "texts.py has changed. Restarting." in reloading.text())
    until(client, long, "complete")
    reloading.workers(4)
    until(client, reloading.put(), "complete")
    assert reloading.said() == ["one", "one", "two"]
    assert "returned" not in reloading.text()
    reloading.process.send_signal(signal.SIGTERM)
    assert reloading.process.wait(30) == 0
    assert client.workers.counts() == []


def test_a_mistake_in_the_code_waits_for_its_correction(reloading: Reloading, client: Client) -> None:
    settings = reloading.folder.parent / "changing_settings.py"
    (reloading.folder / "apps.py").write_text("this is not Python\n")
    reloading.says("two")
    wait_for(lambda: "The worker has ended with exit code 1." in reloading.text())
    (reloading.folder / "apps.py").unlink()
    reloading.says("three")
    reloading.workers(4)
    until(client, reloading.put(), "complete")
    assert reloading.said() == ["three"]
    settings.write_text(f"{SETTINGS}\nRESTY_DJANGO['QLESS']['WORKER'] = {{'GRACE': 7.0}}\n")
    reloading.workers(6)
    reloading.process.send_signal(signal.SIGQUIT)
    assert reloading.process.wait(30) == 0


def test_signals_and_the_exit_code_pass_through(reloading: Reloading, client: Client) -> None:
    jid = reloading.put(60.0)
    wait_for(lambda: texts(client, "said"))
    below = descendants(reloading.process.pid)
    reloading.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "is stopping" in reloading.text())
    reloading.process.send_signal(signal.SIGTERM)
    assert reloading.process.wait(30) == 3
    job = client.queues["q"].pop()
    assert job is not None
    assert job.jid == jid
    assert not any(map(is_there, below))


def test_nothing_is_left_when_it_is_killed(reloading: Reloading) -> None:
    below = descendants(reloading.process.pid)
    assert len(below) >= 3
    reloading.process.kill()
    reloading.process.wait(20)
    wait_for(lambda: not any(map(is_there, below)))
