"""The search for jobs in the admin."""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import quote_plus

import pytest
from django.test import Client as Browser

from resty_django.qless import Client
from resty_django.qless.admin.job_lists import search as job_search
from resty_django.qless.admin.job_lists.filters import JobFilter
from resty_django.qless.admin.job_lists.lists import JobList
from resty_django.qless.search import index
from resty_django.qless.search.index import Indexer
from resty_django.qless.search.terms import index_terms
from tests.integration.qless.admin.tools import (
    HOSTILE,
    bulk,
    everything,
    failed,
    fill,
    hostile,
    jids,
    path,
    person,
    text_of,
)
from tests.integration.qless.conftest import change_settings, pop

pytestmark = [pytest.mark.django_db, pytest.mark.redis]


def search(browser: Browser, text: str, **parameters: str) -> str:
    query = "&".join(f"{name}={quote_plus(value)}" for name, value in {"q": text, **parameters}.items())
    return text_of(browser, f"{path('job')}?{query}")


def all_pages(browser: Browser, text: str) -> list[str]:
    """The jobs of all pages of a search."""
    page = search(browser, text)
    results = jids(page)
    while link := re.search(r'rel="next" href="([^"]*)"', page):
        page = text_of(browser, path("job") + unescape(link[1]))
        results += jids(page)
    return results


def commands(valkey: Any, browser: Browser, text: str) -> int:
    """Return the number of commands that the server executes for a search, in scripts too."""
    search(browser, text)
    before = valkey.info("stats")["total_commands_processed"]
    search(browser, text)
    return int(valkey.info("stats")["total_commands_processed"] - before - 1)


def index_all(client: Client) -> None:
    while index.index_jobs(client):
        pass
    while client.call("index.sweep"):
        pass


@pytest.fixture(autouse=True)
def _all_classes(jobs_site: Client) -> None:
    """All jobs are in the index, unless a test says otherwise."""
    jobs_site.config.set("index-classes", "*")


@pytest.fixture
def orders(jobs_site: Client) -> Client:
    """Jobs in all states, for customers with names and passwords."""
    queue = jobs_site.queues["mail"]

    def put(jid: str, number: int, name: str, **options: Any) -> None:
        customer = {"id": number, "name": name, "password": "hunter2"}
        queue.put("shop.tasks.Send", {"customer": customer}, jid=jid, **options)

    for jid, number in (("x-failed", 7), ("x-complete", 70), ("x-running", 8)):
        put(jid, number, "Anna Meyer", priority=100)
        job = pop(queue)
        if jid == "x-failed":
            job.fail("mail-KeyError", "Traceback\nKeyError: 'zip_code'")
        elif jid == "x-complete":
            job.complete()
    put("x-waiting", 7, "Bob <b>", tags=["eu"])
    put("x-scheduled", 9, "Annette", delay=3600)
    return jobs_site


def test_jobs_in_all_states_are_found(admin_client: Browser, orders: Client) -> None:
    """tests/unit/qless has all kinds of terms."""
    for text, expected in (
        ("args.customer.id:7", {"x-failed", "x-waiting"}),
        ("args.customer.id:7 state:failed", {"x-failed"}),
        ("args.customer.name:ann state:complete", {"x-complete"}),
        ("args.customer.name:ann state:running", {"x-running"}),
        ("ann queue:other", set[str]()),
        ("meyer", {"x-failed", "x-complete", "x-running"}),
        ("error:KeyError", {"x-failed"}),
        ("tag:eu bob", {"x-waiting"}),
        ("class:send state:waiting", {"x-waiting"}),
        ("state:failed age:<1h", {"x-failed"}),
        ("hunter2", set[str]()),
        ("args.customer.password:hunter2", set[str]()),
        ("redacted", set[str]()),
    ):
        page = search(admin_client, text)
        assert set(jids(page)) == expected, text
        assert "hunter2" not in page.replace(f'value="{text}"', "").replace(quote_plus(text), ""), text


