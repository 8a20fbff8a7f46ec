"""The demo shop and its data."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from project.shop import tasks, views
from project.shop.figures import figures
from project.shop.models import Order
from resty_django.conf import conf
from resty_django.ids import next_id, stop
from resty_django.ids.errors import Exhausted
from resty_django.ids.models import IdRule
from resty_django.limits import Decision, forget_quotas
from resty_django.limits.models import LimitPolicy
from resty_django.limits.policies import registry
from resty_django.limits.quotas.registry import register
from resty_django.limits.statistics import reporter as limit_stats
from resty_django.limits.testing import frozen_limits
from resty_django.qless import Job, TaskOutcome
from resty_django.qless import client as jobs
from resty_django.qless.models import OutboxEntry
from resty_django.qless.testing import TestWorker
from resty_django.shdict import Unavailable, shdicts
from resty_django.txid.logging import TxidFilter

pytestmark = [pytest.mark.db, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _demo_data() -> Iterator[None]:
    stop()
    shdicts["limits"].flush_all()
    registry.forget_policies()
    call_command("demo_data", verbosity=0)
    yield
    for thread in threading.enumerate():
        if thread.name == "resty-cache-refresh":
            thread.join(10)  # it reads tables that the next test empties
    stop()
    registry.forget_policies()


def test_the_demo_data_may_be_made_twice_and_leaves_edited_rules_alone() -> None:
    IdRule.objects.filter(name="o2o").update(description="mine")
    call_command("demo_data", verbosity=0)
    assert IdRule.objects.get(name="o2o").description == "mine"
    assert set(IdRule.objects.values_list("name", flat=True)) == {"order_id", "o2o", "customer", "invoice", "ticket"}


@pytest.mark.parametrize(
    ("rule", "pattern"),
    [
        ("order_id", r"O\d{6}000000"),
        ("o2o", r"\d{5}0000"),
        ("customer", r"C\d{9}"),
        ("ticket", r"T\d{8}-00001"),
    ],
)
def test_each_rule_of_the_demo_makes_ids_of_its_form(rule: str, pattern: str) -> None:
    assert re.fullmatch(pattern, next_id(rule, app="shop"))


def test_the_start_page_shows_what_happens_just_now(client: Client) -> None:
    figures.invalidate()
    next_id("order_id", app="shop")
    limit_stats.stats.record("demo", "key", Decision(True))
    page = client.get("/orders/").content.decode()
    terms = dict(re.findall(r'<dt>([^<]+)</dt><dd class="number">([^<]*)</dd>', page))
    assert {"IDs per minute", "Passed", "Refused", "Fullest dictionary"} <= set(terms)
    assert 'id="live" data-resty-live="3"' in page


def test_the_tiles_of_the_start_page_are_links(admin_client: Client) -> None:
    figures.invalidate()
    page = admin_client.get("/orders/").content.decode()
    links = dict(re.findall(r'<h3><a href="(/admin/[^"]+)">([^<]+)</a></h3>', page))
    assert {"IDs", "Limits", "Caches", "Shared dictionaries"} <= set(links.values())
    for link, title in links.items():
        if title != "Jobs":  # the site of the tests has no Redis
            assert admin_client.get(link).status_code == 200, link


def test_an_order_gets_its_number_and_its_own_page(client: Client) -> None:
    reply = client.post("/orders/", {"item": "Tea", "quantity": "2"}, follow=True)
    order = Order.objects.get()
    assert reply.redirect_chain == [(f"/orders/{order.number}/", 302)]
    assert re.fullmatch(r"O\d{6}000000", order.number)
    assert order.invoice.endswith("-000001")
    assert order.number in reply.content.decode()


def test_a_form_from_elsewhere_is_refused() -> None:
    reply = Client(enforce_csrf_checks=True).post("/orders/", {"item": "Tea", "quantity": "2"})
    assert reply.status_code == 403
    assert not Order.objects.exists()


def test_a_wrong_form_takes_no_number(client: Client) -> None:
    reply = client.post("/orders/", {"item": "Gold", "quantity": "0"})
    assert reply.status_code == 422
    assert not Order.objects.exists()
    assert next_id("order_id", app=views.SHOP).endswith("000000")


def test_an_order_that_fails_leaves_no_gap_between_invoices(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**fields: object) -> Order:
        raise RuntimeError("the stock is empty")

    first = views.place("Tea", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Order.objects, "create", refuse)
        with pytest.raises(RuntimeError):
            views.place("Tea", 1)
    second = views.place("Tea", 1)
    assert [order.invoice[-6:] for order in (first, second)] == ["000001", "000002"]
    assert first.number < second.number


def test_an_error_of_the_id_service_is_shown_with_its_status(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*args: object, **kwargs: object) -> str:
        raise Exhausted("All numbers of <today> are given out.")

    monkeypatch.setattr(views, "next_id", none_left)
    reply = client.post("/orders/", {"item": "Tea", "quantity": "2"})
    assert reply.status_code == 409
    assert "All numbers of &lt;today&gt; are given out." in reply.content.decode()


def test_pages_carry_a_strict_policy_and_no_inline_code(client: Client) -> None:
    views.place("Tea", 1)
    for address in ("/orders/", "/items/", "/parts/", f"/orders/{Order.objects.get().number}/", "/admin/login/"):
        reply = client.get(address)
        assert reply.status_code == 200
        assert "default-src 'self'" in reply.headers["Content-Security-Policy"]
        assert not re.search(r"<script(?![^>]*src=)|<style|style=|onclick=", reply.content.decode())


def test_visits_are_counted_in_a_shared_dictionary(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    before = views.count_visit()
    assert before is not None
    assert f"requested {before + 1} times" in client.get("/orders/").content.decode()
    assert views.count_visit() == before + 2

    def down(*args: object, **kwargs: object) -> int:
        raise Unavailable("gone")

    monkeypatch.setattr(shdicts["default"], "incr", down)
    reply = client.get("/orders/")
    assert reply.status_code == 200
    assert "This page was requested" not in reply.content.decode()


def test_requests_for_the_stock_are_limited(client: Client) -> None:
    reply = client.get("/stock/")
    assert reply.json() == {"in_stock": ["Tea", "Coffee"]}
    assert (reply["RateLimit"], reply["RateLimit-Policy"]) == ('"stock";r=100;t=1', '"stock";q=101;w=3')


def test_orders_of_a_visitor_are_limited_per_minute(client: Client) -> None:
    wrong = {"item": "Gold", "quantity": "0"}
    assert [client.post("/orders/", wrong).status_code for _ in range(30)] == [422] * 30
    refused = client.post("/orders/", {"item": "Tea", "quantity": "2"}, headers={"Accept": "text/html"})
    assert refused.status_code == 429
    assert "Too many requests" in refused.content.decode()
    assert 1 <= int(refused["Retry-After"]) <= 60
    assert not Order.objects.exists()
    assert client.get("/orders/").status_code == 200


def test_requests_of_a_program_for_the_prices_are_limited(client: Client) -> None:
    replies = [client.get("/api/prices/") for _ in range(11)]
    assert [reply.status_code for reply in replies] == [200] * 10 + [429]
    assert replies[0].json()["Tea"] == "3.20"
    assert replies[0]["RateLimit-Policy"] == '"prices";q=10;w=60'
    assert "Request was throttled" in replies[10].json()["detail"]


def test_the_limit_of_pages_of_orders_can_be_changed(client: Client) -> None:
    page = f"/orders/{views.place('Tea', 1).number}/"
    assert client.get(page)["RateLimit-Policy"] == '"order-pages";q=60;w=60'
    assert "60 requests in any minute, then refused" in client.get("/orders/").content.decode()
    policy = LimitPolicy(
        name="order-pages", algorithm="sliding_window", limit=2, window="1min", route="shop:order", key="ip"
    )
    policy.save()
    assert [client.get(page).status_code for _ in range(2)] == [200, 429]
    assert "2 requests in any minute, then refused" in client.get("/orders/").content.decode()
    policy.mode = "off"
    policy.save()
    assert client.get(page).status_code == 200
    assert "in any minute, then refused" not in client.get("/orders/").content.decode()


def test_the_page_of_items_is_kept_until_an_order_comes(client: Client) -> None:
    views.place("Tea", 2)
    first = client.get("/items/")
    assert re.search(r"<td>Tea</td><td[^>]*>2<", first.content.decode())
    Order.objects.update(quantity=50)
    second = client.get("/items/", headers={"if-none-match": first.headers["ETag"]})
    assert second.status_code == 304, "the cache was not invalidated"
    views.place("Tea", 3)
    assert re.search(r"<td>Tea</td><td[^>]*>53<", client.get("/items/").content.decode())


def test_an_order_does_not_fail_with_the_cache(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*args: object, **kwargs: object) -> int:
        raise Unavailable("gone")

    monkeypatch.setattr(shdicts["default"], "delete", down)
    assert views.place("Tea", 1).number


@pytest.mark.redis
def test_an_order_has_one_txid_from_its_request_to_its_invoice(
    client: Client, settings: Any, valkey: Any, valkey_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings.JOBS, settings.VAR = True, tmp_path
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url, "OUTBOX": True}}
    caplog.handler.addFilter(TxidFilter())
    with TestWorker(valkey_url) as worker, caplog.at_level("INFO", logger="project.shop"):
        placing = client.post("/orders/", {"item": "Tea", "quantity": "2"})
        order = Order.objects.get()
        page = client.get(f"/orders/{order.number}/").content.decode()
        parcel = jobs.jobs.get(f"parcel-{order.number}")
        outcome = jobs.jobs.outcome(f"parcel-{order.number}")
        assert [(run.id, run.outcome) for run in worker.drain("default")] == [(f"invoice-{order.number}", "completed")]
        job = jobs.jobs.get(f"invoice-{order.number}")
    mine = placing.headers[conf.txid.header]
    assert isinstance(job, Job)
    assert [str(order.txid), job.txid] == [mine, mine]
    assert {record.message: record.txid for record in caplog.records if record.name == "project.shop"} == {
        f"order {order.number} is placed": mine,
        f"invoice {order.invoice} is written": mine,
    }
    assert f"{job.jid}</span>, with the same ID. State: waiting." in page
    assert mine in page
    assert (tmp_path / "invoices" / f"{order.pk}.txt").read_text().splitlines() == [
        f"Invoice {order.invoice}",
        f"Order {order.number}",
        "2 x Tea",
        f"Request {mine}",
    ]
    assert isinstance(parcel, Job)
    assert (parcel.dependencies, parcel.queue_name) == ([job.jid], "packing")
    assert f"{parcel.jid}</span>. State: depends." in page
    assert outcome is not None
    assert [(callback.klass, callback.data["args"]) for callback in outcome.failure] == [
        ("project.shop.tasks.reorder", ["Tea"])
    ]
    jobs.close()


@pytest.mark.parametrize(("item", "quantity"), [("Tea", 2), ("Cocoa", 20)])
def test_parcels_are_packed_except_large_ones_of_cocoa(
    monkeypatch: pytest.MonkeyPatch, item: str, quantity: int
) -> None:
    monkeypatch.setattr(tasks, "SECONDS_A_PIECE", 0)
    order = views.place(item, quantity)
    if item == "Tea":
        assert tasks.pack(order.pk) == "2 x Tea"
        assert tasks.count_sales() == {"Tea": 2}
    else:
        with pytest.raises(tasks.OutOfStock, match="Cocoa"):
            tasks.pack(order.pk)
        assert tasks.reorder(TaskOutcome("parcel-1", "pack", "failed"), item) == "Cocoa is ordered"


def test_an_order_does_not_fail_with_the_job_queue(client: Client, settings: Any) -> None:
    settings.JOBS = True
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": "redis://127.0.0.1:1/0", "OUTBOX": True}}
    client.post("/orders/", {"item": "Tea", "quantity": "2"})
    page = client.get(f"/orders/{Order.objects.get().number}/")
    assert page.status_code == 200
    assert "with the same ID" not in page.content.decode()


def test_an_order_placed_while_redis_is_down_gets_its_jobs_later(
    client: Client, settings: Any, valkey: Any, valkey_url: str
) -> None:
    settings.JOBS, base = True, settings.RESTY_DJANGO
    settings.RESTY_DJANGO = {**base, "QLESS": {"URL": "redis://127.0.0.1:1/0", "OUTBOX": True}}
    client.post("/orders/", {"item": "Tea", "quantity": "2"})
    order = Order.objects.get()
    assert OutboxEntry.objects.get().jid == f"invoice-{order.number}"
    settings.RESTY_DJANGO = {**base, "QLESS": {"URL": valkey_url, "OUTBOX": True}}
    OutboxEntry.objects.update(due_at=timezone.now())
    call_command("qless_outbox", "--once", stdout=io.StringIO())
    assert set(tasks.order_jobs(order)) == {"invoice", "parcel"}
    jobs.close()


def test_an_order_that_fails_has_no_jobs(
    settings: Any, monkeypatch: pytest.MonkeyPatch, valkey: Any, valkey_url: str
) -> None:
    def fail_late(order: Order) -> None:
        tasks.after_order(order)
        raise RuntimeError("the payment was declined")

    settings.JOBS = True
    settings.RESTY_DJANGO = {**settings.RESTY_DJANGO, "QLESS": {"URL": valkey_url, "OUTBOX": True}}
    monkeypatch.setattr(views, "after_order", fail_late)
    with pytest.raises(RuntimeError):
        views.place("Tea", 1)
    assert not OutboxEntry.objects.exists()
    assert jobs.queues.counts() == []
    jobs.close()


def test_price_lists_are_a_quota_whose_use_is_shown(client: Client) -> None:
    forget_quotas()
    register(views.price_lists)
    with frozen_limits():
        assert [client.get("/price-list/").status_code for _ in range(6)] == [200] * 5 + [429]
        assert client.get("/price-list/", REMOTE_ADDR="192.0.2.7").status_code == 200
        page = client.get("/quotas/").content.decode()
    assert '<td>price-lists</td><td class="number">5 of 5</td><td class="number">0</td>' in page
    forget_quotas()
