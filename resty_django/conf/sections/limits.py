"""The settings of limits: `RESTY_DJANGO["LIMITS"]`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from resty_django.text.durations import whole_rate

from .. import validators
from ..schema import Fault, above, at_least, between, duration, one_of, section, setting


def _failures(value: str) -> str | None:
    try:
        whole_rate(value)
    except ValueError:
        return f'must be a number of failed log-ins in a time, such as "5/15m", not {value!r}'
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginSettings:
    """The guard of log-ins.

    Attributes:
        address_and_name: Failed log-ins with one name from one address that cause a ban of both together.
        address: Failed log-ins from one address that cause a ban of the address.
        name: Failed log-ins with one name from any address that cause a ban of the name.
        ban: Length of the first ban, in seconds or as a string such as `"15m"`.
        max_ban: Maximum length of a ban.
        ban_memory: Time after a ban in which another one is twice as long.
    """

    address_and_name: str | None = setting("5/15m", check=_failures)
    address: str | None = setting("30/15m", check=_failures)
    name: str | None = setting("100/h", check=_failures)
    ban: float = duration(900.0, check=above(0))
    max_ban: float = duration(86_400.0, check=above(0))
    ban_memory: float = duration(86_400.0, check=above(0))

    def faults(self) -> Iterator[Fault]:
        if self.max_ban < self.ban:
            yield Fault("max_ban", f"must not be less than BAN ({self.ban:g} seconds), not {self.max_ban:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSettings:
    """Limits.

    Attributes:
        store: The shared dictionary that stores the state of limits.
        on_error: While it is down: `"open"`, `"closed"`, `"local"` or `"raise"`.
        log_refusals: Share of the refusals that are logged, chosen at random, 0 to 1. Signals and statistics
            include all of them.
        status: Status of the response to refused requests, 400 to 599.
        headers: The header fields that report limits: `"X-RateLimit"`, `"RateLimit"` (with `RateLimit-Policy`),
            `"both"` or `"none"`.
        problem_json: Whether refusals always reach API clients as `application/problem+json`, also from throttles
            of Django REST framework.
        template: The template of the page for refused requests.
        max_delay: Maximum seconds that a sync view sleeps.
        max_wait: Maximum seconds that a request may wait for a token bucket without a `max_wait`.
        max_waiting: Maximum number of requests per process that may wait at a time; further ones are refused.
        max_waiting_calls: Maximum number of calls per process that may wait at a time, of functions, slots and
            jobs; further ones raise `TooManyWaiting`.
        proxies: Networks of trusted proxies; `"unix"`: all clients that connect over a Unix socket.
        proxy_header: The header in which they pass the client's address.
        ipv6_prefix: Number of leading bits of an IPv6 address that identify a client, 1 to 128.
        exempt_networks: Networks whose requests have no limits.
        tier: Dotted path of a function of the request that returns its tier, for limits with a rate per tier, also
            of policies.
        rules: Policies, each as a dict of its fields. Those that match requests need the middleware.
        overrides: The limits to which overrides apply: `"policies"`, or `"all"`, with which every process that uses
            a limit reads them from the database.
        refresh: Polling interval (seconds) for changed policies and overrides, in case an event was lost.
        quota_keep: Time for which the rows of quotas are kept after their period: 400 days.
        ban_store: The shared dictionary that stores bans.
        refusals_warning: `resty_check` warns of a limit that refused more requests in one of the last 10 minutes;
            0: no warnings.
        login: The login guard.
    """

    store: str = setting("limits", check=validators.known_dict)
    on_error: str = setting("open", check=one_of("open", "closed", "local", "raise"))
    log_refusals: float = setting(1.0, check=between(0, 1))
    status: int = setting(429, check=between(400, 599))
    headers: str = setting("both", check=one_of("both", "X-RateLimit", "RateLimit", "none"))
    problem_json: bool = setting(False)
    template: str = setting("resty_limits/429.html", check=validators.not_blank)
    max_delay: float = setting(0.0, check=at_least(0))
    max_wait: float = setting(1.0, check=at_least(0))
    max_waiting: int = setting(200, check=at_least(0))
    max_waiting_calls: int = setting(200, check=at_least(0))
    proxies: tuple[str, ...] = setting((), check=validators.networks_or_unix)
    proxy_header: str = setting("X-Forwarded-For", check=validators.not_blank)
    ipv6_prefix: int = setting(64, check=between(1, 128))
    exempt_networks: tuple[str, ...] = setting((), check=validators.networks)
    tier: str | None = setting(None, check=validators.dotted_path)
    rules: tuple[dict[str, Any], ...] = setting(())
    overrides: str = setting("policies", check=one_of("policies", "all"))
    refresh: float = setting(10.0, check=above(0))
    quota_keep: float = duration(400 * 86_400.0, check=at_least(0))
    ban_store: str = setting("bans", check=validators.known_dict)
    refusals_warning: int = setting(60, check=at_least(0))
    login: LoginSettings = section(LoginSettings)
