"""Tasks: functions that run as jobs.

    from resty_django.qless import task

    @task(queue="mail", retries=3, backoff=5)
    def send_invoice(order): ...

    send_invoice(7)                                        # call the function here
    send_invoice.delay(7)                                  # enqueue a job that calls it in a worker
    send_invoice.apply_async((7,), countdown=60)           # the same, with options
    chain(send_invoice.s(7), archive.si()).delay()         # enqueue it with other tasks

A call passes through these steps, from `delay(7)` to a single command of the server, and from there to the function:

| step | class | makes |
|---|---|---|
| `delay(7)`, or `apply_async((7,), countdown=60)` | `Task` | checked options: `EnqueueOptions`; the result to return |
| `message` | `Task` | the job to enqueue: its ID, its arguments and its callbacks (`TaskMessage`) |
| `send` | `TaskDispatcher` | the command `put`, at once, on commit or through the outbox; in eager mode, runs it |
| `perform` | `Task`, in a worker | a call of the function with the job's arguments |

Options have two forms: the keywords that people write, which mypy checks (`TaskKeywords`, `EnqueueKeywords`), and the
checked values that are made of them (`TaskOptions`, `EnqueueOptions`), which describe them. Next to this module,
`message` converts a call into a job and back, `canvas` makes chains, groups and callbacks, `schedule` enqueues periodic
tasks, and `results` reads the results. See docs/reference/jobs/tasks.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import (
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
from resty_django.txid.context import current_ids

from ..clients.client import Client
from ..clients.job import Job
from ..clients.serialization import encode
from ..errors import NotAllowed
from ..job_classes import Runnable, is_allowed, refusal_of, register
from ..middleware.chain import Middleware
from .canvas import Signature, check_callbacks, consequences_of
from .consequences import PlannedJob
from .context import TaskContext
from .message import ArgumentSource, Parameters, PutOptions, TaskMessage, arguments_of, data_of, dispatcher
from .options import NO_OPTIONS, EnqueueKeywords, EnqueueOptions, TaskKeywords, TaskOptions, check_keywords, timing
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
    - `retry_policy`: after which exceptions its jobs run again, and when.
    - `schedule`: when workers enqueue it; None: never.

    To workers and the admin it is a `Runnable`, an object that runs jobs: they use `perform`, `middleware`,
    `parameter_names`, `call_signature`, `keep_result` and `result_ttl`.
    """

    def __init__(self, function: Callable[..., Any], *, bind: bool = False, **options: Unpack[TaskKeywords]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.path = _path_of(function)
        self.bind = bind
        self.options = TaskOptions(**options).checked(self.path)
        self.name = self.options.name or self.path
        self.queue = self.options.queue
        self.parameters = Parameters(function, self.path, self.name, bind, self.options.unique)
        self._put_options = PutOptions(
            priority=self.options.priority or None, tags=[*self.options.tags], retries=self.options.retries
        )
        self.retry_policy = self.options.retry_policy(self.path)
        self.parameter_names = self.parameters.names
        self.call_signature = self.parameters.signature
        self.keep_result = not self.options.ignore_result
        self._has_reactions = bool(self.options.reactions)
        check_callbacks(self.options)
        register(self, self.path, (self.name, *self.options.aliases))  # refuses a duplicate before it is scheduled
        self.schedule = Schedule.of(self)
        all_tasks.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    def __reduce__(self) -> str:
        return self.function.__qualname__  # pickled by its name, like a function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.function(*self._with_context(None, [*args], kwargs), **kwargs)
        return result

    # --- enqueuing: at once, or when the transaction is committed ---

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Enqueue a job that calls the function with these arguments, and return its future result.

        Raises `TypeError` if the function does not accept them, `InvalidArgument` if they are not JSON, `NotAllowed` if
        workers do not run tasks of its module, and `StoreDown`; through the outbox, `django.db.DatabaseError` instead.
        """
        return self.apply_async(args, kwargs)

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Do the same as `delay`, for asyncio."""
        return await self.aapply_async(args, kwargs)

    def delay_on_commit(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R]:
        """Enqueue the task when the open transaction is committed, never after a rollback. Return its result at
        once."""
        return self.apply_async_on_commit(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        using: str | None = None,
        **options: Unpack[EnqueueKeywords],
    ) -> AsyncResult[R]:
        """Enqueue the task like `delay`, with options: `send_invoice.apply_async((7,), countdown=60)`.

        - `args`, `kwargs`: the arguments of the function.
        - `using`: the database whose transaction the job belongs to, if the queue uses the outbox.
        - `options`: see `EnqueueOptions`.

        Raises the errors of `delay`, and `TypeError` or `InvalidArgument` for wrong options.
        """
        job, result = self._planned(args, kwargs, options)
        dispatcher().send([job], using=using)
        return result

    async def aapply_async(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        using: str | None = None,
        **options: Unpack[EnqueueKeywords],
    ) -> AsyncResult[R]:
        """Do the same as `apply_async`, for asyncio."""
        job, result = self._planned(args, kwargs, options)
        await dispatcher().asend([job], using=using)
        return result

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
        job, result = self._planned(args, kwargs, options)
        dispatcher().send_on_commit([job], using, robust)
        return result

    # --- signatures: calls to enqueue later, with other tasks ---

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

    # --- messages: what is sent to the server ---

    def message(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        options: EnqueueOptions = NO_OPTIONS,
        *,
        client: Client,
        source: ArgumentSource | None = None,
    ) -> TaskMessage:
        """Return the message that enqueues a job with these arguments. Raises what `delay` raises.

        - `client`: provides the ID and the clock, also for the callbacks of the job.
        - `source`: where the worker finds one more argument, the first: the result or the outcome of another job.
        """
        if not is_allowed(self.path):
            raise NotAllowed(refusal_of(self.path))
        self.parameters.check(args, kwargs, source)
        is_unique = bool(self.options.unique) and options.task_id is None
        # the ID of a unique job is a digest of its arguments, so that the server finds a job with the same ones
        jid = options.task_id or (self.parameters.digest(args, kwargs, source) if is_unique else client.generate_jid())
        put_options = self._put_options
        start_at = expires_at = consequences = None
        if options is not NO_OPTIONS:  # `delay` has none, and is faster without these calls
            start_at, expires_at = timing(client.clock, options.countdown, options.eta, options.expires)
            put_options = put_options.updated(options)
        if self._has_reactions or (options is not NO_OPTIONS and (options.depends or options.reactions)):
            consequences = consequences_of(self, options, client)
        return TaskMessage(
            queue=options.queue or self.queue,
            jid=jid,
            klass=self.name,
            data=encode(data_of(args, kwargs, expires_at, source)),
            when=start_at,
            options=put_options,
            unique=is_unique,
            ids=current_ids(),
            consequences=consequences,
        )

    def _planned(
        self, args: Sequence[Any], kwargs: Mapping[str, Any] | None, keywords: EnqueueKeywords
    ) -> tuple[PlannedJob, AsyncResult[R]]:
        """Return the job to enqueue for a call of `apply_async`, with its task, and its future result.

        `keywords`: the options of the call, not checked yet.
        """
        is_list = isinstance(args, list | tuple) or (isinstance(args, Sequence) and not isinstance(args, str | bytes))
        if not is_list:
            raise TypeError(
                f"{self.path}: args must be a list or a tuple, not {args!r:.80}. Write apply_async(({args!r:.80},))."
            )
        options = NO_OPTIONS
        if keywords:
            check_keywords("apply_async()", keywords, EnqueueKeywords.__annotations__)
            options = EnqueueOptions.of(keywords)
        client = dispatcher().client
        message = self.message(args, kwargs or {}, options, client=client)
        return PlannedJob(self, message), AsyncResult(message.jid, client=client)

    # --- running: what workers use ---

    def perform(self, job: Job) -> Any:
        """Call the function with the arguments of a job, and return its result."""
        args, kwargs = job.client.run(arguments_of(job))
        return self.function(*self._with_context(job, args, kwargs), **kwargs)

    def _with_context(self, job: Job | None, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Return the positional arguments of the function: with `bind`, a `TaskContext` comes first."""
        return [TaskContext(self, job, args, kwargs), *args] if self.bind else args

    @property
    def result_ttl(self) -> float | None:  # type: ignore[override]
        return conf.qless.result_ttl if self.options.result_ttl is None else self.options.result_ttl

    @cached_property
    def middleware(self) -> Sequence[Middleware]:  # type: ignore[override]
        """The middleware around each run, the outermost first."""
        return self.options.around(self.name, [self.retry_policy] if self.retry_policy.exceptions else [])


class AsyncTask(Task[P, R]):
    """A task whose function is a coroutine function. Calling it returns the coroutine, which workers await."""

    __call__: Callable[P, Coroutine[Any, Any, R]]  # type: ignore[assignment]

    async def perform(self, job: Job) -> Any:
        args, kwargs = await job.client.arun(arguments_of(job))
        return await acompleted(self.function(*self._with_context(job, args, kwargs), **kwargs))


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
    if function is not None and not callable(function):
        raise TypeError(f"@task takes its options by name, not {function!r}. Write @task(queue={function!r}).")

    def decorator(function: Callable[..., Any]) -> Task[..., Any]:
        task_class = AsyncTask if iscoroutinefunction(function) else Task
        return task_class(function, bind=bind, **options)

    return decorator if function is None else decorator(function)


def _path_of(function: Callable[..., Any]) -> str:
    """Return the dotted path of a function. Raises `TypeError` if it cannot be a task."""
    name = getattr(function, "__qualname__", repr(function))  # a partial has none
    if "<" in name:
        raise TypeError(f"{name} cannot be a task. Define it at the top level of a module.")
    path = f"{function.__module__}.{name}"
    if is_generator_function(function):
        raise TypeError(f"{path} is a generator function, which cannot be a task. Remove yield from it.")
    return path
