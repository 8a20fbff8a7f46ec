"""The bans of one key, for the search for a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from resty_django.admin.formatting import local_time
from resty_django.admin.statistics import KeyView, why
from resty_django.sansio import run
from resty_django.shdict import SharedDictError
from resty_django.text import printable

from ..bans import registry
from ..bans.registry import ALL_LIMITS, MAX_REASON_CHARACTERS, Ban
from ..callers.names import LOGIN_BANS
from ..login import guard
from ..overrides.override_set import Override
from ..policies import registry as policies
from ..specs.override import LOGIN_SERIES
from ..statistics import catalog
from ..statistics.reporter import stats
from .columns import MAX_SHOWN_CHARACTERS
from .key_forms import stored_forms
from .key_overrides import add_query


@dataclass(frozen=True, slots=True)
class KeyBans:
    """The bans of a key in force, those that end last first. `error`: the reason if they cannot be read."""

    in_force: Sequence[Ban] = ()
    error: str = ""

    def find(self, series: str, key: str) -> Ban | None:
        """Return the ban by which a limit refuses the key, or None."""
        name = catalog.kind_and_name(series)[1]
        for ban in self.in_force:
            if ban.key == key and (_is_of(name, ban.limit) or (ban.limit == ALL_LIMITS and _bans_keys(series))):
                return ban
        return None


def _is_of(name: str, limit: str) -> bool:
    """Return whether a name in the statistics is of the limit with this name: "search:req" is of "search"."""
    return name == limit or (bool(limit) and name.startswith(f"{limit}:"))


def _bans_keys(series: str) -> bool:
    """Return whether a limit has the option `ban`."""
    kind, name = catalog.kind_and_name(series)
    if kind == catalog.LimitKind.POLICY:
        policy = policies.get_policy(series)
        return policy is not None and policy.ban is not None
    return any(
        counted_kind == catalog.LimitKind.BAN and _is_of(name, counted_name)
        for counted_kind, counted_name in map(catalog.kind_and_name, (*catalog.counted_limits(), *stats.names()))
    )


@dataclass(frozen=True, slots=True)
class KeyBanned:
    """A ban in force. `limit`: "" for all limits. `token`: identifies it in URLs; "" if its key is too long.

    `override`, `add_query`: as for `KeyQuota`, for bans of the login guard.
    """

    token: str
    limit: str
    key: str
    until: datetime
    number: int
    reason: str
    override: Override | None
    add_query: str

    @classmethod
    def of(cls, ban: Ban) -> Self:
        setting = next((setting for setting, name in LOGIN_BANS.items() if name == ban.limit), None)
        parts = () if setting is None else guard.identifying_parts(setting, ban.key)
        kind, key = parts[0] if setting == "address" else ("key", ban.key)
        kind = "network" if kind == "address" and "/" in key else kind
        return cls(
            token=KeyView.of(ban.name).token,
            limit=printable(ban.limit, MAX_SHOWN_CHARACTERS),
            key=KeyView.of(ban.key).text,
            until=local_time(ban.until),
            number=ban.number,
            reason=printable(ban.reason, MAX_REASON_CHARACTERS),
            override=None if setting is None else run(guard.overriding(setting, ban.key)),
            add_query="" if setting is None else add_query(LOGIN_SERIES[setting], kind, key),
        )


def bans_of(key: str, refused: Sequence[tuple[str, str]]) -> KeyBans:
    """Return the bans of a key in force, found by exact names.

    `refused`: the names of series and the keys of stored refusals, which also find keys that contain the key.
    """
    forms = stored_forms(key)
    composed = ((catalog.kind_and_name(series), refused_key) for series, refused_key in refused)
    try:
        names = dict.fromkeys(
            [
                *((limit, form) for limit in _limits_with_bans() for form in forms),
                *((limit, refused_key) for (kind, limit), refused_key in composed if kind == catalog.LimitKind.BAN),
            ]
        )
        in_force = registry.in_force(names)
    except SharedDictError as fault:
        return KeyBans(error=why(fault))
    return KeyBans(sorted(in_force, key=lambda ban: (-ban.until, ban.limit, ban.key)))


def _limits_with_bans() -> list[str]:
    """Return the names of limits that may have bans: also those that other processes have counted."""
    series = dict.fromkeys((*catalog.counted_limits(), *stats.names()))
    counted = (name for kind, name in map(catalog.kind_and_name, series) if kind == catalog.LimitKind.BAN)
    return list(dict.fromkeys((ALL_LIMITS, *LOGIN_BANS.values(), *policies.all_policies(), *counted)))
