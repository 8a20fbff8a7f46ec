"""The job queue over HTTP, on a real server."""

from __future__ import annotations

import json
import sys
from functools import reduce
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import override_settings
from django.urls import reverse
from rest_framework.test import APIClient

from resty_django.qless import Client
from resty_django.qless.api.serializers import JobsQuerySerializer
from resty_django.qless.api.urls import urlpatterns
from resty_django.txid import bound
from tests.integration.qless.conftest import change_settings, pop

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

HOSTILE = 'q/?"<b>%é'


def address(path: str) -> str:
    return f"/api/jobs/{path}"


def name(text: str) -> str:
    return quote(quote(text, safe=""), safe="")


def fail(jobs: Client, queue: str = "mail", group: str = "mail-ValueError", **options: Any) -> str:
    """Enqueue a job that fails, and return its jid."""
    jid = jobs.queues[queue].put("shop.jobs.Mail", {"to": "a@example.org"}, **options)
    job = pop(jobs.queues[queue])
    assert job.jid == jid
    job.fail(group, "ValueError: no such address")
    return jid


def test_queues_are_listed(jobs: Client, admin_api: APIClient) -> None:
    jobs.queues["mail"].put_many([{"klass": "shop.jobs.Mail"} for _ in range(3)])
    jobs.queues["mail"].put("shop.jobs.Mail", delay=1000)
    jobs.queues["mail"].pop()
    expected = {
        "name": "mail",
        "waiting": 2,
        "running": 1,
        "stalled": 0,
        "scheduled": 1,
        "depends": 0,
        "recurring": 0,
        "paused": False,
    }
    assert admin_api.get(address("queues/")).json() == {"queues": [expected]}
    assert admin_api.get(address("queues/mail/")).json() == expected
    assert admin_api.get(address("queues/never/")).json()["waiting"] == 0


def test_empty_server_has_empty_lists(jobs: Client, admin_api: APIClient) -> None:
    for path, key in {
        "queues/": "queues",
        "workers/": "workers",
        "failed/": "groups",
        "recurring/": "jobs",
        "jobs/": "jobs",
    }.items():
        assert admin_api.get(address(path)).json()[key] == [], path


def test_statistics_of_a_queue_are_returned(jobs: Client, admin_api: APIClient) -> None:
    queue = jobs.queues["mail"]
    queue.put("shop.jobs.Mail")
    pop(queue).complete()
    statistics = admin_api.get(address("queues/mail/stats/")).json()
    assert statistics["run"]["count"] == statistics["wait"]["count"] == 1
    assert len(statistics["run"]["histogram"]) == 148
    assert admin_api.get(address("queues/mail/stats/?date=2020-01-01")).json()["run"]["count"] == 0
    assert admin_api.get(address("queues/mail/stats/?date=yesterday")).status_code == 400
    throughput = statistics["throughput"]
    assert {unit: len(counts) for unit, counts in throughput.items()} == {"minutes": 60, "hours": 48, "days": 30}
    assert [sum(counts) for counts in throughput.values()] == [1, 1, 1]


LISTS: dict[str, dict[str, str]] = {
    "state": {"queue": "mail", "state": "waiting"},
    "tag": {"tag": "news letter"},
    "failure group": {"group": "mail-ValueError"},
    "class": {"klass": "shop.jobs.Mail"},
}


