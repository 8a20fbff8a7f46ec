"""The turn of an outgoing call, and the pause for which a service has asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from math import inf
from typing import Any, Final

from resty_django.conf import conf
from resty_django.durations import Duration, parse_duration
from resty_django.sansio import Step, Steps
from resty_django.shdict import SharedDict, SharedDictError, shdicts
from resty_django.text import logger

from ..algorithms.decision import Decision
from ..enforcement.chosen_rates import Rate
from ..enforcement.key_kinds import roles_of, stored_key
from ..errors import Limited
from ..functions import buckets_of, counters_of, turn
from ..limiters.validation import whole
from ..limiters.waiting import Wait, counter_of_calls
from ..refused_calls import announcing
from ..statistics.catalog import OUTGOING, caller

log = logger("resty_django.limits")

PAUSE_STATUSES: Final = (429, 503)
"""Statuses with which a service asks for a pause, if they have the header `Retry-After`."""
LONGEST_PAUSE: Final = 86_400.0
"""Seconds; a service that asks for a longer pause is asked again after that time."""


class OutgoingLimit:
    """The limit of the calls to a service.

    `rate`: one or several rates, as in `resty_django.limits.limited`. `key`: a function of the request that returns
    the key under which calls are counted together (None: the host). `key_kind`: "user" or "address" if the keys are IDs
    of users or addresses, so that their overrides apply. `wait`: the seconds, or a duration such as "30s",
    that a call may wait, including pauses (None: indefinitely). `max_waiting`: the maximum number of calls that wait in
    a process at a time (None: the setting MAX_WAITING_CALLS, which also counts the calls of functions). `retries`: how
    often a call is sent again after a pause that the service has asked for; only if its body can be sent again.
    `name`: limits with the same name and rate are shared. `store`, `on_error`: as in `LimiterOptions`; the store must
    be the name of a shared dictionary.

    Raise `TypeError` or `ValueError`.
    """

    def __init__(
        self,
        rate: Rate,
        *,
        key: Callable[[Any], object] | None = None,
        key_kind: str | None = None,
        wait: Duration | None = 0,
        max_waiting: int | None = None,
        retries: int = 1,
        name: str = "outgoing",
        store: str | None = None,
        on_error: str | None = None,
    ) -> None:
        if store is not None and not isinstance(store, str):
            raise TypeError(f"store must be the name of a shared dictionary, not {store!r}.")
        whole("retries", retries)
        if retries < 0:
            raise ValueError(f"retries must be at least 0, not {retries!r}.")
        roles = roles_of(key_kind, "outgoing calls")
        if roles and key is None:
            raise TypeError("key_kind= describes keys, so it needs key=, a function of the request.")
        self._buckets = buckets_of(rate, name, {"store": store, "on_error": on_error})
        self._counters = counters_of(OUTGOING, self._buckets, caller(), roles=roles)
        self._key_of = key
        self._key_kind = key_kind
        self._wait = inf if wait is None else parse_duration(wait)
        self._waiting = counter_of_calls(max_waiting, name)
        self._retries = retries
        self._name = name
        self._store = store

    def key(self, request: Any, host: str) -> str:
        """Return the key of a request to a host."""
        return host if self._key_of is None else stored_key(self._key_of(request), self._key_kind)

    def sending(self, key: str, send: Step, again: bool, close: Callable[[Any], Step]) -> Steps[Any]:
        """Send when it is the call's turn, and again after a pause that the service asks for. Return the response.

        `send`: sends the request. `again`: whether it may be sent more than once. `close`: returns the step that closes
        a response whose request is sent again. Raise `Limited`.
        """
        steps = self._sending(key, send, again, close)
        return announcing(steps, OUTGOING, self._name, type(self._buckets[0]), key)

    def _sending(self, key: str, send: Step, again: bool, close: Callable[[Any], Step]) -> Steps[Any]:
        end = time.monotonic() + self._wait
        retries = self._retries if again else 0
        with self._waiting.wait() as waiting:
            while True:
                pause = yield from self._remaining(key)
                if pause > 0:
                    yield from self._sleep(key, pause, end, waiting)
                yield from turn(self._buckets, key, max(0.0, end - time.monotonic()), self._counters, waiting)
                waiting.leave()
                response = yield send
                pause = pause_of(response.status_code, response.headers.get("Retry-After"))
                if pause <= 0:
                    return response
                yield from self._remember(key, pause)
                if retries == 0 or time.monotonic() + pause > end or not waiting.enter():
                    return response
                retries -= 1
                yield close(response)

    def _sleep(self, key: str, pause: float, end: float, waiting: Wait) -> Steps[None]:
        """Sleep for a pause of the service. A refusal is counted as one of the limit."""
        too_long = time.monotonic() + pause > end
        if too_long or not waiting.enter():
            decision = Decision.refused(limit=self._buckets[0].shown_limit, retry_after=pause)
            self._counters[0].record(key, decision)
            raise Limited(decision) if too_long else waiting.refusal(decision)
        yield Step(time.sleep, asyncio.sleep, (pause,))

    # --- pauses, for all processes ---

    @property
    def _pauses(self) -> SharedDict:
        return shdicts[self._store or conf.limits.store]

    def _remaining(self, key: str) -> Steps[float]:
        """Return the seconds that remain of a pause. A store that is down has no pauses."""
        try:
            end = yield Step(self._pauses.get, self._pauses.aget, (self._name_of(key),))
        except SharedDictError as error:
            log.debug("The pause of %s is unknown: %s", key, error)
            return 0.0
        return max(0.0, min(end - time.time(), LONGEST_PAUSE)) if isinstance(end, int | float) else 0.0

    def _remember(self, key: str, pause: float) -> Steps[None]:
        log.warning("%s asks for a pause of %.0f s", key, pause)
        arguments = (self._name_of(key), time.time() + pause, pause)
        try:
            yield Step(self._pauses.set, self._pauses.aset, arguments)
        except SharedDictError as error:
            log.debug("The pause of %s was not stored: %s", key, error)

    def _name_of(self, key: str) -> str:
        return f"pause:{self._name}:{key}"


def pause_of(status: int, retry_after: str | None) -> float:
    """Return the seconds for which a response asks to pause: 0 if it does not, or if the header cannot be read."""
    if status not in PAUSE_STATUSES or not retry_after:
        return 0.0
    text = retry_after.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 15:
        seconds = float(text)
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(0.0, seconds), LONGEST_PAUSE)
