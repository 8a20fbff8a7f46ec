"""Options of tasks and of their calls.

Each set of options exists in two forms: the keywords of calls, typed so that mypy rejects a wrong one
(`TaskKeywords`, `EnqueueKeywords`, `StepKeywords`); and the value that is made of them and passed on whole
(`TaskOptions`, `EnqueueOptions`, `CallReactions`). The values are structs, which are made in a tenth
of the time of frozen dataclasses: `Task.message` with options would take 15 % longer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypedDict

import msgspec
from django.utils import timezone

from resty_django.text.suggestions import did_you_mean

from ..clients.put_options import checked_option, checked_options
from ..middleware.bounds import Timeout
from ..middleware.limits import Rate
from ..middleware.retries import RetryPolicy
from .consequences import Policy, checked_policy

if TYPE_CHECKING:
    from ..middleware.chain import Middleware
    from .base import Task
    from .canvas import Signature

Callbacks: TypeAlias = "Task[..., Any] | Signature | Iterable[Task[..., Any] | Signature] | None"
"""Tasks and signatures."""


# --- keywords ---


class ReactionKeywords(TypedDict, total=False):
    """Keywords for the end of a task: see `Reactions`."""

    on_success: Callbacks
    on_failure: Callbacks
    on_complete: Callbacks
    if_failed: Policy | None


class TaskKeywords(ReactionKeywords, total=False):
    """Keywords of `@task`, except `bind`: see `TaskOptions`."""

    name: str | None
    aliases: Iterable[str]
    queue: str
    priority: int
    retries: int | None
    backoff: float | Sequence[float] | None
    retry_on: type[Exception] | tuple[type[Exception], ...]
    timeout: float | None
    unique: bool | Sequence[str]
    tags: Iterable[str]
    rate: str | float | None
    every: float | None
    cron: str | None
    ignore_result: bool
    result_ttl: float | None
    middleware: Iterable[Middleware]


class StepKeywords(ReactionKeywords, total=False):
    """Keywords of chains and groups: see `CallReactions`. For a chain, they are the options of its last step."""

    link: Callbacks
    link_error: Callbacks


class EnqueueKeywords(StepKeywords, total=False):
    """Keywords of `apply_async`, its variants and signatures: see `EnqueueOptions`."""

    allow_failure: bool
    countdown: float | None
    eta: datetime | None
    queue: str | None
    priority: int | None
    task_id: str | None
    depends: object
    tags: Iterable[str]
    expires: float | datetime | None
    retries: int | None


def check_keywords(call: str, keywords: Mapping[str, object], names: Iterable[str]) -> None:
    """Raise `TypeError` for a keyword that is not among `names`. `call`: whose keywords they are, for the message."""
    for keyword in keywords:
        if keyword not in names:
            hint = did_you_mean(keyword, names, f"Options are {', '.join(sorted(names))}.")
            raise TypeError(f"{call} has no option {keyword!r}. {hint}")


# --- values ---


class Reactions(msgspec.Struct, frozen=True, kw_only=True):
    """The consequences of the end of a task.

    - `on_success`, `on_failure`, `on_complete`: tasks or signatures to enqueue when it has succeeded, has failed, or
      has ended in any way. Their first argument is the `TaskOutcome`; signatures made by `si` get no argument.
    - `if_failed`: what the next step of a chain does if this one fails: "fail", "skip", "release" (run nevertheless) or
      "wait" (for a retry). None: "fail".
    """

    on_success: Callbacks = None
    on_failure: Callbacks = None
    on_complete: Callbacks = None
    if_failed: Policy | None = None

    @property
    def reactions(self) -> dict[str, Any]:
        """The reactions that are set, by name. Most tasks and calls have none."""
        reactions = {}
        for name in StepKeywords.__annotations__:  # a comprehension would take half as long again
            value = getattr(self, name, None)
            if value is not None:
                reactions[name] = value
        return reactions


class CallReactions(Reactions, frozen=True, kw_only=True):
    """The consequences of the end of one job, a chain or a group. Callbacks of a group get the `GroupOutcome`.

    - `link`: like `on_success`, with the result, or the list of the group's results, as the first argument.
    - `link_error`: like `on_failure`.
    """

    link: Callbacks = None
    link_error: Callbacks = None

    def over(self, own: Reactions) -> CallReactions:
        """Return the reactions of a call of a task; where the call has none, the task's own apply."""
        return CallReactions(**(own.reactions | self.reactions))


