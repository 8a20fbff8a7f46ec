"""Failure groups without their jobs: the latest failures, and the failures of a time span."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis, RedisCluster

from resty_django.qless.core import source
from tests.integration.qless.conftest import NOW, Core, CoreError
from tests.servers import cluster

pytestmark = [pytest.mark.redis, pytest.mark.contract]


def fail(core: Core, jid: str, at: float, group: str = "g", message: str = "m", klass: str = "K") -> None:
    core.now = NOW + at
    core("put", "client", "q", jid, klass, "{}", 0)
    core.pop()
    core("fail", jid, "w", group, message)


def test_the_latest_failures_of_groups_are_returned(core: Core) -> None:
    for number in range(40):
        fail(core, f"j{number}", number, message=f"Traceback\nKeyError: {number}", klass=f"K{number // 20}")
    fail(core, "alone", 90, group="h", message='a "when":5 in a text: \u00fc')
    many, one, none = core.json("failures.latest", 25, "g", "h", "unknown")
    assert many["times"] == [NOW + number for number in range(39, 14, -1)]
    assert (many["total"], many["first"]) == (40, NOW)
    assert (many["classes"], many["message"]) == (["K1", "K0"], "Traceback\nKeyError: 39")
    assert one == {
        **{"total": 1, "times": [NOW + 90], "first": NOW + 90},
        **{"classes": ["K"], "message": 'a "when":5 in a text: \u00fc'},
    }
    assert none == {"total": 0, "times": [], "classes": {}, "message": "", "first": 0}
    assert core.json("failures.latest", 1, "g")[0]["times"] == [NOW + 39]
    assert len(core.json("failures.latest", 1000, "g")[0]["times"]) == 25


def test_only_the_end_of_a_long_message_is_returned(core: Core) -> None:
    fail(core, "j", 0, message="\u00fc" * 5000 + "end")
    message = core.json("failures.latest", 25, "g")[0]["message"]
    assert message.endswith("\u00fcend")
    assert set(message[:-3]) == {"\u00fc"}
    assert 1900 < len(message.encode()) <= 2000


def test_jobs_of_other_clients_are_read_too(core: Core, valkey: Redis) -> None:
    """Their failures have another order of fields; jobs may be gone, and messages missing."""
    for number in range(3):
        fail(core, f"j{number}", number)
    valkey.hset("ql:j:j2", "failure", json.dumps({"when": 7, "worker": "w", "message": "x" * 500, "group": "g"}))
    valkey.delete("ql:j:j1")
    (group,) = core.json("failures.latest", 25, "g")
    assert (group["times"], group["message"]) == ([7, 0, NOW], "x" * 500)
    valkey.hset("ql:j:j2", "failure", "[broken")
    (group,) = core.json("failures.latest", 25, "g")
    assert (group["times"], group["message"]) == ([0, 0, NOW], "")


def test_failures_are_read_by_a_user_who_may_read_only_keys_of_the_prefix(
    core: Core, valkey: Redis, valkey_url: str
) -> None:
    for number in range(30):
        fail(core, f"j{number}", number)
    expected = core("failures.latest", 25, "g"), core("failures.between", NOW + 3, NOW + 9, "g")
    valkey.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~ql:*", "&*", "+@all")
    try:
        with Redis.from_url(valkey_url, username="limited", password="secret") as client:
            limited = Core(client)
            limited.now = core.now
            assert (limited("failures.latest", 25, "g"), limited("failures.between", NOW + 3, NOW + 9, "g")) == expected
    finally:
        valkey.execute_command("ACL", "DELUSER", "limited")


def test_failures_are_read_on_a_cluster() -> None:
    with cluster() as nodes, RedisCluster(host="127.0.0.1", port=nodes[0].port) as client:
        prefix = "{jobs}ql:"

        def call(*arguments: object) -> object:
            return client.execute_command("EVAL", source(prefix), 1, prefix, *arguments)

        for number in range(4):
            call("put", NOW + number, "w", "q", f"j{number}", "K", "{}", 0)
            call("pop", NOW + number, "q", "w", 1)
            call("fail", NOW + number, f"j{number}", "w", "g", "m")
        (group,) = json.loads(call("failures.latest", NOW, 2, "g"))  # type: ignore[arg-type]
        assert (group["total"], group["times"], group["first"]) == (4, [NOW + 3, NOW + 2], NOW)
        reply = call("failures.between", NOW, NOW + 1, NOW + 3, "g")
        assert json.loads(reply) == [[2, NOW + 1, NOW + 2]]  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(
    times=st.lists(st.integers(0, 50) | st.just(0), max_size=90).map(sorted),
    start=st.integers(-5, 55),
    length=st.integers(-1, 60),
)
def test_failures_of_a_span_are_counted(valkey_url: str, times: list[int], start: int, length: int) -> None:
    with Redis.from_url(valkey_url) as client:
        client.flushdb()
        core = Core(client)
        for number, at in enumerate(times):
            fail(core, f"j{number}", at)
        expected = [at for at in times if start <= at < start + length]
        first, last = (NOW + expected[0], NOW + expected[-1]) if expected else (0, 0)
        reply = core.json("failures.between", NOW + start, NOW + start + length, "unknown", "g")
        assert reply == [[0, 0, 0], [len(expected), first, last]]


def test_the_commands_read_few_jobs_of_a_large_group(core: Core, valkey: Redis) -> None:
    for number in range(2000):
        core.now = NOW + number
        core("put", "client", "q", f"j{number}", "K", "{}", 0)
    for first in range(0, 2000, 100):
        for job in core.pop(count=100):
            core.now = NOW + 5000 + first
            core("fail", job["jid"], "w", f"g{int(job['jid'][1:]) % 2}", "m")

    def commands(*arguments: object) -> int:
        valkey.config_resetstat()
        core(*arguments)  # type: ignore[arg-type]
        stats = valkey.info("commandstats")
        return sum(each["calls"] for name, each in stats.items() if name.partition("|")[0] not in ("cmdstat_config",))

    groups = ["g0", "g1"]
    one_by_one = valkey.info("server")["redis_version"].startswith("6.")  # it would read the whole list to sort it
    assert commands("failures.latest", 25, *groups) <= (2 * 60 if one_by_one else 2 * 4 + 2)
    assert commands("failures.between", NOW, NOW + 9999, *groups) <= (2 * 8 if one_by_one else 2 * 4) + 2
    assert commands("failures.between", NOW + 5500, NOW + 6000, *groups) <= (2 * 44 if one_by_one else 2 * 22) + 2


def test_more_than_a_hundred_groups_are_refused(core: Core) -> None:
    groups = [f"g{number}" for number in range(101)]
    for command in (["failures.latest", 1], ["failures.between", 0, 1]):
        assert len(core.json(*command, *groups[:100])) == 100
        with pytest.raises(CoreError, match='Arg "groups" longer than 100: 101'):
            core(*command, *groups)
