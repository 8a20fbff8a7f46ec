"""Events in a site: automatic start of web workers, a poll in each request, the probe, rules.

Private names: `runtime._listener`, since which kind of listener runs is of no use to callers, and `service._service`,
since the public `service()` would start the service that must not run.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.core.management import call_command
from django.core.signals import request_started
from django.core.wsgi import get_wsgi_application
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import AsyncRequestFactory, Client, RequestFactory

from resty_django import events, health
from resty_django.events import autostart, middleware, runtime
from resty_django.events.middleware import PollMiddleware
from resty_django.ids import next_id, service
from resty_django.ids.models import IdRule
from resty_django.shdict import Unavailable, shdicts
from resty_django.shdict.lmdb import LmdbDict
from tests.dictionaries import Clock
from tests.integration.cache.cancelling import settle
from tests.servers import eventually

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def outside_of_tests(site: Any, db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a web worker, before its first request. A request looks at the connections that other tests have opened."""
    monkeypatch.setattr(autostart, "in_tests", lambda: False)
    autostart.connect()
    yield
    autostart.connect()


def ask_wsgi() -> None:
    environ = RequestFactory().get("/nowhere").environ
    list(get_wsgi_application()(environ, lambda *event_args: None))


async def ask_asgi() -> None:
    scope = AsyncRequestFactory()._base_scope(path="/nowhere")
    communicator = ApplicationCommunicator(get_asgi_application(), scope)
    await communicator.send_input({"type": "http.request", "body": b""})
    assert (await communicator.receive_output(5))["type"] == "http.response.start"
    await communicator.wait()


# --- automatic start ---


def test_the_first_request_under_wsgi_starts_a_thread(outside_of_tests: None) -> None:
    ask_wsgi()
    assert events.running()
    assert type(runtime._listener).__name__ == "ThreadListener"
    assert autostart.on_request not in [receiver for _, receiver, *_ in request_started.receivers]
    assert eventually(events.configured)


async def test_the_first_request_under_asgi_starts_a_task_of_the_loop(outside_of_tests: None) -> None:
    loops: list[Any] = []

    async def handler(*event_args: Any) -> None:
        loops.append(asyncio.get_running_loop())

    events.register(handler)
    await ask_asgi()
    assert type(runtime._listener).__name__ == "TaskListener"
    await settle(lambda: loops)
    assert loops == [asyncio.get_running_loop()]
    await events.astop()


def test_a_setting_disables_the_automatic_start(outside_of_tests: None, settings: Any) -> None:
    settings.RESTY_DJANGO = {"EVENTS": {"AUTOSTART": False}}
    ask_wsgi()
    assert not events.running()


