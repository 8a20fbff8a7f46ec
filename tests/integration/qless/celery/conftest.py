"""Clusters of Celery: real workers, as processes, on a real broker."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import pools

from resty_django.qless import client
from resty_django.qless.worker.handlers import resolve_handler
from tests import processes
from tests.forkserver import ROOT
from tests.integration.qless.celery import celery_app
from tests.integration.qless.conftest import change_settings
from tests.integration.qless.worker.conftest import wait_for

HERE = "tests.integration.qless.celery"
RABBITMQ = "amqp://guest:guest@127.0.0.1:5672//"
POOL = ("--pool=prefork", "--concurrency=2", "--without-gossip", "--without-mingle", "--without-heartbeat")


def _reachable(port: int, what: str) -> None:
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
    except OSError:
        pytest.skip(f"{what} does not answer on 127.0.0.1:{port}.")


@pytest.fixture(
    scope="module",
    params=[
        "valkey",
        pytest.param("rabbitmq", marks=pytest.mark.services),
        pytest.param("redis", marks=pytest.mark.services),
    ],
)
def broker(request: pytest.FixtureRequest, valkey_url: str) -> str:
    """The URL of a broker."""
    if request.param == "rabbitmq":
        _reachable(5672, "RabbitMQ")
        return RABBITMQ
    if request.param == "redis":
        return str(request.getfixturevalue("outside_redis_url"))
    return valkey_url.rsplit("/", 1)[0] + "/9" if valkey_url.count("/") > 2 else f"{valkey_url}/9"


class Cluster:
    """Workers of Celery on a broker, and workers of ours that hand jobs over to them."""

    def __init__(self, broker: str, jobs_url: str, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.processes: list[processes.Process] = []
        self.logs: list[Path] = []
        section = {"URL": jobs_url, "MODULES": [f"{HERE}.jobs", f"{HERE}.celery_app"], "WORKER": {"QUEUES": ["q"]}}
        self.queue = f"qless-{secrets.token_hex(4)}"
        self.env = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.integration.qless.worker.site_settings",
            "TEST_QLESS": json.dumps(section),
            "QLESS_TEST_BROKER": broker,
            "QLESS_TEST_QUEUE": self.queue,
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
            "C_FORCE_ROOT": "1",
        }

    def celery(self, name: str) -> processes.Process:
        """One more worker of Celery, ready."""
        command = [sys.executable, "-m", "celery", "-A", f"{HERE}.celery_app", "worker", "-l", "INFO", "-n", name]
        return self._start([*command, *POOL], " ready.")

    def via(self, *arguments: str) -> processes.Process:
        """`runqless --via celery`, ready."""
        command = [sys.executable, "manage.py", "runqless", "--via", "celery", "--queues", "q"]
        return self._start([*command, *arguments], "serves the queues")

    def worker(self) -> processes.Process:
        """A worker of ours that runs jobs itself."""
        return self._start([sys.executable, "manage.py", "runqless", "--queues", "q,default"], "serves the queues")

    def _start(self, command: list[str], ready: str) -> processes.Process:
        """Start a process; wait until its log says that it is ready."""
        log = self.folder / f"log-{len(self.logs)}"
        with log.open("wb") as output:
            process = processes.Process(
                command,
                cwd=ROOT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        self.logs.append(log)
        wait_for(lambda: ready in log.read_text() or process.poll() is not None, str(command))
        assert process.poll() is None, log.read_text()
        return process

    def kill(self, process: processes.Process) -> None:
        """With all its children, at once."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)

    def text(self) -> str:
        return "\n".join(log.read_text(errors="replace") for log in self.logs)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill(process)


@pytest.fixture
def cluster(broker: str, valkey: Any, valkey_url: str, settings: Any, tmp_path: Path) -> Iterator[Cluster]:
    """Nothing runs yet. This process uses the settings and the app of the cluster."""
    change_settings(settings, URL=valkey_url, MODULES=[f"{HERE}.jobs"])
    resolve_handler.cache_clear()
    cluster = Cluster(broker, valkey_url, tmp_path)
    app = celery_app.app
    app.conf.task_default_queue = cluster.queue
    app.amqp.__dict__.pop("queues", None)
    app.set_current()
    use_broker(broker)
    yield cluster
    cluster.close()
    with app.connection_for_write() as connection:
        connection.default_channel.queue_delete(cluster.queue)
    use_broker("memory://")
    client.close()


def use_broker(url: str) -> None:
    """Let the app of this process send there from now on."""
    app = celery_app.app
    pools.reset()
    app.conf.broker_url = url
    app._after_fork()
