"""Commands that end a job, and batches of requests."""

from __future__ import annotations

from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

from resty_django.qless.errors import InvalidArgument
from resty_django.qless.worker import commands
from resty_django.qless.worker.commands import CommandBatch, CompleteJob, EndCommand, FailJob, RequeueJob, RetryJob
from resty_django.qless.worker.running_job import JobState, RunningJob

COMMANDS: list[tuple[EndCommand, tuple[Any, ...]]] = [
    (
        CompleteJob(jid="j", worker="w", queue="q", data="{}"),
        ("complete", "j", "w", "q", "{}", "pending", 1),
    ),
    (
        CompleteJob(jid="j", worker="w", queue="q", data="{}", result="1", result_ttl=60),
        ("complete", "j", "w", "q", "{}", "pending", 1, "result", "1", "ttl", 60),
    ),
    (
        FailJob(jid="j", worker="w", group="group", message="message"),
        ("fail", "j", "w", "group", "message"),
    ),
    (
        FailJob(jid="j", worker="w", group="group", message="message", data="{}"),
        ("fail", "j", "w", "group", "message", "{}"),
    ),
    (
        RetryJob(jid="j", worker="w", queue="q", delay=3.0),
        ("retry", "j", "q", "w", 3.0),
    ),
    (
        RetryJob(jid="j", worker="w", queue="q", delay=3.0, group="group", message="message"),
        ("retry", "j", "q", "w", 3.0, "group", "message"),
    ),
    (
        RequeueJob(jid="j", worker="w", queue="q", klass="K", data="{}", delay=0, priority=1, tags="[]", retries=5),
        ("requeue", "w", "q", "j", "K", "{}", 0, "priority", 1, "tags", "[]", "retries", 5),
    ),
]


@pytest.mark.parametrize(("command", "request_parts"), COMMANDS)
def test_a_request_has_the_arguments_in_the_order_of_the_core(
    command: EndCommand, request_parts: tuple[Any, ...]
) -> None:
    assert command.request == request_parts
    assert EndCommand.unpack(command.pack()) == command


class Text(str):
    __slots__ = ()


class Level(IntEnum):
    HIGH = 3


def test_values_become_plain() -> None:
    sent = [commands.plain(value) for value in ("short", b"data", 7, 0.5, Text("own"), Level.HIGH)]
    assert sent == ["short", b"data", 7, 0.5, "own", 3]
    assert [type(value) for value in sent] == [str, bytes, int, float, str, int]


@pytest.mark.parametrize("value", [None, True, object(), [1]])
def test_a_value_that_is_neither_text_nor_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidArgument, match="Use a string or a number"):
        commands.plain(value)


@pytest.mark.parametrize("long", ["four", b"four", Text("four")])
def test_a_value_that_the_server_would_refuse_is_refused(long: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MAX_ARGUMENT_BYTES", 3)
    with pytest.raises(InvalidArgument, match="has 4 bytes"):
        commands.plain(long)


def test_each_handler_of_a_batch_gets_the_replies_of_its_requests() -> None:
    batch, calls = CommandBatch(), []

    def handler(name: str) -> Any:
        return lambda *replies: calls.append((name, *replies))

    batch.add(("heartbeat", "j", "w"), on_reply=handler("one"))
    batch.add(("config.get", "a"), ("config.get", "b"), ("config.get", "c"), on_reply=handler("three"))
    batch.add(on_reply=handler("none"))
    batch.add(("pop", "q", "w", 1), on_reply=handler("last"))
    assert [request[0] for request in batch.requests] == ["heartbeat", *["config.get"] * 3, "pop"]
    batch.apply([1, 2, 3, 4, 5])
    assert calls == [("one", 1), ("three", 2, 3, 4), ("none",), ("last", 5)]


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("", JobState.RUNNING),
        ("reply_missing", JobState.UNCONFIRMED),
        ("lease_verified", JobState.VERIFIED),
        ("reply_missing lease_verified", JobState.VERIFIED_UNCONFIRMED),
        ("lease_verified reply_missing", JobState.VERIFIED_UNCONFIRMED),
        ("lease_verified reply_missing reply_missing", JobState.VERIFIED_UNCONFIRMED),
    ],
)
def test_a_verified_lease_and_a_missing_reply_are_both_remembered(events: str, state: JobState) -> None:
    job: Any = SimpleNamespace(jid="j")
    handler: Any = None
    running = RunningJob(job=job, queue="q", handler=handler, started_at=0.0)
    for event in events.split():
        getattr(running, event)()
    assert running.state is state
