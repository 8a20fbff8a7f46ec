"""Alerts of the site: with real stores, several processes, mail servers that fail, and the admin page."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import django
import pytest
from django.core import mail
from django.core.mail.backends.base import BaseEmailBackend
from django.core.management import CommandError, call_command
from django.test import Client, override_settings
from redis import Redis

from resty_django import concurrency, metrics
from resty_django.alerts import Alert, delivery, store
from resty_django.alerts.runner import Runner, run_once, start_in_worker
from resty_django.checks import check_alerts
from resty_django.conf import conf
from resty_django.metrics import Family, Sample
from resty_django.qless.clients.default import default_client
from resty_django.shdict import shdicts
from tests.docs_reader import ROOT

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.filterwarnings("ignore:Django .* will not have a default mailer"),  # the demo sends no mails
]

PAGE = "/admin/resty_django/alert/"
ORDERS = {"metric": "shop_orders", "above": 5, "name": "orders"}
calls: list[Alert] = []
values: dict[str, float] = {}
failing: list[str] = []


def receive(alert: Alert) -> None:
    calls.append(alert)


class FailingBackend(BaseEmailBackend):
    """A mail server that refuses until `failing` is empty."""

    def send_messages(self, email_messages: Any) -> int:
        if failing:
            raise OSError(failing[0])
        mail.outbox.extend(email_messages)
        return len(email_messages)


@pytest.fixture(autouse=True)
def orders() -> Iterator[dict[str, float]]:
    """The values of the metric `shop_orders` by city."""
    calls.clear()
    failing.clear()
    values.clear()

    def families() -> Iterator[Family]:
        yield Family("shop_orders", "gauge", "Orders.", ("city",), [Sample((k,), v) for k, v in values.items()])

    metrics.register("orders", families)
    yield values
    values.clear()


@pytest.fixture
def configure(settings: Any) -> Callable[..., None]:
    """Return a function that sets `ALERTS`, with a recipient."""

    def set_alerts(*rules: dict[str, Any], **options: Any) -> None:
        alerts = {"RULES": list(rules), "TO": ["ops@example.org"], **options}
        settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "ALERTS": alerts}

    return set_alerts


def subjects() -> list[str]:
    return [message.subject for message in mail.outbox]


def test_an_incident_and_its_recovery_are_mailed_once(configure: Callable[..., None], orders: dict[str, float]) -> None:
    configure(ORDERS)
    orders.update(Berlin=3, Wien=5)
    assert run_once() == []
    assert subjects() == []
    orders.update(Berlin=9)
    for _ in range(3):
        assert run_once() == []
    assert subjects() == ["[Django] Alert: orders: Berlin"]
    (message,) = mail.outbox
    assert message.to == ["ops@example.org"]
    assert "Value: 9 (alert: above 5)" in message.body
    orders.update(Berlin=4)
    for _ in range(3):
        run_once()
    assert subjects()[1:] == ["[Django] Resolved: orders: Berlin"]
    assert "Until: " in mail.outbox[1].body


def test_several_incidents_of_one_evaluation_are_one_mail(
    configure: Callable[..., None], orders: dict[str, float]
) -> None:
    configure(ORDERS)
    orders.update(Berlin=9, Wien=8)
    run_once()
    assert subjects() == ["[Django] Alert: orders: Berlin, and 1 more"]
    assert "Alert: orders: Wien" in mail.outbox[0].body


def test_admins_and_a_function_receive_alerts(
    configure: Callable[..., None], orders: dict[str, float], settings: Any
) -> None:
    settings.ADMINS = ["admin@example.org"] if django.VERSION >= (6, 0) else [("A", "admin@example.org")]
    configure(ORDERS, TO=None, CALL=f"{__name__}.receive")
    orders.update(Berlin=9)
    assert run_once() == []
    assert [message.to for message in mail.outbox] == [["admin@example.org"]]
    assert [(alert.state, alert.subject, alert.value) for alert in calls] == [("firing", "Berlin", 9)]
    orders.clear()
    run_once()
    assert [(alert.state, alert.value) for alert in calls] == [("firing", 9), ("resolved", None)]


def test_the_state_survives_a_restart(configure: Callable[..., None], orders: dict[str, float]) -> None:
    configure(ORDERS)
    orders.update(Berlin=9)
    run_once()
    shdicts.close_all()
    run_once()
    assert len(mail.outbox) == 1
    orders.update(Berlin=1)
    shdicts.close_all()
    run_once()
    assert len(mail.outbox) == 2


@pytest.mark.redis
def test_concurrent_evaluations_send_one_mail(
    configure: Callable[..., None], orders: dict[str, float], valkey: Redis, valkey_url: str, settings: Any
) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url}
    settings.CACHES = {**settings.CACHES, "shared": cache}
    engines: list[dict[str, Any]] = [{}, {"ENGINE": "redis", "ALIAS": "shared"}]
    for number, options in enumerate(engines, 1):
        dicts = {**settings.RESTY_DJANGO["SHARED_DICTS"], "alerts": {**options} or {"PATH": _folder(settings)}}
        settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "SHARED_DICTS": dicts}
        configure(ORDERS, STORE="alerts")
        orders.update(Berlin=9)
        families = metrics.collected()
        with ThreadPoolExecutor(8) as pool, pytest.MonkeyPatch.context() as patch:
            patch.setattr("resty_django.metrics.collected", lambda families=families: families)
            for done in [pool.submit(run_once) for _ in range(24)]:
                done.result(60)
        _wait_until(lambda: not store.load().messages)
        assert len(mail.outbox) == number


def _folder(settings: Any) -> str:
    return str(settings.RESTY_DJANGO["SHARED_DICTS"]["default"]["PATH"])


def _wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "nothing happened within 60 s"
        delivery.deliver()
        time.sleep(0.05)


def test_separate_processes_send_one_mail(tmp_path: Path, configure: Callable[..., None]) -> None:
    sent = tmp_path / "mails"
    code = f"""
