"""The interface of shared dictionaries, common to all engines."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

from .bell import Bell
from .errors import SharedDictError, Unreadable, WrongKind

K = TypeVar("K")
P = TypeVar("P")

OnError: TypeAlias = Callable[[Any, SharedDictError], object]
"""Takes a key and the error of its item."""


class StoreOutcome(enum.Enum):
    """The outcome of a call that stores; true if the value was stored.

    `FORCED`: stored, but items that had not expired were evicted, so the dictionary is too small.
    """

    STORED = "stored"
    FORCED = "stored by force"
    EXISTS = "exists"
    NOT_FOUND = "not found"

    def __bool__(self) -> bool:
        return self is StoreOutcome.STORED or self is StoreOutcome.FORCED

    @property
    def forcible(self) -> bool:
        """Whether items that had not expired were evicted."""
        return self is StoreOutcome.FORCED


class Item(NamedTuple):
    """A value with its flags; `stale`: it has expired."""

    value: Any
    flags: int = 0
    stale: bool = False


class Update(Struct, frozen=True, gc=False):
    """A change, returned by the function passed to `update`.

    `value`: the new value (None: delete the key). `ttl`: time to live in seconds (0: forever, None: keep the expiry).
    `result`: the return value of `update`.
    """

    value: Any
    ttl: float | None = None
    result: Any = None


class Keep(Struct, frozen=True, gc=False):
    """Returned by the function passed to `update` to leave the item unchanged."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class DictStats:
    """The figures of a dictionary; None: unknown to the engine."""

    keys: int | None
    capacity: int
    """Bytes available for items: for LMDB, about three quarters of the size; for Redis, the server's `maxmemory`."""
    free_space: int
    forcible: int | None
    """Number of items evicted before they expired, since the dictionary was created."""


class StreamEntry(NamedTuple):
    """An entry of a Redis stream on the server of the item; the stream keeps about the last `keep` entries."""

    key: bytes
    field: bytes
    record: bytes
    keep: int

    def args(self) -> tuple[bytes, bytes, bytes]:
        """Return the arguments of entry.lua."""
        return self.field, self.record, b"+%d" % self.keep


Entry: TypeAlias = bytes | StreamEntry | None
"""A journal entry that a call appends atomically with its change, for processes that follow the journal.

It is bytes for LMDB, a `StreamEntry` for Redis, or None. `set`, `delete`, `delete_many` and `flush_all` always append
it; `add`, `add_or_get`, `update` and `set_many` only if they change an item. `set_many` and `delete_many` append it
with their last keys; on Redis, `flush_all` appends it afterwards.
"""


