"""Memory limit: a process that has grown too large ends after its jobs and is replaced."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Generator
from typing import Any

from ..exit_codes import OUT_OF_MEMORY


class MemoryBound:
    """Replaces this process when it uses more than `limit` bytes of memory after a job."""

    def __init__(self, limit: int) -> None:
        if limit <= 0:
            raise ValueError("MemoryBound() needs a number of bytes greater than 0.")
        self.limit = limit

    def __call__(self, job: Any) -> Generator[None, None, None]:
        try:
            yield
        finally:
            if resident() > self.limit:
                job.retire_worker(OUT_OF_MEMORY)


def resident() -> int:
    """Return the resident memory of this process in bytes, or its maximum so far if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
