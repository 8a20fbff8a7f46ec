"""What a cache is put together from: dictionaries by name, L1s that caches of one name share, channels."""

from __future__ import annotations

from typing import Literal
from weakref import WeakValueDictionary

from resty_django.shdict import SharedDict, UnknownDict, shdicts

from .channel import INVALIDATIONS, PURGE, Channel, ShmChannel
from .errors import BadOption, ChannelFailed
from .lru import LRU
from .over_events import EventChannel

_shared: WeakValueDictionary[str, LRU] = WeakValueDictionary()


def named(name: object) -> str:
    """The name of a cache. Raises `BadOption`."""
    if not isinstance(name, str) or not name or ":" in name:
        raise BadOption(f"name must be a text of at least one character, without a colon, not {name!r}.")
    return name


def dictionary_of(cache: str, option: str, given: SharedDict | str) -> SharedDict:
    """The dictionary that an option names. Raises `UnknownDict`."""
    if not isinstance(given, str):
        return given
    try:
        return shdicts[given]
    except UnknownDict as error:
        raise UnknownDict(f"{error} The cache {cache!r} names it as {option}.") from None


def l1_of(name: str, size: int, given: LRU | None) -> LRU:
    """L1: the one that is given, or that which all caches of the name share. Raises `BadOption`."""
    if given is not None:
        return given
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise BadOption(f"lru_size must be a whole number of at least 1, not {size!r}.")
    return _shared.setdefault(name, LRU(size))


def channel_of(
    name: str, l1: LRU, ipc: Channel | Literal["events"] | None, ipc_shm: SharedDict | str | None
) -> Channel | None:
    """The channel, which from now on lets this L1 forget. Raises `BadOption`, `ChannelFailed`."""
    if ipc_shm is not None and not (ipc is None or ipc == "events"):
        raise BadOption("ipc and ipc_shm cannot be given together: they are two channels.")
    channel: Channel | None
    if ipc_shm is not None:
        channel = ShmChannel(dictionary_of(name, "ipc_shm", ipc_shm))
    elif ipc == "events":
        channel = EventChannel()
    elif ipc is None or callable(getattr(ipc, "broadcast", None)):
        channel = ipc
    else:
        raise BadOption(f'ipc must be "events", None, or have register_listeners() and broadcast(), not {ipc!r}.')
    if channel is not None:
        try:
            channel.register_listeners({INVALIDATIONS + name: l1.delete, PURGE + name: lambda data: l1.flush_all()})
        except Exception as error:
            raise ChannelFailed(f"could not initialize ipc: {error}") from error
    return channel


__all__ = ["channel_of", "dictionary_of", "l1_of", "named"]
