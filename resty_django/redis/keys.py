"""Commands that are no script, and questions that go to a server, or to all masters of a cluster."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from redis import RedisCluster
from redis import asyncio as aio

from .clients import AsyncClient, Client
from .errors import FAULTS, translated

BATCH: Final = 500
"""Keys that a server looks at in one call."""

Memory = tuple[int, int]
"""Bytes: the bound that the servers have been given (0: none), and what they have left."""


def command(client: Client, *args: Any) -> Any:
    """One command of the server; its reply. Raises `StoreDown`, `StoreFull`, `StoreError`."""
    execute: Callable[..., Any] = client.execute_command
    try:
        return execute(*args)
    except FAULTS as error:
        raise translated(error) from error


async def acommand(client: AsyncClient, *args: Any) -> Any:
    """The same for asyncio."""
    try:
        return await client.execute_command(*args)
    except FAULTS as error:
        raise translated(error) from error


def scan(client: Client, prefix: bytes) -> Iterator[list[bytes]]:
    """The keys of hashes that begin with `prefix`, in batches, each at least once, no order.

    A key that comes or goes meanwhile may be among them or not. Looks at every key of the servers, in small calls.
    """
    batch: list[bytes] = []
    try:
        for key in client.scan_iter(match=_pattern(prefix), count=BATCH, _type="hash"):
            batch.append(key)
            if len(batch) == BATCH:
                yield batch
                batch = []
    except FAULTS as error:
        raise translated(error) from error
    if batch:
        yield batch


async def ascan(client: AsyncClient, prefix: bytes) -> AsyncIterator[list[bytes]]:
    """The same for asyncio."""
    batch: list[bytes] = []
    try:
        async for key in client.scan_iter(match=_pattern(prefix), count=BATCH, _type="hash"):
            batch.append(key)
            if len(batch) == BATCH:
                yield batch
                batch = []
    except FAULTS as error:
        raise translated(error) from error
    if batch:
        yield batch


def memory(client: Client) -> Memory:
    """The memory of the server, or of all masters together."""
    try:
        if isinstance(client, RedisCluster):
            masters = client.get_primaries()  # type: ignore[no-untyped-call]
            return _together([client.info("memory", target_nodes=node) for node in masters])
        return _together([client.info("memory")])
    except FAULTS as error:
        raise translated(error) from error


async def amemory(client: AsyncClient) -> Memory:
    """The same for asyncio."""
    try:
        if isinstance(client, aio.RedisCluster):
            await client.initialize()
            return _together([await client.info("memory", target_nodes=node) for node in client.get_primaries()])
        return _together([await client.info("memory")])
    except FAULTS as error:
        raise translated(error) from error


def _pattern(prefix: bytes) -> bytes:
    return re.sub(rb"([\\*?\[\]])", rb"\\\1", prefix) + b"*"


def _together(infos: list[dict[str, Any]]) -> Memory:
    bounds = [int(info.get("maxmemory", 0)) for info in infos]
    wholes = [bound or int(info.get("total_system_memory", 0)) for bound, info in zip(bounds, infos, strict=True)]
    left = sum(max(0, whole - info["used_memory"]) for whole, info in zip(wholes, infos, strict=True))
    return (sum(bounds) if all(bounds) else 0), left


__all__ = ["Memory", "acommand", "amemory", "ascan", "command", "memory", "scan"]
