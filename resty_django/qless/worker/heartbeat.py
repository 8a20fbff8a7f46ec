"""The heartbeat process: sends heartbeats for a worker process whose interpreter is blocked.

A job can hold the interpreter lock (GIL) for longer than the leases of its process last, for example in a loop in C or
a regular expression that never ends. Then the thread that sends heartbeats does not run. So the worker keeps the jids
of its jobs and the time of its last check in memory that it shares with its parent. If the worker has not checked for
too long, the parent starts a process that sends the heartbeats until the worker checks again. It sends none for a
worker that is dead or stopped.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from resty_django.processes.forks import fork
from resty_django.processes.supervisor import end_with_parent
from resty_django.redis import StoreError
from resty_django.text import logger

from ..clients.default import default_client
from ..errors import QlessError
from .forks import HANDLED
from .reports.blocked_stacks import BLOCKED_SECONDS, BlockedStacks, StackDump
from .running_job import DEFAULT_LEASE_SECONDS, RENEWALS_PER_LEASE

log = logger("resty_django.qless.worker")

STUCK_SECONDS: Final = 3600.0
"""Time without a check after which a worker counts as permanently stuck: its jobs go to other workers."""
SLOT_BYTES: Final = 256
"""Memory for a jid and its length; jobs with longer jids are not included."""

_CHECK: Final = struct.Struct("=dd")
"""At the beginning of the memory: the time of the last check, and the lease in seconds."""
_REPORT: Final = struct.Struct("=d")
"""After that: the time of the last report."""
_JID_LENGTH: Final = struct.Struct("=H")
"""At the beginning of a slot."""


class SharedJobs:
    """The jids of a worker's running jobs, in memory shared with its parent. One thread writes; times are monotonic.

    `jobs`: maximum number of jids.
    """

    def __init__(self, jobs: int) -> None:
        self._memory = mmap.mmap(-1, SLOT_BYTES * (jobs + 1))
        self._free = list(range(jobs, 0, -1))
        self._slots: dict[str, int] = {}
        self.clear()

    def clear(self) -> None:
        """Forget the jobs of a worker that has ended. Called by the parent, for the next worker."""
        self._memory[:] = bytes(len(self._memory))
        self.record_check(time.monotonic(), DEFAULT_LEASE_SECONDS)

    def record_check(self, now: float, lease: float) -> None:
        """Record that the worker has checked its jobs; their leases last at least `lease` seconds."""
        _CHECK.pack_into(self._memory, 0, now, lease)

    def record_report(self, now: float) -> None:
        """Record that the worker's thread that reports is running. Called by that thread."""
        _REPORT.pack_into(self._memory, _CHECK.size, now)

    def last_sign_of_life(self) -> float:
        """Return the time of the last check or report, whichever is later."""
        return max(self.last_check()[0], float(_REPORT.unpack_from(self._memory, _CHECK.size)[0]))

    def add(self, jid: str) -> None:
        name = jid.encode("utf-8", "surrogateescape")
        if jid in self._slots or not self._free or len(name) > SLOT_BYTES - _JID_LENGTH.size:
            return
        slot = self._slots[jid] = self._free.pop()
        start = slot * SLOT_BYTES
        self._memory[start + _JID_LENGTH.size : start + _JID_LENGTH.size + len(name)] = name
        _JID_LENGTH.pack_into(self._memory, start, len(name))  # last, so that a reader sees a complete jid or none

    def remove(self, jid: str) -> None:
        slot = self._slots.pop(jid, None)
        if slot is not None:
            _JID_LENGTH.pack_into(self._memory, slot * SLOT_BYTES, 0)
            self._free.append(slot)

    def is_silent(self, now: float) -> bool:
        """Return whether the worker has not checked its jobs, or has given no sign of life, for too long."""
        last_check, lease = self.last_check()
        is_late = now - last_check >= lease / RENEWALS_PER_LEASE and self.jids() != []
        return is_late or now - self.last_sign_of_life() >= BLOCKED_SECONDS

    def last_check(self) -> tuple[float, float]:
        """Return the time of the last check, and the lease in seconds."""
        return _CHECK.unpack_from(self._memory, 0)

    def jids(self) -> list[str]:
        """Return the jids of the jobs."""
        jids = []
        for start in range(SLOT_BYTES, len(self._memory), SLOT_BYTES):
            length = min(_JID_LENGTH.unpack_from(self._memory, start)[0], SLOT_BYTES - _JID_LENGTH.size)
            if length:
                name = self._memory[start + _JID_LENGTH.size : start + _JID_LENGTH.size + length]
                jids.append(name.decode("utf-8", "surrogateescape"))
        return jids


