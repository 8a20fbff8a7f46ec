"""Checks of ports: whether they are free, and whether a server responds."""

from __future__ import annotations

import errno
import json
import socket


def is_free(host: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> bool:
    """Return whether a server could bind the port now. Raise OSError if the host is not an address of this machine."""
    family = socket.getaddrinfo(host, port, type=kind)[0][0]
    with socket.socket(family, kind) as probe:
        if kind is socket.SOCK_STREAM:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError as error:
            raise OSError(f"This user may not open port {port}: {error}") from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def find_free(host: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a port that was free a moment ago."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def accepts(host: str, port: int) -> bool:
    """Return whether a TCP server accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=0.2).close()
    except OSError:
        return False
    return True


def ask_ids(host: str, port: int, request: dict[str, object], timeout: float = 0.2) -> dict[str, object] | None:
    """Send a request to a UDP ID server and return the reply; None if there is no reply in time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(timeout)
        try:
            client.connect((host, port))
            client.send(json.dumps(request).encode())
            reply: dict[str, object] = json.loads(client.recv(65536))
        except OSError:
            return None
    return reply
