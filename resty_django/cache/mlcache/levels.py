"""L1 and L2 of one cache: finding, promoting, storing, forgetting.

What may wait for a dictionary is a generator of steps, for sync and async code alike (see `loader`).
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
    """What L2 has for a key: a fresh record, or an expired one. `version`: the version in L1 before the look."""

    version: int
    fresh: Record | None = None
    stale: Record | None = None


class Levels:
    """Both levels. `name`: begins the keys in L2. `miss`: the dictionary of cached None, where it is another. `clock`:
    seconds, the same in all processes that share the dictionaries."""

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
        """Return the meaning of the bytes in L2. Where no cache has written them: None, and a line in the log."""
        record = records.decode(raw)
        if record is None:
            log.warning("the record of the key %r in %r cannot be read; it counts as absent", key, self.shm)
        elif self._serializer is not None and record.value is not None:
            try:
                value = self._serializer.decode(record.value)
            except Exception:
                log.warning("the serializer of %r cannot read the key %r; it counts as absent", self.prefix, key)
                log.debug("that was because of", exc_info=True)
                return None
            return Record(value, record.stored, record.ttl, record.stale)
        return record

    def unreadable(self, key: str, error: Unreadable) -> None:
        """Write to the log that an item of L2 counts as absent."""
        log.warning("the record of the key %r in %r cannot be read; it counts as absent: %s", key, self.shm, error)

    def remaining(self, record: Record) -> float:
        """Seconds until the record expires. It must not live forever."""
        return record.ttl - max(0.0, self.clock() - record.stored)

    def promote(self, key: str, record: Record, serialize: Function | None, version: int) -> Any:
        """Put the value into L1 for the time that it has left in L2, and return it as L1 has it.

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
        """Put a value into L1, as it is after `serialize`, and return that.

        `version`: the version of the key in L1 before the value was stored in L2.
        """
        value = serialized(value, serialize)
        self.l1.replace(key, (value, self.l1.clock() + ttl if ttl else FOREVER, 0), version)
        return value

    # --- L2 ---

    def look(self, key: str, with_stale: bool) -> Steps[L2Records]:
        """Return what L2 has; of two expired records the one that was stored later."""
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
                yield Step(dictionary.delete_if, dictionary.adelete_if, (name, raw))  # so that a new one can be added
            elif not expired:
                return L2Records(version, fresh=record)
            else:
                stale.append(record)
        return L2Records(version, stale=max(stale, key=_stored, default=None))

    def encoded(self, value: Any, ttl: float, stale: bool = False) -> tuple[Any, bytes]:
        """Return a value as every level returns it, and its record. Raise `BadValue`."""
        if self._serializer is None or value is None:
            value = records.plain(value)
            return value, records.encode(value, self.clock(), ttl, stale)
        try:
            data = self._serializer.encode(value)
        except Exception as error:
            raise BadValue(f"The serializer cannot encode a {type(value).__name__}: {error}") from error
        return value, records.encode(records.plain(data), self.clock(), ttl, stale)

    def add(self, key: str, value: Any, ttl: float, options: Options, stale: bool = False) -> Steps[Any]:
        """Store a value of the source in L2 and L1, and return it as L1 has it.

        Where another process has set one while the callback ran, that is newer, and both levels are left alone. Where
        L2 has no room after `shm_set_tries` attempts, the value is in L1 alone, and the log says so.
        """
        value, record = self.encoded(value, ttl, stale)
        version = self.l1.version(key)
        dictionary = self._dictionary_for(value)
        step = Step(dictionary.add, dictionary.aadd, (self.prefix + key, record, ttl))
        try:
            outcome = yield from _with_tries(step, options.shm_set_tries)
        except NoMemory as error:
            log.warning("the key %r of %r is not in L2: %s", key, self.prefix, error)
        else:
            if outcome is Outcome.EXISTS:
                return serialized(value, options.l1_serializer)
        return self.keep(key, value, ttl, options.l1_serializer, version)

    def set(self, key: str, value: Any, record: bytes, ttl: float, tries: int) -> Steps[None]:
        """Store a value in L2, over whatever is there. Raises `NoMemory`."""
        name, dictionary = self.prefix + key, self._dictionary_for(value)
        with forget_if_interrupted(partial(self.l1.delete, key)):
            if self.miss is not None:
                former = self.shm if dictionary is self.miss else self.miss
                yield Step(former.delete, former.adelete, (name,))
            yield from _with_tries(Step(dictionary.set, dictionary.aset, (name, record, ttl)), tries)

    def delete(self, key: str) -> Steps[None]:
        """Forget a key in both levels."""
        with forget_if_interrupted(partial(self.l1.delete, key)):
            for dictionary in (self.shm, self.miss):
                if dictionary is not None:
                    yield Step(dictionary.delete, dictionary.adelete, (self.prefix + key,))
        self.l1.delete(key)

    def flush(self, free: bool) -> Steps[None]:
        """Let everything in the dictionaries expire, and forget everything in L1. `free`: free their memory, too."""
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
    """Seconds that a value of the source lives, 0 forever."""
    ttl = options.neg_ttl if value is None else options.ttl
    return ttl * (1 - options.jitter * random.random()) if options.jitter else ttl  # noqa: S311


def serialized(value: Any, serialize: Function | None) -> Any:
    """Return a value as L1 has it. Raise `SerializerFailed`."""
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
    """Each attempt evicts more items. Raises `NoMemory` after the last."""
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
