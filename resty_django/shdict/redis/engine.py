"""The Redis engine: a call for one key is one Lua script and one round trip (`update`: two, and one more per conflict).

Each item is one hash under the prefix of the dictionary and its key, so on a cluster the items are distributed over the
nodes. The server's clock is used. Calls for the whole dictionary scan all keys. They are not atomic: concurrent writes
may or may not be included.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

from resty_django.redis import async_connection, connection
from resty_django.redis.keys import ServerMemory, amemory, ascan, memory, scan
from resty_django.sansio import Step, Steps, arun, run

from ..base import DictStats, Entry, Item, K, Keep, OnError, SharedDict, StoreOutcome, Update, decode_many
from ..codec import check_flags, decode_key, encode_key, milliseconds
from ..errors import Unavailable
from ..patterns import KeyPattern
from .scripts import SCRIPTS, ScriptCaller, each, stream_entry
from .wire import Sent, item, length, packed, packed_item, popped, to_add, to_store, total, unpacked

MAX_UPDATE_TRIES: Final = 1000
"""Maximum number of attempts of `update`, if other processes change the key each time."""


class RedisDict(ScriptCaller, SharedDict):
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
        # Quoted, so that no prefix begins another one, and names cannot contain hash tags.
        super().__init__(name, alias, prefix or f"resty:dict:{quote(name, safe='')}:", clock)
        self._stale = milliseconds(stale)

    # --- reading ---

    def get(self, key: object, default: Any = None) -> Any:
        data = self._call("get", key)
        return default if data is None else unpacked(data)

    async def aget(self, key: object, default: Any = None) -> Any:
        data = await self._acall("get", key)
        return default if data is None else unpacked(data)

    def get_item(self, key: object) -> Item | None:
        return item(self._call("look", key), stale=False)

    async def aget_item(self, key: object) -> Item | None:
        return item(await self._acall("look", key), stale=False)

    def get_stale(self, key: object) -> Item | None:
        return item(self._call("look", key), stale=True)

    async def aget_stale(self, key: object) -> Item | None:
        return item(await self._acall("look", key), stale=True)

    def ttl(self, key: object) -> float | None:
        remaining = self._call("ttl", key)
        return None if remaining is None else remaining / 1000

    async def attl(self, key: object) -> float | None:
        remaining = await self._acall("ttl", key)
        return None if remaining is None else remaining / 1000

    def llen(self, key: object) -> int:
        return length(self._call("llen", key))

    async def allen(self, key: object) -> int:
        return length(await self._acall("llen", key))

    # --- writing ---

    def set(self, key: object, value: object, ttl: float = 0, flags: int = 0, entry: Entry = None) -> StoreOutcome:
        if value is None:
            self.delete(key, entry)
        else:
            self._call("set", key, to_store(value, ttl, flags, self._stale), entry)
        return StoreOutcome.STORED

    async def aset(
        self, key: object, value: object, ttl: float = 0, flags: int = 0, entry: Entry = None
    ) -> StoreOutcome:
        if value is None:
            await self.adelete(key, entry)
        else:
            await self._acall("set", key, to_store(value, ttl, flags, self._stale), entry)
        return StoreOutcome.STORED

    safe_set, asafe_set = set, aset

    def add(self, key: object, value: object, ttl: float = 0, flags: int = 0, entry: Entry = None) -> StoreOutcome:
        stored = self._call("add", key, to_store(value, ttl, flags, self._stale), entry)
        return StoreOutcome.STORED if stored else StoreOutcome.EXISTS

    async def aadd(
        self, key: object, value: object, ttl: float = 0, flags: int = 0, entry: Entry = None
    ) -> StoreOutcome:
        stored = await self._acall("add", key, to_store(value, ttl, flags, self._stale), entry)
        return StoreOutcome.STORED if stored else StoreOutcome.EXISTS

    safe_add, asafe_add = add, aadd

    def add_or_get(self, key: object, value: object, ttl: float = 0, entry: Entry = None) -> Any:
        data = self._call("add_or_get", key, to_store(value, ttl, 0, self._stale), entry)
        return StoreOutcome.STORED if data is None else unpacked(data)

    async def aadd_or_get(self, key: object, value: object, ttl: float = 0, entry: Entry = None) -> Any:
        data = await self._acall("add_or_get", key, to_store(value, ttl, 0, self._stale), entry)
        return StoreOutcome.STORED if data is None else unpacked(data)

    def replace(self, key: object, value: object, ttl: float = 0, flags: int = 0) -> StoreOutcome:
        stored = self._call("replace", key, to_store(value, ttl, flags, self._stale))
        return StoreOutcome.STORED if stored else StoreOutcome.NOT_FOUND

    async def areplace(self, key: object, value: object, ttl: float = 0, flags: int = 0) -> StoreOutcome:
        stored = await self._acall("replace", key, to_store(value, ttl, flags, self._stale))
        return StoreOutcome.STORED if stored else StoreOutcome.NOT_FOUND

    def delete(self, key: object, entry: Entry = None) -> bool:
        return bool(self._call("delete", key, (), entry))

    async def adelete(self, key: object, entry: Entry = None) -> bool:
        return bool(await self._acall("delete", key, (), entry))

    def delete_if(self, key: object, value: object) -> bool:
        return bool(self._call("delete", key, (packed(value),)))

    async def adelete_if(self, key: object, value: object) -> bool:
        return bool(await self._acall("delete", key, (packed(value),)))

    def incr(self, key: object, by: float = 1, init: float | None = None, init_ttl: float = 0) -> Any:
        return total(self._call("incr", key, to_add(by, init, init_ttl, self._stale)), key, by)

    async def aincr(self, key: object, by: float = 1, init: float | None = None, init_ttl: float = 0) -> Any:
        return total(await self._acall("incr", key, to_add(by, init, init_ttl, self._stale)), key, by)

    def expire(self, key: object, ttl: float) -> bool:
        return bool(self._call("expire", key, (milliseconds(ttl), self._stale)))

    async def aexpire(self, key: object, ttl: float) -> bool:
        return bool(await self._acall("expire", key, (milliseconds(ttl), self._stale)))

    def expire_if(self, key: object, value: object, ttl: float) -> bool:
        return bool(self._call("expire", key, (milliseconds(ttl), self._stale, packed(value))))

    async def aexpire_if(self, key: object, value: object, ttl: float) -> bool:
        return bool(await self._acall("expire", key, (milliseconds(ttl), self._stale, packed(value))))

    def update(self, key: object, function: Callable[[Any], Update | Keep], entry: Entry = None) -> Any:
        return run(self._update(key, function, entry))

    async def aupdate(self, key: object, function: Callable[[Any], Update | Keep], entry: Entry = None) -> Any:
        return await arun(self._update(key, function, entry))

    def _update(self, key: object, function: Callable[[Any], Update | Keep], entry: Entry) -> Steps[Any]:
        old = (yield Step(self._call, self._acall, ("get", key))) or b""
        for _ in range(MAX_UPDATE_TRIES):
            change = function(unpacked(old) if old else None)
            if isinstance(change, Keep):
                return change.result
            if not isinstance(change, Update):
                raise TypeError(f"The function of update() returned {change!r}, neither an Update nor a Keep.")
            new, ttl = b"" if change.value is None else packed(change.value), change.ttl
            args = (old, new) if ttl is None else (old, new, milliseconds(ttl), self._stale)
            stored = yield Step(self._call, self._acall, ("swap", key, args, entry))
            if stored is None:
                return change.result
            old = stored
        raise Unavailable(
            f"update() of the key {key!r} in {self} was overtaken by other writers {MAX_UPDATE_TRIES} times. "
            "Distribute the writes over several keys."
        )

    def lpush(self, key: object, value: object) -> int:
        return length(self._call("push", key, (b"l", packed_item(value))))

    async def alpush(self, key: object, value: object) -> int:
        return length(await self._acall("push", key, (b"l", packed_item(value))))

    def rpush(self, key: object, value: object) -> int:
        return length(self._call("push", key, (b"r", packed_item(value))))

    async def arpush(self, key: object, value: object) -> int:
        return length(await self._acall("push", key, (b"r", packed_item(value))))

    def lpop(self, key: object) -> Any:
        return popped(self._call("pop", key, (b"l",)))

    async def alpop(self, key: object) -> Any:
        return popped(await self._acall("pop", key, (b"l",)))

    def rpop(self, key: object) -> Any:
        return popped(self._call("pop", key, (b"r",)))

    async def arpop(self, key: object) -> Any:
        return popped(await self._acall("pop", key, (b"r",)))

    # --- many keys ---

    def get_many(self, keys: Iterable[K], on_error: OnError | None = None) -> dict[K, Any]:
        return run(self._get_many(keys, on_error))

    async def aget_many(self, keys: Iterable[K], on_error: OnError | None = None) -> dict[K, Any]:
        return await arun(self._get_many(keys, on_error))

    def _get_many(self, keys: Iterable[K], on_error: OnError | None) -> Steps[dict[K, Any]]:
        names = self._names_of(keys)
        replies = yield from self._each("get_many", names.values())
        payloads = {key: replies[name] for key, name in names.items() if replies[name] is not None}
        return decode_many(payloads, unpacked, on_error)

    def set_many(
        self, values: Mapping[K, object], ttl: float | Mapping[K, float] = 0, flags: int = 0, entry: Entry = None
    ) -> list[K]:
        return run(self._set_many(values, ttl, flags, entry))

    async def aset_many(
        self, values: Mapping[K, object], ttl: float | Mapping[K, float] = 0, flags: int = 0, entry: Entry = None
    ) -> list[K]:
        return await arun(self._set_many(values, ttl, flags, entry))

    def _set_many(
        self, values: Mapping[K, object], ttl: float | Mapping[K, float], flags: int, entry: Entry
    ) -> Steps[list[K]]:
        names = self._names_of(values)
        items, absent = self._items_of(names, values, ttl)
        args = (self._stale, check_flags(flags))
        stored = yield from self._each("set_many", items, args, None if absent else entry)
        if absent:
            yield from self._delete_many(absent, entry)
        return [key for key, name in names.items() if stored.get(name) == 0]

    def delete_many(self, keys: Iterable[object], entry: Entry = None) -> int:
        return run(self._delete_many(keys, entry))

    async def adelete_many(self, keys: Iterable[object], entry: Entry = None) -> int:
        return await arun(self._delete_many(keys, entry))

    def _delete_many(self, keys: Iterable[object], entry: Entry) -> Steps[int]:
        replies = yield from self._each("delete_many", self._names_of(keys).values(), (), entry)
        return sum(replies.values())

    def _names_of(self, keys: Iterable[K]) -> dict[K, bytes]:
        return {key: self._prefix + encode_key(key) for key in keys}

    @staticmethod
    def _items_of(
        names: Mapping[K, bytes], values: Mapping[K, object], ttl: float | Mapping[K, float]
    ) -> tuple[dict[bytes, Sent], list[K]]:
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

    # --- the whole dictionary: all keys of the server, or of all masters of a cluster ---

    def iter_keys(self, pattern: str = "*") -> Iterator[str]:
        key_pattern = KeyPattern(pattern)
        with self._faults():
            client = connection(self.alias)
            for batch in scan(client, self._prefix, _glob(key_pattern)):
                live = SCRIPTS["live"].each(client, batch, self._clock_args())
                yield from filter(key_pattern.matches, self._keys(live))

    async def aiter_keys(self, pattern: str = "*") -> AsyncIterator[str]:
        key_pattern = KeyPattern(pattern)
        with self._faults():
            client = async_connection(self.alias)
            async for batch in ascan(client, self._prefix, _glob(key_pattern)):
                live = await SCRIPTS["live"].run_each(client, batch, self._clock_args())
                for key in filter(key_pattern.matches, self._keys(live)):
                    yield key

    def get_keys(self, limit: int = 1024) -> list[str]:
        return run(self._get_keys(limit))

    async def aget_keys(self, limit: int = 1024) -> list[str]:
        return await arun(self._get_keys(limit))

    def _get_keys(self, limit: int) -> Steps[list[str]]:
        keys: dict[str, None] = {}
        with self._faults():
            client, next_batch = yield from self._scan()
            while not 0 < limit <= len(keys) and (batch := (yield next_batch)):
                live = yield each("live", client, batch, self._clock_args())
                keys.update(dict.fromkeys(self._keys(live)))
        return list(keys)[: limit or None]

    def flush_all(self, entry: Entry = None) -> None:
        run(self._flush_all(entry))

    async def aflush_all(self, entry: Entry = None) -> None:
        await arun(self._flush_all(entry))

    def _flush_all(self, entry: Entry) -> Steps[None]:
        stream = None if entry is None else stream_entry(entry)
        with self._faults():
            client, next_batch = yield from self._scan()
            while batch := (yield next_batch):
                yield each("flush", client, batch, (self._stale, *self._clock_args()))
            if stream is not None:
                append = SCRIPTS["append"]
                yield Step(append, append.run, (client, (stream.key, stream.key), stream.args()))

    def flush_expired(self, limit: int = 0) -> int:
        return run(self._flush_expired(limit))

    async def aflush_expired(self, limit: int = 0) -> int:
        return await arun(self._flush_expired(limit))

    def _flush_expired(self, limit: int) -> Steps[int]:
        freed = 0
        with self._faults():
            client, next_batch = yield from self._scan()
            while batch := (yield next_batch):
                while batch:
                    if limit and freed >= limit:
                        return freed
                    size = limit - freed if limit else len(batch)
                    chunk, batch = batch[:size], batch[size:]
                    replies = yield each("free", client, chunk, self._clock_args())
                    freed += sum(replies.values())
        return freed

    def capacity(self) -> int:
        return run(self._memory()).limit

    async def acapacity(self) -> int:
        return (await arun(self._memory())).limit

    def free_space(self) -> int:
        return run(self._memory()).free

    async def afree_space(self) -> int:
        return (await arun(self._memory())).free

    def _memory(self) -> Steps[ServerMemory]:
        with self._faults():
            figures: ServerMemory = yield Step(memory, amemory, ((yield self._connected),))
        return figures

    def stats(self) -> DictStats:
        """Return the figures; `keys` includes readable expired items, and evictions are unknown."""
        return run(self._stats())

    async def astats(self) -> DictStats:
        return await arun(self._stats())

    def _stats(self) -> Steps[DictStats]:
        keys = 0
        with self._faults():
            _, next_batch = yield from self._scan()
            while batch := (yield next_batch):
                keys += len(batch)
        server = yield from self._memory()
        return DictStats(keys, server.limit, server.free, None)

    def close(self) -> None:
        """Do nothing: the connections belong to the cache."""

    async def aclose(self) -> None:
        """Do nothing: the connections belong to the cache; they end with the loop."""

    def _keys(self, live: Mapping[bytes, object]) -> list[str]:
        """Return the keys of the names with a true reply."""
        return [decode_key(name[len(self._prefix) :]) for name, is_live in live.items() if is_live]


def _glob(pattern: KeyPattern) -> bytes:
    return pattern.server_glob.encode("utf-8", "surrogateescape")
