"""Texts and data come back as they were sent, by any client; errors say why others cannot be sent."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import uuid
from typing import Any

import pytest
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from resty_django.qless import Client, InvalidArgument, UnreadableReply
from resty_django.qless.clients.serialization import decode, encode
from resty_django.qless.errors import error_of, message_of
from tests.integration.qless.conftest import Invoke

pytestmark = pytest.mark.contract

HOSTILE = [
    "",
    " ",
    "<script>alert('x')</script>",
    "\x00\x01\x7f",
    'a"b\\c/d',
    "日本 🎉",
    "$* -1\r\n",
    "x script: on @user_script:1.",
    "user_script:1: x",
    "{tag}:q",
    "a" * 5000,
    "-OOM",
]
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_data_come_back_as_they_were(value: Any) -> None:
    decoded = decode(encode(value).decode())
    assert decoded == value
    assert json.loads(encode(value)) == value
    assert repr(decoded) == repr(value)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (decimal.Decimal("1.50"), '"1.50"'),
        (uuid.UUID(int=7), '"00000000-0000-0000-0000-000000000007"'),
        (datetime.datetime(2026, 11, 21, 14, 5, 9, 250000, datetime.UTC), '"2026-11-21T14:05:09.250000Z"'),
        (datetime.date(2026, 11, 21), '"2026-11-21"'),
        (datetime.time(14, 5), '"14:05:00"'),
        (datetime.timedelta(days=1, seconds=2), '"P1DT2S"'),
        (lazystr("later"), '"later"'),
        (mark_safe("<b>"), '"<b>"'),
        ((1, 2), "[1,2]"),
        ({3}, "[3]"),
        (Colour.RED, '"red"'),
        (Point(1), '{"x":1}'),
        ({1: "a"}, '{"1":"a"}'),
        (b"bytes", '"Ynl0ZXM="'),
        (2**80, str(2**80)),
        (None, "null"),
    ],
)
def test_python_values_become_json(value: Any, text: str) -> None:
    assert encode(value).decode() == text


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "builtins.object"),
        ({"a": [math.nan, None]}, r"see data\['a'\]\[0\]"),
        ([math.inf], r"see data\[0\]"),
        ({"a": {math.inf}, "b": None}, r"see data\['a'\]\[0\]"),
        (Point(math.nan), r"see data\['x'\]"),  # type: ignore[arg-type]
        (math.nan, "NaN"),
        (endless(), "nested too deeply, or contains itself"),
        ({(1, 2): 3}, "builtins.tuple"),
        ("\ud800", "surrogates"),
        (Client, "builtins.type"),
    ],
)
def test_errors_of_data_that_are_not_json_name_the_type(value: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        encode(value)


@pytest.mark.redis
@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_names_come_back_unchanged(client: Client, invoke: Invoke, text: str) -> None:
    queue = client.queues[f"q{text}"]
    client.worker_name = f"w{text}"
    jid = await invoke(queue.put, f"K{text}", {text: text}, jid=f"j{text}", tags=[text, "x"])
    job = await invoke(queue.pop)
    assert (jid, job.jid, job.klass, job.queue_name) == (f"j{text}", f"j{text}", f"K{text}", f"q{text}")
    assert (job.worker_name, job.tags, job.data) == (f"w{text}", [text, "x"], {text: text})
    await invoke(job.fail, f"g{text}", f"m{text}")
    assert await invoke(client.jobs.failed) == {f"g{text}": 1}
    (failed,) = (await invoke(client.jobs.failed, f"g{text}")).jobs
    assert (failed.failure["message"], failed.failure["worker"]) == (f"m{text}", f"w{text}")
    assert [counts.name for counts in await invoke(client.workers.counts)] == [f"w{text}"]
    assert [counts.name for counts in await invoke(client.queues.counts)] == [f"q{text}"]
    with pytest.raises(Exception, match="Complete") as caught:
        await invoke(job.complete)
    error_text = str(caught.value)
    full_text = f"Complete(): Job j{text} is not currently running: failed"
    until_break = full_text.partition("\r\n")[0]  # which is all that Redis 6 sends
    assert error_text in (full_text.replace("\r\n", "  ").partition("\x00")[0], until_break)


@pytest.mark.redis
async def test_texts_that_are_not_utf_8_come_and_go_as_they_are(client: Client, valkey: Redis, invoke: Invoke) -> None:
    odd = b"\xff\xfe"
    await invoke(client.call, "put", b"w", b"q" + odd, b"j" + odd, b"K" + odd, b'{"a":1}', 0)
    name = b"q\xff\xfe".decode("utf-8", "surrogateescape")
    job = await invoke(client.queues[name].pop)
    assert job.klass.encode("utf-8", "surrogateescape") == b"K\xff\xfe"
    assert job.data == {"a": 1}
    await invoke(job.heartbeat)
    assert [counts.name for counts in await invoke(client.queues.counts)] == [name]
    assert await invoke(client.queues[name].jobs.running) == [job.jid]
    assert await invoke(job.complete) == "complete"
    assert valkey.hget(b"ql:j:j\xff\xfe", "state") == b"complete"


@pytest.mark.redis
@pytest.mark.parametrize(
    ("text", "value"),
    [('"\\ud800"', "\ud800"), ("1e2", 100.0), ("12345678901234567890123", 12345678901234567890123), ("[1E2]", [100.0])],
)
async def test_data_of_other_clients(client: Client, valkey: Redis, invoke: Invoke, text: str, value: Any) -> None:
    await invoke(client.queues["q"].put, "K", jid="j")
    valkey.hset("ql:j:j", "data", text)
    job = await invoke(client.queues["q"].pop)
    assert job.data == value


@pytest.mark.redis
async def test_a_job_that_another_core_wrote_is_popped_and_completed(
    client: Client, valkey: Redis, invoke: Invoke
) -> None:
    """Key for key as the original core writes a put."""
    valkey.zadd("ql:queues", {"q": 1400000000.5})
    valkey.zadd("ql:q:q-work", {"j": -0.14000000005})
    valkey.rpush("ql:j:j-history", '[1400000000,"put",{"q":"q"}]')
    values = {
        **{"jid": "j", "klass": "Mail::Send", "data": '{"to": ["a"]}', "priority": "0", "tags": "{}"},
        **{"state": "waiting", "worker": "", "expires": "0", "queue": "q", "retries": "5", "remaining": "5"},
        "time": "1400000000.50000000000000000000",
    }
    valkey.hset("ql:j:j", mapping=values)
    job = await invoke(client.queues["q"].pop)
    assert (job.jid, job.klass, job.data, job.tags, job.retries_left) == ("j", "Mail::Send", {"to": ["a"]}, [], 5)
    assert await invoke(job.complete) == "complete"
    assert await invoke(client.jobs.complete) == ["j"]


@pytest.mark.redis
async def test_tags_that_are_numbers(client: Client, invoke: Invoke) -> None:
    await invoke(client.call, "put", "w", "q", "j", "K", "{}", 0, "tags", '["a",5]')
    assert (await invoke(client.queues["q"].pop)).tags == ["a", "5"]
    assert client.jobs["j"].tags == ["a", "5"]  # type: ignore[union-attr]


@pytest.mark.redis
async def test_jobs_whose_data_are_not_json_are_popped(client: Client, valkey: Redis, invoke: Invoke) -> None:
    await invoke(client.queues["q"].put, "K", jid="j")
    valkey.hset("ql:j:j", "data", "no json")
    job = await invoke(client.queues["q"].pop)
    assert job.raw_data == "no json"
    with pytest.raises(UnreadableReply):
        _ = job.data
    await invoke(job.fail, "g", "m")


@pytest.mark.redis
async def test_arguments_that_cannot_be_sent(client: Client, invoke: Invoke) -> None:
    queue = client.queues["q"]
    for options, message in (
        ({"jid": uuid.uuid4()}, "jid= must be a text, not UUID"),
        ({"delay": "soon"}, "delay= must be a number of seconds of at least 0, not 'soon'"),
        ({"delay": math.nan}, "delay= must be a number of seconds of at least 0, not nan"),
        ({"priority": True}, "priority= must be a number, not True"),
        ({"tags": "abc"}, "tags= must be a list of texts"),
    ):
        with pytest.raises((InvalidArgument, TypeError), match=message):
            await invoke(queue.put, "K", **options)
    with pytest.raises(InvalidArgument, match="not JSON: false"):
        await invoke(queue.put, "K", False)
    with pytest.raises(InvalidArgument, match="class"):
        await invoke(queue.put, lambda job: None)
    assert await invoke(queue.length) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ERR Error running script (call to f_ab): @user_script:12: user_script:12: Get(): x", "Get(): x"),
        (f"ERR user_script:7: Get(): x script: {'0a' * 20}, on @user_script:7.", "Get(): x"),
        ("ERR user_script:7: Get(): x script: on @user_script:7.", "Get(): x"),
        ("ERR user_script:7: Get(): a script: b script: on @user_script:7.", "Get(): a script: b"),
        ("ERR Error running script (call to f_ab): @user_script:12: @user_script: 12: -OOM command", None),
        ("OOM command not allowed script: on @user_script:7.", None),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", None),
    ],
)
def test_the_message_is_cut_out_of_the_errors_of_all_servers(text: str, message: str | None) -> None:
    assert message_of(text) == message


def test_an_unknown_message_is_an_error_of_the_queue() -> None:
    assert type(error_of("something new")).__name__ == "QlessError"
