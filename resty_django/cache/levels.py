"""L1, the memory of this process, and L2, a shared dictionary, of one cache: what all kinds of caches have in common.

Methods that may wait are generators of steps (`resty_django.sansio`).
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from resty_django.sansio import Step, Steps, run
from resty_django.shdict import NoMemory, SharedDict, SharedDictError, Unavailable
from resty_django.shdict.base import Entry
from resty_django.text import logger

from .broadcasts.announce import announce, is_outage
from .broadcasts.channel import (
    INVALIDATIONS,
    MANY,
    PURGE,
    TAGS,
    Broadcast,
    Carried,
    InvalidationChannel,
    carried,
    parts_of,
    to_poll,
)
from .circuit_breaker.breaker import breaker_of
from .circuit_breaker.guarded import guarded
from .errors import ChannelFailed
from .statistics.reporter import CacheCounter
from .storage.compression import Compressor
from .storage.lru import LRU
from .storage.shielding import arun_shielded
from .storage.tag_encoding import Versions
from .tags.index import index_of
from .tags.names import invalidated
from .tags.versions import TagVersions

log = logger("resty_django.cache")

NO_BROADCAST: Final = Carried(None, False)
"""For a cache without a channel: no other process is notified."""

R = TypeVar("R")


class Levels(ABC):
    """Finds and forgets the values of one cache in both levels, and notifies the other processes.

    `name`: of the cache. `dictionaries`: of L2: for values, and for cached None if that is separate. `channel`: to
    other processes (None: no process is notified). `compressor`: of the values in L2.

    `on_error`: the default for calls. While the store of L2 is down, "raise" raises `Unavailable`. With anything else,
    what is deleted leaves L1 at once, and L2 when the store answers again, before this process reads it.
    """

    prefix = ""
    """Prefix of the keys in L2."""

    def __init__(
        self,
        name: str,
        lru: LRU,
        dictionaries: Sequence[SharedDict],
        channel: InvalidationChannel | None,
        counter: CacheCounter,
        compressor: Compressor,
        on_error: str,
    ) -> None:
        self.name = name
        self.lru = lru
        self.dictionaries = tuple(dictionaries)
        self._in_memory = all(dictionary.engine == "lmdb" for dictionary in dictionaries)
        self.shm = guarded(dictionaries[0])
        self.miss = guarded(dictionaries[1]) if len(dictionaries) > 1 else None
        self.breaker = breaker_of(dictionaries[0])
        self.channel = channel
        self.counter = counter
        self.compressor = compressor
        self.on_error = on_error
        # Records in Redis are read on other machines, records in LMDB only on this one.
        self.clock = time.time if self.shm.engine == "redis" else time.monotonic
        """Seconds, the same in all processes that share the dictionaries."""
        self.tags = TagVersions(self.shm, name)
        self.index = index_of(lru)

    async def awrite(self, steps: Steps[R]) -> R:
        """Perform the steps of a write, which is completed even if the task is cancelled."""
        return run(steps) if self.is_local else await arun_shielded(steps)

    @property
    def is_local(self) -> bool:
        """Whether L2 and the channel are in the memory of this machine, so that a write does not wait."""
        return self._in_memory and (self.channel is None or getattr(self.channel, "is_local", False))

    # --- reading many keys ---

    @abstractmethod
    def record(self, raw: object, key: str) -> Any:
        """Decode an item in L2. If this cache has not written it, log that it counts as absent, and return None."""

    def unreadable(self, key: str, error: SharedDictError) -> None:
        """Log that an item in L2 counts as absent."""
        log.warning("The record of the key %r in %r cannot be read; it counts as absent: %s", key, self.shm, error)

    def raw_many(self, keys: Sequence[str]) -> Steps[tuple[dict[str, Any], dict[str, SharedDictError]]]:
        """Return the items in L2 by key, and the errors of items that are lists or cannot be read."""
        names = {self.prefix + key: key for key in keys}
        errors: dict[str, SharedDictError] = {}

        def on_error(name: str, error: SharedDictError) -> None:
            errors[names[name]] = error

        values = yield Step(self.shm.get_many, self.shm.aget_many, (list(names), on_error))
        missing = [] if self.miss is None else [name for name in names if name not in values]
        if self.miss is not None and missing:
            values |= yield Step(self.miss.get_many, self.miss.aget_many, (missing, on_error))
        return {names[name]: raw for name, raw in values.items()} if self.prefix else values, errors

    def valid(self, raws: Mapping[str, object]) -> Steps[dict[str, Any]]:
        """Return the records of these items by key, except for records with an invalidated tag."""
        records: dict[str, Any] = {}
        tags: dict[str, Versions] = {}
        for key, raw in raws.items():
            record = self.record(raw, key)
            if record is not None:
                records[key] = record
                if record.tags:
                    tags[key] = record.tags
        if tags:
            for key in (yield from self.tags.revoked(tags)):
                del records[key]
        return records

    # --- deleting ---

    def delete(self, key: str, on_error: str | None = None) -> Steps[bool]:
        """Delete a key. Return whether it existed, as far as known.

        Written out, because `change` would take a sixth longer.
        """
        name, mode, existed = self.prefix + key, on_error or self.on_error, False
        broadcast = self.deletion(key)
        entry, broadcasts = self.carried(broadcast)
        try:
            if self.miss is not None:
                yield Step(self.miss.delete, self.miss.adelete, (name,))
            existed = yield Step(self.shm.delete, self.shm.adelete, (name, entry))
        except (Unavailable, NoMemory) as error:
            if mode == "raise":
                raise
            self.lru.delete(key)
            self._put_off(error, broadcast, lambda shm: shm.delete(name))
            broadcasts = True
        except Exception:
            raise
        except BaseException:
            self.lru.delete(key)
            raise
        self.lru.delete(key)
        if broadcasts:
            yield from self.announce(broadcast, mode)
        return existed

    def delete_many(self, keys: Iterable[str], on_error: str | None = None) -> Steps[int]:
        """Delete keys. Return how many existed, as far as known."""
        deleted = 0
        for part in parts_of(keys):
            deleted += (yield from self._delete_part(part, on_error)) or 0
        return deleted

    def _delete_part(self, keys: list[str], on_error: str | None) -> Steps[int | None]:
        names = [self.prefix + key for key in keys]

        def write(entry: Entry) -> Steps[int]:
            if self.miss is not None:
                yield Step(self.miss.delete_many, self.miss.adelete_many, (names,))
            return int((yield Step(self.shm.delete_many, self.shm.adelete_many, (names, entry))))

        broadcast, forget = self.deletion_of_many(keys), partial(self.lru.delete_many, keys)
        return (yield from self.change(write, broadcast, forget, lambda shm: shm.delete_many(names), on_error))

    def flush(self, free: bool, on_error: str | None = None) -> Steps[None]:
        """Expire everything in the dictionaries, and empty L1. `free`: also free the memory."""

        def write(entry: Entry) -> Steps[None]:
            if self.miss is not None:
                yield Step(self.miss.flush_all, self.miss.aflush_all)
            yield Step(self.shm.flush_all, self.shm.aflush_all, (entry,))
            for dictionary in (self.shm, self.miss):
                if free and dictionary is not None:
                    yield Step(dictionary.flush_expired, dictionary.aflush_expired)

        def flush_later(dictionary: SharedDict) -> None:
            dictionary.flush_all()
            if free:
                dictionary.flush_expired()

        yield from self.change(write, Broadcast(PURGE + self.name, ""), self.lru.flush_all, flush_later, on_error)

    def invalidate_tags(self, tags: tuple[object, ...], on_error: str | None = None) -> Steps[None]:
        """Delete all keys with one of these tags. Raise `BadOption`."""
        names = invalidated(tags)
        if names:
            broadcast = Broadcast(TAGS + self.name, json.dumps(names))
            forget = partial(self.index.invalidate, self.lru, names)
            write, later = partial(self.tags.delete, names), partial(_delete_versions, name=self.name, tags=names)
            yield from self.change(write, broadcast, forget, later, on_error)
            yield from self.counter.invalidated(names)

    def change(
        self,
        write: Callable[[Entry], Steps[R]],
        broadcast: Broadcast,
        forget: Callable[[], object],
        later: Callable[[SharedDict], object] | None = None,
        on_error: str | None = "raise",
    ) -> Steps[R | None]:
        """Change L2, then `forget` the same in L1, and notify the other processes. Return the result of `write`, whose
        argument is the journal entry of the broadcast. `later`: the same change, of a store that answers again, unless
        `on_error` is "raise".

        If the loop ends in between, the value in L2 is unknown, so L1 forgets it, too.
        """
        mode = on_error or self.on_error
        entry, broadcasts = self.carried(broadcast)
        result = None
        try:
            result = yield from write(entry)
        except (Unavailable, NoMemory) as error:
            if later is None or mode == "raise":
                raise
            forget()
            self._put_off(error, broadcast, later)
            broadcasts = True
        except Exception:
            raise
        except BaseException:
            forget()
            raise
        forget()
        if broadcasts:
            yield from self.announce(broadcast, mode)
        return result

    def count_miss(self, key: str, *, revoked: bool = False, expired: bool = False) -> Steps[None]:
        """Count why neither level had a value. `revoked`: L2 had an invalidated one; `expired`: an expired one. If L2
        had none, the reason is what this process remembers."""
        reason = "invalidated" if revoked else "expired" if expired else self.lru.absence(key)
        if reason == "replaced":
            reason = "invalidated"
            with suppress(SharedDictError):  # a list, or a store that is down
                if (yield Step(self.shm.get_stale, self.shm.aget_stale, (self.prefix + key,))) is not None:
                    reason = "expired"
        counts = self.counter.now
        setattr(counts, reason, getattr(counts, reason) + 1)

    # --- while the store is down ---

    def count_storeless(self) -> None:
        """Count a call that is answered without the store."""
        self.breaker.calls += 1
        self.counter.now.storeless += 1

    def forget_unstored(self, keys: Collection[str], error: Exception) -> Steps[None]:
        """Delete keys that could not be stored because of this error, so that old values do not come back."""
        if isinstance(error, NoMemory):
            self.count_storeless()
            for key in keys:
                self.log_full(key, error)
        if len(keys) == 1:
            (key,) = keys
            yield from self.delete(key, "source")
        else:
            yield from self.delete_many(keys, "source")

    def log_full(self, key: str, error: NoMemory) -> None:
        """Log that a key was not stored, unless that is logged as an outage."""
        if not self.breaker.full:
            log.warning("The key %r of %r was not stored in L2: %s", key, self.name, error)

    def _put_off(self, error: Exception, broadcast: Broadcast, write: Callable[[SharedDict], object]) -> None:
        """Count a call without the store. Write each dictionary, and broadcast the change, when its store answers
        again: it is not known which of them were written before the error."""
        self.count_storeless()
        for dictionary in self.dictionaries:
            later = partial(self._write_later, write, dictionary, broadcast)
            breaker_of(dictionary).remember(error, (dictionary, self.name, broadcast), later)

    def _write_later(self, write: Callable[[SharedDict], object], dictionary: SharedDict, broadcast: Broadcast) -> None:
        write(dictionary)
        run(self.announce(broadcast, "source"))

    # --- other processes ---

    def deletion(self, key: str) -> Broadcast:
        return Broadcast(INVALIDATIONS + self.name, key)

    def deletion_of_many(self, keys: Iterable[str]) -> Broadcast:
        return Broadcast(MANY + self.name, json.dumps(list(keys)))

    def carried(self, broadcast: Broadcast) -> Carried:
        """Return how a write to L2 carries a broadcast. Raise `ChannelFailed`."""
        return NO_BROADCAST if self.channel is None else carried(self.channel, broadcast)

    def announce(self, broadcast: Broadcast, on_error: str) -> Steps[None]:
        """Send a broadcast after a write. Raise `ChannelFailed`."""
        if self.channel is not None:
            yield from announce(self.channel, broadcast, on_error)

    def update(self, timeout: float) -> Steps[None]:
        """Apply invalidations from other processes. Raise `ChannelFailed`."""
        if self.channel is not None:
            try:
                yield from to_poll(self.channel, timeout)
            except ChannelFailed as failed:
                if self.on_error == "raise" or not is_outage(failed):
                    raise


def _delete_versions(dictionary: SharedDict, name: str, tags: Collection[str]) -> None:
    run(TagVersions(dictionary, name).delete(tags))
