"""The handler for Python's logging."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from typing import Any, Final

from resty_django.forks import after_fork

from .options import Options
from .sender import Sender
from .shipper import Stats

FLUSH_SECONDS: Final = 10.0
"""The longest that `flush` waits."""
EXIT_SECONDS: Final = 5.0
"""The longest that `close` waits, and all handlers together at the end of the process."""
FORK_SECONDS: Final = 0.5
"""The longest that a fork waits for flushes that are running."""

_paused = threading.local()
_handlers: weakref.WeakSet[SocketHandler] = weakref.WeakSet()


class SocketHandler(logging.Handler):
    """Gathers formatted records in memory, and ships them to one log server in the background.

    `emit` only formats, and appends to a buffer: it never waits for the network. Arguments: `level`, and the names of
    `Options`, whose docstring has their units. Raises `BadOption`, which names the mistake.
    """

    def __init__(self, level: int | str = logging.NOTSET, **options: Any) -> None:
        self.options: Final = Options.of(options)
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
        """Ship now what is buffered, and wait until that has worked or failed: at most 10 seconds."""
        self._sender.flush(FLUSH_SECONDS)

    def close(self) -> None:
        """Ship what is buffered, waiting at most 5 seconds, and end. What is logged later is shipped at once."""
        self._close(EXIT_SECONDS)

    def stats(self) -> Stats:
        """Return the counts of this handler in this process."""
        return self._sender.stats()

    def _close(self, seconds: float) -> None:
        self._sender.close(seconds)
        super().close()

    def _after_fork(self) -> None:
        """Start over in the child of a fork: the messages, the thread and the connection belong to the parent."""
        self._sender.abandon()
        self._sender = Sender(self.options)


def handlers() -> list[SocketHandler]:
    """Return the handlers of this process."""
    return list(_handlers)


def _before_fork() -> None:
    """Let the threads finish what they are about: a child never gets the locks that a thread of its parent holds, those
    of the system's resolver and of OpenSSL among them."""
    end = time.monotonic() + FORK_SECONDS
    senders = [handler._sender for handler in handlers()]
    _paused.senders = [sender for sender in senders if sender.pause(max(0.0, end - time.monotonic()))]


def _in_parent() -> None:
    for sender in _paused.senders:
        sender.resume()


def _after_fork() -> None:
    for handler in handlers():
        handler._after_fork()


def _at_exit() -> None:
    """Close all handlers. Runs before `logging` shuts down, so that other handlers can report what is lost."""
    end = time.monotonic() + EXIT_SECONDS
    for handler in handlers():
        handler._close(max(0.0, end - time.monotonic()))


after_fork(_after_fork, before=_before_fork, parent=_in_parent)
atexit.register(_at_exit)
