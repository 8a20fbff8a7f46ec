"""Lua scripts, executed with one EVALSHA per call."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

from redis import RedisCluster
from redis import asyncio as aio
from redis.exceptions import NoScriptError, ResponseError, SlotNotCoveredError

from resty_django.sansio import Step, Steps, arun, run

from .asynchronous import beginning_call
from .clients import AsyncClient, Client
from .faults import FAULTS, translated

Arguments: TypeAlias = tuple[bytes | str | int | float, ...]
"""Arguments of a script. Numbers arrive as decimal text."""
Keys: TypeAlias = Iterable[bytes] | Mapping[bytes, Arguments]
"""Keys of a script, or keys with separate arguments."""

_CLUSTERS: Final = (RedisCluster, aio.RedisCluster)


class LuaScript:
    """A Lua script, concatenated from strings and files.

    A call is one EVALSHA. If the server does not know the script (after a restart, a flush or a failover, or on the
    first call to a cluster node), one EVAL follows. On a cluster the keys select the node; they must share one slot.
    Raises `StoreDown`, `StoreFull` and `StoreError`. `listed`: converts a reply of `each` to one reply per key.
    """

    def __init__(self, *parts: str | Path, listed: Callable[[Any], Sequence[Any]] | None = None) -> None:
        self._listed = listed
        self.text: Final = "\n".join(source.read_text() if isinstance(source, Path) else source for source in parts)
        self.sha: Final[str] = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, client: Client, keys: Arguments, args: Arguments) -> Any:
        execute: Callable[..., Any] = client.execute_command
        try:
            try:
                return execute("EVALSHA", self.sha, len(keys), *keys, *args)
            except NoScriptError:
                return execute("EVAL", self.text, len(keys), *keys, *args)
        except FAULTS as error:
            raise translated(error) from error

    @staticmethod
    def fits(client: Client | AsyncClient, keys: Iterable[bytes]) -> bool:
        """Return whether one call can take all these keys: on a cluster only if they share one slot."""
        if not isinstance(client, _CLUSTERS):
            return True
        return len({client.keyslot(key) for key in keys}) < 2

    async def run(self, client: AsyncClient, keys: Arguments, args: Arguments) -> Any:
        """Do the same for asyncio."""
        try:
            try:
                return await client.execute_command("EVALSHA", self.sha, len(keys), *keys, *args)
            except NoScriptError:
                return await client.execute_command("EVAL", self.text, len(keys), *keys, *args)
        except FAULTS as error:
            raise translated(error) from error

    def many(self, client: Client, keys: Arguments, calls: Sequence[Arguments]) -> list[Any]:
        """Send many calls in one pipeline and return their replies in order; a failed call's reply is its `StoreError`.

        Raise `StoreDown` if the server did not respond; some of the calls may have been executed.
        """
        try:
            replies = _send(client, [("EVALSHA", self.sha, len(keys), *keys, *call) for call in calls])
        except FAULTS as error:
            raise translated(error) from error
        for reply in replies:
            if isinstance(reply, Exception):
                return run(self._after_errors(client, keys, calls, replies))
        return replies

    async def run_many(self, client: AsyncClient, keys: Arguments, calls: Sequence[Arguments]) -> list[Any]:
        """Do the same as `many` for asyncio."""
        try:
            replies = await _asend(client, [("EVALSHA", self.sha, len(keys), *keys, *call) for call in calls])
        except FAULTS as error:
            raise translated(error) from error
        return await arun(self._after_errors(client, keys, calls, replies))

    def _after_errors(
        self, client: Client | AsyncClient, keys: Arguments, calls: Sequence[Arguments], replies: list[object]
    ) -> Steps[list[Any]]:
        """Repeat the calls whose node does not know the script. Return all replies, with each error as `StoreError`."""
        pending = [number for number, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        try:
            while pending:
                first = pending.pop(0)
                command = ("EVAL", self.text, len(keys), *keys, *calls[first])
                try:
                    replies[first] = yield Step(client.execute_command, client.execute_command, command)
                except ResponseError as error:
                    replies[first] = error
                if pending:
                    commands = [("EVALSHA", self.sha, len(keys), *keys, *calls[number]) for number in pending]
                    for number, reply in zip(pending, (yield Step(_send, _asend, (client, commands))), strict=True):
                        replies[number] = reply
                pending = [number for number in pending if isinstance(replies[number], NoScriptError)]
        except FAULTS as error:
            raise translated(error) from error
        return [_as_store_error(reply) for reply in replies]

    def each(self, client: Client, keys: Keys, args: Arguments, last_keys: Arguments = ()) -> dict[bytes, Any]:
        """Return the replies by key, for a script that takes any number of keys and returns one reply per key.

        `keys`: the keys, or a mapping of keys to separate arguments; the script receives these in the order of the
        keys, followed by `args`. `last_keys`: keys after the others, which have no reply; not for a cluster. This is
        one call; on a cluster, it is a pipeline with one call per key, which needs one round trip to each node.
        """
        return run(self._each(client, keys, args, last_keys))

    async def run_each(
        self, client: AsyncClient, keys: Keys, args: Arguments, last_keys: Arguments = ()
    ) -> dict[bytes, Any]:
        """Do the same as `each` for asyncio."""
        return await arun(self._each(client, keys, args, last_keys))

    def _each(
        self, client: Client | AsyncClient, keys: Keys, args: Arguments, last_keys: Arguments
    ) -> Steps[dict[bytes, Any]]:
        replies: dict[bytes, Any] = dict.fromkeys(keys)
        pending = list(replies)
        own: Mapping[bytes, Arguments] = keys if isinstance(keys, Mapping) else {}
        if not isinstance(client, _CLUSTERS):
            if not pending:
                return {}
            all_args = (*chain.from_iterable(own.values()), *args)
            reply = yield Step(self, self.run, (client, (*pending, *last_keys), all_args))
            return dict(zip(pending, self._listed(reply) if self._listed else reply, strict=True))
        while pending:
            commands = [("EVALSHA", self.sha, 1, key, *own.get(key, ()), *args) for key in pending]
            try:
                replies.update(zip(pending, (yield Step(_send, _asend, (client, commands))), strict=True))
            except FAULTS as error:
                raise translated(error) from error
            pending = _keys_without_script(replies)
            if pending:
                first = pending.pop(0)
                first_args = (*own.get(first, ()), *args)
                replies[first] = yield Step(self, self.run, (client, (first,), first_args))
        return {key: (self._listed(reply) if self._listed else reply)[0] for key, reply in replies.items()}


def _send(client: Client, commands: Sequence[Arguments]) -> list[object]:
    """Send commands in one pipeline and return their replies and errors."""
    with client.pipeline(transaction=False) as pipe:
        if isinstance(client, RedisCluster):
            for command in commands:
                pipe.execute_command(*command, **_target(client, command))
        else:
            for command in commands:
                pipe.execute_command(*command)
        return pipe.execute(raise_on_error=False)


def _target(client: RedisCluster, command: Arguments) -> dict[str, object]:
    """Return the option that names the node for a script on a cluster.

    Without it, redis-py 8 asks a node for the keys of each command in a pipeline, one round trip per command.
    """
    try:
        return {"target_nodes": client.get_node_from_key(command[3])}
    except SlotNotCoveredError:
        return {}


async def _asend(client: AsyncClient, commands: Sequence[Arguments]) -> list[object]:
    """Do the same as `_send` for asyncio."""
    async with client.pipeline(transaction=False) as pipe:
        for command in commands:
            pipe.execute_command(*command)
        with beginning_call():
            return await pipe.execute(raise_on_error=False)


def _as_store_error(reply: object) -> object:
    """Return the reply, or for a redis-py error the matching `StoreError` with it as the cause."""
    if not isinstance(reply, FAULTS):
        return reply
    error = translated(reply)
    error.__cause__ = reply
    return error


def _keys_without_script(replies: Mapping[bytes, object]) -> list[bytes]:
    """Return the keys whose node does not know the script. Raise any other error."""
    for reply in replies.values():
        if isinstance(reply, FAULTS) and not isinstance(reply, NoScriptError):
            raise translated(reply) from reply
    return [key for key, reply in replies.items() if isinstance(reply, NoScriptError)]
