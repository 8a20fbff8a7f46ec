"""Where the file of a dictionary is, and who may make it.

Each dictionary has a *card*, a small file that tells the size of the dictionary, where its memory is, and of which
boot of the machine it is. Whoever uses the dictionary holds a shared lock on the card, so that nobody makes the memory
anew under a running process; whoever is alone holds an exclusive one for a moment and makes the memory if it is
missing, of another size, or of an earlier boot.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import random
import stat
import tempfile
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from resty_django.schema import Name, key_text

from .errors import DiskFull, SizeChanged, Unavailable, WrongOwner

LAYOUT: Final = 1
"""Changes when the bytes in the file change their meaning: files of another layout are made anew."""

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the memory file system, not a temporary file
SPARE: Final = 1024 * 1024
TRIES: Final = 500
LOCKS: Final = "-lock"
FLUSHES: Final = "-flushes"
"""Endings of the files beside the one of a dictionary; LMDB fixes the first."""


class Place:
    """The file of a dictionary, and the lock on its card, which is held until `leave` or the end of this object."""

    _close = staticmethod(os.close)
    """Still there when the interpreter ends and has emptied the modules."""

    def __init__(self, data: Path, card: int) -> None:
        self.data = data
        self._card = card

    def leave(self) -> None:
        card, self._card = self._card, -1
        if card >= 0:
            self._close(card)

    __del__ = leave


def find(name: str, size: int, path: str | None, make: Callable[[Path, int], None]) -> Place:
    """The place of the dictionary; `make(file, size)` is called to make its memory where that is needed.

    Raises `DiskFull`, `WrongOwner`, `SizeChanged`, or `Unavailable` for other faults of the file system.
    """
    setting = key_text(("SHARED_DICTS", Name(name)))
    try:
        folder = _folder(path, setting)
        card = os.open(folder / f"{_file_name(name)}.card", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _fault(error, setting) from error
    try:
        for _ in range(TRIES):
            _make_if_alone(card, folder, name, size, path, make)
            fcntl.flock(card, fcntl.LOCK_SH)
            told = _read(card)
            if told:
                return Place(_data_of(told, size, setting), card)
            fcntl.flock(card, fcntl.LOCK_UN)  # whoever was making it was killed
            time.sleep(random.uniform(0, 0.01))  # noqa: S311
        raise Unavailable(f"Running processes use {setting}, but its card in {folder} was spoilt. Stop them all first.")
    except BaseException as error:
        os.close(card)
        if isinstance(error, OSError):
            raise _fault(error, f"{setting} of {size} bytes in {folder}") from error
        raise


def _make_if_alone(
    card: int, folder: Path, name: str, size: int, path: str | None, make: Callable[[Path, int], None]
) -> None:
    try:
        fcntl.flock(card, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    told = _read(card)
    if told == _card(size, told.get("data")) and _whole(Path(told["data"]), size):
        return
    if told:
        remove(Path(told["data"]))
    os.ftruncate(card, 0)
    data = (folder if path else _folder_with_room(folder, size)) / f"{_file_name(name)}.mdb"
    remove(data)
    try:
        make(data, size)
        os.pwrite(card, json.dumps(_card(size, str(data))).encode(), 0)
    except OSError:
        remove(data)
        os.ftruncate(card, 0)
        raise


def _data_of(told: dict[str, Any], size: int, setting: str) -> Path:
    if told == _card(size, told["data"]):
        return Path(told["data"])
    if told["size"] != size:
        raise SizeChanged(
            f"Running processes use {setting} with SIZE {told['size']}, this one was told {size}. "
            "Stop them all before starting any with the new size."
        )
    raise Unavailable(f"Running processes of another version use the file of {setting}. Stop them all first.")


def _fault(error: OSError, what: str) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"There is no room for {what}: {error}. Make SIZE smaller, or set PATH to a folder with more room."
        )
    return Unavailable(f"The files of {what} cannot be used: {error}. Set PATH to another folder.")


def beside(data: Path, ending: str) -> Path:
    """A file that belongs to the one of a dictionary."""
    return data.with_name(data.name + ending)


def remove(data: Path) -> None:
    """Remove the file of a dictionary and those that belong to it."""
    for one in (data, beside(data, LOCKS), beside(data, FLUSHES)):
        one.unlink(missing_ok=True)


def _whole(data: Path, size: int) -> bool:
    try:
        return data.stat().st_size >= size and all(beside(data, one).stat().st_size for one in (LOCKS, FLUSHES))
    except FileNotFoundError:
        return False


def _read(card: int) -> dict[str, Any]:
    """What the card tells; nothing when it is empty, or is none of ours."""
    try:
        told = json.loads(os.pread(card, 65536, 0))
    except ValueError:
        return {}
    return told if isinstance(told, dict) and {"size", "data"} <= told.keys() else {}


def _card(size: int, data: object) -> dict[str, Any]:
    return {"layout": LAYOUT, "boot": _boot(), "size": size, "data": data}


def _boot() -> str:
    """What tells one boot of the machine from the next; the clock of the dictionaries starts with it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _file_name(name: str) -> str:
    quoted = urllib.parse.quote(name, safe="").replace(".", "%2E")
    return quoted if len(quoted) <= 100 else hashlib.sha256(name.encode()).hexdigest()


def site() -> str:
    """Tells the files of one site and user from those of others."""
    identity = f"{settings.SECRET_KEY}\0{os.environ.get('DJANGO_SETTINGS_MODULE', '')}"
    return f"resty-{os.geteuid()}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _folder(path: str | None, setting: str) -> Path:
    if path:
        folder = Path(path)
    else:
        base = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
        folder = base / site()
    return _own(folder, setting)


def _folder_with_room(folder: Path, size: int) -> Path:
    """`folder`, or one in the place for temporary files where memory has no room."""
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize >= size + SPARE:
        return folder
    return _own(Path(tempfile.gettempdir()) / folder.name, "the dictionary")


def _own(folder: Path, setting: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        raise WrongOwner(
            f"{folder}, the folder of {setting}, is not a directory of the user {os.geteuid()} that runs this process "
            f"(it belongs to {facts.st_uid}). Run all processes of the site as one user, or set PATH."
        )
    if stat.S_IMODE(facts.st_mode) & 0o022:
        raise WrongOwner(f"{folder}, the folder of {setting}, may be written by others. Set its mode to 700.")
    return folder
