"""The page "What happened": what each part contributes, permissions, ranges, and parts that fail."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.test import Client
from redis import Redis

from resty_django import circuit_breaker, timeline
from resty_django.alerts import store as alerts
from resty_django.alerts.incidents import Incident, State
from resty_django.cache import CallbackFailed, MLCache
from resty_django.ids.models import IdRule
from resty_django.limits.algorithms.decision import Decision
from resty_django.limits.statistics import reporter as limit_stats
from resty_django.qless.clients.default import default_client
from resty_django.qless.models import Queue, token
from resty_django.shdict import SharedDict, shdicts
from resty_django.timeline import Contributor, Entry, Span, Story, autostart, log, story

pytestmark = pytest.mark.django_db

PAGE = "/admin/resty_django/timeline/"
VIEW = "resty_django.view_timeline"


@pytest.fixture(autouse=True)
def same_contributors() -> Iterator[None]:
    known = dict(timeline.registry)
    yield
    timeline.registry.clear()
    timeline.registry.update(known)


class Cells(HTMLParser):
    """The rows of the table of events, as texts of their cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.in_cell = False
        self.feed(text.partition("<tbody>")[2] if "<h2>Events</h2>" not in text else text.split("<h2>Events</h2>")[1])

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.in_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self.in_cell = False

    def handle_data(self, data: str) -> None:
        if self.in_cell:
            self.rows[-1][-1] += data


def page_of(client: Client, query: str = "") -> str:
    response = client.get(PAGE + query)
    assert response.status_code == 200
    return response.content.decode()


def events(text: str) -> list[tuple[str, str]]:
    """Return part and event of each row."""
    return [(row[1], row[2]) for row in Cells(text).rows if len(row) == 4]


def titles(client: Client, query: str = "") -> list[str]:
    return [title for _part, title in events(page_of(client, query))]


@pytest.fixture
def jobs(valkey: Redis, valkey_url: str, settings: Any) -> Any:
    settings.CACHES = {
        **settings.CACHES,
        "jobs": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": valkey_url},
    }
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"ALIAS": "jobs", "WORKER_NAME": "w1"}}
    return default_client()


@pytest.mark.redis
def test_all_parts_are_on_one_page(jobs: Any, admin_client: Client, empty_cache: MLCache, admin_user: User) -> None:
    for _ in range(3):
        jobs.queues["pdf"].put("shop.jobs.Pdf")
    for job in jobs.queues["pdf"].pop(3):
        job.fail("pdf-OSError", "OSError: full")
    limit_stats.stats.record("prices", "key", Decision(False))
    limit_stats.stats.record("prices", "key", Decision(True))

    def fails() -> int:
        raise OSError("source")

    with pytest.raises(CallbackFailed, match="source"):
        empty_cache.get("key", fails)
    now = time.time()
    log.record_outage("redis:jobs", now - 60, now, "ConnectionError: refused", ended=True)
    log.record_deploy("worker")
    incident = Incident(
        rule="latency mail",
        title="Queue latency",
        subject="mail",
        value=400.0,
        threshold=300.0,
        is_above=True,
        unit="s",
        since=now - 100,
        fired=now - 50,
        resolved=now - 20,
    )
    alerts.change(lambda state: (State(past=(incident,)), None))
    rule = IdRule.objects.create(name="order", source="{counter}")
    LogEntry.objects.log_actions(admin_user.pk, [rule], CHANGE, "Maximum raised.")
    LogEntry.objects.log_actions(admin_user.pk, [Queue(token("pdf"))], CHANGE, "Paused.")
    text = page_of(admin_client)
    assert {
        ("Jobs", "3 jobs failed: pdf-OSError Error"),
        ("Limits", "1 of 2 requests refused: prices Warning"),
        ("Caches", "1 callbacks failed: cache default Error"),
        ("Outages", "Store redis:jobs was down Error"),
        ("Deploys", f"New version: {log.site_version()}"),
        ("Alerts", "Alert: Queue latency mail Error"),
        ("Alerts", "Resolved: Queue latency mail"),
        ("Edits", "admin: ID rule “order”"),
    } <= set(events(text)), events(text)
    assert any(part == "Edits" and "pdf" in title for part, title in events(text))
    times = [row[0] for row in Cells(text).rows if len(row) == 4]
    assert times == sorted(times)
    for caption in ("Jobs", "Limits", "Caches"):
        assert re.search(rf"<figcaption>{caption} ", text), caption
    assert "/admin/resty_qless/failuregroup/" in text
    for link in re.findall(r'href="(\?[^"]*export=[^"]+)"', text):
        assert admin_client.get(PAGE + link.replace("&amp;", "&")).status_code == 200, link
    assert len(re.findall(r"export=csv", text)) == 8  # of the events, jobs, limits and caches, each also of 24 hours
    assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", text.partition("content-main")[2])
    assert f'href="{PAGE}"' in admin_client.get("/admin/").content.decode()


