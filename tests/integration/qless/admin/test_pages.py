"""Pages of the job queue's admin: valid and safe HTML, and their content."""

from __future__ import annotations

import re
import time
from html import unescape
from typing import Any

import pytest
from django.test import Client as Browser

from project.shop.models import Order
from resty_django.qless import Client
from resty_django.txid import bound, txid
from tests.integration.html_pages import sound
from tests.integration.qless.admin.tools import failed, fill, jids, path, person, plain, text_of
from tests.integration.qless.conftest import change_settings
from tests.staff import logged

pytestmark = [pytest.mark.django_db, pytest.mark.redis]

LISTS = ("queue", "job", "failuregroup", "jobgroup", "jobclass", "worker", "tag", "recurringjob", "option")
TABS = ("stats", "running", "waiting", "scheduled", "stalled", "depends", "recurring")


def test_every_page_is_valid_on_an_empty_server(admin_client: Browser, jobs_site: Client) -> None:
    for model in LISTS:
        sound(text_of(admin_client, path(model)))
    for tab in TABS:
        sound(text_of(admin_client, f"{path('queue', 'none')}?tab={tab}"))
    sound(text_of(admin_client, path("job", "none"), 404))
    sound(text_of(admin_client, path("recurringjob", "none"), 404))
    sound(text_of(admin_client, path("worker", "none")))
    sound(text_of(admin_client, path("failuregroup", "none")))
    for model in ("queue", "job", "recurringjob", "worker", "failuregroup"):
        assert "resty-nothing" in text_of(admin_client, path(model)), model


