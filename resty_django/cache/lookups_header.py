"""The members of `Cache-Status` (RFC 9211) for the lookups of a request, if the setting `LOOKUPS` asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from django.http import HttpResponseBase

from .decorators.cache_status import HEADER, identifier_of
from .statistics.key_recording import record_keys
from .statistics.recording import OTHERS, Lookups, recorded_lookups, switch

MAX_BYTES: Final = 2000
"""Maximum length of all members together."""
RESERVED: Final = 200
"""Of it, bytes for the member that sums up the others."""
LONGEST_KEY: Final = 100
"""Maximum length of a key in characters; longer keys are shortened."""
OTHER_CACHES: Final = "resty"
"""Identifier of the sum of the others. The identifiers of caches have a hyphen after it."""
WORDS: Final = {"l1": "L1", "l2": "L2", "stale": "stale", "l3": "source", "misses": "none", "errors": "error"}
"""The words for the counts, in their order."""
FORWARDED: Final = ("l3", "misses", "errors")
"""Counts of lookups without a value in the cache."""
_ADDED: Final = "_resty_cache_lookups"


@contextmanager
def recording(mode: str) -> Iterator[Lookups]:
    """Record the lookups of a request. `mode`: the setting, "hits" or "keys"."""
    switch(True)
    record_keys(mode == "keys")
    with recorded_lookups() as lookups:
        yield lookups


def add_lookups(response: HttpResponseBase, lookups: Lookups, mode: str) -> None:
    """Append the members for the lookups to the header, behind existing members."""
    previous: str = response.get(HEADER, "")
    added: str = getattr(response, _ADDED, "")
    if added and previous.endswith(added):  # a response object that the view returns again
        previous = previous[: -len(added)].removesuffix(", ")
    text = ", ".join(_members(lookups, mode == "keys"))
    if text:
        response[HEADER] = f"{previous}, {text}" if previous else text
    elif previous:
        response[HEADER] = previous
    elif added:
        del response[HEADER]
    setattr(response, _ADDED, text)


def _members(lookups: Lookups, with_keys: bool) -> Iterator[str]:
    """Yield one member for each cache, or for each key; the last one sums up those that exceed the length."""
    counts = lookups.all()
    if not with_keys:
        counts = _by_cache(counts)
    others = counts.pop(OTHERS, {})
    room = MAX_BYTES - RESERVED
    for (name, key), levels in counts.items():
        parameter = "" if key is None else f"; key={_key(key)}"
        member = f"{identifier_of(name)}; {_handling(levels)}{parameter}; detail={_detail(levels)}"
        room -= len(member) + 2
        if room < 0:
            room = 0
            others = _sum(others, levels)
        else:
            yield member
    if others:
        yield f"{OTHER_CACHES}; {_handling(others)}; detail={_detail(others, 'others: ')}"


def _by_cache(counts: Mapping[tuple[str, str | None], dict[str, int]]) -> dict[tuple[str, str | None], dict[str, int]]:
    """Return the counts without keys, which a request has if the setting has just changed."""
    caches: dict[tuple[str, str | None], dict[str, int]] = {}
    for (name, _), levels in counts.items():
        caches[name, None] = _sum(caches.get((name, None), {}), levels)
    return caches


def _sum(levels: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {level: levels.get(level, 0) + more.get(level, 0) for level in {**levels, **more}}


def _handling(levels: Mapping[str, int]) -> str:
    return "fwd=miss" if any(levels.get(level) for level in FORWARDED) else "hit"


def _detail(levels: Mapping[str, int], prefix: str = "") -> str:
    counts = ", ".join(f"{word} {levels[level]}" for level, word in WORDS.items() if levels.get(level))
    return f'"{prefix}{counts}"'


def _key(key: str) -> str:
    """Return a key as a string of RFC 8941: printable ASCII, everything else as an escape sequence of Python."""
    text = key[: LONGEST_KEY + 1].encode("unicode_escape").decode("ascii")
    if len(text) > LONGEST_KEY:
        text = text[: LONGEST_KEY - 3] + "..."
    return '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'
