"""State shared by the cache backends with one LOCATION in a process: its levels, its channel and its counts.

Only readers fill L1. A writer deletes the key in L1 after L2 has the new value, and notifies the other processes, which
do the same. So if two processes write at once, L1 has neither value, and the next reader fetches the final value from
L2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from django.core.exceptions import ImproperlyConfigured

from resty_django.conf import on_change
from resty_django.conf.schema import SETTING
from resty_django.sansio import Step, Steps
from resty_django.shdict import (
    Keep,
    NoMemory,
    NotFound,
    SharedDict,
    StoreOutcome,
    Unavailable,
    Unreadable,
    Update,
    WrongKind,
    shdicts,
)
from resty_django.shdict.base import Entry as JournalEntry
from resty_django.text import logger

from ..backend_options import BackendOptions
from ..broadcasts.channel import Broadcast, Carried, InvalidationChannel, carried, listen, parts_of
from ..broadcasts.events import EventChannel
from ..errors import ChannelFailed
from ..levels import NO_BROADCAST, Levels
from ..statistics.reporter import CacheCounter
from ..storage.compression import Compressor
from ..storage.lru import LRU, LRUItem
from ..storage.tag_encoding import Versions
from ..tags.names import Tags, resolved
from . import entries
from .entries import Entry, Foreign
from .locks import CacheLock

log = logger("resty_django.cache")

DJANGO_CACHE_PREFIX: Final = "django-cache/"
"""Prefix of the cache's name in events, which no cache in the settings can have."""
LOCK_PREFIX: Final = DJANGO_CACHE_PREFIX + "lock:"
"""Prefix of the locks that the site uses."""
LOADING_PREFIX: Final = DJANGO_CACHE_PREFIX + "loading:"
"""Prefix of the locks of `get_or_set`."""

Call = Callable[..., Any]
R = TypeVar("R")