class TaskOptions(Reactions, frozen=True, kw_only=True):
    """Options of a task, from the keywords of `@task`. See also `Reactions`.

    - `name`: the class of its jobs, instead of the dotted path of the function. Jobs that are waiting stay valid when
      the function moves.
    - `aliases`: earlier names and paths of the task, whose jobs it runs as well.
    - `queue`: the queue of its jobs.
    - `priority`: jobs with a higher priority run first.
    - `retries`: how often it runs again after an exception or the loss of its worker. None: up to 5 times,
      and only after the loss of a worker unless `backoff` is set.
    - `backoff`: seconds before the first retry, doubled for each further retry; or a list, whose last entry applies to
      all further retries. None: 1 second. Set alone, it also turns on retries after exceptions, up to 5.
    - `retry_on`: the exceptions after which it runs again: a class or a tuple of classes.
    - `timeout`: maximum duration of a run in seconds.
    - `unique`: enqueue nothing while a job with the same arguments waits or runs. True, or the names of the arguments
      to compare.
    - `tags`: tags of its jobs.
    - `rate`: rate limit: "10/m", or the name of a policy of `resty_django.limits`.
    - `every`: interval in seconds at which workers enqueue it.
    - `cron`: five fields, such as `*/5 * * * *`: the times at which workers enqueue it.
    - `ignore_result`: discard the result.
    - `result_ttl`: seconds for which the result is kept. None: the setting RESULT_TTL.
    - `middleware`: worker middleware around each run.
    """

    name: str | None = None
    aliases: Iterable[str] = ()
    queue: str = "default"
    priority: int = 0
    retries: int | None = None
    backoff: float | Sequence[float] | None = None
    retry_on: type[Exception] | tuple[type[Exception], ...] = Exception
    timeout: float | None = None
    unique: bool | Sequence[str] = False
    tags: Iterable[str] = ()
    rate: str | float | None = None
    every: float | None = None
    cron: str | None = None
    ignore_result: bool = False
    result_ttl: float | None = None
    middleware: Iterable[Middleware] = ()

    def checked(self, path: str) -> TaskOptions:
        """Return the options with lists in place of other iterables, and with the defaults for None.

        `path`: the task's path, for messages.

        Raises `TypeError` for a value of the wrong type, and `ValueError` for one out of range. `RetryPolicy`,
        `Schedule` and `signatures_of` check the options that they are made of.
        """
        if self.name is not None:
            _check_name(path, "name", self.name)
        names = ("aliases", "queue", "priority", "retries", "timeout", "tags", "result_ttl")
        checked = checked_options(
            f"{path}: ",
            **{name: getattr(self, name) for name in names},
            rate=None if isinstance(self.rate, str) else self.rate,
            unique=None if isinstance(self.unique, bool) else self.unique,
        )
        for alias in checked["aliases"] or ():
            _check_name(path, "aliases", alias)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in self.retried_exceptions):
            raise TypeError(
                f"{path}: retry_on= must be an exception class, or a tuple of them, not {self.retry_on!r:.80}."
            )
        if self.if_failed is not None:
            checked_policy(self.if_failed)
        return msgspec.structs.replace(
            self,
            aliases=checked["aliases"] or [],
            priority=checked["priority"] or 0,
            tags=checked["tags"] or [],
            unique=bool(self.unique) if checked["unique"] is None else checked["unique"],
            middleware=tuple(self.middleware),
        )

    def retry_policy(self, path: str) -> RetryPolicy:
        """Return the policy of `retries`, `backoff` and `retry_on`. `path`: the task's path, for messages.

        If neither `retries` nor `backoff` is set, a job runs again after the loss of its worker only.
        """
        is_retried = self.retries is not None or self.backoff is not None
        return RetryPolicy(
            1.0 if self.backoff is None else self.backoff,
            self.retried_exceptions if is_retried else (),
            where=f"{path}: ",
        )

    def around(self, name: str, retries: Sequence[Middleware]) -> list[Middleware]:
        """Return the middleware around each run, the outermost first. `name`: of the task; `retries`: decides on
        them."""
        rate = [] if self.rate is None else [Rate(self.rate, name)]
        timeout = [] if self.timeout is None else [Timeout(self.timeout)]
        return [*rate, *retries, *timeout, *self.middleware]

    @property
    def retried_exceptions(self) -> tuple[type[Exception], ...]:
        """The exceptions in `retry_on`."""
        return self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,)


