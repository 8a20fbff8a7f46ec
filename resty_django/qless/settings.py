"""The settings of the job queue: `RESTY_DJANGO["QLESS"]`."""

from __future__ import annotations

from dataclasses import dataclass

from resty_django.conf import validators
from resty_django.conf.schema import above, at_least, between, section, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Worker processes of the job queue, where `manage.py runqless` is told nothing else.

    `queues`: their names, the first one first. `reserver`: "ordered", "round_robin", "shuffled" or the dotted path of a
    class. `concurrency`: jobs that a process runs at once; `processes`: how many there are. `interval`: seconds between
    two looks for jobs that nobody told of. `grace`: seconds that jobs have to end after SIGTERM. `middleware`: dotted
    paths of what is around each job, outermost first. `interrupt`: sync jobs get an exception when they lose their lock
    or the grace time is over.
    """

    queues: tuple[str, ...] = setting(("default",), check=validators.queue_names)
    reserver: str = setting("ordered", check=validators.not_blank)
    concurrency: int = setting(8, check=between(1, 10_000))
    processes: int = setting(1, check=between(1, 256))
    interval: float = setting(1.0, check=above(0))
    grace: float = setting(30.0, check=at_least(0))
    middleware: tuple[str, ...] = setting((), check=validators.dotted_paths)
    interrupt: bool = setting(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QlessSettings:
    """The job queue.

    `alias`: the cache in `CACHES` whose Redis has the jobs; `url`: a separate Redis in place of it. `prefix`: what
    all keys begin with. `worker_name`: what jobs say of their worker (None: host and process). `modules`: modules
    and packages from which jobs may come, besides `jobs` and `tasks` of installed apps. `result_ttl`: seconds that
    results of tasks are kept (None: as long as the jobs). `eager`: tasks run where they are called, for tests.
    `on_commit`: queues whose tasks, enqueued in a transaction, wait for its commit ("*": all). `redact`: words;
    what is under a name with one of them in it is shown to nobody; `redactor`: dotted path of a function that is
    given the arguments of a job and gives what may be shown; `links`: one that is given a job and gives pairs of
    text and URL for its page. `failed_window`, `failed_warning`: `resty_check` warns of so many jobs of a group
    that have failed in so many seconds (0: never).
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
        ("password", "passwd", "secret", "token", "api_key", "apikey", "authorization", "cookie", "card_number", "cvv"),
        check=validators.no_empty_texts,
    )
    redactor: str | None = setting(None, check=validators.dotted_path)
    links: str | None = setting(None, check=validators.dotted_path)
    failed_window: float = setting(3600.0, check=above(0))
    failed_warning: int = setting(1, check=at_least(0))
