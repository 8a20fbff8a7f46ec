"""The job queue over HTTP, on a real server."""

from __future__ import annotations

import json
import sys
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
from resty_django.qless.api import views
from resty_django.qless.api.urls import urlpatterns
from resty_django.qless.clients import graph
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


def test_statistics_of_a_queue(jobs: Client, admin_api: APIClient) -> None:
    queue = jobs.queues["mail"]
    queue.put("shop.jobs.Mail")
    pop(queue).complete()
    statistics = admin_api.get(address("queues/mail/stats/")).json()
    assert statistics["run"]["count"] == statistics["wait"]["count"] == 1
    assert len(statistics["run"]["histogram"]) == 148
    assert admin_api.get(address("queues/mail/stats/?date=2020-01-01")).json()["run"]["count"] == 0
    assert admin_api.get(address("queues/mail/stats/?date=yesterday")).status_code == 400
    minutes = admin_api.get(address("queues/mail/throughput/")).json()["minutes"]
    assert len(minutes) == 60
    assert sum(minutes) == 1


def test_jobs_of_a_state_are_paged(jobs: Client, admin_api: APIClient) -> None:
    queue = jobs.queues["mail"]
    jids = [queue.put("shop.jobs.Mail", priority=-n) for n in range(7)]
    first = admin_api.get(address("queues/mail/jobs/?count=3")).json()
    second = admin_api.get(address("queues/mail/jobs/?count=3&offset=3")).json()
    assert [job["jid"] for job in first["jobs"] + second["jobs"]] == jids[:6]
    assert first["total"] == 7
    queue.pop()
    running = admin_api.get(address("queues/mail/jobs/?state=running")).json()
    assert [(job["jid"], job["worker"]) for job in running["jobs"]] == [(jids[0], "w1")]
    for wrong in ("state=nonsense", "count=0", "count=101", "offset=-1"):
        assert admin_api.get(address(f"queues/mail/jobs/?{wrong}")).status_code == 400, wrong


def test_a_search_goes_on_with_its_cursor(jobs: Client, admin_api: APIClient) -> None:
    expected = {jobs.queues["mail"].put("shop.jobs.Mail") for _ in range(5)}
    jobs.queues["mail"].put("shop.jobs.Other")
    jids, cursor = set(), ""
    for _ in range(100):
        search = admin_api.get(address("jobs/"), {"klass": "shop.jobs.Mail", "count": 2, "cursor": cursor}).json()
        jids |= {job["jid"] for job in search["jobs"]}
        cursor = search["cursor"]
        if not cursor:
            break
    assert jids == expected
    assert admin_api.get(address("jobs/?state=nonsense")).status_code == 400


def test_tags_are_found(jobs: Client, admin_api: APIClient) -> None:
    jids = [jobs.queues["mail"].put("shop.jobs.Mail", tags=["news letter"]) for _ in range(3)]
    first = admin_api.get(address("jobs/"), {"tag": "news letter", "count": 2}).json()
    second = admin_api.get(address("jobs/"), {"tag": "news letter", "count": 2, "cursor": first["cursor"]}).json()
    assert [job["jid"] for job in first["jobs"] + second["jobs"]] == jids
    assert second["cursor"] == ""


def test_job_detail_is_redacted(jobs: Client, admin_api: APIClient) -> None:
    data = {"to": "a@example.org", "smtp": [{"Password": "geheim", "user": "shop"}], "API-Key": "geheim"}
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
    group = admin_api.get(address("failed/mail-ValueError/?count=2")).json()
    assert group["total"] == 3
    assert len(group["jobs"]) == 2
    assert group["jobs"][0]["failure"]["group"] == "mail-ValueError"
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
    jid = jobs.queues["mail"].put("shop.jobs.Mail")
    jobs.queues["mail"].pop()
    assert admin_api.get(address("workers/")).json() == {"workers": [{"name": "w1", "jobs": 1, "stalled": 0}]}
    assert admin_api.get(address("workers/w1/")).json() == {"name": "w1", "jobs": [jid], "stalled": []}
    for queue in ("a", "b"):
        for n in range(2):
            jobs.queues[queue].recur("shop.jobs.Mail", {"token": "geheim"}, 60, offset=60 * (n + 1), jid=f"{queue}{n}")
    listing = admin_api.get(address("recurring/")).json()
    assert listing["total"] == 4
    assert [job["jid"] for job in listing["jobs"]] == ["a0", "a1", "b0", "b1"]
    assert [job["jid"] for job in admin_api.get(address("recurring/?offset=1&count=2")).json()["jobs"]] == ["a1", "b0"]
    assert [job["jid"] for job in admin_api.get(address("recurring/?queue=b&offset=1")).json()["jobs"]] == ["b1"]
    detail = admin_api.get(address("recurring/a0/")).json()
    assert (detail["interval"], detail["data"]) == (60, {"token": "[redacted]"})
    assert detail["next"] > 0
    assert admin_api.get(address("jobs/a0/")).status_code == 404
    assert admin_api.get(address(f"recurring/{jid}/")).status_code == 404


