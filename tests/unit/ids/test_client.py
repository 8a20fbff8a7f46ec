"""The UDP clients against real sockets that lose, delay, garble and refuse.

Private attributes: one test looks at the requests that an endpoint still waits for. Requests that were cancelled and
remembered change no reply; they only take memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from resty_django.ids import errors
from resty_django.ids.client import AsyncIdClient, IdClient, MonitorReply, NodesDown
from resty_django.ids.client.nodes import FIRST_REST_SECONDS, Node, order, read_nodes
from resty_django.ids.udp.signing import sign, verify
from tests.threads import together

Behaviour = Callable[[dict[str, Any], "Responder", Any], bytes | list[bytes] | None]


def good(request: dict[str, Any], responder: Responder | None = None, source: Any = None) -> bytes:
    """Return the reply of a healthy server."""
    if request["action"] == "monitor":
        return reply(request, data={"counter": 41, "node_offset": 0}, message="ok")
    number = responder.next() if responder else 1
    count = request.get("count", 1)
    ids = [f"O{number:06d}-{index}" for index in range(count)]
    return reply(request, data=ids if "count" in request else ids[0])


def reply(request: dict[str, Any], *, code: int = 0, message: str = "success", **fields: Any) -> bytes:
    return json.dumps({**request, "code": code, "message": message, **fields}).encode()


class Responder:
    """A UDP socket in a thread that answers as its `behaviour` says, and notes what it was asked."""

    def __init__(self, behaviour: Behaviour, family: socket.AddressFamily = socket.AF_INET) -> None:
        self.behaviour = behaviour
        self.requests: list[dict[str, Any]] = []
        self.sources: set[Any] = set()
        self.raw: list[bytes] = []
        self._number = 0
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def node(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    def next(self) -> int:
        self._number += 1
        return self._number

    def stop(self) -> None:
        self._stopping = True
        with socket.socket(self.socket.family, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", self.socket.getsockname()[:2])
        self._thread.join(5)
        self.socket.close()

    def _run(self) -> None:
        while True:
            datagram, source = self.socket.recvfrom(65_535)
            if self._stopping:
                return
            self.raw.append(datagram)
            body = datagram[: datagram.rindex(b"}") + 1]
            self.requests.append(json.loads(body))
            self.sources.add(source)
            answer = self.behaviour(self.requests[-1], self, source)
            for answered in answer if isinstance(answer, list) else [answer]:
                if answered is not None:
                    self.socket.sendto(answered, source)


@pytest.fixture
def respond() -> Iterator[Callable[..., Responder]]:
    responders: list[Responder] = []

    def start(behaviour: Behaviour = good, family: socket.AddressFamily = socket.AF_INET) -> Responder:
        responders.append(Responder(behaviour, family))
        return responders[-1]

    yield start
    for responder in responders:
        responder.stop()


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that refuses: nobody reads it, and nobody else can take it meanwhile."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        while True:
            holder.bind(("127.0.0.1", 0))
            port = holder.getsockname()[1]
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.bind(("127.0.0.1", port))
                break
        yield port


class Blocking:
    """The sync client behind the face of the async one, so that one test serves both."""

    def __init__(self, client: IdClient) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(getattr(self.client, name), *args, **kwargs)

        return call


@pytest.fixture(params=["sync", "async"])
async def make(request: pytest.FixtureRequest) -> Any:
    clients: list[Any] = []

    def client(*args: Any, **kwargs: Any) -> Any:
        clients.append(
            Blocking(IdClient(*args, **kwargs)) if request.param == "sync" else AsyncIdClient(*args, **kwargs)
        )
        return clients[-1]

    yield client
    for opened in clients:
        await opened.close()


async def test_gets_one_id_a_batch_and_a_position(make: Any, respond: Any) -> None:
    server = respond()
    client = make([server.node])
    assert await client.get("order", "shop", "ab") == "O000001-0"
    assert await client.get_many("order", 3) == ["O000002-0", "O000002-1", "O000002-2"]
    assert await client.get_many("order", 1) == ["O000003-0"]
    assert await client.monitor("order", "shop") == MonitorReply(41, 0)
    first, batch, single, monitor = server.requests
    assert first == {"action": "get", "rule_name": "order", "app_name": "shop", "salt": "ab", "seq": first["seq"]}
    assert batch["count"] == 3
    assert "count" not in single
    assert monitor["action"] == "monitor"
    assert len({request["seq"] for request in server.requests}) == 4


async def test_a_request_is_repeated_with_another_seq_after_a_lost_reply(make: Any, respond: Any) -> None:
    server = respond(lambda request, responder, source: None if responder.next() == 1 else good(request, responder))
    client = make([server.node], timeout=0.1)
    assert await client.get("order") == "O000003-0"
    assert len({request["seq"] for request in server.requests}) == 2


async def test_a_late_reply_is_never_taken_for_the_next_one(make: Any, respond: Any) -> None:
    late: list[bytes] = []

    def behaviour(request: dict[str, Any], responder: Responder, source: Any) -> list[bytes]:
        if not late:
            late.append(good(request, responder))
            return []
        return [late[0], good(request, responder)]

    server = respond(behaviour)
    client = make([server.node], timeout=0.1)
    assert await client.get("order") == "O000002-0"
    assert await client.get("order") == "O000003-0"


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        b'{"code":0}',
        b'{"code":"0","seq":"x"}',
        b"[" * 20_000,
        b'{"code":0,"seq":"other","data":"WRONG","message":"success"}',
        b'{"code":0,"seq":7,"data":"WRONG","message":"success"}',
        b"x" * 9000,
    ],
    ids=range(11),
)
async def test_garbage_and_replies_to_others_are_ignored(make: Any, respond: Any, garbage: bytes) -> None:
    server = respond(lambda request, responder, source: [garbage, good(request, responder), garbage])
    client = make([server.node], timeout=2, attempts=1)
    assert await client.get("order") == "O000001-0"
    assert await client.get("order") == "O000002-0"


async def test_a_forged_reply_from_another_address_is_not_taken(make: Any, respond: Any) -> None:
    def behaviour(request: dict[str, Any], responder: Responder, source: Any) -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
            forger.sendto(reply(request, data="FORGED"), source)
        return good(request, responder)

    client = make([respond(behaviour).node], timeout=2, attempts=1)
    for _ in range(20):
        assert (await client.get("order")).startswith("O")


async def test_the_next_node_is_tried_when_one_refuses(make: Any, respond: Any, dead_port: int) -> None:
    server = respond()
    client = make([("127.0.0.1", dead_port), server.node], timeout=5)
    started = time.monotonic()
    assert len({await client.get("order") for _ in range(20)}) == 20
    assert time.monotonic() - started < 2


async def test_the_next_node_is_tried_when_one_is_silent_which_then_rests(make: Any, respond: Any) -> None:
    silent, server = respond(lambda *_: None), respond()
    client = make([silent.node, server.node], timeout=0.1)
    for _ in range(12):
        assert await client.get("order")
    assert len(silent.requests) <= 2


async def test_the_next_node_is_tried_when_one_is_unavailable(make: Any, respond: Any) -> None:
    sick = respond(lambda request, *_: reply(request, code=-3, message="unavailable: the database did not answer"))
    client = make([sick.node, respond().node])
    for _ in range(6):
        assert await client.get("order")
    assert len(sick.requests) <= 1


async def test_nodes_down_names_each_node_and_what_happened_to_it(make: Any, respond: Any, dead_port: int) -> None:
    silent = respond(lambda *_: None)
    sick = respond(lambda request, *_: reply(request, code=-3, message="unavailable: no database"))
    client = make([silent.node, ("127.0.0.1", dead_port), sick.node, "no.such.host.invalid:1"], timeout=0.05)
    with pytest.raises(NodesDown) as caught:
        await client.get("order")
    failures = caught.value.failures
    assert failures[f"127.0.0.1:{silent.port}"] == "no answer within 0.05 s"
    assert failures[f"127.0.0.1:{dead_port}"] == "Connection refused"
    assert failures[f"127.0.0.1:{sick.port}"] == "unavailable: no database"
    assert "no.such.host.invalid:1" in failures
    assert all(node in str(caught.value) for node in failures)
    assert isinstance(caught.value, errors.Unavailable)
    assert pickle.loads(pickle.dumps(caught.value)).failures == failures  # noqa: S301


async def test_attempts_bound_the_datagrams_of_one_request(make: Any, respond: Any) -> None:
    silent = respond(lambda *_: None)
    client = make([silent.node], timeout=0.03, attempts=5, backoff=0.01)
    with pytest.raises(NodesDown):
        await client.get("order")
    assert len(silent.requests) == 5


async def test_a_pause_that_grows_lies_between_the_rounds(make: Any, respond: Any) -> None:
    times: list[float] = []
    server = respond(lambda *_: times.append(time.monotonic()))
    client = make([server.node], timeout=0.02, attempts=3, backoff=0.2)
    with pytest.raises(NodesDown):
        await client.get("order")
    assert times[1] - times[0] >= 0.02 + 0.1
    assert times[2] - times[1] >= 0.02 + 0.2


@pytest.mark.parametrize(
    ("code", "message", "expected", "text"),
    [
        (-1, "unknown_rule: no rule 'x'", errors.UnknownRule, "no rule 'x'"),
        (-1, "bad_salt: salt takes letters: and digits", errors.BadSalt, "salt takes letters: and digits"),
        (-1, "not exist", errors.NotExist, "not exist"),
        (-1, "system error", errors.IdError, "system error"),
        (-2, "exhausted: all given out", errors.Exhausted, "all given out"),
        (-2, "", errors.Exhausted, "the server answered code -2"),
        (-4, "of some other server", errors.TooManyNames, "of some other server"),
        (-5, "rate_limited: slower", errors.TooFast, "slower"),
        (-6, "step_changed: confirm", errors.StepChanged, "confirm"),
        (-7, "needs_transaction: ask from Python", errors.NeedsTransaction, "ask from Python"),
        (-99, "strange: new", errors.IdError, "strange: new"),
    ],
)
async def test_a_refusal_is_raised_as_its_class_and_not_tried_elsewhere(
    make: Any, respond: Any, code: int, message: str, expected: type[errors.IdError], text: str
) -> None:
    servers = [respond(lambda request, *_: reply(request, code=code, message=message)) for _ in range(2)]
    client = make([server.node for server in servers])
    with pytest.raises(errors.IdError) as caught:
        await client.get("order")
    assert type(caught.value) is expected
    assert str(caught.value) == text
    assert sum(len(server.requests) for server in servers) == 1


@pytest.mark.parametrize("data", [None, 5, [], ["a", "b"], ["a", 5, "c"], {"a": 1}, ""])
async def test_a_success_that_holds_no_ids_is_an_error(make: Any, respond: Any, data: object) -> None:
    client = make([respond(lambda request, *_: reply(request, data=data)).node])
    with pytest.raises(errors.IdError, match=r"does not contain [13] IDs"):
        await (client.get_many("order", 3) if data else client.get("order"))
    with pytest.raises(errors.IdError, match="does not contain counter"):
        await client.monitor("order")


async def test_a_server_without_batches_is_distinguished_from_a_broken_one(make: Any, respond: Any) -> None:
    client = make([respond(lambda request, *_: reply(request, data="O1")).node])
    with pytest.raises(errors.IdError, match="count"):
        await client.get_many("order", 2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"rule": 5}, errors.BadRequest),
        ({"rule": "order", "app": None}, errors.BadRequest),
        ({"rule": "order", "salt": b"x"}, errors.BadRequest),
        ({"rule": "order", "app": "\ud800"}, errors.BadRequest),
        ({"rule": "order", "app": "x" * 70_000}, errors.BadRequest),
        ({"rule": "order", "count": 0}, errors.BadCount),
        ({"rule": "order", "count": True}, errors.BadCount),
        ({"rule": "order", "count": "3"}, errors.BadCount),
    ],
)
async def test_requests_that_no_server_accepts_are_refused_without_sending(
    make: Any, respond: Any, arguments: dict[str, Any], expected: type[errors.IdError]
) -> None:
    server = respond()
    with pytest.raises(expected):
        await make([server.node]).get_many(**{"count": 1, **arguments})
    assert not server.requests


async def test_ipv6_nodes_work(make: Any, respond: Any) -> None:
    try:
        server = respond(family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    assert await make(f"[::1]:{server.port}").get("order") == "O000001-0"


async def test_a_name_with_several_addresses_is_tried_at_each(make: Any, respond: Any) -> None:
    server = respond()
    assert await make(f"localhost:{server.port}").get("order") == "O000001-0"


def test_after_a_failure_the_next_address_of_a_name_is_tried() -> None:
    kind, family = socket.SOCK_DGRAM, socket.AF_INET
    infos = [(family, kind, 0, "", (host, 1200)) for host in ("127.0.0.2", "127.0.0.1")]
    node = Node("localhost", 1200)
    for expected in ("127.0.0.2", "127.0.0.1", "127.0.0.2"):
        with node.connected(infos) as sock:
            assert sock.getpeername() == (expected, 1200)
        node.failed(0.0)


async def test_signed_requests_and_replies_fit_the_key(make: Any, respond: Any) -> None:
    key = b"a secret"

    def behaviour(request: dict[str, Any], responder: Responder, source: Any) -> list[bytes]:
        verified = verify(responder.raw[-1], [b"old", key])
        assert verified == (responder.raw[-1][:-64], key)
        genuine = good(request, responder)
        forged = reply(request, data="FORGED")
        return [forged, sign(forged, b"another"), forged + b"0" * 64, sign(genuine, key)]

    server = respond(behaviour)
    client = make([server.node], key=key.decode(), timeout=2, attempts=1)
    assert await client.get("order") == "O000001-0"
    assert await client.get("order") == "O000002-0"
    first, second = server.requests
    assert abs(first["time"] - time.time()) < 60
    assert len(first["nonce"]) >= 16
    assert first["nonce"] != second["nonce"]


async def test_an_unsigned_reply_is_ignored_by_a_client_with_a_key(make: Any, respond: Any) -> None:
    client = make([respond().node], key="secret", timeout=0.05, attempts=1)
    with pytest.raises(NodesDown):
        await client.get("order")


async def test_a_closed_client_raises_an_error(make: Any, respond: Any) -> None:
    client = make([respond().node])
    await client.get("order")
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.get("order")


async def test_the_load_goes_to_all_nodes(make: Any, respond: Any) -> None:
    servers = [respond(), respond()]
    client = make([server.node for server in servers])
    for _ in range(60):
        await client.get("order")
    assert min(len(server.requests) for server in servers) >= 10


def test_threads_share_a_client(respond: Any) -> None:
    server = respond()
    with IdClient([server.node], timeout=2) as client:
        ids: list[str] = []

        def work() -> None:
            ids.extend([client.get("order") for _ in range(100)])

        together(*[work for _ in range(8)])
    assert len(set(ids)) == 800
    assert len({request["seq"] for request in server.requests}) == 800
    assert len(server.sources) <= 8


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_uses_its_own_sockets(respond: Any) -> None:
    server = respond()
    with IdClient([server.node], timeout=2) as client:
        client.get("order")
        before = set(server.sources)
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()
        child = context.Process(target=lambda: queue.put(client.get("order")))
        child.start()
        mine = client.get("order")
        theirs = queue.get()
        child.join(10)
    assert mine != theirs
    assert len(server.sources - before) == 1
    assert len({request["seq"].split("-")[0] for request in server.requests}) == 2


def test_sockets_are_reused_and_closed(respond: Any) -> None:
    server = respond()
    before = len(os.listdir("/proc/self/fd"))
    with IdClient([server.node], timeout=2) as client:
        for _ in range(50):
            client.get("order")
        assert len(server.sources) == 1
    assert len(os.listdir("/proc/self/fd")) == before


async def test_many_requests_are_under_way_at_once(respond: Any) -> None:
    waiting: list[tuple[dict[str, Any], Any]] = []

    def behaviour(request: dict[str, Any], responder: Responder, source: Any) -> None:
        waiting.append((request, source))
        if len(waiting) == 100:
            for pending, where in reversed(waiting):
                responder.socket.sendto(good(pending, responder), where)

    server = respond(behaviour)
    async with AsyncIdClient([server.node], timeout=5, attempts=1) as client:
        ids = await asyncio.gather(*(client.get("order") for _ in range(100)))
    assert ids == [f"O{number:06d}-0" for number in range(100, 0, -1)]
    assert len(server.sources) == 1


async def test_a_cancelled_request_harms_no_other(respond: Any) -> None:
    server = respond(
        lambda request, responder, source: None if request["app_name"] == "slow" else good(request, responder)
    )
    async with AsyncIdClient([server.node], timeout=5) as client:
        slow = [asyncio.create_task(client.get("order", "slow")) for _ in range(10)]
        await client.get("order")
        for task in slow:
            task.cancel()
        results = await asyncio.gather(*slow, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert await client.get("order")
        endpoint = next(iter(client._endpoints.values()))
        assert not endpoint._waiting


async def test_closing_ends_the_requests_under_way(respond: Any) -> None:
    client = AsyncIdClient([respond(lambda *_: None).node], timeout=30)
    task = asyncio.create_task(client.get("order"))
    await asyncio.sleep(0.05)
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await asyncio.wait_for(task, 5)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_async_client_starts_afresh_in_another_loop(respond: Any) -> None:
    client = AsyncIdClient([respond().node], timeout=2)
    assert asyncio.run(client.get("order")) == "O000001-0"
    assert asyncio.run(client.get("order")) == "O000002-0"

    async def last() -> str:
        async with client:
            return await client.get("order")

    assert asyncio.run(last()) == "O000003-0"


def test_the_client_needs_no_django() -> None:
    code = (
        "import sys; from resty_django.ids.client import IdClient, AsyncIdClient; "
        "sys.exit(any(name.partition('.')[0] in ('django', 'rest_framework') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("address", "host", "port", "text"),
    [
        ("10.0.0.1:1201", "10.0.0.1", 1201, "10.0.0.1:1201"),
        ("ids.example", "ids.example", 1200, "ids.example:1200"),
        ("[::1]:5", "::1", 5, "[::1]:5"),
        ("[::1]", "::1", 1200, "[::1]:1200"),
        (("::1", 7), "::1", 7, "[::1]:7"),
    ],
)
def test_nodes_are_parsed(address: Any, host: str, port: int, text: str) -> None:
    (node,) = read_nodes([address])
    assert (node.host, node.port, str(node)) == (host, port, text)


NO_NODES: list[Any] = [
    "",
    ":1200",
    "a:",
    "a:b",
    "a:0",
    "a:65536",
    "::1",
    "::1:1200",
    "[::1",
    "[::1]x",
    "[]:1",
    "a:²",
    5,
]
NO_NODES += [("a",), ("", 1), ("a", True), ("a", "1"), ("a", 0), None]


@pytest.mark.parametrize("address", NO_NODES)
def test_invalid_nodes_are_refused(address: Any) -> None:
    with pytest.raises(ValueError, match=r"node|port"):
        read_nodes([address])


def test_no_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        IdClient([])


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"attempts": 0}, {"backoff": -1}, {"key": ""}])
def test_invalid_arguments_are_refused(wrong: dict[str, Any]) -> None:
    for kind in (IdClient, AsyncIdClient):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            kind("127.0.0.1:1", **wrong)


def test_a_node_that_failed_is_tried_last_and_comes_back_when_it_has_rested() -> None:
    nodes = read_nodes(["a:1", "b:1", "c:1"])
    nodes[0].failed(100.0)
    nodes[0].failed(100.0)
    nodes[1].failed(100.0)
    for _ in range(20):
        assert order(nodes, 100.0) == [nodes[2], nodes[1], nodes[0]]
    firsts = Counter(str(order(nodes, 200.0)[0]) for _ in range(300))
    assert min(firsts.values()) > 40
    nodes[0].worked()
    assert nodes[0].rests_until == 0


def test_the_rest_of_a_node_grows_up_to_a_bound() -> None:
    node = Node("a", 1)
    rests = []
    for _ in range(40):
        node.failed(0.0)
        rests.append(node.rests_until)
    assert FIRST_REST_SECONDS * 0.75 <= rests[0] <= FIRST_REST_SECONDS * 1.25
    assert rests[3] > rests[0] * 3
    assert max(rests) <= 30 * 1.25
    assert min(rests[10:]) >= 30 * 0.75


def test_a_signature_covers_each_byte() -> None:
    signed = sign(b'{"a":1}', b"key")
    assert signed == b'{"a":1}' + b"88a67f24bbcdaed0e6c997404bb79a743baf44c6bab2f4c27328e3009d22e342"
    assert verify(signed, [b"other", b"key"]) == (b'{"a":1}', b"key")
    assert verify(signed, []) is None
    assert verify(signed, [b"other"]) is None
    assert verify(signed[:-1], [b"key"]) is None
    assert verify(signed[:-64] + signed[-64:].upper(), [b"key"]) is None
    assert verify(b"", [b"key"]) is None
    assert verify(sign(b"", b"key"), [b"key"]) is None
    for index in range(len(signed)):
        changed = bytearray(signed)
        changed[index] ^= 1
        assert verify(bytes(changed), [b"key"]) is None
