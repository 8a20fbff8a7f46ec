"""The Lua scripts of the Redis engine, one per call, and their calls for the keys of a dictionary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from resty_django.redis import LuaScript, StoreError, StoreFull, async_connection, connection
from resty_django.redis.keys import SCAN_BATCH_KEYS, ascan, scan
from resty_django.sansio import Step, Steps

from ..base import Entry
from ..codec import encode_key
from ..errors import NoMemory, SharedDictError, Unavailable
from .wire import Sent, separated

LUA: Final = Path(__file__).parent / "lua"


def _script(*names: str, listed: Callable[[Any], Sequence[Any]] | None = None) -> LuaScript:
    return LuaScript(LUA / "item.lua", *(LUA / f"{name}.lua" for name in names), listed=listed)


ADD: Final = _script("save", "entry", "add")
ADD_OR_GET: Final = _script("save", "entry", "add_or_get")
APPEND: Final = _script("entry", "append")
DELETE: Final = _script("entry", "delete")
DELETE_MANY: Final = _script("entry", "delete_many")
EXPIRE: Final = _script("save", "expire")
FLUSH: Final = _script("flush")
FREE: Final = _script("free")
GET: Final = _script("get")
GET_MANY: Final = _script("get_many", listed=separated)
INCR: Final = _script("save", "incr")
LIVE: Final = _script("live")
LLEN: Final = _script("llen")
LOOK: Final = _script("look")
POP: Final = _script("pop")
PUSH: Final = _script("push")
REPLACE: Final = _script("save", "replace")
SET: Final = _script("save", "entry", "set")
SET_MANY: Final = _script("save", "entry", "set_many")
SWAP: Final = _script("save", "entry", "swap")
TTL: Final = _script("ttl")


class ScriptCaller:
    """Calls scripts on the server of the cache `alias`, for keys with a prefix, and translates errors.

    `clock`: seconds, for tests (None: the server's time).
    """

    def __init__(self, name: str, alias: str, prefix: str, clock: Callable[[], float] | None) -> None:
        self.name = name
        self.alias = alias
        self.prefix = prefix
        self._prefix = prefix.encode()
        self._clock = clock

    def _call(self, script: LuaScript, key: object, args: Sent = (), entry: Entry = None) -> Any:
        """Call a script for one key."""
        try:
            return script(connection(self.alias), *self._sent(key, args, entry))
        except StoreError as error:
            raise self._fault(error) from error

    async def _acall(self, script: LuaScript, key: object, args: Sent = (), entry: Entry = None) -> Any:
        """Do the same for asyncio."""
        try:
            return await script.run(async_connection(self.alias), *self._sent(key, args, entry))
        except StoreError as error:
            raise self._fault(error) from error

    def _sent(self, key: object, args: Sent, entry: Entry) -> tuple[tuple[bytes, ...], Sent]:
        """Return the keys and the arguments of a call."""
        keys: tuple[bytes, ...] = (self._prefix + encode_key(key),)
        if entry is not None:
            keys += (entry.key,)
            args += entry.args()
        if self._clock is not None:
            args += self._clock_args()
        return keys, args

    def _each(
        self, script: LuaScript, names: Iterable[bytes], args: Sent = (), entry: Entry = None
    ) -> Steps[dict[bytes, Any]]:
        """Return the replies of a script for all names, or for a mapping of names to separate arguments.

        On a server, this takes one round trip for up to `SCAN_BATCH_KEYS` names; on a cluster, one to each node.
        """
        replies: dict[bytes, Any] = {}
        with self._faults():
            client = yield self._connected
            for batch, stream, entry_args in _batches(names, entry):
                batch_args = (*args, *entry_args, *self._clock_args())
                replies.update((yield Step(script.each, script.run_each, (client, batch, batch_args, stream))))
        return replies

    def _scan(self) -> Steps[tuple[Any, Step]]:
        """Return the client, and a step that returns the next batch of the dictionary's names; None at the end."""
        client = yield self._connected
        return client, Step(next, anext, ((yield Step(scan, _ascan, (client, self._prefix))), None))

    @property
    def _connected(self) -> Step:
        """The step that returns the client."""
        return Step(connection, _aconnection, (self.alias,))

    def _clock_args(self) -> tuple[bytes, ...]:
        """Return the time that a script uses instead of the server's (item.lua)."""
        return () if self._clock is None else (b"@%d" % (self._clock() * 1000),)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise self._fault(error) from error

    def _fault(self, error: StoreError) -> SharedDictError:
        if isinstance(error, StoreFull):
            return NoMemory(
                f"There is no space in the shared dictionary {self.name!r}: the Redis of the cache "
                f"{self.alias!r} has reached its maxmemory. Raise it, or set a maxmemory-policy that evicts "
                "items."
            )
        return Unavailable(
            f"The shared dictionary {self.name!r} cannot be used at the moment. Check the Redis of the cache "
            f"{self.alias!r}: {error}"
        )


async def _aconnection(alias: str) -> Any:
    return async_connection(alias)


async def _ascan(client: Any, prefix: bytes) -> AsyncIterator[list[bytes]]:
    return ascan(client, prefix)


def _batches(names: Iterable[bytes], entry: Entry) -> Iterator[tuple[Any, tuple[bytes, ...], Sent]]:
    """Yield the names in parts of at most `SCAN_BATCH_KEYS`, and for the last part the entry's stream and arguments.

    The parts of a mapping are mappings.
    """
    listed = list(names)
    for start in range(0, len(listed), SCAN_BATCH_KEYS):
        batch = listed[start : start + SCAN_BATCH_KEYS]
        is_last = entry is not None and start + SCAN_BATCH_KEYS >= len(listed)
        part = {name: names[name] for name in batch} if isinstance(names, Mapping) else batch
        yield part, (entry.key,) if is_last else (), entry.args() if is_last else ()
