"""The base class of all limiters: store, keys, and the behaviour while the store cannot be used."""

from __future__ import annotations

import copy
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import time_ns
from typing import Any, ClassVar, Final, Self, TypedDict, Unpack

from msgspec import Struct

from resty_django.conf import conf
from resty_django.shdict import NoMemory, SharedDict, Unavailable, WrongKind
from resty_django.shdict.codec import decode_key
from resty_django.text import logger

from ..algorithms import Algorithm, Outcome, StateOperation
from ..decision import Decision
from ..errors import CostTooHigh, ForeignData, NotFound, StoreFailed
from ..stores import STORES, LocalStore, Store, store_of
from ..stores.circuit_breaker import BYPASS_SECONDS, CircuitBreaker
from .slots import Slot, aacquire, acquire
from .validation import check_cost, check_on_error, unknown_option

log = logger("resty_django.limits")


LOCAL_PREFIX: Final = "local:"
"""The prefix of tokens of slots that were taken only in this process, while the store was down."""
STORE_ERRORS: Final = (Unavailable, NoMemory, StoreFailed, WrongKind, struct.error)
"""Errors that indicate that a store, or one of its keys, cannot be used; `struct.error`: a new state does not fit into
its bytes, because the old one has numbers that no limiter stores."""


class LimiterOptions(TypedDict, total=False):
    """Options of all limiters, by name."""

    store: str | SharedDict | LocalStore | None
    """The name of a shared dictionary, a shared dictionary or a `LocalStore` (default: the setting STORE)."""
    prefix: str
    """Added before each key."""
    name: str
    """The name in logs."""
    on_error: str | None
    """The behaviour while the store is down (default: the setting ON_ERROR)."""
    clock: Callable[[], float] | None
    """For tests: returns the time in seconds (default: `time.time`, on Redis the server's time)."""


