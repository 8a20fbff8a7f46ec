"""Changes over HTTP are in the admin's history; a history that fails does not affect them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.test import Client as Browser
from redis import Redis
from rest_framework.permissions import AllowAny
from rest_framework.test import APIClient

from resty_django.api.views import JsonView
from resty_django.qless import Client
from resty_django.qless.models import token
from tests import processes
from tests.integration.qless.api.test_views import address, name
from tests.integration.qless.conftest import pop

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

ROOT = Path(__file__).resolve().parents[4]
HOSTILE = 'q/?"<b>%é\u202e'


def fail(jobs: Client, jid: str, queue: str = "mail", data: Any = None) -> None:
    jobs.queues[queue].put("shop.jobs.Mail", data or {}, jid=jid)
    job = pop(jobs.queues[queue])
    assert job.jid == jid
    job.fail("mail-ValueError", "no such address")


def entries() -> list[tuple[str, str, str]]:
    """Return model and key of the object, and the message, of each entry."""
    rows = LogEntry.objects.select_related("content_type").order_by("pk")
    return [(row.content_type.model, row.object_id, row.get_change_message()) for row in rows]  # type: ignore[union-attr]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if record.name in ("resty_django.qless", "resty_django.admin")
    ]


@pytest.fixture
def noted(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "resty_django.qless")
    return caplog


CHANGES: list[tuple[str, str, dict[str, Any], tuple[str, str, str]]] = [
    ("post", "queues/mail/pause/", {}, ("queue", "mail", "Paused, over HTTP.")),
    (
        "post",
        "queues/mail/pause/",
        {"stop_jobs": True},
        ("queue", "mail", "Paused, its running jobs stopped, over HTTP."),
    ),
    ("post", "queues/mail/pause/", {"reason": "ink"}, ("queue", "mail", "Paused (ink), over HTTP.")),
    ("post", "queues/mail/unpause/", {}, ("queue", "mail", "Unpaused, over HTTP.")),
    ("delete", "jobs/waiting/", {}, ("job", "waiting", "Canceled, over HTTP.")),
    ("post", "jobs/failed-1/retry/", {}, ("job", "failed-1", "Retried, over HTTP.")),
    (
        "post",
        "jobs/failed-1/retry/",
        {"queue": "slow", "delay": 60},
        ("job", "failed-1", "Retried in the queue slow after 60 s, over HTTP."),
    ),
    (
        "post",
        "failed/mail-ValueError/retry/",
        {"count": 2},
        ("failuregroup", "mail-ValueError", "Retried 2 of 3, over HTTP."),
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "entry"), CHANGES, ids=lambda value: value if "/" in value else "")
def test_every_change_is_in_the_history(
    jobs: Client,
    admin_api: APIClient,
    noted: pytest.LogCaptureFixture,
    method: str,
    path: str,
    body: dict[str, Any],
    entry: tuple[str, str, str],
) -> None:
    for n in range(3):
        fail(jobs, f"failed-{n}")
    jobs.queues["mail"].put("shop.jobs.Mail", jid="waiting")
    assert getattr(admin_api, method)(address(path), body, format="json").status_code == 200
    assert entries() == [entry]
    (written,) = LogEntry.objects.all()
    assert (written.user.get_username(), written.action_flag, written.object_repr) == ("admin", CHANGE, entry[1])
    (line,) = lines(noted)
    assert line.startswith(f"{entry[2].removesuffix('.')} by admin: {entry[0]} '{entry[1]}'")


def test_admin_history_shows_changes_over_http(jobs: Client, admin_api: APIClient) -> None:
    fail(jobs, "failed-1")
    admin_api.post(address("jobs/failed-1/retry/"))
    browser = Browser()
    browser.force_login(User.objects.get(username="admin"))
    assert browser.post("/admin/resty_qless/job/failed-1/priority/", {"priority": "9"}).status_code == 302
    history = browser.get("/admin/resty_qless/job/failed-1/history/").content.decode()
    assert history.index("Retried, over HTTP.") < history.index("Change the priority 9.")
    recent = browser.get("/admin/").content.decode()
    assert '<a href="/admin/resty_qless/job/failed-1/change/">failed-1</a>' in recent


def test_refused_requests_are_not_in_the_history(
    jobs: Client, admin_api: APIClient, person: Callable[..., APIClient], noted: pytest.LogCaptureFixture
) -> None:
    jobs.queues["mail"].put("shop.jobs.Mail", jid="waiting")
    assert admin_api.post(address("jobs/waiting/retry/")).status_code == 409
    assert admin_api.delete(address("jobs/never/")).status_code == 404
    assert admin_api.post(address("queues/mail/pause/"), {"stop_jobs": "x"}, format="json").status_code == 400
    assert admin_api.post(address("failed/none/retry/")).json() == {"jids": []}
    assert person("job.view_job").delete(address("jobs/waiting/")).status_code == 403
    assert entries() == []
    assert lines(noted) == []


def test_names_of_any_characters_and_length_are_noted(jobs: Client, admin_api: APIClient) -> None:
    for queue_name in (HOSTILE, "n" * 3000, "nul \x00"):
        LogEntry.objects.all().delete()
        assert admin_api.post(address(f"queues/{name(queue_name)}/pause/")).status_code == 200
        assert entries() == [("queue", token(queue_name), "Paused, over HTTP.")]
    fail(jobs, "failed-1")
    body = {"queue": "x" * 3000 + "\u202e"}
    assert admin_api.post(address("jobs/failed-1/retry/"), body, format="json").status_code == 200
    message = entries()[-1][2]
    assert len(message) == 2001
    assert message.endswith("x…")
    jobs.queues["mail"].put("shop.jobs.Mail", jid="failed-2")
    body = {"queue": "\u202e"}
    fail(jobs, "failed-3", queue="other")
    assert admin_api.post(address("jobs/failed-3/retry/"), body, format="json").status_code == 200
    assert entries()[-1][2] == "Retried in the queue \\u202e, over HTTP."


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("atomic", [False, True])
def test_changes_before_an_error_are_in_the_history(
    jobs: Client,
    admin_api: APIClient,
    noted: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    atomic: bool,
) -> None:
    """Also if the request is one transaction, which the error rolls back."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic)
    fail(jobs, "long", data={"text": "x" * 100})
    fail(jobs, "short")
    jobs.config.set("max-payload", 50)
    assert admin_api.post(address("failed/mail-ValueError/retry/")).status_code == 400
    assert jobs.queues["mail"].jobs.ready() == ["short"]
    assert entries() == [("failuregroup", "mail-ValueError", "Retried 1 of 2, over HTTP.")]
    assert lines(noted) == ["Retried 1 of 2, over HTTP by admin: failuregroup 'mail-ValueError', 'short'"]