def fail_jobs(jobs: Any, groups: list[str]) -> None:
    for group in groups:
        jobs.queues["pdf"].put("shop.jobs.Pdf")
        jobs.queues["pdf"].pop().fail(group, "OSError: full")


@pytest.mark.redis
def test_a_small_failure_group_is_found_among_many(jobs: Any, admin_client: Client) -> None:
    now = jobs.clock()
    jobs.clock = lambda: now - 7200
    fail_jobs(jobs, [f"large-{n:02d}" for n in range(39)] * 2)
    jobs.clock = time.time
    fail_jobs(jobs, ["small"])
    text = page_of(admin_client)
    assert [title for part, title in events(text) if part == "Jobs" and ":" in title] == ["1 job failed: small Error"]
    assert "largest" not in text


@pytest.mark.redis
@pytest.mark.parametrize("count", [25, 26])
def test_the_25_largest_failure_groups_are_shown(jobs: Any, admin_client: Client, count: int) -> None:
    names = [f"group-{n:02d}" for n in range(count)]
    fail_jobs(jobs, [*names, *names[-25:]])
    text = page_of(admin_client)
    shown = {title for part, title in events(text) if part == "Jobs" and "jobs failed" in title}
    assert shown == {f"2 jobs failed: {name} Error" for name in names[-25:]}
    assert ("At most 25 groups with failures are shown, the largest ones." in text) == (count > 25)


def test_permissions_are_those_of_the_parts(person: Callable[..., Client], admin_user: User) -> None:
    assert person("resty_django.view_overview").get(PAGE).status_code == 403
    assert person(VIEW).post(PAGE).status_code == 405
    rule = IdRule.objects.create(name="order", source="{counter}")
    LogEntry.objects.log_actions(admin_user.pk, [rule], CHANGE, "Maximum raised.")
    LogEntry.objects.log_actions(admin_user.pk, [Queue(token("pdf"))], CHANGE, "Paused.")
    LogEntry.objects.log_actions(admin_user.pk, [admin_user], CHANGE, "Not ours.")
    limit_stats.stats.record("prices", "key", Decision(False))
    assert events(page_of(person(VIEW))) == []
    assert [part for part, _ in events(page_of(person(VIEW, "resty_ids.view_idrule")))] == ["Edits"]
    (title,) = titles(person(VIEW, "resty_qless.view_job"))
    assert "pdf" in title
    assert [part for part, _ in events(page_of(person(VIEW, "resty_limits.view_limitpolicy")))] == ["Limits"]


def test_the_address_selects_the_time(admin_client: Client) -> None:
    now = time.time()

    def ask(span: Span) -> Story:
        moments = [now - 600, now - 26 * 3600]
        return story([Entry(at, f"then {at:.0f}") for at in moments if span.contains(at)])

    timeline.register(Contributor("then", "Then", ask, (VIEW,)))
    assert [title for title in titles(admin_client) if "then" in title] == [f"then {now - 600:.0f}"]
    assert len([title for title in titles(admin_client, "?hours=48") if "then" in title]) == 2
    text = page_of(admin_client, "?hours=48")
    link = re.search(r'href="(\?from=[^"]+)">Link to this time', text)
    assert link is not None
    shared = page_of(admin_client, link[1].replace("&amp;", "&"))
    assert len([title for _, title in events(shared) if "then" in title]) == 2
    assert "data-resty-every" in text
    earlier = re.search(r'href="(\?from=[^"]+)">Earlier', page_of(admin_client, "?at=03:12"))
    assert earlier is not None
    assert admin_client.get(PAGE + earlier[1].replace("&amp;", "&")).status_code == 200
    wrong = page_of(admin_client, "?at=<b>soon")
    assert "“&lt;b&gt;soon” is not a time." in wrong
    assert [title for _, title in events(wrong) if "then" in title] == [f"then {now - 600:.0f}"]


