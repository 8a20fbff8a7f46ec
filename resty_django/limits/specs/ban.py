"""Rules of bans: when a key is banned, and for how long. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from resty_django.text.durations import Duration, parse_duration

DAY_SECONDS: Final = 86_400.0


class BanOptions(TypedDict, total=False):
    """Options of limits that ban keys."""

    ban: Duration
    """The length of the first ban of a key, for example "15m" (default: keys are not banned)."""
    ban_after: int
    """The number of refusals that cause a ban (default: 1)."""
    ban_within: Duration
    """The time in which they are counted, from the first one (default: the length of the ban)."""
    max_ban: Duration
    """The maximum length of a ban (default: one day, or `ban` if it is longer)."""
    ban_memory: Duration
    """The time after the end of a ban in which another one counts as repeated (default: one day)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BanRule:
    """When a key is banned, and for how long.

    `ban`: seconds of the first ban. `after`: the number of refusals or failures that cause a ban, `within` seconds from
    the first one. `longest`: the maximum seconds of a ban. `memory`: seconds after a ban in which another one is
    longer.
    """

    ban: float
    after: int = 1
    within: float
    longest: float = DAY_SECONDS
    memory: float = DAY_SECONDS

    def length(self, number: int) -> float:
        """Return the seconds of the ban with this number, from 1: `ban` * 2**(number - 1), at most `longest`."""
        doublings = min(number - 1, 60)  # keeps the number finite
        return min(self.ban * 2.0**doublings, self.longest)


def ban_rule(options: Mapping[str, Any], title: str) -> BanRule | None:
    """Return the rule in the options of a limit, or None if it bans no key.

    `title`: the limit in error messages. Raise `TypeError` or `ValueError` for options that are not valid.
    """
    if options.get("ban") is None:
        for name in BanOptions.__annotations__:
            if options.get(name) is not None:
                raise TypeError(f'{title}: {name}= needs ban=, such as ban="15m".')
        return None
    seconds = {
        name: _positive(options[name], name, title)
        for name in ("ban", "ban_within", "max_ban", "ban_memory")
        if options.get(name) is not None
    }
    after = options.get("ban_after", 1)
    if type(after) is not int or after < 1:
        raise ValueError(f"{title}: ban_after must be a whole number of at least 1, not {after!r}.")
    ban = seconds["ban"]
    longest = seconds.get("max_ban", max(DAY_SECONDS, ban))
    if longest < ban:
        raise ValueError(f"{title}: max_ban must not be shorter than ban.")
    return BanRule(
        ban=ban,
        after=after,
        within=seconds.get("ban_within", ban),
        longest=longest,
        memory=seconds.get("ban_memory", DAY_SECONDS),
    )


def _positive(value: Duration, name: str, title: str) -> float:
    seconds = parse_duration(value)
    if not seconds > 0:
        raise ValueError(f"{title}: {name} must be longer than 0, not {value!r}.")
    return seconds
