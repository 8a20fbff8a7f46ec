"""The limits of this process whose decisions are counted, with their locations in the code.

Each limit is counted under the name of its series: a policy under its name, any other limit under
`<kind>:<name>`, for example `decorator:shop.views.search:req`. The name of a policy never contains a colon.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ..limiters.base import Limiter

V = TypeVar("V")

MAX_PARTS: Final = 8
"""The maximum number of locations of a limit, and of limiters with different states, for example one for each tier."""
MAX_SERIES_CHARS: Final = 150
MAX_PART_CHARS: Final = 200
"""The maximum length of a location, and of the description of a rate."""


class LimitKind(StrEnum):
    """The kinds of limits whose decisions are counted."""

    POLICY = "policy"
    DECORATOR = "decorator"
    THROTTLE = "throttle"
    FUNCTION = "function"
    JOB = "job"
    QUOTA = "quota"
    BAN = "ban"


class DescribedLimit(Protocol):
    """A limiter, a quota or a rule of bans."""

    @property
    def prefix(self) -> str: ...
    def describe(self) -> str: ...


class Description(NamedTuple):
    """A limit for its readers: its rates in words, and its locations in the code."""

    rates: tuple[str, ...] = ()
    locations: tuple[str, ...] = ()

    @classmethod
    def read(cls, stored: object) -> Description:
        """Return a stored description; malformed parts are left out."""
        parts = stored if isinstance(stored, list) and len(stored) == 2 else ((), ())
        rates, locations = (
            tuple(text for text in part if isinstance(text, str)) if isinstance(part, list) else () for part in parts
        )
        return cls(rates[:MAX_PARTS], locations[:MAX_PARTS])


class CountedLimit:
    """A limit in the catalog. `series`: the name under which it is counted. `locations`: dotted names in the code.

    `described`: its limiters, or the quota or the rule of bans, by prefix. `limiters`: only the limiters, whose states
    can be read. `roles`: of the parts of its keys, see `resty_django.limits.callers.keys.RequestKey`; empty if its keys
    are any texts. `enforced`: whether it refuses requests anywhere.
    """

    __slots__ = ("described", "enforced", "limiters", "locations", "roles", "series")

    def __init__(self, series: str) -> None:
        self.roles: tuple[str, ...] = ()
        self.enforced = False
        self.series = series
        self.locations: dict[str, None] = {}
        self.described: dict[str, DescribedLimit] = {}
        self.limiters: dict[str, Limiter] = {}

    def add(self, limiter: DescribedLimit, location: str) -> None:
        """Add a limiter, quota or rule that is used at `location`; the oldest ones are dropped."""
        if location:
            self.locations = _with(self.locations, location[:MAX_PART_CHARS], None)
        self.described = _with(self.described, limiter.prefix, limiter)
        if isinstance(limiter, Limiter):
            self.limiters = _with(self.limiters, limiter.prefix, limiter)

    def describe(self) -> Description:
        """Return the rates in words, and the locations."""
        rates = dict.fromkeys(limiter.describe()[:MAX_PART_CHARS] for limiter in self.described.values())
        return Description(tuple(rates), tuple(self.locations))


limits_by_user: Final[dict[str, None]] = {}
"""The locations in the code of limits whose key or exemption needs the user of a request, for the system check."""
_limits: dict[str, CountedLimit] = {}
_finders: dict[str, Callable[[str], Iterable[Any]]] = {}
_lock: Final = threading.Lock()


def series_name(kind: str, name: str) -> str:
    """Return the name of a series, of at most `MAX_SERIES_CHARS` characters; the end of a longer one is hashed."""
    series = name if kind == LimitKind.POLICY else f"{kind}:{name}"
    if len(series) <= MAX_SERIES_CHARS:
        return series
    digest = hashlib.blake2b(series.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{series[: MAX_SERIES_CHARS - 14]}…:{digest}"


def kind_and_name(series: str) -> tuple[LimitKind, str]:
    """Return the kind and the name of the limit that is counted under `series`."""
    kind, colon, name = series.partition(":")
    if colon and kind in list(LimitKind):
        return LimitKind(kind), name
    return LimitKind.POLICY, series


def add_limit(
    kind: str, name: str, limiter: DescribedLimit, location: str, roles: tuple[str, ...] = (), enforced: bool = True
) -> str:
    """Add a limiter, a quota or a rule of bans to the catalog. Return the name of its series.

    `name`: limits with the same kind and name are counted together. `location`: a dotted name in the code. `roles`,
    `enforced`: see `CountedLimit`.
    """
    series = series_name(kind, name)
    with _lock:
        limit = _limits.get(series)
        if limit is None and len(_limits) < 500:  # names that views make up must not fill the memory
            limit = _limits[series] = CountedLimit(series)
        if limit is not None:
            limit.add(limiter, location)
            limit.roles = roles
            limit.enforced = limit.enforced or enforced
    return series


def counted_limits() -> dict[str, CountedLimit]:
    """Return the limits that this process has declared, by series; without policies."""
    return dict(_limits)


def counted_limit(series: str) -> CountedLimit | None:
    """Return a limit that this process has declared, or None. Policies are not listed."""
    return _limits.get(series)


def register_finder(kind: str, find: Callable[[str], Iterable[Any]]) -> None:
    """Register the function that returns the limiters of a limit of this kind, which this catalog does not list."""
    _finders[kind] = find


def known_limiters(series: str) -> Iterable[Any]:
    """Return the limiters of a limit that this process has loaded."""
    kind, name = kind_and_name(series)
    if kind in _finders:
        return _finders[kind](name)
    limit = counted_limit(series)
    return () if limit is None else tuple(limit.limiters.values())


def _with(parts: dict[str, V], key: str, value: V) -> dict[str, V]:
    """Return the parts with another one, without the oldest if there are too many. Readers keep the former dict."""
    added = {**parts, key: value}
    while len(added) > MAX_PARTS:
        del added[next(iter(added))]
    return added
