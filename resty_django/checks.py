"""System checks of the settings: everything that `RESTY_DJANGO` has wrong, with an id, a hint and a place to read.

| id | meaning |
|---|---|
| `resty_django.E001` | a key that is not a setting |
| `resty_django.E002` | a value of the wrong type |
| `resty_django.E003` | a value out of its bounds, or one that does not fit another |
| `resty_django.E004` | a part is set whose package is not installed |
| `resty_django.E005` | an app of this package is installed without the core app `resty_django` |
| `resty_django.W001` | a section is set whose app is not in `INSTALLED_APPS` |
| `resty_django.W002` | a signing key of the UDP server is short enough to be guessed |
| `resty_django.W003` | the UDP server is open to other hosts without a key or a list of networks |
| `resty_django.W005` | a cache on Redis has no socket timeout |
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from resty_django.address import documentation
from resty_django.conf import SECTIONS, all_problems, conf, raw_section
from resty_django.conf.schema import Kind, anchor, key_text

IDS: Final[dict[Kind, str]] = {
    "unknown": "resty_django.E001",
    "type": "resty_django.E002",
    "value": "resty_django.E003",
    "missing": "resty_django.E004",
}
CORE: Final = "resty_django"
SHORTEST_KEY: Final = 16
WITHOUT_REDIS: Final = (
    *(f"django.core.cache.backends.{name}." for name in ("db", "dummy", "filebased", "locmem", "memcached")),
    "resty_django.cache.",
)
"""What the BACKEND of caches begins with that are not on Redis."""


def check_core(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Return whether the core app is there; each of our other apps registers this check."""
    if apps.is_installed(CORE):
        return []
    return [
        Error(
            f"{config.name} is in INSTALLED_APPS, but {CORE}, which it stands on, is not.",
            hint=f'Add "{CORE}" to INSTALLED_APPS, or everything by resty_django.ALL_APPS. See {anchor(())}.',
            id="resty_django.E005",
        )
        for config in apps.get_app_configs()
        if config.name.startswith(f"{CORE}.")
    ]


def check_settings(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Return one message a problem; an empty list when the settings are right."""
    problems = all_problems()
    messages: list[CheckMessage] = [
        Error(problem.message, hint=f"See {problem.anchor}.", id=IDS[problem.kind]) for problem in problems
    ]
    messages += _sections_without_app()
    if not problems:
        messages += _short_keys()
        messages += _open_host()
    return messages


def check_caches(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Return whether the caches on Redis give up waiting for a server that does not answer."""
    if all(str(cache.get("BACKEND")).startswith(WITHOUT_REDIS) for cache in settings.CACHES.values()):
        return []  # nothing to ask redis-py, whose import takes long
    try:
        from resty_django.redis.timeouts import SECONDS, aliases_without
    except ImportError:  # a site without redis-py or django-redis
        return []
    return [
        Warning(
            f"The cache {alias!r} in CACHES has no socket timeout, so calls wait forever for a server that went away.",
            hint=(
                f"Set SOCKET_TIMEOUT and SOCKET_CONNECT_TIMEOUT in its OPTIONS. Where resty_django uses this cache, it "
                f"gives the connections {SECONDS:g} s. See {documentation('docs/redis.md')}."
            ),
            id="resty_django.W005",
        )
        for alias in aliases_without()
    ]


def _sections_without_app() -> list[CheckMessage]:
    return [
        Warning(
            f"{key_text((key,))} has no effect, because {entry.app} is not in INSTALLED_APPS.",
            hint=f'Add "{entry.app}" to INSTALLED_APPS, or take the section away. See {anchor((key,))}.',
            id="resty_django.W001",
        )
        for key, entry in SECTIONS.items()
        if raw_section(key) and not apps.is_installed(entry.app)
    ]


def _short_keys() -> list[CheckMessage]:
    if all(len(key.encode()) >= SHORTEST_KEY for key in conf.ids.udp.keys):
        return []
    return [
        Warning(
            f"{key_text(('IDS', 'UDP', 'KEYS'))} holds a key of less than {SHORTEST_KEY} bytes.",
            hint=f"Use secrets.token_hex(16) to make one. See {anchor(('IDS', 'UDP', 'KEYS'))}.",
            id="resty_django.W002",
        )
    ]


def _open_host() -> list[CheckMessage]:
    udp = conf.ids.udp
    if udp.keys or udp.networks or is_loopback(udp.host):
        return []
    path = ("IDS", "UDP", "HOST")
    return [
        Warning(
            f"{key_text(path)} is {udp.host!r}, which other hosts can reach, and neither KEYS nor NETWORKS is set.",
            hint=f"Set KEYS or NETWORKS, or HOST to 127.0.0.1. See {anchor(path)}.",
            id="resty_django.W003",
        )
    ]


def is_loopback(host: str) -> bool:
    """Return whether a server that is bound to `host` can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
