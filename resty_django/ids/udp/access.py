"""Access control: networks and a rate limit for each source address."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from time import monotonic
from typing import TypeVar

V = TypeVar("V")


class AccessControl:
    """Admits a source if it is in one of `networks` (empty: all) and below `rate` requests per second (0: no limit).

    A source may send the requests of one second at once (a token bucket with that size).
    """

    def __init__(self, networks: Sequence[str], rate: int) -> None:
        self._networks: list[IPv4Network | IPv6Network] = [ip_network(text, strict=False) for text in networks]
        self._rate = rate
        self._known: OrderedDict[str, bool] = OrderedDict()
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    @property
    def idle(self) -> bool:
        """Whether every source is admitted."""
        return not self._networks and not self._rate

    def refusal(self, host: str) -> str | None:
        """Return why a request from `host` is refused, "network" or "rate", or None if it is admitted."""
        if self._networks and not self._allowed(host):
            return "network"
        if self._rate and not self._spend(host):
            return "rate"
        return None

    def _allowed(self, host: str) -> bool:
        allowed = self._known.get(host)
        if allowed is None:
            address = ip_address(host.partition("%")[0])
            if isinstance(address, IPv6Address) and address.ipv4_mapped:
                address = address.ipv4_mapped
            allowed = any(address in network for network in self._networks)
            _remember(self._known, host, allowed)
        return allowed

    def _spend(self, host: str) -> bool:
        now = monotonic()
        tokens, then = self.buckets.get(host, (float(self._rate), now))
        tokens = min(float(self._rate), tokens + (now - then) * self._rate)
        admitted = tokens >= 1
        _remember(self.buckets, host, (tokens - 1 if admitted else tokens, now))
        self.buckets.move_to_end(host)
        return admitted


class Nonces:
    """Recent signed requests, each of which is served only once.

    `seconds` is the maximum difference between a request's time and this clock.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        self.seconds = seconds
        self.seen: OrderedDict[str, float] = OrderedDict()

    def fresh(self, nonce: str, sent: float, now: float) -> bool:
        """Return whether a request with that nonce and time may be served, and remember it. Times: epoch seconds."""
        while self.seen and next(iter(self.seen.values())) < now - 2 * self.seconds:
            self.seen.popitem(last=False)
        if not abs(now - sent) <= self.seconds or nonce in self.seen:
            return False
        self.seen[nonce] = now
        return True


def _remember(table: OrderedDict[str, V], host: str, value: V) -> None:
    """Store a value for a source address. Keep 10 000 addresses, and drop the one that was seen least recently."""
    table[host] = value
    if len(table) > 10_000:
        table.popitem(last=False)
