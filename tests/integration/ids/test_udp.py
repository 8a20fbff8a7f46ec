"""The UDP server over real sockets: the published protocol, its guards, and what it does with junk."""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from pytest_django import Settings

from resty_django.ids.engine.counter import unavailable
from resty_django.ids.models import IdCounter, IdRule
from resty_django.ids.service.id_service import IdService
from resty_django.ids.udp.access import AccessControl, Nonces
from resty_django.ids.udp.batch import BatchServer, available
from resty_django.ids.udp.server import UdpServer, bind
from resty_django.ids.udp.signing import sign, verify
from tests.servers import eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]

KEY = b"a shared secret of some length"


class Peer:
    """A running server and a socket connected to it."""

    def __init__(self, server: UdpServer) -> None:
        self.server = server
        self.address = server.sock.getsockname()[:2]
        self.sock = socket.socket(server.sock.family, socket.SOCK_DGRAM)
        self.sock.connect(self.address)
        self.sock.settimeout(10)

    def raw(self, datagram: bytes) -> bytes:
        self.sock.send(datagram)
        return self.sock.recv(65535)

    def ask(self, **fields: Any) -> Any:
        return json.loads(self.raw(json.dumps(fields).encode()))

    def get(self, **fields: Any) -> Any:
        return self.ask(**{"action": "get", "rule_name": "order", "app_name": "shop", **fields})

    def silent(self, datagram: bytes) -> bool:
        """Whether a datagram gets no reply, while one sent after it does."""
        self.sock.send(datagram)
        fence = random.getrandbits(60)
        self.sock.send(json.dumps({"action": "monitor", "rule_name": "-", "app_name": "-", "seq": fence}).encode())
        replies = [self.sock.recv(65535)]
        self.sock.settimeout(0.05)  # replies to one batch of requests may come in another order
        with contextlib.suppress(TimeoutError):
            replies.append(self.sock.recv(65535))
        self.sock.settimeout(10)
        assert any(b'"seq":%d,' % fence in reply + b"," or b'"seq":%d}' % fence in reply for reply in replies)
        return len(replies) == 1

    def unanswered(self, datagram: bytes) -> bool:
        """Whether a datagram gets no reply within 0.3 s."""
        self.sock.send(datagram)
        self.sock.settimeout(0.3)
        try:
            self.sock.recv(65535)
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(10)
        return False

    def dropped(self, cause: str) -> int:
        return self.server.stats.dropped[cause]


BATCHES = [0, pytest.param(32, marks=pytest.mark.skipif(not available(), reason="Linux only"))]
both = pytest.mark.parametrize("batch", BATCHES)
"""With and without batched system calls; other tests run as the server does by default."""


@pytest.fixture
def batch() -> int:
    return 64 if available() else 0


@pytest.fixture
def start(batch: int) -> Iterator[Callable[..., Peer]]:
    """Starts servers in threads."""
    running: list[tuple[Peer, threading.Thread]] = []

    def make(host: str = "127.0.0.1") -> Peer:
        service = IdService()
        service.load()
        sock = bind(host, 0)
        server = BatchServer(sock, service, batch) if batch else UdpServer(sock, service)
        thread = threading.Thread(target=server.serve)
        thread.start()
        running.append((Peer(server), thread))
        return running[-1][0]

    yield make
    for peer, thread in running:
        peer.server.stop()
        with contextlib.suppress(OSError):  # it has stopped already
            peer.sock.send(b"")  # so that it does not wait for a request, to see that it is to stop
        thread.join(10)
        peer.sock.close()
        assert not thread.is_alive()


@pytest.fixture
def rule() -> IdRule:
    return IdRule.objects.create(name="order", source="O{now:%y%m%d}{counter:06d}", reset_seconds=86_400)


@pytest.fixture
def peer(rule: IdRule, start: Callable[..., Peer]) -> Peer:
    return start()


@both
def test_get_and_create_make_ids_one_after_the_other(peer: Peer) -> None:
    first = peer.get(seq=1)
    assert first == {
        "action": "get",
        "app_name": "shop",
        "code": 0,
        "data": first["data"],
        "message": "success",
        "rule_name": "order",
        "seq": 1,
    }
    assert first["data"].endswith("000000")
    assert peer.get(action="create", seq=2)["data"].endswith("000001")


