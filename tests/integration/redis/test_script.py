"""Lua scripts: one EVALSHA per call, even if the server has forgotten the script, and our own errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

from resty_django.redis import LuaScript, StoreDown, StoreError, StoreFull, async_connection, connection
from resty_django.redis.faults import translated
from tests.servers import Server, one

from .conftest import Use, refused

pytestmark = pytest.mark.contract


def calls(server: Server) -> dict[str, int]:
    with server.client() as client:
        stats = client.info("commandstats")
        client.config_resetstat()
    return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}


async def test_a_call_is_one_evalsha(server: Server, use: Use) -> None:
    use(server.url)
    script = LuaScript("return ARGV[1] * 2")
    script(connection(), (), (1,))
    await script.run(async_connection(), (), (1,))
    calls(server)
    for n in range(5):
        assert script(connection(), (), (n,)) == 2 * n
        assert await script.run(async_connection(), (), (n,)) == 2 * n
    counts = calls(server)
    assert counts.pop("evalsha") == 10
    assert not {"eval", "script|load", "script|exists", "get", "ping"} & set(counts)


async def test_a_script_unknown_to_the_server_is_sent(server: Server, use: Use) -> None:
    use(server.url)
    script = LuaScript("return 'here'")
    for _ in range(2):
        server.call("SCRIPT", "FLUSH")
        assert script(connection(), (), ()) == b"here"
        server.call("SCRIPT", "FLUSH")
        assert await script.run(async_connection(), (), ()) == b"here"
    calls(server)
    assert script(connection(), (), ()) == b"here"
    assert "eval" not in calls(server)


EACH = LuaScript("local r = {} for n, key in ipairs(KEYS) do r[n] = key .. ARGV[1] end return r")


async def test_many_keys_are_one_call(server: Server, use: Use) -> None:
    use(server.url)
    keys = [b"k%d" % n for n in range(700)]
    want = {key: key + b"!" for key in keys}
    server.call("SCRIPT", "FLUSH")
    assert EACH.each(connection(), [*keys, b"k1"], ("!",)) == want
    server.call("SCRIPT", "FLUSH")
    assert await EACH.run_each(async_connection(), [*keys, b"k1"], ("!",)) == want
    calls(server)
    EACH.each(connection(), keys, ("!",))
    assert calls(server)["evalsha"] == 1
    assert EACH.each(connection(), [], ("!",)) == await EACH.run_each(async_connection(), [], ("!",)) == {}


async def test_many_keys_on_a_cluster_are_a_call_each(nodes: list[Server], use: Use) -> None:
    use(nodes[0].url, CLIENT_CLASS="resty_django.redis.cluster.ClusterClient")
    keys = [b"k%d" % n for n in range(100)]
    want = {key: key + b"!" for key in keys}
    for node in nodes:
        node.call("SCRIPT", "FLUSH")
    assert EACH.each(connection(), [*keys, b"k1"], ("!",)) == want
    for node in nodes:
        node.call("SCRIPT", "FLUSH")
        calls(node)
    assert await EACH.run_each(async_connection(), [*keys, b"k1"], ("!",)) == want
    assert sum(calls(node)["eval"] for node in nodes) == 3
    wrong = LuaScript("return redis.call('GET')")
    await refused(StoreError, "(?i)wrong number of arg", wrong, keys, (), each=True)


def test_texts_and_files_are_put_together(tmp_path: Path, server: Server, use: Use) -> None:
    use(server.url)
    path = tmp_path / "half.lua"
    path.write_text("local function half(n) return n / 2 end")
    assert LuaScript(path, "return half(ARGV[1])")(connection(), (), (8,)) == 4


async def test_errors_of_a_script_are_raised(server: Server, use: Use) -> None:
    use(server.url)
    script = LuaScript("return redis.call('GET')")
    for error in await refused(StoreError, "(?i)wrong number of arg", script, (), ()):
        assert type(error) is StoreError
        assert isinstance(error.__cause__, redis.ResponseError)
    await refused(StoreError, "(?i)wrong number of arg", script, [b"k"], (), each=True)


async def test_a_full_server_raises_an_error(use: Use) -> None:
    script = LuaScript("return redis.call('SET', KEYS[1], ARGV[1])")
    with one() as server:
        use(server.url)
        script(connection(), ("k",), ("x",))
        server.call("CONFIG", "SET", "maxmemory", 1)
        for each in (False, True):
            await refused(StoreFull, ".", script, [b"k"], ("y",), each=each)
        assert server.call("GET", "k") == b"x"


async def test_a_replica_is_not_written_to(use: Use, server: Server) -> None:
    with one("--replicaof", f"127.0.0.1 {server.port}") as replica:
        use(replica.url)
        script = LuaScript("return redis.call('SET', KEYS[1], 1)")
        await refused(StoreDown, "(?i)read only replica", script, ("k",), ())


async def test_a_user_without_the_right_gets_an_error(use: Use, server: Server) -> None:
    server.call("ACL", "SETUSER", "reader", "on", "nopass", "~*", "+get")
    use(server.url_of("reader"), PASSWORD="any")
    with pytest.raises(StoreError, match="lacks the permission"):
        LuaScript("return 1")(connection(), (), ())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed", StoreFull),
        ("Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't", StoreDown),
        ("MISCONF Redis is configured to save RDB snapshots", StoreDown),
        ("BUSY Redis is busy running a script", StoreDown),
        ("my own error that mentions READONLY and OOM", StoreError),
    ],
)
def test_errors_as_servers_before_redis_7_word_them(text: str, kind: type[Any]) -> None:
    assert type(translated(redis.ResponseError(text))) is kind
