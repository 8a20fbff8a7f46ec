"""Frees the memory of the demo's shared dictionaries: `python -m project.memory`, for `make clean`.

The dictionaries without a PATH are in a folder of /dev/shm that is named after the site's secret key, so the key must
still be there. Standard library alone: `make clean` works without a virtual environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108 - the memory file system, not a temporary file
LOCK = "demo.lock"
"""The lock file of a running demo, in the folder for variable data."""


class InUse(Exception):
    """Another process uses the data or the memory of the demo."""


def folders(secret_key: str, settings_module: str) -> list[Path]:
    """Return the folders of a site's dictionaries for this user, named as in `resty_django.shdict.lmdb.files`."""
    identity = hashlib.sha256(f"{secret_key}\0{settings_module}".encode()).hexdigest()[:12]
    return [base / f"resty-{os.geteuid()}-{identity}" for base in (MEMORY, Path(tempfile.gettempdir()))]


def free(secret_key: str, settings_module: str) -> None:
    """Remove a site's dictionaries. Raise `InUse` and remove nothing while a process uses one of them."""
    with contextlib.ExitStack() as locks:
        own_folders = [folder for folder in folders(secret_key, settings_module) if _is_own(folder)]
        manifests = [locks.enter_context(_locked(path)) for folder in own_folders for path in folder.glob("*.card")]
        for manifest in manifests:
            os.ftruncate(manifest, 0)  # a process that is waiting for the lock notices that the file is no longer valid
        for folder in own_folders:
            shutil.rmtree(folder)


@contextlib.contextmanager
def running(var: Path) -> Iterator[None]:
    """Mark a demo with its data in `var` as running. Raise `InUse` if another one is."""
    with _locked(var / LOCK):
        yield


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Hold an exclusive lock on a file, created if necessary, and yield its file descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUse(f"{path} is locked by a running process.") from error
        yield descriptor
    finally:
        os.close(descriptor)


def _is_own(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.geteuid()


def main(var: Path) -> None:
    keys = [os.environ.get("DJANGO_SECRET_KEY", "")]
    with contextlib.suppress(FileNotFoundError):
        keys.append((var / "secret_key").read_text())
    with running(var) if var.is_dir() else contextlib.nullcontext():
        for key in filter(None, keys):
            free(key, os.environ.get("DJANGO_SETTINGS_MODULE", "project.settings"))


if __name__ == "__main__":
    try:
        main(Path("var"))
    except InUse as error:
        sys.exit(f"The demo, or another process of its site, is still running: {error} Stop it, then try again.")