@pytest.mark.parametrize(
    ("request_fields", "reply_fields"),
    [
        ({"seq": None}, {"seq": None}),
        ({"seq": [1, {"a": "ä\t"}]}, {"seq": [1, {"a": "ä\t"}]}),
        ({"seq": 1.5, "x": {"nested": [True]}}, {"seq": 1.5, "x": {"nested": [True]}}),
        ({"salt": "abc"}, {"salt": "abc"}),
        ({"salt": 7}, {"salt": 7}),
        ({"code": 9}, {"code": 0}),
        ({"message": "mine"}, {"message": "success"}),
        ({"data": "mine"}, {}),
        ({"action": "create"}, {"action": "create"}),
    ],
)
def test_replies_echo_the_request_and_only_the_server_sets_its_fields(
    peer: Peer, request_fields: dict[str, Any], reply_fields: dict[str, Any]
) -> None:
    reply = peer.get(**request_fields)
    expected = {"action": "get", "rule_name": "order", "app_name": "shop", "code": 0, "message": "success"}
    assert reply == {**expected, **reply_fields, "data": reply["data"]}
    assert reply["data"].startswith("O")


def test_seq_is_returned_unchanged(peer: Peer) -> None:
    for text in (b"1e400", b"12345678901234567890123", b"1.0", b'"\\u00e4"', '"ä"'.encode()):
        reply = peer.raw(b'{"action":"get","rule_name":"order","app_name":"shop","seq":' + text + b"}")
        assert b'"seq":' + text in reply


def test_a_failure_carries_no_data_of_the_client(peer: Peer) -> None:
    reply = peer.get(rule_name="nothing", data="mine", seq=3)
    assert (reply["code"], reply["seq"], "data" in reply) == (-1, 3, False)
    assert reply["message"] == "unknown_rule: There is no rule 'nothing'."


def test_monitor_returns_the_last_number_and_creates_no_counter(peer: Peer) -> None:
    missing = peer.ask(action="monitor", rule_name="order", app_name="shop")
    assert (missing["code"], missing["message"], "data" in missing) == (-1, "not exist", False)
    assert not IdCounter.objects.exists()
    peer.get(count=5)
    for action in ("monitor", "anything else"):
        reply = peer.ask(action=action, rule_name="order", app_name="shop")
        assert (reply["code"], reply["message"]) == (0, "ok")
        assert reply["data"] == {"counter": 4, "node_offset": 0}


def test_a_batch_is_a_list(peer: Peer) -> None:
    reply = peer.get(count=3)
    assert [issued_id[-1] for issued_id in reply["data"]] == ["0", "1", "2"]
    assert peer.get(count=1)["data"][0].endswith("3")


@pytest.mark.parametrize("count", [0, -1, 1001, 10**30, True, 1.5, "3", None, [1]])
def test_a_wrong_count_is_refused(peer: Peer, count: Any) -> None:
    reply = peer.get(count=count)
    assert reply["code"] == -1
    assert "count" in reply["message"]


@pytest.mark.parametrize("name", ["a b", 'a"b', "a'b", "a%b", "a&b", "<a>", "a\x00b", "a\nb", "x" * 65])
def test_a_forbidden_name_is_refused(peer: Peer, name: str) -> None:
    reply = peer.get(app_name=name)
    assert reply["code"] == -1
    assert reply["message"].startswith("bad_name: The app_name has ")
    assert not IdCounter.objects.exists()


@pytest.mark.parametrize(
    "datagram",
    [
        b'{"rule_name":"order","app_name":"shop"}',
        b'{"action":"get","app_name":"shop"}',
        b'{"action":"get","rule_name":"order"}',
        b'{"action":1,"rule_name":"order","app_name":"shop"}',
        b'{"action":"get","rule_name":null,"app_name":"shop"}',
        b'{"action":"get","rule_name":"order","app_name":["shop"]}',
        b"{}",
    ],
)
def test_an_object_with_a_bad_field_gets_an_error(peer: Peer, datagram: bytes) -> None:
    reply = json.loads(peer.raw(datagram))
    assert reply["code"] == -1
    assert reply["message"].startswith("bad_request: ")
    assert peer.server.stats.errors["bad_request"] == 1


