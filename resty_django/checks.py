"""System checks for `RESTY_DJANGO`. Each message has an ID, a hint and a reference to the documentation.

Checks:
    resty_django.E001: Unknown setting. Use the name that the message suggests.
    resty_django.E002: Value of the wrong type. Use the type that the message names.
    resty_django.E003: Value out of range, or in conflict with another setting. The message names the limit.
    resty_django.E004: A setting needs a package that is not installed. Install the extra that the message names.
    resty_django.E005: An app of this package is installed without the core app. Add `resty_django` to
        `INSTALLED_APPS`.
    resty_django.W001: A section has no effect, because its app is not in `INSTALLED_APPS`. Add the app, or remove the
        section.
    resty_django.W002: A signing key of the UDP server is shorter than 16 bytes. Generate one with
        `secrets.token_hex(16)`.
    resty_django.W003: Other hosts can reach the UDP server, and neither `KEYS` nor `NETWORKS` is set. Set one of
        them, or set `HOST` to 127.0.0.1.
    resty_django.W005: A cache on Redis in `CACHES` has no socket timeout. Set `socket_timeout` and
        `socket_connect_timeout` in its `OPTIONS`.
    resty_django.W006: Jobs or a dictionary use a Redis database that `clear()` of a cache empties. Use another
        database of the server.
    resty_django.W007: A database on MariaDB, MySQL or PostgreSQL has no timeouts. Set those that the message names in
        its `OPTIONS`.
    resty_django.W008: With `--deploy`: a setting of trusted networks contains all addresses, so that any client can
        claim another address, has no limits, or reads the metrics. Name your networks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

from resty_django.address import see
from resty_django.conf import SECTIONS, all_problems, conf, raw_section
from resty_django.conf.schema import Kind, key_text, see_key

CORE: Final = "resty_django"
MIN_KEY_BYTES: Final = 16
TIMEOUTS: Final = {
    "mysql": ("connect_timeout", "read_timeout", "write_timeout"),
    **dict.fromkeys(("postgresql", "postgis"), ("connect_timeout", "tcp_user_timeout")),
}
"""Options without which a call may wait for its server indefinitely, by the last part of a database's ENGINE."""