# --- without a user of the site -------------------------------------------------------------------------------------


class Stateless:
    """A caller that is only known by a token."""

    is_authenticated = is_active = True

    def has_perm(self, permission: str) -> bool:
        return True


class Named(Stateless):
    """A caller with the primary key of another site's user."""

    pk = id = 1

    def __init__(self, pk: int) -> None:
        self.pk = self.id = pk

    def get_username(self) -> str:
        return "a service"


def deleted() -> User:
    user = User.objects.create_superuser("gone")
    User.objects.filter(pk=user.pk).delete()
    return user


@pytest.mark.parametrize(
    ("user", "called"),
    [
        (AnonymousUser, "an unknown user"),
        (Stateless, "Stateless"),
        (lambda: Named(User.objects.get(username="admin").pk), "a service"),
        (lambda: User(username="unsaved", is_superuser=True), "unsaved"),
        (deleted, "gone"),
    ],
    ids=["anonymous", "token", "number", "unsaved", "deleted"],
)
@pytest.mark.django_db(transaction=True)
def test_callers_without_a_user_row_are_only_logged(
    jobs: Client, noted: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, user: Any, called: str
) -> None:
    User.objects.create_superuser("admin")
    monkeypatch.setattr(JsonView, "permission_classes", (AllowAny,))
    client = APIClient()
    client.force_authenticate(user())
    assert client.post(address("queues/mail/pause/")).status_code == 200
    assert jobs.queues["mail"].paused()
    assert entries() == []
    (line,) = lines(noted)
    assert line.startswith("Paused, over HTTP by ")
    assert called in line
    assert line.endswith(": queue 'mail'")


def test_unauthenticated_user_may_be_none(
    jobs: Client, noted: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(JsonView, "permission_classes", (AllowAny,))
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "UNAUTHENTICATED_USER": None}
    assert APIClient().post(address("queues/mail/pause/")).status_code == 200
    assert entries() == []
    assert lines(noted) == ["Paused, over HTTP by an unknown user: queue 'mail'"]


# --- without a history ----------------------------------------------------------------------------------------------


def test_database_error_in_the_history_is_only_logged(
    jobs: Client, admin_api: APIClient, noted: pytest.LogCaptureFixture
) -> None:
    def elsewhere(execute: Any, sql: str, *arguments: Any) -> Any:
        return execute(sql.replace("django_admin_log", "no_such_table"), *arguments)

    with connection.execute_wrapper(elsewhere):
        assert admin_api.post(address("queues/mail/pause/")).json()["paused"] is True
    done, trouble = lines(noted)
    assert done == "Paused, over HTTP by admin: queue 'mail'"
    assert trouble.startswith(
        "Done, but not in the history: resty_qless.queue 'mail' (mail): Paused, over HTTP. By admin."
    )
    assert User.objects.filter(username="admin").exists()  # the transaction around goes on


SITE = """
import django
from django.conf import settings

settings.configure(
    SECRET_KEY="x",
    ALLOWED_HOSTS=["testserver"],
    INSTALLED_APPS=[
        "django.contrib.auth", "django.contrib.contenttypes", "rest_framework", "resty_django", "resty_django.qless",
    ],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    ROOT_URLCONF="__main__",
    RESTY_DJANGO={"QLESS": {"URL": URL}},
)
django.setup()

import logging
from django.core.management import call_command
from django.contrib.auth.models import User
from django.urls import include, path
from rest_framework.test import APIClient

urlpatterns = [path("api/jobs/", include("resty_django.qless.api.urls"))]
logging.basicConfig(level="INFO", format="%(name)s: %(message)s")
call_command("migrate", verbosity=0)
client = APIClient()
client.force_authenticate(User.objects.create_superuser("admin"))
print(client.post("/api/jobs/queues/mail/pause/").status_code)
"""


def test_site_without_admin_only_logs(jobs: Client, valkey: Redis, valkey_url: str) -> None:
    done = processes.run(
        [sys.executable, "-c", f"URL = {valkey_url!r}\n{SITE}"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("200\n")
    assert "resty_django.qless: Paused, over HTTP by admin: queue 'mail'" in done.stderr
    assert "Traceback" not in done.stderr
    assert valkey.sismember("ql:paused_queues", "mail")
