"""Tasks: functions that run as jobs.

    from resty_django.qless import task

    @task(queue="mail", retries=3, backoff=5)
    def send_invoice(order): ...

    send_invoice.delay(7)

See docs/qless/tasks.md.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
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

import msgspec
from asgiref.sync import iscoroutinefunction
from django.utils.functional import cached_property

from resty_django.callables import acompleted, is_generator_function
from resty_django.conf import conf
from resty_django.txid import current

from ..clients.client import Client
from ..clients.job import Job
from ..clients.put_options import checked_options
from ..clients.serialization import encode, ordered
from ..errors import InvalidArgument, NotAllowed
from ..job_classes import Runnable, is_allowed, refusal_of, register
from ..middleware import Timeout
from ..middleware.limits import Rate
from ..middleware.retries import RetryPolicy
from .canvas import ENQUEUE_OPTIONS, Signature, check_names, consequences_of, signatures_of
from .consequences import Policy, checked_policy
from .context import TaskContext, timing
from .message import (
    Callbacks,
    EnqueueOptions,
    Message,
    PutOptions,
    Reactions,
    Source,
    TaskOptions,
    TaskReactions,
    call_of,
    data_of,
    dispatcher,
)
from .results import AsyncResult
from .schedule import Schedule

P = ParamSpec("P")
R = TypeVar("R")

QUEUE: Final = "default"
BACKOFF: Final = 1.0
"""Seconds before the first retry, if `retries` is set and `backoff` is not."""
_UNBOUNDED: Final = 1 << 30
NAME: Final = re.compile(r"[^\W\d_][\w.-]{0,199}")

all_tasks: Final[WeakSet[Task[..., Any]]] = WeakSet()
"""All tasks of this process."""


class Parameters:
    """The parameters of `function`, the task `name` at `path`; with `bind`, without the first parameter."""

    def __init__(self, function: Callable[..., Any], path: str, name: str, bind: bool) -> None:
        self._path = path
        self._name = name
        signature = inspect.signature(function)
        parameters = [*signature.parameters.values()][1 if bind else 0 :]
        self.signature = signature.replace(parameters=parameters)
        self.names = [parameter.name for parameter in parameters]
        kinds = [parameter.kind for parameter in parameters]
        positional = [
            parameter
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        self._least = sum(parameter.default is parameter.empty for parameter in positional)
        self._most = _UNBOUNDED if inspect.Parameter.VAR_POSITIONAL in kinds else len(positional)
        if any(
            parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
            for parameter in parameters
        ):
            self._least = _UNBOUNDED  # the number of arguments alone says nothing

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any], source: Source | None = None) -> None:
        """Raise `TypeError` if the function does not accept these arguments; `source` adds one in front."""
        if not kwargs and self._least <= len(args) + (source is not None) <= self._most:
            return
        try:
            self.bind(args, kwargs, source)
        except TypeError as error:
            raise TypeError(f"{self._path}{self.signature}: invalid arguments: {error}.") from None

    def digest(
        self, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any], source: Source | None = None
    ) -> str:
        """Return 32 hexadecimal digits, the same for equal values of these parameters, by position or by name."""
        bound = self.bind(args, kwargs, None if source is None else source.value)
        bound.apply_defaults()
        try:
            identity = [self._name, [[name, ordered(bound.arguments[name])] for name in names]]
            text = msgspec.json.encode(msgspec.json.decode(encode(identity)), order="deterministic")
        except TypeError as error:
            raise InvalidArgument(str(error)) from None
        except RecursionError:
            raise InvalidArgument("Job data must be JSON: it is nested too deeply, or contains itself.") from None
        return hashlib.sha256(text).hexdigest()[:32]

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], source: object = None) -> inspect.BoundArguments:
        """Return the arguments by the names of the parameters. Raises `TypeError` where the function does not take
        them."""
        return self.signature.bind(*(() if source is None else (source,)), *args, **kwargs)


class Task(Runnable, Generic[P, R]):
    """A function that runs as a job, created by `task`. Calling it calls the plain function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
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
        on_success: Callbacks = None,
        on_failure: Callbacks = None,
        on_complete: Callbacks = None,
        if_failed: Policy | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        name_in_module = getattr(function, "__qualname__", repr(function))  # a partial has none
        if "<" in name_in_module:
            raise TypeError(f"{name_in_module} cannot be a task. Define it at the top level of a module.")
        self.function = function
        self.path = f"{function.__module__}.{name_in_module}"
        if is_generator_function(function):
            raise TypeError(f"{self.path} is a generator function, which cannot be a task. Remove yield from it.")
        self.name = self.path if name is None else _checked_name(self.path, "name", name)
        where = f"{self.path}: "
        given = checked_options(
            where,
            **{"aliases": aliases, "queue": queue, "priority": priority, "retries": retries, "timeout": timeout},
            **{"tags": tags, "result_ttl": result_ttl, "rate": None if isinstance(rate, str) else rate},
            unique=None if isinstance(unique, bool) else unique,
        )
        self.aliases = tuple(_checked_name(self.path, "aliases", alias) for alias in given["aliases"] or ())
        self.queue = queue
        self.retries = retries
        self.timeout = timeout
        self.unique = unique if given["unique"] is None else given["unique"]
        self.tags: list[str] = given["tags"] or []
        self.rate = rate
        self.bind = bind
        self.keep_result = not ignore_result
        self._result_ttl = result_ttl
        self._own_middleware = tuple(middleware)
        retried = retries is not None or backoff is not None
        exceptions = retry_on if isinstance(retry_on, tuple) else (retry_on,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in exceptions):
            raise TypeError(f"{where}retry_on= must be an exception class, or a tuple of them, not {retry_on!r:.80}.")
        self.retry_policy = RetryPolicy(BACKOFF if backoff is None else backoff, exceptions if retried else (), where)
        self.parameters = Parameters(function, self.path, self.name, bind)
        if given["unique"] and (unknown := sorted({*given["unique"]} - {*self.parameters.names})):
            raise TypeError(f"{self.path}: unique= names {unknown[0]!r}, which is not an argument of the function.")
        self.names = self.parameters.names
        self.call_signature = self.parameters.signature
        self.put_options = PutOptions(priority=priority or None, tags=self.tags, retries=retries)
        register(self, self.path, (self.name, *self.aliases))
        self.reactions = _checked_reactions(
            {"on_success": on_success, "on_failure": on_failure, "on_complete": on_complete, "if_failed": if_failed}
        )
        self.schedule = Schedule.of(self, every, cron)
        all_tasks.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        arguments = self._with_context(None, [*args], kwargs) if self.bind else args
        return self.function(*arguments, **kwargs)  # type: ignore[no-any-return]

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
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[EnqueueOptions]
    ) -> AsyncResult[R]:
        """Enqueue the task like `delay`, with options."""
        if options or type(args) is not tuple:
            _check_call(self, args, options)
        sender = dispatcher()
        message = self.message(args, kwargs or {}, client=sender.client, **options)
        sender.send([(self, message)])
        return AsyncResult(message.jid, client=sender.client)

    async def aapply_async(
        self, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Unpack[EnqueueOptions]
    ) -> AsyncResult[R]:
        """Do the same for asyncio."""
        if options or type(args) is not tuple:
            _check_call(self, args, options)
        sender = dispatcher()
        message = self.message(args, kwargs or {}, client=sender.client, **options)
        await sender.asend([(self, message)])
        return AsyncResult(message.jid, client=sender.client)

    def apply_async_on_commit(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        using: str | None = None,
        robust: bool = False,
        **options: Unpack[EnqueueOptions],
    ) -> AsyncResult[R]:
        """Enqueue the task like `delay_on_commit`, with options.

        - `using`: the database of the transaction.
        - `robust`: if the job cannot be enqueued after the commit, log the error instead of raising it.
        """
        if options or type(args) is not tuple:
            _check_call(self, args, options)
        sender = dispatcher()
        message = self.message(args, kwargs or {}, client=sender.client, **options)
        sender.send_on_commit([(self, message)], using, robust)
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
        **options: Unpack[EnqueueOptions],
    ) -> Signature:
        """Return a signature with options of `apply_async`."""
        return Signature(self, tuple(args), kwargs or {}, options, immutable)

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
        depends: Any = (),
        tags: Iterable[str] = (),
        expires: float | datetime | None = None,
        retries: int | None = None,
        source: Source | None = None,
        is_callback: bool = False,
        policies: Mapping[str, str] | None = None,
        **reactions: Unpack[Reactions],
    ) -> Message:
        """Return the job to enqueue. Accepts the options of `EnqueueOptions`.

        - `client`: provides the ID and the clock.
        - `source`: where the first argument comes from.
        - `is_callback`: whether the end of another job enqueues it, so that it cannot be unique.
        - `policies`: what the job does if one that it waits for has failed, by jid; by default it fails.

        Raises what `delay` raises.
        """
        if not is_allowed(self.path):
            raise NotAllowed(refusal_of(self.path))
        self.parameters.check(args, kwargs, source)
        when = until = None
        if countdown is not None or eta is not None or expires is not None:
            when, until = timing(client.clock(), countdown, eta, expires)
        if queue is not None or task_id is not None:
            checked_options(queue=queue, task_id=task_id)
        options = self.put_options
        if priority is not None or retries is not None or tags != () or depends != ():
            options = self._changed_options(priority, retries, tags, depends)
        consequences = None
        if reactions or depends or self.reactions:
            consequences = consequences_of(self, reactions, bool(options.depends), policies, client)
        unique = False
        if self.unique and task_id is None and not is_callback:
            unique = True
            names = self.parameters.names if self.unique is True else self.unique
            task_id = self.parameters.digest(names, args, kwargs, source)
        return Message(
            queue or self.queue,
            task_id or client.generate_jid(),
            self.name,
            encode(data_of(args, kwargs, until, source)),
            when,
            options,
            unique,
            current(),
            consequences,
        )

    def _changed_options(
        self, priority: int | None, retries: int | None, tags: Iterable[str], depends: Any
    ) -> PutOptions:
        given = checked_options(priority=priority, retries=retries, tags=tags, depends=depends)
        return PutOptions(
            priority=self.put_options.priority if priority is None else priority,
            tags=[*self.tags, *(given["tags"] or ())],
            retries=self.put_options.retries if retries is None else retries,
            depends=given["depends"] or (),
        )

    # --- running ---

    @property
    def perform(self) -> Callable[[Job], Any]:  # type: ignore[override]
        return self._aperform if iscoroutinefunction(self.function) else self._perform

    @property
    def result_ttl(self) -> float | None:  # type: ignore[override]
        return conf.qless.result_ttl if self._result_ttl is None else self._result_ttl

    @cached_property
    def middleware(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the middleware around each run, the outermost first."""
        rate = () if self.rate is None else (Rate(self.rate, self.name),)
        retry = (self.retry_policy,) if self.retry_policy.exceptions else ()
        timeout = () if self.timeout is None else (Timeout(self.timeout),)
        return (*rate, *retry, *timeout, *self._own_middleware)

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
def task(*, bind: Literal[True], **options: Unpack[TaskOptions]) -> BoundTaskDecorator: ...
@overload
def task(*, bind: Literal[False] = False, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
def task(function: Any = None, /, **options: Any) -> Any:
    """Turn a function at the top level of a module into a task: `@task` or `@task(...)`.

    `bind`: pass a `TaskContext` to the function as its first argument. For the other options see `TaskOptions`.
    Raises `TypeError` for an unknown option.
    """
    check_names("@task", options, _OPTION_NAMES)
    if function is None:
        return functools.partial(_make, **options)
    if not callable(function):
        raise TypeError(f"@task takes its options by name, not {function!r}. Write @task(queue={function!r}).")
    return _make(function, **options)


_OPTION_NAMES: Final = frozenset({*TaskOptions.__annotations__, "bind"})


def _check_call(task: Task[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Raise `TypeError` where `apply_async` is called with one argument in place of a list, or a wrong option."""
    if not isinstance(args, list | tuple) and (isinstance(args, str | bytes) or not isinstance(args, Sequence)):
        raise TypeError(
            f"{task.path}: args must be a list or a tuple, not {args!r:.80}. Write apply_async(({args!r:.80},))."
        )
    check_names("apply_async()", options, ENQUEUE_OPTIONS)


def _checked_reactions(reactions: TaskReactions) -> TaskReactions:
    """Return the options that are not None. Raises `TypeError` for values that no job could use."""
    if reactions.get("if_failed") is not None:
        checked_policy(reactions["if_failed"])
    signatures_of("on_success", reactions.get("on_success"))
    signatures_of("on_failure", reactions.get("on_failure"))
    signatures_of("on_complete", reactions.get("on_complete"))
    return {name: value for name, value in reactions.items() if value is not None}  # type: ignore[return-value]


def _make(function: Callable[..., Any], **options: Any) -> Task[..., Any]:
    return (AsyncTask if iscoroutinefunction(function) else Task)(function, **options)


def _checked_name(path: str, option: str, name: object) -> str:
    """Return a name of a task. Raise `TypeError` if it is not a text, `ValueError` if jobs cannot have it."""
    if not isinstance(name, str):
        raise TypeError(f"{path}: {option}= takes text, not {name!r}. Use a name such as 'mail.invoice'.")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{path}: {option}= contains {name!r}, which cannot be a task's name. "
            "Use up to 200 letters, digits, dots, hyphens and underscores, starting with a letter."
        )
    return name
