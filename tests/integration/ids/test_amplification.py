"""A sender whose address may be forged gets no reply longer than its request, except a single ID."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from resty_django.checks import check_settings
from resty_django.ids import next_id, next_ids, stop
from resty_django.ids.errors import IdError
from resty_django.ids.models import IdRule
from resty_django.ids.service import service
from resty_django.ids.udp.handler import Ignored, Pending, RequestHandler
from resty_django.ids.udp.stats import UdpStats

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]

ANY = "0.0.0.0"  # noqa: S104
STRANGER = "203.0.113.7"


@pytest.fixture
def handler(make_rule: Callable[..., IdRule]) -> RequestHandler:
    make_rule(source="O{counter:06d}", max_counter=999_999)
    make_rule("salted", source="{counter:06d}{salt:4}", max_counter=999_999)
    make_rule("gapless", gapless=True)
    make_rule("short", source="{counter:01d}", max_counter=1)
    next_id("order", "shop")
    next_ids("short", 2, "shop")
    return RequestHandler(service(), UdpStats())


def reply_to(handler: RequestHandler, datagram: bytes, host: str = STRANGER) -> bytes | None:
    try:
        return handler.handle(datagram, host)
    except Ignored:
        return None
    except Pending as pending:
        while True:
            try:
                pending.future.result(30)
            except IdError as error:
                try:
                    return handler.refusal(pending.request, error)
                except Ignored:
                    return None
            try:
                return handler.resume(pending.request)
            except Ignored:
                return None
            except Pending as again:
                pending = again


def get(**fields: Any) -> bytes:
    return json.dumps({"action": "get", "rule_name": "order", "app_name": "shop", **fields}).encode()


REQUESTS = [
    get(count=1000),
    get(count=2),
    get(count=5, seq=1),
    get(count=0),
    get(count="x"),
    get(count=2.5),
    get(count=10**9),
    get(rule_name="nope"),
    get(rule_name="n"),
    get(app_name="a b"),
    get(app_name="a" * 70),
    get(rule_name="gapless"),
    get(rule_name="salted"),
    get(rule_name="salted", salt="!!!!"),
    get(rule_name="short"),
    get(action="monitor"),
    get(action="monitor", app_name="nobody"),
    get(action="monitor", rule_name="nope"),
    get(action="m", seq="x" * 40),
    b'{"action":1}',
    b"{}",
    b'{"a":1}',
    b'{"seq":12345}',
    b'{"action":"get","rule_name":"x","app_name":""}',
]


@pytest.mark.parametrize("datagram", REQUESTS)
def test_no_reply_to_a_stranger_is_longer_than_its_request(handler: RequestHandler, datagram: bytes) -> None:
    for _ in range(3):
        reply = reply_to(handler, datagram)
        assert reply is None or len(reply) <= len(datagram), reply
        if reply is not None:
            sent = json.loads(datagram)
            received = json.loads(reply)
            assert "code" in received
            assert "seq" not in sent or received["seq"] == sent["seq"]
    assert reply_to(handler, datagram, "127.0.0.1") is not None
    assert reply_to(handler, datagram, "::1") is not None


def test_a_single_id_goes_to_anybody(handler: RequestHandler) -> None:
    for datagram in (get(), get(count=1), get(seq=1), b'{"action":"get","rule_name":"order","app_name":""}'):
        assert json.loads(reply_to(handler, datagram) or b"{}")["code"] == 0


def test_a_padded_request_gets_its_batch(handler: RequestHandler) -> None:
    reply = json.loads(reply_to(handler, get(count=100) + b" " * 1500) or b"{}")
    assert (reply["code"], len(reply["data"])) == (0, 100)


def test_a_batch_that_may_not_be_sent_takes_one_number_at_most(handler: RequestHandler) -> None:
    before = service().counter("order", "shop").remaining
    assert reply_to(handler, get(count=90)) is None
    assert before - service().counter("order", "shop").remaining <= 1


def test_listed_or_signing_clients_get_full_replies(handler: RequestHandler) -> None:
    listed = RequestHandler(service(), UdpStats(), listed=True)
    assert len(reply_to(listed, get(count=100)) or b"") > 900


def test_a_stranger_gets_its_errors_from_the_fast_path_too(handler: RequestHandler) -> None:
    next_id("salted", "shop", salt="abcd")
    datagram = b'{"action":"get","rule_name":"salted","app_name":"shop","salt":"!"}'
    assert handler.fast_path(datagram) is None
    handler.local = True
    assert (handler.fast_path(datagram) or b"").startswith(b'{"action"')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20), lambda inner: st.lists(inner, max_size=3)
)


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    fields=st.dictionaries(
        st.sampled_from(["action", "rule_name", "app_name", "salt", "count", "seq", "x", "code", "message"]),
        JSON | st.sampled_from(["get", "monitor", "order", "shop", "nope", 1, 2, 1000]),
    )
)
def _fuzz(fields: dict[str, Any]) -> None:
    datagram = json.dumps(fields).encode()
    handler = RequestHandler(service(), UdpStats())
    reply = reply_to(handler, datagram)
    if reply is not None and len(reply) > len(datagram):
        assert fields["action"] in ("get", "create")
        assert fields.get("count", 1) == 1
        assert json.loads(reply)["code"] == 0


def test_any_request_of_a_stranger(make_rule: Callable[..., IdRule], settings: Any) -> None:
    settings.RESTY_DJANGO = {"IDS": {"WAIT": 0.3}}
    make_rule(segment_size=100)
    service().load()
    _fuzz()
    stop()


@pytest.mark.parametrize(
    ("udp", "warns"),
    [
        ({}, False),
        ({"HOST": "127.0.0.2"}, False),
        ({"HOST": "::1"}, False),
        ({"HOST": "localhost"}, False),
        ({"HOST": ANY}, True),
        ({"HOST": "::"}, True),
        ({"HOST": "ids.example.org"}, True),
        ({"HOST": ANY, "NETWORKS": ["10.0.0.0/8"]}, False),
        ({"HOST": ANY, "KEYS": ["0123456789abcdef"]}, False),
    ],
)
def test_an_open_host_is_a_check(settings: Any, udp: dict[str, Any], warns: bool) -> None:
    settings.RESTY_DJANGO = {"IDS": {"UDP": udp}}
    assert [message.id for message in check_settings()] == (["resty_django.W003"] if warns else [])
