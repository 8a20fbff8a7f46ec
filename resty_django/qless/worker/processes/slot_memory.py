"""Interruptions of a job's process, in memory that it shares with the worker.

The worker writes why the current run ends, and sends a signal if the process is to raise it at once. A signal handler
can read this memory wherever it interrupts the program, which is not true of a socket. `job.lost` reads it without any
signal. Runs are numbered, so that an interruption never hits the next job.
"""

from __future__ import annotations

import mmap
import struct
from typing import Final, NamedTuple

from ...errors import LostLock
from ...outcomes import JobTimeout, Stopping

SLOT_BYTES: Final = 64
_CAUSE: Final = struct.Struct("=QBBd")
"""The number of the run; the index of the exception; whether to raise it; the seconds of a timeout."""
_RUN: Final = struct.Struct("=Q")
_STARTED_AT, _CHANGED_AT = 32, 40
_CAUSES: Final[tuple[type[Exception], ...]] = (JobTimeout, LostLock, Stopping)


class Interruption(NamedTuple):
    """Why a run ends. `raises`: whether the process is to raise it at once."""

    cause: Exception
    raises: bool


class SlotMemory:
    """The part of the shared memory that belongs to the slot number `index`."""

    def __init__(self, memory: mmap.mmap, index: int) -> None:
        self._memory = memory
        self._start = index * SLOT_BYTES

    # --- the worker's side ---

    def interrupt(self, run: int, cause: Exception, *, raises: bool) -> None:
        """Announce to the process why its run ends."""
        kind = next(number for number, kind in enumerate(_CAUSES) if isinstance(cause, kind))
        seconds = cause.seconds if isinstance(cause, JobTimeout) else 0.0
        _CAUSE.pack_into(self._memory, self._start, run, kind, raises, seconds)

    def started(self, run: int) -> bool:
        """Return whether the process has begun this run."""
        return bool(_RUN.unpack_from(self._memory, self._start + _STARTED_AT)[0] == run)

    def state_changed(self, run: int) -> bool:
        """Return whether the job of this run has ended its lease itself."""
        return bool(_RUN.unpack_from(self._memory, self._start + _CHANGED_AT)[0] == run)

    # --- the process's side ---

    def interruption(self, run: int, jid: str) -> Interruption | None:
        """Return why this run ends; None if it has not been interrupted."""
        of_run, kind, raises, seconds = _CAUSE.unpack_from(self._memory, self._start)
        lost = f"The lock of job {jid} is lost: the job belongs to another worker, or is gone."
        causes = (JobTimeout(seconds), LostLock(lost), Stopping())  # in the order of _CAUSES
        return Interruption(causes[kind], bool(raises)) if of_run == run else None

    def is_lost(self, run: int) -> bool:
        """Return whether the worker has lost the job of this run."""
        of_run, kind, _, _ = _CAUSE.unpack_from(self._memory, self._start)
        return bool(of_run == run and _CAUSES[kind] is LostLock)

    def record_start(self, run: int) -> None:
        """Record that this run has begun."""
        _RUN.pack_into(self._memory, self._start + _STARTED_AT, run)

    def record_change(self, run: int) -> None:
        """Record that the job of this run has ended its lease itself."""
        _RUN.pack_into(self._memory, self._start + _CHANGED_AT, run)


def make_memory(slots: int) -> mmap.mmap:
    """Return anonymous memory for this number of slots. Call it before the fork."""
    return mmap.mmap(-1, SLOT_BYTES * slots)