@pytest.mark.parametrize("parameters", LISTS.values(), ids=LISTS)
def test_lists_continue_with_their_cursor(jobs: Client, admin_api: APIClient, parameters: dict[str, str]) -> None:
    if "group" in parameters:
        jids = [fail(jobs) for _ in range(5)]
    else:
        jids = [
            jobs.queues["mail"].put("shop.jobs.Mail", priority=-n, tags=[parameters.get("tag", "x")]) for n in range(5)
        ]
        jobs.queues["other"].put("shop.jobs.Other")
    listed, cursor = [], ""
    for _ in range(100):
        page = admin_api.get(address("jobs/"), {**parameters, "count": 2, "cursor": cursor}).json()
        listed += [job["jid"] for job in page["jobs"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert set(listed) == set(jids)
    assert len(listed) == 5
    if parameters.keys() <= {"queue", "state", "tag"}:
        assert listed == jids


def test_running_and_stalled_jobs_are_listed(jobs: Client, admin_api: APIClient) -> None:
    jid = jobs.queues["mail"].put("shop.jobs.Mail")
    jobs.queues["mail"].pop()
    for state, expected in {"running": [(jid, "w1")], "stalled": []}.items():
        page = admin_api.get(address("jobs/"), {"queue": "mail", "state": state}).json()
        assert [(job["jid"], job["worker"]) for job in page["jobs"]] == expected


@pytest.mark.parametrize(
    "wrong",
    [
        *("state=nonsense", "count=0", "count=101", "tag=x&cursor=-1", "tag=x&cursor=1234567890", "group=x&cursor=x"),
        *("state=stalled", "state=stalled&queue=mail&klass=x", "queue=mail&state=waiting&cursor=x"),
    ],
)
def test_wrong_parameters_of_lists_are_rejected(jobs: Client, admin_api: APIClient, wrong: str) -> None:
    assert admin_api.get(address(f"jobs/?{wrong}")).status_code == 400


def test_job_detail_is_redacted(jobs: Client, admin_api: APIClient) -> None:
    data = {"to": "a@example.org", "smtp": [{"Password": "geheim", "user": "shop"}], "API-Key": "geheim"}
    with bound(request_id="web-1.example_7") as txid:
        jid = jobs.queues["mail"].put("shop.jobs.Mail", data, tags=["t"])
    job = pop(jobs.queues["mail"])
    job.log("looked", {"token": "geheim", "at": "x"})
    job.progress(0.5, "half")
    job.complete(result={"secret": "geheim", "sent": 1})
    response = admin_api.get(address(f"jobs/{jid}/"))
    detail = response.json()
    assert "geheim" not in response.content.decode()
    assert detail["data"] == {
        "to": "a@example.org",
        "smtp": [{"Password": "[redacted]", "user": "shop"}],
        "API-Key": "[redacted]",
    }
    assert detail["result"] == {"secret": "[redacted]", "sent": 1}
    assert (detail["state"], detail["tags"]) == ("complete", ["t"])
    assert (detail["txid"], detail["request_id"]) == (txid, "web-1.example_7")
    assert [entry["what"] for entry in detail["history"]] == ["put", "popped", "looked", "done"]


def hides_more(data: Any) -> Any:
    return {**data, "to": "somebody"}


def fails(data: Any) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("hook", "data"), [("hides_more", {"to": "somebody", "password": "[redacted]"}), ("fails", "[redacted]")]
)
def test_a_hook_hides_more(jobs: Client, admin_api: APIClient, settings: Any, hook: str, data: Any) -> None:
    change_settings(settings, REDACTOR=f"{__name__}.{hook}")
    jid = jobs.queues["mail"].put("shop.jobs.Mail", {"to": "a@example.org", "password": "geheim"})
    assert admin_api.get(address(f"jobs/{jid}/")).json()["data"] == data


def test_failures_are_listed_and_retried(jobs: Client, admin_api: APIClient) -> None:
    jids = [fail(jobs) for _ in range(3)]
    assert admin_api.get(address("failed/")).json() == {"groups": [{"group": "mail-ValueError", "count": 3}]}
    listed = admin_api.get(address("jobs/?group=mail-ValueError")).json()["jobs"]
    assert [job["jid"] for job in listed] == jids[::-1]
    assert listed[0]["failure"]["group"] == "mail-ValueError"
    assert admin_api.get(address(f"jobs/{jids[0]}/")).json()["failure"]["message"] == "ValueError: no such address"
    assert admin_api.post(address(f"jobs/{jids[0]}/retry/")).json() == {"jids": [jids[0]]}
    second_retry = admin_api.post(address(f"jobs/{jids[0]}/retry/"))
    assert (second_retry.status_code, second_retry.json()["code"]) == (409, "not_possible")
    pace = {"delay": 100, "spread": 100}
    assert set(admin_api.post(address("failed/mail-ValueError/retry/"), pace, format="json").json()["jids"]) == set(
        jids[1:]
    )
    counts = jobs.queues["mail"].counts()
    assert (counts.waiting, counts.scheduled) == (1, 2)
    assert jobs.jobs.failed() == {}


def test_a_retried_job_goes_to_another_queue_if_asked(jobs: Client, admin_api: APIClient) -> None:
    jid = fail(jobs)
    assert admin_api.post(address(f"jobs/{jid}/retry/"), {"queue": "slow"}, format="json").status_code == 200
    assert jobs.queues["slow"].length() == 1
    assert admin_api.post(address(f"jobs/{jid}/retry/"), {"que": "x"}, format="json").status_code == 400


def test_jobs_are_canceled(jobs: Client, admin_api: APIClient) -> None:
    first = jobs.queues["mail"].put("shop.jobs.Mail")
    second = jobs.queues["mail"].put("shop.jobs.Mail", depends=[first])
    refused = admin_api.delete(address(f"jobs/{first}/"))
    assert (refused.status_code, refused.json()["code"]) == (409, "dependency")
    assert admin_api.delete(address(f"jobs/{second}/")).json() == {"jids": [second]}
    assert admin_api.delete(address(f"jobs/{first}/")).json() == {"jids": [first]}
    gone = admin_api.delete(address(f"jobs/{first}/"))
    assert (gone.status_code, gone.json()["code"]) == (404, "no_such_job")
    done = jobs.queues["mail"].put("shop.jobs.Mail")
    pop(jobs.queues["mail"]).complete()
    assert admin_api.delete(address(f"jobs/{done}/")).status_code == 409


def test_queues_are_paused(jobs: Client, admin_api: APIClient) -> None:
    jobs.queues["mail"].put("shop.jobs.Mail")
    pop(jobs.queues["mail"])
    assert admin_api.post(address("queues/mail/pause/")).json()["paused"] is True
    assert jobs.queues["mail"].counts().running == 1
    assert admin_api.post(address("queues/mail/pause/"), {"stop_jobs": True}, format="json").json()["running"] == 0
    assert admin_api.post(address("queues/mail/pause/"), {"reason": "no stamps"}, format="json").status_code == 200
    assert jobs.config.get("mail-pause-reason") == "no stamps"
    assert admin_api.post(address("queues/mail/unpause/")).json()["paused"] is False
    assert jobs.config.get("mail-pause-reason") is None
    assert admin_api.post(address("queues/mail/pause/"), {"reason": "x" * 201}, format="json").status_code == 400
    assert admin_api.post(address("queues/mail/pause/"), {"stop_jobs": "yes"}, format="json").status_code == 400


def test_workers_and_recurring_jobs_are_listed(jobs: Client, admin_api: APIClient) -> None:
    jobs.queues["mail"].put("shop.jobs.Mail")
    jobs.queues["mail"].pop()
    assert admin_api.get(address("workers/")).json() == {"workers": [{"name": "w1", "jobs": 1, "stalled": 0}]}
    for queue in ("a", "b"):
        for n in range(2):
            jobs.queues[queue].recur("shop.jobs.Mail", {"token": "geheim"}, 60, offset=60 * (n + 1), jid=f"{queue}{n}")
    listing = admin_api.get(address("recurring/")).json()
    assert listing["total"] == 4
    assert [job["jid"] for job in listing["jobs"]] == ["a0", "a1", "b0", "b1"]
    assert [job["jid"] for job in admin_api.get(address("recurring/?offset=1&count=2")).json()["jobs"]] == ["a1", "b0"]
    assert [job["jid"] for job in admin_api.get(address("recurring/?queue=b&offset=1")).json()["jobs"]] == ["b1"]
    first = listing["jobs"][0]
    assert (first["interval"], first["data"]) == (60, {"token": "[redacted]"})
    assert first["next"] > 0
    assert admin_api.get(address("jobs/a0/")).status_code == 404


def test_names_of_any_characters_are_found(jobs: Client, admin_api: APIClient) -> None:
    jid = fail(jobs, HOSTILE, HOSTILE, jid="j/1")
    assert admin_api.get(address(f"queues/{name(HOSTILE)}/")).json()["name"] == HOSTILE
    assert admin_api.post(address(f"failed/{name(HOSTILE)}/retry/")).json() == {"jids": [jid]}
    assert admin_api.get(address(f"jobs/{name(jid)}/")).json()["queue"] == HOSTILE
    assert reverse("resty_qless_api:queue", args=[HOSTILE]) == address(f"queues/{name(HOSTILE)}/")


def test_values_of_other_clients_do_not_break_a_response(jobs: Client, admin_api: APIClient) -> None:
    for jid, data in {"a": '{"a": 1e999}', "b": f'{{"b": {"[" * 200 + "]" * 200}}}'}.items():
        jobs.call("put", "w", "mail", jid, "<Klass>", data, 0)
    response = admin_api.get(address("jobs/?queue=mail&state=waiting"))
    assert response.status_code == 200
    assert [job["jid"] for job in response.json()["jobs"]] == ["a", "b"]
    data_by_jid = {}
    for jid in "ab":
        reply = admin_api.get(address(f"jobs/{jid}/"))
        assert reply.status_code == 200, jid
        data_by_jid[jid] = json.loads(reply.content.decode(), parse_constant=pytest.fail)["data"]
    assert data_by_jid["a"] == {"a": None}
    assert "[redacted]" in json.dumps(data_by_jid["b"])


EXAMPLES = "tests.integration.qless.tasks.examples"
ADD = {"klass": f"{EXAMPLES}.add", "data": {"args": [1], "kwargs": {}}}


@pytest.fixture
def with_tasks(jobs: Client, settings: Any) -> Client:
    change_settings(settings, MODULES=[EXAMPLES])
    return jobs


def test_jobs_are_enqueued(with_tasks: Client, admin_api: APIClient) -> None:
    defaults = admin_api.post(address("jobs/"), ADD, format="json")
    assert defaults.status_code == 201
    options = {"queue": "slow", "priority": 7, "retries": 1, "delay": 60, "tags": ["vip"]}
    changed = admin_api.post(address("jobs/"), {**ADD, **options}, format="json").json()
    first, second = with_tasks.jobs.multiget(*defaults.json()["jids"], *changed["jids"])
    assert (first.klass, first.data, first.queue_name, first.state) == (ADD["klass"], ADD["data"], "q", "waiting")
    assert (second.queue_name, second.state, second.priority) == ("slow", "scheduled", 7)
    assert (second.original_retries, second.tags) == (1, ["vip"])
    (_, entry) = LogEntry.objects.order_by("pk")
    assert entry.get_change_message() == f"Created: {ADD['klass']} in slow, over HTTP."


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"klass": "os.system"}, "not a task that workers may run"),
        ({"data": {}}, "must have the form"),
        ({"data": {"args": [], "kwargs": {}}}, "missing a required argument"),
        ({"data": {"args": ["[redacted]"], "kwargs": {}}}, "stands for a hidden value"),
        ({"data": {"args": [reduce(lambda inner, _: [inner], range(600), 1)], "kwargs": {}}}, "nested too deeply"),
        ({"priority": "high"}, "A valid integer is required"),
        ({"worker": "w1"}, "Unknown field"),
    ],
)
def test_jobs_that_cannot_run_are_not_enqueued(
    with_tasks: Client, admin_api: APIClient, changes: dict[str, Any], problem: str
) -> None:
    reply = admin_api.post(address("jobs/"), {**ADD, **changes}, format="json")
    assert reply.status_code == 400
    assert problem in reply.json()["message"]
    assert with_tasks.queues.counts() == []