def test_failed_jobs_and_named_classes_are_in_the_index(admin_client: Browser, orders: Client, valkey: Any) -> None:
    """Other jobs are found as well, by examining them; the page says so."""
    orders.queues["mail"].put("shop.tasks.Pay", {"customer": {"name": "Anna"}}, jid="x-pay")
    note = "This search examines jobs one by one"
    for classes, indexed, by_index in (
        ("", {b"x-failed"}, ["error:KeyError state:failed"]),
        ("shop.tasks.Pay", {b"x-failed", b"x-pay"}, ["class:shop.tasks.Pay ann", "ann state:failed"]),
        ("other, shop.tasks.Pay shop.tasks.Send", None, ["class:shop.tasks.Send ann"]),
    ):
        orders.config.set("index-classes", classes)
        valkey.hset("ql:index-pass", "until", 0)
        index_all(orders)
        index_all(orders)
        jids_of = {entry.partition(b"\0")[2][8:] for entry in valkey.zrange("ql:index", 0, -1)}
        assert jids_of == (
            indexed or {b"x-failed", b"x-complete", b"x-running", b"x-scheduled", b"x-waiting", b"x-pay"}
        )
        assert {key[5:] for key in valkey.keys("ql:i:*")} == jids_of
        for text in by_index:
            page = search(admin_client, text)
            assert jids(page) != []
            assert note not in page
        page = search(admin_client, "ann")
        assert set(jids(page)) == {"x-failed", "x-complete", "x-running", "x-scheduled", "x-pay"}
        assert note in page
        assert note not in search(admin_client, "tag:eu")


def test_a_search_without_a_result_offers_parts_of_words(admin_client: Browser, orders: Client) -> None:
    """Where the table would be; above the table if there are results, and not for names, which have no words."""
    for classes in ("*", ""):  # with the index, and without it
        orders.config.set("index-classes", classes)
        orders.queues["mail"].put("shop.tasks.Send", {"customer": {"id": 70123}}, jid=f"number-{len(classes)}")
        page = search(admin_client, "7012 state:waiting")
        (box,) = re.findall(r'<p class="resty-nothing">(.*?)</p>', page)
        link = re.search(r'<a href="([^"]*)">Search also for parts of words', box)
        assert link, box
        assert f"number-{len(classes)}" in jids(text_of(admin_client, path("job") + unescape(link[1])))
        assert "parts of words" not in search(admin_client, "tag:none")
        assert page.count("parts of words") == 1
        page = search(admin_client, "70123")
        assert page.index("parts of words") < page.index("resty-list")
    assert "parts of words" not in search(admin_client, "7012", inside="1")
    assert set(jids(search(admin_client, "eyer", inside="1"))) == {"x-failed", "x-complete", "x-running"}
    assert jids(search(admin_client, "unter2", inside="1")) == []


def test_a_filter_in_the_url_is_in_the_search_box(admin_client: Browser, orders: Client) -> None:
    for query, text, expected in (
        ("?state=failed&queue=mail", "state:failed queue:mail", {"x-failed"}),
        ("?tag=eu&q=bob", "tag:eu bob", {"x-waiting"}),
        ("?klass=shop.tasks.Send&state=complete", 'state:complete class:"shop.tasks.Send"', {"x-complete"}),
        ("?state=failed&q=state:waiting", "state:waiting", {"x-waiting"}),
    ):
        page = text_of(admin_client, f"{path('job')}{query}")
        assert set(jids(page)) == expected, query
        (value,) = re.findall(r'<input type="search" id="resty-find"[^>]* value="([^"]*)"', page)
        assert unescape(value) == text
        assert set(jids(search(admin_client, text))) == expected, text
        assert "resty-filters" not in page
    for query, title in (("tracked=1", "Tracked jobs"), ("group=mail-KeyError", "mail-KeyError"), ("", "Jobs")):
        assert f"<h1>{title}</h1>" in text_of(admin_client, f"{path('job')}?{query}")


