"""The Lua scripts of the Redis engine, one for each kind of call, and their calls for the keys of a dictionary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from resty_django.redis import AsyncClient, Client, LuaScript, StoreError, StoreFull, async_connection, connection
from resty_django.redis.keys import SCAN_BATCH_KEYS, ascan, scan
from resty_django.sansio import Step, Steps

from ..base import Entry, StreamEntry
from ..codec import encode_key
from ..errors import NoMemory, SharedDictError, Unavailable
from .wire import Sent, separated

Names: TypeAlias = Mapping[bytes, Sent] | Iterable[bytes]
"""Names of items, or a mapping of names to separate arguments of a script."""


def _script(*names: str, listed: Callable[[Any], Sequence[Any]] | None = None) -> LuaScript:
    folder = Path(__file__).parent / "lua"
    return LuaScript(*(folder / f"{name}.lua" for name in ("item", *names)), listed=listed)


SCRIPTS: Final = {
    "add": _script("save", "entry", "add"),
    "add_or_get": _script("save", "entry", "add_or_get"),
    "append": _script("entry", "append"),
    "delete": _script("entry", "delete"),
    "delete_many": _script("entry", "delete_many"),
    "expire": _script("save", "expire"),
    "flush": _script("flush"),
    "free": _script("free"),
    "get": _script("get"),
    "get_many": _script("get_many", listed=separated),
    "incr": _script("save", "incr"),
    "live": _script("live"),
    "llen": _script("llen"),
    "look": _script("look"),
    "pop": _script("pop"),
    "push": _script("push"),
    "replace": _script("save", "replace"),
    "set": _script("save", "entry", "set"),
    "set_many": _script("save", "entry", "set_many"),
    "swap": _script("save", "entry", "swap"),
    "ttl": _script("ttl"),
}
"""The scripts by name, each joined from the files in the folder `lua` that it needs."""


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

    def _call(self, script: str, key: object, args: Sent = (), entry: Entry = None) -> Any:
        """Return the reply of a script for one key."""
        try:
            return SCRIPTS[script](connection(self.alias), *self._sent(key, args, entry))
        except StoreError as error:
            raise self._fault(error) from error

    async def _acall(self, script: str, key: object, args: Sent = (), entry: Entry = None) -> Any:
        """Do the same for asyncio."""
        try:
            return await SCRIPTS[script].run(async_connection(self.alias), *self._sent(key, args, entry))
        except StoreError as error:
            raise self._fault(error) from error

    def _sent(self, key: object, args: Sent, entry: Entry) -> tuple[tuple[bytes, ...], Sent]:
        """Return the keys and the arguments of a call."""
        keys: tuple[bytes, ...] = (self._prefix + encode_key(key),)
        if entry is not None:
            stream = stream_entry(entry)
            keys += (stream.key,)
            args += stream.args()
        if self._clock is not None:
            args += self._clock_args()
        return keys, args

    def _each(self, script: str, names: Names, args: Sent = (), entry: Entry = None) -> Steps[dict[bytes, Any]]:
        """Return the replies of a script for all names.

        On a server, this takes one round trip for up to `SCAN_BATCH_KEYS` names; on a cluster, one to each node.
        """
        replies: dict[bytes, Any] = {}
        with self._faults():
            client = yield self._connected
            for batch, stream, entry_args in _batches(names, entry):
                batch_args = (*args, *entry_args, *self._clock_args())
                replies.update((yield each(script, client, batch, batch_args, stream)))
        return replies

    def _scan(self) -> Steps[tuple[Client | AsyncClient, Step]]:
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


def stream_entry(entry: bytes | StreamEntry) -> StreamEntry:
    """Return the entry of a call. Raise `TypeError` if it is not a `StreamEntry`."""
    if isinstance(entry, StreamEntry):
        return entry
    raise TypeError(f"A dictionary on Redis cannot append {entry!r}. Pass a StreamEntry; bytes are for LMDB.")


def each(script: str, client: Client | AsyncClient, *args: Any) -> Step:
    """Return the step that calls `LuaScript.each` on the client with these arguments."""
    lua_script = SCRIPTS[script]
    return Step(lua_script.each, lua_script.run_each, (client, *args))


async def _aconnection(alias: str) -> AsyncClient:
    return async_connection(alias)


async def _ascan(client: AsyncClient, prefix: bytes) -> AsyncIterator[list[bytes]]:
    return ascan(client, prefix)


def _batches(names: Names, entry: Entry) -> Iterator[tuple[Names, tuple[bytes, ...], Sent]]:
    """Yield the names in parts of at most `SCAN_BATCH_KEYS`, and for the last part the entry's stream and arguments.

    The parts of a mapping are mappings.
    """
    listed = list(names)
    last = None if entry is None else stream_entry(entry)
    for start in range(0, len(listed), SCAN_BATCH_KEYS):
        batch = listed[start : start + SCAN_BATCH_KEYS]
        part = {name: names[name] for name in batch} if isinstance(names, Mapping) else batch
        if last is not None and start + SCAN_BATCH_KEYS >= len(listed):
            yield part, (last.key,), last.args()
        else:
            yield part, (), ()
