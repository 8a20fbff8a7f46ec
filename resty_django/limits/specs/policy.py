"""Policies as plain values: the common form of a row, a declaration in code and a rule in the settings.

Times and rates are strings with their unit ("200/s", "1h", "500ms"), so that seconds and milliseconds cannot be
confused. "" and None mean that a field is not set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy, ngettext

from resty_django.text.durations import parse_duration, whole_rate
from resty_django.text.localized import grouped

from ..limiters.base import Limiter
from ..limiters.concurrency import Concurrency
from ..limiters.descriptions import joined
from ..limiters.rate import IDLE_SECONDS, FixedWindow, LeakyBucket, SlidingWindow, TokenBucket
from ..limiters.units import parse_rate, refill_of, split_amount, split_rates
from .lines import NO_LIMIT, tiers_of

ALGORITHMS: Final[Mapping[str, str | Promise]] = {
    "leaky_bucket": gettext_lazy("Leaky bucket"),
    "fixed_window": gettext_lazy("Fixed window"),
    "sliding_window": gettext_lazy("Sliding window"),
    "token_bucket": gettext_lazy("Token bucket"),
    "concurrency": gettext_lazy("Concurrency"),
}
NUMBER_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "leaky_bucket": ("rate", "burst", "tiers"),
    "fixed_window": ("rate", "limit", "window", "tiers"),
    "sliding_window": ("rate", "limit", "window", "tiers"),
    "token_bucket": ("rate", "interval", "capacity", "quantum", "max_wait", "tiers"),
    "concurrency": ("limit", "burst", "default_delay", "lease"),
}
"""The number fields of each algorithm."""
ALL_NUMBER_FIELDS: Final = tuple(dict.fromkeys(name for names in NUMBER_FIELDS.values() for name in names))
MODES: Final[Mapping[str, str | Promise]] = {
    "enforce": gettext_lazy("Enforce"),
    "shadow": gettext_lazy("Shadow: decide and count, but let pass"),
    "off": gettext_lazy("Off"),
}
ON_ERROR: Final[Mapping[str, str | Promise]] = {
    "open": gettext_lazy("Let pass"),
    "closed": gettext_lazy("Refuse"),
    "local": gettext_lazy("Limit in each process separately"),
}
MAX_NAME_CHARS: Final = 64
"""The maximum length of the name of a policy or a quota."""
MAX_FIELD_CHARS: Final = 200
"""The maximum length of a key, of a pattern, and of a policy's rates."""
MAX_SPAN_SECONDS: Final = 366 * 86_400
"""The maximum window, interval or wait."""
MAX_REQUESTS: Final = 1_000_000_000
"""The maximum number of requests in any field."""
NO_LEASE: Final = "none"
"""The lease of a policy whose slots are held until they are released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySpec:
    """The fields of a policy. `methods`: names, separated by spaces. `status`: the HTTP status of refusals.

    `rate`: one or several, as in "10/s;1000/h". `tiers`: a line such as "pro: 600/m" for each tier. `exempt_networks`
    and so on: an entry per line.
    """

    name: str
    algorithm: str
    description: str = ""
    rate: str = ""
    burst: float | None = None
    limit: int | None = None
    window: str = ""
    interval: str = ""
    capacity: int | None = None
    quantum: int | None = None
    max_wait: str = ""
    default_delay: str = ""
    lease: str = ""
    tiers: str = ""
    key: str = "ip"
    path: str = ""
    route: str = ""
    view: str = ""
    methods: str = ""
    exempt_networks: str = ""
    exempt_users: str = ""
    exempt_groups: str = ""
    exempt_paths: str = ""
    cost: int = 1
    ban: str = ""
    ban_after: int | None = None
    mode: str = "enforce"
    on_error: str = ""
    status: int | None = None
    order: int = 0

    @property
    def matches_requests(self) -> bool:
        """Whether the middleware applies the policy, not only code that names it."""
        return bool(self.path or self.route or self.view)


POLICY_FIELDS: Final = tuple(field.name for field in fields(PolicySpec))


def is_set(value: object) -> bool:
    """Return whether a field has a value: "" and None mean that it has none."""
    return value is not None and value != ""


def tier_specs(spec: PolicySpec) -> dict[str, tuple[PolicySpec, ...]]:
    """Return the limits of each tier of a valid policy, as policies without tiers; empty: no limit."""
    return {tier: specs_of_rate(spec, rate) for tier, rate in tiers_of(spec.tiers).items()}


def tier_spec(spec: PolicySpec, tier: str) -> PolicySpec:
    """Return a valid policy with the rates of a tier, which has a limit, as its own."""
    return replace(spec, rate=tiers_of(spec.tiers)[tier], tiers="", limit=None, window="", interval="", quantum=None)


def rate_specs(spec: PolicySpec) -> tuple[PolicySpec, ...]:
    """Return the limits of the policy's own numbers: a policy with one rate for each of its rates.

    Raise `ValueError` if a rate is not valid.
    """
    return tuple(_with_rate(spec, str(rate)) for rate in split_rates(spec.rate)) if spec.rate else (spec,)


def specs_of_rate(spec: PolicySpec, rate: str) -> tuple[PolicySpec, ...]:
    """Return the policy with the numbers of each rate of a tier. Raise `ValueError`."""
    return () if rate.lower() == NO_LIMIT else rate_specs(replace(spec, rate=rate))


def _with_rate(spec: PolicySpec, text: str) -> PolicySpec:
    match spec.algorithm:
        case "leaky_bucket":
            rate, burst = split_amount(text, "burst")
            parse_rate(rate)
            return replace(spec, tiers="", rate=str(rate), burst=spec.burst if burst is None else burst)
        case "token_bucket":
            rate, capacity = split_amount(text, "capacity")
            capacity = spec.capacity if capacity is None else capacity
            parse_rate(rate)
            return replace(spec, tiers="", rate=str(rate), capacity=capacity, interval="", quantum=None)
        case _:
            limit, seconds = whole_rate(split_amount(text, "")[0])
            return replace(spec, tiers="", rate="", limit=limit, window=f"{seconds:f}s")


def state_prefix(spec: PolicySpec, tier: str = "", position: int = 0) -> str:
    """Return the prefix of a policy's keys in the store: it depends on the algorithm, but not on the numbers.

    `tier`, `position`: a tier ("": the policy's own rates), and the position of one of the rates.
    """
    digest = hashlib.blake2b(tier.encode(), digest_size=8).hexdigest() if tier else ""
    parts = (f"policy:{spec.name}:{spec.algorithm}", digest, str(position) if position else "")
    return "/".join(segment for segment in parts if segment) + ":"


def build(spec: PolicySpec, **options: Any) -> Limiter:
    """Return the limiter of a valid policy with one rate; `options` are passed to the limiter."""
    burst = spec.burst or 0
    match spec.algorithm:
        case "leaky_bucket":
            return LeakyBucket(parse_rate(spec.rate), burst, **options)
        case "fixed_window":
            return FixedWindow(spec.limit or 0, parse_duration(spec.window), **options)
        case "sliding_window":
            return SlidingWindow(spec.limit or 0, parse_duration(spec.window), **options)
        case "token_bucket":
            max_wait: float | Literal["site"] = _milliseconds(spec.max_wait) if spec.max_wait else "site"
            if spec.rate:
                numbers: tuple[float, int, int] = refill_of(spec.rate, spec.capacity)
            else:
                numbers = _milliseconds(spec.interval), spec.capacity or 0, spec.quantum or 1
            return TokenBucket.from_interval(*numbers, max_wait, idle=IDLE_SECONDS, **options)
        case _:
            if spec.default_delay:
                options["default_delay"] = parse_duration(spec.default_delay)
            if spec.lease:
                options["lease"] = None if spec.lease == NO_LEASE else parse_duration(spec.lease)
            return Concurrency(spec.limit or 0, int(burst), **options)


def _milliseconds(text: str) -> float:
    return round(parse_duration(text) * 1000, 6)


def describe(spec: PolicySpec) -> str:
    """Return the limit of a valid policy in words, with the limits of its tiers, and its bans."""
    tiers = [f"{tier}: {words}" for tier, words in describe_tiers(spec).items()]
    return "; ".join([describe_rates(spec), *tiers, *describe_bans(spec)])


def describe_rates(spec: PolicySpec) -> str:
    """Return the limit of the policy's own rates in words."""
    return _words(rate_specs(spec))


def describe_tiers(spec: PolicySpec) -> dict[str, str]:
    """Return the limit of each tier of a valid policy in words."""
    return {tier: _words(specs) for tier, specs in tier_specs(spec).items()}


def _words(specs: Iterable[PolicySpec]) -> str:
    return joined(build(rate_spec).describe() for rate_spec in specs) or gettext("no limit")


def describe_bans(spec: PolicySpec) -> list[str]:
    """Return the bans of a valid policy in words, as a list of at most one text."""
    if not spec.ban:
        return []
    after = spec.ban_after or 1
    text = ngettext(
        "keys are banned for %(time)s after a refusal",
        "keys are banned for %(time)s after %(count)s refusals",
        after,
    )
    return [text % {"time": spec.ban, "count": grouped(after)}]
