"""Limits of WebSockets, through the ASGI protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from resty_django.limits import Concurrency, TokenBucket, request_refused, websockets
from resty_django.limits.erasing import erase
from resty_django.limits.stores import store_of
from resty_django.limits.testing import frozen_limits, no_limits
from resty_django.limits.websockets import WebSocketLimits
from resty_django.shdict import shdicts
from resty_django.shdict.redis import RedisDict
from tests import servers
from tests.servers import Server

from .websocket_tools import SECONDS, Socket, echo, is_accepted

pytestmark = pytest.mark.usefixtures("empty_limits")

LEASE = 30
HTTP = {"extensions": {"websocket.http.response": {}}}


# --- connections -------------------------------------------------------------------------------------------------


async def test_simultaneous_connections(limits_store: str) -> None:
    application = WebSocketLimits(echo, connections=2)
    async with Socket(application) as first, Socket(application) as second:
        assert await first.accepted()
        assert await second.accepted()
        assert await is_accepted(application, ip="192.0.2.2")
        async with Socket(application) as third:
            closing = await third.next()
            assert closing == {
                "type": "websocket.close",
                "code": 1008,
                "reason": "Too many connections. Try again in 1 s.",
            }
        await first.leave()
        assert await is_accepted(application)
        first.write("left already")
    assert await is_accepted(application)


async def test_new_connections_per_time(limits_store: str) -> None:
    application = WebSocketLimits(echo, new_connections="2/h;3/d", messages="1/s")
    assert [await is_accepted(application) for _ in range(3)] == [True, True, False]
    with frozen_limits() as clock:
        assert [await is_accepted(application) for _ in range(3)] == [True, True, False]
        clock.tick(1800)
        assert [await is_accepted(application) for _ in range(2)] == [True, False]
        clock.tick(1800)
        assert not await is_accepted(application)
    with no_limits():
        assert await is_accepted(application)


async def test_a_handshake_that_one_limit_refuses_counts_for_none(limits_store: str) -> None:
    application = WebSocketLimits(echo, connections=1, new_connections="2/h")
    async with Socket(application) as socket:
        assert await socket.accepted()
        assert not await is_accepted(application)
    assert [await is_accepted(application) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("failure", [RuntimeError, asyncio.CancelledError])
async def test_a_failed_connection_frees_its_slot(limits_store: str, failure: type[BaseException]) -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise failure

    for _ in range(3):
        with pytest.raises(failure):
            await WebSocketLimits(fails, connections=1)({"type": "websocket", "path": "/"}, None, None)


async def test_a_cancelled_connection_frees_its_slot(limits_store: str) -> None:
    application = WebSocketLimits(echo, connections=1)
    for _ in range(3):
        socket = await Socket(application).__aenter__()
        assert await socket.accepted()
        socket.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await socket.task


async def test_a_handshake_cancelled_at_any_time_frees_its_slot(limits_store: str) -> None:
    application = WebSocketLimits(echo, connections=1)
    for turns in range(12):
        socket = await Socket(application).__aenter__()
        for _ in range(turns):
            await asyncio.sleep(0)
        socket.task.cancel()
        with suppress(asyncio.CancelledError):
            await socket.task
        assert await is_accepted(application), turns


# --- leases ------------------------------------------------------------------------------------------------------


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[bool]:
    """The results of the renewals of leases, each once it is known. There are many during a lease."""
    results: asyncio.Queue[bool] = asyncio.Queue()
    renew = Concurrency.arenew

    async def arenew(self: Concurrency, key: object, token: str) -> bool:
        renewed = await renew(self, key, token)
        results.put_nowait(renewed)
        return renewed

    monkeypatch.setattr(Concurrency, "arenew", arenew)
    monkeypatch.setattr(websockets, "RENEWALS", LEASE / 0.2)
    return results


async def renewed(renewals: asyncio.Queue[bool], result: bool = True) -> None:
    """Wait for a renewal that begins from now on."""
    while not renewals.empty():
        renewals.get_nowait()
    while await asyncio.wait_for(renewals.get(), SECONDS) is not result:
        pass


async def test_an_open_connection_renews_its_lease(renewals: asyncio.Queue[bool]) -> None:
    with frozen_limits() as clock:
        application = WebSocketLimits(echo, connections=1, lease=LEASE)
        async with Socket(application) as socket:
            assert await socket.accepted()
            for _ in range(3):
                clock.tick(LEASE - 1)
                await renewed(renewals)
                assert not await is_accepted(application)
        assert await is_accepted(application)


async def test_a_connection_whose_slot_was_lost_takes_another(renewals: asyncio.Queue[bool]) -> None:
    application = WebSocketLimits(echo, connections=1, lease=LEASE)
    async with Socket(application) as socket:
        assert await socket.accepted()
        shdicts["limits"].flush_all()
        assert await asyncio.wait_for(renewals.get(), SECONDS) is False
        await renewed(renewals)
        assert not await is_accepted(application)
    assert await is_accepted(application)


async def test_a_lost_slot_that_another_connection_took(
    renewals: asyncio.Queue[bool], caplog: pytest.LogCaptureFixture
) -> None:
    application = WebSocketLimits(echo, connections=1, lease=LEASE, name="chat")
    async with Socket(application) as first:
        assert await first.accepted()
        with frozen_limits() as clock:
            async with Socket(application) as second:
                assert await second.accepted()
                clock.tick(1)
                await renewed(renewals, False)
                await renewed(renewals)
                first.write("still open")
                assert await first.read() == "still open"
            assert "chat:connections: a connection of 192.0.2.1 lost its slot; no other is free" in caplog.text


# --- refusals ----------------------------------------------------------------------------------------------------


async def test_a_refused_handshake_gets_an_http_response() -> None:
    application = WebSocketLimits(echo, new_connections="1/h")
    assert await is_accepted(application)
    async with Socket(application, headers=[("Accept", "text/html")], **HTTP) as socket:
        start, body = await socket.next(), await socket.next()
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 429)
    headers = dict(start["headers"])
    assert 3590 <= int(headers[b"retry-after"]) <= 3600
    assert headers[b"content-type"] == b"application/problem+json"
    assert int(headers[b"content-length"]) == len(body["body"])
    assert json.loads(body["body"])["violated-policies"] == ["new_connections"]
    assert body["type"] == "websocket.http.response.body"


async def test_the_status_of_a_refused_handshake() -> None:
    application = WebSocketLimits(echo, connections=1, status=503)
    async with Socket(application) as first, Socket(application, **HTTP) as second:
        assert await first.accepted()
        assert (await second.next())["status"] == 503


async def test_a_refused_handshake_that_scripts_can_see() -> None:
    application = WebSocketLimits(echo, new_connections="1/h", refuse_with="close", close_code=4429)
    assert await is_accepted(application)
    async with Socket(application, subprotocols=["v2", "v1"], **HTTP) as socket:
        assert await socket.next() == {"type": "websocket.accept", "subprotocol": "v2"}
        closing = await socket.next()
        assert (closing["type"], closing["code"]) == ("websocket.close", 4429)
        assert closing["reason"].startswith("Too many connections. Try again in ")


async def test_refusals_are_logged_and_signalled(caplog: pytest.LogCaptureFixture) -> None:
    signals: list[Any] = []

    def on_refusal(sender: Any, request: Any, name: str, key: str, **named: Any) -> None:
        signals.append((sender, request.path, request.headers["X-Client"], name, key))

    request_refused.connect(on_refusal)
    try:
        application = WebSocketLimits(echo, connections=1, messages="1/h", name="chat")
        async with Socket(application, headers=[("X-Client", "7")]) as first:
            async with Socket(application, headers=[("X-Client", "8")]) as second:
                assert (await second.next())["type"] == "websocket.close"
            first.write("one", "two")
            assert await first.accepted()
            assert await first.read() == "one"
            assert (await first.next())["type"] == "websocket.close"
    finally:
        request_refused.disconnect(on_refusal)
    assert signals == [
        (Concurrency, "/chat/", "8", "chat:connections", "192.0.2.1"),
        (TokenBucket, "/chat/", "7", "chat:messages", "192.0.2.1"),
    ]
    assert "refused by chat:connections: GET /chat/ of 192.0.2.1" in caplog.text


# --- messages ----------------------------------------------------------------------------------------------------


async def test_too_many_messages_close_the_connection(limits_store: str) -> None:
    disconnects: list[Any] = []

    async def stubborn(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": event["text"]})
        disconnects.append((event, await receive()))
        await send({"type": "websocket.send", "text": "too late"})
        await send({"type": "websocket.close"})

    application = WebSocketLimits(stubborn, messages="2/h", connections=9)
    async with Socket(application) as socket:
        assert await socket.accepted()
        socket.write("one", "two", "three", "four")
        assert [await socket.read(), await socket.read()] == ["one", "two"]
        closing = await socket.next()
        assert (closing["type"], closing["code"]) == ("websocket.close", 1008)
        assert closing["reason"].startswith("Too many messages. Try again in ")
        await asyncio.wait_for(socket.task, SECONDS)
        assert socket.is_silent
    assert disconnects == [({"type": "websocket.disconnect", "code": 1008},) * 2]
    async with Socket(application) as socket:  # all connections of a key are counted together
        assert await socket.accepted()
        socket.write("five")
        assert (await socket.next())["type"] == "websocket.close"


async def test_too_many_messages_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    with frozen_limits() as clock:
        async with Socket(WebSocketLimits(echo, messages="2/h", excess="drop")) as socket:
            assert await socket.accepted()
            socket.write("one", "two", "three", "four")
            assert [await socket.read(), await socket.read()] == ["one", "two"]
            while not socket.events.empty():
                await asyncio.sleep(0)
            clock.tick(1800)
            socket.write("five")
            assert await socket.read() == "five"
    assert caplog.text.count("refused by") == 1


async def test_messages_wait_for_their_turn(limits_store: str) -> None:
    application = WebSocketLimits(echo, messages="50/s capacity=1", excess="wait", max_wait="1min")
    words = [str(number) for number in range(10)]
    loop = asyncio.get_running_loop()
    async with Socket(application) as socket:
        assert await socket.accepted()
        start = loop.time()
        socket.write(*words)
        assert [await socket.read() for _ in words] == words
        assert loop.time() - start >= 0.17


async def test_a_message_that_would_wait_for_too_long_closes_the_connection() -> None:
    async with Socket(WebSocketLimits(echo, messages="1/h", excess="wait")) as socket:
        assert await socket.accepted()
        socket.write("one", "two")
        assert await socket.read() == "one"
        assert (await socket.next())["code"] == 1008


async def test_a_cancelled_receive_loses_no_message() -> None:
    async def impatient(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while True:
            try:
                event = await asyncio.wait_for(receive(), 0.01)
            except TimeoutError:
                continue
            if event["type"] == "websocket.disconnect":
                return
            await send({"type": "websocket.send", "text": event["text"]})

    application = WebSocketLimits(impatient, messages="10/s capacity=1", excess="wait", max_wait=60)
    async with Socket(application) as socket:
        assert await socket.accepted()
        socket.write("one", "two", "three")
        assert [await socket.read() for _ in range(3)] == ["one", "two", "three"]


async def test_a_connection_that_the_application_closed_is_not_closed_again() -> None:
    async def closing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 1000})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async with Socket(WebSocketLimits(closing, messages="1/h")) as socket:
        assert await socket.accepted()
        socket.write("one", "two")
        assert (await socket.next())["code"] == 1000
        await asyncio.wait_for(socket.task, SECONDS)
        assert socket.is_silent


# --- limits per customer -----------------------------------------------------------------------------------------


def plan_of(request: Any) -> str:
    return str(request.headers.get("X-Plan", "free"))


async def rate_of(request: Any) -> str | None:
    await asyncio.sleep(0)
    return {"free": "1/h", "pro": "2/h;9/d"}.get(plan_of(request))


async def test_numbers_per_customer(limits_store: str) -> None:
    def connections_of(request: Any) -> int | None:
        return {"free": 1, "pro": 2}.get(plan_of(request))

    application = WebSocketLimits(echo, connections=connections_of, messages=rate_of)

    async def fits(plan: str) -> tuple[int, int]:
        """How many of three connections are accepted, and how many of three messages come back."""
        headers = [("X-Plan", plan)]
        async with AsyncExitStack() as opened:
            first = await opened.enter_async_context(Socket(application, headers=headers))
            accepted = [await first.accepted()]  # before the others, which would compete with it for its slot
            for _ in range(2):
                accepted.append(
                    await (await opened.enter_async_context(Socket(application, headers=headers))).accepted()
                )
            first.write("one", "two", "three")
            events = [await first.next()]
            while events[-1]["type"] == "websocket.send" and len(events) < 3:
                events.append(await first.next())
            return sum(accepted), sum(event["type"] == "websocket.send" for event in events)

    assert [await fits(plan) for plan in ("free", "pro", "staff")] == [(1, 1), (2, 2), (3, 3)]


async def test_new_connections_per_customer() -> None:
    application = WebSocketLimits(echo, new_connections=rate_of)
    for plan, accepted in (("free", [True, False, False]), ("pro", [True, True, False]), ("staff", [True] * 3)):
        assert [await is_accepted(application, headers=[("X-Plan", plan)]) for _ in range(3)] == accepted


@pytest.mark.parametrize(("value", "error"), [("many", ValueError), (True, TypeError)])
async def test_a_function_that_returns_no_rate(value: Any, error: type[Exception]) -> None:
    def wrong_rate(request: Any) -> Any:
        return value

    with pytest.raises(error, match=r"A limit that .*wrong_rate returned cannot be used: "):
        await is_accepted(WebSocketLimits(echo, messages=wrong_rate))


# --- keys --------------------------------------------------------------------------------------------------------


def user(pk: int) -> Any:
    return SimpleNamespace(pk=pk, is_authenticated=True)


def room_of(request: Any) -> str | None:
    return request.GET.get("room")  # type: ignore[no-any-return]


async def team_of(request: Any) -> str | None:
    await asyncio.sleep(0)
    return request.headers.get("X-Team")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        ("ip", {"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}),
        ("ip", {"ip": "2001:db8::1"}, {"ip": "2001:db8:0:1::1"}),
        ("user", {"user": user(1)}, {"user": user(2)}),
        ("user|ip", {"user": user(1)}, {"user": SimpleNamespace(is_authenticated=False)}),
        ("header:X-Team", {"headers": [("X-Team", "a")]}, {"headers": [("X-Team", "b")]}),
        ("path", {"path": "/a/"}, {"path": "/b/"}),
        ("arg:room", {"url_route": {"kwargs": {"room": 1}}}, {"url_route": {"kwargs": {"room": 2}}}),
        (("ip", room_of), {"query_string": b"room=1"}, {"query_string": b"room=2"}),
        (team_of, {"headers": [("X-Team", "a")]}, {"headers": [("X-Team", "b")]}),
    ],
)
async def test_keys(key: Any, one: dict[str, Any], other: dict[str, Any]) -> None:
    application = WebSocketLimits(echo, new_connections="1/h", key=key)
    assert [await is_accepted(application, **options) for options in (one, other, one, other)] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("key", [room_of, team_of])
async def test_a_key_of_none_is_not_limited(key: Any) -> None:
    application = WebSocketLimits(echo, new_connections="1/h", key=key)
    assert [await is_accepted(application) for _ in range(3)] == [True, True, True]


@pytest.mark.parametrize(("key", "name"), [("user", "user"), ("session|ip", "session")])
async def test_a_key_that_the_scope_does_not_have(key: str, name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"needs the {name} in the scope. Place WebSocketLimits inside Auth"):
        await is_accepted(WebSocketLimits(echo, new_connections="1/h", key=key))


async def test_clients_behind_a_proxy() -> None:
    async def accepts(*headers: tuple[str, str]) -> bool:
        return await is_accepted(application, ip="10.0.0.1", headers=headers)

    with override_settings(RESTY_DJANGO={"LIMITS": {"PROXIES": ["10.0.0.0/8"]}}):
        application = WebSocketLimits(echo, new_connections="1/h")
        assert await accepts(("X-Forwarded-For", "203.0.113.9"))
        assert not await accepts(("X-Forwarded-For", "192.0.2.77, 203.0.113.9"))
        assert not await accepts(("X-Forwarded-For", "203.0.113.9"), ("X_Forwarded_For", "192.0.2.78"))
        assert await accepts(("X-Forwarded-For", "203.0.113.10"))


async def test_exempt_networks_are_not_limited() -> None:
    with override_settings(RESTY_DJANGO={"LIMITS": {"EXEMPT_NETWORKS": ["192.0.2.0/24"]}}):
        application = WebSocketLimits(echo, new_connections="1/h", connections=1)
        assert [await is_accepted(application) for _ in range(3)] == [True, True, True]
        outside = [await is_accepted(application, ip="203.0.113.1") for _ in range(2)]
        assert outside == [True, False]


async def test_a_client_without_address() -> None:
    application = WebSocketLimits(echo, new_connections="1/h")
    assert [await is_accepted(application, ip=None) for _ in range(2)] == [True, False]


async def test_a_query_that_is_not_utf8() -> None:
    application = WebSocketLimits(echo, new_connections="1/h", key=room_of)
    assert await is_accepted(application, query_string=b"room=\xff")
    assert not await is_accepted(application, query_string=b"room=\xff")


async def test_an_address_can_be_erased() -> None:
    application = WebSocketLimits(
        echo, connections=1, new_connections="1/h", messages="1/h", key="user|ip", name="chat"
    )
    options: dict[str, Any] = {"user": SimpleNamespace(is_authenticated=False)}
    async with Socket(application, **options) as socket:
        assert await socket.accepted()
        socket.write("one")
        assert await socket.read() == "one"
        assert not await is_accepted(application, **options)
        states = next(erase("192.0.2.1", dry=False))
        assert states.count == 3
        assert await is_accepted(application, **options)


# --- sharing, other scopes ---------------------------------------------------------------------------------------


async def test_applications_share_limits_by_name() -> None:
    one, same, other = (WebSocketLimits(echo, connections=1, name=name) for name in ("a", "a", "b"))
    async with Socket(one) as socket:
        assert await socket.accepted()
        assert not await is_accepted(same)
        assert await is_accepted(other)


async def test_other_scopes_are_passed_on() -> None:
    calls: list[Any] = []

    async def application(*arguments: Any) -> None:
        calls.append(arguments)

    limited = WebSocketLimits(application, connections=1)
    for kind in ("http", "lifespan"):
        await limited({"type": kind}, "receive", "send")  # type: ignore[arg-type]
    assert calls == [({"type": "http"}, "receive", "send"), ({"type": "lifespan"}, "receive", "send")]


# --- a store that is down ----------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    with servers.one() as server:
        yield server


@pytest.fixture
def store(server: Server) -> Iterator[RedisDict]:
    """A dictionary on a server that the test kills."""
    servers.forget_pools()
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}
    with override_settings(CACHES={"default": cache}):
        yield RedisDict("limits")


@pytest.mark.redis
@pytest.mark.parametrize(
    ("on_error", "accepted"), [("open", [True, True]), ("closed", [False, False]), ("local", [False, False])]
)
async def test_connections_while_the_store_is_down(
    store: RedisDict, server: Server, on_error: str, accepted: list[bool]
) -> None:
    server.kill()
    application = WebSocketLimits(echo, connections=1, messages="9/s", store=store, on_error=on_error)
    async with Socket(application) as first, Socket(application) as second:
        assert [await one.next() for one in (first, second)]
        assert [await is_accepted(application) for _ in range(2)] == accepted


@pytest.mark.redis
async def test_a_connection_that_outlives_an_outage_is_counted_again(
    store: RedisDict, server: Server, renewals: asyncio.Queue[bool]
) -> None:
    server.kill()
    application = WebSocketLimits(echo, connections=1, lease=LEASE, store=store, on_error="local")
    async with Socket(application) as socket:
        assert await socket.accepted()
        server.start()
        while True:  # until the slot is in the store and is renewed there
            store_of(store).breaker.retry_at = 0.0
            with suppress(TimeoutError):
                if await asyncio.wait_for(renewals.get(), 0.1) and server.call("KEYS", "*"):
                    break
        elsewhere = WebSocketLimits(echo, connections=1, lease=LEASE, store=store)
        assert not await is_accepted(elsewhere)
    assert await is_accepted(elsewhere)


# --- arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, "has no limit. Pass connections=, new_connections= or messages="),
        ({"messages": "many"}, ValueError, "'many' is not a rate"),
        ({"connections": 0}, ValueError, "max must be greater than 0"),
        ({"connections": 1, "lease": 0.5}, ValueError, "lease must be at least 1 second, not 0.5"),
        ({"messages": "1/s", "excess": "ignore"}, ValueError, "excess must be one of close, drop, wait, not 'ignore'"),
        ({"messages": "1/s", "refuse_with": "429"}, ValueError, "refuse_with must be one of http, close, not '429'"),
        ({"messages": "1/s", "status": 200}, ValueError, "status must be an error status from 400 to 599, not 200"),
        ({"messages": "1/s", "close_code": 1000}, ValueError, "close_code must be 1008, 1013, or from 3000 to 4999"),
        ({"messages": "1/s", "key": "usr"}, ValueError, "'usr' is not a key of a limit"),
        ({"messages": "1/s", "key": "ip+view"}, ValueError, 'so "view" cannot be its key. Use "path"'),
        ({"messages": "1/s", "max_wait": "soon"}, ValueError, "'soon' is not a duration"),
        ({"messages": rate_of, "on_error": "ignore"}, ValueError, "on_error must be one of"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message.replace("(", r"\(")):
        WebSocketLimits(echo, **arguments)


def test_the_application_is_required() -> None:
    with pytest.raises(TypeError, match="needs an ASGI application, not '10/s'"):
        WebSocketLimits("10/s", messages="1/s")  # type: ignore[arg-type]
