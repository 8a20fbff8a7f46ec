"""A django-redis client class for Redis Cluster:

    CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"],
            "OPTIONS": {"CLIENT_CLASS": "resty_django.redis.cluster.ClusterClient"},
        }
    }

LOCATION lists some of the nodes, all with the same user and password; the other nodes are discovered through them.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django_redis.client.default import DefaultClient, glob_escape
from django_redis.exceptions import ConnectionInterrupted
from django_redis.util import CacheKey
from redis import RedisCluster
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import SSLConnection, parse_url
from redis.retry import Retry

from resty_django.processes.forks import after_fork

from .clients import cache_client
from .faults import FAULTS
from .timeouts import add_timeouts

_clusters: Final[dict[str, RedisCluster]] = {}
_making = threading.Lock()


class ClusterClient(DefaultClient):  # type: ignore[misc]
    """The CLIENT_CLASS for a cache on a cluster.

    All caches of a process with the same settings share one `RedisCluster`. A call whose connection breaks is not
    repeated, because the server may have executed it; set `retry` in CONNECTION_POOL_KWARGS to change that.
    """

    def __init__(self, server: Any, params: dict[str, Any], backend: Any) -> None:
        nodes = server.split(",") if isinstance(server, str) else list(server or ())
        super().__init__(nodes, params, backend)
        self._clients = [None]

    def get_next_client_index(self, write: bool = True, tried: list[int] | None = None) -> int:
        return 0

    def connect(self, index: int = 0) -> RedisCluster:
        nodes, kwargs = self.cluster()
        name = f"{nodes} {kwargs}"
        with _making:
            if name not in _clusters:
                kwargs.setdefault("retry", Retry(NoBackoff(), 0))
                startup = [ClusterNode(*node) for node in nodes]
                _clusters[name] = RedisCluster(startup_nodes=startup, **kwargs)
            return _clusters[name]

    def disconnect(self, index: int = 0, client: RedisCluster | None = None) -> None:
        (client or self.get_client()).disconnect_connection_pools()

    def cluster(self) -> tuple[list[tuple[str, int]], dict[str, Any]]:
        """Return the startup nodes as (host, port), and the other arguments for a `RedisCluster`."""
        nodes = []
        kwargs: dict[str, Any] = {}
        for url in self._server:
            options = dict(self.connection_factory.make_connection_params(url))
            options.pop("url")
            options.pop("parser_class")
            options.update(parse_url(url))
            nodes.append((options.pop("host", "localhost"), options.pop("port", 6379)))
            if options.pop("connection_class", None) is SSLConnection:
                options["ssl"] = True
            if "path" in options or options.pop("db", 0):
                raise ImproperlyConfigured(
                    "The LOCATION of a cache on a Redis Cluster takes URLs with a host and a port. Remove "
                    "the database number or the socket path."
                )
            kwargs.update(options)
        kwargs.update(self._options.get("CONNECTION_POOL_KWARGS", {}))
        kwargs.update(self._options.get("REDIS_CLIENT_KWARGS", {}))
        add_timeouts(kwargs)
        return nodes, kwargs

    def clear(self, client: RedisCluster | None = None) -> None:
        """Delete the keys of this cache, of all versions. A cluster has one database, so FLUSHDB would delete jobs."""
        pattern = self._backend.key_func("*", glob_escape(self._backend.key_prefix), "*")
        self.delete_pattern(CacheKey(pattern), client=client, itersize=1000)

    def keys(self, search: str, version: int | None = None, client: RedisCluster | None = None) -> list[str]:
        return list(self.iter_keys(search, client=client, version=version))

    def get_many(
        self, keys: Collection[str], version: int | None = None, client: RedisCluster | None = None
    ) -> dict[str, object]:
        if not keys:
            return {}
        names = {self.make_key(key, version=version): key for key in keys}
        client = client or self.get_client(write=False)
        try:
            values = client.mget_nonatomic(*names)
        except FAULTS as error:
            raise ConnectionInterrupted(connection=client) from error
        pairs = zip(names.values(), values, strict=True)
        return {key: self.decode(value) for key, value in pairs if value is not None}


def _after_fork() -> None:
    global _making
    _making = threading.Lock()
    _clusters.clear()


after_fork(_after_fork)


def is_cluster(alias: str) -> bool:
    """Return whether the cache `alias` is on a cluster, without connecting. Raise `ImproperlyConfigured`."""
    return isinstance(cache_client(alias), ClusterClient)
