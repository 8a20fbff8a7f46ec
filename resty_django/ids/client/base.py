"""The arguments and requests of both clients, which differ in their sockets only."""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Sequence
from typing import NamedTuple

from ..errors import Unavailable
from .nodes import Address, Node, NodesDown, order, read_nodes
from .wire import Codec, UdpReply, error_of


class Attempt(NamedTuple):
    """A datagram to send to a node; `seq` identifies its reply."""

    node: Node
    datagram: bytes
    seq: str


class BaseClient:
    """The arguments and requests of a client; see `IdClient`."""

    def __init__(
        self,
        nodes: str | Sequence[str | Address] = "127.0.0.1:1200",
        *,
        timeout: float = 0.2,
        attempts: int | None = None,
        backoff: float = 0.05,
        key: str | bytes | None = None,
    ) -> None:
        if not timeout > 0:
            raise ValueError(f"The timeout is {timeout}. Use more than 0 seconds.")
        if attempts is not None and attempts < 1:
            raise ValueError(f"The number of attempts is {attempts}. Use at least 1.")
        if not backoff >= 0:
            raise ValueError(f"The backoff is {backoff}. Use at least 0 seconds.")
        self._nodes = read_nodes(nodes)
        self._timeout = timeout
        self._attempts = attempts if attempts is not None else max(3, 2 * len(self._nodes))
        self._backoff = backoff
        self._codec = Codec(key)
        self._closed = False
        self._prepare()

    def _prepare(self) -> None:
        """Set the attributes for the sockets."""
        raise NotImplementedError

    def _ask(self, fields: dict[str, object]) -> Generator[float | Attempt, UdpReply, UdpReply]:
        """Yield pauses (seconds) and attempts, which return a reply or raise OSError. Return the reply of a node."""
        failures: dict[str, str] = {}
        ordered = order(self._nodes, time.monotonic())
        for number in range(self._attempts):
            round_, index = divmod(number, len(ordered))
            if round_ and not index and self._backoff:
                yield self._backoff * 2 ** (round_ - 1) * random.uniform(0.5, 1.0)  # noqa: S311
            node, seq = ordered[index], self._codec.new_seq()
            try:
                reply: UdpReply = yield Attempt(node, self._codec.request(fields, seq), seq)
            except TimeoutError:
                failures[str(node)] = f"no answer within {self._timeout:g} s"
            except OSError as error:
                failures[str(node)] = error.strerror or str(error)
            else:
                refusal = error_of(reply)
                if not isinstance(refusal, Unavailable):
                    node.worked()
                    return reply
                failures[str(node)] = f"unavailable: {refusal}"
            node.failed(time.monotonic())
        raise NodesDown(failures)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError(f"This {type(self).__name__} is closed. Create a new one.")
