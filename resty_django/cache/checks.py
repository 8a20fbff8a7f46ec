"""System checks of the caches in `CACHES` whose backend is ours.

| id | meaning |
|---|---|
| `resty_cache.E001` | a LOCATION that is no shared dictionary, or OPTIONS that are wrong |
| `resty_cache.E002` | caches of one LOCATION with different OPTIONS |
| `resty_cache.W001` | a LOCATION that others use too, though `clear()` empties it |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from resty_django.conf import all_problems, conf

from .backend_options import BACKEND, Options, faults

HINT: Final = "See docs/cache-backend.md."


def check_backends(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """One message a problem; none where `RESTY_DJANGO` itself is wrong, which is reported elsewhere."""
    if all_problems():
        return []
    seen: dict[object, Options] = {}
    messages: list[CheckMessage] = []
    for alias, one in settings.CACHES.items():
        if one.get("BACKEND") != BACKEND:
            continue
        location, given = one.get("LOCATION", ""), one.get("OPTIONS") or {}
        found: list[CheckMessage] = [
            Error(f"CACHES[{alias!r}]: {fault}", hint=HINT, id="resty_cache.E001") for fault in faults(location, given)
        ]
        if not found:
            options = Options(**{name.lower(): value for name, value in given.items()})
            if seen.setdefault(location, options) != options:
                found.append(_differs(alias, location))
            found += _shared(alias, location)
        messages += found
    return messages


def _differs(alias: str, location: str) -> Error:
    return Error(
        f"CACHES[{alias!r}] has the LOCATION {location!r} of another cache, and other OPTIONS.",
        hint=f"Give both the same LRU_SIZE, LRU_TTL and IPC_SHM, or a dictionary each. {HINT}",
        id="resty_cache.E002",
    )


def _shared(alias: str, location: str) -> Iterator[CheckMessage]:
    users = _users()
    if location in users:
        yield Warning(
            f"CACHES[{alias!r}] has the LOCATION {location!r}, which {users[location]} uses as well: "
            "clear() of the cache empties it.",
            hint=f"Give the cache a dictionary of its own. {HINT}",
            id="resty_cache.W001",
        )


def _users() -> Mapping[str, str]:
    """Who needs a dictionary to keep what is in it."""
    found = {"default": "everything that names no other dictionary", conf.events.dict: "EVENTS"}
    for name, one in conf.caches.items():
        for dictionary in (one.shm, one.shm_miss, one.shm_locks, one.shm_stats, one.ipc_shm):
            if dictionary is not None:
                found.setdefault(dictionary, f"the cache {name!r} of RESTY_DJANGO")
    return found


__all__ = ["check_backends"]
