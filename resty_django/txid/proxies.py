"""Trusted proxies: txids in request headers are accepted only from them. Pure."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

UNIX: Final = "unix"
"""Represents callers without an address, which connect over a Unix socket. Unit names them "unix:"."""


@lru_cache(maxsize=1024)
def is_trusted(address: str | None, proxies: tuple[str, ...]) -> bool:
    """Return whether the caller's `address` is in `proxies`, a list of CIDR blocks or "unix"."""
    if not address or address == f"{UNIX}:":
        return UNIX in proxies
    try:
        caller = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(caller, ipaddress.IPv6Address) and caller.ipv4_mapped is not None:
        caller = caller.ipv4_mapped
    return any(caller in ipaddress.ip_network(block) for block in proxies if block != UNIX)
