"""Errors of stores on Redis. Importable without redis-py; `faults` translates its errors to these."""

from __future__ import annotations

from typing import Final


class StoreError(Exception):
    """Redis rejected a call. The redis-py error is the `__cause__`."""


class StoreDown(StoreError):
    """The server cannot be reached, does not respond in time, or currently rejects writes. A retry may succeed.

    If the connection broke or the response came too late, the server may have executed the call nevertheless.
    `timed_out`: the call has waited for the timeout of the connection.
    """

    timed_out = False


class StoreFull(StoreError):
    """The server has reached its memory limit, and its policy does not evict. Nothing was changed."""


NOT_PERMITTED: Final = "The Redis user lacks the permission"
"""The beginning of the message for a call that the server's ACL forbids."""