def test_names_of_any_characters_are_found(jobs: Client, admin_api: APIClient) -> None:
    jid = fail(jobs, HOSTILE, HOSTILE, jid="j/1")
    assert admin_api.get(address(f"queues/{name(HOSTILE)}/")).json()["name"] == HOSTILE
    assert admin_api.get(address(f"failed/{name(HOSTILE)}/")).json()["total"] == 1
    assert admin_api.get(address(f"jobs/{name(jid)}/")).json()["queue"] == HOSTILE
    assert reverse("resty_qless_api:queue", args=[HOSTILE]) == address(f"queues/{name(HOSTILE)}/")


def test_values_of_other_clients_do_not_break_a_response(jobs: Client, admin_api: APIClient) -> None:
    for jid, data in {"a": '{"a": 1e999}', "b": f'{{"b": {"[" * 200 + "]" * 200}}}'}.items():
        jobs.call("put", "w", "mail", jid, "<Klass>", data, 0)
    response = admin_api.get(address("queues/mail/jobs/"))
    assert response.status_code == 200
    assert [job["jid"] for job in response.json()["jobs"]] == ["a", "b"]
    data_by_jid = {}
    for jid in "ab":
        reply = admin_api.get(address(f"jobs/{jid}/"))
        assert reply.status_code == 200, jid
        data_by_jid[jid] = json.loads(reply.content.decode(), parse_constant=pytest.fail)["data"]
    assert data_by_jid["a"] == {"a": None}
    assert "[redacted]" in json.dumps(data_by_jid["b"])


# --- groups and connected jobs ----------------------------------------------------------------------------------------


def fill_group(jobs: Client, group: str = "g") -> None:
    """Put a chain whose last step is a member of a group, a failed member, and a job that waits for the group."""
    mail = jobs.queues["mail"]
    jobs.groups.open(group, "Import")
    fail(jobs, jid="broken", outcome={"group": group})
    mail.put("shop.jobs.Fetch", jid="first")
    mail.put("shop.jobs.Store", jid="last", depends=["first"], outcome={"group": group, "policy": "fail"})
    mail.put("shop.jobs.Publish", jid="body", depends=[group], outcome={"policy": "fail"})
    jobs.groups.close(group)


def test_groups_and_members_are_listed(jobs: Client, admin_api: APIClient) -> None:
    assert admin_api.get(address("groups/")).json() == {"total": 0, "groups": []}
    fill_group(jobs)
    jobs.groups.open("other", "")
    reply = admin_api.get(address("groups/?count=1&offset=1")).json()
    (listed,) = reply["groups"]
    assert reply["total"] == 2
    assert listed == admin_api.get(address("groups/g/")).json()
    assert listed.pop("created_at") > 0
    assert listed == {
        **{"id": "g", "name": "Import", "state": "running", "reason": "broken", "incomplete": False, "ended_at": None},
        **{"total": 2, "done": 0, "failed": 1, "skipped": 0, "canceled": 0, "left": 1},
    }
    members = [{"jid": "broken", "state": "failed"}, {"jid": "last", "state": "depends"}]
    assert admin_api.get(address("groups/g/jobs/")).json() == {"total": 2, "jobs": members}
    assert admin_api.get(address("groups/g/jobs/?offset=1")).json() == {"total": 2, "jobs": members[1:]}
    for path in ("groups/none/", "groups/none/jobs/"):
        reply = admin_api.get(address(path))
        assert (reply.status_code, reply.json()["code"]) == (404, "no_such_group")