class BackendStore(Levels):
    """The levels for one LOCATION. Times to live are in seconds; 0: forever, negative: not stored."""

    def __init__(self, location: str, options: BackendOptions) -> None:
        self.location = location
        self.options = options
        self.dictionary: SharedDict = shdicts[location]
        name, lru = DJANGO_CACHE_PREFIX + location, LRU(options.lru_size or 1)
        channel: InvalidationChannel | None = None
        if options.lru_size:  # without L1, no process keeps a copy
            channel = EventChannel(self.dictionary)
            listen(channel, name, lru)
        counter = CacheCounter(name, self.dictionary)
        compressor = Compressor(options.compress, options.compress_above, options.decompress_limit, counter.now)
        super().__init__(name, lru, (self.dictionary,), channel, counter, compressor, options.on_error)
        self.counts = counter.now
        self.find = lru.items.get
        self.to_end = lru.items.move_to_end
        self.now = lru.clock
        self._context = location.encode() + b"\0"

    # --- entries ---

    def record(self, raw: object, key: str) -> Entry | None:
        try:
            return entries.decode(self.context_of(key), raw, self.clock(), self.compressor.limit)
        except Foreign as error:
            log.warning("The entry of the key %r in %r counts as absent: %s", key, self.shm, error)
            return None

    def context_of(self, key: str) -> bytes:
        return self._context + key.encode("utf-8", "surrogatepass")

    def keep(self, key: str, entry: Entry, version: int, moment: int = 0) -> None:
        """Store an entry in L1 for its remaining time. `version`: the version of the key before it was read. `moment`:
        the moment of the index before its tags were found to be current."""
        l1_value = entry.for_l1() if self.options.lru_size else None
        if l1_value is None:
            return
        life = self.options.lru_ttl or math.inf
        if entry.ttl:
            life = min(life, entry.ttl, entry.stored + entry.ttl - self.clock())
        if life > 0:
            item = LRUItem(l1_value, self.now() + life)
            if entry.tags:
                self.index.put(self.lru, key, item, version, entry.tags, moment)
            else:
                self.lru.put(key, item, version)

    def _encoded(self, key: str, value: object, ttl: float, versions: Versions) -> Any:
        """Return the entry of a value. `versions`: of its tags."""
        return entries.encode(self.context_of(key), value, self.clock(), ttl, versions, self.compressor)

    def _versions(self, tags: Tags) -> Steps[Versions]:
        return (yield from self.tags.load(resolved(tags, ())))

    # --- writing ---

    def set(self, key: str, value: object, ttl: float, tags: Tags = ()) -> Steps[None]:
        """Store a value. If there is no space, the key does not exist."""
        if ttl < 0:
            yield from self.delete(key)
            return
        try:
            raw = self._encoded(key, value, ttl, (yield from self._versions(tags)) if tags else {})
            try:
                yield from self._write(key, self.shm.set, self.shm.aset, (key, raw, ttl, 0))
            except NoMemory as error:
                self.log_full(key, error)
                yield from self.delete(key)
        except (Unavailable, NoMemory) as error:
            if self.on_error == "raise":
                raise
            yield from self.forget_unstored((key,), error)

    def set_many(self, values: Mapping[str, object], ttl: float, tags: Tags = ()) -> Steps[Sequence[str]]:
        """Store values. Return the keys that could not be stored; then they do not exist."""
        if ttl < 0:
            yield from self.delete_many(values)
            return ()
        failed: list[str] = []
        try:
            versions = (yield from self._versions(tags)) if tags else {}
            raws = {key: self._encoded(key, value, ttl, versions) for key, value in values.items()}
            for keys in parts_of(raws):
                failed += yield from self._set_part({key: raws[key] for key in keys}, ttl)
        except (Unavailable, NoMemory) as error:
            if self.on_error == "raise":
                raise
            yield from self.forget_unstored(values, error)
            return list(values)
        if failed:
            log.warning(
                "%d keys were not stored in %r, because it has no space: %r", len(failed), self.shm, failed[:10]
            )
            yield from self.delete_many(failed)
        return failed

    def _set_part(self, raws: Mapping[str, object], ttl: float) -> Steps[Sequence[str]]:
        def write(entry: JournalEntry) -> Steps[Sequence[str]]:
            failed: Sequence[str] = yield Step(self.shm.set_many, self.shm.aset_many, (raws, ttl, 0, entry))
            return failed

        broadcast, forget = self.deletion_of_many(raws), partial(self.lru.delete_many, raws)
        return (yield from self.change(write, broadcast, forget)) or ()

    def add(self, key: str, value: object, ttl: float, tags: Tags = ()) -> Steps[bool]:
        """Store a value if the key does not exist. Return whether it was stored."""
        raw = self._encoded(key, value, ttl, (yield from self._versions(tags)) if tags else {})
        if ttl < 0:
            return (yield from self.remaining(key)) == 0.0
        write = partial(self._write, key, self.shm.add_or_get, self.shm.aadd_or_get, (key, raw, ttl))
        try:
            stored = yield from write()
            if not isinstance(stored, StoreOutcome):
                versions = entries.tags_of(stored)
                if versions and not (yield from self.tags.are_current(versions)):
                    yield Step(self.shm.delete_if, self.shm.adelete_if, (key, stored))
                    stored = yield from write()
        except NoMemory as error:
            self.log_full(key, error)
            return False
        except (Foreign, Unreadable, WrongKind):  # what is there was not written by this cache
            return False
        return isinstance(stored, StoreOutcome)

    def touch(self, key: str, ttl: float) -> Steps[bool]:
        """Set a new time to live. Return False if the key does not exist."""
        if ttl < 0:
            return (yield from self.delete(key))
        stored, context = self.clock(), self.context_of(key)

        def renew(raw: object) -> Update | Keep:
            try:
                return Keep(False) if raw is None else Update(entries.renewed(context, raw, stored, ttl), ttl, True)
            except Foreign:
                return Keep(False)

        try:
            return bool((yield from self._write(key, self.shm.update, self.shm.aupdate, (key, renew))))
        except NoMemory as error:
            self.log_full(key, error)
        except Unreadable:
            pass
        return False

    def incr(self, key: str, delta: float, init_ttl: float | None) -> Steps[Any]:
        """Add to a number and return the sum. Numbers are never in L1, so no event is sent.

        If the key does not exist, store `delta` for `init_ttl` seconds (0: forever), or raise `ValueError` if that is
        None.
        """
        init = () if init_ttl is None else (0, init_ttl)
        try:
            return (yield Step(self.shm.incr, self.shm.aincr, (key, delta, *init)))
        except NotFound:
            raise ValueError(f"Key {key!r} not found") from None
        except (Unavailable, NoMemory) as error:
            self.missed(error)
            raise ValueError(f"Key {key!r} not found") from error

    def _write(self, key: str, call: Call, acall: Call, args: tuple[object, ...]) -> Steps[Any]:
        """Make a call of the dictionary that changes a key, and notify the other processes if it did."""
        if self.channel is None:  # there is no L1
            return (yield Step(call, acall, args))
        broadcast = self.deletion(key)
        entry, broadcasts = self.carried(broadcast)
        try:
            changed = yield Step(call, acall, (*args, entry))
        except Exception:
            raise
        except BaseException:
            self.lru.delete(key)  # the value in L2 is unknown
            raise
        if changed is True or isinstance(changed, StoreOutcome):  # an item that L2 evicted may still be in an L1
            self.lru.delete(key)
            if broadcasts:
                yield from self.announce(broadcast, "source")
        return changed

    def remaining(self, key: str) -> Steps[float | None]:
        """Return the seconds until the key expires; None if it never does, 0 if it does not exist."""
        ttl = yield Step(self.shm.ttl, self.shm.attl, (key,))
        return 0.0 if ttl is None else ttl or None

    def lock(self, key: str, timeout: float | None, sleep: float, blocking_timeout: float | None) -> CacheLock:
        return CacheLock(self.shm, LOCK_PREFIX + key, timeout, sleep, blocking_timeout)

    def loading(self, key: str) -> CacheLock:
        """Return the lock held while a missing value is loaded: for at most 30 seconds, awaited for at most 5."""
        return CacheLock(self.shm, LOADING_PREFIX + key, timeout=30, sleep=0.01, blocking_timeout=5)

    # --- without the store ---

    def missed(self, error: Unavailable | NoMemory) -> None:
        """Count a call without the store, or raise the error if ON_ERROR is "raise"."""
        if self.on_error == "raise":
            raise error
        self.count_storeless()

    def or_else(self, result: R, steps: Steps[R]) -> Steps[R]:
        """Take these steps. While the store is down, return `result`, unless the error is to be raised."""
        try:
            return (yield from steps)
        except (Unavailable, NoMemory) as error:
            self.missed(error)
            return result

    # --- other processes ---

    def carried(self, broadcast: Broadcast) -> Carried:
        if self.channel is None:
            return NO_BROADCAST
        try:
            return carried(self.channel, broadcast)
        except ChannelFailed as error:
            self._log_old(error)
            return NO_BROADCAST

    def announce(self, broadcast: Broadcast, on_error: str) -> Steps[None]:
        """Notify other processes. If this fails, they keep an old copy until it expires in L1. L2 has the new value, so
        no error is raised."""
        try:
            yield from super().announce(broadcast, "source")
        except (ChannelFailed, Unavailable) as error:
            self._log_old(error)

    def _log_old(self, error: Exception) -> None:
        log.error("Other processes may see an old value in %r for %s s: %s", self.shm, self.options.lru_ttl, error)


class BackendStores(dict[str, BackendStore]):
    """The stores of a process by LOCATION, created on first use and recreated when settings change."""

    def of(self, location: str, options: BackendOptions) -> BackendStore:
        """Return the store for a LOCATION. Raise `ImproperlyConfigured`."""
        store = self.get(location) or self.setdefault(location, BackendStore(location, options))
        if store.options != options:
            raise ImproperlyConfigured(
                f"Two caches in CACHES have the LOCATION {location!r} with different OPTIONS. They share "
                "their memory. Set the same LRU_SIZE and LRU_TTL, or use separate dictionaries."
            )
        return store


stores: Final = BackendStores()

on_change(stores.clear, SETTING, "CACHES")
