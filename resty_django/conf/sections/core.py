"""The settings of the parts that every site has: `SHARED_DICTS`, `EVENTS`, `TXID` and `METRICS`."""

from __future__ import annotations

from dataclasses import dataclass

from .. import validators
from ..schema import Needs, above, at_least, one_of, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDictSettings:
    """One shared dictionary.

    Attributes:
        engine: `"lmdb"`, one machine and no server, or `"redis"`.
        size: LMDB: size in bytes, allocated in full on first use; at least 1048576. All processes must use the same
            value.
        path: LMDB: a local folder for the files; it must belong to the user that runs the site and must not be
            writable for others. If it does not exist, it is created with mode 700, as are missing parents. None:
            memory if there is enough space, else the folder for temporary files.
        alias: Redis: the cache in `CACHES` whose connection it uses.
        prefix: Redis: prefix of the keys; None: `resty:dict:<name>:`. Two sites on one server need different
            prefixes.
        stale: Redis: seconds that an expired item stays readable for `get_stale`.
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

    Attributes:
        dict: The shared dictionary for events; with the engine redis, events reach other machines.
        interval: LMDB: polling interval in seconds, and so the longest delay; 0: no background polling.
        timeout: Seconds during which further events with the same `unique` value are ignored.
        retries: Retries of `post` while the dictionary is full.
        keep: Redis: approximate number of events in the stream.
        autostart: Whether the first request of a web worker starts the listener.
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

    Attributes:
        header: The header that carries the txid in requests from trusted proxies, in responses, and in calls to
            other services.
        proxies: CIDR blocks of callers whose txid, request ID and trace are accepted; `"unix"`: callers over a
            Unix socket. Empty: none are accepted.
        traceparent: W3C Trace Context: read `traceparent` and `tracestate` from trusted proxies, and send them.
        commands: Path endings of programs whose runs each get one txid.
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

    Attributes:
        tokens: Accepted bearer tokens, each at least 16 characters long.
        networks: CIDR blocks whose clients need no token. Behind a proxy, the address of the proxy counts.
        max_labels: Maximum number of samples per metric; the rest is added up.
    """

    tokens: tuple[str, ...] = setting((), check=validators.tokens)
    networks: tuple[str, ...] = setting((), check=validators.networks)
    max_labels: int = setting(100, check=at_least(2))
