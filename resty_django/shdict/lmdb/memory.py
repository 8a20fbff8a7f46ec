"""The LMDB environment of a dictionary: opened on first use, closed before a fork, told apart by process.

LMDB forbids to use an environment on both sides of a fork. So it is closed before each fork that Python makes, and
parent and child open it again with their next call. The child of a program that forks behind Python's back cannot use
it any more: py-lmdb opens a file once in a process, and closing what was inherited would give away the places of the
parent's readers, whose pages would then be written over.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import lmdb

from resty_django.schema import Name, key_text

from .. import forks, places
from ..errors import NoMemory, Unavailable
from .records import COUNT, FORCIBLE, PAGE, Txn

TABLES: Final = (b"items", b"order", b"due", b"parts", b"meta")
READERS: Final = 1022
LOCK_FILE: Final = 128 * 1024
"""Bytes of LMDB's lock file, allocated ahead: 64 for each reader."""
PATIENCE: Final = 10.0
"""Seconds to wait for a fork, or for another thread that opens or closes."""
TRIES: Final = 1000
PAUSE: Final = 0.001
SQUEEZE: Final = 20
"""Of so many tries to find pages, one makes room, which takes pages itself."""

ANEW: Final = ("closed", "another environment", "MDB_BAD_RSLOT")
"""Words of the errors of a transaction that another thread, or a forked child, has taken the environment from."""
FLUSHES: Final = 4096
"""Bytes of the file that counts the flushes; the first eight are in use."""

StoreError = lmdb.Error

_opening = threading.RLock()
_all: weakref.WeakSet[Memory] = weakref.WeakSet()
_inherited: Final[list[lmdb.Environment]] = []
"""Those that were open at a fork of which Python was not told; never closed."""


def make(data: Path, size: int) -> None:
    """Make an empty memory of `size` bytes that are really there, so that no write through the map can fail.

    Raises `OSError` when there is no room.
    """
    for ending, length in ((places.LOCKS, LOCK_FILE), (places.FLUSHES, FLUSHES)):
        fd = os.open(places.beside(data, ending), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, length)
        finally:
            os.close(fd)
    try:
        _environment(data, size).close()
        with data.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        env = _environment(data, size)
        for table in TABLES:
            env.open_db(table)
        meta = env.open_db(b"meta")
        with env.begin(write=True) as txn:
            txn.put(FORCIBLE, COUNT.pack(0), db=meta)
        env.close()
    except lmdb.Error as error:
        raise OSError(error.code, str(error)) from error


def _mapped(file: Path) -> memoryview:
    """The numbers of 32 bits in a file, shared with all processes."""
    with file.open("r+b") as opened:
        return memoryview(mmap.mmap(opened.fileno(), 0)).cast("I")


def _environment(data: Path, size: int) -> lmdb.Environment:
    return lmdb.open(
        os.fspath(data),
        map_size=size,
        subdir=False,
        mode=0o600,
        metasync=False,
        sync=False,
        map_async=True,
        writemap=True,
        readahead=False,
        max_readers=READERS,
        max_dbs=len(TABLES),
        max_spare_txns=1,
        lib_version=0,
    )


