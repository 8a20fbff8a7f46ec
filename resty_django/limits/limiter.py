"""What all limiters have in common: a store, a key, and what to do while the store cannot be used."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import time_ns
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from resty_django.conf import conf
from resty_django.shdict import NoMemory, SharedDict, Unavailable, WrongKind
from resty_django.shdict.codec import decode_key

from .algorithms import Decided, Outcome
from .arguments import check_cost
from .decision import Decision
from .errors import ForeignData, NotFound, StoreFailed
from .outage import PAUSE, Watch
from .slots import Slot, aacquire, acquire
from .stores import STORES, LocalStore, Store, store_of

log = logging.getLogger("resty_django.limits")

N = TypeVar("N", bound=tuple[Any, ...])

ON_ERROR: Final = ("open", "closed", "local", "raise")
LOCAL: Final = "local:"
"""What the tokens of slots begin with that were taken in the process alone, while the store was down."""
FAULTS: Final = (Unavailable, NoMemory, StoreFailed, WrongKind)
"""What stands for a store that cannot be used, or for one key of it."""
TELL: Final = 60.0
"""Seconds between two lines in the log about foreign data."""


class Operation(NamedTuple):
    """One thing to do to a key: a pure function, and the name of the function in the algorithm's Lua script."""

    pure: Callable[[bytes | None, int, Any, Any], Outcome[Any]]
    lua: str


class Algorithm(NamedTuple):
    """The parts of a module of `algorithms`, and the name of its Lua script."""

    lua: str
    incoming: Callable[[bytes | None, int, Any, Any, bool], Decided]
    decide: Callable[..., Decision]
    sent: Callable[..., bytes]
    measured: Callable[[bytes], tuple[Any, ...]]
    uncommit: Operation


