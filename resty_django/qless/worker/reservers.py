"""Queue polling strategies. No I/O."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol


class Reserver(Protocol):
    """The interface of a strategy. Its class is called with the queue names in the order of `--queues`."""

    def order(self) -> Iterable[str]:
        """Return the queues to poll now, in order. The worker skips queues that it knows to be empty."""

    def asked(self, queue: str) -> None:
        """Record that the queue is being polled."""


class Ordered:
    """Polls the first queue until it is empty, then the next. Each poll starts with the first again."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)

    def order(self) -> Iterable[str]:
        return self._queues

    def asked(self, queue: str) -> None:
        """Do nothing."""


class RoundRobin:
    """Polls the queues in turn, starting after the queue that was polled last."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(queues)
        self._next = 0

    def order(self) -> Iterable[str]:
        return self._queues[self._next :] + self._queues[: self._next]

    def asked(self, queue: str) -> None:
        self._next = (self._queues.index(queue) + 1) % len(self._queues)


class Shuffled:
    """Polls the queues in a new random order each time."""

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
"""Strategies by name; any other name is a dotted path."""
