"""The client of the job queue."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from resty_django.redis import Origin

from .call import Caller, Steps, twins
from .config import Config
from .core import PREFIX
from .events import Events
from .jobs import Jobs
from .queues import Queues
from .texts import read, reader, texts
from .workers import Workers

_JSON = reader(object)
_UNFAILED = 10_000


class Client(Caller):
    """See the package. Usable in all threads and loops, and after a fork.

    `redis`: where the jobs are, as an alias of CACHES, a URL, a client of redis-py (also of a cluster, also of
    asyncio), or a function that makes one; `async_redis`: the same for asyncio, where `redis` does not serve for both.
    `prefix`: what all keys begin with; on a cluster it has a hash tag, such as `{jobs}ql:`. `worker_name`: what the
    jobs that are popped say of their worker (None: `<host>-<pid>`). `name`: of this client, for logs. `clock`: gives
    the seconds since the epoch.
    """

    def __init__(
        self,
        redis: Origin = "default",
        *,
        async_redis: Origin | None = None,
        prefix: str = PREFIX,
        worker_name: str | None = None,
        name: str = "default",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(redis, async_redis, prefix, clock)
        self.name = name
        self._worker_name = worker_name
        self._own_name: tuple[int, str] = (0, "")
        self.queues = Queues(self)
        self.jobs = Jobs(self)
        self.workers = Workers(self)
        self.config = Config(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.prefix}>"

    @property
    def client(self) -> Client:
        return self

    @property
    def worker_name(self) -> str:
        """What jobs popped by this client say of their worker. Without one of its own each process has another."""
        if self._worker_name is not None:
            return self._worker_name
        pid = os.getpid()
        if self._own_name[0] != pid:
            self._own_name = (pid, f"{socket.gethostname()}-{pid}")
        return self._own_name[1]

    @worker_name.setter
    def worker_name(self, name: str | None) -> None:
        self._worker_name = name

    def events(self) -> Events:
        """A listener with a connection of its own."""
        return Events(self)

    @staticmethod
    def generate_jid() -> str:
        """32 hexadecimal digits, at random."""
        return os.urandom(16).hex()

    def _track(self, jid: str) -> Steps[bool]:
        """Let events tell of a job; False: they did already. Raises `QlessError` where there is no such job."""
        return bool((yield "track", "track", jid) == b"1")

    track, atrack = twins(_track)

    def _untrack(self, jid: str) -> Steps[bool]:
        """The opposite of `track`; False: it was not tracked."""
        return bool((yield "track", "untrack", jid) == b"1")

    untrack, auntrack = twins(_untrack)

    def _tags(self, offset: int = 0, count: int = 100) -> Steps[list[str]]:
        """The tags that are used twice or more, most used first."""
        return _list((yield "tag", "top", offset, count))

    tags, atags = twins(_tags)

    def _bulk_cancel(self, jids: Iterable[str]) -> Steps[list[str]]:
        """Delete jobs, also such as depend on each other; gives their jids. Raises `DependencyError`."""
        wanted = tuple(jids)
        return texts((yield "cancel", *wanted)) if wanted else []

    bulk_cancel, abulk_cancel = twins(_bulk_cancel)

    def _unfail(self, group: str, queue: str, count: int = 500) -> Steps[int]:
        """Let the oldest `count` failed jobs of a group wait in a queue; gives how many there were."""
        return int((yield "unfail", queue, group, count))

    unfail, aunfail = twins(_unfail)

    def _unfail_all(self) -> Steps[int]:
        """Let all failed jobs wait, those of each group in the queue of its newest; gives how many there were."""
        moved = 0
        for group, count in (yield from self.jobs._failed_groups()).items():
            newest = (yield from self.jobs._failed_in(group, 0, 1)).jobs
            if not newest:
                continue
            for first in range(0, count, _UNFAILED):
                moved += yield from self._unfail(group, newest[0].queue_name, min(_UNFAILED, count - first))
        return moved

    unfail_all, aunfail_all = twins(_unfail_all)

    def _deregister_workers(self, names: Iterable[str]) -> Steps[None]:
        """Take workers off the list; their jobs stay theirs until the locks expire."""
        wanted = tuple(names)
        if wanted:
            yield "worker.deregister", *wanted

    deregister_workers, aderegister_workers = twins(_deregister_workers)

    def _config_get(self, option: str, default: Any = None) -> Steps[Any]:
        """`config.get`."""
        return (yield from self.config._get(option, default))

    config_get, aconfig_get = twins(_config_get)

    def _config_set(self, option: str, value: str | float) -> Steps[None]:
        """`config.set`."""
        yield from self.config._set(option, value)

    config_set, aconfig_set = twins(_config_set)

    def _config_get_all(self) -> Steps[dict[str, Any]]:
        """`config.all`."""
        return (yield from self.config._all())

    config_get_all, aconfig_get_all = twins(_config_get_all)

    def _config_clear(self, option: str) -> Steps[None]:
        """`config.unset`."""
        yield from self.config._unset(option)

    config_clear, aconfig_clear = twins(_config_clear)

    def close(self) -> None:
        """Close what was made from a URL or by a function, but for asyncio, which closes with its loop."""
        self.source.close()


def _list(reply: bytes) -> list[Any]:
    found = read(reply, _JSON)
    return found if isinstance(found, list) else []


__all__ = ["Client"]
