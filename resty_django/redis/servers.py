"""The address of a server, its version, and whether it persists data."""

from __future__ import annotations

from typing import Any, NamedTuple

from redis import RedisCluster
from redis.connection import SSLConnection
from redis.exceptions import ResponseError

from .clients import Client
from .faults import FAULTS, translated


class ServerInfo(NamedTuple):
    """Facts about a server.

    `keeps`: whether it persists its data; None: unknown. `memory_share`: the used share of its `maxmemory`, if it
    refuses writes when that is full; None: it has no limit, or evicts keys.
    """

    name: str
    version: str
    keeps: bool | None
    memory_share: float | None


def address(client: Client) -> str:
    """Return the address as a URL without user name and password; for a cluster, of all known nodes. Sends nothing."""
    if isinstance(client, RedisCluster):
        return ", ".join(sorted(str(node.name) for node in client.get_nodes()))
    pool = client.connection_pool
    options = pool.connection_kwargs
    database = options.get("db") or 0
    if options.get("path"):
        return f"unix://{options['path']}?db={database}"
    scheme = "rediss" if issubclass(pool.connection_class, SSLConnection) else "redis"
    service = getattr(pool, "service_name", None)
    if service is not None:
        return f"{scheme}://{service}/{database} (Sentinel)"
    host = str(options.get("host", "localhost"))
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{options.get('port', 6379)}/{database}"


def server_info(client: Client, key: str) -> ServerInfo:
    """Return facts about the server, or the cluster node that holds `key`. Raise `StoreDown` or `StoreError`."""
    try:
        where: dict[str, Any] = {}
        if isinstance(client, RedisCluster):
            where["target_nodes"] = client.get_node_from_key(key)
        info = client.info("server", **where)
        name = str(info.get("server_name", "redis"))
        version = str(info.get(f"{name}_version") or info["redis_version"])
        memory = client.info("memory", **where)
        refuses = memory.get("maxmemory") and memory.get("maxmemory_policy") == "noeviction"
        share = memory["used_memory"] / memory["maxmemory"] if refuses else None
        return ServerInfo(name.capitalize(), version, _keeps(client, where), share)
    except FAULTS as error:
        raise translated(error) from error


def _keeps(client: Client, where: dict[str, Any]) -> bool | None:
    if client.info("persistence", **where).get("aof_enabled"):
        return True
    try:
        config = client.config_get("save", **where)
    except ResponseError:
        return None
    return bool(config.get("save"))
