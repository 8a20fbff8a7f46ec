"""Addresses as headers name them, networks, and clients in keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resty_django.limits.callers.client_address import ClientResolver, Networks, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        (" 192.0.2.1 ", "192.0.2.1"),
        ("192.0.2.1:443", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
        ("::FFFF:C000:0201", "192.0.2.1"),
    ],
)
def test_an_address_in_all_its_forms(text: str, address: str) -> None:
    assert str(parse_address(text)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unknown",
        "_hidden",
        "localhost",
        "192.0.2",
        "192.0.2.256",
        "192.0.2.01",
        "0x7f.1",
        "192.0.2.1:port",
        "192.0.2.1:123456",
        "192.0.2.1:٣",
        "[192.0.2.1]",
        "[2001:db8::1",
        "[2001:db8::1]x",
        "2001:db8::1::2",
        "192.0.2.1 192.0.2.2",
        "٣.0.0.1",
        "192.0.2.1/24",
    ],
)
def test_texts_that_are_not_addresses(text: str) -> None:
    assert parse_address(text) is None


@given(st.text())
def test_any_text_is_an_address_or_none(text: str) -> None:
    parsed = parse_address(text)
    assert parsed is None or parse_address(str(parsed)) == parsed


@given(st.ip_addresses())
def test_every_address_reads_as_it_is_written(address: object) -> None:
    assert parse_address(str(address)) == (getattr(address, "ipv4_mapped", None) or address)


def test_networks_hold_their_addresses_in_either_form() -> None:
    networks = Networks(["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::ffff:198.51.100.0/120"])
    for inside in ("10.1.2.3", "::ffff:10.1.2.3", "192.0.2.7", "2001:db8:1::1", "198.51.100.9"):
        assert parse_address(inside) in networks
    for outside in ("11.0.0.1", "192.0.2.8", "2001:db9::1", "::1", "198.51.101.1"):
        assert parse_address(outside) not in networks
    assert parse_address("64:ff9b::10.1.2.3") in networks
    assert parse_address("64:ff9b::10.1.2.3") in Networks(["64:ff9b::/96"])
    assert parse_address("10.1.2.3") not in Networks(["64:ff9b::/96"])
    assert None not in networks
    assert not Networks([])
    assert parse_address("10.0.0.1") not in Networks([])


def test_a_wrong_network_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/99"):
        Networks(["10.0.0.0/99"])


def named(address: str, prefix: int) -> str:
    return ClientResolver(ipv6_prefix=prefix).name({"REMOTE_ADDR": address})


@pytest.mark.parametrize(
    ("address", "prefix", "name"),
    [
        ("192.0.2.1", 64, "192.0.2.1"),
        ("::ffff:192.0.2.1", 64, "192.0.2.1"),
        ("64:ff9b::192.0.2.1", 64, "192.0.2.1"),
        ("64:ff9b::c000:201", 128, "192.0.2.1"),
        ("64:ff9b:1::c000:201", 64, "64:ff9b:1::/64"),
        ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::/48"),
        ("2001:db8:1:2:3:4:5:6", 56, "2001:db8:1::/56"),
        ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6/128"),
        ("::1", 64, "::/64"),
        ("", 64, ""),
        ("gibberish", 64, ""),
    ],
)
def test_a_client_is_an_address_or_a_network(address: str, prefix: int, name: str) -> None:
    assert named(address, prefix) == name


@given(st.ip_addresses(v=6), st.integers(1, 128), st.integers(0, 2**128 - 1))
def test_addresses_of_one_network_are_one_client(address: object, prefix: int, noise: int) -> None:
    low = (1 << (128 - prefix)) - 1
    neighbour = type(address)(int(address) & ~low | noise & low)  # type: ignore[call-overload]
    if not any(one.ipv4_mapped or str(one).startswith("64:ff9b::") for one in (address, neighbour)):  # type: ignore[attr-defined]
        assert named(str(address), prefix) == named(str(neighbour), prefix)
