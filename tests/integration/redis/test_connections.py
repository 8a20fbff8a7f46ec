"""The clients of cache aliases: their number, their settings and their lifetime."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from redis import asyncio as aio

from resty_django.redis import LuaScript, StoreDown, async_connection, connection
from tests.servers import Server, one, until
from tests.threads import together

from .conftest import Use, refused

pytestmark = pytest.mark.contract

BYTES = b"\xff\x00\r\n"


# --- sync --------------------------------------------------------------------------------------------------------


def test_the_client_uses_the_connections_of_the_cache(server: Server, use: Use) -> None:
    use(server.url)
    client = connection("default")
    assert client is connection("default")
    assert client.connection_pool is caches["default"].client.get_client().connection_pool  # type: ignore[attr-defined]
    client.set("bytes", BYTES)
    assert client.get("bytes") == BYTES


def test_djangos_own_cache_works(server: Server, settings: Any, count: LuaScript) -> None:
    backend = "django.core.cache.backends.redis.RedisCache"
    settings.CACHES = {"default": {}, "other": {"BACKEND": backend, "LOCATION": server.url}}
    server.call("DEL", "own")
    assert count(connection("other"), ("own",), (2,)) == 2

    async def call() -> Any:
        return await count.run(async_connection("other"), ("own",), (2,))

    assert asyncio.run(call()) == 4


def test_another_cache_is_refused_by_name(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    with pytest.raises(ImproperlyConfigured, match=r"cache 'default' .*LocMemCache.*django_redis.cache.RedisCache"):
        connection()
    with pytest.raises(ImproperlyConfigured, match="'nothing' doesn't exist"):
        connection("nothing")


def test_a_cache_over_several_servers_is_refused(server: Server, use: Use) -> None:
    use([server.url, server.url], CLIENT_CLASS="django_redis.client.ShardClient")
    with pytest.raises(ImproperlyConfigured, match="distributes the keys"):
        connection()


def test_a_cache_that_decodes_is_refused(settings: Any) -> None:
    backend = "django.core.cache.backends.redis.RedisCache"
    options = {"decode_responses": True}
    settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": "redis://127.0.0.1:1", "OPTIONS": options}}
    with pytest.raises(ImproperlyConfigured, match="decode_responses"):
        connection()


def test_a_change_of_the_settings_is_obeyed(server: Server, use: Use, count: LuaScript) -> None:
    use(server.url)
    first = connection()
    with one() as replacement:
        use(replacement.url)
        assert connection() is not first
        assert count(connection(), ("here",), (1,)) == 1
        assert replacement.call("GET", "here") == b"1"

        async def call() -> Any:
            return await count.run(async_connection(), ("here",), (1,))

        assert asyncio.run(call()) == 2


def test_a_server_that_does_not_exist_raises_an_error(use: Use, count: LuaScript) -> None:
    use("redis://127.0.0.1:1")
    with pytest.raises(StoreDown, match="refused") as caught:
        count(connection(), ("k",), (1,))
    assert isinstance(caught.value.__cause__, redis.ConnectionError)


# --- asyncio -----------------------------------------------------------------------------------------------------


async def test_one_client_for_each_alias_and_loop(server: Server, settings: Any) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}
    settings.CACHES = {"default": cache, "other": cache}
    client = async_connection()
    assert client is async_connection()
    assert client is not async_connection("other")
    await client.set("bytes", BYTES)
    assert await client.get("bytes") == BYTES
    assert await asyncio.to_thread(asyncio.run, _client()) is not client


async def _client() -> object:
    return async_connection()


def test_outside_of_a_loop_there_is_no_client(server: Server, use: Use) -> None:
    use(server.url)
    with pytest.raises(RuntimeError, match="no running event loop"):
        async_connection()


def test_a_loop_closes_its_connections_when_it_ends(server: Server, use: Use, count: LuaScript) -> None:
    use(server.url, CONNECTION_POOL_KWARGS={"client_name": "looping"})
    server.call("DEL", "loops")

    async def calls() -> tuple[int, int]:
        client = async_connection()
        replies = await asyncio.gather(*(count.run(client, ("loops",), (1,)) for _ in range(20)))
        return max(replies), server.clients("looping")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for round_ in range(3):
            replies, clients = asyncio.run(calls())
            assert replies == 20 * (round_ + 1)
            assert clients > 1
    assert until(lambda: server.clients("looping") == 0)


def test_loops_of_many_threads_do_not_disturb_each_other(server: Server, use: Use, count: LuaScript) -> None:
    use(server.url)
    server.call("DEL", "threads")

    async def calls() -> None:
        for _ in range(50):
            await count.run(async_connection(), ("threads",), (1,))

    together(*[lambda: asyncio.run(calls())] * 6)
    assert server.call("GET", "threads") == b"300"


def test_a_loop_that_was_closed_carelessly_is_forgotten(server: Server, use: Use) -> None:
    from resty_django.redis import asynchronous

    use(server.url)

    async def open_only() -> None:
        async_connection()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(open_only())
    assert any(key[0] is loop for key in asynchronous.open_clients)
    loop.close()
    asyncio.run(open_only())
    assert not any(key[0] is loop for key in asynchronous.open_clients)
    assert loop not in asynchronous.loop_keepers


async def test_more_calls_than_connections_wait(server: Server, use: Use, count: LuaScript) -> None:
    use(server.url, CONNECTION_POOL_KWARGS={"max_connections": 3, "client_name": "few"})
    server.call("DEL", "many")
    replies = await asyncio.gather(*(count.run(async_connection(), ("many",), (1,)) for _ in range(100)))
    assert sorted(replies) == list(range(1, 101))
    assert server.clients("few") == 3


async def test_a_call_that_waits_does_not_block_the_loop(server: Server, use: Use) -> None:
    use(server.url)
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.005)
            beats += 1

    beating = asyncio.create_task(beat())
    await async_connection().blpop(["never"], timeout=0.3)
    beating.cancel()
    assert beats > 20


@pytest.mark.parametrize("url", ["redis://{user}:{word}@127.0.0.1:{port}/3", "redis://{user}@127.0.0.1:{port}/3"])
async def test_user_password_and_database_are_obeyed(url: str, server: Server, use: Use, count: LuaScript) -> None:
    server.call("ACL", "SETUSER", "ann", "on", ">sesame", "~*", "+@all")
    location = url.format(user="ann", word="sesame", port=server.port)
    use(location, **({} if "{word}" in url else {"PASSWORD": "sesame"}))
    server.call("FLUSHALL")
    assert connection().execute_command("ACL", "WHOAMI") == b"ann"
    assert await async_connection().execute_command("ACL", "WHOAMI") == b"ann"
    await count.run(async_connection(), ("k",), (1,))
    assert count(connection(), ("k",), (1,)) == 2
    with redis.Redis(port=server.port, db=3) as client:
        assert client.get("k") == b"2"


async def test_a_wrong_password_raises_an_error(server: Server, use: Use, count: LuaScript) -> None:
    use(server.url_of("ann"), PASSWORD="wrong")
    for error in await refused(StoreDown, "(?i)invalid username-password", count, ("k",), (1,)):
        assert "wrong" not in str(error)


async def test_timeouts_are_obeyed(use: Use, server: Server) -> None:
    wait = LuaScript("while true do end")
    server.call("CONFIG", "SET", "lua-time-limit", 50)  # from then on a script can be killed
    use(server.url, SOCKET_TIMEOUT=1, SOCKET_CONNECT_TIMEOUT=10)
    # A client that is connected has only the script to wait for, also on a slow machine.
    connection().ping()
    with pytest.raises(StoreDown, match=r"(?i)time"):
        wait(connection(), (), ())
    until(lambda: server.call("SCRIPT", "KILL"))
    await async_connection().ping()
    with pytest.raises(StoreDown, match=r"(?i)time"):
        await wait.run(async_connection(), (), ())
    until(lambda: server.call("SCRIPT", "KILL"))


async def test_a_server_is_reached_by_a_socket_in_the_file_system(tmp_path: Path, use: Use, count: LuaScript) -> None:
    path = tmp_path / "valkey.sock"
    with one("--unixsocket", str(path)):
        use(f"unix://{path}?db=0")
        assert count(connection(), ("k",), (1,)) == 1
        assert await count.run(async_connection(), ("k",), (1,)) == 2


async def test_options_of_tls_are_used(use: Use) -> None:
    use("rediss://127.0.0.1:1", CONNECTION_POOL_KWARGS={"ssl_ca_certs": "/etc/ca.pem", "ssl_check_hostname": False})
    pool = async_connection().connection_pool  # type: ignore[union-attr]
    assert pool.connection_class is aio.SSLConnection
    assert pool.connection_kwargs["ssl_ca_certs"] == "/etc/ca.pem"
    assert pool.connection_kwargs["ssl_check_hostname"] is False


async def test_an_option_without_support_in_asyncio_is_refused(use: Use) -> None:
    use("rediss://127.0.0.1:1", CONNECTION_POOL_KWARGS={"ssl_validate_ocsp": True})
    with pytest.raises(ImproperlyConfigured, match="ssl_validate_ocsp"):
        async_connection()


async def test_the_retry_policy_is_used(use: Use) -> None:
    from redis.backoff import ConstantBackoff
    from redis.retry import Retry

    use("redis://127.0.0.1:1", CONNECTION_POOL_KWARGS={"retry": Retry(ConstantBackoff(0.01), 3)})
    pool = async_connection().connection_pool  # type: ignore[union-attr]
    assert pool.connection_kwargs["retry"].get_retries() == 3


# --- fork --------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], None]) -> int:
    """Return the exit code of a forked child that runs `work`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_has_separate_connections(server: Server, use: Use, count: LuaScript) -> None:
    use(server.url)
    server.call("DEL", "fork")
    client = connection()
    parent_id = client.client_id()

    def work() -> None:
        for _ in range(100):
            count(connection(), ("fork",), (1,))
        assert connection().client_id() != parent_id

    assert in_child(work) == 0
    assert client.client_id() == parent_id
    assert count(connection(), ("fork",), (1,)) == 101


def test_a_child_forked_within_a_loop_has_separate_connections(server: Server, use: Use, count: LuaScript) -> None:
    """As with a server that forks its workers after it has used coroutines."""
    use(server.url)
    server.call("DEL", "fork")

    async def calls() -> Any:
        for _ in range(10):
            reply = await count.run(async_connection(), ("fork",), (1,))
        return reply

    async def parent() -> Any:
        await calls()
        # In a thread, since a child cannot begin a loop within the parent's.
        code = await asyncio.to_thread(in_child, lambda: asyncio.run(calls()))
        assert code == 0
        return await calls()

    assert asyncio.run(parent()) == 30
