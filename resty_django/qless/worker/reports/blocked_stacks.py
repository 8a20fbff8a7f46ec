"""Stacks of a worker whose interpreter is blocked: one of its jobs holds the interpreter lock (GIL).

The worker cannot answer a request for stacks then. The process that sends its heartbeats answers instead: it sends the
worker a signal, on which `faulthandler` writes the stacks of all threads into a file that both processes share.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from resty_django.redis import StoreError
from resty_django.text import logger

from ...clients.worker_reports import STACKS
from ...errors import QlessError
from ..processes.fork_server import DUMP_STACK
from .stacks import STACKS_EXPIRE_SECONDS, StackFile, encode_stacks, of_blocked_worker

if TYPE_CHECKING:
    from ...clients.client import Client
    from ..heartbeat import SharedJobs

log = logger("resty_django.qless.worker")

BLOCKED_SECONDS: Final = 12.0
"""Time without a check of its jobs and without a report after which a worker counts as blocked."""


class StackDump(StackFile):
    """The stacks of all threads of a worker. Create it before the fork."""

    max_bytes = 1_000_000

    def enable(self) -> None:
        """Let this process write its stacks on the signal."""
        faulthandler.register(DUMP_STACK, self.descriptor, all_threads=True)

    def take(self, pid: int) -> str:
        """Return the stacks that the process has written; empty if it does not write any."""
        self.clear()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, DUMP_STACK)
        text, until = "", time.monotonic() + 2.0
        while time.monotonic() < until:
            time.sleep(0.1)
            before, text = text, self.text()
            if text and text == before:  # it is complete
                break
        return text


class BlockedStacks:
    """Answers requests for stacks while the worker is blocked. Runs in the process that sends its heartbeats.

    `take` returns the text of the stacks. The request remains unconfirmed, since only the worker confirms requests.
    """

    def __init__(self, client: Client, worker: str, shared: SharedJobs, take: Callable[[], str]) -> None:
        self._client = client
        self._worker = worker
        self._shared = shared
        self._take = take
        self._next = 0.0
        self._answered = 0

    def check(self, now: float) -> None:
        """Look for a request, if the worker is blocked."""
        if now < self._next or now - self._shared.last_sign_of_life() < BLOCKED_SECONDS:
            return
        self._next = now + 2.0
        try:
            self._answer()
        except (QlessError, StoreError) as error:
            log.warning("the stacks of the blocked worker %s could not be sent: %s", self._worker, error)

    def _answer(self) -> None:
        clock = self._client.clock()
        requests = [request for report in self._client.workers.reports(self._worker) for request in report.requests]
        for request in requests:
            if request.action == STACKS and request.id != self._answered and clock - request.at < STACKS_EXPIRE_SECONDS:
                stacks = of_blocked_worker(self._take())
                if stacks:
                    self._client.call("worker.stacks", self._worker, encode_stacks(request.id, clock, stacks))
                    self._answered = request.id
