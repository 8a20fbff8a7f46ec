"""The store in a shared dictionary in Redis: each decision is one Lua script and one round trip."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import astuple

from resty_django.redis import LuaScript, StoreError, async_connection, connection
from resty_django.shdict.codec import encode_key
from resty_django.shdict.redis import RedisDict

from ..algorithms import StateOperation
from ..algorithms.protocol import Answers
from ..decision import Decision
from ..errors import ForeignData, StoreFailed
from .circuit_breaker import CircuitBreaker
from .interface import LimiterParts

LUA: Final = Path(__file__).parent.parent / "lua"


@cache
def script(algorithm: str, function: str) -> LuaScript:
    """Return the script for one function of an algorithm and one key."""
    call = f"return ({algorithm}.{function}(KEYS[1], ARGV[1]))"
    return LuaScript(LUA / "state.lua", LUA / f"{algorithm}.lua", call)


@cache
def combination() -> LuaScript:
    """Return the script for combined limits, with all algorithms."""
    algorithms = ("leaky_bucket", "fixed_window", "sliding_window", "concurrency", "token_bucket")
    return LuaScript(LUA / "state.lua", *(LUA / f"{name}.lua" for name in algorithms), LUA / "combine.lua")


class RedisStore:
    """Decides on the server, with the server's time."""

    waits = True
    revise = None

    def __init__(self, dictionary: RedisDict) -> None:
        self.dictionary = dictionary
        self.breaker = CircuitBreaker(dictionary.name)
        self._alias = dictionary.alias
        self._prefix = dictionary.prefix.encode()

    def decide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision:
        algorithm, config = limiter.algorithm, limiter.call_config()
        arguments = packed_arguments(script_time(limiter), commit, cost, config)
        reply = self._run(script(algorithm.lua, "incoming"), self._names((key,)), (arguments,))
        return algorithm.decide(config, cost, commit, *unpacked(reply))

    async def adecide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision:
        algorithm, config = limiter.algorithm, limiter.call_config()
        arguments = packed_arguments(script_time(limiter), commit, cost, config)
        try:
            reply = await self._arun(script(algorithm.lua, "incoming"), self._names((key,)), (arguments,))
        except asyncio.CancelledError:
            if commit and limiter.give_back is not None:  # the server may have recorded it
                with contextlib.suppress(StoreFailed):
                    await self.achange(limiter, limiter.give_back, key, config, cost)
            raise
        return algorithm.decide(config, cost, commit, *unpacked(reply))

    def change(
        self, limiter: LimiterParts, operation: StateOperation, key: object, config: Struct, cost: int
    ) -> float | None:
        arguments = packed_arguments(script_time(limiter), False, cost, config)
        reply = self._run(script(limiter.algorithm.lua, operation.lua), self._names((key,)), (arguments,))
        return result(reply, operation.flag)

    async def achange(
        self, limiter: LimiterParts, operation: StateOperation, key: object, config: Struct, cost: int
    ) -> float | None:
        arguments = packed_arguments(script_time(limiter), False, cost, config)
        reply = await self._arun(script(limiter.algorithm.lua, operation.lua), self._names((key,)), (arguments,))
        return result(reply, operation.flag)

    def together(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers | None:
        """Decide with all limiters in one round trip. Return None if a cluster has the keys in several slots."""
        names = self._names(keys)
        try:
            one_call = LuaScript.fits(connection(self._alias), names)
        except StoreError as error:
            raise self._fault(error) from error
        if not one_call:
            return None
        configs = [limiter.call_config() for limiter in limiters]
        return answers(limiters, configs, self._run(combination(), names, combined_arguments(limiters, configs)))

    async def atogether(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers | None:
        """Run `together` without blocking the event loop."""
        names = self._names(keys)
        if not LuaScript.fits(async_connection(self._alias), names):
            return None
        configs = [limiter.call_config() for limiter in limiters]
        reply = await self._arun(combination(), names, combined_arguments(limiters, configs))
        return answers(limiters, configs, reply)

    def forget(self, key: object) -> bool:
        return self.dictionary.delete(key)

    async def aforget(self, key: object) -> bool:
        return await self.dictionary.adelete(key)

    def _names(self, keys: Sequence[object]) -> tuple[bytes, ...]:
        return tuple([self._prefix + encode_key(key) for key in keys])

    def _run(self, script: LuaScript, names: tuple[bytes, ...], arguments: tuple[bytes | str, ...]) -> Any:
        try:
            return script(connection(self._alias), names, arguments)
        except StoreError as error:
            raise self._fault(error) from error

    async def _arun(self, script: LuaScript, names: tuple[bytes, ...], arguments: tuple[bytes | str, ...]) -> Any:
        try:
            return await script.run(async_connection(self._alias), names, arguments)
        except StoreError as error:
            raise self._fault(error) from error

    def _fault(self, error: StoreError) -> StoreFailed:
        if any(word in str(error) for word in ("FOREIGN", "WRONGTYPE")):
            return ForeignData(
                f"shdict abused by other users: the key in {self.dictionary.name!r} holds no such state."
            )
        return StoreFailed(
            f"The limits in the shared dictionary {self.dictionary.name!r} cannot be decided, because the Redis server "
            f"of the cache {self._alias!r} failed: {error}"
        )


def script_time(limiter: LimiterParts) -> int:
    """Return the time argument of a script; 0: the server's time."""
    return 0 if limiter.clock is None else limiter.now()


@cache
def _argument_layout(config: type[Struct]) -> struct.Struct:
    fields = ["8s" if field == "token" else "d" for field in config.__struct_fields__]
    return struct.Struct(f"<ddd{''.join(fields)}")


def packed_arguments(now: int, commit: bool, cost: int, config: Struct) -> bytes:
    """Return the argument of a script: doubles, except for the token of a slot, which has 8 bytes."""
    return _argument_layout(type(config)).pack(now, commit, cost, *astuple(config))


def unpacked(reply: bytes) -> list[float]:
    """Return the values that a script computed for `decide`: doubles, many of them whole numbers."""
    return [_whole(number) for number in struct.unpack(f"<{len(reply) // 8}d", reply)]


def result(reply: bytes | int | None, flag: bool = False) -> float | None:
    """Return the parsed reply of a script that changes a state. `flag`: whether a reply means True."""
    if flag:
        return None if reply is None else True
    return _whole(float(reply)) if isinstance(reply, bytes) else reply


def _whole(number: float) -> float:
    """Return an integer for a whole number."""
    return int(number) if number.is_integer() else number


def combined_arguments(limiters: Sequence[LimiterParts], configs: Sequence[Struct]) -> tuple[bytes | str, ...]:
    """Return the arguments of the script for combined limits: for each limiter its algorithm and its argument."""
    now = script_time(limiters[0])
    pairs = zip(limiters, configs, strict=True)
    return tuple(
        argument
        for limiter, config in pairs
        for argument in (limiter.algorithm.lua, packed_arguments(now, True, 1, config))
    )


def answers(limiters: Sequence[LimiterParts], configs: Sequence[Struct], reply: list[Any]) -> Answers:
    """Return the answers in a reply: the position of the limiter that refused (0: none), and the computed values."""
    refused, *values = reply
    decisions = [
        limiter.algorithm.decide(config, 1, True, *unpacked(computed)) if computed else None
        for limiter, config, computed in zip(limiters, configs, values, strict=True)
    ]
    return (refused - 1 if refused else None), decisions
