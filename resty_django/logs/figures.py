"""The figures of one handler in one process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts since the handler was made, or since the fork.

    `waiting` messages of `size` bytes were not sent yet. `sent` messages were, without those sent once more, which are
    `resent`. `dropped`: those for which there was no room, or which were too long for a datagram. `failures`: flushes
    that failed; `error`: why the last one did, None when it did not.
    """

    waiting: int
    size: int
    sent: int
    resent: int
    dropped: int
    failures: int
    error: str | None


__all__ = ["Figures"]
