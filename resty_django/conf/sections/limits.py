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

    `address_and_name`, `address`, `name`: the number of failed log-ins in a time, such as "5/15m", after which log-ins
    are refused: with this name from this address, from this address, with this name (None: never). `ban`: seconds of
    the first ban; each further ban is twice as long. `max_ban`: the maximum seconds of a ban. `ban_memory`: seconds
    after a ban in which another one is longer.
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

    `store`: the shared dictionary with the states. `on_error`: the behaviour while it cannot be used: "open", "closed",
    "local" or "raise". `log_refusals`: the share of the
    refusals that are logged, 0 to 1. `status`: the HTTP status of refusals. `headers`: the header fields that report
    limits: "both", "X-RateLimit", "RateLimit" or "none". `problem_json`: whether refusals always reach API clients as
    `application/problem+json`, also from throttles of Django REST framework.
    `template`: the template of the page for refusals. `max_delay`: seconds that a sync view may sleep. `max_wait`:
    seconds that a request may wait for a token bucket without a `max_wait`. `max_waiting`: the maximum number of
    requests of a process that wait at the same time. `max_waiting_calls`: likewise of calls of plain code without a
    `max_waiting`. `proxies`: networks of trusted proxies.
    `proxy_header`: the header in which they write the client's address. `ipv6_prefix`: the number of bits of an IPv6
    address that identify a client. `exempt_networks`: networks of clients without limits. `tier`: the dotted path of a
    function of the request that returns its tier, for limits with `tiers` (None: there is none). `rules`: policies, as
    dicts of their fields. `overrides`: the limits to which the overrides in the database apply: "policies" or "all".
    `refresh`: seconds between two checks for changed policies without events. `quota_keep`:
    seconds for which the rows of quotas are kept after the end of their period. `ban_store`: the shared dictionary with
    the bans. `refusals_warning`: `resty_check` warns of a limit that refused more requests in a minute (0: never).
    `login`: the guard of log-ins.
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
