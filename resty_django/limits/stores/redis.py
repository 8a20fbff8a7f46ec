"""The store in a shared dictionary in Redis: each decision is one Lua script and one round trip."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from resty_django.redis import LuaScript, StoreError, async_connection, connection
from resty_django.shdict.codec import encode_key
from resty_django.shdict.redis import RedisDict

from ..algorithms import Operation
from ..algorithms.protocol import Answers
from ..decision import Decision
from ..errors import ForeignData, StoreFailed
from .circuit_breaker import CircuitBreaker
from .interface import LimiterParts

LUA: Final = Path(__file__).parent.parent / "lua"
ALGORITHMS: Final = ("leaky_bucket", "fixed_window", "sliding_window", "concurrency", "token_bucket")
FOREIGN: Final = ("FOREIGN", "WRONGTYPE")
"""Words in the errors of a script whose key has data of another kind."""

Sent = tuple[bytes | str, ...]


@cache
def script(algorithm: str, function: str) -> LuaScript:
    """Return the script for one function of an algorithm and one key."""
    call = f"return ({algorithm}.{function}(KEYS[1], ARGV[1]))"
    return LuaScript(LUA / "state.lua", LUA / f"{algorithm}.lua", call)


@cache
def combination() -> LuaScript:
    """Return the script for combined limits, with all algorithms."""
    return LuaScript(LUA / "state.lua", *(LUA / f"{name}.lua" for name in ALGORITHMS), LUA / "combine.lua")


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
        algorithm, numbers = limiter.algorithm, limiter.call_numbers()
        sent = algorithm.sent(script_time(limiter), commit, cost, *numbers)
        reply = self._run(script(algorithm.lua, "incoming"), (self._prefix + encode_key(key),), (sent,))
        return algorithm.decide(numbers, cost, commit, *algorithm.measured(reply))

    async def adecide(self, limiter: LimiterParts, key: object, commit: bool, cost: int) -> Decision:
        algorithm, numbers = limiter.algorithm, limiter.call_numbers()
        sent = algorithm.sent(script_time(limiter), commit, cost, *numbers)
        try:
            reply = await self._arun(script(algorithm.lua, "incoming"), self._names((key,)), (sent,))
        except asyncio.CancelledError:
            if commit and limiter.give_back is not None:  # the server may have recorded it
                with contextlib.suppress(StoreFailed):
                    await self.achange(limiter, limiter.give_back, key, numbers, cost)
            raise
        return algorithm.decide(numbers, cost, commit, *algorithm.measured(reply))

    def change(self, limiter: LimiterParts, operation: Operation, key: object, numbers: Any, cost: float) -> Any:
        sent = limiter.algorithm.sent(script_time(limiter), False, cost, *numbers)
        reply = self._run(script(limiter.algorithm.lua, operation.lua), self._names((key,)), (sent,))
        return result(reply, operation.flag)

    async def achange(self, limiter: LimiterParts, operation: Operation, key: object, numbers: Any, cost: float) -> Any:
        sent = limiter.algorithm.sent(script_time(limiter), False, cost, *numbers)
        reply = await self._arun(script(limiter.algorithm.lua, operation.lua), self._names((key,)), (sent,))
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
        numbers = [limiter.call_numbers() for limiter in limiters]
        return answers(limiters, numbers, self._run(combination(), names, combined(limiters, numbers)))

    async def atogether(self, limiters: Sequence[LimiterParts], keys: Sequence[object]) -> Answers | None:
        """Run `together` without blocking the event loop."""
        names = self._names(keys)
        if not LuaScript.fits(async_connection(self._alias), names):
            return None
        numbers = [limiter.call_numbers() for limiter in limiters]
        return answers(limiters, numbers, await self._arun(combination(), names, combined(limiters, numbers)))

    def forget(self, key: object) -> bool:
        return self.dictionary.delete(key)

    async def aforget(self, key: object) -> bool:
        return await self.dictionary.adelete(key)

    def _names(self, keys: Sequence[object]) -> tuple[bytes, ...]:
        return tuple([self._prefix + encode_key(key) for key in keys])

    def _run(self, script: LuaScript, names: tuple[bytes, ...], sent: Sent) -> Any:
        try:
            return script(connection(self._alias), names, sent)
        except StoreError as error:
            raise self._fault(error) from error

    async def _arun(self, script: LuaScript, names: tuple[bytes, ...], sent: Sent) -> Any:
        try:
            return await script.run(async_connection(self._alias), names, sent)
        except StoreError as error:
            raise self._fault(error) from error

    def _fault(self, error: StoreError) -> StoreFailed:
        if any(word in str(error) for word in FOREIGN):
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


def result(reply: Any, flag: bool = False) -> Any:
    """Return the parsed reply of a script that changes a state. `flag`: whether a reply means True."""
    if flag:
        return None if reply is None else True
    if isinstance(reply, bytes):
        number = float(reply)
        return int(number) if number.is_integer() else number
    return reply


def combined(limiters: Sequence[LimiterParts], numbers: Sequence[Any]) -> Sent:
    sent: list[bytes | str] = []
    now = script_time(limiters[0])
    for limiter, its_numbers in zip(limiters, numbers, strict=True):
        algorithm = limiter.algorithm
        sent.append(algorithm.lua)
        sent.append(algorithm.sent(now, True, 1, *its_numbers))
    return tuple(sent)


def answers(limiters: Sequence[LimiterParts], numbers: Sequence[Any], reply: list[Any]) -> Answers:
    refused, *measured = reply
    decisions: list[Decision | None] = []
    for limiter, its_numbers, figures in zip(limiters, numbers, measured, strict=True):
        algorithm = limiter.algorithm
        decisions.append(algorithm.decide(its_numbers, 1, True, *algorithm.measured(figures)) if figures else None)
    return (refused - 1 if refused else None), decisions