def test_another_time_keeps_order_and_filter(admin_client: Client) -> None:
    """Links and forms that select another time, and "Show all", which keeps the time."""

    def ask(span: Span) -> Story:
        return story([Entry(span.start + 1, "a page"), Entry(span.start + 2, "a pdf"), Entry(span.start + 3, "else")])

    timeline.register(Contributor("then", "Then", ask, (VIEW,)))
    text = page_of(admin_client, "?at=03:12&o=-event&find=a+p&export=no")
    links = re.findall(r'href="(\?(?:from|o|hours)[^"]*)">(Earlier|Later|Link to this time|Last [^<]*)<', text)
    assert [label for _link, label in links if not label.startswith("Last")] == [
        "Earlier",
        "Later",
        "Link to this time",
    ]
    assert len(links) == 3 + 4
    for link, label in links:
        query = parse_qs(link.replace("&amp;", "&").removeprefix("?"))
        assert {key: query.pop(key) for key in ("o", "find")} == {"o": ["-event"], "find": ["a p"]}, label
        assert query.keys() == ({"hours"} if label.startswith("Last") else {"from", "to"}), label
        assert titles(admin_client, link.replace("&amp;", "&")) == ["a pdf", "a page"], label
    hidden = '<input type="hidden" name="o" value="-event"><input type="hidden" name="find" value="a p">'
    assert text.count(hidden) == 2
    (show_all,) = re.findall(r'href="([^"]*)">Show all', text)
    assert parse_qs(show_all.replace("&amp;", "&").removeprefix("?"))["at"] == ["03:12"]
    assert titles(admin_client, show_all.replace("&amp;", "&")) == ["else", "a pdf", "a page"]


def test_a_part_that_fails_does_not_hide_the_others(admin_client: Client) -> None:
    def fails(span: Span) -> Story:
        raise OSError("<down>")

    timeline.register(Contributor("broken", "Broken", fails, (VIEW,)))
    timeline.register(Contributor("then", "Then", lambda span: story([Entry(span.start, "<i>it</i>")]), (VIEW,)))
    timeline.register(Contributor("absent", "Absent", fails, (VIEW,), app="resty_django.nowhere"))
    text = page_of(admin_client)
    assert "Broken: OSError: &lt;down&gt;" in text
    assert ("Then", "<i>it</i>") in events(text)
    assert "Absent" not in text


def test_many_entries_are_cut_and_counted(admin_client: Client) -> None:
    def ask(span: Span) -> Story:
        return story([Entry(span.start + number, "many") for number in range(500)])

    timeline.register(Contributor("then", "Then", ask, (VIEW,)))
    text = page_of(admin_client)
    assert sum(title == "many" for _, title in events(text)) == 200
    assert "300 more entries are not shown." in text


def test_the_events_can_be_exported(admin_client: Client) -> None:
    ask = lambda span: story([Entry(span.start + 5, "it", "why", span.start + 9, "error")])  # noqa: E731
    timeline.register(Contributor("then", "Then", ask, (VIEW,)))
    response = admin_client.get(PAGE + "?export=csv&of=events")
    rows = list(csv.reader(b"".join(response).decode("utf-8-sig").splitlines()))  # type: ignore[arg-type]
    assert rows[0] == ["time", "until", "part", "level", "event", "details"]
    assert ["then", "error", "it", "why"] in [row[2:] for row in rows]


@pytest.mark.redis
def test_failures_of_the_past_are_found_behind_newer_ones(jobs: Any, valkey: Redis, admin_client: Client) -> None:
    now = time.time()
    for age in (7200, 7190, 7180, 300, 200, 100):
        jobs.queues["pdf"].put("shop.jobs.Pdf", jid=f"j{age}")
    for job in jobs.queues["pdf"].pop(6):
        job.fail("pdf-OSError", "OSError: full")
        when = now - int(job.jid[1:])
        failure = valkey.hget(f"ql:j:{job.jid}", "failure")
        assert failure is not None
        changed = re.sub(rb'"when":[\d.]+', b'"when":%d' % when, failure)
        valkey.hset(f"ql:j:{job.jid}", "failure", changed)
    start, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - age)) for age in (7300, 7100))
    (row,) = [row for row in Cells(page_of(admin_client, f"?from={start}&to={end}")).rows if "pdf-OSError" in str(row)]
    assert row[2].startswith("3 jobs failed")
    assert row[3].strip() == "(20 s)"  # from the first to the last
    assert [title for title in titles(admin_client) if "jobs failed" in title] == ["3 jobs failed: pdf-OSError Error"]
    start, end = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - age)) for age in (6000, 5000))
    assert not any("jobs failed" in title for title in titles(admin_client, f"?from={start}&to={end}"))


