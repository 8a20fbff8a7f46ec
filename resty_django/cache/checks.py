"""System checks of the caches in `CACHES` that use this package's backend.

Checks:
    resty_cache.E001: A cache with this package's backend has a `LOCATION` that is not a shared dictionary, or invalid
        `OPTIONS`. The message names the fault.
    resty_cache.E002: Two such caches have the same `LOCATION` and different `OPTIONS`. Use the same ones, or separate
        dictionaries.
    resty_cache.W001: The dictionary of a cache is also used for something else, although `clear()` empties it. Use a
        separate dictionary.
    resty_cache.W002: A cache that finds nothing while its store is down is the only store of the sessions. Set its
        `ON_ERROR` to `"raise"`, or use the engine `cached_db`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from resty_django.address import see
from resty_django.conf import all_problems, conf

from .backend_options import BACKEND, BackendOptions, common_options, faults, timeout_faults

SESSIONS: Final = "django.contrib.sessions.backends.cache"
HINT: Final = see("docs/reference/cache/backend.md").strip() or None


def check_backends(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return one message per problem. Problems of `RESTY_DJANGO` itself are reported elsewhere."""
    if all_problems():
        return []
    options_by_location: dict[object, BackendOptions] = {}
    messages: list[CheckMessage] = []
    for alias, config in settings.CACHES.items():
        if config.get("BACKEND") != BACKEND:
            continue
        location, arguments = config.get("LOCATION", ""), config.get("OPTIONS") or {}
        errors = [
            Error(f"CACHES[{alias!r}]: {fault}", hint=HINT, id="resty_cache.E001")
            for fault in (*faults(location, arguments), *timeout_faults(config.get("TIMEOUT")))
        ]
        messages += errors
        if not errors:
            options = common_options(arguments)
            if options_by_location.setdefault(location, options) != options:
                messages.append(_differs(alias, location))
            messages += _shared(alias, location)
            messages += _sessions(alias, options)
    return messages


def _differs(alias: str, location: str) -> Error:
    return Error(
        f"CACHES[{alias!r}] has the same LOCATION {location!r} as another cache, but different OPTIONS.",
        hint=f"Set the same LRU_SIZE and LRU_TTL for both, or use separate dictionaries. {HINT}",
        id="resty_cache.E002",
    )


def _shared(alias: str, location: str) -> Iterator[CheckMessage]:
    users = _users()
    if location in users:
        yield Warning(
            f"CACHES[{alias!r}] has the LOCATION {location!r}, which is also used by {users[location]}. The "
            "cache's clear() would empty it.",
            hint=f"Use a separate dictionary for the cache. {HINT}",
            id="resty_cache.W001",
        )


def _sessions(alias: str, options: BackendOptions) -> Iterator[CheckMessage]:
    if settings.SESSION_ENGINE == SESSIONS and alias == settings.SESSION_CACHE_ALIAS and options.on_error == "miss":
        yield Warning(
            f"CACHES[{alias!r}] stores the sessions. While its store is down, they are not found, so an outage would "
            "log all users out.",
            hint=f'Set its option ON_ERROR to "raise", or SESSION_ENGINE to "{SESSIONS}d_db". {HINT}',
            id="resty_cache.W002",
        )


def _users() -> Mapping[str, str]:
    """Return the dictionaries that contain data to be kept, each with its user."""
    users = {"default": "everything without a configured dictionary", conf.events.dict: "EVENTS"}
    for name, cache in conf.caches.items():
        for dictionary in (cache.shm, cache.shm_miss, cache.shm_locks, cache.shm_stats):
            if dictionary is not None:
                users.setdefault(dictionary, f"the cache {name!r} of RESTY_DJANGO")
    return users
