"""Errors of stores on Redis, in words of our own. Importable without redis-py; `faults` makes them of its errors."""

from __future__ import annotations

from typing import Final


class StoreError(Exception):
    """Redis refused a call. The error of redis-py is the `__cause__`."""


class StoreDown(StoreError):
    """The server cannot be reached, does not answer in time, or may not be written to now. Later it may work.

    Where the connection broke or the answer came too late, the call may have been carried out all the same.
    """


class StoreFull(StoreError):
    """The server has used all the memory that it may, and its policy throws nothing out. Nothing was changed."""


NOT_PERMITTED: Final = "The user of Redis may not do this"
"""The beginning of the message of a call that the server's rules forbid."""