class Memory:
    """Opens the environment and holds the handles of its tables."""

    def __init__(self, name: str, size: int, path: str | None) -> None:
        self.name = name
        self.size = size - size % PAGE
        self.path = path
        self._begin: Callable[..., Txn] = self._shut
        self._writing = threading.RLock()
        """Held for each write transaction: LMDB would drop one that is not at its end when another thread closes it."""
        self._env: lmdb.Environment | None = None
        self._place: places.Place | None = None
        self._items: Any = None
        self._order: Any = None
        self._due: Any = None
        self._parts: Any = None
        self._meta: Any = None
        self._flushes = memoryview(b"")
        """Its item is the number of flushes, common to all processes. Read it after the transaction has begun."""
        self._crowded = memoryview(b"")
        """Its item tells all processes whether so much is stored that the order of use counts: 0 or 1."""
        self._calm = memoryview(b"")
        """Both as one number, which is that of the flushes while the memory is not crowded, and else beyond it."""
        self._forget()
        _all.add(self)

    @staticmethod
    def _shut(*args: object) -> Txn:
        """What `_begin` is while the environment is closed."""
        raise lmdb.Error("closed")

    def _forget(self) -> None:
        """Forget what was true of the memory that was open before."""
        self._touched: dict[bytes, None] = {}
        """Items read lately that are to be moved to the front."""
        self._room = 0
        """Bytes to store before the pages are looked at again."""
        self._seq = 0
        """The greatest number in `order` that this process has given."""
        self._age = self._next_look = self._old = 0
        """How far behind the newest number an item moves when it is written; at which to look again how far that is;
        and below which an item that is read is noted."""

    def _open(self) -> None:
        if not _opening.acquire(timeout=PATIENCE):
            raise Unavailable(
                f"{self._setting()} could not be opened for {PATIENCE} s. Use no other dictionary in the function of "
                "update(): a fork waits for its end, and all that is opened waits for the fork."
            )
        try:
            if self._env is None:
                self._open_now()
        finally:
            _opening.release()

    def _open_now(self) -> None:
        place = places.find(self.name, self.size, self.path, make)
        try:
            env = _environment(place.data, self.size)
            self._items, self._order, self._due, self._parts, self._meta = (env.open_db(key) for key in TABLES)
            shared = _mapped(places.beside(place.data, places.FLUSHES))
            self._flushes, self._crowded = shared[:1], shared[1:2]
            self._calm = shared.cast("B").cast("Q")[:1]
            env.reader_check()
        except (lmdb.Error, OSError) as error:
            place.leave()
            raise Unavailable(f"{self._setting()} cannot be opened: {str(error).rstrip('.')}.{_hint()}") from error
        self._forget()
        self._place = place
        self._env = env
        self._begin = env.begin

    def close(self) -> None:
        """Let go of the memory; the next call opens it again."""
        with _opening:
            env, place = self._env, self._place
            self._begin = self._shut
            self._env = self._place = None
            with self._writing:
                if env is not None:
                    env.close()
            if place is not None:
                place.leave()

    def _setting(self) -> str:
        return key_text(("SHARED_DICTS", Name(self.name)))

    def _squeeze(self, safe: bool) -> None:
        """Make room in a file that has no pages left; `safe`: without throwing out what lives."""

    def _recover(self, error: lmdb.Error, tries: int, safe: bool | None = None) -> int:
        """Mend what can be mended and return the number of tries so far, or raise an error of ours.

        `safe`: whether a call that stores must throw out nothing (None: it is no such call).
        """
        env = self._env
        if tries < TRIES:
            if env is None:
                self._open()
                return tries + 1
            if any(word in str(error) for word in ANEW):  # another thread has closed it, for a fork
                return tries + 1
            if isinstance(error, lmdb.MapFullError | lmdb.ReadersFullError):
                with contextlib.suppress(lmdb.Error):
                    env.reader_check()
                    if safe is not None and tries % SQUEEZE == 0:
                        self._squeeze(safe)
                        return tries + 1
                time.sleep(PAUSE)  # a process that reads must go on first
                return tries + 1
        if isinstance(error, lmdb.MapFullError):
            raise NoMemory(f"{self._setting()} is full. Raise its SIZE ({self.size}).") from error
        if "same thread" in str(error):
            raise RuntimeError(
                f"The shared dictionary {self.name!r} is written to while this thread is writing to it: "
                "in the function of update(), a handler of signals, or a finaliser."
            ) from error
        raise Unavailable(f"{self._setting()} cannot be used: {str(error).rstrip('.')}.") from error


def _hint() -> str:
    if not _inherited:
        return ""
    return (
        " It was in use when this process was forked, and Python was not told of the fork before. "
        "In uWSGI set py-call-uwsgi-fork-hooks or lazy-apps."
    )


_fork_holds = False


def _before_fork() -> None:
    global _fork_holds
    _fork_holds = _opening.acquire()
    for memory in list(_all):
        memory.close()


def _after_fork() -> None:
    global _fork_holds
    if _fork_holds:
        _fork_holds = False
        _opening.release()


def _in_child() -> None:
    global _opening, _fork_holds
    _opening, _fork_holds = threading.RLock(), False
    for memory in list(_all):
        memory._writing = threading.RLock()
        if memory._env is not None:
            _inherited.append(memory._env)
            memory._env = None
        memory.close()


forks.before.append(_before_fork)
forks.in_parent.append(_after_fork)
forks.in_child.append(_in_child)
