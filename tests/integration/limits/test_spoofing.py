"""Headers that a client makes up: whatever it sends, it is counted under its own address."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from resty_django.limits import client_address
from resty_django.limits.callers import keys
from resty_django.limits.decorators import limit_count

from .view_tools import Site

PROXY, INNER, CLIENT, OTHER = "10.0.0.1", "10.0.0.2", "203.0.113.9", "198.51.100.7"
ip = keys.make("ip")


def client_of(remote: str, forwarded: str | None = None, header: str = "X-Forwarded-For") -> str | None:
    """Return the client of a request, and check that a connection with the same header has the same client."""
    headers = {} if forwarded is None else {header: forwarded}
    request = RequestFactory().get("/", headers=headers, REMOTE_ADDR=remote)
    assert client_address(request) == client_address(scope_of(remote, headers)) == ip(request)
    return ip(request)


def scope_of(remote: str, headers: dict[str, str]) -> dict[str, Any]:
    fields = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {
        "type": "websocket",
        "client": [remote, 4711] if remote else None,
        "headers": [(b"host", b"testserver"), *fields],
    }


@pytest.fixture
def behind(settings: Any) -> Any:
    """The site stands behind these proxies."""

    def enter(*proxies: str, **section: Any) -> None:
        settings.RESTY_DJANGO = {"LIMITS": {"PROXIES": list(proxies), **section}}

    return enter


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Client-IP", "True-Client-IP", "Via"])
def test_without_proxies_no_header_counts(header: str) -> None:
    assert client_of(CLIENT, OTHER, header) == CLIENT
    assert client_of(CLIENT, f"for={OTHER}", header) == CLIENT


@pytest.mark.parametrize("header", ["Forwarded", "X-Real-IP", "X-Forwarded", "X-Client-IP", "X_Forwarded_For"])
def test_behind_a_proxy_no_other_header_counts(behind: Any, header: str) -> None:
    behind("10.0.0.0/8")
    assert client_of(PROXY, f"for={OTHER}", header) == PROXY


def test_the_header_of_an_untrusted_sender_is_ignored(behind: Any) -> None:
    behind("10.0.0.0/8")
    assert client_of(CLIENT, OTHER) == CLIENT
    assert client_of(CLIENT, f"{OTHER}, {PROXY}") == CLIENT


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        (CLIENT, CLIENT),
        (f"{CLIENT}, {INNER}", CLIENT),
        (f"{CLIENT},{INNER},{INNER}", CLIENT),
        # what stands left of the client's address, the client has written
        (f"{OTHER}, {CLIENT}", CLIENT),
        (f"{INNER}, {CLIENT}", CLIENT),
        (f"127.0.0.1, {PROXY}, {CLIENT}, {INNER}", CLIENT),
        (f"{OTHER}, " * 5000 + CLIENT, CLIENT),
        ("garbage, " * 5000 + CLIENT, CLIENT),
        (f"<script>, {CLIENT}", CLIENT),
        # all of them trusted: the one farthest away
        (f"{INNER}, {PROXY}", INNER),
        # an entry that is not an address ends the search; the address before it counts
        ("", PROXY),
        ("unknown", PROXY),
        (f"{CLIENT}, unknown", PROXY),
        (f"{CLIENT}, unknown, {INNER}", INNER),
        (f"{CLIENT},", PROXY),
        (f"{CLIENT}, ,{INNER}", INNER),
        (f"{CLIENT}, {INNER}x", PROXY),
        (f"{CLIENT} {INNER}", PROXY),
        (f"{CLIENT}, 10.0.0.256", PROXY),
        (f"{CLIENT}, 10.0.0.02", PROXY),
        (f"{CLIENT}, 0x0a000002", PROXY),
        (f"{CLIENT}, 167772162", PROXY),
        (f"{CLIENT}, {'1' * 4000}", PROXY),
        # ports, brackets, and IPv4 within IPv6
        (f"{CLIENT}:4711", CLIENT),
        (f"{CLIENT}, {INNER}:80", CLIENT),
        (f"::ffff:{CLIENT}", CLIENT),
        (f"[::ffff:{CLIENT}]:80, ::ffff:{INNER}", CLIENT),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:3::4]:80", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:3::4%eth0", "2001:db8:1:2::/64"),
    ],
)
def test_x_forwarded_for_is_read_from_right_to_left(behind: Any, forwarded: str, client: str) -> None:
    behind("10.0.0.0/8")
    assert client_of(PROXY, forwarded) == client


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        (f"for={CLIENT}", CLIENT),
        (f"FOR={CLIENT};proto=http;by=203.0.113.43", CLIENT),
        (f'proto=https; for="{CLIENT}:4711"', CLIENT),
        ('for="[2001:db8:1:2::3]:80"', "2001:db8:1:2::/64"),
        (f"for={OTHER}, for={CLIENT}", CLIENT),
        (f"for={CLIENT}, for={INNER};host=x", CLIENT),
        # a quote that the client leaves open does not swallow what the proxy wrote
        (f'for="{OTHER}, for={CLIENT}', CLIENT),
        (f'for={OTHER};host=", for={CLIENT}', CLIENT),
        (f'for="{OTHER}, for={CLIENT};host="x"', CLIENT),
        # no address
        ("for=unknown", PROXY),
        ('for="_hidden"', PROXY),
        ("", PROXY),
        (CLIENT, PROXY),
        (f"by={CLIENT}", PROXY),
        (f"xfor={CLIENT}", PROXY),
        (f"for={CLIENT};for={OTHER}", PROXY),
        (f'for="{CLIENT}', PROXY),
        ("for=[2001:db8::1]", PROXY),
        ("for=", PROXY),
        ('for="', PROXY),
    ],
)
def test_forwarded_of_rfc_7239(behind: Any, forwarded: str, client: str) -> None:
    behind("10.0.0.0/8", PROXY_HEADER="Forwarded")
    assert client_of(PROXY, forwarded, "Forwarded") == client


def test_only_the_header_of_the_settings_counts(behind: Any) -> None:
    behind("10.0.0.0/8", PROXY_HEADER="Forwarded")
    assert client_of(PROXY, CLIENT) == PROXY
    behind("10.0.0.0/8", PROXY_HEADER="CF-Connecting-IP")
    assert client_of(PROXY, OTHER) == PROXY
    assert client_of(PROXY, CLIENT, "CF-Connecting-IP") == CLIENT


def test_unix_sockets(behind: Any) -> None:
    assert client_of("", CLIENT) == "-"
    behind("10.0.0.0/8")
    assert client_of("", CLIENT) == "-"
    behind("10.0.0.0/8", "unix")
    assert client_of("", CLIENT) == CLIENT
    assert client_of("", f"{OTHER}, {CLIENT}, {INNER}") == CLIENT
    assert client_of("") == "-"
    assert client_of(CLIENT, OTHER) == CLIENT


@pytest.mark.parametrize(("header", "node"), [("X-Forwarded-For", ""), ("Forwarded", "for=")])
def test_a_unix_socket_behind_another_proxy(behind: Any, header: str, node: str) -> None:
    """nginx and Unit name such a connection "unix:", in the header and as the peer."""
    forwarded = f"{node}{OTHER}, {node}{CLIENT}, {node}unix:"
    behind("unix", PROXY_HEADER=header)
    assert client_of("", forwarded, header) == client_of("unix:", forwarded, header) == CLIENT
    assert client_of("", f"{node}{CLIENT}, {node}unix:, {node}{INNER}", header) == INNER
    behind("10.0.0.0/8", PROXY_HEADER=header)
    assert client_of(PROXY, forwarded, header) == PROXY
    assert client_of("unix:", forwarded, header) == "-"


@pytest.mark.usefixtures("empty_limits")
def test_each_ipv4_client_behind_nat64_counts_alone(behind: Any) -> None:
    behind("10.0.0.0/8", EXEMPT_NETWORKS=[OTHER])
    view = limit_count(1, per="1h", name="nat64")(lambda request: HttpResponse())
    for address, statuses in ((CLIENT, [200, 429]), (INNER, [200, 429]), (OTHER, [200, 200])):
        request = RequestFactory().get("/", REMOTE_ADDR=f"64:ff9b::{address}")
        assert [view(request).status_code for _ in range(2)] == statuses
    assert client_of(f"64:ff9b::{PROXY}", f"64:ff9b::{CLIENT}") == CLIENT


def test_proxies_with_ipv6(behind: Any) -> None:
    behind("2001:db8:ffff::/48", "10.0.0.0/8")
    assert client_of("2001:db8:ffff::1", f"{CLIENT}, ::ffff:10.0.0.3") == CLIENT
    assert client_of("::ffff:10.0.0.1", CLIENT) == CLIENT
    assert client_of("2001:db8:fffe::1", CLIENT) == "2001:db8:fffe::/64"


def test_the_bits_of_a_client(behind: Any) -> None:
    behind(IPV6_PREFIX=48)
    assert client_of("2001:db8:1:2::3") == client_of("2001:db8:1:ffff::9") == "2001:db8:1::/48"


@pytest.mark.parametrize(
    ("fields", "client"),
    [
        ([(b"x-forwarded-for", CLIENT)], CLIENT),
        # a header in several fields is one list
        ([(b"x-forwarded-for", OTHER), (b"host", "x"), (b"X-Forwarded-For", CLIENT)], CLIENT),
        ([(b"x-forwarded-for", CLIENT), (b"x-forwarded-for", INNER)], CLIENT),
        ([(b"x-forwarded-for", CLIENT), (b"x-forwarded-for", "")], PROXY),
        # what a client writes in another field, a proxy lets through
        ([(b"x_forwarded_for", OTHER)], PROXY),
        ([(b"x-forwarded-for", CLIENT), (b"x_forwarded_for", OTHER)], CLIENT),
        ([(b"x-forwarded_for", OTHER), (b" x-forwarded-for", OTHER), (b"forwarded", f"for={OTHER}")], PROXY),
        ([(b"x-forwarded-for", f"\xff\x00, {CLIENT}")], CLIENT),
        ([(b"x-forwarded-for", f"{CLIENT}, \xff\x00")], PROXY),
        ([], PROXY),
    ],
)
def test_the_fields_of_a_connection(behind: Any, fields: list[tuple[bytes, str]], client: str) -> None:
    behind("10.0.0.0/8")
    headers = [(name, value.encode("latin-1")) for name, value in fields]
    for kind in ("http", "websocket"):
        assert client_address({"type": kind, "client": (PROXY, 4711), "headers": headers}) == client
        assert client_address({"type": kind, "client": [OTHER, 0], "headers": headers}) == OTHER


def test_a_connection_without_an_address(behind: Any) -> None:
    headers = [(b"x-forwarded-for", CLIENT.encode())]
    behind("10.0.0.0/8")
    for scope in ({"type": "lifespan"}, {"client": None, "headers": headers}, {"client": ("", 0), "headers": headers}):
        assert client_address(scope) == "-"
    behind("unix")
    assert client_address({"client": None, "headers": headers}) == CLIENT


@settings(deadline=None)
@given(st.text(st.characters(codec="latin-1", exclude_characters="\r\n")))
def test_whatever_a_client_writes_before_its_address(text: str) -> None:
    with override_settings(RESTY_DJANGO={"LIMITS": {"PROXIES": ["10.0.0.0/8"]}}):
        request = RequestFactory().get("/", REMOTE_ADDR=PROXY)
        request.META["HTTP_X_FORWARDED_FOR"] = f"{text}, {CLIENT}"
        assert ip(request) == CLIENT
        assert client_address(scope_of(PROXY, {"X-Forwarded-For": f"{text}, {CLIENT}"})) == CLIENT
    with override_settings(RESTY_DJANGO={"LIMITS": {"PROXIES": ["10.0.0.0/8"], "PROXY_HEADER": "Forwarded"}}):
        request.META["HTTP_FORWARDED"] = f"{text}, for={CLIENT}"
        assert ip(request) == CLIENT


@pytest.mark.usefixtures("empty_limits")
async def test_a_limit_is_not_evaded_by_new_headers(behind: Any) -> None:
    behind("10.0.0.0/8")
    site = Site(False)
    view = site.view(limit_count(3, per="1h"))
    clients = [
        (await site.get(view, ip=PROXY, headers={"X-Forwarded-For": f"198.51.100.{number}, {CLIENT}"})).status_code
        for number in range(6)
    ]
    assert clients == [200] * 3 + [429] * 3


@pytest.mark.usefixtures("empty_limits")
async def test_headers_do_not_exempt_a_client(behind: Any) -> None:
    behind("10.0.0.0/8", EXEMPT_NETWORKS=["192.168.0.0/16"])
    site = Site(False)
    view = site.view(limit_count(1, per="1h", exempt_networks=["172.16.0.0/12"]))
    statuses = []
    for fake in ("192.168.0.1", "172.16.0.1", "::ffff:192.168.0.1"):
        headers = {"X-Forwarded-For": f"{fake}, {CLIENT}"}
        statuses.append((await site.get(view, ip=PROXY, headers=headers)).status_code)
    assert statuses == [200, 429, 429]
    assert (await site.get(view, ip=PROXY, headers={"X-Forwarded-For": CLIENT})).status_code == 429
    assert await site.statuses(view, 3, ip=PROXY, headers={"X-Forwarded-For": "192.168.0.1"}) == [200] * 3


def test_wrong_proxies_are_an_error_of_the_settings() -> None:
    from resty_django.conf import all_problems

    with override_settings(RESTY_DJANGO={"LIMITS": {"PROXIES": ["10.0.0.0/8", "unix", "lan"]}}):
        (problem,) = all_problems()
    assert "'lan', which is not a network" in problem.message
