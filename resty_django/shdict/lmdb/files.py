"""The files of a dictionary: their location, and which process creates them.

Each dictionary has a *manifest*, a small file whose name ends with `.card`. It contains the size of the dictionary, the
path of its memory file and the boot ID of the machine. Each process that uses the dictionary holds a shared lock on the
manifest, so that no process recreates the memory under a running one. A process that is alone briefly takes an
exclusive lock and creates the memory if it is missing, has another size, or is from an earlier boot.
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
from resty_django.text import logger

from ..errors import DiskFull, SizeChanged, Unavailable, WrongOwner

log = logger("resty_django.shdict")

MEMORY_FOLDER: Final = Path("/dev/shm")  # noqa: S108 - the memory file system, not a temporary file
MAX_OPEN_TRIES: Final = 500
"""Attempts to open the file while other processes create or delete it."""
LOCKS: Final = "-lock"
FLUSHES: Final = "-flushes"
BELL: Final = "-bell"
"""Extensions of the files next to a dictionary's file; LMDB defines the first."""


class DictFile:
    """The file of a dictionary, and the lock on its manifest, held until `release` or the end of this object."""

    _close = staticmethod(os.close)
    """Kept here because modules are already cleared when the interpreter shuts down."""

    def __init__(self, data: Path, manifest: int, manifest_path: Path) -> None:
        self.data = data
        self._manifest = manifest
        self._files: dict[Path, tuple[int, int] | None] = {manifest_path: _identity_of(os.fstat(manifest))}

    def remember(self) -> None:
        """Record the identity of the files; called when all of them are open."""
        for path in (self.data, sibling(self.data, LOCKS), sibling(self.data, FLUSHES)):
            self._files[path] = _identity(path)

    def missing(self) -> Path | None:
        """Return the first file that was deleted or replaced since it was opened; None if all are unchanged."""
        return next((path for path, identity in self._files.items() if _identity(path) != identity), None)

    def release(self) -> None:
        manifest, self._manifest = self._manifest, -1
        if manifest >= 0:
            self._close(manifest)

    __del__ = release


def open_dict_file(name: str, size: int, path: str | None, make: Callable[[Path, int], None]) -> DictFile:
    """Open the files of a dictionary; `make(file, size)` is called to create its memory if necessary.

    Raise `DiskFull`, `WrongOwner`, `SizeChanged`, or `Unavailable` for other file system errors.
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
        for _ in range(MAX_OPEN_TRIES):
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
            fcntl.flock(manifest, fcntl.LOCK_UN)  # its creator was killed, or has not noticed the deletion yet
            time.sleep(random.uniform(0, 0.01))  # noqa: S311
        if gone is not None:
            raise Unavailable(
                f"The files of {setting} were deleted while processes use them: {gone}. Stop all of them, "
                f"then start them again. {likely_cause(gone)}"
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
    if not path and (text := displaced(data)):
        log.warning("%s: %s", key_text(("SHARED_DICTS", Name(name))), text)
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
            f"Running processes use {setting} with SIZE {stored['size']}, but the setting is now {size}. "
            "Stop all of them before you start any with the new size."
        )
    raise Unavailable(f"Running processes of another version use the file of {setting}. Stop them all first.")


def _unavailable(error: OSError, what: str) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"There is no space for {what}: {error}. Reduce SIZE, or set PATH to a folder with more free space."
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
    """Return the likely cause of deleted files and its remedy, as sentences; empty if unknown."""
    if data.is_relative_to(MEMORY_FOLDER):
        return (
            "The likely cause is systemd-logind, which empties /dev/shm of a user who logs out. Set RemoveIPC=no in "
            "/etc/systemd/logind.conf, run the site as a system user, or set PATH."
        )
    if "tmp" in data.parts or data.is_relative_to(tempfile.gettempdir()):
        return (
            "The likely cause is a cleaner of temporary files, such as systemd-tmpfiles. Exclude the folder "
            "from it, or set PATH to another folder."
        )
    return "The likely cause is a deployment or a script that deletes the folder. Set PATH to a separate folder."


def displaced(data: Path) -> str:
    """Return a warning if a file is outside of the memory file system of the machine; "" if inside, or without one."""
    if data.is_relative_to(MEMORY_FOLDER) or not MEMORY_FOLDER.is_dir():
        return ""
    return (
        f"The file {data} is not in {MEMORY_FOLDER}, which has too little space or cannot be written, so the kernel "
        f"may write it to a disk. Enlarge {MEMORY_FOLDER} (Docker: --shm-size), reduce SIZE, or set PATH."
    )


def users_of_deleted(data: Path) -> list[int]:
    """Return this user's processes that still use a deleted file of this path."""
    mapping = f"{data} (deleted)\n".encode()
    pids = []
    for entry in Path("/proc").glob("[0-9]*/maps"):
        try:
            if entry.parent.stat().st_uid == os.geteuid() and mapping in entry.read_bytes():
                pids.append(int(entry.parent.name))
        except OSError:  # the process has ended, or belongs to another user
            continue
    return sorted(pids)


