"""How a call becomes a script, and an error of Redis one of the dictionary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from resty_django.redis import Script, StoreError, StoreFull, async_connection, connection

from ..base import SharedDict
from ..codec import encode_key, milliseconds
from ..errors import NoMemory, SharedDictError, Unavailable


class Calls(SharedDict):
    """A name, the connection of a cache, and a prefix of keys."""

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
        # Quoted, so that no name of a dictionary with its colon begins another's, and none has braces for a slot.
        self.prefix = prefix or f"resty:dict:{quote(name, safe='')}:"
        self._prefix = self.prefix.encode()
        self._stale = milliseconds(stale)
        self._clock = clock

    def _call(self, script: Script, key: object, *args: bytes | int) -> Any:
        name = self._prefix + encode_key(key)
        if self._clock is not None:
            args += self._given()
        try:
            return script(connection(self.alias), (name,), args)
        except StoreError as error:
            raise self._fault(error) from error

    async def _acall(self, script: Script, key: object, *args: bytes | int) -> Any:
        name = self._prefix + encode_key(key)
        if self._clock is not None:
            args += self._given()
        try:
            return await script.run(async_connection(self.alias), (name,), args)
        except StoreError as error:
            raise self._fault(error) from error

    def _given(self) -> tuple[bytes, ...]:
        """The time for a script to take instead of the server's (item.lua)."""
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
                f"There is no room in the shared dictionary {self.name!r}: the Redis of the cache {self.alias!r} has "
                "used its maxmemory. Raise it, or set a maxmemory-policy that throws items out."
            )
        return Unavailable(
            f"The shared dictionary {self.name!r} cannot be used now, because of the Redis of the cache "
            f"{self.alias!r}: {error}"
        )
