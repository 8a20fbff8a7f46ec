"""Reads of L1 and L2 for the cache backend."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import Unavailable, Unreadable, WrongKind

from ..statistics.reporter import STATISTICS_PREFIX
from ..tags.versions import TAG_PREFIX
from .entries import Entry
from .store import LOADING_PREFIX, LOCK_PREFIX, BackendStore


class BackendReader:
    """Finds entries in a store, fills L1 with them, and counts the calls. `read` is written out for asyncio, too: as
    steps for `run` and `arun`, it would take a fifth longer."""

    def __init__(self, store: BackendStore) -> None:
        self._store = store

    def find_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values in L1 by key."""
        store = self._store
        now = store.now()
        values: dict[str, Any] = {}
        for key in keys:
            item = store.find(key)
            if item is not None and item.expires >= now:
                with contextlib.suppress(KeyError):  # just deleted by another thread
                    store.to_end(key)
                    values[key] = item.value.for_reader()
        store.counts.l1 += len(values)
        return values

    def read(self, key: str, default: object) -> Any:
        """Return the value in L2, after storing it in L1; `default` if L2 has none."""
        store = self._store
        version, moment = store.lru.version(key), store.index.moment
        try:
            try:
                raw = store.shm.get(key)
            except (WrongKind, Unreadable) as error:
                raw = error
            entry = None if raw is None else store.record(raw, key)
            if entry is not None and not entry.tags:
                store.counts.l2 += 1
                store.keep(key, entry, version)
            else:
                entry = run(self._settle(key, raw, entry, version, moment))
        except Unavailable as error:
            store.missed(error)
            store.counts.misses += 1
            return default
        store.counter.flush_due()
        return default if entry is None else entry.value

    async def aread(self, key: str, default: object) -> Any:
        """Do the same as `read`."""
        store = self._store
        version, moment = store.lru.version(key), store.index.moment
        try:
            try:
                raw = await store.shm.aget(key)
            except (WrongKind, Unreadable) as error:
                raw = error
            entry = None if raw is None else store.record(raw, key)
            if entry is not None and not entry.tags:
                store.counts.l2 += 1
                store.keep(key, entry, version)
            else:
                entry = await arun(self._settle(key, raw, entry, version, moment))
        except Unavailable as error:
            store.missed(error)
            store.counts.misses += 1
            return default
        await store.counter.aflush_due()
        return default if entry is None else entry.value

    def read_many(self, keys: Sequence[str]) -> Steps[dict[str, Any]]:
        """Return the values in L2 by key, after storing them in L1."""
        store = self._store
        versions, moment = {key: store.lru.version(key) for key in keys}, store.index.moment
        raws, errors = yield from store.raw_many(keys)
        valid = yield from store.valid({**raws, **errors} if errors else raws)
        values: dict[str, Any] = {}
        for key in keys:
            if key in valid:
                store.counts.l2 += 1
                store.keep(key, valid[key], versions[key], moment)
                values[key] = valid[key].value
            else:
                yield from self._absent(key, raws.get(key, errors.get(key)))
        if store.counter.is_due():
            yield from store.counter.flush()
        return values

    def _settle(self, key: str, raw: object, entry: Entry | None, version: int, moment: int) -> Steps[Entry | None]:
        """Return an entry if its tags are current. `raw`: the item in L2, or the error of its read."""
        store = self._store
        if entry is not None and (yield from store.tags.are_current(entry.tags or {})):
            store.counts.l2 += 1
            store.keep(key, entry, version, moment)
            return entry
        yield from self._absent(key, raw)
        return None

    def _absent(self, key: str, raw: object) -> Steps[None]:
        """Count a miss. Delete an entry with an invalidated tag, and what this cache has not written, except a list."""
        store = self._store
        store.counts.misses += 1
        yield from store.count_miss(key, revoked=isinstance(raw, bytes))
        if isinstance(raw, Unreadable):
            yield Step(store.shm.delete, store.shm.adelete, (key,))
        elif raw is not None and not isinstance(raw, WrongKind):
            yield Step(store.shm.delete_if, store.shm.adelete_if, (key, raw))

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
            raise store.breaker.bypassed(reading=True)


def _is_entry(name: str) -> bool:
    """Return whether an item of the dictionary is an entry: not a count, a lock or the version of a tag."""
    return not name.startswith((STATISTICS_PREFIX, LOCK_PREFIX, LOADING_PREFIX, TAG_PREFIX))
