"""The archive in the admin: the search, the page of a job, exports and permissions."""

from __future__ import annotations

import csv
import io
import json
import re
from html import unescape
from typing import Any
from urllib.parse import quote_plus

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from resty_django.qless import Client
from resty_django.qless.archive import search as archive_search
from resty_django.qless.archive import terms
from tests.integration.qless.admin.tools import HOSTILE, path, person, text_of
from tests.integration.qless.archive.conftest import Clock
from tests.integration.qless.archive.tools import SEND, archive_settings, complete, drop, fail, states, write

pytestmark = [pytest.mark.django_db, pytest.mark.db, pytest.mark.redis]


def jids(text: str) -> list[str]:
    """The archived jobs of the page."""
    return re.findall(r'href="/admin/resty_qless/archivedjob/[^"]*/change/" title="([^"]*)"', text)


def url(text: str = "", model: str = "archivedjob", **parameters: str) -> str:
    query = {"q": text, **parameters} if text else parameters
    return f"{path(model)}?" + "&".join(f"{name}={quote_plus(value)}" for name, value in query.items())


def find(browser: Browser, text: str = "", model: str = "archivedjob", **parameters: str) -> set[str]:
    return set(jids(text_of(browser, url(text, model, **parameters))))


def customer(number: int, name: str) -> dict[str, Any]:
    return {"customer": {"id": number, "name": name, "password": "hunter2"}}


