"""Reads of L1, L2 and the source in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from resty_django.sansio import Steps, arun, run
from resty_django.shdict import SharedDictError, Unavailable, Unreadable

from ..storage.records import Record, key_text
from .bulk import BulkResults
from .levels import L2Record, RecordLevels
from .loading import Loader
from .options import CacheOptions, check
from .results import L1, L2, L3, MISS, STALE, Callback, GetCall, Hit, Level, Peek

_STORE_DOWN: Final = Hit(None, MISS)
"""The store is down: the value is unknown."""


class CacheReader:
    """Finds the values of one cache, and counts the calls. The read of L2 is written out for sync code and for asyncio:
    as steps for `run` and `arun`, it would take a sixth longer."""

    def __init__(self, levels: RecordLevels, loader: Loader, options: CacheOptions) -> None:
        self._levels = levels
        self._loader = loader
        self._options = options
        self._counter = levels.counter
        self.counts = levels.counter.now
        self._find = levels.lru.items.get
        self._to_end = levels.lru.items.move_to_end
        self._now = levels.lru.clock
        self._version = levels.lru.version
        self._shm = levels.shm
        self._miss = levels.miss
        self._breaker = levels.breaker
        self._prefix = levels.prefix
        self._record = levels.record
        self._promote = levels.promote
        self._serialize = options.l1_serializer

    def get_from_l1(self, key: str) -> Hit | None:
        item = self._find(key)
        if item is None or item.expires < self._now():
            return None
        try:
            self._to_end(key)
        except KeyError:  # just deleted by another thread
            return None
        self.counts.l1 += 1
        return Hit(item.value, L1)

    def get_beyond_l1(
        self,
        key: object,
        callback: Callback | None,
        args: tuple[object, ...],
        options: Mapping[str, object],
        unwrap: bool = False,
    ) -> Hit:
        """Return the value from L2 or the callback, after an L1 miss. `unwrap`: as in `GetCall`."""
        text = key if type(key) is str and key else key_text(key)
        hit = None if text is key else self.get_from_l1(text)
        if hit is not None:
            return hit
        try:
            if options:
                check(options)
            name, version, record = self._prefix + text, self._version(text), None
            try:
                raw = self._shm.get(name)
                if raw is None and self._miss is not None:
                    raw = self._miss.get(name)
                if raw is not None:
                    record = self._record(raw, text)
            except Unreadable as error:
                self._levels.unreadable(text, error)
            except Unavailable:
                hit = self._down(options)
            if record is not None and not record.tags and not record.took:
                hit = self._promote_record(text, record, options, version)
            else:
                call = GetCall(text, callback, args, options, unwrap)
                hit = run(self._beyond_l2(call, record, version, hit))
        except Exception:
            self.counts.errors += 1
            raise
        if self.count(hit.level):
            run(self._counter.flush())
        return hit

    async def aget_beyond_l1(
        self,
        key: object,
        callback: Callback | None,
        args: tuple[object, ...],
        options: Mapping[str, object],
        unwrap: bool = False,
    ) -> Hit:
        text = key if type(key) is str and key else key_text(key)
        hit = None if text is key else self.get_from_l1(text)
        if hit is not None:
            return hit
        try:
            if options:
                check(options)
            name, version, record = self._prefix + text, self._version(text), None
            try:
                raw = await self._shm.aget(name)
                if raw is None and self._miss is not None:
                    raw = await self._miss.aget(name)
                if raw is not None:
                    record = self._record(raw, text)
            except Unreadable as error:
                self._levels.unreadable(text, error)
            except Unavailable:
                hit = self._down(options)
            if record is not None and not record.tags and not record.took:
                hit = self._promote_record(text, record, options, version)
            else:
                call = GetCall(text, callback, args, options, unwrap)
                hit = await arun(self._beyond_l2(call, record, version, hit))
        except Exception:
            self.counts.errors += 1
            raise
        if self.count(hit.level):
            await arun(self._counter.flush())
        return hit

    def count(self, level: Level) -> bool:
        """Count a call answered by this level. Return whether a flush of the counts is due."""
        counts = self.counts
        if level is L2:
            counts.l2 += 1
            return False
        if level is L3:
            counts.l3 += 1
        elif level is STALE:
            counts.stale += 1
        elif level is L1:  # stored by another call while this one waited for it
            counts.l1 += 1
        else:
            counts.misses += 1
        return self._counter.clock() >= self._counter.due_at and not self._breaker.down

    # --- L2 ---

    def _beyond_l2(self, call: GetCall, record: Record | None, version: int, hit: Hit | None) -> Steps[Hit]:
        """Return the value of a record that needs more than promotion, or else the one of the callback. `hit`:
        `_STORE_DOWN` if the store is down."""
        if record is not None:
            hit = yield from self._promote_checked(call, record, version)
        if hit is not None and hit is not _STORE_DOWN:
            return hit
        if call.callback is not None:
            request = self._loader.request(call)
            load = self._loader.load_storeless if hit is _STORE_DOWN else self._loader.load
            return (yield from load(request))
        if hit is _STORE_DOWN:
            self._levels.count_storeless()
            return self._levels.from_l1(call.key, self._options.changed(call.options)) or hit
        yield from self._levels.count_miss(call.key, revoked=record is not None)
        return Hit(None, MISS)

    def _down(self, options: Mapping[str, object]) -> Hit:
        """Return `_STORE_DOWN` while an error of L2 is handled, or reraise it."""
        if self._raises(options):
            raise
        return _STORE_DOWN

    def _raises(self, options: Mapping[str, object]) -> bool:
        """Return whether an outage of L2 is to be raised."""
        return bool(options.get("on_error", self._options.on_error) == "raise")

    def _promote_record(
        self, key: str, record: Record, options: Mapping[str, Any], version: int, moment: int = 0
    ) -> Hit:
        serialize = options.get("l1_serializer", self._serialize) if options else self._serialize
        beta = options.get("early", self._options.early) if record.took else None
        early = self._levels.early.seconds(key, record, beta) if beta is not None else 0.0
        return Hit(self._promote(key, record, serialize, version, moment, early), STALE if record.stale else L2)

    def _promote_checked(self, call: GetCall, record: Record, version: int) -> Steps[Hit | None]:
        """Do the same for a record with tags, or one that may be replaced early; return None if a tag was
        invalidated."""
        moment = self._levels.index.moment
        if record.tags:
            try:
                if not (yield from self._levels.tags.are_current(record.tags)):
                    return None
            except Unavailable:
                return self._down(call.options)
        hit = self._promote_record(call.key, record, call.options, version, moment)
        if call.callback is not None:
            yield from self._replace_early(call, record)
        return hit

    def _replace_early(self, call: GetCall, record: Record) -> Steps[None]:
        """Start the callback in the background, if the record is due. L1 has it before, so as not to replace the new
        one."""
        early = self._levels.early
        if record.took and early.is_due(call.key, record, call.options.get("early", self._options.early)):
            yield self._loader.refresh_early(self._loader.request(call, early=record))

    def peek(self, key: object, stale: bool) -> Steps[Peek | None]:
        try:
            l2_records = yield from self._levels.look(key_text(key), with_stale=stale)
        except Unavailable:
            if self._options.on_error == "raise":
                raise
            return None
        record = l2_records.fresh or l2_records.stale
        if record is None:
            return None
        expired = l2_records.fresh is None
        return Peek(self._remaining(record, expired), record.value, expired)

    def _remaining(self, record: Record, expired: bool) -> float:
        seconds = record.remaining(self._levels.clock()) if record.ttl else 0.0
        if expired:
            return min(seconds, -0.001)
        return (seconds or 0.001) if record.ttl else 0.0  # 0 means forever

    # --- many keys ---

    def note_hits(self, operations: Sequence[GetCall], results: BulkResults) -> Steps[None]:
        """Note the values from L1 and L2."""
        missing: dict[str, list[int]] = {}
        for position, operation in enumerate(operations):
            hit = self.get_from_l1(operation.key)
            results.note(position, hit)
            if hit is None:
                missing.setdefault(operation.key, []).append(position)
        try:
            l2_records = (yield from self._levels.look_many(missing)) if missing else {}
        except SharedDictError as error:
            l2_records = dict.fromkeys(missing, error)
        for key, l2_record in l2_records.items():
            for position in missing[key]:
                with results.noting_errors(position):
                    operation = operations[position]
                    if not isinstance(l2_record, Unavailable) or self._raises(operation.options):
                        results.note(position, self._promote_one(key, l2_record, operation.options))
                    if isinstance(l2_record, L2Record):
                        yield from self._replace_early(operation, l2_record.record)

    def get_many(self, keys: Iterable[object]) -> Steps[dict[Any, Any]]:
        texts = {key: key_text(key) for key in keys}
        hits = {text: self.get_from_l1(text) for text in texts.values()}
        missing = [text for text, hit in hits.items() if hit is None]
        try:
            l2_records = yield from self._look_many(missing, hits)
            for text in missing:
                if text in l2_records:
                    hits[text] = self._promote_one(text, l2_records[text], {})
                hit = hits[text]
                if hit is None:
                    yield from self._levels.count_miss(text)
                self.count(MISS if hit is None else hit.level)
        except Exception:
            self.counts.errors += 1
            raise
        if missing and not self._breaker.down and self._counter.is_due():
            yield from self._counter.flush()
        by_key = ((key, hits[text]) for key, text in texts.items())
        return {key: hit.value for key, hit in by_key if hit is not None}

    def _look_many(
        self, missing: Sequence[str], hits: dict[str, Hit | None]
    ) -> Steps[Mapping[str, L2Record | SharedDictError]]:
        """Return the records in L2. While the store is down, replace missing values by what L1 has, unless the outage
        is to be raised."""
        try:
            return (yield from self._levels.look_many(missing)) if missing else {}
        except Unavailable:
            if self._raises({}):
                raise
            for text in missing:
                self._levels.count_storeless()
                hits[text] = self._levels.from_l1(text, self._options)
            return {}

    def _promote_one(self, key: str, l2_record: L2Record | SharedDictError, options: Mapping[str, object]) -> Hit:
        if isinstance(l2_record, SharedDictError):
            raise l2_record
        return self._promote_record(key, l2_record.record, options, l2_record.version, l2_record.moment)
