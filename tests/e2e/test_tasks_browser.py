"""Common tasks of operators in a browser: each within a number of clicks, from the index of the admin to the content.

A click, and Enter in a form, are one click each; typing is none. A click above the target fails the test. Each task is
done with the mouse, by keyboard alone, and without JavaScript.
"""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import RequestFactory
from django.utils import timezone
from rest_framework.permissions import AllowAny
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from project.shop.models import Order
from resty_django.cache import mlcaches
from resty_django.limits import limit_count
from resty_django.limits.policies import registry
from resty_django.limits.throttling import FixedWindowThrottle
from resty_django.qless import Client
from resty_django.qless.clients.worker_reports import STACKS, Frame, JobStack
from resty_django.qless.worker.reports.stacks import encode_stacks
from resty_django.sansio import run
from resty_django.txid import bound as with_txid
from resty_django.txid import txid
from tests.e2e.browser import OpenPage
from tests.integration.ids.admin_tools import make_counter, make_rule
from tests.integration.limits.policy_tools import make_policy
from tests.integration.qless.admin.tools import path, report
from tests.integration.qless.conftest import pop

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.redis,
]

CUSTOMER = "192.0.2.77"
ROW_TEXTS = "rows => rows.map(row => [...row.cells].map(cell => cell.textContent).join(' '))"


@dataclass
class Operator:
    """A person at the index of the admin, who has `clicks` left."""

    tab: Any
    clicks: int
    way: str = "mouse"

    def _count(self) -> None:
        assert self.clicks, f"one more click than the target, on {self.tab.url}"
        self.clicks -= 1

    def open(self, name: str) -> None:
        """Click a list of the index, such as `resty_qless/job`."""
        self.click(self.tab.locator(f'#content-main a[href="/admin/{name}/"]').first)

    def _press(self, target: Any) -> None:
        self._count()
        if self.way == "keyboard":
            target.focus()
            self.tab.keyboard.press("Enter")
        else:
            target.click()

    def click(self, target: Any) -> None:
        """Click something that leads to another page."""
        with self.tab.expect_navigation():
            self._press(target)

    def wait_for(self, target: Any) -> None:
        """Wait until the page shows it; without JavaScript, the page is loaded again."""
        until = time.monotonic() + 30
        while self.way == "no scripts" and not target.is_visible() and time.monotonic() < until:
            time.sleep(0.1)
            self.tab.reload()
        target.wait_for()

    def download(self, format: str) -> str:
        """Open the menu "Export", click a format, and return the text of the file."""
        self._press(self.tab.locator(".resty-export summary"))
        with self.tab.expect_download() as download:
            self._press(self.tab.locator(".resty-export").get_by_role("link", name=format, exact=True).first)
        return str(download.value.path().read_text())

    def enter(self, label: str, text: str) -> None:
        """Type a text in a field, and press Enter."""
        field = self.tab.get_by_label(label, exact=True)
        field.fill(text)
        self._count()
        with self.tab.expect_navigation():
            field.press("Enter")

    def text(self, selector: str = "#content") -> str:
        return " ".join(self.tab.locator(selector).inner_text().split())

    def rows(self, selector: str = "#content table tbody tr") -> list[str]:
        """Return the text of each row of a table, which may be closed."""
        rows = self.tab.locator(selector).evaluate_all(ROW_TEXTS)
        return [" ".join(row.split()) for row in rows]


@pytest.fixture(params=["mouse", "keyboard", "no scripts"])
def operator(request: pytest.FixtureRequest, open_page: OpenPage) -> Callable[[int], Operator]:
    """Open the index for an operator who may click this number of times."""
    tab = open_page(scripts=request.param != "no scripts")

    def at_index(clicks: int) -> Operator:
        tab.goto("/admin/")
        return Operator(tab, clicks, request.param)

    return at_index


@pytest.fixture
def site(limits_site: dict[str, Any], jobs_site: Client) -> Client:
    """Return the job queue of a site on which nothing has happened yet."""
    return jobs_site


