"""The client in a site: the checks, the probe, and the asyncio twins of all calls."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from redis import Redis

from resty_django import health
from resty_django.qless import Client, Job, Queue, RecurringJob, client
from resty_django.qless import health as qless_health
from resty_django.qless.checks import check_qless
from resty_django.qless.clients.client import Config, Queues, Workers
from resty_django.qless.clients.groups import Groups
from resty_django.qless.clients.jobs import Jobs
from resty_django.qless.clients.queue import QueueJobs
from resty_django.qless.clients.transport import sync_and_async
from tests import servers

pytestmark = [pytest.mark.usefixtures("no_tasks"), pytest.mark.contract]
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
CLUSTER = {"CLIENT_CLASS": "resty_django.redis.cluster.ClusterClient"}

NO_CALLS = {
    Client: {"call", "call_many", "close", "events", "generate_jid", "run", "stuck", "astuck"},
    Queue: {"jobs"},
    Job: {"add_hook", "build", "description", "perform", "queue", "ttl"},
    RecurringJob: {"queue"},
}


def redis_cache(url: str | list[str], **options: Any) -> dict[str, Any]:
    servers.forget_pools()
    return {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": options}


@pytest.mark.parametrize("kind", [Client, Queue, Job, RecurringJob, Jobs, Queues, QueueJobs, Workers, Config, Groups])
def test_every_call_has_a_twin_with_the_same_arguments(kind: type) -> None:
    functions = {name: function for name, function in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}
    sync = {name for name, function in functions.items() if not inspect.iscoroutinefunction(function)}
    for name in sync - NO_CALLS.get(kind, set()):
        twin = functions[f"a{name}"]
        assert inspect.iscoroutinefunction(twin)
        assert inspect.signature(twin).parameters == inspect.signature(functions[name]).parameters
        assert twin.__name__ in (f"a{name}", f"a{functions[name].__name__}")
    assert {f"a{name}" for name in sync} >= functions.keys() - sync


def test_twins_are_typed_as_coroutines_that_a_task_takes(valkey: Redis, valkey_url: str) -> None:
    assert "Coroutine[Any, Any, R]" in inspect.signature(sync_and_async).return_annotation

    async def put_and_list() -> list[str]:
        queue = Client(valkey_url).queues["q"]
        task: asyncio.Task[str] = asyncio.create_task(queue.aput("K", jid="j"))
        await task
        return await asyncio.create_task(queue.jobs.aready())

    assert asyncio.run(put_and_list()) == ["j"]


@pytest.mark.parametrize(
    ("section", "caches", "ids"),
    [
        ({}, {"default": LOCMEM}, []),
        ({"PREFIX": "ql:"}, {"default": LOCMEM}, ["resty_qless.E001"]),
        ({"EAGER": True}, {"default": LOCMEM}, []),
        ({"ALIAS": "jobs"}, {"default": LOCMEM, "jobs": "redis"}, []),
        ({"ALIAS": "jobs"}, {"default": LOCMEM, "jobs": "cluster"}, ["resty_qless.E002"]),
        ({"ALIAS": "jobs", "PREFIX": "{jobs}ql:"}, {"default": LOCMEM, "jobs": "cluster"}, []),
        ({"URL": "redis://127.0.0.1:1"}, {"default": LOCMEM}, []),
        ({"URL": "redis://127.0.0.1:1", "MODULES": ["json", "no.such", "json.none"]}, {"default": LOCMEM}, None),
    ],
)
def test_system_checks_find_mistakes_in_the_settings_of_the_queue(
    settings: Any, section: Any, caches: Any, ids: list[str] | None
) -> None:
    redis_caches = {
        "redis": redis_cache("redis://127.0.0.1:1"),
        "cluster": redis_cache(["redis://127.0.0.1:1"], **CLUSTER),
    }
    settings.CACHES = {
        alias: redis_caches[cache] if isinstance(cache, str) else cache for alias, cache in caches.items()
    }
    settings.RESTY_DJANGO = {"QLESS": section}
    messages = check_qless()
    assert [message.id for message in messages] == (["resty_qless.E003"] * 2 if ids is None else ids)
    assert not any("docs/" in f"{message.msg} {message.hint}" for message in messages)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"PREFIX": "a b"}, "letters, digits"),
        ({"PREFIX": ""}, "letters, digits"),
        ({"URL": "127.0.0.1:6379"}, "must be a URL"),
        ({"ALIAS": "nothing"}, "names the cache 'nothing'"),
        ({"MODULES": ["shop-jobs"]}, "not a module"),
        ({"WORKER_NAME": " "}, "must not be empty"),
    ],
)
def test_checks_report_wrong_settings(settings: Any, section: Any, message: str) -> None:
    from resty_django.checks import check_settings

    settings.RESTY_DJANGO = {"QLESS": section}
    (check_message,) = check_settings()
    assert message in check_message.msg
    assert check_qless() == []


def findings() -> list[tuple[str, str, str]]:
    return [(finding.level, finding.subject, finding.message) for _, finding in health.run(["jobs"])]


def test_the_probe_says_that_a_site_has_no_job_queue(settings: Any) -> None:
    settings.CACHES = {"default": LOCMEM}
    settings.RESTY_DJANGO = {}
    ((level, subject, message),) = findings()
    assert (level, subject) == ("ok", "jobs")
    assert message.startswith("No job queue is configured")
    settings.RESTY_DJANGO = {"QLESS": {"PREFIX": "ql:"}}
    assert findings()[0][0] == "error"


@pytest.mark.redis
def test_the_probe_warns_of_stuck_jobs(
    settings: Any, valkey: Redis, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RESTY_DJANGO = {"QLESS": {"URL": valkey_url}}

    def stuck() -> list[tuple[str, str, str]]:
        return [finding for finding in findings() if finding[1] == "stuck jobs"]

    client.queues["q"].put("K", jid="a")
    client.queues["q"].put_many({"klass": "K", "depends": ["a"]} for _ in range(450))
    assert stuck() == []
    for name in ("q", "r"):
        for number in range(3):
            jid = f"{name}-loop-{number}"
            client.queues[name].put("K", jid=jid, depends=[jid])
    loops = [f"{jid} in {jid[0]} (itself)" for jid in ("r-loop-0", "r-loop-1", "r-loop-2", "q-loop-0", "q-loop-1")]
    end = 'See "Stuck jobs" in the admin of the job queue.'
    text = f"6 wait for something that will not end: {', '.join(loops)}, .... {end}"
    assert stuck() == [("warning", "stuck jobs", text)]
    monkeypatch.setattr(qless_health, "MAX_STUCK_CALLS", 4)
    text = (
        f"3 wait for something that will not end: {', '.join(loops[:3])}. "
        f"Examined 303 of 456 jobs that wait for others. {end}"
    )
    assert stuck() == [("warning", "stuck jobs", text)]
    client.close()


@pytest.mark.redis
def test_the_probe_warns_of_stalled_and_failed_jobs(settings: Any, valkey: Redis, valkey_url: str) -> None:
    settings.RESTY_DJANGO = {"QLESS": {"URL": valkey_url}}
    valkey.config_set("save", "")
    client.config.set("heartbeat", -1)
    client.queues["q"].put("K")
    client.queues["q"].pop()
    client.config.set("heartbeat", 60)
    client.queues["p"].put("K")
    client.queues["p"].pop().fail("broken", "m")  # type: ignore[union-attr]
    client.call("worker.alive", "somebody", "q", "p")
    first, *others = findings()
    assert first[0] == "warning"
    assert "jobs are lost when the server stops" in first[2]
    assert others == [
        (
            "warning",
            "queue q",
            "0 waiting, 0 running, 0 scheduled jobs. "
            "Expired locks: 1. The workers are gone, or do not send heartbeats.",
        ),
        ("ok", "queue p", "0 waiting, 0 running, 0 scheduled jobs."),
        ("warning", "failed broken", "1 jobs. 1 of them in the last 60 minutes."),
    ]
    valkey.config_set("save", "3600 1")
    assert findings()[0][0] == "ok"
    valkey.config_set("save", "")
    client.close()


def test_the_probe_of_a_server_that_is_down_and_one_that_keeps_its_data(settings: Any) -> None:
    with servers.one("--appendonly", "yes") as server:
        settings.RESTY_DJANGO = {"QLESS": {"URL": server.url}}
        ((level, subject, message),) = findings()
        assert (level, subject) == ("ok", "jobs")
        assert message.split(" answers")[0] == "Valkey " + server.client().info("server")["valkey_version"]
        server.kill()
        ((level, _, message),) = findings()
        assert level == "error"
        assert "cannot be used" in message
    client.close()


def test_the_probe_works_on_a_cluster(settings: Any) -> None:
    with servers.cluster() as nodes:
        settings.CACHES = {"default": LOCMEM, "jobs": redis_cache([node.url for node in nodes], **CLUSTER)}
        settings.RESTY_DJANGO = {"QLESS": {"ALIAS": "jobs", "PREFIX": "{jobs}ql:"}}
        client.queues["q"].put("K")
        client.call("worker.alive", "somebody", "q")
        assert [finding[:2] for finding in findings()] == [("warning", "jobs"), ("ok", "queue q")]
