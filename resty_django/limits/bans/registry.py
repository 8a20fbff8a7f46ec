"""The stored bans: find, add, list and lift them.

They are in a shared dictionary, so all processes that share it apply the same bans. They are written with `safe_set`,
which evicts nothing: if the dictionary is full, a new ban is not stored, and this is logged and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from time import time_ns
from typing import Any, Final, NamedTuple

from resty_django.conf import conf
from resty_django.sansio import Step, Steps, arun, run
from resty_django.shdict import NoMemory, SharedDictError, shdicts
from resty_django.text import logger
from resty_django.text.durations import Duration, parse_duration

from ..callers.names import counted_key
from ..specs.ban import BanRule
from ..stores import STORES
from ..stores.circuit_breaker import CircuitBreaker

log = logger("resty_django.limits")

ALL_LIMITS: Final = ""
"""The `limit` of a ban that applies to every limit with bans, and to log-ins."""
BAN_PREFIX: Final = "ban:"
"""The names of bans in the dictionary begin with this."""
NOT_STORED_KEY: Final = "bans:not-stored"
"""The key in the dictionary for limits with the count of bans that were not stored for lack of space."""
BANS_PER_READ: Final = 500
MAX_REASON_CHARACTERS: Final = 200


class Ban(NamedTuple):
    """A ban of a key by a limit.

    `limit`: the name of the limit, or "" for all limits with bans. `since`, `until`: epoch seconds. `number`: the count
    of bans of this key, including this one, each within the memory of the one before it. `reason`: for operators.
    """

    limit: str
    key: str
    since: float
    until: float
    number: int
    reason: str

    @property
    def name(self) -> str:
        """The name in the dictionary."""
        return name_of(self.limit, self.key)


def name_of(limit: str, key: str) -> str:
    """Return the name of a ban in the dictionary: one for all spellings of a user's name.

    The length keeps names of different limits apart.
    """
    return f"{BAN_PREFIX}{len(limit)}:{limit}:{counted_key(limit, key)}"


def dictionary() -> Any:
    """Return the dictionary with the bans."""
    return shdicts[conf.limits.ban_store]


def breaker() -> CircuitBreaker:
    """Return the circuit breaker of the dictionary with the bans."""
    return STORES[conf.limits.ban_store].breaker


def now() -> float:
    """Return epoch seconds."""
    return time_ns() / 1e9


def finding(limit: str, key: str, at: float) -> Steps[Ban | None]:
    """Find the ban of a key in force: by this limit or by all, whichever ends later. Raise `SharedDictError`."""
    bans, by_limit, by_all = dictionary(), name_of(limit, key), name_of(ALL_LIMITS, key)
    if STORES[conf.limits.ban_store].waits:  # one call over the network
        values = (yield Step(bans.get_many, bans.aget_many, ([by_limit, by_all],))).values()
    else:
        values = bans.get(by_limit), bans.get(by_all)
    in_force = None
    for value in values:
        ban = _ban(value)
        if ban is not None and ban.until > at and (in_force is None or ban.until > in_force.until):
            in_force = ban
    return in_force


def find(key: str, limit: str = ALL_LIMITS) -> Ban | None:
    """Return the ban in force for a key and the limit with this name, or None. Raise `SharedDictError`."""
    return run(finding(limit, key, now()))


async def afind(key: str, limit: str = ALL_LIMITS) -> Ban | None:
    """Run `find` without blocking the event loop."""
    return await arun(finding(limit, key, now()))


def banning(limit: str, key: str, rule: BanRule, at: float, reason: str) -> Steps[Ban | None]:
    """Ban a key, for longer if it was banned before. Return None if it is banned already, or there is no space.

    Raise `SharedDictError`.
    """
    bans, name = dictionary(), name_of(limit, key)
    before = _ban((yield Step(bans.get, bans.aget, (name,))))
    if before is not None and before.until > at:
        return None
    number = 1 if before is None or before.until + rule.memory <= at else before.number + 1
    length = rule.length(number)
    ban = Ban(limit, key, at, at + length, number, reason)
    if not (yield from _storing(ban, length + rule.memory)):
        return None
    log.warning("banned %s by %s for %g s (ban number %d): %s", key, limit, length, number, reason)
    return ban


def adding(key: str, for_: Duration, reason: str, limit: str) -> Steps[Ban]:
    if not isinstance(key, str) or not key:
        raise ValueError(f"key of a ban must be a string that is not empty, not {key!r}.")
    if len(key) > 1000:
        raise ValueError(f"key of a ban must have at most 1000 characters, not {len(key)}.")
    if len(reason) > MAX_REASON_CHARACTERS:
        raise ValueError(f"reason of a ban must have at most {MAX_REASON_CHARACTERS} characters, not {len(reason)}.")
    length = parse_duration(for_)
    if not length > 0:
        raise ValueError(f"for_ of a ban must be longer than 0, not {for_!r}.")
    bans, at = dictionary(), now()
    before = _ban((yield Step(bans.get, bans.aget, (name_of(limit, key),))))
    ban = Ban(limit, key, at, at + length, 1 if before is None else before.number + 1, reason)
    if not (yield from _storing(ban, length)):
        raise NoMemory(f"The ban was not stored: the shared dictionary {bans.name!r} is full. Increase its SIZE.")
    return ban


def add(key: str, for_: Duration, reason: str = "", limit: str = ALL_LIMITS) -> Ban:
    """Ban a key for a time such as "1h" or a number of seconds, and return the ban.

    `key`: as in the log and in the signal `request_refused`, for example "192.0.2.7". `limit`: the name of the limit
    (default: all limits with bans). An existing ban is replaced. Raise `ValueError` for an invalid argument, `NoMemory`
    if the dictionary is full, and other `SharedDictError`s if it cannot be used.
    """
    return run(adding(key, for_, reason, limit))


async def aadd(key: str, for_: Duration, reason: str = "", limit: str = ALL_LIMITS) -> Ban:
    """Run `add` without blocking the event loop."""
    return await arun(adding(key, for_, reason, limit))


def read(name: str) -> Ban | None:
    """Return the stored ban with this name in the dictionary, or None. Raise `SharedDictError`."""
    return _ban(dictionary().get(name)) if name.startswith(BAN_PREFIX) else None


def lift(key: str, limit: str | None = None) -> int:
    """End the bans of a key, and forget earlier ones. Return the number of bans that were in force.

    `limit`: the name of the limit, "" for a ban by all limits (default: every ban of the key, which reads all bans).
    Raise `SharedDictError`.
    """
    at = now()
    bans = [ban for ban in _stored() if ban.name == name_of(ban.limit, key)] if limit is None else []
    if limit is not None:
        ban = _ban(dictionary().get(name_of(limit, key)))
        bans = [] if ban is None else [ban]
    return sum(dictionary().delete(ban.name) and ban.until > at for ban in bans)


def in_force(names: Iterable[tuple[str, str]]) -> list[Ban]:
    """Return the bans in force among these pairs of limit and key. Raise `SharedDictError`."""
    at, bans, stored = now(), dictionary(), []
    own_names = [name_of(limit, key) for limit, key in names]
    for start in range(0, len(own_names), BANS_PER_READ):
        values = bans.get_many(own_names[start : start + BANS_PER_READ], on_error=_ignored)
        stored += [ban for value in values.values() if (ban := _ban(value)) is not None]
    return [ban for ban in stored if ban.until > at]


def current_bans() -> list[Ban]:
    """Return the bans in force, the most recent first. Raise `SharedDictError`."""
    at = now()
    return sorted((ban for ban in _stored() if ban.until > at), key=lambda ban: -ban.since)


def count_not_stored() -> int:
    """Return the count of bans that were not stored for lack of space. Raise `SharedDictError`."""
    count = shdicts[conf.limits.store].get(NOT_STORED_KEY, 0)
    return count if isinstance(count, int) else 0


def _stored() -> Iterator[Ban]:
    """Yield all stored bans, also those that have ended but are remembered."""
    bans = dictionary()
    for name in dict.fromkeys(bans.iter_keys(f"{BAN_PREFIX}*")):
        with suppress(SharedDictError):  # the key holds data of another kind
            ban = _ban(bans.get(name))
            if ban is not None:
                yield ban


def _storing(ban: Ban, ttl: float) -> Steps[bool]:
    """Store a ban without evicting others. If there is no space, log and count it, and return False."""
    bans = dictionary()
    try:
        yield Step(bans.safe_set, bans.asafe_set, (ban.name, list(ban), ttl))
    except NoMemory:
        log.error(
            "The shared dictionary %r is full: %s was not banned by %s. Increase its SIZE, or lift bans.",
            *(bans.name, ban.key, ban.limit or "all limits"),
        )
        counts = shdicts[conf.limits.store]
        with suppress(SharedDictError):
            yield Step(counts.incr, counts.aincr, (NOT_STORED_KEY, 1, 0))
        return False
    return True


def _ignored(name: Any, error: SharedDictError) -> None:
    """Treat data of another kind as no ban."""


def _ban(value: Any) -> Ban | None:
    """Return a stored ban, or None for other data."""
    return Ban(*value) if isinstance(value, list) and len(value) == len(Ban._fields) else None
