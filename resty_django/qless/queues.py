"""The queues: `client.queues`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .call import Steps, twins
from .queue import Queue
from .texts import as_list, read, reader
from .values import QueueCounts

if TYPE_CHECKING:
    from .clients import Client

_COUNTS: Final = reader(list[QueueCounts] | dict[str, int])  # type: ignore[arg-type]


class Queues:
    """`client.queues["name"]` is a queue; nothing is asked of the server for it."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def __getitem__(self, name: str) -> Queue:
        return Queue(self.client, name)

    def _counts(self) -> Steps[list[QueueCounts]]:
        """The jobs of all queues by state, in the order in which the queues were first used."""
        return as_list(read((yield ("queues",)), _COUNTS))

    counts, acounts = twins(_counts)


__all__ = ["Queues"]
