"""Errors of events. The messages begin like those in lua-resty-worker-events."""

from __future__ import annotations


class EventError(Exception):
    """Base class of all event errors."""


class BadEvent(EventError, ValueError):
    """An event without a source or without a name."""


class BadOption(EventError, ValueError):
    """An option of `configure` that is unknown, of the wrong type or out of range. Nothing was changed."""


class NotConfigured(EventError, RuntimeError):
    """`poll` was called in a process that has not started."""


class UnknownEvent(EventError, KeyError, AttributeError):
    """The name is not in its source's list of events."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotEncodable(EventError, TypeError):
    """The data cannot be encoded as JSON. Nothing was posted."""


class NoRoom(EventError, MemoryError):
    """The dictionary has no space for the event. Nothing was posted."""


class Unavailable(EventError):
    """The memory or the server for events cannot be used at the moment."""
