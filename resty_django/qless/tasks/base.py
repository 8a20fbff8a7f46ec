"""Tasks: functions that run as jobs.

    from resty_django.qless import task

    @task(queue="mail", retries=3, backoff=5)
    def send_invoice(order): ...

    send_invoice(7)                                        # call the function here
    send_invoice.delay(7)                                  # enqueue a job that calls it in a worker
    send_invoice.apply_async((7,), countdown=60)           # the same, with options
    chain(send_invoice.s(7), archive.si()).delay()         # enqueue it with other tasks

`TaskOptions` describes the options of `@task`, `EnqueueOptions` the options of `apply_async`. See docs/qless/tasks.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    overload,
)
from weakref import WeakSet

from asgiref.sync import iscoroutinefunction
from django.utils.functional import cached_property

from resty_django.callables import acompleted, is_generator_function
from resty_django.conf import conf
from resty_django.txid import current

from ..clients.client import Client
from ..clients.job import Job
from ..clients.serialization import encode
from ..errors import NotAllowed
from ..job_classes import Runnable, is_allowed, refusal_of, register
from ..middleware import Timeout
from ..middleware.chain import Middleware
from ..middleware.limits import Rate
from ..middleware.retries import RetryPolicy
from .canvas import Signature, check_callbacks, consequences_of
from .context import TaskContext
from .message import ArgumentSource, Parameters, PlannedJob, PutOptions, TaskMessage, call_of, data_of, dispatcher
from .options import (
    NO_OPTIONS,
    EnqueueKeywords,
    EnqueueOptions,
    TaskKeywords,
    TaskOptions,
    TaskTimes,
    check_keywords,
    timing,
)
from .results import AsyncResult
from .schedule import Schedule

P = ParamSpec("P")
R = TypeVar("R")

all_tasks: Final[WeakSet[Task[..., Any]]] = WeakSet()
"""All tasks of this process."""


class Task(Runnable, Generic[P, R]):
    """A function that runs as a job, created by `task`. Calling it calls the plain function.

    - `function`: the plain function. `path`: its dotted path. `bind`: whether it gets a `TaskContext`.
    - `name`: the class of its jobs: the option `name`, or the path. `queue`: the queue of its jobs.
    - `options`: the other options of `@task`.
    - `parameters`: the parameters of the function.
    - `schedule`: when workers enqueue it; None: never.
    """

    def __init__(self, function: Callable[..., Any], *, bind: bool = False, **options: Unpack[TaskKeywords]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.path = _checked_path(function)
        self.bind = bind
        self.options = TaskOptions(**options).checked(self.path)
        self.name = self.options.name or self.path
        self.queue = self.options.queue
        self.parameters = Parameters(function, self.path, self.name, bind, self.options.unique)
        self.put_options = PutOptions(
            priority=self.options.priority or None, tags=[*self.options.tags], retries=self.options.retries
        )
        self.retry_policy = self._make_retry_policy()
        check_callbacks(self.options)
        # attributes of any `Runnable`, which workers and the admin read
        self.names = self.parameters.names
        self.call_signature = self.parameters.signature
        self.keep_result = not self.options.ignore_result
        register(self, self.path, (self.name, *self.options.aliases))
        self.schedule = Schedule.of(self)
        all_tasks.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        arguments = self._with_context(None, [*args], kwargs) if self.bind else args
        result: R = self.function(*arguments, **kwargs)
        return result

    # --- enqueuing: at once, on commit, or later as a signature ---

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Enqueue a job that calls the function with these arguments, and return its future result.

        Raises `TypeError` if the function does not accept them, `InvalidArgument` if they are not JSON, and
        `NotAllowed` if workers do not run tasks of its module.
        """
        return self.apply_async(args, kwargs)

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Do the same for asyncio."""
        return await self.aapply_async(args, kwargs)

    def delay_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Enqueue the task when the open transaction is committed, never after a rollback. Return its result at
        once."""
        return self.apply_async_on_commit(args, kwargs)

    def apply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[EnqueueKeywords]
    ) -> AsyncResult[R]:
        """Enqueue the task like `delay`, with options."""
        sender = dispatcher()
        message = self.message(args, kwargs or {}, self._checked(args, options), client=sender.client)
        sender.send([PlannedJob(self, message)])
        return AsyncResult(message.jid, client=sender.client)

    async def aapply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[EnqueueKeywords]
    ) -> AsyncResult[R]:
        """Do the same for asyncio."""
        sender = dispatcher()
        message = self.message(args, kwargs or {}, self._checked(args, options), client=sender.client)
        await sender.asend([PlannedJob(self, message)])
        return AsyncResult(message.jid, client=sender.client)

    def apply_async_on_commit(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        using: str | None = None,
        robust: bool = False,
        **options: Unpack[EnqueueKeywords],
    ) -> AsyncResult[R]:
        """Enqueue the task like `delay_on_commit`, with options.

        - `using`: the database of the transaction.
        - `robust`: if the job cannot be enqueued after the commit, log the error instead of raising it.
        """
        sender = dispatcher()
        message = self.message(args, kwargs or {}, self._checked(args, options), client=sender.client)
        sender.send_on_commit([PlannedJob(self, message)], using, robust)
        return AsyncResult(message.jid, client=sender.client)

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature, to enqueue later. In a chain, its first argument is the previous step's result."""
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature that ignores the previous step's result."""
        return Signature(self, args, kwargs, immutable=True)

    def signature(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Unpack[EnqueueKeywords],
    ) -> Signature:
        """Return a signature with options of `apply_async`."""
        return Signature(self, tuple(args), kwargs or {}, options, immutable)

    def message(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        options: EnqueueOptions = NO_OPTIONS,
        *,
        client: Client,
        source: ArgumentSource | None = None,
        is_callback: bool = False,
        policies: Mapping[str, str] | None = None,
    ) -> TaskMessage:
        """Return the job to enqueue for a call.

        - `client`: provides the ID and the clock.
        - `source`: where the first argument comes from.
        - `is_callback`: whether the end of another job enqueues it, so that it cannot be unique.
        - `policies`: what the job does if one that it waits for has failed, by jid; by default it fails.

        Raises what `delay` raises.
        """
        if not is_allowed(self.path):
            raise NotAllowed(refusal_of(self.path))
        self.parameters.check(args, kwargs, source)
        times, put_options = TaskTimes(), self.put_options
        if options is not NO_OPTIONS:
            times = timing(client.clock, options.countdown, options.eta, options.expires)
            put_options = put_options.updated(options)
        unique = bool(self.options.unique) and options.task_id is None and not is_callback
        jid = self.parameters.digest(args, kwargs, source) if unique else options.task_id or client.generate_jid()
        consequences = None
        if options.reaction_names or options.depends or self.options.reaction_names:
            consequences = consequences_of(self, options, client, policies)
        return TaskMessage(
            queue=options.queue or self.queue,
            jid=jid,
            klass=self.name,
            data=encode(data_of(args, kwargs, times.expires_at, source)),
            when=times.start_at,
            options=put_options,
            unique=unique,
            txid=current(),
            consequences=consequences,
        )

    def _checked(self, args: Sequence[object], options: EnqueueKeywords) -> EnqueueOptions:
        """Return the options of a call. Raises `TypeError` for one argument in place of a list, or a wrong option."""
        if not isinstance(args, list | tuple) and (isinstance(args, str | bytes) or not isinstance(args, Sequence)):
            raise TypeError(
                f"{self.path}: args must be a list or a tuple, not {args!r:.80}. Write apply_async(({args!r:.80},))."
            )
        if not options:
            return NO_OPTIONS
        check_keywords("apply_async()", options, EnqueueKeywords.__annotations__)
        return EnqueueOptions(**options).checked()

    # --- running ---

    @property
    def perform(self) -> Callable[[Job], Any]:
        return self._aperform if iscoroutinefunction(self.function) else self._perform

    @property
    def result_ttl(self) -> float | None:
        return conf.qless.result_ttl if self.options.result_ttl is None else self.options.result_ttl

    @cached_property
    def middleware(self) -> Sequence[Middleware]:
        """The middleware around each run, the outermost first."""
        middleware: list[Middleware] = []
        if self.options.rate is not None:
            middleware.append(Rate(self.options.rate, self.name))
        if self.retry_policy.exceptions:
            middleware.append(self.retry_policy)
        if self.options.timeout is not None:
            middleware.append(Timeout(self.options.timeout))
        return [*middleware, *self.options.middleware]

    def _make_retry_policy(self) -> RetryPolicy:
        """Return the policy of the options `retries`, `backoff` and `retry_on`; without the first two, no retries."""
        options = self.options
        is_retried = options.retries is not None or options.backoff is not None
        return RetryPolicy(
            1.0 if options.backoff is None else options.backoff,
            options.retried_exceptions if is_retried else (),
            where=f"{self.path}: ",
        )

    def _perform(self, job: Job) -> Any:
        args, kwargs, first = call_of(job)
        if first is not None:
            args.insert(0, job.client.run(first))
        if self.bind:
            args = self._with_context(job, args, kwargs)
        return self.function(*args, **kwargs)

    async def _aperform(self, job: Job) -> Any:
        args, kwargs, first = call_of(job)
        if first is not None:
            args.insert(0, await job.client.arun(first))
        if self.bind:
            args = self._with_context(job, args, kwargs)
        return await acompleted(self.function(*args, **kwargs))

    def _with_context(self, job: Job | None, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        return [TaskContext(self, job, args, kwargs), *args]


class AsyncTask(Task[P, R]):
    """A task whose function is a coroutine function. Calling it returns the coroutine."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...  # type: ignore[override]


class TaskDecorator(Protocol):
    """The type of `@task(...)`."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class BoundTaskDecorator(Protocol):
    """The type of `@task(bind=True, ...)`."""

    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(*, bind: Literal[True], **options: Unpack[TaskKeywords]) -> BoundTaskDecorator: ...
@overload
def task(*, bind: Literal[False] = False, **options: Unpack[TaskKeywords]) -> TaskDecorator: ...
def task(
    function: Callable[..., Any] | None = None, /, *, bind: bool = False, **options: Unpack[TaskKeywords]
) -> Callable[..., Any]:
    """Turn a function at the top level of a module into a task: `@task` or `@task(...)`.

    `bind`: pass a `TaskContext` to the function as its first argument. For the other options see `TaskOptions`.
    Raises `TypeError` for an unknown option.
    """
    check_keywords("@task", options, {**TaskKeywords.__annotations__, "bind": bool})
    if function is None:
        return functools.partial(_make, bind=bind, **options)
    if not callable(function):
        raise TypeError(f"@task takes its options by name, not {function!r}. Write @task(queue={function!r}).")
    return _make(function, bind=bind, **options)


def _make(function: Callable[..., Any], *, bind: bool, **options: Unpack[TaskKeywords]) -> Task[..., Any]:
    return (AsyncTask if iscoroutinefunction(function) else Task)(function, bind=bind, **options)


def _checked_path(function: Callable[..., Any]) -> str:
    """Return the dotted path of a function. Raises `TypeError` if it cannot be a task."""
    name = getattr(function, "__qualname__", repr(function))  # a partial has none
    if "<" in name:
        raise TypeError(f"{name} cannot be a task. Define it at the top level of a module.")
    path = f"{function.__module__}.{name}"
    if is_generator_function(function):
        raise TypeError(f"{path} is a generator function, which cannot be a task. Remove yield from it.")
    return path