@pytest.mark.parametrize(
    "datagram",
    [
        b"[]",
        b"1",
        b"null",
        b'"x"',
        b"{",
        b'{"a":}',
        b"\xff\xfe",
        b"x{}",
        b'{"action":"get","rule_name":"order","app_name":"\\ud800"}',
        b'{"action":"get","rule_name":"order","app_name":"shop","seq":"\xff"}',
        b"[" * 15_000,
        b'{"a":' + b"[" * 15_000,
    ],
)
def test_datagrams_without_an_object_are_dropped_and_counted(peer: Peer, datagram: bytes) -> None:
    assert peer.silent(datagram)
    assert peer.dropped("not_an_object") == 1


def test_deep_nesting_is_dropped_or_answered(peer: Peer) -> None:
    seq = b"[" * 9000 + b"]" * 9000
    peer.sock.send(b'{"action":"get","rule_name":"order","app_name":"shop","seq":' + seq + b"}")
    assert eventually(lambda: peer.dropped("not_an_object") or select.select([peer.sock], [], [], 0)[0])
    if peer.dropped("not_an_object"):
        assert peer.get(seq=1)["seq"] == 1, "the first reply is that to the next request"
    else:
        assert seq in peer.sock.recv(65535)


@both
def test_an_empty_datagram_is_ignored(peer: Peer) -> None:
    for _ in range(3):
        assert peer.silent(b"")
    assert peer.dropped("empty") == 3
    assert peer.get()["code"] == 0


@both
def test_a_datagram_over_the_limit_is_dropped_and_counted(peer: Peer) -> None:
    assert peer.silent(b'{"action":"get","rule_name":"order","app_name":"shop","x":"' + b"x" * 20_000 + b'"}')
    assert peer.dropped("too_long") == 1


def test_text_after_the_object_is_ignored(peer: Peer) -> None:
    for tail in (b"\0", b"\r\n", b" // more", b"}"):
        assert json.loads(peer.raw(b'{"action":"get","rule_name":"order","app_name":"shop"}' + tail))["code"] == 0


@both
def test_a_reply_is_never_answered(peer: Peer) -> None:
    for request in ({"action": "get", "rule_name": "order", "app_name": "shop"}, {"action": 5}):
        assert peer.silent(peer.raw(json.dumps(request).encode()))
    assert peer.dropped("looks_like_reply") == 2


def test_two_servers_do_not_talk_to_each_other(rule: IdRule, start: Callable[..., Peer]) -> None:
    first, second = start(), start()
    for request in (b"{}", b'{"action":"get","rule_name":"order","app_name":"shop"}'):
        first.server.sock.sendto(request, second.address)
    time.sleep(0.3)
    assert first.server.stats.dropped["looks_like_reply"] == 2
    assert sum(second.server.stats.dropped.values()) == 0


def test_a_repeated_request_gets_another_id(peer: Peer) -> None:
    assert peer.get(seq=1)["data"] != peer.get(seq=1)["data"]


@both
def test_only_listed_networks_are_served(rule: IdRule, start: Callable[..., Peer], settings: Settings) -> None:
    settings.RESTY_DJANGO = {"IDS": {"UDP": {"NETWORKS": ["10.0.0.0/8", "192.168.0.0/16"]}}}
    peer = start()
    peer.sock.settimeout(0.5)
    with pytest.raises(TimeoutError):
        peer.get()
    assert peer.dropped("network") == 1


def test_a_source_is_held_to_its_rate(rule: IdRule, start: Callable[..., Peer], settings: Settings) -> None:
    settings.RESTY_DJANGO = {"IDS": {"UDP": {"RATE": 5}}}
    peer = start()
    assert all(peer.get()["code"] == 0 for _ in range(5))
    peer.sock.settimeout(0.1)

    def ask_until_silent() -> None:
        while True:  # on a slow machine the rate lets one more pass
            peer.get()

    with pytest.raises(TimeoutError):
        ask_until_silent()
    assert peer.dropped("rate") == 1
    time.sleep(0.4)
    peer.sock.settimeout(10)
    assert peer.get()["code"] == 0


