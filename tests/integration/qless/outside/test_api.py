"""The job queue over HTTP, on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import override_settings
from django.urls import get_resolver, reverse
from rest_framework.test import APIClient

from resty_django.qless import Client, Job
from resty_django.qless.api.urls import urlpatterns

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

HOSTILE = 'q/?"<b>%é'


def address(path: str) -> str:
    return f"/api/jobs/{path}"


def name(text: str) -> str:
    return quote(quote(text, safe=""), safe="")


def fail(jobs: Client, queue: str = "mail", group: str = "mail-ValueError", **options: Any) -> str:
    """The jid of a job that has failed."""
    jid = jobs.queues[queue].put("shop.jobs.Mail", {"to": "a@example.org"}, **options)
    job = jobs.queues[queue].pop()
    assert isinstance(job, Job)
    assert job.jid == jid
    job.fail(group, "ValueError: no such address")
    return jid


def test_queues_are_told(jobs: Client, boss: APIClient) -> None:
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
    assert boss.get(address("queues/")).json() == {"queues": [expected]}
    assert boss.get(address("queues/mail/")).json() == expected
    assert boss.get(address("queues/never/")).json()["waiting"] == 0


def test_an_empty_server_is_told(jobs: Client, boss: APIClient) -> None:
    for path, key in {
        "queues/": "queues",
        "workers/": "workers",
        "failed/": "groups",
        "recurring/": "jobs",
        "jobs/": "jobs",
    }.items():
        assert boss.get(address(path)).json()[key] == [], path


def test_statistics_are_told(jobs: Client, boss: APIClient) -> None:
    queue = jobs.queues["mail"]
    queue.put("shop.jobs.Mail")
    job = queue.pop()
    assert job is not None
    job.complete()
    told = boss.get(address("queues/mail/stats/")).json()
    assert told["run"]["count"] == told["wait"]["count"] == 1
    assert len(told["run"]["histogram"]) == 148
    assert boss.get(address("queues/mail/stats/?date=2020-01-01")).json()["run"]["count"] == 0
    assert boss.get(address("queues/mail/stats/?date=yesterday")).status_code == 400
    minutes = boss.get(address("queues/mail/throughput/")).json()["minutes"]
    assert len(minutes) == 60
    assert sum(minutes) == 1


def test_jobs_are_told_by_state_page_by_page(jobs: Client, boss: APIClient) -> None:
    queue = jobs.queues["mail"]
    jids = [queue.put("shop.jobs.Mail", priority=-n) for n in range(7)]
    first = boss.get(address("queues/mail/jobs/?count=3")).json()
    second = boss.get(address("queues/mail/jobs/?count=3&offset=3")).json()
    assert [job["jid"] for job in first["jobs"] + second["jobs"]] == jids[:6]
    assert first["total"] == 7
    queue.pop()
    running = boss.get(address("queues/mail/jobs/?state=running")).json()
    assert [(job["jid"], job["worker"]) for job in running["jobs"]] == [(jids[0], "w1")]
    for wrong in ("state=nonsense", "count=0", "count=101", "offset=-1"):
        assert boss.get(address(f"queues/mail/jobs/?{wrong}")).status_code == 400, wrong


def test_a_search_goes_on_with_its_cursor(jobs: Client, boss: APIClient) -> None:
    wanted = {jobs.queues["mail"].put("shop.jobs.Mail") for _ in range(5)}
    jobs.queues["mail"].put("shop.jobs.Other")
    found, cursor = set(), ""
    for _ in range(100):
        part = boss.get(address("jobs/"), {"klass": "shop.jobs.Mail", "count": 2, "cursor": cursor}).json()
        found |= {job["jid"] for job in part["jobs"]}
        cursor = part["cursor"]
        if not cursor:
            break
    assert found == wanted
    assert boss.get(address("jobs/?state=nonsense")).status_code == 400


def test_tags_are_found(jobs: Client, boss: APIClient) -> None:
    jids = [jobs.queues["mail"].put("shop.jobs.Mail", tags=["news letter"]) for _ in range(3)]
    first = boss.get(address("jobs/"), {"tag": "news letter", "count": 2}).json()
    second = boss.get(address("jobs/"), {"tag": "news letter", "count": 2, "cursor": first["cursor"]}).json()
    assert [job["jid"] for job in first["jobs"] + second["jobs"]] == jids
    assert second["cursor"] == ""


def test_one_job_is_told_without_its_secrets(jobs: Client, boss: APIClient) -> None:
    data = {"to": "a@example.org", "smtp": [{"Password": "geheim", "user": "shop"}], "API-Key": "geheim"}
    jid = jobs.queues["mail"].put("shop.jobs.Mail", data, tags=["t"])
    job = jobs.queues["mail"].pop()
    assert job is not None
    job.log("looked", {"token": "geheim", "at": "x"})
    job.progress(0.5, "half")
    job.complete(result={"secret": "geheim", "sent": 1})
    response = boss.get(address(f"jobs/{jid}/"))
    told = response.json()
    assert "geheim" not in response.content.decode()
    assert told["data"] == {
        "to": "a@example.org",
        "smtp": [{"Password": "[redacted]", "user": "shop"}],
        "API-Key": "[redacted]",
    }
    assert told["result"] == {"secret": "[redacted]", "sent": 1}
    assert (told["state"], told["tags"]) == ("complete", ["t"])
    assert [entry["what"] for entry in told["history"]] == ["put", "popped", "looked", "done"]


def hides_more(data: Any) -> Any:
    return {**data, "to": "somebody"}


def fails(data: Any) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("hook", "shown"), [("hides_more", {"to": "somebody", "password": "[redacted]"}), ("fails", "[redacted]")]
)
def test_a_hook_hides_more(jobs: Client, boss: APIClient, settings: Any, hook: str, shown: Any) -> None:
    from resty_django.qless import redact

    setattr(redact, hook, globals()[hook])
    jid = jobs.queues["mail"].put("shop.jobs.Mail", {"to": "a@example.org", "password": "geheim"})
    qless = {**settings.RESTY_DJANGO["QLESS"], "REDACTOR": f"resty_django.qless.redact.{hook}"}
    try:
        with override_settings(RESTY_DJANGO={"QLESS": qless}):
            assert boss.get(address(f"jobs/{jid}/")).json()["data"] == shown
    finally:
        delattr(redact, hook)


def test_failures_are_told_and_retried(jobs: Client, boss: APIClient) -> None:
    jids = [fail(jobs) for _ in range(3)]
    assert boss.get(address("failed/")).json() == {"groups": [{"group": "mail-ValueError", "count": 3}]}
    group = boss.get(address("failed/mail-ValueError/?count=2")).json()
    assert group["total"] == 3
    assert len(group["jobs"]) == 2
    assert group["jobs"][0]["failure"]["group"] == "mail-ValueError"
    assert boss.get(address(f"jobs/{jids[0]}/")).json()["failure"]["message"] == "ValueError: no such address"
    assert boss.post(address(f"jobs/{jids[0]}/retry/")).json() == {"jids": [jids[0]]}
    again = boss.post(address(f"jobs/{jids[0]}/retry/"))
    assert (again.status_code, again.json()["code"]) == (409, "not_possible")
    asked = {"delay": 100, "spread": 100}
    assert set(boss.post(address("failed/mail-ValueError/retry/"), asked, format="json").json()["jids"]) == set(
        jids[1:]
    )
    counts = jobs.queues["mail"].counts()
    assert (counts.waiting, counts.scheduled) == (1, 2)
    assert jobs.jobs.failed() == {}


def test_a_retried_job_goes_to_another_queue_if_asked(jobs: Client, boss: APIClient) -> None:
    jid = fail(jobs)
    assert boss.post(address(f"jobs/{jid}/retry/"), {"queue": "slow"}, format="json").status_code == 200
    assert jobs.queues["slow"].length() == 1
    assert boss.post(address(f"jobs/{jid}/retry/"), {"que": "x"}, format="json").status_code == 400


def test_jobs_are_canceled(jobs: Client, boss: APIClient) -> None:
    first = jobs.queues["mail"].put("shop.jobs.Mail")
    second = jobs.queues["mail"].put("shop.jobs.Mail", depends=[first])
    refused = boss.delete(address(f"jobs/{first}/"))
    assert (refused.status_code, refused.json()["code"]) == (409, "dependency")
    assert boss.delete(address(f"jobs/{second}/")).json() == {"jids": [second]}
    assert boss.delete(address(f"jobs/{first}/")).json() == {"jids": [first]}
    gone = boss.delete(address(f"jobs/{first}/"))
    assert (gone.status_code, gone.json()["code"]) == (404, "no_such_job")
    done = jobs.queues["mail"].put("shop.jobs.Mail")
    job = jobs.queues["mail"].pop()
    assert job is not None
    job.complete()
    assert boss.delete(address(f"jobs/{done}/")).status_code == 409


def test_queues_are_paused(jobs: Client, boss: APIClient) -> None:
    jobs.queues["mail"].put("shop.jobs.Mail")
    job = jobs.queues["mail"].pop()
    assert job is not None
    assert boss.post(address("queues/mail/pause/")).json()["paused"] is True
    assert jobs.queues["mail"].counts().running == 1
    assert boss.post(address("queues/mail/pause/"), {"stop_jobs": True}, format="json").json()["running"] == 0
    assert boss.post(address("queues/mail/pause/"), {"reason": "no stamps"}, format="json").status_code == 200
    assert jobs.config.get("mail-pause-reason") == "no stamps"
    assert boss.post(address("queues/mail/unpause/")).json()["paused"] is False
    assert jobs.config.get("mail-pause-reason") is None
    assert boss.post(address("queues/mail/pause/"), {"reason": "x" * 201}, format="json").status_code == 400
    assert boss.post(address("queues/mail/pause/"), {"stop_jobs": "yes"}, format="json").status_code == 400


def test_workers_and_recurring_jobs_are_told(jobs: Client, boss: APIClient) -> None:
    jid = jobs.queues["mail"].put("shop.jobs.Mail")
    jobs.queues["mail"].pop()
    assert boss.get(address("workers/")).json() == {"workers": [{"name": "w1", "jobs": 1, "stalled": 0}]}
    assert boss.get(address("workers/w1/")).json() == {"name": "w1", "jobs": [jid], "stalled": []}
    for queue in ("a", "b"):
        for n in range(2):
            jobs.queues[queue].recur("shop.jobs.Mail", {"token": "geheim"}, 60, offset=60 * (n + 1), jid=f"{queue}{n}")
    told = boss.get(address("recurring/")).json()
    assert told["total"] == 4
    assert [job["jid"] for job in told["jobs"]] == ["a0", "a1", "b0", "b1"]
    assert [job["jid"] for job in boss.get(address("recurring/?offset=1&count=2")).json()["jobs"]] == ["a1", "b0"]
    assert [job["jid"] for job in boss.get(address("recurring/?queue=b&offset=1")).json()["jobs"]] == ["b1"]
    one = boss.get(address("recurring/a0/")).json()
    assert (one["interval"], one["data"]) == (60, {"token": "[redacted]"})
    assert one["next"] > 0
    assert boss.get(address("jobs/a0/")).status_code == 404
    assert boss.get(address(f"recurring/{jid}/")).status_code == 404


def test_names_of_any_characters_are_found(jobs: Client, boss: APIClient) -> None:
    jid = fail(jobs, HOSTILE, HOSTILE, jid="j/1")
    assert boss.get(address(f"queues/{name(HOSTILE)}/")).json()["name"] == HOSTILE
    assert boss.get(address(f"failed/{name(HOSTILE)}/")).json()["total"] == 1
    assert boss.get(address(f"jobs/{name(jid)}/")).json()["queue"] == HOSTILE
    assert reverse("resty_qless_api:queue", args=[HOSTILE]) == address(f"queues/{name(HOSTILE)}/")


def test_what_other_programs_wrote_breaks_nothing(jobs: Client, boss: APIClient) -> None:
    for jid, data in {"a": '{"a": 1e999}', "b": "[" * 200 + "]" * 200}.items():
        jobs.call("put", "w", "mail", jid, "<Klass>", data, 0)
    response = boss.get(address("queues/mail/jobs/"))
    assert response.status_code == 200
    assert [job["jid"] for job in response.json()["jobs"]] == ["a", "b"]
    shown = {}
    for jid in "ab":
        told = boss.get(address(f"jobs/{jid}/"))
        assert told.status_code == 200, jid
        shown[jid] = json.loads(told.content.decode(), parse_constant=pytest.fail)["data"]
    assert shown["a"] == {"a": None}
    assert "[redacted]" in json.dumps(shown["b"])


# --- who may --------------------------------------------------------------------------------------------------------

NEEDED = {
    ("get", "queues/"): "job.view_job",
    ("get", "queues/mail/"): "job.view_job",
    ("get", "queues/mail/stats/"): "job.view_job",
    ("get", "queues/mail/throughput/"): "job.view_job",
    ("get", "queues/mail/jobs/"): "job.view_job",
    ("post", "queues/mail/pause/"): "job.pause_queue",
    ("post", "queues/mail/unpause/"): "job.pause_queue",
    ("get", "jobs/"): "job.view_job",
    ("get", "jobs/j/"): "job.view_job",
    ("delete", "jobs/j/"): "job.cancel_job",
    ("post", "jobs/j/retry/"): "job.retry_job",
    ("get", "failed/"): "job.view_job",
    ("get", "failed/g/"): "job.view_job",
    ("post", "failed/g/retry/"): "job.retry_job",
    ("get", "workers/"): "job.view_job",
    ("get", "workers/w/"): "job.view_job",
    ("get", "recurring/"): "job.view_job",
    ("get", "recurring/j/"): "job.view_job",
}


def test_each_address_needs_its_permission(jobs: Client, person: Callable[..., APIClient]) -> None:
    all_of_them = sorted(set(NEEDED.values()))
    for (method, path), wanted in NEEDED.items():
        others = person(*[each for each in all_of_them if each != wanted])
        assert getattr(others, method)(address(path)).status_code == 403, (method, path)
        assert getattr(person(wanted), method)(address(path)).status_code in (200, 404), (method, path)
        assert getattr(APIClient(), method)(address(path)).status_code in (401, 403), (method, path)


def test_that_list_is_whole() -> None:
    routes = {str(pattern.pattern) for pattern in urlpatterns}
    assert len(routes) == len({path for _, path in NEEDED})
    assert get_resolver()


def test_a_signed_in_browser_needs_a_csrf_token(jobs: Client) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("boss"))
    assert client.get(address("queues/")).status_code == 200
    assert client.post(address("queues/mail/pause/")).status_code == 403
    assert not jobs.queues["mail"].paused()


def test_a_server_that_is_down_is_told(settings: Any, boss: APIClient) -> None:
    with override_settings(RESTY_DJANGO={"QLESS": {"URL": "redis://127.0.0.1:1/0"}}):
        response = boss.get(address("queues/"))
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    assert response.json()["code"] == "unavailable"
    assert "127.0.0.1" not in response.content.decode()


def test_the_schema_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    call_command("spectacular", "--validate", "--fail-on-warn", "--format=openapi-json", f"--file={path}")
    told = json.loads(path.read_text())["paths"]
    operations = [
        operation for at, methods in told.items() if at.startswith("/api/jobs/") for operation in methods.values()
    ]
    assert len(operations) == len(NEEDED)
    for operation in operations:
        assert operation["summary"]
        assert {"400", "403", "503"} <= set(operation["responses"])
