"""Settings of the job queue: `RESTY_DJANGO["QLESS"]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings

from .. import validators
from ..schema import Problem, above, at_least, between, duration, named, one_of, section, setting

POOLS = ("threads", "processes")
"""Where workers run sync jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Worker processes of the job queue: defaults for the options of `manage.py runqless`.

    - `queues`: names of the queues, in order.
    - `reserver`: polling strategy: "ordered", "round_robin", "shuffled" or the dotted path of a class.
    - `concurrency`: number of jobs that a process runs at once.
    - `processes`: number of processes.
    - `interval`: polling interval (seconds) for jobs that arrive without a notification.
    - `grace`: seconds that running jobs have to finish after SIGTERM.
    - `middleware`: dotted paths of the middleware around each job, outermost first.
    - `interrupt`: whether sync jobs get an exception when they lose their lock or the grace period ends.
    - `pool`: where jobs run: "threads", or "processes" for one process per job.
    - `kill_after`: with "processes", seconds that a job that is lost or timed out has to end before it is killed.
    """

    queues: tuple[str, ...] = setting(("default",), check=validators.queue_names)
    reserver: str = setting("ordered", check=validators.not_blank)
    concurrency: int = setting(8, check=between(1, 10_000))
    processes: int = setting(1, check=between(1, 256))
    interval: float = setting(1.0, check=above(0))
    grace: float = setting(30.0, check=at_least(0))
    middleware: tuple[str, ...] = setting((), check=validators.dotted_paths)
    interrupt: bool = setting(False)
    pool: str = setting("threads", check=one_of(*POOLS))
    kill_after: float = setting(1.0, check=at_least(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """The archive of finished jobs in the site's database.

    - `retention`: time for which finished jobs are kept (None: no archive).
    - `workers`: whether workers write it; otherwise only `manage.py qless_archive` does.
    - `batch`: maximum number of jobs in a transaction.
    """

    retention: float | None = duration(None, check=at_least(3600))
    workers: bool = setting(True)
    batch: int = setting(500, check=between(1, 5000))

    @property
    def enabled(self) -> bool:
        return self.retention is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSettings:
    """The outbox: tasks are enqueued by a row in the site's database.

    True is short for all queues, and a list for its queues.

    - `queues`: queues whose tasks use it ("*": all queues, the default of a dict; empty: none).
    - `database`: databases that may contain rows, or one; the first one is the default of `using`.
    - `keep`: time for which rows are kept after their delivery, and for which delivery is tried.
    - `workers`: whether workers deliver rows; otherwise only `manage.py qless_outbox` does.
    """

    queues: tuple[str, ...] = setting((), check=validators.no_empty_texts)
    database: tuple[str, ...] = setting(("default",), check=validators.known_databases)
    keep: float = duration(604_800.0, check=at_least(60))
    workers: bool = setting(True)

    @property
    def is_used(self) -> bool:
        """Whether calls may use the outbox: of these queues, or of a backend for Django's tasks."""
        backends = getattr(settings, "TASKS", {}).values()
        return bool(self.queues) or any(backend.get("OPTIONS", {}).get("OUTBOX") for backend in backends)