import sys
import django
from django.conf import settings
settings.RESTY_DJANGO = {{
    "SHARED_DICTS": {{name: {{"PATH": {str(tmp_path / "d")!r}}} for name in ("default", "bans", "events", "limits")}},
    "ALERTS": {{"RULES": [{{"metric": "shop_orders", "above": 5}}], "TO": ["ops@example.org"]}},
}}
settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
settings.EMAIL_FILE_PATH = {str(sent)!r}
django.setup()
from resty_django import metrics
from resty_django.metrics import Family, Sample
metrics.register("orders", lambda: [Family("shop_orders", "gauge", "", (), [Sample((), 9)])])
from resty_django.alerts.runner import run_once
for _ in range(3):
    print(run_once())
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in "ab"
    ]
    for process in running:
        output, _ = process.communicate(timeout=100)
        assert output.count("[]") == 3, output
    files = list(sent.iterdir())
    assert sum(file.read_text().count("Subject: ") for file in files) == 1


def test_an_alert_is_retried_until_the_mail_server_answers(
    configure: Callable[..., None], orders: dict[str, float]
) -> None:
    configure(ORDERS)
    failing.append("550 no")
    with mail_backend(FailingBackend):
        orders.update(Berlin=9)
        assert run_once() == ["OSError: 550 no"]
        orders.update(Wien=8)
        run_once()  # evaluation continues
        assert {incident.subject for incident in store.load().active} == {"Berlin", "Wien"}
        failing.clear()
        run_once()
        assert subjects() == []  # not before the pause has passed
        store.change(lambda state: (_due_now(state), None))
        run_once()
        assert subjects() == ["[Django] Alert: orders: Berlin", "[Django] Alert: orders: Wien"]
        assert store.load().messages == ()


def _due_now(state: Any) -> Any:
    from msgspec.structs import replace

    return replace(state, messages=tuple(replace(message, due=0.0) for message in state.messages))


class mail_backend:
    """Send mails with a backend of this module."""

    def __init__(self, backend: type[BaseEmailBackend]) -> None:
        self._backend = backend

    def __enter__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr("django.core.mail.backends.locmem.EmailBackend.send_messages", self._backend.send_messages)

    def __exit__(self, *args: object) -> None:
        self._patch.undo()


