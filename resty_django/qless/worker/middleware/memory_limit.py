"""Memory limit: a process that has grown too large ends after its jobs and is replaced."""

from __future__ import annotations

import os
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
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
