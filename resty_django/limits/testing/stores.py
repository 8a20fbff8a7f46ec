"""Replacements for the stores of all limiters during a test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

from resty_django.sansio import Steps
from resty_django.shdict import StoreOutcome

from .. import stores
from ..bans import registry as bans
from ..decision import Decision
from ..limiters import base
from ..overrides import current as overrides
from ..overrides import override_set
from ..quotas import quota
from ..stores.direct import DirectStore
from ..stores.local import LocalStore

_MEMBERS: Final = (
    *("waits", "revise", "decide", "change", "together", "forget"),
    *("adecide", "achange", "atogether", "aforget"),
)
_ABSENT: Final = object()


class FrozenClock:
    """The time of all limiters in a test: it stands still until the test moves it.

    `now`: seconds since the epoch (default: the time of the call).
    """

    def __init__(self, now: float | None = None) -> None:
        self.now = time.time() if now is None else now

    def __call__(self) -> float:
        return self.now

    def nanoseconds(self) -> int:
        """Return the time like `time.time_ns`."""
        return int(self.now * 1_000_000_000)

    def tick(self, seconds: float) -> None:
        """Move the time forward. Raises `ValueError` for a negative number."""
        if seconds < 0:
            raise ValueError(f"seconds must be at least 0, not {seconds!r}. The clock of a test only moves forward.")
        self.now += seconds


@contextmanager
def frozen_limits(now: float | None = None) -> Iterator[FrozenClock]:
    """In the block, all limiters start unused, share nothing with other processes, and use the clock that is returned.

    No key is banned at first, and bans end by that clock.
    Calls that wait for a limit still sleep. A limiter that was created with a `clock` keeps it.
    """
    clock = FrozenClock(now)

    def replacement(name: str) -> DirectStore:
        return DirectStore(LocalStore(1_000_000, clock=clock, name=name))

    with _replaced(replacement, _Bans(clock)), ExitStack() as stack:
        for module in (base, bans, overrides, override_set, quota):
            stack.enter_context(mock.patch.object(module, "time_ns", clock.nanoseconds))
        yield clock


@contextmanager
def no_limits() -> Iterator[None]:
    """In the block, every request passes every limit, and none is counted."""
    with (
        _replaced(lambda name: _NoLimits(LocalStore(name=name)), _Bans(time.time)),
        mock.patch.object(quota.Quota, "_use", _unlimited),
        mock.patch.object(override_set.OverrideSet, "find_for", return_value=None),
    ):
        yield


class _Bans:
    """The dictionary methods that bans need, in the memory of a test."""

    name = "bans"

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._items: dict[str, tuple[Any, float]] = {}

    def get(self, key: str) -> Any:
        value, end = self._items.get(key, (None, 0.0))
        return value if end > self._clock() else None

    def get_many(self, keys: Sequence[str], on_error: Any = None) -> dict[str, Any]:
        return {key: value for key in keys if (value := self.get(key)) is not None}

    def safe_set(self, key: str, value: Any, ttl: float) -> StoreOutcome:
        self._items[key] = value, self._clock() + ttl
        return StoreOutcome.STORED

    def delete(self, key: str) -> bool:
        known = self.get(key) is not None
        self._items.pop(key, None)
        return known

    def iter_keys(self, pattern: str) -> Iterator[str]:
        return iter([key for key in self._items if self.get(key) is not None])

    async def aget(self, key: str) -> Any:
        return self.get(key)

    async def aget_many(self, keys: Sequence[str], on_error: Any = None) -> dict[str, Any]:
        return self.get_many(keys)

    async def asafe_set(self, key: str, value: Any, ttl: float) -> StoreOutcome:
        return self.safe_set(key, value, ttl)


class _NoLimits(DirectStore):
    """Decides on each request as if it were the first one, and keeps nothing."""

    def __init__(self, dictionary: LocalStore) -> None:
        super().__init__(dictionary)
        self.revise = self._pass

    @staticmethod
    def _pass(key: object, function: Callable[[Any], Any]) -> Any:
        result = function(None)[2]
        return Decision.passed(limit=result.limit, remaining=result.limit) if isinstance(result, Decision) else result

    def decide(self, limiter: Any, key: object, commit: bool, cost: int) -> Decision:
        limit = limiter.shown_limit
        return Decision.passed(limit=limit, remaining=limit)

    def change(self, limiter: Any, operation: Any, key: object, config: Any, cost: int) -> Any:
        return operation.pure(None, limiter.now(), config, cost)[2] or 0

    def together(self, limiters: Any, keys: Any) -> Any:
        return None, [self.decide(limiter, key, True, 1) for limiter, key in zip(limiters, keys, strict=True)]


def _unlimited(self: quota.Quota, key: object, cost: int, limit: int) -> Steps[Decision]:
    yield from ()
    return Decision.passed(limit=limit, remaining=limit)


@contextmanager
def _replaced(replacement: Callable[[str], DirectStore], banned: _Bans) -> Iterator[None]:
    """Replace the methods of all stores, also of those that are created in the block, and the dictionary of bans."""
    replaced: list[tuple[Any, dict[str, Any]]] = []
    make = stores._make

    def replace(store: Any) -> Any:
        new, members = replacement(store.breaker.name), vars(store)
        replaced.append((store, {name: members.get(name, _ABSENT) for name in _MEMBERS}))
        members.update({name: getattr(new, name) for name in _MEMBERS})
        return store

    stores.STORES[None]  # creates the store of the setting
    for store in [*stores._store_by_id.values()]:
        replace(store)
    with (
        mock.patch.object(stores, "_make", lambda dictionary: replace(make(dictionary))),
        mock.patch.object(bans, "dictionary", return_value=banned),
    ):
        try:
            yield
        finally:
            for store, members in reversed(replaced):
                for name, former in members.items():
                    if former is _ABSENT:
                        del vars(store)[name]
                    else:
                        vars(store)[name] = former
