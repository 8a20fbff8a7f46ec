"""What Django's cache backends of one LOCATION share in a process: L1, the shared dictionary, the channel, the counts.

L1 is filled by reading alone. Whoever writes forgets the key in L1, after L2 has the new value, and tells the other
processes to do so. So of two that write at once both lose, and the next reader takes what L2 has in the end.
"""

from __future__ import annotations

import logging
import math
import os
import time
from functools import partial
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from resty_django.events.steps import Step, Steps, arun, run
from resty_django.schema import SETTING
from resty_django.shdict import Change, Keep, NoMemory, NotFound, SharedDict, WrongKind, shdicts

from . import entries
from .backend_options import Options
from .channel import INVALIDATIONS, PURGE, Channel, ShmChannel, to_broadcast, to_poll
from .entries import Foreign
from .errors import ChannelFailed
from .lru import LRU
from .over_events import EventChannel
from .stats import Counter
from .whole import known_or

log = logging.getLogger("resty_django.cache")

NAME: Final = "django-cache/"
"""Begins the name under which other processes are told, so that it is no cache's of the settings."""


class Store:
    """See the module. Times to live are seconds, 0 for ever, below 0 not at all."""

    def __init__(self, location: str, options: Options) -> None:
        self.location = location
        self.options = options
        self.name = NAME + location
        self.shm: SharedDict = shdicts[location]
        # The entries of Redis are read on other machines, those of LMDB on this one.
        self.clock = time.time if self.shm.engine == "redis" else time.monotonic
        self.lru = LRU(options.lru_size or 1)
        self.find = self.lru.items.get
        self.to_end = self.lru.items.move_to_end
        self.now = self.lru.clock
        self.channel = self._channel()
        self.counter = Counter(self.name, self.shm)
        self.counts = self.counter.now
        self._place = location.encode() + b"\0"

    def _channel(self) -> Channel | None:
        if not self.options.lru_size:
            return None
        name = self.options.ipc_shm
        channel: Channel = EventChannel() if name is None else ShmChannel(shdicts[name])
        channel.register_listeners({INVALIDATIONS + self.name: self.forget, PURGE + self.name: self.forget_all})
        return channel

    # --- L1 ---

    def forget(self, key: str) -> None:
        """Forget a key in L1. Whoever is reading it from L2 just now does not put it there."""
        self.lru.delete(key)

    def forget_all(self, data: str = "") -> None:
        self.lru.flush_all()

    def _keep(self, key: str, entry: entries.Entry, version: int) -> None:
        """Put an entry into L1 for the time that it has left. `version`: that of the key before it was read."""
        life = self.options.lru_ttl or math.inf
        if entry.ttl:
            life = min(life, entry.ttl, entry.stored + entry.ttl - self.clock())
        if self.options.lru_size and life > 0:
            self.lru.put(key, (entry.shown, self.now() + life, 0), version)

    # --- reading L2 ---

    def read(self, key: str) -> tuple[Any] | None:
        """The value that L2 has, put into L1; None where it has nothing."""
        version = self.lru.version(key)
        try:
            raw = self.shm.get(key)
        except WrongKind:
            raw = ()
        found = self._understood(key, raw, version)
        if found is None and raw is not None:
            self._drop(key, raw)
        self.hand_in()
        return found

    async def aread(self, key: str) -> tuple[Any] | None:
        """As `read`."""
        version = self.lru.version(key)
        try:
            raw = await self.shm.aget(key)
        except WrongKind:
            raw = ()
        found = self._understood(key, raw, version)
        if found is None and raw is not None:
            await self._adrop(key, raw)
        await self.ahand_in()
        return found

    def _understood(self, key: str, raw: Any, version: int) -> tuple[Any] | None:
        if raw is None:
            self.counts.misses += 1
            return None
        if type(raw) is int or type(raw) is float:
            self.counts.l2 += 1
            return (raw,)
        try:
            entry = entries.decode(self._place_of(key), raw)
        except Foreign as error:
            log.warning("the entry of the key %r in %r counts as absent: %s", key, self.shm, error)
            self.counts.misses += 1
            return None
        self.counts.l2 += 1
        self._keep(key, entry, version)
        return (entry.value,)

    def _drop(self, key: str, raw: Any) -> None:
        """Free the place of what is not ours, but for a list."""
        if raw != ():
            self.shm.delete_if(key, raw)

    async def _adrop(self, key: str, raw: Any) -> None:
        if raw != ():
            await self.shm.adelete_if(key, raw)

    def _place_of(self, key: str) -> bytes:
        return self._place + key.encode("utf-8", "surrogatepass")

    # --- writing ---

    def set(self, key: str, value: Any, ttl: float) -> Steps[bool]:
        """False where there is no room; then nothing is there at all."""
        if ttl < 0:
            yield from self.delete(key)
            return True
        raw = entries.encode(self._place_of(key), value, self.clock(), ttl)
        stored = True
        try:
            yield from self._write(key, Step(self.shm.set, self.shm.aset, (key, raw, ttl)))
        except NoMemory as error:
            self._full(key, error)
            stored = False
            yield Step(self.shm.delete, self.shm.adelete, (key,))
        yield from self._tell(key)
        return stored

    def add(self, key: str, value: Any, ttl: float) -> Steps[bool]:
        """True where nothing was there."""
        raw = entries.encode(self._place_of(key), value, self.clock(), ttl)
        if ttl < 0:
            there = yield Step(self.shm.get, self.shm.aget, (key,))
            return there is None
        try:
            stored = yield Step(self.shm.add, self.shm.aadd, (key, raw, ttl))
        except NoMemory as error:
            self._full(key, error)
            return False
        if stored:  # what was thrown out of L2 may still be in an L1
            yield from self._tell(key)
        return bool(stored)

    def touch(self, key: str, ttl: float) -> Steps[bool]:
        """False where nothing was there."""
        if ttl < 0:
            return (yield from self.delete(key))
        stored = self.clock()

        def renew(raw: Any) -> Change | Keep:
            try:
                return Keep(False) if raw is None else Change(entries.renewed(raw, stored, ttl), ttl, True)
            except Foreign:
                return Keep(False)

        try:
            there: bool = yield from self._write(key, Step(self.shm.update, self.shm.aupdate, (key, renew)))
        except NoMemory as error:
            self._full(key, error)
            return False
        if there:
            yield from self._tell(key)
        return there

    def incr(self, key: str, delta: float) -> Steps[Any]:
        """The sum. Numbers are in no L1, so nobody has to be told. Raises `ValueError` where nothing is there."""
        try:
            return (yield Step(self.shm.incr, self.shm.aincr, (key, delta)))
        except NotFound:
            raise ValueError(f"Key {key!r} not found") from None

    def delete(self, key: str) -> Steps[bool]:
        """True where something was there."""
        there: bool = yield from self._write(key, Step(self.shm.delete, self.shm.adelete, (key,)))
        yield from self._tell(key)
        return there

    def clear(self) -> Steps[None]:
        """Empty the whole dictionary."""
        yield Step(self.shm.flush_all, self.shm.aflush_all)
        yield Step(self.shm.flush_expired, self.shm.aflush_expired)
        self.forget_all()
        yield from self._broadcast(PURGE, "")

    def _write(self, key: str, step: Step) -> Steps[Any]:
        with known_or(partial(self.forget, key)):
            return (yield step)

    def _full(self, key: str, error: NoMemory) -> None:
        log.warning("the key %r is not in %r: %s", key, self.shm, error)

    # --- other processes ---

    def _tell(self, key: str) -> Steps[None]:
        self.forget(key)
        yield from self._broadcast(INVALIDATIONS, key)

    def _broadcast(self, what: str, data: str) -> Steps[None]:
        """Where it fails others keep an old copy until its time in L1 is over; L2 has the new one, so that is no error
        of the caller."""
        if self.channel is not None:
            try:
                yield from to_broadcast(self.channel, what + self.name, data)
            except ChannelFailed as error:
                log.error(
                    "other processes may see an old value in %r for %s s: %s", self.shm, self.options.lru_ttl, error
                )

    def update(self, timeout: float) -> Steps[None]:
        """Hear what other processes have told until now. Raises `ChannelFailed`."""
        if self.channel is not None:
            yield from to_poll(self.channel, timeout)

    def hand_in(self) -> None:
        """Hand in what was counted, if that is due. A dictionary that does not answer is no error."""
        if self.counter.due():
            run(self.counter.hand_in())

    async def ahand_in(self) -> None:
        """As `hand_in`."""
        if self.counter.due():
            await arun(self.counter.hand_in())

    def start_anew(self) -> None:
        """In the child of a fork."""
        self.counter.start_anew()
        self.counts = self.counter.now


class Stores(dict[str, Store]):
    """The stores of a process by LOCATION, made on first use, and anew when settings change."""

    def of(self, location: str, options: Options) -> Store:
        """Raises `ImproperlyConfigured`."""
        found = self.get(location) or self.setdefault(location, Store(location, options))
        if found.options != options:
            raise ImproperlyConfigured(
                f"Two caches in CACHES have the LOCATION {location!r} with different OPTIONS. They share their memory: "
                "give them the same LRU_SIZE, LRU_TTL and IPC_SHM, or a dictionary each."
            )
        return found

    def start_anew(self) -> None:
        for store in self.values():
            store.start_anew()


stores: Final = Stores()


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in {SETTING, "CACHES"}:
        stores.clear()


setting_changed.connect(_forget, dispatch_uid="resty_django.cache.store")
os.register_at_fork(after_in_child=stores.start_anew)

__all__ = ["Store", "stores"]