def test_overview_counts_queues_failures_and_workers(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    jobs_site.queues["pdf"].put("K", {}, jid="p1")
    text = sound(text_of(admin_client, path("queue")))
    row = re.search(r"<th[^>]*><a[^>]*>mail</a>.*?</tr>", text, re.DOTALL)
    assert row
    numbers = re.findall(r'tab=(\w+)">([\d,]+)</a>', row[0])
    assert dict(numbers) == {"running": "1", "waiting": "1", "scheduled": "1", "depends": "1", "recurring": "1"}
    tiles = dict(re.findall(r"<dt>(\w+)</dt><dd>(?:<a[^>]*>)?([\d,]+)", text))
    assert int(tiles.pop("Latency")) >= 0
    assert tiles == {
        "Running": "1",
        "Waiting": "2",
        "Scheduled": "1",
        "Stalled": "0",
        "Depends": "1",
        "Failed": "1",
        "Tracked": "0",
        "Workers": "1",
    }


def names(browser: Browser, model: str, query: str) -> list[str]:
    """Return the names in the first column of a list."""
    text = text_of(browser, f"{path(model)}{query}")
    return re.findall(r'<th scope="row"><a (?:class="resty-tag" )?href="[^"]*">(\w+)</a>', text)


def test_tables_sort_and_page_by_the_address(admin_client: Browser, jobs_site: Client) -> None:
    for n in range(30):
        jobs_site.queues[f"q{n:02}"].put_many([{"klass": "K", "data": {}} for _ in range(n + 1)])
    assert names(admin_client, "queue", "") == [f"q{n:02}" for n in range(25)]
    assert names(admin_client, "queue", "?p=2") == [f"q{n:02}" for n in range(25, 30)]
    assert names(admin_client, "queue", "?o=waiting&p=99") == [f"q{n:02}" for n in range(25, 30)]
    assert names(admin_client, "queue", "?o=-waiting")[:3] == ["q29", "q28", "q27"]
    text = text_of(admin_client, f"{path('queue')}?o=-waiting")
    assert 'aria-sort="descending"' in text
    assert "?o=-waiting&amp;p=2" in text
    assert "1 to 25 of 30" in text


@pytest.mark.parametrize(("model", "name"), [("queue", "mail"), ("failuregroup", "mail-Timeout"), ("worker", "here-1")])
def test_lists_of_names_are_filtered(admin_client: Browser, jobs_site: Client, model: str, name: str) -> None:
    fill(jobs_site)
    link = f'<th scope="row"><a href="{path(model, name)}">'
    assert link in text_of(admin_client, f"{path(model)}?name={name[:3].upper()}")
    text = sound(text_of(admin_client, f"{path(model)}?name=nothing"))
    assert link not in text
    assert "Remove the filter." in text


def test_recurring_jobs_and_tags_are_sorted(admin_client: Browser, jobs_site: Client) -> None:
    for n in range(30):
        queue = jobs_site.queues[f"q{n % 2}"]
        queue.put_many([{"klass": "K", "data": {}, "tags": [f"t{n:02}"]}] * (2 + n % 3))
        queue.recur("K", {}, 100 + n, jid=f"r{n:02}", offset=1000 - n)
    assert names(admin_client, "recurringjob", "?o=jid") == [f"r{n:02}" for n in range(25)]
    assert names(admin_client, "recurringjob", "?o=-interval&p=2") == [f"r{n:02}" for n in reversed(range(5))]
    assert names(admin_client, "recurringjob", "?o=next")[:2] == ["r29", "r28"]
    assert names(admin_client, "recurringjob", "")[:2] == ["r28", "r26"]
    assert len(names(admin_client, "recurringjob", "?p=2")) == 5
    assert names(admin_client, "tag", "?o=name") == [f"t{n:02}" for n in range(25)]
    assert names(admin_client, "tag", "?o=-name&p=2") == [f"t{n:02}" for n in reversed(range(5))]
    assert {int(name[1:]) % 3 for name in names(admin_client, "tag", "?o=count")[:10]} == {0}
    assert {int(name[1:]) % 3 for name in names(admin_client, "tag", "")[:10]} == {2}


def test_groups_of_failures_are_sorted_by_their_times(admin_client: Browser, jobs_site: Client) -> None:
    start = jobs_site.clock()
    for n, group in enumerate(("first", "second", "first", "third")):
        jobs_site.clock = lambda n=n: start - 1000 + 100 * n  # type: ignore[misc]
        failed(jobs_site, f"j{n}", group)
    assert names(admin_client, "failuregroup", "?o=first") == ["first", "second", "third"]
    assert names(admin_client, "failuregroup", "?o=-last") == ["third", "first", "second"]
    assert names(admin_client, "failuregroup", "?o=group") == ["first", "second", "third"]
    assert names(admin_client, "failuregroup", "")[0] == "first"


def test_an_object_leads_to_the_jobs_of_its_request(admin_client: Browser, jobs_site: Client) -> None:
    order = Order.objects.create(number="O1", invoice="I1", item="Tea", txid=txid())
    with bound(str(order.txid)):
        jobs_site.queues["mail"].put("K", {}, jid="mine")
    jobs_site.queues["mail"].put("K", {}, jid="another")
    (link,) = re.findall(
        r'<a href="([^"]*/job/[^"]*)">of the same request</a>', text_of(admin_client, "/admin/shop/order/")
    )
    jobs_page = text_of(admin_client, link)
    assert path("job", "mine") in jobs_page
    assert path("job", "another") not in jobs_page


def test_jobs_are_found(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    everything = {"waiting-1", "running-1", "scheduled-1", "depends-1", "failed-1", "complete-1"}
    for query, expected in (
        ("", everything),
        ("?state=waiting", {"waiting-1"}),
        ("?state=running", {"running-1"}),
        ("?state=stalled", set[str]()),
        ("?state=complete", {"complete-1"}),
        ("?state=failed", {"failed-1"}),
        ("?state=failed&queue=mail", {"failed-1"}),
        ("?state=nonsense", everything),
        ("?tag=vip", {"waiting-1", "failed-1"}),
        ("?tag=vip&state=waiting", {"waiting-1"}),
        ("?klass=shop.jobs.Other", set[str]()),
        ("?queue=none", set[str]()),
        ("?worker=here-1", {"running-1"}),
        ("?group=mail-Timeout", {"failed-1"}),
        ("?q=the+server+said", {"failed-1"}),
        ("?q=EU", {"waiting-1"}),
        ("?q=complete", {"complete-1"}),
        ("?q=hunter2", set[str]()),
        ("?cursor=nonsense&tag=vip&state=waiting", {"waiting-1"}),
    ):
        text = sound(text_of(admin_client, f"{path('job')}{query}"))
        assert set(jids(text)) == expected, query


def test_a_jid_leads_to_its_job(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    assert admin_client.get(f"{path('job')}?q=waiting-1").headers["Location"] == path("job", "waiting-1")
    assert admin_client.get(f"{path('job')}?q=recurring-1").headers["Location"] == path("recurringjob", "recurring-1")
    assert admin_client.get(path("job", "recurring-1")).headers["Location"] == path("recurringjob", "recurring-1")
    assert admin_client.get(path("tag", "vip")).headers["Location"] == f"{path('job')}?tag=vip"


def test_a_search_is_bounded_and_continues(admin_client: Browser, jobs_site: Client) -> None:
    jobs_site.queues["a"].put_many([{"klass": "K", "data": {}} for _ in range(1500)])
    failed(jobs_site, "lost", queue="z", group="lost-Needle")
    url, pages_before = f"{path('job')}?q=needle", 0
    for _ in range(10):
        text = text_of(admin_client, url)
        if "lost-Needle" in text:
            break
        cursor = re.search(r'href="(\?[^"]*cursor=[^"]*)"', text)
        assert cursor, text
        url = f"{path('job')}{cursor[1].replace('&amp;', '&')}"
        pages_before += 1
    else:
        pytest.fail("the job was not found")
    assert pages_before >= 2


def test_job_page_shows_arguments_dependents_result_and_failure(admin_client: Browser, jobs_site: Client) -> None:
    fill(jobs_site)
    text = sound(text_of(admin_client, path("job", "waiting-1")))
    assert "hunter2" not in text
    assert "[redacted]" in text
    assert path("job", "depends-1") in text
    assert path("job", "depends-1", "undepend") + "?on=waiting-1" in text
    done = text_of(admin_client, path("job", "complete-1"))
    assert "&quot;sent&quot;: true" in done
    broken = text_of(admin_client, path("job", "failed-1"))
    assert "the server said nothing" in broken
    assert path("failuregroup", "mail-Timeout") in broken
    running = jobs_site.jobs.multiget("running-1")[0]
    running.progress(0.25, "a quarter")
    text = text_of(admin_client, path("job", "running-1"))
    assert "25 % a quarter" in text
    assert '<label for="resty-progress">Progress</label> <progress id="resty-progress" max="1" value="0.250">' in text


def test_a_paused_queue_shows_it_where_its_latency_would_be(admin_client: Browser, jobs_site: Client) -> None:
    for name in ("mail", "pdf"):
        jobs_site.queues[name].put("K", {})
    admin_client.post(path("queue", "mail", "pause"), {"reason": "deploy"})
    jobs_site.call("pause", "pdf")  # as another client does
    since = r"aused since \d\d:\d\d by admin, 1 waiting, oldest \S+ m?s"
    text = plain(text_of(admin_client, path("queue")))
    assert re.search(rf"mail 0 1 0 0 0 0 0 p{since} .* paused deploy Resume", text)
    assert re.search(r"pdf 0 1 0 0 0 0 0 paused, 1 waiting, oldest \S+ m?s", text)
    text = plain(text_of(admin_client, path("queue", "mail")))
    assert re.search(rf"P{since} \(deploy\)\. Workers receive no jobs from the queue\.", text)
    jobs_site.queues["mail"].config_set("paused-since", 1.7e9)
    text = plain(text_of(admin_client, path("queue", "mail")))
    assert re.search(r"Paused since Nov\. 14, 2023, \d\d:13:20 by admin", text)


def test_a_queue_is_resumed_with_one_click(admin_client: Browser, jobs_site: Client) -> None:
    for url, after in ((path("queue"), path("queue")), (path("queue", "mail"), path("queue", "mail"))):
        jobs_site.queues["mail"].put("K", {})
        jobs_site.queues["mail"].pause()
        text = text_of(admin_client, url)
        (action,) = re.findall(r'<form method="post" action="([^"]*/unpause/[^"]*)"', text)
        assert admin_client.post(action)["Location"] == after
        assert not jobs_site.queues["mail"].paused()
        assert "/unpause/" not in text_of(person("view_job"), url)
        assert f'href="{path("queue", "mail", "pause")}"' in text_of(admin_client, url)
    assert logged() == ["Resumed."] * 2


def test_the_list_of_queues_links_to_recent_failures(admin_client: Browser, jobs_site: Client) -> None:
    now = jobs_site.clock()
    for hours, jid in ((30, "old"), (5, "recent"), (0, "new")):
        jobs_site.clock = lambda hours=hours: now - 3600 * hours  # type: ignore[misc]
        failed(jobs_site, jid)
    failed(jobs_site, "other", queue="pdf")
    text = text_of(admin_client, f"{path('queue')}?o=-failed")
    links = re.findall(r'<a href="([^"]*\?state=failed&amp;queue=\w+)">(\d+)</a>', text)
    assert [count for _url, count in links] == ["2", "1"]
    assert jids(text_of(admin_client, unescape(links[0][0]))) == ["new", "recent", "old"]


def test_the_page_of_a_group_shows_a_sample_and_its_time(admin_client: Browser, jobs_site: Client) -> None:
    now = int(jobs_site.clock())
    jobs_site.clock = lambda: now - 7200  # type: ignore[misc]
    failed(jobs_site, "old")
    jobs_site.clock = lambda: now - 60  # type: ignore[misc]
    for n in range(30):
        failed(jobs_site, f"new{n}")
    jobs_site.clock = lambda: now  # type: ignore[misc]
    for url in (path("failuregroup"), path("failuregroup", "mail-Timeout")):
        text = sound(text_of(admin_client, url))
        assert ">2 h ago<" in text
        assert ">1 min ago<" in text
        assert "Latest 25 failures" in text
        assert "the server said nothing" in text


def test_recurring_jobs_of_removed_tasks_are_marked(admin_client: Browser, jobs_site: Client) -> None:
    """And none else; nothing is changed by looking."""
    fill(jobs_site)
    queue, server = jobs_site.queues["mail"], jobs_site.source.sync()
    for name, ago in (("sweep", 700), ("fresh", 5)):
        queue.recur(f"no.tasks.{name}", {"args": [], "kwargs": {}}, 60, jid=f"every-no.tasks.{name}")
        server.zadd("ql:declared", {f"every-no.tasks.{name}": time.time() - ago})
    text = sound(text_of(admin_client, path("recurringjob")))
    url = path("recurringjob", "every-no.tasks.sweep")
    assert f'<a href="{url}">The task of every-no.tasks.sweep no longer exists</a>' in text
    assert text.count(" no longer exists</a>") == 1
    assert [text.count(f"<td>{by}</td>") for by in ("people", "a task", "a removed task")] == [1, 1, 1]
    text = text_of(admin_client, path("recurringjob", "every-no.tasks.sweep"))
    assert "a removed task: it is not a task that workers may run. A worker declared it 11 min 4" in text  # 40 s, or 41
    assert "Cancel it to stop creating such jobs." in text
    text = text_of(admin_client, path("recurringjob", "every-no.tasks.fresh"))
    assert "a task: it is not a task that workers may run. A worker declared it" in text
    assert "Cancel it to stop" not in text
    assert "<td>people</td>" in text_of(admin_client, path("recurringjob", "recurring-1"))
    assert server.zcard("ql:declared") == 2
    admin_client.post(path("recurringjob", "every-no.tasks.sweep", "cancel"))
    assert " no longer exists</a>" not in text_of(admin_client, path("recurringjob"))


@pytest.mark.parametrize("protocol", [2, 3])
def test_lists_with_both_protocols(admin_client: Browser, jobs_site: Client, settings: Any, protocol: int) -> None:
    fill(jobs_site)
    change_settings(settings, URL=f"{settings.RESTY_DJANGO['QLESS']['URL']}?protocol={protocol}")
    for model in LISTS:
        sound(text_of(admin_client, path(model)))
    assert "recurring-1" in text_of(admin_client, path("recurringjob"))


def test_recurring_page_has_the_next_five_times(admin_client: Browser, jobs_site: Client) -> None:
    now = jobs_site.clock()
    jobs_site.clock = lambda: now  # type: ignore[misc]
    fill(jobs_site)
    text = sound(text_of(admin_client, path("recurringjob", "recurring-1")))
    times = ["in 1 min", "in 1 h 1 min", "in 2 h 1 min", "in 3 h 1 min", "in 4 h 1 min"]
    assert re.findall(r"<li><time[^>]*>(in [^<]*)</time>", text) == times


def test_values_of_other_clients_do_not_break_a_page(admin_client: Browser, jobs_site: Client, valkey: Any) -> None:
    jobs_site.queues["mail"].put("K", {}, jid="odd")
    valkey.hset("ql:j:odd", mapping={"data": b"\xff not json", "priority": "1e300", "tags": '[7,"\xe9"]'})
    valkey.zadd("ql:q:mail-work", {b"\xff\xfe": 1})
    valkey.lpush("ql:j:odd-history", '[1,"put",{}]')
    for url in (path("job", "odd"), f"{path('queue', 'mail')}?tab=waiting", path("job"), path("queue")):
        sound(text_of(admin_client, url))


@pytest.mark.parametrize("number", ["1e300", "-1e300", "1e12", str(2**70)])
def test_numbers_of_other_clients_do_not_break_a_page(
    admin_client: Browser, jobs_site: Client, valkey: Any, number: str
) -> None:
    """Any number on the server that is a time or a duration may be one of another client."""
    fill(jobs_site)
    for key in valkey.keys("ql:*"):
        kind = valkey.type(key)
        if kind == b"zset":
            for member in valkey.zrange(key, 0, -1):
                valkey.zadd(key, {member: float(number)})
        elif kind == b"hash":
            for field in (b"expires", b"time", b"at", b"interval", b"ended", b"when"):
                if valkey.hexists(key, field):
                    valkey.hset(key, field, number)
        elif kind == b"list" and key.endswith(b"-history"):
            entries = [re.sub(rb"\d{6,}(\.\d+)?", b"1e300", entry) for entry in valkey.lrange(key, 0, -1)]
            valkey.delete(key)
            valkey.rpush(key, *entries)
    urls = [path(model) for model in LISTS]
    urls += [f"{path('queue', 'mail')}?tab={tab}" for tab in TABS]
    urls += [path("job", key.decode().split(":")[-1]) for key in valkey.keys("ql:j:*") if key.count(b"-") == 0]
    urls += [path("recurringjob", "recurring-1"), "/admin/resty_django/overview/", "/metrics"]
    for url in urls:
        assert admin_client.get(url, follow=True).status_code == 200, url


def test_links_lead_to_the_objects_in_the_arguments(admin_client: Browser, jobs_site: Client, settings: Any) -> None:
    data = {"user": {"model": "auth.User", "pk": 7}, "other": ["auth.group:3", "no.model:1", "shop.jobs:"]}
    jobs_site.queues["mail"].put("K", data, jid="linked")
    text = text_of(admin_client, path("job", "linked"))
    assert 'href="/admin/auth/user/7/change/"' in text
    assert 'href="/admin/auth/group/3/change/"' in text
    assert "/admin/auth/" not in text_of(person("view_job"), path("job", "linked"))
    change_settings(settings, LINKS=f"{__name__}.links_of", REDACTOR=f"{__name__}.hide_all")
    text = text_of(admin_client, path("job", "linked"))
    assert 'href="https://shop.example/linked"' in text
    assert "javascript:" not in text
    assert "auth.User" not in text
    assert "hidden by the site" in text
    change_settings(settings, REDACTOR=f"{__name__}.broken")
    text = text_of(admin_client, path("job", "linked"))
    assert "auth.User" not in text
    assert "&quot;[redacted]&quot;" in text


def links_of(job: Any) -> list[tuple[str, str]]:
    return [
        ("The shop", f"https://shop.example/{job.jid}"),
        ("Bad", "javascript:alert(1)"),
        ("Worse", "//evil.example"),
    ]


def hide_all(data: Any) -> Any:
    return "hidden by the site"


def broken(data: Any) -> Any:
    raise ValueError("no")


def test_a_cache_without_redis_is_reported(admin_client: Browser, settings: Any) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"ALIAS": "default"}}
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    assert admin_client.get(path("queue")).status_code == 503


def test_invalid_prefix_is_an_error_message(admin_client: Browser, jobs_site: Client, valkey: Any) -> None:
    valkey.set("ql:queues", "not a sorted set")
    assert admin_client.get(path("queue")).status_code == 503
