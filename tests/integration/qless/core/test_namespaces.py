"""Namespaces: next to each other on one server, and each in its slot of a real cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis, RedisCluster
from redis.crc import key_slot
from redis.exceptions import ResponseError

from resty_django.qless.core import source
from tests.integration.qless.conftest import NOW, Core, Events
from tests.servers import Server, cluster

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Server]]:
    with cluster() as cluster_nodes:
        yield cluster_nodes


@pytest.mark.redis
def test_namespaces_do_not_meet(valkey: Redis) -> None:
    first, two = Core(valkey), Core(valkey, "{two}ql:")
    heard = Events(valkey, "{two}ql:")
    first.put("a")
    two.put("b")
    assert (first.popped(count=9), two.popped(count=9)) == (["a"], ["b"])
    assert heard() == [("{two}ql:log", {"event": "put", "jid": "b", "queue": "q"})]
    heard.heard.close()
    keys = valkey.keys("*")
    assert {key.partition(b"ql:")[0] for key in keys} == {b"", b"{two}"}


@pytest.mark.redis
def test_the_prefix_with_a_hash_tag_is_the_one_key_that_may_be_given(valkey: Redis) -> None:
    sha = valkey.script_load(source("{two}ql:"))
    assert valkey.evalsha(sha, 1, "{two}ql:", "put", NOW, "w", "q", "j", "K", "{}", 0) == b"j"
    for keys in (["{two}"], ["{two}ql:", "{two}ql:"], ["ql:"]):
        with pytest.raises(ResponseError, match="No Keys should be provided"):
            valkey.evalsha(sha, len(keys), *keys, "queues", NOW)


def test_a_life_on_a_cluster(nodes: list[Server]) -> None:
    """Every command that writes, on the node that has the slot; another namespace lives on another node."""
    places = set()
    with RedisCluster(host="127.0.0.1", port=nodes[0].port) as client:
        for name in ("one", "two", "three", "four"):
            prefix = f"{{{name}}}ql:"
            places.add(client.get_node_from_key(prefix).name)
            text = source(prefix)

            def call(*arguments: object, prefix: str = prefix, text: str = text) -> object:
                return client.execute_command("EVAL", text, 1, prefix, *arguments)

            call("config.set", NOW, "jobs-history", 5)
            call("put", NOW, "w", "q", "a", "K", "{}", 0, "tags", '["x"]')
            call("put", NOW, "w", "q", "b", "K", "{}", 0, "depends", '["a"]')
            call("put.many", NOW, "w", "q", "c", "K", "{}", 9, "")
            call("recur", NOW, "q", "r", "K", "{}", "interval", 60, 0)
            call("track", NOW, "track", "a")
            assert call("pop", NOW, "q", "w", 9) is not None
            call("heartbeat", NOW, "a", "w")
            call("progress", NOW, "a", "w", 1)
            assert call("complete", NOW, "a", "w", "q", "{}", "result", "1") == b"complete"
            call("retry", NOW, "r-1", "q", "w")
            call("pop", NOW + 10, "q", "w", 9)
            call("fail", NOW + 10, "b", "w", "g", "m")
            call("unfail", NOW + 10, "q", "g")
            call("timeout", NOW + 10, "c")
            call("cancel", NOW + 10, "c")
            call("pop", NOW + 20, "q", "w", 9)
            call("complete", NOW + 20, "b", "w", "q", "{}", "next", "p")
            assert call("get", NOW, "b") is not None
            assert b'"waiting":1' in bytes(call("queues", NOW, "p"))  # type: ignore[arg-type]
            home = next(node for node in nodes if f":{node.port}" in client.get_node_from_key(prefix).name)
            keys = [key for key in home.call("KEYS", "*") if key.startswith(prefix.encode())]
            assert len(keys) > 15
            assert {key_slot(key) for key in keys} == {key_slot(prefix.encode())}
    assert len(places) > 1
