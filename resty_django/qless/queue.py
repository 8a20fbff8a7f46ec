"""A queue."""

from __future__ import annotations

from typing import Any, Final, overload

from .call import Steps, twins
from .errors import CannotTimeout, NoSuchJob, QueueNotEmpty
from .job import Job, job_list
from .puts import Puts
from .queue_jobs import QueueJobs
from .texts import read, reader
from .values import QueueCounts, QueueStats, Throughput

_COUNTS: Final = reader(QueueCounts)
_STATS: Final = reader(QueueStats)
_THROUGHPUT: Final = reader(Throughput)


class Queue(Puts):
    """`client.queues["name"]`. It is there once a job has been put into it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def jobs(self) -> QueueJobs:
        return QueueJobs(self.client, self.name)

    # --- out ---

    def _take(self, command: str, count: int | None) -> Steps[Any]:
        wanted = 1 if count is None else count
        holder = (self.client.worker_name,) if command == "pop" else ()
        found = job_list(self.client, (yield command, self.name, *holder, wanted))
        return found if count is not None else found[0] if found else None

    @overload
    def pop(self, count: None = None) -> Job | None: ...
    @overload
    def pop(self, count: int) -> list[Job]: ...
    def pop(self, count: int | None = None) -> Any:
        """A job to run, or None; with `count` a list of at most so many. They are locked for this client's worker."""
        return self.client.run(self._take("pop", count))

    @overload
    async def apop(self, count: None = None) -> Job | None: ...
    @overload
    async def apop(self, count: int) -> list[Job]: ...
    async def apop(self, count: int | None = None) -> Any:
        """The same for asyncio."""
        return await self.client.arun(self._take("pop", count))

    @overload
    def peek(self, count: None = None) -> Job | None: ...
    @overload
    def peek(self, count: int) -> list[Job]: ...
    def peek(self, count: int | None = None) -> Any:
        """The job that a pop would meet first, or None; with `count` a list of at most so many."""
        return self.client.run(self._take("peek", count))

    @overload
    async def apeek(self, count: None = None) -> Job | None: ...
    @overload
    async def apeek(self, count: int) -> list[Job]: ...
    async def apeek(self, count: int | None = None) -> Any:
        """The same for asyncio."""
        return await self.client.arun(self._take("peek", count))

    # --- about it ---

    def _counts(self) -> Steps[QueueCounts]:
        """Its jobs by state."""
        return read((yield "queues", self.name), _COUNTS)

    counts, acounts = twins(_counts)

    def _length(self) -> Steps[int]:
        """How many jobs are running, waiting or scheduled."""
        return int((yield "length", self.name))

    length, alength = twins(_length)

    def _stats(self, date: float | None = None) -> Steps[QueueStats]:
        """Of the day (UTC) that holds `date`, in seconds since the epoch; without it, of today."""
        return read((yield "stats", self.name, self.client.clock() if date is None else date), _STATS)

    stats, astats = twins(_stats)

    def _throughput(self) -> Steps[Throughput]:
        """The jobs completed in the last minutes, hours and days."""
        return read((yield "throughput", self.name), _THROUGHPUT)

    throughput, athroughput = twins(_throughput)

    def _due(self) -> Steps[float | None]:
        """When a pop may find something, in seconds since the epoch; None: nothing is there."""
        reply = yield "due", self.name
        return None if reply is None else float(reply)

    due, adue = twins(_due)

    def _paused(self) -> Steps[bool]:
        return (yield from self._counts()).paused

    paused, apaused = twins(_paused)

    def _pause(self, stop_jobs: bool = False) -> Steps[None]:
        """Hand out no jobs. `stop_jobs`: also take those that run from their workers."""
        yield "pause", self.name
        if stop_jobs:
            running = yield [("jobs", kind, self.name, 0, -1) for kind in ("running", "stalled")]
            jids = dict.fromkeys(jid for found in running for jid in _raised(found))
            for outcome in (yield [("timeout", jid) for jid in jids]) if jids else ():
                if not isinstance(outcome, CannotTimeout | NoSuchJob):  # over in the meantime
                    _raised(outcome)

    pause, apause = twins(_pause)

    def _unpause(self) -> Steps[None]:
        """Hand out jobs again."""
        yield "unpause", self.name

    unpause, aunpause = twins(_unpause)

    def _forget(self) -> Steps[None]:
        """Do not list it any more. Raises `QueueNotEmpty`."""
        found = yield from self._counts()
        kinds = ("waiting", "running", "stalled", "scheduled", "depends", "recurring")
        left = {kind: getattr(found, kind) for kind in kinds if getattr(found, kind)}
        if left:
            about = ", ".join(f"{count} {kind}" for kind, count in left.items())
            raise QueueNotEmpty(f"The queue {self.name} has jobs: {about}. Cancel or move them first.")
        yield "queue.forget", self.name

    forget, aforget = twins(_forget)

    # --- its options ---

    def _config_get(self, option: str, default: Any = None) -> Steps[Any]:
        """The value of the queue's own option, such as `heartbeat`; None: it has none."""
        return (yield from self.client.config._get(f"{self.name}-{option}", default))

    config_get, aconfig_get = twins(_config_get)

    def _config_set(self, option: str, value: str | float) -> Steps[None]:
        """Set an option of the queue."""
        yield from self.client.config._set(f"{self.name}-{option}", value)

    config_set, aconfig_set = twins(_config_set)

    def _get_heartbeat(self) -> Steps[float]:
        own = yield from self._config_get("heartbeat")
        return float((yield from self.client.config._get("heartbeat", 60)) if own is None else own)

    get_heartbeat, aget_heartbeat = twins(_get_heartbeat)

    @property
    def heartbeat(self) -> float:
        """Seconds of the lock of a job: the queue's own, else that of all queues. `aget_heartbeat` for asyncio."""
        return self.get_heartbeat()

    @heartbeat.setter
    def heartbeat(self, seconds: float) -> None:
        self.config_set("heartbeat", seconds)

    def _get_max_concurrency(self) -> Steps[int]:
        return int((yield from self._config_get("max-concurrency", 0)))

    get_max_concurrency, aget_max_concurrency = twins(_get_max_concurrency)

    @property
    def max_concurrency(self) -> int:
        """The most jobs that run at once; 0: no bound. `aget_max_concurrency` for asyncio."""
        return self.get_max_concurrency()

    @max_concurrency.setter
    def max_concurrency(self, count: int) -> None:
        self.config_set("max-concurrency", count)


def _raised(outcome: Any) -> Any:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


__all__ = ["Queue"]
