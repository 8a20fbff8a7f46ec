"""L1 and L2 of one cache: finding, promoting, storing, forgetting.

What may wait for a dictionary is a course of steps, taken by sync and async code alike.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from resty_django.events.steps import Step, Steps
from resty_django.shdict import NoMemory, Outcome, SharedDict

from . import records
from .errors import BadValue, SerializerFailed
from .lru import FOR_EVER, LRU
from .records import Record
from .results import Serializer
from .whole import known_or

log = logging.getLogger("resty_django.cache")

Function = Callable[[Any], Any]


class Found(NamedTuple):
    """What L2 has for a key: a record that holds, or one whose time is over. `version`: that in L1 before the look."""

    version: int
    fresh: Record | None = None
    stale: Record | None = None


class Levels:
    """`name` begins the keys in L2. `miss`: the dictionary of cached None, where it is another. `clock`: seconds, the
    same in all processes that share the dictionaries."""

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
        """What the bytes in L2 mean; None, and a line in the log, where they are none of ours."""
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

    def remaining(self, record: Record) -> float:
        """Seconds that the record has to live, of one that does not live for ever."""
        return record.ttl - max(0.0, self.clock() - record.stored)

    def promote(self, key: str, record: Record, serialize: Function | None, version: int) -> Any:
        """Put the value into L1 for the time that it has left in L2, and return it as L1 has it.

        `version`: that of the key in L1 before the record was read.
        """
        value = record.value if serialize is None else shown(record.value, serialize)
        ttl = record.ttl
        if not ttl:
            self.l1.put(key, (value, FOR_EVER, 0), version)
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

        `version`: that of the key in L1 before the value was stored in L2.
        """
        value = shown(value, serialize)
        self.l1.replace(key, (value, self.l1.clock() + ttl if ttl else FOR_EVER, 0), version)
        return value

    # --- L2 ---

    def look(self, key: str, with_stale: bool) -> Steps[Found]:
        """What L2 has; of two expired records the one that was stored later."""
        name = self.prefix + key
        version = self.l1.version(key)
        stale: list[Record] = []
        for dictionary in (self.shm, self.miss):
            if dictionary is None:
                continue
            if with_stale:
                item = yield Step(dictionary.get_stale, dictionary.aget_stale, (name,))
                raw, over = (None, False) if item is None else (item.value, item.stale)
            else:
                raw, over = (yield Step(dictionary.get, dictionary.aget, (name,))), False
            if raw is None:
                continue
            record = self.record(raw, key)
            if record is None:
                yield Step(dictionary.delete_if, dictionary.adelete_if, (name, raw))  # so that a new one has its place
            elif not over:
                return Found(version, fresh=record)
            else:
                stale.append(record)
        return Found(version, stale=max(stale, key=_stored, default=None))

    def encoded(self, value: Any, ttl: float, stale: bool = False) -> tuple[Any, bytes]:
        """A value as every level returns it, and its record. Raises `BadValue`."""
        if self._serializer is None or value is None:
            value = records.plain(value)
            return value, records.encode(value, self.clock(), ttl, stale)
        try:
            data = self._serializer.encode(value)
        except Exception as error:
            raise BadValue(f"The serializer cannot encode a {type(value).__name__}: {error}") from error
        return value, records.encode(records.plain(data), self.clock(), ttl, stale)

    def add(self, key: str, value: Any, record: bytes, ttl: float, tries: int) -> Steps[bool]:
        """Store a value of the source in L2, unless somebody has set another meanwhile; false in that case.

        Where there is no room after so many attempts that is a line in the log.
        """
        dictionary = self._home(value)
        try:
            outcome = yield from _with_tries(
                Step(dictionary.add, dictionary.aadd, (self.prefix + key, record, ttl)), tries
            )
        except NoMemory as error:
            log.warning("the key %r of %r is not in L2: %s", key, self.prefix, error)
            return True
        return bool(outcome)

    def set(self, key: str, value: Any, record: bytes, ttl: float, tries: int) -> Steps[None]:
        """Store a value in L2, over whatever is there. Raises `NoMemory`."""
        name, dictionary = self.prefix + key, self._home(value)
        with known_or(partial(self.l1.delete, key)):
            if self.miss is not None:
                other = self.shm if dictionary is self.miss else self.miss
                yield Step(other.delete, other.adelete, (name,))
            yield from _with_tries(Step(dictionary.set, dictionary.aset, (name, record, ttl)), tries)

    def delete(self, key: str) -> Steps[None]:
        """Forget a key in both levels."""
        with known_or(partial(self.l1.delete, key)):
            for dictionary in (self.shm, self.miss):
                if dictionary is not None:
                    yield Step(dictionary.delete, dictionary.adelete, (self.prefix + key,))
        self.l1.delete(key)

    def flush(self, free: bool) -> Steps[None]:
        """Let everything in the dictionaries expire, and forget everything in L1. `free`: their memory at once, too."""
        with known_or(self.l1.flush_all):
            for dictionary in (self.shm, self.miss):
                if dictionary is not None:
                    yield Step(dictionary.flush_all, dictionary.aflush_all)
                    if free:
                        yield Step(dictionary.flush_expired, dictionary.aflush_expired)
        self.l1.flush_all()

    def _home(self, value: Any) -> SharedDict:
        return self.shm if value is not None or self.miss is None else self.miss


def shown(value: Any, serialize: Function | None) -> Any:
    """A value as L1 has it. Raises `SerializerFailed`."""
    if serialize is None or value is None:
        return value
    try:
        made = serialize(value)
    except Exception as error:
        raise SerializerFailed(f"l1_serializer threw an error: {error}") from error
    if made is None:
        raise SerializerFailed("l1_serializer returned a nil value: it has to return something else than None.")
    return made


def _with_tries(step: Step, tries: int) -> Steps[Outcome]:
    """Each attempt throws out more of what is there. Raises `NoMemory` after the last."""
    for left in range(tries - 1, -1, -1):
        try:
            outcome: Outcome = yield step
        except NoMemory:
            if not left:
                raise
        else:
            return outcome
    raise AssertionError("tries is at least 1")


def _stored(record: Record) -> float:
    return record.stored


__all__ = ["Found", "Levels", "shown"]
