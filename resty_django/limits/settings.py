"""The settings of limits: `RESTY_DJANGO["LIMITS"]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resty_django.conf import validators
from resty_django.conf.schema import above, at_least, between, one_of, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSettings:
    """Limits.

    `store`: the shared dictionary with the states. `on_error`: the behaviour while it cannot be used: "open", "closed",
    "local" or "raise". `status`: the HTTP status of refusals. `headers`: whether responses report their limits.
    `template`: the template of the page for refusals. `max_delay`: seconds that a sync view may sleep. `max_wait`:
    seconds that a request may wait for a token bucket without a `max_wait`. `max_waiting`: the maximum number of
    requests of a process that wait for token buckets at the same time. `proxies`: networks of trusted proxies.
    `proxy_header`: the header in which they write the client's address. `ipv6_prefix`: the number of bits of an IPv6
    address that identify a client. `exempt_networks`: networks of clients without limits. `rules`: policies, as dicts
    of their fields. `refresh`: seconds between two checks for changed policies without events.
    """

    store: str = setting("limits", check=validators.known_dict)
    on_error: str = setting("open", check=one_of("open", "closed", "local", "raise"))
    status: int = setting(429, check=between(400, 599))
    headers: bool = setting(True)
    template: str = setting("resty_limits/429.html", check=validators.not_blank)
    max_delay: float = setting(0.0, check=at_least(0))
    max_wait: float = setting(1.0, check=at_least(0))
    max_waiting: int = setting(50, check=at_least(0))
    proxies: tuple[str, ...] = setting((), check=validators.networks_or_unix)
    proxy_header: str = setting("X-Forwarded-For", check=validators.not_blank)
    ipv6_prefix: int = setting(64, check=between(1, 128))
    exempt_networks: tuple[str, ...] = setting((), check=validators.networks)
    rules: tuple[dict[str, Any], ...] = setting(())
    refresh: float = setting(10.0, check=above(0))