def test_access_control_checks_networks_and_forgets_old_sources() -> None:
    access = AccessControl(["10.0.0.0/8", "2001:db8::/32"], 0)
    assert access.refusal("10.1.2.3") is None
    assert access.refusal("::ffff:10.1.2.3") is None
    assert access.refusal("2001:db8::1") is None
    assert access.refusal("fe80::1%eth0") == access.refusal("11.0.0.1") == "network"
    many = AccessControl([], 1)
    for n in range(20_000):
        assert many.refusal(f"10.0.{n // 256}.{n % 256}") is None
    assert len(many.buckets) == 10_000


def signed(key: bytes = KEY, **changed: Any) -> bytes:
    fields = {
        "action": "get",
        "rule_name": "order",
        "app_name": "shop",
        "time": time.time(),
        "nonce": f"{random.getrandbits(128):032x}",
        **changed,
    }
    return sign(json.dumps(fields).encode(), key)


@pytest.fixture
def keyed(rule: IdRule, start: Callable[..., Peer], settings: Settings) -> Peer:
    settings.RESTY_DJANGO = {"IDS": {"UDP": {"KEYS": ["an older key that still holds", KEY.decode()]}}}
    return start()


def test_signed_requests_are_answered_with_signed_replies(keyed: Peer) -> None:
    for _ in range(2):
        verified = verify(keyed.raw(signed()), [KEY])
        assert verified is not None
        assert json.loads(verified[0])["code"] == 0
    refused = verify(keyed.raw(signed(rule_name="nothing")), [KEY])
    assert refused is not None
    assert json.loads(refused[0])["code"] == -1


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda: signed()[:-64], "unsigned"),
        (lambda: signed(b"another key of the same length"), "unsigned"),
        (lambda: signed().replace(b"shop", b"shoq"), "unsigned"),
        (lambda: signed(time=time.time() - 60), "replayed"),
        (lambda: signed(time=time.time() + 60), "replayed"),
        (lambda: signed(time=float("1e300")), "replayed"),
        (lambda: signed(nonce="short"), "replayed"),
        (lambda: signed(nonce=5), "unsigned"),
        (lambda: signed(time="now"), "unsigned"),
        (lambda: b"{}", "unsigned"),
        (lambda: b"", "empty"),
    ],
)
def test_junk_gets_no_reply_where_keys_are_set(keyed: Peer, make: Callable[[], bytes], cause: str) -> None:
    assert keyed.unanswered(make())
    assert eventually(lambda: keyed.dropped(cause) == 1)
    assert not IdCounter.objects.exists()


def test_a_signed_request_is_served_once(keyed: Peer) -> None:
    request = signed()
    keyed.raw(request)
    assert keyed.unanswered(request)
    assert eventually(lambda: keyed.dropped("replayed") == 1)


def test_nonces_are_forgotten_when_their_time_is_over() -> None:
    nonces = Nonces(30)
    assert nonces.fresh("a", 1000.0, 1000.0)
    assert not nonces.fresh("a", 1000.0, 1010.0)
    assert nonces.fresh("b", 1100.0, 1100.0)
    assert list(nonces.seen) == ["b"]


@both
def test_ids_are_served_over_ipv6(rule: IdRule, start: Callable[..., Peer]) -> None:
    assert start("::1").get()["code"] == 0


def test_an_exhausted_counter_has_its_own_code(start: Callable[..., Peer]) -> None:
    IdRule.objects.create(name="order", source="{counter:01d}", max_counter=3)
    peer = start()
    assert [peer.get()["data"] for _ in range(4)] == ["0", "1", "2", "3"]
    for _ in range(3):
        reply = peer.get(seq=1)
        assert (reply["code"], reply["message"].partition(":")[0], reply["seq"]) == (-2, "exhausted", 1)


@both
def test_requests_wait_for_their_reservation_without_holding_up_others(
    rule: IdRule, start: Callable[..., Peer]
) -> None:
    peer = start()
    peer.get(app_name="ready")
    hold = threading.Event()
    peer.server.service.reservations.submit(hold.wait)
    try:
        peer.sock.send(b'{"action":"get","rule_name":"order","app_name":"new","seq":"slow"}')
        assert all(peer.get(app_name="ready", seq=n)["seq"] == n for n in range(100))
        assert peer.server.snapshot()["parked"] == 1
    finally:
        hold.set()
    reply = json.loads(peer.sock.recv(65535))
    assert (reply["seq"], reply["code"]) == ("slow", 0)


