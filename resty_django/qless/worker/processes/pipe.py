"""Messages between a worker and the process of a job, over a socket."""

from __future__ import annotations

import contextlib
import marshal
import socket
import struct
from types import EllipsisType
from typing import Any, Final, NamedTuple, TypeAlias

from ..running_job import JobEnd

_LENGTH: Final = struct.Struct("=Q")


class StartRun(NamedTuple):
    """To the process: run a job. `run`: the number of the run. `record`: the fields of the job's `JobRecord`."""

    run: int
    queue: str
    record: dict[str, Any]


class LimitRun(NamedTuple):
    """To the worker: interrupt the run `seconds` after its start, and kill the process `kill_after` seconds later."""

    seconds: float
    kill_after: float | EllipsisType | None


class RunEnded(NamedTuple):
    """To the worker: the job has ended. `command`: the packed `EndCommand`. `retiring`: the process ends now."""

    end: JobEnd | None
    command: dict[str, Any] | None
    retiring: bool


PipeMessage: TypeAlias = StartRun | LimitRun | RunEnded


class JobPipe:
    """One end of a connected pair of sockets. One thread receives, one thread sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._reader = connection.makefile("rb")

    def send(self, message: PipeMessage) -> None:
        """Send a message, whose values are plain. Raises `OSError` if the other end is gone."""
        # marshal keeps lone surrogates and NaN, and runs no code. Both ends are forks of one process.
        data = marshal.dumps((type(message).__name__, *message))
        self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self) -> PipeMessage | None:
        """Wait for the next message. Return None if the other end is gone, also within a message."""
        try:
            head = self._reader.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack(head)
            data = self._reader.read(length)
        except (OSError, ValueError):
            return None
        if len(data) < length:
            return None
        name, *values = marshal.loads(data)  # noqa: S302 (from the own child or parent)
        return next(kind for kind in (StartRun, LimitRun, RunEnded) if kind.__name__ == name)(*values)

    def shut_down(self) -> None:
        """End a `receive` that waits in another thread, once it has read everything that was sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()
