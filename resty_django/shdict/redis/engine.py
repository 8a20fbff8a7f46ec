"""The Redis engine: a call for one key is one Lua script and one round trip (`update`: two, and one more per conflict).

Each item is one hash under the prefix of the dictionary and its key, so on a cluster the items are distributed over the
nodes. The server's clock is used. Calls for the whole dictionary scan all keys. They are not atomic: concurrent writes
may or may not be included.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final
from urllib.parse import quote

from resty_django.redis import Script, StoreError, StoreFull, async_connection, connection
from resty_django.redis.keys import BATCH, amemory, ascan, memory, scan

from ..base import Change, Entry, Item, Keep, OnError, Outcome, SharedDict, Stats
from ..codec import check_flags, decode_key, encode_key, milliseconds
from ..errors import NoMemory, SharedDictError, Unavailable, Unreadable, WrongKind
from ..patterns import KeyPattern
from .scripts import (
    ADD,
    APPEND,
    DELETE,
    DELETE_MANY,
    EXPIRE,
    FLUSH,
    FREE,
    GET,
    GET_MANY,
    INCR,
    LIVE,
    LLEN,
    LOOK,
    POP,
    PUSH,
    REPLACE,
    SET,
    SET_MANY,
    SWAP,
    TTL,
)
from .wire import Sent, item, length, packed, packed_item, popped, to_add, to_store, total, unpacked

TRIES: Final = 1000
"""Maximum number of attempts of `update`, if other processes change the key each time."""


class RedisDict(SharedDict):
    """A dictionary on the Redis server of the cache `alias`.

    `prefix`: prefix of the keys (None: derived from the name). `stale`: seconds that an expired item stays readable for
    `get_stale`. `clock`: seconds, for tests (None: the server's time).

    The server evicts items according to its `maxmemory-policy`, so `safe_set` and `safe_add` equal `set` and `add`, and
    `FORCED` is never returned.
    """

    engine: ClassVar[str] = "redis"
    stats_search: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        *,
        alias: str = "default",
        prefix: str | None = None,
        stale: float = 60.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(name)
        self.alias = alias
        # Quoted, so that no prefix begins another one, and names cannot contain hash tags.
        self.prefix = prefix or f"resty:dict:{quote(name, safe='')}:"
        self._prefix = self.prefix.encode()
        self._stale = milliseconds(stale)
        self._clock = clock

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
        remaining = self._call(TTL, key)
        return None if remaining is None else remaining / 1000

    async def attl(self, key: object) -> float | None:
        remaining = await self._acall(TTL, key)
        return None if remaining is None else remaining / 1000

    def llen(self, key: object) -> int:
        return length(self._call(LLEN, key))

    async def allen(self, key: object) -> int:
        return length(await self._acall(LLEN, key))

    # --- writing ---

    def set(self, key: object, value: Any, ttl: float = 0, flags: int = 0, entry: Entry = None) -> Outcome:
        if value is None:
            self.delete(key, entry)
        else:
            self._call(SET, key, *to_store(value, ttl, flags, self._stale), entry=entry)
        return Outcome.STORED

    async def aset(self, key: object, value: Any, ttl: float = 0, flags: int = 0, entry: Entry = None) -> Outcome:
        if value is None:
            await self.adelete(key, entry)
        else:
            await self._acall(SET, key, *to_store(value, ttl, flags, self._stale), entry=entry)
        return Outcome.STORED

    def safe_set(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self.set(key, value, ttl, flags)

    async def asafe_set(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return await self.aset(key, value, ttl, flags)

    def add(self, key: object, value: Any, ttl: float = 0, flags: int = 0, entry: Entry = None) -> Outcome:
        stored = self._call(ADD, key, *to_store(value, ttl, flags, self._stale), entry=entry)
        return Outcome.STORED if stored else Outcome.EXISTS

    async def aadd(self, key: object, value: Any, ttl: float = 0, flags: int = 0, entry: Entry = None) -> Outcome:
        stored = await self._acall(ADD, key, *to_store(value, ttl, flags, self._stale), entry=entry)
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

    def delete(self, key: object, entry: Entry = None) -> bool:
        return bool(self._call(DELETE, key, entry=entry))

    async def adelete(self, key: object, entry: Entry = None) -> bool:
        return bool(await self._acall(DELETE, key, entry=entry))

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

    def update(self, key: object, function: Callable[[Any], Change | Keep], entry: Entry = None) -> Any:
        rounds = self._update(key, function)
        script, args = next(rounds)
        try:
            while True:
                script, args = rounds.send(self._call(script, key, *args, entry=entry if script is SWAP else None))
        except StopIteration as done:
            return done.value

    async def aupdate(self, key: object, function: Callable[[Any], Change | Keep], entry: Entry = None) -> Any:
        rounds = self._update(key, function)
        script, args = next(rounds)
        while True:
            reply = await self._acall(script, key, *args, entry=entry if script is SWAP else None)
            try:
                script, args = rounds.send(reply)
            except StopIteration as done:
                return done.value

    def _update(
        self, key: object, function: Callable[[Any], Change | Keep]
    ) -> Generator[tuple[Script, Sent], bytes | None, Any]:
        """Yield a script and its arguments, receive the reply, and return the result."""
        old = (yield GET, ()) or b""
        for _ in range(TRIES):
            change = function(unpacked(old) if old else None)
            if isinstance(change, Keep):
                return change.result
            if not isinstance(change, Change):
                raise TypeError(f"The function of update() returned {change!r}, neither a Change nor a Keep.")
            new, ttl = b"" if change.value is None else packed(change.value), change.ttl
            stored = yield SWAP, (old, new) if ttl is None else (old, new, milliseconds(ttl), self._stale)
            if stored is None:
                return change.result
            old = stored
        raise Unavailable(
            f"update() of the key {key!r} in {self} was overtaken by other writers {TRIES} times. Distribute "
            "the writes over several keys."
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

    # --- many keys: one round trip, on a cluster to each node, for up to BATCH keys ---

    def get_many(self, keys: Iterable[Any], on_error: OnError | None = None) -> dict[Any, Any]:
        names = self._names_of(keys)
        return _values(names, self._each(GET_MANY, names.values()), on_error)

    async def aget_many(self, keys: Iterable[Any], on_error: OnError | None = None) -> dict[Any, Any]:
        names = self._names_of(keys)
        return _values(names, await self._aeach(GET_MANY, names.values()), on_error)

    def set_many(
        self, values: Mapping[Any, Any], ttl: float | Mapping[Any, float] = 0, flags: int = 0, entry: Entry = None
    ) -> list[Any]:
        names = self._names_of(values)
        items, absent = self._items_of(names, values, ttl)
        stored = self._each(SET_MANY, items, self._stale, check_flags(flags), entry=None if absent else entry)
        if absent:
            self.delete_many(absent, entry)
        return [key for key, name in names.items() if stored.get(name) == 0]

    async def aset_many(
        self, values: Mapping[Any, Any], ttl: float | Mapping[Any, float] = 0, flags: int = 0, entry: Entry = None
    ) -> list[Any]:
        names = self._names_of(values)
        items, absent = self._items_of(names, values, ttl)
        stored = await self._aeach(SET_MANY, items, self._stale, check_flags(flags), entry=None if absent else entry)
        if absent:
            await self.adelete_many(absent, entry)
        return [key for key, name in names.items() if stored.get(name) == 0]

    def delete_many(self, keys: Iterable[Any], entry: Entry = None) -> int:
        return sum(self._each(DELETE_MANY, self._names_of(keys).values(), entry=entry).values())

    async def adelete_many(self, keys: Iterable[Any], entry: Entry = None) -> int:
        return sum((await self._aeach(DELETE_MANY, self._names_of(keys).values(), entry=entry)).values())

    def _names_of(self, keys: Iterable[Any]) -> dict[Any, bytes]:
        return {key: self._prefix + encode_key(key) for key in keys}

    @staticmethod
    def _items_of(
        names: Mapping[Any, bytes], values: Mapping[Any, Any], ttl: float | Mapping[Any, float]
    ) -> tuple[dict[bytes, Sent], list[Any]]:
        """Return names with values and lives in wire format, and the keys to be deleted."""
        items: dict[bytes, Sent] = {}
        absent = []
        life = 0 if isinstance(ttl, Mapping) else milliseconds(ttl)
        for key, name in names.items():
            if values[key] is None:
                absent.append(key)
            else:
                items[name] = packed(values[key]), milliseconds(ttl[key]) if isinstance(ttl, Mapping) else life
        return items, absent

    def _each(
        self, script: Script, names: Iterable[bytes], *args: bytes | int, entry: Entry = None
    ) -> dict[bytes, Any]:
        """Return the replies of a script for all names, or for a mapping of names to separate arguments."""
        replies: dict[bytes, Any] = {}
        with self._faults():
            client = connection(self.alias)
            for batch, stream, entry_args in _batches(names, entry):
                batch_args = (*args, *entry_args, *self._clock_args())
                replies.update(script.each(client, batch, batch_args, stream))
        return replies

    async def _aeach(
        self, script: Script, names: Iterable[bytes], *args: bytes | int, entry: Entry = None
    ) -> dict[bytes, Any]:
        replies: dict[bytes, Any] = {}
        with self._faults():
            client = async_connection(self.alias)
            for batch, stream, entry_args in _batches(names, entry):
                batch_args = (*args, *entry_args, *self._clock_args())
                replies.update(await script.run_each(client, batch, batch_args, stream))
        return replies

    # --- the whole dictionary: all keys of the server, or of all masters of a cluster ---

    def iter_keys(self, pattern: str = "*") -> Iterator[str]:
        key_pattern = KeyPattern(pattern)
        with self._faults():
            client = connection(self.alias)
            for batch in scan(client, self._prefix, _glob(key_pattern)):
                live = _true(LIVE.each(client, batch, self._clock_args()))
                yield from filter(key_pattern.matches, self._names(live, 0))

    async def aiter_keys(self, pattern: str = "*") -> AsyncIterator[str]:
        key_pattern = KeyPattern(pattern)
        with self._faults():
            client = async_connection(self.alias)
            async for batch in ascan(client, self._prefix, _glob(key_pattern)):
                live = _true(await LIVE.run_each(client, batch, self._clock_args()))
                for key in filter(key_pattern.matches, self._names(live, 0)):
                    yield key

    def get_keys(self, limit: int = 1024) -> list[str]:
        names: dict[bytes, None] = {}
        with self._faults():
            client = connection(self.alias)
            for batch in scan(client, self._prefix):
                names.update(_true(LIVE.each(client, batch, self._clock_args())))
                if 0 < limit <= len(names):
                    break
        return self._names(names, limit)

    async def aget_keys(self, limit: int = 1024) -> list[str]:
        names: dict[bytes, None] = {}
        with self._faults():
            client = async_connection(self.alias)
            async for batch in ascan(client, self._prefix):
                names.update(_true(await LIVE.run_each(client, batch, self._clock_args())))
                if 0 < limit <= len(names):
                    break
        return self._names(names, limit)

    def flush_all(self, entry: Entry = None) -> None:
        with self._faults():
            client = connection(self.alias)
            for batch in scan(client, self._prefix):
                FLUSH.each(client, batch, (self._stale, *self._clock_args()))
            if entry is not None:
                APPEND(client, (entry.key, entry.key), entry.args())

    async def aflush_all(self, entry: Entry = None) -> None:
        with self._faults():
            client = async_connection(self.alias)
            async for batch in ascan(client, self._prefix):
                await FLUSH.run_each(client, batch, (self._stale, *self._clock_args()))
            if entry is not None:
                await APPEND.run(client, (entry.key, entry.key), entry.args())

    def flush_expired(self, limit: int = 0) -> int:
        freed = 0
        with self._faults():
            client = connection(self.alias)
            for batch in scan(client, self._prefix):
                while batch and (not limit or freed < limit):
                    size = limit - freed if limit else len(batch)
                    chunk, batch = batch[:size], batch[size:]
                    freed += sum(FREE.each(client, chunk, self._clock_args()).values())
                if batch:
                    break
        return freed

    async def aflush_expired(self, limit: int = 0) -> int:
        freed = 0
        with self._faults():
            client = async_connection(self.alias)
            async for batch in ascan(client, self._prefix):
                while batch and (not limit or freed < limit):
                    size = limit - freed if limit else len(batch)
                    chunk, batch = batch[:size], batch[size:]
                    replies = await FREE.run_each(client, chunk, self._clock_args())
                    freed += sum(replies.values())
                if batch:
                    break
        return freed

    def capacity(self) -> int:
        with self._faults():
            return memory(connection(self.alias))[0]

    async def acapacity(self) -> int:
        with self._faults():
            return (await amemory(async_connection(self.alias)))[0]

    def free_space(self) -> int:
        with self._faults():
            return memory(connection(self.alias))[1]

    async def afree_space(self) -> int:
        with self._faults():
            return (await amemory(async_connection(self.alias)))[1]

    def stats(self) -> Stats:
        """Return the figures; `keys` includes readable expired items, and evictions are unknown."""
        with self._faults():
            client = connection(self.alias)
            return Stats(sum(len(batch) for batch in scan(client, self._prefix)), *memory(client), None)

    async def astats(self) -> Stats:
        with self._faults():
            client = async_connection(self.alias)
            keys = 0
            async for batch in ascan(client, self._prefix):
                keys += len(batch)
            return Stats(keys, *await amemory(client), None)

    def close(self) -> None:
        """Do nothing: the connections belong to the cache."""

    async def aclose(self) -> None:
        """Do nothing: the connections belong to the cache; they end with the loop."""

    # --- arguments of scripts, and errors ---

    def _call(self, script: Script, key: object, *args: bytes | int, entry: Entry = None) -> Any:
        keys: tuple[bytes, ...] = (self._prefix + encode_key(key),)
        if entry is not None:
            keys += (entry.key,)
            args += entry.args()
        if self._clock is not None:
            args += self._clock_args()
        try:
            return script(connection(self.alias), keys, args)
        except StoreError as error:
            raise self._fault(error) from error

    async def _acall(self, script: Script, key: object, *args: bytes | int, entry: Entry = None) -> Any:
        keys: tuple[bytes, ...] = (self._prefix + encode_key(key),)
        if entry is not None:
            keys += (entry.key,)
            args += entry.args()
        if self._clock is not None:
            args += self._clock_args()
        try:
            return await script.run(async_connection(self.alias), keys, args)
        except StoreError as error:
            raise self._fault(error) from error

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

    def _names(self, names: dict[bytes, None], limit: int) -> list[str]:
        ordered = list(names)
        return [decode_key(name[len(self._prefix) :]) for name in (ordered[:limit] if limit else ordered)]


def _true(replies: dict[bytes, Any]) -> dict[bytes, None]:
    return {name: None for name, reply in replies.items() if reply}


def _values(
    names: Mapping[Any, bytes], replies: Mapping[bytes, bytes | None], on_error: OnError | None
) -> dict[Any, Any]:
    """Return the values in the replies by key. Without `on_error`, raise `WrongKind` or `Unreadable`."""
    values = {}
    for key, name in names.items():
        reply = replies[name]
        if reply is not None:
            try:
                values[key] = unpacked(reply)
            except (WrongKind, Unreadable) as error:
                if on_error is None:
                    raise
                on_error(key, error)
    return values


def _batches(names: Iterable[bytes], entry: Entry) -> Iterator[tuple[Any, tuple[bytes, ...], Sent]]:
    """Yield the names in parts of at most `BATCH`, a mapping in mappings, with the stream and the arguments of the
    entry for the last part."""
    listed = list(names)
    for start in range(0, len(listed), BATCH):
        batch = listed[start : start + BATCH]
        is_last = entry is not None and start + BATCH >= len(listed)
        part = {name: names[name] for name in batch} if isinstance(names, Mapping) else batch
        yield part, (entry.key,) if is_last else (), entry.args() if is_last else ()


def _glob(pattern: KeyPattern) -> bytes:
    return pattern.server_glob.encode("utf-8", "surrogateescape")
