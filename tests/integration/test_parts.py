"""The demo's page of parts: each button has its effect on the page, with or without the servers of the demo."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from project.shop import everywhere, parts, tasks
from resty_django import events
from resty_django.cache import mlcaches
from resty_django.conf import conf
from resty_django.ids import stop
from resty_django.limits.models import LimitPolicy
from resty_django.limits.policies import registry
from resty_django.limits.testing import frozen_limits
from resty_django.qless import client as jobs
from resty_django.qless.testing import TestWorker
from resty_django.shdict import Unavailable, shdicts

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _fresh_demo() -> Iterator[None]:
    stop()
    shdicts["limits"].flush_all()
    registry.forget_policies()
    shdicts["default"].delete_many([everywhere.COUNT, everywhere.PROCESSES])
    mlcaches["default"].delete(everywhere.PRODUCT)
    call_command("demo_data", verbosity=0)
    yield
    stop()
    registry.forget_policies()


@pytest.fixture
def listening() -> Iterator[None]:
    """Let this process receive events."""
    events.start()
    yield
    events.stop()


def click(client: Client, action: str) -> str:
    """Press a button, and return the text of the effect on the page."""
    reply = client.post(f"/parts/{action}/", follow=True)
    part = parts.ACTIONS[action][0]
    assert reply.redirect_chain == [(f"/parts/#{part}", 302)]
    return effect(reply.content.decode(), part)


def effect(page: str, part: str) -> str:
    """Return the text of a part's effect, with single spaces."""
    match = re.search(rf'<div class="effect" id="effect-{part}".*?(?=<p class="quiet"><a|</section>)', page, re.DOTALL)
    assert match is not None
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", match[0])).split())


def test_each_part_has_a_button_and_a_link_to_its_page_of_the_admin(admin_client: Client, settings: Any) -> None:
    settings.JOBS = True
    page = admin_client.get("/parts/").content.decode()
    assert set(re.findall(r'<section class="panel part" id="([^"]+)"', page)) == {
        part for part, _function in parts.ACTIONS.values()
    }
    assert set(re.findall(r'<form method="post" action="/parts/([^"]+)/"', page)) == set(parts.ACTIONS)
    for section in re.findall(r"<section.*?</section>", page, re.DOTALL):
        links = re.findall(r'<a href="(/admin/[^"]+)"', section)
        assert links
        for link in links:
            if "/resty_qless/" not in link:  # the site of the tests has no Redis
                assert admin_client.get(link).status_code == 200, link


def test_buttons_need_a_post_with_a_token_and_a_known_name(client: Client) -> None:
    assert client.get("/parts/ids/").status_code == 405
    assert client.post("/parts/nothing/").status_code == 404
    assert Client(enforce_csrf_checks=True).post("/parts/ids/").status_code == 403


def test_ids_come_from_the_rule_also_if_the_other_servers_are_down(client: Client) -> None:
    first, second = click(client, "ids"), click(client, "ids")
    assert re.search(r'next_id\("order_id"\) O\d{6}000000 ', first)
    assert re.search(r'next_id\("order_id"\) O\d{6}000001 ', second)
    assert "UDP server The server does not respond. HTTP API The API does not respond." in first


def test_an_error_is_shown_in_its_part(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*args: object, **kwargs: object) -> None:
        raise Unavailable("<gone>")

    with monkeypatch.context() as patch:
        patch.setattr(parts, "ask", down)
        reply = client.post("/parts/greet/", follow=True)
        assert "&lt;gone&gt;" in reply.content.decode()
        assert "<gone>" in effect(reply.content.decode(), "events")
        assert "<gone>" not in effect(reply.content.decode(), "ids")


def test_as_many_requests_pass_as_the_policy_says(client: Client) -> None:
    with frozen_limits():
        shown = click(client, "limits")
        assert "8 of 20 requests have passed: " + "200 " * 8 + "429 " * 12 in shown
        headers = r'with status 429: Retry-After (\d+) RateLimit "try-it";r=0;t=\1 RateLimit-Policy "try-it";q=8;w=10'
        assert re.search(headers, shown)
        assert client.get("/parts/limited/").status_code == 429
        assert "0 of 20 requests have passed" in click(client, "limits")
    LimitPolicy.objects.create(name="try-it", algorithm="sliding_window", limit=11, window="10s", key="ip")
    with frozen_limits():
        assert "11 of 20 requests have passed" in click(client, "limits")
    assert "11 requests in any 10 seconds" in client.get("/parts/").content.decode()


