"""State shared by the cache backends with one LOCATION in a process: L1, the dictionary, the channel, the counts.

Only readers fill L1. A writer deletes the key in L1 after L2 has the new value, and notifies the other processes, which
do the same. So if two processes write at once, L1 has neither value, and the next reader fetches the final value from
L2.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from django.core.exceptions import ImproperlyConfigured

from resty_django.conf import on_change
from resty_django.conf.schema import SETTING
from resty_django.forks import after_fork
from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import (
    Change,
    Keep,
    NoMemory,
    NotFound,
    SharedDict,
    Unavailable,
    Unreadable,
    WrongKind,
    shdicts,
)
from resty_django.text import logger

from ..broadcasts.announce import announce, is_outage
from ..broadcasts.channel import (
    INVALIDATIONS,
    MANY,
    PURGE,
    TAGS,
    Carried,
    Channel,
    carried,
    keys_text,
    listen,
    parts_of,
    to_poll,
)
from ..broadcasts.events import EventChannel
from ..circuit_breaker.breaker import breaker_of
from ..circuit_breaker.guarded import guarded
from ..errors import ChannelFailed
from ..statistics.reporter import Counter
from ..storage.compression import Compressor
from ..storage.lru import LRU
from ..storage.shielding import forget_if_interrupted
from ..storage.tag_encoding import Versions
from ..tags.index import index_of
from ..tags.names import Tags, invalidated, resolved
from ..tags.versions import TagVersions
from . import entries, tagged
from .entries import Foreign
from .locks import CacheLock
from .options import Options

log = logger("resty_django.cache")

NAME: Final = "django-cache/"
"""Prefix of the cache's name in events, which no cache in the settings can have."""
LOCK: Final = NAME + "lock:"
"""Prefix of the locks that the site uses."""
LOADING: Final = NAME + "loading:"
"""Prefix of the locks of `get_or_set`."""
LOADING_EXPTIME: Final = 30.0
LOADING_TIMEOUT: Final = 5.0
LOADING_STEP: Final = 0.01

Method = TypeVar("Method", bound=Callable[..., Steps[Any]])

UNHEARD: Final = Carried(None, False)
"""Of a cache without L1: no process keeps a copy."""


def missing(result: Callable[[], Any], forgets: bool = False) -> Callable[[Method], Method]:
    """Return a decorator for methods that are steps: while the store is down, they return `result()`.

    `forgets`: the key, the first argument, is deleted in L1, and in L2 when the store can be used again.
    """

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def steps(self: Store, key: Any, *args: Any) -> Steps[Any]:
            try:
                return (yield from method(self, key, *args))
            except (Unavailable, NoMemory) as error:
                self.missed(error)
                if forgets:
                    self._forget_later(error, (key,))
                return result()

        return steps  # type: ignore[return-value]

    return decorate


