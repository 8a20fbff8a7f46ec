"""Plain commands and key scans, on a server or on all masters of a cluster."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, NamedTuple

from redis import RedisCluster
from redis import asyncio as aio

from .clients import AsyncClient, Client
from .faults import FAULTS, translated

SCAN_BATCH_KEYS: Final = 500
"""Number of keys that a server examines per SCAN call."""


class ServerMemory(NamedTuple):
    """Memory of a server, or of all masters, in bytes: the limit (0: none), and what is left."""

    limit: int
    free: int


def command(client: Client, *args: bytes | str | float) -> Any:
    """Run one command and return its reply. Raise `StoreDown`, `StoreFull` or `StoreError`."""
    execute: Callable[..., Any] = client.execute_command
    try:
        return execute(*args)
    except FAULTS as error:
        raise translated(error) from error


async def acommand(client: AsyncClient, *args: bytes | str | float) -> Any:
    """Do the same for asyncio."""
    try:
        return await client.execute_command(*args)
    except FAULTS as error:
        raise translated(error) from error


def scan(client: Client, prefix: bytes, glob: bytes = b"*") -> Iterator[list[bytes]]:
    """Yield the keys of hashes that begin with `prefix` in batches, each key at least once, in no particular order.

    `glob`: a pattern of Redis that the rest of the key matches. Keys that are added or deleted meanwhile may or may not
    be included. Examines every key of the servers, in small calls.
    """
    batch: list[bytes] = []
    try:
        for key in client.scan_iter(match=_escaped(prefix) + glob, count=SCAN_BATCH_KEYS, _type="hash"):
            batch.append(key)
            if len(batch) == SCAN_BATCH_KEYS:
                yield batch
                batch = []
    except FAULTS as error:
        raise translated(error) from error
    if batch:
        yield batch


async def ascan(client: AsyncClient, prefix: bytes, glob: bytes = b"*") -> AsyncIterator[list[bytes]]:
    """Do the same for asyncio."""
    batch: list[bytes] = []
    try:
        async for key in client.scan_iter(match=_escaped(prefix) + glob, count=SCAN_BATCH_KEYS, _type="hash"):
            batch.append(key)
            if len(batch) == SCAN_BATCH_KEYS:
                yield batch
                batch = []
    except FAULTS as error:
        raise translated(error) from error
    if batch:
        yield batch


def memory(client: Client) -> ServerMemory:
    """Return the memory of the server, or the total of all masters."""
    try:
        if isinstance(client, RedisCluster):
            masters = client.get_primaries()
            return _sum([client.info("memory", target_nodes=node) for node in masters])
        return _sum([client.info("memory")])
    except FAULTS as error:
        raise translated(error) from error


async def amemory(client: AsyncClient) -> ServerMemory:
    """Do the same for asyncio."""
    try:
        if isinstance(client, aio.RedisCluster):
            await client.initialize()
            return _sum([await client.info("memory", target_nodes=node) for node in client.get_primaries()])
        return _sum([await client.info("memory")])
    except FAULTS as error:
        raise translated(error) from error


def _escaped(prefix: bytes) -> bytes:
    return re.sub(rb"([\\*?\[\]])", rb"\\\1", prefix)


def _sum(infos: list[dict[str, int]]) -> ServerMemory:
    bounds = [int(info.get("maxmemory", 0)) for info in infos]
    totals = [bound or int(info.get("total_system_memory", 0)) for bound, info in zip(bounds, infos, strict=True)]
    free = sum(max(0, total - info["used_memory"]) for total, info in zip(totals, infos, strict=True))
    return ServerMemory(sum(bounds) if all(bounds) else 0, free)