def test_a_transaction_id_leads_to_its_refusals(admin_client: Browser, orders: Client) -> None:
    """If it looks like one, and for users who may see limits."""
    txid = "d24us73ooblue1de6dq0"
    link = f'<a href="/admin/resty_limits/limitpolicy/limits/key/?key={txid}">Refused requests'
    orders.call("put", "w", "mail", "mine", "K", "{}", 0, "txid", txid)
    for text in (txid, f"txid:{txid}", f"state:waiting {txid}"):
        page = search(admin_client, text)
        assert link in page, text
        assert jids(page) == ["mine"], text
    assert admin_client.get(f"/admin/resty_limits/limitpolicy/limits/key/?key={txid}").status_code == 200
    assert "?key=T-1" in search(admin_client, "txid:T-1")
    assert "Refused requests" not in search(admin_client, "bob")
    assert "Refused requests" not in search(person("view_job"), txid)


def test_results_show_where_they_match(admin_client: Browser, orders: Client) -> None:
    page = search(admin_client, "args.customer.name:bob")
    assert '<span class="resty-quiet">customer.name:</span> <mark>Bob</mark> &lt;b&gt;' in page
    assert "<mark>zip</mark>_code" in search(admin_client, "zip")


def test_errors_are_at_the_box_with_the_fields(admin_client: Browser, orders: Client) -> None:
    page = search(admin_client, "colour:red")
    assert '<p class="errornote" role="alert">There is no field colour. To search for text' in page
    assert 'aria-invalid="true"' in page
    assert 'value="colour:red"' in page
    assert "<code>txid:</code>" in page
    assert jids(page) == []
    assert 'role="alert"' not in search(admin_client, "ann")
    for text, tries, expected in (
        (
            "customer.id:7 state:failed",
            ["args.customer.id:7 state:failed", '"customer.id:7" state:failed'],
            {"x-failed"},
        ),
        ('state:waiting Customer:"Bob <b>"', ['state:waiting args.Customer:"Bob <b>"'], {"x-waiting"}),
    ):
        links = re.findall(
            r'<a href="([^"]*)"><code>([^<]*)</code></a>', search(admin_client, text).split("<details>")[0]
        )
        assert [unescape(shown) for _url, shown in links] == tries
        assert set(jids(text_of(admin_client, unescape(links[0][0])))) == expected
    assert "is not an age" in search(admin_client, "age:soon")
    reply = admin_client.post(bulk() + "&q=age:soon", {"verb": "retry", "pick": "x-failed"}, follow=True)
    assert "is not an age" in reply.content.decode()


def test_the_search_box_completes_fields_and_known_values(admin_client: Browser, orders: Client) -> None:
    orders.queues["mail"].put("shop.tasks.Send", {}, tags=["eu", "b c"])
    orders.queues["mail"].put("shop.tasks.Send", {}, tags=["b c"])
    search(admin_client, "ann")
    page = search(admin_client, "")
    options = {unescape(value) for value in re.findall(r"<option>([^<]*)</option>", page)}
    assert {"error:", "args.", "state:failed", "queue:mail", "class:shop.tasks.Send", "tag:eu", 'tag:"b c"'} <= options
    assert set(jids(search(admin_client, 'tag:"b c"'))) == set(jids(search(admin_client, "", tag="b c"))) != set()
    other = text_of(admin_client, path("failuregroup"))
    assert "<option>state:failed</option>" in other
    assert 'list="resty-find-list"' in other
    form = re.search(r'<form method="get" action="([^"]*)" role="search"', other)
    assert form
    assert jids(text_of(admin_client, f"{form[1]}?q=args.customer.id:7"))


def test_any_cursor_leads_to_a_page(admin_client: Browser, orders: Client) -> None:
    for cursor in ("i0.", "i99.MTo=", "i0.OTk6", "i0.MDo=", "i0.!", "i0.eA==", "i0.gA=="):
        found = jids(search(admin_client, "args.customer.id:7", cursor=cursor))
        assert sorted(found) == ([] if cursor in ("i0.OTk6", "i0.MDo=") else ["x-failed", "x-waiting"]), cursor


def test_examples_are_valid(admin_client: Browser, orders: Client) -> None:
    page = text_of(admin_client, path("job"))
    links = re.findall(r'<a href="([^"]*)"><code>', page)
    assert len(links) == len(job_search.EXAMPLES)
    for link in links:
        assert 'role="alert"' not in text_of(admin_client, unescape(link))