@pytest.fixture
def orders(site: Client) -> Client:
    """Jobs of orders: one of them has failed, and most resemble it."""
    for number in range(12):
        order = Order.objects.create(number=f"O{number}", invoice=f"I{number}", item="tea", quantity=1, txid=txid())
        klass = "shop.tasks.Remind" if number == 11 else "shop.tasks.Send"
        data = {"order": f"shop.order:{order.pk}", "customer": {"name": f"Customer{number} Meyer"}}
        jid = f"job-of-{order.number}"
        site.call("put", site.worker_name, "mail", jid, klass, json.dumps(data), 0, "txid", order.txid, "retries", 0)
        job = pop(site.queues["mail"])
        job.fail(
            "mail-KeyError" if number == 7 else "mail-Timeout", f"Traceback\nError: {'zip' if number == 7 else 'no'}"
        )
    return site


def the_jid(page: Operator) -> str | None:
    """Return the jid of the only job of a list."""
    (link,) = page.tab.locator(".resty-list tbody a.resty-id").all()
    return link.get_attribute("title")  # type: ignore[no-any-return]


def test_a_failed_job_is_found_by_a_part_of_an_argument(operator: Callable[..., Operator], orders: Client) -> None:
    page = operator(2)
    page.open("resty_qless/job")
    page.enter("Find jobs", "state:failed customer7")
    assert the_jid(page) == "job-of-O7"
    (row,) = page.rows(".resty-list tbody tr")
    assert "shop.tasks.Send" in row
    assert "customer.name: Customer7 Meyer" in row


def test_the_job_of_a_request_an_object_a_class_or_an_error_is_found(
    operator: Callable[..., Operator], orders: Client
) -> None:
    order = Order.objects.get(number="O7")
    for search, jid in (
        (f"txid:{order.txid}", "job-of-O7"),
        (f'"shop.order:{order.pk}"', "job-of-O7"),
        ("class:shop.tasks.Remind", "job-of-O11"),
        ("error:zip", "job-of-O7"),
    ):
        page = operator(2)
        page.open("resty_qless/job")
        page.enter("Find jobs", search)
        assert the_jid(page) == jid, search
    page = operator(2)
    page.open("shop/order")
    order_row = page.tab.get_by_role("row").filter(has=page.tab.get_by_role("link", name="O7", exact=True))
    page.click(order_row.get_by_role("link", name="of the same request"))
    assert the_jid(page) == "job-of-O7"


def refuse() -> None:
    """Let the customer exceed a policy, a decorator and a throttle."""
    make_policy("checkout", limit=1, key="ip")
    policy = registry.get_policy("checkout")
    assert policy is not None
    request = RequestFactory().get("/", REMOTE_ADDR=CUSTOMER)
    decorated = limit_count(1, per="1h", name="search")(lambda request: HttpResponse())
    throttle = type("Prices", (FixedWindowThrottle,), {"rate": "1/hour", "scope": "prices"})
    attributes = {"throttle_classes": (throttle,), "authentication_classes": (), "permission_classes": (AllowAny,)}
    api = type("PricesView", (APIView,), {**attributes, "get": lambda self, request: Response()}).as_view()
    for expected in (200, 429):
        assert decorated(request).status_code == expected
        assert api(APIRequestFactory().get("/", REMOTE_ADDR=CUSTOMER)).status_code == expected
        policy.limiter.hit(f"ip:{CUSTOMER}")


def test_a_person_sees_why_a_customer_got_a_429(operator: Callable[..., Operator], site: Client) -> None:
    refuse()
    page = operator(3)
    page.open("resty_limits/limitpolicy")
    page.click(page.tab.get_by_role("link", name="Find a key"))
    page.enter("Key:", CUSTOMER)
    rows = page.rows()
    for name, kind in (("checkout", "Policy"), ("search", "Decorator"), ("prices", "Throttle")):
        assert [row for row in rows if name in row and kind in row and "refused" in row], (name, rows)