def test_a_mail_server_that_hangs_does_not_stop_evaluation(
    configure: Callable[..., None], orders: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(ORDERS)
    monkeypatch.setattr(delivery, "SECONDS", 0.2)
    answers = threading.Event()

    def hang(self: object, messages: Any) -> int:
        answers.wait(60)
        mail.outbox.extend(messages)
        return len(messages)

    monkeypatch.setattr("django.core.mail.backends.locmem.EmailBackend.send_messages", hang)
    orders.update(Berlin=9)
    assert run_once() == ["It did not respond within 0.2 s."]
    late = concurrency.late_workers[delivery.CALL]
    orders.update(Wien=8)
    assert run_once() == ["An earlier attempt has not finished."]
    assert {incident.subject for incident in store.load().active} == {"Berlin", "Wien"}
    answers.set()
    late.thread.join(60)
    assert subjects() == ["[Django] Alert: orders: Berlin"]  # the late attempt is noted
    run_once()
    assert subjects() == ["[Django] Alert: orders: Berlin", "[Django] Alert: orders: Wien"]


@pytest.mark.redis
def test_the_built_in_kinds_see_real_jobs(
    configure: Callable[..., None], valkey: Redis, valkey_url: str, settings: Any
) -> None:
    settings.CACHES = {
        **settings.CACHES,
        "jobs": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url},
    }
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"ALIAS": "jobs", "WORKER_NAME": "w1"}}
    client = default_client()
    configure(
        {"kind": "failures", "above": 1, "queue": "pdf"},
        {"kind": "latency", "above": 60},
        {"kind": "sources", "source": "jobs"},
        {"kind": "dictionaries"},
    )
    client.queues["pdf"].put("shop.jobs.Pdf")
    client.queues["mail"].put("shop.jobs.Mail")
    run_once()
    assert subjects() == []
    for _ in range(3):
        client.queues["pdf"].put("shop.jobs.Pdf")
    for job in client.queues["pdf"].pop(3):
        job.fail("pdf-OSError", "OSError: full")
    valkey.zadd("ql:q:mail-work", {"old": -(time.time() - 90) / 1e10})
    run_once()
    assert {(incident.rule, incident.subject) for incident in store.load().active} == {
        ("failures pdf", "pdf"),
        ("latency", "mail"),
    }
    client.queues["mail"].pause()  # a paused queue is late on purpose
    run_once()
    assert [incident.rule for incident in store.load().active] == ["failures pdf"]
    assert [incident.subject for incident in store.load().past] == ["mail"]


@pytest.mark.redis
def test_a_store_that_is_down_is_reported_and_its_recovery(configure: Callable[..., None], settings: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{unused.getsockname()[1]}/0"
    settings.CACHES = {**settings.CACHES, "away": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}}
    dicts = settings.RESTY_DJANGO["SHARED_DICTS"]
    down = {**settings.RESTY_DJANGO, "SHARED_DICTS": {**dicts, "limits": {"ENGINE": "redis", "ALIAS": "away"}}}
    up = settings.RESTY_DJANGO
    settings.RESTY_DJANGO = down
    configure({"kind": "dictionaries"}, {"kind": "sources", "source": "limits"})
    run_once()
    assert {(incident.rule, incident.subject) for incident in store.load().active} == {
        ("dictionaries", "limits"),
        ("sources limits", "limits"),
    }
    settings.RESTY_DJANGO = up
    configure({"kind": "dictionaries"}, {"kind": "sources", "source": "limits"})
    run_once()
    assert subjects() == [
        "[Django] Alert: Shared dictionary is down: limits, and 1 more",
        "[Django] Resolved: Shared dictionary is down: limits, and 1 more",
    ]


def command(*arguments: str) -> str:
    output = StringIO()
    call_command("resty_alerts", *arguments, stdout=output)
    return output.getvalue()


def test_the_command_evaluates_once(configure: Callable[..., None], orders: dict[str, float]) -> None:
    configure(ORDERS)
    assert command() == "1 rules evaluated, 0 incidents.\n"
    orders.update(Berlin=9)
    assert command() == "orders  Berlin  9\n1 rules evaluated, 1 incidents.\n"
    assert len(mail.outbox) == 1
    failing.append("550 no")
    orders.update(Wien=9)
    with mail_backend(FailingBackend), pytest.raises(CommandError, match="not be sent: OSError: 550 no") as raised:
        command()
    assert raised.value.returncode == 2


def test_the_command_sends_a_test_mail(configure: Callable[..., None]) -> None:
    configure()
    assert command("--test") == "The test mail was sent.\n"
    assert subjects() == ["[Django] Alert: Test"]
    assert store.load().messages == ()
    configure(TO=[])
    with pytest.raises(CommandError, match="Nobody receives mails"):
        command("--test")


