"""Txids in the admin and in Django REST framework."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone, translation
from rest_framework import serializers

from project.shop.models import Order
from resty_django.ids import stop
from resty_django.txid import is_txid, txid
from resty_django.txid.admin import with_time
from resty_django.txid.serializers import TxidField

ID = "cbpvimguo4hkaps9lf6g"


def test_the_time_inside_is_shown_in_the_current_time_zone() -> None:
    start = f'<code>{ID}</code> <time datetime="2023-11-14T22:13:20.123000+00:00">'
    assert with_time(ID) == f"{start}Nov. 14, 2023, 23:13:20.123</time>"
    with timezone.override("Asia/Tokyo"), translation.override("de"):
        assert with_time(ID) == f"{start}15. November 2023, 07:13:20.123</time>"


def test_other_texts_than_txids_are_shown_unchanged() -> None:
    assert with_time("<b>") == "<code>&lt;b&gt;</code>"


@pytest.fixture
def order(transactional_db: None, client: Client) -> Any:
    stop()
    call_command("demo_data", verbosity=0)
    reply = client.post("/orders/", {"item": "Tea", "quantity": "2"})
    yield Order.objects.get(txid=reply.headers["X-Request-Id"])
    stop()


def test_an_order_knows_the_request_that_placed_it(order: Order, client: Client) -> None:
    page = client.get(f"/orders/{order.number}/")
    assert order.txid in page.content.decode()
    assert page.headers["X-Request-Id"] != order.txid


def test_the_admin_shows_a_txid_with_its_time(order: Order, client: Client) -> None:
    Order.objects.create(number="ORPHAN", invoice="ORPHAN", item="Tea")
    client.force_login(User.objects.create_superuser("root"))
    html_text = with_time(order.txid)
    for path in (
        "/admin/shop/order/?o=6",
        f"/admin/shop/order/{order.pk}/change/",
        f"/admin/shop/order/?q={order.txid}",
    ):
        page = client.get(path).content.decode()
        assert html_text in page
    assert "Request" in page
    assert "ORPHAN" not in page
    assert '<td class="field-txid_shown">-</td>' in client.get("/admin/shop/order/").content.decode()


class OrderSerializer(serializers.ModelSerializer[Order]):
    txid = TxidField(required=False)

    class Meta:
        model = Order
        fields = ["txid", "item"]


class PlainSerializer(serializers.ModelSerializer[Order]):
    class Meta:
        model = Order
        fields = ["txid", "item"]


def test_a_serializer_takes_a_txid() -> None:
    serializer = OrderSerializer(data={"txid": ID.upper(), "item": "Tea"})
    assert serializer.is_valid()
    assert serializer.validated_data == {"txid": ID, "item": "Tea"}
    assert OrderSerializer(Order(txid=ID, item="Tea")).data == {"txid": ID, "item": "Tea"}
    assert PlainSerializer(Order(txid=ID, item="Tea")).data == {"txid": ID, "item": "Tea"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ID[:-1], "A txid has 20 characters; 'cbpvimguo4hkaps9lf6' has 19."),
        (ID.replace("c", "w"), "A txid consists of 0-9 and a-v; character 1 of 'wbpvimguo4hkaps9lf6g' is 'w'."),
        (5, "A txid must be a str of 20 characters, not int."),
        ("", "This field may not be blank."),
        (None, "This field may not be null."),
    ],
)
def test_a_serializer_says_what_is_wrong(value: Any, text: str) -> None:
    serializer = OrderSerializer(data={"txid": value, "item": "Tea"})
    assert not serializer.is_valid()
    assert serializer.errors == {"txid": [text]}


def test_each_request_of_the_demo_has_a_txid(client: Client, db: None) -> None:
    ids = {client.get("/orders/").headers["X-Request-Id"] for _ in range(3)}
    assert len(ids) == 3
    assert all(is_txid(request_id) for request_id in ids)
    assert max(ids) < txid()