class Limiter(ABC, Generic[N]):
    """A limit, and where it is kept. Usable in all threads, tasks and, after a fork, processes.

    `store`: the name of a shared dictionary, a shared dictionary or a `LocalStore` (None: the setting LIMITS STORE).
    `prefix` is put before each key; two limiters with the same store and key overwrite each other. `name`: for people.
    `on_error`, while the store cannot be used: "open" lets requests pass, "closed" refuses them, "local" counts them in
    this process at the same numbers, "raise" raises `StoreFailed` (None: the setting LIMITS ON_ERROR). `clock`: wall
    clock in seconds (None: `time.time`, and on Redis the server's time).

    Nothing is read from the settings before the first call, which raises `UnknownDict` for a store without a name
    there. No call sleeps: who wants to, waits for the `delay` of the decision.
    """

    algorithm: ClassVar[Algorithm]
    give_back: ClassVar[Operation | None] = None
    """Undoes a recorded request that nobody waits for any more, where that matters."""

    def __init__(
        self,
        *,
        store: str | SharedDict | LocalStore | None = None,
        prefix: str = "",
        name: str = "",
        on_error: str | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if on_error is not None and on_error not in ON_ERROR:
            raise ValueError(f"on_error must be one of {', '.join(ON_ERROR)}, not {on_error!r}.")
        self.prefix = prefix
        self.name = name
        self.clock = clock
        self._on_error = on_error
        self._store: Any = store
        self._stores: dict[Any, Store] = STORES if store is None or type(store) is str else {store: store_of(store)}
        self._local: Store | None = None
        self._tell_at = 0.0
        self.pure = self.algorithm.incoming
        """The function that decides, for stores that call it themselves."""
        self.numbers: N = self._numbers()
        self.one: Callable[[Any], Decided] = self._one
        """Decides on a recorded request of cost 1, given the state: the step that most calls take."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or self.prefix!r}: {self.describe()}>"

    @abstractmethod
    def _numbers(self) -> N:
        """The numbers as the algorithm wants them; what is wrong with them raises `ValueError`."""

    @abstractmethod
    def describe(self) -> str:
        """The limit in words."""

    @property
    def store(self) -> Store:
        """Where the states are kept. Raises `UnknownDict`."""
        return self._stores[self._store]

    @property
    def on_error(self) -> str:
        """What happens while the store cannot be used."""
        return self._on_error or conf.limits.on_error

    # --- decisions ---

    def incoming(self, key: object, commit: bool = False, cost: int = 1) -> Decision:
        """Decide on a request that counts as `cost` requests; record it where `commit`, else change nothing.

        Raises `ValueError` for a `cost` below 1, `BadKey`, and `StoreFailed` where `on_error` is "raise".
        """
        if cost != 1:
            check_cost(cost)
        store = self._stores[self._store]
        watch = store.watch
        if watch.down and self._rests(watch):
            return self._without(watch, key, commit, cost)
        try:
            decision = store.decide(self, self.key(key), commit, cost)
        except FAULTS as error:
            self._failed(watch, error)
            return self._without(watch, key, commit, cost)
        if watch.down:
            watch.answered()
        return decision

    def hit(self, key: object, cost: int = 1) -> Decision:
        """Decide on a request and record it."""
        store = self._stores[self._store]
        revise = store.revise
        if revise is None or cost != 1 or store.watch.down:
            return self.incoming(key, True, cost)
        try:
            return revise(self.prefix + key if type(key) is str else self.key(key), self.one)  # type: ignore[no-any-return]
        except FAULTS as error:
            self._failed(store.watch, error)
            return self._without(store.watch, key, True, 1)

    def peek(self, key: object, cost: int = 1) -> Decision:
        """What `hit` would say now; nothing is recorded."""
        return self.incoming(key, False, cost)

    async def aincoming(self, key: object, commit: bool = False, cost: int = 1) -> Decision:
        """As `incoming`."""
        store = self._stores[self._store]
        if not store.waits:
            return self.incoming(key, commit, cost)
        if cost != 1:
            check_cost(cost)
        watch = store.watch
        if watch.down and self._rests(watch):
            return self._without(watch, key, commit, cost)
        try:
            decision = await store.adecide(self, self.key(key), commit, cost)
        except FAULTS as error:
            self._failed(watch, error)
            return self._without(watch, key, commit, cost)
        if watch.down:
            watch.answered()
        return decision

    async def ahit(self, key: object, cost: int = 1) -> Decision:
        """As `hit`."""
        return await self.aincoming(key, True, cost)

    async def apeek(self, key: object, cost: int = 1) -> Decision:
        """As `peek`."""
        return await self.aincoming(key, False, cost)

    # --- taking back ---

    def uncommit(self, key: object, cost: int = 1) -> Any:
        """Take back a recorded request.

        Returns the number that is left (windows) or in progress (concurrency), or True; 0 where the store cannot be
        used and `on_error` is not "raise". Raises `NotFound` where nothing is recorded of the key (not the windows).
        """
        return self._found(self._change(self.algorithm.uncommit, key, self.numbers, check_cost(cost)), key)

    async def auncommit(self, key: object, cost: int = 1) -> Any:
        """As `uncommit`."""
        return self._found(await self._achange(self.algorithm.uncommit, key, self.numbers, check_cost(cost)), key)

    def reset(self, key: object) -> bool:
        """Forget what is recorded of the key. True if there was something. Raises `Unavailable`."""
        if self._local is not None:
            self._local.forget(self.key(key))
        return self.store.forget(self.key(key))

    async def areset(self, key: object) -> bool:
        """As `reset`."""
        if self._local is not None:
            self._local.forget(self.key(key))
        return await self.store.aforget(self.key(key))

    # --- waiting for a place ---

    def slot(self, key: object, wait: float | None = 0, cost: int = 1) -> Slot:
        """A place for a block of code, by `with` or `async with`: see `resty_django.limits.slots`."""
        return Slot(self, key, wait, cost)

    def acquire(self, key: object, wait: float | None = 0, cost: int = 1) -> Decision:
        """Take a place, waiting `wait` seconds for it at most (None: as long as it takes). Raises `Limited`."""
        return acquire(self, key, wait, cost)

    async def aacquire(self, key: object, wait: float | None = 0, cost: int = 1) -> Decision:
        """As `acquire`, without blocking the event loop."""
        return await aacquire(self, key, wait, cost)

    # --- numbers ---

    def _set(self, **numbers: Any) -> None:
        """Change numbers of the limit; those that are wrong change nothing."""
        before = {name: getattr(self, name) for name in numbers}
        vars(self).update(numbers)
        try:
            self.numbers = self._numbers()
        except (TypeError, ValueError):
            vars(self).update(before)
            raise

    # --- for stores ---

    def key(self, key: object) -> str:
        """The key in the store, as text: keys that are one in the store are equal. Raises `ValueError` for None."""
        if key is None:
            raise ValueError("key of a limit is None: give a text.")
        return self.prefix + (decode_key(key) if isinstance(key, bytes) else str(key))

    def now(self) -> int:
        """The time in milliseconds."""
        return time_ns() // 1_000_000 if self.clock is None else int(self.clock() * 1000)

    def call_numbers(self) -> N:
        """The numbers for one call."""
        return self.numbers

    def note(self, decision: Decision | None) -> None:
        """Hear of a decision that was made together with other limiters; None: nothing was recorded."""

    def take_back(self, key: object, token: str) -> None:
        """Undo a recorded request."""
        self.uncommit(key)

    async def atake_back(self, key: object, token: str) -> None:
        """As `take_back`."""
        await self.auncommit(key)

    def step(self, commit: bool, cost: int, state: Any) -> Decided:
        """Decide on a request, given the state."""
        return self.pure(state, self.now(), self.call_numbers(), cost, commit)

    def _one(self, state: Any) -> Decided:
        now = time_ns() // 1_000_000 if self.clock is None else int(self.clock() * 1000)
        return self.pure(state, now, self.numbers, 1, True)

    # --- the store cannot be used ---

    def _change(self, operation: Operation, key: object, numbers: N, cost: float) -> Any:
        """The result of an operation; 0 where the store cannot be used and nothing is to be raised."""
        store = self.store
        if store.watch.down and self._rests(store.watch):
            return self._unchanged(operation, key, numbers, cost)
        try:
            result = store.change(self, operation, self.key(key), numbers, cost)
        except FAULTS as error:
            self._failed(store.watch, error)
            return self._unchanged(operation, key, numbers, cost)
        if store.watch.down:
            store.watch.answered()
        return result

    async def _achange(self, operation: Operation, key: object, numbers: N, cost: float) -> Any:
        store = self.store
        if store.watch.down and self._rests(store.watch):
            return self._unchanged(operation, key, numbers, cost)
        try:
            result = await store.achange(self, operation, self.key(key), numbers, cost)
        except FAULTS as error:
            self._failed(store.watch, error)
            return self._unchanged(operation, key, numbers, cost)
        if store.watch.down:
            store.watch.answered()
        return result

    def _rests(self, watch: Watch) -> bool:
        return self.on_error != "raise" and watch.resting()

    def _failed(self, watch: Watch, error: Exception) -> None:
        """Note it, and raise it where `on_error` is "raise"."""
        foreign = is_foreign(error)
        if not foreign:
            watch.failed(error)
        elif time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + TELL
            log.error("%r in the store %r: %s", self, watch.name, error)
        if self.on_error == "raise":
            if isinstance(error, StoreFailed):
                raise error
            raise (ForeignData if foreign else StoreFailed)(str(error)) from error

    def _unchanged(self, operation: Operation, key: object, numbers: N, cost: float) -> Any:
        """The result of an operation while the store cannot be used."""
        return 0

    def _without(self, watch: Watch, key: object, commit: bool, cost: int) -> Decision:
        """The decision while the store cannot be used."""
        watch.decisions += 1
        how = self.on_error
        if how == "local":
            found = self.local.decide(self, self.key(key), commit, cost)
            holds = commit and found.allowed and self.give_back is not None
            return found._replace(failed=True, token=LOCAL + found.token if holds else "")
        shown = self._shown()
        if how == "closed":
            return Decision(False, limit=shown, retry_after=PAUSE, failed=True)
        return Decision(True, limit=shown, remaining=shown, failed=True)

    @property
    def local(self) -> Store:
        """The store in this process, for `on_error="local"`."""
        if self._local is None:
            self._local = store_of(LocalStore())
        return self._local

    def _shown(self) -> int:
        """The limit as decisions show it."""
        return self.pure(None, 0, self.call_numbers(), 1, False)[2].limit

    @staticmethod
    def _found(result: Any, key: object) -> Any:
        if result is None:
            raise NotFound(f"not found: nothing is recorded of the key {key!r}.")
        return result


def is_foreign(error: Exception) -> bool:
    """Whether the store answered, but holds something else under the key."""
    return isinstance(error, ForeignData | WrongKind)


__all__ = ["Algorithm", "Limiter", "Operation", "is_foreign"]