def test_unavailable_server_is_a_503(settings: Any, admin_api: APIClient) -> None:
    with override_settings(RESTY_DJANGO={"QLESS": {"URL": "redis://127.0.0.1:1/0"}}):
        response = admin_api.get(address("queues/"))
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    assert response.json()["code"] == "unavailable"
    assert "127.0.0.1" not in response.content.decode()


def test_the_schema_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    call_command("spectacular", "--validate", "--fail-on-warn", "--format=openapi-json", f"--file={path}")
    paths = json.loads(path.read_text())["paths"]
    operations = {
        (route, method): operation
        for route, methods in paths.items()
        if route.startswith("/api/jobs/")
        for method, operation in methods.items()
    }
    assert len(operations) == len(urlpatterns) + 2  # two URLs have two methods
    for operation in operations.values():
        assert operation["summary"]
        assert {"4XX", "5XX"} <= set(operation["responses"])
    search = operations["/api/jobs/jobs/", "get"]
    assert {parameter["name"] for parameter in search["parameters"]} == set(JobsQuerySerializer().fields)


def test_without_the_package_redis_the_response_names_it(admin_api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(RESTY_DJANGO={}):  # makes another client
        monkeypatch.setitem(sys.modules, "redis", None)
        response = admin_api.get(address("queues/"))
        assert APIClient().get(address("queues/")).status_code == 403
    assert response.status_code == 503
    assert response.json()["code"] == "unavailable"
    assert 'Run: pip install "resty-django[redis]".' in response.json()["message"]
