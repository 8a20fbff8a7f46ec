"""The levels of an `MLCache`: records in L2, and values in L1, also while the store of L2 is down.

Methods that may wait are generators of steps; see `loading`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from resty_django.sansio import Step, Steps
from resty_django.shdict import (
    Keep,
    NoMemory,
    SharedDict,
    SharedDictError,
    StoreOutcome,
    Unreadable,
    Update,
)
from resty_django.shdict.base import Entry
from resty_django.text import logger

from ..broadcasts.channel import InvalidationChannel
from ..errors import BadValue, SerializerFailed
from ..levels import Levels
from ..serialization.values import typed, unpack
from ..statistics.reporter import CacheCounter
from ..storage import records
from ..storage.compression import Compressor
from ..storage.lru import FOREVER, LRU, LRUItem
from ..storage.records import Record
from ..tags.versions import TagSnapshot
from .early import EarlyRecomputation
from .options import CacheOptions, CacheSetup
from .results import L1, STALE, Hit

log = logger("resty_django.cache")

Function = Callable[[Any], object]
STORED_IN_OUTAGE: Final = 1
"""The flags of a value in L1 that was stored while the store was down. It is not served after its expiry."""


class L2Records(NamedTuple):
    """The record in L2, fresh or expired. `version`: the key's version in L1 before L2 was read. `moment`: see
    `TagSnapshot`. `revoked`, `replaceable`: see `LoadRequest`."""

    version: int
    moment: int
    fresh: Record | None = None
    stale: Record | None = None
    revoked: bool = False
    replaceable: Mapping[SharedDict, bytes] = {}


class NewValue(NamedTuple):
    """A value to be stored. `ttl`: seconds; `version`: the key's version in L1 before L2 is written, see
    `LRU.versions`."""

    value: object
    record: bytes
    ttl: float
    version: int


class L2Record(NamedTuple):
    """A record in L2 whose tags are valid. `version`, `moment`: as in `L2Records`."""

    record: Record
    version: int
    moment: int


class RecordLevels(Levels):
    """Finds, stores and forgets the values of one `MLCache`. Arguments: see `Levels` and `MLCache`."""

    def __init__(
        self,
        setup: CacheSetup,
        lru: LRU,
        dictionaries: Sequence[SharedDict],
        channel: InvalidationChannel | None,
        counter: CacheCounter,
        on_error: str,
        clock: Callable[[], float] | None,
    ) -> None:
        compressor = Compressor(setup.compress, setup.compress_above, setup.decompress_limit, counter.now)
        super().__init__(setup.name, lru, dictionaries, channel, counter, compressor, on_error)
        self.prefix = f"{setup.name}:"
        self.clock = clock or self.clock
        self._serializer = setup.serializer
        self.early = EarlyRecomputation(self.clock)
        self._one_clock = self.clock is lru.clock

    # --- from L2 to L1 ---

    def record(self, raw: object, key: str) -> Record | None:
        """Decode the bytes in L2. If no cache has written them, return None and log it."""
        record = records.decode(raw, unpack, self.compressor.limit)
        if record is None:
            log.warning("The record of the key %r in %r cannot be read; it counts as absent", key, self.shm)
        elif self._serializer is not None and record.value is not None:
            try:
                value = self._serializer.decode(record.value)
            except Exception:
                log.warning("The serializer of %r cannot decode the key %r; it counts as absent", self.prefix, key)
                log.debug("The cause was", exc_info=True)
                return None
            return Record(value, record.stored, record.ttl, record.stale, record.tags, record.took)
        return record

    def promote(
        self, key: str, record: Record, serialize: Function | None, version: int, moment: int = 0, early: float = 0.0
    ) -> Any:
        """Store the value in L1 for its remaining time in L2, and return it as stored there.

        `version`: the version of the key in L1 before the record was read. `moment`: the moment of the index before
        the record's tags were found to be valid. `early`: seconds by which the item expires earlier in L1.
        """
        value = record.value if serialize is None else serialized(record.value, serialize)
        ttl = record.ttl
        if ttl:
            now, end = self.clock(), record.stored + ttl
            if end <= now:
                return value
            if not self._one_clock:
                shift = self.lru.clock() - now
                now, end = now + shift, end + shift
            item = LRUItem(value, (end if end < now + ttl else now + ttl) - early)
        else:
            item = LRUItem(value)
        if record.tags:
            self.index.put(self.lru, key, item, version, record.tags, moment)
        else:
            self.lru.put(key, item, version)
        return value

    def keep(
        self,
        key: str,
        value: object,
        ttl: float,
        serialize: Function | None,
        version: int,
        tagged: TagSnapshot | None = None,
        early: float = 0.0,
    ) -> Any:
        """Apply `serialize` to a value, store the result in L1, and return it.

        `version`: the version of the key in L1 before the value was stored in L2. `tagged`: the value's tags from
        before its source was called. `early`: as in `promote`.
        """
        if serialize is not None:
            value = serialized(value, serialize)
        item = LRUItem(value, self.lru.clock() + ttl - early if ttl else FOREVER)
        if tagged is None:
            self.lru.replace(key, item, version)
        else:
            self.index.replace(self.lru, key, item, version, tagged.versions, tagged.moment)
        return value

    def keep_many(
        self, entries: Mapping[str, NewValue], options: CacheOptions, tagged: TagSnapshot | None, storeless: bool
    ) -> None:
        """Store values in L1, like `keep`, or `keep_in_outage` if `storeless`.

        Raise `SerializerFailed` after storing all others; its value is deleted in L1.
        """
        errors: list[SerializerFailed] = []
        for key, entry in entries.items():
            try:
                if storeless:
                    self.keep_in_outage(key, entry.value, entry.ttl, options, None, tagged)
                else:
                    self.keep(key, entry.value, entry.ttl, options.l1_serializer, entry.version, tagged)
            except SerializerFailed as error:
                self.lru.delete(key)
                errors.append(error)
        if errors:
            raise errors[0]

    # --- L1 without the store ---

    def keep_in_outage(
        self,
        key: str,
        value: object,
        ttl: float,
        options: CacheOptions,
        version: int | None,
        tagged: TagSnapshot | None,
    ) -> Any:
        """Store a value in L1 for at most `outage_ttl`, and return it as stored there.

        `version`: the version of the key in L1 before the value was read (None: the value replaces what L1 has).
        `tagged`: its tags.
        """
        value = serialized(value, options.l1_serializer)
        seconds = min(ttl, options.outage_ttl) if ttl else options.outage_ttl
        if version is None:
            self.lru.delete(key)
        item = LRUItem(value, self.lru.clock() + seconds, STORED_IN_OUTAGE)
        if tagged is None:
            self.lru.put(key, item, version)
        else:
            current = self.lru.version(key) if version is None else version
            self.index.put(self.lru, key, item, current, tagged.versions, tagged.moment)
        return value

    def from_l1(self, key: str, options: CacheOptions) -> Hit | None:
        """Return the value in L1 if it expired at most `stale_if_outage` ago."""
        item = self.lru.items.get(key)
        if item is None:
            return None
        overdue = self.lru.clock() - item.expires
        if overdue <= 0:
            return Hit(item.value, L1)
        may_serve = not item.flags and overdue < options.stale_if_outage
        return Hit(item.value, STALE) if may_serve else None

    def resurrected(self, key: str, options: CacheOptions, version: int | None) -> Hit | None:
        """Return the expired value in L1, after storing it again; None if L1 has none. `version`: as in
        `keep_in_outage`."""
        item = self.lru.items.get(key)
        ttl = options.resurrect_ttl
        if item is None or ttl is None:
            return None
        seconds = min(ttl, options.outage_ttl) if ttl else options.outage_ttl
        self.lru.put(key, LRUItem(item.value, self.lru.clock() + seconds, STORED_IN_OUTAGE), version)
        return Hit(item.value, STALE)

    # --- tags ---

    def snapshot(self, tags: Collection[str]) -> Steps[TagSnapshot]:
        """Return the tags with their versions, for a value that is read afterwards."""
        moment = self.index.moment
        return TagSnapshot((yield from self.tags.load(tags)), moment)

    def storeless_snapshot(self, tags: Collection[str]) -> TagSnapshot:
        """Return the tags for a value that is only stored in L1."""
        return TagSnapshot(dict.fromkeys(tags, 0), self.index.moment)

    # --- L2 ---

    def look(self, key: str, with_stale: bool) -> Steps[L2Records]:
        """Return the record in L2; of two expired records, the one stored later. A record with an invalidated tag
        counts as expired."""
        name = self.prefix + key
        version, moment = self.lru.version(key), self.index.moment
        latest: Record | None = None
        latest_revoked = False
        replaceable: dict[SharedDict, bytes] = {}
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
                continue
            revoked = bool(record.tags) and not (yield from self.tags.are_current(record.tags or {}))
            if not expired:
                replaceable[dictionary] = raw
            if not expired and not revoked:
                return L2Records(version, moment, fresh=record, replaceable=replaceable)
            if with_stale and (latest is None or record.stored > latest.stored):
                latest, latest_revoked = record, revoked
        return L2Records(version, moment, stale=latest, revoked=latest_revoked, replaceable=replaceable)

    def look_many(self, keys: Iterable[str]) -> Steps[dict[str, L2Record | SharedDictError]]:
        """Return the valid records in L2 by key, or `WrongKind` for a list. Unreadable ones are absent."""
        versions = {key: self.lru.version(key) for key in keys}
        moment = self.index.moment
        raws, errors = yield from self.raw_many(list(versions))
        for key in [key for key, error in errors.items() if isinstance(error, Unreadable)]:
            self.unreadable(key, errors.pop(key))
        valid = yield from self.valid(raws)
        return {**errors, **{key: L2Record(record, versions[key], moment) for key, record in valid.items()}}

    def encoded(
        self, value: object, ttl: float, stale: bool = False, tagged: TagSnapshot | None = None, took: float = 0.0
    ) -> tuple[Any, bytes]:
        """Return a value as all levels return it, and its record. `took`: seconds of its callback, if it is to be
        replaced early. Raise `BadValue`."""
        stored = value
        if self._serializer is not None and value is not None:
            try:
                stored = self._serializer.encode(value)
            except Exception as error:
                raise BadValue(f"The serializer cannot encode a {type(value).__name__}: {error}") from error
            stored = records.plain(stored)
        else:
            try:
                stored = value = records.plain(value)
            except BadValue:
                value, stored = typed(value)
        tags = None if tagged is None else tagged.versions
        return value, records.encode(stored, self.clock(), ttl, stale, tags, self.compressor, took if ttl else 0.0)

    def add(
        self, key: str, value: object, record: bytes, ttl: float, replaceable: Mapping[SharedDict, bytes], tries: int
    ) -> Steps[StoreOutcome]:
        """Store a value in L2, unless it has another one than those that are `replaceable`. Raise `NoMemory`."""
        dictionary = self.shm if value is not None or self.miss is None else self.miss
        name = self.prefix + key
        step = Step(dictionary.add, dictionary.aadd, (name, record, ttl))
        for place, raw in replaceable.items():
            if place is dictionary:
                replace = partial(_replaced, raw, record, ttl)
                step = Step(dictionary.update, dictionary.aupdate, (name, replace))
            else:
                yield Step(place.delete_if, place.adelete_if, (name, raw))
        try:
            outcome: StoreOutcome = yield step
        except NoMemory as error:
            outcome = yield from _again(step, tries - 1, error)
        return outcome

    def set(self, key: str, value: object, record: bytes, ttl: float, tries: int, entry: Entry = None) -> Steps[None]:
        """Store a value in L2, replacing any existing one. `entry`: the journal entry that invalidates it elsewhere.

        Raise `NoMemory`.
        """
        name, shm, miss = self.prefix + key, self.shm, self.miss
        stored = (name, record, ttl, 0)
        try:
            if value is None and miss is not None:
                step = Step(miss.set, miss.aset, stored)
            else:
                if miss is not None:
                    yield Step(miss.delete, miss.adelete, (name,))
                step = Step(shm.set, shm.aset, (*stored, entry))
            try:
                yield step
            except NoMemory as error:
                yield from _again(step, tries - 1, error)
            if value is None and miss is not None:
                yield Step(shm.delete, shm.adelete, (name, entry))
        except Exception:
            raise
        except BaseException:
            self.lru.delete(key)  # the value in L2 is unknown
            raise

    def set_many(self, values: Mapping[str, NewValue], entry: Entry) -> Steps[list[str]]:
        """Store values in L2, replacing existing ones. Return the keys for which there is no space. `entry`: as in
        `set`."""
        names = {key: self.prefix + key for key in values}
        ttls = {name: values[key].ttl for key, name in names.items()}
        failed: list[str] = []
        try:
            for dictionary in (self.miss, self.shm):
                if dictionary is not None:
                    records = {
                        name: values[key].record if self._dictionary_for(values[key].value) is dictionary else None
                        for key, name in names.items()
                    }
                    carried = entry if dictionary is self.shm else None
                    failed += yield Step(dictionary.set_many, dictionary.aset_many, (records, ttls, 0, carried))
        except Exception:
            raise
        except BaseException:
            self.lru.delete_many(values)  # the values in L2 are unknown
            raise
        return [name.removeprefix(self.prefix) for name in failed]

    def _dictionary_for(self, value: object) -> SharedDict:
        return self.shm if value is not None or self.miss is None else self.miss


def serialized(value: object, serialize: Function | None) -> Any:
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


def _again(step: Step, tries: int, error: NoMemory) -> Steps[StoreOutcome]:
    """Repeat a storing step that has raised this error; each attempt evicts more items. Raise the last error."""
    for _ in range(tries):
        try:
            outcome: StoreOutcome = yield step
        except NoMemory as failure:
            error = failure
        else:
            return outcome
    raise error


def _replaced(raw: bytes, record: bytes, ttl: float, stored: object) -> Update | Keep:
    """Return the change of a key from `raw`, if it still has this value, to `record`."""
    return Update(record, ttl, StoreOutcome.STORED) if stored is None or stored == raw else Keep(StoreOutcome.EXISTS)
