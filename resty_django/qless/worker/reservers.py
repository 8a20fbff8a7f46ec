"""Queue polling strategies. No I/O."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol


class Reserver(Protocol):
    """The interface of a strategy. A class is called with the names of the queues, in the order of `--queues`."""

    def order(self) -> Iterable[str]:
        """Return the queues to poll now, the first one first. Those known to be empty are skipped."""

    def asked(self, queue: str) -> None:
        """Note that the queue is polled now."""


class Ordered:
    """The first queue until it is empty, then the next; each poll starts with the first again."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)

    def order(self) -> Iterable[str]:
        return self._queues

    def asked(self, queue: str) -> None:
        """Do nothing."""


class RoundRobin:
    """The queues in turn: the next one is the one after the queue that was polled last."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)
        self._next = 0

    def order(self) -> Iterable[str]:
        return self._queues[self._next :] + self._queues[: self._next]

    def asked(self, queue: str) -> None:
        self._next = (self._queues.index(queue) + 1) % len(self._queues)


class Shuffled:
    """A new random order for each poll."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = list(queues)

    def order(self) -> Iterable[str]:
        random.shuffle(self._queues)
        return tuple(self._queues)

    def asked(self, queue: str) -> None:
        """Do nothing."""


RESERVERS: Final[Mapping[str, type[Ordered | RoundRobin | Shuffled]]] = MappingProxyType(
    {"ordered": Ordered, "round_robin": RoundRobin, "shuffled": Shuffled}
)
"""Strategies by name; any other is a dotted path."""
