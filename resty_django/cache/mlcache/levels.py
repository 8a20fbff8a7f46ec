"""L1 and L2 of a cache: lookup, promotion, storing, deletion.

Methods that may wait for a dictionary are generators of steps, for both sync and async code (see `loader`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from resty_django.sansio import Step, Steps
from resty_django.shdict import NoMemory, Outcome, SharedDict, Unreadable
from resty_django.text import logger

from ..errors import BadValue, SerializerFailed
from . import records
from .lru import FOREVER, LRU
from .options import Options
from .records import Record
from .results import Serializer
from .shielding import forget_if_interrupted

log = logger("resty_django.cache")

Function = Callable[[Any], Any]


class L2Records(NamedTuple):
    """The record in L2, fresh or expired. `version`: the key's version in L1 before L2 was read."""

    version: int
    fresh: Record | None = None
    stale: Record | None = None


class Levels:
    """Both levels. `name`: prefix of the keys in L2. `miss`: the dictionary for cached None, if separate. `clock`:
    seconds,
    the same in all processes that share the dictionaries."""

    def __init__(
        self,
        name: str,
        l1: LRU,
        shm: SharedDict,
        miss: SharedDict | None,
        clock: Callable[[], float],
        serializer: Serializer | None,
    ) -> None:
        self.l1 = l1
        self.shm = shm
        self.miss = miss
        self.clock = clock
        self.prefix = f"{name}:"
        self._serializer = serializer
        self._one_clock = clock is l1.clock

    # --- from L2 to L1 ---

    def record(self, raw: Any, key: str) -> Record | None:
        """Decode the bytes in L2. If no cache has written them, return None and log it."""
        record = records.decode(raw)
        if record is None:
            log.warning("The record of the key %r in %r cannot be read; it counts as absent", key, self.shm)
        elif self._serializer is not None and record.value is not None:
            try:
                value = self._serializer.decode(record.value)
            except Exception:
                log.warning("The serializer of %r cannot decode the key %r; it counts as absent", self.prefix, key)
                log.debug("The cause was", exc_info=True)
                return None
            return Record(value, record.stored, record.ttl, record.stale)
        return record

    def unreadable(self, key: str, error: Unreadable) -> None:
        """Log that an item in L2 counts as absent."""
        log.warning("The record of the key %r in %r cannot be read; it counts as absent: %s", key, self.shm, error)

    def remaining(self, record: Record) -> float:
        """Return the seconds until the record expires. Not for records that live forever."""
        return record.ttl - max(0.0, self.clock() - record.stored)

    def promote(self, key: str, record: Record, serialize: Function | None, version: int) -> Any:
        """Store the value in L1 for its remaining time in L2, and return it as stored there.

        `version`: the version of the key in L1 before the record was read.
        """
        value = record.value if serialize is None else serialized(record.value, serialize)
        ttl = record.ttl
        if not ttl:
            self.l1.put(key, (value, FOREVER, 0), version)
            return value
        now, end = self.clock(), record.stored + ttl
        if end > now:
            if not self._one_clock:
                shift = self.l1.clock() - now
                now, end = now + shift, end + shift
            self.l1.put(key, (value, end if end < now + ttl else now + ttl, 0), version)
        return value

    def keep(self, key: str, value: Any, ttl: float, serialize: Function | None, version: int) -> Any:
        """Apply `serialize` to a value, store the result in L1, and return it.

        `version`: the version of the key in L1 before the value was stored in L2.
        """
        value = serialized(value, serialize)
        self.l1.replace(key, (value, self.l1.clock() + ttl if ttl else FOREVER, 0), version)
        return value

    # --- L2 ---

    def look(self, key: str, with_stale: bool) -> Steps[L2Records]:
        """Return the record in L2; of two expired records, the one stored later."""
        name = self.prefix + key
        version = self.l1.version(key)
        stale: list[Record] = []
        for dictionary in (self.shm, self.miss):
            if dictionary is None:
                continue
            try:
                if with_stale:
                    item = yield Step(dictionary.get_stale, dictionary.aget_stale, (name,))
                    raw, expired = (None, False) if item is None else (item.value, item.stale)
                else:
                    raw, expired = (yield Step(dictionary.get, dictionary.aget, (name,))), False
            except Unreadable as error:
                self.unreadable(key, error)
                raw = None
                yield Step(dictionary.delete, dictionary.adelete, (name,))
            if raw is None:
                continue
            record = self.record(raw, key)
            if record is None:
                yield Step(dictionary.delete_if, dictionary.adelete_if, (name, raw))  # makes way for a new one
            elif not expired:
                return L2Records(version, fresh=record)
            else:
                stale.append(record)
        return L2Records(version, stale=max(stale, key=_stored, default=None))

    def encoded(self, value: Any, ttl: float, stale: bool = False) -> tuple[Any, bytes]:
        """Return a value as all levels return it, and its record. Raise `BadValue`."""
        if self._serializer is None or value is None:
            value = records.plain(value)
            return value, records.encode(value, self.clock(), ttl, stale)
        try:
            data = self._serializer.encode(value)
        except Exception as error:
            raise BadValue(f"The serializer cannot encode a {type(value).__name__}: {error}") from error
        return value, records.encode(records.plain(data), self.clock(), ttl, stale)

    def add(self, key: str, value: Any, ttl: float, options: Options, stale: bool = False) -> Steps[Any]:
        """Store a value from the source in L2 and L1, and return it as stored in L1.

        A value that another process set while the callback ran is newer and is kept in both levels. If L2 is full after
        `shm_set_tries` attempts, the value is stored only in L1, and a warning is logged.
        """
        value, record = self.encoded(value, ttl, stale)
        version = self.l1.version(key)
        dictionary = self._dictionary_for(value)
        step = Step(dictionary.add, dictionary.aadd, (self.prefix + key, record, ttl))
        try:
            outcome = yield from _with_tries(step, options.shm_set_tries)
        except NoMemory as error:
            log.warning("The key %r of %r was not stored in L2: %s", key, self.prefix, error)
        else:
            if outcome is Outcome.EXISTS:
                return serialized(value, options.l1_serializer)
        return self.keep(key, value, ttl, options.l1_serializer, version)

    def set(self, key: str, value: Any, record: bytes, ttl: float, tries: int) -> Steps[None]:
        """Store a value in L2, replacing any existing one. Raise `NoMemory`."""
        name, dictionary = self.prefix + key, self._dictionary_for(value)
        with forget_if_interrupted(partial(self.l1.delete, key)):
            if self.miss is not None:
                former = self.shm if dictionary is self.miss else self.miss
                yield Step(former.delete, former.adelete, (name,))
            yield from _with_tries(Step(dictionary.set, dictionary.aset, (name, record, ttl)), tries)

    def delete(self, key: str) -> Steps[None]:
        """Delete a key in both levels."""
        with forget_if_interrupted(partial(self.l1.delete, key)):
            for dictionary in (self.shm, self.miss):
                if dictionary is not None:
                    yield Step(dictionary.delete, dictionary.adelete, (self.prefix + key,))
        self.l1.delete(key)

    def flush(self, free: bool) -> Steps[None]:
        """Expire everything in the dictionaries, and empty L1. `free`: also free the memory."""
        with forget_if_interrupted(self.l1.flush_all):
            for dictionary in (self.shm, self.miss):
                if dictionary is not None:
                    yield Step(dictionary.flush_all, dictionary.aflush_all)
                    if free:
                        yield Step(dictionary.flush_expired, dictionary.aflush_expired)
        self.l1.flush_all()

    def _dictionary_for(self, value: Any) -> SharedDict:
        return self.shm if value is not None or self.miss is None else self.miss


def lifetime(value: Any, options: Options) -> float:
    """Return the time to live of a value from the source in seconds; 0: forever."""
    ttl = options.neg_ttl if value is None else options.ttl
    return ttl * (1 - options.jitter * random.random()) if options.jitter else ttl  # noqa: S311


def serialized(value: Any, serialize: Function | None) -> Any:
    """Return a value converted for L1. Raise `SerializerFailed`."""
    if serialize is None or value is None:
        return value
    try:
        l1_value = serialize(value)
    except Exception as error:
        raise SerializerFailed(f"l1_serializer threw an error: {error}") from error
    if l1_value is None:
        raise SerializerFailed("l1_serializer returned None; it must return a value.")
    return l1_value


def _with_tries(step: Step, tries: int) -> Steps[Outcome]:
    """Repeat a storing step; each attempt evicts more items. Raise `NoMemory` after the last."""
    for attempt in range(1, tries + 1):
        try:
            outcome: Outcome = yield step
        except NoMemory:
            if attempt == tries:
                raise
        else:
            return outcome
    raise AssertionError("tries is at least 1.")


def _stored(record: Record) -> float:
    return record.stored
