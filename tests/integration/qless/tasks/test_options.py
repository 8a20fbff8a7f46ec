"""Options of tasks and jobs: what is refused, everywhere in the same words, and what `depends` accepts."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import pytest

from resty_django.qless import (
    AsyncResult,
    Callback,
    InvalidArgument,
    JobSpec,
    RecurringJob,
    Task,
    TaskContext,
    chain,
    client,
    group,
)
from resty_django.qless.integrations.celery import put_task, send
from resty_django.qless.worker.middleware import Retry, Timeout
from tests.integration.qless.celery import celery_app
from tests.integration.qless.conftest import Invoke, job_of, pop
from tests.integration.qless.tasks import examples

pytestmark = [pytest.mark.redis, pytest.mark.django_db(databases=["default"])]

SECONDS = [math.nan, math.inf, -math.inf, 10**400, -1, "60", True, [60]]
INTERVALS = [*SECONDS, 0]
TEXTS = [7, b"a", True, UUID(int=7)]
COUNTS = [math.nan, math.inf, -1, 1.5, 2.0, "3", True]
LISTS = ["abc", b"abc", {"abc": 1}, 7, [None], [b"a"], [True], [["a"]]]
OTHERS = [7, 1.5, b"abc", {"abc": 1}, True, object(), "", [""], [None], ["a", 7], [object()], examples.add]
VALUES: dict[str, list[Any]] = {
    "backoff": [*SECONDS[:-1], [60, math.nan], ["60"]],
    **dict.fromkeys(("countdown", "delay", "expires", "offset", "result_ttl"), SECONDS),
    **dict.fromkeys(("every", "interval", "timeout"), INTERVALS),
    "priority": [math.nan, math.inf, -(10**400), "high", True, [1]],
    **dict.fromkeys(("backlog", "max_retries", "retries"), COUNTS),
    "rate": [math.nan, -1, 0, True, [1]],
    "tags": LISTS,
    "aliases": LISTS,
    "unique": [*LISTS, 1.5],
    "depends": OTHERS,
    "eta": ["2026-01-01", date(2026, 1, 1), 1.8e9, True],
    **dict.fromkeys(("cron", "jid", "queue", "task_id"), TEXTS),
    "retry_on": ["OSError", OSError(), [OSError], (OSError, "ValueError")],
}
DECLARED = (
    *("priority", "retries", "backoff", "timeout", "unique", "tags", "aliases", "rate", "every", "cron", "result_ttl"),
    *("queue", "retry_on"),
)
ENQUEUED = ("countdown", "eta", "queue", "priority", "task_id", "depends", "tags", "expires", "retries")
PUT = ("priority", "tags", "retries", "depends", "delay")
PLACES: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "@task": (DECLARED, lambda **options: Task(examples.every_so_often.function, name="declared", **options)),
    "apply_async": (ENQUEUED, lambda **options: examples.add.apply_async((1,), **options)),
    "on commit": (ENQUEUED, lambda **options: examples.add.apply_async_on_commit((1,), **options)),
    "signature": (ENQUEUED, lambda **options: examples.add.signature((1,), **options).delay()),
    "chain": (ENQUEUED, lambda **options: chain(examples.add.s(1), examples.add.s().set(**options)).delay()),
    "group": (ENQUEUED, lambda **options: group(examples.add.s(1).set(**options)).delay()),
    "callback": (
        ("countdown", "queue", "priority", "tags", "retries"),
        lambda **options: examples.add.apply_async((1,), on_success=examples.add.si(2).set(**options)),
    ),
    "retry()": (
        ("countdown", "eta", "max_retries"),
        lambda **options: TaskContext(examples.add, None, [], {}).retry(**options),
    ),
    "put_task": (ENQUEUED, lambda **options: put_task(celery_app.add, (1,), **{"queue": "q", **options})),
    "send": (("depends", "queue", "task_id"), lambda **options: send(celery_app.add, (1,), **options)),
    "put": ((*PUT, "jid"), lambda **options: client.queues["q"].put("K", **options)),
    "put_many": (PUT, lambda **options: client.queues["q"].put_many([{"klass": "K"}, {"klass": "K", **options}])),
    "JobSpec": (PUT, lambda **options: client.queues["q"].put_many([JobSpec(klass="K", **options)])),
    "callbacks": (
        ("priority", "tags", "retries", "delay"),
        lambda **options: client.queues["q"].put(
            "K", outcome={"success": [Callback("s", "q", "K", {"a": 1}, options)]}
        ),
    ),
    "recur": (
        ("interval", "jid", "offset", "priority", "tags", "retries", "backlog"),
        lambda **options: client.queues["q"].recur("K", {}, **{"interval": 60, **options}),
    ),
    "update": (
        ("priority", "interval", "retries", "backlog", "queue"),
        lambda **options: _recurring().update(**options),
    ),
    "complete": (("delay", "depends"), lambda **options: _popped().complete("q", **options)),
    "retry": (("delay",), lambda **options: _popped().retry(**options)),
    "requeue": (PUT, lambda **options: _popped().requeue("q", **options)),
    "priority": (("priority",), lambda priority: _popped().set_priority(priority)),
    "Timeout": (("timeout",), lambda timeout: Timeout(timeout)),
    "Retry": (("backoff",), lambda backoff: Retry(OSError, backoff=backoff)),
}


def _popped() -> Any:
    return client.jobs["j"]


def _recurring() -> RecurringJob:
    job = client.jobs["r"]
    assert isinstance(job, RecurringJob)
    return job


@pytest.fixture
def jobs(site: Any) -> Callable[[], Any]:
    """Two jobs, and a function that returns all that the queue has."""
    client.queues["q"].put("K", jid="j")
    pop(client.queues["q"])
    client.queues["q"].recur("K", {}, 60, jid="r")
    celery_app.app.set_current()
    server = client.source.sync()
    return lambda: sorted((key, server.dump(key)) for key in server.keys("ql:[jqr]:*"))


@pytest.mark.parametrize("place", PLACES)
def test_wrong_values_are_refused_and_nothing_is_put(place: str, jobs: Callable[[], Any]) -> None:
    options, call = PLACES[place]
    before = jobs()
    for option in options:
        for value in VALUES[option]:
            with pytest.raises((InvalidArgument, TypeError), match=f"{option}= must be an? ") as caught:
                call(**{option: value})
            if place == "@task":
                assert str(caught.value).startswith(f"{examples.every_so_often.path}: ")
    assert jobs() == before


def test_the_hint_says_how_to_write_one_tag(site: Any) -> None:
    with pytest.raises(TypeError, match=r"Write tags=\['abc'\]"):
        examples.add.apply_async((1,), tags="abc")


def test_options_that_are_none_are_not_set(site: Any) -> None:
    unset = dict.fromkeys((*ENQUEUED, "on_success", "if_failed"))
    job = job_of(client, examples.add.apply_async((1,), **{**unset, "priority": 2}).id)
    assert (job.state, job.priority, job.tags, job.original_retries) == ("waiting", 2, [], 5)


def test_long_wrong_values_are_cut_in_messages() -> None:
    with pytest.raises(TypeError, match="retry_on= must be") as caught:
        Task(examples.add.function, name="long", retry_on="x" * 1000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300


async def test_depends_takes_what_has_an_id_one_or_several(site: Any, invoke: Invoke) -> None:
    queue, ids = client.queues["q"], []
    first = examples.add.delay(1)
    members = group(examples.add.s(1), examples.add.s(2)).delay()
    job = job_of(client, queue.put("K", jid=str(UUID(int=7))))
    for one, jid in ((first.id, first.id), (first, first.id), (job, job.jid), (UUID(int=7), job.jid)):
        for depends in (one, [one], (one,), {one: 1}.keys(), iter([one]), [one, members], [one, first, first.id]):
            ids += [(await invoke(queue.put, "K", depends=depends), jid)]
    for one, jid in ((first, first.id), (job, job.jid), (members, members.id)):
        ids += [
            (examples.add.apply_async((1,), depends=one).id, jid),
            (examples.add.signature((1,), depends=one).delay().id, jid),
            (chain(examples.add.s(1), examples.add.s().set(depends=one)).delay().id, jid),
            (put_task(celery_app.add, (1,), depends=one), jid),
            *((each, jid) for each in await invoke(queue.put_many, [JobSpec(klass="K", depends=one)])),
        ]
        waiting = job_of(client, queue.put("K", depends=[first, job, members]))
        await invoke(waiting.undepend, one)
        assert jid not in job_of(client, waiting.jid).dependencies
        await invoke(waiting.depend, one)
        ids += [(waiting.jid, jid)]
    for waiting_jid, jid in ids:
        assert jid in job_of(client, waiting_jid).dependencies
        assert job_of(client, waiting_jid).state == "depends"


def test_numbers_at_the_edge_of_their_ranges_are_accepted(site: Any) -> None:
    result = examples.add.apply_async(
        (1,), priority=-2.5, retries=0, countdown=0, expires=0, tags=["a", 7, UUID(int=7)]
    )
    job = job_of(client, result.id)
    assert (job.priority, job.original_retries, job.tags) == (-2.5, 0, ["a", "7", str(UUID(int=7))])
    examples.add.apply_async((1,), eta=datetime(2030, 1, 1, tzinfo=UTC), expires=datetime(2031, 1, 1, tzinfo=UTC))
    assert AsyncResult(client.queues["q"].put("K", delay=0.001, priority=0.5)).state == "PENDING"