class Store:
    """The state for one LOCATION. Times to live are in seconds; 0: forever, negative: not stored."""

    def __init__(self, location: str, options: Options) -> None:
        self.location = location
        self.options = options
        self.name = NAME + location
        self._invalidations = INVALIDATIONS + self.name
        self.dictionary: SharedDict = shdicts[location]
        self.shm = guarded(self.dictionary)
        self.breaker = breaker_of(self.dictionary)
        # Entries in Redis are read on other machines, entries in LMDB only on this one.
        self.clock = time.time if self.shm.engine == "redis" else time.monotonic
        self.lru = LRU(options.lru_size or 1)
        self.find = self.lru.items.get
        self.to_end = self.lru.items.move_to_end
        self.index = index_of(self.lru)
        self.tags = TagVersions(self.shm, self.name)
        self.now = self.lru.clock
        self.channel: Channel | None = None
        if options.lru_size:
            self.channel = EventChannel(self.dictionary)
            listen(self.channel, self.name, self.lru)
        self.counter = Counter(self.name, self.dictionary)
        self.counts = self.counter.now
        self.compressor = Compressor(
            options.compress, options.compress_above, options.decompress_limit, lambda: self.counter.now
        )
        self._context = location.encode() + b"\0"

    # --- L1 ---

    def forget(self, key: str) -> None:
        """Delete a key in L1. A reader that is fetching it from L2 will not store it there."""
        self.lru.delete(key)

    def keep(self, key: str, entry: entries.Entry, version: int, tags: Collection[str] = (), moment: int = 0) -> None:
        """Store an entry in L1 for its remaining time. `version`: the version of the key before it was read. `tags`:
        its tags, which were current after this `moment` of the index."""
        life = self.options.lru_ttl or math.inf
        if entry.ttl:
            life = min(life, entry.ttl, entry.stored + entry.ttl - self.clock())
        if self.options.lru_size and life > 0:
            item = (entry.l1_value, self.now() + life, 0)
            if tags:
                self.index.put(self.lru, key, item, version, tags, moment)
            else:
                self.lru.put(key, item, version)

    def drop(self, key: str, raw: Any) -> None:
        """Delete an entry that this cache has not written, unless it is a list."""
        if raw != ():
            self.shm.delete_if(key, raw)

    async def adrop(self, key: str, raw: Any) -> None:
        if raw != ():
            await self.shm.adelete_if(key, raw)

    def context_of(self, key: str) -> bytes:
        return self._context + key.encode("utf-8", "surrogatepass")

    # --- writing ---

    def _encoded(self, key: str, value: Any, ttl: float, versions: Versions) -> Any:
        """Return the entry of a value. `versions`: of its tags."""
        if versions:
            return tagged.encode(self.context_of(key), value, self.clock(), ttl, versions, self.compressor)
        return entries.encode(self.context_of(key), value, self.clock(), ttl, self.compressor)

    def _versions(self, tags: Tags) -> Steps[Versions]:
        return (yield from self.tags.load(resolved(tags, ()))) if tags else {}

    @missing(bool, forgets=True)
    def set(self, key: str, value: Any, ttl: float, tags: Tags = ()) -> Steps[bool]:
        """Store a value. Return False if there is no space; then the key does not exist."""
        if ttl < 0:
            yield from self.delete(key)
            return True
        raw = self._encoded(key, value, ttl, (yield from self._versions(tags)))
        entry, broadcasts = self._carried(self._invalidations, key)
        stored = True
        try:
            yield from self._write(key, Step(self.shm.set, self.shm.aset, (key, raw, ttl, 0, entry)))
        except NoMemory as error:
            self._log_full(key, error)
            stored = False
            yield Step(self.shm.delete, self.shm.adelete, (key, entry))
        self.forget(key)
        if broadcasts:
            yield from self._broadcast(self._invalidations, key)
        return stored

    def set_many(self, values: Mapping[str, Any], ttl: float, tags: Tags = ()) -> Steps[Sequence[str]]:
        """Store values. Return the keys that could not be stored; then they do not exist."""
        try:
            return (yield from self._set_many(values, ttl, tags))
        except (Unavailable, NoMemory) as error:
            self.missed(error)
            self._forget_later(error, values)
            return list(values)

    def _set_many(self, values: Mapping[str, Any], ttl: float, tags: Tags) -> Steps[Sequence[str]]:
        if ttl < 0:
            yield from self.delete_many(values)
            return ()
        versions = yield from self._versions(tags)
        raws = {key: self._encoded(key, value, ttl, versions) for key, value in values.items()}
        failed: list[str] = []
        for keys in parts_of(raws):
            part = {key: raws[key] for key in keys}
            failed += yield from self._change_many(keys, self.shm.set_many, self.shm.aset_many, (part, ttl, 0))
        if failed:
            log.warning(
                "%d keys were not stored in %r, because it has no space: %r", len(failed), self.shm, failed[:10]
            )
            yield from self.delete_many(failed)
        return failed

    def delete_many(self, keys: Iterable[str]) -> Steps[int]:
        """Delete keys. Return how many existed, as far as known."""
        deleted = 0
        for part in parts_of(keys):
            try:
                deleted += yield from self._change_many(part, self.shm.delete_many, self.shm.adelete_many, (part,))
            except Unavailable as error:
                self.missed(error)
                self._forget_later(error, part)
        return deleted

    def _change_many(
        self, keys: list[str], call: Callable[..., Any], acall: Callable[..., Any], args: tuple[Any, ...]
    ) -> Steps[Any]:
        """Make a call of the dictionary that changes these keys, with one invalidation."""
        name, data = MANY + self.name, keys_text(keys)
        entry, broadcasts = self._carried(name, data)
        with forget_if_interrupted(partial(self.lru.delete_many, keys)):
            result = yield Step(call, acall, (*args, entry))
        self.lru.delete_many(keys)
        if broadcasts:
            yield from self._broadcast(name, data)
        return result

    @missing(bool)
    def add(self, key: str, value: Any, ttl: float, tags: Tags = ()) -> Steps[bool]:
        """Store a value if the key does not exist. Return whether it was stored."""
        raw = self._encoded(key, value, ttl, (yield from self._versions(tags)))
        if ttl < 0:
            try:
                value = yield Step(self.shm.get, self.shm.aget, (key,))
            except Unreadable:
                value = None
            return value is None
        entry, broadcasts = self._carried(self._invalidations, key)
        try:
            stored = yield Step(self.shm.add, self.shm.aadd, (key, raw, ttl, 0, entry))
            if not stored and (yield from self._is_invalidated(key)):
                stored = yield Step(self.shm.add, self.shm.aadd, (key, raw, ttl, 0, entry))
        except NoMemory as error:
            self._log_full(key, error)
            return False
        if stored:  # an item that L2 has evicted may still be in an L1
            self.forget(key)
            if broadcasts:
                yield from self._broadcast(self._invalidations, key)
        return bool(stored)

    def _is_invalidated(self, key: str) -> Steps[bool]:
        """Return whether the key had an entry with an invalidated tag, after deleting it."""
        try:
            raw = yield Step(self.shm.get, self.shm.aget, (key,))
            versions = tagged.split(raw).versions if tagged.is_tagged(raw) else {}
        except (Foreign, Unreadable, WrongKind):
            return False
        if not versions or (yield from self.tags.are_current(versions)):
            return False
        yield Step(self.drop, self.adrop, (key, raw))
        return True

    def invalidate_tags(self, tags: tuple[object, ...]) -> Steps[None]:
        """Delete all keys with one of these tags. Raise `BadOption`."""
        names = invalidated(tags)
        if names:
            name, data = TAGS + self.name, json.dumps(names)
            entry, broadcasts = self._carried(name, data)
            try:
                with forget_if_interrupted(partial(self.index.invalidate, self.lru, names)):
                    yield from self.tags.delete(names, entry)
            except Unavailable as error:
                self.missed(error)
                self.breaker.remember(error, (name, data), partial(self._invalidate_later, names, name, data))
                broadcasts = True
            self.index.invalidate(self.lru, names)
            if broadcasts:
                yield from self._broadcast(name, data)
            yield from self.counter.invalidated(names)

    @missing(bool)
    def touch(self, key: str, ttl: float) -> Steps[bool]:
        """Set a new time to live. Return False if the key does not exist."""
        if ttl < 0:
            return (yield from self.delete(key))
        stored, context = self.clock(), self.context_of(key)

        def renew(raw: Any) -> Change | Keep:
            try:
                renewed = tagged.renewed if tagged.is_tagged(raw) else entries.renewed
                return Keep(False) if raw is None else Change(renewed(context, raw, stored, ttl), ttl, True)
            except Foreign:
                return Keep(False)

        entry, broadcasts = self._carried(self._invalidations, key)
        try:
            existed: bool = yield from self._write(key, Step(self.shm.update, self.shm.aupdate, (key, renew, entry)))
        except NoMemory as error:
            self._log_full(key, error)
            return False
        except Unreadable:
            return False
        if existed:
            self.forget(key)
            if broadcasts:
                yield from self._broadcast(self._invalidations, key)
        return existed

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

    @missing(bool, forgets=True)
    def delete(self, key: str) -> Steps[bool]:
        """Delete a key. Return whether it existed."""
        entry, broadcasts = self._carried(self._invalidations, key)
        existed: bool = yield from self._write(key, Step(self.shm.delete, self.shm.adelete, (key, entry)))
        self.forget(key)
        if broadcasts:
            yield from self._broadcast(self._invalidations, key)
        return existed

    @missing(float)
    def remaining(self, key: str) -> Steps[float | None]:
        """Return the seconds until the key expires; None if it never does, 0 if it does not exist."""
        ttl = yield Step(self.shm.ttl, self.shm.attl, (key,))
        return 0.0 if ttl is None else ttl or None

    def lock(self, key: str, timeout: float | None, sleep: float, blocking_timeout: float | None) -> CacheLock:
        return CacheLock(self.shm, LOCK + key, timeout, sleep, blocking_timeout)

    def loading(self, key: str) -> CacheLock:
        """Return the lock held while a missing value is loaded."""
        return CacheLock(self.shm, LOADING + key, LOADING_EXPTIME, LOADING_STEP, LOADING_TIMEOUT)

    def clear(self) -> Steps[None]:
        """Empty the whole dictionary."""
        name = PURGE + self.name
        entry, broadcasts = self._carried(name, "")
        try:
            yield Step(self.shm.flush_all, self.shm.aflush_all, (entry,))
            yield Step(self.shm.flush_expired, self.shm.aflush_expired)
        except Unavailable as error:
            self.missed(error)
            self.breaker.remember(error, (self.name, PURGE), self._clear_later)
            broadcasts = True
        self.lru.flush_all()
        if broadcasts:
            yield from self._broadcast(name, "")

    def _write(self, key: str, step: Step) -> Steps[Any]:
        try:
            return (yield step)
        except Exception:
            raise
        except BaseException:
            self.forget(key)  # the value in L2 is unknown
            raise

    # --- without the store ---

    def missed(self, error: Unavailable | NoMemory) -> None:
        """Count a call without the store, or raise the error if ON_ERROR is "raise"."""
        if self.options.on_error == "raise":
            raise error
        self.breaker.calls += 1
        self.counts.storeless += 1

    def _forget_later(self, error: Exception, keys: Iterable[str]) -> None:
        """Delete keys in L1, and in L2 when the store can be used again, so that old values do not come back."""
        for key in keys:
            self.forget(key)
            self.breaker.remember(error, (self.name, "", key), partial(self._delete_later, key))

    def _delete_later(self, key: str) -> None:
        self.dictionary.delete(key)
        run(self._broadcast(self._invalidations, key))

    def _invalidate_later(self, tags: Collection[str], name: str, data: str) -> None:
        run(TagVersions(self.dictionary, self.name).delete(tags))
        run(self._broadcast(name, data))

    def _clear_later(self) -> None:
        self.dictionary.flush_all()
        self.dictionary.flush_expired()
        run(self._broadcast(PURGE + self.name, ""))

    def _log_full(self, key: str, error: NoMemory) -> None:
        if not self.breaker.full:  # then the outage is logged
            log.warning("The key %r was not stored in %r: %s", key, self.shm, error)

    # --- other processes ---

    def _carried(self, name: str, data: str) -> Carried:
        """Return how a write carries the invalidation."""
        if self.channel is None:
            return UNHEARD
        try:
            return carried(self.channel, name, data)
        except ChannelFailed as error:
            self._log_old(error)
            return UNHEARD

    def _broadcast(self, name: str, data: str) -> Steps[None]:
        """Notify other processes. If this fails, they keep an old copy until it expires in L1. L2 has the new value, so
        no error is raised."""
        if self.channel is not None:
            try:
                yield from announce(self.channel, name, data, "source")
            except (ChannelFailed, Unavailable) as error:
                self._log_old(error)

    def _log_old(self, error: Exception) -> None:
        log.error("Other processes may see an old value in %r for %s s: %s", self.shm, self.options.lru_ttl, error)

    def update(self, timeout: float) -> Steps[None]:
        """Apply invalidations from other processes. Raise `ChannelFailed`."""
        if self.channel is not None:
            try:
                yield from to_poll(self.channel, timeout)
            except ChannelFailed as failed:
                if self.options.on_error == "raise" or not is_outage(failed):
                    raise

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