class Limiter(ABC):
    """A limit and the store of its states. Safe in threads and tasks, and after a fork.

    `LimiterOptions` lists the options; an unknown one raises `TypeError`. The settings are read on the first call,
    which raises `UnknownDict` if they do not define the store. Calls never sleep: the caller may wait for the `delay`
    of the decision.
    """

    algorithm: ClassVar[Algorithm]
    config: Struct
    """The numbers of the limit for the algorithm."""
    give_back: ClassVar[StateOperation | None] = None
    """Undoes a recorded request after its task was cancelled, if necessary; else None."""

    def __init__(self, **options: Unpack[LimiterOptions]) -> None:
        for option in options:
            if option not in LimiterOptions.__annotations__:
                cls = type(self)
                raise TypeError(unknown_option(f"{cls.__name__}()", option, cls, LimiterOptions.__annotations__))
        on_error = options.get("on_error")
        check_on_error(on_error)
        store = options.get("store")
        self.prefix = options.get("prefix", "")
        self.stored_prefix = f"{self.algorithm.lua}:{self.prefix}"
        """The text before each key in the store: algorithms cannot read each other's states."""
        self.name = options.get("name", "")
        self.clock = options.get("clock")
        self._on_error = on_error
        self._store: Any = store
        self._stores: dict[Any, Store] = STORES if store is None or type(store) is str else {store: store_of(store)}
        self._local: Store | None = None
        self._log_after = 0.0
        self.config = self._make_config()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or self.prefix!r}: {self.describe()}>"

    @abstractmethod
    def _make_config(self) -> Struct:
        """Return the numbers of the limit for the algorithm. Raise `TypeError` or `ValueError` if one is not valid."""

    @abstractmethod
    def describe(self) -> str:
        """Return the limit in words."""

    @property
    def store(self) -> Store:
        """The store of the states. Raise `UnknownDict` if the settings do not define it."""
        return self._stores[self._store]

    @property
    def on_error(self) -> str:
        """The behaviour while the store cannot be used: "open", "closed", "local" or "raise"."""
        return self._on_error or conf.limits.on_error

    # --- decisions ---

    def incoming(self, key: object, commit: bool = False, cost: int = 1) -> Decision:
        """Do the same as `hit` if `commit`, else as `peek`, under the name of lua-resty-limit-traffic.

        Raise `ValueError` for a `cost` below 1, `CostTooHigh` for one that can never pass, `BadKey`, and `StoreFailed`
        if `on_error` is "raise".
        """
        if cost != 1:
            self.check(cost)
        store = self._stores[self._store]
        breaker = store.breaker
        if breaker.down and self._bypasses_store(breaker, reading=not commit):
            return self._decide_without_store(breaker, key, commit, cost)
        try:
            decision = store.decide(self, self.key(key), commit, cost)
        except STORE_ERRORS as error:
            self._failed(breaker, error, reading=not commit)
            return self._decide_without_store(breaker, key, commit, cost)
        if breaker.down:
            breaker.reset(reading=not commit)
        return decision

    def hit(self, key: object, cost: int = 1) -> Decision:
        """Decide on a request that counts as `cost` requests, and record it. Errors as in `incoming`."""
        # The usual call of `incoming`, without the store's `decide`: saves 9 % of a call on LMDB, 14 % on a LocalStore.
        store = self._stores[self._store]
        revise = store.revise
        if revise is None or cost != 1 or store.breaker.down:
            return self.incoming(key, True, cost)
        try:
            return revise(self.stored_prefix + key if type(key) is str else self.key(key), self.decide_hit)
        except STORE_ERRORS as error:
            self._failed(store.breaker, error)
            return self._decide_without_store(store.breaker, key, True, 1)

    def peek(self, key: object, cost: int = 1) -> Decision:
        """Return the decision that `hit` would make now, without recording the request."""
        return self.incoming(key, False, cost)

    async def aincoming(self, key: object, commit: bool = False, cost: int = 1) -> Decision:
        """Run `incoming` without blocking the event loop."""
        store = self._stores[self._store]
        if not store.waits:
            return self.incoming(key, commit, cost)
        if cost != 1:
            self.check(cost)
        breaker = store.breaker
        if breaker.down and self._bypasses_store(breaker, reading=not commit):
            return self._decide_without_store(breaker, key, commit, cost)
        try:
            decision = await store.adecide(self, self.key(key), commit, cost)
        except STORE_ERRORS as error:
            self._failed(breaker, error, reading=not commit)
            return self._decide_without_store(breaker, key, commit, cost)
        if breaker.down:
            breaker.reset(reading=not commit)
        return decision

    async def ahit(self, key: object, cost: int = 1) -> Decision:
        """Run `hit` without blocking the event loop."""
        return await self.aincoming(key, True, cost)

    async def apeek(self, key: object, cost: int = 1) -> Decision:
        """Run `peek` without blocking the event loop."""
        return await self.aincoming(key, False, cost)

    def check(self, cost: int) -> None:
        """Raise `CostTooHigh` if a request of that cost can never pass, and `ValueError` if it is not a cost."""
        if not self.algorithm.can_pass(self.config, check_cost(cost)):
            raise CostTooHigh(
                f"A request of cost {cost} can never pass this limit: {self.describe()}. Lower the cost, or raise the "
                "limit."
            )

    # --- undoing ---

    def uncommit(self, key: object, cost: int = 1) -> float:
        """Undo a recorded request.

        Return the number left (windows) or in progress (concurrency), or True; 0 if the store cannot be used and
        `on_error` is not "raise". Raise `NotFound` if the key has no recorded request (not for windows).
        """
        return self._or_not_found(self._change(self.algorithm.uncommit, key, self.config, check_cost(cost)), key)

    async def auncommit(self, key: object, cost: int = 1) -> float:
        """Run `uncommit` without blocking the event loop."""
        return self._or_not_found(await self._achange(self.algorithm.uncommit, key, self.config, check_cost(cost)), key)

    def reset(self, key: object) -> bool:
        """Delete the state of the key. Return whether it existed. Raise `Unavailable`."""
        if self._local is not None:
            self._local.forget(self.key(key))
        return self.store.forget(self.key(key))

    async def areset(self, key: object) -> bool:
        """Run `reset` without blocking the event loop."""
        if self._local is not None:
            self._local.forget(self.key(key))
        return await self.store.aforget(self.key(key))

    # --- waiting ---

    def slot(self, key: object, wait: float | None = 0, cost: int = 1) -> Slot:
        """Return a slot for a `with` or `async with` block, which waits as `acquire` does."""
        return Slot(self, key, wait, cost)

    def acquire(self, key: object, wait: float | None = 0, cost: int = 1) -> Decision:
        """Hit, and wait up to `wait` seconds until the request may continue (None: indefinitely). Raise `Limited`."""
        return acquire(self, key, wait, cost)

    async def aacquire(self, key: object, wait: float | None = 0, cost: int = 1) -> Decision:
        """Run `acquire` without blocking the event loop."""
        return await aacquire(self, key, wait, cost)

    # --- numbers ---

    def _set(self, **numbers: Any) -> None:
        """Change numbers of the limit. If one is not valid, raise and change nothing."""
        before = {name: getattr(self, name) for name in numbers}
        vars(self).update(numbers)
        try:
            self.config = self._make_config()
        except (TypeError, ValueError):
            vars(self).update(before)
            raise

    def with_numbers(self, **numbers: Any) -> Self:
        """Return a limiter with other numbers for the same states. Raise `TypeError` or `ValueError` for wrong ones."""
        other = copy.copy(self)
        other._set(**numbers)
        return other

    # --- for stores ---

    def key(self, key: object) -> str:
        """Return the key in the store: a key of any type is converted to a string. Raise `ValueError` for None."""
        if key is None:
            raise ValueError("key of a limit must not be None. Pass a string.")
        return self.stored_prefix + (decode_key(key) if isinstance(key, bytes) else str(key))

    def now(self) -> int:
        """Return the time in milliseconds."""
        return time_ns() // 1_000_000 if self.clock is None else int(self.clock() * 1000)

    def call_config(self) -> Struct:
        """Return the configuration for one call. A limiter that overrides this overrides `decide_hit`, too."""
        return self.config

    def on_combined(self, decision: Decision | None) -> None:  # noqa: B027 - only some limiters do something
        """Handle a decision made together with other limiters; None: nothing was recorded."""

    def undo(self, key: object, token: str) -> None:
        """Undo a recorded request."""
        self.uncommit(key)

    async def aundo(self, key: object, token: str) -> None:
        """Run `undo` without blocking the event loop."""
        await self.auncommit(key)

    def step(self, commit: bool, cost: int, data: bytes | None) -> Outcome[Decision]:
        """Decide on a request, given the state of its key."""
        return self.algorithm.incoming(data, self.now(), self.call_config(), cost, commit)

    def decide_hit(self, data: bytes | None) -> Outcome[Decision]:
        """Decide on a recorded request of cost 1, given the state of its key."""
        # `now`, inlined: a hit takes 3 % less time
        now = time_ns() // 1_000_000 if self.clock is None else int(self.clock() * 1000)
        return self.algorithm.incoming(data, now, self.config, 1, True)

    # --- the store cannot be used ---

    def _change(self, operation: StateOperation, key: object, config: Struct, cost: int) -> float | None:
        """Return the result of an operation; 0 if the store cannot be used and `on_error` is not "raise"."""
        store = self._stores[self._store]
        if store.breaker.down and self._bypasses_store(store.breaker):
            return self._change_without_store(operation, key, config, cost)
        try:
            name = self.stored_prefix + key if type(key) is str else self.key(key)
            result = store.change(self, operation, name, config, cost)
        except STORE_ERRORS as error:
            self._failed(store.breaker, error)
            return self._change_without_store(operation, key, config, cost)
        if store.breaker.down:
            store.breaker.reset()
        return result

    async def _achange(self, operation: StateOperation, key: object, config: Struct, cost: int) -> float | None:
        store = self.store
        if store.breaker.down and self._bypasses_store(store.breaker):
            return self._change_without_store(operation, key, config, cost)
        try:
            result = await store.achange(self, operation, self.key(key), config, cost)
        except STORE_ERRORS as error:
            self._failed(store.breaker, error)
            return self._change_without_store(operation, key, config, cost)
        if store.breaker.down:
            store.breaker.reset()
        return result

    def _bypasses_store(self, breaker: CircuitBreaker, *, reading: bool = False) -> bool:
        return self.on_error != "raise" and breaker.is_open(reading=reading)

    def _failed(self, breaker: CircuitBreaker, error: Exception, *, reading: bool = False) -> None:
        """Report an error of the store, and raise it if `on_error` is "raise"."""
        foreign = is_foreign(error)
        if isinstance(error, struct.error):
            error = ForeignData("shdict abused by other users: the key holds numbers that no limiter stores.")
        if not foreign:
            breaker.record_failure(error, reading=reading)
        elif time.monotonic() >= self._log_after:
            self._log_after = time.monotonic() + 60
            log.error("%r in the store %r: %s", self, breaker.name, error)
        if self.on_error == "raise":
            if isinstance(error, StoreFailed):
                raise error
            raise (ForeignData if foreign else StoreFailed)(str(error)) from error

    def _change_without_store(self, operation: StateOperation, key: object, config: Struct, cost: int) -> float | None:
        """Return the result of an operation while the store cannot be used."""
        return 0

    def _decide_without_store(self, breaker: CircuitBreaker, key: object, commit: bool, cost: int) -> Decision:
        """Return the decision while the store cannot be used."""
        breaker.calls += 1
        on_error = self.on_error
        if on_error == "local":
            decision = self.local.decide(self, self.key(key), commit, cost)
            holds_slot = commit and decision.allowed and self.give_back is not None
            return decision.replace(failed=True, token=LOCAL_PREFIX + decision.token if holds_slot else "")
        limit = self.shown_limit
        if on_error == "closed":
            return Decision.refused(limit=limit, retry_after=BYPASS_SECONDS, failed=True)
        return Decision.passed(limit=limit, remaining=limit, failed=True)

    @property
    def local(self) -> Store:
        """The store in this process, for `on_error="local"`."""
        if self._local is None:
            self._local = store_of(LocalStore())
        return self._local

    @property
    def shown_limit(self) -> int:
        """The limit as decisions report it."""
        return self.step(False, 1, None)[2].limit

    @staticmethod
    def _or_not_found(result: float | None, key: object) -> float:
        if result is None:
            raise NotFound(f"not found: the key {key!r} has no recorded request.")
        return result


def is_foreign(error: Exception) -> bool:
    """Return whether the store answered, but has other data under the key."""
    return isinstance(error, ForeignData | WrongKind | struct.error)
