"""Fixtures of the tests of events: services over both engines under a clock, and whole processes that listen."""

from __future__ import annotations

import inspect
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from resty_django.conf.sections.core import EventsSettings
from resty_django.events import runtime
from resty_django.events.channels import Channel, channel_of
from resty_django.events.options import EventOptions
from resty_django.events.service import EventService
from resty_django.shdict import SharedDict
from tests import processes
from tests.dictionaries import empty_dictionary

ROOT = Path(__file__).resolve().parents[3]
WORKER = Path(__file__).with_name("worker.py")
FRESH = {"fork_at_once"}
"""Code about imports, which needs a new interpreter."""


@pytest.fixture(params=["lmdb", *(pytest.param(kind, marks=pytest.mark.redis) for kind in ("redis", "redis-async"))])
def kind(request: pytest.FixtureRequest) -> str:
    """Each engine; on Redis also the calls for asyncio, since in memory these only forward."""
    return str(request.param)


@pytest.fixture
def dictionary(request: pytest.FixtureRequest, kind: str) -> Iterator[SharedDict]:
    """An empty dictionary."""
    with closing(empty_dictionary(request, kind.partition("-")[0])) as shared_dict:
        yield shared_dict


@pytest.fixture
def channel(dictionary: SharedDict) -> Channel:
    """An empty channel of each engine."""
    return channel_of(dictionary, 1000)


class Process:
    """A process, simulated in this one.

    `heard`: what a handler for every event was given. The calls are to be awaited; they are sync or the twins.
    """

    def __init__(self, channel: Channel, pid: int, twins: bool) -> None:
        self.heard: list[str] = []
        self.channel = channel
        self.twins = twins
        self.service = EventService(lambda: (channel, EventOptions.of(EventsSettings())), pid=pid)
        self.service.registry.add(lambda data, event, source, pid: self.heard.append(event))

    def on(self, event: str, callback: Callable[..., Any]) -> None:
        """Call `callback()` for an event of the source s."""
        self.service.registry.add(lambda *event_args: callback(), "s", event)

    async def begin(self, **options: Any) -> Process:
        await self._do("begin", self.channel, EventOptions.of(EventsSettings()).changed(**options))
        return self

    async def post(self, event: str, data: Any = None, unique: object = None) -> None:
        await self._do("post", "s", event, data, unique)

    async def poll(self) -> str:
        return str(await self._do("poll"))

    async def _do(self, name: str, *args: Any) -> Any:
        result = getattr(self.service, f"a{name}" if self.twins else name)(*args)
        return await result if inspect.isawaitable(result) else result


Make = Callable[..., Process]


@pytest.fixture
def make(kind: str, channel: Channel) -> Make:
    """Make a `Process` on `channel`."""

    def make(pid: int = 1) -> Process:
        return Process(channel, pid, kind.endswith("-async"))

    return make


@pytest.fixture
def site(tmp_path: Path, settings: Any) -> Iterator[Any]:
    """The events of this process, on a dictionary of the test's own; not started, and nothing is left of them."""
    settings.RESTY_DJANGO = {
        "SHARED_DICTS": {"events": {"PATH": str(tmp_path / "dicts")}},
        "EVENTS": {"INTERVAL": 0.01},
    }
    runtime.reset()
    yield runtime
    runtime.reset()


class Worker(processes.LineProcess):
    """A process that listens; prints a JSON list for each thing that happens to it."""

    def __init__(self, program: Path, what: str, site: dict[str, Any], **options: Any) -> None:
        super().__init__(
            [str(program), what, json.dumps(options)],
            {"RESTY_WORKER_SITE": json.dumps(site)},
            start=subprocess.Popen if what in FRESH else processes.Process,
            own_session=True,
        )

    def wait_for(self, *line: Any, seconds: float = 20.0) -> Worker:
        """Until it has printed this."""
        self.wait_until(lambda: list(line) in self.lines, seconds, line)
        return self

    def leave(self) -> None:
        """End its standard input, and so the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(20) == 0


@pytest.fixture(params=["lmdb", pytest.param("redis", marks=pytest.mark.redis)])
def wide_site(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of a site whose events travel by each engine, for `Worker`."""
    site: dict[str, Any] = {}
    dictionary = {"PATH": str(tmp_path / "dicts")}
    if request.param == "redis":
        request.getfixturevalue("valkey")
        cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": request.getfixturevalue("valkey_url")}
        site, dictionary = {"CACHES": {"default": cache}}, {"ENGINE": "redis"}
    return {**site, "RESTY_DJANGO": {"SHARED_DICTS": {"events": dictionary}, "EVENTS": {"INTERVAL": 0.01}}}


Start = Callable[..., Worker]


def ready(workers: Iterable[Worker]) -> None:
    """Wait until all of them listen to their standard input."""
    for worker in workers:
        worker.wait_until(lambda of=worker: any(line[0] == "ready" for line in of.lines), 60)  # type: ignore[misc]


@contextmanager
def workers_of(program: Path, site: dict[str, Any]) -> Iterator[Start]:
    """Start a `Worker` of a program; all are ended afterwards."""
    started: list[Worker] = []

    def start(what: str, **options: Any) -> Worker:
        started.append(Worker(program, what, site, **options))
        return started[-1]

    yield start
    for worker in started:
        if worker.process.stdout is not None and not worker.process.stdout.closed:
            worker.end()


@pytest.fixture
def worker(wide_site: dict[str, Any]) -> Iterator[Start]:
    """Start a `Worker` of `wide_site`; all are ended after the test."""
    with workers_of(WORKER, wide_site) as start:
        yield start