class StandInHeartbeats:
    """Decides at each `check` which jobs need heartbeats, and sends them. All I/O happens in its arguments.

    `is_alive` returns whether the worker runs; `send(jid)` sends one heartbeat, and raises `QlessError` if the server
    refuses it.
    """

    def __init__(
        self, worker: str, shared: SharedJobs, is_alive: Callable[[], bool], send: Callable[[str], object]
    ) -> None:
        self._worker = worker
        self._shared = shared
        self._is_alive = is_alive
        self._send = send
        self._logged_check = 0.0
        """The time of the worker's last check when its silence was logged."""
        self._next = 0.0

    def check(self, now: float) -> list[str]:
        """Send the heartbeats that are due; return the jobs whose leases were renewed."""
        last_check, lease = self._shared.last_check()
        silence = now - last_check
        if silence < lease / RENEWALS_PER_LEASE:
            self._next = 0.0
            return []
        jids = self._shared.jids()
        if not jids or now < self._next or silence > STUCK_SECONDS or not self._is_alive():
            return []
        if self._logged_check != last_check:
            self._logged_check = last_check
            log.warning(
                "worker %s has not checked its jobs for %.0f s: a job holds the interpreter lock (GIL). Sending their "
                "heartbeats instead: %s",
                *(self._worker, silence, ", ".join(jids)),
            )
        self._next = now + lease / RENEWALS_PER_LEASE
        if now + lease / RENEWALS_PER_LEASE - last_check > STUCK_SECONDS:
            log.error("worker %s is stuck; sending no more heartbeats for it", self._worker)
        return [jid for jid in jids if self._renew(jid)]

    def _renew(self, jid: str) -> bool:
        if not self._is_alive():
            return False
        try:
            self._send(jid)
        except (QlessError, StoreError):  # the job has ended or is lost; or the server is down: the next check retries
            return False
        return True


class StandIn:
    """The parent's part: the memory of one worker process, and the process that stands in for it when necessary.

    `jobs`: maximum number of jobs. The process that calls `check` must have no threads.
    """

    def __init__(self, jobs: int) -> None:
        self.shared = SharedJobs(jobs)
        self.dump = StackDump()
        self._pid = 0

    def check(self, name: str, worker: int, now: float) -> None:
        """Start the process if the worker with this name and pid has been silent for too long."""
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0
        if self._pid or not self.shared.is_silent(now):
            return
        end_with_me = end_with_parent(signal.SIGKILL)

        def serve() -> None:
            end_with_me()
            self._serve(name, worker)

        failed = partial(log.exception, "the process that sends heartbeats for worker %s failed", name)
        self._pid = fork(serve, failed)

    def worker_ended(self) -> None:
        """End the process, and prepare for the next worker."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
        self.shared.clear()

    def _serve(self, name: str, worker: int) -> None:
        for number in (*HANDLED, signal.SIGHUP):  # sent to the whole group; it ends with the worker
            signal.signal(number, signal.SIG_IGN)
        client = default_client()
        heartbeats = StandInHeartbeats(
            name, self.shared, lambda: is_running(worker), lambda jid: client.call("heartbeat", jid, name)
        )
        stacks = BlockedStacks(client, name, self.shared, lambda: self.dump.take(worker) if is_running(worker) else "")
        while self.shared.is_silent(time.monotonic()):
            heartbeats.check(time.monotonic())
            stacks.check(time.monotonic())
            time.sleep(0.5)


def is_running(worker: int) -> bool:
    """Return whether a worker process is neither dead nor stopped."""
    try:
        os.kill(worker, 0)
        state = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except (OSError, IndexError):  # /proc is not mounted
        return True
    return state not in "TtZX"