def test_the_thread_of_a_worker_evaluates_at_intervals(configure: Callable[..., None]) -> None:
    evaluated = threading.Semaphore(0)

    def evaluation() -> None:
        evaluated.release()
        raise OSError("not possible")

    configure(ORDERS, INTERVAL=1)
    runner = Runner(evaluation)
    runner.start()
    try:
        assert all(evaluated.acquire(timeout=60) for _ in range(3))
    finally:
        runner.stop()
    configure(ORDERS, INTERVAL=1)
    started = start_in_worker()
    assert started is not None
    try:
        _wait_until(lambda: store.load().evaluated > 0)
    finally:
        started.stop()
    configure(ORDERS, WORKERS=False)
    assert start_in_worker() is None
    configure()
    assert start_in_worker() is None


def test_loops_leave_out_what_another_process_has_just_done(
    configure: Callable[..., None], orders: dict[str, float]
) -> None:
    configure(ORDERS, INTERVAL="1h")
    run_once(force=False)
    orders.update(Berlin=9)
    run_once(force=False)
    assert store.load().active == ()
    run_once()
    assert len(store.load().active) == 1


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"RULES": [{"kind": "latency"}], "TO": ["a@example.org"]}, []),
        ({"RULES": [{"kind": "latancy"}], "TO": ["a@example.org"]}, ["resty_django.E006"]),
        ({"RULES": [{"kind": "latency"}], "TO": []}, ["resty_django.W006"]),
        ({"RULES": [{"kind": "latency"}]}, ["resty_django.W006"]),
        ({"RULES": [], "CALL": "shop.nowhere.receive"}, ["resty_django.E007"]),
        ({"RULES": [], "CALL": "resty_django.alerts.store.KEY"}, ["resty_django.E007"]),
        ({}, []),
    ],
)
def test_checks_find_wrong_settings(settings: Any, options: dict[str, Any], ids: list[str]) -> None:
    settings.ADMINS = []
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "ALERTS": options}
    assert [message.id for message in check_alerts()] == ids
    assert conf.alerts is not None


def test_the_page_shows_incidents(
    configure: Callable[..., None], orders: dict[str, float], admin_client: Client, person: Callable[..., Client]
) -> None:
    assert person("resty_django.view_overview").get(PAGE).status_code == 403
    assert person("resty_django.view_alert").get(PAGE).status_code == 200
    assert admin_client.post(PAGE).status_code == 405
    assert "This site has no rules." in admin_client.get(PAGE).content.decode()
    configure(ORDERS, {"metric": "shop_orders", "above": 100, "for": "1h", "name": "many"})
    orders.update({"<b>Berlin</b>": 9, "Wien": 200, "Graz": 8})
    run_once()
    orders.update(Graz=1)
    failing.append("550 <no>")
    with mail_backend(FailingBackend):
        run_once()
    text = admin_client.get(PAGE).content.decode()
    sections = re.split(r"<h2>(.*?)</h2>", text.partition('id="content-main"')[2])
    shown = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert "&lt;b&gt;Berlin&lt;/b&gt;" in shown["Current incidents"]
    assert "above 5" in shown["Current incidents"]
    assert "Wien" in shown["Not reported yet"]
    assert "Graz" in shown["Last incidents"]
    assert "1 message could not be sent and will be retried: OSError: 550 &lt;no&gt;" in text
    for name, subject in (("alerts", "<b>Berlin</b>"), ("alerts-pending", "Wien"), ("alerts-past", "Graz")):
        assert f"?export=csv&amp;of={name}" in text
        rows = json.loads(admin_client.get(f"{PAGE}?export=json&of={name}").getvalue())["rows"]
        assert subject in [row["subject"] for row in rows]
        assert all((row["until"] is not None) == (name == "alerts-past") for row in rows)
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", text.partition("content-main")[2])
    assert f'href="{PAGE}"' in admin_client.get("/admin/").content.decode()


def test_the_page_says_that_the_store_is_down(
    configure: Callable[..., None], admin_client: Client, settings: Any
) -> None:
    configure(ORDERS)
    shdicts.close_all()
    names = settings.RESTY_DJANGO["SHARED_DICTS"]
    broken = {**settings.RESTY_DJANGO, "SHARED_DICTS": {**names, "default": {"PATH": "/proc/resty-is-not-writable"}}}
    with override_settings(RESTY_DJANGO=broken):
        text = admin_client.get(PAGE).content.decode()
        with pytest.raises(CommandError, match="cannot be evaluated") as raised:
            command()
        shdicts.close_all()
    assert "The alerts are not known:" in text
    assert raised.value.returncode == 2
