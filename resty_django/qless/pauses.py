"""Pausing a queue with a reason, which is kept beside its options until it goes on."""

from __future__ import annotations

from typing import Final

from .queue import Queue

REASON: Final = "pause-reason"


def pause(queue: Queue, reason: str = "", stop_jobs: bool = False) -> None:
    """Hand out no more jobs of the queue; `stop_jobs` takes those that run from their workers too."""
    if reason:
        queue.config_set(REASON, reason)
    else:
        queue.client.config.unset(f"{queue.name}-{REASON}")
    queue.pause(stop_jobs=stop_jobs)


def unpause(queue: Queue) -> None:
    """Hand them out again, and forget the reason."""
    queue.unpause()
    queue.client.config.unset(f"{queue.name}-{REASON}")


__all__ = ["REASON", "pause", "unpause"]
