"""The logging handler."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from typing import Any, Final

from resty_django.processes.forks import after_fork

from .options import LogOptions
from .sender import Sender
from .shipper import ShippingCounts

FLUSH_SECONDS: Final = 10.0
"""Maximum wait of `flush` (seconds)."""
EXIT_SECONDS: Final = 5.0
"""Maximum wait (seconds) of `close`, and of all handlers together at process exit."""

_paused = threading.local()
_handlers: weakref.WeakSet[SocketHandler] = weakref.WeakSet()


class SocketHandler(logging.Handler):
    """A logging handler that buffers formatted records in memory and ships them to a log server in the background.

    `emit` only formats and buffers; it never waits for the network. Arguments: `level`, and the fields of `LogOptions`,
    whose docstring lists their units. Raises `BadOption` with a description of the mistake.
    """

    def __init__(self, level: int | str = logging.NOTSET, **options: Any) -> None:
        self.options: Final = LogOptions.of(options)
        self._sender = Sender(self.options)
        super().__init__(level)
        _handlers.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.options.address} ({logging.getLevelName(self.level)})>"

    def emit(self, record: logging.LogRecord) -> None:
        """Format the record and buffer it."""
        try:
            text = self.format(record) + self.options.terminator
            self._sender.log(text.encode("utf-8", "backslashreplace"))
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Ship the buffered records now, and wait up to 10 seconds for success or failure."""
        self._sender.flush(FLUSH_SECONDS)

    def close(self) -> None:
        """Ship the buffered records, waiting at most 5 seconds, and close. Later records are shipped immediately."""
        self._close(EXIT_SECONDS)

    def stats(self) -> ShippingCounts:
        """Return the counts of this handler in this process."""
        return self._sender.stats()

    def _close(self, seconds: float) -> None:
        self._sender.close(seconds)
        super().close()

    def _after_fork(self) -> None:
        """Start afresh in a forked child: the messages, the thread and the connection belong to the parent."""
        self._sender.abandon()
        self._sender = Sender(self.options)


def handlers() -> list[SocketHandler]:
    """Return the handlers of this process."""
    return list(_handlers)


def _before_fork() -> None:
    """Let the threads finish their current flush, for half a second at most.

    A forked child could otherwise wait forever for locks that they hold, for example in the system's resolver or in
    OpenSSL.
    """
    end = time.monotonic() + 0.5
    senders = [handler._sender for handler in handlers()]
    _paused.senders = [sender for sender in senders if sender.pause(max(0.0, end - time.monotonic()))]


def _in_parent() -> None:
    for sender in _paused.senders:
        sender.resume()


def _after_fork() -> None:
    for handler in handlers():
        handler._after_fork()


def _at_exit() -> None:
    """Close all handlers. Runs before `logging` shuts down, so that other handlers can report lost messages."""
    end = time.monotonic() + EXIT_SECONDS
    for handler in handlers():
        handler._close(max(0.0, end - time.monotonic()))


after_fork(_after_fork, before=_before_fork, parent=_in_parent)
atexit.register(_at_exit)
