"""The archive in the admin: list, filters, search, the page of a job, exports and permissions."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from resty_django.qless import Client
from resty_django.qless.admin import archived
from tests.integration.qless.admin.tools import path, person, text_of
from tests.integration.qless.archive.conftest import Clock
from tests.integration.qless.archive.tools import SEND, complete, configure, drop, fail, rows, write
from tests.integration.qless.conftest import change_settings

pytestmark = [pytest.mark.django_db, pytest.mark.db, pytest.mark.redis]


def url(**parameters: str) -> str:
    return f"{path('archivedjob')}?{urlencode(parameters)}"


def jids(browser: Browser, **parameters: str) -> list[str]:
    """The jobs of the list, in its order."""
    text = text_of(browser, url(**parameters))
    return [unescape(jid) for jid in re.findall(r'class="field-short_jid"><a href="[^"]*">([^<]*)</a>', text)]


def page_of(jid: str) -> str:
    return path("archivedjob", str(rows()[jid].pk))


def customer(number: int, name: str) -> dict[str, Any]:
    return {"customer": {"id": number, "name": name, "password": "hunter2"}}


@pytest.fixture
def ended(site: Client, clock: Clock) -> Client:
    """Finished jobs that Redis has deleted."""
    write(site)
    complete(site, "a-anna", customer(7, "Anna Meyer"), tags=["eu"])
    complete(site, "b-bob", customer(70, "Bob <b>"), queue="pdf", klass="shop.jobs.Render")
    clock.skew = 100
    complete(site, "c-ada", customer(8, "Ada 100% Müller"), tags=["eu", "VIP"])
    fail(site, "f-fail")
    site.queues["mail"].put(SEND, customer(9, "Cleo"), jid="x-cancel")
    write(site)
    clock.skew = 200
    site.jobs["x-cancel"].cancel()
    write(site)
    drop(site, clock)
    return site


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["x-cancel", "c-ada f-fail", "a-anna b-bob"]),
        ({"state": "complete"}, ["c-ada", "a-anna b-bob"]),
        ({"state": "canceled"}, ["x-cancel"]),
        ({"klass": "shop.jobs.Render"}, ["b-bob"]),
        ({"queue": "pdf"}, ["b-bob"]),
        ({"queue": "pdf", "state": "failed"}, []),
        ({"queue": "none"}, []),
        ({"klass": "\0"}, []),
        ({"q": "a-anna"}, ["a-anna"]),
        ({"q": "VIP"}, ["c-ada"]),
        ({"q": "Render"}, ["b-bob"]),
        ({"q": "eu", "state": "complete"}, ["c-ada", "a-anna"]),
        ({"q": "Meyer"}, []),
        ({"q": "request-7"}, ["f-fail"]),
        ({"finished_at__lt": "2001-01-01 00:00:00+00:00"}, []),
        ({"finished_at__gte": "2001-01-01 00:00:00+00:00", "state": "failed"}, ["f-fail"]),
    ],
)
def test_filters_and_the_search_find_rows(
    admin_client: Browser, ended: Client, parameters: dict[str, str], expected: list[str]
) -> None:
    row = rows()["f-fail"]
    row.txid = "request-7"
    row.save()
    listed = jids(admin_client, **parameters)
    for group in expected:
        size = len(group.split())
        assert sorted(listed[:size]) == group.split()
        listed = listed[size:]
    assert listed == []


def test_filters_offer_a_bounded_number_of_values(
    admin_client: Browser, ended: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most, classes in ((100, ["shop.jobs.Render", SEND]), (1, ["shop.jobs.Render"])):
        monkeypatch.setattr(archived.ValuesFilter, "max_values", most)
        assert re.findall(r'href="\?klass=([^"]+)"', text_of(admin_client, path("archivedjob"))) == classes


def test_the_page_of_a_job_that_redis_has_deleted(admin_client: Browser, ended: Client) -> None:
    reply = admin_client.get(path("job", "a-anna"))
    assert (reply.status_code, reply["Location"]) == (302, page_of("a-anna"))
    page = text_of(admin_client, page_of("a-anna"))
    for text in ("Anna Meyer", "[redacted]", " popped {&quot;worker&quot;: &quot;here-1&quot;}", " done", ">eu<", SEND):
        assert text in page
    assert "hunter2" not in page
    assert '<input type="submit"' not in page
    assert text_of(admin_client, path("job", "unknown"), 404)
    assert text_of(admin_client, path("archivedjob", str(rows()["a-anna"].pk), "history"))


def test_pages_show_errors_and_cut_arguments(admin_client: Browser, ended: Client) -> None:
    page = text_of(admin_client, page_of("f-fail"))
    for text in ("KeyError: &#x27;zip_code&#x27;", "mail-KeyError"):
        assert text in page
    complete(ended, "long", {"text": "x" * 30_000})
    write(ended)
    page = text_of(admin_client, page_of("long"))
    assert "not complete" in page
    assert "x" * 1001 not in page


def test_values_that_are_hidden_later_are_not_shown(admin_client: Browser, ended: Client, settings: Any) -> None:
    change_settings(settings, REDACT=["password", "name"])
    assert "Anna" not in text_of(admin_client, page_of("a-anna"))
    reply = admin_client.get(url(q="a-anna", export="json", of="archivedjob"))
    assert b"Anna" not in b"".join(reply.streaming_content)  # type: ignore[attr-defined]


def test_a_search_of_jobs_links_to_the_archive(admin_client: Browser, ended: Client, settings: Any) -> None:
    searched = f"{path('job')}?q=eu"
    assert f'href="{url(q="eu")}"' in text_of(admin_client, searched)
    configure(settings, RETENTION=None)
    page = text_of(admin_client, searched)
    assert "Search the archive" not in page
    assert f'<li><a href="{path("archivedjob")}"' not in page  # the tab


def test_the_list_is_exported(admin_client: Browser, ended: Client) -> None:
    reply = admin_client.get(url(q="a-anna", export="json", of="archivedjob"))
    [row] = json.loads(b"".join(reply.streaming_content))["rows"]  # type: ignore[attr-defined]
    assert (row["jid"], row["state"], row["tags"]) == ("a-anna", "complete", ["eu"])
    assert row["arguments"]["customer"] == {"id": 7, "name": "Anna Meyer", "password": "[redacted]"}
    reply = admin_client.get(url(state="complete", export="csv", of="archivedjob"))
    table = list(csv.DictReader(io.StringIO(b"".join(reply.streaming_content).decode("utf-8-sig"))))  # type: ignore[attr-defined]
    assert {line["jid"] for line in table} == {"c-ada", "b-bob", "a-anna"}
    assert re.match(r"\d{4}-\d\d-\d\d", table[0]["finished"])


def test_nobody_changes_or_deletes_a_row(ended: Client) -> None:
    everything = person("view_job", "start_job", "edit_job", "cancel_job")
    assert everything.post(page_of("a-anna"), {"klass": "x"}).status_code == 403
    assert rows()["a-anna"].klass == SEND
    everything.post(path("archivedjob"), {"action": "delete_selected", "_selected_action": rows()["a-anna"].pk})
    assert "a-anna" in rows()


@pytest.mark.parametrize("parameters", [{}, {"state": "complete"}, {"klass": SEND}, {"queue": "mail"}], ids=str)
def test_lists_are_read_from_an_index(admin_client: Browser, ended: Client, parameters: dict[str, str]) -> None:
    with CaptureQueriesContext(connection) as context:
        admin_client.get(url(**parameters))
    selects = [query["sql"] for query in context if "resty_qless_archived" in query["sql"]]
    assert selects
    if connection.vendor == "sqlite":  # the planners of servers scan tables as small as this one
        with connection.cursor() as cursor:
            for sql in selects:
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
                plan = [line[3] for line in cursor.fetchall()]
                assert all("INDEX" in line for line in plan), (sql, plan)
                assert not any("TEMP B-TREE" in line for line in plan), (sql, plan)
