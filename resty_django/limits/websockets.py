"""Limits for WebSockets, as ASGI middleware: simultaneous connections, new connections and messages.

    application = WebSocketLimits(application, connections=20, new_connections="30/m", messages="10/s capacity=20")

It wraps a consumer of Channels, Channels' routing, or any ASGI application; it needs no package besides Django.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import io
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from itertools import groupby
from math import ceil, inf
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest

from resty_django.durations import Duration, parse_duration
from resty_django.sansio import arun
from resty_django.text import logger

from .algorithms.decision import CombinedDecision
from .enforcement import keys
from .enforcement.chosen_rates import KEPT, Rate
from .enforcement.response import Refusal, aannounce, response_to
from .enforcement.settings import request_settings
from .errors import Limited, LimitError
from .functions import buckets_of, count_together, counters_of, turn
from .limiters.base import LOCAL, Limiter, LimiterOptions
from .limiters.combined import acombine
from .limiters.concurrency import Concurrency
from .limiters.rate import TokenBucket
from .overrides.current import current
from .overrides.limits import OverriddenCalls, overridden_calls
from .statistics.catalog import WEBSOCKET, caller
from .statistics.counting import DecisionCounter

log = logger("resty_django.limits")

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[Any]]

ChosenNumber: TypeAlias = Callable[[Any], Any]
"""Receives the `Handshake` and returns a number, a rate or None for no limit. May be a coroutine function."""

POLICY_VIOLATION: Final = 1008
"""The close code (RFC 6455) of a connection that exceeds its limit."""
RENEWALS: Final = 3
"""Renewals of a slot during its lease."""
SHORTEST_LEASE: Final = 1.0
"""Seconds."""
REPORT_PAUSE: Final = 60.0
"""Seconds between two reports of dropped messages of a connection."""
_EXCESS: Final = ("close", "drop", "wait")
_REFUSE_WITH: Final = ("http", "close")


class Handshake(ASGIRequest):
    """The HTTP request that opens a WebSocket.

    It has the attributes of other requests, such as `path`, `headers` and `GET`, the `user` and the `session` of the
    scope if they exist, and the `scope`.
    """

    def __init__(self, scope: Scope) -> None:
        query = scope.get("query_string", b"").decode(errors="replace")
        # Early releases of Django 5.2 take X_Forwarded_For, which proxies let through, for X-Forwarded-For.
        headers = [(name, value) for name, value in scope.get("headers", ()) if b"_" not in name]
        super().__init__({**scope, "method": "GET", "query_string": query, "headers": headers}, io.BytesIO())
        for name in ("user", "session"):
            if name in scope:
                setattr(self, name, scope[name])

    def get_preferred_type(self, media_types: Sequence[str]) -> str:
        """Return the first type: browsers show no page in response to a handshake."""
        return media_types[0]


class WebSocketLimits:
    """ASGI middleware that limits WebSockets. Other scopes, such as "http", are passed on unchanged.

    `connections`: the maximum number of simultaneous connections for each key. `new_connections`: the rate of
    handshakes, such as "30/m", or several, as in "10/s;1000/h". `messages`: the rate of the messages that clients send,
    for all connections of a key together. All rates are token buckets: "10/s capacity=50". Each of the three can
    also be a function of the `Handshake`, called once for each connection, that returns the number or rate, or None for
    no limit. It may be a coroutine function; a plain one runs in a thread.

    `excess`: what happens to a message over the limit. "close": the connection is closed with `close_code`; "drop": the
    application does not receive the message; "wait": the application receives it when its turn comes, and the
    connection is closed if that takes longer than `max_wait`. `refuse_with`: "http" refuses a handshake with the status
    `status` (None: the setting STATUS), or with 403 if the server has no extension `websocket.http.response`; "close"
    accepts it and closes the connection with `close_code`, which scripts in browsers can read. `key`: as in the
    decorators of views, for the `Handshake`; a function may be a coroutine function.

    A connection holds a slot with a `lease`, which is renewed while it is open. So slots of a killed process are free
    after that time. `name`: the name in logs; applications with the same name, key and numbers share their limits
    (default: the name of the application). `store`, `on_error`: as in `LimiterOptions`.

    Raise `TypeError` or `ValueError` for wrong arguments, and `StoreFailed` in a connection if `on_error` is "raise".
    """

    def __init__(
        self,
        application: Application,
        *,
        connections: int | ChosenNumber | None = None,
        new_connections: Rate | ChosenNumber | None = None,
        messages: Rate | ChosenNumber | None = None,
        excess: Literal["close", "drop", "wait"] = "close",
        max_wait: Duration = 10,
        refuse_with: Literal["http", "close"] = "http",
        status: int | None = None,
        close_code: int = POLICY_VIOLATION,
        key: keys.KeySpec | Callable[[Any], Awaitable[object]] = "ip",
        lease: Duration = 60,
        name: str = "",
        store: Any = None,
        on_error: str | None = None,
    ) -> None:
        if not callable(application):
            raise TypeError(f"WebSocketLimits() needs an ASGI application, not {application!r}.")
        if connections is None and new_connections is None and messages is None:
            raise TypeError("WebSocketLimits() has no limit. Pass connections=, new_connections= or messages=.")
        _one_of("excess", excess, _EXCESS)
        _one_of("refuse_with", refuse_with, _REFUSE_WITH)
        if status is not None and not 400 <= status <= 599:
            raise ValueError(f"status must be an error status from 400 to 599, not {status!r}.")
        if close_code not in (POLICY_VIOLATION, 1013) and not 3000 <= close_code <= 4999:
            raise ValueError(f"close_code must be 1008, 1013, or from 3000 to 4999, not {close_code!r}.")
        self._application = application
        self._key = keys.make(key)
        if "view" in re.split(r"[+|]", self._key.text):
            raise ValueError('A WebSocket has no view, so "view" cannot be its key. Use "path".')
        self._key_coroutine: Any = key if iscoroutinefunction(key) else None
        self.name = name or _name_of(application)
        self._prefix = f"websocket:{_digest(self._key.text)}:{self.name}"
        self._store = store
        self._on_error = on_error
        self._lease = parse_duration(lease)
        if self._lease < SHORTEST_LEASE:
            raise ValueError(f"lease must be at least {SHORTEST_LEASE:g} second, not {lease!r}.")
        self._numbers = (connections, new_connections, messages)
        self._location = caller()
        self._limiters = functools.lru_cache(KEPT)(self._make_counted)
        self._make(1, 1, 1)  # raises errors of the options now instead of with the first connection
        self._limiters(*(None if callable(number) else number for number in self._numbers))
        longest = parse_duration(max_wait)
        self.wait = longest if excess == "wait" else 0.0
        self.drops = excess == "drop"
        self.close_code = close_code
        self._status = status
        self._accepts_refused = refuse_with == "close"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self._application(scope, receive, send)
            return
        request = Handshake(scope)
        key = await self._key_of(request)
        if key is None:
            await self._application(scope, receive, send)
            return
        limiters = await self._limiters_for(request)
        if current.active is not None:
            await current.aget()
            calls = overridden_calls(limiters.admitting, limiters.admission_counters, key)
            if calls.blocked is not None:
                count_together(limiters.admission_counters, key, calls.blocked)
                await self._refuse(request, self.refusal(limiters.admitting, key, calls.blocked), receive, send)
                return
            limiters = limiters.overridden(calls)
        slot = _Slot(limiters.slots, limiters.renewed_slots, key) if limiters.slots and limiters.renewed_slots else None
        decision = await self._admit(limiters, key, slot)
        if not decision.allowed:
            await self._refuse(request, self.refusal(limiters.admitting, key, decision), receive, send)
            return
        renewing = asyncio.ensure_future(slot.keep()) if slot is not None else None
        try:
            if limiters.messages:
                connection = _Connection(self, limiters, request, key, receive, send)
                receive, send = connection.receive, connection.send
            await self._application(scope, receive, send)
        finally:
            if slot is not None and renewing is not None:
                renewing.cancel()
                await asyncio.shield(asyncio.ensure_future(slot.release_after(renewing)))

    async def _key_of(self, request: Handshake) -> str | None:
        """Return the key of a handshake, or None if it is exempt."""
        settings = request_settings()
        if settings.exempt is not None and settings.clients.address(request) in settings.exempt:
            return None
        if self._key_coroutine is not None:
            value = await self._key_coroutine(request)
            return None if value is None else keys.plain(value)
        for name, needed in (("user", self._key.needs_user), ("session", self._key.needs_session)):
            if needed and name not in request.scope:
                raise ImproperlyConfigured(
                    f"The key {self._key.text!r} of WebSocketLimits needs the {name} in the scope. "
                    "Place WebSocketLimits inside AuthMiddlewareStack of Channels."
                )
        await keys.load(request, False, self._key.needs_session)
        return self._key.of(request, request.scope.get("url_route", {}).get("kwargs", {}))

    def _make(self, connections: int | None, new_connections: Rate | None, messages: Rate | None) -> _Limiters:
        options = {"store": self._store, "on_error": self._on_error}
        admitting: list[Limiter[Any]] = []
        if new_connections is not None:
            admitting += buckets_of(new_connections, f"{self._prefix}:new_connections", options)
        slots = renewed_slots = None
        if connections is not None:
            own: LimiterOptions = {
                "store": self._store,
                "on_error": self._on_error,
                "prefix": f"{self._prefix}:connections:{connections}:",
                "name": f"{self.name}:connections",
            }
            slots = Concurrency(connections, lease=self._lease, **own)
            own["on_error"] = "raise"
            renewed_slots = Concurrency(connections, lease=self._lease, **own)
            admitting.append(slots)
        buckets = [] if messages is None else buckets_of(messages, f"{self._prefix}:messages", options)
        return _Limiters(admitting, slots, renewed_slots, buckets)

    def _make_counted(self, *numbers: Any) -> _Limiters:
        """Return the limiters with counters of their decisions."""
        limiters = self._make(*numbers)
        return limiters._replace(
            admission_counters=self._counters_of(limiters.admitting),
            message_counters=self._counters_of(limiters.messages),
        )

    def _counters_of(self, limiters: Sequence[Limiter[Any]]) -> list[DecisionCounter]:
        """Return the counters of the decisions of each limiter; several rates of one kind are numbered."""
        counters: list[DecisionCounter] = []
        for label, group in groupby(limiters, _label_of):
            name = f"{self.name}:{label}"
            counters += counters_of(WEBSOCKET, list(group), self._location, name, self._key.roles)
        return counters

    async def _limiters_for(self, request: Handshake) -> _Limiters:
        """Return the limiters with the numbers for a connection. Raise `ValueError` or `TypeError` for wrong ones."""
        chosen = [number for number in self._numbers if callable(number)]
        numbers = [await _result(number, request) if callable(number) else number for number in self._numbers]
        try:
            return self._limiters(*numbers)
        except (ValueError, TypeError) as error:
            names = ", ".join(getattr(function, "__qualname__", repr(function)) for function in chosen)
            raise type(error)(f"A limit that {names} returned cannot be used: {error}") from error

    async def _admit(self, limiters: _Limiters, key: str, slot: _Slot | None) -> CombinedDecision:
        """Decide on a new connection, and take its slot. A slot is released if the task is cancelled meanwhile."""
        if not limiters.admitting:
            return CombinedDecision(True)
        deciding = asyncio.ensure_future(acombine(limiters.admitting, [key] * len(limiters.admitting)))
        try:
            decision = await asyncio.shield(deciding)
        except asyncio.CancelledError:
            if slot is not None:
                await asyncio.shield(asyncio.ensure_future(_release_when_decided(deciding, slot)))
            raise
        if slot is not None:
            slot.token = decision.token
        count_together(limiters.admission_counters, key, decision)
        return decision

    def refusal(self, limiters: Sequence[Limiter[Any]], key: str, decision: CombinedDecision) -> Refusal:
        """Return the refusal for a decision of the limiters."""
        index = decision.refused_by or 0
        refused = decision.decisions[index]
        label = _label_of(limiters[index])
        return Refusal(f"{self.name}:{label}", label, type(limiters[index]), key, refused, self._status)  # type: ignore[arg-type]

    async def _refuse(self, request: Handshake, refusal: Refusal, receive: Receive, send: Send) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        await aannounce(request, refusal)
        scope = request.scope
        if self._accepts_refused:
            await send({"type": "websocket.accept", "subprotocol": next(iter(scope.get("subprotocols") or ()), None)})
            await send(self.closing("Too many connections.", refusal.decision.retry_after))
        elif "websocket.http.response" in (scope.get("extensions") or {}):
            response = response_to(request, refusal)
            response.headers["Content-Length"] = str(len(response.content))
            headers = [(name.lower().encode(), value.encode("latin1")) for name, value in response.items()]
            start = {"type": "websocket.http.response.start", "status": response.status_code, "headers": headers}
            await send(start)
            await send({"type": "websocket.http.response.body", "body": response.content})
        else:
            await send(self.closing("Too many connections.", refusal.decision.retry_after))

    def closing(self, reason: str, retry_after: float) -> Event:
        """Return the event that closes a connection."""
        if 0 < retry_after < inf:
            reason += f" Try again in {ceil(retry_after)} s."
        return {"type": "websocket.close", "code": self.close_code, "reason": reason}


class _Limiters(NamedTuple):
    """The limiters of a connection.

    `admitting`: limiters for a handshake. `slots`: the one among them for simultaneous connections, or None.
    `renewed_slots`: the same, but it raises `StoreFailed`. `messages`: limiters for a message.
    `admission_counters`, `message_counters`: count their decisions.
    """

    admitting: list[Limiter[Any]]
    slots: Concurrency | None
    renewed_slots: Concurrency | None
    messages: list[TokenBucket]
    admission_counters: Sequence[DecisionCounter] = ()
    message_counters: Sequence[DecisionCounter] = ()

    def overridden(self, calls: OverriddenCalls) -> _Limiters:
        """Return the limiters of which those for a handshake have the rates of overrides."""
        slots, renewed = self.slots, self.renewed_slots
        if slots is not None and renewed is not None and slots not in calls.limiters:
            own = [limiter for limiter in calls.limiters if isinstance(limiter, Concurrency)]
            slots, renewed = (own[0], renewed.with_numbers(max=own[0].max)) if own else (None, None)
        return self._replace(
            admitting=calls.limiters, admission_counters=calls.counters, slots=slots, renewed_slots=renewed
        )


class _Slot:
    """The slot of a connection. `token`: identifies it; empty while the connection holds none.

    `limiter` took it; `renewed`, the same limiter that raises `StoreFailed`, renews it.
    """

    def __init__(self, limiter: Concurrency, renewed: Concurrency, key: str) -> None:
        self._limiter = limiter
        self._renewed = renewed
        self._key = key
        self._pause = renewed.numbers.lease / 1000 / RENEWALS
        self.token = ""

    async def keep(self) -> None:
        """Renew the lease until the task is cancelled."""
        while True:
            await asyncio.sleep(self._pause)
            try:
                await self.renew()
            except LimitError as error:
                log.debug("The slot of %s was not renewed: %s", self._key, error)

    async def renew(self) -> None:
        """Renew the lease. If the store lost the slot, or was down when it was to be taken, take another one."""
        if self.token.startswith(LOCAL):
            await self._limiter.arenew(self._key, self.token)
        elif self.token and await self._renewed.arenew(self._key, self.token):
            return
        decision = await self._renewed.ahit(self._key)
        if self.token and not decision.allowed:
            log.warning("%s: a connection of %s lost its slot; no other is free", self._limiter.name, self._key)
        if self.token.startswith(LOCAL):
            await self._limiter.aleaving(self._key, token=self.token)
        self.token = decision.token

    async def release_after(self, renewing: asyncio.Future[None]) -> None:
        """Release the slot when the cancelled renewal has ended."""
        await asyncio.wait([renewing])
        await self.release()

    async def release(self) -> None:
        if not self.token:
            return
        try:
            await self._limiter.aleaving(self._key, token=self.token)
        except LimitError as error:
            log.warning("A slot of %s could not be released: %s", self._key, error)


class _Connection:
    """The `receive` and `send` of a connection whose messages are limited."""

    def __init__(
        self,
        limits: WebSocketLimits,
        limiters: _Limiters,
        request: Handshake,
        key: str,
        receive: Receive,
        send: Send,
    ) -> None:
        self._limits = limits
        self._buckets = limiters.messages
        self._counters = limiters.message_counters
        self._request = request
        self._key = key
        self._receive = receive
        self._send = send
        self._undecided: Event | None = None
        """The message that was received, but neither passed on nor dropped, which survives a cancelled `receive`."""
        self._closed = False
        self._refused = False
        self._report_after = -inf

    async def send(self, event: Event) -> None:
        """Send an event of the application, unless the connection was closed for its messages."""
        if self._refused:
            return
        self._closed = self._closed or event["type"] == "websocket.close"
        await self._send(event)

    async def receive(self) -> Event:
        """Return the next event for the application."""
        limits = self._limits
        while not self._refused:
            event = self._undecided = self._undecided or await self._receive()
            if event["type"] == "websocket.receive":
                try:
                    await arun(turn(self._buckets, self._key, limits.wait, self._counters))
                except Limited as error:
                    await self._exceed(limits.refusal(self._buckets, self._key, error.decision))  # type: ignore[arg-type]
                    continue
            self._undecided = None
            return event
        return {"type": "websocket.disconnect", "code": limits.close_code}

    async def _exceed(self, refusal: Refusal) -> None:
        """Drop the message, or close the connection."""
        self._undecided = None
        self._refused = not self._limits.drops
        if time.monotonic() >= self._report_after:
            self._report_after = time.monotonic() + REPORT_PAUSE
            await aannounce(self._request, refusal)
        if not self._refused:
            await asyncio.sleep(0)  # a client that floods the connection must not stop the other tasks
        elif not self._closed:
            await self._send(self._limits.closing("Too many messages.", refusal.decision.retry_after))


def _one_of(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def _label_of(limiter: Limiter[Any]) -> str:
    return limiter.name.rpartition(":")[2]


def _name_of(application: Any) -> str:
    named = application if hasattr(application, "__qualname__") else type(application)
    return f"{named.__module__}.{named.__qualname__}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


async def _result(function: ChosenNumber, request: Handshake) -> Any:
    if iscoroutinefunction(function):
        return await function(request)
    return await sync_to_async(function)(request)


async def _release_when_decided(deciding: asyncio.Future[CombinedDecision], slot: _Slot) -> None:
    """Wait for the decision on a connection whose task was cancelled, and release its slot."""
    await asyncio.wait([deciding])
    if not deciding.cancelled() and deciding.exception() is None:
        slot.token = deciding.result().token
        await slot.release()
