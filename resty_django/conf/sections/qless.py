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

    Attributes:
        queues: The queues, in order of priority.
        reserver: The polling order of the queues: `ordered`, `round_robin`, `shuffled` or the dotted path of a
            class.
        concurrency: Number of jobs that a process runs concurrently.
        processes: Number of processes.
        interval: Polling interval (seconds) for jobs that arrive without a notification.
        grace: Seconds that running jobs have to finish after SIGTERM before they are returned to the queue.
        middleware: Dotted paths of the middleware around each job, outermost first.
        interrupt: Whether an exception is raised in sync jobs that are revoked, lose their lock or exceed the grace
            time.
        pool: Where jobs run: `threads`, or `processes` for one process per job.
        kill_after: With `processes`: seconds that a job has to end after a revoke, a lost lock or its timeout
            before its process is killed.
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

    Attributes:
        retention: Time for which finished jobs are kept, such as `"365d"`; at least 3600 seconds. None: there is no
            archive.
        workers: Whether workers write the archive; otherwise run `manage.py qless_archive` regularly.
        batch: Maximum number of jobs in a transaction, 1 to 5000.
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

    Attributes:
        queues: Queues whose tasks use it; `["*"]`, the default in a dict: all queues.
        database: Aliases of databases that have the table. The first one is the default of `using`.
        keep: Time for which rows stay after their delivery, and in which delivery is tried; at least 60 seconds.
        workers: Whether workers deliver rows; otherwise run `manage.py qless_outbox`.
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
    """How long, and how many, jobs of a queue are kept that have failed or are complete."""

    failed: float | None = duration(None, check=at_least(60))
    failed_count: int | None = setting(None, check=at_least(0))
    completed: float | None = duration(None, check=at_least(60))
    completed_count: int | None = setting(None, check=at_least(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(QueueRetention):
    """How long, and how many, failed and complete jobs are kept in Redis. Workers delete older ones, the oldest first.

    Attributes:
        failed: Time for which failed jobs are kept, by default 30 days; at least 60 seconds. None: indefinitely.
        failed_count: Maximum number of failed jobs of all queues together. None: unlimited.
        completed: Time for which complete jobs are kept, if it is shorter than the option `jobs-history`. None:
            only the option applies.
        completed_count: Maximum number of complete jobs, if it is lower than the option `jobs-history-count`. None:
            only the option applies.
        queues: By the name of a queue, a dict with the same keys, without `QUEUES`: `{"mail": {"FAILED": "2d"}}`. A
            time replaces the site's; a maximum applies in addition. Missing keys and None: as for the site.
    """

    failed: float | None = duration(30 * 86_400.0, check=at_least(60))
    failed_count: int | None = setting(100_000, check=at_least(0))
    queues: Mapping[str, QueueRetention] = named(QueueRetention)


@dataclass(frozen=True, slots=True, kw_only=True)
class QlessSettings:
    """The job queue.

    Attributes:
        alias: The cache in `CACHES` whose Redis stores the jobs.
        url: The URL of a Redis to use instead of `ALIAS`, such as `redis://10.0.0.1:6379/1`.
        prefix: Prefix of all keys. The default is shared with other qless clients; on a cluster, it needs a hash
            tag, such as `{jobs}ql:`.
        worker_name: Name of the worker in jobs; None: host and PID.
        modules: Modules and packages from which jobs may come, besides the modules `jobs` and `tasks` of installed
            apps; also plain functions of these modules may run as jobs.
        result_ttl: Retention of task results in seconds; None: as long as the jobs.
        eager: For tests: tasks run immediately in the caller.
        on_commit: Queues whose tasks, enqueued in a transaction, wait for its commit; `"*"`: all queues.
        redact: Words: values of arguments whose names contain one of them, whatever the case and separators, are
            never shown.
        redactor: Dotted path of a function that takes the remaining arguments of a job and returns what may be
            shown.
        search_arguments: Whether the index of the job search contains words of arguments. Without them, a search
            for arguments examines all jobs.
        links: Dotted path of a function that takes a job and returns pairs of text and URL, the links of its page.
        release: The site's release, such as a commit or a version. Workers report it.
        max_latency: Age of the oldest runnable job of a queue, in seconds, above which `resty_check` warns; None:
            no warnings.
        max_pause: Seconds of a pause above which it warns of a queue with waiting jobs; None: no warnings.
        failed_window: Seconds in which a failure counts as recent for `resty_check`.
        failed_warning: Number of recent failures of a group that causes a warning there; 0: no warnings.
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
