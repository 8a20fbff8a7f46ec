"""The LMDB environment of a dictionary: opened on first use, closed before a fork.

LMDB environments must not be used on both sides of a fork. So the environment is closed before each fork made by
Python, and parent and child reopen it with their next call. A child that was forked without Python's fork hooks cannot
use it any more: py-lmdb opens a file only once per process, and closing the inherited environment would release the
parent's reader slots, so that pages still in use would be overwritten.
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
from typing import TYPE_CHECKING, Final

import lmdb

from resty_django.conf.schema import Name, key_text
from resty_django.text import logger

from .. import fork_hooks
from ..bell import Bell
from ..errors import NoMemory, Unavailable
from . import files
from .records import FORCIBLE, PAGE_BYTES, Txn

if TYPE_CHECKING:
    from lmdb import _Database as Table

log = logger("resty_django.shdict")

TABLES: Final = (b"items", b"order", b"due", b"parts", b"meta", b"journal")
OPEN_SECONDS: Final = 10.0
"""Maximum seconds to wait for a fork, or for another thread that opens or closes the environment."""
MAX_TRIES: Final = 1000
"""Maximum number of attempts to run a transaction."""
FILE_CHECK_SECONDS: Final = 1.0
"""Seconds between checks, during writes, whether the files still exist."""

StoreError = lmdb.Error
MapFull = lmdb.MapFullError

_opening = threading.RLock()
_all: weakref.WeakSet[Environment] = weakref.WeakSet()
_inherited: Final[list[lmdb.Environment]] = []
"""Environments that were open at a fork without fork hooks; they are never closed."""


def make(data: Path, size: int) -> None:
    """Create an empty file of `size` allocated bytes, so that no write through the map can fail.

    Raise `OSError` if there is no space.
    """
    # Both are allocated in advance: LMDB's lock file, with 64 bytes for each reader, and the shared numbers.
    for ending, length in ((files.LOCKS, 128 * 1024), (files.FLUSHES, 4096)):
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
            txn.put(FORCIBLE, bytes(8), db=meta)
        env.close()
    except lmdb.Error as error:
        raise OSError(error.code, str(error)) from error


def _mapped(file: Path) -> memoryview:
    """Return the 32-bit numbers in a file, shared with all processes."""
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
        max_readers=1022,
        max_dbs=len(TABLES),
        max_spare_txns=1,
        lib_version=0,
    )


class Environment:
    """Opens the environment and stores the handles of its tables."""

    def __init__(self, name: str, size: int, path: str | None) -> None:
        self.name = name
        self.size = size - size % PAGE_BYTES
        self.path = path
        self._begin: Callable[..., Txn] = self._shut
        self._check_files_at = 0.0
        """Monotonic time of the next check that the open files are those at their paths."""
        self._writing = threading.RLock()
        """Held during each write transaction: LMDB would discard it if another thread closed the environment."""
        self._env: lmdb.Environment | None = None
        self._dict_file: files.DictFile | None = None
        self.bell: Bell | None = None
        self._items: Table | None = None
        self._order: Table | None = None
        self._due: Table | None = None
        self._parts: Table | None = None
        self._meta: Table | None = None
        self._journal: Table | None = None
        self._flushes = memoryview(b"")
        """The number of flushes, shared by all processes. Read it after the transaction has begun."""
        self._crowded = memoryview(b"")
        """Whether the memory is crowded, so that recency is tracked (0 or 1), shared by all processes."""
        self._waiting = memoryview(b"")
        """Whether a process waits for entries of the journal (0 or 1), shared by all processes."""
        self._forget()
        _all.add(self)

    @staticmethod
    def _shut(*args: object) -> Txn:
        """Stand in for `_begin` while the environment is closed."""
        raise lmdb.Error("closed")

    def _forget(self) -> None:
        """Reset the state of the previously open memory."""
        self._touched: dict[bytes, None] = {}
        """Recently read items to be moved to the front."""
        self._room = 0
        """Bytes that may be stored before the pages are counted again."""
        self._seq = 0
        """The largest number in `order` assigned by this process."""
        self._age = self._next_look = self._old = 0
        """Distance from the newest number at which a written item moves; number at which to compute it again; number
        below which reads are noted."""

    def _open(self) -> None:
        if not _opening.acquire(timeout=OPEN_SECONDS):
            raise Unavailable(
                f"{self._setting()} could not be opened within {OPEN_SECONDS} s. Do not use other dictionaries "
                "in the function passed to update(): a fork waits for the function, and opening a dictionary "
                "waits for the fork."
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
            tables = [env.open_db(key) for key in TABLES]
            self._items, self._order, self._due, self._parts, self._meta, self._journal = tables
            shared = _mapped(files.sibling(dict_file.data, files.FLUSHES))
            self._flushes, self._crowded = shared[:1], shared[1:2]
            self._waiting = shared[2:3]
            self.bell = Bell(files.sibling(dict_file.data, files.BELL), self._waiting)
            env.reader_check()
            dict_file.remember()
        except (lmdb.Error, OSError) as error:
            dict_file.release()
            raise Unavailable(f"{self._setting()} cannot be opened: {str(error).rstrip('.')}.{_hint()}") from error
        self._forget()
        self._dict_file = dict_file
        self._env = env
        self._begin = env.begin
        self._check_files_at = time.monotonic() + FILE_CHECK_SECONDS

    def _check_files(self) -> None:
        """Close files that were deleted or replaced, because other processes use the new ones.

        Called before a write, at most once in `FILE_CHECK_SECONDS`. The next transaction opens the current files.
        """
        self._check_files_at = time.monotonic() + FILE_CHECK_SECONDS
        dict_file = self._dict_file
        if dict_file is None or self._writing._is_owned():  # type: ignore[attr-defined]  # within the function of update()
            return
        missing = dict_file.missing()
        if missing is not None:
            self.close()
            log.error(
                "%s was deleted or replaced while this process used %s. Its items are lost, including locks "
                "and counters. This process continues with the current file. %s",
                *(missing, self._setting(), files.likely_cause(missing)),
            )

    def close(self) -> None:
        """Release the memory; the next call opens it again."""
        with _opening:
            env, dict_file = self._env, self._dict_file
            self._begin = self._shut
            self._env = self._dict_file = self.bell = None
            with self._writing:
                if env is not None:
                    env.close()
            if dict_file is not None:
                dict_file.release()

    def warnings(self) -> list[str]:
        """Like `SharedDict.warnings`."""
        dict_file = self._dict_file
        text = files.displaced(dict_file.data) if dict_file and not self.path else ""
        return [text] if text else []

    def faults(self) -> list[str]:
        """Like `SharedDict.faults`. Scans the machine's processes."""
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
            f"Processes still use a deleted file of {dict_file.data} (pid {listed}), so they share no data "
            f"with other processes. Restart them. {files.likely_cause(dict_file.data)}"
        ]

    def _setting(self) -> str:
        return key_text(("SHARED_DICTS", Name(self.name)))

    def _squeeze(self, safe: bool) -> None:
        """Free pages in a file that has none left; `safe`: without evicting items that have not expired."""

    def _recover(self, error: lmdb.Error, tries: int, safe: bool | None = None) -> int:
        """Recover from an error if possible, and return the number of tries so far; else raise a `SharedDictError`.

        `safe`: whether a storing call must not evict (None: the call does not store).
        """
        env = self._env
        if tries < MAX_TRIES:
            if env is None:
                self._open()
                return tries + 1
            if any(word in str(error) for word in ("closed", "another environment", "MDB_BAD_RSLOT")):
                return tries + 1  # another thread has closed it, perhaps for a fork
            if isinstance(error, lmdb.MapFullError | lmdb.ReadersFullError):
                with contextlib.suppress(lmdb.Error):
                    env.reader_check()
                    if safe is not None and tries % 20 == 0:  # not each time, because evicting itself needs pages
                        self._squeeze(safe)
                        return tries + 1
                time.sleep(0.001)  # let a reading process finish first
                return tries + 1
        if isinstance(error, lmdb.MapFullError):
            raise NoMemory(f"{self._setting()} is full. Raise its SIZE ({self.size}).") from error
        if "same thread" in str(error):
            raise RuntimeError(
                f"The shared dictionary {self.name!r} was written to while this thread was already writing "
                "to it. Do not use it in the function passed to update(), in signal handlers or in "
                "finalizers."
            ) from error
        raise Unavailable(f"{self._setting()} cannot be used: {str(error).rstrip('.')}.") from error


def _hint() -> str:
    if not _inherited:
        return ""
    return (
        " It was in use when this process was forked without Python's fork hooks. In uWSGI, set "
        "py-call-uwsgi-fork-hooks or lazy-apps."
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
