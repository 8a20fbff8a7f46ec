"""The files of a dictionary: their location, and which process creates them.

Each dictionary has a *manifest*, a small file (`*.card`) with the size of the dictionary, the path of its memory and
the boot of the machine that it belongs to. Each process that uses the dictionary holds a shared lock on the manifest,
so that no process recreates the memory under a running one. A process that is alone takes an exclusive lock for a
moment and creates the memory if it is missing, of another size, or of an earlier boot.
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

from resty_django.conf.schema import Name, key_text

from ..errors import DiskFull, SizeChanged, Unavailable, WrongOwner

LAYOUT: Final = 1
"""Changes when the bytes in the file change their meaning: files of another layout are made anew."""

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the memory file system, not a temporary file
SPARE: Final = 1024 * 1024
TRIES: Final = 500
LOCKS: Final = "-lock"
FLUSHES: Final = "-flushes"
"""Endings of the files next to a dictionary's; LMDB fixes the first."""
OURS: Final = (".card", ".mdb", f".mdb{LOCKS}", f".mdb{FLUSHES}")


class DictFile:
    """The file of a dictionary, and the lock on its manifest, held until `release` or the end of this object."""

    _close = staticmethod(os.close)
    """Still there when the interpreter ends and has emptied the modules."""

    def __init__(self, data: Path, manifest: int, manifest_path: Path) -> None:
        self.data = data
        self._manifest = manifest
        self._files: dict[Path, tuple[int, int] | None] = {manifest_path: _identity_of(os.fstat(manifest))}

    def remember(self) -> None:
        """Note which files are there; to be called when all of them are open."""
        for path in (self.data, sibling(self.data, LOCKS), sibling(self.data, FLUSHES)):
            self._files[path] = _identity(path)

    def missing(self) -> Path | None:
        """Return the first file that was deleted or replaced since it was opened; None where all are in their place."""
        return next((path for path, identity in self._files.items() if _identity(path) != identity), None)

    def release(self) -> None:
        manifest, self._manifest = self._manifest, -1
        if manifest >= 0:
            self._close(manifest)

    __del__ = release


