"""In which order a worker asks its queues for jobs. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol


class Reserver(Protocol):
    """What a class of your own has; it is called with the names of the queues, in the order of `--queues`."""

    def order(self) -> Iterable[str]:
        """The queues to ask now, the first one first. Those known to be empty are skipped."""

    def asked(self, queue: str) -> None:
        """That queue was asked just now."""


class Ordered:
    """The first queue until it is empty, then the next; for each job it begins with the first again."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)

    def order(self) -> Iterable[str]:
        return self._queues

    def asked(self, queue: str) -> None:
        """It makes no difference."""


class RoundRobin:
    """Goes on at the queue after the one that was asked last."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)
        self._next = 0

    def order(self) -> Iterable[str]:
        return self._queues[self._next :] + self._queues[: self._next]

    def asked(self, queue: str) -> None:
        self._next = (self._queues.index(queue) + 1) % len(self._queues)


class Shuffled:
    """In a new random order each time."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = list(queues)

    def order(self) -> Iterable[str]:
        random.shuffle(self._queues)
        return tuple(self._queues)

    def asked(self, queue: str) -> None:
        """It makes no difference."""


RESERVERS: Final[Mapping[str, type[Ordered | RoundRobin | Shuffled]]] = MappingProxyType(
    {"ordered": Ordered, "round_robin": RoundRobin, "shuffled": Shuffled}
)
"""Those that have a name; any other is a dotted path."""

__all__ = ["RESERVERS", "Ordered", "Reserver", "RoundRobin", "Shuffled"]
