"""Messages between a worker and the process of a job: tuples of plain values, over a socket."""

from __future__ import annotations

import contextlib
import marshal
import socket
import struct
from typing import Any, Final

_LENGTH: Final = struct.Struct("=Q")


class Channel:
    """One end of a connected pair of sockets. One thread receives, one thread sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = connection.makefile("rb")

    def send(self, message: tuple[Any, ...]) -> None:
        """Send strings, bytes, numbers, booleans, None, `...`, and lists, tuples and dicts of them.

        Raises `OSError` if the other end is gone.
        """
        # marshal keeps lone surrogates and NaN, and runs no code. Both ends are forks of one process.
        data = marshal.dumps(message)
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self) -> tuple[Any, ...] | None:
        """Wait for the next message. Return None if the other end is gone, also within a message."""
        try:
            head = self._reader.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack(head)
            data = self._reader.read(length)
        except (OSError, ValueError):
            return None
        return marshal.loads(data) if len(data) == length else None  # noqa: S302 (from the own child or parent)

    def shut_down(self) -> None:
        """End a `receive` that waits in another thread, once it has read everything that was sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()
