"""Recordings of the requests of policies in the last hour: a changed policy is tested with them before it is saved, and
the search for a key shows them. With the setting RECORD_ALL_LIMITS, other limits are recorded, too.

A process keeps the time, the key and the outcome of each decision in memory, with the method and the route of the
request, and for concurrency its duration. Every few seconds, the background thread adds them to the shared dictionary
of the limits: one log for each policy and ten minutes. A log has at most `MOST` events, and the logs of a few policies
at most an eighth of the dictionary; with more requests, only some keys are kept.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from time import time_ns
from typing import Any, Final, NamedTuple, TypeAlias

from resty_django.conf import conf, on_change
from resty_django.conf.schema import SETTING
from resty_django.forks import after_fork
from resty_django.minute_series.series import Pause
from resty_django.shdict import Change, Keep, SharedDict, SharedDictError, shdicts
from resty_django.text import logger

from ..algorithms.decision import Decision
from ..enforcement.keys import plain
from ..enforcement.methods import METHODS
from .background import background
from .events import (
    DEEPEST,
    DELAYED,
    PASSED,
    REFUSED,
    SHADOWED,
    UNKNOWN,
    Event,
    EventLog,
    Request,
    delay_code,
    is_sampled,
    read_log,
    sampled,
)
from .reporter import LONGEST_KEY, OWN, SHORTEST_DELAY
from .shared_log import change_log

log = logger("resty_django.limits")

PERIOD: Final = 5.0
"""Seconds between two flushes."""
LONGEST_PAUSE: Final = 30.0
"""The maximum number of seconds between two attempts while the store does not answer."""
SPAN: Final = 3600_000
"""Milliseconds that a recording covers."""
SLICE: Final = 600_000
"""Milliseconds of a log."""
SLICES: Final = SPAN // SLICE + 1
"""The number of logs of a recording: the first one and the last one are partly outside of the hour."""
LIFE: Final = SLICES * SLICE / 1000
"""Seconds for which a log is kept after its last event."""
MOST: Final = 14_000
"""The maximum number of events of a log."""
MOST_EVENTS: Final = SLICES * MOST
"""The maximum number of events of a recording."""
MOST_BUFFERED: Final = 10_000
"""The number of events of a policy in memory above which a process records only some keys."""
SMALLEST_STEP: Final = 6
"""A full buffer has room for at least `MOST_BUFFERED` / 2**6 more events before the share of the keys is halved."""
MOST_NAMES: Final = 64
"""The maximum number of recordings at a time; further policies are not recorded."""
FEW_NAMES: Final = 8
SHARE_OF_STORE: Final = 8
"""The logs of `FEW_NAMES` recordings have at most 1/8 of the capacity of the dictionary.

Each further one has 1/n of that, where n is their number; so `MOST_NAMES` have at most 1 + ln(64 / 8) times that.
"""
MOST_BYTES: Final = 3 * 1024 * 1024
"""The maximum number of bytes of the logs of `FEW_NAMES` recordings."""
NAMES: Final = f"{OWN}recordings"
LONGEST_ROUTE: Final = 200

Buffered: TypeAlias = tuple[int, str, int, str | None, str, int]
"""Nanoseconds, key, outcome, method, route and milliseconds of a request."""


def recording_of_limit(series: str) -> str:
    """Return the name of the recording of a limit that is not a policy. `series`: its name in the statistics."""
    return f"limit:{series}"


def with_tier(tier: str, key: str) -> str:
    """Return the recorded key of a request that a tier's rate has decided. Tiers have no line breaks."""
    return f"{tier}\n{key}"


def tier_and_key(recorded: str) -> tuple[str, str]:
    """Return the tier ("": none) and the key of a recorded key."""
    tier, _, key = recorded.rpartition("\n")
    return tier, key


class Recording(NamedTuple):
    """The recorded requests of a policy in the last hour, in the order of their times.

    `level`: see `resty_django.limits.statistics.events`. `tier_and_key` splits the keys of the events.
    """

    requests: list[Request]
    level: int

    @property
    def events(self) -> list[Event]:
        """The requests without their targets and durations."""
        return [request[:3] for request in self.requests]

    @property
    def share(self) -> float:
        """The share of the keys that were recorded: 1, 1/2, 1/4 and so on."""
        return 0.5**self.level


class Buffer:
    """Events of one policy that are not flushed yet.

    `level`: the sampling of new events. `level_before`: the sampling before the last flush, which
    applies to some events that were added during it. `room`: the number of events at which something has to be done.
    While `level` is 0, and there are fewer events than that, events of short keys may be appended without `record`.
    """

    __slots__ = ("events", "level", "level_before", "room")

    def __init__(self) -> None:
        self.events: deque[Buffered] = deque()
        self.level = 0
        self.level_before = 0
        self.room = MOST_BUFFERED // 2