class SharedDict(ABC):
    """A dictionary shared by all processes. Each call for one key is atomic.

    **Keys** are strings of 1 to 65535 bytes; other types are converted with `str()`, and bytes are used unchanged.
    **Values** are str, 64-bit integers, floats, bool, bytes, and lists and dicts of these; types are preserved (but a
    tuple becomes a list). **Times** are seconds with millisecond precision; 0 means forever. **Flags** are a 32-bit
    integer.

    Any call may raise `BadKey`, or `Unavailable` if the memory or the server cannot be used. Calls that store may raise
    `BadValue`, and `NoMemory` if there is no space.

    Async twins have the prefix `a`. They never block the event loop on network I/O.
    """

    engine: ClassVar[str]
    stats_search: ClassVar[bool] = False
    """Whether `stats()` must scan all keys of a server to count the dictionary's keys."""
    bell: Bell | None = None
    """Rings when an entry is appended to the journal; None without a journal, or while it is closed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    # --- reading ---

    @abstractmethod
    def get(self, key: object, default: Any = None) -> Any:
        """Return the value, or `default` if the key is absent or expired. Raise `WrongKind` for a list."""

    @abstractmethod
    def get_item(self, key: object) -> Item | None:
        """Return the value with its flags; None if the key is absent or expired."""

    @abstractmethod
    def get_stale(self, key: object) -> Item | None:
        """Like `get_item`, but also return an expired item (`stale` is then true) while it is still in memory."""

    @abstractmethod
    def ttl(self, key: object) -> float | None:
        """Return the seconds until the item expires; 0 if it never does, None if it is absent or expired."""

    @abstractmethod
    def llen(self, key: object) -> int:
        """Return the length of a list; 0 if it is absent. Raise `WrongKind`."""

    @abstractmethod
    def get_keys(self, limit: int = 1024) -> list[str]:
        """Return keys that have not expired, at most `limit` (0: all).

        LMDB returns keys in eviction order. Redis has no order, and scans all keys of the server.
        """

    @abstractmethod
    def iter_keys(self, pattern: str = "*") -> Iterator[str]:
        """Yield the keys that match a pattern and have not expired.

        The pattern has the syntax of Redis: `*`, `?`, `[a-z]`, `[^a-z]`, and `\\` before a literal. Keys are examined
        in small steps, between which other calls continue. Keys that are written or deleted meanwhile may or may not be
        included, and a key may be yielded twice. Raise `BadKey` for a pattern of more than 1000 characters.
        """

    # --- writing ---

    @abstractmethod
    def set(self, key: object, value: object, ttl: float = 0, flags: int = 0, entry: Entry = None) -> StoreOutcome:
        """Store a value, evicting items if necessary. The value None deletes the key."""

    @abstractmethod
    def safe_set(self, key: object, value: object, ttl: float = 0, flags: int = 0) -> StoreOutcome:
        """Like `set`, but raise `NoMemory` instead of evicting items that have not expired."""

    @abstractmethod
    def add(self, key: object, value: object, ttl: float = 0, flags: int = 0, entry: Entry = None) -> StoreOutcome:
        """Store only if the key is absent or expired; else return `StoreOutcome.EXISTS`, which is false."""

    def add_or_get(self, key: object, value: object, ttl: float = 0, entry: Entry = None) -> Any:
        """Store only if the key is absent or expired, and return the `StoreOutcome`; else return the value that exists.

        Return None if it has expired in between. Raise `WrongKind` for a list.
        """
        return self.add(key, value, ttl, 0, entry) or self.get(key)

    @abstractmethod
    def safe_add(self, key: object, value: object, ttl: float = 0, flags: int = 0) -> StoreOutcome:
        """Like `add`, but raise `NoMemory` instead of evicting items that have not expired."""

    @abstractmethod
    def replace(self, key: object, value: object, ttl: float = 0, flags: int = 0) -> StoreOutcome:
        """Store only if the key exists; else return `StoreOutcome.NOT_FOUND`, which is false."""

    @abstractmethod
    def delete(self, key: object, entry: Entry = None) -> bool:
        """Delete a value or a list. Return whether it existed and had not expired."""

    @abstractmethod
    def delete_if(self, key: object, value: object) -> bool:
        """Delete the key only if it has exactly this value, of the same type. Return whether it did."""

    @abstractmethod
    def incr(self, key: object, by: float = 1, init: float | None = None, init_ttl: float = 0) -> Any:
        """Add `by` and return the new number.

        Expiry and flags are kept. If the key is absent or expired, store `init + by` for `init_ttl` seconds, or without
        `init` raise `NotFound`. Integers stay integers if `by` is one. Raise `NotANumber`, `BadValue` if the sum needs
        more than 64 bits, and `ValueError` for `init_ttl` without `init`.
        """

    @abstractmethod
    def expire(self, key: object, ttl: float) -> bool:
        """Set a new time to live in seconds. Return False if the key is absent or expired."""

    @abstractmethod
    def expire_if(self, key: object, value: object, ttl: float) -> bool:
        """Like `expire`, but only if the key has exactly this value, of the same type."""

    @abstractmethod
    def update(self, key: object, function: Callable[[Any], Update | Keep], entry: Entry = None) -> Any:
        """Read, change and write one key atomically, and return the `result` of the function's `Update` or `Keep`.

        `function` takes the value (None if absent or expired) and returns an `Update`, or `Keep` to write nothing. It
        must be fast, must not use a shared dictionary and must not fork. LMDB calls it inside the write transaction,
        and again if items had to be evicted first; Redis calls it again if another process changed the key meanwhile.
        So it must not have side effects. If it raises, nothing changes.
        """

    @abstractmethod
    def lpush(self, key: object, value: object) -> int:
        """Add a str, number or bytes at the head of a list and return its length.

        An absent key becomes a list without expiry. Never evicts items. Raise `WrongKind` or `NoMemory`.
        """

    @abstractmethod
    def rpush(self, key: object, value: object) -> int:
        """Like `lpush`, at the tail."""

    @abstractmethod
    def lpop(self, key: object) -> Any:
        """Remove and return the head of a list; None if absent. The last pop deletes the key. Raise `WrongKind`."""

    @abstractmethod
    def rpop(self, key: object) -> Any:
        """Like `lpop`, from the tail."""

    # --- many keys: one transaction, or one round trip to each server; other processes may see some of the changes ---

    @abstractmethod
    def get_many(self, keys: Iterable[K], on_error: OnError | None = None) -> dict[K, Any]:
        """Return the values of the keys that exist and have not expired, by key as passed, in this order.

        `on_error`: a function that takes a key and its `WrongKind` or `Unreadable`; the key then counts as absent.
        Without it, the first such error is raised.
        """

    @abstractmethod
    def set_many(
        self, values: Mapping[K, object], ttl: float | Mapping[K, float] = 0, flags: int = 0, entry: Entry = None
    ) -> list[K]:
        """Store all values, evicting items if necessary. Return the keys that were not stored for lack of space.

        `ttl`: seconds for all keys, or a mapping of each key to its seconds. The value None deletes its key. A key that
        was not stored keeps its old value. Nothing is stored if a key, a value or a time is invalid.
        """

    @abstractmethod
    def delete_many(self, keys: Iterable[object], entry: Entry = None) -> int:
        """Delete values and lists. Return the number of keys that existed and had not expired."""

    # --- the whole dictionary ---

    @abstractmethod
    def flush_all(self, entry: Entry = None) -> None:
        """Mark all items expired. `get_stale` may still return them."""

    @abstractmethod
    def flush_expired(self, limit: int = 0) -> int:
        """Free the memory of at most `limit` expired items (0: all). Return their number."""

    @abstractmethod
    def capacity(self) -> int:
        """Return the configured size in bytes; for Redis, the server's `maxmemory` (0: not set)."""

    @abstractmethod
    def free_space(self) -> int:
        """Return the bytes in whole free pages; 0 does not mean full. For Redis, the free memory of the server."""

    @abstractmethod
    def stats(self) -> DictStats:
        """Return the figures of the dictionary."""

    def quick_stats(self) -> DictStats:
        """Return `stats()` with None for figures that would need a scan of all keys of a server."""
        if self.stats_search:
            return DictStats(None, self.capacity(), self.free_space(), None)
        return self.stats()

    def delete_later(self, key: object, value: Any, error: Exception) -> None:  # noqa: B027 - a hook
        """Do `delete_if` when the store answers again: `error` left it open whether the lock `key` is held.

        A dictionary that does not watch its store does nothing, and the lock expires.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the memory or the connections; the next call opens them again."""

    def warnings(self) -> list[str]:
        """Return descriptions of what operators should improve although nothing fails."""
        return []

    def faults(self) -> list[str]:
        """Return descriptions of faults that do not make calls fail, for operators."""
        return []

    # --- the same for asyncio; engines with network I/O override these ---

    async def aget(self, key: object, default: Any = None) -> Any:
        return self.get(key, default)

    async def aget_item(self, key: object) -> Item | None:
        return self.get_item(key)

    async def aget_stale(self, key: object) -> Item | None:
        return self.get_stale(key)

    async def attl(self, key: object) -> float | None:
        return self.ttl(key)

    async def allen(self, key: object) -> int:
        return self.llen(key)

    async def aget_keys(self, limit: int = 1024) -> list[str]:
        return self.get_keys(limit)

    async def aiter_keys(self, pattern: str = "*") -> AsyncIterator[str]:
        for key in self.iter_keys(pattern):
            yield key

    async def aget_many(self, keys: Iterable[K], on_error: OnError | None = None) -> dict[K, Any]:
        return self.get_many(keys, on_error)

    async def aset_many(
        self, values: Mapping[K, object], ttl: float | Mapping[K, float] = 0, flags: int = 0, entry: Entry = None
    ) -> list[K]:
        return self.set_many(values, ttl, flags, entry)

    async def adelete_many(self, keys: Iterable[object], entry: Entry = None) -> int:
        return self.delete_many(keys, entry)

    async def aset(
        self, key: object, value: object, ttl: float = 0, flags: int = 0, entry: Entry = None
    ) -> StoreOutcome:
        return self.set(key, value, ttl, flags, entry)

    async def asafe_set(self, key: object, value: object, ttl: float = 0, flags: int = 0) -> StoreOutcome:
        return self.safe_set(key, value, ttl, flags)

    async def aadd(
        self, key: object, value: object, ttl: float = 0, flags: int = 0, entry: Entry = None
    ) -> StoreOutcome:
        return self.add(key, value, ttl, flags, entry)

    async def aadd_or_get(self, key: object, value: object, ttl: float = 0, entry: Entry = None) -> Any:
        return self.add_or_get(key, value, ttl, entry)

    async def asafe_add(self, key: object, value: object, ttl: float = 0, flags: int = 0) -> StoreOutcome:
        return self.safe_add(key, value, ttl, flags)

    async def areplace(self, key: object, value: object, ttl: float = 0, flags: int = 0) -> StoreOutcome:
        return self.replace(key, value, ttl, flags)

    async def adelete(self, key: object, entry: Entry = None) -> bool:
        return self.delete(key, entry)

    async def adelete_if(self, key: object, value: object) -> bool:
        return self.delete_if(key, value)

    async def aincr(self, key: object, by: float = 1, init: float | None = None, init_ttl: float = 0) -> Any:
        return self.incr(key, by, init, init_ttl)

    async def aexpire(self, key: object, ttl: float) -> bool:
        return self.expire(key, ttl)

    async def aexpire_if(self, key: object, value: object, ttl: float) -> bool:
        return self.expire_if(key, value, ttl)

    async def aupdate(self, key: object, function: Callable[[Any], Update | Keep], entry: Entry = None) -> Any:
        return self.update(key, function, entry)

    async def alpush(self, key: object, value: object) -> int:
        return self.lpush(key, value)

    async def arpush(self, key: object, value: object) -> int:
        return self.rpush(key, value)

    async def alpop(self, key: object) -> Any:
        return self.lpop(key)

    async def arpop(self, key: object) -> Any:
        return self.rpop(key)

    async def aflush_all(self, entry: Entry = None) -> None:
        self.flush_all(entry)

    async def aflush_expired(self, limit: int = 0) -> int:
        return self.flush_expired(limit)

    async def acapacity(self) -> int:
        return self.capacity()

    async def afree_space(self) -> int:
        return self.free_space()

    async def astats(self) -> DictStats:
        return self.stats()

    async def aclose(self) -> None:
        self.close()


def decode_many(payloads: Mapping[K, P], decode: Callable[[P], Any], on_error: OnError | None) -> dict[K, Any]:
    """Return the decoded payloads by key, for `get_many`."""
    values = {}
    for key, payload in payloads.items():
        try:
            values[key] = decode(payload)
        except (WrongKind, Unreadable) as error:
            if on_error is None:
                raise
            on_error(key, error)
    return values