def _converted_outbox(value: object, path: tuple[str, ...]) -> tuple[object, list[Problem]]:
    if value is None or isinstance(value, bool):
        value = {"QUEUES": ["*"] if value else []}
    elif isinstance(value, list | tuple | set | frozenset):
        value = {"QUEUES": value}
    elif isinstance(value, Mapping):
        value = {"QUEUES": ["*"], **value}
        if isinstance(value.get("DATABASE"), str):
            value["DATABASE"] = [value["DATABASE"]]
    return value, []


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRetention:
    """How long, and how many, jobs of a queue are kept that have failed or are complete.

    - `failed`, `completed`: time (None: as for the site).
    - `failed_count`, `completed_count`: maximum number (None: only the site's maximum applies).
    """

    failed: float | None = duration(None, check=at_least(60))
    failed_count: int | None = setting(None, check=at_least(0))
    completed: float | None = duration(None, check=at_least(60))
    completed_count: int | None = setting(None, check=at_least(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(QueueRetention):
    """How long, and how many, failed and complete jobs are kept in Redis. Workers delete older ones, the oldest first.

    - `failed`: time for which failed jobs are kept (None: indefinitely).
    - `failed_count`: maximum number of failed jobs of all queues (None: unlimited).
    - `completed`, `completed_count`: the same for complete jobs, if stricter than `jobs-history` and
      `jobs-history-count` (None: only these apply).
    - `queues`: by queue.
    """

    failed: float | None = duration(30 * 86_400.0, check=at_least(60))
    failed_count: int | None = setting(100_000, check=at_least(0))
    queues: Mapping[str, QueueRetention] = named(QueueRetention)


@dataclass(frozen=True, slots=True, kw_only=True)
class QlessSettings:
    """The job queue.

    - `alias`: the cache in `CACHES` whose Redis stores the jobs.
    - `url`: a separate Redis, used instead of `alias`.
    - `prefix`: prefix of all keys.
    - `worker_name`: name of the worker in its jobs (None: host and process ID).
    - `modules`: modules and packages from which jobs may come, besides `jobs` and `tasks` of installed apps. Only their
      plain functions may run as jobs, too.
    - `result_ttl`: seconds for which results of tasks are kept (None: as long as the jobs).
    - `eager`: run tasks where they are called, for tests.
    - `on_commit`: queues whose tasks, enqueued in a transaction, wait for its commit ("*": all queues).
    - `redact`: words; a value whose name contains one of them is never shown.
    - `redactor`: dotted path of a function that takes the arguments of a job and returns what may be shown.
    - `search_arguments`: whether the index of the job search contains words of arguments.
    - `links`: dotted path of a function that takes a job and returns pairs of text and URL for its page.
    - `release`: text that workers report as the release of the site, such as a commit (None: none).
    - `max_latency`: `resty_check` warns of a queue whose oldest runnable job is older, in seconds (None: never).
    - `max_pause`: `resty_check` warns of a queue with waiting jobs that has been paused for longer, in seconds (None:
      never).
    - `failed_warning`, `failed_window`: `resty_check` warns when this number of jobs of a group (0: never) failed
      within this number of seconds.
    - `archive`: the archive of finished jobs.
    - `outbox`: the outbox for tasks that are enqueued in transactions.
    - `retention`: how long failed and complete jobs are kept in Redis.
    """

    alias: str = setting("default", check=validators.known_cache)
    url: str | None = setting(None, check=validators.redis_url)
    prefix: str = setting("ql:", check=validators.key_prefix)
    worker_name: str | None = setting(None, check=validators.not_blank)
    modules: tuple[str, ...] = setting((), check=validators.modules)
    result_ttl: float | None = setting(86_400.0, check=above(0))
    eager: bool = setting(False)
    on_commit: tuple[str, ...] = setting((), check=validators.no_empty_texts)
    worker: WorkerSettings = section(WorkerSettings)
    redact: tuple[str, ...] = setting(
        ("password", "passwd", "pwd", "secret", "token", "api_key", "authorization", "cookie", "card_number", "cvv"),
        check=validators.no_empty_texts,
    )
    redactor: str | None = setting(None, check=validators.dotted_path)
    search_arguments: bool = setting(True)
    links: str | None = setting(None, check=validators.dotted_path)
    release: str | None = setting(None, check=validators.not_blank)
    max_latency: float | None = setting(None, check=above(0))
    max_pause: float | None = setting(3600.0, check=above(0))
    failed_window: float = setting(3600.0, check=above(0))
    failed_warning: int = setting(1, check=at_least(0))
    archive: ArchiveSettings = section(ArchiveSettings)
    outbox: OutboxSettings = section(OutboxSettings, convert=_converted_outbox)
    retention: RetentionSettings = section(RetentionSettings)
