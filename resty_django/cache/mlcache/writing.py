"""Writes to both levels and their broadcasts, also while the store is down."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from resty_django.sansio import Steps
from resty_django.shdict import NoMemory, Unavailable

from ..broadcasts.channel import InvalidationChannel, parts_of
from ..errors import NoChannel, SerializerFailed
from ..storage.records import key_text
from ..storage.shielding import as_one_step
from ..tags.names import resolved
from ..tags.versions import TagSnapshot, are_uncommitted
from .levels import NewValue, RecordLevels, serialized
from .loading import Loader, lifetime, unwrapped
from .options import CacheOptions, check
from .results import Callback, GetCall


class CacheWriter:
    """Changes the values of one cache. Its methods are the steps of the methods of `MLCache` with the same names. A
    cache without a channel raises `NoChannel`."""

    def __init__(self, levels: RecordLevels, loader: Loader, options: CacheOptions) -> None:
        self._name = levels.name
        self._levels = levels
        self._lru = levels.lru
        self._loader = loader
        self._options = options

    def refresh(
        self,
        key: object,
        callback: Callback,
        args: tuple[object, ...],
        options: Mapping[str, object],
        unwrap: bool = False,
    ) -> Steps[Any]:
        self.require_channel("refresh")
        request = self._loader.request(GetCall(key_text(key), callback, args, options, unwrap))
        tagged = yield from self._snapshot(resolved(request.options.tags, args), request.options)
        fetch = self._loader.fetch(request)
        value, ttl = yield from unwrapped(fetch) if unwrap else fetch
        if ttl < 0:
            yield as_one_step(self.delete(key, request.options.on_error))
            return serialized(value, request.options.l1_serializer)
        if tagged is not None and are_uncommitted(tagged.versions):
            return serialized(value, request.options.l1_serializer)
        changes = {**options, "ttl": ttl, "neg_ttl": ttl, "jitter": 0, "tags": ()}
        return (yield as_one_step(self.set(key, value, changes, tagged, request.took)))

    def set(
        self,
        key: object,
        value: object,
        changes: Mapping[str, object],
        tagged: TagSnapshot | None = None,
        took: float = 0.0,
    ) -> Steps[Any]:
        """Return the value as stored in L1. `tagged`: its tags from before its source was called; else from the
        options. `took`: seconds of its callback."""
        self.require_channel("set")
        text = key_text(key)
        options = self._options.changed(changes)
        if options.tags:
            tagged = yield from self._snapshot(resolved(options.tags, ()), options)
        ttl = lifetime(value, options)
        took = took if options.early else 0.0
        value, record = self._levels.encoded(value, ttl, False, tagged, took)
        early = self._levels.early.seconds_of_new(text, record, ttl, took, options.early) if took else 0.0
        version = self._lru.version(text)
        levels = self._levels
        broadcast = levels.deletion(text)
        entry, broadcasts = levels.carried(broadcast)
        try:
            yield from levels.set(text, value, record, ttl, options.shm_set_tries, entry)
        except (Unavailable, NoMemory) as error:
            if options.on_error == "raise":
                raise
            broadcasts = False
            yield from levels.forget_unstored((text,), error)
            keep = partial(self._levels.keep_in_outage, text, value, ttl, options, None, tagged)
        else:
            keep = partial(self._levels.keep, text, value, ttl, options.l1_serializer, version, tagged, early)
        try:
            l1_value = keep()
        except SerializerFailed:
            self._lru.delete(text)
            if broadcasts:
                yield from levels.announce(broadcast, options.on_error)
            raise
        if broadcasts:
            yield from levels.announce(broadcast, options.on_error)
        return l1_value

    def set_many(self, values: Mapping[Any, Any], changes: Mapping[str, object]) -> Steps[list[Any]]:
        self.require_channel("set_many")
        options = self._options.changed(changes)
        texts = {key: key_text(key) for key in values}
        tagged = (yield from self._snapshot(resolved(options.tags, ()), options)) if options.tags else None
        entries: dict[str, NewValue] = {}
        for key, version in zip(values, self._lru.versions(texts.values()), strict=True):
            ttl = lifetime(values[key], options)
            value, record = self._levels.encoded(values[key], ttl, tagged=tagged)
            entries[texts[key]] = NewValue(value, record, ttl, version)
        failed: list[str] = []
        error: SerializerFailed | None = None
        for part in parts_of(entries):
            try:
                failed += yield from self._set_part({text: entries[text] for text in part}, options, tagged)
            except SerializerFailed as failure:
                error = error or failure
        if error is not None:
            raise error
        return [key for key, text in texts.items() if text in failed]

    def _set_part(
        self,
        values: dict[str, NewValue],
        options: CacheOptions,
        tagged: TagSnapshot | None,
    ) -> Steps[Sequence[str]]:
        """Store values with one broadcast. Return the keys for which L2 has no space."""
        broadcast = self._levels.deletion_of_many(values)
        entry, broadcasts = self._levels.carried(broadcast)
        failed: Sequence[str] = ()
        storeless = False
        try:
            failed = yield from self._levels.set_many(values, entry)
        except (Unavailable, NoMemory) as error:
            if options.on_error == "raise":
                raise
            broadcasts, storeless = False, True
            yield from self._levels.forget_unstored(values, error)
        for text in failed:
            del values[text]
        try:
            self._levels.keep_many(values, options, tagged, storeless)
        finally:
            if broadcasts:
                yield from self._levels.announce(broadcast, options.on_error)
        return failed

    def delete(self, key: object, on_error: str | None = None) -> Steps[bool]:
        self.require_channel("delete")
        return self._levels.delete(key_text(key), _checked(on_error))

    def delete_many(self, keys: Iterable[object], on_error: str | None) -> Steps[int]:
        self.require_channel("delete_many")
        return self._levels.delete_many(dict.fromkeys(map(key_text, keys)), _checked(on_error))

    def purge(self, flush_expired: bool, on_error: str | None = None) -> Steps[None]:
        self.require_channel("purge")
        yield from self._levels.flush(flush_expired, _checked(on_error))
        self._loader.errors.copies.flush_all()

    def invalidate_tags(self, tags: tuple[object, ...], on_error: str | None = None) -> Steps[None]:
        self.require_channel("invalidate_tags")
        return self._levels.invalidate_tags(tags, _checked(on_error))

    def require_channel(self, call: str) -> InvalidationChannel:
        channel = self._levels.channel
        if channel is None:
            raise NoChannel(f"{call}() of the cache {self._name!r} needs a channel to other processes. Set ipc.")
        return channel

    def _snapshot(self, tags: Collection[str], options: CacheOptions) -> Steps[TagSnapshot | None]:
        if not tags:
            return None
        try:
            return (yield from self._levels.snapshot(tags))
        except (Unavailable, NoMemory):
            if options.on_error == "raise":
                raise
            return self._levels.storeless_snapshot(tags)


def _checked(on_error: str | None) -> str | None:
    if on_error is not None:
        check({"on_error": on_error})
    return on_error