def test_groups_are_retried_and_canceled(jobs: Client, admin_api: APIClient) -> None:
    fill_group(jobs, HOSTILE)
    assert admin_api.post(address(f"groups/{name(HOSTILE)}/retry/")).json() == {"count": 1}
    assert [job.state for job in jobs.jobs.multiget("broken", "body")] == ["waiting", "depends"]
    assert admin_api.post(address(f"groups/{name(HOSTILE)}/cancel/")).json() == {"count": 3}
    assert [job.state for job in jobs.jobs.multiget("broken", "first", "last", "body")] == ["failed"]
    assert admin_api.post(address("groups/none/cancel/")).json()["code"] == "no_such_group"


def test_connected_jobs(jobs: Client, admin_api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_group(jobs)
    graph = admin_api.get(address("jobs/last/graph/")).json()
    connected = {job["jid"]: job for job in graph["jobs"]}
    assert connected.keys() == {"broken", "first", "last", "body"}
    assert connected["last"] == {
        **{"jid": "last", "klass": "shop.jobs.Store", "state": "depends", "queue": "mail"},
        **{"dependencies": ["first"], "groups": ["g"], "blocked": None},
    }
    assert connected["body"]["blocked"] == "broken"
    assert [group["id"] for group in graph["groups"]] == ["g"]
    assert admin_api.post(address("jobs/first/graph/retry/")).json() == {"count": 1}
    assert [job.state for job in jobs.jobs.multiget("broken", "body")] == ["waiting", "depends"]
    monkeypatch.setattr(views, "MAX_CONNECTED", 3)
    reply = admin_api.post(address("jobs/first/graph/cancel/"))
    assert (reply.status_code, reply.json()["code"]) == (409, "too_large")
    monkeypatch.setattr(views, "MAX_CONNECTED", 4)
    assert admin_api.post(address("jobs/first/graph/cancel/")).json() == {"count": 4}
    assert jobs.jobs.multiget("broken", "first", "last", "body") == []
    assert admin_api.post(address("jobs/first/graph/cancel/")).status_code == 404


def test_an_interrupted_operation_is_logged(
    jobs: Client, admin_api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs that wait for each other can only be canceled together; the third one is canceled before them."""
    for jid, other in (("a", None), ("b", "a"), ("a", "b"), ("c", "b")):
        jobs.queues["mail"].put("shop.jobs.Mail", jid=jid, depends=other and [other])
    monkeypatch.setattr(graph, "JOBS_PER_CALL", 1)
    assert admin_api.post(address("jobs/a/graph/cancel/")).json()["code"] == "dependency"
    assert {job.jid for job in jobs.jobs.multiget("a", "b", "c")} == {"a", "b"}
    (entry,) = LogEntry.objects.all()
    assert "Canceling all connected jobs was interrupted; some jobs may have changed" in entry.change_message


def test_stuck_jobs_are_listed(jobs: Client, admin_api: APIClient) -> None:
    jobs.queues["mail"].put("shop.jobs.Mail", jid="loop", depends=["loop"])
    loop = {"jid": "loop", "queue": "mail", "other": "loop", "reason": "itself"}
    assert admin_api.get(address("stuck/?queue=mail")).json() == {"jobs": [loop], "cursor": ""}
    assert admin_api.get(address("stuck/?queue=mail&cursor=1")).json() == {"jobs": [], "cursor": ""}
    assert admin_api.get(address("stuck/")).status_code == 400


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
    operations = [
        operation
        for route, methods in paths.items()
        if route.startswith("/api/jobs/")
        for operation in methods.values()
    ]
    assert len(operations) == len(urlpatterns) + 1  # one URL has GET and DELETE
    for operation in operations:
        assert operation["summary"]
        assert {"400", "403", "503"} <= set(operation["responses"])


def test_without_the_package_redis_the_answer_names_it(admin_api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with override_settings(RESTY_DJANGO={}):  # makes another client
        monkeypatch.setitem(sys.modules, "redis", None)
        response = admin_api.get(address("queues/"))
        assert APIClient().get(address("queues/")).status_code in {401, 403}
    assert response.status_code == 503
    assert response.json()["code"] == "unavailable"
    assert 'Run: pip install "resty-django[redis]".' in response.json()["message"]