def check_core(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return an error if the core app is not installed. All other apps of this package register this check."""
    if apps.is_installed(CORE):
        return []
    return [
        Error(
            f"{config.name} is in INSTALLED_APPS, but the app it requires, {CORE}, is not.",
            hint=f'Add "{CORE}" to INSTALLED_APPS, or add all apps with resty_django.ALL_APPS.{see_key(())}',
            id="resty_django.E005",
        )
        for config in apps.get_app_configs()
        if config.name.startswith(f"{CORE}.")
    ]


def check_settings(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return one message per problem; an empty list if the settings are valid."""
    problems = all_problems()
    ids: dict[Kind, str] = {
        "unknown": "resty_django.E001",
        "type": "resty_django.E002",
        "value": "resty_django.E003",
        "missing": "resty_django.E004",
    }
    messages: list[CheckMessage] = [
        Error(problem.message, hint=problem.reference.strip() or None, id=ids[problem.kind]) for problem in problems
    ]
    messages += _sections_without_app()
    if not problems:
        messages += _short_keys()
        messages += _open_host()
    return messages


def check_caches(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return a warning for each Redis cache without a socket timeout."""
    without_redis = (
        *(f"django.core.cache.backends.{name}." for name in ("db", "dummy", "filebased", "locmem", "memcached")),
        "resty_django.cache.",
    )
    if all(str(cache.get("BACKEND")).startswith(without_redis) for cache in settings.CACHES.values()):
        return []  # avoid the slow import of redis-py
    try:
        from resty_django.redis.timeouts import TIMEOUT_SECONDS, aliases_without
    except ImportError:  # a site without redis-py or django-redis
        return []
    messages: list[CheckMessage] = [
        Warning(
            f"The cache {alias!r} in CACHES has no socket timeout, so calls hang if its server stops responding.",
            hint=(
                f"Set SOCKET_TIMEOUT and SOCKET_CONNECT_TIMEOUT in its OPTIONS. Without them, resty_django "
                f"sets {TIMEOUT_SECONDS:g} s on the connections that it uses.{see('docs/production/redis.md')}"
            ),
            id="resty_django.W005",
        )
        for alias in aliases_without()
    ]
    return messages + _shared_databases()


def check_databases(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return a warning for each database on a server whose driver may wait indefinitely."""
    messages: list[CheckMessage] = []
    for alias, database in settings.DATABASES.items():
        options = database.get("OPTIONS", {})
        needed = TIMEOUTS.get(database.get("ENGINE", "").rpartition(".")[2], ())
        missing = [name for name in needed if not options.get(name)]
        if missing:
            text = f"The database {alias!r} has no {', '.join(missing)}, so calls hang if its server stops responding."
            hint = f"Set {', '.join(missing)} in its OPTIONS.{see('docs/install.md#database-timeouts')}"
            messages.append(Warning(text, hint=hint, id="resty_django.W007"))
    return messages


def check_networks(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[CheckMessage]:
    """Return a warning for each setting of trusted networks that contains all addresses."""
    if all_problems():
        return []  # check_settings reports them
    trusted = {
        ("LIMITS", "PROXIES"): conf.limits.proxies,
        ("LIMITS", "EXEMPT_NETWORKS"): conf.limits.exempt_networks,
        ("TXID", "PROXIES"): conf.txid.proxies,
        ("METRICS", "NETWORKS"): conf.metrics.networks,
    }
    return [
        Warning(
            f"{key_text(path)} contains all addresses, so every client is trusted.",
            hint=f"Name only your own networks.{see_key(path)}",
            id="resty_django.W008",
        )
        for path, networks in trusted.items()
        if any(network.endswith("/0") for network in networks)
    ]


def _shared_databases() -> list[CheckMessage]:
    """Return a warning for each part whose data `clear()` of a cache deletes."""
    from resty_django.redis.databases import cleared_by

    try:
        origins: dict[tuple[str, ...], str] = {
            ("SHARED_DICTS", name): section.alias
            for name, section in conf.shared_dicts.items()
            if section.engine == "redis"
        }
        if apps.is_installed("resty_django.qless") and not conf.qless.eager:
            origins["QLESS",] = conf.qless.url or conf.qless.alias
    except ImproperlyConfigured:
        return []  # check_settings reports it
    return [
        Warning(
            f"{key_text(path)} uses the same Redis database as the cache {alias!r}, so the clear() of that cache "
            f"deletes {'all jobs' if path == ('QLESS',) else 'the dictionary'}.",
            hint=(
                "Use another database of the server, such as redis://127.0.0.1:6379/1, through a separate cache in "
                f"CACHES or, for jobs, through URL.{see('docs/production/redis.md#a-separate-database')}"
            ),
            id="resty_django.W006",
        )
        for path, origin in origins.items()
        for alias in cleared_by(origin)
    ]


def _sections_without_app() -> list[CheckMessage]:
    return [
        Warning(
            f"{key_text((key,))} has no effect, because {entry.app} is not in INSTALLED_APPS.",
            hint=f'Add "{entry.app}" to INSTALLED_APPS, or remove the section.{see_key((key,))}',
            id="resty_django.W001",
        )
        for key, entry in SECTIONS.items()
        if raw_section(key) and not apps.is_installed(entry.app)
    ]


def _short_keys() -> list[CheckMessage]:
    if all(len(key.encode()) >= MIN_KEY_BYTES for key in conf.ids.udp.keys):
        return []
    return [
        Warning(
            f"{key_text(('IDS', 'UDP', 'KEYS'))} contains a key shorter than {MIN_KEY_BYTES} bytes.",
            hint=f"Generate a key with secrets.token_hex(16).{see_key(('IDS', 'UDP', 'KEYS'))}",
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
            f"{key_text(path)} is {udp.host!r}, so other hosts can reach it, but neither KEYS nor NETWORKS is set.",
            hint=f"Set KEYS or NETWORKS, or set HOST to 127.0.0.1.{see_key(path)}",
            id="resty_django.W003",
        )
    ]


def is_loopback(host: str) -> bool:
    """Return whether a server bound to `host` accepts connections from this machine only."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