def test_a_request_that_waited_too_long_is_refused(
    rule: IdRule, start: Callable[..., Peer], settings: Settings
) -> None:
    settings.RESTY_DJANGO = {"IDS": {"WAIT": 0.3}}
    peer = start()
    hold = threading.Event()
    peer.server.service.reservations.submit(hold.wait)
    try:
        began = time.monotonic()
        reply = peer.get()
        assert (reply["code"], reply["message"]) == (-3, f"unavailable: {unavailable()}")
        assert time.monotonic() - began > 0.2
        assert peer.get()["code"] == -3, "while the database hangs, refusals are immediate"
    finally:
        hold.set()
    until = time.monotonic() + 5
    while peer.get()["code"] and time.monotonic() < until:
        time.sleep(0.05)
    assert peer.get()["code"] == 0


@both
def test_stop_answers_what_has_arrived(rule: IdRule, start: Callable[..., Peer]) -> None:
    peer = start()
    peer.get()
    for n in range(50):
        peer.sock.send(json.dumps({"action": "get", "rule_name": "order", "app_name": "shop", "seq": n}).encode())
    peer.server.stop()
    assert [json.loads(peer.sock.recv(65535))["seq"] for _ in range(50)] == list(range(50))
    until = time.monotonic() + 5
    while IdCounter.objects.get().bound != 51 and time.monotonic() < until:
        time.sleep(0.05)
    assert IdCounter.objects.get().bound == 51, "the unused numbers were returned"


@both
@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_a_fuzz_of_datagrams(rule: IdRule, start: Callable[..., Peer], count: int) -> None:
    peer = start()
    generator = random.Random(20261121)
    seeds = [
        b'{"action":"get","rule_name":"order","app_name":"shop","seq":1}',
        b'{"action":"get","rule_name":"order","app_name":"shop","count":2}',
        b'{"action":"monitor","rule_name":"order","app_name":"shop","salt":"x"}',
        b'{"code":-1,"message":"bad_request"}',
        b"\x00\xff[{}]\"'\\u0000",
    ]
    received: set[tuple[str, str]] = set()
    replies = 0

    def read() -> None:
        nonlocal replies
        try:
            while True:
                reply = json.loads(peer.sock.recv(65535))
                replies += 1
                ids = reply.get("data") if reply["code"] == 0 else None
                for text in ids if isinstance(ids, list) else [ids] if isinstance(ids, str) else []:
                    assert (reply["app_name"], text) not in received
                    received.add((reply["app_name"], text))
        except (TimeoutError, BlockingIOError):
            return

    peer.sock.settimeout(0)
    for n in range(count):
        datagram = bytearray(generator.choice(seeds))
        for _ in range(generator.randrange(4)):
            at = generator.randrange(len(datagram) + 1)
            match generator.randrange(3):
                case 0:
                    datagram[at:at] = bytes([generator.randrange(256)])
                case 1:
                    del datagram[at : at + generator.randrange(5)]
                case _:
                    datagram[at : at + 1] = bytes([generator.randrange(256)])
        peer.sock.send(bytes(datagram[:1400]))
        if n % 50 == 49:
            read()
            if n % 1000 == 999:
                peer.sock.settimeout(0.02)
                read()
                peer.sock.settimeout(0)
    peer.sock.settimeout(0.5)
    read()
    assert peer.server.stats.dropped["internal_error"] == peer.server.stats.dropped["socket_error"] == 0
    assert replies > count // 5
    assert len(received) > count // 20
    peer.sock.settimeout(10)
    assert peer.get(seq="after")["seq"] == "after"


@pytest.fixture(autouse=True)
def _close(transactional_db: None) -> Iterator[None]:
    yield
    connections.close_all()


@pytest.mark.parametrize("port", ["-1", "65536", "80000"])
def test_an_invalid_port_is_refused(port: str) -> None:
    with pytest.raises(CommandError, match=f"--port {port}"):
        call_command("runidserver", f"--port={port}")