class RequestRecorder:
    """Records the requests of policies in this process, and reads the recordings of all processes.

    `dictionary`: returns the shared dictionary. `clock`: returns nanoseconds since the epoch. `automatic`: whether the
    background thread flushes every few seconds (otherwise only `flush` does).
    """

    def __init__(
        self, dictionary: Callable[[], SharedDict], clock: Callable[[], int] = time_ns, automatic: bool = False
    ) -> None:
        self._dictionary = dictionary
        self._clock = clock
        self.buffers: dict[str, Buffer] = {}
        """The buffers by name."""
        self._listed: dict[str, tuple[int, int]] = {}
        """The last slice for which each name was listed, and the maximum bytes of its logs (0: not recorded)."""
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._failing = False
        self.records_limits = True
        """Whether the requests of limits that are not policies may have to be recorded."""
        self._pause = Pause(LONGEST_PAUSE)
        self._task = background.add(self._work) if automatic else None

    # --- recording --------------------------------------------------------------------------------------------------

    def record(
        self,
        name: str,
        key: str,
        decision: Decision,
        shadow: bool = False,
        request: Any = None,
        ran: tuple[int, int] | None = None,
    ) -> None:
        """Record a request. Takes less than a microsecond.

        `shadow`: the decision was not enforced. `request`: its method and route are recorded. `ran`: the time of the
        decision, in nanoseconds since the epoch, and the milliseconds for which the request ran after it.
        """
        buffer = self.buffers.get(name)
        if buffer is None:
            buffer = self._start(name)
            if buffer is None:
                return
        if len(key) > LONGEST_KEY:
            key = plain(key)
        if buffer.level and not is_sampled(key, buffer.level):
            return
        if len(buffer.events) >= buffer.room:
            self._make_room(buffer)
        at, duration = (self._clock(), UNKNOWN) if ran is None else ran
        if not decision.allowed:
            outcome = SHADOWED if shadow else REFUSED
        elif decision.delay < SHORTEST_DELAY:
            outcome = PASSED
        else:
            outcome = DELAYED
            if ran is None:
                duration = delay_code(decision.delay)
        match = getattr(request, "resolver_match", None)
        if match is None:
            buffer.events.append((at, key, outcome, None, "", duration))
        else:
            buffer.events.append((at, key, outcome, request.method, match.route, duration))

    def record_limit(
        self, series: str, key: str, decision: Decision, shadow: bool = False, request: Any = None
    ) -> None:
        """Record a request of a limit that is not a policy, if the setting RECORD_ALL_LIMITS says so.

        Call it while `records_limits` is true, so that other sites pay nothing for it.
        """
        if conf.limits.record_all_limits:
            self.record(recording_of_limit(series), key, decision, shadow, request)
        else:
            self.records_limits = False

    def _start(self, name: str) -> Buffer | None:
        with self._lock:
            if len(self.buffers) >= MOST_NAMES:
                self.buffers = {name: buffer for name, buffer in self.buffers.items() if buffer.events}
            if len(self.buffers) >= MOST_NAMES:
                return None
            buffer = self.buffers.setdefault(name, Buffer())
        if self._task is not None:
            background.run_soon(self._task, PERIOD)
        return buffer

    def _make_room(self, buffer: Buffer) -> None:
        """Flush soon. If the buffer is full, record half of the keys from now on."""
        if self._task is not None:
            background.run_soon(self._task)
        if buffer.room >= MOST_BUFFERED and buffer.level < DEEPEST:
            buffer.level += 1
        buffer.room = max(MOST_BUFFERED, buffer.room + (MOST_BUFFERED >> min(buffer.level, SMALLEST_STEP)))

    # --- flushing ---------------------------------------------------------------------------------------------------

    def flush(self) -> bool:
        """Add the events of this process to the recordings. If the store is down, keep them and return False."""
        with self._flushing:
            try:
                for name, buffer in list(self.buffers.items()):
                    self._flush(name, buffer)
            except SharedDictError as error:
                if not self._failing:
                    log.warning("The recorded requests of limits could not be flushed and are kept: %s", error)
                self._failing = True
                return False
            self._failing = False
            return True

    def _flush(self, name: str, buffer: Buffer) -> None:
        taken = [buffer.events.popleft() for _ in range(len(buffer.events))]
        if not taken:
            return
        level = max(buffer.level, buffer.level_before)
        try:
            remaining = self._write(name, sampled(taken, level), level)
        except SharedDictError:
            buffer.events.extendleft(sampled(taken, level))
            buffer.room = max(MOST_BUFFERED, len(buffer.events))
            raise
        buffer.level_before, buffer.level = buffer.level, 0
        buffer.room = MOST_BUFFERED // 2
        buffer.events.extendleft(remaining)

    def _write(self, name: str, taken: list[Buffered], level: int) -> list[Buffered]:
        """Write events of the last hour, and return those that have to be written later, with nanoseconds."""
        dictionary, oldest = self._dictionary(), self._now() - SPAN
        slices: dict[int, list[Buffered]] = {}
        for event in taken:
            at = event[0] // 1_000_000
            if at >= oldest:
                slices.setdefault(at // SLICE, []).append(event)
        remaining: list[Buffered] = []
        for number, part in slices.items():
            most_bytes = self._list(dictionary, name, number)
            if most_bytes:
                events = [_request(*event) for event in part]
                add = partial(self._added, dictionary, name, number, events, level, most_bytes)
                if not change_log(dictionary, _log_key(name, number), add, LIFE):
                    remaining += part
        return remaining

    @staticmethod
    def _added(
        dictionary: SharedDict,
        name: str,
        number: int,
        events: list[Request],
        level: int,
        most_bytes: int,
        stored: EventLog,
    ) -> EventLog:
        if not stored.blocks:  # a new log: it will probably have as many events as the one before
            before = read_log(dictionary.get(_log_key(name, number - 1)))
            stored = EventLog(max(stored.level, before.level - 1))
        return stored.added(events, level, MOST, most_bytes)

    def _list(self, dictionary: SharedDict, name: str, number: int) -> int:
        """List the recording, and return the maximum number of bytes of a log; 0 if there are too many recordings."""
        listed, most_bytes = self._listed.get(name, (-1, 0))
        if listed != number:
            names = dictionary.update(NAMES, partial(_with_name, name, number))
            most_bytes = 0
            if names:
                total = min((dictionary.capacity() or MOST_BYTES * SHARE_OF_STORE) // SHARE_OF_STORE, MOST_BYTES)
                most_bytes = total // (SLICES * max(FEW_NAMES, names))
            else:
                log.info("The requests of %r are not recorded: more than %d policies have requests", name, MOST_NAMES)
            if len(self._listed) > MOST_NAMES:
                self._listed.clear()
            self._listed[name] = number, most_bytes
        return most_bytes

    def _work(self) -> float:
        pause = self._pause.after(self.flush())
        return max(PERIOD, pause)

    # --- reading; call `flush` first to include the requests of this process ----------------------------------------

    def read(self, name: str) -> Recording:
        """Return a recording, which is empty if there is none. Raise `SharedDictError`."""
        dictionary, now = self._dictionary(), self._now()
        last = now // SLICE
        logs = [read_log(dictionary.get(_log_key(name, last - back))) for back in range(SLICES)]
        level = max(stored.level for stored in logs)
        events = sampled((event for stored in logs for event in stored.requests()), level)
        return Recording(sorted(event for event in events if event.time >= now - SPAN), level)

    def read_keys(self, name: str, matches: Callable[[str], bool], texts: Collection[str]) -> Recording:
        """Return the recorded requests of matching keys. Raise `SharedDictError`. Takes less time than `read`.

        `matches`: receives a key without its tier. `texts`: each matching key contains one of them. If the parts of the
        hour have different shares of the keys, some requests of a key may be missing.
        """

        def matches_key(recorded: str) -> bool:
            return matches(tier_and_key(recorded)[1])

        dictionary, now = self._dictionary(), self._now()
        logs = [read_log(dictionary.get(_log_key(name, now // SLICE - back))) for back in range(SLICES)]
        requests = [request for stored in logs for request in stored.of_keys(matches_key, texts)]
        recent = [request for request in requests if request.time >= now - SPAN]
        return Recording(sorted(recent), max(stored.level for stored in logs))

    def _now(self) -> int:
        return self._clock() // 1_000_000

    def reset(self) -> None:
        """Discard all unflushed events of this process, as if it had just started."""
        with self._flushing:
            self.buffers = {}
            self._listed = {}

    def after_fork(self) -> None:
        """Discard the events of the parent, which flushes them itself."""
        self.buffers = {}
        self._listed = {}
        self._lock = threading.Lock()
        self._flushing = threading.Lock()


def _request(at: int, key: str, outcome: int, method: str | None, route: str, duration: int) -> Request:
    """Return an event as it is stored: without a method that a client invented, and without a very long route."""
    target = f"{method} {route}" if method in METHODS and len(route) <= LONGEST_ROUTE else ""
    return Request(at // 1_000_000, key, outcome, target, duration)


def _log_key(name: str, number: int) -> str:
    return f"{OWN}recording:{number}:{name}"


def _names(stored: Any) -> dict[str, int]:
    """Return the names of recordings, and the slice in which each was last listed."""
    return stored if isinstance(stored, dict) else {}


def _with_name(name: str, number: int, stored: Any) -> Change | Keep:
    """List a name, without those that have expired. The result is the number of names, or 0 if there are too many."""
    names = {other: last for other, last in _names(stored).items() if last > number - SLICES - 1}
    if name not in names and len(names) >= MOST_NAMES:
        return Keep(0)
    names[name] = max(number, names.get(name, number))
    return Change(names, LIFE + SLICE / 1000, len(names))


recorder: Final = RequestRecorder(lambda: shdicts[conf.limits.store], automatic=True)
"""The recordings of this site."""


def _forget_settings() -> None:
    recorder.records_limits = True


on_change(_forget_settings, SETTING)


def _at_exit() -> None:
    try:
        recorder.flush()
    except Exception as error:  # wrong settings, or a process that is shutting down
        log.debug("The last recorded requests of limits are lost: %s", error)


after_fork(recorder.after_fork)
atexit.register(_at_exit)
