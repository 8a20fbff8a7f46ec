"""The nodes of a client: their addresses, their failures, and the order in which to try them."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..errors import Unavailable

FIRST_REST_SECONDS, MAX_REST_SECONDS = 0.5, 30.0
"""The time for which a failed node is tried last: after one failure, and at most. It doubles with each failure."""

Address = tuple[str, int]
Infos = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]]


class NodesDown(Unavailable):
    """No node answered. `failures` maps each node tried ("host:port") to its last failure."""

    code: ClassVar[str] = "nodes_down"

    def __init__(self, failures: dict[str, str]) -> None:
        super().__init__("No ID server answered: " + "; ".join(f"{node}: {why}" for node, why in failures.items()))
        self.failures = failures

    def __reduce__(self) -> tuple[type[NodesDown], tuple[dict[str, str]]]:
        return type(self), (self.failures,)


@dataclass(eq=False)
class Node:
    """One server. `failures` counts consecutive failures; until `rests_until` (monotonic seconds) it is tried last."""

    host: str
    port: int
    failures: int = 0
    rests_until: float = 0.0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def worked(self) -> None:
        self.failures = 0
        self.rests_until = 0.0

    def failed(self, now: float) -> None:
        pause = min(FIRST_REST_SECONDS * 2 ** min(self.failures, 10), MAX_REST_SECONDS)
        self.failures += 1
        self.rests_until = now + pause * random.uniform(0.75, 1.25)  # noqa: S311

    def connected(self, infos: Infos) -> socket.socket:
        """Return a non-blocking socket that receives datagrams from this node only.

        `infos` is the result of getaddrinfo; after a failure, the next address of a name is tried. Raise OSError.
        """
        family, kind, protocol, _, address = infos[self.failures % len(infos)]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        return sock


def read_nodes(nodes: str | Sequence[str | Address]) -> list[Node]:
    """Return the nodes for `"host:port"`, or for a list of such strings and (host, port) pairs.

    Put IPv6 addresses in brackets: "[::1]:1200". The default port is 1200. Raise ValueError for an empty or wrong list.
    """
    parsed = [_node(node) for node in ([nodes] if isinstance(nodes, str) else nodes)]
    if not parsed:
        raise ValueError('The list of nodes is empty. Pass at least one, such as "127.0.0.1:1200".')
    return parsed


def order(nodes: Sequence[Node], now: float) -> list[Node]:
    """Return the nodes in the order to try them: in random order, then resting nodes, the soonest ready first."""
    ready = [node for node in nodes if node.rests_until <= now]
    random.shuffle(ready)
    return ready + sorted((node for node in nodes if node.rests_until > now), key=lambda node: node.rests_until)


def _node(node: str | Address) -> Node:
    hint = 'Write "host:port", "[::1]:1200" or ("host", 1200).'
    if isinstance(node, str):
        if node.startswith("["):
            host, bracket, suffix = node[1:].partition("]")
            valid = bool(bracket) and (not suffix or suffix.startswith(":"))
            port = suffix[1:]
        else:
            host, colon, port = node.partition(":")
            valid = ":" not in port
            suffix = colon + port
        if not valid or not host or (suffix and not (port.isascii() and port.isdigit())):
            raise ValueError(f"{node!r} is not a node. {hint}")
        number = int(port) if suffix else 1200
    else:
        try:
            host, number = node
        except (TypeError, ValueError):
            raise ValueError(f"{node!r} is not a node. {hint}") from None
        if not isinstance(host, str) or not host or isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"{node!r} is not a node. {hint}")
    if not 1 <= number <= 65_535:
        raise ValueError(f"The port of {node!r} must be from 1 to 65535.")
    return Node(host, number)
