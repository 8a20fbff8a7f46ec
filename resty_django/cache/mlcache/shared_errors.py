"""Errors of callbacks, raised again for `error_ttl` in place of calling the source."""

from __future__ import annotations

from typing import Any

from resty_django.sansio import Step, Steps
from resty_django.shdict import NoMemory, SharedDict, Unavailable
from resty_django.text import logger

from ..errors import CallbackFailed, RemoteError, SourceError
from ..storage.lru import LRU

log = logger("resty_django.cache")


class SharedErrors:
    """The errors of the callbacks of one cache, by key. `prefix`: of its keys. `locks`: the dictionary that stores
    them, guarded. `l1`: L1 of the cache, whose size and clock they share.

    `ttl`: `error_ttl`. `storeless`: the store is down.
    """

    def __init__(self, prefix: str, locks: SharedDict, l1: LRU) -> None:
        self.copies = LRU(l1.max_items, l1.clock)
        """Copies of the errors in this process."""
        self._prefix = prefix
        self._locks = locks

    def share(self, key: str, ttl: float, storeless: bool, error: Exception) -> Steps[None]:
        """Store the error in this process, where callers get copies of it, and as text for other processes."""
        copied = _copied(error)
        if copied is not None:
            self.copies.set(key, copied, ttl)
        if storeless:
            return
        message = str(error)[:1000].encode(errors="replace").decode()
        try:
            text = [isinstance(error, SourceError), type(error).__name__, message]
            yield Step(self._locks.set, self._locks.aset, (f"mlcache:error:{self._prefix}{key}", text, ttl))
        except (Unavailable, NoMemory) as failure:
            log.info("the error of the key %r of %r was not shared: %s", key, self._prefix, failure)

    def find(self, key: str, ttl: float, storeless: bool) -> Steps[Exception | None]:
        """Return the error that the source raised less than `ttl` ago, as `Loader.fetch` raises it; None without
        one."""
        if not ttl:
            return None
        stored = self.copies.get(key)
        error = None if stored is None else _copied(stored)
        if error is None and not storeless:
            try:
                text = yield Step(self._locks.get, self._locks.aget, (f"mlcache:error:{self._prefix}{key}",))
            except Unavailable:  # the lock, which is taken next, deals with the outage
                text = None
            match text:
                case [bool(of_source), str(kind), str(message)]:
                    error = SourceError(message) if of_source else RemoteError(f"{kind}: {message}")
        if error is None or isinstance(error, SourceError):
            return error
        failed = CallbackFailed(error)
        failed.__cause__ = error
        return failed


def _copied(error: Exception) -> Exception | None:
    """Return a copy without the traceback, so that threads can raise it and it keeps no frames alive; None if its class
    is not written in Python. It does not call `__init__` of the class, which may take other arguments than `args`."""
    kind = type(error)
    base: Any = next(parent for parent in kind.__mro__ if parent.__module__ == "builtins")
    arguments = base.__reduce__(error)[1]
    try:
        copied: Exception = base.__new__(kind, *arguments)
        base.__init__(copied, *arguments)
    except TypeError:
        return None
    vars(copied).update(vars(error))
    return copied
