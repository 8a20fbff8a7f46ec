"""Writes to both levels and their broadcasts, also while the store is down."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from resty_django.sansio import Steps, run
from resty_django.shdict import NoMemory, SharedDict, Unavailable
from resty_django.text import logger

from ..broadcasts.announce import announce
from ..broadcasts.channel import INVALIDATIONS, MANY, PURGE, TAGS, Channel, carried, keys_text, parts_of
from ..circuit_breaker.breaker import breaker_of
from ..errors import NoChannel, SerializerFailed
from ..storage.records import key_text
from ..storage.shielding import as_one_step
from ..tags.names import invalidated, resolved
from ..tags.versions import TagSnapshot, TagVersions, are_uncommitted
from .levels import Levels, NewValue, serialized
from .loading import Callback, Loader, LoadRequest, lifetime, unwrapped
from .options import Options, check

log = logger("resty_django.cache")


class Writer:
    """Changes the values of one cache. Its methods are the steps of the methods of `MLCache` with the same names.

    `dictionaries`: of L2, not guarded. `channel`: notifies other processes (None: all calls raise `NoChannel`).
    """

    def __init__(
        self,
        levels: Levels,
        loader: Loader,
        dictionaries: Sequence[SharedDict],
        channel: Channel | None,
        options: Options,
    ) -> None:
        self._name = levels.name
        self._levels = levels
        self._lru = levels.l1
        self._loader = loader
        self._dictionaries = dictionaries
        self._channel = channel
        self._options = options
        self._invalidations = INVALIDATIONS + levels.name
        self._many = MANY + levels.name

    def refresh(
        self,
        key: object,
        callback: Callback,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
        unwrap: bool = False,
    ) -> Steps[Any]:
        self.require_channel("refresh")
        request = LoadRequest(key_text(key), callback, args, self._options.changed(options), unwrap)
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
        value: Any,
        changes: Mapping[str, Any],
        tagged: TagSnapshot | None = None,
        took: float = 0.0,
    ) -> Steps[Any]:
        """Return the value as stored in L1. `tagged`: its tags from before its source was called; else from the
        options. `took`: seconds of its callback."""
        channel = self.require_channel("set")
        text = key_text(key)
        options = self._options.changed(changes)
        if options.tags:
            tagged = yield from self._snapshot(resolved(options.tags, ()), options)
        ttl = lifetime(value, options)
        took = took if options.early else 0.0
        value, record = self._levels.encoded(value, ttl, tagged=tagged, took=took)
        early = self._levels.early.seconds_of_new(text, record, ttl, took, options.early)
        version = self._lru.version(text)
        entry, broadcasts = carried(channel, self._invalidations, text)
        try:
            yield from self._levels.set(text, value, record, ttl, options.shm_set_tries, entry)
        except (Unavailable, NoMemory) as error:
            if options.on_error == "raise":
                raise
            broadcasts = True
            yield from self._forget_storeless(text, error)
            keep = partial(self._levels.keep_in_outage, text, value, ttl, options, None, tagged)
        else:
            keep = partial(self._levels.keep, text, value, ttl, options.l1_serializer, version, tagged, early)
        try:
            l1_value = keep()
        except SerializerFailed:
            self._lru.delete(text)
            if broadcasts:
                yield from announce(channel, self._invalidations, text, options.on_error)
            raise
        if broadcasts:
            yield from announce(channel, self._invalidations, text, options.on_error)
        return l1_value

    def set_many(self, values: Mapping[Any, Any], changes: Mapping[str, Any]) -> Steps[list[Any]]:
        channel = self.require_channel("set_many")
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
                failed += yield from self._set_part(channel, {text: entries[text] for text in part}, options, tagged)
            except SerializerFailed as failure:
                error = error or failure
        if error is not None:
            raise error
        return [key for key, text in texts.items() if text in failed]

    def _set_part(
        self, channel: Channel, values: dict[str, NewValue], options: Options, tagged: TagSnapshot | None
    ) -> Steps[Sequence[str]]:
        """Store values with one broadcast. Return the keys for which L2 has no space."""
        data = keys_text(values)
        entry, broadcasts = carried(channel, self._many, data)
        failed: Sequence[str] = ()
        storeless = False
        try:
            failed = yield from self._levels.set_many(values, entry)
        except (Unavailable, NoMemory) as error:
            if options.on_error == "raise":
                raise
            broadcasts = storeless = True
            for text in values:
                yield from self._forget_storeless(text, error)
        for text in failed:
            del values[text]
        try:
            self._levels.keep_many(values, options, tagged, storeless)
        finally:
            if broadcasts:
                yield from announce(channel, self._many, data, options.on_error)
        return failed

    def delete(self, key: object, on_error: str | None = None) -> Steps[None]:
        channel, text = self.require_channel("delete"), key_text(key)
        mode = self._on_error(on_error)
        entry, broadcasts = carried(channel, self._invalidations, text)
        try:
            yield from self._levels.delete(text, entry)
        except Unavailable as error:
            if mode == "raise":
                raise
            broadcasts = True
            yield from self._forget_storeless(text, error)
        if broadcasts:
            yield from announce(channel, self._invalidations, text, mode)

    def delete_many(self, keys: Iterable[Any], on_error: str | None) -> Steps[None]:
        channel, mode = self.require_channel("delete_many"), self._on_error(on_error)
        for texts in parts_of(dict.fromkeys(map(key_text, keys))):
            data = keys_text(texts)
            entry, broadcasts = carried(channel, self._many, data)
            try:
                yield from self._levels.delete_many(texts, entry)
            except Unavailable as error:
                if mode == "raise":
                    raise
                broadcasts = True
                for text in texts:
                    yield from self._forget_storeless(text, error)
            if broadcasts:
                yield from announce(channel, self._many, data, mode)

    def purge(self, flush_expired: bool, on_error: str | None = None) -> Steps[None]:
        channel = self.require_channel("purge")
        mode = self._on_error(on_error)
        name = PURGE + self._name
        entry, broadcasts = carried(channel, name, "")
        try:
            yield from self._levels.flush(flush_expired, entry)
            self._loader.errors.copies.flush_all()
        except Unavailable as error:
            if mode == "raise":
                raise
            broadcasts = True
            self._lru.flush_all()
            self._remember(error, PURGE, partial(_flush, free=flush_expired), (name, ""))
        if broadcasts:
            yield from announce(channel, name, "", mode)

    def invalidate_tags(self, tags: tuple[object, ...], on_error: str | None = None) -> Steps[None]:
        names = invalidated(tags)
        channel = self.require_channel("invalidate_tags")
        if names:
            mode, event = self._on_error(on_error), (TAGS + self._name, json.dumps(names))
            entry, broadcasts = carried(channel, *event)
            try:
                yield from self._levels.invalidate(names, entry)
            except Unavailable as error:
                if mode == "raise":
                    raise
                broadcasts = True
                self._levels.count_storeless()
                self._levels.index.invalidate(self._lru, names)
                self._remember(error, event[1], partial(_delete_versions, name=self._name, tags=names), event)
            if broadcasts:
                yield from announce(channel, *event, mode)
            yield from self._levels.counter.invalidated(names)

    def require_channel(self, call: str) -> Channel:
        if self._channel is None:
            raise NoChannel(f"{call}() of the cache {self._name!r} needs a channel to other processes. Set ipc.")
        return self._channel

    def _on_error(self, on_error: str | None) -> str:
        if on_error is None:
            return self._options.on_error
        check({"on_error": on_error})
        return on_error

    def _snapshot(self, tags: Collection[str], options: Options) -> Steps[TagSnapshot | None]:
        try:
            return (yield from self._levels.snapshot(tags))
        except (Unavailable, NoMemory):
            if options.on_error == "raise":
                raise
            return self._levels.storeless_snapshot(tags)

    # --- while the store is down ---

    def _forget_storeless(self, key: str, error: Exception) -> Steps[None]:
        """Delete a key in L1, and in L2 as soon as possible, so that the store does not return an old value later."""
        self._levels.count_storeless()
        if isinstance(error, NoMemory) or self._levels.breaker.full:
            if not self._levels.breaker.full:  # then the outage is logged
                log.warning("The key %r of %r was not stored in L2: %s", key, self._levels.prefix, error)
            try:
                yield from self._levels.delete(key)
                return
            except Unavailable as unavailable:
                error = unavailable
        self._lru.delete(key)
        name = self._levels.prefix + key
        self._remember(error, name, lambda dictionary: dictionary.delete(name), (self._invalidations, key))

    def _remember(
        self, error: Exception, key: str, write: Callable[[SharedDict], object], event: tuple[str, str]
    ) -> None:
        """Have each dictionary that is down written, and the event broadcast, when its store answers again."""
        for dictionary in self._dictionaries:
            breaker = breaker_of(dictionary)
            if breaker.down:
                breaker.remember(error, (self._name, key), partial(self._write_later, write, dictionary, event))

    def _write_later(
        self, write: Callable[[SharedDict], object], dictionary: SharedDict, event: tuple[str, str]
    ) -> None:
        write(dictionary)
        if self._channel is not None:
            run(announce(self._channel, *event, "source"))


def _flush(dictionary: SharedDict, free: bool) -> None:
    dictionary.flush_all()
    if free:
        dictionary.flush_expired()


def _delete_versions(dictionary: SharedDict, name: str, tags: Collection[str]) -> None:
    run(TagVersions(dictionary, name).delete(tags))
