"""Reads of L1, L2 and the source in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from resty_django.sansio import Steps, arun, run
from resty_django.shdict import SharedDictError, Unavailable, Unreadable

from ..storage.records import Record, key_text
from .bulk import Operation, Results
from .levels import L2Record, RecordLevels
from .loading import Callback, Loader
from .options import Options, check
from .results import L1, L2, L3, MISS, STALE, Answer, Level, Peek

SHORTEST: Final = 0.001
"""Smallest remaining time (seconds) that `peek` returns, because 0 means forever."""
_NOTHING: Final[Answer] = (None, MISS)
_DOWN: Final[Answer] = (None, MISS)
"""The store is down: the value is unknown."""


class Reader:
    """Finds the values of one cache, and counts the calls. The read of L2 is written out for sync code and for asyncio,
    because it is a hot path."""

    def __init__(self, levels: RecordLevels, loader: Loader, options: Options) -> None:
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

    def get_from_l1(self, key: str) -> Answer | None:
        item = self._find(key)
        if item is None or item[1] < self._now():
            return None
        try:
            self._to_end(key)
        except KeyError:  # just deleted by another thread
            return None
        self.counts.l1 += 1
        return item[0], L1

    def get_beyond_l1(
        self,
        key: object,
        callback: Callback | None,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
        unwrap: bool = False,
    ) -> Answer:
        """Return the value from L2 or the callback, after an L1 miss. `unwrap`: as in `LoadRequest`."""
        text = key if type(key) is str and key else key_text(key)
        answer = None if text is key else self.get_from_l1(text)
        if answer is not None:
            return answer
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
                answer = self._down(options)
            if record is not None and not record.tags and not record.took:
                answer = self._promote_record(text, record, options, version)
            else:
                steps = self._beyond_l2(text, record, version, answer, callback, args, options, unwrap)
                answer = run(steps)
        except Exception:
            self.counts.errors += 1
            raise
        if self.count(answer[1]):
            run(self._counter.flush())
        return answer

    async def aget_beyond_l1(
        self,
        key: object,
        callback: Callback | None,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
        unwrap: bool = False,
    ) -> Answer:
        text = key if type(key) is str and key else key_text(key)
        answer = None if text is key else self.get_from_l1(text)
        if answer is not None:
            return answer
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
                answer = self._down(options)
            if record is not None and not record.tags and not record.took:
                answer = self._promote_record(text, record, options, version)
            else:
                steps = self._beyond_l2(text, record, version, answer, callback, args, options, unwrap)
                answer = await arun(steps)
        except Exception:
            self.counts.errors += 1
            raise
        if self.count(answer[1]):
            await arun(self._counter.flush())
        return answer

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

    def _beyond_l2(
        self,
        key: str,
        record: Record | None,
        version: int,
        answer: Answer | None,
        callback: Callback | None,
        args: tuple[Any, ...],
        options: Mapping[str, Any],
        unwrap: bool,
    ) -> Steps[Answer]:
        """Return the value of a record that needs more than promotion, or else the one of the callback. `answer`:
        `_DOWN` if the store is down."""
        if record is not None:
            answer = yield from self._promote_checked(key, record, options, version, callback, args)
        if answer is not None and answer is not _DOWN:
            return answer
        loader = self._loader
        if callback is not None:
            request = loader.request(key, callback, args, options, unwrap)
            return (yield from loader.load_storeless(request) if answer is _DOWN else loader.load(request))
        if answer is _DOWN:
            self._levels.count_storeless()
            return self._levels.from_l1(key, self._options.changed(options)) or _NOTHING
        yield from self._levels.count_miss(key, revoked=record is not None)
        return _NOTHING

    def _down(self, options: Mapping[str, Any]) -> Answer:
        """Return `_DOWN` while an error of L2 is handled, or reraise it."""
        if self._raises(options):
            raise
        return _DOWN

    def _raises(self, options: Mapping[str, Any]) -> bool:
        """Return whether an outage of L2 is to be raised."""
        return bool(options.get("on_error", self._options.on_error) == "raise")

    def _promote_record(
        self, key: str, record: Record, options: Mapping[str, Any], version: int, moment: int = 0
    ) -> Answer:
        serialize = options.get("l1_serializer", self._serialize) if options else self._serialize
        if record.took:
            early = self._levels.early.seconds(key, record, options.get("early", self._options.early))
            return self._promote(key, record, serialize, version, moment, early), STALE if record.stale else L2
        return self._promote(key, record, serialize, version, moment), STALE if record.stale else L2

    def _promote_checked(
        self,
        key: str,
        record: Record,
        options: Mapping[str, Any],
        version: int,
        callback: Callback | None,
        args: tuple[Any, ...],
    ) -> Steps[Answer | None]:
        """Do the same for a record with tags, or one that may be replaced early; return None if a tag was
        invalidated."""
        moment = self._levels.index.moment
        if record.tags:
            try:
                if not (yield from self._levels.tags.are_current(record.tags)):
                    return None
            except Unavailable:
                return self._down(options)
        answer = self._promote_record(key, record, options, version, moment)
        if callback is not None:
            yield from self._replace_early(key, record, callback, args, options)
        return answer

    def _replace_early(
        self, key: str, record: Record, callback: Callback, args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Steps[None]:
        """Start the callback in the background, if the record is due. L1 has it before, so as not to replace the new
        one."""
        if record.took and self._levels.early.is_due(key, record, options.get("early", self._options.early)):
            yield self._loader.refresh_early(self._loader.request(key, callback, args, options, early=record))

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
            return min(seconds, -SHORTEST)
        return (seconds or SHORTEST) if record.ttl else 0.0

    # --- many keys ---

    def note_hits(self, operations: Sequence[Operation], results: Results) -> Steps[None]:
        """Note the answers from L1 and L2."""
        missing: dict[str, list[int]] = {}
        for position, operation in enumerate(operations):
            answer = self.get_from_l1(operation.key)
            results.note(position, answer)
            if answer is None:
                missing.setdefault(operation.key, []).append(position)
        try:
            l2_records = (yield from self._levels.look_many(missing)) if missing else {}
        except SharedDictError as error:
            l2_records = dict.fromkeys(missing, error)
        for key, l2_record in l2_records.items():
            for position in missing[key]:
                with results.noting_errors(position):
                    options = operations[position].options
                    if not isinstance(l2_record, Unavailable) or self._raises(options):
                        results.note(position, self._promote_one(key, l2_record, options))
                    if isinstance(l2_record, L2Record):
                        operation = operations[position]
                        record = l2_record.record
                        yield from self._replace_early(key, record, operation.callback, operation.args, options)

    def get_many(self, keys: Iterable[Any]) -> Steps[dict[Any, Any]]:
        texts = {key: key_text(key) for key in keys}
        answers = {text: self.get_from_l1(text) for text in texts.values()}
        missing = [text for text, answer in answers.items() if answer is None]
        try:
            l2_records = yield from self._look_many(missing, answers)
            for text in missing:
                if text in l2_records:
                    answers[text] = self._promote_one(text, l2_records[text], {})
                answer = answers[text]
                if answer is None:
                    yield from self._levels.count_miss(text)
                self.count(MISS if answer is None else answer[1])
        except Exception:
            self.counts.errors += 1
            raise
        if missing and not self._breaker.down and self._counter.is_due():
            yield from self._counter.flush()
        by_key = ((key, answers[text]) for key, text in texts.items())
        return {key: answer[0] for key, answer in by_key if answer is not None}

    def _look_many(
        self, missing: Sequence[str], answers: dict[str, Answer | None]
    ) -> Steps[Mapping[str, L2Record | SharedDictError]]:
        """Return the records in L2. While the store is down, replace missing answers by what L1 has, unless the outage
        is to be raised."""
        try:
            return (yield from self._levels.look_many(missing)) if missing else {}
        except Unavailable:
            if self._raises({}):
                raise
            for text in missing:
                self._levels.count_storeless()
                answers[text] = self._levels.from_l1(text, self._options)
            return {}

    def _promote_one(self, key: str, l2_record: L2Record | SharedDictError, options: Mapping[str, Any]) -> Answer:
        if isinstance(l2_record, SharedDictError):
            raise l2_record
        return self._promote_record(key, l2_record.record, options, l2_record.version, l2_record.moment)
