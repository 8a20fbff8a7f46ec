"""The calls for one key: each one Lua script and one round trip, `update` two, and one more for each conflict.

Each item is one hash under the prefix of the dictionary and its key, so on a cluster the items spread over the nodes.
The time is the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, ClassVar, Final

from resty_django.redis import Script

from ..base import Change, Item, Keep, Outcome
from ..codec import milliseconds
from ..errors import Unavailable
from .scripts import ADD, DELETE, EXPIRE, GET, INCR, LLEN, LOOK, POP, PUSH, REPLACE, SET, SWAP, TTL
from .whole import Whole
from .wire import Sent, item, length, packed, packed_item, popped, to_add, to_store, total, unpacked

TRIES: Final = 1000
"""How often `update` tries to write before it gives up; each time somebody else was quicker."""


class RedisDict(Whole):
    """A dictionary on the Redis of the cache `alias`.

    `prefix`: what its keys begin with (None: made of the name). `stale`: seconds that an expired item stays for
    `get_stale`. `clock`: seconds, for tests (None: the server's time).

    The server throws out items as its `maxmemory-policy` says, so `safe_set` and `safe_add` are `set` and `add`, and
    no outcome is `FORCED`.
    """

    engine: ClassVar[str] = "redis"
    stats_search: ClassVar[bool] = True

    # --- reading ---

    def get(self, key: object, default: Any = None) -> Any:
        data = self._call(GET, key)
        return default if data is None else unpacked(data)

    async def aget(self, key: object, default: Any = None) -> Any:
        data = await self._acall(GET, key)
        return default if data is None else unpacked(data)

    def get_item(self, key: object) -> Item | None:
        return item(self._call(LOOK, key), stale=False)

    async def aget_item(self, key: object) -> Item | None:
        return item(await self._acall(LOOK, key), stale=False)

    def get_stale(self, key: object) -> Item | None:
        return item(self._call(LOOK, key), stale=True)

    async def aget_stale(self, key: object) -> Item | None:
        return item(await self._acall(LOOK, key), stale=True)

    def ttl(self, key: object) -> float | None:
        left = self._call(TTL, key)
        return None if left is None else left / 1000

    async def attl(self, key: object) -> float | None:
        left = await self._acall(TTL, key)
        return None if left is None else left / 1000

    def llen(self, key: object) -> int:
        return length(self._call(LLEN, key))

    async def allen(self, key: object) -> int:
        return length(await self._acall(LLEN, key))

    # --- writing ---

    def set(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        if value is None:
            self.delete(key)
        else:
            self._call(SET, key, *to_store(value, ttl, flags, self._stale))
        return Outcome.STORED

    async def aset(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        if value is None:
            await self.adelete(key)
        else:
            await self._acall(SET, key, *to_store(value, ttl, flags, self._stale))
        return Outcome.STORED

    def safe_set(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self.set(key, value, ttl, flags)

    async def asafe_set(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return await self.aset(key, value, ttl, flags)

    def add(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        stored = self._call(ADD, key, *to_store(value, ttl, flags, self._stale))
        return Outcome.STORED if stored else Outcome.EXISTS

    async def aadd(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        stored = await self._acall(ADD, key, *to_store(value, ttl, flags, self._stale))
        return Outcome.STORED if stored else Outcome.EXISTS

    def safe_add(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self.add(key, value, ttl, flags)

    async def asafe_add(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return await self.aadd(key, value, ttl, flags)

    def replace(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        stored = self._call(REPLACE, key, *to_store(value, ttl, flags, self._stale))
        return Outcome.STORED if stored else Outcome.NOT_FOUND

    async def areplace(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        stored = await self._acall(REPLACE, key, *to_store(value, ttl, flags, self._stale))
        return Outcome.STORED if stored else Outcome.NOT_FOUND

    def delete(self, key: object) -> bool:
        return bool(self._call(DELETE, key))

    async def adelete(self, key: object) -> bool:
        return bool(await self._acall(DELETE, key))

    def delete_if(self, key: object, value: Any) -> bool:
        return bool(self._call(DELETE, key, packed(value)))

    async def adelete_if(self, key: object, value: Any) -> bool:
        return bool(await self._acall(DELETE, key, packed(value)))

    def incr(self, key: object, by: float = 1, init: float | None = None, init_ttl: float = 0) -> Any:
        return total(self._call(INCR, key, *to_add(by, init, init_ttl, self._stale)), key, by)

    async def aincr(self, key: object, by: float = 1, init: float | None = None, init_ttl: float = 0) -> Any:
        return total(await self._acall(INCR, key, *to_add(by, init, init_ttl, self._stale)), key, by)

    def expire(self, key: object, ttl: float) -> bool:
        return bool(self._call(EXPIRE, key, milliseconds(ttl), self._stale))

    async def aexpire(self, key: object, ttl: float) -> bool:
        return bool(await self._acall(EXPIRE, key, milliseconds(ttl), self._stale))

    def expire_if(self, key: object, value: Any, ttl: float) -> bool:
        return bool(self._call(EXPIRE, key, milliseconds(ttl), self._stale, packed(value)))

    async def aexpire_if(self, key: object, value: Any, ttl: float) -> bool:
        return bool(await self._acall(EXPIRE, key, milliseconds(ttl), self._stale, packed(value)))

    def update(self, key: object, function: Callable[[Any], Change | Keep]) -> Any:
        rounds = self._update(key, function)
        script, args = next(rounds)
        try:
            while True:
                script, args = rounds.send(self._call(script, key, *args))
        except StopIteration as done:
            return done.value

    async def aupdate(self, key: object, function: Callable[[Any], Change | Keep]) -> Any:
        rounds = self._update(key, function)
        script, args = next(rounds)
        while True:
            reply = await self._acall(script, key, *args)
            try:
                script, args = rounds.send(reply)
            except StopIteration as done:
                return done.value

    def _update(
        self, key: object, function: Callable[[Any], Change | Keep]
    ) -> Generator[tuple[Script, Sent], bytes | None, Any]:
        """Yields a script and its arguments, is sent the reply, and returns the result."""
        old = (yield GET, ()) or b""
        for _ in range(TRIES):
            change = function(unpacked(old) if old else None)
            if isinstance(change, Keep):
                return change.result
            if not isinstance(change, Change):
                raise TypeError(f"The function of update() returned {change!r}, neither a Change nor a Keep.")
            new, ttl = b"" if change.value is None else packed(change.value), change.ttl
            found = yield SWAP, (old, new) if ttl is None else (old, new, milliseconds(ttl), self._stale)
            if found is None:
                return change.result
            old = found
        raise Unavailable(
            f"update() of the key {key!r} in {self} has been overtaken by other writers {TRIES} times. "
            "Spread the writes over several keys."
        )

    def lpush(self, key: object, value: Any) -> int:
        return length(self._call(PUSH, key, b"l", packed_item(value)))

    async def alpush(self, key: object, value: Any) -> int:
        return length(await self._acall(PUSH, key, b"l", packed_item(value)))

    def rpush(self, key: object, value: Any) -> int:
        return length(self._call(PUSH, key, b"r", packed_item(value)))

    async def arpush(self, key: object, value: Any) -> int:
        return length(await self._acall(PUSH, key, b"r", packed_item(value)))

    def lpop(self, key: object) -> Any:
        return popped(self._call(POP, key, b"l"))

    async def alpop(self, key: object) -> Any:
        return popped(await self._acall(POP, key, b"l"))

    def rpop(self, key: object) -> Any:
        return popped(self._call(POP, key, b"r"))

    async def arpop(self, key: object) -> Any:
        return popped(await self._acall(POP, key, b"r"))
