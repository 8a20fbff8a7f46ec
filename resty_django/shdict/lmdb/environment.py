"""The LMDB environment of a dictionary: opened on first use, closed before a fork.

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

from resty_django.conf.schema import Name, key_text
from resty_django.text import logger

from .. import fork_hooks
from ..errors import NoMemory, Unavailable
from . import files
from .records import COUNT, FORCIBLE, PAGE, Txn

log = logger("resty_django.shdict")

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

LOOK: Final = 1.0
"""Seconds between two looks, at writes, whether the files are still in their place."""

ANEW: Final = ("closed", "another environment", "MDB_BAD_RSLOT")
"""Words of the errors of a transaction that another thread, or a forked child, has taken the environment from."""
FLUSHES: Final = 4096
"""Bytes of the file that counts the flushes; the first eight are in use."""

StoreError = lmdb.Error

_opening = threading.RLock()
_all: weakref.WeakSet[Environment] = weakref.WeakSet()
_inherited: Final[list[lmdb.Environment]] = []
"""Those that were open at a fork of which Python was not told; never closed."""


def make(data: Path, size: int) -> None:
    """Make an empty memory of `size` bytes that are really there, so that no write through the map can fail.

    Raises `OSError` when there is no room.
    """
    for ending, length in ((files.LOCKS, LOCK_FILE), (files.FLUSHES, FLUSHES)):
        fd = os.open(files.sibling(data, ending), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """Return the numbers of 32 bits in a file, shared with all processes."""
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


class Environment:
    """Opens the environment and holds the handles of its tables."""

    def __init__(self, name: str, size: int, path: str | None) -> None:
        self.name = name
        self.size = size - size % PAGE
        self.path = path
        self._begin: Callable[..., Txn] = self._shut
        self._look_at = 0.0
        """When to compare the open files with those of their paths, by the monotonic clock."""
        self._writing = threading.RLock()
        """Held for each write transaction: LMDB would drop one that is not at its end when another thread closes it."""
        self._env: lmdb.Environment | None = None
        self._dict_file: files.DictFile | None = None
        self._items: Any = None
        self._order: Any = None
        self._due: Any = None
        self._parts: Any = None
        self._meta: Any = None
        self._flushes = memoryview(b"")
        """Its item is the number of flushes, common to all processes. Read it after the transaction has begun."""
        self._crowded = memoryview(b"")
        """Its item shows all processes whether so much is stored that the order of use counts: 0 or 1."""
        self._calm = memoryview(b"")
        """Both as one number, the number of the flushes while the memory is not crowded, and else beyond it."""
        self._forget()
        _all.add(self)

    @staticmethod
    def _shut(*args: object) -> Txn:
        """Stand in for `_begin` while the environment is closed."""
        raise lmdb.Error("closed")

    def _forget(self) -> None:
        """Reset what is known about the memory that was open before."""
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
        dict_file = files.open_dict_file(self.name, self.size, self.path, make)
        try:
            env = _environment(dict_file.data, self.size)
            self._items, self._order, self._due, self._parts, self._meta = (env.open_db(key) for key in TABLES)
            shared = _mapped(files.sibling(dict_file.data, files.FLUSHES))
            self._flushes, self._crowded = shared[:1], shared[1:2]
            self._calm = shared.cast("B").cast("Q")[:1]
            env.reader_check()
            dict_file.remember()
        except (lmdb.Error, OSError) as error:
            dict_file.release()
            raise Unavailable(f"{self._setting()} cannot be opened: {str(error).rstrip('.')}.{_hint()}") from error
        self._forget()
        self._dict_file = dict_file
        self._env = env
        self._begin = env.begin
        self._look_at = time.monotonic() + LOOK

    def _look_at_files(self) -> None:
        """Close files that were deleted or replaced: other processes use new ones, and see nothing of these.

        Called before a write, once in `LOOK` seconds. The next transaction opens the files that are there by then.
        """
        self._look_at = time.monotonic() + LOOK
        dict_file = self._dict_file
        if dict_file is None or self._writing._is_owned():  # type: ignore[attr-defined]  # within the function of update()
            return
        missing = dict_file.missing()
        if missing is not None:
            self.close()
            log.error(
                "%s was deleted or replaced while this process used %s. Its items are lost, locks and counters among "
                "them; this process goes on with the file that is there now. %s",
                *(missing, self._setting(), files.likely_cause(missing)),
            )

    def close(self) -> None:
        """Release the memory; the next call opens it again."""
        with _opening:
            env, dict_file = self._env, self._dict_file
            self._begin = self._shut
            self._env = self._dict_file = None
            with self._writing:
                if env is not None:
                    env.close()
            if dict_file is not None:
                dict_file.release()

    def faults(self) -> list[str]:
        """See `SharedDict`. Looks through the processes of the machine."""
        dict_file = self._dict_file
        if dict_file is None:
            return []
        missing = dict_file.missing()
        if missing is not None:
            return [f"{missing} was deleted or replaced while this process used it. {files.likely_cause(missing)}"]
        pids = files.users_of_deleted(dict_file.data)
        if not pids:
            return []
        listed = ", ".join(map(str, pids[:10]))
        return [
            f"Processes still use a deleted file of {dict_file.data} (pid {listed}), so they share nothing with the "
            f"others. Restart them. {files.likely_cause(dict_file.data)}"
        ]

    def _setting(self) -> str:
        return key_text(("SHARED_DICTS", Name(self.name)))

    def _squeeze(self, safe: bool) -> None:
        """Make room in a file that has no pages left; `safe`: without throwing out what lives."""

    def _recover(self, error: lmdb.Error, tries: int, safe: bool | None = None) -> int:
        """Mend what can be mended and return the number of tries so far, or raise an error of ours.

        `safe`: whether a call that stores must throw out nothing (None: it is not such a call).
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
    for environment in list(_all):
        environment.close()


def _in_parent() -> None:
    global _fork_holds
    if _fork_holds:
        _fork_holds = False
        _opening.release()


def _after_fork() -> None:
    global _opening, _fork_holds
    _opening, _fork_holds = threading.RLock(), False
    for environment in list(_all):
        environment._writing = threading.RLock()
        if environment._env is not None:
            _inherited.append(environment._env)
            environment._env = None
        environment.close()


fork_hooks.before.append(_before_fork)
fork_hooks.in_parent.append(_in_parent)
fork_hooks.in_child.append(_after_fork)
