"""System checks of the caches in `CACHES` that use this package's backend.

| id | meaning |
|---|---|
| `resty_cache.E001` | a LOCATION that is not a shared dictionary, or wrong OPTIONS |
| `resty_cache.E002` | caches of one LOCATION with different OPTIONS |
| `resty_cache.W001` | a LOCATION that is used for something else too, though `clear()` empties it |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from resty_django.address import see
from resty_django.conf import all_problems, conf

from .backend.options import BACKEND, Options, faults

HINT: Final = see("docs/cache-backend.md").strip() or None


def check_backends(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """One message for each problem; none where `RESTY_DJANGO` itself is wrong, which is reported elsewhere."""
    if all_problems():
        return []
    options_by_location: dict[object, Options] = {}
    messages: list[CheckMessage] = []
    for alias, config in settings.CACHES.items():
        if config.get("BACKEND") != BACKEND:
            continue
        location, arguments = config.get("LOCATION", ""), config.get("OPTIONS") or {}
        errors = [
            Error(f"CACHES[{alias!r}]: {fault}", hint=HINT, id="resty_cache.E001")
            for fault in faults(location, arguments)
        ]
        messages += errors
        if not errors:
            options = Options(**{name.lower(): value for name, value in arguments.items()})
            if options_by_location.setdefault(location, options) != options:
                messages.append(_differs(alias, location))
            messages += _shared(alias, location)
    return messages


def _differs(alias: str, location: str) -> Error:
    return Error(
        f"CACHES[{alias!r}] has the LOCATION {location!r} of another cache, and other OPTIONS.",
        hint=f"Give both the same LRU_SIZE and LRU_TTL, or a dictionary each. {HINT}",
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
    """Return the dictionaries whose items must be kept, each with its user."""
    users = {"default": "everything that names no other dictionary", conf.events.dict: "EVENTS"}
    for name, cache in conf.caches.items():
        for dictionary in (cache.shm, cache.shm_miss, cache.shm_locks, cache.shm_stats):
            if dictionary is not None:
                users.setdefault(dictionary, f"the cache {name!r} of RESTY_DJANGO")
    return users