def open_dict_file(name: str, size: int, path: str | None, make: Callable[[Path, int], None]) -> DictFile:
    """Open the files of a dictionary; `make(file, size)` is called to create its memory where that is needed.

    Raises `DiskFull`, `WrongOwner`, `SizeChanged`, or `Unavailable` for other faults of the file system.
    """
    setting = key_text(("SHARED_DICTS", Name(name)))
    try:
        folder = _folder(path, setting)
        manifest_path = folder / f"{_file_name(name)}.card"
        manifest = os.open(manifest_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unavailable(error, setting) from error
    gone: Path | None = None
    try:
        for _ in range(TRIES):
            _make_if_alone(manifest, folder, name, size, path, make)
            fcntl.flock(manifest, fcntl.LOCK_SH)
            stored = _read_manifest(manifest)
            if _identity(manifest_path) != _identity_of(os.fstat(manifest)):  # deleted since it was opened
                os.close(manifest)
                manifest = os.open(manifest_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                continue
            if stored:
                data = _data_of(stored, size, setting)
                if _is_complete(data, size):
                    return DictFile(data, manifest, manifest_path)
                gone = data
            fcntl.flock(manifest, fcntl.LOCK_UN)  # its maker was killed, or has not noticed yet that it is gone
            time.sleep(random.uniform(0, 0.01))  # noqa: S311
        if gone is not None:
            raise Unavailable(
                f"The files of {setting} were deleted while processes use them: {gone}. Stop them all, and start them "
                f"again. {likely_cause(gone)}"
            )
        raise Unavailable(
            f"Running processes use {setting}, but its manifest in {folder} was overwritten. Stop them all first."
        )
    except BaseException as error:
        os.close(manifest)
        if isinstance(error, OSError):
            raise _unavailable(error, f"{setting} of {size} bytes in {folder}") from error
        raise


def _make_if_alone(
    manifest: int, folder: Path, name: str, size: int, path: str | None, make: Callable[[Path, int], None]
) -> None:
    try:
        fcntl.flock(manifest, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    stored = _read_manifest(manifest)
    if stored == _manifest(size, stored.get("data")) and _is_complete(Path(stored["data"]), size):
        return
    if stored:
        remove(Path(stored["data"]))
    os.ftruncate(manifest, 0)
    data = (folder if path else _folder_with_room(folder, size)) / f"{_file_name(name)}.mdb"
    remove(data)
    try:
        make(data, size)
        os.pwrite(manifest, json.dumps(_manifest(size, str(data))).encode(), 0)
    except OSError:
        remove(data)
        os.ftruncate(manifest, 0)
        raise


def _data_of(stored: dict[str, Any], size: int, setting: str) -> Path:
    if stored == _manifest(size, stored["data"]):
        return Path(stored["data"])
    if stored["size"] != size:
        raise SizeChanged(
            f"Running processes use {setting} with SIZE {stored['size']}, this one was told {size}. "
            "Stop them all before starting any with the new size."
        )
    raise Unavailable(f"Running processes of another version use the file of {setting}. Stop them all first.")


def _unavailable(error: OSError, what: str) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"There is no room for {what}: {error}. Make SIZE smaller, or set PATH to a folder with more room."
        )
    return Unavailable(f"The files of {what} cannot be used: {error}. Set PATH to another folder.")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        return _identity_of(path.stat())
    except OSError:
        return None


def _identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def likely_cause(data: Path) -> str:
    """Return sentences that name what deletes files of a dictionary, and what to do about it."""
    if data.is_relative_to(MEMORY):
        return (
            "The likely cause is systemd-logind, which empties /dev/shm of a user who logs out. Set RemoveIPC=no in "
            "/etc/systemd/logind.conf, run the site as a system user, or set PATH."
        )
    if "tmp" in data.parts or data.is_relative_to(tempfile.gettempdir()):
        return (
            "The likely cause is a cleaner of temporary files, such as systemd-tmpfiles. Exclude the folder from it, "
            "or set PATH to a folder elsewhere."
        )
    return "The likely cause is a deployment or a script that deletes the folder. Set PATH to a folder of its own."


def users_of_deleted(data: Path) -> list[int]:
    """Return the processes of this user that still use a file of this path which was deleted (Linux; else none)."""
    mapping = f"{data} (deleted)\n".encode()
    pids = []
    for entry in Path("/proc").glob("[0-9]*/maps"):
        try:
            if entry.parent.stat().st_uid == os.geteuid() and mapping in entry.read_bytes():
                pids.append(int(entry.parent.name))
        except OSError:  # ended, or belongs to somebody else
            continue
    return sorted(pids)


def sibling(data: Path, ending: str) -> Path:
    """Return the path of a file that belongs to the one of a dictionary."""
    return data.with_name(data.name + ending)


def remove(data: Path) -> None:
    """Remove the file of a dictionary and those that belong to it."""
    for file in (data, sibling(data, LOCKS), sibling(data, FLUSHES)):
        file.unlink(missing_ok=True)


def _is_complete(data: Path, size: int) -> bool:
    try:
        return data.stat().st_size >= size and all(sibling(data, ending).stat().st_size for ending in (LOCKS, FLUSHES))
    except FileNotFoundError:
        return False


def _read_manifest(manifest: int) -> dict[str, Any]:
    """Return the contents of a manifest; nothing when it is empty, or not one of ours."""
    try:
        stored = json.loads(os.pread(manifest, 65536, 0))
    except ValueError:
        return {}
    return stored if isinstance(stored, dict) and {"size", "data"} <= stored.keys() else {}


def _manifest(size: int, data: object) -> dict[str, Any]:
    return {"layout": LAYOUT, "boot": _boot(), "size": size, "data": data}


def _boot() -> str:
    """Return the ID of this boot of the machine; the clock of the dictionaries starts with it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _file_name(name: str) -> str:
    quoted = urllib.parse.quote(name, safe="").replace(".", "%2E")
    return quoted if len(quoted) <= 100 else hashlib.sha256(name.encode()).hexdigest()


def site_folder() -> str:
    """Return the folder name that keeps the files of one site and user apart from others'."""
    identity = f"{settings.SECRET_KEY}\0{os.environ.get('DJANGO_SETTINGS_MODULE', '')}"
    return f"resty-{os.geteuid()}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _folder(path: str | None, setting: str) -> Path:
    if path:
        folder = Path(path)
    else:
        base = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
        folder = base / site_folder()
    return _private_folder(folder, setting)


def _folder_with_room(folder: Path, size: int) -> Path:
    """Return `folder`, or a temporary folder where memory has no room."""
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize >= size + SPARE:
        return folder
    return _private_folder(Path(tempfile.gettempdir()) / folder.name, "the dictionary")


def _has_others(folder: Path) -> bool:
    """Return whether a folder contains anything but files of dictionaries."""
    try:
        return any(not entry.name.endswith(OURS) for entry in folder.iterdir())
    except OSError:
        return True


def _private_folder(folder: Path, setting: str) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat(follow_symlinks=False)
    open_to_others = stat.S_ISDIR(status.st_mode) and status.st_mode & 0o022
    if open_to_others and (status.st_mode & stat.S_ISVTX or _has_others(folder)):
        raise WrongOwner(
            f"{folder}, the folder of {setting}, may be written by others and is not for dictionaries alone. Set PATH "
            f"to a folder inside it, such as {str(folder / site_folder())!r}."
        )
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise WrongOwner(
            f"{folder}, the folder of {setting}, is not a directory of the user {os.geteuid()} that runs this process "
            f"(it belongs to {status.st_uid}). Run all processes of the site as one user, or set PATH."
        )
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise WrongOwner(f"{folder}, the folder of {setting}, may be written by others. Set its mode to 700.")
    return folder
