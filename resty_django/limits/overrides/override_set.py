"""An immutable set of all overrides, as of one read of the database."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from ipaddress import ip_interface
from math import inf
from time import time_ns
from typing import Final, NamedTuple, TypeAlias

from ..callers import request_settings
from ..callers.client_address import parse_address, parse_network
from ..callers.keys import MISSING, plain
from ..callers.names import counted_key
from ..decision import Decision
from ..specs.override import ALL_LIMITS, LOGIN_SERIES, OVERRIDE_KINDS
from ..specs.rates import BLOCKED, NONE
from ..statistics import catalog

_BITS: Final = {4: 32, 6: 128}
_USER, _ADDRESS, _NETWORK, _KEY = OVERRIDE_KINDS


class Override(NamedTuple):
    """An override as decisions use it. `starts`, `ends`: epoch seconds, may be infinite. `pk`: of its row."""

    pk: int
    kind: str
    key: str
    limit: str
    rate: str
    starts: float
    ends: float

    @property
    def lifts(self) -> bool:
        """Whether there is no limit."""
        return self.rate == NONE

    @property
    def blocks(self) -> bool:
        """Whether all requests are refused."""
        return self.rate == BLOCKED

    @property
    def endless(self) -> bool:
        """Whether it has no end."""
        return self.ends == inf

    def refusal(self, limit: int, at: float) -> Decision:
        """Return the refusal at a time in epoch seconds. `limit`: the limit that the decision reports."""
        return Decision.refused(limit=limit, retry_after=self.ends - at)


ByLimit = dict[str, Override]

OverrideRow: TypeAlias = tuple[int, str, str, str, str, datetime | None, datetime | None]
"""The values of a row, as `current.COLUMNS` lists them."""


class OverrideSet:
    """All overrides that may apply now or later. `policies_only`: they apply only to policies."""

    __slots__ = ("_exact", "_limits", "_networks", "_policies_only", "size")

    def __init__(self, overrides: Iterable[Override], policies_only: bool) -> None:
        self._exact: dict[tuple[str, str], ByLimit] = {}
        networks: dict[tuple[int, int], dict[int, ByLimit]] = {}
        self._policies_only = policies_only
        self._limits: set[str] = set()
        self.size = 0
        for override in overrides:
            self.size += 1
            self._limits.add(override.limit)
            if override.kind == _NETWORK:
                network = parse_network(override.key)
                shift = _BITS[network.version] - network.prefixlen
                start = int(network.network_address) >> shift
                networks.setdefault((network.version, shift), {}).setdefault(start, {})[override.limit] = override
            else:
                for form in _forms(override):
                    self._exact.setdefault((override.kind, form), {})[override.limit] = override
        self._networks = {
            version: [
                (shift, networks[version, shift]) for of_version, shift in sorted(networks) if of_version == version
            ]
            for version in _BITS
        }

    def applies(self, series: str, key: str, roles: Sequence[str]) -> bool:
        """Return whether `find` would return an override now. Fast for limits that no override names."""
        limits = self._limits
        if series not in limits and ALL_LIMITS not in limits:
            return False
        return self.find(series, key, roles, time_ns() / 1e9) is not None

    def find(self, series: str, key: str, roles: Sequence[str], at: float) -> Override | None:
        """Return the override in force for a key of a limit at a time in epoch seconds, or None.

        `series`: the limit's name in the statistics. `roles`: see `resty_django.limits.callers.keys.RequestKey`. An
        override of this limit comes before one of all limits, then an override of a key before one of a user, an
        address, and a network, of which the smallest comes first.
        """
        return self.find_for(series, key, identifying_parts(key, roles), at)

    def find_for(self, series: str, key: str, parts: Iterable[tuple[str, str]], at: float) -> Override | None:
        """Run `find` for a key whose parts are known. `parts`: the kinds and values of those that identify a client."""
        if self._policies_only and catalog.kind_and_name(series)[0] != catalog.LimitKind.POLICY:
            return None
        candidates = list(self._candidates(key, parts))
        for limit in (series, ALL_LIMITS) if candidates else ():
            for by_limit in candidates:
                override = by_limit.get(limit)
                if override is not None and override.starts <= at < override.ends:
                    return override
        return None

    def of_key(self, keys: Iterable[str]) -> list[Override]:
        """Return the overrides of a key, in all limits and in force or not. `keys`: its forms, as limits store them.

        A text that is an address is also looked for in the networks.
        """
        matching: dict[Override, None] = {}
        for key in keys:
            for kind in (_USER, _ADDRESS, _KEY):
                matching |= dict.fromkeys(self._exact.get((kind, key), {}).values())
            matching |= dict.fromkeys(override for by_limit in self._containing(key) for override in by_limit.values())
        return list(matching)

    def _candidates(self, key: str, identifying: Iterable[tuple[str, str]]) -> Iterator[ByLimit]:
        exact = self._exact
        if (by_limit := exact.get((_KEY, key))) is not None:
            yield by_limit
        parts = [(kind, value) for kind, value in identifying if value != MISSING]
        for kind in (_KEY, _USER, _ADDRESS):
            for part_kind, value in parts:
                if part_kind == kind and (by_limit := exact.get((kind, value))) is not None:
                    yield by_limit
        for part_kind, value in parts:
            if part_kind == _ADDRESS:
                yield from self._containing(value)

    def _containing(self, name: str) -> Iterator[ByLimit]:
        """Yield the overrides of the networks that contain an address, the smallest network first."""
        address = _parsed(name)
        if address is not None:
            version, number = address
            for shift, starts in self._networks[version]:
                if (by_limit := starts.get(number >> shift)) is not None:
                    yield by_limit


def _forms(override: Override) -> Iterable[str]:
    """Return the forms in which keys of limits contain the key of an override."""
    if override.kind == _ADDRESS:
        return (request_settings.current().clients.name_of(parse_address(override.key)),)
    if override.kind == _USER:
        return (plain(override.key),)
    if override.limit in LOGIN_SERIES.values():
        return (counted_key(catalog.kind_and_name(override.limit)[1], override.key),)
    return {override.key, plain(override.key)}


def identifying_parts(key: str, roles: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the kinds and values of the parts of a key that identify a client."""
    values = key.split("|") if len(roles) > 1 else [key]
    if len(values) != len(roles):
        return
    for role, value in zip(roles, values, strict=True):
        if role == "choice":
            name, _, rest = value.partition(":")
            yield from _single(name, rest.partition(":")[2] if name == "header" else rest)
        else:
            yield from _single(role, value)


def _single(role: str, value: str) -> Iterator[tuple[str, str]]:
    if role == "user":
        yield _USER, value
    elif role == "ip":
        yield _ADDRESS, value
    elif role == "header":
        yield _KEY, value


@functools.lru_cache(4096)
def _parsed(name: str) -> tuple[int, int] | None:
    """Return the version and the number of the first address of a client's name, as `ClientResolver` makes it."""
    if ":" in name and "/" not in name:  # IPv6 clients are named by their network
        return None
    try:
        address = ip_interface(name).network.network_address
    except ValueError:
        return None
    return address.version, int(address)


def override_of(row: OverrideRow) -> Override:
    """Return the override of a row."""
    pk, kind, key, limit, rate, starts_at, ends_at = row
    starts = -inf if starts_at is None else starts_at.timestamp()
    ends = inf if ends_at is None else ends_at.timestamp()
    return Override(pk, kind, key, limit, rate, starts, ends)
