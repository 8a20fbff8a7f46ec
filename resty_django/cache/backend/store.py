"""State shared by the cache backends with one LOCATION in a process: L1, the dictionary, the channel, the counts.

Only readers fill L1. A writer deletes the key in L1 after L2 has the new value, and notifies the other processes, which
do the same. So if two processes write at once, L1 has neither value, and the next reader fetches the final value from
L2.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

from resty_django.conf import on_change
from resty_django.conf.schema import SETTING
from resty_django.forks import after_fork
from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import Change, Keep, NoMemory, NotFound, SharedDict, Unreadable, WrongKind, shdicts
from resty_django.text import logger

from ..errors import ChannelFailed
from ..invalidation.channel import INVALIDATIONS, PURGE, Channel, to_broadcast, to_poll
from ..invalidation.events import EventChannel
from ..mlcache.lru import LRU
from ..mlcache.shielding import forget_if_interrupted
from ..statistics.reporter import Counter
from . import entries
from .entries import Foreign
from .options import Options

log = logger("resty_django.cache")

NAME: Final = "django-cache/"
"""Prefix of the cache's name in events, which no cache in the settings can have."""


class Store:
    """The state for one LOCATION. Times to live are in seconds; 0: forever, negative: not stored."""

    def __init__(self, location: str, options: Options) -> None:
        self.location = location
        self.options = options
        self.name = NAME + location
        self.shm: SharedDict = shdicts[location]
        # Entries in Redis are read on other machines, entries in LMDB only on this one.
        self.clock = time.time if self.shm.engine == "redis" else time.monotonic
        self.lru = LRU(options.lru_size or 1)
        self.find = self.lru.items.get
        self.to_end = self.lru.items.move_to_end
        self.now = self.lru.clock
        self.channel = self._channel()
        self.counter = Counter(self.name, self.shm)
        self.counts = self.counter.now
        self._context = location.encode() + b"\0"

    def _channel(self) -> Channel | None:
        if not self.options.lru_size:
            return None
        channel = EventChannel()
        channel.register_listeners({INVALIDATIONS + self.name: self.forget, PURGE + self.name: self.forget_all})
        return channel

    # --- L1 ---

    def forget(self, key: str) -> None:
        """Delete a key in L1. A reader that is fetching it from L2 will not store it there."""
        self.lru.delete(key)

    def forget_all(self, data: str = "") -> None:
        self.lru.flush_all()

    def _keep(self, key: str, entry: entries.Entry, version: int) -> None:
        """Store an entry in L1 for its remaining time. `version`: the version of the key before it was read."""
        life = self.options.lru_ttl or math.inf
        if entry.ttl:
            life = min(life, entry.ttl, entry.stored + entry.ttl - self.clock())
        if self.options.lru_size and life > 0:
            self.lru.put(key, (entry.l1_value, self.now() + life, 0), version)

    # --- reading L2 ---

    def read(self, key: str) -> tuple[Any] | None:
        """Return the value in L2 as a 1-tuple, after storing it in L1; None if L2 has none."""
        version = self.lru.version(key)
        try:
            raw = self.shm.get(key)
        except WrongKind:
            raw = ()
        except Unreadable:
            self.shm.delete(key)
            raw = ()
        reply = self.decode(key, raw, version)
        if reply is None and raw is not None:
            self._drop(key, raw)
        self.flush_counts()
        return reply

    async def aread(self, key: str) -> tuple[Any] | None:
        """Do the same as `read`."""
        version = self.lru.version(key)
        try:
            raw = await self.shm.aget(key)
        except WrongKind:
            raw = ()
        except Unreadable:
            await self.shm.adelete(key)
            raw = ()
        reply = self.decode(key, raw, version)
        if reply is None and raw is not None:
            await self._adrop(key, raw)
        await self.aflush_counts()
        return reply

    def decode(self, key: str, raw: Any, version: int) -> tuple[Any] | None:
        if raw is None:
            self.counts.misses += 1
            return None
        if type(raw) is int or type(raw) is float:
            self.counts.l2 += 1
            return (raw,)
        try:
            entry = entries.decode(self._context_of(key), raw, self.clock())
        except Foreign as error:
            log.warning("The entry of the key %r in %r counts as absent: %s", key, self.shm, error)
            self.counts.misses += 1
            return None
        self.counts.l2 += 1
        self._keep(key, entry, version)
        return (entry.value,)

    def _drop(self, key: str, raw: Any) -> None:
        """Delete an entry that this cache has not written, unless it is a list."""
        if raw != ():
            self.shm.delete_if(key, raw)

    async def _adrop(self, key: str, raw: Any) -> None:
        if raw != ():
            await self.shm.adelete_if(key, raw)

    def _context_of(self, key: str) -> bytes:
        return self._context + key.encode("utf-8", "surrogatepass")

    # --- writing ---

    def set(self, key: str, value: Any, ttl: float) -> Steps[bool]:
        """Store a value. Return False if there is no space; then the key does not exist."""
        if ttl < 0:
            yield from self.delete(key)
            return True
        raw = entries.encode(self._context_of(key), value, self.clock(), ttl)
        stored = True
        try:
            yield from self._write(key, Step(self.shm.set, self.shm.aset, (key, raw, ttl)))
        except NoMemory as error:
            self._log_full(key, error)
            stored = False
            yield Step(self.shm.delete, self.shm.adelete, (key,))
        yield from self._invalidate(key)
        return stored

    def add(self, key: str, value: Any, ttl: float) -> Steps[bool]:
        """Store a value if the key does not exist. Return whether it was stored."""
        raw = entries.encode(self._context_of(key), value, self.clock(), ttl)
        if ttl < 0:
            try:
                value = yield Step(self.shm.get, self.shm.aget, (key,))
            except Unreadable:
                value = None
            return value is None
        try:
            stored = yield Step(self.shm.add, self.shm.aadd, (key, raw, ttl))
        except NoMemory as error:
            self._log_full(key, error)
            return False
        if stored:  # an item that L2 has evicted may still be in an L1
            yield from self._invalidate(key)
        return bool(stored)

    def touch(self, key: str, ttl: float) -> Steps[bool]:
        """Set a new time to live. Return False if the key does not exist."""
        if ttl < 0:
            return (yield from self.delete(key))
        stored, context = self.clock(), self._context_of(key)

        def renew(raw: Any) -> Change | Keep:
            try:
                return Keep(False) if raw is None else Change(entries.renewed(context, raw, stored, ttl), ttl, True)
            except Foreign:
                return Keep(False)

        try:
            existed: bool = yield from self._write(key, Step(self.shm.update, self.shm.aupdate, (key, renew)))
        except NoMemory as error:
            self._log_full(key, error)
            return False
        except Unreadable:
            return False
        if existed:
            yield from self._invalidate(key)
        return existed

    def incr(self, key: str, delta: float) -> Steps[Any]:
        """Add to a number and return the sum. Numbers are never in L1, so no event is sent. Raise `ValueError` if the
        key does not exist.
        """
        try:
            return (yield Step(self.shm.incr, self.shm.aincr, (key, delta)))
        except NotFound:
            raise ValueError(f"Key {key!r} not found") from None

    def delete(self, key: str) -> Steps[bool]:
        """Delete a key. Return whether it existed."""
        existed: bool = yield from self._write(key, Step(self.shm.delete, self.shm.adelete, (key,)))
        yield from self._invalidate(key)
        return existed

    def clear(self) -> Steps[None]:
        """Empty the whole dictionary."""
        yield Step(self.shm.flush_all, self.shm.aflush_all)
        yield Step(self.shm.flush_expired, self.shm.aflush_expired)
        self.forget_all()
        yield from self._broadcast(PURGE, "")

    def _write(self, key: str, step: Step) -> Steps[Any]:
        with forget_if_interrupted(partial(self.forget, key)):
            return (yield step)

    def _log_full(self, key: str, error: NoMemory) -> None:
        log.warning("The key %r was not stored in %r: %s", key, self.shm, error)

    # --- other processes ---

    def _invalidate(self, key: str) -> Steps[None]:
        self.forget(key)
        yield from self._broadcast(INVALIDATIONS, key)

    def _broadcast(self, channel: str, data: str) -> Steps[None]:
        """Notify other processes. If this fails, they keep an old copy until it expires in L1. L2 has the new value, so
        no
        error is raised."""
        if self.channel is not None:
            try:
                yield from to_broadcast(self.channel, channel + self.name, data)
            except ChannelFailed as error:
                log.error(
                    "Other processes may see an old value in %r for %s s: %s", self.shm, self.options.lru_ttl, error
                )

    def update(self, timeout: float) -> Steps[None]:
        """Apply invalidations from other processes. Raise `ChannelFailed`."""
        if self.channel is not None:
            yield from to_poll(self.channel, timeout)

    def flush_counts(self) -> None:
        """Flush the counts of this process, if that is due. An unavailable dictionary is not an error."""
        if self.counter.is_due():
            run(self.counter.flush())

    async def aflush_counts(self) -> None:
        """Do the same as `flush_counts`."""
        if self.counter.is_due():
            await arun(self.counter.flush())

    def after_fork(self) -> None:
        """Drop the parent's state in a forked child."""
        self.counter.after_fork()
        self.counts = self.counter.now


class Stores(dict[str, Store]):
    """The stores of a process by LOCATION, created on first use and recreated when settings change."""

    def of(self, location: str, options: Options) -> Store:
        """Return the store for a LOCATION. Raise `ImproperlyConfigured`."""
        store = self.get(location) or self.setdefault(location, Store(location, options))
        if store.options != options:
            raise ImproperlyConfigured(
                f"Two caches in CACHES have the LOCATION {location!r} with different OPTIONS. They share "
                "their memory. Set the same LRU_SIZE and LRU_TTL, or use separate dictionaries."
            )
        return store

    def after_fork(self) -> None:
        for store in self.values():
            store.after_fork()


stores: Final = Stores()


on_change(stores.clear, SETTING, "CACHES")
after_fork(stores.after_fork)
