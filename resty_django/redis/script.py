"""Lua scripts: one EVALSHA for each call."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from redis import RedisCluster
from redis import asyncio as aio
from redis.exceptions import NoScriptError, ResponseError

from .clients import AsyncClient, Client
from .errors import FAULTS, translated

Arguments = tuple[bytes | str | int | float, ...]
"""Integers and floats arrive as decimal text."""

_CLUSTERS: Final = (RedisCluster, aio.RedisCluster)


class Script:
    """A Lua script, put together from texts and files.

    A call is one EVALSHA; a server that does not know the script (restarted, flushed, failed over, a node of a
    cluster asked for the first time) gets it by one EVAL. On a cluster the keys say which node is asked; they must
    be of one slot. Raises `StoreDown`, `StoreFull`, `StoreError`.
    """

    def __init__(self, *parts: str | Path) -> None:
        self.text: Final = "\n".join(part.read_text() if isinstance(part, Path) else part for part in parts)
        self.sha: Final[str] = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        self._sha: Final = self.sha.encode()  # bytes cost redis-py less than text

    def __call__(self, client: Client, keys: Arguments, args: Arguments) -> Any:
        execute: Callable[..., Any] = client.execute_command
        try:
            try:
                return execute("EVALSHA", self._sha, b"%d" % len(keys), *keys, *args)
            except NoScriptError:
                return execute("EVAL", self.text, len(keys), *keys, *args)
        except FAULTS as error:
            raise translated(error) from error

    @staticmethod
    def fits(client: Client | AsyncClient, keys: Iterable[bytes]) -> bool:
        """Whether one call can have all these keys: on a cluster only if they are of one slot."""
        if not isinstance(client, _CLUSTERS):
            return True
        return len({client.keyslot(key) for key in keys}) < 2

    async def run(self, client: AsyncClient, keys: Arguments, args: Arguments) -> Any:
        """The same for asyncio."""
        try:
            try:
                return await client.execute_command("EVALSHA", self._sha, b"%d" % len(keys), *keys, *args)
            except NoScriptError:
                return await client.execute_command("EVAL", self.text, len(keys), *keys, *args)
        except FAULTS as error:
            raise translated(error) from error

    def many(self, client: Client, keys: Arguments, calls: Sequence[Arguments]) -> list[Any]:
        """The replies of many calls in their order, sent together; in place of a reply the `StoreError` of that call.

        Raises `StoreDown` where the server did not answer: then some may have been carried out.
        """
        replies: list[Any] = [None] * len(calls)
        left = list(range(len(calls)))
        execute: Callable[..., Any] = client.execute_command
        try:
            while left:
                with client.pipeline(transaction=False) as pipe:
                    for number in left:
                        pipe.execute_command("EVALSHA", self._sha, len(keys), *keys, *calls[number])
                    for number, reply in zip(left, pipe.execute(raise_on_error=False), strict=True):
                        replies[number] = reply
                left = [number for number in left if isinstance(replies[number], NoScriptError)]
                if left:
                    first = left.pop(0)
                    try:
                        replies[first] = execute("EVAL", self.text, len(keys), *keys, *calls[first])
                    except ResponseError as error:
                        replies[first] = error
        except FAULTS as error:
            raise translated(error) from error
        return [_told(reply) for reply in replies]

    async def run_many(self, client: AsyncClient, keys: Arguments, calls: Sequence[Arguments]) -> list[Any]:
        """The same for asyncio."""
        replies: list[Any] = [None] * len(calls)
        left = list(range(len(calls)))
        try:
            while left:
                async with client.pipeline(transaction=False) as pipe:
                    for number in left:
                        pipe.execute_command("EVALSHA", self._sha, len(keys), *keys, *calls[number])
                    for number, reply in zip(left, await pipe.execute(raise_on_error=False), strict=True):
                        replies[number] = reply
                left = [number for number in left if isinstance(replies[number], NoScriptError)]
                if left:
                    first = left.pop(0)
                    try:
                        replies[first] = await client.execute_command(
                            "EVAL", self.text, len(keys), *keys, *calls[first]
                        )
                    except ResponseError as error:
                        replies[first] = error
        except FAULTS as error:
            raise translated(error) from error
        return [_told(reply) for reply in replies]

    def each(self, client: Client, keys: Iterable[bytes], args: Arguments) -> dict[bytes, Any]:
        """The replies by key of a script that takes any number of keys and replies a list, one for each.

        One call; on a cluster, where the keys are of many slots, one for each key, in one pipeline.
        """
        replies: dict[bytes, Any] = dict.fromkeys(keys)
        left = list(replies)
        if not isinstance(client, RedisCluster):
            return dict(zip(left, self(client, tuple(left), args) if left else (), strict=True))
        while left:
            try:
                with client.pipeline() as pipe:  # type: ignore[no-untyped-call]
                    for key in left:
                        pipe.execute_command("EVALSHA", self._sha, 1, key, *args)
                    replies.update(zip(left, pipe.execute(raise_on_error=False), strict=True))
            except FAULTS as error:
                raise translated(error) from error
            left = _unserved(replies)
            if left:
                first = left.pop(0)
                replies[first] = self(client, (first,), args)
        return {key: reply for key, (reply,) in replies.items()}

    async def run_each(self, client: AsyncClient, keys: Iterable[bytes], args: Arguments) -> dict[bytes, Any]:
        """The same for asyncio."""
        replies: dict[bytes, Any] = dict.fromkeys(keys)
        left = list(replies)
        if not isinstance(client, aio.RedisCluster):
            return dict(zip(left, await self.run(client, tuple(left), args) if left else (), strict=True))
        while left:
            try:
                async with client.pipeline() as pipe:
                    for key in left:
                        pipe.execute_command("EVALSHA", self._sha, 1, key, *args)
                    replies.update(zip(left, await pipe.execute(raise_on_error=False), strict=True))
            except FAULTS as error:
                raise translated(error) from error
            left = _unserved(replies)
            if left:
                first = left.pop(0)
                replies[first] = await self.run(client, (first,), args)
        return {key: reply for key, (reply,) in replies.items()}


def _told(reply: Any) -> Any:
    """A reply; for an error of redis-py ours, with that as its cause."""
    if not isinstance(reply, FAULTS):
        return reply
    error = translated(reply)
    error.__cause__ = reply
    return error


def _unserved(replies: Mapping[bytes, Any]) -> list[bytes]:
    """The keys whose node does not know the script; raises any other error."""
    for reply in replies.values():
        if isinstance(reply, FAULTS) and not isinstance(reply, NoScriptError):
            raise translated(reply) from reply
    return [key for key, reply in replies.items() if isinstance(reply, NoScriptError)]


__all__ = ["Arguments", "Script"]
