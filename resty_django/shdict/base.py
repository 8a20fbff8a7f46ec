"""The interface of shared dictionaries, common to all engines."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from msgspec import Struct

R = TypeVar("R")


class Outcome(enum.Enum):
    """The outcome of a storing call. True where the value was stored.

    `FORCED`: stored, but items that had not expired were evicted for it: the dictionary is too small.
    """

    STORED = "stored"
    FORCED = "stored by force"
    EXISTS = "exists"
    NOT_FOUND = "not found"

    def __bool__(self) -> bool:
        return self in _STORED

    @property
    def forcible(self) -> bool:
        """Whether items that had not expired were evicted for it."""
        return self is Outcome.FORCED


_STORED: Final = frozenset({Outcome.STORED, Outcome.FORCED})


class Item(NamedTuple):
    """A value with its flags; `stale`: it has expired."""

    value: Any
    flags: int = 0
    stale: bool = False


class Change(Struct, frozen=True, gc=False):
    """The change that the function of `update` returns.

    `value`: the new value (None: delete the key). `ttl`: seconds to live (0: forever, None: leave the expiry as it
    is). `result`: what `update` returns.
    """

    value: Any
    ttl: float | None = None
    result: Any = None


class Keep(Struct, frozen=True, gc=False):
    """Returned by the function of `update` to change nothing."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Stats:
    """The figures of a dictionary. None: the engine does not know."""

    keys: int | None
    capacity: int
    free_space: int
    forcible: int | None
    """Items evicted before they expired, since the dictionary was created."""