def sibling(data: Path, ending: str) -> Path:
    """Return the path of an auxiliary file of a dictionary's file."""
    return data.with_name(data.name + ending)


def remove(data: Path) -> None:
    """Remove a dictionary's file and its auxiliary files."""
    for ending in ("", LOCKS, FLUSHES, BELL):
        sibling(data, ending).unlink(missing_ok=True)


def _is_complete(data: Path, size: int) -> bool:
    try:
        return data.stat().st_size >= size and all(sibling(data, ending).stat().st_size for ending in (LOCKS, FLUSHES))
    except FileNotFoundError:
        return False


def _read_manifest(manifest: int) -> dict[str, Any]:
    """Return the contents of a manifest; empty if it is empty or invalid."""
    try:
        stored = json.loads(os.pread(manifest, 65536, 0))
    except ValueError:
        return {}
    return stored if isinstance(stored, dict) and {"size", "data"} <= stored.keys() else {}


def _manifest(size: int, data: object) -> dict[str, Any]:
    layout = 2  # the version of the file's format; files with another version are recreated
    return {"layout": layout, "boot": _boot(), "size": size, "data": data}


def _boot() -> str:
    """Return the machine's boot ID; the clock of the dictionaries starts at boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _file_name(name: str) -> str:
    quoted = urllib.parse.quote(name, safe="").replace(".", "%2E")
    return quoted if len(quoted) <= 100 else hashlib.sha256(name.encode()).hexdigest()


def site_folder() -> str:
    """Return a folder name that is specific to this site and user."""
    identity = f"{settings.SECRET_KEY}\0{os.environ.get('DJANGO_SETTINGS_MODULE', '')}"
    return f"resty-{os.geteuid()}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _folder(path: str | None, setting: str) -> Path:
    if path:
        folder = Path(path)
    else:
        base = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
        folder = base / site_folder()
    return _private_folder(folder, setting)


def _folder_with_room(folder: Path, size: int) -> Path:
    """Return `folder`, or a temporary folder if memory has no space."""
    free = os.statvfs(folder)
    if free.f_bavail * free.f_frsize >= size + 1024 * 1024:  # some is left for others
        return folder
    return _private_folder(Path(tempfile.gettempdir()) / folder.name, "the dictionary")


def _has_others(folder: Path) -> bool:
    """Return whether a folder contains anything but files of dictionaries."""
    try:
        endings = (".card", *(f".mdb{ending}" for ending in ("", LOCKS, FLUSHES, BELL)))
        return any(not entry.name.endswith(endings) for entry in folder.iterdir())
    except OSError:
        return True


def _private_folder(folder: Path, setting: str) -> Path:
    for path in reversed((folder, *(parent for parent in folder.parents if not parent.exists()))):
        path.mkdir(mode=0o700, exist_ok=True)  # parents=True creates parents with the default mode
    status = folder.stat(follow_symlinks=False)
    open_to_others = stat.S_ISDIR(status.st_mode) and status.st_mode & 0o022
    if open_to_others and (status.st_mode & stat.S_ISVTX or _has_others(folder)):
        raise WrongOwner(
            f"{folder}, the folder of {setting}, is writable by other users and contains other files. Set "
            f"PATH to a folder inside it, such as {str(folder / site_folder())!r}."
        )
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise WrongOwner(
            f"{folder}, the folder of {setting}, is not a directory of the user {os.geteuid()} that runs this process "
            f"(it belongs to {status.st_uid}). Run all processes of the site as one user, or set PATH."
        )
    if stat.S_IMODE(status.st_mode) & 0o022:
        raise WrongOwner(f"{folder}, the folder of {setting}, is writable by other users. Set its mode to 700.")
    return folder
