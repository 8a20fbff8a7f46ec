"""Client addresses behind trusted proxies, and networks.

`REMOTE_ADDR` is the client, unless it is a trusted proxy. In this case the proxy header is read from right to left, and
the first address that does not belong to a trusted proxy is the client: the client itself may have written the entries
further left. If an entry is not an address, the search ends, and the address to its right is used. "unix:", which nginx
writes for a connection over a Unix socket, is a trusted proxy if "unix" is one.

Pure: reads only `META` of a request, or the ASGI scope of a connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

UNIX_ADDRESS: Final = "unix:"
"""The address of a connection through a Unix socket, as nginx (`$remote_addr`) and Unit write it."""
MAX_CACHED_ADDRESSES: Final = 4096


@lru_cache(MAX_CACHED_ADDRESSES)
def parse_address(text: str) -> Address | None:
    """Parse an address with or without brackets, port and zone. Return None for anything else.

    An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) becomes the IPv4 address.
    """
    text = text.strip()
    if text.startswith("["):
        text, bracket, port = text[1:].partition("]")
        if not bracket or not _is_port(port) or ("." in text and ":" not in text):
            return None
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        if not _is_port(f":{port}"):
            return None
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def as_ipv4(address: Address) -> Address:
    """Return the IPv4 address of a client behind NAT64, whose last 32 bits it is; any other address unchanged."""
    if isinstance(address, IPv6Address) and int(address) >> 32 == 0x64FF9B << 64:  # 64:ff9b::/96 (RFC 6052)
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _is_port(text: str) -> bool:
    """Return whether the text is a port such as `:443`, or empty."""
    return not text or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit() and len(text) <= 6)


class Networks:
    """A set of networks, given as strings such as "10.0.0.0/8", "2001:db8::/32" or "192.0.2.7".

    An IPv4 address and its IPv4-mapped IPv6 address are equal. A client behind NAT64 is in the networks of either
    address. Raises `ValueError` if a string is not a network.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._networks = tuple(parse_network(text) for text in texts)
        self._has = lru_cache(MAX_CACHED_ADDRESSES)(self._look)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: object) -> bool:
        return bool(self._networks) and address is not None and self._has(address)

    def _look(self, address: Address) -> bool:
        ipv4 = as_ipv4(address)
        return any(address in network or ipv4 in network for network in self._networks)


def parse_network(text: str) -> IPv4Network | IPv6Network:
    """Parse a network or an address; a network of IPv4-mapped addresses becomes IPv4. Raise `ValueError`."""
    network = ip_network(text, strict=False)
    if isinstance(network, IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ip_network(f"{mapped}/{network.prefixlen - 96}")
    return network


class ClientResolver:
    """Resolves the address of the client that sent a request.

    `proxies`: networks of the trusted proxies, and "unix" for connections through a Unix socket. `header`: the header
    that the proxies write: "X-Forwarded-For", "Forwarded" (RFC 7239), or another with comma-separated addresses.
    `ipv6_prefix`: the number of bits of an IPv6 address that identify a client.
    """

    def __init__(self, proxies: Iterable[str] = (), header: str = "X-Forwarded-For", ipv6_prefix: int = 64) -> None:
        texts = tuple(proxies)
        self._unix = "unix" in texts
        self._proxies = Networks(text for text in texts if text != "unix")
        self._header = f"HTTP_{header.upper().replace('-', '_')}"
        self._rfc7239 = self._header == "HTTP_FORWARDED"
        self._scope_header = header.lower().replace("_", "-").encode("latin-1")
        self._shift = 128 - ipv6_prefix
        self._suffix = f"/{ipv6_prefix}"
        self.name_of = lru_cache(MAX_CACHED_ADDRESSES)(self._name_of)
        self.direct_name_of = None if texts else lru_cache(MAX_CACHED_ADDRESSES)(self._direct_name_of)
        """Returns `name` for `REMOTE_ADDR`; None if there are proxies."""

    def address(self, meta: Mapping[str, str]) -> Address | None:
        """Return the client's address, or None for a Unix socket that is not trusted or has no address."""
        text = meta.get("REMOTE_ADDR") or ""
        text = "" if text == UNIX_ADDRESS else text
        client = parse_address(text) if text else None
        if self.direct_name_of or not (client in self._proxies if text else self._unix):
            return client
        for entry in self._entries(meta):
            if self._unix and entry.strip() == UNIX_ADDRESS:
                continue
            address = parse_address(entry) if len(entry) <= 100 else None  # no address is longer
            if address is None:
                break
            client = address
            if address not in self._proxies:
                break
        return client

    def name(self, meta: Mapping[str, str]) -> str:
        """Return the client's name for keys: an IPv4 address, an IPv6 network ("2001:db8::/64"), or ""."""
        if self.direct_name_of:
            return self.direct_name_of(meta.get("REMOTE_ADDR") or "")
        return self.name_of(self.address(meta))

    def meta(self, scope: Mapping[str, Any]) -> dict[str, str]:
        """Return the entries of `META` that identify the client of an ASGI scope.

        A field with an underscore, such as `X_Forwarded_For`, is not the proxy header: proxies let it through.
        """
        client = scope.get("client")
        fields = [value for name, value in scope.get("headers") or () if name.lower() == self._scope_header]
        return {"REMOTE_ADDR": client[0] if client else "", self._header: b",".join(fields).decode("latin-1")}

    def _direct_name_of(self, text: str) -> str:
        return self._name_of(parse_address(text) if text else None)

    def _name_of(self, address: Address | None) -> str:
        if address is None:
            return ""
        address = as_ipv4(address)
        if isinstance(address, IPv4Address):
            return str(address)
        return str(IPv6Address(int(address) >> self._shift << self._shift)) + self._suffix

    def _entries(self, meta: Mapping[str, str]) -> Iterator[str]:
        """Yield the entries of the header from right to left.

        Split at every comma, even within quotes: an address has no comma, and a quote that a client leaves open must
        not hide entries that the proxy added.
        """
        entries = meta.get(self._header) or ""
        while entries:
            entries, _, entry = entries.rpartition(",")
            yield _for(entry) if self._rfc7239 else entry


def _for(element: str) -> str:
    """Return the address in an element of `Forwarded`, or "": `192.0.2.60` for `for=192.0.2.60;proto=http`."""
    node = ""
    for pair in element.split(";"):
        name, equals, value = pair.strip().partition("=")
        if equals and name.lower() == "for":
            if node:
                return ""
            node = value
    if node[:1] == '"':
        return node[1:-1] if len(node) > 1 and node[-1] == '"' else ""
    return node if "[" not in node else ""