def test_the_refusal_of_a_request_is_seen_by_its_txid(operator: Callable[..., Operator], site: Client) -> None:
    with with_txid() as request_txid:
        refuse()
    page = operator(3)
    page.open("resty_limits/limitpolicy")
    page.click(page.tab.get_by_role("link", name="Find a key"))
    page.enter("Key:", request_txid)
    rows = page.rows()
    assert len(rows) == 2
    for name, kind, key in (("search", "Decorator", CUSTOMER), ("prices", "Throttle", f"ip:{CUSTOMER}")):
        (row,) = [row for row in rows if f"{name}:count {kind}" in row]
        assert f"{key} GET /{request_txid} refused" in row


def answer_stacks(site: Client, name: str) -> None:
    """Send the stacks of the worker when they are requested, as its process does."""
    until = time.monotonic() + 30
    frames = [Frame("/usr/lib/python3.13/socket.py", 9, "recv", "self._recv()"), Frame("/srv/jobs.py", 7, "send", "")]
    while time.monotonic() < until:
        for request in site.workers.reports(name)[0].requests:
            if request.action == STACKS:
                stacks = [JobStack(jid="running-1", klass="shop.jobs.Send", seconds=7200.0, frames=frames)]
                site.call("worker.stacks", name, encode_stacks(request.id, time.time(), stacks))
                return
        time.sleep(0.02)


def test_a_person_sees_which_worker_is_stuck_and_where(operator: Callable[..., Operator], site: Client) -> None:
    site.queues["mail"].put("shop.jobs.Send", jid="running-1")
    site.queues["mail"].pop()
    late = {"jid": "running-1", "klass": "shop.jobs.Send", "seconds": 7200.0, "usual": 2.0}
    report(site, "fine-1")
    report(site, "here-1", jobs=[late], used=1, slots=4)
    page = operator(3)
    page.open("resty_qless/worker")
    (row,) = [row for row in page.rows(".resty-list tbody tr") if row.startswith("here-1")]
    assert "stuck: shop.jobs.Send has been running for 2 h" in row
    page.click(page.tab.get_by_role("link", name="here-1", exact=True).first)
    assert "Host web1" in page.text()
    assert [row for row in page.rows(".resty-list tbody tr") if row.startswith("running-1 shop.jobs.Send mail")]
    process = Thread(target=answer_stacks, args=(site, "here-1"))
    process.start()
    page.click(page.tab.get_by_role("button", name="Show the stacks of its jobs"))
    process.join()
    page.wait_for(page.tab.get_by_role("heading", name="Stacks"))
    assert "/srv/jobs.py:7 in send" in page.text("#resty-live-stacks")


def test_a_worker_is_controlled(operator: Callable[..., Operator], site: Client) -> None:
    def requested() -> dict[str, list[tuple[str, int | None]]]:
        reports = site.workers.reports()
        return {entry.name: [(each.action, each.slots) for each in entry.requests] for entry in reports}

    for action in ("quiet", "resume", "stop", "scale"):
        state = "quiet" if action == "resume" else "running"
        names = [f"other-1-{action}", f"web1-{action}", f"web2-{action}"]
        for name in names:
            report(site, name, state=state)
        page = operator(3 if action == "stop" else 2)
        page.open("resty_qless/worker")
        if action == "scale":
            page.enter("Slots: web1-scale", "12")
        elif action == "stop":  # a worker that has stopped does not come back, so this one asks
            page.click(page.tab.get_by_role("link", name=f"Stop: web1-{action}"))
            page.click(page.tab.get_by_role("button", name="Stop a worker"))
        else:
            page.click(page.tab.get_by_role("button", name=f"{action.title()}: web1-{action}"))
        page.tab.get_by_role("row", name=f"web1-{action}").get_by_text("not confirmed yet").wait_for()
        requests = [(action, 12 if action == "scale" else None)]
        assert [requested()[name] for name in names] == [[], requests, []]
        assert LogEntry.objects.latest("pk").object_repr == f"web1-{action}"