def test_the_processes_that_received_an_event_are_listed(client: Client, listening: None) -> None:
    assert f"web site {os.getpid()}" in click(client, "greet")


def test_replies_that_arrive_later_appear_on_the_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "wait", lambda request_id: None)
    assert "No process has replied yet." in click(client, "greet")
    request_id = client.session[parts.SESSION_KEY]["events"]["greet"]
    everywhere.run({"action": "greet", "request": request_id}, "run", "demo", 1)
    monkeypatch.setattr("sys.argv", ["manage.py", "runqless"])
    everywhere.run({"action": "greet", "request": request_id}, "run", "demo", 1)
    shown = effect(client.get("/parts/").content.decode(), "events")
    assert f"web site {os.getpid()} worker {os.getpid()}" in shown
    assert 'id="effect-events" data-resty-live="2"' in client.get("/parts/").content.decode()


def test_the_page_shows_the_level_of_the_cache_that_had_the_value(client: Client, listening: None) -> None:
    assert "L3: the slow source" in click(client, "look-up")
    assert "L1: memory of the process" in click(client, "look-up")
    mlcaches["default"].purge()
    assert "L3: the slow source" in click(client, "look-up")
    assert "The value is deleted" in click(client, "forget")
    shown = click(client, "look-up")
    assert "L3: the slow source" in shown
    assert f"Value: Tea, loaded by the web site (process {os.getpid()})" in shown


def test_increments_are_added_and_read(client: Client, listening: None) -> None:
    assert f"web site {os.getpid()} 1 1" in click(client, "add")
    assert f"web site {os.getpid()} 2 2" in click(client, "add")


@pytest.mark.redis
def test_a_job_and_its_log_lines_have_the_id_of_the_request(
    client: Client, settings: Any, valkey: Any, valkey_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.JOBS, settings.VAR = True, tmp_path
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url}}
    monkeypatch.setattr(tasks, "SECONDS_A_PIECE", 0)
    with TestWorker(valkey_url) as worker:
        reply = client.post("/parts/trace/")
        mine = reply.headers[conf.txid.header]
        (tmp_path / "log").mkdir()
        (tmp_path / "log" / "site.log").write_text(f"1 INFO {mine} <enqueued>\n1 INFO {mine[::-1]} other\n")
        (tmp_path / "log" / "worker.log").write_text(f"2 INFO {mine} run\n")

        page = client.get("/parts/").content.decode()
        shown = effect(page, "txid")
        jid = client.session[parts.SESSION_KEY]["txid"]["jid"]
        assert f"Request {mine} Job {mine} {jid}" in shown
        assert f"site 1 INFO {mine} <enqueued> worker 2 INFO {mine} run" in shown
        assert "other" not in shown
        assert 'id="effect-txid" data-resty-live="1"' in page

        assert "State: waiting" in click(client, "job")
        assert [run.outcome for run in worker.drain("default")] == ["retried"] * 2
        shown = effect(client.get("/parts/").content.decode(), "jobs")
        assert "Enqueued in the queue default" in shown
        assert "The mail server does not respond. State: scheduled" in shown
        assert [run.outcome for run in worker.drain("default", seconds=10)] == ["completed"] * 2
        page = client.get("/parts/").content.decode()
    shown = effect(page, "jobs")
    assert "Retried after an error: run 2" in shown
    assert "Completed State: complete . Result: The mail is sent." in shown
    assert 'id="effect-jobs" aria-live' in page, "a finished job is still polled"
    jobs.close()


def test_the_page_needs_no_redis(client: Client, settings: Any) -> None:
    assert "Jobs need a Redis or Valkey" in client.get("/parts/").content.decode()
    click(client, "job")
    settings.JOBS = True
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": "redis://127.0.0.1:1/0"}}
    assert "127.0.0.1:1" in click(client, "job")


def test_an_unchanged_page_costs_a_304(client: Client) -> None:
    click(client, "ids")
    first = client.get("/parts/", headers={"X-Resty-Live": "1"})
    again = client.get("/parts/", headers={"X-Resty-Live": "1", "If-None-Match": first["ETag"]})
    assert (first.status_code, again.status_code) == (200, 304)