@pytest.fixture
def dropped(site: Client, clock: Clock) -> Client:
    """Finished jobs that only the archive has."""
    write(site)
    complete(site, "a-anna", customer(7, "Anna Meyer"), tags=["eu"])
    complete(site, "b-bob", customer(70, "Bob <b>"), queue="pdf", klass="shop.jobs.Render")
    clock.skew = 100
    complete(site, "c-ada", customer(8, "Ada 100% Müller"), tags=["eu", "VIP"])
    fail(site, "f-fail")
    site.queues["mail"].put(SEND, customer(9, "Cleo"), jid="x-cancel")
    site.jobs["x-cancel"].cancel()
    write(site)
    site.jobs["f-fail"].cancel()
    write(site)
    drop(site, clock)
    return site


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("state:complete", {"a-anna", "b-bob", "c-ada"}),
        ("state:canceled", {"x-cancel", "f-fail"}),
        ("state:failed", set()),
        ("state:waiting", set()),
        ("class:shop.jobs.Render", {"b-bob"}),
        ("class:render", {"b-bob"}),
        ("class:jobs state:complete", {"a-anna", "b-bob", "c-ada"}),
        ("class:nothing", set()),
        ("queue:pdf", {"b-bob"}),
        ("queue:mail state:complete", {"a-anna", "c-ada"}),
        ("tag:eu", {"a-anna", "c-ada"}),
        ("tag:eu tag:vip", {"c-ada"}),
        ("tag:e", set()),
        ("args.customer.id:7", {"a-anna"}),
        ("args.customer.name:ann", {"a-anna"}),
        ("args.id:7", set()),
        ('args.customer.name:"Anna Meyer"', {"a-anna"}),
        ("müller", {"c-ada"}),
        ("MÜLLER", {"c-ada"}),
        ('"100%"', {"c-ada"}),
        ("hunter2", set()),
        ("error:KeyError", {"f-fail"}),
        ("error:zip", {"f-fail"}),
        ("error:anna", set()),
        ("age:>1d state:complete", {"a-anna", "b-bob", "c-ada"}),
        ("age:<1d", set()),
        ("age:>9d", set()),
        ("anna queue:mail class:send age:>1d", {"a-anna"}),
        ("anna queue:pdf", set()),
        ("b-bo", {"b-bob"}),
    ],
)
def test_the_grammar(
    admin_client: Browser, dropped: Client, text: str, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(admin_client, text) == expected
    assert find(admin_client, text, model="job") == expected
    monkeypatch.setattr(terms, "MAX_CANDIDATES", -1)  # words that are too frequent for the index
    assert find(admin_client, text) == expected
    assert find(admin_client, text, model="job") == expected


def test_ages_count_from_the_put(admin_client: Browser, site: Client, clock: Clock) -> None:
    complete(site, "old")
    clock.skew = 3600
    complete(site, "new")
    write(site)
    drop(site, clock)
    assert find(admin_client, f"age:>{8 * 24 + 1}h") == {"old"} - {"new"}
    assert find(admin_client, f"age:<{8 * 24}.5h") == {"new"}


def test_jobs_in_redis_are_not_listed_twice(admin_client: Browser, dropped: Client) -> None:
    client = dropped
    complete(client, "r-redis", customer(7, "Anna Meyer"))
    fail(client, "r-fail")
    write(client)
    assert {"r-redis", "r-fail"} <= set(states())
    page = text_of(admin_client, url("anna", "job"))
    assert jids(page) == ["a-anna"]
    assert 'title="r-redis"' in page
    assert page.index('title="r-redis"') < page.index('title="a-anna"')
    assert "Archived jobs" in page
    assert find(admin_client, "error:KeyError") == {"f-fail"}
    assert find(admin_client, "anna") == {"a-anna"}
    client.jobs["r-fail"].cancel()
    write(client)
    assert find(admin_client, "error:KeyError") == {"f-fail", "r-fail"}


def test_lists_of_redis_alone_have_no_archive(admin_client: Browser, dropped: Client) -> None:
    for query in ("", "?tracked=1", "?worker=here-1", "?group=mail-KeyError", "?state=running"):
        assert "Archived jobs" not in text_of(admin_client, path("job") + query)
    assert "Archived jobs" in text_of(admin_client, path("job") + "?state=complete")


@pytest.mark.parametrize("most", [2000, 20], ids=["rare", "frequent"])
def test_pages_of_results(
    admin_client: Browser, site: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Many jobs of one second, in windows smaller than a page; each is listed once, in order."""
    monkeypatch.setattr(archive_search, "WINDOW", 9)
    monkeypatch.setattr(archive_search, "CANDIDATES", 4)
    monkeypatch.setattr(terms, "MAX_CANDIDATES", most)
    monkeypatch.setattr(site, "clock", lambda: 1_700_000_000.0 + clock.skew)
    expected = [complete(site, f"c{n:02}", {"name": "Anna" if n % 2 else "Bob"}) for n in range(61)]
    write(site)
    drop(site, clock)
    drop(site, clock)  # a call of the core deletes 50 jobs
    for text, wanted in (
        ("state:complete", expected),
        ("anna", expected[1::2]),
        ("anna state:complete", expected[1::2]),
    ):
        address, results = url(text), []
        for _page in range(10):
            page = text_of(admin_client, address)
            results += jids(page)
            link = re.search(r'rel="next" href="([^"]*)"', page)
            if link is None:
                break
            address = path("archivedjob") + unescape(link[1])
        assert results == wanted[::-1]


def test_a_search_for_words_that_takes_long_shows_its_progress(
    admin_client: Browser, site: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "MAX_CANDIDATES", 0)
    monkeypatch.setattr(archive_search, "WINDOW", 5)
    monkeypatch.setattr(archive_search, "SECONDS", 0.0)
    for n in range(12):
        complete(site, f"c{n:02}", {"name": "Anna" if n == 0 else "Bob"})
    write(site)
    drop(site, clock)
    page = text_of(admin_client, url("anna"))
    assert "Examined 5 of about 12 jobs." in page
    assert "No matches so far" in page
    for _page in range(2):
        link = re.search(r'rel="next" href="([^"]*)"', page)
        assert link is not None
        page = text_of(admin_client, path("archivedjob") + unescape(link[1]))
    assert jids(page) == ["c00"]
    assert "Examined 12 jobs." in page


def test_progress_and_totals_of_pages_of_words(
    admin_client: Browser, site: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that end in the middle of a window have examined the rows up to their last one."""
    for n in range(60):
        complete(site, f"c{n:02}", {"name": "Anna" if n % 2 else "Bob"})
    write(site)
    drop(site, clock)
    drop(site, clock)
    page = text_of(admin_client, url("anna"))
    assert "At most 30 jobs" in page
    assert "Examined" not in page
    link = re.search(r'rel="next" href="([^"]*)"', page)
    assert link is not None
    page = text_of(admin_client, path("archivedjob") + unescape(link[1]))
    assert "30 jobs" in page
    assert "At most" not in page
    monkeypatch.setattr(terms, "MAX_CANDIDATES", 0)
    page = text_of(admin_client, url("anna"))
    assert "Examined 49 of about 60 jobs." in page  # the 25th of every second one
    assert "More than 25 jobs" in page
    link = re.search(r'rel="next" href="([^"]*)"', page)
    assert link is not None
    page = text_of(admin_client, path("archivedjob") + unescape(link[1]))
    assert "Examined 60 jobs." in page
    assert "30 jobs" in page
    assert "More than" not in page


def test_rare_words_are_read_from_the_index(admin_client: Browser, site: Client, clock: Clock) -> None:
    """The index has 16 words of arguments and whole words; examining all jobs finds the others."""
    complete(site, "long", {"a": "Joann", "list": [f"word{n:02}" for n in range(20)]}, tags=["a", "b", "c", "d", "e-5"])
    write(site)
    drop(site, clock)
    drop(site, clock)
    for text, is_indexed in (("word14", True), ("word15", False), ("oann", False), ("tag:e-5", True), ("lon", True)):
        assert find(admin_client, text) == ({"long"} if is_indexed else set())
        page = text_of(admin_client, url(text, inside="1"))
        assert jids(page) == ["long"], text
        assert "Examined" in page
    page = text_of(admin_client, url("word15"))
    assert "Examined" not in page
    link = re.search(r'href="([^"]*inside=1[^"]*)"', page)
    assert link is not None
    assert jids(text_of(admin_client, path("archivedjob") + unescape(link[1]))) == ["long"]


def test_totals(admin_client: Browser, dropped: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "3 jobs" in text_of(admin_client, url("state:complete"))
    monkeypatch.setattr(archive_search, "MAX_COUNTED", 2)
    monkeypatch.setattr(archive_search.Search.count, "__defaults__", (2,))
    assert "More than 2 jobs" in text_of(admin_client, url("state:complete"))


def test_a_wrong_cursor_is_the_first_page(admin_client: Browser, dropped: Client) -> None:
    for cursor in ("x", "99999999999999999999-1", "-", "20231114221320000000-99999999999999999999999"):
        assert "a-anna" in find(admin_client, "state:complete", cursor=cursor)


def test_the_page_of_a_job_that_redis_has_deleted(admin_client: Browser, dropped: Client) -> None:
    reply = admin_client.get(path("job", "a-anna"))
    assert (reply.status_code, reply["Location"]) == (302, path("archivedjob", "a-anna"))
    reply = admin_client.get(url("a-anna", "job"))
    assert (reply.status_code, reply["Location"]) == (302, path("archivedjob", "a-anna"))
    page = text_of(admin_client, path("archivedjob", "a-anna"))
    for text in ("Anna Meyer", "[redacted]", "Completed", "Popped by", "here-1", ">eu<", SEND):
        assert text in page
    assert "hunter2" not in page
    assert "some of its arguments are hidden" in page
    assert "Run again with these arguments" not in page
    assert text_of(admin_client, path("job", "unknown"), 404)
    assert "does not contain this job" in text_of(admin_client, path("archivedjob", "unknown"), 404)


def test_the_page_of_a_failure(admin_client: Browser, dropped: Client) -> None:
    page = text_of(admin_client, path("archivedjob", "f-fail"))
    for text in ("KeyError: &#x27;zip_code&#x27;", "Canceled", "mail-KeyError"):
        assert text in page


def test_a_job_that_is_in_redis_too_has_a_link(admin_client: Browser, site: Client) -> None:
    complete(site, "c1")
    write(site)
    assert path("job", "c1") in text_of(admin_client, path("archivedjob", "c1"))
    assert admin_client.get(path("job", "c1")).status_code == 200


def test_a_job_is_run_again(admin_client: Browser, site: Client, clock: Clock, settings: Any) -> None:
    klass = "tests.integration.qless.tasks.examples.add"
    settings.RESTY_DJANGO = {
        **settings.RESTY_DJANGO,
        "QLESS": {**settings.RESTY_DJANGO["QLESS"], "MODULES": ["tests.integration.qless.tasks.examples"]},
    }
    complete(site, "c1", {"args": [2, 3], "kwargs": {}}, klass=klass, tags=["eu"])
    write(site)
    drop(site, clock)
    page = text_of(admin_client, path("archivedjob", "c1"))
    link = re.search(r'href="([^"]*start/[^"]*)">Run again', page)
    assert link is not None
    form = text_of(admin_client, unescape(link[1]))
    arguments = re.search(r"<textarea[^>]*>(.*?)</textarea>", form, re.DOTALL)
    assert arguments is not None
    assert json.loads(unescape(arguments[1])) == {"args": [2, 3], "kwargs": {}}
    assert 'value="eu"' in form
    fields = {"queue": "mail", "arguments": unescape(arguments[1]), "priority": "0", "retries": "5", "delay": "0"}
    reply = admin_client.post(unescape(link[1]), {**fields, "tags": "eu"})
    assert reply.status_code == 302
    job = site.queues["mail"].pop()
    assert job is not None
    assert (job.klass, job.data["args"], job.jid != "c1") == (klass, [2, 3], True)
    assert LogEntry.objects.count() == 1
    assert "Run again" not in text_of(person("view_job"), path("archivedjob", "c1"))


def test_exports(admin_client: Browser, dropped: Client) -> None:
    for model in ("archivedjob", "job"):
        reply = admin_client.get(url("anna", model, export="json", of="archived-jobs"))
        [row] = json.loads(b"".join(reply.streaming_content))["rows"]  # type: ignore[attr-defined]
        assert (row["jid"], row["state"], row["tags"]) == ("a-anna", "complete", ["eu"])
        assert row["arguments"]["customer"] == {"id": 7, "name": "Anna Meyer", "password": "[redacted]"}
    reply = admin_client.get(url("state:complete", export="csv", of="archived-jobs"))
    table = list(csv.DictReader(io.StringIO(b"".join(reply.streaming_content).decode("utf-8-sig"))))  # type: ignore[attr-defined]
    assert [line["jid"] for line in table] == ["c-ada", "b-bob", "a-anna"]
    assert re.match(r"\d{4}-\d\d-\d\d", table[0]["finished"])


def test_permissions(dropped: Client) -> None:
    for address in (path("archivedjob"), path("archivedjob", "a-anna")):
        assert text_of(person("view_job"), address)
        assert person("cancel_job").get(address).status_code == 403
        assert Browser().get(address).status_code == 302
        assert person("view_job", "start_job").post(address).status_code == 405


def test_without_an_archive(admin_client: Browser, dropped: Client, settings: Any) -> None:
    address = settings.RESTY_DJANGO["QLESS"]["URL"]
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": archive_settings(address, RETENTION=None)}
    assert "There is no archive" in text_of(admin_client, path("archivedjob"))
    assert text_of(admin_client, path("archivedjob", "a-anna"), 404)
    assert text_of(admin_client, path("job", "a-anna"), 404)
    page = text_of(admin_client, url("anna", "job"))
    assert "Archived jobs" not in page
    assert f'<li><a href="{path("archivedjob")}"' not in page  # the tab


def test_hostile_names(admin_client: Browser, site: Client, clock: Clock) -> None:
    complete(site, HOSTILE, {HOSTILE: HOSTILE}, queue=HOSTILE, klass=HOSTILE, tags=[HOSTILE])
    write(site)
    drop(site, clock)
    for address in (path("archivedjob", HOSTILE), path("archivedjob"), path("job") + "?state=complete"):
        page = text_of(admin_client, address)
        assert "<b>" not in page
        assert "{{x}}" in page


def test_the_search_works_without_redis(
    admin_client: Browser, dropped: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from resty_django.qless.admin import archived
    from resty_django.redis.errors import StoreDown

    def down(*args: Any) -> Any:
        raise StoreDown("no")

    monkeypatch.setattr(archived, "oldest_complete", down)
    page = text_of(admin_client, url("anna"))
    assert jids(page) == ["a-anna"]
    assert "Redis does not answer" in page


@pytest.mark.parametrize(
    "text",
    ["state:complete", "class:render", "queue:mail", "age:>1h", "txid:t", "tag:eu", "anna", "error:zip", "a-anna"],
)
def test_each_query_uses_an_index(admin_client: Browser, dropped: Client, text: str) -> None:
    with CaptureQueriesContext(connection) as context:
        admin_client.get(url(text))
    selects = [query["sql"] for query in context if "resty_qless_archived" in query["sql"]]
    assert selects
    has_words = text in ("tag:eu", "anna", "error:zip")
    assert any("resty_qless_archivedterm" in sql for sql in selects) == has_words
    if connection.vendor == "sqlite":  # the planners of servers scan tables as small as this one
        with connection.cursor() as cursor:
            for sql in selects:
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
                plan = [line[3] for line in cursor.fetchall()]
                assert all("INDEX" in line or "subquery" in line for line in plan if "SCAN" in line), (sql, plan)
                assert has_words or not any("TEMP B-TREE" in line for line in plan), (sql, plan)
                assert not has_words or any("SEARCH" in line for line in plan), (sql, plan)
