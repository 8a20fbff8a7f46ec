"""Errors of events. The messages begin with the words of lua-resty-worker-events."""

from __future__ import annotations


class EventError(Exception):
    """The base of all errors of events."""


class BadEvent(EventError, ValueError):
    """An event without a source or without a name."""


class BadOption(EventError, ValueError):
    """An option of `configure` that is unknown, of the wrong type or out of range. Nothing was changed."""


class NotConfigured(EventError, RuntimeError):
    """`poll` in a process that did not start."""


class UnknownEvent(EventError, KeyError, AttributeError):
    """A name that is not in the list of events of its source."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class NotEncodable(EventError, TypeError):
    """Data that JSON cannot hold. Nothing was posted."""


class NoRoom(EventError, MemoryError):
    """The dictionary has no room for the event. Nothing was posted."""


class Unavailable(EventError):
    """The memory or the server that carries the events cannot be used now."""