@pytest.mark.redis
def test_failures_of_jobs_that_were_retried_are_counted_by_class(jobs: Any, admin_client: Client) -> None:
    for _ in range(3):
        jobs.queues["pdf"].put("shop.jobs.Pdf")
    for job in jobs.queues["pdf"].pop(3):
        job.fail("pdf-OSError", "OSError: full")
    jobs.unfail("pdf-OSError", "pdf", 3)
    rows = [row for row in Cells(page_of(admin_client)).rows if len(row) == 4 and row[1] == "Jobs"]
    assert sum(int(row[2].split()[0]) for row in rows) == 3
    assert all(row[3].startswith("in this minute: shop.jobs.Pdf: ") for row in rows)
    rows = [row for row in Cells(page_of(admin_client, "?hours=24")).rows if len(row) == 4 and row[1] == "Jobs"]
    assert sum(int(row[2].split()[0]) for row in rows) == 3
    assert all(row[3].startswith("in this hour: shop.jobs.Pdf: ") for row in rows)


class Breaker(circuit_breaker.CircuitBreaker):
    def log_failure(self, error: Exception) -> None: ...

    def log_recovery(self, seconds: float) -> None: ...


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit, "nothing happened within 60 s"
        time.sleep(0.02)


def test_outages_are_on_the_page_while_they_last_and_later(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaker = Breaker("redis:shared")
    breaker.record_failure(OSError("refused"))
    assert "Store redis:shared is down Error" in titles(admin_client)
    with monkeypatch.context() as patch:
        patch.setattr(autostart, "in_tests", lambda: False)
        breaker.reset()
        until(lambda: bool(log.load().outages))
    shown = titles(admin_client)
    assert "Store redis:shared was down Error" in shown
    assert "Store redis:shared is down Error" not in shown


def test_an_outage_that_another_process_sees_is_on_the_page(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.time()
    monkeypatch.setattr(autostart, "in_tests", lambda: False)
    monkeypatch.setattr(circuit_breaker, "REPORT_INTERVAL", 0.0)
    breaker = Breaker("redis:shared")
    breaker.record_failure(OSError("refused"))
    until(lambda: bool(log.load().outages))
    (first,) = log.load().outages
    breaker.record_failure(OSError("still refused"))
    until(lambda: log.load().outages[0].until > first.until)
    (noted,) = log.load().outages
    assert (noted.ended, noted.error, noted.at) == (False, "refused", first.at)
    breaker.down = False  # as in another process, which has not called the store
    assert "Store redis:shared is down Error" in titles(admin_client)
    killed = log.StoredOutage("redis:jobs", clock - 900, clock - 600, "refused", ended=False)
    log._write(lambda stored: log.with_outage(stored, killed))
    assert "Store redis:jobs was down Error" in titles(admin_client)
    breaker.down = True
    breaker.reset()
    until(lambda: log.load().outages[-1].ended)
    assert "Store redis:shared was down Error" in titles(admin_client)


def test_processes_note_their_version_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert log.load().deploys == ()
    autostart.on_request()  # not in tests
    assert log.load().deploys == ()
    autostart.start_in_worker()
    until(lambda: bool(log.load().deploys))
    log.record_deploy("web")
    (deploy,) = log.load().deploys
    assert (deploy.process, deploy.version) == ("worker", log.site_version())
    assert "Django" in deploy.version
    monkeypatch.setattr(log, "site_version", lambda: "v2")
    log.record_deploy("web")
    assert [each.before for each in log.load().deploys] == ["", deploy.version]


def test_a_log_that_cannot_be_written_disturbs_nothing(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    names = settings.RESTY_DJANGO["SHARED_DICTS"]
    shdicts.close_all()
    broken = {"PATH": "/proc/resty-is-not-writable"}
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "SHARED_DICTS": {**names, "default": broken}}
    log.record_deploy("web")
    log.record_outage("redis", 1.0, 2.0, "refused", ended=True)
    assert sum("could not be noted" in record.getMessage() for record in caplog.records) == 2
    shdicts.close_all()
    assert isinstance(shdicts["limits"], SharedDict)