class EnqueueOptions(CallReactions, frozen=True, kw_only=True):
    """Options of one job of a task, from the keywords of `apply_async`. See also `CallReactions`.

    - `countdown`: seconds until the task may run.
    - `eta`: the time from which it may run; instead of `countdown`.
    - `queue`, `priority`, `retries`: override the task's own.
    - `task_id`: the ID, instead of a random one. An existing job with this ID is enqueued again.
    - `depends`: an ID, a result or a job that must succeed first, or several. IDs that do not exist (yet) are ignored.
    - `allow_failure`: run also if tasks have failed that this one waits for; their results are None.
    - `tags`: added to the task's own.
    - `expires`: seconds from now, or a time. A task or a retry that has not started by then fails without running, with
      `TaskExpired`, the number of runs and the last error.
    """

    countdown: float | None = None
    eta: datetime | None = None
    queue: str | None = None
    priority: int | None = None
    task_id: str | None = None
    depends: Any = ()
    allow_failure: bool = False
    tags: Iterable[str] = ()
    expires: float | datetime | None = None
    retries: int | None = None

    @classmethod
    def of(cls, keywords: EnqueueKeywords) -> EnqueueOptions:
        """Return the options that these keywords set, with lists in `depends` and `tags`. None: the option is not set.

        Raises `TypeError` for a value of the wrong type, and `InvalidArgument` for a number out of range.
        """
        options: dict[str, Any] = {}
        for name, value in keywords.items():
            if value is not None:
                options[name] = checked_option(name, value) if name in _CHECKED else value
        if "if_failed" in options:
            checked_policy(options["if_failed"])
        return cls(**options)


_CHECKED: Final = EnqueueKeywords.__annotations__.keys() - StepKeywords.__annotations__.keys() - {"allow_failure"}
"""Options of `EnqueueOptions` that have a rule in `put_options`."""
NO_OPTIONS: Final = EnqueueOptions()
"""Options of a call without any."""


def _check_name(path: str, option: str, name: object) -> None:
    """Raise `TypeError` if a task's name is not a text, `ValueError` if jobs cannot have it."""
    if not isinstance(name, str):
        raise TypeError(f"{path}: {option}= takes text, not {name!r}. Use a name such as 'mail.invoice'.")
    if not re.fullmatch(r"[^\W\d_][\w.-]{0,199}", name):
        raise ValueError(
            f"{path}: {option}= contains {name!r}, which cannot be a task's name. "
            "Use up to 200 letters, digits, dots, hyphens and underscores, starting with a letter."
        )


# --- times ---


class TaskTimes(NamedTuple):
    """When a task may start: at the earliest and at the latest, in seconds since the epoch. None: at any time."""

    start_at: float | None = None
    expires_at: float | None = None


def timing(
    clock: Callable[[], float], countdown: float | None, eta: datetime | None, expires: float | datetime | None
) -> TaskTimes:
    """Return when a task may start, given checked options. Raises `TypeError` for `countdown` together with `eta`."""
    if countdown is None and eta is None and expires is None:
        return TaskTimes()
    if countdown is not None and eta is not None:
        raise TypeError("countdown= and eta= both set the start time. Pass only one of them.")
    now = clock()
    if isinstance(expires, datetime):
        expires_at: float | None = timestamp(expires)
    else:
        expires_at = None if expires is None else now + expires
    start_at = None if eta is None else timestamp(eta)
    return TaskTimes(now + countdown if countdown else start_at, expires_at)


def timestamp(at: datetime) -> float:
    """Return seconds since the epoch; a naive datetime is in Django's current time zone."""
    return (timezone.make_aware(at) if timezone.is_naive(at) else at).timestamp()
