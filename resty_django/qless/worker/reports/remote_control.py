"""A worker's report about itself, and the requests that operators send to it through the server.

The thread that reports that the worker is alive sends the report and receives the requests. It is woken when the server
announces a request, so that a request takes effect at once; if the announcement is missed, the next report finds it.
The worker's loop follows a request, and only then is the request confirmed. Stacks are collected outside the loop, so
that a loop that hangs can be examined.
"""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import django

import resty_django
from resty_django.conf import conf
from resty_django.redis import StoreError
from resty_django.text import logger

from ...clients.serialization import readable
from ...clients.worker_reports import (
    QUIET,
    RESUME,
    SCALE,
    STOP,
    JobStack,
    ReportedJob,
    WorkerRequest,
    encode_report,
    request_of,
)
from ...errors import QlessError
from ..loop import ExitCode, WorkerLoop
from ..options import WorkerOptions
from ..running_job import RunningJob
from .run_times import UsualTimes
from .stacks import STACKS_EXPIRE_SECONDS, encode_stacks

if TYPE_CHECKING:
    from ...clients.client import Client

log = logger("resty_django.qless.worker")

MAX_NAME_CHARS: Final = 200
"""Maximum length of a name in a report."""


class RemoteControl:
    """The reports of a worker, and what it does on request.

    `wake` makes the thread that reports send a report now. `keep(state)` is called when the worker becomes quiet,
    resumes or is scaled, so that the process that replaces it continues in the same way.
    """

    def __init__(
        self,
        client: Client,
        loop: WorkerLoop,
        options: WorkerOptions,
        *,
        wake: Callable[[], object],
        keep: Callable[[dict[str, Any]], object] = lambda state: None,
    ) -> None:
        self._client = client
        self._loop = loop
        self._options = options
        self._usual_times = UsualTimes(client, loop.in_flight.run_times)
        self._wake = wake
        self._keep = keep
        self._changing = threading.Lock()
        self._taken: set[int] = set()
        """Requests that were given to the loop and are not confirmed yet."""
        self._followed: list[int] = []
        """Requests to confirm with the next report."""
        self._unknown: set[bytes] = set()
        """Requests that were logged because they cannot be followed."""
        self._constant = {
            "host": readable(socket.gethostname(), MAX_NAME_CHARS),
            "pid": os.getpid(),
            "started": time.time(),
            "pool": options.via or options.pool,
            "max_slots": options.max_slots,
            "grace": options.grace,
            "package": resty_django.__version__,
            "python": platform.python_version(),
            "django": django.get_version(),
            "release": readable(conf.qless.release or "", MAX_NAME_CHARS),
        }

    def report(self) -> bytes:
        """Return the text of a report."""
        running = list(self._loop.in_flight.running.values())
        jobs = sorted(map(self._reported, running), key=lambda job: (not job.is_late(), -job.seconds))
        state = {"state": self._loop.state, "slots": self._loop.slots, "used": len(running), "jobs": jobs[:10]}
        return encode_report({**self._constant, **state})

    def confirmations(self) -> list[int]:
        """Return the ids of the requests to confirm."""
        with self._changing:
            return list(self._followed)

    def on_confirmed(self, ids: Sequence[int]) -> None:
        """Forget requests whose confirmation the server has received."""
        with self._changing:
            self._followed = [number for number in self._followed if number not in ids]
            self._taken.difference_update(ids)

    def follow(self, texts: Sequence[bytes]) -> None:
        """Follow requests that the server returned, each once."""
        for text in texts:
            request = request_of(text)
            if request is None:
                if text not in self._unknown and len(self._unknown) < 100:
                    self._unknown.add(text)
                    log.error("worker %s ignores a request that it does not know: %s", self._loop.name, text[:200])
                continue
            with self._changing:
                if request.id in self._taken:
                    continue
                self._taken.add(request.id)
            self._follow(request)

    def _follow(self, request: WorkerRequest) -> None:
        loop = self._loop
        if request.action == QUIET:
            self._in_loop(request, partial(loop.pause, True))
        elif request.action == RESUME:
            self._in_loop(request, partial(loop.pause, False))
        elif request.action == STOP:
            self._in_loop(request, partial(loop.stop, self._options.grace, ExitCode.STOPPED))
        elif request.action == SCALE:
            slots = request.slots or 0
            if slots > self._options.max_slots:
                log.error("worker %s ignores a request for %d slots: that is too many", loop.name, slots)
                self._confirm(request)
            else:
                self._in_loop(request, partial(loop.resize, slots))
        else:
            self._send_stacks(request)
            self._confirm(request)

    def _in_loop(self, request: WorkerRequest, action: Callable[[], object]) -> None:
        """Let the loop act, and confirm the request when it has."""

        def act() -> None:
            log.warning("worker %s was asked to %s", self._loop.name, request.action)
            action()
            self._keep({"paused": self._loop.paused, "slots": self._loop.slots})
            self._confirm(request)

        self._loop.inbox.put(act)

    def _confirm(self, request: WorkerRequest) -> None:
        with self._changing:
            self._followed.append(request.id)
        self._wake()

    def _send_stacks(self, request: WorkerRequest) -> None:
        now = self._client.clock()
        if not -STACKS_EXPIRE_SECONDS < now - request.at < STACKS_EXPIRE_SECONDS:
            return
        try:
            text = encode_stacks(request.id, now, self._stacks())
            self._client.call("worker.stacks", self._loop.name, text)
        except (QlessError, StoreError) as error:
            log.warning("the stacks of worker %s could not be sent: %s", self._loop.name, error)

    def _stacks(self) -> list[JobStack]:
        """Return the stacks of the running jobs, longest-running first."""
        running = [job for job in self._loop.in_flight.running.copy().values() if not job.end]
        running.sort(key=lambda job: job.started_at)
        stacks = self._loop.pool.stacks(running)
        now = time.monotonic()
        return [
            JobStack(
                jid=readable(job.jid, MAX_NAME_CHARS),
                klass=readable(job.job.klass, MAX_NAME_CHARS),
                seconds=round(now - job.started_at, 1),
                frames=stacks.get(job, []),
            )
            for job in running
        ]

    def _reported(self, running: RunningJob) -> ReportedJob:
        klass, seconds = running.job.klass, time.monotonic() - running.started_at
        return ReportedJob(
            jid=readable(running.jid, MAX_NAME_CHARS),
            klass=readable(klass, MAX_NAME_CHARS),
            seconds=round(seconds, 1),
            usual=self._usual_times.usual(klass, seconds),
        )