class SharedDict(ABC):
    """A dictionary that all processes share. Each call is atomic.

    **Keys** are texts of 1 to 65535 bytes; other types are turned into text; bytes are taken as they are.
    **Values** are texts, whole numbers of 64 bits, floats, booleans, bytes, and lists and dicts of these; each comes
    back as the type it was (a tuple as a list). **Times** are seconds with a resolution of one millisecond; 0 is
    forever, and an item has expired when its time is over to the millisecond. **Flags** are a whole number of 32 bits.

    Any call may raise `BadKey`, or `Unavailable` when the memory or the server behind it cannot be used; calls that
    store may raise `BadValue` and, when there is no room, `NoMemory`.

    The twins with an `a` before the name are for asyncio. They never block the loop on a network.
    """

    engine: ClassVar[str]
    stats_search: ClassVar[bool] = False
    """Whether `stats()` looks through all keys of a server to count those of the dictionary."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    # --- reading ---

    @abstractmethod
    def get(self, key: object, default: Any = None) -> Any:
        """Return the value, or `default` when the key is absent or expired. Raises `WrongKind` for a list."""

    @abstractmethod
    def get_item(self, key: object) -> Item | None:
        """Return the value with its flags, or None."""

    @abstractmethod
    def get_stale(self, key: object) -> Item | None:
        """Return what `get_item` does, or an expired item (`stale` is then true) as long as it is still in memory."""

    @abstractmethod
    def ttl(self, key: object) -> float | None:
        """Return the seconds until the item expires, 0 if it never does; None when it is absent or expired."""

    @abstractmethod
    def llen(self, key: object) -> int:
        """Return the length of a list; 0 when it is absent. Raises `WrongKind`."""

    @abstractmethod
    def get_keys(self, limit: int = 1024) -> list[str]:
        """Return keys that have not expired, at most `limit` (0: all).

        LMDB lists those first that it would evict first. Redis has no order, and looks through all keys of its server.
        """

    # --- writing ---

    @abstractmethod
    def set(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        """Store, and evict items for it if need be. The value None deletes the key."""

    @abstractmethod
    def safe_set(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        """As `set`, but raises `NoMemory` rather than evict items that have not expired."""

    @abstractmethod
    def add(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        """Store only where the key is absent or expired; else `Outcome.EXISTS`, which is false."""

    @abstractmethod
    def safe_add(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        """As `add`, but raises `NoMemory` rather than evict items that have not expired."""

    @abstractmethod
    def replace(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        """Store only where the key is present; else `Outcome.NOT_FOUND`, which is false."""

    @abstractmethod
    def delete(self, key: object) -> bool:
        """Delete a value or a list. True if it was there and had not expired."""

    @abstractmethod
    def delete_if(self, key: object, value: Any) -> bool:
        """Delete only if the key holds just this value, of the same type. True if it did."""

    @abstractmethod
    def incr(self, key: object, by: float = 1, init: float | None = None, init_ttl: float = 0) -> Any:
        """Add `by` and return the new number.

        The expiry and the flags stay. A key that is absent or expired becomes `init + by` and lives `init_ttl`
        seconds; without `init` it raises `NotFound`. Whole numbers stay whole where `by` is whole. Raises
        `NotANumber`, `BadValue` when the sum needs more than 64 bits, `ValueError` for `init_ttl` without `init`.
        """

    @abstractmethod
    def expire(self, key: object, ttl: float) -> bool:
        """Give the item a new time to live. False when it is absent or expired."""

    @abstractmethod
    def expire_if(self, key: object, value: Any, ttl: float) -> bool:
        """As `expire`, but only if the key holds just this value, of the same type."""

    @abstractmethod
    def update(self, key: object, function: Callable[[Any], Change | Keep]) -> Any:
        """Read, change and write one key as one step, and return the result that `function` gives.

        `function` gets the value (None when absent or expired) and returns a `Change`, or `Keep` to write nothing.
        It must be quick, must not use a shared dictionary and must not fork. LMDB calls it inside the write
        transaction, and again if room had to be made for its value; Redis calls it again when somebody else changed
        the key meanwhile. So it must have no other effect. When it raises, nothing changes.
        """

    @abstractmethod
    def lpush(self, key: object, value: Any) -> int:
        """Put a text, number or bytes at the head of a list and return its length.

        An absent key becomes a list without expiry. Never evicts items. Raises `WrongKind`, `NoMemory`.
        """

    @abstractmethod
    def rpush(self, key: object, value: Any) -> int:
        """As `lpush`, at the tail."""

    @abstractmethod
    def lpop(self, key: object) -> Any:
        """Take the head of a list; None when it is absent. The last pop removes the key. Raises `WrongKind`."""

    @abstractmethod
    def rpop(self, key: object) -> Any:
        """As `lpop`, from the tail."""

    # --- the whole ---

    @abstractmethod
    def flush_all(self) -> None:
        """Mark all items expired. `get_stale` may still return them."""

    @abstractmethod
    def flush_expired(self, limit: int = 0) -> int:
        """Free the memory of expired items, at most `limit` (0: all). Returns how many."""

    @abstractmethod
    def capacity(self) -> int:
        """Return the configured size in bytes; for Redis the bound of its server's memory (0: none is set)."""

    @abstractmethod
    def free_space(self) -> int:
        """Return the bytes in whole free pages; 0 does not mean full. For Redis the memory that its server has left."""

    @abstractmethod
    def stats(self) -> Stats:
        """Return figures for operators."""

    def quick_stats(self) -> Stats:
        """Return `stats()` without the figures that would need a scan of all keys of a server: those are None."""
        if self.stats_search:
            return Stats(None, self.capacity(), self.free_space(), None)
        return self.stats()

    @abstractmethod
    def close(self) -> None:
        """Release the memory or the connections; the next call opens them again."""

    def faults(self) -> list[str]:
        """Return faults of the memory that do not make calls fail, as sentences for operators."""
        return []

    # --- the same for asyncio: engines that may wait for a network override these ---

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

    async def aset(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self.set(key, value, ttl, flags)

    async def asafe_set(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self.safe_set(key, value, ttl, flags)

    async def aadd(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self.add(key, value, ttl, flags)

    async def asafe_add(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self.safe_add(key, value, ttl, flags)

    async def areplace(self, key: object, value: Any, ttl: float = 0, flags: int = 0) -> Outcome:
        return self.replace(key, value, ttl, flags)

    async def adelete(self, key: object) -> bool:
        return self.delete(key)

    async def adelete_if(self, key: object, value: Any) -> bool:
        return self.delete_if(key, value)

    async def aincr(self, key: object, by: float = 1, init: float | None = None, init_ttl: float = 0) -> Any:
        return self.incr(key, by, init, init_ttl)

    async def aexpire(self, key: object, ttl: float) -> bool:
        return self.expire(key, ttl)

    async def aexpire_if(self, key: object, value: Any, ttl: float) -> bool:
        return self.expire_if(key, value, ttl)

    async def aupdate(self, key: object, function: Callable[[Any], Change | Keep]) -> Any:
        return self.update(key, function)

    async def alpush(self, key: object, value: Any) -> int:
        return self.lpush(key, value)

    async def arpush(self, key: object, value: Any) -> int:
        return self.rpush(key, value)

    async def alpop(self, key: object) -> Any:
        return self.lpop(key)

    async def arpop(self, key: object) -> Any:
        return self.rpop(key)

    async def aflush_all(self) -> None:
        self.flush_all()

    async def aflush_expired(self, limit: int = 0) -> int:
        return self.flush_expired(limit)

    async def acapacity(self) -> int:
        return self.capacity()

    async def afree_space(self) -> int:
        return self.free_space()

    async def astats(self) -> Stats:
        return self.stats()

    async def aclose(self) -> None:
        self.close()