def test_a_fault_of_the_settings_fails_no_request(
    outside_of_tests: None, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.RESTY_DJANGO = {"EVENTS": {"INTERVAL": -1}}
    settings.LOGGING_CONFIG = None  # django.setup() would remove the handler of `caplog`
    ask_wsgi()
    assert not events.running()
    assert "This process cannot receive events" in caplog.text


def test_tests_of_a_site_start_nothing(site: Any) -> None:
    assert autostart.in_tests()
    Client().get("/nowhere")
    assert not events.running()


@pytest.mark.parametrize("command", ["check", "shell"])
def test_commands_start_nothing(command: str, tmp_path: Path) -> None:
    code = (
        "import sys, threading\n"
        "from django.core.management import execute_from_command_line\n"
        f"execute_from_command_line({['manage.py', command, *(['-c', 'pass'] if command == 'shell' else [])]!r})\n"
        "print([thread.name for thread in threading.enumerate()], 'resty_django.shdict.lmdb' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"DJANGO_SETTINGS_MODULE": "project.settings", "RESTY_VAR": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "['MainThread'] False", done.stderr


# --- a poll in each request ---


@pytest.fixture
def heard(site: Any, settings: Any) -> list[str]:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "EVENTS": {"INTERVAL": 0}}
    names: list[str] = []
    events.register(lambda data, event, source, pid: names.append(event))
    return names


def test_a_request_polls(heard: list[str]) -> None:
    page = PollMiddleware(lambda request: HttpResponse(",".join(heard)))
    ask = RequestFactory().get("/")
    assert page(ask).content == b"started"  # type: ignore[union-attr]
    events.post("s", "e")
    assert page(ask).content == b"started,e"  # type: ignore[union-attr]
    assert not events.running()


async def test_a_request_polls_under_asgi(heard: list[str]) -> None:
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse(",".join(heard))

    page = PollMiddleware(view)
    assert iscoroutinefunction(page)
    ask = AsyncRequestFactory().get("/")
    assert (await page(ask)).content == b"started"  # type: ignore[misc]
    await events.apost("s", "e")
    assert (await page(ask)).content == b"started,e"  # type: ignore[misc]


def test_the_middleware_can_be_installed(heard: list[str], settings: Any) -> None:
    settings.MIDDLEWARE = ["resty_django.events.middleware.PollMiddleware"]
    Client().get("/nowhere")
    assert heard == ["started"]


def test_a_store_that_is_down_fails_no_request_and_is_left_alone(
    heard: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []
    now = Clock()
    monkeypatch.setattr(middleware, "time", SimpleNamespace(monotonic=now))

    def down(*args: Any) -> Any:
        calls.append(1)
        raise Unavailable("no answer")

    page = PollMiddleware(lambda request: HttpResponse("fine"))
    ask = RequestFactory().get("/")
    page(ask)
    with monkeypatch.context() as patch:
        patch.setattr(shdicts["events"], "journal_end", down)  # caches of earlier tests may follow other dictionaries
        for _ in range(5):
            assert page(ask).content == b"fine"  # type: ignore[union-attr]
        assert len(calls) == 1
        now.advance(1.0)
        page(ask)
        assert len(calls) == 2
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    events.post("s", "e")
    page(ask)
    assert heard == ["started"]
    now.advance(1.0)
    page(ask)
    assert heard == ["started", "missed", "e"]


def test_an_outage_after_one_that_a_listener_has_ended_is_logged_too(
    heard: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def down(*args: Any) -> Any:
        raise Unavailable("no answer")

    now = Clock()
    monkeypatch.setattr(middleware, "time", SimpleNamespace(monotonic=now))
    page = PollMiddleware(lambda request: HttpResponse("fine"))
    ask = RequestFactory().get("/")
    page(ask)
    for count in (1, 2):
        with monkeypatch.context() as patch:
            patch.setattr(shdicts["events"], "journal_end", down)
            page(ask)
        assert len(caplog.records) == count
        events.poll()
        now.advance(1.0)
        page(ask)
    assert heard == ["started", "missed", "missed"]


def test_a_listener_that_is_about_to_start_is_waited_for_quietly(
    heard: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runtime, "_listens", lambda: True)
    page = PollMiddleware(lambda request: HttpResponse("fine"))
    assert page(RequestFactory().get("/")).content == b"fine"  # type: ignore[union-attr]
    assert caplog.records == []
    assert not events.configured()


# --- the probe ---


def test_the_probe_reports_whether_events_can_be_read(
    site: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("resty_check", "--only", "events")
    assert "Events can be read" in capsys.readouterr().out
    monkeypatch.setattr(LmdbDict, "journal_end", lambda *event_args: (_ for _ in ()).throw(Unavailable("no answer")))
    ((_, finding),) = health.run(["events"])
    assert (finding.level, finding.subject) == ("error", "dictionary events")
    assert finding.message == "Events cannot be read: no answer"


# --- rules of the ID service ---


@pytest.fixture
def rule(site: Any, transactional_db: None, settings: Any) -> Iterator[IdRule]:
    """A rule, in a service that looks for changes once a minute."""
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "IDS": {"REFRESH": 60.0}}
    service.stop()
    new_rule = IdRule(name="order", source="{counter:09d}", max_counter=999_999_999)
    new_rule.full_clean()
    new_rule.save()
    yield new_rule
    service.stop()


def edited_elsewhere(rule: IdRule, source: str) -> None:
    """Edit a rule as another process does, without posting the event."""
    IdRule.objects.filter(pk=rule.pk).update(source=source, version=rule.version + 1)


def test_an_event_makes_a_changed_rule_known(rule: IdRule) -> None:
    events.start()
    assert next_id("order") == "000000000"
    edited_elsewhere(rule, "X{counter:09d}")
    time.sleep(0.1)
    assert next_id("order") == "000000001"
    events.post("resty_ids", "rule_changed", {"rule": "order"})
    assert eventually(lambda: next_id("order").startswith("X"), 2)


def test_saving_and_deleting_a_rule_posts_an_event_after_the_commit(rule: IdRule) -> None:
    heard: list[Any] = []
    events.register(lambda data, *event_args: heard.append(data), "resty_ids", "rule_changed")
    runtime.ensure()
    with transaction.atomic():
        rule.save()
        events.poll()
        assert heard == []
    events.poll()
    assert heard == [{"rule": "order"}]
    with transaction.atomic():
        rule.save()
        transaction.set_rollback(True)
    rule.delete()
    events.poll()
    assert heard == [{"rule": "order"}] * 2


@pytest.mark.parametrize("error", [Unavailable("no answer"), RuntimeError("anything")])
def test_events_that_fail_keep_no_rule_from_being_saved(
    rule: IdRule, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def down(*args: Any, **options: Any) -> Any:
        raise error

    next_id("order")
    monkeypatch.setattr(LmdbDict, "append", down)
    rule.source = "Y{counter:09d}"
    rule.save()
    assert IdRule.objects.get().source == "Y{counter:09d}"
    assert next_id("order").startswith("Y")
    assert "Other processes will not see the change of rule order until their next check" in caplog.text


def test_the_handler_starts_no_service(rule: IdRule, worker_free: Callable[[], bool]) -> None:
    runtime.ensure()
    events.post("resty_ids", "rule_changed", {"rule": "order"})
    events.poll()
    assert worker_free()


@pytest.fixture
def worker_free() -> Callable[[], bool]:
    """Whether this process has no ID service."""
    return lambda: service._service is None
