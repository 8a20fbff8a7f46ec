"""Tasks: functions that run as jobs.

    from resty_django.qless.task import task

    @task(queue="mail", retries=3, backoff=5)
    def send_invoice(order): ...

    send_invoice.delay(7)

docs/qless/tasks.md tells all of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar, overload

from asgiref.sync import iscoroutinefunction
from django.utils.functional import cached_property

from resty_django.conf import conf
from resty_django.txid import current

from .backoff import Backoff
from .canvas import Signature, Step, chain, chord, group
from .classes import Performer
from .clients import Client
from .job import Job
from .message import Message, Source, call_of, data_of
from .options import list_text
from .parameters import Parameters
from .putting import Putting
from .results import AsyncResult, GroupResult, TaskFailed
from .run import Run, timestamp
from .schedule import Schedule
from .texts import encode

P = ParamSpec("P")
R = TypeVar("R")

QUEUE: Final = "default"
BACKOFF: Final = 1.0
"""Seconds before the first retry, where `retries` is given and `backoff` is not."""


class Task(Putting[P, R], Performer):
    """A function that runs as a job. Called, it is the plain function. Made by `task`."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        queue: str = QUEUE,
        priority: int = 0,
        retries: int | None = None,
        backoff: float | Sequence[float] | None = None,
        retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        timeout: float | None = None,
        unique: bool | Sequence[str] = False,
        tags: Iterable[str] = (),
        rate: str | float | None = None,
        bind: bool = False,
        every: float | None = None,
        cron: str | None = None,
        ignore_result: bool = False,
        result_ttl: float | None = None,
        middleware: Iterable[Any] = (),
    ) -> None:
        functools.update_wrapper(self, function)
        if "<" in function.__qualname__:
            raise TypeError(f"{function.__qualname__} cannot be a task: workers find functions at the top of a module.")
        self.function = function
        self.path = f"{function.__module__}.{function.__qualname__}"
        self.queue = queue
        self.retries = retries
        self.timeout = timeout
        self.unique = unique
        self.tags = [*tags]
        self.rate = rate
        self.bind = bind
        self.keep_result = not ignore_result
        self._result_ttl = result_ttl
        self._around = tuple(middleware)
        again = retries is not None or backoff is not None
        exceptions = retry_on if isinstance(retry_on, tuple) else (retry_on,)
        self._backoff = Backoff(BACKOFF if backoff is None else backoff, exceptions if again else ())
        self.parameters = Parameters(function, self.path, bind)
        if unique is not True and unique and (unknown := sorted({*unique} - {*self.parameters.names})):
            raise TypeError(f"{self.path}: unique= names {unknown[0]!r}, which is no argument of the function.")
        self.names = self.parameters.names
        self._options = self._usual_options(priority)
        self.schedule = Schedule.of(self, every, cron)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*self._with_run(None, [*args], kwargs), **kwargs)

    def message(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        client: Client,
        countdown: float | None = None,
        eta: datetime | None = None,
        queue: str | None = None,
        priority: int | None = None,
        task_id: str | None = None,
        depends: Iterable[Any] = (),
        tags: Iterable[str] = (),
        expires: float | datetime | None = None,
        retries: int | None = None,
        source: Source = None,
    ) -> Message:
        """The job that is to be put.

        `countdown`: seconds until it may run; `eta`: when, in place of it. `queue`, `priority`, `retries`: other ones
        than the task has; `tags`: more than it has. `task_id`: in place of a random one. `depends`: IDs or outcomes of
        tasks and jobs that must have ended well before. `expires`: seconds from now, or the time, after which it is not
        run any more, but fails.
        """
        self.parameters.check(args, kwargs, source)
        now = client.clock()
        if countdown is not None and eta is not None:
            raise TypeError("countdown= and eta= cannot be used together: both say when the task is run.")
        when = now + countdown if countdown else timestamp(eta) if eta is not None else None
        until = timestamp(expires) if isinstance(expires, datetime) else None if expires is None else now + expires
        options = self._options
        waited = [str(each) for each in depends]
        if priority is not None or tags or retries is not None or waited:
            options = self._given_options(priority, tags, retries, waited)
        if task_id is None and self.unique:
            names = self.parameters.names if self.unique is True else self.unique
            task_id = self.parameters.digest(names, args, kwargs, source)
            options += ("unique", "pending")
        txid = current()
        if txid is not None:
            options += ("txid", txid)
        return Message(
            queue=queue or self.queue,
            jid=task_id or client.generate_jid(),
            klass=self.path,
            data=encode(data_of(args, kwargs, until, source)),
            when=when,
            options=options,
        )

    # --- to run it ---

    @property
    def perform(self) -> Callable[[Job], Any]:  # type: ignore[override]
        return self._aperform if iscoroutinefunction(self.function) else self._perform

    @property
    def result_ttl(self) -> float | None:  # type: ignore[override]
        return conf.qless.result_ttl if self._result_ttl is None else self._result_ttl

    @cached_property
    def middleware(self) -> tuple[Any, ...]:  # type: ignore[override]
        """What the worker puts around each run, the outermost first."""
        from .worker.middleware import Timeout
        from .worker.middleware.rate import Rate

        limit = () if self.rate is None else (Rate(self.rate, self.path),)
        timeout = () if self.timeout is None else (Timeout(self.timeout),)
        again = (self._backoff,) if self._backoff.exceptions else ()
        return (*limit, *again, *timeout, *self._around)

    def pause(self, attempt: int) -> float:
        """Seconds until the next run, after run number `attempt`."""
        return self._backoff.pause(attempt)

    def retries_after(self, error: BaseException) -> bool:
        """Whether this exception lets it run again."""
        return self._backoff.wants(error)

    def _perform(self, job: Job) -> Any:
        args, kwargs = job.client.run(call_of(job))
        return self.function(*self._with_run(job, args, kwargs), **kwargs)

    async def _aperform(self, job: Job) -> Any:
        args, kwargs = await job.client.arun(call_of(job))
        return await self.function(*self._with_run(job, args, kwargs), **kwargs)

    def _with_run(self, job: Job | None, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        return [Run(self, job, args, kwargs), *args] if self.bind else args

    # --- what it is put with ---

    def _usual_options(self, priority: int) -> tuple[Any, ...]:
        options: dict[str, Any] = {}
        if priority:
            options["priority"] = priority
        if self.tags:
            options["tags"] = list_text("tags", self.tags)
        if self.retries is not None:
            options["retries"] = self.retries
        return tuple(part for pair in options.items() for part in pair)

    def _given_options(
        self, priority: int | None, tags: Iterable[str], retries: int | None, depends: list[str]
    ) -> tuple[Any, ...]:
        options = dict(zip(self._options[::2], self._options[1::2], strict=True))
        if priority is not None:
            options["priority"] = priority
        if retries is not None:
            options["retries"] = retries
        if tags:
            options["tags"] = list_text("tags", [*self.tags, *tags])
        if depends:
            options["depends"] = list_text("depends", depends)
        return tuple(part for pair in options.items() for part in pair)


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(*, bind: Literal[True], **options: Any) -> Callable[[Callable[Concatenate[Any, P], R]], Task[P, R]]: ...
@overload
def task(*, bind: Literal[False] = False, **options: Any) -> Callable[[Callable[P, R]], Task[P, R]]: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """Make a task of a function at the top of a module; `@task` or `@task(...)`.

    `queue`; `priority`: higher ones first. `retries`: how often it is run again, after an exception or the loss of a
    worker (None: after the loss of a worker alone, up to 5 times); `backoff`: seconds before the first retry, doubled
    each time, or a list of them; `retry_on`: the exceptions. `timeout`: seconds that a run may take. `unique`: True, or
    names of arguments: while one with the same ones waits or runs, no other is put. `tags`. `rate`: "10/m", or a policy
    of `resty_django.limits`. `bind`: the function gets the run as its first argument. `every`: seconds, or `cron`, such
    as "*/5 * * * *": workers put it by themselves. `ignore_result`; `result_ttl`: seconds that the result is kept
    (None: RESULT_TTL). `middleware`: what the worker puts around each run.
    """
    if function is None:
        return functools.partial(Task, **options)
    return Task(function, **options)


__all__ = [
    "AsyncResult",
    "GroupResult",
    "Run",
    "Signature",
    "Step",
    "Task",
    "TaskFailed",
    "chain",
    "chord",
    "group",
    "task",
]