def test_a_person_sees_which_counter_runs_out_first(operator: Callable[..., Operator], site: Client) -> None:
    rule = make_rule(max_counter=9999, reset_seconds=0, source="{counter:04d}")
    for app, bound, hours in (("slow", 9000, 900), ("kiosk", 2000, 1), ("new", 9000, 0)):
        make_counter(rule, app, bound, window_began=timezone.now() - timedelta(hours=hours, seconds=1))
    page = operator(1)
    page.open("resty_ids/idcounter")
    first, second, third = page.rows("#result_list tbody tr")
    assert "kiosk" in first
    assert "in 4 h" in first
    assert "slow" in second
    assert "new" in third


def test_a_dropping_hit_ratio_and_its_cause_are_seen(
    operator: Callable[..., Operator], site: Client, settings: Any
) -> None:
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "CACHES": {"pages": {}}}
    cache = mlcaches["pages"]
    cache.purge()
    now = time.time()
    cache.get("stock", lambda: 1)
    for age, keys in ((1800, ["stock"] * 9), (120, [f"offer-{number % 3}" for number in range(9)])):
        cache.counter.wall = lambda age=age: now - age
        for key in keys:
            if key != "stock":
                cache.delete(key)
            cache.get(key, lambda: 1)
        run(cache.counter.flush())
    cache.counter.wall = time.time
    page = operator(2)
    page.open("resty_cache/cache")
    page.click(page.tab.get_by_role("link", name="pages", exact=True))
    last_hour = "figure.resty-chart:has(figcaption:has-text('Hit ratio')) >> nth=0"
    assert page.tab.locator(f"{last_hour} >> path.resty-line").count() == 1
    rows = [row.split()[1:-2] for row in page.rows(f"{last_hour} >> tbody tr")]  # without times
    assert rows == [["0", "%", "9", "9"], ["90", "%", "10", "1"]]  # hit ratio, calls, callbacks
    keys = page.rows("#missed tbody tr")
    assert keys[:3] == ["offer-0 3", "offer-1 3", "offer-2 3"]
    assert re.search(r"Invalidated \d+", page.text("figcaption:has-text('Misses by reason')"))


def test_a_table_is_downloaded(operator: Callable[..., Operator], orders: Client) -> None:
    for format in ("CSV", "JSON"):
        page = operator(2)
        page.tab.goto(path("failuregroup"))
        text = page.download(format)
        rows = [*csv.DictReader(io.StringIO(text))] if format == "CSV" else json.loads(text)["rows"]
        assert {row["group"]: int(row["count"]) for row in rows} == {"mail-KeyError": 1, "mail-Timeout": 11}


def test_failed_jobs_are_retried_at_a_pace(operator: Callable[..., Operator], orders: Client) -> None:
    page = operator(5)
    page.open("resty_qless/failuregroup")
    page.click(page.tab.get_by_role("link", name="mail-Timeout", exact=True))
    page.click(page.tab.get_by_role("link", name="Retry at a pace"))
    page.enter("Jobs per second:", "4")
    assert "Started the paced retry of 11 jobs: 4 per second." in page.text(".messagelist")
    progress = "section:has(h2:text-is('Paced retry'))"
    assert "To be retried 11 Waiting or running 0 Complete 0 Failed again 0 Time left 2.8 s" in page.text(progress)
    pop(orders.queues["mail"]).complete()
    page.wait_for(page.tab.locator(f"{progress} >> dd:text-is('10')"))  # without a click
    assert "To be retried 10 Waiting or running 0 Complete 1" in page.text(progress)
    page.click(page.tab.get_by_role("button", name="Stop the paced retry"))
    assert "Stopped the paced retry. Still failed: 10 jobs." in page.text(".messagelist")
    assert len(page.rows(".resty-list tbody tr")) == 10
