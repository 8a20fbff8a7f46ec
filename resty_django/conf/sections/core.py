"""The settings of the parts that every site has: `SHARED_DICTS`, `EVENTS`, `TXID` and `METRICS`."""

from __future__ import annotations

from dataclasses import dataclass

from .. import validators
from ..schema import Needs, above, at_least, one_of, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDictSettings:
    """One shared dictionary.

    `engine`: "lmdb" (one machine, no server) or "redis". For lmdb, `size` is the size in bytes and `path` the folder of
    the files (None: memory if there is space, else the folder for temporary files). For redis, `alias` is the cache
    whose connection is used, `prefix` the prefix of the keys (None: derived from the name), and `stale` the seconds
    that an expired item stays readable for `get_stale`.
    """

    engine: str = setting("lmdb", check=one_of("lmdb", "redis"), needs={"redis": Needs(("redis", "django_redis"))})
    size: int = setting(32 * 1024 * 1024, check=at_least(1024 * 1024))
    path: str | None = setting(None, check=validators.not_blank)
    alias: str = setting("default", check=validators.known_cache)
    prefix: str | None = setting(None, check=validators.not_blank)
    stale: float = setting(60.0, check=at_least(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSettings:
    """Events between processes.

    `dict`: the shared dictionary for events. `interval`: polling interval in seconds (0: no background polling), not
    needed with Redis, which notifies listeners. `timeout`: seconds during which a unique value is claimed.
    `retries`: retries of `post` while the dictionary is full. `keep`: approximate number of events in a Redis stream.
    `autostart`: whether a web worker's first request starts the listener.
    """

    dict: str = setting("events", check=validators.known_dict)
    interval: float = setting(0.01, check=at_least(0))
    timeout: float = setting(2.0, check=above(0))
    retries: int = setting(999, check=at_least(0))
    keep: int = setting(10_000, check=at_least(100))
    autostart: bool = setting(True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxidSettings:
    """Settings for transaction IDs.

    `header`: name of the header that carries the txid of a request and its response. `proxies`: CIDR blocks of callers
    whose txids are accepted, "unix" for callers over a Unix socket (empty: no caller is trusted). `traceparent`:
    whether to read and send W3C Trace Context headers. `commands`: path endings of the programs whose runs each get one
    txid.
    """

    header: str = setting("X-Request-Id", check=validators.header)
    proxies: tuple[str, ...] = setting((), check=validators.networks_or_unix)
    traceparent: bool = setting(True)
    commands: tuple[str, ...] = setting(
        ("manage.py", "django-admin", "django/__main__.py"), check=validators.no_empty_texts
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Access to the metrics for clients other than users with the permission, and the maximum number of samples.

    `tokens`: accepted bearer tokens. `networks`: CIDR blocks whose clients need no token. `max_labels`: maximum number
    of samples per metric.
    """

    tokens: tuple[str, ...] = setting((), check=validators.tokens)
    networks: tuple[str, ...] = setting((), check=validators.networks)
    max_labels: int = setting(100, check=at_least(2))
