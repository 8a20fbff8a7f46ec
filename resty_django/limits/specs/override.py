"""Overrides as plain values: the fields of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy

from resty_django.conf import conf
from resty_django.shdict import SharedDictError
from resty_django.text import printable
from resty_django.text.localized import translated
from resty_django.text.suggestions import did_you_mean

from ..callers.client_address import parse_address, parse_network
from ..callers.names import LOGIN_BANS
from ..statistics import catalog
from ..statistics.reporter import stats
from .rates import BLOCKED, NONE, check_any_rate, check_general_rate, limiter_with_rate, units_of

OVERRIDE_KINDS: Final[Mapping[str, str | Promise]] = {
    "user": gettext_lazy("User"),
    "address": gettext_lazy("IP address"),
    "network": gettext_lazy("Network"),
    "key": gettext_lazy("Key or API key"),
}
ALL_LIMITS: Final = ""
"""The `limit` of an override of all limits."""
MAX_KEY_CHARS: Final = 200
MAX_RATE_CHARS: Final = 64
EVERYWHERE: Final = "all"
"""The value of the setting OVERRIDES with which overrides apply to all limits, not only to policies."""

LOGIN_SERIES: Final[Mapping[str, str]] = {
    setting: catalog.series_name(catalog.LimitKind.BAN, name) for setting, name in LOGIN_BANS.items()
}
"""The names of the login guard's limits in the statistics, by setting."""

Limiters = Callable[[str], Iterable[Any]]
"""Returns the limiters of the limit with this name in the statistics; none if this process has not loaded it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideSpec:
    """The fields of an override. `limit`: the name of the limit in the statistics. `starts_at`, `ends_at`: aware."""

    kind: str
    key: str
    rate: str
    limit: str = ALL_LIMITS
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    reason: str = ""

    @property
    def title(self) -> str:
        """The key and the limit, as text."""
        kinds = {
            "user": gettext("user"),
            "address": gettext("address"),
            "network": gettext("network"),
            "key": gettext("key"),
        }
        values = {
            "kind": kinds.get(self.kind, self.kind),
            "key": printable(self.key, 90),
            "limit": printable(self.limit, 90),
        }
        if not self.limit:
            return gettext("%(kind)s %(key)s in all limits") % values
        return gettext("%(kind)s %(key)s in %(limit)s") % values


def is_missing_policy(series: str) -> bool:
    """Return whether this is the name of a policy that does not exist."""
    is_policy = series != ALL_LIMITS and catalog.kind_and_name(series)[0] == catalog.LimitKind.POLICY
    return is_policy and not tuple(catalog.known_limiters(series))


def is_known(series: str) -> bool:
    """Return whether a limit has this name in the statistics; True if the store does not answer."""
    if series in LOGIN_SERIES.values() or any(True for _ in catalog.known_limiters(series)):
        return True
    try:
        return series in stats.names()
    except SharedDictError:
        return True


def find_problems(spec: OverrideSpec, limiters: Limiters = catalog.known_limiters) -> dict[str, str]:
    """Return a message for each field that is not valid, in the names of `OverrideSpec`."""
    return {field: text for field, text in _problems(spec, limiters) if text}


def _problems(spec: OverrideSpec, limiters: Limiters) -> Iterator[tuple[str, str]]:
    """Yield fields with a message for each, which is "" for some that are valid."""
    if spec.kind not in OVERRIDE_KINDS:
        all_kinds = gettext("Use one of %(names)s.") % {"names": ", ".join(OVERRIDE_KINDS)}
        values = {"kind": repr(spec.kind), "hint": did_you_mean(spec.kind, OVERRIDE_KINDS, all_kinds, quote='"')}
        yield "kind", gettext("%(kind)s is not a kind of override. %(hint)s") % values
    elif spec.kind == "user" and spec.limit in LOGIN_SERIES.values():
        text = gettext("A log-in has a name, and no user yet. Choose the kind “key”, and enter the name of the user.")
        yield "kind", text
    yield "key", _key_problem(spec.kind, spec.key)
    kind = catalog.kind_and_name(spec.limit)[0]
    if kind == catalog.LimitKind.BAN and spec.limit not in LOGIN_SERIES.values():
        yield "limit", gettext("Of all bans, only the login guard has overrides. Enter the name of another limit.")
    elif spec.limit and conf.limits.overrides != EVERYWHERE and kind != catalog.LimitKind.POLICY:
        text = gettext(
            "This limit is not a policy, and overrides apply only to policies. Enter the name of a policy, or set "
            '%(setting)s to "%(value)s".'
        )
        yield "limit", text % {"setting": 'RESTY_DJANGO["LIMITS"]["OVERRIDES"]', "value": EVERYWHERE}
    else:
        yield "rate", _rate_problem(spec, limiters)
    if spec.starts_at is not None and spec.ends_at is not None and spec.ends_at <= spec.starts_at:
        text = gettext("The override ends before it begins. Enter a time after “from”, or change “from”.")
        yield "ends_at", text


def _key_problem(kind: str, key: str) -> str:
    if not key.strip():
        return gettext("The key is missing. Enter the ID of a user, an address, a network or a key.")
    if kind == "address" and parse_address(key) is None:
        return gettext("%(key)s is not an IP address such as 192.0.2.7 or 2001:db8::7.") % {"key": repr(key)}
    if kind == "network":
        try:
            network = parse_network(key)
        except ValueError as error:
            text = gettext("%(error)s. Enter a network such as 192.0.2.0/24 or 2001:db8::/48.")
            return text % {"error": error}
        prefix = conf.limits.ipv6_prefix
        if network.version == 6 and network.prefixlen > prefix:
            text = gettext(
                "IPv6 clients are counted by networks of /%(prefix)s (IPV6_PREFIX). Enter /%(prefix)s or a larger "
                "network."
            )
            return text % {"prefix": prefix}
    return ""


def _rate_problem(spec: OverrideSpec, limiters: Limiters) -> str:
    rate = spec.rate
    if rate in (NONE, BLOCKED):
        return ""
    if not rate or len(rate) > MAX_RATE_CHARS:
        return gettext("Enter a rate such as 60/m, none or blocked.")
    try:
        if spec.limit == ALL_LIMITS:
            check_general_rate(rate)
            return ""
        if spec.limit in LOGIN_SERIES.values():
            return gettext("The login guard has no rate that can be replaced. Enter none or blocked.")
        if catalog.kind_and_name(spec.limit)[0] == catalog.LimitKind.QUOTA:
            units_of(rate)
            return ""
        by_class = {type(limiter): limiter for limiter in limiters(spec.limit)}
        for limiter in by_class.values():
            limiter_with_rate(limiter, rate)
        if not by_class:
            check_any_rate(rate)
    except (ValueError, TypeError) as error:
        return translated(error)
    return ""
