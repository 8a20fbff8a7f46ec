"""The core of the job queue on a real server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis
from redis.client import PubSub
from redis.exceptions import NoScriptError, ResponseError

from resty_django.qless import Client, Job, Queue
from resty_django.qless.core import PREFIX, source

NOW = 1_400_000_000.0
LONG = 60.0
"""Seconds in which a task ends, also on a busy machine."""
MESSAGE = re.compile(r"(?:@user_script:\d+: )?user_script:\d+: (.*?)(?: script: .*)?$", re.DOTALL)


class CoreError(Exception):
    """The error that the core raised, without its place."""


class Core:
    """Calls commands; `now` stands still until a test moves it."""

    def __init__(self, client: Redis, prefix: str = PREFIX) -> None:
        self.client = client
        self.prefix = prefix
        self.text = source(prefix)
        self.sha = client.script_load(self.text)
        self.now = NOW

    def __call__(self, command: str, *args: Any) -> Any:
        """The reply, its texts decoded. Raises `CoreError`."""
        command_args = (
            command,
            repr(self.now),
            *(json.dumps(arg) if isinstance(arg, list | dict) else arg for arg in args),
        )
        try:
            try:
                reply = self.client.evalsha(self.sha, 0, *command_args)
            except NoScriptError:
                reply = self.client.eval(self.text, 0, *command_args)
        except ResponseError as error:
            message = MESSAGE.search(str(error))
            raise CoreError(message[1] if message else f"without a place: {error}") from None
        return text_of(reply)

    def json(self, command: str, *args: Any) -> Any:
        return json.loads(self(command, *args))

    def put(self, jid: str = "j", queue: str = "q", data: Any = "{}", delay: float = 0, **options: Any) -> str:
        pairs = [argument for name, value in options.items() for argument in (name, value)]
        return str(self("put", "client", queue, jid, "Klass", data, delay, *pairs))

    def get(self, jid: str = "j") -> Any:
        text = self("get", jid)
        return None if text is None else json.loads(text)

    def pop(self, worker: str = "w", queue: str = "q", count: int = 1) -> list[Any]:
        return list(self.json("pop", queue, worker, count))

    def popped(self, worker: str = "w", queue: str = "q", count: int = 1) -> list[str]:
        return [job["jid"] for job in self.pop(worker, queue, count)]

    def complete(self, jid: str = "j", worker: str = "w", queue: str = "q", **options: Any) -> str:
        pairs = [argument for name, value in options.items() for argument in (name, value)]
        return str(self("complete", jid, worker, queue, "{}", *pairs))

    def config(self, **options: Any) -> None:
        for name, value in options.items():
            self("config.set", name.replace("_", "-"), value)

    def hash(self, key: str) -> dict[str, str]:
        return {str(text_of(k)): str(text_of(v)) for k, v in self.client.hgetall(self.prefix + key).items()}

    def zset(self, key: str) -> dict[str, float]:
        return {str(text_of(k)): v for k, v in self.client.zrange(self.prefix + key, 0, -1, withscores=True)}

    def stats(self, queue: str = "q") -> Any:
        return self.json("stats", queue, self.now)


def text_of(reply: Any) -> Any:
    if isinstance(reply, list):
        return [text_of(element) for element in reply]
    return reply.decode() if isinstance(reply, bytes) else reply


class Events:
    """The messages on the channels of the core, in order."""

    def __init__(self, client: Redis, prefix: str = PREFIX) -> None:
        self.client = client
        self.prefix = prefix
        self.heard: PubSub = client.pubsub()
        self.heard.psubscribe(f"{prefix}*")
        while not self.heard.get_message(timeout=5):
            pass

    def __call__(self) -> list[tuple[str, Any]]:
        """Since the last call: channel and payload, JSON read. What is on `wake:` channels goes to `wakes` instead."""
        self.client.publish(f"{self.prefix}end", "")
        messages: list[tuple[str, Any]] = []
        self.wakes: list[tuple[str, float]] = []
        while True:
            message = self.heard.get_message(timeout=10)
            assert message is not None
            channel, payload = message["channel"].decode(), message["data"].decode()
            if channel == f"{self.prefix}end":
                return messages
            if channel.startswith(f"{self.prefix}wake:"):
                self.wakes.append((channel, float(payload)))
            else:
                messages.append((channel, json.loads(payload) if payload.startswith("{") else payload))


@pytest.fixture
def core(valkey: Redis) -> Core:
    return Core(valkey)


@pytest.fixture
def events(valkey: Redis) -> Iterator[Events]:
    heard = Events(valkey)
    yield heard
    heard.heard.close()


class Invoke:
    """Calls a method, or its twin for asyncio: `await invoke(queue.put, "Klass")`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def __call__(self, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if self.kind == "sync":
            return method(*args, **kwargs)
        owner = method.__self__  # type: ignore[attr-defined]
        return await getattr(owner, f"a{method.__name__}")(*args, **kwargs)


@pytest.fixture
def invoke() -> Invoke:
    """Call the twin: both are made from one generator, and other tests call the sync ones."""
    return Invoke("async")


@pytest.fixture
def client(valkey: Redis, valkey_url: str) -> Iterator[Client]:
    """The client of the worker `w`, whose clock a test may move by `client.skew`."""
    skewed = SkewedClient(valkey_url)
    yield skewed
    skewed.close()


class SkewedClient(Client):
    def __init__(self, url: str, **options: Any) -> None:
        self.skew = 0.0
        super().__init__(url, **{"worker_name": "w", "clock": lambda: time.time() + self.skew, **options})


def change_settings(settings: Any, **options: Any) -> None:
    """Change settings of the job queue; the others stay."""
    section = {**settings.RESTY_DJANGO.get("QLESS", {}), **options}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": section}


def pop(queue: Queue) -> Job:
    """Pop the next job of a queue, which must have one."""
    job = queue.pop()
    assert isinstance(job, Job)
    return job


def job_of(client: Any, jid: str) -> Job:
    """Return a job that must exist and not be a recurring one."""
    job = client.jobs.get(jid)
    assert isinstance(job, Job)
    return job


def history(client: Any, jid: str) -> list[str]:
    """The events of a job, oldest first."""
    return [entry["what"] for entry in job_of(client, jid).raw_queue_history]


@pytest.fixture
def no_tasks() -> Iterator[None]:
    """Hide the tasks of the demo site and of other tests, as if no module with tasks had been imported."""
    from resty_django.qless.job_classes import discover_once
    from resty_django.qless.tasks.base import all_tasks
    from resty_django.qless.tasks.schedule import scheduled

    discover_once()
    tasks, schedules = list(all_tasks), dict(scheduled)
    all_tasks.clear()
    scheduled.clear()
    yield
    all_tasks.update(tasks)
    scheduled.clear()
    scheduled.update(schedules)
