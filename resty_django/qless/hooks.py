"""Functions that are called before and after a job changes its state: `job.before_complete(function)`."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from .call import Request, Steps

Hook: TypeAlias = Callable[[Any], Awaitable[None] | None]
"""Gets the job."""
H = TypeVar("H", bound=Callable[..., Any])


class _Adder:
    """Takes functions, also as a decorator. They get the job, and are called in the order in which they came."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, job: Hooks, owner: type | None = None) -> Callable[[H], H]:
        return functools.partial(job.add_hook, self.name)


class Hooks:
    """What `Job` has of it. A hook that raises before the call prevents it. Coroutine functions are for asyncio."""

    __slots__ = ("_hooks", "state_changed")

    before_complete, after_complete = _Adder(), _Adder()
    before_fail, after_fail = _Adder(), _Adder()
    before_cancel, after_cancel = _Adder(), _Adder()
    before_requeue, after_requeue = _Adder(), _Adder()
    before_retry, after_retry = _Adder(), _Adder()

    def __init__(self) -> None:
        self._hooks: dict[str, list[Hook]] | None = None
        self.state_changed = False
        """Whether this object has completed, failed, canceled, requeued or retried the job."""

    def add_hook(self, name: str, hook: H) -> H:
        if self._hooks is None:
            self._hooks = {}
        self._hooks.setdefault(name, []).append(hook)
        return hook

    def _changing(self, what: str, request: Request) -> Steps[Any]:
        """A request that changes the state, with its hooks."""
        hooks = self._hooks or {}
        for hook in hooks.get(f"before_{what}", ()):
            yield functools.partial(hook, self)
        reply = yield request
        self.state_changed = True
        for hook in hooks.get(f"after_{what}", ()):
            yield functools.partial(hook, self)
        return reply


__all__ = ["Hook", "Hooks"]
