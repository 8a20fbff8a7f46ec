"""Reads of L1 and L2 for the cache backend."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import NoMemory, SharedDictError, Unavailable, Unreadable, WrongKind
from resty_django.text import logger

from ..statistics.reporter import OWN
from ..storage.tag_encoding import Versions
from ..tags.versions import ITEMS
from . import entries, tagged
from .entries import Foreign
from .store import LOADING, LOCK, Store

log = logger("resty_django.cache")

_OTHERS: Final = (OWN, LOCK, LOADING, ITEMS)
"""Prefixes of items in the dictionary that are not entries."""


class Reader:
    """Finds entries in a store, fills L1 with them, and counts the calls."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values in L1 by key."""
        store = self._store
        now = store.now()
        values: dict[str, Any] = {}
        for key in keys:
            item = store.find(key)
            if item is not None and item[1] >= now:
                with contextlib.suppress(KeyError):  # just deleted by another thread
                    store.to_end(key)
                    value, make = item[0]
                    values[key] = value if make is None else make(value)
        store.counts.l1 += len(values)
        return values

    def read(self, key: str) -> tuple[Any] | None:
        """Return the value in L2 as a 1-tuple, after storing it in L1; None if L2 has none."""
        store = self._store
        version = store.lru.version(key)
        try:
            try:
                raw = store.shm.get(key)
            except WrongKind:
                raw = ()
            except Unreadable:
                store.shm.delete(key)
                raw = ()
            reply = self.decode(key, raw, version)
            if reply is None and raw is not None:
                reply = _reply(key, run(self._decode_tagged({key: raw}, {key: version})))
        except Unavailable as error:
            store.missed(error)
            store.counts.misses += 1
            return None
        store.flush_counts()
        return reply

    async def aread(self, key: str) -> tuple[Any] | None:
        """Do the same as `read`."""
        store = self._store
        version = store.lru.version(key)
        try:
            try:
                raw = await store.shm.aget(key)
            except WrongKind:
                raw = ()
            except Unreadable:
                await store.shm.adelete(key)
                raw = ()
            reply = self.decode(key, raw, version)
            if reply is None and raw is not None:
                reply = _reply(key, await arun(self._decode_tagged({key: raw}, {key: version})))
        except Unavailable as error:
            store.missed(error)
            store.counts.misses += 1
            return None
        await store.aflush_counts()
        return reply

    def read_many(self, keys: Sequence[str]) -> Steps[dict[str, Any]]:
        """Return the values in L2 by key, after storing them in L1."""
        try:
            return (yield from self._read_many(keys))
        except (Unavailable, NoMemory) as error:
            self._store.missed(error)
            return {}

    def _read_many(self, keys: Sequence[str]) -> Steps[dict[str, Any]]:
        store = self._store
        versions = {key: store.lru.version(key) for key in keys}
        foreign: dict[str, Any] = {}
        unreadable: list[str] = []

        def on_error(key: str, error: SharedDictError) -> None:
            foreign[key] = ()
            if isinstance(error, Unreadable):
                unreadable.append(key)

        raws = yield Step(store.shm.get_many, store.shm.aget_many, (keys, on_error))
        raws.update(foreign)
        values: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for key in keys:
            raw = raws.get(key)
            reply = self.decode(key, raw, versions[key])
            if reply is not None:
                values[key] = reply[0]
            elif raw is not None:
                others[key] = raw
        if others:
            values |= yield from self._decode_tagged(others, versions)
        if unreadable:
            yield Step(store.shm.delete_many, store.shm.adelete_many, (unreadable,))
        if store.counter.is_due():
            yield from store.counter.flush()
        return values

    def decode(self, key: str, raw: Any, version: int) -> tuple[Any] | None:
        store = self._store
        if raw is None:
            store.counts.misses += 1
            return None
        if type(raw) is int or type(raw) is float:
            store.counts.l2 += 1
            return (raw,)
        try:
            entry = entries.decode(store.context_of(key), raw, store.clock(), store.compressor.limit)
        except Foreign as error:
            if tagged.is_tagged(raw):
                return None
            log.warning("The entry of the key %r in %r counts as absent: %s", key, store.shm, error)
            store.counts.misses += 1
            return None
        store.counts.l2 += 1
        store.keep(key, entry, version)
        return (entry.value,)

    def _decode_tagged(self, raws: Mapping[str, Any], versions: Mapping[str, int]) -> Steps[dict[str, Any]]:
        """Return the values of entries with tags by key. Drop those with an invalidated tag, and entries of others.

        `versions`: the versions of the keys in L1 before the entries were read.
        """
        store = self._store
        moment = store.index.moment
        found: dict[str, tuple[entries.Entry, Versions]] = {}
        for key, raw in raws.items():
            if tagged.is_tagged(raw):
                try:
                    parts = tagged.split(raw)
                    entry = tagged.decode(store.context_of(key), parts, store.clock(), store.compressor.limit)
                    found[key] = entry, parts.versions
                except Foreign as error:
                    log.warning("The entry of the key %r in %r counts as absent: %s", key, store.shm, error)
                    store.counts.misses += 1
        revoked = (yield from store.tags.revoked({key: tags for key, (_, tags) in found.items()})) if found else set()
        values: dict[str, Any] = {}
        for key, raw in raws.items():
            if key in found and key not in revoked:
                entry, tags = found[key]
                store.counts.l2 += 1
                store.keep(key, entry, versions[key], tags, moment)
                values[key] = entry.value
            else:
                store.counts.misses += key in revoked
                yield Step(store.drop, store.adrop, (key, raw))
        return values

    def keys(self, pattern: str) -> Iterator[str]:
        """Yield the keys in L2 that match a pattern, without locks and counts."""
        try:
            self._check_readable()
            yield from filter(_is_entry, self._store.shm.iter_keys(pattern))
        except Unavailable as error:
            self._store.missed(error)

    async def akeys(self, pattern: str) -> AsyncIterator[str]:
        """Do the same as `keys`."""
        try:
            self._check_readable()
            async for key in self._store.shm.aiter_keys(pattern):
                if _is_entry(key):
                    yield key
        except Unavailable as error:
            self._store.missed(error)

    def _check_readable(self) -> None:
        """Raise `Unavailable` while the store is bypassed."""
        store = self._store
        if store.breaker.reads_down and store.breaker.is_open():
            raise store.breaker.bypassed()


def _reply(key: str, values: Mapping[str, Any]) -> tuple[Any] | None:
    return (values[key],) if key in values else None


def _is_entry(name: str) -> bool:
    return not name.startswith(_OTHERS)