def test_a_search_without_a_hit_costs_few_commands(admin_client: Browser, orders: Client, valkey: Any) -> None:
    orders.queues["mail"].put_many([{"klass": f"K{n % 50}", "data": {"n": n, "name": "ann"}} for n in range(1500)])
    index_all(orders)
    for text in ("nothing", "args.n:99999", "txid:none", "class:none.at.All", "error:None", "state:failed args.n:nope"):
        assert commands(valkey, admin_client, text) <= 22, text


def test_pages_continue_and_show_progress(admin_client: Browser, jobs_site: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("resty_django.qless.admin.job_lists.lists.MAX_EXAMINED", 1000)
    queue = jobs_site.queues["mail"]
    queue.put_many([{"klass": "K", "data": {"n": n, "word": "many"}} for n in range(1490)])
    queue.put_many([{"klass": "K", "data": {"n": n, "word": "many", "late": "x"}} for n in range(30)])
    index_all(jobs_site)
    page = search(admin_client, "many")
    assert len(jids(page)) == 25
    assert "Examined 25 of about 1,520 jobs." in page
    results = all_pages(admin_client, "many args.late:x")
    assert len(results) == len(set(results)) == 30
    assert "Examined 300 of about 1,520 jobs." in search(admin_client, "many age:>1h")
    assert "No matches so far" in search(admin_client, "many age:>1h")
    assert all_pages(admin_client, "many age:>1h") == []


def test_the_shorter_list_is_examined(admin_client: Browser, jobs_site: Client, monkeypatch: Any) -> None:
    """Few failed jobs of a class with many."""
    monkeypatch.setattr(job_search, "FEW_ENTRIES", 10)
    monkeypatch.setattr("resty_django.qless.admin.job_lists.lists.FEW_ENTRIES", 10)
    failed(jobs_site, "lost")
    jobs_site.queues["mail"].put_many([{"klass": "shop.jobs.Send", "data": {"order": 7}} for _ in range(100)])
    index_all(jobs_site)
    page = search(admin_client, "args.order:7 state:failed")
    assert jids(page) == ["lost"]
    job_list = JobList(jobs_site, JobFilter.from_query({"q": "args.order:7 state:failed"}))
    job_list.scan("")
    assert job_list.lookup is None


def test_failed_jobs_of_a_class_are_found_among_many_others(
    admin_client: Browser, jobs_site: Client, valkey: Any
) -> None:
    failed(jobs_site, "lost")
    jobs_site.queues["mail"].put_many([{"klass": "shop.jobs.Send", "data": {}} for _ in range(1500)])
    index_all(jobs_site)
    for text in ("class:shop.jobs.Send state:failed", 'class:"shop.jobs.Send" state:failed', "class:send state:failed"):
        assert jids(search(admin_client, text)) == ["lost"]
        assert commands(valkey, admin_client, text) < 40, text
    jobs_site.jobs["lost"].requeue("mail")  # type: ignore[union-attr]
    assert jids(search(admin_client, "class:shop.jobs.Send state:failed")) == []


def test_jobs_that_are_not_indexed_yet_are_named(admin_client: Browser, orders: Client) -> None:
    search(admin_client, "ann")
    orders.queues["mail"].put_many([{"klass": "K", "data": {}} for _ in range(job_search.MAX_INDEXED + 3)])
    assert "3 jobs are not in the index yet and may be missing." in search(admin_client, "ann")
    assert "not in the index" not in search(admin_client, "ann")


def test_without_the_index_all_jobs_are_examined(admin_client: Browser, orders: Client) -> None:
    orders.config.set("max-index", 0)
    assert set(jids(search(admin_client, "args.customer.id:7"))) == {"x-failed", "x-waiting"}
    assert set(jids(search(admin_client, "args.customer.id:7", cursor="i0.MTo="))) == {"x-failed", "x-waiting"}
    orders.config.set("max-index", 3)
    orders.call("index.sweep")
    index.index_jobs(orders)
    assert "The index is full" in search(admin_client, "ann")


def test_arguments_can_be_left_out_of_the_index(
    admin_client: Browser, orders: Client, valkey: Any, settings: Any
) -> None:
    change_settings(settings, SEARCH_ARGUMENTS=False)
    assert set(jids(search(admin_client, "args.customer.id:7"))) == {"x-failed", "x-waiting"}
    assert set(jids(search(admin_client, "error:KeyError"))) == {"x-failed"}
    assert valkey.zcard("ql:index") > 0
    assert b"anna" not in b"".join(valkey.zrange("ql:index", 0, -1))


def test_hidden_values_never_enter_the_index(orders: Client, valkey: Any) -> None:
    index_all(orders)
    assert b"anna" in b"".join(valkey.zrange("ql:index", 0, -1))
    assert not any(b"hunter2" in (dump or b"") for key, dump in everything(valkey).items() if b":i" in key)


def test_jobs_of_other_clients_are_found(admin_client: Browser, jobs_site: Client, valkey: Any) -> None:
    search(admin_client, "ann")
    data = json.dumps({"name": "Anna"})
    valkey.hset("ql:j:theirs", mapping={"jid": "theirs", "klass": "Other", "data": data, "state": "waiting"})
    fields = {"queue": "mail", "tags": "[]", "priority": 0, "retries": 5, "remaining": 5, "worker": "", "expires": 0}
    valkey.hset("ql:j:theirs", mapping=fields)
    valkey.zadd("ql:queues", {"mail": 1})
    valkey.zadd("ql:q:mail-work", {"theirs": 0})
    valkey.hset("ql:index-pass", "until", 0)
    indexer = Indexer(jobs_site)
    indexer.start()
    try:
        deadline = time.monotonic() + 60
        while jids(search(admin_client, "args.name:anna")) != ["theirs"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        indexer.stop()


def test_hostile_jobs_are_indexed_and_found(admin_client: Browser, jobs_site: Client) -> None:
    hostile(jobs_site)
    fill(jobs_site)
    index_all(jobs_site)
    assert admin_client.get(path("job"), {"q": HOSTILE})["Location"] == path("job", HOSTILE)
    for text in ("it's", '"{{x}}"', "<b>", "\x00", "\udc80", '"\\"it\'s"', "class:it", "(((", "%s", "#/?"):
        page = admin_client.get(path("job"), {"q": text.encode("utf-8", "replace").decode()}).content.decode()
        assert "<b>" not in page
        assert bool(jids(page)) == (text not in ("(((", "#/?")), text


class OtherCore:
    """A core that knows nothing of the index: the changes that a client of it makes, as commands of Redis."""

    def __init__(self, valkey: Any) -> None:
        self._valkey = valkey

    def put(self, jid: str, data: str, klass: str, tags: list[str]) -> None:
        fields = {
            "jid": jid,
            "klass": klass,
            "data": data,
            "tags": json.dumps(tags),
            "state": "waiting",
            "queue": "mail",
        }
        numbers = {"priority": 0, "retries": 5, "remaining": 5, "worker": "", "expires": 0, "time": time.time()}
        self._valkey.hset(f"ql:j:{jid}", mapping={**fields, **numbers})
        self._valkey.zadd("ql:queues", {"mail": 1})
        self._valkey.zadd("ql:q:mail-work", {jid: 0})

    def cancel(self, jid: str) -> None:
        self._valkey.delete(f"ql:j:{jid}", f"ql:j:{jid}-history")
        for key in ("ql:q:mail-work", "ql:q:mail-locks", "ql:completed"):
            self._valkey.zrem(key, jid)
        self._valkey.lrem("ql:f:group", 0, jid)

    def change(self, jid: str, **fields: str) -> None:
        if self._valkey.exists(f"ql:j:{jid}"):
            self._valkey.hset(f"ql:j:{jid}", mapping=fields)

    def fail(self, jid: str, message: str) -> None:
        if self._valkey.hget(f"ql:j:{jid}", "state") == b"waiting":
            failure = json.dumps({"group": "group", "message": message, "when": 1, "worker": "w"})
            self.change(jid, state="failed", failure=failure)
            self._valkey.zrem("ql:q:mail-work", jid)
            self._valkey.sadd("ql:failures", "group")
            self._valkey.lpush("ql:f:group", jid)


@pytest.mark.parametrize("classes", ["*", "shop.A", ""])
@pytest.mark.parametrize("seed", range(4))
def test_terms_follow_the_jobs_whatever_any_core_does(jobs_site: Client, valkey: Any, seed: int, classes: str) -> None:
    jobs_site.config.set("index-classes", classes)
    dice, other = random.Random(seed), OtherCore(valkey)
    queue = jobs_site.queues["mail"]
    names = [f"jid {number}" for number in range(12)]
    for step in range(400):
        jid, word, tag = dice.choice(names), dice.choice(["anna", "bert", "cleo"]), dice.choice(["eu", "us"])
        klass, data = dice.choice(["shop.A", "shop.B"]), {"name": word}
        job = jobs_site.jobs[jid]
        match dice.randrange(12):
            case 0 | 1:
                queue.put(klass, data, jid=jid, tags=[tag] if step % 2 else [])
            case 2 if job:
                job.cancel()
            case 3 if popped := queue.pop():
                popped.data = data
                popped.heartbeat()
            case 4 if popped := queue.pop():
                popped.data = data
                popped.complete()
            case 5 if popped := queue.pop():
                popped.fail("group", f"KeyError: {word}")
            case 6 if job:
                job.tag(tag) if step % 2 else job.untag(tag)
            case 7 if job and job.state == "failed":
                job.requeue("mail")
            case 8:
                other.cancel(jid)
                other.put(jid, json.dumps(data), klass, [tag])
            case 9:
                other.change(jid, tags=json.dumps([tag]))
            case 10:
                other.change(jid, data=json.dumps(data))
            case 11:
                other.fail(jid, f"ValueError: {word}") if step % 2 else other.cancel(jid)
        if dice.random() < 0.2:
            index.index_jobs(jobs_site, dice.randrange(1, 5))
        if dice.random() < 0.05:
            jobs_site.call("index.sweep")
    for _ in range(2):
        valkey.hset("ql:index-pass", "until", 0)
        index_all(jobs_site)
        index_all(jobs_site)
    expected = {}
    for jid in names:
        job = jobs_site.jobs[jid]
        if job and (job.state == "failed" or classes in ("*", job.klass)):
            expected[jid] = index_terms(replace(job_search.document_of(job), failed=job.state == "failed"))
    stored = {}
    for jid in names:
        text = valkey.get(f"ql:i:{jid}")
        if text is not None:
            stored[jid] = [term.removesuffix("\0") for term in text.decode().split("\n")[2:-1]]
    assert stored == expected
    entries: dict[str, list[str]] = {}
    for member in valkey.zrange("ql:index", 0, -1):
        term, _, rest = member.decode().partition("\0")
        entries.setdefault(rest[8:], []).append(term)
    assert {jid: sorted(terms) for jid, terms in entries.items()} == {
        jid: sorted(terms) for jid, terms in expected.items()
    }


def test_the_index_takes_little_memory_by_default(jobs_site: Client, valkey: Any) -> None:
    """One failed job in ten is indexed."""
    jobs_site.config.set("index-classes", "")

    def memory() -> int:
        return sum(valkey.memory_usage(key, samples=0) for key in valkey.scan_iter("*", count=1000))

    queue = jobs_site.queues["mail"]
    for first in range(0, 2000, 100):
        customers = [{"id": first + n, "name": f"Anna {first + n}", "city": "Springfield"} for n in range(100)]
        queue.put_many([{"klass": "shop.tasks.Send", "data": {"customer": one}} for one in customers])
        for job in queue.pop(10):
            job.fail("mail-KeyError", "Traceback\nKeyError: 'zip_code'")
    valkey.delete("ql:unindexed")
    before = memory()
    valkey.hset("ql:index-pass", "until", 0)
    index_all(jobs_site)
    index_all(jobs_site)
    assert len(valkey.keys("ql:i:*")) == 200
    assert 1.02 < memory() / before <= 1.3
