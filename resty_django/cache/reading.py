"""How a cache is put together, and how it reads one key through its levels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal
from weakref import WeakSet

from resty_django.events.steps import Steps, arun, run
from resty_django.shdict import SharedDict

from .channel import Channel
from .fill import Filler
from .levels import Levels
from .lru import LRU
from .options import Options, check
from .parts import channel_of, dictionary_of, l1_of, named
from .records import key_text
from .results import L1, L2, MISS, STALE, Answer, Hit, Serializer
from .source import Callback, check_callback
from .stats import Counter

_NOTHING: Final[Answer] = (None, MISS)


class Reading:
    """See `MLCache`.

    What every request does is written out, for sync code and for asyncio: a hit of L1 in `get`, and the look into L2 in
    `_look`. Anything else is a course of steps.
    """

    def __init__(
        self,
        name: str,
        dictionary: SharedDict | str = "default",
        *,
        lru_size: int = 100,
        lru: LRU | None = None,
        shm_miss: SharedDict | str | None = None,
        shm_locks: SharedDict | str | None = None,
        shm_stats: SharedDict | str | None = None,
        ipc: Channel | Literal["events"] | None = "events",
        ipc_shm: SharedDict | str | None = None,
        serializer: Serializer | None = None,
        clock: Callable[[], float] | None = None,
        **options: Any,
    ) -> None:
        self.name = named(name)
        self.options = Options().changed(options)
        self._shm = shm = dictionary_of(name, "dictionary", dictionary)
        self._miss = None if shm_miss is None else dictionary_of(name, "shm_miss", shm_miss)
        locks = shm if shm_locks is None else dictionary_of(name, "shm_locks", shm_locks)
        stats = locks if shm_stats is None else dictionary_of(name, "shm_stats", shm_stats)
        if clock is None:  # the records of Redis are read on other machines, those of LMDB on this one
            clock = time.time if shm.engine == "redis" else time.monotonic
        self.locks = locks
        self.clock = clock
        self.serializer = serializer
        self.lru = l1_of(name, lru_size, lru)
        self.channel = channel_of(name, self.lru, ipc, ipc_shm)
        self._find = self.lru.items.get
        self._to_end = self.lru.items.move_to_end
        self._now = self.lru.clock
        self._version = self.lru.version
        self._levels = Levels(name, self.lru, shm, self._miss, clock, serializer)
        self._prefix = self._levels.prefix
        self._record = self._levels.record
        self._promote = self._levels.promote
        self._serialize = self.options.l1_serializer
        self.counter = Counter(name, stats)
        self._counts = self.counter.now
        self._filler = Filler(self._levels, locks, self.counter)
        _all.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._shm!r}>"

    def get(self, key: object, callback: Callback | None = None, /, *args: Any, **options: Any) -> Any:
        """The value of the key: from L1, from L2, or else what `callback(*args)` returns, run by one process at a time.

        None where it is in no level and there is no callback. The callback may return `Fresh` to give a time to live of
        its own, and raise `SourceError` to have a stale value served. `options`: those of `Options`, for this call.

        Raises `CallbackFailed`, `SourceError`, `LockTimeout`, `LockFailed`, `SerializerFailed`, `BadKey`, `BadValue`,
        `BadOption`, and `resty_django.shdict.SharedDictError` where L2 fails.
        """
        try:
            item = self._find(key)
            if item is not None and item[1] >= self._now():
                self._to_end(key)
                self._counts.l1 += 1
                return item[0]
        except (KeyError, TypeError):  # deleted by another thread just now; or nothing that can be a key of L1
            pass
        return self._beyond(key, callback, args, options)[0]

    def lookup(self, key: object, callback: Callback | None = None, /, *args: Any, **options: Any) -> Hit:
        """As `get`, with the level that the value came from."""
        return Hit(*(self._from_l1(key_text(key)) or self._beyond(key, callback, args, options)))

    async def aget(self, key: object, callback: Callback | None = None, /, *args: Any, **options: Any) -> Any:
        """As `get`. The callback may be a coroutine function; a plain one runs in a thread."""
        try:
            item = self._find(key)
            if item is not None and item[1] >= self._now():
                self._to_end(key)
                self._counts.l1 += 1
                return item[0]
        except (KeyError, TypeError):
            pass
        return (await self._abeyond(key, callback, args, options))[0]

    async def alookup(self, key: object, callback: Callback | None = None, /, *args: Any, **options: Any) -> Hit:
        """As `lookup`."""
        return Hit(*(self._from_l1(key_text(key)) or await self._abeyond(key, callback, args, options)))

    def get_with(self, key: str, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """As `get`, for decorators: with the arguments and the options in one object each, and a text as key."""
        item = self._find(key)
        if item is not None and item[1] >= self._now():
            try:
                self._to_end(key)
            except KeyError:
                pass
            else:
                self._counts.l1 += 1
                return item[0]
        return self._beyond(key, callback, args, options)[0]

    async def aget_with(self, key: str, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """As `get_with`."""
        answer = self._from_l1(key) or await self._abeyond(key, callback, args, options)
        return answer[0]

    @property
    def dictionaries(self) -> tuple[SharedDict, ...]:
        """L2: that of the values, and that of cached None where it is another."""
        return (self._shm,) if self._miss is None else (self._shm, self._miss)

    def hand_in(self) -> None:
        """Hand in what was counted, if that is due. A dictionary that does not answer is no error."""
        if self.counter.due():
            run(self.counter.hand_in())

    async def ahand_in(self) -> None:
        """As `hand_in`."""
        if self.counter.due():
            await arun(self.counter.hand_in())

    # --- beyond L1 ---

    def _beyond(
        self, key: object, callback: Callback | None, args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Answer:
        """What L2 or the callback has, where L1 has nothing under this very key."""
        text = key if type(key) is str and key else key_text(key)
        answer = None if text is key else self._from_l1(text)
        if answer is not None:
            return answer
        try:
            answer = self._look(text, options)
            if answer is None:
                answer = _NOTHING if callback is None else run(self._fill(text, callback, args, options))
        except Exception:
            self._counts.errors += 1
            raise
        self._counts.add(answer[1])
        if answer[1] is not L2:
            self.hand_in()
        return answer

    async def _abeyond(
        self, key: object, callback: Callback | None, args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Answer:
        text = key if type(key) is str and key else key_text(key)
        answer = None if text is key else self._from_l1(text)
        if answer is not None:
            return answer
        try:
            answer = await self._alook(text, options)
            if answer is None:
                answer = _NOTHING if callback is None else await arun(self._fill(text, callback, args, options))
        except Exception:
            self._counts.errors += 1
            raise
        self._counts.add(answer[1])
        if answer[1] is not L2:
            await self.ahand_in()
        return answer

    def _look(self, key: str, options: Mapping[str, Any]) -> Answer | None:
        """What L2 has, put into L1."""
        if options:
            check(options)
        name = self._prefix + key
        version = self._version(key)
        raw = self._shm.get(name)
        if raw is None and self._miss is not None:
            raw = self._miss.get(name)
        return None if raw is None else self._from_l2(key, raw, options, version)

    async def _alook(self, key: str, options: Mapping[str, Any]) -> Answer | None:
        if options:
            check(options)
        name = self._prefix + key
        version = self._version(key)
        raw = await self._shm.aget(name)
        if raw is None and self._miss is not None:
            raw = await self._miss.aget(name)
        return None if raw is None else self._from_l2(key, raw, options, version)

    def _from_l1(self, key: str) -> Answer | None:
        item = self._find(key)
        if item is None or item[1] < self._now():
            return None
        try:
            self._to_end(key)
        except KeyError:  # deleted by another thread just now
            return None
        self._counts.l1 += 1
        return item[0], L1

    def _from_l2(self, key: str, raw: object, options: Mapping[str, Any], version: int) -> Answer | None:
        record = self._record(raw, key)
        if record is None:
            return None
        serialize = options.get("l1_serializer", self._serialize) if options else self._serialize
        return self._promote(key, record, serialize, version), STALE if record.stale else L2

    def _fill(self, key: str, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any]) -> Steps[Answer]:
        check_callback(callback)
        return self._filler.fill(key, callback, args, self.options.changed(options))

    def _start_anew(self) -> None:
        """In the child of a fork."""
        self.counter.start_anew()
        self._counts = self.counter.now
        self._filler.refresher.start_anew()


_all: WeakSet[Reading] = WeakSet()


def made() -> list[Any]:
    """All caches of this process that somebody holds."""
    return list(_all)


def _in_child() -> None:
    for cache in made():
        cache._start_anew()


os.register_at_fork(after_in_child=_in_child)

__all__ = ["Reading", "made"]
